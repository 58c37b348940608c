"""PL605: a gradient was kept without a copy. The next backward, or clearing it, writes into the same storage."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.snapshots import COLLECTING, Aliases, Kept, copied_where_made, relied_on
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.training import BACKWARDS
from pitfall_lab.rules.kit.wording import at_line, capital, snippet, statement_text
from pitfall_lab.rules.signals.operand_names import all_written_as
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, Span, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that keeps a ``.grad`` without a copy, where a later backward, or clearing it,
    overwrites the storage, and the kept tensor is then used as the old gradient.

    Only in programs that finished.
    """
    if story.trace.outcome.kind != "finished":
        return
    aliases = Aliases(story, "grad")
    reported = set()
    for kept in (*aliases.compared(), *aliases.collected(), *_read_by_name(story, aliases), *_combined(story, aliases)):
        place = story.span(kept.made.step)
        if place not in reported and _replaces(story, kept.changed):
            reported.add(place)
            yield _finding(story, kept)


def _read_by_name(story: Story, aliases: Aliases) -> Iterator[Kept]:
    """Yield gradients that were assigned, and that a call read after they had been overwritten, without ``.grad`` being
    read again.

    Writes and backwards do not count as reads.
    """
    fetched: dict[str, list[Event]] = {}
    for made, label, _ in aliases.made:
        fetched.setdefault(label, []).append(made)
    for label, gets in fetched.items():
        storage = (story.tensor(label) or {}).get("storage")
        for use in story.uses(label) if storage else ():
            fetches = [get for get in gets if get.step < use.step]
            made = fetches[-1] if fetches else use
            if (
                made is use
                or use.writes
                or not isinstance(story.program.statement_at(story.span(made.step)), ast.Assign)
            ):
                continue
            changed = next(iter(story.writes(str(storage), made.step, use.step)), None)
            if changed is not None and use.op not in BACKWARDS and not use.op.endswith("grad.__get__"):
                yield Kept("compared", made, label, str(storage), changed, use.step)


def _combined(story: Story, aliases: Aliases) -> Iterator[Kept]:
    """Yield gradients of one leaf that were kept at different times and are one tensor, if a call uses them as two
    operands.

    Each is yielded with the first write that replaced the gradient between the first and the last time.
    """
    fetched: dict[str, list[tuple[Event, str]]] = defaultdict(list)
    for made, label, storage in aliases.made:
        fetched[storage].append((made, label))
    passed: dict[Span | None, int] = {}
    for event in story.calls() if fetched else ():
        shared = (
            _operands_of_one_memory(story, event, fetched) if len(event.operands) > 1 and event.error is None else None
        )
        if shared is None:
            continue
        since, passed[event.span] = passed.get(event.span, -1), event.step
        gets = [(made, label) for made, label in fetched[shared] if since < made.step < event.step]
        for made, label in gets:
            written = [step for step in story.writes(shared, made.step, gets[-1][0].step) if _replaces(story, step)]
            if written and _is_kept(story, made):
                yield Kept("compared", made, label, shared, written[0], event.step)
                break


def _operands_of_one_memory(story: Story, event: Event, fetched: Mapping[str, object]) -> str | None:
    """Return the storage of a gradient that is two operands of a call, if the program has different expressions for
    them; else None.
    """
    records = [story.tensor(o.label, event.step) or {} for o in event.operands if o.label is not None]
    one = next(
        (
            r
            for i, r in enumerate(records)
            if r.get("storage") in fetched and any(same_piece(r, q) for q in records[:i])
        ),
        None,
    )
    if one is None:
        return None
    same = [
        o.label for o in event.operands if o.label is not None and same_piece(story.tensor(o.label, event.step), one)
    ]
    texts = {ast.dump(each) for each in all_written_as(story, event, *same)}
    return str(one["storage"]) if len(texts) > 1 else None


def _is_kept(story: Story, made: Event) -> bool:
    """Whether a ``.grad`` that was read is assigned, put into a collection, or returned, possibly after views.

    False if it is used in a calculation, or is an argument of any other call.
    """
    node = story.program.at(story.span(made.step))
    while node is not None:
        parent = story.program.parents.get(node)
        if isinstance(parent, ast.stmt):
            return isinstance(parent, ast.Assign | ast.Return) and (
                isinstance(parent, ast.Return) or node is parent.value
            )
        if isinstance(parent, ast.Call) and node in parent.args:
            return called(parent) in COLLECTING
        if isinstance(parent, ast.BinOp | ast.Compare | ast.UnaryOp | ast.AugAssign):
            return False
        node = parent
    return False


