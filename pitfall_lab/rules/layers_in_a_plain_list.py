"""PL608: a module keeps layers in a plain list (tuple, dictionary), so its ``parameters()`` do not contain theirs."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.training import Moment, lives
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Span, T

DISPLAYS = {
    ast.List: "ModuleList", ast.Tuple: "ModuleList", ast.ListComp: "ModuleList", ast.Dict: "ModuleDict",
    ast.DictComp: "ModuleDict",
}  # fmt: skip
CALLS = {"list": "ModuleList", "tuple": "ModuleList", "dict": "ModuleDict"}
FILLS = {"append", "extend", "insert"}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each plain container (list, tuple, dictionary) of a module whose layers get gradients that
    no update uses, while others are updated.

    Also one if all layers are in such containers, so that torch refuses to make an optimizer without parameters.
    """
    held = dict(_held(story.program)) if story.program.tree is not None else {}
    yield from _refused(story, held)
    reported: set[ast.Assign] = set()
    for label, moments in lives(story).items() if held else ():
        if any(m.kind in ("used", "frozen") for m in moments):
            continue
        born = (story.tensor(label) or {}).get("born")
        chain = call_chain(story, story.line_event(born))
        assigned = next((held[statement] for statement in chain if statement in held), None)
        update = _update(story, moments[0].step)
        if assigned is not None and update is not None and assigned not in reported:
            reported.add(assigned)
            yield _finding(story, label, assigned, moments[0], update)


def _refused(story: Story, held: dict[ast.stmt, ast.Assign]) -> Iterator[Finding]:
    """Yield one finding for each plain container of layers if the program ended because torch refused to make an
    optimizer without parameters; else nothing.
    """
    failure = story.trace.outcome.failure
    if (
        not held
        or failure is None
        or failure.span is None
        or not failure.message.startswith("optimizer got an empty parameter list")
    ):
        return
    containers: dict[ast.Assign, int] = {}
    for record in story.leaves.values():
        chain = call_chain(story, story.line_event(record["born"])) if record["kind"] == "parameter" else ()
        assigned = next((held[statement] for statement in chain if statement in held), None)
        if assigned is not None:
            containers.setdefault(assigned, record["born"])
    for assigned, born in containers.items():
        yield _refusal(story, assigned, born, failure.span)


def _held(program: Program) -> Iterator[tuple[ast.stmt, ast.Assign]]:
    """Yield each statement in a class that assigns or adds to a plain container in an attribute, with the assignment
    that makes the container.
    """
    for owner in (n for n in program.nodes if isinstance(n, ast.ClassDef) and n.bases):
        statements = [n for n in ast.walk(owner) if isinstance(n, ast.stmt)]
        made = {
            program.segment(n.targets[0]): n
            for n in statements
            if isinstance(n, ast.Assign) and _is_own(n) and _registers(n.value)
        }
        for statement in statements:
            into = _filled(program, statement)
            if into in made:
                yield statement, made[into]


def _is_own(statement: ast.Assign) -> bool:
    """Whether the statement has one target and that is an attribute, as in ``self.blocks = …``."""
    return len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Attribute)


def _registers(value: ast.expr) -> str | None:
    """The torch class that would register what this plain container holds (``"ModuleList"``); None for any other
    expression.
    """
    plain = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
    return CALLS.get(call_name(value)) if plain and isinstance(value, ast.Call) else DISPLAYS.get(type(value))


def _filled(program: Program, statement: ast.stmt) -> str | None:
    """The source code of what a statement assigns to or adds to: ``self.blocks``; None if the statement does
    neither.
    """
    target: ast.expr | None = None
    if isinstance(statement, ast.Assign | ast.AugAssign):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
        target = target.value if isinstance(target, ast.Subscript) else target
    elif (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Call)
        and isinstance(statement.value.func, ast.Attribute)
    ):
        target = statement.value.func.value if statement.value.func.attr in FILLS else None
    return program.segment(target) if target is not None else None


