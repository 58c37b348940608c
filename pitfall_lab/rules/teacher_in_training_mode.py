"""PL940: a network that only gives targets works as in training: it drops numbers, or normalises by each batch."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.signals.modes import FURTHER, LayerCall, Modes
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = (
    spellings("sub", exchanged=True) | operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity",
       "cross_entropy", "gaussian_nll_loss", "kl_div", "poisson_nll_loss", "soft_margin_loss"}
)  # fmt: skip
"""The losses, and the difference, that compare an answer with a target."""
SHARES = {"softmax", "sigmoid", "log_softmax"}
"""Functions whose result is a probability, or its logarithm."""
METHODS = {"forward", "__call__"}
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Noisy:
    """``passes`` are the calls of one dropout or batch norm in training mode (:class:`LayerCall`) whose results became
    targets, in a network whose weights the next update by an optimizer does not hold.

    ``compared`` is the call (``Event``) that compares the first of these targets with a trained tensor: a loss, or the
    product of shares (a softmax, for example) with it.
    """

    passes: list[LayerCall]
    compared: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that calls a network of which one dropout or batch norm works as in training and
    whose results, without grad, are the targets of a trained tensor at least ``ROUNDS`` times. The next update by an
    optimizer must be one of other weights.

    Not where its weights, held by no optimizer, are written later by anything but ``load_state_dict`` or a ``step`` (as
    a moving average of others is), where a batch norm's weight is written later at all or does not require grad, nor
    where one input runs through a dropout several times between two updates.
    """
    modes, layers = Modes(story), dict[object, list[LayerCall]]()
    for each in modes.passes if story.trace.optimizer_steps else ():
        if each.active and each.weight is not None and _is_still(story, each):
            layers.setdefault((each.kind, each.layer), []).append(each)
    told = set()
    for passes in layers.values():
        targets = [(each, loss) for each in passes if (loss := _compared(story, each)) is not None]
        place = _called_at(story, passes[0])
        if (
            len(targets) >= ROUNDS
            and place not in told
            and not (_sampled(story, modes, passes) if passes[0].kind == "dropout" else _moves(story, passes))
            and not _averaged(story, passes[0])
        ):
            told.add(place)
            yield _finding(story, Noisy([each for each, _ in targets], targets[0][1]))


def _is_still(story: Story, each: LayerCall) -> bool:
    """Whether the result of the pass requires no grad and the next update is for other weights.

    False if no update follows.
    """
    if (story.tensor(each.result, each.event.step) or {}).get("requires_grad"):
        return False
    update = next((u for u in story.trace.optimizer_steps if u.step > each.event.step), None)
    storage = (story.tensor(each.weight) or {}).get("storage")
    return update is not None and storage not in {(story.tensor(label) or {}).get("storage") for label in update.holds}


def _compared(story: Story, each: LayerCall) -> Event | None:
    """The call that compares what became of the result with something computed that is trained; ``None``
    where it is used as an input.

    That is a loss, or a product with shares. Judged by the first result that requires grad, soon after.
    """
    reached, shares = {each.result}, False
    for event in story.events[each.event.step + 1 : each.event.step + FURTHER]:
        if event.kind != "call" or not any(o.label in reached for o in event.operands):
            continue
        others = [
            story.tensor(o.label, event.step) or {}
            for o in event.operands
            if o.label is not None and o.label not in reached
        ]
        if any((story.tensor(result, event.step) or {}).get("requires_grad") for result in event.results):
            computed = not any(other.get("is_leaf") for other in others if other.get("requires_grad"))
            return event if computed and (event.name in LOSSES or (event.name == "mul" and shares)) else None
        shares = shares or event.name in SHARES
        reached.update(event.results)
    return None


def _sampled(story: Story, modes: Modes, passes: list[LayerCall]) -> bool:
    """Whether one input ran through the layer several times between two updates, so that the randomness is wanted."""
    updates, seen = [update.step for update in story.trace.optimizer_steps], set()
    for each in passes:
        key = (modes.input(each), sum(step < each.event.step for step in updates))
        if key in seen:
            return True
        seen.add(key)
    return False


