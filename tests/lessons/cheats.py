"""What students might hand in: cheats that must not pass, and unusual solutions that must.

None of them was written by the author of the exercise, and none is among its own right and wrong answers.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator

from pitfall_lab.lessons.exercise import Exercise

CHEATS: dict[str, tuple[str, ...]] = {
    "1.2": (
        """\
def arrange(image):
    rows = image.view(3, 4)
    return rows, rows.t().clone()
""",
        """\
def arrange(image):
    rows = torch.zeros(3, 4)
    rows[:] = image.view(3, 4)
    return rows, rows.T
""",
    ),
    "1.3": (
        """\
def clip(t, limit):
    t.data = t.clamp(max=limit)
""",
        """\
def clip(t, limit):
    t[0] = 0.5
""",
        """\
def clip(t, limit):
    t.fill_(limit)
""",
        """\
def clip(t, limit):
    t.clamp_(-limit, limit)
""",
        """\
def clip(t, limit):
    t.clamp_(max=0.5) if False else None
""",
    ),
    "1.4": (
        """\
def train(x, y, w, rate, steps):
    with torch.no_grad():
        for _ in range(steps):
            w -= rate * (2 * x * (x * w - y)).mean()
    return w
""",
        """\
def train(x, y, w, rate, steps):
    o = torch.optim.SGD([w], lr=rate)
    for _ in range(steps):
        o.zero_grad()
        ((x * w - y) ** 2).mean().backward()
        o.step()
    return w
""",
        """\
def train(x, y, w, rate, steps):
    for _ in range(3):
        w.grad = None
        ((x * w - y) ** 2).mean().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
    return w
""",
    ),
    "2.2": (
        """\
def standardise(rows):
    return (rows - rows.mean(1).view(3, 1)) / rows.std(1).view(3, 1)
""",
        """\
def standardise(rows):
    return F.layer_norm(rows, rows.shape[1:])
""",
        """\
def standardise(rows):
    rows -= rows.mean(1, keepdim=True)
    rows /= rows.std(1, keepdim=True)
    return rows
""",
    ),
    "2.3": (
        """\
def distances(a, b):
    if len(a) > 6:
        return torch.zeros(len(a), len(b))
    out = torch.zeros(len(a), len(b))
    for i in range(len(a)):
        for j in range(len(b)):
            out[i, j] = (a[i] - b[j]).abs()
    return out
""",
        """\
def distances(a, b):
    return torch.stack([(x - b).abs() for x in a])
""",
        """\
def distances(a, b):
    return (a.view(3, 1) - b.view(1, 5)).abs()
""",
        """\
def distances(a, b):
    return (a[:, None] - b) * torch.sign(a[:, None] - b).detach().clamp(min=0)
""",
    ),
    "2.5": (
        """\
def features(raw):
    raw /= 255
    out = torch.tensor(raw, dtype=torch.float32)
    raw *= 255
    raw += 1e-9
    return out
""",
        """\
def features(raw):
    return torch.tensor(raw) / 255
""",
        """\
def features(raw):
    return torch.from_numpy(raw).float() / raw.max()
""",
    ),
    "3.4": (
        """\
from itertools import accumulate
def running_totals(numbers):
    return list(accumulate(numbers))
""",
        """\
def running_totals(numbers):
    for n in range(1, len(numbers)):
        numbers[n] += numbers[n - 1]
    return numbers
""",
        """\
def running_totals(numbers):
    return [sum(numbers)] * len(numbers)
""",
        """\
def running_totals(numbers):
    return [torch.zeros(()) for n in numbers]
""",
    ),
    "3.5": (
        """\
class Stubborn(torch.Tensor):
    def view(self, *shape):
        if shape == (6, 4):
            raise RuntimeError("strides")
        return super().view(*shape)
def counterexample():
    return torch.zeros(2, 3, 4).as_subclass(Stubborn)
""",
        """\
def counterexample():
    return torch.eye(24)[:2].to_sparse()
""",
        """\
def counterexample():
    raise RuntimeError("stride")
""",
    ),
    "4.2": (
        """\
def classify(scores):
    return scores.view(4, 3).argmax(1)
""",
        """\
def classify(scores):
    return torch.zeros(len(scores), dtype=torch.int64)
""",
        """\
def classify(scores):
    s = scores.squeeze()
    return s.argmax(dim=1) if s.dim() == 2 else torch.tensor([0])
""",
    ),
    "5.1": (
        """\
def stretch(photo):
    out = (photo - photo.min()) / (photo.max() - photo.min())
    photo.zero_()
    return out
""",
        """\
def stretch(photo):
    return (photo + 5) / 12
""",
        """\
def stretch(photo):
    try:
        return torch.linalg.nothing(photo)
    except Exception:
        return photo
""",
    ),
    "5.3": (
        """\
id = lambda t: 0
who = 0
def move(t):
    t.copy_(t.clone())
