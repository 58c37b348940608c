"""PL626: a loop over parameters or batches did nothing, because its iterator had been exhausted before."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.clipped_nothing import ITERATORS
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Span, T

ROUNDS = 2
DEEPEST = 4
MANY = ITERATORS | {"named_parameters", "buffers", "modules", "children", "zip", "islice"}
ITERATORS_OF_PYTHON = {
    "iter",
    "map",
    "filter",
    "zip",
    "enumerate",
    "reversed",
    "chain",
    "islice",
    "starmap",
    "pairwise",
    "batched",
}
ENDLESS = {"cycle", "count", "repeat"}
SIDE_BY_SIDE = {"zip", "enumerate"}
"""Python functions whose result ends with the iterators that they are given."""
Loop = ast.For | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp


@dataclass(frozen=True, slots=True)
class UsedUp:
    """The loop ``loop`` goes through an iterator that was exhausted before, and its body made no call in ``rounds`` of
    its executions.

    ``name`` is the source text of the iterator in the loop, ``maker`` the expression that created it. It was exhausted
    at the source position ``place`` (None if that is unknown), at the step ``step``. ``held`` is the number of its
    items if an optimizer read it; None if a loop did: the first execution of ``loop`` itself or, if ``elsewhere`` is
    True, another loop.
    """

    loop: Loop
    name: str
    maker: ast.expr
    place: Span | None
    step: int
    held: int | None
    rounds: int
    elsewhere: bool = False


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loop whose iterator is exhausted, so that it does nothing, and that the program
    reached at least ``ROUNDS`` times.

    Only in programs that finished and were recorded to their end.
    """
    program, trace = story.program, story.trace
    if program.tree is None or trace.stopped is not None or trace.outcome.kind != "finished":
        return
    for loop in program.nodes:
        sources = _sources(loop) if isinstance(loop, Loop) else []
        if not isinstance(loop, Loop) or not sources:
            continue
        if _is_dead(story, loop):
            each = (_used_up(story, loop, source) or _read_elsewhere(story, loop, source) for source in sources)
        else:
            each = (_ran_once(story, loop, source) or _in_each_round(story, loop, source) for source in sources)
        found = next((data for data in each if data is not None), None)
        if found is not None:
            yield _finding(story, found)


def _source(loop: Loop) -> ast.expr:
    return loop.iter if isinstance(loop, ast.For) else loop.generators[0].iter


def _sources(loop: Loop) -> list[ast.expr]:
    """Return the variables and attributes that the loop iterates over, also those in a ``zip`` or an ``enumerate``,
    which ends with the first iterator that ends.

    Empty for any other expression, and for a ``zip`` or ``enumerate`` with a starred argument.
    """
    source = _source(loop)
    if isinstance(source, ast.Call) and isinstance(source.func, ast.Name) and source.func.id in SIDE_BY_SIDE:
        parts = [] if any(isinstance(each, ast.Starred) for each in source.args) else source.args
    else:
        parts = [source]
    return [each for each in parts if isinstance(each, ast.Name | ast.Attribute)]


def _inside(loop: Loop) -> list[ast.AST]:
    """Return the syntax nodes that run for each item of the loop."""
    if isinstance(loop, ast.For):
        return list(loop.body)
    return [loop.key, loop.value] if isinstance(loop, ast.DictComp) else [loop.elt]


def _is_dead(story: Story, loop: Loop) -> bool:
    """Whether the loop's body contains a call of a method, and yet no call in the body was recorded."""
    methods = (
        n
        for part in _inside(loop)
        for n in ast.walk(part)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    )
    return any(True for _ in methods) and not any(story.within(part) for part in _inside(loop))


