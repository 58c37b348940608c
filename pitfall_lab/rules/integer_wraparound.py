"""PL806: small integers overflowed the range of their dtype and wrapped around, and the program uses them as quantities
afterwards.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Lost, T
from pitfall_lab.trace.operation_facts import spellings

RANGES = {"uint8": (0, 255), "int8": (-128, 127), "int16": (-32768, 32767), "int32": (-(1 << 31), (1 << 31) - 1)}
ARITHMETIC = spellings("add", "mul", in_place=True) | spellings("sub", in_place=True, exchanged=True)  # fmt: skip
POWERS = spellings("neg", "pow", "square")
SUMS = {"cumsum", "sum"}
"""Calls whose result is wrong because their elements overflowed, although it has a wider dtype."""
MEANT = (
    spellings("bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "fmod", "remainder")
    | spellings("bitwise_and", "bitwise_xor", in_place=True)
)  # fmt: skip
"""Calls of codes and checksums, for which wrapping around is intended."""
MEASURES = (
    spellings("abs", "ge", "gt", "le", "lt")
    | spellings("clamp", in_place=True)
    | {"argmax", "argmin", "argsort", "maximum", "minimum", "sort", "topk", "where"}
)  # fmt: skip
"""Calls that show that the numbers are used as quantities, so that an overflow changes the results."""
COUNTS = {"bincount", "embedding", "histc", "one_hot", "unique"}
"""Calls that count the values of their first operand, or take them as positions in a table."""
PLACES = spellings("index_add", "scatter", "scatter_add", "scatter_reduce", in_place=True) | {
    "__getitem__", "gather", "index_select", "take", "take_along_dim",
}  # fmt: skip
"""Calls that take an operand after the first as positions in a table."""
WIDENING = {"int", "long", "to", "type"}
"""Conversions after which the wrong numbers are the same."""
FURTHER = 200


@dataclass(frozen=True, slots=True)
class IntegerWraparound:
    """``event`` is the call (``Event``) whose result, of a small integer dtype, has numbers that overflowed the range
    of the dtype and wrapped around.

    ``lost`` is the record of these numbers (:class:`Lost`); ``used`` is the call that uses the result as a quantity or,
    if ``event`` is itself a conversion, the first call that uses it.
    """

    event: Event
    lost: Lost
    used: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose result overflowed the range of its integer dtype (a smaller one than
    int64), where the result is then compared, clamped, counted, taken as positions in a table or converted to floating
    point; after a conversion any use counts.
    """
    reported = set()
    for lost in story.trace.beside.losses:
        event, place = story.event(lost.step), story.span(lost.step)
        known = event is None or place in reported
        if known or event is None or lost.sign in ("=", "cut", "#") or event.error is not None or not event.results:
            continue
        used = next(iter(story.uses(event.results[0])), None) if lost.sign == "to" else _measured(story, event)
        if used is not None and _dtype(story, event.results[0], event.step) in RANGES:
            reported.add(place)
            yield _finding(story, IntegerWraparound(event, lost, used))


def _dtype(story: Story, label: str | None, step: int) -> str:
    return str((story.tensor(label, step) or {}).get("dtype") or "")


def _measured(story: Story, event: Event) -> Event | None:
    """Return the call that uses the result as a quantity: it compares, clamps or counts it, takes it as positions in a
    table, or converts it to floating point.

    None if there is none, or if a call in ``MEANT``, for which wrapping around is usual, comes first.
    """
    reached = set(event.results)
    for later in story.events[event.step + 1 : event.step + FURTHER]:
        if later.kind != "call" or later.error is not None or not any(o.label in reached for o in later.operands):
            continue
        if later.name in MEANT:
            return None
        is_place = later.name in PLACES and any(o.label in reached for o in later.operands[1:])
        if (
            is_place
            or later.name in MEASURES | COUNTS
            or any(_dtype(story, r, later.step).startswith(("float", "bfloat", "half")) for r in later.results)
        ):
            return later
        if later.name in SAME_NUMBERS | WIDENING | ARITHMETIC | POWERS | SUMS:
            reached.update(later.results)
    return None


def _finding(story: Story, found: IntegerWraparound) -> Finding:
    event, lost = found.event, found.lost
    dtype = _dtype(story, event.results[0], event.step)
    low, high = RANGES[dtype]
    here = at_line(story, story.span(event.step))
    one, other, meant, got = (f"{number:.15g}" for number in (lost.one, lost.other, lost.meant, lost.got))
    sum_of = T(en=f"computes {one} {lost.sign} {other} = {got}", zh=f"算出 {one} {lost.sign} {other} = {got}")
    if lost.sign == "@":
        sum_of = T(en=f"adds up {other} products to {got}", zh=f"把 {other} 个乘积之和算成 {got}")
    if lost.sign == "to":
        sum_of = T(en=f"turns {one} into {got}", zh=f"把 {one} 变成 {got}")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} {sum_of.en}{'' if lost.sign == 'to' else f' instead of {meant}'}: the type "
            f"{dtype} holds {low} to {high} only.",
            zh=f"{here.zh}{sum_of.zh}{'' if lost.sign == 'to' else f'，而不是 {meant}'}：{dtype} 类型只能"
            f"表示 {low} 到 {high}。",
        ),
        _explanation(story, found, dtype),
        related=[
            story.related("made", event.step, T(en="the numbers leave their range here", zh="数值在这里超出范围")),
            story.related(
                "used", found.used.step, T(en="the wrong numbers are used here", zh="错误的数值在这里被使用")
            ),
        ],
        fixes=_limited(story, event, dtype) if lost.sign == "to" else _fixes(story, found),
        facts=[Fact("meant", lost.meant), Fact("got", lost.got)],
    )


