"""PL101: memory that backward needs was written before backward ran.

Found from typed facts only: the failure that torch raised (kind ``saved-tensor-modified``), filled in by the recorder
and the shadow engine, never from torch's message. A write that *could* break a backward which never runs is no finding.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.call_stack import leading_calls
from pitfall_lab.rules.kit.finding import Fact, Finding, Related, Rule, Trap
from pitfall_lab.rules.kit.overlaps import part, places
from pitfall_lab.rules.kit.reordering import is_leaf_memory
from pitfall_lab.rules.kit.repairs import repairs
from pitfall_lab.rules.kit.story import Clash, Record, Story
from pitfall_lab.rules.kit.syntax import written_root
from pitfall_lab.rules.kit.wording import at_line, called, capital, is_whole
from pitfall_lab.trace import Event, Failure, Forecast, Span, T, Trace


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each backward that torch refused because a saved tensor had been written, whether the
    backward or the write is in the recorded part or not.
    """
    for event, failure in _refusals(story.trace):
        if failure.kind == "saved-tensor-modified":
            yield _finding(story, event, _within(story, event, failure))


def _within(story: Story, event: Event | None, failure: Failure) -> Failure:
    """The failure, but not marked ``earlier`` (from before the recording) if a recorded backward made the failing node.

    A backward with ``create_graph`` makes nodes that no call's event has.
    """
    maker = story.event(_born(story, failure.node))
    made_here = (
        failure.earlier
        and maker is not None
        and event is not None
        and maker.step < event.step
        and _is_backward(story, maker)
    )
    return replace(failure, earlier=False) if made_here else failure


def _refusals(trace: Trace) -> list[tuple[Event | None, Failure]]:
    """The errors that torch raised, each once, with the call that raised it (None: only the
    outcome of the program has it).

    A call's error is often repeated on the node and in the outcome.
    """
    raised: list[tuple[Event | None, Failure]] = []
    seen: set[tuple[object, ...]] = set()
    places: list[tuple[Event | None, Failure]] = [
        (event, event.error) for event in trace.events if event.error is not None
    ]
    if trace.outcome.failure is not None:
        places.append((None, trace.outcome.failure))
    for event, failure in places:
        key = (failure.type, failure.message, failure.span)
        if key not in seen:
            seen.add(key)
            raised.append((event, _recognised(trace, event, failure)))
    return raised


def _recognised(trace: Trace, event: Event | None, failure: Failure) -> Failure:
    """The failure, completed by the facts of a forecast that it fulfils, if the engines disagreed only
    about the end of the message.

    The two messages are compared, not parsed: torch's must begin with the beginning of the forecast's.
    """
    if failure.kind != "other" or event is None:
        return failure
    for forecast in trace.forecasts:
        expected = forecast.failure
        if (
            forecast.came_true is None
            and forecast.step < event.step
            and expected.type == failure.type
            and _begin_alike(expected.message, failure.message)
        ):
            return replace(expected, message=failure.message, step=failure.step, span=failure.span)
    return failure


def _begin_alike(one: str, other: str, length: int = 70) -> bool:
    return len(one) >= length and one[:length] == other[:length]


def _forecast(trace: Trace, failure: Failure, backward: int | None) -> Forecast | None:
    """The shadow engine's forecast of this failure, if it made one; else None."""
    for forecast in trace.forecasts:
        same = forecast.failure.node == failure.node and forecast.failure.counter == failure.counter
        if same and (
            forecast.came_true is not None
            or (failure.node is not None and (backward is None or forecast.step < backward))
        ):
            return forecast
    return None


@dataclass(frozen=True, slots=True)
class SavedTensorOverwritten:
    """One backward that failed because a tensor that it needs was overwritten; ``failure`` is torch's error, ``story``
    has the look-ups of the trace, ``what`` names the tensor in words.

    ``saved_at`` is the step that saved the tensor, ``changed_at`` are the steps that wrote it, in order, ``backward``
    is the step that needed it. The steps are None, or empty, where they are not known.
    """

    story: Story
    failure: Failure
    what: T
    saved_at: int | None
    changed_at: tuple[int, ...]
    backward: int | None

    @property
    def changed(self) -> int | None:
        """The first write after the save that has a place in the source, else the first one; None if there was none."""
        return next(
            (step for step in self.changed_at if self.story.span(step) is not None),
            self.changed_at[0] if self.changed_at else None,
        )

    def lines(self) -> tuple[T, T, T]:
        """Return phrases for the lines that changed, saved and needed the tensor, in this order."""
        here, then, later = (
            at_line(self.story, self.story.span(step)) for step in (self.changed, self.saved_at, self.backward)
        )
        return here, then, later


