"""Scores a checkpoint or a GGUF file on held-out questions, and on LongEval's and RULER's files where they are.

A question is right when every token of its answer is the most likely one, which is what greedy decoding gives.

    python3 evaluate.py ../models/ballast-mini.gguf --lengths 512,1024,2048,4096 --count 100
    python3 evaluate.py run/latest.pt --file ../../shared/data/longeval/200_lines.jsonl
"""

import argparse
import json
import math
import os

import sentencepiece
import torch

import data
import export


@torch.no_grad()
def answers_right(model, prompt, answer, device="cpu"):
    """For each answer token, whether it is the most likely one after the prompt and the answer so far."""
    ids = torch.tensor([prompt + answer[:-1]], device=device)
    wanted = torch.zeros(ids.shape, dtype=torch.bool, device=device)
    wanted[0, len(prompt) - 1:] = True
    logits = model(ids, torch.arange(ids.shape[1], device=device)[None], wanted)
    return [a == b for a, b in zip(logits.argmax(-1).tolist(), answer)]


class Score:
    def __init__(self):
        self.questions = self.right = self.tokens = self.tokens_right = 0
        self.longest = 0

    def add(self, found, length):
        self.questions += 1
        self.right += all(found)
        self.tokens += len(found)
        self.tokens_right += sum(found)
        self.longest = max(self.longest, length)

    def row(self):
        mean = self.right / max(1, self.questions)
        error = math.sqrt(mean * (1 - mean) / max(1, self.questions))
        return (f"{mean:.3f} +- {error:.3f}  answer tokens {self.tokens_right / max(1, self.tokens):.3f}  "
                f"{self.questions} questions, up to {self.longest} tokens")


def generated(model, encoder, task, room, count, device="cpu", chat=False):
    """Nothing where the model lacks pieces of the wording; a model without turns is not asked for the end of one."""
    score = Score()
    known = model.shape.vocabulary
    for number in range(count):
        prompt, answer = data.test_question(task, encoder, room, number, chat)
        if max(prompt) >= known:
            return None
        answer = [token for token in answer if token < known]
        score.add(answers_right(model, prompt, answer, device), len(prompt))
    return score


def from_file(model, processor, path, device="cpu"):
    """LongEval's or RULER's JSON lines, unchanged."""
    score = Score()
    with open(path, encoding="utf-8") as file:
        for line in file:
            record = json.loads(line)
            if "expected_number" in record:
                prompt, answer = record["prompt"], str(record["expected_number"])
            else:
                prompt, answer = record["input"], " " + record["outputs"][0]
            ids = [processor.bos_id()] + processor.encode(prompt)
            score.add(answers_right(model, ids, processor.encode(answer), device), len(ids))
    return score


@torch.no_grad()
def greedy(model, prompt, count, end, device="cpu"):
    """Up to `count` tokens, without the token `end` and what follows it."""
    ids = list(prompt)
    for _ in range(count):
        wanted = torch.zeros(1, len(ids), dtype=torch.bool, device=device)
        wanted[0, -1] = True
        positions = torch.arange(len(ids), device=device)[None]
        token = int(model(torch.tensor([ids], device=device), positions, wanted)[0].argmax())
        if token == end:
            break
        ids.append(token)
    return ids[len(prompt):]


def write_cases(model, processor, encoder, path, rooms=(128, 512), count=2):
    """Prompts with their tokens and greedy answers, for check_peer.mjs."""
    cases = []
    end = processor.piece_to_id(data.END)
    for task in data.TASKS:
        for room in rooms:
            for number in range(count):
                text = processor.decode(data.test_question(task, encoder, room, number)[0])
                ids = [processor.bos_id()] + processor.encode(text)
                if max(ids) >= model.shape.vocabulary:
                    continue  # a wording that the model lacks pieces of
                cases.append({"prompt": text, "ids": ids, "greedy": greedy(model, ids, 6, end)})
    with open(path, "w", encoding="utf-8") as file:
        json.dump(cases, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--vocabulary", default=os.path.join(os.path.dirname(__file__), "vocabulary.model"))
    parser.add_argument("--tasks", default=",".join(data.TASKS))
    parser.add_argument("--lengths", default="512,1024,2048,4096")
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--file", action="append", default=[], help="LongEval or RULER file")
    parser.add_argument("--cases", help="write cases for check_peer.mjs here and do nothing else")
    parser.add_argument("--chat", action="store_true", help="ask in turns of a conversation; the end counts too")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    processor = sentencepiece.SentencePieceProcessor(model_file=arguments.vocabulary)
    encoder = data.Encoder(processor)
    model = export.load(arguments.model).to(arguments.device).eval()
    if model.shape.vocabulary > processor.vocab_size():
        parser.error(f"{arguments.model}: {model.shape.vocabulary} pieces, but {arguments.vocabulary} has "
                     f"{processor.vocab_size()}")
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    if arguments.cases:
        write_cases(model, processor, encoder, arguments.cases)
        return
    for room in map(int, filter(None, arguments.lengths.split(","))):
        for task in filter(None, arguments.tasks.split(",")):
            score = generated(model, encoder, task, room, arguments.count, arguments.device, arguments.chat)
            row = score.row() if score else "the model lacks pieces of its wording"
            print(f"{task:10} {room:6}  {row}", flush=True)
    for path in arguments.file:
        score = from_file(model, processor, path, arguments.device)
        print(f"{os.path.basename(path)}  {score.row()}", flush=True)


if __name__ == "__main__":
    main()
