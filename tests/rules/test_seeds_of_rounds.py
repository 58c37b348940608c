"""PL905 where a function is given its seed, and where an evaluation sets one and is to stay repeatable."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import plain
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import HEAD, together

TRAINED = """
torch.manual_seed(0)
data, net = torch.randn(40, 3), nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def noisy(x, seed):
    g = torch.Generator().manual_seed(seed)%s
    noise = torch.randn(x.shape, generator=g)
    return x + noise, noise
for %s:
    given, noise = noisy(data[:8], %s)
    loss = F.mse_loss(net(given), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
WRONG = {
    "a constant": TRAINED % ("  # PL905", "step in range(5)", "1234"),
    "by name, in a loop that counts beside": TRAINED % ("  # PL905", "step, lr in enumerate([0.1] * 5)", "seed=7"),
}
MEASURED = """
torch.manual_seed(0)
data, net = torch.rand(40, 3), nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
def blurred(x):
    return x + 0.5 * torch.randn_like(x)
@torch.no_grad()
def measured(x):
    torch.manual_seed(7)  # PL905
    given = %s
    return F.mse_loss(net(given), x)
for epoch in range(5):
    for rows in torch.randperm(40).split(20):
        loss = F.mse_loss(net(blurred(data[rows])), data[rows])
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(measured(data))
"""
MEASURING = {
    "x + 0.5 * torch.randn_like(x)": "torch.randn(x.shape, generator=generator)",
    "x + 0.5 * torch.randn(x.shape)": "torch.randn(x.shape, generator=generator)",
    "blurred(x)": "with torch.random.fork_rng():",
}
RIGHT = {
    "a number of the round": TRAINED % ("", "step in range(5)", "1234 + step"),
    "drawn": TRAINED % ("", "step in range(5)", "int(torch.randint(0, 9999, ()))"),
}


@pytest.mark.parametrize("name", WRONG)
def test_they_are_found_and_repaired(shop: Workshop, name: str) -> None:
    assert_found(shop, HEAD + WRONG[name], only=("PL905",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


@pytest.mark.parametrize("given", MEASURING)
def test_an_evaluation_keeps_numbers_of_its_own(shop: Workshop, given: str) -> None:
    program = HEAD + MEASURED % given
    assert_found(shop, program, only=("PL905",))
    subject = Subject(plain(program), "program.py")
    trace = shop.trace(subject)
    (found,) = tried(shop, subject, trace, [each for each in find(trace) if each.rule == "PL905"])
    assert found.fixes[0].verified
    assert MEASURING[given] in "".join(edit.text for edit in found.fixes[0].edits)
