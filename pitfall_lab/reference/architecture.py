"""Generates the page of the architecture: the first sentence of each subpackage's docstring, and a picture of which
subpackage imports which.

``python -m pitfall_lab.reference.architecture`` writes ``pitfall_lab/docs/architecture.md``
from a clone; a test compares.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from pitfall_lab.resources import DOCS, PACKAGE

PAGE = DOCS / "architecture.md"

_BEFORE = """\
# Architecture

The packages directly in `pitfall_lab` are called *rooms*. `trace` is the one in the middle: a log of what a program did, which is never
changed once it is written. Two engines write it together: `observe` watches real torch, `shadow` predicts each call with NumPy alone, and
`verify` runs both and compares them. Everything else reads traces: `rules` finds pitfalls, `views` draws, `widgets` brings both into a
notebook, `lessons` teaches and grades with them.

An arrow points from a room to one that it imports; there is none where a longer way of arrows leads to the same room.
`tests/test_architecture.py` says what each room may import, and `python -m pitfall_lab.reference.architecture` writes this page.

"""  # noqa: E501
_ON_TOP = """
Beside the rooms are `api.py` (what notebooks and scripts call), `cli.py` (the console script), `pytest_plugin.py`, `processes.py` (the only
module that starts processes) and `resources.py` (where the shipped files are). `frontend` holds the TypeScript sources, `static`,
`labextension` and `widgets/*.js` what is built from them, `jupyter` the settings of `pitfall-lab lab`, `docs` these pages.

Where to change what: a call of torch is read in `observe/recorder.py`, predicted by one entry in `shadow/ops/`, compared in
`verify/comparison.py` and written by `verify/writer.py`; calls that are repeated go through [the fast path](fastpath.md),
`verify/fastpath/`. A pitfall is one file in `rules/`, a view one folder in `views/`, a belief one function in
`lessons/misconceptions.py`, a chapter one notebook.
"""  # noqa: E501


def page() -> str:
    """The whole page as Markdown."""
    rooms = {room.name: room for room in sorted(PACKAGE.iterdir()) if (room / "__init__.py").is_file()}
    meets = {name: {to for to in _imported(room) if to in rooms and to != name} for name, room in rooms.items()}
    lines = ["```mermaid", "flowchart TD"]
    lines += [f"  {name} --> {to}" for name in rooms for to in sorted(_reduced(name, meets))]
    lines += ["```", "", "| room | what is in it |", "|---|---|"]
    lines += [row for name, room in rooms.items() for row in _rows(name, room)]
    return _BEFORE + "\n".join(lines) + "\n" + _ON_TOP


def _rows(name: str, room: Path) -> Iterator[str]:
    """A row for the room, and one for each folder in it that holds modules."""
    yield f"| `{name}` | {_first_paragraph(room)} |"
    for inner in sorted(each.parent for each in room.glob("*/__init__.py")):
        yield from _rows(f"{name}/{inner.name}", inner)


def _first_paragraph(room: Path) -> str:
    said = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8"))) or ""
    plain = re.sub(r":\w+:`[~.]*([^`]+)`", r"`\1`", said.split("\n\n")[0].replace("``", "`"))
    return " ".join(plain.split()).replace("|", "\\|")


def _imported(room: Path) -> set[str]:
    """The rooms whose modules the files of ``room`` import, at their top level or in a function."""
    found = set()
    for file in room.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                continue
            found |= {name.split(".")[1] for name in names if name.startswith("pitfall_lab.")}
    return found


def _reduced(name: str, meets: dict[str, set[str]]) -> set[str]:
    """The rooms that ``name`` imports, without those that are reached through another one of them."""
    return {to for to in meets[name] if not any(to in _reach(other, meets) for other in meets[name] - {to})}


def _reach(name: str, meets: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for to in meets[waiting.pop()] - found:
            found.add(to)
            waiting.append(to)
    return found


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE)
