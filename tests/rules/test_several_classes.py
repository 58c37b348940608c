"""Targets that mark several classes, given to a loss for one of them; shares, and single marks, are right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
x = torch.randn(300, 8)
tags = (x @ torch.randn(8, 5) > 0.5).float()
net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 5))
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
"""
WRONG = {
    "a layer, in batches": HEAD
    + """
loss_of = nn.CrossEntropyLoss()
for part, marks in zip(x.split(100), tags.split(100)):
    loss = loss_of(net(part), marks)  # PL931
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "pictures": """
scores = torch.randn(2, 3, 4, 4, requires_grad=True)
marks = (torch.rand(2, 3, 4, 4) > 0.3).double()
F.cross_entropy(scores.double(), marks, reduction="sum").backward()  # PL931
""",
}
RIGHT = {
    "shares, mixed labels, smoothed ones": HEAD
    + """
shares = tags / tags.sum(1, keepdim=True).clamp(min=1)
F.cross_entropy(net(x), shares).backward()
one = F.one_hot(torch.arange(300) % 5, 5).float()
F.cross_entropy(net(x), 0.7 * one + 0.3 * one.flip(0)).backward()
F.cross_entropy(net(x), one, label_smoothing=0.1).backward()
""",
    "one mark, or none where an example is left out": HEAD
    + """
one = F.one_hot(torch.arange(300) % 5, 5).float()
one[::3] = 0
F.cross_entropy(net(x), one).backward()
F.cross_entropy(net(x), torch.arange(300) % 5).backward()
""",
    "each class alone": HEAD
    + """
F.binary_cross_entropy_with_logits(net(x), tags).backward()
""",
}


def test_several_marks_are_found_and_judged_alone(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_shares_and_single_marks_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
