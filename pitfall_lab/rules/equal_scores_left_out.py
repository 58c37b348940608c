"""PL919: the rank of the right answer counts only the better scores, so that among equal scores the right answer is
always first.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, key, made_by
from pitfall_lab.trace import Counted, Event, T
from pitfall_lab.trace.operation_facts import spellings

PICKS = {"gather", "take_along_dim", "__getitem__", "index_select", "diagonal", "diag", "take", "select"}
"""Calls that select the one score of each row from all scores."""
ORDERS = {"topk", "sort", "kthvalue", "median", "unique", "quantile", "msort"}
"""Calls whose results are sorted, or are selected by their size: an index into them is not a label."""
KEEPS = SAME_NUMBERS | spellings("index_fill", "masked_fill", in_place=True) | {"__setitem__", "where"}
"""Calls that leave most scores unchanged."""
SAME_PLACES = {"float", "to", "int", "long", "double", "half", "type", "clone", "contiguous", "cpu", "detach"}
"""Calls that convert the results of a comparison."""
COUNTS = {"sum", "count_nonzero"}
ADDS = spellings("add", in_place=True)
DISCOUNTS = {"__rdiv__", "__rtruediv__", "log", "log1p", "log2", "reciprocal"}
"""Calls by which a rank is turned into a gain."""
EQUALS = spellings("eq", "ge", "gt", "le", "lt", "ne") | {"isclose"}
"""Calls with which a program can count the equal scores too."""
FURTHER, ROWS = 12, 3
SHARE, SHIFT, PART = 0.05, 0.25, 0.1
"""The least fraction of rows with equal scores, and the least change of the mean rank, absolute and relative."""
SIGNS = {ast.Gt: ">", ast.Lt: "<"}


@dataclass(frozen=True, slots=True)
class Tied:
    """``event`` is the first call (``Event``) on its line that compares all scores of each row with the score of the
    right answer; ``count`` is the call that adds up how many are better, which is the rank.

    ``rows`` counts the rows of all calls there, ``equal`` those of them in which other scores equal that of the answer.
    ``first`` is the mean rank of all rows, and ``middle`` the mean rank if half of the equal scores are counted as
    better. ``apart`` is True if the answer's score is not among the scores that it is compared with.
    """

    event: Event
    count: Event
    rows: int
    equal: int
    first: float
    middle: float
    apart: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that counts the better scores for a rank, where in at least the fraction
    ``SHARE`` of the rows other scores equal that of the answer, and the mean rank would be clearly larger if half of
    them were counted.

    Nothing if the program counts the equal scores too.
    """
    reported = set()
    for counted in (each for each in story.trace.beside.counted if each.kind == "tied"):
        found = _tied(story, counted)
        place = story.span(counted.step)
        if found is not None and place not in reported:
            reported.add(place)
            yield _finding(story, found)


def _tied(story: Story, counted: Counted) -> Tied | None:
    """Return the data of the finding for a comparison; None if equal scores are few, the one score was not selected by
    a label, the results are not added up, or the program compares the same scores in another call.
    """
    first, middle = counted.numbers
    event = story.event(counted.step)
    if event is None or counted.of < ROWS or counted.count < SHARE * counted.of:
        return None
    if middle - first < max(SHIFT, PART * first) or not event.results:
        return None
    labels = [o.label for o in event.operands if o.label is not None]
    shape = story.shape(event.results[0], event.step)
    single = next((each for each in labels if story.shape(each, event.step) != shape), None)
    table = next((each for each in labels if each != single), None)
    if single is None or table is None or not _is_picked(story, single, table, event.step):
        return None
    if any(_is_alike(story, event, other) for other in story.calls(*EQUALS)):
        return None
    count, apart = _added(story, event), _is_apart(story, single, table, event.step)
    if count is None or (apart and not _is_rank(story, count)):
        return None
    return Tied(event, count, counted.of, counted.count, first, middle, apart)


def _memories(story: Story, label: str, step: int) -> set[object]:
    """Return the storages of a tensor, and of the tensors that it has most of its numbers from."""
    found: set[object] = {(story.tensor(label, step) or {}).get("storage")}
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or made.name not in KEEPS or not given:
            break
        shape = story.shape(label, step)
        # of torch.where(mask, a, b) the scores are the ones that are no mask
        full = [g for g in given if g != label and "bool" not in str((story.tensor(g, made.step) or {}).get("dtype"))]
        source = next((each for each in full if story.shape(each, made.step) == shape), next(iter(full), None))
        if source is None:
            break
        label, step = source, made.step
        found.add((story.tensor(label, step) or {}).get("storage"))
    return found - {None}


