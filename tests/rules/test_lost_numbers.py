"""Numbers that are lost, and losses that cannot do what is meant: in other forms, and right
programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import DATA, together

TWO_HEADS = """
x, y, z = torch.randn(8, 3), torch.randn(8, 1), torch.randn(8, 1)
body, one, two = nn.Linear(3, 4), nn.Linear(4, 1), nn.Linear(4, 1)
opt = SGD([*body.parameters(), *one.parameters(), *two.parameters()], lr=0.1)
"""

THAWED = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Adam

torch.manual_seed(0)
x, y = torch.randn(8, 3), torch.randn(8, 1)
body, head = nn.Linear(3, 4), nn.Linear(4, 1)
net = nn.Sequential(body, nn.Tanh(), head)
body.requires_grad_(False)
opt = Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)  # PL611
for epoch in range(30):
    if epoch == 12:
        body.requires_grad_(True)
    loss = F.mse_loss(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""

WRONG = {
    "a difference in the middle of large pictures of whole numbers": """
frames = torch.full((3, 1, 40, 40), 90, dtype=torch.uint8)
frames[1, 0, 20, 20] = 80
moved = torch.sub(frames[1], frames[0])  # PL806
print(moved.float().mean())
""",
    "sums and products of other short types, in place": """
steps = torch.full((50,), 100, dtype=torch.int8)
steps += steps  # PL806
print((steps > 100).sum())
area = torch.tensor([300, 20], dtype=torch.int16) * torch.tensor([300, 20], dtype=torch.int16)  # PL806
print(area / 2)
""",
    "a picture with noise that is made of whole numbers again": """
picture = torch.linspace(0, 255, 60)
noisy = (picture + 20).to(torch.uint8)  # PL806
print(noisy.float().mean())
""",
    "coordinates far from their origin": """
import numpy
places = torch.from_numpy(5_000_000 + numpy.arange(40.0) / 10).float()  # PL820
def steps(path):
    return path.diff()
print(steps(places))
""",
    "an offset that is taken off too late": """
seconds = torch.as_tensor([1700000000 + 30 * i for i in range(20)], dtype=torch.float32)  # PL820
print(seconds - seconds.min())
""",
    "positions in sixteen bits": """
positions = torch.arange(600).to(torch.bfloat16)  # PL820
print(torch.outer(positions, torch.ones(2)).sum())
""",
    "an array that an object fills and returns": """
import numpy
class World:
    def __init__(self):
        self.state = numpy.zeros(2, dtype=numpy.float32)
    def step(self, push):
        self.state[0] += push
        return self.state
world, seen = World(), []
for i in range(6):
    now = torch.from_numpy(world.step(i))  # PL701
    seen.append(now)
print(torch.stack(seen).mean(0))
""",
    "a number on its way through a dictionary and a function": TWO_HEADS
    + """
def total(terms):
    return sum(terms.values())
for _ in range(4):
    h = body(x)
    first, second = F.mse_loss(one(h), y), F.mse_loss(two(h), z)
    terms = {"one": first, "two": 0.3 * second.item()}  # PL504
    update(opt, total(terms))
""",
    "a tanh of a module before targets of any size, and a loss that is written out": DATA
    + """
net, squash = nn.Linear(3, 1), nn.Tanh()
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    out = squash(net(x)).squeeze(1)
    update(opt, F.huber_loss(out, 5 * y.squeeze(1)))  # PL950
    gap = 3 - 9 * y - torch.sigmoid(net(x))  # PL950
    update(opt, (gap ** 2).mean())
""",
    "logarithms of probabilities of chosen classes, and of a distribution, without a minus": DATA
    + """
net = nn.Linear(3, 4)
opt = SGD(net.parameters(), lr=0.1)
labels = torch.randint(0, 4, (8, 1))
for _ in range(2):
    scores = F.log_softmax(net(x), -1)  # PL952
    update(opt, scores.gather(1, labels).mean())
def likelihood(inputs):
    return Categorical(logits=net(inputs)).log_prob(labels[:, 0])  # PL952
for _ in range(2):
    update(opt, likelihood(x).sum())
""",
    "a contrastive loss with each picture beside itself, and the most alike": DATA
    + """
