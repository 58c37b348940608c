"""PL903: training continued in evaluation mode: dropout and batch normalisation did not work as they do in training."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.modes import LayerCall, Modes
from pitfall_lab.trace import Event, T

NAMES = {"dropout": T(en="dropout", zh="dropout"), "batch_norm": T(en="batch normalisation", zh="批归一化")}
ROUNDS = 2


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line on which a layer (dropout or batch norm) ran in evaluation mode in an iteration
    of training: a backward went through it, and the weight of the layer in front of it was written afterwards.

    Only if the layer ran in training mode before, or if it ran in evaluation mode in at least ``ROUNDS`` iterations and
    never in training mode (a batch norm: with its running statistics still at their initial values).
    """
    modes = Modes(story)
    rounds: dict[object, list[tuple[Event, LayerCall]]] = {}
    for backward, each in modes.training():
        rounds.setdefault(each.layer, []).append((backward, each))
    reported = set()
    for passes in rounds.values():
        both_ways = {backward.step for backward, each in passes if each.active}
        off = [
            (b, each) for b, each in passes if not each.active and b.step not in both_ways and _updated(story, each, b)
        ]
        place = story.span(off[0][1].event.step) if off else None
        if not off or place in reported or off[0][1].weight not in modes.trained:
            continue
        before = next((each for _, each in passes if each.active and each.event.step < off[0][1].event.step), None)
        if before is not None or (len(off) >= ROUNDS and not both_ways and _never_meant(story, modes, off[0][1])):
            reported.add(place)
            yield _finding(story, *off[0], before)


def _updated(story: Story, each: LayerCall, backward: Event) -> bool:
    """Whether the storage of the weight before the layer was written after the backward."""
    storage = (story.tensor(each.weight, backward.step) or {}).get("storage")
    return bool(story.writes(str(storage), backward.step, len(story.events)))


def _never_meant(story: Story, modes: Modes, each: LayerCall) -> bool:
    """Whether the layer never ran in training mode and, for a batch norm, its running statistics still have their
    initial values.

    Then no earlier training explains why it is in evaluation mode.
    """
    if any(other.active for other in modes.passes if other.layer == each.layer):
        return False
    if each.kind == "dropout":
        return True
    held = [(story.record("storages", (story.tensor(o.label) or {}).get("storage"), each.event.step) or {}).get("cells")
            for o in each.event.operands[1:3]]  # fmt: skip
    return [set(cells) for cells in held if isinstance(cells, list)] == [{0.0}, {1.0}]


def _finding(story: Story, backward: Event, each: LayerCall, before: LayerCall | None) -> Finding:
    span, name = story.span(each.event.step), NAMES[each.kind]
    here, back = at_line(story, span), at_line(story, story.span(backward.step))
    switch = _switch(story)
    place = story.program.place(switch) if switch is not None else None
    where = T(
        en=(
            f"{capital(at_line(story, place).en)} switches to evaluation mode (`{snippet(story, place)}`), and "
            "nothing switches back: "
        )
        if place
        else "",
        zh=f"{at_line(story, place).zh}切换到评估模式（`{snippet(story, place)}`），之后没有切换回来："
        if place
        else "",
    )
    since = T(
        en=f"training continues, and {name.en} on {here.en} no longer works as it did before." if before is not None
        else f"{name.en} on {here.en} is off in every step of the training.",
        zh=f"训练继续进行，而{here.zh}的 {name.zh} 不再像之前那样工作。" if before is not None
        else f"{here.zh}的 {name.zh} 在训练的每一步里都是关闭的。",
    )  # fmt: skip
    effect = {
        "dropout": T(
            en="In evaluation mode dropout returns its input unchanged, so nothing is left out and training fits "
            "the data more closely.",
            zh="在评估模式下，dropout 原样交出输入，不再随机丢弃，训练会过分贴合数据。",
        ),
        "batch_norm": T(
            en="In evaluation mode batch normalisation uses the averages that it has collected and collects no more: "
            "it does not follow the weights, which continue to change.",
            zh="在评估模式下，批归一化使用已收集的统计量，并且不再更新：它跟不上继续变化的权重。",
        ),
    }[each.kind]
    related = [
        story.related(
            "used", each.event.step, T(en="here the layer works as in evaluation", zh="这里该层按评估方式工作")
        ),
        story.related(
            "backward", backward.step, T(en="and this backward trains through it", zh="而这次反向传播穿过它进行训练")
        ),
    ]
    if before is not None:
        related.insert(
            0,
            story.related(
                "made",
                before.event.step,
                T(en="in an earlier round it worked as in training", zh="更早的一轮里它按训练方式工作"),
            ),
        )
    return RULE.finding(
        place or span,
        each.event.step,
        T(en=where.en + since.en if place else capital(since.en), zh=where.zh + since.zh),
        T(
            en=f"{effect.en} {capital(back.en)} still trains through it. `eval()` stays until `train()` is called.",
            zh=f"{effect.zh}{back.zh}照样穿过它训练。`eval()` 一直有效，直到调用 `train()`。",
        ),
        related=related,
        fixes=_fixes(story, each, backward, switch),
        facts=[
            Fact("layer", each.kind, story.by(each.event.step)),
            Fact("weight", each.weight, story.by(each.event.step)),
        ],
    )


