"""PL632: an optimizer steps in every iteration, and none of the parameters that it holds ever gets a gradient: other
tensors get it, mostly those of another copy of the model.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.graph_cut import copies
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.optimizer_steps import replaced
from pitfall_lab.trace import Event, OptimizerStep, T

ROUNDS, HOPS = 2, 20
"""The steps of an optimizer that show a pattern, and the copies of copies that are followed."""


@dataclass(frozen=True, slots=True)
class OptimizerWithoutGradients:
    """``updates`` are the recorded steps of an optimizer; ``parameters`` are the labels of what it holds that requires
    grad, of which none ever got a gradient.

    ``backward`` is the backward (``Event``) before the first of these steps; ``others`` are the labels of the leaves
    whose gradients it filled instead.
    """

    updates: tuple[OptimizerStep, ...]
    parameters: tuple[str, ...]
    backward: Event
    others: tuple[str, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer that made at least ``ROUNDS`` steps without a gradient of any of its
    parameters, although gradients were computed before each step.

    Either ``backward()`` ran, the first time for other tensors; then nothing is reported if the parameters had been
    replaced or the graph to them was cut, which other rules report. Or ``torch.autograd.grad`` returned the gradients
    of the optimizer's own tensors.
    """
    steps: dict[object, list[OptimizerStep]] = defaultdict(list)
    for update in story.trace.optimizer_steps:
        steps[update.span if update.made is None else update.made].append(update)
    for updates in steps.values():
        made = updates[0].made
        idle = (
            _idle(story, updates)
            if (len(updates) if made is None else story.trace.optimizers[made].steps) >= ROUNDS
            else None
        )
        if idle is not None:
            yield _finding(story, idle)
        elif len(updates) >= ROUNDS and (calls := _returned(story, updates)):
            yield _only_returned(story, updates, calls)


def _is_sparse(story: Story, label: str) -> bool:
    """Whether rows of the tensor were looked up with ``sparse=True``: gradients of that kind are not in the trace."""
    return any(
        event.operands[0].label == label and any(each.text == "True" for each in event.operands[2:])
        for event in story.calls("embedding", "embedding_bag")
        if event.operands
    )


def _idle(story: Story, updates: list[OptimizerStep]) -> OptimizerWithoutGradients | None:
    """Return the data of the finding if no parameter had a gradient although a ``backward()`` filled those of other
    leaves.

    None if one had, or if a step had no ``backward()`` before it, an embedding is sparse, one of the other leaves
    replaced a parameter or is a ``torch.tensor`` copy, or the graph was cut.
    """
    held = dict.fromkeys(label for update in updates for label in update.holds)
    free = [label for label in held if (story.tensor(label) or {}).get("requires_grad")]
    if not free or any(grad is not None for label in held for _, grad in story.history("tensors", label, "grad")):
        return None
    if any(_is_sparse(story, label) for label in held):
        return None
    before, found = 0, []
    for update in updates:
        backwards = [
            b for b in story.backwards() if before <= b.step < update.step and b.error is None and b.name == "backward"
        ]
        if not backwards:
            return None
        found.append(backwards[-1])
        before = update.step
    began = {
        operand.label for operand in found[0].operands
    }  # a loss that was made to require grad has a rule of its own
    filled = (
        label
        for label, moments in lives(story).items()
        if any(m.kind == "added" and m.step == found[0].step for m in moments)
    )
    others = tuple(label for label in filled if label not in began)
    renewed = {each.new for each in replaced(story)} | {event.results[0] for event, _ in copies(story)}
    if not others or renewed & set(others) or _is_cut(story, updates):
        # parameters that took the place of the old ones, copied results and a loss without a path have rules of their
        # own
        return None
    return OptimizerWithoutGradients(tuple(updates), tuple(free), found[0], others)


def _returned(story: Story, updates: list[OptimizerStep]) -> list[Event]:
    """For each step, the last ``torch.autograd.grad`` before it that was given tensors of the optimizer.

    Empty if a step has none, if one of the tensors ever had a gradient, or if a ``backward()`` ran between such a call
    and its step.
    """
    held, before, found = {label for update in updates for label in update.holds}, 0, []
    if any(grad is not None for label in held for _, grad in story.history("tensors", label, "grad")):
        return []
    for update in updates:
        calls = [c for c in story.backwards() if before <= c.step < update.step and c.error is None]
        returned = [c for c in calls if c.name == "grad" and held & {operand.label for operand in c.operands[1:]}]
        if not returned or any(c.name == "backward" and c.step > returned[-1].step for c in calls):
            return []
        found.append(returned[-1])
        before = update.step
    return found


