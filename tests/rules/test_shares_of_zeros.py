"""PL409: zeros written by an index or a mask get a share in a softmax; and programs where that is right."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

NET = """
x = torch.randn(40, 8, generator=torch.Generator().manual_seed(1))
net = nn.Linear(8, 30)
banned = torch.stack([torch.randperm(30)[:4] for _ in range(40)])
"""
WRONG = {
    "actions that are not allowed, by an index": NET
    + """
def policy(x):
    logits = net(x)
    logits = logits.scatter(1, banned, 0.0)  # PL409
    return F.softmax(logits, dim=-1)
(policy(x) * torch.randn(40, 30)).sum().backward()
""",
    "by rows and columns, of several samples": NET
    + """
with torch.no_grad():
    scores = net(x)
    rows, columns = torch.arange(40).repeat_interleave(4), banned.flatten()
    scores[rows, columns] = 0  # PL409
    chances = torch.softmax(scores, 1)
print(chances.multinomial(3)[:2])
""",
    "by a mask, of keys": """
query, key = torch.randn(3, 6, 4), torch.randn(3, 6, 4)
padding = torch.arange(6) >= torch.tensor([6, 4, 3])[:, None]
scores = query @ key.transpose(1, 2)
scores[padding[:, None].expand(3, 6, 6)] = 0.0  # PL409
print((scores.log_softmax(-1).exp() @ key).mean())
""",
}
RIGHT = {
    "what gets no share": NET
    + """
print(net(x).scatter(1, banned, float("-inf")).softmax(1).sum(), net(x).scatter(1, banned, 0.0).sum())
""",
    "a class that the others are compared with": NET
    + """
logits = net(x)
logits[:, 0] = 0
print(logits.softmax(1).mean(0), net(x).index_fill(1, torch.tensor([29]), 0).log_softmax(1).mean())
""",
    "the least of the numbers themselves, and what is drawn": NET
    + """
logits = net(x)
least = logits.abs().topk(3, largest=False).indices
print(logits.scatter(1, least, 0.0).softmax(1).max())
drawn = torch.rand(40, 30).topk(3).indices
F.nll_loss(net(x).scatter(1, drawn, 0.0).log_softmax(1), torch.randint(0, 30, (40,))).backward()
""",
    "a start from zeros": """
start = torch.full((4, 9), -1e9).scatter(1, torch.tensor([[0, 1], [2, 3], [0, 4], [5, 1]]), 0.0)
print(start.softmax(1))
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL409",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
