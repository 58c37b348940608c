"""PL720: elements at given positions were increased or put there, and where a position occurs several times only one of them stays."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

NEAR = 6


@dataclass(frozen=True, slots=True)
class Repeated:
    """``read`` took the elements at ``count`` positions, and ``write`` put computed values back at the same positions.

    There are only ``places`` different positions, or ``twice`` is one that occurs more than once.
    """

    read: Event
    write: Event
    count: int
    places: int
    twice: tuple[int, ...] | None


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line that reads and writes the same elements by the same positions, some of them repeated.

    Also one for each copy by positions (``scatter_``, say) in which several entries go to one place.
    """
    told = set()
    for event in story.calls("__setitem__"):
        place = story.span(event.step)
        found = _repeated(story, event) if place not in told and event.error is None and event.parent is None else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)
    for event in story.calls(*ADDS):
        place = story.span(event.step)
        lost = _lost(story, event) if place not in told and event.error is None and event.parent is None else None
        if lost is not None:
            told.add(place)
            yield _put_finding(story, event, lost)


def _repeated(story: Story, write: Event) -> Repeated | None:
    read = _read(story, write)
    index = _index(story, read) if read is not None else []
    if read is None or not index:
        return None
    whole, taken = (story.shape(label, read.step) or () for label in (read.operands[0].label, read.results[0]))
    rest = prod(whole[len(index) :]) if whole else 0
    if not rest or len(index) > len(whole):
        return None
    count, places = prod(taken) // rest, prod(whole[: len(index)])
    twice = _twice(story, index, read.step) if count <= places else None
    return Repeated(read, write, count, places, twice) if count > places or twice is not None else None


def _index(story: Story, event: Event) -> list[str]:
    """The integer tensors among the operands after the first one: the positions of an index; empty if there are none."""
    labels = [o.label for o in event.operands[1:] if o.label is not None]
    dtypes = [str((story.tensor(label, event.step) or {}).get("dtype")) for label in labels]
    return [label for label, dtype in zip(labels, dtypes, strict=True) if dtype in ("int64", "int32")]


def _read(story: Story, write: Event) -> Event | None:
    """The call just before that read the same elements, by the same index, if the written values were computed from them; else None."""
    given = [o.label for o in write.operands[1:] if o.label is not None]
    for event in reversed(story.events[max(0, write.step - NEAR) : write.step]):
        same = event.kind == "call" and event.name == "__getitem__" and event.operands[0].label == write.operands[0].label
        index = [o.label for o in event.operands[1:] if o.label is not None] if same else []
        if index and event.results and given[: len(index)] == index:
            return event if any(label in _changed(story, event, write) for label in given[len(index) :]) else None
    return None


def _changed(story: Story, read: Event, write: Event) -> set[str | None]:
    """The tensors that additions and subtractions between ``read`` and ``write`` computed from the elements read.

    These elements themselves are not among them.
    """
    reached: set[str | None] = set(read.results)
    grown: set[str | None] = set()
    for event in story.events[read.step + 1 : write.step]:
        if event.kind == "call" and event.name in ADDING and any(o.label in reached for o in event.operands):
            reached.update(event.results)
            grown.update(event.results)
    return grown


ADDING = {"add", "add_", "__iadd__", "__add__", "__radd__", "sub", "sub_", "__isub__", "__sub__"}


def _twice(story: Story, index: list[str], step: int) -> tuple[int, ...] | None:
    """A position (one number for each index tensor) that is known to occur more than once; None if there is none."""
    pair = _pair(story, index, step)
    return pair[2] if pair is not None else None


def _pair(story: Story, index: list[str], step: int) -> tuple[Index, Index, tuple[int, ...]] | None:
    """Two elements of the index tensors that are known to hold one position, and this position; None if there is none."""
    known = [dict(Elements(story, label, step).known()) for label in index]
    shared = set(known[0]).intersection(*known[1:]) if len({story.shape(label, step) for label in index}) == 1 else set()
    seen: dict[tuple[int, ...], Index] = {}
    for at in sorted(shared):
        position = tuple(int(each[at]) for each in known)
        if position in seen:
            return seen[position], at, position
        seen[position] = at
    return None


def _collision(pair: tuple[Index, Index, tuple[int, ...]] | None, otherwise: T) -> T:
    """In words, two elements that are written to one position, if two are known; else ``otherwise``."""
    if pair is None:
        return otherwise
    one, other, place = (f"[{', '.join(map(str, each))}]" for each in pair)
    return T(
        en=f"elements {one} and {other}, for example, both go to {place}, and only one stays",
        zh=f"例如元素 {one} 和 {other} 都去往 {place}，只留下一个",
    )


