#!/usr/bin/env python3
"""BalanceKV's halving as PyTorch tensor programs, one thread: what bench_balance is compared with.

16,384 tokens of dimension 128, blocks of 256, two rounds; all blocks at once, one step per token.
Two programs of the same algorithm:
  direct: each step takes the inner products of its token with those before it (Algorithm 2 as
          printed);
  gram:   the kernel matrices of all blocks are made first, by batched matrix products.
Prints one JSON object: the best time of each, in milliseconds. Needs python3-torch.
"""
import argparse
import json
import math
import time

import torch


def signs_direct(keys, values, scale, gamma, offset):
    blocks, size, _ = keys.shape
    eta = torch.zeros(blocks, size)
    eta[:, 0] = 1
    draws = torch.rand(blocks, size)
    for j in range(1, size):
        logits = torch.bmm(keys[:, :j], keys[:, j].unsqueeze(2)).squeeze(2)
        products = torch.bmm(values[:, :j], values[:, j].unsqueeze(2)).squeeze(2)
        y = torch.exp(logits * scale) * (products + offset)
        p = (0.5 - gamma * (y * eta[:, :j]).sum(1)).clamp(0, 1)
        eta[:, j] = torch.where(draws[:, j] < p, 1.0, -1.0)
    return eta


def signs_gram(keys, values, scale, gamma, offset):
    blocks, size, _ = keys.shape
    y = torch.exp(torch.bmm(keys, keys.transpose(1, 2)) * scale)
    y *= torch.bmm(values, values.transpose(1, 2)) + offset
    eta = torch.zeros(blocks, size)
    eta[:, 0] = 1
    draws = torch.rand(blocks, size)
    for j in range(1, size):
        p = (0.5 - gamma * (y[:, j, :j] * eta[:, :j]).sum(1)).clamp(0, 1)
        eta[:, j] = torch.where(draws[:, j] < p, 1.0, -1.0)
    return eta


def halve(signs, keys, values, weights, block, scale, gamma=4.0, offset=0.025):
    """Indices and weights of the tokens that stay."""
    n = keys.shape[0]
    k = keys.view(n // block, block, -1)
    k = k - k.mean(1, keepdim=True)
    v = (values * weights.unsqueeze(1)).view(n // block, block, -1)
    eta = signs(k, v, scale, gamma, offset).view(-1)
    half = n // 2
    plus = (eta > 0).cumsum(0)
    minus = torch.arange(1, n + 1) - plus
    cut = int(torch.nonzero((plus == half) | (minus == half))[0]) + 1
    gone = 1.0 if int(plus[cut - 1]) == half else -1.0
    keep = torch.ones(n, dtype=torch.bool)
    keep[:cut] = eta[:cut] != gone
    new = weights.clone()
    new[:cut] *= 2
    index = keep.nonzero().squeeze(1)
    return index, new[index] * (n / float(new[index].sum()))


def balance(signs, keys, values, block, rounds):
    scale = 1 / math.sqrt(keys.shape[1])
    index = torch.arange(keys.shape[0])
    weights = torch.ones(keys.shape[0])
    for _ in range(rounds):
        kept, weights = halve(signs, keys[index], values[index], weights, block, scale)
        index = index[kept]
    return index, weights


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keys = torch.nn.functional.normalize(torch.randn(args.tokens, args.dim), dim=1) * 15.5
    values = torch.nn.functional.normalize(torch.randn(args.tokens, args.dim), dim=1) * 3.3
    best = {}
    for name, signs in (("direct", signs_direct), ("gram", signs_gram)):
        times = []
        for _ in range(args.repeat):
            start = time.perf_counter()
            cpu = time.process_time()
            index, _ = balance(signs, keys, values, args.block, args.rounds)
            times.append((time.perf_counter() - start, time.process_time() - cpu))
            assert len(index) == args.tokens >> args.rounds
        best[name + "_ms"] = min(t[0] for t in times) * 1e3
        best[name + "_cpu_ms"] = min(t[1] for t in times) * 1e3
    print(json.dumps(best))


if __name__ == "__main__":
    main()
