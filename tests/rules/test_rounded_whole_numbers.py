"""PL826: whole numbers that became equal in a short type and are used as whole numbers; and right programs."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

IDS = """
import numpy
ids = 731_904_000 + numpy.arange(40) * 3
shares = numpy.linspace(0, 1, 40)
"""
WRONG = {
    "a table of a data set": IDS
    + """
from torch.utils.data import DataLoader, Dataset
class Rows(Dataset):
    def __init__(self):
        mixed = numpy.random.default_rng(0).permutation(40)
        self.rows = torch.tensor(numpy.stack([ids[mixed], shares], 1), dtype=torch.float32)  # PL826
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, number):
        row = self.rows[number]
        return row[0].long(), row[1]
net = nn.Linear(1, 1)
for account, share in DataLoader(Rows(), batch_size=10):
    print(account.unique().numel(), net(share[:, None]).sum().item())
""",
    "a conversion of the numbers alone": IDS
    + """
def stored(numbers):
    return torch.from_numpy(numbers).float()  # PL826
print(len(stored(ids).unique()), torch.isin(stored(ids), torch.tensor([731_904_003.0])).sum())
""",
    "labels in sixteen bits": """
labels = torch.randperm(600)
kept = labels.to(torch.bfloat16)  # PL826
print((kept.long() == labels).float().mean())
""",
    "joined with measurements": """
ids, seen = torch.randperm(50) + 300_000_000, torch.randn(50, 2)
table = torch.cat([ids[:, None], seen], dim=1)  # PL826
print(table[:, 0].to(torch.int64).unique().numel(), table[:, 1:].mean())
""",
    "written into a table of fractions": """
ids = torch.arange(50) * 2 + 300_000_000
table = torch.zeros(50, 2)
table[:, 0] = ids  # PL826
print(table[:, 0].int().unique().numel())
""",
}
RIGHT = {
    "kept as whole numbers, or in float64": IDS
    + """
table = torch.tensor(numpy.stack([ids, shares], 1))
print(table[:, 0].long().unique().numel(), torch.from_numpy(ids).unique().numel(), table.float()[:, 1].mean())
""",
    "small, or not to be told apart": IDS
    + """
print(torch.arange(500).float().long().unique().numel(), torch.arange(200).bfloat16().long().unique().numel())
seconds = torch.from_numpy(ids).float()
print((seconds / 86400).long().unique(), seconds.mean(), (seconds / seconds.max()).sum())
""",
    "another column is turned into whole numbers": IDS
    + """
table = torch.tensor(numpy.stack([ids, numpy.arange(40) % 7], 1), dtype=torch.float32)
print(table[:, 1].long().unique(), table[:, 0].log().mean())
""",
    "no two become equal": """
ids = torch.arange(40) * 1000 + 731_904_000
print(ids.float().long().unique().numel())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL826",))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_the_fix_converts_what_else_is_read_of_the_table(shop: Workshop) -> None:
    first = {name: text for name, text in WRONG.items() if name in ("a table of a data set", "labels in sixteen bits")}
    assert_found(shop, together(first), only=("PL826",), repaired=True)
