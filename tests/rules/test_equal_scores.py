"""PL919: ranks that leave out equal scores; and counts of better scores where this is meant, or makes no difference."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SCORES = """
torch.manual_seed(0)
answer = torch.randint(0, 30, (40,))
scores = F.relu(torch.randn(40, 30) - 1.2)
apart = torch.randn(40, 30)
"""
WRONG = {
    "a rank in a function, with known entries masked": SCORES
    + """
def ranks(scores, answer, known):
    own = scores[torch.arange(len(answer)), answer]
    left = scores.masked_fill(known, -torch.inf)
    left[torch.arange(len(answer)), answer] = own
    better = left > own.unsqueeze(1)  # PL919
    return better.sum(dim=1) + 1
rank = ranks(scores, answer, torch.rand(40, 30) < 0.1)
print((rank <= 10).float().mean(), (1 / rank).mean())
""",
    "distances, the smaller the better": SCORES
    + """
class Meter:
    def __init__(self):
        self.total, self.count = 0.0, 0
    def update(self, distance, answer):
        own = torch.take_along_dim(distance, answer[:, None], 1)
        rank = distance.lt(own).float().sum(-1)  # PL919
        self.total, self.count = self.total + (rank < 5).sum().item(), self.count + len(rank)
meter = Meter()
for rows in torch.arange(40).split(8):
    meter.update(torch.round(apart[rows].abs() * 2), answer[rows])
print(meter.total / meter.count)
""",
    "one row after the other": SCORES
    + """
found = []
for row, place in zip(scores, answer):
    found.append((row > row[place]).sum().item() + 1)  # PL919
print(sum(1 / each for each in found) / len(found))
""",
    "a target beside its negatives": SCORES
    + """
both = torch.cat([scores.gather(1, answer[:, None]), scores], dim=1)
target, others = both[:, :1], both[:, 1:20]
rank = (others > target).sum(dim=1).float()  # PL919
print(((rank < 10).float() / torch.log2(rank + 2)).mean())
""",
    "pairs on a diagonal, of saturated probabilities": SCORES
    + """
likeness = torch.sigmoid(40 * torch.randn(20, 3) @ torch.randn(3, 20))
print(((likeness > likeness.diagonal()[:, None]).sum(1) < 3).float().mean())  # PL919
""",
}
RIGHT = {
    "no equal scores, or few": SCORES
    + """
own = apart.gather(1, answer[:, None])
print(((apart > own).sum(1) + 1).float().mean())
few = apart.clone()
few[:, 3] = few[:, 4]
print(((few > few.gather(1, answer[:, None])).sum(1) + 1).float().mean())
""",
    "equal scores are counted, too": SCORES
    + """
own = scores.gather(1, answer[:, None])
best, worst = (scores > own).sum(1) + 1, (scores >= own).sum(1)
print((best + worst).float().mean() / 2)
half = (scores > own).sum(1) + 0.5 * (scores == own).sum(1)
print(half.mean())
""",
    "the number of entries above a threshold of their own": SCORES
    + """
kept = scores.topk(12, dim=1).values[:, -1:]
print((scores > kept).sum(1), (scores > scores.median(1, keepdim=True).values).sum(1))
print((scores > scores.sort(1, descending=True).values[:, 15:16]).sum(1))
print((scores > scores.mean(1, keepdim=True)).sum(1))
""",
    "ranks of all among all, as in a competition": SCORES
    + """
points = torch.randint(0, 5, (12,))
print((points[None, :] > points[:, None]).sum(1) + 1)
""",
    "equal scores in an order by chance": SCORES
    + """
shuffled = scores + 1e-4 * torch.rand_like(scores)
print(((shuffled > shuffled.gather(1, answer[:, None])).sum(1) + 1).float().mean())
""",
    "steps above the first one": SCORES
    + """
series = torch.randint(0, 5, (40, 12))
above = (series[:, 1:] > series[:, :1]).sum(1)
print(above.float().mean(), (above > 6).sum())
""",
    "a margin that is not a rank": SCORES
    + """
own = scores.gather(1, answer[:, None])
print(torch.where(scores > own, scores - own, torch.zeros(())).mean())
print((scores - own + 0.1).clamp(min=0).mean())
""",
}


def test_ranks_without_the_equal_scores_are_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL919",), repaired=True)


def test_other_counts_of_scores_stay_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
