"""Orders, axes, truth values and samples: silent pitfalls in other forms, and right programs that resemble them."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TABLE = "table = torch.rand(20, 2) * torch.tensor([10.0, 1.0])\n"
ROWS = """
x, y = torch.randn(40, 12), (torch.rand(40) > 0.5).float()
order = torch.randperm(40)
train, test = order[:30], order[30:]
def learn_and_measure(rows):
    net = nn.Linear(rows.shape[1], 1)
    opt = SGD(net.parameters(), lr=0.1)
    for _ in range(3):
        update(opt, F.binary_cross_entropy_with_logits(net(rows[train]).squeeze(1), y[train]))
    with torch.no_grad():
        return ((net(rows[test]).squeeze(1) > 0).float() == y[test]).float().mean()
"""
FOLDS = """
x, y = torch.randn(30, 4), torch.randn(30, 1)
def train(net, rows, wanted):
    opt = SGD(net.parameters(), lr=0.1)
    for _ in range(2):
        update(opt, F.mse_loss(net(rows), wanted))
"""

WRONG = {
    "results of sorted rows taken by the order once more": """
x, lengths = torch.randn(6, 4), torch.tensor([3, 9, 2, 7, 5, 1])
def restored(rows, order):
    return rows.index_select(0, order)  # PL440
order = torch.sort(lengths, descending=True)[1]
out = nn.Linear(4, 2)(x.index_select(0, order))
print(restored(out, order))
""",
    "columns put in order, and computed with": """
x = torch.randn(3, 7)
order = torch.randperm(7)
h = torch.relu(x[:, order] * 2)
print(h[:, order] - x)  # PL440
""",
    "rows written to the inverse places": """
x, keys = torch.randn(7, 3), torch.tensor([3, 9, 2, 7, 5, 1, 4])
order = keys.argsort()
h = torch.tanh(x[order])
back = torch.empty(7, 3)
back[order.argsort()] = h  # PL440
print(back)
""",
    "columns sorted by themselves, and a slope of one over the other": TABLE
    + """
table, _ = torch.sort(table, dim=0)  # PL442
times, values = table[:, 0], table[:, 1]
print(((values[1:] - values[:-1]) / (times[1:] - times[:-1])).mean())
""",
    "rows of a turned table sorted, in a function": TABLE
    + """
def in_order(pairs):
    return pairs.sort(dim=1).values  # PL442
times, values = in_order(table.T)
print(torch.trapezoid(values, times))
""",
    "letters of an einsum that do not meet": """
q, k = torch.randn(2, 5, 4), torch.randn(2, 3, 4)
scores = torch.einsum("btd,bse->bts", q, k)  # PL444
print(scores.softmax(-1))
""",
    "a bilinear form whose letters do not meet": """
class Pairs(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(6, 3))
    def forward(self, x):
        return torch.einsum("nd, ek -> nk", x, self.w)  # PL444
Pairs()(torch.randn(4, 6)).sum().backward()
""",
    "the last state of each sequence, of which one feature is read": """
h, lengths = torch.randn(4, 6, 5), torch.tensor([6, 2, 4, 3])
last = h.gather(1, (lengths - 1).view(4, 1, 1)).squeeze(1)  # PL446
print(last.shape)
""",
    "rows added to their groups, of which one column is": """
groups, x = torch.tensor([0, 1, 1, 0, 2]), torch.randn(5, 3)
sums = torch.zeros(3, 3)
sums.scatter_add_(0, groups[:, None], x)  # PL446
print(sums)
""",
    "similarities along the pairs": """
a, b = torch.randn(5, 8), torch.randn(6, 8)
print(F.cosine_similarity(a[:, None], b[None]).shape)  # PL448
class Near(nn.Module):
    def forward(self, x, centres):
        return (x.unsqueeze(1) - centres).norm(dim=1)  # PL448
print(Near()(a, b).argmin(-1))
print(torch.linalg.vector_norm(a.unsqueeze(0) - b.unsqueeze(1), dim=0))  # PL448
""",
    "the best of those that are allowed, by its number in a part": """
