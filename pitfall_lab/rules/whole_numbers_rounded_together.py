"""PL826: different integers became equal in a floating-point dtype with few digits, and are used as integers again."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.widening import DIGITS, wider
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Lost, T
from pitfall_lab.trace.operation_facts import spellings

WHOLE = ("int", "uint")
WRITES = {"__setitem__", "copy_"}
EQUALS = spellings("eq") | {"isin", "unique", "unique_consecutive"}
"""Calls that tell numbers apart."""
SELECTING = {"__getitem__", "select", "narrow", "unbind", "split", "chunk", "squeeze", "unsqueeze", "T", "t", "detach"}
"""Calls that take a part of a table, in front of the one that uses it."""
FURTHER = 2000


@dataclass(frozen=True, slots=True)
class RoundedTogether:
    """``event`` is the call (``Event``) that stored integers in the tensor labelled ``label``, of the floating-point
    dtype ``dtype``, in which some of them became equal; ``lost`` is the record of these (:class:`Lost`).

    ``used`` is the call that uses them as different integers.
    """

    event: Event
    label: str
    lost: Lost
    used: Event
    dtype: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that stores integers in a floating-point dtype that makes some of them equal, if
    they are converted to integers again, or compared by ``==``, ``isin`` or ``unique``, and one is known that is beyond
    the integers which the dtype can hold without gaps.
    """
    reported = set()
    for lost in story.trace.beside.losses:
        event, place = story.event(lost.step), story.span(lost.step)
        if event is None or lost.sign != "#" or place in reported or event.error is not None:
            continue
        label = event.operands[0].label if event.name in WRITES else next(iter(event.results), None)
        dtype = _dtype(story, label, event.step)
        used = _used(story, label, event, 2.0 ** DIGITS[dtype]) if label is not None and dtype in DIGITS else None
        if used is not None and label is not None:
            reported.add(place)
            yield _finding(story, RoundedTogether(event, label, lost, used, dtype))


def _dtype(story: Story, label: str | None, step: int) -> str:
    return str((story.tensor(label, step) or {}).get("dtype") or "")


def _used(story: Story, start: str, event: Event, limit: float) -> Event | None:
    """The call that converts the stored numbers to integers, or compares them (``EQUALS``), if a number beyond
    ``limit`` is known in it; None if there is none within ``FURTHER`` tensors.
    """
    pending, seen = [start], {start}
    while pending and len(seen) < FURTHER:
        for use in story.uses(pending.pop()):
            if use.step <= event.step or use.error is not None or not use.results:
                continue
            is_whole = _dtype(story, use.results[0], use.step).startswith(WHOLE)
            if (is_whole or use.name in EQUALS) and _is_large(story, use, limit):
                return use
            if use.name in SAME_NUMBERS and not is_whole:
                new = [each for each in use.results if each not in seen]
                seen.update(new)
                pending += new
    return None


def _is_large(story: Story, use: Event, limit: float) -> bool:
    """Whether a number beyond ``limit`` is known among those that a call was given or returned."""
    labels = [*(o.label for o in use.operands if o.label is not None), *use.results]
    return any(abs(value) > limit for each in labels for _, value in Elements(story, each, use.step).known())


def _finding(story: Story, found: RoundedTogether) -> Finding:
    event, lost, dtype = found.event, found.lost, found.dtype
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.used.step))
    one, other, got = (f"{number:.19g}" for number in (lost.one, lost.other, lost.got))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} makes different whole numbers equal: {one} and {other} both become {got} in "
            f"{dtype}. Of {lost.of:,} different ones {lost.of - lost.lost:,} are left, and {there.en} takes them for "
            "whole numbers.",
            zh=f"{here.zh}把不同的整数变成了相同的数：在 {dtype} 中 {one} 和 {other} 都成为 {got}。{lost.of:,} 个不同的"
            f"整数只剩 {lost.of - lost.lost:,} 个，而{there.zh}把它们当作整数使用。",
        ),
        T(
            en=f"{dtype} keeps {DIGITS[dtype]} binary digits of a number: beyond {2 ** DIGITS[dtype]:,} not every "
            f"whole number has a place, and `{snippet(story, event.span)}` rounds to the nearest one. A later "
            "conversion to integers does not bring back what was rounded. Keep such numbers in a tensor of integers of "
            "their own, or in float64, and convert the other columns.",
            zh=f"{dtype} 对每个数保留 {DIGITS[dtype]} 个二进制位：超过 {2 ** DIGITS[dtype]:,} 后不是每个整数都有位置，"
            f"`{snippet(story, event.span)}` 会舍入到最近的位置。之后再转换成整数也找不回被舍入的部分。请把这样的数放在"
            "单独的整数张量里，或用 float64 保存，再转换其他列。",
        ),
        related=[
            story.related("made", event.step, T(en="the numbers are rounded here", zh="数在这里被舍入")),
            story.related("used", found.used.step, T(en="taken for whole numbers here", zh="在这里当作整数使用")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("lost", lost.lost), Fact("different", lost.of)],
    )


