"""PL108: what a checkpointed function reads was changed before backward ran the function a second time.

It is found in four ways: by a harm that the shadow engine reports (a tensor of the closure was written: a special case
of PL301), by calls that gave other numbers when they ran again, by random numbers that differ the second time because
of ``preserve_rng_state=False`` (in torch's modules, whose second run is not observed), and by torch's error where an
argument of the function was written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.checkpointing import checkpoints, differences, first_runs, is_recomputed, numbers_of
from pitfall_lab.rules.kit.finding import Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.reordering import moves
from pitfall_lab.rules.kit.repairs import repairs, unique
from pitfall_lab.rules.kit.story import Clash, Story
from pitfall_lab.rules.kit.syntax import assigned, called, reads
from pitfall_lab.rules.kit.wording import at_line, capital, line_of, numbers, statement_text
from pitfall_lab.rules.signals.seeds import RANDOM
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

DRAWS = spellings("rrelu") | operations_that("dropout")
RUN_AGAIN = T(
    en="Checkpointing does not keep what was computed inside the function; backward runs the function again to get it.",
    zh="检查点不保留函数内部算出的东西；反向传播会再次运行这个函数来得到它们。",
)


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general`` (one of PL301) if the overwritten tensor was read again when a
    checkpoint ran its function a second time; else None.
    """
    saved, backward = general.line("saved"), general.line("backward")
    if saved is None or backward is None or saved.step is None or backward.step is None:
        return None
    if not is_recomputed(story, saved.step, backward.step):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    wrong, what, code = general.fact("wrong"), general.fact("called"), statement_text(story, general.span)
    return RULE.instead(
        general,
        T(
            en=f"{wrong.en}, because {here.en} changed {what.en} before {later.en} ran the "
            "checkpointed function again.",
            zh=f"{wrong.zh}，因为{here.zh}在{later.zh}再次运行被检查点的函数之前修改了 {what.zh}。",
        ),
        T(
            en=f"{RUN_AGAIN.en} {capital(then.en)} read {what.en} the first time. `{code}` on {here.en} changed it. "
            f"When {later.en} runs {then.en} again, it reads the new values: the gradient belongs to another "
            "computation than the loss. Only the function's arguments are checked, not what it reads from outside.",
            zh=f"{RUN_AGAIN.zh}{then.zh}第一次读取了 {what.zh}。{here.zh}的 `{code}` 修改了它。"
            f"当{later.zh}再次运行{then.zh}时，读到的是新值：梯度与损失不再属于同一个计算。torch 只检查函"
            "数的参数，不检查它从外面读取的东西。",
        ),
    )


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each backward that ran a checkpointed function again with other numbers, or that used
    numbers drawn in a ``checkpoint`` with ``preserve_rng_state=False``, or in which torch raised an error after an
    argument of the function was written.

    A backward without an error is left out if other rules report a wrong gradient in it.
    """
    if not checkpoints(story):
        return
    reported = {outer.step for harm in story.trace.harms if (outer := story.outer_call(harm.step)) is not None}
    refused = {step for step, failure in story.failures("other") if failure.type == "RuntimeError"}
    for backward in story.backwards():
        if backward.step in refused:
            yield from _written_arguments(story, backward)
        elif backward.step not in reported:
            different = next(differences(story, backward), None)
            if different is not None:
                yield _other_numbers(story, backward, *different)
            elif (drawn := _drawn_anew(story, backward)) is not None:
                yield _other_draw(story, backward, *drawn)


def _unrestored(call: ast.AST | None) -> ast.keyword | None:
    """Return the keyword argument ``preserve_rng_state=False`` of a call; None if there is none."""
    keywords = call.keywords if isinstance(call, ast.Call) else ()
    named = (k for k in keywords if k.arg == "preserve_rng_state")
    return next((k for k in named if isinstance(k.value, ast.Constant) and k.value.value is False), None)


def _drawn_anew(story: Story, backward: Event) -> tuple[ast.Call, Event] | None:
    """Return a ``checkpoint`` call with ``preserve_rng_state=False``, and a call inside it that draws random numbers
    which the gradients of ``backward`` depend on; None if there is none.
    """
    for call in checkpoints(story):
        if _unrestored(call) is None:
            continue
        inside = _inside(story, call, backward)
        for place, event in enumerate(inside):
            if _draws(event) and _matters(story, inside[place:], backward):
                return call, event
    return None


def _inside(story: Story, call: ast.Call, backward: Event) -> list[Event]:
    """Return the calls that the checkpointed function made the first time, before ``backward`` and after the backward
    before it.

    These are the calls on the line of ``call``, where the function is a module of torch's, and those that ``backward``
    made again.
    """
    earlier = max((each.step for each in story.backwards() if each.step < backward.step), default=-1)
    here = [event for event in story.within(call) if earlier < event.step < backward.step]
    again = first_runs(story, backward.step, earlier)
    if not all(_unrestored(each) for each in checkpoints(story)):
        again = [event for event in again if _is_within(story, call, event)]
    return sorted({event.step: event for event in (*here, *again)}.values(), key=lambda event: event.step)


def _is_within(story: Story, call: ast.Call, event: Event) -> bool:
    """Whether an event is known to have happened in a call of ``checkpoint``: its callers lead there, or it is in the
    function that the call was given, or in a method of its class.
    """
    program, given = story.program, story.program.segment(call.args[0]) if call.args else ""
    if program.statement(call) in list(call_chain(story, event)):
        return True
    owners = {
        called(node.value)
        for node in program.nodes
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        and any(program.segment(target) == given for target in node.targets)
    }  # fmt: skip
    parts = [name.split(".") for name in event.scope]
    return any(part[-1] == given.rpartition(".")[2] or part[0] in owners for part in parts)


def _draws(event: Event) -> bool:
    off = any(o.name == "p" and o.text in ("0", "0.0") for o in event.operands)
    off = off or (not event.writes and any(o.label in event.results for o in event.operands))  # evaluation mode
    return event.error is None and bool(event.results) and not off and event.name in (*DRAWS, *RANDOM)


def _matters(story: Story, following: list[Event], backward: Event) -> bool:
    """Whether ``backward`` ran a graph node of the first call of ``following``, or of a later one that depends on it,
    which uses random numbers: the dropout mask of the first call, or a saved tensor computed from its result.
    """
    first, reached = following[0], set(following[0].results)
    for event in following:
        if event is not first:
            if not any(o.label in reached for o in event.operands):
                continue
            reached.update(event.results)
        for node in _nodes(story, event):
            ran = story.outer_call(node.get("ran"))
            uses = (event is first and event.name in DRAWS) or any(
                saved.get("tensor") in reached for saved in node.get("saved") or ()
            )
            if uses and ran is not None and ran.step == backward.step:
                return True
    return False


def _nodes(story: Story, event: Event) -> Iterator[dict[str, Any]]:
    """Yield the records of the graph nodes that a call made, starting with the node of its first result."""
    node = (story.tensor(event.results[0], event.step) or {}).get("grad_fn") if event.results else None
    for each in story.behind(node):
        record = story.record("nodes", each) or {}
        if record.get("born") != event.step:
            return
        yield record


def _other_draw(story: Story, backward: Event, call: ast.Call, drawn: Event) -> Finding:
    then, later = at_line(story, story.span(drawn.step)), at_line(story, story.span(backward.step))
    return RULE.finding(
        story.span(drawn.step),
        drawn.step,
        T(
            en=f"{capital(then.en)} computes with random numbers (`{drawn.name}`), and {later.en} computes it again "
            "with other ones to get the gradients.",
            zh=f"{then.zh}用随机数计算（`{drawn.name}`），而{later.zh}为了求梯度再次计算时，用的是另一批随机数。",
        ),
        T(
            en=f"{RUN_AGAIN.en} Torch puts the random numbers back for the second run, so that the same ones are "
            "drawn; `preserve_rng_state=False` switches that off. Other elements are dropped the second time, and "
            "the gradients belong to another computation than the loss.",
            zh=f"{RUN_AGAIN.zh}为了让第二次抽到同样的随机数，torch 会恢复随机数的状态；`preserve_rng_state=False` 让它"
            "不要这样做。于是第二次丢弃的是另一些元素，梯度与损失不再属于同一个计算。",
        ),
        related=[
            story.related(
                "made", drawn.step, T(en="computed here, and again in backward", zh="在这里计算，反向传播时又计算一次")
            ),
            story.related("backward", backward.step, T(en="the function is run again here", zh="函数在这里再次运行")),
        ],
        fixes=unique(story.program.text, _same_draw(story, call)),
    )


def _same_draw(story: Story, call: ast.Call) -> Iterator[Fix]:
    """Yield the fix that removes ``preserve_rng_state=False``, if the call has it; the fix is valid if the gradients
    are then those without a checkpoint.
    """
    program, keyword = story.program, _unrestored(call)
    if keyword is None or not call.args or any(isinstance(a, ast.Starred) for a in call.args[:1]):
        return
    function, *arguments = (program.segment(a) for a in call.args)
    kept = [program.segment(a) for a in [*call.args, *call.keywords] if a is not keyword]
    plain = f"({function})({', '.join(arguments)})"
    yield Fix(
        T(en="Let both runs draw the same random numbers: drop `preserve_rng_state=False`",
          zh="让两次运行抽到同样的随机数：去掉 `preserve_rng_state=False`"),
        program.replace((call, f"{program.segment(call.func)}({', '.join(kept)})")),
        reference=program.replace((call, plain)),
    )  # fmt: skip


def _other_numbers(story: Story, backward: Event, again: Event, first: Event) -> Finding:
    then, later = at_line(story, story.span(first.step)), at_line(story, story.span(backward.step))
    one, other = (numbers(list(numbers_of(story, event).values())) for event in (first, again))
    return RULE.finding(
        story.span(backward.step),
        backward.step,
        T(
            en=f"{capital(later.en)} ran {then.en} again for its gradients and got other numbers than the first time: "
            f"{other} instead of {one}.",
            zh=f"{later.zh}为了求梯度再次运行{then.zh}，得到的数与第一次不同：是 {other}，而不是 {one}。",
        ),
        T(
            en=f"{RUN_AGAIN.en} Something that it reads from outside (a number, a tensor, the random numbers) was "
            "not the same the second time, so the gradients belong to another computation than the loss. Torch "
            "does not compare the two.",
            zh=f"{RUN_AGAIN.zh}它从外面读取的东西（一个数、一个张量、随机数）第二次已经不同，所以梯度与损失不再属于同"
            "一个计算。torch 不比较这两次。",
        ),
        related=[
            story.related(
                "made", first.step, T(en="computed here, and again in backward", zh="在这里计算，反向传播时又计算一次")
            ),
            story.related("backward", backward.step, T(en="the function is run again here", zh="函数在这里再次运行")),
        ],
        fixes=unique(
            story.program.text,
            [
                *_later_assignments(story, backward, first),
                *(fix for call in checkpoints(story) for fix in _same_draw(story, call)),
            ],
        ),
    )


def _later_assignments(story: Story, backward: Event, first: Event) -> tuple[Fix, ...]:
    """Fixes that move an assignment to a variable which the checkpointed function reads below the backward.

    Only the last three such assignments between the checkpoint and the backward, in the backward's block; empty if
    there are none.
    """
    program = story.program
    place, end = program.at(story.span(first.step)), program.statement_at(story.span(backward.step))
    function = program.function(place) if place is not None else None
    if function is None or end is None:
        return ()
    names = reads(program, function)
    block = program.block(end)
    found = [
        s
        for s in block[: block.index(end)]
        if assigned(program, s) & names and any(c.lineno < s.lineno for c in checkpoints(story))
    ]
    return unique(program.text, [fix for statement in reversed(found[-3:]) for fix in moves(program, statement, end)])


def _written_arguments(story: Story, backward: Event) -> Iterator[Finding]:
    """Yield at most one finding, about an argument of a checkpointed function that was written before ``backward``,
    which then raised an error.
    """
    for call in checkpoints(story):
        function = story.program.segment(call.args[0]) if call.args else ""
        place = story.program.place(call)
        for argument in (each for each in call.args[1:] if isinstance(each, ast.Name)):
            for event in story.calls():
                inside = event.span == place or (
                    bool(event.scope) and event.scope[-1].rsplit(".", 1)[-1] in (function, "forward")
                )
                used = [
                    o.label for o in event.operands if o.label is not None and argument.id in _names(story, o.label)
                ]
                if not inside or not used or event.step >= backward.step:
                    continue
                storage = (story.tensor(used[0], event.step) or {}).get("storage")
                changed = story.writes(storage, event.step, backward.step) if storage else ()
                if changed:
                    yield _written(story, Clash(storage, event.step, changed, backward.step), argument.id)
                    return


def _names(story: Story, label: str) -> list[str]:
    return (story.tensor(label) or {}).get("names") or []


def _written(story: Story, clash: Clash, name: str) -> Finding:
    changed, saved_at, backward = clash.changed_at[0], clash.saved_at, clash.backward
    here, later = (at_line(story, story.span(at)) for at in (changed, backward))
    code = statement_text(story, story.span(changed))
    return RULE.finding(
        story.span(changed),
        changed,
        T(
            en=f"{capital(here.en)} overwrites `{name}`, but {later.en} runs the checkpointed function again and "
            f"needs `{name}` as it was.",
            zh=f"{here.zh}覆盖了 `{name}`，但{later.zh}要再次运行被检查点的函数，需要原来的 `{name}`。",
        ),
        T(
            en=f"{RUN_AGAIN.en} Its argument `{name}` is kept for that: the memory, not a copy. `{code}` on {here.en} "
            f"writes into it, and torch, which checks the arguments, stops on {later.en}.",
            zh=f"{RUN_AGAIN.zh}为此留下了它的参数 `{name}`：是内存，不是副本。{here.zh}的 `{code}` 写进了这块内存，而 "
            f"torch 会检查参数，于是在{later.zh}停下来。",
        ),
        related=[
            story.related(
                "saved",
                saved_at,
                T(en=f"`{name}` is used here, and again in backward", zh=f"`{name}` 在这里和反向传播时使用"),
            ),
            story.related(
                "changed", changed, T(en=f"its memory is written here: `{code}`", zh=f"它的内存在这里被写入：`{code}`")
            ),
            story.related(
                "backward",
                backward,
                T(en="the function is to run again, and torch raises", zh="要再次运行函数，torch 报错"),
            ),
        ],
        fixes=repairs(story, clash),
        severity="error",
    )


RULE = Rule(
    code="PL108",
    name="checkpoint-input-changed",
    severity="warning",
    title=T(en="A checkpointed function was run again with other values", zh="被检查点的函数再次运行时用了别的值"),
    what=T(
        en="Checkpointing saves memory by computing a part of the model a second time during `backward()`. Something "
        "that this part reads was changed in between, so the second computation is another one than the first, and "
        "the gradients do not fit the loss. There is usually no error. Change it after `backward()`.",
        zh="检查点通过在 `backward()` 期间把模型的一部分再算一遍来节省内存。这一部分所读取的某样东西在两次之间被改掉"
        "了，于是第二次的计算与第一次不同，梯度与损失对不上。通常没有报错。请在 `backward()` 之后再修改。",
    ),
    why=T(
        en="`torch.utils.checkpoint.checkpoint(f, x)` runs `f(x)` without keeping the tensors that backward will "
        "need. It keeps `x`, and runs `f(x)` once more when backward arrives. The *version* of `x` (a number that "
        "grows with each write in place) is compared, so a write into `x` raises. Everything else that `f` reads is "
        "read again as it is then: tensors and numbers from outside (its *closure*), parameters that an optimizer has "
        "moved, the mode of a layer. Only the state of the random number generators is put back, so that dropout "
        "draws the same numbers, unless `preserve_rng_state=False` forbids it.",
        zh="`torch.utils.checkpoint.checkpoint(f, x)` 运行 `f(x)`，但不留下反向传播需要的张量。它留下 `x`，等反向传播"
        "到来时再运行一次 `f(x)`。`x` 的*版本*（每次就地写入就增大的一个数）会被比较，所以写入 `x` 会报错。`f` 读取的"
        "其他一切都按当时的样子再读一遍：外面的张量和数（它的*闭包*）、被优化器移动过的参数、层的模式。只有随机数生成"
        "器的状态会被恢复，使 dropout 抽到同样的数，除非用 `preserve_rng_state=False` 禁止。",
    ),
    advice=T(
        en="change the value on {changed} only after the backward on {backward}, or give the checkpointed function a "
        "copy as an argument.",
        zh="等{backward}的反向传播之后再在{changed}修改，或者把副本作为参数传给被检查点包装的函数。",
    ),
    bad="""import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = nn.Linear(2, 3)
