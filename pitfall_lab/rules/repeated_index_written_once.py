"""PL720: elements at given positions were increased or put there, and where a position occurs several
times only one of them stays.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, called, capital, number, statement_text
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.rules.signals.written_back import (
    LostResult,
    WrittenBack,
    all_written_back,
    lost_result,
    repeats,
    varies,
)
from pitfall_lab.trace import Event, T

BOTH = 2


@dataclass(frozen=True, slots=True)
class RepeatedIndexWrittenOnce:
    """``back`` says which call writes computed values to ``count`` positions of a tensor (:class:`WrittenBack`) that
    has only ``places`` positions, or among which the position ``twice`` is known to occur more than once.

    ``twice`` is None where only the two counts show a repetition. ``lost`` is one of the values that were not kept;
    None where numbers were only added, or the trace has no values.
    """

    back: WrittenBack
    count: int
    places: int
    twice: tuple[int, ...] | None
    lost: LostResult | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that reads elements by positions and writes them back, changed, by the same
    positions, some of which are repeated.

    Also one for each line of a copy by positions (``scatter_``, for example) in which several computed entries go to
    one position.
    """
    told = set()
    for back in all_written_back(story):
        place = story.span(back.write.step)
        found = _repeated(story, back) if place not in told else None
        if found is not None:
            told.add(place)
            yield _finding(story, found)
    for event in story.calls(*ADDS):
        place = story.span(event.step)
        lost = _lost(story, event) if place not in told and event.error is None and event.parent is None else None
        if lost is not None:
            told.add(place)
            yield _put_finding(story, event, lost)


def _repeated(story: Story, back: WrittenBack) -> RepeatedIndexWrittenOnce | None:
    count, places = repeats(story, back)
    twice = _twice(story, back.index, back.write.step) if count <= places else None
    if count <= places and twice is None:
        return None
    lost = lost_result(story, back) if back.combined is not None else None
    if lost == "unknown":
        return RepeatedIndexWrittenOnce(back, count, places, twice, None) if varies(story, back) else None
    return (
        RepeatedIndexWrittenOnce(back, count, places, twice, lost)
        if back.combined is None or lost is not None
        else None
    )


def _twice(story: Story, index: list[str], step: int) -> tuple[int, ...] | None:
    """A position (one number for each index tensor) that is known to occur more than once; None if there is none."""
    pair = _pair(story, index, step)
    return pair[2] if pair is not None else None


def _pair(story: Story, index: list[str], step: int) -> tuple[Index, Index, tuple[int, ...]] | None:
    """Two elements of the index tensors that are known to hold one position, and this
    position; None if there is none.
    """
    known = [dict(Elements(story, label, step).known()) for label in index]
    shared = (
        set(known[0]).intersection(*known[1:]) if len({story.shape(label, step) for label in index}) == 1 else set()
    )
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


def _finding(story: Story, found: RepeatedIndexWrittenOnce) -> Finding:
    write, combined = found.back.write, found.back.combined
    here = at_line(story, story.span(write.step))
    target = called(story, found.back.table, None, write.step)
    position = ", ".join(map(str, found.twice or ()))
    over = found.count - found.places
    if combined is None:
        does, result = (
            T(en=f"adds to {target.en}", zh=f"对 {target.zh} 做加法"),
            T(en="additions are lost", zh="次加法丢失"),
        )
        twice = T(
            en=f"index {position} occurs more than once, and is added to only once",
            zh=f"索引 {position} 出现不止一次，却只加一次",
        )
    else:
        does = T(en=f"combines {target.en} with other numbers", zh=f"把 {target.zh} 与别的数结合")
        result = T(en="results are overwritten", zh="个结果被覆盖")
        twice = T(
            en=f"index {position} occurs more than once, and keeps one result",
            zh=f"索引 {position} 出现不止一次，只留下一个结果",
        )
    proof = twice if found.twice is not None else T(
        en=f"there are {found.count} indices for {found.places} places, so at least {over} {result.en}",
        zh=f"{found.count} 个索引只对应 {found.places} 个位置，所以至少有 {over} {result.zh}",
    )  # fmt: skip
    return RULE.finding(
        story.span(write.step),
        write.step,
        T(
            en=f"{capital(here.en)} {does.en} at indices that repeat: {proof.en}.",
            zh=f"{here.zh}在重复的索引处{does.zh}：{proof.zh}。",
        ),
        _how(story, found),
        related=[
            story.related(
                "changed",
                write.step,
                _collision(
                    _pair(story, found.back.index, found.back.write.step),
                    T(en="of several results for one index, only one stays", zh="同一索引的多个结果，只留下一个"),
                ),
            )
        ],
        fixes=_fixes(story, found) if combined is None else _combined_fixes(story, found.back),
        facts=[
            Fact("positions", found.count, story.by(write.step)),
            Fact("places", found.places, story.by(write.step)),
        ],
    )


