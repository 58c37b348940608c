"""PL736: parts of a tensor that are computed anew from each other, one too late; and updates that are meant so."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
torch.manual_seed(0)
p = torch.rand(6, 4)
"""
WRONG = {
    "boxes mirrored, by names from unbind": HEAD
    + """
def mirrored(boxes):
    left, _, right, _ = boxes.unbind(1)
    boxes[:, 0] = 1 - right
    boxes[:, 2] = 1 - left  # PL736
    return boxes
print(mirrored(p))
""",
    "boxes mirrored, without names": HEAD
    + """
p[..., 0] = 8 - p[..., 2]
p[..., 2] = 8 - p[..., 0]  # PL736
print(p)
""",
    "boxes from centres, without names": HEAD
    + """
def corners(out):
    out[:, 0] = out[:, 0] - out[:, 2] / 2
    out[:, 1] = out[:, 1] - out[:, 3] / 2
    out[:, 2] = out[:, 0] + out[:, 2] / 2  # PL736
    out[:, 3] = out[:, 1] + out[:, 3] / 2
    return out
print(corners(p))
""",
    "sum first, then difference": HEAD
    + """
p[0] = p[0] + p[1] * 0.5
p[1] = p[0] - p[1] * 0.5  # PL736
print(p)
""",
    "boxes, in a function, by names of slices": HEAD
    + """
def ends(boxes):
    out = boxes.clone()
    cx, cy = out[:, 0], out[:, 1]
    w, h = out[:, 2], out[:, 3]
    out[:, 0] = cx - w / 2
    out[:, 1] = cy - h / 2
    out[:, 2] = cx + w / 2  # PL736
    out[:, 3] = cy + h / 2
    return out
print(ends(p))
""",
    "a rotation": HEAD
    + """
c, s = torch.cos(torch.tensor(0.3)), torch.sin(torch.tensor(0.3))
x, y = p[:, 0], p[:, 1]
p[:, 0] = c * x - s * y
p[:, 1] = s * x + c * y  # PL736
print(p)
""",
    "a rotation by plain numbers": HEAD
    + """
x, y = p[:, 0], p[:, 1]
p[:, 0] = 0.8 * x - 0.6 * y
p[:, 1] = 0.6 * x + 0.8 * y  # PL736
print(p)
""",
    "halves that are turned by angles of positions": HEAD
    + """
q = torch.rand(2, 3, 8)
angle = torch.arange(3.0)[:, None] * torch.rand(4)
first, second = q[..., :4], q[..., 4:]
q[..., :4] = first * angle.cos() - second * angle.sin()
q[..., 4:] = second * angle.cos() + first * angle.sin()  # PL736
print(q)
""",
    "sum and difference of halves, by copy_": HEAD
    + """
def butterfly(x):
    a, b = x.chunk(2)
    x[:3].copy_(a + b)
    x[3:].copy_(a - b)  # PL736
    return x
print(butterfly(p))
""",
    "the mean and the difference of two ends": HEAD
    + """
x1, y1, x2, y2 = torch.unbind(p, dim=1)
p[:, 0] = (x1 + x2) / 2
p[:, 1] = (y1 + y2) / 2
p[:, 2] = x2 - x1  # PL736
p[:, 3] = y2 - y1
print(p)
""",
    "both divided by their length": HEAD
    + """
x, y = p[:, 0], p[:, 1]
p[:, 0] = x / (x**2 + y**2).sqrt()
p[:, 1] = y / (x**2 + y**2).sqrt()  # PL736
print(p)
""",
    "the larger and the smaller": HEAD
    + """
low, high = p[0], p[5]
p[5] = torch.maximum(low, high)
p[0] = torch.minimum(low, high)  # PL736
print(p)
""",
    "length and angle": HEAD
    + """
x, y = p.T[:2]
p[:, 0] = torch.sqrt(x**2 + y**2)
p[:, 1] = torch.atan2(y, x)  # PL736
print(p)
""",
    "colours": HEAD
    + """
image = torch.rand(3, 4, 4)
r, g, b = image
image[0] = 0.3 * r + 0.6 * g + 0.1 * b
image[1] = 0.5 * b - 0.2 * r - 0.3 * g  # PL736
image[2] = 0.6 * r - 0.5 * g - 0.1 * b
print(image)
""",
}
RIGHT = {
    "the second end from the first": HEAD
    + """
p[:, 0] = p[:, 0] - p[:, 2] / 2
p[:, 2] = p[:, 0] + p[:, 2]
print(p)
""",
    "ends that mirror their neighbours": HEAD
    + """
p[:, 0] = -p[:, 1]
p[:, 3] = -p[:, 2]
print(p)
""",
    "one after the other, by other numbers": HEAD
    + """
p[0] = 1 - 0.5 * p[1]
p[1] = 2 - 0.5 * p[0]
print(p)
""",
    "sweeps": HEAD
    + """
for _ in range(3):
    p[0] = 1 - 0.5 * p[1]
    p[1] = 1 - 0.5 * p[0]
print(p)
""",
    "both values first": HEAD
    + """
p[:, 0], p[:, 2] = 1 - p[:, 2], 1 - p[:, 0]
p[0], p[1] = p[0] + p[1] / 2, p[0] - p[1] / 2
print(p)
""",
    "a step of a body, with half the speed": HEAD
    + """
p[0] = p[0] + 0.5 * p[1]
p[1] = p[1] - 0.5 * p[0]
print(p)
""",
    "from a copy": HEAD
    + """
cx, cy, w, h = p.clone().unbind(-1)
p[:, 0] = cx - w / 2
p[:, 2] = cx + w / 2
print(p)
""",
    "computed before either is written": HEAD
    + """
a, b = p[0], p[1]
total, difference = a + b, a - b
p[0] = total
p[1] = difference
print(p)
""",
    "both divided by a length that was computed before": HEAD
    + """
x, y = p[:, 0], p[:, 1]
length = (x**2 + y**2).sqrt()
p[:, 0] = x / length
p[:, 1] = y / length
print(p)
""",
    "one kept below the other, which has moved": HEAD
    + """
low, high = p[0], p[1]
p[1] = high + 0.1 * low
p[0] = torch.minimum(low, high)
print(p)
""",
    "written through the name itself": HEAD
    + """
cx, cy, w, h = p.unbind(-1)
cx -= w / 2
p[:, 2] = cx + w / 2
a, b = p[0], p[1]
a.copy_(a + b)
p[1] = a - b
print(p)
""",
    "the end from the new start": HEAD
    + """
x, y, w, h = p.unbind(-1)
p[:, 0] = x - w / 2
p[:, 2] = x + w
print(p)
""",
    "a step of a simulation, the speed first": HEAD
    + """
place, speed = p[0], p[1]
p[1] = 0.99 * speed - 0.1 * place
p[0] = place + 0.1 * speed
print(p)
""",
    "unknowns that are improved one after the other": HEAD
    + """
a, b = p[0], p[1]
p[0] = 0.5 * a + 0.5 * (1 - 0.5 * b) / 3
p[1] = 0.5 * b + 0.5 * (2 - 0.4 * a) / 3
print(p)
""",
    "a place that decays, after its speed": HEAD
    + """
place, speed = p[0], p[1]
p[1] = speed - 0.1 * place
p[0] = 0.99 * place + 0.1 * speed
print(p)
""",
    "lifting of a wavelet": HEAD
    + """
even, odd = p[::2], p[1::2]
p[1::2] = odd - even
p[::2] = even + odd / 2
print(p)
""",
    "a coupling layer of a flow": HEAD
    + """
net = torch.nn.Linear(2, 2)
with torch.no_grad():
    a, b = p.chunk(2, dim=1)
    p[:, :2] = a * torch.exp(net(b))
    p[:, 2:] = b * torch.exp(net(a)) + net(a)
print(p)
""",
    "a state in a loop, bound anew in each round": HEAD
    + """
for _ in range(4):
    a, b = p[0], p[1]
    p[0] = 0.9 * a + 0.1 * b
    p[1] = 0.2 * a + 0.8 * b
print(p)
""",
    "what is read after it was written has another name": HEAD
    + """
a, b = p[0], p[1]
p[0] = a + b
new = p[0]
p[1] = new - b
print(p)
""",
    "elimination": HEAD
    + """
for i in range(3):
    row = p[i]
    p[i] = row / row[i]
    for j in range(i + 1, 4):
        other = p[j]
        p[j] = other - other[i] * row
print(p)
""",
    "rows made orthogonal one after the other": HEAD
    + """
a, b = p[0], p[1]
p[0] = a / a.norm()
p[1] = b - (a @ b) * a
p[1] = b / b.norm()
print(p)
""",
    "a ring of the last values": HEAD
    + """
for i in range(8):
    old, before = p[i % 6], p[(i - 1) % 6]
    p[i % 6] = 0.5 * old + 0.5 * before
print(p)
""",
    "a figure of both new values, for another place": HEAD
    + """
place, speed = p[0], p[1]
p[1] = speed - 0.1 * place
p[0] = place + 0.1 * speed
p[2] = 0.5 * place**2 + 0.5 * speed**2
print(p)
""",
    "the scale of a row, and rows that follow": HEAD
    + """
row, rest = p[0], p[1]
row /= row.sum()
p[1] = rest * row
print(p)
""",
}


@pytest.mark.parametrize("case", WRONG)
def test_a_part_that_is_read_too_late_is_found(shop: Workshop, case: str) -> None:
    assert_found(shop, WRONG[case], only=("PL732", "PL736"), repaired=True)


@pytest.mark.parametrize("case", RIGHT)
def test_updates_one_after_the_other_are_quiet(shop: Workshop, case: str) -> None:
    assert_quiet(shop, RIGHT[case])
