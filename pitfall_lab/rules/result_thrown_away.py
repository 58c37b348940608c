"""PL618: a call that returns a new tensor and changes nothing was written as a statement, so its result is lost."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import MODULES, is_name
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

VALUES = (
    spellings("clamp")
    | {"addcdiv", "addcmul", "clamp_max", "clamp_min", "fill_diagonal", "index_add", "index_copy", "index_fill",
       "index_put", "lerp", "masked_fill", "masked_scatter", "nan_to_num", "renorm", "scatter", "scatter_add", "tril",
       "triu"}
)  # fmt: skip
"""Calls with an in-place variant that change some elements."""
ARITHMETIC = {
    "add", "sub", "mul", "div", "neg", "abs", "sqrt", "exp", "log", "pow", "round", "floor", "sign", "relu", "sigmoid",
    "tanh", "dropout", "normalize", "softmax", "layer_norm",
}  # fmt: skip
"""Calls that only compute: as a statement they have no effect."""
KINDS = {"to", "float", "half", "double", "bfloat16", "long", "int", "bool", "type"}
"""Conversions."""
SHAPES = {
    "view",
    "reshape",
    "unsqueeze",
    "squeeze",
    "transpose",
    "permute",
    "t",
    "flatten",
    "expand",
    "movedim",
    "repeat",
}
"""Calls that change a shape."""
ALONE = VALUES | KINDS | SHAPES
"""Calls that are not made for their duration alone, as arithmetic is in a measurement of time."""
WITH_EFFECTS = {"batch_norm", "backward", "copy_"}
"""Calls of layers that are also made for what they change."""
IN_PLACE = VALUES | ARITHMETIC - {"normalize", "softmax", "layer_norm", "dropout"}
"""Calls that have a method which does the same in place."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that only calls an operation which returns a new tensor and changes nothing,
    if its input is used again unchanged.

    Also one for each statement that only calls a layer whose result is never used, in several iterations of a training.
    """
    reported = set()
    for event in story.calls(*ALONE, *ARITHMETIC):
        place = event.span
        if place in reported or event.error is not None or len(event.results) != 1 or not event.operands:
            continue
        statement = _statement(story, event)
        if statement is not None and _matters(story, event):
            reported.add(place)
            yield _finding(story, event, statement)
    yield from _layers(story)


def _layers(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that only calls a layer, in several iterations of a training, and whose
    result is never used.

    The layer's input must be used again afterwards, and a backward must not have gone through the result. Nothing
    either if another line uses what a part of the layer has computed.
    """
    updates = [update.step for update in story.trace.optimizer_steps]
    places: dict[Span | None, list[Event]] = defaultdict(list)
    for event in story.calls() if story.program.tree is not None and updates else ():
        graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn") if event.results else None
        if (
            graph
            and event.scope
            and event.name not in WITH_EFFECTS
            and event.parent is None
            and not story.uses(event.results[0])
        ):
            places[event.span].append(event)
    for events in places.values():
        ran = any(
            (story.record("nodes", (story.tensor(e.results[0]) or {}).get("grad_fn")) or {}).get("ran") is not None
            for e in events
        )
        node = story.program.at(events[0].span)
        statement = story.program.parents.get(node) if node is not None else None
        if (
            ran
            or not isinstance(node, ast.Call)
            or not isinstance(statement, ast.Expr)
            or call_name(node) == events[0].name
        ):
            continue
        later = any(use.step > events[0].step for use in story.uses(events[0].operands[0].label))
        if _is_kept(story, events[0].span):
            continue
        if later and any(events[0].step < step < events[-1].step for step in updates):
            yield _finding(story, events[0], statement)


def _is_kept(story: Story, place: Span | None) -> bool:
    """Whether another line uses something that was computed inside the call at ``place``, as with a forward hook: then
    the call was made for that.
    """
    inside = (label for event in story.calls() if event.span == place for label in event.results)
    return any(use.span != place and use.kind == "call" for label in inside for use in story.uses(label))


def _statement(story: Story, event: Event) -> ast.Expr | None:
    """The statement that consists of just this call, if nothing uses the result; else None.

    None for an in-place call, for the last statement of a notebook's cell, whose value is shown, and inside a ``try``
    or a ``with`` that does more than change a mode, where the call may be there to raise an error.
    """
    program, label = story.program, event.operands[0].label
    if program.tree is None or label is None or event.results[0] == label or story.uses(event.results[0]):
        return None
    node = program.at(event.span)
    statement = program.parents.get(node) if node is not None else None
    if not isinstance(node, ast.Call) or not isinstance(statement, ast.Expr) or call_name(node) != event.name:
        return None
    around = list(program.ancestors(statement))
    if any(isinstance(each, ast.Try | ast.With) and not _only_modes(program.segment(each)) for each in around):
        return None
    return None if _is_shown(story, statement) else statement


def _only_modes(text: str) -> bool:
    """Whether a ``with`` block only switches a mode such as ``no_grad``; another block may expect an error or measure
    time.
    """
    first = text.split("\n", maxsplit=1)[0]
    return any(mode in first for mode in ("no_grad", "enable_grad", "autocast"))


def _is_shown(story: Story, statement: ast.Expr) -> bool:
    """Whether the statement is the last one of a cell at top level, whose value a notebook shows.

    False outside notebooks.
    """
    block = story.program.block(statement)
    following = block[block.index(statement) + 1 :] if statement in block else []
    if not story.cells or story.program.function(statement) is not None:
        return False
    return not following or story.place(following[0].lineno)[0] != story.place(statement.lineno)[0]