def _case(story: Story, event: Event | None, failure: Failure, forecast: Forecast | None) -> SavedTensorOverwritten:
    """The data of a failed backward: what the failure does not say is filled in from the forecast, the node and the
    storage's version counter.
    """
    backward = _backward_step(story, event, failure)
    facts = forecast.failure if forecast else failure
    saved_at = failure.saved_at if failure.saved_at is not None else facts.saved_at
    if not failure.earlier:
        saved_at = saved_at if saved_at is not None else _born(story, failure.node)
    changed_at = tuple(failure.changed_at or facts.changed_at)
    if not changed_at:
        after, until = saved_at if saved_at is not None else -1, backward if backward is not None else len(story.events)
        changed_at = tuple(story.bumps(failure.counter, after, until))
    what = called(story, failure.tensor, failure.storage, saved_at, saved_at)
    case = SavedTensorOverwritten(story, failure, what, saved_at, changed_at, backward)
    if what.en.startswith(("`", "the result")):
        return case
    parameter = T(en="a parameter", zh="一个参数") if is_leaf_memory(story, failure.storage) else what
    return replace(case, what=_written_name(case) or parameter)


def _written_name(case: SavedTensorOverwritten) -> T | None:
    """The tensor's name in the line that changed it: ``self.state`` in ``self.state += 1``; None if there is none."""
    statement = case.story.program.statement_at(case.story.span(case.changed))
    name = written_root(statement) if statement is not None else None
    text = case.story.program.segment(name) if name is not None else ""
    return T(en=f"`{text}`", zh=f"`{text}`") if text else None


def _finding(story: Story, event: Event | None, failure: Failure) -> Finding:
    forecast = _forecast(story.trace, failure, _backward_step(story, event, failure))
    case = _case(story, event, failure, forecast)
    step = case.changed if case.changed is not None else case.backward
    return RULE.finding(
        (story.span(case.changed) if case.changed is not None else None) or failure.span,
        step,
        _message(case),
        _explanation(case),
        related=_related(case),
        fixes=repairs(story, Clash(failure.storage, case.saved_at, case.changed_at, case.backward)),
        facts=_facts(case),
        predicted=forecast is not None,
    )


def _backward_step(story: Story, event: Event | None, failure: Failure) -> int | None:
    """The step of the call that ran backward, not of the node inside it; None if no step of the error is known."""
    step = event.step if event is not None else failure.step
    outer = story.event(step)
    while outer is not None and outer.kind == "node" and outer.parent is not None:
        outer = story.event(outer.parent)
    return outer.step if outer is not None else step


def _is_backward(story: Story, event: Event) -> bool:
    """Whether the event is a backward, or a node that one runs."""
    return event in story.backwards() or story.event(event.parent) in story.backwards()


def _born(story: Story, node: str | None) -> int | None:
    record = story.record("nodes", node)
    return record.get("born") if record else None


def _message(case: SavedTensorOverwritten) -> T:
    what = case.what
    here, then, later = case.lines()
    if case.failure.earlier and case.changed is not None:
        made = _made(case)
        return T(
            en=f"{capital(here.en)} overwrites {what.en}, but the backward pass on {later.en} goes through a graph "
            f"that was made {made.en}, and that still needs the old values.",
            zh=f"{here.zh}覆盖了 {what.zh}，但{later.zh}的反向传播要经过{made.zh}建立的计算图，而它还需要旧的值。",
        )
    if case.changed is None:
        return T(
            en=f"{capital(what.en)} was changed before backward could use it ({later.en}).",
            zh=f"{what.zh} 在反向传播（{later.zh}）使用它之前被改掉了。",
        )
    if _writes_elsewhere(case):
        return T(
            en=f"{capital(here.en)} writes into another part of {what.en} than the backward pass on {later.en} needs. "
            "It fails all the same, because torch counts the writes to all parts together.",
            zh=f"{here.zh}写入了 {what.zh} 的一部分，{later.zh}的反向传播需要的是另一部分。它仍然失败，因为 torch "
            "把对各部分的写入合在一起计数。",
        )
    if here == then:
        return T(
            en=f"{capital(here.en)} overwrites {what.en}, but the backward pass on {later.en} still needs the values "
            "that this line itself used before.",
            zh=f"{here.zh}覆盖了 {what.zh}，但{later.zh}的反向传播还需要这一行自己先前用过的值。",
        )
    return T(
        en=f"{capital(here.en)} overwrites {what.en}, but the backward pass on {later.en} still needs the values "
        f"it had on {then.en}.",
        zh=f"{here.zh}覆盖了 {what.zh}，但{later.zh}的反向传播还需要它在{then.zh}时的值。",
    )


