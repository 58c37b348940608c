"""PL783: a target network is a copy that was made before training, and nothing ever gives it the trained weights."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name
from pitfall_lab.rules.kit.wording import apart, at_line, called
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by, same_numbers
from pitfall_lab.rules.signals.linear_parts import constant
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

LOSSES = spellings("sub", exchanged=True) | operations_that("difference_loss")
"""Calls that compare a prediction with its target."""
FORWARDS = (
    operations_that("matrix_product") | operations_that("convolution") | operations_that("recurrent")
    | {"addmm", "bilinear", "embedding", "linear"}
)  # fmt: skip
"""Calls by which a network computes with its weights."""
SUMS, PRODUCTS = spellings("add"), spellings("mul")
SCALES = (
    spellings("clamp", "mul")
    | {"__getitem__", "clone", "detach", "expand", "flatten", "float", "reshape", "squeeze", "to", "unsqueeze", "view",
       "where"}
)  # fmt: skip
"""Calls through which the target of a loss is followed back to the sum that it is."""
MOVES = {
    "load_state_dict", "copy_", "lerp_", "lerp", "mul_", "add_", "_foreach_lerp_", "_foreach_copy_", "_foreach_mul_",
    "set_", "update_parameters", "data", "load", "vector_to_parameters", "deepcopy", "__dict__", "setattr",
    "swap_tensors", "swap_module", "update",
}  # fmt: skip
"""Words in a program's text that may write weights."""
INITIAL = {"deepcopy", "load_state_dict"}
"""The calls by which a network begins as a copy of another one."""
HARMLESS = {"print", "len", "id", "list", "deepcopy", "isinstance", "type"}
"""Functions that change no weights of a network that they are given."""
ROUNDS, DEPTH, FURTHER = 20, 12, 60


@dataclass(frozen=True, slots=True)
class FrozenCopy:
    """``made`` is the call (``Event``) that copied the parameter labelled ``source`` into the parameter labelled
    ``copy``, before ``source`` was first updated; nothing has written ``copy`` since.
    """

    source: str
    copy: str
    made: Event


