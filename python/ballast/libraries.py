"""Documents that a model reads once and that are asked together."""
from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any, Callable, Optional, Union

from . import _ballast
from .models import Model


@dataclass(frozen=True)
class LibraryAnswer:
    """An answer, and what it rests on."""

    text: str  #: empty where the library supports none
    supported: bool
    #: The sentences that it rests on: document, page (of a PDF), line, text.
    citations: list[dict[str, Any]]
    #: The sections that were asked, the best found first: name, title, answer, certainty.
    sections: list[dict[str, Any]]

    def __str__(self) -> str:
        return self.text if self.supported else "Not in the library."


class Library:
    """Documents in a folder, read in sections by one model: see docs/running-models.md.

    Programs may add documents meanwhile; the next question finds them. One call at a time.
    """

    def __init__(self, model: Model, folder: Union[str, os.PathLike[str]]) -> None:
        self.folder = os.fspath(folder)
        self._inner = _ballast._Library(model._inner, self.folder)

    def add(self, *paths: Union[str, os.PathLike[str]], cache: str = "", pack: str = "",
            progress: Optional[Callable[[float], Any]] = None) -> dict[str, list[str]]:
        """Takes in files and folders, as `ballast library add` does; the same call goes on.

        What is new or has changed is read, what is gone from a folder is taken out. cache, pack:
        as there. progress: is told the share that is read; False stops. Returns the names of what
        was added, changed, removed, and left out because it is no text.
        """
        told = None if progress is None else lambda done: progress(done) is not False
        return json.loads(self._inner.add([os.fspath(one) for one in paths], cache, pack, told))

    def ask(self, question: str, *, sections: int = 3, max_tokens: int = 256,
            temperature: float = 0.0, seed: int = 0) -> LibraryAnswer:
        """Answers from the section that supports an answer best, of this many at most."""
        made = json.loads(self._inner.ask(question, sections, max_tokens, temperature, seed))
        return LibraryAnswer(made["answer"], made["supported"], made["citations"],
                             made["documents"])

    def documents(self) -> list[dict[str, Any]]:
        """The documents: name, tokens, sections, sections_read, bytes, added, files."""
        return json.loads(self._inner.documents())

    def remove(self, *names: str) -> None:
        """Takes documents out, by their names."""
        self._inner.remove(list(names))
