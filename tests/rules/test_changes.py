"""What a reader may try: every change gives another program that parses, ids name them, and only
what can be tried is offered.
"""

from __future__ import annotations

import ast

import pytest

from pitfall_lab import record as trace_of
from pitfall_lab.rules import Fix, find
from pitfall_lab.rules.kit.changes import changes
from pitfall_lab.rules.kit.finding import Edit
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import Source, T, Trace

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


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_title_says_the_line_and_is_said_once(name):
    trace = trace_of(PROGRAMS[name])
    titles = [change.title for change in changes(trace, find(trace))]
    assert len({title.en for title in titles}) == len({title.zh for title in titles}) == len(titles) > 0
    assert [title.en for title in titles if "line " not in title.en] == []


def test_changes_that_read_alike_are_told_apart_by_their_lines():
    text = (
        "import torch\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "h = torch.sigmoid(x)\n"
        "h.mul_(2)\n"
        "h.mul_(2)\n"
        "h.sum().backward()\n"
    )
    trace = trace_of(text)
    alike = T("Copy `h` first", "先复制 `h`")
    one, other = (Fix(alike, (Edit(line, line, f"h = h.clone(); h.mul_({line})\n"),), "same") for line in (4, 5))
    found = find(trace)[0].with_fixes((one, other))
    assert [change.title.en for change in changes(trace, [found])][:2] == [
        "Copy `h` first (line 4)",
        "Copy `h` first (line 5)",
    ]


def test_swapping_keeps_every_line():
    trace = trace_of(PROGRAMS["write"])
    swap = next(change for change in changes(trace) if change.id == "swap-5")
    assert sorted(apply(PROGRAMS["write"], swap.edits).splitlines()) == sorted(PROGRAMS["write"].splitlines())
    assert apply(PROGRAMS["write"], swap.edits).splitlines()[4:] == ["h.sum().backward()", "h.mul_(10)"]


def test_what_is_no_program_has_no_changes():
    assert changes(Trace()) == ()
    assert changes(Trace((Source("cell", "%%time\nx ="),))) == ()
