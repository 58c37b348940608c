"""Figures that are not what their name says: ratios, means of means and differences of sums, and right
programs that resemble them.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain
from tests.rules.test_signals import HEAD

RARE = """
x, y = torch.randn(60, 3), (torch.arange(60) % 10 == 0).float()
x[:, 0] += y
net = nn.Linear(3, 1)
opt = Adam(net.parameters(), lr=0.05)
"""

FOCAL = """
x, y = torch.randn(12, 3), torch.randint(0, 2, (12,))
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
"""
WRONG = {
    "the focal factor of a mean, in a function": FOCAL
    + """
def focal(scores, target, alpha=0.25, gamma=2):
    ce = F.cross_entropy(scores, target)
    pt = torch.exp(-ce)
    return alpha * (1 - pt) ** gamma * ce  # PL926
for _ in range(3):
    update(opt, focal(net(x), y))
""",
    "the focal factor of a binary loss, in a module": FOCAL
    + """
class Focal(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.BCEWithLogitsLoss()
    def forward(self, scores, target):
        loss = self.base(scores, target)
        return loss * (1 - (-loss).exp()).pow(1.5)  # PL926
focal = Focal()
for _ in range(3):
    update(opt, focal(net(x)[:, 0], y.float()))
""",
    "the ratio as the first argument": RARE
    + """
criterion = nn.BCEWithLogitsLoss((len(y) - y.sum()) / y.sum())  # PL760
for _ in range(3):
    update(opt, criterion(net(x)[:, 0], y))
""",
    "the ratio in a function, as a number": RARE
    + """
def weight(labels):
    positive = labels.sum().item()
    return (labels.numel() - positive) / positive
for _ in range(3):
    update(opt, F.binary_cross_entropy_with_logits(net(x), y.unsqueeze(1), weight=torch.tensor([weight(y)])))  # PL760
""",
    "the loss times the ratio": RARE
    + """
scale = (1 - y.mean()) / y.mean()
for _ in range(3):
    update(opt, scale * F.binary_cross_entropy_with_logits(net(x)[:, 0], y))  # PL760
""",
    "the loss of a module times a Python number": RARE
    + """
counts = torch.bincount(y.long()).tolist()
times = counts[0] / counts[1]
criterion = nn.BCEWithLogitsLoss()
for _ in range(3):
    loss = criterion(net(x)[:, 0], y) * times  # PL760
    update(opt, loss)
""",
    "batches of a loader, in a class": RARE
    + """
class Task:
    def __init__(self, labels):
        negative = (labels < 0.5).sum()
        self.criterion = nn.BCEWithLogitsLoss(weight=negative / (labels > 0.5).sum(), reduction="mean")  # PL760
    def fit(self, loader):
        for rows, labels in loader:
            update(opt, self.criterion(net(rows).squeeze(-1), labels))
Task(y).fit(DataLoader(TensorDataset(x, y), batch_size=20, shuffle=True))
""",
    "a loss of probabilities": RARE
    + """
ratio = (y == 0).float().sum() / (y == 1).float().sum()
for _ in range(3):
    update(opt, F.binary_cross_entropy(torch.sigmoid(net(x)[:, 0]), y, weight=ratio))  # PL760
""",
    "a variance of columns, with products": """
x = torch.tensor([5000.0, 0.0]) + torch.randn(40, 2)
x[:, 0] = 30000 + 0.5 * x[:, 1]
m = x.mean(dim=0)
spread = torch.mean(x * x, dim=0) - m * m  # PL762
print((x - m) / spread.clamp_min(1e-8).sqrt())
""",
    "a variance in place, of a method's tensors": """
class Scaler:
    def fit(self, rows):
        self.mean = rows.mean(0, keepdim=True)
        self.var = rows.square().mean(0, keepdim=True)
        self.var -= self.mean.square()  # PL762
        return self
stamps = 1_600_000.0 + torch.rand(30, 1)
print(Scaler().fit(stamps).var)
""",
    "sums in a loop": """
seconds = 86400 * 3 + torch.rand(6, 20)
total, squares = 0.0, 0.0
for row in seconds:
    total = total + row.sum()
    squares = squares + torch.square(row).sum()
mean = total / 120
print(torch.sub(squares / 120, mean.pow(2)).sqrt())  # PL762
""",
    "half precision": """
x = (200 + torch.randn(50)).to(torch.bfloat16)
print((x**2).mean() - x.mean() ** 2)  # PL762
""",
    "pictures summed over all axes but the channels": """
def statistics(loader):
    total, squares, count = torch.zeros(3), torch.zeros(3), 0
    for (images,) in loader:
        total += images.sum(dim=(0, 2, 3))
        squares += (images**2).sum(dim=(0, 2, 3))
        count += images.numel() // 3
    return total / count, squares / count - (total / count) ** 2  # PL762
frames = 40000 + torch.rand(8, 3, 2, 2)
print(statistics(DataLoader(TensorDataset(frames), batch_size=4)))
""",
    "parts of a large tensor": """
class Scale:
    def __init__(self):
        self.count, self.total, self.squares = 0, torch.zeros(()), torch.zeros(())
    def update(self, x):
        self.count += x.numel()
        self.total += x.sum()
        self.squares += (x**2).sum()
    def variance(self):
        return self.squares / self.count - (self.total / self.count) ** 2  # PL762
scale = Scale()
for part in (101325 + 12 * torch.randn(20000)).split(4000):
    scale.update(part)
print(scale.variance())
""",
    "rows of a large table": """
table = 70000 + torch.randn(5000, 4)
first, second = torch.zeros(4), torch.zeros(4)
for rows in table.chunk(10):
    first = first + rows.sum(0)
    second = second + torch.square(rows).sum(0)
print((second / 5000 - (first / 5000).square()).clamp(min=0).sqrt())  # PL762
""",
    "windows of a long signal": """
signal = -90000 + 3 * torch.randn(20000)
for start in range(0, 2000, 500):
    window = signal[start:start + 500]
    print(window.pow(2).mean() - window.mean().pow(2))  # PL762
""",
}
RIGHT = {
    "parts of a large tensor near 0": """
x = 3 + torch.randn(20000)
total, squares = torch.zeros(()), torch.zeros(())
for part in x.split(500):
    total += part.sum()
    squares += (part**2).sum()
print(squares / 20000 - (total / 20000) ** 2)
""",
    "parts of a large tensor of equal numbers": """
x = torch.full((20000,), 101325.0)
total, squares = torch.zeros(()), torch.zeros(())
for part in x.split(500):
    total += part.sum()
    squares += (part**2).sum()
print(squares / 20000 - (total / 20000) ** 2)
""",
    "a focal factor for each example": FOCAL
    + """
for _ in range(3):
    ce = F.cross_entropy(net(x), y, reduction="none")
    update(opt, ((1 - torch.exp(-ce)) ** 2 * ce).mean())
""",
    "a mean weighed by its own size, without a gradient": FOCAL
    + """
for _ in range(3):
    ce = F.cross_entropy(net(x), y)
    update(opt, (1 - torch.exp(-ce.detach())) ** 2 * ce + ce * ce)
""",
    "losses weighed by a learned uncertainty": FOCAL
    + """
noise = nn.Parameter(torch.zeros(()))
opt = SGD([*net.parameters(), noise], lr=0.1)
for _ in range(3):
    ce = F.cross_entropy(net(x), y)
    update(opt, torch.exp(-noise).pow(2) * ce + noise)
    print(torch.exp(ce).item())
""",
    "numbers near zero": """
x = 2 + torch.randn(40, 3)
print((x**2).mean(0) - x.mean(0) ** 2)
""",
    "added up in float64": """
x = (101325 + 12 * torch.randn(40, 2)).double()
total, squares = torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
for row in x:
    total += row
    squares += row.square()
print(squares / 40 - (total / 40) ** 2)
""",
    "the variance of what does not vary": """
x = torch.full((30, 2), 0.1)
print(((x**2).mean(0) - x.mean(0) ** 2).clamp(min=1e-6).sqrt())
""",
    "distances from the mean": """
x = 101325 + 12 * torch.randn(40)
m = x.mean()
print(((x - m) ** 2).mean() - (x - m).mean() ** 2, x.var())
""",
    "local variances of a picture": """
a = torch.rand(1, 1, 8, 8)
a[..., :4] = 0.5
mu = F.avg_pool2d(a, 3, 1)
var = F.avg_pool2d(a * a, 3, 1) - mu.pow(2)
print(((2 * mu * mu + 1e-4) / (mu.pow(2) + var + 9e-4)).mean())
""",
    "squares of two numbers that are close": """
a, b = torch.tensor([1000.0]), torch.tensor([1000.0])
print(a**2 - b**2)
""",
    "a moment of a year": """
years = torch.tensor([2000.0, 2005.0, 2010.0, 2015.0, 2020.0, 2025.0])
print((years**2).mean() - years.mean() ** 2)
""",
    "statistics of a layer written out": """
net, x = nn.Linear(4, 6), torch.randn(16, 4)
h = net(x)
m = h.mean(0)
v = (h * h).mean(0) - m * m
((h - m) / (v + 1e-5).sqrt()).square().sum().backward()
""",
    "the ratio for the positive class": RARE
    + """
criterion = nn.BCEWithLogitsLoss(pos_weight=(y == 0).sum() / y.sum())
for _ in range(3):
    update(opt, criterion(net(x)[:, 0], y))
""",
    "a weight for each example": RARE
    + """
ratio = (y == 0).sum() / y.sum()
for _ in range(3):
    update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y, weight=torch.where(y == 1, ratio, 1.0)))
