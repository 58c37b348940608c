"""Grids for ``grid_sample`` that were computed for the other meaning of -1 and 1, however they are computed."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

LINES = """
image = torch.rand(2, 3, 6, 8)
across, down = torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 6)
def plane(down=down, across=across):
    y, x = torch.meshgrid(down, across, indexing="ij")
    return torch.stack([x, y], -1).expand(2, 6, 8, 2)
"""

WRONG = {
    "the default": LINES
    + """
F.grid_sample(image, plane(), mode="nearest", align_corners=None)  # PL455
""",
    "pixels and a flow, in a function": """
def warp(image, flow):
    n, _, h, w = image.shape
    rows, cols = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
    x, y = cols[None] + flow[:, 0], rows[None] + flow[:, 1]
    grid = torch.stack([2 * x / (w - 1) - 1, 2 * y / (h - 1) - 1], dim=-1)
    return F.grid_sample(image, grid, padding_mode="border", align_corners=False)  # PL455
warp(torch.rand(1, 3, 24, 30), torch.randn(1, 2, 24, 30))
""",
    "divided by a tensor of sizes": """
class Transform(nn.Module):
    def __init__(self, size):
        super().__init__()
        places = torch.stack(torch.meshgrid(*[torch.arange(n) for n in size], indexing="ij")).flip(0)
        rows, columns = torch.arange(size[0]), torch.arange(size[1])
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        self.register_buffer("places", torch.stack((x, y))[None].float())
        self.register_buffer("size", torch.tensor(size[::-1]) - 1.0)
    def forward(self, image, flow):
        new = (self.places + flow).permute(0, 2, 3, 1)
        return F.grid_sample(image, 2 * (new / self.size - 0.5), align_corners=False)  # PL455
Transform((6, 8))(torch.rand(1, 1, 6, 8), torch.zeros(1, 2, 6, 8))
""",
    "the centres of pixels, read from centre to centre": """
image = torch.rand(1, 1, 5, 7)
x, y = (2 * torch.arange(7) + 1) / 7 - 1, (2 * torch.arange(5) + 1) / 5 - 1
grid = torch.stack([x.expand(5, 7), y[:, None].expand(5, 7)], dim=-1)[None]
F.grid_sample(image, grid, align_corners=True)  # PL455
""",
    "affine_grid with the other word": """
image, turn = torch.rand(2, 1, 5, 7), torch.eye(2, 3).repeat(2, 1, 1)
grid = F.affine_grid(turn, image.shape, align_corners=True)
F.grid_sample(image, grid + 0.1, align_corners=False) if False else None
F.grid_sample(image, grid, align_corners=False)  # PL455
""",
    "affine_grid, and True": """
image, turn = torch.rand(2, 1, 5, 7), torch.eye(2, 3).repeat(2, 1, 1)
F.grid_sample(image, F.affine_grid(turn, list(image.shape), align_corners=False), "bilinear", "zeros", True)  # PL455
""",
    "written one by one into an empty grid": LINES
    + """
grid = torch.empty(2, 6, 8, 2)
grid[..., 0] = across
grid[..., 1] = down[:, None]
F.grid_sample(image, grid, align_corners=False)  # PL455
""",
    "a volume": """
d, h, w = (torch.linspace(-1, 1, n) for n in (3, 4, 5))
z, y, x = torch.meshgrid(d, h, w, indexing="ij")
F.grid_sample(torch.rand(1, 1, 3, 4, 5), torch.stack([x, y, z], -1)[None], align_corners=False)  # PL455
""",
    "a learned turn that begins with none": LINES
    + """
turn = nn.Parameter(torch.eye(2))
F.grid_sample(image, plane() @ turn.T, align_corners=False).mean().backward()  # PL455
""",
}

RIGHT = {
    "both meanings, each with its word": LINES
    + """
F.grid_sample(image, plane(), align_corners=True)
centred = plane(down * 5 / 6, across * 7 / 8)
F.grid_sample(image, centred, align_corners=False)
F.grid_sample(image, (plane(down.new_tensor(range(6)), across.new_tensor(range(8))) + 0.5) / 7 * 2 - 1, align_corners=False)
""",  # noqa: E501
    "affine_grid with the same word": """
image, turn = torch.rand(2, 1, 5, 7), torch.eye(2, 3).repeat(2, 1, 1)
for corners in (True, False):
    F.grid_sample(image, F.affine_grid(turn, image.shape, align_corners=corners), align_corners=corners)
""",
    "another size, and a part of the image": LINES
    + """
F.grid_sample(image, torch.rand(2, 4, 4, 2) * 2 - 1, align_corners=False)
F.grid_sample(image, plane()[:, ::2], align_corners=False)
F.grid_sample(image, plane(down / 2, across / 2), align_corners=False)
F.grid_sample(torch.rand(2, 3, 12, 16), plane(), align_corners=False)
""",
    "a network says where": LINES
    + """
where = nn.Linear(3, 2)(image.permute(0, 2, 3, 1)).tanh()
F.grid_sample(image, where, align_corners=False).sum().backward()
""",
    "one pixel": """
F.grid_sample(torch.rand(1, 2, 1, 1), torch.zeros(1, 1, 1, 2), align_corners=False)
""",
    "mirrored": LINES
    + """
F.grid_sample(image, plane(down, -across), align_corners=True)
""",
}


def test_grids_that_were_made_for_the_other_word_are_found_and_read_by_their_own(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_grids_that_are_read_as_they_were_made_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