def _only_returned(story: Story, updates: list[OptimizerStep], calls: list[Event]) -> Finding:
    """The finding for an optimizer whose gradients are returned by
    ``torch.autograd.grad`` and put into no ``.grad``.
    """
    update, call = updates[0], calls[0]
    here, there, count = at_line(story, update.span), at_line(story, story.span(call.step)), len(update.holds)
    return RULE.finding(
        update.span,
        call.step,
        T(
            en=f"{capital(there.en)} returns the gradients and leaves every `.grad` empty, so {here.en} changes none "
            f"of the {count} tensors that this {update.optimizer} holds.",
            zh=f"{there.zh}返回梯度，而不填写任何 `.grad`，{here.zh}于是没有改变这个 {update.optimizer} 持有的 "
            f"{count} 个张量中的任何一个。",
        ),
        T(
            en="`torch.autograd.grad` returns the gradients; only `backward()` adds them to `.grad`, and an "
            f"optimizer reads nothing else. In none of the {len(updates)} steps that were watched was there one.",
            zh="`torch.autograd.grad` 返回梯度；只有 `backward()` 才把梯度加到 `.grad` 里，而优化器只读取 `.grad`。在"
            f"观察到的 {len(updates)} 步里一次也没有。",
        ),
        related=[story.related("gradient", call.step, T(en="the gradients are returned here", zh="梯度在这里返回"))],
        fixes=_filled(story, update, call),
        facts=[Fact("parameters", list(update.holds))],
    )


