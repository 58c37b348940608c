"""PL828: two histograms, each over the range of its own data, are compared bin by bin."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

COUNTS = {"histc", "histogram"}
KEEPING = (
    spellings("abs", "neg", "pow", "sub") | spellings("add", "clamp", "div", "mul", in_place=True)
    | {"clamp_min", "clone", "contiguous", "cumsum", "detach", "double", "flatten", "float", "log", "log1p", "log2",
       "log_softmax", "normalize", "reshape", "softmax", "sqrt", "squeeze", "to", "unsqueeze", "view"}
)  # fmt: skip
"""Calls whose result has one number for each bin, if its shape is the same."""
MEETING = (
    spellings("div", "mul") | spellings("add", "sub", in_place=True)
    | {"allclose", "cosine_similarity", "cross_entropy", "dist", "dot", "kl_div", "l1_loss", "max", "maximum", "min",
       "minimum", "mse_loss", "xlogy"}
)  # fmt: skip
"""Calls in which two histograms are compared bin by bin."""
BOUNDED = {"sigmoid", "softmax", "tanh", "rand", "rand_like", "normalize", "cosine_similarity", "erf", "sin", "cos"}
"""Calls whose results have about the same smallest and largest numbers for any data."""
SCALED = {"min", "max", "amin", "amax", "aminmax", "sort", "argsort", "quantile"}
"""Calls by which data is scaled to its own range."""
CLAMPS = spellings("clamp", in_place=True)
FURTHER, DEEPEST, CLOSE, PAIR = 60, 6, 1e-3, 2

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class HistogramsOfOtherRanges:
    """``first`` and ``second`` are the calls (``Event``) that counted, each into bins from the smallest to the largest
    number of its own data; ``meeting`` is the call that compares the counts bin by bin.

    ``ends`` are the first and the last edge of each histogram; None if those of one are not known.
    """

    first: Event
    second: Event
    meeting: Event
    ends: tuple[Ends, Ends] | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that makes a histogram from the smallest to the largest number of its data, where
    its bins are compared with as many bins of another such histogram whose range differs, or is not known and may
    differ.
    """
    told = set()
    counted: dict[str, Event] = {}
    for event in story.calls(*COUNTS | KEEPING | MEETING):
        if event.error is not None:
            continue
        given = [o.label for o in event.operands if o.label is not None]
        if event.name in COUNTS:
            if _has_own_range(event) and event.results:
                counted[event.results[0]] = event
            continue
        found = {counted[label].step: counted[label] for label in given if label in counted}
        sources = [found[step] for step in sorted(found)]
        if len(sources) == PAIR and event.name in MEETING:
            pair = _pair(story, sources[0], sources[1], event)
            place = story.span(sources[0].step)
            if pair is not None and place not in told:
                told.add(place)
                yield _finding(story, pair)
        for result in event.results if len(sources) == 1 and event.name in KEEPING else ():
            if story.shape(result, event.step) == story.shape(sources[0].results[0]):
                counted[result] = sources[0]


def _has_own_range(event: Event) -> bool:
    """Whether the range of a histogram is from the smallest to the largest number of its data."""
    if event.name == "histogram":
        given = argument(event, "range") or next(
            (o.text for o in event.operands[2:] if o.text.startswith(("(", "["))), None
        )
        return len([o for o in event.operands if o.label is not None]) == 1 and given in (None, "None")
    low, high = argument(event, "min", 2), argument(event, "max", 3)
    return {low or "0", high or "0"} <= {"0", "0.0"}