def _switch(story: Story) -> ast.Call | None:
    """Return the program's only ``….eval()`` or ``….train(False)`` call; None if there is none or more than one."""
    calls = [n for n in story.program.nodes if isinstance(n, ast.Call) and _switches(n)]
    return calls[0] if len(calls) == 1 else None


def _switches(call: ast.Call) -> bool:
    off = [a for a in call.args if isinstance(a, ast.Constant) and a.value is False]
    plain = call_name(call) == "eval" and not call.args
    return isinstance(call.func, ast.Attribute) and (plain or (call_name(call) == "train" and bool(off)))


def _fixes(story: Story, each: LayerCall, backward: Event, switch: ast.Call | None) -> tuple[Fix, ...]:
    program = story.program
    statements = list(call_chain(story, each.event))
    if program.tree is None or switch is None or not isinstance(switch.func, ast.Attribute) or not statements:
        return ()
    name = program.segment(switch.func.value)
    title = T(en=f"Switch back before training: `{name}.train()`", zh=f"训练之前切换回来：`{name}.train()`")
    trains = {id(program.function(s)) for s in call_chain(story, backward)}
    first = _first_of_training(story, backward, switch)
    candidates: list[Fix | None] = (
        [] if first is None else [Fix(title, program.insert_before(first, f"{name}.train()"), meaning="later")]
    )
    candidates += [
        Fix(title, program.insert_before(statement, f"{name}.train()"), meaning="later")
        for statement in statements if id(program.function(statement)) in trains
    ]  # fmt: skip
    place = program.statement(switch)
    if place is not None and isinstance(place, ast.Expr):
        gone = T(en=f"Leave `{program.segment(switch)}` out", zh=f"去掉 `{program.segment(switch)}`")
        candidates.append(Fix(gone, program.delete(place), meaning="later"))
    return unique(program.text, candidates)


def _first_of_training(story: Story, backward: Event, switch: ast.Call) -> ast.stmt | None:
    """Return the first statement, after a docstring, of the function that calls backward, before which the fix can
    switch the mode back.

    None if backward is called at the top level or in the function that contains ``switch``, or if the model is not a
    variable in the function.
    """
    program = story.program
    statement = program.statement_at(story.span(backward.step))
    function, other = (program.function(node) if node is not None else None for node in (statement, switch))
    if function is None or function is other:
        return None
    name = program.segment(switch.func).split(".")[0]
    known = {argument.arg for argument in (*function.args.args, *function.args.kwonlyargs)} - {"self"}
    shared = {
        n.id
        for n in program.nodes
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and program.function(n) is None
    }
    is_own = name == "self" and other is not None and program.parents.get(function) is program.parents.get(other)
    first = next(
        (s for s in function.body if not isinstance(s, ast.Expr) or not isinstance(s.value, ast.Constant)), None
    )
    return first if is_own or name in known | shared else None


RULE = Rule(
    code="PL903",
    name="evaluation-mode-left-on",
    severity="warning",
    title=T(en="Training continued in evaluation mode", zh="训练在评估模式下继续进行"),
    what=T(
        en="A program switched its model to evaluation with `model.eval()` and never switched it back. From then on "
        "it trains without dropout and with frozen averages in batch normalisation. Call `model.train()` at the "
        "beginning of each round of training.",
        zh="程序用 `model.eval()` 把模型切换到评估模式，之后再也没有切换回来。从那以后训练时没有 dropout，批归一化的统"
        "计量也不再更新。请在每一轮训练开始时调用 `model.train()`。",
    ),
    why=T(
        en="`eval()` and `train()` set one flag, `training`, on the module and everything in it; it stays until it is "
        "set again. `no_grad()` has nothing to do with it and does not switch it. Dropout without the flag returns "
        "its input. Batch normalisation without it uses `running_mean` and `running_var` instead of the averages of "
        "the batch, and leaves them as they are. Both are allowed in training, for a part that is to stay as it is, "
        "so torch gives no warning.",
        zh="`eval()` 和 `train()` 设置的是模块及其所有子模块的同一个标志 `training`；它一直有效，直到再次设"
        "置。`no_grad()` 与它无关，也不会切换它。没有这个标志，dropout 就返回输入本身；批归一化就使用 "
        "`running_mean` 和 `running_var`，而不是这一批的统计量，也不更新它们。对于要保持不变的部分，训练时这样"
        "做是合法的，所以 torch 什么也不说。",
    ),
    advice=T(
        en="call `.train()` at the beginning of each round of training: {line} leaves evaluation mode on.",
        zh="在每一轮训练开始时调用 `.train()`：{line}使评估模式一直开着。",
    ),
    bad="""import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 2), torch.randn(6, 1)
for _ in range(3):
    loss = (model(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.eval()  # PL903
    with torch.no_grad():
        print((model(x) - y).square().mean().item())
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 2), torch.randn(6, 1)
for _ in range(3):
    model.train()
    loss = (model(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    model.eval()
    with torch.no_grad():
        print((model(x) - y).square().mean().item())
""",
    find=find,
    traps=(
        Trap(
            "    with torch.no_grad():\n",
            "    with torch.inference_mode():\n",
            T(
                en="Whether gradients are recorded has nothing to do with the mode of the layers.",
                zh="是否记录梯度与层的模式毫无关系。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
    ),
)
