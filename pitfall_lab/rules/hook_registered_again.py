"""PL616: a hook was registered again in each iteration and never removed, so it runs once more each time."""

from __future__ import annotations

import ast
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, product

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import moved_out, unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.trace import Event, Span, T

ROUNDS = 3


@dataclass(frozen=True, slots=True)
class Piling:
    """``registration`` is the call in the program's syntax tree that registers a hook again and again; ``runs`` are the
    torch calls (``Event``) that the hook made on one of its lines.

    ``counts`` are the numbers of these calls in each iteration; an iteration ends with a backward. If ``in_rounds`` is
    False, ``counts`` are the different numbers of times that the hook ran in succession on one tensor, in order.
    """

    registration: ast.Call
    runs: tuple[Event, ...]
    counts: tuple[int, ...]
    in_rounds: bool = True


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each registration after which the hook runs once in the first iteration, twice in the
    second, and so on; or first once on a tensor, later twice in succession on one tensor, then three times.

    It is recognized by the torch calls on each line of the hook: a hook without such calls is not found. At least
    ``ROUNDS`` iterations must be recorded without a gap or, on one tensor, the hook must have run as many different
    numbers of times.
    """
    registrations = _registrations(story)
    backwards = [backward.step for backward in story.backwards() if backward.error is None]
    if not registrations:
        return
    lines: dict[tuple[ast.Call, Span], list[Event]] = defaultdict(list)
    for event in story.calls():
        if event.scope and event.span is not None and event.span.source == 0:
            registration = registrations.get(event.scope[-1].rsplit(".", 1)[-1]) or _of_lambda(
                story, registrations, event
            )
            if registration is not None:
                lines[(registration, event.span)].append(event)
    reported = set[ast.Call]()
    # Between two rounds of a loop that is sampled some are not recorded: only those without a gap can be compared.
    ends = [0, *(gap.step for gap in story.trace.reach.gaps), len(story.trace.events)]
    for ((registration, _), all_runs), (begin, end) in product(lines.items(), pairwise(ends)):
        runs = tuple(event for event in all_runs if begin <= event.step < end)
        counts = _counts(runs, [step for step in backwards if begin <= step < end])
        if registration not in reported and len(counts) >= ROUNDS and counts[0] > 0 and _grows(counts):
            reported.add(registration)
            yield _finding(story, Piling(registration, runs, counts))
    for (registration, _), runs_of_line in lines.items():
        levels = _levels(story, runs_of_line) if registration not in reported else ()
        if len(levels) >= ROUNDS:
            reported.add(registration)
            yield _finding(story, Piling(registration, tuple(runs_of_line), levels, in_rounds=False))


def _registrations(story: Story) -> dict[str, ast.Call]:
    """Return the calls that register a hook, by the name of the hook's function; for a lambda, by its line and
    column.
    """
    found: dict[str, ast.Call] = {}
    for node in story.program.nodes:
        if isinstance(node, ast.Call) and call_name(node).startswith("register_") and call_name(node).endswith("hook"):
            for given in [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "hook")]:
                if isinstance(given, ast.Name | ast.Attribute):
                    found.setdefault(story.program.segment(given).rsplit(".", 1)[-1], node)
                elif isinstance(given, ast.Lambda):
                    found.setdefault(_key(given), node)
                elif isinstance(given, ast.Call):
                    for key in _made_by(story, given):
                        found.setdefault(key, node)
    return found


def _made_by(story: Story, call: ast.Call) -> Iterator[str]:
    """Yield the names of the functions that a call may return, as ``partial(halve, by=2)`` or ``scaled(0.5)`` do: those
    that it is given as arguments, and those defined in the called function.
    """
    for given in call.args:
        if isinstance(given, ast.Name | ast.Attribute):
            yield story.program.segment(given).rsplit(".", 1)[-1]
    name = call_name(call)
    for node in story.program.nodes:
        function = story.program.function(node)
        if function is not None and function.name == name and isinstance(node, ast.FunctionDef | ast.Lambda):
            yield node.name if isinstance(node, ast.FunctionDef) else _key(node)


def _levels(story: Story, runs: list[Event]) -> tuple[int, ...]:
    """Return the different numbers of times that the hook's line ran in succession on one tensor, if they never
    decrease, begin with ``n`` and ``2 * n``, and are all multiples of ``n``; else empty.

    Runs are in succession if nothing but the hook ran between them, in one backward, and a run had the tensor of the
    run before it, or its result.
    """
    depths: list[int] = []
    for before, event in zip([None, *runs], runs, strict=False):
        if before is not None and _follows(story, before, event):
            depths[-1] += 1
        else:
            depths.append(1)
    levels = tuple(dict.fromkeys(depths))
    if any(a > b for a, b in pairwise(depths)) or not levels or levels[1:2] != (2 * levels[0],):
        return ()
    return levels if all(level % levels[0] == 0 for level in levels) else ()


def _follows(story: Story, before: Event, event: Event) -> bool:
    if before.parent != event.parent or before.scope != event.scope:
        return False
    between = story.events[before.step : event.step]
    depth = len(event.scope)
    if any(each.scope[:depth] != event.scope and each.parent == event.parent for each in between):
        return False
    known = {label for each in between for label in each.results} | {o.label for o in before.operands}
    labels = [o.label for o in event.operands if o.label is not None]
    # What was there before the backward, such as a mask of the hook, tells nothing of which gradient this is.
    return any(
        label in known and (event.parent is None or ((story.tensor(label) or {}).get("born") or 0) > event.parent)
        for label in labels
    )


def _key(node: ast.Lambda) -> str:
    return f"{node.lineno}:{node.col_offset}"


def _of_lambda(story: Story, registrations: dict[str, ast.Call], event: Event) -> ast.Call | None:
    if not event.scope[-1].endswith("<lambda>"):
        return None
    node = story.program.at(event.span)
    around = [node, *story.program.ancestors(node)] if node is not None else []
    return next(
        (registrations[_key(n)] for n in around if isinstance(n, ast.Lambda) and _key(n) in registrations), None
    )


def _counts(runs: tuple[Event, ...], backwards: list[int]) -> tuple[int, ...]:
    """Return how often the hook's line ran in each iteration, from the first iteration with a run; an iteration ends
    with a backward.
    """
    # a hook on a gradient runs inside the backward, one on a module before it
    rounds = Counter(
        bisect_left(backwards, event.parent if event.parent in backwards else event.step) for event in runs
    )
    complete = [rounds[number] for number in range(min(rounds, default=0), len(backwards))]
    return tuple(complete)


def _grows(counts: tuple[int, ...]) -> bool:
    """Whether the hook ran n times as often in iteration n as in the first one."""
    return all(count == counts[0] * number for number, count in enumerate(counts, 1))


def _finding(story: Story, found: Piling) -> Finding:
    program, last = story.program, found.runs[-1]
    span = program.place(found.registration)
    here, there = at_line(story, span), at_line(story, story.span(last.step))
    counts = ", ".join(str(count) for count in found.counts[:5])
    said = T(
        en=f"{capital(here.en)} registers its hook again in every round: it ran {counts} times in the first "
        f"{min(5, len(found.counts))} rounds.",
        zh=f"{here.zh}在每一轮都重新注册钩子：前 {min(5, len(found.counts))} 轮里它分别运行了 {counts} 次。",
    )
    if not found.in_rounds:
        once, last_count = found.counts[0], found.counts[-1]
        times = T(en="once" if once == 1 else f"{once} times", zh=f"{once} 次")
        said = T(
            en=f"{capital(here.en)} registers its hook again and again: on one tensor it ran {times.en} at first, "
            f"later {found.counts[1]} times, and at last {last_count} times in succession.",
            zh=f"{here.zh}一再重新注册钩子：对同一个张量，它起初运行 {times.zh}，后来 {found.counts[1]} 次，最后接连"
            f"运行 {last_count} 次。",
        )
    return RULE.finding(
        span,
        found.runs[0].step,
        said,
        T(
            en=f"A hook stays until it is removed. `{snippet(story, span)}` adds one more each time, and all of them "
            f"run, one after the other: what {there.en} does to the tensor is done again and again.",
            zh=f"钩子在被移除之前一直有效。`{snippet(story, span)}` 每次再添加一个，而且它们会依次全部运行："
            f"{there.zh}对张量所做的事一遍又一遍地重复。",
        ),
        related=[story.related("used", last.step, T(en="runs once more in every round", zh="每一轮多运行一次"))],
        fixes=_fixes(story, found),
        facts=[Fact("runs", list(found.counts), story.by(last.step))],
    )


def _end_of_round(story: Story, statement: ast.stmt) -> ast.stmt | None:
    """Return the first statement after the registration, in its block, that runs backward, directly or inside of it;
    None if there is none.
    """
    block = story.program.block(statement)
    after = block[block.index(statement) + 1 :]
    for backward in story.backwards():
        for each in call_chain(story, backward):
            around = [each, *(n for n in story.program.ancestors(each) if isinstance(n, ast.stmt))]
            if (ends := next((n for n in around if n in after), None)) is not None:
                return ends
    return None


def _fixes(story: Story, found: Piling) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement(found.registration)
    if not isinstance(statement, ast.Expr) or statement.value is not found.registration:
        return ()
    text, fixes = program.segment(statement), []
    edits = moved_out(program, statement) if program.stands_alone(statement) else None
    if edits is not None:
        fixes.append(
            Fix(T(en="Register it once, before the loop", zh="只注册一次，放在循环之前"), edits, meaning="later")
        )
    ends = _end_of_round(story, statement)
    words = {n.id for n in program.nodes if isinstance(n, ast.Name)}
    if ends is not None and "handle" not in words:
        edits = merge(program.replace((statement, f"handle = {text}")), program.insert_after(ends, "handle.remove()"))
        if edits is not None:
            title = T(en="Remove it after the backward: `handle.remove()`", zh="在反向传播之后移除：`handle.remove()`")
            fixes.append(Fix(title, edits, meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL616",
    name="hook-registered-again",
    severity="warning",
    title=T(
        en="A hook is registered again in every round and runs once more each time",
        zh="钩子在每一轮都重新注册，每次多运行一遍",
    ),
    what=T(
        en="A program wants a small function to be called on each gradient, and says so again in every round of "
        "its loop. In the tenth round it is called ten times. Register it once, before the loop, or remove it at "
        "the end of each round.",
        zh="程序想让一个小函数在每个梯度上被调用，却在循环的每一轮都重新注册。到第十轮它会被调用十次。请在循环之前注册"
        "一次，或在每一轮结束时移除。",
    ),
    why=T(
        en="`register_hook` and the other functions of this kind append to a list that belongs to the tensor or the "
        "module, which outlives the round. Hooks in the list run in order, each on what the one before returned: a "
        "hook that halves the gradient divides it by 1024 in the tenth round. Each returns a handle; its `remove()` "
        "takes the hook off the list. On a result that is computed anew in each round a hook has to be registered "
        "anew, and disappears with it.",
        zh="`register_hook` 等函数把钩子加到属于张量或模块的列表里，而这个张量或模块在一轮之后仍然存在。列表中的钩子依"
        "次运行，每个都作用于前一个返回的值：一个把梯度减半的钩子到第十轮会把它除以 1024。每次注册都返回一个句柄，其 "
        "`remove()` 会把钩子从列表中移除。对于每轮重新计算的结果，钩子需要每轮注册，并随它一起消失。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
for _ in range(3):
    net.weight.register_hook(lambda g: g * 0.5)  # PL616 used
    loss = ((net(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(4, 2), torch.randn(4, 1)
net.weight.register_hook(lambda g: g * 0.5)
for _ in range(3):
    loss = ((net(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), net.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    net.weight.grad = None\n    opt.zero_grad()\n",
            T(
                en="Clearing the gradient does not take hooks off: they belong to the weight.",
                zh="清空梯度并不会移除钩子：它们属于权重。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
    ),
)
