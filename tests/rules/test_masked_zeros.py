"""PL468: a zero that a mask put in place of numbers is their smallest or largest; and programs where it is right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

ROWS = """
x = torch.randn(3, 4, generator=torch.Generator().manual_seed(1)).abs() + 0.1
mask = torch.tensor([[True, True, False, False], [True, False, True, True], [False, False, True, True]])
"""
WRONG = {
    "a smallest distance": ROWS + "print((x * mask).amin(1))  # PL468\n",
    "a largest of negative numbers, with a mask of ones and zeros": ROWS
    + """
def best(scores, weights):
    left = scores * weights
    return torch.max(left, dim=1)[0]  # PL468
print(best(-x, mask.float()))
""",
    "the best of the actions that are allowed": ROWS
    + """
class Player:
    def act(self, values, legal):
        return (values * legal.int()).argmax(-1)  # PL468
print(Player().act(-x, mask))
""",
    "a fill with zero": ROWS + "print(x.masked_fill(mask, 0.0).min(dim=1))  # PL468\n",
    "a choice of zero": ROWS + "print(torch.where(mask, x, torch.zeros_like(x)).min(1).indices)  # PL468\n",
    "in place, and over all": ROWS
    + """
left = x.clone()
left *= mask
print(left.min())  # PL468
other = x.clone()
other[~mask] = 0
print(other.flatten().min())  # PL468
""",
    "one minus a mask": ROWS + "print((x * (1 - mask.float())).argmin(1))  # PL468\n",
    "the two nearest": ROWS + "print(torch.topk(x * mask, 2, dim=1, largest=False).values)  # PL468\n",
    "a pool over time that sees the padding": """
rnn, x = nn.Linear(4, 30), torch.randn(2, 5, 4)
h = rnn(x).tanh() - 2
there = torch.tensor([[True, True, True, False, False], [True, True, True, True, False]])
h = h * there.unsqueeze(-1)
print(h.sum(1) / there.sum(1, keepdim=True), h.max(dim=1).values)  # PL468
""",
    "the best of many that were not seen yet, in place": """
users, items = torch.randn(40, 6), torch.randn(90, 6)
seen = torch.rand(40, 90) < 0.2
scores = users @ items.T - 40
scores[seen] = 0
print(scores.topk(4, dim=1).indices)  # PL468
""",
    "a ranking by a sort, with a product": """
users, items = torch.randn(40, 6), torch.randn(90, 6)
allowed = (torch.rand(40, 90) > 0.2).float()
def ranking(scores):
    order = torch.sort(scores * allowed, dim=-1, descending=True)  # PL468
    return order[1][:, :5]
print(ranking(users @ items.T - 40))
""",
    "a fill, and a ranking of few": """
logits = nn.Linear(4, 6)(torch.randn(2, 4)) - 5
banned = torch.tensor([True, False, False, True, False, False])
print(logits.masked_fill(banned, 0).argsort(1, descending=True)[:, 0])  # PL468
""",
    "few places of a large table, most of whose scores are below zero": """
seen = torch.zeros(60, 100, dtype=torch.bool)
seen.scatter_(1, torch.rand(60, 100).topk(12).indices, True)
user, item = nn.Embedding(60, 4), nn.Embedding(100, 4)
with torch.no_grad():
    scores = 0.1 * user.weight @ item.weight.T - 2
    print((scores * ~seen).topk(5, dim=1).indices[0])  # PL468
""",
    "marked by rows and columns, as numbers": """
clicked = torch.zeros((60, 100), dtype=torch.bool)
clicked[torch.randint(0, 60, (300,)), torch.randint(0, 100, (300,))] = True
logits = nn.Linear(100, 100)(clicked.float()) - 4
rest = logits * (1 - clicked.float())
print(torch.topk(rest, 4).values[0])  # PL468
""",
    "a table that is too large to be kept": """
label = torch.randint(0, 5, (80,))
emb = F.normalize(nn.Linear(5, 8)(torch.randn(80, 5)), dim=1)
for _ in range(2):
    dist = torch.cdist(emb, emb)
    same = label[:, None] == label[None]
    hard = torch.amin(dist * ~same, dim=1)  # PL468
    print(F.relu(dist.mul(same).amax(1) - hard + 0.2).mean())
""",
    "written by an index: what each user has seen": """
user, item = nn.Embedding(60, 8), nn.Embedding(100, 8)
seen = torch.rand(60, 100).topk(10).indices
with torch.no_grad():
    scores = user.weight @ item.weight.T - 4
    scores.scatter_(1, seen, 0.0)
    ranked = scores.topk(20, dim=1).indices  # PL468
print((ranked[:, :, None] == seen[:, None, :]).any(-1).float().mean())
""",
    "by rows and columns, of the last step's scores": """
net = nn.Linear(8, 50)
rows, columns = torch.arange(30).repeat_interleave(3), torch.randint(0, 50, (90,))
def best(h):
    logits = net(h)[:, -1] - 3
    logits[rows, columns] = 0
    return logits.argmax(-1)  # PL468
print(best(torch.randn(30, 5, 8)))
""",
    "tokens that are forbidden in all rows, not in place": """
logits = nn.Linear(8, 50)(torch.randn(30, 8)) - 3
kept = logits.index_fill(1, torch.tensor([0, 3, 7]), 0)
print(torch.max(kept, dim=1).indices.tolist())  # PL468
print(kept.sort(dim=1, descending=True).indices[:, 0])  # PL468
""",
    "oneself among the nearest, and the nearest of what was seen": """
