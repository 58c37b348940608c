"""PL601: a backward added its gradients to those that an update had already used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.training import Moment, cells, is_nothing, lives, same_update, stepper
from pitfall_lab.rules.kit.wording import at_line, called, capital, gradient_of, numbers, snippet
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line whose backward added to gradients that an update had used before, without
    clearing, and that an update used again after it.
    """
    reported: set[object] = set()
    for label, moments in lives(story).items():
        for first, added, second in _leftovers(story, moments):
            if (place := story.span(added.step)) is not None and place not in reported:
                reported.add(place)
                yield _finding(story, label, first, added, second)


def _leftovers(story: Story, moments: list[Moment]) -> Iterator[tuple[Moment, Moment, Moment]]:
    """Yield an update, the backward that added to the gradient it had used, and the next update
    by the same line or optimizer.

    The backward must come from the same line as one whose gradient the first update used: two losses that alternate
    with one optimizer may be intended.
    """
    used: list[Moment] = []  # an update of one round may be several calls: a step, then a projection
    added: Moment | None = None
    sources: set[str] = set()
    for moment in moments:
        if moment.kind == "used":
            if added is not None:
                same = next((each for each in used if same_update(story, each, moment)), None)
                if same is not None:
                    yield same, added, moment
                used, added = [], None
            used.append(moment)
        elif moment.kind == "added":
            if not used:
                sources.add(snippet(story, story.span(moment.step)))
            elif added is None and moment.fresh:
                used, sources = [], {snippet(story, story.span(moment.step))}
            elif added is None and snippet(story, story.span(moment.step)) in sources:
                added = None if is_nothing(story, moment.storage, moment.step - 1) else moment
        elif (
            moment.kind == "cleared" or added is None
        ):  # what is only scaled down after an update is a momentum by hand
            used, added, sources = [], None, set() if moment.kind == "cleared" else sources


def _finding(story: Story, label: str, first: Moment, added: Moment, second: Moment) -> Finding:
    gradient = gradient_of(called(story, label, None, added.step))
    here, before, after = (at_line(story, story.span(m.step)) for m in (added, first, second))
    old, new = cells(story, added.storage, added.step - 1), cells(story, first.grad and added.storage, added.step)
    held = T(en=f"{gradient.en} still held", zh=f"{gradient.zh} 里仍是")
    shown = (
        T(
            en=f" {capital(held.en)} {numbers(old)}; with the new gradient added it became {numbers(new)}.",
            zh=f"{held.zh} {numbers(old)}；加上新的梯度后变成了 {numbers(new)}。",
        )
        if old is not None and new is not None
        else T(en="", zh="")
    )
    return RULE.finding(
        story.span(added.step),
        added.step,
        T(
            en=f"The gradients are not cleared after the update on {before.en}: {here.en} adds new ones to them, and "
            f"{after.en} uses the sum.",
            zh=f"{before.zh}的更新之后没有清零梯度：{here.zh}把新的梯度加到旧的上面，{after.zh}用的是两者之和。",
        ),
        T(
            en=f"`backward()` never replaces a gradient, it adds to what is there.{shown.en} Every update "
            "then uses the sum of all gradients so far, not those of the latest `backward()` alone. Clear "
            "them once for each update.",
            zh=f"`backward()` 从不替换梯度，而是加到已有的上面。{shown.zh}这样每次更新用的都是至今所有梯度之和，"
            "而不只是最近一次 `backward()` 的梯度。每次更新都应清零一次。",
        ),
        related=[
            story.related(
                "step",
                first.step,
                T(en="this update uses the gradients, and they are not cleared", zh="这次更新用了梯度，之后没有清零"),
            ),
            story.related(
                "backward",
                added.step,
                T(en="the new gradients are added to the old ones in `.grad`", zh="新的梯度加到 `.grad` 里旧的上面"),
            ),
            story.related(
                "step",
                second.step,
                T(en="the next update uses old and new gradients together", zh="下一次更新用的是新旧梯度之和"),
            ),
        ],
        fixes=_fixes(story, added, second),
        facts=[Fact("tensor", label, story.by(added.step)), Fact("left", old), Fact("sum", new)],
    )