def _used_up(story: Story, loop: Loop, source: ast.expr) -> UsedUp | None:
    """Return the data of the finding if the loop's iterator had been passed to an optimizer, which exhausted it; None
    if it had not, or if the program reached the loop fewer than ``ROUNDS`` times after that.
    """
    program = story.program
    name, scope, assignment = _iterator(story, loop, source)
    for made in story.trace.optimizers if assignment is not None else ():
        node = program.at(made.span)
        given = [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []
        same = "." in name or program.function(node or loop) in (scope, None)
        if same and made.holds and assignment is not None and any(program.segment(each) == name for each in given):
            rounds = _passed(story, loop, made.step)
            return (
                UsedUp(loop, name, assignment.value, made.span, made.step, len(made.holds), rounds)
                if rounds >= ROUNDS
                else None
            )
    return None


def _read_elsewhere(story: Story, loop: Loop, source: ast.expr) -> UsedUp | None:
    """Return the data of the finding if another loop had exhausted the iterator of a loop that never made a call.

    None if no loop had, if something may end that other loop early, or if the program reached the loop fewer than
    ``ROUNDS`` times after that.
    """
    program = story.program
    maker = _maker(story, source, loop)
    if maker is None:
        return None
    for other in program.nodes:
        if not isinstance(other, Loop) or other is loop or _leaves(other) or _source(other) not in _sources(other):
            continue
        ran = [event.step for part in _inside(other) for event in story.within(part)]
        if ran and _maker(story, _source(other), other) is maker:
            rounds = _passed(story, loop, max(ran), surely=True)
            name = program.segment(source)
            return (
                UsedUp(loop, name, maker, program.place(other), max(ran), None, rounds, elsewhere=True)
                if rounds >= ROUNDS
                else None
            )
    return None


def _ran_once(story: Story, loop: Loop, source: ast.expr) -> UsedUp | None:
    """Return the data of the finding if the first execution of the loop exhausted the iterator, and later executions
    made no calls.

    None if not, if there are fewer than ``ROUNDS`` later executions, if no optimizer stepped, or if the iterator is
    created again for each execution.
    """
    name, _, assignment = _iterator(story, loop, source)
    maker = assignment.value if assignment is not None else None
    if maker is None and isinstance(source, ast.Attribute):
        maker = _maker(story, source, loop)
    if maker is None or _made_again(story, loop, maker):
        return None
    ran = sorted({event.step for part in _inside(loop) for event in story.within(part)})
    rounds = _passed(story, loop, ran[-1], surely=True) if ran and story.trace.optimizer_steps else 0
    return UsedUp(loop, name, maker, story.span(ran[0]), ran[-1], None, rounds) if rounds >= ROUNDS else None


def _made_again(story: Story, loop: Loop, maker: ast.expr) -> bool:
    """Whether the innermost loop or function that executes ``loop`` executes ``maker`` too."""
    repeated = (
        n for n in story.program.ancestors(loop) if isinstance(n, ast.For | ast.While | ast.FunctionDef | ast.Lambda)
    )
    around = next(repeated, None)
    return around is not None and any(n is around for n in story.program.ancestors(maker))


def _in_each_round(story: Story, loop: Loop, source: ast.expr) -> UsedUp | None:
    """Return the data of the finding if the loop ran, and an outer loop repeats it at least ``ROUNDS`` times although
    its iterator was created before the outer loop.

    None if not, or if the loop may end early, by a ``break``, ``return``, ``raise`` or ``yield``, or because it
    iterates over a ``zip``.
    """
    program = story.program
    ran = [event.step for part in _inside(loop) for event in story.within(part)]
    maker = _maker(story, source, loop) if ran and source is _source(loop) and not _leaves(loop) else None
    around = _repeating(story, loop) if maker is not None else None
    if maker is None or around is None or maker in set(ast.walk(around)):
        return None
    rounds = _rounds(program, around) or _passed(story, loop, max(ran))
    name = program.segment(source)
    return UsedUp(loop, name, maker, program.place(loop), max(ran), None, rounds - 1) if rounds >= ROUNDS else None


def _leaves(loop: Loop) -> bool:
    """Whether the loop contains a statement that may end it early, or a ``yield``."""
    return any(
        isinstance(n, ast.Break | ast.Return | ast.Raise | ast.Yield) for part in _inside(loop) for n in ast.walk(part)
    )


def _repeating(story: Story, node: ast.AST) -> ast.For | None:
    """Return the ``for`` loop that runs ``node`` again: the loop around it, or around the only call of the function
    that contains it.

    None if there is none, or if a branch, a ``while`` or an early exit may skip ``node``.
    """
    program = story.program
    for _ in range(DEEPEST):
        for around in program.ancestors(node):
            if isinstance(around, ast.If | ast.Try | ast.Match | ast.While | ast.Lambda):
                return None
            if isinstance(around, ast.For | ast.FunctionDef) and _may_leave(around, node):
                return None
            if isinstance(around, ast.For):
                return around
            if isinstance(around, ast.FunctionDef):
                sites = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == around.name]
                if len(sites) != 1:
                    return None
                node = sites[0]
                break
        else:
            return None
    return None


