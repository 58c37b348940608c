"""PL806: small whole numbers left their range and came out at its other end, and the program measures with them afterwards."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS, whole
from pitfall_lab.trace import Event, T

RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-32768, 32767), "uint16": (0, 65535), "int32": (-(1 << 31), (1 << 31) - 1)}
WORDS = {"add": "+", "sub": "-", "mul": "*"}
NAMES = {"add": "add", "__radd__": "add", "add_": "add", "__iadd__": "add", "sub": "sub", "subtract": "sub", "sub_": "sub",
         "__isub__": "sub", "__rsub__": "rsub", "rsub": "rsub", "mul": "mul", "multiply": "mul", "__rmul__": "mul", "mul_": "mul",
         "__imul__": "mul"}  # fmt: skip
MEANT = {"remainder", "fmod", "__mod__", "bitwise_and", "__and__", "bitwise_xor", "__xor__", "bitwise_or", "__or__", "__rshift__",
         "__lshift__", "bitwise_right_shift", "bitwise_left_shift", "__iand__", "__ixor__"}  # fmt: skip
"""Calls of codes and checksums, where only what is left of a number counts."""
MEASURES = {"clamp", "clip", "clamp_", "abs", "gt", "lt", "ge", "le", "__gt__", "__lt__", "__ge__", "__le__", "maximum", "minimum", "where"}
FURTHER = 200


@dataclass(frozen=True, slots=True)
class Wrapped:
    """At ``index`` the result of ``event`` is ``got``; ``one`` and ``other`` would have given ``meant``. ``used`` measures with it."""

    event: Event
    index: Index
    one: int
    other: int
    sign: str
    meant: int
    got: int
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line whose result left the range of its type, where the result is measured or converted afterwards."""
    reported = set()
    for event in story.calls(*NAMES):
        place = story.span(event.step)
        if place not in reported and event.error is None and event.results and (found := _wrapped(story, event)) is not None:
            reported.add(place)
            yield _finding(story, found)


def _dtype(story: Story, label: str | None, step: int) -> str:
    return str((story.tensor(label, step) or {}).get("dtype") or "")


def _wrapped(story: Story, event: Event) -> Wrapped | None:
    bounds = RANGES.get(_dtype(story, event.results[0], event.step))
    if bounds is None or len(event.operands) < 2 or any(o.label is None and whole(o.text) is None for o in event.operands):
        return None
    kind = NAMES[event.name]
    pair = [(Elements(story, o.label, event.step - 1) if o.label is not None else None, whole(o.text)) for o in event.operands[:2]]
    if kind == "rsub":
        kind, pair = "sub", pair[::-1]
    if len(event.operands) > 2 and event.operands[2].text != "1":
        return None  # `alpha`
    for index, got in Elements(story, event.results[0], event.step).known():
        one, other = (known.at(index) if known is not None else number for known, number in pair)
        sides = _sides(kind, one, other, got, bounds)
        if sides is None:
            continue
        first, second = sides
        meant = {"add": first + second, "sub": first - second, "mul": first * second}[kind]
        if not bounds[0] <= meant <= bounds[1] and (meant - int(got)) % (bounds[1] - bounds[0] + 1) == 0:
            used = _measured(story, event)
            return Wrapped(event, index, first, second, WORDS[kind], meant, int(got), used) if used is not None else None
    return None


def _sides(kind: str, one: float | None, other: float | None, got: float, bounds: tuple[int, int]) -> tuple[int, int] | None:
    """Both numbers. From the result and one of them the other follows if its range is known to begin at 0."""
    if one is not None and other is not None:
        return int(one), int(other)
    if bounds[0] != 0 or kind == "mul" or (one is None and other is None):
        return None
    count = bounds[1] + 1
    if kind == "add":
        known = int(one if one is not None else other or 0)
        missing = (int(got) - known) % count
        return (known, missing) if one is not None else (missing, known)
    return ((int(got) + int(other)) % count, int(other)) if other is not None else (int(one or 0), (int(one or 0) - int(got)) % count)


def _measured(story: Story, event: Event) -> Event | None:
    """The call that takes the result for a quantity: it is compared, limited, or becomes a number with fractions."""
    reached = set(event.results)
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        if later.kind != "call" or later.error is not None or not any(o.label in reached for o in later.operands):
            continue
        if later.name in MEANT:
            return None
        if later.name in MEASURES or any(_dtype(story, r, later.step).startswith(("float", "bfloat", "half")) for r in later.results):
            return later
        if later.name in SAME_NUMBERS or later.name in NAMES:
            reached.update(later.results)
    return None


