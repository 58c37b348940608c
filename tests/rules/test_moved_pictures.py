"""Pictures that are flipped, turned or rolled without what belongs to them pixel by pixel."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

TRAINING = """
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
masks = (torch.rand(16, 1, 8, 8) > 0.7).float()
images = masks + 0.3 * torch.randn(16, 1, 8, 8)
net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
{before}
for epoch in range(3):
    for x, y in {batches}:
{body}
        loss = {loss}
        opt.zero_grad()
        loss.backward()
        opt.step()
"""
LOSS = "F.binary_cross_entropy_with_logits(net(x), y)"


def training(body: str = "pass", *, before: str = "", batches: str = "", loss: str = LOSS) -> str:
    """A program that trains a network that answers pixel by pixel."""
    lines = "\n".join(f"        {line}" for line in body.strip("\n").split("\n"))
    batches = batches or "zip(images.split(4), masks.split(4))"
    return TRAINING.format(before=before.strip("\n"), batches=batches, body=lines, loss=loss)


DATASET = """
class Pictures(Dataset):
    def __init__(self):
        self.image, self.mask = images, masks
    def __len__(self):
        return len(self.image)
    def __getitem__(self, i):
        image, mask = self.image[i], self.mask[i]
{lines}
        return image, mask
"""
LOADED = "DataLoader(Pictures(), batch_size=4, shuffle=True)"


def dataset(lines: str, more: str = "") -> str:
    """The same training with a dataset that changes its examples."""
    text = "\n".join(f"        {line}" for line in lines.strip("\n").split("\n"))
    return training(before=more + DATASET.format(lines=text), batches=LOADED)


AVERAGED = """
import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Upsample(scale_factor=2),
                    nn.Conv2d(4, 1, 3, padding=1))
images = torch.randn(3, 1, 8, 8)
{body}
"""


def averaged(body: str) -> str:
    """A program that averages the answers of a network to moved pictures."""
    return AVERAGED.format(body=body.strip("\n"))


REPAIRED = {
    "a batch is flipped": training("if torch.rand(()) < 0.5:\n    x = x.flip(-1)  # PL445"),
    "a batch is turned": training("if torch.rand(()) < 0.5:\n    x = torch.rot90(x, 1, (2, 3))  # PL445"),
    "in a dataset": dataset("if torch.rand(()) < 0.5:\n    image = torch.flip(image, dims=[1])  # PL445"),
    "two draws": dataset("image, mask = turned(image), turned(mask)", """
def turned(t):
    k = int(torch.randint(0, 4, ()))
    return t.rot90(k, (-2, -1))  # PL445
"""),
    "the answer to a flipped picture": averaged("""
with torch.no_grad():
    plain = net(images).sigmoid()
    other = net(images.flip(-1)).sigmoid()
    print(((plain + other) / 2).sum(0))  # PL445
"""),
    "in one expression": averaged("""
with torch.no_grad():
    print(torch.stack([net(images), net(torch.roll(images, 3, dims=-1))]).mean(0).sum(0))  # PL445
"""),
}  # fmt: skip
FOUND = {
    "two streams of draws": training("""
if torch.rand(()) < 0.5:
    x = x.flip(2)  # PL445
if torch.rand(()) < 0.5:
    y = y.flip(2)
"""),
    "some rows of a batch": training("""
chosen = torch.rand(len(x)) < 0.5
x = x.clone()
x[chosen] = x[chosen].flip(-1)  # PL445
"""),
    "by where": training("""
chosen = torch.rand(len(x), 1, 1, 1) < 0.5
x = torch.where(chosen, x.flip(-1), x)  # PL445
"""),
    "a method of the dataset": training(before="""
class Pictures(Dataset):
    def __len__(self):
        return 16
    def moved(self, t):
        return t.transpose(-1, -2).flip(-1) if torch.rand(()) < 0.5 else t  # PL445
    def __getitem__(self, i):
        return self.moved(images[i]), masks[i]
""", batches=LOADED),
    "a distance that is written out": training(
        "if torch.rand(()) < 0.5:\n    x = torch.roll(x, (2, 1), (-2, -1))  # PL445",
        loss="(net(x) - y).square().mean()",
    ),
}  # fmt: skip
RIGHT = {
    "both with one draw": training("if torch.rand(()) < 0.5:\n    x, y = x.flip(-1), y.flip(-1)"),
    "stacked in a dataset": dataset("image, mask = flipped(torch.stack([image, mask]))", """
def flipped(t):
    return t.flip(-1) if torch.rand(()) < 0.5 else t
"""),
    "all pictures are stored upside down": training("x = x.flip(-2)", before="images = images.flip(-2)"),
    "one label for a picture": training(
        "if torch.rand(()) < 0.5:\n    x = x.flip(-1)", loss="F.mse_loss(net(x).mean((1, 2, 3)), y.mean((1, 2, 3)))"
    ),
    "joined as channels": training("""
both = torch.cat([x, y], 1)
if torch.rand(()) < 0.5:
    both = both.flip(-1)
x, y = both[:, :1], both[:, 1:]
"""),
    "some rows of both": training("""
chosen = torch.rand(len(x)) < 0.5
x, y = x.clone(), y.clone()
x[chosen], y[chosen] = x[chosen].flip(-1), y[chosen].flip(-1)
"""),
    "the answer is moved back": training("""
turn = torch.rand(()) < 0.5
seen = x.flip(-1) if turn else x
""", loss="F.mse_loss(net(seen).flip(-1) if turn else net(seen), y)"),
    "an average of answers moved back": averaged("""
with torch.no_grad():
    print((net(images) + net(images.flip(-1)).flip(-1)).sum(0))
    print(torch.stack([net(images), net(images.rot90(1, (2, 3))).rot90(-1, (2, 3))]).mean(0).sum(0))
"""),
    "one number for each picture": averaged("""
with torch.no_grad():
    print(net(images).mean((2, 3)) + net(images.flip(-1)).mean((2, 3)))
"""),
    "other examples, not other pixels": averaged("""
with torch.no_grad():
    print((net(images) + net(images.flip(0))).sum(0))
"""),
    "two networks": averaged("""
mirror = nn.Conv2d(1, 1, 3, padding=1)
with torch.no_grad():
    print((net(images) + mirror(images.flip(-1))).sum(0))
"""),
}  # fmt: skip


@pytest.mark.parametrize("title", [*REPAIRED, *FOUND])
def test_a_picture_that_is_moved_alone_is_found(title: str, shop: Workshop) -> None:
    assert_found(shop, (REPAIRED | FOUND)[title], repaired=title in REPAIRED)


@pytest.mark.parametrize("title", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(title: str, shop: Workshop) -> None:
    assert_quiet(shop, RIGHT[title])
