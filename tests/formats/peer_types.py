#!/usr/bin/env python3
"""What gguf-py decodes from random blocks: the numbers of tests/formats/quant_test.cc.

    pip install gguf && python3 tests/formats/peer_types.py
"""
import zlib

import gguf
import numpy as np

for name in ("IQ4_XS", "IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_S", "IQ1_M", "MXFP4",
             "TQ1_0", "TQ2_0"):  # fmt: skip
    kind = gguf.GGMLQuantizationType[name]
    size = gguf.GGML_QUANT_SIZES[kind][1]
    x, data = 1, bytearray()
    while len(data) < 64 * size:
        x = (x * 1664525 + 1013904223) & 0xFFFFFFFF
        data.append(x >> 24)
    with np.errstate(all="ignore"):
        y = gguf.quants.dequantize(np.frombuffer(data, np.uint8).reshape(64, size), kind)
    y[~np.isfinite(y).all(-1)] = 0  # blocks with a scale that is no number
    print(f"{{TensorType::{name.lower()}, 0x{zlib.crc32(y.astype('<f4').tobytes()):08x}}},")
