"""What the tests of the notebooks share: reading them, running them in a fresh kernel, and finding their exercises."""

from __future__ import annotations

import ast
import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from pitfall_lab.lessons import chapters

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NAMES = sorted(p.name for p in FOLDER.glob("*.ipynb"))
ANNOUNCED = "raises-exception"

EXERCISE = re.compile(r"%%exercise (\d+\.\d+)\n")


@cache
def text(name: str) -> str:
    """Return a committed notebook as text."""
    return (FOLDER / name).read_text(encoding="utf-8")


def read(name: str) -> Any:
    """Return a committed notebook, a new copy each time."""
    return nbformat.reads(text(name), as_version=4)


def exercises_of(book: Any) -> dict[str, str]:
    """Return the exercise cells of a notebook: the text below the magic line by the exercise's key."""
    cells = [c.source for c in book.cells if c.source.startswith("%%exercise")]
    return {EXERCISE.match(source)[1]: EXERCISE.sub("", source, count=1).strip("\n") for source in cells}  # type: ignore[index]


def code(book: Any) -> list[Any]:
    """Return a notebook's code cells."""
    return [c for c in book.cells if c.cell_type == "code"]


def checked(source: str) -> str:
    """Return the program that a cell gives to the rules: the cell below ``%%check``, or the text in a call."""
    if source.startswith("%%check"):
        return source.partition("\n")[2]
    return next(str(n.value) for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and "import torch\n" in str(n.value))


def shown_claims(book: Any) -> list[str]:
    """Return the ids of the claims that a notebook shows and runs, in order."""
    return chapters.shown_in("\n".join(c.source for c in code(book)))


def tags(cell: Any) -> list[str]:
    """Return a cell's tags."""
    return list(cell.metadata.get("tags", []))


def run(book: Any, folder: Path, python: str = sys.executable) -> Any:
    """Execute a notebook top to bottom in a fresh kernel, every warning an error, and return it with its outputs.

    The kernel runs in ``python``, gets its own configuration folder and finds the package of this tree, installed or not.
    """
    book.cells.insert(0, nbformat.v4.new_code_cell("import warnings\nwarnings.simplefilter('error')"))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "IPYTHONDIR": str(folder / "ipython"),
        # Two kernels run at a time. With torch's default each takes both cores, and its threads spend the time in waiting for one another:
        # chapter 16 takes 36 s of CPU then, and 11 s so.
        "OMP_NUM_THREADS": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    # A kernel that is asked to end warns about its own future while it does so. Here that is an error: it would stay, and be waited for.
    client = NotebookClient(book, timeout=180, shutdown_kernel="immediate", resources={"metadata": {"path": str(folder)}})
    client.create_kernel_manager().kernel_spec.argv[0] = python
    client.execute(env=environment)
    del book.cells[0]
    return book


def said(cell: Any) -> str:
    """Return all text that a cell's outputs hold."""
    parts = []
    for output in cell.get("outputs", []):
        parts.append(output.get("text", ""))
        parts.append("".join(output.get("data", {}).get("text/plain", "")))
        parts.append(output.get("evalue", ""))
    return re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(parts))
