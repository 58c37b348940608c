"""PL518: a loss compares a result with the same result computed again, so it never changes and its gradient cancels."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

COMPARES = spellings("div", "sub") | operations_that("difference_loss") | {"pairwise_distance", "triplet_margin_loss"}
DISTANCES = operations_that("difference_loss") | {"pairwise_distance", "triplet_margin_loss"}
"""Distances: 0 with gradient 0 where both sides are equal, also if one of the sides is a constant."""
QUOTIENTS = spellings("div")
CHANCE = {
    "rand",
    "dropout",
    "bernoulli",
    "normal",
    "multinomial",
    "sample",
    "perm",
    "exponential",
    "empty",
    "gumbel",
    "rrelu",
    "apply",
}
ROUNDS = 2
DEEP = 2000


@dataclass(frozen=True, slots=True)
class Same:
    """One line compares a result with the same result computed again.

    ``events`` are its calls (``Event``), one in each iteration; in each of them both operands are results of the same
    calls with the same inputs. ``one`` and ``other`` are the labels of the operands of the first call.
    """

    events: tuple[Event, ...]
    one: str
    other: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares two equal results that require grad (for a distance or a ratio of
    probabilities one of the two suffices), in each of at least ``ROUNDS`` iterations, where a backward went through the
    comparison.

    An optimizer step must lie between the iterations; a ratio (``exp(new - old)``) must also be computed from the same
    data on both sides of a step.
    """
    if not story.trace.optimizer_steps:
        return
    same, places = Sameness(story), defaultdict(list)
    for event in story.calls(*COMPARES):
        labels = [operand.label for operand in event.operands[:2] if operand.label is not None]
        if event.error is None and len(labels) == 2 and _both_trained(story, labels, event):
            places[event.span].append((event, labels))
    for rounds in places.values():
        if len(rounds) >= ROUNDS and all(same.key(a, e.step) == same.key(b, e.step) for e, (a, b) in rounds):
            (_, labels), events = rounds[0], tuple(event for event, _ in rounds)
            steps = [update.step for update in story.trace.optimizer_steps]
            if any(_is_ratio(story, event, pair) for event, pair in rounds) and not _on_the_same_data(
                story, rounds, steps
            ):
                continue
            if any(events[0].step < step <= events[-1].step for step in steps):
                yield _finding(story, Same(events, labels[0], labels[1]))


def _both_trained(story: Story, labels: list[str], event: Event) -> bool:
    """Whether a backward went through the comparison, and both operands are results that require grad.

    For a distance, or for a ratio of probabilities (:func:`_is_ratio`), it suffices that one of the two does.
    """
    records = [story.tensor(label, event.step) or {} for label in labels]
    node = story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn")) or {}
    graphs = [bool(record.get("requires_grad") and not record.get("is_leaf")) for record in records]
    return node.get("ran") is not None and (
        any(graphs) if event.name in DISTANCES else all(graphs) or _is_ratio(story, event, labels)
    )


def _is_ratio(story: Story, event: Event, labels: list[str]) -> bool:
    """Whether the call is the difference in ``exp(new - old)``, a ratio of probabilities, where exactly one side
    requires grad and the other was computed without a graph.
    """
    graphs = [bool((story.tensor(label, event.step) or {}).get("requires_grad")) for label in labels]
    if (
        sum(graphs) != 1
        or event.name in DISTANCES | QUOTIENTS
        or not any(use.name == "exp" for use in story.uses(event.results[0]))
    ):
        return False
    plain = origin(story, labels[graphs.index(False)], event.step)
    return plain is not None and not (story.tensor(plain.results[0], plain.step) or {}).get("requires_grad")


def _on_the_same_data(story: Story, rounds: list[tuple[Event, list[str]]], updates: list[int]) -> bool:
    """Whether two successive iterations, with an update between them, compute both sides from the same data: the
    program then ought to store the old side and use it again.
    """
    given = [(event, _data(story, labels[0], event.step)) for event, labels in rounds]
    return any(
        one == other and one and any(a.step < step <= b.step for step in updates)
        for (a, one), (b, other) in pairwise(given)
    )


