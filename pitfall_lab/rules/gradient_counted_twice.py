"""PL610: a backward started from a sum that an earlier backward had gone through already: the same gradient was added
to ``.grad`` twice.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.training import Moment, cells, is_nothing, lives, stepper
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression, gradient_of, numbers
from pitfall_lab.trace import Event, T

SUMS = ("AddBackward", "SubBackward", "SumBackward", "MeanBackward", "StackBackward", "CatBackward", "MulBackward",
        "DivBackward", "UnsqueezeBackward", "ViewBackward", "SqueezeBackward")  # fmt: skip
"""Prefixes of the names of graph nodes between a sum of losses and its terms: of sums, and of terms multiplied by a
weight.
"""


@dataclass(frozen=True, slots=True)
class GradientCountedTwice:
    """``first`` and ``second`` are the moments (:class:`Moment`) of two backwards that added the same part of the
    gradient of the leaf ``label``.

    ``used`` is the step of the call that used the sum. ``update`` is True if that is an update, by an optimizer or by
    hand; False if the sum was only read.
    """

    label: str
    first: Moment
    second: Moment
    used: int
    update: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of lines whose backwards added the same part of a leaf's gradient before the sum
    was used; both may be one line.
    """
    graphs, reported = _Graphs(story), set()
    for label, moments in lives(story).items():
        for found in _twice(graphs, label, moments):
            place = (story.span(found.first.step), story.span(found.second.step))
            if place not in reported:
                reported.add(place)
                yield _finding(story, found)


def _twice(graphs: _Graphs, label: str, moments: list[Moment]) -> Iterator[GradientCountedTwice]:
    """Yield the pairs of backwards of one leaf of which the second one contains the first one's start, and whose sum
    was used; each second backward once.
    """
    held: list[Moment] = []
    for index, moment in enumerate(moments):
        if moment.kind in ("cleared", "used") or moment.fresh:
            held = []
        if moment.kind != "added":
            continue
        first = next((each for each in held if graphs.contains(moment.event, each.event)), None)
        held.append(moment)
        used = _used(graphs, first, moment, moments[index + 1 :]) if first is not None else None
        if first is not None and used is not None:
            yield GradientCountedTwice(label, first, moment, *used)


