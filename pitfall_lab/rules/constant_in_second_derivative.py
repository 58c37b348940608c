"""PL342: a custom Function kept an intermediate result for its backward; in a second
derivative that counts as a constant.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import NamedTuple

from pitfall_lab.rules.kit.custom_functions import Custom, below, customs, identified, inside, returned, returned_label
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.flow import Flow
from pitfall_lab.rules.kit.recomputing import Recomputing
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, number, snippet
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.formulas import formula
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

FLAT = {name.strip("_") for name in spellings("floor_divide", "trunc")} | {
    "sign", "sgn", "round", "floor", "ceil", "heaviside", "ones_like", "zeros_like", "empty_like", "full_like",
    "rand_like", "randn_like", "randint_like", "bernoulli", "new_zeros", "new_ones", "new_empty", "new_full",
    "new_tensor", "detach", "data", "signbit", "fake_quantize_per_tensor_affine", "fake_quantize_per_channel_affine",
    "amax", "amin", "max", "min", "aminmax",
}  # fmt: skip
"""Operations whose result does not depend smoothly on the numbers of their operand, and the largest and smallest
values: these are mostly a scale or a shift that has no effect on the result, as in a softmax.
"""
FORMS = {"type_as", "to", "expand_as", "view_as", "reshape_as", "copysign"}
"""Operations of whose operands only the first gives numbers; of the others, the result has the shape, dtype or sign."""
SAME = {"alias", "clone", "contiguous", "data", "detach", "identity", "reshape", "view", "view_as"}
"""Operations whose result has the numbers of their operand."""
FLOATS = ("float", "bfloat", "complex")
BACKWARDS = 3
DEEP = 60
NEAR, SOME = 1e-3, 1e-6
"""Two derivatives are equal if they differ by no more than the fraction ``NEAR``, or by ``SOME``."""
ENOUGH, MOST = 4, 12
"""At how many inputs, at least and at most, a formula is evaluated."""


class TwoSlopes(NamedTuple):
    """Two derivatives by the input ``name`` of what backward returns for an incoming gradient of 1, where this input is
    ``at``: ``meant`` is that of the formula, ``counted`` the one with the intermediate result as a constant.
    """

    name: str
    at: float
    counted: float
    meant: float

    @property
    def is_apart(self) -> bool:
        """Whether the two derivatives differ by more than rounding."""
        return abs(self.meant - self.counted) > NEAR * max(abs(self.meant), abs(self.counted)) + SOME


@dataclass(frozen=True, slots=True)
class ConstantInSecondDerivative:
    """The backward of the custom Function ``custom`` read an intermediate result of its forward, which counts as a
    constant.

    ``kept`` is the label of this tensor, ``made`` the call (``Event``) in forward that computed it, ``use`` the call in
    backward that read it, and ``second`` the backward that differentiates what that backward computed. ``compared`` has
    the two derivatives at one point, None if they are not known.
    """

    custom: Custom
    made: Event
    kept: str
    use: Event
    second: Event
    compared: TwoSlopes | None = None


WHY = T(
    en="Torch runs the forward of a custom Function without recording a graph. What is computed there and kept for "
    "backward cannot be differentiated again, so the second derivative lacks every term that comes from it; the first "
    "derivative is right.",
    zh="torch 运行自定义 Function 的前向计算时不记录计算图。在那里算出、留给反向传播的东西无法再求导，所以二阶导数缺"
    "少由它而来的所有项；一阶导数是对的。",
)
ADVICE = T(
    en="Compute it in backward from the saved inputs, or return it as an output of forward.",
    zh="请在反向传播中由保存的输入重新计算，或者把它作为前向计算的输出返回。",
)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each custom Function whose backward reads an intermediate result of forward that depends
    smoothly on an input which requires grad, if a second derivative by that input, or by what it was computed from, was
    taken of what this backward computed.

    The gradient that came into that backward may have a graph or not.
    """
    every = list(customs(story.program)) if story.program.tree else []
    if not any(below(custom, event, custom.backward.name) for custom in every for event in story.calls()):
        return
    recorded = [b for b in story.backwards() if b.error is None and (_gradients(story, b, None) or _is_recorded(b))]
    for custom in every:
        pairs = ((b, _seconds(story, b)) for b in recorded)
        found = next((f for first, seconds in pairs for f in _found(story, every, custom, first, seconds)), None)
        if found is not None:
            yield _finding(story, found)


