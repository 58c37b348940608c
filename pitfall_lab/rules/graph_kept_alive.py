"""PL511: results were stored, one in each iteration, each with its whole graph.

No backward ever goes through these graphs.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, reads
from pitfall_lab.rules.kit.wording import at_line, capital, statement_text
from pitfall_lab.trace import Event, T

ROUNDS, MOST = 3, 8
"""The least number of iterations whose results must be alive together: one more than a loop keeps until a variable is
assigned its next value.
"""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that adds a result with its graph to a sum, or appends it to a list, in several
    iterations, or for each forward hook that does, when no backward goes through the stored graphs any more.

    Only in programs that finished and ran a backward.
    """
    if story.trace.outcome.kind != "finished" or story.program.tree is None or not story.backwards():
        return
    for node in story.program.nodes:
        if isinstance(node, ast.AugAssign | ast.Assign) and _adds(story, node):
            yield from _summed(story, node, node.value)
        elif isinstance(node, ast.Call) and called(node) == "append" and len(node.args) == 1:
            yield from _by_hook(story, node) if _in_hook(story.program, node) else _collected(story, node)


def _in_hook(program: Program, call: ast.Call) -> bool:
    """Whether the call is inside a function or lambda that is registered with ``register_forward_hook``, and its
    argument is a parameter of that function.
    """
    function = next((n for n in program.ancestors(call) if isinstance(n, ast.Lambda | ast.FunctionDef)), None)
    if (
        function is None
        or not isinstance(call.args[0], ast.Name)
        or call.args[0].id not in {a.arg for a in function.args.args}
    ):
        return False
    hooks = (n for n in program.nodes if isinstance(n, ast.Call) and called(n) == "register_forward_hook")
    given = (each for n in hooks for each in n.args[:1])
    return any(
        each is function or (isinstance(each, ast.Name) and each.id == getattr(function, "name", None))
        for each in given
    )


def _by_hook(story: Story, call: ast.Call) -> Iterator[Finding]:
    """Yield at most one finding, for a forward hook that appends a module's results to a list.

    Only if an optimizer steps and all results of one line outlive their iterations.
    """
    if not story.trace.optimizer_steps:
        return
    places: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls():
        if event.error is None and event.results and _node(story, event.results[0], event.step) is not None:
            places[(event.span, event.op)].append(event)
    for events in places.values():
        if len(events) >= ROUNDS and all(_outlives(story, *pair, events[-1]) for pair in pairwise(events)):
            yield _finding(story, events, story.program.statement(call) or call, call.args[0])
            return


def _adds(story: Story, node: ast.AugAssign | ast.Assign) -> bool:
    """Whether the statement is ``total += loss``, ``total -= loss`` or ``total = … total …``
    with one target and an operator.
    """
    if isinstance(node, ast.AugAssign):
        return isinstance(node.op, ast.Add | ast.Sub)
    target = story.program.segment(node.targets[0])
    return len(node.targets) == 1 and isinstance(node.value, ast.BinOp) and target in reads(story.program, node.value)


def _summed(story: Story, statement: ast.stmt, value: ast.expr) -> Iterator[Finding]:
    """Yield at most one finding, for a sum whose graph leads through at least ``ROUNDS`` iterations, if no backward
    ever went through it.

    Nothing if the sum has several elements and no backward runs between two iterations.
    """
    whole = {story.program.place(statement), story.program.place(value)}
    rounds = [
        event for event in story.within(statement) if event.span in whole and event.results and event.error is None
    ]
    nodes = {node: event for event in rounds if (node := _node(story, event.results[0], event.step))}
    if len(nodes) < ROUNDS or any((story.record("nodes", node) or {}).get("ran") is not None for node in nodes):
        return
    hanging: list[Event] = []
    met = set[str]()
    for node in sorted(nodes, key=lambda each: -nodes[each].step):
        # Of a loop that was sampled, the graph of the last sum leads to no round before those that were left out.
        if node not in met:
            chain = list(story.behind(node))
            met.update(chain)
            hanging = max(hanging, [nodes[each] for each in chain if each in nodes], key=len)
    last = max(hanging, key=lambda event: event.step)
    lives_on = _is_number(story, last) or any(_backward_between(story, *pair) for pair in pairwise(rounds))
    if len(hanging) >= ROUNDS and lives_on:
        yield _finding(story, sorted(hanging, key=lambda event: event.step), statement, value)