def _how(story: Story, found: RepeatedIndexWrittenOnce) -> T:
    """How the results of repeated positions are lost, with a number that was, if one is known."""
    code, combined = statement_text(story, story.span(found.back.write.step)), found.back.combined
    if combined is None:
        return T(
            en=f"`{code}` first reads all the indexed elements, then adds, then writes them back. Where an index "
            "repeats, every addition begins with the same old number, and only one of the results stays. "
            "`index_put_(…, accumulate=True)`, `index_add_`, `scatter_add_` or `bincount` count each one.",
            zh=f"`{code}` 先读取所有被索引的元素，再相加，然后写回。索引重复时，每次加法都从同一个旧值开始，最后只留下"
            "其中一个结果。`index_put_(…, accumulate=True)`、`index_add_`、`scatter_add_` 或 `bincount` 会逐次累加。",
        )
    example = T(en="", zh="")
    if found.lost is not None:
        place, stays, lost = list(found.lost.place), number(found.lost.stays), number(found.lost.lost)
        example = T(
            en=f" Element {place} keeps {stays}; {lost} was computed for it too.",
            zh=f"元素 {place} 留下 {stays}，而为它还算出了 {lost}。",
        )
    return T(
        en=f"`{code}` first reads all the indexed elements, then computes with them (`{combined.name.strip('_')}`), "
        "then writes them back. Where an index repeats, every result begins with the same old number, and only one "
        f"stays.{example.en} `scatter_reduce_` takes all that come to one place together: their largest, smallest, "
        "product, sum or mean.",
        zh=f"`{code}` 先读取所有被索引的元素，再用它们计算（`{combined.name.strip('_')}`），然后写回。索引重复时，每个"
        f"结果都从同一个旧值开始，最后只留下一个。{example.zh}`scatter_reduce_` 会把到达同一位置的全部合起来：取最大、"
        "最小、乘积、总和或平均。",
    )


REDUCTIONS = {"maximum": "amax", "max": "amax", "fmax": "amax", "minimum": "amin", "min": "amin", "fmin": "amin",
              "mul": "prod", "mul_": "prod", "__mul__": "prod", "multiply": "prod"}  # fmt: skip
"""For each call, the argument of ``scatter_reduce_`` that computes the same."""


def _combined_fixes(story: Story, back: WrittenBack) -> tuple[Fix, ...]:
    """Fixes that combine all entries for one position: ``scatter_reduce_``; empty for several indices, or for another
    calculation.
    """
    program, combined = story.program, back.combined
    statement = program.statement_at(story.span(back.write.step)) if program.tree is not None else None
    reduction = REDUCTIONS.get(combined.name) if combined is not None else None
    if (
        combined is None
        or reduction is None
        or back.axis != 0
        or len(back.index) != 1
        or len(story.shape(back.index[0]) or ()) != 1
    ):
        return ()
    target, other = _target_and_other(story, back, statement)
    shape = story.shape(back.read.results[0], back.read.step) or ()
    is_plain = isinstance(other, ast.Name | ast.Attribute | ast.Subscript)
    if (
        statement is None
        or target is None
        or other is None
        or not is_plain
        or story.shape(back.other, combined.step) != shape
    ):
        return ()
    index, text = operand(program, target.slice), program.segment(other)
    if len(shape) > 1:
        index = f"{index}.view({', '.join(['-1'] + ['1'] * (len(shape) - 1))}).expand_as({text})"
    new = f'{operand(program, target.value)}.scatter_reduce_(0, {index}, {text}, "{reduction}")'
    title = T(en=f'Take all of one place together: `scatter_reduce_(…, "{reduction}")`',
              zh=f'把同一位置的全部合起来：`scatter_reduce_(…, "{reduction}")`')  # fmt: skip
    return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")])


def _target_and_other(
    story: Story, back: WrittenBack, statement: ast.stmt | None
) -> tuple[ast.Subscript | None, ast.expr | None]:
    """The indexed target of a statement (``t[i]``) and the expression that it is combined with; None for either that is
    not found, or where the statement computes anything else.
    """
    if isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Subscript):
        return statement.target, statement.value
    if (
        not isinstance(statement, ast.Assign)
        or not isinstance(statement.targets[0], ast.Subscript)
        or back.combined is None
    ):
        return None, None
    is_all = story.program.place(statement.value) == story.span(back.combined.step)
    sides = _sides(statement.value) if is_all else []
    others = [side for side in sides if story.program.place(side) != story.span(back.read.step)]
    return statement.targets[0], others[0] if len(others) == 1 and len(sides) == BOTH else None


