"""PL740: a function or a loop computes a new tensor under a name of its own, and nothing reads
it: the old one stays in use.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import flat_targets
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.trace import Event, T

REGISTERING = {
    "register_hook", "register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
    "register_backward_hook", "register_full_backward_pre_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook", "register_module_full_backward_hook",
}  # fmt: skip
"""The calls that register a hook whose result torch uses in place of what it gave to the hook."""
WATCHING = {"locals", "vars", "globals", "exec", "eval"}
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class NewTensorNeverUsed:
    """``statement`` computed, by the call ``event`` (an ``Event``), a tensor that nothing reads, from the tensor
    labelled ``old``, which later calls still use.

    ``where`` says where the statement is: in a "hook", in a "function" that was given ``old``, or in a "loop" over such
    tensors. ``name`` is the name that the statement gives the new tensor; None for an expression without one.
    ``function`` is the function around the statement; None at the top level. ``registered`` is the call that registers
    the hook; None elsewhere.
    """

    where: Literal["hook", "function", "loop"]
    statement: ast.Assign | ast.AnnAssign | ast.Expr
    name: str | None
    event: Event
    old: str
    function: Function | None
    registered: ast.Call | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that computes a new tensor from one that it was given, in a hook, a function
    or a loop, where nothing reads the new tensor and later calls still use the old one.
    """
    program = story.program
    if program.tree is None:
        return
    hooks = dict(_hooks(program))
    for statement in program.nodes:
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr) and statement.value is not None:
            found = _unread(story, statement, hooks)
            if found is not None:
                yield _finding(story, found)


def _hooks(program: Program) -> Iterator[tuple[Function, ast.Call]]:
    """The functions of the program that are registered as hooks, each with the call that registers it."""
    functions = [n for n in program.nodes if isinstance(n, Function)]
    for call in program.nodes:
        if not isinstance(call, ast.Call) or call_name(call) not in REGISTERING or not call.args:
            continue
        given = call.args[0]
        if isinstance(given, ast.Call) and call_name(given) == "partial" and given.args:
            given = given.args[0]
        name = given.attr if isinstance(given, ast.Attribute) else given.id if isinstance(given, ast.Name) else ""
        kinds = {call_name(given)} if isinstance(given, ast.Call) else set(_classes(program, name))
        for function in functions:
            around = program.parents.get(function)
            called = function.name == "__call__" and isinstance(around, ast.ClassDef) and around.name in kinds
            if (function.name == name and name) or called:
                yield function, call


def _classes(program: Program, name: str) -> Iterator[str]:
    """Yield the name of what is called in each assignment to ``name``: the class, if ``name`` is an instance of one."""
    for node in program.nodes:
        names = (
            [_last(t) for t in node.targets if isinstance(t, ast.Name | ast.Attribute)]
            if isinstance(node, ast.Assign)
            else []
        )
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and name in names:
            yield call_name(node.value)


