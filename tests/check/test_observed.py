"""A checker that saw nothing never says "nothing found": it says first where observation stopped, and ends with 2.

The programs here break the recorder from inside, because they run in its process: what they do stands for a name that a
torch lacks, for a failure of ours, and for what a program may do to torch itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pitfall_lab.check import Checked, Subject, Unchecked, Workshop, check, examine
from pitfall_lab.check.examine import document
from pitfall_lab.check.github import github
from pitfall_lab.check.improvement import RunFacts, found_of, is_better
from pitfall_lab.check.sarif import sarif
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.terminal import Style, report
from pitfall_lab.cli import main
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Note
from pitfall_lab.trace.extent import nothing_found
from pitfall_lab.verify import trace_program
from tests.check.test_formats import LOG

BREAK = """\
import torch
from pitfall_lab.verify.lockstep import Lockstep
def boom(*_):
    raise RuntimeError("boom")
"""


@dataclass(frozen=True, slots=True)
class Blind:
    """A program that loses its observer: why, at which line, and how many calls had been seen until then."""

    program: str
    cause: str
    line: int
    calls: int


RAISED = """\
x = torch.ones(2)
Lockstep.failed = boom
try:
    x @ torch.ones(3)
except RuntimeError:
    y = x + 1
"""
HOOK = """\
x = torch.ones(2, requires_grad=True)
y = (x * 2).sum()
def hook(g):
    Lockstep.before = boom
    return g * 1
y.register_hook(hook)
y.backward()
z = x + 1
"""
SOURCES = """\
x = torch.ones(2)
from pitfall_lab.observe.spans import SourceMap
SourceMap.is_user = SourceMap.user_frame = SourceMap.span = boom
y = x + 1
"""
LACKS = """\
x = torch.ones(2)
def gone(*_):
    raise AttributeError("module 'torch' has no attribute '_is_fx_tracing_flag'")
from pitfall_lab.verify import lockstep
lockstep.predict = gone
y = x.view(1, 2).add_(1)
"""
REMOVED = "import torch\nx = torch.ones(2)\ntorch.overrides._pop_mode()\ny = x + 1\n"
EMPTIED = """\
import torch
x = torch.ones(2)
while torch._C._len_torch_function_stack():
    torch._C._pop_torch_function_stack()
