"""PL455: a grid for ``grid_sample`` has -1 and 1 at the centres of the outer pixels, and is read as if these were the
image's edges, or the other way round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.sampling_grids import grid_ends, places
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T

NEAR = 1e-5
"""How far a coordinate may be from the expected one, where -1 and 1 are the ends of the image."""


@dataclass(frozen=True, slots=True)
class OtherEdges:
    """``event`` is a ``grid_sampler`` call (``Event``) whose grid, apart from what was added to it, is that of all
    pixels of the image.

    ``corners`` is True if the grid was computed for ``align_corners=True``, False if for ``align_corners=False``; the
    call reads it the other way. ``size`` is the number of pixels along x, and ``ends`` are the first and the last
    number of x.
    """

    event: Event
    corners: bool
    size: int
    ends: tuple[float, float]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that samples an image with a grid that was computed for all of its pixels under
    the other value of ``align_corners``.

    Only for grids whose coordinates come from ``arange``, ``linspace`` or ``affine_grid``.
    """
    reported = set()
    for event in story.calls("grid_sampler"):
        place = story.span(event.step)
        if place not in reported and (found := _read_otherwise(story, event)) is not None:
            reported.add(place)
            yield _finding(story, found)


def _read_otherwise(story: Story, event: Event) -> OtherEdges | None:
    count = places(story, event)
    image = story.shape(event.operands[0].label, event.step) or ()
    made = (story.shape(event.results[0], event.step) or ()) if count else ()
    if not count or len(image) != count + 2 or made[2:] != image[2:] or min(image[2:]) <= 1:
        return None
    sizes = image[:1:-1]
    known = [grid_ends(story, event, place) for place in range(count)]
    ends = [each for each, n in zip(known, sizes, strict=True) if each is not None and each[2] == n]
    if len(ends) != count:
        return None
    is_read_at_corners = argument(event, "align_corners", 4) == "True"
    for corners in (True, False):
        meant = [1.0 if corners else 1 - 1 / n for n in sizes]
        if corners != is_read_at_corners and all(
            abs(first + end) < NEAR and abs(last - end) < NEAR
            for (first, last, _), end in zip(ends, meant, strict=True)
        ):
            return OtherEdges(event, corners, sizes[0], ends[0][:2])
    return None


def _finding(story: Story, found: OtherEdges) -> Finding:
    step = found.event.step
    here, n = at_line(story, story.span(step)), found.size
    first, last = (f"{end:.4g}" for end in found.ends)
    # where the grid's first and last place are read, in pixels from the middle of the first one
    read = [((end + 1) * n - 1) / 2 if found.corners else (end + 1) / 2 * (n - 1) for end in found.ends]
    shown = [f"{each:.3g}" for each in read]
    given = "align_corners=False" if found.corners else "align_corners=True"
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} does not sample the image at its own pixels: x runs from {first} to {last}, the "
            f"{n} pixels of a grid made for `align_corners={found.corners}`, and `{given}` reads these two places as "
            f"{shown[0]} and {shown[1]} instead of 0 and {n - 1}.",
            zh=f"{here.zh}并没有在图像自己的像素处采样：x 从 {first} 到 {last}，这是为 "
            f"`align_corners={found.corners}` 构造的 {n} 个像素的网格，而 `{given}` 把这两个位置读作 {shown[0]} 和 "
            f"{shown[1]}，而不是 0 和 {n - 1}。",
        ),
        T(
            en="With `align_corners=True`, -1 and 1 are the centres of the first and the last pixel: x = 2·i/(n - 1) "
            "- 1. With False they are the outer edges of these pixels: x = (2·i + 1)/n - 1. With the other formula "
            "even a grid without displacement blurs the image, and what is learned through it has an offset that grows "
            "towards the border.",
            zh="`align_corners=True` 时，-1 和 1 是首末像素的中心：x = 2·i/(n - 1) - 1；为 False 时，它们是这两个像"
            "素的外边缘：x = (2·i + 1)/n - 1。用错公式时，即使网格没有位移，图像也会变模糊；通过它学到的东西会有偏差，"
            "越靠近边界越大。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("coordinates", len(story.shape(found.event.operands[0].label, step) or ()) - 2, story.by(step))],
    )