def _writes_elsewhere(case: SavedTensorOverwritten) -> bool:
    """Whether it is certain that no write after the save changed an element of the saved tensor, but only others in its
    storage: ``states[5] = h`` after ``cell(x, states[4])``.
    """
    needed = _needed(case)
    written = [_written(case.story, step) for step in case.changed_at]
    return needed is not None and bool(written) and all(at is not None and not {*at} & {*needed} for at in written)


def _is_covered(case: SavedTensorOverwritten) -> bool:
    """Whether it is certain that a write after the save changed elements of the saved tensor."""
    story, failure = case.story, case.failure
    for step in case.changed_at:
        event = story.event(step)
        if event is None or event.kind != "call" or not event.operands or not event.name.endswith("_"):
            continue
        if event.name != "__setitem__" and is_whole(story, event.operands[0].label, failure.storage):
            return True
        needed, written = _needed(case), _written(story, step)
        if needed is not None and written is not None and {*needed} & {*written}:
            return True
    return False


def _needed(case: SavedTensorOverwritten) -> list[int] | None:
    """The elements of the saved tensor, as indices into the storage; None if they are not known or too many."""
    saved = case.story.tensor(case.failure.tensor)
    return places(saved) if saved is not None and saved.get("storage") == case.failure.storage else None


def _written(story: Story, step: int) -> list[int] | None:
    """The elements that a call wrote, as indices into the storage; None if that is not known or too many to compare."""
    event = story.event(step)
    if event is None or event.kind != "call" or len(event.writes) != 1 or not event.operands:
        return None
    record = story.tensor(event.operands[0].label, step)
    if record is None or record.get("storage") != event.writes[0]:
        return None
    chosen: Record | None = record
    if event.name == "__setitem__":
        index = event.operands[1] if len(event.operands) > 1 else None
        chosen = part(record, index.text) if index is not None and index.label is None else None
    elif not event.name.endswith("_"):
        return None
    return places(chosen) if chosen is not None else None


def _explanation(case: SavedTensorOverwritten) -> T:
    what = case.what
    here, then, later = case.lines()
    node = (case.story.record("nodes", case.failure.node) or {}).get("name") or "an operation"
    old, new = case.failure.expected, case.failure.found
    known = old is not None and new is not None
    if case.failure.earlier:
        return _earlier(case, node)
    versions = (
        T(en=f" Its version went from {old} to {new}.", zh=f"它的版本从 {old} 变成了 {new}。")
        if known
        else T(en="", zh="")
    )
    partly = known and not is_whole(case.story, case.failure.tensor, case.failure.storage) and not _is_covered(case)
    if partly:
        versions = T(
            en=f"{versions.en} One version counts the writes to all elements of that memory, also to those that "
            f"`{node}` does not need.",
            zh=f"{versions.zh}同一个版本计入对这块内存中所有元素的写入，也包括 `{node}` 不需要的那些。",
        )
    end = T(en="because the gradient would be wrong", zh="否则梯度会是错的")
    if partly:
        end = T(en="because it cannot tell which elements were written", zh="因为它无法知道哪些元素被写过")
    return T(
        en=f"On {then.en} torch kept {what.en} for later: `{node}` computes its gradient from these numbers, and it "
        f"keeps the memory itself, not a copy. On {here.en} the same memory was written, which torch counts in its "
        f"version.{versions.en} On {later.en} `{node}` finds a version other than the one it saved and stops, "
        f"{end.en}.",
        zh=f"在{then.zh}，torch 为以后留下了 {what.zh}：`{node}` 要用这些数值计算梯度，而且留下的是内存本身，不是副本。"
        f"在{here.zh}，同一块内存被写入，torch 会用版本计数器记下这件事。{versions.zh}"
        f"到了{later.zh}，`{node}` 发现版本与保存时不同，于是停下来：{end.zh}。",
    )


