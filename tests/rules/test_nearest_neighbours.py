"""PL949: the farthest taken for the nearest, however that is written; and programs that rightly take the farthest."""

from __future__ import annotations

import pytest

from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program

HEAD = """import torch
import torch.nn.functional as F

torch.manual_seed(0)
centre = torch.randn(3, 4) * 3
y, t = torch.arange(30) % 3, torch.arange(12) % 3
x, q = centre[y] + torch.randn(30, 4), centre[t] + torch.randn(12, 4)
"""
FOUND = {
    "topk, and a mode": """
near = torch.cdist(q, x).topk(5, dim=1)[1]  # here
print((y[near].mode(1).values == t).float().mean())
""",
    "sorted, and votes counted": """
d = ((q[:, None] - x) ** 2).sum(-1).sqrt()
near = d.argsort(dim=1, descending=True)[:, :5]  # here
votes = F.one_hot(y[near], 3).sum(1)
print((votes.argmax(1) == t).float().mean())
""",
    "the last ones of an order": """
def neighbours(a, b, k):
    d = torch.linalg.norm(a.unsqueeze(1) - b.unsqueeze(0), dim=2)
    return torch.sort(d, dim=1).indices[:, -k:]  # here
found = torch.gather(y.expand(12, 30), 1, neighbours(q, x, 3))
print((found.mode(1).values == t).sum())
""",
    "one example, and bincount": """
for row, label in zip(q[:2], t):
    near = torch.topk((x - row).norm(dim=1), 5).indices  # here
    print(y[near].bincount(minlength=3).argmax() == label)
""",
    "targets that are averaged": """
value = x.sum(1)
near = torch.cdist(q, x).topk(4).indices  # here
print(F.mse_loss(value[near].mean(1), q.sum(1)))
""",
    "the class of the farthest centre": """
d = torch.cdist(q, torch.stack([x[y == c].mean(0) for c in range(3)]))
print((d.argmax(1) == t).float().mean())  # here
""",
    "the most different by angle": """
likeness = F.normalize(q, dim=1) @ F.normalize(x, dim=1).T
near = likeness.topk(5, dim=1, largest=False).indices  # here
print((y[near].mode(1).values == t).float().mean())
""",
    "an order that begins with the least alike": """
likeness = F.cosine_similarity(q[:, None], x[None], dim=-1)
near = likeness.argsort(1)[:, 0]  # here
print((y[near] == t).float().mean())
""",
}
RIGHT = {
    "the nearest": """
d = torch.cdist(q, x)
print(y[d.topk(5, dim=1, largest=False)[1]].mode(1).values, y[d.argsort(1)[:, :3]].mode(1).values)
print((-d).topk(5).indices, (y[(-d).topk(5).indices].mode(1).values == t).sum(), (y[d.argmin(1)] == t).sum())
print(y[(1 / (1 + d)).topk(5).indices].mode(1).values, y[torch.exp(-d).argmax(1)] == t)
""",
    "the most alike": """
likeness = F.normalize(q, dim=1) @ F.normalize(x, dim=1).T
print((y[likeness.topk(5, dim=1).indices].mode(1).values == t).float().mean(), y[likeness.argmax(1)] == t)
print((y[(1 - likeness).argmin(1)] == t).sum())
""",
    "the farthest points are chosen": """
chosen = [0]
for _ in range(4):
    d = torch.cdist(x, x[chosen]).min(1).values
    chosen.append(d.argmax().item())
print(y[torch.tensor(chosen)].bincount())
""",
    "the hardest of a class": """
d = torch.cdist(x, x)
same = y[:, None] == y
hard = d.masked_fill(~same, 0).argmax(1)
easy = d.masked_fill(same, 1e9).argmin(1)
print((y[hard] == y).all(), (d.gather(1, hard[:, None]) - d.gather(1, easy[:, None]) + 1).relu().mean())
print((d * same).max(1).values.mean())
""",
    "what is unusual": """
d = (x - x.mean(0)).norm(dim=1)
odd = d.topk(5).indices
print(y[odd].bincount(minlength=3), y[odd].mode().values)
""",
    "both ends are looked at": """
d = torch.cdist(q, x)
near, far = d.topk(3, largest=False).indices, d.topk(3).indices
print((y[near] == t[:, None]).float().mean(1), (y[far] == t[:, None]).float().mean(1))
""",
    "scores of a layer": """
score = torch.nn.Linear(4, 3)(q)
print((score.argmax(1) == t).float().mean(), (score.topk(2).indices == t[:, None]).any(1).sum())
""",
    "errors of the rows": """
error = (q - centre[t]).square().sum(1)
worst = error.topk(4).indices
print(t[worst].mode().values, error[worst])
""",
    "distances to a few, added up": """
far = torch.cdist(x, q).sum(1).topk(5).indices
print(y[far].mode().values)
""",
}


@pytest.mark.parametrize("name", FOUND)
def test_the_farthest_are_found_where_they_are_taken(name: str) -> None:
    text = HEAD + FOUND[name]
    found = [(each.rule, each.span.line) for each in find(trace_program(text)) if each.span and each.rule == "PL949"]
    assert found == [("PL949", 1 + text[: text.index("# here")].count("\n"))]


@pytest.mark.parametrize("name", RIGHT)
def test_programs_that_resemble_them_draw_nothing(name: str) -> None:
    assert "PL949" not in {each.rule for each in find(trace_program(HEAD + RIGHT[name]))}
