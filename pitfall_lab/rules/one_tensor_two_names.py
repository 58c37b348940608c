"""PL730: `a = b = torch.zeros(…)` made one tensor with two names, and what is written under one
of them shows under the other.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name, written_root
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.shared_memory import changed_numbers
from pitfall_lab.trace import Event, T


@dataclass(frozen=True, slots=True)
class TwoNames:
    """``statement`` is an assignment that gave the tensor made by the call ``made`` (an ``Event``) several ``names``.

    ``first`` is the first call that changed it in place by one of them, ``second`` the first that did so by another.
    """

    statement: ast.Assign
    made: Event
    names: list[str]
    first: Event
    second: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement ``a = b = tensor`` whose tensor was changed in place under two of its
    names.
    """
    for node in story.program.nodes:
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) > 1
            and isinstance(node.value, ast.Call)
            and all(map(is_name, node.targets))
        ):
            found = _written(story, node)
            if found is not None:
                yield _finding(story, found)


def _written(story: Story, node: ast.Assign) -> TwoNames | None:
    program = story.program
    names = [program.segment(target) for target in node.targets]
    made = next(
        (e for e in story.within(node.value) if e.results and e.span == program.place(node.value) and not e.writes),
        None,
    )
    record = story.tensor(made.results[0], made.step) or {} if made is not None else {}
    if made is None or record.get("born") != made.step or record.get("storage") is None:
        return None
    by: dict[str, Event] = {}
    storage = str(record["storage"])
    for step in story.writes(storage, made.step, len(story.events)):
        statement = program.statement_at(story.span(step))
        root = written_root(statement) if statement is not None else None
        name = program.segment(root) if root is not None else None
        here = program.function(statement or node) is program.function(node) or "." in (name or "")
        if name in names and here and changed_numbers(story, storage, step):
            by.setdefault(name, story.events[step])
    if (
        len(by) > 1 and len({"." in name for name in by}) == 1
    ):  # `self.table = table = …` is a short name for an attribute
        first, second = sorted(by.values(), key=lambda event: event.step)[:2]
        return TwoNames(node, made, names, first, second)
    return None


def _finding(story: Story, found: TwoNames) -> Finding:
    program, names = story.program, found.names
    span = program.place(found.statement)
    here, one, two = (
        at_line(story, span),
        at_line(story, story.span(found.first.step)),
        at_line(story, story.span(found.second.step)),
    )
    both = T(en=" and ".join(f"`{name}`" for name in names), zh="、".join(f"`{name}`" for name in names))
    return RULE.finding(
        span,
        found.made.step,
        T(
            en=f"{capital(here.en)} makes one tensor, and {both.en} are names for it: {one.en} and {two.en} "
            "write the same memory.",
            zh=f"{here.zh}只创建了一个张量，{both.zh} 都是它的名字：{one.zh}与{two.zh}写入同一块内存。",
        ),
        T(
            en="An assignment gives a name to an object and copies nothing; with several targets all of them name the "
            "one object on the right. For numbers that makes no difference, because a number is replaced and never "
            "changed. A tensor that is written in place changes under all its names.",
            zh="赋值是给对象起名字，不复制任何东西；有几个目标时，它们都是右边那一个对象的名字。对数来说没有区别，因为"
            "数只会被替换，不会被改变。就地写入的张量则会在它的所有名字下一起改变。",
        ),
        related=[
            story.related("changed", found.first.step, T(en="written by one name", zh="用一个名字写入")),
            story.related("changed", found.second.step, T(en="written by the other", zh="用另一个名字写入")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("names", names)],
    )


def _fixes(story: Story, found: TwoNames) -> tuple[Fix, ...]:
    """Fixes that write one statement for each name; empty if the statement shares a line with another one."""
    program, value = story.program, story.program.segment(found.statement.value)
    if not program.stands_alone(found.statement):
        return ()
    lines = [f"{name} = {value}" for name in found.names]
    glue = "\n" + program.indent(found.statement)
    title = T(en=f"Make one for each name: `{'; '.join(lines)}`", zh=f"为每个名字各创建一个：`{'; '.join(lines)}`")
    return unique(program.text, [Fix(title, program.replace((found.statement, glue.join(lines))), meaning="later")])


RULE = Rule(
    code="PL730",
    name="one-tensor-two-names",
    severity="warning",
    title=T(
        en="Two names were given to one tensor, and both are written", zh="一个张量有了两个名字，而且两个名字都被写入"
    ),
    what=T(
        en="A program starts two counts with `total = correct = torch.zeros(3)`. That is one tensor with two names: "
        "what is added to one is added to the other. Write a statement for each.",
        zh="程序用 `total = correct = torch.zeros(3)` 开始两个计数。这只是一个有两个名字的张量：加到其中一个上的，也加"
        "到了另一个上。请各写一条语句。",
    ),
    why=T(
        en="`a = b = f()` calls `f` once. `a += 1` on a tensor is `a.add_(1)`: it writes the memory and leaves the "
        "name where it is. `a = a + 1` would make a new tensor and part the two names, which is why the same program "
        "may work in one form and not in the other.",
        zh="`a = b = f()` 只调用一次 `f`。对张量做 `a += 1` 就是 `a.add_(1)`：写入内存，名字仍指着原处。`a = a + 1` 会"
        "新建张量，两个名字就此分开，所以同一个程序换一种写法可能就对了。",
    ),
    bad="""import torch

total = correct = torch.zeros(2)  # PL730
for label, hit in ((0, 1.0), (1, 0.0), (1, 1.0)):
    total[label] += 1  # changed
    correct[label] += hit  # changed
w = torch.ones(2, requires_grad=True)
loss = (w * correct / total).sum()
loss.backward()
print(w.grad)
""",
    good="""import torch

total = torch.zeros(2)
correct = torch.zeros(2)
for label, hit in ((0, 1.0), (1, 0.0), (1, 1.0)):
    total[label] += 1
    correct[label] += hit
w = torch.ones(2, requires_grad=True)
loss = (w * correct / total).sum()
loss.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.zeros(2)\n",
            "torch.zeros(2).clone()\n",
            T(
                en="`clone()` is called once, too: both names are bound to the one copy.",
                zh="`clone()` 也只调用一次：两个名字都绑定到这同一个副本。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.zeros.html",),
)
