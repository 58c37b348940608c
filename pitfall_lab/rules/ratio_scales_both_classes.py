"""PL760: the ratio of the classes scales a binary loss as a whole, so that the rare
class counts no more than before.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose, prod

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, values
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

LOGITS, SHARES = "binary_cross_entropy_with_logits", "binary_cross_entropy"
MODULES = {LOGITS: "BCEWithLogitsLoss", SHARES: "BCELoss"}
WEIGHT = {LOGITS: 2, SHARES: 2, "BCEWithLogitsLoss": 0, "BCELoss": 0}
"""Losses, and the position of the weight among their arguments."""
COUNTS = {"sum", "count_nonzero", "mean", "bincount", "unique"}
"""Calls by which the examples of a class are counted."""
PRODUCTS = spellings("mul", in_place=True)
SAME_ROWS = (
    SAME_NUMBERS | spellings("as_tensor", "bitwise_not", "eq", "ge", "gt", "le", "lt", "ne")
    | {"__rsub__", "bool", "from_numpy", "half", "int", "logical_not", "long", "nonzero", "numpy", "rsub", "type"}
)  # fmt: skip
"""Calls whose result still has the rows of the first operand, so that it is known whose labels were counted."""
FURTHER, NEAR, LEAST, OFTEN = 60, 1e-4, 1.2, 3


@dataclass(frozen=True, slots=True)
class RatioScalesBothClasses:
    """``event`` is the call (``Event``) that multiplied the result of the call ``loss`` by the number ``ratio``; it is
    ``loss`` itself where that was given the ratio as its ``weight``.

    ``count`` is the call that counted labels: of ``total`` labels ``rare`` are of the rare class, and ``ratio`` is the
    number of labels of the other class divided by ``rare``.
    """

    event: Event
    loss: Event
    ratio: float
    count: Event
    rare: int
    total: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a binary cross-entropy that is multiplied by the ratio of the counts of its
    two classes.

    The ratio must be at least ``LEAST`` and match counts of the labels. The first ``OFTEN`` runs of each line are
    looked at.
    """
    looked: Counter[Span | None] = Counter()
    for loss in story.calls(LOGITS, SHARES):
        place = story.span(loss.step)
        if looked[place] >= OFTEN or loss.error is not None or len(loss.operands) < 2 or not loss.results:
            continue
        looked[place] += 1
        for event, label, number in _factors(story, loss):
            ratio = number if number is not None else next(iter(values(story, label, event.step)), 0.0)
            counted = _counted(story, loss, ratio) if ratio >= LEAST else None
            if counted is not None:
                looked[place] = OFTEN
                yield _finding(story, RatioScalesBothClasses(event, loss, ratio, *counted))
                break


def _factors(story: Story, loss: Event) -> Iterator[tuple[Event, str | None, float | None]]:
    """Yield the calls that multiply the loss by a single number, each with the label of its
    tensor or the number itself.
    """
    for place, operand in enumerate(loss.operands):
        if (
            operand.label is not None
            and _is_single(story, operand.label, loss.step)
            and (operand.name == "weight" or place == WEIGHT[LOGITS])
        ):
            yield loss, operand.label, None
    for use in story.uses(loss.results[0]):
        if use.name in PRODUCTS and use.error is None:
            for operand in use.operands:
                if (
                    operand.label is not None
                    and operand.label != loss.results[0]
                    and _is_single(story, operand.label, use.step)
                ):
                    yield use, operand.label, None
                elif operand.label is None and not operand.name and (number := _number(operand.text)) is not None:
                    yield use, None, number


def _is_single(story: Story, label: str, step: int) -> bool:
    shape = story.shape(label, step)
    return shape is not None and prod(shape) == 1 and not (story.tensor(label, step) or {}).get("requires_grad")