def _filled(story: Story, update: OptimizerStep, call: Event) -> tuple[Fix, ...]:
    """Fixes that run ``backward()`` instead, or put the returned gradients into ``.grad`` before the step; empty if the
    source does not allow either.
    """
    program = story.program
    node, step = program.at(story.span(call.step)), program.statement_at(update.span)
    made = program.statement(node)
    if not isinstance(node, ast.Call) or len(node.args) < 2 or made is None or step is None:
        return ()
    loss, params = node.args[:2]
    names = [n.id for n in ast.walk(made) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    read = any(isinstance(n, ast.Name) and n.id in names and isinstance(n.ctx, ast.Load) for n in program.nodes)
    candidates = []
    if not read and len(node.args) == 2 and not node.keywords:
        text = f"{operand(program, loss)}.backward()"
        title = T(en=f"Fill `.grad`: `{text}`", zh=f"填写 `.grad`：`{text}`")
        candidates.append(Fix(title, program.replace((made, text)), meaning="later"))
    if isinstance(made, ast.Assign) and isinstance(made.targets[0], ast.Name):
        line = f"for param, gradient in zip({program.segment(params)}, {made.targets[0].id}):"
        title = T(en="Put the gradients into `.grad` before the step", zh="在更新之前把梯度放进 `.grad`")
        candidates.append(Fix(title, program.insert_before(step, line, "    param.grad = gradient"), meaning="later"))
    return unique(program.text, candidates)


def _is_cut(story: Story, updates: list[OptimizerStep]) -> bool:
    return any(each.update in updates for each in Flow(story).unreached())


def _finding(story: Story, idle: OptimizerWithoutGradients) -> Finding:
    update, backward = idle.updates[0], idle.backward
    there = at_line(story, story.span(backward.step))
    mine, other = (
        called(story, idle.parameters[0], None, update.step),
        called(story, _twin(story, idle), None, update.step),
    )
    taken = _taken(story, idle)
    return RULE.finding(
        update.span,
        update.step,
        _message(story, idle, taken),
        T(
            en=f"The backward on {there.en} fills the gradients of {other.en}, a tensor of its own, and not those of "
            f"{mine.en}: in none of the {len(idle.updates)} steps that were watched had they one. An optimizer passes "
            "over a parameter without a gradient. A copy of a network has gradients of its own: compute the loss "
            "with the network that is to be trained, or hand the gradients over before the step.",
            zh=f"{there.zh}的反向传播填写的是 {other.zh} 的梯度，那是另一个张量，而不是 {mine.zh} 的梯度：在观察到的 "
            f"{len(idle.updates)} 步里它们一次也没有梯度。优化器会跳过没有梯度的参数。网络的副本有自己的梯度：请用要训"
            "练的网络来计算损失，或者在更新之前把梯度交给它。",
        ),
        related=[
            *(
                story.related("copied", each.step, T(en="copied here without its graph", zh="在这里复制，不带计算图"))
                for each in taken
            ),
            story.related(
                "backward", backward.step, T(en="fills the gradients of other tensors", zh="填写的是别的张量的梯度")
            ),
        ],
        fixes=_fixes(story, idle),
        facts=[Fact("parameters", list(idle.parameters)), Fact("filled", list(idle.others))],
    )


def _message(story: Story, idle: OptimizerWithoutGradients, taken: list[Event]) -> T:
    """The finding's message: the optimizer's step changes nothing; with the line that copied
    the parameters, if it is known.
    """
    here, count, optimizer = at_line(story, idle.updates[0].span), len(idle.parameters), idle.updates[0].optimizer
    if not taken:
        return T(
            en=f"{capital(here.en)} changes nothing: none of the {count} tensors that this {optimizer} holds had a "
            f"gradient in any of {len(idle.updates)} steps that were watched.",
            zh=f"{here.zh}什么也没有改变：在观察到的 {len(idle.updates)} 步里，这个 {optimizer} 持有的 {count} 个"
            "张量一次也没有梯度。",
        )
    where, code = at_line(story, story.span(taken[0].step)), snippet(story, story.span(taken[0].step))
    return T(
        en=f"{capital(where.en)} (`{code}`) makes new tensors from those that this {optimizer} holds, without their "
        f"graph. The gradients go to the new ones, so {here.en} changes "
        f"{f'none of the {count}' if count > 1 else 'nothing'}.",
        zh=f"{where.zh}（`{code}`）由这个 {optimizer} 持有的张量创建了新的张量，但不带计算图。梯度只到新的张量，"
        f"{here.zh}于是没有改变其中的任何一个。",
    )


def _taken(story: Story, idle: OptimizerWithoutGradients) -> list[Event]:
    """The call that made, from the optimizer's tensors, those that got a gradient, and did not keep the graph, in a
    list; empty if there is none.
    """
    flow, held, pending, seen = Flow(story), {*idle.parameters}, list(idle.others[:1]), set[str]()
    while pending and len(seen) < HOPS:
        label = pending.pop()
        seen.add(label)
        first, _ = story.tensors_on((story.tensor(label) or {}).get("storage"))[
            0
        ]  # a parameter is made of a plain tensor
        for cut in flow.cuts(label, idle.backward.step) or flow.cuts(first, idle.backward.step):
            leaves = flow.leaves(cut.tensor, cut.event.step)
            if leaves & held and story.span(cut.event.step) is not None:
                return [cut.event]
            pending += [leaf for leaf in leaves if leaf not in seen]
    return []


def _twin(story: Story, idle: OptimizerWithoutGradients) -> str:
    """The label of a parameter that got a gradient: if possible one that has the shape of the
    first parameter without any.
    """
    wanted = story.shape(idle.parameters[0])
    return next((label for label in idle.others if story.shape(label) == wanted), idle.others[0])


def _owner(story: Story, label: str) -> str:
    """The part of a parameter's name before the first dot: ``net`` for ``net.0.weight``; empty if it has no name."""
    return (story.name(label) or "").split(".")[0]


def _fixes(story: Story, idle: OptimizerWithoutGradients) -> tuple[Fix, ...]:
    """Fixes that copy the parameters with their graph, hand the gradients over to the held parameters, or give the
    optimizer the new tensors; empty if none can be written.
    """
    taken = _taken(story, idle)
    return unique(
        story.program.text,
        [*_copied_with_graph(story, taken), *_handed_over(story, idle), *_held_instead(story, idle, taken)],
    )


def _held_instead(story: Story, idle: OptimizerWithoutGradients, taken: list[Event]) -> Iterator[Fix]:
    """Yield fixes that give the optimizer the new tensors, in each way in which this can be written, if the tensors get
    a name above the optimizer in the same function.
    """
    program, made = story.program, idle.updates[0].made
    call = program.at(story.trace.optimizers[made].span) if made is not None else None
    copied = program.statement_at(story.span(taken[0].step)) if taken else None
    if (
        not isinstance(call, ast.Call)
        or not call.args
        or not isinstance(copied, ast.Assign)
        or copied.lineno >= call.lineno
    ):
        return
    if program.function(copied) is not program.function(call):
        return
    names = [
        n
        for target in copied.targets
        for n in ast.walk(target)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    for name in dict.fromkeys(n.id for n in names):
        for text in (f"{name}.values()", f"{name}.parameters()", name, f"[{name}]"):
            title = T(en=f"Give the optimizer the new tensors: `{text}`", zh=f"把新的张量交给优化器：`{text}`")
            yield Fix(title, program.replace((call.args[0], text)), meaning="later")


def _copied_with_graph(story: Story, taken: list[Event]) -> Iterator[Fix]:
    """Yield the fix that writes ``w.clone()`` for ``w.detach().clone().requires_grad_()``.

    Nothing if the first of ``taken`` is no ``detach`` called as a method.
    """
    program = story.program
    node = program.at(story.span(taken[0].step)) if taken and taken[0].name == "detach" else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    outer, kept = node, program.segment(node.func.value)
    while isinstance(method := program.parents.get(outer), ast.Attribute) and isinstance(
        call := program.parents.get(method), ast.Call
    ):
        kept += (
            ""
            if method.attr == "requires_grad_"
            else f".{method.attr}({', '.join(map(program.segment, (*call.args, *call.keywords)))})"
        )
        outer = call
    title = T(en=f"Keep the graph: `{kept}`", zh=f"保留计算图：`{kept}`")
    yield Fix(title, program.replace((outer, kept)), meaning="root")


def _handed_over(story: Story, idle: OptimizerWithoutGradients) -> Iterator[Fix]:
    program = story.program
    statement = program.statement_at(idle.updates[0].span)
    mine, other = _owner(story, idle.parameters[0]), _owner(story, _twin(story, idle))
    if statement is None or not mine or not other or mine == other or not _same_shapes(story, idle):
        return
    known = {
        n.id
        for n in program.nodes
        if isinstance(n, ast.Name) and program.function(n) in (program.function(statement), None)
    }
    if not {mine, other} <= known:
        return
    new = (f"for mine, other in zip({mine}.parameters(), {other}.parameters()):", "    mine.grad = other.grad")
    title = T(
        en=f"Hand the gradients of `{other}` to `{mine}` before the step",
        zh=f"在更新之前把 `{other}` 的梯度交给 `{mine}`",
    )
    yield Fix(title, program.insert_before(statement, *new), meaning="later")


def _same_shapes(story: Story, idle: OptimizerWithoutGradients) -> bool:
    return sorted(story.shape(label) or () for label in idle.parameters) == sorted(
        story.shape(label) or () for label in idle.others
    )


RULE = Rule(
    code="PL632",
    name="optimizer-without-gradients",
    severity="warning",
    title=T(
        en="An optimizer steps, and nothing that it holds has a gradient", zh="优化器在更新，而它持有的东西都没有梯度"
    ),
    what=T(
        en="A program trains a copy of a network, while the optimizer holds the original. Each step passes over every "
        "parameter, since none of them has a gradient, and the original never learns. Compute the loss with the "
        "network that the optimizer holds, or copy the gradients to it.",
        zh="程序训练的是网络的一个副本，而优化器持有的是原来的网络。每一步都跳过所有参数，因为它们都没有梯度，原来的网"
        "络从未学到东西。请用优化器持有的网络计算损失，或者把梯度复制给它。",
    ),
    why=T(
        en="`backward()` adds to the `.grad` of the leaves that the loss was computed from. `copy.deepcopy(net)` "
        "makes new leaves, with `.grad` of their own, and `optimizer.step()` reads those of the parameters that it "
        "was given when it was made. Where `.grad` is None it changes nothing, and torch gives no warning: parts of a "
        "network may well be unused. In first-order MAML the program itself has to copy the gradients of the adapted "
        "copy to the meta-parameters.",
        zh="`backward()` 加到计算损失所用的叶子的 `.grad` 上。`copy.deepcopy(net)` 创建新的叶子，它们有自己的 "
        "`.grad`；而 `optimizer.step()` 读取的是创建时得到的那些参数的 `.grad`。`.grad` 为 None 时没有事可做，torch 也"
        "不作声：网络的某些部分本来就可能没有用到。在一阶 MAML 中，适应后副本的梯度必须由程序交给元参数。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    fast = copy.deepcopy(net)
    loss = (fast(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()  # PL632
    print(loss.item())
""",
    good="""import copy

import torch

torch.manual_seed(0)
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 2), torch.randn(8, 1)
for _ in range(3):
    fast = copy.deepcopy(net)
    loss = (fast(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    for mine, other in zip(net.parameters(), fast.parameters()):
        mine.grad = other.grad
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=10.0",
            T(en="No rate makes something of a gradient that is not there.", zh="没有梯度，多大的学习率都没有用。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.step.html",
    ),
)
