"""PL636: one layer is called twice in a row, and another one of the same shape, made next to it, never."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T

LAYERS = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "embedding", "layer_norm",
    "batch_norm", "group_norm", "bilinear", "rms_norm", "matmul", "mm", "addmm", "prelu",
}  # fmt: skip
"""Layers with a weight of which there may be two of one shape."""
MACHINERY = {
    "zeros_like", "empty_like", "ones_like", "detach", "data", "clone", "requires_grad_", "requires_grad", "norm",
    "grad", "to", "dim", "_foreach_norm", "shape", "size", "numel", "is_floating_point", "deepcopy", "copy_",
}  # fmt: skip
"""Calls that optimizers, copies and counts of parameters make, and no forward."""
LIMIT = 300


@dataclass(frozen=True, slots=True)
class Twin:
    """One layer was called twice in succession, and another one of the same shape, made next to it, never.

    ``layer`` and ``other`` are what the program calls the two (``"self.fc1"``); None where its source shows no name.
    ``calls`` are the two uses and ``made`` the creation of the other layer, as syntax nodes. ``second`` is the call
    (``Event``) of the second use, ``unused`` the label of a weight of the other layer.
    """

    layer: str | None
    other: str | None
    calls: tuple[ast.AST, ast.AST]
    made: ast.AST
    second: Event
    unused: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that calls a layer, or a block of layers, with a tensor computed from its own
    result, where another one of the same shape, made next to it, is never used.
    """
    told, groups = set(), _groups(story)
    for found in itertools.chain(_layers(story, groups), _blocks(story, groups)):
        place = story.program.place(found.calls[1])
        if place not in told:
            told.add(place)
            yield _finding(story, found)


def _layers(story: Story, groups: list[list[str]]) -> Iterator[Twin]:
    """Yield the data of at most one finding for each group of layers that one run of a function made, if one of these
    layers is never used and another, of the same shape, is called twice in succession.
    """
    for group in groups:
        idle = [label for label in group if not _used(story, label)]
        for unused in idle:
            twins = [label for label in group if label not in idle and _alike(story, label, unused)]
            found = next((twin for label in twins if (twin := _twice(story, label, unused)) is not None), None)
            if found is not None:
                yield found
                break


def _blocks(story: Story, groups: list[list[str]]) -> Iterator[Twin]:
    """Yield the data of a finding for each unused block (an object of one of the program's own classes) if an equal
    block is called twice.

    Each block is identified by its first matrix; blocks without a matrix are left out.
    """
    first = [next((label for label in group if len(story.shape(label) or ()) > 1), None) for group in groups]
    blocks = [(label, group) for label, group in zip(first, groups, strict=True) if label is not None]
    for unused, group in blocks:
        if any(_used(story, label) for label in group):
            continue
        twins = (
            label
            for label, other in blocks
            if other is not group and _alike(story, label, unused) and _used(story, label)
        )
        found = next((twin for label in twins if (twin := _block_twice(story, label, unused)) is not None), None)
        if found is not None:
            yield found


def _block_twice(story: Story, label: str, unused: str) -> Twin | None:
    """The data of the finding if two statements of one function call a block, the second with the
    first one's result; else None.

    The block and the ``unused`` one must also have been made by two statements of one function.
    """
    made = _parting(story, *(story.event((story.tensor(each) or {}).get("born")) for each in (label, unused)))
    uses = [use for use in story.uses(label) if use.name in LAYERS and use.results and use.error is None]
    for first, second in itertools.pairwise(uses) if made is not None else ():
        calls = _parting(story, first, second)
        if made is None or calls is None or not _behind(story, first, second):
            continue
        layer, other = (_bound(story, statement, statement) for statement in made)
        if layer is not None and len(_named(story, calls[1], layer)) == 1:
            return Twin(layer, other, calls, made[1], second, unused)
    return None


def _parting(story: Story, one: Event | None, other: Event | None) -> tuple[ast.stmt, ast.stmt] | None:
    """The first statements, going outwards through both call stacks, that differ, if they
    are in one function; else None.
    """
    for here, there in zip(call_chain(story, one), call_chain(story, other), strict=False):
        if here is not there:
            return (here, there) if story.program.function(here) is story.program.function(there) else None
    return None


