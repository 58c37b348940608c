"""PL966: a network that learned from shifted and scaled data is measured with the data without shift and scale."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
"""Layers whose input has one row for each example."""
MOVES = (
    SAME_NUMBERS - (spellings("clamp") | {"clamp_min", "data"})
    | spellings("as_tensor")
    | {"index_select", "flip", "from_numpy"}
)
"""Calls before the first layer that prepare nothing: rows are chosen, or turned round."""
SHIFTS, SCALES = spellings("sub", exchanged=True), spellings("div")
UPWARD = 60


@dataclass(frozen=True, slots=True)
class MeasuredUnprepared:
    """``layer`` is the call (``Event``) of the first layer of a network and ``given`` the label of its input; ``steps``
    are the calls that computed this input, latest first.

    ``tables`` has the labels of the tensors that the input was computed from, ``given`` first, and the place in the
    source and the functions (``Event.scope``) of each calculation inside a function. An entry that two layers have in
    common is where their data come from.
    """

    layer: Event
    given: str
    steps: tuple[Event, ...]
    tables: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class Raw:
    """``measured`` says how a layer was given unchanged rows of a table; ``learned`` how it was given rows of the same
    table in training (both are :class:`MeasuredUnprepared`).

    ``steps`` are the calls (``Event``) that had shifted and scaled the rows for the training, latest first.
    """

    measured: MeasuredUnprepared
    learned: MeasuredUnprepared
    steps: tuple[Event, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that measures a network with unchanged rows of a table, where in all training
    calls the rows had been shifted and scaled.

    Only if an optimizer stepped and the first layer is one of ``LAYERS``.
    """
    learned: dict[str, list[MeasuredUnprepared]] = defaultdict(list)
    measured: dict[str, list[MeasuredUnprepared]] = defaultdict(list)
    for event in story.calls(*LAYERS) if story.trace.optimizer_steps else ():
        fed = _fed(story, event)
        if fed is not None:
            graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
            trained = (story.record("nodes", graph) or {}).get("ran") is not None
            (learned if trained else measured)[str(event.operands[1].label)].append(fed)
    told = set[Span]()
    for weight, uses in measured.items():
        for fed in uses:
            found = _raw(fed, learned.get(weight, []))
            place = _place(story, fed) if found is not None else None
            if found is not None and place is not None and (span := story.program.place(place)) not in told:
                told.add(span)
                yield _finding(story, found, place)


def _fed(story: Story, event: Event) -> MeasuredUnprepared | None:
    """How the input of the first layer of a network was computed: the calls that prepared it and the tensors that it
    came from.

    None if the call failed or has no leaf as its weight, or if its input was computed from something that requires
    grad, as that of a later layer is.
    """
    given = event.operands[0].label if event.operands and event.error is None and event.results else None
    if given is None or len(event.operands) < 2 or event.operands[1].label not in story.leaves:
        return None
    steps, tables, label, step = list[Event](), list[object](), given, event.step
    for _ in range(UPWARD):
        record = story.tensor(label, step) or {}
        if record.get("requires_grad"):
            return None
        tables.append(label)
        made = story.event(record.get("born"))
        if made is None or made.kind != "call" or label not in made.results:
            break
        if made.name not in MOVES and made.scope:
            tables.append((made.span, made.scope))
        steps.append(made)
        source = next((o.label for o in made.operands if o.label is not None), None)
        if source is None or source == label:
            break
        label, step = source, made.step
    return MeasuredUnprepared(event, given, tuple(steps), tuple(tables))


def _raw(fed: MeasuredUnprepared, learned: list[MeasuredUnprepared]) -> Raw | None:
    """The data of the finding if this call got unchanged rows of a table whose rows were shifted and scaled in all
    training calls.

    None if it did not, if a training call shares no table with it, or if other calculations than shifts and scales
    prepared the rows.
    """
    for other in learned:
        common = next((table for table in fed.tables if table in other.tables), None)
        before, prepared = _until(fed, common), _until(other, common)
        if common is None or any(each.name not in MOVES for each in before):
            return None
        names = {each.name for each in prepared if each.name not in MOVES}
        if not names & SCALES or not names <= SHIFTS | SCALES | {"mul", "add", "unsqueeze"} or not names & SHIFTS:
            return None
    if not learned:
        return None
    common = next(table for table in fed.tables if table in learned[0].tables)
    return Raw(fed, learned[0], _until(learned[0], common))


def _until(fed: MeasuredUnprepared, table: object) -> tuple[Event, ...]:
    """The calls that computed the layer's input from ``table``."""
    found = []
    for step in fed.steps:
        if table in (*step.results, (step.span, step.scope)):
            break
        found.append(step)
    return tuple(found)


