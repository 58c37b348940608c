"""PL550: the parameters of a distribution are trained by nothing but the log-probability of its own samples."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules import sample_without_path
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.ramps import POINTWISE_NAMES
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

DRAWS = {"normal", "multinomial", "bernoulli", "poisson", "_standard_gamma", "_sample_dirichlet", "randn", "randn_like",
         "rand", "rand_like"}  # fmt: skip
WITH_PATH = {"normal", "randn", "randn_like", "rand", "rand_like", "_standard_gamma", "_sample_dirichlet"}
"""Calls that draw a sample through which gradients can flow."""
PASSING = {
    "T", "t", "reshape", "view", "long", "unsqueeze", "squeeze", "broadcast_tensors", "detach", "clone", "to", "float",
    "expand", "flatten", "contiguous", "transpose", "data", "alias",
}  # fmt: skip
"""Calls that a tensor is followed through: its numbers stay the same ones."""
SMOOTH = (
    POINTWISE_NAMES | PASSING | spellings("pow", "sigmoid")
    | {"__getitem__", "chunk", "clamp_min", "exp", "log", "log_softmax", "logsigmoid", "logsumexp", "softmax",
       "softplus", "split", "sqrt", "square", "sum", "tanh", "unbind"}
)  # fmt: skip
"""Calls between a distribution's parameters and the loss through which gradients flow."""
LINEAR = spellings("add", "neg") | spellings("sub", exchanged=True) | {"mean", "sum"} | PASSING
SCALED = spellings("div", "mul", in_place=True)
CHOSEN = {"cross_entropy": 1, "nll_loss": 1, "binary_cross_entropy_with_logits": 1, "gather": 1}
"""Calls that compute a log-probability, or choose it, by the sample's position among the operands."""
ROUNDS, FURTHER, MOST = 2, 40, 400


@dataclass(frozen=True, slots=True)
class Score:
    """``event`` is the last call (``Event``) of a computation of the log-probability of the tensor ``sample`` (a
    label), which the call ``draw`` drew; ``steps`` is the range of the trace's steps that the computation takes.
    """

    event: Event
    steps: range
    sample: str
    draw: Event


@dataclass(frozen=True, slots=True)
class Alone:
    """``backward`` is a backward (``Event``) that reaches the leaves ``parameters`` (labels), from which a draw's
    distribution was computed, only through the log-probability ``score``.
    """

    backward: Event
    score: Score
    parameters: set[str]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws samples, in at least ``ROUNDS`` iterations, where nothing but their
    own log-probability trains the parameters that they were drawn from.

    Only with an optimizer step in between, and not where :mod:`.sample_without_path` reports the line.
    """
    updates, flow = story.trace.optimizer_steps, Flow(story)
    rounds: dict[Span | None, list[Alone]] = defaultdict(list)
    for backward in story.backwards() if updates else ():
        update = next((each for each in updates if each.step > backward.step), None)
        if backward.error is None and len(backward.operands) == 1 and update is not None:
            found = _alone(story, flow, backward, set(update.holds))
            if found is not None:
                rounds[story.span(found.score.draw.step)].append(found)
    others: set[Span | None] | None = None
    for place, each in rounds.items():
        first, last = each[0].backward.step, each[-1].backward.step
        if len(each) >= ROUNDS and any(first < update.step < last + 1 for update in updates):
            others = {f.span for f in sample_without_path.find(story)} if others is None else others
            if place not in others:
                yield _finding(story, each[0])


def _alone(story: Story, flow: Flow, backward: Event, held: set[str]) -> Alone | None:
    """The finding's data, if each path of the loss to some parameters ends at a log-probability of an own sample."""
    scores, rest = list[Score](), set[str]()
    own: set[str] = set()
    for label, step in _ends(story, backward):
        score = _score(story, label, step)
        leaves = flow.leaves(label, step) & held
        if score is None:
            rest |= leaves
        else:
            scores.append(score)
            own |= leaves
    if not scores or not own or own & rest:
        return None
    for parameter in own:
        storage = str((story.tensor(parameter) or {}).get("storage"))
        if story.writes(storage, min(score.draw.step for score in scores), backward.step):
            return None
    return Alone(backward, scores[0], own)


def _ends(story: Story, backward: Event) -> Iterator[tuple[str, int]]:
    """Yield the tensors that require grad of which the loss is a sum with fixed factors, each with the step of its use.

    A result of ``log_prob`` is not taken apart.
    """
    pending, seen = [(str(backward.operands[0].label), backward.step)], set[str]()
    while pending and len(seen) < MOST:
        label, step = pending.pop()
        record = story.tensor(label, step) or {}
        if label in seen or not record.get("requires_grad"):
            continue
        seen.add(label)
        event = story.event(record.get("born"))
        given = [o.label for o in event.operands if o.label is not None] if event is not None else []
        linear = event is not None and (event.name in LINEAR or (event.name in SCALED and len(given) == 1))
        if event is None or label not in event.results or not linear or _is_log_prob(story, event):
            yield label, step
        elif event.name == "broadcast_tensors":
            pending.append((given[event.results.index(label)], event.step))
        else:
            pending += [(each, event.step) for each in given]


