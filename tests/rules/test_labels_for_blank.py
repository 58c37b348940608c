"""PL953: a CTC loss whose blank is among the targets; and padded targets, where the number of the blank is no label."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program
from tests.rules.build import examined

HEAD = """import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
scores = torch.randn(12, 2, 4, requires_grad=True).log_softmax(2)
steps = torch.tensor([12, 12])
"""
FOUND = {
    "one row after the other": "nn.CTCLoss()(scores, torch.tensor([0, 1, 2, 1, 0]), steps, torch.tensor([3, 2]))",
    "padded rows": "nn.CTCLoss()(scores, torch.tensor([[0, 1, 2], [1, 2, 3]]), steps, torch.tensor([3, 2]))",
    "as a function": "F.ctc_loss(scores, torch.tensor([[2, 1, 2], [1, 3, 0]]), steps, torch.tensor([3, 2]), 2)",
    "the largest": "F.ctc_loss(scores, torch.tensor([3, 1, 1]), steps, torch.tensor([2, 1]), blank=3)",
}
RIGHT = {
    "padding is the blank": "nn.CTCLoss()(scores, torch.tensor([[1, 2, 3], [1, 2, 0]]), steps, torch.tensor([3, 2]))",
    "the last class": "nn.CTCLoss(3)(scores, torch.tensor([0, 1, 2, 1, 0]), steps, torch.tensor([3, 2]))",
    "numbered from 1": "nn.CTCLoss()(scores, torch.tensor([3, 1, 2, 1, 1]), steps, torch.tensor([3, 2]))",
    "lengths of lists": "F.ctc_loss(scores, torch.tensor([[1, 2, 3], [1, 2, 0]]), [12, 12], [3, 2])",
}


def traced(call: str) -> Trace:
    return trace_program(f"{HEAD}loss = {call}\nloss.backward()\n", "program.py")


@pytest.mark.parametrize("name", FOUND)
def test_a_blank_among_the_targets_is_found(name: str) -> None:
    (finding,) = find(traced(FOUND[name]))
    assert (finding.rule, finding.span.line) == ("PL953", 8)


@pytest.mark.parametrize("name", RIGHT)
def test_a_blank_that_is_no_label_is_not(name: str) -> None:
    assert find(traced(RIGHT[name])) == []


def test_where_no_class_is_left_for_the_blank_none_is_offered(shop: Workshop) -> None:
    text = plain(f"{HEAD}loss = {FOUND['the largest']}\nloss.backward()\n")
    (finding,) = examined(shop, text)
    assert not finding.fixes
    assert "one more is needed for the blank" in finding.explanation.en
