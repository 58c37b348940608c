"""PL774 where a calibration error is computed for each batch and averaged; and where it is computed once."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
probs = torch.softmax(2 * torch.randn(160, 3), 1)
labels = torch.multinomial(probs, 1).squeeze(1)
loader = DataLoader(TensorDataset(probs, labels), batch_size=16)
def gap(p, y):
    best, guess = p.max(1)
    right = (guess == y).float()
    error = torch.zeros(())
    for low in (0.2, 0.4, 0.6, 0.8):
        here = (best > low) & (best <= low + 0.2)
        if here.any():
            error = error + (best[here].mean() - right[here].mean()).abs() * here.float().mean()
    return error
"""
WRONG = {
    "collected": HEAD
    + """
each = []
for p, y in loader:
    each.append(gap(p, y))
print(torch.stack(each).mean())  # PL774
""",
    "added up as Python numbers": HEAD
    + """
total = 0.0
for p, y in loader:
    total += gap(p, y).item()
print(total / len(loader))  # PL774
""",
}
RIGHT = {
    "once, and signed gaps averaged": HEAD
    + """
print(gap(probs, labels))
each = []
for p, y in loader:
    each.append(p.max(1).values.mean() - (p.argmax(1) == y).float().mean())
print(torch.stack(each).mean())
""",
    "for each batch, only shown": HEAD
    + """
for p, y in loader:
    print(gap(p, y).item())
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_an_average_of_binned_errors_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL774",))


@pytest.mark.parametrize("name", RIGHT)
def test_errors_of_all_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
