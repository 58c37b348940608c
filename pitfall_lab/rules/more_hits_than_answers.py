"""PL981: a curve of recall rises above 1: one right answer is counted as found by several candidates."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import decimal, values
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

DIVIDES = spellings("div")
CHANGED = {"float", "double", "long", "int", "to", "view", "reshape", "squeeze", "__getitem__", "gather", "cat",
           "index_select", "flatten", "contiguous", "clone"}  # fmt: skip
"""Calls that choose or keep numbers."""
TRUTHS = spellings("eq") | {"ne", "ge", "gt", "le", "lt", "isin", "logical_and", "logical_or", "__and__", "__or__"}
"""Calls whose result says what is a hit."""
RANKS = {"arange", "ones_like", "ones"}
"""Calls whose result, cumulated or not, counts the ranks."""
PAIR, FURTHER, FEWEST = 2, 30, 4
ABOVE = 1.001
"""A recall above this is no rounding."""


@dataclass(frozen=True, slots=True)
class HitsBeyondAnswers:
    """``counts`` is the call (``Event``) of a ``cumsum`` that counts hits, in the end ``hits`` of them; ``recall`` is
    the call that divides these counts by the number ``answers``, which is smaller than ``hits``.

    ``precision`` is the call that divides the same counts by the ranks.
    """

    counts: Event
    recall: Event
    precision: Event
    hits: int
    answers: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes a recall above 1: it divides the running count of hits (``cumsum``)
    by a number of answers that is smaller than the last count.

    Only if the program also computes the precision: divides these counts by the ranks 1, 2, …
    """
    told: set[Span | None] = set()
    for counts in story.calls("cumsum"):
        found = _beyond(story, counts) if counts.error is None and counts.results else None
        if found is not None and story.span(found.recall.step) not in told:
            told.add(story.span(found.recall.step))
            yield _finding(story, found)


def _beyond(story: Story, counts: Event) -> HitsBeyondAnswers | None:
    if len(story.shape(counts.results[0], counts.step) or ()) != 1 or not _is_truth(story, counts):
        return None
    size = prod(story.shape(counts.results[0], counts.step) or ())
    shares = [
        use
        for use in _divisions(story, counts.results[0])
        if len(use.operands) == PAIR and use.error is None and use.results
    ]
    precision = next((use for use in shares if _is_rank(story, use, size)), None)
    last = Elements(story, counts.results[0], counts.step).at((size - 1,)) if size >= FEWEST else None
    for use in shares if precision is not None and last is not None else ():
        answers = _single(story, use)
        if precision is not None and last is not None and answers is not None and 0 < answers * ABOVE < last <= size:
            return HitsBeyondAnswers(counts, use, precision, int(last), answers)
    return None


def _divisions(story: Story, label: str) -> Iterator[Event]:
    """Yield the calls that divide the counts, directly or after a conversion."""
    pending, seen = [label], {label}
    while pending and len(seen) < FURTHER:
        here = pending.pop()
        for use in story.uses(here):
            if use.name in DIVIDES and use.operands[0].label == here:
                yield use
            elif use.name in CHANGED - {"__getitem__", "cat"} and use.results and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])


def _is_truth(story: Story, counts: Event) -> bool:
    """Whether what is counted is a bool tensor, or was converted from the result of a comparison."""
    label, step = counts.operands[0].label, counts.step
    for _ in range(FURTHER):
        if (story.tensor(label, step) or {}).get("dtype") == "bool":
            return True
        made = made_by(story, label, step)
        if made is None or not made.operands or made.operands[0].label is None:
            return False
        if made.name not in CHANGED:
            return made.name in TRUTHS
        label, step = made.operands[0].label, made.step
    return False


def _is_rank(story: Story, use: Event, size: int) -> bool:
    """Whether a quotient divides by a vector of ``size`` numbers that begins with 1 and ends with ``size``, as ranks
    do.
    """
    other = use.operands[1].label
    if other is None or story.shape(other, use.step) != (size,):
        return False
    held = Elements(story, other, use.step)
    return (held.at((0,)), held.at((size - 1,))) == (1, size)


def _single(story: Story, use: Event) -> float | None:
    """The number that a call divides by; None if it is not one number."""
    other = use.operands[1]
    if other.label is None:
        return decimal(other.text)
    held = values(story, other.label, use.step) if prod(story.shape(other.label, use.step) or ()) == 1 else []
    return held[0] if len(held) == 1 else None


def _finding(story: Story, found: HitsBeyondAnswers) -> Finding:
    here, step = at_line(story, story.span(found.recall.step)), found.recall.step
    share, answers = number(found.hits / found.answers), number(found.answers)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} divides up to {found.hits} hits by {answers} right answers: that is a recall of "
            f"{share}, and nothing can be found more than once.",
            zh=f"{here.zh}把最多 {found.hits} 个命中除以 {answers} 个正确答案：召回率成了 {share}，而每个答案最多只能被"
            "找到一次。",
        ),
        T(
            en="Several candidates stand for the same right answer, as detections of one object do, and each of them "
            "is counted as a hit. Only the first one in the order of the scores is one, the others are false alarms; "
            "both curves are too high, precision and recall. Keep, for each right answer, whether it has been taken, "
            "and count a candidate only if its answer is still free.",
            zh="有几个候选对应同一个正确答案，例如对同一个物体的多次检测，而每一个都被算作命中。按分数的次序，只有第一个"
            "才是命中，其余的都是误报。所以精确率和召回率两条曲线都偏高。请为每个正确答案记下它是否已被占用，只有在答案"
            "仍空闲时才计入候选。",
        ),
        related=[
            story.related("made", found.counts.step, T(en="the hits are counted here", zh="在这里累计命中数")),
            story.related(
                "used", found.precision.step, T(en="the precision uses the same counts", zh="精确率用的是同样的计数")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("hits", found.hits, story.by(step)), Fact("answers", found.answers, story.by(step))],
    )