def _data(story: Story, label: str, step: int) -> set[str]:
    """The tensors that a result was computed from and that no call computed from others,
    without those that require grad.
    """
    found, pending, seen = set[str](), [label], {label}
    while pending and len(seen) < DEEP:
        here = pending.pop()
        record = story.tensor(here, step) or {}
        event = story.event(record.get("born"))
        given = (
            [o.label for o in event.operands if o.label is not None]
            if event is not None and here in event.results
            else []
        )
        if not given and not record.get("requires_grad"):
            found.add(here)
        pending += [each for each in given if each not in seen]
        seen.update(given)
    return found


class Sameness:
    """Numbers the computations of a trace: two tensors with equal numbers were computed by the same calls from the same
    values.
    """

    def __init__(self, story: Story) -> None:
        self.story = story
        self._numbers: dict[object, int] = {}
        self._of: dict[str, int] = {}
        self._writes: dict[str, list[int]] = defaultdict(list)
        for event in story.events:
            for storage in event.writes:
                self._writes[storage].append(event.step)

    def key(self, label: str, step: int) -> int:
        """Return the number of the computation that made the tensor ``label``, as it was before ``step``.

        Tensors with equal numbers have equal values. The number of a label is computed once, by the first call.
        """
        pending = [label]
        while pending:
            here = pending[-1]
            if here in self._of:
                pending.pop()
                continue
            event = self._made(here, step)
            given = [o.label for o in event.operands if o.label is not None] if event is not None else []
            missing = [each for each in given if each not in self._of and self._made(each, step) is not None]
            if missing and len(pending) < DEEP:
                pending += missing
                continue
            pending.pop()
            self._of[here] = self._number(here, event)
        return self._of[label]

    def _made(self, label: str, step: int) -> Event | None:
        """Return the call that computed ``label``; None if the tensor counts as an input.

        It counts as an input if no call with operands made it, if it is a leaf that requires grad, if it was drawn at
        random, or if its storage was written in place at any time.
        """
        record = self.story.tensor(label, step) or {}
        event = self.story.event(record.get("born"))
        if (
            event is None
            or event.kind != "call"
            or label not in event.results
            or (record.get("is_leaf") and record.get("requires_grad"))
        ):
            return None
        if any(word in event.name for word in CHANCE) or not event.operands:
            return None
        return None if len(self._writes.get(str(record.get("storage")), ())) > 0 else event

    def _number(self, label: str, event: Event | None) -> int:
        key: object = label
        if event is not None:
            given = tuple(
                self._input(o.label, event.step) if o.label is not None else (o.name, o.text) for o in event.operands
            )
            if event.name in ("clone", "detach") and isinstance(given[0], int):
                return given[0]
            key = (event.op, given, event.results.index(label))
        return self._numbers.setdefault(key, len(self._numbers))

    def _input(self, label: str, step: int) -> object:
        """Return the number of the computation of an operand, or, for a tensor that counts as an input, its label and
        the number of writes to it so far.
        """
        if self._made(label, step) is not None and label in self._of:
            return self._of[label]
        writes = self._writes.get(str((self.story.tensor(label, step) or {}).get("storage")), ())
        return label, bisect_left(writes, step)


def _finding(story: Story, found: Same) -> Finding:
    event = found.events[0]
    ratio = _is_ratio(story, event, [found.one, found.other])
    span, here = story.span(event.step), at_line(story, story.span(event.step))
    one, other = (expression(story, label, event.step) for label in (found.one, found.other))
    value, is_again = "1" if event.name in QUOTIENTS else "0", found.one != found.other
    born = (story.tensor(found.other) or {}).get("born")
    what = T(en="the result", zh="结果")
    if event.name == "triplet_margin_loss":
        what = T(en="their distance", zh="两者的距离")
    again = T(en=f"{other.en}, which is the same computation once more", zh=f"{other.zh}相比，而后者是同样的计算")
    if not is_again:
        again = T(en="itself", zh="它自己相比")
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} compares {one.en} with {again.en}: {what.en} is {value} in each of "
            f"{len(found.events)} rounds.",
            zh=f"{here.zh}把 {one.zh} 与 {again.zh}：{len(found.events)} 轮里{what.zh}都是 {value}。",
        ),
        _why(story, found),
        related=[story.related("made", born, T(en="the same computation as the other side", zh="与另一边相同的计算"))],
        fixes=_taken_once(story, found) if ratio else _fixes(story, event, found.other) if is_again else (),
        facts=[Fact("value", value, story.by(event.step)), Fact("rounds", len(found.events), story.by(event.step))],
    )


