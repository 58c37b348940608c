"""Grids of coordinates for ``grid_sample``: the row before the column is found however the grid is made;
(x, y) in any form is right.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

LINES = """
image = torch.rand(2, 3, 6, 6)
one = torch.linspace(-1, 1, 6)
def sample(grid, image=image):
    return F.grid_sample(image, grid, align_corners=True)
"""

WRONG = {
    "windows around centres, too many numbers to keep": """
image, centres, offsets = torch.rand(300, 1, 20, 20), torch.rand(300, 2) * 10 + 5, torch.arange(5).float() - 2
oy, ox = torch.meshgrid(offsets, offsets, indexing="ij")
y, x = centres[:, 0].view(-1, 1, 1) + oy, centres[:, 1].view(-1, 1, 1) + ox
grid = torch.stack([2 * y / 19 - 1, 2 * x / 19 - 1], dim=-1)  # PL454
F.grid_sample(image, grid, align_corners=True)
""",
    "a large picture, in a function": """
def zoom(image, factor):
    rows, columns = torch.linspace(-1, 1, 90), torch.linspace(-1, 1, 90)
    y, x = torch.meshgrid(rows / factor, columns / factor, indexing="ij")
    grid = torch.stack((y, x), -1)[None].expand(len(image), -1, -1, -1)  # PL454
    return F.grid_sample(image, grid, align_corners=False)
zoom(torch.rand(3, 1, 90, 90), 2.0)
""",
    "shifted views, one for each example": """
image, shift = torch.rand(200, 1, 12, 12), torch.rand(200, 2) * 0.2
line = torch.linspace(-1, 1, 12)
down = line.view(1, 12, 1).expand(200, 12, 12) + shift[:, :1, None]
across = line.view(1, 1, 12).expand(200, 12, 12) + shift[:, 1:, None]
F.grid_sample(image, torch.stack([down, across], dim=3), align_corners=True)  # PL454
""",
    "scaled by a distance that is subtracted from the middle": """
image, middle = torch.rand(250, 1, 9, 9), torch.rand(250, 2)
steps = torch.arange(9) / 4 - 1
y = steps[:, None] - middle[:, 0].view(-1, 1, 1) + torch.zeros(9, 9)
x = steps[None, :] - middle[:, 1].view(-1, 1, 1) + torch.zeros(9, 9)
F.grid_sample(image, torch.stack([y, x], dim=-1), align_corners=True)  # PL454
""",
    "pixels and a flow, normalised one by one": """
def warp(image, flow):
    n, _, h, w = image.shape
    rows, cols = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    rows, cols = rows[None] + flow[:, 0], cols[None] + flow[:, 1]
    grid = torch.stack([2 * rows / (h - 1) - 1, 2 * cols / (w - 1) - 1], dim=-1)  # PL454
    return F.grid_sample(image, grid, align_corners=True)
warp(torch.rand(1, 3, 24, 30), torch.zeros(1, 2, 24, 30))
""",
    "the grid of meshgrid at once": LINES
    + """
grid = torch.stack(torch.meshgrid(one, one, indexing="ij"), dim=-1)  # PL454
sample(grid.unsqueeze(0).repeat(2, 1, 1, 1))
""",
    "stacked first, and permuted": LINES
    + """
side = one
grid = torch.stack(torch.meshgrid(side, side, indexing="ij"))  # PL454
sample(grid.permute(1, 2, 0)[None].expand(2, -1, -1, -1))
""",
    "a spatial transformer that adds a flow with two channels": """
