"""Silent pitfalls in other forms than on their pages, and right programs that resemble them."""

from __future__ import annotations

import textwrap

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain
from tests.rules.build import assert_found, assert_quiet

HEAD = """import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import *
from torch.optim import SGD, Adam
from torch.utils.data import DataLoader, Dataset, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)

def update(opt, loss):
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
DATA = "x, y = torch.randn(8, 3), torch.randn(8, 1)\n"
BINARY = "x = torch.randn(10, 3)\ny = (x[:, 0] > 0).float()\n"

WRONG = {
    "a penalty over an iterator that its first round reads to the end": """
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
weights = filter(lambda p: p.dim() > 1, net.parameters())
opt = SGD(net.parameters(), lr=0.1)
def cost():
    gap = F.mse_loss(net(x), y)
    return gap + 0.01 * sum(w.square().sum() for w in weights)  # PL626
for _ in range(4):
    update(opt, cost())
""",
    "two kept iterators side by side, which the first update of an average reads": """
import copy
class Averaged:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.slow = copy.deepcopy(self.net)
        self.new, self.old = self.net.parameters(), self.slow.parameters()
        self.opt = SGD(self.net.parameters(), lr=0.1)
    def step(self, x, y):
        update(self.opt, F.mse_loss(self.net(x), y))
        self.follow()
    @torch.no_grad()
    def follow(self):
        for now, mean in zip(self.new, self.old):  # PL626
            mean.lerp_(now, 0.5)
averaged = Averaged()
for _ in range(4):
    averaged.step(torch.randn(8, 3), torch.randn(8, 1))
""",
    "an average of parameters that were read where it was made": """
class Average:
    def __init__(self, given):
        self.given = given
        self.means = [p.detach().clone() for p in self.given]
    def follow(self):
        with torch.no_grad():
            for place, (mean, now) in enumerate(zip(self.means, self.given)):
                mean.mul_(0.9).add_(now, alpha=0.1)
    def blend(self):
        with torch.no_grad():
            for mean, now in zip(self.means, self.given):  # PL626
                mean.mul_(0.9).add_(now, alpha=0.1)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
average = Average(net.parameters())
for _ in range(4):
    update(opt, F.mse_loss(net(torch.randn(8, 3)), torch.zeros(8, 1)))
    average.blend()
""",
    "numbered parameters of an iterator": """
net = nn.Linear(3, 1)
kept = iter(list(net.parameters()))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(net(torch.randn(8, 3)), torch.zeros(8, 1)))
    for number, p in enumerate(kept):  # PL626
        p.data.mul_(0.9)
""",
    "attention that drops numbers in every mode": """
class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.out, self.share = nn.Linear(4, 12), nn.Linear(4, 2), 0.5
    def forward(self, x):
        q, k, v = self.split(x).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q, k, v, dropout_p=self.share)  # PL904
        return self.out(mixed.mean(1))
net = Attended()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3, 4)), torch.randint(0, 2, (6,))))
net.eval()
with torch.no_grad():
    print(net(torch.randn(6, 3, 4)).argmax(1))
""",
    "the same rows measured at two places without eval": """
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
opt = SGD(net.parameters(), lr=0.1)
rows, kinds = torch.randn(6, 3), torch.randint(0, 2, (6,))
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3)), torch.randint(0, 2, (6,))))
with torch.no_grad():
    print((net(rows).argmax(1) == kinds).float().mean().item())  # PL904
with torch.no_grad():
    print(F.cross_entropy(net(rows), kinds).item())  # PL904
""",
    "the old policy computed anew for each update": """
states, moves, gains = torch.randn(8, 3), torch.randint(0, 2, (8,)), torch.randn(8)
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
def chances():
    return F.log_softmax(net(states), 1).gather(1, moves.unsqueeze(1)).squeeze(1)
for _ in range(3):
    new = chances()
    with torch.no_grad():
        old = chances()
    ratio = torch.exp(new - old)  # PL518
    update(opt, -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean())
""",
    "one of two derivatives without its record": """
net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    place, time = torch.rand(5, 1, requires_grad=True), torch.rand(5, 1, requires_grad=True)
    heat = net(torch.cat([place, time], 1))
    by_place = torch.autograd.grad(heat.sum(), place, create_graph=True)[0]
    by_time = torch.autograd.grad(heat.sum(), time, retain_graph=True)[0]  # PL509
    update(opt, (by_time - 2 * by_place).pow(2).mean())
""",
    "noise that a method draws because it was given none": """
class Process:
    def disturb(self, data, share, noise=None):
        noise = torch.randn_like(data) if noise is None else noise
        return share * data + (1 - share) * noise
    def loss(self, data):
        noise = torch.randn_like(data)  # PL974
        return F.mse_loss(net(self.disturb(data, 0.7)), noise)
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, Process().loss(torch.ones(8, 3) + 0.1 * torch.randn(8, 3)))
""",
    "the noise of a function, and a target drawn after it": """
x = torch.randn(8, 3)
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
def disturb(data):
    return data.lerp(torch.randn(8, 3), 0.5)
for _ in range(3):
    guess = net(disturb(x))
    update(opt, (guess - torch.randn(8, 3)).pow(2).mean())  # PL974
""",
    "a head under another name, put in by a function": DATA
    + """
class Tall(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.top = nn.Linear(3, 4), nn.Linear(4, 2)
    def forward(self, x):
        return self.top(torch.relu(self.body(x)))
def adapt(model):
    model.fc = nn.Sequential(nn.Dropout(0.1), nn.Linear(4, 2))  # PL972
    return model
net = adapt(Tall())
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x)[:, :1], y))
""",
    "rows to measure with among those to learn from": DATA
    + """
order = torch.randperm(8)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
learn, test = order[:5], order[4:]  # PL970
for _ in range(2):
    update(opt, F.mse_loss(net(x[learn]), y[learn]))
with torch.no_grad():
    print(F.mse_loss(net(x[test]), y[test]))
""",
    "rows set aside and forgotten": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
learn, test = x[:5], x[5:]
for _ in range(2):
    update(opt, F.mse_loss(net(learn), y[:5]))
with torch.no_grad():
    print(F.mse_loss(net(learn), y[:5]))  # PL970
""",
    "the last step of tokens that are filled up, read by a plain layer": """
words = torch.randint(1, 9, (6, 5))
words[torch.arange(5).expand(6, 5) >= torch.tensor([[5], [2], [3], [4], [5], [1]])] = 0
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.rnn, self.out = nn.Embedding(9, 4, padding_idx=0), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 2)
    def forward(self, words):
        states, _ = self.rnn(F.dropout(self.table(words), 0.1))
        return self.out(states[:, -1, :])  # PL418
net = Reader()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(net(words), torch.zeros(6, dtype=torch.long)))
""",  # noqa: E501
    "an argument halved on the way to something else": DATA
    + """
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
def width(spread):
    return torch.exp(spread.div_(2))  # PL968
for _ in range(2):
    moments = net(x)
    sample = width(moments) * 2
    update(opt, sample.mean() + moments.abs().mean())
""",
    "pictures divided for training only, from loaders": """
pictures, kinds = torch.rand(16, 1, 4, 4) * 255, torch.randint(0, 2, (16,))
learned = DataLoader(TensorDataset((pictures[:8] - 128) / 255, kinds[:8]), batch_size=4)
others = DataLoader(TensorDataset(pictures[8:], kinds[8:]), batch_size=4)
net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 2))
opt = SGD(net.parameters(), lr=0.1)
def right(loader):
    with torch.no_grad():
        return sum((net(images).argmax(1) == labels).sum().item() for images, labels in loader)  # PL966
for _ in range(2):
    for images, labels in learned:
        update(opt, F.cross_entropy(net(images), labels))
print(right(others))
""",
    "answers of a shuffled pass against the table, in a function": """
x = torch.randn(12, 3)
y = x.sum(1, keepdim=True)
net = nn.Linear(3, 1)
def answers(loader):
    kept = []
    with torch.no_grad():
        for inputs, _ in loader:
            kept.append(net(inputs))
    return torch.cat(kept, 0)
print(F.mse_loss(answers(DataLoader(TensorDataset(x, y), 4, True)), y))  # PL964
""",
    "the first batch in each step, through an iterator with a name": """
x = torch.randn(12, 3)
loader = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    for inputs, wanted in loader:  # PL962
        update(opt, F.mse_loss(net(inputs), wanted))
        break
""",
    "a difference without its size, from a function": DATA
    + """
def gap(guess, wanted):
    return 0.5 * (wanted - guess).sum()  # PL960
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, gap(net(x), y))
""",
    "a loss whose name is given to the next one": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = F.mse_loss(net(x), y)  # PL520
    loss = 0.1 * net.weight.abs().sum()
    update(opt, loss)
""",
    "a layer that is only called": DATA
    + """
class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(3), nn.Linear(3, 1)
    def forward(self, x):
        self.norm(x)  # PL618
        return self.out(x)
net = Normed()
opt = SGD(net.out.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",
    "parameters that are scaled, turned, converted and put together before they are kept": DATA
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        start = nn.Parameter(torch.ones(3))
        self.scores = nn.Parameter(torch.randn(3)) * 0.01  # PL622
        self.mixing = nn.Parameter(torch.randn(3, 3)).t()  # PL622
        self.single = nn.Parameter(torch.ones(3).double()).float()  # PL622
        self.local = start.clone()  # PL622
        self.row = nn.Embedding(1, 3).weight[0]  # PL622
        self.parts = torch.stack([nn.Parameter(torch.ones(())) for _ in range(3)])  # PL622
        self.out = nn.Linear(3, 1)
        self.shift = -nn.Parameter(torch.zeros(1))  # PL622
    def forward(self, x):
        x = x * torch.softmax(self.scores, 0) @ self.mixing * self.single * self.local
        return self.out(x * self.row * self.parts) + self.shift
net = Net()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(net(x), y).backward(retain_graph=True)
    opt.step()
""",
    "a parameter that a function has scaled, in a program without a module of its own": DATA
    + """
def initial(size):
    return nn.Parameter(torch.zeros(size)) + 1  # PL622
weight, net = initial(3), nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x * weight), y))
""",
    "an offset of a plain tensor, added in a function": DATA
    + """
offset = torch.zeros(1).requires_grad_()  # PL622
net = nn.Linear(3, 1)
def predict(inputs):
    return net(inputs) + offset
opt = Adam(net.parameters())
for _ in range(3):
    update(opt, F.mse_loss(predict(x), y))
""",
    "numbers that are missing, looked for by ==": DATA
    + """
missing = torch.tensor(float("nan"))
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
def valid(loss):
    return not (loss == missing)  # PL814
