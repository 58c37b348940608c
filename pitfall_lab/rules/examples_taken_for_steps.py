"""PL410: a recurrent layer takes the first dimension as the time steps, and later calls take it as the examples."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.axes import uses_of_axis
from pitfall_lab.rules.signals.modes import MEASURES
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

RECURRENT = {"gru": "GRU", "lstm": "LSTM", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
"""For each function of a recurrent layer, the name of its class."""
REDUCED = {"mean", "sum", "amax", "max"}
"""Reductions over the steps."""
COMPARED = MEASURES | spellings("sub", exchanged=True)
FURTHER, DEEP = 60, 400
SEQUENCE, HEADS = 3, 4
ATTENTION = ("MultiheadAttention", "TransformerEncoderLayer", "Transformer", "TransformerDecoderLayer")
"""The modules that attend along the first dimension unless they are created with ``batch_first=True``."""


@dataclass(frozen=True, slots=True)
class ExamplesTakenForSteps:
    """``layer`` is the call (``Event``) of a recurrent layer, or of attention, that took the first dimension of its
    input, of size ``steps``, as the time steps of ``examples`` examples.

    ``pick`` is the call that removed the second dimension, and ``loss`` the call that compared the rest with ``steps``
    targets: the first dimension was that of the examples.
    """

    layer: Event
    steps: int
    examples: int
    pick: Event
    loss: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a layer created without ``batch_first=True`` whose loss has one target for
    each index along the first dimension, although the layer takes that dimension as the time.

    It is about recurrent layers and about attention along the first dimension. Nothing if both dimensions have equal
    sizes.
    """
    reported = set()
    for event in story.calls(*RECURRENT):
        place = story.span(event.step)
        if (
            place not in reported
            and event.error is None
            and event.results
            and (found := _mixed(story, event)) is not None
        ):
            reported.add(place)
            yield _finding(story, found)
    for event in story.calls("softmax", "scaled_dot_product_attention"):
        place = story.span(event.step)
        if (
            place not in reported
            and event.error is None
            and event.results
            and (found := _attending(story, event)) is not None
        ):
            reported.add(place)
            yield _finding(story, found)


def _attending(story: Story, attention: Event) -> ExamplesTakenForSteps | None:
    """Return the data of the finding for an ``nn.MultiheadAttention``, or a module with it, that attends along the
    first dimension, which is later used as that of the examples; None if there is none.
    """
    shape = story.shape(attention.results[0], attention.step) or ()
    inside = attention.name == "softmax"
    if not ((inside and len(shape) == HEADS - 1 and shape[1] == shape[2]) or (not inside and len(shape) == HEADS)):
        return None
    steps = shape[-2]
    for view in story.events[attention.step + 1 : attention.step + FURTHER]:
        joined = story.shape(view.results[0], view.step) if view.results else None
        if view.kind != "call" or view.span != attention.span:
            return None
        if view.name == "view" and joined is not None and len(joined) == SEQUENCE and joined[0] == steps:
            examples = joined[1]
            fits = shape[0] % examples == 0 if inside else shape[0] == examples
            if not _names(story, attention) or not fits or examples == steps or 1 in (examples, steps):
                return None
            for use in uses_of_axis(story, view.results[0], 0, view.step):
                left_out = use.axis != use.followed and use.event.name in REDUCED and not use.weighted
                if left_out and (loss := _measured(story, use.event, steps)) is not None:
                    return ExamplesTakenForSteps(attention, steps, examples, use.event, loss)
            pick = _picked(story, view, (steps, examples))
            loss = _measured(story, pick, steps) if pick is not None else None
            if (
                pick is None
                or loss is None
                or any(_is_a_column(story, o.label, loss, (steps, examples)) for o in loss.operands[:2])
            ):
                return None
            return ExamplesTakenForSteps(attention, steps, examples, pick, loss)
    return None


