"""PL342: a custom Function kept an intermediate result for its backward; in a second
derivative that counts as a constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from pitfall_lab.rules.kit.custom_functions import Custom, customs, inside
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.recomputing import Recomputing
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, snippet
from pitfall_lab.trace import Event, T

FLAT = {
    "sign", "sgn", "round", "floor", "ceil", "trunc", "heaviside", "ones_like", "zeros_like", "empty_like", "full_like",
    "rand_like", "randn_like", "randint_like", "bernoulli", "new_zeros", "new_ones", "new_empty", "new_full", "detach",
    "data",
}  # fmt: skip
"""Operations whose result does not depend smoothly on the numbers of their operand."""
FLOATS = ("float", "bfloat", "complex")
BACKWARDS = 3
DEEP = 60


@dataclass(frozen=True, slots=True)
class ConstantInSecondDerivative:
    """The backward of the custom Function ``custom`` read an intermediate result of its forward, which counts as a
    constant.

    ``kept`` is the label of this tensor, ``made`` the call (``Event``) in forward that computed it, ``use`` the call in
    backward that read it, and ``second`` the backward that differentiates what that backward computed.
    """

    custom: Custom
    made: Event
    kept: str
    use: Event
    second: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each custom Function whose backward reads an intermediate result of forward that depends
    smoothly on an input which requires grad, if a second derivative was taken through that backward.
    """
    for custom in customs(story.program) if story.program.tree else ():
        forward = [event for event in story.calls() if inside(custom, event, custom.forward.name)]
        made = {label: event for event in forward for label in event.results}
        for use in (e for e in story.calls() if made and inside(custom, e, custom.backward.name)):
            kept = next(
                (o.label for o in use.operands if o.label in made and _is_constant(story, str(o.label), use, made)),
                None,
            )
            if kept is not None and (second := _second(story, custom, use)) is not None:
                yield _finding(story, ConstantInSecondDerivative(custom, made[kept], kept, use, second))
                break


def _is_constant(story: Story, label: str, use: Event, made: dict[str, Event]) -> bool:
    """Whether a tensor that requires no grad was computed smoothly from an input that requires grad, and is used for a
    result that requires grad.

    ``made`` has the calls of forward by their results; only those are followed.
    """
    if (story.tensor(label, use.step) or {}).get("requires_grad"):
        return False
    if not any((story.tensor(result, use.step) or {}).get("requires_grad") for result in _reached(story, use)):
        return False
    pending, seen = [label], {label}
    while pending and len(seen) < DEEP:
        event = made.get(here := pending.pop())
        dtype = str((story.tensor(here) or {}).get("dtype"))
        if event is None or event.name in FLAT or not dtype.startswith(FLOATS):
            continue
        for given in (o.label for o in event.operands if o.label is not None and o.label not in seen):
            if given not in made and (story.tensor(given, event.step) or {}).get("requires_grad"):
                return True
            seen.add(given)
            pending.append(given)
    return False


def _reached(story: Story, use: Event) -> list[str]:
    """The results of a call, and of the calls in the same backward that use these results, directly or through other
    calls.
    """
    found = list(use.results)
    for here in found:
        for event in islice((e for e in story.uses(here) if e.parent == use.parent), DEEP):
            found += [label for label in event.results if label not in found]
    return found


def _second(story: Story, custom: Custom, use: Event) -> Event | None:
    """Return the first of the next ``BACKWARDS`` backwards without an error that goes through what this backward of the
    Function computed; None if there is none.
    """
    for backward in islice(
        (b for b in story.backwards() if b.step > use.step and b.step != use.parent and b.error is None), BACKWARDS
    ):
        root = backward.operands[0].label if backward.operands else None
        for node in story.behind((story.tensor(root, backward.step) or {}).get("grad_fn")):
            event = story.event((story.record("nodes", node) or {}).get("born"))
            if event is not None and event.parent == use.parent and inside(custom, event, custom.backward.name):
                return backward
    return None


def _finding(story: Story, found: ConstantInSecondDerivative) -> Finding:
    span, custom = story.span(found.made.step), found.custom
    here, read, second = (at_line(story, story.span(e.step)) for e in (found.made, found.use, found.second))
    name = story.name(found.kept, found.use.step) or snippet(story, span)
    return RULE.finding(
        span,
        found.made.step,
        T(
            en=f"`{name}`, made on {here.en} in `{custom.name}.{custom.forward.name}`, has no graph: the second "
            f"derivative on {second.en} treats it as a constant where backward reads it on {read.en}.",
            zh=f"`{name}` 在{here.zh}的 `{custom.name}.{custom.forward.name}` 中算出，没有计算图：反向传播"
            f"在{read.zh}读取它，而{second.zh}的二阶导数把它当作常数。",
        ),
        T(
            en="Torch runs the forward of a custom Function without recording a graph. What is computed there and "
            "kept for backward cannot be differentiated again, so the second derivative lacks every term that "
            "comes from it; the first derivative is right. Compute it in backward from the saved inputs, or "
            "return it as an output of forward.",
            zh="torch 运行自定义 Function 的前向计算时不记录计算图。在那里算出、留给反向传播的东西无法再求导，"
            "所以二阶导数缺少由它而来的所有项；一阶导数是对的。请在反向传播中由保存的输入重新计算，或者把它作"
            "为前向计算的输出返回。",
        ),
        related=[
            story.related("kept", found.made.step, T(en="computed here, without a graph", zh="在这里算出，没有计算图")),
            story.related("used", found.use.step, T(en="backward reads it here", zh="反向传播在这里读取它")),
            story.related(
                "backward", found.second.step, T(en="the second derivative is taken here", zh="在这里求二阶导数")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("tensor", found.kept, story.by(found.made.step))],
    )


def _fixes(story: Story, found: ConstantInSecondDerivative) -> tuple[Fix, ...]:
    """Fixes that compute the intermediate in backward, from the inputs that forward saves; empty if another method
    saves them.
    """
    program, custom = story.program, found.custom
    if custom.keeper is not custom.forward:
        return ()
    tensors = {name for label in story.tensors for name in _names(story, label)} & set(custom.inputs)
    candidates = []
    for name in dict.fromkeys([story.name(found.kept, found.use.step) or "", *_names(story, found.kept)]):
        edits = Recomputing(program, custom, tensors).edits(name)
        if edits:
            what = name.rsplit(".", 1)[-1]
            title = T(
                en=f"Compute `{what}` in backward from the saved inputs", zh=f"在反向传播中由保存的输入计算 `{what}`"
            )
            candidates.append(Fix(title, edits, meaning="later"))
    return unique(program.text, candidates)


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
        en="`forward` of a `torch.autograd.Function` runs without a graph; its node stands for the whole. With "
        "`create_graph=True` the calls in `backward` are recorded themselves, so that they can be differentiated. "
        "Saved inputs and outputs come back connected to the graph. An intermediate result was made without one, and "
        "comes back without one, kept as an attribute or with `save_for_backward`. `torch.autograd.gradgradcheck` "
        "shows the difference.",
        zh="`torch.autograd.Function` 的 `forward` 在没有计算图的情况下运行，由它的节点代表整体。用 "
        "`create_graph=True` 时，`backward` 中的调用本身会被记录，以便再求导。保存的输入和输出取回时与计算图相连。中间"
        "结果产生时没有计算图，取回时也没有，无论是作为属性还是用 `save_for_backward` 保存。"
        "`torch.autograd.gradgradcheck` 可以查出这种差别。",
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
