"""PL503: each iteration of a loop runs backward through a computation that was done once, before the loop."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Loop, Reuse, builders, indented, loops_around, reuses
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.old_values import Old, old_values
from pitfall_lab.trace import Event, T

ROUNDS = 2
"""The least number of backwards, each followed by an update, for a repeated backward to count as training."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loop in which an iteration's graph had been freed by an earlier iteration, because it
    was built before the loop; and one for each line of backward in a loop that goes at least ``ROUNDS`` times through a
    graph of old parameter values, with an update after each.
    """
    for reuse in reuses(story):
        loop = reuse.loop()
        if loop is not None and not reuse.built_in(loop):
            yield _finding(reuse, loop)
    reported = set()
    for old in old_values(story):
        loop, place = next(iter(loops_around(story, old.backward)), None), story.span(old.backward.step)
        if loop is not None and not old.new and place not in reported and _rounds(story, old) >= ROUNDS:
            reported.add(place)
            yield _silent(story, old, loop)


def _rounds(story: Story, old: Old) -> int:
    """Return the number of backwards that went through the old value and were followed by an update of the parameter
    before the next one.
    """
    updates = [m.step for m in lives(story)[old.leaf] if m.kind == "used"]
    ran = [step for step, value in story.history("nodes", old.old[0], "ran") if value is not None]
    return sum(any(a < step < b for step in updates) for a, b in pairwise([*ran, len(story.events)]))


def _silent(story: Story, old: Old, loop: Loop) -> Finding:
    """Return the finding about a loop in which torch raises no error, because the graph is retained, or because nothing
    was saved for backward.
    """
    step, born = old.backward.step, (story.record("nodes", old.old[0]) or {}).get("born")
    here, built, update = (at_line(story, story.span(each)) for each in (step, born, old.update))
    name = called(story, old.leaf, None, step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} runs in a loop, but what it goes back through was computed once, on {built.en}, "
            f"before the loop: {name.en} changes in every round, and what was computed from it does not.",
            zh=f"{here.zh}在循环里运行，但它往回走时要经过的计算只在循环之前（{built.zh}）做过一次：{name.zh} 每一轮都"
            "在变，由它算出的结果却不变。",
        ),
        T(
            en=f"After the update on {update.en}, {built.en} did not run again. Each round's gradient is computed "
            f"from values that {name.en} no longer has, so the training does not follow the loss.",
            zh=f"{update.zh}的更新之后，{built.zh}没有再次运行。每一轮的梯度都由 {name.zh} 已经没有的数值算出，训"
            "练因此不再跟随损失。",
        ),
        related=[
            story.related("made", born, T(en="the computation is done once, here", zh="这一步计算只在这里做了一次")),
            story.related(
                "step", old.update, T(en="the parameter changes, the result does not", zh="参数变了，结果没有变")
            ),
            story.related(
                "backward", step, T(en="every round of the loop needs it anew", zh="循环的每一轮都需要重新做一次")
            ),
        ],
        fixes=_moved(story, builders(story, old.backward), loop, old.backward),
        facts=[Fact("tensor", old.leaf, story.by(step))],
        severity="warning",
    )


def _finding(reuse: Reuse, loop: Loop) -> Finding:
    story, step = reuse.story, reuse.backward.step
    here, built = at_line(story, story.span(step)), at_line(story, story.span(reuse.born))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} runs in a loop, but what it goes back through was computed once, on "
            f"{built.en}, before the loop.",
            zh=f"{here.zh}在循环里运行，但它往回走时要经过的计算只在循环之前（{built.zh}）做过一次。",
        ),
        T(
            en=f"An earlier round went back through the computation of {built.en} and used up its record. This round "
            "has nothing new to go back through there: the result of that computation would not even have changed, "
            f"because {built.en} did not run again.",
            zh=f"前面的一轮沿着{built.zh}的计算往回走，用完了它的记录。这一轮在那里没有新的计算可走：那步计算的结果甚"
            f"至不会改变，因为{built.zh}没有再次运行。",
        ),
        related=[
            story.related(
                "made", reuse.born, T(en="the computation is done once, here", zh="这一步计算只在这里做了一次")
            ),
            story.related(
                "freed",
                reuse.freed.step,
                T(
                    en="an earlier round's backward frees what the computation saved",
                    zh="前一轮的反向传播释放了这步计算保存的张量",
                ),
            ),
            story.related(
                "backward", step, T(en="every round of the loop needs it anew", zh="循环的每一轮都需要重新做一次")
            ),
        ],
        fixes=unique(
            story.program.text, [*_moved(story, builders(story, reuse.backward), loop), *_cut_off(reuse, loop)]
        ),
        facts=[Fact("node", reuse.failure.node, story.by(step))],
        predicted=story.predicted(reuse.failure, step),
    )


def _cut_off(reuse: Reuse, loop: Loop) -> Iterator[Fix]:
    """Yield at most one fix: it detaches the tensors that were computed before the loop, ``returns = returns.detach()``
    before the loop begins.

    These are the tensors that the loop's lines use in the failing iteration and whose graph that iteration's backward
    goes through. The tensor that ``backward()`` is called on is not among them: detached, it would have no gradient at
    all.
    """
    story, program = reuse.story, reuse.story.program
    labels = [label for label in reuse.carried() if label != reuse.root]
    names = list(dict.fromkeys(story.name(label, reuse.freed.step) or story.used_name(label) or "" for label in labels))
    inside = set(ast.walk(loop))
    own = [
        one for one in program.nodes if isinstance(one, ast.stmt) and program.function(one) is program.function(loop)
    ]
    given = set().union(*(assigned(program, one) for one in own if one.lineno < loop.lineno))
    again = set().union(*(assigned(program, one) for one in own if one in inside))
    if not names or not all(name in given - again and re.fullmatch(r"[^\W\d]\w*", name) for name in names):
        return
    shown = ", ".join(f"`{name}`" for name in names)
    cut = f"{', '.join(names)} = {', '.join(f'{name}.detach()' for name in names)}"
    title = T(en=f"Take {shown} as fixed numbers, without a gradient", zh=f"把 {shown} 当作固定的数，不再求梯度")
    yield Fix(title, program.insert_before(loop, cut), meaning="root")


def _moved(story: Story, built: list[ast.stmt], loop: Loop, keeping: Event | None = None) -> tuple[Fix, ...]:
    """At most one fix: it moves the statements that build the graph into the loop, as its first statements, and removes
    ``retain_graph=True`` from the backward ``keeping``.

    Empty unless the graph is built by assignments of their own in the loop's block, above it.
    """
    program = story.program
    block = program.block(loop)
    lines = [s for s in built if s in block and s.lineno < loop.lineno]
    first = loop.body[0]
    if not lines or not all(isinstance(s, ast.Assign | ast.AnnAssign) and program.stands_alone(s) for s in lines):
        return ()
    if first.lineno == loop.lineno:
        return ()  # a loop on one line
    indent, line = program.indent(first), program.place(first).line
    text = "".join(indented(program, statement, indent) for statement in lines)
    call = program.at(story.span(keeping.step)) if keeping is not None else None
    kept = _without_keeping(program, call) if isinstance(call, ast.Call) else ()
    at_once = next((edit.text for edit in kept if edit.line == line), None)
    inserted = Edit(line, line, text + (at_once or program.lines[line - 1]))
    edits = merge((inserted,), tuple(edit for edit in kept if edit.line != line), *(program.delete(s) for s in lines))
    shown = snippet(story, program.place(lines[0]), 40)
    title = T(
        en=f"Compute it in every round (move `{shown}` into the loop)", zh=f"每一轮都重新计算（把 `{shown}` 移进循环）"
    )
    return unique(program.text, [Fix(title, edits, meaning="recompute") if edits else None])


def _without_keeping(program: Program, call: ast.Call) -> tuple[Edit, ...]:
    """Return the edits that remove ``retain_graph=True`` from a call without other arguments; empty if there is no such
    argument.
    """
    if call.args or [keyword.arg for keyword in call.keywords] != ["retain_graph"]:
        return ()
    return program.replace((call, f"{program.segment(call.func)}()"))


RULE = Rule(
    code="PL503",
    name="graph-built-outside-loop",
    severity="error",
    title=T(
        en="A training loop goes back through a result computed before the loop",
        zh="训练循环沿着循环之前算好的结果反向传播",
    ),
    what=T(
        en="A loop computes gradients in every round, but the loss was computed only once, before the loop. Put the "
        "computation of the loss inside the loop: each round needs the result for the weights of that round.",
        zh="循环的每一轮都求梯度，但所求的东西只在循环之前计算过一次。请把损失的计算放进循环：每一轮都需要用当"
        "轮的权重得到的结果。",
    ),
    why=T(
        en="Torch records a computation when it runs; the record (the *graph*) belongs to that one run. `backward()` "
        "uses it up. A loss that was computed before the loop also keeps its old value: it does not follow the "
        "weights, because `loss` is a number that was computed, not a formula. `retain_graph=True` silences the error "
        "in the first rounds and then meets weights that have been changed since.",
        zh="torch 在计算运行时做记录；这份记录（*计算图*）只属于那一次运行，`backward()` 会用完它。循环之前算好的损失"
        "也永远保持旧的数值：它不会跟着权重变化，因为 `loss` 是算出来的一个数，不是公式。`retain_graph=True` 只是让报"
        "错推迟：权重更新之后，往回走时会发现它们已经被改过。",
    ),
    advice=T(
        en="move {made} into the loop, so that each round computes it again before the backward on {backward}.",
        zh="把{made}移进循环，让每一轮在{backward}的反向传播之前重新计算它。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
loss = (w * w).sum()  # made
for step in range(3):
    opt.zero_grad()
    loss.backward()  # PL503 backward
    opt.step()
print(w.detach())
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for step in range(3):
    loss = (w * w).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(w.detach())
""",
    find=find,
    traps=(
        Trap(
            "loss.backward()",
            "loss.backward(retain_graph=True)",
            T(
                en="The record is kept, but the weights in it have been updated: torch raises for that reason instead.",
                zh="记录保留下来了，但它所涉及的权重已经更新：torch 会因此报另一个错。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#how-autograd-encodes-the-history",
    ),
)
