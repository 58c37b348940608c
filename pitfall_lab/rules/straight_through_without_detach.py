"""PL552: a straight-through estimate without ``detach``: the tensor is added and
subtracted, so its gradient cancels.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = dict.fromkeys(spellings("add"), 1) | dict.fromkeys(spellings("sub"), -1)
"""The sign that each sum gives its second operand."""
FLAT = ("RoundBackward", "FloorBackward", "CeilBackward", "TruncBackward", "SignBackward")
DEEP, FURTHER = 4, 60
"""Sums of sums that are followed, and calls between a tensor and what was computed from it without a gradient."""


@dataclass(frozen=True, slots=True)
class StraightThroughWithoutDetach:
    """``event`` is the call (``Event``) of a sum that adds the tensor ``tensor`` and subtracts it again; the remaining
    summand, ``value``, was computed from it in a way that has no gradient. Both are labels.

    ``backward`` is the first backward after it.
    """

    event: Event
    tensor: str
    value: str
    backward: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a sum that contains a tensor that requires grad once with each sign, together
    with its rounded value, if a backward went through the sum.
    """
    reported = set()
    backwards = [backward for backward in story.backwards() if backward.error is None]
    for event in story.calls(*SUMS):
        if event.span in reported or event.error is not None or not event.results or not _is_written(story, event):
            continue
        found = _cancelled(story, event, backwards)
        if found is not None:
            reported.add(event.span)
            yield _finding(story, found)


def _is_written(story: Story, event: Event) -> bool:
    """Whether the program itself writes the sum, and not the code of a library that it calls."""
    node = story.program.at(story.span(event.step))
    return isinstance(node, ast.BinOp | ast.AugAssign) or (
        isinstance(node, ast.Call) and called(node).rstrip("_") in SUMS
    )


def _cancelled(story: Story, event: Event, backwards: list[Event]) -> StraightThroughWithoutDetach | None:
    node = story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn"))
    if node is None or node.get("ran") is None:
        return None
    signs = _signs(story, event)
    gone = [label for label, found in signs.items() if found[1] > 0 and found[1] == found[-1]]
    left = [label for label, found in signs.items() if found[1] != found[-1]]
    for tensor in gone:
        if not (story.tensor(tensor, event.step) or {}).get("requires_grad"):
            continue
        value = next((label for label in left if _is_made_from(story, label, tensor, event.step)), None)
        backward = next((b for b in backwards if b.step > event.step), None)
        if value is not None and backward is not None:
            return StraightThroughWithoutDetach(event, tensor, value, backward)
    return None


def _signs(story: Story, event: Event) -> dict[str, Counter[int]]:
    """How often each tensor enters a sum with the sign 1, and how often with -1.

    Summands with a gradient that are sums themselves are taken apart, to a depth of ``DEEP``. Empty if one of the sums
    has an ``alpha``.
    """
    found: dict[str, Counter[int]] = {}
    pending = [(event, 1, 0)]
    while pending:
        here, sign, depth = pending.pop()
        if any(operand.name == "alpha" for operand in here.operands):
            return {}
        for place, operand in enumerate(here.operands):
            mine = sign * (SUMS[here.name] if place else 1)
            record = story.tensor(operand.label, here.step) or {}
            made = (
                story.event(record.get("born")) if record.get("requires_grad") else None
            )  # a sum without a gradient is one number
            inner = made is not None and made.name in SUMS and operand.label in made.results and depth < DEEP
            if made is not None and inner:
                pending.append((made, mine, depth + 1))
            elif operand.label is not None:
                found.setdefault(operand.label, Counter())[mine] += 1
    return found


def _is_made_from(story: Story, label: str, source: str, step: int) -> bool:
    """Whether the values of ``label`` were computed from those of ``source``, and its graph does not lead there except
    through roundings and signs (``FLAT``).
    """
    wanted = (story.tensor(source, step) or {}).get("grad_fn")
    nodes, pending = set[str](), [(story.tensor(label, step) or {}).get("grad_fn")]
    while pending:
        node = pending.pop()
        record = story.record("nodes", node) or {}
        if node is None or node in nodes or str(record.get("name")).startswith(FLAT):
            continue
        if node == wanted:
            return False
        nodes.add(node)
        pending += record.get("next") or ()
    labels, seen = [label], {label}
    while labels and len(seen) < FURTHER:
        here = labels.pop(0)
        made = story.event((story.tensor(here) or {}).get("born"))
        for given in (
            (o.label for o in made.operands if o.label is not None) if made is not None and here in made.results else ()
        ):
            if given == source:
                return True
            if given not in seen:
                seen.add(given)
                labels.append(given)
    return False


