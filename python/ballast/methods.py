"""Methods: the known ones, and your own in Python."""
from __future__ import annotations

from typing import Any, NamedTuple, Optional, Type, TypeVar

from . import _ballast


class MethodInfo(NamedTuple):
    """What a method is."""

    name: str
    title: str
    paper: str
    parameters: dict[str, tuple[str, str]]  #: its own keys: default as text ('': none), and help
    global_budget: bool  #: one budget, bytes=, for all layers and heads


class Block(NamedTuple):
    """The tokens that a rank is wanted for; n of them."""

    keys: Any  #: (n, key_dim), float32
    values: Any  #: (n, value_dim), float32
    positions: Any  #: n int32, in the text
    attention: Any  #: n float32, the attention each has received; None unless the method asks
    now: int  #: tokens of the text seen so far, the window included


class Method:
    """A method in Python: the tokens of the highest rank() stay.

    Subclass it, set `name`, write rank(), and register the class::

        @ballast.register_method
        class ShortKeys(ballast.Method):
            name = "short-keys"
            sink = 4

            def rank(self, block):
                return -(block.keys ** 2).sum(axis=1)

    'short-keys:rate=0.25' then is a method string for every cache and model. One
    instance serves one KV head; before the first rank() it is given layer, layers, head, seed,
    capacity (entries that may stay), scale (of logits) and parameters (values of its keys).
    """

    name: str = ""  #: lower-case letters, digits and '-'
    title: str = "a method in Python"  #: one line
    paper: str = ""
    sink: int = 0  #: first tokens that are kept exactly, unless the string says otherwise
    window: int = 32  #: last tokens, likewise
    #: Block.attention: None; 'accumulated': what each token received from every query; 'recent':
    #: from the last observe= tokens' queries.
    attention: Optional[str] = None
    #: Keys of the method string: a default (int or float), or a tuple of texts to choose from.
    parameters: dict[str, Any] = {}

    layer: int
    layers: int
    head: int
    seed: int
    capacity: int
    scale: float

    def rank(self, block: Block) -> Any:
        """n numbers, not NaN, of which the highest stay.

        Without attention a token is ranked once, so its rank must depend on the token alone. With
        attention the block holds the entries kept so far and the tokens that come in, all ranked
        anew. The interpreter's lock is held; several heads call one after the other.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rank()")


_Class = TypeVar("_Class", bound=Type[Method])


def register_method(cls: _Class) -> _Class:
    """Makes a subclass of Method known by its name. Returns it, so it is a decorator too.

    A class registered again under its name replaces the code, as when a cell of a notebook runs
    again. Raises ArgumentError if the name is another method's or no name, or if the description
    has changed.
    """
    if not (isinstance(cls, type) and issubclass(cls, Method)):
        raise TypeError(f"{cls!r} is no subclass of ballast.Method")
    if cls.rank is Method.rank:
        raise TypeError(f"{cls.__name__} has no rank(self, block)")
    _ballast._register(cls)
    return cls


def methods() -> list[MethodInfo]:
    """All methods, registered ones last."""
    return [MethodInfo(*fields) for fields in _ballast._methods()]
