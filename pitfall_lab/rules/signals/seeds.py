"""Random numbers: the calls that draw them, and the calls in the program's source that seed a generator before."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import moved_out, outside, unique
from pitfall_lab.rules.kit.source import Function, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.text_origins import parameters
from pitfall_lab.rules.kit.wording import flat
from pitfall_lab.trace import Event, T

RANDOM = ("randn", "rand", "randn_like", "rand_like", "normal", "bernoulli", "multinomial", "randperm", "randint",
          "randint_like", "normal_", "uniform_", "poisson")  # fmt: skip
"""Calls that draw random numbers, by their name in the program's source or in the trace."""
INITS = (
    "kaiming_uniform_",
    "kaiming_normal_",
    "xavier_uniform_",
    "xavier_normal_",
    "orthogonal_",
    "trunc_normal_",
    "normal_",
    "uniform_",
)
"""Initializations that draw random numbers."""
SEEDS = {"manual_seed", "seed", "seed_everything", "set_seed", "default_rng"}


def drawn(story: Story, event: Event) -> tuple[object, ...] | None:
    """Return the known values that the call ``event`` drew; None if the trace does not have them."""
    record = story.tensor(event.results[0], event.step) or {}
    held = (story.record("storages", record.get("storage"), event.step) or {}).get("cells")
    return tuple(value for _, value in flat(held)) if held is not None else None


def seeding(story: Story, draw: Event, again: Event) -> ast.Call | None:
    """Return the call in the source that seeds before each draw: in the function of ``draw`` or of its callers, or in a
    loop around these.

    Else a call in a function that ran between ``draw`` and ``again``, the next draw with the same values. None if there
    is none.
    """
    program = story.program
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and called(n) in SEEDS and n.args]
    chain = list(call_chain(story, draw)) if calls else []
    loops = {
        statement: [a for a in program.ancestors(statement) if isinstance(a, ast.For | ast.While)]
        for statement in chain
    }
    around = {call: [a for a in program.ancestors(call) if isinstance(a, ast.For | ast.While)] for call in calls}
    for statement in chain:
        here = [c for c in calls if program.function(c) is program.function(statement) and c.lineno <= statement.lineno]
        beside = [c for c in here if around[c] == loops[statement] and (around[c] or program.function(c) is not None)]
        further = [c for c in here if around[c] and around[c] == loops[statement][-len(around[c]) :]]
        if beside or further:
            return (beside or further)[0]
    ran = (
        {name.rsplit(".", 1)[-1] for event in story.events[draw.step : again.step] for name in event.scope}
        if calls
        else set()
    )
    return next((c for c in calls if (function := program.function(c)) is not None and function.name in ran), None)


def made_once(story: Story, seeding: ast.Call) -> tuple[Fix, ...]:
    """Return at most one fix, which creates a generator once, before the loop or function in which ``seeding``, a
    ``Generator().manual_seed(…)``, creates it each time.

    Empty if the seeding call is not of this form, or cannot be moved.
    """
    program, maker = story.program, seeding.func.value if isinstance(seeding.func, ast.Attribute) else None
    statement = program.statement(seeding)
    if statement is None or not isinstance(maker, ast.Call) or called(maker) != "Generator":
        return ()
    given = seeding.args[0] if len(seeding.args) == 1 else None
    function = program.function(seeding)
    usual = _default(story, function, given.id) if function is not None and isinstance(given, ast.Name) else None
    once = program.rewritten(statement, (given, usual)) if usual is not None and given is not None else None
    title, place = (
        T(en="Make the generator once, before that", zh="只在此之前创建一次发生器"),
        outside(program, statement),
    )
    edits = None
    if isinstance(statement, ast.Assign) and statement.value is seeding:
        edits = moved_out(program, statement)
        if edits is not None and once is not None and place is not None:
            edits = merge(program.delete(statement), program.insert_before(place, once))
    elif place is not None:
        name = next(
            n
            for n in ("generator", "own_generator")
            if n not in {x.id for x in program.nodes if isinstance(x, ast.Name)}
        )
        edits = merge(
            program.replace((seeding, name)), program.insert_before(place, f"{name} = {program.segment(seeding)}")
        )
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()


def _default(story: Story, function: Function, name: str) -> str | None:
    """The constant default of a parameter of a function, if no call in the source passes the parameter; None if a call
    may pass it, or the default is no constant.
    """
    program, own = story.program, function.args
    places = {each.arg: number for number, each in enumerate(own.args)}
    pairs = [*zip(reversed(own.args), reversed(own.defaults), strict=False),
             *zip(own.kwonlyargs, own.kw_defaults, strict=True)]  # fmt: skip
    value = next((value for each, value in pairs if each.arg == name), None)
    for call in program.calls.get(function.name, ()):
        if len(call.args) > places.get(name, len(call.args)) or any(k.arg in (name, None) for k in call.keywords):
            return None
    return program.segment(value) if isinstance(value, ast.Constant) else None


def counted_on(story: Story, seeding: ast.Call, draw: Event) -> tuple[Fix, ...]:
    """Return at most one fix: a loop passes another seed in each iteration to the function that sets it by ``seeding``:
    ``noise(SEED + step)``.

    Empty unless the seed is a parameter of that function, and a loop that calls it (on the way to ``draw``) has a
    counter.
    """
    program = story.program
    function, given = program.function(seeding), seeding.args[0] if len(seeding.args) == 1 else None
    if function is None or not isinstance(given, ast.Name) or given.id not in parameters(function):
        return ()
    outer = [each for each in call_chain(story, draw) if program.function(each) is not function]
    calls = (n for each in outer[:1] for n in ast.walk(each) if isinstance(n, ast.Call) and called(n) == function.name)
    for call in calls:
        loop = next((each for each in program.ancestors(call) if isinstance(each, ast.For)), None)
        number = _counter(loop) if loop is not None and program.function(loop) is program.function(call) else None
        names = [each.arg for each in function.args.args]
        place = names.index(given.id) - (names[0] == "self") if given.id in names else len(call.args)
        named = [each.value for each in call.keywords if each.arg == given.id]
        seeds = [*named, *call.args[place : place + 1]]
        if number is not None and len(seeds) == 1 and not isinstance(seeds[0], ast.Starred):
            text = f"{operand(program, seeds[0])} + {number}"
            title = T(en=f"Another seed in each round: `{text}`", zh=f"每一轮用另一个种子：`{text}`")
            return unique(program.text, [Fix(title, program.replace((seeds[0], text)), meaning="later")])
    return ()


def _counter(loop: ast.For) -> str | None:
    """The name of a loop's counter: the variable of ``range``, or the first one of ``enumerate``; None if there is
    none.
    """
    name = called(loop.iter) if isinstance(loop.iter, ast.Call) else ""
    if name == "enumerate" and isinstance(loop.target, ast.Tuple) and isinstance(loop.target.elts[0], ast.Name):
        return loop.target.elts[0].id
    return loop.target.id if name in ("range", "trange") and isinstance(loop.target, ast.Name) else None
