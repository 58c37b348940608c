"""PL921: equal scores get ranks one after the other, by their order in the tensor, and a statistic of the ranks depends
on that order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import MODULES
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Counted, Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

KINDS = ("ranked", "correlated", "cumulated")
ADDS = spellings("matmul") | {
    "corrcoef",
    "cosine_similarity",
    "cov",
    "dot",
    "inner",
    "mean",
    "sum",
    "trapezoid",
    "trapz",
}
"""Calls that make one number of many."""
THROUGH = (
    spellings("add", "mul", "pow") | spellings("div", "sub", in_place=True)
    | {"__getitem__", "cat", "cumsum", "double", "flatten", "float", "long", "reshape", "square", "stack", "to", "view"}
)  # fmt: skip
"""Calls that ranks are followed through on the way to a sum."""
WRITES = {"__setitem__", "index_copy_", "index_put_", "scatter_"}
"""Calls by which ranks are written to the places of a sort."""
APART = {"diff", "searchsorted", "unique", "unique_consecutive"}
"""Calls by which a program finds where scores differ."""
FURTHER = 60


@dataclass(frozen=True, slots=True)
class EqualRanked:
    """``sort`` is the call (``Event``) that sorted scores, ``use`` the call that picks, weighs or cumulates by the
    positions, ``total`` the call that makes a number of the result, and ``made`` the call that made the ranks; None if
    there is none.

    ``count`` of ``of`` scores are equal to another one. ``came`` is the number that was computed, ``meant`` the number
    with shared ranks, and ``low`` and ``high`` are the least and the most that it can be for other orders of equal
    scores.
    """

    sort: Event
    use: Event
    total: Event
    made: Event | None
    kind: str
    count: int
    of: int
    came: float
    meant: float
    low: float
    high: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a sort of scores many of which are equal, if a sum, a mean or a correlation
    of the ranks, or of the labels in sorted order, would clearly change with another order of the equal scores.
    """
    reported = set()
    for counted in (each for each in story.trace.beside.counted if each.kind in KINDS):
        found = _equal_ranked(story, counted)
        if found is not None and (place := story.span(found.sort.step)) not in reported:
            reported.add(place)
            yield _finding(story, found)


def _equal_ranked(story: Story, counted: Counted) -> EqualRanked | None:
    """The data of the finding; None if no number is made of the ranks or cumulated labels, or if the program itself
    handles equal scores.
    """
    came, meant, low, high, at = counted.numbers
    sort, use = story.event(int(at)), story.event(counted.step)
    if sort is None or use is None or not sort.results or not use.results:
        return None
    if counted.kind == "cumulated" and (_is_sorted_used(story, sort) or any(True for _ in story.calls(*APART))):
        return None
    total = use if use.name in ADDS else _total(story, use)
    if total is None:
        return None
    made = next((each for each in story.uses(sort.results[-1]) if each.step > sort.step and _ranks(sort, each)), None)
    if made is None and counted.kind != "cumulated":
        return None  # the numbers are those of a count in an order that was there already
    return EqualRanked(sort, use, total, made, counted.kind, counted.count, counted.of, came, meant, low, high)


def _ranks(sort: Event, use: Event) -> bool:
    """Whether a call turns the positions that sort the scores into ranks: it sorts them once more, or writes at
    them.
    """
    is_first = bool(use.operands) and use.operands[0].label == sort.results[-1]
    return (use.name in ("sort", "argsort") and is_first) or (use.name in WRITES and not is_first)


def _total(story: Story, use: Event) -> Event | None:
    pending, seen = [use.results[0]], {use.results[0]}
    while pending and len(seen) < FURTHER:
        for each in (each for each in story.uses(pending.pop(0)) if each.step > use.step and each.results):
            if each.name in ADDS:
                return each
            if each.name in THROUGH and each.results[0] not in seen:
                seen.add(each.results[0])
                pending.append(each.results[0])
    return None


def _is_sorted_used(story: Story, sort: Event) -> bool:
    """Whether the scores are used in the order of the sort: as its first result, or picked by its positions."""
    given = sort.operands[0].label
    if len(sort.results) > 1 and any(use.step > sort.step for use in story.uses(sort.results[0])):
        return True
    picks = (use for use in story.uses(given) if use.step > sort.step and use.operands[0].label == given)
    return any(o.label == sort.results[-1] for use in picks for o in use.operands[1:])


