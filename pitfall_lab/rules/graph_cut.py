"""PL504: a loss has no path back to a parameter, because a value on the way left the graph."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.flow import FACTORIES, Cut, Flow, LostTerm, Unreached
from pitfall_lab.rules.kit.rebinding import rebindings
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_true, operand, torch_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, origin, whole
from pitfall_lab.trace import Event, Failure, T

LEAVES = {"item", "tolist", "numpy", "cpu", "detach", "float", "data"}
"""Methods and attributes by which the program takes numbers out of the graph."""
OFF = ("no_grad", "inference_mode", "set_grad_enabled")


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line at which the graph ended by mistake.

    That is: a backward that raised an error because its root had no graph, a term of a loss that silently lost its
    graph, a parameter that an optimizer skips because of that, and a ``torch.tensor(result, requires_grad=True)`` at
    which backward ends.
    """
    flow = Flow(story)
    rebound = {found.trouble for found in rebindings(story)}
    for step, failure in story.failures("no-gradient"):
        start = story.tensor(failure.tensor, step)
        if start is None or start.get("requires_grad") or step in rebound:
            continue  # an input that was not used, or a parameter that lost its name: other rules
        cuts = flow.cuts(failure.tensor, step)
        if cuts and cuts[0].kind != "gradient":
            yield _finding(story, step, failure, cuts)
    for lost in flow.lost_terms():
        if lost.cuts[0].kind != "gradient":
            yield _silent(story, lost)
    yield from _ended(story)
    reported = {lost.cuts[0].event.step for lost in flow.lost_terms()}
    yield from (_unreached(story, found) for found in flow.unreached() if found.cut.event.step not in reported)


def copies(story: Story) -> Iterator[tuple[Event, list[Cut]]]:
    """Yield the calls that created a new leaf from the values of a tensor with a graph, ``torch.tensor(result,
    requires_grad=True)``, to which a backward gave a gradient; each in a pair with the places where the graph ended (a
    list of :class:`Cut`).
    """
    flow, filled = Flow(story), lives(story)
    for event in story.calls(*FACTORIES):
        if event.error is None and event.results and event.results[0] in filled:
            cuts = flow.cuts(event.results[0], event.step)
            if cuts and cuts[0].kind != "gradient":
                yield event, cuts


