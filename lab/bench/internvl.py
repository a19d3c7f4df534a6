#!/usr/bin/env python3
"""Models of the size of InternVL2.5-1B, with random vision weights: for times and distances.

    python3 lab/bench/internvl.py make TEXT.gguf FOLDER
    export PYTHONPATH=build/python
    python3 lab/bench/internvl.py distance FOLDER/text.gguf FOLDER/mmproj.gguf PICTURE...

`make` writes FOLDER/text.gguf (TEXT.gguf, of a Qwen 2.5, with the pieces that stand for pictures),
FOLDER/random.gguf (the same with random weights) and FOLDER/mmproj.gguf (InternViT-300M and its
projector, float16); needs the packages gguf and numpy. `distance` reads the pictures exactly and at
an eighth of the bytes, and prints the KL divergence of the next tokens' probabilities, in nats, over
the first words of exact answers to three questions.
"""

import pathlib
import sys

import numpy as np

LAYERS, WIDTH, HEADS, NEURONS, TILE, PATCH = 24, 1024, 16, 4096, 448, 14
PIECES = ["<img>", "</img>", "<IMG_CONTEXT>"]
METHODS = ["replay", "balancekv", "uniform", "h2o", "streaming-llm"]
QUESTIONS = ["Describe the pictures.", "Which colours are there?", "How many shapes do you see?"]
TOKENS = 16  # of an answer


def metadata(reader, writer):
    """All of a file's metadata, with pictures' pieces in place of three that pad the vocabulary."""
    import gguf

    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if field.name == "tokenizer.ggml.tokens":
            unused = len(value) - len(PIECES)
            value[unused:] = PIECES
        if field.name == "tokenizer.ggml.token_type":
            value[-len(PIECES):] = [4] * len(PIECES)  # the user's own, found whole in any text
        element = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, kind, element)


def write(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_text(reader, path, random):
    import gguf

    writer = gguf.GGUFWriter(path, "qwen2")
    metadata(reader, writer)
    for tensor in reader.tensors:
        shape = [int(n) for n in reversed(tensor.shape)]
        if random is None:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
        elif len(shape) == 1:
            bias = tensor.name.endswith("bias")
            writer.add_tensor(tensor.name, np.full(shape, 0.0 if bias else 1.0, np.float32))
        else:
            x = random.standard_normal(shape, np.float32) * (1.3 / np.sqrt(shape[1]))
            writer.add_tensor(tensor.name, gguf.quants.quantize(x, gguf.GGMLQuantizationType.Q8_0),
                              raw_dtype=gguf.GGMLQuantizationType.Q8_0)  # fmt: skip
    write(writer)


def make_tower(path, out_width, size, random):
    """`size`: of an element of what the tower makes; that of the text's own embeddings."""
    import gguf

    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", "internvl")
    for key, value in [("image_size", TILE), ("patch_size", PATCH), ("embedding_length", WIDTH),
                       ("feed_forward_length", NEURONS), ("block_count", LAYERS),
                       ("attention.head_count", HEADS), ("projector.scale_factor", 2),
                       ("projection_dim", out_width)]:  # fmt: skip
        writer.add_uint32(f"clip.vision.{key}", value)
    writer.add_bool("clip.use_gelu", True)
    writer.add_float32("clip.vision.attention.layer_norm_epsilon", 1e-6)
    writer.add_array("clip.vision.image_mean", [0.485, 0.456, 0.406])
    writer.add_array("clip.vision.image_std", [0.229, 0.224, 0.225])

    def matrix(name, *shape, scale=1.0):
        x = random.standard_normal(shape, np.float32)
        x *= scale / np.sqrt(np.prod(shape[1:]))
        writer.add_tensor(name + ".weight", x.astype(np.float16))
        writer.add_tensor(name + ".bias", np.zeros(shape[0], np.float32))

    def norm(name, width):
        writer.add_tensor(name + ".weight", np.ones(width, np.float32))
        writer.add_tensor(name + ".bias", np.zeros(width, np.float32))

    tokens = (TILE // PATCH) ** 2 + 1
    writer.add_tensor("v.class_embd", random.standard_normal(WIDTH, np.float32))
    places = random.standard_normal((tokens, WIDTH), np.float32)
    writer.add_tensor("v.position_embd.weight", 0.5 * places)
    matrix("v.patch_embd", WIDTH, 3, PATCH, PATCH)
    for layer in range(LAYERS):
        name = f"v.blk.{layer}."
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            matrix(name + part, WIDTH, WIDTH, scale=1.5)
        norm(name + "ln1", WIDTH)
        norm(name + "ln2", WIDTH)
        writer.add_tensor(name + "ls1.weight", np.full(WIDTH, 0.3, np.float32))
        writer.add_tensor(name + "ls2.weight", np.full(WIDTH, 0.3, np.float32))
        matrix(name + "ffn_up", NEURONS, WIDTH)
        matrix(name + "ffn_down", WIDTH, NEURONS)
    norm("mm.model.mlp.0", 4 * WIDTH)
    matrix("mm.model.mlp.1", out_width, 4 * WIDTH)
    matrix("mm.model.mlp.3", out_width, out_width, scale=size / 0.65)  # after GELU of N(0, 1)
    write(writer)


def make(text, folder):
    import gguf

    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(63)
    reader = gguf.GGUFReader(text)
    embedding = next(t for t in reader.tensors if t.name == "token_embd.weight")
    rows = gguf.quants.dequantize(embedding.data[:4096], embedding.tensor_type)
    make_text(reader, folder / "text.gguf", None)
    make_text(reader, folder / "random.gguf", random)
    make_tower(folder / "mmproj.gguf", rows.shape[1], float(rows.std()), random)


def probabilities(logits):
    x = logits.astype(np.float64)
    x = np.exp(x - x.max())
    return x / x.sum()


def distance(model, mmproj, pictures):
    import ballast

    model = ballast.Model(model, mmproj=mmproj)
    exact = model.read(images=pictures, method="exact")
    print(f"{exact.tokens} tokens", file=sys.stderr)
    others = {m: model.read(images=pictures, method=m, bytes="1/8") for m in METHODS}
    found = {method: [] for method in METHODS}
    for question in QUESTIONS:
        end = "<|im_end|>\n<|im_start|>assistant\n"
        token = model.tokenize(question + end, special=False, parse_special=True)
        reader, readers = exact.clone(), {m: c.clone() for m, c in others.items()}
        for _ in range(TOKENS):
            p = probabilities(reader.read(token).logits)
            for method, context in readers.items():
                q = probabilities(context.read(token).logits)
                found[method].append(float((p * np.log((p + 1e-30) / (q + 1e-30))).sum()))
            token = [int(p.argmax())]
    for method, values in sorted(found.items(), key=lambda m: np.mean(m[1])):
        bytes = others[method].bytes / others[method].exact_bytes
        print(f"{method:14} {np.mean(values):.4f}  largest {np.max(values):.3f}  bytes {bytes:.3f}")


if __name__ == "__main__":
    make(*sys.argv[2:]) if sys.argv[1] == "make" else distance(*sys.argv[2:4], sys.argv[4:])