def _pair(story: Story, first: Event, second: Event, meeting: Event) -> HistogramsOfOtherRanges | None:
    """Return the two histograms if they have as many bins and their ranges differ; None otherwise.

    If a range is not known, they count as different unless both data are the same or have limited values
    (:func:`_is_limited`).
    """
    if story.shape(first.results[0]) != story.shape(second.results[0]):
        return None
    data = [str(event.operands[0].label) for event in (first, second)]
    if same_numbers(story, data[0], first.step) == same_numbers(story, data[1], second.step):
        return None
    one, other = (_ends(story, event) for event in (first, second))
    if one is not None and other is not None:
        size = max(one[1] - one[0], other[1] - other[0])
        differ = any(abs(a - b) > CLOSE * size for a, b in zip(one, other, strict=True))
        return HistogramsOfOtherRanges(first, second, meeting, (one, other)) if differ else None
    if all(_is_limited(story, label, event.step) for label, event in zip(data, (first, second), strict=True)):
        return None
    return HistogramsOfOtherRanges(first, second, meeting, None)


def _ends(story: Story, event: Event) -> Ends | None:
    """Return the first and the last edge of a histogram; None if the trace does not have them."""
    if event.name == "histogram":
        edges = Elements(story, event.results[1], event.step)
        low, high = (edges.at((place,)) for place in (0, edges.shape[0] - 1))
        return (low, high) if low is not None and high is not None else None
    label = event.operands[0].label
    data = [value for _, value in Elements(story, label, event.step).known()]
    if data and len(data) == prod(story.shape(label, event.step) or ()):
        return min(data), max(data)
    found = []
    for names in (("min", "amin"), ("max", "amax")):
        asked = [use for use in story.uses(label) if use.name in names and len(use.operands) == 1 and use.results]
        found += [Elements(story, use.results[0], use.step).at(()) for use in asked[:1]]
    known = [value for value in found if value is not None]
    return (known[0], known[1]) if len(known) == PAIR else None


def _is_limited(story: Story, label: str, step: int) -> bool:
    """Whether the smallest and largest numbers are about the same for any data: by the function that computed them,
    because they were scaled by their own ends, or because a known number is at a limit of a clamp.
    """
    pending, seen = [label], {label}
    known = {value for _, value in Elements(story, label, step).known()}
    if (story.tensor(label, step) or {}).get("dtype") in ("uint8", "bool"):
        return True
    for _ in range(DEEPEST):
        following = []
        for each in pending:
            made = made_by(story, each, step)
            if made is None:
                continue
            if made.name in BOUNDED | SCALED:
                return True
            if made.name in CLAMPS:
                low, high = _limits(made)
                return low is not None and high is not None and bool(known & {low, high})
            new = [o.label for o in made.operands if o.label is not None and o.label not in seen]
            seen.update(new)
            following += new
        pending = following
    return False


def _limits(clamp: Event) -> tuple[float | None, float | None]:
    texts = argument(clamp, "min", 1), argument(clamp, "max", 2)
    numbers: list[float | None] = []
    for text in texts:
        try:
            numbers.append(float(text or ""))
        except ValueError:
            numbers.append(None)
    return numbers[0], numbers[1]


