"""ballast.sglang's storage class by itself: pages of host memory in each of SGLang's layouts."""
import tempfile
import unittest
from pathlib import Path

import torch

from ballast.sglang import BallastStorage
from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, HiCacheStorageConfig

from small_model import DIM, HEADS, LAYERS, folder

PAGE, PAGES = 64, 3
SHAPES = {"layer_first": (2, LAYERS, PAGES * PAGE, HEADS, DIM),
          "page_first": (2, PAGES * PAGE, LAYERS, HEADS, DIM),
          "page_first_direct": (2, PAGES, LAYERS, PAGE, HEADS, DIM),
          "page_head": (2, PAGES, HEADS, PAGE, LAYERS, DIM)}


class Pool:
    """The part of SGLang's MHATokenToKVPoolHost that a storage sees, which needs a GPU itself."""

    layer_num, head_num, head_dim, page_size, start_layer = LAYERS, HEADS, DIM, PAGE, 0

    def __init__(self, layout, seed=1):
        self.layout = layout
        self.kv_buffer = torch.randn(SHAPES[layout],
                                     generator=torch.Generator().manual_seed(seed)).bfloat16()

    def get_data_page(self, index, flat=True):
        if self.layout == "layer_first":
            return self.kv_buffer[:, :, index:index + PAGE]
        if self.layout == "page_first":
            return self.kv_buffer[:, index:index + PAGE]
        return self.kv_buffer[:, index // PAGE:index // PAGE + 1]


class Storage(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.model = folder(temporary.name)
        self.path = Path(temporary.name, "store")

    def storage(self, pool, **changes):
        extra = {"model": self.model, "path": str(self.path), "interface_v1": 1}
        config = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_cp_rank": 0,
                  "attn_cp_size": 1, "is_mla_model": False, "enable_storage_metrics": False,
                  "is_page_first_layout": False, "model_name": "m", "extra_config": extra, **changes}
        out = BallastStorage(HiCacheStorageConfig(**config), {})
        out.register_mem_pool_host(pool)
        return out

    def test_every_layout(self):
        self.assertTrue(issubclass(BallastStorage, HiCacheStorage))
        keys, indices = ["a", "b", "c"], torch.arange(PAGES * PAGE)
        for layout in SHAPES:
            with self.subTest(layout):
                pool = Pool(layout)
                storage = self.storage(pool, model_name=layout)
                self.assertEqual(storage.batch_exists(keys), 0)
                self.assertEqual(storage.batch_set_v1(keys, indices), [True] * 3)
                self.assertEqual(storage.batch_exists(keys + ["d"]), 3)
                exact, pool.kv_buffer = pool.kv_buffer, torch.zeros_like(pool.kv_buffer)
                self.assertEqual(storage.batch_get_v1(keys, indices), [True] * 3)
                self.assertLess((exact.float() - pool.kv_buffer.float()).square().mean().item(), 0.015)

    def test_misses(self):
        pool = Pool("layer_first")
        storage = self.storage(pool)
        storage.batch_set_v1(["a", "b"], torch.arange(2 * PAGE))
        self.assertEqual(self.storage(pool, tp_rank=1, tp_size=2).batch_exists(["a"]), 0)
        self.assertEqual(self.storage(pool, model_name="other").batch_exists(["a"]), 0)
        for file in self.path.rglob("*"):
            if file.is_file():
                file.write_bytes(file.read_bytes()[:-1])
        with self.assertLogs("sglang.ballast", "WARNING") as log:
            self.assertEqual(storage.batch_get_v1(["a", "b", "c"], torch.arange(3 * PAGE)), [False] * 3)
        self.assertEqual(sum("is a miss" in line for line in log.output), 2)
        self.assertEqual(storage.batch_exists(["a"]), 0)  # removed
        storage.batch_set_v1(["a"], torch.arange(PAGE))
        storage.clear()
        self.assertEqual(storage.batch_exists(["a"]), 0)

    def test_refusals(self):
        with self.assertRaises(ValueError):
            self.storage(Pool("layer_first"), is_mla_model=True)
        with self.assertRaises(ValueError):
            self.storage(Pool("layer_first"), extra_config={"model": self.model})


if __name__ == "__main__":
    unittest.main()
