"""PL418: the last time step of padded sequences was taken, which for the shorter ones is padding."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.sequences import name_of_tokens, padded, padding_number
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

RECURRENT = operations_that("recurrent")
LAYERS = {"linear", "mul", "add", "sub", "div", "embedding", "cat"}
"""Calls that make something else of each step."""
AXES, UPWARD = 3, 12
FURTHER = {"index_select", "dropout", "detach", "clone", "contiguous", "layer_norm", "relu", "tanh", "float", "to"}
"""Calls that leave the time steps where they are."""


@dataclass(frozen=True, slots=True)
class Last:
    """``take`` is the call (``Event``) that took the last step, along the axis ``time``, of sequences which the call
    ``padded`` had padded to equal length.

    The batch has ``cells`` steps in all, of which ``rows`` are not padding. ``layer`` is the call of the recurrent
    layer that was given the padded sequences without packing; None if they were packed. ``lookup`` is the call of the
    embedding if it was given tokens that were padded already (``padded`` is then the same call); else None.
    """

    padded: Event
    take: Event
    time: int
    rows: int
    cells: int
    layer: Event | None = None
    lookup: Event | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that takes the last step of padded sequences of different lengths: from the
    unpacked results of a recurrent layer, or from the results of a layer that is trained and was given padded sequences
    without packing.
    """
    reported = set()
    for unpacked in story.calls("_pad_packed_sequence"):
        found = _last(story, unpacked) if unpacked.error is None and unpacked.results else None
        if found is not None and (place := story.span(found.take.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)
    for layer in story.calls(*RECURRENT) if story.backwards() else ():
        found = _read_on(story, layer) if layer.error is None and len(layer.results) > 1 else None
        if found is not None and (place := story.span(found.take.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def _read_on(story: Story, layer: Event) -> Last | None:
    """The data of the finding if a recurrent layer was given sequences padded at their ends and not packed, and its
    last step was taken; else None.
    """
    label, step = layer.operands[0].label, layer.step
    shape = story.shape(label, step) or ()
    if len(shape) != AXES or layer.operands[-1].text not in ("True", "False"):
        return None
    time = 1 if layer.operands[-1].text == "True" else 0
    for _ in range(UPWARD):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or made.step >= step:
            return None
        if made.name == "pad_sequence":
            lengths = [(story.shape(each, made.step) or (0,))[0] for each in given]
            first, left = any(o.text == "True" for o in made.operands), any("left" in o.text for o in made.operands)
            if left or len(set(lengths)) < 2 or first != (time == 1):
                return None
            return _taken(story, Last(made, made, time, sum(lengths), max(lengths) * len(lengths), layer), layer)
        if made.name == "embedding":
            number, cells = padding_number(story, made), shape[0] * shape[1]
            places = padded(story, given[0], made.step, number, time) if number is not None else []
            if not any(place[time] == shape[time] - 1 for place in places):
                return None
            return _taken(story, Last(made, made, time, cells - len(places), cells, layer, made), layer)
        if made.name not in FURTHER | LAYERS or (story.shape(given[0], made.step) or ())[:2] != shape[:2]:
            return None
        label, step = given[0], made.step
    return None


def _taken(story: Story, found: Last, layer: Event) -> Last | None:
    take = _take(story, layer.results[0], layer.step, found.time)
    return replace(found, take=take) if take is not None else None


def _last(story: Story, unpacked: Event) -> Last | None:
    shape = story.shape(unpacked.results[0], unpacked.step) or ()
    packed = story.shape(unpacked.operands[0].label, unpacked.step) or ()
    first = len(unpacked.operands) > 2 and unpacked.operands[2].text == "True"
    if len(shape) < 2 or not packed or packed[0] >= shape[0] * shape[1]:
        return None  # all are of one length
    time = 1 if first else 0
    take = _take(story, unpacked.results[0], unpacked.step, time)
    return Last(unpacked, take, time, packed[0], shape[0] * shape[1]) if take is not None else None


def _take(story: Story, label: str, step: int, time: int) -> Event | None:
    """The call that took the last step along the axis ``time``, directly or after calls (``FURTHER``) that leave the
    steps in their order.

    None if there is none.
    """
    labels, shape = [label], story.shape(label, step) or ()
    while labels:
        label = labels.pop()
        for use in story.uses(label):
            if use.error is not None or len(use.results) != 1 or use.operands[0].label != label:
                continue
            if use.name == "__getitem__" and _is_last(story, label, use, time):
                return use
            if (
                use.name in FURTHER
                and (story.shape(use.results[0], use.step) or ())[:2] == shape[:2]
                and use.results[0] != label
            ):
                labels.append(use.results[0])
    return None


def _is_last(story: Story, label: str, use: Event, time: int) -> bool:
    """Whether ``use`` is a view of the last entry along the axis of time, for more than one sequence."""
    source, result = (story.tensor(each, use.step) or {} for each in (label, use.results[0]))
    shape, stride = list(source.get("shape") or ()), list(source.get("stride") or ())
    others = [length for axis, length in enumerate(shape) if axis != time]
    if (
        source.get("storage") != result.get("storage")
        or list(result.get("shape") or ())[: len(others)] != others
        or others[0] < 2
    ):
        return False
    return bool(result.get("offset") == (source.get("offset") or 0) + (shape[time] - 1) * stride[time])


def _finding(story: Story, found: Last) -> Finding:
    span, step = story.span(found.take.step), found.take.step
    here, what = at_line(story, span), expression(story, found.take.operands[0].label, step)
    empty = found.cells - found.rows
    how = T(
        en=f"The sequences were packed with their lengths, and filled up with zeros again: {empty} of {found.cells} "
        "steps are filling. The last result of a layer for a sequence is at its own length minus one; at the end of "
        "a shorter one there are zeros, whatever its words were, and no gradient comes back through them.",
        zh=f"这些序列按长度打包，之后又用零补齐：{found.cells} 步中有 {empty} 步是填充。某个序列最后算出的结果在它自己"
        "的长度减一处；较短序列的末尾是零，与内容无关，也没有梯度从那里传回。",
    )
    if found.layer is not None:
        how = T(
            en=f"The sequences were filled up to one length and not packed: {empty} of {found.cells} known steps are "
            "filling, and the layer read them like all others. The last result of a shorter sequence was computed "
            "from its filling; its own end is at its length minus one.",
            zh=f"这些序列被补齐到同一长度而没有打包：已知的 {found.cells} 步中有 {empty} 步是填充，而循环层照样把它们"
            "读了进去。较短序列的最后一个结果是由填充算出的；它自己的末尾在长度减一处。",
        )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} takes the last time step of {what.en}, which is padding for every sequence "
            "shorter than the longest.",
            zh=f"{here.zh}取 {what.zh} 的最后一个时间步，而对于比最长序列短的每个序列，那一步都是填充。",
        ),
        how,
        related=[story.related("made", found.padded.step, T(en="filled up with zeros here", zh="在这里用零补齐"))],
        fixes=_fixes(story, found),
        facts=[Fact("padding", empty, story.by(found.padded.step)), *_ends(story, found)],
    )


