#!/usr/bin/env python3
"""A cache as LMCache's codecs leave it, for bench_codec: its fp8, and the plugin lmcache-turbo-quant-serde.

    bench_codec MODEL DOCUMENTS.jsonl OUT --rows ROWS                     # prints the shape
    codec_peers.py ROWS LAYERS TOKENS HEADS DIM OUT                       # writes OUT/fp8, OUT/turbo4, …
    bench_codec MODEL DOCUMENTS.jsonl OUT --presets fp8=OUT/fp8,turbo4=OUT/turbo4

Wants torch, lmcache 0.5.6, lmcache-turbo-quant-serde 0.1.0 and tqai. Chunks have 256 tokens.
"""
import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc
from lmcache.v1.distributed.serde.fp8 import Fp8QuantizationDeserializer, Fp8QuantizationSerializer
from lmcache_turbo_quant_serde._v1_codec import TqaiDeserializer, TqaiSerializer


def main():
    rows, layers, tokens, heads, dim, out = sys.argv[1:]
    layers, tokens, heads, dim = (int(x) for x in (layers, tokens, heads, dim))
    kv = torch.frombuffer(bytearray(Path(rows).read_bytes()), dtype=torch.bfloat16)
    kv = kv.view(2, layers, tokens, heads * dim)
    codecs = {"fp8": (Fp8QuantizationSerializer(), Fp8QuantizationDeserializer(), (None,))}
    for bits in (4, 3, 2):
        codecs[f"turbo{bits}"] = (TqaiSerializer(head_dim=dim, bits=bits), TqaiDeserializer(), ())
    for name, (serializer, deserializer, key) in codecs.items():
        back, size = torch.empty_like(kv), 0
        for first in range(0, tokens, 256):
            chunk = kv[:, :, first:first + 256].contiguous()
            room = serializer.estimate_serialized_size(MemoryLayoutDesc([chunk.shape], [chunk.dtype]))
            held = SimpleNamespace(tensor=torch.zeros(room, dtype=torch.uint8))
            size += serializer.serialize(SimpleNamespace(tensor=chunk), held, *key)
            whole = SimpleNamespace(tensor=torch.empty_like(chunk))
            deserializer.deserialize(held, whole, *key)
            back[:, :, first:first + 256] = whole.tensor
        Path(out, name).write_bytes(back.view(torch.uint8).numpy().tobytes())
        print(f"{name}: 1/{kv.numel() * 2 / size:.2f}")


if __name__ == "__main__":
    main()