scores = torch.rand(9)
allowed = scores < 0.8
best = scores[allowed].argmax()  # PL460
print(scores[best])
value, at = scores[3:].max(0)  # PL460
print(scores[at])
rows = torch.randn(9, 4)
found = rows[allowed].norm(dim=1).topk(2).indices  # PL460
print(rows[found])
late = scores[4:].argmin().item()  # PL460
print(scores[late])
""",
    "a place in a part, in a function": """
x, kinds = torch.randn(12, 3), torch.arange(12) % 3
def centre(kind):
    own = x.index_select(0, (kinds == kind).nonzero().squeeze(1))
    nearest = (own - own.mean(0)).square().sum(1).argmin()  # PL460
    return x[nearest]
print(torch.stack([centre(kind) for kind in range(3)]))
""",
    "a batch of one that loses its axis": """
pool, conv = nn.AdaptiveAvgPool2d(1), nn.Conv2d(3, 4, 3)
class Features(nn.Module):
    def forward(self, x):
        return pool(conv(x)).squeeze()  # PL462
net = Features()
for count in (4, 4, 1):
    h = net(torch.randn(count, 3, 8, 8))
    print((h - h.mean(dim=0)).shape)
""",
    "shares of all, and shares along the columns": """
x = torch.randn(4, 5)
q, k, v = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 5)
scores = q(x) @ k(x).T
powers = scores.exp()
print((powers / powers.sum()) @ v(x))  # PL464
def shares(scores):
    e = torch.exp(scores - scores.max())
    return e / torch.sum(e, dim=0)  # PL464
print(shares(scores) @ v(x))
""",
    "votes of truth values": """
a, b, c = torch.randn(8), torch.randn(8), torch.randn(8)
print((((a > 0) + (b > 0) + (c > 0)) >= 2).sum())  # PL830
def agreement(*votes):
    total = votes[0]
    for vote in votes[1:]:
        total = total + vote  # PL830
    return total / len(votes)
print(agreement(a > 0, b > 0, c > 0))
share = (torch.lt(a, 0) + torch.lt(b, 0)).float() / 2  # PL830
print(share)
""",
    "bits and comparisons": """
labels, guess, valid = torch.randint(0, 5, (9,)), torch.randint(0, 5, (9,)), torch.rand(9) > 0.3
print((guess == labels & valid).float().mean())  # PL832
wrong = labels != guess & valid  # PL832
print(wrong.sum())
both = (labels > guess) & labels == 3  # PL832
print(both.sum())
""",
    "an average in half precision": """
net = nn.Linear(4, 3)
slow = [torch.ones_like(p, dtype=torch.bfloat16) * 3 for p in net.parameters()]
opt = SGD(net.parameters(), lr=0.1)
for _ in range(8):
    update(opt, net(torch.randn(5, 4)).square().mean())
    for i, (s, p) in enumerate(zip(slow, net.parameters())):
        slow[i] = 0.9995 * s + 0.0005 * p.detach().bfloat16()  # PL834
""",
    "an average in half precision, by lerp": """
mean, x = torch.zeros(6).half() + 2, torch.linspace(-2, 1, 6).half()
for _ in range(8):
    mean.lerp_(x, 1e-4)  # PL834
print(mean)
""",
    "fractions that are equal but for rounding": """
grid = torch.full((10,), 0.1).cumsum(0)
print((grid == 0.9).nonzero())  # PL836
a = torch.tensor([0.1, 0.7, 1.1])
print((a + 0.2 == torch.tensor([0.3, 0.9, 1.3], dtype=torch.float64)).any())  # PL836
""",
    "limits that are exchanged": """
x = torch.randn(5)
print(x.clamp(1, -1))  # PL838
print(torch.clip(x, min=0.9, max=0.1))  # PL838
x.clamp_(max=0, min=1)  # PL838
""",
    "a bootstrap without replacement": """
x = torch.randn(12)
def resampled():
    return x[torch.randperm(len(x))].mean()  # PL850
print(torch.stack([resampled() for _ in range(30)]).std())
""",
    "dropout that is off while its spread is measured": """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
net.eval()
x = torch.randn(6, 4)
with torch.no_grad():
    answers = torch.stack([net(x) for _ in range(10)])  # PL850
print(answers.var(dim=0))
""",
    "dropout in a forked generator, and in one whose state is set back": """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