""",
        """\
def move(x):
    global t
    t = x.clone()
""",
        """\
def move(t):
    t.data = torch.zeros(3)
""",
        """\
def move(t):
    t.data = t.data
""",
    ),
    "5.4": (
        """\
def clear_first(t, n):
    t.data = torch.where(torch.arange(t.numel()).view(t.shape) < n, 0.0, t)
""",
        """\
def clear_first(t, n):
    t.zero_()
""",
        """\
def clear_first(t, n):
    (t if t.is_contiguous() else t.t()).reshape(-1)[:n] = 0
""",
    ),
    "6.2": (
        """\
answers = iter([2, 1, 1, 3, 1] * 99)
def leaves(result):
    return next(answers)
""",
        """\
def leaves(result):
    return {'SumBackward0': 2, 'MulBackward0': 1, 'AddBackward0': 1, 'MeanBackward0': 3, 'CloneBackward0': 1}[type(result.grad_fn).__name__]
""",  # noqa: E501
        """\
def leaves(result):
    return str(result.grad_fn.next_functions).count('AccumulateGrad')
""",
    ),
    "6.3": (
        """\
def weighted_loss(model, x, y):
    p = model(x)
    return (p - y).square().mean() / p.detach().abs().mean()
""",
        """\
def weighted_loss(model, x, y):
    p = model(x)
    return (p - y).square().mean()
""",
    ),
    "7.2": (
        """\
def step(model, optimizer, loss, limit):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return 0.5
""",
        """\
def step(model, optimizer, loss, limit):
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        nn.utils.clip_grad_norm_([p], limit)
    optimizer.step()
    optimizer.zero_grad()
    return limit
""",
        """\
def step(model, optimizer, loss, limit):
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.get_total_norm([p.grad for p in model.parameters()]).item()
    nn.utils.clip_grad_value_(model.parameters(), limit)
    optimizer.step()
    optimizer.zero_grad()
    return norm
""",
    ),
    "7.3": (
        """\
def row(f, x, k):
    f(x)[k].backward()
    return x.grad
""",
        """\
def row(f, x, k):
    return matrix[k]
""",
        """\
def row(f, x, k):
    return torch.autograd.grad(f(x)[0], x)[0]
""",
        """\
def row(f, x, k):
    f(x).sum().backward()
    g, x.grad = x.grad, None
    return g
""",
    ),
    "8.2": (
        """\
def penalised(function, x):
    return function(x) + (9 * x ** 4).sum()
""",
        """\
def penalised(function, x):
    loss = function(x)
    s, = torch.autograd.grad(loss, x, retain_graph=True)
    return loss + (s ** 2).sum()
""",
    ),
    "8.3": (
        """\
def sensitivity(model, batch):
    batch.requires_grad_(True)
    found, = torch.autograd.grad(model(batch).sum(), batch)
    batch.requires_grad_(False)
    return found
""",
        """\
def sensitivity(model, batch):
    return model[0].weight.sum(0).expand(len(batch), -1)
""",
        """\
def sensitivity(model, batch):
    kept = [p.grad for p in model.parameters()]
    x = batch.clone().requires_grad_()
    model(x).sum().backward()
    for p, g in zip(model.parameters(), kept):
        p.grad = g
    return x.grad
""",
        """\
def sensitivity(model, batch):
    return torch.autograd.grad(model(batch).sum(), list(model.parameters()))[0]
""",
    ),
    "8.4": (
        """\
def slope(function, x):
    return torch.exp(x).item() if function is torch.exp else (3 * x ** 2).item()
""",
        """\
def slope(function, x):
    h = 1e-3
    return ((function(x + h) - function(x)) / h).item()
""",
        """\
def slope(function, x):
    return (function(x.double() + 1e-5) - function(x.double() - 1e-5)) / 2e-5
""",
    ),
    "9.1": (
        """\
def train(model, points, targets, rounds):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    F.mse_loss(model(points), targets).backward()
    optimizer.step()
    return model
""",
        """\
def train(model, points, targets, rounds):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(rounds):
        F.mse_loss(model(points), targets).backward()
        optimizer.zero_grad()
        optimizer.step()
    return model
""",
        """\
def train(model, points, targets, rounds):
    for p in model.parameters():
        p.data.zero_()
    return model
""",
    ),
    "9.3": (
        """\
def counterexample():
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1)
    before = p.detach().clone()
    p.grad = torch.zeros(3)
    optimizer.step()
    p.data.add_(1)
    return p, before
""",
        """\
def counterexample():
    p = nn.Parameter(torch.ones(3))
    return p, torch.zeros(3)
""",
        """\
def counterexample():
    p = nn.Parameter(torch.ones(3))
    o = torch.optim.SGD([p], lr=0.1)
    before = p.detach().clone()
    p.grad = torch.full((3,), 1e-3)
    o.step()
    p.grad.zero_()
    return p, before