class _Graphs:
    """The nodes in the graphs of the tensors from which backwards started, each searched once."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self._behind: dict[int, set[str]] = {}

    def behind(self, backward: Event) -> set[str]:
        """Return all nodes that the backward reaches."""
        if backward.step not in self._behind:
            self._behind[backward.step] = set(self.story.behind(self.start(backward)))
        return self._behind[backward.step]

    def start(self, backward: Event) -> str | None:
        """Return the graph node from which a backward started with the gradient 1; None if it started with another
        gradient, from several tensors, or without a graph.
        """
        labels = [operand.label for operand in backward.operands if operand.label is not None]
        alone = len(labels) == 1 or (labels and backward.name == "grad")  # the others are what is differentiated for
        node = (self.story.tensor(labels[0], backward.step) or {}).get("grad_fn") if alone else None
        return str(node) if node is not None else None

    def contains(self, later: Event, earlier: Event) -> bool:
        """Whether the graph of the later backward contains the tensor from which the earlier one started."""
        start = self.start(earlier)
        return start is not None and later.step != earlier.step and start in self.behind(later)

    def adds(self, later: Event, earlier: Event) -> bool:
        """Whether the backward ``later`` started from a sum of which the root of the backward ``earlier`` is a term."""
        story, wanted, pending = self.story, self.start(earlier), [self.start(later)]
        seen = set[str | None](pending)
        while pending:
            node = story.record("nodes", pending.pop()) or {}
            if str(node.get("name")).startswith(SUMS):
                following = [each for each in node.get("next") or () if each not in seen]
                if wanted in following:
                    return True
                seen.update(following)
                pending += following
        return False


def _used(graphs: _Graphs, first: Moment, second: Moment, later: list[Moment]) -> tuple[int, bool] | None:
    """Return the step at which the sum was used, and whether by an update; None if it was not used as the gradient of
    the later start.

    A program that only reads its gradients may do so to show that they add up. Therefore, without an update, the later
    start has to be a sum of which the earlier start is a term, and no call between the two may read the gradient for
    anything else than the second backward.
    """
    following = next((m for m in later if m.kind in ("used", "cleared")), None)
    if following is not None and following.kind == "used":
        return following.step, True
    if not graphs.adds(second.event, first.event):
        return None
    story, until = graphs.story, following.step if following is not None else len(graphs.story.events)
    behind = graphs.behind(second.event)
    reads = [
        use
        for label in dict.fromkeys((first.grad, second.grad))
        for use in story.uses(label)
        if use.step < until and not use.writes
    ]
    between = [use for use in reads if first.step < use.step < second.step]
    if any(
        (story.tensor(result, use.step) or {}).get("grad_fn") not in behind
        for use in between
        for result in use.results or (None,)
    ):
        return None
    return next(((use.step, False) for use in reads if use.step > second.step), None)


def _finding(story: Story, found: GradientCountedTwice) -> Finding:
    label, first, second = found.label, found.first, found.second
    gradient = gradient_of(called(story, label, None, second.step))
    here, before, use = (at_line(story, story.span(step)) for step in (second.step, first.step, found.used))
    again, part = (expression(story, m.event.operands[0].label, m.step) for m in (second, first))
    held = [cells(story, m.storage, m.step) for m in (first, second)]
    known = held[0] is not None and held[1] is not None and not is_nothing(story, first.storage, first.step)
    shown = T(
        en=(
            f" {capital(gradient.en)} is {numbers(held[0])} after the first of them, "
            f"{numbers(held[1])} after the second."
        )
        if known
        else "",
        zh=f"第一次之后 {gradient.zh} 是 {numbers(held[0])}，第二次之后是 {numbers(held[1])}。" if known else "",
    )
    then = T(en="the update", zh="更新") if found.update else T(en=f"{use.en} reads it", zh=f"{use.zh}读取它")
    same_line = story.span(first.step) == story.span(second.step)
    same_name = same_line and again.en == part.en
    inside = (
        T(en="its own value of the round before", zh="它自己上一轮的值")
        if same_name
        else T(en=part.en, zh=f" {part.zh}")
    )
    return RULE.finding(
        story.span(second.step),
        first.step,
        T(
            en=f"{capital(here.en)} goes back through what {'it' if same_line else before.en} had gone "
            f"back through{' in the round before' if same_line else ''}, so the same gradient is added "
            f"twice before {then.en}.",
            zh=f"{here.zh}再次穿过{'上一轮' if same_line else before.zh}已经回传过的部分，所以在{then.zh}之前，同"
            "样的梯度被加了两次。",
        ),
        T(
            en=f"{capital(again.en)} contains {inside.en}, whose gradient is in `.grad` already.{shown.en} Each "
            "backward adds the gradient of everything that its start was computed from.",
            zh=f"{again.zh} 包含{inside.zh}，而后者的梯度已经在 `.grad` 里了。{shown.zh}每次反向传播都会加上起"
            "点所依赖的一切的梯度。",
        ),
        related=[
            story.related(
                "backward", first.step, T(en="the gradient is added for the first time", zh="梯度第一次被加上")
            ),
            story.related("used", second.step, T(en="and here once more", zh="在这里又加了一次")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("tensor", label, story.by(second.step)), Fact("first", held[0]), Fact("second", held[1])],
    )


def _fixes(story: Story, found: GradientCountedTwice) -> tuple[Fix, ...]:
    """Fixes with one backward after the loop that builds the sum, without the earlier backward, or with the earlier
    backward's gradient kept out of ``.grad``.
    """
    program = story.program
    places = (
        [program.statement_at(story.span(m.step)) for m in (found.first, found.second)]
        if program.tree is not None
        else [None, None]
    )
    one, other = places
    if one is None or other is None:
        return ()
    candidates: list[Fix | None] = []
    loop = next((a for a in program.ancestors(other) if isinstance(a, ast.For | ast.While)), None)
    if one is other and loop is not None and program.stands_alone(other):
        text, graphs = indented(program, other, program.indent(loop)).strip(), _Graphs(story)
        if not any(
            graphs.contains(later, found.second.event)
            for later in story.backwards()
            if later.span != found.second.event.span
        ):
            text = text.replace("retain_graph=True", "")
        candidates.append(_after_the_loop(program, other, loop, text))
    elif one is not other and (call := _backward_in(one)) is not None:
        title = T(en=f"Go back only once: leave line {one.lineno} out", zh=f"只回传一次：去掉第 {one.lineno} 行")
        candidates.append(Fix(title, program.delete(one), meaning="later"))
        candidates += [*_as_results(program, one, call), *_cleared(story, found, other)]
    return unique(program.text, candidates)


def _after_the_loop(program: Program, statement: ast.stmt, loop: ast.For | ast.While, text: str) -> Fix | None:
    """The fix that moves the backward to after the loop; None if the edits overlap."""
    title = T(en="Go back once, after the loop", zh="在循环之后只回传一次")
    after, last, ends = (
        program.indent(loop) + text + "\n",
        program.place(loop).end_line,
        program.place(statement).end_line,
    )
    at_the_end = ends == last and len(program.block(statement)) > 1
    moved = (
        (Edit(statement.lineno, last, after),)
        if at_the_end
        else merge(program.delete(statement), program.insert_after(loop, text))
    )
    return Fix(title, moved, meaning="later") if moved else None


def _backward_in(statement: ast.stmt) -> ast.Call | None:
    return next((n for n in ast.walk(statement) if isinstance(n, ast.Call) and call_name(n) == "backward"), None)


def _as_results(program: Program, statement: ast.stmt, call: ast.Call) -> Iterator[Fix]:
    """Yield fixes that take the gradients from ``torch.autograd.grad`` where a comprehension after the backward reads
    ``p.grad``.

    There is one for each such comprehension with one loop, no ``if``, and no other use of the parameter.
    """
    torch, function = torch_name(program), call.func
    if torch is None or not isinstance(function, ast.Attribute) or not program.stands_alone(statement):
        return
    for node in program.nodes:
        if (
            not isinstance(node, ast.GeneratorExp | ast.ListComp)
            or node.lineno <= statement.lineno
            or len(node.generators) != 1
        ):
            continue
        source, variable = node.generators[0].iter, node.generators[0].target
        named = [
            n
            for n in ast.walk(node.elt)
            if isinstance(n, ast.Name) and isinstance(variable, ast.Name) and n.id == variable.id
        ]
        reads = [program.parents[n] for n in named]
        if (
            not reads
            or not all(isinstance(n, ast.Attribute) and n.attr == "grad" for n in reads)
            or node.generators[0].ifs
        ):
            continue
        keywords = "".join(f", {program.segment(k)}" for k in call.keywords)
        result = f"{torch}.autograd.grad({program.segment(function.value)}, {program.segment(source)}{keywords})"
        name = "g" if program.segment(variable) != "g" else "slope"
        edits = merge(
            program.delete(statement), program.replace((variable, name), (source, result), *((n, name) for n in reads))
        )
        title = T(
            en="Take these gradients as results, and leave `.grad` alone", zh="把这些梯度作为结果取出，不改动 `.grad`"
        )
        if edits:
            yield Fix(title, edits, meaning="later")


def _cleared(story: Story, found: GradientCountedTwice, second: ast.stmt) -> Iterator[Fix]:
    """Yield fixes that clear the gradients before the second backward, by ``zero_grad()`` of the optimizer or of the
    module.
    """
    program = story.program
    names = [stepper(story, found.used) if found.update else None, (story.name(found.label) or "").split(".")[0]]
    known = {
        n.id
        for n in program.nodes
        if isinstance(n, ast.Name) and program.function(n) in (program.function(second), None)
    }
    for name in names:
        if name in known and program.stands_alone(second):
            line = f"{name}.zero_grad()"
            title = T(
                en=f"Clear the gradients of the first backward: `{line}`", zh=f"清除第一次反向传播的梯度：`{line}`"
            )
            yield Fix(title, program.insert_before(second, line), meaning="later")


RULE = Rule(
    code="PL610",
    name="gradient-counted-twice",
    severity="warning",
    title=T(en="The same gradient was added twice", zh="同样的梯度被加了两次"),
    what=T(
        en="A program added up its losses and called `backward()` on the running sum in every round. Each call goes "
        "back through all the earlier losses again, so the first ones count several times. Go back from each loss "
        "alone, or once from the whole sum.",
        zh="程序把损失累加起来，并在每一轮对累计和调用 `backward()`。每次调用都会再次穿过之前的所有损失，所以最早的损"
        "失被计算了多次。请只对每个损失单独回传，或者对总和只回传一次。",
    ),
    why=T(
        en="`backward()` computes the gradient of its start with respect to everything behind it, and *adds* it "
        "to what is in `.grad`. It does not know what was added before. Torch frees a graph after the first "
        "backward, so that this mistake would raise; `retain_graph=True`, or operations that keep nothing for "
        "backward, let it pass. Two losses that only share a part of the network are another thing: their "
        "gradients are different and belong together.",
        zh="`backward()` 计算起点对它背后一切的梯度，并*加*到 `.grad` 里已有的值上。它不知道之前加过什么。torch 在第一"
        "次反向传播后释放计算图，本来会报错；`retain_graph=True`，或者不为反向传播保存任何东西的操作，让它通过了。两个"
        "损失只是共用网络的一部分，则是另一回事：它们的梯度不同，本来就该相加。",
    ),
    bad="""import torch

w = torch.tensor(1.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
total = 0.0
for x in (2.0, 3.0):
    total = total + (w * x - 1).square()
    total.backward(retain_graph=True)  # PL610 used
opt.step()
print(w.grad)
""",
    good="""import torch

w = torch.tensor(1.0, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
total = 0.0
for x in (2.0, 3.0):
    total = total + (w * x - 1).square()
total.backward()
opt.step()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "total = total + (w * x - 1).square()",
            "total = (total + (w * x - 1).square()).clone()",
            T(
                en="`clone()` copies the numbers and keeps the graph.",
                zh="`clone()` 复制数值，仍保留回去的路。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",),
)
