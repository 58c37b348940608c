"""A checkpointed block that computed something else when backward ran it again, and what caused the difference."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.remedies.edits import keyword_set
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

DRAWS: dict[str, Callable[[str, list[str]], str | None]] = {
    "random": lambda torch, given: f"{torch}.rand(()).item()" if not given else None,
    "rand": lambda torch, given: f"{torch}.rand(()).item()" if not given else None,
    "uniform": lambda torch, given: (
        f"{torch}.empty(()).uniform_({', '.join(given)}).item()" if len(given) == 2 else None
    ),
    "randint": lambda torch, given: (
        f"{torch}.randint({given[0]}, {given[1]} + 1, ()).item()" if len(given) == 2 else None
    ),
    "randrange": lambda torch, given: f"{torch}.randint({given[0]}, ()).item()" if len(given) == 1 else None,
    "choice": lambda torch, given: (
        f"{given[0]}[{torch}.randint(len({given[0]}), ()).item()]" if len(given) == 1 else None
    ),
}
"""Functions of Python's or NumPy's random generators, with the same draw by torch's generator, whose state a checkpoint
restores; None for other arguments.
"""


def random_block(error: Error) -> Remedy | None:
    """Return the remedy for a checkpointed block that draws random numbers by Python or NumPy, with a fix that draws
    them by torch.

    If it draws none, the remedy of :func:`_stateful`, or None.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    functions = list(_run_again(story, refused.step))
    draws = [call for function in functions for call in _drawn(program, function)]
    if not draws:
        return _stateful(error, functions)
    place = program.place(draws[0])
    where, here, code = at_line(story, place), at_line(story, refused.span), program.segment(draws[0])
    said = T(
        en=f"{capital(where.en)} draws `{code}` inside a checkpointed block: when the backward on {here.en} runs the "
        "block again, it draws another number, and the block does something else.",
        zh=f"{where.zh}在 checkpoint 的块里抽取 `{code}`：{here.zh}的反向传播重新运行这个块时会抽到另一个数，"
        "于是块做的事不同了。",
    )
    accepts = T(
        en="random numbers of torch's own generator inside the block: a checkpoint restores its state, and not that "
        "of Python's or NumPy's",
        zh="块内使用 torch 自己的随机数：checkpoint 会恢复它的状态，而不会恢复 Python 或 NumPy 的",
    )
    related = tuple(
        Related("made", program.place(d), None, T(en="drawn here, anew each time", zh="在这里抽取，每次都重新抽"))
        for d in draws[:3]
    )
    return Remedy(unique(program.text, [_by_torch(program, draws)]), said, accepts, place, None, related)


def _run_again(story: Story, step: int) -> Iterator[Function]:
    """The program's functions that ran after the backward at ``step`` began, except those that called it: the functions
    of the block.

    Also all methods, except ``__init__``, of the classes of which a method ran.
    """
    names = {name for e in story.events[step + 1 :] if e.parent == step or e.scope for name in e.scope}
    outer = set(story.events[step].scope) if story.event(step) is not None else set()
    inner = {name.rsplit(".", 1)[-1]: name for name in names - outer}
    classes = {name.rsplit(".", 2)[-2] for name in names - outer if "." in name}
    for node in story.program.nodes:
        if isinstance(node, Function) and (node.name in inner or _is_method_of(story.program, node, classes)):
            yield node


def _is_method_of(program: Program, function: Function, classes: set[str]) -> bool:
    owner = program.parents.get(function)
    return isinstance(owner, ast.ClassDef) and owner.name in classes and function.name != "__init__"


def _drawn(program: Program, function: Function) -> Iterator[ast.Call]:
    """The calls of ``random`` and ``numpy.random`` in a function."""
    modules = {"random"} | {
        alias.asname or alias.name
        for n in program.nodes
        if isinstance(n, ast.Import)
        for alias in n.names
        if alias.name in ("random", "numpy.random")
    }
    arrays = {
        alias.asname or alias.name
        for n in program.nodes
        if isinstance(n, ast.Import)
        for alias in n.names
        if alias.name == "numpy"
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and called(node) in DRAWS:
            held = node.func.value
            plain = isinstance(held, ast.Name) and held.id in modules
            numpy = (
                isinstance(held, ast.Attribute)
                and held.attr == "random"
                and isinstance(held.value, ast.Name)
                and held.value.id in arrays
            )
            if plain or numpy:
                yield node


def _by_torch(program: Program, draws: list[ast.Call]) -> Fix | None:
    """The fix that draws the random numbers by torch; None if one of the draws has no such form."""
    torch = torch_name(program)
    texts = [
        DRAWS[called(d)](torch or "torch", [program.segment(a) for a in d.args]) if not d.keywords else None
        for d in draws
    ]
    changes = [(draw, text) for draw, text in zip(draws, texts, strict=True) if text is not None]
    if torch is None or len(changes) != len(draws):
        return None
    title = T(en=f"Draw by torch's generator, which a checkpoint restores: `{changes[0][1]}`",
              zh=f"用 torch 的生成器抽取，checkpoint 会恢复它的状态：`{changes[0][1]}`")  # fmt: skip
    return Fix(title, program.replace(*changes), meaning="later")


def _stateful(error: Error, functions: list[Function]) -> Remedy | None:
    """The remedy for a checkpointed block that changes an attribute by an augmented assignment (``+=``): it names that
    line, and has no fix.

    None if the block has no such line.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Attribute):
                name, place = program.segment(node.target), program.place(node)
                where, here = at_line(story, place), at_line(story, refused.span)
                said = T(
                    en=f"{capital(where.en)} changes `{name}` inside a checkpointed block: the backward on {here.en} "
                    "runs the block again, with another value than the first time, and it does something else.",
                    zh=f"{where.zh}在 checkpoint 的块里修改 `{name}`：{here.zh}的反向传播重新运行这个块时，它的值与第"
                    "一次不同，块做的事也就不同。",
                )
                related = (Related("changed", place, None, T(en="changed in each run", zh="每次运行都会改变")),)
                return Remedy((), said, None, place, None, related)
    return None


def not_reentrant(error: Error) -> Remedy | None:
    """Return the remedy for checkpoints that ``torch.autograd.grad`` cannot go through, with a fix that passes
    ``use_reentrant=False`` to all of them.

    None if the source has no such call.
    """
    program = error.refused.story.program
    calls = [
        n for n in program.nodes if isinstance(n, ast.Call) and called(n) in ("checkpoint", "checkpoint_sequential")
    ]
    changes = [change for call in calls if (change := keyword_set(program, call, "use_reentrant=False")) is not None]
    if not changes:
        return None
    title = T(
        en="Let the checkpoint run without its own backward: `use_reentrant=False`",
        zh="让 checkpoint 不用自己的反向传播：`use_reentrant=False`",
    )
    return Remedy((Fix(title, program.splice(*changes), meaning="later"),), place=program.place(calls[0]))
