#!/usr/bin/env python3
"""Tiny random models of families, and the logits that transformers computes with them.

    python3 -m venv venv && venv/bin/pip install torch transformers
    venv/bin/python tests/model/families.py [CASE...]    writes tests/model/families/CASE.json

A case's file has its config.json, the shapes of its tensors, 40 tokens and the logits of each, in
units of 1e-5. Weights are not kept: they are functions of the case's and the tensor's name.
reference.py calls make(), which needs NumPy alone, and writes the model as a Hugging Face folder
and as a GGUF file.
"""

import json
import math
import pathlib
import sys
import zlib

import numpy as np

FOLDER = pathlib.Path(__file__).resolve().parent / "families"
TOKENS, VOCAB = 40, 48
UNIT = 1e-5


def sizes(**more):
    return {
        "vocab_size": VOCAB, "hidden_size": 32, "intermediate_size": 44, "num_hidden_layers": 4,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128,
        "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    } | more  # fmt: skip


GEMMA3 = dict(num_hidden_layers=7, head_dim=12, sliding_window=8, query_pre_attn_scalar=12)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 2.5, 7.0],
            "original_max_position_embeddings": 16, "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75}  # fmt: skip
GRANITE = dict(attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.4,
               logits_scaling=2.0)  # fmt: skip

LFM2 = sizes(block_multiple_of=8, layer_types=["conv", "conv", "full_attention", "conv"])

