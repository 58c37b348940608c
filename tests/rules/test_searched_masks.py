"""The first 1 of a row that has none: in other forms, and right programs that resemble them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch

torch.manual_seed(0)
texts = torch.tensor([[5, 7, 1, 0], [8, 9, 6, 4], [3, 1, 0, 0], [6, 6, 6, 6], [1, 0, 0, 0]])
states = torch.randn(5, 4, 3)
"""
WRONG = {
    "the state at the end": HEAD
    + """
def last(texts):
    end = (texts == 1).float().argmax(dim=1)  # PL413
    return states[torch.arange(5), end]
print(last(texts).sum())
""",
    "the largest of truth values": HEAD
    + """
class Reader(torch.nn.Module):
    def forward(self, texts, states):
        at = texts.eq(1).max(1).indices  # PL413
        return states.gather(1, at.view(-1, 1, 1).expand(-1, 1, 3))
print(Reader()(texts, states).sum())
""",
    "what comes before": HEAD
    + """
end = torch.argmax((texts == 1).long(), dim=-1, keepdim=True)  # PL413
print((torch.arange(4) < end).sum(1))
""",
    "one row after the other": HEAD
    + """
for text in texts:
    end = (text == 1).int().argmax()  # PL413
    print(text[end])
""",
    "the first crossing": HEAD
    + """
waves = torch.linspace(0, 1, 6) * torch.tensor([[0.5], [2.0], [3.0]])
crossing = (waves > 0.9).int().argmax(1) - 1  # PL413
print(waves.gather(1, crossing.clamp(min=0)[:, None]))
""",
    "lengths": HEAD
    + """
lengths = (texts == 1).int().argmax(1) + 1  # PL413
packed = torch.nn.utils.rnn.pack_padded_sequence(states, lengths, batch_first=True, enforce_sorted=False)
print(packed.data.shape)
""",
}
RIGHT = {
    "the program asks": HEAD
    + """
ends = texts == 1
end = torch.where(ends.any(1), ends.int().argmax(1), 3)
print(states[torch.arange(5), end].sum())
""",
    "it asks with the same comparison": HEAD
    + """
end = (texts == 1).int().argmax(1)
end[(texts == 1).sum(1) == 0] = 3
print(states[torch.arange(5), end].sum())
""",
    "it reads the mask at the places": HEAD
    + """
ends = texts == 1
end = ends.int().argmax(1)
found = ends[torch.arange(5), end]
print(states[torch.arange(5), end][found].sum())
""",
    "it uses the largest values": HEAD
    + """
found, end = (texts == 1).int().max(1)
print((states[torch.arange(5), end] * found[:, None]).sum())
""",
    "each row has one": HEAD
    + """
ends = torch.cat([texts == 1, torch.ones(5, 1, dtype=torch.bool)], 1)
end = ends.int().argmax(1).clamp(max=3)
print(states[torch.arange(5), end].sum())
""",
    "it is compared with 0": HEAD
    + """
end = (texts == 1).int().argmax(1)
end = torch.where((end == 0) & (texts[:, 0] != 1), 3, end)
print(states[torch.arange(5), end].sum())
""",
    "scores": HEAD
    + """
scores = torch.relu(torch.tensor([[-1.0, 1.0], [-1.0, -1.0]]))
print(states[0][scores.argmax(1)])
""",
    "written out": HEAD + "print((texts == 1).int().argmax(1))\n",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=True)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
