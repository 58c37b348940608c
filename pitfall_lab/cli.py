"""The console script ``pitfall-lab``: one command a module.

Each command is one module with ``add_arguments(parser)`` and ``run(arguments) -> exit code``. Only the
module of the given command is imported, so that ``pitfall-lab --help`` answers at once and needs no torch.
"""

from __future__ import annotations

import argparse
import re
import sys
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, NoReturn

from pitfall_lab import processes

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: dict[str, tuple[str, str]] = {
    "lab": ("pitfall_lab.commands.lab", "open JupyterLab on the start notebook"),
    "check": (
        "pitfall_lab.check.command",
        "run programs and notebooks and say where they bite, with fixes that were tried",
    ),
    "explain": (
        "pitfall_lab.check.explain",
        "print the page of a rule: what it finds, why torch works like this, and what to do",
    ),
    "saves": (
        "pitfall_lab.commands.saves",
        "print what an operation saves for backward, and which later write breaks it",
    ),
    "claims": (
        "pitfall_lab.commands.claims",
        "run the programs that decide the chapters' claims on the installed torch",
    ),
    "book": ("pitfall_lab.commands.book", "write the chapters as HTML pages that need no kernel and no network"),
    "classroom": ("pitfall_lab.classroom.init", "make an assignment for a class from the exercises of chapters"),
    "grade": (
        "pitfall_lab.classroom.grade",
        "grade a class's notebooks, each cell in a process of its own behind a fence",
    ),
    "show": ("pitfall_lab.commands.show", "write a self-contained page of a program or of a saved trace"),
    "doctor": ("pitfall_lab.commands.doctor", "print what is installed and what to do about what is missing"),
}
"""Command name to the module that holds it and the line that `--help` says about it."""


class Refusal(Exception):
    """Input that cannot be used, said in one clear sentence. The command ends with exit code 2."""


def installed_version() -> str:
    """The version of the installed package, or a word that says that there is none."""
    try:
        return version("pitfall-lab")
    except PackageNotFoundError:
        return "(not installed: running from the source tree)"


_MISTAKES: tuple[tuple[str, str], ...] = (
    (r"the following arguments are required: (?P<what>.+)", "{what} is missing"),
    (r"one of the arguments (?P<what>.+) is required", "one of {what} is needed"),
    (r"argument (?P<what>\S+): expected (?:one|at least one) argument", "what belongs to {what} is missing"),
    (
        r"argument (?P<what>.+): invalid choice: (?P<word>.+) \(choose from (?P<those>.+)\)",
        "{word} is no {what}; there are {those}",
    ),
    (r"argument (?P<what>\S+): not allowed with argument (?P<other>\S+)", "{what} and {other} cannot be used together"),
    (r"argument (?P<what>.+?): (?P<rest>.+)", "{what}: {rest}"),
)
"""What argparse says of words that it cannot use, and the same as a sentence that does not speak of arguments."""


class _OneSentence(argparse.ArgumentParser):
    """A parser that says in one sentence what it cannot use, as everything else that cannot be used is said."""

    def error(self, message: str) -> NoReturn:
        """End the command with exit code 2."""
        for pattern, sentence in _MISTAKES:
            if found := re.fullmatch(pattern, message, re.DOTALL):
                parts = found.groupdict()
                message = sentence.format(**{**parts, "those": (parts.get("those") or "").replace("'", "")})
                break
        self.exit(2, f"{self.prog}: {' '.join(message.split())}; `{self.prog} --help` says what there is.\n")


def build_parser(command: str | None = None) -> argparse.ArgumentParser:
    """The argument parser of ``pitfall-lab``; the arguments of the command ``command`` are added to it, those of the
    other commands only when they are needed.
    """
    parser = argparse.ArgumentParser(prog="pitfall-lab", description="See where PyTorch bites.")
    parser.add_argument("--version", action="version", version=f"pitfall-lab {installed_version()}")
    kind = _OneSentence if command in _FOR_TEACHERS else argparse.ArgumentParser
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=kind)
    for name, (module, summary) in COMMANDS.items():
        # Without --help of their own until filled in: `pitfall-lab check --help` always reaches the filled-in one.
        sub = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == command:
            import_module(module).add_arguments(sub)
    return parser


_FOR_TEACHERS = ("classroom", "grade")
_NUMBERS = {
    "--chapters": re.compile(r"\d\d?(-\d\d?)?(,\d\d?(-\d\d?)?)*,?"),
    "--exercises": re.compile(r"\d\d?\.\d{1,3}(,\d\d?\.\d{1,3})*,?"),
}
"""For an option with several numbers, the pattern of the words that belong to it; every other word may be a folder."""


def _together(words: Sequence[str]) -> list[str]:
    """The words of a command line, with the numbers of chapters and exercises as one word: argparse
    would take all others with them.

    >>> _together(["init", "--chapters", "8", "15,", "17-19", "week-3", "--exercises", "4.1", "4.3,12.2"])
    ['init', '--chapters', '8,15,17-19', 'week-3', '--exercises', '4.1,4.3,12.2']
    """
    found: list[str] = []
    of: re.Pattern[str] | None = None
    for word in words:
        if of and of.fullmatch(word) and of.fullmatch(found[-1]):
            found[-1] = f"{found[-1].rstrip(',')},{word.rstrip(',')}"
        else:
            of = _NUMBERS.get(found[-1]) if found else None
            found.append(word)
    return found


def _too_many(word: str) -> str:
    """A sentence on a word that no option takes and that is no folder, since one is named already."""
    word = "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in word[:60])
    if word.startswith("-"):
        return f"there is no option {word} here; --help lists those that there are."
    numbers = "chapters are written as 5,12 or 5-7, exercises as 4.1 4.3 12.2"
    return f"“{word}” is one word too many: {numbers}, and a folder with spaces in its name needs quotation marks."


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 2, with a sentence on stderr, for input that cannot be used, 130 after
    Ctrl-C, 0 if the reader of its output has ended.

    Raises SystemExit for words that :mod:`argparse` does not accept (code 2), and for ``--help`` and ``--version`` (0).
    """
    processes.forget_current_folder()
    if argv is None:
        # What reads a notebook imports jsonschema, which takes seconds to compile a grammar for one format of strings
        # (addresses in any alphabet) that no notebook has. It does without where the package is
        # missing; this process is ours alone.
        sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    words = list(sys.argv[1:] if argv is None else argv)
    command = words[0] if words and words[0] in COMMANDS else None
    passed_on: list[str] = []
    if command == "check" and "--" in words:  # what follows is the checked program's
        words, passed_on = words[: words.index("--")], words[words.index("--") + 1 :]
    if command in _FOR_TEACHERS:
        arguments, unknown = build_parser(command).parse_known_args(_together(words))
        if unknown:
            print(f"pitfall-lab {command}: {_too_many(unknown[0])}", file=sys.stderr)
            return 2
    else:
        arguments = build_parser(command).parse_args(words)
    arguments.passed_on = passed_on
    try:
        return int(import_module(COMMANDS[arguments.command][0]).run(arguments))
    except Refusal as refusal:
        print(f"pitfall-lab {arguments.command}: {refusal}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        # `pitfall-lab check x.py | head`: the reader has seen enough. Closing stderr keeps
        # Python from complaining at exit.
        sys.stderr.close()
        return 0
    except OSError as problem:  # a path that no file can have, a full disk
        if command not in _FOR_TEACHERS:
            raise
        name = f"{problem.filename}: " if problem.filename else ""
        print(f"pitfall-lab {command}: {name}{problem.strerror or problem}.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