x = torch.randn(6, 4)
with torch.no_grad():
    kept = []
    for _ in range(10):
        with torch.random.fork_rng():  # PL850
            answer = net(x)
            kept.append(answer)
    print(torch.stack(kept).std(dim=0))
def sampled(state):
    found = []
    for _ in range(6):
        torch.set_rng_state(state)  # PL850
        found.append(torch.randn(5))
    return torch.stack(found)
print(sampled(torch.get_rng_state()).var(0))
""",
    "an ensemble of equal members": """
def member(seed):
    torch.manual_seed(3)  # PL850
    return nn.Linear(4, 1)
x = torch.randn(6, 4)
with torch.no_grad():
    outs = torch.cat([member(seed)(x).T for seed in range(5)])
print(outs.std(0))
""",
    "columns chosen by all labels": ROWS
    + """
score = ((x - x.mean(0)) * (y - y.mean())[:, None]).sum(0).abs()  # PL980
print(learn_and_measure(x[:, score.topk(4).indices]))
""",
    "an encoding by the mean labels of all rows": ROWS
    + """
kinds = torch.randint(0, 8, (40,))
sums = torch.zeros(8).index_add(0, kinds, y)  # PL980
means = sums / torch.bincount(kinds, minlength=8).clamp(min=1)
print(learn_and_measure(torch.cat([x[:, :2], means[kinds][:, None]], 1)))  # PL945
""",
    "folds by a mask that share a network": FOLDS
    + """
kinds, net = torch.arange(30) % 3, nn.Linear(4, 1)
for k in range(3):
    train(net, x[kinds != k], y[kinds != k])
    with torch.no_grad():
        print(F.mse_loss(net(x[kinds == k]), y[kinds == k]))  # PL982
""",
    "folds by slices that share a network, in a function": FOLDS
    + """
def score(net, first):
    rows, wanted = torch.cat([x[:first], x[first + 10:]]), torch.cat([y[:first], y[first + 10:]])
    train(net, rows, wanted)
    with torch.no_grad():
        return F.mse_loss(net(x[first:first + 10]), y[first:first + 10])  # PL982
shared = nn.Linear(4, 1)
print([score(shared, first) for first in (0, 10, 20)])
""",
    "rows to measure with from another order": """
x, y = torch.randn(20, 3), torch.randn(20, 1)
def part(first, last):
    order = torch.randperm(20)
    return x[order[first:last]], y[order[first:last]]  # PL970
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
rows, wanted = part(0, 15)
for _ in range(2):
    update(opt, F.mse_loss(net(rows), wanted))
others, answers = part(15, 20)
with torch.no_grad():
    print(F.mse_loss(net(others), answers))
""",
    "rows shuffled without their labels": """
x, y = torch.randn(12, 3), torch.randn(12, 1)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    shuffled = x[torch.randperm(12)]  # PL414
    for first in (0, 6):
        update(opt, F.mse_loss(net(shuffled[first:first + 6]), y[first:first + 6]))
""",
    "kernels of a convolution that stay equal": """
conv = nn.Conv2d(1, 4, 3)
nn.init.constant_(conv.weight, 0.1)  # PL628
nn.init.zeros_(conv.bias)
opt = SGD(conv.parameters(), lr=0.1)
for _ in range(4):
    update(opt, (conv(torch.ones(2, 1, 5, 5)) - 1).square().mean())
""",
    "entries taken by a column of positions": """
x, wanted, kept = torch.randn(9), torch.randn(9), torch.arange(9) % 2 == 0
at = torch.nonzero(kept)
print((x[at] - wanted[kept]).abs().sum())  # PL401
""",
}

RIGHT = {
    "samples in one forked generator": """
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
x = torch.randn(6, 4)
with torch.random.fork_rng(), torch.no_grad():
    print(torch.stack([net(x) for _ in range(10)]).std(dim=0))
""",
    "orders that are brought back": """
x, lengths = torch.randn(6, 4), torch.tensor([3, 9, 2, 7, 5, 1])
order = lengths.argsort(descending=True)
out = torch.tanh(x[order])
print(out[order.argsort()])
back = torch.empty_like(out)
back[order] = out
print(back, x[order.flip(0)], out[torch.argsort(order)])
print(torch.empty_like(out).index_copy_(0, order, out))
""",
    "an order for two tables, and another one for each round": """
