"""PL910: what belongs to padding was set to 0, and the mean then divided by the number of all positions, padding
included.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import name_of_tokens, padded, padding_number, rows_of
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")
COUNTS = {"sum", "mean", "count_nonzero"}
"""Calls that count the positions that are no padding."""
TABLE = 2


@dataclass(frozen=True, slots=True)
class Diluted:
    """``product`` is the call (``Event``) that multiplied errors by the mask labelled ``mask``; ``mean`` is the call
    that averaged the products over all positions.

    Of the ``shown`` elements of the mask that are known, ``kept`` are 1.
    """

    product: Event
    mean: Event
    mask: str
    kept: int
    shown: int


@dataclass(frozen=True, slots=True)
class Pooled:
    """``mean`` is the call (``Event``) that averaged vectors over the positions of tokens; ``lookup`` is the call of
    the embedding that looked up these vectors.

    The tokens at the indices ``places`` are padding, whose number is ``number``.
    """

    mean: Event
    lookup: Event
    number: int
    places: list[Index]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that multiplies errors by a mask, so that those of padding are 0 in a mean on the
    way to a backward, and one for each line with a trained mean over the vectors of tokens of which some are padding.

    Not where the program counts the ones of the mask.
    """
    reported = set()
    for product in story.calls(*PRODUCTS) if story.backwards() else ():
        place = story.span(product.step)
        if place not in reported and product.error is None and (found := _diluted(story, product)) is not None:
            reported.add(place)
            yield _finding(story, found)
    for mean in story.calls("mean") if story.backwards() else ():
        place = story.span(mean.step)
        if place not in reported and mean.error is None and (pooled := _pooled(story, mean)) is not None:
            reported.add(place)
            yield _of_pooled(story, pooled)


def _diluted(story: Story, product: Event) -> Diluted | None:
    labels = [o.label for o in product.operands if o.label is not None]
    if len(labels) != TABLE or not product.results:
        return None
    records = [story.tensor(label, product.step) or {} for label in labels]
    trained = [bool(record.get("requires_grad")) for record in records]
    if sorted(trained) != [False, True]:
        return None
    mask = labels[trained.index(False)]
    shape, own = (story.shape(each, product.step) or () for each in (product.results[0], mask))
    flat = own[:-1] if len(own) == TABLE + 1 and own[-1] == 1 else own
    mean = next((use for use in story.uses(product.results[0]) if _is_mean(use, len(shape))), None)
    if (
        mean is None
        or len(flat) != TABLE
        or min(flat) < TABLE
        or shape[:TABLE] != flat
        or len(shape) not in (TABLE, len(own))
    ):
        return None
    node = story.record("nodes", (story.tensor(mean.results[0], mean.step) or {}).get("grad_fn")) or {}
    if node.get("ran") is None or _is_counted(story, mask):
        return None
    known = {index[:TABLE]: value for index, value in Elements(story, mask, product.step, answers=True).known()}
    if not _is_padding(known):
        return None
    return Diluted(product, mean, mask, sum(value == 1 for value in known.values()), len(known))


def _is_mean(use: Event, count: int) -> bool:
    """Whether the call is a mean over all elements or, of a tensor with three axes (``count``), over axis 1, that of
    the positions.
    """
    axis = whole(argument(use, "dim", 1))
    everything = len(use.operands) == 1
    return (
        use.name == "mean"
        and use.error is None
        and (everything or (count == TABLE + 1 and axis is not None and axis % count == 1))
    )


def _pooled(story: Story, mean: Event) -> Pooled | None:
    """The data of the finding if ``mean`` is trained and averages over the positions of looked-up tokens, some of them
    padding.

    None if it does not, or if the mean's operand was multiplied by a mask that the program also counts.
    """
    label = mean.operands[0].label if mean.operands else None
    shape, axis = story.shape(label, mean.step) or (), whole(argument(mean, "dim", 1))
    node = (
        story.record("nodes", (story.tensor(mean.results[0], mean.step) or {}).get("grad_fn")) if mean.results else None
    )
    if axis is None or len(shape) != TABLE + 1 or axis % len(shape) == TABLE or (node or {}).get("ran") is None:
        return None
    made = story.event((story.tensor(label, mean.step) or {}).get("born"))
    if (
        made is not None
        and made.name in PRODUCTS
        and any(o.label is not None and _is_counted(story, o.label) for o in made.operands)
    ):
        return None  # the share of the real places is taken too, and perhaps divided by
    for lookup in rows_of(story, label, mean.step).lookups:
        tokens = story.shape(lookup.operands[0].label, lookup.step)
        number = padding_number(story, lookup) if lookup.name == "embedding" and tokens == shape[:TABLE] else None
        places = (
            padded(story, lookup.operands[0].label, lookup.step, number, axis % len(shape))
            if number is not None
            else []
        )
        if number is not None and places:
            return Pooled(mean, lookup, number, places)
    return None


