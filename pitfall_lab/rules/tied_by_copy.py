"""PL718: an embedding and the output layer begin as copies of each other, and are then trained apart."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import BYPASSES, is_name
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, number
from pitfall_lab.trace import Event, T

ROUNDS, FURTHER = 2, 30
COPIES = ("clone", "tensor", "as_tensor", "contiguous")
"""Calls that may copy a weight."""


@dataclass(frozen=True, slots=True)
class TiedByCopy:
    """``event`` is the call (``Event``) that made the weight labelled ``copy`` from the one labelled ``source``;
    ``uses`` are the calls of the two layers with these weights in one forward.

    ``first`` is None where one was copied into the other. Else both were copied from a third tensor, which was computed
    from a weight that the layers shared before: ``source`` by ``first``, ``copy`` by ``event``.
    """

    event: Event
    source: str
    copy: str
    uses: tuple[Event, Event]
    first: Event | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each copy between an embedding's table and an output layer, or a layer and its transpose,
    that are then trained by one loss, each by itself.

    Only if the whole of one parameter was copied into another, or of one tensor into both: of new numbers for a weight
    that both layers used before. Not where the two are made equal again later.
    """
    weights = {(story.tensor(label) or {}).get("storage"): label for label in _trained(story)}
    thirds: dict[tuple[object, ...], list[tuple[Event, str]]] = defaultdict(list)
    for event in story.calls("copy_", *COPIES):
        if len(event.operands) < 1 or event.error is not None or not event.results:
            continue
        given = (
            event.operands[1].label if event.name == "copy_" and len(event.operands) > 1 else event.operands[0].label
        )
        source = weights.get((story.tensor(given, event.step) or {}).get("storage"))
        copy = weights.get((story.tensor(event.results[0], event.step) or {}).get("storage"))
        first = None
        if source is None and copy is not None and _is_whole(story, given, copy, event.step):
            record = story.tensor(given, event.step) or {}
            third = (record.get("storage"), record.get("offset"), record.get("counter"))
            if thirds[third]:
                first, source = thirds[third][0]
            thirds[third].append((event, copy))
        if source is None or copy is None or source == copy or not _is_whole(story, given, source, event.step):
            continue
        if first is not None and (
            story.writes(str((story.tensor(given, event.step) or {}).get("storage")), first.step, event.step)
            or not _were_tied(story, given, first.step)
        ):
            continue
        found = _tied(story, event, source, copy)
        if found is not None:
            yield _finding(story, replace(found, first=first))


def _were_tied(story: Story, label: str | None, step: int) -> bool:
    """Whether a tensor was computed from a weight that an embedding and a linear layer both used until ``step``."""
    users: dict[object, set[str]] = defaultdict(set)
    for use in story.calls("embedding", "linear"):
        if use.step < step:
            for operand in use.operands[1:]:
                if operand.label is not None:
                    users[(story.tensor(operand.label, use.step) or {}).get("storage")].add(use.name)
    pending, seen = [label], {label}
    while pending and len(seen) < FURTHER:
        record = story.tensor(pending.pop()) or {}
        if len(users.get(record.get("storage"), ())) > 1:
            return True
        made = story.event(record.get("born"))
        new = [o.label for o in made.operands if o.label not in seen] if made is not None else []
        seen.update(new)
        pending += new
    return False


def _trained(story: Story) -> list[str]:
    held = dict.fromkeys(label for update in story.trace.optimizer_steps for label in update.holds)
    return [
        label
        for label in held
        if len(story.shape(label) or ()) == 2 and (story.tensor(label) or {}).get("kind") == "parameter"
    ]


def _is_whole(story: Story, given: str | None, source: str, step: int) -> bool:
    shape, own = story.shape(given, step), story.shape(source)
    return shape is not None and own is not None and sorted(shape) == sorted(own)


