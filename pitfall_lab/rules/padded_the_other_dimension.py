"""PL470: the amounts of a padding are given for height and width, and `pad` takes the first pair for the width."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that

Sizes = tuple[int, int]
"""A height and a width."""
MULTIPLES = (8, 16, 32, 64, 7, 12, 14)
"""Numbers of which networks for pictures want sizes to be multiples."""
ROUND = (8, 10)
"""Sizes that are both multiples of one of these were reached on purpose."""
CUTTING = operations_that("convolution") | {"max_pool2d", "avg_pool2d", "unfold"}
"""Calls that may cut a picture into pieces side by side."""
CHANNELS = (1, 3, 4)
"""The numbers of channels that pictures have."""
PAIRS, PAIR, LEAST, PIECE = 4, 2, 8, 4
HEIGHT = {"top", "bottom", "height", "vertical", "h", "hpad", "padh", "ph", "dh", "kh", "above", "below"}
"""Words in the names of amounts that belong to the height."""
WIDTH = {"left", "right", "width", "horizontal", "w", "wpad", "padw", "pw", "dw", "kw"}
"""Words in the names of amounts that belong to the width."""


@dataclass(frozen=True, slots=True)
class ExchangedPads:
    """``event`` is the call of ``pad`` (``Event``), ``sizes`` height and width before it, ``now`` those after it, and
    ``meant`` those if the two pairs of amounts are exchanged.

    ``said`` says in words what is reached by exchanging them; ``used`` is a call that needs the exchanged sizes, None
    if there is none.
    """

    event: Event
    sizes: Sizes
    now: Sizes
    meant: Sizes
    said: T
    used: Event | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that pads the last two dimensions by different amounts and reaches nothing by it,
    if the same amounts exchanged reach multiples of a number in both dimensions, a square, or a size that a later call
    divides into whole pieces, or if the names of the amounts say that they are exchanged.
    """
    reported = set()
    for event in story.calls("pad"):
        place = story.span(event.step)
        found = _exchanged(story, event) if event.error is None and place not in reported else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _amounts(event: Event) -> list[int]:
    """The amounts of a padding of the last two dimensions alone; empty for others, and where one is negative."""
    try:
        given = ast.literal_eval(argument(event, "pad", 1) or "()")
    except (SyntaxError, ValueError):
        return []
    amounts = list(given) if isinstance(given, tuple | list) else []
    fits = len(amounts) >= PAIRS and all(type(each) is int and each >= 0 for each in amounts)
    return amounts[:PAIRS] if fits and not any(amounts[PAIRS:]) else []


def _exchanged(story: Story, event: Event) -> ExchangedPads | None:
    amounts = _amounts(event)
    shape = story.shape(event.operands[0].label, event.step) if event.operands else None
    if not amounts or shape is None or len(shape) < PAIR or len(event.results) != 1:
        return None
    last, before = sum(amounts[:PAIR]), sum(amounts[PAIR:])
    height, width = shape[-2:]
    now, meant = (height + before, width + last), (height + last, width + before)
    if last == before or _is_reached(now) or _is_needed(story, event, now):
        return None
    if height != width:
        number = _multiple(now, meant, last, before)
        if number is not None:
            said = T(en=f"both are multiples of {number}", zh=f"两者都是 {number} 的倍数")
            return ExchangedPads(event, (height, width), now, meant, said)
        if _is_letterbox(shape, amounts, meant):
            return ExchangedPads(event, (height, width), now, meant, T(en="the result is square", zh="结果是正方形"))
        cut = _cut(story, event, now, meant)
        if cut is not None:
            use, piece = cut
            said = T(
                en=f"the pieces of {piece}×{piece} that {at_line(story, story.span(use.step)).en} takes cover it",
                zh=f"{at_line(story, story.span(use.step)).zh}取的 {piece}×{piece} 的块正好覆盖它",
            )
            return ExchangedPads(event, (height, width), now, meant, said, use)
    names = _names(story, event)
    if names is None:
        return None
    one, other = names
    said = T(en=f"`{one}` adds to the height and `{other}` to the width", zh=f"`{one}` 加到高上，`{other}` 加到宽上")
    return ExchangedPads(event, (height, width), now, meant, said)


def _is_reached(sizes: Sizes) -> bool:
    """Whether the sizes look intended: a square, or multiples of a round number (``ROUND``)."""
    return sizes[0] == sizes[1] or any(all(size % each == 0 for size in sizes) for each in ROUND)


def _is_needed(story: Story, event: Event, sizes: Sizes) -> bool:
    """Whether the padded tensor is used together with another one that has the same height and width."""
    padded = event.results[0]
    others = (
        story.shape(o.label, use.step) or ()
        for use in story.uses(padded)
        for o in use.operands
        if o.label not in (None, padded)
    )
    return any(shape[-2:] == sizes for shape in others)