def _place(story: Story, fed: MeasuredUnprepared) -> ast.Call | None:
    """The call of the network with this data: the innermost one outside of its classes'
    methods; None if there is none.
    """
    names = {story.name(fed.given, fed.layer.step), story.used_name(fed.given)}
    for statement in call_chain(story, fed.layer) if story.program.tree is not None else ():
        function = story.program.function(statement)
        if function is not None and isinstance(story.program.parents.get(function), ast.ClassDef):
            continue
        calls = [node for node in ast.walk(statement) if isinstance(node, ast.Call) and node.args]
        return next((node for node in calls if story.program.segment(node.args[0]) in names), None) or (
            calls[-1] if calls else None
        )
    return None


def _finding(story: Story, found: Raw, place: ast.Call) -> Finding:
    span = story.program.place(place)
    last = next(each for each in found.steps if each.name in SCALES)
    here, there = at_line(story, span), at_line(story, story.span(last.step))
    return RULE.finding(
        span,
        found.measured.layer.step,
        T(
            en=f"{capital(here.en)} gives the network the data as it is; what it learned from was shifted and scaled "
            f"first ({there.en}: `{snippet(story, last.span)}`).",
            zh=f"{here.zh}把原样的数据交给网络；而它学习时用的数据先经过了平移与缩放（{there.zh}："
            f"`{snippet(story, last.span)}`）。",
        ),
        T(
            en="The weights belong to numbers of the prepared size. Other rows of the same data, without "
            "the preparation, are numbers that the network was not trained for, so the measurement does "
            "not show how good it is.",
            zh="权重是针对处理过的数值学到的。同一份数据的其他行未经处理，是网络从未见过的数值，所以这"
            "个测量说明不了什么。",
        ),
        related=[story.related("made", last.step, T(en="prepared like this for training", zh="训练时这样处理"))],
        fixes=_fixes(story, place, last),
        facts=[
            Fact("prepared", [each.name for each in found.steps if each.name in SHIFTS | SCALES], story.by(last.step))
        ],
    )


def _fixes(story: Story, place: ast.Call, last: Event) -> tuple[Fix, ...]:
    """Fixes that prepare the argument as in training, if that was ``(x - low) / high`` and the
    argument is a name; else empty.
    """
    program, node = story.program, story.program.at(last.span)
    if not isinstance(node, ast.BinOp) or not isinstance(node.left, ast.BinOp) or not is_name(place.args[0]):
        return ()
    data, (low, high) = operand(program, place.args[0]), (program.segment(node.left.right), program.segment(node.right))
    if not isinstance(node.left.op, ast.Sub) or not isinstance(node.op, ast.Div):
        return ()
    title = T(en="Prepare it as for training", zh="像训练时那样处理")
    return unique(
        program.text, [Fix(title, program.replace((place.args[0], f"({data} - {low}) / {high}")), meaning="later")]
    )


RULE = Rule(
    code="PL966",
    name="measured-unprepared",
    severity="warning",
    title=T(
        en="A network trained on prepared data is measured with raw data", zh="用处理过的数据训练的网络以原始数据来测量"
    ),
    what=T(
        en="A program shifts and scales the data that a network learns from, and forgets it for the data that "
        "the network is measured with. The answers are wrong although the network is right. Prepare both with "
        "the same two numbers.",
        zh="程序对网络学习用的数据做了平移与缩放，却忘了对测量用的数据也这样做。网络没有错，回答却是错的。请用"
        "同样的两个数处理两者。",
    ),
    why=T(
        en="`(x - x.mean(0)) / x.std(0)` makes a new tensor; the network does not store this step. Every later "
        "call of the network needs the same step, with the mean and the deviation of the *training* data. Raw "
        "numbers have the same shape and type, so nothing is raised. A layer in the network, or one function for "
        "both, cannot be forgotten.",
        zh="`(x - x.mean(0)) / x.std(0)` 生成一个新的张量；网络中没有任何东西记得这一步。以后每次调用网络都必须做同样"
        "的处理，并且用*训练*数据的均值与标准差。原始数据的形状与类型相同，所以不会报错。把它写成网络中的一层，或两处"
        "共用一个函数，就不会忘记。",
    ),
    advice=T(
        en="prepare the data on {line} as on {made}, with the same numbers.",
        zh="{line}的数据请像{made}那样处理，并用同样的数。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.rand(12, 2) * 100
y = x.sum(1, keepdim=True) / 100
learn, test = x[:8], x[8:]
mean, std = learn.mean(0), learn.std(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net((learn - mean) / std), y[:8])  # made
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net(test) - y[8:]).abs().mean())  # PL966
""",
    good="""import torch

torch.manual_seed(0)
x = torch.rand(12, 2) * 100
y = x.sum(1, keepdim=True) / 100
learn, test = x[:8], x[8:]
mean, std = learn.mean(0), learn.std(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net((learn - mean) / std), y[:8])
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((net((test - mean) / std) - y[8:]).abs().mean())
""",
    find=find,
    traps=(
        Trap(
            "net(test)",
            "net(test.clone())",
            T(
                en="A copy has the same raw numbers.",
                zh="副本里仍是同样的原始数值。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.std.html",),
)
