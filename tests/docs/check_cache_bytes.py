#!/usr/bin/env python3
"""Reads saved caches by the byte table of src/cache/cache_file.cc, which must account for every byte.

    check_cache_bytes.py PROGRAM MODEL
"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import zlib

F32, BF16, F16, INT8, INT4, Q4, Q3, Q2 = range(8)
# Method string, storage type, protocol: every kind of summary, every storage type.
CACHES = [
    ("exact", "f32", "prefill"),
    ("exact", "q4", "prefill"),
    ("h2o:rate=1", "q2", "prefill"),
    ("h2o:rate=0.25", "int8", "stream"),
    ("snapkv:rate=0.25", "int4", "stream"),
    ("spatten:rate=0.25", "f16", "stream"),
    ("uniform:rate=0.25", "bf16", "stream"),
    ("uniform:rate=0.25,from=oldest", "int8", "prefill"),
    ("kcenter:rate=0.25", "int4", "stream"),
    ("balancekv:rate=0.25", "int8", "stream"),
    ("balancekv:rate=0.25,outliers=yes", "bf16", "prefill"),
    ("balancekv:rate=0.25,outliers=yes", "int8", "stream"),
    ("balancekv-stream:rate=0.5", "bf16", "stream"),
    ("clustergen:budget=300,s=64", "int8", "stream"),
    ("h2o:rate=0.25", "q4", "stream"),
    ("uniform:rate=0.25", "q3", "stream"),
    ("clustergen:budget=300,s=64", "q2", "stream"),
    ("snapkv:rate=0.25,heads=adaptive", "bf16", "prefill"),
    ("keydiff:rate=0.25", "bf16", "stream"),
    ("rkv:rate=0.25", "bf16", "stream"),
    ("triattention:rate=0.25", "bf16", "stream"),
    ("expected-attention:rate=0.25", "int8", "stream"),
    ("expected-attention:rate=0.25", "q4", "prefill"),
    ("criticalkv:rate=0.25", "bf16", "stream"),
    ("dropkv:rate=0.25", "q2", "stream"),
    ("attention-matching:rate=0.25", "bf16", "stream"),
    ("kvzip:bytes=0.3", "int8", "prefill"),
    ("kvzip:bytes=0.3", "q4", "prefill"),
]
SELECTIONS = ("h2o", "snapkv", "pyramidkv", "topk", "strided", "fixed", "spatten", "dropkv")
# The default of `observe`.
QUERIES = {"snapkv": 32, "pyramidkv": 32, "topk": 1, "criticalkv": 32, "dropkv": 32, "rkv": 8,
           "attention-matching": 128}
WHOLE, GROWING = 0, 1  # states of a layer


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def get(self, types):
        values = struct.unpack_from("<" + types, self.data, self.at)
        self.at += struct.calcsize("<" + types)
        return values if len(values) > 1 else values[0]

    def skip(self, types, count=None):
        count = self.get("Q") if count is None else count
        self.at += count * struct.calcsize("<" + types)

    def text(self):
        size = self.get("Q")
        self.at += size
        return self.data[self.at - size:self.at].decode()


def row_bytes(kind, dim):
    if kind in (Q4, Q3, Q2):
        return {Q4: (dim + 1) // 2, Q3: (dim + 3) // 4 + (dim + 7) // 8, Q2: (dim + 3) // 4}[kind] + 2
    groups = (dim + 31) // 32
    payload = {F32: 4 * dim, BF16: 2 * dim, F16: 2 * dim, INT8: dim, INT4: 16 * groups}[kind]
    return (payload + 15) // 16 * 16 + 2 * {INT8: groups, INT4: 2 * groups}.get(kind, 0)


def read_cache(data, value_samples):
    r = Reader(data)
    assert r.get("8s") == b"BALLASTC" and r.get("I") == 4
    layers, kv_heads, queries, key_dim, value_dim = r.get("5Q")
    r.get("ffi")
    for types in "iffQ":
        r.skip(types)
    for _ in range(r.get("Q")):
        r.skip("f")
        r.get("fB")
    method = r.text()
    stream, _, key_type, value_type = r.get("4B")
    r.get("QQ")
    r.text()
    name = method.partition(":")[0]
    sums = name in ("h2o", "spatten")

    def some_rows(count, kind, dim):
        r.at += count * row_bytes(kind, dim)

    def rows(count, values=True):
        some_rows(count, key_type, key_dim)
        if values:
            some_rows(count, value_type, value_dim)

    def rows_as_read(count):
        for kind, dim in ((key_type, key_dim), (value_type, value_dim)):
            some_rows(count, BF16 if kind >= INT4 else kind, dim)

    def entries(values=True):
        count = r.get("Q")
        rows(count, values)
        r.skip("if", count)
        return count

    def levels(values=True):
        count = entries(values)
        r.get("Q")
        r.skip("hhf", count)

    def samples(slots, values):
        r.skip("f", entries(values))
        r.skip("I", slots)

    def outliers():
        r.get("Q")
        r.skip("d", key_dim)
        r.skip("f", entries())
        entries()
        r.skip("if")

    def summary():
        if name in SELECTIONS:
            count = entries()
            r.get("Qf")
            r.skip("ff", count)
        elif name == "uniform":
            entries()
            r.get("QQ" if "from=oldest" in method else "Q")
        elif name in ("keydiff", "expected-attention", "triattention", "attention-matching"):
            entries()
        elif name == "rkv":
            r.skip("f", entries())
        elif name == "criticalkv":
            r.skip("ff", entries())
        elif name == "kvzip":
            count = r.get("Q")
            r.skip("i", count)
            some_rows(count, BF16, key_dim)
            some_rows(count, BF16, value_dim)
        elif name == "kcenter":
            r.skip("d", entries())
        elif name == "balancekv":
            levels()
            r.get("QQ")
            if "outliers=yes" in method and stream == 1:
                outliers()
        elif name == "balancekv-stream":
            levels()
            levels(values=False)
            r.get("ddQQQQ")
        elif name == "clustergen" and r.get("B"):
            entries()
        elif name == "clustergen":
            r.get("d")
            samples(value_samples, values=True)
            clusters = r.get("Q")
            r.get("fQ")
            r.skip("Qi", clusters)
            rows(clusters, values=False)
            samples(2 * clusters, values=False)  # the default of `t`
        else:
            raise AssertionError(f"a summary of {name}")

    if name == "spatten":
        for _ in range(r.get("Q")):
            r.get("Ii")
            r.skip("if")
    if "outliers=yes" in method:
        for _ in range(r.get("Q")):
            r.get("I")
            r.skip("i")
    for _ in range(layers):
        state = r.get("BBQ4Q")[0]
        as_read = r.get("BQ")[0]
        for _ in range(kv_heads):
            _, _, sink = r.get("3Q")
            for dim in (key_dim, value_dim):
                if r.get("B"):
                    r.skip("f", dim)
            first = r.get("Q")
            rows_as_read(first)
            rows(sink)
            if r.get("B"):
                summary()
            capacity, oldest, size = r.get("3Q")
            run = min(size, capacity - oldest)
            r.skip("f", first if sums and state == WHOLE else 0)
            for count in (run, size - run):
                rows_as_read(count) if as_read else rows(count)
                r.skip("f", count if sums else 0)
            r.skip("f", QUERIES.get(name, 0) * queries * key_dim)
            if name in ("expected-attention", "triattention") and state != GROWING:
                r.skip("d", queries * (1 + key_dim + key_dim * (key_dim + 1) // 2))
    crc = zlib.crc32(data[:r.at])
    assert r.get("I") == crc and r.at == len(data), f"{method}: {r.at} of {len(data)} bytes"


def main():
    program, model = sys.argv[1:]
    lines = "".join(f"line amber-{i}: REGISTER_CONTENT is <{i * 37}>\n" for i in range(60))
    with tempfile.TemporaryDirectory() as folder:
        text, cache = pathlib.Path(folder, "text"), pathlib.Path(folder, "cache")
        text.write_text(lines)
        for method, kind, protocol in CACHES:
            subprocess.run([program, "run", "-m", model, "--method", method, "--cache-type", kind,
                            "--protocol", protocol, "--raw", "--context", text, "--save-cache",
                            cache], check=True, stdout=subprocess.DEVNULL)
            read_cache(cache.read_bytes(), value_samples=64)


if __name__ == "__main__":
    main()
