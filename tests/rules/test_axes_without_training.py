"""PL407 in programs that train nothing: axes that a reshape only seems to exchange, and right reshapes."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import numpy as np
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
photos = torch.randint(0, 255, (4, 8, 10, 3), dtype=torch.uint8)
"""
WRONG = {
    "photos to the channels first": HEAD
    + """
x = (photos.float() / 255).reshape(4, 3, 8, 10)  # PL407
print(F.conv2d(F.pad(x, [1] * 4, mode="reflect"), torch.ones(3, 1, 3, 3) / 9, groups=3).mean((2, 3)))
""",
    "one picture, resized": HEAD
    + """
image = photos[0].float()
print(F.interpolate(image.view(1, 3, 8, 10), scale_factor=2)[0, :, 0, 0])  # PL407
""",
    "heads of an attention": HEAD
    + """
x = torch.randn(2, 5, 12)
q, k = (nn.Linear(12, 12)(x).view(2, 3, 5, 4) for _ in range(2))  # PL407
print((q @ k.transpose(2, 3)).softmax(-1).sum())
""",
    "time first, for a recurrent layer": HEAD
    + """
steps = torch.randn(6, 4, 5).sub(0.5)
with torch.no_grad():
    print(nn.LSTM(6, 3, batch_first=True)(steps.view(4, 5, 6))[0].mean())  # PL407
""",
}
RIGHT = {
    "permuted": HEAD + "print(F.conv2d(photos.permute(0, 3, 1, 2).float(), torch.ones(1, 3, 3, 3)).mean())\n",
    "flattened and divided": HEAD
    + """
flat = photos.float().view(4, -1)
print((flat @ torch.randn(240, 2)).view(4, 2, 1).shape, F.avg_pool2d(flat.view(4, 1, 15, 16), 2).mean())
""",
    "an image of one channel": HEAD + "print(F.max_pool2d(torch.rand(4, 8, 10, 1).view(4, 1, 8, 10), 2).mean())\n",
    "heads with a transpose": HEAD
    + """
x = torch.randn(2, 5, 12)
q, k = (nn.Linear(12, 12)(x).view(2, 5, 3, 4).transpose(1, 2) for _ in range(2))
print((q @ k.transpose(2, 3)).softmax(-1).sum())
""",
    "blocks of pixels": HEAD
    + """
x = torch.rand(4, 12, 8, 10)
big = x.view(4, 3, 2, 2, 8, 10).permute(0, 1, 4, 2, 5, 3).reshape(4, 3, 16, 20)
print(torch.equal(big, F.pixel_shuffle(x, 2)), F.conv2d(big, torch.ones(1, 3, 3, 3)).mean())
""",
    "only looked at": HEAD + "print(photos.view(4, 3, 8, 10).shape, photos.view(4, 3, 8, 10).float().mean())\n",
}


@pytest.mark.parametrize("case", WRONG)
def test_axes_that_only_seem_exchanged_are_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], only=("PL407",), repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_right_reshapes_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