points, others = torch.randn(40, 3), torch.randn(60, 3)
near = -(points @ points.T).abs() @ torch.ones(40, 40) + points @ points.T
near.fill_diagonal_(0)
print(near.topk(3).indices[:5])  # PL468
distance = torch.cdist(points, others)
distance.scatter_(1, torch.rand(40, 60).topk(4).indices, 0)
print(distance.argmin(1))  # PL468
""",
}
RIGHT = {
    "the largest of positive numbers, and the smallest of negative ones": ROWS
    + """
print((x * mask).max(1), (-x * mask).amin(1), (x * mask).argmax(1), (x * mask).topk(2, dim=1))
""",
    "filled with what never wins": ROWS
    + """
print(x.masked_fill(~mask, float("inf")).min(1), torch.where(mask, x, torch.tensor(99.0)).min(1))
print((x * mask + 1e9 * ~mask).min(1), (-x).masked_fill(~mask, -1e9).argmax(1))
""",
    "a picture before a background, scaled": ROWS
    + """
picture = x * mask
low, high = picture.min(), picture.max()
print((picture - low) / (high - low))
""",
    "the best of many that were not seen yet": """
users, items = torch.randn(40, 6), torch.randn(90, 6)
seen = torch.rand(40, 90) < 0.2
scores = users @ items.T - 40
chances = torch.sigmoid(users @ items.T)
chances[seen] = 0
scores[seen] = float("-inf")
print(scores.topk(4).indices, chances.topk(4).indices, chances.sort(dim=1).indices[:, -3:])
mixed = (users @ items.T) * ~seen
print(mixed.topk(3, dim=1).values, mixed.sort(dim=1, descending=True).values[:, :3])
counts = torch.relu(users @ items.T - 99) * ~seen
print(counts.topk(3, dim=1).values)
""",
    "few places of a large table: chances, counts, and scores of which enough are above zero": """
seen = torch.zeros(60, 100, dtype=torch.bool)
seen.scatter_(1, torch.rand(60, 100).topk(12).indices, True)
scores = torch.randn(60, 4) @ torch.randn(4, 100)
print((scores * ~seen).topk(5, dim=1).values[0], (torch.sigmoid(scores - 3) * ~seen).topk(5, dim=1).values[0])
counts = (torch.rand(60, 50) < 0.02).float() @ (torch.rand(50, 100) < 0.02).float()
print((counts * ~seen).topk(5, dim=1).values[0])
few = torch.zeros(60, 100, dtype=torch.bool)
few.scatter_(1, torch.rand(60, 100).topk(3).indices, True)
print(((scores - 9) * few).topk(5, dim=1, largest=False).values[0])
""",
    "written by an index: scores above zero, what never wins, and few that are above zero at the top": """
user, item = torch.randn(60, 8), torch.randn(100, 8)
seen = torch.rand(60, 100).topk(10).indices
scores = user @ item.T
print(scores.scatter(1, seen, 0.0).topk(3).indices[0], scores.scatter(1, seen, float("-inf")).topk(20).indices[0])
chances = torch.sigmoid(scores - 5).scatter_(1, seen, 0)
print(chances.topk(20).indices[0], torch.relu(scores - 9).scatter_(1, seen, 0).topk(20).indices[0])
""",
    "a class that the others are compared with, and a start": """
utility = nn.Linear(8, 5)(torch.randn(30, 8)) - 1
utility[:, 0] = 0
print(utility.argmax(1), utility.index_fill(1, torch.tensor([0]), 0).argmax(1))
best = torch.full((30,), float("-inf"))
best[torch.tensor([4])] = 0.0
print(best.argmax(), torch.full((9,), -1e9).index_fill(0, torch.tensor([2, 3]), 0.0).topk(1))
""",
    "places computed from the numbers, and zeros that are weights or are dropped": """
weight = torch.randn(30, 9) @ torch.randn(9, 9) - 20
small = weight.abs().argsort(1)[:, :4]
print(weight.scatter(1, small, 0.0).topk(3).indices[0])
pairs = weight.scatter(1, torch.rand(30, 9).topk(3).indices, 0.0)
values, places = pairs.topk(3)
print(values[values < 0].shape, (torch.randn(30, 3) * values).sum())
""",
    "sums and means": ROWS + "print((x * mask).sum(1) / mask.sum(1), (x * mask).mean())\n",
    "zeros that are the numbers themselves": ROWS
    + """
print((torch.relu(x - 5) * mask).min(1), (torch.zeros(3, 4) * mask).max(1))
""",
    "a row that is left out as a whole": ROWS
    + """
rows = torch.tensor([[True], [False], [True]])
print((x * rows).min(1), (x * rows.expand(3, 4)).amin(1))
""",
    "weights that are no mask": ROWS + "print((x * torch.tensor([0.5, 0.0, 2.0, 1.0])).min(1))\n",
    "dropout, and a mask of the numbers themselves": ROWS
    + """
h = nn.Linear(4, 4)(x)
print((h * (torch.rand(3, 4) > 0.5)).max(1).values, (x * (x > 0.4)).min(1).values)
""",
    "signed numbers of which one that counts wins": ROWS
    + """
signed = x * torch.tensor([1.0, -1.0, 1.0, -1.0])
print((signed * mask)[1:].max(1), (signed * torch.tensor([True, True, False, True])).min(1))
""",
    "the smaller of two": ROWS + "print(torch.minimum(x * mask, x), torch.max(x * mask, x))\n",
    "the furthest of one's own class": """
label = torch.randint(0, 5, (80,))
emb = F.normalize(nn.Linear(5, 8)(torch.randn(80, 5)), dim=1)
dist = torch.cdist(emb, emb)
same = label[:, None] == label[None]
print((dist * same).max(1).values.mean(), (dist + 1e6 * same).min(1).values.mean())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL468",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
