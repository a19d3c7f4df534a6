#!/usr/bin/env python3
"""Tiny random models that see pictures, and what transformers and Pillow compute with them.

    python3 -m venv venv && venv/bin/pip install torch transformers pillow==11.0.0
    venv/bin/python tests/vision/towers.py            writes tests/vision/towers.json
    python3 tests/vision/towers.py FOLDER             makes the models, with NumPy alone

The models are FOLDER/qwen2 (transformers' layout), FOLDER/qwen2-own (InternVL's), FOLDER/qwen2.gguf
with FOLDER/mmproj.gguf, and FOLDER/internlm2 (InternVL's). Weights are functions of their names.
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

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "model"))
STORED = HERE / "towers.json"
UNIT = 1e-6
TILE, PATCH, MOST = 56, 14, 6
SPECIAL = ["<img>", "</img>", "<IMG_CONTEXT>", "<|im_start|>", "<|im_end|>", "<s>", "<pad>", "<unk>"]
VOCAB = 256 + len(SPECIAL)
IMG, END_IMG, CONTEXT = 256, 257, 258
MEAN, DEVIATION = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
TEXT = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            intermediate_size=44, vocab_size=VOCAB, max_position_embeddings=512, rms_norm_eps=1e-6,
            rope_theta=10000.0, hidden_act="silu", tie_word_embeddings=False, bos_token_id=261,
            eos_token_id=260, pad_token_id=None)  # fmt: skip
VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=40,
              image_size=TILE, patch_size=PATCH, layer_norm_eps=1e-6, hidden_act="gelu",
              norm_type="layer_norm", qkv_bias=True)  # fmt: skip
WIDTH, HEIGHT = 120, 57  # of the picture
BEFORE, AFTER = [104, 105, 259, 33], [10, 119, 104, 97, 116, 63, 260, 40]


def picture(width, height):
    """A picture that everyone can draw: see picture_of() of the tests."""
    x, y = np.meshgrid(np.arange(width), np.arange(height))
    return np.stack([(x * x * (c + 3) // 16 + y * 13 * (c + 1) + x * y // 8) & 255 for c in range(3)],
                    -1).astype(np.uint8)  # fmt: skip


def numbers(name, shape):
    x = np.random.RandomState(zlib.crc32(name.encode())).standard_normal(shape)
    if "embed_tokens" in name or "lm_head" in name:
        return (3.0 * x / math.sqrt(shape[1])).astype(np.float32)
    if len(shape) == 1 and name.endswith("weight") or "lambda" in name:
        return (1.0 + 0.2 * x).astype(np.float32)
    if len(shape) == 1 or name.endswith("token") or name.endswith("position_embeddings"):
        return (0.2 * x).astype(np.float32)
    return (1.3 * x / math.sqrt(math.prod(shape[1:]))).astype(np.float32)


# --- Models ------------------------------------------------------------------------------------


def tokenizer_json():
    """Bytes in GPT-2's alphabet, no merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    alphabet, more = {}, 256
    for byte in range(256):
        alphabet[byte] = chr(byte if byte in printable else more)
        more += byte not in printable
    added = [{"id": 256 + i, "content": s, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False} for i, s in enumerate(SPECIAL)]  # fmt: skip
    return {
        "version": "1.0", "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": {alphabet[b]: b for b in range(256)}, "merges": []},
    }, alphabet  # fmt: skip


TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")  # fmt: skip


def write_folder(folder, config, tensors, more={}):
    import reference

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    reference.write_safetensors(folder / "model.safetensors", tensors)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()[0]))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|im_end|>", "chat_template": TEMPLATE}))
    for name, content in more.items():
        (folder / name).write_text(json.dumps(content))


