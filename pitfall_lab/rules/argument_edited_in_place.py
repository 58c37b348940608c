"""PL711: a function or layer changed its argument in place and returned it; its caller still needed the old numbers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, is_name, root
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, numbers, statement_text
from pitfall_lab.rules.kit.writing_repairs import changing_repairs
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.shared_memory import OVERWRITING, changed_numbers, share_elements
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T

FURTHER = 4000
PARTS = {"__getitem__", "select", "narrow"}
"""Calls that return a view of some elements of the argument."""


@dataclass(frozen=True, slots=True)
class Edited:
    """``write`` is the call (``Event``) that changed in place, in a function, the tensor given to it; ``storage`` is
    the tensor's storage (``"S3"``).

    ``call`` is the call expression of the program that gave the tensor under the name ``name``. ``function`` is the
    function whose body has the write; None for a layer of torch with ``inplace=True``. ``read`` is the caller's next
    call that uses the tensor by a name that it had before the call, or an overlapping part of it.
    """

    write: Event
    storage: str
    call: ast.Call
    name: str
    function: Function | None
    read: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of the program that changed an argument in place where the caller used the
    argument (or an overlapping part of it) afterwards, by a variable that was bound to it before.

    Only writes in a layer of torch with ``inplace=True``, or in a function that returns the argument and whose name
    does not end in ``_``; and only where the call is not a statement of its own.

    Nothing for writes to parameters and other leaves that require grad, for writes that do not depend on the old
    numbers (``fill_``, ``masked_fill_``, among others), and for those that did not change the numbers.
    """
    if story.program.tree is None:
        return
    reported = set()
    for event in story.calls():
        place = story.span(event.step)
        if (
            not event.writes
            or event.error is not None
            or event.parent is not None
            or place is None
            or place.source
            or place in reported
        ):
            continue
        found = _edited(story, event)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _edited(story: Story, write: Event) -> Edited | None:
    label = write.operands[0].label if write.operands else None
    record = story.tensor(label, write.step) or {}
    storage = record.get("storage")
    if storage not in write.writes or write.name in OVERWRITING or record.get("kind") == "parameter" or storage is None:
        return None
    if record.get("is_leaf") and record.get("requires_grad"):
        return None
    for call, name, function in _given(story, write):
        read = _stale_read(story, write, call, name, function)
        if read is not None and changed_numbers(
            story, storage, write.step
        ):  # last: without values the program is recorded again
            return Edited(write, storage, call, name, function, read)
    return None


def _given(story: Story, write: Event) -> Iterator[tuple[ast.Call, str, Function | None]]:
    """Yield the calls that the written tensor was an argument of, each with the tensor's variable there and the
    function that wrote to the tensor (None for a layer of torch with ``inplace=True``).

    A call is left out if the argument is not a plain variable or attribute, or if the function does not return its
    parameter or has a name that ends in ``_``.
    """
    program, label = story.program, write.operands[0].label
    chain = list(call_chain(story, write))
    node = program.at(story.span(write.step))
    target = written_as(story, write, label)
    if isinstance(node, ast.Call) and not call_name(node).endswith("_") and target is not None and target in node.args:
        works_in_place = argument(write, "inplace") == "True"  # a layer may write buffers of its own
        if not is_name(target) or not works_in_place:
            return
        yield node, program.segment(target), None
    inner = program.function(chain[0]) if len(chain) > 1 else None
    if inner is None or inner.name.endswith("_") or target is None:
        return
    parameters, name = _parameters(inner), program.segment(root(target))
    if name not in parameters or not _hands_back(story, inner, name, target):
        return
    for call in (n for n in ast.walk(chain[1]) if isinstance(n, ast.Call) and call_name(n) == inner.name):
        bound = isinstance(program.parents.get(inner), ast.ClassDef) and isinstance(call.func, ast.Attribute)
        given = dict(zip(parameters[bound:], call.args, strict=False)) | {k.arg or "": k.value for k in call.keywords}
        if name in given and is_name(given[name]):
            yield call, program.segment(given[name]), inner
            return


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]


def _hands_back(story: Story, function: Function, name: str, target: ast.expr) -> bool:
    """Whether the function returns its parameter ``name``, an attribute or element of it, or a call that is given
    ``target``, and assigns nothing to the parameter before the write to ``target``.
    """
    program = story.program
    inside = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Assign) and any(program.segment(t) == name for t in n.targets)
    ]
    if any(n.lineno <= target.lineno for n in inside):
        return False
    returned = (n.value for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None)
    return any(program.segment(root(r)) == name or (isinstance(r, ast.Call) and target in r.args) for r in returned)