def _picked(story: Story, view: Event, sizes: tuple[int, int]) -> Event | None:
    """Return the call that selects one index along the second dimension, as ``[:, 0]`` does, from the result of
    ``view`` or of later calls that keep the first two sizes; None if there is none among the next ``DEEP`` events.
    """
    reached = set(view.results[:1])
    for event in story.events[view.step + 1 : view.step + DEEP]:
        if (
            event.kind != "call"
            or event.error is not None
            or not event.results
            or not reached & {o.label for o in event.operands}
        ):
            continue
        parts = (
            event.operands[1].text.strip("()").split(", ")
            if event.name == "__getitem__" and len(event.operands) > 1
            else []
        )
        if len(parts) > 1 and parts[0] == ":" and whole(parts[1].rstrip(",")) is not None:
            return event
        if (story.shape(event.results[0], event.step) or ())[:2] == sizes:
            reached.add(event.results[0])
    return None


def _is_a_column(story: Story, label: str | None, loss: Event, sizes: tuple[int, int]) -> bool:
    """Whether the tensor was itself indexed from a table of these sizes: it then has the targets of all steps of one
    example.
    """
    made = story.event((story.tensor(label, loss.step) or {}).get("born"))
    if made is None or made.name != "__getitem__" or label not in made.results:
        return False
    return (story.shape(made.operands[0].label, made.step) or ()) == sizes


def _mixed(story: Story, layer: Event) -> ExamplesTakenForSteps | None:
    given, state = (story.shape(o.label, layer.step) or () for o in layer.operands[:2])
    if (
        len(given) != SEQUENCE
        or len(state) != SEQUENCE
        or given[0] == given[1]
        or state[1] != given[1]
        or 1 in given[:2]
    ):
        return None  # with as many steps as examples the state does not say which axis is which
    for pick in story.uses(layer.results[0]):
        if (
            pick.error is None
            and pick.results
            and _leaves_out(pick, given[1])
            and (loss := _measured(story, pick, given[0])) is not None
        ):
            return ExamplesTakenForSteps(layer, given[0], given[1], pick, loss)
    return None


def _leaves_out(event: Event, examples: int) -> bool:
    """Whether the call selects the last element along the second dimension, of size ``examples``, or reduces that
    dimension.
    """
    if event.name == "__getitem__":
        parts = event.operands[1].text.strip("()").split(", ") if len(event.operands) > 1 else []
        return len(parts) > 1 and parts[0] == ":" and whole(parts[1].rstrip(",")) in (-1, examples - 1)
    return event.name in REDUCED and whole(argument(event, "dim", 1)) in (1, -2)


def _measured(story: Story, pick: Event, count: int) -> Event | None:
    """Return the loss or difference that compares ``count`` rows, computed from the result of ``pick``, with as many
    targets; None if there is none among the next ``FURTHER`` events.
    """
    reached = set(pick.results[:1])
    for event in story.events[pick.step + 1 : pick.step + FURTHER]:
        labels = [o.label for o in event.operands if o.label is not None]
        if event.kind != "call" or event.error is not None or not reached & set(labels):
            continue
        if event.name in COMPARED and len(labels) > 1:
            first, other = (story.shape(label, event.step) or () for label in labels[:2])
            data = all((story.tensor(label, event.step) or {}).get("kind") != "parameter" for label in labels[:2])
            if data and first[:1] == other[:1] == (count,):
                return event
        shape = story.shape(event.results[0], event.step) if event.results else None
        if shape is not None and shape[:1] == (count,):
            reached.add(event.results[0])
    return None


def _finding(story: Story, found: ExamplesTakenForSteps) -> Finding:
    span = story.span(found.layer.step)
    here, there = at_line(story, span), at_line(story, story.span(found.pick.step))
    code, names = snippet(story, story.span(found.pick.step)), _names(story, found.layer)
    name = names[0] if names else "recurrent layer"
    steps, examples = found.steps, found.examples
    loss = at_line(story, story.span(found.loss.step))
    return RULE.finding(
        span,
        found.layer.step,
        T(
            en=f"{capital(here.en)} takes its input for {steps} steps of {examples} examples, but {loss.en} has a "
            f"target for each of {steps} examples: the axes are the other way round.",
            zh=f"{here.zh}把输入当作 {examples} 个样本、每个 {steps} 步，而{loss.zh}有 {steps} 个样本"
            "的目标：两个轴弄反了。",
        ),
        T(
            en=f"A {name} works along the first axis unless it is made with `batch_first=True`, and treats the second "
            f"one as separate examples. Here it went from one example to the others, and `{code}` on {there.en} "
            f"leaves out the axis of {examples}, which it took for examples.",
            zh=f"除非用 `batch_first=True` 创建，{name} 沿第一个轴工作，把第二个轴当作互不相干的样本。这里它从一个样本"
            f"走到其他样本，而{there.zh}的 `{code}` 去掉了它当作样本的那个长度为 {examples} 的轴。",
        ),
        related=[
            story.related("made", found.layer.step, T(en="steps along the first axis", zh="沿第一个轴逐步前进")),
            story.related("used", found.pick.step, T(en="leaves the second axis out", zh="去掉了第二个轴")),
            story.related(
                "read", found.loss.step, T(en="meets one target for each example", zh="与每个样本的目标相遇")
            ),
        ],
        fixes=_fixes(story, names),
        facts=[
            Fact("steps", steps, story.by(found.layer.step)),
            Fact("examples", examples, story.by(found.layer.step)),
        ],
    )


