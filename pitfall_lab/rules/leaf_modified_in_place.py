"""PL201: a leaf that requires grad, or a view of one, was written in grad mode. Torch refuses at the write itself."""

from __future__ import annotations

import ast

from pitfall_lab.rules.finding import Edit, Fact, Finding, Fix, Related, Rule
from pitfall_lab.rules.repairs import unique
from pitfall_lab.rules.source import Program
from pitfall_lab.rules.story import Story
from pitfall_lab.rules.syntax import torch_name
from pitfall_lab.rules.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Failure, T, Trace

CODE, NAME = "PL201", "leaf-modified-in-place"
KINDS = ("leaf-modified", "view-of-leaf-modified")


def find(trace: Trace) -> list[Finding]:
    """One finding for each write into a leaf that torch refused."""
    story = Story(trace)
    found, seen = [], set()
    failures = [(event.step, event.error) for event in trace.events if event.error is not None]
    if trace.outcome.failure is not None:
        failures.append(
            (trace.outcome.failure.step if trace.outcome.failure.step is not None else len(trace.events) - 1, trace.outcome.failure)
        )
    for step, failure in failures:
        if failure.kind in KINDS and (key := (failure.kind, failure.tensor, failure.span or story.span(step))) not in seen:
            seen.add(key)
            found.append(_finding(story, step, failure))
    return found


def _finding(story: Story, step: int, failure: Failure) -> Finding:
    span = failure.span or story.span(step)
    is_view = failure.kind == "view-of-leaf-modified"
    leaf = _leaf(story, failure, step)
    name = called(story, leaf, None, step)
    event = story.event(step)
    predicted = any(f.failure.kind == failure.kind and f.step <= step for f in story.trace.forecasts) or (
        event is not None and event.by == "agreed"
    )
    record = story.tensor(leaf, step) or {}
    born = record.get("born")
    here = at_line(story, span)
    related = (
        Related(
            "leaf",
            story.span(born),
            born,
            T(
                en=f"{name.en} starts the graph here: its gradient is what you asked for",
                zh=f"{name.zh} 从这里开始计算图：你要的就是它的梯度",
            ),
        ),
        Related(
            "changed",
            span,
            step,
            T(
                en=f"`{statement_text(story, span)}` would change it, and torch raises",
                zh=f"`{statement_text(story, span)}` 要修改它，torch 报错",
            ),
        ),
    )
    return Finding(
        CODE,
        NAME,
        "error",
        span,
        step,
        predicted,
        _message(here, name, is_view=is_view),
        _explanation(here, name, is_view=is_view),
        related,
        _fixes(story, step),
        (Fact("tensor", failure.tensor, story.by(step)), Fact("leaf", leaf, story.by(step))),
    )


def _leaf(story: Story, failure: Failure, step: int) -> str | None:
    """The leaf behind the written tensor: the tensor itself, or what it is a view of."""
    event = story.event(step)
    written = event.operands[0].label if event is not None and event.operands else None
    for label in (failure.tensor, written):
        tensor = story.tensor(label, step)
        if tensor is not None:
            return str(tensor["base"]) if tensor.get("base") else label
    return failure.tensor


def _message(here: T, name: T, *, is_view: bool) -> T:
    if is_view:
        return T(
            en=f"{capital(here.en)} changes a part of {name.en}, whose gradient torch is asked to compute; such a tensor may "
            "only be changed inside `torch.no_grad()`.",
            zh=f"{here.zh}修改了 {name.zh} 的一部分，而 torch 要计算它的梯度；这样的张量只能在 `torch.no_grad()` 里修改。",
        )
    return T(
        en=f"{capital(here.en)} changes {name.en}, whose gradient torch is asked to compute; such a tensor may only be "
        "changed inside `torch.no_grad()`.",
        zh=f"{here.zh}修改了 {name.zh}，而 torch 要计算它的梯度；这样的张量只能在 `torch.no_grad()` 里修改。",
    )