def _groups(story: Story) -> list[list[str]]:
    """The labels of the parameters of each object, in order of creation: those made by one execution of one function.

    A new execution is assumed where the same position in the source makes a parameter of the same shape again, or where
    an earlier position makes one.
    """
    groups: list[list[str]] = []
    runs: dict[tuple[str, ...], tuple[list[str], set[object], tuple[int, int]]] = {}
    for label, record in story.leaves.items():
        born = story.event(record.get("born"))
        span = story.span(born.step) if born is not None else None
        if born is None or span is None or not record.get("shape") or record.get("kind") != "parameter":
            continue
        key, place = (span, born.name, tuple(record["shape"])), (span.line, span.column)
        group, keys, last = runs.get(born.scope, ([], set(), (0, 0)))
        if not group or key in keys or place < last:
            group, keys = [], set()
            groups.append(group)
        group.append(label)
        keys.add(key)
        runs[born.scope] = (group, keys, place)
    return groups


def _used(story: Story, label: str) -> bool:
    return any(
        use.name not in MACHINERY and not use.writes and not use.op.endswith("__set__") for use in story.uses(label)
    )


def _alike(story: Story, one: str, other: str) -> bool:
    """Whether two weights have the same shape and were made by the same kind of call."""
    here, there = (story.event((story.tensor(label) or {}).get("born")) for label in (one, other))
    return here is not None and there is not None and here.name == there.name and story.shape(one) == story.shape(other)


def _twice(story: Story, label: str, unused: str) -> Twin | None:
    """The data of the finding for the first two successive calls of a layer, on two lines of one function, if the
    second was given something computed from the result of the first.

    None if there are no such calls, or if the source has no syntax node for one of them or for the creation of the
    unused layer.
    """
    uses = [use for use in story.uses(label) if use.name in LAYERS and use.results and use.error is None]
    for first, second in itertools.pairwise(uses):
        if first.span != second.span and first.scope == second.scope and _behind(story, first, second):
            calls = [story.program.at(story.span(use.step)) for use in (first, second)]
            nodes = [story.program.at(story.span((story.tensor(each) or {}).get("born"))) for each in (label, unused)]
            if calls[0] is None or calls[1] is None or nodes[1] is None:
                return None
            layer, other = (_bound(story, node, story.program.statement(node)) for node in nodes)
            return Twin(layer, other, (calls[0], calls[1]), nodes[1], second, unused)
    return None


def _behind(story: Story, first: Event, second: Event) -> bool:
    """Whether the input of the second call was computed from the result of the first.

    False if more than ``LIMIT`` steps are between them, or if what was computed first enters a ``backward`` or
    ``step``.
    """
    if second.step - first.step > LIMIT:
        return False
    reached = set(first.results)
    for event in story.events[first.step + 1 : second.step]:
        if event.kind == "call" and any(o.label in reached for o in event.operands):
            if event.name in ("backward", "step"):
                return False
            reached.update(event.results)
    return any(o.label in reached for o in second.operands[:2])


