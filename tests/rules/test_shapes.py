"""The pitfalls that show only in numbers, written in other ways than on their rules' pages: in
a class, a function, inlined.
"""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain

HEAD = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n\ntorch.manual_seed(0)\n"
TRAIN = "    opt.zero_grad()\n    loss.backward()\n    opt.step()\n"

PROGRAMS = {
    "log-probabilities of all actions, in a method": """
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))

    def score(self, states, actions):
        return F.log_softmax(self.body(states), dim=-1)[:, actions]  # PL412

agent = Agent()
opt = torch.optim.Adam(agent.parameters())
states, actions, gains = torch.randn(16, 4), torch.randint(0, 3, (16,)), torch.randn(16)
for _ in range(2):
    loss = -(agent.score(states, actions) * gains).mean()
""" + TRAIN,
    "a reward in a column, added to values in a row": """
q, fixed = nn.Linear(4, 2), nn.Linear(4, 2)
opt = torch.optim.Adam(q.parameters())
state, after, done, act = torch.randn(8, 4), torch.randn(8, 4), torch.zeros(8), torch.randint(0, 2, (8,))
reward = torch.randn(8).unsqueeze(1)
for _ in range(2):
    with torch.no_grad():
        goal = reward + 0.9 * (1 - done) * fixed(after).max(1).values  # PL401
    loss = F.smooth_l1_loss(q(state).gather(1, act[:, None]), goal)
""" + TRAIN,
    "every pair by index_select": """
q = nn.Linear(4, 2)
opt = torch.optim.SGD(q.parameters(), lr=0.1)
a = torch.tensor([0, 1, 1, 0, 1])
for _ in range(2):
    loss = F.mse_loss(q(torch.randn(5, 4)).index_select(1, a).mean(1), torch.randn(5))  # PL412
""" + TRAIN,
    "two samples of the rows, in two functions": """
data, labels = torch.randn(20, 3), torch.randn(20, 1)
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def inputs():
    return data[torch.randint(0, 20, (6,))]

def targets():
    return labels[torch.randint(0, 20, (6,))]  # PL414

for _ in range(2):
    loss = F.smooth_l1_loss(net(inputs()), targets())
""" + TRAIN,
    "shuffled apart before a difference by hand": """
x, y = torch.randn(9, 2), torch.randn(9, 1)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
rows = torch.randperm(9)
xs = x.index_select(0, rows)
ys = y.index_select(0, torch.randperm(9))  # PL414
for i in range(3):
    loss = (net(xs[3 * i:3 * i + 3]) - ys[3 * i:3 * i + 3]).pow(2).mean()
""" + TRAIN,
    "one function shuffles the examples, and called again the labels": """
x, y = torch.randn(9, 2), torch.randn(9, 1)
net = nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def shuffled(rows):
    return rows[torch.randperm(len(rows))]  # PL414

x, y = shuffled(x)[:6], shuffled(y)[:6]
for _ in range(3):
    loss = F.mse_loss(net(x), y)
""" + TRAIN,
    "time-major scores against example-major tags, in a function": """
tagger, head = nn.LSTM(3, 4), nn.Linear(4, 5)
opt = torch.optim.SGD([*tagger.parameters(), *head.parameters()], lr=0.1)

def objective(words, tags):
    hidden, _ = tagger(words)
    return F.nll_loss(F.log_softmax(head(hidden.flatten(0, 1)), 1), tags.flatten())  # PL416

for _ in range(2):
    loss = objective(torch.randn(7, 2, 3), torch.randint(0, 5, (2, 7)))
""" + TRAIN,
    "one number a step, flattened": """
rnn, head = nn.RNN(2, 3), nn.Linear(3, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
y = torch.randn(3, 6)
for _ in range(2):
    out = head(rnn(torch.randn(6, 3, 2))[0]).squeeze(-1)
    loss = F.mse_loss(out.view(-1), y.view(-1))  # PL416
""" + TRAIN,
    "the end of packed sequences, time first": """
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
gru, head = nn.GRU(2, 3), nn.Linear(3, 2)
opt = torch.optim.SGD([*gru.parameters(), *head.parameters()], lr=0.1)
batch = pack_sequence([torch.randn(5, 2), torch.randn(3, 2), torch.randn(2, 2)])
for _ in range(2):
    states = pad_packed_sequence(gru(batch)[0])[0]
    loss = F.cross_entropy(head(F.dropout(states, 0.1)[-1]), torch.tensor([0, 1, 1]))  # PL418
""" + TRAIN,
    "a state kept on self and cut in every step": """
class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell, self.out = nn.GRUCell(2, 4), nn.Linear(4, 1)

    def step(self, item):
        self.state = self.cell(item, self.state.detach())  # PL516

    def forward(self, x):
        self.state = torch.zeros(x.shape[0], 4)
        for item in x.unbind(1):
            self.step(item)
        return self.out(self.state)

reader = Reader()
opt = torch.optim.Adam(reader.parameters())
for _ in range(2):
    loss = reader(torch.randn(3, 5, 2)).square().mean()
""" + TRAIN,
    "a ratio of two equal log-probabilities, in a method": """
from torch.distributions import Categorical

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.logits = nn.Linear(3, 2)

    def log_prob(self, s, a):
        return Categorical(logits=self.logits(s)).log_prob(a)

policy = Policy()
opt = torch.optim.Adam(policy.parameters())
s, a, gain = torch.randn(6, 3), torch.randint(0, 2, (6,)), torch.randn(6)
for _ in range(3):
    before = policy.log_prob(s, a)
    ratio = (policy.log_prob(s, a) - before).exp()  # PL518
    loss = -(ratio.clamp(0.8, 1.2) * gain).mean()
""" + TRAIN,
    "a consistency loss of one view with itself": """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(5, 3), torch.tensor([0, 1, 0, 1, 1])
for _ in range(3):
    first, second = net(x), net(x)
    loss = F.cross_entropy(first, y) + F.mse_loss(first, second)  # PL518
""" + TRAIN,
    "a module's hook in a function for each epoch": """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def epoch():
    net[1].register_forward_hook(halve)  # PL616
    loss = net(torch.randn(4, 3)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()

def halve(module, given, result):
    return result * 0.5

for _ in range(4):
    epoch()
""",
    "a mask that fills nothing, in forward": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x, mask):
        h = self.lin(x)
        h.masked_fill(mask, 0.0)  # PL618
        return h.sum()

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = net(torch.randn(2, 3), torch.tensor([True, False, True]))
""" + TRAIN,
    "a dtype, a shape and a regularisation that get lost": """
