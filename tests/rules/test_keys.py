"""Tensors as keys of dictionaries and elements of sets, and right uses of both."""

from __future__ import annotations

import torch

from pitfall_lab import record
from pitfall_lab.check import Workshop
from pitfall_lab.rules import find
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

HEAD = """
from collections import Counter, defaultdict
y = torch.tensor([2, 0, 2, 1, 0, 2, 1, 1])
"""
WRONG = {
    "a set": HEAD
    + """
classes = len(set(y))  # PL748
print(classes)
""",
    "counted": HEAD
    + """
print(Counter(y).most_common(1)[0][1])  # PL748
""",
    "a comprehension, of rows": HEAD
    + """
rows = torch.stack([y, y]).T
print(len({row for row in rows}))  # PL748
""",
    "several places": HEAD
    + """
counts, seen, fresh = defaultdict(int), set(), 0
for s in y:
    counts[s] += 1  # PL748
    if s not in seen:
        fresh += 1
    seen.add(s)
print(max(counts.values()), fresh)
""",
    "pairs, in an object, for many rounds": HEAD
    + """
class Agent:
    def __init__(self):
        self.q = {}
    def value(self, s, a):
        return self.q.get((s, a), 0.0)  # PL748
    def update(self, s, a, r):
        self.q[(s, a)] = 0.9 * self.value(s, a) + r
agent = Agent()
for i in range(300):
    agent.update(torch.randint(0, 3, ()), i % 2, 1.0)
print(len(agent.q), max(agent.q.values()))
""",
}
RIGHT = {
    "numbers": HEAD
    + """
print(len(set(y.tolist())), Counter(y.tolist()))
""",
    "parameters and buffers by the object": HEAD
    + """
net = nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1), nn.BatchNorm1d(1))
seen, state = set(), {}
for each in [*net.parameters(), *net.buffers()]:
    seen.add(each)
    state[each] = each.numel()
print(len(seen), len(state))
""",
    "one object, looked up many times": HEAD
    + """
names = {y: "labels"}
weights = [torch.ones(2), torch.zeros(2)]
sums = {each: 0.0 for each in weights}
for _ in range(20):
    for each in weights:
        sums[each] += float(each.sum())
print(names[y], list(sums.values()))
""",
}


def test_tensors_as_keys_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_numbers_and_objects_as_keys_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_a_missed_key_is_explained() -> None:
    trace = record('import torch\nnames = {0: "cat", 1: "dog"}\nfor t in torch.tensor([1, 0]):\n    print(names[t])\n')
    assert trace.outcome.kind == "raised"
    (finding,) = find(trace)  # no note on an error of the program's own beside it
    assert finding.span is not None
    assert (finding.rule, finding.severity, finding.span.line) == ("PL748", "error", 4)
    assert finding.fixes[0].title.en == "Use numbers as keys: `t.item()`"


def test_the_hash_is_torchs_own_again() -> None:
    before = torch.Tensor.__hash__
    record("import torch\nprint(len({torch.ones(1)}), torch.Tensor.__hash__ is not None)\n")
    assert torch.Tensor.__hash__ is before
    assert hash(torch.nn.Parameter(torch.ones(1))) != 0
