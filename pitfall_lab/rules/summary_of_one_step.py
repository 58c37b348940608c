"""PL434: what sums up a sequence is read where one direction of a recurrent layer has seen one
step, or from its first layer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.sequences import RECURRENT
from pitfall_lab.trace import Event, T

SAME = {"dropout", "layer_norm", "relu", "tanh", "contiguous", "gelu"}
"""Calls that leave each step at its position."""
PARTS = {"__getitem__", "chunk", "split", "narrow", "view", "reshape", "unflatten", "select", "shape"}
"""Calls that take a part of the steps."""
STATES = 3
BOTH = 2


@dataclass(frozen=True, slots=True)
class Layer:
    """``event`` is the call (``Event``) of a recurrent layer with ``layers`` layers and ``directions`` directions (1 or
    2).

    ``time`` is the axis of the ``steps`` time steps in its output, ``width`` the size of the output of one direction.
    """

    event: Event
    time: int
    steps: int
    directions: int
    layers: int
    width: int


@dataclass(frozen=True, slots=True)
class Read:
    """``event`` is the call (``Event``) that read a part of the results of ``layer``, a recurrent layer.

    ``kind`` says what it read: "step", the last step of both directions; "layer", the state of the first of several
    layers; "direction", the state of the backward direction alone.
    """

    layer: Layer
    event: Event
    kind: Literal["step", "layer", "direction"]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes for the summary of a sequence the last step of both directions, of
    which the backward one has seen only this step, or the state of the first of several layers, or that of the backward
    direction alone.

    Only for trained layers whose other results nothing uses as a summary.
    """
    told = set()
    for event in story.calls(*RECURRENT):
        layer = (
            _layer(story, event)
            if event.error is None and len(event.results) > 1 and _is_trained(story, event)
            else None
        )
        found = (
            (_last_step(story, layer) or _first_layer(story, layer) or _one_direction(story, layer))
            if layer is not None
            else None
        )
        place = story.span(found.event.step) if found is not None else None
        if found is not None and place not in told:
            told.add(place)
            yield _finding(story, found)


def _is_trained(story: Story, event: Event) -> bool:
    node = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
    return node is not None and bool(story.backwards())


