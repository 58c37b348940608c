"""PL967: a product of two trained matrices is added to a weight without the factor that it had while it was trained."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import isclose

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.forms import made_by, unscaled
from pitfall_lab.rules.signals.linear_parts import SCALING, constant
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", "sub", in_place=True)
PRODUCTS = spellings("matmul", "mm") | {"bmm", "linear"}
BETWEEN = {"dropout", "t", "T", "mT", "transpose", "view", "reshape", "contiguous", "to", "clone", "detach", "permute",
           "squeeze", "unsqueeze", "float"}  # fmt: skip
"""Calls that may lie between a product of two matrices and the sum; they do not change its factor."""
FURTHER, BOTH = 12, 2


@dataclass(frozen=True, slots=True)
class AdapterMergedUnscaled:
    """A sum, computed before the merge, in which the product of the two matrices has a factor.

    ``event`` is the call (``Event``) that adds ``factor`` times the result of both small trained matrices for an input
    to the result of the weight for an input.
    """

    event: Event
    factor: float


@dataclass(frozen=True, slots=True)
class Merge:
    """``event`` is the call (``Event``) that added the product of two small trained matrices to a weight, without a
    factor.

    ``product`` is the label of the tensor that was added (``"t7"``), ``pair`` the storages (``"S3"``) of the two
    matrices, ``weight`` the storage of the weight.
    """

    event: Event
    product: str
    pair: frozenset[str]
    weight: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds the product of two trained matrices to a weight with the factor 1 or
    -1, where the last sum before it of the weight's result and the matrices' result for an input had another factor.

    Nothing for programs that ran no backward.
    """
    if not story.backwards():
        return
    merges = [found for event in story.calls(*SUMS) if (found := _merge(story, event)) is not None]
    told = set()
    for merge in merges:
        place = story.span(merge.event.step)
        used = _used(story, merge) if place not in told else None
        if used is not None and not isclose(abs(used.factor), 1):
            told.add(place)
            yield _finding(story, merge, used)


def _merge(story: Story, event: Event) -> Merge | None:
    """Return the weight and the product that the call ``event`` adds without a factor; None if the call raised an
    error, has another ``alpha`` than 1 or -1, or does not add the product of two other parameters to a parameter.
    """
    labels = [o.label for o in event.operands if o.label is not None]
    if event.error is not None or len(labels) != BOTH or argument(event, "alpha") not in (None, "1", "-1", "1.0"):
        return None
    for weight, product in (labels, labels[::-1]):
        memory = _behind(story, weight, event.step - 1)
        pair = _pair(story, product, event.step) if memory is not None else None
        if memory is not None and pair is not None and memory not in pair:
            return Merge(event, product, pair, memory)
    return None


def _parameter(story: Story, label: str, step: int) -> str | None:
    """Return the storage of the tensor ``label``, if at ``step`` it is a parameter or another leaf that requires grad;
    None if it is not.
    """
    record = story.tensor(label, step) or {}
    is_kept = record.get("kind") == "parameter" or (record.get("is_leaf") and record.get("requires_grad"))
    return str(record["storage"]) if is_kept and record.get("storage") is not None else None


def _pair(story: Story, label: str, step: int) -> frozenset[str] | None:
    """Return the storages of the two parameters of whose matrix product the tensor ``label`` is a multiple by 1 or -1;
    None if the tensor is no such product.
    """
    source, by = unscaled(story, label, step)
    made = made_by(story, source, step)
    if made is None or made.name not in PRODUCTS or not isclose(abs(by), 1):
        return None
    found = [_behind(story, o.label, made.step) for o in made.operands if o.label is not None]
    return frozenset(each for each in found if each) if len({*found} - {None}) == BOTH else None


def _behind(story: Story, label: str | None, step: int) -> str | None:
    """Return the storage of the parameter that the tensor ``label`` is, or is a view or copy of; None if there is
    none.
    """
    for _ in range(FURTHER):
        if label is None:
            return None
        if (memory := _parameter(story, label, step)) is not None:
            return memory
        made = made_by(story, label, step)
        own = made is not None and (made.name in BETWEEN or made.op.endswith("data.__get__"))
        if made is None or not own or not made.operands:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _used(story: Story, merge: Merge) -> AdapterMergedUnscaled | None:
    """Return the last sum before a merge that adds the result of both matrices for an input to the result of the weight
    for an input, with the factor of the first; None if there is none.

    Only sums whose result requires grad count: the matrices were trained with that factor.
    """
    for event in reversed([each for each in story.calls(*SUMS) if each.step < merge.event.step and each.results]):
        if not (story.tensor(event.results[0], event.step) or {}).get("requires_grad"):
            continue
        labels = [o.label for o in event.operands if o.label is not None]
        for own, added in (labels, labels[::-1]) if len(labels) == BOTH and event.error is None else ():
            made = made_by(story, own, event.step)
            is_own = made is not None and made.name in {*PRODUCTS, "addmm"} and merge.weight in _weights(story, made)
            source, by = unscaled(story, added, event.step) if is_own else ("", 0.0)
            if by and _applied(story, source, event.step) == merge.pair:
                alpha = constant(story, None, argument(event, "alpha") or "1", event.step) or 1.0
                return AdapterMergedUnscaled(event, by * (alpha if added == labels[-1] else 1.0))
    return None