x, y = torch.randn(8, 3), torch.randn(8, 1)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    order = torch.randperm(8)
    rows, wanted = x[order], y[order]
    update(opt, F.mse_loss(net(rows), wanted))
order = torch.randperm(8)
x = x[order]
y = y[order]
turn = torch.arange(7, -1, -1)
print((x[turn] * 2)[turn])
""",
    "columns sorted for what each is alone": """
x = torch.randn(50, 3)
ranks = x.sort(dim=0).values
print(ranks[25], ranks[5:-5].mean(0), ranks[-1] - ranks[0])
a, b = torch.randn(20, 2).sort(dim=0).values.unbind(1)
print((a - b).abs().mean())
rows = torch.stack([torch.rand(9), torch.rand(9)], 1)
rows = rows[rows[:, 0].argsort()]
print(rows[:, 0] * rows[:, 1])
""",
    "letters that one operand has alone, of another length or in a matrix": """
a, b = torch.randn(4, 3), torch.randn(4, 5)
print(torch.einsum("bi,bj->bij", a, b), torch.einsum("bi,bj->b", a, b))
print(torch.einsum("bi,bi->b", a, a), torch.einsum("ij->i", a))
print(torch.einsum("bhqd,bhkd->bhqk", torch.randn(2, 2, 3, 3), torch.randn(2, 2, 3, 3)))
""",
    "indices that read what they are to read": """
scores, kinds = torch.randn(5, 3), torch.tensor([0, 2, 1, 1, 0])
print(scores.gather(1, kinds[:, None]).squeeze(1), torch.zeros(5, 3).scatter_(1, kinds[:, None], 1.0))
h, lengths = torch.randn(4, 6, 5), torch.tensor([6, 2, 4, 3])
print(h.gather(1, (lengths - 1).view(4, 1, 1).expand(-1, 1, 5)).squeeze(1))
print(torch.zeros(3, 3).scatter_add_(0, kinds[:, None].expand(-1, 3), scores))
print(torch.randn(1, 6, 5).gather(1, torch.tensor([[[2], [3]]]).expand(1, 2, 5)), torch.randn(5, 1).gather(0, torch.tensor([[1], [3]])))
print(torch.zeros(3, 1).scatter_add_(0, kinds[:, None], torch.ones(5, 1)))
""",  # noqa: E501
    "vectors that are last, and vectors that are not": """
a, b = torch.randn(5, 8), torch.randn(6, 8)
print(F.cosine_similarity(a[:, None], b[None], dim=-1).shape, (a[:, None] - b).norm(dim=-1).shape)
print(F.cosine_similarity(a, a.flip(0)), (a - a.mean(0)).norm(dim=0), (a - a.mean(1, keepdim=True)).norm(dim=1))
maps, mean = torch.randn(2, 3, 4, 4), torch.randn(1, 3, 1, 1)
print((maps - mean).norm(dim=1), F.cosine_similarity(maps, maps.roll(1, 0)))
print((torch.randn(7, 1, 3) - torch.randn(3)).norm(dim=0))
""",
    "places that are looked up, or are those of the part": """
scores, rows = torch.rand(9), torch.randn(9, 4)
allowed = scores < 0.8
print(allowed.nonzero().squeeze(1)[scores[allowed].argmax()])
print(rows[allowed][scores[allowed].argmax()], scores[3:].argmax() + 3)
best = scores[3:].argmax() + 3
print(rows[best], rows[:5][scores[:5].argmax()], rows[scores[:5].argmax()])
ids = allowed.nonzero().squeeze(1)
print(rows[ids[scores[ids].topk(2).indices]])
jumps = (scores[1:] - scores[:-1]).abs().argmax()
print(scores[jumps], scores.masked_fill(~allowed, -1).argmax())
""",
    "boxes that overlap the best are left out": """
boxes, scores = torch.rand(12, 2), torch.rand(12)
order, kept = scores.argsort(descending=True), []
while order.numel() > 0:
    first = order[0]
    kept.append(first)
    if order.numel() == 1:
        break
    far = (boxes[order[1:]] - boxes[first]).abs().sum(1)
    left = (far > 0.3).nonzero().squeeze(1)
    order = order[left + 1]
print(torch.stack(kept))
""",
    "the best moves of those that were chosen": """