y = x + 1
"""
# each round leaves a longer graph behind, so none is left out
LONG = "import torch\nx = torch.ones(2, requires_grad=True)\nfor _ in range(2_100):\n    x = x * 1.0\nprint(x.sum())\n"
STEPS = 2_000
"""What is looked at here of a program; by default it is ten times as much."""
BLIND = {
    "at the first call": Blind(f"{BREAK}Lockstep.before = boom\nx = torch.ones(2)\ny = x + 1\n", "failure", 6, 0),
    "after the first call": Blind(f"{BREAK}Lockstep.after = boom\nx = torch.ones(2)\ny = x + 1\n", "failure", 6, 0),
    "in the middle": Blind(
        f"{BREAK}x = torch.ones(2)\nLockstep.lane, Lockstep.before = None, boom\ny = x * 2\n", "failure", 7, 1
    ),
    "when something raises": Blind(BREAK + RAISED, "failure", 8, 2),
    "inside a backward": Blind(BREAK + HOOK, "failure", 9, 4),
    "where calls come from": Blind(BREAK + SOURCES, "failure", 5, 1),
    "a name that this torch lacks": Blind(BREAK + LACKS, "failure", 10, 1),
    "the mode is taken away": Blind(REMOVED, "removed", 2, 1),
    "all modes are taken away": Blind(EMPTIED, "removed", 2, 1),
    "a limit": Blind(LONG, "limit", 4, STEPS + 1),
}


def checked(shop: Workshop, folder: Path, program: str, name: str = "program.py", *, steps: int = STEPS) -> Checked:
    path = folder / name
    path.write_text(program, encoding="utf-8")
    return examine(path, shop, Settings(steps=steps), name=name, fixes=False)


@pytest.mark.parametrize("name", BLIND)
def test_where_observation_stops_it_is_said_first_and_everywhere(
    name: str, shop: Workshop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blind = BLIND[name]
    program, line = blind.program, blind.line
    found = checked(shop, tmp_path, program)
    assert found.trace is not None
    assert found.trace.outcome.kind == "finished", "the program runs to its end whatever happens to us"
    assert found.exit_code == 2
    said = document(found)["observation"]
    assert said["complete"] is False
    assert (said["stopped"]["cause"], said["stopped"]["line"], said["calls"]) == (blind.cause, line, blind.calls)

    text = report("program.py", found.trace, found.findings, Style())
    assert text.startswith(f"program.py:{line}: Observation stopped here, because ")
    assert "nothing found:" not in text
    assert "没有发现问题" not in report("program.py", found.trace, found.findings, Style("zh")).replace(
        "部分没有发现问题", ""
    )
    assert report("program.py", found.trace, found.findings, Style("zh")).startswith(
        f"program.py:{line}：从这里起停止观察"
    )

    log = sarif([found])
    import jsonschema  # takes seconds, in each process that collects the tests

    jsonschema.validate(json.loads(json.dumps(log)), LOG)
    (invocation,) = log["runs"][0]["invocations"]
    assert invocation["executionSuccessful"] is False
    (notification,) = invocation["toolExecutionNotifications"]
    assert notification["level"] == "error"
    assert notification["message"]["text"].startswith(f"program.py:{line}: Observation stopped here")
    assert notification["locations"][0]["physicalLocation"]["region"] == {"startLine": line}
    assert github([found]).startswith(
        f"::error file=program.py,line={line}::program.py:{line}: Observation stopped here"
    )
    monkeypatch.setattr("pitfall_lab.check.Workshop", partial(Workshop, steps=STEPS))
    with pytest.raises(Unchecked, match="Observation stopped here"):
        check(program)


def test_after_its_limit_a_recording_goes_on_at_lines_that_are_new(shop: Workshop, tmp_path: Path) -> None:
    usual = checked(shop, tmp_path, LONG.replace("2_100", "21_000"), steps=Settings().steps)
    stopped = document(usual)["observation"]["stopped"]
    assert stopped["calls_after"] == 21_000 + 1 - 20_000
    assert stopped["lines_after"] == []
    loop = LONG.replace("print(x.sum())\n", "")
    assert document(checked(shop, tmp_path, loop))["observation"]["stopped"]["lines_after"] == []


def test_findings_from_before_the_stop_are_shown_after_it(shop: Workshop, tmp_path: Path) -> None:
    found = checked(
        shop,
        tmp_path,
        f"{BREAK}w = torch.ones(2, requires_grad=True)\ntry:\n    w += 1\nexcept RuntimeError:\n    pass\n"
        "Lockstep.lane, Lockstep.before = None, boom\ny = w * 2\n",
    )
    assert [finding.rule for finding in found.findings] == ["PL201"]
    assert found.exit_code == 2
    assert found.trace is not None
    text = report("program.py", found.trace, found.findings, Style())
    assert text.index("Observation stopped here") < text.index("PL201")
    assert "program.py: 1 note" in text
    assert [result["ruleId"] for result in sarif([found])["runs"][0]["results"]] == ["PL201"]


@pytest.mark.parametrize(
    ("program", "en", "zh"),
    [
        (
            "import torch\nx = torch.ones(2)\nfor _ in range(3):\n    x = x * 2\n",
            "nothing found: 4 calls to torch, on 2 lines, were seen",
            "没有发现问题：看到了 4 次 torch 调用，分布在 2 行",
        ),
        ("print(1)\n", "no call to torch was seen", "没有看到对 torch 的调用"),
        ("import torch\nclass A: pass\n", "no call to torch was seen", "没有看到对 torch 的调用"),
    ],
)
def test_nothing_found_is_said_of_what_was_seen(program: str, en: str, zh: str, shop: Workshop, tmp_path: Path) -> None:
    found = checked(shop, tmp_path, program)
    assert found.exit_code == 0
    assert found.trace is not None
    assert f"program.py: {en}" in report("program.py", found.trace, (), Style())
    assert zh in report("program.py", found.trace, (), Style("zh"))
    said = document(found)["observation"]
    assert (said["complete"], said["stopped"], said["unseen"]) == (True, None, [])


def test_what_was_not_seen_is_no_part_of_what_nothing_was_found_in(shop: Workshop) -> None:
    trace = shop.trace(Subject("import torch\ntorch.ones(2)\n", "program.py"))
    note = Note("unseen", "A thread was not watched.", "没有观察一个线程。", span=trace.events[0].span)
    partly = replace(trace, notes=(note,))
    said = report("program.py", partly, (), Style())
    assert "nothing found in what was seen: 1 call to torch, on 1 line" in said
    assert said.startswith("program.py:2: A thread was not watched.\n")
    seen = document(Checked("program.py", trace=partly))["observation"]
    assert (seen["complete"], seen["unseen"]) == (False, [{"message": "A thread was not watched.", "line": 2}])


def test_a_notebook_is_told_in_cells(shop: Workshop, tmp_path: Path) -> None:
    cells = [BREAK, "x = torch.ones(2)\nLockstep.lane, Lockstep.before = None, boom\ny = x + 1\n", "z = x + 2\n"]
    made = [
        {"cell_type": "code", "source": each, "metadata": {}, "outputs": [], "execution_count": None} for each in cells
    ]
    notebook = {"nbformat": 4, "nbformat_minor": 4, "metadata": {}, "cells": made}
    found = checked(shop, tmp_path, json.dumps(notebook), "book.ipynb")
    assert found.problem is not None
    assert str(found.problem).startswith("book.ipynb:cell 2:3: Observation stopped here")
    assert "cell 2:3, cell 3:1" in str(found.problem)
    stopped = document(found)["observation"]["stopped"]
    assert (stopped["cell"], stopped["line"]) == (2, 3)
    assert stopped["lines_after"] == [{"cell": 2, "line": 3}, {"cell": 3, "line": 1}]


def test_a_torch_that_cannot_be_watched_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "old" / "torch").mkdir(parents=True)
    (tmp_path / "old" / "torch" / "__init__.py").write_text("__version__ = '1.0.0'\n", encoding="utf-8")
    (tmp_path / "program.py").write_text("import torch\n", encoding="utf-8")
    home = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path / "old"), home))}
    start = [sys.executable, "-m", "pitfall_lab", "check", "--json", str(tmp_path / "program.py")]
    done = subprocess.run(
        start, capture_output=True, text=True, encoding="utf-8", env=environment, timeout=300, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert (
        "pitfall_lab cannot watch programs with torch 1.0.0 (ModuleNotFoundError: No module named 'torch."
        in done.stderr
    )
    said: dict[str, Any] = json.loads(done.stdout)["observation"]
    assert (said["complete"], said["stopped"]["cause"], said["calls"]) == (False, "never", 0)


def test_a_recorder_that_cannot_begin_leaves_the_program_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pitfall_lab.observe.recorder import Recorder
    from pitfall_lab.verify import trace_program

    monkeypatch.setattr(Recorder, "start", lambda _: 1 / 0)
    names: dict[str, Any] = {}
    trace = trace_program("import torch\ny = (torch.ones(2) + 1).tolist()\n", namespace=names)
    assert names["y"] == [2.0, 2.0]
    assert trace.stopped is not None
    assert trace.stopped.cause == "never"
    assert report("p.py", trace, (), Style()).startswith(
        "p.py: The program ran unobserved, because pitfall_lab failed (ZeroDivisionError"
    )


def test_a_repair_is_not_good_because_less_of_it_was_seen(shop: Workshop) -> None:
    bad = "import torch\nw = torch.ones(2, requires_grad=True)\nw += 1\n"
    before = shop.trace(Subject(bad, "program.py"))
    findings = find(before)
    after = shop.trace(Subject(bad.replace("w += 1", "w = w + 1"), "program.py"))
    was, finding = RunFacts.of(Story(before)), found_of(Story(before), findings[0])
    assert is_better(finding, was, RunFacts.of(Story(after)))
    blind = replace(after, notes=(Note("stopped", "…", "…", 0, cause="failure"),))
    assert not is_better(finding, was, RunFacts.of(Story(blind)))


def test_where_only_the_recording_with_numbers_stops_the_findings_of_the_other_stay(
    shop: Workshop, tmp_path: Path
) -> None:
    program = textwrap.dedent(
        """\
        import torch
        from pitfall_lab.verify.lockstep import Lockstep
        was = Lockstep.before
        def before(self, call):
            if self._world.limit >= 0:
                raise RuntimeError("numbers")
            return was(self, call)
        Lockstep.before = before
        w = torch.ones(2, requires_grad=True)
        w += 1
        """
    )
    found = checked(shop, tmp_path, program)
    assert [finding.rule for finding in found.findings] == ["PL201"]
    assert found.exit_code == 1
    assert found.trace is not None
    assert "Numbers were followed only up to this line" in report("program.py", found.trace, found.findings, Style())
    assert document(found)["observation"]["complete"] is False


def test_more_steps_are_looked_at_where_that_is_wanted(tmp_path: Path, shop: Workshop) -> None:
    path = tmp_path / "long.py"
    path.write_text("import torch\nx = torch.ones(2)\nfor _ in range(50):\n    x = x * 1.0\n", encoding="utf-8")
    few = examine(path, shop, replace(Settings(), steps=20), fixes=False)
    assert few.exit_code == 2
    assert document(few)["observation"]["stopped"]["calls_after"] == 31
    assert examine(path, shop, replace(Settings(), steps=51), fixes=False).exit_code == 0
    (tmp_path / "pyproject.toml").write_text("[tool.pitfall-lab]\nsteps = 20\n", encoding="utf-8")
    assert main(["check", str(path), "--no-fixes"]) == 2
    assert main(["check", str(path), "--no-fixes", "--steps", "60"]) == 0


PAST = """\
import torch
from torch import nn
torch.manual_seed(0)
rows = torch.stack([torch.ones(4) * n for n in range(60)])
net = nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.001)
for step in range(30):
    loss = ((net(rows) - torch.ones(60)) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step == 20:
        held = torch.sigmoid(net(rows))
        held.mul_(2)
        held.sum().backward()
"""


def test_what_is_wrong_behind_the_limit_is_found_on_its_own_lines() -> None:
    trace = trace_program(PAST, limit=150)
    assert trace.disagreements == ()
    assert {finding.rule: finding.span.line for finding in find(trace) if finding.span} == {"PL401": 8, "PL101": 14}
    assert len(trace.events) <= 2 * 150
    assert trace.reach.later == ()
    assert trace.reach.missed > 0
    assert nothing_found(trace).en.startswith("nothing found in what was seen: ")
    whole = trace_program(PAST)
    assert whole.outcome == replace(trace.outcome, failure=whole.outcome.failure)
    assert {finding.rule for finding in find(whole)} == {"PL401", "PL101"}
