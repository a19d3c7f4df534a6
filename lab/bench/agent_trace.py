#!/usr/bin/env python3
"""What an agent still knows of its early turns when its cache is compacted.

    agent_trace.py make FILE [--tokens 24000]          a conversation of 50 turns with 10 tools, and 40 questions
    agent_trace.py run FILE URL [--share 8] [--questions 40]
    agent_trace.py first FILE URL                      seconds to the first token behind the whole conversation

`make` is deterministic. FILE is JSON: tools, messages, and questions of q and accept, as ../shared/data/plain has them.
`run` sends the conversation to a `ballast serve` turn by turn, first exactly, then with "compact": "auto" and the given
part of the exact cache's bytes. It asks each question behind the last turn, on a branch of its own. An answer is right
if it contains one of accept, in lower case.
"""
import argparse
import json
import pathlib
import random
import statistics
import time
import urllib.request

TURNS = 50
# What the user says in turns 1 to 20; question; what the answer has.
SAID = [
    ("Our staging server is called heron.", "What is our staging server called?", "heron"),
    ("The project lead is Ilse Brandt.", "Who is the project lead?", "brandt"),
    ("We release on Thursdays.", "On which day of the week do we release?", "thursday"),
    ("Commit messages must be written in Danish.", "In which language must commit messages be written?", "danish"),
    ("The ferry to Lindholm has 14 rows of seats.", "How many rows of seats has the ferry to Lindholm?", "14"),
    ("The customer who pays for this is Norling Freight.", "Which customer pays for this?", "norling"),
    ("Never touch the folder called attic.", "Which folder must you never touch?", "attic"),
    ("The budget for this work is 8,300 euros.", "What is the budget for this work?", "8300"),
    ("The office dog is named Biscuit.", "What is the office dog named?", "biscuit"),
    ("Our code reviews are done by Tomas Veil.", "Who does our code reviews?", "veil"),
    ("The logo has to be turquoise.", "What colour has the logo to be?", "turquoise"),
    ("The demonstration is in Aarhus.", "In which city is the demonstration?", "aarhus"),
    ("Backups are kept for 45 days.", "For how many days are backups kept?", "45"),
    ("Tickets for children cost 6 euros.", "What do tickets for children cost?", "6"),
    ("The old system was written in Pascal.", "In which language was the old system written?", "pascal"),
    ("Our test account is called marlin.", "What is our test account called?", "marlin"),
    ("The harbour office opens at 7:40.", "When does the harbour office open?", "7:40"),
    ("The captain on Sundays is Runa Falk.", "Who is the captain on Sundays?", "falk"),
    ("The night ferry carries at most 26 cars.", "How many cars does the night ferry carry at most?", "26"),
    ("The password of the printer is on a yellow note.", "On what is the password of the printer?", "yellow"),
]
# What a tool returns in turns 1 to 20: its call; what it finds; question; what the answer has.
FOUND = [
    ("read_file", "deploy.toml", "region = \"oslo-2\"", "Which region does deploy.toml name?", "oslo-2"),
    ("read_file", "cache.toml", "max_age_minutes = 35", "Which max_age_minutes does cache.toml have?", "35"),
    ("run_tests", "booking", "FAILED: test_refund_twice", "Which test of booking failed?", "test_refund_twice"),
    ("search_code", "TODO", "fares.py:112: TODO round up", "In which file is the TODO?", "fares.py"),
    ("git_log", "main", "4be1 Speed up the timetable (Agda Moe)", "Who wrote the commit that speeds up the timetable?",
     "moe"),
    ("run_query", "select count(*) from bookings", "count: 7312", "How many bookings are there?", "7312"),
    ("http_get", "/status", "uptime: 19 days", "What uptime did /status have?", "19"),
    ("list_files", "reports", "winter_report.pdf", "Which report is in the folder reports?", "winter_report"),
    ("read_file", "mail.toml", "relay = \"postbox\"", "Which relay does mail.toml name?", "postbox"),
    ("run_query", "select max(price) from fares", "max: 184", "What is the highest price of the fares?", "184"),
    ("search_code", "deprecated", "seatmap.py: deprecated", "Which file is deprecated?", "seatmap"),
    ("read_file", "queue.toml", "workers = 12", "How many workers does queue.toml have?", "12"),
    ("git_log", "hotfix", "91ac Undo the discount (Per Osk)", "Who undid the discount?", "osk"),
    ("http_get", "/version", "version: 3.8.1", "Which version did /version have?", "3.8.1"),
    ("list_files", "assets", "walrus.svg", "Which picture is in the folder assets?", "walrus"),
    ("read_file", "limits.toml", "seats_per_booking = 9", "Which seats_per_booking does limits.toml have?", "9"),
    ("run_query", "select name from ships where id = 5", "name: Skarven", "What is the name of ship 5?", "skarven"),
    ("run_tests", "timetable", "FAILED: test_leap_day", "Which test of timetable failed?", "test_leap_day"),
    ("read_file", "log.toml", "level = \"trace\"", "Which level does log.toml have?", "trace"),
    ("http_get", "/weather", "wind: 31 knots", "How many knots of wind did /weather have?", "31"),
]
# Name, what it does, its argument, what that is.
TOOLS = [
    ("read_file", "Read a file", "path", "the file"),
    ("write_file", "Write a file", "path", "the file"),
    ("list_files", "List a folder", "path", "the folder"),
    ("run_tests", "Run tests", "suite", "which"),
    ("search_code", "Search the code", "text", "what"),
    ("git_log", "Show commits", "branch", "of which branch"),
    ("run_query", "Ask the database", "sql", "the query"),
    ("http_get", "Get a page", "url", "its path"),
    ("send_mail", "Send a mail", "text", "what it says"),
    ("create_ticket", "Create a ticket", "title", "its title"),
]
CHORES = [
    ("write_file", "notes/{}.md", "Write down what we did in part {}."),
    ("send_mail", "Part {} is done.", "Tell the others that part {} is done."),
    ("create_ticket", "Look at part {} again", "Make a ticket for part {}."),
    ("search_code", "part_{}", "Where is part {} used?"),
    ("list_files", "part_{}", "What is in part {}?"),
    ("run_tests", "part_{}", "Do the tests of part {} pass?"),
]
SUBJECTS = ["The parser", "The form", "A helper", "The page", "The loader", "This module", "The old table", "A script"]
VERBS = ["checks", "opens", "sorts", "prints", "keeps", "drops", "sends", "counts"]
OBJECTS = ["every row", "the next field", "an empty list", "the header", "all names", "the last item", "each key"]
ENDS = ["before it returns", "when asked", "without a copy", "in one pass", "after the check", "as before", "twice"]
SYSTEM = "You help with the code of a ferry company. Call tools where you must. Answer questions in a few words."
FROM_MEMORY = " Answer from what was said, without a tool."
# Of Qwen 2.5: letters of a token of filler, tokens of system text and tools, of a turn without filler.
LETTERS, TOOL_TOKENS, TURN_TOKENS = 4.7, 730, 83


