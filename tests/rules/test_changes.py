"""What a reader may try: every change gives another program that parses, ids name them, and only what can be tried is offered."""

from __future__ import annotations

import ast

import pytest

from pitfall_lab import record as trace_of
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.changes import changes
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import Source, Trace

PROGRAMS = {
    "write": """
import torch
x = torch.tensor([0.5, 1.0], requires_grad=True)
h = torch.sigmoid(x)
h.mul_(10)
h.sum().backward()
""",
    "loop": """
import torch
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(2):
    loss = model(torch.ones(3, 2)).sum()
    loss.backward()
    opt.step()
""",
    "cleared": """
import torch
w = torch.ones(2, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for step in range(2):
    opt.zero_grad()
    (w * 2).sum().backward()
    opt.step()
""",
}
OFFERED = {
    "write": {"new-5", "clone-5", "no_grad-5", "swap-5", "detach-4"},
    "loop": {"zero_grad-7"},
    "cleared": {"drop-6"},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_change_gives_another_program_that_parses(name):
    trace = trace_of(PROGRAMS[name])
    offered = changes(trace, find(trace))
    texts = [apply(PROGRAMS[name], change.edits) for change in offered]
    assert len({PROGRAMS[name], *texts}) == len(texts) + 1
    assert all(ast.parse(text) for text in texts)
    assert len({change.id for change in offered}) == len(offered)
    assert {change.id for change in changes(trace)} >= OFFERED[name]  # with the findings, some of these are fixes


def test_swapping_keeps_every_line():
    trace = trace_of(PROGRAMS["write"])
    swap = next(change for change in changes(trace) if change.id == "swap-5")
    assert sorted(apply(PROGRAMS["write"], swap.edits).splitlines()) == sorted(PROGRAMS["write"].splitlines())
    assert apply(PROGRAMS["write"], swap.edits).splitlines()[4:] == ["h.sum().backward()", "h.mul_(10)"]


def test_what_is_no_program_has_no_changes():
    assert changes(Trace()) == ()
    assert changes(Trace((Source("cell", "%%time\nx ="),))) == ()
