"""PL603: gradients were clipped after the update had used them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import takewhile

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.reordering import meeting
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.training import Moment, cells, lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, gradient_of, numbers
from pitfall_lab.rules.signals.clipping import CLIPS, is_clip, is_effective
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that clipped gradients too late or too early.

    Too late is after the update that used them, before they were cleared. Too early is before a gradient scaler
    unscaled them, or before the backward that fills them.
    """
    reported: set[object] = set()
    for label, moments in lives(story).items():
        for index, clip in enumerate(moments):
            place = story.span(clip.step)
            following = moments[index + 1].kind if index + 1 < len(moments) else "cleared"
            if clip.kind != "changed" or place in reported or not is_clip(story, clip):
                continue
            if (unscale := _unscaled_later(moments[index + 1 :])) is not None and is_effective(story, clip):
                reported.add(place)
                yield _early(story, label, clip, unscale)
            if following != "cleared":
                continue
            before = [m for m in moments[:index] if m.kind != "changed"]
            if (
                len(before) > 1
                and before[-1].kind == "used"
                and before[-2].kind == "added"
                and is_effective(story, clip)
            ):
                reported.add(place)
                yield _finding(story, label, before[-2], before[-1], clip)
    for call, added in _before_backward(story):
        if (place := story.span(call.step)) not in reported:
            reported.add(place)
            yield _early(story, None, Moment("changed", call.step, call), added)


def _unscaled_later(following: list[Moment]) -> Moment | None:
    """Return the moment at which a gradient scaler unscales the gradient, if only other changes of the gradient come
    before it; else None.
    """
    changes = takewhile(lambda moment: moment.kind == "changed", following)
    return next((moment for moment in changes if "unscale" in moment.event.name), None)


def _before_backward(story: Story) -> Iterator[tuple[Event, Moment]]:
    """Yield the first call of each clipping made while every ``.grad`` is empty, with the moment at which the first
    gradient is added afterwards.

    Only if each gradient is then added once and used.
    """
    for run in story.runs(*(name for name in CLIPS if name.startswith("clip_grad"))):
        step = run[0].step
        places = [(moments, sum(m.step < step for m in moments)) for moments in lives(story).values()]
        following = [moments[at : at + 2] for moments, at in places]
        held = any(at and moments[at - 1].kind != "cleared" for moments, at in places)
        used = [next_ for next_ in following if [m.kind for m in next_] == ["added", "used"]]
        if used and not held and len(used) == len(following):
            yield run[0], used[0][0]


def _early(story: Story, label: str | None, clip: Moment, later: Moment) -> Finding:
    """Return the finding about clipping that runs before the gradients are computed, or before the scaler divides them
    by its factor.
    """
    scaled = "unscale" in later.event.name
    here, there = at_line(story, story.span(clip.step)), at_line(story, story.span(later.step))
    why = (
        T(
            en=f"limits the gradients while they are still multiplied by the scaler's factor; {there.en} divides by "
            "it afterwards, so the limit is smaller by that factor.",
            zh=f"限制梯度时，它们还乘着缩放器的系数；{there.zh}之后才除以它，所以实际的上限要小那么多倍。",
        )
        if scaled
        else T(
            en=f"limits the gradients before {there.en} computes them: there is nothing to limit, and the update "
            "uses them as they are.",
            zh=f"在{there.zh}算出梯度之前就限制梯度：此时没有可限制的，更新原样使用它们。",
        )
    )
    return RULE.finding(
        story.span(clip.step),
        clip.step,
        T(en=f"{capital(here.en)} {why.en}", zh=f"{here.zh}{why.zh}"),
        T(
            en="Clipping changes the numbers in `.grad` at the moment of the call. It belongs between the backward "
            "and the update, and with a gradient scaler after `scaler.unscale_(optimizer)`.",
            zh="裁剪改变的是调用那一刻 `.grad` 里的数。它应当放在反向传播与更新之间；使用梯度缩放器时，还要放在 "
            "`scaler.unscale_(optimizer)` 之后。",
        ),
        related=[
            story.related("changed", clip.step, T(en="clipped here", zh="在这里裁剪")),
            story.related(
                "step" if scaled else "backward",
                later.step,
                T(en="the scaler's factor is divided out only here", zh="缩放器的系数到这里才除去")
                if scaled
                else T(en="the gradients are computed only here", zh="梯度到这里才算出"),
            ),
        ],
        fixes=_unscaled(story, clip, later) if scaled else _moved_down(story, clip, later),
        facts=[Fact("tensor", label, story.by(clip.step))],
    )


