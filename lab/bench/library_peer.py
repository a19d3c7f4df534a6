"""Ordinary retrieval beside a library: the three best passages as plain text in the prompt of the same model.

Passages are of about 200 words, of the texts that the library holds; BM25 over their words' stems finds them.
llama.cpp's server answers, with the model's own chat template, at temperature 0 and in at most 48 tokens.
"""
import collections
import http.client
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import re
import socket
import subprocess
import time

HERE = pathlib.Path(__file__).resolve().parent
WORDS, BEST = 200, 3
COMMON = set("a an and are as at be by did do does for from had has have how in is it its many much of on or than that "
             "the their this to was were what when where which who whom whose why will with".split())
SAID = "Not in the library"
ASK = f"""{{passages}}

Answer the question in a short sentence, by the passages above alone. If they do not say it, answer "{SAID}".

Question: {{question}}"""


def passages(library):
    """Of every document of the library its name and sentences in runs of about WORDS."""
    out = []
    for path in sorted(library.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        run, words = [], 0
        for sentence in re.split(r"(?<=[.!?])\s+|\n+", document["text"]):
            run.append(sentence.strip())
            words += len(sentence.split())
            if words >= WORDS:
                out.append((document["name"], " ".join(filter(None, run))))
                run, words = [], 0
        if words:
            out.append((document["name"], " ".join(filter(None, run))))
    return out


def stems(text):
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in COMMON]
    return [re.sub(r"(ies|ing|ed|es|s|e)$", "", word) if len(word) > 4 else word for word in words]


class Index:
    """BM25 with the usual k1 of 1.2 and b of 0.75."""

    def __init__(self, found):
        self.passages = found
        self.counts = [collections.Counter(stems(text)) for _, text in found]
        self.lengths = [sum(counts.values()) for counts in self.counts]
        self.mean = sum(self.lengths) / len(found)
        self.holders = collections.Counter(stem for counts in self.counts for stem in counts)

    def best(self, question):
        """(score, name, text), the best first."""
        wanted = set(stems(question))
        rarity = {stem: math.log1p((len(self.counts) - self.holders[stem] + 0.5) / (self.holders[stem] + 0.5))
                  for stem in wanted}

        def score(i):
            counts, long = self.counts[i], 0.25 + 0.75 * self.lengths[i] / self.mean
            return sum(rarity[stem] * 2.2 * counts[stem] / (counts[stem] + 1.2 * long) for stem in wanted)

        order = sorted(((score(i), i) for i in range(len(self.counts))), key=lambda one: (-one[0], one[1]))
        return [(value, *self.passages[i]) for value, i in order[:BEST]]


def programs():
    """The folder of llama.cpp's programs, built by lab/bench/peers/llama-bench."""
    loader = importlib.machinery.SourceFileLoader("llama_bench", str(HERE / "peers" / "llama-bench"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("llama_bench", loader))
    loader.exec_module(module)
    return module.build(module.home(), ["llama-server"])


class Server:
    """A server that speaks OpenAI's API, as long as the block lasts; `more`: members of each request."""

    def __init__(self, command, log, **more):
        self.command, self.log, self.more = command, log, more

    def __enter__(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        with self.log.open("w", encoding="utf-8") as log:
            self.process = subprocess.Popen([*self.command, "--port", str(self.port)], stdout=log, stderr=log)
        while not self.is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"{self.command[0]} ended: see {self.log}")
            time.sleep(0.5)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def request(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=1800)
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse()

    def is_ready(self):
        try:
            return self.request("GET", "/health").status == 200
        except ConnectionError:
            return False

    def answer(self, prompt):
        """The answer, and the seconds to its first token."""
        begin = time.monotonic()
        reply = self.request("POST", "/v1/chat/completions",
                             {"messages": [{"role": "user", "content": prompt}], "temperature": 0, "max_tokens": 48,
                              "stream": True, **self.more})
        if reply.status != 200:
            raise SystemExit(f"{self.command[0]}: {reply.read().decode()}")
        text, first = "", None
        for line in reply:
            data = line.decode().removeprefix("data: ").strip()
            if not data or data == "[DONE]":
                continue
            said = [choice["delta"].get("content") or "" for choice in json.loads(data)["choices"]]
            text += "".join(said)
            if text and first is None:
                first = time.monotonic() - begin
        return text.strip(), first


def llama_server(model, log):
    return Server([programs() / "llama-server", "-m", model, "-t", str(os.cpu_count()), "-c", "8192", "-np", "1",
                   "-fa", "on", "--jinja", "--host", "127.0.0.1", "--no-webui"], log, cache_prompt=False)


def first_tokens(questions, library, model, program):
    """Seconds to the first token of each answer that `ballast serve` gives from the library."""
    log = library.with_suffix(".serve.log")
    with Server([program, "serve", "-m", model, "--library", library], log, context="library") as server:
        return [server.answer(question)[1] for question in questions]


def ask(questions, library, model, found):
    """Asks `questions`, and appends to the file `found` what each gave."""
    if not questions:
        return
    index = Index(passages(library))
    with llama_server(model, found.with_suffix(".log")) as server:
        for question in questions:
            begin = time.monotonic()
            best = index.best(question)
            seeking = time.monotonic() - begin
            shown = "\n\n".join(f"{name}:\n{text}" for _, name, text in best)
            answer, first = server.answer(ASK.format(passages=shown, question=question))
            documents = [{"name": name, "score": value, "passage": text} for value, name, text in best]
            one = {"question": question, "answer": answer, "supported": SAID.lower() not in answer.lower(),
                   "documents": documents, "seconds_to_first": seeking + (first or 0)}
            with found.open("a", encoding="utf-8") as log:
                log.write(json.dumps(one, ensure_ascii=False) + "\n")