def _is_picked(story: Story, single: str, table: str, step: int) -> bool:
    """Whether the one score of each row was selected from all scores by an index that was not computed by sorting
    them.
    """
    memories = _memories(story, table, step)
    for _ in range(FURTHER):
        made = made_by(story, single, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given:
            return False
        if made.name in PICKS and _memories(story, given[0], made.step) & memories:
            return not any(_is_ordered(story, each, made.step) for each in given)
        if made.name not in SAME_NUMBERS | {"__getitem__"}:
            return False
        single, step = given[0], made.step
    return False


def _is_ordered(story: Story, label: str, step: int) -> bool:
    """Whether a tensor was computed by a call that sorts or selects by size (:data:`ORDERS`), apart from views."""
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is not None and made.name in ORDERS:
            return True
        if made is None or not given or made.name not in SAME_NUMBERS | {"__getitem__"} or given[0] == label:
            return False
        label, step = given[0], made.step
    return False


def _is_alike(story: Story, event: Event, other: Event) -> bool:
    """Whether another call, on another line or with another operation, compares the same two tensors, so that it can
    count the equal scores.
    """
    if other.step == event.step or (other.span == event.span and other.op == event.op) or other.error is not None:
        return False
    wanted, given = (
        [key(story, o.label, each.step) for o in each.operands if o.label is not None] for each in (event, other)
    )
    return len(given) > 1 and set(given) == set(wanted)


def _added(story: Story, event: Event) -> Event | None:
    """Return the call that adds up the results of a comparison; None if there is none."""
    pending, seen = [event.results[0]], {event.results[0]}
    while pending and len(seen) < FURTHER:
        for use in (use for use in story.uses(pending.pop()) if use.step > event.step and use.results):
            if use.name in COUNTS:
                return use
            if use.name in SAME_PLACES and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return None


def _is_apart(story: Story, single: str, table: str, step: int) -> bool:
    """Whether the one score of each row and the others are two slices of one tensor."""
    one, other = (made_by(story, each, step) for each in (single, table))
    return (
        one is not None
        and other is not None
        and one.name == other.name == "__getitem__"
        and one.operands[0].label == other.operands[0].label
    )


def _is_rank(story: Story, count: Event) -> bool:
    """Whether the count is used as a rank: a number is divided by it, or its logarithm or reciprocal is taken."""
    pending, seen = [count.results[0]], {count.results[0]}
    while pending and len(seen) < FURTHER:
        for use in (use for use in story.uses(pending.pop()) if use.step > count.step and use.results):
            if use.name in DISCOUNTS:
                return True
            if use.name in SAME_PLACES | ADDS and use.results[0] not in seen:
                seen.add(use.results[0])
                pending.append(use.results[0])
    return False


def _finding(story: Story, found: Tied) -> Finding:
    event = found.event
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.count.step))
    first, middle = number(found.first), number(found.middle)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} finds the scores that are better than that of the right answer. In {found.equal:,} "
            f"of {found.rows:,} rows others are equal to it, and none of them counts: the mean rank is {first}, and "
            f"{middle} if half of them come before the answer.",
            zh=f"{here.zh}找出比正确答案更好的分数。{found.rows:,} 行中有 {found.equal:,} 行还有与它相等的分数，这些都"
            f"没有计入：平均名次是 {first}，如果其中一半排在答案之前，则是 {middle}。",
        ),
        T(
            en=f"{capital(there.en)} adds up the better ones, so of equal scores the answer is always the first. The "
            "less a model tells entries apart, the better its rank; one that gives all of them the same score has "
            "rank 1 everywhere. Count half of the other equal ones as better: an order by chance has this mean.",
            zh=f"{there.zh}把更好的加起来，所以在相等的分数中答案总是第一。模型越分不清各项，名次反而越好；给所有项同样"
            "分数的模型，处处都是第 1 名。请把其余相等的分数的一半算作更好：随机排列的平均就是这样。",
        ),
        related=[story.related("used", found.count.step, T(en="the better ones are counted here", zh="在这里计数"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("first", found.first, story.by(event.step)),
            Fact("middle", found.middle, story.by(event.step)),
        ],
    )


def _fixes(story: Story, found: Tied) -> tuple[Fix, ...]:
    """At most one fix: it adds half of the other equal scores to the count.

    Empty if the program does not show the comparison and, on the same line or by a variable, the sum of its results.
    """
    program = story.program
    node, count = (program.at(story.span(step)) for step in (found.event.step, found.count.step))
    equal = _as_equal(program.segment, node)
    if equal is None or not isinstance(count, ast.Call) or node is None:
        return ()
    statement = program.statement_at(story.span(found.event.step))
    inside = next((each for each in ast.walk(count) if each is node), None)
    if inside is None and isinstance(statement, ast.Assign):
        names = {program.segment(each) for each in statement.targets}
        inside = next((each for each in ast.walk(count) if program.segment(each) in names), None)
    if inside is None:
        return ()
    text, part = program.segment(count), program.segment(inside)
    whole = text.replace(f"({part})", part, 1) if f"({part})." in text else text
    own = "" if found.apart else " - 1"
    new = f"({text} + ({whole.replace(part, equal, 1)}{own}) / 2)"
    title = T(en="Add half of the other equal scores to the rank", zh="把其余相等分数的一半加到名次上")
    return unique(program.text, [Fix(title, program.replace((count, new)), meaning="later")])


def _as_equal(segment: object, node: ast.AST | None) -> str | None:
    """Return the source of a comparison by ``>`` or ``<`` with ``==`` instead; None if ``node`` is none."""
    if not callable(segment):
        return None
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in SIGNS:
        return f"({segment(node.left)} == {segment(node.comparators[0])})"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("gt", "lt"):
        arguments = str(segment(node))[len(str(segment(node.func))) :]
        return f"{segment(node.func.value)}.eq{arguments}"
    return None


RULE = Rule(
    code="PL919",
    name="equal-scores-left-out",
    severity="warning",
    title=T(en="A rank leaves out the scores that are equal to the answer's", zh="名次没有计入与答案相等的分数"),
    what=T(
        en="A program counts how many entries have a better score than the right one, and calls this its rank. Entries "
        "with the same score are not counted, so a model that gives all of them one score seems perfect. Count half of "
        "them: `(s > t).sum(1) + ((s == t).sum(1) - 1) / 2 + 1`.",
        zh="程序数出有多少项的分数比正确项更好，当作它的名次。分数相同的项没有计入，所以给所有项同一个分数的模型看起来完美"
        "无缺。请把它们的一半也算上：`(s > t).sum(1) + ((s == t).sum(1) - 1) / 2 + 1`。",
    ),
    why=T(
        en="`s > t` is false for equal numbers, so of equal scores the right one is put first. Scores are equal more "
        "often than one expects: where a model knows nothing of an entry and gives it 0, where a ReLU or a sigmoid has "
        "reached its end, and in half precision. `>=` puts the right one last instead. Half of the others is what an "
        "order by chance gives on average.",
        zh="对相等的数，`s > t` 为假，所以在相等的分数中正确的一项被排在第一。分数相等比想象的更常见：模型对某项一无所"
        "知而给 0，ReLU 或 sigmoid 到了尽头，或者使用半精度。`>=` 则把正确的一项"
        "排在最后。其余的一半，正是随机排列的平均。",
    ),
    bad="""import torch

scores = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0.7, 0, 0], [0.2, 0, 0, 0.9, 0], [0, 0, 0, 0, 0.4]])
answer = torch.tensor([1, 2, 4, 0])
own = scores.gather(1, answer[:, None])
rank = (scores > own).sum(1) + 1  # PL919 used
print(rank, (1 / rank).mean())
""",
    good="""import torch

scores = torch.tensor([[0.0, 0, 0, 0, 0], [0, 0, 0.7, 0, 0], [0.2, 0, 0, 0.9, 0], [0, 0, 0, 0, 0.4]])
answer = torch.tensor([1, 2, 4, 0])
own = scores.gather(1, answer[:, None])
rank = (scores > own).sum(1) + ((scores == own).sum(1) - 1) / 2 + 1
print(rank, (1 / rank).mean())
""",
    find=find,
    traps=(
        Trap(
            "(scores > own).sum(1) + 1",
            "(scores >= own).sum(1)",
            T(
                en="Now the answer is the last of all equal ones, and a model that is often undecided seems worse "
                "than it is.",
                zh="现在答案成了所有相等项中的最后一个，常常分不出高下的模型看起来比实际更差。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.gt.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.gather.html",
    ),
)