def _names(story: Story, layer: Event) -> tuple[str, ...]:
    """Return the names of the torch modules that the layer may be; for attention, those that the program calls."""
    if layer.name in RECURRENT:
        return (RECURRENT[layer.name],)
    made = {call_name(node) for node in story.program.nodes if isinstance(node, ast.Call)}
    return tuple(name for name in ATTENTION if name in made)


def _fixes(story: Story, names: tuple[str, ...]) -> tuple[Fix, ...]:
    program, fixes = story.program, []
    for node in program.nodes:
        if (
            isinstance(node, ast.Call)
            and call_name(node) in names
            and all(k.arg not in (None, "batch_first") for k in node.keywords)
        ):
            new = f"{program.segment(node).rstrip()[:-1].rstrip(', ')}, batch_first=True)"
            title = T(en=f"Say that the examples come first: `{new}`", zh=f"说明样本在最前面：`{new}`")
            fixes.append(Fix(title, program.replace((node, new)), meaning="shape"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL410",
    name="examples-taken-for-steps",
    severity="warning",
    title=T(en="A recurrent layer ran over the examples and not over the steps", zh="循环层沿样本而不是沿时间步运行"),
    what=T(
        en="A program gives a recurrent layer a batch with the examples first, but the layer expects the steps first. "
        "It runs from one example to the next as if they followed each other in time, and the results mix examples. "
        "Make the layer with `batch_first=True`.",
        zh="程序把样本排在最前面的一批数据交给循环层，而该层要求时间步在最前面。它从一个样本走到下一个样本，好像它们在"
        "时间上相继，结果混在了一起。请用 `batch_first=True` 创建这一层。",
    ),
    why=T(
        en="`nn.RNN`, `nn.GRU` and `nn.LSTM` take input of shape (steps, examples, features); the first axis is the "
        "one that the state is handed along. With `batch_first=True` it is (examples, steps, features). The shapes "
        "fit either way, so nothing fails: `out[:, -1]` of a steps-first result is the last example at every step, "
        "and not the last step of every example.",
        zh="`nn.RNN`、`nn.GRU`、`nn.LSTM` 的输入形状是（步，样本，特征），状态沿第一个轴传递；用 `batch_first=True` 时"
        "是（样本，步，特征）。两种情况形状都合适，所以不会报错：对步在前的结果取 `out[:, -1]`，得到的是每一步的最后一"
        "个样本，而不是每个样本的最后一步。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
layer = nn.GRU(2, 3)
head = nn.Linear(3, 1)
batch, target = torch.randn(4, 5, 2), torch.randn(4, 1)
out, _ = layer(batch)  # PL410 made
last = out[:, -1]  # used
loss = nn.functional.mse_loss(head(last), target)
loss.backward()
print(loss.item())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
layer = nn.GRU(2, 3, batch_first=True)
head = nn.Linear(3, 1)
batch, target = torch.randn(4, 5, 2), torch.randn(4, 1)
out, _ = layer(batch)
last = out[:, -1]
loss = nn.functional.mse_loss(head(last), target)
loss.backward()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "layer(batch)",
            "layer(batch.reshape(5, 4, 2).reshape(4, 5, 2))",
            T(
                en="`reshape` exchanges no axes; the numbers keep their order. `transpose(0, 1)` would.",
                zh="`reshape` 不交换轴，数的次序不变；`transpose(0, 1)` 才会。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
    ),
)
