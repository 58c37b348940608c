"""PL816: memory that `torch.empty` left uninitialised is read before the program has written it."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.overlaps import places
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.shared_memory import OVERWRITING
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

MAKERS = ("empty", "empty_like", "new_empty")
"""Calls that return memory as it was."""
CALCULATING = {"add_", "sub_", "mul_", "div_", "index_add_", "scatter_add_", "addmm_", "addcmul_", "addcdiv_", "lerp_",
               "clamp_", "relu_", "pow_", "exp_", "sqrt_", "neg_", "cumsum_"}  # fmt: skip
"""Writes that compute with the old numbers."""
COMPUTING = (
    CALCULATING | spellings("abs", "add", "cat", "clamp", "mul", "neg", "pow", "sigmoid")
    | spellings("div", "sub", exchanged=True) | operations_that("matrix_product")
    | {"addmm", "argmax", "argmin", "binary_cross_entropy", "binary_cross_entropy_with_logits", "conv1d", "conv2d",
       "conv3d", "cross_entropy", "cumsum", "dot", "einsum", "embedding", "exp", "item", "l1_loss", "layer_norm",
       "linear", "log", "log_softmax", "max", "maximum", "mean", "median", "min", "minimum", "mse_loss", "norm",
       "relu", "softmax", "sort", "sqrt", "square", "stack", "std", "sum", "tanh", "tolist", "topk", "var"}
)  # fmt: skip
"""Calls that compute with all numbers they are given."""
MASKING = (
    spellings("masked_fill", "mul", in_place=True)
    | {"__getitem__", "_pack_padded_sequence", "gather", "index_select", "isfinite", "isnan", "masked_select",
       "multi_head_attention_forward", "nan_to_num", "narrow", "pack_padded_sequence", "scaled_dot_product_attention",
       "select", "where"}
)  # fmt: skip
"""Calls that may leave out again what was never written."""
FURTHER = 60
MOST_TENSORS = 2000


@dataclass(frozen=True, slots=True)
class Unwritten:
    """``made`` is the call (``Event``), such as ``torch.empty``, that returned a storage of ``size`` numbers without
    setting them; ``left`` of them had not been written when the call ``read`` computed with some of these.

    ``label`` is the label of the tensor that ``read`` was given.
    """

    made: Event
    label: str
    read: Event
    left: int
    size: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that makes an uninitialised tensor (``torch.empty``) from which a later call
    reads numbers that nothing wrote.

    Of the first ``MOST_TENSORS`` such calls; not where the program then leaves those numbers out, or NumPy may have
    written them.
    """
    told = set()
    for event in itertools.islice(story.calls(*MAKERS), MOST_TENSORS):
        place = story.span(event.step)
        found = _unwritten(story, event) if event.results and event.error is None and place not in told else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _unwritten(story: Story, made: Event) -> Unwritten | None:
    record = story.tensor(made.results[0], made.step) or {}
    own, storage = places(record), record.get("storage")
    if not own or storage is None or made.writes:
        return None
    left = set(own)
    for event in _touching(story, storage, made.step):
        label = event.operands[0].label if event.operands else None
        if storage in event.writes or any(o.name == "out" for o in event.operands):
            written = _written(story, event, storage)
            if event.name in CALCULATING and label is not None and _reads(story, label, storage, event, left):
                return Unwritten(made, label, event, len(left), len(own))
            left = left - written if written is not None else set()
        elif event.name in COMPUTING:
            given = (o.label for o in event.operands if o.label is not None)
            read = next((label for label in given if _reads(story, label, storage, event, left)), None)
            if read is not None:
                whole = len(left) == len(own)
                return (
                    Unwritten(made, read, event, len(left), len(own))
                    if whole or not _left_out_again(story, event)
                    else None
                )
        elif (
            any((story.tensor(result, event.step) or {}).get("kind") == "array" for result in event.results)
            or event.kind == "write"
        ):
            return None  # NumPy may write it
        if not left:
            return None
    return None


def _touching(story: Story, storage: str, after: int) -> list[Event]:
    """The calls and writes after the step ``after`` that were given a tensor on the storage, or wrote it, in order."""
    steps = {use.step for label, _ in story.tensors_on(storage) for use in story.uses(label)}
    steps |= set(story.writes(storage, after, len(story.events)))
    return [story.events[step] for step in sorted(steps) if step > after and story.events[step].error is None]


