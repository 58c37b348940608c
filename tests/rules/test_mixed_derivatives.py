"""PL344 for some of the columns: which are differentiated as one sum, and which are used."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
x = torch.rand(6, 3, requires_grad=True)
(g,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
"""
WRONG = {
    "the first two of three columns": HEAD
    + """
(second,) = torch.autograd.grad(g[:, :2].sum(), x)  # PL344
print(second[:, :2].sum(dim=1))
""",
    "two columns, taken as a part": HEAD
    + """
second = torch.autograd.grad(g[..., 0:2].sum(), x)[0]  # PL344
print(second[:, 0] + second[:, 1])
""",
}
RIGHT = {
    "one column": HEAD
    + """
(second,) = torch.autograd.grad(g[:, :1].sum(), x, retain_graph=True)
(third,) = torch.autograd.grad(g[:, 2].sum(), x)
print(second[:, 0], third[:, 2])
""",
    "one after the other": HEAD
    + """
print(sum(torch.autograd.grad(g[:, i].sum(), x, retain_graph=True)[0][:, i] for i in range(2)))
""",
}


def test_columns_that_are_differentiated_as_one_sum(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_single_columns_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
