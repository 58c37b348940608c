"""PL512: ``create_graph=True`` recorded how a gradient was computed, and nothing ever differentiated that gradient."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.needless_backward import NeedlessArgument, finding, needless_arguments
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a finished program with ``create_graph=True`` although no later backward goes
    through any of the gradients that its runs recorded, nor again through the graphs that these went through.
    """
    for each in needless_arguments(story, "create_graph", lambda backward: _needed(story, backward)):
        yield _finding(story, each)


@lru_cache(maxsize=1)
def _recorded(story: Story) -> dict[int, list[str]]:
    """The nodes that each backward made, by its step: what it recorded of its own computation."""
    found: dict[int, list[str]] = defaultdict(list)
    for node, record in story.nodes.items():
        if (outer := story.outer_call(record.get("born"))) is not None:
            found[outer.step].append(node)
    return found


def _needed(story: Story, backward: Event) -> bool:
    """Whether a backward went through what this one recorded, or through its own graph
    again; True if that is unknown.
    """
    nodes = _recorded(story).get(backward.step, [])
    ran = story.nodes_run(backward)
    if not nodes or not ran:
        return True
    last = ran[-1].step
    start = (
        (story.tensor(backward.operands[0].label, backward.step) or {}).get("grad_fn") if backward.operands else None
    )
    again = (node for node in story.behind(start) if (story.record("nodes", node) or {}).get("saved"))
    runs = (at for node in [*nodes, *again] for at, value in story.history("nodes", node, "ran") if value is not None)
    return start is None or any(at > last for at in runs)


def _finding(story: Story, found: NeedlessArgument) -> Finding:
    here, times = at_line(story, story.program.place(found.call)), len(found.backwards)
    return finding(
        RULE,
        story,
        found,
        T(
            en=f"{capital(here.en)} records how its gradients are computed, but no gradient of these "
            "gradients is computed.",
            zh=f"{here.zh}记录了梯度是怎样求出来的，但之后没有任何东西要对这些梯度再求梯度。",
        ),
        T(
            en=f"`create_graph=True` was given {times} time{'s' if times > 1 else ''} on this line. Each time torch "
            "recorded every step of the backward pass as well, which takes memory and time; and the graph of the "
            "forward pass is kept as long as the gradients are. No later backward went through that record.",
            zh=f"这一行共 {times} 次给出 `create_graph=True`。每一次，torch 都把往回走的每一步也记录下来，这要占用内存"
            "和时间；只要这些梯度还在，前向计算的图也一直保留。之后没有任何反向传播经过这份记录。",
        ),
        T(en="the computation of the gradients is recorded here", zh="梯度的计算在这里被记录"),
        T(en="Compute plain gradients: drop `create_graph=True`", zh="只求梯度本身：去掉 `create_graph=True`"),
    )


RULE = Rule(
    code="PL512",
    name="needless-create-graph",
    severity="info",
    title=T(en="The computation of a gradient was recorded and never used", zh="记录了梯度的计算过程，却从未用到"),
    what=T(
        en="A program made torch record how a gradient was computed, as if a gradient of that gradient were wanted, "
        "and never computed one. That costs time and memory in every round. Leave `create_graph=True` out.",
        zh="程序要求 torch 记住梯度是怎样求出来的，好像还要对这个梯度再求梯度，但从来没有这样做。每一轮都为此浪费时间"
        "和内存。请去掉 `create_graph=True`。",
    ),
    why=T(
        en="Going back from a loss to the parameters is a computation itself: multiplications and sums. Normally "
        "torch does it without building a *graph* (the record that going back needs). With `create_graph=True` it "
        "builds one, so that a loss can contain a gradient: a gradient penalty, a second derivative, a learning step "
        "that is itself learned. The gradient then has a `grad_fn`, and keeps everything that it was computed from "
        "alive; `w.grad` and `w` hold each other in memory until `w.grad` is set to `None`. It is often added to "
        "silence *Trying to backward through the graph a second time*, because it also keeps the first graph.",
        zh="从损失走回参数本身也是计算：乘法和加法。通常 torch 做这些时不建*计算图*（往回走所需的记录）。给出 "
        "`create_graph=True` 时它会建图，这样损失里就可以含有梯度：梯度惩罚、二阶导数、本身也要学习的学习步骤。这时梯"
        "度带有 `grad_fn`，并让得到它的一切都留在内存里；`w.grad` 与 `w` 互相牵住，直到 `w.grad` 被设为 `None`。人们常"
        "常为了让 *Trying to backward through the graph a second time* 消失而加上它，因为它也会保留第一张图。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
for step in range(3):
    loss = ((w * x - 2 * x) ** 2).mean()
    (slope,) = torch.autograd.grad(loss, w, create_graph=True)  # PL512 kept
    with torch.no_grad():
        w -= 0.05 * slope
    print(w.item())
""",
    good="""import torch

x = torch.tensor([1.0, 2.0, 3.0])
w = torch.tensor(0.5, requires_grad=True)
for step in range(3):
    loss = ((w * x - 2 * x) ** 2).mean()
    (slope,) = torch.autograd.grad(loss, w)
    with torch.no_grad():
        w -= 0.05 * slope
    print(w.item())
""",
    find=find,
    traps=(
        Trap(
            "w -= 0.05 * slope",
            "w -= 0.05 * slope.detach()",
            T(
                en="`detach()` cuts the record off after it has been made. The time and the memory are still spent.",
                zh="`detach()` 是在记录已经做好之后才把它切断。时间和内存照样花掉了。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
    ),
)