for _ in range(2):
    if valid(loss := F.mse_loss(net(x), y)):
        update(opt, loss)
print(torch.ne(x, torch.nan).all())  # PL814
""",
    "rows exchanged in a function, and columns": """
table = torch.arange(12.0).view(4, 3)
def exchange(t, i, j):
    kept = t[i]
    t[i] = t[j]
    t[j] = kept  # PL732
exchange(table, 0, 2)
table[:, 0], table[:, 1] = table[:, 1], table[:, 0]  # PL732
print(table.sum(0))
""",
    "counts and weights in memory that nothing filled": DATA
    + """
counts = torch.empty(4)  # PL816
for label in torch.tensor([0, 1, 1]):
    counts[label] += 1
class Bias(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(1, 3))
        self.bias = nn.Parameter(torch.empty(1))  # PL816
        nn.init.normal_(self.weight)
    def forward(self, x):
        return F.linear(x, self.weight, self.bias)
net = Bias()
update(SGD(net.parameters(), lr=0.1), F.mse_loss(net(x), y))
""",
    "the target network of a value drops numbers": DATA
    + """
value = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2))
target = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.2), nn.Linear(4, 2))
target.load_state_dict(value.state_dict())
opt = SGD(value.parameters(), lr=0.1)
def goal(after):
    return 1 + 0.9 * target(after).max(1).values  # PL940
for round in range(4):
    with torch.no_grad():
        wanted = goal(torch.randn(8, 3))
    update(opt, F.smooth_l1_loss(value(x).amax(1), wanted))
    if round == 1:
        target.load_state_dict(value.state_dict())
""",
    "a norm in place of the one beside it": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(4), nn.LayerNorm(4)
        self.mix, self.mlp = nn.Linear(4, 4), nn.Linear(4, 8)
    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return self.mlp(self.norm1(x))  # PL636
for block in (Block(), Block()):
    block(torch.randn(3, 4)).mean().backward()
""",
    "a split scaled by a function that measures what it is given": """
def standardize(x):
    return (x - x.mean(dim=0, keepdim=True)) / (x.std(dim=0, keepdim=True) + 1e-6)  # PL944
data = torch.randn(24, 3) * 2 + 1
train = DataLoader(TensorDataset(standardize(data[:16]), data[:16].sum(1, True)), batch_size=8, shuffle=True)
rest = standardize(data[16:])
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for x, y in train:
    update(opt, F.mse_loss(net(x), y))
with torch.no_grad():
    print(net(rest).mean())
""",
    "the target of an agent is given the weights themselves": """
class Agent:
    def __init__(self):
        self.value, self.target = nn.Linear(4, 2), nn.Linear(4, 2)
        self.opt = Adam(self.value.parameters())
        for a, b in zip(self.target.parameters(), self.value.parameters()):
            a.data = b.data  # PL714
    def learn(self):
        with torch.no_grad():
            goal = 1 + 0.9 * self.target(torch.randn(8, 4)).amax(1)
        update(self.opt, (self.value(torch.randn(8, 4)).amax(1) - goal).square().mean())
agent = Agent()
for _ in range(3):
    agent.learn()
""",
    "an action for each state with one noise": DATA
    + """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.log_std = nn.Linear(3, 1), nn.Parameter(torch.zeros(1))
    def forward(self, states):
        mean = self.mean(states)
        return mean + self.log_std.exp() * torch.randn(1)  # PL942
class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(3, 4), nn.Linear(2, 3)
    def forward(self, x):
        mean, log_var = self.enc(x).chunk(2, dim=-1)
        eps = torch.randn(1, 2)  # PL942
        return self.dec(eps.mul((log_var / 2).exp()).add(mean))
for net, goal in ((Vae(), x), (Policy(), y)):
    opt = Adam(net.parameters())
    for _ in range(3):
        update(opt, F.mse_loss(net(x), goal))
""",
    "counts of one object with two names, under keys, and as a default": """
class Meter:
    def __init__(self):
        self.hits = self.seen = torch.zeros(3)  # PL730
    def add(self, k, ok):
        self.seen[k] += 1
        self.hits[k] += ok
meter = Meter()
sums = dict.fromkeys(("a", "b"), torch.zeros(2))  # PL704
def kept(x, state=torch.zeros(2)):  # PL728
    state.mul_(0.5).add_(x)
    return state
for number, key in enumerate(("a", "b")):
    meter.add(number, number)
    sums[key] += number + 1
    print(kept(torch.ones(2)))
""",
    "weights of sixteen bits that no update moves": """
def build(dtype):
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1)).to(dtype)  # PL818
short = torch.bfloat16
net = build(short)
opt = Adam(net.parameters(), lr=1e-6)
data = torch.randn(16, 6, dtype=short)
for _ in range(4):
    update(opt, (net(data) - 1).square().mean())
""",
    "a block of one's own class in place of the one beside it": """
class Step(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.fc, self.norm = nn.Linear(i, o), nn.LayerNorm(o)
    def forward(self, x):
        return self.norm(self.fc(x)).relu()
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = Step(3, 4)
        self.near = Step(4, 4)
        self.far = Step(4, 4)
    def forward(self, x):
        x = self.near(self.stem(x))
        return self.near(x)  # PL636
deep = Deep()
update(SGD(deep.parameters(), lr=0.1), deep(torch.randn(5, 3)).mean())
""",
    "a matrix of a plain tensor behind a layer": DATA
    + """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.last = torch.randn(4, 1, requires_grad=True)  # PL622
    def forward(self, x):
        return self.body(x).relu() @ self.last
net = Head()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",
    "a temperature of a plain tensor, by its logarithm": """
class Clip(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 4), nn.Linear(2, 4)
        self.log_scale = torch.tensor(1.0, requires_grad=True)  # PL622
    def forward(self, a, b):
        scores = F.normalize(self.left(a), dim=1) @ F.normalize(self.right(b), dim=1).T
        return scores * self.log_scale.exp()
net, opt = Clip(), None
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.cross_entropy(net(torch.randn(5, 3), torch.randn(5, 2)), torch.arange(5)))
""",
    "logits rounded": BINARY
    + """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.binary_cross_entropy_with_logits(net(x).squeeze(1), y))
predicted = torch.round(net(x).squeeze(1))  # PL914
print((predicted == y).float().mean().item())
""",
    "logits of several labels compared in the training loop": """
net = nn.Linear(3, 4)
opt = SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 3), torch.randint(0, 2, (6, 4)).float()
loss_of = nn.BCEWithLogitsLoss()
def hits(scores, targets):
    return ((scores.detach() >= 0.5) & targets.bool()).sum().item()  # PL914
for _ in range(2):
    scores = net(x)
    update(opt, loss_of(scores, y))
    print(hits(scores, y))
""",
    "logits compared and counted in NumPy": BINARY
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y))
with torch.no_grad():
    labels = (net(x)[:, 0] > 0.5).long().numpy()  # PL914
print((labels == y.numpy()).mean())
""",
    "an adapter of convolutions of zeros": """
class Adapter(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Conv1d(2, 1, 1, bias=False), nn.Conv1d(1, 2, 1, bias=False)
        for layer in (self.down, self.up):
            nn.init.zeros_(layer.weight)  # PL624
    def forward(self, x):
        return x + self.up(self.down(x))
net = Adapter()
opt = Adam(net.parameters())
x = torch.randn(4, 2, 5)
for _ in range(4):
    update(opt, (net(x) - 1).square().mean())
""",
    "two matrices of zeros multiplied with each other": DATA
    + """
net = nn.Linear(3, 1)
left, right = nn.Parameter(torch.zeros(1, 2)), nn.Parameter(torch.zeros(2, 3))  # PL624
opt = SGD([left, right], lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(F.linear(x, net.weight.detach() + left @ right), y))
""",
    "all layers of a network of zeros": DATA
    + """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
def clear(module):
    if isinstance(module, nn.Linear):
        module.weight.data.zero_()  # PL624
        module.bias.data.zero_()
net.apply(clear)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(net(x), y))
""",
    "tied by a new parameter of a copy": """
embed, out = nn.Embedding(6, 4), nn.Linear(4, 6)
out.weight = nn.Parameter(embed.weight.detach().clone())  # PL718
opt = Adam([*embed.parameters(), *out.parameters()])
tokens = torch.arange(5)
for _ in range(3):
    update(opt, F.cross_entropy(out(embed(tokens)), tokens + 1))
""",
    "tied by a copy under no_grad, the other way round": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False)
        self.tie()
    def tie(self):
        with torch.no_grad():
            self.table.weight.copy_(self.out.weight)  # PL718
    def forward(self, tokens):
        return F.linear(self.table(tokens).mean(0), self.out.weight)
net = Model()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.cross_entropy(net(torch.arange(4)), torch.tensor(3)))
""",
    "an autoencoder tied by a copy of the transpose": """
down, up = nn.Linear(5, 2), nn.Linear(2, 5)
up.weight.data.copy_(down.weight.data.t())  # PL718
opt = SGD([*down.parameters(), *up.parameters()], lr=0.1)
x = torch.randn(6, 5)
for _ in range(3):
    update(opt, F.mse_loss(up(down(x)), x))
""",
    "torch.normal in an encoder": """
class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.spread, self.back = nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 4)
    def forward(self, x):
        mean, log = self.mean(x), self.spread(x)
        z = torch.normal(mean, log.exp())  # PL522
        return self.back(z), (mean ** 2 + log.exp() ** 2 - 2 * log).mean()
net = Noisy()
opt = Adam(net.parameters())
x = torch.randn(6, 4)
for _ in range(2):
    out, far = net(x)
    update(opt, F.mse_loss(out, x) + far)
""",
    "a sample of an independent normal, a condition beside it": """
encode, decode = nn.Linear(4, 4), nn.Linear(3, 4)
opt = Adam([*encode.parameters(), *decode.parameters()])
x, c = torch.randn(6, 4), torch.randn(6, 1)
prior = Independent(Normal(torch.zeros(2), torch.ones(2)), 1)
for _ in range(2):
    mean, log = encode(x).chunk(2, -1)
    posterior = Independent(Normal(mean, F.softplus(log)), 1)
    code = posterior.sample()  # PL522
    out = decode(torch.cat([code, c], dim=1))
    update(opt, F.mse_loss(out, x) + kl_divergence(posterior, prior).mean())
""",
    "a sample of a gamma distribution": """
encode, decode = nn.Linear(4, 2), nn.Linear(2, 4)
opt = Adam([*encode.parameters(), *decode.parameters()])
x = torch.rand(6, 4)
for _ in range(2):
    shape = F.softplus(encode(x)) + 0.1
    z = Gamma(shape, torch.ones_like(shape)).sample()  # PL522
    update(opt, F.mse_loss(decode(z), x) + shape.mean())