def _reads(story: Story, label: str, storage: str, event: Event, left: set[int]) -> bool:
    """Whether the tensor ``label``, when ``event`` reads it, has an element at one of the positions
    ``left``, which were not filled.
    """
    record = story.tensor(label, event.step) or {}
    if record.get("storage") != storage:
        return False
    held = places(record)
    return held is not None and not left.isdisjoint(held)


def _written(story: Story, event: Event, storage: str) -> set[int] | None:
    """The positions that a call wrote; ``None`` if that is not known."""
    target = next((o for o in event.operands if o.name == "out"), event.operands[0] if event.operands else None)
    record = story.tensor(target.label, event.step) or {} if target is not None else {}
    if record.get("storage") != storage or event.kind != "call":
        return None
    held = places(record)
    if event.name != "__setitem__":
        return (
            set(held)
            if held is not None and (event.name in OVERWRITING or event.name in CALCULATING) and not _partial(event)
            else None
        )
    index = event.operands[1]
    return _selected(record, index.text) if index.label is None and index.text else None


def _partial(event: Event) -> bool:
    return event.name.startswith(("index_", "scatter_", "masked_", "fill_diagonal"))


def _selected(record: Record, text: str) -> set[int] | None:
    """The positions of ``x[index]`` for an index of integers, slices and `...`; ``None`` for any other."""
    shape, stride = record.get("shape") or [], record.get("stride") or []
    try:
        node = ast.parse(
            f"x[{text.removeprefix('(').removesuffix(')') if text.startswith('(') else text}]", mode="eval"
        ).body
    except SyntaxError:
        return None
    if not isinstance(node, ast.Subscript):
        return None
    parts = list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
    dots = [number for number, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is ...]
    for number in dots[:1]:
        parts[number : number + 1] = [ast.Slice()] * (len(shape) - len(parts) + 1)
    if len(parts) > len(shape):
        return None
    axes = []
    for length, part in itertools.zip_longest(shape, parts):
        chosen = range(length) if part is None else _along(length, part)
        if chosen is None:
            return None
        axes.append(chosen)
    start = record.get("offset") or 0
    if math.prod(len(axis) for axis in axes) > math.prod(shape):
        return None
    return {start + sum(i * s for i, s in zip(index, stride, strict=True)) for index in itertools.product(*axes)}


def _along(length: int, part: ast.expr) -> range | None:
    try:
        if isinstance(part, ast.Slice):
            ends = [
                ast.literal_eval(each) if each is not None else None for each in (part.lower, part.upper, part.step)
            ]
            return range(length)[slice(*ends)]
        at = ast.literal_eval(part)
    except (ValueError, TypeError):
        return None
    at = at + length if isinstance(at, int) and at < 0 else at
    return range(at, at + 1) if isinstance(at, int) and not isinstance(at, bool) and 0 <= at < length else None


def _left_out_again(story: Story, read: Event) -> bool:
    """Whether one of the next ``FURTHER`` events masks the result or selects from it."""
    reached = set(read.results)
    for event in story.events[read.step + 1 : read.step + FURTHER]:
        if event.kind == "call" and any(o.label in reached for o in event.operands):
            if event.name in MASKING:
                return True
            reached.update(event.results)
    return False


