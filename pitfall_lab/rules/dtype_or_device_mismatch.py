"""PL805: an operation was given two tensors of different dtypes or devices that it does not convert, or a dtype that it
does not accept.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, Failure, T

POSITIONS = {"__getitem__": 1, "__setitem__": 1, "embedding": 0, "gather": 2, "index_select": 2, "scatter": 2,
             "scatter_": 2, "scatter_add": 2, "scatter_add_": 2, "index_add": 2, "index_add_": 2, "take": 1,
             "one_hot": 0}  # fmt: skip
"""Calls that take indices, each with the position of that operand."""
CLASSES = {"cross_entropy", "nll_loss"}
FLOATS = ("float64", "float32", "bfloat16", "float16")
MOST_BACK = 64
METHODS = {"float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat16", "int64": "long"}


@dataclass(frozen=True, slots=True)
class DtypeOrDeviceMismatch:
    """``event`` is the call (``Event``) that raised an error because of the dtype ``has`` (``"float64"``) of the
    operand labelled ``wrong``; ``needs`` is the dtype that it should have.

    ``other`` is the label of the operand that has this dtype; None if the operation itself requires it.
    """

    event: Event
    wrong: str
    has: str
    needs: str
    other: str | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call in which torch raised an error because its operands have different dtypes, are on
    different devices, or have a dtype that the operation does not accept.

    Nothing if the dtypes do not show which operand has the wrong one, as in calls of ``masked_…`` functions.
    """
    for step, failure in story.failures("dtype"):
        event = story.event(step)
        found = _mismatch(story, event) if event is not None else None
        if found is not None:
            yield _finding(story, found, failure)
    for step, failure in story.failures("other"):
        event = story.event(step)
        places = _places(story, event) if event is not None else {}
        if event is not None and len(set(places.values())) > 1:
            yield _apart(story, event, places, failure)


def _places(story: Story, event: Event) -> dict[str, str]:
    """Return the device of each operand of a call that raised an error, by label.

    NumPy arrays and 0-dim tensors on the CPU are left out: torch combines the latter with tensors on any device.
    """
    records = {o.label: story.tensor(o.label, event.step) or {} for o in event.operands if o.label is not None}
    known = {label: str(r["device"]) for label, r in records.items() if r.get("device") and r.get("kind") != "array"}
    return {label: device for label, device in known.items() if device != "cpu" or records[label].get("shape")}


