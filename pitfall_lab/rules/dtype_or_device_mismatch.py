"""PL805: two tensors of different number types met in an operation that converts nothing, or a tensor had a type that it cannot take."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.repairs import unique
from pitfall_lab.rules.story import Story
from pitfall_lab.rules.syntax import is_name, operand
from pitfall_lab.rules.wording import at_line, capital, expression
from pitfall_lab.trace import Event, Failure, T

POSITIONS = {"__getitem__": 1, "__setitem__": 1, "embedding": 0, "gather": 2, "index_select": 2, "scatter": 2, "scatter_": 2,
             "scatter_add": 2, "scatter_add_": 2, "index_add": 2, "index_add_": 2, "take": 1, "one_hot": 0}  # fmt: skip
"""Which operand of a call says positions."""
CLASSES = {"cross_entropy", "nll_loss"}
FLOATS = ("float64", "float32", "bfloat16", "float16")
METHODS = {"float64": "double", "float32": "float", "float16": "half", "bfloat16": "bfloat16", "int64": "long"}


@dataclass(frozen=True, slots=True)
class Mismatch:
    """``wrong`` has the type ``has`` where ``needs`` is wanted: of ``other``, or of the operation itself."""

    event: Event
    wrong: str
    has: str
    needs: str
    other: str | None


def find(story: Story) -> Iterator[Finding]:
    """One finding for each call that torch refused because of the types of its operands."""
    for step, failure in story.failures("dtype"):
        event = story.event(step)
        found = _mismatch(story, event) if event is not None else None
        if found is not None:
            yield _finding(story, found, failure)


def _mismatch(story: Story, event: Event) -> Mismatch | None:
    labels = [(place, o.label) for place, o in enumerate(event.operands) if o.label is not None]
    types = {label: str((story.tensor(label, event.step) or {}).get("dtype")) for _, label in labels}
    if event.name in POSITIONS or event.name in CLASSES:
        place = POSITIONS.get(event.name, 1)
        wrong = next((label for at, label in labels if at == place), None)
        floating = wrong is not None and types[wrong] in FLOATS
        return Mismatch(event, str(wrong), types[str(wrong)], "int64", None) if floating else None
    floats = [label for _, label in labels if types[label] in FLOATS]
    kinds = {types[label] for label in floats}
    if len(kinds) > 1:
        # the parameters keep their type, the data are converted; else the shorter type gives way
        leaf = next((label for label in floats if label in story.leaves), None)
        fixed = leaf or min(floats, key=lambda label: FLOATS.index(types[label]))
        wrong = next(label for label in floats if types[label] != types[fixed])
        return Mismatch(event, wrong, types[wrong], types[fixed], fixed)
    whole = [label for _, label in labels if types[label] not in FLOATS and not types[label].startswith("complex")]
    if whole and floats and not event.name.endswith("_"):
        return Mismatch(event, whole[0], types[whole[0]], types[floats[0]], floats[0])
    if whole and event.name in ("mean", "std", "var", "norm", "softmax", "log_softmax"):
        return Mismatch(event, whole[0], types[whole[0]], "float32", None)
    return None


def _finding(story: Story, found: Mismatch, failure: Failure) -> Finding:
    step, span = found.event.step, story.span(found.event.step)
    here, wrong = at_line(story, span), expression(story, found.wrong, step)
    role = T(en="positions", zh="位置") if found.event.name in POSITIONS else T(en="class numbers", zh="类别编号")
    if found.other is not None:
        other = expression(story, found.other, step)
        message = T(
            en=f"{capital(here.en)} combines {wrong.en} of type {found.has} with {other.en} of type {found.needs}; this operation converts "
            "neither.",
            zh=f"{here.zh}让 {found.has} 类型的 {wrong.zh} 与 {found.needs} 类型的 {other.zh} 相运算，而这个运算对两者都不做转换。",
        )
    elif found.needs == "int64":
        message = T(
            en=f"{capital(here.en)} takes {wrong.en} for {role.en}, but its numbers are of type {found.has}, and {role.en} are whole "
            "numbers.",
            zh=f"{here.zh}把 {wrong.zh} 当作{role.zh}，但它的数是 {found.has} 类型，而{role.zh}是整数。",
        )
    else:
        message = T(
            en=f"{capital(here.en)} needs numbers with a fraction, but {wrong.en} is of type {found.has}.",
            zh=f"{here.zh}需要带小数的数，但 {wrong.zh} 的类型是 {found.has}。",
        )
    return RULE.finding(
        span, step, message,
        T(
            en="Each tensor has one number type, chosen when it was made. Simple arithmetic converts mixed types; products of matrices, "
            f"layers, losses of classes and indexing do not. Convert {wrong.en} once, where it comes from, or right here.",
            zh="每个张量都有一种数值类型，在创建时定下。简单的算术会转换混合的类型；矩阵乘积、层、分类损失和索引则不会。请把 "
            f"{wrong.zh} 在它的来源处转换一次，或者就在这里转换。",
        ),
        related=[*_made(story, found), story.related("used", step, T(en="torch raises here", zh="torch 在这里报错"))],
        fixes=_fixes(story, found),
        facts=[Fact("has", found.has, story.by(step)), Fact("needs", found.needs, story.by(step))],
        predicted=story.predicted(failure, step),
    )  # fmt: skip


def _made(story: Story, found: Mismatch) -> Iterator[Related]:
    for label, kind in ((found.wrong, found.has), (found.other, found.needs)):
        born = (story.tensor(label, found.event.step) or {}).get("born")
        if born is not None and story.span(born) is not None and story.span(born) != story.span(found.event.step):
            yield story.related("made", born, T(en=f"type {kind} is chosen here", zh=f"类型 {kind} 在这里定下"))


def _fixes(story: Story, found: Mismatch) -> tuple[Fix, ...]:
    program, method = story.program, METHODS.get(found.needs)
    node = program.at(story.span(found.event.step)) if program.tree else None
    born = program.at(story.span((story.tensor(found.wrong) or {}).get("born"))) if program.tree else None
    if node is None or method is None:
        return ()
    candidates = []
    name = story.name(found.wrong, found.event.step)
    named = [n for n in ast.walk(node) if isinstance(n, ast.expr) and is_name(n) and program.segment(n) == name]
    for target in [*named[:1], *([born] if isinstance(born, ast.expr) and born is not node else [])]:
        new = f"{operand(program, target)}.{method}()"
        candidates.append(Fix(T(en=f"Convert it: `{new}`", zh=f"转换它：`{new}`"), program.replace((target, new))))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL805",
    name="dtype-or-device-mismatch",
    severity="error",
    title=T(en="Tensors of number types that do not go together", zh="数值类型不相配的张量"),
    what=T(
        en="A program gave an operation two tensors whose numbers are stored in different ways, most often data from NumPy with 64 bits "
        "and a layer with 32, or class numbers and positions with a decimal point. Convert the data: `x.float()`, `target.long()`.",
        zh="程序把两个以不同方式存放数值的张量交给一个运算：最常见的是来自 NumPy 的 64 位数据和 32 位的层，或者带小数点的类别编号和位置。"
        "请转换数据：`x.float()`、`target.long()`。",
    ),
    why=T(
        en="Every tensor has a *dtype*. Python and NumPy compute with `float64`; layers are made with `float32`; positions and class "
        "numbers are `int64`. Element-wise arithmetic *promotes* mixed types to the larger one. Products of matrices and layers do "
        "not, because converting a large matrix unnoticed would be costly; they raise. Indexing and `cross_entropy` want whole "
        "numbers, since there is no element 1.5. The same holds for places: a tensor on the CPU and one on a GPU meet in no operation, "
        "and `.to(device)` moves the data to the model.",
        zh="每个张量都有一个 *dtype*。Python 和 NumPy 用 `float64` 计算；层用 `float32` 创建；位置和类别编号是 `int64`。逐元素的算术会把混"
        "合的类型*提升*为较大的一种。矩阵乘积和层不会，因为不声不响地转换一个大矩阵代价很高；它们会报错。索引和 `cross_entropy` 要求整"
        "数，因为没有第 1.5 个元素。位置也是如此：CPU 上的张量和 GPU 上的张量不能相运算，`.to(device)` 把数据移到模型所在之处。",
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
    docs=("https://docs.pytorch.org/docs/stable/tensor_attributes.html",
          "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.to.html"),
)
