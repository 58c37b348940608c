"""PL997: how far random weights are from their prior is added to the loss of each batch as a whole."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, isclose

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.batches import Batch, behind
from pitfall_lab.rules.signals.forms import drawn, made_by
from pitfall_lab.rules.signals.linear_parts import ADDING, losses, parts
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

PRODUCTS = spellings("mul")
WHOLE = (0.5, 1.0)
"""The factors of a logarithm in a divergence that nothing else was multiplied with: of a variance, of a deviation."""
UPWARD, FURTHER, PAIR, NEAR = 300, 40, 2, 1e-6


@dataclass(frozen=True, slots=True)
class Added:
    """``event`` is the call (``Event``) that adds ``term`` to the loss of a batch of ``rows`` of all ``of`` rows;
    ``term`` is the label of a number computed from random weights alone, as a divergence from their prior is.

    ``noise`` is the call that multiplied drawn noise to make the weights random. ``backward`` is the backward of this
    loss.
    """

    event: Event
    term: str
    noise: Event
    backward: Event
    rows: int
    of: int

    @property
    def times(self) -> int:
        """How many batches a pass over the data has."""
        return ceil(self.of / self.rows)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds a term computed from random weights and their prior alone to the loss
    of a batch, unless the term is scaled or the loss is multiplied. Only terms with a logarithm of a variance or
    deviation are recognized.
    """
    told: set[Span | None] = set()
    for backward in losses(story, rounds=1):
        found = _added(story, backward)
        if found is not None and story.span(found.event.step) not in told:
            told.add(story.span(found.event.step))
            yield _finding(story, found)


def _added(story: Story, backward: Event) -> Added | None:
    root, step = backward.operands[0].label, backward.step
    all_parts = [p for p in parts(story, root, step) if (story.tensor(p.label) or {}).get("requires_grad")]
    logarithms = [
        p
        for p in all_parts
        if (made := made_by(story, p.label, step)) is not None
        and made.name == "log"
        and p.factor < 0
        and p.averaged == 1
        and any(isclose(p.scaled, each, rel_tol=NEAR) for each in WHOLE)
        and _batch(story, p.label, step) is None
    ]
    of_rows = [(p, batch) for p in all_parts if (batch := _batch(story, p.label, step)) is not None]
    if not logarithms or not of_rows or any(p.scaled > 1 + NEAR for p, _ in of_rows):
        return None
    weights = {leaf for p in logarithms for leaf in _leaves(story, p.label, step)}
    noise = _noise(story, weights, step)
    rows, batch = max(len(b.rows) for _, b in of_rows), of_rows[0][1]
    of = max((shape[0] for _, r in story.tensors_on(batch.storage) if (shape := r.get("shape"))), default=0)
    place = _addition(story, str(root), step)
    if noise is None or place is None or of < PAIR * rows:
        return None
    return Added(*place, noise, backward, rows, of)


def _batch(story: Story, label: str, step: int) -> Batch | None:
    return next(behind(story, label, step, cut=True), None)


def _leaves(story: Story, label: str, step: int) -> set[str]:
    """The leaves that require grad from which a tensor was computed."""
    pending, seen, found = deque([(label, step)]), {label}, set[str]()
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        if here in story.leaves:
            found.add(here)
            continue
        made = made_by(story, here, at)
        for each in [o.label for o in made.operands if o.label is not None] if made is not None else ():
            if each not in seen:
                seen.add(each)
                pending.append((each, at if made is None else made.step))
    return found


def _noise(story: Story, weights: set[str], until: int) -> Event | None:
    """The first product of drawn noise with something computed from ``weights`` alone, which makes the weights random;
    None if there is none up to the step ``until``.
    """
    for event in story.calls(*PRODUCTS):
        labels = [o.label for o in event.operands if o.label is not None]
        if event.step > until or event.error is not None or len(labels) != PAIR:
            continue
        for noise, other in (labels, labels[::-1]):
            filled = any(use.name == "normal_" and use.step < event.step for use in story.uses(noise))
            if not filled and drawn(story, noise, event.step) is None:
                continue
            leaves = _leaves(story, other, event.step)
            if leaves and leaves <= weights:
                return event
    return None


def _addition(story: Story, root: str, step: int) -> tuple[Event, str] | None:
    """The call that adds a term computed without rows of the batch to one computed with some, and the label of the
    first term; None if there is none.
    """
    pending = deque([(root, step)])
    for _ in range(FURTHER):
        if not pending:
            return None
        label, at = pending.popleft()
        made = made_by(story, label, at)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None:
            continue
        alone = [each for each in given if _batch(story, each, made.step) is None]
        if made.name in ADDING and len(given) == PAIR and len(alone) == 1:
            return made, alone[0]
        if made.name in ADDING or len(given) == 1:
            pending += [(each, made.step) for each in given]
    return None