def _apart(story: Story, event: Event, places: dict[str, str], failure: Failure) -> Finding:
    """Return the finding about operands on different devices.

    It proposes to move the other operand to the device of the parameters.
    """
    step, span = event.step, story.span(event.step)
    leaves = [label for label in places if label in story.leaves]
    fixed = next(
        (label for label in leaves if places[label] != "meta"),
        next((x for x in places if places[x] not in ("cpu", "meta")), ""),
    )
    fixed = fixed or next(label for label in places if places[label] != "meta")
    wrong = next(label for label in places if places[label] != places[fixed])
    here, one, other = at_line(story, span), _said(story, event, wrong), _said(story, event, fixed)
    empty = places[wrong] == "meta"
    numberless = T(
        en="The device `meta` has shapes and no numbers: what is made there (under `with torch.device(…)`, say) has "
        "to get memory before it is used, with `module.to_empty(device=…)`, and then its values.",
        zh="`meta` 设备上只有形状而没有数值：在那里创建的东西（例如在 `with torch.device(…)` 之下）在使用之前必须先得"
        "到内存（`module.to_empty(device=…)`），然后才是数值。",
    )
    move = T(
        en="Choose the device once and send both there: the model with `model.to(device)`, each batch with `x = "
        "x.to(device)`. For a module `to` works in place; for a tensor it answers with another one, so the result "
        f"must be kept. Here {one.en} has to go to `{places[fixed]}`.",
        zh="设备只选一次，把两者都送过去：模型用 `model.to(device)`，每个批次用 `x = x.to(device)`。对模块，`to` 就地"
        f"生效；对张量，它给出另一个张量，结果必须留下。这里 {one.zh} 应当去 `{places[fixed]}`。",
    )
    made = [
        story.related(
            "made", born, T(en=f"device `{places[label]}` is chosen here", zh=f"设备 `{places[label]}` 在这里定下")
        )
        for label in (wrong, fixed)
        if (born := (story.tensor(label, step) or {}).get("born")) is not None and story.span(born) not in (None, span)
    ]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} combines {one.en}, which is on the device `{places[wrong]}`, with {other.en} on "
            f"`{places[fixed]}`; no operation reaches across devices.",
            zh=f"{here.zh}让设备 `{places[wrong]}` 上的 {one.zh} 与 `{places[fixed]}` 上的 {other.zh} 一起运算，而"
            "任何运算都不能跨设备。",
        ),
        T(
            en="The numbers of a tensor are on one device, chosen when it was made, and torch never moves them by "
            f"itself. {numberless.en if empty else move.en}",
            zh=f"张量的数存放在一个设备上，在创建时定下，torch 从不擅自移动它们。{numberless.zh if empty else move.zh}",
        ),
        related=[*made, story.related("used", step, T(en="torch raises here", zh="torch 在这里报错"))],
        fixes=_moved(story, event, wrong, places[fixed]) if not empty else (),
        facts=[Fact("has", places[wrong], story.by(step)), Fact("needs", places[fixed], story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _moved(story: Story, event: Event, label: str, device: str) -> tuple[Fix, ...]:
    """Fixes that move the operand to ``device`` in the call itself; empty if the call does not contain the operand as a
    plain variable or attribute.
    """
    program, name = story.program, _said(story, event, label).en.strip("`")
    node = program.at(story.span(event.step)) if program.tree else None
    nodes = ast.walk(node) if node is not None else ()
    named = next((n for n in nodes if isinstance(n, ast.expr) and is_name(n) and program.segment(n) == name), None)
    if named is None:
        return ()
    new = f'{operand(program, named)}.to("{device}")'
    return unique(program.text, [Fix(T(en=f"Move it: `{new}`", zh=f"移动它：`{new}`"), program.replace((named, new)))])


def _mismatch(story: Story, event: Event) -> DtypeOrDeviceMismatch | None:
    if event.name.startswith("masked_"):
        return None  # a mask goes with every type
    labels = [(place, o.label) for place, o in enumerate(event.operands) if o.label is not None]
    types = {label: str((story.tensor(label, event.step) or {}).get("dtype")) for _, label in labels}
    if event.name in POSITIONS or event.name in CLASSES:
        place = POSITIONS.get(event.name, 1)
        wrong = next((label for at, label in labels if at == place), None)
        floating = wrong is not None and types[wrong] in FLOATS
        return DtypeOrDeviceMismatch(event, str(wrong), types[str(wrong)], "int64", None) if floating else None
    floats = [label for _, label in labels if types[label] in FLOATS]
    kinds = {types[label] for label in floats}
    if len(kinds) > 1:
        # the parameters keep their type, the data are converted; else the smaller type is converted
        leaf = next((label for label in floats if label in story.leaves), None)
        fixed = leaf or min(floats, key=lambda label: FLOATS.index(types[label]))
        wrong = next(label for label in floats if types[label] != types[fixed])
        return DtypeOrDeviceMismatch(event, wrong, types[wrong], types[fixed], fixed)
    whole = [label for _, label in labels if types[label] not in FLOATS and not types[label].startswith("complex")]
    if whole and floats and not event.name.endswith("_"):
        return DtypeOrDeviceMismatch(event, whole[0], types[whole[0]], types[floats[0]], floats[0])
    if whole and event.name in ("mean", "std", "var", "norm", "softmax", "log_softmax"):
        return DtypeOrDeviceMismatch(event, whole[0], types[whole[0]], "float32", None)
    return None


def _finding(story: Story, found: DtypeOrDeviceMismatch, failure: Failure) -> Finding:
    step, span = found.event.step, story.span(found.event.step)
    here, wrong = at_line(story, span), _said(story, found.event, found.wrong)
    role = T(en="positions", zh="位置") if found.event.name in POSITIONS else T(en="class numbers", zh="类别编号")
    if found.other is not None:
        other = _said(story, found.event, found.other)
        message = T(
            en=f"{capital(here.en)} combines {wrong.en} of type {found.has} with {other.en} of type {found.needs}; "
            "this operation converts neither.",
            zh=f"{here.zh}让 {found.has} 类型的 {wrong.zh} 与 {found.needs} 类型的 {other.zh} 一起运算，而这个"
            "运算对两者都不做转换。",
        )
    elif found.needs == "int64":
        message = T(
            en=f"{capital(here.en)} takes {wrong.en} for {role.en}, but its numbers are of type {found.has}, and "
            f"{role.en} are whole numbers.",
            zh=f"{here.zh}把 {wrong.zh} 当作{role.zh}，但它的数是 {found.has} 类型，而{role.zh}是整数。",
        )
    else:
        message = T(
            en=f"{capital(here.en)} needs numbers with a fraction, but {wrong.en} is of type {found.has}.",
            zh=f"{here.zh}需要带小数的数，但 {wrong.zh} 的类型是 {found.has}。",
        )
    return RULE.finding(
        span,
        step,
        message,
        T(
            en="Each tensor has one number type, chosen when it was made. Simple arithmetic converts mixed types; "
            f"products of matrices, layers, losses of classes and indexing do not. Convert {wrong.en} once, where it "
            "comes from, or right here.",
            zh="每个张量都有一种数值类型，在创建时定下。简单的算术会转换混合的类型；矩阵乘积、层、分类损失和索引则不"
            f"会。请把 {wrong.zh} 在它的来源处转换一次，或者就在这里转换。",
        ),
        related=[*_made(story, found), story.related("used", step, T(en="torch raises here", zh="torch 在这里报错"))],
        fixes=_fixes(story, found),
        facts=[Fact("has", found.has, story.by(step)), Fact("needs", found.needs, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _said(story: Story, event: Event, label: str) -> T:
    """Return the tensor as the expression in the line that raised the error, else its name or the expression that
    computed it.
    """
    given = event.error.given if event.error is not None else ()
    text = next((g.text for g in given if g.label == label and g.text), "")
    return T(en=f"`{text}`", zh=f"`{text}`") if text else expression(story, label, event.step)


def _chosen(story: Story, label: str | None, step: int) -> int | None:
    """Return the step at which the tensor's dtype was chosen: the earliest found by going back through operands of the
    same dtype.

    None if it is not known which line created the tensor.
    """
    born: int | None = None
    for _ in range(MOST_BACK):
        record = story.tensor(label, step) or {}
        if story.span(record.get("born")) is None:
            break  # an array of NumPy's, say, which no recorded call has made
        born, kind = record.get("born"), record.get("dtype")
        maker = story.event(born)
        labels = [o.label for o in maker.operands if o.label is not None] if maker is not None else []
        label = next((each for each in labels if (story.tensor(each, step) or {}).get("dtype") == kind), None)
        if label is None:
            break
    return born


def _made(story: Story, found: DtypeOrDeviceMismatch) -> Iterator[Related]:
    for label, kind in ((found.wrong, found.has), (found.other, found.needs)):
        born = _chosen(story, label, found.event.step)
        if born is not None and story.span(born) is not None and story.span(born) != story.span(found.event.step):
            yield story.related("made", born, T(en=f"type {kind} is chosen here", zh=f"类型 {kind} 在这里定下"))


def _fixes(story: Story, found: DtypeOrDeviceMismatch) -> tuple[Fix, ...]:
    program, method = story.program, METHODS.get(found.needs)
    node = program.at(story.span(found.event.step)) if program.tree else None
    if node is None or method is None:
        return ()
    whole = method != "long"  # other columns of a table keep their fractions
    made = (
        _chosen(story, found.wrong, found.event.step)
        if whole
        else (story.tensor(found.wrong, found.event.step) or {}).get("born")
    )
    born = program.at(story.span(made))
    candidates = []
    name = _said(story, found.event, found.wrong).en.strip("`")
    named = [n for n in ast.walk(node) if isinstance(n, ast.expr) and is_name(n) and program.segment(n) == name]
    own = (
        [born]
        if isinstance(born, ast.expr) and born is not node and program.statement(born) is not program.statement(node)
        else []
    )
    for target in [*named[:1], *own] if whole else [*own, *named[:1]]:
        new = f"{operand(program, target)}.{method}()"
        candidates.append(Fix(T(en=f"Convert it: `{new}`", zh=f"转换它：`{new}`"), program.replace((target, new))))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL805",
    name="dtype-or-device-mismatch",
    severity="error",
    title=T(en="Tensors of number types or devices that do not go together", zh="数值类型或设备不相配的张量"),
    what=T(
        en="A program gave an operation two tensors whose numbers are stored in different ways, most often data from "
        "NumPy with 64 bits and a layer with 32, or class numbers and positions with a decimal point. Convert the "
        "data: `x.float()`, `target.long()`.",
        zh="程序把两个以不同方式存放数值的张量交给一个运算：最常见的是来自 NumPy 的 64 位数据和 32 位的层，或者带小数"
        "点的类别编号和位置。请转换数据：`x.float()`、`target.long()`。",
    ),
    why=T(
        en="Every tensor has a *dtype*. Python and NumPy compute with `float64`; layers are made with `float32`; "
        "positions and class numbers are `int64`. Element-wise arithmetic *promotes* mixed types to the larger "
        "one. Products of matrices and layers do not, because converting a large matrix unnoticed would be "
        "costly; they raise. Indexing and `cross_entropy` want whole numbers, since there is no element 1.5. The "
        "same holds for places: a tensor on the CPU and one on a GPU meet in no operation, and `.to(device)` "
        "moves the data to the model.",
        zh="每个张量都有一个 *dtype*。Python 和 NumPy 用 `float64` 计算；层用 `float32` 创建；位置和类别编号是 "
        "`int64`。逐元素的算术会把混合的类型*提升*为较大的一种。矩阵乘积和层不会，因为不声不响地转换一个大矩阵代价很"
        "高；它们会报错。索引和 `cross_entropy` 要求整数，因为没有第 1.5 个元素。位置也是如此：CPU 上的张量和 GPU 上的"
        "张量不能一起运算，`.to(device)` 把数据移到模型所在之处。",
    ),
    bad="""import numpy as np
import torch

torch.manual_seed(0)
data = np.array([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]])
x = torch.from_numpy(data)  # made
layer = torch.nn.Linear(3, 1)  # made
out = layer(x)  # PL805 used
loss = out.square().mean()
loss.backward()
print(layer.weight.grad)
""",
    good="""import numpy as np
import torch

torch.manual_seed(0)
data = np.array([[1.0, 2.0, 3.0], [0.5, 0.5, 0.5]])
x = torch.from_numpy(data)
layer = torch.nn.Linear(3, 1)
out = layer(x.float())
loss = out.square().mean()
loss.backward()
print(layer.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "out = layer(x)",
            "out = layer(x.long().float())",
            T(
                en="`long()` on data cuts off what is behind the decimal point: no error, other numbers.",
                zh="对数据用 `long()` 会去掉小数部分：不再报错，数却变了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html",
    ),
)
