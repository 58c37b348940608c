"""From a saving line inside a module to the call that reached it, also when the module is called several times."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find

PROGRAM = """\
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return torch.sigmoid(x) * self.w


def score(module, x):
    return module(x).sum()


CALLS
opt = torch.optim.SGD(SCALES, lr=0.1)
first.backward()
opt.step()
second.backward()
"""
LAYOUTS = {
    "two calls in two lines": (
        "x = torch.ones(3, requires_grad=True)\nm = Scale()\nfirst = m(x).sum()\nsecond = m(x).sum()",
        "m.parameters()",
        [21],
    ),
    "two names in one line": (
        "x = torch.ones(3, requires_grad=True)\nm, n = Scale(), Scale()\nfirst, second = m(x).sum(), m(n(x)).sum()",
        "m.parameters()",
        [20],
    ),
    "inside a container": (
        (
            "x = torch.ones(3, requires_grad=True)\n"
            "net = nn.Sequential(Scale())\n"
            "first = net(x).sum()\n"
            "second = net(x * 2).sum()"
        ),
        "net.parameters()",
        [21],
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_call_that_reached_the_saving_line_is_named(layout: str, shop: Workshop) -> None:
    calls, parameters, lines = LAYOUTS[layout]
    source = PROGRAM.replace("CALLS", calls).replace("SCALES", parameters)
    (finding,) = find(shop.trace(Subject(source, "program.py")))
    related = {
        role: [r.span.line for r in finding.related if r.role == role and r.span] for role in ("saved", "forward")
    }
    assert related == {"saved": [11], "forward": lines}


BUFFER = """\
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(4, 2)

    def forward(self, x):
        return self.enter(x)


class Reader:
    def __init__(self):
        self.pictures = np.zeros((2, 4), np.float32)
        self.read_so_far = 0

    def read(self):
        for picture in self.pictures:
            x = self.read_so_far
            picture[0] = x
            self.read_so_far += 1
        return torch.from_numpy(self.pictures)


reader = Reader()
loss = Net()(reader.read()).square().mean()
following = reader.read()
loss.backward()
"""


def test_the_name_on_the_writing_line_is_said_and_rows_of_an_array_are_not_copied(shop: Workshop) -> None:
    (finding,) = find(shop.trace(Subject(BUFFER, "program.py")))
    assert finding.rule == "PL301"
    assert "On line 23 NumPy writes into `picture` without torch noticing" in finding.message.en
    edits = [edit.text for fix in finding.fixes for edit in fix.edits]
    assert any("from_numpy(self.pictures).clone()" in text or text == ".clone()" for text in edits)
    assert not any("picture.clone()" in text or "picture.copy()" in text for text in edits)


CLIPPED = """
import torch
from torch import nn

layer = nn.Linear(2, 2)
x = torch.ones(1, 2, requires_grad=True)
loss = layer(x).square().sum()
reached = layer.weight.data
with torch.no_grad():
    reached.clamp_(-0.01, 0.01)
loss.backward()
"""


def test_the_way_around_the_counter_is_the_tensor_that_was_written_and_not_what_the_parameter_began_as(
    shop: Workshop,
) -> None:
    (finding,) = find(shop.trace(Subject(CLIPPED, "program.py")))
    assert finding.rule == "PL301"
    ways = [related for related in finding.related if related.role == "alias"]
    assert [way.span.line for way in ways if way.span] == [8]
    assert "`reached`" in ways[0].message.en