def _unscaled(story: Story, clip: Moment, later: Moment) -> tuple[Fix, ...]:
    """At most one fix: it calls the scaler's ``unscale_`` before the clipping; empty unless the scaler's ``step`` is in
    the same block.
    """
    program = story.program
    clipping, stepping = (
        (program.statement_at(story.span(m.step)) for m in (clip, later)) if program.tree is not None else (None, None)
    )
    calls = (
        [n for n in ast.walk(stepping) if isinstance(n, ast.Call) and call_name(n) == "step"]
        if stepping is not None
        else []
    )
    if (
        clipping is None
        or stepping is None
        or program.block(clipping) is not program.block(stepping)
        or len(calls) != 1
    ):
        return ()
    if not isinstance(calls[0].func, ast.Attribute) or len(calls[0].args) != 1:
        return ()
    new = f"{program.segment(calls[0].func.value)}.unscale_({program.segment(calls[0].args[0])})"
    title = T(en=f"Divide by the factor first: `{new}`", zh=f"先除以缩放系数：`{new}`")
    return unique(program.text, [Fix(title, program.insert_before(clipping, new), meaning="later")])


def _moved_down(story: Story, clip: Moment, added: Moment) -> tuple[Fix, ...]:
    """At most one fix: it moves the clipping to after the backward; empty if the two are not statements of
    one block.
    """
    program = story.program
    clipping, backward = (
        (program.statement_at(story.span(m.step)) for m in (clip, added)) if program.tree is not None else (None, None)
    )
    if (
        clipping is None
        or backward is None
        or program.block(clipping) is not program.block(backward)
        or not program.stands_alone(clipping)
    ):
        return ()
    edits = merge(program.delete(clipping), program.insert_after(backward, program.segment(clipping)))
    title = T(en="Clip after the backward", zh="在反向传播之后裁剪")
    return unique(program.text, [Fix(title, edits, meaning="recompute")]) if edits else ()


def _finding(story: Story, label: str, added: Moment, used: Moment, clip: Moment) -> Finding:
    gradient = gradient_of(called(story, label, None, clip.step))
    here, update = at_line(story, story.span(clip.step)), at_line(story, story.span(used.step))
    large, small = cells(story, clip.storage, clip.step - 1), cells(story, clip.storage, clip.step)
    known = large is not None and small is not None and numbers(large) != numbers(small)
    shown = T(
        en=f" Here {gradient.en} is {numbers(large)} when the update uses it, and becomes {numbers(small)} afterwards."
        if known
        else "",
        zh=f"这里更新使用时 {gradient.zh} 是 {numbers(large)}，之后才变成 {numbers(small)}。" if known else "",
    )
    return RULE.finding(
        story.span(clip.step),
        clip.step,
        T(
            en=f"{capital(here.en)} limits the gradients after {update.en} has used them, so the update "
            "was not limited at all.",
            zh=f"{here.zh}限制梯度时，{update.zh}已经用过它们了，所以这次更新完全没有受到限制。",
        ),
        T(
            en="Clipping limits how far one update can move the weights. It changes the numbers in `.grad`, and the "
            f"update reads them.{shown.en} It has to be between the backward and the update.",
            zh=f"裁剪限制一次更新能把权重移动多远。它改的是 `.grad` 里的数值，而更新读取这些数值。{shown.zh}它必须放在"
            "反向传播与更新之间。",
        ),
        related=[
            story.related("backward", added.step, T(en="the gradients are computed here", zh="梯度在这里算出")),
            story.related("step", used.step, T(en="this update uses them as they are", zh="这次更新原样使用了它们")),
            story.related(
                "changed",
                clip.step,
                T(en="they are clipped when they have been used already", zh="已经没人需要时才裁剪它们"),
            ),
        ],
        fixes=_fixes(story, used, clip),
        facts=[Fact("tensor", label, story.by(clip.step)), Fact("used", large), Fact("clipped", small)],
    )


