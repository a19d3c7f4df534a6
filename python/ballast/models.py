"""Models, and the texts that they read and continue."""
from __future__ import annotations

import math
import os
from typing import Any, Iterable, Optional, Sequence, Union

from . import _ballast
from ._ballast import Answer
from .caches import Kept

Text = Union[str, Sequence[int]]
Messages = Iterable[Union[tuple[str, str], dict[str, str]]]


class Context:
    """One text that a model reads and continues, with its cache. Made by a Model.

    One call at a time; other contexts run in other threads.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        #: What the small cache costs, if finish_prompt() measured it: nats a token.
        self.cost: Optional[float] = None

    def read(self, text: Text) -> "Context":
        """Reads text, or token ids, after what was read. Returns itself."""
        self._inner.read(self._ids(text))
        return self

    def finish_prompt(self, *, measure: bool = False) -> "Context":
        """The prompt has ended: the method summarises it, after a replay pass if it wants one.

        generate() does it if you have not. measure: cost becomes the mean KL divergence of the
        next token from the exact cache's, over passages of the text that are read again with both;
        below 0.01 answers are as from the exact cache. None where it cannot be measured (streams,
        rolling positions, under 128 tokens). Returns itself.
        """
        self.cost = self._inner.finish_prompt(measure)
        return self

    def compact(self, bytes: int) -> "Context":
        """Divides these bytes among all that the cache holds, without reading the text again.

        Wants protocol="stream" and a method with one budget (calibrated, replay), which holds for
        what follows. The method's sink= first and window= last tokens are never dropped.
        """
        self._inner.compact(bytes)
        return self

    def generate(self, *, max_tokens: int = 256, temperature: float = 0.0, top_k: int = 0,
                 top_p: float = 1.0, min_p: float = 0.0, repetition_penalty: float = 1.0,
                 seed: int = 0, stop: Sequence[str] = (), ignore_end: bool = False) -> Answer:
        """Continues the text: an iterator over pieces of text, read on only as it is drawn.

        temperature 0: the likeliest token; top_k 0: all; stop: texts before which the answer ends;
        max_tokens 0: until the model ends. The context goes on from the end of the answer.
        """
        return self._inner.generate(max_tokens, temperature, top_k, top_p, min_p,
                                    repetition_penalty, seed, list(stop), ignore_end)

    def ask(self, question: str, **options: Any) -> Answer:
        """Answers a question about the text, on a copy: this context stays as it is.

        options: those of generate().
        """
        copy = self._inner.clone()
        copy.read(copy.question(question))
        return Context(copy).generate(**options)

    def score(self, text: Text) -> Any:
        """Reads text and returns -ln of the probability given to each of its tokens, in nats.

        float32, one number a token. Something must have been read before.
        """
        return self._inner.score(self._ids(text))

    def clone(self) -> "Context":
        """A copy that goes on by itself. Only once the prompt has ended.

        It shares what was read, so that eight agents on one text hold it once.
        """
        return Context(self._inner.clone())

    def save(self, path: Union[str, os.PathLike[str]], *, pack: str = "off") -> None:
        """Writes the cache to a file for Model.load(), and for `ballast run --load-cache`.

        pack: "1/16" or another preset of the model's basis, which `ballast calibrate` makes, packs
        it: every token is kept, with a little loss. "off": the context goes on to the bit.
        """
        self._inner.save(os.fspath(path), pack)

    @property
    def logits(self) -> Any:
        """Of the last token read, float32, one a token of the vocabulary; empty before the first."""
        return self._inner.logits()

    @property
    def tokens(self) -> int:
        """Tokens read."""
        return self._inner.tokens()

    @property
    def prompt_finished(self) -> bool:
        return self._inner.prompt_finished

    @property
    def bytes(self) -> int:
        """Bytes that the cache holds."""
        return self._inner.bytes()["total"]

    @property
    def bytes_by_part(self) -> dict[str, int]:
        return self._inner.bytes()

    @property
    def exact_bytes(self) -> int:
        """Bytes that an exact cache of the same tokens would hold, in the same storage."""
        return self._inner.exact_bytes()

    def entries(self, layer: int = 0) -> int:
        """Entries kept per KV head of a layer (the largest)."""
        return self._inner.entries(layer)

    def kept(self, layer: int = 0, head: int = 0) -> Kept:
        """The kept entries of one KV head, in order of position."""
        return Kept(*self._inner.kept(layer, head))

    def _ids(self, text: Text) -> list[int]:
        if isinstance(text, str):
            return self._inner.encode_more(text, self._inner.tokens() == 0)
        return list(text)


class Model:
    """A model ready to run: a GGUF file or a Hugging Face folder. Weights are mapped, not read.

    Any number of threads may use it. Keywords of its caches (cache=...): method, bytes, protocol,
    positions, key_type, value_type, seed, expected_tokens, threads, as for ballast.Cache. bytes
    "auto": the smallest size that answers as the exact cache, chosen when the prompt ends; the
    context's cost says how well.
    mmproj: the vision tower of a GGUF model; folders hold their own.
    Raises FileError if it cannot be read.
    """

    def __init__(self, path: Union[str, os.PathLike[str]], *,
                 mmproj: Union[None, str, os.PathLike[str]] = None) -> None:
        self.path = os.fspath(path)
        self._inner = _ballast._Model(self.path, "" if mmproj is None else os.fspath(mmproj))

    @property
    def config(self) -> dict[str, Any]:
        """Dimensions (layers, width, heads, kv_heads, key_dim, value_dim, vocabulary, ...)."""
        return self._inner.config

    def shape(self, context: int = 0) -> "_ballast.Shape":
        """The Shape of a cache for texts of up to `context` tokens."""
        return self._inner.shape(context)

    def tokenize(self, text: str, *, special: bool = True, parse_special: bool = False
                 ) -> list[int]:
        """Token ids. special: begin and end as the vocabulary asks; parse_special: '<|im_end|>' in
        the text means that token."""
        return self._inner.tokenize(text, special, parse_special)

    def detokenize(self, tokens: Sequence[int], *, special: bool = False) -> str:
        """The text of tokens; bytes that are not UTF-8 become U+FFFD."""
        return self._inner.detokenize(list(tokens), special)

    def format_chat(self, messages: Messages, *, add_answer: bool = True) -> str:
        """The text of a conversation by the model's template: (role, content), or dicts of both."""
        pairs = [(m["role"], m["content"]) if isinstance(m, dict) else tuple(m) for m in messages]
        return self._inner.format_chat(pairs, add_answer)

    def context(self, text: Optional[Text] = None, **cache: Any) -> Context:
        """A context that has read `text`; its prompt goes on until finish_prompt()."""
        out = Context(self._new(cache))
        return out if text is None else out.read(text)

    def read(self, text: str = "", *, images: Iterable[Union[str, os.PathLike[str]]] = (),
             chat: Optional[bool] = None, system: str = "", measure: bool = False,
             **cache: Any) -> Context:
        """A context that has read a document and summarized it, ready for Context.ask().

        images: files of pictures, which stand before the text; chat: in the model's chat template,
        before a question; None: if the model has one. measure: see Context.finish_prompt().
        """
        inner = self._new(cache)
        if chat is None:
            chat = bool(self.config["chat_template"])
        paths = [os.fspath(path) for path in images]
        inner.read(self._inner.question_form(inner, text, chat, system, paths))
        return Context(inner).finish_prompt(measure=measure)

    def load(self, path: Union[str, os.PathLike[str]], *, threads: int = 0, **cache: Any) -> Context:
        """The context of a file that this model wrote. It has no logits until it reads.

        cache: of a packed file, the keywords of the cache that it becomes, such as bytes=1/8.
        """
        if cache:
            return Context(self._inner.unpack_context(
                os.fspath(path), self._new({**cache, "threads": threads})))
        return Context(self._inner.load_context(os.fspath(path), threads))

    def generate(self, prompt: Text, *, cache: Optional[dict[str, Any]] = None, **options: Any
                 ) -> Answer:
        """Continues a prompt: an iterator over pieces of text.

        options: those of Context.generate(); cache: keywords of the cache.
        """
        return self.context(prompt, **(cache or {})).generate(**options)

    def chat(self, messages: Messages, *, cache: Optional[dict[str, Any]] = None, **options: Any
             ) -> Answer:
        """Answers a conversation: an iterator over pieces of text."""
        ids = self.tokenize(self.format_chat(messages), special=False, parse_special=True)
        return self.context(ids, **(cache or {})).generate(**options)

    def perplexity(self, text: Text, *, prompt_tokens: Optional[int] = None, **cache: Any) -> float:
        """e to the mean loss of the tokens after the first `prompt_tokens`, which are summarized.

        prompt_tokens: half of the text unless given. The text must fit the model's positions.
        """
        ids = self.tokenize(text) if isinstance(text, str) else list(text)
        prompt = len(ids) // 2 if prompt_tokens is None else prompt_tokens
        if not 0 < prompt < len(ids):
            raise ValueError(f"prompt_tokens {prompt}: expected 1 to {len(ids) - 1}, "
                             f"for a text of {len(ids)} tokens")
        cache.setdefault("expected_tokens", len(ids))
        context = self.context(ids[:prompt], **cache).finish_prompt()
        return math.exp(float(context.score(ids[prompt:]).astype("float64").mean()))

    def _new(self, cache: dict[str, Any]) -> Any:
        known = {"method": "", "bytes": None, "protocol": "prefill", "positions": "absolute",
                 "key_type": "bf16", "value_type": "", "seed": 0, "expected_tokens": 0,
                 "threads": 0}
        for key in cache:
            if key not in known:
                raise TypeError(f"a cache has no option '{key}'; known: {', '.join(known)}")
        return self._inner.context(*{**known, **cache}.values())
