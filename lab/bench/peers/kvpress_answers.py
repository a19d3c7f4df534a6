#!/usr/bin/env python3
"""kvpress on the questions of lab/bench/real.sh: the same weights, dequantized, through transformers.

    MODEL=qwen2.5-coder-0.5b.gguf python3 lab/bench/peers/kvpress_answers.py     all that is missing

It takes MODEL, NAME, TASKS, SHARES, LENGTH and ROUNDS as lab/bench/real.sh does, whose files it reads
(results/real/NAME/LENGTH/ROUND/TASK.jsonl), and PRESSES, names separated by commas. Lines go into
lab/results/real/NAME.jsonl with the engine "kvpress". Its shares are of entries, which are the bytes
that are kept; kvpress masks some methods' entries in place of freeing them, so no times are taken.
It needs the packages kvpress (0.5.5 with transformers 5.2; 5.24 does not run it), torch and gguf.
"""
import json
import os
import pathlib
import sys

import torch
import transformers
from kvpress import (AdaKVPress, ExpectedAttentionPress, KVzipPress, SnapKVPress, StreamingLLMPress)

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "lab/bench"))
import real_plan  # noqa: E402
import real_rows  # noqa: E402
import real_score  # noqa: E402

PRESSES = {
    "exact": None,
    "kvzip": lambda ratio: KVzipPress(compression_ratio=ratio),
    "kvzip-plus": lambda ratio: KVzipPress(compression_ratio=ratio, kvzip_plus_normalization=True),
    "snapkv": lambda ratio: SnapKVPress(compression_ratio=ratio),
    "adaptive-snapkv": lambda ratio: AdaKVPress(SnapKVPress(compression_ratio=ratio)),
    "expected-attention": lambda ratio: ExpectedAttentionPress(compression_ratio=ratio),
    "streaming-llm": lambda ratio: StreamingLLMPress(compression_ratio=ratio),
}
PLACE = "\ue0b0"


def load(gguf, name):
    """Model and tokenizer. KVzipPress reads the tokenizer again, from the folder that the model names."""
    gguf = pathlib.Path(gguf).resolve()
    folder = ROOT / "results/real" / name / "tokenizer"
    tokenizer = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.save_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    model.config.name_or_path = str(folder)
    return model.eval(), tokenizer


def prompt(tokenizer, record):
    """Context and question as `ballast eval ruler --question-later` reads them: texts that are tokenized apart."""
    text, question = record["input"].rsplit("\n", 1)
    form = tokenizer.apply_chat_template([{"role": "user", "content": f"{text}\n\n{PLACE}"}], tokenize=False,
                                         add_generation_prompt=True)
    before, after = form.split(PLACE)
    return before, f"\n{question}" + after + record["answer_prefix"].lstrip()


def main():
    gguf = os.environ["MODEL"]
    name = os.environ.get("NAME", pathlib.Path(gguf).stem)
    length = int(os.environ.get("LENGTH", 4096))
    shares = os.environ.get("SHARES", "1/4,1/8,1/16").split(",")
    tasks = os.environ.get("TASKS", "qa_plain niah_multikey_1 niah_multivalue vt fwe qa_1").split()
    presses = os.environ.get("PRESSES", ",".join(PRESSES)).split(",")
    rows = ROOT / f"lab/results/real/{name}.jsonl"
    torch.set_num_threads(int(os.environ.get("THREADS", 1)))
    model, tokenizer = load(gguf, name)
    pipe = transformers.pipeline("kv-press-text-generation", model=model, tokenizer=tokenizer)

    def encode(text):
        return tokenizer.encode(text, add_special_tokens=False, return_tensors="pt")

    def answers(records, task, press):
        """Answers to consecutive questions on one text."""
        texts = [prompt(tokenizer, record) for record in records]
        inputs = {"context_ids": encode(texts[0][0]), "questions_ids": [encode(question) for _, question in texts]}
        most = real_score.most_tokens(task)
        with torch.inference_mode():
            return pipe._forward(inputs, max_new_tokens=most, press=press)

    for number in range(int(os.environ.get("ROUNDS", 4))):
        for task in tasks:
            path = ROOT / f"results/real/{name}/{length}/{number}/{task}.jsonl"
            if not path.exists():
                continue
            records = [json.loads(line) for line in path.read_text().splitlines()]
            texts = {}
            for record in records:
                texts.setdefault(record["input"].rsplit("\n", 1)[0], []).append(record)
            first = real_plan.texts_of(task, real_plan.TEXTS) * number + 1
            for method in real_rows.missing(rows, task, length, first, presses, shares, "kvpress"):
                for share in real_rows.shares_of(method, shares):
                    scores = []
                    for asked in texts.values():
                        press = PRESSES[method](1 - share) if PRESSES[method] else None
                        for record, answer in zip(asked, answers(asked, task, press)):
                            scores.append(real_score.score(task, answer, record["outputs"]))
                    print(f"{task} from {first}: {method} {share}: {sum(scores) / len(scores):.2f}", file=sys.stderr)
                    real_rows.append(rows, [{"task": task, "length": length, "first": first, "contexts": len(texts),
                                             "engine": "kvpress", "method": method, "share": share, "scores": scores,
                                             "bytes": share or 1.0}])


if __name__ == "__main__":
    main()
