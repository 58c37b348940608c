"""Hooks that pile up over several backwards, rows that were repeated in two orders and then drawn, and writes to
large expanded tensors: in other forms, and right programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HOOKED = """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
x, y = torch.randn(12, 3), torch.randn(12, 1)

def batches():
    for i in range(0, 12, 4):
        opt.zero_grad()
        F.mse_loss(net(x[i : i + 4]), y[i : i + 4]).backward()
        opt.step()
"""
REPEATED = """
x, y = torch.randn(12, 2), torch.arange(12) % 3
net = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
"""
WRONG = {
    "a hook for each epoch of several batches": HOOKED + """
for epoch in range(3):
    net[0].weight.register_hook(lambda g: g * 0.5)  # PL616
    batches()
""",
    "by a function that registers and trains": HOOKED + """
def halve(g):
    return g * 0.5
def train():
    net[0].weight.register_hook(halve)  # PL616
    batches()
for epoch in range(4):
    train()
""",
    "for all weights, with a factor": HOOKED + """
def scaled(by):
    def hook(g):
        return g.clamp(-1, 1) * by
    return hook
for epoch in range(3):
    for p in net.parameters():
        p.register_hook(scaled(0.9))  # PL616
    batches()
""",
    "by a part of a function, with epochs of unequal length": HOOKED + """
from functools import partial
def shrink(g, by):
    return g / by
for epoch in range(4):
    net[2].bias.register_hook(partial(shrink, by=2.0))  # PL616
    for _ in range(epoch + 1):
        batches()
""",
    "a module's hook that is registered before each evaluation": HOOKED + """
seen = []
def keep(module, given, result):
    seen.append(result.mean())
for epoch in range(3):
    batches()
    net[1].register_forward_hook(keep)  # PL616
    with torch.no_grad():
        for i in range(3):
            net(x[i : i + 4])
""",
    "a method of a trainer": HOOKED + """
class Trainer:
    def clip(self, g):
        return g.clamp(-0.1, 0.1)
    def epoch(self):
        net[2].weight.register_hook(self.clip)  # PL616
        batches()
trainer = Trainer()
for _ in range(3):
    trainer.epoch()
""",
    "rows drawn by one permutation": REPEATED + """
xs, ys = x.repeat_interleave(4, dim=0), y.repeat(4)
xs = xs + 0.1 * torch.randn_like(xs)
for rows in torch.randperm(48).split(16):
    update(opt, F.cross_entropy(net(xs[rows]), ys[rows]))  # PL436
""",
    "slices of both": REPEATED + """
xs, ys = torch.cat([x] * 4), y[:, None].expand(-1, 4).reshape(-1)
for i in range(0, 48, 16):
    update(opt, F.cross_entropy(net(xs[i : i + 16]), ys[i : i + 16]))  # PL436
""",
    "a loader": REPEATED + """
table = TensorDataset(x.tile(4, 1), y.repeat_interleave(4))
for xb, yb in DataLoader(table, batch_size=8, shuffle=True):
    update(opt, F.cross_entropy(net(xb), yb))  # PL436
""",
    "by index_select, in a function": REPEATED + """
def some(table, rows):
    return table.index_select(0, rows)
xs, ys = x.repeat(5, 1), torch.repeat_interleave(y, 5)
rows = torch.randint(0, 60, (20,))
update(opt, F.cross_entropy(net(some(xs, rows)), some(ys, rows)))  # PL436
""",
    "shuffled first, sliced later": REPEATED + """
order = torch.randperm(48)
xs, ys = x.repeat_interleave(4, dim=0)[order], y.repeat(4)[order]
for i in range(0, 48, 16):
    update(opt, F.cross_entropy(net(xs[i : i + 16]), ys[i : i + 16]))  # PL436
""",
    "a regression, by a method": REPEATED + """
class Data:
    def __init__(self):
        self.x, self.y = x.repeat_interleave(3, 0), torch.cat([x, x, x]).sum(1)
    def batch(self, rows):
        return self.x[rows], self.y[rows]
data = Data()
a, b = data.batch(torch.randint(0, 36, (9,)))
update(opt, F.mse_loss(net(a).sum(1), b))  # PL436
""",
    "a large table, row by row": """
table = torch.zeros(1, 60).expand(90, 60)
for i in range(3):
    table[i] = torch.randn(60).cumsum(0)  # PL404
print(table.mean())
""",
    "a large table, a column at a time": """
table = torch.zeros(70, 1).expand(-1, 80)
for j in range(2):
    table[:, j] = torch.randn(70)  # PL404
print(table.std())
""",
    "in a function, through a view": """
def fill(table):
    for row in table[:2]:
        row.copy_(torch.randn(100))  # PL404
    return table