def _collected(story: Story, call: ast.Call) -> Iterator[Finding]:
    """Yield a finding for the results of each line that stay alive in a list after the last backward that needed them.

    All results of the line, at least ``ROUNDS``, must stay alive until the last of them is computed.
    """
    program, value = story.program, call.args[0]
    labels: list[tuple[str, int]] = []
    for each, function in _origins(program, call, value):
        if isinstance(each, ast.Name | ast.Attribute):
            text = program.segment(each)
            born = [
                (label, record["born"]) for label, record in story.tensors.items() if _was_called(story, label, text)
            ]
            labels += [(label, at) for label, at in born if _in_function(story, at, function)]
        else:
            labels += [
                (event.results[0], event.step)
                for event in story.within(each)
                if event.span == program.place(each) and event.results
            ]
    places: dict[object, list[Event]] = defaultdict(list)
    for label, at in labels:
        if _node(story, label, at) is not None:
            places[story.span(at)].append(story.events[at])
    for events in places.values():
        events.sort(key=lambda event: event.step)
        if len(events) >= ROUNDS and all(_outlives(story, *pair, events[-1]) for pair in pairwise(events)):
            yield _finding(story, events, program.statement(call) or call, value)


def _origins(program: Program, call: ast.Call, value: ast.expr) -> list[tuple[ast.expr, ast.AST | None]]:
    """Return the expressions that compute the appended value, each with the function that contains it (None: the top
    level).

    These are the appended expression; if that is a parameter of a function, also the arguments of its calls; if a
    function of the program returned it, also the expressions that this function returns.
    """
    function = program.function(call)
    found: list[tuple[ast.expr, ast.AST | None]] = [(value, function)]
    names = [a.arg for a in [*function.args.posonlyargs, *function.args.args]] if function is not None else []
    if function is not None and (text := program.segment(value)) in names:
        for site in (n for n in program.nodes if isinstance(n, ast.Call) and called(n) == function.name):
            bound = isinstance(program.parents.get(function), ast.ClassDef) and isinstance(site.func, ast.Attribute)
            given = dict(zip(names[bound:], site.args, strict=False)) | {k.arg: k.value for k in site.keywords}
            if isinstance(given.get(text), ast.Name | ast.Attribute):
                found.append((given[text], program.function(site)))
    for each, where in found[:MOST]:
        found += _returned(program, each, where)
    return found


def _returned(program: Program, value: ast.expr, function: ast.AST | None) -> Iterator[tuple[ast.expr, ast.AST | None]]:
    """Yield the expressions that a function returns, each with the function, if ``value`` is the result of a function
    of the program: a call of it, or a variable assigned from such a call in ``function``.

    Nothing for any other value.
    """
    text = program.segment(value)
    same = (n for n in program.nodes if isinstance(n, ast.Assign) and [program.segment(t) for t in n.targets] == [text])
    calls = [value, *(n.value for n in same if program.function(n) is function)]
    names = {called(each) for each in calls if isinstance(each, ast.Call)}
    for node in program.nodes:
        inside = program.function(node) if isinstance(node, ast.Return) and node.value is not None else None
        if isinstance(node, ast.Return) and node.value is not None and inside is not None and inside.name in names:
            yield node.value, inside


def _was_called(story: Story, label: str, text: str) -> bool:
    return any(name == text for _, name in story.history("tensors", label, "name"))


def _in_function(story: Story, step: int, function: ast.AST | None) -> bool:
    statement = story.program.statement_at(story.span(step))
    return statement is not None and story.program.function(statement) is function


def _outlives(story: Story, event: Event, following: Event, last: Event) -> bool:
    """Whether the result of ``event`` is alive until the call ``last``, although no backward goes through it after its
    own iteration, which ends at the call ``following``.
    """
    label = event.results[0]
    died = [step for step, alive in story.history("tensors", label, "alive") if not alive]
    ran = [
        step
        for step, at in story.history("nodes", _node(story, label, event.step), "ran")
        if at is not None and step > following.step
    ]
    return not ran and (not died or died[0] > last.step)


def _node(story: Story, label: str, step: int) -> str | None:
    return (story.tensor(label, step) or {}).get("grad_fn")


def _is_number(story: Story, event: Event) -> bool:
    shape = story.shape(event.results[0], event.step)
    return shape is not None and all(length == 1 for length in shape)


def _backward_between(story: Story, one: Event, other: Event) -> bool:
    return any(one.step < backward.step < other.step for backward in story.backwards())


