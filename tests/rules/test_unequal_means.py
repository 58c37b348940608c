"""PL646: means over different numbers of targets, added up before a step; and accumulations that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
def batch(i):
    length = 12 if i % 2 else 3
    return torch.randn(3, length, 4), torch.randint(0, 3, (3, length)), torch.tensor([2, length, length - 1])
batches = [batch(i) for i in range(8)]
net = nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), 0.1)
def mask_of(y, n):
    return torch.arange(y.shape[1]) < n[:, None]
"""
WRONG = {
    "a layer, stepped by a count": HEAD
    + """
criterion = nn.CrossEntropyLoss(ignore_index=-1)
for i, (x, y, n) in enumerate(batches):
    y = y.masked_fill(~mask_of(y, n), -1)
    loss = criterion(net(x).transpose(1, 2), y) / 4
    loss.backward()  # PL646
    if i % 4 == 3:
        opt.step()
        opt.zero_grad()
""",
    "a masked mean": HEAD
    + """
for i, (x, y, n) in enumerate(batches):
    mask = mask_of(y, n)
    each = nn.functional.cross_entropy(net(x).transpose(1, 2), y, reduction="none")
    loss = (each * mask).sum() / mask.sum()
    (loss / 4).backward()  # PL646
    if i % 4 == 3:
        opt.step()
        opt.zero_grad()
""",
    "selected by a mask": HEAD
    + """
for part in (batches[:4], batches[4:]):
    for x, y, n in part:
        mask = mask_of(y, n)
        loss = (net(x).sum(-1) - y)[mask].square().mean() * 0.25
        loss.backward()  # PL646
    opt.step()
    opt.zero_grad()
""",
}
TEXTS = (
    HEAD
    + """
texts = [torch.randint(1, 3, (20 if i % 2 else 3,)) for i in range(8)]
table = nn.Embedding(3, 3, padding_idx=0)
opt = torch.optim.SGD(table.parameters(), 0.1)
def loss_of(texts, reduction="mean"):
    tokens = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    scores, y = table(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()
    return nn.functional.cross_entropy(scores, y, ignore_index=0, reduction=reduction)
print(loss_of(texts))
"""
)
WRONG["texts one by one, and all together with padding"] = (
    TEXTS
    + """
for _ in range(3):
    opt.zero_grad()
    for text in texts:
        (loss_of([text]) / len(texts)).backward()  # PL646
    opt.step()
"""
)
RIGHT = {
    "texts one by one, divided by all their targets": TEXTS
    + """
for _ in range(3):
    opt.zero_grad()
    for text in texts:
        (loss_of([text], "sum") / sum(len(t) - 1 for t in texts)).backward()
    opt.step()
""",
    "texts together, and those that are left": TEXTS
    + """
for _ in range(3):
    opt.zero_grad()
    for i in range(0, 8, 5):
        (loss_of(texts[i : i + 5]) / 2).backward()
    opt.step()
    opt.zero_grad()
""",
    "sums, divided by all targets": HEAD
    + """
for part in (batches[:4], batches[4:]):
    total = sum(int(n.sum()) for _, _, n in part)
    for x, y, n in part:
        y = y.masked_fill(~mask_of(y, n), -100)
        loss = nn.functional.cross_entropy(net(x).transpose(1, 2), y, reduction="sum") / total
        loss.backward()
    opt.step()
    opt.zero_grad()
""",
    "means, weighted by their targets": HEAD
    + """
for part in (batches[:4], batches[4:]):
    total = sum(int(n.sum()) for _, _, n in part)
    for x, y, n in part:
        y = y.masked_fill(~mask_of(y, n), -100)
        loss = nn.functional.cross_entropy(net(x).transpose(1, 2), y) * (n.sum() / total)
        loss.backward()
    opt.step()
    opt.zero_grad()
""",
    "a step for each batch, and batches of much the same length": HEAD
    + """
for x, y, n in batches:
    y = y.masked_fill(~mask_of(y, n), -100)
    nn.functional.cross_entropy(net(x).transpose(1, 2), y).backward()
    opt.step()
    opt.zero_grad()
for i in (1, 3, 5, 7):
    x, y, n = batches[i]
    y = y.masked_fill(~mask_of(y, n), -100)
    (nn.functional.cross_entropy(net(x).transpose(1, 2), y) / 4).backward()
opt.step()
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_unequal_means_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL646",))


@pytest.mark.parametrize("name", RIGHT)
def test_right_accumulations_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
