"""Long trainings: rounds that repeat are not recorded, what is new in any round is, and the report says so."""

from __future__ import annotations

import contextlib
import io
import random
import re
import subprocess
import textwrap
from pathlib import Path

import pytest

import pitfall_lab
from pitfall_lab.check import Workshop
from pitfall_lab.check.examine import Checked, examine
from pitfall_lab.check.settings import Settings
from pitfall_lab.observe.rounds import FIRST, Sampling
from pitfall_lab.rules import RULES, find
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program
from tests.check.long_programs import PROGRAMS

HEAD = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step(x, y):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
ROUNDS = "for number in range(60):\n    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))\n"


def sampled(text: str) -> Trace:
    return trace_program(text, sampling=Sampling())


def found(trace: Trace) -> list[tuple[str, int]]:
    return [(finding.rule, finding.span.line) for finding in find(trace) if finding.span is not None]


def line_of(text: str, words: str) -> int:
    return next(number for number, line in enumerate(text.split("\n"), 1) if words in line)


@pytest.mark.parametrize("rounds", range(6, 11))
def test_a_program_that_ends_in_a_round_that_is_left_out_agrees(rounds: int) -> None:
    trace = sampled(HEAD + ROUNDS.replace("60", str(rounds)) + "    step(x, y)\n")
    assert bool(trace.unseen) == (rounds > 6)
    assert not trace.disagreements


def test_a_state_that_is_forgotten_now_and_then_does_not_keep_the_recording_on() -> None:
    text = HEAD + "cell, state = nn.GRUCell(4, 4), None\n" + ROUNDS.replace("60", "150")
    text += "    state = cell(x, None if number % 10 == 0 else state.detach())\n    step(state, y)\n"
    text += "    if number % 10 == 9:\n        state = None\n"
    (note,) = sampled(text).unseen
    (recorded,) = re.findall(r"(\d+) of 150", note.en)
    assert int(recorded) < 25


def test_rounds_that_repeat_are_left_out_and_counted() -> None:
    text = HEAD + ROUNDS + "    step(x, y)\n"
    trace = sampled(text)
    assert trace.calls < len(trace_program(text).events) / 2
    assert not trace.disagreements
    assert trace.stopped is None
    (note,) = trace.unseen
    assert f"(line {line_of(text, 'x, y =')}: 8 of 60)" in note.en
    assert "第 13 行：60 轮中的 8 轮" in note.zh


def test_as_many_rounds_as_are_always_recorded_are_all_recorded() -> None:
    trace = sampled((HEAD + ROUNDS + "    step(x, y)\n").replace("60", str(FIRST)))
    assert not trace.unseen


@pytest.mark.parametrize(
    ("new", "rule"),
    [
        ("if number == 43: model(x[:, :3])", "PLE01"),  # another shape, which torch refuses
        ("if number > 40: (model(x)[:, :1] - y).pow(2).mean().backward()", "PL401"),  # a line that is new
        (
            "(model(x)[:, :1] - (y if number > 40 else y[:, None])).pow(2).mean().backward()",
            "PL401",
        ),  # a shape that is new
    ],
)
def test_what_is_new_in_a_late_round_is_found(new: str, rule: str) -> None:
    text = HEAD + ROUNDS + "    step(x, y)\n    " + new + "\n"
    trace = sampled(text)
    assert trace.unseen
    assert (rule, line_of(text, new)) in found(trace)
    assert not trace.disagreements


def test_a_call_that_raises_in_a_round_that_is_left_out_is_explained() -> None:
    labels = "labels = [torch.full((8,), 3 if number == 43 else 1) for number in range(60)]\n"
    text = HEAD + labels + ROUNDS + "    step(x, labels[number])\n"
    trace = sampled(text)
    assert ("PLE12", line_of(text, "cross_entropy")) in found(trace)
    assert trace.outcome.failure is not None
    assert trace.outcome.failure.op == "torch.nn.functional.cross_entropy"


def test_graphs_that_grow_from_round_to_round_are_recorded_all_the_time() -> None:
    text = HEAD + "total = 0\n" + ROUNDS + "    loss = model(x).sum()\n    total = total + loss\n    step(x, y)\n"
    assert not sampled(text).unseen


def test_a_loop_that_ends_is_recorded_and_so_is_what_follows() -> None:
    text = (
        HEAD
        + ROUNDS
        + "    step(x, y)\nstate = model.state_dict()\n"
        + ROUNDS
        + "    step(x, y)\nmodel.load_state_dict(state)\n"
    )
    assert ("PL703", line_of(text, "state_dict()")) in found(sampled(text))


