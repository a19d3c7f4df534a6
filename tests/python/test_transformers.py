"""ballast.transformers under a small model that calls caches and attention as transformers does.

Without PyTorch the test is skipped (77).
"""
import sys
import types
import unittest

try:
    import torch
    from torch import nn
except ImportError:
    print("PyTorch is not installed (python3-torch): skipped")
    sys.exit(77)

import ballast.transformers as bt

CONFIG = types.SimpleNamespace(num_hidden_layers=2, hidden_size=64, heads=4, kv_heads=2, head_dim=16,
                               vocab=50, sliding_window=None)
ATTENTION = {"ballast": bt.attention}


def rotary(position_ids):
    frequencies = 10000 ** (-torch.arange(0, 16, 2) / 16)
    angles = position_ids[..., None].float() * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()


def exact_attention(module, query, key, value, attention_mask, scaling, **_):
    group = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(group, dim=1) for t in (key, value))
    scores = query @ key.transpose(2, 3) * scaling
    new, all_ = scores.shape[2:]
    hidden = torch.ones(new, all_, dtype=torch.bool).triu(all_ - new + 1)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return (weights @ value).transpose(1, 2), None


class PlainCache:
    """What DynamicCache does."""

    def __init__(self):
        self.parts = {}

    def update(self, key, value, layer, cache_kwargs=None):
        if layer in self.parts:
            old = self.parts[layer]
            key, value = torch.cat((old[0], key), dim=2), torch.cat((old[1], value), dim=2)
        self.parts[layer] = key, value
        return key, value

    def get_seq_length(self, layer=0):
        return self.parts[layer][0].shape[2] if self.parts else 0