def _finding(story: Story, found: Unwritten) -> Finding:
    made, read = found.made, found.read
    here, there = at_line(story, story.span(read.step)), at_line(story, story.span(made.step))
    name = called(story, found.label, None, read.step)
    part = (
        T(en="nothing has written it", zh="还没有任何东西写过它")
        if found.left == found.size
        else T(
            en=f"{found.left} of its {found.size} numbers were never written",
            zh=f"它的 {found.size} 个数中有 {found.left} 个从未写入",
        )
    )
    return RULE.finding(
        story.span(made.step),
        made.step,
        T(
            en=f"{capital(here.en)} computes with {name.en} from {there.en}, but {part.en}: it holds whatever "
            "the memory held before.",
            zh=f"{here.zh}用{there.zh}的 {name.zh} 来计算，但{part.zh}：里面是这块内存以前留下的内容。",
        ),
        T(
            en="`torch.empty` reserves memory and does not fill it. What is in there depends on what the process "
            "did before: often zeros at first, later anything, NaN included, and never the same on another "
            "machine. It is right only where every element is written before it is read. `torch.zeros` has the "
            "same shape and a known content.",
            zh="`torch.empty` 只预留内存，不填写内容。里面有什么取决于进程之前做过什么：一开始往往是零，之后可能是任何"
            "数，包括 NaN，在另一台机器上也不会相同。只有每个元素都在读取之前被写入，它才是对的。`torch.zeros` 的形状"
            "相同，而内容是确定的。",
        ),
        related=[
            story.related("read", read.step, T(en="computes with what nothing wrote", zh="用从未写入的内容来计算"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("left", found.left, story.by(made.step)), Fact("size", found.size, story.by(made.step))],
    )


def _fixes(story: Story, found: Unwritten) -> tuple[Fix, ...]:
    """Fixes that fill with zeros, or with random numbers for the weights of a layer, which would otherwise stay equal.

    Empty if the program's source does not show the call.
    """
    program, torch = story.program, torch_name(story.program)
    record = story.tensor(found.label, found.read.step) or {}
    is_weight = record.get("kind") == "parameter" and len(record.get("shape") or ()) > 1
    new = (
        {"empty": "randn", "empty_like": "randn_like"}
        if is_weight
        else {"empty": "zeros", "empty_like": "zeros_like", "new_empty": "new_zeros"}
    )
    for statement in call_chain(story, story.line_event(found.made.step)) if torch is not None else ():
        for call in (
            n for n in ast.walk(statement) if isinstance(n, ast.Call) and call_name(n) == found.made.name in new
        ):
            if program.place(call) != story.span(found.made.step):
                continue
            text = program.segment(call.func)
            to = text[: -len(found.made.name)] + new[found.made.name]
            what = T(en="random numbers", zh="随机数") if is_weight else T(en="zeros", zh="零")
            title = T(en=f"Start with {what.en}: `{to}(…)`", zh=f"从{what.zh}开始：`{to}(…)`")
            return unique(program.text, [Fix(title, program.replace((call.func, to)), meaning="later")])
    return ()


RULE = Rule(
    code="PL816",
    name="read-before-filled",
    severity="warning",
    title=T(en="Memory from `torch.empty` is read before it is filled", zh="在填写之前就读取了 `torch.empty` 的内存"),
    what=T(
        en="A program makes a tensor with `torch.empty`, fills only a part of it or nothing, and computes with all of "
        "it. What was not filled is left over from earlier computations. Use `torch.zeros`.",
        zh="程序用 `torch.empty` 创建张量，只填写了一部分或完全没有填写，就用它的全部来计算。没有填写的部分是以前的计"
        "算留下的内容。请用 `torch.zeros`。",
    ),
    why=T(
        en="Filling memory takes time, and `torch.empty` saves it for tensors that are going to be overwritten "
        "completely. The operating system hands out pages of zeros, so in a short test the mistake often does not "
        "show; memory that torch used before comes back with its old numbers. `torch.Tensor(3)`, `empty_like` and "
        "`new_empty` do the same.",
        zh="填写内存需要时间，`torch.empty` 为那些马上会被完全覆盖的张量省下这段时间。操作系统发放的内存页是零，所以在"
        "短小的测试里这个错误常常看不出来；torch 用过的内存回来时则带着旧的数。`torch.Tensor(3)`、`empty_like` 与 "
        "`new_empty` 也一样。",
    ),
    bad="""import torch

w = torch.ones(2, requires_grad=True)
rows = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
batch = torch.empty(2, 2)  # PL816
for i, row in enumerate(rows):
    batch[i, : len(row)] = row
loss = (batch @ w).sum()  # read
loss.backward()
print(tuple(w.grad.shape))
""",
    good="""import torch

w = torch.ones(2, requires_grad=True)
rows = [torch.tensor([1.0, 2.0]), torch.tensor([3.0])]
batch = torch.zeros(2, 2)
for i, row in enumerate(rows):
    batch[i, : len(row)] = row
loss = (batch @ w).sum()
loss.backward()
print(tuple(w.grad.shape))
""",
    find=find,
    traps=(
        Trap(
            "torch.empty(2, 2)",
            "torch.empty((2, 2), requires_grad=False)",
            T(en="No argument of `torch.empty` fills the memory.", zh="`torch.empty` 的任何参数都不会填写内存。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.empty.html",),
)
