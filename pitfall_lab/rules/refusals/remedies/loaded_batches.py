"""Remedies for errors about the batches of a ``DataLoader``: samples of different lengths or with None in them, a last
batch of one row; and for lengths of ``random_split`` that do not add up.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fix, Related
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand, torch_name
from pitfall_lab.rules.kit.text_origins import made_by, origins
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.refusals.arguments import shape_text
from pitfall_lab.rules.refusals.remedies.collate_functions import as_elsewhere
from pitfall_lab.rules.refusals.remedies.edits import before, outermost, with_keyword
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T

PASSING = {"enumerate", "tqdm", "zip", "list", "iter", "islice", "trange", "cycle", "next", "track"}
"""Functions that pass on the elements of an argument."""
MOST_PARTS = 5
COLLATING = re.compile(r"default_collate|stack expects each tensor|each element in list of batch|in collate")
"""Texts of torch's messages if samples could not be joined to a batch."""


def collated(error: Error) -> Remedy | None:
    """Return the remedy for samples of different sizes, which a loader cannot stack, with fixes that pass it a
    ``collate_fn`` that pads them, or the one of another loader.

    None if the source does not show exactly one loader over which the failed line iterates, or if that line calls
    ``stack`` itself.
    """
    refused, story = error.refused, error.refused.story
    node = story.program.at(refused.span)
    running = tuple(call_chain(story, story.event(refused.step)))
    found = loader_of(story, node, running) if not isinstance(node, ast.Call) or called(node) != "stack" else None
    if found is None or refused.step is None:
        return None
    made, head = found
    shapes = [g.shape for g in refused.tensors if g.shape is not None]
    different = list(dict.fromkeys(shapes))[:2]
    where, here, name = (
        at_line(story, story.program.place(made)),
        at_line(story, refused.span),
        story.program.segment(head),
    )
    en, zh = (" and ".join(shape_text(s, "en") for s in different), "和".join(shape_text(s, "zh") for s in different))
    said = T(
        en=f"{capital(where.en)} makes a loader that stacks the samples of each batch, and the samples that {here.en} "
        f"draws from `{name}` have different shapes: {en}.",
        zh=f"{where.zh}的加载器会把一批中的样本堆叠起来，而{here.zh}从 `{name}` 取出的样本形状不同：{zh}。",
    )
    accepts = T(
        en="samples of one shape, or a `collate_fn` that pads them, given to the loader",
        zh="形状相同的样本，或者给加载器一个会补齐它们的 `collate_fn`",
    )
    related = (
        Related("made", story.program.place(made), None, T(en=f"`{name}` is made here", zh=f"`{name}` 在这里创建")),
    )
    fixes = (*as_elsewhere(story.program, made), *_collates(story, made, node))
    return Remedy(fixes, said, accepts, story.program.place(made), None, related)


def _collates(story: Story, made: ast.Call, head: ast.AST | None) -> tuple[Fix, ...]:
    """Fixes that pass the loader a function that pads one component of the samples and lets torch collate the others.

    Empty if it has a ``collate_fn``, or if the program already has a definition named ``collate``.
    """
    program, torch = story.program, torch_name(story.program)
    change, top = with_keyword(program, made, "collate_fn=collate"), outermost(program, made)
    if (
        change is None
        or top is None
        or torch is None
        or any(getattr(n, "name", None) == "collate" for n in program.nodes)
    ):
        return ()
    fixes = []
    for lines, padded in _functions(story, torch, head):
        title = T(
            en=f"Pad {padded} to the longest of the batch, in a `collate_fn`",
            zh=f"在 `collate_fn` 中把 {padded} 补齐到这一批的最大长度",
        )
        fixes.append(Fix(title, program.splice(before(program, top, *lines, "", ""), change)))
    return unique(program.text, fixes)