def _finding(story: Story, found: Twin) -> Finding:
    program, second = story.program, found.second
    first, span, place = program.place(found.calls[0]), program.place(found.calls[1]), program.place(found.made)
    here, there, made = (at_line(story, each) for each in (span, first, place))
    name = T(en=f"`{found.layer}`", zh=f"`{found.layer}`") if found.layer else T(en="a layer", zh="一个层")
    twin = (
        T(en=f"`{found.other}`", zh=f"`{found.other}`")
        if found.other
        else T(en=f"the layer of {made.en}", zh=f"{made.zh}的层")
    )
    return RULE.finding(
        span,
        second.step,
        T(
            en=f"{capital(here.en)} uses {name.en} a second time, behind {there.en}; {twin.en}, which has the same "
            "shape, is never used.",
            zh=f"{here.zh}在{there.zh}之后第二次使用了 {name.zh}；形状相同的 {twin.zh} 却从未使用。",
        ),
        T(
            en="The two layers have equal shapes, so torch cannot notice which of them was meant. The layer that is "
            "used twice gets the gradients of both places added up; the other layer keeps the random numbers it began "
            "with, and an optimizer passes over it. The network has fewer weights than it seems to have.",
            zh="两个层的形状相同，所以 torch 无法察觉本来想用哪一个。被用了两次的层得到两处梯度之和；另一个层保持着最"
            "初的随机数，优化器会略过它。这个网络的权重比看上去的少。",
        ),
        related=[
            Related("used", first, None, T(en="the same layer, the first time", zh="同一个层，第一次")),
            Related("made", place, None, T(en="never used", zh="从未使用")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("unused", found.unused, story.by(second.step))],
    )


def _bound(story: Story, node: ast.AST | None, statement: ast.stmt | None) -> str | None:
    """The target that the layer made by ``node`` is assigned to: ``self.fc2`` in ``self.fc2 = nn.Linear(8, 8)``, also
    in an assignment of several values; None if there is none.
    """
    program = story.program
    if not isinstance(statement, ast.Assign) or node is None:
        return None
    around = {node, *program.ancestors(node)}
    for target in statement.targets:
        pairs = zip(target.elts, statement.value.elts, strict=False) if isinstance(target, ast.Tuple) and isinstance(
            statement.value, ast.Tuple) else [(target, statement.value)]  # fmt: skip
        for name, value in pairs:
            if value in around or (node is statement and not isinstance(target, ast.Tuple)):
                return program.segment(name)
    return None


def _named(story: Story, node: ast.AST, layer: str | None) -> list[ast.AST]:
    """Return the syntax nodes in ``node`` that name the layer."""
    program = story.program
    return [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute) and program.segment(n) == layer]


def _fixes(story: Story, found: Twin) -> tuple[Fix, ...]:
    """Fixes that call the unused layer on the second line; empty unless that names the layer exactly once
    and the unused one has a name.
    """
    names = _named(story, found.calls[1], found.layer)
    if len(names) != 1 or found.other is None:
        return ()
    title = T(en=f"Use `{found.other}` here", zh=f"这里用 `{found.other}`")
    return unique(story.program.text, [Fix(title, story.program.replace((names[0], found.other)), meaning="later")])


RULE = Rule(
    code="PL636",
    name="layer-used-for-its-twin",
    severity="warning",
    title=T(en="A layer is used twice, and its twin never", zh="一个层用了两次，与它成对的层却从未使用"),
    what=T(
        en="A network has two layers of the same size, and the second one's line was copied from the first and not "
        "changed: it passes the first layer again. The second layer is never used and never learns. Write its name.",
        zh="网络有两个大小相同的层，第二个层的那一行是从第一个复制来的，却没有改：它又经过了第一个层。第二个层从未使"
        "用，也从未学习。请写上它的名字。",
    ),
    why=T(
        en="A module registers every layer that is assigned to an attribute, used or not: `parameters()` lists it, "
        "the optimizer holds it, and `state_dict()` saves it. Whether a layer takes part is decided by `forward` "
        "alone. A parameter that no result depends on has `grad` None, and optimizers leave it as it is, without a "
        "word. Sharing weights on purpose needs one layer, not two.",
        zh="模块会登记每个赋给属性的层，无论是否使用：`parameters()` 会列出它，优化器持有它，`state_dict()` 会保存它。"
        "一个层是否参与只由 `forward` 决定。没有结果依赖的参数，其 `grad` 是 None，优化器会不声不响地略过它。如果有意"
        "共享权重，需要的是一个层而不是两个。",
    ),
    bad="""import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2)  # made

    def forward(self, x):
        x = torch.tanh(self.one(x))
        return self.one(x)  # PL636


torch.manual_seed(0)
net = Net()
x = torch.randn(4, 2)
loss = net(x).square().mean()
loss.backward()
print(net.one.weight.grad)
""",
    good="""import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2)

    def forward(self, x):
        x = torch.tanh(self.one(x))
        return self.two(x)


torch.manual_seed(0)
net = Net()
x = torch.randn(4, 2)
loss = net(x).square().mean()
loss.backward()
print(net.one.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "x = torch.tanh(self.one(x))\n        return self.one(x)",
            "y = torch.tanh(self.one(x))\n        return self.one(y)",
            T(
                en="Other names for the values do not change which layer computes them.",
                zh="给值换个名字，并不会改变由哪个层来计算。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
