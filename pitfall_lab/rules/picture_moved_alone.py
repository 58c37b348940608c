"""PL445: a picture is turned, flipped or rolled, and what belongs to it pixel by pixel is not."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.pixel_origins import CONVOLUTIONS, Index, Pixel, Pixels
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

COMPARES = (
    spellings("mul") | spellings("sub", exchanged=True) | operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss", "soft_margin_loss"}
)  # fmt: skip
"""Calls that compare two pictures pixel by pixel."""
AVERAGES = spellings("add", in_place=True) | {"lerp", "maximum", "stack"}
"""Calls that join what was computed from moved pictures: moving is undone there."""
SMALLEST, ROUNDS, ROWS, PAIR, ENOUGH = 4, 12, 8, 2, 0.5


@dataclass(frozen=True, slots=True)
class Example:
    """``event`` is the call (``Event``) that compares the answer to a picture with a target, or two answers to one
    picture.

    ``image`` and ``target`` are two compared pixels, followed back to where they came from (:class:`Pixel`). ``apart``:
    how far apart in their pictures the compared pixels lie, for each probe and axis.
    """

    event: Event
    image: Pixel
    target: Pixel
    apart: tuple[int, ...]

    @property
    def alone(self) -> tuple[Event, ...]:
        """The calls that moved (turned, flipped, rolled) one of the two compared pixels and not the other."""
        one, other = ([each.step for each in pixel.moved] for pixel in (self.image, self.target))
        return (
            *(each for each in self.image.moved if each.step not in other),
            *(each for each in self.target.moved if each.step not in one),
        )


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a loss to which a convolutional network's pictures are sometimes given moved
    (turned, flipped, rolled) without their targets, and for each average of answers to one picture of which only one
    was moved.
    """
    if not any(story.calls(*CONVOLUTIONS)) or not any(story.calls("flip", "fliplr", "flipud", "roll", "rot90")):
        return
    seen = defaultdict[Span | None, list[Example]](list)
    rounds, told = defaultdict[Span | None, int](int), set[Span | None]()
    for event in story.calls(*COMPARES, *AVERAGES):
        place = story.span(event.step)
        if place in told or rounds[place] >= ROUNDS or event.error is not None:
            continue
        if event.name in AVERAGES:
            example = _averaged(story, event)
            rounds[place] += 1
            if example is not None:
                told.add(place)
                yield _averaged_finding(story, example)
            continue
        examples = list(_compared(story, event))
        rounds[place] += bool(examples)
        seen[place] += examples
        blamed = _blamed(seen[place]) if any(each.alone for each in seen[place]) else None
        if blamed is not None:
            told.add(place)
            yield _finding(story, blamed)


def _compared(story: Story, event: Event) -> Iterator[Example]:
    """Yield the examples of a loss that compares a computed answer with a target, as far as pixels of both can be
    followed back; nothing if both or neither of the two require grad.
    """
    labels = [o.label for o in event.operands[:PAIR]]
    if len(labels) < PAIR or None in labels or labels[0] == labels[1]:
        return
    taught = [bool((story.tensor(label, event.step) or {}).get("requires_grad")) for label in labels]
    if taught.count(True) != 1:
        return
    guess, target = str(labels[taught.index(True)]), str(labels[taught.index(False)])
    one, other = story.shape(guess, event.step) or (), story.shape(target, event.step) or ()
    for axes in (2, 1):
        if len(one) <= axes or len(other) <= axes or one[-axes:] != other[-axes:] or one[0] != other[0]:
            continue
        if min(one[-axes:]) < SMALLEST:
            continue
        for row in range(min(one[0], ROWS)):
            example = _example(story, event, (guess, target), row, axes)
            if example is None:
                break
            if _belong(story, example):
                yield example


def _belong(story: Story, example: Example) -> bool:
    """Whether picture and target were one tensor before, or are rows with the same number of two tables."""
    image, target = example.image, example.target
    counts = [(story.shape(each.label) or (0,))[0] for each in (image, target)]
    rows = counts[0] == counts[1] > 1 and image.index[0] == target.index[0] and len(image.index) > PAIR
    return image.rows == target.rows and (rows or image.label == target.label)


def _example(story: Story, event: Event, labels: tuple[str, str], row: int, axes: int) -> Example | None:
    """Where some pixels of an answer and the pixels compared with them come from; None if that is not known of both, or
    if no convolution over as many axes computed the answer.
    """
    pixels, found = Pixels(story), list[tuple[Pixel, Pixel]]()
    shapes = [story.shape(label, event.step) or () for label in labels]
    for probe in _probes(shapes[0][-axes:]):
        pair = []
        for label, shape in zip(labels, shapes, strict=True):
            origin = pixels.origin(label, (row, *(0 for _ in shape[1 : len(shape) - axes]), *probe), event.step)
            if origin is None:
                return None
            pair.append(origin)
        found.append((pair[0], pair[1]))
    if not any(CONVOLUTIONS.get(made.name) == axes for made in _layers(story, found[0][0])):
        return None
    apart = _apart(found)
    return Example(event, found[0][0], found[0][1], apart) if apart is not None else None