def _finding(story: Story, found: Wrapped) -> Finding:
    event = found.event
    dtype = _dtype(story, event.results[0], event.step)
    low, high = RANGES[dtype]
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.used.step))
    sum_of = f"{found.one} {found.sign} {found.other}"
    return RULE.finding(
        story.span(event.step), event.step,
        T(
            en=f"{capital(here.en)} computes {sum_of} = {found.got} instead of {found.meant}: the type {dtype} holds {low} to {high} only.",
            zh=f"{here.zh}算出 {sum_of} = {found.got}，而不是 {found.meant}：{dtype} 类型只能表示 {low} 到 {high}。",
        ),
        T(
            en="What leaves the range of a type of whole numbers comes back in at its other end, without an error. "
            f"`{snippet(story, event.span)}` works on "
            f"{dtype}, and {there.en} uses the result as a quantity. Convert first, compute afterwards.",
            zh=f"超出整数类型范围的数，会从范围的另一端回来，不会报错。`{snippet(story, event.span)}` 是在 {dtype} 上计算的，"
            f"而{there.zh}把结果当作数量"
            "继续使用。请先转换类型，再计算。",
        ),
        related=[
            story.related("made", event.step, T(en="the numbers leave their range here", zh="数值在这里超出范围")),
            story.related("used", found.used.step, T(en="the wrong numbers are used here", zh="错误的数值在这里被使用")),
        ],
        fixes=_fixes(story, event),
        facts=[Fact("meant", found.meant, story.by(event.step)), Fact("got", found.got, story.by(event.step))],
    )  # fmt: skip


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step))
    texts: list[tuple[ast.AST, str]] = []
    for operand in event.operands:
        given = written_as(story, event, operand.label) if operand.label is not None else None
        if given is not None and not isinstance(node, ast.AugAssign):
            texts.append((given, f"{in_parentheses(program, given)}.float()"))
    statement = program.statement(node) if node is not None else None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub | ast.Mult):
        target, sign = program.segment(statement.target), {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(statement.op)]
        texts.append((statement, f"{target} = {target}.float() {sign} {in_parentheses(program, statement.value)}"))
    title = T(en="Convert to numbers with fractions first: `.float()`", zh="先转换成浮点数：`.float()`")
    return unique(program.text, [Fix(title, program.replace(each), meaning="later") for each in texts[:1]])


RULE = Rule(
    code="PL806",
    name="integer-wraparound",
    severity="warning",
    title=T(en="Small whole numbers left their range and wrapped around", zh="小整数超出范围后绕回了另一端"),
    what=T(
        en="A program subtracted or added pixels as they were loaded, as whole numbers from 0 to 255. A difference below 0 comes out as a "
        "large number, a sum above 255 as a small one. Convert first: `a.float() - b.float()`.",
        zh="程序直接用读入的像素做加减，它们是 0 到 255 的整数。小于 0 的差会变成很大的数，超过 255 的和会变成很小的数。请先转换："
        "`a.float() - b.float()`。",
    ),
    why=T(
        en="The result of an operation on two tensors of type `uint8` is `uint8` again: eight bits, 256 numbers. `3 - 5` has no place "
        "among "
        "them, and the eight bits that are left read 254. Torch does not check this, on no device. A product with a Python number such "
        "as `0.5`, a division or a `mean` converts by itself; `+`, `-` and `*` of whole numbers do not. Converting or limiting "
        "*afterwards* keeps the wrong number.",
        zh="两个 `uint8` 张量运算的结果仍是 `uint8`：八位，256 个数。`3 - 5` 不在其中，剩下的八位读出来是 254。torch 在任何设备上都不检"
        "查。与 "
        "`0.5` 这样的 Python 数相乘、除法或 `mean` 会自动转换；整数之间的 `+`、`-`、`*` 则不会。*之后*再转换或裁剪，保留的仍是错误的数。",
    ),
    bad="""import torch

before = torch.tensor([5, 200, 30], dtype=torch.uint8)
after = torch.tensor([3, 210, 30], dtype=torch.uint8)
change = after - before  # PL806 made
w = torch.ones(3, requires_grad=True)
loss = (w * change.float()).square().sum()  # used
loss.backward()
print(change, w.grad)
""",
    good="""import torch

before = torch.tensor([5, 200, 30], dtype=torch.uint8)
after = torch.tensor([3, 210, 30], dtype=torch.uint8)
change = after.float() - before
w = torch.ones(3, requires_grad=True)
loss = (w * change.float()).square().sum()
loss.backward()
print(change, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "change = after - before",
            "change = (after - before).float()",
            T(
                en="The conversion comes after the number has left its range.",
                zh="转换来得太晚，数已经超出范围了。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/tensor_attributes.html", "https://docs.pytorch.org/docs/stable/generated/torch.sub.html"),
)