""",
    "weights of three classes, a dataset of its own": """
class Rows(Dataset):
    def __init__(self, rows):
        self.rows = rows
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, number):
        return self.rows[number]
def loader():
    sampler = WeightedRandomSampler([0.2, 0.3, 0.5], 12)  # PL916
    return DataLoader(Rows(list(range(12))), batch_size=4, sampler=sampler)
print([part.tolist() for part in loader()])
""",
    "weights of classes by keyword": """
labels = torch.tensor([0] * 10 + [1] * 2)
share = torch.bincount(labels) / 12
data = TensorDataset(torch.arange(12), labels)
loader = DataLoader(data, 4, sampler=WeightedRandomSampler(weights=1 / share, num_samples=len(data)))  # PL916
for epoch in range(2):
    print([part.tolist() for part, _ in loader])
""",
    "weights of classes for a part of a dataset": """
data = TensorDataset(torch.arange(20), torch.arange(20) % 2)
part = torch.utils.data.Subset(data, range(16))
draw = WeightedRandomSampler(torch.tensor([0.5, 0.5]), 16)  # PL916
print([a.tolist() for a, _ in DataLoader(part, 8, sampler=draw)])
""",
    "a penalty over what a function picks": DATA
    + """
net = nn.Linear(3, 1)
def picked(module):
    return (p for name, p in module.named_parameters() if name.endswith("weight"))
weights = picked(net)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(net(x), y) + 0.1 * sum(w.abs().sum() for w in weights))  # PL626
""",
    "a penalty in a function that is given the iterator": DATA
    + """
net = nn.Linear(3, 1)
weights = (p for p in net.parameters() if p.requires_grad)
opt = SGD(weights, lr=0.1)
def size(params):
    total = torch.zeros(())
    for p in params:  # PL626
        total = total + p.abs().sum()
    return total
for _ in range(3):
    update(opt, F.mse_loss(net(x), y) + size(weights))
""",
    "a projection in a method": DATA
    + """
class Trainer:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.free = filter(lambda p: p.requires_grad, self.net.parameters())
        self.opt = SGD(self.free, lr=0.1)
    def step(self):
        update(self.opt, F.mse_loss(self.net(x), y))
        with torch.no_grad():
            for p in self.free:  # PL626
                p.clamp_(-0.1, 0.1)
trainer = Trainer()
for _ in range(3):
    trainer.step()
""",
    "a count of large gradients": DATA
    + """
net = nn.Linear(3, 1)
learned = net.parameters()
opt = Adam(learned)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
    print([p.grad.norm().item() for p in learned])  # PL626
    print(net.weight.norm().item())
""",
    "the mask of real tokens for masked_fill": """
tokens = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
embed = nn.Embedding(6, 4, padding_idx=0)
h = embed(tokens)
scores = h @ h.transpose(1, 2)
real = tokens.ne(0).unsqueeze(1)
weights = scores.masked_fill(real, -1e9).softmax(-1)  # PL424
(weights @ h).sum().backward()
""",
    "the mask of padding for a scaled dot product": """
rows = [torch.tensor([1, 2, 3]), torch.tensor([4])]
tokens = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=5)
h = nn.Embedding(6, 4, padding_idx=5)(tokens).unsqueeze(1)
padding = (tokens == 5)[:, None, None, :]
F.scaled_dot_product_attention(h, h, h, attn_mask=padding).sum().backward()  # PL424
""",
    "the mask of real tokens for an encoder, and for its mean": """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.layer = nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
    def forward(self, tokens):
        real = tokens > 0
        h = self.layer(self.embed(tokens), src_key_padding_mask=real)  # PL424
        weight = real.unsqueeze(-1).float()
        return (h * weight).sum(1) / weight.sum(1)
Encoder()(torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])).sum().backward()
""",
    "a level of noise for each example, met by the features": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(9, 4), nn.Linear(4, 4)
    def forward(self, x, step):
        return self.last(x + self.table(step))
net, level, x, step = Net(), torch.linspace(0.1, 0.9, 9), torch.randn(4, 4), torch.tensor([0, 3, 8, 1])
noisy = x + level[step] * torch.randn_like(x)  # PL402
net(noisy, step).square().mean().backward()
""",
    "weights of classes, met by the columns of an error": """
net, share, x, y = nn.Linear(3, 5), torch.tensor([0.2, 0.3, 0.5]), torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 1])
beside = torch.cat([net(x), y[:, None].float()], dim=1)
weight = share[y].log().neg()
error = (net(x) - 1).square() * weight  # PL402
(error.mean() + nn.Linear(6, 1)(beside).mean() + (net(x) * y.view(-1, 1)).mean()).backward()
""",
    "a factor for each image, met by its pixels": """
net, beta, image, t = nn.Conv2d(1, 1, 3, padding=1), torch.linspace(0.1, 0.5, 8), torch.randn(4, 1, 4, 4), torch.tensor([1, 2, 5, 7])
keep = (1 - beta)[t].sqrt()
noisy = keep * image  # PL402
(net(noisy) + t.view(-1, 1, 1, 1) / 8).square().mean().backward()
""",  # noqa: E501
    "a part of a network frozen after training, still in training mode": """
net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1))
x, y = torch.randn(8, 3), torch.randn(8, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x), y))
for p in net[0].parameters():
    p.requires_grad = False
opt = SGD(net[1].parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x * 2), y))  # PL908
""",
    "a meta-step without gradients, in two functions": DATA
    + """
import copy
class Meta:
    def __init__(self):
        self.net = nn.Linear(3, 1)
        self.opt = Adam(self.net.parameters())
    def adapted(self):
        fast = copy.deepcopy(self.net)
        inner = SGD(fast.parameters(), lr=0.1)
        for _ in range(2):
            update(inner, F.mse_loss(fast(x), y))
        inner.zero_grad()
        return fast
    def round(self):
        self.opt.zero_grad()
        F.mse_loss(self.adapted()(x), y).backward()
        self.opt.step()  # PL632
meta = Meta()
for _ in range(3):
    meta.round()
""",
    "values of topk compared with labels": """
net, y = nn.Linear(3, 4), torch.tensor([0, 1, 2, 3, 1])
best, which = net(torch.randn(5, 3)).topk(1)
print((best.squeeze(1) == y).sum().item())  # PL918
""",
    "probabilities compared with targets": BINARY
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
def hits(p):
    return (p == y).float().mean().item()  # PL918
for _ in range(2):
    p = net(x)[:, 0].sigmoid()
    update(opt, F.binary_cross_entropy(p, y))
    print(hits(p))
""",
    "a mask behind the mean of a sequence loss": """
net, tokens = nn.Linear(3, 4), torch.tensor([[1, 2, 0], [3, 0, 0]])
loss_of = nn.CrossEntropyLoss()
loss = loss_of(net(torch.randn(2, 3, 3)).flatten(0, 1), tokens.flatten())
real = (tokens != 0).float().flatten()
((loss * real).sum() / real.sum()).backward()  # PL926
""",
    "a mean that is weighted afterwards": DATA
    + """
net, importance = nn.Linear(3, 1), torch.rand(8, 1)
def error(out):
    return ((out - y) ** 2).mean()
torch.mean(importance * error(net(x))).backward()  # PL926
""",
    "positions divided to nothing": """
net, place = nn.Linear(4, 4), torch.arange(6)
share = torch.div(place, 6, rounding_mode="floor")  # PL810
angle = share[:, None] * torch.tensor([1.0, 2.0, 3.0, 4.0])
net(angle.sin()).sum().backward()
""",
    "statistics of a target network that is only copied": """
online, target = (nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)) for _ in range(2))
opt = SGD(online.parameters(), lr=0.1)
target.eval()
x = torch.randn(8, 3)
for _ in range(3):
    with torch.no_grad():
        wanted = target(x) * 0.9 + 1
    update(opt, F.mse_loss(online(x), wanted))
    for t, s in zip(target.parameters(), online.parameters()):
        t.data.mul_(0.9).add_(s.data, alpha=0.1)  # PL722
""",
    "a confusion matrix and a histogram": """
table, seen = torch.zeros(3, 3), torch.zeros(4, dtype=torch.long)
true, said = torch.arange(12) % 3, torch.arange(12) // 4
class Counter:
    def __init__(self, size):
        self.m = torch.zeros(size, size)
    def add(self, a, b):
        self.m[a, b] += 1  # PL720
counter = Counter(3)
counter.add(true, said)
seen[torch.tensor([1, 1, 3])] += torch.tensor([2, 5, 1])  # PL720
print(counter.m.sum(), seen)
""",
    "messages to one node, of which one stays": """
send, to = nn.Linear(3, 2), torch.tensor([0, 1, 1, 3, 0, 2])
sent = send(torch.randn(6, 3))
heard = torch.zeros(4, 2).scatter(0, to.unsqueeze(1).expand_as(sent), sent)  # PL720
table = torch.zeros(8, 2)
table.index_copy_(0, to, sent)  # PL720
(heard.sum() + table.sum()).backward()
""",
    "a causal mask by a product behind the softmax": """
class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("past", torch.tril(torch.ones(3, 3)))
    def forward(self, h):
        scores = self.q(h) @ self.k(h).transpose(1, 2) / 2
        return (scores.softmax(-1) * self.past) @ self.v(h)  # PL426
Attention()(torch.randn(2, 3, 4)).sum().backward()
""",
    "pooling by shares of which some are masked": """