KEPT = """
best, lowest = None, 9.0
for number in range(80):
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    if number == 61 or loss.item() < lowest:
        lowest, best = min(lowest, loss.item()), model.state_dict()
model.load_state_dict(best)
"""


def test_a_step_after_a_loop_that_was_left_is_recorded_and_the_loop_around_both_is_left_too() -> None:
    text = HEAD + "def backwards():\n    for number in range(12):\n"
    text += "        (nn.functional.mse_loss(model(torch.randn(2, 4)), torch.ones(2, 3)) / 12).backward()\n"
    text += "for update in range(40):\n    optimizer.zero_grad()\n    backwards()\n    optimizer.step()\n"
    trace = sampled(text)
    assert {each.span and each.span.line for each in trace.optimizer_steps} == {text.count("\n")}
    assert trace.calls < 1000
    assert not trace.disagreements


def test_weights_kept_in_a_round_that_was_not_recorded_are_found_where_they_were_kept() -> None:
    text = HEAD + KEPT
    trace = sampled(text)
    assert trace.unseen
    assert found(trace) == [("PL703", line_of(text, "best = min(lowest"))]
    assert (
        found(sampled(text.replace("model.state_dict()", "{k: v.clone() for k, v in model.state_dict().items()}")))
        == []
    )


BY_HAND = """
import torch
torch.manual_seed(0)
w = torch.randn(6, requires_grad=True)
x, y, kept = torch.randn(50, 6), torch.randn(50), None
for number in range(4000):
    loss = ((x @ w - y) ** 2).mean()
    gradient, = torch.autograd.grad(loss, w)
    with torch.no_grad():
        w -= 0.01 * gradient
    if number == 3500:
        kept = w.detach()
print((kept - w).abs().sum())
"""
MESSAGES = """
import torch
torch.manual_seed(0)
edges, h, target = torch.randint(0, 60, (2, 400)), torch.randn(60, 8), torch.rand(60, 8)
w = torch.randn(8, 8, requires_grad=True)
for epoch in range(600):
    z = h
    for layer in range(3):
        sums = torch.zeros(60, 8)
        sums[edges[1]] += z[edges[0]] @ w
        z = torch.tanh(sums)
    gradient, = torch.autograd.grad(((z - target) ** 2).mean(), w)
    w = (w - 0.1 * gradient).detach().requires_grad_()
"""
LOADED = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = torch.arange(24000.0).reshape(12000, 2)
total = torch.zeros(2)
for (rows,) in DataLoader(TensorDataset(data), batch_size=500):
    total += rows.sum(0)
print(total)
"""
ONE_CALL = "import torch\nx = torch.ones(3)\nfor number in range(30000):\n    x = x * 0.9999\nprint(x)\n"


@pytest.mark.parametrize(
    ("text", "rule", "words"),
    [
        (BY_HAND, "PL702", "kept = w.detach()"),
        (MESSAGES, "PL720", "sums[edges[1]] +="),
        (ONE_CALL, None, ""),
        (LOADED, None, ""),
    ],
)
def test_long_loops_that_are_no_trainings_are_sampled_too(text: str, rule: str | None, words: str) -> None:
    trace = trace_program(text, sampling=Sampling(), limit=20_000)
    assert len(trace.events) < 6000
    assert trace.stopped is None
    assert trace.unseen
    assert not trace.disagreements
    assert found(trace) == ([] if rule is None else [(rule, line_of(text, words))])


FIT = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
def fit(steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(8, 4)
    y = x.sum(1, keepdim=True)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()
def learn(batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in batches:
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
META = """
def task():
    before = {k: v.clone() for k, v in model.state_dict().items()}
    fit(5)
    after = model.state_dict()
    model.load_state_dict({k: before[k] + 0.1 * (after[k] - before[k]) for k in before})
    return sum((after[k] - before[k]).pow(2).sum() for k in before).item()
print(sum([task() for _ in range(80)]))
"""
RECURSION = """
def again(left):
    value = fit(5)
    return value if left == 0 else again(left - 1)
print(again(80))
"""
MAPPED = "print(sum(map(lambda steps: fit(steps), [5] * 80)))\n"
WHILE = """
def until(number):
    left, total = number, 0.0
    while left:
        for rate in (0.1, 0.01):
            total += fit(4)
        left -= 1
    return total
print(max(until(10) for _ in range(5)))
"""
ROWS = """
class Rows(Dataset):
    cache = None
    def __len__(self):
        return 900
    def __getitem__(self, i):
        if self.cache is None:
            self.cache = torch.randn(900, 4)
        row = self.cache[i]
        row = (row - row.mean()) / row.std()
        return row, row.sum().reshape(1)
