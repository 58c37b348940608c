"""PL622: a plain tensor that requires grad works as a weight, but no module registers it and no optimizer holds it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.parameters_left_out import LAYERS
from pitfall_lab.trace import Event, T

ROUNDS = 2
FURTHER = 200
"""How many tensors computed from it alone are followed."""


def find(story: Story) -> Iterator[Finding]:
    """One finding for each plain tensor that requires grad and got a gradient in several rounds while an optimizer stepped others."""
    updates = story.trace.optimizer_steps
    held = {label for update in updates for label in update.holds} | {label for made in story.trace.optimizers for label in made.holds}
    if not any((story.tensor(label) or {}).get("kind") == "parameter" for label in held):
        return
    for label, moments in lives(story).items():
        added = [m.event for m in moments if m.kind == "added"]
        if label in held or len(added) < ROUNDS or (story.tensor(label) or {}).get("kind") != "tensor":
            continue
        left = all(m.kind == "added" for m in moments) and any(added[0].step < update.step < added[-1].step for update in updates)
        if left and not _is_wanted(story, label) and _works_as_weight(story, label):
            yield _finding(story, label, added)


def _is_wanted(story: Story, label: str) -> bool:
    """Whether the program reads the tensor's gradient or computes it by ``autograd.grad``, so that it is wanted itself."""
    return any(use.name == "grad" for use in story.uses(label))


def _works_as_weight(story: Story, label: str) -> bool:
    """Whether the tensor is combined with results of trained layers, or is the right operand of a product, as a weight is.

    Never if a layer is given it: an input may require grad as well, and be added to the result.
    """
    pending, seen, weighs = [label], set[str](), False
    while pending:
        here = pending.pop()
        seen.add(here)
        for use in story.uses(here):
            others = [o.label for o in use.operands if o.label is not None and o.label not in seen]
            kinds = {_kind(story, other, use) for other in others}
            is_input = use.name in LAYERS and use.operands[0].label == here
            if "leaf" in kinds or is_input:
                return False
            if "computed" in kinds or (use.name in LAYERS and others):
                weighs = True
            elif use.error is None and len(seen) < FURTHER:
                pending += [each for each in use.results if each not in seen and _kind(story, each, use) == "computed"]
    return weighs


def _kind(story: Story, label: str, use: Event) -> str:
    """The kind of the tensor when ``use`` ran: ``leaf``, ``computed`` from one, or ``data`` if it requires no gradient."""
    record = story.tensor(label, use.step) or {}
    return "data" if not record.get("requires_grad") else "leaf" if record.get("is_leaf") else "computed"


def _finding(story: Story, label: str, added: list[Event]) -> Finding:
    made = story.line_event((story.tensor(label) or {}).get("born"))
    span = story.span(made.step) if made is not None else story.span(added[0].step)
    update = next(update for update in story.trace.optimizer_steps if update.step > added[0].step)
    name, here, back = called(story, label, None, added[0].step), at_line(story, span), at_line(story, story.span(added[0].step))
    return RULE.finding(
        span, made.step if made is not None else added[0].step,
        T(
            en=f"{capital(here.en)} makes {name.en} as a plain tensor: it gets a gradient in {len(added)} rounds, and no optimizer "
            "changes it.",
            zh=f"{here.zh}把 {name.zh} 创建为普通张量：它在 {len(added)} 轮里都得到梯度，却没有任何优化器改变它。",
        ),
        T(
            en=f"It is combined with what trained layers return, and the backward on {back.en} fills its `.grad`. But `parameters()` lists "
            "only what is an `nn.Parameter`, so the optimizer was not given it: its numbers are the first ones to the end.",
            zh=f"它与被训练的层的结果一起运算，{back.zh}的反向传播会填上它的 `.grad`。但 `parameters()` 只列出 `nn.Parameter`，"
            "所以优化器没有得到它：它的数直到最后都是最初的那些。",
        ),
        related=[
            story.related("backward", added[0].step, T(en="it gets a gradient here", zh="它在这里得到梯度")),
            story.related("step", update.step, T(en="this step does not change it", zh="这一步不会改变它")),
        ],
        fixes=_fixes(story, made),
        facts=[Fact("tensor", label, story.by(added[0].step)), Fact("rounds", len(added), story.by(added[-1].step))],
    )  # fmt: skip


