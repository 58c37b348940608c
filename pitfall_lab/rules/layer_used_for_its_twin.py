"""PL636: one layer is passed twice, and another one of the same shape, made beside it, never."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T

LAYERS = {
    "linear", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "embedding", "layer_norm", "batch_norm", "group_norm",
    "bilinear", "rms_norm", "matmul", "mm", "addmm", "prelu",
}  # fmt: skip
MACHINERY = {
    "zeros_like", "empty_like", "ones_like", "detach", "data", "clone", "requires_grad_", "requires_grad", "norm", "grad", "to", "dim",
    "_foreach_norm", "shape", "size", "numel", "is_floating_point", "deepcopy", "copy_",
}  # fmt: skip
"""Calls that optimizers, copies and counts of parameters make, and no forward."""
LIMIT = 300


@dataclass(frozen=True, slots=True)
class Twin:
    """``weight`` was used at ``first`` and, behind that, at ``second``; ``unused``, made beside it with the same shape, never."""

    weight: str
    unused: str
    first: Event
    second: Event


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line that passes a layer again whose neighbour of the same shape is never used."""
    told = set()
    for group in _groups(story):
        idle = [label for label in group if not _used(story, label)]
        for unused in idle:
            twins = [label for label in group if label not in idle and _alike(story, label, unused)]
            found = next((twin for label in twins if (twin := _twice(story, label, unused)) is not None), None)
            place = story.span(found.second.step) if found is not None else None
            if found is not None and place not in told:
                told.add(place)
                yield _finding(story, found)
                break


def _groups(story: Story) -> list[list[str]]:
    """The weights of each object: those made in one run of one function, in order."""
    groups: list[list[str]] = []
    open_: dict[tuple[str, ...], tuple[list[str], set[object]]] = {}
    for label, record in story.leaves.items():
        born = story.event(record.get("born"))
        shape = tuple(record.get("shape") or ())
        if born is None or not shape or record.get("kind") != "parameter":
            continue
        key = (story.span(born.step), born.name, shape)
        if born.scope not in open_ or key in open_[born.scope][1]:
            open_[born.scope] = ([], set())
            groups.append(open_[born.scope][0])
        open_[born.scope][0].append(label)
        open_[born.scope][1].add(key)
    return groups


def _used(story: Story, label: str) -> bool:
    return any(use.name not in MACHINERY and not use.writes and not use.op.endswith("__set__") for use in story.uses(label))


def _alike(story: Story, one: str, other: str) -> bool:
    """Same shape, and made by the same kind of call?"""
    here, there = (story.event((story.tensor(label) or {}).get("born")) for label in (one, other))
    return here is not None and there is not None and here.name == there.name and story.shape(one) == story.shape(other)


def _twice(story: Story, label: str, unused: str) -> Twin | None:
    """The first two uses on two lines, of which the second one gets what was computed from the first."""
    uses = [use for use in story.uses(label) if use.name in LAYERS and use.results and use.error is None]
    for first, second in itertools.pairwise(uses):
        if first.span != second.span and first.scope == second.scope and _behind(story, first, second):
            return Twin(label, unused, first, second)
    return None


def _behind(story: Story, first: Event, second: Event) -> bool:
    """Was the input of the second call computed from the result of the first?"""
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
    second = found.second
    here, there = at_line(story, story.span(second.step)), at_line(story, story.span(found.first.step))
    layer, other = _target(story, found.weight), _target(story, found.unused)
    made = at_line(story, story.span((story.tensor(found.unused) or {}).get("born")))
    name = T(en=f"`{layer}`", zh=f"`{layer}`") if layer else T(en="a layer", zh="一个层")
    twin = T(en=f"`{other}`", zh=f"`{other}`") if other else T(en=f"the layer of {made.en}", zh=f"{made.zh}的层")
    return RULE.finding(
        story.span(second.step), second.step,
        T(
            en=f"{capital(here.en)} uses {name.en} a second time, behind {there.en}; {twin.en}, which has the same shape, is never used.",
            zh=f"{here.zh}在{there.zh}之后第二次使用了 {name.zh}；形状相同的 {twin.zh} 却从未使用。",
        ),
        T(
            en="The two layers have equal shapes, so torch cannot notice which of them was meant. The layer that is used twice gets the "
            "gradients of both places added up; the other one keeps the random numbers it began with, and an optimizer passes over it. "
            "The network has fewer weights than it seems to have.",
            zh="两个层的形状相同，所以 torch 无法察觉本来想用哪一个。被用了两次的层得到两处梯度之和；另一个层保持着最初的随机数，优化"
            "器会略过它。"
            "这个网络的权重比看上去的少。",
        ),
        related=[
            story.related("used", found.first.step, T(en="the same layer, the first time", zh="同一个层，第一次")),
            story.related("made", (story.tensor(found.unused) or {}).get("born"), T(en="never used", zh="从未使用")),
        ],
        fixes=_fixes(story, found, layer, other),
        facts=[Fact("unused", found.unused, story.by(second.step))],
    )  # fmt: skip


def _target(story: Story, label: str) -> str | None:
    """``self.fc2`` where the weight was made in ``self.fc2 = nn.Linear(8, 8)``."""
    program = story.program
    node = program.at(story.span((story.tensor(label) or {}).get("born")))
    statement = program.statement(node)
    if not isinstance(statement, ast.Assign) or node is None:
        return None
    around = {node, *program.ancestors(node)}
    for target in statement.targets:
        pairs = zip(target.elts, statement.value.elts, strict=False) if isinstance(target, ast.Tuple) and isinstance(
            statement.value, ast.Tuple) else [(target, statement.value)]  # fmt: skip
        for name, value in pairs:
            if value in around:
                return program.segment(name)
    return None


def _fixes(story: Story, found: Twin, layer: str | None, other: str | None) -> tuple[Fix, ...]:
    """The other layer on the second line."""
    program = story.program
    node = program.at(story.span(found.second.step))
    names = (
        [n for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute) and program.segment(n) == layer] if node is not None else []
    )
    if len(names) != 1 or other is None:
        return ()
    title = T(en=f"Use `{other}` here", zh=f"这里用 `{other}`")
    return unique(program.text, [Fix(title, program.replace((names[0], other)), meaning="later")])


RULE = Rule(
    code="PL636",
    name="layer-used-for-its-twin",
    severity="warning",
    title=T(en="A layer is used twice, and its twin never", zh="一个层用了两次，与它成对的层却从未使用"),
    what=T(
        en="A network has two layers of the same size, and the second one's line was copied from the first and not changed: it passes the "
        "first layer again. The second layer is never used and never learns. Write its name.",
        zh="网络有两个大小相同的层，第二个层的那一行是从第一个复制来的，却没有改：它又经过了第一个层。第二个层从未使用，也从未学习。"
        "请写上它的名字。",
    ),
    why=T(
        en="A module registers every layer that is assigned to an attribute, used or not: `parameters()` lists it, the optimizer holds it, "
        "and `state_dict()` saves it. Whether a layer takes part is decided by `forward` alone. A parameter that no result depends on has "
        "`grad` None, and optimizers leave it as it is, without a word. Sharing weights on purpose needs one layer, not two.",
        zh="模块会登记每个赋给属性的层，无论是否使用：`parameters()` 会列出它，优化器持有它，`state_dict()` 会保存它。一个层是否参与"
        "只由 `forward` "
        "决定。没有结果依赖的参数，其 `grad` 是 None，优化器会不声不响地略过它。如果有意共享权重，需要的是一个层而不是两个。",
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
            T(en="Other names for the values do not change which layer computes them.", zh="给值换个名字，并不会改变由哪个层来计算。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
