"""What the tests of the notebooks share: reading them, running them in a fresh kernel, and the right answers of their exercises."""

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NAMES = sorted(p.name for p in FOLDER.glob("*.ipynb"))
ANNOUNCED = "raises-exception"

# One right answer for each exercise cell, by cell id. The committed cells are unsolved.
SOLUTIONS = {
    "copies-exercise-1": "def standardise(batch):\n    batch = batch - batch.mean()\n    return batch / batch.std()\n",
    "copies-exercise-2": (
        'belief = {"t[:, ::2]": "view", "t[[0]]": "copy", "t.contiguous()": "same", "t.t().reshape(-1)": "copy",'
        ' "t.unsqueeze(0)": "view", "t * 1": "copy"}\n'
    ),
    "copies-exercise-3": (
        "def impostor():\n    t = torch.zeros(3)\n    object_before, memory_before = id(t), t.data_ptr()\n"
        "    t.data = torch.ones(3)\n    return t, object_before, memory_before\n"
    ),
    "copies-exercise-4": "def double_positive(t):\n    t[t > 0] *= 2\n",
    "errors-exercise-1": ('reading = {"shape": (16, 4), "operation": "exp", "writes": 2, "blame": "a line between exp and backward"}\n'),
    "errors-exercise-2": (
        "def attend(query, key, mask):\n    scores = torch.softmax(query @ key.t(), dim=1)\n"
        "    scores = scores * mask\n    return scores / scores.sum(dim=1, keepdim=True)\n"
    ),
    "errors-exercise-3": (
        "def losses(g, d, g_step, d_step, noise, real):\n    fake = g(noise)\n    d_loss = -d(real).mean() + d(fake.detach()).mean()\n"
        "    d_loss.backward()\n    d_step.step()\n    g_loss = -d(fake).mean()\n    g_loss.backward()\n    g_step.step()\n"
    ),
    "errors-exercise-4": (
        "def counterexample():\n    w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)\n    squares = w ** 2\n"
        "    with torch.no_grad():\n        w[0] = 0.0\n    squares.sum().backward()\n"
    ),
}


@cache
def text(name: str) -> str:
    """Return a committed notebook as text."""
    return (FOLDER / name).read_text(encoding="utf-8")


def read(name: str) -> Any:
    """Return a committed notebook, a new copy each time."""
    return nbformat.reads(text(name), as_version=4)


def tags(cell: Any) -> list[str]:
    """Return a cell's tags."""
    return list(cell.metadata.get("tags", []))


def run(book: Any, folder: Path) -> Any:
    """Execute a notebook top to bottom in a fresh kernel, every warning an error, and return it with its outputs.

    The kernel gets its own configuration folder and finds the package of this tree, installed or not.
    """
    book.cells.insert(0, nbformat.v4.new_code_cell("import warnings\nwarnings.simplefilter('error')"))
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {
        **os.environ,
        "PYTHONPATH": path,
        "IPYTHONDIR": str(folder / "ipython"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    client = NotebookClient(book, timeout=180, resources={"metadata": {"path": str(folder)}})
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