def _sides(node: ast.AST | None) -> list[ast.expr]:
    """The two expressions that a call or an operator combines; empty for anything else."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if not isinstance(node, ast.Call) or node.keywords:
        return []
    is_method = isinstance(node.func, ast.Attribute) and len(node.args) == 1
    return [node.func.value, *node.args] if is_method and isinstance(node.func, ast.Attribute) else node.args


def _fixes(story: Story, found: RepeatedIndexWrittenOnce) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement_at(story.span(found.back.write.step))
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.target, ast.Subscript):
        return ()
    target, inner = program.segment(statement.target.value), statement.target.slice
    index = (
        ", ".join(map(program.segment, inner.elts)) if isinstance(inner, ast.Tuple) else f"{program.segment(inner)},"
    )
    value = program.segment(statement.value)
    plain = isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript | ast.Call)
    tensor = (
        f"{target}.new_tensor({value})"
        if isinstance(statement.value, ast.Constant)
        else value
        if plain
        else f"({value})"
    )
    sign = "-" if isinstance(statement.op, ast.Sub) else ""
    new = f"{target}.index_put_(({index}), {sign}{tensor}, accumulate=True)"
    title = T(
        en="Add every repetition: `index_put_(…, accumulate=True)`", zh="逐次累加：`index_put_(…, accumulate=True)`"
    )
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
    if (
        index is None
        or source is None
        or axis is None
        or source.name == "reduce"
        or argument(event, "reduce", 4) is not None
    ):
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
    """Two elements of a call's index that are known to go to one position, and this position; None if there are
    none.
    """
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
        span,
        event.step,
        T(
            en=f"{capital(here.en)} puts several entries of {what.en} into one place, and `{event.name}` keeps "
            f"one of them: {lost.en}.",
            zh=f"{here.zh}把 {what.zh} 的多个元素放到同一个位置，而 `{event.name}` 只留下其中一个：{lost.zh}。",
        ),
        T(
            en=f"`{event.name}` copies: where the index repeats, each copy replaces the one before, and torch "
            f"does not say which one is the last. `{adds}` adds up all that comes to one place; for a mean, "
            "divide by how many came.",
            zh=f"`{event.name}` 是复制：索引重复时，后一次复制会取代前一次，而且 torch 不保证哪一个是最后的。`{adds}` "
            "会把到达同一位置的元素全部相加；若要平均值，再除以个数。",
        ),
        related=[
            *(
                []
                if (born := (story.tensor(_index_of(event)) or {}).get("born")) is None
                else [story.related("made", born, T(en="the index is made here", zh="索引在这里得到"))]
            ),
            story.related(
                "changed",
                event.step,
                _collision(
                    _pair_along(story, event),
                    T(en="of several elements for one place, only one stays", zh="同一位置的多个元素只留下一个"),
                ),
            ),
        ],
        fixes=_put_fixes(story, event, adds),
        facts=[Fact("call", event.op, story.by(event.step))],
    )


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
        en="A program counts with `table[index] += 1`, and the same position occurs several times in the index. Each "
        "place grows by one at most, so the counts are far too small. Use `index_add_`, `bincount`, or `index_put_(…, "
        "accumulate=True)`. `scatter` and `index_copy` keep one of the elements for a place, too: there, use "
        "`scatter_add` or `index_add`. It is the same with `table[index] = torch.maximum(table[index], values)`: for "
        'the largest of each place, use `scatter_reduce_(…, "amax")`.',
        zh="程序用 `table[index] += 1` 计数，而索引里同一个位置出现多次。每个位置最多只增加一，所以计数远远偏小。请用 "
        "`index_add_`、`bincount` 或 `index_put_(…, accumulate=True)`。`scatter` 和 `index_copy` 也是如此，发往同一位"
        "置的只留下一个：请用 `scatter_add` 或 `index_add`。`table[index] = torch.maximum(table[index], values)` 也一"
        '样：要取每个位置的最大值，请用 `scatter_reduce_(…, "amax")`。',
    ),
    why=T(
        en="`t[i] += v` is three calls: `t.__getitem__(i)` makes a copy of the selected elements, the sum is taken on "
        "the copy, and `t.__setitem__(i, …)` writes it back. Where `i` repeats a position, each repetition has its "
        "own element in the copy, with the old value; the last write stays, and all write the same. It is the same in "
        "NumPy, where `np.add.at` adds each one.",
        zh="`t[i] += v` 是三个调用：`t.__getitem__(i)` 把选中的元素复制出来，在副本上求和，再由 `t.__setitem__(i, …)` "
        "写回。`i` 里重复的位置在副本中各有一个元素，值都是旧的；最后写入的留下，而它们写的都一样。NumPy 也是如此，那"
        "里用 `np.add.at` 逐次累加。",
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
            T(
                en="The same three calls as `+=`: an index that repeats is still written once.",
                zh="与 `+=` 是同样的三个调用：重复的下标仍只写入一次。",
            ),
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