def _finding(story: Story, found: Added) -> Finding:
    event, step = found.event, found.event.step
    here, term = at_line(story, story.span(step)), shown(story, event, found.term)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} adds {term.en}, which belongs to all {found.of} rows, to the loss of each batch of "
            f"{found.rows}: in one pass over the data it counts {found.times} times.",
            zh=f"{here.zh}把属于全部 {found.of} 行的 {term.zh} 加到每个 {found.rows} 行的批次的损失上：遍历一次数据，它"
            f"被计算了 {found.times} 次。",
        ),
        T(
            en="The distance of the random weights from their prior is there once, and the likelihood is a sum over "
            f"all {found.of} rows. A step that adds the whole distance to {found.rows} rows is right for a data set "
            f"with {found.rows} rows: the weights stay near the prior, and far too uncertain. Divide the distance by "
            "the number of batches, or multiply the sum over the batch by it.",
            zh=f"随机权重与先验的距离只有一份，而似然是对全部 {found.of} 行求和。把整个距离加到 {found.rows} 行上，适"
            f"合的是只有 {found.rows} 行的数据集：权重会停留在先验附近，不确定性大得多。请把距离除以批次数，或者把批次"
            "的总和乘以批次数。",
        ),
        related=[
            story.related("made", found.noise.step, T(en="the weights are drawn here", zh="在这里抽取权重")),
            story.related(
                "backward", found.backward.step, T(en="the loss goes back from here", zh="损失从这里反向传播")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rows", found.rows, story.by(step)), Fact("all", found.of, story.by(step))],
    )


def _fixes(story: Story, found: Added) -> tuple[Fix, ...]:
    """At most one fix: it divides the term by the number of batches, written as ``len(loader)`` if the loop goes over a
    name. Empty if the source does not show the term.
    """
    program, node = story.program, written_as(story, found.event, found.term)
    if node is None:
        return ()
    count = str(found.times)
    for statement in call_chain(story, found.backward):
        loops = [a.iter for a in program.ancestors(statement) if isinstance(a, ast.For)]
        name = next((each.id for each in loops if isinstance(each, ast.Name)), None)
        if name is not None and story.trace.beside.passes:
            count = f"len({name})"
            break
    new = f"{operand(program, node)} / {count}"
    title = T(en=f"Divide it by the number of batches: `{new}`", zh=f"除以批次数：`{new}`")
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL997",
    name="prior-in-each-batch",
    severity="warning",
    title=T(
        en="The whole distance from the prior is added to the loss of each batch",
        zh="与先验的整个距离被加到每个批次的损失上",
    ),
    what=T(
        en="A program learns a distribution of weights. Its loss has a term for how far that distribution is from a "
        "prior, which belongs to the whole data set, and adds all of it to each small batch. With 12 batches the "
        "prior counts 12 times, and the weights stay near it. Divide the term by the number of batches.",
        zh="程序学习权重的分布。损失中有一项是这个分布与先验的距离，它属于整个数据集，程序却把它整个加到每个小批次上"
        "。有 12 个批次时，先验被计算 12 次，权重停留在它附近。请把这一项除以批次数。",
    ),
    why=T(
        en="The bound that is maximised is the log-likelihood of all rows minus one divergence. A batch estimates "
        "the first with a part of the rows; added up over a pass, the batches give the likelihood once, and the "
        "divergence as often as there are batches. In a variational autoencoder each row has a divergence of its "
        "own, which is summed over the batch like the likelihood: nothing is divided there.",
        zh="要最大化的下界是所有行的对数似然减去一份散度。一个批次用一部分行来估计前者；遍历一次后，各批次合起来给出"
        "一份似然，而散度有几个批次就有几份。在变分自编码器里，每一行有自己的散度，它和似然一样对批次求和：那里不需要"
        "除。",
    ),
    bad="""import torch
from torch.distributions import Normal, kl_divergence

torch.manual_seed(0)
x = torch.randn(24, 2)
y = x @ torch.tensor([1.0, -1.0]) + 0.5 * torch.randn(24)
mean, rho = torch.zeros(2, requires_grad=True), torch.full((2,), -1.0, requires_grad=True)
opt = torch.optim.Adam([mean, rho], lr=0.3)
for _ in range(4):
    for xb, yb in zip(x.split(4), y.split(4)):
        weights = Normal(mean, rho.exp())
        error = ((xb @ weights.rsample() - yb) ** 2).sum()  # made
        loss = error + kl_divergence(weights, Normal(torch.zeros(2), torch.ones(2))).sum()  # PL997
        opt.zero_grad()
        loss.backward()  # backward
        opt.step()
print(rho.exp())
""",
    good="""import torch
from torch.distributions import Normal, kl_divergence

torch.manual_seed(0)
x = torch.randn(24, 2)
y = x @ torch.tensor([1.0, -1.0]) + 0.5 * torch.randn(24)
mean, rho = torch.zeros(2, requires_grad=True), torch.full((2,), -1.0, requires_grad=True)
opt = torch.optim.Adam([mean, rho], lr=0.3)
for _ in range(4):
    for xb, yb in zip(x.split(4), y.split(4)):
        weights = Normal(mean, rho.exp())
        error = ((xb @ weights.rsample() - yb) ** 2).sum()
        loss = error + kl_divergence(weights, Normal(torch.zeros(2), torch.ones(2))).sum() / 6
        opt.zero_grad()
        loss.backward()
        opt.step()
print(rho.exp())
""",
    find=find,
    traps=(
        Trap(
            "range(4)",
            "range(8)",
            T(en="More passes count it as often in each of them.", zh="遍历更多次，每一次中它仍被计算同样多次。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#module-torch.distributions.kl",),
)