x = torch.tensor([1, 2, 3])
x.float()  # PL618
x.unsqueeze(0)  # PL618
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    hidden = net(x.float())
    F.dropout(hidden, 0.5)  # PL618
    loss = hidden.sum()
""" + TRAIN,
    "weights loaded in __init__ and initialised by apply": """
class Model(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 2)
        self.load_state_dict(weights)
        self.apply(self.start)

    def start(self, m):
        if isinstance(m, nn.Linear):
            nn.init.trunc_normal_(m.weight, std=0.02)  # PL716

    def forward(self, x):
        return self.b(self.a(x).relu())

donor = nn.ModuleDict({"a": nn.Linear(3, 4), "b": nn.Linear(4, 2)})
model = Model({k: v.clone() for k, v in donor.state_dict().items()})
opt = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    loss = F.cross_entropy(model(torch.randn(4, 3)), torch.tensor([0, 1, 1, 0]))
""" + TRAIN,
    "a mean of an empty selection": """
net = nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
y = torch.tensor([0.0, 0.0, 0.0, 0.0])
for _ in range(2):
    error = (net(torch.randn(4, 3)).squeeze(1) - y).square()
    loss = error.mean() + error[y > 0.5].mean()  # PL808
""" + TRAIN,
    "targets that are all left out": """
net = nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)

def part(x, y):
    return F.cross_entropy(net(x), y, ignore_index=-1)  # PL808

for _ in range(2):
    loss = part(torch.randn(3, 3), torch.tensor([0, 1, 1])) + part(torch.randn(2, 3), torch.tensor([-1, -1]))
""" + TRAIN,
    "a frozen encoder in a class, train() on all of it": """
class Probe(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU())
        self.encoder.requires_grad_(False)
        self.top = nn.Linear(3, 2)

    def forward(self, x):
        return self.top(self.encoder(x).mean(2))  # PL908

probe = Probe()
opt = torch.optim.SGD([p for p in probe.parameters() if p.requires_grad], lr=0.1)
for _ in range(3):
    probe.train()
    loss = F.cross_entropy(probe(torch.randn(4, 2, 5)), torch.tensor([0, 1, 1, 0]))
""" + TRAIN,
    "an attack whose gradient is never cleared, with a projection after each step": """
net = nn.Linear(4, 3)
net.requires_grad_(False)