def _is_counted(story: Story, mask: str) -> bool:
    """Whether the program counts the mask, or another tensor on the same storage: then it divides by that count,
    perhaps later.
    """
    storage = (story.tensor(mask) or {}).get("storage")
    labels = [label for label, _ in story.tensors_on(storage)]
    return any(use.name in COUNTS for label in labels for use in story.uses(label))


def _is_padding(known: dict[tuple[int, ...], float]) -> bool:
    """Whether the known values of each row are ones, then zeros (if any), and there are at least two rows and not all
    are alike.
    """
    if set(known.values()) != {0, 1}:
        return False
    rows: dict[int, dict[int, float]] = {}
    for (row, column), value in known.items():
        rows.setdefault(row, {})[column] = value
    patterns = [[value for _, value in sorted(each.items())] for each in rows.values()]
    falling = all(values == sorted(values, reverse=True) for values in patterns)
    begins = all(each.get(0, 1) == 1 for each in rows.values())
    return falling and begins and len(rows) >= TABLE and len({tuple(values) for values in patterns}) > 1


def _finding(story: Story, found: Diluted) -> Finding:
    span = story.span(found.mean.step)
    here, mask = at_line(story, span), expression(story, found.mask, found.product.step)
    count = math.prod(story.shape(found.mask, found.product.step) or ())
    return RULE.finding(
        span,
        found.mean.step,
        T(
            en=f"{capital(here.en)} divides by all {count} places, although {mask.en} has made those of padding 0: "
            "the mean is too small, and the smaller the more padding a batch has.",
            zh=f"{here.zh}除以全部 {count} 个位置，而 {mask.zh} 已把填充处变成 0：平均值偏小，批次中的填充越多就越小。",
        ),
        T(
            en="Multiplying by a mask of ones and zeros takes padding out of the sum, but `mean()` still counts each "
            "place. So a batch of short sequences weighs less than one of long sequences, and the loss depends on the "
            "longest sequence that happens to be in it. Divide the sum by the number of real places.",
            zh="乘以由 1 与 0 组成的掩码会把填充从总和中去掉，但 `mean()` 仍然计入每个位置。于是短序列的批次比长序列的"
            "批次权重更小，损失取决于碰巧在其中的最长序列。请用总和除以真实位置的个数。",
        ),
        related=[story.related("used", found.product.step, T(en="padding is made 0 here", zh="在这里把填充变成 0"))],
        fixes=_fixes(story, found),
        facts=[Fact("places", count, story.by(found.mean.step))],
    )


def _of_pooled(story: Story, found: Pooled) -> Finding:
    mean, lookup = found.mean, found.lookup
    span = story.span(mean.step)
    here, there, tokens = (
        at_line(story, span),
        at_line(story, story.span(lookup.step)),
        expression(story, lookup.operands[0].label, lookup.step),
    )
    place = ", ".join(map(str, found.places[-1]))
    return RULE.finding(
        span,
        mean.step,
        T(
            en=f"{capital(here.en)} takes the mean over all positions, those of padding as well: {tokens.en} is "
            f"{found.number} at [{place}], for instance.",
            zh=f"{here.zh}对所有位置取平均，连填充的位置也算在内：例如 {tokens.zh} 在 [{place}] 处是 {found.number}。",
        ),
        T(
            en=f"{capital(there.en)} looks up tokens of which {found.number} is padding. The mean divides by the "
            "length of the table, so a short text becomes the smaller, and the more like padding, the longer its "
            "neighbours are. Add up the real positions only, and divide by their number.",
            zh=f"{there.zh}查的词里，{found.number} 是填充。平均值除以表的长度，于是旁边的文本越长，短文本的结果就越"
            "小、越像填充。请只把真实的位置相加，再除以它们的个数。",
        ),
        related=[story.related("made", lookup.step, T(en="the tokens are looked up here", zh="在这里查词"))],
        fixes=_pooled_fixes(story, found),
        facts=[Fact("padding", found.number, story.by(lookup.step))],
    )


