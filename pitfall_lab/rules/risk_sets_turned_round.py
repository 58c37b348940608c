"""PL951: a partial likelihood sums the hazards of those who had an earlier time, and not of those still at risk."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.risk_masks import RiskMask, risk_masks
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

ORDERS = ("sort", "argsort")
PICKS = {"__getitem__", "index_select", "gather", "take", "take_along_dim"}
"""Calls that take entries by their positions."""
TURNS = {"flip", "flipud"}
"""Calls that turn a column round."""
SUBTRACTS = spellings("sub", in_place=True)
MULTIPLIES = spellings("mul", in_place=True)
COLUMNS = SAME_NUMBERS | {
    "squeeze",
    "unsqueeze",
    "view",
    "reshape",
    "flatten",
    "to",
    "float",
    "bool",
    "clone",
    "detach",
}
"""Calls that leave each number of a column at its place."""
AFTER = COLUMNS | spellings("add") | {"log", "clamp", "clamp_min"}
"""Calls between the running sum of the hazards and its difference from the scores."""
FURTHER, FEW = 12, 3
RIGHT = {(True, False): ">=", (True, True): "<=", (False, False): "<", (False, True): ">"}
"""The comparison of times that a mask needs: whether it keeps where it is true, and whether the times on the left are
those of the samples whose risk sets these are.
"""
NAMES = {">=": "ge", "<=": "le", "<": "lt", ">": "gt"}


@dataclass(frozen=True, slots=True)
class Turned:
    """``event`` is the call (``Event``) of a running sum, from the earliest time on, over ``count`` scores that the
    call ``order`` has sorted by time; ``used`` is the call that subtracts its logarithm from the scores.

    ``descending``: the sort began with the latest time, and its result was flipped before the sum.
    """

    event: Event
    order: Event
    used: Event
    count: int
    descending: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that, in a partial likelihood of survival times, adds up the hazards of those
    with an earlier time: by a running sum, or by a mask of pairs.

    Only with at least ``FEW`` scores, whose differences from the sum are multiplied with, or chosen by, a column of
    events.
    """
    reported = set()
    for mask in risk_masks(story):
        place = story.span(mask.event.step)
        if mask.earlier and place not in reported:
            reported.add(place)
            yield _finding_of_mask(story, mask)
    for event in story.calls("logcumsumexp", "cumsum"):
        place = story.span(event.step)
        found = _turned(story, event) if event.error is None and place not in reported and event.operands else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _turned(story: Story, event: Event) -> Turned | None:
    """The data of the finding if the running sum of a partial likelihood goes from the earliest time to the latest.

    None if it does not, if its scores were not sorted by another tensor, or if it is not subtracted from the scores of
    a partial likelihood.
    """
    shape = [each for each in story.shape(event.operands[0].label, event.step) or () if each != 1]
    if len(shape) != 1 or shape[0] < FEW:
        return None
    scores, turned, is_exponential = _ordered(story, event)
    order = _order(story, scores, event.step) if scores is not None else None
    if scores is None or order is None or (event.name == "cumsum" and not is_exponential):
        return None
    descending = "True" in (argument(order, "descending"), argument(order, "descending", 2))
    if descending != turned:
        return None
    used = _subtracted(story, event, scores)
    if used is None or not _is_of_events(story, used, order):
        return None
    return Turned(event, order, used, shape[0], descending)


def _ordered(story: Story, event: Event) -> tuple[str | None, bool, bool]:
    """The label of the scores in the order of the sort that a running sum begins from (None if another calculation
    comes between), whether they were flipped in between, and whether their exponential was taken.
    """
    label, step = event.operands[0].label, event.step
    turned = is_exponential = False
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or made.name in PICKS or not made.operands:
            break
        if made.name in TURNS:
            turned = not turned
        elif made.name == "exp":
            is_exponential = True
        elif made.name not in COLUMNS and made.name not in SUBTRACTS:  # less the largest one
            return None, turned, is_exponential
        label, step = made.operands[0].label, made.step
    return label, turned, is_exponential


def _order(story: Story, label: str | None, step: int) -> Event | None:
    """The sort whose positions were used to put a column in order; None if there is none."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given:
            return None
        if made.name in PICKS and len(given) > 1:
            return _sort(story, given[-1], made.step)
        if made.name not in COLUMNS:
            return None
        label, step = given[0], made.step
    return None


def _sort(story: Story, label: str | None, step: int) -> Event | None:
    """The call that returned these positions in sorted numbers; None if they come from elsewhere."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.operands[0].label is None:
            return None
        if made.name in ORDERS:
            return made if label == made.results[-1] else None
        if made.name not in COLUMNS:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _subtracted(story: Story, event: Event, scores: str) -> Event | None:
    """The call that subtracts the logarithm of the running sum and the scores from each other; None if there is
    none.
    """
    pending, seen = [event.results[0]], {event.results[0]}
    columns = {scores}
    while pending and len(seen) < FURTHER:
        for use in (use for use in story.uses(pending.pop()) if use.step > event.step and use.results):
            given = [o.label for o in use.operands if o.label is not None]
            if use.name in SUBTRACTS and len(given) > 1:
                if {_column(story, each, use.step) for each in given} & columns:
                    return use
            elif use.name in AFTER | TURNS and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _column(story: Story, label: str | None, step: int) -> str | None:
    """The label of the tensor that a tensor's numbers come from, before copies, conversions and reshapes; the tensor
    itself if there are none.
    """
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or made.name not in COLUMNS or not made.operands or made.operands[0].label is None:
            break
        label, step = made.operands[0].label, made.step
    return label