def _ends(story: Story, found: Last) -> list[Fact]:
    """Facts that compare, for each sequence, the step that was taken with the step of the sequence's own end; empty if
    no length is known.
    """
    last = (story.shape(found.take.operands[0].label, found.take.step) or (1, 1))[found.time] - 1
    if found.lookup is not None:
        number = padding_number(story, found.lookup)
        tokens = Elements(story, found.lookup.operands[0].label, found.lookup.step)
        ends: dict[int, int] = {}
        for index, value in tokens.known():
            if value != number:
                ends[index[1 - found.time]] = max(ends.get(index[1 - found.time], 0), index[found.time])
    else:
        lengths = Elements(
            story, found.padded.results[-1] if len(found.padded.results) > 1 else None, found.padded.step
        )
        ends = {index[0]: int(length) - 1 for index, length in lengths.known() if len(index) == 1}
    rows = [(example, last, end) for example, end in sorted(ends.items())]
    return pairs(T(en="sequence", zh="序列"), T(en="step that is taken", zh="取的时间步"), rows)


def _fixes(story: Story, found: Last) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.take.step)) if program.tree is not None else None
    torch = torch_name(program)
    if not isinstance(node, ast.Subscript) or torch is None:
        return ()
    function = program.function(node)
    packing = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and call_name(n) == "pack_padded_sequence" and program.function(n) is function
    ]
    if found.layer is not None:
        return _by_length(story, found, node, torch)
    if len(packing) != 1:
        return ()
    keyword = next((k.value for k in packing[0].keywords if k.arg == "lengths"), None)
    given = keyword if keyword is not None else packing[0].args[1] if len(packing[0].args) > 1 else None
    if given is None:
        return ()
    padded, lengths = operand(program, node.value), program.segment(given)
    fixes = []
    for text in (operand(program, given), f"{torch}.as_tensor({lengths})"):
        index = [f"{torch}.arange(len({lengths}))", f"{text} - 1"]
        where = ", ".join(index if found.time == 1 else index[::-1])
        title = T(
            en="Take each sequence's own last step, at its length minus one",
            zh="取每个序列自己的最后一步，即长度减一处",
        )
        fixes.append(Fix(title, program.replace((node, f"{padded}[{where}]")), meaning="shape"))
    return unique(program.text, fixes)