def _last(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _unread(
    story: Story, statement: ast.Assign | ast.AnnAssign | ast.Expr, hooks: dict[Function, ast.Call]
) -> NewTensorNeverUsed | None:
    program = story.program
    function, name = program.function(statement), None
    if not isinstance(statement, ast.Expr):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        if len(targets) != 1 or not isinstance(targets[0], ast.Name) or targets[0].id.startswith("_"):
            return None
        name = targets[0].id
    inner = function if isinstance(function, Function) else None
    loop = _loop(program, statement, name)
    event = None
    if inner is not None and inner in hooks and not _returns(inner):
        event = _dead(story, statement, name, inner)
        old = _like(story, statement, event) if event is not None else None
        return (
            NewTensorNeverUsed("hook", statement, name, event, old, inner, hooks[inner])
            if event is not None and old is not None
            else None
        )
    if name is None or name not in {n.id for n in ast.walk(statement.value or statement) if isinstance(n, ast.Name)}:
        return None
    given = (
        {a.arg for a in (*inner.args.posonlyargs, *inner.args.args, *inner.args.kwonlyargs)}
        if inner is not None
        else set()
    )
    if loop is not None:
        event = _dead(story, statement, name, loop)
    elif inner is not None and name in given and not _returns(inner) and inner.name != "__init__":
        event = _dead(story, statement, name, inner)
    old = _like(story, statement, event) if event is not None else None
    if (
        event is None
        or old is None
        or _learns(story, old)
        or not any(use.step > event.step for use in _later(story, old, statement))
    ):
        return None
    return NewTensorNeverUsed("loop" if loop is not None else "function", statement, name, event, old, inner)


def _returns(function: Function) -> bool:
    """Whether a function returns or yields a value."""
    inside = (n for n in ast.walk(function) if isinstance(n, ast.Return | ast.Yield | ast.YieldFrom))
    return any(not isinstance(n, ast.Return) or n.value is not None for n in inside)


def _loop(program: Program, statement: ast.stmt, name: str | None) -> ast.For | None:
    """The innermost loop or function around a statement, if it is a ``for`` loop that has ``name`` as one of its
    variables; else None.
    """
    for around in program.ancestors(statement):
        if isinstance(around, ast.For | ast.While | ast.AsyncFor | Function | ast.Lambda):
            return (
                around
                if isinstance(around, ast.For) and any(_is(t, name) for t in flat_targets(around.target))
                else None
            )
    return None


def _is(node: ast.AST, name: str | None) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _dead(
    story: Story, statement: ast.Assign | ast.AnnAssign | ast.Expr, name: str | None, scope: Function | ast.For
) -> Event | None:
    """The call that made the statement's new tensor, if no call and no code in the scope reads that tensor afterwards.

    None if it is read, if there is no such call, or if the statement writes in place.
    """
    program = story.program
    events = story.within(statement)
    used = {o.label for e in events for o in e.operands}
    last = [e for e in events if len(e.results) == 1 and e.results[0] not in used and e.error is None]
    if not last or any(e.writes for e in events) or any(_read(story, e) for e in last):
        return None
    if name is None:
        whole = program.place(statement.value) if statement.value is not None else None
        return last[0] if all(e.span == whole for e in last) and _is_call(statement.value) else None
    return last[0] if not _is_read(program, statement, name, scope) else None


def _is_call(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Call | ast.BinOp | ast.UnaryOp)


def _read(story: Story, event: Event) -> bool:
    """Whether a later call reads the result, or the result shares its storage with an operand of its own call."""
    label = event.results[0]
    storage = (story.tensor(label, event.step) or {}).get("storage")
    same = any(
        (story.tensor(o.label, event.step) or {}).get("storage") == storage
        for o in event.operands
        if o.label is not None
    )
    return same or any(use.step > event.step for use in story.uses(label))


def _is_read(program: Program, statement: ast.stmt, name: str, scope: Function | ast.For) -> bool:
    """Whether the program's source may read ``name`` after the statement: below it, in an inner function, or in the
    next round of a loop around it.

    Also True if the name is global or nonlocal, or if the program uses ``locals``, ``eval`` or the like.
    """
    own = {id(n) for n in ast.walk(statement)}
    outside = (
        next((a for a in program.ancestors(scope) if isinstance(a, Function)), None)
        if isinstance(scope, ast.For)
        else scope
    )
    wide = list(ast.walk(outside)) if outside is not None else program.nodes
    if any(isinstance(n, ast.Global | ast.Nonlocal) and name in n.names for n in wide):
        return True
    if any(isinstance(n, ast.Call) and call_name(n) in WATCHING for n in wide):
        return True
    inner = {id(n) for f in wide if f is not outside and isinstance(f, Function | ast.Lambda) for n in ast.walk(f)}
    repeats = [a for a in program.ancestors(statement) if isinstance(a, ast.For | ast.While) and a is not scope]
    repeats = [a for a in repeats if id(a) in {id(n) for n in ast.walk(scope)}]
    again = {id(n) for a in repeats for n in ast.walk(a)}
    end = (statement.end_lineno or statement.lineno, statement.end_col_offset or 0)
    for node in wide:
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load | ast.Del):
            below = (node.lineno, node.col_offset) >= end
            if id(node) in again or (id(node) not in own and (below or id(node) in inner)):
                return True
    return False


