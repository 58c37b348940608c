"""PL781: copies of a network's parameters are trained, and the network itself, which has the old ones, is used."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

UPDATES = (
    spellings("add", in_place=True) | spellings("sub", in_place=True) | spellings("addcdiv", in_place=True)
    | spellings("lerp", in_place=True) | spellings("mul", in_place=True) | {"copy_"}
)  # fmt: skip
"""Calls whose result is the next value of what they are given first."""
SUMS = spellings("add") | spellings("sub")
"""Updates that make a new tensor; a product alone makes none."""
PASSIVE = {
    "detach", "requires_grad_", "requires_grad", "data", "grad", "zeros_like", "empty_like",
    "ones_like", "is_leaf", "shape", "size", "dim", "numel",
}  # fmt: skip
"""Calls that use no value of a tensor."""
FORWARDS = (
    operations_that("matrix_product") | operations_that("convolution") | operations_that("recurrent")
    | {"addmm", "bilinear", "embedding", "linear"}
)  # fmt: skip
"""Calls by which a network computes with its weights."""
ROUNDS = 2
OUTWARDS = 3
"""Of the statements that led to the use, so many are tried as the place of a repair."""


@dataclass(slots=True)
class TrainedCopy:
    """What became of one copy of parameters, which the call ``made`` (an ``Event``) made; ``sources`` are the labels of
    the parameters: one for a ``clone``, several for a ``stack``.

    ``label`` is the copy's newest tensor, ``updates`` are the calls that updated it since something else was last
    copied into it, ``uses`` the steps of other calls that used it.
    """

    made: Event
    sources: list[str]
    label: str
    updates: list[Event] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)

    @property
    def is_trained(self) -> bool:
        """Whether the copy was updated at least ``ROUNDS`` times and used in between the first and the last update."""
        if len(self.updates) < ROUNDS:
            return False
        first, last = self.updates[0].step, self.updates[-1].step
        return any(first < use < last for use in self.uses)

    @property
    def is_used(self) -> bool:
        """Whether any call used the copy after its last update; False if it was never updated."""
        return bool(self.updates) and any(use > self.updates[-1].step for use in self.uses)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that cloned or stacked parameters whose copies were then trained and used by
    nothing after their last update, while a network was called with the parameters themselves after that, all unchanged
    since they were copied.

    Of several such lines, only one is reported for each line of that call.
    """
    groups: dict[object, list[TrainedCopy]] = defaultdict(list)
    for each in _copies(story):
        groups[story.span(each.made.step)].append(each)
    reported = set()
    for group in groups.values():
        if any(each.is_used for each in group):
            continue
        for each in group:
            use = _use(story, each) if each.is_trained else None
            if use is not None and story.span(use.step) not in reported:
                reported.add(story.span(use.step))
                yield _finding(story, each, use)
                break


def _copies(story: Story) -> list[TrainedCopy]:
    """The copies of parameters by ``stack`` or ``clone`` that are not themselves on the storage of a parameter."""
    parameters = {r.get("storage"): label for label, r in story.tensors.items() if r.get("kind") == "parameter"}
    copies, owner = list[TrainedCopy](), dict[str, TrainedCopy]()
    if not parameters:
        return copies
    for event in story.calls():
        if event.error is not None or event.op.endswith("__set__"):
            continue
        given = [o.label for o in event.operands if o.label is not None]
        memories = [(story.tensor(label, event.step) or {}).get("storage") for label in given]
        ours = [(place, owner[memory]) for place, memory in enumerate(memories) if memory in owner]
        if ours:
            _note(story, event, ours, owner, given)
        elif event.name in ("stack", "clone") and event.results and given:
            sources = [parameters[memory] for memory in memories if memory in parameters]
            made = (story.tensor(event.results[0], event.step) or {}).get("storage")
            many = len(set(sources)) == len(given) and len(given) > 1
            if (many or (event.name == "clone" and sources)) and made is not None and made not in parameters:
                owner[made] = TrainedCopy(event, sources, event.results[0])
                copies.append(owner[made])
    return copies


