"""Where gradients arrive, how often and how much of them: mistakes in other forms than on their pages,
and right programs like them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

DATA = "import copy\nx, y, labels = torch.randn(32, 6), torch.randn(32, 1), torch.randint(0, 3, (32,))\n"

WRONG = {
    "a running total whose gradient is only read": """
cell, head = nn.RNNCell(3, 4), nn.Linear(4, 1)
h, total = torch.zeros(2, 4), 0.0
steps = torch.randn(5, 2, 3)
for t in range(5):
    h = cell(steps[t], h)
    total = total + head(h).square().mean()
    total.backward(retain_graph=True)  # PL610
print([p.grad.norm() for p in cell.parameters()])
""",
    "losses one by one, and then their sum": """
net = nn.Linear(6, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    losses = [F.mse_loss(net(x)[:, k], y[:, 0]) for k in range(3)]
    opt.zero_grad()
    for loss in losses:
        loss.backward(retain_graph=True)
    torch.stack(losses).sum().backward()  # PL610
    opt.step()
""",
    "a part that another backward comes after": """
net, head = nn.Linear(6, 4), nn.Linear(4, 1)
opt = SGD([*net.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    h = net(x)
    small, other, main = h.abs().mean(), h.square().mean(), F.mse_loss(head(h), y)
    opt.zero_grad()
    small.backward(retain_graph=True)
    other.backward(retain_graph=True)
    (main + 0.5 * small).backward()  # PL610
    opt.step()
""",
    "a penalty on gradients that are in grad already": """
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward(create_graph=True)
    flat = sum(p.grad.square().sum() for p in net.parameters())
    (loss + 0.1 * flat).backward()  # PL610
    opt.step()
    for p in net.parameters():
        p.grad = None
""",
    "the same penalty, of which only the gradient is read": """
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
def objective():
    loss = F.mse_loss(net(x), y)
    loss.backward(create_graph=True)
    return loss + 0.1 * sum(p.grad.square().sum() for p in net.parameters())
objective().backward()  # PL610
print(net[0].weight.grad[0, 0].item())
""",
    "a method that goes back, and its caller that does too": """
class Trainer:
    def __init__(self):
        self.net = nn.Linear(6, 1)
        self.opt = SGD(self.net.parameters(), lr=0.1)
    def loss(self):
        loss = F.mse_loss(self.net(x), y)
        loss.backward(retain_graph=True)
        return loss
    def train(self):
        self.opt.zero_grad()
        loss = self.loss()
        loss.backward()  # PL610
        self.opt.step()
trainer = Trainer()
for _ in range(2):
    trainer.train()
""",
    "clipping by value in an inner loop": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    for xb, yb in zip(x.split(8), 10 * y.split(8)):
        (F.mse_loss(net(xb), yb) / 4).backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.1)  # PL540
    opt.step()
""",
    "clipping by hand, in a function for each batch": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
def micro(xb, yb):
    (F.mse_loss(net(xb), yb) / 4).backward()
    norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
    for p in net.parameters():
        p.grad.mul_(1.0 / 4)  # PL540
    return norm
for _ in range(2):
    opt.zero_grad()
    for xb, yb in zip(x.split(8), 10 * y.split(8)):
        micro(xb, yb)
    opt.step()
""",
    "a new tensor in grad after each batch": """
w = torch.zeros(6, 1, requires_grad=True)
opt = SGD([w], lr=0.1)
for _ in range(2):
    opt.zero_grad()
    for xb, yb in zip(x.split(8), y.split(8)):
        F.mse_loss(xb @ w, yb).backward()
        w.grad = w.grad / 4  # PL540
    opt.step()
""",
    "a numbered batch, clipped with clamp": """
w = torch.zeros(6, 1, requires_grad=True)
for i, (xb, yb) in enumerate(zip(x.split(4), 10 * y.split(4)), 1):
    F.mse_loss(xb @ w, yb).backward()
    w.grad.clamp_(-0.2, 0.2)  # PL540
    if i % 4 == 0:
        with torch.no_grad():
            w -= 0.1 * w.grad
        w.grad = None
""",
    "a dictionary of the first weights": """
net = nn.Linear(6, 1)
first = {name: p.clone() for name, p in net.named_parameters()}  # PL542
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    far = sum((p - first[name]).pow(2).sum() for name, p in net.named_parameters())
    update(opt, F.mse_loss(net(x), y) + 10 * far)
""",
    "one vector of all weights": """
net = nn.Linear(6, 1)
begin = nn.utils.parameters_to_vector(net.parameters())  # PL542
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    now = nn.utils.parameters_to_vector(net.parameters())
    update(opt, F.mse_loss(net(x), y) + (now - begin).square().sum())
""",
    "the weights of the round before": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
before = None
for _ in range(4):
    loss = F.mse_loss(net(x), y)
    if before is not None:
        loss = loss + (net.weight - before).square().sum()
    before = net.weight.clone()  # PL542
    update(opt, loss)
""",
    "an average that an object keeps": """
class Slow:
    def __init__(self, module):
        self.kept = [torch.cat([p.flatten(), torch.zeros(1)]) for p in module.parameters()]  # PL542
    def pull(self, module):
        return sum((p.flatten() - k[:-1]).abs().sum() for p, k in zip(module.parameters(), self.kept))
net = nn.Linear(6, 1)
slow, opt = Slow(net), SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y) + slow.pull(net))
""",
    "weights in double precision": """
w = torch.randn(6, 1, requires_grad=True)
start = w.double()  # PL542
opt = SGD([w], lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(x @ w, y) + (w.double() - start).square().sum())
""",
    "a loss that is computed once, with its graph kept": """
w = torch.randn(6, requires_grad=True)
opt = SGD([w], lr=0.1)
loss = (x @ w - y[:, 0]).square().mean()
for _ in range(4):
    opt.zero_grad()
    loss.backward(retain_graph=True)  # PL503
    opt.step()
""",
    "a copy that is made once and used in each round": """
w = torch.randn(6, 1, requires_grad=True)
opt = SGD([w], lr=0.1)
shifted = w + 1
for _ in range(4):
    opt.zero_grad()
    loss = F.mse_loss(x @ shifted, y)
    loss.backward()  # PL503
    opt.step()
""",
    "a sample that is drawn under no_grad in a method": """
class Coder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.dec = nn.Linear(6, 4), nn.Linear(2, 6)
    @torch.no_grad()
    def draw(self, mean, log):
        return mean + torch.randn_like(mean) * torch.exp(0.5 * log)  # PL544
    def forward(self, x):
        mean, log = self.enc(x).chunk(2, 1)
        return self.dec(self.draw(mean, log)), mean, log
net = Coder()
opt = Adam(net.parameters(), lr=0.01)
for _ in range(3):
    out, mean, log = net(x)
    update(opt, F.mse_loss(out, x) - 0.5 * (1 + log - mean.pow(2) - log.exp()).mean())
""",
    "a code that is detached in front of the decoder": """
enc, dec = nn.Linear(6, 3), nn.Linear(3, 6)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
for _ in range(3):
    code = torch.relu(enc(x))
    update(opt, F.mse_loss(dec(code.detach()), x) + 0.01 * code.abs().mean())  # PL544
""",
    "a code whose data goes on": """
enc, dec = nn.Linear(6, 3), nn.Linear(3, 6)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
for _ in range(3):
    code = torch.tanh(enc(x))
    noisy = code.data + 0.1 * torch.randn(32, 3)  # PL544
    update(opt, F.mse_loss(dec(noisy), x) + 0.1 * code.square().sum(1).mean())
""",
    "numbers on their way through NumPy": """
import numpy as np
enc, dec = nn.Linear(6, 3), nn.Linear(3, 6)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
for _ in range(3):
    code = enc(x)
    bent = torch.from_numpy(np.tanh(code.detach().numpy()))  # PL544
    update(opt, F.mse_loss(dec(bent), x) + 0.1 * code.square().mean())
""",
    "a new tensor of a hidden state": """
body, head = nn.Linear(6, 4), nn.Conv1d(1, 2, 4)
opt = Adam([*body.parameters(), *head.parameters()], lr=0.01)
for _ in range(3):
    h = torch.relu(body(x))
    again = torch.tensor(h.tolist()).unsqueeze(1)  # PL544
    update(opt, F.mse_loss(head(again).squeeze(2), x[:, :2]) + 0.1 * h.mean())
""",
    "a layer under set_grad_enabled": """
enc, dec = nn.Linear(6, 3), nn.Linear(3, 6)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
for step in range(3):
    code = enc(x)
    with torch.set_grad_enabled(False):
        unit = code / code.norm(dim=1, keepdim=True)  # PL544
    update(opt, F.mse_loss(dec(unit), x) + (code.norm(dim=1) - 1).square().mean())
""",
    "the data of a weight that two layers share": """
table, cell = nn.Embedding(10, 6), nn.Linear(6, 6)
opt = Adam([*table.parameters(), *cell.parameters()], lr=0.01)
words = torch.randint(0, 10, (32,))
for _ in range(3):
    h = torch.tanh(cell(table(words)))
    update(opt, F.cross_entropy(h @ table.weight.data.t(), words.roll(1)))  # PL544
""",
    "an optimizer of the whole and one of the head": """
body, head = nn.Linear(6, 4), nn.Linear(4, 1)
net = nn.Sequential(body, nn.ReLU(), head)
one, two = Adam(net.parameters(), lr=0.01), Adam(head.parameters(), lr=0.01)
for _ in range(3):
    update(one, F.mse_loss(net(x), y))
    two.step()  # PL546
""",
    "a scaler's step and another one": """
net = nn.Linear(6, 1)
opt, scaler = SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
for _ in range(3):
    opt.zero_grad()
    scaler.scale(F.mse_loss(net(x), y)).backward()
    scaler.step(opt)
    opt.step()  # PL546
    scaler.update()
""",
    "a list of optimizers that overlap": """
body, head = nn.Linear(6, 4), nn.Linear(4, 1)
opts = [SGD([*body.parameters(), *head.parameters()], lr=0.1), SGD(body.parameters(), lr=0.1)]
def all_steps():
    opts[0].step()
    opts[1].step()  # PL546
for _ in range(3):
    for opt in opts:
        opt.zero_grad()
    F.mse_loss(head(torch.relu(body(x))), y).backward()
    all_steps()
""",
    "clipping in a loop over named parameters": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    F.mse_loss(net(x), 10 * y).backward()
    for name, p in net.named_parameters():
        nn.utils.clip_grad_norm_([p], 0.5)  # PL548
    opt.step()
""",
    "clipping in a function, parameter by parameter": """
net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 1))
opt = SGD(net.parameters(), lr=0.1)
def clip(params, most):
    for p in params:
        torch.nn.utils.clip_grad_norm_(p, most)  # PL548
for _ in range(2):
    opt.zero_grad()
    F.mse_loss(net(x), 10 * y).backward()
    clip(net.parameters(), 0.5)
    opt.step()
""",
    "a table's nearest entry, added from the other side": """
enc, dec, codes = nn.Linear(6, 3), nn.Linear(3, 6), nn.Embedding(8, 3)
opt = Adam([*enc.parameters(), *dec.parameters(), *codes.parameters()], lr=0.01)
for _ in range(2):
    z = enc(x)
    q = codes.weight[torch.cdist(z, codes.weight).argmin(1)]
    q = (q - z) + z  # PL552
    update(opt, F.mse_loss(dec(q), x) + F.mse_loss(z, codes.weight[0].detach().expand_as(z)))
""",
    "signs, in a function": """
net, out = nn.Linear(6, 4), nn.Linear(4, 1)
opt = Adam([*net.parameters(), *out.parameters()], lr=0.01)
def binary(v):
    hard = torch.sign(v)
    return v + hard - v  # PL552
for _ in range(2):
    update(opt, F.mse_loss(out(binary(net(x))), y) + 0.01 * net.weight.square().sum())
""",
    "a difference with a name, and numbers of a comparison": """
net, out = nn.Linear(6, 4), nn.Linear(4, 1)
opt = Adam([*net.parameters(), *out.parameters()], lr=0.01)
for _ in range(2):
    share = torch.sigmoid(net(x))
    hard = (share > 0.5).float()
    change = hard - share
    gate = torch.add(share, change)  # PL552
    update(opt, F.mse_loss(out(gate), y) + 0.01 * share.mean())
""",
    "scaled with one over the number, and divided": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for xb, yb in zip(x.split(8), y.split(8)):
        (F.mse_loss(net(xb), yb) * 0.25).backward()
    for p in net.parameters():
        p.grad.div_(4)  # PL556
    opt.step()
    opt.zero_grad()
""",
    "divided in a method, and in another one": """
class Loop:
    def __init__(self, parts):
        self.net, self.parts = nn.Linear(6, 1), parts
        self.opt = SGD(self.net.parameters(), lr=0.1)
    def part(self, xb, yb):
        loss = F.mse_loss(self.net(xb), yb)
        loss = loss / self.parts
        loss.backward()
    def finish(self):
        for p in self.net.parameters():
            if p.grad is not None:
                p.grad = p.grad / self.parts  # PL556
        self.opt.step()
        self.opt.zero_grad()
loop = Loop(4)
for _ in range(2):
    for xb, yb in zip(x.split(8), y.split(8)):
        loop.part(xb, yb)
    loop.finish()
""",
    "numbers of several losses in a new tensor": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    losses = []
    for xb, yb in zip(x.split(16), y.split(16)):
        losses.append(F.mse_loss(net(xb), yb).item())
    update(opt, torch.tensor(losses, requires_grad=True).mean())  # PL504
""",
    "two numbers in a new tensor that then requires a gradient": """
net, head = nn.Linear(6, 4), nn.Linear(4, 1)
opt = SGD([*net.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    h = net(x)
    one, two = F.mse_loss(head(h), y), h.square().mean()
    both = torch.tensor([one.item(), two.item()])  # PL504
    both.requires_grad_()
    update(opt, both.sum())
""",
    "gradients that are returned and not filled in": """
net = nn.Linear(6, 1)
opt = Adam(net.parameters(), lr=0.01)
for _ in range(3):
    opt.zero_grad()
    grads = torch.autograd.grad(F.mse_loss(net(x), y), tuple(net.parameters()))
    opt.step()  # PL632
""",
    "stacked copies of several networks": """
from torch.func import functional_call, stack_module_state, vmap
nets = [nn.Linear(6, 1) for _ in range(3)]
params, buffers = stack_module_state(nets)
opt = Adam([p for net in nets for p in net.parameters()], lr=0.01)
for _ in range(3):
    out = vmap(lambda p: functional_call(nets[0], p, (x,)))(params)
    opt.zero_grad()
    (out - y).square().mean().backward()
    opt.step()  # PL632
""",
    "a parameter of a product, made in the forward pass": """
class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight, self.out = nn.Parameter(torch.randn(4, 6)), nn.Linear(4, 1)
        self.mask = (torch.rand(4, 6) > 0.5).float()
    def forward(self, x):
        return self.out(torch.relu(F.linear(x, nn.Parameter(self.weight * self.mask))))  # PL615
net = Masked()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    update(opt, F.mse_loss(net(x), y))
""",
}

RIGHT = {
    "two losses on one trunk": """
trunk, a, b = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 3)
opt = SGD([*trunk.parameters(), *a.parameters(), *b.parameters()], lr=0.1)
for _ in range(4):
    h = torch.relu(trunk(x))
    one, two = F.mse_loss(a(h), y), F.cross_entropy(b(h), labels)
    opt.zero_grad()
    one.backward(retain_graph=True)
    two.backward()
    opt.step()
""",
    "an accumulation that is clipped once": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    for xb, yb in zip(x.split(8), 10 * y.split(8)):
        (F.mse_loss(net(xb), yb) / 4).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
""",
    "gradients of single examples, clipped": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    total = [torch.zeros_like(p) for p in net.parameters()]
    for xi, yi in zip(x[:6], y[:6]):
        net.zero_grad()
        F.mse_loss(net(xi), yi).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        for t, p in zip(total, net.parameters()):
            t += p.grad
    for t, p in zip(total, net.parameters()):
        p.grad = t / 6
    opt.step()
""",
    "only the first of two losses clipped": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    (5 * F.mse_loss(net(x), 10 * y)).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    net(x).square().mean().backward()
    opt.step()
""",
    "a penalty on gradients that grad returned": """
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.05)
for _ in range(4):
    loss = F.mse_loss(net(x), y)
    grads = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    flat = sum(g.square().sum() for g in grads)
    update(opt, loss + 0.1 * flat)
""",
    "a penalty that alone goes back after its loss": """
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.05)
for _ in range(4):
    opt.zero_grad()
    loss = F.mse_loss(net(x), y)
    loss.backward(create_graph=True)
    penalty = 0.1 * sum(p.grad.square().sum() for p in net.parameters())
    penalty.backward()
    opt.step()
    for p in net.parameters():
        p.grad = None
""",
    "the gradients of two tasks by a difference": """
net = nn.Linear(6, 2)
one = net(x)[:, 0].square().mean()
two = net(x)[:, 1].square().mean()
one.backward(retain_graph=True)
first = net.weight.grad.clone()
(one + two).backward()
second = net.weight.grad - first
print(first, second)
""",
    "a demonstration that gradients add up": """
w = torch.tensor(2.0, requires_grad=True)
loss = w ** 2
loss.backward(retain_graph=True)
print(w.grad)
loss.backward()
print(w.grad)
""",
    "first weights without a graph": """
net = nn.Linear(6, 1)
anchor = [p.detach().clone() for p in net.parameters()]
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(net(x), y) + sum((p - a).square().sum() for p, a in zip(net.parameters(), anchor)))
""",
    "first weights as a vector, and a first network": """
net = nn.Linear(6, 1)
with torch.no_grad():
    anchor = nn.utils.parameters_to_vector(net.parameters())
old = copy.deepcopy(net)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    now = nn.utils.parameters_to_vector(net.parameters())
    update(opt, F.mse_loss(net(x), y) + (now - anchor).square().sum() + F.mse_loss(net(x), old(x).detach()))
""",
    "views of a parameter made once": """
table = nn.Parameter(torch.randn(6, 4))
head = table[:, :1]
flat = table.view(-1)
opt = SGD([table], lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(x @ table.t().t()[:, :1], y))
""",
    "an autoencoder whose noise is drawn under no_grad": """
enc, mu, lv, dec = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2), nn.Linear(2, 6)
opt = Adam([*enc.parameters(), *mu.parameters(), *lv.parameters(), *dec.parameters()], lr=0.01)
for _ in range(4):
    h = torch.relu(enc(x))
    m, v = mu(h), lv(h)
    with torch.no_grad():
        noise = torch.randn_like(m)
    z = m + noise * torch.exp(0.5 * v)
    update(opt, F.mse_loss(dec(z), x) - 0.5 * (1 + v - m.pow(2) - v.exp()).mean())
""",
    "the nearest entry, straight through": """
enc, dec, codes = nn.Linear(6, 4), nn.Linear(4, 6), nn.Embedding(8, 4)
opt = Adam([*enc.parameters(), *dec.parameters(), *codes.parameters()], lr=0.01)
for _ in range(4):
    z = enc(x)
    q = codes(torch.cdist(z, codes.weight).argmin(1))
    commit = F.mse_loss(z, q.detach()) + F.mse_loss(q, z.detach())
    q = z + (q - z).detach()
    update(opt, F.mse_loss(dec(q), x) + 0.25 * commit)
""",
    "stopped gradients on both sides": """
enc, proj, pred = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 8)
opt = SGD([*enc.parameters(), *proj.parameters(), *pred.parameters()], lr=0.05)
for _ in range(4):
    a, b = proj(torch.relu(enc(x + 0.1 * torch.randn(32, 6)))), proj(torch.relu(enc(x + 0.1 * torch.randn(32, 6))))
    update(opt, -(F.cosine_similarity(pred(a), b.detach()).mean() + F.cosine_similarity(pred(b), a.detach()).mean()) / 2)
""",  # noqa: E501
    "a target network that follows": """
online = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
target, pred = copy.deepcopy(online), nn.Linear(4, 4)
opt = SGD([*online.parameters(), *pred.parameters()], lr=0.05)
for _ in range(4):
    p = pred(online(x + 0.1 * torch.randn(32, 6)))
    with torch.no_grad():
        t = target(x + 0.1 * torch.randn(32, 6))
    update(opt, 2 - 2 * F.cosine_similarity(p, t).mean())
    with torch.no_grad():
        for a, b in zip(target.parameters(), online.parameters()):
            a.lerp_(b, 0.01)
""",
    "a goal from an older network": """
net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
old = copy.deepcopy(net)
opt = Adam(net.parameters(), lr=0.01)
for _ in range(4):
    q = net(x).gather(1, labels[:, None]).squeeze(1)
    with torch.no_grad():
        goal = y.squeeze(1) + 0.9 * old(x + 0.1).max(1).values
    update(opt, F.smooth_l1_loss(q, goal))
""",
    "a state that is cut between windows": """
emb, cell, head = nn.Embedding(10, 6), nn.GRUCell(6, 8), nn.Linear(8, 10)
opt = Adam([*emb.parameters(), *cell.parameters(), *head.parameters()], lr=0.01)
text = torch.randint(0, 10, (4, 21))
h = torch.zeros(4, 8)
for start in range(0, 20, 5):
    h = h.detach()
    loss = 0
    for t in range(start, start + 5):
        h = cell(emb(text[:, t]), h)
        loss = loss + F.cross_entropy(head(h), text[:, t + 1])
    update(opt, loss / 5)
""",
    "a probe with its own optimizer": """
enc, dec, probe = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)
opt = Adam([*enc.parameters(), *dec.parameters()], lr=0.01)
popt = Adam(probe.parameters(), lr=0.01)
for _ in range(4):
    z = torch.tanh(enc(x))
    update(opt, F.mse_loss(dec(z), x) + 0.01 * z.square().mean())
    update(popt, F.cross_entropy(probe(z.detach()), labels))
""",
    "a probe in the same optimizer": """
enc, dec, probe = nn.Linear(6, 4), nn.Linear(4, 6), nn.Linear(4, 3)
opt = Adam([*enc.parameters(), *dec.parameters(), *probe.parameters()], lr=0.01)
for _ in range(4):
    z = torch.tanh(enc(x))
    update(opt, F.mse_loss(dec(z), x) + F.cross_entropy(probe(z.detach()), labels))
""",
    "a probe beside a contrastive loss": """
enc, probe = nn.Linear(6, 4), nn.Linear(4, 3)
opt = Adam([*enc.parameters(), *probe.parameters()], lr=0.01)
for _ in range(4):
    a, b = F.normalize(enc(x), dim=1), F.normalize(enc(x + 0.1 * torch.randn(32, 6)), dim=1)
    ssl = F.cross_entropy(a @ b.t() / 0.1, torch.arange(32))
    update(opt, ssl + F.cross_entropy(probe(a.detach()), labels))
""",
    "an advantage as a number": """
body, pi, v = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)
opt = Adam([*body.parameters(), *pi.parameters(), *v.parameters()], lr=0.01)
for _ in range(4):
    h = torch.tanh(body(x))
    logp = F.log_softmax(pi(h), 1).gather(1, labels[:, None])
    value = v(h)
    advantage = (y - value).detach()
    update(opt, -(logp * advantage).mean() + 0.5 * F.mse_loss(value, y))
""",
    "layers with losses of their own": """
one, two = nn.Linear(6, 8), nn.Linear(8, 8)
opts = [SGD(one.parameters(), lr=0.1), SGD(two.parameters(), lr=0.1)]
for _ in range(4):
    h = torch.relu(one(x))
    update(opts[0], F.softplus(1 - h.square().mean(1)).mean())
    g = torch.relu(two(h.detach()))
    update(opts[1], F.softplus(1 - g.square().mean(1)).mean())
""",
    "a head that leaves the trunk alone": """
trunk, policy, value = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 1)
opt = Adam([*trunk.parameters(), *policy.parameters(), *value.parameters()], lr=0.01)
for _ in range(4):
    h = torch.relu(trunk(x))
    update(opt, F.cross_entropy(policy(h), labels) + F.mse_loss(value(h.detach()), y))
""",
    "a backbone that is not trained": """
backbone, head = nn.Linear(6, 8), nn.Linear(8, 1)
opt = Adam(head.parameters(), lr=0.01)
for _ in range(4):
    with torch.no_grad():
        f = torch.relu(backbone(x))
    update(opt, F.mse_loss(head(f), y))
""",
    "a generator and its discriminator": """
gen, dis = nn.Linear(2, 6), nn.Linear(6, 1)
og, od = Adam(gen.parameters(), lr=0.01), Adam(dis.parameters(), lr=0.01)
for _ in range(4):
    fake = gen(torch.randn(32, 2))
    update(od, F.softplus(-dis(x)).mean() + F.softplus(dis(fake.detach())).mean())
    update(og, F.softplus(-dis(fake)).mean())
""",
    "two optimizers of two parts": """
body, head = nn.Linear(6, 8), nn.Linear(8, 1)
one, two = SGD(body.parameters(), lr=0.01), Adam(head.parameters(), lr=0.01)
for _ in range(4):
    loss = F.mse_loss(head(torch.relu(body(x))), y)
    one.zero_grad()
    two.zero_grad()
    loss.backward()
    one.step()
    two.step()
""",
    "only the sum divided": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    for xb, yb in zip(x.split(8), y.split(8)):
        (0.5 * F.mse_loss(net(xb), yb)).backward()
    for p in net.parameters():
        p.grad /= 4
    opt.step()
""",
    "half of a square, and two batches": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    opt.zero_grad()
    for xb, yb in zip(x.split(16), y.split(16)):
        ((net(xb) - yb).square().mean() / 2).backward()
    for p in net.parameters():
        p.grad /= 2
    opt.step()
""",
    "a residual, and a mean taken off and put back": """
net, out = nn.Linear(6, 6), nn.Linear(6, 1)
opt = SGD([*net.parameters(), *out.parameters()], lr=0.05)
for _ in range(3):
    h = net(x)
    mean = h.mean(0, keepdim=True)
    centered = h - mean
    h = centered + mean
    h = h + (torch.tanh(h) - h)
    update(opt, F.mse_loss(out(h), y))
""",
    "a goal with its own value in it": """
v = nn.Linear(6, 1)
opt = SGD(v.parameters(), lr=0.05)
for _ in range(3):
    now = v(x)
    with torch.no_grad():
        after = v(x + 0.1)
    target = (now + (y + 0.9 * after - now)).detach()
    update(opt, F.mse_loss(now, target))
""",
    "a logarithm of what is clamped": """
w = torch.zeros(6, 3, requires_grad=True)
opt = SGD([w], lr=0.1)
for _ in range(3):
    p = torch.softmax(x @ w, 1).masked_fill(labels[:, None] == 0, 0.0)
    update(opt, -(p * p.clamp_min(1e-8).log()).sum(1).mean())
""",
    "gradients that are tested": """
w = torch.tensor([0.0, 1.0], requires_grad=True)
for _ in range(3):
    loss = w.sqrt().sum()
    loss.backward()
    if not torch.isfinite(w.grad).all():
        w.grad = None
        continue
""",
    "rounds that are left out, since clipping raises": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.05)
broken = x.clone()
broken[3, 2] = float("inf")
for batch in (x, broken, x):
    opt.zero_grad()
    F.mse_loss(net(batch), y).backward()
    try:
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    except RuntimeError:
        continue
    opt.step()
""",
    "inner steps with their graph": """
w = torch.randn(6, 1, requires_grad=True)
meta = Adam([w], lr=0.01)
for _ in range(3):
    total = 0
    for k in range(2):
        fast = w
        for _ in range(2):
            g, = torch.autograd.grad(F.mse_loss(x[:16] @ fast, y[:16]), fast, create_graph=True)
            fast = fast - 0.1 * g
        total = total + F.mse_loss(x[16:] @ fast, y[16:])
    update(meta, total)
""",
    "gradients handed over from a copy": """
net = nn.Linear(6, 1)
meta = Adam(net.parameters(), lr=0.01)
for _ in range(3):
    meta.zero_grad()
    for k in range(2):
        fast = copy.deepcopy(net)
        inner = SGD(fast.parameters(), lr=0.1)
        update(inner, F.mse_loss(fast(x[:16]), y[:16]))
        grads = torch.autograd.grad(F.mse_loss(fast(x[16:]), y[16:]), list(fast.parameters()))
        for p, g in zip(net.parameters(), grads):
            p.grad = g if p.grad is None else p.grad + g
    meta.step()
""",
    "a step to a worse place and back": """
net = nn.Linear(6, 1)
opt = SGD(net.parameters(), lr=0.05)
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    with torch.no_grad():
        norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()
        moves = [0.05 * p.grad / norm for p in net.parameters()]
        for p, e in zip(net.parameters(), moves):
            p.add_(e)
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    with torch.no_grad():
        for p, e in zip(net.parameters(), moves):
            p.sub_(e)
    opt.step()
""",
    "updates that make new leaves": """
w = torch.randn(6, 1, requires_grad=True)
for _ in range(4):
    g, = torch.autograd.grad(F.mse_loss(x @ w, y), w)
    w = (w - 0.1 * g).detach().requires_grad_()
print(w)
""",
    "a parameter that begins as a number": """
first = nn.Linear(6, 1)
scale = torch.tensor(first(x).std().item(), requires_grad=True)
opt = SGD([scale, *first.parameters()], lr=0.1)
for _ in range(4):
    update(opt, F.mse_loss(scale * first(x), y))
""",
    "a new tensor to attack": """
net = nn.Linear(6, 3)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    adv = torch.tensor((x + 0.01).tolist(), requires_grad=True)
    g, = torch.autograd.grad(F.cross_entropy(net(adv), labels), adv)
    update(opt, F.cross_entropy(net((adv + 0.1 * g.sign()).detach()), labels))
""",
    "norms measured layer by layer": """
net = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 1))
opt = SGD(net.parameters(), lr=0.05)
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    norms = [nn.utils.clip_grad_norm_([p], float("inf")) for p in net.parameters()]
    opt.step()
