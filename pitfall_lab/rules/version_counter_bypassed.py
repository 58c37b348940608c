"""PL301: memory that backward needed was changed in a way torch does not count, so the gradient is silently wrong.

Found from the trace's harms: the shadow engine computes the intended gradient (from the saved values at the time of
saving) and compares it with the one torch returned. No difference, no finding: such a write is often harmless.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pitfall_lab.rules.kit.call_stack import leading_calls
from pitfall_lab.rules.kit.finding import Fact, Finding, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import repairs
from pitfall_lab.rules.kit.story import Clash, Story
from pitfall_lab.rules.kit.wording import (
    apart,
    at_line,
    called,
    capital,
    differ,
    difference,
    flat,
    gradient_of,
    number,
    numbers,
    numbers_apart,
    snippet,
    statement_text,
)
from pitfall_lab.trace import Harm, Span, StaleRead, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of a line that wrote a storage without torch counting it and the line whose saved
    value this changed, if a gradient became wrong by it.

    Each wrong gradient counts once: for the first of its causes with a known write, or else for the first cause. Wrong
    gradients without any cause are left out.
    """
    groups: dict[str | int, list[tuple[Harm, StaleRead]]] = {}
    for harm in filter(_is_wrong, story.trace.harms):
        # all that one backward read too late, of which a leaf's gradient went through some only
        behind = [cause for cause in harm.causes if _reaches(story, cause.node, harm.leaf)] or harm.causes
        causes = list(map(partial(_with_writes, story, harm.step), behind))
        # memory that a call wrote and saved at once (running statistics in train mode) was not needed as it had been
        for cause in [cause for cause in causes if cause.changed_at][:1] or causes[:1]:
            first = _first(cause)
            groups.setdefault(cause.storage if first is None else first, []).append((harm, cause))
    places = set()
    for group in groups.values():
        place = story.span(_first(group[0][1])), story.span(group[0][1].saved_at)
        if place not in places:  # a loop passes the same lines again
            places.add(place)
            yield _finding(story, group)


def _reaches(story: Story, node: str, leaf: str) -> bool:
    """Whether a gradient that passes a node reaches a leaf."""
    records = (story.record("nodes", each) or {} for each in story.behind(node))
    return any(each.get("name") == "AccumulateGrad" and each.get("output") == leaf for each in records)


def _names_it(story: Story, span: Span | None, name: str, saved: Span | None) -> bool:
    """Whether the statement at ``span`` uses this name for this tensor, and not for a variable of the
    same name in another function.
    """
    functions = [story.program.function(node) if (node := story.program.at(place)) else None for place in (span, saved)]
    is_its_own = "." in name or functions[0] is functions[1] or not _has(story, saved, name)
    return is_its_own and _has(story, span, name)


def _has(story: Story, span: Span | None, name: str) -> bool:
    return name in re.findall(r"[\w.]+", statement_text(story, span, 500).replace(".data", " "))


def _first(cause: StaleRead) -> int | None:
    return cause.changed_at[0] if cause.changed_at else None


def _is_wrong(harm: Harm) -> bool:
    """Whether torch's gradient and the intended one are known and differ by more than rounding.

    Also True if the trace has only some elements of one of them: it has a harm only where the engine saw a difference.
    """
    if harm.torch is None or harm.meant is None:
        return False
    # of a long gradient the trace has a few elements only, and others may be those that differ
    abbreviated = isinstance(harm.torch, dict) or isinstance(harm.meant, dict)
    return abbreviated or bool(differ(dict(flat(harm.torch)), dict(flat(harm.meant))))


def _with_writes(story: Story, backward: int, cause: StaleRead) -> StaleRead:
    """``cause`` with the steps that wrote the storage, recorded as calls or not, or that
    gave the tensor another storage.
    """
    if cause.changed_at or cause.saved_at is None:
        return cause
    steps = story.writes(cause.storage, cause.saved_at, backward)
    return replace(
        cause, changed_at=steps or tuple(exchanges(story, _saved_tensor(story, cause), cause.saved_at, backward))
    )