def _multiple(now: Sizes, meant: Sizes, last: int, before: int) -> int | None:
    """The smallest of ``MULTIPLES`` of which both sizes are multiples if the pairs are exchanged (``meant``), and
    neither is one now; None if there is none.

    ``last`` and ``before``, the amounts added to the two dimensions, must be above 0 and below that number.
    """
    for number in MULTIPLES:
        wrong = all(size % number for size in now)
        if wrong and 0 < last < number and 0 < before < number and not any(size % number for size in meant):
            return number
    return None


def _is_letterbox(shape: tuple[int, ...], amounts: list[int], meant: Sizes) -> bool:
    """Whether a picture becomes a square if the pairs are exchanged, with each pair on both sides or on one."""
    is_picture = len(shape) == PAIR or shape[-3] in CHANNELS
    pairs = [(amounts[0], amounts[1]), (amounts[2], amounts[3])]
    even = all(abs(one - two) <= 1 or 0 in (one, two) for one, two in pairs)
    return is_picture and even and meant[0] == meant[1] and max(sum(amounts[:PAIR]), sum(amounts[PAIR:])) >= LEAST


def _cut(story: Story, event: Event, now: Sizes, meant: Sizes) -> tuple[Event, int] | None:
    """The call that cuts the padded tensor into pieces side by side, and the size of a piece, if the pieces fill both
    exchanged sizes and neither of the sizes ``now``; else None.
    """
    for use in story.uses(event.results[0]):
        piece = _piece(story, use) if use.name in CUTTING and use.error is None else 0
        if piece >= PIECE and not any(size % piece for size in meant) and all(size % piece for size in now):
            return use, piece
    return None


def _piece(story: Story, use: Event) -> int:
    """The size of the square pieces, side by side, that a call takes; 0 if they overlap, have gaps or padding, or are
    not square.
    """
    places = (2, 4) if use.name == "unfold" else (1, 2)
    kernel, stride = (argument(use, name, place) for name, place in zip(("kernel_size", "stride"), places, strict=True))
    if use.name in operations_that("convolution"):
        labels = [o.label for o in use.operands if o.label is not None]
        sides = set((story.shape(labels[1], use.step) or ())[-2:]) if len(labels) > 1 else set()
        stride = argument(use, "stride", 3)
    else:
        sides = _sides(kernel)
        stride = kernel if stride in (None, "None") and use.name != "unfold" else stride
    padding = argument(use, "padding") or "0"
    return next(iter(sides)) if len(sides) == 1 and _sides(stride) == sides and _sides(padding) <= {0} else 0


def _sides(text: str | None) -> set[int]:
    return {int(each) for each in re.findall(r"\d+", text or "")}


def _names(story: Story, event: Event) -> tuple[str, str] | None:
    """The amounts of the first and of the second pair as they are written, if the first has words for the height and
    the second for the width only; None if not, or if the program takes sizes as width and height.
    """
    program = story.program
    given = _written(program, story, event)
    if given is None or len(given.elts) < PAIRS or _is_width_first(program):
        return None
    words = [_words(each) for each in given.elts[:PAIRS]]
    first, second = words[0] | words[1], words[2] | words[3]
    if not (first & HEIGHT and second & WIDTH) or first & WIDTH or second & HEIGHT:
        return None
    one = next(i for i in (0, 1) if words[i] & HEIGHT)
    other = next(i for i in (2, 3) if words[i] & WIDTH)
    return program.segment(given.elts[one]), program.segment(given.elts[other])


def _words(node: ast.expr) -> set[str]:
    """The words in the names of which an amount is computed, without the names of tensors whose sizes are read."""
    owners = {id(each.value) for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name) and id(each) not in owners]
    names += [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    return {word for name in names for word in re.split(r"[_\d]+", name.lower()) if word}


def _is_width_first(program: Program) -> bool:
    """Whether the program unpacks a shape as width and height."""
    for node in program.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [each.id.lower() if isinstance(each, ast.Name) else "" for each in node.targets[0].elts]
            text = program.segment(node.value)
            is_shape = ".shape" in text or ".size(" in text
            if is_shape and len(names) >= PAIR and names[-2][:1] == "w" and names[-1][:1] == "h":
                return True
    return False


def _written(program: Program, story: Story, event: Event) -> ast.Tuple | ast.List | None:
    """The tuple or list of the amounts in the program's source, in the call or where its variable is assigned; None if
    it is not there.
    """
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) != "pad":
        return None
    given = next((word.value for word in node.keywords if word.arg == "pad"), None)
    given = node.args[1] if given is None and len(node.args) > 1 else given
    if isinstance(given, ast.Name):
        known = [
            each.value
            for each in program.nodes
            if isinstance(each, ast.Assign)
            and any(isinstance(to, ast.Name) and to.id == given.id for to in each.targets)
            and program.function(each) is program.function(node)
        ]
        given = known[0] if len(known) == 1 else None
    return given if isinstance(given, ast.Tuple | ast.List) else None


