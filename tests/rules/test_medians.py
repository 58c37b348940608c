"""PL833: calculations with a median of a few numbers, an even count of them; and programs where it is right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

DATA = "\nrated = torch.randn(50, 4, generator=torch.Generator().manual_seed(1))\n"
WRONG = {
    "a target of a training": DATA
    + """
net = nn.Linear(4, 1)
def middle(rows):
    return rows.median(dim=1).values  # PL833
F.mse_loss(net(rated).squeeze(1), middle(rated)).backward()
""",
    "one taken off": DATA
    + """
centre = torch.median(rated, -1, keepdim=True)[0]  # PL833
print((rated - centre).abs().mean())
""",
    "of all, and unpacked": DATA
    + """
few = torch.tensor([1.0, 2.0, 5.0, 8.0, 9.0, 9.5])
print(few / few.median())  # PL833
middle, _ = rated.t().nanmedian(0)  # PL833
print(middle.mean())
""",
    "of many rows, along any axis": """
wells = 100 + 12 * torch.randn(3, 4, 500)
level = wells.median(dim=1).values  # PL833
print((level - 100).mean(), (level < 100).float().mean())
spread, _ = torch.median((wells - 100).abs().permute(2, 0, 1), dim=-1)  # PL833
print((wells - 100) / spread.T[:, None])
""",
}
RIGHT = {
    "odd, or many": DATA
    + """
print(rated[:, :3].median(1).values.mean(), rated.median(0).values.mean(), rated - rated.median())
""",
    "the mean of the two": DATA + "print(rated.quantile(0.5, dim=1).mean(), rated.nanquantile(0.5, dim=1).sum())\n",
    "a cut in halves": DATA + "print((rated > rated.median(1, keepdim=True).values).sum(1), rated[:3].median())\n",
    "one that was there, with its place": DATA
    + """
values, places = rated.median(1)
print(values.mean(), rated.gather(1, places[:, None]).mean())
""",
    "many rows: cut in halves, of an odd count, of equal numbers in the middle, with gaps": """
wells = torch.randn(3, 4, 500)
print((wells > wells.median(1, keepdim=True).values).sum())
print(wells.median(0).values.mean(), wells.median(2).values.mean())
flat = wells.clone()
flat[:, 1:] = 0.5
print(flat.median(1).values.mean(), wells.where(wells < 9, torch.nan)[:, :3].nanmedian(1).values.mean())
""",
    "the two are equal, or whole numbers": DATA
    + """
tied = torch.tensor([[1.0, 2, 2, 9], [4, 4, 4, 4]])
print(tied.median(1).values.mean(), (rated * 9).long().median(1).values.sum())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL833",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