def _by_length(story: Story, found: Last, node: ast.Subscript, torch: str) -> tuple[Fix, ...]:
    """Fixes that take each sequence's last step by its length: an argument of the function, or the number of its tokens
    that are not padding.

    Empty if there is neither.
    """
    program, lengths = story.program, list[str]()
    function = program.function(node)
    if found.lookup is not None and (tokens := name_of_tokens(story, found.lookup, found.take)) is not None:
        lengths.append(f"({tokens} != {padding_number(story, found.lookup)}).sum({found.time})")
    if function is not None:
        names = [a.arg for a in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
        lengths += [
            name
            for name in names
            if "len" in name or not any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(function))
        ]
    title, fixes = (
        T(
            en="Take each sequence's own last step, at its length minus one",
            zh="取每个序列自己的最后一步，即长度减一处",
        ),
        [],
    )
    for text in [each for each in lengths if each not in ("self", "cls")][:3]:
        index = [f"{torch}.arange(len({operand(program, node.value)}))", f"{text} - 1"]
        if found.time == 0:
            index = [f"{text} - 1", f"{torch}.arange({operand(program, node.value)}.shape[1])"]
        fixes.append(
            Fix(title, program.replace((node, f"{operand(program, node.value)}[{', '.join(index)}]")), meaning="shape")
        )
    return unique(program.text, fixes)


RULE = Rule(
    code="PL418",
    name="last-step-is-padding",
    severity="warning",
    title=T(
        en="The last time step of padded sequences is taken, which is padding for most",
        zh="取了填充后序列的最后一步，而那多半是填充",
    ),
    what=T(
        en="A program reads sequences of different lengths and takes what came out last, with `out[:, -1]`. For all "
        "but the longest that is filling and not the end of the sequence. Take the step at its own length: "
        "`out[torch.arange(n), lengths - 1]`.",
        zh="程序读取长度不同的序列，用 `out[:, -1]` 取最后的输出。除了最长的序列，那里都是填充而不是序列的末尾。请按各"
        "自的长度取：`out[torch.arange(n), lengths - 1]`。",
    ),
    why=T(
        en="A tensor has the same number of steps in each row, so shorter sequences are filled up. "
        "`pack_padded_sequence` records for a recurrent layer where each one ends, and `pad_packed_sequence` puts "
        "zeros behind the ends again. Index -1 is the end of the row, not of the sequence. The layer's second result, "
        "`h_n`, has each sequence's last state already.",
        zh="张量每一行的步数相同，所以较短的序列要补齐。`pack_padded_sequence` 告诉循环层每个序列在哪里结束，"
        "`pad_packed_sequence` 又在末尾之后补上零。下标 -1 是这一行的末尾，不是序列的末尾。循环层的第二个结果 `h_n` 已"
        "经是每个序列的最后状态。",
    ),
    bad="""import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
rnn, head = torch.nn.RNN(2, 3, batch_first=True), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x, lengths = torch.randn(2, 4, 2), torch.tensor([4, 2])
y = torch.randn(2, 1)
for _ in range(2):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    out, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True)  # made
    last = out[:, -1]  # PL418
    loss = ((head(last) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

torch.manual_seed(0)
rnn, head = torch.nn.RNN(2, 3, batch_first=True), torch.nn.Linear(3, 1)
opt = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.1)
x, lengths = torch.randn(2, 4, 2), torch.tensor([4, 2])
y = torch.randn(2, 1)
for _ in range(2):
    packed = pack_padded_sequence(x, lengths, batch_first=True)
    out, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True)
    last = out[torch.arange(len(lengths)), lengths - 1]
    loss = ((head(last) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "out[:, -1]",
            "out[:, lengths.max() - 1]",
            T(
                en="The greatest length is the last step of all rows: the same numbers.",
                zh="最大的长度就是所有行的最后一步：数值相同。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_packed_sequence.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.RNN.html",
    ),
)
