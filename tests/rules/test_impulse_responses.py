"""PL479: falling responses that meet the oldest sample first; and weights in the right order."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
x = torch.rand(40)
lag = torch.arange(12) * 0.1
kernel = torch.exp(-lag / 0.3)
"""
WRONG = {
    "padded before": HEAD
    + """
padded = F.pad(x.view(1, 1, -1), (len(kernel) - 1, 0))  # made
print(F.conv1d(padded, kernel.view(1, 1, -1)).mean())  # PL479
""",
    "padded by the call, the end cut off": HEAD
    + """
full = F.conv1d(x[None, None], kernel[None, None], padding=11)  # PL479
level = full[..., :len(x)]
print(level.sum())
""",
    "a weighted mean, in a class": HEAD
    + """
class Smoother:
    def __init__(self, gamma, length):
        weights = gamma ** torch.arange(length)
        self.weights = (weights / weights.sum()).reshape(1, 1, length)

    def __call__(self, series):
        held = F.pad(series, (self.weights.shape[-1] - 1, 0), mode="replicate")  # made
        return F.conv1d(held, self.weights)  # PL479

print((Smoother(0.7, 8)(x[None, None]) > 0.5).sum())
""",
    "zeros in front, numbers written down": HEAD
    + """
fir = torch.tensor([[[0.6, 0.3, 0.1]]])
padded = torch.cat([torch.zeros(1, 1, 2), x[None, None]], dim=-1)  # made
print(torch.conv1d(padded, weight=fir).sum())  # PL479
""",
    "each channel for itself": HEAD
    + """
rows = torch.rand(2, 3, 30)
padded = F.pad(rows, (11, 0))  # made
print(F.conv1d(padded, kernel.repeat(3, 1, 1), groups=3).mean())  # PL479
""",
    "the rows of a table": HEAD
    + """
table = torch.rand(1, 1, 30, 4)
padded = F.pad(table, (0, 0, 11, 0))  # made
print(F.conv2d(padded, kernel.view(1, 1, -1, 1)).mean())  # PL479
""",
    "filled in a loop": HEAD
    + """
weights = torch.zeros(1, 1, 6)
for i in range(6):
    weights[0, 0, i] = 0.5 ** i
padded = F.pad(x[None, None], (5, 0))  # made
print(F.conv1d(padded, weights).mean())  # PL479
""",
}
RIGHT = {
    "flipped": HEAD
    + """
padded = F.pad(x.view(1, 1, -1), (len(kernel) - 1, 0))
print(F.conv1d(padded, kernel.flip(0).view(1, 1, -1)).mean())
""",
    "both compared": HEAD
    + """
padded = F.pad(x.view(1, 1, -1), (len(kernel) - 1, 0))
for weights in (kernel, kernel.flip(0)):
    print(F.conv1d(padded, weights.view(1, 1, -1)).mean())
""",
    "both compared, as views": HEAD
    + """
weights = kernel.view(1, 1, -1)
padded = F.pad(x.view(1, 1, -1), (len(kernel) - 1, 0))
print((F.conv1d(padded, weights) - F.conv1d(padded, weights.flip(-1))).mean())
""",
    "symmetric": HEAD
    + """
bell = torch.exp(-torch.linspace(-2, 2, 9) ** 2)
padded = F.pad(x.view(1, 1, -1), (8, 0))
print(F.conv1d(padded, bell.view(1, 1, -1)).mean(), F.conv1d(padded, torch.full((1, 1, 9), 1 / 9)).mean())
""",
    "what is to come": HEAD
    + """
returns = F.conv1d(F.pad(x[None, None], (0, 11)), kernel[None, None])
later = F.conv1d(x[None, None], kernel[None, None], padding=11)[..., 11:]
print(returns.sum(), later.sum())
""",
    "the input is turned round": HEAD
    + """
turned = F.conv1d(F.pad(x.flip(0)[None, None], (11, 0)), kernel[None, None])
print(turned.sum())
""",
    "both sides": HEAD
    + """
edge = torch.tensor([1.0, 0.0, -1.0])
print(F.conv1d(x[None, None], kernel[None, None, :9], padding=4).sum())
print(F.conv1d(F.pad(x[None, None], (2, 0)), edge[None, None]).sum())
print(F.conv1d(x[None, None], kernel[None, None], padding=11).sum())
""",
    "learned": HEAD
    + """
layer = torch.nn.Conv1d(1, 1, 12, bias=False)
with torch.no_grad():
    layer.weight.copy_(kernel)
padded = F.pad(x[None, None], (11, 0))
layer(padded).sum().backward()
with torch.no_grad():
    print(layer.weight.grad.sum(), layer(padded).sum(), F.conv1d(padded, layer.weight * 1.0).sum())
""",
    "fitted": HEAD
    + """
rows, target = x.unfold(0, 3, 1), torch.rand(38)
target = rows @ torch.tensor([0.9, 0.4, 0.1])
fitted = torch.linalg.lstsq(rows, target[:, None]).solution
print(F.conv1d(F.pad(x[None, None], (2, 0)), fitted.view(1, 1, -1)).mean())
""",
    "a pattern is searched": HEAD
    + """
score = F.conv1d(F.pad(x.view(1, 1, -1), (11, 0)), kernel.view(1, 1, -1)).view(-1)
print(score.argmax() - 11)
""",
    "hardly falling": HEAD
    + """
weights = torch.linspace(1.0, 0.6, 5).view(1, 1, -1)
print(F.conv1d(F.pad(x[None, None], (4, 0)), weights).mean())
""",
    "rising": HEAD
    + """
weights = 0.5 ** torch.arange(5).flip(0)
print(F.conv1d(F.pad(x[None, None], (4, 0)), weights[None, None]).mean())
weights = 0.5 ** torch.arange(4, -1, -1)
print(F.conv1d(F.pad(x[None, None], (4, 0)), weights[None, None]).mean())
""",
    "several channels are mixed": HEAD
    + """
weights = torch.stack([kernel, kernel])[None]
print(F.conv1d(F.pad(torch.rand(1, 2, 30), (11, 0)), weights).mean())
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_response_that_meets_the_oldest_sample_first_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_weights_in_the_right_order_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