def _functions(story: Story, torch: str, head: ast.AST | None) -> list[tuple[list[str], str]]:
    """The lines of functions that could collate the samples, each with the name of the component that it pads; at most
    ``MOST_PARTS``.
    """
    returned = _returned(story)
    pad, rest = f"{torch}.nn.utils.rnn.pad_sequence", f"{torch}.utils.data.default_collate"
    if isinstance(returned, ast.Dict) and all(isinstance(key, ast.Constant) for key in returned.keys):
        keys = [repr(key.value) for key in returned.keys if isinstance(key, ast.Constant)][:MOST_PARTS]
        return [
            (
                [
                    "def collate(samples):",
                    f"    {_word(key)} = {pad}([sample.pop({key}) for sample in samples], batch_first=True)",
                    f"    return {{{key}: {_word(key)}, **{rest}(samples)}}",
                ],
                f"`{key}`",
            )
            for key in keys
        ]
    names = _names(head) or (_parts(returned) if isinstance(returned, ast.Tuple) else [])
    if not names:
        return [(["def collate(samples):", f"    return {pad}(samples, batch_first=True)"], "the samples")]
    found = []
    for at, name in enumerate(names[:MOST_PARTS]):
        parts = [f"{pad}({each}, batch_first=True)" if k == at else f"{rest}({each})" for k, each in enumerate(names)]
        lines = ["def collate(samples):", f"    {', '.join(names)} = zip(*samples)", f"    return {', '.join(parts)}"]
        found.append((lines, f"`{name}`"))
    return found


def _word(key: str) -> str:
    text = key.strip("'\"")
    return text if text.isidentifier() else "padded"


def _names(head: ast.AST | None) -> list[str]:
    """The names to which a loop unpacks a batch: ``tokens, labels``; empty if it does not unpack it to distinct
    names.
    """
    target = getattr(head, "target", None)
    if (
        isinstance(target, ast.Tuple)
        and isinstance(head, ast.For)
        and isinstance(head.iter, ast.Call)
        and called(head.iter) == "enumerate"
    ):
        target = target.elts[-1]
    names = [each.id for each in target.elts if isinstance(each, ast.Name)] if isinstance(target, ast.Tuple) else []
    return (
        names
        if isinstance(target, ast.Tuple) and len(names) == len(target.elts) and len(set(names)) == len(names)
        else []
    )


def _parts(returned: ast.Tuple) -> list[str]:
    return [f"part{at}" for at in range(len(returned.elts))]


def _returned(story: Story) -> ast.expr | None:
    """The expression that ``__getitem__`` of the dataset of the last pass returns; None if the source does not show
    exactly one.
    """
    kinds = [each.kind for each in story.trace.beside.passes]
    for node in story.program.nodes:
        if isinstance(node, ast.ClassDef) and kinds and node.name == kinds[-1]:
            method = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__getitem__"), None)
            values = [n.value for n in ast.walk(method) if isinstance(n, ast.Return)] if method is not None else []
            return values[0] if len(values) == 1 else None
    return None


def single_row(error: Error) -> Remedy | None:
    """Return the remedy for a batch norm that is given one row, with the fix ``drop_last=True`` if the row is a
    loader's last batch, else ``eval()`` before the call.

    None if the input does not have exactly one row, or if its call is unknown.
    """
    refused, story = error.refused, error.refused.story
    wrong = error.wrong
    if wrong is None or wrong.shape is None or wrong.shape[:1] != (1,) or story.program.tree is None:
        return None
    found = loader(story, refused.step)
    chain = list(call_chain(story, story.event(refused.step)))
    in_loop = found is not None and any(
        _goes_over(each, found[1]) for s in chain for each in [s, *story.program.ancestors(s)]
    )
    if found is not None and in_loop:
        return _last_batch(error, *found)
    if not chain:
        return None
    return Remedy(tuple(_evaluated(story.program, chain[-1])))


def _goes_over(node: ast.AST, head: ast.expr) -> bool:
    return isinstance(node, ast.For) and any(each is head for each in ast.walk(node.iter))


