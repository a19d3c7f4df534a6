"""Tiny random models and the logits they must give, in float64 NumPy.

    python3 reference.py FOLDER CASE...     makes FOLDER/CASE for each case; --list names the cases

A case is a folder with a Hugging Face model (hf/config.json, hf/model.safetensors), the same model
as model.gguf where that format knows the architecture, tokens.i32, and logits.f32: the logits of
every position, row by row. The arithmetic follows the published descriptions of the models, is
written for reading, and shares nothing with the engine that it checks. Other cases are families.py's,
whose logits are those of transformers.
"""

import json
import math
import pathlib
import struct
import sys
import zlib

try:
    import numpy as np
except ImportError:
    sys.exit(77)  # the tests are skipped

import families

VOCAB = 293  # 3 special tokens, 256 bytes, the rest words


# --- Parts -------------------------------------------------------------------------------------


def rms_norm(x, weight, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdims=True)
    y = centred / np.sqrt((centred * centred).mean(-1, keepdims=True) + eps) * weight
    return y if bias is None else y + bias


def silu(x):
    return x / (1 + np.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


gelu_erf = np.vectorize(lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2))))


def softcap(x, cap):
    return cap * np.tanh(x / cap) if cap else x


def inverse_frequencies(config, dim):
    """The rotary frequencies of half the dimensions, and the factor on cosines and sines."""
    base = config.get("rope_theta", config.get("rotary_emb_base", 10000.0))
    freq = base ** (-np.arange(0, dim, 2) / dim)
    scaling = config.get("rope_scaling")
    if not scaling:
        return freq, 1.0
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return freq / scaling["factor"], 1.0
    if kind == "llama3":
        original = scaling["original_max_position_embeddings"]
        low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
        out = []
        for f in freq:
            wavelength = 2 * math.pi / f
            if wavelength < original / high:
                out.append(f)
            elif wavelength > original / low:
                out.append(f / scaling["factor"])
            else:
                smooth = (original / wavelength - low) / (high - low)
                out.append((1 - smooth) * f / scaling["factor"] + smooth * f)
        return np.array(out), 1.0
    if kind == "yarn":
        original = scaling["original_max_position_embeddings"]

        def turns_at(turns):
            return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

        low = max(math.floor(turns_at(scaling.get("beta_fast", 32))), 0)
        high = min(math.ceil(turns_at(scaling.get("beta_slow", 1))), dim - 1)
        ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0, 1)
        freq = freq / scaling["factor"] * ramp + freq * (1 - ramp)
        return freq, 0.1 * math.log(scaling["factor"]) + 1
    assert kind == "longrope"
    original = config["original_max_position_embeddings"]
    long = config["tokens"] > original
    factor = config["max_position_embeddings"] / original
    return (
        freq / np.array(scaling["long_factor" if long else "short_factor"]),
        math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0,
    )


def rotate(x, positions, freq, factor):
    """x: tokens × heads × dim; the first 2·len(freq) numbers turn, halves paired."""
    half = len(freq)
    angle = np.asarray(positions, float)[:, None] * freq
    cos, sin = factor * np.cos(angle)[:, None, :], factor * np.sin(angle)[:, None, :]
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], -1)


def alibi_slopes(heads, most):
    power = 2 ** math.ceil(math.log2(heads))
    slopes = [2.0 ** (-most * i / power) for i in range(1, power + 1)]
    return slopes if power == heads else (slopes[1::2] + slopes[::2])[:heads]


def attention(q, k, v, scale, window=0, cap=0.0, slopes=None):
    """Causal attention; q: n × heads × dim, k and v: n × kv_heads × dim."""
    n, heads = q.shape[:2]
    out = np.zeros((n, heads, v.shape[-1]))
    distance = np.arange(n)[:, None] - np.arange(n)[None, :]
    for h in range(heads):
        shared = h * k.shape[1] // heads
        s = softcap(q[:, h] @ k[:, shared].T * scale, cap)
        if slopes is not None:
            s = s - slopes[h] * distance
        hidden = (distance < 0) | ((distance >= window) if window else False)
        s = np.where(hidden, -np.inf, s)
        e = np.exp(s - s.max(-1, keepdims=True))
        out[:, h] = e / e.sum(-1, keepdims=True) @ v[:, shared]
    return out.reshape(n, -1)


# --- Models: weights by their Hugging Face names -------------------------------------------------


