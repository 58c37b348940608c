"""PL728: a function's default value is a tensor that the function writes in place, so each call begins with the numbers
that the last call left in it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.shared_memory import OVERWRITING, changed_numbers
from pitfall_lab.trace import Event, T


@dataclass(frozen=True, slots=True)
class Default:
    """A tensor that is the default value of a function's parameter was written in place in two calls of the function.

    ``function`` is the function's definition, ``name`` the parameter, ``value`` the expression of its default. ``made``
    is the call (``Event``) that computed this tensor, ``first`` the function's first write to it, ``again`` a write in
    a later call of the function.
    """

    function: Function
    name: str
    value: ast.expr
    made: Event
    first: Event
    again: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each default value that is a tensor and that at least two calls of its function changed in
    place, by writes that depend on the old numbers.
    """
    for function in (n for n in story.program.nodes if isinstance(n, Function)):
        for name, value in _defaults(function):
            found = _written(story, function, name, value)
            if found is not None:
                yield _finding(story, found)


def _defaults(function: Function) -> list[tuple[str, ast.expr]]:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    named = [(a.arg, v) for a, v in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if v is not None]
    return [
        *((a.arg, v) for a, v in zip(plain[len(plain) - len(arguments.defaults) :], arguments.defaults, strict=True)),
        *named,
    ]


def _written(story: Story, function: Function, name: str, value: ast.expr) -> Default | None:
    """Return the data of the finding if two calls of the function changed its default value, each depending on the old
    numbers; else None.

    Something outside the function must happen between the two writes, and the later one must change the numbers.
    """
    made = next(
        (event for event in story.within(value) if event.results and event.span == story.program.place(value)), None
    )
    storage = (story.tensor(made.results[0], made.step) or {}).get("storage") if made is not None else None
    if made is None or storage is None:
        return None
    writes = [story.events[step] for step in story.writes(str(storage), made.step, len(story.events))]
    inside = [event for event in writes if _runs(event, function) and event.name not in OVERWRITING - {"__setitem__"}]
    if not inside or len(inside) != len([event for event in writes if _runs(event, function)]):
        return None
    for event in inside[1:]:
        left = any(not _runs(other, function) for other in story.events[inside[0].step : event.step])
        if left and changed_numbers(story, str(storage), event.step):
            return Default(function, name, value, made, inside[0], event)
    return None


def _runs(event: Event, function: Function) -> bool:
    return any(name.rsplit(".", 1)[-1] == function.name for name in event.scope)


def _finding(story: Story, found: Default) -> Finding:
    program = story.program
    here, there = at_line(story, program.place(found.value)), at_line(story, story.span(found.again.step))
    code = program.segment(found.value)
    return RULE.finding(
        program.place(found.value),
        found.made.step,
        T(
            en=f"{capital(here.en)} makes the default of `{found.name}` once, for all calls, and {there.en} writes "
            f"it: the second call of `{found.function.name}` begins with what the first one left.",
            zh=f"{here.zh}只创建一次 `{found.name}` 的默认值，供所有调用使用，而{there.zh}写入了它：第二次调用 "
            f"`{found.function.name}` 从第一次留下的内容开始。",
        ),
        T(
            en=f"Python computes `{code}` when it reaches the `def`, not at each call. Writing in place changes that "
            "one tensor, and a caller that was given it sees it change again later. Use None as the default, and "
            "make the tensor inside.",
            zh=f"Python 在执行到 `def` 时计算 `{code}`，而不是在每次调用时。就地写入改变的就是那一个张量，拿到它的调用"
            "者之后还会看到它再次改变。请用 None 作默认值，在函数内创建张量。",
        ),
        related=[
            story.related("changed", found.first.step, T(en="the first call writes it", zh="第一次调用写入它")),
            story.related(
                "changed",
                found.again.step,
                T(en="a later call continues with the changed one", zh="之后的调用接着写它"),
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("name", found.name)],
    )


def _fixes(story: Story, found: Default) -> tuple[Fix, ...]:
    """At most one fix: it makes ``None`` the default, and creates the tensor in each call that gives no argument.

    Empty if the function's body is on a line with other code.
    """
    program, body = story.program, found.function.body
    first = (
        body[1]
        if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
        else body[0]
    )
    code = program.segment(found.value)
    lines = (f"if {found.name} is None:", f"    {found.name} = {code}")
    if not program.stands_alone(first) and not hasattr(first, "body"):
        return ()
    edits = merge(program.replace((found.value, "None")), program.insert_before(first, *lines))
    title = T(en=f"Make it in each call: `{found.name} = {code}`", zh=f"在每次调用中创建：`{found.name} = {code}`")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()


RULE = Rule(
    code="PL728",
    name="default-tensor-written",
    severity="warning",
    title=T(en="A function writes into the default value of its argument", zh="函数写入了其参数的默认值"),
    what=T(
        en="A function has a tensor as the default of an argument, and adds to it in place. The default is made once, "
        "so each call begins with the sum of the calls before. Use `None` as the default and make the tensor inside.",
        zh="函数以一个张量作为参数的默认值，并就地加上数值。默认值只创建一次，所以每次调用都接着之前各次调用的和继续。"
        "请用 `None` 作默认值，在函数内创建张量。",
    ),
    why=T(
        en="Default values are stored in the function object. A number cannot be changed, so it is the same in each "
        "call; a tensor, like a list, can. `total = total + x` would make a new tensor and leave the default as it "
        "is; `total += x` and `total[0] = x` write it.",
        zh="默认值存放在函数对象里。数不能被改变，所以每次调用都一样；张量与列表一样可以被改变。`total = total + x` 会"
        "新建一个张量，默认值保持原样；`total += x` 与 `total[0] = x` 则写入它。",
    ),
    bad="""import torch


def summed(rows, total=torch.zeros(2)):  # PL728
    for row in rows:
        total += row  # changed
    return total


w = torch.ones(2, requires_grad=True)
first = summed(torch.ones(2, 2)).clone()
second = summed(torch.ones(3, 2))
loss = (w * (second - first)).sum()
loss.backward()
print(w.grad)
""",
    good="""import torch


def summed(rows, total=None):
    if total is None:
        total = torch.zeros(2)
    for row in rows:
        total += row
    return total


w = torch.ones(2, requires_grad=True)
first = summed(torch.ones(2, 2)).clone()
second = summed(torch.ones(3, 2))
loss = (w * (second - first)).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "total=torch.zeros(2)",
            "total=torch.zeros(2).clone()",
            T(en="The clone is made once too, when the function is defined.", zh="副本同样只在定义函数时创建一次。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.add_.html",),
)