def _made(case: SavedTensorOverwritten) -> T:
    """Words for when an unrecorded graph was made."""
    if case.story.trace.unseen:
        return T(en="in a part of the program that was not recorded", zh="在程序未被记录的部分")
    return T(en="before this cell", zh="在这个单元格之前")


def _earlier(case: SavedTensorOverwritten, node: str) -> T:
    """The explanation if the forward pass ran before the recording: what torch's own graph shows of it."""
    here, _, later = case.lines()
    old, new = case.failure.expected, case.failure.found
    on = T("", "") if case.changed is None else T(en=f" on {here.en}", zh=f"在{here.zh}")
    made, more = _made(case), T(en="", zh="")
    if not case.story.trace.unseen:
        more = T(
            en="; record the cell of the forward pass too, to see the line that saved it",
            zh="；把前向传播的单元格也记录下来，就能看到保存它的那一行",
        )
    return T(
        en=f"`{node}` computes its gradient from {case.what.en}; when it was made, {made.en}, it kept that memory "
        f"itself, not a copy, at version {old}. The memory was written{on.en}, and its version is {new} now. On "
        f"{later.en} `{node}` finds that, and stops. This is read from the live graph{more.en}.",
        zh=f"`{node}` 要用 {case.what.zh} 计算梯度；它{made.zh}建立，当时留下的是那块内存本身，不是副本，版本为 {old}。"
        f"这块内存{on.zh}被写入，现在的版本是 {new}。到了{later.zh}，`{node}` 发现了这一点，于是停下来。"
        f"以上读自现存的计算图{more.zh}。",
    )


def _related(case: SavedTensorOverwritten) -> tuple[Related, ...]:
    story, what = case.story, case.what
    saved = T(en=f"{what.en} is saved here for backward", zh=f"{what.zh} 在这里被保存，供反向传播使用")
    lines = [Related("saved", story.span(case.saved_at), case.saved_at, saved)] if case.saved_at is not None else []
    lines += leading_calls(story, (case.saved_at, case.changed), case.backward)
    places: set[Span | None] = set()
    for step in case.changed_at:
        span = story.span(step)
        if span not in places and len(places) < 4:
            places.add(span)
            text = T(en=f"the memory of {what.en} is written here", zh=f"{what.zh} 的内存在这里被写入")
            lines.append(Related("changed", span, step, text))
    lines += _alias(case)
    span = story.span(case.backward) or case.failure.span
    text = T(en="backward needs the saved values here, and torch raises", zh="反向传播在这里需要保存的值，torch 报错")
    lines.append(Related("backward", span, case.backward, text))
    return tuple(lines)


def _alias(case: SavedTensorOverwritten) -> list[Related]:
    """The line that made the view through which the storage was written, in a list; empty unless that is a line of its
    own.
    """
    story, event = case.story, case.story.event(case.changed)
    label = event.operands[0].label if event is not None and event.operands else None
    born = (story.tensor(label, case.changed) or {}).get("born")
    place, name = story.span(born), story.name(label, case.changed)
    if (
        label in (None, case.failure.tensor)
        or name is None
        or f"`{name}`" == case.what.en
        or born in (None, case.saved_at)
        or place is None
    ):
        return []
    if (story.tensor(label) or {}).get("storage") != case.failure.storage or is_leaf_memory(
        story, case.failure.storage
    ):
        return []
    return [Related("alias", place, born, T(en=f"`{name}` looks at the same memory", zh=f"`{name}` 看着同一块内存"))]


def _facts(case: SavedTensorOverwritten) -> tuple[Fact, ...]:
    failure, by = case.failure, case.story.by(case.saved_at)
    return (
        Fact("called", case.what, by),
        *([Fact("earlier", True)] if failure.earlier else []),
        Fact("node", failure.node, by),
        Fact("saved", failure.saved, by),
        Fact("tensor", failure.tensor, by),
        Fact("storage", failure.storage, by),
        Fact("counter", failure.counter, by),
        Fact("expected", failure.expected, by),
        Fact("found", failure.found, case.story.by(case.changed)),
    )


