"""PL840: negative lengths of an overlap that are multiplied; and programs that see to boxes that lie apart."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

BOXES = """
a = torch.tensor([[0.0, 0.0, 2.0, 2.0], [5.0, 5.0, 6.0, 8.0]])
b = torch.tensor([[1.0, 1.0, 3.0, 3.0], [9.0, 7.0, 11.0, 9.0], [0.0, 4.0, 2.0, 6.0]])
"""
WRONG = {
    "two columns of a table of all pairs": BOXES
    + """
def iou(a, b):
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    wh = high - low
    inter = wh[..., 0] * wh[..., 1]  # PL840
    area = lambda t: (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])
    return inter / (area(a)[:, None] + area(b)[None] - inter)
print(iou(a, b))
""",
    "width and height apart": BOXES
    + """
w = torch.min(a[:, None, 2], b[:, 2]) - torch.max(a[:, None, 0], b[:, 0])
h = torch.min(a[:, None, 3], b[:, 3]) - torch.max(a[:, None, 1], b[:, 1])
print(torch.mul(w, h))  # PL840
""",
    "a product along an axis": BOXES
    + "print((torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).prod(-1))  # PL840\n",
    "unpacked": BOXES
    + """
class Overlap(nn.Module):
    def forward(self, a, b):
        x, y = (a[:, None, 2:].minimum(b[:, 2:]) - a[:, None, :2].maximum(b[:, :2])).unbind(-1)
        return x * y  # PL840
print(Overlap()(a, b))
""",
    "one pair after another, in pixels": BOXES
    + """
def overlap(p, q):
    w = torch.min(p[2], q[2]) - torch.max(p[0], q[0]) + 1
    h = torch.min(p[3], q[3]) - torch.max(p[1], q[1]) + 1
    return w * h  # PL840
print([overlap(p, q).item() for p in a for q in b])
""",
    "in a loss, in three dimensions": """
low = torch.tensor([[0.0, 0.0, 0.0], [4.0, 4.0, 0.0]], requires_grad=True)
other = torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
side = torch.minimum(low + 2, other + 2) - torch.maximum(low, other)
(-side.prod(dim=1).sum()).backward()  # PL840
""",
    "many boxes, whose pairs are too many to be kept": """
corner = torch.rand(90, 2) * 100
many = torch.cat([corner, corner + 8], dim=1)
few = torch.cat([corner[:60] + 1, corner[:60] + 9], dim=1).flip(0)
low, high = torch.max(many[:, None, :2], few[:, :2]), torch.min(many[:, None, 2:], few[:, 2:])
sides = high - low
area = sides[..., 0] * sides[..., 1]  # PL840
print(area.max(), (high - low).prod(dim=-1).max())  # PL840
""",
    "limited only afterwards": BOXES
    + """
s = torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])
print((s[..., 0] * s[..., 1]).clamp(min=0))  # PL840
""",
}
RIGHT = {
    "limited": BOXES
    + """
s = (torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).clamp(min=0)
print(s[..., 0] * s[..., 1], s.prod(-1))
""",
    "many boxes that are limited, looked through, or meet": """
corner = torch.rand(90, 2) * 100
many = torch.cat([corner, corner + 8], dim=1)
low, high = torch.max(many[:, None, :2], many[:, :2]), torch.min(many[:, None, 2:], many[:, 2:])
wh = (high - low).clamp(min=0)
print((wh[..., 0] * wh[..., 1]).max())
raw = high - low
print((raw[..., 0] * raw[..., 1])[(raw > 0).all(-1)].max())
centre = 50 + torch.rand(90, 2)
near = torch.cat([centre - 9, centre + 9], dim=1)
side = torch.min(near[:, None, 2:], near[:, 2:]) - torch.max(near[:, None, :2], near[:, :2])
print((side[..., 0] * side[..., 1]).min())
""",
    "by relu": BOXES
    + """
w, h = F.relu(torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])).unbind(-1)
print(w * h)
""",
    "those that lie apart are left out afterwards": BOXES
    + """
s = torch.min(a[:, None, 2:], b[:, 2:]) - torch.max(a[:, None, :2], b[:, :2])
print(s[..., 0] * s[..., 1] * (s > 0).all(-1), torch.where((s > 0).all(-1), s.prod(-1), 0.0))
""",
    "found by the corners": BOXES
    + """
low, high = torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:])
meet = (low < high).all(-1)
size = high - low
print(size[..., 0] * size[..., 1] * meet)
""",
    "the box around both": BOXES
    + """
s = torch.max(a[:, None, 2:], b[:, 2:]) - torch.min(a[:, None, :2], b[:, :2])
print(s[..., 0] * s[..., 1])
""",
    "boxes that all overlap": BOXES
    + """
s = torch.min(a[:, 2:], a[:, 2:] + 0.5) - torch.max(a[:, :2], a[:, :2] + 0.5)
print(s[..., 0] * s[..., 1])
""",
    "differences that are no lengths": BOXES
    + """
d = a[:, None, :2] - b[:, :2]
print(d[..., 0] * d[..., 1], d.prod(-1), d * d)
gap = torch.minimum(a[:, :1], b[:2, :1]) - torch.maximum(a[:, :1], b[:2, :1])
print(gap * gap, gap.square())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL840",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
