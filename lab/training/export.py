"""Writes a checkpoint as GGUF (Qwen 2 architecture) and reads such a file back.

    python3 export.py run/latest.pt ../models/ballast-mini.gguf [--type f16|q8_0]
"""

import argparse
import os
import struct

import numpy
import sentencepiece
import torch

import checkpoint
import chunks
import data
import model as models

MAGIC, VERSION, ALIGNMENT = b"GGUF", 3, 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9
F32, F16, Q8_0 = 0, 1, 8
FILE_TYPE = {F16: 1, Q8_0: 7}
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6


def _string(text):
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


_PACK = {UINT32: lambda v: struct.pack("<I", v), INT32: lambda v: struct.pack("<i", v),
         FLOAT32: lambda v: struct.pack("<f", v), BOOL: lambda v: struct.pack("<?", v), STRING: _string}


def _value(kind, value):
    if isinstance(kind, tuple):
        return struct.pack("<IIQ", ARRAY, kind[1], len(value)) + b"".join(_PACK[kind[1]](v) for v in value)
    return struct.pack("<I", kind) + _PACK[kind](value)


def quantise_q8_0(values):
    """Blocks of 32: a half-precision scale and 32 signed bytes."""
    blocks = values.reshape(-1, 32).astype(numpy.float32)
    scale = numpy.abs(blocks).max(axis=1) / 127.0
    inverse = numpy.divide(1.0, scale, out=numpy.zeros_like(scale), where=scale > 0)
    scaled = blocks * inverse[:, None]
    levels = (numpy.sign(scaled) * numpy.floor(numpy.abs(scaled) + 0.5)).astype(numpy.int8)
    out = numpy.empty((len(blocks), 34), numpy.uint8)
    out[:, :2] = scale.astype(numpy.float16).reshape(-1, 1).view(numpy.uint8)
    out[:, 2:] = levels.view(numpy.uint8)
    return out.tobytes()


def dequantise_q8_0(raw):
    blocks = numpy.frombuffer(raw, numpy.uint8).reshape(-1, 34)
    scale = blocks[:, :2].copy().view(numpy.float16).astype(numpy.float32)
    return (blocks[:, 2:].copy().view(numpy.int8).astype(numpy.float32) * scale).reshape(-1)


def tensors_of(model):
    """Name and array of every tensor, under llama.cpp's names."""
    shape = model.shape
    cut = [shape.width, shape.kv_width, shape.kv_width]
    yield "token_embd.weight", model.embedding.weight
    for i, block in enumerate(model.blocks):
        prefix = f"blk.{i}."
        yield prefix + "attn_norm.weight", block.attention_norm.weight
        for name, weight, bias in zip("qkv", block.qkv.weight.split(cut), block.qkv.bias.split(cut)):
            yield f"{prefix}attn_{name}.weight", weight
            yield f"{prefix}attn_{name}.bias", bias
        yield prefix + "attn_output.weight", block.output.weight
        yield prefix + "ffn_norm.weight", block.hidden_norm.weight
        gate, up = block.gate_up.weight.chunk(2)
        yield prefix + "ffn_gate.weight", gate
        yield prefix + "ffn_up.weight", up
        yield prefix + "ffn_down.weight", block.down.weight
    yield "output_norm.weight", model.norm.weight


# Of answers with a token less probable than this most are wrong, of the others few (models/README.md).
UNSURE_BELOW = 0.6


def user_defined(vocabulary):
    """Pieces that stand whole wherever a text holds them. The library has no question for them."""
    turns = vocabulary.piece_to_id(chunks.END) + 1
    return range(turns, vocabulary.vocab_size()) if turns > 1 else range(0)


def metadata(shape, vocabulary, stored, context):
    pieces = range(vocabulary.vocab_size())
    whole = user_defined(vocabulary)
    types = [USER_DEFINED if i in whole else BYTE if vocabulary.is_byte(i) else UNKNOWN if vocabulary.is_unknown(i) else
             CONTROL if vocabulary.is_control(i) else NORMAL for i in pieces]
    return {
        "general.architecture": (STRING, "qwen2"),
        "general.name": (STRING, "ballast-mini"),
        "general.description": (STRING, "Finds things in long contexts; trained for Ballast on generated text only."),
        "general.license": (STRING, "apache-2.0"),
        "general.file_type": (UINT32, FILE_TYPE[stored]),
        "qwen2.block_count": (UINT32, shape.layers),
        "ballast.unsure_below": (FLOAT32, UNSURE_BELOW),
        "qwen2.context_length": (UINT32, context),
        "qwen2.embedding_length": (UINT32, shape.width),
        "qwen2.feed_forward_length": (UINT32, shape.hidden),
        "qwen2.attention.head_count": (UINT32, shape.heads),
        "qwen2.attention.head_count_kv": (UINT32, shape.kv_heads),
        "qwen2.attention.layer_norm_rms_epsilon": (FLOAT32, shape.epsilon),
        "qwen2.rope.freq_base": (FLOAT32, shape.rotary_base),
        "qwen2.vocab_size": (UINT32, shape.vocabulary),
        "tokenizer.ggml.model": (STRING, "llama"),
        "tokenizer.ggml.pre": (STRING, "default"),
        "tokenizer.ggml.tokens": ((ARRAY, STRING), [
            # What stands whole is looked for in the text as it is.
            vocabulary.id_to_piece(i).replace("\u2581", " ") if i in whole else vocabulary.id_to_piece(i)
            for i in pieces]),
        "tokenizer.ggml.scores": ((ARRAY, FLOAT32), [vocabulary.get_score(i) for i in pieces]),
        "tokenizer.ggml.token_type": ((ARRAY, INT32), types),
        "tokenizer.ggml.bos_token_id": (UINT32, vocabulary.bos_id()),
        "tokenizer.ggml.eos_token_id": (UINT32, vocabulary.eos_id()),
        "tokenizer.ggml.eot_token_id": (UINT32, vocabulary.piece_to_id(chunks.END)),
        "tokenizer.ggml.unknown_token_id": (UINT32, vocabulary.unk_id()),
        "tokenizer.ggml.add_bos_token": (BOOL, True),
        "tokenizer.ggml.add_eos_token": (BOOL, False),
        "tokenizer.ggml.add_space_prefix": (BOOL, False),
        "tokenizer.chat_template": (STRING, data.TEMPLATE),
    }


