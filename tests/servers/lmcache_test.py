"""ballast.lmcache in LMCache's own classes: the serde's contract, and a file system adapter."""
import tempfile
import threading
import time
import unittest
from pathlib import Path

import torch

import ballast
import ballast.lmcache as plugin
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.serde import SerdeConfig, create_serde_processor
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj

from small_model import HEADS, LAYERS, DIM, folder

TOKENS = 256


def memory(tensor, fmt=MemoryFormat.KV_2LTD):
    raw = tensor.contiguous().view(torch.uint8).flatten()
    meta = MemoryObjMetadata(shape=tensor.shape, dtype=tensor.dtype, address=0, phy_size=raw.numel(),
                             fmt=fmt, ref_count=1, shapes=[tensor.shape], dtypes=[tensor.dtype])
    return TensorMemoryObj(raw, meta, None)


def key(chunk=b"a" * 32, model="m"):
    return ObjectKey(chunk_hash=chunk, model_name=model, kv_rank=0)


class Serde(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = folder(cls.folder.name)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.serde = create_serde_processor(
            SerdeConfig("ballast", {"model": self.model, "preset": "fast-3"}))
        self.addCleanup(self.serde.close)
        shape = torch.Size((2, LAYERS, TOKENS, HEADS * DIM))
        self.kv = torch.randn(shape, generator=torch.Generator().manual_seed(1)).bfloat16()
        self.size = self.serde.estimate_serialized_size(MemoryLayoutDesc([shape], [torch.bfloat16]))
        self.out = memory(torch.zeros(self.size, dtype=torch.uint8), MemoryFormat.BINARY)

    def wait(self, query, task):
        for _ in range(1000):
            result = query(task)
            if result is not None:
                return result
            time.sleep(0.01)
        self.fail("the serde does not end")

    def serialize(self):
        task = self.serde.submit_serialize([memory(self.kv)], [self.out], [key()])
        return self.wait(self.serde.query_serialize_result, task)

    def deserialize(self, chunk, of=None):
        back = memory(torch.zeros_like(self.kv))
        task = self.serde.submit_deserialize([chunk], [back], [of or key()])
        return self.wait(self.serde.query_deserialize_result, task), back.tensor

    def test_round_trip(self):
        self.assertTrue(self.serialize())
        self.assertLess(self.out.get_size(), self.kv.numel() * 2 / 4)
        done, back = self.deserialize(self.out)
        self.assertTrue(done)
        self.assertLess((back.float() - self.kv.float()).square().mean().item(), 0.03)

    def test_damaged_and_foreign_chunks_are_misses(self):
        self.serialize()
        self.assertFalse(self.deserialize(self.out, key(model="another"))[0])
        self.out.raw_data[1000] ^= 1
        self.assertFalse(self.deserialize(self.out)[0])

    def test_what_cannot_be_stored_is_refused(self):
        self.kv[0, 0, 0, 0] = float("nan")
        self.assertFalse(self.serialize())
        for shapes in ([(1, LAYERS, TOKENS, 576)], [(2, 1, 1, HEADS * DIM)] * 2):
            with self.assertRaises(ValueError):
                self.serde.estimate_serialized_size(
                    MemoryLayoutDesc([torch.Size(s) for s in shapes], [torch.bfloat16] * len(shapes)))
        with self.assertRaises(ValueError):
            create_serde_processor(SerdeConfig("ballast", {"preset": "fast-3"}))
        with self.assertRaises(ballast.ArgumentError):
            create_serde_processor(SerdeConfig("ballast", {"model": self.model, "preset": "none"}))

    def test_file_system_adapter(self):
        """What lies on the disk is the chunk, without room; it is read into a larger buffer."""
        from lmcache.v1.distributed.l2_adapters.fs_l2_adapter import (FSL2Adapter,
                                                                      FSL2AdapterConfig)
        self.serialize()
        store = Path(self.folder.name, "store")
        adapter = FSL2Adapter(FSL2AdapterConfig.from_dict({"type": "fs", "base_path": str(store)}))
        self.addCleanup(adapter.close)
        adapter.submit_store_task([key()], [self.out])
        for _ in range(1000):
            if adapter.pop_completed_store_tasks():
                break
            time.sleep(0.01)
        files = [f for f in store.rglob("*") if f.is_file()]
        self.assertEqual([f.stat().st_size for f in files], [self.out.get_size()])
        self.assertEqual(ballast.Codec.inspect(files[0].read_bytes())["preset"], "fast-3")
        buffer = memory(torch.zeros(self.size, dtype=torch.uint8), MemoryFormat.BINARY)
        task = adapter.submit_load_task([key()], [buffer])
        self.wait(adapter.query_load_result, task)
        done, back = self.deserialize(buffer)
        self.assertTrue(done)
        self.assertLess((back.float() - self.kv.float()).square().mean().item(), 0.03)

    def test_threads(self):
        self.serialize()
        results = []

        def work():
            serializer, reader = plugin.BallastSerializer(codecs), plugin.BallastDeserializer(codecs)
            out = memory(torch.zeros(self.size, dtype=torch.uint8), MemoryFormat.BINARY)
            serializer.serialize(memory(self.kv), out, key())
            back = memory(torch.zeros_like(self.kv))
            reader.deserialize(out, back, key())
            results.append(back.tensor)

        codecs = plugin._Codecs(self.model, "fast-3", "")
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertTrue(all(torch.equal(r, results[0]) for r in results) and len(results) == 4)


if __name__ == "__main__":
    unittest.main()
