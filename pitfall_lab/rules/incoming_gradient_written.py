"""PL340: a custom backward, or a hook, wrote into the gradient that it was given, which another branch also
receives.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import is_name, written_root
from pitfall_lab.rules.kit.wording import at_line, capital, differ, expression, flat, numbers, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs, returned
from pitfall_lab.trace import Event, T

HANDS_ON = (
    "AliasBackward", "CloneBackward", "PermuteBackward", "ReshapeAliasBackward", "SqueezeBackward", "TBackward",
    "ToCopyBackward", "TransposeBackward", "UnsafeViewBackward", "UnsqueezeBackward", "ViewAsBackward", "ViewBackward",
)  # fmt: skip
"""Prefixes of the names of graph nodes that return the gradient which they receive, or a view of it; all branches of an
``AddBackward`` get its gradient.
"""
LONG = 200

Graph = tuple[dict[str, Record], dict[str, list[tuple[str, Record]]]]
"""The nodes that ran in a backward, and for each node those that passed a gradient to it."""


@dataclass(frozen=True, slots=True)
class IncomingGradientWritten:
    """``write`` is the call (``Event``), in the function named ``inside``, that changed in place the gradient which the
    node ``mine`` (a label) received during ``backward``.

    ``add`` is the record of the node that also passed this tensor to another node, ``other`` the record of that other
    node, which had not run yet. ``before`` are the gradient's values when the function got it, ``after`` the last known
    values in its storage; None if they are unknown.
    """

    write: Event
    backward: Event
    inside: str
    mine: str
    add: Record
    other: Record
    before: object
    after: object


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line, in a custom backward or a hook, that changed a gradient in place which another
    node received after it.

    Only in backwards without an error; nothing if the values are known to have stayed the same.
    """
    reported = set()
    backwards = {backward.step: backward for backward in story.backwards() if backward.error is None}
    for event in story.calls() if backwards else ():
        place = story.span(event.step)
        if (
            not event.writes
            or event.error is not None
            or event.parent not in backwards
            or not event.scope
            or place in reported
        ):
            continue
        found = _written(story, event, backwards[event.parent])
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _written(story: Story, write: Event, backward: Event) -> IncomingGradientWritten | None:
    storage = (story.tensor(write.operands[0].label if write.operands else None, write.step) or {}).get("storage")
    label, first = next(iter(story.tensors_on(storage)), ("", {})) if storage in write.writes else ("", {})
    born = story.event(first.get("born"))
    if (
        born is None
        or born.step <= backward.step
        or label not in {o.label for o in born.operands}
        or first.get("kind") != "tensor"
    ):
        return None  # no call has made it: torch has given it to the function
    ran, consumers = _runs(story)[backward.step]
    before, after = _cells(story, storage, born), _last_cells(story, storage, backward)
    if before is not None and after is not None and not differ(dict(flat(before)), dict(flat(after))):
        return None
    registered = _hooked(story)
    for node, record in ran.items():
        own = write.scope[-1].endswith(f"{str(record.get('name')).removesuffix('Backward')}.backward")
        if not (own or node in registered) or tuple(record.get("gradient_shape") or ()) != tuple(
            first.get("shape") or ()
        ):
            continue
        if record.get("gradient") is not None and not any(
            _alike(record["gradient"], cells) for cells in (before, after)
        ):
            continue
        shared = _shared(node, record, consumers, ran)
        if shared is not None:
            return IncomingGradientWritten(write, backward, write.scope[-1], node, *shared, before, after)
    return None


@lru_cache(maxsize=1)
def _runs(story: Story) -> dict[int, Graph]:
    """Return, by the step of each backward, the nodes that ran in it, and for each node those that passed a gradient to
    it.
    """
    found: dict[int, Graph] = defaultdict(lambda: ({}, defaultdict(list)))
    for node, record in story.nodes.items():
        outer = story.outer_call(record.get("ran"))
        if outer is not None:
            ran, consumers = found[outer.step]
            ran[node] = record
            for below in record.get("next", ()):
                consumers[below].append((node, record))
    return found


def _cells(story: Story, storage: str | None, event: Event) -> object:
    """Return the values that the gradient's storage had at the event that first used it in the function; None if the
    trace has none.
    """
    return next((value for step, value in story.history("storages", storage, "cells") if step == event.step), None)