class Transform(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.register_buffer("places", torch.stack(torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij"))[None].float())  # PL454
        self.register_buffer("size", torch.tensor(size) - 1.0)
    def forward(self, image, flow):
        new = (self.places + flow).permute(0, 2, 3, 1)
        return F.grid_sample(image, 2 * (new / self.size - 0.5), align_corners=True)
Transform((6, 8))(torch.rand(1, 1, 6, 8), torch.zeros(1, 2, 6, 8))
""",  # noqa: E501
    "columns of numbers that are expanded, and joined by cat": LINES
    + """
y, x = one.view(6, 1).expand(6, 6), one.view(1, 6).expand(6, 6)
sample(torch.cat([y.unsqueeze(-1), x.unsqueeze(-1)], dim=-1).expand(2, 6, 6, 2))  # PL454
""",
    "written one by one into an empty grid": LINES
    + """
grid = torch.empty(1, 6, 6, 2)
grid[..., 0] = one[:, None]
grid[..., 1] = one  # PL454
sample(grid.repeat(2, 1, 1, 1))
""",
    "repeated numbers, a learned shift of the whole grid": LINES
    + """
shift = nn.Parameter(torch.zeros(2, 1, 1, 2))
xx = one.repeat(6, 1)
yy = xx.t()
base = torch.stack((yy, xx), 2)  # PL454
sample(base[None] + torch.tanh(shift)).square().mean().backward()
""",
    "a volume with its depth first": """
d, h, w = (torch.linspace(-1, 1, n) for n in (3, 4, 5))
grid = torch.stack(torch.meshgrid(d, h, w, indexing="ij"), dim=-1)  # PL454
F.grid_sample(torch.rand(1, 1, 3, 4, 5), grid[None], align_corners=True)
""",
    "a learned rotation that begins with none, in a module": """
class Rigid(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.angle, self.shift = nn.Parameter(torch.zeros(())), nn.Parameter(torch.zeros(2))
        i, j = torch.meshgrid(torch.linspace(-1, 1, size), torch.linspace(-1, 1, size), indexing="ij")
        self.register_buffer("places", torch.stack((i, j), dim=-1)[None])  # PL454
    def forward(self, image):
        c, s = self.angle.cos(), self.angle.sin()
        turn = torch.stack((torch.stack((c, -s)), torch.stack((s, c))))
        return F.grid_sample(image, self.places @ turn.T + self.shift, align_corners=True)
net, image, wanted = Rigid(20), torch.rand(1, 1, 20, 20), torch.rand(1, 1, 20, 20)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(image), wanted))
""",
    "a linear layer that begins as the identity": LINES
    + """
layer = nn.Linear(2, 2)
nn.init.eye_(layer.weight)
base = torch.stack(torch.meshgrid(one, one, indexing="ij"), -1)  # PL454
sample(layer(base).expand(2, 6, 6, 2)).mean().backward()
""",
    "turned by einsum, a little": LINES
    + """
turn = torch.tensor([[0.99, -0.14], [0.14, 0.99]])
rows, columns = torch.meshgrid(one, one, indexing="ij")
grid = torch.stack([rows, columns], 2)  # PL454
sample(torch.einsum("ij,hwj->hwi", turn, grid).expand(2, 6, 6, 2))
""",
    "a matrix for each example, from the left": LINES
    + """
turns = torch.eye(2).repeat(2, 1, 1, 1, 1) + 0.01 * torch.randn(2, 1, 1, 2, 2)
rows, columns = torch.meshgrid(one, one, indexing="ij")
grid = torch.stack([rows, columns], -1)  # PL454
sample((turns @ grid[..., None]).squeeze(-1))
""",
    "in a loop of training, through a scale that is learned": LINES
    + """
scale = nn.Parameter(torch.ones(2))
opt = SGD([scale], lr=0.1)
each = one
grid = torch.stack(torch.meshgrid(each, each, indexing="ij"), -1)  # PL454
for _ in range(2):
    update(opt, sample((grid * scale).expand(2, 6, 6, 2)).square().mean())
""",
}

RIGHT = {
    "windows around centres, the column first": """
image, centres, offsets = torch.rand(300, 1, 20, 20), torch.rand(300, 2) * 10 + 5, torch.arange(5).float() - 2
oy, ox = torch.meshgrid(offsets, offsets, indexing="ij")
y, x = centres[:, 0].view(-1, 1, 1) + oy, centres[:, 1].view(-1, 1, 1) + ox
F.grid_sample(image, torch.stack([2 * x / 19 - 1, 2 * y / 19 - 1], dim=-1), align_corners=True)
""",
    "many turned windows: both coordinates along both axes": """
image, angle, offsets = torch.rand(300, 1, 20, 20), torch.rand(300, 1, 1), torch.arange(9).float() / 4 - 1
oy, ox = torch.meshgrid(offsets, offsets, indexing="ij")
x, y = ox * angle.cos() - oy * angle.sin(), ox * angle.sin() + oy * angle.cos()
F.grid_sample(image, torch.stack([y, x], dim=-1), align_corners=True)
""",
    "many windows turned by a right angle: one coordinate falls": """
image, offsets, place = torch.rand(300, 1, 20, 20), torch.arange(9).float() / 4 - 1, torch.rand(300, 1, 1)
oy, ox = torch.meshgrid(offsets, offsets, indexing="ij")
F.grid_sample(image, torch.stack([place - oy, place + ox], dim=-1), align_corners=True)
""",
    "many windows, turned back after they were sampled": """
image, offsets, place = torch.rand(300, 1, 20, 20), torch.arange(9).float() / 4 - 1, torch.rand(300, 1, 1)
oy, ox = torch.meshgrid(offsets, offsets, indexing="ij")
F.grid_sample(image, torch.stack([place + oy, place + ox], dim=-1), align_corners=True).transpose(2, 3).sum()
""",
    "many images that were turned before": """
image, offsets, place = torch.rand(300, 1, 12, 20), torch.arange(9).float() / 4 - 1, torch.rand(300, 1, 1)
oy, ox = torch.meshgrid(torch.linspace(-1, 1, 20), torch.linspace(-1, 1, 12), indexing="ij")
F.grid_sample(image, torch.stack([place + oy, place + ox], dim=-1), align_corners=True)
""",
    "the column first, in six forms": LINES
    + """
y, x = torch.meshgrid(one, one, indexing="ij")
sample(torch.stack([x, y], -1).expand(2, 6, 6, 2))
x, y = torch.meshgrid(one, one, indexing="xy")
sample(torch.stack([x, y], -1).expand(2, 6, 6, 2))
sample(torch.stack(torch.meshgrid(one, one, indexing="xy")).permute(1, 2, 0).expand(2, 6, 6, 2))
sample(torch.stack(torch.meshgrid(one, one, indexing="ij")).flip(0).permute(1, 2, 0).expand(2, 6, 6, 2))
sample(torch.stack(torch.meshgrid(one, one, indexing="ij"), -1)[..., [1, 0]].expand(2, 6, 6, 2))
xx = one.repeat(6, 1)
sample(torch.stack([xx, xx.t()], -1).expand(2, 6, 6, 2))
""",
    "channels of a field exchanged before sampling": """
places = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(8), indexing="ij"))[None].float()
new = places + torch.zeros(1, 2, 6, 8)
new = torch.stack([2 * (new[:, i] / (n - 1) - 0.5) for i, n in enumerate((6, 8))], dim=1).permute(0, 2, 3, 1)
F.grid_sample(torch.rand(1, 1, 6, 8), new[..., [1, 0]], align_corners=True)
""",
    "made by affine_grid, turned by a matrix, and deformed": LINES
    + """
