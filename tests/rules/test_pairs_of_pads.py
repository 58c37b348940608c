"""PL470: amounts of a padding whose pairs are exchanged; and paddings that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.rand(1, 3, 30, 45)
"""
WRONG = {
    "multiples of 8, in a function": HEAD
    + """
def padded(image, m=8):
    a, b = image.shape[-2:]
    return F.pad(image, (0, -a % m, 0, -b % m))  # PL470
print(padded(x).mean())
""",
    "both sides, multiples of 32, other names": HEAD
    + """
class Pad(torch.nn.Module):
    def forward(self, t):
        one, two = -t.shape[2] % 32, -t.shape[3] % 32
        amounts = [one // 2, one - one // 2, two // 2, two - two // 2]
        return F.pad(t, pad=amounts, mode="reflect")  # PL470
print(Pad()(x).shape, Pad()(x).mean())
""",
    "a letterbox": HEAD
    + """
x = x[..., 1:, 1:]
missing = x.shape[3] - x.shape[2]
print(F.pad(x, (missing // 2, missing - missing // 2, 0, 0)).mean())  # PL470
""",
    "up to one size": HEAD
    + """
print(F.pad(x[0], (0, 60 - x.shape[2], 0, 60 - x.shape[3]), value=0.5).mean())  # PL470
""",
    "patches of 4": HEAD
    + """
y = F.pad(x, (0, 2, 0, 3))  # PL470
print(F.conv2d(y, torch.randn(2, 3, 4, 4), stride=4).sum())
""",
    "only the names show it": HEAD
    + """
kh, kw = 3, 5
y = F.pad(x, (kh // 2, kh // 2, kw // 2, kw // 2))  # PL470
print(F.conv2d(y, torch.randn(2, 3, kh, kw)).sum())
""",
}
RIGHT = {
    "multiples of 8": HEAD
    + """
def padded(image, m=8):
    a, b = image.shape[-2:]
    return F.pad(image, (0, -b % m, 0, -a % m))
print(padded(x).mean())
""",
    "a letterbox": HEAD
    + """
missing = x.shape[3] - x.shape[2]
print(F.pad(x, (0, 0, missing // 2, missing - missing // 2)).mean())
""",
    "one size": HEAD
    + """
top, left = 34, 19
print(F.pad(x, (left, 64 - 45 - left, top, 64 - 30 - top)).mean(), F.pad(x, (0, 5, 0, 20)).mean())
""",
    "a size that is no square; its exchange would be one": HEAD
    + """
print(F.pad(torch.rand(1, 3, 96, 160), (0, 96, 0, 32)).mean())
""",
    "as large as a skip connection": HEAD
    + """
skip = torch.rand(1, 3, 33, 47)
print(torch.cat([skip, F.pad(x, (0, 2, 0, 3))], 1).mean())
""",
    "a long kernel": HEAD
    + """
pw, ph = 2, 1
print(F.conv2d(F.pad(x, (pw, pw, ph, ph)), torch.randn(2, 3, 3, 5)).sum())
""",
    "only rows before, as a causal convolution": HEAD
    + """
print(F.conv2d(F.pad(x, (1, 1, 2, 0)), torch.randn(2, 3, 3, 3)).sum(), F.pad(x, (0, 0, 0, 9)).sum())
""",
    "steps of a sequence": HEAD
    + """
s = torch.rand(4, 30, 24)
print(F.pad(s, (0, 0, 0, 6)).sum(), F.pad(s, (0, 0, 0, 40 - 30)).sum())
""",
    "width before height": HEAD
    + """
w, h = x.shape[-2:]
pad_h, pad_w = 3, 4
print(F.pad(x, (pad_h, pad_h, pad_w, pad_w)).sum())
""",
    "equal amounts": HEAD
    + """
top, bottom, left, right = 1, 1, 1, 1
print(F.pad(x, (top, bottom, left, right)).sum())
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_exchanged_amounts_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_amounts_for_their_own_dimension_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
