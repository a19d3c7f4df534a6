"""Trains the model in stages of growing length, from a checkpoint where there is one.

    python3 train.py --directory run                      # all stages, resuming if run/latest.pt exists
    python3 train.py --directory more --init run/latest.pt --stages 8192,16384 --device cuda

SIGTERM saves and ends, and so does the end of --minutes; the same command goes on from there. A stage ends when its
questions are nearly solved or its tokens are spent. Positions jump at random between lines, up to the longest length
wanted, so that short samples already teach the distances of long ones.
"""

import argparse
import csv
import hashlib
import itertools
import math
import os
import queue
import random
import signal
import sys
import time

import sentencepiece
import torch
import torch.multiprocessing as multiprocessing
import torch.nn.functional as F

import checkpoint
import chunks
import data
import export
import model as models

# Shares of the tasks. What does not fit into a short text waits for longer ones.
SHORT_MIX = {"lines": 0.22, "copying": 0.06, "needles": 0.12, "records": 0.10, "passkey": 0.05, "labelling": 0.05,
             "multivalue": 0.04, "multiquery": 0.04, "variables": 0.07, "common": 0.03, "frequent": 0.03,
             "facts": 0.06, "stories": 0.05, "retrieval": 0.04, "replay": 0.04}
LONG_MIX = {"lines": 0.23, "needles": 0.12, "records": 0.09, "copying": 0.04, "passkey": 0.04, "labelling": 0.04,
            "counting": 0.02, "multivalue": 0.04, "multiquery": 0.04, "variables": 0.07, "common": 0.04,
            "frequent": 0.03, "facts": 0.05, "stories": 0.05, "retrieval": 0.04, "unique": 0.02,
            "replay": 0.04}
SIZES = ("layers", "width", "hidden", "heads", "kv_heads")


def mix_of(text):
    """Shares of tasks by name, such as lines=3,needles=2."""
    mix = {}
    for item in text.split(","):
        task, _, share = item.partition("=")
        if task not in data.TASKS:
            raise argparse.ArgumentTypeError(f"'{task}' is no task; tasks are {', '.join(data.TASKS)}")
        mix[task] = float(share)
    return mix


# What the rows of the turns begin as: an end like what ended the answers before, a beginning like what stood there.
LIKE = {chunks.END: ("\n", ".", "\"", ">"), chunks.USER: ("\n",), chunks.ASSISTANT: (" ",)}


@torch.no_grad()
def grow_vocabulary(weights, processor, seed=1):
    """Rows for pieces that a vocabulary has gained, near the mean of those there or like others."""
    rows = weights["embedding.weight"]
    pieces = processor.vocab_size()
    if len(rows) >= pieces:
        return
    generator = torch.Generator().manual_seed(seed)
    new = torch.randn(pieces - len(rows), rows.shape[1], generator=generator) * rows.std() * 0.5 + rows.mean(0)
    for turn, others in LIKE.items():
        at = processor.piece_to_id(turn) - len(rows)
        if at >= 0:
            like = torch.stack([rows[processor.encode(other)[0]] for other in others])
            new[at] += like.sum(0) / math.sqrt(len(others))
    weights["embedding.weight"] = torch.cat((rows, new))


