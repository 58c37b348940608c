"""PL622: a plain tensor that requires grad, or the result of a parameter, works as a weight: not
registered, in no optimizer.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.parameters_left_out import LAYERS
from pitfall_lab.trace import Event, T

ROUNDS = 2
FURTHER = 200
"""How many tensors computed from it alone are followed."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each plain tensor that works as a weight and stays unchanged while an optimizer steps
    others.

    It is a leaf that gets a gradient in at least ``ROUNDS`` backwards, or what was computed once from a parameter that
    the program has no name for. Nothing where no optimizer holds a parameter.
    """
    updates = story.trace.optimizer_steps
    held = {label for update in updates for label in update.holds} | {
        label for made in story.trace.optimizers for label in made.holds
    }
    if not any((story.tensor(label) or {}).get("kind") == "parameter" for label in held):
        return
    for label, moments in lives(story).items():
        added = [m.event for m in moments if m.kind == "added"]
        left = all(
            m.kind == "added" or m.event.op == "unseen" for m in moments
        )  # unseen: what rounds that were not recorded have added
        if label in held or len(added) < ROUNDS or not left or _is_wanted(story, label):
            continue
        if not any(added[0].step < update.step < added[-1].step for update in updates):
            continue
        if (story.tensor(label) or {}).get("kind") == "parameter":
            if (kept := _kept(story, label, added[0].step)) is not None:
                yield _finding(story, label, added, kept)
        elif _works_as_weight(story, label):
            yield _finding(story, label, added)


def _kept(story: Story, label: str, backward: int) -> str | None:
    """The label of what was computed from the parameter before the first backward, and is used again after it; None if
    there is no such tensor.

    None for every tensor if the program has a name for the parameter, uses it again, reads such a result's gradient, or
    computes the result with other tensors of several elements.
    """
    if _is_named(story, label, backward):
        return None
    pending, seen, found = [label], {label}, None
    while pending and len(seen) < FURTHER:
        here = pending.pop(0)
        for use in story.uses(here):
            new = [each for each in use.results if each not in seen and _kind(story, each, use) == "computed"]
            others = [o.label for o in use.operands if o.label is not None and o.label not in seen]
            if here != label and (_is_wanted(story, here) or use.name in ("retain_grad", "register_hook")):
                return None
            if use.step > backward:
                if here == label and new:
                    return None
                found = found or here
            elif use.error is None and all(math.prod(story.shape(other, use.step) or (1,)) == 1 for other in others):
                seen.update(new)
                pending += new
    return found if found != label else None


def _is_wanted(story: Story, label: str) -> bool:
    """Whether the program reads the tensor's gradient or computes it by ``autograd.grad``,
    so that it is wanted itself.
    """
    return any(use.name == "grad" for use in story.uses(label))


def _is_named(story: Story, label: str, step: int) -> bool:
    """Whether a variable or an attribute holds the tensor at ``step``; not a local variable of
    a function that has returned.
    """
    names, first, event = (
        (story.tensor(label, step) or {}).get("names") or [],
        next(iter(story.uses(label)), None),
        story.event(step),
    )
    local = first is not None and event is not None and event.scope[: len(first.scope)] != first.scope
    return any("." in name or not local for name in names)


def _works_as_weight(story: Story, label: str) -> bool:
    """Whether the tensor is combined with results of trained layers, or is the right
    operand of a product, as a weight is.

    Never if a layer is given it: an input may require grad as well, and be added to the result.
    """
    pending, seen, weighs = [label], set[str](), False
    while pending:
        here = pending.pop()
        seen.add(here)
        for use in story.uses(here):
            others = [o.label for o in use.operands if o.label is not None and o.label not in seen]
            kinds = {_kind(story, other, use) for other in others}
            if "computed" in kinds and not any(_is_trained(story, other, use) for other in others):
                return False
            is_input = use.name in LAYERS and use.operands[0].label == here
            if "leaf" in kinds or is_input or (here != label and _is_wanted(story, here)):
                return False
            if "computed" in kinds or (use.name in LAYERS and others):
                weighs = True
            elif use.error is None and len(seen) < FURTHER:
                pending += [each for each in use.results if each not in seen and _kind(story, each, use) == "computed"]
    return weighs


def _is_trained(story: Story, label: str, use: Event) -> bool:
    """Whether a parameter is among the leaves that the tensor was computed from."""
    behind = story.behind((story.tensor(label, use.step) or {}).get("grad_fn"))
    leaves = ((story.record("nodes", node) or {}).get("output") for node in behind)
    return any((story.tensor(leaf) or {}).get("kind") == "parameter" for leaf in leaves if leaf)


def _kind(story: Story, label: str, use: Event) -> str:
    """The kind of the tensor when ``use`` ran: ``leaf``, ``computed`` from one, or
    ``data`` if it requires no gradient.
    """
    record = story.tensor(label, use.step) or {}
    return "data" if not record.get("requires_grad") else "leaf" if record.get("is_leaf") else "computed"


def _finding(story: Story, label: str, added: list[Event], kept: str | None = None) -> Finding:
    made = story.line_event((story.tensor(kept or label) or {}).get("born"))
    span = story.span(made.step) if made is not None else story.span(added[0].step)
    update = next(update for update in story.trace.optimizer_steps if update.step > added[0].step)
    name, here = called(story, kept or label, None, added[0].step), at_line(story, span)
    message, explanation = (_of_leaf if kept is None else _of_result)(
        name, here, at_line(story, story.span(added[0].step))
    )
    got = "it gets a gradient here" if kept is None else "the parameter behind it gets a gradient here"
    got_zh = "它在这里得到梯度" if kept is None else "它背后的参数在这里得到梯度"
    return RULE.finding(
        span,
        made.step if made is not None else added[0].step,
        message,
        explanation,
        related=[
            story.related("backward", added[0].step, T(en=got, zh=got_zh)),
            story.related("step", update.step, T(en="this step does not change it", zh="这一步不会改变它")),
        ],
        fixes=_fixes(story, made, computed=kept is not None),
        facts=[
            Fact("tensor", kept or label, story.by(added[0].step)),
            Fact("rounds", len(added), story.by(added[-1].step)),
        ],
    )


def _of_leaf(name: T, here: T, back: T) -> tuple[T, T]:
    return (
        T(
            en=f"{capital(here.en)} makes {name.en} as a plain tensor: it gets gradients, and no optimizer changes it.",
            zh=f"{here.zh}把 {name.zh} 创建为普通张量：它得到梯度，却没有任何优化器改变它。",
        ),
        T(
            en=f"It is combined with what trained layers return, and the backward on {back.en} fills its `.grad`. But "
            "`parameters()` lists only what is an `nn.Parameter`, so the optimizer was not given it: its numbers are "
            "the first ones to the end.",
            zh=f"它与被训练的层的结果一起运算，{back.zh}的反向传播会填上它的 `.grad`。但 `parameters()` 只列出 "
            "`nn.Parameter`，所以优化器没有得到它：它的数直到最后都是最初的那些。",
        ),
    )


def _of_result(name: T, here: T, back: T) -> tuple[T, T]:
    return (
        T(
            en=f"{capital(here.en)} computes {name.en} from a parameter, so it is a plain tensor: its gradients go to "
            "the parameter behind it, which no optimizer has, and it never changes.",
            zh=f"{here.zh}由一个参数算出 {name.zh}，因此它是普通张量：它的梯度都到了它背后的那个参数，而没有任何优"
            "化器持有那个参数，所以它从不改变。",
        ),
        T(
            en="The result of an operation on an `nn.Parameter` is not a parameter. `parameters()` and "
            "`state_dict()` do not list it, and the parameter itself has no name. Each backward, as on "
            f"{back.en}, adds to the `.grad` of that parameter. Compute the initial numbers first, and make a "
            "parameter of them last.",
            zh="对 `nn.Parameter` 做运算，结果不是参数。`parameters()` 和 `state_dict()` 都不会列出它，而"
            f"那个参数自己又没有名字。每次反向传播（如{back.zh}）都往那个参数的 `.grad` 里加。请先算好初始"
            "的数，最后再把它变成参数。",
        ),
    )


def _fixes(story: Story, made: Event | None, *, computed: bool) -> tuple[Fix, ...]:
    """Fixes that make a module's attribute an ``nn.Parameter``, or add another tensor to
    the list of the only optimizer.

    Empty if the tensor is not made by an assignment to one of these.
    """
    program, torch = story.program, torch_name(story.program)
    statement = next((each for each in call_chain(story, made) if not isinstance(each, ast.Return)), None)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or torch is None:
        return ()
    target, value = statement.targets[0], statement.value
    changes: list[tuple[ast.AST, str]] = [(value, _parameter(program, value, torch, computed=computed))]
    if isinstance(target, ast.Attribute):
        title = T(en=f"Make it a parameter: `{torch}.nn.Parameter(…)`", zh=f"把它变成参数：`{torch}.nn.Parameter(…)`")
        return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])
    name = program.segment(target)
    calls = [n for o in story.trace.optimizers if isinstance(n := program.at(o.span), ast.Call) and n.args]
    if (
        not isinstance(target, ast.Name)
        or len(calls) != 1
        or program.function(calls[0]) is not program.function(statement)
    ):
        return ()
    title = T(en=f"Give `{name}` to the optimizer too", zh=f"把 `{name}` 也交给优化器")
    if computed:
        title = T(en=f"Make `{name}` a parameter and give it to the optimizer", zh=f"把 `{name}` 变成参数并交给优化器")
    given = (calls[0].args[0], f"[*{program.segment(calls[0].args[0])}, {name}]")
    return unique(program.text, [Fix(title, program.replace(*(changes if computed else []), given), meaning="later")])


def _parameter(program: Program, value: ast.expr, torch: str, *, computed: bool) -> str:
    """The source of ``nn.Parameter(value)``.

    A parameter or a ``requires_grad`` inside the value is left out; if there is none and the value is ``computed``, it
    is detached.
    """
    text, maker = program.segment(value), f"{torch}.nn.Parameter"
    for call in (n for n in ast.walk(value) if isinstance(n, ast.Call)):
        plain, inner = _without_switch(call), None
        if plain is not None:
            inner = ast.unparse(plain)
        elif call_name(call) == "Parameter" and len(call.args) == 1 and not call.keywords and call is not value:
            inner, maker = operand(program, call.args[0]), program.segment(call.func)
        if inner is not None and text.count(program.segment(call)) == 1:
            return f"{maker}({text.replace(program.segment(call), inner)})"
    return f"{maker}({f'{operand(program, value)}.detach()' if computed else text})"


def _without_switch(value: ast.Call) -> ast.Call | None:
    """The call without its argument ``requires_grad``; None if it has none.

    An ``nn.Parameter`` requires grad by itself.
    """
    if not any(k.arg == "requires_grad" for k in value.keywords):
        return None
    return ast.Call(value.func, value.args, [k for k in value.keywords if k.arg != "requires_grad"])


RULE = Rule(
    code="PL622",
    name="plain-tensor-for-parameter",
    severity="warning",
    title=T(en="A plain tensor is used where a parameter was meant", zh="本应是参数的地方用了普通张量"),
    what=T(
        en="A program keeps numbers that are to be learned in an ordinary tensor with `requires_grad=True`. The "
        "module does not list them among its parameters, so the optimizer never changes them. Write `self.scale = "
        "torch.nn.Parameter(torch.ones(3))`.",
        zh="程序把要学习的数放在一个 `requires_grad=True` 的普通张量里。模块不会把它列在参数中，所以优化器从不改变它。"
        "请写 `self.scale = torch.nn.Parameter(torch.ones(3))`。",
    ),
    why=T(
        en="`nn.Module` looks at the type of what is assigned to an attribute: an `nn.Parameter` is registered, a "
        "tensor is kept like any other attribute. `requires_grad=True` only says that a gradient is to be computed. "
        "So `backward()` fills `.grad` in each round, adding to what is there since `zero_grad()` does not know the "
        "tensor either, and neither `state_dict()` nor `model.to(device)` includes it. The result of an operation on "
        "a parameter, such as `nn.Parameter(torch.randn(3)) * 0.01` or `.double()`, is a plain tensor too, and the "
        "parameter is then only a part of its graph. A gradient that the program reads itself is another matter: "
        "nothing is reported then.",
        zh="`nn.Module` 看的是赋给属性的东西是什么类型：`nn.Parameter` 会被注册，张量只是像其他属性一样保存。"
        "`requires_grad=True` 只表示要计算梯度。所以 `backward()` 每一轮都往 `.grad` 里加（`zero_grad()` 也不认识"
        "它），`state_dict()` 和 `model.to(device)` 也不包括它。由参数算出来的结果也是普通张量，例如 "
        "`nn.Parameter(torch.randn(3)) * 0.01` 或 `.double()`，而参数只留在它的计算图里。如果程序自己读取这个梯度，那"
        "是另一回事，不会报告。",
    ),
    bad="""import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.scale = torch.ones(1, requires_grad=True)  # PL622

    def forward(self, x):
        return self.linear(x) * self.scale


torch.manual_seed(0)
net = Scaled()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()  # backward
    opt.step()  # step
print(net.scale.tolist(), len(list(net.parameters())))
""",
    good="""import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 1)
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        return self.linear(x) * self.scale


torch.manual_seed(0)
net = Scaled()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
print(net.scale.tolist(), len(list(net.parameters())))
""",
    find=find,
    traps=(
        Trap(
            "torch.ones(1, requires_grad=True)",
            "torch.ones(1).requires_grad_(True)",
            T(en="That is the same plain tensor, made in two steps.", zh="这只是分两步创建的同一个普通张量。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html",),
)