def _fixes(story: Story, found: RoundedTogether) -> tuple[Fix, ...]:
    """Fixes that store the numbers in float64, and convert those parts of them that are used in another way back to the
    old dtype.

    Empty where the program's source does not show the dtype.
    """
    program = story.program
    wide = wider(program, program.at(story.span(found.event.step)))
    if wide is None:
        return ()
    back = ".float()" if found.dtype == "float32" else f".to(torch.{found.dtype})"
    parts = [(node, f"{operand(program, node)}{back}") for node in _other_parts(story, found)]
    title = T(
        en=f"Keep the numbers in float64, and convert the others: `{back}`",
        zh=f"用 float64 保存，其他的再转换：`{back}`",
    )
    plain = T(en="Keep the numbers in float64", zh="用 float64 保存这些数")
    candidates = [Fix(plain, program.replace(wide), meaning="later")]
    if parts:
        candidates.insert(0, Fix(title, program.replace(wide, *parts), meaning="later"))
    return unique(program.text, candidates)


def _other_parts(story: Story, found: RoundedTogether) -> list[ast.expr]:
    """The expressions for slices of the stored numbers that are used as fractions: neither converted to integers nor
    compared.
    """
    program, nodes = story.program, dict[tuple[int, int], ast.expr]()
    pending, seen = [(found.label, found.event)], {found.label}
    while pending and len(seen) < FURTHER:
        label, made = pending.pop()
        for use in story.uses(label):
            if use.step <= found.event.step or use.error is not None:
                continue
            if use.name in SELECTING:
                pending += [(each, use) for each in use.results if each not in seen]
                seen.update(use.results)
                continue
            dtypes = [_dtype(story, each, use.step) for each in use.results]
            if use.name in EQUALS or (dtypes and all(dtype.startswith(WHOLE) for dtype in dtypes)):
                continue
            node = program.at(story.span(made.step)) if label != found.label else written_as(story, use, label)
            if isinstance(node, ast.expr):
                nodes[node.lineno, node.col_offset] = node
    return list(nodes.values())


RULE = Rule(
    code="PL826",
    name="whole-numbers-rounded-together",
    severity="warning",
    title=T(
        en="Different whole numbers became equal in float32 and are used as whole numbers again",
        zh="不同的整数在 float32 中变得相等，之后又被当作整数使用",
    ),
    what=T(
        en="A program keeps account numbers such as 731904003 in one table with fractions, in float32, and turns them "
        "into integers later. float32 has no place for most whole numbers of that size, so several accounts have the "
        "same number afterwards. Keep such numbers as integers, in a tensor of their own.",
        zh="程序把 731904003 这样的账号与小数放在同一个 float32 表格里，之后再转换成整数。float32 中这样大的整数大多没"
        "有位置，所以之后几个账号会有相同的号码。请把这样的数作为整数放在单独的张量里。",
    ),
    why=T(
        en="A float32 number has 24 binary digits: up to 16777216 each whole number has a place, at 700 million only "
        "every 64th. A conversion takes the nearest place and raises nothing. `.long()` gives integers again, but not "
        "the ones that came in. float64 has 53 binary digits, enough for whole numbers with up to 15 digits; int64 "
        "keeps all of them. A table with several kinds of columns has one type for all: `torch.tensor(rows)` with one "
        "fraction in it is float32, and so is `torch.cat` of integers with a float32 tensor.",
        zh="float32 的数有 24 个二进制位：16777216 以内每个整数都有位置，到 7 亿时每隔 64 才有一个。转换会取最近的位"
        "置，不会报错。`.long()` 再给出整数，但已不是原来的那些。float64 有 53 个二进制位，足以表示最多 15 位的整数；"
        "int64 能全部保留。含有多种列的表格只有一种类型：只要有一个小数，`torch.tensor(rows)` 就是 float32；整数与 "
        "float32 张量的 `torch.cat` 也是。",
    ),
    advice=T(
        en="keep the numbers of {line} as integers in a tensor of their own, or in float64.",
        zh="把{line}的这些数作为整数放在单独的张量里，或用 float64 保存。",
    ),
    bad="""import torch

rows = [[731904000, 3.5], [731904003, 1.0], [731904100, 2.0]]
table = torch.tensor(rows)  # PL826 made
accounts = table[:, 0].long()  # used
amounts = table[:, 1]
print(accounts.unique().numel(), amounts * 2)
""",
    good="""import torch

rows = [[731904000, 3.5], [731904003, 1.0], [731904100, 2.0]]
table = torch.tensor(rows, dtype=torch.float64)
accounts = table[:, 0].long()
amounts = table[:, 1].float()
print(accounts.unique().numel(), amounts * 2)
""",
    find=find,
    traps=(
        Trap(
            "table[:, 0].long()",
            "table[:, 0].double().long()",
            T(
                en="The numbers are rounded already: float64 does not bring their digits back.",
                zh="数已经被舍入：换成 float64，位数也回不来。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.long.html",
    ),
)