def _found(
    story: Story, every: list[Custom], custom: Custom, first: Event, seconds: list[Event]
) -> Iterator[ConstantInSecondDerivative]:
    """Yield one object for each call in the backward of ``custom``, run by ``first``, that reads an intermediate
    result, if one of the backwards ``seconds`` should have differentiated this result.
    """
    own = (e for e in story.events[first.step + 1 :] if e.kind == "call")
    run = list(takewhile(lambda e: story.outer_call(e.step) is story.outer_call(first.step), own))
    backward = [e for e in run if below(custom, e, custom.backward.name, every)]
    forward = [e for e in story.calls() if e.step < first.step and below(custom, e, "forward")] if backward else []
    made: dict[str, list[Event]] = {}
    for event in forward:
        for label in event.results:
            made.setdefault(label, []).append(event)
    for use in backward:
        for kept in (o.label for o in use.operands if o.label in made):
            sources = _sources(story, str(kept), made)
            is_kept = sources and not (story.tensor(kept, use.step) or {}).get("requires_grad")
            node = _node_of(story, custom, made[str(kept)][-1], forward) if is_kept else None
            if node is None or _is_edited(story, node, sources, made):
                continue
            inputs = _input_nodes(story, custom, node, forward, use.step)
            starts = _receivers(story, custom, inputs, str(kept), backward)
            starts = [node] if starts is None else starts
            second = next((b for b in seconds if _goes_on(story, first, b, starts, sources)), None)
            if second is not None:
                compared = _compared(story, str(kept), sources, forward, backward)
                if compared is None or compared.is_apart:
                    yield ConstantInSecondDerivative(custom, made[str(kept)][-1], str(kept), use, second, compared)


def _sources(story: Story, label: str, made: dict[str, list[Event]]) -> set[str]:
    """The inputs of forward that require grad and from which a tensor was computed smoothly; empty if there are none.

    ``made`` has the calls of forward by their results; only those are followed.
    """
    pending, seen, found = [label], {label}, set[str]()
    while pending and len(seen) < DEEP:
        here = pending.pop()
        if not str((story.tensor(here) or {}).get("dtype")).startswith(FLOATS):
            continue
        for event in reversed(made.get(here, [])):
            name = event.name.strip("_")
            if name in FLAT or any(o.name == "rounding_mode" and o.text != "None" for o in event.operands):
                break
            labels = [o.label for o in event.operands if o.label is not None]
            for given in labels[:1] if name in FORMS else labels:
                if given not in made and (story.tensor(given, event.step) or {}).get("requires_grad"):
                    found.add(given)
                elif given not in seen:
                    seen.add(given)
                    pending.append(given)
    return found


def _node_of(story: Story, custom: Custom, made: Event, forward: list[Event]) -> str | None:
    """The node of the run of forward in which the call ``made`` ran; None if it has none."""
    nodes: dict[int, str] = {}
    for event in forward:
        for result in event.results:
            for _, node in story.history("tensors", result, "grad_fn"):
                if (story.record("nodes", node) or {}).get("name") == f"{custom.name}Backward":
                    nodes[event.step] = node
    after, before = [step for step in nodes if step >= made.step], [step for step in nodes if step < made.step]
    nearest = min(after, default=max(before, default=None))
    return None if nearest is None else nodes[nearest]


def _is_edited(story: Story, node: str, sources: set[str], made: dict[str, list[Event]]) -> bool:
    """Whether what forward returned does not depend smoothly on any of the inputs ``sources``, or is equal to one: then
    backward is not meant as its derivative.
    """
    label = (story.record("nodes", node) or {}).get("output")
    if label is None or label not in made:
        return label is not None
    if not _sources(story, label, made) & sources:
        return True
    while label in made and made[label][-1].name in SAME:
        label = next((o.label for o in made[label][-1].operands if o.label is not None), None)
    return label in sources