""",
    "a momentum kept in grad": """
net = nn.Linear(6, 1)
for _ in range(4):
    F.mse_loss(net(x), y).backward()
    with torch.no_grad():
        for p in net.parameters():
            p -= 0.05 * p.grad
            p.grad *= 0.9
""",
    "a prediction fed back as a number": """
enc, dec_in, cell, out = nn.Linear(6, 8), nn.Linear(1, 4), nn.GRUCell(4, 8), nn.Linear(8, 1)
opt = Adam([p for m in (enc, dec_in, cell, out) for p in m.parameters()], lr=0.01)
goal = torch.randn(32, 5, 1)
for _ in range(3):
    h, inp, loss = torch.tanh(enc(x)), torch.zeros(32, 1), 0
    for t in range(5):
        h = cell(dec_in(inp), h)
        pred = out(h)
        loss = loss + F.mse_loss(pred, goal[:, t])
        inp = pred.detach()
    update(opt, loss)
""",
    "a sampled action for the critic": """
actor, critic = nn.Linear(6, 2), nn.Linear(8, 1)
opt = Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
for _ in range(3):
    dist = torch.distributions.Normal(actor(x), 1.0)
    a = dist.sample()
    q = critic(torch.cat([x, a], 1))
    loss = -(dist.log_prob(a).sum(1) * (q.detach().squeeze(1))).mean() + F.mse_loss(q, y)
    update(opt, loss)
