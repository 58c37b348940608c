"""Errors of an optimizer or a scheduler: sparse gradients, a schedule that has ended, a state of other parameters."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Edit, Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import indented
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.syntax import called, is_true
from pitfall_lab.rules.kit.text_origins import origins
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.remedies.edits import imported, keyword_set, renamed
from pitfall_lab.rules.refusals.remedies.loaded_batches import PASSING
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.signals.schedules import Loop, call_of, loops_around
from pitfall_lab.trace import OptimizerMade, Span, T


def made(refused: Refused) -> OptimizerMade | None:
    """Return the optimizer whose method raised the error: the last one created of its class; None if none was
    recorded.
    """
    kind = next((g.kind for g in refused.given if g.name in ("self", "optimizer")), None) or next(
        (g.kind for g in refused.failure.given if g.name == "self"), ""
    )
    same = [each for each in refused.story.trace.optimizers if each.optimizer == kind]
    return same[-1] if same else None


def of_dense_gradients(error: Error) -> Remedy | None:
    """Return the remedy for an optimizer that refuses sparse gradients, with fixes that use ``SparseAdam`` (for Adam
    and AdamW), or embeddings with ``sparse=False``.

    None if the program has no ``sparse=True``, or if it is unknown where the optimizer is created.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizer = made(refused)
    tables = [
        n
        for n in program.nodes
        if isinstance(n, ast.Call) and any(k.arg == "sparse" and is_true(k.value) for k in n.keywords)
    ]
    if optimizer is None or optimizer.span is None or not tables:
        return None
    place = optimizer.span
    where, there, here = (at_line(story, span) for span in (place, program.place(tables[0]), refused.span))
    fixes: list[Fix | None] = []
    call = call_of(story, place)
    if optimizer.optimizer in ("Adam", "AdamW") and call is not None:
        title = T(
            en="Take the optimizer for sparse gradients: `SparseAdam`", zh="改用针对稀疏梯度的优化器：`SparseAdam`"
        )
        fixes.append(Fix(title, imported(program, renamed(program, call, "SparseAdam"), call, "SparseAdam")))
    changes = [change for table in tables if (change := keyword_set(program, table, "sparse=False")) is not None]
    dense = T(
        en="Let the embeddings make ordinary gradients: `sparse=False`", zh="让嵌入层产生普通的梯度：`sparse=False`"
    )
    fixes.append(Fix(dense, program.splice(*changes)))
    said = T(
        en=f"{capital(where.en)} makes an `{optimizer.optimizer}`, which takes no sparse gradients, and the "
        f"`sparse=True` of {there.en} makes such: {here.en} can do no step.",
        zh=f"{where.zh}建立的 `{optimizer.optimizer}` 不接受稀疏梯度，而{there.zh}的 `sparse=True` 会产生稀疏梯"
        f"度：{here.zh}无法更新。",
    )
    sparse = T(en="its gradients are sparse: `sparse=True`", zh="它的梯度是稀疏的：`sparse=True`")
    related = tuple(Related("made", program.place(table), None, sparse) for table in tables[:3])
    return Remedy(unique(program.text, fixes), said, None, place, None, related)


def of_sparse_gradients(error: Error) -> Remedy | None:
    """Return the remedy for ``SparseAdam`` with parameters whose gradients are not sparse, with a fix that uses
    ``Adam``; None if it is unknown where the optimizer is created.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizer = made(refused)
    call = call_of(story, optimizer.span) if optimizer is not None else None
    if optimizer is None or optimizer.span is None or call is None:
        return None
    where, here = at_line(story, optimizer.span), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} makes a `SparseAdam`, which takes sparse gradients only, and {here.en} "
        "gives it ordinary ones.",
        zh=f"{where.zh}建立的 `SparseAdam` 只接受稀疏梯度，而{here.zh}给它的是普通梯度。",
    )
    title = T(en="Take the optimizer for ordinary gradients: `Adam`", zh="改用针对普通梯度的优化器：`Adam`")
    fix = Fix(title, imported(program, renamed(program, call, "Adam"), call, "Adam"))
    return Remedy(unique(program.text, [fix]), said, None, optimizer.span)


# --- schedules
# ----------------------------------------------------------------------------------------------------------


def past_the_end(error: Error) -> Remedy | None:
    """Return the remedy for a scheduler that is stepped more often than its schedule allows, with fixes that plan as
    many steps as the loops take; None if it is unknown where the scheduler is created.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    kind = next((g.kind for g in refused.failure.given if g.name == "self"), "")
    schedule = next(
        (each for each in reversed(story.trace.beside.schedulers) if each.scheduler == kind and each.span), None
    )
    call = call_of(story, schedule.span) if schedule is not None else None
    if schedule is None or call is None or schedule.span is None:
        return None
    where, here = at_line(story, schedule.span), at_line(story, refused.span)
    taken, planned = error.match[1], error.match[2]
    said = T(
        en=f"{capital(where.en)} makes a schedule for {planned} steps, and {here.en} steps it once "
        f"more (step {taken}).",
        zh=f"{where.zh}建立的学习率计划只有 {planned} 步，而{here.zh}让它多走了一步（第 {taken} 步）。",
    )
    loops = loops_around(program, program.at(refused.span))
    related = (Related("made", schedule.span, None, T(en=f"a schedule for {planned} steps", zh=f"{planned} 步的计划")),)
    return Remedy(unique(program.text, _lengths(program, call, loops)), said, None, schedule.span, None, related)