def newton_schulz(g, steps=5):
    """The orthogonal factor of a matrix, roughly and in bfloat16 (Muon; Jordan and others 2024)."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (g / (g.norm() + 1e-7)).bfloat16()
    turned = x.shape[0] > x.shape[1]
    if turned:
        x = x.T
    for _ in range(steps):
        y = x @ x.T
        x = torch.addmm(x, torch.addmm(y, y, y, beta=b, alpha=c), x, beta=a)
    return (x.T if turned else x).to(g.dtype)


class Muon(torch.optim.Optimizer):
    """Momentum, orthogonalised, for matrices. A packed projection is a list of slices, each treated on its own."""

    def __init__(self, parameters, split, rate, momentum=0.95):
        super().__init__(parameters, {"lr": rate, "momentum": momentum})
        self.parts = split

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum" not in state:
                    state["momentum"] = torch.zeros_like(p)
                m = state["momentum"]
                m.mul_(group["momentum"]).add_(p.grad)
                g = p.grad.add(m, alpha=group["momentum"])
                for part, target in zip(g.split(self.parts(p)), p.split(self.parts(p))):
                    scale = 0.2 * math.sqrt(max(part.shape))
                    target.add_(newton_schulz(part), alpha=-group["lr"] * scale)


class RowAdam(torch.optim.Optimizer):
    """Adam for an embedding that moves only the rows seen in the batch. Plain Adam would drag all the others along
    one direction, whatever the size of their gradient, until words look alike."""

    def __init__(self, weight, rate, betas=(0.9, 0.98), epsilon=1e-10):
        super().__init__([weight], {"lr": rate, "betas": betas, "epsilon": epsilon})
        self.rows = None

    @torch.no_grad()
    def step(self):
        group = self.param_groups[0]
        weight, = group["params"]
        state = self.state[weight]
        if not state:
            state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
            state["steps"] = torch.zeros(len(weight), 1, device=weight.device)
        (first, second), rows = group["betas"], self.rows
        grad = weight.grad[rows]
        state["steps"][rows] += 1
        steps = state["steps"][rows]
        mean = first * state["mean"][rows] + (1 - first) * grad
        square = second * state["square"][rows] + (1 - second) * grad.square()
        state["mean"][rows], state["square"][rows] = mean, square
        weight[rows] -= group["lr"] * (mean / (1 - first ** steps)) / (
            (square / (1 - second ** steps)).sqrt() + group["epsilon"])


def optimizers(model, rate, row_rate=None):
    shape = model.shape

    def split(p):
        if p.shape[0] == shape.width + 2 * shape.kv_width:
            return [shape.width, shape.kv_width, shape.kv_width]
        return [shape.hidden] * (p.shape[0] // shape.hidden) if p.shape[0] == 2 * shape.hidden else [p.shape[0]]

    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and "embedding" not in n]
    muon = Muon(matrices, split, rate)
    rows = RowAdam(model.embedding.weight, row_rate or rate * 0.3)
    adam = torch.optim.Adam([p for p in model.parameters() if p.ndim == 1], lr=rate * 0.5, betas=(0.9, 0.98))
    for optimizer in (muon, rows, adam):
        for group in optimizer.param_groups:
            group["full"] = group["lr"]
    return muon, rows, adam


def weights_of(learn):
    """What every token of a sample counts in the loss. An answer of n tokens counts as sqrt(n) ones: uuids and copies
    would else outweigh words and ends of turns. Contexts with few questions count more for each."""
    lengths = [len(list(run)) for flag, run in itertools.groupby(learn) if flag]
    few = min(4.0, max(0.5, math.sqrt(16 / max(1, len(lengths)))))
    out = []
    for flag, run in itertools.groupby(learn):
        count = len(list(run))
        out += [few / math.sqrt(count) if flag else 0.0] * count
    return out


class Batches:
    """Batches of one length: ids, positions, targets, and what every target counts."""

    def __init__(self, encoder, length, batch, mix, reach, seed, share, forbidden):
        self.encoder, self.length, self.batch, self.mix = encoder, length, batch, mix
        self.reach, self.share, self.forbidden = reach, share, forbidden
        self.rng = random.Random(f"train/{length}/{seed}")
        self.newline = encoder.processor.encode("\n")[0]
        self.stop = encoder.processor.encode(".")[0]

    def sequence(self):
        ids, learn = [], []
        while len(ids) < self.length + 1:
            room = self.length - len(ids)
            if room < 64:
                more, flags = [self.encoder.processor.eos_id()] * (room + 1), [False] * (room + 1)
            else:
                more, flags = data.training_sample(self.rng, self.encoder, self.mix, room - 4, self.share(self.rng),
                                                   self.forbidden)
            ids += more
            learn += weights_of(flags)
        return ids[:self.length + 1], learn[:self.length + 1]

    def positions(self, ids):
        """Increasing positions with jumps after line ends; a third of the sequences have none."""
        spare = self.reach - self.length
        if spare <= 0 or self.rng.random() < 0.33:
            return list(range(self.length))
        ends = [i for i in range(1, self.length) if ids[i - 1] == self.newline or ids[i - 1] == self.stop]
        jumps = {}
        spare = int(spare * self.rng.random())
        for end in self.rng.sample(ends, min(len(ends), self.rng.choice((1, 2, 4, 8)))):
            jumps[end] = self.rng.random()
        total = sum(jumps.values()) or 1.0
        out, at = [], 0
        for i in range(self.length):
            if i in jumps:
                at += int(spare * jumps[i] / total)
            out.append(at)
            at += 1
        return out

    def next(self):
        rows = [self.sequence() for _ in range(self.batch)]
        ids = torch.tensor([r[0] for r in rows])
        weights = torch.tensor([r[1] for r in rows])
        positions = torch.tensor([self.positions(r[0]) for r in rows])
        return ids[:, :-1], positions, ids[:, 1:], weights[:, 1:]


def loss_of(model, batch, device, autocast):
    ids, positions, targets, weights = (t.to(device) for t in batch)
    learn = weights > 0
    with torch.autocast(device.split(":")[0], torch.bfloat16, enabled=autocast):
        logits = model(ids, positions, wanted=learn)
    losses = F.cross_entropy(logits.float(), targets[learn], reduction="none")
    return (losses * weights[learn]).sum() / weights.sum(), logits, targets[learn]


class Workers:
    """Batches made by other processes, for devices that are faster than one core writes text."""

    def __init__(self, count, make):
        context = multiprocessing.get_context("fork")
        self.queue = context.Queue(4 * count)
        self.processes = [context.Process(target=self.work, args=(make, i), daemon=True) for i in range(count)]
        for process in self.processes:
            process.start()

    def work(self, make, number):
        torch.set_num_threads(1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        batches = make(number)
        while True:
            self.queue.put([t.numpy() for t in batches.next()])

    def next(self):
        while True:
            try:
                return tuple(torch.from_numpy(t) for t in self.queue.get(timeout=60))
            except queue.Empty:
                if not all(process.is_alive() for process in self.processes):
                    raise RuntimeError("a process that makes batches has ended") from None

    def close(self):
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.join()


def state_of(model, opts, state):
    return {"shape": dict(vars(model.shape)), "model": model.state_dict(),
            "optimizers": [o.state_dict() for o in opts], "state": dict(state)}


def sources():
    """A hash of what the test questions depend on."""
    found = hashlib.blake2b(digest_size=8)
    here = os.path.dirname(os.path.abspath(__file__))
    for name in ("benchmarks.py", "chunks.py", "data.py", "finding.py", "stories.py", "words.py", "vocabulary.model"):
        with open(os.path.join(here, name), "rb") as file:
            found.update(file.read())
    return found.hexdigest()


def held_out(directory, stages, encoder):
    """The hashes of the test questions, made once and kept beside the checkpoints."""
    rooms = sorted({128, 256, 512, 1024, 2048, 4096} | set(stages))
    name = f"held-out-{sources()}-{max(rooms)}"
    path = os.path.join(directory, name)
    if not os.path.exists(path):
        found = sorted(data.held_out(encoder, rooms, data.TEST_QUESTIONS))
        with open(path + ".new", "wb") as file:
            file.write(b"".join(found))
        os.replace(path + ".new", path)
    with open(path, "rb") as file:
        raw = file.read()
    return {raw[i:i + 8] for i in range(0, len(raw), 8)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", required=True)
    parser.add_argument("--vocabulary", default=os.path.join(os.path.dirname(__file__), "vocabulary.model"))
    parser.add_argument("--init", help="checkpoint or GGUF file to start from where the directory has none")
    parser.add_argument("--stages", default="128,256,512,1024,2048,4096")
    parser.add_argument("--tokens", default="1e6,1e6,2e6,2e6,4e6,4e6",
                        help="most tokens of each stage")
    parser.add_argument("--solved", type=float, default=0.97, help="token accuracy that ends a stage")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    parser.add_argument("--rate", type=float, default=0.003)
    parser.add_argument("--row-rate", type=float, help="rate of the embedding's rows; 0.3 of the rate if not given")
    parser.add_argument("--reach", type=int, default=4096, help="positions that short samples are spread over")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--autocast", action="store_true", help="bfloat16 products")
    parser.add_argument("--fall", type=float, default=0.3,
                        help="share of all tokens over which the rate falls at the end; 0: never")
    parser.add_argument("--save-every", type=float, default=180.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mix", type=mix_of, metavar="TASK=SHARE,...", help="other shares of the tasks")
    parser.add_argument("--minutes", type=float, help="save and end after this long; 3 is the exit status then")
    parser.add_argument("--workers", type=int, default=0, help="processes that make the batches; 0: this one does")
    parser.add_argument("--split", action="store_true",
                        help="write the checkpoint as files of at most 16 MiB (DIRECTORY/latest.pt.00 and on)")
    for name in SIZES:
        parser.add_argument("--" + name, type=int)
    arguments = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    os.makedirs(arguments.directory, exist_ok=True)
    device = arguments.device
    encoder = data.Encoder(sentencepiece.SentencePieceProcessor(model_file=arguments.vocabulary))
    latest = os.path.join(arguments.directory, "latest.pt")

    start = latest if checkpoint.exists(latest) else arguments.init
    loaded = None
    if start and start.endswith(".gguf"):
        read = export.read(start)
        loaded = {"shape": vars(read.shape), "model": read.state_dict()}
    elif start:
        loaded = checkpoint.load(start)
    if loaded:
        grow_vocabulary(loaded["model"], encoder.processor)
        loaded["shape"]["vocabulary"] = len(loaded["model"]["embedding.weight"])
    sizes = {n: getattr(arguments, n) for n in SIZES if getattr(arguments, n)}
    shape = models.Shape(**loaded["shape"]) if loaded else models.Shape(
        vocabulary=encoder.processor.vocab_size(), **sizes)
    model = models.Model(shape)
    state = {"stage": 0, "stage_tokens": 0, "tokens": 0, "step": 0, "seconds": 0.0}
    if loaded:
        model.load_state_dict(loaded["model"])
    else:
        models.initialise(model, arguments.seed)
    model.to(device)
    opts = optimizers(model, arguments.rate, arguments.row_rate)
    if loaded and start == latest:
        for optimizer, saved in zip(opts, loaded["optimizers"]):
            for group, saved_group in zip(optimizer.param_groups, saved["param_groups"]):
                saved_group["lr"] = saved_group["full"] = group["full"]
            optimizer.load_state_dict(saved)
        state = loaded["state"]

    stages = [int(s) for s in arguments.stages.split(",")]
    forbidden = held_out(arguments.directory, stages, encoder)
    stopped = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
    budget = [float(t) for t in arguments.tokens.split(",")]
    if len(budget) != len(stages):
        parser.error(f"{len(stages)} stages but {len(budget)} numbers of tokens")
    curve = open(os.path.join(arguments.directory, "curve.csv"), "a", newline="")
    writer = csv.writer(curve)
    def save(path):
        checkpoint.save(path, state_of(model, opts, state), arguments.split)

    began = last_save = time.time()
    spent = state["seconds"]
    while state["stage"] < len(stages):
        length = stages[state["stage"]]
        count = max(1, arguments.batch_tokens // length)

        def make(worker, length=length, count=count, step=state["step"]):
            mix = arguments.mix or (SHORT_MIX if length < 512 else LONG_MIX)
            return Batches(encoder, length, count, mix, arguments.reach,
                           f"{arguments.seed}/{step}/{worker}" if arguments.workers else f"{arguments.seed}/{step}",
                           lambda rng: rng.uniform(0.3, 0.6) if length < 512 else rng.uniform(0.4, 0.8), forbidden)

        batches = Workers(arguments.workers, make) if arguments.workers else make(0)
        mean_loss, mean_right = None, None
        while state["stage_tokens"] < budget[state["stage"]]:
            now = time.time()
            state["seconds"] = spent + now - began
            left = (sum(budget[state["stage"]:]) - state["stage_tokens"]) / sum(budget)
            factor = min(1.0, (state["step"] + 1) / 50) * (min(1.0, left / arguments.fall) if arguments.fall else 1.0)
            for optimizer in opts:
                for group in optimizer.param_groups:
                    group["lr"] = group["full"] * factor
                optimizer.zero_grad(set_to_none=True)
            batch = batches.next()
            loss, logits, targets = loss_of(model, batch, device, arguments.autocast)
            loss.backward()
            opts[1].rows = torch.unique(torch.cat((batch[0].flatten(), batch[2].flatten()))).to(device)
            for optimizer in opts:
                optimizer.step()
            right = (logits.argmax(-1) == targets).float().mean().item()
            state["step"] += 1
            state["tokens"] += length * count
            state["stage_tokens"] += length * count
            keep = 0.98
            mean_loss = loss.item() if mean_loss is None else keep * mean_loss + (1 - keep) * loss.item()
            mean_right = right if mean_right is None else keep * mean_right + (1 - keep) * right
            if state["step"] % 20 == 0:
                print(f"length {length} step {state['step']} tokens {state['tokens'] / 1e6:.2f}M loss {mean_loss:.3f} "
                      f"right {mean_right:.3f} {state['seconds'] / 60:.1f}min "
                      f"{length * count / (time.time() - now):.0f}tok/s", flush=True)
                writer.writerow([state["step"], state["tokens"], round(state["seconds"]), length, round(mean_loss, 4),
                                 round(mean_right, 4)])
                curve.flush()
            if now - last_save > arguments.save_every:
                save(latest)
                last_save = now
            if stopped or (arguments.minutes and now - began > 60 * arguments.minutes):
                save(latest)
                if arguments.workers:
                    batches.close()
                return 0 if stopped else 3
            if mean_right > arguments.solved and state["stage_tokens"] > 50 * arguments.batch_tokens \
                    and state["stage"] + 1 < len(stages):
                break
        state["stage"] += 1
        state["stage_tokens"] = 0
        if arguments.workers:
            batches.close()
        save(latest)
        if not arguments.split:
            save(os.path.join(arguments.directory, f"solved-{length}.pt"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