def _weights(story: Story, event: Event) -> set[str]:
    return {memory for o in event.operands if (memory := _behind(story, o.label, event.step)) is not None}


def _applied(story: Story, label: str, step: int) -> frozenset[str]:
    """Return the storages of all parameters by which an input was multiplied, one after the other, to compute the
    tensor ``label``; empty if there are none.
    """
    found: set[str] = set()
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or (made.name not in PRODUCTS and made.name not in BETWEEN):
            break
        weights = _weights(story, made) if made.name in PRODUCTS else set()
        if made.name in PRODUCTS and not weights:  # x @ (B @ A).T
            inner = [_pair(story, _viewed(story, each, made.step), made.step) for each in given]
            weights = next((set(each) for each in inner if each is not None), set())
        found |= weights
        rest = [each for each in given if _behind(story, each, made.step) is None]
        if not rest or (made.name in PRODUCTS and not weights):
            break
        label, step = rest[0], made.step
    return frozenset(found)


def _viewed(story: Story, label: str, step: int) -> str:
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or made.name not in BETWEEN or made.operands[0].label in (None, label):
            break
        label, step = str(made.operands[0].label), made.step
    return label


def _finding(story: Story, merge: Merge, used: AdapterMergedUnscaled) -> Finding:
    here, there = at_line(story, story.span(merge.event.step)), at_line(story, story.span(used.event.step))
    factor = number(abs(used.factor))
    return RULE.finding(
        story.span(merge.event.step),
        merge.event.step,
        T(
            en=f"{capital(here.en)} adds the product of two trained matrices to a weight with the factor 1, and they "
            f"were trained with the factor {factor}.",
            zh=f"{here.zh}以因子 1 把两个训练过的矩阵的乘积加到权重上，而它们是以因子 {factor} 训练的。",
        ),
        T(
            en=f"{capital(there.en)} adds {factor} times what the two matrices make of the input to what the weight "
            f"makes of it, and this sum was trained. The merged weight gives the same only if the product comes in "
            f"with the same factor: {factor} times the product.",
            zh=f"{there.zh}把两个矩阵由输入算出的结果乘以 {factor}，加到权重由输入算出的结果上，训练的是这个和。只有乘"
            f"积带上同样的因子，也就是乘积的 {factor} 倍，合并后的权重才会给出同样的结果。",
        ),
        related=[story.related("used", used.event.step, T(en="used with the factor here", zh="在这里带着因子使用"))],
        fixes=_fixes(story, merge, used),
        facts=[Fact("factor", abs(used.factor), story.by(used.event.step))],
    )


def _fixes(story: Story, merge: Merge, used: AdapterMergedUnscaled) -> tuple[Fix, ...]:
    """At most one fix: it multiplies the product by the factor, written as a variable or attribute where the function
    of the merge can read that, else as a number.
    """
    program = story.program
    node = written_as(story, merge.event, merge.product)
    if node is None:
        return ()
    text = _factor_text(story, used, node) or repr(abs(used.factor))
    title = T(en=f"Merge with the factor: `{text} * …`", zh=f"合并时带上因子：`{text} * …`")
    product = f"{text} * {operand(program, node)}"
    in_sum = isinstance(program.parents.get(node), ast.BinOp | ast.UnaryOp)
    change = f"({product})" if in_sum and not isinstance(node, ast.BinOp) else product
    return unique(program.text, [Fix(title, program.replace((node, change)), meaning="later")])