def _lengths(program: Program, call: ast.Call, loops: list[Loop]) -> list[Fix | None]:
    """Fixes that plan as many steps as the loops take: ``steps_per_epoch=len(loader)``, ``total_steps=epochs *
    len(loader)``, ``epochs=…``.

    Only for keywords that the call has, and loops whose length the source shows; ``loops`` are ordered from the
    innermost.
    """
    counts = [text for loop in loops if (text := _count(program, loop)) is not None]
    given = {keyword.arg for keyword in call.keywords}
    texts = []
    if "steps_per_epoch" in given and counts:
        texts.append(f"steps_per_epoch={counts[0]}")
    if "total_steps" in given and counts:
        texts.append(f"total_steps={' * '.join(reversed(counts[:2]))}")
    if "epochs" in given and len(counts) > 1:
        texts.append(f"epochs={counts[1]}")
    fixes: list[Fix | None] = []
    for text in texts:
        change = keyword_set(program, call, text)
        title = T(en=f"Plan as many steps as the loop takes: `{text}`", zh=f"按循环的次数计划：`{text}`")
        fixes.append(Fix(title, program.splice(change), meaning="later") if change is not None else None)
    return fixes


def _count(program: Program, loop: Loop) -> str | None:
    """The number of iterations of a loop as an expression: ``len(loader)``, ``epochs``; None if the source does not
    show it.
    """
    over = loop.iter if isinstance(loop, ast.For) else None
    if isinstance(over, ast.Call) and called(over) == "range" and len(over.args) == 1:
        return program.segment(over.args[0])
    while isinstance(over, ast.Call) and called(over) in PASSING and over.args:
        over = over.args[0]
    return f"len({program.segment(over)})" if isinstance(over, ast.Name | ast.Attribute) else None


def watched_number(error: Error) -> Remedy | None:
    """Return the remedy for ``ReduceLROnPlateau.step()`` without a metric, with fixes that pass a variable whose name
    contains ``loss`` and that the same function assigns, those with ``val`` first.

    None if the call is unknown; without fixes if there is no such variable.
    """
    refused, program = error.refused, error.refused.story.program
    call, statement = refused.call, program.statement_at(refused.span)
    function = program.function(statement) if statement is not None else None
    if call is None or statement is None:
        return None
    names = [
        n.id
        for n in program.nodes
        if isinstance(n, ast.Name)
        and isinstance(n.ctx, ast.Store)
        and program.function(n) is function
        and "loss" in n.id.lower()
    ]
    place = program.place(call)
    here = Span(place.end_line, place.end_column - 1, place.end_line, place.end_column - 1)
    fixes = [
        Fix(
            T(en=f"Give it the number that it watches: `{name}`", zh=f"给出它要观察的数：`{name}`"),
            program.splice((here, name)),
            meaning="later",
        )
        for name in sorted(dict.fromkeys(names), key=lambda name: ("val" not in name, names.index(name)))
    ]
    return Remedy(unique(program.text, fixes))


# --- states
# -------------------------------------------------------------------------------------------------------------


