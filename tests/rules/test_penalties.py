"""Penalties on log-probabilities: those that raise what they are to lower, and right ones."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
scores, said = torch.randn(2, 9), torch.tensor([[0, 3], [1, 1]])
logs = F.log_softmax(scores, dim=-1)
"""
WRONG = {
    "gathered, in a function": HEAD
    + """
def penalize(logs, said, by):
    picked = logs.gather(1, said)
    return logs.scatter(1, said, picked / by)  # PL965
print(torch.multinomial(penalize(logs, said, 2.0).exp(), 1))
""",
    "in place, of one row": HEAD
    + """
row = logs[0].clone()
row[said[0]] /= 1.3  # PL965
print(row.argmax())
""",
    "multiplied with a share": HEAD
    + """
row = logs[1].clone()
row[said[0]] = row[said[0]].mul(0.5)  # PL965
print(row.topk(2))
""",
}
RIGHT = {
    "multiplied": HEAD
    + """
print(torch.multinomial(logs.scatter(1, said, logs.gather(1, said) * 2.0).exp(), 1))
""",
    "by the sign, of scores": HEAD
    + """
picked = scores.gather(1, said)
picked = torch.where(picked < 0, picked * 1.3, picked / 1.3)
print(scores.scatter(1, said, picked).softmax(-1).argmax(-1))
""",
    "a mean over tokens, by the length": HEAD
    + """
print((logs.gather(1, said).sum(1) / 2.0).argmax())
""",
    "a temperature for all": HEAD
    + """
print(torch.multinomial((logs / 1.5).softmax(-1), 1))
""",
}


def test_penalties_that_reward_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_right_penalties_are_quiet(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
