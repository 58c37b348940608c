"""PL548: ``clip_grad_norm_`` is called for each parameter separately, so the gradient of the network changes its
direction.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.clipping import has_shrunk
from pitfall_lab.trace import Span, T


@dataclass(frozen=True, slots=True)
class Single:
    """One line clipped the gradients of several leaves by one call for each, so that each norm was limited separately.

    ``span`` is the source position of the call, ``leaves`` are the labels of the leaves. ``first`` is the moment
    (:class:`Moment`) of the first clipping, and ``added`` the one at which a backward had filled the gradient clipped
    there.
    """

    span: Span
    leaves: tuple[str, ...]
    first: Moment
    added: Moment


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``clip_grad_norm_`` in a ``for`` loop over single parameters whose gradients one
    backward had filled.

    Only if the clipping changed some gradient or, where no values are known, if its limit is finite.
    """
    places: dict[Span, dict[str, tuple[Moment, Moment]]] = defaultdict(dict)
    clips: dict[Span, list[Moment]] = defaultdict(list)
    for label, moments in lives(story).items():
        added = None
        for moment in moments:
            added = moment if moment.kind == "added" else added
            span = story.span(moment.step)
            if (
                moment.kind == "changed"
                and added is not None
                and span is not None
                and story.said(moment.step) == "clip_grad_norm_"
            ):
                places[span].setdefault(label, (added, moment))
                clips[span].append(moment)
    for span, found in places.items():
        loop = _loop(story, span)
        together = {added.step for added, _ in found.values()}
        if len(found) > 1 and loop is not None and len(together) < len(found) and has_shrunk(story, clips[span]):
            added, first = min(found.values(), key=lambda pair: pair[1].step)
            yield _finding(story, Single(span, tuple(found), first, added), loop)


def _loop(story: Story, span: Span) -> ast.For | None:
    """Return the innermost ``for`` loop around the call at ``span``, if the call's first argument is the loop's
    variable (or a list of it alone); else None.
    """
    program = story.program
    call = program.at(span) if program.tree is not None else None
    loop = next((a for a in program.ancestors(call) if isinstance(a, ast.For)), None) if call is not None else None
    given = call.args[0] if isinstance(call, ast.Call) and call.args else None
    if isinstance(given, ast.List) and len(given.elts) == 1:
        given = given.elts[0]
    if loop is None or not isinstance(given, ast.Name) or not isinstance(loop.target, ast.Name | ast.Tuple):
        return None
    return loop if any(isinstance(n, ast.Name) and n.id == given.id for n in ast.walk(loop.target)) else None


def _finding(story: Story, found: Single, loop: ast.For) -> Finding:
    here, back, count = at_line(story, found.span), at_line(story, story.span(found.added.step)), len(found.leaves)
    return RULE.finding(
        found.span,
        found.first.step,
        T(
            en=f"{capital(here.en)} limits the gradient of each of {count} parameters by itself: what the backward on "
            f"{back.en} gave as one direction becomes another one.",
            zh=f"{here.zh}对 {count} 个参数的梯度逐个限制：{back.zh}的反向传播给出的一个整体方向变成了另一个方向。",
        ),
        T(
            en=f"`{snippet(story, found.span)}` is called once for each parameter. A long gradient is shortened and a "
            "short one next to it is not, so layers with small gradients get more weight than the loss gives them, "
            "and the norm of all gradients together is not limited to the number that is written there. With all "
            "parameters in one call every gradient is multiplied by one factor.",
            zh=f"`{snippet(story, found.span)}` 对每个参数各调用一次。长的梯度被缩短，旁边短的梯度则没有，于是梯度小的"
            "层得到的份量比损失给它们的更多，而所有梯度合起来的范数也不受所写数值的限制。把所有参数放进一次调用，每个"
            "梯度都乘以同一个系数。",
        ),
        related=[
            story.related("backward", found.added.step, T(en="the gradients are computed here", zh="梯度在这里算出")),
            story.related("changed", found.first.step, T(en="each is clipped by itself", zh="逐个裁剪")),
        ],
        fixes=_fixes(story, found.span, loop),
        facts=[Fact("parameters", list(found.leaves))],
    )


def _fixes(story: Story, span: Span, loop: ast.For) -> tuple[Fix, ...]:
    """At most one fix: it replaces the loop by one call for all parameters; empty unless the loop's body is only
    ``clip_grad_norm_``, as a statement of its own.
    """
    program, call = story.program, story.program.at(span)
    if not isinstance(call, ast.Call) or not isinstance(loop.target, ast.Name) or len(loop.body) != 1 or loop.orelse:
        return ()
    statement = program.statement(call)
    if statement is not loop.body[0] or not isinstance(statement, ast.Expr) or statement.value is not call:
        return ()
    rest = "".join(f", {program.segment(n)}" for n in (*call.args[1:], *call.keywords))
    text = f"{program.segment(call.func)}({program.segment(loop.iter)}{rest})"
    title = T(en=f"Clip all of them together: `{text}`", zh=f"一起裁剪：`{text}`")
    return (
        unique(program.text, [Fix(title, program.replace((loop, text)), meaning="later")])
        if call_name(call) == "clip_grad_norm_"
        else ()
    )


RULE = Rule(
    code="PL548",
    name="clipped-one-by-one",
    severity="info",
    title=T(en="Gradients are clipped parameter by parameter", zh="逐个参数裁剪梯度"),
    what=T(
        en="A program limits the length of the gradient in a loop, one weight after the other. Long ones are "
        "shortened and short ones are not, so the step goes another way than the gradient says. Give all parameters "
        "to one call of `clip_grad_norm_`.",
        zh="程序在循环里一个权重接一个权重地限制梯度的长度。长的被缩短，短的没有，于是这一步的方向与梯度所说的不同。请"
        "把所有参数交给一次 `clip_grad_norm_` 调用。",
    ),
    why=T(
        en="`clip_grad_norm_` computes the norm of all gradients that it is given, as if they were one long "
        "vector, and multiplies each of them by the same factor. That shortens the vector and keeps its "
        "direction. Called for one parameter it knows nothing of the others. Some methods limit each layer on "
        "purpose; then this note can be ignored.",
        zh="`clip_grad_norm_` 把得到的所有梯度当作一个长向量来计算范数，并把每个梯度乘以同一个系数。这缩短了向量而保持"
        "方向。只给它一个参数时，它对其他参数一无所知。有些方法有意逐层限制；那样可以忽略这条提示。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), 5 * torch.randn(8, 1)
loss = (net(x) - y).square().mean()
loss.backward()  # backward
for p in net.parameters():
    torch.nn.utils.clip_grad_norm_(p, 1.0)  # PL548 changed
opt.step()
print(net.weight)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), 5 * torch.randn(8, 1)
loss = (net(x) - y).square().mean()
loss.backward()
torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
opt.step()
print(net.weight)
""",
    find=find,
    traps=(
        Trap(
            "clip_grad_norm_(p, 1.0)",
            "clip_grad_norm_([p], 0.5)",
            T(
                en="A smaller limit for each of them changes the direction even more.",
                zh="给每个更小的上限，方向的改变更大。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
)
