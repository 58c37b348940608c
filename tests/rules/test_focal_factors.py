"""PL938: the probability of a focal loss is taken from a loss with weights in it; and focal losses that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
from torch.nn import functional as F
torch.manual_seed(0)
x, y = torch.randn(6, 4), torch.tensor([0, 2, 1, 0, 2, 2])
net = nn.Linear(4, 3)
w = torch.tensor([0.5, 3.0, 1.0])
"""
WRONG = {
    "a layer with weights": HEAD
    + """
criterion = nn.CrossEntropyLoss(weight=w, reduction="none")
def focal(out, y, gamma):
    each = criterion(out, y)
    p_true = each.neg().exp()  # PL938
    return torch.mean(torch.pow(1 - p_true, gamma) * each)
focal(net(x), y, 1.5).backward()
""",
    "multiplied by the weights of the examples": HEAD
    + """
each = w[y] * F.cross_entropy(net(x), y, reduction="none")
easy = torch.exp(-each).detach()  # PL938
((1.0 - easy).square() * each).sum().backward()
""",
    "one weight for all": HEAD
    + """
loss = 0.25 * F.cross_entropy(net(x), y, reduction="none")
p = (-loss).exp()  # PL938
print(((1 - p) ** 2 * loss).mean())
""",
    "two classes, weights of the positive one": HEAD
    + """
out, truth = net(x), F.one_hot(y, 3).float()
bce = F.binary_cross_entropy_with_logits(out, truth, pos_weight=torch.tensor([4.0, 2.0, 2.0]), reduction="none")
pt = torch.exp(-bce)  # PL938
loss = (1 - pt) ** 2 * bce
loss.mean().backward()
""",
    "the logarithms themselves": HEAD
    + """
logp = F.log_softmax(net(x), dim=1)
picked = logp.gather(1, y[:, None]).squeeze(1) * w[y]
p = picked.exp()  # PL938
loss = -(1 - p) * picked
loss.mean().backward()
""",
    "what is left of it in one call": HEAD
    + """
each = F.nll_loss(net(x).log_softmax(1), y, weight=w, reduction="none")
rest = -torch.expm1(-each)  # PL938
(rest**2 * each).mean().backward()
""",
}
RIGHT = {
    "the weight comes last": HEAD
    + """
ce = F.cross_entropy(net(x), y, reduction="none")
p = torch.exp(-ce)
(w[y] * (1 - p) ** 2 * ce).mean().backward()
""",
    "both of them computed": HEAD
    + """
out = net(x)
weighted = F.cross_entropy(out, y, weight=w, reduction="none")
p = torch.exp(-F.cross_entropy(out, y, reduction="none"))
((1 - p) ** 2 * weighted).mean().backward(retain_graph=True)
q = out.softmax(1).gather(1, y[:, None])[:, 0]
((1 - q) ** 2 * weighted).mean().backward()
""",
    "equal weights of one, and a mask": HEAD
    + """
ce = F.cross_entropy(net(x), y, weight=torch.ones(3), reduction="none")
((1 - torch.exp(-ce)) ** 2 * ce).mean().backward()
masked = F.cross_entropy(net(x), y, reduction="none") * torch.tensor([1.0, 1, 0, 1, 1, 0])
((1 - torch.exp(-masked)) ** 2 * masked).mean().backward()
""",
    "a perplexity for each example, and a weight that falls with the distance": HEAD
    + """
each = F.cross_entropy(net(x), y, weight=w, reduction="none")
print(torch.exp(-each), torch.exp(each), 1 - torch.exp(-each.mean()))
far = 1 - torch.exp(-0.5 * (net(x) - 1).square().sum(1))
(far * F.cross_entropy(net(x), y, reduction="none")).mean().backward()
""",
    "the weight is taken out again": HEAD
    + """
each = F.cross_entropy(net(x), y, weight=w, reduction="none")
p = torch.exp(-each / w[y])
((1 - p) ** 2 * each).mean().backward()
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_probabilities_of_weighted_losses_are_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL938",))


@pytest.mark.parametrize("name", RIGHT)
def test_right_focal_losses_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
