"""Man pages and completions of the program, from what its --help prints.

    python3 manual.py OUT PROGRAM  writes OUT/man1/*.1, OUT/ballast.bash, OUT/_ballast and OUT/ballast.fish;
                                   PROGRAM: a path, behind an emulator's if it needs one
"""
import os
import re
import subprocess
import sys


def help_of(program, words):
    return subprocess.run([*program, *words, "--help"], check=True, capture_output=True,
                          text=True).stdout


def is_there(program, words):
    """Whether the command can be started: those of ballast-eval may not have been built."""
    said = subprocess.run([*program, *words, "--help"], check=False, capture_output=True, text=True)
    return said.returncode == 0 or "ballast-eval" not in said.stderr


class Command:
    """A command, what its help says, and the commands below it."""

    def __init__(self, program, words=()):
        self.words = list(words)
        self.text = help_of(program, self.words)
        lines = self.text.splitlines()
        self.title = lines[0].strip() if lines else ""
        self.usage = next((l[len("Usage: "):] for l in lines if l.startswith("Usage: ")), "")
        self.sections = []  # (name, [(what, text)])
        self.example = []
        self._parse(lines)
        names = [what for name, items in self.sections if name == "Subcommands"
                 for what, _ in items]
        self.commands = [Command(program, self.words + [name]) for name in names
                         if is_there(program, self.words + [name])]

    def _parse(self, lines):
        items = None
        in_example = False
        for line in lines[1:]:
            if line.startswith("Usage: "):
                continue
            if re.match(r"^Examples?:", line):
                in_example, items = True, None
            elif in_example:
                self.example.append(line.strip())
            elif line and not line[0].isspace() and line.rstrip().endswith(":"):
                items = []
                self.sections.append((line.rstrip()[:-1], items))
            elif items is not None and line.strip():
                match = re.match(r"^  (\S.*?)(?:\s{2,}(.*))?$", line)
                if match and len(line) - len(line.lstrip()) == 2:
                    items.append([match.group(1), match.group(2) or ""])
                elif items:
                    items[-1][1] = (items[-1][1] + " " + line.strip()).strip()

    def flags(self):
        """(flag, takes a value, text) of every option."""
        out = []
        for name, items in self.sections:
            if name in ("Subcommands", "Positionals"):
                continue
            for what, text in items:
                names = re.findall(r"(?<![\w-])--?[A-Za-z][\w-]*", what.split(" ", 1)[0])
                takes = " " in what
                out += [(flag, takes, text) for flag in names]
        return out

    def page_name(self):
        return "-".join(["ballast", *self.words])

    def walk(self):
        yield self
        for command in self.commands:
            yield from command.walk()


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def page(command, version):
    name = command.page_name()
    out = [f'.TH {name.upper()} 1 "" "Ballast {version}" "User Commands"', ".ad l", ".SH NAME",
           f"{roff(name)} \\- {roff(command.title.rstrip('.'))}", ".SH SYNOPSIS",
           f".B {roff(command.usage or ' '.join(['ballast', *command.words]))}"]
    for section, items in command.sections:
        heading = {"Subcommands": "COMMANDS", "Positionals": "ARGUMENTS"}.get(section, section.upper())
        out.append(f'.SH "{roff(heading)}"')
        for what, text in items:
            out += [".TP", f".B {roff(what)}", roff(text)]
    if command.example:
        out += [".SH EXAMPLE", ".nf", *(roff(line) for line in command.example if line), ".fi"]
    others = [c.page_name() for c in command.commands]
    if command.words:
        others.insert(0, "-".join(["ballast", *command.words[:-1]]))
    out += [".SH SEE ALSO", ",\n".join(f".BR {roff(o)} (1)" for o in others)]
    return "\n".join(out) + "\n"


def bash(root):
    lines = ["# bash completion of ballast", "_ballast() {", "  local word=${COMP_WORDS[COMP_CWORD]}",
             '  local key="" i', "  for ((i = 1; i < COMP_CWORD; ++i)); do",
             '    case "$key ${COMP_WORDS[i]}" in']
    paths = [" ".join(c.words) for c in root.walk() if c.words]
    for path in paths:
        lines.append(f'      " {path}" | "{path}") key="{path}" ;;')
    lines += ["    esac", "  done", "  local words=", '  case "$key" in']
    for command in root.walk():
        words = [c.words[-1] for c in command.commands] + [f for f, _, _ in command.flags()]
        lines.append(f'    "{" ".join(command.words)}") words="{" ".join(words)}" ;;')
    lines += ["  esac", '  COMPREPLY=($(compgen -W "$words" -- "$word"))',
              '  [[ $word != -* ]] && COMPREPLY+=($(compgen -f -- "$word"))', "}",
              "complete -o filenames -F _ballast ballast"]
    return "\n".join(lines) + "\n"


def zsh(root):
    def quoted(text):
        return "'" + re.sub(r"([\[\]:])", r"\\\1", text).replace("'", "'\\''") + "'"

    lines = ["#compdef ballast", "# zsh completion of ballast", "_ballast() {",
             "  local key='' w", "  for w in ${words[2,CURRENT-1]}; do", '    case "$key $w" in']
    for command in root.walk():
        if command.words:
            path = " ".join(command.words)
            lines.append(f'      " {path}" | "{path}") key="{path}" ;;')
    lines += ["    esac", "  done", "  local -a found", '  case "$key" in']
    for command in root.walk():
        words = [quoted(c.words[-1]) for c in command.commands]
        words += [quoted(flag) for flag, _, _ in command.flags()]
        lines.append(f'    "{" ".join(command.words)}") found=({" ".join(words)}) ;;')
    lines += ["  esac", "  compadd -a found", "  [[ $PREFIX != -* ]] && _files", "}", '_ballast "$@"']
    return "\n".join(lines) + "\n"


def fish(root):
    def quoted(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    paths = [" ".join(c.words) for c in root.walk() if c.words]
    lines = ["# fish completion of ballast", "function __ballast_at", "  set -l key ''",
             "  for word in (commandline -opc)[2..-1]", "    switch (string trim \"$key $word\")",
             f"      case {' '.join(quoted(path) for path in paths)}",
             "        set key (string trim \"$key $word\")", "    end", "  end",
             "  test \"$key\" = \"$argv[1]\"", "end"]
    for command in root.walk():
        here = f"complete -c ballast -n {quoted('__ballast_at ' + quoted(' '.join(command.words)))}"
        lines += [f"{here} -a {c.words[-1]} -d {quoted(c.title)}" for c in command.commands]
        for flag, takes, text in command.flags():
            name = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            lines.append(f"{here} {name}{' -r' if takes else ''} -d {quoted(text)}")
    return "\n".join(lines) + "\n"


def main():
    out, *program = sys.argv[1:]
    version = subprocess.run([*program, "--version"], check=True, capture_output=True,
                             text=True).stdout.split()[-1]
    root = Command(program)
    os.makedirs(os.path.join(out, "man1"), exist_ok=True)
    for command in root.walk():
        with open(os.path.join(out, "man1", command.page_name() + ".1"), "w") as file:
            file.write(page(command, version))
    for name, text in (("ballast.bash", bash(root)), ("_ballast", zsh(root)),
                       ("ballast.fish", fish(root))):
        with open(os.path.join(out, name), "w") as file:
            file.write(text)


if __name__ == "__main__":
    main()
