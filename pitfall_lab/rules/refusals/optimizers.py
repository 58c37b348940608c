"""Refusals of an optimizer or a schedule: sparse gradients, a schedule that is over, a state of other parameters."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, is_true
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import Refused
from pitfall_lab.rules.refusals.edits import imported, keyword_set, renamed
from pitfall_lab.rules.refusals.loaded_batches import PASSING
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.signals.schedules import call_of, loops_around
from pitfall_lab.trace import OptimizerMade, Span, T


def made(refused: Refused) -> OptimizerMade | None:
    """The optimizer whose method was refused: the only one of its class, or the last one made; None if its creation was not observed."""
    kind = next((g.kind for g in refused.given if g.name in ("self", "optimizer")), None) or next(
        (g.kind for g in refused.failure.given if g.name == "self"), ""
    )
    same = [each for each in refused.story.trace.optimizers if each.optimizer == kind]
    return same[-1] if same else None


def of_dense_gradients(error: Error) -> Remedy | None:
    """An optimizer that takes no sparse gradients: ``SparseAdam`` for it, or embeddings without ``sparse=True``."""
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizer = made(refused)
    tables = [n for n in program.nodes if isinstance(n, ast.Call) and any(k.arg == "sparse" and is_true(k.value) for k in n.keywords)]
    if optimizer is None or optimizer.span is None or not tables:
        return None
    place = optimizer.span
    where, there, here = (at_line(story, span) for span in (place, program.place(tables[0]), refused.span))
    fixes: list[Fix | None] = []
    call = call_of(story, place)
    if optimizer.optimizer in ("Adam", "AdamW") and call is not None:
        title = T(en="Take the optimizer for sparse gradients: `SparseAdam`", zh="改用针对稀疏梯度的优化器：`SparseAdam`")
        fixes.append(Fix(title, imported(program, renamed(program, call, "SparseAdam"), call, "SparseAdam")))
    changes = [change for table in tables if (change := keyword_set(program, table, "sparse=False")) is not None]
    dense = T(en="Let the embeddings make ordinary gradients: `sparse=False`", zh="让嵌入层产生普通的梯度：`sparse=False`")
    fixes.append(Fix(dense, program.splice(*changes)))
    said = T(
        en=f"{capital(where.en)} makes an `{optimizer.optimizer}`, which takes no sparse gradients, and the `sparse=True` of {there.en} makes "
        f"such: {here.en} can do no step.",
        zh=f"{where.zh}建立的 `{optimizer.optimizer}` 不接受稀疏梯度，而{there.zh}的 `sparse=True` 会产生稀疏梯度：{here.zh}无法更新。",
    )
    sparse = T(en="its gradients are sparse: `sparse=True`", zh="它的梯度是稀疏的：`sparse=True`")
    related = tuple(Related("made", program.place(table), None, sparse) for table in tables[:3])
    return Remedy(unique(program.text, fixes), said, None, place, None, related)


def of_sparse_gradients(error: Error) -> Remedy | None:
    """``SparseAdam`` for parameters whose gradients are not sparse: ``Adam``."""
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizer = made(refused)
    call = call_of(story, optimizer.span) if optimizer is not None else None
    if optimizer is None or optimizer.span is None or call is None:
        return None
    where, here = at_line(story, optimizer.span), at_line(story, refused.span)
    said = T(
        en=f"{capital(where.en)} makes a `SparseAdam`, which takes sparse gradients only, and {here.en} gives it ordinary ones.",
        zh=f"{where.zh}建立的 `SparseAdam` 只接受稀疏梯度，而{here.zh}给它的是普通梯度。",
    )
    title = T(en="Take the optimizer for ordinary gradients: `Adam`", zh="改用针对普通梯度的优化器：`Adam`")
    fix = Fix(title, imported(program, renamed(program, call, "Adam"), call, "Adam"))
    return Remedy(unique(program.text, [fix]), said, None, optimizer.span)


# --- schedules ----------------------------------------------------------------------------------------------------------


def past_the_end(error: Error) -> Remedy | None:
    """A schedule for a number of steps that was stepped once more: the number that the loops make."""
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    kind = next((g.kind for g in refused.failure.given if g.name == "self"), "")
    schedule = next((each for each in reversed(story.trace.beside.schedulers) if each.scheduler == kind and each.span), None)
    call = call_of(story, schedule.span) if schedule is not None else None
    if schedule is None or call is None or schedule.span is None:
        return None
    where, here = at_line(story, schedule.span), at_line(story, refused.span)
    taken, planned = error.match[1], error.match[2]
    said = T(
        en=f"{capital(where.en)} makes a schedule for {planned} steps, and {here.en} steps it once more (step {taken}).",
        zh=f"{where.zh}建立的学习率计划只有 {planned} 步，而{here.zh}让它多走了一步（第 {taken} 步）。",
    )
    loops = loops_around(program, program.at(refused.span))
    related = (Related("made", schedule.span, None, T(en=f"a schedule for {planned} steps", zh=f"{planned} 步的计划")),)
    return Remedy(unique(program.text, _lengths(program, call, loops)), said, None, schedule.span, None, related)


def _lengths(program: Program, call: ast.Call, loops: list[ast.stmt]) -> list[Fix | None]:
    """Fixes that plan as many steps as the loops take: ``steps_per_epoch=len(loader)``, ``total_steps=epochs * len(loader)``."""
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


def _count(program: Program, loop: ast.stmt) -> str | None:
    """The number of rounds of a loop as an expression: ``len(loader)``, ``epochs``; None if the text does not say it."""
    over = loop.iter if isinstance(loop, ast.For) else None
    if isinstance(over, ast.Call) and called(over) == "range" and len(over.args) == 1:
        return program.segment(over.args[0])
    while isinstance(over, ast.Call) and called(over) in PASSING and over.args:
        over = over.args[0]
    return f"len({program.segment(over)})" if isinstance(over, ast.Name | ast.Attribute) else None


def watched_number(error: Error) -> Remedy | None:
    """Fixes that give a plateau schedule the loss that was computed last under a name; None if there is none."""
    refused, program = error.refused, error.refused.story.program
    call, statement = refused.call, program.statement_at(refused.span)
    function = program.function(statement) if statement is not None else None
    if call is None or statement is None:
        return None
    names = [
        n.id for n in program.nodes
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and program.function(n) is function and "loss" in n.id.lower()
    ]  # fmt: skip
    place = program.place(call)
    here = Span(place.end_line, place.end_column - 1, place.end_line, place.end_column - 1)
    fixes = [
        Fix(T(en=f"Give it the number that it watches: `{name}`", zh=f"给出它要观察的数：`{name}`"), program.splice((here, name)), meaning="later")
        for name in sorted(dict.fromkeys(names), key=lambda name: ("val" not in name, names.index(name)))
    ]
    return Remedy(unique(program.text, fixes))


# --- states -------------------------------------------------------------------------------------------------------------


def of_other_parameters(error: Error) -> Remedy | None:
    """An optimizer's state that was saved for other parameters: how many it had, and how many the new optimizer has."""
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    optimizers = story.trace.optimizers
    optimizer = made(refused)
    statement = program.statement_at(refused.span)
    if optimizer is None or statement is None:
        return None
    earlier = [each for each in optimizers if each is not optimizer and each.steps and each.optimizer == optimizer.optimizer]
    before = earlier[-1] if earlier else None
    if before is None or len(before.holds) == len(optimizer.holds):
        return None
    here, there = at_line(story, refused.span), at_line(story, optimizer.span)
    was, now = len(before.holds), len(optimizer.holds)
    said = T(
        en=f"{capital(here.en)} loads the state of an optimizer of {was} parameters into one of {now} parameters ({there.en}): a state has an "
        "entry for each parameter, by its position.",
        zh=f"{here.zh}把 {was} 个参数的优化器的状态装入 {now} 个参数的优化器（{there.zh}）：状态按位置为每个参数各有一项。",
    )
    accepts = T(
        en="a state saved by an optimizer of the same parameters; where other parameters are trained than before, the optimizer begins anew",
        zh="由相同参数的优化器保存的状态；如果训练的参数与以前不同，优化器应重新开始",
    )
    related = (Related("made", optimizer.span, None, T(en=f"an optimizer of {now} parameters", zh=f"{now} 个参数的优化器")),)
    title = T(en="Begin with a new state: other parameters are trained now", zh="从新的状态开始：现在训练的是别的参数")
    alone = isinstance(statement, ast.Expr) and program.stands_alone(statement)
    return Remedy((Fix(title, program.delete(statement)),) if alone else (), said, accepts, related=related)
