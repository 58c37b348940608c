"""PL438 where the masks of the samples were repeated for the heads in the wrong order; and masks that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
N, H, L = 3, 2, 4
attend = nn.MultiheadAttention(8, H, batch_first=True)
x = torch.randn(N, L, 8)
document = torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]])
apart = document.unsqueeze(2) != document.unsqueeze(1)
lengths = torch.tensor([4, 2, 3])
later = torch.ones(L, L, dtype=torch.bool).triu(1)
"""
WRONG = {
    "repeat": """
out = attend(x, x, x, attn_mask=apart.repeat(H, 1, 1), need_weights=False)[0]  # PL438
""",
    "joined, the weights are asked for": """
mask = torch.cat([apart] * H)
out, weights = attend(x, x, x, attn_mask=mask)  # PL438
""",
    "tile, in evaluation": """
attend.eval()
mask = torch.tile(apart, (H, 1, 1))
with torch.no_grad():
    out = attend(x, x, x, attn_mask=mask, need_weights=False)[0]  # PL438
""",
    "a new axis, joined with that of the samples": """
mask = apart.unsqueeze(0).expand(H, -1, -1, -1).reshape(N * H, L, L)
out = attend(x, x, x, attn_mask=mask)[0]  # PL438
""",
    "numbers, added to the scores": """
mask = torch.zeros(N, L, L).masked_fill(apart, float("-inf")).repeat(H, 1, 1)
out = attend(x, x, x, attn_mask=mask, need_weights=False)[0]  # PL438
""",
    "padding and the future": """
padding = torch.arange(L)[None] >= lengths[:, None]
mask = (padding[:, None, :] | later).repeat(H, 1, 1)
out = attend(x, x, x, attn_mask=mask)[0]  # PL438
""",
    "filled row by row, then turned around": """
allowed = torch.zeros(N, L, L, dtype=torch.bool)
for n in range(N):
    allowed[n, :, : n + 1] = True
mask = ~allowed.repeat(H, 1, 1)
out = attend(x, x, x, attn_mask=mask)[0]  # PL438
""",
    "a layer of an encoder": """
layer = nn.TransformerEncoderLayer(8, H, 16, batch_first=True)
mask = apart.repeat(H, 1, 1)
out = layer(x, src_mask=mask)  # PL438
""",
}
RIGHT = {
    "each mask for all heads": """
mask = apart.repeat_interleave(H, dim=0)
same = apart[:, None].expand(-1, H, -1, -1).reshape(N * H, L, L)
other = apart.repeat(H, 1, 1).view(H, N, L, L).transpose(0, 1).reshape(N * H, L, L)
out = attend(x, x, x, attn_mask=mask)[0] + attend(x, x, x, attn_mask=same)[0] + attend(x, x, x, attn_mask=other)[0]
""",
    "one for each head": """
slopes = torch.tensor([0.5, 0.25])
mask = (-slopes[:, None, None] * (torch.arange(L)[:, None] - torch.arange(L)).abs()).repeat(N, 1, 1)
out = attend(x, x, x, attn_mask=mask)[0]
""",
    "one for all": """
mask = later.unsqueeze(0).expand(N, -1, -1).repeat(H, 1, 1)
same = torch.stack([later] * N).repeat(H, 1, 1)
other = torch.ones(N, L, L, dtype=torch.bool).triu(1).repeat(H, 1, 1)
last = later.repeat(N * H, 1, 1)
out = sum(attend(x, x, x, attn_mask=each)[0] for each in (mask, same, other, last))
""",
    "one for all, computed from as many positions as samples": """
y = torch.randn(4, L, 8)
places = torch.arange(L)
mask = (places[:, None] < places).repeat(4, 1, 1).repeat(H, 1, 1)
out = attend(y, y, y, attn_mask=mask)[0]
""",
    "lengths that are equal": """
padding = torch.arange(L)[None] >= torch.tensor([3, 3, 3])[:, None]
mask = padding[:, None, :].expand(-1, L, -1).repeat(H, 1, 1)
shown = torch.zeros(N, L, L, dtype=torch.bool)
shown[:, :, 3:] = True
out = attend(x, x, x, attn_mask=mask)[0] + attend(x, x, x, attn_mask=shown.repeat(H, 1, 1))[0]
""",
    "one head, or one sample": """
alone = nn.MultiheadAttention(8, 1, batch_first=True)
out = alone(x, x, x, attn_mask=apart.repeat(1, 1, 1))[0]
out = out.sum() + attend(x[:1], x[:1], x[:1], attn_mask=apart[:1].repeat(H, 1, 1))[0]
""",
    "heads first": """
q = torch.randn(H, N, L, 4)
mask = ~apart.repeat(H, 1, 1).view(H, N, L, L)
out = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
""",
}
END = "print(out.sum())\n"


@pytest.mark.parametrize("name", WRONG)
def test_masks_of_other_samples_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name] + END, only=("PL436", "PL438"), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_masks_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[name] + END)


def test_masks_that_the_program_itself_folds_are_found(shop: Workshop) -> None:
    program = """q = torch.randn(N, H, L, 4)
mask = ~apart.repeat(H, 1, 1).view(N, H, L, L)  # PL436
out = nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask)
"""
    assert_found(shop, HEAD + program + END, only=("PL436", "PL438"), repaired=True)