def exchanges(story: Story, tensor: str | None, after: int, until: int) -> list[int]:
    """Return the steps after ``after`` and before ``until`` at which ``tensor.data = …`` gave the tensor labelled
    ``tensor`` another storage; empty if there are none or the label is None.
    """
    return [
        event.step for event in story.uses(tensor) if event.op.endswith(".data.__set__") and after < event.step < until
    ]


def _finding(story: Story, group: list[tuple[Harm, StaleRead]]) -> Finding:
    harm, cause = group[0]
    changed = _first(cause)
    backward = _backward_step(story, harm.step)
    span = story.span(changed)
    what = called(story, _saved_tensor(story, cause), cause.storage, cause.saved_at, cause.saved_at)
    leaf = called(story, harm.leaf, None, None)
    clash = Clash(cause.storage, cause.saved_at, cause.changed_at, backward)
    got, meant = _numbers(harm)
    wrong = T(
        en=f"The gradient of {leaf.en} is wrong: {got} where {meant} was meant",
        zh=f"{leaf.zh} 的梯度是错的：得到 {got}，本应是 {meant}",
    )
    here = at_line(story, span)
    saved = story.span(cause.saved_at)
    name = what.en.strip("`")
    named = _names_it(story, span, name, saved)
    then = at_line(story, saved)
    of = (
        T(en=f"the memory of {what.en}", zh=f"{what.zh} 的内存")
        if saved in (None, span) or not _has(story, saved, name)
        else T(en=f"the memory of {what.en} ({then.en})", zh=f"{what.zh}（{then.zh}）的内存")
    )
    written = what if named or "`" not in what.en else of
    does = T(en=f"{capital(here.en)} changes {written.en}", zh=f"{here.zh}修改了 {written.zh}")
    if _is_by_numpy(story, changed):
        does = T(en=f"On {here.en} NumPy writes into {written.en}", zh=f"在{here.zh}，NumPy 写入了 {written.zh}")
    return RULE.finding(
        span or story.span(backward),
        changed if changed is not None else harm.step,
        T(
            en=f"{does.en} without torch noticing, so the gradient of {leaf.en} is wrong{_in_short(harm).en}.",
            zh=f"{does.zh}，而 torch 没有察觉，所以 {leaf.zh} 的梯度是错的{_in_short(harm).zh}。",
        ),
        _explanation(story, what, cause, changed, backward),
        related=_related(story, (what, leaf), harm, cause, backward),
        fixes=repairs(story, clash),
        facts=(Fact("called", what), Fact("wrong", wrong), *_facts(group)),
    )


def _backward_step(story: Story, step: int) -> int:
    event = story.event(step)
    while event is not None and event.kind == "node" and event.parent is not None:
        event = story.event(event.parent)
    return event.step if event is not None else step


def _saved_tensor(story: Story, cause: StaleRead) -> str | None:
    node = story.record("nodes", cause.node) or {}
    return next((saved.get("tensor") for saved in node.get("saved", ()) if saved.get("name") == cause.saved), None)


def _in_short(harm: Harm) -> T:
    """Torch's value and the intended one, in brackets, at the first element where they differ."""
    got, meant = (dict(flat(each)) for each in (harm.torch, harm.meant))
    place = next(iter(sorted(differ(got, meant))), None)
    if place is None:
        return T("", "")
    one, other = apart(got[place], meant[place]) or (number(got[place]), number(meant[place]))
    return T(en=f" (one of its numbers is {one} instead of {other})", zh=f"（其中一个数是 {one}，本应是 {other}）")