def _probes(size: Index) -> list[Index]:
    near, far = tuple(n // 4 for n in size), tuple(3 * n // 4 for n in size)
    return [near, *(near[:axis] + far[axis : axis + 1] + near[axis + 1 :] for axis in range(len(size)))]


def _layers(story: Story, pixel: Pixel) -> Iterator[Event]:
    for weight in pixel.layers:
        yield from story.uses(weight)[:1] if not story.uses(weight)[0].name.endswith("_") else story.uses(weight)[:4]


def _apart(found: list[tuple[Pixel, Pixel]]) -> tuple[int, ...] | None:
    """The differences between the indices of the two pixels of each pair, along the axes along which the probes differ.

    None if the pairs are not of two tensors, or if these axes are not as many in both.
    """
    sides = [[pair[side] for pair in found] for side in range(PAIR)]
    axes = []
    for side in sides:
        if len({(pixel.label, len(pixel.index)) for pixel in side}) != 1:
            return None
        axes.append([axis for axis in range(len(side[0].index)) if len({p.index[axis] for p in side}) > 1])
    if len(axes[0]) != len(axes[1]) or not axes[0]:
        return None
    return tuple(one.index[a] - other.index[b] for one, other in found for a, b in zip(axes[0], axes[1], strict=True))


def _blamed(examples: list[Example]) -> Example | None:
    """An example in which the picture or the target was moved alone, if the examples of a loss differ in how far the
    two are apart; None if there is none.

    What is always moved in the same way may be stored in another way, and has to be moved.
    """
    differing = [one for one in examples if any(_is_elsewhere(one, other) for other in examples)]
    alone = [each for each in differing if each.alone]
    return next((each for each in alone if each.alone[0] in each.image.moved), alone[0] if alone else None)


def _is_elsewhere(one: Example, other: Example) -> bool:
    """Whether the compared pixels of one example are at another distance from each other than those of another
    example.
    """
    around = max(one.image.around, other.image.around) / PAIR + ENOUGH
    return len(one.apart) == len(other.apart) and any(
        abs(a - b) > around for a, b in zip(one.apart, other.apart, strict=True)
    )


def _averaged(story: Story, event: Event) -> Example | None:
    """Two answers of one network to one picture that are averaged although only one of them was moved; None if there
    are none.
    """
    labels = list(dict.fromkeys(o.label for o in event.operands if o.label is not None))
    shapes = [story.shape(label, event.step) or () for label in labels]
    if len(labels) < PAIR or len(shapes[0]) < PAIR + 1 or len(set(shapes)) > 1 or min(shapes[0][-PAIR:]) < SMALLEST:
        return None
    if event.name == "stack" and not any(
        use.name in ("mean", "sum", "median", "amax") for use in story.uses(event.results[0])
    ):
        return None
    for label in labels[1:]:
        found = _example(story, event, (labels[0], label), 0, PAIR)
        if found is None:
            continue
        same = (found.image.label, found.image.layers) == (found.target.label, found.target.layers)
        if (
            same
            and found.image.layers
            and found.alone
            and max(map(abs, found.apart)) > found.image.around / PAIR + ENOUGH
        ):
            return found
    return None


def _finding(story: Story, found: Example) -> Finding:
    mover, step = found.alone[0], found.event.step
    of_image = mover in found.image.moved
    span = story.span(mover.step)
    here, there = at_line(story, span), at_line(story, story.span(step))
    given = expression(story, mover.operands[0].label, mover.step)
    en = "the picture that a network is given, but not its target" if of_image else "the target, but not its picture"
    zh = "网络得到的图像，却没有同样移动它的目标" if of_image else "目标，却没有同样移动它的图像"
    return RULE.finding(
        span,
        mover.step,
        T(
            en=f"{capital(here.en)} moves the pixels of {given.en}, {en}: {there.en} then compares pixels of different "
            "places.",
            zh=f"{here.zh}移动了 {given.zh} 的像素，即{zh}：之后{there.zh}比较的是不同位置的像素。",
        ),
        RULE.why,
        related=[story.related("used", step, T(en="both are compared pixel by pixel here", zh="两者在这里逐像素比较"))],
        fixes=_fixes(story, found, mover, of_image),
        facts=[Fact("mover", mover.name, story.by(mover.step))],
    )


def _averaged_finding(story: Story, found: Example) -> Finding:
    mover, step = found.alone[0], found.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(mover.step))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} averages two answers of a network to one picture, but one of them is to the "
            f"picture as moved on {there.en}, and was not moved back: pixels of different places are averaged.",
            zh=f"{here.zh}把网络对同一图像的两个回答平均，而其中一个是对{there.zh}移动过的图像的回答，没有移回去：被平"
            "均的是不同位置的像素。",
        ),
        RULE.why,
        related=[story.related("operand", mover.step, T(en="the picture is moved here", zh="图像在这里被移动"))],
        fixes=_moved_back(story, found, mover),
        facts=[Fact("mover", mover.name, story.by(mover.step))],
    )


