"""PL701: a tensor and a NumPy array share their memory, and one of them was taken for a copy."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.saving_repairs import appended
from pitfall_lab.rules.kit.snapshots import PAIR, Aliases, Kept, copied_where_made, is_collected, relied_on
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, written_root
from pitfall_lab.rules.kit.wording import at_line, capital, statement_text
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

TO_ARRAY, TO_TENSOR = ("numpy", "__array__"), spellings("as_tensor") | {"from_dlpack", "from_numpy", "frombuffer"}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each conversion between a tensor and an array (``numpy()``, ``from_numpy``, …) after which
    one was changed and the other was used as a copy.

    Also one for each list of tensors, stacked later, that were all made of one array which the program refills. Nothing
    if the program did not finish, or if some gradient was computed with changed numbers (the trace's ``harms``).
    """
    if story.trace.outcome.kind != "finished" or story.trace.harms:
        return
    told = {drift.span.line for drift in story.trace.beside.drifts if drift.span.source == 0}  # by PL715
    for kept in Aliases(story, *TO_ARRAY, *TO_TENSOR).kept():
        changed = story.span(kept.changed)
        if changed is not None and changed.source == 0 and changed.line in told:
            continue
        if any(record.get("kind") == "array" for _, record in story.tensors_on(kept.storage)):
            yield _finding(story, kept)
    yield from _joined(story)


