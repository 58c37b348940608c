"""PL976: the windows of a series that a model is given contain the very numbers that it is to forecast."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import pairs
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.element_origins import Origins, Place
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.series_forecasts import LOSSES, inputs, is_trained, places_of_row
from pitfall_lab.trace import Event, T

ROWS, MOST, TRIES = 16, 4096, 2
PAIR = 2


@dataclass(frozen=True, slots=True)
class WindowContainsItsTarget:
    """``loss`` is the call (``Event``) that compares a prediction with the tensor ``target``. As far as the first
    ``ROWS`` rows show, all values of each row of the target are in the same row of the tensor ``given`` that the
    prediction was computed from; both are labels.

    ``used`` is the step at which ``given`` is used. ``ahead`` is the number of steps in the series by which the target
    would have to start later to begin after the window. ``wanted`` and ``windows`` are the calls by which the target
    and the window were taken out of the series. ``places`` are, for each of these rows, the first and the last index of
    the window in the series and the first index of the target.
    """

    loss: Event
    target: str
    given: str
    used: int
    ahead: int
    wanted: tuple[Event, ...]
    windows: tuple[Event, ...]
    places: tuple[tuple[int, int, int], ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a loss of a training whose target is in the overlapping windows of a series
    that the prediction is computed from.

    Of each line, the first ``TRIES`` losses are looked at; not in programs without a backward.
    """
    tries = dict[object, int]()
    for loss in story.calls(*LOSSES) if story.backwards() else ():
        place = story.span(loss.step)
        if (
            loss.error is None
            and len(loss.operands) >= PAIR
            and tries.get(place, 0) < TRIES
            and is_trained(story, loss)
        ):
            tries[place] = tries.get(place, 0) + 1
            found = _leak(story, loss)
            if found is not None:
                tries[place] = TRIES
                yield _finding(story, found)


def _leak(story: Story, loss: Event) -> WindowContainsItsTarget | None:
    labels = [o.label for o in loss.operands[:PAIR]]
    taught = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
    if None in labels or taught.count(True) != 1:
        return None
    target, guess = str(labels[taught.index(False)]), str(labels[taught.index(True)])
    shape = story.shape(target, loss.step) or ()
    count = shape[0] if shape else 0
    if count < PAIR or prod(shape[1:]) > MOST:
        return None
    wants = Origins(story)
    rows = range(min(count, ROWS))
    wanted = [places_of_row(wants, (target, loss.step), 0, row) for row in rows]
    if not all(wanted):
        return None
    series = wanted[0][0][0]
    # One input has to contain the whole target: of a recurrent net's many inputs each step may have its own target.
    for label, step in inputs(story, guess, loss.step):
        size = story.shape(label, step) or ()
        axis = next((axis for axis, length in enumerate(size) if length == count), None)
        if axis is None or prod(size) // count > MOST:
            continue
        has = Origins(story)
        found = [places_of_row(has, (label, step), axis, row) for row in rows]
        if not all(each and each[0][0] == series for each in found) or has.supposed != wants.supposed:
            continue
        seen = [set(each) for each in found]
        inside = all(
            set(one) <= other and PAIR * len(set(one)) <= len(other) for one, other in zip(wanted, seen, strict=True)
        )
        if inside and _overlap(seen):
            first = next(iter(story.tensors_on(series)), None)
            unit = ((first[1].get("stride") or [1]) if first is not None else [1])[0] or 1
            ahead = max(at for _, at in seen[0]) // unit - min(at for _, at in wanted[0]) // unit + 1
            places = tuple(
                (min(at for _, at in window) // unit, max(at for _, at in window) // unit, min(own)[1] // unit)
                for window, own in zip(seen, wanted, strict=True)
            )
            return WindowContainsItsTarget(
                loss, target, label, step, ahead, tuple(wants.trail), tuple(has.trail), places
            )
    return None


def _overlap(rows: Sequence[set[Place]]) -> bool:
    """Whether rows are windows of one series that begin at distances smaller than their length,
    as far as these rows show it.
    """
    starts = [min(at for _, at in row) for row in rows]
    extent = max(at for _, at in rows[0]) - starts[0] + 1
    return 0 < gcd(*(start - starts[0] for start in starts)) < extent


def _finding(story: Story, found: WindowContainsItsTarget) -> Finding:
    loss = found.loss
    window = next(
        (each for each in found.windows if each.name == "unfold"), found.windows[-1] if found.windows else loss
    )
    here = at_line(story, story.span(loss.step))
    target, given = shown(story, loss, found.target), shown(story, story.events[found.used], found.given)
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} teaches the model to forecast {target.en} from {given.en}, and each row of "
            f"{given.en} contains the answer: the window reaches as far as the number that is to be forecast.",
            zh=f"{here.zh}教模型由 {given.zh} 预测 {target.zh}，而 {given.zh} 的每一行都包含答案：窗口一直"
            "延伸到要预测的那个数。",
        ),
        T(
            en="The windows and the targets were taken out of the same memory, and the places of each target lie "
            "among those of its window. The model only has to copy them. The loss falls to almost nothing, also on "
            "later data that were prepared in the same way; a real forecast, where that number does not exist yet, "
            f"fails. The targets have to begin {found.ahead} {'step' if found.ahead == 1 else 'steps'} later.",
            zh="窗口和目标取自同一块内存，每个目标的位置都在它的窗口之内。模型只需照抄即可。损失几乎降到零，在用"
            "同样方式准备的后续数据上也一样；而真正预测时那个数还不存在，模型就失败了。目标应当再往后 "
            f"{found.ahead} 步开始。",
        ),
        related=[story.related("made", window.step, T(en="the windows are made here", zh="窗口在这里生成"))],
        fixes=_fixes(story, found),
        facts=[
            Fact("ahead", found.ahead, story.by(loss.step)),
            *pairs(
                T(en="window: indices", zh="窗口：位置"),
                T(en="target: index", zh="目标的位置"),
                [(f"{first} … {last}", at, at + found.ahead) for first, last, at in found.places],
            ),
        ],
    )


