"""PL201: a leaf that requires grad, or a view of one, was written in grad mode. Torch refuses at the write itself."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.trace import Failure, T

KINDS = ("leaf-modified", "view-of-leaf-modified")


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each write that torch refused because its target is a leaf that requires grad, or a view of
    one.
    """
    for step, failure in story.failures(*KINDS):
        view = story.tensor(failure.tensor, step)
        yield (
            _finding(story, step, failure)
            if view is None or not _passes_for_a_leaf(view)
            else _view_finding(story, step, failure, view)
        )


def _passes_for_a_leaf(view: Record) -> bool:
    """Whether the tensor is a view with a stale grad_fn (its base got a grad_fn later),
    which torch's error calls a leaf.
    """
    return view.get("is_leaf") is None and view.get("base") is not None and not view.get("grad_fn")


def _finding(story: Story, step: int, failure: Failure) -> Finding:
    span = failure.span or story.span(step)
    is_view = failure.kind == "view-of-leaf-modified"
    leaf = _leaf(story, failure, step)
    name = called(story, leaf, None, step)
    record = story.tensor(leaf, step) or {}
    born = record.get("born")
    here = at_line(story, span)
    related = (
        story.related(
            "leaf",
            born,
            T(
                en=f"{name.en} starts the graph here: it requires a gradient",
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
    return RULE.finding(
        span,
        step,
        _message(here, name, is_view=is_view),
        _explanation(here, name, is_view=is_view),
        related=related,
        fixes=_fixes(story, step),
        facts=(Fact("tensor", failure.tensor, story.by(step)), Fact("leaf", leaf, story.by(step))),
        predicted=story.predicted(failure, step),
    )


def _view_finding(story: Story, step: int, failure: Failure, view: Record) -> Finding:
    """The finding for a view with a stale grad_fn: it is no leaf, although torch's error says so."""
    span = failure.span or story.span(step)
    base = str(view["base"])
    name, whole = called(story, failure.tensor, None, step), called(story, base, None, step)
    written = max((at for at, node in story.history("tensors", base, "grad_fn") if node and at < step), default=None)
    here, there = at_line(story, span), at_line(story, story.span(written))
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} changes {name.en}, a view of {whole.en}; a computed value was written "
            f"into {whole.en} since ({there.en}), the view's grad_fn is not up to date yet, so torch takes it "
            "for a leaf and raises.",
            zh=f"{here.zh}修改了 {name.zh}，它是 {whole.zh} 的视图；后来有一个算出来的值写进了 "
            f"{whole.zh}（{there.zh}），torch 还没有通知这个视图，把它当成叶子，于是拒绝。",
        ),
        T(
            en=f"{capital(name.en)} shares its memory with {whole.en}. When {there.en} wrote a computed value into "
            f"that memory, {whole.en} became the result of a computation, and so did {name.en}. Torch works out the "
            "history of a view only when it is needed (by an operation, by `.grad_fn`, by printing), and a write in "
            "place checks whether its target is a leaf before that. So the error names a leaf, though there is none "
            "here. Take the view again after the first write, and torch knows where it comes from.",
            zh=f"{name.zh} 与 {whole.zh} 共用一块内存。{there.zh}把一个算出来的值写进这块内存后，{whole.zh} 就成了计算"
            f"的结果，{name.zh} 也一样。视图的历史要等到需要时（一次运算、`.grad_fn`、打印）torch 才去推算，而就地写入"
            "在此之前就检查目标是不是叶子。所以报错里说的是叶子，其实这里没有叶子。在第一次写入之后重新取一次视图，"
            "torch 就知道它从哪里来了。",
        ),
        related=[
            story.related(
                "made",
                view.get("born"),
                T(en=f"the view of {whole.en} is taken here", zh=f"在这里取出 {whole.zh} 的视图"),
            ),
            story.related(
                "changed",
                written,
                T(
                    en=f"{whole.en} gets its history here, through the memory that the view looks at",
                    zh=f"{whole.zh} 在这里通过视图所看的内存得到历史",
                ),
            ),
            Related(
                "changed",
                span,
                step,
                T(
                    en=f"`{statement_text(story, span)}` would change the view, and torch raises",
                    zh=f"`{statement_text(story, span)}` 要修改这个视图，torch 报错",
                ),
            ),
        ],
        fixes=_taken_again(story, step, view.get("born")),
        facts=[Fact("tensor", failure.tensor, story.by(step)), Fact("base", base, story.by(step))],
        predicted=story.predicted(failure, step),
    )