def _last_cells(story: Story, storage: str | None, backward: Event) -> object:
    values = [value for step, value in story.history("storages", storage, "cells") if step > backward.step]
    return values[-1] if values else None


def _alike(one: object, other: object) -> bool:
    return other is not None and not differ(dict(flat(one)), dict(flat(other)))


@lru_cache(maxsize=1)
def _hooked(story: Story) -> set[str]:
    """Return the nodes that receive the gradients of the tensors on which a hook was registered."""
    leaves = {
        str(record["output"]): node for node, record in story.nodes.items() if record.get("name") == "AccumulateGrad"
    }
    labels = ((event.step, event.operands[0].label) for event in story.calls("register_hook") if event.operands)
    nodes = ((story.tensor(label, step) or {}).get("grad_fn") or leaves.get(str(label)) for step, label in labels)
    return {str(node) for node in nodes if node is not None}


def _shared(
    node: str, record: Record, consumers: Mapping[str, list[tuple[str, Record]]], ran: dict[str, Record]
) -> tuple[Record, Record] | None:
    """Return the record of an addition's node whose incoming gradient reached ``node`` without a copy, and that of
    another node that got the same storage later; None if there is no such addition, or no such other node.

    ``consumers`` are, by node, the nodes that passed a gradient to it; ``ran`` are the nodes that ran in this backward.
    """
    step, here, shape = record.get("ran") or 0, node, record.get("gradient_shape")
    for _ in range(LONG):
        users = consumers.get(here, ())
        if len(users) != 1:
            return None  # what several branches return is added up in new memory
        above, consumer = users[0]
        name = str(consumer.get("name"))
        if name.startswith("AddBackward") and consumer.get("gradient_shape") == (
            ran[here].get("gradient_shape") or shape
        ):
            for below in consumer.get("next", ()):
                other = ran.get(below) if below != here else None
                if (
                    other is not None
                    and (other.get("ran") or 0) > step
                    and _is_first(consumer, consumers[below], other)
                ):
                    return consumer, other
        elif not name.startswith(HANDS_ON):
            return None
        here = above
    return None


def _is_first(consumer: Record, users: list[tuple[str, Record]], other: Record) -> bool:
    """Whether the gradient of ``consumer`` was the first that ``other`` received (later gradients are added to it in
    new storage), and has the same shape.
    """
    if other.get("gradient_shape") != consumer.get("gradient_shape"):
        return False
    return all((user.get("ran") or 0) >= (consumer.get("ran") or 0) for _, user in users)


def _finding(story: Story, found: IncomingGradientWritten) -> Finding:
    write, span = found.write, story.span(found.write.step)
    here, add = at_line(story, span), at_line(story, story.span(found.add.get("born")))
    other = expression(story, found.other.get("output"), found.add.get("born") or 0)
    inside = "a hook" if found.inside.endswith("<lambda>") else f"`{found.inside}`"
    inside_zh = "钩子" if found.inside.endswith("<lambda>") else inside
    values = T(
        en=f" It was {numbers(found.before)} and is {numbers(found.after)} now.",
        zh=f"它原来是 {numbers(found.before)}，现在是 {numbers(found.after)}。",
    ) if found.before is not None and found.after is not None else T(en="", zh="")  # fmt: skip
    return RULE.finding(
        span,
        found.backward.step,
        T(
            en=f"{capital(here.en)} changes the gradient that {inside} was given, and the addition on {add.en} gives "
            f"the same tensor to {other.en} too: the gradient of {other.en} is changed with it.",
            zh=f"{here.zh}修改了交给 {inside_zh} 的梯度，而{add.zh}的加法把同一个张量也交给 {other.zh}："
            f"{other.zh} 的梯度也跟着改变。",
        ),
        T(
            en="The gradient of a sum is the gradient of each of its terms, so torch hands one tensor to all "
            f"branches and copies nothing. `{statement_text(story, span)}` writes into it before {other.en} has used "
            f"it.{values.en} Compute a new tensor instead.",
            zh="和的梯度就是每一项的梯度，所以 torch 把同一个张量交给所有分支，不做复制。"
            f"`{statement_text(story, span)}` 在 {other.zh} 使用它之前写入了它。{values.zh}请计算一个新的张量。",
        ),
        related=[
            story.related("changed", write.step, T(en="the gradient is written here", zh="梯度在这里被写入")),
            story.related(
                "forward", found.add.get("born"), T(en="both branches are added here", zh="两个分支在这里相加")
            ),
            story.related(
                "backward", found.backward.step, T(en="gradients are computed from here", zh="梯度从这里开始计算")
            ),
        ],
        fixes=_fixes(story, write),
        facts=[
            Fact("node", found.mine, story.by(write.step)),
            Fact("other", found.other.get("output"), story.by(write.step)),
        ],
    )