def _arguments(mover: Event, *, back: bool = False) -> str | None:
    """The source of the arguments of a call that moves a picture or, with ``back``, of the arguments that undo it; None
    if they are not known.
    """
    texts = [(o.name, o.text) for o in mover.operands[1:] if o.label is None]
    if not back or mover.name in ("flip", "fliplr", "flipud"):
        return ", ".join(f"{name}={text}" if name else text for name, text in texts)
    name, first = texts[0] if texts else ("", "1")
    try:
        value = ast.literal_eval(first)
    except (ValueError, SyntaxError):
        return None
    undone = tuple(-each for each in value) if isinstance(value, tuple | list) else -value
    return ", ".join([f"{name}={undone}" if name else str(undone), *(f"{n}={t}" if n else t for n, t in texts[1:])])


def _fixes(story: Story, found: Example, mover: Event, of_image: bool) -> tuple[Fix, ...]:
    """Fixes that move both tensors in one statement, in place of a statement that moved only one of them, or each by
    itself.
    """
    program, fixes = story.program, list[Fix]()
    torch = next((n for n in program.nodes if isinstance(n, ast.Name) and n.id == "torch"), None)
    left = found.target if of_image else found.image
    partners = {
        name for label in left.seen for name in (story.tensor(label) or {}).get("names") or () if name.isidentifier()
    }
    for label in (o.label for o in found.event.operands if o.label in left.seen):
        written = written_as(story, found.event, label)
        partners |= {n.id for n in ast.walk(written) if isinstance(n, ast.Name)} if written is not None else set()
    for statement in call_chain(story, mover):
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            continue
        target, value = statement.targets[0], statement.value
        function = program.function(statement)
        here = {n.id for n in program.nodes if isinstance(n, ast.Name) and program.function(n) is function}
        if isinstance(target, ast.Name):
            for partner in sorted(partners & here - {target.id}):
                fixes += _with_partner(story, statement, (target.id, partner), torch is not None)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            fixes += _together(story, statement, target, value)
    return unique(program.text, fixes)


def _with_partner(story: Story, statement: ast.Assign, names: tuple[str, str], torch: bool) -> Iterator[Fix]:
    """Yield fixes for ``x = x.flip(-1)`` that move the tensor with the other name too."""
    (name, partner), value = names, statement.value
    program = story.program
    used = [n for n in ast.walk(value) if isinstance(n, ast.Name) and n.id == name]
    if not used:
        return
    again = program.rewritten(value, *((n, partner) for n in used))
    drawn = any(isinstance(n, ast.Call) and isinstance(n.func, ast.Name) for n in ast.walk(value)) or isinstance(
        value, ast.IfExp
    )
    title = T(en=f"Move `{partner}` in the same way", zh=f"以同样方式移动 `{partner}`")
    if not drawn:
        text = f"{name}, {partner} = {program.segment(value)}, {again}"
        yield Fix(title, program.replace((statement, text)), meaning="later")
    if torch:
        both = f"torch.stack([{name}, {partner}])"
        text = f"{name}, {partner} = {program.rewritten(value, *((n, both) for n in used))}"
        yield Fix(title, program.replace((statement, text)), meaning="later")
    if drawn:
        return
    yield Fix(
        title, program.replace((statement, f"{program.segment(statement)}; {partner} = {again}")), meaning="later"
    )


def _together(story: Story, statement: ast.Assign, target: ast.Tuple, value: ast.Tuple) -> Iterator[Fix]:
    """Yield the fix for ``a, b = move(a), move(b)``: ``a, b = move(torch.stack([a, b]))``."""
    program = story.program
    calls = [each for each in value.elts if isinstance(each, ast.Call) and each.args]
    if len(calls) != PAIR or len(value.elts) != PAIR:
        return
    one, other = calls
    if program.segment(one.func) != program.segment(other.func) or len(one.args) != len(other.args):
        return
    both = f"torch.stack([{program.segment(one.args[0])}, {program.segment(other.args[0])}])"
    title = T(en="Move both with one draw", zh="用同一次抽取移动两者")
    text = f"{program.segment(target)} = {program.rewritten(one, (one.args[0], both))}"
    yield Fix(title, program.replace((statement, text)), meaning="later")