# model_type of transformers, and what its configuration differs in from the usual.
CASES = {
    "gemma3": ("gemma3_text", sizes(**GEMMA3)),
    "gemma3-linear": ("gemma3_text", sizes(**GEMMA3 | {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}})),
    "gemma3-pictures": ("gemma3", {"text_config": sizes(**GEMMA3 | {
        "query_pre_attn_scalar": 10}), "vision_config": {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14}, "mm_tokens_per_image": 4}),
    "smollm3": ("smollm3", sizes()),
    "granite": ("granite", sizes(**GRANITE, tie_word_embeddings=True)),
    "granite4": ("granitemoehybrid", sizes(**GRANITE, shared_intermediate_size=40,
        num_local_experts=0, num_experts_per_tok=0, layer_types=["full_attention"] * 4,
        position_embedding_type="rope", mamba_n_heads=4)),
    "olmo2": ("olmo2", sizes()),
    "olmo3": ("olmo3", sizes(sliding_window=8, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": YARN | {"rope_theta": 10000.0}})),
    "cohere2": ("cohere2", sizes(sliding_window=8, logit_scale=0.5)),
    "glm4": ("glm4", sizes(head_dim=8, attention_bias=True)),
    "internlm2": ("llama", sizes()),  # which transformers has no more
    "internlm3": ("internlm3", sizes(head_dim=8, bias=True, qkv_bias=True)),
    "starcoder2": ("starcoder2", sizes(sliding_window=9)),
    "exaone4": ("exaone4", sizes(sliding_window=8)),
    "exaone4-plain": ("exaone4", sizes(sliding_window=None, layer_types=["full_attention"] * 4)),
    "seed-oss": ("seed_oss", sizes(head_dim=8)),
    "hunyuan": ("hunyuan_v1_dense", sizes(head_dim=8, rope_parameters={
        "rope_type": "dynamic", "factor": 1.0, "alpha": 5.0, "rope_theta": 10000.0})),
    "ernie45": ("ernie4_5", sizes(head_dim=8)),
    "mistral3": ("ministral3", sizes(head_dim=8, rope_parameters=YARN | {
        "rope_theta": 10000.0, "mscale": 1.0, "mscale_all_dim": 1.0,
        "llama_4_scaling_beta": 0.3})),
    "phi4-mini": ("phi3", sizes(rope_parameters=LONGROPE, original_max_position_embeddings=16,
        tie_word_embeddings=True)),
    "mixtral": ("mixtral", sizes(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    "qwen3-moe": ("qwen3_moe", sizes(num_experts=6, num_experts_per_tok=3, head_dim=12,
        moe_intermediate_size=20, norm_topk_prob=True, num_hidden_layers=3)),
    "olmoe": ("olmoe", sizes(num_experts=6, num_experts_per_tok=2, num_hidden_layers=3,
        intermediate_size=20)),
    "gpt-oss": ("gpt_oss", sizes(num_local_experts=5, num_experts_per_tok=2, head_dim=8,
        intermediate_size=20, sliding_window=8, num_hidden_layers=3, rope_parameters=YARN | {
        "rope_theta": 150000.0, "truncate": False, "factor": 32.0})),
    "gpt-oss-mxfp4": ("gpt_oss", sizes(num_local_experts=3, num_experts_per_tok=2, head_dim=8,
        intermediate_size=32, num_hidden_layers=2)),
    "lfm2": ("lfm2", LFM2),
    "lfm2-bias": ("lfm2", LFM2 | {"conv_bias": True, "conv_L_cache": 4,
        "layer_types": ["full_attention", "conv", "conv", "full_attention"]}),
    "lfm2-moe": ("lfm2_moe", sizes(layer_types=["conv", "full_attention", "conv"],
        num_hidden_layers=3, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
        num_dense_layers=1, routed_scaling_factor=1.5)),
    "qwen35": ("qwen3_5_text", sizes(num_hidden_layers=3, head_dim=16, linear_key_head_dim=8,
        linear_value_head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4,
        layer_types=["linear_attention", "full_attention", "linear_attention"])),
    "qwen2-moe": ("qwen2_moe", sizes(num_experts=5, num_experts_per_tok=2, num_hidden_layers=3,
        moe_intermediate_size=20, shared_expert_intermediate_size=24, norm_topk_prob=False,
        decoder_sparse_step=1)),
    "qwen35-moe": ("qwen3_5_moe_text", sizes(num_hidden_layers=2, head_dim=16,
        linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=4, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
        shared_expert_intermediate_size=24,
        layer_types=["linear_attention", "full_attention"])),
    "qwen3-next": ("qwen3_next", sizes(num_hidden_layers=2, head_dim=16,
        linear_key_head_dim=8, linear_value_head_dim=8, linear_num_key_heads=2,
        linear_num_value_heads=4, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=20,
        shared_expert_intermediate_size=24,
        layer_types=["linear_attention", "full_attention"])),
    "glm45": ("glm4_moe", sizes(num_hidden_layers=3, head_dim=12, n_routed_experts=5,
        num_experts_per_tok=2, moe_intermediate_size=20, n_shared_experts=2,
        first_k_dense_replace=1, routed_scaling_factor=1.5, use_qk_norm=True,
        attention_bias=True)),
    "granite-moe": ("granitemoe", sizes(**GRANITE, num_local_experts=5, num_experts_per_tok=2,
        intermediate_size=20, num_hidden_layers=3, tie_word_embeddings=True)),
    "granite4-moe": ("granitemoehybrid", sizes(**GRANITE, shared_intermediate_size=24,
        num_local_experts=5, num_experts_per_tok=2, intermediate_size=20, num_hidden_layers=3,
        layer_types=["full_attention"] * 3, position_embedding_type="rope", mamba_n_heads=4)),
    "gpt2": ("gpt2", {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4,
        "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}),
}  # fmt: skip


def numbers(case, name, shape):
    """A tensor's numbers, float32. RandomState's streams never change."""
    if is_mxfp4(case, name):
        blocks, scales = mxfp4(case, name, shape)
        codes = np.stack([blocks & 15, blocks >> 4], -1).reshape(*blocks.shape[:2], -1)
        values = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
        x = np.where(codes & 8, -1, 1) * values[codes & 7]
        x = x * np.exp2(scales.astype(np.float32) - 127).repeat(32, -1)
        return np.ascontiguousarray(x.swapaxes(1, 2).astype(np.float32))
    x = np.random.RandomState(zlib.crc32(f"{case}/{name}".encode())).standard_normal(shape)
    if len(shape) == 1:
        norm = name.endswith("weight")
        zero = case.startswith("gemma") or (is_delta(case) and "linear_attn" not in name)
        around = 0.0 if not norm or zero else 1.0
        return (around + 0.2 * x).astype(np.float32)
    gain = 1.5 if "q_" in name or "k_" in name or "attn" in name else 1.0
    if "embed" in name or "wte" in name or "lm_head" in name:
        gain = 3.0
    return (x * gain / math.sqrt(shape[1])).astype(np.float32)


def is_delta(case):
    return case.startswith(("qwen35", "qwen3-next"))


def is_mxfp4(case, name):
    return case.endswith("mxfp4") and ".experts." in name and "bias" not in name


def mxfp4(case, name, shape):
    """Codes of [experts, columns, rows], two a byte and 32 a block, and their exponents."""
    random = np.random.RandomState(zlib.crc32(f"{case}/{name}".encode()))
    experts, columns, rows = shape
    blocks = random.randint(0, 256, (experts, rows, columns // 32, 16)).astype(np.uint8)
    return blocks, random.randint(122, 125, blocks.shape[:3]).astype(np.uint8)


def llama_shapes(c):
    d, ff, vocab = c["hidden_size"], c["intermediate_size"], c["vocab_size"]
    out = {"model.embed_tokens.weight": [vocab, d], "model.norm.weight": [d],
           "lm_head.weight": [vocab, d]}  # fmt: skip
    for i in range(c["num_hidden_layers"]):
        kv = d // c["num_attention_heads"] * c["num_key_value_heads"]
        for name, shape in {
            "input_layernorm": [d], "post_attention_layernorm": [d], "self_attn.q_proj": [d, d],
            "self_attn.k_proj": [kv, d], "self_attn.v_proj": [kv, d], "self_attn.o_proj": [d, d],
            "mlp.gate_proj": [ff, d], "mlp.up_proj": [ff, d], "mlp.down_proj": [d, ff],
        }.items():  # fmt: skip
            out[f"model.layers.{i}.{name}.weight"] = shape
    return out


def internlm2(shapes):
    """The shapes by InternLM 2's names, and its numbers by Llama's: 2 queries share a key."""
    names = {
        "model.embed_tokens": "model.tok_embeddings", "lm_head": "output",
        "self_attn.o_proj": "attention.wo", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
    }  # fmt: skip
    out, made = {}, {}
    for name, shape in shapes.items():
        own = name
        for theirs, ours in names.items():
            own = own.replace(theirs, ours)
        if ".q_proj" in name:
            own = own.replace("self_attn.q_proj", "attention.wqkv")
            out[own] = [2 * shape[0], shape[1]]
            x = numbers("internlm2", own, out[own]).reshape(2, 4, -1, shape[1])
            for kind, part in (("q", x[:, :2]), ("k", x[:, 2]), ("v", x[:, 3])):
                made[name.replace("q_proj", f"{kind}_proj")] = part.reshape(-1, shape[1])
        elif ".k_proj" not in name and ".v_proj" not in name:
            out[own] = shape
            made[name] = numbers("internlm2", own, shape)
    return out, made


# --- Measuring, with transformers ------------------------------------------------------------------


def measure(case):
    import tempfile

    import torch
    import transformers
    from safetensors import safe_open

    kind, settings = CASES[case]
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    if case == "gemma3-pictures":
        model = transformers.Gemma3ForConditionalGeneration._from_config(config)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = json.loads((pathlib.Path(folder) / "config.json").read_text())
        with safe_open(f"{folder}/model.safetensors", "np") as f:
            shapes = {name: list(f.get_slice(name).get_shape()) for name in f.keys()}
        if case == "internlm2":
            shapes, made = internlm2(llama_shapes(saved))
            model.load_state_dict({n: torch.tensor(x) for n, x in made.items()})
            saved["model_type"] = case
        else:
            files = make_folder(case, saved, shapes, pathlib.Path(folder) / "made")
            model = type(model).from_pretrained(
                files, dtype=torch.float32, attn_implementation="eager",
                **({"experts_implementation": "eager"} if has_experts(shapes) else {}))
    model = model.double().eval()
    # Rotary frequencies stay as they are, in float32.
    tokens = np.random.RandomState(zlib.crc32(case.encode())).randint(0, VOCAB, TOKENS)
    with torch.inference_mode():
        logits = model(torch.tensor([tokens.tolist()])).logits[0].numpy()
    for key in ("transformers_version", "dtype", "architectures"):
        saved.pop(key, None)
    print(case, "deviation", logits.std().round(2))
    rows = ",\n  ".join(
        json.dumps(row, separators=(",", ":")) for row in np.rint(logits / UNIT).astype(int).tolist())
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{case}.json").write_text(
        f'{{"config": {json.dumps(saved)},\n "tensors": {json.dumps(shapes)},\n'
        f' "tokens": {json.dumps(tokens.tolist())},\n "logits": [\n  {rows}]}}\n')


def has_experts(shapes):
    return any("expert" in name or "sparse_moe" in name for name in shapes)


# --- Making, with NumPy alone ------------------------------------------------------------------------


def make_folder(case, config, shapes, folder, quantized=False):
    import reference

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    tensors = {stored: x for n, s in shapes.items() for stored, x in stored_as(case, n, s, quantized)}
    if case == "qwen35-moe" and quantized:
        tensors = with_stacked_experts(tensors)
    reference.write_safetensors(folder / "model.safetensors", tensors)
    return folder


def with_stacked_experts(tensors):
    """All experts of a layer in one tensor, gate before up, as transformers holds them."""
    out, layers = {}, {}
    for name, x in tensors.items():
        before, experts, after = name.partition(".experts.")
        if experts:
            number, part, _ = after.split(".")
            layers.setdefault(before, {}).setdefault(part, {})[int(number)] = x
        else:
            out[name] = x
    for before, parts in layers.items():
        gate, up, down = (np.stack([parts[p][e] for e in sorted(parts[p])])
                          for p in ("gate_proj", "up_proj", "down_proj"))
        out[before + ".experts.gate_up_proj"] = np.concatenate([gate, up], 1)
        out[before + ".experts.down_proj"] = down
    return out


def stored_as(case, name, shape, quantized):
    if not (quantized and is_mxfp4(case, name)):
        return [(name, numbers(case, name, shape))]
    blocks, scales = mxfp4(case, name, shape)
    return [(name + "_blocks", blocks), (name + "_scales", scales)]


NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "self_attn.qkv_proj": "attn_qkv",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
}  # fmt: skip
POST = {"post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
EXPERTS = {"mlp.gate": "ffn_gate_inp", "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps",
           "down_proj": "ffn_down_exps"}  # fmt: skip
SHARED = {"mlp.shared_expert.gate_proj": "ffn_gate_shexp",
          "mlp.shared_expert.up_proj": "ffn_up_shexp",
          "mlp.shared_expert.down_proj": "ffn_down_shexp",
          "mlp.shared_expert_gate": "ffn_gate_inp_shexp"}  # fmt: skip
QWEN35_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.conv1d": "ssm_conv1d", "linear_attn.out_proj": "ssm_out",
    "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.norm": "ssm_norm",
}  # fmt: skip
QWEN35_SETTINGS = {
    "full_attention_interval": 2, "ssm.conv_kernel": 4, "ssm.group_count": 2,
    "ssm.time_step_rank": 4, "ssm.state_size": 8, "ssm.inner_size": 32, "rope.dimension_count": 4,
}  # fmt: skip
GRANITE_SCALES = {
    "attention.scale": 0.2, "embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.0,
}  # fmt: skip
GRANITE_EXPERTS = {
    "block_sparse_moe.router.layer": "ffn_gate_inp",
    "block_sparse_moe.output_linear": "ffn_down_exps", "shared_mlp.output_linear": "ffn_down_shexp",
}  # fmt: skip
GPT_OSS_NAMES = {
    "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
    "self_attn": "attn_sinks", "gate": "ffn_gate_exps", "up": "ffn_up_exps",
    "down": "ffn_down_exps",
}  # fmt: skip
LFM2_NAMES = {
    "model.embedding_norm": "token_embd_norm", "operator_norm": "attn_norm",
    "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
    "self_attn.out_proj": "attn_output", "conv.in_proj": "shortconv.in_proj",
    "conv.conv": "shortconv.conv", "conv.out_proj": "shortconv.out_proj", "ffn_norm": "ffn_norm",
    "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up",
    "feed_forward.gate": "ffn_gate_inp", "w1": "ffn_gate_exps", "w2": "ffn_down_exps",
    "w3": "ffn_up_exps", "feed_forward": "exp_probs_b",
}  # fmt: skip
# The architecture of a GGUF file, names of tensors that differ, whether queries and keys are laid
# out for pairs, and further keys, as llama.cpp's converter writes them.
GGUF = {
    "gemma3": ("gemma3", POST, False, {}),
    "gemma3-linear": ("gemma3", POST, False, {
        "rope.scaling.type": "linear", "rope.scaling.factor": 8.0}),
    "smollm3": ("smollm3", {}, True, {}),
    "granite": ("granite", {}, True, GRANITE_SCALES),
    "olmo2": ("olmo2", POST, False, {}),
    "olmo3": ("olmo2", POST, False, {"attention.sliding_window_pattern": [True, True, True, False],
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16}),
    "cohere2": ("cohere2", {}, False, {"logit_scale": 0.5}),
    "glm4": ("glm4", {"post_self_attn_layernorm": "post_attention_norm",
        "post_mlp_layernorm": "post_ffw_norm"}, False, {"rope.dimension_count": 4}),
    "internlm2": ("internlm2", {}, True, {}),
    "starcoder2": ("starcoder2", {"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"}, False, {}),
    "exaone4": ("exaone4", POST, False, {}),
    "exaone4-plain": ("exaone4", POST, False, {}),
    "seed-oss": ("seed_oss", {"post_attention_layernorm": "post_attention_norm"}, False, {}),
    "hunyuan": ("hunyuan-dense", {"self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm"}, False, {
        "rope.freq_base": 10000.0 * 5.0 ** (8 / 6)}),
    "ernie45": ("ernie4_5", {}, False, {}),
    "mistral3": ("mistral3", {}, True, {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0,
        "rope.scaling.original_context_length": 16, "rope.scaling.yarn_log_multiplier": 1.0,
        "attention.temperature_scale": 0.3}),
    "phi4-mini": ("phi3", {}, False, {"rope.dimension_count": 6,
        "rope.scaling.original_context_length": 16,
        "rope.scaling.attn_factor": math.sqrt(1 + math.log(8) / math.log(16))}),
    "mixtral": ("llama", {"block_sparse_moe.gate": "ffn_gate_inp", "w1": "ffn_gate_exps",
        "w3": "ffn_up_exps", "w2": "ffn_down_exps"}, True, {}),
    "qwen3-moe": ("qwen3moe", EXPERTS, False, {"expert_feed_forward_length": 20}),
    "olmoe": ("olmoe", EXPERTS, False, {}),
    "gpt-oss": ("gpt-oss", GPT_OSS_NAMES, False, {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 16, "expert_feed_forward_length": 20}),
    "gpt-oss-mxfp4": ("gpt-oss", GPT_OSS_NAMES, False, {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
        "rope.scaling.original_context_length": 4096, "expert_feed_forward_length": 32}),
    "lfm2": ("lfm2", LFM2_NAMES, False, {"attention.head_count_kv": [0, 0, 2, 0],
        "shortconv.l_cache": 3, "feed_forward_length": 32}),
    "lfm2-moe": ("lfm2moe", LFM2_NAMES, False, {"attention.head_count_kv": [0, 2, 0],
        "shortconv.l_cache": 3, "expert_feed_forward_length": 20, "leading_dense_block_count": 1,
        "expert_weights_scale": 1.5}),
    "qwen35": ("qwen35", QWEN35_NAMES, False, QWEN35_SETTINGS),
    "qwen2-moe": ("qwen2moe", EXPERTS | SHARED, False, {"expert_feed_forward_length": 20,
        "expert_shared_feed_forward_length": 24}),
    "qwen35-moe": ("qwen35moe", QWEN35_NAMES | EXPERTS | SHARED, False,
        QWEN35_SETTINGS | {"expert_feed_forward_length": 20,
        "expert_shared_feed_forward_length": 24}),
    "qwen3-next": ("qwen3next", QWEN35_NAMES | EXPERTS | SHARED | {
        "linear_attn.in_proj_ba": "ssm_ba"}, False,
        QWEN35_SETTINGS | {"expert_feed_forward_length": 20,
        "expert_shared_feed_forward_length": 24}),
    "glm45": ("glm4moe", POST | EXPERTS | {
        "mlp.shared_experts.gate_proj": "ffn_gate_shexp",
        "mlp.shared_experts.up_proj": "ffn_up_shexp",
        "mlp.shared_experts.down_proj": "ffn_down_shexp"}, False, {
        "block_count": 4, "nextn_predict_layers": 1, "rope.dimension_count": 6,
        "expert_feed_forward_length": 20, "expert_shared_count": 2, "expert_group_count": 1,
        "leading_dense_block_count": 1, "expert_weights_scale": 1.5, "expert_weights_norm": True}),
    "granite-moe": ("granitemoe", GRANITE_EXPERTS, True, GRANITE_SCALES),
    "granite4-moe": ("granitemoe", GRANITE_EXPERTS, True, GRANITE_SCALES | {
        "expert_shared_feed_forward_length": 24}),
    "gpt2": ("gpt2", {"transformer.wte": "token_embd", "transformer.wpe": "position_embd",
        "transformer.ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm",
        "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down"}, False, {}),
}  # fmt: skip


def gpt_oss_experts(kind, x):
    """The weights or biases of gate and up, whose rows take turns, or of down."""
    if "bias" not in kind:
        x = x.swapaxes(1, 2)
    parts = {"gate": x[:, ::2], "up": x[:, 1::2]} if kind.startswith("gate") else {"down": x}
    return {name: np.ascontiguousarray(part) for name, part in parts.items()}


def value_heads_in_turn(name, x):
    """Of Qwen 3.5's case: value heads as GGUF files have them, those of key heads 0, 1, 0, 1."""
    def turn(x, head):
        return x.reshape(2, 2, head, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    part = name.split(".")[1]
    if part in ("in_proj_qkv", "conv1d"):  # 2 key heads of queries and of keys come first
        return np.concatenate([x[:32], turn(x[32:], 8)])
    if part == "out_proj":
        return turn(x.T, 8).T
    return x if part == "norm" else turn(x, 8 if part == "in_proj_z" else 1)


def fused_parts(stem, x):
    """What llama.cpp's converter makes of a tensor of several weights."""
    if stem == "linear_attn.in_proj_qkvz":  # of 2 key heads: query, key, values, gates
        parts = np.split(x.reshape(2, 48, -1), [8, 16, 32], 1)
        q, k, v, z = (part.reshape(-1, x.shape[1]) for part in parts)
        return {"attn_qkv": np.concatenate([q, k, v]), "attn_gate": z}
    if stem == "block_sparse_moe.input_linear":
        return dict(zip(("ffn_gate_exps", "ffn_up_exps"), np.split(x, 2, 1)))
    if stem == "shared_mlp.input_linear":
        return dict(zip(("ffn_gate_shexp", "ffn_up_shexp"), np.split(x, 2)))
    return {}


class Gguf:
    def __init__(self, case, stored):
        self.case, self.c, self.tensors = case, stored["config"], stored["tensors"]
        self.gguf, names, self.pairs, self.more = GGUF[case]
        self.names = NAMES | names

    def gguf_settings(self):
        c = self.c
        width = c.get("hidden_size", c.get("n_embd"))
        heads = c.get("num_attention_heads", c.get("n_head"))
        eps = c.get("norm_eps") or c.get("rms_norm_eps") or c.get("layer_norm_eps") or c.get("norm_epsilon", 1e-5)
        out = {
            "context_length": c.get("max_position_embeddings", c.get("n_positions")),
            "embedding_length": width, "attention.head_count": heads,
            "block_count": c.get("num_hidden_layers", c.get("n_layer")),
            "feed_forward_length": c.get("intermediate_size", 4 * width),
            "attention.head_count_kv": c.get("num_key_value_heads", heads),
            "attention.key_length": c.get("head_dim") or width // heads,
            "attention.value_length": c.get("head_dim") or width // heads,
            "attention.layer_norm_rms_epsilon": eps, "attention.layer_norm_epsilon": eps,
        }  # fmt: skip
        rope = c.get("rope_parameters", {})
        rope = rope.get("full_attention", rope)
        if "rope_theta" in rope:
            out["rope.freq_base"] = float(rope["rope_theta"])
        if c.get("num_experts_per_tok"):
            names = ("num_experts", "num_local_experts", "n_routed_experts")
            out["expert_count"] = next(c[name] for name in names if name in c)
            out["expert_used_count"] = c["num_experts_per_tok"]
        if c.get("sliding_window"):
            out["attention.sliding_window"] = c["sliding_window"]
        return out | self.more

    def gguf_tensors(self):
        out, experts = {}, {}
        made = {n: numbers(self.case, n, s) for n, s in self.tensors.items()}
        if self.case == "internlm2":
            made = internlm2(llama_shapes(self.c))[1]
        for name, x in made.items():
            shape = x.shape
            stem, kind = name.rsplit(".", 1)
            parts = stem.split(".")
            layer = next((p for p in parts if p.isdigit()), None)
            if layer is not None:
                stem = ".".join(parts[parts.index(layer) + 1 :])
            if self.case.startswith("gemma") and len(shape) == 1 or (
                is_delta(self.case) and kind == "weight" and len(shape) == 1
                and "linear_attn" not in stem
            ):  # fmt: skip
                x = x + 1
            if self.gguf == "gpt2" and ".c_" in name and len(shape) == 2:
                x = x.T
            if self.pairs and stem in ("self_attn.q_proj", "self_attn.k_proj"):
                dim = self.gguf_settings()["attention.key_length"]
                x = x.reshape(-1, 2, dim // 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
            prefix = "" if layer is None else f"blk.{layer}."
            if "linear_attn" in stem and self.gguf != "qwen3next":
                x = value_heads_in_turn(f"{stem}.{kind}", x)
            if kind in ("A_log", "dt_bias"):
                out[prefix + {"A_log": "ssm_a", "dt_bias": "ssm_dt.bias"}[kind]] = (
                    -np.exp(x) if kind == "A_log" else x)
                continue
            if kind == "e_score_correction_bias":
                out[prefix + "exp_probs_b.bias"] = x
                continue
            if split := fused_parts(stem, x):
                for of, part in split.items():
                    out[f"{prefix}{of}.weight"] = np.ascontiguousarray(part)
                continue
            if kind in ("sinks", "expert_bias"):
                kind = {"sinks": "weight", "expert_bias": "bias"}[kind]
            elif stem == "mlp.experts":  # gpt-oss: all in one, [columns, rows]
                for of, part in gpt_oss_experts(kind, x).items():
                    out[f"{prefix}{self.names[of]}.{'bias' if 'bias' in kind else 'weight'}"] = part
                continue
            elif len(shape) == 3 and shape[1] == 1:
                x = x[:, 0]
            if ".experts." in stem:  # one tensor for all
                experts.setdefault(f"{prefix}{self.names[parts[-1]]}.{kind}", {})[int(parts[-2])] = x
                continue
            out[f"{prefix}{self.names[stem]}.{kind}"] = np.ascontiguousarray(x)
        for name, each in experts.items():
            out[name] = np.stack([each[e] for e in range(len(each))])
        for kind in ("long", "short"):
            factors = self.c.get("rope_parameters", {}).get(f"{kind}_factor")
            if factors:
                out[f"rope_factors_{kind}.weight"] = np.array(factors)
        return out


def make(folder, case):
    import reference

    stored = json.loads((FOLDER / f"{case}.json").read_text())
    folder = pathlib.Path(folder) / case
    make_folder(case, stored["config"], stored["tensors"], folder / "hf", True)
    if case in GGUF:
        reference.write_gguf(folder / "model.gguf", Gguf(case, stored))
    np.array(stored["tokens"], "<i4").tofile(folder / "tokens.i32")
    (np.array(stored["logits"]) * UNIT).astype("<f4").tofile(folder / "logits.f32")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    for name in sys.argv[1:] or CASES:
        measure(name)