def _like(story: Story, statement: ast.AST, event: Event) -> str | None:
    """The label of the latest tensor that the new one was computed from in the statement, if it has the same shape and
    the statement did not make it itself.

    None if there is none, or if the new tensor is not of floating-point or complex numbers.
    """
    shape = story.shape(event.results[0], event.step)
    events = [e for e in story.within(statement) if e.step <= event.step]
    made = {label for e in events for label in e.results}
    record = story.tensor(event.results[0], event.step) or {}
    floats = str(record.get("dtype")).startswith(("float", "bfloat", "complex"))
    labels = [o.label for e in reversed(events) for o in e.operands if o.label is not None and o.label not in made]
    return next((label for label in labels if floats and story.shape(label, event.step) == shape), None)


def _learns(story: Story, label: str) -> bool:
    """Whether the tensor is a leaf that requires grad: another rule is about its new values."""
    record = story.tensor(label) or {}
    return bool(record.get("is_leaf") and record.get("requires_grad"))


def _later(story: Story, old: str, statement: ast.stmt) -> list[Event]:
    """The calls outside of the statement that read the old tensor, or another tensor on its storage."""
    storage = (story.tensor(old) or {}).get("storage")
    here = {e.step for e in story.within(statement)}
    uses = [use for label, _ in story.tensors_on(storage) for use in story.uses(label)]
    return [
        use
        for use in sorted(uses, key=lambda e: e.step)
        if use.step not in here and not use.op.endswith(("__get__", "__set__"))
    ]


def _finding(story: Story, found: NewTensorNeverUsed) -> Finding:
    program, step = story.program, found.event.step
    outer = story.outer_call(step)
    step = outer.step if outer is not None else step  # what a backward computes is wrong from its beginning
    span = program.place(found.statement)
    here = at_line(story, span)
    value = found.statement.value
    text = snippet(story, program.place(value)) if value is not None else ""
    what = T(en=f"`{found.name}`", zh=f"`{found.name}`") if found.name else T(en=f"`{text}`", zh=f"`{text}`")
    function = found.function.name if found.function is not None else ""
    message = {
        "hook": T(
            en=f"{capital(here.en)} computes {what.en} in the hook `{function}`, which returns nothing: torch uses "
            "what it gave to the hook.",
            zh=f"{here.zh}在钩子 `{function}` 里算出 {what.zh}，但钩子没有返回任何东西：torch 继续使用"
            "它交给钩子的那个张量。",
        ),
        "function": T(
            en=f"{capital(here.en)} gives the name {what.en} a new tensor that nothing reads: `{function}` returns "
            "nothing, and the tensor of its caller stays as it was.",
            zh=f"{here.zh}让名字 {what.zh} 指向一个没有谁读取的新张量：`{function}` 什么也不返回，"
            "调用者的张量保持原样。",
        ),
        "loop": T(
            en=f"{capital(here.en)} gives the name {what.en} a new tensor in each round, and nothing reads it: what "
            "the loop goes over stays as it was.",
            zh=f"{here.zh}每一轮都让名字 {what.zh} 指向一个新张量，却没有谁读取它：循环所遍历的张量保持原样。",
        ),
    }[found.where]
    later = next((use for use in _later(story, found.old, found.statement) if use.step > step), None)
    related = []
    if found.registered is not None:
        related.append(
            Related(
                "made", program.place(found.registered), None, T(en="the hook is registered here", zh="钩子在这里登记")
            )
        )
    if later is not None:
        related.append(story.related("used", later.step, T(en="the old one is used here", zh="这里用的是旧的")))
    returned = T(
        en=" What a hook returns takes the place of the gradient, the input or the output that it was given; if it "
        "returns `None`, nothing changes.",
        zh="钩子返回的东西会取代交给它的梯度、输入或输出；如果返回 `None`，什么也不变。",
    )
    return RULE.finding(
        span, step, message,
        T(
            en=f"`{text}` makes a new tensor in new memory. No call has used it, and no line below reads it."
            f"{returned.en if found.where == 'hook' else ''}",
            zh=f"`{text}` 在新的内存里生成一个新张量。没有任何调用用到它，下面也没有哪一行读取它。"
            f"{returned.zh if found.where == 'hook' else ''}",
        ),
        related=related,
        fixes=_fixes(story, found),
    )  # fmt: skip


