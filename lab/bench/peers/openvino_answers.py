#!/usr/bin/env python3
"""The eviction of OpenVINO GenAI (openvino-genai 2026.4.1) on the questions of lab/bench/real.sh.

    MODEL=qwen2.5-coder-0.5b-q8_0.gguf NAME=qwen2.5-coder-0.5b python3 lab/bench/peers/openvino_answers.py

It takes MODEL, NAME, TASKS, SHARES, LENGTH, ROUNDS and THREADS as lab/bench/real.sh does, whose files it reads. Lines
go into lab/results/real/NAME.jsonl with the engine "openvino". OpenVINO evicts behind the whole prompt: its method has
seen the question, which the others have not. Shares are of entries, in blocks of 32; the cache is of 16 bits. It reads
no Q5_0 from GGUF.
"""
import json
import os
import pathlib
import statistics
import sys

import openvino_genai as genai

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "lab/bench"))
import real_plan  # noqa: E402
import real_rows  # noqa: E402
import real_score  # noqa: E402

BLOCK = 32
GIGABYTES = 2


def pipeline(model, kept):
    """Of a cache of at most `kept` tokens; of all if None."""
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = GIGABYTES
    scheduler.enable_prefix_caching = False
    scheduler.max_num_batched_tokens = 32768
    if kept:
        scheduler.use_cache_eviction = True
        scheduler.cache_eviction_config = genai.CacheEvictionConfig(BLOCK, BLOCK, kept, genai.AggregationMode.NORM_SUM)
    return genai.LLMPipeline(model, "CPU", scheduler_config=scheduler, KV_CACHE_PRECISION="f16",
                             INFERENCE_NUM_THREADS=int(os.environ.get("THREADS", 1)))


def answered(pipe, task, record):
    tokenizer = pipe.get_tokenizer()
    text = tokenizer.apply_chat_template([{"role": "user", "content": record["input"]}], add_generation_prompt=True)
    ids = tokenizer.encode(text + record["answer_prefix"].lstrip(), add_special_tokens=False)
    config = genai.GenerationConfig(max_new_tokens=real_score.most_tokens(task), do_sample=False)
    out = pipe.generate(ids, config)
    return ids.input_ids.shape[1], tokenizer.decode(out.tokens[0])


def main():
    model = os.environ["MODEL"]
    name = os.environ.get("NAME", pathlib.Path(model).stem)
    length = int(os.environ.get("LENGTH", 4096))
    shares = os.environ.get("SHARES", "1/4,1/8").split(",")
    rows = ROOT / f"lab/results/real/{name}.jsonl"
    for number in range(int(os.environ.get("ROUNDS", 4))):
        for task in os.environ.get("TASKS", "qa_plain niah_multivalue fwe vt").split():
            path = ROOT / f"results/real/{name}/{length}/{number}/{task}.jsonl"
            if not path.exists():
                continue
            records = [json.loads(line) for line in path.read_text().splitlines()]
            contexts = len({record["input"].rsplit("\n", 1)[0] for record in records})
            first = real_plan.texts_of(task, real_plan.TEXTS) * number + 1
            for method in real_rows.missing(rows, task, length, first, ["exact", "eviction"], shares, "openvino"):
                for share in real_rows.shares_of(method, shares):
                    add(rows, model, records, {"task": task, "length": length, "first": first, "contexts": contexts,
                                               "engine": "openvino", "method": method, "share": share})


def add(rows, model, records, line):
    """Every question is a prompt of its own. A pipeline's size is fixed: the multiple of the block that is nearest to
    the share of the mean prompt."""
    pipe, kept, lengths, scores = pipeline(model, None), None, [], []
    if line["share"]:
        tokenizer = pipe.get_tokenizer()
        mean = statistics.mean(tokenizer.encode(record["input"]).input_ids.shape[1] for record in records)
        kept = max(3 * BLOCK, round(line["share"] * mean / BLOCK) * BLOCK)
        pipe = pipeline(model, kept)
    for record in records:
        tokens, answer = answered(pipe, line["task"], record)
        lengths.append(tokens)
        scores.append(real_score.score(line["task"], answer, record["outputs"]))
    print(f"{line['task']} from {line['first']}: {line['method']} {line['share']}: {statistics.mean(scores):.2f}",
          file=sys.stderr)
    size = kept / statistics.mean(lengths) if kept else 1.0
    real_rows.append(rows, [line | {"scores": scores, "bytes": round(size, 4)}])


if __name__ == "__main__":
    main()
