"""PL748: tensors are keys of a dictionary or elements of a set, where equal numbers are different keys."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.trace import Hashed, T

FEWEST = 2
"""So many different values, and so many tensors that have the value of another one, show that values are meant."""
MOST = 200
"""The count of tensors at one place ends with this number."""
COLLECTS = {"set", "frozenset", "Counter", "fromkeys"}
"""Functions that make their argument's elements keys."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call that makes tensors the elements of a set (or counts them), and one for all other
    places, if tensors with equal numbers were different keys there: at least ``FEWEST`` times, and of at least
    ``FEWEST`` different values. If a ``KeyError`` on the line of such a place ended the program, only one, about that.
    """
    failure = story.trace.outcome.failure
    places = story.trace.beside.hashed
    if failure is not None and failure.type == "KeyError" and failure.span is not None:
        for hashed in places:
            if hashed.last and hashed.span.line == failure.span.line:
                yield _finding(story, hashed, (hashed,), missed=True)
                return
    collected = [each for each in places if _collects(story.program, each)]
    rest = tuple(each for each in places if each not in collected)
    for hashed in collected:
        if _is_repeated(hashed):
            yield _finding(story, hashed, (hashed,), missed=False)
    first = next((each for each in rest if _is_repeated(each)), None)
    if first is not None:
        yield _finding(story, first, rest, missed=False)


def _is_repeated(hashed: Hashed) -> bool:
    return hashed.repeated >= FEWEST and hashed.values >= FEWEST


def _collects(program: Program, hashed: Hashed) -> bool:
    """Whether this place in the source is a call that makes all elements of its argument keys."""
    node = program.at(hashed.span)
    return isinstance(node, ast.Call) and called(node) in COLLECTS


def _finding(story: Story, hashed: Hashed, found: tuple[Hashed, ...], *, missed: bool) -> Finding:
    here = at_line(story, hashed.span)
    shown = ", ".join(str(each) if isinstance(each, bool) else number(each) for each in hashed.shown)
    shown = shown if len(hashed.shown) == 1 else f"[{shown}]"
    if missed:
        message = T(
            en=f"{capital(here.en)} looks up a tensor as a key: `tensor({shown})` is not the key {shown}, and is found "
            "only as the same object.",
            zh=f"{here.zh}用张量作为键去查找：`tensor({shown})` 不是键 {shown}，只有同一个对象才能被找到。",
        )
    else:
        many = hashed.objects >= MOST
        message = T(
            en=f"{capital(here.en)} uses tensors as keys: each of {hashed.objects}{' or more' if many else ''} is a "
            f"key of its own, though only {hashed.values} values differ; a second `tensor({shown})` is new.",
            zh=f"{here.zh}用张量作为键：{hashed.objects} 个{'以上' if many else ''}张量只有 {hashed.values} 个不同的"
            f"值，却都是不同的键，例如 `tensor({shown})` 每次都是另一个键。",
        )
    too = T(en="here too a tensor is the key", zh="这里也用张量作为键")
    related = [
        Related("used", span, None, too)
        for span in dict.fromkeys(other.span for other in found)
        if span.line != hashed.span.line
    ]
    return RULE.finding(
        hashed.span,
        hashed.step,
        message,
        T(
            en="A dictionary or a set finds a key by its hash, and the hash of a tensor is the address of the object. "
            "Two tensors with the same number are two keys, and neither is the number. Use numbers as keys: "
            "`.item()` of one number, `.tolist()` of a tensor, `tuple(x.tolist())` of a vector.",
            zh="字典和集合按哈希值查找键，而张量的哈希值是对象的地址。数值相同的两个张量是两个键，也都不等于那个数。请用数作为"
            "键：单个数用 `.item()`，整个张量用 `.tolist()`，向量用 `tuple(x.tolist())`。",
        ),
        related=related[:2],
        severity="error" if missed else None,
        fixes=_fixes(story.program, found),
        facts=[Fact("tensors", hashed.objects), Fact("values", hashed.values)],
    )


def _fixes(program: Program, found: tuple[Hashed, ...]) -> tuple[Fix, ...]:
    """At most one fix: it converts the tensors to numbers at all of these places in the source."""
    edits: dict[ast.expr, str] = {}
    for each in found:
        edits.update(_numbers(program, each))
    if not edits:
        return ()
    new = next(iter(edits.values()))
    title = T(en=f"Use numbers as keys: `{new}`", zh=f"用数作为键：`{new}`")
    return unique(program.text, [Fix(title, program.replace(*edits.items()), meaning="later")])


def _numbers(program: Program, hashed: Hashed) -> dict[ast.expr, str]:
    """The expressions of the tensors at one place in the source, each with an expression for its numbers."""
    node = program.at(hashed.span)
    if isinstance(node, ast.Call) and called(node) in COLLECTS and node.args:
        given = node.args[0]
        return (
            {given: f"{operand(program, given)}.tolist()"}
            if not _is_generator(given)
            else _inside(program, given, hashed)
        )
    if isinstance(node, ast.Subscript):
        return _keys(program, node.slice, hashed)
    if isinstance(node, ast.Compare):
        return _keys(program, node.left, hashed)
    if isinstance(node, ast.Call) and node.args:
        return _keys(program, node.args[0], hashed)
    if isinstance(node, ast.Dict):
        return {
            part: text for key in node.keys if key is not None for part, text in _keys(program, key, hashed).items()
        }
    return _inside(program, node, hashed) if node is not None else {}


def _is_generator(node: ast.expr) -> bool:
    return isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp))


def _inside(program: Program, node: ast.AST, hashed: Hashed) -> dict[ast.expr, str]:
    """The element of a comprehension, or the expression itself if it is none, with an expression for its number."""
    if isinstance(node, (ast.GeneratorExp, ast.ListComp, ast.SetComp)):
        return _keys(program, node.elt, hashed)
    if isinstance(node, ast.DictComp):
        return _keys(program, node.key, hashed)
    return _keys(program, node, hashed) if isinstance(node, ast.expr) else {}


def _keys(program: Program, key: ast.expr, hashed: Hashed) -> dict[ast.expr, str]:
    """The tensors among the parts of a key, each with an expression for its number."""
    parts = key.elts if isinstance(key, ast.Tuple) else [key]
    named: list[ast.expr] = [part for part in parts if isinstance(part, ast.Name) and part.id in hashed.names]
    chosen = named or [part for part in parts if not isinstance(part, ast.Constant)]
    if len(hashed.shown) == 1:
        return {part: f"{operand(program, part)}.item()" for part in chosen}
    return {part: f"tuple({program.segment(part)}.tolist())" for part in chosen}


RULE = Rule(
    code="PL748",
    name="tensors-as-keys",
    severity="warning",
    title=T(
        en="Tensors are used as keys, and equal numbers are different keys", zh="用张量作为键，相同的数成了不同的键"
    ),
    what=T(
        en="A program uses tensors as keys of a dictionary or as elements of a set. They are found by the object and "
        "not by the number: a set of labels has as many elements as there are labels, a count never goes above 1, and "
        "a key is never found. Use numbers: `x.item()` or `x.tolist()`.",
        zh="程序用张量作为字典的键或集合的元素。查找时比较的是对象而不是数值：标签的集合与标签一样多，计数永远不超过 "
        "1，键永远找不到。请使用数：`x.item()` 或 `x.tolist()`。",
    ),
    why=T(
        en="Tensors are mutable, so their hash cannot depend on their numbers; `hash(x)` is that of the object's "
        "address. Indexing and iterating make a new object each time: `y[0]` is never the same object twice. "
        "`torch.unique(y)` and `torch.bincount(y)` count by value.",
        zh="张量是可变的，所以哈希值不能取决于它的数；`hash(x)` 是对象地址的哈希值。索引和遍历每次都产生新对象：两次 "
        "`y[0]` 绝不是同一个对象。`torch.unique(y)` 和 `torch.bincount(y)` 按数值计数。",
    ),
    bad="""import torch

y = torch.tensor([2, 0, 2, 1, 0, 2])
classes = set(y)  # PL748
print(len(classes), "classes")
""",
    good="""import torch

y = torch.tensor([2, 0, 2, 1, 0, 2])
classes = set(y.tolist())
print(len(classes), "classes")
""",
    find=find,
    traps=(
        Trap(
            "set(y)",
            "set(y.int())",
            T(en="Of another dtype, the elements are tensors still.", zh="换一种 dtype，元素仍然是张量。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.tolist.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.unique.html",
    ),
)