def _fixes(story: Story, made: Event | None) -> tuple[Fix, ...]:
    """Fixes that make a module's attribute an ``nn.Parameter``, or add another tensor to the list of the only optimizer.

    Empty if the tensor is not made by an assignment to one of these.
    """
    program, torch = story.program, torch_name(story.program)
    statement = next(iter(call_chain(story, made)), None)
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1 or torch is None:
        return ()
    target, value = statement.targets[0], statement.value
    if isinstance(target, ast.Attribute):
        plain = _without_switch(value)
        text = ast.unparse(plain) if plain is not None else program.segment(value)
        title = T(en=f"Make it a parameter: `{torch}.nn.Parameter(…)`", zh=f"把它变成参数：`{torch}.nn.Parameter(…)`")
        return unique(program.text, [Fix(title, program.replace((value, f"{torch}.nn.Parameter({text})")), meaning="later")])
    name = program.segment(target)
    calls = [n for o in story.trace.optimizers if isinstance(n := program.at(o.span), ast.Call) and n.args]
    if not isinstance(target, ast.Name) or len(calls) != 1 or program.function(calls[0]) is not program.function(statement):
        return ()
    title = T(en=f"Give `{name}` to the optimizer too", zh=f"把 `{name}` 也交给优化器")
    given = f"[*{program.segment(calls[0].args[0])}, {name}]"
    return unique(program.text, [Fix(title, program.replace((calls[0].args[0], given)), meaning="later")])


def _without_switch(value: ast.expr) -> ast.Call | None:
    """The call without its argument ``requires_grad``; None if it has none. An ``nn.Parameter`` requires grad by itself."""
    if not isinstance(value, ast.Call) or not any(k.arg == "requires_grad" for k in value.keywords):
        return None
    return ast.Call(value.func, value.args, [k for k in value.keywords if k.arg != "requires_grad"])


RULE = Rule(
    code="PL622",
    name="plain-tensor-for-parameter",
    severity="warning",
    title=T(en="A plain tensor is used where a parameter was meant", zh="本应是参数的地方用了普通张量"),
    what=T(
        en="A program keeps numbers that are to be learned in an ordinary tensor with `requires_grad=True`. The module does not list them "
        "among its parameters, so the optimizer never changes them. Write `self.scale = torch.nn.Parameter(torch.ones(3))`.",
        zh="程序把要学习的数放在一个 `requires_grad=True` 的普通张量里。模块不会把它列在参数中，所以优化器从不改变它。请写 "
        "`self.scale = torch.nn.Parameter(torch.ones(3))`。",
    ),
    why=T(
        en="`nn.Module` looks at the type of what is assigned to an attribute: an `nn.Parameter` is registered, a tensor is kept like any "
        "other attribute. `requires_grad=True` only says that a gradient is to be computed. So `backward()` fills `.grad` in each round, "
        "adding to what is there since `zero_grad()` does not know the tensor either, and neither `state_dict()` nor `model.to(device)` "
        "includes it. A gradient that the program reads itself is another matter: nothing is reported then.",
        zh="`nn.Module` 看的是赋给属性的东西是什么类型：`nn.Parameter` 会被注册，张量只是像其他属性一样保存。`requires_grad=True` 只表示"
        "要计算梯度。所以 `backward()` 每一轮都往 `.grad` 里加（`zero_grad()` 也不认识它），`state_dict()` 和 `model.to(device)` 也不包括"
        "它。如果程序自己读取这个梯度，那是另一回事，不会报告。",
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
