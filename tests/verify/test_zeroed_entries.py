"""Zeros written by an index or a mask that come first in a ranking are counted in the trace."""

from __future__ import annotations

import pytest

from pitfall_lab.verify import trace_program

HEAD = """import torch
x = -torch.arange(1.0, 13).view(3, 4)
seen = torch.tensor([[0, 1], [0, 2], [0, 1]])
some = torch.zeros(3, 4, dtype=torch.bool).scatter(1, seen, True)
"""


def counted(text: str) -> list[tuple[int, int, float]]:
    """Of each ranking: the zeros in first places, the places, and the best number that was left over."""
    beside = trace_program(HEAD + text).beside
    return [(each.count, each.of, each.numbers[0]) for each in beside.counted if each.kind == "zeroed"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("x.scatter_(1, seen, 0.0)\nx.topk(3)", (3, 9, -4.0)),
        ("x.scatter(1, seen, torch.zeros(3, 2)).argmax(1)", (3, 3, -3.0)),
        ("x[torch.arange(3)[:, None], seen] = 0\nx.max(dim=1)", (3, 3, -3.0)),
        ("x[some] = torch.tensor(0.0)\ntorch.sort(x, descending=True)", (3, 3, -3.0)),
        ("torch.masked_fill(x, some, 0).amax(1)", (3, 3, -3.0)),
        ("x.index_fill_(1, torch.tensor([0, 3]), 0)\n(x.max(), x.detach().topk(1))", (1, 1, -2.0)),
        ("x.neg_().fill_diagonal_(0)\nx.argmin(1)", (3, 3, 2.0)),
        ("with torch.inference_mode():\n    y = x * 2\n    y[some] = 0\n    y.topk(1)", (3, 3, -6.0)),
    ],
)
def test_zeros_that_are_ranked_first_are_counted(text: str, found: tuple[int, int, float]) -> None:
    assert counted(text)[0] == found


@pytest.mark.parametrize(
    "text",
    [
        "x.scatter_(1, seen, -1e9)\nx.topk(3)",
        "x[:, 0] = 0\nx.argmax(1)",
        "x.index_fill_(1, torch.tensor([2]), 0)\nx.argmax(1)",
        "x.neg_().scatter_(1, seen, 0.0)\nx.topk(2)",
        "x.neg_()[some] = 0\nx.sort()",
        "x[some] = 0\nx.abs().topk(1)",
        "x[0, 3] = 0\nx.scatter_(1, seen, 0.0)\nx.topk(1)",
        "x[some] = 0\nx[some] = -99\nx.topk(1)",
    ],
)
def test_what_never_wins_is_not_counted(text: str) -> None:
    assert counted(text) == []
