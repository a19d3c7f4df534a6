"""ballast.Codec in Python. Needs NumPy; PyTorch where it is installed.

    PYTHONPATH=build/python python3 -m unittest tests/python/test_codec.py
"""
import unittest

import numpy as np

import ballast

try:
    import torch
    import torch.utils.dlpack  # noqa: F401
except ImportError:
    torch = None

FREQUENCIES = [10000.0 ** (-2 * i / 64) for i in range(32)]
SHAPE = ballast.Shape(layers=3, kv_heads=2, key_dim=64, rotary_frequencies=FREQUENCIES)


def array(tokens=40, seed=0):
    return np.random.default_rng(seed).standard_normal((2, 3, tokens, 2, 64)).astype(np.float32)


class Arrays(unittest.TestCase):
    def test_every_form_gives_the_same_chunk(self):
        codec = ballast.Codec(SHAPE, "fast-3", "m")
        kv = array()
        chunk = codec.encode(kv)
        self.assertIsInstance(chunk, bytes)
        self.assertLessEqual(len(chunk), codec.bound(40))
        self.assertEqual(codec.encode(kv.reshape(2, 3, 40, 128)), chunk)
        self.assertEqual(codec.encode((kv[0], kv[1])), chunk)
        self.assertEqual(codec.encode((list(kv[0]), list(kv[1]))), chunk)
        heads_first = np.ascontiguousarray(kv.transpose(0, 1, 3, 2, 4)).transpose(0, 1, 3, 2, 4)
        self.assertEqual(codec.encode(heads_first), chunk)
        out = bytearray(codec.bound(40))
        self.assertEqual(codec.encode_into(kv, out), len(chunk))
        self.assertEqual(out[:len(chunk)], chunk)
        self.assertEqual(codec.encode_into(kv, np.frombuffer(out, np.uint8)), len(chunk))

    def test_decodes_in_place(self):
        codec = ballast.Codec(SHAPE, "fast-4")
        kv, back = array(), np.zeros((2, 3, 40, 2, 64), np.float32)
        chunk = codec.encode(kv, position=512)
        codec.decode(chunk, back)
        self.assertLess(np.square(kv - back).mean(), 0.012)
        apart = np.zeros((3, 40, 2, 64), np.float32), np.zeros((3, 40, 2, 64), np.float32)
        codec.decode(chunk + b"what a buffer has behind it", apart)
        np.testing.assert_array_equal(apart[1], back[1])
        info = ballast.Codec.inspect(chunk)
        self.assertEqual((info["tokens"], info["position"], info["preset"]), (40, 512, "fast-4"))
        self.assertEqual(info["bytes"], len(chunk))

    def test_other_element_types(self):
        codec = ballast.Codec(SHAPE)
        half = array().astype(np.float16)
        back = np.zeros_like(half)
        codec.decode(codec.encode(half), back)
        self.assertLess(np.square(half.astype(float) - back.astype(float)).mean(), 0.012)
        bits = (array().view(np.uint32) >> 16).astype(np.uint16)  # bfloat16
        codec.decode(codec.encode(bits), np.zeros_like(bits))

    @unittest.skipIf(torch is None, "no PyTorch")
    def test_torch_in_place(self):
        codec = ballast.Codec(SHAPE)
        kv = torch.randn(2, 3, 40, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
        back = torch.zeros_like(kv)
        codec.decode(codec.encode(kv), back)
        self.assertLess((kv.float() - back.float()).square().mean().item(), 0.012)
        out = torch.zeros(codec.bound(40), dtype=torch.uint8)
        self.assertEqual(codec.encode_into(kv, out.numpy()), len(codec.encode(kv)))


class Refusals(unittest.TestCase):
    def test_chunks(self):
        codec = ballast.Codec(SHAPE, "fast-4", "a")
        chunk, back = codec.encode(array()), np.zeros((2, 3, 40, 2, 64), np.float32)
        damaged = bytearray(chunk)
        damaged[500] ^= 1
        other = ballast.Codec(SHAPE, "fast-4", "b").encode(array())
        for bad in (b"", chunk[:100], bytes(damaged), other, codec.encode(array(41))):
            with self.assertRaises(ballast.FileError) as raised:
                codec.decode(bad, back)
            self.assertEqual(raised.exception.code, "bad_file")

    def test_arrays(self):
        codec = ballast.Codec(SHAPE)
        kv = array()
        for bad in (kv[:1], kv[:, :2], kv[..., :32], kv[0], (kv[0],), (kv[0], kv[1, :2]),
                    np.full_like(kv, np.nan)):
            with self.assertRaises(ValueError):
                codec.encode(bad)
        with self.assertRaises(TypeError):
            codec.encode(kv.astype(np.int64))
        fixed = kv.copy()
        fixed.flags.writeable = False
        with self.assertRaises(ValueError):
            codec.decode(codec.encode(fixed), fixed)
        with self.assertRaises(ValueError):
            codec.encode_into(kv, bytearray(10))
        with self.assertRaises(ballast.ArgumentError):
            ballast.Codec(SHAPE, "faster")
        with self.assertRaises(ballast.ArgumentError):
            ballast.Codec(SHAPE, "pack-16")
        with self.assertRaises(ballast.FileError):
            ballast.Codec(SHAPE, "pack-16", basis="/nowhere.pack")


if __name__ == "__main__":
    unittest.main()
