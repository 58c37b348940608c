"""PL936: maps of class numbers that are stacked with an image and resized with it, and right programs like them."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import plain
from tests.rules.build import assert_found, assert_quiet

HEAD = """
import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(8, 8)
mask = torch.zeros(8, 8, dtype=torch.long)
mask[2:6, 3:7] = 2
net = torch.nn.Conv2d(1, 3, 1)
"""
LOSS = """
loss = F.cross_entropy(net(small[None, None]), target[None])  # used
loss.backward()
print(target.unique().tolist(), loss.item())
"""
WRONG = {
    "the second of two, in a function": HEAD
    + """
def shrink(image, mask):
    both = torch.stack([image, mask.float()])[None]
    both = F.interpolate(both, size=(5, 5), mode="bilinear", align_corners=False)[0]  # PL936
    return both[0], both[1].round().long()
small, target = shrink(image, mask)
"""
    + LOSS,
    "the first of two": HEAD
    + """
both = torch.stack([mask.float(), image])
scaled = F.interpolate(both[None], scale_factor=0.5, mode="bicubic")[0]  # PL936
target, small = scaled[0].round().long(), scaled[1]
"""
    + LOSS,
    "joined along the channels": HEAD
    + """
both = torch.cat([image[None, None], mask[None, None].float()], dim=1)
scaled = F.interpolate(both, size=(5, 5), mode="bilinear")  # PL936
small, target = scaled[0, 0], scaled[0, 1].long()
"""
    + LOSS,
}
RIGHT = {
    "each by a call of its own": HEAD
    + """
small = F.interpolate(image[None, None], size=(5, 5), mode="bilinear")[0, 0]
target = F.interpolate(mask[None, None].float(), size=(5, 5), mode="nearest")[0, 0].long()
"""
    + LOSS,
    "both by the nearest": HEAD
    + """
both = torch.stack([image, mask.float()])[None]
both = F.interpolate(both, size=(5, 5), mode="nearest")[0]
small, target = both[0], both[1].long()
"""
    + LOSS,
    "a foreground of two classes": HEAD
    + """
both = torch.stack([image, (mask > 0).float()])[None]
both = F.interpolate(both, size=(5, 5), mode="bilinear")[0]
small, target = both[0], (both[1] > 0.5).long()
"""
    + LOSS,
    "shares of classes": HEAD
    + """
parts = F.one_hot(mask, 3).permute(2, 0, 1).float()
both = F.interpolate(torch.cat([image[None], parts])[None], size=(5, 5), mode="bilinear")[0]
small, target = both[0], both[1:].argmax(0)
"""
    + LOSS,
    "a depth that is measured": HEAD
    + """
both = torch.stack([image, mask.float()])[None]
both = F.interpolate(both, size=(5, 5), mode="bilinear")[0]
loss = F.mse_loss(net(both[None, :1])[:, 0], both[None, 1])
loss.backward()
print(loss.item())
""",
}


@pytest.mark.parametrize("title", WRONG)
def test_they_are_found(title: str, shop: Workshop) -> None:
    assert_found(shop, WRONG[title], repaired=title != "joined along the channels")


def test_the_map_alone_is_resized_by_the_nearest(shop: Workshop) -> None:
    program = plain(WRONG["the second of two, in a function"])
    trace = shop.trace(Subject(program, "program.py"))
    [finding] = [each for each in find(trace) if each.rule == "PL936"]
    assert 'mode="nearest-exact")[0, 0].round().long()' in "".join(edit.text for edit in finding.fixes[0].edits)


@pytest.mark.parametrize("title", RIGHT)
def test_right_ones_are_quiet(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