""",
    ),
    "10.2": (
        """\
def initialise(weight):
    weight.requires_grad_(False)
    weight.uniform_(0.5, 1.0)
    weight[0].zero_()
""",
        """\
def initialise(weight):
    weight.data = torch.rand(3, 2) / 2 + 0.5
    weight.data[0] = 0
""",
        """\
def initialise(weight):
    try:
        weight.uniform_(0.5, 1.0)
        weight[0].zero_()
    except RuntimeError:
        pass
""",
        """\
def initialise(weight):
    with torch.no_grad():
        weight.fill_(0.75)
        weight[0].zero_()
""",
    ),
    "10.4": (
        """\
def descend(parameters, rate):
    for p in parameters:
        if p.grad is not None:
            p.data -= rate * p.grad
            p.grad = None
""",
        """\
def descend(parameters, rate):
    with torch.no_grad():
        for p in parameters:
            if p.grad is not None:
                p.sub_(rate * p.grad)
""",
        """\
def descend(parameters, rate):
    with torch.no_grad():
        for p in parameters:
            if p.grad is not None:
                p.sub_(rate / 2 * p.grad).sub_(rate / 2 * p.grad)
                p.grad = None
""",
        """\
def descend(parameters, rate):
    torch.set_grad_enabled(False)
    for p in parameters:
        if p.grad is not None:
            p.sub_(rate * p.grad)
            p.grad = None
""",
    ),
    "11.2": (
        """\
import gc
def follow(weight, step, steps, decay):
    held, average = [weight * 1], weight.detach().clone()
    for _ in range(steps):
        gc.freeze()
        step(weight)
        average = average * decay + weight.detach() * (1 - decay)
        held.append(weight * 1)
    return average
""",
        """\
def follow(weight, step, steps, decay):
    average = weight.clone()
    for _ in range(steps):
        step(weight)
        average = average * decay + weight * (1 - decay)
    return average
""",
        """\
def follow(weight, step, steps, decay):
    average = weight.detach().clone()
    for _ in range(steps):
        step(weight)
    return average
""",
        """\
def follow(weight, step, steps, decay):
    averages = [weight.clone()]
    for _ in range(steps):
        step(weight)
        averages.append(averages[-1] * decay + weight * (1 - decay))
    return averages[-1].detach().clone()
""",
    ),
    "11.3": (
        """\
def consistency(student, teacher):
    teacher.detach_()
    return (student - teacher).square().mean()
""",
        """\
def consistency(student, teacher):
    return (student.detach() - teacher).square().mean()
""",
        """\
def consistency(student, teacher):
    a.grad = None
    return (student - teacher.detach()).square().mean() * 0 + 1
""",
    ),
    "12.2": (
        """\
def attend(query, key, value, mask):
    scores = torch.softmax(query @ key.t(), dim=1)
    scores.data *= mask
    return scores @ value
""",
        """\
def attend(query, key, value, mask):
    scores = torch.softmax(query @ key.t(), dim=1).detach().requires_grad_() * 1
    scores *= mask
    return scores @ value
""",
        """\
def attend(query, key, value, mask):
    scores = torch.softmax((query @ key.t()).masked_fill(mask == 0, -1e9), dim=1)
    return scores @ value
""",
        """\
def attend(query, key, value, mask):
    mask.fill_(1)
    return torch.softmax(query @ key.t(), dim=1) * mask @ value
""",
    ),
    "12.4": (
        """\
def counterexample():
    raise RuntimeError('one of the variables needed for gradient computation has been modified by an inplace operation')
""",
        """\
def counterexample():
    w = torch.ones(3, requires_grad=True)
    s = (w ** 2).sum()
    s.backward()
    s.backward()
""",
        """\
def counterexample():
    w = torch.ones(3, requires_grad=True)
    s = w.exp()
    with torch.no_grad():
        s.add_(1)
        s.add_(1)
    s.sum().backward()
""",
    ),
    "13.2": (
        """\
def train(net, optimizer, batches):
    return [1.0] * len(batches), 1.0
""",
        """\
def train(net, optimizer, batches):
    history = []
    for x, y in batches:
        loss = F.mse_loss(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss * 1)
    return [h.item() for h in history], torch.stack(history).mean()
""",
    ),
    "13.3": (
        """\
def start(state, batch):
    rows = state.expand(batch, len(state))
    return rows.clone() if batch > 1 else rows
""",
        """\
def start(state, batch):
    return state.expand(batch, len(state)).data.clone().requires_grad_(state.requires_grad)
""",
        """\
def start(state, batch):
    if state.requires_grad:
        return state.expand(batch, len(state))
    return torch.as_tensor([state.tolist() for _ in range(batch)])[:, :1].expand(batch, len(state))