def _finding(story: Story, found: Repeated) -> Finding:
    write = found.write
    here = at_line(story, story.span(write.step))
    target = called(story, write.operands[0].label, None, write.step)
    position = ", ".join(map(str, found.twice or ()))
    proof = (
        T(
            en=f"there are {found.count} indices for {found.places} places, so at least {found.count - found.places} additions are lost",
            zh=f"{found.count} 个索引只对应 {found.places} 个位置，所以至少有 {found.count - found.places} 次加法丢失",
        )
        if found.twice is None
        else T(en=f"index {position} occurs more than once, and is added to only once", zh=f"索引 {position} 出现不止一次，却只加一次")
    )
    return RULE.finding(
        story.span(write.step), write.step,
        T(
            en=f"{capital(here.en)} adds to {target.en} at indices that repeat: {proof.en}.",
            zh=f"{here.zh}在重复的索引处对 {target.zh} 做加法：{proof.zh}。",
        ),
        T(
            en=f"`{statement_text(story, story.span(write.step))}` first reads all the indexed elements, then adds, then writes "
            "them back. Where an index repeats, every addition begins with the same old number, and only one of the results stays. "
            "`index_put_(…, accumulate=True)`, `index_add_`, `scatter_add_` or `bincount` count each one.",
            zh=f"`{statement_text(story, story.span(write.step))}` 先读取所有被索引的元素，再相加，然后写回。索引重复时，每次加法都从"
            "同一个旧值开始，最后只留下其中一个结果。`index_put_(…, accumulate=True)`、`index_add_`、`scatter_add_` 或 `bincount` "
            "会逐次累加。",
        ),
        related=[story.related("changed", write.step, _collision(
            _pair(story, _index(story, found.read), found.read.step),
            T(en="of several additions at one index, only one stays", zh="同一索引处的多次加法，只留下一次")))],
        fixes=_fixes(story, found),
        facts=[Fact("positions", found.count, story.by(write.step)), Fact("places", found.places, story.by(write.step))],
    )  # fmt: skip


def _fixes(story: Story, found: Repeated) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement_at(story.span(found.write.step))
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.target, ast.Subscript):
        return ()
    target, inner = program.segment(statement.target.value), statement.target.slice
    index = ", ".join(map(program.segment, inner.elts)) if isinstance(inner, ast.Tuple) else f"{program.segment(inner)},"
    value = program.segment(statement.value)
    plain = isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    tensor = f"{target}.new_tensor({value})" if isinstance(statement.value, ast.Constant) else value if plain else f"({value})"
    sign = "-" if isinstance(statement.op, ast.Sub) else ""
    new = f"{target}.index_put_(({index}), {sign}{tensor}, accumulate=True)"
    title = T(en="Add every repetition: `index_put_(…, accumulate=True)`", zh="逐次累加：`index_put_(…, accumulate=True)`")
    fits = isinstance(statement.op, ast.Add | ast.Sub)
    return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")]) if fits else ()


ADDS = {"scatter": "scatter_add", "scatter_": "scatter_add_", "index_copy": "index_add", "index_copy_": "index_add_"}
"""Calls that put each element at a position of its own, and those that add up what comes to one place."""


def _lost(story: Story, event: Event) -> T | None:
    """In words, that several computed elements go to one position and only one of them is kept.

    None if that is not known, or if the call was given a reduction.
    """
    operands = dict(enumerate(event.operands)) | {o.name: o for o in event.operands if o.name}
    index, source = (operands.get(name, operands.get(place)) for name, place in (("index", 2), ("src", 3)))
    axis = whole(argument(event, "dim", 1))
    if index is None or source is None or axis is None or source.name == "reduce" or argument(event, "reduce", 4) is not None:
        return None
    target, given = story.shape(event.operands[0].label, event.step) or (), story.shape(index.label, event.step) or ()
    if not (story.tensor(source.label, event.step) or {}).get("requires_grad") or not target or not given:
        return None
    axis %= len(target)
    along = axis if len(given) == len(target) else 0
    count, places = given[along], target[axis]
    if count > places:
        return T(
            en=f"along axis {along} there are {count} for {places} places, so at least {count - places} are lost",
            zh=f"{count} 个元素只对应 {places} 个位置，所以至少丢失 {count - places} 个",
        )
    pair = _pair_along(story, event)
    if pair is None:
        return None
    return T(en=f"index {pair[2][along]} occurs more than once", zh=f"索引 {pair[2][along]} 出现不止一次")


def _index_of(event: Event) -> str | None:
    return next((o for o in event.operands if o.name == "index"), event.operands[2]).label


def _pair_along(story: Story, event: Event) -> tuple[Index, Index, tuple[int, ...]] | None:
    """Two elements of a call's index that are known to go to one place, and this place; None if there is none."""
    axis = whole(argument(event, "dim", 1)) or 0
    seen: dict[Index, Index] = {}
    for at, value in sorted(Elements(story, _index_of(event), event.step).known()):
        along = axis % len(story.shape(event.operands[0].label, event.step) or (1,)) if len(at) > 1 else 0
        place = (*at[:along], int(value), *at[along + 1 :])
        if place in seen:
            return seen[place], at, place
        seen[place] = at
    return None


