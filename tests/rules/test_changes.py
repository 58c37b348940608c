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
    "write": {"new-5", "clone-5", "swap-5"},
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


def ids(text: str) -> list[str]:
    trace = trace_of("import torch\n" + text)
    return [change.id for change in changes(trace, find(trace))]


def test_under_no_grad_only_where_a_gradient_comes_through_the_write():
    graph = "x = torch.ones(2, requires_grad=True)\nh = x * 2\n"
    assert "no_grad-4" in ids(f"{graph}h *= 3\nh.sum().backward()\n")
    assert "no_grad-4" not in ids(f"{graph}h += 3\nh.sum().backward()\n"), "the gradient is the same"
    assert "no_grad-4" not in ids(f"{graph}h *= 3\nprint(h)\n"), "nothing asks for a gradient"
    refused = trace_of("import torch\nx = torch.ones(2, requires_grad=True)\nx *= 3\n")
    assert "no_grad-3" in [change.id for change in changes(refused)]
    arrays = "import numpy as np\nf = np.ones(2)\nt = torch.from_numpy(f)\n"
    assert not [one for one in ids(f"{arrays}s = t * 1\nf -= 1\nprint(t)\n") if one.startswith(("no_grad", "clone"))]
    needed = (
        "x = torch.ones(2, requires_grad=True)\nh = torch.sigmoid(x)\ny = h * 2\nh.mul_(10)\n(y + h).sum().backward()\n"
    )
    assert "no_grad-5" not in ids(needed), "that backward fails all the same"


def test_a_new_tensor_only_where_the_old_memory_is_seen_again():
    assert {"new-3", "clone-3"} <= {*ids("h = torch.ones(2); v = h.view(-1)\nh += 1\nprint(v)\n")}
    assert not {"new-3", "clone-3"} & {*ids("h = torch.ones(2)\nh += 1\nprint(h)\n")}
    inside = "def grow(x):\n    x += 1\n    return x.sum()\nh = torch.ones(2)\ns = grow(h)\nprint(h * 1)\n"
    assert "new-3" in ids(inside), "the caller has another name for it"
    assert "new-5" not in ids("layer = torch.nn.Linear(1, 1)\nw = [layer.weight]\n\ntorch.nn.init.zeros_(layer.bias)\n")
    listed = "rows = [torch.ones(2), torch.ones(2)]\nv = rows[0][:1]\nrows[0] += 1\nprint(v)\n"
    assert "clone-4" not in ids(listed), "a list has no clone"


def test_swapping_only_where_the_order_matters_and_the_next_line_can_come_first():
    assert "swap-3" in ids("h = torch.ones(2)\nh += 1\ns = h.sum()\nprint(s)\n")
    assert "swap-3" not in ids("h = torch.ones(2)\nh += 1\nk = torch.ones(3)\n")
    assert "swap-3" not in ids("h = torch.ones(2)\nh += 1\nh += 2\n"), "sums"
    assert "swap-3" not in ids("h = torch.ones(2)\nh[0] = 5.0\nh[1] = 6.0\n"), "other elements"
    assert "swap-3" not in ids("h = t = torch.zeros(2)\nh[0] += 1.0\nt[1] += 3.0\n"), "elements of one memory"
    assert "swap-3" in ids("h = torch.ones(2)\nh += 1\nh *= 2\nprint(h)\n")
    assert "swap-3" not in ids("def f(h):\n    h += 1\n    return h\nprint(f(torch.ones(2)))\n"), "dead code"
    assert "swap-3" not in ids("h = torch.ones(2)\nt = h.add_(1)\nprint(t * 2)\n"), "only a NameError"


def test_detaching_only_what_is_not_all_that_a_backward_has():
    start = "x = torch.ones(2, requires_grad=True)\na = x * 2\nb = x * 3\n"
    both = ids(f"{start}b.mul_(2)\nloss = (a + b).sum()\nloss.backward()\n")
    assert "detach-6" not in both, "the backward of a detached loss only fails"
    trace = trace_of(f"import torch\n{start}b = b.mul_(2)\n(a + b).sum().backward()\n")
    assert "detach-5" in [change.id for change in changes(trace)]


def test_zero_grad_only_where_gradients_add_up_and_last_where_the_finding_is_about_something_else():
    start = "w = torch.ones(2, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
    once = f"{start}opt.zero_grad()\n(w * 2).sum().backward()\nopt.step()\n"
    assert "drop-4" not in ids(once)
    body = "    h = torch.sigmoid(w)\n    h += 1\n    opt.zero_grad()\n    h.sum().backward()\n"
    failing = f"{start}for _ in range(2):\n{body}"
    assert "drop-7" not in ids(failing), "no backward came to its end"
    other = f"{start}kept = []\nfor _ in range(2):\n    opt.zero_grad()\n    (w * 2).sum().backward()\n    opt.step()\n"
    shown = ids(other + "    kept.append(w)\nk = w.detach()\nk += 1\nprint(w)\n")
    assert shown.index("drop-6") == len(shown) - 1 > 0


def test_one_edit_is_offered_once_whatever_its_layout_and_title():
    text = "import torch\nh = torch.ones(2)\nv = h[:]\nh += 1\nprint(v)\n"
    trace = trace_of(text)
    fix = Fix(T("Take a new one", "新建"), (Edit(4, 4, "h   =  h + 1  # new\n"),), "same")
    plain = [change.id for change in changes(trace)]
    found = (find(trace) or find(trace_of(PROGRAMS["write"])))[0].with_fixes((fix,))
    offered = [change.id for change in changes(trace, [found])]
    assert "new-4" in plain
    assert "new-4" not in offered
    assert "fix-1" in offered
