"""PL908: the running statistics of a frozen network's batch norm still changed, because it was in training mode."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.modes import LayerCall, Modes
from pitfall_lab.trace import Event, T

ROUNDS = 2


@dataclass(frozen=True, slots=True)
class FrozenStatisticsMove:
    """``passes`` are the forward passes of one batch norm (:class:`LayerCall`) that changed its running statistics
    although its weight, labelled ``weight``, was frozen.

    ``update`` is the event of the program's first optimizer step; None if it is not known.
    """

    passes: tuple[LayerCall, ...]
    weight: str
    update: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: for the first batch norm whose weight is frozen and no longer written, and whose
    running statistics still change in at least ``ROUNDS`` forward passes with optimizer steps between them.
    """
    updates = story.trace.optimizer_steps
    if not updates:
        return
    layers: dict[object, list[LayerCall]] = defaultdict(list)
    for each in Modes(story).passes:
        if each.kind == "batch_norm" and each.weight is not None:
            layers[each.layer].append(each)
    for passes in layers.values():
        weight = passes[0].weight
        since = _frozen_since(story, weight) if weight is not None else None
        if weight is None or since is None:
            continue
        active = [each for each in passes if each.active and each.event.step > since]
        between = sum(any(a.event.step < u.step < b.event.step for u in updates) for a, b in pairwise(active))
        storage = str((story.tensor(weight) or {}).get("storage"))
        if between >= ROUNDS - 1 and not story.writes(storage, active[0].event.step, len(story.events)):
            yield _finding(story, FrozenStatisticsMove(tuple(active), weight, story.event(updates[0].step)))
            return


def _frozen_since(story: Story, weight: str) -> int | None:
    """Return the step from which on a layer's weight never requires grad again; None if there is none, or if an
    optimizer created or run later holds the weight.
    """
    if (story.tensor(weight) or {}).get("kind") != "parameter":
        return None
    flags = story.history("tensors", weight, "requires_grad")
    if not flags or flags[-1][1]:
        return None
    trained = max((number for number, (_, value) in enumerate(flags) if value), default=-1)
    since = flags[trained + 1][0]
    later = [made for made in story.trace.optimizers if made.step > since] + [
        s for s in story.trace.optimizer_steps if s.step > since
    ]
    return None if any(weight in each.holds for each in later) else since


