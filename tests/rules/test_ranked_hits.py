"""PL917: hits among the k best averaged over the k places; and programs that ask for something else."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SCORES = """
torch.manual_seed(0)
label = torch.randint(0, 6, (20,))
scores = torch.randn(20, 6) + 2 * F.one_hot(label, 6)
"""
WRONG = {
    "in one expression": SCORES
    + "print((scores.topk(3, dim=1).indices == label.unsqueeze(1)).float().mean())  # PL917\n",
    "places first, as in many examples": SCORES
    + """
def accuracy(output, target, topk=(3,)):
    _, pred = output.topk(max(topk), 1, True, True)
    correct = pred.t().eq(target.view(1, -1).expand_as(pred.t()))
    return correct.flatten().float().mean()  # PL917
print(accuracy(scores, label))
hits = torch.eq(label[:, None], scores.argsort(1, descending=True)[:, :2])
print(hits.float().mean() * 100)  # PL917
""",
    "the places alone, and then the rows": SCORES
    + """
hits = scores.topk(4).indices.eq(label.view(-1, 1))
print(hits.double().mean(dim=1).mean())  # PL917
""",
    "a sum divided by the number of all": SCORES
    + """
hits = (torch.topk(scores, 2)[1] == label[:, None])
print(hits.sum() / hits.numel())  # PL917
""",
    "words of a sequence": """
torch.manual_seed(1)
word = torch.randint(0, 5, (3, 7))
logits = torch.randn(3, 7, 5)
class Meter:
    def update(self, logits, word):
        best = logits.sort(dim=-1, descending=True).indices[..., :2]
        return torch.mean((best == word.unsqueeze(-1)).to(torch.float32))  # PL917
print(Meter().update(logits, word))
""",
}
RIGHT = {
    "any, sum, and the best alone": SCORES
    + """
top = scores.topk(3).indices
print((top == label[:, None]).any(1).float().mean(), (top == label[:, None]).sum(1).float().mean())
print((scores.topk(1).indices == label[:, None]).float().mean(), (top[:, 0] == label).float().mean())
""",
    "hits over rows": SCORES
    + """
hits = scores.topk(3)[1].t().eq(label.view(1, -1))
print(hits[:3].reshape(-1).float().sum(0) / 20, hits.sum().item() / 20)
""",
    "the share at each place, and the mean times k": SCORES
    + """
print((scores.topk(3).indices == label[:, None]).float().mean(0))
print((scores.topk(3).indices == label[:, None]).float().mean() * 3)
""",
    "precision of neighbours by their classes": SCORES
    + """
nearest = torch.cdist(scores, scores).topk(4, largest=False).indices[:, 1:]
print((label[nearest] == label[:, None]).float().mean())
""",
    "how often a router takes one expert": SCORES
    + """
chosen = scores.topk(2).indices
print((chosen == 1).float().mean(), (chosen == torch.tensor(2)).float().mean())
print((chosen.unsqueeze(-1) == torch.arange(6)).float().mean((0, 1)))
""",
    "two rankings compared": SCORES
    + "print((scores.topk(3).indices == (scores + 0.1).topk(3).indices).float().mean())\n",
    "both shares, knowingly": SCORES
    + """
hits = scores.topk(3).indices == label[:, None]
print(hits.float().mean(), hits.any(1).float().mean())
""",
    "a table of labels, several for each row": SCORES
    + """
several = torch.stack([label, (label + 1) % 6, (label + 2) % 6], 1)
print((scores.topk(3).indices == several).float().mean())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL917",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
