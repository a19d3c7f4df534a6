"""The experiments of `ballast eval`, with methods in Python beside the others."""
from __future__ import annotations

import json as _json
import os
from typing import Any, Callable, Optional, Sequence, Union

from . import _ballast
from .models import Model

Path = Union[str, "os.PathLike[str]"]


class Records(list):  # type: ignore[type-arg]
    """The rows of a result: dicts, one for each method at each setting, as in the JSON of
    `ballast eval --json`. pandas.DataFrame(records) is a table of them."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result["results"])
        self.title: str = result["title"]
        self.settings: dict[str, Any] = result["settings"]  #: of all rows
        self.notes: list[str] = result["notes"]  #: what the columns mean, and what has to be known


def evaluate(experiment: str, *files: Path, model: Union[None, Model, Path] = None,
             methods: Union[None, str, Sequence[str]] = None,
             bytes: Union[None, float, str, Sequence[Union[float, str]]] = None,
             json: Optional[Path] = None,
             progress: Optional[Callable[[float], object]] = None, **options: Any) -> Records:
    """Runs an experiment in this process and returns its rows.

        ballast.evaluate("lines", model="models/ballast-mini.gguf", lines=[40], repeat=5,
                         methods=["exact", "balancekv", "short-keys"], bytes=[1/8, 1/4])

    experiment: a command of `ballast eval`. files: what it reads, such as captured keys and values
    for "attention". methods: method strings; those of register_method() count. bytes: shares of the
    exact bf16 cache's bytes, over 0 to 1, or amounts such as "256M" (--cache). json: also writes the
    result there, for `ballast report`; after an interruption the same call goes on. progress: gets
    the fraction that is done, 0 to 1, from any thread.
    options: those that `ballast eval EXPERIMENT --help` lists. rates=[0.25, 0.5] is
    --rates 0.25,0.5, question_later=True is --question-later, None and False are left out.

    Raises ArgumentError on an option or value that the program would refuse. The interpreter's lock
    is released; Ctrl-C ends an experiment between two steps, such as answers.
    """
    if experiment == "paper":
        raise ValueError("evaluate: 'paper' starts programs; run `ballast eval paper`")
    if "quiet" in options:
        raise TypeError("evaluate prints nothing: it has no option 'quiet'")
    words = [experiment, *(os.fspath(file) for file in files)]
    given = {"model": model.path if isinstance(model, Model) else model, "methods": methods,
             "cache": _cache(bytes, options.pop("cache", None)), **options}
    for name, value in given.items():
        words += _words(name, value)
    words.append("--json" if json is None else f"--json={os.fspath(json)}")
    text = _ballast._evaluate(words, progress)
    if json is not None:
        with open(json, encoding="utf-8") as file:
            text = file.read()
    return Records(_json.loads(text))


def _cache(bytes: Any, cache: Any) -> Any:
    """The sizes that --cache takes."""
    if bytes is None:
        return cache
    if cache is not None:
        raise TypeError("evaluate: give bytes or cache, which are the same")
    sizes = []
    for size in bytes if isinstance(bytes, (list, tuple)) else [bytes]:
        if isinstance(size, str):
            sizes.append(size)
        elif 0 < size <= 1:
            sizes.append("100%" if size == 1 else repr(float(size)))
        else:
            raise ValueError(f"bytes {size}: expected shares of the exact cache's bytes, such as "
                             "1/8, or amounts, such as '256M'")
    return sizes


def _words(name: str, value: Any) -> list[str]:
    """An option as the program takes it."""
    flag = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    if isinstance(value, (str, os.PathLike)) or not hasattr(value, "__iter__"):
        return [f"{flag}={os.fspath(value) if isinstance(value, os.PathLike) else value}"]
    words = [word for one in value for word in _words(name, one)]
    if not words:
        raise ValueError(f"{name}: expected at least one value")
    return words