def _pooled_fixes(story: Story, found: Pooled) -> tuple[Fix, ...]:
    """Fixes that replace the mean by the sum over real positions, divided by their number.

    Empty if the tokens have no name there, or if the mean is not called as a method.
    """
    program, mean = story.program, found.mean
    node = program.at(story.span(mean.step)) if program.tree is not None else None
    name, statement = name_of_tokens(story, found.lookup, mean), program.statement(node)
    axis = whole(argument(mean, "dim", 1))
    if name is None or not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or statement is None:
        return ()
    value = written_as(story, mean, mean.operands[0].label)
    if value is None:
        return ()
    mask, kept = _mask_in(story, mean), operand(program, value)
    if mask is None:
        mask = f"({name} != {found.number}).unsqueeze(-1)"
        kept = f"({kept} * {mask})"
    text = f"{kept}.sum({axis}) / {mask}.sum({axis})"
    title = T(en="Divide by the number of places that count", zh="除以计入的位置个数")
    around = program.parents.get(node)
    alone = (isinstance(around, ast.Assign | ast.Return)) or (isinstance(around, ast.Call) and node in around.args)
    return unique(program.text, [Fix(title, program.replace((node, text if alone else f"({text})")), meaning="shape")])


def _mask_in(story: Story, mean: Event) -> str | None:
    """The source of the mask that multiplies the argument of the mean; None if there is none."""
    made = story.event((story.tensor(mean.operands[0].label, mean.step) or {}).get("born"))
    if (
        made is None
        or made.name not in PRODUCTS
        or made.span is None
        or mean.span is None
        or made.span.line != mean.span.line
    ):
        return None
    masks = [
        o.label for o in made.operands if o.label is not None and (story.shape(o.label, made.step) or (0,))[-1] == 1
    ]
    node = written_as(story, made, masks[0]) if len(masks) == 1 else None
    return operand(story.program, node) if node is not None else None


def _fixes(story: Story, found: Diluted) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(found.mean.step)) if program.tree is not None else None
    mask = written_as(story, found.product, found.mask) if node is not None else None
    if not isinstance(node, ast.Call) or mask is None or not isinstance(node.func, ast.Attribute):
        return ()
    value = written_as(story, found.mean, found.mean.operands[0].label)
    axis = argument(found.mean, "dim", 1) or ""
    if value is None:
        return ()
    features = axis == "" and len(story.shape(found.product.results[0], found.product.step) or ()) > TABLE
    times = f" / {operand(program, value)}.size(-1)" if features else ""
    text = f"({operand(program, value)}.sum({axis}) / {operand(program, mask)}.sum({axis}){times})"
    statement = program.parents.get(node)
    alone = isinstance(statement, ast.Assign | ast.Return)
    title = T(en="Divide by the number of places that count", zh="除以计入的位置个数")
    return unique(program.text, [Fix(title, program.replace((node, text[1:-1] if alone else text)), meaning="shape")])


RULE = Rule(
    code="PL910",
    name="mean-over-padding",
    severity="warning",
    title=T(en="A mean divides by the places of padding as well", zh="平均值把填充的位置也算进了除数"),
    what=T(
        en="A program sets the errors at the places of padding to 0 and takes the mean of everything, so the "
        "padding still counts as errors of 0. Divide the sum by the number of real places: `(error * "
        "mask).sum() / mask.sum()`.",
        zh="程序把填充处的误差设为 0，然后对所有位置取平均，于是填充仍作为 0 误差计入。请用总和除以真实位置的个数："
        "`(error * mask).sum() / mask.sum()`。",
    ),
    why=T(
        en="Sequences of different lengths are filled up to one table. `mean()` divides by the number of elements of "
        "the tensor, and uses no mask. The gradient of each real place is divided by the same number, so its size "
        "changes with the padding, from batch to batch: the learning rate does, in effect. `cross_entropy(..., "
        "ignore_index=…)` divides by the number of targets that count.",
        zh="不同长度的序列被补齐成一张表。`mean()` 除以张量的元素个数，它不知道掩码。每个真实位置的梯度也除以这个数，"
        "所以其大小随填充逐批变化，相当于学习率在变。`cross_entropy(..., ignore_index=…)` 会除以计入的目标个数。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(3, 4, 2), torch.randn(3, 4)
lengths = torch.tensor([4, 2, 1])
mask = (torch.arange(4) < lengths[:, None]).float()
for _ in range(2):
    error = (net(x).squeeze(-1) - y) ** 2
    kept = error * mask  # used
    loss = kept.mean()  # PL910
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(3, 4, 2), torch.randn(3, 4)
lengths = torch.tensor([4, 2, 1])
mask = (torch.arange(4) < lengths[:, None]).float()
for _ in range(2):
    error = (net(x).squeeze(-1) - y) ** 2
    kept = error * mask
    loss = kept.sum() / mask.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "kept.mean()",
            "kept.mean(1).mean()",
            T(
                en="A mean of means divides by the same number in the end: all places.",
                zh="平均的平均最终除以同样的数：全部位置。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.mean.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html",
    ),
)