scale = torch.ones(3)


def block(x):
    return torch.tanh(layer(x) * scale)  # saved


out = checkpoint(block, torch.randn(4, 2), use_reentrant=False)
scale.mul_(5)  # PL108 changed
out.sum().backward()  # backward
print(layer.bias.grad)
""",
    good="""import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
layer = nn.Linear(2, 3)
scale = torch.ones(3)


def block(x):
    return torch.tanh(layer(x) * scale)


out = checkpoint(block, torch.randn(4, 2), use_reentrant=False)
out.sum().backward()
scale.mul_(5)
print(layer.bias.grad)
""",
    find=find,
    refines=("PL301",),
    refine=refine,
    traps=(
        Trap(
            "scale.mul_(5)",
            "scale = scale * 5",
            T(
                en="A new tensor does not help here: the function looks up the name `scale` again "
                "and finds the new one.",
                zh="生成新张量在这里没有用：函数会重新查找名字 `scale`，找到的是新的那个。",
            ),
        ),
        Trap(
            "use_reentrant=False",
            "use_reentrant=True",
            T(
                en="The other way of checkpointing runs the function a second time as well; here it does not even "
                "give the layer a gradient, because no argument requires one.",
                zh="另一种检查点方式同样会把函数运行第二次；这里它甚至不给这一层任何梯度，因为没有参数需要梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/checkpoint.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
    ),
)
