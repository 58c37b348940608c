"""PL513: everything between a parameter and the loss passes an operation whose slope is zero everywhere:
its gradient is always zero.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, called, capital, gradient_of, snippet
from pitfall_lab.trace import Event, T

FLAT = ("RoundBackward", "FloorBackward", "CeilBackward", "TruncBackward", "SignBackward")


@dataclass(frozen=True, slots=True)
class Flat:
    """``made`` is the call (``Event``) of an operation whose derivative is zero everywhere. Every path by which
    ``backward`` reaches ``parameters`` contains a node of such an operation, and some paths contain that of ``made``.

    ``parameters`` are the labels of these leaves, which an optimizer held when it stepped.
    """

    backward: Event
    made: Event
    parameters: tuple[str, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of an operation whose slope is zero everywhere (``round``, ``floor``, ``ceil``,
    ``trunc``, ``sign``), where all gradients of some of an optimizer's parameters pass such operations.

    Of each backward, only the first one found is reported.
    """
    held = [label for update in story.trace.optimizer_steps for label in update.holds]
    reported = set()
    for backward in story.backwards() if held else ():
        found = _flat(story, backward, held)
        place = story.span(found.made.step) if found is not None else None
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _flat(story: Story, backward: Event, held: list[str]) -> Flat | None:
    start = (
        (story.tensor(backward.operands[0].label, backward.step) or {}).get("grad_fn") if backward.operands else None
    )
    behind = list(story.behind(start))
    flat = [node for node in behind if str((story.record("nodes", node) or {}).get("name")).startswith(FLAT)]
    if not flat or backward.error is not None:
        return None
    free = _leaves(story, _without(story, start, set(flat)))
    for node in flat:
        made = story.line_event((story.record("nodes", node) or {}).get("born"))
        lost = _leaves(story, list(story.behind(node))) - free
        parameters = tuple(dict.fromkeys(label for label in held if label in lost))
        if made is not None and parameters:
            return Flat(backward, made, parameters)
    return None


def _without(story: Story, start: str | None, avoided: set[str]) -> list[str]:
    """The nodes that a backward reaches without passing ``avoided``."""
    pending, seen = [start], set[str]()
    while pending:
        node = pending.pop()
        if node is not None and node not in seen and node not in avoided:
            seen.add(node)
            pending += (story.record("nodes", node) or {}).get("next", ())
    return list(seen)


def _leaves(story: Story, nodes: list[str]) -> set[str]:
    records = (story.record("nodes", node) or {} for node in nodes)
    return {str(r["output"]) for r in records if r.get("name") == "AccumulateGrad" and r.get("output")}


def _finding(story: Story, found: Flat) -> Finding:
    span, step = story.span(found.made.step), found.made.step
    here, back = at_line(story, span), at_line(story, story.span(found.backward.step))
    first = called(story, found.parameters[0], None, found.backward.step)
    more = len(found.parameters) - 1
    others = T(en=f" and {more} more" if more else "", zh=f" 等 {more + 1} 个参数" if more else "")
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} uses `{found.made.name}`, whose slope is zero everywhere, so {back.en} gives "
            f"{first.en}{others.en} a gradient of zeros: nothing before that line learns.",
            zh=f"{here.zh}用了 `{found.made.name}`，它的斜率处处为零，所以{back.zh}给 {first.zh}{others.zh} 的梯度全是"
            "零：这一行之前的部分什么也学不到。",
        ),
        T(
            en=f"The result of `{snippet(story, span)}` stays the same when its input changes a little, and "
            f"jumps elsewhere. Torch records it and multiplies by zero in backward; {gradient_of(first).en} "
            "is there, and is zero.",
            zh=f"输入稍有变化时，`{snippet(story, span)}` 的结果不变，在别处则跳变。torch 记录了它，回传时乘以零；"
            f"{gradient_of(first).zh} 存在，但是零。",
        ),
        related=[
            story.related("cut", step, T(en="every gradient becomes zero here", zh="所有梯度在这里变成零")),
            story.related(
                "backward",
                found.backward.step,
                T(en="backward reaches the parameters only through it", zh="通向这些参数的路都要经过它"),
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("operation", found.made.name, story.by(step)),
            Fact("parameters", list(found.parameters), story.by(step)),
        ],
    )


def _fixes(story: Story, found: Flat) -> tuple[Fix, ...]:
    """Fixes with a straight-through estimate: the rounded value with the gradient of the value before rounding.

    Empty if the line does not call the operation by its name.
    """
    program = story.program
    node = program.at(story.span(found.made.step))
    node = node.left if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Call) else node
    if not isinstance(node, ast.Call) or call_name(node) != found.made.name:
        return ()
    whole = program.segment(node)
    function = node.args and isinstance(node.func, ast.Attribute) and program.segment(node.func.value) == "torch"
    given = node.args[0] if function else node.func.value if isinstance(node.func, ast.Attribute) else None
    source = operand(program, given) if given is not None else ""
    title = T(
        en="Keep the value and let the gradient pass as if it were not rounded", zh="保留数值，让梯度像没有取整一样通过"
    )
    fix = Fix(title, program.replace((node, f"({source} + ({whole} - {source}).detach())")), meaning="later")
    return unique(program.text, [fix]) if source else ()


RULE = Rule(
    code="PL513",
    name="zero-gradient-operation",
    severity="warning",
    title=T(en="An operation in front of the loss makes every gradient zero", zh="损失之前的一个操作使所有梯度变成零"),
    what=T(
        en="A program rounded a result, or took its sign, and trained through it. Such steps are flat: a small change "
        "before them changes nothing after them, so all gradients are zero and nothing before them learns. Pass the "
        "gradient on as if nothing had been rounded: `x + (x.round() - x).detach()`.",
        zh="程序把结果取整或取符号，再穿过它训练。这样的步骤是平的：之前的微小变化不会改变之后的结果，所以梯度全是零，"
        "它之前的部分什么也学不到。可以让梯度像没有取整一样通过：`x + (x.round() - x).detach()`。",
    ),
    why=T(
        en="`round`, `floor`, `ceil`, `trunc` and `sign` are constant between their jumps, so their derivative is "
        "zero wherever there is one. Torch is exact about it: it records the operation, and multiplies by zero in "
        "backward. Nothing is missing, `requires_grad` is true, `.grad` is there and full of zeros; an optimizer "
        "steps by nothing (or only by its momentum). Comparisons and `argmax` go further and record nothing at all. "
        "The straight-through estimate takes the value of the one and the slope of the other.",
        zh="`round`、`floor`、`ceil`、`trunc` 和 `sign` 在跳变之间是常数，所以凡有导数之处导数都是零。torch 对此是精确"
        "的：它记录这个操作，回传时乘以零。什么都不缺：`requires_grad` 为真，`.grad` 存在，只是全为零；优化器一步也不"
        "动（或者只靠动量移动）。比较和 `argmax` 则根本不记录。直通估计取前者的数值和后者的斜率。",
    ),
    bad="""import torch

w = torch.tensor([0.6, 1.7], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    code = torch.round(w * 2)  # PL513 cut
    loss = (code - 1).square().sum()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(w, w.grad)
""",
    good="""import torch

w = torch.tensor([0.6, 1.7], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(2):
    code = w * 2 + (torch.round(w * 2) - w * 2).detach()
    loss = (code - 1).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(w, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.round(w * 2)",
            "torch.floor(w * 2 + 0.5)",
            T(
                en="`floor` is as flat as `round`.",
                zh="`floor` 和 `round` 一样平。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.round.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
