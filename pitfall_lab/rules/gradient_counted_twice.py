"""PL610: a backward started from a sum that an earlier one had gone through already: the same gradient went into ``.grad`` twice."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import Moment, cells, is_nothing, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression, gradient_of, numbers
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """One finding for each pair of backwards that added the same part of a gradient twice before an update used it."""
    reported = set()
    for label, moments in lives(story).items():
        for number, (first, second) in enumerate(pairwise(moments)):
            if first.kind != "added" or second.kind != "added" or first.event.step == second.event.step:
                continue
            place = (story.span(first.step), story.span(second.step))
            if place not in reported and _used(moments[number + 2 :]) and _contains(story, second.event, first.event):
                reported.add(place)
                yield _finding(story, label, first, second)


def _used(later: list[Moment]) -> bool:
    """Whether an optimizer uses the gradient before it is cleared."""
    return next((m.kind == "used" for m in later if m.kind in ("used", "cleared")), False)


def _contains(story: Story, later: Event, earlier: Event) -> bool:
    """Whether the graph of the later backward contains the tensor from which the earlier one started.

    False if one of the two was given a gradient or other tensors.
    """
    nodes = [(story.tensor(b.operands[0].label, b.step) or {}).get("grad_fn") if b.operands else None for b in (later, earlier)]
    plain = all(sum(o.label is not None for o in backward.operands) == 1 for backward in (later, earlier))
    return nodes[1] is not None and plain and nodes[1] in set(story.behind(nodes[0]))


def _finding(story: Story, label: str, first: Moment, second: Moment) -> Finding:
    gradient = gradient_of(called(story, label, None, second.step))
    here, before = at_line(story, story.span(second.step)), at_line(story, story.span(first.step))
    again, part = (expression(story, m.event.operands[0].label, m.step) for m in (second, first))
    held = [cells(story, m.storage, m.step) for m in (first, second)]
    known = held[0] is not None and held[1] is not None and not is_nothing(story, first.storage, first.step)
    shown = T(
        en=f" {capital(gradient.en)} is {numbers(held[0])} after the first of them, {numbers(held[1])} after the second." if known else "",
        zh=f"第一次之后 {gradient.zh} 是 {numbers(held[0])}，第二次之后是 {numbers(held[1])}。" if known else "",
    )
    same_line = story.span(first.step) == story.span(second.step)
    return RULE.finding(
        story.span(second.step), first.step,
        T(
            en=f"{capital(here.en)} goes back through what {'it' if same_line else before.en} had gone back through"
            f"{' in the round before' if same_line else ''}, so the same gradient is added twice before the update.",
            zh=f"{here.zh}再次穿过{'上一轮' if same_line else before.zh}已经回传过的部分，所以在更新之前，同样的梯度被加了两次。",
        ),
        T(
            en=f"{capital(again.en)} contains {part.en}, whose gradient is in `.grad` already.{shown.en} Each backward adds the "
            f"gradient of "
            "everything that its start was computed from.",
            zh=f"{again.zh} 包含 {part.zh}，而后者的梯度已经在 `.grad` 里了。{shown.zh}每次反向传播都会加上起点所依赖的一切的梯度。",
        ),
        related=[
            story.related("backward", first.step, T(en="the gradient is added for the first time", zh="梯度第一次被加上")),
            story.related("used", second.step, T(en="and here once more", zh="在这里又加了一次")),
        ],
        fixes=_fixes(story, first, second),
        facts=[Fact("tensor", label, story.by(second.step)), Fact("first", held[0]), Fact("second", held[1])],
    )  # fmt: skip


def _fixes(story: Story, first: Moment, second: Moment) -> tuple[Fix, ...]:
    """Fixes: one backward after the loop that builds the sum, or only the later of the two backwards.

    Empty if the backwards have no statements in the program, or one that cannot be moved.
    """
    program = story.program
    places = [program.statement_at(story.span(m.step)) for m in (first, second)] if program.tree is not None else [None, None]
    one, other = places
    if one is None or other is None:
        return ()
    candidates: list[Fix | None] = []
    loop = next((a for a in program.ancestors(other) if isinstance(a, ast.For | ast.While)), None)
    if one is other and loop is not None and program.stands_alone(other):
        text = indented(program, other, program.indent(loop)).strip().replace("retain_graph=True", "")
        title = T(en="Go back once, after the loop", zh="在循环之后只回传一次")
        after, last = program.indent(loop) + text + "\n", program.place(loop).end_line
        ends = program.place(other).end_line == last and len(program.block(other)) > 1
        moved = (Edit(other.lineno, last, after),) if ends else merge(program.delete(other), program.insert_after(loop, text))
        candidates.append(Fix(title, moved, meaning="later") if moved else None)
    elif one is not other and any(isinstance(n, ast.Call) and call_name(n) == "backward" for n in ast.walk(one)):
        title = T(en=f"Go back only once: leave line {one.lineno} out", zh=f"只回传一次：去掉第 {one.lineno} 行")
        candidates.append(Fix(title, program.delete(one), meaning="later"))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL610",
    name="gradient-counted-twice",
    severity="warning",
    title=T(en="The same gradient was added twice", zh="同样的梯度被加了两次"),
    what=T(
        en="A program added up its losses and called `backward()` on the running sum in every round. Each call goes back through all the "
        "earlier losses again, so the first ones count several times. Go back from each loss alone, or once from the whole sum.",
        zh="程序把损失累加起来，并在每一轮对累计和调用 `backward()`。每次调用都会再次穿过之前的所有损失，所以最早的损失被计算了多次。"
        "请只对每个"
        "损失单独回传，或者对总和只回传一次。",
    ),
    why=T(
        en="`backward()` computes the gradient of its start with respect to everything behind it, and *adds* it to what is in "
        "`.grad`. It does "
        "not know what was added before. Torch frees a graph after the first backward, so that this mistake would raise; "
        "`retain_graph=True`, or operations that keep nothing for backward, let it pass. Two losses that only share a part of the "
        "network are another thing: their gradients are different and belong together.",
        zh="`backward()` 计算起点对它背后一切的梯度，并*加*到 `.grad` 里已有的值上。它不知道之前加过什么。torch 在第一次反向传播后释放"
        "计算图，本来"
        "会报错；`retain_graph=True`，或者不为反向传播保存任何东西的操作，让它通过了。两个损失只是共用网络的一部分，则是另一回事：它们的梯度不"
        "同，本来就该相加。",
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
