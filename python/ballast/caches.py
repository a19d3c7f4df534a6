"""Attention over segments, and what a cache keeps."""
from __future__ import annotations

from typing import Any, Iterable, NamedTuple, Optional

from . import _ballast


class Kept(NamedTuple):
    """The kept entries of one head, in order of position. A weight of 0: not in that sum."""

    positions: Any  #: int32, of the tokens that entries were
    weights: Any  #: float32, in the numerator
    normaliser_weights: Any  #: float32


class Segment(NamedTuple):
    """A run of n cached entries; attention takes any number of them."""

    keys: Any  #: (n, key_dim), float32, float16 or bfloat16
    values: Any = None  #: (n, value_dim); None where role is 'normaliser'
    log_weights: Any = None  #: n float32, natural logarithms; None: every weight is 1
    positions: Any = None  #: n int32; None: see first_position
    first_position: int = -1  #: of entry 0, the others following; -1: every query sees all
    role: str = "both"  #: which sum: 'both', 'numerator' or 'normaliser'


def attention(queries: Any, segments: Iterable[Any], *, positions: Any = None,
              scale: Optional[float] = None, softcap: float = 0.0, sliding_window: int = 0,
              out: Any = None) -> Any:
    """Attention of m queries of one KV head over all segments together.

    out = sum w e^s v / sum u e^s with s = <k, q>·scale, over entries that a query may see.

    queries: (m, key_dim), float32, up to 256 dimensions; segments: Segments or tuples (keys,
    values, ...); positions: m int32 places in the text, None: every entry is seen; scale: 1/sqrt(
    key_dim) if None; softcap: c > 0 makes s c·tanh(s/c); sliding_window: tokens seen, 0 all; out:
    (m, value_dim), float32, made if None.

    Returns out; zeros where a query sees nothing. Raises TypeError or ValueError for an array that
    does not fit.
    """
    return _ballast._attention(queries, segments, positions, scale, softcap, sliding_window, out)


def _kept(self: Any, layer: int = 0, head: int = 0) -> Kept:
    """The kept entries of one KV head, in order of position, as a Kept."""
    return Kept(*self._kept(layer, head))


def _segments(self: Any, layer: int = 0, head: int = 0) -> list[Segment]:
    """The parts of one KV head in float32: sink, summary, window. Keys are as they were given."""
    return [Segment(*fields) for fields in self._segments(layer, head)]


_ballast.Cache.kept = _kept
_ballast.Cache.segments = _segments