def _is_of_events(story: Story, used: Event, order: Event) -> bool:
    """Whether the differences are multiplied with, or chosen by, a column without gradient that has the same order: who
    had the event, and who was lost to follow-up.
    """
    for use in story.uses(used.results[0]):
        if use.step < used.step or (use.name not in MULTIPLIES and use.name != "__getitem__"):
            continue
        for label in (o.label for o in use.operands if o.label not in (None, used.results[0])):
            plain = not (story.tensor(label, use.step) or {}).get("requires_grad")
            by = _order_of_mask(story, label, use.step)
            if plain and by is not None and by.step == order.step:
                return True
    return False


def _order_of_mask(story: Story, label: str | None, step: int) -> Event | None:
    """The sort that put a mask in order, also where the mask is a comparison with a number."""
    made = made_by(story, label, step)
    if made is not None and made.name in spellings("eq", "gt", "ne", "ge") and made.operands:
        label, step = made.operands[0].label, made.step
    return _order(story, label, step)


def _finding(story: Story, found: Turned) -> Finding:
    step = found.event.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.order.step))
    time = shown(story, found.order, found.order.operands[0].label)
    count = found.count
    ways = (
        T(en="begins with the latest one, and the sum with the earliest", zh="从最晚的开始，而求和从最早的开始")
        if found.descending
        else T(en="begins with the earliest one, as does the sum", zh="从最早的开始，求和也是")
    )
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} compares each event with those that had an earlier {time.en}, not with those still "
            f"at risk: the first of {count:,} is compared with itself alone, the last one with all.",
            zh=f"{here.zh}把每个事件与 {time.zh} 更早的样本相比，而不是与此刻仍处于风险中的样本相比：{count:,} 个中"
            "的第一个只与自己相比，最后一个与全部相比。",
        ),
        T(
            en=f"The order of {there.en} {ways.en}. The partial likelihood of an event is the share of its own hazard "
            "in that of all who could have had it at that time, and these have a later time or the same. Turned "
            "round, the loss falls when the scores of those who live longest rise.",
            zh=f"{there.zh}的次序{ways.zh}。一个事件的偏似然，是它自己的风险在当时所有可能发生事件者的风险中所占的份额，"
            "而这些样本的时间更晚或相同。方向反了，存活最久者的分数升高时损失反而下降。",
        ),
        related=[
            story.related("made", found.order.step, T(en="put in order here", zh="在这里排序")),
            story.related("used", found.used.step, T(en="taken from the scores here", zh="在这里从分数中减去")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("patients", count, story.by(step))],
    )


def _fixes(story: Story, found: Turned) -> tuple[Fix, ...]:
    """At most one fix: it reverses the direction of the sort. Empty if the program's source does not show the sort."""
    program = story.program
    call = program.at(story.span(found.order.step))
    if not isinstance(call, ast.Call) or called(call) not in ORDERS:
        return ()
    given = next((each for each in call.keywords if each.arg == "descending"), None)
    if found.descending:
        if given is None:
            return ()
        title = T(en="Sort from the earliest time", zh="从最早的时间开始排序")
        return unique(program.text, [Fix(title, program.replace((given.value, "False")), meaning="later")])
    title = T(en="Sort from the latest time: `descending=True`", zh="从最晚的时间开始排序：`descending=True`")
    if given is not None:
        return unique(program.text, [Fix(title, program.replace((given.value, "True")), meaning="later")])
    text = program.segment(call)
    inner = text[:-1].rstrip().removesuffix(",")
    comma = "" if inner.endswith("(") else ", "
    return unique(
        program.text, [Fix(title, program.replace((call, f"{inner}{comma}descending=True)")), meaning="later")]
    )


