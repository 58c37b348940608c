"""PL715: windows of one long series that are scaled in its memory; and data sets that keep something else there."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SETTING = """
import numpy as np
from torch.utils.data import Subset
level = 40 + 5 * np.sin(np.arange(150) / 9)
class Windows(Dataset):
    def __init__(self, series):
        self.series, self.noted, self.filled = series, np.zeros(len(series)), np.zeros(120, dtype=np.float32)
    def __len__(self):
        return 16
def passes(data):
    torch.manual_seed(0)
    net = nn.Linear(16, 4)
    opt = SGD(net.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in DataLoader(data, 8, shuffle=True):
            update(opt, F.mse_loss(net(x), y))
"""
WRONG = {
    "methods of a tensor that has the array's memory": SETTING
    + """
class Scaled(Windows):
    def __getitem__(self, i):
        window = torch.from_numpy(self.series[i : i + 20])
        middle = window.mean()
        window.sub_(middle).div_(window.std() + 1e-6)  # PL715 changed
        return window[:16], window[16:]
series = level.astype(np.float32)
passes(Scaled(series))
print(series.mean())
""",
    "a part of a data set, in NumPy's memory": SETTING
    + """
class Centred(Windows):
    def __getitem__(self, i):
        window = self.series[i : i + 20]
        window -= window.mean()  # PL715 changed
        return torch.as_tensor(window[:16]), torch.as_tensor(window[16:])
series = level.astype(np.float32)
passes(Subset(Centred(series), range(20)))
print(series.mean())
""",
    "a tensor, windows that do not overlap, and a method that prepares": SETTING
    + """
class Prepared(Windows):
    def __len__(self):
        return 7
    def prepared(self, piece):
        piece[16:] *= 0.5  # PL715 changed
        return piece
    def __getitem__(self, i):
        window = self.prepared(self.series[i * 20 : i * 20 + 20])
        return window[:16], window[16:]
series = torch.tensor(level, dtype=torch.float32)
passes(Prepared(series))
print(series.mean())
""",
}
RIGHT = {
    "copies, and new tensors": SETTING
    + """
class Copied(Windows):
    def __getitem__(self, i):
        window = torch.from_numpy(self.series[i : i + 20].copy())
        window.sub_(window.mean())
        return window[:16], window[16:]
class Fresh(Windows):
    def __getitem__(self, i):
        window = torch.from_numpy(self.series[i : i + 20])
        window = (window - window.mean()) / window.std()
        return window[:16], window[16:]
passes(Copied(level.astype(np.float32)))
passes(Fresh(level.astype(np.float32)))
""",
    "memory that is filled for each example": SETTING
    + """
class Filled(Windows):
    def __getitem__(self, i):
        self.filled[:20] = self.series[i : i + 20]
        self.filled -= self.filled[:20].mean()
        window = torch.from_numpy(self.filled[:20].copy())
        return window[:16], window[16:]
passes(Filled(level.astype(np.float32)))
""",
    "what is noted for each example, and about all": SETTING
    + """
class Noted(Windows):
    def __getitem__(self, i):
        self.noted *= 0.99
        self.noted[i] += 0.5
        window = torch.from_numpy(self.series[i : i + 20])
        return window[:16], window[16:]
    def __getitems__(self, places):
        self.noted[min(places) : max(places)] += 0.25
        return [self[i] for i in places]
passes(Noted(level.astype(np.float32)))
""",
    "a series that the training changes between its passes": SETTING
    + """
class Plain(Windows):
    def __getitem__(self, i):
        window = torch.from_numpy(self.series[i : i + 20])
        return window[:16], window[16:]
data = Plain(level.astype(np.float32))
for stage in range(3):
    passes(data)
    data.series[5:60] *= 1.1
""",
}


def test_a_series_that_is_scaled_where_it_is_kept_is_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL715", "PL701"), repaired=True)


def test_copies_and_what_else_a_data_set_keeps_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