def _note(
    story: Story, event: Event, ours: list[tuple[int, TrainedCopy]], owner: dict[str, TrainedCopy], given: list[str]
) -> None:
    """Record what the call does to the copies among its operands; ``ours`` has these copies, each with its position
    among the tensors in ``given``.
    """
    place, first = ours[0]
    before = (story.tensor(given[0], event.step) or {}).get("storage")
    result = story.tensor(event.results[0], event.step) or {} if event.results else {}
    fits = bool(event.results) and story.shape(event.results[0], event.step) == story.shape(first.label, event.step)
    others = ours[1:] if place == 0 else ours
    if place == 0 and event.name == "copy_" and not any(each is first for _, each in ours[1:]):
        first.updates.clear()  # filled anew from elsewhere
        others = ours[1:]
    elif place == 0 and event.name in UPDATES and before in event.writes:
        first.updates.append(event)
        first.label = given[0]
        others = [(at, each) for at, each in others if each is not first]
    elif place == 0 and event.name in SUMS and fits and result.get("storage") is not None:
        first.updates.append(event)
        first.label = event.results[0]
        owner[str(result["storage"])] = first
        others = [(at, each) for at, each in others if each is not first]
    elif (event.name in PASSIVE and not event.op.startswith("torch.func")) or (
        event.writes and event.name in ("zero_", "fill_")
    ):
        others = []
    else:
        others = ours
    for _, each in others:
        each.uses.append(event.step)


def _use(story: Story, found: TrainedCopy) -> Event | None:
    """The first call of a network that used a source after the copy's last update.

    None if not all sources were used, or one of them changed since it was copied.
    """
    last, uses = found.updates[-1].step, list[Event]()
    for label in found.sources:
        memory = str((story.tensor(label) or {}).get("storage"))
        changed = story.writes(memory, found.made.step, len(story.events))
        if changed or [at for at, _ in story.history("tensors", label, "storage") if at > found.made.step]:
            return None
        use = next((each for each in story.uses(label) if each.step > last and each.name in FORWARDS), None)
        if use is None:
            return None
        uses.append(use)
    return min(uses, key=lambda each: each.step)


def _moved(story: Story, found: TrainedCopy) -> tuple[float, float] | None:
    """The number of the copy that its updates changed most: its value when the copy was made, and after the last
    update; None if none is known.
    """
    last = found.updates[-1]
    before = Elements(story, found.made.results[0], found.made.step)
    after = Elements(story, found.label, last.step)
    if before.shape != after.shape:
        return None
    pairs = [(was, now) for index, was in before.known() if (now := after.at(index)) is not None]
    return max(pairs, key=lambda pair: abs(pair[1] - pair[0]), default=None)


def _finding(story: Story, found: TrainedCopy, use: Event) -> Finding:
    there, copied = at_line(story, story.span(use.step)), at_line(story, story.span(found.made.step))
    last = found.updates[-1]
    changed, count = at_line(story, story.span(last.step)), len(found.updates)
    name = called(story, found.sources[0], None, use.step)
    moved = _moved(story, found)
    numbers = T(en="", zh="")
    if moved is not None:
        was, now = map(number, moved)
        numbers = T(
            en=f" One number of the copy went from {was} to {now}; the network still has {was}.",
            zh=f"副本中的一个数从 {was} 变为 {now}，而网络里仍是 {was}。",
        )
    return RULE.finding(
        story.span(use.step),
        use.step,
        T(
            en=f"{capital(there.en)} computes with {name.en} as it was at first: what {changed.en} trained, in {count} "
            f"updates that were seen, is the copy of it made on {copied.en}, and nothing uses that afterwards."
            f"{numbers.en}",
            zh=f"{there.zh}用最初的 {name.zh} 计算：{changed.zh}训练的（看到 {count} 次更新）是{copied.zh}创建的它的副"
            f"本，而此后没有谁使用这个副本。{numbers.zh}",
        ),
        T(
            en="`torch.func.stack_module_state`, `torch.stack` and `clone` copy the parameters into new memory. An "
            "update of the copies does not reach the modules. Call `functional_call` with the trained copies, under "
            "`vmap` for several networks, or copy them back into the modules.",
            zh="`torch.func.stack_module_state`、`torch.stack` 和 `clone` 会把参数复制到新的内存。对副本的更新到不了模"
            "块。请用训练过的副本调用 `functional_call`（多个网络时放在 `vmap` 里），或者把它们复制回模块。",
        ),
        related=[
            story.related("made", found.made.step, T(en="the parameters are copied here", zh="参数在这里被复制")),
            story.related("changed", last.step, T(en="only the copy is updated", zh="只更新了副本")),
        ],
        fixes=_fixes(story, found, use),
        facts=[Fact("updates", count), Fact("parameter", found.sources[0])],
    )