def _may_leave(around: ast.For | ast.FunctionDef, node: ast.AST) -> bool:
    """Whether a line of ``around`` before ``node`` may end the iteration or the function, so that ``node`` does not
    run.
    """
    leaves = (
        n
        for part in around.body
        for n in ast.walk(part)
        if isinstance(n, ast.Return | ast.Raise | ast.Continue | ast.Break)
    )
    return any(each.lineno < node.lineno for each in leaves)  # type: ignore[attr-defined]


def _rounds(program: Program, loop: ast.For) -> int | None:
    """Return the number of iterations of ``for … in range(5)``, also if a variable has that number; None for any other
    loop, and for one that contains ``break`` or ``return``.
    """
    call = loop.iter
    stop = (
        call.args[-1]
        if isinstance(call, ast.Call) and call_name(call) == "range" and len(call.args) in (1, 2)
        else None
    )
    if isinstance(stop, ast.Name):
        values = [
            n.value for n in program.nodes if isinstance(n, ast.Assign) and any(_is_named(t, stop) for t in n.targets)
        ]
        stop = values[0] if len(values) == 1 else None
    if any(isinstance(n, ast.Break | ast.Return) for part in loop.body for n in ast.walk(part)) or not isinstance(
        stop, ast.Constant
    ):
        return None
    first = call.args[0] if isinstance(call, ast.Call) and len(call.args) > 1 else None
    start = first.value if isinstance(first, ast.Constant) else 0 if first is None else None
    return stop.value - start if isinstance(stop.value, int) and isinstance(start, int) else None


def _is_named(node: ast.AST, name: ast.Name) -> bool:
    return isinstance(node, ast.Name) and node.id == name.id


def _maker(story: Story, source: ast.expr, node: ast.AST, depth: int = DEEPEST) -> ast.expr | None:
    """Return the expression that created the iterator ``source``: what is assigned to its variable, or passed for its
    parameter.

    None if it is not an iterator, if the variable is assigned several times, or if its function is called in several
    places.
    """
    program = story.program
    if depth == 0:
        return None
    if not isinstance(source, ast.Name | ast.Attribute):
        return source if _is_iterator(program, source) else None
    text, function = program.segment(source), program.function(node)
    names = [a.arg for a in function.args.args] if isinstance(function, ast.FunctionDef) else []
    if isinstance(function, ast.FunctionDef) and text in names:
        around = program.parents.get(function)
        called = around.name if isinstance(around, ast.ClassDef) and function.name == "__init__" else function.name
        sites = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == called]
        bound = names[1:] if isinstance(around, ast.ClassDef) else names
        given = (
            dict(zip(bound, sites[0].args, strict=False)) | {k.arg or "": k.value for k in sites[0].keywords}
            if len(sites) == 1
            else {}
        )
        return _maker(story, given[text], sites[0], depth - 1) if text in given else None
    values = [(value, n) for n in program.nodes if isinstance(n, ast.Assign) for value in _assigned(program, n, text)]
    others = (
        n
        for n in program.nodes
        if isinstance(n, ast.AugAssign | ast.For | ast.NamedExpr) and program.segment(n.target) == text
    )
    return _maker(story, *values[0], depth - 1) if len(values) == 1 and not any(True for _ in others) else None


