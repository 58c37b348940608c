"""PL904: a trained model was measured while dropout or batch normalisation worked as in training."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, receiver
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.wording import at_line, capital, numbers
from pitfall_lab.rules.signals.modes import ATTENTION, FURTHER, LayerCall, Modes
from pitfall_lab.trace import Event, Loading, Span, T

FORWARD = {"forward", "__call__"}
DRAWS = 3
"""From this number of random results for the same data and weights on, the randomness counts as intended."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line on which the result of an active dropout or batch normalisation was only
    measured: after the first step of an optimizer, of layers that were also trained, or after ``load_state_dict`` of a
    module that was not trained afterwards.

    Not where the mode was chosen for the layer on purpose, or where the program repeats the pass.
    """
    modes = Modes(story)
    learned = list(modes.training())
    passes: dict[object, list[tuple[LayerCall, Loading | None]]] = defaultdict(list)
    for each in modes.passes:
        loading = _loaded(story, each, learned)
        if (loading is not None or _trained(story, each, learned)) and (
            each.event.step not in modes.chosen or _functional(story, each) is not None
        ):
            passes[each.layer].append((each, loading))
    reported = set()
    for layer in passes.values():
        repeated = _repeated(story, modes, [each for each, _ in layer])
        for each, loading in layer if not repeated else ():
            place = story.span(each.event.step)
            if place not in reported and (measure := modes.measured(each)) is not None:
                reported.add(place)
                yield _finding(story, each, measure, loading)


def _trained(story: Story, each: LayerCall, learned: list[tuple[Event, LayerCall]]) -> bool:
    """Whether an active layer that is trained elsewhere was called after the first step of an optimizer, without a
    backward through this call.
    """
    first = min((update.step for update in story.trace.optimizer_steps), default=None)
    return (
        each.active
        and first is not None
        and each.event.step > first
        and all(one.event.step != each.event.step for _, one in learned)
        and any(one.layer == each.layer for _, one in learned)
    )


def _loaded(story: Story, each: LayerCall, learned: list[tuple[Event, LayerCall]]) -> Loading | None:
    """The last ``load_state_dict`` before the call that set the weights of an active layer, if the layer was not
    trained afterwards; else None.

    None also if the program itself switches the module that is called to training mode (``model.train()``).
    """
    before = (one for one in story.trace.beside.loadings if one.step < each.event.step and each.weight in one.holds)
    loading = max(before, key=lambda one: one.step, default=None)
    if loading is None or not each.active or each.weight is None:
        return None
    if any(one.layer == each.layer and one.event.step > loading.step for _, one in learned):
        return None
    return None if _switched_on(story, each) else loading


def _switched_on(story: Story, each: LayerCall) -> bool:
    """Whether the program has ``x.train()`` or ``x.train(True)`` for an ``x`` that it calls on the way to the layer."""
    program = story.program
    switched = {
        program.segment(call.func.value)
        for call in program.calls.get(".train", ())
        if isinstance(call.func, ast.Attribute) and all(program.segment(one) == "True" for one in call.args)
    }
    around = (node for statement in call_chain(story, each.event) for node in ast.walk(statement))
    return any(isinstance(node, ast.Call) and program.segment(node.func) in switched for node in around)


def _repeated(story: Story, modes: Modes, passes: list[LayerCall]) -> bool:
    """Whether the randomness is intended: the same data ran through a dropout several times with the same weights.

    The results must be used together, copied to NumPy or lists, or come from one place in the source that ran the layer
    ``DRAWS`` times.
    """
    if passes[0].kind != "dropout":
        return False
    seen: dict[tuple[str, ...], list[LayerCall]] = {}
    storage = str((story.tensor(passes[0].weight) or {}).get("storage"))
    for each in passes:
        earlier = seen.setdefault(modes.input(each), [])
        same = [one for one in earlier if not story.writes(storage, one.event.step, each.event.step)]
        if len([one for one in same if one.event.span == each.event.span]) + 1 >= DRAWS or any(
            _meet(story, one, each) for one in same[-1:]
        ):
            return True
        earlier.append(each)
    return False


def _meet(story: Story, one: LayerCall, other: LayerCall) -> bool:
    """Whether a call used both results (or what was computed from them), or one of them was copied to NumPy or a list.

    Only the calls up to ``FURTHER`` steps after the second result are looked at.
    """
    first, second = set(one.event.results), set(other.event.results)
    for event in story.events[one.event.step + 1 : other.event.step + FURTHER]:
        given = {o.label for o in event.operands}
        if event.kind != "call" or not given & (first | second):
            continue
        if event.name in ("numpy", "tolist") or (given & first and given & second):
            return True
        (first if given & first else second).update(event.results)
    return False


def _finding(story: Story, each: LayerCall, measure: Event, loading: Loading | None) -> Finding:
    layer, there = story.span(each.event.step), at_line(story, story.span(measure.step))
    called_by, here = _called_by(story, each), at_line(story, layer)
    functional = _functional(story, each)
    what = {
        "dropout": T(
            en="Dropout sets numbers to zero at random, so the measurement is worse than the model is, and "
            "another one each time.",
            zh="dropout 随机地把一些数置零，所以测得的结果比模型实际的差，而且每次都不同。",
        ),
        "batch_norm": T(
            en="Batch normalisation uses the averages of this batch, so one example's result depends on the others, "
            f"and it takes these data into its running averages.{_moved(story, each).en}",
            zh="批归一化使用这一批数据的平均值，所以一个样本的结果取决于其他样本；它还会把这些数据计入运行平均。"
            f"{_moved(story, each).zh}",
        ),
    }[each.kind]
    function, missing = each.event.name, "dropout_p=0.0" if each.event.name == ATTENTION else "training=False"
    name = T(en="dropout", zh="dropout") if each.kind == "dropout" else T(en="batch normalisation", zh="批归一化")
    why = T(
        en=(
            f" The function `{function}` does not know the mode of the module that calls it: it drops unless "
            f"`{missing}` is given."
        )
        if functional is not None
        else " `no_grad()` does not change the mode of the layers; `model.eval()` does.",
        zh=f"函数 `{function}` 不知道调用它的模块处于什么模式：除非给出 `{missing}`，否则它总会丢弃。"
        if functional is not None
        else "`no_grad()` 不会改变层的模式；`model.eval()` 才会。",
    )
    if loading is not None and functional is None:
        why = T(
            en=" A new module is in training mode, and neither `load_state_dict` nor `no_grad()` changes that; "
            "`model.eval()` does.",
            zh="新建的模块处于训练模式，`load_state_dict` 和 `no_grad()` 都不会改变它；`model.eval()` 才会。",
        )
    return RULE.finding(
        layer if functional is not None else called_by,
        each.event.step,
        T(
            en=f"{capital(name.en)} on {here.en} works as in training while {there.en} measures the result.",
            zh=f"{there.zh}在测量结果，而{here.zh}的 {name.zh} 仍按训练方式工作。",
        ),
        T(en=what.en + why.en, zh=what.zh + why.zh),
        related=[
            story.related(
                "used", each.event.step, T(en="here the layer works as in training", zh="这里该层按训练方式工作")
            ),
            Related("forward", called_by, each.event.step, T(en="the model is called here", zh="模型在这里被调用")),
            story.related("read", measure.step, T(en="the result is measured here", zh="结果在这里被测量")),
        ],
        fixes=_fixes(story, each, functional, loading),
        facts=[Fact("layer", each.kind, story.by(each.event.step))],
    )


def _called_by(story: Story, each: LayerCall) -> Span | None:
    """Where the program calls the model that contains the layer: at the innermost statement that is in no module's
    ``forward``, or else at the layer's own call.
    """
    for statement in call_chain(story, each.event):
        function = story.program.function(statement)
        if function is None or function.name not in FORWARD:
            own = story.program.statement_at(story.span(each.event.step)) is statement
            return story.span(each.event.step) if own else story.program.place(statement)
    return story.span(each.event.step)


def _moved(story: Story, each: LayerCall) -> T:
    """A sentence on how the call changed the running average; empty if the trace does not have its values."""
    storage = (story.tensor(each.event.operands[1].label) or {}).get("storage")
    held = [
        (story.record("storages", storage, step) or {}).get("cells") for step in (each.event.step - 1, each.event.step)
    ]
    if held[0] is None or held[1] is None or storage not in each.event.writes:
        return T(en="", zh="")
    was, now = map(numbers, held)
    return T(en=f" Here `running_mean` goes from {was} to {now}.", zh=f"这里 `running_mean` 从 {was} 变成 {now}。")


def _functional(story: Story, each: LayerCall) -> ast.Call | None:
    """The program's own call of the function (such as ``F.dropout``), if it does not give the argument ``training``;
    else None.

    A call of attention must give ``dropout_p``.
    """
    node = story.program.at(story.span(each.event.step))
    if not isinstance(node, ast.Call) or call_name(node) != each.event.name:
        return None
    if each.event.name == ATTENTION:
        return node if _share(node) is not None and "training" not in story.program.segment(node) else None
    return node if len(node.args) <= 2 and not any(k.arg == "training" for k in node.keywords) else None


def _share(call: ast.Call) -> ast.expr | None:
    """The argument ``dropout_p`` of a call of attention; None if there is none."""
    return next((k.value for k in call.keywords if k.arg == "dropout_p"), call.args[4] if len(call.args) > 4 else None)


def _fixes(story: Story, each: LayerCall, functional: ast.Call | None, loading: Loading | None) -> tuple[Fix, ...]:
    program = story.program
    if program.tree is None:
        return ()
    candidates: list[Fix | None] = list(_after_loading(story, loading)) if functional is None else []
    if functional is not None and (share := _share(functional)) is not None:
        text = f"{in_parentheses(program, share)} if self.training else 0.0"
        title = T(en=f"Drop in training only: `dropout_p={text}`", zh=f"只在训练时丢弃：`dropout_p={text}`")
        candidates.append(Fix(title, program.replace((share, text)), meaning="later"))
    elif functional is not None:
        title = T(
            en="Pass the module's mode on: `training=self.training`", zh="把模块的模式传进去：`training=self.training`"
        )
        text = program.segment(functional)[:-1].rstrip().rstrip(",")
        candidates.append(
            Fix(title, program.replace((functional, f"{text}, training=self.training)")), meaning="later")
        )
    outside = (s for s in call_chain(story, each.event) if (f := program.function(s)) is None or f.name not in FORWARD)
    for statement in outside:
        for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call) and is_name(n.func)):
            candidates += _switched(story, statement, program.segment(call.func), each)
    return unique(program.text, candidates)


def _after_loading(story: Story, loading: Loading | None) -> Iterator[Fix]:
    """The fix that puts ``model.eval()`` after ``model.load_state_dict(…)``; nothing if that is no statement of its own
    in the program.
    """
    statement = story.program.statement_at(loading.span) if loading is not None else None
    call = statement.value if isinstance(statement, ast.Expr) else None
    if statement is None or not isinstance(call, ast.Call) or call_name(call) != "load_state_dict":
        return
    model = receiver(call)
    if model is not None and is_name(model) and story.program.stands_alone(statement):
        text = f"{story.program.segment(model)}.eval()"
        title = T(en=f"Use what was loaded in evaluation mode: `{text}`", zh=f"以评估模式使用载入的模型：`{text}`")
        yield Fix(title, story.program.insert_after(statement, text), meaning="later")


def _switched(story: Story, statement: ast.stmt, model: str, each: LayerCall) -> Iterator[Fix]:
    """The fix that puts ``model.eval()`` before the line, and ``model.train()`` after it if training continues.

    Nothing for a compound statement, a ``return`` if training continues, or a ``model`` such as ``torch``.
    """
    program = story.program
    if hasattr(statement, "body") or model.split(".", maxsplit=1)[0] in ("torch", "nn", "F", "print", "range", "len"):
        return
    more = any(update.step > each.event.step for update in story.trace.optimizer_steps)
    if more and isinstance(statement, ast.Return):
        return
    before: tuple[Edit, ...] | None = program.insert_before(statement, f"{model}.eval()")
    if more:
        indent, text = program.indent(statement), "".join(program.lines[statement.lineno - 1 : statement.end_lineno])
        text = text if text.endswith("\n") else text + "\n"
        edit = Edit(
            statement.lineno,
            statement.end_lineno or statement.lineno,
            f"{indent}{model}.eval()\n{text}{indent}{model}.train()\n",
        )
        before = merge((edit,)) if program.stands_alone(statement) else None
    if before is not None:
        title = T(en=f"Measure in evaluation mode: `{model}.eval()`", zh=f"在评估模式下测量：`{model}.eval()`")
        yield Fix(title, before, meaning="later")


RULE = Rule(
    code="PL904",
    name="measured-in-training-mode",
    severity="warning",
    title=T(en="A model was measured while its layers worked as in training", zh="测量模型时，它的层仍按训练方式工作"),
    what=T(
        en="A program measured a trained model without calling `model.eval()` first. Dropout still left numbers out, "
        "and batch normalisation still used each batch's own averages, so the measured quality is not the model's. "
        "Call `model.eval()` before measuring and `model.train()` before training continues.",
        zh="程序测量训练过的模型时，没有先调用 `model.eval()`。dropout 仍在随机丢弃，批归一化仍在使用每一批自己的平均"
        "值，所以测得的并不是模型的质量。请在测量之前调用 `model.eval()`，继续训练之前调用 `model.train()`。",
    ),
    why=T(
        en="A new module is in training mode, and stays there until `eval()` is called. `no_grad()` only stops the "
        "recording for gradients; the layers compute as before. Calling a model in training mode is right for "
        "training, and also where the spread of many random results is to be measured, so torch gives no warning. "
        "`torch.nn.functional.dropout` is no module and has no mode: it drops unless its argument `training` is "
        "false, as `scaled_dot_product_attention` does unless its `dropout_p` is 0.",
        zh="新建的模块处于训练模式，直到调用 `eval()`。`no_grad()` 只是停止为梯度做记录，各层照样计算。训练时这样"
        "调用是对的；如果要的就是多次随机结果的分布，也是对的，所以 torch 什么也不说。"
        "`torch.nn.functional.dropout` 不是模块，没有模式：除非参数 `training` 为假，否则它总会丢弃；"
        "`scaled_dot_product_attention` 也是如此，除非 `dropout_p` 为 0。",
    ),
    advice=T(
        en="call `.eval()` before {line} measures, and `.train()` before the training continues.",
        zh="在{line}测量之前调用 `.eval()`，训练继续之前调用 `.train()`。",
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
with torch.no_grad():
    pred = model(x)  # PL904
    print(torch.nn.functional.mse_loss(pred, y).item())  # read
""",
    good="""import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Dropout(0.5), torch.nn.Linear(4, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(6, 2), torch.randn(6, 1)
for _ in range(3):
    loss = (model(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
model.eval()
with torch.no_grad():
    pred = model(x)
    print(torch.nn.functional.mse_loss(pred, y).item())
""",
    find=find,
    traps=(
        Trap(
            "with torch.no_grad():",
            "with torch.inference_mode():",
            T(
                en="Whether gradients are recorded has nothing to do with the mode of the layers.",
                zh="是否记录梯度与层的模式毫无关系。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#evaluation-mode-nn-module-eval",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.dropout.html",
    ),
)
