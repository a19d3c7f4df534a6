"""Ballast's caches under models of transformers, on the processor.

With transformers that has AttentionInterface, where this module registers "ballast"::

    import ballast.transformers as bt
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="ballast")
    cache = bt.BallastCache(method="exact:type=q4/q2")
    model.generate(**inputs, past_key_values=cache)    # cache=cache where it is deprecated

With an older one, ``bt.patch(model)`` replaces the attention of Llama-like models. Methods that
read a text twice are told when: ``bt.compress(model, bt.BallastCache(bytes=1/8), input_ids)``.

A cache holds the compressed entries themselves, not a mask: cache.bytes is what they take.
"""
from __future__ import annotations

import inspect
import threading
import types
from typing import Any, Optional

import torch

from . import _ballast

try:
    from transformers import Cache as _Base
except ImportError:  # any model that calls update() as transformers does will do
    _Base = object

_thread = threading.local()


class BallastCache(_Base):  # type: ignore[misc,valid-type]
    """The cache of a batch of sequences, in place of transformers' DynamicCache.

    Keywords are those of ballast.Cache, but the shape, which the model gives: method, bytes,
    protocol, key_type, value_type, seed, expected_tokens, threads.

    The prompt ends with finish_prompt(), or by itself at the first step of one token.
    """

    is_compileable = False

    def __init__(self, **options: Any) -> None:
        if _Base is not object:
            try:
                super().__init__(layers=[])
            except TypeError:
                try:
                    super().__init__()
                except (TypeError, ValueError):
                    pass
        if "positions" in options:
            raise TypeError("positions are those of the model: absolute")
        options.setdefault("method", "")
        self._options = options
        self._caches: list[_ballast.Cache] = []
        self._padding: list[int] = []  # tokens before each sequence
        self._lengths: list[int] = []  # tokens of each layer, with them
        self._finished = False
        self._replaying = False
        self._inverse_norms: dict[int, Any] = {}

    # What transformers calls.

    def update(self, key_states: Any, value_states: Any, layer_idx: int,
               cache_kwargs: Optional[dict[str, Any]] = None, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Hands keys and values on to attention(), which puts them into the cache."""
        if (layer_idx == 0 and not self._replaying and not self._finished and self._caches
                and key_states.shape[2] == 1):
            self.finish_prompt()
        _thread.cache, _thread.keys = self, key_states
        return key_states, value_states

    def get_seq_length(self, layer_idx: Optional[int] = 0) -> int:
        """Tokens read, padding included."""
        return self._lengths[layer_idx or 0] if self._caches else 0

    def get_max_cache_shape(self, *_: Any) -> int:
        return -1

    def get_max_length(self) -> None:
        return None

    def get_usable_length(self, new_seq_length: int, layer_idx: Optional[int] = 0) -> int:
        return self.get_seq_length(layer_idx)

    def get_mask_sizes(self, cache_position: Any, layer_idx: int = 0) -> tuple[int, int]:
        new = cache_position if isinstance(cache_position, int) else cache_position.shape[0]
        return self.get_seq_length(layer_idx) + new, 0

    def crop(self, max_length: int) -> None:
        """Forgets all tokens but the first, where the method can."""
        if max_length < 0:
            max_length += self.get_seq_length()
        for cache, padding in zip(self._caches, self._padding):
            cache.truncate(max(0, max_length - padding))
        self._lengths = [min(length, max_length) for length in self._lengths]

    def reorder_cache(self, beam_idx: Any) -> None:
        """Sequences as beam search orders them: copies of those that go on twice."""
        self._caches = [self._caches[int(i)].clone() for i in beam_idx]
        self._padding = [self._padding[int(i)] for i in beam_idx]

    def __len__(self) -> int:
        return self._caches[0].shape.layers if self._caches else 0

    def __bool__(self) -> bool:
        return True  # an empty cache is one too

    # What is Ballast's own.

    def finish_prompt(self) -> None:
        """The prompt has ended: the method summarises it. Once."""
        for cache in self._caches:
            cache.finish_prompt()
        self._finished = True

    @property
    def caches(self) -> list[_ballast.Cache]:
        """The ballast.Cache of each sequence; empty before the first layer has run."""
        return list(self._caches)

    @property
    def bytes(self) -> int:
        """Bytes that all sequences hold."""
        return sum(cache.bytes for cache in self._caches)

    def _make(self, module: Any, query: Any, key: Any, value: Any, scaling: Optional[float],
              softcap: float) -> None:
        config = getattr(module, "config", None)
        layers = getattr(config, "num_hidden_layers", None)
        if layers is None:
            raise ValueError("the model's config has no num_hidden_layers, which a cache must know")
        windows = []
        window = getattr(config, "sliding_window", None)
        if window and getattr(config, "use_sliding_window", True):
            kinds = getattr(config, "layer_types", None)
            windows = [window if kinds is None or kinds[i] == "sliding_attention" else 0
                       for i in range(layers)]
        shape = _ballast.Shape(
            layers=layers, kv_heads=key.shape[1], queries_per_kv_head=query.shape[1] // key.shape[1],
            key_dim=key.shape[3], value_dim=value.shape[3], scale=scaling, softcap=softcap,
            sliding_windows=windows)
        self._caches = [_ballast.Cache(shape, **self._options) for _ in range(query.shape[0])]
        self._padding, self._lengths = [0] * query.shape[0], [0] * layers

    def _attend(self, module: Any, query: Any, key: Any, value: Any, scaling: Optional[float],
                softcap: float, padding: Optional[list[int]] = None) -> Any:
        if not self._caches:
            self._make(module, query, key, value, scaling, softcap)
            self._padding = padding or self._padding
        elif padding is not None and padding != self._padding:
            raise ValueError(f"padding of {padding} tokens, but the prompt began with {self._padding}")
        batch, heads, tokens, _ = query.shape
        if batch != len(self._caches):
            raise ValueError(f"a batch of {batch}, but the cache is of {len(self._caches)} sequences")
        layer = module.layer_idx
        out = torch.zeros(batch, tokens, heads, value.shape[3], dtype=query.dtype)
        read = self._lengths[layer]
        if not self._replaying:
            self._lengths[layer] += tokens
        for b, cache in enumerate(self._caches):
            skip = min(tokens, max(0, self._padding[b] - read))
            if skip == tokens:
                continue
            q, k, v = (t[b].transpose(0, 1)[skip:] for t in (query, key, value))
            if self._replaying:
                q, k, v = (t.float().contiguous() for t in (q, k, v))
                out[b] = cache.replay(layer, k, v, q, self._inverse_norms.get(layer))
            else:
                cache.forward(layer, k, v, q, out[b, skip:])
        return out


def attention(module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None,
              scaling: Optional[float] = None, dropout: float = 0.0, softcap: Optional[float] = None,
              **_: Any) -> tuple[Any, None]:
    """The attention function "ballast": of queries over the BallastCache that update() was called on.

    query: (batch, heads, tokens, dim), key and value those of the new tokens alone; returns
    (batch, tokens, heads, dim). A batch may be padded on the left, where transformers passes the
    mask of tokens on (from 4.53); other padding is refused.
    """
    cache = getattr(_thread, "cache", None)
    if cache is None or _thread.keys is not key:
        raise ValueError('the attention "ballast" needs past_key_values=BallastCache(...)')
    _thread.cache = _thread.keys = None
    if dropout:
        raise ValueError("a cache knows no dropout: call model.eval()")
    padding = None
    if attention_mask is not None and attention_mask.dim() == 2:
        padding = _padding(attention_mask)
    else:
        _check_mask(attention_mask, cache.get_seq_length(module.layer_idx) + query.shape[2])
    return cache._attend(module, query, key, value, scaling, softcap or 0.0, padding), None


def _padding(mask: Any) -> list[int]:
    """The tokens before each sequence of a mask (batch, tokens)."""
    seen = mask != 0
    if bool((seen[:, :-1] & ~seen[:, 1:]).any()) or not bool(seen[:, -1].all()):
        raise ValueError("the batch is padded within or behind its sequences; pad it on the left: "
                         "tokenizer.padding_side = 'left'")
    return [int(n) for n in (~seen).sum(dim=1)]


def _token_mask(*_: Any, attention_mask: Any = None, **__: Any) -> Any:
    """What transformers is to pass to attention(): the mask of tokens as it is."""
    return attention_mask


def _check_mask(mask: Any, tokens: int) -> None:
    """Raises ValueError if one of `tokens` of the text is masked; causal masks are the cache's own.

    A mask may have more columns than tokens: transformers 4.46 makes one more.
    """
    if mask is None or mask.dim() == 0:
        return
    if mask.dim() == 2:
        padded = bool((mask == 0).any())
    else:
        # The last query sees the whole text but where a sliding window hides its beginning.
        last = mask[:, 0, -1, :tokens]
        hidden = ~last if last.dtype == torch.bool else last < 0
        padded = bool((hidden[:, 1:] & ~hidden[:, :-1]).any()) or (
            mask.shape[0] > 1 and bool((hidden != hidden[:1]).any()))
    if padded:
        raise ValueError("the batch is padded, which a cache of Ballast cannot hold: give sequences "
                         "of one length")


def _rotate_half(x: Any) -> Any:
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def patch(model: Any) -> Any:
    """Gives the attention of a Llama-like model to Ballast, where there is no AttentionInterface.

    Modules with q_proj, k_proj, v_proj, o_proj, head_dim and layer_idx are taken, whose rotary
    embedding is Llama's. Call the model with past_key_values=BallastCache(...). Returns the model.
    Raises ValueError if there are none.
    """

    def forward(self: Any, hidden_states: Any, attention_mask: Any = None, position_ids: Any = None,
                past_key_value: Any = None, output_attentions: bool = False, use_cache: bool = False,
                cache_position: Any = None, position_embeddings: Any = None, **kwargs: Any) -> Any:
        past = past_key_value if past_key_value is not None else kwargs.get("past_key_values")
        if not isinstance(past, BallastCache):
            raise ValueError("a patched model needs past_key_values=BallastCache(...)")
        batch, tokens, _ = hidden_states.shape
        _check_mask(attention_mask, past.get_seq_length(self.layer_idx) + tokens)
        q, k, v = (p(hidden_states).view(batch, tokens, -1, self.head_dim).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = (self.rotary_emb(v, position_ids) if position_embeddings is None
                    else position_embeddings)
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        q, k = (x * cos + _rotate_half(x) * sin for x in (q, k))
        past.update(k, v, self.layer_idx)
        out, _ = attention(self, q, k, v)
        return self.o_proj(out.reshape(batch, tokens, -1)), None, past

    found = 0
    for module in model.modules():
        if all(hasattr(module, n) for n in ("q_proj", "k_proj", "v_proj", "o_proj", "head_dim",
                                            "layer_idx")):
            module.forward = types.MethodType(forward, module)
            found += 1
    if found == 0:
        raise ValueError(f"{type(model).__name__} has no attention like Llama's to patch")
    return model


def _attentions(model: Any) -> list[Any]:
    return [m for m in model.modules() if hasattr(m, "o_proj") and hasattr(m, "layer_idx")]


@torch.no_grad()
def compress(model: Any, cache: BallastCache, input_ids: Any, *, chunk: int = 256, overlap: int = 8,
             wording: Any = None) -> BallastCache:
    """Reads a text into the cache, a second time for methods that want it, and summarizes it.

    input_ids: (1, tokens); what the cache has read of them already is not read again. The second
    reading goes chunk by chunk, each after `wording` (token ids, such as those of a line end or of
    a request to repeat the text) and the `overlap` tokens before it, as if they followed the text.
    Returns the cache: go on with model.generate(), or ask several questions on copies.
    """
    if input_ids.dim() != 2 or input_ids.shape[0] != 1:
        raise ValueError(f"input_ids: shape {tuple(input_ids.shape)}; expected (1, tokens)")
    tokens = input_ids.shape[1]
    read = cache.get_seq_length()
    if read < tokens:
        _read(model, cache, input_ids[:, read:], read)
    inner = cache.caches[0]
    if not inner.needs_replay:
        cache.finish_prompt()
        return cache
    grams = {}
    for module in _attentions(model):
        heads = inner.shape.kv_heads * inner.shape.queries_per_kv_head
        weight = module.o_proj.weight.float().view(-1, heads, inner.shape.value_dim)
        grams[module.layer_idx] = torch.einsum("ohd,ohe->hde", weight, weight).reshape(
            -1, inner.shape.value_dim).contiguous()
    for layer in range(inner.shape.layers):
        inner.start_replay(layer, grams.get(layer))

    def note_norms(module: Any, arguments: tuple[Any, ...]) -> None:
        if arguments:
            norms = arguments[0][0].float().norm(dim=-1)
            cache._inverse_norms[module.self_attn.layer_idx] = 1 / norms.clamp_min(1e-30)

    hooks = [m.register_forward_pre_hook(note_norms) for m in model.modules()
             if hasattr(getattr(m, "self_attn", None), "layer_idx")]
    prefix = torch.as_tensor([] if wording is None else wording, dtype=input_ids.dtype).view(1, -1)
    cache._replaying = True
    try:
        for begin in range(0, tokens, chunk):
            part = torch.cat((prefix, input_ids[:, max(0, begin - overlap):begin + chunk]), dim=1)
            _read(model, cache, part, tokens)
    finally:
        cache._replaying = False
        cache._inverse_norms.clear()
        for hook in hooks:
            hook.remove()
    cache.finish_prompt()
    return cache


def _read(model: Any, cache: BallastCache, input_ids: Any, first: int) -> None:
    positions = torch.arange(first, first + input_ids.shape[1]).view(1, -1)
    model(input_ids=input_ids, position_ids=positions, use_cache=True, **{_keyword(model): cache})


def _keyword(model: Any) -> str:
    """The argument that takes a cache: newer versions of transformers deprecate the older name."""
    named = inspect.signature(model.forward).parameters
    return "cache" if "cache" in named else "past_key_values"


def register() -> bool:
    """Registers "ballast" with transformers. False if there is none with AttentionInterface."""
    try:
        from transformers import AttentionInterface
    except ImportError:
        return False
    AttentionInterface.register("ballast", attention)
    try:
        from transformers import AttentionMaskInterface
        AttentionMaskInterface.register("ballast", _token_mask)
    except ImportError:
        pass  # before 4.53 masks of four dimensions come
    return True


register()
