"""A tensor that is written with results and their graphs keeps the graphs of all steps."""

from __future__ import annotations

import pytest

START = """net, head = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), nn.Linear(3, 1)
adam = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
rows = torch.randn(12, 6, 4)
store = torch.zeros(12, 3)
mean = torch.zeros(3)
def learn(z):
    adam.zero_grad()
    (head(z) - 1).pow(2).mean().backward()
    adam.step()"""
LOOP = """for at, batch in enumerate(rows[:6]):
    learn(net(batch))
    {}"""
QUEUE = """class Queue(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.inner = nn.Linear(4, 5), nn.Linear(5, 3)
        self.register_buffer("rows", torch.zeros(12, 3))
    def push(self, x, at):
        self.rows[at] = self.inner(self.first(x)).mean(0)
queue = Queue()"""
FILL = """for at in range(6):
    queue.push(rows[at], at)
    learn(net(rows[at]))
    with torch.no_grad():
        queue.inner.weight.lerp_(net[2].weight, 0.1)"""
PIECES = """for _ in range(6):
    out = torch.zeros(12, 3)
    for at, batch in enumerate(rows):
        out[at] = net(batch).mean(0)
    learn(out)"""
WHOLE = """for _ in range(6):
    whole = 0
    for batch in rows:
        whole = whole + net(batch).pow(2).mean()
    adam.zero_grad()
    whole.backward()
    adam.step()"""
PLANTED = {
    "rows of a memory": ([], LOOP.format("store[at] = net(batch).mean(0)"), "store", "`net.2.weight`"),
    "a running value": ([], LOOP.format("mean = 0.9 * mean + 0.1 * net(batch).mean(0)"), "mean", "`net.2.weight`"),
    "in a function": (
        ["def put(at):\n    store[at] = net(rows[at]).mean(0)"], LOOP.format("put(at)"), "store", "In [3] writes it",
    ),
    "a queue": (
        [], LOOP.format("store = torch.cat([net(batch).mean(0, keepdim=True), store])[:12]"), "store", "`net.2.weight`",
    ),
    "a buffer": ([QUEUE], FILL, "queue.rows", "`queue.inner.weight`"),
}  # fmt: skip
RIGHT = {
    "without its graph": [LOOP.format("store[at] = net(batch).mean(0).detach()")] * 2,
    "under no_grad": [LOOP.format("with torch.no_grad():\n        store[at] = net(batch).mean(0)")] * 2,
    "cut off after each step": [LOOP.format("store[at] = net(batch).mean(0)\n    store.detach_()")] * 2,
    "one forward in pieces": [PIECES] * 2,
    "gradients added up": [WHOLE] * 2,
    "the last output": [LOOP.format("last = net(batch)")] * 2,
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_a_graph_of_several_steps_is_said(notebook, name):
    cells, last, row, words = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"], warning["rule"]) == ("graph-grows", "note", "PL511")
    assert warning["row"].replace("\x1f", ".") == row
    assert words in warning["sentence"]["en"]
    assert "line" in warning["fix"]["en"]
    assert notebook.run("with torch.no_grad():\n    seen = store.sum().item()")
    assert notebook.run(f"{row} = {row}.detach()") == []


@pytest.mark.parametrize("name", RIGHT)
def test_a_graph_of_one_step_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == [], text
