"""PL832: ``pred == labels & valid`` computes ``labels & valid`` first, bit by bit, and compares ``pred`` with that
result, where ``(pred == labels) & valid`` was intended.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.trace import Event, Span, T

SIGNS = {"and": "&", "or": "|", "xor": "^"}
BITS = tuple(form.format(name) for name in SIGNS for form in ("__{}__", "__r{}__", "bitwise_{}"))
COMPARED = {"eq", "ne", "lt", "gt", "le", "ge"}
"""The names of comparisons, without underscores."""
BOTH = 2


@dataclass(frozen=True, slots=True)
class Bits:
    """``event`` is the call (``Event``) of ``&``, ``|`` or ``^`` that combined the bits of ``numbers`` with those of
    the tensor labelled ``truth``, which are bools or 0 and 1; ``compared`` is the comparison that uses the result.

    ``numbers`` is the label of an integer tensor or, where ``plain`` is True, the text of a Python integer.
    """

    event: Event
    numbers: str
    truth: str
    compared: Event
    plain: bool = False


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line such as ``mask & x == 3``, where ``&``, ``|`` or ``^`` is computed before the
    comparison.

    One operand is a tensor of truth values (bool, or integers known to be 0 and 1), the other one has other integers,
    and the comparison gets the combined bits. Nothing if the result is also used for something else, or if it is
    compared with the operands themselves.
    """
    reported = set()
    for event in story.calls(*BITS):
        place = story.span(event.step)
        found = _bits(story, event) if place not in reported and event.error is None and event.results else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _bits(story: Story, event: Event) -> Bits | None:
    """Return the data of a finding if one operand of ``event`` has truth values, the other has other integers, and
    comparisons are the only use of the result; else None.

    More ``&``, ``|`` or ``^`` of integers may lie between the call and the comparison.
    """
    if len(event.operands) != BOTH or not _is_whole(story, event.results[0], event.step):
        return None
    truth = next(
        (o.label for o in event.operands if o.label is not None and _is_truth(story, o.label, event.step)), None
    )
    other = next((o for o in event.operands if truth is not None and o.label != truth), None)
    if truth is None or other is None or (other.label is None and not other.text.lstrip("-").isdigit()):
        return None
    if other.label is not None and not _is_more(story, other.label, truth, event.step):
        return None
    last = event
    while uses := [use for use in story.uses(last.results[0]) if use.step > last.step and use.results]:
        least = 0.0 if other.label is None else 2.0 if _is_bool(story, truth, event.step) else math.inf
        if all(use.name.strip("_") in COMPARED and _is_other(use, last, least) for use in uses):
            return Bits(event, other.label or other.text, truth, uses[0], plain=other.label is None)
        if len(uses) > 1 or uses[0].name not in BITS or not _is_whole(story, uses[0].results[0], uses[0].step):
            return None
        last = uses[0]
    return None


def _is_truth(story: Story, label: str, step: int) -> bool:
    """Whether a tensor has truth values: bools, or integers that are known to be 0 and 1."""
    return _is_bool(story, label, step) or (
        _is_whole(story, label, step) and {value for _, value in Elements(story, label, step).known()} == {0, 1}
    )


def _is_bool(story: Story, label: str, step: int) -> bool:
    return (story.tensor(label, step) or {}).get("dtype") == "bool"


def _is_whole(story: Story, label: str, step: int) -> bool:
    return str((story.tensor(label, step) or {}).get("dtype")).startswith(("int", "uint"))


def _is_more(story: Story, label: str, truth: str, step: int) -> bool:
    """Whether the tensor ``label`` has integers and some of them are neither 0 nor 1.

    If none of its numbers is known, the answer is True if the tensor ``truth`` is bool, else False.
    """
    if not _is_whole(story, label, step):
        return False
    known = {value for _, value in Elements(story, label, step).known()}
    if _is_bool(story, truth, step):
        return not known or not known <= {0, 1}
    return bool(known) and not known <= {0, 1}


def _is_other(use: Event, event: Event, least: float) -> bool:
    """Whether ``use`` compares the result of ``event`` with tensors other than the operands of ``event``, or with
    Python integers of at least ``least``.

    The bits of an integer and a bool give 0 or 1, so a comparison with 2 or more was intended for the integer.
    """
    others = [o for o in use.operands if o.label != event.results[0]]
    own = {o.label for o in event.operands}
    return bool(others) and all(
        o.label not in own if o.label is not None else o.text.isdigit() and int(o.text) >= least for o in others
    )


