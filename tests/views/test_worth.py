"""What is worth a look where no rule speaks: facts of the trace, with their lines."""

from __future__ import annotations

import contextlib
import io

from pitfall_lab import rules, views
from pitfall_lab.verify import trace_program
from tests.frontend.stage import state_of

HALVED = """import torch
def sample(log_variance):
    log_variance.mul_(0.5)
    deviation = log_variance.exp()
    return deviation * torch.ones(3)
def loss_of(z, log_variance):
    return (z + log_variance).sum()
hidden = torch.ones(3, requires_grad=True)
log_variance = hidden * 2
loss_of(sample(log_variance), log_variance).backward()
"""


def worth(program: str) -> list[tuple[int, str]]:
    with contextlib.redirect_stdout(io.StringIO()):
        trace = trace_program(program)
    return [(one["line"], one["text"]["en"]) for one in views.scene(trace, rules.find(trace))["worth"]]


def test_a_write_that_another_function_reads_is_named_with_both_lines():
    ((line, text),) = worth(HALVED)
    assert line == 3
    assert "`log_variance` itself" in text
    assert "line 7 reads it" in text


def test_a_program_that_makes_new_tensors_has_nothing_of_the_kind():
    assert worth(HALVED.replace("mul_", "mul")) == []


def test_the_first_nan_of_a_large_tensor_is_named():
    program = "import torch\nx = torch.ones(5, 9)\nx[2, 3] = 0\ny = x - 1\nz = y / (x - x)\nprint(z[2].sum() + 1)\n"
    assert worth(program)[0][0] == 5


def test_two_tensors_of_one_length_that_make_a_table_are_named():
    program = "import torch\na = torch.arange(4.0)\nb = torch.arange(4.0).reshape(4, 1)\nprint((a * b).max())\n"
    assert [line for line, _ in worth(program)] == [4]


def test_where_a_rule_speaks_there_is_no_list():
    program = "import torch\nx = torch.ones(3, requires_grad=True)\nh = x.exp()\nh.mul_(2)\nh.sum().backward()\n"
    assert worth(program) == []


def test_the_headline_is_the_line_that_is_worth_a_look(stage):
    trace = trace_program(HALVED)
    root = stage.show(state_of(trace, rules.find(trace)))
    ((line, _),) = worth(HALVED)
    assert root.locator(".pl-message").inner_text() == f"No mistake was found. Line {line} is worth a look."
    assert root.locator(".pl-outcome").inner_text() == "✓ finished without an error"


CENTRED = """import numpy as np
import torch
a = np.array([1.0, 2.0, 6.0])
x = torch.from_numpy(a)
a -= a.mean()
w = torch.ones(3, requires_grad=True)
(w * x).sum().backward()
"""
STORED = """import torch
cell = torch.nn.RNNCell(2, 3)
h = torch.zeros(1, 3)
kept = []
for t in range(3):
    h = cell(torch.ones(1, 2), h)
    kept.append(h.detach())
    h = h.detach()
    h.zero_()
print(torch.stack(kept).sum())
"""
CLEARED = """import torch
cell = torch.nn.RNNCell(2, 3)
hidden = torch.zeros(1, 3)
states = []
for t in range(3):
    hidden = cell(torch.ones(1, 2), hidden)
    states.append(hidden)
    if t == 2:
        hidden.detach().zero_()
print(torch.stack(states).sum())
"""


def test_an_array_that_is_changed_under_a_tensor_before_its_use_is_named_with_it():
    ((line, text),) = worth(CENTRED)
    assert line == 5
    assert text.startswith("`a` and `x` share their memory: this write changes `x` too, and line 7 reads it.")
    assert worth(CENTRED.replace("from_numpy(a)", "tensor(a)")) == []
    assert worth(CENTRED.replace("(w * x)", "(w * 2)")) == [], "nothing reads it"


def test_a_stored_state_that_is_cleared_through_another_tensor_is_the_harm_that_is_named():
    ((line, text),) = worth(STORED)
    assert line == 9
    assert text.startswith("`h` and `kept` share their memory: this write changes `kept` too, and line 10 reads it.")
    ((line, text),) = worth(CLEARED)
    assert line == 9
    assert text.startswith("`hidden.detach()` and `hidden` share their memory")
    assert "line 10 reads it" in text
    assert [line for line, _ in worth(STORED.replace("h.detach())", "h.detach().clone())"))] == [7, 8]


def test_what_a_line_writes_by_its_name_and_parts_of_a_tensor_are_not_named():
    by_hand = "import torch\nw = torch.ones(2, requires_grad=True)\nw.data.add_(1)\nprint((w * 2).sum())\n"
    assert worth(by_hand) == []
    assert worth("import torch\nx = torch.zeros(4)\nhead = x[:2]\nhead += 1\nprint(x.sum())\n") == []
    apart = "import torch\nx = torch.zeros(4)\nb = x[2:].detach()\na = x[:2]\na.add_(1)\nprint(b.sum())\n"
    assert worth(apart) == [], "the other elements"