def own_names(tensors):
    """The tower's tensors in InternVL's own layout."""
    simple = {
        "embeddings.cls_token": "embeddings.class_embedding",
        "embeddings.position_embeddings": "embeddings.position_embedding",
        "embeddings.patch_embeddings.projection": "embeddings.patch_embedding",
        ".attention.projection_layer.": ".attn.proj.", ".layernorm_before.": ".norm1.",
        ".layernorm_after.": ".norm2.", ".lambda_1": ".ls1", ".lambda_2": ".ls2",
        "vision_tower.": "vision_model.", "encoder.layer.": "encoder.layers.",
        "multi_modal_projector.layer_norm": "mlp1.0", "multi_modal_projector.linear_1": "mlp1.1",
        "multi_modal_projector.linear_2": "mlp1.3",
    }  # fmt: skip
    out = {}
    for name, x in tensors.items():
        if name.startswith("language_model"):
            continue
        own = name
        for theirs, ours in simple.items():
            own = own.replace(theirs, ours)
        if ".attention.q_proj." in name:
            own = own.replace(".attention.q_proj.", ".attn.qkv.")
            x = np.concatenate([tensors[name.replace("q_proj", p)]
                                for p in ("q_proj", "k_proj", "v_proj")])  # fmt: skip
        elif "_proj." in name and ".attention." in name:
            continue
        out[own] = x
    return out


def internlm2_names(tensors):
    names = {
        "model.embed_tokens": "model.tok_embeddings", "lm_head": "output",
        "self_attn.o_proj": "attention.wo", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "feed_forward.w1",
        "mlp.up_proj": "feed_forward.w3", "mlp.down_proj": "feed_forward.w2",
    }  # fmt: skip
    out = {}
    for name, x in tensors.items():
        own = name
        for theirs, ours in names.items():
            own = own.replace(theirs, ours)
        if ".self_attn.q_proj" in name:
            k, v = (tensors[name.replace("q_proj", p)] for p in ("k_proj", "v_proj"))
            kv, d = TEXT["num_key_value_heads"], TEXT["hidden_size"]
            parts = [p.reshape(kv, -1, d) for p in (x, k, v)]
            own = own.replace("self_attn.q_proj", "attention.wqkv")
            x = np.concatenate(parts, 1).reshape(-1, d)
        elif ".self_attn.k" in name or ".self_attn.v" in name:
            continue
        out[own] = x
    return out


def gguf(path, settings, tensors):
    import reference

    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
    for key, value in settings.items():
        out += reference.gguf_text(key) + reference.gguf_value(value)
    at = 0
    for name, x in tensors.items():
        out += reference.gguf_text(name) + struct.pack("<I", x.ndim)
        out += struct.pack(f"<{x.ndim}Q", *reversed(x.shape)) + struct.pack("<IQ", 0, at)
        at += (x.size * 4 + 31) // 32 * 32
    with open(path, "wb") as f:
        f.write(out + b"\0" * (-len(out) % 32))
        for x in tensors.values():
            data = x.astype("<f4").tobytes()
            f.write(data + b"\0" * (-len(data) % 32))


