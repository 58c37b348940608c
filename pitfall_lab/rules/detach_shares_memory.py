"""PL702: a detached tensor was taken for a copy. It shares its storage with its source, so what was kept continues to
change.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.snapshots import Aliases, Kept, copied_where_made, relied_on
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, expression, statement_text
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``detach()`` or ``.data`` whose result was used as a copy, although the run shows that
    it shares its storage with its source.

    Nothing if the program did not finish, or if some gradient was computed with changed numbers (the trace's
    ``harms``).
    """
    if story.trace.outcome.kind != "finished" or story.trace.harms:
        return
    aliases = Aliases(story, "detach", "data")
    found = list(aliases.kept())
    places = {kept.made.span for kept in found}
    for kept in (*found, *(each for each in aliases.best() if each.made.span not in places)):
        if kept.how == "best" and kept.made.span in places:
            continue
        places.add(kept.made.span)
        source = story.tensor(kept.made.operands[0].label, kept.made.step) or {}
        by_reference = kept.how == "mixed" and story.said(kept.made.step) == "state_dict"  # another rule
        if not by_reference and (kept.how != "altered" or source.get("grad_fn")):
            yield _finding(story, kept)


def _finding(story: Story, kept: Kept) -> Finding:
    span, step = story.span(kept.made.step), kept.made.step
    source, here = expression(story, kept.made.operands[0].label, step), at_line(story, span)
    changed, used = at_line(story, story.span(kept.changed)), at_line(story, story.span(kept.used))
    what = {
        "compared": T(
            en=f"{used.en} compares {source.en} with itself, and finds no difference",
            zh=f"{used.zh}把 {source.zh} 与它自己相比，自然没有差别",
        ),
        "mixed": T(
            en=f"{used.en} mixes {source.en} with itself",
            zh=f"{used.zh}把 {source.zh} 与它自己混合",
        ),
        "collected": T(
            en="every entry that was kept shows the last values",
            zh="留下的每一项都显示最后的值",
        ),
        "altered": T(
            en=f"{used.en} continues with changed numbers in {source.en}",
            zh=f"{used.zh}用的是 {source.zh} 中已被改变的数",
        ),
        "best": T(
            en=f"{used.en} reads the newest numbers where those of the best round are meant",
            zh=f"{used.zh}读到的是最新的数，而这里要的是最好那一轮的数",
        ),
        "activated": T(
            en=f"{used.en} reads what a layer that works in place has made of it",
            zh=f"{used.zh}读到的是一个就地工作的层改过之后的数",
        ),
    }[kept.how]
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} keeps {source.en} without copying it, {changed.en} changes it, and {what.en}.",
            zh=f"{here.zh}留下了 {source.zh}，却没有复制；{changed.zh}改变了它，于是{what.zh}。",
        ),
        T(
            en=f"`{statement_text(story, span)}` gives a new tensor without a history, but on the same "
            f"memory. What `{_code(story, kept)}` writes is seen through both. `detach()` is about gradients; "
            "`clone()` copies numbers.",
            zh=f"`{statement_text(story, span)}` 给出一个没有历史的新张量，但用的是同一块内存。`{_code(story, kept)}` "
            "写入的东西，两边都能看到。`detach()` 只与梯度有关；复制数值的是 `clone()`。",
        ),
        related=[
            story.related("alias", step, T(en="a second way into the same memory", zh="进入同一块内存的第二条路")),
            story.related("changed", kept.changed, T(en="the memory is written here", zh="内存在这里被写入")),
            *relied_on(story, kept, T(en="what was kept is relied on here", zh="在这里用到了所留下的东西")),
        ],
        fixes=copied_where_made(story, kept),
        facts=[Fact("storage", kept.storage, story.by(step)), Fact("how", kept.how, story.by(kept.used))],
    )


def _code(story: Story, kept: Kept) -> str:
    return statement_text(story, story.span(kept.changed))


RULE = Rule(
    code="PL702",
    name="detach-shares-memory",
    severity="warning",
    title=T(en="A detached tensor was taken for a copy", zh="把 detach 的结果当成了副本"),
    what=T(
        en="A program kept the old weights with `w.detach()`, trained, and compared: nothing seemed to have changed. "
        "What it had kept was not a copy but a second name for the same numbers. Write `w.detach().clone()`.",
        zh="程序用 `w.detach()` 留下旧的权重，训练之后再比较：好像什么也没有变。它留下的并不是副本，而是同样那些数的第"
        "二个名字。请写 `w.detach().clone()`。",
    ),
    why=T(
        en="`detach()` (and `.data`) answers with a new tensor that has no *graph*, the record of how it was "
        "computed, and that looks at the same *storage*, the memory with the numbers. So it costs nothing, and every "
        "write in place through one of the two is seen through the other: an optimizer's step, `+=`, `zero_()`. "
        "`clone()` makes new memory. For a copy without a history write both: `w.detach().clone()`.",
        zh="`detach()`（以及 `.data`）给出一个没有*计算图*（如何算出的记录）的新张量，它看着同一个*存储*，即存放数值的"
        "内存。所以它没有开销，而通过两者之一的任何就地写入，另一个都能看到：优化器的一步、`+=`、`zero_()`。`clone()` "
        "则产生新的内存。想要没有历史的副本，就两个都写：`w.detach().clone()`。",
    ),
    advice=T(
        en="keep a copy on {alias}: `.detach().clone()`.",
        zh="在{alias}留下副本：`.detach().clone()`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
before = w.detach()  # PL702 alias
loss = ((w * x - 2 * x) ** 2).mean()
loss.backward()
opt.step()  # changed
moved = (w - before).norm()  # used
print(f"{moved.item():.4f}")
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor([0.5, 0.5, 0.5], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
before = w.detach().clone()
loss = ((w * x - 2 * x) ** 2).mean()
loss.backward()
opt.step()
moved = (w - before).norm()
print(f"{moved.item():.4f}")
""",
    find=find,
    traps=(
        Trap(
            "before = w.detach()",
            "before = w.data",
            T(
                en="`.data` is the same memory again, with even fewer checks.",
                zh="`.data` 还是同一块内存，检查反而更少。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.clone.html",
    ),
)
