"""PL202: one of several views that a single call had made (``chunk``, ``split``, ``unbind``, a
loop over a tensor) was written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs
from pitfall_lab.trace import Event, Failure, T
from pitfall_lab.trace.used_names import operand_names


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each in-place write that torch refused because one call had returned the written view
    together with other views (``unbind``, ``split``).
    """
    for step, failure in story.failures("multi-output-view-modified"):
        yield _finding(story, step, failure)


def _finding(story: Story, step: int, failure: Failure) -> Finding:
    span = failure.span or story.span(step)
    label = failure.tensor or next((o.label for o in story.events[step].operands if o.label), None)
    record = story.tensor(label, step) or {}
    maker = _maker(story, label, step)
    source = maker.operands[0].label if maker is not None and maker.operands else record.get("base")
    name = _code(_on_line(story, maker)) or called(story, source, None, step)
    whole = _on_line(story, story.events[step]) or story.name(label, step)
    part = T(en=f"`{whole}`, one of the parts of {name.en}", zh=f"`{whole}`（{name.zh} 的一部分）") if whole else T(
        en=f"a part of {name.en}", zh=f"{name.zh} 的一部分")  # fmt: skip
    made = maker.step if maker is not None else record.get("born")
    here, there = at_line(story, span), at_line(story, story.span(made))
    count = len(maker.results) if maker is not None else 0
    many = T(en=f"{count} parts" if count > 1 else "several parts", zh=f"{count} 个部分" if count > 1 else "几个部分")
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} changes {part.en}; {there.en} made all its parts in one call, and such "
            "parts may not be changed.",
            zh=f"{here.zh}修改了 {part.zh}；{there.zh}用一次调用得到了它的所有部分，这样的部分不允许修改。",
        ),
        T(
            en=f"{capital(there.en)} made {many.en} that look at the memory of {name.en} (they are views, not "
            "copies), and noted one operation for all of them. A change of one part would have to be noted as a "
            "change of the whole, and then of all other parts; torch does this only for parts that were made one "
            "by one. So it refuses.",
            zh=f"{there.zh}得到的{many.zh}看的都是 {name.zh} 的内存（它们是视图，不是副本），而且只记录了一次运"
            "算。修改其中一个，就要记录成对整体的修改，随后是对其他各部分的修改；只有一个一个得到的部分，torch 才"
            "会这样做。所以它拒绝。",
        ),
        related=[
            story.related(
                "made",
                made,
                T(
                    en=f"all parts of {name.en} are made here, in one call",
                    zh=f"{name.zh} 的所有部分在这里一次得到",
                ),
            ),
            story.related(
                "changed",
                step,
                T(
                    en=f"`{statement_text(story, span)}` would change one of them, and torch raises",
                    zh=f"`{statement_text(story, span)}` 要修改其中一个，torch 报错",
                ),
            ),
        ],
        fixes=_fixes(story, step, maker),
        facts=[Fact("tensor", label, story.by(step)), Fact("base", source, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _on_line(story: Story, event: Event | None) -> str:
    """The name of a call's first operand in its source line; empty if it has none."""
    names = operand_names(story.trace, event) if event is not None and event.operands else {}
    return names.get(event.operands[0].name or 0, "") if event is not None and names else ""


def _code(name: str) -> T | None:
    return T(en=f"`{name}`", zh=f"`{name}`") if name else None


def _maker(story: Story, label: str | None, step: int) -> Event | None:
    """The call that returned the tensor, or one that it was computed from, together with others; the search goes back
    over at most eight first operands.

    If it ends at a call without operands, that call; None if there is neither.
    """
    for _ in range(8):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or len(event.results) > 1 or event.name in MANY or not event.operands:
            return event
        label = event.operands[0].label
    return None


MANY = {
    "chunk",
    "split",
    "unbind",
    "tensor_split",
    "hsplit",
    "vsplit",
    "dsplit",
    "__iter__",
    "split_with_sizes",
    "unsafe_chunk",
}
"""Calls that return several views at once."""


def _fixes(story: Story, step: int, maker: Event | None) -> tuple[Fix, ...]:
    """Fixes: compute a new tensor in place of the write, unless the tensor that was taken apart is read again; or make
    the views one by one, by indices.

    Empty if neither can be written.
    """
    program = story.program
    if program.tree is None:
        return ()
    apart = _one_by_one(story, maker)
    candidates: list[Fix | None] = [] if _read_again(story, maker, step) else changing_repairs(program, story, step)
    if apart:
        title = T(
            en="Make the parts one by one: a change then reaches the whole",
            zh="一个一个地取出各部分：这样修改会到达整体",
        )
        candidates.append(Fix(title, apart))
    return unique(program.text, candidates)


def _one_by_one(story: Story, maker: Event | None) -> tuple[Edit, ...]:
    """The edits that take each part by an index: ``h[0], h[1]`` for ``h.unbind(0)``, ``h[:, 0:2], h[:, 2:4]`` for a
    split.

    Empty if the tensor is no plain name, has more than eight parts, or an index is not known.
    """
    program = story.program
    node = program.at(story.span(maker.step)) if maker is not None else None
    if maker is None or node is None:
        return ()
    around = program.parents.get(node)
    loop = (
        node if isinstance(node, ast.For) else around if isinstance(around, ast.For) and around.iter is node else None
    )
    if loop is not None and not isinstance(loop.iter, ast.Call):
        whole = program.segment(loop.iter)
        edits = program.replace((loop.iter, f"({whole}[i] for i in range(len({whole})))"))
        return edits if isinstance(loop.iter, ast.Name) else ()
    whole = _whole(program, node)
    places = [_index(story, maker, label) for label in maker.results]
    if not whole or not places or len(places) > 8 or any(place is None for place in places):
        return ()
    parts = [f"{whole}[{place}]" for place in places]
    return program.replace((node, ", ".join(parts) if isinstance(around, ast.Assign) else f"({', '.join(parts)})"))


def _whole(program: Program, node: ast.AST) -> str:
    """The source code of the tensor that a call takes apart; empty unless it is a plain name (it is written once for
    each part).
    """
    if isinstance(node, ast.Name):
        return program.segment(node)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ""
    owner = node.func.value
    whole = node.args[0] if isinstance(owner, ast.Name) and owner.id == torch_name(program) and node.args else owner
    return program.segment(whole) if isinstance(whole, ast.Name) else ""


def _index(story: Story, maker: Event, label: str) -> str | None:
    """The index that gives the part ``label`` of what ``maker`` took apart; None if the shapes do not tell the axis."""
    whole, part = story.tensor(maker.operands[0].label, maker.step), story.tensor(label, maker.step)
    if not whole or not part:
        return None
    sizes, steps = list(whole.get("shape") or ()), list(whole.get("stride") or ())
    mine = list(part.get("shape") or ())
    shift = (part.get("offset") or 0) - (whole.get("offset") or 0)
    if len(mine) == len(sizes) - 1:  # unbind takes one dimension away
        axes = [
            a
            for a in range(len(sizes))
            if sizes[:a] + sizes[a + 1 :] == mine and steps[:a] + steps[a + 1 :] == list(part["stride"])
        ]
    else:
        axes = [a for a in range(len(sizes)) if len(mine) == len(sizes) and sizes[a] != mine[a]]
    if len(axes) != 1 or not steps[axes[0]]:
        return None
    axis, first = axes[0], shift // steps[axes[0]]
    index = str(first) if len(mine) < len(sizes) else f"{first}:{first + mine[axis]}"
    before = "..., " if axis == len(sizes) - 1 and axis > 1 else ":, " * axis
    return before + index


def _read_again(story: Story, maker: Event | None, step: int) -> bool:
    """Whether the tensor that ``maker`` took apart (``x`` of ``x.split(2)``) is mentioned by name in a line below the
    write, so that the written values have to be visible in it.

    True if ``maker`` is unknown.
    """
    if maker is None or not maker.operands:
        return True
    record = story.tensor(maker.operands[0].label) or {}
    names = {str(name) for name in (*(record.get("names") or ()), record.get("name")) if name}
    node = story.program.at(story.span(maker.step))
    names |= {_whole(story.program, node)} if node is not None else set()
    span = story.span(step)
    line = span.line if span else 0
    return any(
        isinstance(node, ast.Name | ast.Attribute) and node.lineno > line and story.program.segment(node) in names
        for node in story.program.nodes
    )


RULE = Rule(
    code="PL202",
    name="multi-output-view-written",
    severity="error",
    title=T(en="One of several parts made by a single call was changed", zh="修改了一次调用得到的几个部分之一"),
    what=T(
        en="A tensor was taken apart into several pieces by one call (`chunk`, `split`, `unbind`, or `for row in "
        "h:`), and then a line changes one of the pieces (`a += 1`). Torch stops there with an error. Make a new "
        "tensor (`a = a + 1`), or, if the tensor itself is to change, take the pieces one by one (`h[0] += 1`).",
        zh="一次调用（`chunk`、`split`、`unbind`，或 `for row in h:`）把一个张量拆成了几块，随后又有一行修改其"
        "中一块（`a += 1`）。torch 在那里报错。请生成新张量（`a = a + 1`）；如果要修改的是张量本身，就一块一块"
        "地取（`h[0] += 1`）。",
    ),
    why=T(
        en="The pieces are *views*: they look at the memory of the tensor and own none. When a view of a computed "
        "tensor is changed, torch rewrites its record (the *graph*): the tensor is now the result of the change, and "
        "every view of it is taken again from there. For a view made by a call with one result it knows how. A call "
        "with many results is one node of the graph with many outputs, and rewriting one output would leave the "
        "others pointing at an outdated node; so such a change is an error, also when it could do no harm. `h[0]` or "
        "`h[:, 0:2]` is a call with one result. If the changed whole is not needed, a new tensor is simpler.",
        zh="这些块是*视图*：它们看的是原张量的内存，自己没有内存。修改一个算出来的张量的视图时，torch 会改写它的记"
        "录（*计算图*）：原张量成了这次修改的结果，它的每个视图都从那里重新取得。如果视图来自只有一个结果的调用，"
        "torch 知道怎么改写。有多个结果的调用在计算图中是一个有多个输出的节点，改写其中一个输出，其他输出就指向过"
        "时的节点；所以即使没有害处，也会报错。`h[0]` 或 `h[:, 0:2]` 是只有一个结果的调用。如果没人需要修改后的整"
        "体，生成新张量更简单。",
    ),
    bad="""import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
h = x * 2
first, second = h.unbind(0)  # made
first += 1  # PL202 changed
loss = (first * second).sum()
loss.backward()
print(x.grad)
""",
    good="""import torch

x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
h = x * 2
first, second = h.unbind(0)
first = first + 1
loss = (first * second).sum()
loss.backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "first += 1",
            "first = first.detach() + 1",
            T(
                en="No error, but the graph from `first` to `x` is cut: its row gets a gradient of 0 where it should "
                "get that of the product.",
                zh="不再报错，但从 `first` 回到 `x` 的路被切断：它那一行的梯度是 0，而本来应该是乘积的梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.unbind.html",
    ),
)