def _fixes(story: Story, found: WindowContainsItsTarget) -> tuple[Fix, ...]:
    """Fixes that move the start of the targets behind the windows; a second one also leaves out the last windows, which
    then have no target. Empty if the source does not show the index.
    """
    program = story.program
    if program.tree is None:
        return ()
    steps = "step" if found.ahead == 1 else "steps"
    title = T(en=f"Take the targets {found.ahead} {steps} later", zh=f"把目标往后移 {found.ahead} 步")
    shorter = T(
        en=f"{title.en}, and leave out the windows at the end, which have none then",
        zh=f"{title.zh}，并去掉末尾那些不再有目标的窗口",
    )
    fixes = list[Fix]()
    for node in _subscripts(story, found.wanted):
        moved = _moved(story, node, found.ahead)
        if not moved:
            continue
        ends = list[tuple[ast.AST, str]]()
        for each in (*_unfolds(story, found.windows), node, *_subscripts(story, found.windows)):
            ends += [change for change in _shortened(story, each, found.ahead) if change not in ends]
        fixes.append(Fix(title, program.replace(*moved), meaning="shape"))
        fixes += [Fix(shorter, program.replace(*ends, *moved), meaning="shape")] if ends else []
    return unique(program.text, fixes)


def _subscripts(story: Story, events: Sequence[Event]) -> list[ast.Subscript]:
    nodes = [story.program.at(story.span(event.step)) for event in reversed(events) if event.name == "__getitem__"]
    return list(dict.fromkeys(node for node in nodes if isinstance(node, ast.Subscript)))


def _unfolds(story: Story, events: Sequence[Event]) -> list[ast.Call]:
    nodes = [story.program.at(story.span(event.step)) for event in events if event.name == "unfold"]
    return list(dict.fromkeys(node for node in nodes if isinstance(node, ast.Call) and called(node) == "unfold"))


def _moved(story: Story, node: ast.Subscript, by: int) -> list[tuple[ast.AST, str]]:
    """The changes that let a slice, or a single position, of a series begin later; empty if it is counted
    from the end or from nothing.
    """
    first = node.slice.elts[0] if isinstance(node.slice, ast.Tuple) and node.slice.elts else node.slice
    ends = [first.lower, first.upper] if isinstance(first, ast.Slice) else [first]
    if ends[0] is None or isinstance(ends[0], ast.Name | ast.UnaryOp | ast.Tuple | ast.List | ast.Constant):
        return []
    return [(end, _plus(story, end, by)) for end in ends if end is not None]


