"""What runs as one piece is said to be unseen: no verdict is given about what is inside it."""

from __future__ import annotations

import linecache

import pytest

from pitfall_lab.trace import extent
from pitfall_lab.verify import trace_program

GRAD = "import torch\nw = torch.ones(3)\ng = torch.func.grad(lambda w: (w * w).sum())(w)\n"
TRACED = "import torch\nw = torch.ones(3)\ng = torch.jit.trace(lambda a: a * 2, w)\n"
COMPILED = """
import torch
@torch.compile(backend="eager")
def loss(a, b):
    return ((a - b) ** 2).mean()
w = torch.ones(8, 1, requires_grad=True)
loss(w, torch.ones(8)).backward()
"""


@pytest.mark.parametrize(("program", "name", "line"), [(GRAD, "torch.func.grad", 3), (TRACED, "torch.jit.trace", 3)])
def test_a_region_is_unseen_at_its_place(program: str, name: str, line: int) -> None:
    trace = trace_program(program)
    assert [(note.span.line, note.en.split()[0]) for note in trace.unseen if note.span] == [(line, name)]
    assert "in what was seen" in extent.nothing_found(trace).en


def test_compiled_code_is_unseen() -> None:
    trace = trace_program(COMPILED)
    assert ["torch.compile" in note.en for note in trace.unseen] == [True]


def test_scripted_code_is_unseen(tmp_path) -> None:
    path = tmp_path / "scripted.py"  # torch.jit.script reads the source from its file
    text = "import torch\n@torch.jit.script\ndef f(a):\n    return a * 2\ng = f(torch.ones(3))\n"
    path.write_text(text)
    linecache.checkcache(str(path))
    trace = trace_program(text, name="scripted.py", filename=str(path))
    assert ["torch.jit.script" in note.en for note in trace.unseen] == [True]


def test_a_plain_program_has_nothing_unseen() -> None:
    assert trace_program("import torch\nw = torch.ones(3)\nv = w * 2\n").unseen == ()