def _moves(story: Story, passes: list[LayerCall]) -> bool:
    """Whether a batch norm's weight is written after the first pass, or is frozen, which another rule is about.

    A target that is copied from the trained network now and then may well be normalised as that one is.
    """
    weight, first = passes[0].weight, passes[0].event.step
    record = story.tensor(weight, first) or {}
    written = story.writes(str(record.get("storage")), first, len(story.events))
    return bool(written) or not record.get("requires_grad")


def _averaged(story: Story, each: LayerCall) -> bool:
    """Whether the layer's weights follow others by a moving average; a teacher of that kind may be noisy on purpose."""
    storage = str((story.tensor(each.weight) or {}).get("storage"))
    written = story.writes(storage, each.event.step, len(story.events))
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    mine = {label for label, _ in story.tensors_on(storage)}
    return not held & mine and any(story.said(step) not in ("load_state_dict", "step") for step in written)


def _called_at(story: Story, each: LayerCall) -> Span | None:
    """Return the span of the line that calls the network; None if there is none."""
    return (
        story.program.place(statement)
        if (statement := _caller(story, each)) is not None
        else story.span(each.event.step)
    )


def _caller(story: Story, each: LayerCall) -> ast.stmt | None:
    """The innermost statement around the layer that is in no module's ``forward``; if all are in one, the outermost.

    None if none is known.
    """
    last = None
    for statement in call_chain(story, each.event):
        last, function = statement, story.program.function(statement)
        if function is None or function.name not in METHODS:
            return statement
    return last


def _finding(story: Story, found: Noisy) -> Finding:
    first, statement = found.passes[0].event, _caller(story, found.passes[0])
    span = story.span(first.step) if statement is None else story.program.place(statement)
    here, there, count = (
        at_line(story, story.span(first.step)),
        at_line(story, story.span(found.compared.step)),
        len(found.passes),
    )
    own = span is None or story.span(first.step) == span
    drops = found.passes[0].kind == "dropout"
    layer = T(en="drops numbers here", zh="在这里丢弃数值") if drops else T(en="normalises here", zh="在这里归一化")
    inner = [] if own else [Related("used", story.span(first.step), first.step, layer)]
    if drops:
        message = T(
            en=f"Dropout on {here.en} works as in training in a network that is not trained, and {there.en} takes its "
            f"results as targets: they are random, {count} times so far.",
            zh=f"{here.zh}的 dropout 在一个不被训练的网络里按训练方式工作，而{there.zh}把它的结果当作目标：目标是随机"
            f"的，到目前为止 {count} 次。",
        )
        mode = T(
            en="In training mode its dropout leaves out other numbers in every call, so the targets are noisy, and "
            "worse than what the network knows.",
            zh="在训练模式下，它的 dropout 每次调用都会丢弃不同的数，所以目标带有噪声，比网络实际知道的更差。",
        )
    else:
        message = T(
            en=f"Batch norm on {here.en} works as in training in a network that is not trained, and {there.en} takes "
            f"its results as targets: they depend on what else is in the batch, {count} times so far.",
            zh=f"{here.zh}的 batch norm 在一个不被训练的网络里按训练方式工作，而{there.zh}把它的结果当作目标：目标取决"
            f"于批次里还有什么，到目前为止 {count} 次。",
        )
        mode = T(
            en="In training mode its batch norm divides by the spread of each batch in place of what it has learned, "
            "and moves what it has learned towards these batches, so the network changes although nothing trains it.",
            zh="在训练模式下，它的 batch norm 按每个批次的统计量归一化，而不用学到的统计量，还会把学到的统计量移向这些"
            "批次，所以尽管没有训练它，网络仍在改变。",
        )
    return RULE.finding(
        span,
        first.step,
        message,
        T(
            en=f"A teacher or target network says what the other network is to learn. {mode.en} "
            "`no_grad()` and `requires_grad_(False)` do not change the mode; `eval()` does.",
            zh=f"教师网络或目标网络给出另一个网络要学的东西。{mode.zh}`no_grad()` 与 `requires_grad_(False)` 不会改变模"
            "式；`eval()` 才会。",
        ),
        related=[
            *inner,
            story.related("read", found.compared.step, T(en="the target of this loss", zh="这个损失的目标")),
        ],
        fixes=_fixes(story, statement),
        facts=[Fact("passes", count, story.by(first.step))],
    )