def _fixes(story: Story, found: TrainedCopy, use: Event) -> tuple[Fix, ...]:
    """Fixes that copy the trained values back before the use; empty if the program's source does not show the network
    and a name of the copies.
    """
    program = story.program
    node = program.at(story.span(found.made.step)) if program.tree is not None else None
    made = program.statement(node)
    back = _back(story, made)
    if made is None or not back:
        return ()
    trained = program.statement_at(story.span(found.updates[-1].step))
    own = _at_the_end(story, made, trained)
    title = T(en="Copy the trained values back into the network", zh="把训练后的值复制回网络")
    fixes = [Fix(title, own, meaning="later")] if own is not None else []
    for statement in islice(call_chain(story, use), OUTWARDS):
        place = statement
        for outer in program.ancestors(statement):
            inside = set(ast.walk(outer)) if isinstance(outer, ast.For) else set()
            if isinstance(outer, ast.For) and made not in inside and trained not in inside:
                place = outer
            elif not isinstance(outer, ast.For | ast.With):
                break
        if not isinstance(place, ast.FunctionDef | ast.ClassDef):
            fixes.append(Fix(title, program.insert_before(place, *back), meaning="later"))
    return unique(program.text, fixes)


def _at_the_end(story: Story, made: ast.stmt, trained: ast.stmt | None) -> tuple[Edit, ...] | None:
    """Edits that copy the values back after the outermost loop around the statement ``trained``. Only where one method
    sets the copies and the networks as attributes and another one trains them; None otherwise.
    """
    program = story.program
    method = program.function(trained) if trained is not None else None
    target = made.targets[0] if isinstance(made, ast.Assign) else None
    copies = target.elts[0] if isinstance(target, ast.Tuple) else target
    value = made.value if isinstance(made, ast.Assign) else None
    given = value.args[0] if isinstance(value, ast.Call) and value.args else None
    if trained is None or method is None or method is program.function(made) or not isinstance(copies, ast.Attribute):
        return None
    kept = next(
        (
            program.segment(node.targets[0])
            for node in program.nodes
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Attribute)
            and program.function(node) is program.function(made)
            and given is not None
            and program.segment(node.value) == program.segment(given)
        ),
        None,
    )
    loops = [
        each for each in program.ancestors(trained) if isinstance(each, ast.For) and program.function(each) is method
    ]
    back = _back(story, made, kept) if kept is not None else []
    return program.insert_after(loops[-1], *back) if loops and back else None