def _plus(story: Story, node: ast.expr, by: int) -> str:
    """The text of ``node + by``, with a number at its end added up: ``length`` for ``length - 1`` and 1."""
    program = story.program
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub) and isinstance(node.right, ast.Constant):
        number = node.right.value if isinstance(node.right.value, int) else 0
        by += number if isinstance(node.op, ast.Add) else -number
        node = node.left
    text = program.segment(node)
    return text if by == 0 else f"{text} {'+' if by > 0 else '-'} {abs(by)}"


def _shortened(story: Story, node: ast.AST, by: int) -> Iterator[tuple[ast.AST, str]]:
    """Yield changes that leave out the last windows: of ``unfold``, of the loop over their beginnings,
    of the length of a data set.
    """
    program = story.program
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value, f"{operand(program, node.func.value)}[:-{by}]"
        return
    for around in program.ancestors(node):
        loops = (
            around.generators
            if isinstance(around, ast.ListComp | ast.GeneratorExp)
            else [around]
            if isinstance(around, ast.For)
            else []
        )
        for loop in loops:
            counted = loop.iter
            used = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
            goes = isinstance(loop.target, ast.Name) and loop.target.id in used
            if goes and isinstance(counted, ast.Call) and called(counted) == "range" and 1 <= len(counted.args) <= PAIR:
                yield counted.args[-1], _plus(story, counted.args[-1], -by)
                return
        if isinstance(around, ast.ClassDef):
            for each in ast.walk(around):
                if isinstance(each, ast.FunctionDef) and each.name == "__len__":
                    yield from (
                        (n.value, _plus(story, n.value, -by))
                        for n in ast.walk(each)
                        if isinstance(n, ast.Return) and n.value
                    )
            return


RULE = Rule(
    code="PL976",
    name="window-contains-its-target",
    severity="warning",
    title=T(en="The window contains the number that is to be forecast", zh="窗口里包含要预测的数"),
    what=T(
        en="A program cuts windows out of a series and wants the next number for each, but takes the last "
        "number of the window itself for the target. The model copies it and has learned nothing. Let the "
        "targets begin behind the windows.",
        zh="程序从一个序列中切出窗口，想预测每个窗口的下一个数，却把窗口自己的最后一个数当作目标。模型照抄即可，什么也"
        "没学到。请让目标从窗口之后开始。",
    ),
    why=T(
        en="A window of n numbers from position i ends at i + n - 1; the next number is at i + n. Off by one, the "
        "answer is among the inputs. Nothing is raised, for all shapes fit, and the error on held-out windows is as "
        "small as that in training, since they contain their answers too. An error far below the noise of the series "
        "is the sign. There is one window fewer than `unfold` gives: the last one has no next number.",
        zh="从位置 i 开始、长度为 n 的窗口结束于 i + n - 1；下一个数在 i + n。差一位，答案就在输入之中。形状都对得上，"
        "所以不会报错；留出的窗口也包含自己的答案，所以误差和训练时一样小。误差远低于序列自身的噪声，就是这个错误的标"
        "志。可用的窗口比 `unfold` 给出的少一个：最后一个窗口没有下一个数。",
    ),
    bad="""import torch

torch.manual_seed(0)
series, length = torch.randn(40), 5
windows = series.unfold(0, length, 1)  # made
targets = series[length - 1 :]
net = torch.nn.Linear(length, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net(windows).squeeze(1), targets)  # PL976
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
series, length = torch.randn(40), 5
windows = series[:-1].unfold(0, length, 1)
targets = series[length:]
net = torch.nn.Linear(length, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    loss = torch.nn.functional.mse_loss(net(windows).squeeze(1), targets)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "series[length - 1 :]",
            "series[length - 1 :].clone()",
            T(
                en="A copy has the same numbers: the answer is still in the window.",
                zh="拷贝里是同样的数：答案仍然在窗口里。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.unfold.html",),
)