def _joined(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that made several tensors of a stacked list from one array which the program
    refills in between.

    Not for only two such tensors among others.
    """
    reported = set[Span]()
    earliest = dict[object, Event]()
    for event in story.calls("stack", "cat", "concat", "vstack", "hstack"):
        pieces: dict[object, dict[str, Record]] = defaultdict(dict)
        for label in (o.label for o in event.operands if o.label is not None):
            record = story.tensor(label, event.step) or {}
            pieces[record.get("storage"), record.get("offset"), str(record.get("shape"))][label] = record
        for piece in pieces.values():
            counters = {
                r.get("counter") for r in piece.values()
            }  # each way in through NumPy has its own; views share one
            if len(counters) < PAIR or (len(piece) == PAIR < len({o.label for o in event.operands})):
                continue
            first = earliest.setdefault(next(iter(piece.values())).get("storage"), event)
            bridge, filled = _refilled(story, piece, event)
            if bridge is not None and filled is not None and (span := story.program.place(bridge)) not in reported:
                reported.add(span)
                yield _batch(story, first, bridge, filled, len(piece))


def _refilled(story: Story, piece: dict[str, Record], joined: Event) -> tuple[ast.Call | None, Span | None]:
    """The call that made the tensors of one part of a storage, and the place in the source where the array is written
    again; None for what is not known.
    """
    program, storage = story.program, next(iter(piece.values())).get("storage")
    statements = [n for n in program.nodes if isinstance(n, ast.Assign | ast.AugAssign)]
    written = {program.segment(root): s for s in reversed(statements) if (root := written_root(s)) is not None}
    born = sorted(int(r.get("born") or 0) for r in piece.values())
    makers = [program.at(e.span) for step in born if (e := story.event(step)) is not None and e.name in TO_TENSOR]
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in TO_TENSOR and n.args]
    bridge = next((n for n in makers if isinstance(n, ast.Call) and n.args), None)
    bridge = bridge or next((n for n in calls if program.segment(n.args[0]) in written), None)
    # tensors of rounds that were not recorded: what they were made of may have another name than what is written
    bridge = bridge or next((n for n in calls if is_collected(program, n)), None)
    seen = [span for step in story.writes(str(storage), born[0], joined.step) if (span := story.span(step)) is not None]
    names = [] if bridge is None else [program.segment(bridge.args[0]), *_handed_out(program, bridge.args[0])]
    statement = next((written[name] for name in names if name in written), None)
    return bridge, seen[-1] if seen else program.place(statement) if statement is not None else None


def _handed_out(program: Program, argument: ast.expr) -> Iterator[str]:
    """What functions of the program return at the position of the name ``argument``. For ``state, reward =
    env.step(action)``, where ``step`` returns ``self.state, reward``, that is ``self.state`` for ``state``.
    """
    name, around = program.segment(argument), program.function(argument)
    returns = [n for n in program.nodes if isinstance(n, ast.Return) and n.value is not None]
    for statement in program.nodes if isinstance(argument, ast.Name) else ():
        if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
            continue
        target, made = statement.targets[0], call_name(statement.value)
        parts = target.elts if isinstance(target, ast.Tuple) else [target]
        places = [at for at, part in enumerate(parts) if program.segment(part) == name]
        for node in returns if places and program.function(statement) is around else ():
            function, value = program.function(node), node.value
            if function is None or value is None or function.name != made:
                continue
            several = value.elts if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) else [value]
            yield from (program.segment(several[at]) for at in places if at < len(several))


def _batch(story: Story, event: Event, bridge: ast.Call, filled: Span, count: int) -> Finding:
    program, step = story.program, event.step
    span = program.place(bridge)
    here, changed, used = (at_line(story, place) for place in (span, filled, story.span(step)))
    code = program.segment(bridge)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} does not copy the array: {changed.en} writes new numbers into it, and {count} "
            f"tensors that {used.en} joins share its memory.",
            zh=f"{here.zh}没有复制数组：{changed.zh}把新的数写入它，而{used.zh}合并的张量中有 {count} 个共用它的内存。",
        ),
        T(
            en=f"`{code}` makes a tensor that shares the array's memory. Each round makes another one, and all of "
            "them show what the array holds now.",
            zh=f"`{code}` 产生的张量与数组共用内存。每一轮又产生一个，而它们显示的都是数组现在的内容。",
        ),
        related=[
            Related(
                "alias",
                span,
                None,
                T(en="each round makes one more tensor of this memory", zh="每一轮又产生一个共用这块内存的张量"),
            ),
            Related(
                "changed",
                filled,
                None,
                T(en="new numbers are written into the array here", zh="在这里把新的数写入数组"),
            ),
            story.related(
                "used",
                step,
                T(
                    en="tensors of one memory are joined here: they all show the same numbers",
                    zh="在这里合并共用内存的张量：它们显示的都是同样的数",
                ),
            ),
        ],
        fixes=_separate(program, bridge, filled),
        facts=[Fact("tensors", count, story.by(step))],
    )


def _separate(program: Program, bridge: ast.Call, filled: Span) -> tuple[Fix, ...]:
    """At most one fix: it copies the array wherever the code that writes it returns or yields it, or else each tensor
    where it is made.

    What is returned may get several names before a tensor is made of it, and without a copy these would still be one
    array.
    """
    statement = program.statement_on(filled.line)
    written = written_root(statement) if statement is not None else None
    name = program.segment(written) if written is not None else ""
    owner = next((n for n in program.ancestors(statement) if isinstance(n, ast.ClassDef)), None) if statement else None
    within = ast.walk(owner) if owner is not None else program.nodes
    handed = [n.value for n in within if isinstance(n, ast.Return | ast.Yield) and n.value is not None]
    parts = [part for value in handed for part in (value.elts if isinstance(value, ast.Tuple) else [value])]
    own = [part for part in parts if is_name(part) and program.segment(part) == name]
    if own and program.function(own[0]) is not program.function(bridge):
        new = f"{name}.copy()"
        title = T(en=f"Hand out a copy: `{new}`", zh=f"交出副本：`{new}`")
        return unique(program.text, [Fix(title, program.replace(*((n, new) for n in own)), meaning="later")])
    fix = appended(program, (bridge, ".clone()"))
    return unique(program.text, [Fix(fix.title, fix.edits, meaning="later")])


def _finding(story: Story, kept: Kept) -> Finding:
    span, step = story.span(kept.made.step), kept.made.step
    here, changed = at_line(story, span), at_line(story, story.span(kept.changed))
    used, code = at_line(story, story.span(kept.used)), statement_text(story, span)
    memory = story.storage_name(kept.storage, step)
    written = T(en=f"`{memory}`", zh=f"`{memory}`") if memory else T(en="the memory", zh="内存")
    is_array = kept.made.name in TO_ARRAY
    other = T(en="the array", zh="那个数组") if is_array else T(en="the tensor", zh="那个张量")
    ends = T(en="a NumPy array", zh="一个 NumPy 数组") if is_array else T(en="a tensor", zh="一个张量")
    what = {
        "compared": T(
            en=f"{used.en} compares it with itself, and finds no difference",
            zh=f"{used.zh}把它与自己相比，自然没有差别",
        ),
        "mixed": T(en=f"{used.en} mixes it with itself", zh=f"{used.zh}把它与自己混合"),
        "collected": T(en="every entry that was kept shows the last values", zh="留下的每一项都显示最后的值"),
        "altered": T(en=f"{used.en} continues with the changed numbers", zh=f"{used.zh}继续使用已被改变的数"),
    }[kept.how]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} does not copy: {changed.en} changes {written.en} and {other.en} made of it, and "
            f"{what.en}.",
            zh=f"{here.zh}没有复制：{changed.zh}改变了 {written.zh}，由它产生的{other.zh}也随之改变，于是{what.zh}。",
        ),
        T(
            en=f"`{code}` makes {ends.en} on memory that already belongs to another object: no number is copied. What "
            "is written through one of the two is read through the other, and neither torch nor NumPy says so.",
            zh=f"`{code}` 产生{ends.zh}，用的是已经属于另一个对象的内存，没有复制任何数。经一方写入的数，经另一方就会"
            "读到，而 torch 和 NumPy 都不会提示。",
        ),
        related=[
            story.related(
                "alias",
                step,
                T(en=f"{other.en} made here has no memory of its own", zh=f"在这里产生的{other.zh}没有自己的内存"),
            ),
            story.related("changed", kept.changed, T(en="that memory is written here", zh="这块内存在这里被写入")),
            *relied_on(
                story,
                kept,
                T(
                    en="what was kept is read here: all entries share that memory",
                    zh="在这里读取留下的各项：它们共用这块内存",
                )
                if kept.how == "collected"
                else T(
                    en=f"{other.en} is used here as if it were unchanged", zh=f"在这里使用{other.zh}，好像它没有变过"
                ),
            ),
        ],
        fixes=copied_where_made(story, kept),
        facts=[Fact("storage", kept.storage, story.by(step)), Fact("how", kept.how, story.by(kept.used))],
        severity="info" if kept.how == "altered" else None,
    )


RULE = Rule(
    code="PL701",
    name="numpy-memory-shared",
    severity="warning",
    title=T(en="An array and a tensor on one memory were taken for two", zh="把共用一块内存的数组和张量当成了两份"),
    what=T(
        en="A program turned an array into a tensor, or a tensor into an array, and then changed one of them. Both "
        "look at the same numbers, so the other of the two changes too. Copy where they are to become separate: "
        "`torch.tensor(array)` or `t.numpy().copy()`.",
        zh="程序把数组变成张量（或把张量变成数组），然后继续修改其中一个。两者看着同样的数，所以另一个也跟着改变。请在"
        "分开的地方复制：`torch.tensor(array)` 或 `t.numpy().copy()`。",
    ),
    why=T(
        en="`torch.from_numpy`, `torch.as_tensor` and `t.numpy()` share memory: that makes them free of cost, and "
        "every later write is seen through both. A reading buffer that is filled again and again, and turned into a "
        "tensor each time, gives many tensors on one memory, all showing the last contents. Weights taken out with "
        "`w.detach().numpy()` before a step follow that step. `torch.tensor(array)` always copies, and so do "
        "`.clone()` and NumPy's `.copy()`. Conversions to another type copy as well, which is why such programs work "
        "with `float64` and fail with `float32`.",
        zh="`torch.from_numpy`、`torch.as_tensor` 和 `t.numpy()` 共用内存：所以没有开销，而之后的每次写入两边都能看"
        "到。一个反复填充的读取缓冲区，每次都变成张量，得到的是同一块内存上的许多张量，全都显示最后的内容。在一步更新"
        "之前用 `w.detach().numpy()` 取出的权重，会随着这一步改变。`torch.tensor(array)` 总是复制，`.clone()` 和 "
        "NumPy 的 `.copy()` 也是。转换成别的类型时也会复制，所以这样的程序用 `float64` 时正常，用 `float32` 时出错。",
    ),
    advice=T(
        en="copy on {alias} (`.clone()`, or `.copy()` of an array), so that {changed} writes into other memory.",
        zh="在{alias}复制（`.clone()`，数组用 `.copy()`），让{changed}写入别的内存。",
    ),
    bad="""import numpy as np
import torch

buffer = np.zeros(3, dtype=np.float32)
w = torch.tensor(1.0, requires_grad=True)
rows = []
for i in range(3):
    buffer[:] = [i, 10 * i, 100 * i]  # changed
    rows.append(torch.from_numpy(buffer))  # PL701 alias
batch = torch.stack(rows)
loss = (w * batch).sum()
loss.backward()
print(batch)
""",
    good="""import numpy as np
import torch

buffer = np.zeros(3, dtype=np.float32)
w = torch.tensor(1.0, requires_grad=True)
rows = []
for i in range(3):
    buffer[:] = [i, 10 * i, 100 * i]
    rows.append(torch.from_numpy(buffer).clone())
batch = torch.stack(rows)
loss = (w * batch).sum()
loss.backward()
print(batch)
""",
    find=find,
    traps=(
        Trap(
            "rows.append(torch.from_numpy(buffer))",
            "rows.append(torch.as_tensor(buffer))",
            T(
                en="`as_tensor` shares the memory of an array as well, unless the type has to change.",
                zh="`as_tensor` 同样共用数组的内存，除非类型必须改变。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.from_numpy.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.numpy.html",
    ),
)