def _input_nodes(story: Story, custom: Custom, node: str, forward: list[Event], step: int) -> dict[str, str]:
    """The nodes of the inputs of the run of forward with the node ``node``, by the names of its parameters."""
    before = set((story.record("nodes", node) or {}).get("next") or ())
    names = _input_names(story, custom, forward)
    given = ((name, _node(story, label, step)) for label, name in names.items())
    return {name: own for name, own in given if own is not None and own in before}


def _receivers(
    story: Story, custom: Custom, nodes: dict[str, str], kept: str, backward: list[Event]
) -> list[str] | None:
    """The nodes of the inputs for which backward returns something that it computed from the tensor ``kept``; None if
    the source does not show what is returned for which input.

    ``nodes`` are those of the inputs, by their names.
    """
    values = returned(custom)
    reached, found = _reached(backward, kept), list[str]()
    for name, value in zip(custom.inputs, values, strict=False):
        if isinstance(value, ast.Constant) and value.value is None:
            continue
        label = returned_label(story, custom, backward, value)
        start = nodes.get(name)
        if label is None or start is None:
            return None
        found += [start] if label in reached else []
    return found or None


def _seconds(story: Story, first: Event) -> list[Event]:
    """The next ``BACKWARDS`` backwards, without those that failed for another reason than a missing graph."""
    later = (b for b in story.backwards() if b.step > first.step)
    return list(islice((b for b in later if b.error is None or b.error.kind == "no-gradient"), BACKWARDS))


def _gradients(story: Story, first: Event, starts: list[str] | None) -> list[str]:
    """The nodes of the gradients that a backward computed with a graph; with ``starts``, only of those that come
    through one of these nodes, as far as that is known.
    """
    below_node = None if starts is None else {n for start in starts for n in story.behind(start)}
    if first.op == "torch.autograd.grad":
        given = [o.label for o in first.operands[1:] if o.label is not None]
        pairs = list(zip(given, first.results, strict=False)) if len(given) == len(first.results) else []
        labels = [r for i, r in pairs if below_node is None or _node(story, i, first.step) in below_node]
        if not pairs:
            labels = list(first.results)
    else:
        last = next((e.step for e in story.events[first.step + 1 :] if e.parent is None), len(story.events)) - 1
        owners = [x for x in story.leaves if below_node is None or _node(story, x, first.step) in below_node]
        labels = [grad for leaf in owners if (grad := (story.tensor(leaf, last) or {}).get("grad")) is not None]
        labels = [label for label in labels if ((story.tensor(label) or {}).get("born") or 0) >= first.step]
    found = (each for label in labels for _, each in story.history("tensors", label, "grad_fn"))
    return [each for each in found if each is not None]


def _node(story: Story, label: str | None, step: int) -> str | None:
    """The graph node of a tensor: its grad_fn, or, for a leaf, the node that accumulates its gradient."""
    graph = (story.tensor(label, step) or {}).get("grad_fn")
    own = (n for n, r in story.nodes.items() if r.get("output") == label and r.get("name") == "AccumulateGrad")
    return graph or next(own, None)


def _goes_on(story: Story, first: Event, second: Event, starts: list[str], sources: set[str]) -> bool:
    """Whether the backward ``second`` goes through a gradient that ``first`` computed through one of the nodes
    ``starts``, and is used to differentiate by one of the inputs ``sources`` or by what one was computed from.
    """
    if second.error is not None:
        cuts = Flow(story).cuts(second.error.tensor, second.step)
        return bool(cuts) and cuts[0].event is first and _is_wanted(story, second, sources)
    gradients = set(_gradients(story, first, starts))
    roots = (o.label for o in second.operands if o.label is not None)
    graphs = ((story.tensor(root, second.step) or {}).get("grad_fn") for root in roots)
    return any(n in gradients for graph in graphs for n in story.behind(graph)) and _is_wanted(story, second, sources)


def _is_recorded(first: Event) -> bool:
    """Whether a backward was called with ``create_graph=True``."""
    return any(o.name == "create_graph" and o.text == "True" for o in first.operands)