""",
    "values of a rollout as numbers": """
actor, critic = nn.Linear(6, 3), nn.Linear(6, 1)
opt = Adam([*actor.parameters(), *critic.parameters()], lr=0.01)
for _ in range(3):
    values = torch.tensor([critic(row).item() for row in x[:4]])
    logp = F.log_softmax(actor(x[:4]), 1)[:, 0]
    update(opt, -(logp * (y[:4, 0] - values)).mean() + F.mse_loss(critic(x[:4]), y[:4]))
""",
    "a table with sparse gradients and an optimizer of its own": """
table, head = nn.Embedding(30, 6, sparse=True), nn.Linear(6, 3)
opt_table, opt_head = torch.optim.SparseAdam(list(table.parameters()), lr=0.01), Adam(head.parameters(), lr=0.01)
for _ in range(4):
    loss = F.cross_entropy(head(table(torch.randint(0, 30, (32,)))), labels)
    opt_table.zero_grad()
    opt_head.zero_grad()
    loss.backward()
    opt_table.step()
    opt_head.step()
""",
    "a first guess without a graph": """
net = nn.Linear(12, 6)
opt = Adam(net.parameters(), lr=0.01)
for _ in range(3):
    with torch.no_grad():
        guess = net(torch.cat([x, torch.zeros_like(x)], 1))
    update(opt, F.mse_loss(net(torch.cat([x, guess], 1)), x))
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together({title: DATA + text.lstrip("\n") for title, text in WRONG.items()}))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together({title: DATA + text.lstrip("\n") for title, text in RIGHT.items()}))
