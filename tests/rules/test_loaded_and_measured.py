"""PL904 where the weights were loaded: a module that is used as it was made, in training mode; and right uses."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import copy
import io
import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
def build():
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
def dropping():
    return nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
x, y = torch.randn(12, 4), torch.randint(3, (12,))
file = io.BytesIO()
torch.save(build().state_dict(), file)
file.seek(0)
"""
LOADED = HEAD + "model = build()\nmodel.load_state_dict(torch.load(file))\n"
DROPPING = HEAD + "model = dropping()\nmodel.load_state_dict(dropping().state_dict())\n"
WRONG = {
    "a file is loaded, and nothing is trained": LOADED
    + """
with torch.no_grad():
    print((model(x).argmax(1) == y).float().mean())  # PL904
""",
    "dropout": DROPPING
    + """
@torch.inference_mode()
def error():
    return F.cross_entropy(model(x), y).item()  # PL904
print(error())
""",
    "in a class, one after the other": HEAD
    + """
class Reader:
    def __init__(self):
        self.net = dropping()
        self.net.load_state_dict(dropping().state_dict())
    @torch.no_grad()
    def read(self, row):
        return self.net(row[None])[0].argmax().item()  # PL904
reader = Reader()
print(sum(reader.read(row) == label for row, label in zip(x, y.tolist())))
""",
    "another one was trained": HEAD
    + """
model = build()
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(model(x), y).backward()
    opt.step()
best = build()
best.load_state_dict(model.state_dict())
with torch.no_grad():
    print((best(x).argmax(1) == y).float().mean())  # PL904
""",
}
RIGHT = {
    "evaluation mode": LOADED
    + "model.eval()\nwith torch.no_grad():\n    print((model(x).argmax(1) == y).float().mean())\n",
    "evaluation mode from the beginning": HEAD
    + """
model = build().eval()
model.load_state_dict(torch.load(file))
with torch.no_grad():
    print((model(x).argmax(1) == y).float().mean())
""",
    "training goes on": LOADED
    + """
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    out = model(x)
    loss = F.cross_entropy(out, y)
    print((out.argmax(1) == y).float().mean().item())
    opt.zero_grad()
    loss.backward()
    opt.step()
""",
    "several random results": DROPPING
    + """
with torch.no_grad():
    draws = torch.stack([model(x).softmax(1) for _ in range(8)])
print(draws.mean(0).argmax(1), draws.std(0).mean())
""",
    "training mode on purpose": LOADED
    + """
model.train()
with torch.no_grad():
    print((model(x).argmax(1) == y).float().mean())
""",
    "statistics are collected anew": LOADED
    + """
with torch.no_grad():
    for part in x.split(4):
        model(part)
model.eval()
with torch.no_grad():
    print((model(x).argmax(1) == y).float().mean())
""",
    "gradients of the input": LOADED
    + """
point = x.clone().requires_grad_()
F.cross_entropy(model(point), y).backward()
print(point.grad.norm())
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_loaded_module_is_measured_as_it_was_made(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], only=("PL904",), repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_right_uses_of_loaded_weights_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