def _moved_back(story: Story, found: Example, mover: Event) -> tuple[Fix, ...]:
    """Fixes that move the answer back: where it is assigned to a name, or where it is an operand. Empty if no call
    undoes the move.
    """
    program, arguments = story.program, _arguments(mover, back=True)
    label = _operand(found, mover)
    node = written_as(story, found.event, label) if label is not None else None
    if arguments is None:
        return ()
    ways = list[ast.expr]()
    if isinstance(node, ast.Name):
        function = program.function(node)
        ways += [
            each.value for each in program.nodes
            if isinstance(each, ast.Assign) and program.function(each) is function
            and any(isinstance(t, ast.Name) and t.id == node.id for t in each.targets)
        ]  # fmt: skip
    elif node is not None:
        ways.append(node)
    # a list of answers, or a comprehension
    at = program.at(story.span(mover.step))
    while at is not None and isinstance(at, ast.expr):
        if isinstance(at, ast.Call) and at is not program.at(story.span(mover.step)):
            ways.append(at)
        at = program.parents.get(at)
    call = f".{mover.name}({arguments})"
    title = T(en=f"Move the answer back: `{call}`", zh=f"把回答移回去：`{call}`")
    return unique(
        program.text,
        [Fix(title, program.replace((way, f"{operand(program, way)}{call}")), meaning="later") for way in ways],
    )


def _operand(found: Example, mover: Event) -> str | None:
    """The label of the operand that was computed from the moved picture; None if no operand is known to be."""
    side = found.image if mover in found.image.moved else found.target
    return next((o.label for o in found.event.operands if o.label is not None and o.label in side.seen), None)


RULE = Rule(
    code="PL445",
    name="picture-moved-alone",
    severity="warning",
    title=T(
        en="A picture is turned or flipped, and what belongs to it pixel by pixel is not",
        zh="图像被旋转或翻转，而逐像素对应的东西没有",
    ),
    what=T(
        en="A program flips, turns or rolls some of its pictures, but not the mask with which the answer is compared "
        "pixel by pixel, or not the answer itself. So each pixel meets one of another place. Move both in the same "
        "way, with one random draw; move an answer back before it is averaged.",
        zh="程序翻转、旋转或滚动了一部分图像，却没有同样移动与回答逐像素比较的掩码，或者没有移动回答本身。于是每个像素遇"
        "到的是另一个位置的像素。请用同一次随机抽取以同样方式移动两者；平均之前先把回答移回去。",
    ),
    why=T(
        en="A convolution keeps pixels where they are: the answer to a flipped picture is flipped. `flip` of one "
        "tensor leaves every other one as it is, and picture and mask keep their shapes, so nothing is raised. "
        "A random flip in a function of its own draws once for each call: two calls move two tensors differently. "
        "Transforms that need the same draw for both get them stacked, or get its result.",
        zh="卷积让像素留在原位：翻转的图像得到的是翻转的回答。对一个张量 `flip` 不会改变别的张量，图像和掩码的形状都不"
        "变，所以不会报错。写在单独函数里的随机翻转每次调用各抽取一次：两次调用会以不同方式移动两个张量。需要同一次抽取"
        "的变换应当得到叠在一起的两者，或得到抽取的结果。",
    ),
    advice=T(
        en="move what belongs to the picture on {line} in the same way.",
        zh="{line}请以同样方式移动与图像对应的东西。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
mask = (torch.arange(8) < torch.randint(2, 6, (16, 1, 1, 1))).float().repeat(1, 1, 8, 1)
images = mask + 0.1 * torch.randn(16, 1, 8, 8)
net = torch.nn.Conv2d(1, 1, 3, padding=1)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for step in range(40):
    x, y = images, mask
    if step % 2:
        x = x.flip(-1)  # PL445
    loss = F.binary_cross_entropy_with_logits(net(x), y)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(((net(images) > 0) == (mask > 0)).float().mean())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
mask = (torch.arange(8) < torch.randint(2, 6, (16, 1, 1, 1))).float().repeat(1, 1, 8, 1)
images = mask + 0.1 * torch.randn(16, 1, 8, 8)
net = torch.nn.Conv2d(1, 1, 3, padding=1)
opt = torch.optim.Adam(net.parameters(), lr=0.1)
for step in range(40):
    x, y = images, mask
    if step % 2:
        x, y = x.flip(-1), y.flip(-1)
    loss = F.binary_cross_entropy_with_logits(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(((net(images) > 0) == (mask > 0)).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "x = x.flip(-1)",
            "y = y.flip(-1)",
            T(
                en="The mask is moved alone then, and the picture is not.",
                zh="这样移动的只是掩码，而图像没有移动。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.flip.html",),
)
