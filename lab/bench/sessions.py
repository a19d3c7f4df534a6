#!/usr/bin/env python3
"""What sessions of `ballast serve` take, and what it costs that they rest packed.

    sessions.py MODEL [memory] [return] [trace] [--json OUT]

memory: --sessions sessions of --tokens tokens, of which --common begin all of them: bytes of one exact cache each
beside those held while all are in use, and once all rest. return: the processor's time until the first token of a session that comes back, beside
reading its text anew. trace: 40 questions on an agent's conversation (agent_trace.py) that is packed after every turn,
beside one that never is. Without names all three. The model needs a basis (`ballast calibrate`). Parts that OUT has are
not measured again, and a table of all of them is printed.
"""
import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import time
import urllib.error
import urllib.request

import agent_trace

LETTERS = 4.7  # of a token of agent_trace's filler


class Server:
    def __init__(self, options):
        self.url = f"http://127.0.0.1:{options.port}"
        words = [options.program, "serve", "-m", options.model, "--port", str(options.port), "--memory", options.memory]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                self.call("GET", "/health")
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    sys.exit(f"{' '.join(words)}: it ended with {self.process.returncode}")
                time.sleep(0.1)
        sys.exit("the server does not answer")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}, method=method)
        with urllib.request.urlopen(request) as answer:
            text = answer.read().decode()
        return text if path == "/metrics" else json.loads(text)

    def metric(self, name):
        return next(float(line.split()[1]) for line in self.call("GET", "/metrics").splitlines()
                    if line.startswith(f"ballast_{name} "))

    def seconds(self):
        """Of the processor, since it began."""
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def chat(self, messages, **more):
        body = {"messages": messages, "temperature": 0, "max_tokens": 1, **more}
        return self.call("POST", "/v1/chat/completions", body)


def text(seed, tokens):
    return agent_trace.filler(random.Random(seed), tokens * LETTERS)


def memory(options):
    with Server(options) as server:
        system, tokens, made = text(0, options.common), 0, []
        for i in range(options.sessions):
            session = server.call("POST", "/v1/sessions", {})["id"]
            made.append(session)
            messages = [{"role": "system", "content": system},
                        {"role": "user", "content": text(i + 1, options.tokens - options.common)}]
            usage = server.chat(messages, session=session)["usage"]
            tokens += usage["prompt_tokens"]
            exact = usage["cache_bytes"] / (usage["prompt_tokens"] + usage["completion_tokens"])
            live = server.call("GET", f"/v1/sessions/{session}")
            print(f"    {i + 1}: {usage['prompt_tokens']} tokens, {usage['cached_tokens']} cached, {live['bytes']} bytes,"
                  f" {live['shared_bytes']} shared", flush=True)
        used = server.metric("prefix_bytes")
        for session in made:
            server.call("POST", f"/v1/sessions/{session}/release", {})
        rests = server.metric("prefix_bytes")
    return {"sessions": options.sessions, "tokens": tokens, "exact": tokens * exact, "in_use": used, "resting": rests,
            "ratio_in_use": tokens * exact / used, "ratio": tokens * exact / rests}


def comes_back(options):
    with Server(options) as server:
        session = server.call("POST", "/v1/sessions", {})["id"]
        messages = [{"role": "user", "content": text(1, options.tokens)}]

        def first(messages, **more):
            began = server.seconds()
            usage = server.chat(messages, **more)["usage"]
            return server.seconds() - began, usage

        first([{"role": "user", "content": "Hello"}])
        anew, usage = first(messages, session=session)
        server.call("POST", f"/v1/sessions/{session}/release", {})
        where = server.call("GET", f"/v1/sessions/{session}")["where"]
        messages += [{"role": "assistant", "content": "Yes."}, {"role": "user", "content": "And then?"}]
        back, more = first(messages, session=session)
    return {"tokens": usage["prompt_tokens"], "cached": more["cached_tokens"], "where": where, "anew": anew,
            "back": back, "ratio": anew / back}


def right_of(server, trace, rests, count):
    """Questions rightly answered behind the conversation; `rests`: it is packed after every turn."""
    made = server.call("POST", "/v1/sessions", {})["id"]
    path, more = f"/v1/sessions/{made}", {"tools": trace["tools"]}
    messages, packed = trace["messages"], 0

    def rest():
        nonlocal packed
        if rests:
            server.call("POST", f"{path}/release", {})
            packed += server.call("GET", path)["where"] == "packed"

    for i, message in enumerate(messages):
        if message["role"] == "tool":
            server.chat(messages[:i + 1], session=made, **more)
            rest()
    asked = [trace["questions"][i * len(trace["questions"]) // count] for i in range(count)]
    right = 0
    for one in asked:
        fork = server.call("POST", f"{path}/fork", {})["id"]
        question = {"role": "user", "content": one["q"] + agent_trace.FROM_MEMORY}
        said = server.chat(messages + [question], session=fork, **more | {"max_tokens": 24})
        said = said["choices"][0]["message"]["content"] or ""
        right += any(word in said.lower().replace(",", "") for word in one["accept"])
        server.call("DELETE", f"/v1/sessions/{fork}")
        rest()
    return right, packed


def trace(options):
    made, out = agent_trace.make(options.trace_tokens), {"questions": options.questions}
    for name, rests in ("exact", False), ("packed", True):
        with Server(options) as server:
            out[name], out[f"{name}_rests"] = right_of(server, made, rests, options.questions)
        print(f"    {name}: {out[name]} of {options.questions} right", flush=True)
    return out


PARTS = {"memory": memory, "return": comes_back, "trace": trace}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("parts", nargs="*", default=list(PARTS), help=", ".join(PARTS))
    parser.add_argument("--program", default="build/ballast")
    parser.add_argument("--port", type=int, default=8123)
    parser.add_argument("--memory", default="8G")
    parser.add_argument("--sessions", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--common", type=int, default=4000)
    parser.add_argument("--trace-tokens", type=int, default=24000)
    parser.add_argument("--questions", type=int, default=40)
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    done = {}
    if options.json and options.json.exists():
        done = json.loads(options.json.read_text(encoding="utf-8"))
    for part in options.parts:
        if part not in done:
            print(f"{part}:", flush=True)
            done[part] = PARTS[part](options)
        if options.json:
            options.json.write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")
    for part, one in done.items():
        print(f"{part:8}", "  ".join(f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"
                                     for name, value in one.items()))


if __name__ == "__main__":
    main()
