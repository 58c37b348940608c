"""PL928: a loss has the positions of padding among its targets, and no ``ignore_index``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import (
    CLASSIFIERS,
    name_of_tokens,
    next_axis,
    padded,
    padding_number,
    rows_of,
    written_forms,
)
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

MODULES = {"cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss"}


@dataclass(frozen=True, slots=True)
class PaddingCountedInLoss:
    """``loss`` is the call (``Event``) of a loss whose targets at the indices ``places`` are of padding: there the
    tokens whose vectors the call ``lookup`` looked up are the padding's ``number``.

    ``filled`` is the target at all these indices, as far as it is known.
    """

    loss: Event
    lookup: Event
    number: int
    places: list[Index]
    filled: float
    apart: bool
    """Whether no real token is known to have that target, or the targets are tokens themselves."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a loss of tokens that counts the targets at padding.

    Not for losses with ``reduction="none"``, with class weights, or without a graph.
    """
    told = set()
    for loss in story.calls(*CLASSIFIERS):
        place = story.span(loss.step)
        if (
            place in told
            or loss.error is not None
            or len(loss.operands) < 2
            or "none" in (argument(loss, "reduction") or "")
        ):
            continue
        if not (story.tensor(loss.results[0], loss.step) or {}).get("requires_grad"):
            continue
        lookups = [
            each for each in rows_of(story, loss.operands[0].label, loss.step).lookups if each.name == "embedding"
        ]
        found = next((found for each in lookups if (found := _counted(story, loss, each)) is not None), None)
        if found is not None:
            told.add(place)
            yield _finding(story, found)


def _counted(story: Story, loss: Event, lookup: Event) -> PaddingCountedInLoss | None:
    tokens = lookup.operands[0].label
    shape = story.shape(tokens, lookup.step) or ()
    number = padding_number(story, lookup) if len(shape) == 2 else None
    ignored = whole(argument(loss, "ignore_index") or "-100")
    if number is None or any(o.name == "weight" for o in loss.operands if o.label is not None):
        return None
    for label, step in written_forms(story, loss.operands[1].label, loss.step):
        own = story.shape(label, step) or ()
        if len(own) != len(shape) or any(a not in (b, b - 1) for a, b in zip(own, shape, strict=True)):
            continue
        target, given = Elements(story, label, step), dict(Elements(story, tokens, lookup.step).known())
        places = [
            place
            for place in padded(story, tokens, lookup.step, number)
            if all(i < n for i, n in zip(place, own, strict=True))
        ]
        pairs = {place: value for place in places if (value := target.at(place)) is not None}
        filled = sorted(set(pairs.values()))
        if len(filled) == 1 and filled[0] != ignored:
            real = [
                target.at(place)
                for place in given
                if place not in places and all(i < n for i, n in zip(place, own, strict=True))
            ]
            text = next_axis(story, (label, step), (tokens, lookup.step)) is not None
            return PaddingCountedInLoss(loss, lookup, number, places, filled[0], text or filled[0] not in real)
    return None


def _finding(story: Story, found: PaddingCountedInLoss) -> Finding:
    loss, lookup = found.loss, found.lookup
    here, there = at_line(story, story.span(loss.step)), at_line(story, story.span(lookup.step))
    tokens, target = (expression(story, each, loss.step) for each in (lookup.operands[0].label, loss.operands[1].label))
    place = ", ".join(map(str, found.places[-1]))
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} counts padding: where {tokens.en} is {found.number}, at [{place}] for instance, "
            f"{target.en} is {found.filled:g}, a target like any other.",
            zh=f"{here.zh}把填充也算进去了：在 {tokens.zh} 为 {found.number} 的地方，例如 [{place}]，{target.zh} 是 "
            f"{found.filled:g}，与其他目标没有区别。",
        ),
        T(
            en=f"{capital(there.en)} looks up tokens of which {found.number} is padding. Its positions have a loss "
            "too, and are easy to predict: the mean becomes small, the model learns above all to write padding, and "
            "a batch of short texts trains less on its real tokens. `ignore_index` leaves targets of one number out "
            "of the sum and out of the number that it is divided by.",
            zh=f"{there.zh}查的词里，{found.number} 是填充。这些位置也有损失，而且很容易预测：平均值变小，模型主要学会"
            "输出填充，文本短的批次对真实的词训练得更少。`ignore_index` 会把某个编号的目标从总和与除数中都排除。",
        ),
        related=[story.related("made", lookup.step, T(en="the tokens are looked up here", zh="在这里查词"))],
        fixes=_fixes(story, found),
        facts=[Fact("padding", found.number, story.by(lookup.step)), Fact("target", found.filled, story.by(loss.step))],
    )


def _fixes(story: Story, found: PaddingCountedInLoss) -> tuple[Fix, ...]:
    program, loss = story.program, found.loss
    node = program.at(story.span(loss.step)) if program.tree is not None else None
    fixes = []
    added = f"ignore_index={found.filled:g}"
    made = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in (loss.name, MODULES[loss.name])]
    called = [n for n in made if n is node or call_name(n) == MODULES[loss.name]]
    for call in called if found.apart else ():
        text = program.segment(call)[:-1].rstrip().rstrip(",")
        new = f"{text}, {added})" if call.args or call.keywords else f"{text}{added})"
        if not any(k.arg == "ignore_index" for k in call.keywords):
            title = T(en=f"Leave these targets out: `{added}`", zh=f"排除这些目标：`{added}`")
            fixes.append(Fix(title, program.replace((call, new)), meaning="shape"))
    target, name = written_as(story, loss, loss.operands[1].label), name_of_tokens(story, found.lookup, loss)
    for form, _ in (
        written_forms(story, loss.operands[1].label, loss.step) if target is not None and name is not None else ()
    ):
        if target is None or story.shape(form, loss.step) != story.shape(
            found.lookup.operands[0].label, found.lookup.step
        ):
            continue
        flat = len(story.shape(loss.operands[1].label, loss.step) or ()) == 1
        mask = f"({name} == {found.number}).flatten()" if flat else f"{name} == {found.number}"
        text = f"{program.segment(target)}.masked_fill({mask}, -100)"
        fixes.append(
            Fix(
                T(en=f"Leave these targets out: `{text}`", zh=f"排除这些目标：`{text}`"),
                program.replace((target, text)),
                meaning="shape",
            )
        )
        break
    return unique(program.text, fixes)


RULE = Rule(
    code="PL928",
    name="padding-counted-in-loss",
    severity="warning",
    title=T(en="A loss counts the positions of padding", zh="损失把填充的位置也算了进去"),
    what=T(
        en="Texts of different lengths are filled up with a number that means nothing, and the loss takes it for a "
        "word to be predicted. The loss looks small and the model mostly learns to write padding. Give the loss the "
        "number: `ignore_index=0`.",
        zh="长短不一的文本用一个没有意义的编号补齐，损失却把它当作要预测的词。损失看上去很小，模型主要学会输出填充。请"
        "把这个编号告诉损失：`ignore_index=0`。",
    ),
    why=T(
        en="`cross_entropy` takes the mean over all targets except those equal to `ignore_index`, which is -100 by "
        "default, whatever number the program fills up with. `padding_idx` of an `Embedding` keeps the vector of "
        'padding at 0 and without a gradient; it does not change the loss. With `reduction="none"` and a mask the '
        "sum has to be divided by the number of real tokens.",
        zh="`cross_entropy` 对所有不等于 `ignore_index` 的目标取平均，而 `ignore_index` 默认是 -100，与程序用什么编号"
        "补齐无关。`Embedding` 的 `padding_idx` 只让填充的向量保持为 0 且没有梯度；损失并不知道它。用 "
        '`reduction="none"` 加掩码时，总和要除以真实的词的个数。',
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
words = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
tags = torch.tensor([[1, 2, 2, 1], [2, 1, 0, 0]])
table, head = torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 3)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    scores = head(table(words))  # made
    loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten())  # PL928
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
words = torch.tensor([[1, 2, 3, 4], [5, 6, 0, 0]])
tags = torch.tensor([[1, 2, 2, 1], [2, 1, 0, 0]])
table, head = torch.nn.Embedding(7, 4, padding_idx=0), torch.nn.Linear(4, 3)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    scores = head(table(words))
    loss = F.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "tags.flatten())",
            "tags.flatten(), label_smoothing=0.1)",
            T(en="Smoothed targets of padding are still targets.", zh="填充处的目标即使平滑过，也仍然是目标。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
    ),
)