def _explanation(here: T, name: T, *, is_view: bool) -> T:
    part = (
        T(en=" (here through a view, which is the same memory)", zh="（这里是通过视图，也就是同一块内存）") if is_view else T(en="", zh="")
    )
    return T(
        en=f"{capital(name.en)} is a leaf: it was not computed from anything, and `.grad` will belong to it. If {here.en} "
        f"changed it{part.en} as a part of the computation, "
        "the tensor would become a result, and there would be no leaf left to give a gradient to. Torch refuses. An update (a "
        "training step, an initial value) is not a part of "
        "the computation, and `torch.no_grad()` says so.",
        zh=f"{name.zh} 是叶子张量：它不是由别的张量算出来的，`.grad` 属于它。如果{here.zh}把修改它{part.zh}当作计算的一部分，"
        "它就变成了一个结果，再也没有叶子可以接收梯度。"
        "所以 torch 拒绝。更新（训练的一步、设定初值）不属于这个计算，`torch.no_grad()` 就是用来说明这一点的。",
    )


def _fixes(story: Story, step: int) -> tuple[Fix, ...]:
    if not story.trace.sources:
        return ()
    program = story.program
    statement = program.statement_at(story.span(step)) if program.tree else None
    if statement is None or isinstance(statement, (ast.For, ast.While, ast.If, ast.With, ast.FunctionDef)):
        return ()
    name = torch_name(program)
    candidates: list[Fix | None] = []
    if name is not None:
        candidates = [_guarded(program, run, name) for run in _runs(program, statement)]
    return unique(program.text, candidates)


def _runs(program: Program, statement: ast.stmt) -> list[list[ast.stmt]]:
    """The writes that belong together (``w -= …`` and ``b -= …`` below it), then the single one."""
    block = program.block(statement)
    end = block.index(statement) + 1 if statement in block else 1
    while statement in block and end < len(block) and _is_write(block[end]):
        end += 1
    run = block[block.index(statement) : end] if statement in block else [statement]
    return [run, [statement]] if len(run) > 1 else [[statement]]


def _is_write(statement: ast.stmt) -> bool:
    if any(isinstance(node, ast.Attribute) and node.attr == "grad" for node in _targets(statement)):
        return False  # a gradient is no leaf that requires grad
    if isinstance(statement, ast.AugAssign):
        return True
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Subscript) for target in statement.targets)
    call = statement.value if isinstance(statement, ast.Expr) else None
    return (
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr.endswith("_")
        and not call.func.attr.endswith("__")
    )


def _targets(statement: ast.stmt) -> list[ast.AST]:
    """The parts of ``statement`` that are written, with everything in them."""
    written: list[ast.AST] = []
    if isinstance(statement, ast.AugAssign):
        written = [statement.target]
    elif isinstance(statement, ast.Assign):
        written = list(statement.targets)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        written = [statement.value.func]
    return [node for part in written for node in ast.walk(part)]


def _guarded(program: Program, run: list[ast.stmt], torch: str) -> Fix | None:
    """``with torch.no_grad():`` around whole statements."""
    if not all(program.stands_alone(statement) for statement in run):
        return None
    first, last = program.place(run[0]).line, program.place(run[-1]).end_line
    indent = program.indent(run[0])
    inner = [line if not line.strip() else "    " + line for line in program.lines[first - 1 : last]]
    text = f"{indent}with {torch}.no_grad():\n" + "".join(inner)
    edit = Edit(first, last, text if text.endswith(("\n", "\r")) else text + "\n")
    return Fix(T(en="Change it outside the graph, inside `no_grad()`", zh="在 `no_grad()` 里、计算图之外修改它"), (edit,))


RULE = Rule(
    CODE,
    NAME,
    T(en="A tensor whose gradient is wanted was changed in place", zh="就地修改了要求梯度的张量"),
    T(
        en="A leaf is where gradients end up. Changing it inside the computation would turn it into a result, so torch "
        "refuses. Updates belong inside `torch.no_grad()`. "
        "Writing `w = w - lr * w.grad` instead only hides the problem: the name then stands for a new tensor that is no leaf.",
        zh="叶子张量是梯度最后到达的地方。在计算中修改它会让它变成一个结果，所以 torch 拒绝。更新应当写在 `torch.no_grad()` "
        "里。改写成 `w = w - lr * w.grad` 只是掩盖问题："
        "这个名字从此代表一个不再是叶子的新张量。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (w * w).sum()
loss.backward()
w -= 0.1 * w.grad
print(w)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
loss = (w * w).sum()
loss.backward()
with torch.no_grad():
    w -= 0.1 * w.grad
print(w)
""",
    find=find,
)
