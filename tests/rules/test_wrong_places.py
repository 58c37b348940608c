"""Numbers at wrong places: windows with their own targets, edges of other graphs, boxes that are mirrored.

And right ones like them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

GRAPHS = """
def graph(n):
    ends = torch.arange(n)
    return torch.randn(n, 3), torch.stack([ends, ends.roll(1)])
graphs = [graph(4), graph(6), graph(5), graph(7)]
"""

BOXES = """
x, corner = torch.randn(12, 3), 4 * torch.rand(12, 2)
boxes = torch.cat([corner, corner + 1 + torch.rand(12, 2)], dim=1)
net = nn.Linear(3, 4)
opt = SGD(net.parameters(), lr=0.1)
"""

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
    "graphs joined in a loop, in a written list, with separate ends": GRAPHS
    + """
def joined(graphs):
    xs, edges = [], []
    for x, e in graphs:
        xs.append(x)
        edges.append(e)
    return torch.cat(xs), torch.cat(edges, 1)  # PL978
x, (source, target) = joined(graphs)
print(torch.zeros_like(x).index_add_(0, target, x.index_select(0, source)))
net = nn.Linear(3, 4)
table = torch.cat([graphs[0][0], graphs[1][0], graphs[2][0], graphs[3][0]])
starts = torch.cat([graphs[0][1][0], graphs[1][1][0], graphs[2][1][0], graphs[3][1][0]])  # PL978
print(torch.relu(net(table))[starts].sum())
""",
    "boxes mirrored in a copy, in a list of columns, upside down": BOXES
    + """
for _ in range(3):
    other = boxes.clone()
    other[:, ::2] = 8 - boxes[:, ::2]  # PL984
    update(opt, F.mse_loss(net(x), other / 8))
    left, top, right, bottom = boxes.unbind(1)
    other = torch.stack([8 - left, top, 8 - right, bottom], dim=1)  # PL984
    update(opt, (net(x) - other).abs().mean())
    other = torch.cat([boxes[:, :1], 8 - boxes[:, 1:2], boxes[:, 2:3], 8 - boxes[:, 3:]], dim=-1)  # PL984
    update(opt, F.mse_loss(net(x), other))
    some = torch.rand(12) < 2
    mine = boxes[some]
    mine[..., [1, 3]] = torch.tensor(8.0) - mine[..., [1, 3]]  # PL984
    other[some] = mine
    update(opt, F.l1_loss(net(x), other))
""",
}

RIGHT = {
    "boxes mirrored with their ends exchanged, before, during or after": BOXES
    + """
for _ in range(3):
    other = boxes.clone()
    other[:, [0, 2]] = 8 - boxes[:, [2, 0]]
    update(opt, F.mse_loss(net(x), other))
    left, top, right, bottom = boxes.unbind(1)
    update(opt, F.mse_loss(net(x), torch.stack([8 - right, top, 8 - left, bottom], dim=1)))
    other = boxes.clone()
    other[:, [0, 2]] = 8 - other[:, [0, 2]]
    other = other[:, [2, 1, 0, 3]]
    update(opt, F.mse_loss(net(x), other))
    other = boxes.clone()
    other[:, [0, 2]] = 8 - other[:, [0, 2]]
    other[:, [0, 2]] = other[:, [2, 0]]
    update(opt, F.mse_loss(net(x), other))
    other = boxes.clone()
    other[:, [0, 2]] = 8 - other[:, [0, 2]]
    low, high = torch.minimum(other[:, :2], other[:, 2:]), torch.maximum(other[:, :2], other[:, 2:])
    update(opt, F.mse_loss(net(x), torch.cat([low, high], dim=1)))
""",
    "lines between points, centres and sizes, angles, and shares": BOXES
    + """
points = 8 * torch.rand(12, 4)
centres = torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], dim=1)
for _ in range(3):
    other = points.clone()
    other[:, [0, 2]] = 8 - other[:, [0, 2]]
    update(opt, F.mse_loss(net(x), other))
    other = centres.clone()
    other[:, 0] = 8 - other[:, 0]
    update(opt, F.mse_loss(net(x), other))
    update(opt, F.mse_loss(net(x), 1 - boxes / 8))
    turned = torch.rand(12, 2).cumsum(1)
    update(opt, F.mse_loss(net(x)[:, :2], 3.14 - turned))
""",
    "graphs whose edges are moved, or made afterwards": GRAPHS
    + """
x, offset, edges = torch.cat([x for x, _ in graphs]), 0, []
for rows, e in graphs:
    edges.append(e + offset)
    offset += len(rows)
source, target = torch.cat(edges, dim=1)
print(torch.zeros_like(x).index_add_(0, target, x[source]))
near = torch.cdist(x, x).topk(2, largest=False).indices[:, 1]
thirds = torch.cat(list(near.split(4)))
print(x[thirds])
""",
    "labels, tokens and groups in batches, and one table for all": GRAPHS
    + """
rows = torch.cat([torch.randn(12, 4) for _ in range(4)])
kinds = torch.cat([torch.randint(0, 4, (12,)) for _ in range(4)])
table = nn.Embedding(12, 4)
print(table(kinds), table.weight[kinds], rows.gather(1, kinds[:, None]), rows[torch.arange(48), kinds])
print(torch.zeros_like(rows).index_add(0, kinds, rows)[:4])
group = torch.cat([torch.full((len(x),), n) for n, (x, _) in enumerate(graphs)])
x = torch.cat([x for x, _ in graphs])
print(torch.zeros(4, 3).index_add(0, group, x), torch.zeros(4, 3).index_add(0, group, x)[group])
""",
    "users and items in one table": """
users, items, tags = nn.Parameter(torch.randn(6, 2)), nn.Parameter(torch.randn(9, 2)), nn.Parameter(torch.randn(30, 2))
everything = torch.cat([users, items, tags])
starts = torch.cat([torch.arange(6), torch.arange(6), 6 + torch.arange(9)])
ends = torch.cat([6 + torch.arange(6), 15 + torch.arange(6), 15 + torch.arange(9)])
print(torch.zeros_like(everything).index_add(0, ends, everything[starts]))
""",
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