def _tied(story: Story, event: Event, source: str, copy: str) -> TiedByCopy | None:
    """The data of the finding if an embedding and a linear layer, or two linear ones, use the two
    weights in one forward; else None.

    Both must get their first gradient from one backward, and gradients of ``ROUNDS`` in all. Neither may be given other
    first values after the copy, nor the two be made equal again later.
    """
    moments = [[m for m in lives(story).get(label, ()) if m.kind == "added"] for label in (source, copy)]
    if (
        any(len(each) < ROUNDS for each in moments)
        or moments[0][0].step != moments[1][0].step
        or moments[0][0].step < event.step
    ):
        return None
    first = moments[0][0].step
    storages = [str((story.tensor(label) or {}).get("storage")) for label in (source, copy)]
    if any(story.writes(storage, event.step, first) for storage in storages) or _again(story, storages, first):
        return None
    layers = [use for use in story.calls("embedding", "linear") if event.step < use.step < first]
    uses = [[use for use in layers if any(o.label == label for o in use.operands)] for label in (source, copy)]
    if not uses[0] or not uses[1]:
        return None
    one, other = uses[0][-1], uses[1][-1]
    turned = one.name == other.name == "linear" and _across(story, source, copy)
    return (
        TiedByCopy(event, source, copy, (one, other))
        if {one.name, other.name} == {"embedding", "linear"} or turned
        else None
    )


def _across(story: Story, source: str, copy: str) -> bool:
    """Whether one weight is the transpose of the other and not square."""
    one, other = story.shape(source) or (), story.shape(copy) or ()
    return one == other[::-1] and one != other


def _again(story: Story, storages: list[str], first: int) -> bool:
    """Whether one of the two is copied into the other again after the step ``first``."""
    for later in story.calls("copy_"):
        if later.step > first and len(later.operands) > 1:
            held = {(story.tensor(o.label, later.step) or {}).get("storage") for o in later.operands[:2]}
            if held == set(storages):
                return True
    return False


def _finding(story: Story, found: TiedByCopy) -> Finding:
    event, (one, other) = found.event, found.uses
    span = story.span(event.step)
    here, there, where = (at_line(story, s) for s in (span, story.span(one.step), story.span(other.step)))
    names = [called(story, label, None, use.step) for label, use in ((found.source, one), (found.copy, other))]
    ends = [next(iter(story.held(label, len(story.events)).values()), None) for label in (found.source, found.copy)]
    apart = all(isinstance(end, int | float) for end in ends) and ends[0] != ends[1]
    shown = T(
        en=f" At the end of the program their first elements are {number(ends[0])} and {number(ends[1])}.",
        zh=f"程序结束时，它们的第一个元素分别是 {number(ends[0])} 和 {number(ends[1])}。",
    ) if apart else T(en="", zh="")  # fmt: skip
    says = T(
        en=f"{capital(here.en)} copies the numbers of {names[0].en} into {names[1].en}: the two layers are equal "
        "until the first update, and drift apart from then on.",
        zh=f"{here.zh}把 {names[0].zh} 的数复制到 {names[1].zh}：两个层只在第一次更新之前相等，此后越走越远。",
    )
    if found.first is not None:
        before = at_line(story, story.span(found.first.step))
        says = T(
            en=f"{capital(here.en)} gives {names[1].en} the numbers that {before.en} gave {names[0].en}: two layers "
            "that shared one weight before are equal until the first update, and drift apart from then on.",
            zh=f"{here.zh}把{before.zh}给 {names[0].zh} 的数也给了 {names[1].zh}：两个层本来共用一个权重，现在只在"
            "第一次更新之前相等，此后越走越远。",
        )
    update = next(u for u in story.trace.optimizer_steps if u.step > other.step)
    return RULE.finding(
        span,
        event.step,
        says,
        T(
            en=f"A copy has memory of its own. {capital(there.en)} and {where.en} use two parameters, each with a "
            f"gradient of its own, and the optimizer holds both.{shown.en} Tied layers share one parameter: assign "
            "the parameter itself.",
            zh=f"副本有自己的内存。{there.zh}和{where.zh}用的是两个参数，各有各的梯度，优化器持有两者。{shown.zh}绑定"
            "的层共用一个参数：请把参数本身赋过去。",
        ),
        related=[
            story.related("used", one.step, T(en="one layer uses its weight here", zh="一个层在这里使用它的权重")),
            story.related("used", other.step, T(en="the other layer uses its own copy", zh="另一个层使用自己的副本")),
            story.related(
                "step", update.step, T(en="this step changes the two differently", zh="这一步对两者的改变不同")
            ),
        ],
        fixes=_fixes(story, event, found.first),
        facts=[Fact("source", found.source, story.by(event.step)), Fact("copy", found.copy, story.by(event.step))],
    )