score, h = nn.Linear(4, 1), torch.randn(2, 5, 4)
length = torch.tensor([5, 2])
real = torch.arange(5) < length[:, None]
share = torch.softmax(score(h).squeeze(-1), dim=1)
share = share.masked_fill(~real, 0)  # PL426
(share.unsqueeze(-1) * h).sum(1).sum().backward()
""",
    "all layers started at ones, in a function": DATA
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 5), nn.Linear(5, 1)
        for layer in (self.a, self.b):
            layer.weight.data.fill_(0.05)  # PL628
            layer.bias.data.zero_()
    def forward(self, x):
        return self.b(self.a(x).tanh())
net = Net()
opt = Adam(net.parameters())
for _ in range(4):
    update(opt, F.mse_loss(net(x), y))
""",
    "an actor whose loss leaves gradients in the critic": """
actor, critic = nn.Linear(3, 2), nn.Linear(5, 1)
opt_a, opt_c = SGD(actor.parameters(), lr=0.1), SGD(critic.parameters(), lr=0.1)
state, gain = torch.randn(6, 3), torch.randn(6, 1)
def value(action):
    return critic(torch.cat([state, action], 1))
for _ in range(3):
    action = actor(state)
    opt_a.zero_grad()
    opt_c.zero_grad()
    F.mse_loss(value(action.detach()), gain).backward()
    (-value(action).mean()).backward()  # PL630
    opt_c.step()
    opt_a.step()
""",
    "a critic's loss that is left in the actor, in a class": """
class Players(nn.Module):
    def __init__(self):
        super().__init__()
        self.make, self.judge = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)), nn.Linear(3, 1)
    def score(self, sample):
        return self.judge(sample).mean()
both = Players()
make, judge = Adam(both.make.parameters()), Adam(both.judge.parameters())
for _ in range(3):
    both.zero_grad()
    made = both.make(torch.randn(6, 2))
    (both.score(made) - both.score(torch.randn(6, 3) + 2)).backward(retain_graph=True)  # PL656
    judge.step()
    (-both.score(made)).backward()
    make.step()
""",
    "an actor that is trained through a critic, with its log-probability": """
actor, critic = nn.Linear(3, 2), nn.Linear(4, 1)
step = Adam(actor.parameters())
def acted(seen):
    mean, spread = actor(seen).chunk(2, dim=1)
    around = torch.distributions.Normal(mean, spread.exp())
    action = around.sample()  # PL522
    return action, around.log_prob(action)
for _ in range(2):
    seen = torch.randn(6, 3)
    action, chance = acted(seen)
    judged = critic(torch.cat([seen, action], 1))
    step.zero_grad()
    (0.1 * chance - judged).mean().backward()
    step.step()
""",
    "a scale for each series, and as many series as steps": """
series = torch.rand(6, 40) + 1
known, later = series[:, :34], series[:, 34:]
usual = known[:, 1:].sub(known[:, :-1]).abs().mean(1)
print(((later - known[:, -6:]).abs() / usual).mean())  # PL402
""",
    "a second derivative of two outputs, by a function": """
wave = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 2))
fitted = Adam(wave.parameters())
def slope_of(values, at):
    return torch.autograd.grad(values, at, grad_outputs=torch.ones_like(values), create_graph=True)[0]  # PL524
for _ in range(2):
    at = torch.rand(7, 1, requires_grad=True)
    heights = wave(at)
    fitted.zero_grad()
    (slope_of(slope_of(heights, at), at) + torch.tensor([1.0, 4.0]) * heights).square().mean().backward()
    fitted.step()
""",
    "logarithms in a bag of words of a distribution": """
def words(given):
    return torch.distributions.OneHotCategorical(probs=given).sample()  # PL946
print(words(F.log_softmax(torch.randn(4, 5), 1).view(2, 2, 5)).sum())
""",
    "snapshots that a class keeps, without a copy": """
class Path:
    def __init__(self, layer):
        self.layer, self.points = layer, []
    def take(self):
        here = self.layer.weight.detach().numpy()  # PL701
        self.points.append(here)
    def lengths(self):
        return [abs(b - a).sum() for a, b in zip(self.points, self.points[1:])]
line = nn.Linear(3, 1)
moved, path = SGD(line.parameters(), lr=0.1), Path(line)
for _ in range(4):
    path.take()
    update(moved, line(torch.randn(5, 3)).square().mean())
print(path.lengths())
""",
    "an accuracy in a report, for a scheduler that waits for less": """
points = torch.randn(30, 3)
kinds = (points.sum(1) > 0).long()
guess = nn.Linear(3, 2)
moves = SGD(guess.parameters(), lr=0.5)
waits = torch.optim.lr_scheduler.ReduceLROnPlateau(moves, "min", patience=1)  # PL664
def report():
    with torch.no_grad():
        return {"right": guess(points).argmax(1).eq(kinds).sum().div(30).item()}
for _ in range(3):
    update(moves, F.cross_entropy(guess(points), kinds))
    waits.step(report()["right"])
""",
    "an attack in a function of its own, with momentum, several steps and clipping": """
net = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
inputs, targets = torch.randn(8, 3), torch.randn(8, 1)
def attacked(given):
    shift = torch.zeros_like(given, requires_grad=True)
    for _ in range(2):
        ((net(given + shift) - targets) ** 2).mean().backward()  # PL658
        with torch.no_grad():
            shift += 0.1 * shift.grad.sign()
        shift.grad = None
    return given + shift.detach()
for _ in range(3):
    optimizer.zero_grad()
    ((net(attacked(inputs)) - targets) ** 2).mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    optimizer.step()
""",
    "the sum of squared differences of two orders": """
a, b = torch.randn(7), torch.randn(7)
def order(v):
    return torch.argsort(v, dim=0).to(torch.float32)  # PL920
print(1 - 6 * (order(a) - order(b)).pow(2).sum() / (7 * 48))
""",
    "a temperature that cancels in a function": """
def draw(p, t):
    return torch.multinomial(p / t, 1)  # PL922
print(draw(torch.randn(3, 5).softmax(1), 0.7))
""",
    "a causal mask of numbers, added": """
h, past = torch.randn(1, 4, 4, requires_grad=True), torch.tril(torch.ones(4, 4))
scores = h @ h.transpose(1, 2) + past  # PL428
(scores.softmax(-1) @ h).sum().backward()
""",
    "a causal mask of numbers for a module": """
layer = nn.MultiheadAttention(4, 1, batch_first=True)
h = torch.randn(2, 3, 4)
layer(h, h, h, attn_mask=torch.triu(torch.ones(3, 3), diagonal=1))[0].sum().backward()  # PL428
""",
    "scores that end in a ReLU": """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU())
opt = SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 3), torch.arange(6) % 3
for _ in range(2):
    update(opt, F.cross_entropy(net(x), y))  # PL901
""",
    "logits cut at zero in forward": BINARY
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 1)
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x))), inplace=True).squeeze(1)
F.binary_cross_entropy_with_logits(Net()(x), y).backward()  # PL901
""",
    "as many tokens as classes": """
table, cell, last = nn.Embedding(9, 4), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 5)
words, tags = torch.randint(0, 9, (3, 5)), torch.randint(0, 5, (3, 5))
F.cross_entropy(last(cell(table(words))[0]), tags).backward()  # PL408
""",
    "what a hook kept of a layer, before the next one worked in place": """
net = nn.Sequential(nn.Linear(3, 8), nn.LeakyReLU(inplace=True), nn.Linear(8, 2))
opt = SGD(net.parameters(), lr=0.1)
class Watch:
    def __init__(self, layer):
        layer.register_forward_hook(self.note)
    def note(self, layer, given, result):
        self.last = result.detach()  # PL702
watch = Watch(net[0])
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3)), torch.randint(0, 2, (6,))))
    print(watch.last.min().item())
""",
    "a step inside whose gradient has no record, in a function": """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
def nearer(inputs, wanted):
    gap = F.mse_loss(net(inputs), wanted)
    slopes = torch.autograd.grad(gap, [net.weight, net.bias])  # PL509
    return [p.sub(0.1 * g) for p, g in zip([net.weight, net.bias], slopes)]
for _ in range(2):
    x = torch.randn(8, 3)
    weight, bias = nearer(x, x.sum(1, keepdim=True))
    update(opt, F.mse_loss(F.linear(x, weight, bias), x.sum(1, keepdim=True)))
""",
    "noise added to a data set's own row each time it is taken": """class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.rows = torch.randn(4, 3)
    def __len__(self):
        return 4
    def __getitem__(self, place):
        row = self.rows[place]
        row += 0.1 * torch.randn(3)  # PL715
        return row, place % 2
net, data = nn.Linear(3, 2), Rows()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for rows, labels in torch.utils.data.DataLoader(data, batch_size=2):
        update(opt, F.cross_entropy(net(rows), labels))
""",
    "a count of float32 that stands still": """
pixels = torch.tensor(16777214.0)
for _ in range(12):
    pixels.add_(1)  # PL803
print(pixels)
""",
    "one of several sums of bfloat16 that stands still": """
tally = torch.tensor([0.0, 250.0], dtype=torch.bfloat16)
for row in torch.tensor([[0, 1]] * 24):
    tally += row  # PL803
print(tally)
""",
    "fractions for a table of labels": """
labels = torch.randint(0, 4, (10,))
shares = torch.full_like(labels, 0.9)  # PL802
ages = torch.tensor([30, 45, -1]).masked_fill(torch.tensor([False, False, True]), 37.5)  # PL802
print(shares * torch.rand(10), ages)
""",
    "a hook that is a method and returns nothing": DATA
    + """
class Clipper:
    def __init__(self, limit):
        self.limit = limit
    def clip(self, grad):
        grad.clamp(-self.limit, self.limit)  # PL740
net = nn.Linear(3, 1)
clipper = Clipper(0.01)
net.weight.register_hook(clipper.clip)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x), y))
""",
    "an object that scales what goes into a layer, and keeps it to itself": DATA
    + """
class Scale:
    def __call__(self, layer, args):
        (given,) = args
        scaled = given / 10  # PL740
net = nn.Linear(3, 1)
net.register_forward_pre_hook(Scale())
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x), y))
""",
    "pictures that a loop scales under a name of its own": """
pictures = [torch.rand(1, 4, 4) * 255 for _ in range(3)]
for picture in pictures:
    picture = picture / 255  # PL740
print(nn.Conv2d(1, 2, 3)(torch.stack(pictures)).mean())
""",
    "a deviation computed by a property, and filled": """
class Gauss(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_std, self.mean = nn.Parameter(torch.zeros(3)), nn.Linear(2, 3)
    @property
    def std(self):
        return self.log_std.exp()
    def forward(self, given):
        return Normal(self.mean(given), self.std)
policy = Gauss()
policy.std.data.fill_(0.1)  # PL742
opt = SGD(policy.parameters(), lr=0.1)
for _ in range(2):
    update(opt, -policy(torch.randn(4, 2)).log_prob(torch.randn(4, 3)).mean())
""",
    "a symmetric weight, initialised where it is computed": """
class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T
mix = nn.Linear(3, 3, bias=False)
nn.utils.parametrize.register_parametrization(mix, "weight", Symmetric())
nn.init.eye_(mix.weight)  # PL742
print(mix(torch.ones(1, 3)))
""",
    "a data set that scales its pictures in NumPy's memory": """
import numpy as np
class Pictures(Dataset):
    def __init__(self):
        self.pictures = [np.ones((1, 4, 4), dtype=np.float32) for _ in range(4)]
    def __len__(self):
        return 4
    def __getitem__(self, place):
        picture = self.pictures[place]
        picture *= np.float32(0.9)  # PL715
        return torch.from_numpy(picture), place % 2
net = nn.Sequential(nn.Flatten(), nn.Linear(16, 2))
opt = SGD(net.parameters(), lr=0.1)
loader = DataLoader(Pictures(), batch_size=2)
for _ in range(3):
    for pictures, kinds in loader:
        update(opt, F.cross_entropy(net(pictures), kinds))
""",
    "noise added to a batch that is a view of the data": """
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for start in (0, 4):
        batch = x[start : start + 4]
        batch += 0.1 * torch.randn(4, 3)  # PL715
        update(opt, F.mse_loss(net(batch), y[start : start + 4]))
""",
    "batches of a generator for several epochs, in an object": """
def pieces(data):
    for row in data.split(2):
        yield row
class Learner:
    def __init__(self, net, stream):
        self.net, self.stream = net, stream
        self.opt = SGD(net.parameters(), lr=0.1)
    def epoch(self):
        for rows in self.stream:  # PL626
            update(self.opt, self.net(rows).square().mean())
learner = Learner(nn.Linear(3, 1), pieces(torch.randn(6, 3)))
for _ in range(3):
    learner.epoch()
""",
    "a state of other names, of which two fit": """
class Older(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)
class Newer(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3)), nn.Linear(3, 1)
    def forward(self, given):
        return self.last(self.body(given))