def _finding(story: Story, found: StraightThroughWithoutDetach) -> Finding:
    event = found.event
    span, code = story.span(event.step), snippet(story, story.span(event.step))
    here, back = at_line(story, span), at_line(story, story.span(found.backward.step))
    tensor, value = expression(story, found.tensor, event.step), expression(story, found.value, event.step)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} adds {tensor.en} and subtracts it again, both with a gradient (`{code}`): the two "
            f"cancel, and no gradient goes back to {tensor.en} from here.",
            zh=f"{here.zh}加上 {tensor.zh} 又减去它，两者都带梯度（`{code}`）：它们抵消，从这里没有梯"
            f"度回到 {tensor.zh}。",
        ),
        T(
            en=f"The numbers of the sum are those of {value.en}, as they should be. For the backward on {back.en} it "
            f"is {value.en} as well, and no derivative leads from there to {tensor.en}. With `detach()` around the "
            f"difference its value stays, and the gradient passes to {tensor.en} as if nothing had been rounded.",
            zh=f"和的数值就是 {value.zh} 的数值，这是对的。但对{back.zh}的反向传播来说它也就是 {value.zh}，而从那里没"
            f"有导数通往 {tensor.zh}。对差使用 `detach()`，数值不变，梯度则像没有取整一样传给 {tensor.zh}。",
        ),
        related=[
            story.related(
                "used", event.step, T(en="added and subtracted, both with a gradient", zh="加上又减去，两者都带梯度")
            ),
            story.related("backward", found.backward.step, T(en="goes back through the sum", zh="穿过这个和往回走")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("tensor", found.tensor, story.by(event.step)), Fact("value", found.value, story.by(event.step))],
    )


def _fixes(story: Story, found: StraightThroughWithoutDetach) -> tuple[Fix, ...]:
    """At most one fix: it detaches the difference; empty unless the sum is written as ``z + (q - z)``, ``(q
    - z) + z`` or ``z + q - z``.
    """
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not isinstance(node, ast.BinOp):
        return ()
    left, right = program.segment(node.left), program.segment(node.right)
    text = ""
    if isinstance(node.op, ast.Add) and isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Sub):
        text = f"{left} + ({right}).detach()"
    elif isinstance(node.op, ast.Add) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Sub):
        text = f"({left}).detach() + {right}"
    elif isinstance(node.op, ast.Sub) and isinstance(node.left, ast.BinOp) and isinstance(node.left.op, ast.Add):
        first, second = program.segment(node.left.left), program.segment(node.left.right)
        text = (
            f"{first} + ({second} - {right}).detach()" if first == right else f"({first} - {right}).detach() + {second}"
        )
    title = T(en=f"Detach the difference: `{text}`", zh=f"对差使用 detach：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="term")]) if text else ()


RULE = Rule(
    code="PL552",
    name="straight-through-without-detach",
    severity="warning",
    title=T(en="A straight-through estimate lacks its detach", zh="直通估计缺少 detach"),
    what=T(
        en="A program rounds a result, or looks up the nearest entry of a table, and wants to train through that step "
        "as if it were not there. It adds the result and subtracts it again, both with a gradient, so the two "
        "gradients cancel and nothing before the step learns. Detach the difference: `z + (q - z).detach()`.",
        zh="程序把结果取整，或者查找表中最近的一项，并希望像没有这一步一样训练。它加上这个结果又减去它，两者都带梯度，"
        "于是两个梯度抵消，这一步之前的部分什么也学不到。请对差使用 detach：`z + (q - z).detach()`。",
    ),
    why=T(
        en="The *straight-through estimate* has the value of `q` and the derivative of `z`. `z + (q - z).detach()` "
        "computes `z + q - z`, and for autograd the part in parentheses is a constant. Without `detach()` autograd "
        "differentiates what is written: `z` enters with 1 and with -1, which gives 0, and `q` has no derivative for "
        "`z`, since `argmin` records nothing and the slope of `round` is zero. Other terms of the loss may still give "
        "`z` a gradient, so that nothing looks wrong.",
        zh="*直通估计*取 `q` 的数值和 `z` 的导数。`z + (q - z).detach()` 算的是 `z + q - z`，而对 autograd 来"
        "说括号里的部分是常数。没有 `detach()`，autograd 就按所写的求导：`z` 以 1 和 -1 各出现一次，合起来是 "
        "0；`q` 对 `z` 没有导数，因为 `argmin` 什么也不记录，而 `round` 的斜率是零。损失的其他项可能仍给 `z` "
        "梯度，所以看不出有什么不对。",
    ),
    bad="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(8, 3)
for _ in range(3):
    z = enc(x)
    q = torch.round(z)
    loss = (dec(z + (q - z)) - x).square().mean()  # PL552 used
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(enc.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(8, 3)
for _ in range(3):
    z = enc(x)
    q = torch.round(z)
    loss = (dec(z + (q - z).detach()) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "z + (q - z)",
            "q.detach() + (z - z)",
            T(
                en="The difference of `z` with itself is 0 and has the gradient 0.",
                zh="`z` 与自身的差是 0，梯度也是 0。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",),
)