def of_other_parameters(error: Error) -> Remedy | None:
    """Return the remedy for an optimizer's state that was saved for another number of parameters, which names both
    numbers.

    Its fix removes the loading, if that is a statement of its own, so that the optimizer begins with a new state. None
    unless another optimizer of this class stepped before, the last of which had another number of parameters.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizers = story.trace.optimizers
    optimizer = made(refused)
    statement = program.statement_at(refused.span)
    if optimizer is None or statement is None:
        return None
    earlier = [
        each for each in optimizers if each is not optimizer and each.steps and each.optimizer == optimizer.optimizer
    ]
    before = earlier[-1] if earlier else None
    if before is None or len(before.holds) == len(optimizer.holds):
        return None
    here, there = at_line(story, refused.span), at_line(story, optimizer.span)
    was, now = len(before.holds), len(optimizer.holds)
    said = T(
        en=f"{capital(here.en)} loads the state of an optimizer of {was} parameters into one of {now} parameters "
        f"({there.en}): a state has an entry for each parameter, by its position.",
        zh=f"{here.zh}把 {was} 个参数的优化器的状态装入 {now} 个参数的优化器（{there.zh}）：状态按位置"
        "为每个参数各有一项。",
    )
    accepts = T(
        en="a state saved by an optimizer of the same parameters; where other parameters are trained than before, the "
        "optimizer begins anew",
        zh="由相同参数的优化器保存的状态；如果训练的参数与以前不同，优化器应重新开始",
    )
    related = (
        Related("made", optimizer.span, None, T(en=f"an optimizer of {now} parameters", zh=f"{now} 个参数的优化器")),
    )
    title = T(en="Begin with a new state: other parameters are trained now", zh="从新的状态开始：现在训练的是别的参数")
    alone = isinstance(statement, ast.Expr) and program.stands_alone(statement)
    return Remedy((Fix(title, program.delete(statement)),) if alone else (), said, accepts, related=related)


def parameters_called(error: Error) -> Remedy | None:
    """Return the remedy for an optimizer that is given ``model.parameters`` without calling it, with a fix that calls
    it; None for other arguments.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    first = (
        call.args[0]
        if call is not None and call.args
        else next((k.value for k in call.keywords if k.arg == "params"), None)
        if call
        else None
    )
    if not isinstance(first, ast.Attribute) or first.attr not in ("parameters", "named_parameters"):
        return None
    text = f"{program.segment(first)}()"
    said = T(
        en=f"{refused.words('en')['Line']} gives the optimizer the method `{program.segment(first)}` itself; the call "
        f"`{text}` returns the parameters.",
        zh=f"{refused.words('zh')['Line']}把方法 `{program.segment(first)}` 本身交给了优化器；调用 "
        f"`{text}` 才返回参数。",
    )
    title = T(en=f"Call it: `{text}`", zh=f"调用它：`{text}`")
    return Remedy(
        (Fix(title, program.replace((first, text)), meaning="later"),), said, T(en=f"`{text}`", zh=f"`{text}`")
    )


def in_one_group(error: Error) -> Remedy | None:
    """Return the remedy for parameters in two groups of an optimizer, with a fix that removes them from the group of
    the whole model, or else from the first group.

    None if the source does not list the groups; without a fix if the groups are not calls of ``parameters()``.
    """
    refused, program = error.refused, error.refused.story.program
    call = refused.call
    groups = call.args[0] if call is not None and call.args else None
    values = _groups(groups) if isinstance(groups, ast.List) else []
    if len(values) < 2:
        return None
    large, small = _whole_first(program, values[0], values[1])
    fixes: list[Fix | None] = []
    if isinstance(large, ast.Call) and program.segment(small).endswith("parameters()"):
        new = f"[p for p in {program.segment(large)} if all(p is not own for own in {program.segment(small)})]"
        title = T(en=f"Leave the parameters of `{program.segment(small)}` out of the other group",
                  zh=f"从另一组中去掉 `{program.segment(small)}` 的参数")  # fmt: skip
        fixes.append(Fix(title, program.replace((large, new)), meaning="later"))
    first, second = (program.segment(v) for v in values[:2])
    said = T(
        en=f"{refused.words('en')['Line']} puts some parameters into two groups: `{first}` and `{second}` have "
        "parameters in common, which would then be stepped twice.",
        zh=f"{refused.words('zh')['Line']}把一些参数放进了两组：`{first}` 和 `{second}` 有共同的参"
        "数，它们会被更新两次。",
    )
    accepts = T(en="each parameter in one group", zh="每个参数只在一组中")
    return Remedy(unique(program.text, fixes), said, accepts)


def _whole_first(program: Program, one: ast.expr, other: ast.expr) -> tuple[ast.expr, ast.expr]:
    """The two groups, with the one of the whole model first: ``model.parameters()`` before ``model.head.parameters()``;
    unchanged if neither contains the other.
    """
    return (other, one) if _is_part_of(program, one, other) else (one, other)


def _is_part_of(program: Program, one: ast.expr, other: ast.expr) -> bool:
    """Whether the module of ``one`` (``head.parameters()``, where ``head = model.head``) is a submodule of that of
    ``other``.
    """
    inner, outer = (
        g.func.value if isinstance(g, ast.Call) and isinstance(g.func, ast.Attribute) else g for g in (one, other)
    )
    whole = program.segment(outer)
    return any(
        program.segment(each).startswith((f"{whole}.", f"{whole}[")) for each in [inner, *origins(program, inner)]
    )