grid = F.affine_grid(torch.tensor([[[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]]).repeat(2, 1, 1), (2, 3, 6, 6), align_corners=True)
sample(grid)
sample(grid.flip(-1) + 0.1 * torch.randn(2, 6, 6, 2))
y, x = torch.meshgrid(one, one, indexing="ij")
turned = torch.stack([x, y], -1) @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
sample(turned.expand(2, 6, 6, 2))
""",  # noqa: E501
    "turned by a right angle by hand": LINES
    + """
y, x = torch.meshgrid(one, one, indexing="ij")
sample(torch.stack([-y, x], -1).expand(2, 6, 6, 2))
sample(torch.stack([y, -x], -1).expand(2, 6, 6, 2))
""",
    "multiplied with a matrix: the column first, flipped behind it, exchanged by it, or mapped at will": LINES
    + """
turn = torch.tensor([[0.99, -0.14], [0.14, 0.99]])
y, x = torch.meshgrid(one, one, indexing="ij")
sample((torch.stack([x, y], -1) @ turn.T).expand(2, 6, 6, 2))
sample((torch.stack([y, x], -1) @ turn).flip(-1).expand(2, 6, 6, 2))
sample((torch.stack([y, x], -1) @ turn)[..., [1, 0]].expand(2, 6, 6, 2))
sample((torch.stack([y, x], -1) @ torch.eye(2).flip(0)).expand(2, 6, 6, 2))
sample((torch.stack([y, x], -1) @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]])).expand(2, 6, 6, 2))
sample(nn.Linear(2, 2)(torch.stack([y, x], -1)).expand(2, 6, 6, 2))
sample(torch.einsum("ij,hwj->hwi", turn.flip(0), torch.stack([y, x], 2)).expand(2, 6, 6, 2))
sample((turn @ torch.stack([x, y], -1)[..., None]).squeeze(-1).expand(2, 6, 6, 2))
""",
    "x first in meshgrid, and the result turned": """
image = torch.rand(1, 3, 5, 8)
x, y = torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 5), indexing="ij")
F.grid_sample(image, torch.stack([x, y], -1)[None], align_corners=True)
image = torch.rand(1, 3, 6, 6)
x, y = torch.meshgrid(torch.linspace(-1, 1, 6), torch.linspace(-1, 1, 6), indexing="ij")
print(F.grid_sample(image, torch.stack([x, y], -1)[None], align_corners=True).transpose(2, 3))
F.grid_sample(image, torch.stack([x, y], -1)[None].transpose(1, 2), align_corners=True)
""",
    "a mirrored image, and one sampled at chosen points": LINES
    + """
y, x = torch.meshgrid(one, one, indexing="ij")
sample(torch.stack([-x, y], -1).expand(2, 6, 6, 2))
points = torch.stack([y.flatten(), x.flatten()], -1)
sample(points.view(1, 1, 36, 2).expand(2, 1, 36, 2))
sample(torch.rand(2, 4, 4, 2) * 2 - 1)
""",
    "polar coordinates": LINES
    + """
radius, angle = torch.meshgrid(torch.linspace(0, 1, 6), torch.linspace(0, 6.28, 6), indexing="ij")
sample(torch.stack([radius * angle.cos(), radius * angle.sin()], -1).expand(2, 6, 6, 2))
""",
    "a volume as (x, y, z)": """
d, h, w = (torch.linspace(-1, 1, n) for n in (3, 4, 5))
z, y, x = torch.meshgrid(d, h, w, indexing="ij")
F.grid_sample(torch.rand(1, 1, 3, 4, 5), torch.stack([x, y, z], -1)[None], align_corners=True)
""",
    "rows and columns that index, or are features": LINES
    + """
rows, cols = torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij")
print(image[0, 0][rows, cols].sum())
places = torch.stack([rows, cols], -1).float() / 5
print(nn.Linear(2, 3)(places).sum())
""",
}


def test_rows_before_columns_are_found_and_exchanged(shop: Workshop) -> None:
    for title, text in WRONG.items():  # each alone: a fix would be tried on all of them together
        assert_found(shop, together({title: text}), repaired=True)


def test_columns_before_rows_and_grids_for_other_purposes_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
