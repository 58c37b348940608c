"""PL964 where answers of a shuffling loader say which rows of other data to take."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(3)
x = torch.randn(24, 3)
y = (x[:, 0] > 0).long()
names = torch.arange(24) + 500
loader = DataLoader(TensorDataset(x, y, torch.arange(24)), batch_size=6, shuffle=True)
net = torch.nn.Linear(3, 1)
def collect(loader):
    scores, labels, rows = [], [], []
    with torch.no_grad():
        for a, b, c in loader:
            scores.append(net(a).squeeze(1)); labels.append(b); rows.append(c)
    return torch.cat(scores), torch.cat(labels), torch.cat(rows)
scores, labels, rows = collect(loader)
"""
WRONG = {
    "the largest": "print(names[scores.topk(5).indices])",
    "a sort": "print(names[scores.argsort(descending=True)[:5]])",
    "the second result of a sort": "order = torch.sort(scores)[1]\nprint(x[order][:3])",
    "a mask": "print(names[scores > 0.2])",
    "positions of a mask": "print(y[(scores > 0.2).nonzero().squeeze(1)])",
    "index_select": "print(torch.index_select(names, 0, scores.sigmoid().topk(3).indices))",
    "a comparison": "print(((scores > 0) == y).float().mean())",
}
RIGHT = {
    "rows of the same pass": "print(rows[scores.topk(5).indices])",
    "labels of the same pass": "print(labels[scores > 0.2].float().mean())",
    "names by the rows of the same pass": "print(names[rows[scores.topk(5).indices]])",
    "rows put back": "back = torch.empty(24)\nback[rows] = scores\nprint(names[back.topk(5).indices])",
    "a loader in order": "s, _, _ = collect(DataLoader(loader.dataset, batch_size=6))\nprint(names[s.topk(5).indices])",
    "its own numbers": "print(scores[scores.topk(5).indices], scores[scores > 0])",
    "places of a picture": "table = torch.linspace(0, 1, 24)\nprint(table[torch.arange(24)].sum() + scores.sum())",
    "a random choice": "print(names[torch.randperm(24)[:5]])",
}


def rules(body: str) -> list[str]:
    return [finding.rule for finding in find(trace_program(HEAD + body + "\n"))]


@pytest.mark.parametrize("body", WRONG.values(), ids=list(WRONG))
def test_rows_in_another_order_are_found(body: str) -> None:
    assert "PL964" in rules(body)


@pytest.mark.parametrize("body", RIGHT.values(), ids=list(RIGHT))
def test_rows_of_the_same_order_are_right(body: str) -> None:
    assert "PL964" not in rules(body)