def _last_batch(error: Error, made: ast.Call, head: ast.expr) -> Remedy:
    refused, story = error.refused, error.refused.story
    program, name = story.program, story.program.segment(head)
    where, here = at_line(story, program.place(made)), at_line(story, refused.span)
    examples = next((p.examples for p in reversed(story.trace.beside.passes) if p.step <= refused.step), None)
    size = next((k.value for k in made.keywords if k.arg == "batch_size"), made.args[1] if len(made.args) > 1 else None)
    parts = program.segment(size) if size is not None else "1"
    count_en, count_zh = (
        (f"{examples} examples", f" {examples} 个样本") if examples is not None else ("the examples", "样本")
    )
    said = T(
        en=f"{capital(where.en)} divides {count_en} into batches of `{parts}`, and the last batch has one row: "
        f"{here.en} normalises it in training mode, where one value per channel has no deviation.",
        zh=f"{where.zh}把{count_zh}按 `{parts}` 个一批分开，最后一批只有一行：{here.zh}在训练模式下对它做归一化，而每"
        "个通道只有一个值，没有标准差。",
    )
    accepts = T(
        en="batches with at least two rows: `drop_last=True` leaves the incomplete one out",
        zh="至少有两行的批：`drop_last=True` 会舍去不完整的最后一批",
    )
    change = with_keyword(program, made, "drop_last=True")
    title = T(en="Leave out the incomplete last batch: `drop_last=True`", zh="舍去不完整的最后一批：`drop_last=True`")
    fixes = (Fix(title, program.splice(change), meaning="recompute"),) if change is not None else ()
    related = (Related("made", program.place(made), None, T(en=f"`{name}` is made here", zh=f"`{name}` 在这里创建")),)
    return Remedy(fixes, said, accepts, program.place(made), None, related)


def _evaluated(program: Program, statement: ast.stmt) -> list[Fix]:
    """Fixes that call ``eval()``, before the statement, on an object of a class that the statement calls."""
    fixes = []
    for node in ast.walk(statement):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name | ast.Attribute) or not node.args:
            continue
        made = [
            each for each in origins(program, node.func) if isinstance(each, ast.Call) and called(each)[:1].isupper()
        ]
        if made and program.stands_alone(statement):
            text = f"{program.segment(node.func)}.eval()"
            title = T(en=f"Measure in evaluation mode: `{text}` before", zh=f"在评估模式下测量：先 `{text}`")
            fixes.append(Fix(title, program.insert_before(statement, text)))
    return fixes


def loader(story: Story, step: int) -> tuple[ast.Call, ast.expr] | None:
    """Return the ``DataLoader`` over which the program was iterating at ``step``: the call that created it, and the
    expression for it in the loop; None if unknown.
    """
    began = [each for each in story.trace.beside.passes if each.step <= step]
    running = tuple(call_chain(story, story.event(step)))
    return loader_of(story, story.program.at(began[-1].span), running) if began else None


def loader_of(story: Story, head: ast.AST | None, running: Sequence[ast.stmt] = ()) -> tuple[ast.Call, ast.expr] | None:
    """Return the call that created the ``DataLoader`` over which ``head`` (a loop, a comprehension or an expression)
    iterates, and the expression for it there; None unless the source shows exactly one such call.

    ``running`` are the statements that were being executed: if some of several calls of a function are in them, only
    these count.
    """
    program = story.program
    inner = (
        [each for node in ast.walk(head) for each in getattr(node, "generators", ())]
        if isinstance(head, ast.stmt | ast.expr)
        else []
    )
    head = inner[0] if len(inner) == 1 and not isinstance(head, ast.For | ast.AsyncFor) else head
    head = head.iter if isinstance(head, ast.For | ast.AsyncFor | ast.comprehension) else head
    while isinstance(head, ast.Call) and called(head) in PASSING and head.args:
        head = head.args[0]
    if not isinstance(head, ast.expr):
        return None
    made = made_by(program, head, "DataLoader", running=running)
    return (made[0], head) if len(made) == 1 else None


