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


PATH = (
    HEAD
    + """
loss = F.ctc_loss(scores, torch.tensor([[1, 1]] * 2), steps, torch.tensor([2, 2]), blank={blank})
loss.backward()
path = torch.tensor([1, 1, 3, 1, 0, 1, 2])
"""
)
REMOVED_FIRST = {
    "a method": (3, "print(path[path != 3].unique_consecutive())"),
    "a function, the path taken anew": (0, "path = path[path.ne(0)]\nprint(torch.unique_consecutive(path))"),
    "masked_select": (0, "kept = torch.masked_select(path, torch.ne(path, 0))\nprint(kept.unique_consecutive())"),
    "rows of a batch": (
        3,
        "for row in path.repeat(2, 1):\n    row = row[row != 3]\n    print(row.unique_consecutive())",
    ),
}
MERGED_FIRST = {
    "merged first": (3, "path = path.unique_consecutive()\nprint(path[path != 3])"),
    "another number is removed": (0, "print(path[path != 2].unique_consecutive())"),
    "no label comes twice": (0, "few = path[3:5]\nprint(few[few != 0].unique_consecutive())"),
    "merged again": (
        3,
        "path = path.unique_consecutive()\npath = path[path != 3]\nprint(path[path != 1].unique_consecutive())",
    ),
}


@pytest.mark.parametrize("name", REMOVED_FIRST)
def test_blanks_that_are_removed_before_labels_are_merged(name: str, shop: Workshop) -> None:
    blank, text = REMOVED_FIRST[name]
    found = [each for each in examined(shop, plain(PATH.format(blank=blank) + text + "\n")) if each.rule == "PL958"]
    assert len(found) == 1


@pytest.mark.parametrize("name", MERGED_FIRST)
def test_labels_that_are_merged_first_are_right(name: str) -> None:
    blank, text = MERGED_FIRST[name]
    assert [each.rule for each in find(trace_program(PATH.format(blank=blank) + text + "\n", "program.py"))] == []