net = Newer()
net.load_state_dict(Older().state_dict(), strict=False)  # PL627
print(net(torch.ones(1, 2)))
""",
    "derivatives of custom operations, exchanged or of another formula": """
class Grown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.exp(b)
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * a * b.exp(), g * b.exp()  # PL590
class Ratio(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a / b
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return -g * a / b**2, g / b  # PL590
class Wave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, k):
        ctx.save_for_backward(a, b)
        ctx.k = k
        return k * (a * b.square()).sin()
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        inner = g * ctx.k * (a * b.square()).cos()
        for_a = inner * b.square()
        for_b = inner * 2 * a * b
        return for_b, for_a, None  # PL590
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g * a  # PL590
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * torch.sigmoid(a)
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        s = torch.sigmoid(a)
        return g * (s + s * (1 - s))  # PL590
class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b**3
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * 3 * a * b**2, g * b**3  # PL590
class Shares(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        out = 1 / (1 + torch.exp(-a))
        ctx.save_for_backward(out)
        return out
    @staticmethod
    def backward(ctx, g):
        (out,) = ctx.saved_tensors
        return g * out  # PL590
class Later(torch.autograd.Function):
    @staticmethod
    def forward(a, b):
        return a.tanh() * b.square()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * 2 * b * a.tanh(), g * (1 - a.tanh() ** 2) * b.square()  # PL590
a, b = torch.rand(20, requires_grad=True), torch.rand(20, requires_grad=True)
def grade(out):
    (3 * out).mean().backward()
for kind in (Grown, Ratio, Later):
    grade(kind.apply(a, b))
for kind in (Square, Swish, Shares):
    grade(kind.apply(a))
grade(Wave.apply(a, b, 2.0))
grade(Cubed.apply(Cubed.apply(a, b), b))
""",
}

RIGHT = {
    "an iterator that is read once, in the first round and in a function that returns early": """
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
weights, biases = iter([net[0].weight, net[2].weight]), iter([net[0].bias, net[2].bias])
opt = SGD(net.parameters(), lr=0.1)
def widened(number):
    if number > 0:
        return net(x)
    for bias in biases:
        bias.data.add_(1.0)
    return net(x)
for number in range(4):
    if number == 0:
        for weight in weights:
            weight.data.mul_(0.5)
    update(opt, F.mse_loss(widened(number), y))
""",
    "lists side by side, iterators made again, and a first round that alone changes something": """
net = nn.Linear(3, 1)
import copy
slow, first = copy.deepcopy(net), copy.deepcopy(net)
opt = SGD(net.parameters(), lr=0.1)
new, old = list(net.parameters()), list(slow.parameters())
for number in range(4):
    update(opt, F.mse_loss(net(torch.randn(8, 3)), torch.zeros(8, 1)))
    given = first.parameters()
    with torch.no_grad():
        for now, mean in zip(new, old):
            mean.lerp_(now, 0.5)
        for now, kept in zip(net.parameters(), given):
            if number == 0:
                kept.copy_(now)
""",
    "an iterator that gives one part in each round, beside another": """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
stream = iter(torch.randn(12, 8, 3))
for number in range(4):
    for x, _ in zip(stream, range(2)):
        update(opt, F.mse_loss(net(x), torch.zeros(8, 1)))
""",
    "a shadow that was made before, and is read once only by intent": """
net = nn.Linear(3, 1)
start = iter(torch.ones(2, 3))
opt = SGD(net.parameters(), lr=0.1)
def begin(step):
    if step > 0:
        return
    for each, p in zip(start, net.parameters()):
        p.data.add_(each.sum())
for number in range(4):
    begin(number)
    update(opt, F.mse_loss(net(torch.randn(8, 3)), torch.zeros(8, 1)))
""",
    "attention that drops numbers in training only": """
class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.split, self.out = nn.Linear(4, 12), nn.Linear(4, 2)
    def forward(self, x):
        q, k, v = self.split(x).chunk(3, -1)
        return self.out(F.scaled_dot_product_attention(q, k, v, dropout_p=0.5 if self.training else 0.0).mean(1))
net = Attended()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3, 4)), torch.randint(0, 2, (6,))))
net.eval()
with torch.no_grad():
    print(net(torch.randn(6, 3, 4)).argmax(1))
""",
    "two random answers whose difference is wanted, and three measured ones": """
net = nn.Sequential(nn.Linear(3, 8), nn.Dropout(0.5), nn.Linear(8, 2))
opt = SGD(net.parameters(), lr=0.1)
rows, others, kinds = torch.randn(6, 3), torch.randn(6, 3), torch.randint(0, 2, (6,))
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3)), torch.randint(0, 2, (6,))))
with torch.no_grad():
    print((net(rows).argmax(1) == net(rows).argmax(1)).float().mean().item())
    print([F.cross_entropy(net(others), kinds).item() for _ in range(3)])
""",
    "logarithms of chances summed up from a start of zeros": """
net, gains = nn.Linear(3, 4), torch.randn(8)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    states, chances = torch.randn(8, 3), torch.zeros(8)
    for _ in range(2):
        scores = Categorical(logits=net(states))
        chances = chances + scores.log_prob(scores.sample())
    update(opt, -(gains * chances).mean())
""",
    "elements put to places of their own, added up, or the greatest of them": """
send, to = nn.Linear(3, 2), torch.tensor([0, 1, 1, 3, 0, 2])
sent = send(torch.randn(6, 3))
index = to.unsqueeze(1).expand_as(sent)
added = torch.zeros(4, 2).scatter_add(0, index, sent).sum() + torch.zeros(4, 2).index_add(0, to, sent).sum()
most = torch.zeros(4, 2).scatter_reduce(0, index, sent, "amax").sum()
mixed = torch.zeros(6, 2).index_copy(0, torch.tensor([5, 3, 1, 0, 2, 4]), sent)
hot = torch.zeros(6, 4).scatter(1, to.unsqueeze(1), torch.ones(6, 1) * sent.mean())
(added + most + mixed.square().sum() + hot.sum()).backward()
marked = torch.zeros(4).scatter(0, to, 1.0)
print(marked, torch.zeros(4, 2).scatter(0, index, sent.detach(), reduce="add"))
""",
    "a critic that steps more often than the maker": """
maker, critic = nn.Linear(2, 2), nn.Linear(2, 1)
making, judging = SGD(maker.parameters(), lr=0.01), SGD(critic.parameters(), lr=0.01)
for _ in range(8):
    for _ in range(3):
        update(judging, critic(maker(torch.randn(4, 2)).detach()).mean() - critic(torch.randn(4, 2) + 2).mean())
    update(making, -critic(maker(torch.randn(4, 2))).mean())
""",
    "quotients of a policy and an older one, and of one with itself on purpose": """
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
def chances(states, moves):
    return F.log_softmax(net(states), 1).gather(1, moves.unsqueeze(1)).squeeze(1)
for _ in range(2):
    batch = torch.randn(8, 3), torch.randint(0, 2, (8,))
    gains = torch.randn(8)
    with torch.no_grad():
        old = chances(*batch)
    for _ in range(2):
        update(opt, -(torch.exp(chances(*batch) - old) * gains).mean())
for _ in range(3):
    batch = torch.randn(8, 3), torch.randint(0, 2, (8,))
    with torch.no_grad():
        old = chances(*batch)
    update(opt, -(torch.exp(chances(*batch) - old) * gains).mean())
for _ in range(3):
    new = chances(*batch)
    update(opt, -(torch.exp(new - new.detach()) * gains).mean())
""",
    "drawn data with drawn targets, and noise beside them": """
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 3), torch.randn(8, 3)
for _ in range(3):
    update(opt, F.mse_loss(net(torch.randn(8, 3)), torch.randn(8, 3)))
    update(opt, F.mse_loss(net(x + 0.1 * torch.randn_like(x)), y))
    noise = torch.randn_like(x)
    update(opt, F.mse_loss(net(0.8 * x + 0.6 * noise), noise))
    update(opt, F.mse_loss(net(x + noise), y + 0.1 * torch.randn_like(y)))
""",
    "layers put into a network that it calls, or that the program calls itself": DATA
    + """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.last = nn.Linear(3, 4), nn.Linear(4, 2)
    def forward(self, x):
        return self.last(torch.relu(self.body(x)))
net = Small()
net.last = nn.Linear(4, 1)
net.probe = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x) + net.probe(x), y))
""",
    "rows of both parts are measured, and folds that take turns": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
learn, test = x[:5], x[5:]
for _ in range(2):
    update(opt, F.mse_loss(net(learn), y[:5]))
    with torch.no_grad():
        print(F.mse_loss(net(learn), y[:5]), F.mse_loss(net(test), y[5:]))
order = torch.randperm(8)
for first in (0, 4):
    net = nn.Linear(3, 1)
    opt = SGD(net.parameters(), lr=0.1)
    fold, others = order[first:first + 4], torch.cat([order[:first], order[first + 4:]])
    for _ in range(2):
        update(opt, F.mse_loss(net(x[others]), y[others]))
    with torch.no_grad():
        print(F.mse_loss(net(x[fold]), y[fold]))
""",
    "the last step of sequences filled up in front, or of one length, or at their own ends": """
from torch.nn.utils.rnn import pad_sequence
words = torch.randint(1, 9, (6, 5))
words[torch.arange(5).expand(6, 5) < torch.tensor([[0], [2], [3], [4], [0], [1]])] = 0
table, rnn, out = nn.Embedding(9, 4, padding_idx=0), nn.GRU(4, 4, batch_first=True), nn.Linear(4, 2)
opt = SGD(out.parameters(), lr=0.1)
lengths = torch.tensor([2, 4, 3])
for _ in range(2):
    update(opt, out(rnn(table(words))[0][:, -1]).mean())
    update(opt, out(rnn(pad_sequence([torch.randn(5, 4) for _ in range(3)], batch_first=True))[0][:, -1]).mean())
    states = rnn(pad_sequence([torch.randn(n, 4) for n in lengths.tolist()], batch_first=True))[0]
    update(opt, out(states[torch.arange(3), lengths - 1]).mean())
""",
    "chains of changes that are whole statements, or meant for one name": DATA
    + """
net = nn.Linear(3, 2)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    h = net(x)
    h.mul_(2).add_(1)
    h = h.mul_(0.5)
    k = net(x).add_(1).sigmoid()
    update(opt, h.mean() + k.mean() + net(x).div_(2).abs().mean())
""",
    "noise for training only, and both prepared": DATA
    + """
net, low, high = nn.Linear(3, 1), x[:6].mean(0), x[:6].std(0)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    rows = (x[:6] - low) / high
    update(opt, F.mse_loss(net(rows + 0.1 * torch.randn_like(rows)), y[:6]))
with torch.no_grad():
    print(net((x[6:] - low) / high) - y[6:])
""",
    "rows that are shifted alone for training, and targets that are scaled": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x - torch.randn(3)), (y - y.mean()) / y.std()))