def _finding(story: Story, rounds: list[Event], statement: ast.AST, value: ast.expr) -> Finding:
    program, last = story.program, rounds[-1]
    rounds = [event for event in rounds if event.span == last.span]
    span = program.place(statement)
    text, here = " ".join(program.segment(value).split()), at_line(story, span)
    nodes = [story.record("nodes", node) or {} for node in story.behind(_node(story, last.results[0], last.step))]
    elsewhere = (
        at for node in nodes if (at := node.get("born")) is not None and (s := story.span(at)) and s.line != span.line
    )
    built = next(elsewhere, None)
    made = T(en="a step of the computation that stays with it", zh="与它一起留下的计算中的一步")
    related = [story.related("made", built, made)] if built is not None else []
    into = statement_text(story, span)
    return RULE.finding(
        span,
        last.step,
        T(
            en=f"{capital(here.en)} keeps `{text}` together with the whole computation behind it, and after "
            f"{len(rounds)} rounds all of them are still in memory.",
            zh=f"{here.zh}把 `{text}` 连同它背后的整个计算一起留下，{len(rounds)} 轮之后它们全都还在内存里。",
        ),
        T(
            en=f"A result remembers how it was computed as long as it lives. `{into}` makes something that lives on, "
            f"so round after round hangs on it ({len(nodes)} steps of computation behind the last one), and no later "
            "backward uses them. Memory grows until it runs out; the numbers are right.",
            zh=f"结果只要存在，就记得自己是怎样算出来的。`{into}` 产生的东西一直存在，所以每一轮都挂在上面（最后一个背"
            f"后有 {len(nodes)} 步计算），却没有任何后来的反向传播用到它们。内存不断增长，直到耗尽；数值本身是对的。",
        ),
        related=[
            *related,
            Related("kept", span, last.step, T(en="kept here, in every round", zh="在这里，每一轮都被留下")),
        ],
        fixes=_fixes(story, statement, value, last),
        facts=[Fact("rounds", len(rounds), story.by(last.step)), Fact("nodes", len(nodes), story.by(last.step))],
        severity="warning" if _trained_between(story, rounds) else "info",
    )


def _trained_between(story: Story, rounds: list[Event]) -> bool:
    """Whether an optimizer made a step between the iterations, so that the kept graphs belong to weights that have
    changed since.
    """
    return any(rounds[0].step < update.step < rounds[-1].step for update in story.trace.optimizer_steps)


def _fixes(story: Story, statement: ast.AST, value: ast.expr, last: Event) -> tuple[Fix, ...]:
    program = story.program
    text = operand(program, value)
    text = f"({program.segment(value)})" if isinstance(value, ast.BinOp) and not text.startswith("(") else text
    added = [Fix(T(en="Keep the value without its history: `.detach()`", zh="只保留数值，不带历史：`.detach()`"),
                 program.replace((value, f"{text}.detach()")))]  # fmt: skip
    if not isinstance(statement, ast.Assign) and _is_number(story, last):
        title = T(en="Keep a plain Python number: `.item()`", zh="只保留 Python 数值：`.item()`")
        added.append(Fix(title, program.replace((value, f"{text}.item()"))))
    return unique(program.text, added)


RULE = Rule(
    code="PL511",
    name="graph-kept-alive",
    severity="info",
    title=T(en="Results are kept with the whole computation behind them", zh="保留结果时，连同背后的整个计算一起留下"),
    what=T(
        en="A program adds up its losses, or collects them in a list, to print them later. Each of them still "
        "remembers how it was computed, so the memory of all rounds stays in use. Keep the plain value: `total += "
        "loss.item()` or `losses.append(loss.detach())`.",
        zh="程序把每一轮的损失加起来，或者收集到列表里，以便之后打印。每个损失都还记得自己是怎样算出来的，所以所有轮次"
        "的内存都一直被占用。只保留数值即可：`total += loss.item()` 或 `losses.append(loss.detach())`。",
    ),
    why=T(
        en="Every result of a computation with parameters holds a *graph*: the steps that led to it, and the tensors "
        "that those steps need for going back. It is freed when nothing holds the result any more, which in a "
        "training loop is the next round, when `loss` gets its next value. A sum over rounds holds the graphs of all "
        "rounds. `backward()` frees the tensors inside a graph but not its steps; where no backward runs, in an "
        "evaluation without `torch.no_grad()`, everything stays. `item()` gives a Python number, `detach()` the same "
        "value without a graph.",
        zh="凡是用参数算出来的结果都带着一个*计算图*：得到它的各个步骤，以及往回走时这些步骤需要的张量。没有人再持有这"
        "个结果时，图才被释放；在训练循环里就是下一轮 `loss` 得到新值的时候。跨轮次的总和则持有所有轮次的图。"
        "`backward()` 会释放图中的张量，但不释放步骤本身；没有反向传播的地方（没有 `torch.no_grad()` 的评估）一切都会"
        "留下。`item()` 给出 Python 数值，`detach()` 给出没有图的同一个值。",
    ),
    advice=T(
        en="keep the plain number on {kept}, with `.item()`, or `.detach()`.",
        zh="在{kept}只留下数值：用 `.item()` 或 `.detach()`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
total = 0.0
for step in range(5):
    opt.zero_grad()
    loss = ((w * x - 2 * x) ** 2).mean()  # made
    loss.backward()
    opt.step()
    total += loss  # PL511 kept
print(f"{total / 5:.4f}")
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.01)
total = 0.0
for step in range(5):
    opt.zero_grad()
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward()
    opt.step()
    total += loss.item()
print(f"{total / 5:.4f}")
""",
    find=find,
    traps=(
        Trap(
            "    total += loss\n",
            "    total += loss\n    del loss\n",
            T(
                en="`del` takes away a name. The sum still holds everything that its rounds were computed from.",
                zh="`del` 只是去掉一个名字。总和仍然持有各轮计算的一切。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/faq.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
    ),
)