def _numbers(harm: Harm) -> tuple[str, str]:
    """Torch's gradient and the one without the overwrites, as text; if they are long, only the
    elements in which they differ.
    """
    differ = difference(harm.torch, harm.meant)
    long = (
        isinstance(harm.torch, dict)
        or isinstance(harm.meant, dict)
        or len(numbers(harm.torch)) > 60
        or numbers(harm.torch).endswith("…]")
    )
    only = differ if long and differ else None
    return numbers_apart(harm.torch, harm.meant, only)


def _explanation(story: Story, what: T, cause: StaleRead, changed: int | None, backward: int) -> T:
    here, then, later = (at_line(story, story.span(step)) for step in (changed, cause.saved_at, backward))
    node = (story.record("nodes", cause.node) or {}).get("name") or "an operation"
    way = (
        T(en="by NumPy, past torch's version counter", zh="由 NumPy 写入，绕过了 torch 的版本计数器")
        if _is_by_numpy(story, changed)
        else T(
            en="through `.data`, NumPy or another way around torch's version counter",
            zh="通过 `.data`、NumPy 或其他绕过版本计数器的方式被写入",
        )
    )
    return T(
        en=f"On {then.en} torch kept the memory of {what.en}, because `{node}` computes its gradient from it. On "
        f"{here.en} that memory was written {way.en}, so the counter still shows the old "
        f"number. On {later.en} `{node}` compares the version with the one it saved, "
        "finds the same, and computes with the new values: no error, and a gradient of something you did not compute.",
        zh=f"在{then.zh}，torch 留下了 {what.zh} 的内存，因为 `{node}` 要用它计算梯度。在{here.zh}，这块内存{way.zh}，"
        "计数器仍是旧的数字。"
        f"到了{later.zh}，`{node}` 比较版本，没有发现异常，就用新值来计算：没有报错，梯度却不是你所计算的东西的梯度。",
    )


def _is_by_numpy(story: Story, step: int | None) -> bool:
    event = story.event(step)
    return event is not None and event.kind == "write" and event.op == "numpy"


def _related(story: Story, names: tuple[T, T], harm: Harm, cause: StaleRead, backward: int) -> tuple[Related, ...]:
    what, leaf = names
    lines = [
        Related(
            "saved",
            story.span(cause.saved_at),
            cause.saved_at,
            T(en=f"{what.en} is saved here for backward", zh=f"{what.zh} 在这里被保存，供反向传播使用"),
        )
    ]
    lines += leading_calls(story, (cause.saved_at, _first(cause)), backward)
    places: set[Span | None] = set()
    for step in cause.changed_at:
        span = story.span(step)
        if span not in places and len(places) < 4:
            places.add(span)
            text = T(
                en="its memory is written here, and no version counts it",
                zh="它的内存在这里被写入，却没有版本记下这件事",
            )
            lines.append(Related("changed", span, step, text))
    written = {span.line for span in places if span is not None}
    lines += [each for each in _alias(story, cause) if each.span is None or each.span.line not in written]
    got, meant = _numbers(harm)
    gradient = gradient_of(leaf)
    text = T(
        en=f"backward uses the new values here: {gradient.en} is {got}, and should be {meant}",
        zh=f"反向传播在这里用了新值：{gradient.zh} 是 {got}，本应是 {meant}",
    )
    lines.append(Related("backward", story.span(backward), backward, text))
    return tuple(lines)


def _alias(story: Story, cause: StaleRead) -> list[Related]:
    """Where a tensor or array was made that shares the storage but not the version counter, as a related line; empty if
    there is none.

    If there are several, one through which the storage was written comes first: a parameter's storage also belongs to
    the tensor that the parameter was made from, which nothing uses any more.
    """
    node = story.record("nodes", cause.node) or {}
    counter = next((saved.get("counter") for saved in node.get("saved", ()) if saved.get("name") == cause.saved), None)
    events = [event for step in cause.changed_at if (event := story.event(step))]
    written = {operand.label for event in events for operand in event.operands}
    for label, tensor in sorted(story.tensors_on(cause.storage), key=lambda one: one[0] not in written):
        if tensor.get("kind") == "array" or tensor.get("counter") not in (None, counter):
            born = tensor.get("born")
            text = story.name(label) or snippet(story, story.span(born))
            name = T(en=f"`{text}`", zh=f"`{text}`") if text else T(en="this", zh="这里")
            return [
                Related(
                    "alias",
                    story.span(born),
                    born,
                    T(en=f"{name.en} is another way into the same memory", zh=f"{name.zh} 是通向同一块内存的另一条路"),
                )
            ]
    return []


