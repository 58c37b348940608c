"""PL428 where a module is given a mask of zeros and ones: the mask is named, and the fix hides what it was to hide."""

from __future__ import annotations

from typing import Any

import pytest

from pitfall_lab.check import Workshop
from pitfall_lab.rules import find
from pitfall_lab.verify import trace_program
from tests.rules.build import examined

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
x = torch.randn(2, 5, 8, requires_grad=True)
"""
ATTENTION = HEAD + "attn = nn.MultiheadAttention(8, 2, batch_first=True)\n"
END = "out[:, 0].pow(3).sum().backward()\n"
WRONG = {
    "ones are what may be seen": (
        ATTENTION + "past = torch.tril(torch.ones(5, 5))\nout, _ = attn(x, x, x, attn_mask=past[:5, :5])\n" + END,
        "`past[:5, :5]`",
        "attn_mask=past[:5, :5] == 0",
    ),
    "ones are what is hidden": (
        ATTENTION + "later = torch.triu(torch.ones(5, 5), 1)\nout, _ = attn(x, x, x, attn_mask=later)\n" + END,
        "`later`",
        "attn_mask=later.bool()",
    ),
    "weights are asked for": (
        ATTENTION
        + "past = torch.tril(torch.ones(5, 5))\nout, w = attn(x, x, x, attn_mask=past, need_weights=True)\n"
        + END,
        "`past`",
        "attn_mask=past == 0",
    ),
    "an encoder": (
        HEAD
        + "enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 1)\n"
        + "past = torch.tril(torch.ones(5, 5))\nout = enc(x, mask=past)\n"
        + END,
        "`past`",
        "mask=past == 0",
    ),
}
RIGHT = {
    "a causal encoder that drops nothing": HEAD
    + """net = nn.Linear(8, 8)
block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=torch.nn.functional.silu, batch_first=True)
blocks = nn.TransformerEncoder(block, 1, enable_nested_tensor=False)
opt = torch.optim.SGD([*net.parameters(), *blocks.parameters()], lr=0.1)
mask = nn.Transformer.generate_square_subsequent_mask(5)
for _ in range(2):
    opt.zero_grad()
    blocks(net(x), mask=mask).square().mean().backward()
    opt.step()
with torch.no_grad():
    print(torch.nn.functional.mse_loss(blocks(net(x), mask=mask), x))
""",
    "a bool mask": ATTENTION + "out, _ = attn(x, x, x, attn_mask=torch.triu(torch.ones(5, 5), 1).bool())\n" + END,
    "0 and -inf": ATTENTION
    + "out, _ = attn(x, x, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(5))\n"
    + END,
}


@pytest.mark.parametrize("title", WRONG)
def test_the_mask_is_named_and_the_fix_hides_the_later_positions(title: str, shop: Workshop) -> None:
    text, name, repaired = WRONG[title]
    (finding,) = [one for one in examined(shop, text) if one.rule == "PL428"]
    assert f"adds {name}," in finding.message.en
    first = finding.fixes[0]
    assert first.verified
    assert any(repaired in edit.text for edit in first.edits)
    lines = text.splitlines(keepends=True)
    for edit in first.edits:
        lines[edit.line - 1 : edit.end_line] = [edit.text]
    assert _reach(text) > 0.1
    assert _reach("".join(lines)) == 0


def _reach(text: str) -> float:
    """How much the first position depends on the later ones."""
    names: dict[str, Any] = {}
    exec(text, names)
    return float(names["x"].grad[:, 1:].abs().sum())


@pytest.mark.parametrize("title", RIGHT)
def test_a_mask_that_hides_is_left_alone(title: str) -> None:
    assert not {"PL428", "PL904"} & {one.rule for one in find(trace_program(RIGHT[title]))}