def _fixes(story: Story, found: OtherEdges) -> tuple[Fix, ...]:
    """A fix that gives the call the ``align_corners`` for which its grid was computed; empty if the program shows no
    such call.
    """
    program, text = story.program, f"align_corners={found.corners}"
    call = program.at(story.span(found.event.step)) if program.tree is not None else None
    if not isinstance(call, ast.Call) or not call.args or any(word.arg is None for word in call.keywords):
        return ()
    given = [word.value for word in call.keywords if word.arg == "align_corners"] + call.args[4:5]
    last = [*call.args, *(word.value for word in call.keywords)][-1]
    edit = (given[0], str(found.corners)) if given else (last, f"{program.segment(last)}, {text}")
    title = T(en=f"Read the grid as it was made: `{text}`", zh=f"按网格的构造方式读取：`{text}`")
    return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])


RULE = Rule(
    code="PL455",
    name="grid-of-other-edges",
    severity="warning",
    title=T(
        en="A sampling grid and grid_sample disagree on where the image ends",
        zh="采样网格与 grid_sample 对图像边缘的约定不同",
    ),
    what=T(
        en="A program computes the places of all pixels between -1 and 1 and samples the image there, moved a little "
        "perhaps. The places were computed for one meaning of -1 and 1 and are read with the other, so that even "
        "without any movement each pixel is read beside its place. Use the `align_corners` that the formula of the "
        "grid is for.",
        zh="程序把所有像素的位置换算到 -1 与 1 之间，再（可能稍作移动后）在那里对图像采样。换算用的是 -1 和 1 的一种"
        "含义，读取用的却是另一种，于是即使没有移动，每个像素也会偏离原位。请使用与网格公式一致的 `align_corners`。",
    ),
    why=T(
        en="A place in an image has two natural scales. From centre to centre, n pixels are n - 1 steps wide "
        "(`align_corners=True`); from edge to edge they are n wide (`align_corners=False`, the default). "
        "`grid_sample` cannot see which one a grid was computed with. `F.affine_grid` has the same argument, and both "
        "calls need the same value. `torch.linspace(-1, 1, n)` and `2 * i / (n - 1) - 1` go with True.",
        zh="图像中的位置有两种自然的刻度：从中心到中心，n 个像素宽 n - 1 步（`align_corners=True`）；从边缘到边缘则宽 "
        "n（`align_corners=False`，即默认值）。`grid_sample` 无从知道网格是按哪种算的。`F.affine_grid` 也有同样的参"
        "数，两处必须一致。`torch.linspace(-1, 1, n)` 与 `2 * i / (n - 1) - 1` 对应 True。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 1, 4, 4)
shift = torch.zeros(1, 1, 1, 2, requires_grad=True)
line = torch.linspace(-1, 1, 4)
rows, columns = torch.meshgrid(line, line, indexing="ij")
grid = torch.stack([columns, rows], dim=-1)[None]
moved = F.grid_sample(image, grid + shift, align_corners=False)  # PL455
loss = F.mse_loss(moved, image)
loss.backward()
print(loss.item(), shift.grad)
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
image = torch.rand(1, 1, 4, 4)
shift = torch.zeros(1, 1, 1, 2, requires_grad=True)
line = torch.linspace(-1, 1, 4)
rows, columns = torch.meshgrid(line, line, indexing="ij")
grid = torch.stack([columns, rows], dim=-1)[None]
moved = F.grid_sample(image, grid + shift, align_corners=True)
loss = F.mse_loss(moved, image)
loss.backward()
print(loss.item(), shift.grad)
""",
    find=find,
    traps=(
        Trap(
            'indexing="ij"',
            'indexing="xy"',
            T(
                en="It exchanges the two coordinates; their scale stays.",
                zh="这会把两个坐标互换，刻度不变。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.grid_sample.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.affine_grid.html",
    ),
)