def _facts(group: list[tuple[Harm, StaleRead]]) -> tuple[Fact, ...]:
    facts = []
    for harm, cause in group:
        facts += [
            Fact("leaf", harm.leaf, "agreed"),
            Fact("gradient", harm.torch, "observed"),
            Fact("meant", harm.meant, "modelled"),
            Fact("storage", cause.storage, "agreed"),
            Fact("node", cause.node, "agreed"),
        ]
    return tuple(facts)


RULE = Rule(
    code="PL301",
    name="version-counter-bypassed",
    severity="warning",
    title=T(en="A gradient is wrong because torch did not see a write", zh="torch 没有看到一次写入，梯度因此出错"),
    what=T(
        en="To compute gradients, torch needs some of the numbers that your program computed on the way to the loss. "
        "Here such numbers were overwritten before `backward()` used them, and in a way that torch does not notice: "
        "through `.data`, through a NumPy array on the same memory, by a fused optimizer. There is no error. Training "
        "continues with a gradient of something that you did not compute. Nothing is slower to find than a gradient "
        "that is only a little wrong.",
        zh="为了计算梯度，torch 需要你的程序在算出损失的路上得到的一些数。这里，这些数在 `backward()` 用到之前被覆盖"
        "了，而且是以 torch 察觉不到的方式：通过 `.data`、通过看着同一块内存的 NumPy 数组、或由融合的优化器写入。没有"
        "报错。训练继续进行，用的却是你没有计算过的东西的梯度。没有什么比“只错一点点”的梯度更难发现。",
    ),
    why=T(
        en="Torch finds out that saved memory was changed by a *version counter*: each write in place makes it grow "
        "by one, and backward compares. The counter belongs to the tensor and its views. `.data` and NumPy arrays "
        "share the memory but not the counter: what is written through them is not counted: NumPy does not call "
        "torch, and `.data` is older than the counters and was made for code that must not be counted.",
        zh="torch 靠*版本计数器*发现保存的内存被修改：每次就地写入让它加一，反向传播时比较。计数器属于张量和它的视图。"
        "`.data` 和 NumPy 数组共享内存，却不共享计数器：通过它们写入的东西不会被计数，因为 NumPy 对 torch 一无所知，也"
        "因为 `.data` 比计数器更古老，本是给知道自己在做什么的代码用的。",
    ),
    advice=T(
        en="write on {changed} into a copy (`.clone()`, or `.copy()` of an array), or only after the "
        "backward on {backward}.",
        zh="在{changed}写入副本（`.clone()`，数组用 `.copy()`），或者等{backward}的反向传播之后再写。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 2
y = (h ** 2).sum()  # saved
a = h.detach().numpy()  # alias
a[0] = 50.0  # PL301 changed
y.backward()  # backward
print(x.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = x * 2
y = (h ** 2).sum()
a = h.detach().numpy().copy()
a[0] = 50.0
y.backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "a = h.detach().numpy()",
            "a = h.data.numpy()",
            T(
                en="Another spelling of the same: neither `.detach()` nor `.data` copies. Only `.clone()` and "
                "NumPy's `.copy()` do.",
                zh="只是同一件事的另一种写法：`.detach()` 和 `.data` 都不复制。只有 `.clone()` 和 NumPy "
                "的 `.copy()` 才复制。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html",
    ),
)