def _finding(story: Story, pair: HistogramsOfOtherRanges) -> Finding:
    here, there, meets = (at_line(story, story.span(e.step)) for e in (pair.first, pair.second, pair.meeting))
    one, other = (expression(story, e.operands[0].label, e.step) for e in (pair.first, pair.second))
    if one.en == other.en:
        one, other = T(en="one", zh="一个直方图"), T(en="the other", zh="另一个直方图")
    bins = (story.shape(pair.first.results[0]) or (0,))[0]
    same = story.span(pair.first.step) == story.span(pair.second.step)
    also = T(en="", zh="") if same else T(en=f", and so does {there.en}", zh=f"，{there.zh}也一样")
    said = T(en="", zh="")
    if pair.ends is not None:
        (a, b), (c, d) = (tuple(map(number, ends)) for ends in pair.ends)
        said = T(
            en=f" The first {bins} bins go from {a} to {b}, the other {bins} from {c} to {d}.",
            zh=f"前一组 {bins} 个区间从 {a} 到 {b}，另一组 {bins} 个从 {c} 到 {d}。",
        )
    return RULE.finding(
        story.span(pair.first.step),
        pair.first.step,
        T(
            en=f"{capital(here.en)} counts into bins between the smallest and the largest number of its own data"
            f"{also.en}, and {meets.en} compares two such histograms bin by bin.{said.en}",
            zh=f"{here.zh}按各自数据的最小值与最大值划分区间{also.zh}，而{meets.zh}逐个区间比较了两个这样的直方图。"
            f"{said.zh}",
        ),
        T(
            en=f"Without a range, bin 3 of {one.en} is another interval than bin 3 of {other.en}: two shapes that are "
            "only moved or stretched look equal, and one outlier moves all bins. Give both the same range.",
            zh=f"不给范围时，{one.zh} 的第 3 个区间与 {other.zh} 的第 3 个区间并不是同一个区间：只是平移或拉伸过的分布"
            "看起来相同，而一个离群值会移动所有区间。请给两者同样的范围。",
        ),
        related=[
            *(
                []
                if same
                else [story.related("made", pair.second.step, T(en="the other histogram", zh="另一个直方图"))]
            ),
            story.related("used", pair.meeting.step, T(en="compared bin by bin here", zh="在这里逐个区间比较")),
        ],
        fixes=_fixes(story, pair),
        facts=[Fact("bins", bins), *([Fact("ends", pair.ends)] if pair.ends is not None else [])],
    )


def _fixes(story: Story, pair: HistogramsOfOtherRanges) -> tuple[Fix, ...]:
    """Fixes that give both histograms one range: the limits to which both data were clamped, or the range of both data
    together; empty if the program does not show the calls.
    """
    program = story.program
    calls = [program.at(story.span(event.step)) for event in (pair.first, pair.second)]
    nodes = [node for node in dict.fromkeys(calls) if isinstance(node, ast.Call)]
    if len(nodes) != len(set(calls)):
        return ()
    fixes: list[Fix] = []
    cuts = {_cut(story, str(event.operands[0].label), event.step) for event in (pair.first, pair.second)}
    cut = next(iter(cuts)) if len(cuts) == 1 else None
    if cut is not None:
        texts = [(node, _with_range(program.segment(node), pair.first.name, *cut)) for node in nodes]
        title = T(en=f"Count both from {cut[0]} to {cut[1]}", zh=f"两者都从 {cut[0]} 到 {cut[1]} 计数")
        fixes.append(Fix(title, program.replace(*texts), meaning="later"))
    title = T(en="Count both over the range of all data together", zh="两者都在全部数据的范围内计数")
    edits = _of_all(story, pair, nodes)
    if edits:
        fixes.append(Fix(title, program.replace(*edits), meaning="later"))
    return unique(program.text, fixes)


def _of_all(story: Story, pair: HistogramsOfOtherRanges, nodes: list[ast.Call]) -> list[tuple[ast.AST, str]]:
    """Return the changes that count over the range of both data together, in the two calls or through parameters of the
    function that both calls ran in; empty if the program is written in another way.
    """
    program = story.program
    if len(nodes) == PAIR and program.function(nodes[0]) is program.function(nodes[1]):
        data = [written_as(story, e, e.operands[0].label) for e in (pair.first, pair.second)]
        if all(isinstance(each, ast.Name | ast.Attribute) for each in data):
            low, high = _both([program.segment(each) for each in data if each is not None])
            return [(node, _with_range(program.segment(node), pair.first.name, low, high)) for node in nodes]
    function = program.function(nodes[0])
    if len(nodes) != 1 or not isinstance(function, ast.FunctionDef) or function.args.kwonlyargs or function.args.vararg:
        return []
    calls = program.calls.get(function.name, [])
    names = [call.args[0] for call in calls if len(call.args) == 1 and not call.keywords]
    if len(calls) != PAIR or len(names) != PAIR or not all(isinstance(n, ast.Name | ast.Attribute) for n in names):
        return []
    if program.function(calls[0]) is not program.function(calls[1]) or len(function.args.args) != 1:
        return []
    low, high = _both([program.segment(name) for name in names])
    parameter = function.args.args[0]
    return [
        (parameter, f"{program.segment(parameter)}, low, high"),
        (nodes[0], _with_range(program.segment(nodes[0]), pair.first.name, "low", "high")),
        *((call, f"{program.segment(call)[:-1]}, {low}, {high})") for call in calls),
    ]