def _is_log_prob(story: Story, event: Event) -> bool:
    node = story.program.at(event.span) if story.program.tree is not None else None
    return isinstance(node, ast.Call) and call_name(node) == "log_prob"


def _score(story: Story, label: str, step: int) -> Score | None:
    """The :class:`Score` of ``label`` if it is the log-probability of a sample drawn from the distribution's own
    parameters; None if it is something else.
    """
    event = story.event((story.tensor(label, step) or {}).get("born"))
    if event is None:
        return None
    first = event.step
    if _is_log_prob(story, event):
        while first > 0 and story.events[first - 1].span == event.span:
            first -= 1
    elif event.name not in CHOSEN or len(event.operands) <= CHOSEN[event.name]:
        return None
    group = story.events[first : event.step + 1]
    made, given = set[str](), dict[str, int]()
    for each in group:
        given.update({o.label: each.step for o in each.operands if o.label and o.label not in made})
        made.update(label for label in each.results if label not in given)
    trained = {label for label, at in given.items() if (story.tensor(label, at) or {}).get("requires_grad")}
    roots = {root for label in trained for root in _roots(story, label, given[label])[0]}
    for sample in (each for each in given if each not in trained):
        behind, draw = _roots(story, sample, given[sample])
        if draw is not None and roots and roots <= behind:
            return Score(event, range(first, event.step + 1), sample, draw)
    return None


def _roots(story: Story, label: str, step: int) -> tuple[set[str], Event | None]:
    """What a tensor was computed from, element by element: the tensors that require grad at which the search ends
    (leaves, results of layers), and the draw on the way, None if there is none.

    Empty and None if the tensor itself, without grad, was made by another kind of call or picked by an index.
    """
    roots, draw = set[str](), None
    pending, seen = [(label, step)], set[str]()
    while pending and len(seen) < FURTHER:
        here, at = pending.pop()
        if here in seen:
            continue
        seen.add(here)
        record = story.tensor(here, at) or {}
        event = story.event(record.get("born"))
        leaf = record.get("requires_grad") and record.get("is_leaf") and record.get("base") is None
        known = event is not None and event.kind == "call" and here in event.results and not leaf
        if not known or event is None or event.name not in SMOOTH | DRAWS:
            if record.get("requires_grad"):
                roots.add(here)
            elif event is not None and event.name not in SMOOTH and event.operands and draw is None and here == label:
                return set(), None
            continue
        if event.name in DRAWS:
            draw = draw or event
        given = [o.label for o in event.operands if o.label is not None]
        chosen = event.name == "__getitem__" and len(given) > 1
        if event.name == "broadcast_tensors":
            given = [given[event.results.index(here)]]
        if chosen and draw is None and not record.get("requires_grad"):
            return set(), None  # some of the samples were picked out
        pending += [(each, event.step) for each in given if each != here]
    return roots, draw


def _is_used_beside(story: Story, found: Alone) -> bool:
    """Whether the loss also depends on the sample in another way than by this log-probability, so that gradients
    through the draw would be of use.
    """
    same, pending = {found.score.draw.results[0]}, [found.score.draw.results[0]]
    end = found.backward.step
    uses: list[Event] = []
    while pending:
        for use in story.uses(pending.pop()):
            if found.score.draw.step < use.step < end and use.step not in found.score.steps:
                if use.name in PASSING | POINTWISE_NAMES and not _is_log_prob(story, use):
                    fresh = [result for result in use.results if result not in same]
                    same.update(fresh)
                    pending += fresh
                uses.append(use)
    reached, later = set[str](), [found.backward.operands[0].label]
    while later and len(reached) < MOST:
        here = later.pop()
        event = story.event((story.tensor(here, end) or {}).get("born"))
        if here is None or here in reached or event is None:
            continue
        reached.add(here)
        if event.step in found.score.steps:
            continue
        later += [o.label for o in event.operands]
    return any(set(use.results) & reached and use.name not in PASSING for use in uses)