class Model:
    """config as in config.json; w maps names to float64 arrays that are exact in float32."""

    gguf = None  # its architecture name, where there is one

    def __init__(self, name, config):
        self.config = config
        self.rng = np.random.default_rng(zlib.crc32(name.encode()))
        self.w = {}
        self.make()

    def matrix(self, name, rows, cols, bias=False, size=1.0):
        self.w[name + ".weight"] = self.numbers((rows, cols), size / math.sqrt(cols))
        if bias:
            self.w[name + ".bias"] = self.numbers((rows,), 0.2)

    def vector(self, name, size, bias=False, around=1.0):
        self.w[name + ".weight"] = around + self.numbers((size,), 0.2)
        if bias:
            self.w[name + ".bias"] = self.numbers((size,), 0.2)

    def numbers(self, shape, deviation):
        return (self.rng.standard_normal(shape) * deviation).astype(np.float32).astype(float)

    def linear(self, name, x):
        y = x @ self.w[name + ".weight"].T
        return y + self.w[name + ".bias"] if name + ".bias" in self.w else y

    def heads(self, x, count):
        return x.reshape(len(x), count, -1)


class Llama(Model):
    """Llama, Mistral, Qwen 2 and 3, Gemma 2: what differs is switched by the class."""

    gguf = "llama"
    qkv_bias = False
    qk_norm = False
    post_norms = False

    def make(self):
        c = self.config
        d, ff = c["hidden_size"], c["intermediate_size"]
        self.hd = hd = c.get("head_dim", d // c["num_attention_heads"])
        self.h, self.kv = c["num_attention_heads"], c["num_key_value_heads"]
        around = 0.0 if self.post_norms else 1.0
        self.matrix("model.embed_tokens", VOCAB, d, size=math.sqrt(d) * 0.7)
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            self.vector(p + "input_layernorm", d, around=around)
            self.vector(p + "post_attention_layernorm", d, around=around)
            if self.post_norms:
                self.vector(p + "pre_feedforward_layernorm", d, around=around)
                self.vector(p + "post_feedforward_layernorm", d, around=around)
            self.make_attention(p + "self_attn.", d, hd)
            self.make_mlp(p + "mlp.", d, ff)
        self.vector("model.norm", d, around=around)
        if not c["tie_word_embeddings"]:
            self.matrix("lm_head", VOCAB, d, size=3)

    def make_attention(self, p, d, hd):
        self.matrix(p + "q_proj", self.h * hd, d, self.qkv_bias, size=2)
        self.matrix(p + "k_proj", self.kv * hd, d, self.qkv_bias, size=2)
        self.matrix(p + "v_proj", self.kv * hd, d, self.qkv_bias)
        self.matrix(p + "o_proj", d, self.h * hd)
        if self.qk_norm:
            self.vector(p + "q_norm", hd)
            self.vector(p + "k_norm", hd)

    def make_mlp(self, p, d, ff):
        self.matrix(p + "gate_proj", ff, d)
        self.matrix(p + "up_proj", ff, d)
        self.matrix(p + "down_proj", d, ff)

    def norm(self, name, x):
        weight = self.w[name + ".weight"]
        return rms_norm(x, 1 + weight if self.post_norms else weight, self.config["rms_norm_eps"])

    def qkv(self, p, x):
        q = self.heads(self.linear(p + "q_proj", x), self.h)
        k = self.heads(self.linear(p + "k_proj", x), self.kv)
        v = self.heads(self.linear(p + "v_proj", x), self.kv)
        if self.qk_norm:
            q, k = self.norm(p + "q_norm", q), self.norm(p + "k_norm", k)
        return q, k, v

    def gate_up(self, p, x):
        return self.linear(p + "gate_proj", x), self.linear(p + "up_proj", x)

    def mlp(self, p, x):
        gate, up = self.gate_up(p, x)
        act = gelu_tanh if self.post_norms else silu
        return self.linear(p + "down_proj", act(gate) * up)

    def window(self, layer):
        c = self.config
        if "layer_types" in c:
            return c["sliding_window"] if c["layer_types"][layer] == "sliding_attention" else 0
        return c.get("sliding_window") or 0

    def scale(self):
        return self.hd**-0.5

    def forward(self, tokens):
        c = self.config
        x = self.w["model.embed_tokens.weight"][tokens]
        if self.post_norms:
            x = x * math.sqrt(c["hidden_size"])
        at = np.arange(len(tokens))
        freq, factor = inverse_frequencies(c, int(self.hd * c.get("partial_rotary_factor", 1)))
        for i in range(c["num_hidden_layers"]):
            p = f"model.layers.{i}."
            q, k, v = self.qkv(p + "self_attn.", self.norm(p + "input_layernorm", x))
            q, k = rotate(q, at, freq, factor), rotate(k, at, freq, factor)
            a = attention(q, k, v, self.scale(), self.window(i), c.get("attn_logit_softcapping"))
            a = self.linear(p + "self_attn.o_proj", a)
            if self.post_norms:
                x = x + self.norm(p + "post_attention_layernorm", a)
                m = self.mlp(p + "mlp.", self.norm(p + "pre_feedforward_layernorm", x))
                x = x + self.norm(p + "post_feedforward_layernorm", m)
            else:
                x = x + a
                x = x + self.mlp(p + "mlp.", self.norm(p + "post_attention_layernorm", x))
        x = self.norm("model.norm", x)
        head = "model.embed_tokens" if c["tie_word_embeddings"] else "lm_head"
        return softcap(self.linear(head, x), c.get("final_logit_softcapping"))

    # What the GGUF file says beside the sizes, and its tensors.
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
        "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "mlp.gate_up_proj": "ffn_up", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    outer = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}

    def gguf_tensors(self):
        out = {}
        for name, x in self.w.items():
            stem, kind = name.rsplit(".", 1)
            if stem in self.outer:
                out[f"{self.outer[stem]}.{kind}"] = x
                continue
            layer, stem = stem.removeprefix("model.layers.").split(".", 1)
            out[f"blk.{layer}.{self.names[stem]}.{kind}"] = self.gguf_weight(stem, x)
        scaling = self.config.get("rope_scaling") or {}
        plain = self.config["rope_theta"] ** (-np.arange(0, self.hd, 2) / self.hd)
        if scaling.get("rope_type") == "llama3":
            out["rope_freqs.weight"] = plain / inverse_frequencies(self.config, self.hd)[0]
        for kind in ("long", "short"):
            if f"{kind}_factor" in scaling:
                out[f"rope_factors_{kind}.weight"] = np.array(scaling[f"{kind}_factor"])
        return out

    def gguf_weight(self, stem, x):
        """This format pairs neighbours in rotary embeddings of Llama, so rows change places."""
        if self.gguf != "llama" or stem not in ("self_attn.q_proj", "self_attn.k_proj"):
            return x
        heads = self.h if stem.endswith("q_proj") else self.kv
        return x.reshape(heads, 2, self.hd // 2, -1).swapaxes(1, 2).reshape(x.shape)

    def gguf_settings(self):
        c = self.config
        out = {
            "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
            "block_count": c["num_hidden_layers"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": self.h, "attention.head_count_kv": self.kv,
            "attention.key_length": self.hd, "attention.value_length": self.hd,
            "attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
            "rope.freq_base": float(c["rope_theta"]), "rope.dimension_count": self.hd,
            "vocab_size": VOCAB,
        }  # fmt: skip
        if c.get("sliding_window"):
            out["attention.sliding_window"] = c["sliding_window"]
        scaling = c.get("rope_scaling") or {}
        if scaling.get("type") == "linear":
            out["rope.scaling.type"] = "linear"
            out["rope.scaling.factor"] = float(scaling["factor"])
        if scaling.get("rope_type") == "yarn":
            out["rope.scaling.type"] = "yarn"
            out["rope.scaling.factor"] = float(scaling["factor"])
            out["rope.scaling.original_context_length"] = scaling[
                "original_max_position_embeddings"]
        return out


class Qwen2(Llama):
    gguf = "qwen2"
    qkv_bias = True


class Qwen3(Llama):
    gguf = "qwen3"
    qk_norm = True


class Gemma2(Llama):
    gguf = "gemma2"
    post_norms = True
    names = Llama.names | {
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    }  # fmt: skip

    def scale(self):
        return self.config["query_pre_attn_scalar"] ** -0.5

    def window(self, layer):
        return self.config["sliding_window"] if layer % 2 == 0 else 0

    def gguf_tensors(self):
        return {n: x + 1 if "norm" in n else x for n, x in super().gguf_tensors().items()}

    def gguf_settings(self):
        c = self.config
        return super().gguf_settings() | {
            "attn_logit_softcapping": c["attn_logit_softcapping"],
            "final_logit_softcapping": c["final_logit_softcapping"],
        }


class Phi3(Llama):
    gguf = "phi3"

    def make_attention(self, p, d, hd):
        self.matrix(p + "qkv_proj", (self.h + 2 * self.kv) * hd, d, size=1.5)
        self.matrix(p + "o_proj", d, self.h * hd)

    def make_mlp(self, p, d, ff):
        self.matrix(p + "gate_up_proj", 2 * ff, d)
        self.matrix(p + "down_proj", d, ff)

    def qkv(self, p, x):
        parts = self.heads(self.linear(p + "qkv_proj", x), self.h + 2 * self.kv)
        return parts[:, : self.h], parts[:, self.h : -self.kv], parts[:, -self.kv :]

    def gate_up(self, p, x):
        return np.split(self.linear(p + "gate_up_proj", x), 2, -1)

    def gguf_settings(self):
        c = self.config
        out = super().gguf_settings()
        if c.get("rope_scaling"):
            out["rope.scaling.original_context_length"] = c["original_max_position_embeddings"]
            out["rope.scaling.attn_factor"] = inverse_frequencies(c | {"tokens": 1}, self.hd)[1]
        out["rope.dimension_count"] = int(self.hd * c.get("partial_rotary_factor", 1))
        return out


class Opt(Model):
    def make(self):
        c = self.config
        d, ff = c["hidden_size"], c["ffn_dim"]
        self.matrix("model.decoder.embed_tokens", VOCAB, d, size=math.sqrt(d))
        self.matrix("model.decoder.embed_positions", c["max_position_embeddings"] + 2, d, size=3)
        for i in range(c["num_hidden_layers"]):
            p = f"model.decoder.layers.{i}."
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                self.matrix(p + "self_attn." + name, d, d, bias=True, size=1.5)
            self.vector(p + "self_attn_layer_norm", d, bias=True)
            self.vector(p + "final_layer_norm", d, bias=True)
            self.matrix(p + "fc1", ff, d, bias=True)
            self.matrix(p + "fc2", d, ff, bias=True)
        self.vector("model.decoder.final_layer_norm", d, bias=True)

    def norm(self, name, x):
        return layer_norm(x, self.w[name + ".weight"], self.w[name + ".bias"], 1e-5)

    def forward(self, tokens):
        c = self.config
        heads = c["num_attention_heads"]
        n = len(tokens)
        x = self.w["model.decoder.embed_tokens.weight"][tokens]
        x = x + self.w["model.decoder.embed_positions.weight"][2 : n + 2]
        for i in range(c["num_hidden_layers"]):
            p = f"model.decoder.layers.{i}."
            y = self.norm(p + "self_attn_layer_norm", x)
            q, k, v = (self.heads(self.linear(p + f"self_attn.{a}_proj", y), heads) for a in "qkv")
            a = attention(q, k, v, (c["hidden_size"] // heads) ** -0.5)
            x = x + self.linear(p + "self_attn.out_proj", a)
            y = self.linear(p + "fc1", self.norm(p + "final_layer_norm", x))
            x = x + self.linear(p + "fc2", np.maximum(y, 0))
        x = self.norm("model.decoder.final_layer_norm", x)
        return self.linear("model.decoder.embed_tokens", x)


class NeoX(Model):
    gguf = "gptneox"

    def make(self):
        c = self.config
        d, ff = c["hidden_size"], c["intermediate_size"]
        self.matrix("gpt_neox.embed_in", VOCAB, d, size=math.sqrt(d))
        for i in range(c["num_hidden_layers"]):
            p = f"gpt_neox.layers.{i}."
            self.vector(p + "input_layernorm", d, bias=True)
            self.vector(p + "post_attention_layernorm", d, bias=True)
            self.matrix(p + "attention.query_key_value", 3 * d, d, bias=True, size=1.5)
            self.matrix(p + "attention.dense", d, d, bias=True)
            self.matrix(p + "mlp.dense_h_to_4h", ff, d, bias=True)
            self.matrix(p + "mlp.dense_4h_to_h", d, ff, bias=True)
        self.vector("gpt_neox.final_layer_norm", d, bias=True)
        self.matrix("embed_out", VOCAB, d, size=3)

    def norm(self, name, x):
        w = self.w
        return layer_norm(x, w[name + ".weight"], w[name + ".bias"], self.config["layer_norm_eps"])

    def forward(self, tokens):
        c = self.config
        heads = c["num_attention_heads"]
        hd = c["hidden_size"] // heads
        x = self.w["gpt_neox.embed_in.weight"][tokens]
        at = np.arange(len(tokens))
        freq, factor = inverse_frequencies(c, int(hd * c["rotary_pct"]))
        for i in range(c["num_hidden_layers"]):
            p = f"gpt_neox.layers.{i}."
            y = self.linear(p + "attention.query_key_value", self.norm(p + "input_layernorm", x))
            q, k, v = np.split(self.heads(y, heads), 3, -1)  # each head has its q, k, v together
            q, k = rotate(q, at, freq, factor), rotate(k, at, freq, factor)
            a = self.linear(p + "attention.dense", attention(q, k, v, hd**-0.5))
            middle = x if c["use_parallel_residual"] else x + a
            y = self.norm(p + "post_attention_layernorm", middle)
            y = gelu_erf(self.linear(p + "mlp.dense_h_to_4h", y))
            x = x + a + self.linear(p + "mlp.dense_4h_to_h", y)
        return self.linear("embed_out", self.norm("gpt_neox.final_layer_norm", x))

    names = {
        "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
        "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    }  # fmt: skip
    outer = {"gpt_neox.embed_in": "token_embd", "gpt_neox.final_layer_norm": "output_norm",
             "embed_out": "output"}  # fmt: skip

    def gguf_tensors(self):
        out = {}
        for name, x in self.w.items():
            stem, kind = name.rsplit(".", 1)
            if stem in self.outer:
                out[f"{self.outer[stem]}.{kind}"] = x
                continue
            layer, stem = stem.removeprefix("gpt_neox.layers.").split(".", 1)
            if "query_key_value" in stem:  # this format has all q, then all k, then all v
                heads = self.config["num_attention_heads"]
                x = x.reshape(heads, 3, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)
            out[f"blk.{layer}.{self.names[stem]}.{kind}"] = x
        return out

    def gguf_settings(self):
        c = self.config
        return {
            "context_length": c["max_position_embeddings"], "embedding_length": c["hidden_size"],
            "block_count": c["num_hidden_layers"], "feed_forward_length": c["intermediate_size"],
            "attention.head_count": c["num_attention_heads"],
            "attention.layer_norm_epsilon": c["layer_norm_eps"],
            "rope.dimension_count": int(
                c["hidden_size"] // c["num_attention_heads"] * c["rotary_pct"]),
            "use_parallel_residual": c["use_parallel_residual"], "vocab_size": VOCAB,
        }  # fmt: skip


class Mpt(Model):
    gguf = "mpt"

    def make(self):
        c = self.config
        d = c["d_model"]
        self.matrix("transformer.wte", VOCAB, d, size=math.sqrt(d))
        for i in range(c["n_layers"]):
            p = f"transformer.blocks.{i}."
            self.vector(p + "norm_1", d)
            self.vector(p + "norm_2", d)
            self.matrix(p + "attn.Wqkv", 3 * d, d, size=1.5)
            self.matrix(p + "attn.out_proj", d, d)
            self.matrix(p + "ffn.up_proj", c["expansion_ratio"] * d, d)
            self.matrix(p + "ffn.down_proj", d, c["expansion_ratio"] * d)
        self.vector("transformer.norm_f", d)

    def norm(self, name, x):
        return layer_norm(x, self.w[name + ".weight"], None, 1e-5)

    def forward(self, tokens):
        c = self.config
        heads = c["n_heads"]
        clip = c["attn_config"]["clip_qkv"]
        slopes = alibi_slopes(heads, c["attn_config"]["alibi_bias_max"])
        x = self.w["transformer.wte.weight"][tokens]
        for i in range(c["n_layers"]):
            p = f"transformer.blocks.{i}."
            y = self.linear(p + "attn.Wqkv", self.norm(p + "norm_1", x))
            y = np.clip(y, -clip, clip) if clip else y
            q, k, v = (self.heads(part, heads) for part in np.split(y, 3, -1))
            a = attention(q, k, v, (c["d_model"] // heads) ** -0.5, slopes=slopes)
            x = x + self.linear(p + "attn.out_proj", a)
            y = gelu_erf(self.linear(p + "ffn.up_proj", self.norm(p + "norm_2", x)))
            x = x + self.linear(p + "ffn.down_proj", y)
        return self.linear("transformer.wte", self.norm("transformer.norm_f", x))

    names = {
        "attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "ffn.up_proj": "ffn_up",
        "ffn.down_proj": "ffn_down", "norm_1": "attn_norm", "norm_2": "ffn_norm",
    }  # fmt: skip
    outer = {"transformer.wte": "token_embd", "transformer.norm_f": "output_norm"}

    def gguf_tensors(self):
        out = {}
        for name, x in self.w.items():
            stem, kind = name.rsplit(".", 1)
            if stem in self.outer:
                out[f"{self.outer[stem]}.{kind}"] = x
                continue
            layer, stem = stem.removeprefix("transformer.blocks.").split(".", 1)
            out[f"blk.{layer}.{self.names[stem]}.{kind}"] = x
        return out

    def gguf_settings(self):
        c = self.config
        out = {
            "context_length": c["max_seq_len"], "embedding_length": c["d_model"],
            "block_count": c["n_layers"],
            "feed_forward_length": c["expansion_ratio"] * c["d_model"],
            "attention.head_count": c["n_heads"], "attention.layer_norm_epsilon": 1e-5,
            "attention.max_alibi_bias": float(c["attn_config"]["alibi_bias_max"]),
            "vocab_size": VOCAB,
        }  # fmt: skip
        if c["attn_config"]["clip_qkv"]:
            out["attention.clamp_kqv"] = c["attn_config"]["clip_qkv"]
        return out


# --- Cases -------------------------------------------------------------------------------------


def llama_config(kind, **more):
    return {
        "architectures": [kind + "ForCausalLM"], "model_type": kind.lower(), "vocab_size": VOCAB,
        "hidden_size": 48, "intermediate_size": 88, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "max_position_embeddings": 128, "hidden_act": "silu",
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2,
    } | more  # fmt: skip


PHI_FACTORS = {
    "type": "longrope", "short_factor": [1.0, 1.1, 1.2, 1.4, 1.5, 1.9],
    "long_factor": [1.0, 1.3, 2.0, 3.5, 5.0, 8.0],
}  # fmt: skip


def phi_config(**more):
    return llama_config("Phi3", num_attention_heads=4, num_key_value_heads=2, **more)


def neox_config(**more):
    return {
        "architectures": ["GPTNeoXForCausalLM"], "model_type": "gpt_neox", "vocab_size": VOCAB,
        "hidden_size": 48, "intermediate_size": 100, "num_hidden_layers": 3,
        "num_attention_heads": 3, "rotary_pct": 0.25, "rotary_emb_base": 10000,
        "layer_norm_eps": 1e-5, "max_position_embeddings": 128, "use_parallel_residual": True,
        "hidden_act": "gelu", "tie_word_embeddings": False,
    } | more  # fmt: skip


def mpt_config(heads, clip):
    return {
        "architectures": ["MPTForCausalLM"], "model_type": "mpt", "vocab_size": VOCAB,
        "d_model": 48, "n_heads": heads, "n_layers": 3, "expansion_ratio": 2, "max_seq_len": 128,
        "no_bias": True, "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": clip},
    }  # fmt: skip


CASES = {
    "llama": (Llama, llama_config("Llama")),
    "llama-tied-wide": (Llama, llama_config("Llama", head_dim=20, tie_word_embeddings=True)),
    "llama-linear": (Llama, llama_config("Llama", rope_scaling={"type": "linear", "factor": 2.5})),
    "llama31": (Llama, llama_config("Llama", num_attention_heads=3, num_key_value_heads=1,
        rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                      "high_freq_factor": 4.0, "original_max_position_embeddings": 64})),
    "llama-wide": (Llama, llama_config("Llama", hidden_size=256, intermediate_size=512,
        num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2)),
    "mistral": (Llama, llama_config("Mistral", sliding_window=None)),
    "mistral-sliding": (Llama, llama_config("Mistral", sliding_window=9)),
    "ministral": (Llama, llama_config("Ministral", sliding_window=7, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"])),
    "qwen2": (Qwen2, llama_config("Qwen2", tie_word_embeddings=True)),
    "qwen2-yarn": (Qwen2, llama_config("Qwen2", num_attention_heads=3, num_key_value_heads=1,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32})),
    "qwen3": (Qwen3, llama_config("Qwen3", head_dim=16)),
    "gemma2": (Gemma2, llama_config("Gemma2", num_hidden_layers=4, head_dim=12, sliding_window=8,
        query_pre_attn_scalar=12, attn_logit_softcapping=4.0, final_logit_softcapping=6.0,
        tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh")),
    "phi3": (Phi3, phi_config()),
    "phi3-short": (Phi3, phi_config(rope_scaling=PHI_FACTORS, max_position_embeddings=1024,
                                    original_max_position_embeddings=256)),
    "phi3-long": (Phi3, phi_config(rope_scaling=PHI_FACTORS, max_position_embeddings=256,
                                   original_max_position_embeddings=16)),
    "opt": (Opt, {"architectures": ["OPTForCausalLM"], "model_type": "opt", "vocab_size": VOCAB,
        "hidden_size": 48, "word_embed_proj_dim": 48, "ffn_dim": 90, "num_hidden_layers": 3,
        "num_attention_heads": 4, "max_position_embeddings": 128, "do_layer_norm_before": True,
        "activation_function": "relu", "enable_bias": True, "tie_word_embeddings": True}),
    "neox": (NeoX, neox_config()),
    "neox-sequential": (NeoX, neox_config(use_parallel_residual=False, rotary_pct=1.0)),
    "mpt": (Mpt, mpt_config(4, None)),
    "mpt-clip": (Mpt, mpt_config(3, 0.8)),
}  # fmt: skip
TOKENS = 40


# --- Files -------------------------------------------------------------------------------------


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, x in tensors.items():
        size = x.size * (1 if x.dtype == np.uint8 else 4)
        header[name] = {"dtype": "U8" if x.dtype == np.uint8 else "F32", "shape": list(x.shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            f.write((x if x.dtype == np.uint8 else x.astype("<f4")).tobytes())


def gguf_text(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + gguf_text(value)
    kind = {str: 8, bool: 7, float: 6, int: 5}[type(value[0])]
    one = {8: gguf_text, 7: lambda x: struct.pack("<B", x), 6: lambda x: struct.pack("<f", x),
           5: lambda x: struct.pack("<i", x)}
    return struct.pack("<IIQ", 9, kind, len(value)) + b"".join(map(one[kind], value))


def vocabulary():
    """A SentencePiece-like vocabulary: 3 special tokens, every byte, some words."""
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokens += ["\u2581w%d" % i for i in range(VOCAB - len(tokens))]
    kinds = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
    return {
        "tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [-float(i) for i in range(VOCAB)],
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.unknown_token_id": 0,
    }  # fmt: skip


def write_gguf(path, model):
    settings = {"general.architecture": model.gguf, "general.name": "tiny"}
    settings |= {f"{model.gguf}.{k}": v for k, v in model.gguf_settings().items()}
    if isinstance(model, Model):
        settings |= vocabulary()
    tensors = model.gguf_tensors()
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    for key, value in settings.items():
        out += gguf_text(key) + gguf_value(value)
    at = 0
    for name, x in tensors.items():
        out += gguf_text(name) + struct.pack("<I", x.ndim)
        out += struct.pack(f"<{x.ndim}Q", *reversed(x.shape)) + struct.pack("<IQ", 0, at)
        at += (x.size * 4 + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(out + b"\0" * (-len(out) % 32))
        for x in tensors.values():
            data = x.astype("<f4").tobytes()
            f.write(data + b"\0" * (-len(data) % 32))


def make(folder, name):
    if name not in CASES:
        return families.make(folder, name)
    kind, config = CASES[name]
    tokens = np.random.default_rng(zlib.crc32(name.encode()) + 1).integers(0, VOCAB, TOKENS)
    model = kind(name, config | {"tokens": TOKENS})
    logits = model.forward(tokens)
    assert logits.shape == (TOKENS, VOCAB) and np.isfinite(logits).all()
    folder = pathlib.Path(folder) / name
    (folder / "hf").mkdir(parents=True, exist_ok=True)
    (folder / "hf" / "config.json").write_text(json.dumps(config, indent=1))
    write_safetensors(folder / "hf" / "model.safetensors", model.w)
    if model.gguf:
        write_gguf(folder / "model.gguf", model)
    (folder / "tokens.i32").write_bytes(tokens.astype("<i4").tobytes())
    (folder / "logits.f32").write_bytes(logits.astype("<f4").tobytes())


def main():
    if sys.argv[1:] == ["--list"]:
        print(*CASES)
        return
    for name in sys.argv[2:]:
        make(sys.argv[1], name)


if __name__ == "__main__":
    main()
