"""SGLang's hierarchical cache in a folder, at a quarter or a fifth of the bytes.

    python -m sglang.launch_server --enable-hierarchical-cache --hicache-storage-backend dynamic \\
      --hicache-storage-backend-extra-config '{"backend_name": "ballast", "module_path":
      "ballast.sglang", "class_name": "BallastStorage", "interface_v1": 1,
      "model": "Qwen/Qwen2.5-7B-Instruct", "path": "/var/cache/ballast"}'

model: the model's Hugging Face folder or name, whose configuration says how keys turn; path, a
folder; preset, "fast-4" (see ballast.Codec); size, bytes of the folder, 0: no limit. Pages are read
from and written to SGLang's host memory in place, in each of its layouts. A page that is damaged or
of another model is a miss, and leaves one line in the log. Latent attention, pools beside that of
keys and values, and ranks that divide heads on loading are refused.
"""
from __future__ import annotations

import hashlib
import logging
from typing import Any, Optional

import torch

from ._hosts import Folder, ModelShape, check_host
from .errors import Error

check_host("ballast.sglang", "sglang")

from sglang.srt.mem_cache.hicache_storage import (HiCacheStorage,  # noqa: E402
                                                  HiCacheStorageConfig)

logger = logging.getLogger("sglang.ballast")

#: Where (keys and values, layers, tokens, heads, dim) are in a page of each layout, once dimensions
#: of size 1 are gone.
_ORDERS = {"layer_first": (0, 1, 2, 3, 4), "page_first": (0, 2, 1, 3, 4),
           "page_first_direct": (0, 1, 2, 3, 4), "page_head": (0, 3, 2, 1, 4)}


class BallastStorage(HiCacheStorage):
    def __init__(self, storage_config: HiCacheStorageConfig, kwargs: Any = None) -> None:
        extra = storage_config.extra_config or {}
        if not extra.get("interface_v1") or "model" not in extra or "path" not in extra:
            raise ValueError("ballast.sglang: the extra config needs model, path and "
                             "\"interface_v1\": 1")
        if storage_config.is_mla_model or storage_config.should_split_heads:
            raise ValueError("ballast.sglang takes neither latent attention nor ranks that divide "
                             "heads on loading")
        self._preset = str(extra.get("preset", "fast-4"))
        self._shape = ModelShape(str(extra["model"]))
        self._folder = Folder(str(extra["path"]), int(extra.get("size", 0)), logger)
        c = storage_config
        self._model = c.model_name or str(extra["model"])
        parts = (self._model, self._preset, c.tp_rank, c.tp_size, c.pp_rank, c.pp_size,
                 c.attn_cp_rank, c.attn_cp_size)
        self._suffix = hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:16]
        self._pp = c.pp_rank, c.pp_size

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        super().register_mem_pool_host(mem_pool_host)
        pool = mem_pool_host
        if pool.layout not in _ORDERS:
            raise ValueError(f"ballast.sglang knows the layouts {', '.join(_ORDERS)}, not "
                             f"{pool.layout}")
        first = getattr(pool, "start_layer", None) or 0
        if self._pp[1] > 1 and first == 0 and self._pp[0] > 0:
            first = self._pp[0] * pool.layer_num
        self._codec = self._shape.codec(self._preset, self._model,
                                        range(first, first + pool.layer_num), pool.head_num)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        if str(host_pool_name) != "kv":
            raise ValueError(f"ballast.sglang keeps keys and values alone, not the pool "
                             f"{host_pool_name}")
        super().register_mem_host_pool_v2(host_pool, host_pool_name)

    def _name(self, key: str) -> str:
        return f"{hashlib.sha256(key.encode()).hexdigest()}-{self._suffix}"

    def _page(self, index: int) -> torch.Tensor:
        """(2, layers, tokens, heads, dim), in the host's memory."""
        pool = self.mem_pool_host
        page = pool.get_data_page(index, flat=False)
        if page.dim() == 6:
            page = page.squeeze(1)
        return page.permute(_ORDERS[pool.layout])

    def batch_set_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
                     ) -> list[bool]:
        return [self._set(key, index) for key, index in self._pages(keys, host_indices)]

    def batch_get_v1(self, keys: list[str], host_indices: torch.Tensor, extra_info: Any = None
                     ) -> list[bool]:
        return [self._get(key, index) for key, index in self._pages(keys, host_indices)]

    def _pages(self, keys: list[str], host_indices: torch.Tensor) -> Any:
        return zip(keys, host_indices[::self.mem_pool_host.page_size].tolist())

    def _set(self, key: str, index: int) -> bool:
        if self.exists(key):
            return True
        try:
            chunk = self._codec.encode(self._page(index))
        except Error as error:
            logger.warning("ballast: a page is not kept: %s", error)
            return False
        return self._folder.write(self._name(key), chunk)

    def _get(self, key: str, index: int) -> bool:
        name = self._name(key)
        chunk = self._folder.read(name)
        if chunk is None:
            return False
        try:
            self._codec.decode(chunk, self._page(index))
        except Error as error:
            logger.warning("ballast: %s is a miss: %s", name, error)
            self._folder.remove(name)
            return False
        return True

    def exists(self, key: str) -> bool:
        return self._folder.has(self._name(key))

    def clear(self) -> None:
        self._folder.clear()

    # SGLang calls these without "interface_v1" alone.

    def get(self, key: str, target_location: Optional[Any] = None,
            target_sizes: Optional[Any] = None) -> None:
        raise NotImplementedError("ballast.sglang needs \"interface_v1\": 1")

    batch_get = set = batch_set = get
