"""PL704: a list was multiplied, and with it not the object in it but the reference: all entries
are one layer, or one tensor.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Role, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import T


@dataclass(frozen=True, slots=True)
class Met:
    """``steps`` are the first two steps of the trace that used the one object of which a list has several references;
    ``is_layer`` is True where it is a layer that was called, False where a tensor was written.
    """

    steps: tuple[int, int]
    is_layer: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``[Layer()] * n`` whose one layer was used at least twice, and each ``[tensor()] * n``
    or ``dict.fromkeys`` whose one tensor was written at least twice.
    """
    for node in story.program.nodes:
        parts = _multiplied(node)
        if parts is None:
            continue
        inner, count = parts
        event = _shared_parameter(story, inner) or _written_tensor(story, inner)
        if event is not None:
            yield _finding(story, node, inner, count, event)


def _multiplied(node: ast.AST) -> tuple[ast.Call, ast.expr] | None:
    """The call inside the list, and the number, in ``[call(…)] * n``; the call and the keys in
    ``dict.fromkeys(keys, call(…))``.

    None for another expression.
    """
    if (
        isinstance(node, ast.Call)
        and call_name(node) == "fromkeys"
        and len(node.args) == 2
        and isinstance(node.args[1], ast.Call)
    ):
        return node.args[1], node.args[0]
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for items, count in ((node.left, node.right), (node.right, node.left)):
        if isinstance(items, ast.List | ast.Tuple) and len(items.elts) == 1 and isinstance(items.elts[0], ast.Call):
            return items.elts[0], count
    return None


def _shared_parameter(story: Story, inner: ast.Call) -> Met | None:
    """The first two uses of a parameter that the call made; None if there are fewer.

    A parameter of a layer of torch is recognised by the place in the source where it was made, that of a class of the
    program by the functions (``Event.scope``) that made it.
    """
    steps = {event.step for event in story.within(inner)}
    name = f"{call_name(inner)}.__init__"
    for label, record in story.leaves.items():
        born = story.event(record.get("born"))
        if record.get("kind") != "parameter" or born is None or not (born.step in steps or name in born.scope):
            continue
        uses = [use.step for use in story.uses(label) if use.results and use.results[0] != label and not use.writes]
        if len(uses) > 1:
            return Met((uses[0], uses[1]), is_layer=True)
    return None


def _written_tensor(story: Story, inner: ast.Call) -> Met | None:
    """The first two writes to the storage of the tensor that the call made; None if there are fewer."""
    made = [event for event in story.within(inner) if event.span == story.program.place(inner) and event.results]
    for event in made[:1]:
        label = event.results[0]
        storage = (story.tensor(label) or {}).get("storage")
        writes = story.writes(str(storage), event.step, len(story.events))
        if len(writes) > 1:
            return Met((writes[0], writes[1]), is_layer=False)
    return None


