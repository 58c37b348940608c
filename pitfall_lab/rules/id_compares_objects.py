"""PL708: ``id()`` or ``is`` was used to test whether two tensors share a storage. Both compare Python objects."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import T

TEMPORARY = {"data", "storage", "untyped_storage", "detach", "view", "reshape", "t", "T", "numpy"}
"""Attributes and methods that return a new Python object for the same storage each time."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``id(a) == id(b)`` or ``a.data is b.data`` that does not show whether two tensors
    share a storage.

    That is: a side is not a variable or attribute, so that it may be an object made for the comparison alone, or both
    are variables of different tensors with one storage. Comparisons of sides whose storage is not known are left out.
    """
    if story.program.tree is None:
        return
    for node in story.program.nodes:
        sides = _sides(node)
        if sides is None:
            continue
        storages = [_storage(story, side) for side in sides]
        if any(s is None for s, _ in storages):
            continue
        (one, one_label), (other, other_label) = storages
        fleeting = any(not is_name(side) for side in sides)
        if fleeting or (one == other and one_label != other_label):
            yield _finding(story, node, sides, (one_label, other_label), fleeting=fleeting)


def _sides(node: ast.AST) -> tuple[ast.expr, ast.expr] | None:
    """Return the two expressions compared in ``id(a) == id(b)`` or ``a.data is b.data`` (also with ``!=`` or ``is
    not``); None for anything else.
    """
    if not isinstance(node, ast.Compare) or len(node.ops) != 1:
        return None
    left, right = node.left, node.comparators[0]
    if isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.Is | ast.IsNot) and _is_id(left) and _is_id(right):
        assert isinstance(left, ast.Call)
        assert isinstance(right, ast.Call)
        return left.args[0], right.args[0]
    if isinstance(node.ops[0], ast.Is | ast.IsNot) and _is_fleeting(left) and _is_fleeting(right):
        return left, right
    return None


def _is_id(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "id" and len(node.args) == 1
    )


def _is_fleeting(node: ast.expr) -> bool:
    """Whether the expression returns a new object each time: ``x.data``, ``x.detach()``."""
    function = node.func if isinstance(node, ast.Call) else node
    return isinstance(function, ast.Attribute) and function.attr in TEMPORARY


def _storage(story: Story, node: ast.expr) -> tuple[str | None, str | None]:
    """Return the storage and the label of the tensor that an expression of the program is: ``x``, or ``x.data`` and the
    like for the tensor ``x``.

    ``(None, None)`` if the name is that of no tensor, or of tensors with different storages.
    """
    program = story.program
    while isinstance(node, ast.Call | ast.Attribute) and _is_fleeting(node):
        function = node.func if isinstance(node, ast.Call) else node
        assert isinstance(function, ast.Attribute)
        node = function.value
    if not is_name(node):
        return None, None
    text = program.segment(node)
    named = [
        label for label in story.tensors if any(name == text for _, name in story.history("tensors", label, "name"))
    ]
    same = {(story.tensor(label) or {}).get("storage") for label in named}
    if len(same) == 1 and named:
        return same.pop(), named[-1]
    return None, None


def _finding(
    story: Story, node: ast.AST, sides: tuple[ast.expr, ast.expr], labels: tuple[str | None, ...], *, fleeting: bool
) -> Finding:
    program = story.program
    records = [story.tensor(label) or {} for label in labels]
    shares = records[0].get("storage") == records[1].get("storage")
    span = program.place(node)
    here, code = at_line(story, span), program.segment(node)
    step = next((event.step for event in reversed(story.events) if event.span and event.span.line <= span.line), 0)
    truth = T(en="do share memory", zh="确实共用内存") if shares else T(en="do not share memory", zh="并不共用内存")
    names = [program.segment(side) for side in sides]
    why = (
        T(
            en=f"`{names[0]}` makes a new Python object each time, and it is gone at once; the next one may get its "
            "number, or not. The answer is chance.",
            zh=f"每次求 `{names[0]}` 都会新建一个 Python 对象，随即消失；下一个对象可能得到同一个编号，也可能"
            "得不到。答案全凭运气。",
        )
        if fleeting
        else T(
            en=f"`{names[0]}` and `{names[1]}` are two Python objects, so their numbers differ. A view is an object of "
            "its own on the same memory.",
            zh=f"`{names[0]}` 和 `{names[1]}` 是两个 Python 对象，所以编号不同。视图是同一块内存上的另一个对象。",
        )
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} compares Python objects, which does not show whether they share memory: the "
            f"two tensors {truth.en}.",
            zh=f"{here.zh}比较的是 Python 对象，与内存无关：这两个张量{truth.zh}。",
        ),
        T(
            en=f"`id` gives the number of an object in Python, and `is` compares such numbers. {why.en} `data_ptr()` "
            "of the storage is the address of the memory.",
            zh=f"`id` 给出对象在 Python 中的编号，`is` 比较的也是这种编号。{why.zh}内存在哪里，要"
            "问存储的 `data_ptr()`。",
        ),
        related=[
            story.related("made", record.get("born"), T(en="one of the two is made here", zh="其中一个在这里创建"))
            for record in (records if labels[0] != labels[1] else records[:1])
        ],
        fixes=_fixes(program, node, sides),
        facts=[Fact("shares memory", shares), Fact("code", code)],
    )


def _fixes(program: Program, node: ast.AST, sides: tuple[ast.expr, ast.expr]) -> tuple[Fix, ...]:
    assert isinstance(node, ast.Compare)
    sign = "==" if isinstance(node.ops[0], ast.Eq | ast.Is) else "!="
    new = f" {sign} ".join(f"{program.segment(side)}.untyped_storage().data_ptr()" for side in sides)
    title = T(
        en="Compare where the memory begins: `untyped_storage().data_ptr()`",
        zh="比较内存的起点：`untyped_storage().data_ptr()`",
    )
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])


RULE = Rule(
    code="PL708",
    name="id-compares-objects",
    severity="warning",
    title=T(en="Object numbers were compared to find out about memory", zh="用对象的编号来判断内存是否相同"),
    what=T(
        en="A program wanted to know whether two tensors share their numbers, and compared `id(a)` with `id(b)`. That "
        "compares the Python objects, and two objects may well look at the same numbers. Compare "
        "`a.untyped_storage().data_ptr()`.",
        zh="程序想知道两个张量是否共用同样的数，于是比较 `id(a)` 和 `id(b)`。这比较的是 Python 对象，而两个对象完全可"
        "能看着同样的数。请比较 `a.untyped_storage().data_ptr()`。",
    ),
    why=T(
        en="A tensor is a small Python object that refers to a *storage*, the memory with the numbers. Views, "
        "`detach()` and `.data` make new objects on the same storage: `id` differs and memory does not. Objects "
        "without a name are worse: `id(x.data)` belongs to an object that is gone before the line ends, and Python "
        "may give its number to the next one, so `id(x.data) == id(y.data)` can be true for tensors that share "
        "nothing. `data_ptr()` gives the address of a tensor's first element; compare `untyped_storage().data_ptr()` "
        "for the whole memory.",
        zh="张量是一个小的 Python 对象，旁边是*存储*，即存放数值的内存。视图、`detach()` 和 `.data` 会在同一个存储上新"
        "建对象：`id` 不同，内存却相同。没有名字的对象更糟：`id(x.data)` 属于一个马上就消失的对象，Python 可能把它的编"
        "号给下一个对象，所以毫不相干的张量也可能让 `id(x.data) == id(y.data)` 为真。`data_ptr()` 给出张量第一个元素的"
        "地址；要问整块内存，请问它的存储。",
    ),
    bad="""import torch

x = torch.arange(4.0)
w = torch.ones(4, requires_grad=True)
grid = x.view(2, 2)
separate = id(x) != id(grid)  # PL708
if separate:
    grid *= 10
loss = (w * x).sum()
loss.backward()
print(x, w.grad)
""",
    good="""import torch

x = torch.arange(4.0)
w = torch.ones(4, requires_grad=True)
grid = x.view(2, 2)
separate = x.untyped_storage().data_ptr() != grid.untyped_storage().data_ptr()
if separate:
    grid *= 10
loss = (w * x).sum()
loss.backward()
print(x, w.grad)
""",
    find=find,
    traps=(
        Trap(
            "id(x) != id(grid)",
            "id(x.data) != id(grid.data)",
            T(
                en="`.data` makes a new object each time; the answer now depends on chance.",
                zh="`.data` 每次都新建一个对象；答案现在全凭运气。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.data_ptr.html",
        "https://docs.pytorch.org/docs/stable/tensor_view.html",
    ),
)