def _fixes(story: Story, found: HitsBeyondAnswers) -> tuple[Fix, ...]:
    """At most one fix, where a loop marks the hits one by one: when an answer is found, it sets the column of this
    answer to zero in the table whose row maxima are taken.
    """
    program = story.program
    for write in story.calls("__setitem__"):
        record = story.tensor(write.operands[0].label) or {}
        statement = program.statement_at(story.span(write.step))
        if write.step > found.counts.step or record.get("dtype") != "bool" or not isinstance(statement, ast.Assign):
            continue
        search = next(
            (e for e in reversed(story.events[: write.step]) if e.name == "max" and len(e.results) == PAIR), None
        )
        row = made_by(story, search.operands[0].label, search.step) if search is not None else None
        if search is None or row is None or row.name != "__getitem__":
            continue
        table, answer = written_as(story, row, row.operands[0].label), story.name(search.results[1], write.step)
        if len(story.shape(row.operands[0].label, row.step) or ()) != PAIR or not isinstance(table, ast.Name):
            continue
        if answer is None or not answer.isidentifier() or program.function(table) is not program.function(statement):
            continue
        new = f"{table.id}[:, {answer}] = 0"
        title = T(en=f"Take each answer once: `{new}`", zh=f"每个答案只取一次：`{new}`")
        return unique(program.text, [Fix(title, program.insert_after(statement, new), meaning="later")])
    return ()


RULE = Rule(
    code="PL981",
    name="more-hits-than-answers",
    severity="warning",
    title=T(en="More hits are counted than there are right answers", zh="计入的命中比正确答案还多"),
    what=T(
        en="A program goes down a list of candidates, best first, and counts those that meet a right answer. Several "
        "candidates meet the same one, and all are counted, so in the end more is found than there is. Mark each "
        "right answer as taken by the first candidate that meets it.",
        zh="程序从最好的开始依次查看候选，并统计与某个正确答案相符的候选。有几个候选与同一个答案相符，却全都被计入，最后"
        "找到的比实际存在的还多。请在第一个相符的候选处把这个正确答案标记为已占用。",
    ),
    why=T(
        en="`cumsum` of the hits in the order of the scores, divided by 1, 2, 3, …, is the precision, and divided by "
        "the number of right answers the recall; the area under the curve of both is the average precision. A recall "
        "is a share and ends at 1 or below. torch does not know what the counts mean, so a recall of 2 is only a "
        "number.",
        zh="按分数次序的命中的 `cumsum`，除以 1、2、3…… 是精确率，除以正确答案的个数是召回率；两者曲线下的面积就是平均"
        "精确率。召回率是一个份额，最后不超过 1。torch 不知道这些计数的含义，所以召回率为 2 也只是一个数。",
    ),
    advice=T(
        en="keep which right answers are already taken, and count a candidate as a hit on {made} only if its answer is "
        "still free.",
        zh="记下哪些正确答案已被占用，在{made}只有当候选的答案仍空闲时才把它计为命中。",
    ),
    bad="""import torch

score = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
overlap = torch.tensor([[0.9, 0.0], [0.8, 0.1], [0.0, 0.7], [0.7, 0.0], [0.1, 0.6], [0.2, 0.2]])
order = score.argsort(descending=True)
hit = torch.zeros(6, dtype=torch.bool)
for i in order.tolist():
    best, answer = overlap[i].max(0)
    if best > 0.5:
        hit[i] = True
found = hit[order].cumsum(0)  # made
precision = found / torch.arange(1, 7)  # used
recall = found / 2  # PL981
print(precision, recall)
""",
    good="""import torch

score = torch.tensor([0.9, 0.8, 0.7, 0.6, 0.5, 0.4])
overlap = torch.tensor([[0.9, 0.0], [0.8, 0.1], [0.0, 0.7], [0.7, 0.0], [0.1, 0.6], [0.2, 0.2]])
order = score.argsort(descending=True)
hit = torch.zeros(6, dtype=torch.bool)
for i in order.tolist():
    best, answer = overlap[i].max(0)
    if best > 0.5:
        hit[i] = True
        overlap[:, answer] = 0
found = hit[order].cumsum(0)
precision = found / torch.arange(1, 7)
recall = found / 2
print(precision, recall)
""",
    find=find,
    traps=(
        Trap(
            "recall = found / 2",
            "recall = (found / 2).clamp(max=1)",
            T(
                en="The recall then ends at 1, and is reached by candidates that are false alarms.",
                zh="召回率这样止于 1，但达到它的候选其实是误报。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.cumsum.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.argsort.html",
    ),
)
