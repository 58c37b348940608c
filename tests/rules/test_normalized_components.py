"""PL411 where the axis of a normalization is joined with another, or single places of it are taken: a layer shows where
the components are.
"""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

NETS = """
net = nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6))
pairs, y = torch.randn(8, 3, 5), torch.arange(8)
"""
WRONG = {
    "joined with the examples": NETS
    + """
z = F.normalize(net(pairs))  # PL411
flat = z.reshape(24, 6)
F.cross_entropy(torch.mm(flat, flat.t()) / 0.5, torch.arange(24).roll(8)).backward()
""",
    "single places of it, one after the other": NETS
    + """
def scores(batch):
    z = nn.functional.normalize(net(batch), p=2.0, dim=1)  # PL411
    first, second = z[:, 0], z[:, 1]
    return first @ second.t()
F.cross_entropy(scores(pairs) * 4, y).backward()
""",
    "products of numbers and their sum, of a list of words": """
words, kinds = nn.Embedding(9, 6), torch.randint(0, 9, (8, 4))
unit = F.normalize(words(kinds))  # PL411
alike = (unit[:, 0] * unit[:, 3]).sum(-1)
(1 - alike).mean().backward()
""",
    "all views through the net at once, and split again": NETS
    + """
z = F.normalize(net(pairs.flatten(0, 1)).view(8, 3, -1))  # PL411
rows = z.transpose(0, 1).reshape(24, 6)
F.cross_entropy(rows @ rows.T / 0.5, torch.arange(24).roll(8)).backward()
""",
    "after a layer norm, and turned round before it is joined": """
norm, x = nn.LayerNorm(6), torch.randn(4, 2, 6)
unit = F.normalize(norm(x).float(), eps=1e-6)  # PL411
rows = unit.transpose(0, 1).flatten(0, 1)
F.cross_entropy(rows.matmul(rows.T), torch.arange(8).roll(4)).backward()
""",
}  # fmt: skip
RIGHT = {
    "the last axis": NETS
    + """
z = F.normalize(net(pairs), dim=-1)
flat = z.reshape(24, 6)
(flat @ flat.t()).square().mean().backward()
first, second = F.normalize(net(pairs[:, 0])), F.normalize(net(pairs[:, 1]))
F.cross_entropy(first @ second.t(), y).backward()
""",
    "each feature over the tokens, for products over the tokens": NETS
    + """
q, k = F.normalize(net(pairs)), F.normalize(net(pairs) + 1, dim=1)
mixed = (q.transpose(1, 2) @ k).softmax(-1)
mixed.square().mean().backward()
""",
    "channels of a picture, before the last axes": """
conv = nn.Conv2d(3, 6, 3)
unit = F.normalize(conv(torch.randn(2, 3, 5, 5)))
flat = unit.flatten(2)
(flat.transpose(1, 2) @ flat).square().mean().backward()
""",
    "features first, from a layer that was turned round": NETS
    + """
unit = F.normalize(net(pairs).transpose(1, 2))
one, other = unit[:, :, 0], unit[:, :, 1]
F.cross_entropy(one @ other.t(), y).backward()
""",
    "another norm, and single numbers that are weighted": NETS
    + """
shares = F.normalize(net(pairs).relu() + 0.1, p=1.0, dim=1)
first = shares[:, 0]
print((first @ first.t()).mean())
unit = F.normalize(net(pairs))
print((unit[:, 0] * torch.rand(8, 1)).sum(-1).mean(), unit.flatten(1).square().sum(1))
""",
}  # fmt: skip


def test_a_layer_shows_where_the_components_are(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL411",), repaired=True)


def test_normalizations_along_an_axis_that_is_meant_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_the_length_along_the_other_axis_is_told(shop: Workshop) -> None:
    found = [f for f in find(shop.trace(Subject(together(WRONG), "program.py"))) if f.rule == "PL411"]
    lengths = [fact.value for finding in found for fact in finding.facts if fact.name == "length"]
    assert lengths == [2**0.5, 2**0.5, 1.5**0.5, 2**0.5, 3**0.5]