def _fixes(story: Story, write: Event) -> tuple[Fix, ...]:
    """Fixes that do not change the gradient in place; for a function that returns nothing, only fixes that make it
    return the new gradient.
    """
    program = story.program
    statement = program.statement_at(story.span(write.step))
    function = program.function(statement) if statement is not None else None
    returns = function is None or any(isinstance(n, ast.Return) and n.value is not None for n in ast.walk(function))
    if statement is not None and not returns:
        made = [returned(program, program.at(story.span(write.step)) or statement, statement)]
        return unique(program.text, [Fix(f.title, f.edits, meaning="later") for f in made if f is not None])
    changed = [fix for fix in changing_repairs(program, story, write.step) if fix is not None]
    return unique(
        program.text,
        [Fix(f.title, f.edits, meaning="later") for f in [*_copied_first(program, story, write), *changed]],
    )


def _copied_first(program: Program, story: Story, write: Event) -> list[Fix]:
    """At most one fix: it assigns a copy to the variable before the line that writes it, if that line is an
    assignment.
    """
    statement = program.statement_at(story.span(write.step))
    name = written_root(statement) if isinstance(statement, ast.Assign) else None
    if statement is None or name is None or not is_name(name) or not program.stands_alone(statement):
        return []
    text = f"{program.segment(name)} = {program.segment(name)}.clone()"
    return [
        Fix(
            T(en=f"Change a copy: `{text}` before it", zh=f"修改副本：在它之前写 `{text}`"),
            program.insert_before(statement, text),
        )
    ]


RULE = Rule(
    code="PL340",
    name="incoming-gradient-written",
    severity="warning",
    title=T(
        en="A gradient was changed in place that another branch receives too", zh="就地修改了另一个分支也会收到的梯度"
    ),
    what=T(
        en="A program changes the gradient that its own `backward`, or its hook, is given, by writing into it. Where "
        "results were added, as around a skip connection, torch hands the very same tensor to the other branch, and "
        "that branch computes with the changed numbers. Return a new tensor: `grad * mask`.",
        zh="程序直接写入交给自己的 `backward` 或钩子的梯度。在结果相加的地方（例如跳跃连接），torch 会把同一个张量也交"
        "给另一个分支，那个分支就用改过的数来计算。请返回新的张量：`grad * mask`。",
    ),
    why=T(
        en="The derivative of `a + b` with respect to `a` and to `b` is 1, so the backward of an addition returns "
        "the gradient that it received, once for each input: one tensor, two receivers. Views (`view`, "
        "`transpose`, `squeeze`) hand it on as well. Torch does not check writes into gradients. Which branch "
        "runs first depends on the order of the forward pass, so a write may do no harm in one network and change "
        "the training of another.",
        zh="`a + b` 对 `a` 和对 `b` 的导数都是 1，所以加法的反向传播把收到的梯度原样返回给每个输入：一个张量，两个接收"
        "者。视图（`view`、`transpose`、`squeeze`）也会把它继续交下去。torch 不检查对梯度的写入。哪个分支先运行取决于"
        "前向计算的次序，所以同样的写入在一个网络里无害，在另一个网络里却会改变训练。",
    ),
    advice=T(
        en="compute a new tensor on {changed} instead of writing into the gradient.",
        zh="在{changed}计算新的张量，不要写入梯度。",
    ),
    bad="""import torch


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad[x < 0] = 0  # PL340 changed
        return grad


w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
z = w * 2
out = z + Gate.apply(z)  # forward
(out * torch.tensor([1.0, 2.0, 3.0])).sum().backward()  # backward
print(w.grad)
""",
    good="""import torch


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * (x >= 0)


w = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
z = w * 2
out = z + Gate.apply(z)
(out * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "        grad[x < 0] = 0\n",
            "        grad = grad.detach()\n        grad[x < 0] = 0\n",
            T(
                en="`detach()` gives another tensor on the same memory, and the write goes there.",
                zh="`detach()` 给出同一块内存上的另一个张量，写入的仍是那里。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/extending.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
    ),
)
