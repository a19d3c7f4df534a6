# %% [markdown]
# An idea for a method beside others at equal bytes: the error of attention on made-up keys and
# values, then the answers of a model. Cells run one by one in an editor, or all at once:
#
#     PYTHONPATH=build/python python3 examples/python/compare.py models/ballast-mini.gguf
#
# Written: compare.svg where matplotlib is installed, compare.csv in any case.

# %%
import csv
import sys

import numpy as np

import ballast


# %% An idea: tokens whose values are long matter most.
@ballast.register_method
class LongValues(ballast.Method):
    name = "long-values"
    sink = 4

    def rank(self, block):
        return (block.values ** 2).sum(axis=1)


METHODS = ["streaming-llm", "uniform", "keydiff", "balancekv", "clustergen", "long-values"]
SHARES = [1 / 8, 1 / 4, 1 / 2]  # of the bytes of the exact cache in bf16

# %% Keys and values of one KV head, in clusters, as models have them; four query heads share it.
TOKENS, DIM, HEADS = 2000, 64, 4
random = np.random.default_rng(0)


def normal(*shape):
    return random.standard_normal(shape).astype(np.float32)


centers, cluster = normal(12, DIM), random.integers(0, 12, TOKENS)
keys = 2 * centers[cluster] + normal(TOKENS, DIM)
values = normal(12, DIM)[cluster] + normal(TOKENS, DIM)
queries = 1.5 * centers[random.integers(0, 12, (TOKENS, HEADS))] + normal(TOKENS, HEADS, DIM)
later = (1.5 * centers[random.integers(0, 12, 200)] + normal(200, DIM))  # asked after the text

exact = ballast.attention(later, [(keys, values)])


# %%
def error(method, share):
    """The relative error of attention over what the method keeps, and the bytes of that."""
    shape = ballast.Shape(queries_per_kv_head=HEADS, key_dim=DIM)
    cache = ballast.Cache(shape, method=method, bytes=share)
    cache.forward(0, keys[:, None], values[:, None], queries)
    cache.finish_prompt()
    out = ballast.attention(later, cache.segments())
    return float(np.linalg.norm(out - exact) / np.linalg.norm(exact)), cache.bytes_by_part["used"]


rows = []
for method in METHODS:
    for share in SHARES:
        relative, size = error(method, share)
        rows.append({"what": "attention error", "method": method, "share": share, "bytes": size,
                     "result": relative})

# %% Answers: lines of a record that a question comes back to, once the record is summarized.
if len(sys.argv) > 1:
    records = ballast.evaluate("lines", model=sys.argv[1], methods=METHODS, bytes=SHARES, lines=[60],
                               repeat=4, max_tokens=8, question_later=True)
    rows += [{"what": "accuracy", "method": r["method"], "share": r["share"], "bytes": r["cache_bytes"],
              "result": r["score"]} for r in records]

# %%
with open("compare.csv", "w", newline="") as file:
    table = csv.DictWriter(file, rows[0])
    table.writeheader()
    table.writerows(rows)

kinds = list(dict.fromkeys(row["what"] for row in rows))
for kind in kinds:
    print(f"\n{kind:16}" + "".join(f"{share:>9.4g}" for share in SHARES))
    for method in METHODS:
        results = [r["result"] for r in rows if (r["what"], r["method"]) == (kind, method)]
        print(f"{method:16}" + "".join(f"{result:9.3f}" for result in results))

try:
    import matplotlib
    matplotlib.use("svg")
    from matplotlib import pyplot
except ImportError:
    pyplot = None
if pyplot is not None:
    figure, axes = pyplot.subplots(1, len(kinds), figsize=(6 * len(kinds), 4), squeeze=False)
    for kind, axis in zip(kinds, axes[0]):
        for method in METHODS:
            mine = [r for r in rows if (r["what"], r["method"]) == (kind, method)]
            axis.plot([r["bytes"] for r in mine], [r["result"] for r in mine], "o-", label=method)
        axis.set(xscale="log", xlabel="bytes", ylabel=kind)
    axes[0][0].legend()
    figure.savefig("compare.svg")
