"""Choices between new and old numbers: where both are one memory, and right uses."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "a step in place, in a function": """
state = torch.zeros(6)
def propose(x):
    x += torch.randn(6)
    return x
for _ in range(3):
    new = propose(state)
    accept = new.square() < 1
    state = torch.where(accept[:], new, state)  # PL733
print(state)
""",
    "a second name, and the method": """
w = torch.zeros(4, 2)
old = w
w.add_(torch.randn(4, 2))
ended = torch.tensor([True, False, True, False])
w = old.where(ended[:, None], w)  # PL733
print(w)
""",
}
RIGHT = {
    "a copy": """
state = torch.zeros(6)
def propose(x):
    x += torch.randn(6)
    return x
for _ in range(3):
    new = propose(state.clone())
    state = torch.where(new.square() < 1, new, state)
print(state)
""",
    "other parts of one memory": """
table = torch.randn(2, 6)
table += 1
print(torch.where(table[0] > 0, table[0], table[1]))
""",
    "a number": """
x = torch.randn(6)
x *= 2
print(torch.where(x > 0, x, 0.0), torch.where(x > 0, x, x.neg()))
""",
}


def test_choices_of_one_memory_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_choices_between_two_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