def _factor_text(story: Story, used: AdapterMergedUnscaled, node: ast.expr) -> str | None:
    """Return the name or ``self.`` attribute by which the program writes the factor, if it can be read at ``node`` too;
    None if it cannot, or if the program writes the factor in another way.
    """
    program, made = story.program, _scaling(story, used)
    source = program.at(story.span(made.step)) if made is not None else None
    if made is None or not isinstance(source, ast.BinOp) or not isinstance(source.op, ast.Mult):
        return None
    tensors = {story.name(o.label, made.step) for o in made.operands if o.label is not None}
    plain = [each for each in (source.left, source.right) if isinstance(each, ast.Name | ast.Attribute)]
    texts = [each for each in plain if program.segment(each) not in tensors]
    if len(texts) != 1:
        return None
    factor = texts[0]
    if isinstance(factor, ast.Name):
        return factor.id if _is_global(story, factor.id, node) else None
    same = _class(story, factor) is not None and _class(story, factor) is _class(story, node)
    return program.segment(factor) if same and program.segment(factor).startswith("self.") else None


def _scaling(story: Story, used: AdapterMergedUnscaled) -> Event | None:
    """Return the only call that multiplied or divided an operand of the sum by a number; None if there are several or
    none.
    """
    found = []
    for operand_ in used.event.operands:
        label, step = operand_.label, used.event.step
        for _ in range(FURTHER):
            made = made_by(story, label, step) if label is not None else None
            if made is None or made.name not in BETWEEN | SCALING.keys():
                break
            found += [made] if made.name in SCALING else []
            label, step = made.operands[0].label, made.step
    return found[0] if len(found) == 1 else None


def _class(story: Story, node: ast.AST) -> ast.ClassDef | None:
    return next((each for each in story.program.ancestors(node) if isinstance(each, ast.ClassDef)), None)


def _is_global(story: Story, name: str, node: ast.AST) -> bool:
    """Whether the program assigns the variable ``name`` outside of all functions, or in the function that contains
    ``node``.
    """
    stores = (n for n in story.program.nodes if isinstance(n, ast.Name) and n.id == name)
    around = (None, story.program.function(node))
    return any(isinstance(n.ctx, ast.Store) and story.program.function(n) in around for n in stores)


RULE = Rule(
    code="PL967",
    name="adapter-merged-unscaled",
    severity="warning",
    title=T(en="Trained matrices are merged into a weight without their factor", zh="训练过的矩阵合并到权重时丢了因子"),
    what=T(
        en="A layer adds a small correction to its result, scaled by a number. When the correction is merged into the "
        "weight the number is left out, so the merged layer is another one than the one that was trained. "
        "Merge the scaled correction: `weight += scale * (B @ A)`.",
        zh="一个层给自己的结果加上一个小修正，并乘以一个数。把修正合并到权重里时漏掉了这个数，于是合并后的层不再是训练过的那"
        "个层。请合并乘过的修正：`weight += scale * (B @ A)`。",
    ),
    why=T(
        en="A low-rank adapter computes `linear(x, W) + scale * x @ A.T @ B.T`. A product of matrices is linear, so "
        "this is `linear(x, W + scale * B @ A)`: the factor belongs in the sum. `W + B @ A` has the right shape too, "
        "and with the factor 4 it keeps a quarter of what was learned.",
        zh="低秩适配器计算的是 `linear(x, W) + scale * x @ A.T @ B.T`。矩阵乘法是线性的，所以它等于 "
        "`linear(x, W + scale * B @ A)`：因子要写进这个和里。`W + B @ A` 的形状也是对的，因子为 4 时它只留下所学内容的"
        "四分之一。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, goal = torch.randn(8, 4), torch.randn(8, 3)
layer = torch.nn.Linear(4, 3).requires_grad_(False)
a, b = torch.randn(2, 4, requires_grad=True), torch.zeros(3, 2, requires_grad=True)
opt = torch.optim.SGD([a, b], lr=0.1)
for _ in range(3):
    out = layer(x) + 4 * (x @ a.T @ b.T)  # used
    loss = (out - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((layer(x) + 4 * (x @ a.T @ b.T))[0])
    layer.weight += b @ a  # PL967
    print(layer(x)[0])
""",
    good="""import torch

torch.manual_seed(0)
x, goal = torch.randn(8, 4), torch.randn(8, 3)
layer = torch.nn.Linear(4, 3).requires_grad_(False)
a, b = torch.randn(2, 4, requires_grad=True), torch.zeros(3, 2, requires_grad=True)
opt = torch.optim.SGD([a, b], lr=0.1)
for _ in range(3):
    out = layer(x) + 4 * (x @ a.T @ b.T)
    loss = (out - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print((layer(x) + 4 * (x @ a.T @ b.T))[0])
    layer.weight += 4 * (b @ a)
    print(layer(x)[0])
""",
    find=find,
    traps=(
        Trap(
            "layer.weight += b @ a",
            "layer.weight.data += b @ a",
            T(
                en="`.data` writes the same numbers, and the factor is still missing.",
                zh="`.data` 写入的是同样的数，因子仍然缺少。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Linear.html",),
)
