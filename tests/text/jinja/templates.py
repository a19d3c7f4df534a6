#!/usr/bin/env python3
"""Renders chat templates with Jinja2, for the test of ChatTemplate that compares its texts.

  templates.py FOLDER...   prints a JSON array of {name, conversation, expected}; null: refused.
                           Exit code 77 without python3-jinja2.
"""

import datetime
import json
import pathlib
import sys

import differential

TOOLS = [{"type": "function", "function": {
    "name": "weather", "description": "The weather of a town.",
    "parameters": {"type": "object", "required": ["town"], "properties": {
        "town": {"type": "string", "description": "Its name"},
        "days": {"type": "array", "items": {"type": "integer"}}}}}}]
CALL = {"id": "call00001", "type": "function",
        "function": {"name": "weather", "arguments": {"town": "Bern", "days": [1, 2]}}}
USER = {"role": "user", "content": "Hi "}
CONVERSATIONS = [
    {"messages": [USER]},
    {"messages": [{"role": "system", "content": "Be brief."}, USER,
                  {"role": "assistant", "content": " Hello "}, {"role": "user", "content": "Bye"}]},
    {"messages": [USER, {"role": "assistant", "content": "4", "reasoning_content": "two and two"},
                  {"role": "user", "content": "3+3?"}], "variables": {"enable_thinking": False}},
    {"messages": [{"role": "system", "content": "Be brief."}, USER], "tools": TOOLS},
    {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [CALL]},
                  {"role": "tool", "content": "yes", "name": "weather", "tool_call_id": "call00001"}],
     "tools": TOOLS},
]


def render(template, conversation):
    env = differential.environment()
    env.globals["strftime_now"] = lambda format: datetime.datetime.now().strftime(format)
    context = {"messages": conversation["messages"], "add_generation_prompt": True,
               "bos_token": "<s>", "eos_token": "</s>", "tools": conversation.get("tools"),
               **conversation.get("variables", {})}  # as transformers calls it
    try:
        return env.from_string(template).render(**context)
    except Exception:  # any error of a template's Python is a refusal
        return None


def main():
    out = []
    for folder in sys.argv[1:]:
        for path in sorted(pathlib.Path(folder).glob("*.jinja")):
            text = path.read_text(encoding="utf-8")
            for conversation in CONVERSATIONS:
                out.append({"name": str(path), "conversation": conversation,
                            "expected": render(text, conversation)})
    json.dump(out, sys.stdout)


if __name__ == "__main__":
    main()