def _update(story: Story, after: int) -> Moment | None:
    """The first moment after the step ``after`` at which an update used the gradient of any leaf; None if there is
    none.
    """
    used = [m for moments in lives(story).values() for m in moments if m.kind == "used" and m.step > after]
    return min(used, key=lambda m: m.step, default=None)


def _refusal(story: Story, assigned: ast.Assign, born: int, raised: Span) -> Finding:
    place, name = story.program.place(assigned), story.program.segment(assigned.targets[0])
    here, there, kind = at_line(story, place), at_line(story, raised), _kind(assigned)
    return RULE.finding(
        place,
        born,
        T(
            en=f"{capital(here.en)} keeps layers in a plain {kind.en}, `{name}`, and {there.en} finds no "
            "parameter to optimize.",
            zh=f"{here.zh}把层放进了普通的{kind.zh} `{name}`，{there.zh}因此找不到可以优化的参数。",
        ),
        T(
            en=f"A model finds its layers among its own attributes, and it does not look into a plain {kind.en}: "
            "`parameters()` is empty.",
            zh=f"模型在自己的属性里找各个层，不会去看普通{kind.zh}里面：`parameters()` 是空的。",
        ),
        related=[
            Related("made", place, born, T(en=f"layers in a plain {kind.en}", zh=f"层放在普通的{kind.zh}里")),
            Related(
                "step",
                raised,
                len(story.events),
                T(en="torch raises: no parameter to optimize", zh="torch 报错：没有可优化的参数"),
            ),
        ],
        fixes=_fixes(story.program, assigned),
        severity="error",
    )


def _kind(assigned: ast.Assign) -> T:
    return {"ModuleList": T(en="list", zh="列表"), "ModuleDict": T(en="dictionary", zh="字典")}[
        _registers(assigned.value) or "ModuleList"
    ]


def _finding(story: Story, label: str, assigned: ast.Assign, added: Moment, update: Moment) -> Finding:
    program, born = story.program, (story.tensor(label) or {}).get("born")
    place, name = program.place(assigned), program.segment(assigned.targets[0])
    here, there = at_line(story, place), at_line(story, story.span(update.step))
    kind = _kind(assigned)
    return RULE.finding(
        place,
        born,
        T(
            en=f"{capital(here.en)} keeps layers in a plain {kind.en}, `{name}`; they get gradients, but "
            f"{there.en} never updates them.",
            zh=f"{here.zh}把层放进了普通的{kind.zh} `{name}`：它们有梯度，但{there.zh}从不更新它们。",
        ),
        T(
            en=f"A model finds its layers among its own attributes, and it does not look into a plain {kind.en}. So "
            f"`parameters()` leaves out what `{name}` holds: the update on {there.en} does not know these layers, and "
            "they stay as they were made.",
            zh=f"模型在自己的属性里找各个层，不会去看普通{kind.zh}里面。所以 `parameters()` 不包含 `{name}` 里的东西："
            f"{there.zh}的更新不知道这些层，它们一直保持刚创建时的样子。",
        ),
        related=[
            Related("made", place, born, T(en=f"layers in a plain {kind.en}", zh=f"层放在普通的{kind.zh}里")),
            story.related("backward", added.step, T(en="they get gradients", zh="它们得到梯度")),
            story.related(
                "step", update.step, T(en="other layers are updated, these are not", zh="别的层更新了，它们没有")
            ),
        ],
        fixes=_fixes(program, assigned),
        facts=[Fact("tensor", label, story.by(added.step))],
    )