def write(path, model, vocabulary, stored=F16, context=4096):
    infos, blobs, offset = [], [], 0
    for name, tensor in tensors_of(model):
        values = tensor.detach().cpu().float().contiguous().numpy()
        kind = F32 if values.ndim == 1 else stored
        raw = (values.tobytes() if kind == F32 else
               values.astype(numpy.float16).tobytes() if kind == F16 else quantise_q8_0(values))
        infos.append(_string(name) + struct.pack("<I", values.ndim)
                     + b"".join(struct.pack("<Q", n) for n in reversed(values.shape))
                     + struct.pack("<IQ", kind, offset))
        raw += bytes(-len(raw) % ALIGNMENT)
        blobs.append(raw)
        offset += len(raw)
    fields = metadata(model.shape, vocabulary, stored, context)
    head = MAGIC + struct.pack("<IQQ", VERSION, len(infos), len(fields))
    head += b"".join(_string(key) + _value(*value) for key, value in fields.items()) + b"".join(infos)
    head += bytes(-len(head) % ALIGNMENT)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    with open(path + ".new", "wb") as file:
        file.write(head + b"".join(blobs))
    os.replace(path + ".new", path)


class _Reader:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.raw, self.at)
        self.at += struct.calcsize("<" + form)
        return values[0] if len(values) == 1 else values

    def string(self):
        size = self.take("Q")
        self.at += size
        return self.raw[self.at - size:self.at].decode("utf-8")

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            item, count = self.take("IQ")
            return [self.value(item) for _ in range(count)]
        return self.take({UINT32: "I", INT32: "i", FLOAT32: "f", BOOL: "?"}[kind])


def _begin(path):
    """A reader behind the metadata, the number of tensors, and the metadata."""
    with open(path, "rb") as file:
        reader = _Reader(file.read())
    if reader.raw[:4] != MAGIC:
        raise ValueError(f"{path}: not a GGUF file")
    reader.at = 4
    _, tensor_count, field_count = reader.take("IQQ")
    fields = {}
    for _ in range(field_count):
        key = reader.string()
        fields[key] = reader.value(reader.take("I"))
    return reader, tensor_count, fields


def read_fields(path):
    """The metadata of a file."""
    return _begin(path)[2]


def read(path):
    """The model of a file that `write` wrote."""
    reader, tensor_count, fields = _begin(path)
    infos = []
    for _ in range(tensor_count):
        name = reader.string()
        sizes = [reader.take("Q") for _ in range(reader.take("I"))][::-1]
        infos.append((name, sizes, *reader.take("IQ")))
    start = reader.at + -reader.at % ALIGNMENT
    shape = models.Shape(vocabulary=fields["qwen2.vocab_size"], width=fields["qwen2.embedding_length"],
                         layers=fields["qwen2.block_count"], heads=fields["qwen2.attention.head_count"],
                         kv_heads=fields["qwen2.attention.head_count_kv"],
                         hidden=fields["qwen2.feed_forward_length"], rotary_base=fields["qwen2.rope.freq_base"],
                         epsilon=fields["qwen2.attention.layer_norm_rms_epsilon"])
    model = models.Model(shape)
    targets = dict(tensors_of(model))
    with torch.no_grad():
        for name, sizes, kind, offset in infos:
            count = int(numpy.prod(sizes))
            size = {F32: count * 4, F16: count * 2, Q8_0: count // 32 * 34}[kind]
            raw = reader.raw[start + offset:start + offset + size]
            values = (dequantise_q8_0(raw) if kind == Q8_0 else
                      numpy.frombuffer(raw, numpy.float32 if kind == F32 else numpy.float16).astype(numpy.float32))
            targets[name].copy_(torch.from_numpy(values.reshape(sizes).copy()))
    return model


def load(path):
    """A model from a checkpoint or a GGUF file."""
    if path.endswith(".gguf"):
        return read(path)
    saved = checkpoint.load(path)
    model = models.Model(models.Shape(**saved["shape"]))
    model.load_state_dict(saved["model"])
    return model


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    parser.add_argument("--type", choices=("f16", "q8_0"), default="f16")
    parser.add_argument("--context", type=int, default=4096, help="longest context that the model is good for")
    parser.add_argument("--vocabulary", default=os.path.join(os.path.dirname(__file__), "vocabulary.model"))
    arguments = parser.parse_args()
    vocabulary = sentencepiece.SentencePieceProcessor(model_file=arguments.vocabulary)
    write(arguments.out, load(arguments.checkpoint), vocabulary, F16 if arguments.type == "f16" else Q8_0,
          arguments.context)


if __name__ == "__main__":
    main()
