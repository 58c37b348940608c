"""PL914: the outputs of a net that a loss takes as logits are compared with a threshold for probabilities."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COMPARISONS = spellings("ge", "gt", "le", "lt")
MEASURES = spellings("bitwise_and", "bitwise_xor", "eq", "logical_and", "logical_xor", "mul", "ne", "sub")
KEEP = {
    "float",
    "long",
    "int",
    "to",
    "type",
    "squeeze",
    "view",
    "reshape",
    "flatten",
    "bool",
    "cpu",
    "detach",
    "type_as",
    "double",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""

OUT = {"numpy", "tolist"}


@dataclass(frozen=True, slots=True)
class Thresholded:
    """``events`` are the calls (``Event``) of one line that compared outputs of a layer with the number ``limit``, or
    rounded them (``limit`` 0.5).

    ``loss`` is a call of ``binary_cross_entropy_with_logits`` that was given outputs of the same layer as logits.
    """

    events: list[Event]
    loss: Event
    limit: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares logits with a number strictly between 0 and 1, or rounds them, and
    uses the answers as predicted classes.

    Logits are results of one layer whose results also go into ``binary_cross_entropy_with_logits``.
    """
    losses = {
        _layer(story, event.operands[0].label, event.step): event
        for event in story.calls("binary_cross_entropy_with_logits")
    }
    losses.pop(None, None)
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*COMPARISONS, "round") if losses else ():
        if event.error is None and event.parent is None and event.operands and event.operands[0].label is not None:
            places[story.span(event.step)].append(event)
    for events in places.values():
        limits = [_limit(event) for event in events]
        layers = {_layer(story, event.operands[0].label, event.step) for event in events}
        loss = losses.get(layers.pop()) if len(layers) == 1 else None
        if (
            loss is not None
            and all(limit is not None for limit in limits)
            and any(_is_prediction(story, event) for event in events)
        ):
            yield _finding(story, Thresholded(events, loss, limits[0] or 0.5))


def _limit(event: Event) -> float | None:
    """The threshold, if it is one for probabilities: strictly between 0 and 1, or 0.5 for ``round``; else None."""
    if event.name == "round":
        return 0.5 if len(event.operands) == 1 else None
    given = event.operands[1] if len(event.operands) == 2 else None
    try:
        limit = float(given.text) if given is not None and given.label is None else 0.0
    except ValueError:
        return None
    return limit if 0 < limit < 1 else None


def _layer(story: Story, label: str | None, step: int) -> object:
    """The layer that computed the numbers, identified by its parameters, or by its line if it has
    none; None if it is not known.
    """
    made = origin(story, label, step)
    if made is None:
        return None
    given = [o.label for o in made.operands if o.label is not None]
    weights = [label for label in given if (story.tensor(label, made.step) or {}).get("kind") == "parameter"]
    return (made.name, tuple(weights)) if weights else (made.op, made.span) if made.span is not None else None


def _is_prediction(story: Story, event: Event) -> bool:
    """Whether the True and False of a comparison are compared or combined with another tensor, as predictions are with
    targets, or leave torch by ``numpy()`` or ``tolist()``.

    Conversions and reshapes may come in between.
    """
    pending, seen = list(event.results), set[str]()
    while pending:
        label = pending.pop()
        seen.add(label)
        for use in story.uses(label):
            if use.name in OUT or (use.name in MEASURES and any(o.label not in (None, label) for o in use.operands)):
                return True
            if use.name in KEEP:
                pending += [result for result in use.results if result not in seen]
    return False


