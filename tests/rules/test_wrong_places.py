"""Numbers at wrong places: windows with their own targets, edges of other graphs, boxes that are mirrored. And right ones like them."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "windows and targets in lists, taken by a drawn order": """
series, size = torch.randn(60), 6
inputs = torch.stack([series[i : i + size] for i in range(len(series) - size + 1)])
answers = torch.stack([series[i + size - 1] for i in range(len(series) - size + 1)])
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    for rows in torch.randperm(len(inputs)).split(16):
        update(opt, F.mse_loss(net(inputs[rows])[:, 0], answers[rows]))  # PL976
""",
    "a data set of windows": """
class Windows(Dataset):
    def __init__(self, series, size):
        self.series, self.size = series, size
    def __len__(self):
        return len(self.series) - self.size + 1
    def __getitem__(self, i):
        return self.series[i : i + self.size], self.series[i + self.size - 1]
loader = DataLoader(Windows(torch.randn(50, 1), 5), batch_size=8, shuffle=True)
net, head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)
opt = SGD([*net.parameters(), *head.parameters()], lr=0.1)
for given, wanted in loader:
    update(opt, (head(net(given)[0][:, -1]) - wanted).square().mean())  # PL976
""",
    "a table of windows in a loader, several numbers forecast": """
series = (torch.randn(80).cumsum(0) - 3) / 2
inputs, answers = series.unfold(0, 8, 1)[:60], series[6:].unfold(0, 2, 1)[:60]
loader = DataLoader(TensorDataset(inputs, answers), batch_size=10, shuffle=True)
net = nn.Linear(8, 2)
opt = SGD(net.parameters(), lr=0.1)
for given, wanted in loader:
    update(opt, F.l1_loss(net(given), wanted))  # PL976
""",
    "the last column of the windows themselves": """
windows = torch.randn(60).unfold(0, 6, 1)
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(windows).squeeze(), windows[:, -1]))  # PL976
""",
}

RIGHT = {
    "windows before their targets, in four forms": """
series, size = torch.randn(60), 6
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
windows = series.unfold(0, size + 1, 1)
inputs = torch.stack([series[i : i + size] for i in range(len(series) - size)])
answers = torch.stack([series[i + size] for i in range(len(series) - size)])
class Windows(Dataset):
    def __len__(self):
        return len(series) - size
    def __getitem__(self, i):
        return series[i : i + size], series[i + size]
for given, wanted in DataLoader(Windows(), batch_size=8, shuffle=True):
    update(opt, F.mse_loss(net(given)[:, 0], wanted))
for rows in torch.randperm(len(inputs)).split(16):
    update(opt, F.mse_loss(net(inputs[rows])[:, 0], answers[rows]))
    update(opt, F.mse_loss(net(windows[rows][:, :-1])[:, 0], windows[rows][:, -1]))
    update(opt, F.mse_loss(net(windows[:, :-1])[:, 0], series[size:]))
""",
    "a recurrent model over windows, each result against the next number, or the last but one against the last": """
windows = torch.randn(50, 1).unfold(0, 6, 1).transpose(1, 2)
net, head = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)
opt = SGD([*net.parameters(), *head.parameters()], lr=0.1)
for rows in torch.randperm(len(windows)).split(16):
    given = windows[rows]
    update(opt, F.mse_loss(head(net(given)[0])[:, :-1], given[:, 1:]))
    update(opt, F.mse_loss(head(net(given)[0])[:, -2], given[:, -1]))
    update(opt, F.mse_loss(head(net(given)[0][:, 4]), given[:, 5]))
""",
    "windows that are rebuilt, whole or where they were masked": """
windows = torch.randn(60).unfold(0, 6, 1)
net, fill = nn.Sequential(nn.Linear(6, 2), nn.Linear(2, 6)), nn.Linear(6, 1)
opt = SGD([*net.parameters(), *fill.parameters()], lr=0.1)
mask = torch.ones(6)
mask[5] = 0
for _ in range(3):
    update(opt, F.mse_loss(net(windows), windows))
    hidden = windows.clone()
    hidden[:, 5] = 0
    update(opt, F.mse_loss(fill(hidden)[:, 0], windows[:, 5]))
    update(opt, F.mse_loss(fill(windows * mask)[:, 0], windows[:, 5]))
""",
    "rows that do not overlap: a number that is to be kept, and rows of a table": """
rows = torch.randn(40, 6)
net = nn.GRU(1, 1, batch_first=True)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(rows.unsqueeze(2))[1][0, :, 0], rows[:, 0]))
long = torch.randn(240)
for given in long.view(40, 6).split(10):
    update(opt, F.mse_loss(net(given.unsqueeze(2))[0][:, -1, 0], given[:, 0]))
""",
    "another series": """
seen, wanted = torch.randn(60), torch.randn(60)
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for rows in torch.randperm(55).split(16):
    update(opt, F.mse_loss(net(seen.unfold(0, 6, 1)[rows])[:, 0], wanted[5:][rows]))
    update(opt, (net(seen.unfold(0, 6, 1)[rows])[:, 0] - seen.square()[5:][rows]).abs().mean())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