RULE = Rule(
    code="PL101",
    name="saved-tensor-overwritten",
    severity="error",
    title=T(en="A tensor that backward needs was overwritten", zh="反向传播需要的张量被覆盖了"),
    what=T(
        en="To compute gradients, torch needs some of the numbers that your program computed on the way to the loss. "
        "If a line overwrites such numbers (`h += 1`, `h.mul_(10)`, `h[0] = 0`, also through a view like `h.view(-1)` "
        "or `h.detach()`) before `backward()` used them, `backward()` stops with *one of the variables needed for "
        "gradient computation has been modified by an inplace operation*. The line that raises is not the line to "
        "repair: that is the one that wrote.",
        zh="为了计算梯度，torch 需要你的程序在算出损失的路上得到的一些数。如果在 `backward()` 用到它们之前，有一行覆盖"
        "了这些数（`h += 1`、`h.mul_(10)`、`h[0] = 0`，也可能通过 `h.view(-1)` 之类的视图或 `h.detach()`），"
        "`backward()` 就会停下来，报告 *one of the variables needed for gradient computation has been modified by an "
        "inplace operation*。报错的那一行并不是要修改的那一行：要改的是写入的那一行。",
    ),
    why=T(
        en="The gradient of `sigmoid(x)` is computed from its result, that of `a * b` from `a` and `b`. So these "
        "operations *save* a tensor when they run: some an input, some their output. They save the memory itself, not "
        "a copy: copies would cost as much memory again as the whole forward pass. Every memory has a *version "
        "counter* that grows by one with each write in place, and a tensor, its views and `detach()` share one: it "
        "does not matter through which of them the write came. When backward needs a saved tensor and finds a version "
        "other than the saved one, the numbers are not the right ones any more, and torch refuses to compute a wrong "
        "gradient. Operations that save nothing (`x + 1`, `x.view(…)`, `x.sum()`) do not mind being written.",
        zh="`sigmoid(x)` 的梯度由它的结果算出，`a * b` 的梯度由 `a` 和 `b` 算出。因此这些运算在执行时会*保存*一个张"
        "量：有的保存输入，有的保存输出。保存的是内存本身，而不是副本：副本会让整个前向计算再占用一份内存。每块内存都"
        "有一个*版本计数器*，每次就地写入加一；张量、它的视图和 `detach()` 共用一个计数器，通过哪一个写入都一样。反向"
        "传播需要某个保存的张量时，如果版本与保存时不同，里面的数就不再是对的，torch 拒绝计算错误的梯度。什么都不保存"
        "的运算（`x + 1`、`x.view(…)`、`x.sum()`）不在乎被写入。",
    ),
    advice=T(
        en="make a new tensor on {changed} instead of writing into {tensor}, or write only after the "
        "backward on {backward}.",
        zh="在{changed}产生新的张量，不要写入 {tensor}；或者等{backward}的反向传播之后再写。",
    ),
    bad="""import torch

x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)  # saved
y = h * 2
h.mul_(10)  # PL101 changed
loss = y.sum() + h.sum()
loss.backward()  # backward
print(x.grad)
""",
    good="""import torch

x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
h = torch.sigmoid(x)
y = h * 2
h = h * 10
loss = y.sum() + h.sum()
loss.backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "h.mul_(10)",
            "h.data.mul_(10)",
            T(
                en="`.data` is the same memory with a version counter of its own: torch no longer notices the write, "
                "and the gradient is wrong without an error.",
                zh="`.data` 是同一块内存，却有自己的版本计数器：torch 不再察觉这次写入，没有报错，梯度却是错的。",
            ),
        ),
        Trap(
            "loss.backward()",
            "loss.backward(retain_graph=True)",
            T(
                en="This keeps the graph for a second backward. The saved numbers are still overwritten.",
                zh="这只是为第二次反向传播保留计算图。保存的数照样已经被覆盖。",
            ),
        ),
        Trap(
            "h = torch.sigmoid(x)",
            "h = torch.sigmoid(x).detach().requires_grad_()",
            T(
                en="This cuts `h` off from `x`: backward runs, and `x` gets no gradient at all.",
                zh="这把 `h` 与 `x` 切断了：反向传播能运行，`x` 却得不到任何梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors",
    ),
)