def _number(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _counted(story: Story, loss: Event, ratio: float) -> tuple[Event, int, int] | None:
    """The call that counted labels from which the target comes, one class of which is ``ratio`` times as frequent as
    the other; with the count of the rare class and the total count.

    None if there is no such call before the loss, or if more than half of the known targets are ones.
    """
    own = values(story, loss.operands[1].label, loss.step)
    if not own or not set(own) <= {0.0, 1.0} or 2 * sum(own) > len(own):
        return None
    target = storages_of_rows(story, loss.operands[1].label, loss.step)
    for event in story.calls(*COUNTS):
        if event.step > loss.step:
            return None
        label = event.operands[0].label if event.operands else None
        total = prod(story.shape(label, event.step) or ())
        if (
            label is None
            or event.error is not None
            or total < 2
            or not target & storages_of_rows(story, label, event.step)
        ):
            continue
        found = [value for result in event.results for value in values(story, result, event.step)]
        for value in found[:4]:
            one = round(value * total) if event.name == "mean" else value
            rare = min(one, total - one)
            if rare > 0 and isclose((total - rare) / rare, ratio, rel_tol=NEAR):
                return event, int(rare), total
    return None


def storages_of_rows(story: Story, label: str | None, step: int) -> set[str]:
    """Return the storages from which a tensor's rows come, its own included, as far as
    calls that keep rows lead back.
    """
    found: set[str] = set()
    pending = [(label, step)]
    while pending and len(found) < FURTHER:
        label, step = pending.pop()
        record = story.tensor(label, step) or {}
        storage = str(record.get("storage"))
        if not record or (storage in found and len(found) > 1):
            continue
        found.add(storage)
        event = story.event(record.get("born"))
        if event is not None and label in event.results and event.name in SAME_ROWS:
            pending += [(o.label, event.step) for o in event.operands[:1] if o.label is not None and o.label != label]
    return found


def _finding(story: Story, found: RatioScalesBothClasses) -> Finding:
    event, loss, ratio = found.event, found.loss, f"{found.ratio:.4g}"
    made = _written(story, found)
    span = story.program.place(made) if made is not None else story.span(event.step)
    here, there, counted = (
        at_line(story, span),
        at_line(story, story.span(loss.step)),
        at_line(story, story.span(found.count.step)),
    )
    most = found.total - found.rare
    used = [Related("used", story.span(loss.step), loss.step, T(en="the loss is computed here", zh="损失在这里计算"))]
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} multiplies the loss of both classes by {ratio}, which is the ratio of the classes "
            f"({most} to {found.rare}): the rare class counts no more than before.",
            zh=f"{here.zh}把两个类别的损失都乘以 {ratio}，也就是两个类别的数量之比（{most} 比 {found.rare}）：稀有"
            "类别并没有变得更重要。",
        ),
        T(
            en=f"{capital(counted.en)} counted {found.rare} of {found.total} labels for the rare class. One number as "
            f"a weight scales every term of the loss on {there.en}, `y·log p` and `(1-y)·log(1-p)` alike: it stays "
            f"{found.rare} to {most}. The argument `pos_weight` multiplies the first term alone.",
            zh=f"{counted.zh}数出 {found.total} 个标签中有 {found.rare} 个属于稀有类别。单个数作为权重，会同样缩"
            f"放{there.zh}损失中的每一项，`y·log p` 与 `(1-y)·log(1-p)` 都一样；它们的比例仍是 {found.rare} 比 "
            f"{most}。参数 `pos_weight` 只乘第一项。",
        ),
        related=[
            story.related("made", found.count.step, T(en="the labels are counted here", zh="标签在这里计数")),
            *(used if story.span(loss.step) != span else []),
        ],
        fixes=_fixes(story, found, made),
        facts=[Fact("ratio", ratio, story.by(event.step)), Fact("rare", found.rare), Fact("labels", found.total)],
    )


def _written(story: Story, found: RatioScalesBothClasses) -> ast.Call | None:
    """Return the call in which the weight is written: the loss's own, or the one that makes its
    module; None if it is not found.
    """
    if found.event is not found.loss:
        return None
    program, name = story.program, found.loss.name
    node = program.at(story.span(found.loss.step))
    if isinstance(node, ast.Call) and call_name(node) == name:
        return node if _weight(node) is not None else None
    made = [
        n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == MODULES[name] and _weight(n) is not None
    ]
    return made[0] if len(made) == 1 else None


def _weight(call: ast.Call) -> ast.expr | None:
    """Return what the call of a loss gives as ``weight``; None if it gives nothing."""
    place = WEIGHT[call_name(call)]
    return next(
        (k.value for k in call.keywords if k.arg == "weight"), call.args[place] if len(call.args) > place else None
    )