net = nn.Linear(3, 6)
z = F.normalize(net(torch.cat([x, x + 0.1])), dim=1)
scores = z @ z.t() / 0.1
F.cross_entropy(scores, torch.arange(16).roll(8)).backward()  # PL954
print((F.normalize(x, dim=1) @ F.normalize(x, dim=1).T).argmax(1))
h = F.normalize(x, dim=1)
print(torch.matmul(h, h.T).max(1).indices)  # PL954
""",
    "means and products of groups, and the largest of negative numbers, with the zeros they start from": DATA
    + """
groups = torch.tensor([0, 1, 1, 0, 2, 2, 2, 0])
index = groups[:, None].expand(-1, 3)
print(x.new_zeros(3, 3).scatter_reduce(0, index, x, "mean"))  # PL776
print(torch.zeros_like(x)[:3].clone().index_reduce_(0, groups, x, reduce="mean"))  # PL776
print(torch.scatter_reduce(torch.zeros(3, 3), 0, index, -x.abs() - 1, "amax"))  # PL776
""",
    "the best so far, without a copy": DATA
    + """
w = torch.randn(3, requires_grad=True)
opt, best = SGD([w], lr=0.9), 1e9
for _ in range(8):
    loss = (w * w).sum() + w.abs().sum()
    if loss.item() < best:
        best = loss.item()
        chosen = w.detach()  # PL702
    update(opt, loss)
    with torch.no_grad():
        w.add_(torch.randn(3))
print(chosen.norm())
""",
    "a causal mask with a cache of keys, for one and for three new queries": """
cache, new = torch.randn(1, 2, 5, 4), torch.randn(1, 2, 3, 4)
keys = torch.cat([cache, new], dim=2)
print(F.scaled_dot_product_attention(new, keys, keys, is_causal=True).sum())  # PL466
print(F.scaled_dot_product_attention(new[:, :, -1:], keys, keys, None, 0.0, True).sum())  # PL466
""",
    "noise between 0 and 1 in a mix and for a policy": DATA
    + """
kept = torch.tensor([0.9, 0.5, 0.2, 0.05])
t = torch.randint(0, 4, (8,))
def mixed(clean, noise):
    return kept[t].sqrt()[:, None] * clean + (1 - kept[t]).sqrt()[:, None] * noise
print(mixed(x, torch.rand(x.shape)))  # PL948
print(0.6 * x + torch.rand_like(x) * 0.8)  # PL948
mean, log_std = nn.Linear(3, 2)(x), nn.Parameter(torch.zeros(2))
(mean + F.softplus(log_std) * torch.rand(8, 2)).sum().backward()  # PL948
""",
    "the labels of the nearest, of all and of some that were drawn": DATA
    + """
kinds = torch.randint(0, 3, (8,))
with torch.no_grad():
    h = F.normalize(x, dim=1)
    near = (h @ h.t()).topk(3, dim=1).indices  # PL954
    print((kinds[near] == kinds[:, None]).any(1).float().mean())
    near = torch.cdist(h, h).argsort(dim=1)[:, :3]  # PL954
    print((kinds[near] == kinds[:, None]).any(1).float().mean())
    some = torch.randperm(8)[:6]
    print((kinds[(h[some] @ h.T).argmax(1)] == kinds[some]).float().mean())  # PL954
""",
    "bits of a mask that counts": DATA
    + """
valid = (y.squeeze(1) > -9).to(torch.uint8)
valid[3:] = 0
print((x[:, 0] * ~valid).sum() / valid.sum())  # PL807
""",
    "a function that makes the optimizer for each batch": DATA
    + """
net = nn.Linear(3, 1)
def train_on(inputs, targets):
    fresh = Adam(net.parameters(), lr=0.01)  # PL662
    update(fresh, F.mse_loss(net(inputs), targets))
for i in range(4):
    train_on(x[2 * i : 2 * i + 2], y[2 * i : 2 * i + 2])
""",
}

RIGHT = {
    "a causal mask over a whole text, one query that sees all keys, a first token alone": """
keys = torch.randn(1, 2, 6, 4)
print(F.scaled_dot_product_attention(keys, keys, keys, is_causal=True).sum())
print(F.scaled_dot_product_attention(keys[:, :, -1:], keys, keys, is_causal=False).sum())
print(F.scaled_dot_product_attention(keys[:, :, :1], keys[:, :, :1], keys[:, :, :1], is_causal=True).sum())
""",
    "groups without their start, a sum, a start that is meant, extremes that zeros do not touch": DATA
    + """
