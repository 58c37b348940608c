"""PL774: a ratio of counts, or a root, is computed for each batch and averaged, which is not that of all the data."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, reads, receiver, torch_name
from pitfall_lab.rules.kit.text_origins import parameters
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.batches import behind
from pitfall_lab.rules.signals.binned_gaps import BinnedGap, gaps, of_all
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

TWO: dict[str, Callable[[float, float], float]] = {
    **dict.fromkeys(spellings("add"), lambda a, b: a + b),
    **dict.fromkeys(spellings("sub", exchanged=True), lambda a, b: b - a),
    **dict.fromkeys(spellings("sub"), lambda a, b: a - b),
    **dict.fromkeys(spellings("mul"), lambda a, b: a * b),
    **dict.fromkeys(spellings("div", exchanged=True), lambda a, b: b / a),
    **dict.fromkeys(spellings("div"), lambda a, b: a / b),
    **dict.fromkeys(spellings("pow"), lambda a, b: a**b),
    **dict.fromkeys(spellings("clamp", "clamp_min"), max),
    "maximum": max,
    "max": max,
}
"""What each call of two numbers computes."""
ONE: dict[str, Callable[[float], float]] = {
    "sqrt": math.sqrt,
    "exp": math.exp,
    **dict.fromkeys(spellings("neg"), lambda a: -a),
    "reciprocal": lambda a: 1 / a,
}
"""What each call of one number computes."""
SAME = {
    "float",
    "double",
    "long",
    "int",
    "to",
    "squeeze",
    "unsqueeze",
    "detach",
    "cpu",
    "view",
    "reshape",
    "clone",
    "type",
    "flatten",
}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
SUMS = {"sum", "count_nonzero"}
MEANS = {
    "mean",
    "mse_loss",
    "l1_loss",
    "cross_entropy",
    "nll_loss",
    "binary_cross_entropy_with_logits",
    "binary_cross_entropy",
}
"""Calls whose result is a mean over the batch."""
ENTROPIES = ("cross_entropy", "nll_loss")
CUTS = SAME | {"__getitem__", "narrow", "select", "contiguous"}
"""Calls that take a part of the rows."""
COLLECTS = {"stack", "cat"}
ADDS = spellings("add", in_place=True)
TO_PYTHON = ("item", "__float__", "tolist")
"""Calls that return Python numbers, or an array."""
AVERAGES = {"mean", "fmean", "average", "nanmean"}
DIVIDES = spellings("div")
CURVES = ("exp", "sqrt")
PAIR, FEWEST, DEEP, APART, MOST = 2, 3, 40, 0.02, 60


@dataclass(frozen=True, slots=True)
class RatioAveragedOverBatches:
    """``average`` is the call (``Event``) that averaged the ``results``, each a number computed from one batch, or,
    where Python averages them, the conversion of the first one. Their average is ``mean``; computed once from all the
    data it would be ``whole``.

    ``results`` are pairs of a label and the step at which it was read. ``text`` is the expression of the average in the
    program's source; None where it is not found.
    """

    average: Event
    results: list[tuple[str, int]]
    mean: float
    whole: float
    text: ast.expr | None
    is_unequal: bool = False
    """Whether the batches have different sizes, such as documents."""
    is_binned: bool = False
    """Whether what is averaged is a sum of distances in bins."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that averages ratios, roots, exponentials or calibration errors of
    single batches, if the number for all data together is another one.

    Only if at least ``FEWEST`` of the results are known and nothing is trained with them.
    """
    reported = set()
    for average, results, text, after in (*_collected(story), *_added(story), *_converted(story)):
        place = story.span(average.step)
        found = None
        if place not in reported:
            found = _averaged(story, average, results, text, after) or _binned(story, average, results, text, after)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


Candidate = tuple[Event, list[tuple[str, int]], "ast.expr | None", str]
"""What averages, the numbers that it averages, its text, and the function of Python or NumPy that
each number goes through before.
"""


def _collected(story: Story) -> Iterator[Candidate]:
    """Yield, as candidates, means of tensors that were joined from at least ``FEWEST`` pieces, and quotients of their
    sums by a plain number.
    """
    for event in story.calls("mean", *DIVIDES):
        step, source = event.step, event.operands[0].label if event.operands else None
        if event.name != "mean":
            summed = made_by(story, source, step)
            if (
                summed is None
                or summed.name != "sum"
                or len(event.operands) != PAIR
                or event.operands[1].label is not None
            ):
                continue
            step, source = summed.step, summed.operands[0].label
        joined = made_by(story, source, step)
        if joined is not None and joined.name in COLLECTS and len(joined.operands) >= FEWEST:
            node = story.program.at(story.span(event.step)) if story.program.tree is not None else None
            labels = [(o.label, joined.step) for o in joined.operands if o.label is not None]
            yield event, labels, node if isinstance(node, ast.expr) else None, ""


def _added(story: Story) -> Iterator[Candidate]:
    """Yield, as candidates, quotients by a plain number of sums to which one line added a number in each of at least
    ``FEWEST`` rounds.
    """
    for event in story.calls(*DIVIDES):
        here, step, rounds = event.operands[0].label if event.operands else None, event.step, list[tuple[str, int]]()
        place = None
        while (
            (made := made_by(story, here, step)) is not None
            and made.name in ADDS
            and (place is None or made.span == place)
        ):
            given = [o.label for o in made.operands if o.label is not None]
            if not given or len(rounds) > DEEP:
                break
            rounds.append((given[-1], made.step))
            place, here, step = made.span, given[0] if len(given) > 1 else None, made.step
        if len(rounds) >= FEWEST and len(event.operands) > 1 and event.operands[1].label is None:
            yield event, rounds[::-1], None, ""


def _converted(story: Story) -> Iterator[Candidate]:
    """Yield, as candidates, the numbers that a line converted to Python numbers in each of at least ``FEWEST`` rounds,
    if the program's source averages them.
    """
    rounds: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*TO_PYTHON):
        if (
            event.operands
            and event.operands[0].label is not None
            and math.prod(story.shape(event.operands[0].label, event.step) or ()) == 1
        ):
            rounds[event.span, event.op, event.scope].append(event)
    for events in rounds.values():
        text, after = _average_of(story, events[0]) if len(events) >= FEWEST else (None, "")
        if text is not None:
            yield events[0], [(str(event.operands[0].label), event.step) for event in events], text, after


def _average_of(story: Story, event: Event) -> tuple[ast.expr | None, str]:
    """The expression that averages what a statement collects of ``event``, as ``sum(scores) / len(scores)``, and the
    function applied before it is collected.

    The second is "exp" for ``scores.append(math.exp(loss.item()))``, and empty if the number itself is collected. None
    and "" if the source shows no such average.
    """
    program, place = story.program, story.program.at(event.span)
    for statement in call_chain(story, event):
        curve = _curve(program, statement, place)
        bound = statement.targets[0] if isinstance(statement, ast.Assign) and len(statement.targets) == 1 else None
        later = [statement]
        if isinstance(bound, ast.Name):
            later += [
                each
                for each in program.block(statement)
                if isinstance(each, ast.stmt) and bound.id in reads(program, each)
            ]
        for each in later:
            name = _collects(each)
            if name is not None and (average := _average_named(program, name, each)) is not None:
                own = [
                    n
                    for n in ast.walk(each)
                    if each is not statement and isinstance(n, ast.Name) and n.id == getattr(bound, "id", "")
                ]
                return average, curve or next((c for n in own if (c := _curve(program, each, n))), "")
        place = place if place is None or program.statement(place) is not statement else None
    return None, ""


def _curve(program: Program, statement: ast.stmt, node: ast.AST | None) -> str:
    """The name of the exponential or root that is called around ``node``, or anywhere in the statement if ``node`` is
    None; empty if there is none.
    """
    around = program.ancestors(node) if node is not None else ast.walk(statement)
    return next((call_name(each) for each in around if isinstance(each, ast.Call) and call_name(each) in CURVES), "")


def _average_named(program: Program, name: str, statement: ast.stmt) -> ast.expr | None:
    function = program.function(statement)
    for node in program.nodes:
        if program.function(node) is not function or not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and name in reads(program, node.left):
            return node
        if isinstance(node, ast.Call) and call_name(node) in AVERAGES and name in reads(program, node):
            return node
    return None


def _collects(statement: ast.stmt) -> str | None:
    """The name that a statement adds to, appends to, or makes by a comprehension; None if it does none of these."""
    if (
        isinstance(statement, ast.AugAssign)
        and isinstance(statement.op, ast.Add)
        and isinstance(statement.target, ast.Name)
    ):
        return statement.target.id
    if (
        isinstance(statement, ast.Assign)
        and isinstance(statement.value, ast.ListComp)
        and isinstance(statement.targets[0], ast.Name)
    ):
        return statement.targets[0].id
    node = statement.value if isinstance(statement, ast.Expr) else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "append":
        return node.func.value.id if isinstance(node.func.value, ast.Name) else None
    return None


def _averaged(
    story: Story, average: Event, results: list[tuple[str, int]], text: ast.expr | None, after: str
) -> RatioAveragedOverBatches | None:
    """The data of the finding if each result is computed by one formula from a batch of its own, and their mean differs
    from the number of all batches together.

    None if not, if the results train something, or if fewer than ``FEWEST`` are known. Batches that differ in size,
    apart from a smaller last one, are compared only if everything in the formula is a mean, which then counts by its
    batch's size.
    """
    if any((story.tensor(label, step) or {}).get("requires_grad") for label, step in results) or _trains(
        story, results, after
    ):
        return None
    rounds: list[tuple[float, dict[str, float]]] = []
    batches, sizes = set(), list[int]()
    formula: BatchFormula | None = None
    for label, step in results:
        own = BatchFormula(story, label, step, after)
        value = next((v for _, v in Elements(story, label, step).known()), None)
        value = ONE[after](value) if after and value is not None else value
        of = (
            own.batch()
            if own.is_curved and value is not None and (formula is None or own.names == formula.names)
            else None
        )
        if of is None or value is None:
            continue  # the trace does not have it: its data come from a round that was not recorded
        if of[0] in batches:
            break
        formula = formula or own
        batches.add(of[0])
        sizes.append(of[1])
        rounds.append((value, own.leaves))
    if formula is None or len(rounds) < FEWEST:
        return None
    are_means = all(key.split()[0] in MEANS for key in formula.leaves)
    if len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0]:
        numbers = _compared(formula, rounds, sizes) if are_means else None
        is_unequal = True
    else:
        full = rounds[: len(rounds) - (sizes[-1] != sizes[0])]
        numbers, is_unequal = _compared(formula, full, [1] * len(full)), False
        if numbers is None and are_means and len(full) < len(rounds):
            numbers, is_unequal = _compared(formula, rounds, sizes), True
    return (
        RatioAveragedOverBatches(average, results[: len(rounds)], *numbers, text, is_unequal)
        if numbers is not None
        else None
    )


def _binned(
    story: Story, average: Event, results: list[tuple[str, int]], text: ast.expr | None, after: str
) -> RatioAveragedOverBatches | None:
    """The data of the finding if each result is a sum of distances in bins (a calibration error) of a batch of its own.

    None if not, if the results train something, if fewer than ``FEWEST`` are known, or if their mean is nearly the
    number of all batches together.
    """
    trained = any((story.tensor(label, step) or {}).get("requires_grad") for label, step in results)
    if after or trained or _trains(story, results, after):
        return None
    batches, known, means = set[object](), list[list[BinnedGap]](), list[float]()
    for label, step in results:
        own = gaps(story, label, step) if len(known) < MOST else None
        of = next(iter(behind(story, own[0].rows, own[0].step, cut=True)), None) if own else None
        if own is None or of is None:
            if not known:
                return None
            continue
        if (of.storage, of.rows) in batches:
            break
        batches.add((of.storage, of.rows))
        known.append(own)
        means.append(next(value for _, value in Elements(story, label, step).known()))
    if len(known) < FEWEST:
        return None
    mean, whole = sum(means) / len(means), of_all(known)
    if abs(whole - mean) <= APART * max(whole, mean):
        return None
    return RatioAveragedOverBatches(average, results[: len(known)], mean, whole, text, is_binned=True)


def _compared(
    formula: BatchFormula, rounds: list[tuple[float, dict[str, float]]], sizes: list[int]
) -> tuple[float, float] | None:
    """The mean of the rounds' numbers, and the number of all data together, in which a round counts by its size; None
    if they are nearly the same.
    """
    mean = sum(value for value, _ in rounds) / len(rounds)
    leaves = {
        key: sum(size * one[key] for size, (_, one) in zip(sizes, rounds, strict=True)) / sum(sizes)
        for key in formula.leaves
    }
    whole = formula.value(leaves)
    return None if whole is None or abs(whole - mean) <= APART * max(abs(whole), abs(mean)) else (mean, whole)


def _trains(story: Story, results: list[tuple[str, int]], after: str) -> bool:
    """Whether a backward ran between the results, or the call that computed the first gave results
    that require grad elsewhere.

    The second does not count where Python takes the exponential or root ``after``: that is not what is trained.
    """
    first, last = results[0][1], results[-1][1]
    if any(first < backward.step < last for backward in story.backwards()):
        return True
    made = made_by(story, *results[0]) if not after else None
    steps = story.steps_at[made.span, made.op] if made is not None else []
    return any((story.tensor(r, step) or {}).get("requires_grad") for step in steps for r in story.events[step].results)


class BatchFormula:
    """How the number in the tensor ``label`` was computed from others, down to sums and means over the rows of a batch.

    ``after`` is the name of a function that Python applies to it afterwards; empty if none. ``leaves`` are the values
    of those sums and means, each under a key for how it was computed; ``names`` are these keys and the names of the
    operations between. ``is_known`` is whether the way could be followed, ``is_curved`` whether it also has an
    operation that may make the average over batches differ from that of all data.
    """

    def __init__(self, story: Story, label: str, step: int, after: str = "") -> None:
        self.story = story
        self.names: list[str] = []
        self.leaves: dict[str, float] = {}
        self.is_known, self.is_curved = True, False
        self._tables: list[tuple[str, int]] = []
        self._seen: dict[str, str] = {}
        self.tree = self._walk(label, step, 0)
        if after:
            self.tree, self.is_curved = (after, self.tree), True
        self.is_curved = self.is_curved and self.is_known

    def _walk(self, label: str | None, step: int, depth: int) -> tuple[object, ...]:
        story = self.story
        made = made_by(story, label, step)
        if (
            made is None
            or depth > DEEP
            or label is None
            or not made.operands
            or math.prod(story.shape(label, step) or ()) != 1
        ):
            self.is_known = False
            return ()
        first = made.operands[0]
        wide = math.prod(story.shape(first.label, made.step) or ()) > 1
        if wide and made.name in SUMS | MEANS:
            return self._leaf(label, made)
        self.names.append(made.name)
        if made.name in SAME and not wide:
            return self._walk(first.label, made.step, depth + 1)
        given = [
            o for o in made.operands if o.label is not None or constant(story, None, o.text, made.step) is not None
        ][:2]
        sides = tuple(
            self._walk(o.label, made.step, depth + 1)
            if o.label is not None
            else (constant(story, None, o.text, made.step),)
            for o in given
        )
        if len(sides) == 1 and made.name in ONE:
            self.is_curved = self.is_curved or made.name != "neg"
            return made.name, *sides
        if len(sides) != 2 or made.name not in TWO:
            self.is_known = False
            return ()
        self.is_curved = self.is_curved or (
            made.name not in ("add", "sub") and (len(sides[1]) > 1 or made.name == "pow")
        )
        return made.name, *sides

    def _leaf(self, label: str, made: Event) -> tuple[object, ...]:
        story = self.story
        table, value = (
            str(made.operands[0].label),
            next((v for _, v in Elements(story, label, made.step).known()), None),
        )
        kind = str((story.tensor(table, made.step) or {}).get("dtype"))
        is_mean = made.name in MEANS and argument(made, "reduction") in (None, "'mean'")
        is_count = made.name in SUMS and (
            kind == "bool" or kind.startswith(("int", "uint")) or _is_binary(story, table, made.step)
        )
        if value is None or not (is_mean or is_count):
            self.is_known = False
            return ()
        key = self._seen.setdefault(label, f"{made.name} {len(self._seen)}")
        self.names.append(key)
        self.leaves[key] = float(value)
        self._tables.append((table, made.step))
        return "leaf", key

    def batch(self) -> tuple[object, int] | None:
        """The batch that the leaves of the formula are computed from: a key that tells batches apart, and its number of
        rows. Of several batches of one size, one of them.

        None if the formula is not known, if the batches have different sizes, or if a leaf comes from no known batch
        (unless it is a cross entropy of which ``exp`` is taken), has more than two axes, or does not fit the batch.
        """
        found: set[tuple[object, int]] = set()
        for table, step in self._tables if self.is_known else ():
            of = next(iter(behind(self.story, table, step, cut=True)), None)
            shape = self.story.shape(table, step) or (0,)
            if of is None and len(self._tables) == 1 and self.tree[0] == "exp":
                return self._of_answers(step)
            if of is None or shape[0] % len(of.rows) or len(shape) > PAIR:
                return None
            found.add(((of.storage, of.rows), len(of.rows)))
        return found.pop() if found and len({size for _, size in found}) == 1 else None

    def _of_answers(self, step: int) -> tuple[object, int] | None:
        """The label of the storage that the targets of a cross entropy are from, and their number; None for another
        call.

        For batches that come from no table, such as texts that were read one by one.
        """
        loss = self.story.events[step]
        answers = loss.operands[1].label if loss.name in ENTROPIES and len(loss.operands) > 1 else None
        count = math.prod(self.story.shape(answers, step) or (0,))
        while (made := made_by(self.story, answers, step)) is not None and made.name in CUTS and made.operands:
            answers, step = made.operands[0].label, made.step
        memory = (self.story.tensor(answers, step) or {}).get("storage")
        return (memory, count) if memory is not None and count else None

    def value(self, leaves: dict[str, float]) -> float | None:
        """The number with other leaves; None if it cannot be computed."""
        try:
            return self._value(self.tree, leaves)
        except (ZeroDivisionError, OverflowError, ValueError):
            return None

    def _value(self, tree: object, leaves: dict[str, float]) -> float:
        name, *sides = tree if isinstance(tree, tuple) else (tree,)
        if name == "leaf":
            return leaves[str(sides[0])]
        if not sides:
            return float(str(name))
        values = [self._value(side, leaves) for side in sides]
        return ONE[str(name)](*values) if len(values) == 1 else TWO[str(name)](*values)


def _is_binary(story: Story, label: str, step: int) -> bool:
    """Whether all known numbers of a tensor are 0 or 1."""
    known = [value for _, value in Elements(story, label, step, answers=True).known()]
    return bool(known) and all(value in (0, 1) for value in known)


def _finding(story: Story, found: RatioAveragedOverBatches) -> Finding:
    average, count = found.average, len(found.results)
    label, step = found.results[0]
    made = made_by(story, label, step)
    place = story.program.place(found.text) if found.text is not None else story.span(average.step)
    here, there = at_line(story, place), at_line(story, story.span(made.step if made is not None else step))
    mean, whole = number(found.mean), number(found.whole)
    return RULE.finding(
        place,
        average.step,
        T(
            en=f"{capital(here.en)} averages over batches what {there.en} computes for each batch alone: over {count} "
            f"batches that gives {mean}, and all their examples together give {whole}.",
            zh=f"{here.zh}对各批次取平均，而{there.zh}是对每个批次单独计算的：{count} 个批次的平均是 {mean}，"
            f"而所有样本合在一起算是 {whole}。",
        ),
        _BINS if found.is_binned else _RATIOS,
        related=[
            story.related(
                "used",
                made.step if made is not None else step,
                T(en="computed for each batch here", zh="在这里对每个批次计算"),
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("average", found.mean, story.by(average.step)), Fact("whole", found.whole, story.by(average.step))],
    )


_RATIOS = T(
    en="A mean of ratios is not the ratio of the sums: a batch with one hit of one counts as much as a batch "
    "with ten of twenty, and one without any as 0. The same holds for roots and exponentials. Add up the "
    "counts (or the squared errors) of all batches first, and divide once; or collect predictions and "
    "targets, and compute the number at the end.",
    zh="比率的平均不是总和之比：一个中一个的批次与二十个中十个的批次分量相同，而一个都没有的批次算作 0。根和指"
    "数也是如此。请先把所有批次的计数（或平方误差）加起来，最后只除一次；或者收集预测和目标，最后再计算。",
)
_BINS = T(
    en="The distance in a bin loses its sign. In one batch a bin holds a few examples, whose hits lie far from their "
    "mean probability by chance, now above and now below; the distances are added up all the same. Over all examples "
    "the ups and downs cancel out. Collect probabilities and targets of all batches, and compute the number once.",
    zh="每个区间的差距会失去符号。在一个批次里，一个区间只有几个样本，命中率因偶然而远离平均概率，时高时低，差距却照"
    "样相加。把所有样本放在一起，高低会相互抵消。请收集所有批次的概率和目标，最后只算一次。",
)


def _fixes(story: Story, found: RatioAveragedOverBatches) -> tuple[Fix, ...]:
    """At most one fix: it collects what the number is computed from, and computes it once over all batches.

    For ``scores.append(f(a, b))`` with a plain function ``f``, or an ``exp`` or root taken of each batch; empty for any
    other code.
    """
    program, text = story.program, found.text
    event = made_by(story, *found.results[0])
    chain = (*call_chain(story, event), *call_chain(story, found.average))
    for statement in chain if event is not None and text is not None else ():
        name = _collects(statement)
        call = statement.value if isinstance(statement, ast.Expr) else None
        if name is not None and text is not None and found.is_unequal:
            return unique(program.text, _by_size(story, found, statement, text))
        if name is not None and text is not None and (curves := _curves(program, statement)):
            return unique(program.text, _later(program, curves, text))
        if name is None or text is None or not isinstance(call, ast.Call) or len(call.args) != 1:
            continue
        given = inner = call.args[0]
        is_number = isinstance(inner, ast.Call) and call_name(inner) in ("item", "float")
        if is_number and isinstance(inner, ast.Call):
            inner = inner.func.value if isinstance(inner.func, ast.Attribute) else inner.args[0]
        if not isinstance(inner, ast.Call) or not isinstance(inner.func, ast.Name) or inner.keywords or not inner.args:
            return ()
        arguments = ", ".join(map(program.segment, inner.args)) + ("," if len(inner.args) == 1 else "")
        whole = f"{inner.func.id}(*map(torch.cat, zip(*{name})))" + (".item()" if is_number else "")
        title = T(en="Collect the batches and compute it once", zh="收集各批次，最后只算一次")
        return unique(
            program.text, [Fix(title, program.replace((given, f"({arguments})"), (text, whole)), meaning="later")]
        )
    return ()


def _by_size(story: Story, found: RatioAveragedOverBatches, statement: ast.stmt, text: ast.expr) -> list[Fix]:
    """At most one fix: it adds up means times the number of targets, divides by the number of all targets, and takes
    the exponential or the root of that.

    For ``total += math.exp(…)`` with a count that is raised by 1 in the same block, and for
    ``values.append(math.exp(…))``.
    """
    program, name, curves = (
        story.program,
        _collects(statement),
        [n for n in ast.walk(statement) if isinstance(n, ast.Call)],
    )
    curve = next((n for n in curves if call_name(n) in CURVES), None)
    loss = next((e for e in _upward(story, *found.results[0]) if e.name in MEANS - {"mean"}), None)
    written = written_as(story, loss, loss.operands[1].label) if loss is not None and len(loss.operands) > 1 else None
    target = _said_here(program, written, statement) if written is not None else None
    if curve is None or not curve.args or target is None or name is None:
        return []
    number, function, of = (
        f"{target}.numel()",
        program.segment(curve.func),
        program.segment(curve.args[0]),
    )
    product = f"{operand(program, curve.args[0])} * {number}"
    title = T(en="Weigh each mean by its number of targets", zh="按目标的个数给每个均值加权")
    if isinstance(statement, ast.AugAssign) and statement.value is curve and isinstance(text, ast.BinOp):
        count = text.right.id if isinstance(text.right, ast.Name) else None
        raised = [
            n for n in program.block(statement) if isinstance(n, ast.AugAssign) and program.segment(n.target) == count
        ]
        if isinstance(text.right, ast.Call) and isinstance(text.left, ast.Name):
            return [Fix(title, edits, meaning="later") for edits in _counted(program, statement, product, number, text)]
        if len(raised) != 1 or not isinstance(raised[0].value, ast.Constant) or raised[0].value.value != 1:
            return []
        edits = program.replace(
            (curve, product), (raised[0].value, number), (text, f"{function}({program.segment(text)})")
        )
        return [Fix(title, edits, meaning="later")]
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or len(call.args) != 1 or call.args[0] is not curve:
        return []
    whole = f"{function}(sum(mean * n for mean, n in {name}) / sum(n for _, n in {name}))"
    return [Fix(title, program.replace((curve, f"({of}, {number})"), (text, whole)), meaning="later")]


def _said_here(program: Program, target: ast.expr, statement: ast.stmt) -> str | None:
    """The source of ``target``, as an operand, for the function of ``statement``; if ``target`` is in a function that
    the statement calls, with the arguments of the call in place of the parameters. None if the source does not show it.
    """
    function = program.function(target)
    if function is program.function(statement):
        return operand(program, target)
    names = [n for n in ast.walk(target) if isinstance(n, ast.Name)]
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)]
    call = next((n for n in calls if isinstance(function, ast.FunctionDef) and call_name(n) == function.name), None)
    if call is None or not isinstance(function, ast.FunctionDef) or call.keywords:
        return None
    given = dict(zip(parameters(function), call.args, strict=False))
    written = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    if any(n.id not in given or n.id in written or not isinstance(given[n.id], ast.Name) for n in names):
        return None
    fresh = ast.parse(program.segment(target), mode="eval").body
    for n in ast.walk(fresh):
        if isinstance(n, ast.Name):
            n.id = program.segment(given[n.id])
    text = ast.unparse(fresh)
    return text if isinstance(fresh, ast.Name | ast.Attribute | ast.Subscript | ast.Call) else f"({text})"


def _counted(
    program: Program, statement: ast.AugAssign, product: str, number: str, text: ast.BinOp
) -> Iterator[tuple[Edit, ...]]:
    """At most one list of edits for ``total / len(batches)``: they count the targets in a second variable, which begins
    and is raised where the sum does.
    """
    curve, total = statement.value, program.segment(statement.target)
    function = program.function(statement)
    begins = [
        n
        for n in program.nodes
        if isinstance(n, ast.Assign)
        and program.function(n) is function
        and [program.segment(each) for each in n.targets] == [total]
    ]
    count = f"{total}_count"
    taken = {n.id for n in program.nodes if isinstance(n, ast.Name)}
    alone = len(begins) == 1 and program.stands_alone(begins[0]) and program.stands_alone(statement)
    if not alone or count in taken or not isinstance(curve, ast.Call):
        return
    begin, indent = program.segment(begins[0]), program.indent(begins[0])
    inner = program.indent(statement)
    yield program.replace(
        (begins[0], f"{begin}\n{indent}{count} = 0"),
        (statement, f"{total} += {product}\n{inner}{count} += {number}"),
        (text, f"{program.segment(curve.func)}({total} / {count})"),
    )


def _upward(story: Story, label: str, step: int) -> Iterator[Event]:
    """The calls that a number was computed by, the last one first, along their first operands."""
    for _ in range(DEEP):
        made = made_by(story, label, step)
        if made is None:
            return
        yield made
        if not made.operands or made.operands[0].label is None:
            return
        label, step = made.operands[0].label, made.step


def _curves(program: Program, statement: ast.stmt) -> list[ast.Call]:
    """The calls of an exponential or a root in a statement that collects numbers, or in
    those before it in its block.
    """
    block = [each for each in program.block(statement) if isinstance(each, ast.stmt)]
    near = block[: block.index(statement) + 1]
    return [
        node for each in near for node in ast.walk(each) if isinstance(node, ast.Call) and call_name(node) in CURVES
    ]


def _later(program: Program, curves: list[ast.Call], text: ast.expr) -> list[Fix]:
    """At most one fix: it averages what the exponential or the root is taken of, and takes it once, of the average.
    Empty unless ``curves`` is a single call.
    """
    curve = curves[0]
    of = curve.args[0] if curve.args else receiver(curve)
    if len(curves) != 1 or of is None:
        return []
    name, given, average = call_name(curve), program.segment(of), program.segment(text)
    module = curve.func.value if isinstance(curve.func, ast.Attribute) and curve.args else None
    is_of_numbers = isinstance(module, ast.Name) and module.id in ("math", "np", "numpy")
    whole = f"{program.segment(curve.func)}({average})" if is_of_numbers else f"({average}) ** 0.5"
    if name == "exp" and not is_of_numbers:
        torch = torch_name(program)
        if torch is None:
            return []
        whole = f"{torch}.tensor({average}).exp().item()"
    title = T(en=f"Average first, and take `{name}` of the average", zh=f"先取平均，再对平均值取 `{name}`")
    return [Fix(title, program.replace((curve, given), (text, whole)), meaning="later")]


RULE = Rule(
    code="PL774",
    name="ratio-averaged-over-batches",
    severity="warning",
    title=T(en="A ratio is averaged over batches", zh="对各批次的比率取平均"),
    what=T(
        en="A program computes precision, recall or F1 for each small batch and reports the mean of these numbers. "
        "That is another number than the one for all the data, often far from it: a batch without a positive example "
        "counts as 0. Add up the counts of all batches first, and divide once at the end.",
        zh="程序对每个小批次计算精确率、召回率或 F1，然后报告这些数的平均值。它与对全部数据计算的结果不是同一个数，往"
        "往差得很远：没有正例的批次算作 0。请先把所有批次的计数加起来，最后只除一次。",
    ),
    why=T(
        en="The mean over batches of a mean over examples is the mean over all examples, if the batches have the same "
        "size; that is why it is right for a loss or an accuracy. A ratio of two counts, a root of a mean (RMSE) or "
        "an exponential of one (perplexity) is not linear in what the batch adds up, so its mean depends on how the "
        "data was cut into batches.",
        zh="如果各批次大小相同，对各批次的均值再取平均就是对全部样本的均值；所以对损失或准确率来说这样做是对的。两"
        "个计数之比、均值的平方根（RMSE）或均值的指数（困惑度）对批次中累加的量不是线性的，所以它们的平均取决于数"
        "据是怎样切成批次的。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = torch.rand(60) < 0.2
x = y * 2.0 + torch.randn(60)


def precision(said, true):
    return (said & true).sum() / said.sum().clamp(min=1)  # used


scores = []
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=10):
    scores.append(precision(xb > 1.5, yb))
print(torch.stack(scores).mean())  # PL774
""",
    good="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
y = torch.rand(60) < 0.2
x = y * 2.0 + torch.randn(60)


def precision(said, true):
    return (said & true).sum() / said.sum().clamp(min=1)


scores = []
for xb, yb in DataLoader(TensorDataset(x, y), batch_size=10):
    scores.append((xb > 1.5, yb))
print(precision(*map(torch.cat, zip(*scores))))
""",
    find=find,
    traps=(
        Trap(
            "torch.stack(scores).mean()",
            "torch.stack(scores).sum() / len(scores)",
            T(en="The same mean of ratios, written out.", zh="同样是比率的平均，只是写开了。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html",),
)
