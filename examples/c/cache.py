"""The C ABI through ctypes: a cache of 2,000 tokens in an eighth of its bytes.

    python3 cache.py [path of libballast.so.0]
"""
import ctypes
import random
import sys

lib = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libballast.so.0")
LAYERS, KV_HEADS, GROUP, DIM, PROMPT = 1, 2, 2, 64, 2000


class Shape(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t)] + [
        (name, ctypes.c_size_t)
        for name in ("layers", "kv_heads", "queries_per_kv_head", "key_dim", "value_dim")
    ] + [
        ("scale", ctypes.c_float), ("softcap", ctypes.c_float),
        ("sliding_window", ctypes.c_int32), ("sliding_windows", ctypes.c_void_p),
        ("alibi_slopes", ctypes.c_void_p), ("rotary_frequencies", ctypes.c_void_p),
        ("rotary_count", ctypes.c_size_t), ("rotary_magnitude", ctypes.c_float),
        ("rotary_pairs", ctypes.c_bool),
    ]


class Params(ctypes.Structure):
    _fields_ = [
        ("size", ctypes.c_size_t), ("method", ctypes.c_char_p), ("bytes", ctypes.c_char_p),
        ("protocol", ctypes.c_int), ("positions", ctypes.c_int), ("key_type", ctypes.c_int),
        ("value_type", ctypes.c_int), ("seed", ctypes.c_uint64),
        ("expected_tokens", ctypes.c_size_t), ("threads", ctypes.c_int32),
        ("check_finite", ctypes.c_bool),
    ]


class Heads(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_int)] + [
        (name, ctypes.c_size_t)
        for name in ("tokens", "heads", "dim", "token_stride", "head_stride")
    ]


lib.ballast_cache_default_shape.restype = Shape
lib.ballast_cache_default_params.restype = Params
lib.ballast_heads_token_major.restype = Heads
lib.ballast_heads_token_major.argtypes = [ctypes.c_void_p, ctypes.c_int] + [ctypes.c_size_t] * 3
lib.ballast_last_error.restype = ctypes.c_char_p
for name in ("tokens", "entries"):
    function = getattr(lib, "ballast_cache_" + name)
    function.restype = ctypes.c_size_t
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
lib.ballast_cache_forward.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_void_p] * 4
lib.ballast_cache_needs_replay.restype = ctypes.c_bool
lib.ballast_cache_needs_replay.argtypes = [ctypes.c_void_p]
lib.ballast_cache_start_replay.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
lib.ballast_cache_replay.argtypes = [ctypes.c_void_p] + [ctypes.c_size_t] * 2 + [ctypes.c_void_p] * 5
lib.ballast_cache_finish_prompt.argtypes = lib.ballast_cache_free.argtypes = [ctypes.c_void_p]


def check(status):
    if status != 0:
        sys.exit("cache.py: " + lib.ballast_last_error().decode())


def feed(cache, tokens, replay=False):
    """Feeds tokens; in a replay pass they look at the cache and are not kept."""
    def heads(count, fill):
        size = tokens * count * DIM
        data = (ctypes.c_float * size)(*([random.gauss(0, 1) for _ in range(size)] if fill else []))
        return data, lib.ballast_heads_token_major(data, 0, tokens, count, DIM)

    views = [heads(KV_HEADS, True), heads(KV_HEADS, True), heads(KV_HEADS * GROUP, True),
             heads(KV_HEADS * GROUP, False)]
    if replay:
        keys, values, queries, out = (data for data, _ in views)
        return check(lib.ballast_cache_replay(cache, 0, tokens, keys, values, queries, None, out))
    check(lib.ballast_cache_forward(cache, 0, *(ctypes.byref(view) for _, view in views)))


shape = lib.ballast_cache_default_shape()
shape.kv_heads, shape.queries_per_kv_head, shape.key_dim = KV_HEADS, GROUP, DIM
params = lib.ballast_cache_default_params()
params.bytes = b"1/8"  # of the exact cache
cache = ctypes.c_void_p()
check(lib.ballast_cache_new(ctypes.byref(shape), ctypes.byref(params), ctypes.byref(cache)))
feed(cache, PROMPT)
if lib.ballast_cache_needs_replay(cache):
    check(lib.ballast_cache_start_replay(cache, 0, None))
    feed(cache, PROMPT, replay=True)  # of an engine: the prompt once more
check(lib.ballast_cache_finish_prompt(cache))
feed(cache, 1)
print(f"summary: {lib.ballast_cache_tokens(cache, 0)} tokens, "
      f"{lib.ballast_cache_entries(cache, 0)} entries a head")
lib.ballast_cache_free(cache)