table = torch.randn(10, 3)
few = table[torch.randperm(10)[:4]]
near = torch.cdist(table, few).argmin(1)
print(few[near], few[few[:, 0].argsort()], table[table[:, 1].argsort()])
train = table[:7]
order = torch.randperm(len(train))
print(train[order])
""",
    "squeezes that name their axis, and batches that are never one": """
pool = nn.AdaptiveAvgPool2d(1)
for count in (4, 1):
    x = pool(torch.randn(count, 3, 4, 4))
    print(x.flatten(1).mean(0), x.squeeze(-1).squeeze(-1).mean(0), x.squeeze((2, 3)).mean(0))
for count in (4, 3):
    print(pool(torch.randn(count, 3, 4, 4)).squeeze().mean(0))
for count in (5, 1):
    print(nn.Linear(3, 1)(torch.randn(count, 3)).squeeze().sum(), nn.Linear(3, 1)(torch.randn(count, 3)).squeeze().mean())
""",  # noqa: E501
    "shares along the axis that is used": """
scores, values = torch.randn(4, 5), torch.randn(5, 2)
e = scores.exp()
print((e / e.sum(1, keepdim=True)) @ values, (e / e.sum(dim=-1)[:, None]) @ values)
print((e / e.sum(0)).T @ torch.randn(4, 2), (e / e.sum()).sum(), e / e.sum())
one = torch.randn(5).exp()
print(one / one.sum() @ values)
joint = e / e.sum()
print(joint.sum(0), joint.sum(1), (joint * joint.log()).sum())
counts = torch.rand(4, 5)
print((counts / counts.sum()) @ values)
""",
    "truth values added where or is meant": """
a, b = torch.randn(8), torch.randn(8)
either = (a > 0) + (b > 0)
print(either.sum(), a[either], either.float().mean(), (a > 0).int() + (b > 0) > 1, (a > 0).float() + (b > 0).float() >= 2)
print((either.sum() / 8), (a > 0).sum() + (b > 0).sum() > 3, torch.stack([a > 0, b > 0]).sum(0) > 1, either == (a > 0))
""",  # noqa: E501
    "bits that are meant": """
labels, guess, valid = torch.randint(0, 5, (9,)), torch.randint(0, 5, (9,)), torch.rand(9) > 0.3
print(((guess == labels) & valid).sum(), (labels & 1) == (guess & 1), (labels & 3 == 3).sum(), (labels & guess == labels).sum())
flags = torch.tensor([1, 5, 4, 2])
print((flags & valid[:4]) == 1, (flags & 4) != 0, (flags & 4) == 4, (labels * valid) == guess)
""",  # noqa: E501
    "averages that move, or have arrived": """
x = torch.linspace(1, 3, 6)
slow, rough, rest = torch.ones(6), torch.ones(6, dtype=torch.bfloat16), torch.ones(6, dtype=torch.bfloat16)
for _ in range(8):
    slow.mul_(0.999).add_(x, alpha=0.001)
    rough.lerp_(x.bfloat16(), 0.3)
    rest.mul_(0.999).add_(torch.ones(6).bfloat16(), alpha=0.001)
print(slow, rough, rest)
""",
    "fractions that are equal, or compared within a distance": """
grid = torch.arange(0, 1, 0.25)
print((grid == 0.75).nonzero(), torch.isclose(grid * 3, torch.tensor(0.3)), (grid.round() == grid).sum())
x = torch.randn(5)
print((x.relu() == x).sum(), (x == x.max()).nonzero(), (x.sign() == 1).sum(), (x == x.clone()).all(), (x == 0.5).any())
""",
    "limits in their order": """
x = torch.randn(5)
print(x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=1), x.clamp(0.5, 0.5), x.clamp(torch.tensor(0.0), torch.tensor(1.0)))
""",
    "samples that differ, and repetitions that are to be equal": """
x = torch.randn(12)
print(torch.stack([x[torch.randint(12, (12,))].mean() for _ in range(10)]).std())
print(torch.stack([x[torch.randperm(12)[:6]].mean() for _ in range(10)]).std())
print(torch.stack([(x[torch.randperm(12)] * torch.arange(12)).mean() for _ in range(10)]).std())
net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 1))
rows = torch.randn(6, 4)
with torch.no_grad():
    print(torch.stack([net(rows) for _ in range(10)]).var(0))