def _why(story: Story, found: Same) -> T:
    if all((story.tensor(label) or {}).get("requires_grad") for label in (found.one, found.other)):
        return T(
            en="Both were computed by the same calls from the same weights and inputs, in the same round. Their "
            "gradients are equal too and meet here with opposite signs, so nothing is learned from the comparison. "
            "What belongs to an earlier moment has to be computed then, without a graph, and kept.",
            zh="两者在同一轮里由同样的调用、同样的权重与输入算出。它们的梯度也相等，在这里以相反的符号相遇，所以从这个"
            "比较学不到任何东西。属于较早时刻的值必须在那时不带计算图地算出并保存。",
        )
    if _is_ratio(story, found.events[0], [found.one, found.other]):
        return T(
            en="Both were computed by the same calls from the same weights and inputs, so the quotient of the two is "
            "always 1, and a limit on how far it moves never acts. The side without a graph belongs to the weights "
            "*before* the first update with this data: compute it there, once, and keep it for all updates.",
            zh="两者由同样的调用、同样的权重与输入算出，所以它们的比值总是 1，限制它变动的范围也从不起作用。没有计算图"
            "的一边属于用这批数据*第一次更新之前*的权重：请在那里算一次，并在所有更新中沿用。",
        )
    return T(
        en="Both were computed by the same calls from the same weights and inputs. A distance of 0 has the gradient "
        "0, so nothing is learned from it: the two networks are one, or the target is the prediction itself. What is "
        "to be followed needs weights, or inputs, of its own.",
        zh="两者由同样的调用、同样的权重与输入算出。距离为 0 时梯度也是 0，所以学不到任何东西：两个网络其实是同一个，"
        "或者目标就是预测本身。要追随的对象需要有自己的权重或输入。",
    )


def _taken_once(story: Story, found: Same) -> tuple[Fix, ...]:
    """At most one fix: it computes the side without a graph before the loop over the updates.

    Empty if the statement of that side is not directly in the loop, or reads a variable that other statements of the
    loop assign.
    """
    program, event = story.program, found.events[0]
    plain = [o for o in (found.one, found.other) if not (story.tensor(o, event.step) or {}).get("requires_grad")]
    made = story.event((story.tensor(plain[0], event.step) or {}).get("born")) if len(plain) == 1 else None
    moved, loop = next(_in_loops(story, made), (None, None))
    if moved is None or loop is None or len(loop.body) == 1:
        return ()
    own = set(ast.walk(moved))
    names = [n for n in ast.walk(loop) if isinstance(n, ast.Name)]
    read = {n.id for n in names if n in own and isinstance(n.ctx, ast.Load)}
    if read & {n.id for n in names if n not in own and isinstance(n.ctx, ast.Store)} or not program.stands_alone(moved):
        return ()
    first, *rest = program.segment(moved).split("\n")
    lines = [first, *(each.removeprefix(program.indent(moved)) for each in rest)]
    edits = merge(program.delete(moved), program.insert_before(loop, *lines))
    title = T(en="Compute it once, before the updates", zh="在更新之前计算一次")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()


