"""Other processes that the program starts: nothing is recorded there, and the trace says so once."""

from __future__ import annotations

import subprocess
import sys
from multiprocessing import spawn
from pathlib import Path

import pytest
import torch

from pitfall_lab.cli import main
from pitfall_lab.observe import forks
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

FORKS = """\
import os
import torch
x = torch.ones(2, requires_grad=True)
for _ in range(2):
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
(x * 2).sum().backward()
"""
SPAWNS = """\
import multiprocessing
import torch
process = multiprocessing.get_context("spawn").Process(target=print)
process.start()
process.join()
y = torch.ones(2) + 1
"""
SHARES = """\
import torch
import torch.multiprocessing as multiprocessing
w = torch.zeros(3, requires_grad=True)
w.share_memory_()
def train():
    with torch.no_grad():
        w.add_(1)
process = multiprocessing.get_context("fork").Process(target=train)
process.start()
process.join()
print(w.tolist())
loss = (w * w).sum()
loss.backward()
g = w.grad.tolist()
"""
ENDS = """\
import os, sys
import torch
x = torch.ones(2)
child = os.fork()
if child == 0:
    y = x + 1
    sys.exit(3)
print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
child = os.fork()
if child == 0:
    x.no_such_name
print("ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) if child else "nothing")
"""


def said(trace: Trace) -> list[tuple[str, int | None]]:
    return [(note.en, note.span.line if note.span else None) for note in trace.unseen]


def test_a_fork_is_noted_once_with_its_line() -> None:
    trace = trace_program(FORKS)
    assert trace.outcome.failure is None
    assert said(trace) == [
        ("The program started another process (line 5): what it does with torch there is not recorded.", 5)
    ]
    assert trace.unseen[0].zh == "程序启动了另一个进程（第 5 行）：它在其中对 torch 的使用没有记录。"
    assert (trace.stopped, trace.agreement.disagreed) == (None, 0)
    assert "torch.Tensor.backward" in {event.op for event in trace.events}


def test_a_process_that_multiprocessing_starts_anew_is_noted(tmp_path: Path) -> None:
    program = tmp_path / "spawns.py"
    program.write_text(
        f"from pitfall_lab.verify import trace_program\nif __name__ == '__main__':\n    t = trace_program({SPAWNS!r})\n"
        "    print([n.span.line for n in t.unseen], t.outcome.kind, [e.op for e in t.events])\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines()[-1] == "[4] finished ['torch.ones', 'torch.Tensor.add']"


def test_subprocess_is_another_program() -> None:
    trace = trace_program(
        "import subprocess, sys\nimport torch\nx = torch.ones(2)\nsubprocess.run([sys.executable, '-c', ''])\n"
    )
    assert said(trace) == []


def test_memory_that_another_process_writes_is_read_from_torch(capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_program(SHARES)
    assert "[1.0, 1.0, 1.0]" in capsys.readouterr().out
    assert trace.disagreements == ()
    after = [event for event in trace.events if event.op == "torch.Tensor.mul"]
    assert [event.reason for event in after] == [
        "another thread or process ran at the same time and may have changed this call's operands"
    ]


def test_nothing_is_left_behind_after_the_recording() -> None:
    before = spawn.get_preparation_data
    trace_program(FORKS)
    assert spawn.get_preparation_data is before
    assert forks._watching == []


def test_a_forked_process_ends_as_it_does_alone_also_where_it_is_traced(tmp_path: Path) -> None:
    program = tmp_path / "traced.py"
    program.write_text(
        f"from pitfall_lab.verify import trace_program\ntrace_program({ENDS!r})\nprint('once')\n", encoding="utf-8"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == ["ended with 3", "ended with 1", "once"]
    assert done.stderr.count("AttributeError") == 1


def test_a_forked_process_does_not_answer_for_a_checked_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "ends.py"
    program.write_text(ENDS, encoding="utf-8")
    assert main(["check", str(program), "--show-output"]) == 0
    printed = capsys.readouterr()
    assert [line for line in printed.err.splitlines() if line.startswith("ended")] == ["ended with 3", "ended with 1"]
    assert "nothing found in what was seen" in printed.out
    assert "ends.py" in printed.out


def test_the_child_of_a_fork_inside_a_hook_computes_on() -> None:
    source = "import os, torch\nx = torch.ones(3, requires_grad=True)\n"
    source += "def hook(g):\n    child = os.fork()\n    if child == 0:\n        os._exit(int((g * 2).sum()))\n"
    source += "    ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    source += "ended = []\nx.register_hook(hook)\n(x * 2).sum().backward()\n"
    scope: dict = {"__name__": "__main__"}
    trace = trace_program(source, namespace=scope)
    assert scope["ended"] == [12]
    assert (trace.outcome.kind, trace.disagreements) == ("finished", ())
    assert torch._C._len_torch_function_stack() == 0