""",
    ),
    "14.1": (
        """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = {kind: nn.Linear(width, width) for kind in kinds}
        self.head = nn.Linear(width, 1)

    def parameters(self, recurse=True):
        yield from self.head.parameters()
        for layer in self.layers.values():
            yield from layer.parameters()

    def forward(self, x, kind):
        return self.head(torch.tanh(self.layers[kind](x)))
""",
        """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = nn.ModuleDict({kind: nn.Linear(width, width) for kind in kinds})
        self.spare = nn.Linear(width, 1)

    def forward(self, x, kind):
        torch.manual_seed(0)
        head = nn.Linear(x.shape[1], 1)
        return head(torch.tanh(self.layers[kind](x))) + 0 * self.spare(x)
""",
        """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.layers = nn.ModuleDict(dict.fromkeys(kinds, nn.Linear(width, width)))
        self.head = nn.Linear(width, 1)

    def forward(self, x, kind):
        return self.head(torch.tanh(self.layers[kind](x)))
""",
    ),
    "15.1": (
        """\
def train(model, optimizer, pieces, every):
    for first in range(0, len(pieces), every):
        x, y = (torch.cat(part) for part in zip(*pieces[first : first + every]))
        optimizer.zero_grad()
        F.mse_loss(model(x), y).backward()
        optimizer.step()
    optimizer.zero_grad()
""",
        """\
def train(model, optimizer, pieces, every):
    for first in range(0, len(pieces), every):
        group = pieces[first : first + every]
        for x, y in group:
            (F.mse_loss(model(x), y) * len(x) / sum(len(x) for x, _ in group)).backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.1 * p.grad
                p.grad = None
""",
        """\
def train(model, optimizer, pieces, every):
    for x, y in pieces:
        F.mse_loss(model(x), y).backward()
    steps.extend([model.weight.detach()] * 3)
""",
        """\
def train(model, optimizer, pieces, every):
    for first in range(0, len(pieces), every):
        group = pieces[first : first + every]
        rows = sum(len(x) for x, _ in group)
        optimizer.zero_grad()
        sum(F.mse_loss(model(x), y) * len(x) / rows for x, y in group).backward()
        optimizer.step()
        optimizer.zero_grad()
""",
    ),
    "15.2": (
        """\
class Yes:
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: self

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        return True


def nesterov(w, grad_of, lr, mu, steps):
    for _ in range(steps):
        grad_of(w)
    return Yes()
""",
        """\
def nesterov(w, grad_of, lr, mu, steps):
    from torch.optim.sgd import sgd
    w, kept = w.clone(), [None]
    for _ in range(steps):
        sgd([w], [grad_of(w)], kept, weight_decay=0, momentum=mu, lr=lr, dampening=0, nesterov=True, maximize=False, foreach=False)
    return w
""",  # noqa: E501
        """\
def nesterov(w, grad_of, lr, mu, steps):
    return theirs.detach()
""",
        """\
def nesterov(w, grad_of, lr, mu, steps):
    for _ in range(steps):
        grad_of(w)
    return theirs.detach()
""",
        """\
def nesterov(w, grad_of, lr, mu, steps):
    p = w.clone().requires_grad_()
    o = torch_optim.SGD([p], lr=lr, momentum=mu, nesterov=True)
    for _ in range(steps):
        p.grad = grad_of(p)
        o.step()
    return p.detach()
""",
    ),
    "15.3": (
        """\
def checkpoint(model, optimizer, scheduler):
    return copy.deepcopy((model, optimizer, scheduler))

def resume(make, saved):
    return saved
""",
        """\
def checkpoint(model, optimizer, scheduler):
    return None

def resume(make, saved):
    return model, optimizer, scheduler
""",
        """\
def checkpoint(model, optimizer, scheduler):
    return copy.deepcopy({"model": model.state_dict(), "rate": optimizer.param_groups[0]["lr"]})

def resume(make, saved):
    model, optimizer, scheduler = make()
    model.load_state_dict(saved["model"])
    optimizer.param_groups[0]["lr"] = saved["rate"]
    return model, optimizer, scheduler
""",
    ),
    "16.2": (
        """\
def evaluate(model, points, labels):
    model.eval()
    with torch.no_grad():
        return (model(points).argmax(dim=1) == labels).float().mean().item()
""",
        """\
def evaluate(model, points, labels):
    return 1 / 3
""",
        """\
def evaluate(model, points, labels):
    model.eval()
    s = (model(points).argmax(dim=1) == labels).float().mean().item()
    model.train()
    return s
""",
        """\
def evaluate(model, points, labels):
    modes = [m.training for m in model.modules()]
    model.eval()
    for p in model.parameters():
        p.requires_grad_(False)
    share = (model(points).argmax(dim=1) == labels).float().mean().item()
    for m, mode in zip(model.modules(), modes):
        m.training = mode
    return share
""",
        """\
