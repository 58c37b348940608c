"""PL828: histograms over ranges of their own that are compared bin by bin; and programs where it is right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

DATA = """
draw = torch.Generator().manual_seed(1)
old, new = torch.randn(300, generator=draw), 2 * torch.randn(300, generator=draw) + 4
"""
WRONG = {
    "a stability index of a function": DATA
    + """
def shares(data):
    counts = torch.histc(data, bins=8) + 0.5  # PL828
    return counts / counts.sum()
def index(one, other):
    p, q = shares(one), shares(other)
    return ((q - p) * (q / p).log()).sum()
print(index(old, new))
""",
    "an overlap": DATA
    + """
p = old.histc(6)  # PL828
q = new.histc(6)
print(torch.minimum(p / p.sum(), q / q.sum()).sum())
""",
    "a divergence": DATA
    + """
class Drift:
    def __init__(self, data):
        self.data = data
    def __call__(self, data):
        base, _ = torch.histogram(self.data, bins=5, density=True)  # PL828
        now, _ = torch.histogram(data, bins=5, density=True)
        return F.kl_div((now + 1e-3).log(), base + 1e-3, reduction="sum")
print(Drift(old)(new))
""",
    "counts that are cut to limits": DATA
    + """
total = 0
def cut(x):
    return (10 * x).clamp(-300, 300)
p, q = (torch.histc(cut(x), 6) for x in (old, new))  # PL828
print((p - q).abs().mean())
""",
}
RIGHT = {
    "one range": DATA
    + """
low, high = float(min(old.min(), new.min())), float(max(old.max(), new.max()))
p, q = (torch.histc(x, 6, low, high) for x in (old, new))
base = torch.histogram(old, 6)
print((p - q).abs().sum(), base.hist - torch.histogram(new, base.bin_edges).hist)
print(torch.histogram(old, 6, range=(low, high))[0] - torch.histogram(new, 6, range=(low, high))[0])
""",
    "each by itself": DATA
    + """
p, q = torch.histc(old, 6), torch.histc(new, 6)
print(p / p.sum(), (q / q.sum()).cumsum(0), p.argmax(), q.max(), torch.stack([p, q]))
""",
    "data that go to the same ends": DATA
    + """
def unit(x):
    return (x - x.min()) / (x.max() - x.min())
p, q = torch.histc(unit(old), 5), torch.histc(unit(new), 5)
r, s = torch.histc(torch.sigmoid(old), 5), torch.histc(torch.sigmoid(new), 5)
print(p - q, r - s, torch.histc(torch.tensor([0.0, 1, 3]), 2) - torch.histc(torch.tensor([0.0, 3, 3]), 2))
""",
    "the same data": DATA
    + """
p, q = torch.histc(old, 5), torch.histc(old.view(30, 10), 5)
print(p - q)
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL828",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
