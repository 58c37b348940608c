"""PL620: gradients were clipped, but the call was given no parameter that has a gradient."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.trace import Event, Span, T

ROUNDS = 2


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``clip_grad_norm_`` in the program that was given no gradient in any of at least
    ``ROUNDS`` calls, though backwards had filled some before and an optimizer made a step after.
    """
    places: dict[Span, list[Event]] = defaultdict(list)
    for event in story.calls():
        if (
            event.span is not None
            and event.span.source == 0
            and event.parent is None
            and story.said(event.step) == "clip_grad_norm_"
        ):
            places[event.span].append(event)
    for span, events in places.items():
        if any(operand.label is not None for event in events for operand in event.operands) or len(events) < ROUNDS:
            continue
        filled = sum(
            any(m.kind == "added" and m.step < event.step for each in lives(story).values() for m in each)
            for event in events
        )
        if filled >= ROUNDS and any(update.step > events[0].step for update in story.trace.optimizer_steps):
            yield _finding(story, span, events)


def _finding(story: Story, span: Span, events: list[Event]) -> Finding:
    here, text = at_line(story, span), snippet(story, span)
    node = story.program.at(span)
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    name = story.program.segment(given) if isinstance(given, ast.Name) else ""
    used_up = bool(name) and _source(story, name) is not None
    why = T(
        en=f" `{name}` is an iterator that was read to its end before, so it gives nothing any more."
        if used_up
        else "",
        zh=f"`{name}` 是一个迭代器，之前已经读到末尾，不再给出任何东西。" if used_up else "",
    )
    unclipped = T(en="this update uses them unclipped", zh="这次更新用的是未裁剪的梯度")
    update = next((update for update in story.trace.optimizer_steps if update.step > events[0].step), None)
    return RULE.finding(
        span,
        events[0].step,
        T(
            en=f"{capital(here.en)} clips nothing: `{text}` was given no gradient in any of {len(events)} rounds.",
            zh=f"{here.zh}什么也没有裁剪：在 {len(events)} 轮里，`{text}` 没有得到任何梯度。",
        ),
        T(
            en="The function looks at `.grad` of the parameters that it is given, and returns 0 when there are "
            f"none.{why.en} `net.parameters()` makes such an iterator, for one pass: an optimizer that is given it "
            "reads it to the end. Call `net.parameters()` anew, or keep a list.",
            zh=f"这个函数查看所得参数的 `.grad`，没有时返回 0。{why.zh}`net.parameters()` 生成的就是这种只能走一遍的迭"
            "代器：拿到它的优化器会把它读完。请重新调用 `net.parameters()`，或者保存为列表。",
        ),
        related=[story.related("step", update.step, unclipped)] if update else [],
        fixes=_fixes(story, name),
        facts=[Fact("rounds", len(events), story.by(events[0].step))],
    )


def _source(story: Story, name: str) -> ast.Assign | None:
    """Return the first assignment of ``name``, if its value is a generator expression or a call such as
    ``….parameters()``; else None.
    """
    for node in story.program.nodes:
        if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            value = node.value
            iterates = isinstance(value, ast.GeneratorExp) or (
                isinstance(value, ast.Call) and call_name(value) in ITERATORS
            )
            return node if iterates else None
    return None


ITERATORS = {"parameters", "filter", "chain", "map", "iter"}


def _fixes(story: Story, name: str) -> tuple[Fix, ...]:
    made = _source(story, name) if name else None
    if made is None:
        return ()
    program = story.program
    text = program.segment(made.value)
    new = f"list{text}" if isinstance(made.value, ast.GeneratorExp) and text.startswith("(") else f"list({text})"
    title = T(en=f"Keep a list: `{name} = {new}`", zh=f"保存为列表：`{name} = {new}`")
    return unique(program.text, [Fix(title, program.replace((made.value, new)), meaning="later")])


RULE = Rule(
    code="PL620",
    name="clipped-nothing",
    severity="warning",
    title=T(en="Clipping was given no gradient at all", zh="裁剪没有得到任何梯度"),
    what=T(
        en="A program limits the size of its gradients, but passes an iterator of parameters that has been used up "
        "already, so nothing is limited. Keep the parameters in a list, or call `parameters()` again.",
        zh="程序要限制梯度的大小，却交出了一个已经用完的参数迭代器，于是什么也没有被限制。请把参数保存为列"
        "表，或再次向网络索取。",
    ),
    why=T(
        en="`parameters()` is a generator: it gives each parameter once. `torch.optim.SGD(params)` turns it into a "
        "list of its own; a second reader of `params` finds it empty. `clip_grad_norm_` accepts that, with a total "
        "norm of 0. The returned norm is worth printing: it is 0 in each round.",
        zh="`parameters()` 是生成器：每个参数只给出一次。`torch.optim.SGD(params)` 会把它变成自己的列表；第二个读取 "
        "`params` 的得到的是空的。`clip_grad_norm_` 接受这种情况，总范数为 0。返回的范数值得打印：它每一轮都是 0。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
params = net.parameters()
opt = torch.optim.SGD(params, lr=0.1)
x, y = torch.randn(4, 2) * 10, torch.randn(4, 1)
for _ in range(2):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)  # PL620
    opt.step()  # step
    print(norm.item(), net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
params = list(net.parameters())
opt = torch.optim.SGD(params, lr=0.1)
x, y = torch.randn(4, 2) * 10, torch.randn(4, 1)
for _ in range(2):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    print(norm.item(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "clip_grad_norm_(params, 1.0)",
            "clip_grad_norm_(params, 0.1)",
            T(
                en="A smaller limit is applied to nothing as well.",
                zh="更小的上限同样没有作用对象。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    ),
)
