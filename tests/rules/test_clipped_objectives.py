"""PL969: the larger of an objective and its clipped form; and choices that are right."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
scores = torch.zeros(3, requires_grad=True)
opt = torch.optim.SGD([scores], lr=0.5)
actions, gain = torch.tensor([0, 1, 2, 0]), torch.tensor([1.0, -1.0, 0.5, -0.2])
old = scores.detach().log_softmax(0)[actions]
for _ in range(8):
    new = scores.log_softmax(0)[actions]
    ratio = (new - old).exp()
"""
END = """
    opt.zero_grad()
    loss.backward()
    opt.step()
print(scores)
"""
WRONG = {
    "max, maximized": "    loss = -torch.max(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()  # PL969",
    "maximum, the factors the other way": "    loss = -torch.maximum(torch.clamp(ratio, 0.8, 1.2) * gain, gain * ratio)"
    ".mean()  # PL969",
    "min of what is minimized": "    loss = torch.min(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()  # PL969",
    "in steps, with an entropy": """    one = ratio * gain
    two = torch.clip(ratio, 0.8, 1.2) * gain
    better = torch.max(one, two)  # PL969
    loss = (better * -1).sum() / 4 - 0.01 * new.mean()""",
}
RIGHT = {
    "min, maximized": "    loss = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()",
    "max of what is minimized": "    loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()",
    "a value that is limited": """    far = (new - 0.1).square()
    near = (old + (new - old).clamp(-0.2, 0.2) - 0.1).square()
    loss = torch.max(far, near).mean()""",
    "other products": "    loss = -torch.max(ratio * gain, ratio.clamp(0.8, 1.2) * gain.abs()).mean()",
    "only looked at": """    with torch.no_grad():
        print(torch.max(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean())
    loss = -(ratio * gain).mean()""",
}


@pytest.mark.parametrize("case", WRONG)
def test_the_larger_objective_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, HEAD + WRONG[case] + END, repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_the_smaller_objective_and_other_choices_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, HEAD + RIGHT[case] + END)