def _finding(story: Story, found: FrozenStatisticsMove) -> Finding:
    first, last = found.passes[0].event, found.passes[-1].event
    span = story.span(first.step)
    here = at_line(story, span)
    count = len(found.passes)
    return RULE.finding(
        span,
        first.step,
        T(
            en=f"{capital(here.en)} moves the running statistics of a batch norm whose weights are frozen: it was "
            f"called {count} times in training mode.",
            zh=f"{here.zh}改变了一个权重已冻结的 batch norm 的运行统计量：它在训练模式下被调用了 {count} 次。",
        ),
        T(
            en="`requires_grad=False` keeps the weights from being trained. The mean and the variance of a batch norm "
            "are no parameters: in training mode every forward moves them towards the new data, and normalises by the "
            "batch instead of by them. So the frozen part is another network after training than before. Call "
            "`eval()` on it after each `train()`.",
            zh="`requires_grad=False` 使权重不被训练。batch norm 的均值与方差不是参数：在训练模式下，每次前向都会把它"
            "们移向新数据，而且按批次而不是按它们归一化。所以冻结的部分在训练之后已是另一个网络。请在每次 `train()` 之"
            "后对它调用 `eval()`。",
        ),
        related=[
            *_switches_before(story, found),
            *(
                [story.related("used", last.step, T(en="moved again here", zh="在这里再次移动"))]
                if last.span != first.span
                else []
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("passes", count, story.by(last.step))],
    )


def _switches(program: Program) -> list[ast.Call]:
    """The ``….train()`` calls of the program without arguments."""
    return [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and call_name(n) == "train" and not n.args and not n.keywords
    ]


def _switches_before(story: Story, found: FrozenStatisticsMove) -> Iterator[Related]:
    """Yield, as related lines, the ``train()`` calls in the functions that were running in the first forward pass of
    the finding.
    """
    running = {story.program.function(statement) for statement in call_chain(story, found.passes[0].event)}
    for node in _switches(story.program):
        if story.program.function(node) in running:
            yield Related(
                "changed", story.program.place(node), None, T(en="into training mode here", zh="在这里进入训练模式")
            )


def _fixes(story: Story, found: FrozenStatisticsMove) -> tuple[Fix, ...]:
    """Fixes that add ``….eval()`` for the module whose parameters the program froze, after each ``….train()`` or else
    after the freezing, or that switch the module to training mode only while its weights require grad.

    Empty if the program does not show that module.
    """
    program = story.program
    if program.tree is None:
        return ()
    frozen = [_part(story, found, name) for name in (_frozen(story, found.weight),) if name]
    fixes: list[Fix] = []
    for name in frozen:
        if name.startswith("self."):
            fixes += _of_its_owner(story, found, name)
        title = T(
            en=f"Put the frozen part in evaluation mode: `{name}.eval()`",
            zh=f"把冻结的部分设为评估模式：`{name}.eval()`",
        )
        statements = [s for n in _switches(program) if isinstance(s := program.parents.get(n), ast.Expr)]
        own = [
            n for n in _switches(program) if isinstance(n.func, ast.Attribute) and program.segment(n.func.value) == name
        ]
        if own:  # its own switch, which the program calls while it is trained too
            new = f"{name}.train(next({name}.parameters()).requires_grad)"
            said = T(
                en=f"Training mode only while its weights are trained: `{new}`",
                zh=f"只在训练其权重时才进入训练模式：`{new}`",
            )
            fixes.append(Fix(said, program.replace(*((node, new) for node in own)), meaning="later"))
        if statements:
            edits = [
                edit
                for s in sorted(statements, key=lambda s: -s.lineno)
                for edit in program.insert_after(s, f"{name}.eval()")
            ]
            fixes.append(Fix(title, tuple(edits), meaning="later"))
            if any(
                found.weight in update.holds for update in story.trace.optimizer_steps
            ):  # trained before it was frozen
                new = f"{name}.train(next({name}.parameters()).requires_grad)"
                said = T(
                    en=f"Training mode only while its weights are trained: `{new}`",
                    zh=f"只在训练其权重时才进入训练模式：`{new}`",
                )
                ordered = sorted(statements, key=lambda s: -s.lineno)
                added = tuple(edit for s in ordered for edit in program.insert_after(s, new))
                fixes.append(Fix(said, added, meaning="later"))
        step = next(
            (
                e.step
                for e in story.calls("requires_grad_", "requires_grad")
                if e.operands and e.operands[0].label == found.weight
            ),
            None,
        )
        place = program.statement_at(story.span(step)) if step is not None else None
        while place is not None and isinstance(outer := program.parents.get(place), ast.For):
            place = outer
        if place is not None and not statements:
            fixes.append(Fix(title, program.insert_after(place, f"{name}.eval()"), meaning="later"))
    return unique(program.text, fixes)


def _part(story: Story, found: FrozenStatisticsMove, name: str) -> str:
    """The module in ``name`` that has the batch norm, ``model.backbone``, if a name of the weight shows it and the
    program trained the weights before; else ``name``: other parts may go on in training mode.
    """
    if not any(found.weight in update.holds for update in story.trace.optimizer_steps):
        return name
    for known in (story.tensor(found.weight, found.passes[0].event.step) or {}).get("names") or []:
        inside = re.match(rf"{re.escape(name)}\.([A-Za-z_]\w*)[.\[].*\bweight$", known)
        if inside is not None:
            return f"{name}.{inside[1]}"
    return name


def _of_its_owner(story: Story, found: FrozenStatisticsMove, name: str) -> Iterator[Fix]:
    """Yield fixes for a frozen submodule that a module has as ``self.teacher``.

    One calls ``eval()`` of the submodule after each ``train()`` of its owner; the other gives the owner a method
    ``train`` that does so.
    """
    program, rest = story.program, name.removeprefix("self.")
    running = {program.function(statement) for statement in call_chain(story, found.passes[0].event)}
    switches = [n for n in _switches(program) if program.function(n) in running and isinstance(n.func, ast.Attribute)]
    statements = [
        (s, n.func.value)
        for n in switches
        if isinstance(s := program.parents.get(n), ast.Expr) and isinstance(n.func, ast.Attribute)
    ]
    edits = [
        edit for s, owner in sorted(statements, key=lambda each: -each[0].lineno)
        for edit in program.insert_after(s, f"{program.segment(owner)}.{rest}.eval()")
    ]  # fmt: skip
    if edits:
        said = f"{program.segment(statements[0][1])}.{rest}.eval()"
        title = T(en=f"Put the frozen part in evaluation mode: `{said}`", zh=f"把冻结的部分设为评估模式：`{said}`")
        yield Fix(title, tuple(edits), meaning="later")
    node = program.at(
        story.span(
            next(
                (e.step for e in story.calls("requires_grad_") if found.weight in e.results), found.passes[0].event.step
            )
        )
    )
    owner = (
        next((each for each in program.ancestors(node) if isinstance(each, ast.ClassDef)), None)
        if node is not None
        else None
    )
    methods = (
        {each.name for each in owner.body if isinstance(each, ast.FunctionDef)} if owner is not None else {"train"}
    )
    if owner is not None and "train" not in methods:
        lines = ("", "def train(self, mode=True):", "    super().train(mode)", f"    {name}.eval()", "    return self")
        title = T(
            en=f"Keep `{name}` in evaluation mode whatever mode its owner has",
            zh=f"无论所属模块处于什么模式，都让 `{name}` 处于评估模式",
        )
        yield Fix(title, program.insert_after(owner.body[-1], *lines), meaning="later")


def _frozen(story: Story, weight: str) -> str | None:
    """Return the source text of ``net`` if ``for p in net.parameters()`` or ``net.requires_grad_(False)`` froze the
    weight; None if it was frozen in another way.
    """
    program = story.program
    for event in story.calls("requires_grad_", "requires_grad"):
        if not event.operands or event.operands[0].label != weight:
            continue
        node = program.at(story.span(event.step))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "requires_grad_":
            value = node.func.value
            if not isinstance(value, ast.Name) or not _loop(story, node):
                return program.segment(value)
        loop = _loop(story, node) if node is not None else None
        source = loop.iter if loop is not None else None
        if (
            isinstance(source, ast.Call)
            and isinstance(source.func, ast.Attribute)
            and source.func.attr in ("parameters", "named_parameters")
        ):
            return program.segment(source.func.value)
    return None


def _loop(story: Story, node: ast.AST) -> ast.For | None:
    """The loop around ``node`` that goes over parameters; None if there is none."""
    return next(
        (
            n
            for n in story.program.ancestors(node)
            if isinstance(n, ast.For) and "parameters()" in story.program.segment(n.iter)
        ),
        None,
    )


RULE = Rule(
    code="PL908",
    name="frozen-statistics-move",
    severity="warning",
    title=T(en="A frozen network's running statistics still change", zh="冻结的网络的运行统计量仍在改变"),
    what=T(
        en="A program freezes a trained part of a network and trains the rest, but the frozen part still measures the "
        "mean and variance of the new data and changes with them. Freezing the weights is not enough: put that part "
        "in evaluation mode with `eval()`.",
        zh="程序冻结了网络中训练好的部分而训练其余部分，但冻结的部分仍在测量新数据的均值与方差，并随之改变。只冻结权重"
        "不够：请用 `eval()` 把那一部分设为评估模式。",
    ),
    why=T(
        en="A batch norm layer has two kinds of numbers: parameters, which gradients train, and buffers, which "
        "`forward` itself updates in training mode. `requires_grad_(False)` and `torch.no_grad()` concern gradients "
        "only. `model.train()` sets the mode of all parts, the frozen one included, so `eval()` has to be called on "
        "it again after each `train()`, or `train()` be overridden.",
        zh="batch norm 层有两类数：由梯度训练的参数，以及在训练模式下由 `forward` 自己更新的缓冲区。"
        "`requires_grad_(False)` 与 `torch.no_grad()` 只涉及梯度。`model.train()` 会设置所有部分的模式，包括冻结的部"
        "分，所以每次 `train()` 之后都要再对它调用 `eval()`，或者重写 `train()`。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
for p in body.parameters():
    p.requires_grad_(False)
head = nn.Linear(2, 1)
model = nn.Sequential(body, head)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
x, y = torch.randn(4, 3) + 2, torch.randn(4, 1)
model.train()
for _ in range(3):
    loss = ((model(x) - y) ** 2).mean()  # PL908
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), body[1].running_mean)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
for p in body.parameters():
    p.requires_grad_(False)
head = nn.Linear(2, 1)
model = nn.Sequential(body, head)
opt = torch.optim.SGD(head.parameters(), lr=0.1)
x, y = torch.randn(4, 3) + 2, torch.randn(4, 1)
model.train()
body.eval()
for _ in range(3):
    loss = ((model(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), body[1].running_mean)
""",
    find=find,
    traps=(
        Trap(
            "model.train()\n",
            "body.eval()\nmodel.train()\n",
            T(
                en="`model.train()` switches all of its parts, so `body` is in training mode again.",
                zh="`model.train()` 会切换它的所有部分，所以 `body` 又回到训练模式。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