def _back(story: Story, made: ast.stmt | None, kept: str | None = None) -> list[str]:
    """The statements that copy back what the statement ``made`` copied; empty if it has another form. ``kept`` is the
    expression of the networks, None where it is that of the statement.
    """
    program = story.program
    if not isinstance(made, ast.Assign) or len(made.targets) != 1:
        return []
    target, value = made.targets[0], made.value
    if isinstance(value, ast.Call) and call_name(value) == "stack_module_state" and isinstance(target, ast.Tuple):
        copies, networks = program.segment(target.elts[0]), program.segment(value.args[0]) if value.args else ""
        networks = kept or networks
        return [
            "with torch.no_grad():",
            f"    for place, network in enumerate({networks}):",
            "        for key, value in network.named_parameters():",
            f"            value.copy_({copies}[key][place])",
        ] if networks else []  # fmt: skip
    if isinstance(value, ast.DictComp):
        source = value.generators[0].iter
        named = isinstance(source, ast.Call) and isinstance(source.func, ast.Attribute)
        if named and isinstance(source, ast.Call) and call_name(source) == "named_parameters":
            owner = program.segment(source.func.value) if isinstance(source.func, ast.Attribute) else ""
            return [f"{owner}.load_state_dict({program.segment(target)}, strict=False)"]
    return []


RULE = Rule(
    code="PL781",
    name="trained-copies-unused",
    severity="warning",
    title=T(
        en="Copies of a network's parameters were trained, and the network itself is used",
        zh="训练的是网络参数的副本，使用的却是网络自身",
    ),
    what=T(
        en="A program copies the weights of its networks, trains the copies, and then predicts with the networks, "
        "whose own weights are still the first ones. The loss fell, but the predictions are those of an untrained "
        "network. Use the trained copies, or write them back into the networks.",
        zh="程序复制了各网络的权重，训练的是副本，之后却用网络自身预测，而网络自己的权重仍是最初的。损失下降了，预测却"
        "是未训练网络的预测。请使用训练过的副本，或把它们写回网络。",
    ),
    why=T(
        en="`torch.func` computes with parameters that are passed as arguments, so that many networks can be trained "
        "by one call. `stack_module_state` stacks them: a stack is a new tensor with memory of its own. An "
        "optimizer, or an update in place, changes that memory; the modules keep theirs. `functional_call(module, "
        "params, x)` uses the passed parameters for the one call and leaves the module as it is.",
        zh="`torch.func` 用作为参数传入的权重计算，因此一次调用可以训练许多网络。`stack_module_state` 把它们堆叠起来："
        "堆叠得到的是有自己内存的新张量。优化器或原地更新改变的是这块内存，模块保留自己的内存。"
        "`functional_call(module, params, x)` 只在这一次调用中使用传入的权重，模块保持原样。",
    ),
    bad="""import torch
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
nets = [torch.nn.Linear(2, 1) for _ in range(3)]
params, buffers = stack_module_state(nets)  # made
opt = torch.optim.SGD(params.values(), lr=0.2)
x = torch.randn(16, 2)
y = x.sum(1, keepdim=True)
for _ in range(4):
    out = vmap(lambda p: functional_call(nets[0], p, (x,)))(params)
    loss = (out - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
with torch.no_grad():
    guess = torch.stack([net(x) for net in nets]).mean(0)  # PL781
print(loss.item(), (guess - y).square().mean())
""",
    good="""import torch
from torch.func import functional_call, stack_module_state, vmap

torch.manual_seed(0)
nets = [torch.nn.Linear(2, 1) for _ in range(3)]
params, buffers = stack_module_state(nets)
opt = torch.optim.SGD(params.values(), lr=0.2)
x = torch.randn(16, 2)
y = x.sum(1, keepdim=True)
for _ in range(4):
    out = vmap(lambda p: functional_call(nets[0], p, (x,)))(params)
    loss = (out - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    guess = vmap(lambda p: functional_call(nets[0], p, (x,)))(params).mean(0)
print(loss.item(), (guess - y).square().mean())
""",
    find=find,
    traps=(
        Trap(
            "stack_module_state(nets)",
            "stack_module_state([net.train() for net in nets])",
            T(
                en="The mode of a network changes nothing: its weights are still copied.",
                zh="网络的模式不改变任何东西：权重仍被复制。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.func.stack_module_state.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.func.functional_call.html",
    ),
)