def _layer(story: Story, event: Event) -> Layer | None:
    out, state = (story.shape(label, event.step) or () for label in event.results[:2])
    if len(out) != STATES or len(state) != STATES or out[2] % state[2] or state[0] % (out[2] // state[2]):
        return None
    directions, batch = out[2] // state[2], state[1]
    if out[0] != out[1]:
        first = out[0] == batch
    else:
        tensors, flags = sum(o.label is not None for o in event.operands), sum(o.text == "True" for o in event.operands)
        biased = tensors - (3 if event.name == "lstm" else BOTH) >= 4 * state[0]
        known = (
            flags - biased - (directions == BOTH)
        )  # what is left says whether it is trained, and whether examples come first
        if known not in (0, BOTH):
            return None
        first = known == BOTH
    return Layer(event, int(first), out[int(first)], directions, state[0] // directions, state[2])


def _picked(story: Story, label: str, axis: int, index: int) -> Iterator[Event]:
    """Yield the calls that made a view of the elements at one index along an axis of a tensor."""
    for use in story.uses(label):
        whole, part = (story.tensor(each, use.step) or {} for each in (label, use.results[0] if use.results else None))
        shape, stride = whole.get("shape") or [], whole.get("stride") or []
        if (
            part.get("storage") != whole.get("storage")
            or part.get("shape") != shape[:axis] + shape[axis + 1 :]
            or use.step < 0
        ):
            continue
        if part.get("offset") == (whole.get("offset") or 0) + index * stride[axis] and use.error is None:
            yield use


def _last_step(story: Story, layer: Layer) -> Read | None:
    event = layer.event
    if layer.directions != BOTH or layer.steps < BOTH or any(story.uses(label) for label in event.results[1:]):
        return None
    forms = [event.results[0]]
    for form in forms:
        forms += [
            use.results[0]
            for use in story.uses(form)
            if use.name in SAME and use.results and use.results[0] not in forms
        ]
    if any(True for form in forms for _ in _picked(story, form, layer.time, 0)):
        return None  # the backward direction's end is read as well
    for form in forms:
        for use in _picked(story, form, layer.time, layer.steps - 1):
            after = story.uses(use.results[0])
            if after and not any(each.name in PARTS for each in after):
                return Read(layer, use, "step")
    return None


def _first_layer(story: Story, layer: Layer) -> Read | None:
    out, state = layer.event.results[:2]
    if layer.layers < BOTH or story.uses(out):
        return None
    picked, uses = list(_picked(story, state, 0, 0)), story.uses(state)
    if picked and len(picked) == len(uses) and all(story.uses(use.results[0]) for use in picked):
        return Read(layer, picked[0], "layer")
    return None


def _one_direction(story: Story, layer: Layer) -> Read | None:
    """Return the data of the finding if the state of the backward direction alone is read, and the
    output of no step; else None.
    """
    out, state = layer.event.results[:2]
    count = (story.shape(state, layer.event.step) or (0,))[0]
    if layer.directions != BOTH or story.uses(out):
        return None
    picked = list(_picked(story, state, 0, count - 1))
    used = picked and all(story.uses(use.results[0]) for use in picked)
    return Read(layer, picked[0], "direction") if used and len(picked) == len(story.uses(state)) else None


def _finding(story: Story, found: Read) -> Finding:
    layer, event = found.layer, found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(layer.event.step))
    what = snippet(story, story.span(event.step))
    if found.kind == "direction":
        return _of_one_direction(story, found)
    said = (
        T(
            en=f"{capital(here.en)} takes `{what}`, the state of the first of {layer.layers} layers: what the others "
            "compute is not used.",
            zh=f"{here.zh}取的 `{what}` 是 {layer.layers} 层中第一层的状态：其余各层算出的东西没有用到。",
        )
        if found.kind == "layer"
        else T(
            en=f"{capital(here.en)} takes the last of {layer.steps} steps, `{what}`, of a bidirectional layer: there "
            "the direction that reads from the end has seen one step only.",
            zh=f"{here.zh}取的是 {layer.steps} 步中的最后一步 `{what}`，而这一层是双向的：从末尾读起的方向在那里"
            "只看过一步。",
        )
    )
    why = (
        T(
            en=f"The states of the layer on {there.en} are stacked, the first layer first. The last layer's are at the "
            "end: `h[-1]`, or `h[-2]` and `h[-1]` where there are two directions.",
            zh=f"{there.zh}的层把各层的状态叠在一起，第一层在最前面。最后一层的在末尾：`h[-1]`；有两个方向时是 "
            "`h[-2]` 和 `h[-1]`。",
        )
        if found.kind == "layer"
        else T(
            en=f"The layer on {there.en} reads the sequence in both directions. The first {layer.width} numbers of a "
            f"step know all before it, the other {layer.width} all after it, and after the last step there is "
            "nothing. What reads from the end has read everything at step 0: join the first half of the last step with "
            "the second half of step 0, or the two states that the layer returns for this: `h[-2]` and `h[-1]`.",
            zh=f"{there.zh}的层从两个方向读序列。每一步的前 {layer.width} 个数知道它之前的一切，后 {layer.width} 个数"
            "知道它之后的一切，而最后一步之后什么也没有。反方向的终点在第 0 步：请把最后一步的正向一半与第一步的反向"
            "一半接起来，或者使用层为此返回的两个状态 `h[-2]` 和 `h[-1]`。",
        )
    )
    return RULE.finding(
        story.span(event.step),
        event.step,
        said,
        why,
        related=[story.related("made", layer.event.step, T(en="the layer runs here", zh="这一层在这里运行"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("directions", layer.directions, story.by(layer.event.step)),
            Fact("layers", layer.layers, story.by(layer.event.step)),
        ],
    )


def _of_one_direction(story: Story, found: Read) -> Finding:
    layer, event = found.layer, found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(layer.event.step))
    what = snippet(story, story.span(event.step))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} takes `{what}`, the state of the backward direction only: what the forward one "
            "has read is not used.",
            zh=f"{here.zh}取的 `{what}` 只是反方向的状态：正方向读到的东西没有用到。",
        ),
        T(
            en=f"The layer on {there.en} reads in both directions, and stacks their states: the last layer's are "
            "`h[-2]` and `h[-1]`. The weights of the forward direction get no gradient. Join both: "
            "`torch.cat([h[-2], h[-1]], dim=-1)`, which is twice as wide.",
            zh=f"{there.zh}的层从两个方向读，并把状态叠在一起：最后一层的是 `h[-2]` 和 `h[-1]`。正方向的权重得不到梯"
            "度。请把两者接起来：`torch.cat([h[-2], h[-1]], dim=-1)`，宽度是两倍。",
        ),
        related=[story.related("made", layer.event.step, T(en="the layer runs here", zh="这一层在这里运行"))],
        fixes=_both_states(story, found),
        facts=[Fact("directions", layer.directions, story.by(layer.event.step))],
    )