def _finding(story: Story, found: EqualRanked) -> Finding:
    sort = found.sort
    here, there = at_line(story, story.span(sort.step)), at_line(story, story.span(found.total.step))
    what = expression(story, sort.operands[0].label, sort.step)
    came, meant, low, high = (number(round(each, 4)) for each in (found.came, found.meant, found.low, found.high))
    measure = T(en="the correlation of these ranks", zh="这些名次的相关系数")
    if found.kind == "ranked":
        measure = T(
            en="the share of pairs in which the picked element has the higher rank (the area under the ROC curve)",
            zh="被选中的元素名次更高的配对所占的比例（ROC 曲线下面积）",
        )
    elif found.kind == "cumulated":
        measure = T(
            en="the share of pairs in which the labelled element comes first (the area under the ROC curve)",
            zh="带标签的元素排在前面的配对所占的比例（ROC 曲线下面积）",
        )
    return RULE.finding(
        story.span(sort.step),
        sort.step,
        T(
            en=f"{capital(here.en)} sorts {what.en}, of whose {found.of:,} elements {found.count:,} are equal to "
            f"another one, and {there.en} makes a number of their places: if equal elements shared their places, it "
            "would be another.",
            zh=f"{here.zh}给 {what.zh} 排序，其 {found.of:,} 个元素中有 {found.count:,} 个与别的元素相等，而{there.zh}"
            "由它们的位置算出一个数：如果相等的元素共享名次，结果会不同。",
        ),
        T(
            en=f"Equal elements stay in the order in which they stand, or in any other, and each gets a place of its "
            f"own. Here {measure.en} is {came}. Another order of the same rows can make it anything from {low} to "
            f"{high}. If equal elements share the mean of their ranks it is {meant}, in any order.",
            zh=f"相等的元素按它们原来的次序或任意次序排列，每个都得到自己的位置。这里{measure.zh}是 {came}。同样的行换"
            f"一种次序，可以得到 {low} 到 {high} 之间的任何值。相等的元素取平均名次时，无论什么次序都是 {meant}。",
        ),
        related=[story.related("used", found.total.step, T(en="a number is made of it here", zh="在这里算成一个数"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("equal", found.count, story.by(sort.step)),
            Fact("came", found.came, story.by(found.use.step)),
            Fact("meant", found.meant, story.by(found.use.step)),
        ],
    )


def _fixes(story: Story, found: EqualRanked) -> tuple[Fix, ...]:
    """At most one fix: equal scores get the mean of their ranks, or of their labels.

    Empty if the program's source does not show the scores, and the ranks where they are written or sorted.
    """
    program = story.program
    node = program.at(story.span(found.sort.step))
    scores = _scores(program.segment, node)
    if scores is None:
        return ()
    group, size = ("group", "size") if not _reads(program.nodes) & {"group", "size"} else ("group_", "size_")
    line = f"_, {group}, {size} = {scores}.unique(return_inverse=True, return_counts=True)"
    title = T(en="Give equal scores the mean of their ranks", zh="让相等的分数取名次的平均")
    made = found.made
    at = program.at(story.span(made.step)) if made is not None else None
    statement = program.statement_at(story.span((made or found.sort).step))
    if statement is None or not program.stands_alone(statement):
        return ()
    if made is not None and made.name in WRITES:
        ranks = written_as(story, made, made.operands[0].label)
        if ranks is None:
            return ()
        text = program.segment(ranks)
        mean = f"{text} = ({text}.new_zeros(len({size})).index_add(0, {group}, {text}) / {size})[{group}]"
        return unique(program.text, [Fix(title, program.insert_after(statement, line, mean), meaning="later")])
    if made is not None and isinstance(at, ast.Call):
        rank_of: ast.AST = at
        if call_name(at) == "sort":
            around = program.parents.get(at)
            if isinstance(around, ast.Subscript):
                is_second = program.segment(around.slice) in ("1", "-1")
            else:
                is_second = isinstance(around, ast.Attribute) and around.attr == "indices"
            if around is None or not is_second:
                return ()
            rank_of = around
        place = program.place(statement)
        start = Span(place.line, place.column, place.line, place.column)
        glue = "\n" + program.indent(statement)
        rank = f"({size}.cumsum(0) - ({size} + 1) / 2)[{group}]"
        edits = program.splice((start, line + glue), (program.place(rank_of), rank))
        return unique(program.text, [Fix(title, edits, meaning="later")])
    return ()


def _scores(segment: object, node: ast.AST | None) -> str | None:
    """The text of scores whose ascending order a sort gives; None if the program's source shows no sort."""
    if not callable(segment) or not isinstance(node, ast.Call) or call_name(node) not in ("sort", "argsort"):
        return None
    owner = node.func.value if isinstance(node.func, ast.Attribute) else None
    given = node.args[0] if (owner is None or segment(owner) in MODULES) and node.args else owner
    if given is None:
        return None
    text = str(segment(given))
    falls = any(k.arg == "descending" and not (isinstance(k.value, ast.Constant) and k.value.value is False)
                for k in node.keywords)  # fmt: skip
    plain = isinstance(given, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
    text = text if plain else f"({text})"
    return f"(-{text})" if falls else text


def _reads(nodes: list[ast.AST]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name)}


RULE = Rule(
    code="PL921",
    name="ranks-of-equal-scores",
    severity="warning",
    title=T(en="Equal scores have different ranks", zh="相等的分数得到不同的名次"),
    what=T(
        en="A program ranks its scores by sorting them, and many scores are equal. Each of the equal ones gets a rank "
        "of its own, by where it stands in the data, so what is computed from the ranks changes with the order of the "
        "rows. Give equal scores the mean of their ranks.",
        zh="程序用排序给分数排名次，而许多分数相等。相等的分数各自得到不同的名次，取决于它们在数据中的位置，所以由名次算出"
        "的结果随行的次序而变。请让相等的分数取名次的平均。",
    ),
    why=T(
        en="A sort has to put equal numbers in some order; with `stable=True` it is that of the data, without it any "
        "one. Where the data has all negatives first and all positives last, each equal pair counts as won, and the "
        "coarser the scores are, the better a model seems. A rank correlation or an area under a curve counts an equal "
        "pair half. That is what mean ranks do: `_, group, size = x.unique(return_inverse=True, return_counts=True)` "
        "and `(size.cumsum(0) - (size - 1) / 2)[group]`.",
        zh="排序必须给相等的数一个次序；用 `stable=True` 就是数据中的次序，否则是任意的次序。如果数据中负例都在前、正例"
        "都在后，每一对相等的都算赢，于是分数越粗糙，模型看起来越好。名次相关系数和曲线下面积把相等的一对算一半。平均"
        "名次正是这样：`_, group, size = x.unique(return_inverse=True, return_counts=True)` 和 "
        "`(size.cumsum(0) - (size - 1) / 2)[group]`。",
    ),
    advice=T(
        en="give equal scores on {line} the mean of their ranks, as `unique` with `return_inverse` and "
        "`return_counts` finds them.",
        zh="让{line}中相等的分数取名次的平均，可用 `unique` 的 `return_inverse` 和 `return_counts` 找出它们。",
    ),
    bad="""import torch

score = torch.tensor([1.0, 2, 2, 3, 1, 2, 2, 3, 3, 2, 3, 3])
label = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
rank = score.argsort(stable=True).argsort() + 1  # PL921
n = label.sum()
area = (rank[label == 1].sum() - n * (n + 1) / 2) / (n * (len(label) - n))  # used
print(area)
""",
    good="""import torch

score = torch.tensor([1.0, 2, 2, 3, 1, 2, 2, 3, 3, 2, 3, 3])
label = torch.tensor([0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
_, group, size = score.unique(return_inverse=True, return_counts=True)
rank = (size.cumsum(0) - (size + 1) / 2)[group] + 1
n = label.sum()
area = (rank[label == 1].sum() - n * (n + 1) / 2) / (n * (len(label) - n))
print(area)
""",
    find=find,
    traps=(
        Trap(
            "score.argsort(stable=True)",
            "score.argsort()",
            T(
                en="Without `stable=True` the order of equal scores is any one; each still has a rank of its own.",
                zh="不用 `stable=True` 时相等分数的次序是任意的；每个仍有自己的名次。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.argsort.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.unique.html",
    ),
)