def _ended(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``torch.tensor(result, requires_grad=True)`` whose own gradient is filled by backward
    and never read.
    """
    reported = set()
    for event, cuts in copies(story):
        label = event.results[0]
        moments = lives(story)[label]
        read = any(use.op in ("torch.Tensor.grad.__get__", "torch.autograd.grad") for use in story.uses(label))
        root = any(label in (operand.label for operand in m.event.operands) for m in moments)  # a rule of its own
        if not read and not root and event.span not in reported and all(m.kind == "added" for m in moments):
            reported.add(event.span)
            yield _copied(story, event, cuts, moments[0].step)


def _copied(story: Story, event: Event, cuts: list[Cut], step: int) -> Finding:
    """Return the finding for a backward, at the step ``step``, that ends at the copy ``event`` of values whose graph
    ended at ``cuts``.
    """
    cut = cuts[0]
    here, back = at_line(story, story.span(event.step)), at_line(story, story.span(step))
    value = called(story, cut.tensor, None, cut.event.step, (story.tensor(cut.tensor) or {}).get("born"))
    does, related = manner(story, cut), []
    if cut.event.step != event.step:
        where, code = at_line(story, story.span(cut.event.step)), snippet(story, story.span(event.step))
        does = T(en=f"makes a tensor without `grad_fn` (`{code}`) of numbers that {where.en} took out of tensors",
                 zh=f"用{where.zh}从张量里取出的数创建了没有 `grad_fn` 的张量（`{code}`）")  # fmt: skip
        related = [
            story.related(
                "leaf",
                event.step,
                T(en="a tensor without `grad_fn` is made here", zh="这里创建了没有 `grad_fn` 的张量"),
            )
        ]
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} {does.en}, so the gradients of {back.en} end there: nothing that {value.en} was "
            "computed from gets one.",
            zh=f"{here.zh}{does.zh}，{back.zh}的梯度因此到此为止：算出 {value.zh} 的那些参数什么也得不到。",
        ),
        _explanation(story, cut, value),
        related=[
            *[
                story.related("cut", at, T(en="the record of the computation ends here", zh="计算的记录在这里中断"))
                for at in _same_kind(story, cuts)
            ],
            *related,
            story.related(
                "backward",
                step,
                T(en="the gradient reaches the copy, and is never read", zh="梯度只到达副本，没有人读取它"),
            ),
        ],
        fixes=[replace(fix, meaning="term") for fix in reconnections(story, cuts)],
        facts=[Fact("cut", cut.kind, story.by(cut.event.step)), Fact("tensor", cut.tensor, story.by(cut.event.step))],
        severity="warning",
    )


def _silent(story: Story, lost: LostTerm) -> Finding:
    """Return the finding for a loss that still reaches parameters, although one of its terms has no graph."""
    cut, step = lost.cuts[0], lost.backward.step
    here, back = at_line(story, story.span(cut.event.step)), at_line(story, story.span(step))
    term, how = expression(story, lost.term, lost.at), manner(story, cut)
    value = called(story, cut.tensor, None, cut.event.step, (story.tensor(cut.tensor) or {}).get("born"))
    return RULE.finding(
        story.span(cut.event.step),
        cut.event.step,
        T(
            en=f"{capital(here.en)} {how.en}, so {term.en} only shifts the loss on {back.en}: no "
            "parameter learns from it.",
            zh=f"{here.zh}{how.zh}，于是 {term.zh} 只是让{back.zh}的损失平移：没有任何参数会从中学到东西。",
        ),
        _explanation(story, cut, value),
        related=[
            *[
                story.related("cut", at, T(en="the record of the computation ends here", zh="计算的记录在这里中断"))
                for at in _same_kind(story, lost.cuts)
            ],
            story.related(
                "used",
                lost.at,
                T(en=f"{term.en} is added here as a plain number", zh=f"{term.zh} 在这里作为普通的数被加上"),
            ),
            story.related(
                "backward", step, T(en="backward starts here and does not reach it", zh="从这里往回走，却绕过了它")
            ),
        ],
        fixes=[replace(fix, meaning="term") for fix in reconnections(story, lost.cuts)],
        facts=[Fact("cut", cut.kind, story.by(cut.event.step)), Fact("tensor", cut.tensor, story.by(cut.event.step))],
        severity="warning",
    )


def _unreached(story: Story, found: Unreached) -> Finding:
    """Return the finding for parameters that an optimizer holds and the loss does not reach, because a value in between
    has no graph.
    """
    cut, step, update = found.cut, found.backward.step, found.update
    here, back, there = (at_line(story, span) for span in (story.span(cut.event.step), story.span(step), update.span))
    how, value = (
        manner(story, cut),
        called(story, cut.tensor, None, cut.event.step, (story.tensor(cut.tensor) or {}).get("born")),
    )
    story_of_the_cut = _explanation(story, cut, value)
    first, others = called(story, found.parameters[0], None, step), len(found.parameters) - 1
    more = T(en=f" and {others} more", zh=f" 等 {others + 1} 个参数") if others else T(en="", zh="")
    flow, start = Flow(story), found.backward.operands[0].label
    shares = bool(flow.leaves(cut.tensor, cut.event.step) & flow.leaves(start, step))  # other gradients change as well
    return RULE.finding(
        story.span(cut.event.step),
        cut.event.step,
        T(
            en=(
                f"{capital(here.en)} {how.en}, so the loss on {back.en} cannot reach {first.en}{more.en}: the "
                f"optimizer's step on {there.en} never changes them."
            )
            if others
            else f"{capital(here.en)} {how.en}, so the loss on {back.en} cannot reach "
            f"{first.en}: the optimizer's step on {there.en} never changes it.",
            zh=f"{here.zh}{how.zh}，{back.zh}的损失因此到不了 {first.zh}{more.zh}：{there.zh}的优化器从未更新它。",
        ),
        T(
            en=f"{story_of_the_cut.en} An optimizer passes over parameters that have no gradient, without a word. "
            "To keep parameters fixed on purpose, leave them out of the optimizer.",
            zh=f"{story_of_the_cut.zh}对没有梯度的参数，优化器会一声不响地跳过。如果有意固定某些参数，请不要把它们交给优化器。",
        ),
        related=[
            *_off(story, cut),
            story.related(
                "cut", cut.event.step, T(en="the record of the computation ends here", zh="计算的记录在这里中断")
            ),
            story.related(
                "backward",
                step,
                T(
                    en="backward starts here, and stops where the graph ends",
                    zh="反向传播从这里开始，到计算图断开处为止",
                ),
            ),
            Related(
                "step",
                update.span,
                None,
                T(
                    en=f"for {first.en}{more.en} the optimizer finds no gradient and changes nothing",
                    zh=f"对 {first.zh}{more.zh}，优化器找不到梯度，什么也不改",
                ),
            ),
        ],
        fixes=(
            *(replace(fix, meaning="term") if shares else fix for fix in reconnections(story, [cut])),
            *_before_the_estimate(story, found),
            *_cut_elsewhere(story, found),
        ),
        facts=[
            Fact("cut", cut.kind, story.by(cut.event.step)),
            Fact("tensor", cut.tensor, story.by(cut.event.step)),
            Fact("unreached", tuple(found.parameters), story.by(cut.event.step)),
        ],
        severity="warning",
    )


def _off(story: Story, cut: Cut) -> list[Related]:
    """Return the related line that switches recording off, if that is not the line of the computation; else an empty
    list.
    """
    switch = _switched_off(story, cut) if cut.kind == "no_grad" else None
    span, here = story.program.place(switch) if switch is not None else None, story.span(cut.event.step)
    if span is None or (here is not None and span.line == here.line):
        return []
    return [Related("off", span, None, T(en="no graph is recorded under this", zh="在它之下不记录计算图"))]


def _cut_elsewhere(story: Story, found: Unreached) -> tuple[Fix, ...]:
    """At most one fix: it leaves the value in the graph and detaches it where another loss uses it, ``fake = G(z)``,
    ``D(fake.detach())``.

    Empty if the value is not detached in an assignment, or if no other loss uses the variable.
    """
    program, cut = story.program, found.cut
    node = program.at(story.span(cut.event.step))
    statement = program.statement(node) if node is not None else None
    if (
        not isinstance(node, ast.expr)
        or not isinstance(statement, ast.Assign)
        or cut.kind != "detach"
        or _bare(node) is node
    ):
        return ()
    names = {program.segment(target) for target in statement.targets if isinstance(target, ast.Name)}
    wanted = set(
        story.behind((story.tensor(found.backward.operands[0].label, found.backward.step) or {}).get("grad_fn"))
    )
    elsewhere: set[ast.stmt] = set()
    function = program.function(statement)
    for use in story.uses(cut.event.results[0] if cut.event.results else None):
        nodes = {(story.tensor(result, use.step) or {}).get("grad_fn") for result in use.results} - {None}
        if nodes and not nodes & wanted:
            elsewhere |= {*call_chain(story, use), *_going_on(story, use, function)}
    reads = [
        n for n in program.nodes
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id in names and program.function(n) is function
        and program.statement(n) in elsewhere
    ]  # fmt: skip
    if not reads:
        return ()
    shown = reads[0].id
    title = T(
        en=f"Keep the history and detach `{shown}` for the other loss only",
        zh=f"保留历史，只在另一个损失里 detach `{shown}`",
    )
    kept = program.segment(_bare(node))
    edits = program.replace((node, kept), *[(n, f"{n.id}.detach()") for n in reads])
    return unique(program.text, [Fix(title, edits, meaning="connect")])


def _before_the_estimate(story: Story, found: Unreached) -> tuple[Fix, ...]:
    """Fixes for ``q = z + (q - z).detach()``, after which a loss is to train the old ``q``: the old ``q`` is assigned
    to a new variable, which is given to the loss.

    Empty if the line does not assign a new value to a variable that it reads, or if no later call combines the value
    with tensors that require no grad.
    """
    program, cut = story.program, found.cut
    statement = program.statement_at(story.span(cut.event.step))
    result = cut.event.results[0] if cut.event.results else None
    joined = next((use for use in story.uses(result) if use.name in ("add", "__add__", "__radd__")), None)
    if cut.kind != "detach" or joined is None or not joined.results or not isinstance(statement, ast.Assign):
        return ()
    target = statement.targets[0]
    name = target.id if isinstance(target, ast.Name) else ""
    if name not in {n.id for n in ast.walk(statement.value) if isinstance(n, ast.Name)}:
        return ()
    fixes = []
    for use in story.uses(joined.results[0]):
        others = [o.label for o in use.operands if o.label not in (None, joined.results[0])]
        place = written_as(story, use, joined.results[0])
        plain = others and not any((story.tensor(each, use.step) or {}).get("requires_grad") for each in others)
        if not plain or not isinstance(place, ast.Name) or place.id != name:
            continue
        title = T(en=f"Give the loss what `{name}` was before", zh=f"把 `{name}` 原来的值交给损失")
        edits = (
            *program.replace((place, f"{name}_before")),
            *program.insert_before(statement, f"{name}_before = {name}"),
        )
        fixes.append(Fix(title, edits, meaning="later"))
    return unique(program.text, fixes)


def _going_on(story: Story, use: Event, function: ast.AST | None) -> Iterator[ast.stmt]:
    """Yield, at most once, the statement of ``function`` that was being executed when the call ``use`` ran, perhaps
    inside another function.

    It is that of the next call made directly in ``function``.
    """
    for event in story.events[use.step :]:
        statement = (
            story.program.statement_at(event.span)
            if event.kind == "call" and event.span and not event.span.source
            else None
        )
        if statement is not None and story.program.function(statement) is function:
            yield statement
            return


def _finding(story: Story, step: int, failure: Failure, cuts: list[Cut]) -> Finding:
    cut = cuts[0]
    span = story.span(cut.event.step)
    here, back = at_line(story, span), at_line(story, story.span(step))
    lost = called(story, cut.tensor, None, cut.event.step, (story.tensor(cut.tensor) or {}).get("born"))
    loss = called(story, failure.tensor, None, step, (story.tensor(failure.tensor) or {}).get("born"))
    how = manner(story, cut)
    same = _same_kind(story, cuts)
    return RULE.finding(
        span,
        cut.event.step,
        T(
            en=f"{capital(here.en)} {how.en}, and with that the record of how {lost.en} was computed ends: from "
            f"{loss.en} the backward on {back.en} reaches no parameter.",
            zh=f"{here.zh}{how.zh}，{lost.zh} 的计算记录就到此为止：在{back.zh}，从 {loss.zh} 再也回不到任何参数。",
        ),
        _explanation(story, cut, lost),
        related=[
            *[
                story.related("cut", at, T(en="the record of the computation ends here", zh="计算的记录在这里中断"))
                for at in same
            ],
            story.related(
                "backward",
                step,
                T(
                    en="backward starts here, finds no graph, and torch raises",
                    zh="从这里往回走，却无路可走，torch 报错",
                ),
            ),
        ],
        fixes=reconnections(story, cuts),
        facts=[Fact("cut", cut.kind, story.by(cut.event.step)), Fact("tensor", cut.tensor, story.by(cut.event.step))],
        predicted=story.predicted(failure, step),
    )


def _same_kind(story: Story, cuts: list[Cut]) -> list[int]:
    """Return the steps of the cuts that have the kind of the first one, one step for each source position, in order."""
    places = {story.span(cut.event.step): cut.event.step for cut in reversed(cuts) if cut.kind == cuts[0].kind}
    return sorted(places.values())


def manner(story: Story, cut: Cut) -> T:
    """Return, as the rest of a sentence that begins with the line of ``cut``, how it ends the graph; for any kind of
    cut but ``"gradient"``.
    """
    code = snippet(story, story.span(cut.event.step))
    shown = T(en=f" (`{code}`)", zh=f"（`{code}`）") if code else T(en="", zh="")
    texts = {
        "number": T(en="turns a tensor into plain Python numbers", zh="把张量变成了普通的 Python 数"),
        "copy": T(en="copies only the numbers of a tensor into a new one", zh="只把一个张量的数值复制到新的张量里"),
        "integer": T(en="turns a result into integers or booleans", zh="把结果变成了整数或真假值"),
        "no_grad": T(en="computes while torch records no graph", zh="在 torch 不记录计算图的情况下进行计算"),
        "detach": T(en="takes a tensor without its history", zh="取了一个不带历史的张量"),
    }
    if _draw(story, cut) is not None:
        text = T(en="draws a sample, which has no graph", zh="抽取了一个样本，而样本没有计算图")
    elif cut.kind == "no_grad" and (under := _under(story, cut, code)) is not None:
        return under
    else:
        text = texts[cut.kind]
    return T(en=text.en + shown.en, zh=text.zh + shown.zh)


def _under(story: Story, cut: Cut, code: str) -> T | None:
    """Return, as the rest of a sentence, what a computation without a graph does, and what switched recording off; None
    if the program does not show the latter.
    """
    switch = _switched_off(story, cut)
    if switch is None:
        return None
    text, there = story.program.segment(switch), at_line(story, story.program.place(switch))
    what = T(en=f" `{code}`", zh=f" `{code}`") if code else T(en="", zh="")
    return T(
        en=f"computes{what.en} under `{text}` of {there.en}, where torch records no graph",
        zh=f"在{there.zh}的 `{text}` 之下计算{what.zh}，那里 torch 不记录计算图",
    )


def _switched_off(story: Story, cut: Cut) -> ast.expr | None:
    """Return the ``no_grad()`` of a ``with`` statement or decorator that was in effect when the computation ran; None
    if the program shows none.
    """
    for statement in call_chain(story, cut.event):
        for around in story.program.ancestors(statement):
            given = (
                [item.context_expr for item in around.items]
                if isinstance(around, ast.With)
                else around.decorator_list
                if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef)
                else []
            )
            if switch := next(filter(_switch, given), None):
                return switch
    return None


def _draw(story: Story, cut: Cut) -> ast.Call | None:
    """Return the call of a distribution's ``sample``, which draws under ``no_grad`` itself, if this is where the graph
    ended; else None.
    """
    node = story.program.at(story.span(cut.event.step)) if cut.kind == "no_grad" else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sample":
        return node
    return None


def _explanation(story: Story, cut: Cut, lost: T) -> T:
    """Return a text that says why this kind of cut ends the graph, and what that means for its tensor, called
    ``lost``.
    """
    texts = {
        "number": T(
            en="A Python number does not store how it was computed. What is computed from it starts anew, as if "
            "it had been typed in.",
            zh="Python 的数不知道自己从哪里来。由它算出的一切都重新开始，就像是手工输入的一样。",
        ),
        "copy": T(
            en="`torch.tensor(...)` copies the values only: its result has no `grad_fn`.",
            zh="`torch.tensor(...)` 只复制数值：它的结果没有 `grad_fn`。",
        ),
        "integer": T(
            en="Positions (`argmax`), comparisons and casts to whole numbers jump where they change at all: there is "
            "no small change to follow back, so torch records nothing.",
            zh="位置（`argmax`）、比较和转换成整数的结果要么不变，要么跳变：没有可以追溯的微小变化，所以 "
            "torch 什么也不记录。",
        ),
        "no_grad": T(
            en="Inside `torch.no_grad()` (or `inference_mode()`) nothing is recorded. That is right for measuring, "
            "and not for what a loss is computed from.",
            zh="在 `torch.no_grad()`（或 `inference_mode()`）里什么也不记录。用来测量时这是对的，但不能用来计算损失。",
        ),
        "detach": T(
            en="`detach()` and `.data` give the same numbers without their history. That is right for a target or a "
            "log, and not for what is to be trained.",
            zh="`detach()` 和 `.data` 给出同样的数值，但不带历史。用于目标值或日志时是对的，但不能用在要训练的部分。",
        ),
    }
    drawn = T(
        en="`sample()` of a distribution draws under `no_grad`. `rsample()` computes the same numbers from the "
        "parameters, with a graph, where the distribution has it (normal, uniform, gamma and others that are "
        "continuous); of another one, weigh the log-probability of the sample (`log_prob`).",
        zh="分布的 `sample()` 在 `no_grad` 下抽取。`rsample()` 由参数算出同样的数，并带有计算图；正态、均匀、伽马等连续"
        "分布有这个方法。其他分布请给样本的对数概率（`log_prob`）加权。",
    )
    text = drawn if _draw(story, cut) is not None else texts[cut.kind]
    if cut.tensor in story.leaves:
        return T(
            en=f"{text.en} {capital(lost.en)} is to be trained; what is computed from it here does not know that, nor "
            "does anything after it.",
            zh=f"{text.zh}{lost.zh} 是要训练的，但在这里由它算出的结果并不知道这一点，之后的一切也都如此。",
        )
    return T(
        en=f"{text.en} {capital(lost.en)} still had a graph that leads to what is trained; its result does not, and "
        "neither has anything after it.",
        zh=f"{text.zh}{lost.zh} 本来还能回到要训练的参数，而它的结果不能，之后的一切也都如此。",
    )


def reconnections(story: Story, cuts: list[Cut]) -> tuple[Fix, ...]:
    """Return candidate fixes that keep the graph at one of the first three of ``cuts``; empty if there are none, or the
    program does not parse.
    """
    program = story.program
    if program.tree is None:
        return ()
    candidates: list[Fix | None] = []
    for cut in cuts[:3]:
        if cut.kind == "no_grad":
            candidates += _recorded(story, cut)
        else:
            candidates += [*_with_slope(story, cut), *_kept_as_tensor(story, cut)]
    return unique(program.text, candidates)


def _with_slope(story: Story, cut: Cut) -> Iterator[Fix]:
    """Yield at most one fix that uses a number with a gradient instead of an index or a comparison: the expected class
    for ``argmax``, the probability for ``probability > 0.5``.
    """
    program, event = story.program, cut.event
    node, torch = program.at(story.span(event.step)), torch_name(program)
    source = written_as(story, event, cut.tensor)
    if not isinstance(node, ast.expr) or source is None or torch is None:
        return
    outer, text = _outermost(program, node), operand(program, source)
    record = story.tensor(cut.tensor, event.step) or {}
    if event.name == "argmax":
        dim = whole(argument(event, "dim", 1))
        if dim is None:
            return
        shares = text if _is_share(story, cut.tensor, event.step) else f"{text}.softmax(dim={dim})"
        new = f"({shares} * {torch}.arange({text}.size({dim}))).sum(dim={dim})"
        title = T(en=f"Use the expected class, which has a gradient: `{new}`", zh=f"使用有梯度的期望类别：`{new}`")
    elif event.name.strip("_") in ("gt", "ge") and "float" in str(record.get("dtype")):
        new = text if _is_share(story, cut.tensor, event.step) else f"{torch}.sigmoid({program.segment(source)})"
        title = T(en=f"Use the probability, which has a gradient: `{new}`", zh=f"使用有梯度的概率：`{new}`")
    else:
        return
    yield Fix(title, program.replace((outer, new)), meaning="later")


def _is_share(story: Story, label: str, step: int) -> bool:
    """Whether softmax or sigmoid computed the values of a tensor, so that they are between 0 and 1."""
    made = origin(story, label, step)
    return made is not None and made.name in ("softmax", "sigmoid")


def _recorded(story: Story, cut: Cut) -> Iterator[Fix]:
    """Yield fixes that remove what switched grad mode off (the ``with`` around the call, or the decorator of its
    function), that write ``rsample`` for ``sample``, or that let a checkpoint record its function.

    Nothing if the program shows none of these.
    """
    program = story.program
    draw = _draw(story, cut)
    if draw is not None and isinstance(draw.func, ast.Attribute):
        text = program.segment(draw)[len(program.segment(draw.func)) :]
        new = f"{program.segment(draw.func.value)}.rsample{text}"
        title = T(en="Draw with a gradient: `rsample()`", zh="用带梯度的抽取：`rsample()`")
        yield Fix(title, program.replace((draw, new)), meaning="connect")
    title = T(en="Let torch record this computation", zh="让 torch 记录这段计算")
    for statement in call_chain(story, cut.event):
        for around in program.ancestors(statement):
            if isinstance(around, ast.With) and len(around.items) == 1 and _switch(around.items[0].context_expr):
                text = "".join(indented(program, inner, program.indent(around)) for inner in around.body)
                yield Fix(title, (Edit(around.lineno, around.end_lineno or around.lineno, text),), meaning="connect")
            elif isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef):
                for decorator in filter(_switch, around.decorator_list):
                    yield Fix(
                        title,
                        (Edit(decorator.lineno, decorator.end_lineno or decorator.lineno, ""),),
                        meaning="connect",
                    )
        yield from _not_reentrant(program, statement)
    yield from _switched_back(program)


def _switched_back(program: Program) -> Iterator[Fix]:
    """Yield a fix for each function that calls ``set_grad_enabled(False)``: the function gets the decorator ``no_grad``
    instead.

    Nothing if the program has another call of ``set_grad_enabled``.
    """
    switches = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "set_grad_enabled" and n.args]
    off = [call for call in switches if isinstance(call.args[0], ast.Constant) and call.args[0].value is False]
    torch = torch_name(program)
    for call in off if len(off) == len(switches) and torch is not None else ():
        statement, function = program.parents.get(call), program.function(call)
        if function is None or not isinstance(statement, ast.Expr):
            continue
        edits = merge(program.delete(statement), program.insert_before(function, f"@{torch}.no_grad()"))
        title = T(en=f"Record no graph in `{function.name}` alone: `@{torch}.no_grad()`",
                  zh=f"只在 `{function.name}` 中不记录计算图：`@{torch}.no_grad()`")  # fmt: skip
        if edits is not None:
            yield Fix(title, edits, meaning="connect")


def _not_reentrant(program: Program, statement: ast.stmt) -> Iterator[Fix]:
    """Yield a fix for each checkpoint of the statement that is written with ``use_reentrant=True``:
    ``use_reentrant=False``.

    Only then does the checkpoint record its calls for inputs that require no grad.
    """
    for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call) and call_name(n).startswith("checkpoint")):
        argument = next((k for k in call.keywords if k.arg == "use_reentrant"), None)
        if argument is not None and is_true(argument.value):
            title = T(en="Record the layers too: `use_reentrant=False`", zh="也记录这些层：`use_reentrant=False`")
            yield Fix(title, program.replace((argument.value, "False")), meaning="connect")


def _switch(node: ast.expr) -> bool:
    function = node.func if isinstance(node, ast.Call) else node
    name = (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )
    return name in OFF


def _kept_as_tensor(story: Story, cut: Cut) -> Iterator[Fix]:
    """Yield fixes that use the tensor itself, without ``.item()``, ``.detach()`` or ``torch.tensor(…)`` around it;
    nothing if the program shows none of these.
    """
    program = story.program
    node = program.at(story.span(cut.event.step))
    torch = torch_name(program)
    if not isinstance(node, ast.expr):
        return
    inner = _bare(node)
    maker = program.at(story.span(cut.user.step)) if cut.user is not None else node
    if isinstance(maker, ast.Call) and maker.args and call_name(maker) in FACTORIES and torch:
        argument = maker.args[0]
        within = argument is node or node in ast.walk(argument) or maker is node
        if isinstance(argument, ast.List | ast.ListComp):
            edits = program.replace(
                (maker.func, f"{torch}.stack"), *[(n, operand(program, _bare(n))) for n in _wrapped(argument)]
            )
            yield _fix(f"{torch}.stack", edits)
        elif maker is node or (within and _bare(argument) is not argument):
            yield _fix(program.segment(_bare(argument)), program.replace((maker, operand(program, _bare(argument)))))
        elif inner is not node:
            rest = program.segment(inner)
            yield _fix(rest, program.replace((node, rest), (maker, program.segment(argument))))
            yield _fix(
                f"{torch}.stack", program.replace((node, rest), (maker, f"{torch}.stack({program.segment(argument)})"))
            )
    if inner is not node:
        outer = _outermost(program, node)
        if outer is not node:
            yield _fix(program.segment(inner), program.replace((outer, operand(program, inner))))
        yield _fix(program.segment(inner), program.replace((node, operand(program, inner))))


def _fix(shown: str, edits: tuple[Edit, ...]) -> Fix:
    shown = " ".join(shown.split())
    if shown.endswith(".stack"):
        return Fix(
            T(en=f"Keep the tensors and join them with `{shown}`", zh=f"保留张量，用 `{shown}` 合并"),
            edits,
            meaning="connect",
        )
    return Fix(T(en=f"Use the tensor itself: `{shown}`", zh=f"继续使用张量本身：`{shown}`"), edits, meaning="connect")


def _bare(node: ast.expr) -> ast.expr:
    """Return ``x`` for ``x.detach().numpy()``, ``x.item()``, ``x.data``, ``float(x)``, ``x.long()``;
    any other expression unchanged.
    """
    while True:
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in LEAVES | {"long", "int"}
        ):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr == "data":
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "float"
            and len(node.args) == 1
        ):
            node = node.args[0]
        else:
            return node


def _wrapped(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the outermost expressions inside ``node`` that take a tensor out of the graph."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr) and _bare(child) is not child:
            yield child
        else:
            yield from _wrapped(child)


def _outermost(program: Program, node: ast.expr) -> ast.expr:
    """Return the longest chain of calls around ``node`` that take it out of the graph, with the call that makes a
    tensor of it again; ``node`` itself if there is none.
    """
    while True:
        parent = program.parents.get(node)
        above = program.parents.get(parent) if parent is not None else None
        if (
            isinstance(parent, ast.Attribute)
            and isinstance(above, ast.Call)
            and above.func is parent
            and parent.attr in LEAVES
        ):
            node = above
        elif isinstance(parent, ast.Call) and node in parent.args[:1] and call_name(parent) in FACTORIES | {"float"}:
            node = parent
        else:
            return node


RULE = Rule(
    code="PL504",
    name="graph-cut",
    severity="error",
    title=T(en="The graph from the loss to the parameters is cut", zh="从损失回到参数的路被切断"),
    what=T(
        en="A value on the way to the loss was turned into plain numbers, so torch no longer knows which parameters "
        "it came from. Stay with tensors from the parameters to the loss, and take numbers out only for printing.",
        zh="通往损失的某个值变成了普通的数，torch 因此再也不知道它来自哪些参数。从参数到损失之间请一直使用张量，只"
        "在打印时才取出数值。",
    ),
    why=T(
        en="While your program computes, every result remembers the operation and the inputs it came from: this is "
        "the *graph*, and `backward()` walks it from the loss to the parameters. Some calls return numbers only. "
        "`item()`, `tolist()`, `float()` and `numpy()` leave torch; `torch.tensor(x)` has no `grad_fn`; "
        "`detach()` and `.data` drop the history on purpose; `argmax`, comparisons and integer casts have no "
        "derivative; and inside `torch.no_grad()` nothing is recorded. If such a call comes between all parameters "
        "and the loss, torch raises: the loss *does not require grad*. If it comes after some of them only, torch "
        "raises no error, and the optimizer skips them without a warning.",
        zh="程序计算时，每个结果都记得自己来自什么运算和哪些输入：这就是*计算图*，`backward()` 沿着它从损失走回参数。"
        "有些调用只给出数值：`item()`、`tolist()`、`float()` 和 `numpy()` 离开了 torch；`torch.tensor(x)` 创建新的起"
        "点；`detach()` 和 `.data` 有意丢掉历史；`argmax`、比较和转换成整数没有导数；在 `torch.no_grad()` 里什么也不记"
        "录。如果这样的调用挡在所有参数与损失之间，torch 就会说损失 *does not require grad*（不需要梯度）。如果它只挡"
        "住了其中一部分参数，torch 什么也不说，优化器则一声不响地跳过它们。",
    ),
    advice=T(
        en="stay with tensors from the parameters to the loss: {cut} leaves the graph, so take numbers "
        "out only for printing.",
        zh="从参数到损失都使用张量：{cut}离开了计算图，只在打印时才取出数值。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
y = torch.tensor([2.0, 4.0, 6.0])
w = torch.tensor(0.5, requires_grad=True)
for step in range(2):
    errors = []
    for i in range(3):
        error = (w * x[i] - y[i]) ** 2
        errors.append(error.item())  # PL504 cut
    loss = torch.tensor(errors).mean()
    loss.backward()  # backward
    print(w.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
y = torch.tensor([2.0, 4.0, 6.0])
w = torch.tensor(0.5, requires_grad=True)
for step in range(2):
    errors = []
    for i in range(3):
        error = (w * x[i] - y[i]) ** 2
        errors.append(error)
    loss = torch.stack(errors).mean()
    loss.backward()
    print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss = torch.tensor(errors).mean()",
            "loss = torch.tensor(errors, requires_grad=True).mean()",
            T(
                en="The error is gone, because backward now ends at a new leaf, `torch.tensor(...)`. `w.grad` stays "
                "`None`: nothing is trained.",
                zh="不再报错，因为反向传播现在止于一个新的叶子 `torch.tensor(...)`。"
                "`w.grad` 一直是 `None`：什么也没有训练。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
    ),
)