def _fixes(story: Story, found: NewTensorNeverUsed) -> tuple[Fix, ...]:
    program, statement = story.program, found.statement
    if statement.value is None:
        return ()
    text = program.segment(statement.value)
    if found.where == "hook":
        body = found.function.body if found.function is not None else []
        if not body or body[-1] is not statement or not program.stands_alone(statement):
            return ()
        title = T(en=f"Return it: `return {text}`", zh=f"返回它：`return {text}`")
        return unique(program.text, [Fix(title, program.replace((statement, f"return {text}")), meaning="later")])
    new = f"{found.name}.copy_({text})"
    title = T(en=f"Write into the tensor itself: `{new}`", zh=f"写入张量本身：`{new}`")
    return unique(program.text, [Fix(title, program.replace((statement, new)), meaning="later")])


RULE = Rule(
    code="PL740",
    name="new-tensor-never-used",
    severity="warning",
    title=T(en="A function computes new numbers that nothing uses", zh="函数算出的新数没有谁使用"),
    what=T(
        en="A function computes new numbers from those that it was given, and keeps them to itself: it returns "
        "nothing, and the program uses the old ones. This happens most in hooks and in loops that give a name to a "
        "new tensor. Return the result, or write it into the tensor itself.",
        zh="函数由得到的数算出新的数，却只留给自己：它什么也不返回，程序继续使用旧的数。这最常发生在钩子里，以及在循环"
        "中给名字换上新张量的时候。请返回结果，或把它写入张量本身。",
    ),
    why=T(
        en="`x = x * 2` does not change a tensor: it makes another one, and gives it the name `x` in this function "
        "alone. The caller's tensor, the list's element, the gradient that is passed on are still the old ones. A "
        "*hook* is a function that torch calls with a gradient (`register_hook`) or with the inputs and outputs of a "
        "layer (`register_forward_hook`): what it returns is used in their place, and a hook that returns nothing "
        "only looks on. A write in place, `x *= 2` or `x.copy_(…)`, changes the memory that all names share.",
        zh="`x = x * 2` 不会改变张量：它生成另一个张量，只在这个函数里把名字 `x` 给它。调用者的张量、列表的元素、继续"
        "传递的梯度都还是旧的。*钩子*是由 torch 调用的函数，得到的是梯度（`register_hook`）或一层的输入和输出"
        "（`register_forward_hook`）：它返回的东西会被用来取代它们，什么也不返回的钩子只是旁观。就地写入（`x *= 2` 或 "
        "`x.copy_(…)`）则会改变所有名字共用的内存。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)


def halve(grad):
    smaller = grad * 0.5  # PL740


net.weight.register_hook(halve)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(4, 3)).square().mean().backward()
    opt.step()
    print(net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)


def halve(grad):
    return grad * 0.5


net.weight.register_hook(halve)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    net(torch.ones(4, 3)).square().mean().backward()
    opt.step()
    print(net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "    smaller = grad * 0.5",
            "    grad = grad * 0.5",
            T(
                en="The name `grad` belongs to the function; torch keeps the tensor that it gave.",
                zh="名字 `grad` 属于这个函数；torch 保留的是它交出的张量。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",
    ),
)