def _fixes(story: Story, used: Moment, clip: Moment) -> tuple[Fix, ...]:
    program = story.program
    places = [program.statement_at(story.span(m.step)) for m in (used, clip)] if program.tree is not None else [None]
    if any(place is None for place in places):
        return ()
    pair = meeting(program, *([place for place in (chosen,) if place is not None] for chosen in places))
    if pair is None or pair[0].lineno > pair[1].lineno or not program.stands_alone(pair[1]):
        return ()
    update, clipping = pair
    text = program.segment(clipping).replace("\n" + program.indent(clipping), "\n" + program.indent(update))
    edits = merge(program.delete(clipping), program.insert_before(update, text))
    call = next((n for n in ast.walk(clipping) if isinstance(n, ast.Call) and call_name(n) in CLIPS), None)
    shown = call_name(call) if call else "clip"
    title = T(en=f"Clip before the update: move `{shown}` up", zh=f"在更新之前裁剪：把 `{shown}` 移到前面")
    return unique(program.text, [Fix(title, edits, meaning="recompute")]) if edits else ()


RULE = Rule(
    code="PL603",
    name="clip-after-step",
    severity="warning",
    title=T(en="Gradients were clipped after the update had used them", zh="梯度在更新用过之后才被裁剪"),
    what=T(
        en="A program limits the size of its gradients, but only when the update has already been made with the full "
        "ones, or before there are any. Clip after the backward and before the update.",
        zh="程序限制了梯度的大小，但这时已经用完整的梯度更新过了，或者梯度还没有算出来。请在反向传"
        "播之后、更新之前裁剪。",
    ),
    why=T(
        en="`clip_grad_norm_` scales all gradients down together when their length is above a limit; "
        "`clip_grad_value_` cuts each number. Both write into `.grad` and nothing else. The optimizer is not "
        "involved: `step()` reads what is in `.grad` at that moment. After the step the gradients are not used again. "
        "Nothing fails, and training looks normal until the one batch with a huge gradient comes for which the "
        "clipping was written.",
        zh="`clip_grad_norm_` 在梯度总长超过上限时把所有梯度一起缩小；`clip_grad_value_` 截断每个数值。两者都只写 "
        "`.grad`。优化器对此一无所知：`step()` 取的是此刻 `.grad` 里的值。更新之后，梯度只是在等待清零。什么都不会报"
        "错，训练看起来也正常，直到遇上梯度巨大的那一批数据，而裁剪正是为它写的。",
    ),
    advice=T(
        en="move the clipping of {changed} between the backward on {backward} and the update on {step}.",
        zh="把{changed}的裁剪移到{backward}的反向传播与{step}的更新之间。",
    ),
    bad="""import torch

w = torch.tensor([1.0, -2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for target in (3.0, 300.0, 3.0):
    opt.zero_grad()
    loss = ((w - target) ** 2).sum()
    loss.backward()  # backward
    opt.step()  # step
    torch.nn.utils.clip_grad_norm_([w], max_norm=1.0)  # PL603 changed
    print(w.detach())
""",
    good="""import torch

w = torch.tensor([1.0, -2.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for target in (3.0, 300.0, 3.0):
    opt.zero_grad()
    loss = ((w - target) ** 2).sum()
    loss.backward()
    torch.nn.utils.clip_grad_norm_([w], max_norm=1.0)
    opt.step()
    print(w.detach())
""",
    find=find,
    traps=(
        Trap(
            "max_norm=1.0",
            "max_norm=0.1",
            T(
                en="A smaller limit, still too late: no update ever sees it.",
                zh="上限更小，但仍然太晚：没有一次更新会看到它。",
            ),
        ),
        Trap(
            "    loss.backward()\n    opt.step()\n    torch.nn.utils.clip_grad_norm_([w], max_norm=1.0)\n",
            "    torch.nn.utils.clip_grad_norm_([w], max_norm=1.0)\n    loss.backward()\n    opt.step()\n",
            T(
                en="Too early is as bad: before the backward there is no gradient to clip.",
                zh="太早也一样：反向传播之前还没有可裁剪的梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
