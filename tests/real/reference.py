#!/usr/bin/env python3
"""What transformers computes with a GGUF file's weights, for tests/real/logits_test.cc.

    python3 -m venv venv && venv/bin/pip install torch transformers gguf accelerate
    venv/bin/python tests/real/reference.py NAME MODEL.gguf > tests/real/NAME.json

NAME is a model's name in `ballast models`. Weights are dequantized to float32, and so is all
arithmetic. Nothing is drawn, so nothing needs a seed. Takes minutes, 5 bytes of memory a weight.
"""
import hashlib
import json
import pathlib
import sys

import torch
import transformers
from gguf import GGUFReader
from tokenizers import pre_tokenizers

SOURCE = pathlib.Path(__file__).resolve().parents[2]
GREEDY = 200  # tokens of greedy text
KEPT = 8  # log-probabilities of a position that are written
NEAR = 0.5  # nats between the two likeliest tokens below which both are written

TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a place today",
        "parameters": {
            "type": "object",
            "properties": {"place": {"type": "string", "description": "A town"}},
            "required": ["place"],
        },
    },
}]
CHAT = [
    {"role": "system", "content": "You are a guide in the Alps. Answer in two sentences."},
    {"role": "user", "content": "Can we walk to the hut from Zermatt today?"},
    {"role": "assistant", "content": "", "tool_calls": [{
        "type": "function",
        "function": {"name": "get_weather", "arguments": {"place": "Zermatt"}},
    }]},
    {"role": "tool", "content": '{"temperature": 4, "sky": "snow from noon", "wind": "strong"}'},
]
# Name, files whose first tokens are read, their number; whether greedy text follows.
TEXTS = [
    ("1 token", ["01"], 1, True),
    ("17 tokens", ["01"], 17, True),
    ("200 tokens", ["02"], 200, True),
    ("4096 tokens", ["03", "04", "05"], 4096, False),
]


def likeliest(logits, position):
    values, ids = torch.log_softmax(logits.double(), -1).topk(KEPT)
    return {"position": position, "ids": ids.tolist(), "logs": [round(v, 5) for v in values.tolist()]}


@torch.inference_mode()
def measure(model, ids, positions, greedy):
    """Of the positions: the likeliest tokens. `greedy`: also a continuation of so many tokens."""
    # Logits of all positions of a long text would not fit.
    first = min(positions)
    out = model(torch.tensor([ids]), logits_to_keep=len(ids) - first, use_cache=greedy > 0)
    result = {"top": [likeliest(out.logits[0, p - first], p) for p in positions]}
    if greedy == 0:
        return result
    made, near = [], []
    for i in range(greedy):
        logits = out.logits[0, -1]
        best = torch.log_softmax(logits.double(), -1).topk(2)
        made.append(best.indices[0].item())
        margin = (best.values[0] - best.values[1]).item()
        if margin < NEAR:
            near.append({"at": i, "other": best.indices[1].item(), "margin": round(margin, 5)})
        if i % 10 == 9:
            result["top"].append(likeliest(logits, len(ids) - 1 + i))
        out = model(torch.tensor([[made[-1]]]), past_key_values=out.past_key_values, use_cache=True)
    return {**result, "greedy": made, "near_ties": near}


def main():
    name, path = sys.argv[1:]
    path = pathlib.Path(path).resolve()
    fields = GGUFReader(path).fields
    template = fields.get("tokenizer.chat_template")
    template = template and template.contents()  # base models have none
    tokenizer = transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    if fields["tokenizer.ggml.pre"].contents() == "smollm":  # which transformers takes for GPT-2's
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False)])
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32).eval()

    prompts = []
    for title, files, count, greedy in TEXTS:
        text = "".join((SOURCE / f"data/calibration/{f}.txt").read_text() for f in files)
        ids = tokenizer(text, add_special_tokens=False).input_ids[:count]
        assert len(ids) == count
        positions = range(0, count, 8) if greedy else range(count - 32, count)
        prompts.append({"name": title, "files": files, "tokens": count, "last_ids": ids[-512:],
                        **measure(model, ids, list(positions), GREEDY if greedy else 0)})
        print(title, file=sys.stderr, flush=True)
    if template:
        tools = TOOLS if "tools" in template else []  # not all have learned to call functions
        text = tokenizer.apply_chat_template(CHAT, tools=tools, chat_template=template,
                                             tokenize=False, add_generation_prompt=True)
        ids = tokenizer(text, add_special_tokens=False).input_ids
        prompts.append({"name": "chat", "messages": CHAT, "tools": tools, "tokens": len(ids),
                        "last_ids": ids[-512:],
                        **measure(model, ids, list(range(0, len(ids), 8)), GREEDY)})
    header = {
        "model": name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "made_by": f"transformers {transformers.__version__}, torch {torch.__version__}, float32",
    }
    # A prompt's numbers are one line, which diffs and editors can bear.
    print(json.dumps(header)[:-1] + ', "prompts": [')
    print(",\n".join(json.dumps(p, separators=(",", ":")) for p in prompts))
    print("]}")


if __name__ == "__main__":
    main()
