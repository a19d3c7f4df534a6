#!/usr/bin/env python3
"""Writes a GGUF file of random Q4_K weights that Ballast and llama.cpp both run, to compare speed.

    random_family.py mixture|hybrid TOKENIZER.gguf OUT.gguf

mixture: Qwen 3 MoE, 16 layers of width 1,024, 4 of 32 experts of width 512: 1.2B weights, of which a
token uses 0.3B. hybrid: Qwen 3.5, 16 layers of width 1,024, every fourth attends: 0.6B. The tokenizer is
another file's. Needs the package gguf.
"""
import sys

import gguf
import numpy as np

WIDTH, LAYERS = 1024, 16


class Writer:
    def __init__(self, architecture, tokenizer, path):
        self.architecture, self.random = architecture, np.random.RandomState(1)
        self.out = gguf.GGUFWriter(path, architecture)
        add = {list: self.out.add_array, bool: self.out.add_bool, int: self.out.add_uint32, str: self.out.add_string}
        fields = gguf.GGUFReader(tokenizer).fields
        for key, field in fields.items():
            if key.startswith("tokenizer."):
                value = field.contents()
                add[type(value)](key, value)
        self.vocabulary = len(fields["tokenizer.ggml.tokens"].data)

    def set(self, **values):
        for key, value in values.items():
            add = self.out.add_float32 if isinstance(value, float) else self.out.add_uint32
            add(f"{self.architecture}.{key.replace('__', '.')}", value)

    def matrix(self, name, rows, columns, *experts):
        """Codes and group scales are random, super-block scales fixed."""
        blocks = self.random.randint(0, 256, (*experts, rows, columns // 256, 144), dtype=np.uint8)
        blocks[..., 0:2] = np.frombuffer(np.float16(0.0002).tobytes(), np.uint8)
        blocks[..., 2:4] = np.frombuffer(np.float16(0.0016).tobytes(), np.uint8)
        self.out.add_tensor(name + ".weight", blocks.reshape(*experts, rows, -1),
                            raw_dtype=gguf.GGMLQuantizationType.Q4_K)

    def numbers(self, name, *shape, mean=1.0, deviation=0.02):
        self.out.add_tensor(name, (mean + deviation * self.random.randn(*shape)).astype(np.float32))

    def close(self):
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_tensors_to_file()
        self.out.close()


def attention(w, block, heads, kv_heads, dim, gated):
    w.matrix(block + "attn_q", (2 if gated else 1) * heads * dim, WIDTH)
    w.matrix(block + "attn_k", kv_heads * dim, WIDTH)
    w.matrix(block + "attn_v", kv_heads * dim, WIDTH)
    w.matrix(block + "attn_output", WIDTH, heads * dim)
    w.numbers(block + "attn_q_norm.weight", dim)
    w.numbers(block + "attn_k_norm.weight", dim)


def delta_rule(w, block, heads, state):
    channels = 3 * heads * state
    w.matrix(block + "attn_qkv", channels, WIDTH)
    w.matrix(block + "attn_gate", heads * state, WIDTH)
    w.matrix(block + "ssm_out", WIDTH, heads * state)
    w.numbers(block + "ssm_beta.weight", heads, WIDTH, mean=0)
    w.numbers(block + "ssm_alpha.weight", heads, WIDTH, mean=0)
    w.numbers(block + "ssm_conv1d.weight", channels, 4, mean=0, deviation=0.3)
    w.numbers(block + "ssm_norm.weight", state)
    w.numbers(block + "ssm_dt.bias", heads, mean=0)
    w.numbers(block + "ssm_a", heads, mean=-1, deviation=0.1)


def mixture(w):
    experts, width = 32, 512
    w.set(attention__head_count=16, attention__head_count_kv=4, attention__key_length=64, attention__value_length=64,
          feed_forward_length=width, expert_feed_forward_length=width, expert_count=experts, expert_used_count=4)
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        w.numbers(block + "attn_norm.weight", WIDTH)
        attention(w, block, 16, 4, 64, False)
        w.numbers(block + "ffn_norm.weight", WIDTH)
        w.numbers(block + "ffn_gate_inp.weight", experts, WIDTH, mean=0, deviation=0.05)
        w.matrix(block + "ffn_gate_exps", width, WIDTH, experts)
        w.matrix(block + "ffn_up_exps", width, WIDTH, experts)
        w.matrix(block + "ffn_down_exps", WIDTH, width, experts)


def hybrid(w):
    heads, state, width = 16, 128, 3072
    w.set(attention__head_count=8, attention__head_count_kv=2, attention__key_length=256, attention__value_length=256,
          feed_forward_length=width, full_attention_interval=4, ssm__conv_kernel=4, ssm__group_count=heads,
          ssm__time_step_rank=heads, ssm__state_size=state, ssm__inner_size=heads * state, rope__dimension_count=64)
    w.out.add_array(w.architecture + ".rope.dimension_sections", [11, 11, 10, 0])
    for layer in range(LAYERS):
        block = f"blk.{layer}."
        w.numbers(block + "attn_norm.weight", WIDTH)
        if layer % 4 == 3:
            attention(w, block, 8, 2, 256, True)
        else:
            delta_rule(w, block, heads, state)
        w.numbers(block + "post_attention_norm.weight", WIDTH)
        w.matrix(block + "ffn_gate", width, WIDTH)
        w.matrix(block + "ffn_up", width, WIDTH)
        w.matrix(block + "ffn_down", WIDTH, width)


def main():
    kinds = {"mixture": ("qwen3moe", mixture), "hybrid": ("qwen35", hybrid)}
    if len(sys.argv) != 4 or sys.argv[1] not in kinds:
        sys.exit(__doc__)
    architecture, layers = kinds[sys.argv[1]]
    w = Writer(architecture, sys.argv[2], sys.argv[3])
    w.set(context_length=32768, embedding_length=WIDTH, block_count=LAYERS, rope__freq_base=1e6,
          attention__layer_norm_rms_epsilon=1e-6)
    w.matrix("token_embd", w.vocabulary, WIDTH)
    w.numbers("output_norm.weight", WIDTH)
    w.matrix("output", w.vocabulary, WIDTH)
    layers(w)
    w.close()


if __name__ == "__main__":
    main()