def _taken_again(story: Story, step: int, made: int | None) -> tuple[Fix, ...]:
    program = story.program
    write, view = (program.statement_at(story.span(at)) if program.tree else None for at in (step, made))
    if write is None or not isinstance(view, ast.Assign) or program.function(view) is not program.function(write):
        return ()
    title = T(en="Take the view again, after its memory was written", zh="在内存写入之后重新取一次视图")
    return unique(program.text, [Fix(title, program.insert_before(write, program.segment(view)))])


def _leaf(story: Story, failure: Failure, step: int) -> str | None:
    """The label of the leaf that was written: of the tensor that the error names, or else of the first operand, the
    base if it is a view.

    If neither is known, what the error names, which may be None.
    """
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
            en=f"{capital(here.en)} changes a part of {name.en}, which requires a gradient; such a tensor may only be "
            "changed inside `torch.no_grad()`.",
            zh=f"{here.zh}修改了 {name.zh} 的一部分，而 torch 要计算它的梯度；这样的张量只能在 "
            "`torch.no_grad()` 里修改。",
        )
    return T(
        en=f"{capital(here.en)} changes {name.en}, which requires a gradient; such a tensor may only be changed "
        "inside `torch.no_grad()`.",
        zh=f"{here.zh}修改了 {name.zh}，而 torch 要计算它的梯度；这样的张量只能在 `torch.no_grad()` 里修改。",
    )