def _groups(groups: ast.List) -> list[ast.expr]:
    """The values of ``"params"`` in the groups, as written in the source."""
    found = []
    for group in groups.elts:
        if isinstance(group, ast.Dict):
            found += [
                v
                for k, v in zip(group.keys, group.values, strict=True)
                if isinstance(k, ast.Constant) and k.value == "params"
            ]
    return found


def first_rate(error: Error) -> Remedy | None:
    """Return the remedy for a scheduler that continues (``last_epoch``) with a new optimizer, with a fix that adds
    ``initial_lr``, the learning rate at which the schedule began, to the optimizer's parameter group.

    None if the source does not show where the optimizer is created, with ``….parameters()`` and ``lr=``.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    call = refused.call
    optimizer = call.args[0] if call is not None and call.args else None
    makers = (
        [o for o in origins(program, optimizer) if isinstance(o, ast.Call) and o.args] if optimizer is not None else []
    )
    rate = next((k.value for k in makers[0].keywords if k.arg == "lr"), None) if len(makers) == 1 else None
    if rate is None or not program.segment(makers[0].args[0]).endswith("parameters()"):
        return None
    params, place = makers[0].args[0], program.place(makers[0])
    where, here = at_line(story, place), at_line(story, refused.span)
    text = f'[{{"params": {program.segment(params)}, "initial_lr": {program.segment(rate)}}}]'
    said = T(
        en=f"{capital(here.en)} lets a schedule go on from an epoch (`last_epoch`), but the optimizer made on "
        f"{where.en} is new and does not have the rate with which the schedule began (`initial_lr`).",
        zh=f"{here.zh}让学习率计划从某一轮继续（`last_epoch`），但{where.zh}建立的优化器是新的，没有计划开始时的学"
        "习率（`initial_lr`）。",
    )
    accepts = T(
        en="an optimizer whose groups have `initial_lr`: one whose state was loaded "
        "(`optimizer.load_state_dict`), or one given it",
        zh="各组带有 `initial_lr` 的优化器：已装入状态（`optimizer.load_state_dict`），或直接给出",
    )
    title = T(
        en='Give the rate that the schedule began with: `"initial_lr"`', zh='给出计划开始时的学习率：`"initial_lr"`'
    )
    return Remedy((Fix(title, program.replace((params, text)), meaning="later"),), said, accepts)


def with_closure(error: Error) -> Remedy | None:
    """Return the remedy for an optimizer whose step computes the loss several times, with a fix that makes the
    statements before the step its closure.

    The closure begins with the first ``zero_grad`` of the block. None if ``zero_grad`` and the backward are not in the
    step's block, before it, if the loss has no name, or if one of the statements shares its lines with another one.
    """
    refused, program = error.refused, error.refused.story.program
    statement, call = program.statement_at(refused.span), refused.call
    if not isinstance(statement, ast.Expr) or call is None:
        return None
    block = program.block(statement)
    before = block[: block.index(statement)]
    backward = next(
        (s for s in reversed(before) if isinstance(s, ast.Expr) and program.segment(s).endswith(".backward()")), None
    )
    loss = (
        backward.value.func.value
        if isinstance(backward, ast.Expr)
        and isinstance(backward.value, ast.Call)
        and isinstance(backward.value.func, ast.Attribute)
        else None
    )
    begin = next((k for k, s in enumerate(before) if "zero_grad" in program.segment(s)), None)
    if (
        not isinstance(loss, ast.Name)
        or backward is None
        or begin is None
        or not all(program.stands_alone(s) for s in [*before[begin:], statement])
    ):
        return None
    inside, indent = before[begin:], program.indent(statement)
    body = "".join(indented(program, s, f"{indent}    ") for s in inside)
    text = (
        f"{indent}def closure():\n"
        f"{body}{indent}    return {loss.id}\n"
        "\n"
        f"{indent}{loss.id} = {program.segment(call.func)}(closure)\n"
    )
    first, last = program.place(inside[0]), program.place(statement)
    title = T(en="Give it a closure that computes the loss and its gradients", zh="给它一个计算损失和梯度的闭包")
    name = program.segment(call.func)
    said = T(
        en=f"{refused.words('en')['Line']} calls `{name}()` without a closure: this optimizer computes the loss "
        "several times in one step, and needs a function that does it.",
        zh=f"{refused.words('zh')['Line']}调用 `{name}()` 时没有给出闭包：这种优化器一步之内要多次计算损失，需"
        "要一个做这件事的函数。",
    )
    accepts = T(en="a function that clears the gradients, computes the loss, runs backward and returns the loss",
                zh="清空梯度、计算损失、反向传播并返回损失的函数")  # fmt: skip
    return Remedy((Fix(title, (Edit(first.line, last.end_line, text),), meaning="later"),), said, accepts)