def _matters(story: Story, event: Event) -> bool:
    """Whether the unchanged operand is used later, by a call or, if it is a gradient, by an update.

    Arithmetic (``ARITHMETIC``) counts only for tensors that require grad and for gradients: with other tensors it may
    be there to be timed.
    """
    label = event.operands[0].label
    record = story.tensor(label, event.step) or {}
    if event.name not in ALONE and not record.get("requires_grad") and not _is_gradient(story, label):
        return False
    if any(use.step > event.step and not _is_machinery(use) for use in story.uses(label)):
        return True
    return any(update.step > event.step for update in story.trace.optimizer_steps) and _is_gradient(story, label)


def _is_machinery(use: Event) -> bool:
    return use.op.endswith(("__get__", "__set__"))


def _is_gradient(story: Story, label: str | None) -> bool:
    return any(grad == label for leaf in story.leaves for _, grad in story.history("tensors", leaf, "grad"))


def _finding(story: Story, event: Event, statement: ast.Expr) -> Finding:
    here = at_line(story, event.span)
    node = statement.value
    text = snippet(story, event.span)
    what = _target(story, node, event)
    shown = T(en=f"`{what}`", zh=f"`{what}`") if what else T(en="the tensor", zh="该张量")
    later = next(
        (use for use in story.uses(event.operands[0].label) if use.step > event.step and not _is_machinery(use)), None
    )
    return RULE.finding(
        event.span,
        event.step,
        T(
            en=f"{capital(here.en)} computes `{text}` and throws the result away: {shown.en} stays as it was.",
            zh=f"{here.zh}算出 `{text}` 之后把结果丢弃了：{shown.zh} 保持原样。",
        ),
        T(
            en=f"`{event.name}` returns a new tensor and changes nothing. Nothing was named by it, no call has used "
            "it, and the old values are used from here on.",
            zh=f"`{event.name}` 返回一个新张量，不改变任何东西。这个结果没有名字，也没有任何调用用到"
            "它，之后用的仍是旧值。",
        ),
        related=[story.related("used", later.step, T(en="the old one is used here", zh="这里用的是旧的"))]
        if later is not None
        else [],
        fixes=_fixes(story, event, node),
    )


def _target(story: Story, node: ast.AST, event: Event) -> str:
    """The text of what the call was applied to: ``p.grad`` of ``p.grad.clamp(-1, 1)``, ``x`` of
    ``F.normalize(x)`` and ``norm(x)``.

    Empty if that is no plain name.
    """
    if isinstance(node, ast.Call) and call_name(node) != event.name:
        return story.program.segment(node.args[0]) if node.args and is_name(node.args[0]) else ""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    value = node.func.value
    of_module = isinstance(value, ast.Name | ast.Attribute) and story.program.segment(value).split(".")[0] in MODULES
    given = (node.args[0] if node.args else None) if of_module else value
    return story.program.segment(given) if given is not None and is_name(given) else ""


def _fixes(story: Story, event: Event, node: ast.AST) -> tuple[Fix, ...]:
    program, what = story.program, _target(story, node, event)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not what:
        return ()
    record = story.tensor(event.operands[0].label, event.step) or {}
    text, fixes = program.segment(node), []
    method = program.segment(node.func.value) == what
    if method and event.name in IN_PLACE and not record.get("requires_grad"):
        name = T(en=f"Change it in place: `{event.name}_`", zh=f"就地修改：`{event.name}_`")
        arguments = text[text.rindex(event.name, 0, text.index("(", len(what))) + len(event.name) :]
        fixes.append(Fix(name, program.replace((node, f"{what}.{event.name}_{arguments}")), meaning="later"))
    if not what.endswith(".grad"):
        name = T(en=f"Keep the result: `{what} = …`", zh=f"保留结果：`{what} = …`")
        fixes.append(Fix(name, program.replace((node, f"{what} = {text}")), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL618",
    name="result-thrown-away",
    severity="warning",
    title=T(en="The result of a call that changes nothing is thrown away", zh="一个不做任何修改的调用，其结果被丢弃"),
    what=T(
        en="A program writes `p.grad.clamp(-1, 1)` on a line of its own, and continues as if the gradient had "
        "been clamped. The call returns a new tensor, which is dropped at once. Write `p.grad.clamp_(-1, 1)`, or "
        "give the result a name.",
        zh="程序单独写一行 `p.grad.clamp(-1, 1)`，然后当作梯度已经被截断。这个调用返回一个新张量，随即被丢弃。请写 "
        "`p.grad.clamp_(-1, 1)`，或者给结果一个名字。",
    ),
    why=T(
        en="Torch's functions and methods return new tensors; only those whose name ends with an underscore "
        "write into the tensor they are called on. `x.to(...)`, `x.view(...)` and `x.unsqueeze(0)` are no "
        "exception, `module.to(...)` is: a module moves its own parameters. Python accepts any expression as "
        "a statement, so nothing is raised.",
        zh="torch 的函数与方法返回新张量；只有名字以下划线结尾的才会写入调用它的张量。`x.to(...)`、"
        "`x.view(...)`、`x.unsqueeze(0)` 也不例外，`module.to(...)` 才是：模块会移动自己的参数。Python 允许任"
        "何表达式作为语句，所以不会报错。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2) * 10, torch.randn(4, 1)
for _ in range(2):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    for p in net.parameters():
        p.grad.clamp(-1, 1)  # PL618
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2) * 10, torch.randn(4, 1)
for _ in range(2):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    for p in net.parameters():
        p.grad.clamp_(-1, 1)
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "p.grad.clamp(-1, 1)",
            "clipped = p.grad.clamp(-1, 1)",
            T(
                en="A name for the result alone does not help: the optimizer reads `p.grad`.",
                zh="只给结果起名没有用：优化器读取的是 `p.grad`。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.clamp_.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html",
    ),
)