def write_gguf_pair(folder, tensors):
    c, alphabet = TEXT, tokenizer_json()[1]
    text = {
        "general.architecture": "qwen2", "qwen2.context_length": c["max_position_embeddings"],
        "qwen2.embedding_length": c["hidden_size"], "qwen2.block_count": c["num_hidden_layers"],
        "qwen2.feed_forward_length": c["intermediate_size"],
        "qwen2.attention.head_count": c["num_attention_heads"],
        "qwen2.attention.head_count_kv": c["num_key_value_heads"],
        "qwen2.attention.layer_norm_rms_epsilon": c["rms_norm_eps"],
        "qwen2.rope.freq_base": c["rope_theta"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [alphabet[b] for b in range(256)] + SPECIAL[:-1] + ["ab"],
        "tokenizer.ggml.token_type": [1] * 256 + [3] * (len(SPECIAL) - 1) + [1],
        "tokenizer.ggml.merges": ["a b"], "tokenizer.ggml.eos_token_id": 260,
        "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip
    names = {
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm", "model.layers.": "blk.",
        "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
        "language_model.": "",
    }  # fmt: skip
    tower_names = {
        "vision_tower.embeddings.cls_token": "v.class_embd",
        "vision_tower.embeddings.position_embeddings": "v.position_embd.weight",
        "vision_tower.embeddings.patch_embeddings.projection": "v.patch_embd",
        "vision_tower.encoder.layer.": "v.blk.", "attention.q_proj": "attn_q",
        "attention.k_proj": "attn_k", "attention.v_proj": "attn_v",
        "attention.projection_layer": "attn_out", "layernorm_before": "ln1",
        "layernorm_after": "ln2", "lambda_1": "ls1.weight", "lambda_2": "ls2.weight",
        "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down", "multi_modal_projector.layer_norm": "mm.model.mlp.0",
        "multi_modal_projector.linear_1": "mm.model.mlp.1",
        "multi_modal_projector.linear_2": "mm.model.mlp.3",
    }  # fmt: skip
    outs = {True: {}, False: {}}
    for name, x in tensors.items():
        is_text, own = name.startswith("language_model."), name
        for theirs, ours in (names if is_text else tower_names).items():
            own = own.replace(theirs, ours)
        outs[is_text][own] = x.reshape(-1, x.shape[-1]) if "position_embd" in own else x.squeeze()
    gguf(folder / "qwen2.gguf", text, outs[True])
    v = VISION
    gguf(folder / "mmproj.gguf", {
        "general.architecture": "clip", "clip.has_vision_encoder": True,
        "clip.projector_type": "internvl", "clip.vision.image_size": v["image_size"],
        "clip.vision.patch_size": v["patch_size"], "clip.vision.embedding_length": v["hidden_size"],
        "clip.vision.feed_forward_length": v["intermediate_size"],
        "clip.vision.block_count": v["num_hidden_layers"],
        "clip.vision.attention.head_count": v["num_attention_heads"],
        "clip.vision.attention.layer_norm_epsilon": v["layer_norm_eps"],
        "clip.vision.projector.scale_factor": 2, "clip.vision.preproc_max_tiles": MOST,
        "clip.vision.preproc_min_tiles": 1, "clip.vision.image_mean": MEAN,
        "clip.vision.image_std": DEVIATION,
    }, outs[False])  # fmt: skip


def make(folder):
    folder = pathlib.Path(folder)
    shapes = json.loads(STORED.read_text())["tensors"]
    for family in ("qwen2", "internlm2"):
        tensors = {n: numbers(f"{family}/{n}", s) for n, s in shapes[family].items()}
        own = {"model_type": "internvl_chat", "vision_config": VISION, "downsample_ratio": 0.5,
               "llm_config": TEXT | {"model_type": family,
                                     "rope_scaling": {"type": "dynamic", "factor": 2.0}},
               "ps_version": "v2", "select_layer": -1, "min_dynamic_patch": 1,
               "max_dynamic_patch": MOST, "use_thumbnail": True}  # fmt: skip
        if family == "internlm2":
            write_folder(folder / "internlm2", own,
                         own_names(tensors) | internlm2_names(
                             {n: x for n, x in tensors.items() if n.startswith("language_model")}))
            continue
        write_folder(folder / "qwen2-own", own, own_names(tensors) | {
            n: x for n, x in tensors.items() if n.startswith("language_model")})  # fmt: skip
        write_folder(folder / "qwen2", {
            "model_type": "internvl", "text_config": TEXT | {"model_type": "qwen2"},
            "vision_config": VISION | {"image_size": [TILE, TILE], "patch_size": [PATCH, PATCH]},
            "downsample_ratio": 0.5, "image_token_id": CONTEXT, "vision_feature_layer": -1,
        }, tensors, {"preprocessor_config.json": {
            "image_mean": MEAN, "image_std": DEVIATION, "max_patches": MOST, "min_patches": 1,
            "crop_to_patches": True}})  # fmt: skip
        write_gguf_pair(folder, tensors)


# --- Measuring, with transformers and Pillow ----------------------------------------------------


def grid(width, height, least, most, size):
    """As InternVL's model card has it."""
    ratios = sorted({(i, j) for n in range(least, most + 1) for i in range(1, n + 1)
                     for j in range(1, n + 1) if least <= i * j <= most},
                    key=lambda r: r[0] * r[1])  # fmt: skip
    best, off = (1, 1), float("inf")
    for ratio in ratios:
        difference = abs(width / height - ratio[0] / ratio[1])
        if difference < off:
            best, off = ratio, difference
        elif difference == off and width * height > 0.5 * size * size * ratio[0] * ratio[1]:
            best = ratio
    return best


def tiles(pixels):
    from PIL import Image

    image = Image.fromarray(pixels)
    columns, rows = grid(image.width, image.height, 1, MOST, TILE)
    whole = image.resize((columns * TILE, rows * TILE), Image.BICUBIC)
    out = [whole.crop((x * TILE, y * TILE, (x + 1) * TILE, (y + 1) * TILE))
           for y in range(rows) for x in range(columns)]  # fmt: skip
    if len(out) > 1:
        out.append(image.resize((TILE, TILE), Image.BICUBIC))
    return np.stack([np.asarray(t) for t in out])


def measure():
    import torch
    from PIL import Image
    from transformers import InternVLConfig, InternVLForConditionalGeneration

    sides = [1, 30, 64, 100, 224, 333, 448, 449, 640, 777, 896, 1000, 1344, 1920, 3000, 4032]
    shapes = [(sides[(7 * i) % 16], sides[(11 * i + 5 + i // 16) % 16]) for i in range(40)]
    out = {
        "grids": [[w, h, *grid(w, h, 1, 12, 448)] for w, h in shapes],
        "resized": [[w, h, to_w, to_h, zlib.crc32(np.asarray(Image.fromarray(
            picture(w, h)).resize((to_w, to_h), Image.BICUBIC)).tobytes())]
            for w, h, to_w, to_h in [(100, 60, 56, 56), (37, 91, 112, 56), (640, 480, 56, 112),
                                     (56, 40, 56, 56), (91, 56, 56, 56), (5, 3, 448, 448),
                                     (1000, 7, 448, 448), (56, 56, 56, 56)]],
        "tensors": {},
    }  # fmt: skip
    cut = tiles(picture(WIDTH, HEIGHT))
    pixels = (cut.transpose(0, 3, 1, 2).astype(np.float64) / 255 - np.array(MEAN)[:, None, None]
              ) / np.array(DEVIATION)[:, None, None]  # fmt: skip
    out["tiles"] = len(cut)
    # Of each tile every 97th number, in the order tile, colour, row, column.
    out["pixels"] = np.rint(pixels.reshape(-1)[::97] / UNIT).astype(int).tolist()
    ids = BEFORE + [IMG] + [CONTEXT] * (len(cut) * 4) + [END_IMG] + AFTER
    for family, kind in (("qwen2", "qwen2"), ("internlm2", "llama")):
        config = InternVLConfig(
            text_config=dict(TEXT, model_type=kind),
            vision_config=dict({k: v for k, v in VISION.items() if k != "qkv_bias"},
                               attention_bias=True),
            image_token_id=CONTEXT, image_seq_length=4, tie_word_embeddings=False)  # fmt: skip
        model = InternVLForConditionalGeneration(config).eval().double()
        saved = {}
        for name, x in model.state_dict().items():
            # As they are called in files.
            name = name.removeprefix("model.")
            if name == "lm_head.weight":
                name = "language_model.lm_head.weight"
            elif name.startswith("language_model."):
                name = name.replace("language_model.", "language_model.model.", 1)
            saved[name] = list(x.shape)
        out["tensors"][family] = saved
        state = {own: torch.from_numpy(numbers(f"{family}/{n}", s)).double()
                 for own, (n, s) in zip(model.state_dict(), saved.items())}  # fmt: skip
        model.load_state_dict(state)
        features = []
        model.model.multi_modal_projector.register_forward_hook(
            lambda module, given, made: features.append(made.detach().numpy()))
        values = torch.from_numpy(pixels)
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids]), pixel_values=values).logits[0].numpy()
            answer = model.generate(input_ids=torch.tensor([ids]), pixel_values=values,
                                    attention_mask=torch.ones(1, len(ids)), do_sample=False,
                                    max_new_tokens=8, eos_token_id=None)  # fmt: skip
        rows = features[0].reshape(-1, TEXT["hidden_size"])
        out[family] = {
            "features": np.rint(rows / UNIT).astype(int).reshape(-1).tolist(),
            "logits": np.rint(logits[-3:] / UNIT).astype(int).reshape(-1).tolist(),
            "answer": answer[0, len(ids):].tolist(),
        }  # fmt: skip
    STORED.write_text("{\n" + ",\n".join(
        f'"{k}": {json.dumps(v, separators=(",", ":"))}' for k, v in out.items()) + "}\n")


if __name__ == "__main__":
    make(sys.argv[1]) if len(sys.argv) > 1 else measure()
