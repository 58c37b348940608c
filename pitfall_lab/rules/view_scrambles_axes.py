"""PL407: ``view`` or ``reshape`` was used to exchange axes.

It only divides the same elements, in their order, into other rows.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, receiver
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat, snippet
from pitfall_lab.rules.signals.element_origins import unflat
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

Shape = tuple[int, ...]
LONGEST = 6
CUTTING = ("view", "reshape", "view_as", "reshape_as")
"""Calls that read the elements in their order, and cut them anew."""
LOOKS = {"view", "reshape", "flatten", "shape", "size", "dim", "t", "transpose", "permute", "contiguous", "detach",
         "data", "item", "tolist", "numpy", "clone", "to", "float", "double", "print", "stride", "numel", "grad",
         "requires_grad_", "backward"}  # fmt: skip
"""What does not tell the axes of its input apart, or only passes them on."""

ALONE = operations_that("dropout") | {"elu", "gelu", "leaky_relu", "relu", "sigmoid", "silu", "tanh"}
"""What changes each element by itself, on the way to the call that combines it with others."""
ON_THE_WAY = 4
LEAST = 3
BY_AXES = (
    operations_that("convolution") | operations_that("matrix_product") | operations_that("recurrent")
    | {"scaled_dot_product_attention", "batch_norm", "interpolate", "grid_sample", "avg_pool2d", "max_pool2d",
       "adaptive_avg_pool2d", "adaptive_max_pool2d", "avg_pool1d", "max_pool1d", "adaptive_avg_pool1d"}
)  # fmt: skip
"""Calls that read each axis of their input in its own way."""
BESIDE_IT = ALONE | operations_that("elementwise") | {"pad"}
"""What leaves each axis what it was, on the way to such a call."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call of ``view`` or ``reshape`` whose result has the old axes in another order, where
    its axes then meet those of another tensor.

    After the last backward, or without one, only where the other call is one of ``BY_AXES``, the last axis has another
    length, and there are more than two axes longer than 1. Not for constants.
    """
    trained = max((event.step for event in story.backwards()), default=-1)
    for event in story.calls(*CUTTING):
        if event.error is not None or not event.results or not event.operands:
            continue
        if story.said(event.step) not in ("", *CUTTING):
            continue  # torch's own: an attention joins its heads so
        shapes = story.shape(event.operands[0].label, event.step), story.shape(event.results[0], event.step)
        before, after = shapes
        turn = _turned(before, after) if before is not None and after is not None else None
        if before is None or after is None or turn is None or _is_constant(story, event):
            continue
        untrained = event.step > trained
        if untrained and (len(_long(before)) < LEAST or before[-1:] == after[-1:]):
            continue
        met = _read_by_axes(story, event) if untrained else _meets(story, event)
        if met is not None:
            yield _finding(story, event, met, turn)


@dataclass(frozen=True, slots=True)
class ViewScramblesAxes:
    """How exchanging axes, in place of ``view``, gives the requested sizes.

    ``cut`` is the shape before the exchange, in which axes may be split first; ``order`` the numbers of its axes in
    their new order. Axes that are joined afterwards are adjacent then. Where axes are split or joined, those of length
    1 are left out of both.
    """

    cut: Shape
    order: Shape


def _turned(before: Shape, after: Shape) -> ViewScramblesAxes | None:
    """The exchange of axes that the program probably intended: the new lengths are the old ones in another
    order; None if there is none.

    One of the shapes may have axes of the other shape joined: ``(N, T, heads * d)`` to ``(N, heads, T, d)``, ``(2, N,
    H)`` to ``(N, 2 * H)``. Axes of length 1 may be anywhere.
    """
    one, other = _long(before), _long(after)
    if 0 in one or len(before) > LONGEST or len(after) > LONGEST or _joined(one, other) or _joined(other, one):
        return None  # neighbours joined or split: nothing is exchanged
    if len(one) == len(other):
        orders = _orders(before, after) if sorted(one) == sorted(other) else []
        return ViewScramblesAxes(before, orders[0]) if orders else None
    if len(one) > len(other):
        orders = [order for order in _by_turns(one) if _joined(tuple(one[i] for i in order), other)]
        return ViewScramblesAxes(one, orders[0]) if orders else None
    orders = [order for order in _by_turns(other) if _joined(tuple(other[i] for i in order), one)]
    if not orders:
        return None
    cut = tuple(other[i] for i in orders[0])
    return ViewScramblesAxes(cut, tuple(orders[0].index(axis) for axis in range(len(other))))


def _joined(shape: Shape, fewer: Shape) -> bool:
    """Whether joining neighbouring axes of ``shape`` can give ``fewer``, or both are equal."""
    ends, joined = [1], [1]
    for lengths, found in ((shape, ends), (fewer, joined)):
        for length in lengths:
            found.append(found[-1] * length)
    return ends[-1] == joined[-1] and set(joined) <= set(ends)


def _by_turns(shape: Shape) -> list[Shape]:
    """The orders of the axes, sorted by how many pairs they exchange: an axis moved to the end comes
    before two that swap places.
    """
    return sorted(
        permutations(range(len(shape))), key=lambda order: sum(one > other for one, other in combinations(order, 2))
    )


def _long(shape: Shape) -> Shape:
    return tuple(n for n in shape if n != 1)


def _is_constant(story: Story, event: Event) -> bool:
    storage = (story.tensor(event.operands[0].label, event.step) or {}).get("storage")
    cells = (story.record("storages", storage, event.step) or {}).get("cells")
    return isinstance(cells, list) and len({value for _, value in flat(cells)}) <= 1


def _meets(story: Story, event: Event) -> Event | None:
    """The first call that combines this tensor with another one of more than one element, and
    so shows what its axes mean; a dropout or activation may come before.

    None if there is none.
    """
    pending = [event.results[0]]
    for _ in range(ON_THE_WAY):
        passed: list[str] = []
        for label in pending:
            for use in story.uses(label):
                others = [o.label for o in use.operands if o.label is not None and o.label != label]
                sizes = [story.shape(other, use.step) or () for other in others]
                if use.name not in LOOKS and any(any(n > 1 for n in shape) for shape in sizes):
                    return use
                if use.name in ALONE and use.error is None:
                    passed += use.results
        pending = passed
    return None


def _read_by_axes(story: Story, event: Event) -> Event | None:
    """The first of ``BY_AXES`` that reads the tensor, where needed after a few calls of ``BESIDE_IT``; None if there is
    none.
    """
    pending = [event.results[0]]
    for _ in range(ON_THE_WAY):
        uses = [use for label in pending for use in story.uses(label) if use.error is None]
        found = next((use for use in uses if use.name in BY_AXES and use.operands[0].label in pending), None)
        if found is not None:
            return found
        pending = [label for use in uses if use.name in BESIDE_IT for label in use.results]
    return None


def _orders(before: Shape, after: Shape) -> list[Shape]:
    """The ways of exchanging axes that give the same lengths: axes of one length in their old order, then
    those that move the fewest first.

    ``(N, 5, 5, 3)`` to ``(N, 3, 5, 5)`` is channels to the front, and not an image turned over as well.
    """

    def turned(order: Shape) -> int:
        return sum(before[one] == before[other] and one > other for one, other in combinations(order, 2))

    found = [
        order for order in permutations(range(len(before))) if _long(tuple(before[i] for i in order)) == _long(after)
    ]
    return sorted(found, key=lambda order: (turned(order), sum(place != axis for place, axis in enumerate(order))))


def _finding(story: Story, event: Event, met: Event, turn: ViewScramblesAxes) -> Finding:
    span, source = story.span(event.step), event.operands[0].label
    before, after = story.shape(source, event.step) or (), story.shape(event.results[0], event.step) or ()
    node = story.program.at(span) if story.program.tree else None
    given = receiver(node) if isinstance(node, ast.Call) and call_name(node) == event.name else None
    name = (
        T(en=f"`{given.id}`", zh=f"`{given.id}`")
        if isinstance(given, ast.Name)
        else called(story, source, None, event.step, (story.tensor(source, event.step) or {}).get("born"))
    )
    here, code = at_line(story, span), snippet(story, span)
    moved = _example(before, after, turn, name)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} reshapes {name.en} from {before} to {after} without moving an axis first: each row "
            "mixes numbers of several old ones.",
            zh=f"{here.zh}把 {name.zh} 从 {before} 变形为 {after}，却没有先移动轴：每一行都混进了原来好几行的数。",
        ),
        T(
            en=f"`{code}` reads the numbers in their old order, the last axis first, and fills the new shape "
            f"in the same order. Only the lengths look exchanged: {moved.en}. `transpose` and `permute` exchange "
            "axes.",
            zh=f"`{code}` 按原来的次序（最后一维走得最快）读出各数，再按同样的次序填进新的形状。看上去交换了的只是长"
            f"度：{moved.zh}。要交换轴，请用 `transpose` 或 `permute`。",
        ),
        related=[
            story.related(
                "made", event.step, T(en="reshaped here, in the order in memory", zh="在这里按内存中的次序变形")
            ),
            story.related("used", met.step, T(en="the mixed rows are used here", zh="混在一起的行在这里被使用")),
        ],
        fixes=_fixes(story, event, before, after, turn),
        facts=[Fact("before", list(before), story.by(event.step)), Fact("after", list(after), story.by(event.step))],
    )


def _example(before: Shape, after: Shape, turn: ViewScramblesAxes, name: T) -> T:
    """Half a sentence with the first element of the result that is another one than after an exchange of the axes."""
    exchanged = tuple(turn.cut[axis] for axis in turn.order)
    for at in range(math.prod(after)):
        index = unflat(at, exchanged)
        source = tuple(index[turn.order.index(axis)] for axis in range(len(turn.cut)))
        meant = sum(i * math.prod(turn.cut[axis + 1 :]) for axis, i in enumerate(source))
        if meant != at:
            new, old, other = (list(unflat(*each)) for each in ((at, after), (at, before), (meant, before)))
            return T(
                en=f"element {new} of the result is now element {old} of {name.en}, and would be {other} with the axes "
                "exchanged",
                zh=f"结果的元素 {new} 现在是 {name.zh} 的元素 {old}，交换轴后则应是 {other}",
            )
    return T(en="the elements stay where they are", zh="各元素的位置并没有变")


def _fixes(story: Story, event: Event, before: Shape, after: Shape, turn: ViewScramblesAxes) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree else None
    if not isinstance(node, ast.Call) or call_name(node) != event.name or (tensor := receiver(node)) is None:
        return ()
    moved = [axis for axis, place in enumerate(turn.order) if axis != place]
    how = f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute({', '.join(map(str, turn.order))})"
    said = [
        program.segment(arg) for arg in node.args if not isinstance(arg, ast.Starred)
    ]  # the program's own words for the lengths
    lengths = said if len(said) == len(after) == len(node.args) else list(map(str, after))
    new = operand(program, tensor)
    if turn.cut != before:
        cut = list(map(str, turn.cut))
        if tuple(turn.cut[axis] for axis in turn.order) == after:
            cut = [lengths[turn.order.index(axis)] for axis in range(len(cut))]
        new += f".reshape({', '.join(cut)})"
    new += ".t()" if len(turn.order) == 2 else f".{how}"
    if tuple(turn.cut[axis] for axis in turn.order) != after:
        new += f".reshape({', '.join(lengths)})"
    title = T(en=f"Exchange the axes: `{new}`", zh=f"交换轴：`{new}`")
    fixes = [Fix(title, program.replace((node, new)), meaning="shape")]
    if any(
        use.name == "view" for label in event.results for use in story.uses(label)
    ):  # which needs the numbers in their new order
        title = T(en=f"{title.en}, laid out anew", zh=f"{title.zh}，并重新排列")
        fixes.append(Fix(title, program.replace((node, f"{new}.contiguous()")), meaning="shape"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL407",
    name="view-scrambles-axes",
    severity="warning",
    title=T(
        en="A view was used where axes were to be exchanged, and mixed the numbers",
        zh="该交换轴的地方用了 view，数被混在一起",
    ),
    what=T(
        en="A program needed rows and columns exchanged, and called `view` or `reshape` with the exchanged lengths. "
        "The shape fits and nothing complains, but the numbers were only cut into other pieces: each new row holds "
        "parts of several old ones. Use `t()`, `transpose` or `permute`.",
        zh="程序需要交换行和列，却用 `view` 或 `reshape` 要求交换后的长度。形状合适，也没有报错，但各数只是被切成了别"
        "的段：每个新行都含有好几个旧行的部分。请用 `t()`、`transpose` 或 `permute`。",
    ),
    why=T(
        en="The elements of a tensor have an order: the last axis runs fastest. `view` and `reshape` keep this order "
        "and only choose other lengths; that is right for joining axes, `(N, 2, 3)` to `(N, 6)`, or splitting one. "
        "Exchanging two axes changes the order. `transpose(i, j)` does it by exchanging two *strides*, the numbers of "
        "elements that a step along an axis skips, and copies nothing. Images `(H, W, C)` to `(C, H, W)` and "
        "sequences `(N, T, F)` to `(T, N, F)` need `permute` and `transpose`; attention's heads are split off at the "
        "last axis, `(N, T, heads, d)`, and then exchanged with `T`.",
        zh="张量的元素有一个次序：最后一维走得最快。`view` 和 `reshape` 保持这个次序，只选择别的长度；用来合并轴"
        "（`(N, 2, 3)` 变 `(N, 6)`）或拆分轴是对的。交换两个轴则会改变次序。`transpose(i, j)` 通过交换两个*步幅*（沿一"
        "个轴走一步跨过的元素个数）来做到，不复制任何东西。图像 `(H, W, C)` 变 `(C, H, W)`、序列 `(N, T, F)` 变 `(T, "
        "N, F)` 需要 `permute` 和 `transpose`；注意力的多个头要先在原位拆出 `(N, T, heads, d)`，再与 `T` 交换。",
    ),
    bad="""import torch

x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
w = torch.ones(2, requires_grad=True)
turned = x.view(3, 2)  # PL407 made
loss = (turned @ w).square().sum()  # used
loss.backward()
print(turned, w.grad)
""",
    good="""import torch

x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
w = torch.ones(2, requires_grad=True)
turned = x.t()
loss = (turned @ w).square().sum()
loss.backward()
print(turned, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "x.view(3, 2)",
            "x.contiguous().reshape(3, 2)",
            T(
                en="`reshape` keeps the order just as `view` does; the two differ only in whether they may copy.",
                zh="`reshape` 与 `view` 一样保持次序；两者的区别只在于是否可以复制。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.permute.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.reshape.html",
    ),
)
