"""NaN and infinity that a closer recording has found (:class:`~pitfall_lab.trace.Unfinite`), and sentences on them for
rules.
"""

from __future__ import annotations

import ast
import re

from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import number
from pitfall_lab.trace import T, Unfinite
from pitfall_lab.trace.operation_facts import spellings

LARGEST = {"float16": "65,504", "bfloat16": "3.4e38", "float32": "3.4e38", "float64": "1.8e308"}
TESTS = re.compile(r"\b(?:math|np|numpy|cmath)\s*\.\s*(?:isnan|isfinite|isinf|nan_to_num)\b|\bGradScaler\b")
CALLS = spellings("nan_to_num", in_place=True) | {
    "isfinite",
    "isinf",
    "isnan",
    "nanmean",
    "nanmedian",
    "nanquantile",
    "nansum",
}
"""Calls that test for NaN or infinity, or ignore or replace them."""
PRINTS = {"print", "info", "debug", "warning", "error", "write", "add_scalar", "log"}
ON_PURPOSE = ("put", "made")
"""Origins (``Unfinite.why``) of infinities that the program itself wrote."""

WHY = {
    "no-score": T(
        en="In one row every score is `-inf`, so the softmax divides 0 by 0: there is nothing that "
        "the shares could be of.",
        zh="有一行的分数全是 `-inf`，softmax 于是用 0 除以 0：没有任何东西可以分配份额。",
    ),
    "nothing": T(
        en="It is given no number at all: a mean of nothing is 0 / 0.", zh="它没有得到任何数：空的平均值是 0 / 0。"
    ),
    "single": T(
        en="It is given a single number, and divides by the count of the numbers less one: 0 / 0.",
        zh="它只得到一个数，而除数是个数减一：0 / 0。",
    ),
    "no-target": T(
        en="Every target is the number that is left out: the mean of no loss is 0 / 0.",
        zh="所有目标都是被忽略的那个数：空的平均值是 0 / 0。",
    ),
    "made": T(en="It is in the data that the program makes there.", zh="它就在程序在那里创建的数据中。"),
    "put": T(en="The program itself gives this number to the call.", zh="这个数是程序自己交给这次调用的。"),
}


def is_handled(story: Story, found: Unfinite) -> bool:
    """Whether the program ran to its end and deals with ``found``, a NaN or infinity, itself: it acts on a test for
    them, or takes no optimizer step with the gradients of that backward.
    """
    tested = (found.noticed or TESTS.search(story.program.text) is not None) and acts_on_tests(story)
    return story.trace.outcome.kind == "finished" and (tested or is_skipped(story, found.backward))


def is_skipped(story: Story, backward: int | None) -> bool:
    """Whether no update used the gradients of the backward at the step ``backward``: they were cleared before any leaf
    that they belong to was written again.

    How the program decides that (an error caught, a norm compared) does not matter. False if no such leaf is ever
    written, or ``backward`` is None.
    """
    event = story.event(backward)
    start = event.operands[0].label if event is not None and event.operands else None
    nodes = (
        story.record("nodes", node) or {} for node in story.behind((story.tensor(start, backward) or {}).get("grad_fn"))
    )
    leaves = {str(node["output"]) for node in nodes if node.get("name") == "AccumulateGrad" and node.get("output")}
    trained = False
    for leaf in leaves if backward is not None else ():
        storage = str((story.tensor(leaf) or {}).get("storage"))
        trained = trained or bool(story.writes(storage, (story.tensor(leaf) or {}).get("born") or 0, len(story.events)))
        after = story.writes(storage, backward or 0, len(story.events))
        if after and not _cleared(story, leaf, backward or 0, after[0]):
            return False
    return trained


def _cleared(story: Story, leaf: str, after: int, until: int) -> bool:
    """Whether the gradient of a leaf was set to None, or zeroed, between two steps."""
    history = story.history("tensors", leaf, "grad")
    if any(value is None for step, value in history if after < step < until):
        return True
    gradient = next((value for step, value in reversed(history) if step <= until and value is not None), None)
    return any(use.name == "zero_" and after < use.step < until for use in story.uses(gradient))


def acts_on_tests(story: Story) -> bool:
    """Whether a test for NaN or infinity does more than print its result, as far as the source shows it.

    Also True if the source shows no test or cannot be parsed, if another file makes a test, or if the source contains
    ``GradScaler``.
    """
    program = story.program
    if program.tree is None or "GradScaler" in program.text:
        return True
    if any(event.span is None or event.span.source for event in story.calls(*CALLS)):
        return True
    calls = [node for node in program.nodes if isinstance(node, ast.Call) and called(node) in CALLS]
    return not calls or not all(_is_printed(program, call) for call in calls)


def _is_printed(program: Program, call: ast.Call) -> bool:
    statement = program.statement(call)
    return (
        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call) and called(statement.value) in PRINTS
    )


def of_gradients(story: Story) -> list[Unfinite]:
    """Return the records of the NaN and infinite values that nodes of a backward computed, in the recording's order."""
    return [found for found in story.trace.beside.unfinite if found.node is not None]


def of_results(story: Story) -> list[Unfinite]:
    """Return the records of the NaN and infinite values that calls computed and that reached a loss, or from which no
    other recorded one was computed, in order.

    Those computed after the first gradient with NaN or infinity are left out.
    """
    before = min((found.step for found in of_gradients(story)), default=None)
    every = [found for found in story.trace.beside.unfinite if found.node is None]
    sources = {found.source for found in every}
    chosen = [found for found in every if found.backward is not None or found.step not in sources]
    return [found for found in chosen if before is None or found.step < before]


def source_of(story: Story, found: Unfinite) -> Unfinite | None:
    """Return the record of the infinity from which ``found``, a NaN, was computed; None if there is none, or if the
    program wrote the infinity itself.
    """
    made = (other for other in story.trace.beside.unfinite if other.step == found.source and other.node is None)
    return next((other for other in made if other.why not in ON_PURPOSE), None)


def why(story: Story, found: Unfinite) -> T:
    """Return a sentence or two, in both languages, on the values from which ``found``, a NaN or infinity, was
    computed.
    """
    if found.why in WHY:
        return WHY[found.why]
    sentence = T(en="", zh="")
    if found.given:
        at = f"[{', '.join(map(str, found.at))}]"
        values = [number(value) for _, value in found.given]
        there_en, there_zh = (f"At {at} it", f"在 {at} 处它") if found.at else ("It", "它")
        sentence = T(en=f"{there_en} is given {' and '.join(values)}.", zh=f"{there_zh}得到 {' 和 '.join(values)}。")
    dtype = str((story.tensor(found.tensor) or {}).get("dtype"))
    if found.kind == "inf" and dtype in LARGEST:
        en = f" The result is outside the range of {dtype}, whose largest number is {LARGEST[dtype]}."
        return T(en=(sentence.en + en).strip(), zh=f"{sentence.zh}结果超出了 {dtype} 的范围（最大 {LARGEST[dtype]}）。")
    return sentence if found.given else T(
        en="It has no answer for one of the numbers that it is given.", zh="对于它得到的某个数，它没有答案。",
    )  # fmt: skip