def _assigned(program: Program, node: ast.Assign, name: str) -> Iterator[ast.expr]:
    """Yield what a statement assigns to a name, also if the name is one of several targets."""
    for target in node.targets:
        if program.segment(target) == name:
            yield node.value
        elif isinstance(target, ast.Tuple) and any(program.segment(t) == name for t in target.elts):
            values = node.value.elts if isinstance(node.value, ast.Tuple) else []
            fits = len(values) == len(target.elts)
            yield values[[program.segment(t) for t in target.elts].index(name)] if fits else node.value


def _is_iterator(program: Program, node: ast.expr, depth: int = DEEPEST) -> bool:
    """Whether an expression creates an iterator that ends: ``iter(x)``, ``zip(…)``, a generator expression, or a call
    of a generator function, or of a function whose only ``return`` returns such an expression.

    False if it calls an endless iterator (``ENDLESS``) or a generator function with a ``while``.
    """
    if any(isinstance(n, ast.Call) and call_name(n) in ENDLESS for n in ast.walk(node)):
        return False
    if isinstance(node, ast.GeneratorExp):
        return True
    if not isinstance(node, ast.Call):
        return False
    functions = [n for n in program.nodes if isinstance(n, ast.FunctionDef) and n.name == call_name(node)]
    if isinstance(node.func, ast.Name) and len(functions) == 1:
        own = [n for n in ast.walk(functions[0]) if program.function(n) is functions[0]]
        if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in own):
            return not any(isinstance(n, ast.While) for n in own)
        returned = [n.value for n in own if isinstance(n, ast.Return)]
        return (
            depth > 0
            and len(returned) == 1
            and returned[0] is not None
            and _is_iterator(program, returned[0], depth - 1)
        )
    return not functions and (
        call_name(node) in ITERATORS_OF_PYTHON if isinstance(node.func, ast.Name) else call_name(node) in MANY
    )


def _iterator(story: Story, loop: Loop, source: ast.expr) -> tuple[str, ast.AST | None, ast.Assign | None]:
    """Return the name that the loop reads in ``source``, the function that contains the name, and the assignment of an
    iterator to it.

    The function is None at the top level; the assignment is None if there is none.
    """
    program, (name, scope) = story.program, _given_as(story, loop, source)
    scopes = [None, scope, *(program.ancestors(scope) if scope is not None else ())]
    assignments = [n for n in program.nodes if isinstance(n, ast.Assign) and _makes_iterator(story, n, name)]
    return name, scope, next((n for n in assignments if "." in name or program.function(n) in scopes), None)


def _makes_iterator(story: Story, node: ast.Assign, name: str) -> bool:
    value = node.value
    many = isinstance(value, ast.Call) and call_name(value) in MANY
    iterates = many or _is_iterator(story.program, value)
    return iterates and any(story.program.segment(target) == name for target in node.targets)


def _given_as(story: Story, loop: Loop, source: ast.expr) -> tuple[str, ast.AST | None]:
    """Return the source text of ``source``, which the loop reads, and the function that contains it (None: the top
    level).

    If it is a parameter of a function that is called only once, they are those of the argument of that call instead.
    """
    program, function = story.program, story.program.function(loop)
    name = program.segment(source)
    names = [a.arg for a in function.args.args] if function is not None else []
    if function is None or name not in names:
        return name, function
    sites = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == function.name]
    bound = names[1:] if names[0] == "self" else names
    given = (
        dict(zip(bound, sites[0].args, strict=False)) | {k.arg or "": k.value for k in sites[0].keywords}
        if len(sites) == 1
        else {}
    )
    return (program.segment(given[name]), program.function(sites[0])) if name in given else (name, function)