def _put_finding(story: Story, event: Event, lost: T) -> Finding:
    here, span = at_line(story, story.span(event.step)), story.span(event.step)
    source = next((o.label for o in event.operands if o.name in ("src", "source")), event.operands[-1].label)
    what, adds = called(story, source, None, event.step), ADDS[event.name]
    return RULE.finding(
        span, event.step,
        T(
            en=f"{capital(here.en)} puts several entries of {what.en} into one place, and `{event.name}` keeps one of them: {lost.en}.",
            zh=f"{here.zh}把 {what.zh} 的多个元素放到同一个位置，而 `{event.name}` 只留下其中一个：{lost.zh}。",
        ),
        T(
            en=f"`{event.name}` copies: where the index repeats, each copy replaces the one before, and torch does not say which one is "
            f"the last. `{adds}` adds up all that comes to one place; for a mean, divide by how many came.",
            zh=f"`{event.name}` 是复制：索引重复时，后一次复制会取代前一次，而且 torch 不保证哪一个是最后的。`{adds}` 会把到达同一位置的"
            "元素全部相加；若要平均值，再除以个数。",
        ),
        related=[
            *([] if (born := (story.tensor(_index_of(event)) or {}).get("born")) is None else [
                story.related("made", born, T(en="the index is made here", zh="索引在这里得到"))]),
            story.related("changed", event.step, _collision(
                _pair_along(story, event), T(en="of several elements for one place, only one stays", zh="同一位置的多个元素只留下一个"))),
        ],
        fixes=_put_fixes(story, event, adds),
        facts=[Fact("call", event.op, story.by(event.step))],
    )  # fmt: skip


def _put_fixes(story: Story, event: Event, adds: str) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != event.name:
        return ()
    title = T(en=f"Add up what comes to one place: `{adds}`", zh=f"把到达同一位置的相加：`{adds}`")
    edits = program.replace((node.func, f"{program.segment(node.func.value)}.{adds}"))
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL720",
    name="repeated-index-written-once",
    severity="warning",
    title=T(en="Positions that repeat are increased only once", zh="重复的位置只增加了一次"),
    what=T(
        en="A program counts with `table[index] += 1`, and the same position occurs several times in the index. Each place grows by one at "
        "most, so the counts are far too small. Use `index_add_`, `bincount`, or `index_put_(…, accumulate=True)`. `scatter` "
        "and `index_copy` keep one of the elements for a place, too: there, use `scatter_add` or `index_add`.",
        zh="程序用 `table[index] += 1` 计数，而索引里同一个位置出现多次。每个位置最多只增加一，所以计数远远偏小。请用 `index_add_`、"
        "`bincount` 或 `index_put_(…, accumulate=True)`。`scatter` 和 `index_copy` 也是如此，发往同一位置的只留下一个：请用 "
        "`scatter_add` 或 `index_add`。",
    ),
    why=T(
        en="`t[i] += v` is three calls: `t.__getitem__(i)` makes a copy of the selected elements, the sum is taken on the copy, and "
        "`t.__setitem__(i, …)` writes it back. Where `i` repeats a position, each repetition has its own element in the copy, with the old "
        "value; the last write stays, and all write the same. It is the same in NumPy, where `np.add.at` adds each one.",
        zh="`t[i] += v` 是三个调用：`t.__getitem__(i)` 把选中的元素复制出来，在副本上求和，再由 `t.__setitem__(i, …)` 写回。`i` 里重"
        "复的位置在副本"
        "中各有一个元素，值都是旧的；最后写入的留下，而它们写的都一样。NumPy 也是如此，那里用 `np.add.at` 逐次累加。",
    ),
    bad="""import torch

counts = torch.zeros(3)
classes = torch.tensor([0, 2, 2, 2, 0])
counts[classes] += 1  # PL720 changed
print(counts)
""",
    good="""import torch

counts = torch.zeros(3)
classes = torch.tensor([0, 2, 2, 2, 0])
counts.index_put_((classes,), counts.new_tensor(1), accumulate=True)
print(counts)
""",
    find=find,
    traps=(
        Trap(
            "counts[classes] += 1",
            "counts[classes] = counts[classes] + torch.ones(5)",
            T(en="The same three calls, written out.", zh="同样的三个调用，只是写开了。"),
        ),
        Trap(
            "counts[classes] += 1",
            "counts = counts.scatter(0, classes, torch.ones(5, requires_grad=True) * 1)",
            T(en="`scatter` copies, and keeps one of the copies.", zh="`scatter` 是复制，只留下其中一个。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_put_.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_add_.html",
    ),
)
