"""PL510: ``retain_graph=True`` kept a graph that no second backward used.

The graph takes up memory, and the argument hides a missing ``detach``.
"""

from __future__ import annotations

from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.needless_backward import NeedlessArgument, finding, needless_arguments
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a backward in a finished program with ``retain_graph=True`` although no later
    backward goes through any of the graphs that it keeps.

    Not where ``create_graph`` is given too.
    """
    for each in needless_arguments(story, "retain_graph", lambda backward: _used_again(story, backward)):
        if not any(k.arg == "create_graph" for k in each.call.keywords):
            yield _finding(story, each)


def _used_again(story: Story, backward: Event) -> bool:
    """Whether a later backward goes through a node of this graph that has saved tensors;
    True if the graph is not known.
    """
    ran = story.nodes_run(backward)
    last = ran[-1].step if ran else backward.step
    start = (
        (story.tensor(backward.operands[0].label, backward.step) or {}).get("grad_fn") if backward.operands else None
    )
    if start is None or not ran:
        return True  # not known
    for node in story.behind(start):
        record = story.record("nodes", node) or {}
        if record.get("saved") and any(
            at > last for at, ran_at in story.history("nodes", node, "ran") if ran_at is not None
        ):
            return True
    return False


def _finding(story: Story, found: NeedlessArgument) -> Finding:
    here, times = at_line(story, story.program.place(found.call)), len(found.backwards)
    return finding(
        RULE,
        story,
        found,
        T(
            en=f"{capital(here.en)} keeps what backward needs for going back a second time, but nothing goes "
            "back through it again.",
            zh=f"{here.zh}保留了第二次反向传播所需的一切，但之后再也没有反向传播经过它。",
        ),
        T(
            en=f"`retain_graph=True` was given {times} time{'s' if times > 1 else ''} on this line, and no later "
            "backward used what was kept. It stays in memory as long as the loss does. Worse, where a second "
            "backward does come by mistake, torch no longer says so.",
            zh=f"这一行共 {times} 次给出 `retain_graph=True`，却没有后来的反向传播用到留下的东西。只要损失还在，它就一"
            "直占用内存。更糟的是，如果因为失误真的发生了第二次反向传播，torch 也不会再提醒。",
        ),
        T(en="the graph is kept here", zh="计算图在这里被保留"),
        T(en="Let torch free the graph: drop `retain_graph=True`", zh="让 torch 释放计算图：去掉 `retain_graph=True`"),
    )


RULE = Rule(
    code="PL510",
    name="needless-retain-graph",
    severity="info",
    title=T(en="A graph was kept that nothing goes through again", zh="保留了再也不会用到的计算图"),
    what=T(
        en="A program made torch keep the graph for a second backward pass, and never ran a second one. That costs "
        "memory, and it hides the mistakes that torch would have reported. Write `loss.backward()`.",
        zh="程序要求 torch 为第二次反向传播保留一切，却从未第二次反向传播。这浪费内存，还会掩盖 torch 本来会报告的错"
        "误。请写 `loss.backward()`。",
    ),
    why=T(
        en="While a loss is computed, torch keeps the tensors that going back will need: the *saved tensors* of the "
        "*graph*. `backward()` uses each once and frees it, so memory falls during the backward pass. With "
        "`retain_graph=True` nothing is freed until the loss is gone. It is meant for two backwards through one "
        "graph, and is often added because of the message *Trying to backward through the graph a second time*; there "
        "the cause is mostly a hidden state that was not detached, or something computed before the loop.",
        zh="计算损失时，torch 会留下往回走所需的张量，即*计算图*中*保存的张量*。`backward()` 每个只用一次，用完就释"
        "放，所以反向传播时内存会下降。给出 `retain_graph=True` 时，在损失消失之前什么也不释放。它用于对同一个图做两次"
        "反向传播；人们常常因为看到 *Trying to backward through the graph a second time* 而加上它，但那时的原因多半是"
        "隐藏状态没有 detach，或者有东西在循环之前就算好了。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.05)
for step in range(3):
    opt.zero_grad()
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward(retain_graph=True)  # PL510 kept
    opt.step()
    print(w.item())
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
opt = torch.optim.SGD([w], lr=0.05)
for step in range(3):
    opt.zero_grad()
    loss = ((w * x - 2 * x) ** 2).mean()
    loss.backward()
    opt.step()
    print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "    opt.step()",
            "    opt.step()\n    del loss",
            T(
                en="The memory is free a little earlier, after the backward pass. During it, when memory is scarcest, "
                "everything is still kept.",
                zh="内存稍早一些（反向传播之后）得到释放。但在反向传播期间，内存最紧张的时候，一切仍被保留。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html",
    ),
)
