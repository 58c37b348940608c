"""Silent pitfalls in other forms than on their pages, and right programs that resemble them."""

from __future__ import annotations

import textwrap

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import met, plain

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
""",
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
}

RIGHT = {
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
}


def together(programs: dict[str, str]) -> str:
    """All of them in one program, each in a function of its own: each is found there, or not, as it is alone, at a fraction of the cost."""
    cases = (f"def case_{number}():\n{textwrap.indent(text, '    ')}\ncase_{number}()\n" for number, text in enumerate(programs.values()))
    return HEAD + "".join(cases)


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    program = together(WRONG)
    trace = shop.trace(Subject(plain(program), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert met([f for f in find(trace) if f.severity != "info"], program) == ""


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    trace = shop.trace(Subject(together(RIGHT), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    assert [(f.rule, f.message.en) for f in find(trace) if f.severity != "info"] == []