def _finding(story: Story, found: Bits) -> Finding:
    event, compared = found.event, found.compared
    sign = next(sign for name, sign in SIGNS.items() if name in event.name)
    span, said = story.span(compared.step), snippet(story, story.span(event.step))
    here, truth = at_line(story, span), expression(story, found.truth, event.step)
    numbers = (
        T(en=f"`{found.numbers}`", zh=f"`{found.numbers}`")
        if found.plain
        else expression(story, found.numbers, event.step)
    )
    return RULE.finding(
        span,
        compared.step,
        T(
            en=f"{capital(here.en)} compares with `{said}`: the bits of {numbers.en} are "
            f"combined with {truth.en} before anything is compared.",
            zh=f"{here.zh}比较的对象是 `{said}`：在比较之前，{numbers.zh} 的各个二进制位已经与 {truth.zh} 结合。",
        ),
        T(
            en=f"In Python `{sign}` binds tighter than a comparison, unlike `and` and `or`. True is 1 and False is 0 "
            "there, so of a whole number no more than its last bit is compared. Put the comparison in parentheses.",
            zh=f"在 Python 里，`{sign}` 比比较运算结合得更紧，这与 `and`、`or` 不同。True 是 1，False 是 0，所以整数只"
            "剩最后一个二进制位参与比较。请给比较加上括号。",
        ),
        related=[
            story.related(
                "operand", event.step, T(en="whole numbers and truth values, bit by bit", zh="整数与布尔值按位结合")
            )
        ],
        fixes=_fixes(story, found),
        facts=[Fact("operation", event.name, story.by(event.step))],
    )


def _fixes(story: Story, found: Bits) -> tuple[Fix, ...]:
    """At most one fix: it puts parentheses around the comparison.

    Empty unless the line shows one comparison with one operator.
    """
    program = story.program
    node = program.at(story.span(found.compared.step)) if program.tree is not None else None
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return ()
    left, right = node.left, node.comparators[0]
    whole = program.place(node)
    begin = _start(program.place(_end(left, first=False))) if _is_bitwise(left) else _start(whole)
    end = _stop(program.place(_end(right, first=True))) if _is_bitwise(right) else _stop(whole)
    if _between(program, left, right).strip(" \n\\") not in ("==", "!=", "<", ">", "<=", ">="):
        return ()
    edits = program.splice((begin, "("), (end, ")"))
    title = T(en="Compare first: parentheses around the comparison", zh="先比较：给比较加上括号")
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _is_bitwise(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.BitXor)


def _end(node: ast.expr, *, first: bool) -> ast.expr:
    """Return the first or the last operand of a chain of bitwise operators (``a & b & c``): the one next to the
    comparison.
    """
    while isinstance(node, ast.BinOp) and _is_bitwise(node):
        node = node.left if first else node.right
    return node


def _start(place: Span) -> Span:
    return Span(place.line, place.column, place.line, place.column)


def _stop(place: Span) -> Span:
    return Span(place.end_line, place.end_column, place.end_line, place.end_column)


def _between(program: Program, left: ast.expr, right: ast.expr) -> str:
    """Return the source text between two expressions on one line: an operator, and parentheses if there are some; empty
    if they are on two lines.
    """
    one, other = program.place(left), program.place(right)
    return program.lines[one.end_line - 1][one.end_column : other.column] if one.end_line == other.line else ""


RULE = Rule(
    code="PL832",
    name="bits-before-comparison",
    severity="warning",
    title=T(en="A comparison gets bits, because `&` comes first", zh="因为 `&` 先计算，比较得到的是二进制位"),
    what=T(
        en="A program counts where two tensors agree and a third one is true, and writes `a == b & c`. That is "
        "computed as `a == (b & c)`, which compares with the last bit of each number. Put parentheses around the "
        "comparison: `(a == b) & c`.",
        zh="程序想数出两个张量相等、且第三个为真的位置，写成了 `a == b & c`。它按 `a == (b & c)` 计算，比较的是每个数"
        "的最后一个二进制位。请给比较加上括号：`(a == b) & c`。",
    ),
    why=T(
        en="`&`, `|` and `^` are Python's operators for bits, and bind tighter than `==` and `<`. Torch uses them "
        "for truth values as well, since `and` and `or` cannot be given a meaning for tensors. Between a bool "
        "tensor and one of whole numbers they work on the bits of the wider type: `7 & True` is 1, and `6 & True` "
        "is 0. Nothing is raised.",
        zh="`&`、`|`、`^` 是 Python 的位运算符，比 `==` 和 `<` 结合得更紧。由于 `and` 和 `or` 无法用于张量，"
        "torch 也用它们处理布尔值。bool 张量与整数张量之间，它们按较宽的类型逐位运算：`7 & True` 是 1，`6 & "
        "True` 是 0，不会报错。",
    ),
    bad="""import torch

labels = torch.tensor([3, 1, 4, 2])
pred = torch.tensor([3, 1, 2, 0])
valid = torch.tensor([True, True, True, False])
correct = pred == labels & valid  # PL832
print(correct.sum() / valid.sum())
""",
    good="""import torch

labels = torch.tensor([3, 1, 4, 2])
pred = torch.tensor([3, 1, 2, 0])
valid = torch.tensor([True, True, True, False])
correct = (pred == labels) & valid
print(correct.sum() / valid.sum())
""",
    find=find,
    traps=(
        Trap(
            "labels & valid",
            "labels * valid",
            T(
                en="A product comes first as well, and makes a label 0 of each that is left out.",
                zh="乘法同样先计算，并把被排除的标签变成 0。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.bitwise_and.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.logical_and.html",
    ),
)