def _finding(story: Story, found: Alone) -> Finding:
    draw, score = found.score.draw, found.score.event
    here, there = at_line(story, story.span(draw.step)), at_line(story, story.span(score.step))
    back = at_line(story, story.span(found.backward.step))
    first = called(story, min(found.parameters), None, draw.step)
    beside = _is_used_beside(story, found)
    return RULE.finding(
        story.span(draw.step),
        draw.step,
        T(
            en=f"{capital(here.en)} draws samples through which no gradient flows, and {first.en} gets its gradient "
            f"only from their own log-probability on {there.en}: on average that gradient is zero.",
            zh=f"{here.zh}抽取的样本不传递梯度，而 {first.zh} 的梯度只来自{there.zh}这些样本自己的对数概率：这个梯度的"
            "平均值是零。",
        ),
        T(
            en=f"The backward on {back.en} finds the sample a constant. Samples of a distribution are likelier under "
            "it as often as not, so pulling their log-probability up or down only shakes the parameters. A gradient "
            "through the sample (`rsample()`), or a weight for each sample, such as its reward, gives a direction.",
            zh=f"{back.zh}的反向传播把样本当作常数。分布自己的样本对它的参数没有一致的方向，所以提高或降低它们的对数概"
            "率只会让参数抖动。穿过样本的梯度（`rsample()`），或每个样本的权重（例如它的奖励），才给出方向。",
        ),
        related=[
            story.related("used", score.step, T(en="only this trains it", zh="只有这一项训练它")),
            story.related("backward", found.backward.step, T(en="goes back from here", zh="从这里反向传播")),
        ],
        fixes=_fixes(story, draw) if beside else (),
        facts=[Fact("parameters", sorted(found.parameters), story.by(found.backward.step))],
        advice=None
        if beside
        else T(
            en="multiply the log-probability of each sample by what the sample is worth, for example its reward.",
            zh="把每个样本的对数概率乘以这个样本的价值，例如它的奖励。",
        ),
    )


def _fixes(story: Story, draw: Event) -> tuple[Fix, ...]:
    """At most one fix, for distributions that can draw with gradients: it writes ``rsample()`` for ``sample()``, or
    removes ``detach()`` after ``rsample()``. Empty if the source shows neither.
    """
    program, node = story.program, story.program.at(story.span(draw.step))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or draw.name not in WITH_PATH:
        return ()
    text, owner = program.segment(node), program.segment(node.func.value)
    fixes = []
    if node.func.attr == "sample":
        title = T(en="Draw with a gradient: `rsample()`", zh="用带梯度的抽取：`rsample()`")
        new = f"{owner}.rsample{text[len(program.segment(node.func)) :]}"
        fixes.append(Fix(title, program.replace((node, new)), meaning="later"))
    outer = program.parents.get(program.parents.get(node) or node)
    if node.func.attr == "rsample" and isinstance(outer, ast.Call) and call_name(outer) == "detach":
        title = T(en="Leave out `.detach()`", zh="去掉 `.detach()`")
        fixes.append(Fix(title, program.replace((outer, text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL550",
    name="own-sample-scored-alone",
    severity="warning",
    title=T(
        en="Only the log-probability of its own samples trains a distribution", zh="只有自身样本的对数概率在训练分布"
    ),
    what=T(
        en="A program fits a distribution by drawing from it and judging the draws. But the draws are plain numbers, "
        "and the only thing that reaches the distribution is how likely its own draws are, which says nothing on "
        "average. Draw with `rsample()`, or weigh each log-probability by the sample's worth.",
        zh="程序从一个分布中抽样并评判样本，以此拟合这个分布。但样本只是普通的数，能到达分布的只有它自己的样本有多可"
        "能，而这平均来说什么也没有说明。请用 `rsample()` 抽样，或用样本的价值给每个对数概率加权。",
    ),
    why=T(
        en="The average of `log_prob`'s gradient (the *score*) over samples of the same distribution is zero, as its "
        "probabilities always add up to 1. So it needs a factor that differs between samples (REINFORCE), or a path: "
        "`rsample()` computes the sample from the parameters, and what is computed with it (a likelihood, a decoder) "
        "then has a gradient to them. The loss is the same number with `sample()`, so nothing looks wrong.",
        zh="对同一分布的样本求平均，`log_prob` 的梯度（*得分*）为零，因为概率之和总是 1。所以它需要一个随样本而变的因"
        "子（REINFORCE），或一条路径：`rsample()` 由参数算出样本，由样本算出的东西（似然、解码器）便有通向参数的梯度。"
        "用 `sample()` 时损失的数值一样，所以看不出问题。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
mean, log_std = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([mean, log_std], lr=0.01)
for _ in range(3):
    q = Normal(mean, log_std.exp())
    w = q.sample((50,))  # PL550
    fit = Normal(w, 0.5).log_prob(torch.tensor([2.0, -1.0])).sum(1)
    loss = (q.log_prob(w).sum(1) - fit).mean()  # used
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(mean)
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
mean, log_std = torch.zeros(2, requires_grad=True), torch.zeros(2, requires_grad=True)
opt = torch.optim.SGD([mean, log_std], lr=0.01)
for _ in range(3):
    q = Normal(mean, log_std.exp())
    w = q.rsample((50,))
    fit = Normal(w, 0.5).log_prob(torch.tensor([2.0, -1.0])).sum(1)
    loss = (q.log_prob(w).sum(1) - fit).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(mean)
""",
    find=find,
    traps=(
        Trap(
            "q.sample((50,))",
            "q.sample((500,))",
            T(
                en="More samples bring the useless gradient nearer to zero.",
                zh="样本更多，这个无用的梯度只会更接近零。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html",),
)
