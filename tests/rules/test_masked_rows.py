"""Which row a mask leaves without a score, and where the mask is repaired; a copy that
is taken with its graph again.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find

MASKED = """\
import torch
import torch.nn.functional as F

torch.manual_seed(0)
w = torch.randn(4, 4, requires_grad=True)
x = torch.randn(2, 5, 4)
scores = x @ w @ x.transpose(1, 2)
MASK
weights = F.softmax(scores, dim=-1)
loss = (weights @ x).square().mean()
loss.backward()
"""
COPIED = """\
import torch

torch.manual_seed(0)
start = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(start.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
for _ in range(3):
    w, b = [p.detach().clone().requires_grad_() for p in start.parameters()]
    loss = (x @ w.t() + b - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
"""


@pytest.mark.parametrize(("mask", "row", "repaired"), [
    ("scores = scores.masked_fill(~torch.ones(5, 5).tril(-1).bool(), -torch.inf)", "[0, 0, :]", ".tril(0)"),
    ("hidden = torch.triu(torch.ones(5, 5)) == 1\nscores = scores.masked_fill(hidden, float('-inf'))", "[0, 0, :]",
    "diagonal=1)"),
])  # fmt: skip
def test_the_row_without_a_score_is_named_and_the_mask_repaired(
    shop: Workshop, mask: str, row: str, repaired: str
) -> None:
    subject = Subject(MASKED.replace("MASK", mask), "program.py")
    trace = shop.trace(subject)
    (finding,) = tried(shop, subject, trace, [f for f in find(trace) if f.rule == "PL808"])
    assert row in finding.message.en
    assert "masked" in [related.role for related in finding.related]
    assert finding.fixes[0].verified
    assert repaired in finding.fixes[0].edits[0].text


def test_parameters_that_were_copied_without_their_graph_are_copied_with_it(shop: Workshop) -> None:
    subject = Subject(COPIED, "program.py")
    trace = shop.trace(subject)
    (finding,) = tried(shop, subject, trace, [f for f in find(trace) if f.rule == "PL632"])
    assert finding.message.en.startswith(
        "Line 8 (`p.detach()`) makes new tensors from those that this SGD holds, without their graph"
    )
    assert [edit.text.strip() for edit in finding.fixes[0].edits] == ["w, b = [p.clone() for p in start.parameters()]"]
    assert finding.fixes[0].verified