with torch.no_grad():
    print(net(x) * y.std() + y.mean())
""",
    "answers and labels of the same shuffled pass": """
x = torch.randn(12, 3)
y = (x[:, 0] > 0).long()
net, kept, labels = nn.Linear(3, 2), [], []
for inputs, wanted in DataLoader(TensorDataset(x, y), 4, shuffle=True):
    kept.append(net(inputs).argmax(1).detach())
    labels.append(wanted)
print((torch.cat(kept) == torch.cat(labels)).float().mean())
print((F.one_hot(torch.cat(kept), 2) == F.one_hot(torch.cat(labels), 2)).float().mean())
""",
    "a batch of every pass, and one batch learned by heart": """
x = torch.randn(12, 3)
table = TensorDataset(x, x.sum(1, keepdim=True))
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    inputs, wanted = next(iter(DataLoader(table, 4, shuffle=True)))
    update(opt, F.mse_loss(net(inputs), wanted))
inputs, wanted = next(iter(DataLoader(table, 4)))
for _ in range(4):
    update(opt, F.mse_loss(net(inputs), wanted))
for _ in range(4):
    inputs, wanted = next(iter(DataLoader(table, 12)))
    update(opt, F.mse_loss(net(inputs), wanted))
""",
    "a constant of a likelihood, whose counts are used elsewhere in it": DATA
    + """
counts = y.abs().round()
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.01)
for _ in range(3):
    log_rate = net(x)
    update(opt, (log_rate.exp() - counts * log_rate + torch.lgamma(counts + 1)).mean())
""",
    "a divergence written out": """
net, x = nn.Linear(3, 4), torch.randn(8, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    wanted = torch.softmax(torch.randn(8, 4), 1)
    update(opt, (wanted * (wanted.log() - F.log_softmax(net(x), 1))).sum(1).mean())
""",
    "a loss that is computed anew from itself": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = F.mse_loss(net(x), y)
    loss = loss + 0.1 * net.weight.abs().sum()
    update(opt, loss)
""",
    "a network that is called once to see the shape": DATA
    + """
net = nn.Linear(3, 1)
def shape():
    net(x)
shape()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",
    "an input that requires grad, in a residual": DATA
    + """
x.requires_grad_()
net = nn.Linear(3, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, (x + net(x) - y).square().mean())
""",
    "the gradient of a plain tensor is read": DATA
    + """
shift = torch.zeros(1, requires_grad=True)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, (net(x) + shift - y).square().mean())
print(shift.grad)
""",
    "points of an equation, made once": """
points = torch.linspace(0, 1, 6).unsqueeze(1).requires_grad_()
net = nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    u = net(points)
    slope, = torch.autograd.grad(u.sum(), points, create_graph=True)
    update(opt, (slope + u * points).square().mean())
""",
    "probabilities compared with one half": BINARY
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.binary_cross_entropy_with_logits(net(x)[:, 0], y))
print(((net(x)[:, 0].sigmoid() > 0.5).float() == y).float().mean(), ((net(x)[:, 0] > 0).float() == y).float().mean())
""",
    "another head of the same network is compared with one half": BINARY
    + """
body, one, two = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
opt = SGD([*body.parameters(), *one.parameters(), *two.parameters()], lr=0.1)
for _ in range(2):
    h = body(x).tanh()
    update(opt, F.binary_cross_entropy_with_logits(one(h)[:, 0], y) + F.mse_loss(two(h)[:, 0], y))
print(((two(body(x).tanh())[:, 0] > 0.5).float() == y).float().mean())
""",
    "a margin on logits": BINARY
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    logits = net(x)[:, 0]
    update(opt, F.binary_cross_entropy_with_logits(logits[logits.abs() < 0.9], y[logits.abs() < 0.9]))
""",
    "one factor of an adapter is zero": DATA
    + """
base, a, b = nn.Linear(3, 1).requires_grad_(False), nn.Parameter(torch.randn(3, 2)), nn.Parameter(torch.zeros(2, 1))
opt = SGD([a, b], lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(base(x) + x @ a @ b, y))
""",
    "two branches of zeros beside each other": DATA
    + """
base, a, b = nn.Linear(3, 1), nn.Parameter(torch.zeros(3, 1)), nn.Parameter(torch.zeros(3, 1))
opt = SGD([*base.parameters(), a, b], lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(base(x) + x @ a + x.square() @ b, y))
""",
    "a weight shared, and a target network copied": """
embed, out, target = nn.Embedding(6, 4), nn.Linear(4, 6, bias=False), nn.Linear(4, 6, bias=False)
out.weight = embed.weight
target.weight.data.copy_(out.weight.data)
opt = SGD(embed.parameters(), lr=0.1)
tokens = torch.arange(5)
for _ in range(3):
    with torch.no_grad():
        goal = target(embed(tokens)).softmax(1)
    update(opt, F.cross_entropy(out(embed(tokens)), goal))
""",
    "two equal layers that begin with the same numbers": DATA
    + """
one, two = nn.Linear(3, 3), nn.Linear(3, 3)
two.load_state_dict(one.state_dict())
opt = SGD([*one.parameters(), *two.parameters()], lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(two(one(x).tanh()).mean(1, keepdim=True), y))
""",
    "a policy gradient with a critic of state and action": """
policy, critic = nn.Linear(3, 2), nn.Linear(4, 1)
opt = SGD([*policy.parameters(), *critic.parameters()], lr=0.1)
x = torch.randn(6, 3)
for _ in range(3):
    mean, log = policy(x).chunk(2, 1)
    chances = Normal(mean, log.exp())
    action = chances.sample()
    value = critic(torch.cat([x, action], 1))
    gain = -(action - 1).square()
    update(opt, -(chances.log_prob(action) * (gain - value.detach())).mean() + F.mse_loss(value, gain))
""",
    "a straight-through coin": DATA
    + """
gate, net = nn.Linear(3, 3), nn.Linear(3, 1)
opt = SGD([*gate.parameters(), *net.parameters()], lr=0.1)
for _ in range(3):
    p = gate(x).sigmoid()
    hard = torch.bernoulli(p)
    update(opt, F.mse_loss(net(x * (hard + p - p.detach())), y) + p.mean())
""",
    "samples of a model that is looked at and not trained": """
encode, decode = nn.Linear(3, 4), nn.Linear(2, 3)
opt = SGD([*encode.parameters(), *decode.parameters()], lr=0.1)
x = torch.randn(6, 3)
for _ in range(3):
    mean, log = encode(x).chunk(2, 1)
    chances = Normal(mean, log.exp())
    update(opt, F.mse_loss(decode(chances.rsample()), x) + mean.square().mean())
    with torch.no_grad():
        print(decode(chances.sample()).mean())
""",
    "weights of examples, and few examples drawn": """
labels = torch.tensor([0] * 10 + [1] * 2)
weights = (1 / torch.bincount(labels))[labels]
data = TensorDataset(torch.arange(12), labels)
for part, _ in DataLoader(data, 3, sampler=WeightedRandomSampler(weights, 3)):
    print(part.tolist())
for part in DataLoader(range(2), 2, sampler=WeightedRandomSampler([0.5, 0.5], 8)):
    print(part.tolist())
""",
    "iterators that are made again, and one that is read first": DATA
    + """
net = nn.Linear(3, 1)
params = net.parameters()
print([p.numel() for p in params])
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    params = net.parameters()
    update(opt, F.mse_loss(net(x), y) + sum(p.square().sum() for p in params))
""",
    "a loop over layers that there are none of": DATA
    + """
net = nn.Linear(3, 1)
params = [p for p in net.parameters()]
opt = SGD(params, lr=0.1)
extra = net.children()
for _ in range(3):
    update(opt, F.mse_loss(net(x), y) + sum(p.weight.square().sum() for p in extra))
""",
    "masks that leave out padding": """
tokens = torch.tensor([[1, 2, 3, 0], [4, 5, 0, 0]])
embed, layer = nn.Embedding(6, 4, padding_idx=0), nn.TransformerEncoderLayer(4, 1, 8, batch_first=True)
h = embed(tokens)
padding = tokens == 0
out = layer(h, src_key_padding_mask=padding)
scores = (h @ h.transpose(1, 2)).masked_fill(padding[:, None, :], float("-inf")).softmax(-1)
look = F.scaled_dot_product_attention(h, h, h, attn_mask=(~padding)[:, None, :].expand(2, 4, 4))
(out.sum() + (scores @ h).sum() + look.sum()).backward()
""",
    "an attention to marked tokens only, on purpose": """
tokens = torch.tensor([[1, 2, 3, 5], [4, 5, 1, 2]])
h = nn.Embedding(6, 4, padding_idx=0)(tokens)
scores = (h @ h.transpose(1, 2)).masked_fill((tokens != 5)[:, None, :], float("-inf"))
(scores.softmax(-1) @ h).sum().backward()
""",
    "squared distances of pairs, looked up": """
table, index, net = torch.randn(7, 3), torch.tensor([0, 2, 4, 6]), nn.Linear(3, 3)
norm = table.square().sum(1)
x = net(table[index])
far = x.square().sum(1, keepdim=True) - 2 * x @ table[index].T + norm[index]
(far + norm[index][:, None] * 0).softmax(1).diagonal().log().sum().backward()
""",
    "a scale for each feature in a square batch": """
net, scale, order, x = nn.Linear(4, 4), torch.rand(9), torch.tensor([1, 3, 5, 7]), torch.randn(4, 4)
(net(x * scale[order]) + net.weight[:, 0]).square().mean().backward()
""",
    "frozen after training and put in evaluation mode": """
net = nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)), nn.Linear(4, 1))
x, y = torch.randn(8, 3), torch.randn(8, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x), y))
net[0].requires_grad_(False).eval()
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",
    "frozen for one half of each round": """
net, other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)), nn.Linear(3, 3)
a, b = SGD(net.parameters(), lr=0.1), SGD(other.parameters(), lr=0.1)
x = torch.randn(8, 3)
for _ in range(4):
    net.requires_grad_(True)
    update(a, net(other(x).detach()).square().mean())
    net.requires_grad_(False)
    update(b, net(other(x)).mean())
""",
    "a meta-step whose gradients are handed over": DATA
    + """
import copy
net = nn.Linear(3, 1)
outer = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    fast = copy.deepcopy(net)
    F.mse_loss(fast(x), y).backward()
    outer.zero_grad()
    for p, q in zip(net.parameters(), fast.parameters()):
        p.grad = q.grad.clone()
    outer.step()
""",
    "two optimizers in turn, one of which waits": DATA
    + """
one, two = nn.Linear(3, 1), nn.Linear(3, 1)
a, b = SGD(one.parameters(), lr=0.1), SGD(two.parameters(), lr=0.1)
for number in range(4):
    loss = F.mse_loss((one if number < 2 else two)(x), y)
    for opt in (a, b):
        opt.zero_grad()
    loss.backward()
    a.step()
    b.step()
""",
    "scores compared with scores, and quantized numbers": """
net, y = nn.Linear(3, 4), torch.tensor([0, 1, 2, 3, 1])
scores = net(torch.randn(5, 3))
print((scores == scores.max(1, keepdim=True)[0]).sum(), (scores.argmax(1) == y).float().mean())
print((scores.round() == y[:, None]).any(), (net.weight == net.weight.round()).float().mean(), (scores[:, 0].relu() == 0).sum())
""",  # noqa: E501
    "weights of tasks, and of examples in time": DATA
    + """
net, task, importance = nn.Linear(3, 2), torch.tensor([0.3, 0.7]), torch.rand(8, 1)
each = torch.stack([F.mse_loss(net(x)[:, :1], y), F.l1_loss(net(x)[:, 1:], y)])
(each * task).sum().backward()
(importance * F.mse_loss(net(x)[:, :1], y, reduction="none")).mean().backward()
(F.mse_loss(net(x)[:, :1], y) * importance.mean()).backward()
(importance / importance.sum() * (net(x)[:, :1] - y).square()).sum().backward()
""",
    "whole quotients that are indices, or not all zero": """
net, place = nn.Linear(2, 2), torch.arange(6)
grid = torch.randn(6, 2)
net(grid[place // 8] + grid[place // 2] + (place // 2)[:, None].float()).sum().backward()
""",
    "an average with its statistics, and one that is read by update_bn": """
import copy
from torch.optim.swa_utils import AveragedModel, update_bn
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
mean, swa = copy.deepcopy(net), AveragedModel(net)
opt = SGD(net.parameters(), lr=0.1)
x = torch.randn(8, 3)
for _ in range(3):
    update(opt, net(x).square().mean())
    swa.update_parameters(net)
    with torch.no_grad():
        for m, n in zip(mean.state_dict().values(), net.state_dict().values()):
            m.copy_(n)
update_bn([x], swa)
print(mean.eval()(x).sum(), swa.eval()(x).sum())
""",
    "a network evaluated before it is trained": """
net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
x = torch.randn(8, 3)
print(net.eval()(x).sum())
opt = SGD(net.train().parameters(), lr=0.1)
for _ in range(2):
    update(opt, net(x).square().mean())
print(net.eval()(x).sum())
""",
    "positions that occur once, a mask, and counts that add up": """
table, idx = torch.zeros(5), torch.tensor([0, 3, 1])
table[idx] += 1
table[torch.tensor([True, False, True, True, False])] += 2
table.index_add_(0, torch.tensor([1, 1, 2]), torch.ones(3))
table.index_put_((torch.tensor([1, 1, 2]),), torch.ones(3), accumulate=True)
table[torch.tensor([4, 4, 4])] = 1.0
print(table)
""",
    "shares masked and divided again, dropped, or chosen": """
h = torch.randn(4, 6, requires_grad=True)
real = torch.tensor([[1.0, 1, 1, 0]])
shares = (h @ h.T).softmax(-1) * real
(shares / shares.sum(-1, keepdim=True) @ h).sum().backward()
kept = (h @ h.T).softmax(-1) * (torch.rand(4, 4) > 0.1) / 0.9
(kept @ h).sum().backward()
gate = (h @ h.T).softmax(-1)
best = torch.zeros(4, 4).scatter(1, gate.topk(2, 1).indices, 1.0)
((gate * best) @ h).sum().backward()
query = torch.tensor([[1.0], [1], [1], [0]])
(((h @ h.T).softmax(-1) * query) @ h).sum().backward()
""",
    "constants that are broken, or of one unit": DATA
    + """
net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Tanh(), nn.Linear(4, 1))
nn.init.ones_(net[3].weight)
nn.init.constant_(net[0].bias, 0.1)
opt = SGD(net.parameters(), lr=0.1)
classes = nn.Linear(3, 4)
nn.init.constant_(classes.weight, 0.5)
other = SGD(classes.parameters(), lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(net(x), y))
    update(other, F.cross_entropy(classes(x), torch.arange(8) % 4))
""",
    "a GAN whose discriminator steps first, and two losses for one network": """
made, judge = nn.Linear(2, 3), nn.Linear(3, 1)
a, b = SGD(made.parameters(), lr=0.1), SGD(judge.parameters(), lr=0.1)
real = torch.randn(4, 3)
for _ in range(3):
    fake = made(torch.randn(4, 2))
    update(b, judge(fake.detach()).mean() - judge(real).mean())
    update(a, -judge(fake).mean())
for _ in range(3):
    a.zero_grad()
    b.zero_grad()
    judge(real).square().mean().backward()
    judge(made(torch.randn(4, 2))).square().mean().backward()
    a.step()
    b.step()
""",
    "orders that are indices, and ranks": """
score, truth = torch.randn(6), torch.randn(6)
order = score.argsort(descending=True)
gain = truth[order] / torch.log2(torch.arange(6) + 2.0)
rank = score.argsort().argsort().float() - truth.argsort().argsort().float()
print(gain.sum(), rank.square().sum())
""",
    "temperatures in front of the softmax, and counts made shares": """
scores, counts = torch.randn(3, 5), torch.tensor([3.0, 1.0, 6.0])
print(torch.multinomial((scores / 0.7).softmax(-1), 1), torch.multinomial(counts / 10, 2))
""",
    "half of the bits with a large rate, and under autocast": """
net = nn.Linear(4, 3).bfloat16()
opt = SGD(net.parameters(), lr=0.5)
whole = nn.Linear(4, 3)
other = SGD(whole.parameters(), lr=1e-4)
x = torch.randn(8, 4)
for _ in range(4):
    update(opt, net(x.bfloat16()).square().mean())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = whole(x).float().square().mean()
    update(other, loss)
""",
    "masks of bool and of -inf, and a bias of positions": """
h = torch.randn(1, 3, 4, requires_grad=True)
past = torch.tril(torch.ones(3, 3))
out = F.scaled_dot_product_attention(h, h, h, attn_mask=past.bool())
out = out + F.scaled_dot_product_attention(h, h, h, attn_mask=past.log())
far = -(torch.arange(3)[:, None] - torch.arange(3)).abs().float()
out = out + F.scaled_dot_product_attention(h, h, h, attn_mask=far)
(out + (h @ h.transpose(1, 2) + (1 - past) * -1e9).softmax(-1) @ h).sum().backward()
""",
    "a ReLU between layers, and one in front of a distance": DATA
    + """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3))
F.cross_entropy(net(x), torch.arange(8) % 3).backward()
F.mse_loss(F.relu(net(x)[:, :1]), y.abs()).backward()
""",
    "classes on axis 1 where the numbers agree": """
table, last = nn.Embedding(9, 4), nn.Linear(4, 5)
words, tags = torch.randint(0, 9, (3, 5)), torch.randint(0, 5, (3, 5))
scores = last(table(words))
F.cross_entropy(scores.transpose(1, 2), tags).backward()
F.cross_entropy(last(table(words)).flatten(0, 1), tags.flatten()).backward()
print((scores.argmax(-1) == tags).float().mean())
""",
    "policy gradients weighed by a critic of the action, trained apart and together": """
for together in (False, True):
    actor, critic = nn.Linear(3, 2), nn.Linear(4, 1)
    held = [*actor.parameters(), *critic.parameters()] if together else list(actor.parameters())
    step = Adam(held)
    for _ in range(2):
        seen = torch.randn(6, 3)
        mean, spread = actor(seen).chunk(2, dim=1)
        around = torch.distributions.Normal(mean, spread.exp())
        action = around.sample()
        judged = critic(torch.cat([seen, action], 1))
        step.zero_grad()
        loss = -(around.log_prob(action) * (judged.detach() if together else judged)).mean()
        (loss + (judged - 1).square().mean() if together else loss).backward()
        step.step()
""",
    "a mean over time for each column, and rows of pairs": """
steps = torch.rand(40, 6) + 1
print(((steps[34:] - steps[28:34]).abs() / steps[:34].mean(0)).mean())
points = torch.rand(6, 3)
pairs = points @ points.T
print((points.square().sum(1) - 2 * pairs + points.square().sum(1)[:, None]).clamp(min=0).sqrt().sum())
""",
    "derivatives of one output, and of a sum that is meant": """
field = nn.Sequential(nn.Linear(1, 6), nn.Tanh(), nn.Linear(6, 2))
at = torch.rand(7, 1, requires_grad=True)
parts = field(at)
(whole,) = torch.autograd.grad(parts, at, torch.ones_like(parts), create_graph=True)
each = [torch.autograd.grad(c, at, torch.ones_like(c), create_graph=True)[0] for c in parts.unbind(1)]
print((whole - sum(each)).abs().max(), (each[0] + each[1] - parts.sum(1, keepdim=True)).square().mean())
""",
    "shares of information, and logarithms as logits": """
chances = torch.softmax(torch.randn(4, 5), 1)
news = -chances.log()
print((news / news.sum(1, keepdim=True)).max(), torch.distributions.Categorical(logits=chances.log()).sample())
growth = torch.rand(6).add(2).log()
print(growth / growth.sum())
""",
    "one look at the weights in each round, of which a number is kept": """
line = nn.Linear(3, 1)
moved, sizes, last = SGD(line.parameters(), lr=0.1), [], None
for _ in range(4):
    last = line.weight.detach().numpy()
    sizes.append(float(abs(last).sum()))
    update(moved, line(torch.randn(5, 3)).square().mean())
print(sizes, last)
""",
    "schedulers that wait for a loss, and for an accuracy to stop rising": """
points = torch.randn(30, 3)
kinds = (points.sum(1) > 0).long()
guess = nn.Linear(3, 2)
moves = SGD(guess.parameters(), lr=0.5)
waits = torch.optim.lr_scheduler.ReduceLROnPlateau(moves, patience=1)
rising = torch.optim.lr_scheduler.ReduceLROnPlateau(moves, mode="max", patience=1)
for _ in range(3):
    loss = F.cross_entropy(guess(points), kinds)
    update(moves, loss)
    rising.step((guess(points).argmax(1) == kinds).float().mean().item())
    waits.step(loss.item())
wrong = torch.optim.lr_scheduler.ReduceLROnPlateau(moves, patience=1)
for _ in range(3):
    update(moves, F.cross_entropy(guess(points), kinds))
    wrong.step((guess(points).argmax(1) != kinds).float().mean().item())
""",
    "averages of states that are not used for themselves again": DATA
    + """
server, clients = nn.Linear(3, 1), [nn.Linear(3, 1) for _ in range(2)]
for _ in range(2):
    for client in clients:
        client.load_state_dict(server.state_dict())
        update(SGD(client.parameters(), lr=0.1), F.mse_loss(client(x), y))
    total = clients[0].state_dict()
    for key in total:
        total[key] += clients[1].state_dict()[key]
        total[key] /= 2
    server.load_state_dict(total)
    print(server(x).mean())
""",
    "what hooks kept of a layer that works in place, and copies of what was before it": """
net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
opt = SGD(net.parameters(), lr=0.1)
kept = {}
def after(layer, given, result):
    kept["after"] = result.detach()
def before(layer, given, result):
    kept["before"] = result.detach().clone()
    kept["mean"] = result.detach().mean()
net[1].register_forward_hook(after)
net[0].register_forward_hook(before)
for _ in range(2):
    update(opt, F.cross_entropy(net(torch.randn(6, 3)), torch.randint(0, 2, (6,))))
    print(kept["after"].max().item(), kept["before"].min().item(), kept["mean"].item())
""",
    "counts that go on, sums of terms that become smaller, and whole numbers for whole numbers": """
count, rest = torch.zeros((), dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)
for number in range(1, 40):
    count += 1
    rest += torch.tensor([1.0, 2.0], dtype=torch.bfloat16) / number**3
labels = torch.full_like(torch.tensor([1, 2]), 3.0)
print(count, rest, labels, labels.new_full((2,), 0.5, dtype=torch.float32))
""",
    "hooks that only look, and names that are read": DATA
    + """
seen = []
def look(grad):
    size = grad.abs()
    seen.append(size.max().item())
def keep(layer, given, result):
    scaled = result.detach() * 2
    layer.kept = scaled
def show(t):
    t = t.detach() * 2
    print(t.mean())
def halves(parts):
    for part in parts:
        part = part / 2
        yield part
net = nn.Linear(3, 1)
net.weight.register_hook(look)
net.register_forward_hook(keep)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(net(x), y))
    show(x)
print(len(list(halves(x))), seen, net.kept.mean(), x.sum())
""",
    "a parametrized weight that is assigned, and results that are rounded and printed": """
layer = nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
share = nn.Parameter(torch.randn(2, 2))
for _ in range(2):
    with torch.no_grad():
        layer.weight = layer.weight.mul_(0.5)
        chances = torch.sigmoid(share)
        chances.round_()
    print(chances, layer(torch.ones(1, 2)) @ torch.sigmoid(share))
""",
    "a data set that works on copies, and one whose numbers the program sets between its epochs": """
class Rows(Dataset):
    def __init__(self):
        self.rows, self.served = torch.randn(4, 3), torch.zeros(4, 2)
    def __len__(self):
        return 4
    def __getitem__(self, place):
        row = self.rows[place].clone()
        row += torch.randn(3)
        return row
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
rows = Rows()
for epoch in range(3):
    for given in DataLoader(rows, batch_size=2):
        update(opt, net(given).square().mean())
    rows.rows[epoch] = torch.randn(3)
""",
    "iterators that are made anew, and one that gives a part in each epoch": """
loader = DataLoader(torch.randn(6, 3), batch_size=2)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
stream = iter(loader)
for epoch in range(3):
    batches = iter(loader)
    for given in batches:
        update(opt, net(given).square().mean())
    for given in stream:
        update(opt, net(given).square().mean())
        break
""",
    "a body without its head, loaded with strict=False": """
whole = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 5))
net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 2))
net.load_state_dict({name: value for name, value in whole.state_dict().items() if not name.startswith("2.")}, strict=False)
print(net(torch.ones(1, 2)))
""",  # noqa: E501
    "parameters scaled at each use, before they are made, or for good": DATA
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.raw, self.small = nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3) * 0.01)
        self.same = nn.Parameter(torch.randn(3)).to(torch.float32).requires_grad_()
        self.listed = nn.ParameterList([nn.Parameter(torch.randn(3)) * 0.01])
        self.fixed = (nn.Parameter(torch.randn(3)) * 0.01).detach()
        self.register_buffer("basis", nn.Parameter(torch.randn(3), requires_grad=False) * 0.01)
        self.again = nn.Parameter(nn.Parameter(torch.randn(3)) * 0.01)
        self.out = nn.Linear(3, 1)
    def forward(self, x):
        return self.out(x * (self.raw * 0.01 + self.small + self.same + self.listed[0] + self.fixed + self.basis + self.again))
