"""Resampling by weights: all rows drawn without replacement, and draws that are right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
x = torch.randn(50, 2)
w = (-(x - 1).square().sum(1)).softmax(0)
"""
WRONG = {
    "attributes, a generator": """
class Filter:
    def __init__(self, n):
        self.n, self.gen = n, torch.Generator().manual_seed(0)
        self.x, self.log_w = torch.randn(n, 2), torch.zeros(n)
    def resample(self):
        picked = torch.multinomial(self.log_w.exp(), self.n, generator=self.gen)  # PL963
        self.x = self.x[picked]
        self.log_w = torch.zeros(self.n)
f = Filter(40)
f.log_w -= f.x[:, 0].square()
f.resample()
print(f.x.mean(0))
""",
    "a method, index_select, several at once": HEAD
    + """
picked = w.multinomial(len(w), False)  # PL963
x, w = x.index_select(0, picked), torch.full_like(w, 1 / 50)
print(x.mean(0), w.sum())
""",
}
RIGHT = {
    "with replacement, or fewer": HEAD
    + """
x = x[torch.multinomial(w, 50, replacement=True)]
x = x[torch.multinomial(w, 20)]
print(x.mean(0))
""",
    "an order by weights, equal weights": HEAD
    + """
order = torch.multinomial(w, 50)
ranked = x[order]
x = x[torch.multinomial(torch.ones(50), 50)]
print(ranked.sum(), x.sum())
""",
}


def test_rows_that_are_all_drawn_once_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_draws_that_choose_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
