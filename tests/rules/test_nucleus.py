"""Nucleus sampling: masks that leave out the token which reaches the share, and those that keep it."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
logits = torch.randn(4, 9) * 2
values, order = torch.sort(logits, dim=-1, descending=True)
probs = F.softmax(values, dim=-1)
cumulative = torch.cumsum(probs, dim=-1)
"""
WRONG = {
    "put back into the order of the tokens": HEAD
    + """
remove = cumulative > 0.95  # PL961
remove = remove.scatter(1, order, remove)
print(torch.where(remove, torch.full_like(logits, -1e9), logits).softmax(-1))
""",
    "what is kept, in a function, sorted shares": """
def nucleus(p, logits):
    probs, order = logits.softmax(-1).sort(-1, descending=True)
    keep = probs.cumsum(-1) <= p  # PL961
    probs = probs * keep
    return order.gather(-1, torch.multinomial(probs + 1e-9, 1))
print(nucleus(0.9, torch.randn(3, 8)))
""",
    "written by an index": HEAD
    + """
values[cumulative.gt(0.95)] = -1e9  # PL961
print(values.softmax(-1))
""",
}
RIGHT = {
    "moved by one place": HEAD
    + """
remove = cumulative > 0.9
remove[..., 1:] = remove[..., :-1].clone()
remove[..., 0] = False
print(values.masked_fill(remove, float("-inf")).softmax(-1))
""",
    "without the own share, and padded": HEAD
    + """
print(values.masked_fill(cumulative - probs > 0.9, float("-inf")).softmax(-1))
moved = F.pad(cumulative, (1, 0))[:, :-1]
print(values.masked_fill(moved > 0.9, float("-inf")).softmax(-1))
""",
    "counted": HEAD
    + """
count = (cumulative < 0.9).sum(-1) + 1
print(values[0, : int(count[0])].softmax(-1))
""",
    "the first one is kept on purpose": HEAD
    + """
keep = cumulative <= 0.9
keep[:, 0] = True
print((probs * keep).sum(-1))
""",
    "explained variance, from the smallest, and no shares": """
s = torch.rand(9).sort(descending=True).values
share = (s / s.sum()).cumsum(0)
print(s[share <= 0.9])
x = torch.rand(3, 8).softmax(-1).sort(-1).values
print(x.masked_fill(x.cumsum(-1) > 0.5, 0.0))
""",
}


def test_the_token_that_reaches_the_share_is_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}))


def test_masks_that_keep_it_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