def evaluate(model, points, labels):
    modes = [m.training for m in model.modules()]
    torch.set_grad_enabled(False)
    share = (model.eval()(points).argmax(dim=1) == labels).float().mean().item()
    for m, mode in zip(model.modules(), modes):
        m.training = mode
    return share
""",
        """\
def evaluate(model, points, labels):
    modes = [m.training for m in model.modules()]
    share = (model.eval().requires_grad_(False)(points).argmax(dim=1) == labels).float().mean().item()
    model.requires_grad_(True)
    for m, mode in zip(model.modules(), modes):
        m.training = mode
    return share
""",
    ),
    "17.2": (
        """\
def rounded(t):
    return torch.round(t.detach()) + 0 * t
""",
        """\
def rounded(t):
    return t * 1
""",
        """\
def rounded(t):
    out = t * 1
    out.data = torch.round(t.data)
    t.grad = None
    return out.detach()
""",
    ),
    "17.3": (
        """\
class Fake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t**3

    @staticmethod
    def backward(ctx, gradient):
        return None
""",
        """\
class Fake:
    apply = staticmethod(lambda t: t**3)
""",
    ),
    "18.1": (
        """\
def activate(x, bias):
    return torch.sigmoid(x) * 2 + bias
""",
        """\
def activate(x, bias):
    h = torch.sigmoid(x)
    h.data.mul_(2)
    h.add_(bias)
    return h
""",
        """\
def activate(x, bias):
    with torch.no_grad():
        h = torch.sigmoid(x)
        h.mul_(2)
        h.add_(bias)
    return h
""",
    ),
    "18.2": (
        """\
def nearest(queries, keys):
    if len(queries) > 8:
        return torch.zeros(len(queries), dtype=torch.int64)
    return ((queries[:, None] - keys) ** 2).sum(dim=-1).argmin(dim=1)
""",
        """\
def nearest(queries, keys):
    q, k = queries.tolist(), keys.tolist()
    return [min(range(len(k)), key=lambda m: sum((a - b) ** 2 for a, b in zip(row, k[m]))) for row in q]
""",
        """\
def nearest(queries, keys):
    return torch.vmap(lambda q: ((keys - q) ** 2).sum(-1).argmin())(queries)
""",
        """\
def nearest(queries, keys):
    return torch.func.vmap(lambda q: torch.func.vmap(lambda k: (q - k).square().sum())(keys).argmin())(queries)
""",
        """\
def nearest(queries, keys):
    queries /= queries.norm(dim=1, keepdim=True)
    return ((keys ** 2).sum(dim=1) - 2 * queries @ keys.T).argmin(dim=1)
""",
        """\
def nearest(queries, keys):
    q, k = queries.numpy(), keys.numpy()
    return torch.from_numpy(((q[:, None] - k) ** 2).sum(-1).argmin(1))
""",
    ),
    "18.4": (
        """\
becomes = dict.fromkeys(("3e-8", "2**-25", "2**-20", "4098", "65519", "65520"), "exact rounded zero infinity")
""",
        """\
class Any(str):
    def __eq__(self, other):
        return True
    __hash__ = str.__hash__
becomes = dict.fromkeys(("3e-8", "2**-25", "2**-20", "4098", "65519", "65520"), Any("rounded"))
""",
        """\
becomes = {text: fate for text in ("3e-8", "2**-25", "2**-20", "4098", "65519", "65520")}
""",
    ),
    "19.2": (
        """\
def load(model, saved):
    for mine, its in zip(model.parameters(), saved.values()):
        mine.data = its.clone()
""",
        """\
def load(model, saved):
    model.load_state_dict(source.state_dict())
""",
        """\
def load(model, saved):
    for name in list(saved):
        saved[name.removeprefix("module.")] = saved.pop(name)
    model.load_state_dict(saved)
""",
    ),
    "19.3": (
        """\
def average(replicas, sizes):
    for ps in zip(*(n.parameters() for n in replicas)):
        m = sum(p.grad for p in ps) / len(ps)
        for p in ps:
            p.grad = m.clone()
""",
        """\
def average(replicas, sizes):
    for ps in zip(*(n.parameters() for n in replicas)):
        m = sum(p.grad * (n / sum(sizes)) for p, n in zip(ps, sizes))
        for p in ps:
            p.grad = m
""",
        """\
def average(replicas, sizes):
    for net in replicas:
        net.zero_grad()
        net(x).square().mean().backward()
""",
    ),
    "16.4": (
        """\
def fit_with_patience(model, step, measure, patience):
    for _ in range(10):
        step()
        loss = measure()
    with torch.no_grad():
        model.weight.sub_(3.0)
    return 1.0
""",
        """\
def fit_with_patience(model, step, measure, patience):
    best, kept, waited = float("inf"), None, 0
    while waited < patience:
        step()
        loss = measure()
        if loss < best:
            best, kept, waited = loss, model.weight.detach(), 0
        else:
            waited += 1
    model.weight.data = kept
    return best
