"""Runs the tour of the shadow engine.

``python -m tests.docs.tour`` writes what its programs print, and the lengths of the files
that it visits, into the page.
"""

from __future__ import annotations

import ast
import contextlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "pitfall_lab" / "docs" / "tour.md"
_BLOCK = re.compile(r"^```(python|python torch|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LENGTH = re.compile(r"^(\| \[\w+\.py\]\(\.\./(shadow/\w+\.py)\) \| )\d*( \|)", re.MULTILINE)
_ALL = re.compile(r"(everything that the core imports, )[\d,]+( lines)")
_FOLDER = re.compile(r"(\]\(\.\./(shadow/\w+)\), )[\d,]+( lines)")


@dataclass
class Step:
    """Programs that stand together, each with the engine it runs on and what it printed;
    they must all print the same.
    """

    programs: list[tuple[str, str, str]]
    said: str


def play(text: str) -> tuple[list[Step], str]:
    """Run the page from top to bottom, each engine in a namespace of its own; returns the steps
    and the page as it should be.
    """
    worlds: dict[str, dict[str, Any]] = {"python": {}, "python torch": {}}
    steps: list[Step] = []
    programs: list[tuple[str, str, str]] = []

    def play_block(found: re.Match[str]) -> str:
        kind, body = found.groups()
        if kind == "text":
            steps.append(Step(list(programs), body))
            programs.clear()
            return f"```text\n{steps[-1].programs[0][2]}```"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(body, f"<tour, line {text[: found.start()].count(chr(10)) + 1}>", "exec"), worlds[kind])
        if out.getvalue():
            programs.append((kind, body, out.getvalue()))
        return found[0]

    written = _BLOCK.sub(play_block, text)
    assert not programs, f"no output follows:\n{programs[0][1]}"
    whole = sum(length(name) for _, name, _ in _LENGTH.findall(text))
    written = _LENGTH.sub(lambda m: f"{m[1]}{length(m[2])}{m[3]}", written)
    written = _ALL.sub(lambda m: f"{m[1]}{whole:,}{m[2]}", written)
    return steps, _FOLDER.sub(lambda m: f"{m[1]}{length_of_all(m[2]):,}{m[3]}", written)


def length(name: str) -> int:
    """The number of lines of a file of the package, to the nearest fifty: the page need not follow every comment."""
    return 50 * round(len((ROOT / "pitfall_lab" / name).read_text(encoding="utf-8").splitlines()) / 50)


def length_of_code(name: str) -> int:
    """The number of lines of a file of the package without its docstrings."""
    text = (ROOT / "pitfall_lab" / name).read_text(encoding="utf-8")
    documented = (
        node.body[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None
    )
    return len(text.splitlines()) - sum((each.end_lineno or each.lineno) - each.lineno + 1 for each in documented)


def length_of_all(folder: str) -> int:
    """The number of lines of all files of a folder of the package, to the nearest hundred."""
    files = (ROOT / "pitfall_lab" / folder).glob("*.py")
    return 100 * round(sum(len(path.read_text(encoding="utf-8").splitlines()) for path in files) / 100)


if __name__ == "__main__":
    PAGE.write_text(play(PAGE.read_text(encoding="utf-8"))[1], encoding="utf-8")
    print(PAGE.relative_to(ROOT))