def _in_loops(story: Story, made: Event | None) -> Iterator[tuple[ast.stmt, ast.For | ast.While]]:
    """Yield the assignments that were being executed at a call and are in a loop's body, innermost first, each with the
    loop.

    An assignment that is the only statement of a ``with`` is given as that ``with``.
    """
    program = story.program
    for statement in call_chain(story, made):
        moved = statement
        while isinstance(parent := program.parents.get(moved), ast.With) and len(parent.body) == 1:
            moved = parent
        loop = program.parents.get(moved)
        if isinstance(statement, ast.Assign) and isinstance(loop, ast.For | ast.While) and moved in loop.body:
            yield moved, loop


def _fixes(story: Story, event: Event, other: str) -> tuple[Fix, ...]:
    program = story.program
    node = written_as(story, event, other) if program.tree is not None else None
    if not isinstance(node, ast.expr) or event.name in DISTANCES:
        return ()
    title = T(
        en=f"Take it as a constant: `{snippet(story, program.place(node))}.detach()`",
        zh=f"把它当作常数：`{snippet(story, program.place(node))}.detach()`",
    )
    return unique(
        program.text,
        [Fix(title, program.replace((node, f"{in_parentheses(program, node)}.detach()")), meaning="later")],
    )


RULE = Rule(
    code="PL518",
    name="compared-with-itself",
    severity="warning",
    title=T(
        en="A loss compares a result with the same result computed again", zh="损失把一个结果与它自己的重复计算相比"
    ),
    what=T(
        en="A program compares new results with old ones to see how far it has moved, but computes the old ones anew "
        "in each round, with the new weights. Both are always equal. Compute the old results once, before the "
        "updates, and keep them.",
        zh="程序想把新结果与旧结果相比，看走了多远，却在每一轮都用新的权重重新计算旧结果。两者总是相等。请在更新之前计"
        "算一次旧结果并保存。",
    ),
    why=T(
        en="In policy gradients the ratio `exp(new - old)` of two log-probabilities is 1 in the first round, and its "
        "gradient is that of `new` alone, as long as `old` is a constant. If `old` has a graph as well, backward goes "
        "into both, and as they are the same function of the same weights, the two gradients cancel exactly. A "
        "clipped ratio that is always 1 is never clipped either. `detach()` makes the value a constant; "
        "`torch.no_grad()` does it for a block.",
        zh="在策略梯度里，两个对数概率之比 `exp(new - old)` 在第一轮是 1；只要 `old` 是常数，它的梯度就是 `new` 的梯"
        "度。若 `old` 也带着计算图，反向传播会进入两边，而它们是同样权重的同一个函数，两份梯度恰好抵消。始终为 1 的比"
        "值也永远不会被截断。`detach()` 把这个值变成常数；`torch.no_grad()` 对整个代码块这样做。",
    ),
    bad="""import torch

torch.manual_seed(0)
policy = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.5)
states, actions, gains = torch.randn(4, 3), torch.tensor([[0], [1], [1], [0]]), torch.randn(4, 1)
for _ in range(3):
    old = torch.log_softmax(policy(states), 1).gather(1, actions)  # made
    new = torch.log_softmax(policy(states), 1).gather(1, actions)
    ratio = torch.exp(new - old)  # PL518
    loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), policy.weight.grad.abs().sum().item())
""",
    good="""import torch

torch.manual_seed(0)
policy = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(policy.parameters(), lr=0.5)
states, actions, gains = torch.randn(4, 3), torch.tensor([[0], [1], [1], [0]]), torch.randn(4, 1)
for _ in range(3):
    old = torch.log_softmax(policy(states), 1).gather(1, actions)
    new = torch.log_softmax(policy(states), 1).gather(1, actions)
    ratio = torch.exp(new - old.detach())
    loss = -torch.min(ratio * gains, ratio.clamp(0.8, 1.2) * gains).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), policy.weight.grad.abs().sum().item())
""",
    find=find,
    traps=(
        Trap(
            "old = torch.log_softmax(policy(states), 1).gather(1, actions)",
            "old = torch.log_softmax(policy(states), 1).gather(1, actions).clone()",
            T(
                en="A clone has memory of its own, but backward goes through it to the same weights.",
                zh="克隆有自己的内存，但反向传播会穿过它到达同样的权重。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
    ),
)