def _fixes(story: Story, added: Moment, second: Moment) -> tuple[Fix, ...]:
    program = story.program
    backward, update = (program.statement_at(story.span(m.step)) for m in (added, second))
    if program.tree is None or backward is None or update is None:
        return ()
    optimizer = stepper(story, second.step)
    lines = [f"{optimizer}.zero_grad()"] if optimizer else [f"{name}.grad = None" for name in _gradients(story, update)]
    if not lines:
        return ()
    shown = "; ".join(lines)
    before = Fix(T(en=f"Clear the gradients before the backward: `{shown}`", zh=f"在反向传播之前清零：`{shown}`"),
                 program.insert_before(backward, *lines), meaning="recompute")  # fmt: skip
    after = Fix(T(en=f"Clear the gradients after the update: `{shown}`", zh=f"在更新之后清零：`{shown}`"),
                program.insert_after(update, *lines), meaning="recompute")  # fmt: skip
    together = program.function(backward) is program.function(update)
    near = backward in program.block(update) if together else _sees(program, backward, update, optimizer)
    return unique(program.text, [before, after] if optimizer is not None and near else [after])


def _sees(program: Program, backward: ast.stmt, update: ast.stmt, optimizer: str | None) -> bool:
    """Whether the optimizer's name at the update is also visible in the function that calls backward."""
    around = program.function(update)
    return bool(optimizer and optimizer.isidentifier()) and (around is None or around in program.ancestors(backward))


def _gradients(story: Story, update: ast.stmt) -> list[str]:
    """The source texts, without ``.data``, of the tensors whose gradient an update by hand reads: ``w`` in ``w -= 0.1 *
    w.grad``.
    """
    reads = (n for n in ast.walk(update) if isinstance(n, ast.Attribute) and n.attr == "grad")
    return list(dict.fromkeys(story.program.segment(n.value).removesuffix(".data") for n in reads))


RULE = Rule(
    code="PL601",
    name="missing-zero-grad",
    severity="warning",
    title=T(en="Gradients of earlier rounds were never cleared", zh="之前各轮的梯度从未清零"),
    what=T(
        en="A training loop never throws its old gradients away: every round adds new ones to them, and the update "
        "follows the sum. Clear them once in each round with `optimizer.zero_grad()`.",
        zh="训练循环从不丢弃旧的梯度：每一轮都把新梯度加上去，更新走的是总和。请在每一轮里用 "
        "`optimizer.zero_grad()` 清零一次。",
    ),
    why=T(
        en="`backward()` *adds* to `.grad`. This is meant: several losses, or several small batches, can build up one "
        "gradient before one update. Torch cannot know when you begin a new one, so it never clears `.grad` by "
        "itself, and `optimizer.step()` only reads it. Without `zero_grad()` the updates get larger and larger, point "
        "in old directions, and swing past the minimum. Some programs still learn like this, only worse, which makes "
        "the mistake hard to see.",
        zh="`backward()` 把梯度*累加*到 `.grad` 里。这是有意的：几个损失或几个小批次可以先累积成一个梯度，再更新一"
        "次。torch 无法知道你何时开始新的一轮，所以从不自己清零，而 `optimizer.step()` 只是读取它。没有 "
        "`zero_grad()`，更新会越来越大，指向过去的方向，在最小值附近来回摆动。有些程序这样也能学到东西，只是更差，"
        "所以这个错误很难发现。",
    ),
    advice=T(
        en="clear the gradients once for each update, between {step} and the next {code} on {line}: with "
        "`zero_grad()` of every optimizer, or of the whole model.",
        zh="每次更新都清零一次，在{step}与下一次{line}的 {code} 之间：对每个优化器或整个模型调用 `zero_grad()`。",
    ),
    bad="""import torch

w = torch.tensor([1.0, -2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.2)
for _ in range(4):
    loss = (w ** 2).sum()
    loss.backward()  # PL601 backward
    opt.step()  # step
    print(round(loss.item(), 3), w.grad)
""",
    good="""import torch

w = torch.tensor([1.0, -2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.2)
for _ in range(4):
    loss = (w ** 2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(round(loss.item(), 3), w.grad)
""",
    find=find,
    traps=(
        Trap(
            "    loss.backward()\n",
            "    loss.backward()\n    opt.zero_grad()\n",
            T(
                en="Cleared too early: the new gradients are gone before `step()` could use them, "
                "and nothing is learned.",
                zh="清零太早：新的梯度在 `step()` 使用之前就没了，什么也学不到。",
            ),
        ),
        Trap(
            "lr=0.2",
            "lr=0.05",
            T(
                en="A smaller learning rate makes the sum of old gradients less violent; it is still "
                "the sum of all of them.",
                zh="更小的学习率只是让旧梯度之和不那么剧烈；它仍然是所有梯度之和。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.zero_grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
    ),
)
