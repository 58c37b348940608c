"""PL718 where a table that two layers share is made larger or smaller: both get the same numbers, in two parameters."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

MODEL = """
torch.manual_seed(0)
class Model(nn.Module):
    def __init__(self, tied=True):
        super().__init__()
        self.emb, self.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        if tied:
            self.head.weight = self.emb.weight
    def forward(self, x):
        return self.head(self.emb(x))
def fit(net, count):
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        x = torch.arange(count)
        update(opt, F.cross_entropy(net(x), x.flip(0)))
net = Model()
fit(net, 6)
"""
WRONG = {
    "grown by a mean": MODEL
    + """
def grow(net, extra):
    old = net.emb.weight.data
    new = torch.cat((old, old.mean(0, keepdim=True).expand(extra, 4)))
    net.emb, net.head = nn.Embedding(6 + extra, 4), nn.Linear(4, 6 + extra, bias=False)
    net.emb.weight.data.copy_(new)
    net.head.weight.data.copy_(new)  # PL718
grow(net, 2)
fit(net, 8)
""",
    "under no_grad, the head first": MODEL
    + """
with torch.no_grad():
    table = torch.cat([net.head.weight, torch.zeros(1, 4)])
    net.head, net.emb = nn.Linear(4, 7, bias=False), nn.Embedding(7, 4)
    net.head.weight.copy_(table)
    net.emb.weight.copy_(table)  # PL718
fit(net, 7)
""",
    "fewer words": MODEL
    + """
kept = net.emb.weight.detach()[torch.tensor([0, 2, 3, 5])]
net.emb, net.head = nn.Embedding(4, 4), nn.Linear(4, 4, bias=False)
net.emb.weight.data.copy_(kept)
net.head.weight.data.copy_(kept)  # PL718
fit(net, 4)
""",
    "two parameters of copies": MODEL
    + """
new = torch.cat((net.emb.weight.detach(), torch.randn(3, 4)))
net.emb.weight = nn.Parameter(new.clone())
net.head.weight = nn.Parameter(new.clone())  # PL718
fit(net, 9)
""",
    "in a method": MODEL
    + """
class Larger(Model):
    def grow(self):
        old = self.emb.weight.data.clone()
        self.emb, self.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
        full = torch.vstack([old, torch.randn(2, 4)])
        with torch.no_grad():
            self.emb.weight.copy_(full)
            self.head.weight.copy_(full)  # PL718
net = Larger()
fit(net, 6)
net.grow()
fit(net, 8)
""",
    "rounded numbers": MODEL
    + """
coarse = (net.emb.weight.detach() * 8).round() / 8
net.emb, net.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
net.emb.weight.data.copy_(coarse)
net.head.weight.data.copy_(coarse)  # PL718
fit(net, 6)
""",
}
RIGHT = {
    "tied again": MODEL
    + """
new = torch.cat((net.emb.weight.data, torch.zeros(2, 4)))
net.emb, net.head = nn.Embedding(8, 4), nn.Linear(4, 8, bias=False)
net.emb.weight.data.copy_(new)
net.head.weight = net.emb.weight
fit(net, 8)
""",
    "never tied, and begun with the same vectors": MODEL
    + """
vectors, other = torch.randn(6, 4), Model(tied=False)
other.emb.weight.data.copy_(vectors)
other.head.weight.data.copy_(vectors)
fit(other, 6)
""",
    "two that were apart, each from its own": MODEL
    + """
other = Model(tied=False)
fit(other, 6)
emb, head = (torch.cat((w.weight.data, torch.zeros(1, 4))) for w in (other.emb, other.head))
other.emb, other.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
other.emb.weight.data.copy_(emb)
other.head.weight.data.copy_(head)
fit(other, 7)
""",
    "a copy that is only looked at": MODEL
    + """
before = nn.Embedding(6, 4)
before.weight.data.copy_(net.emb.weight.data.round())
fit(net, 6)
print((before.weight - net.emb.weight).abs().max())
""",
    "two models from one table": MODEL
    + """
table = net.emb.weight.data * 1.0
one, other = Model(), Model()
one.emb.weight.data.copy_(table)
other.emb.weight.data.copy_(table)
fit(one, 6)
fit(other, 6)
""",
    "the table changed between": MODEL
    + """
table = net.emb.weight.data * 1.0
net.emb, net.head = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
net.emb.weight.data.copy_(table)
table.normal_()
net.head.weight.data.copy_(table)
fit(net, 6)
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found_however_they_are_written(title: str, shop: Workshop) -> None:
    assert_found(shop, together({title: WRONG[title]}), only=("PL718",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