def _finding_of_mask(story: Story, found: RiskMask) -> Finding:
    step, count = found.event.step, found.count
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.compared.step))
    time = shown(story, found.compared, found.compared.operands[0].label)
    first, last = T(en="no one", zh="不与任何样本相比"), T(en="with all others", zh="与其余全部")
    if found.itself:
        first, last = T(en="itself alone", zh="只与自己相比"), T(en="with all", zh="与全部")
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} compares each event with those that had an earlier time, not with those still at "
            f"risk: the first of {count:,} is compared with {first.en}, the last one {last.en}.",
            zh=f"{here.zh}把每个事件与时间更早的样本相比，而不是与此刻仍处于风险中的样本相比：{count:,} 个中的第一个"
            f"{first.zh}，最后一个{last.zh}相比。",
        ),
        T(
            en=f"The comparison in {there.en} ({time.en} on the left) chooses whose hazards are in the sum of each "
            "sample. The partial likelihood of an event is the share of its own hazard in that of all who could have "
            "had it at that time, and these have a later time or the same. Turned round, the loss falls when the "
            "scores of those who live longest rise.",
            zh=f"{there.zh}的比较（左边是 {time.zh}）决定每个样本的和里有谁的风险。一个事件的偏似然，是它自己的风险在"
            "当时所有可能发生事件者的风险中所占的份额，而这些样本的时间更晚或相同。方向反了，存活最久者的分数升高时损失"
            "反而下降。",
        ),
        related=[
            story.related("made", found.compared.step, T(en="times are compared here", zh="在这里比较时间")),
            story.related("used", found.used.step, T(en="taken from the scores here", zh="在这里从分数中减去")),
        ],
        fixes=_fixes_of_mask(story, found),
        facts=[Fact("patients", count, story.by(step))],
    )


def _fixes_of_mask(story: Story, found: RiskMask) -> tuple[Fix, ...]:
    """At most one fix: it reverses the comparison. Empty if the program's source does not show it."""
    program = story.program
    node = program.at(story.span(found.compared.step))
    sign = RIGHT[found.keeps, found.kept_first]
    title = T(en=f"Turn the comparison round: `{sign}`", zh=f"把比较反过来：`{sign}`")
    if isinstance(node, ast.Compare) and len(node.comparators) == 1:
        new = f"{program.segment(node.left)} {sign} {program.segment(node.comparators[0])}"
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in found.compared.op:
        new = f"{program.segment(node.func.value)}.{NAMES[sign]}"
        return unique(program.text, [Fix(title, program.replace((node.func, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL951",
    name="risk-sets-turned-round",
    severity="warning",
    title=T(
        en="A partial likelihood compares each event with earlier ones, not with those still at risk",
        zh="偏似然把每个事件与更早的样本相比，而不是与仍处于风险中的样本相比",
    ),
    what=T(
        en="A survival loss (Cox) takes from each score the logarithm of the sum of hazards of all who were still at "
        "risk at that time. Here the sum holds those who had their event before: the scores are sorted by time and the "
        "running sum begins with the earliest, or a mask of pairs is true where the other time is earlier. Sort with "
        "`descending=True`, so that the sum begins with the latest time, or turn the comparison of the mask round.",
        zh="生存分析的损失（Cox）从每个分数中减去当时仍处于风险中的所有样本的风险之和的对数。这里的和包含的却是此前已发生"
        "事件的样本：分数按时间排序而累加从最早的开始，或者成对的掩码在对方时间更早处为真。请用 `descending=True` 排序"
        "，让累加从最晚的时间开始，或者把掩码的比较反过来。",
    ),
    why=T(
        en="`logcumsumexp` at place i sums places 0 to i. In ascending order these are the earlier times; the set at "
        "risk is the other part. A mask of pairs has the same choice: `time[None] >= time[:, None]` keeps in row i "
        "those whose time is not before that of i. Both losses fall during training, and no shape tells them apart: it "
        "shows in a concordance below one half, since the scores have the wrong sign.",
        zh="`logcumsumexp` 在第 i 个位置累加的是第 0 到第 i 个。升序时它们是更早的时间；处于风险中的是另一部分。"
        "成对的掩码也有同样的选择：`time[None] >= time[:, None]` 在第 i 行保留时间不早于 i 的样本。"
        "两种损失在训练中都会下降，形状也完全相同；差别表现为一致性指数低于二分之一，因为分数的符号反了。",
    ),
    bad="""import torch

torch.manual_seed(0)
score = torch.randn(8, requires_grad=True)
time, died = torch.rand(8), torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 0])
order = torch.argsort(time)  # made
score_by_time, died_by_time = score[order], died[order]
at_risk = torch.logcumsumexp(score_by_time, dim=0)  # PL951
loss = -((score_by_time - at_risk) * died_by_time).sum() / died.sum()  # used
loss.backward()
print(loss.item(), score.grad)
""",
    good="""import torch

torch.manual_seed(0)
score = torch.randn(8, requires_grad=True)
time, died = torch.rand(8), torch.tensor([1.0, 0, 1, 1, 0, 1, 1, 0])
order = torch.argsort(time, descending=True)
score_by_time, died_by_time = score[order], died[order]
at_risk = torch.logcumsumexp(score_by_time, dim=0)
loss = -((score_by_time - at_risk) * died_by_time).sum() / died.sum()
loss.backward()
print(loss.item(), score.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.argsort(time)",
            "torch.argsort(2 * time)",
            T(en="In another unit the times have the same order.", zh="换一个单位，时间的次序不变。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.logcumsumexp.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.argsort.html",
    ),
)