class Attention(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.config, self.layer_idx, self.head_dim = CONFIG, layer, 16
        self.q_proj = nn.Linear(64, 64, bias=False)
        self.k_proj = nn.Linear(64, 32, bias=False)
        self.v_proj = nn.Linear(64, 32, bias=False)
        self.o_proj = nn.Linear(64, 64, bias=False)

    def forward(self, x, attention_mask=None, past_key_value=None, position_embeddings=None):
        batch, tokens, _ = x.shape
        q, k, v = (p(x).view(batch, tokens, -1, 16).transpose(1, 2)
                   for p in (self.q_proj, self.k_proj, self.v_proj))
        cos, sin = (t.unsqueeze(1).to(x.dtype) for t in position_embeddings)
        q, k = (t * cos + bt._rotate_half(t) * sin for t in (q, k))
        k, v = past_key_value.update(k, v, self.layer_idx, {"sin": sin, "cos": cos})
        function = ATTENTION.get(CONFIG.implementation, exact_attention)
        out, _ = function(self, q, k, v, attention_mask, scaling=0.25, dropout=0.0)
        return self.o_proj(out.reshape(batch, tokens, -1)), None, past_key_value


class Layer(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.self_attn = Attention(layer)
        self.up, self.down = nn.Linear(64, 128), nn.Linear(128, 64)

    def forward(self, x, **more):
        x = x + self.self_attn(x / x.norm(dim=-1, keepdim=True) * 8, **more)[0]
        return x + self.down(torch.relu(self.up(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.embedding = nn.Embedding(50, 64)
        self.layers = nn.ModuleList([Layer(i) for i in range(2)])
        self.head = nn.Linear(64, 50, bias=False)
        for p in self.parameters():
            p.requires_grad_(False)

    def forward(self, input_ids, past_key_values, position_ids=None, attention_mask=None,
                use_cache=True):
        if position_ids is None:
            first = past_key_values.get_seq_length()
            position_ids = torch.arange(first, first + input_ids.shape[1])[None]
        x = self.embedding(input_ids)
        for layer in self.layers:
            x = layer(x, past_key_value=past_key_values, attention_mask=attention_mask,
                      position_embeddings=rotary(position_ids))
        return self.head(x)


def generate(model, cache, ids, count):
    """Greedy, as generate() goes: the prompt, then a token at a time."""
    out = []
    logits = model(ids, cache)[:, -1]
    for _ in range(count):
        token = logits.argmax(-1, keepdim=True)
        out.append(token)
        logits = model(token, cache)[:, -1]
    return torch.cat(out, dim=1)


class Generation(unittest.TestCase):
    def setUp(self):
        CONFIG.implementation = "exact"
        self.model = Model()
        torch.manual_seed(1)
        self.ids = torch.randint(0, 50, (1, 300))

    def ballast(self, **options):
        CONFIG.implementation = "ballast"
        return bt.BallastCache(**options)

    def test_exact_makes_the_same_tokens(self):
        expected = generate(self.model, PlainCache(), self.ids, 20)
        cache = self.ballast(key_type="f32")
        self.assertEqual(generate(self.model, cache, self.ids, 20).tolist(), expected.tolist())
        self.assertEqual(cache.get_seq_length(), 320)

    def test_a_batch_is_its_sequences(self):
        ids = torch.randint(0, 50, (3, 60))
        expected = generate(self.model, PlainCache(), ids, 8)
        self.assertEqual(generate(self.model, self.ballast(key_type="f32"), ids, 8).tolist(),
                         expected.tolist())
        cache = self.ballast()
        self.model(ids, cache)
        with self.assertRaisesRegex(ValueError, "a batch of 1, but the cache is of 3"):
            self.model(ids[:1], cache)
        cache.reorder_cache(torch.tensor([2, 2, 0]))
        self.assertEqual(cache.caches[0].bytes, cache.caches[1].bytes)

    def test_methods_hold_less(self):
        exact = self.ballast()
        generate(self.model, exact, self.ids, 3)
        sizes = {}
        for method in ("balancekv:rate=0.25", "h2o:rate=0.25", "snapkv:rate=0.25"):
            cache = self.ballast(method=method)
            generate(self.model, cache, self.ids, 3)
            sizes[method] = cache.bytes / exact.bytes
            self.assertLess(cache.caches[0].entries(), 150)
        print("bytes of the exact cache's:", {m: f"{s:.2f}" for m, s in sizes.items()})
        self.assertLess(max(sizes.values()), 0.75)

    def test_replay_reads_twice(self):
        exact = self.ballast()
        bt.compress(self.model, exact, self.ids)
        cache = self.ballast(bytes=1 / 4)
        self.assertIs(bt.compress(self.model, cache, self.ids, chunk=100, wording=[7]), cache)
        self.assertEqual(cache.get_seq_length(), 300)
        used = cache.caches[0].bytes_by_part["used"]
        self.assertLessEqual(used, 300 * 2 * 2 * 32 * 2 / 4)
        self.assertLess(used, exact.caches[0].bytes_by_part["used"] / 3)
        self.assertEqual(generate(self.model, cache, self.ids[:, :5], 4).shape, (1, 4))
        with self.assertRaisesRegex(ValueError, r"expected \(1, tokens\)"):
            bt.compress(self.model, self.ballast(), self.ids[0])

    def test_compress_ends_the_prompt_of_others(self):
        cache = bt.compress(self.model, self.ballast(method="uniform:rate=0.25"), self.ids)
        self.assertLess(cache.caches[0].entries(), 150)

    def test_the_cache_is_passed_by_the_name_that_is_not_deprecated(self):
        class Old(torch.nn.Module):
            def forward(self, input_ids, past_key_values=None, position_ids=None, use_cache=None):
                self.seen = past_key_values

        class New(torch.nn.Module):
            def forward(self, input_ids, cache=None, position_ids=None, use_cache=None, **kwargs):
                self.seen = cache

        for model in (Old(), New()):
            cache = bt.BallastCache()
            bt._read(model, cache, torch.zeros(1, 3, dtype=torch.long), 0)
            self.assertIs(model.seen, cache)

    def test_patched_models(self):
        expected = generate(self.model, PlainCache(), self.ids, 10)
        bt.patch(self.model)
        self.assertEqual(generate(self.model, bt.BallastCache(key_type="f32"), self.ids, 10).tolist(),
                         expected.tolist())
        with self.assertRaisesRegex(ValueError, "needs past_key_values=BallastCache"):
            self.model(self.ids, PlainCache())
        with self.assertRaisesRegex(ValueError, "no attention like Llama's"):
            bt.patch(nn.Linear(2, 2))

    def test_bfloat16_as_it_lies(self):
        model = self.model.to(torch.bfloat16)
        cache = self.ballast()
        CONFIG.implementation = "exact"
        plain = model(self.ids, PlainCache()).float()
        CONFIG.implementation = "ballast"
        ours = model(self.ids, cache).float()
        self.assertLess((plain - ours).abs().max().item(), 0.1 * plain.abs().max().item())

    def test_what_cannot_be_held_is_refused(self):
        CONFIG.implementation = "ballast"
        with self.assertRaisesRegex(ValueError, "needs past_key_values=BallastCache"):
            self.model(self.ids, PlainCache())
        padding = torch.ones(1, 300)
        padding[0, 3:6] = 0
        with self.assertRaisesRegex(ValueError, "padded"):
            self.model(self.ids, self.ballast(), attention_mask=padding)
        causal = torch.zeros(2, 1, 4, 4)
        causal[1, :, :, 0] = -1e9
        with self.assertRaisesRegex(ValueError, "padded"):
            bt._check_mask(causal, 4)
        for columns in (4, 5):  # transformers 4.46 makes one more than there are tokens
            bt._check_mask(torch.full((1, 1, 4, columns), -1e9).triu(1), 4)
        with self.assertRaisesRegex(TypeError, "positions are those of the model"):
            bt.BallastCache(positions="rolling")


if __name__ == "__main__":
    unittest.main()