def filler(random_numbers, letters):
    out = []
    while sum(map(len, out)) < letters:
        out.append(" ".join(map(random_numbers.choice, (SUBJECTS, VERBS, OBJECTS, ENDS))) + ".\n")
    return "".join(out)


def make(tokens):
    numbers = random.Random(61)
    messages = [{"role": "system", "content": SYSTEM}]
    tools = [{"type": "function", "function": {"name": name, "description": what, "parameters": {
        "type": "object", "properties": {key: {"type": "string", "description": of}}, "required": [key]}}}
        for name, what, key, of in TOOLS]
    key_of = {name: key for name, _, key, _ in TOOLS}
    letters = max(0.0, (tokens - TOOL_TOKENS) / TURNS - TURN_TOKENS) * LETTERS
    questions = []
    for turn in range(TURNS):
        if turn < len(SAID):
            said, *asked = SAID[turn]
            tool, argument, found, *looked_up = FOUND[turn]
            questions += [{"q": q, "accept": [right], "turn": turn + 1} for q, right in (asked, looked_up)]
            user, answer = f"{said} Now {tool} {argument}.", "Done."
        else:
            tool, argument, user = CHORES[turn % len(CHORES)]
            argument, user, found, answer = argument.format(turn), user.format(turn), "ok", "Done, nothing unusual."
        text = filler(numbers, letters)
        half = text.find("\n", len(text) // 2) + 1
        call = {"type": "function", "id": f"call{turn}",
                "function": {"name": tool, "arguments": json.dumps({key_of[tool]: argument})}}
        messages += [{"role": "user", "content": user},
                     {"role": "assistant", "content": None, "tool_calls": [call]},
                     {"role": "tool", "tool_call_id": call["id"], "content": f"{text[:half]}{found}\n{text[half:]}"},
                     {"role": "assistant", "content": answer}]
    return {"tools": tools, "messages": messages, "questions": questions}


def ask(url, trace, messages, cache, tokens):
    """What the model says, its usage, and the seconds until it is there."""
    body = {"messages": messages, "tools": trace["tools"], "temperature": 0, "max_tokens": tokens}
    body |= {"cache": cache} if cache else {}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    began = time.monotonic()
    with urllib.request.urlopen(request) as answer:
        out = json.load(answer)
    return out["choices"][0]["message"]["content"] or "", out["usage"], time.monotonic() - began


def measure(url, trace, cache, questions):
    turns, compactions = [], []
    messages = trace["messages"]
    for i, message in enumerate(messages):
        if message["role"] != "tool":
            continue
        _, usage, seconds = ask(url, trace, messages[:i + 1], cache, 1)
        turns.append((seconds, usage["prompt_tokens"] - usage["cached_tokens"], bool(usage.get("compactions"))))
        compactions += usage.get("compactions", [])
    right = []
    for question in questions:
        said, last, _ = ask(url, trace, messages + [{"role": "user", "content": question["q"] + FROM_MEMORY}], cache, 24)
        right.append(any(one in said.lower().replace(",", "") for one in question["accept"]))
        print("   ", "right" if right[-1] else "WRONG", f"turn {question['turn']}:", question["q"], repr(said), flush=True)
    return {"right": sum(right), "turns": turns, "compactions": compactions, "tokens": usage["prompt_tokens"],
            "bytes": usage["cache_bytes"]}


def run(trace, url, share, count):
    questions = trace["questions"]
    questions = [questions[i * len(questions) // count] for i in range(count)]  # 20: what the user said
    print("exact:", flush=True)
    exact = measure(url, trace, None, questions)
    size = exact["bytes"] // share
    print(f"compacted to {size} bytes:", flush=True)
    small = measure(url, trace, {"bytes": size, "compact": "auto"}, questions)
    print(f"{exact['tokens']} tokens, {len(trace['tools'])} tools, {TURNS} turns")
    for name, one in ("exact", exact), (f"1/{share}", small):
        print(f"{name}: {one['right']} of {count} right, cache of {one['bytes'] / 1e6:.1f} MB at the end")
        for title, which in ("turns", False), ("turns that compact", True):
            chosen = [(s, n) for s, n, compacts in one["turns"][1:] if compacts == which]
            if chosen:
                print(f"  {title}: {len(chosen)}, first token after {statistics.median(s for s, _ in chosen):.2f} s "
                      f"(median), {sum(s for s, _ in chosen) / sum(n for _, n in chosen) * 1e3:.2f} ms a token read")
    spent = sum(one["seconds"] for one in small["compactions"])
    reading = sum(seconds for seconds, _, _ in exact["turns"])
    print(f"{len(small['compactions'])} compactions: {spent:.2f} s; reading: {reading:.2f} s; share {spent / reading:.3f}")


def first(trace, url):
    question = {"role": "user", "content": trace["questions"][0]["q"] + FROM_MEMORY}
    _, usage, seconds = ask(url, trace, trace["messages"] + [question], None, 1)
    print(f"{usage['prompt_tokens']} tokens, {usage['cached_tokens']} of them cached: first after {seconds:.2f} s")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    one = commands.add_parser("make")
    one.add_argument("file", type=pathlib.Path)
    one.add_argument("--tokens", type=int, default=24000)
    for name in ("first", "run"):
        one = commands.add_parser(name)
        one.add_argument("file", type=pathlib.Path)
        one.add_argument("url")
    one.add_argument("--share", type=int, default=8)
    one.add_argument("--questions", type=int, default=40)
    options = parser.parse_args()
    if options.command == "make":
        options.file.write_text(json.dumps(make(options.tokens), indent=1) + "\n", encoding="utf-8")
        return
    trace = json.loads(options.file.read_text(encoding="utf-8"))
    if options.command == "run":
        run(trace, options.url, options.share, options.questions)
    else:
        first(trace, options.url)


if __name__ == "__main__":
    main()