def _is_wanted(story: Story, second: Event, sources: set[str]) -> bool:
    """Whether a backward differentiates by one of the inputs ``sources``, or by a tensor from which one was computed:
    that tensor was passed to ``autograd.grad``, or its gradient is read later, or an optimizer has it.
    """
    upward = {n for label in sources for n in story.behind(_node(story, label, second.step))}
    if second.op == "torch.autograd.grad":
        return any(_node(story, o.label, second.step) in upward for o in second.operands[1:] if o.label is not None)
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    leaves = {str((story.record("nodes", n) or {}).get("output")) for n in upward}
    return any(
        leaf in held or any(e.op == "torch.Tensor.grad.__get__" and e.step > second.step for e in story.uses(leaf))
        for leaf in leaves & story.leaves.keys()
    )


def _compared(
    story: Story, kept: str, sources: set[str], forward: list[Event], backward: list[Event]
) -> TwoSlopes | None:
    """Both derivatives of what backward returns, at the first of some inputs where they differ, or at any if they are
    equal at all of them.

    None if forward or backward is not an element-wise formula of known operations.
    """
    result = _outcome(backward, kept)
    calls = _behind(backward, {result})
    run = _behind(forward, {kept})
    made = {label for event in run for label in event.results}
    known = {o.label for e in run for o in e.operands if o.label is not None} - made | sources
    same, given = identified(story, run, calls, known)
    if given is None:
        return None
    every = [*run, *calls]
    whole = formula(story, every, result, same, known | {given}, pieces=True)
    partly = formula(story, every, result, same, known | {given, kept}, pieces=True)
    value = formula(story, run, kept, {}, known, pieces=True)
    if whole is None or partly is None or value is None:
        return None
    found = list[TwoSlopes]()
    for point in _points(story, sorted(known), run[0].step):
        now = value.at(point)
        for name in sorted(sources) if now is not None else ():
            meant = whole.slope({**point, given: 1.0}, name)
            counted = partly.slope({**point, given: 1.0, kept: now or 0.0}, name)
            if meant is not None and counted is not None:
                found.append(TwoSlopes(name, point[name], counted, meant))
    apart = next((each for each in found if each.is_apart), None)
    return apart or (found[0] if len(found) >= ENOUGH else None)


def _outcome(backward: list[Event], kept: str) -> str:
    """The last tensor that backward computed from a tensor, directly or through others."""
    return _reached(backward, kept)[-1]


def _reached(backward: list[Event], kept: str) -> list[str]:
    """A tensor, and all that backward computed from it, directly or through others, in order."""
    found = [kept]
    for event in backward:
        if any(o.label in found for o in event.operands):
            found += event.results
    return found


def _behind(calls: list[Event], results: set[str]) -> list[Event]:
    """The calls of these from which the tensors ``results`` were computed, directly or through others, in order."""
    needed, found = set(results), list[Event]()
    for event in reversed(calls):
        if needed & set(event.results):
            found.append(event)
            needed |= {o.label for o in event.operands if o.label is not None}
    return found[::-1]


