"""Names that a loop passes on until they are one tensor, and those that stay apart."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "attributes, one after the other": """
class String:
    def __init__(self):
        self.old, self.now = torch.rand(9), torch.rand(9)
        self.new = torch.zeros(9)
    def run(self, steps):
        for _ in range(steps):
            self.new[1:-1] = self.now[2:] + self.now[:-2] - self.old[1:-1]
            self.old = self.now
            self.now = self.new  # PL731
String().run(6)
""",
    "copied into, and the two read by one call": """
older, newer, buffer = torch.zeros(4), torch.ones(4), torch.empty(4)
i = 0
while i < 6:
    buffer.copy_(torch.lerp(older, newer, 1.5))
    older, newer = newer, buffer  # PL731
    i += 1
print(newer)
""",
}
RIGHT = {
    "all are rotated": """
a, b, c = torch.rand(9), torch.rand(9), torch.zeros(9)
for _ in range(6):
    c[1:-1] = 2 * b[1:-1] - a[1:-1]
    a, b, c = b, c, a
print(b)
""",
    "a copy, or a new tensor, is passed on": """
a, b, c = torch.rand(9), torch.rand(9), torch.zeros(9)
for _ in range(6):
    c[1:-1] = 2 * b[1:-1] - a[1:-1]
    a, b = b, c.clone()
a, b = torch.rand(9), torch.rand(9)
for _ in range(6):
    c = 2 * b - a
    a, b = b, c
print(b)
""",
    "one state only": """
now, after = torch.rand(9), torch.zeros(9)
for _ in range(6):
    after[1:-1] = (now[2:] + now[:-2]) / 2
    now = after
print(now)
""",
    "two buffers that change places": """
now, after = torch.rand(9), torch.zeros(9)
for _ in range(6):
    after[1:-1] = (now[2:] + now[:-2]) / 2
    now, after = after, now
print(now)
""",
}


def test_names_that_become_one_tensor_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_names_that_stay_apart_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
