"""PL428 where scores are multiplied with a mask before a softmax."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """
import torch, torch.nn as nn, torch.nn.functional as F
torch.manual_seed(0)
q, k, v = (torch.randn(2, 4, 8, requires_grad=True) for _ in range(3))
past, legal = torch.tril(torch.ones(4, 4)), torch.tensor([[1.0, 0, 1, 1], [0, 1, 1, 1]])
scores, logits = q @ k.transpose(1, 2) / 8 ** 0.5, torch.randn(2, 4, requires_grad=True)
"""
WRONG = {
    "a causal mask": "out = (scores * past).softmax(-1) @ v",
    "the mask first": "out = F.softmax(past * scores, dim=-1) @ v",
    "scaled afterwards": "out = torch.softmax(scores * past / 2, -1) @ v",
    "actions": "probs = F.softmax(logits * legal, dim=-1)",
    "torch.mul": "out = torch.mul(scores, past).softmax(-1) @ v",
    "a mask for each head": "out = (scores[:, None] * past[None, None]).softmax(-1)",
}
RIGHT = {
    "filled": "out = scores.masked_fill(past == 0, float('-inf')).softmax(-1) @ v",
    "a product and a large number": "out = (scores * past - 1e9 * (1 - past)).softmax(-1) @ v",
    "filled after the product": "out = (scores * past).masked_fill(past == 0, float('-inf')).softmax(-1) @ v",
    "after the softmax, made shares again": "a = scores.softmax(-1) * past\nout = (a / a.sum(-1, keepdim=True)) @ v",
    "a temperature": "out = (scores * torch.full((4, 4), 2.0)).softmax(-1) @ v",
    "a learned gate": "gate = nn.Parameter(past.clone())\nout = (scores * gate).softmax(-1) @ v",
    "no softmax": "out = torch.relu(scores * past) @ v",
    "dropout of numbers": "out = (scores * (torch.rand(2, 4, 4) > 0.1) / 0.9).softmax(-1) @ v",
}


def rules(body: str) -> list[str]:
    return [finding.rule for finding in find(trace_program(HEAD + body + "\n"))]


@pytest.mark.parametrize("body", WRONG.values(), ids=list(WRONG))
def test_a_product_hides_nothing(body: str) -> None:
    assert "PL428" in rules(body)


@pytest.mark.parametrize("body", RIGHT.values(), ids=list(RIGHT))
def test_what_hides_or_means_no_mask_is_quiet(body: str) -> None:
    assert "PL428" not in rules(body)