def _explanation(here: T, name: T, *, is_view: bool) -> T:
    part = (
        T(en=" (here through a view, which is the same memory)", zh="（这里是通过视图，也就是同一块内存）")
        if is_view
        else T(en="", zh="")
    )
    return T(
        en=f"{capital(name.en)} is a leaf: it was not computed from anything, and `.grad` will belong to it. If "
        f"{here.en} changed it{part.en} as a part of the computation, the tensor would become a result, and there "
        "would be no leaf left to give a gradient to. Torch refuses. An update (a training step, an initial value) "
        "is not a part of the computation, and `torch.no_grad()` says so.",
        zh=f"{name.zh} 是叶子张量：它不是由别的张量算出来的，`.grad` 属于它。如果{here.zh}把修改它{part.zh}当作计算的"
        "一部分，它就变成了一个结果，再也没有叶子可以接收梯度。所以 torch 拒绝。更新（训练的一步、设定初值）不属于这"
        "个计算，`torch.no_grad()` 就是用来说明这一点的。",
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
    """The lists of statements that a fix may put under ``no_grad``: this write with the writes right below it (``w -=
    …``), and this write alone.
    """
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
    """All syntax nodes in what ``statement`` writes: in the targets of an assignment, or in ``w.add_`` of a call; empty
    for other statements.
    """
    written: list[ast.AST] = []
    if isinstance(statement, ast.AugAssign):
        written = [statement.target]
    elif isinstance(statement, ast.Assign):
        written = list(statement.targets)
    elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        written = [statement.value.func]
    return [node for part in written for node in ast.walk(part)]


def _guarded(program: Program, run: list[ast.stmt], torch: str) -> Fix | None:
    """A fix that puts ``with torch.no_grad():`` around whole statements; None if one of them shares a
    line with another statement.
    """
    if not all(program.stands_alone(statement) for statement in run):
        return None
    first, last = program.place(run[0]).line, program.place(run[-1]).end_line
    indent = program.indent(run[0])
    inner = [line if not line.strip() else "    " + line for line in program.lines[first - 1 : last]]
    text = f"{indent}with {torch}.no_grad():\n" + "".join(inner)
    edit = Edit(first, last, text if text.endswith(("\n", "\r")) else text + "\n")
    return Fix(
        T(en="Change it outside the graph, inside `no_grad()`", zh="在 `no_grad()` 里、计算图之外修改它"), (edit,)
    )


RULE = Rule(
    code="PL201",
    name="leaf-modified-in-place",
    severity="error",
    title=T(en="A tensor whose gradient is wanted was changed in place", zh="就地修改了要求梯度的张量"),
    what=T(
        en="You want the gradient of a tensor (`requires_grad=True`), and then a line changes the numbers in that "
        "very tensor (`w -= …`, `w[0] = …`, `w.zero_()`). Torch stops at that line with an error. Such a tensor may "
        "be changed, but only where the change is marked as no part of the computation: `with torch.no_grad():`.",
        zh="你要求 torch 计算某个张量的梯度（`requires_grad=True`），随后又有一行直接修改这个张量里的数（`w -= "
        "…`、`w[0] = …`、`w.zero_()`）。torch 在那一行报错。这样的张量可以修改，但要告诉 torch 这次修改不属于计"
        "算：`with torch.no_grad():`。",
    ),
    why=T(
        en="A tensor that was made by you and not computed from others is called a *leaf*. Gradients end up in "
        "leaves: in their `.grad`. A change in place would be recorded as one more operation, and the tensor would "
        "become the result of that operation: there would be no leaf left for the gradient to arrive at. So torch "
        "refuses. A training step or an initial value is not a part of what is differentiated, and `torch.no_grad()` "
        "says so: the numbers change, the leaf stays a leaf. The same words of torch can meet a view that is no leaf: "
        "a computed value was written into its memory through another view, and torch has not worked out its history "
        "yet. Taking the view again helps there.",
        zh="由你直接创建、而不是由别的张量算出来的张量叫做*叶子*。梯度最后到达叶子，放在它的 `.grad` 里。就地修改"
        "会被记录成又一次运算，这个张量就成了那次运算的结果：再也没有叶子可以接收梯度。所以 torch 拒绝。训练的一步"
        "或设定初值不属于要求导的计算，`torch.no_grad()` 就是用来说明这一点的：数值变了，叶子仍是叶子。同样的报错"
        "也会落在并非叶子的视图上：有一个算出来的值通过另一个视图写进了它的内存，而 torch 还没有推算它的历史。这时"
        "重新取一次视图就行。",
    ),
    advice=T(
        en="put {changed} inside `with torch.no_grad():` if it is an update; if not, compute a new "
        "tensor from {tensor}.",
        zh="如果{changed}是一次更新，把它放进 `with torch.no_grad():`；否则由 {tensor} 算出新的张量。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)  # leaf
for _ in range(2):
    loss = (w * w).sum()
    loss.backward()
    w -= 0.1 * w.grad  # PL201 changed
    w.grad = None
print(w)
""",
    good="""import torch

w = torch.tensor([1.0, 2.0], requires_grad=True)
for _ in range(2):
    loss = (w * w).sum()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
print(w)
""",
    find=find,
    traps=(
        Trap(
            "w -= 0.1 * w.grad",
            "w = w - 0.1 * w.grad",
            T(
                en="The error is gone in this line, but `w` is now the name of another tensor, computed from the old "
                "one: it is no leaf, its `.grad` stays empty, and the second round of the loop fails.",
                zh="这一行不再报错，但 `w` 现在是另一个张量的名字，它由旧的算出来：不是叶子，`.grad` 一直是空的，"
                "循环的第二轮就会失败。",
            ),
        ),
        Trap(
            "w -= 0.1 * w.grad",
            "w = (w - 0.1 * w.grad).detach()",
            T(
                en="Now `w` is a plain tensor that no gradient is computed for: the next backward has nothing to do.",
                zh="现在 `w` 是一个不计算梯度的普通张量：下一次反向传播无事可做。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd",
        "https://docs.pytorch.org/docs/stable/generated/torch.no_grad.html",
    ),
)
