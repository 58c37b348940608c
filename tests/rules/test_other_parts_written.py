"""PL101 where the write changes another part of the saved storage than backward needs."""

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import examined

AFTER_ANOTHER = "writes into another part of"

DECODER = """
import torch
from torch import nn

torch.manual_seed(0)
cell = nn.GRUCell(2, 3)
states = torch.zeros(4, 2, 3)
for t in range(3):
    states[t + 1] = cell(torch.ones(2, 2), states[t])
states.sum().backward()
"""
ROW = """
import torch

w = torch.ones(3, 3, requires_grad=True)
h = w * 2
row = h[0]
y = row.exp() + row.square()
h[1:].{write}
(y.sum() + h.sum()).backward()
"""
SAME = """
import torch

w = torch.ones(3, 3, requires_grad=True)
h = w * 2
y = h[0].square()
h[{index}] = 0.0
y.sum().backward()
"""


@pytest.mark.parametrize("program", [DECODER, ROW.format(write="zero_()"), ROW.format(write="mul_(2)"),
                                     SAME.format(index=1), SAME.format(index="1:, 0")])  # fmt: skip
def test_a_write_to_other_elements_is_told_as_one(shop: Workshop, program: str) -> None:
    (finding,) = [one for one in examined(shop, program) if one.rule == "PL101"]
    assert AFTER_ANOTHER in finding.message.en


@pytest.mark.parametrize("index", ["0", "0, 1", "...", "torch.tensor([1])", ":, 2"])
def test_a_write_to_needed_or_unknown_elements_is_not(shop: Workshop, index: str) -> None:
    (finding,) = [one for one in examined(shop, SAME.format(index=index)) if one.rule == "PL101"]
    assert AFTER_ANOTHER not in finding.message.en