def _both_states(story: Story, found: Read) -> tuple[Fix, ...]:
    """Fixes that join both directions' states and double the input width of a linear layer; one for each ``Linear`` of
    the program.

    Empty if the state is not indexed in the program's source, or is what a call on that line returns.
    """
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if (
        not isinstance(node, ast.Subscript)
        or torch is None
        or any(isinstance(n, ast.Call) for n in ast.walk(node.value))
    ):
        return ()
    name = program.segment(node.value)
    text = f"{torch}.cat([{name}[-2], {name}[-1]], dim=-1)"
    title = T(en=f"Join both directions: `{text}`", zh=f"接上两个方向：`{text}`")
    linear = [n.args[0] for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "Linear" and n.args]
    wider = [
        Fix(title, program.replace((node, text), (wide, f"2 * {operand(program, wide)}")), meaning="shape")
        for wide in linear
    ]
    return unique(program.text, wider)


def _fixes(story: Story, found: Read) -> tuple[Fix, ...]:
    program, layer, torch = story.program, found.layer, torch_name(story.program)
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    if (
        not isinstance(node, ast.Subscript)
        or torch is None
        or any(isinstance(n, ast.Call) for n in ast.walk(node.value))
    ):
        return ()
    name, width = program.segment(node.value), layer.width
    if found.kind == "layer":
        text = f"{name}[-{layer.directions}]"
    elif layer.time:
        text = f"{torch}.cat([{name}[:, -1, :{width}], {name}[:, 0, {width}:]], dim=-1)"
    else:
        text = f"{torch}.cat([{name}[-1, :, :{width}], {name}[0, :, {width}:]], dim=-1)"
    title = T(en=f"Read where the whole sequence was seen: `{text}`", zh=f"从看过整个序列的地方读取：`{text}`")
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="shape")])


RULE = Rule(
    code="PL434",
    name="summary-of-one-step",
    severity="warning",
    title=T(
        en="The summary of a sequence is read where one direction of the layer has seen one step only",
        zh="读取序列总结的位置上，这一层的一个方向只看过一步",
    ),
    what=T(
        en="A layer reads a sequence forwards and backwards, and the program takes its last step as a summary of "
        "everything. Backwards, that is the first step, so half of the summary knows one word. Join the forward half "
        "of the last step with the backward half of the first.",
        zh="一层从前往后、又从后往前读序列，程序把最后一步当作对全部内容的总结。对反方向来说，那是它的第一步，所以总结"
        "的一半只知道一个词。请把最后一步的正向一半与第一步的反向一半接起来。",
    ),
    why=T(
        en="`nn.LSTM`, `nn.GRU` and `nn.RNN` return an output for each step of the last layer, and the state of each "
        "layer and direction after all steps. With `bidirectional=True` the output joins both directions step by "
        "step: at step t the forward half has read steps 0 to t, the backward half the steps from t to the end. The "
        "states are stacked by layers, `h[0]` being the first layer's and `h[-1]` the last one's; for one direction, "
        "`h[-1]` and the last output are the same.",
        zh="`nn.LSTM`、`nn.GRU` 和 `nn.RNN` 返回最后一层每一步的输出，以及每一层、每个方向走完所有步之后的状态。"
        "`bidirectional=True` 时，输出逐步把两个方向接在一起：在第 t 步，正向的一半读过第 0 步到第 t 步，反向的一"
        "半读过从第 t 步到末尾的各步。状态按层叠放，`h[0]` 是第一层的，`h[-1]` 是最后一层的；只有一个方向时，"
        "`h[-1]` 与最后一步的输出相同。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
rnn = torch.nn.GRU(3, 4, batch_first=True, bidirectional=True)
head = torch.nn.Linear(8, 2)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(6, 5, 3), torch.tensor([0, 1, 0, 1, 1, 0])
for _ in range(2):
    out, _ = rnn(x)  # made
    last = out[:, -1]  # PL434
    loss = F.cross_entropy(head(last), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
rnn = torch.nn.GRU(3, 4, batch_first=True, bidirectional=True)
head = torch.nn.Linear(8, 2)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x, y = torch.randn(6, 5, 3), torch.tensor([0, 1, 0, 1, 1, 0])
for _ in range(2):
    out, _ = rnn(x)
    last = torch.cat([out[:, -1, :4], out[:, 0, 4:]], dim=-1)
    loss = F.cross_entropy(head(last), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "out[:, -1]",
            "out[:, -2]",
            T(
                en="One step earlier, the backward direction has seen two steps.",
                zh="早一步的地方，反方向也只看过两步。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LSTM.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.GRU.html",
    ),
)