@dataclass(frozen=True, slots=True)
class Bootstrapped:
    """``loss`` is the call (``Event``) of a loss whose target is given numbers (rewards) plus a share of what the call
    ``forward`` computed with ``frozen``, a copy that is never updated.

    ``names`` are the program's expressions for the network that is trained and for the frozen one; ``updates`` is the
    number of steps that the optimizer of the trained one made.
    """

    loss: Event
    forward: Event
    frozen: FrozenCopy
    names: tuple[str, str]
    updates: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each network that began as a copy of one that is trained, computes bootstrapped targets for
    it, and is never updated.

    Only in finished programs of ``ROUNDS`` updates or more whose source has nothing that could copy weights, besides
    the copy at the beginning.
    """
    trace = story.trace
    if trace.stopped is not None or trace.outcome.kind != "finished" or story.program.tree is None:
        return
    if not any(made.steps >= ROUNDS for made in trace.optimizers):
        return
    frozen = _frozen(story)
    reported = set()
    for loss in _losses(story) if frozen else ():
        found = _bootstrapped(story, loss, frozen)
        if found is not None and found.names not in reported:
            reported.add(found.names)
            yield _finding(story, found)


def _frozen(story: Story) -> dict[str, FrozenCopy]:
    """By its storage, each parameter that no optimizer holds and that has kept the values that it was given from a
    parameter before this one was first updated.
    """
    parameters = {str(r.get("storage")): label for label, r in story.tensors.items() if r.get("kind") == "parameter"}
    held = {str((story.tensor(label) or {}).get("storage")) for made in story.trace.optimizers for label in made.holds}
    first = min((update.step for update in story.trace.optimizer_steps), default=0)
    copies, found = dict[str, list[FrozenCopy]](), dict[str, FrozenCopy]()
    for event in story.calls("clone", "copy_") if len(parameters) > len(held) else ():
        own = [o.label for o in event.operands if o.label is not None]
        pair = [*event.results, *own] if event.name == "clone" else own
        if event.error is None and len(pair) == 2:
            copy, source = (str((story.tensor(label, event.step) or {}).get("storage")) for label in pair)
            if copy in parameters and source in parameters and source in held and copy not in held:
                copies.setdefault(copy, []).append(FrozenCopy(parameters[source], parameters[copy], event))
    for storage, made in copies.items():
        last = made[-1].made.step
        moved = [at for at, _ in story.history("tensors", made[-1].copy, "storage") if at > last]
        if len(made) == 1 and last < first and not story.writes(storage, last, len(story.events)) and len(moved) < 2:
            found[storage] = made[0]
    return found


def _losses(story: Story) -> Iterator[Event]:
    """Yield the first call on each line that may compare a prediction with a target."""
    places = set[Span | None]()
    for event in story.calls(*LOSSES):
        if event.error is None and len(event.operands) > 1 and event.span not in places:
            places.add(event.span)
            yield event


def _bootstrapped(story: Story, loss: Event, frozen: dict[str, FrozenCopy]) -> Bootstrapped | None:
    """The finding's data if the loss compares a trained prediction with a bootstrapped target of a frozen copy; else
    None.
    """
    labels = [o.label for o in loss.operands[:2] if o.label is not None]
    trained = [label for label in labels if (story.tensor(label, loss.step) or {}).get("requires_grad")]
    if len(labels) != 2 or len(trained) != 1:
        return None
    target = labels[0] if trained[0] == labels[1] else labels[1]
    forward = _estimate(story, target, loss.step, frozen)
    if forward is None:
        return None
    each = frozen[_memory(story, forward, frozen)]
    own = [use for use in _forwards(story, trained[0], loss.step) if each.source in [o.label for o in use.operands]]
    if not own or _input(story, own[0]) == _input(story, forward):
        return None
    updates = max((made.steps for made in story.trace.optimizers if each.source in made.holds), default=0)
    names = _names(story, each)
    if updates < ROUNDS or names is None or _may_be_moved(story, names[1], each):
        return None
    return Bootstrapped(loss, forward, each, names, updates)


def _memory(story: Story, forward: Event, frozen: dict[str, FrozenCopy]) -> str:
    """The storage of the frozen copy that a layer computes with; empty if it has none."""
    memories = (str((story.tensor(o.label, forward.step) or {}).get("storage")) for o in forward.operands if o.label)
    return next((memory for memory in memories if memory in frozen), "")


def _input(story: Story, forward: Event) -> str | None:
    label = forward.operands[0].label
    return same_numbers(story, label, forward.step) if label is not None else None


def _estimate(story: Story, label: str, step: int, frozen: dict[str, FrozenCopy]) -> Event | None:
    """The call of the first layer with a frozen copy whose estimate, times a discount, was added to given numbers to
    make the target; None if the target was made otherwise.
    """
    for _ in range(DEPTH):
        event = made_by(story, label, step)
        own = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not own:
            return None
        if event.name in SUMS and len(own) == 2:
            for estimate, reward in ((own[0], own[1]), (own[1], own[0])):
                share = _discount(story, estimate, event.step)
                layers = list(_forwards(story, estimate, event.step))
                first = next((each for each in reversed(layers) if _memory(story, each, frozen)), None)
                if share is not None and first is not None and not any(_forwards(story, reward, event.step)):
                    return first if not _complements(story, reward, event.step, share) else None
        if event.name not in SCALES:
            return None
        label, step = own[0], event.step
    return None


def _discount(story: Story, label: str, step: int) -> float | None:
    """The factor, from 0.5 to less than 1, by which an estimate is multiplied; None if there is none.

    That of a tensor is the largest number in it.
    """
    for _ in range(DEPTH):
        event = made_by(story, label, step)
        own = [o.label for o in event.operands if o.label is not None] if event is not None else []
        if event is None or not own:
            return None
        if event.name in PRODUCTS and len(event.operands) == 2:
            for operand in event.operands:
                factor = constant(story, operand.label, operand.text, event.step)
                factor = _largest(story, operand.label, event.step) if factor is None else factor
                if factor is not None and 0.5 <= factor < 1 and not (len(own) == 1 and operand.label):
                    return factor
            own.sort(key=lambda each: not any(_forwards(story, each, event.step)))
        elif event.name not in SCALES:
            return None
        label, step = own[0], event.step
    return None


def _largest(story: Story, label: str | None, step: int) -> float | None:
    """The largest known number in the storage of a tensor that no layer computed; None if a layer did, or if none is
    known.
    """
    if label is None or any(_forwards(story, label, step)):
        return None
    cells = (story.record("storages", (story.tensor(label, step) or {}).get("storage"), step) or {}).get("cells")
    if isinstance(cells, dict):
        return cells.get("high")
    numbers = [float(each) for each in cells or () if isinstance(each, int | float)]
    return max(numbers, default=None)


def _complements(story: Story, label: str, step: int, share: float) -> bool:
    """Whether a tensor is a product with the number ``1 - share``, as in a mixture of labels and a teacher's
    answers.
    """
    event = made_by(story, label, step)
    if event is None or event.name not in PRODUCTS:
        return False
    numbers = [constant(story, o.label, o.text, event.step) for o in event.operands]
    return any(number is not None and abs(number + share - 1) < 1e-6 for number in numbers)


def _forwards(story: Story, label: str, step: int) -> Iterator[Event]:
    """Yield the calls of layers with parameters that a tensor was computed by, nearest first."""
    pending, seen = deque([(label, step)]), set[str]()
    while pending and len(seen) < FURTHER:
        here, at = pending.popleft()
        event = made_by(story, here, at)
        if event is None or here in seen:
            continue
        seen.add(here)
        own = [o.label for o in event.operands if o.label is not None]
        if event.name in FORWARDS and any((story.tensor(o, event.step) or {}).get("kind") == "parameter" for o in own):
            yield event
        pending += [(each, event.step) for each in own]


def _names(story: Story, each: FrozenCopy) -> tuple[str, str] | None:
    """The expressions for the network and for its copy in the statement that made the copy; None if it has another
    form.
    """
    program = story.program
    node = program.at(story.span(each.made.step))
    statement = program.statement(node)
    if not isinstance(node, ast.Call) or call_name(node) not in INITIAL or not node.args:
        return None
    if call_name(node) == "deepcopy":
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and is_name(node.args[0]):
            target = statement.targets[0]
            whole = statement.value
            plain = whole is node or (isinstance(whole, ast.Call) and isinstance(whole.func, ast.Attribute))
            return (program.segment(node.args[0]), program.segment(target)) if is_name(target) and plain else None
        return None
    given = node.args[0]
    fits = isinstance(given, ast.Call) and call_name(given) == "state_dict" and isinstance(given.func, ast.Attribute)
    if not fits or not isinstance(given, ast.Call) or not isinstance(given.func, ast.Attribute):
        return None
    if not isinstance(node.func, ast.Attribute) or not is_name(node.func.value) or not is_name(given.func.value):
        return None
    return program.segment(given.func.value), program.segment(node.func.value)


def _may_be_moved(story: Story, name: str, each: FrozenCopy) -> bool:
    """Whether anything in the program's source, besides copies made at the beginning, could write weights, or gives the
    network ``name`` to a function that the source does not show.
    """
    program = story.program
    made = {node for event in story.calls("clone", "copy_") if (node := program.at(story.span(event.step))) is not None}
    defined = {n.name for n in program.nodes if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)}
    last = name.rpartition(".")[2]
    for node in program.nodes:
        word = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
        word = "" if isinstance(node, ast.Name) and word == "data" else word  # a variable
        if word in MOVES and not (word in INITIAL and _is_initial(story, node, made)):
            return True
        if isinstance(node, ast.Call) and call_name(node) not in defined | HARMLESS:
            given = [*node.args, *(keyword.value for keyword in node.keywords)]
            if any(is_name(one) and program.segment(one).rpartition(".")[2] == last for one in given):
                return True
        if isinstance(node, ast.Assign) and any(
            is_name(t) and program.segment(t).rpartition(".")[2] == last for t in node.targets
        ):
            place = program.place(node)
            own = story.span(each.made.step)
            builds = isinstance(node.value, ast.Call) and not _repeats(story, node)
            if not (own is not None and place.line <= own.line <= place.end_line) and not builds:
                return True
    return False


def _is_initial(story: Story, node: ast.AST, made: set[ast.AST]) -> bool:
    """Whether the word belongs to a call that made a copy, and that can run only once for each network."""
    call = next((outer for outer in story.program.ancestors(node) if isinstance(outer, ast.Call)), None)
    return isinstance(call, ast.Call) and call.func is node and call in made and not _repeats(story, call)


def _repeats(story: Story, node: ast.AST) -> bool:
    """Whether a statement may run several times: in a loop, or in a function other than ``__init__``."""
    program = story.program
    function = program.function(node)
    loops = any(isinstance(outer, ast.For | ast.While) for outer in program.ancestors(node))
    return loops or (isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name != "__init__")


def _finding(story: Story, found: Bootstrapped) -> Finding:
    frozen, loss = found.frozen, found.loss
    made, there = at_line(story, story.span(frozen.made.step)), at_line(story, story.span(loss.step))
    numbers = T(en="", zh="")
    pair = _moved(story, frozen)
    seen = apart(*pair) if pair is not None else None
    if seen is not None:
        name = called(story, frozen.source, None, loss.step)
        numbers = T(
            en=f" One number of {name.en} is {seen[0]} now; the copy still has {seen[1]}.",
            zh=f"{name.zh} 中的一个数现在是 {seen[0]}，副本里仍是 {seen[1]}。",
        )
    one, other = found.names
    return RULE.finding(
        story.span(frozen.made.step),
        frozen.made.step,
        T(
            en=f"`{other}` is still the copy of the untrained `{one}` that was made on {made.en}, although `{one}` was "
            f"updated {found.updates} times, and {there.en} takes its targets from it.{numbers.en}",
            zh=f"`{one}` 已更新 {found.updates} 次，`{other}` 却仍是{made.zh}从未训练的 `{one}` 得到的副本，而"
            f"{there.zh}的目标取自它。{numbers.zh}",
        ),
        T(
            en="A target network gives the estimate of what comes later. It follows the trained network slowly, by a "
            "copy every so many rounds or by a small step towards it in each. A copy that never changes teaches the "
            "rewards of one step and the guesses of a random network.",
            zh="目标网络给出对之后收益的估计。它应当缓慢跟随被训练的网络：每隔若干轮复制一次，或每轮向它移动一小步。从不"
            "改变的副本教给网络的只是一步的奖励和一个随机网络的猜测。",
        ),
        related=[
            story.related("read", loss.step, T(en="the target of this loss", zh="这个损失的目标")),
            story.related("used", found.forward.step, T(en="computed with the copy", zh="用副本计算")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("updates", found.updates), Fact("parameter", frozen.source)],
    )


def _moved(story: Story, frozen: FrozenCopy) -> tuple[float, float] | None:
    """The number of the trained parameter that differs most from the copy's, and the copy's; None if none is known."""
    trained, copy = (Elements(story, label, len(story.events) - 1) for label in (frozen.source, frozen.copy))
    pairs = [(now, was) for index, now in trained.known() if (was := copy.at(index)) is not None]
    return max(pairs, key=lambda pair: abs(pair[1] - pair[0]), default=None)


def _fixes(story: Story, found: Bootstrapped) -> tuple[Fix, ...]:
    """A fix that moves the copy a small step towards the trained network after each update; empty if the update's
    statement is unknown.
    """
    program = story.program
    update = next((u for u in story.trace.optimizer_steps if found.frozen.source in u.holds), None)
    statement = program.statement_at(update.span) if update is not None else None
    if statement is None:
        return ()
    one, other = found.names
    lines = [
        "with torch.no_grad():",
        f"    for old, new in zip({other}.parameters(), {one}.parameters()):",
        "        old.lerp_(new, 0.05)",
    ]
    title = T(en="Move the copy towards the trained network", zh="使副本向训练的网络移动")
    return unique(program.text, [Fix(title, program.insert_after(statement, *lines), meaning="later")])


RULE = Rule(
    code="PL783",
    name="target-never-updated",
    severity="warning",
    title=T(en="A target network is never updated", zh="目标网络从未更新"),
    what=T(
        en="A network learns from its own later estimates, which a copy of it computes so that they hold still, but "
        "nothing ever renews the copy. It remains the network of the beginning, which has learned nothing. Renew the "
        "copy every so many rounds: `target.load_state_dict(net.state_dict())`.",
        zh="网络向自己对之后收益的估计学习；为了使估计稳定，由它的一个副本来计算，但从来没有更新过这个副本。副本一直是最初"
        "那个什么都没学到的网络。请每隔若干轮更新副本：`target.load_state_dict(net.state_dict())`。",
    ),
    why=T(
        en="`copy.deepcopy(net)` and `load_state_dict` copy the numbers at that moment; afterwards the two networks "
        "have nothing in common. The optimizer has the parameters of the one that is trained. With `reward + gamma * "
        "target(next_state).max(1).values` as the target, what is known about the future comes from the copy alone. "
        "The loss falls all the same, as the targets are easy to fit. Copy the weights every so many rounds, or move "
        "them by a small share with `lerp_` after each update.",
        zh="`copy.deepcopy(net)` 和 `load_state_dict` 复制的是那一刻的数；此后两个网络毫无联系。优化器持有的是被训练"
        "网络的参数。当目标是 `reward + gamma * target(next_state).max(1).values` 时，对将来的了解只来自副本。损失照"
        "样会下降，因为这些目标很容易拟合。请每隔若干轮复制权重，或在每次更新后用 `lerp_` 移动一小部分。",
    ),
    bad="""import copy
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
target = copy.deepcopy(net)  # PL783
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(40):
    state, after = torch.randn(16, 3), torch.randn(16, 3)
    action = torch.randint(2, (16, 1))
    with torch.no_grad():
        goal = state[:, 0] + 0.9 * target(after).max(1).values  # used
    loss = (net(state).gather(1, action).squeeze(1) - goal).square().mean()  # read
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net.bias, target.bias)
""",
    good="""import copy
import torch

torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
target = copy.deepcopy(net)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(40):
    state, after = torch.randn(16, 3), torch.randn(16, 3)
    action = torch.randint(2, (16, 1))
    with torch.no_grad():
        goal = state[:, 0] + 0.9 * target(after).max(1).values
    loss = (net(state).gather(1, action).squeeze(1) - goal).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for old, new in zip(target.parameters(), net.parameters()):
            old.lerp_(new, 0.05)
print(net.bias, target.bias)
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=0.01",
            T(en="Slower training towards the same wrong targets.", zh="只是更慢地向同样错误的目标训练。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.lerp_.html",
    ),
)