def _fixes(story: Story, found: RatioScalesBothClasses, made: ast.Call | None) -> tuple[Fix, ...]:
    """At most one fix: it gives the ratio as ``pos_weight``, where the loss is ``made`` with a weight, or in place of
    the product.

    Empty for a loss of probabilities, and where the program's source shows no place for it.
    """
    program = story.program
    if found.loss.name != LOGITS:
        return ()
    if made is not None:
        weight = _weight(made)
        given = [program.segment(a) for a in made.args if a is not weight]
        given += [program.segment(k) for k in made.keywords if k.value is not weight]
        edited = (
            (made, _call(program.segment(made.func), given, program.segment(weight))) if weight is not None else None
        )
        edits = program.replace(edited) if edited is not None else ()
    else:
        edits = _product_edits(story, found)
    title = T(en="Weight the positive class alone: `pos_weight`", zh="只加权正类：`pos_weight`")
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _product_edits(story: Story, found: RatioScalesBothClasses) -> tuple[Edit, ...]:
    """The edits that turn a product with the loss into the loss with ``pos_weight``; empty if the program's source has
    no such product.
    """
    program, torch = story.program, torch_name(story.program)
    product, loss = program.at(story.span(found.event.step)), program.at(story.span(found.loss.step))
    if (
        not isinstance(product, ast.BinOp)
        or not isinstance(loss, ast.Call)
        or loss not in (product.left, product.right)
    ):
        return ()
    factor = product.right if loss is product.left else product.left
    text = program.segment(factor)
    single = any(o.label is not None and o.label != found.loss.results[0] for o in found.event.operands)
    text = text if single else f"{torch}.tensor({text})"
    if call_name(loss) == LOGITS:
        given = [program.segment(each) for each in (*loss.args, *loss.keywords)]
        return program.replace((product, _call(program.segment(loss.func), given, text)))
    made = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == MODULES[LOGITS]]
    if len(made) != 1 or any(k.arg == "pos_weight" for k in made[0].keywords):
        return ()
    given = [program.segment(each) for each in (*made[0].args, *made[0].keywords)]
    return program.replace(
        (product, program.segment(loss)), (made[0], _call(program.segment(made[0].func), given, text))
    )


def _call(function: str, given: list[str], weight: str) -> str:
    return f"{function}({', '.join([*given, f'pos_weight={weight}'])})"


RULE = Rule(
    code="PL760",
    name="ratio-scales-both-classes",
    severity="warning",
    title=T(en="The ratio of the classes scales the loss of both", zh="类别的数量之比缩放了两个类别的损失"),
    what=T(
        en="A program has few positive examples and gives the loss the ratio of the classes, so that they "
        "count more. It gives it as a weight of the whole loss, which makes all examples count more. Give the "
        "ratio as `pos_weight`.",
        zh="程序的正样本很少，于是把两类的数量之比交给损失，想让正样本更重要。但它作为整个损失的权重，使所有样本都同样"
        "变大。请把这个比值作为 `pos_weight` 给出。",
    ),
    why=T(
        en="`BCEWithLogitsLoss` has two arguments of this kind. `weight` is multiplied with the loss of each element, "
        "whatever its label; `pos_weight` with the part for label 1 alone. A single number as `weight` is a larger "
        "learning rate under SGD and nearly nothing under Adam, which divides by the size of the gradient: the model "
        "goes on to predict the frequent class. In `cross_entropy`, `weight` has an entry for each class, which is "
        "where the mix-up comes from. `BCELoss` has no `pos_weight`: give it one weight for each element, "
        "`torch.where(y == 1, ratio, 1.0)`.",
        zh="`BCEWithLogitsLoss` 有两个这样的参数。`weight` 与每个元素的损失相乘，不管它的标签是什么；`pos_weight` 只乘"
        "标签为 1 的那部分。单个数作为 `weight`，在 SGD 下相当于更大的学习率，在 Adam 下几乎没有作用，因为它会除以梯度"
        "的大小：模型仍然预测多数类。`cross_entropy` 的 `weight` 对每个类别有一项，混淆就是从这里来的。`BCELoss` 没有 "
        "`pos_weight`：请给每个元素一个权重，`torch.where(y == 1, ratio, 1.0)`。",
    ),
    advice=T(
        en="on {line}, multiply the loss of the rare class alone: `pos_weight`, or one weight for each element.",
        zh="在{line}只放大稀有类别的损失：用 `pos_weight`，或给每个元素一个权重。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(40, 3), (torch.arange(40) % 8 == 0).float()
ratio = (y == 0).sum() / y.sum()  # made
criterion = nn.BCEWithLogitsLoss(weight=ratio)  # PL760
net = nn.Linear(3, 1)
loss = criterion(net(x).squeeze(1), y)  # used
loss.backward()
print(loss.item(), net.bias.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
x, y = torch.randn(40, 3), (torch.arange(40) % 8 == 0).float()
ratio = (y == 0).sum() / y.sum()
criterion = nn.BCEWithLogitsLoss(pos_weight=ratio)
net = nn.Linear(3, 1)
loss = criterion(net(x).squeeze(1), y)
loss.backward()
print(loss.item(), net.bias.grad)
""",
    find=find,
    traps=(
        Trap(
            "ratio = (y == 0).sum() / y.sum()",
            "ratio = (10 * (y == 0).sum()) / (10 * y.sum())",
            T(en="The same ratio: it scales both classes.", zh="还是同一个比值：它缩放两个类别。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",),
)