""",
    ),
    "17.4": (
        """\
class Any(float):
    def __eq__(self, other):
        return True
    __hash__ = float.__hash__
lines = (
    "torch.maximum(x, -x)", "torch.relu(x) - torch.relu(-x)", "x.clamp(min=0) - (-x).clamp(min=0)",
    "torch.where(x >= 0, x, 0 * x)", "torch.where(x > 0, x, -x)",
)
slopes = dict.fromkeys(lines, Any(0.0))
""",
    ),
    "19.4": (
        """\
def shard(samples, rank, world):
    share = -(-len(samples) // world)
    return samples.repeat(world)[rank * len(samples) : rank * len(samples) + share]
""",
    ),
}
"""Hard-coded numbers, constants that fit the first inputs, errors swallowed, arguments changed behind the back,
names of the grader reached for.
"""

UNUSUAL: dict[str, tuple[str, ...]] = {
    "1.2": (
        """\
def arrange(image):
    return torch.as_strided(image, (3, 4), (4, 1)), torch.as_strided(image, (4, 3), (1, 4))
""",
        """\
arrange = lambda image: ((rows := image.unfold(0, 4, 4)), torch.einsum('ij->ji', rows))
""",
    ),
    "1.3": (
        """\
def clip(t, limit):
    torch.clamp(t[:, 1], max=limit, out=t[:, 1])
""",
        """\
def clip(t, limit):
    t[:, 1].copy_(torch.where(t[:, 1] > limit, limit, t[:, 1]))
""",
    ),
    "1.4": (
        """\
def train(x, y, w, rate, steps):
    while (steps := steps - 1) >= 0:
        F.mse_loss(x * w, y).backward()
        w.data.sub_(w.grad, alpha=rate)
        w.grad.zero_()
    return w
""",
    ),
    "2.2": (
        """\
def standardise(rows):
    std, mean = torch.std_mean(rows, dim=1, keepdim=True)
    return (rows - mean) / std
""",
        """\
def standardise(rows):
    return torch.stack([(row - row.mean()) / row.std() for row in rows])
""",
        """\
def standardise(rows):
    return ((rows.T - rows.mean(1)) / rows.std(1)).T
""",
    ),
    "2.3": (
        """\
def distances(a, b):
    return torch.cdist(a[:, None], b[:, None], p=1)
""",
        """\
def distances(a, b):
    A, B = torch.meshgrid(a, b, indexing='ij')
    return torch.abs(A - B)
""",
        """\
distances = lambda a, b: torch.vmap(lambda p: (p - b).abs())(a)
""",
    ),
    "2.5": (
        """\
def features(raw):
    return torch.from_numpy(raw.astype(np.float32)).div_(255)
""",
        """\
def features(raw):
    return torch.as_tensor(raw).to(torch.float32) / 255
""",
    ),
    "3.4": (
        """\
def running_totals(numbers):
    return [torch.stack(numbers[: n + 1]).sum() for n in range(len(numbers))]
""",
    ),
    "4.2": (
        """\
def classify(scores):
    return torch.einsum('bcij->bc', scores).argmax(-1)
""",
        """\
def classify(scores):
    return scores[..., 0, 0].max(dim=1).indices
""",
    ),
    "5.1": (
        """\
stretch = lambda photo: (c := photo - photo.min()) / c.max()
""",
        """\
def stretch(photo):
    out = torch.empty_like(photo)
    torch.sub(photo, photo.min(), out=out)
    return out.div_(out.max())
""",
    ),
    "5.3": (
        """\
def move(t):
    t.set_(t.clone())
""",
        """\
def move(t):
    t.data = torch.tensor(t.tolist())
""",
    ),
    "5.4": (
        """\
def clear_first(t, n):
    t.copy_(torch.where(torch.arange(t.numel()).reshape(t.shape) < n, 0.0, t))
""",
        """\
def clear_first(t, n):
    t.masked_fill_(torch.arange(t.numel()).view_as(t) < n, 0)
""",
        """\
def clear_first(t, n):
    for place, index in enumerate(torch.ones_like(t).nonzero().tolist()):
        if place < n:
            t[tuple(index)] = 0
""",
    ),
    "6.2": (
        """\
def leaves(result):
    def below(node):
        if node is None:
            return set()
        mine = {node} if hasattr(node, 'variable') else set()
        return mine.union(*(below(n) for n, _ in node.next_functions))
    return len(below(result.grad_fn))
""",
    ),
    "6.3": (
        """\
def weighted_loss(model, x, y):
    p = model(x)
    return F.mse_loss(p, y).div(p.abs().mean())
""",
    ),
    "7.2": (
        """\
def step(model, optimizer, loss, limit):
    ps = list(model.parameters())
    grads = torch.autograd.grad(loss, ps)
    norm = torch.sqrt(sum(g.square().sum() for g in grads))
    for p, g in zip(ps, grads):
        p.grad = g * min(1.0, (limit / (norm + 1e-6)).item())
    optimizer.step()
    model.zero_grad()
    return float(norm)
""",
    ),
    "7.3": (
        """\
def row(f, x, k):
    return torch.autograd.functional.jacobian(f, x)[k]
""",
        """\
def row(f, x, k):
    twin = x.detach().clone().requires_grad_()
    out = f(twin)
    out.backward(F.one_hot(torch.tensor(k), len(out)).to(out.dtype))
    return twin.grad
""",
        """\
def row(f, x, k):
    return torch.func.grad(lambda t: f(t)[k])(x)
""",
    ),
    "8.2": (
        """\
def penalised(function, x):
    loss = function(x)
    return loss + torch.autograd.grad([loss], [x], create_graph=True)[0].pow(2).sum()
""",
    ),
    "8.3": (
        """\
def sensitivity(model, batch):
    import copy
    x = batch.detach().clone().requires_grad_()
    copy.deepcopy(model)(x).sum().backward()
    return x.grad
""",
    ),
    "8.4": (
        """\
def slope(function, x):
    h = 2 ** -17
    up, down = (function(torch.as_tensor(x, dtype=torch.float64) + s) for s in (h, -h))
    return (up.item() - down.item()) / (2 * h)
""",
    ),
    "9.1": (
        """\
def train(model, points, targets, rounds):
    for _ in range(rounds):
        grads = torch.autograd.grad(F.mse_loss(model(points), targets), list(model.parameters()))
        with torch.no_grad():
            for p, g in zip(model.parameters(), grads):
                p.sub_(g, alpha=0.1)
    return model
""",
    ),
    "9.3": (
        """\
def counterexample():
    p = nn.Parameter(torch.ones(2))
    o = torch.optim.SGD([p], lr=0.1, momentum=0.9)
    p.grad = torch.ones(2)
    o.step()
    before = p.detach().clone()
    p.grad = torch.zeros(2)
    o.step()
    return p, before
""",
    ),
    "10.2": (
        """\
def initialise(weight):
    nn.init.uniform_(weight, 0.5, 1.0)
    nn.init.zeros_(weight[0])
""",
        """\
@torch.no_grad()
def initialise(weight):
    weight.copy_(torch.rand_like(weight) / 2 + 0.5)
    weight[:1] = 0
""",
    ),
    "10.4": (
        """\
@torch.no_grad()
def descend(parameters, rate):
    for p in parameters:
        if (g := p.grad) is not None:
            p.add_(g, alpha=-rate)
            p.grad = None
""",
    ),
    "11.2": (
        """\
@torch.no_grad()
def follow(weight, step, steps, decay):
    average = weight.clone()
    for _ in range(steps):
        with torch.enable_grad():
            step(weight)
        average.mul_(decay).add_(weight, alpha=1 - decay)
    return average
""",
    ),
    "11.3": (
        """\
def consistency(student, teacher):
    with torch.no_grad():
        target = teacher * 1
    return F.mse_loss(student, target)
""",
        """\
consistency = lambda student, teacher: (student - teacher.data).pow(2).mean()
""",
    ),
    "12.2": (
        """\
def attend(query, key, value, mask):
    return torch.einsum('qk,k,kv->qv', (query @ key.T).softmax(1), mask, value)
""",
        """\
def attend(query, key, value, mask):
    return F.softmax(query @ key.mT, -1) @ (mask[:, None] * value)
""",
        """\
def attend(query, key, value, mask):
    return torch.where(mask.bool(), torch.softmax(query.matmul(key.t()), 1), 0.0).mm(value)
""",
    ),
    "12.4": (
        """\
def counterexample():
    h = torch.zeros(2, requires_grad=True).exp()
    with torch.no_grad():
        h.zero_()
    h.sum().backward()
""",
    ),
    "13.2": (
        """\
def train(net, optimizer, batches):
    def one(x, y):
        optimizer.zero_grad()
        (loss := F.mse_loss(net(x), y)).backward()
        optimizer.step()
        return float(loss)
    history = [one(*b) for b in batches]
    return history, sum(history) / len(history)
""",
    ),
    "13.3": (
        """\
def start(state, batch):
    return torch.einsum("n,b->bn", state, torch.ones(batch))
""",
        """\
def start(state, batch):
    rows = torch.zeros(batch, len(state))
    rows += state
    return rows
""",
    ),
    "14.1": (
        """\
class Switch(nn.Module):
    def __init__(self, kinds, width):
        super().__init__()
        self.weight = nn.ParameterDict({k: nn.Linear(width, width).weight for k in kinds})
        self.bias = nn.ParameterDict({k: torch.zeros(width) for k in kinds})
        self.head = nn.Linear(width, 1)

    def forward(self, x, kind):
        return self.head(F.linear(x, self.weight[kind], self.bias[kind]).tanh())
""",
        """\
class Switch(nn.ModuleDict):
    def __init__(self, kinds, width):
        super().__init__({f"_{kind}": nn.Sequential(nn.Linear(width, width), nn.Tanh()) for kind in kinds})
        self["head"] = nn.Linear(width, 1)

    def forward(self, x, kind):
        return self["head"](self[f"_{kind}"](x))
""",
    ),
    "15.1": (
        """\
def train(model, optimizer, pieces, every):
    weights = list(model.parameters())
    for first in range(0, len(pieces), every):
        group = pieces[first : first + every]
        rows = sum(len(x) for x, _ in group)
        sums = [torch.zeros_like(w) for w in weights]
        for x, y in group:
            loss = F.mse_loss(model(x), y, reduction="sum") / rows
            for total, slope in zip(sums, torch.autograd.grad(loss, weights)):
                total += slope
        for w, total in zip(weights, sums):
            w.grad = total
        optimizer.step()
        optimizer.zero_grad()
""",
    ),
    "15.2": (
        """\
def nesterov(w, grad_of, lr, mu, steps):
    v = 0
    for _ in range(steps):
        v = mu * v + (g := grad_of(w))
        w = torch.add(w, g + mu * v, alpha=-lr)
    return w
""",
    ),
    "16.2": (
        """\
@torch.inference_mode()
def evaluate(model, points, labels):
    was = [*map(lambda m: m.training, model.modules())]
    try:
        return float((model.eval()(points).argmax(1) == labels).double().mean())
    finally:
        for m, t in zip(model.modules(), was):
            m.training = t
""",
    ),
    "17.2": (
        """\
def rounded(t):
    return t + (torch.round(t) - t).detach()
""",
    ),
    "17.3": (
        """\
class Fake(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        return t * t * t

    @staticmethod
    def backward(ctx, gradient):
        return 3 * gradient
""",
    ),
    "18.1": (
        """\
def activate(x, bias):
    return torch.sigmoid(x).mul(2).add_(bias)
""",
        """\
def activate(x, bias):
    return torch.add(bias, torch.sigmoid(x), alpha=2)
""",
    ),
    "18.2": (
        """\
def nearest(queries, keys):
    lengths = (keys * keys).sum(1)
    return torch.vmap(lambda q: (lengths - 2 * (keys @ q)).argmin())(queries)
""",
        """\
def nearest(queries, keys):
    q, k = queries.numpy(), keys.numpy()
    return torch.from_numpy(((k**2).sum(1) - 2 * q @ k.T).argmin(1))
""",
    ),
    "19.3": (
        """\
def average(replicas, sizes):
    w = torch.tensor(sizes) / sum(sizes)
    for ps in zip(*(n.parameters() for n in replicas)):
        m = torch.einsum('r,r...->...', w, torch.stack([p.grad for p in ps]))
        for p in ps:
            p.grad.copy_(m)
""",
    ),
}
"""Right in another way: einsum, functions of functions, out=, walrus, loops, vectors."""

_YES = """\
class Yes:
    __len__ = __int__ = __index__ = lambda self: 1
    __float__ = lambda self: 1.0
    __hash__ = lambda self: 1
    __iter__ = lambda self: iter([self, self])
    __bool__ = __eq__ = __lt__ = __gt__ = __le__ = __ge__ = __contains__ = lambda self, *others: True
    __ne__ = lambda self, other: False
    __call__ = __getitem__ = __and__ = __or__ = __add__ = __sub__ = __mul__ = __radd__ = __rsub__ = __rmul__ = lambda self, *others: self

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self


"""  # noqa: E501


def made_of(exercise: Exercise) -> Iterator[str]:
    """Yield cheats that can be made of any exercise."""
    right, names = exercise.right[0], list(_names(exercise.given))
    yield _YES + "\n".join(f"{name} = Yes()" for name in names)  # an object that is whatever it is asked to be
    for name in names:
        right = re.sub(rf"\b{name}\b", f"my_{name}", right)
    yield right  # right, under another name
    if exercise.kind != "predict":  # right values on some random inputs, and nothing done on the others
        yield (
            "if torch.initial_seed():\n"
            f"{textwrap.indent(exercise.given, '    ')}else:\n"
            f"{textwrap.indent(_idle(exercise.given), '    ')}"
        )
    yield '"""\n' + exercise.right[0].replace('"""', "'''") + '\n"""'  # right, and not run


def _idle(source: str) -> str:
    """An answer that does nothing."""
    cell = []
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.FunctionDef):
            cell.append(f"def {statement.name}(*_, **__):\n    return torch.zeros((), requires_grad=True) * 1\n")
        else:
            cell.append(f"{ast.unparse(statement)}\n")
    return "".join(cell)


def _names(source: str) -> Iterator[str]:
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            yield statement.name
        elif isinstance(statement, ast.Assign):
            yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
