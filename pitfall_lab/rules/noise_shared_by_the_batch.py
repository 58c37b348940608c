"""PL942: a sample of a distribution per example was made with one noise vector, which
broadcasting gave to the whole batch.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

DRAWS = ("randn", "normal", "randn_like", "normal_")
"""Calls that draw normal numbers."""
PRODUCTS, SUMS = spellings("addcmul", "mul"), spellings("add")
SAME = {"to", "float", "double", "unsqueeze", "view", "reshape", "expand", "expand_as", "clone"}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
ROUNDS = 2
FEWEST = 2


@dataclass(frozen=True, slots=True)
class SharedNoise:
    """``draw`` is the call (``Event``) that drew noise for one example; ``scaled`` multiplied it by a learned
    deviation, and ``added`` added the product to the means of all ``rows`` examples.

    ``mean`` is the label of the tensor of the means.
    """

    draw: Event
    scaled: Event
    added: Event
    mean: str
    rows: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws noise for one example, multiplied by a learned deviation, which
    broadcasting then adds to the means of at least ``FEWEST`` examples.

    Only if it does so at least ``ROUNDS`` times and an optimizer stepped.
    """
    places: dict[object, list[SharedNoise]] = defaultdict(list)
    for draw in story.calls(*DRAWS) if story.trace.optimizer_steps else ():
        if draw.results and draw.error is None and (found := _shared(story, draw)) is not None:
            places[story.span(draw.step)].append(found)
    for rounds in places.values():
        if len(rounds) >= ROUNDS:
            yield _finding(story, rounds[0], len(rounds))


def _shared(story: Story, draw: Event) -> SharedNoise | None:
    """The data of the finding if the noise of ``draw`` is multiplied with a computed deviation and the
    product added to a mean; else None.

    The mean must be of several examples, and the noise be of one.
    """
    noise = {draw.results[0]}
    record = story.tensor(draw.results[0], draw.step) or {}
    if record.get("requires_grad") or record.get("kind") == "parameter":
        return None
    size = len(_without_ones(record.get("shape") or ()))
    pending = [draw.results[0]]
    while pending:
        for use in story.uses(pending.pop()):
            if use.error is not None or not use.results or use.step <= draw.step:
                continue
            if use.name in PRODUCTS and any(
                _is_computed(story, o.label, use.step) for o in use.operands if o.label not in noise
            ):
                found = _added(story, draw, use, size)
                if found is not None:
                    return found
            elif (
                use.name in SAME
                and use.results[0] not in noise
                and len(_without_ones(story.shape(use.results[0], use.step) or ())) == size
            ):
                noise.add(use.results[0])
                pending.append(use.results[0])
    return None


def _added(story: Story, draw: Event, scaled: Event, size: int) -> SharedNoise | None:
    """The data of the finding if the scaled noise is added to a computed mean that has one more
    axis, of examples; else None.

    The noise may have that axis with length 1. ``size``: the number of axes, without those of
    length 1, of one example's noise.
    """
    for use in story.uses(scaled.results[0]):
        if use.name not in SUMS or use.error is not None:
            continue
        for operand in use.operands:
            shape = story.shape(operand.label, use.step) if operand.label not in (None, scaled.results[0]) else None
            if shape and len(shape) > 1 and shape[0] >= FEWEST and _is_computed(story, operand.label, use.step):
                own = story.shape(draw.results[0], draw.step) or ()
                shared = len(own) < len(shape) or own[0] == 1
                if (
                    shared
                    and len(_without_ones(shape)) > size
                    and _without_ones(own) == _without_ones(shape[-len(own) :])[-size:]
                ):
                    return SharedNoise(draw, scaled, use, str(operand.label), shape[0])
    return None


