"""``%%check prices.py``: a whole program as a cell, highlighted and editable, judged below as
``pitfall-lab check`` judges a file.

The program runs in a process of its own, not among the notebook's variables. Its text and what was found in it stay in
the notebook as ``program`` and ``findings``, for the cells below that run it, change it and compare.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING, Any, NoReturn

from pitfall_lab.trace import Language, T

if TYPE_CHECKING:
    from pitfall_lab.rules import Finding
    from pitfall_lab.trace import Note

_USAGE = T(
    en="This program was not checked: {reason}. Usage: %%check prices.py [--language en|zh]",
    zh="此程序未被检查:{reason}。用法:%%check prices.py [--language en|zh]",
)
_NOTHING = T(en="{name}: nothing was found.", zh="{name}：没有发现问题。")
_NOTHING_SEEN = T(en="{name}: nothing was found in what was seen.", zh="{name}：在看到的部分中没有发现问题。")
_STEP = T(
    en="To go through the program step by step, run pitfall_lab.explore(program) in a cell of its own.",
    zh="要逐步查看程序，请在单独的单元格中运行 pitfall_lab.explore(program)。",
)


class _CheckUsage(Exception):
    """The words after ``%%check`` are not understood."""


class _CheckParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _CheckUsage(message)


def options(line: str) -> argparse.Namespace:
    """Parse the rest of the line after ``%%check``: ``name``, what the program is called, and ``language``. Raises
    :class:`_CheckUsage` if the line is not understood.

    >>> options("prices.py").name
    'prices.py'
    """
    parser = _CheckParser(prog="%%check", add_help=False)
    parser.add_argument("name")
    parser.add_argument("--language", "-l", choices=("en", "zh"), default="en")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise _CheckUsage(str(error)) from error


class Programs:
    """The programs that are checked in one kernel."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def magic(self, line: str, cell: str) -> None:
        """Check this cell as a program of its own, and print what was found; line numbers count from the line below the
        magic. Its text and the findings become the notebook's ``program`` and ``findings``.

        A line that is not understood, and a program that cannot be checked, are answered with a printed sentence only.
        """
        from pitfall_lab.check import Unchecked, judged

        language: Language = "zh" if "zh" in line.split() else "en"
        try:
            wanted = options(line)
            language = wanted.language
            findings, unseen = judged(cell, wanted.name, every_round=False)
        except _CheckUsage as problem:
            print(_USAGE.say(language).format(reason=problem))
            return
        except Unchecked as problem:
            print(problem.said.say(language))
            return
        self._shell.user_ns.update(program=cell, findings=findings)
        print("\n".join(_said(wanted.name, cell, findings, unseen, language)))


def _said(name: str, cell: str, findings: list[Finding], unseen: tuple[Note, ...], language: Language) -> list[str]:
    from pitfall_lab.check.terminal import Style, finding_text

    found = [finding_text(name, cell, finding, Style(language)) for finding in findings]
    nothing = _NOTHING_SEEN if unseen else _NOTHING
    notes = [note.en if language == "en" else note.zh for note in unseen]
    return [*(found or [nothing.say(language).format(name=name)]), *notes, _STEP.say(language)]
