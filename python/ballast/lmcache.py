"""LMCache's caches on disk and in other machines at a quarter or a fifth of their bytes.

    python -m ballast.lmcache server …          # `lmcache server …`, with this serde
    "serde": {"type": "ballast", "model": "Qwen/Qwen2.5-7B-Instruct", "preset": "fast-3"}

in the specification of any L2 adapter. model: the model's Hugging Face folder or name, whose
configuration says how keys turn; preset: see ballast.Codec; basis: a file of `ballast calibrate`,
for the presets "pack-…"; max_workers: threads of the serde, 1.

In a process of your own call register() before the storage manager is made; vLLM calls it by its
entry point. A chunk that cannot be decoded is a miss.
"""
from __future__ import annotations

import sys
import threading
from typing import Any

from ._ballast import Codec
from ._hosts import ModelShape, check_host

check_host("ballast.lmcache", "lmcache")

from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey  # noqa: E402
from lmcache.v1.distributed.serde import (AsyncSerdeProcessor, Deserializer,  # noqa: E402
                                          SerdeProcessor, Serializer, get_registered_serde_types,
                                          register_serde_factory)
from lmcache.v1.memory_management import MemoryObj  # noqa: E402


class _Codecs:
    """The codecs of a model's chunks: of all layers or a pipeline stage's, all heads or a rank's."""

    def __init__(self, model: str, preset: str, basis: str) -> None:
        self._shape = ModelShape(model)
        self._preset, self._basis = preset, basis
        self._made: dict[tuple[int, int, str], Codec] = {}
        self._lock = threading.Lock()
        self.of((2, self._shape.layers, 1, self._shape.kv_heads * self._shape.head_dim), "")

    def of(self, shape: Any, name: str) -> Codec:
        """For a tensor (2, layers, tokens, heads · dim) of a model of this name."""
        dim = self._shape.head_dim
        if len(shape) != 4 or shape[0] != 2 or shape[3] % dim != 0:
            raise ValueError(f"a chunk of shape {tuple(shape)}; expected (2, layers, tokens, heads x "
                             f"{dim}): caches of latent attention or state are not supported")
        key = (int(shape[1]), int(shape[3]) // dim, name)
        with self._lock:
            if key not in self._made:
                if key[0] != self._shape.layers and self._differ():
                    raise ValueError(f"a chunk of {key[0]} layers of a model of {self._shape.layers}"
                                     " whose layers turn keys differently")
                self._made[key] = self._shape.codec(self._preset, name, range(key[0]), key[1],
                                                     self._basis)
            return self._made[key]

    def _differ(self) -> bool:
        return any(r != self._shape.rotations[0] for r in self._shape.rotations)


class BallastSerializer(Serializer):
    def __init__(self, codecs: _Codecs) -> None:
        self._codecs = codecs

    def serialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey) -> int:
        kv, out = src.tensor, dst.tensor
        if kv is None or out is None:
            raise ValueError("the serde ballast needs tensors on both sides")
        codec = self._codecs.of(kv.shape, key.model_name)
        return codec.encode_into(kv.cpu(), out.view(-1).numpy())

    def estimate_serialized_size(self, layout_desc: MemoryLayoutDesc) -> int:
        if len(layout_desc.shapes) != 1:
            raise ValueError(f"{len(layout_desc.shapes)} groups of layers in a chunk; the serde "
                             "ballast takes one")
        shape = layout_desc.shapes[0]
        return self._codecs.of(shape, "").bound(int(shape[2]))


class BallastDeserializer(Deserializer):
    def __init__(self, codecs: _Codecs) -> None:
        self._codecs = codecs

    def deserialize(self, src: MemoryObj, dst: MemoryObj, key: ObjectKey) -> None:
        chunk, kv = src.tensor, dst.tensor
        if chunk is None or kv is None:
            raise ValueError("the serde ballast needs tensors on both sides")
        codec = self._codecs.of(kv.shape, key.model_name)
        if kv.device.type == "cpu":
            codec.decode(chunk.view(-1).numpy(), kv)
        else:
            staged = kv.cpu()
            codec.decode(chunk.view(-1).numpy(), staged)
            kv.copy_(staged)


def _create(kwargs: dict[str, Any]) -> SerdeProcessor:
    unknown = set(kwargs) - {"model", "preset", "basis", "max_workers"}
    if unknown or "model" not in kwargs:
        raise ValueError(f"serde ballast: keys {sorted(kwargs)}; expected model, and preset, "
                         "basis and max_workers if you like")
    codecs = _Codecs(str(kwargs["model"]), str(kwargs.get("preset", "fast-4")),
                     str(kwargs.get("basis", "")))
    return AsyncSerdeProcessor(BallastSerializer(codecs), BallastDeserializer(codecs),
                               max_workers=int(kwargs.get("max_workers", 1)))


def register() -> None:
    """Makes LMCache know the serde "ballast"."""
    if "ballast" not in get_registered_serde_types():
        register_serde_factory("ballast", _create)


register()

if __name__ == "__main__":
    from lmcache.cli.main import main

    sys.exit(main())