def _without_ones(shape: tuple[int, ...] | list[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _is_computed(story: Story, label: str | None, step: int) -> bool:
    """Whether the tensor requires grad."""
    return bool((story.tensor(label, step) or {}).get("requires_grad"))


def _finding(story: Story, found: SharedNoise, count: int) -> Finding:
    draw = found.draw
    here, there = at_line(story, story.span(draw.step)), at_line(story, story.span(found.added.step))
    mean = expression(story, found.mean, found.added.step)
    shape = "×".join(map(str, story.shape(draw.results[0], draw.step) or ())) or "1"
    return RULE.finding(
        story.span(draw.step),
        draw.step,
        T(
            en=f"{capital(here.en)} draws noise of shape {shape}, and {there.en} adds it to {mean.en}: all "
            f"{found.rows} examples get the same noise.",
            zh=f"{here.zh}抽取形状为 {shape} 的噪声，而{there.zh}把它加到 {mean.zh} 上：全部 {found.rows} "
            "个样本得到同样的噪声。",
        ),
        T(
            en="The mean and the deviation belong to each example, and so should the sample. Broadcasting repeats the "
            "one vector for all rows, without a word. The samples of a batch are then not independent: the loss sees "
            "one draw where it should average over many, and its gradient is much noisier. `torch.randn_like` takes "
            "the shape of what the noise is for.",
            zh="均值与标准差属于每个样本，采样也应当如此。广播会不声不响地为所有行重复这一个向量。于是一个批次里的"
            "样本并不独立：损失本应对许多次抽样取平均，却只看到一次，梯度的噪声也大得多。`torch.randn_like` 使用噪"
            "声所针对的张量的形状。",
        ),
        related=[
            story.related(
                "used", found.added.step, T(en="every example gets the same noise", zh="每个样本得到同样的噪声")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rows", found.rows, story.by(found.added.step)), Fact("rounds", count, story.by(draw.step))],
    )


def _fixes(story: Story, found: SharedNoise) -> tuple[Fix, ...]:
    """Fixes that draw noise of the shape of the mean (``torch.randn_like``).

    Empty unless the line that adds has a name for the mean and is in the function of the draw.
    """
    program, torch = story.program, torch_name(story.program)
    draw, mean = program.at(story.span(found.draw.step)), written_as(story, found.added, found.mean)
    if torch is None or not isinstance(draw, ast.Call) or not isinstance(mean, ast.Name | ast.Attribute):
        return ()
    one, other = program.function(draw), program.function(mean)
    if one is not other:
        return ()
    new = f"{torch}.randn_like({program.segment(mean)})"
    title = T(en=f"Draw for each example: `{new}`", zh=f"为每个样本抽取：`{new}`")
    return unique(program.text, [Fix(title, program.replace((draw, new)), meaning="later")])


RULE = Rule(
    code="PL942",
    name="noise-shared-by-the-batch",
    severity="warning",
    title=T(en="All examples of a batch get the same noise", zh="一个批次的所有样本得到同样的噪声"),
    what=T(
        en="A program draws a sample for each example as `mean + deviation * noise`, but the noise has the size of "
        "one example. Every example of the batch gets the same. Use `torch.randn_like(mean)`.",
        zh="程序按“均值 + 标准差 × 噪声”为每个样本采样，但噪声只有一个样本的大小。批次里的每个样本都得到同样的噪声。请"
        "用 `torch.randn_like(mean)`。",
    ),
    why=T(
        en="Broadcasting compares shapes from the right and repeats what is missing or 1. A vector of noise fits "
        "a matrix of means, so nothing is raised. This way of drawing, called the reparameterization trick, rests "
        "on independent noise: averaging the gradient over a batch takes away its randomness only if each example "
        "has drawn for itself.",
        zh="广播从右边开始比较形状，缺少的或为 1 的维会被重复。一个噪声向量能与一个均值矩阵相配，所以不会报错。这种采"
        "样方式（称为重参数化技巧）以噪声相互独立为前提：只有每个样本各自抽样，对批次求平均才能消除梯度的随机性。",
    ),
    bad="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(4, 3)
for _ in range(3):
    mean, log_var = enc(x).chunk(2, dim=1)
    noise = torch.randn(2)  # PL942
    z = mean + torch.exp(0.5 * log_var) * noise  # used
    loss = (dec(z) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight)
""",
    good="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(4, 3)
for _ in range(3):
    mean, log_var = enc(x).chunk(2, dim=1)
    noise = torch.randn_like(mean)
    z = mean + torch.exp(0.5 * log_var) * noise
    loss = (dec(z) - x).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight)
""",
    find=find,
    traps=(
        Trap(
            "torch.randn(2)",
            "torch.randn(1, 2)",
            T(
                en="An axis of one row is repeated for the whole batch as well.",
                zh="只有一行的轴同样会为整个批次重复。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html",
        "https://docs.pytorch.org/docs/stable/notes/broadcasting.html",
    ),
)