def _stale_read(story: Story, write: Event, call: ast.Call, name: str, function: Function | None) -> Event | None:
    """Return the caller's first call after the write that uses the tensor by a variable bound before ``call``, or that
    takes a view of it that overlaps the written elements; None if there is none, or if ``call`` is a statement of its
    own.

    A view counts only if ``function`` is given and the view's line is not below that of ``call``, as in the next
    iteration of a loop.
    """
    program = story.program
    statement, caller = program.statement(call), program.function(call)
    if statement is None or (isinstance(statement, ast.Expr) and statement.value is call):
        return None  # the result is thrown away: the change was what was wanted
    label = write.operands[0].label
    record, inside = story.tensor(label, write.step) or {}, {id(n) for n in ast.walk(call)}
    for event in story.events[write.step + 1 : write.step + FURTHER]:
        if event.kind != "call" or event.parent is not None or record.get("storage") in event.writes:
            continue
        node = program.at(story.span(event.step))
        if node is None or program.function(node) is not caller:
            continue
        if any(o.label == label for o in event.operands):
            read = written_as(story, event, label)
            if (
                read is not None
                and id(read) not in inside
                and is_name(read)
                and _was_bound_before(story, read, name, statement)
            ):
                return event
        elif function is not None and event.name in PARTS and event.results and program.place(node).line <= call.lineno:
            part = story.tensor(event.results[0], event.step) or {}
            if story.tensor(event.operands[0].label, write.step) is not None and share_elements(part, record):
                return event  # a later round takes the same part of the data again
    return None


def _was_bound_before(story: Story, read: ast.expr, name: str, statement: ast.stmt) -> bool:
    """Whether the variable at ``read`` was assigned before ``statement``, and neither by it nor between the two.

    A read above ``statement`` counts only if nothing in the loop around ``statement`` assigns the variable. Without a
    loop such a read is in another call of the function, where a local variable is another variable: it does not count.
    """
    program, text = story.program, story.program.segment(read)
    if text in assigned(program, statement):
        return False
    scope = program.function(statement)
    stores = [
        n
        for n in program.nodes
        if isinstance(n, ast.Assign) and text in assigned(program, n) and program.function(n) is scope
    ]
    loop = next((a for a in program.ancestors(statement) if isinstance(a, ast.For | ast.While)), None)
    again = loop is not None and any(
        text in assigned(program, n) for n in ast.walk(loop) if isinstance(n, ast.Assign | ast.For)
    )
    later = [n for n in stores if statement.lineno < n.lineno <= read.lineno]
    before = text == name or any(n.lineno < statement.lineno for n in stores)
    own = loop is None and scope is not None and (bool(stores) or text in _parameters(scope))
    return before and not later and (read.lineno >= statement.lineno or not (again or own))