print(fill(torch.zeros(100).broadcast_to(50, 100)).sum(1))
""",
    "one of several axes": """
grid = torch.ones(2, 1, 50).expand(2, 60, 50)
grid[0, 3] = torch.arange(50.0)  # PL404
print(grid.sum())
""",
    "a slice with one value": """
grid = torch.ones(1, 5000).expand_as(torch.empty(2, 5000))
grid[0] = 3.0  # PL404
print(grid[1].mean())
""",
    "in place, on a transposed table": """
table = torch.zeros(1, 60).expand(90, 60).t()
table[:, 4].add_(torch.arange(60.0))  # PL404
print(table[:, 5])
""",
}  # fmt: skip
RIGHT = {
    "a hook before the loop": HOOKED + """
net[0].weight.register_hook(lambda g: g * 0.5)
for epoch in range(3):
    batches()
""",
    "a hook that is removed": HOOKED + """
for epoch in range(3):
    handle = net[0].weight.register_hook(lambda g: g * 0.5)
    batches()
    handle.remove()
""",
    "a hook on a result of each round": HOOKED + """
for _ in range(3):
    for i in range(3):
        out = net(x[i : i + 4])
        out.register_hook(lambda g: g * 0.5)
        update(opt, F.mse_loss(out, y[i : i + 4]))
""",
    "several hooks from the beginning": HOOKED + """
for by in (0.5, 0.9, 0.8):
    net[0].weight.register_hook(lambda g, by=by: g * by)
for epoch in range(3):
    batches()
""",
    "one weight more in each epoch": HOOKED + """
scale = torch.tensor(0.5)
def shrink(g):
    return g * scale
for p in net.parameters():
    p.register_hook(shrink)
    batches()
""",
    "a module that is called more often": HOOKED + """
cell = nn.Linear(3, 3)
cell.register_forward_hook(lambda module, given, result: result.tanh())
def run(h, times):
    for _ in range(times):
        h = cell(h)
    return h
for times in (1, 1, 2, 2, 3, 3):
    run(x, times).sum().backward()
""",
    "both in one order, drawn": REPEATED + """
xs, ys = x.repeat_interleave(4, dim=0), y.repeat_interleave(4)
for rows in torch.randperm(48).split(16):
    update(opt, F.cross_entropy(net(xs[rows]), ys[rows]))
""",
    "reordered before they meet": REPEATED + """
xs, ys = x.repeat_interleave(4, dim=0), y.repeat(4)
back = torch.arange(48).view(4, 12).t().flatten()
update(opt, F.cross_entropy(net(xs), ys[back]))
""",
    "drawn by two indices that fit": REPEATED + """
xs, ys = x.repeat_interleave(4, dim=0), y.repeat(4)
rows = torch.randint(0, 48, (16,))
update(opt, F.cross_entropy(net(xs[rows]), ys[rows // 4]))
""",
    "all pairs of two tables": REPEATED + """
keys = torch.randn(5, 2)
left, right = x.repeat_interleave(5, dim=0), keys.repeat(12, 1)
rows = torch.randperm(60)[:20]
near = (left - right).square().sum(1)
update(opt, F.mse_loss(net(left[rows]).sum(1), near[rows]))
""",
    "a loader of both in one order": REPEATED + """
table = TensorDataset(x.tile(4, 1), torch.cat([y] * 4))
for xb, yb in DataLoader(table, batch_size=8, shuffle=True):
    update(opt, F.cross_entropy(net(xb), yb))
""",
    "views of each example, one set of them in the loss": REPEATED + """
xs, ys = x.repeat_interleave(4, dim=0), y.repeat(4)
update(opt, F.cross_entropy(net(xs[::4]), ys[:12]))
""",
    "a large table that is copied first": """
table = torch.zeros(1, 60).expand(90, 60).clone()
for i in range(3):
    table[i] = torch.randn(60)
print(table.mean())
""",
    "a large expanded table that is only read": """
table = torch.randn(1, 60).expand(90, 60)
print((table + torch.randn(90, 60)).mean(), table[3].sum())
""",
    "its memory is written, once": """
row = torch.zeros(1, 60)
table = row.expand(90, 60)
row[0, 3] = 2.0
row.copy_(torch.randn(1, 60))
print(table.mean())
""",
    "all of it with one value": """
table = torch.zeros(1, 60).expand(90, 60)
table.fill_(2.0)
print(table.mean())
""",
    "repeated with a copy": """
table = torch.zeros(1, 60).repeat(90, 1)
table[4] = 1.0
print(table.mean())
""",
    "an axis of one": """
table = torch.zeros(5000).expand(1, 5000)
table[0] = torch.randn(5000)
table[:, 3] = 1.0
print(table.mean())
""",
}  # fmt: skip


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
