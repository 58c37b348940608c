"""PL703 where the best weights were kept without a copy and are written to a file or loaded elsewhere after more
training; and what is kept or saved rightly.
"""

from __future__ import annotations

import pytest

from pitfall_lab import record, rules

PROGRAM = """\
import copy
import io
import torch

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randn(64, 1)
net = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(net.parameters(), lr=2.2)
file = io.BytesIO()
best, lowest = None, float("inf")
for epoch in range(9):
    loss = (net(x) - y).square().mean()
    if loss.item() < lowest:
        KEEP
    opt.zero_grad()
    loss.backward()
    opt.step()
AFTER
"""
CLASS = """\
import io
import torch

torch.manual_seed(0)
x, y = torch.randn(64, 4), torch.randn(64, 1)


class Keeper:
    def __init__(self):
        self.lowest, self.kept = float("inf"), {}

    def offer(self, net, opt, loss):
        if loss < self.lowest:
            self.lowest = loss
            self.kept["net"], self.kept["loss"] = net.state_dict(), loss

    def write(self, file):
        torch.save({"states": [self.kept]}, file)


def train(net, keeper):
    opt = torch.optim.Adam(net.parameters(), lr=0.5)
    for _ in range(9):
        loss = (net(x) - y).square().mean()
        keeper.offer(net, opt, loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()


keeper = Keeper()
train(torch.nn.Linear(4, 1), keeper)
keeper.write(io.BytesIO())
"""


def program(keep: str, after: str = "torch.save(best, file)") -> str:
    return PROGRAM.replace("KEEP", keep).replace("AFTER", after)


STATE = "lowest, best = loss.item(), net.state_dict()"
WRONG = {
    "a state": program(STATE),
    "with other values": program(STATE, "torch.save({'net': best, 'loss': lowest}, file)"),
    "a dictionary of detached tensors": program(
        "lowest, best = loss.item(), {k: v.detach().cpu() for k, v in net.state_dict().items()}"
    ),
    "a list of data": program("lowest, best = loss.item(), [p.data for p in net.parameters()]"),
    "a shallow copy": program("lowest, best = loss.item(), dict(net.state_dict())"),
    "in a class, by a method": CLASS,
    "loaded into another module": program(STATE, "other = torch.nn.Linear(4, 1)\nother.load_state_dict(best)"),
}
RIGHT = {
    "a deep copy": program("lowest, best = loss.item(), copy.deepcopy(net.state_dict())"),
    "clones": program("lowest, best = loss.item(), {k: v.clone() for k, v in net.state_dict().items()}"),
    "written at once": program("lowest = loss.item(); torch.save(net.state_dict(), file)", ""),
    "named, and written at once": program("lowest, best = loss.item(), net.state_dict(); torch.save(best, file)", ""),
    "the last weights": program("lowest = loss.item()", "torch.save(net.state_dict(), file)"),
    "the last weights, from a variable": program(
        "lowest = loss.item()", "best = net.state_dict()\ntorch.save(best, file)"
    ),
    "the weights of the last epochs": program("pass").replace(
        "if loss.item() < lowest:\n        pass", "if epoch > 5:\n        best = net.state_dict()"
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_best_weights_without_a_copy_are_found(name: str) -> None:
    found = rules.find(record(WRONG[name], "best.py"))
    assert [each.rule for each in found if each.rule in {"PL702", "PL703"}], name


@pytest.mark.parametrize("name", RIGHT)
def test_copies_and_the_last_weights_are_not(name: str) -> None:
    assert not {"PL702", "PL703"} & {each.rule for each in rules.find(record(RIGHT[name], "best.py"))}


def test_the_line_that_keeps_them_is_named_with_the_one_that_writes_the_file() -> None:
    (found,) = rules.find(record(WRONG["a state"], "best.py"))
    assert found.span is not None
    assert (found.rule, found.span.line) == ("PL703", 14)
    assert [each.span and each.span.line for each in found.related] == [14, 17, 18]
    assert "line 18 saves the newest ones" in found.message.en
