#!/usr/bin/env python3
"""Renders the templates of differential.json with Jinja2 and compares the expected texts.

Settings, filters and globals are those of Hugging Face's transformers. The C++ test renders the
same templates with Ballast, so that both agree wherever python3-jinja2 is installed.

  differential.py            exit code 1 if a text differs, 77 without python3-jinja2
  differential.py --update   writes what Jinja2 renders as the expected texts
"""

import json
import pathlib
import sys

try:
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("python3-jinja2 is not installed")
    sys.exit(77)

CASES = pathlib.Path(__file__).with_suffix(".json")


class Generation(Extension):
    """{% generation %}, which marks the model's own text for training."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_text"), [], [], body).set_lineno(line)

    def _text(self, caller):
        return caller()


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                      sort_keys=sort_keys)


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda format: format
    return env


def render(template, context):
    """The text, or None if Jinja2 refuses the template."""
    try:
        return environment().from_string(template).render(**context)
    except Exception:  # any error of a template's Python is a refusal
        return None


def main():
    data = json.loads(CASES.read_text(encoding="utf-8"))
    differing = 0
    for case in data["cases"]:
        text = render(case["template"], data["contexts"][case["context"]])
        if text != case["expected"]:
            differing += 1
            print(f"{case['template']!r}\n  expected {case['expected']!r}\n  Jinja2   {text!r}")
        case["expected"] = text
    if "--update" in sys.argv[1:]:
        CASES.write_text(json.dumps(data, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return 0
    print(f"{len(data['cases'])} templates, {differing} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