groups = torch.tensor([0, 1, 1, 0, 2, 2, 2, 0])
index = groups[:, None].expand(-1, 3)
print(torch.zeros(3, 3).scatter_reduce(0, index, x, "mean", include_self=False))
print(torch.zeros(3, 3).scatter_reduce(0, index, x, "sum"), torch.ones(3, 3).scatter_reduce(0, index, x, "prod"))
print(torch.zeros(3, 3).scatter_reduce(0, index, x.abs(), "amax"))
total = torch.zeros(3, 3)
total += 5
print(total.scatter_reduce_(0, index, x, "mean"))
""",
    "a monitor on the same memory, a cache made once, the best copied": DATA
    + """
w = torch.randn(3, requires_grad=True)
opt, cache, best, kept = SGD([w], lr=0.1), None, 1e9, None
for _ in range(8):
    if cache is None:
        cache = w.detach()
    loss = (w * w).sum()
    if loss.item() < best:
        best, kept = loss.item(), w.detach().clone()
    update(opt, loss)
    if loss.item() < 0.5:
        shown = w.detach()
        print(shown.norm())
print(cache.norm(), kept)
""",
    (
        "uniform numbers that are meant: between two ends, centred, points that are turned, an interpolation, "
        "noise for whole numbers"
    ): DATA
    + """
low, wide = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.ones(3))
(low + wide * torch.rand(8, 3)).sum().backward()
mean, log_std = nn.Linear(3, 2)(x), nn.Parameter(torch.zeros(2))
(mean + log_std.exp() * (2 * torch.rand_like(mean) - 1)).sum().backward()
points, angle = torch.rand(8, 2), torch.tensor(0.4)
print(points[:, 0] * angle.sin() + points[:, 1] * angle.cos())
part = torch.rand(8, 1)
other = nn.Linear(3, 3)(x)
((1 - part) * x + part * other).sum().backward()
print((torch.randint(0, 255, (8, 3)) + torch.rand(8, 3)) / 256)
print(x * 0.6 + torch.randn_like(x) * 0.8)
""",
    "the nearest without oneself, a graph of neighbours with oneself, queries that are not in the gallery": DATA
    + """
kinds = torch.randint(0, 3, (8,))
with torch.no_grad():
    h = F.normalize(x, dim=1)
    near = (h @ h.t()).topk(4, dim=1).indices[:, 1:]
    print((kinds[near] == kinds[:, None]).any(1).float().mean())
    near = torch.cdist(h, h).argsort(dim=1)[:, 1:3]
    print((kinds[near] == kinds[:, None]).any(1).float().mean())
    around = (h @ h.t()).topk(3, dim=1).indices
    print((h[around] - h[:, None]).amax(1))
    print((kinds[4:][(h[:4] @ h[4:].T).argmax(1)] == kinds[:4]).float().mean())
""",
    "differences that fit, and those of wider types": """
frames = torch.full((3, 40), 90, dtype=torch.uint8)
print((frames[1] - frames[0]).float().mean(), (frames[1].int() - frames[0] * 2).float().mean())
""",
    "sums that are meant to wrap": """
codes = torch.full((50,), 200, dtype=torch.uint8)
print(((codes + codes) & 7).float().mean(), (codes * 3) % 5)
""",
    "a picture that is limited first": """
picture = torch.linspace(0, 255, 60)
print((picture + 20).clamp(0, 255).to(torch.uint8).float().mean(), (torch.rand(9) * 255).byte().float())
""",
    "offsets taken off before the conversion, and in float64": """
import numpy
seconds = numpy.array([1700000000 + 30 * i for i in range(20)])
print(torch.tensor(seconds - seconds[0], dtype=torch.float32).diff(), torch.tensor(seconds, dtype=torch.float64).diff().float())
""",  # noqa: E501
    "numbers of which few are near each other, and rounding errors of constants": """
numbers = torch.randn(200, dtype=torch.float64).float()
print(numbers[1:] - numbers[:-1])
ones = torch.linspace(1, 1 + 1e-11, 50, dtype=torch.float64).float()
print(ones - ones.min())
small = torch.arange(200).to(torch.bfloat16)
print(torch.outer(small, small).sum())
""",
    "times of months, normalised": """