def _fixes(story: Story, statement: ast.stmt | None) -> tuple[Fix, ...]:
    """Fixes that add ``teacher.eval()`` before the loop, or before the call if the network is an
    attribute (``self.teacher``).

    One for each call by a plain name in the statement; empty if there is none.
    """
    program, fixes = story.program, list[Fix]()
    if statement is None:
        return ()
    for call in (n for n in ast.walk(statement) if isinstance(n, ast.Call) and is_name(n.func)):
        name = program.segment(call.func)
        if name.split(".", maxsplit=1)[0] in ("torch", "nn", "F", "print", "len", "range"):
            continue
        before = statement
        for outer in program.ancestors(statement) if not name.startswith("self.") else ():
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef):
                break
            before = outer if isinstance(outer, ast.For | ast.While) else before
        title = T(en=f"Put it in evaluation mode: `{name}.eval()`", zh=f"把它设为评估模式：`{name}.eval()`")
        fixes.append(Fix(title, program.insert_before(before, f"{name}.eval()"), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL940",
    name="teacher-in-training-mode",
    severity="warning",
    title=T(en="A teacher or target network works as if it were trained", zh="教师网络或目标网络仍按训练方式工作"),
    what=T(
        en="A network learns from the answers of another one, which is not trained, but still works as if it were: "
        "its dropout leaves out numbers at random, or its batch norm goes by what else is in the batch, so its answers "
        "change from call to call. Call `teacher.eval()`.",
        zh="一个网络向另一个不被训练的网络的回答学习，而后者仍像在训练中那样工作：它的 dropout 随机丢弃数值，或它的 "
        "batch norm 取决于批次里还有什么，所以每次调用的回答都不同。请调用 `teacher.eval()`。",
    ),
    why=T(
        en="Each module has a flag `training`, which is True when the module is made, loaded or copied from one that "
        "was trained. Dropout and batch normalisation read it. Whether gradients are recorded is another question, "
        "which `no_grad()` answers, and whether the weights move is a third one, which the optimizer answers. Only "
        "`eval()` sets the flag, and `train()` of a network that contains the teacher sets it back.",
        zh="每个模块都有一个标志 `training`；新建的、载入的或从训练中的模块复制来的模块，它都是 True。dropout 与批归一"
        "化会读取它。是否记录梯度是另一个问题，由 `no_grad()` 决定；权重是否移动是第三个问题，由优化器决定。只有 "
        "`eval()` 会改变这个标志，而对包含教师的网络调用 `train()` 又会把它改回去。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1))
student = nn.Linear(2, 1)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
x = torch.randn(4, 2)
for _ in range(3):
    with torch.no_grad():
        target = teacher(x)  # PL940
    loss = (student(x) - target).square().mean()  # read
    opt.zero_grad()
    loss.backward()
    opt.step()
print(student.weight)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
teacher = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1))
student = nn.Linear(2, 1)
opt = torch.optim.SGD(student.parameters(), lr=0.1)
x = torch.randn(4, 2)
teacher.eval()
for _ in range(3):
    with torch.no_grad():
        target = teacher(x)
    loss = (student(x) - target).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(student.weight)
""",
    find=find,
    traps=(
        Trap(
            "    with torch.no_grad():\n        target = teacher(x)",
            "    target = teacher.requires_grad_(False)(x)",
            T(
                en="A frozen network is not in evaluation mode: only its gradients are switched off.",
                zh="冻结的网络并不处于评估模式：只是关掉了梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.eval",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html",
    ),
)