def _points(story: Story, labels: list[str], step: int) -> Iterator[dict[str, float]]:
    """Yield ``MOST`` values of inputs: those of the program as far as they are known, then others."""
    values = [Elements(story, label, step) for label in labels]
    for index, _ in islice(values[0].known(), MOST // 2):
        numbers = [each.at(index) for each in values]
        if None not in numbers:
            yield {label: float(n or 0) for label, n in zip(labels, numbers, strict=True)}
    for k in range(MOST // 2):
        sign = -1 if k % 2 else 1
        yield {label: sign * (0.2 + 1.4 * ((k * len(labels) + i + 1) * 0.618034 % 1)) for i, label in enumerate(labels)}


def _finding(story: Story, found: ConstantInSecondDerivative) -> Finding:
    span, custom = story.span(found.made.step), found.custom
    here, read, second = (at_line(story, story.span(e.step)) for e in (found.made, found.use, found.second))
    name, numbers = _short(story, found), _numbers(story, found)
    method = f"{custom.name}.{custom.forward.name}"
    silent = T(
        en=f"`{name}`, made on {here.en} in `{method}`, has no graph: the second derivative on {second.en} treats it "
        f"as a constant where backward reads it on {read.en}.",
        zh=f"`{name}` 在{here.zh}的 `{method}` 中算出，没有计算图：反向传播在{read.zh}读取它，而{second.zh}的二阶导数把"
        "它当作常数。",
    )
    loud = T(
        en=f"`{name}`, made on {here.en} in `{method}`, has no graph, so what backward computes from it on {read.en} "
        f"has none either, and {second.en} cannot differentiate it.",
        zh=f"`{name}` 在{here.zh}的 `{method}` 中算出，没有计算图，所以反向传播在{read.zh}由它算出的结果也没有，"
        f"{second.zh}无法对它求导。",
    )
    return RULE.finding(
        span,
        found.made.step,
        silent if found.second.error is None else loud,
        T(en=f"{WHY.en} {numbers.en}{ADVICE.en}", zh=WHY.zh + numbers.zh + ADVICE.zh),
        related=_related(story, found),
        fixes=_fixes(story, found),
        facts=[
            Fact("tensor", found.kept, story.by(found.made.step)),
            *([Fact("derivatives", found.compared[1:], "modelled")] if found.compared else []),
        ],
        severity=None if found.second.error is None else "error",
    )


def _numbers(story: Story, found: ConstantInSecondDerivative) -> T:
    """A sentence with the two derivatives, and a space after it in English; empty if they are not known."""
    if found.compared is None:
        return T(en="", zh="")
    label, at, counted, meant = found.compared
    name = _input_names(story, found.custom, story.calls()).get(label)
    which = T(en=f"`{name}`" if name else "the input", zh=f"`{name}`" if name else "输入")
    return T(
        en=f"Where {which.en} is {number(at)}, what backward returns for an incoming gradient of 1 has the derivative "
        f"{number(meant)}; with `{_short(story, found)}` as a constant it is {number(counted)}. ",
        zh=f"当{which.zh}为 {number(at)}、传入的梯度为 1 时，反向传播所返回的值的导数是 {number(meant)}；把 "
        f"`{_short(story, found)}` 当作常数则得到 {number(counted)}。",
    )


def _short(story: Story, found: ConstantInSecondDerivative) -> str:
    return story.name(found.kept, found.use.step) or snippet(story, story.span(found.made.step))


def _related(story: Story, found: ConstantInSecondDerivative) -> list[Related]:
    return [
        story.related("kept", found.made.step, T(en="computed here, without a graph", zh="在这里算出，没有计算图")),
        story.related("used", found.use.step, T(en="backward reads it here", zh="反向传播在这里读取它")),
        story.related(
            "backward", found.second.step, T(en="the second derivative is taken here", zh="在这里求二阶导数")
        ),
    ]


def _fixes(story: Story, found: ConstantInSecondDerivative) -> tuple[Fix, ...]:
    """Fixes that compute the intermediate in backward, from the inputs that forward saves; empty if another method
    saves them.
    """
    program, custom = story.program, found.custom
    if custom.keeper is not custom.forward:
        return ()
    tensors = set(_input_names(story, custom, story.calls()).values())
    candidates = []
    written = snippet(story, story.span(found.made.step))
    for name in dict.fromkeys([story.name(found.kept, found.use.step) or "", *_names(story, found.kept), written]):
        edits = Recomputing(program, custom, tensors).edits(name)
        if edits:
            what, once = name.removeprefix(f"{custom.ctx}."), _once(program, custom)
            title = T(
                en=f"Compute `{what}` in backward from the saved inputs", zh=f"在反向传播中由保存的输入计算 `{what}`"
            )
            if once is not None:
                edits = merge(edits, (once,)) or ()
                title = T(
                    en=f"{title.en}, without `once_differentiable`", zh=f"{title.zh}，并去掉 `once_differentiable`"
                )
            candidates += [Fix(title, edits, meaning="later")] if edits else []
    return unique(program.text, candidates)


def _once(program: Program, custom: Custom) -> Edit | None:
    """The edit that deletes the decorator of backward which says that it has no second derivative; None if it has none.

    Where the incoming gradient has no graph, this decorator does not make torch raise.
    """
    for node in custom.backward.decorator_list:
        if program.segment(node).rsplit(".", 1)[-1] == "once_differentiable":
            return Edit(node.lineno, node.lineno, "")
    return None


def _input_names(story: Story, custom: Custom, calls: Iterable[Event]) -> dict[str, str]:
    """The parameters of forward that are tensors, by the labels of these tensors, as ``calls`` show them."""
    found = dict[str, str]()
    for event in calls:
        for label in (o.label for o in event.operands if o.label is not None and inside(custom, event, "forward")):
            node = written_as(story, event, label)
            if isinstance(node, ast.Name) and node.id in custom.inputs:
                found.setdefault(label, node.id)
    return found


def _names(story: Story, label: str) -> list[str]:
    return [name for _, names in story.history("tensors", label, "names") for name in names or ()]


RULE = Rule(
    code="PL342",
    name="constant-in-second-derivative",
    severity="warning",
    title=T(
        en="A second derivative treats an intermediate of a custom Function as a constant",
        zh="二阶导数把自定义 Function 的中间结果当作常数",
    ),
    what=T(
        en="An operation of your own keeps something that it computed in `forward` and uses it in `backward`. The "
        "first derivative is right. A derivative of that derivative, as a gradient penalty needs, takes what was kept "
        "for a constant and comes out wrong. Compute it in `backward`, from the inputs.",
        zh="你自己写的运算把在 `forward` 中算出的东西留下，在 `backward` 中使用。一阶导数是对的。但对这个导数再求导"
        "（例如梯度惩罚所需）时，留下的东西被当作常数，结果就错了。请在 `backward` 中由输入重新计算。",
    ),
    why=T(
        en="`forward` of a `torch.autograd.Function` runs without a graph; one node represents all of it in the graph. "
        "With `create_graph=True` the calls in `backward` are recorded themselves, so that they can be differentiated. "
        "Saved inputs and outputs come back connected to the graph. An intermediate result was made without one, and "
        "comes back without one, kept as an attribute or with `save_for_backward`. `torch.autograd.gradgradcheck` "
        "shows the difference. Where all that backward computes is made of such results and of an incoming gradient "
        "without a graph, its result has no graph either: a second derivative raises, or silently continues with the "
        "rest.",
        zh="`torch.autograd.Function` 的 `forward` 在没有计算图的情况下运行，由它的节点代表整体。用 "
        "`create_graph=True` 时，`backward` 中的调用本身会被记录，以便再求导。保存的输入和输出取回时与计算图相连。中间"
        "结果产生时没有计算图，取回时也没有，无论是作为属性还是用 `save_for_backward` 保存。"
        "`torch.autograd.gradgradcheck` 可以查出这种差别。如果反向传播只由这样的结果和没有计算图的传入梯度算出它的返回"
        "值，这个返回值也没有计算图：求二阶导数会报错，或者不作声地只算其余的项。",
    ),
    advice=T(
        en="compute what {kept} keeps in `backward`, from saved inputs, or return it as an output of `forward`.",
        zh="在 `backward` 中由保存的输入计算{kept}留下的东西，或者把它作为 `forward` 的输出返回。",
    ),
    bad="""import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.gate = torch.sigmoid(x)  # PL342 kept
        return x * ctx.gate

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = ctx.gate
        return grad * (s + x * s * (1 - s))  # used


x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
(slope,) = torch.autograd.grad(Swish.apply(x).sum(), x, create_graph=True)
(slope**2).sum().backward()  # backward
print(x.grad)
""",
    good="""import torch


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * s * (1 - s))


x = torch.tensor([-1.0, 0.0, 1.0], requires_grad=True)
(slope,) = torch.autograd.grad(Swish.apply(x).sum(), x, create_graph=True)
(slope**2).sum().backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "        ctx.save_for_backward(x)\n        ctx.gate = torch.sigmoid(x)\n",
            "        ctx.gate = torch.sigmoid(x)\n        ctx.save_for_backward(x, ctx.gate)\n",
            T(
                en="`save_for_backward` does not give an intermediate result a graph either.",
                zh="`save_for_backward` 也不会给中间结果一个计算图。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/extending.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.gradcheck.gradgradcheck.html",
    ),
)