def _finding(story: Story, found: ExchangedPads) -> Finding:
    event, amounts = found.event, _amounts(found.event)
    here, picture = at_line(story, story.span(event.step)), expression(story, event.operands[0].label, event.step)
    sizes, now, meant = ("×".join(map(str, each)) for each in (found.sizes, found.now, found.meant))
    one, two = ", ".join(map(str, amounts[:PAIR])), ", ".join(map(str, amounts[PAIR:]))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} pads the last two dimensions of {picture.en} from {sizes} to {now}; with the two "
            f"pairs of amounts exchanged they become {meant}, and {found.said.en}.",
            zh=f"{here.zh}把 {picture.zh} 的最后两维从 {sizes} 填充到 {now}；如果交换这两对数，就是 {meant}，"
            f"{found.said.zh}。",
        ),
        T(
            en=f"`pad` begins with the last dimension: the first pair, {one}, is for left and right, and the second, "
            f"{two}, for top and bottom. Height comes first in a shape, and last in these numbers. Give the amounts "
            "as left, right, top, bottom.",
            zh=f"`pad` 从最后一维开始：第一对 {one} 用于左右，第二对 {two} 用于上下。形状里高在前，而在这些数里高在后。"
            "请按左、右、上、下的次序给出。",
        ),
        related=[]
        if found.used is None
        else [story.related("used", found.used.step, T(en="it is cut into pieces here", zh="在这里被切成块"))],
        fixes=_fixes(story, event),
        facts=[Fact("now", found.now, story.by(event.step)), Fact("exchanged", found.meant, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """A fix that exchanges the two pairs; empty if the program's source does not show them."""
    program = story.program
    given = _written(program, story, event)
    if given is None or len(given.elts) < PAIRS or any(isinstance(each, ast.Starred) for each in given.elts):
        return ()
    texts = [program.segment(each) for each in given.elts]
    edits = program.replace(*zip(given.elts[:PAIRS], [*texts[PAIR:PAIRS], *texts[:PAIR]], strict=True))
    new = ", ".join([*texts[PAIR:PAIRS], *texts[:PAIR]])
    title = T(en=f"Exchange the two pairs: `({new})`", zh=f"交换这两对数：`({new})`")
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL470",
    name="padded-the-other-dimension",
    severity="warning",
    title=T(en="The amounts for height and width of a padding are exchanged", zh="填充的高和宽的数量互换了"),
    what=T(
        en="A program pads pictures, and gives the amounts for top and bottom before those for left and right. The "
        "call takes the first pair for the last dimension, so height and width get each other's amounts. Nothing "
        "fails as long as any size fits. Give them as left, right, top, bottom.",
        zh="程序给图片做填充，把上下的数量写在左右的前面。而这个调用把第一对数用于最后一维，于是高和宽得到了对方的数量。"
        "只要任何大小都能用，就不会出错。请按左、右、上、下的次序给出。",
    ),
    why=T(
        en="`torch.nn.functional.pad` counts dimensions from the last one, so that two numbers pad the last dimension "
        "of any tensor. NumPy's `pad` and most other libraries begin with the first dimension. Convolutions take "
        "pictures of any size, and leave out a rest that does not fit their stride.",
        zh="`torch.nn.functional.pad` 从最后一维数起，这样两个数就能填充任何张量的最后一维。NumPy 的 `pad` 和大多数其他"
        "库从第一维开始。卷积接受任何大小的图片，而不够一个步长的余数会被丢掉。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 3, 30, 45)
bottom, right = -30 % 8, -45 % 8
padded = F.pad(image, (0, bottom, 0, right))  # PL470
patches = F.conv2d(padded, torch.ones(1, 3, 8, 8), stride=8)
print("share of the picture", patches.sum() / image.sum())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 3, 30, 45)
bottom, right = -30 % 8, -45 % 8
padded = F.pad(image, (0, right, 0, bottom))
patches = F.conv2d(padded, torch.ones(1, 3, 8, 8), stride=8)
print("share of the picture", patches.sum() / image.sum())
""",
    find=find,
    traps=(
        Trap(
            "(0, bottom, 0, right)",
            "(bottom, 0, right, 0)",
            T(
                en="The amounts go to the other side of the same dimension.",
                zh="数量移到了同一维的另一侧。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.pad.html",),
)