def _passed(story: Story, loop: Loop, since: int, *, surely: bool = False) -> int:
    """Return how often the program reached the loop's statement after the step ``since``, judged by the calls of the
    statements around the loop.

    With ``surely``, return the number of updates between which it did, 0 if that is less than ``ROUNDS``, and only if
    no branch or early return can lead past the loop. In a function or a ``for`` loop, statements before the loop count
    too.
    """
    program, updates = story.program, [update.step for update in story.trace.optimizer_steps]
    node: ast.AST = loop
    statement = program.statement(loop)
    for _ in range(DEEPEST):
        if statement is None:
            return 0
        block, around = program.block(statement), program.parents.get(statement)
        direct = isinstance(around, ast.For | ast.FunctionDef)
        if surely and isinstance(around, ast.For | ast.FunctionDef) and _may_leave(around, node):
            return 0
        for each in block[block.index(statement) :] if surely and not direct else block:
            events = [event for event in story.within(each) if event.step > since]
            if surely and not hasattr(each, "body"):  # rounds between updates: a line may make a call several times
                here = bisect_left(updates, since)
                later = len({bisect_left(updates, event.step) for event in events} - {here})
                if later >= ROUNDS:
                    return later
            elif events and not surely:
                return sum((event.span, event.op) == (events[0].span, events[0].op) for event in events)
        if surely and (
            isinstance(around, ast.If | ast.Try | ast.Match)
            or sum(isinstance(n, ast.Return) for n in ast.walk(around or loop)) > 1
        ):
            return 0
        if isinstance(around, ast.FunctionDef):
            sites = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == around.name]
            around = sites[0] if len(sites) == 1 else None
            node = around or node
        statement = program.statement(around)
    return 0


