"""PL454: a grid for ``grid_sample`` has the row before the column, and ``grid_sample`` reads the column first."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.ramps import SAME_AXES, STRETCHED, ramp
from pitfall_lab.rules.signals.sampling_grids import FURTHER, LAST, PLANE, JoinedGrid, joined_grid
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

TURNING = spellings("transpose") | {"T", "mT", "moveaxis", "movedim", "permute", "rot90", "t"}
"""Calls that change the order of the dimensions: the program may transpose the image on purpose."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that joins the coordinates of a grid for ``grid_sample`` in the order of the
    dimensions (row, column), which is the opposite of the order that ``grid_sample`` reads.

    Nothing if the program transposes the image or the result.
    """
    reported = set()
    for event in story.calls("grid_sampler"):
        joined = joined_grid(story, event)
        place = story.span(joined.event.step) if joined is not None else None
        if (
            joined is not None
            and place not in reported
            and _is_exchanged(story, joined)
            and not _is_turned(story, event)
        ):
            reported.add(place)
            yield _finding(story, event, joined)


def _is_exchanged(story: Story, joined: JoinedGrid) -> bool:
    """Whether the first coordinate varies along the first dimension, and so on, and all of them increase; False if
    their numbers are not known.
    """
    step = joined.event.step
    if any(ramp(story, part, step) != frozenset([axis]) for part, axis in zip(joined.parts, joined.axes, strict=True)):
        return False
    return all(_grows(story, part, step) for part in joined.parts)  # else turned or mirrored on purpose


def _grows(story: Story, label: str, step: int) -> bool:
    """Whether the numbers of a coordinate increase; False if neither its own numbers nor those it was computed from are
    known.

    The trace does not have the numbers of a large tensor, but has those of the vector from which it was expanded.
    """
    grows = True
    for _ in range(FURTHER):
        known = Elements(story, label, step)
        first, last = known.at((0,) * len(known.shape)), known.at(tuple(n - 1 for n in known.shape))
        if first is not None and last is not None:
            return first < last if grows else last < first
        event = made_by(story, label, step)
        storage = str((story.tensor(label, step) or {}).get("storage"))
        if event is None or story.writes(storage, event.step, step):
            return False
        given = [o.label for o in event.operands]
        ramps = [place for place, each in enumerate(given) if each is not None and ramp(story, each, event.step)]
        if event.name in ("meshgrid", "broadcast_tensors"):
            ramps = [event.results.index(label)] if label in event.results else []
        if len(ramps) != 1:
            return False
        sign = _sign(event, ramps[0])
        source = given[ramps[0]]
        if sign is None or source is None:
            return False
        grows, label, step = grows == (sign > 0), source, event.step
    return False


def _sign(event: Event, place: int) -> int | None:
    """Return 1 if a call's result increases with the operand at index ``place``, -1 if it decreases, None if that is
    not known.
    """
    name = event.name.strip("_")
    if name in ("neg", "negative"):
        return -1
    if name in spellings("sub", in_place=True):
        return 1 if place == 0 else -1
    if name == "rsub":
        return -1 if place == 0 else 1
    if name in spellings("div", "mul", in_place=True):
        factors = [o.text for number, o in enumerate(event.operands) if number != place and o.label is None]
        try:
            return 1 if float(factors[0]) > 0 else -1
        except (IndexError, ValueError):
            return None
    kept = (
        SAME_AXES
        | STRETCHED
        | spellings("clamp")
        | spellings("add", in_place=True)
        | {"meshgrid", "reshape", "unsqueeze", "view"}
    )
    return 1 if name in kept | {"getitem", "squeeze", "flatten", "permute", "transpose", "t"} else None


def _is_turned(story: Story, event: Event) -> bool:
    """Whether the result is later used with rows and columns transposed, or its height and width are those of the image
    swapped.
    """
    image, made = (story.shape(label, event.step) or () for label in (event.operands[0].label, event.results[0]))
    if image[2:] != made[2:] and image[2:] == made[:1:-1]:
        return True
    strides = ((story.tensor(event.results[0], event.step) or {}).get("stride") or [])[2:]
    for use in story.uses(event.results[0]):
        after = (
            ((story.tensor(use.results[0], use.step) or {}).get("stride") or [])
            if use.name in TURNING and use.results
            else []
        )
        order = [after.index(n) for n in strides if n in after]
        if order != sorted(order):
            return True
    return False


def _finding(story: Story, event: Event, joined: JoinedGrid) -> Finding:
    step = joined.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(event.step))
    axis = T(en="row", zh="行") if len(joined.parts) == PLANE else T(en="depth", zh="深度")
    written = _written(story, joined)
    first, last = (
        T(en=f" ({name.en})", zh=f"（{name.zh}）") if written else T(en="", zh="")
        for name in (shown(story, joined.event, part) for part in (joined.parts[0], joined.parts[-1]))
    )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} puts the {axis.en}{first.en} first and the column{last.en} last, but "
            f"`grid_sample` on {there.en} reads the column first: it samples the image with its axes exchanged.",
            zh=f"{here.zh}把{axis.zh}{first.zh}放在最前、列{last.zh}放在最后，而{there.zh}的 `grid_sample` 先读列："
            "采样时图像的轴被互换了。",
        ),
        T(
            en="The last axis of the grid holds (x, y), and (x, y, z) for volumes: x runs along the last axis of the "
            "image, the columns. An index `image[row, column]` has the opposite order.",
            zh="网格的最后一轴依次是 (x, y)，对体数据是 (x, y, z)：x 沿图像的最后一轴，即列的方向。下标 `image[行, "
            "列]` 的次序正好相反。",
        ),
        related=[story.related("used", event.step, T(en="the image is sampled here", zh="在这里对图像采样"))],
        fixes=_fixes(story, event, joined),
        facts=[Fact("coordinates", len(joined.parts), story.by(step))],
    )


def _fixes(story: Story, event: Event, joined: JoinedGrid) -> tuple[Fix, ...]:
    """Fixes that join the coordinates in the opposite order, or reverse their order where the grid is made or used.

    Empty if the program shows neither the joining call nor the grid's argument.
    """
    program, candidates = story.program, list[Fix]()
    node, call = (
        program.at(story.span(at)) if program.tree is not None else None for at in (joined.event.step, event.step)
    )
    if isinstance(node, ast.Call) and joined.event.name != "__setitem__":
        if parts := _written(story, joined):
            texts = [program.segment(each) for each in parts]
            edits = program.splice(
                *((program.place(each), text) for each, text in zip(parts, texts[::-1], strict=True))
            )
            text = ", ".join(texts[::-1])
            candidates.append(
                Fix(T(en=f"Put the column first: `{text}`", zh=f"把列放在最前：`{text}`"), edits, meaning="shape")
            )
        else:
            text = f"{program.segment(node)}.flip({joined.along})"
            candidates.append(Fix(_title(joined.along), program.replace((node, text)), meaning="shape"))
    given = [k.value for k in call.keywords if k.arg == "grid"] + call.args[1:2] if isinstance(call, ast.Call) else []
    for grid in given[:1]:
        text = f"{in_parentheses(program, grid)}.flip(-1)"
        candidates.append(Fix(_title(LAST), program.replace((grid, text)), meaning="shape"))
    return unique(program.text, candidates)


def _written(story: Story, joined: JoinedGrid) -> list[ast.expr]:
    """Return the expressions of the coordinates in the list or tuple that the program joins; empty if there is none."""
    node = story.program.at(story.span(joined.event.step))
    parts = node.args[0] if isinstance(node, ast.Call) and node.args else None
    return list(parts.elts) if isinstance(parts, ast.List | ast.Tuple) and len(parts.elts) == len(joined.parts) else []


def _title(axis: int) -> T:
    return T(en=f"Turn the order of the coordinates around: `.flip({axis})`", zh=f"把坐标的次序反过来：`.flip({axis})`")


RULE = Rule(
    code="PL454",
    name="grid-coordinates-exchanged",
    severity="warning",
    title=T(en="A grid for sampling has the row before the column", zh="采样用的网格把行放在了列之前"),
    what=T(
        en="A program makes a grid of places at which an image is to be sampled, with the row of each place first. "
        "`grid_sample` reads the column first, so it samples the image with its axes exchanged. Join the coordinates "
        "as (x, y): the column, then the row.",
        zh="程序构造了一张网格，写明在图像的哪些位置采样，并且把每个位置的行放在前面。而 `grid_sample` 先读列，于是采"
        "样时图像的轴被互换了。请按 (x, y) 的次序放置坐标：先列后行。",
    ),
    why=T(
        en="An element of an image is `image[row, column]`, and `torch.meshgrid(rows, columns, indexing='ij')` "
        "returns the two in that order. `F.grid_sample` follows the habit of graphics: the last axis of the grid "
        "holds x, then y, then z, and x runs along the last axis of the image. For a square image nothing but the "
        "picture shows the difference. `F.affine_grid` makes the right order.",
        zh="图像的元素写作 `image[行, 列]`，`torch.meshgrid(rows, columns, indexing='ij')` 也按这个次序返回。"
        "`F.grid_sample` 则沿用图形学的习惯：网格的最后一轴依次是 x、y、z，x 沿图像的最后一轴。对正方形的图像，只有画"
        "面本身能看出差别。`F.affine_grid` 生成的次序是正确的。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 1, 3, 3, requires_grad=True)
rows, columns = torch.meshgrid(torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 3), indexing="ij")
grid = torch.stack([rows, columns], dim=-1)  # PL454
same = F.grid_sample(image, grid[None], align_corners=True)  # used
same[..., 0].sum().backward()
print(image.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 1, 3, 3, requires_grad=True)
rows, columns = torch.meshgrid(torch.linspace(-1, 1, 3), torch.linspace(-1, 1, 3), indexing="ij")
grid = torch.stack([columns, rows], dim=-1)
same = F.grid_sample(image, grid[None], align_corners=True)
same[..., 0].sum().backward()
print(image.grad)
""",
    find=find,
    traps=(
        Trap(
            "align_corners=True",
            "align_corners=False",
            T(
                en="It moves the places by half a pixel; the order of the coordinates stays.",
                zh="这只是把位置移动半个像素，坐标的次序不变。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.meshgrid.html",
    ),
)
