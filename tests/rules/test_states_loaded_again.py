"""Optimizer states that are loaded several times: the kept ones that steps have changed, and right uses."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
import copy
x, y = torch.randn(8, 3), torch.randn(8, 1)
model = nn.Linear(3, 1)
opt = torch.optim.{kind}(model.parameters(), lr=0.01{more})
def fit(model, opt, steps=2):
    for _ in range(steps):
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
fit(model, opt)
kept = {{"model": copy.deepcopy(model.state_dict()), "opt": copy.deepcopy(opt.state_dict())}}
"""
ADAM, SGD = HEAD.format(kind="AdamW", more=""), HEAD.format(kind="SGD", more=", momentum=0.9")
WRONG = {
    "a new optimizer for each branch": ADAM
    + """
def branch(rate):
    net = nn.Linear(3, 1)
    net.load_state_dict(kept["model"])
    mine = torch.optim.AdamW(net.parameters(), lr=0.01)
    mine.load_state_dict(kept["opt"])  # PL690
    for group in mine.param_groups:
        group["lr"] = rate
    fit(net, mine)
for rate in (0.01, 0.02, 0.01):
    branch(rate)
""",
    "momentum, gone back to later": SGD
    + """
opt.load_state_dict(kept["opt"])  # made
fit(model, opt)
model.load_state_dict(kept["model"])
opt.load_state_dict(kept["opt"])  # PL690
fit(model, opt)
""",
}
RIGHT = {
    "copied each time": ADAM
    + """
for _ in range(3):
    opt.load_state_dict(copy.deepcopy(kept["opt"]))
    fit(model, opt)
""",
    "loaded once, and not stepped before the next": ADAM
    + """
fit(model, opt)
opt.load_state_dict(kept["opt"])
opt.load_state_dict(kept["opt"])
fit(model, opt)
""",
    "the newest state of another optimizer, each time": SGD
    + """
for _ in range(3):
    fresh = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    fresh.load_state_dict(opt.state_dict())
    fit(model, fresh)
    opt = fresh
""",
    "written to a file": ADAM
    + """
import io
held = io.BytesIO()
torch.save(opt.state_dict(), held)
for _ in range(3):
    held.seek(0)
    opt.load_state_dict(torch.load(held))
    fit(model, opt)
""",
}


def test_states_that_steps_have_changed_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_copies_and_newest_states_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