def nothing_in_samples(error: Error) -> Remedy | None:
    """Return the remedy for samples with None in them, which names the line of ``__getitem__`` that returns the None;
    its fixes are those of :func:`collated_elsewhere`.

    If the source does not show such a line, the remedy of :func:`collated_elsewhere` (or None).
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    returned = _returned(story)
    parts = (
        returned.elts
        if isinstance(returned, ast.Tuple)
        else returned.values
        if isinstance(returned, ast.Dict)
        else [returned]
    )
    empty = [part for part in parts if part is not None and any(_is_nothing(o) for o in _all_origins(program, part))]
    if not empty or returned is None or "NoneType" not in error.match[1]:
        return collated_elsewhere(error)
    place, here, text = program.place(empty[0]), at_line(story, refused.span), program.segment(empty[0])
    where = at_line(story, place)
    said = T(
        en=f"{capital(where.en)} returns `{text}` as a part of a sample, and it is None; the loader on {here.en} "
        "stacks tensors, arrays and numbers.",
        zh=f"{where.zh}把 `{text}` 作为样本的一部分返回，而它是 None；{here.zh}的加载器只能堆叠张量、数组和数。",
    )
    elsewhere = collated_elsewhere(error)
    related = Related("made", place, None, T(en=f"`{text}` is None here", zh=f"`{text}` 在这里是 None"))
    return Remedy(elsewhere.fixes if elsewhere is not None else (), said, None, place, None, (related,))


def collated_elsewhere(error: Error) -> Remedy | None:
    """Return the remedy for samples that torch cannot join to a batch, with the fixes of :func:`.as_elsewhere`, which
    pass the loader a ``collate_fn`` of the program.

    None if there are no such fixes, if the loader is unknown, or if the message is about something else.
    """
    refused, story = error.refused, error.refused.story
    if not COLLATING.search(refused.message):
        return None
    running = tuple(call_chain(story, story.event(refused.step))) if refused.failure.step is not None else ()
    found = loader_of(story, story.program.at(refused.span), running)
    fixes = as_elsewhere(story.program, found[0]) if found is not None else ()
    if found is None or not fixes:
        return None
    place = story.program.place(found[0])
    words = T(en="the loader is made here, without a `collate_fn`", zh="加载器在这里创建，没有 `collate_fn`")
    return Remedy(fixes, related=(Related("made", place, None, words),))


def _all_origins(program: Program, node: ast.expr) -> list[ast.expr]:
    return list(origins(program, node))


def _is_nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def rest_of_the_split(error: Error) -> Remedy | None:
    """Return the remedy for lengths of ``random_split`` that do not add up to the length of the dataset, with a fix
    that makes the last one the remainder.

    None for other calls, and if the lengths are not written out in the call.
    """
    refused, story, program = error.refused, error.refused.story, error.refused.story.program
    call = refused.call
    lengths = call.args[1] if call is not None and len(call.args) > 1 else None
    if (
        call is None
        or called(call) != "random_split"
        or not isinstance(lengths, ast.List | ast.Tuple)
        or len(lengths.elts) < 2
    ):
        return None
    others = " - ".join(operand(program, each) for each in lengths.elts[:-1])
    text, last = f"len({program.segment(call.args[0])}) - {others}", lengths.elts[-1]
    made = [m for m in origins(program, last) if m is not last]
    target = made[0] if len(made) == 1 and isinstance(last, ast.Name) else last
    place = program.place(target)
    where, here, total = at_line(story, place), at_line(story, refused.span), program.segment(call.args[0])
    said = T(
        en=f"{capital(here.en)} splits `{total}` into parts whose lengths do not add up to its length; each of them "
        "is rounded by itself.",
        zh=f"{here.zh}把 `{total}` 分成几部分，而各部分长度之和不等于它的长度；每个长度是各自取整的。",
    )
    accepts = T(en=f"lengths that add up: the last one `{text}`", zh=f"总和相等的长度：最后一个用 `{text}`")
    title = T(en=f"Let the last part be what is left: `{text}`", zh=f"让最后一部分等于剩下的：`{text}`")
    related = (
        (Related("made", place, None, T(en="this length is rounded by itself", zh="这个长度是单独取整的")),)
        if where != here
        else ()
    )
    return Remedy((Fix(title, program.replace((target, text)), meaning="later"),), said, accepts, related=related)