def _replaces(story: Story, step: int) -> bool:
    """Whether the write to a ``.grad`` is a backward, or clears it; False if it only clips or scales it, for
    example.
    """
    outer = story.outer_call(step)
    return outer is not None and (outer.op in BACKWARDS or outer.name in ("zero_", "_foreach_zero_", "zero_grad"))


def _finding(story: Story, kept: Kept) -> Finding:
    span, step = story.span(kept.made.step), kept.made.step
    here, changed, used = (at_line(story, story.span(at)) for at in (step, kept.changed, kept.used))
    code, outer = snippet(story, span), story.outer_call(kept.changed)
    cleared = outer is not None and outer.op not in BACKWARDS
    how = (
        T(en="sets it to zero", zh="把它清零")
        if cleared
        else T(en="adds the next gradient to it", zh="把下一个梯度加到它上面")
    )
    then = T(en=f"{used.en} reads something else than was kept", zh=f"{used.zh}读到的不是当时留下的东西")
    if kept.how == "collected":
        then = T(en="all entries are the same", zh="所有各项都一样")
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} keeps the gradient itself, not a copy of it: {changed.en} {how.en}, and {then.en}.",
            zh=f"{here.zh}留下的是梯度本身，而不是副本：{changed.zh}{how.zh}，于是{then.zh}。",
        ),
        T(
            en=f"`{code}` is the tensor that torch continues to use for this parameter. As long as it is there, each "
            "backward adds to it in place, and `zero_()` clears it in place; a name that was kept for it shows that.",
            zh=f"`{code}` 就是 torch 为这个参数一直使用的张量。只要它还在，每次反向传播都就地加到它上面，`zero_()` 也"
            "就地清零；留着它的人都会看到这些变化。",
        ),
        related=[
            story.related("kept", step, T(en="the gradient is kept here", zh="梯度在这里被留下")),
            story.related("changed", kept.changed, T(en="its memory is written here", zh="它的内存在这里被写入")),
            *relied_on(story, kept, T(en="it is relied on here", zh="在这里用到它")),
        ],
        fixes=copied_where_made(story, kept),
        facts=[
            Fact("gradient", kept.label, story.by(step)),
            Fact("written by", statement_text(story, story.span(kept.changed))),
        ],
    )


RULE = Rule(
    code="PL605",
    name="gradient-alias-overwritten",
    severity="warning",
    title=T(en="A gradient was kept without a copy and overwritten", zh="留下梯度时没有复制，之后被覆盖"),
    what=T(
        en="A program kept `w.grad` under another name or in a list, ran backward again, and used what it had kept. "
        "The second backward had added its own gradient to the same numbers. Keep a copy: `w.grad.clone()`.",
        zh="程序把 `w.grad` 用另一个名字或放进列表里留下，再次反向传播，然后使用留下的东西。第二次反向传播已经把自己的"
        "梯度加到了同样的数上。请保留副本：`w.grad.clone()`。",
    ),
    why=T(
        en="The first backward makes a tensor for the gradient of each parameter and puts it into `.grad`. Later ones "
        "*accumulate*: they add into this very tensor. `grads.append(w.grad)` in a loop therefore collects one tensor "
        "many times. After `optimizer.zero_grad()`, which sets `.grad` to `None`, the next backward makes a new "
        "tensor, and what was kept is safe: such programs work only until `zero_grad(set_to_none=False)` is written "
        "in them or they accumulate over batches.",
        zh="第一次反向传播为每个参数的梯度创建一个张量，放进 `.grad`。之后的反向传播会*累积*：加到这同一个张量上。因此"
        "循环里的 `grads.append(w.grad)` 是把同一个张量收集了许多次。`optimizer.zero_grad()` 会把 `.grad` 设为 "
        "`None`，下一次反向传播就创建新的张量，留下的东西便是安全的：这样的程序靠运气工作，直到有人写了 "
        "`zero_grad(set_to_none=False)` 或跨批次累积。",
    ),
    advice=T(
        en="keep a copy of the gradient on {kept}: `.clone()`.",
        zh="在{kept}留下梯度的副本：`.clone()`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
((w * x) ** 2).sum().backward()
first = w.grad  # PL605 kept
((w * x) ** 3).sum().backward()  # changed
second = w.grad - first  # used
ratio = w * second
ratio.backward()
print(second)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
((w * x) ** 2).sum().backward()
first = w.grad.clone()
((w * x) ** 3).sum().backward()
second = w.grad - first
ratio = w * second
ratio.backward()
print(second)
""",
    find=find,
    traps=(
        Trap(
            "first = w.grad",
            "first = w.grad.detach()",
            T(
                en="`detach()` gives a new tensor on the same memory: the second backward still writes into it.",
                zh="`detach()` 给出同一块内存上的新张量：第二次反向传播仍会写入它。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
    ),
)