""",
    "the weight of one task among two": RARE
    + """
other = nn.Linear(3, 1)
print(y.sum())
for _ in range(3):
    update(opt, F.mse_loss(other(x), x[:, :1]) + 2.5 * F.binary_cross_entropy_with_logits(net(x)[:, 0], y))
""",
    "divided by the number of positives": RARE
    + """
for _ in range(3):
    positives = y.sum()
    update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y, weight=len(y) / positives))
""",
    "classes of the same size": """
x, y = torch.randn(60, 3), (torch.arange(60) % 2 == 0).float()
net = nn.Linear(3, 1)
opt = Adam(net.parameters())
update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y, weight=(y == 0).sum() / y.sum()))
""",
    "a mean over the rows of a mask": RARE
    + """
mask = torch.rand(60) < 0.3
update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y, weight=(~mask).sum() / mask.sum()))
""",
    "gradients that are scaled for half precision": RARE
    + """
print(y.mean())
loss = F.binary_cross_entropy_with_logits(net(x)[:, 0], y)
(loss * 1024.0).backward()
""",
    "a parameter that weighs the loss": RARE
    + """
s = nn.Parameter(torch.tensor(9.0))
print(y.sum())
(F.binary_cross_entropy_with_logits(net(x)[:, 0], y) * s + 1 / s).backward()
""",
}
UNREPAIRED = {"a loss of probabilities"}


@pytest.mark.parametrize("name", WRONG)
def test_found_in_another_form(name: str, shop: Workshop) -> None:
    source = HEAD + WRONG[name]
    subject = Subject(plain(source), "program.py")
    trace = shop.trace(subject)
    assert trace.outcome.failure is None
    found = tried(shop, subject, trace, find(trace))
    assert met(found, source) == ""
    (finding,) = found
    assert any(fix.verified for fix in finding.fixes) is (name not in UNREPAIRED)


@pytest.mark.parametrize("name", RIGHT)
def test_nothing_found_in_a_right_program(name: str, shop: Workshop) -> None:
    trace = shop.trace(Subject(HEAD + RIGHT[name], "program.py"))
    assert trace.outcome.failure is None
    assert find(trace) == []