def _finding(story: Story, found: UsedUp) -> Finding:
    program = story.program
    span, made = program.place(found.loop), program.place(program.statement(found.maker) or found.maker)
    here, there = at_line(story, span), at_line(story, found.place)
    first = next((e for e in story.events if e.step > found.step and e.span is not None), None)
    reader = T(en=f"the optimizer on {there.en} has read it to its end", zh=f"{there.zh}的优化器已经把它读到末尾")
    keeps = T(en="The optimizer keeps a list of its own; the", zh="优化器保存了自己的列表；")
    if found.elsewhere:
        reader = T(en=f"the loop on {there.en} has read it to its end", zh=f"{there.zh}的循环已经把它读到末尾")
        keeps = T(en="After that the", zh="此后，")
    elif found.held is None:
        reader = T(en="the first round has read it to its end", zh="第一轮已经把它读到末尾")
        keeps = T(en="After the first round the", zh="第一轮之后，")
    return RULE.finding(
        span,
        first.step if first is not None else None,
        T(
            en=f"The loop over `{found.name}` on {here.en} does nothing in {_later(found).en}: `{found.name}` is an "
            f"iterator, and {reader.en}.",
            zh=f"{here.zh}对 `{found.name}` 的循环在{_later(found).zh}什么也没做：`{found.name}` 是一"
            f"个迭代器，{reader.zh}。",
        ),
        T(
            en=f"{capital(at_line(story, made).en)} makes an iterator, which gives each item once. {keeps.en} "
            "loop finds nothing left: a sum over nothing is 0, and an average that it should move stays as it is. Keep "
            "a list, or make the iterator again.",
            zh=f"{at_line(story, made).zh}创建的是迭代器，每一项只给出一次。{keeps.zh}"
            "循环什么也得不到：对空的东西求和就是 0，它本该移动的平均值保持不变。请保存为列表，或者重新创建迭代器。",
        ),
        related=[
            Related("made", made, None, T(en="the iterator is made here", zh="迭代器在这里创建")),
            Related("used", found.place, found.step, T(en="read to its end here", zh="在这里读到末尾")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rounds", found.rounds), Fact("held", found.held)],
    )


def _later(found: UsedUp) -> T:
    if found.held is None and found.rounds == 1:
        return T(en="the second round", zh="第二轮里")
    return T(en=f"any of {found.rounds} rounds", zh=f" {found.rounds} 轮里")


def _fixes(story: Story, found: UsedUp) -> tuple[Fix, ...]:
    value = found.maker
    if isinstance(value, ast.Call) and call_name(value) == "iter" and len(value.args) == 1:
        whole = story.program.segment(value.args[0])
        title = T(
            en=f"Iterate over `{whole}` itself, which begins anew each time", zh=f"直接遍历 `{whole}`，它每次都重新开始"
        )
        return unique(story.program.text, [Fix(title, story.program.replace((value, whole)), meaning="later")])
    new = _listed(story, value)
    title = T(en=f"Keep a list: `{found.name} = {new}`", zh=f"保存为列表：`{found.name} = {new}`")
    # the other iterators of a ``zip`` are used up as well, and would end it too
    beside = [
        maker
        for source in _sources(found.loop)
        if (maker := _maker(story, source, found.loop)) is not None and maker is not value
    ]
    edits = [(each, _listed(story, each)) for each in (value, *beside)]
    if beside:
        names = "`, `".join(story.program.segment(each) for each, _ in edits)
        title = T(en=f"Keep lists of `{names}`", zh=f"把 `{names}` 保存为列表")
    return unique(story.program.text, [Fix(title, story.program.replace(*edits), meaning="later")])


def _listed(story: Story, made: ast.expr) -> str:
    """Return the source of a list of the items of an iterator."""
    text = story.program.segment(made)
    return f"list{text}" if isinstance(made, ast.GeneratorExp) and text.startswith("(") else f"list({text})"


RULE = Rule(
    code="PL626",
    name="iterator-used-up",
    severity="warning",
    title=T(en="A loop does not run, since its iterator is used up", zh="循环没有执行，因为迭代器已经用完"),
    what=T(
        en="A program goes over its parameters or its batches a second time, but what it kept gives each of them only "
        "once, and the optimizer, or the first epoch, has taken them all. Keep a list: `params = "
        "list(net.parameters())`.",
        zh="程序第二次遍历参数或各个批次，但它保存的东西每一项只给出一次，而优化器或第一个周期已经全部取走。请保存为列"
        "表：`params = list(net.parameters())`。",
    ),
    why=T(
        en="`net.parameters()`, `filter(…)` and a generator expression are iterators. An optimizer turns what it is "
        "given into a list of its own. A second reader of the same iterator gets nothing, without an error: `sum()` "
        "of nothing is the number 0, so the loss is what it would be without the term. `zip` ends with the first of "
        "its iterators that ends. What shows it is that not one call of the loop's body was made.",
        zh="`net.parameters()`、`filter(…)` 和生成器表达式都是迭代器。优化器会把得到的东西变成自己的列表。同"
        "一个迭代器的第二个读者什么也得不到，也不会报错：对空的东西 `sum()` 得到数字 0，损失就和没有这一"
        "项时一样。`zip` 在其中第一个迭代器结束时就结束。看得出来的是：循环体里的调用一次也没有发生。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
params = net.parameters()  # made
opt = torch.optim.SGD(params, lr=0.1)  # used
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    penalty = sum(p.square().sum() for p in params)  # PL626
    loss = ((net(x) - y) ** 2).mean() + 0.1 * penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
print(penalty)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
params = list(net.parameters())
opt = torch.optim.SGD(params, lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    penalty = sum(p.square().sum() for p in params)
    loss = ((net(x) - y) ** 2).mean() + 0.1 * penalty
    opt.zero_grad()
    loss.backward()
    opt.step()
print(penalty)
""",
    find=find,
    traps=(
        Trap(
            "0.1 * penalty",
            "10.0 * penalty",
            T(en="Ten times nothing is nothing.", zh="零的十倍还是零。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.parameters",),
)