def _finding(story: Story, found: Thresholded) -> Finding:
    event, loss = found.events[0], found.loss
    label = event.operands[0].label
    here, there, what = (
        at_line(story, story.span(event.step)),
        at_line(story, story.span(loss.step)),
        expression(story, label, event.step),
    )
    # below the threshold, and with a probability above it
    between = [
        value
        for value in story.held(label, event.step).values()
        if isinstance(value, float) and 0 < value < found.limit < _probability(value)
    ]
    did = (
        T(en=f"rounds {what.en}", zh=f"把 {what.zh} 当作概率四舍五入")
        if event.name == "round"
        else T(
            en=f"compares {what.en} with {found.limit:g}",
            zh=f"把 {what.zh} 当作概率与 {found.limit:g} 比较",
        )
    )
    shown = (
        T(
            en=f" Here {between[0]:.3g} counts as the negative class, although its probability is "
            f"{_probability(between[0]):.3g}.",
            zh=f"这里 {between[0]:.3g} 被算作负类，而它的概率是 {_probability(between[0]):.3g}。",
        )
        if between
        else T(en="", zh="")
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} {did.en} as if it were a probability, but it holds logits: on {there.en} outputs "
            "of the same layer go into a loss that applies the sigmoid itself.",
            zh=f"{here.zh}{did.zh}，但其中的数是 logits：在{there.zh}，同一层的输出被交给自己会做 sigmoid 的损失。",
        ),
        T(
            en=f"A logit of 0 is a probability of one half, and a logit of {found.limit:g} one of "
            f"{_probability(found.limit):.3g}.{shown.en} Compare `sigmoid` of the logits with {found.limit:g}, or the "
            "logits with the logit of the threshold (0 for one half).",
            zh=f"logit 为 0 对应概率一半，logit 为 {found.limit:g} 对应概率 {_probability(found.limit):.3g}。{shown.zh}"
            f"请把它们的 `sigmoid` 与 {found.limit:g} 比较，或者用阈值对应的 logit（一半对应 0）来比较。",
        ),
        related=[story.related("used", loss.step, T(en="taken as logits here", zh="在这里被当作 logits"))],
        fixes=_fixes(story, event, found.limit),
        facts=[Fact("limit", found.limit, story.by(event.step)), Fact("loss", loss.name, story.by(loss.step))],
    )


def _probability(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


def _fixes(story: Story, event: Event, limit: float) -> tuple[Fix, ...]:
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(event.step))
    value = written_as(story, event, event.operands[0].label)
    fixes = []
    if isinstance(node, ast.Compare) and limit == 0.5 and isinstance(node.comparators[0], ast.Constant):
        title = T(
            en=f"Compare with 0: `{operand(program, node.left)} > 0`",
            zh=f"与 0 比较：`{operand(program, node.left)} > 0`",
        )
        fixes.append(Fix(title, program.replace((node.comparators[0], "0")), meaning="later"))
    if isinstance(node, ast.Compare | ast.Call) and value is not None and torch is not None:
        text = f"{torch}.sigmoid({program.segment(value)})"
        title = T(en=f"Make them probabilities: `{text}`", zh=f"变成概率：`{text}`")
        fixes.append(Fix(title, program.replace((value, text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL914",
    name="logits-taken-for-probabilities",
    severity="warning",
    title=T(en="Logits are compared with a threshold for probabilities", zh="把 logits 与概率的阈值比较"),
    what=T(
        en="A network gives numbers of any size, and its loss turns them into probabilities by itself. The program "
        "then compares the numbers themselves with a threshold for probabilities. With 0.5, examples with a "
        "probability between 50 % and 62 % count as negative: compare with 0 instead, or compare "
        "`torch.sigmoid(output)` with 0.5.",
        zh="网络给出的是任意大小的数，损失函数自己把它们变成概率。程序随后却把这些数本身与概率的阈值比较。阈值为 0.5 "
        "时，概率在 50 % 到 62 % 之间的样本被算作负类：请改为与 0 比较，或者把 `torch.sigmoid(output)` 与 0.5 比较。",
    ),
    why=T(
        en="`binary_cross_entropy_with_logits` (and `nn.BCEWithLogitsLoss`) computes the sigmoid inside, since this "
        "is more exact for large numbers. What the network returns are *logits*: 0 means one half, -2 about 12 %, 2 "
        "about 88 %. Training is right, only the measure is wrong, and it looks plausible: with 0.5, only those "
        "examples count as positive that are rather certain. `round()` has this threshold.",
        zh="`binary_cross_entropy_with_logits`（以及 `nn.BCEWithLogitsLoss`）在内部计算 sigmoid，因为这样对大的数更精"
        "确。网络返回的是 *logits*：0 表示一半，-2 约为 12 %，2 约为 88 %。训练没有问题，错的只是度量，而且看上去合"
        "理：阈值为 0.5 时，只有较有把握的样本才算作正类。`round()` 的阈值就是它。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(12, 2)
y = (x[:, :1] > 0).float()
for _ in range(3):
    loss = F.binary_cross_entropy_with_logits(net(x), y)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    predicted = (net(x) > 0.5).float()  # PL914
print((predicted == y).float().mean())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(12, 2)
y = (x[:, :1] > 0).float()
for _ in range(3):
    loss = F.binary_cross_entropy_with_logits(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    predicted = (net(x) > 0).float()
print((predicted == y).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "(net(x) > 0.5)",
            "(net(x).clamp(0, 1) > 0.5)",
            T(
                en="Numbers cut to the range of probabilities are no probabilities.",
                zh="截到概率范围内的数并不是概率。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",),
)
