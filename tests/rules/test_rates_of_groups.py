"""PL667: groups of parameters whose own learning rates are overwritten; and programs where one rate is right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
from torch import nn
torch.manual_seed(0)
body, head = nn.Linear(3, 4), nn.Linear(4, 1)
x, y = torch.randn(8, 3), torch.randn(8, 1)
def train(opt, rounds=4, before=lambda step: None, after=lambda: None):
    for step in range(rounds):
        before(step)
        opt.zero_grad()
        (head(body(x).tanh()) - y).square().mean().backward()
        opt.step()
        after()
    print(body.weight.sum(), [group["lr"] for group in opt.param_groups])
"""
OPT = (
    HEAD + 'opt = torch.optim.AdamW([{"params": body.parameters(), "lr": 1e-5}, {"params": head.parameters()}], '
    "lr=1e-2)\n"
)
WRONG = {
    "a warm-up in a function": OPT
    + """
def set_rate(optimizer, rate):
    for g in optimizer.param_groups:
        g["lr"] = rate  # PL667
train(opt, before=lambda step: set_rate(opt, 1e-2 * min(1.0, (step + 1) / 3)))
""",
    "one highest rate for all groups": OPT
    + """
cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=0.02, total_steps=8)  # PL667
train(opt, rounds=6, after=cycle.step)
""",
}
RIGHT = {
    "each group's own rate is multiplied": OPT
    + """
def warm(step):
    for group in opt.param_groups:
        group["lr"] = group.setdefault("initial_lr", group["lr"]) * min(1.0, (step + 1) / 3)
train(opt, before=warm)
""",
    "equal from the start": HEAD
    + """
opt = torch.optim.SGD([{"params": body.parameters(), "weight_decay": 0.1}, {"params": head.parameters()}], lr=0.1)
def warm(step):
    for group in opt.param_groups:
        group["lr"] = 0.1 * (step + 1) / 4
train(opt, before=warm)
""",
    "a list of highest rates, and torch's own factor": OPT
    + """
cycle = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=[1e-5, 1e-2], total_steps=8)
train(opt, rounds=6, after=cycle.step)
slow = torch.optim.SGD([{"params": body.parameters(), "lr": 1e-5}, {"params": head.parameters()}], lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(slow, 2)
train(slow, after=schedule.step)
""",
    "one rate for all, after steps with their own": OPT
    + """
def later(step):
    for group in opt.param_groups if step == 2 else ():
        group["lr"] = 1e-4
train(opt, before=later)
""",
}


@pytest.mark.parametrize("name", WRONG)
def test_one_rate_for_all_groups_is_found(shop: Workshop, name: str) -> None:
    assert_found(shop, WRONG[name], only=("PL667",), repaired=True)


@pytest.mark.parametrize("name", RIGHT)
def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop, name: str) -> None:
    assert_quiet(shop, RIGHT[name])
