"""Rows that workers read more than once, and rows that depend on each other where a derivative is taken row by row."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

STREAM = """
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
{before}
class Rows(IterableDataset):
    def __init__(self, count):
        self.count = count
{body}
for batch in DataLoader(Rows(8), batch_size=2, num_workers={workers}{more}):  {mark}
    batch.sum()
"""


def stream(body: str, *, before: str = "", workers: int = 2, more: str = "", mark: str = "") -> str:
    """A program that reads a stream of eight numbers with workers."""
    lines = "\n".join(f"    {line}" for line in body.strip("\n").split("\n"))
    return STREAM.format(body=lines, before=before, workers=workers, more=more, mark=mark)


WHOLE = {
    "a method that yields": stream("""
def lines(self):
    yield from (torch.tensor(i) for i in range(self.count))
def __iter__(self):
    return self.lines()
""", mark="# PL988"),
    "a function of the module": stream("""
def __iter__(self):
    return iter(read(self.count))
""", before="""
def read(count):
    for i in range(count):
        yield torch.tensor(i)
""", workers=3, mark="# PL988"),
}  # fmt: skip
SHARED = {
    "each asks which worker it is": stream("""
def __iter__(self):
    info = get_worker_info()
    return iter(torch.arange(self.count)[info.id::info.num_workers])
"""),
    "a function asks": stream("""
def __iter__(self):
    return (torch.tensor(i) for i in mine(range(self.count)))
""", before="""
def mine(rows):
    info = get_worker_info()
    return rows[info.id::info.num_workers]
"""),
    "each draws its own": stream("""
def __iter__(self):
    for _ in range(self.count):
        yield torch.randn(2)
"""),
    "prepared by the loader": stream("""
def __iter__(self):
    return iter(torch.arange(self.first, self.count, 2))
""", before="""
def prepare(number):
    get_worker_info().dataset.first = number
""", more=", worker_init_fn=prepare"),
    "one worker": stream("""
def __iter__(self):
    return iter(torch.arange(self.count))
""", workers=1),
}  # fmt: skip

PENALTY = """
import torch
from torch import nn

torch.manual_seed(0)
class Critic(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.first, self.norm, self.last = nn.Conv1d(2, 4, 3), norm, nn.Linear(24, 1)
    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))).flatten(1))

critic = Critic({norm}){more}
mixed = torch.rand(5, 2, 8, requires_grad=True)
scores = critic(mixed)
(slope,) = torch.autograd.grad({outputs}, mixed{given}, create_graph=True)  {mark}
((slope.flatten(1).norm(dim=1) - 1) ** 2).mean().add(scores.mean()).backward()
"""


def penalty(norm: str, outputs: str, given: str = "", *, more: str = "", mark: str = "") -> str:
    """A program that penalizes the slope of a critic at each row."""
    return PENALTY.format(norm=norm, outputs=outputs, given=given, more=more, mark=mark)


MIXED = {
    "a gradient penalty": penalty("nn.BatchNorm1d(4)", "scores.sum()", mark="# PL530"),
    "with a gradient of ones": penalty("nn.BatchNorm1d(4)", "scores", ", torch.ones_like(scores)", mark="# PL530"),
}
APART = {
    "a group norm": penalty("nn.GroupNorm(2, 4)", "scores.sum()"),
    "in evaluation mode": penalty("nn.BatchNorm1d(4)", "scores.sum()", more=".eval()"),
    "behind nothing that is differentiated": penalty("nn.Identity()", "scores.sum()"),
    "weights of an inner step": """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
weight, norm = nn.Parameter(torch.randn(6, 3)), nn.BatchNorm1d(6)
x, y = torch.randn(6, 3), torch.randn(6, 6)
fast = weight * 1.0
loss = F.mse_loss(norm(F.linear(x, fast)), y)
(slope,) = torch.autograd.grad(loss, fast, create_graph=True)
F.mse_loss(norm(F.linear(x, fast - 0.1 * slope)), y).backward()
""",
}


@pytest.mark.parametrize("title", [*WHOLE, *MIXED])
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, (WHOLE | MIXED)[title], repaired=True)


@pytest.mark.parametrize("title", [*SHARED, *APART])
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, (SHARED | APART)[title])