def _fixes(story: Story, event: Event, first: Event | None = None) -> tuple[Fix, ...]:
    """Fixes that share the parameter: ``a.weight = b.weight`` in place of ``a.weight.data.copy_(b.weight.data)``.

    With ``first``, ``b.weight`` is what that event copied into. Empty if a copy is written in another way.
    """
    program = story.program
    earlier = [] if first is None else [names for each in call_chain(story, first) if (names := _names(each))]
    for statement in call_chain(story, event):
        names = _names(statement)
        if names is not None and earlier:
            names = names[0], earlier[0][0]
        elif names is None or first is not None:
            continue
        if all(is_name(each) and isinstance(each, ast.Attribute) for each in names):
            text = f"{program.segment(names[0])} = {program.segment(names[1])}"
            title = T(en=f"Share the parameter: `{text}`", zh=f"共用参数：`{text}`")
            return unique(program.text, [Fix(title, program.replace((statement, text)), meaning="later")])
    return ()


def _names(statement: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """What a statement copies into, and from: ``a.weight`` and ``b.weight``; None if it is written in another way."""
    call = statement.value if isinstance(statement, ast.Expr | ast.Assign) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return None
    if isinstance(statement, ast.Expr) and call_name(call) == "copy_":
        target = call.func.value if isinstance(call.func, ast.Attribute) else call
        return _bare(target), _bare(call.args[0])
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return statement.targets[0], _bare(call.args[0])
    return None


def _bare(node: ast.expr) -> ast.expr:
    """``a.weight`` of ``a.weight.data`` or ``a.weight.detach().clone()``."""
    while True:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and not node.args
            and node.func.attr in (*BYPASSES, "clone")
        ):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in BYPASSES:
            node = node.value
        else:
            return node


RULE = Rule(
    code="PL718",
    name="tied-by-copy",
    severity="warning",
    title=T(en="Two layers were made equal by a copy and are trained apart", zh="两个层用复制变得相等，随后却各自训练"),
    what=T(
        en="A program means its embedding and its output layer to be one and the same, and copies the numbers of "
        "one into the other. They are equal only until training begins. Give both the same parameter: "
        "`decoder.weight = embedding.weight`.",
        zh="程序想让嵌入层与输出层是同一个，于是把一个的数复制到另一个里。它们只在训练开始之前相等。请让两者使用同一个"
        "参数：`decoder.weight = embedding.weight`。",
    ),
    why=T(
        en="`copy_` and `clone` move numbers, not identity: afterwards there are two parameters with memory of "
        "their own. Each collects the gradient of its own place in the forward, and the optimizer changes each by "
        "its own. Sharing the `Parameter` object makes them one: its gradient is the sum of both places, and "
        "`parameters()` lists it once.",
        zh="`copy_` 和 `clone` 搬动的是数，而不是身份：之后仍是两个各有内存的参数。每一个只收集它在前向中那一处的"
        "梯度，优化器按各自的梯度改变它们。共用 `Parameter` 对象才使它们成为一个：它的梯度是两处之和，"
        "`parameters()` 只列出一次。",
    ),
    bad="""import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.decode = nn.Linear(3, 5, bias=False)
        self.decode.weight.data.copy_(self.embed.weight.data)  # PL718

    def forward(self, tokens):
        return self.decode(self.embed(tokens))  # used


torch.manual_seed(0)
net = Model()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
tokens = torch.tensor([0, 1, 2, 3])
for _ in range(3):
    loss = nn.functional.cross_entropy(net(tokens), tokens + 1)
    opt.zero_grad()
    loss.backward()
    opt.step()  # step
print((net.embed.weight - net.decode.weight).abs().max())
""",
    good="""import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.decode = nn.Linear(3, 5, bias=False)
        self.decode.weight = self.embed.weight

    def forward(self, tokens):
        return self.decode(self.embed(tokens))


torch.manual_seed(0)
net = Model()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
tokens = torch.tensor([0, 1, 2, 3])
for _ in range(3):
    loss = nn.functional.cross_entropy(net(tokens), tokens + 1)
    opt.zero_grad()
    loss.backward()
    opt.step()
print((net.embed.weight - net.decode.weight).abs().max())
""",
    find=find,
    traps=(
        Trap(
            "self.decode.weight.data.copy_(self.embed.weight.data)",
            "self.decode.weight = nn.Parameter(self.embed.weight.detach().clone())",
            T(
                en="A new parameter made from a copy is a second parameter as well.",
                zh="由副本新建的参数同样是另一个参数。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.parameter.Parameter.html",),
)
