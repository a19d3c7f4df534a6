#!/usr/bin/env python3
"""Writes the templates of a file of cases (tests/text/jinja) as seeds: FILE FOLDER."""
import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
for number, case in enumerate(json.load(open(sys.argv[1], encoding="utf-8"))["cases"]):
    (folder / f"case-{number}").write_text(case["template"], encoding="utf-8")