def _explanation(story: Story, found: IntegerWraparound, dtype: str) -> T:
    code, there = snippet(story, found.event.span), at_line(story, story.span(found.used.step))
    if found.lost.sign == "to":
        return T(
            en="What a type of whole numbers has no room for comes back in at its other end, without an error: of "
            f"{found.lost.of} numbers that `{code}` converts to {dtype}, {found.lost.lost} are outside. Limit them "
            "first, with `clamp`.",
            zh=f"整数类型放不下的数，会从范围的另一端回来，不会报错：`{code}` 转换成 {dtype} 的 {found.lost.of} 个数"
            f"中，有 {found.lost.lost} 个超出范围。请先用 `clamp` 限制它们。",
        )
    is_place = found.used.name in COUNTS | PLACES
    use = T("for places or counts", "位置或计数") if is_place else T("as a quantity", "数量")
    return T(
        en="What leaves the range of a type of whole numbers comes back in at its other end, without an error. "
        f"`{code}` works on {dtype}, and {there.en} uses the result {use.en}. Convert first, compute afterwards.",
        zh=f"超出整数类型范围的数，会从范围的另一端回来，不会报错。`{code}` 是在 {dtype} 上计算的，而{there.zh}把结果"
        f"当作{use.zh}继续使用。请先转换类型，再计算。",
    )


def _limited(story: Story, event: Event, dtype: str) -> tuple[Fix, ...]:
    program, (low, high) = story.program, RANGES[dtype]
    given = (
        written_as(story, event, event.operands[0].label)
        if event.operands and event.operands[0].label is not None
        else None
    )
    if given is None:
        return ()
    title = T(en=f"Limit the numbers first: `.clamp({low}, {high})`", zh=f"先限制数值：`.clamp({low}, {high})`")
    edits = program.replace((given, f"{in_parentheses(program, given)}.clamp({low}, {high})"))
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _fixes(story: Story, found: IntegerWraparound) -> tuple[Fix, ...]:
    program, event = story.program, found.event
    node = program.at(story.span(event.step))
    if found.lost.sign == "@":
        wider = "long" if _dtype(story, event.results[0], event.step) == "int32" else "int"
        sides = [written_as(story, event, operand.label) for operand in event.operands if operand.label is not None]
        known = [(each, f"{in_parentheses(program, each)}.{wider}()") for each in sides if each is not None]
        if len(known) != len(sides):
            return ()
        title = T(en=f"Multiply in a wider type: `.{wider}()`", zh=f"用更宽的类型相乘：`.{wider}()`")
        return unique(program.text, [Fix(title, program.replace(*known), meaning="later")])
    is_whole = found.used.name in COUNTS | PLACES
    to = "long" if is_whole else "float"
    texts: list[tuple[ast.AST, str]] = []
    for operand in event.operands:
        given = written_as(story, event, operand.label) if operand.label is not None else None
        if given is not None and not isinstance(node, ast.AugAssign):
            texts.append((given, f"{in_parentheses(program, given)}.{to}()"))
    statement = program.statement(node) if node is not None else None
    if isinstance(statement, ast.AugAssign) and isinstance(statement.op, ast.Add | ast.Sub | ast.Mult):
        target, sign = (
            program.segment(statement.target),
            {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(statement.op)],
        )
        texts.append((statement, f"{target} = {target}.{to}() {sign} {in_parentheses(program, statement.value)}"))
    title = (
        T(en="Convert to a wider type first: `.long()`", zh="先转换成更宽的类型：`.long()`")
        if is_whole
        else T(en="Convert to numbers with fractions first: `.float()`", zh="先转换成浮点数：`.float()`")
    )
    return unique(program.text, [Fix(title, program.replace(each), meaning="later") for each in texts[:1]])


RULE = Rule(
    code="PL806",
    name="integer-wraparound",
    severity="warning",
    title=T(en="Small whole numbers left their range and wrapped around", zh="小整数超出范围后绕回了另一端"),
    what=T(
        en="A program subtracted or added pixels as they were loaded, as whole numbers from 0 to 255. A difference "
        "below 0 comes out as a large number, a sum above 255 as a small one. Convert first: `a.float() - b.float()`.",
        zh="程序直接用读入的像素做加减，它们是 0 到 255 的整数。小于 0 的差会变成很大的数，超过 255 的和会变成很小的"
        "数。请先转换：`a.float() - b.float()`。",
    ),
    why=T(
        en="The result of an operation on two tensors of type `uint8` is `uint8` again: eight bits, 256 numbers. `3 - "
        "5` has no place among them, and the eight bits that are left read 254. Torch does not check this, on no "
        "device. A product with a Python number such as `0.5`, a division or a `mean` converts by itself; `+`, `-` "
        "and `*` of whole numbers do not, nor does `@`: the product of two `int8` matrices is `int8`. Converting or "
        "limiting *afterwards* keeps the wrong number.",
        zh="两个 `uint8` 张量运算的结果仍是 `uint8`：八位，256 个数。`3 - 5` 不在其中，剩下的八位读出来是 254。torch "
        "在任何设备上都不检查。与 `0.5` 这样的 Python 数相乘、除法或 `mean` 会自动转换；整数之间的 `+`、`-`、`*` 则不"
        "会，`@` 也不会：两个 `int8` 矩阵的乘积之和仍是 `int8`。*之后*再转换或裁剪，保留的仍是错误的数。",
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
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_attributes.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.sub.html",
    ),
)