def attack(x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        F.cross_entropy(net(x + delta), y).backward()  # PL601
        delta.data = (delta + 0.1 * delta.grad.sign()).clamp(-0.3, 0.3).detach()
    return x + delta.detach()

def attack_in_place(x, y):
    moved = x.clone().requires_grad_()
    for _ in range(3):
        F.cross_entropy(net(moved), y).backward()  # PL601
        with torch.no_grad():
            moved += 0.1 * moved.grad.sign()
            moved.copy_(torch.max(torch.min(moved, x + 0.3), x - 0.3))
    return moved

print(attack(torch.rand(2, 4), torch.tensor([0, 2])).sum(), attack_in_place(torch.rand(2, 4), torch.tensor([0, 2])).sum())
""",  # noqa: E501
    "a hook function that keeps what a layer returns": """
kept = []

def keep(module, given, result):
    kept.append(result)  # PL511

net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 1))
net[1].register_forward_hook(keep)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    loss = net(torch.randn(5, 3)).square().mean()
""" + TRAIN,
    "attention over the examples, in an encoder": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), 1)
        self.top = nn.Linear(8, 3)

    def forward(self, x):
        return self.top(self.encoder(x).mean(1))  # PL410

net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = F.cross_entropy(net(torch.randn(5, 7, 8)), torch.randint(0, 3, (5,)))
""" + TRAIN,
    "a mean over padded sequences, in a function": """
from torch.nn.utils.rnn import pad_sequence

def average(error, mask):
    return torch.mean(error * mask)  # PL910

parts = [torch.randn(n, 2) for n in (5, 3, 2)]
x, there = pad_sequence(parts, batch_first=True), pad_sequence([torch.ones(len(p)) for p in parts], batch_first=True)
net = nn.Linear(2, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = average((net(x) - x).abs().sum(-1), there)
""" + TRAIN,
    "a mask of the future made from positions, in a class": """
class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(4, 12)
        place = torch.arange(6)
        self.register_buffer("hidden", place[None, :] > place[:, None])

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v, self.hidden)  # PL420

head = Head()
opt = torch.optim.SGD(head.parameters(), lr=0.1)
for _ in range(2):
    loss = (head(torch.randn(2, 6, 4))[:, :5] - 1).square().mean()
""" + TRAIN,
    "sorted by length, labels as they were": """
from torch.nn.utils.rnn import pack_padded_sequence
rnn, head = nn.GRU(3, 6, batch_first=True), nn.Linear(6, 2)
opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])
x, lengths, y = torch.randn(4, 6, 3), torch.tensor([2, 6, 3, 5]), torch.tensor([0, 1, 1, 0])

def read(x, lengths):
    lengths, order = lengths.sort(descending=True)
    return rnn(pack_padded_sequence(x[order], lengths, batch_first=True))[1][-1]  # PL414

for _ in range(2):
    loss = F.cross_entropy(head(read(x, lengths)), y)
""" + TRAIN,
    "a teacher that is the student": """
student = nn.Linear(3, 2)
teacher = student
opt = torch.optim.SGD(student.parameters(), lr=0.5)
x, y = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
for _ in range(3):
    with torch.no_grad():
        follow = teacher(x)
    loss = F.cross_entropy(student(x), y) + F.mse_loss(student(x), follow)  # PL518
""" + TRAIN,
    "an unshifted language model, with attention in a class": """
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.norm, self.head = nn.Embedding(9, 6), nn.LayerNorm(6), nn.Linear(6, 9)

    def forward(self, ids):
        h = self.emb(ids)
        h = h + F.scaled_dot_product_attention(h, h, h, is_causal=True)
        return self.head(self.norm(h))

model = Model()
opt = torch.optim.Adam(model.parameters())
ids = torch.randint(0, 9, (4, 7))
for _ in range(2):
    loss = F.cross_entropy(model(ids).transpose(1, 2), ids.clone())  # PL912
""" + TRAIN,
    "a term left out, computed by a function": """
net, side = nn.Linear(3, 4), nn.Linear(4, 2)
opt = torch.optim.SGD([*net.parameters(), *side.parameters()], lr=0.1)

def regularise(model):
    return sum(p.pow(2).sum() for p in model.parameters())

for _ in range(3):
    h = net(torch.randn(5, 3))
    loss = h.square().mean()
    extra = 0.3 * F.cross_entropy(side(h), torch.tensor([0, 1, 1, 0, 1])) + 0.1 * regularise(net)  # PL520
""" + TRAIN,
    "one class with numbers, in a module": """
class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.score, self.loss = nn.Linear(3, 1), nn.CrossEntropyLoss()

    def forward(self, x, y):
        return self.loss(self.score(x), y)  # PL422

judge = Judge()
opt = torch.optim.SGD(judge.parameters(), lr=0.1)
for _ in range(2):
    loss = judge(torch.randn(4, 3), torch.zeros(4, dtype=torch.long))
""" + TRAIN,
    "an iterator of trainable parameters that was used up": """
net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
trained = filter(lambda p: p.requires_grad, net.parameters())
opt = torch.optim.SGD(trained, lr=0.1)

def update(loss):
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(trained, 1.0)  # PL620
    opt.step()

for _ in range(2):
    update(net(torch.randn(4, 3)).square().mean() * 100)
""",
}  # fmt: skip


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_pitfall_in_another_form_is_found_on_the_line_and_nothing_else(title: str, shop: Workshop) -> None:
    marked = HEAD + PROGRAMS[title]
    trace = shop.trace(Subject(plain(marked), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    findings = [finding for finding in find(trace) if finding.severity != "info"]
    assert met(findings, marked) == ""


def test_one_line_that_drew_two_orders_is_said_to_have_run_twice(shop: Workshop) -> None:
    marked = HEAD + PROGRAMS["one function shuffles the examples, and called again the labels"]
    (finding,) = find(shop.trace(Subject(plain(marked), "program.py")))
    assert "ran once for the examples and once for the labels" in finding.message.en
    assert str(finding.advice).count("line 12") <= 1