"""
BATCHES = ROWS + "learn(DataLoader(Rows(), batch_size=20))\n"
ONE_BATCH = ROWS + "for x, y in DataLoader(Rows(), batch_size=900):\n    print(x.mean(), y.mean())\n"
SINGLE = "learn(DataLoader(TensorDataset(torch.randn(600, 4), torch.randn(600, 1)), batch_size=1, shuffle=True))\n"
ROUTINE = "learn(DataLoader(TensorDataset(torch.randn(6000, 4), torch.randn(6000, 1)), batch_size=3000))\n"


@pytest.mark.parametrize(("text", "calls", "many"), [
    (META, 1500, 4000), (RECURSION, 700, 1500), (MAPPED, 700, 1500), (WHILE, 700, 1500), (BATCHES, 2200, 5000),
    (ONE_BATCH, 2200, 4000), (SINGLE, 700, 4500), (ROUTINE, 1500, 9000),
])  # fmt: skip
def test_loops_of_every_shape_are_sampled(text: str, calls: int, many: int) -> None:
    trace = sampled(FIT + text)
    assert trace.calls < calls
    assert trace.calls + sum(gap.calls for gap in trace.reach.gaps) > many
    assert not trace.disagreements
    assert not found(trace)


def test_a_training_over_a_dataset_is_sampled_by_its_own_rounds_and_not_by_those_of_its_examples() -> None:
    text = FIT + BATCHES
    (note,) = sampled(text).unseen
    assert re.search(
        r"\(line 19: \d+ of 4\d\)", note.en
    )  # optimizer.zero_grad(), seen first where the second round comes back to it


def test_what_is_new_in_a_late_example_of_a_dataset_is_found() -> None:
    late = "        if i == 700:\n            ((row[:, None] * 2 - row) ** 2).mean()\n        return row,"
    text = FIT + ONE_BATCH.replace("        return row,", late)
    trace = sampled(text)
    assert trace.unseen
    assert found(trace) == [("PL401", line_of(text, "row[:, None]"))]


def test_a_short_loop_that_is_no_training_is_recorded_whole() -> None:
    assert not sampled(
        "import torch\nx = torch.ones(3)\nfor number in range(300):\n    x = x * 0.99\n    y = x + 1\n"
    ).unseen


def test_graphs_that_grow_around_an_inner_loop_are_recorded_all_the_time() -> None:
    text = "import torch\nw = torch.ones(3, requires_grad=True)\ntotal = 0\nfor number in range(200):\n    z = w\n"
    text += "    for layer in range(12):\n        z = z * 0.9\n    total = total + z.sum()\n"
    assert not sampled(text).unseen


def checked(tmp_path: Path, text: str) -> Checked:
    file = tmp_path / "program.py"
    file.write_text(text, encoding="utf-8")
    with Workshop() as shop:
        return examine(file, shop, Settings(), fixes=False)


def test_check_sees_the_last_rounds_before_an_error_in_full(tmp_path: Path) -> None:
    body = (
        "    loss = model(x).sum()\n"
        "    loss.backward()\n"
        "    if number == 43:\n"
        "        loss.backward()\n"
        "    optimizer.step()\n"
    )
    text = HEAD + ROUNDS + body
    result = checked(tmp_path, text)
    assert [finding.rule for finding in result.findings if finding.severity == "error"] == ["PL501"]
    assert any(related.role == "backward" or related.span for related in result.findings[0].related)
    assert result.exit_code == 1


def test_left_out_rounds_are_no_reason_to_call_a_program_unchecked(tmp_path: Path) -> None:
    result = checked(tmp_path, HEAD + ROUNDS + "    step(x, y)\n")
    assert result.problem is None
    assert result.exit_code == 0


@pytest.mark.parametrize(
    ("name", "rule"), [("folds", None), ("stopping_planted", "PL703"), ("q_learning_planted", "PL710")]
)
def test_realistic_trainings_are_judged_from_samples(name: str, rule: str | None) -> None:
    plain, printed = io.StringIO(), io.StringIO()
    random.seed(0)
    with contextlib.redirect_stdout(plain):
        exec(PROGRAMS[name], {"__name__": "__main__"})
    random.seed(0)
    with contextlib.redirect_stdout(printed):
        trace = sampled(PROGRAMS[name])
    assert printed.getvalue() == plain.getvalue() != ""
    assert trace.unseen
    assert not trace.disagreements
    assert [finding.rule for finding in find(trace)] == ([] if rule is None else [rule])


# --- with pitfall_lab.watching(): -------------------------------------------------------------------------------------

WATCHED = (
    HEAD + "import pitfall_lab\nwith pitfall_lab.watching():\n" + textwrap.indent(ROUNDS + "    step(x, y)\n", "    ")
)


def test_watching_reports_at_the_end_of_its_block(tmp_path: Path, warm_python: str) -> None:
    file = tmp_path / "script.py"
    late = "    if number == 43:\n        (model(x)[:, :1] - y).pow(2).mean().backward()\n"
    file.write_text(WATCHED + textwrap.indent(late, "    ") + "print('after')\n", encoding="utf-8")
    done = subprocess.run([warm_python, "-P", str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "after\n"
    assert "script.py:18:" in done.stderr
    assert "warning PL401 loss-broadcast" in done.stderr
    assert "script.py: 1 warning" in done.stderr
    assert "of 60)" in done.stderr


def test_watching_changes_nothing_about_an_error_and_explains_it() -> None:
    import torch

    report = io.StringIO()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"), pitfall_lab.watching(file=report) as watched:
        torch.ones(2, 3) @ torch.ones(2, 3)
    assert [finding.rule for finding in watched.findings] == ["PLE01"]
    assert report.getvalue() == watched.text
    assert "test_long_programs.py" in watched.text


def test_watching_in_a_test_is_finished_when_its_block_is(tmp_path: Path, warm_python: str) -> None:
    file = tmp_path / "test_it.py"
    body = textwrap.indent(HEAD + ROUNDS + "    step(x, y)\n", " " * 8)
    file.write_text(
        "import pitfall_lab\ndef test_it():\n    with pitfall_lab.watching() as watched:\n"
        + body
        + "    assert not watched.findings\n"
        "    assert watched.trace.unseen\n",
        encoding="utf-8",
    )
    command = [warm_python, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_watching_inside_watching_leaves_the_report_to_the_outer_one() -> None:
    import torch

    outer, inner = io.StringIO(), io.StringIO()
    with pitfall_lab.watching(file=outer) as watched:
        with pitfall_lab.watching(file=inner):
            torch.ones(3)
        assert watched.trace is None
    assert watched.trace is not None
    assert watched.trace.calls == 1
    assert "watched already" in inner.getvalue()
    assert "nothing found" in outer.getvalue()


LEAKS = """import torch
from torch import nn
import torch.nn.functional as F
torch.manual_seed(0)
class Logistic(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = 1.0 / (1.0 + torch.exp(-x))
        ctx.save_for_backward(x)
        ctx.y = y
        return y
    @staticmethod
    def backward(ctx, g):
        return g * ctx.y * (1.0 - ctx.y)
x, y = torch.randn(20, 2), torch.randint(0, 2, (20,))
first, last = nn.Linear(2, 8), nn.Linear(8, 2)
opt = torch.optim.SGD([*first.parameters(), *last.parameters()], lr=0.1)
for k in range(200):
    loss = F.cross_entropy(last(Logistic.apply(first(x))), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
"""


def test_rounds_that_leave_finished_graphs_alive_are_left_out_like_others() -> None:
    """A custom Function that keeps its own result on ``ctx`` leaves a cycle behind in each round."""
    trace = sampled(LEAKS)
    assert trace.stopped is None
    assert not trace.disagreements
    assert trace.unseen
    assert len(trace.events) < 2000


@pytest.mark.parametrize(
    "statement", ["total = total + loss", "total = loss + total", "total += loss", "kept.append(loss)"]
)
def test_losses_that_are_kept_in_a_loop_that_is_sampled_are_found(statement: str) -> None:
    text = HEAD.replace("optimizer.step()\n", "optimizer.step()\n    return loss\n") + "total, kept = 0.0, []\n"
    text += ROUNDS + f"    loss = step(x, y)\n    {statement}\nprint(total)\n"
    trace = sampled(text)
    assert trace.unseen
    assert ("graph-kept-alive", line_of(text, statement)) in [(each.name, each.span.line) for each in find(trace)]


@pytest.mark.parametrize("code", ["PL511", "PL616"])
def test_what_a_rule_finds_in_a_few_rounds_it_finds_in_many_of_which_some_are_left_out(code: str) -> None:
    [rule] = [each for each in RULES if each.code == code]
    many = re.sub(r"range\(\d+\)", "range(60)", rule.bad)
    assert many != rule.bad
    trace = sampled(many)
    assert trace.unseen
    assert code in [each.rule for each in find(trace)]
    assert code not in [each.rule for each in find(sampled(re.sub(r"range\(\d+\)", "range(60)", rule.good)))]
