"""PL508: the ``inputs`` of torch.autograd.grad contain a tensor that the result was not computed from."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import BYPASSES, VIEW_METHODS, is_name
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, Failure, Span, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``torch.autograd.grad`` that torch refused because one of its ``inputs``, which
    requires grad, was not used to compute the result.
    """
    for step, failure in story.failures("no-gradient"):
        event = story.outer_call(step)
        tensor = story.tensor(failure.tensor, step)
        if event is None or event.op != "torch.autograd.grad" or tensor is None or not tensor.get("requires_grad"):
            continue
        labels = [operand.label for operand in event.operands if operand.label is not None]
        if failure.tensor in labels[1:]:
            yield _finding(story, event, failure, tensor)


def _finding(story: Story, event: Event, failure: Failure, tensor: Record) -> Finding:
    step = event.step
    here = at_line(story, story.span(step))
    born = tensor.get("born")
    own = story.name(failure.tensor, step)
    name = T(en=f"`{own}`", zh=f"`{own}`") if own else called(story, failure.tensor, None, step, born)
    result = called(
        story, event.operands[0].label, None, step, (story.tensor(event.operands[0].label) or {}).get("born")
    )
    alias = _alias(story, event, tensor)
    explanation = _explanation(story, name, result, alias)
    related = [
        story.related(
            "read",
            step,
            T(en="its gradient is to be computed here, and torch raises", zh="这里要求它的梯度，torch 报错"),
        )
    ]
    if born is not None and born < step:
        made = T(
            en=f"{name.en} is made here, and {result.en} does not use it",
            zh=f"{name.zh} 在这里创建，{result.zh} 没有用到它",
        )
        related.insert(0, story.related("made", born, made))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} computes how {result.en} changes with {name.en}, but {result.en} was not "
            f"computed from {name.en}.",
            zh=f"{here.zh}询问 {result.zh} 如何随 {name.zh} 变化，但 {result.zh} 不是由 {name.zh} 算出来的。",
        ),
        explanation,
        related=related,
        fixes=_fixes(story, event, failure.tensor, alias),
        facts=[Fact("input", failure.tensor, story.by(step)), Fact("alias", alias, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _alias(story: Story, event: Event, tensor: Record) -> str | None:
    """The label of a tensor on the same storage that the result *was* computed from: the whole, where ``inputs`` has a
    piece of it; None if there is none.
    """
    root = story.tensor(event.operands[0].label, event.step) or {}
    reached = set(story.behind(root.get("grad_fn")))
    for label, record in story.tensors_on(tensor.get("storage")):
        users = (
            story.tensor(result, user.step) or {}
            for user in story.uses(label)
            if user.step < event.step
            for result in user.results
        )
        if record.get("grad_fn") != tensor.get("grad_fn") and any(user.get("grad_fn") in reached for user in users):
            return label
    return None


def _explanation(story: Story, name: T, result: T, alias: str | None) -> T:
    if alias is not None:
        other = called(story, alias, None, None)
        if other.en != name.en:
            return T(
                en=f"{capital(name.en)} and {other.en} share their numbers, but the computation was recorded with "
                f"{other.en}. A piece, a reshaped or a detached tensor is a new one: what was computed before it, or "
                "without it, does not lead to it.",
                zh=f"{name.zh} 和 {other.zh} 共用数值，但计算是用 {other.zh} 记录的。切片、变形或 detach 得到新的张量："
                "之前或旁边的计算不会通向它。",
            )
    return T(
        en=f"Torch walked back from {result.en} to everything it was computed from and did not meet {name.en}. A "
        "gradient of zero would be true as well, but more often a name is mixed up, or a part of the model was left "
        "out of the forward pass; so torch raises an error.",
        zh=f"torch 从 {result.zh} 走回它的所有来源，没有遇到 {name.zh}。说梯度为零也没错，但更常见的是名字弄混了，或前"
        "向计算漏掉了模型的一部分；所以 torch 要问清楚。",
    )


def _fixes(story: Story, event: Event, label: str | None, alias: str | None) -> tuple[Fix, ...]:
    """Fixes that compute the gradient of the whole tensor and take the same part of it, or that compute the result from
    the input.

    The first where ``alias`` names the tensor of which ``label`` is a part, the second without ``alias``. Empty if the
    program's source shows no inputs.
    """
    program = story.program
    call = program.at(story.span(event.step)) if program.tree else None
    inputs = _inputs(call) if isinstance(call, ast.Call) else None
    if not isinstance(inputs, ast.expr) or not isinstance(call, ast.Call):
        return ()
    items = inputs.elts if isinstance(inputs, ast.List | ast.Tuple) else [inputs]
    if alias is None:
        return unique(program.text, [_same_again(program, call, item) for item in items])
    known = [operand.label for operand in event.operands if operand.label is not None][1:]
    if label not in known or len(known) != len(items):
        return ()
    item, place = items[known.index(label)], known.index(label)
    made = story.event((story.tensor(label, event.step) or {}).get("born"))
    if made is None or not made.operands or made.operands[0].label != alias:
        return ()
    name, piece = _piece(program, item, made.span)
    statement = program.statement(call)
    answer = _answer(program, statement, call, place, len(items))
    if not name or statement is None or answer is None:
        return ()
    (edit,) = program.replace((item, name))
    if piece and edit.end_line == program.place(statement).end_line and program.stands_alone(statement):
        edit = Edit(edit.line, edit.end_line, f"{edit.text}{program.indent(statement)}{answer} = {answer}{piece}\n")
    title = T(
        en=f"Compute the gradient of the whole, `{name}`, and take the piece afterwards",
        zh=f"先求整个 `{name}` 的梯度，再取其中一部分",
    )
    return unique(program.text, [Fix(title, (edit,))])


def _same_again(program: Program, call: ast.Call, item: ast.expr) -> Fix | None:
    """The fix that uses the input where the program repeats the expression that made it, as ``net(z)`` for ``net(x +
    noise)``; else None.

    Only if ``z`` was assigned once, as ``(x + noise).requires_grad_()`` or the like, and the repetition is between this
    assignment and the call.
    """
    function, statement = program.function(call), program.statement(call)
    made = [
        n for n in program.nodes
        if isinstance(n, ast.Assign) and program.function(n) is function and isinstance(item, ast.Name)
        and any(isinstance(t, ast.Name) and t.id == item.id for t in n.targets)
    ]  # fmt: skip
    if len(made) != 1 or statement is None or not isinstance(item, ast.Name):
        return None
    inner = made[0].value
    while (
        isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Attribute)
        and inner.func.attr in ("requires_grad_", "clone", "detach")
    ):
        inner = inner.func.value
    block = program.block(made[0])
    if inner is made[0].value or statement not in block:
        return None
    text = ast.dump(inner)
    between = block[block.index(made[0]) + 1 : block.index(statement) + 1]
    again = [n for s in between for n in ast.walk(s) if isinstance(n, ast.expr) and ast.dump(n) == text]
    if not again:
        return None
    title = T(en=f"Compute the result from `{item.id}` itself", zh=f"由 `{item.id}` 本身来算结果")
    return Fix(title, program.replace(*((n, item.id) for n in again)), meaning="later")


def _piece(program: Program, item: ast.expr, born: Span | None) -> tuple[str, str]:
    """The tensor that an input was taken from, and the code that took it: ``("x", "[:,
    0]")`` or ``("x", ".view(-1)")``.

    ``("", "")`` if the input is a whole tensor.
    """
    made = item if not isinstance(item, ast.Name) else program.at(born)
    base = made.value if isinstance(made, ast.Subscript) else None
    if (
        isinstance(made, ast.Call)
        and isinstance(made.func, ast.Attribute)
        and made.func.attr in VIEW_METHODS - BYPASSES
    ):
        base = made.func.value
    if made is None or base is None or not is_name(base):
        return "", ""
    return program.segment(base), program.segment(made)[len(program.segment(base)) :]


def _answer(program: Program, statement: ast.stmt | None, call: ast.Call, place: int, count: int) -> str | None:
    """The name to which the gradient number ``place`` of ``count`` is assigned, by unpacking or by its
    index; None if there is none.
    """
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return None
    target, value = statement.targets[0], statement.value
    if (
        isinstance(target, ast.Tuple)
        and value is call
        and len(target.elts) == count
        and isinstance(target.elts[place], ast.Name)
    ):
        return program.segment(target.elts[place])
    if not isinstance(value, ast.Subscript) or value.value is not call or not isinstance(value.slice, ast.Constant):
        return None
    return target.id if value.slice.value == place and isinstance(target, ast.Name) else None


def _inputs(call: ast.Call) -> ast.expr | None:
    """The second argument of ``torch.autograd.grad``; None if there is none."""
    if call_name(call) != "grad":
        return None
    return call.args[1] if len(call.args) > 1 else next((k.value for k in call.keywords if k.arg == "inputs"), None)


RULE = Rule(
    code="PL508",
    name="unused-input-in-grad",
    severity="error",
    title=T(
        en="The gradient of a result with respect to something it does not depend on", zh="对结果不依赖的张量求了梯度"
    ),
    what=T(
        en="A program computes the gradient of a result with respect to some tensor, but the result was not "
        "computed from that tensor. Often it is a piece of the right one, cut off outside the computation: pass "
        "the one that was used.",
        zh="程序询问结果如何随某个张量变化，但结果不是由这个张量算出来的。它常常只是从真正的输入上另外切下来的一部分："
        "请询问实际用到的那个。",
    ),
    why=T(
        en="Every result remembers which tensors it was computed from. `torch.autograd.grad(y, x)` walks back from "
        "`y` until it meets `x`. A piece such as `x[:, 0]` or `x.view(-1)` is a new tensor that remembers coming from "
        "`x`; but `y`, computed from `x` itself, has no connection to the piece, although they share memory. "
        "`allow_unused=True` returns `None` instead of raising, and `materialize_grads=True` returns zeros: right "
        "when an input may really be unused, wrong when the names are mixed up.",
        zh="每个结果都记得自己由哪些张量算出。`torch.autograd.grad(y, x)` 从 `y` 往回走，直到遇见 `x`。`x[:, 0]` 或 "
        "`x.view(-1)` 这样的一部分是新的张量，它记得自己来自 `x`；但 `y` 由 `x` 本身算出，对这一部分一无所知，尽管它们"
        "共用内存。`allow_unused=True` 不报错而返回 `None`，`materialize_grads=True` 返回零：输入确实可能没用到时这是"
        "对的，弄混了名字时则是错的。",
    ),
    bad="""import torch

points = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], requires_grad=True)
time = points[:, 0]  # made
height = points[:, 0] ** 2 * points[:, 1]
(speed,) = torch.autograd.grad(height.sum(), time)  # PL508 read
print(speed)
""",
    good="""import torch

points = torch.tensor([[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]], requires_grad=True)
time = points[:, 0]
height = points[:, 0] ** 2 * points[:, 1]
(speed,) = torch.autograd.grad(height.sum(), points)
speed = speed[:, 0]
print(speed)
""",
    find=find,
    traps=(
        Trap(
            "torch.autograd.grad(height.sum(), time)",
            "torch.autograd.grad(height.sum(), time, materialize_grads=True)",
            T(
                en="The error is gone and the speed is zero everywhere: that the question was the "
                "wrong one is now hidden.",
                zh="不再报错，但速度处处为零：问错了问题这件事被掩盖了。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",),
)