def _finding(story: Story, node: ast.AST, inner: ast.Call, count: ast.expr, met: Met) -> Finding:
    program, (first, second), module = story.program, met.steps, met.is_layer
    span, code = program.place(node), program.segment(inner)
    here, number = at_line(story, span), program.segment(count)
    what = T(en="layer", zh="层") if module else T(en="tensor", zh="张量")
    step = min((event.step for event in story.within(inner)), default=first)
    harm = (
        T(
            en="all of them have the same weights, and their gradients go into the same place",
            zh="它们的权重都相同，梯度也流到同一处",
        )
        if module
        else T(en="a change of one entry is a change of all", zh="改变一项就是改变所有各项")
    )
    keys = isinstance(node, ast.Call)
    new = f"{{key: {code} for key in {number}}}" if keys else f"[{code} for _ in range({number})]"
    title = T(en=f"Make one for each key: `{new}`", zh=f"为每个键各创建一个：`{new}`") if keys else T(
        en=f"Make {number} of them: `{new}`", zh=f"分别创建 {number} 个：`{new}`"
    )  # fmt: skip
    place = T(en="puts it under every key of the dictionary", zh="把它放到字典的每个键下") if keys else T(
        en=f"puts it into the list {number} times", zh=f"把它放进列表 {number} 次"
    )  # fmt: skip
    copies = T(
        en="`fromkeys` puts the same object under every key"
        if keys
        else "Multiplying a list repeats its references and copies nothing",
        zh="`fromkeys` 把同一个对象放到每个键下" if keys else "列表乘以一个数，重复的是引用，什么也没有复制",
    )
    role: Role = "used" if module else "changed"
    verb = T(en="used", zh="使用") if module else T(en="changed", zh="修改")
    again = T(en=f"and {verb.en} again here", zh=f"又在这里被{verb.zh}")
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} makes one {what.en} and {place.en}: {harm.en}.",
            zh=f"{here.zh}只创建了一个{what.zh}，却{place.zh}：{harm.zh}。",
        ),
        T(
            en=f"`{code}` is called once. {copies.en}, so every entry is the same object. A comprehension calls it "
            "anew for each entry.",
            zh=f"`{code}` 只被调用一次。{copies.zh}，所以每一项都是同一个对象。推导式则会为每一项重新调用。",
        ),
        related=[
            Related("made", span, step, T(en=f"the only {what.en} is made here", zh=f"唯一的{what.zh}在这里创建")),
            story.related(role, first, T(en=f"it is {verb.en} here", zh=f"在这里被{verb.zh}")),
            *([story.related(role, second, again)] if story.span(first) != story.span(second) else []),
        ],
        fixes=unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")]),
        facts=[Fact("count", number)],
    )


RULE = Rule(
    code="PL704",
    name="same-object-repeated",
    severity="warning",
    title=T(
        en="A multiplied list holds one layer, or one tensor, many times",
        zh="列表乘以一个数，得到的是同一个层（或张量）重复多次",
    ),
    what=T(
        en="A program built a network of equal layers with `[nn.Linear(4, 4)] * 3`. That is one layer that is passed "
        "three times, with one set of weights. Make each of them: `[nn.Linear(4, 4) for _ in range(3)]`.",
        zh="程序用 `[nn.Linear(4, 4)] * 3` 搭建由相同的层组成的网络。这只是同一个层经过三次，只有一组权重。请分别创建："
        "`[nn.Linear(4, 4) for _ in range(3)]`。",
    ),
    why=T(
        en="A Python list holds references. `[a] * 3` is `[a, a, a]`: one object under three positions. For numbers "
        "that does not matter, because they cannot be changed. A module can: an `nn.Sequential` of one module three "
        "times counts its parameters once, adds all three gradients into one `.grad`, and trains a network with a "
        "third of the weights. A tensor can: writing `states[0]` in place writes `states[1]`. To share weights on "
        "purpose, give the layer a name first; then everyone can see it.",
        zh="Python 的列表存放的是引用。`[a] * 3` 就是 `[a, a, a]`：同一个对象占三个位置。对数来说没有关系，因为数不能"
        "被改变。模块却可以：同一个模块出现三次的 `nn.Sequential` 只算一次参数，把三处的梯度加到同一个 `.grad`，训练的"
        "是只有三分之一权重的网络。张量也可以：就地写入 `states[0]` 就是写入 `states[1]`。如果是有意共用权重，请先给这"
        "个层一个名字，这样人人都看得见。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(2, 2)] * 3)  # PL704 made
x = torch.ones(1, 2)
loss = net(x).square().sum()
loss.backward()
print(len(list(net.parameters())))
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(3)])
x = torch.ones(1, 2)
loss = net(x).square().sum()
loss.backward()
print(len(list(net.parameters())))
""",
    find=find,
    traps=(
        Trap(
            "nn.Sequential(*[nn.Linear(2, 2)] * 3)",
            "nn.Sequential(*list([nn.Linear(2, 2)] * 3))",
            T(
                en="`list(…)` makes a new list of the same references.",
                zh="`list(…)` 只是用同样的引用新建一个列表。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.ModuleList.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Sequential.html",
    ),
)
