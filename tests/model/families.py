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


GEMMA3 = dict(num_hidden_layers=7, head_dim=12, sliding_window=8, query_pre_attn_scalar=10)
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.0, 2.5, 7.0],
            "original_max_position_embeddings": 16, "rope_theta": 10000.0,
            "partial_rotary_factor": 0.75}  # fmt: skip

# model_type of transformers, and what its configuration differs in from the usual.
CASES = {
    "gemma3": ("gemma3_text", sizes(**GEMMA3)),
    "gemma3-linear": ("gemma3_text", sizes(**GEMMA3 | {"rope_parameters": {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}})),
    "gemma3-pictures": ("gemma3", {"text_config": sizes(**GEMMA3), "vision_config": {
        "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
        "num_attention_heads": 2, "image_size": 28, "patch_size": 14}, "mm_tokens_per_image": 4}),
    "smollm3": ("smollm3", sizes()),
    "granite": ("granite", sizes(attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.4, logits_scaling=2.0, tie_word_embeddings=True)),
    "granite4": ("granitemoehybrid", sizes(attention_multiplier=0.2, embedding_multiplier=3.0,
        residual_multiplier=0.4, logits_scaling=2.0, shared_intermediate_size=40,
        num_local_experts=0, num_experts_per_tok=0, layer_types=["full_attention"] * 4,
        position_embedding_type="rope", mamba_n_heads=4)),
    "olmo2": ("olmo2", sizes()),
    "olmo3": ("olmo3", sizes(sliding_window=8, rope_parameters={
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        "full_attention": YARN | {"rope_theta": 10000.0}})),
    "cohere2": ("cohere2", sizes(sliding_window=8, logit_scale=0.5)),
    "glm4": ("glm4", sizes(head_dim=8, attention_bias=True)),
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
    "gpt2": ("gpt2", {"vocab_size": VOCAB, "n_embd": 32, "n_layer": 3, "n_head": 4,
        "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2}),
}  # fmt: skip


def numbers(case, name, shape):
    """A tensor's numbers, float32. RandomState's streams never change."""
    x = np.random.RandomState(zlib.crc32(f"{case}/{name}".encode())).standard_normal(shape)
    if len(shape) == 1:
        norm = name.endswith("weight")
        around = 0.0 if not norm or case.startswith("gemma") else 1.0
        return (around + 0.2 * x).astype(np.float32)
    gain = 1.5 if "q_" in name or "k_" in name or "attn" in name else 1.0
    if "embed" in name or "wte" in name or "lm_head" in name:
        gain = 3.0
    return (x * gain / math.sqrt(shape[1])).astype(np.float32)


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
        files = make_folder(case, saved, shapes, pathlib.Path(folder) / "made")
        model = type(model).from_pretrained(files, dtype=torch.float32, attn_implementation="eager")
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


# --- Making, with NumPy alone ------------------------------------------------------------------------


def make_folder(case, config, shapes, folder):
    import reference

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    reference.write_safetensors(
        folder / "model.safetensors", {n: numbers(case, n, s) for n, s in shapes.items()})
    return folder


def make(folder, case):
    stored = json.loads((FOLDER / f"{case}.json").read_text())
    folder = pathlib.Path(folder) / case
    make_folder(case, stored["config"], stored["tensors"], folder / "hf")
    np.array(stored["tokens"], "<i4").tofile(folder / "tokens.i32")
    (np.array(stored["logits"]) * UNIT).astype("<f4").tofile(folder / "logits.f32")


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
    for name in sys.argv[1:] or CASES:
        measure(name)