def _fixes(program: Program, assigned: ast.Assign) -> tuple[Fix, ...]:
    owner = next((a for a in program.ancestors(assigned) if isinstance(a, ast.ClassDef)), None)
    base = (
        next((b for b in owner.bases if isinstance(b, ast.Attribute) and b.attr == "Module"), None)
        if owner is not None
        else None
    )
    torch = torch_name(program)
    prefix = program.segment(base.value) if base is not None else f"{torch}.nn" if torch else None
    if prefix is None:
        return ()
    wrapper = f"{prefix}.{_registers(assigned.value)}"
    empty = isinstance(assigned.value, ast.List | ast.Tuple) and not assigned.value.elts
    empty = (
        empty
        or (isinstance(assigned.value, ast.Call) and not assigned.value.args)
        or program.segment(assigned.value) == "{}"
    )
    text = program.segment(assigned.value)
    text = f"({text})" if isinstance(assigned.value, ast.Tuple) and not text.startswith("(") else text
    title = T(en=f"Let the model know them: `{wrapper}`", zh=f"让模型知道它们：`{wrapper}`")
    return unique(
        program.text,
        [Fix(title, program.replace((assigned.value, f"{wrapper}({'' if empty else text})")), meaning="recompute")],
    )


RULE = Rule(
    code="PL608",
    name="layers-in-a-plain-list",
    severity="warning",
    title=T(en="Layers kept in a plain list are not trained", zh="放在普通列表里的层得不到训练"),
    what=T(
        en="A model keeps some of its layers in an ordinary list, and so it does not know that they belong to it: "
        "they are used, but never trained. Put them into `nn.ModuleList`.",
        zh="模型把一些层放在普通的列表里，因此不知道它们是自己的一部分：它们被使用，却从未得到训练。请把它们放"
        "进 `nn.ModuleList`。",
    ),
    why=T(
        en="Assigning a layer to an attribute of an `nn.Module` registers it: `parameters()`, `state_dict()`, "
        "`train()`, `eval()`, `to()` and `zero_grad()` walk over what is registered. A list, a tuple or a dictionary "
        "is not a module, so nothing in it is registered. `backward()` follows the computation and fills the `.grad` "
        "of these layers as usual; only the optimizer never sees them, and nothing clears those gradients. "
        "`nn.ModuleList` and `nn.ModuleDict` hold layers in the same way and register them; `nn.ParameterList` does "
        "this for single parameters. Only a model whose layers are all hidden fails loudly: the optimizer refuses an "
        "empty list of parameters.",
        zh="把层赋给 `nn.Module` 的属性时会登记它：`parameters()`、`state_dict()`、`train()`、`eval()`、`to()` 和 "
        "`zero_grad()` 走过的都是登记过的东西。列表、元组或字典不是模块，里面的东西没有登记。`backward()` 沿着计算"
        "走，照样会填这些层的 `.grad`；只是优化器从来看不到它们，也没有谁清掉这些梯度。`nn.ModuleList` 和 "
        "`nn.ModuleDict` 用同样的方式装层，并且登记它们；单个参数则用 `nn.ParameterList`。只有所有的层都藏了起来的"
        "模型才会报错：优化器拒绝空的参数列表。",
    ),
    advice=T(
        en="put the layers of {made} into `nn.ModuleList`, so that the model knows them.",
        zh="把{made}的层放进 `nn.ModuleList`，让模型知道它们。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = [nn.Linear(2, 2) for _ in range(2)]  # PL608 made
        self.out = nn.Linear(2, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()  # backward
    opt.step()  # step
    print(len(list(net.parameters())), net.hidden[0].bias[0].item())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.ModuleList([nn.Linear(2, 2) for _ in range(2)])
        self.out = nn.Linear(2, 1)

    def forward(self, x):
        for layer in self.hidden:
            x = torch.tanh(layer(x))
        return self.out(x)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    opt.zero_grad()
    loss = (net(x) - y).square().mean()
    loss.backward()
    opt.step()
    print(len(list(net.parameters())), net.hidden[0].bias[0].item())
""",
    find=find,
    traps=(
        Trap(
            "[nn.Linear(2, 2) for _ in range(2)]",
            "tuple(nn.Linear(2, 2) for _ in range(2))",
            T(
                en="A tuple is as plain as a list: the model does not look into it either.",
                zh="元组和列表一样普通：模型同样不会去看它里面。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html",),
)
