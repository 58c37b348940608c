"""PL526: the sample whose log-probability a reward weighs still has the graph of what it was drawn from, and both
gradients cancel.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.another_sample_scored import ADDING_UP, WEIGHING
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.forms import key
from pitfall_lab.trace import Event, Span, T

DRAWS = {"normal_", "randn", "randn_like", "normal", "rand", "rand_like", "uniform_", "exponential_", "cauchy_",
         "_standard_gamma", "_sample_dirichlet"}  # fmt: skip
"""Calls by which torch's distributions and programs draw."""
LAYERS = {"linear", "conv1d", "conv2d", "bmm", "lstm", "gru", "embedding"}
"""Layers: a sample is not followed back through them."""
FURTHER = 60


@dataclass(frozen=True, slots=True)
class Attached:
    """``sample`` is the label of a sample that the call ``made`` (an ``Event``) computed from noise and trained
    numbers, with a graph.

    ``score`` is a call of the computation of its log-probability, ``weighed`` the call that multiplied this
    log-probability by a weight.
    """

    sample: str
    made: Event
    score: Event
    weighed: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``log_prob`` of a sample that has a graph, under the numbers it was drawn from, if the
    result is multiplied by a weight and the loss uses the sample for nothing else.

    Only if an optimizer stepped.
    """
    if not story.trace.optimizer_steps:
        return
    told = set()
    scores: dict[Span, list[Event]] = defaultdict(list)
    for event in story.events:
        if event.kind == "call" and event.span is not None and event.error is None and event.span not in told:
            scores[event.span].append(event)
    for span, events in scores.items():
        node = story.program.at(span)
        if not isinstance(node, ast.Call) or call_name(node) != "log_prob":
            continue
        found = next((each for event in events if (each := _attached(story, span, event)) is not None), None)
        if found is not None and span not in told:
            told.add(span)
            yield _finding(story, found)


def _attached(story: Story, span: Span, event: Event) -> Attached | None:
    """The finding's data if ``event``, a part of a log-probability, was given a sample with a graph
    that only this uses; else None.
    """
    given = [o.label for o in event.operands if o.label is not None]
    for label in given:
        made = story.event((story.tensor(label, event.step) or {}).get("born"))
        if (
            made is None
            or made.kind != "call"
            or made.span == span
            or label not in made.results
            or not _trained(story, label, event.step)
        ):
            continue
        if not _is_drawn(story, label, event.step) or not _meets_its_own(story, label, event, given):
            continue
        weighed = _weighed(story, span, event)
        if weighed is not None and not _has_another_path(story, label, span, weighed.step):
            return Attached(label, made, event, weighed)
    return None


def _trained(story: Story, label: str, step: int) -> bool:
    return bool((story.tensor(label, step) or {}).get("requires_grad"))


def _is_drawn(story: Story, label: str, step: int) -> bool:
    """Whether a tensor was computed from drawn numbers and from trained ones, with no layer
    between the draw and the tensor.
    """
    pending, seen = [(label, step)], {label}
    while pending and len(seen) < FURTHER:
        here, at = pending.pop()
        event = story.event((story.tensor(here, at) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results or event.name in LAYERS:
            continue
        if event.name in DRAWS:
            return True
        if any(use.name in DRAWS and use.step < step for use in story.uses(here)):  # filled in place
            return True
        for each in event.operands:
            if each.label is not None and each.label not in seen:
                seen.add(each.label)
                pending.append((each.label, event.step))
    return False


def _meets_its_own(story: Story, label: str, event: Event, given: list[str]) -> bool:
    """Whether the log-probability is one under the numbers from which the sample was drawn,
    and these have a graph in it.
    """
    return _origins(story, label, event.step) >= {
        key(story, each, event.step) for each in given if each != label and _trained(story, each, event.step)
    } and (len(given) > 1 or not event.results or _trained(story, event.results[0], event.step))


def _origins(story: Story, label: str, step: int) -> set[object]:
    """Keys of the tensors that a sample was computed from, up to layers."""
    pending, seen, keys = [(label, step)], {label}, set[object]()
    while pending and len(seen) < FURTHER:
        here, at = pending.pop()
        keys.add(key(story, here, at))
        event = story.event((story.tensor(here, at) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results or event.name in LAYERS:
            continue
        for each in event.operands:
            if each.label is not None and each.label not in seen:
                seen.add(each.label)
                pending.append((each.label, event.step))
    return keys


def _weighed(story: Story, span: Span, score: Event) -> Event | None:
    """The call that multiplied the log-probability by numbers without a graph, one for each, if a
    backward ran through it; else None.
    """
    pending, seen = list(score.results[:1]), set(score.results)
    while pending and len(seen) < FURTHER:
        label = pending.pop()
        for use in story.uses(label):
            others = [o.label for o in use.operands if o.label is not None and o.label != label]
            if (
                use.error is not None
                or not use.results
                or use.step <= score.step
                or not _trained(story, use.results[0], use.step)
            ):
                continue
            if (
                use.name in WEIGHING
                and use.span != span
                and others
                and not any(_trained(story, each, use.step) for each in others)
            ):
                graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                ran = (story.record("nodes", graph) or {}).get("ran") is not None
                many = all(
                    prod(story.shape(each, use.step) or ()) >= prod(story.shape(label, use.step) or ())
                    for each in others
                )
                later = all(
                    (story.tensor(each, use.step) or {}).get("born", 0) > score.step - FURTHER for each in others
                )
                return use if ran and many and later else None
            if use.results[0] not in seen and (use.name in ADDING_UP or use.span == span):
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _has_another_path(story: Story, label: str, span: Span, end: int) -> bool:
    """Whether something other than the log-probability was computed from the sample with a graph,
    through which a backward ran.
    """
    pending, seen = [label], {label}
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.span == span or use.error is not None or not use.results or use.step > end + FURTHER:
                continue
            for result in use.results:
                if result in seen or not _trained(story, result, use.step):
                    continue
                graph = (story.tensor(result, use.step) or {}).get("grad_fn")
                if (story.record("nodes", graph) or {}).get("ran") is not None and use.name not in ADDING_UP:
                    return True
                seen.add(result)
                pending.append(result)
    return False


def _finding(story: Story, found: Attached) -> Finding:
    step = found.score.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.made.step))
    weight, name = at_line(story, story.span(found.weighed.step)), expression(story, found.sample, step)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} computes the log-probability of {name.en}, which still has the graph of its "
            f"draw on {there.en}: {weight.en} sends its gradient through the sample, too, and for the mean of the "
            "distribution the two cancel.",
            zh=f"{here.zh}计算 {name.zh} 的对数概率，而它仍带着{there.zh}抽取时的计算图：{weight.zh}的梯度也会经过"
            "样本，而对分布的均值来说两者相互抵消。",
        ),
        T(
            en="When the mean moves, a sample that was computed from it moves along, and its log-probability stays "
            "the same. So the mean gets no gradient, whatever the reward. For an estimate by log-probabilities the "
            "sample must be a fixed number: draw it with `sample()`, or detach it.",
            zh="均值移动时，由它算出的样本也跟着移动，对数概率保持不变。所以无论奖励是多少，均值都得不到梯度。用对数概"
            "率来估计梯度时，样本必须是固定的数：请用 `sample()` 抽取，或对它 detach。",
        ),
        related=[
            story.related(
                "made", found.made.step, T(en="the sample is drawn with a graph here", zh="样本在这里带着计算图抽取")
            ),
            story.related(
                "used", found.weighed.step, T(en="the log-probability is weighed here", zh="对数概率在这里加权")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("sample", found.sample, story.by(step))],
    )


def _fixes(story: Story, found: Attached) -> tuple[Fix, ...]:
    """A fix that draws with ``sample()``, if the program's source shows ``rsample``, and one that detaches the sample
    where it is scored.
    """
    program, fixes = story.program, []
    drawn, score = (program.at(story.span(each.step)) for each in (found.made, found.score))
    if isinstance(drawn, ast.Call) and isinstance(drawn.func, ast.Attribute) and drawn.func.attr == "rsample":
        new = f"{program.segment(drawn.func.value)}.sample"
        title = T(en="Draw a plain number: `sample()`", zh="抽取普通的数：`sample()`")
        fixes.append(Fix(title, program.replace((drawn.func, new)), meaning="later"))
    if (
        isinstance(score, ast.Call)
        and len(score.args) == 1
        and not score.keywords
        and not isinstance(score.args[0], ast.Starred)
    ):
        text = f"{in_parentheses(program, score.args[0])}.detach()"
        title = T(en=f"Detach the sample: `{text}`", zh=f"对样本 detach：`{text}`")
        fixes.append(Fix(title, program.replace((score.args[0], text)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL526",
    name="score-of-an-attached-sample",
    severity="warning",
    title=T(en="The scored sample still has the graph of its draw", zh="被评分的样本仍带着抽取时的计算图"),
    what=T(
        en="A policy draws an action and weighs its log-probability with the reward, but the action was drawn by "
        "`rsample`, so a gradient flows back through the action as well. For the mean the two cancel: it is not "
        "trained. Use `sample()`, or detach the action.",
        zh="策略抽取一个动作，用奖励对它的对数概率加权；但动作是用 `rsample` 抽取的，所以梯度也会经过动作流回去。对均"
        "值来说两者抵消：它得不到训练。请使用 `sample()`，或对动作 detach。",
    ),
    why=T(
        en="`rsample()` computes `mean + std * noise`, with a graph; `log_prob(x)` depends on `x - mean`. With that "
        "sample the difference is `std * noise`, in which the mean no longer occurs. `sample()` is the same draw "
        "without a graph, as the estimate `log_prob(action) * reward` needs it. For a loss that is computed from the "
        "action itself, as by a critic, `rsample()` is right.",
        zh="`rsample()` 计算 `mean + std * noise` 并带有计算图；`log_prob(x)` 取决于 `x - mean`。代入这个样本，差就是 "
        "`std * noise`，其中不再有均值。`sample()` 是同样的抽取，但没有计算图，这正是估计 `log_prob(action) * reward` "
        "所需要的。若损失由动作本身算出（例如通过评论家），则应使用 `rsample()`。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    policy = Normal(net(torch.randn(8, 2)), 0.5)
    action = policy.rsample()  # made
    reward = -(action.detach() - 1).square()
    loss = -(policy.log_prob(action) * reward).mean()  # PL526 used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(reward.mean().item())
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    policy = Normal(net(torch.randn(8, 2)), 0.5)
    action = policy.sample()
    reward = -(action.detach() - 1).square()
    loss = -(policy.log_prob(action) * reward).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(reward.mean().item())
""",
    find=find,
    traps=(
        Trap(
            "    reward = -(action.detach() - 1).square()\n",
            "    with torch.no_grad():\n        reward = -(action - 1).square()\n",
            T(
                en="The reward has no graph now as before; the sample in the log-probability still has one.",
                zh="奖励和以前一样没有计算图；对数概率中的样本仍然有。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html",),
)
