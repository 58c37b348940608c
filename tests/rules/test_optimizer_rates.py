"""PL692: optimizers of the program's own that step with the rate they were made with; and steps that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch

class Own(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, decay=0.1):
        super().__init__(params, dict(lr=lr, decay=decay))
        self.count = 0
        self.lr = lr

    @torch.no_grad()
    def step(self, closure=None):
        self.count += 1
        for group in self.param_groups:
            for p in group["params"]:
"""
TAIL = """

torch.manual_seed(0)
model = torch.nn.Linear(3, 1)
x, y = torch.randn(16, 3), torch.randn(16, 1)
"""
LOOP = """for _ in range(8):
    opt.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    opt.step()
    CHANGE
print(loss.item())
"""
MADE = "opt = Own(model.parameters())\n"
SCHEDULE = MADE + "schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)\n"
STEPS, BY_HAND = "schedule.step()", "opt.param_groups[0]['lr'] *= 0.5"


def program(lines: str, change: str = STEPS) -> str:
    """A program whose optimizer makes ``lines`` of each parameter ``p``, and whose rate ``change`` changes."""
    body = "".join(f"                {line}\n" for line in lines.splitlines())
    return HEAD + body + TAIL + (SCHEDULE if change == STEPS else MADE) + LOOP.replace("CHANGE", change)


WRONG = {
    "alpha": "p.add_(p.grad, alpha=-self.lr)  # PL692",
    "a product": "p.sub_(self.lr * p.grad)  # PL692",
    "the operator": "p -= p.grad * self.lr  # PL692",
    "assigned data": "new = p.data - p.grad.mul(self.lr)  # PL692\np.data = new",
    "the defaults": 'p.add_(p.grad, alpha=-self.defaults["lr"])  # PL692',
    "moments with bias correction": """state = self.state[p]
if not state:
    state["m"], state["v"] = torch.zeros_like(p), torch.zeros_like(p)
state["m"].mul_(0.8).add_(p.grad, alpha=0.2)
state["v"].mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
size = (state["v"] / (1 - 0.99 ** self.count)).sqrt_().add_(1e-8)
p.addcdiv_(state["m"], size, value=-self.lr)  # PL692""",
    "with a decay": "p.mul_(1 - self.lr * group['decay'])\np.add_(p.grad.sign(), alpha=-self.lr)  # PL692",
}
RIGHT = {
    "the rate of the group": 'p.add_(p.grad, alpha=-group["lr"])',
    "a rate taken before": 'lr = group["lr"]\np -= lr * p.grad',
    "a decay equal to the rate": 'p.add_(p.grad.add(p, alpha=group["decay"]), alpha=-group["lr"])',
    "momentum with the number of the rate": """state = self.state[p]
if not state:
    state["m"] = torch.zeros_like(p)
state["m"].lerp_(p.grad, 0.1)
p.sub_(group["lr"] * state["m"])""",
    "a share of the first rate": "scale = group['lr'] / self.lr\np.add_(p.grad * scale, alpha=-self.lr)",
    "a rate for each tensor": """size = (p.norm() / p.grad.norm()).item()
p.add_(p.grad.add(p, alpha=0.1), alpha=-group["lr"] * size)""",
    "a rate as a tensor": 'p.sub_(torch.tensor(group["lr"]) * (p.grad + 0.1 * p))',
    "bias correction in the rate": """g = p.grad.add(p, alpha=0.1)
p.add_(g, alpha=-group["lr"] / (1 - 0.9 ** self.count))""",
    "its own schedule": "p.add_(p.grad, alpha=-self.lr / self.count)",
    "steps of its own size": """state = self.state[p]
if not state:
    state["size"] = torch.full_like(p, group["lr"])
state["size"].mul_(1.1)
p.addcmul_(p.grad.sign(), state["size"], value=-1)""",
    "decay with the rate only": "p.mul_(1 - group['lr'] * 0.5)\np.add_(p.grad, alpha=-0.1)",
}


@pytest.mark.parametrize("case", WRONG)
def test_the_first_rate_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, program(WRONG[case]), repaired=True)


def test_a_rate_set_by_hand_is_found(shop: Workshop) -> None:
    assert_found(shop, program("p.add_(p.grad, alpha=-self.lr)  # PL692", BY_HAND), repaired=True)


def test_a_helper_and_a_derived_class_are_found(shop: Workshop) -> None:
    body = "moved(p, self.lr)"
    text = program(body).replace(
        "class Own", "def moved(p, rate):\n    p.add_(p.grad, alpha=-rate)  # PL692\n\nclass Own"
    )
    assert_found(shop, text, repaired=True)
    derived = "class Other(Own):\n    pass\n\ntorch.manual_seed(0)"
    text = program("p.add_(p.grad, alpha=-self.lr)  # PL692").replace("torch.manual_seed(0)", derived)
    assert_found(shop, text.replace("opt = Own(", "opt = Other("), repaired=True)


@pytest.mark.parametrize("case", RIGHT)
@pytest.mark.parametrize("change", [STEPS, BY_HAND])
def test_steps_that_follow_the_rate_are_quiet(shop: Workshop, case: str, change: str) -> None:
    assert_quiet(shop, program(RIGHT[case], change))


def test_a_rate_that_stays_is_quiet(shop: Workshop) -> None:
    assert_quiet(shop, program("p.add_(p.grad, alpha=-self.lr)", "pass"))


WRAPPED = """import torch

class Slow(torch.optim.Optimizer):
    def __init__(self, base, lr=0.1):
        self.base, self.param_groups, self.state, self.defaults = base, base.param_groups, base.state, base.defaults
        super().__init__(base.param_groups, base.defaults)

    def step(self, closure=None):
        held = [p for group in self.param_groups for p in group["params"]]
        before = [p.detach().clone() for p in held]
        self.base.step()
        with torch.no_grad():
            for p, old in zip(held, before):
                p.copy_(old + 0.1 * (p - old))
"""


def test_an_optimizer_around_another_one_is_quiet(shop: Workshop) -> None:
    made = "opt = Slow(torch.optim.Adam(model.parameters(), lr=0.1))\n"
    schedule = "schedule = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)\n"
    assert_quiet(shop, WRAPPED + TAIL + made + schedule + LOOP.replace("CHANGE", STEPS))