net.eval()
with torch.no_grad():
    out = net(rows)
    print(out.std(), torch.stack([net(row) for row in rows]).std(0))
def member(seed):
    torch.manual_seed(seed)
    return nn.Linear(4, 1)
with torch.no_grad():
    print(torch.cat([member(seed)(rows).T for seed in range(5)]).std(0))
print(torch.zeros(5, 3).std(0), torch.stack([torch.ones(3)] * 4).var(0))
""",
    "columns chosen by what trains, or without labels": ROWS
    + """
own = x[train]
score = ((own - own.mean(0)) * (y[train] - y[train].mean())[:, None]).sum(0).abs()
print(learn_and_measure(x[:, score.topk(4).indices]))
print(learn_and_measure(x[:, x.var(0).topk(4).indices]), learn_and_measure((x - x[train].mean(0)) / x[train].std(0)))
print(y.mean(), torch.bincount(y.long()))
weights = torch.bincount(y[train].long(), minlength=2)
print(learn_and_measure(x) > y[test].mean(), weights)
""",
    "folds with a network each, and other trainings that go on": FOLDS
    + """
import copy
kinds = torch.arange(30) % 3
for k in range(3):
    net = nn.Linear(4, 1)
    train(net, x[kinds != k], y[kinds != k])
    with torch.no_grad():
        print(F.mse_loss(net(x[kinds == k]), y[kinds == k]))
net = nn.Linear(4, 1)
begin = copy.deepcopy(net.state_dict())
for k in range(3):
    net.load_state_dict(begin)
    train(net, x[kinds != k], y[kinds != k])
    with torch.no_grad():
        print(F.mse_loss(net(x[kinds == k]), y[kinds == k]))
net = nn.Linear(4, 1)
for _ in range(3):
    train(net, x[:20], y[:20])
    with torch.no_grad():
        print(F.mse_loss(net(x[20:]), y[20:]))
net = nn.Linear(4, 1)
for first in (10, 15, 20):
    train(net, x[:first], y[:first])
    with torch.no_grad():
        print(F.mse_loss(net(x[first:first + 5]), y[first:first + 5]))
""",
    "rows set aside once, by one order": """
x, y = torch.randn(20, 3), torch.randn(20, 1)
order = torch.randperm(20)
train, test = order[:15], order[15:]
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(3):
    mixed = train[torch.randperm(15)]
    update(opt, F.mse_loss(net(x[mixed]), y[mixed]))
with torch.no_grad():
    print(F.mse_loss(net(x[test]), y[test]))
""",
    "rows that are shuffled on purpose": """
x, y = torch.randn(12, 3), torch.randn(12, 1)
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(2):
    other, share = torch.randperm(12), 0.7
    mixed = share * x + (1 - share) * x[other]
    update(opt, share * F.mse_loss(net(mixed), y) + (1 - share) * F.mse_loss(net(mixed), y[other]))
with torch.no_grad():
    column = x.clone()
    column[:, 0] = x[torch.randperm(12), 0]
    print(F.mse_loss(net(column), y), F.mse_loss(net(x[torch.randperm(12)]), y))
""",
    "units that begin equal and part": """
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
nn.init.zeros_(net[2].weight)
nn.init.constant_(net[0].bias, 0.1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, (net(torch.randn(6, 3)) - 1).square().mean())
norm = nn.Conv2d(1, 4, 3)
nn.init.constant_(norm.bias, 0.1)
opt = SGD(norm.parameters(), lr=0.1)
for _ in range(4):
    update(opt, (norm(torch.randn(2, 1, 5, 5)) - 1).square().mean())
""",
    "seeds that begin another run, or a generator of its own": """
x = torch.randn(12, 3)
for rate in (0.1, 0.01, 0.001):
    torch.manual_seed(1)
    net = nn.Linear(3, 1)
    opt = SGD(net.parameters(), lr=rate)
    for _ in range(3):
        update(opt, net(x[torch.randperm(12)[:6]]).square().mean())
net = nn.Linear(3, 1)
opt = SGD(net.parameters(), lr=0.1)
for _ in range(4):
    update(opt, net(x[torch.randperm(12)[:6]]).square().mean())
    noise = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        print(net(x + noise).square().mean())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