def _both(names: list[str]) -> tuple[str, str]:
    one, other = names
    return f"min({one}.min(), {other}.min()).item()", f"max({one}.max(), {other}.max()).item()"


def _with_range(text: str, name: str, low: str, high: str) -> str:
    """Return the source of a call with a range added as its last arguments."""
    given = f"range=({low}, {high})" if name == "histogram" else f"min={low}, max={high}"
    return f"{text[:-1].rstrip().rstrip(',')}, {given})"


def _cut(story: Story, label: str, step: int) -> tuple[str, str] | None:
    """Return the limits to which the numbers were clamped last, as texts; None if they were not clamped on both
    sides.
    """
    for _ in range(DEEPEST):
        made = made_by(story, label, step)
        if made is None or made.operands[0].label is None:
            return None
        if made.name in CLAMPS:
            low, high = argument(made, "min", 1), argument(made, "max", 2)
            return (low, high) if low is not None and high is not None and None not in _limits(made) else None
        if made.name not in ("view", "reshape", "flatten", "float", "detach", "clone", "__getitem__", "squeeze"):
            return None
        label, step = made.operands[0].label, made.step
    return None


RULE = Rule(
    code="PL828",
    name="histograms-of-other-ranges",
    severity="warning",
    title=T(
        en="Two histograms with ranges of their own are compared bin by bin",
        zh="两个范围各不相同的直方图被逐个区间比较",
    ),
    what=T(
        en="A program counts how many numbers fall into each of ten intervals, for two sets of data, and compares the "
        "counts. But each set has intervals of its own, from its smallest to its largest number, so the third of one "
        "is not the third of the other. Give both the same range: `torch.histc(x, bins=10, min=low, max=high)`.",
        zh="程序统计两组数据落入十个区间的个数，然后比较这些个数。但每组数据的区间都是自己的，从自己的最小值到最大值，所以"
        "一组的第三个区间并不是另一组的第三个。请给两者同样的范围：`torch.histc(x, bins=10, min=low, max=high)`。",
    ),
    why=T(
        en="`torch.histc` with min and max both 0, which is the default, and `torch.histogram` without `range` take "
        "the ends from the data. That is handy for one picture. Two results have equal shapes, so a difference or a "
        "ratio can be computed, but a shift of all data leaves the counts as they are, and one outlier changes each.",
        zh="`torch.histc` 在 min 与 max 都为默认值 0 时，以及 `torch.histogram` 不给 `range` 时，区间的两端取自数据。只"
        "画一张图时这很方便。两个结果形状相同，因此可以求差或求比，但全部数据平移后计数不变，而一个离群值会改变每个计数。",
    ),
    bad="""import torch

torch.manual_seed(0)
old = torch.randn(500)
new = torch.randn(500) + 3
p = torch.histogram(old, 5, density=True).hist  # PL828
q = torch.histogram(new, 5, density=True).hist  # made
print((p - q).abs().sum())  # used
""",
    good="""import torch

torch.manual_seed(0)
old = torch.randn(500)
new = torch.randn(500) + 3
low, high = min(old.min(), new.min()).item(), max(old.max(), new.max()).item()
p = torch.histogram(old, 5, density=True, range=(low, high)).hist
q = torch.histogram(new, 5, density=True, range=(low, high)).hist
print((p - q).abs().sum())
""",
    find=find,
    traps=(
        Trap(
            "torch.histogram(old, 5, density=True)",
            "torch.histogram(old - old.mean(), 5, density=True)",
            T(en="The ranges still differ, and the shift is lost.", zh="范围仍然不同，而且平移的信息丢失了。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.histc.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.histogram.html",
    ),
)
