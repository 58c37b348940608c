"""PL343: functions made in a loop, such as hooks, read the loop's variable when they are called, so that all of them
use its last value.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.snapshots import is_collected
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, Span, T

Loop = ast.For | ast.comprehension
Made = ast.Lambda | ast.FunctionDef
ROUNDS = 2
NEAR = 400
"""How many events after a call are searched for the line that runs next."""
AGAIN = {"checkpoint"}
"""Calls that run a function at once, and again in backward."""


@dataclass(frozen=True, slots=True)
class FunctionsShareALoopVariable:
    """``function`` is a ``def`` or ``lambda`` that each iteration of ``loop`` makes anew; both are nodes of the
    program's syntax tree.

    ``variables`` are the loop's variables that the function reads; ``calls`` are events (``Event``) in the function
    after the loop, one for each of its runs.
    """

    function: Made
    loop: ast.AST
    variables: tuple[str, ...]
    calls: tuple[Event, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each function that a loop makes again in each iteration and that reads the loop's variable,
    if at least ``ROUNDS`` runs come after the loop and none inside of it (except with a checkpoint).

    A hook on tensors must have been registered on several of them.
    """
    made = dict(_made_in_loops(story.program)) if story.program.tree is not None else {}
    runs = _runs(story, made) if made else {}
    for function, events in runs.items():
        loop, variables = made[function]
        places = [(event, _caller(story, event, function)) for event in events]
        late = tuple(e for e, place in places if place is None or place.source or not _contains(story, loop, place))
        repeats = _is_given_to(story.program, function, AGAIN)
        if len(late) >= ROUNDS and (len(late) == len(events) or repeats) and _of_several(story, function):
            yield _finding(story, FunctionsShareALoopVariable(function, loop, variables, late))


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, one about a checkpoint that ran a function again with other
    values, if this rule has one about the line that ran again; else None.
    """
    again = general.line("made")
    place = again.span if again is not None else None
    return next(
        (f for f in find(story) if place is not None and f.span is not None and f.span.line == place.line), None
    )


def _made_in_loops(program: Program) -> Iterator[tuple[Made, tuple[ast.AST, tuple[str, ...]]]]:
    """Yield the functions that a loop makes and keeps in each iteration, each with the loop and those of the loop's
    variables that the function reads when called.

    Functions that have these variables as parameters or assign them are left out.
    """
    for node in program.nodes:
        if not isinstance(node, Made):
            continue
        loop, bound = _loop(program, node)
        arguments = node.args
        own = {a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
        inside = [n for part in _body(node) for n in ast.walk(part) if isinstance(n, ast.Name)]
        own |= {n.id for n in inside if isinstance(n.ctx, ast.Store)}
        read = tuple(dict.fromkeys(n.id for n in inside if n.id in bound and n.id not in own))
        if loop is not None and read and (_is_kept(program, node) or _is_given_to(program, node, AGAIN)):
            yield node, (loop, read)


def _body(function: Made) -> list[ast.AST]:
    return [function.body] if isinstance(function, ast.Lambda) else list(function.body)


def _loop(program: Program, function: Made) -> tuple[ast.AST | None, set[str]]:
    """Return the innermost loop around a function, in the same function or module, and the names that it assigns in
    each iteration.

    None and no names if there is none, or if the nearest scope around the function is a class.
    """
    for around in program.ancestors(function):
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            break
        if isinstance(around, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return around, {
                n.id for each in around.generators for n in ast.walk(each.target) if isinstance(n, ast.Name)
            }
        if isinstance(around, ast.For):
            stored = (n for n in ast.walk(around) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
            return around, {n.id for n in stored if program.function(n) is program.function(around)}
    return None, set()


def _uses(program: Program, function: Made) -> list[ast.AST]:
    """Return the nodes by which a function is passed on: the lambda itself, or the reads of a ``def``'s name in the
    block where it is made.
    """
    if isinstance(function, ast.Lambda):
        return [function]
    block = {id(n) for statement in program.block(function) for n in ast.walk(statement)}
    inside = {id(n) for n in ast.walk(function)}
    return [
        n
        for n in program.nodes
        if isinstance(n, ast.Name)
        and n.id == function.name
        and isinstance(n.ctx, ast.Load)
        and id(n) in block
        and id(n) not in inside
    ]


def _is_kept(program: Program, function: Made) -> bool:
    """Whether the program registers the function as a hook, puts it into a collection or makes it an attribute of an
    object.
    """
    for use in _uses(program, function):
        parent = program.parents.get(use)
        if is_collected(program, use) or isinstance(
            parent, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
        ):
            return True
        if (
            isinstance(parent, ast.Call)
            and use in parent.args
            and (called(parent).startswith("register_") or called(parent) == "setattr")
        ):
            return True
        if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Attribute):
            return True
    return False


def _is_given_to(program: Program, function: Made, names: set[str]) -> bool:
    parents = [(use, program.parents.get(use)) for use in _uses(program, function)]
    return any(
        isinstance(parent, ast.Call) and use in parent.args and called(parent) in names for use, parent in parents
    )


def _runs(story: Story, made: dict[Made, tuple[ast.AST, tuple[str, ...]]]) -> dict[Made, list[Event]]:
    """Return, for each function, the events of that line of it which has the most events: one for each time the
    function ran.
    """
    places: dict[Made, dict[Span, list[Event]]] = defaultdict(lambda: defaultdict(list))
    names = {function: function.name if isinstance(function, ast.FunctionDef) else "<lambda>" for function in made}
    for event in story.calls():
        if event.scope and event.span is not None and event.span.source == 0:
            called_as = event.scope[-1].rsplit(".", 1)[-1]
            for function, name in names.items():
                if name == called_as and _contains(story, function, event.span):
                    places[function][event.span].append(event)
    return {function: max(spans.values(), key=len) for function, spans in places.items()}


def _contains(story: Story, node: ast.AST, span: Span) -> bool:
    place = story.program.place(node)
    starts = (place.line, place.column) <= (span.line, span.column)
    return starts and (span.end_line, span.end_column) <= (place.end_line, place.end_column)


def _caller(story: Story, event: Event, function: Made) -> Span | None:
    """Return the source position of the backward in which the function ran or else of the next call outside of the
    function; None if there is none among the next ``NEAR`` events.
    """
    outer = story.outer_call(event.step)
    if outer is not None and outer is not event:
        return outer.span
    later = (story.span(e.step) for e in story.events[event.step + 1 : event.step + NEAR])
    return next(
        (place for place in later if place is not None and place.source == 0 and not _contains(story, function, place)),
        None,
    )


def _of_several(story: Story, function: Made) -> bool:
    """Whether the calls may be calls of several functions that the loop made: False only for a hook on tensors that was
    registered on fewer than ``ROUNDS`` of them.
    """
    program = story.program
    calls = [parent for use in _uses(program, function) if isinstance(parent := program.parents.get(use), ast.Call)]
    hooks = [call for call in calls if called(call) == "register_hook"]
    if not hooks:
        return True
    registered = {
        e.operands[0].label for e in story.calls("register_hook") if e.operands and program.at(e.span) in hooks
    }
    return len(registered) >= ROUNDS


def _finding(story: Story, found: FunctionsShareALoopVariable) -> Finding:
    program, name = story.program, found.variables[0]
    span = program.place(found.function)
    if isinstance(found.function, ast.FunctionDef):
        span = Span(span.line, span.column, span.line, span.column + len(f"def {found.function.name}"))
    outer = story.outer_call(found.calls[0].step) or found.calls[0]
    here = at_line(story, span)
    place = program.place(found.loop)
    loop, back = at_line(story, place), at_line(story, outer.span)
    ran = T(
        en=f"They ran {len(found.calls)} times"
        + (f", first in the backward on {back.en}" if outer is not found.calls[0] else ""),
        zh=f"它们运行了 {len(found.calls)} 次"
        + (f"，第一次是在{back.zh}的反向传播中" if outer is not found.calls[0] else ""),
    )
    return RULE.finding(
        span,
        outer.step,
        T(
            en=f"{capital(here.en)} makes a function in each round of the loop, and all of them read `{name}` when "
            "they are called: they use its last value.",
            zh=f"{here.zh}在循环的每一轮都创建一个函数，而它们都在被调用时才读取 `{name}`：用的都是它最后的值。",
        ),
        T(
            en=f"A function looks up the variables around it at the moment of the call. {ran.en}; by then the loop on "
            f"{loop.en} has ended, and `{name}` is the same for all. A default argument, `{name}={name}`, keeps the "
            "value of each round.",
            zh=f"函数在被调用的那一刻才查找它外面的变量。{ran.zh}；那时{loop.zh}的循环已经结束，`{name}` 对所有函数都"
            f"一样。默认参数 `{name}={name}` 会保留每一轮的值。",
        ),
        related=[
            story.related(
                "used", found.calls[0].step, T(en="the functions run after the loop", zh="这些函数在循环之后运行")
            )
        ],
        fixes=_fixes(program, found),
        facts=[Fact("variables", list(found.variables)), Fact("runs", len(found.calls))],
    )


def _fixes(program: Program, found: FunctionsShareALoopVariable) -> tuple[Fix, ...]:
    """At most one fix: it gives the function the values of its iteration as default arguments.

    Empty if it has defaults, ``*args``, ``**kwargs`` or keyword-only arguments, or is a ``def`` without arguments.
    """
    node, given = found.function, ", ".join(f"{name}={name}" for name in found.variables)
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        return ()
    if isinstance(node, ast.Lambda):
        written = program.segment(node).removeprefix("lambda").split(":", 1)[0].strip() if arguments.args else ""
        new = f"lambda {', '.join(part for part in (written, given) if part)}: {program.segment(node.body)}"
        if arguments.defaults:
            return ()
        title = T(en=f"Keep the value of each round: `{given}`", zh=f"保留每一轮的值：`{given}`")
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    last = arguments.args[-1] if arguments.args and not arguments.defaults else None
    if last is None:
        return ()
    title = T(en=f"Keep the value of each round: `{given}`", zh=f"保留每一轮的值：`{given}`")
    return unique(
        program.text, [Fix(title, program.replace((last, f"{program.segment(last)}, {given}")), meaning="later")]
    )


RULE = Rule(
    code="PL343",
    name="functions-share-a-loop-variable",
    severity="warning",
    title=T(
        en="Functions made in a loop all use the last value of its variable",
        zh="循环中创建的函数都使用循环变量的最后一个值",
    ),
    what=T(
        en="A program gives each layer a hook of its own, made in a loop, with a number or a name of its own. When "
        "the hooks run, all of them use the last one, because a function looks up a variable only when it is called. "
        "Keep the value of the round: `lambda grad, scale=scale: grad * scale`.",
        zh="程序在循环中为每一层创建各自的钩子，各有自己的数或名字。而钩子运行时用的都是最后一个，因为函数在被调用时才"
        "查找变量。请保留那一轮的值：`lambda grad, scale=scale: grad * scale`。",
    ),
    why=T(
        en="This is Python's rule and not torch's: a function holds the variables around it, not their values. A loop "
        "has one variable, which it gives a new value in each round. Hooks run in a later forward or backward pass, "
        "and functions in a list when they are called; by then the loop has ended. A default argument is evaluated "
        "when the function is made, and so is the argument of a function that returns the hook.",
        zh="这是 Python 的规则，不是 torch 的：函数持有的是外面的变量，而不是它们的值。一个循环只有一个变量，每一轮给"
        "它新的值。钩子在之后的前向或反向传播中运行，列表中的函数则在被调用时运行；那时循环已经结束。默认参数在创建函"
        "数时求值，返回钩子的函数的参数也是如此。",
    ),
    advice=T(
        en="keep the values of the round on {line} as default arguments of the function.",
        zh="在{line}用函数的默认参数保留那一轮的值。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
for layer, scale in ((net[0], 0.1), (net[2], 1.0)):
    layer.weight.register_hook(lambda grad: grad * scale)  # PL343 used
net(torch.randn(8, 3)).square().mean().backward()
print(net[0].weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
for layer, scale in ((net[0], 0.1), (net[2], 1.0)):
    layer.weight.register_hook(lambda grad, scale=scale: grad * scale)
net(torch.randn(8, 3)).square().mean().backward()
print(net[0].weight.grad)
""",
    find=find,
    refines=("PL108",),
    refine=refine,
    traps=(
        Trap(
            "lambda grad: grad * scale",
            "lambda grad: grad * float(scale)",
            T(
                en="A copy made inside the function is made when it is called.",
                zh="在函数内部做的复制，仍是在调用时才做的。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.register_forward_hook",
    ),
)
