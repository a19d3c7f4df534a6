"""The experiments of `ballast eval`, with methods in Python beside the others."""
from __future__ import annotations

import json as _json
import os
from typing import Any, Callable, Optional, Sequence, Union

from . import _ballast
from .errors import Error
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
    if not hasattr(_ballast, "_evaluate"):
        raise Error("evaluate: this module was built without experiments (-DBALLAST_LAB=ON)")
    values = {name: _plain(value) for name, value in options.items()}
    if files:
        values["files"] = [os.fspath(file) for file in files] if len(files) > 1 else os.fspath(files[0])
    values["model"] = _plain(model.path if isinstance(model, Model) else model)
    values["methods"] = _plain(methods)
    values["cache"] = _cache(bytes, values.pop("cache", None))
    values = {name: value for name, value in values.items() if value is not None}
    return Records(_json.loads(_ballast._evaluate(experiment, _json.dumps(values),
                                                  "" if json is None else os.fspath(json), progress)))


def _plain(value: Any) -> Any:
    """A value that JSON has: paths as text, tuples, arrays and their numbers as Python's own."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (str, dict)) or not hasattr(value, "__iter__"):
        return value
    return [_plain(one) for one in value]


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