net = Net()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",  # noqa: E501
    "a turned weight of a layer that is not trained": DATA
    + """
teacher, net = nn.Linear(3, 3, bias=False), nn.Linear(3, 1)
turned = teacher.weight.t()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x @ turned), y))
""",
    "times that an equation is differentiated by, or that only require grad": """
times = torch.linspace(0, 1, 10, requires_grad=True).unsqueeze(1)
places = torch.linspace(0, 1, 10, requires_grad=True).view(-1, 1)
net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    u = net(torch.cat([times, places], 1))
    (slope,) = torch.autograd.grad(u.sum(), times, create_graph=True)
    update(opt, (slope + u).square().mean())
""",
    "the sensitivity to the result of a parameter": DATA
    + """
weight, other, net = nn.Parameter(torch.zeros(3)) + 1, nn.Parameter(torch.zeros(3)) + 1, nn.Linear(3, 1)
other.retain_grad()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = F.mse_loss(net(x * weight * other), y)
    (slope,) = torch.autograd.grad(loss, weight, retain_graph=True)
    update(opt, loss)
    print(slope, other.grad)
""",
    "custom operations with their derivatives, or with gradients that are another thing on purpose": """
class Grown(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * torch.exp(b)
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b.exp(), g * a * b.exp()
class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b**3
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g * b**3, g * 3 * a * b**2
class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return b * g, a * g
class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.view_as(a)
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return -0.5 * g
class Rounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.round()
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g.clone()
class Sign(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.sign()
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g * (a.abs() <= 1)
class Spike(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return (a > 0.5).float()
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        s = torch.sigmoid(4 * a)
        return g * 4 * s * (1 - s)
class Bounded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.exp(a)
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g * torch.exp(a.clamp(max=15))
class Slower(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.tanh(a)
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g * 0.1 * (1 - a.tanh() ** 2)
class Clipped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a**3
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return (g * 3 * a**2).clamp(-1, 1)
class Soft(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.log1p(torch.exp(a))
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g * (1 - 1 / (1 + torch.exp(a)))
class Guided(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a.relu()
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        return g.relu() * (a > 0)
class Gelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * 0.5 * (1 + torch.erf(a / 2**0.5))
    @staticmethod
    def backward(ctx, g):
        a, = ctx.saved_tensors
        s = torch.sigmoid(1.702 * a)
        return g * (s + 1.702 * a * s * (1 - s))
class Gap(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a - b
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return -g, g
class Balanced(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.clone()
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        return g, torch.ones_like(b)
a, b = torch.rand(20, requires_grad=True), torch.rand(20, requires_grad=True)
def grade(out):
    (3 * out).mean().backward()
for kind in (Grown, Cubed, Product, Gap, Balanced):
    grade(kind.apply(a, b))
for kind in (Reversed, Rounded, Sign, Spike, Bounded, Slower, Clipped, Soft, Guided, Gelu):
    grade(kind.apply(a))
grade(Cubed.apply(Cubed.apply(a, b), b))
""",
}


def together(programs: dict[str, str]) -> str:
    """All of them in one program, each in a function of its own: each is found there, or not, as it is
    alone, at a fraction of the cost.
    """
    cases = (
        f"def case_{number}():\n{textwrap.indent(text, '    ')}\ncase_{number}()\n"
        for number, text in enumerate(programs.values())
    )
    return HEAD + "".join(cases)


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


SAMPLED = {
    "a parameter that is scaled before it is kept, in a long training": """import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores, self.out = nn.Parameter(torch.ones(3)) + 1, nn.Linear(3, 1)  # PL622
    def forward(self, x):
        return self.out(x * self.scores)

x, net = torch.randn(8, 3), Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(300):
    opt.zero_grad()
    (net(x) - 1).square().mean().backward()
    opt.step()
""",
    "a split after a long loop": """import torch
from torch.utils.data import Dataset, random_split

class Numbers(Dataset):
    def __init__(self):
        self.x, self.transform = torch.zeros(400), None
        for place in range(400):
            self.x[place] += torch.rand(1).item()
    def __len__(self):
        return 400
    def __getitem__(self, place):
        return self.x[place] if self.transform is None else self.transform(self.x[place])

train, test = random_split(Numbers(), [300, 100])
train.dataset.transform = lambda x: x + 1  # PL738
print(train[0], test[0])
""",
    "a count that stays at 256, a sum of terms that become smaller, and a count that goes on": """import torch

found, rest, whole = (torch.zeros((), dtype=kind) for kind in (torch.bfloat16, torch.float32, torch.float32))
hits = torch.ones(1)
for number in range(1, 1500):
    found += (hits > 0).sum()  # PL803
    rest += 1 / number**2
    whole += hits.sum()
print(found, rest, whole)
""",
}


@pytest.mark.parametrize("name", SAMPLED)
def test_they_are_found_where_rounds_were_left_out(name: str) -> None:
    program = SAMPLED[name]
    with Workshop(every_round=False) as sampling:
        trace = sampling.trace(Subject(plain(program), "program.py"))
    assert trace.unseen
    assert met([f for f in find(trace) if f.severity != "info"], program) == ""
