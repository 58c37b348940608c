"""Rules look at the values of the tensor that a call was given, not at the others of its storage."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

import pytest

from pitfall_lab import record
from pitfall_lab.check import Workshop
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.widening import wider
from pitfall_lab.rules.signals.value_origins import values
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F

torch.manual_seed(0)
"""
FOUND = {
    "an integer mask that is a row of a table of numbers": HEAD
    + """
table = torch.tensor([[0, 1, 1, 0], [7, 8, 9, 6]])
x = torch.arange(4.0)
print(x[table[0]])  # PL807
""",
    "zeros and ones in a column beside other numbers": HEAD
    + """
table = torch.tensor([[0.3, 1.0], [2.0, 0.0], [0.7, 1.0]])
score = torch.randn(3, requires_grad=True)
F.soft_margin_loss(score, table[:, 1]).backward()  # PL930
""",
    "a norm of a difference to targets that cannot be met": HEAD
    + """
layer = torch.nn.Linear(2, 4)
target = torch.tensor([5.0, 6.0, 7.0, 8.0])
opt = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(2):
    opt.zero_grad()
    loss = (torch.sigmoid(layer(torch.ones(2))) - target).norm()  # PL950
    loss.backward()
    opt.step()
""",
}
QUIET = {
    "an index beside zeros and ones": HEAD
    + """
table = torch.tensor([[0, 1, 1, 0], [3, 2, 1, 0]])
x = torch.arange(4.0)
print(x[table[1]])
""",
    "targets of 1 and -1 beside zeros": HEAD
    + """
table = torch.tensor([[0.0, 1.0], [0.0, -1.0], [1.0, 1.0]])
score = torch.randn(3, requires_grad=True)
F.soft_margin_loss(score, table[:, 1]).backward()
""",
    "logits beside log-probabilities": HEAD
    + """
rows = torch.tensor([[-1.0, -0.5, -2.0], [1.0, 2.0, 0.5]], requires_grad=True)
F.cross_entropy(rows[1:], torch.tensor([0])).backward()
""",
    "whole numbers beside fractions": HEAD
    + """
table = torch.tensor([[0.5, 0.25, 0.75], [1.0, 0.0, 2.0]]) * 1.0
print((table[1] == torch.tensor([1, 0, 2])).float().mean())
""",
    "the blank beyond the joined targets": HEAD
    + """
scores = torch.randn(8, 1, 4, requires_grad=True)
joined = torch.tensor([1, 2, 3, 0, 0])
lengths = torch.tensor([3])
F.ctc_loss(scores.log_softmax(2), joined[:3], torch.tensor([8]), lengths).backward()
""",
}


@pytest.mark.parametrize("case", FOUND)
def test_what_the_tensor_itself_shows_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, FOUND[case])


@pytest.mark.parametrize("case", QUIET)
def test_values_outside_of_a_view_are_not_its_own(shop: Workshop, case: str) -> None:
    assert_quiet(shop, QUIET[case])


@pytest.mark.parametrize(
    ("view", "shown"),
    [
        ("t[1]", [4, 5, 6, 7]),
        ("t[:, 2]", [2, 6, 10]),
        ("t.T[1:3]", [1, 2, 5, 6, 9, 10]),
        ("t[::2, ::3]", [0, 3, 8, 11]),
        ("t[0, 0].expand(3)", [0]),
        ("t", list(range(12))),
    ],
)
def test_the_values_of_a_view(view: str, shown: Sequence[float]) -> None:
    story = Story(record(f"import torch\nt = torch.arange(12.0).view(3, 4)\nv = {view}\ntorch.neg(v)\n"))
    event = story.events[-1]
    assert sorted(values(story, event.operands[0].label, event.step)) == list(shown)


@pytest.mark.parametrize(
    ("call", "wide"),
    [
        ("torch.tensor(x)", "torch.tensor(x, dtype=torch.float64)"),
        ("torch.tensor(x, dtype=torch.float32)", "torch.tensor(x, dtype=torch.float64)"),
        ("torch.tensor(x, dtype=kind)", None),
        ("torch.as_tensor(x, **options)", None),
        ("x.float()", "x.double()"),
    ],
)
def test_a_conversion_gets_one_dtype(call: str, wide: str | None) -> None:
    program = Program(call)
    found = wider(program, ast.parse(call, mode="eval").body)
    new = None if found is None else re.sub(re.escape(program.segment(found[0])) + r"(?!\w)", found[1], call, count=1)
    assert new == wide