def _finding(story: Story, found: Edited) -> Finding:
    program, write = story.program, found.write
    span, site = story.span(write.step), program.place(found.call)
    here, there = at_line(story, span), at_line(story, story.span(found.read.step))
    code = statement_text(story, span)
    given = written_as(story, found.read, write.operands[0].label)
    read = program.segment(given) if given is not None and is_name(given) else found.name
    old = T(
        en=f"`{read}`" if read == found.name else f"`{read}`, the same tensor,",
        zh=f"`{read}`" if read == found.name else f"`{read}`（同一个张量）",
    )
    before, after = (
        (story.record("storages", found.storage, at) or {}).get("cells") for at in (write.step - 1, write.step)
    )
    shown = T(
        en=f" Here its memory goes from {numbers(before)} to {numbers(after)}."
        if before is not None and after is not None
        else "",
        zh=f"这里它的内存从 {numbers(before)} 变成 {numbers(after)}。"
        if before is not None and after is not None
        else "",
    )
    doer = T(
        en=f"`{found.function.name}` changes its argument"
        if found.function is not None
        else f"`{code}` works in place",
        zh=f"`{found.function.name}` 修改了它的参数" if found.function is not None else f"`{code}` 是就地操作",
    )
    return RULE.finding(
        span,
        write.step,
        T(
            en=f"{capital(here.en)} changes `{found.name}` itself and makes no new tensor, and {there.en} uses "
            f"{old.en} as if it were still the old one.",
            zh=f"{here.zh}改变的是 `{found.name}` 本身，并没有创建新张量；而{there.zh}仍把 {old.zh} 当作原来的值使用。",
        ),
        T(
            en=f"{doer.en} and gives the same tensor back, so the argument and the result are two names of "
            f"one tensor.{shown.en}",
            zh=f"{doer.zh}，返回的还是同一个张量，所以参数和结果是同一个张量的两个名字。{shown.zh}",
        ),
        related=[
            Related(
                "alias",
                site,
                max(0, write.step - 1),
                T(en=f"`{found.name}` is given to it here", zh=f"`{found.name}` 在这里交给它"),
            ),
            story.related("changed", write.step, T(en="its numbers are changed here", zh="它的数在这里被改变")),
            story.related(
                "read", found.read.step, T(en="the changed numbers are read here", zh="被改变的数在这里被读取")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("storage", found.storage, story.by(write.step)),
            Fact("argument", found.name, story.by(write.step)),
        ],
    )


def _fixes(story: Story, found: Edited) -> tuple[Fix, ...]:
    program = story.program
    given = next(
        a for a in [*found.call.args, *(k.value for k in found.call.keywords)] if program.segment(a) == found.name
    )
    copy = Fix(
        T(en=f"Give it a copy: `{found.name}.clone()`", zh=f"交给它一个副本：`{found.name}.clone()`"),
        program.replace((given, f"{found.name}.clone()")),
        meaning="later",
    )
    written = [
        Fix(fix.title, fix.edits, meaning="later")
        for fix in changing_repairs(program, story, found.write.step)
        if fix is not None
    ]
    return unique(program.text, [*written[:3], copy])


RULE = Rule(
    code="PL711",
    name="argument-edited-in-place",
    severity="warning",
    title=T(
        en="A function changed its argument, which was still needed as it was",
        zh="函数修改了它的参数，而调用者还需要原来的值",
    ),
    what=T(
        en="A program called a function that changes what it is given and returns it, and then used the old name for "
        "the old numbers. Both names are one tensor, so the old numbers are gone. Let the function make a new tensor "
        "(`x = x + noise`), or give it a copy.",
        zh="程序调用了一个函数，它修改交给它的东西并返回；之后程序仍用旧名字来指旧的数值。两个名字是同一个张量，旧的数"
        "值已经没有了。请让函数创建新张量（`x = x + noise`），或者交给它一个副本。",
    ),
    why=T(
        en="Python passes objects and never copies them. Inside a function `x += 1`, `x.mul_(2)` or `x[mask] = 0` "
        "writes into the caller's tensor; `x = x + 1` makes a new one. Layers and functions with `inplace=True` do "
        "the same: `nn.ReLU(inplace=True)(x)` returns `x`. That saves memory where nothing else reads `x`. With a "
        "slice of a data set it is the data set that changes, more in every epoch. Backward does not notice as long "
        "as nothing had saved the old numbers.",
        zh="Python 传递的是对象，从不复制。在函数里，`x += 1`、`x.mul_(2)` 或 `x[mask] = 0` 写入的是调用者的张量；`x "
        "= x + 1` 则创建新张量。带 `inplace=True` 的层和函数也一样：`nn.ReLU(inplace=True)(x)` 返回的就是 `x`。如果没"
        "有别处再读 `x`，这样可以节省内存。如果交进去的是数据集的切片，改变的就是数据集，而且一轮比一轮更多。只要没有"
        "保存过旧的数值，反向传播就不会察觉。",
    ),
    advice=T(
        en="make a new tensor on {line} instead of writing into the argument, or pass a copy on {alias}.",
        zh="在{line}产生新的张量，不要写入参数；或者在{alias}传入副本。",
    ),
    bad="""import torch


def noisy(batch):
    batch += torch.tensor([0.5, -0.5])  # PL711
    return batch


clean = torch.tensor([1.0, 2.0])
w = torch.tensor([1.0, 1.0], requires_grad=True)
loss = (w * noisy(clean) - clean).square().sum()  # alias read
loss.backward()
print(loss.item(), w.grad)
""",
    good="""import torch


def noisy(batch):
    batch = batch + torch.tensor([0.5, -0.5])
    return batch


clean = torch.tensor([1.0, 2.0])
w = torch.tensor([1.0, 1.0], requires_grad=True)
loss = (w * noisy(clean) - clean).square().sum()
loss.backward()
print(loss.item(), w.grad)
""",
    find=find,
    traps=(
        Trap(
            "w * noisy(clean)",
            "w * noisy(clean.detach())",
            T(
                en="`detach()` gives another tensor on the same memory.",
                zh="`detach()` 给出的是同一块内存上的另一个张量。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.ReLU.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd",
    ),
)