times = torch.tensor([1700000000 + 86400 * i for i in range(60)]).float()
print((times - times.mean()) / times.std(), times.diff())
""",
    "one array made into several tensors that only read it": """
import numpy
data = numpy.arange(6, dtype=numpy.float32)
both = [torch.from_numpy(data), torch.from_numpy(data)]
print(torch.stack(both).mean())
""",
    "a copy of the array in every round": """
import numpy
state, seen = numpy.zeros(2, dtype=numpy.float32), []
for i in range(6):
    state[0] += i
    seen.append(torch.from_numpy(state.copy()))
print(torch.stack(seen).mean(0))
""",
    "numbers that are only printed, and a weight that changes": TWO_HEADS
    + """
for i in range(4):
    h = body(x)
    first, second = F.mse_loss(one(h), y), F.mse_loss(two(h), z)
    shown = {"one": first.item(), "two": second.item()}
    update(opt, first + (1 - 0.1 * i) * second + 0.01 * (i + 1))
    print(shown)
""",
    "a weight computed from the other loss's value": TWO_HEADS
    + """
for _ in range(4):
    h = body(x)
    first, second = F.mse_loss(one(h), y), F.mse_loss(two(h), z)
    update(opt, first + second * first.item())
""",
    "data as it was read": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for i in range(4):
    update(opt, F.mse_loss(net(x.double().float()), y))
""",
    "outputs whose targets are in their range": DATA
    + """
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    update(opt, F.mse_loss(torch.sigmoid(net(x)), (y > 0).float()))
    update(opt, F.l1_loss(torch.relu(net(x)), y.abs()) + (torch.tanh(net(x)) - y.tanh()).square().mean())
""",
    "likelihoods with a minus, entropies, and weights of their own sign": DATA
    + """
net = nn.Linear(3, 4)
opt = SGD(net.parameters(), lr=0.1)
labels = torch.randint(0, 4, (8,))
for _ in range(2):
    chosen = Categorical(logits=net(x))
    update(opt, -chosen.log_prob(labels).mean())
    chosen = Categorical(logits=net(x))
    update(opt, (chosen.log_prob(labels) * y.squeeze(1)).mean() if _ else -F.log_softmax(net(x), -1)[range(8), labels].mean())
    scores = F.log_softmax(net(x), -1)
    update(opt, (scores.exp() * scores).sum(-1).mean())
""",  # noqa: E501
    "the lowest bit of what was turned, and a mask of truth values": DATA
    + """
valid = torch.tensor([0, 1, 1, 0, 0, 1, 0, 1], dtype=torch.uint8)
print((x[:, 0] * (~valid & 1)).sum(), (x[:, 0] * ~valid.bool()).sum(), x[valid == 0])
""",
    "tables without their diagonal, of two sets, and the farthest": DATA
    + """
net = nn.Linear(3, 6)
z = F.normalize(net(x), dim=1)
scores = z @ z.T / 0.1
scores = scores - 1e9 * torch.eye(8)
F.cross_entropy(scores, torch.arange(8).roll(4)).backward()
table = torch.cdist(x, x)
table.fill_diagonal_(9)
print(table.argmin(1), torch.cdist(x, x).argmax(1), torch.cdist(x, x[:4]).argmin(1), torch.cdist(x, x).topk(2, largest=False).indices[:, 1])
F.cross_entropy(net(x) @ net(x + 0.1).T, torch.arange(8)).backward()
""",  # noqa: E501
    "an optimizer for each epoch, and one for each task": DATA
    + """
net = nn.Linear(3, 1)
for _ in range(3):
    opt = Adam(net.parameters(), lr=0.01)
    for i in range(4):
        update(opt, F.mse_loss(net(x[2 * i : 2 * i + 2]), y[2 * i : 2 * i + 2]))
for _ in range(3):
    own = nn.Linear(3, 1)
    update(Adam(own.parameters()), F.mse_loss(own(x), y))
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_a_body_that_is_thawed_when_the_optimizer_has_what_required_gradients_before(shop: Workshop) -> None:
    assert_found(shop, THAWED, repaired=True)
    assert_found(shop, THAWED.replace("opt.zero_grad", "net.zero_grad"), repaired=True)
    assert_quiet(
        shop,
        THAWED.replace(
            "opt = Adam([p for p in net.parameters() if p.requires_grad], lr=0.01)", "opt = Adam(net.parameters())"
        ),
    )
