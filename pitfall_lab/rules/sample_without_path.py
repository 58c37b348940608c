"""PL522: a network computes with a drawn sample through which no gradient flows back to the
numbers that it was drawn from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import SUMS, Flow
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

DRAWS = ("normal", "randn", "randn_like", "rand", "rand_like", "bernoulli", "_standard_gamma", "_sample_dirichlet",
         "exponential_", "cauchy_", "uniform_", "normal_")  # fmt: skip
"""Calls by which torch's distributions and programs draw."""
FLAT = ("NormalBackward", "BernoulliBackward")
LAYERS = (
    spellings("matmul", "mm") | operations_that("convolution") | operations_that("recurrent")
    | {"addmm", "bilinear", "bmm", "gru_cell", "linear", "lstm_cell"}
)  # fmt: skip
"""Layers with a weight, which compute with the sample."""
FURTHER = 150


@dataclass(frozen=True, slots=True)
class Sampled:
    """``event`` is the call (``Event``) that drew numbers for the tensor ``sample`` (a label), whose distribution was
    computed with the parameters ``parameters`` (labels); ``layer`` is the call of a layer that was given the sample, or
    something computed from it.

    ``backward`` is a backward that goes through ``layer`` and reaches the parameters by other paths; None before it was
    looked for. ``weighed`` is True where the sample was also combined with the numbers that it was drawn from outside
    of layers, as in its log-probability.
    """

    event: Event
    sample: str
    parameters: set[str]
    layer: Event
    weighed: bool
    backward: Event | None = None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws a sample through which no gradient flows, from numbers that trained
    parameters computed, if a layer computes with the sample, and a backward through that layer reaches the parameters
    by another path.

    Only if an optimizer stepped; mostly not where the loss also weighs the sample's log-probability, as a policy
    gradient does.
    """
    if not story.trace.optimizer_steps:
        return
    told, flow = set(), Flow(story)
    off = _switched_off(story)
    backwards = [b for b in story.backwards() if b.error is None and b.operands]
    held = {label for update in story.trace.optimizer_steps for label in update.holds}
    for event in story.calls(*DRAWS):
        span = event.span
        if span is None or span in told or event.error is not None or not event.results:
            continue
        layer = _layer(story, flow, event, off.get(event.step, ()), held)
        found = _trained(story, flow, layer, backwards) if layer is not None else None
        if found is not None:
            told.add(span)
            yield _finding(story, found)


def _switched_off(story: Story) -> dict[int, tuple[Event, ...]]:
    """For each step of an expression during which alone gradients were off, as during ``sample()``: all calls of that
    expression.
    """
    found: dict[int, tuple[Event, ...]] = {}
    group: list[Event] = []
    grad, begun = True, None
    for event in story.events:
        for effect in event.effects:
            if effect.path == "mode.grad":
                grad = bool(effect.value)
                if not grad:
                    group, begun = [], event.span
                elif begun is not None:
                    found.update(dict.fromkeys((each.step for each in group), tuple(group)))
        if not grad and event.kind == "call":
            begun = begun if event.span == begun else None
            group.append(event)
    return found


def _layer(story: Story, flow: Flow, draw: Event, group: tuple[Event, ...], held: set[str]) -> Sampled | None:
    """The data of the finding, without a backward, if ``draw`` used numbers of a trained network and its sample is
    given to a layer; else None.

    ``group`` has the calls of the expression with gradients switched off; without one, the draw must be one that has no
    gradient.
    """
    after = [e for e in group if e.step >= draw.step] or [draw]
    if not group and not _is_flat(story, draw):
        return None
    given = {
        o.label
        for e in (group or (draw,))
        for o in e.operands
        if o.label is not None and _is_computed(story, o.label, e.step)
    }
    results = [
        label for e in after for label in e.results if any(use.step > after[-1].step for use in story.uses(label))
    ]
    if not given or not results:
        return None
    own = {leaf for label in given for leaf in flow.leaves(label, draw.step)} & held
    use, weighed = _goes_into_layer(story, results[-1], given, after[-1].step) if own else (None, False)
    return Sampled(draw, results[-1], own, use, weighed) if use is not None else None


def _trained(story: Story, flow: Flow, found: Sampled, backwards: list[Event]) -> Sampled | None:
    """``found`` with the backward that goes through the layer, if it also reaches by other paths the parameters that
    the draw was computed from; else None.
    """
    node = (story.tensor(found.layer.results[0], found.layer.step) or {}).get("grad_fn")
    for backward in (b for b in backwards if b.step > found.layer.step):
        start = backward.operands[0].label
        if node in set(story.behind((story.tensor(start, backward.step) or {}).get("grad_fn"))):
            reached = found.parameters & flow.leaves(start, backward.step)
            apart = not found.weighed or _is_a_term_alone(story, flow, found, backward)
            return replace(found, backward=backward) if reached and apart else None
    return None


def _is_a_term_alone(story: Story, flow: Flow, found: Sampled, backward: Event) -> bool:
    """Whether the layer's result is only added to the rest of the loss, and the next update holds
    none of the layer's parameters.

    A policy gradient multiplies the log-probability with what a critic says, and an update of
    both also trains the critic.
    """
    update = next((each for each in story.trace.optimizer_steps if each.step > backward.step), None)
    begun = found.layer.results[0]
    if (
        update is None
        or not found.parameters & set(update.holds)
        or flow.leaves(begun, found.layer.step) & set(update.holds)
    ):
        return False
    pending, seen = [begun], {begun}
    while pending and len(seen) < FURTHER:
        here = pending.pop()
        for use in (each for each in story.uses(here) if each.step < backward.step and each.error is None):
            others = [o.label for o in use.operands if o.label is not None and o.label not in seen]
            if use.name.strip("_") not in SUMS and any(
                found.parameters & flow.leaves(each, use.step) for each in others
            ):
                return False
            pending += [label for label in use.results if label not in seen]
            seen.update(use.results)
    return True


def _is_flat(story: Story, draw: Event) -> bool:
    """Whether the derivative of the drawing call is zero, as that of ``torch.normal(mean, std)`` is."""
    node = (story.tensor(draw.results[0], draw.step) or {}).get("grad_fn")
    return str((story.record("nodes", node) or {}).get("name")).startswith(FLAT)


def _is_computed(story: Story, label: str, step: int) -> bool:
    record = story.tensor(label, step - 1) or story.tensor(label, step) or {}
    return bool(record.get("requires_grad")) and not record.get("is_leaf")


def _goes_into_layer(story: Story, sample: str, given: set[str], step: int) -> tuple[Event | None, bool]:
    """The layer that is given the sample (or None), and whether the sample also meets what it was drawn from.

    A log-probability of the sample, as policy gradients use it, and a straight-through estimate combine the two; what
    they return is not followed.
    """
    known = _elementwise(story, given, step)
    pending, reached, layer, weighed = [sample], {sample}, None, False
    while pending and len(reached) < FURTHER:
        here = pending.pop(0)
        for use in story.uses(here):
            others = {o.label for o in use.operands if o.label is not None and o.label != here}
            if use.step <= step or use.error is not None:
                continue
            if others & known:
                weighed = True
            elif use.name in LAYERS:
                trains = use.results and (story.tensor(use.results[0], use.step) or {}).get("requires_grad")
                layer = layer or (use if trains else None)
            else:
                pending += [result for result in use.results if result not in reached]
                reached.update(use.results)
    return layer, weighed


def _elementwise(story: Story, given: set[str], step: int) -> set[str]:
    """The tensors that are connected with ``given`` by calls other than layers: operands and results."""
    known, pending = set(given), list(given)
    while pending and len(known) < FURTHER:
        label = pending.pop()
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is not None and made.name not in LAYERS and label in made.results:
            new = {
                o.label for o in made.operands if o.label is not None and _is_computed(story, o.label, made.step)
            } - known
            known |= new
            pending += new
        for use in story.uses(label):
            if use.name not in LAYERS and use.error is None:
                fresh = {r for r in use.results if (story.tensor(r, use.step) or {}).get("requires_grad")} - known
                known |= fresh
                pending += fresh if use.step <= step + FURTHER else ()
    return known


def _finding(story: Story, found: Sampled) -> Finding:
    event, layer = found.event, found.layer
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(layer.step))
    reached = found.backward.step if found.backward is not None else None
    back = at_line(story, story.span(reached))
    first, what = called(story, min(found.parameters), None, event.step), expression(story, found.sample, layer.step)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} draws {what.en}, and no gradient goes back through the draw: what {there.en} "
            f"makes of it does not train {first.en}.",
            zh=f"{here.zh}抽取 {what.zh}，而梯度无法穿过这次抽取：{there.zh}由它算出的结果不会训练 {first.zh}。",
        ),
        T(
            en=f"The backward on {back.en} reaches {first.en} by other terms only, such as a divergence, so a "
            "gradient is there and looks right. A sample that is written as mean + spread × noise (`rsample()`) has "
            "a gradient to both; `sample()` and `torch.normal` have none.",
            zh=f"{back.zh}的反向传播只经由其他项（例如散度）到达 {first.zh}，所以梯度是有的，看上去也对。写成“均值 + "
            "标准差 × 噪声”的样本（`rsample()`）对两者都有梯度；`sample()` 和 `torch.normal` 没有。",
        ),
        related=[
            story.related("used", layer.step, T(en="a layer is given the sample here", zh="样本在这里交给一个层")),
            story.related("backward", reached, T(en="goes back to the sample and no further", zh="回到样本就停下")),
        ],
        fixes=_fixes(story, event),
        facts=[Fact("parameters", sorted(found.parameters), story.by(reached))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program, torch = story.program, torch_name(story.program)
    span: Span | None = story.span(event.step)
    node = program.at(span)
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return ()
    text = program.segment(node)
    if call_name(node) == "sample":
        new = f"{program.segment(node.func.value)}.rsample{text[len(program.segment(node.func)) :]}"
        title = T(en="Draw with a gradient: `rsample()`", zh="用带梯度的抽取：`rsample()`")
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    if call_name(node) == "normal" and len(node.args) == 2 and not node.keywords and torch is not None:
        mean, spread = (program.segment(a) for a in node.args)
        if all(isinstance(a, ast.Name | ast.Attribute | ast.Call | ast.Subscript) for a in node.args):
            new = f"({mean} + {spread} * {torch}.randn_like({mean}))"
            title = T(en=f"Write it as `{new}`", zh=f"写成 `{new}`")
            return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    return ()


RULE = Rule(
    code="PL522",
    name="sample-without-path",
    severity="warning",
    title=T(en="No gradient goes back through a drawn sample", zh="梯度无法穿过抽取的样本"),
    what=T(
        en="A program draws random numbers around a mean that its network computes, and computes with them. "
        "Drawn by `sample()` they are plain numbers, so no gradient gets from the rest of the network back to "
        "the mean. Use `rsample()`.",
        zh="程序围绕网络算出的均值抽取随机数，再用它们继续计算。用 `sample()` 抽到的只是普通的数，网络的其余部分无法告"
        "诉均值该往哪里移动。请用 `rsample()`。",
    ),
    why=T(
        en="`Distribution.sample()` runs under `no_grad`, and `torch.normal(mean, std)` has a gradient of zero. "
        "`rsample()` computes the same numbers as `mean + std * noise`, where the noise is a constant for the "
        "gradient (*reparametrization*). In a variational autoencoder the divergence trains the encoder anyway, so "
        "nothing looks wrong: it learns to forget its input. Policy gradients want `sample()` together with "
        "`log_prob`; that is not reported.",
        zh="`Distribution.sample()` 在 `no_grad` 下运行，`torch.normal(mean, std)` 的梯度是零。`rsample()` 把同样的数"
        "算成 `mean + std * noise`，其中噪声对梯度来说是常数（*重参数化*）。在变分自编码器里，散度项照样训练编码器，所"
        "以看不出问题：它学会的是忘掉输入。策略梯度则需要 `sample()` 配合 `log_prob`，那种情况不会报告。",
    ),
    bad="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
encode, decode = torch.nn.Linear(3, 2), torch.nn.Linear(1, 3)
opt = torch.optim.SGD([*encode.parameters(), *decode.parameters()], lr=0.1)
x = torch.randn(6, 3)
for _ in range(3):
    mean, log_std = encode(x).chunk(2, dim=1)
    z = Normal(mean, log_std.exp()).sample()  # PL522
    divergence = (mean.square() + (2 * log_std).exp() - 2 * log_std).mean()
    loss = (decode(z) - x).square().mean() + 0.1 * divergence  # used
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
    print(encode.weight.grad)
""",
    good="""import torch
from torch.distributions import Normal

torch.manual_seed(0)
encode, decode = torch.nn.Linear(3, 2), torch.nn.Linear(1, 3)
opt = torch.optim.SGD([*encode.parameters(), *decode.parameters()], lr=0.1)
x = torch.randn(6, 3)
for _ in range(3):
    mean, log_std = encode(x).chunk(2, dim=1)
    z = Normal(mean, log_std.exp()).rsample()
    divergence = (mean.square() + (2 * log_std).exp() - 2 * log_std).mean()
    loss = (decode(z) - x).square().mean() + 0.1 * divergence
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(encode.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            ".sample()",
            ".sample().requires_grad_(True)",
            T(
                en="The sample becomes a beginning of its own: a gradient ends there, and still "
                "does not reach the mean.",
                zh="样本成了新的起点：梯度到那里为止，仍然到不了均值。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html",),
)
