"""PL624: two weights that are multiplied with each other begin as zeros, so both always have a gradient of zero."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

ROUNDS = 3
FURTHER = 60
PRODUCTS = (
    spellings("matmul", "mm", "mul") | {"__rmatmul__", "addmm", "bmm", "conv1d", "conv2d", "conv3d", "einsum", "linear"}
)  # fmt: skip
"""Calls that multiply two weights, or a weight with what another one computed."""
TURNED = {"t", "T", "mT", "transpose", "permute", "unsqueeze", "view"}
"""Calls that turn a weight before the product."""
ZEROS = {"zeros", "zeros_like", "zeros_", "zero_", "new_zeros", "constant_", "fill_"}
"""Calls that make, or write, zeros."""


@dataclass(frozen=True, slots=True)
class Stuck:
    """``first`` and ``second`` are the labels of two weights of zeros that are multiplied with each other; ``together``
    is the call (``Event``) that computed their first common result.

    ``backwards`` are all backwards that gave ``first`` a gradient.
    """

    first: str
    second: str
    together: Event
    backwards: list[Event]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of weights made of zeros that are factors of one product, so that the gradients
    of both stay zero; each line that made one is reported once.

    Only for weights of two or more axes that an optimizer held and that got a gradient in at least ``ROUNDS``
    backwards. At the first and at the last of these, all known numbers of both and of their gradients must be zero.
    """
    told = set()
    zero = [
        label for label in _held(story) if len(_added(story, label)) >= ROUNDS and _origin(story, label) is not None
    ]
    pairs = (_product(story, first, second) for first in zero for second in zero if first != second)
    for found in [found for found in pairs if found is not None]:
        place = story.span(_origin(story, found.first))
        if (
            place not in told and _stays_zero(story, found.first) and _stays_zero(story, found.second)
        ):  # last: values are requested
            told.update({place, story.span(_origin(story, found.second))})
            yield _finding(story, found)


def _held(story: Story) -> list[str]:
    """The weights of two or more axes that an optimizer held when it stepped. A bias or a gate may begin as zeros."""
    held = dict.fromkeys(label for update in story.trace.optimizer_steps for label in update.holds)
    return [label for label in held if len((story.tensor(label) or {}).get("shape") or ()) > 1]


def _added(story: Story, label: str) -> list[Event]:
    return [moment.event for moment in lives(story).get(label, ()) if moment.kind == "added"]


def _stays_zero(story: Story, label: str) -> bool:
    """Whether all known values of the weight and of its gradient were zero at its first and at its last backward.

    False if no value is known at one of them.
    """
    storage, added = (story.tensor(label) or {}).get("storage"), _added(story, label)
    if not all(_only_zeros(story, storage, backward.step) for backward in (added[0], added[-1])):
        return False
    return all(_only_zeros(story, _gradient(story, label, b.step), _end(story, b)) for b in (added[0], added[-1]))


def _end(story: Story, backward: Event) -> int:
    """The step of the last node that a backward ran: its gradients are in ``.grad`` then."""
    ran = story.nodes_run(backward)
    return ran[-1].step if ran else backward.step


def _gradient(story: Story, label: str, step: int) -> str | None:
    """The storage of the gradient that a backward at ``step`` or later filled, else of the first
    gradient; None if there is none.
    """
    grads = [grad for at, grad in story.history("tensors", label, "grad") if grad is not None]
    later = [grad for at, grad in story.history("tensors", label, "grad") if grad is not None and at >= step]
    grad = (later or grads or [None])[0]
    return (story.tensor(grad) or {}).get("storage")


def _only_zeros(story: Story, storage: str | None, step: int) -> bool:
    known = flat((story.record("storages", storage, step) or {}).get("cells"))
    return bool(known) and all(value == 0 for _, value in known)


def _product(story: Story, first: str, second: str) -> Stuck | None:
    """The data of the finding if both weights are factors of one product, directly or one after the other with the same
    data; else None.
    """
    reached, pending, backwards = {first}, [first], _added(story, first)
    while pending and len(reached) < FURTHER:
        here = pending.pop(0)
        for use in story.uses(here):
            if use.step > backwards[0].step or use.error is not None or not use.results:
                continue
            others = {o.label for o in use.operands if o.label != here}
            if use.name in PRODUCTS and others & {second, *_turned(story, second)}:
                return Stuck(first, second, use, backwards)
            if (use.name in PRODUCTS and here in (first, *_turned(story, first))) or (
                len(others - {None}) == 0 and use.name != "backward"
            ):
                pending += [result for result in use.results if result not in reached]
                reached.update(use.results)
    return None


def _turned(story: Story, label: str) -> list[str]:
    return [result for use in story.uses(label) if use.name in TURNED for result in use.results]


def _origin(story: Story, label: str) -> int | None:
    """The step at which the weight got zeros that nothing had changed until the first
    backward; ``None`` if there is none.
    """
    storage, first = (story.tensor(label) or {}).get("storage"), _added(story, label)[0].step
    fills = [
        e.step
        for e in story.calls(*ZEROS)
        if e.step < first and storage in (*e.writes, *(_memory(story, r) for r in e.results))
    ]
    return fills[-1] if fills and not story.writes(str(storage), fills[-1], first) else None


def _memory(story: Story, label: str) -> str | None:
    return (story.tensor(label) or {}).get("storage")


def _finding(story: Story, found: Stuck) -> Finding:
    one, other = sorted((found.first, found.second), key=lambda label: _origin(story, label) or 0)
    made = _origin(story, one)
    here, there = at_line(story, story.span(made)), at_line(story, story.span(found.together.step))
    names = [called(story, label, None, found.together.step) for label in (one, other)]
    update = next(u for u in story.trace.optimizer_steps if u.step > found.backwards[0].step)
    return RULE.finding(
        story.span(made),
        made,
        T(
            en=f"{capital(here.en)} starts {names[0].en} at zero, and {names[1].en}, which its product is multiplied "
            f"with on {there.en}, is zero too: both gradients are zero in each of {len(found.backwards)} rounds.",
            zh=f"{here.zh}让 {names[0].zh} 从零开始，而{there.zh}与它的乘积相乘的 {names[1].zh} 也是零："
            f"{len(found.backwards)} 轮里两者的梯度一直为零。",
        ),
        T(
            en=f"The gradient of a factor is the other factor times what comes from behind. With {names[0].en} "
            f"and {names[1].en} both zero neither can leave zero, however long the training is, and the branch "
            "adds nothing. One of the two may begin as zeros, so that the branch adds nothing at first; the "
            "other needs random numbers.",
            zh=f"一个因子的梯度是另一个因子乘以后面传来的梯度。{names[0].zh} 与 {names[1].zh} 都是零时，无论训练多久，"
            "哪一个都离不开零，这个分支什么也不增加。其中一个可以从零开始，使分支起初不起作用；另一个必须是随机数。",
        ),
        related=[
            story.related(
                "made",
                _origin(story, other),
                T(en="the other factor begins as zeros here", zh="另一个因子在这里从零开始"),
            ),
            story.related("used", found.together.step, T(en="multiplied here", zh="在这里相乘")),
            story.related("step", update.step, T(en="this step adds zero to both", zh="这一步给两者都加上零")),
        ],
        fixes=_fixes(story, made),
        facts=[Fact("rounds", len(found.backwards), story.by(found.backwards[0].step)), Fact("weights", [one, other])],
    )


def _fixes(story: Story, made: int | None) -> tuple[Fix, ...]:
    """Fixes that begin with small random numbers instead of zeros.

    Empty if the program's source does not show a call that makes or fills with zeros.
    """
    program, torch = story.program, torch_name(story.program)
    for statement in call_chain(story, story.line_event(made)):
        for call in _calls(statement):
            name, text = call_name(call), program.segment(call)
            if name in ("zeros", "zeros_like", "new_zeros") and torch is not None:
                new = (
                    f"{text.replace(name, {'zeros': 'randn', 'zeros_like': 'randn_like'}.get(name, 'new_zeros'), 1)} "
                    "* 0.01"
                )
                if name != "new_zeros":
                    title = T(en=f"Start at small random numbers: `{new}`", zh=f"从小的随机数开始：`{new}`")
                    return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])
            if name in ("zeros_", "constant_") and call.args and torch is not None:
                new = f"{torch}.nn.init.normal_({program.segment(call.args[0])}, std=0.01)"
                title = T(en=f"Start at small random numbers: `{new}`", zh=f"从小的随机数开始：`{new}`")
                return unique(program.text, [Fix(title, program.replace((call, new)), meaning="later")])
    return ()


def _calls(statement: ast.stmt) -> list[ast.Call]:
    return [n for n in ast.walk(statement) if isinstance(n, ast.Call)]


RULE = Rule(
    code="PL624",
    name="weights-stay-zero",
    severity="warning",
    title=T(en="Two factors begin as zeros, so neither ever learns", zh="两个因子都从零开始，谁也学不到东西"),
    what=T(
        en="A program multiplies with two weights in a row, and both begin as zeros. Each has the other as a factor "
        "of its gradient, so both gradients are zero in every round. Start one of them with small random numbers.",
        zh="程序接连与两个权重相乘，而两个都从零开始。每一个的梯度都以另一个为因子，所以每一轮的两个梯度都是零。请让其"
        "中一个从小的随机数开始。",
    ),
    why=T(
        en="By the chain rule the gradient of `A` in `x @ A @ B` contains `B`, and that of `B` contains `x @ A`. "
        "Zeros in one of the two are harmless, and often wanted: a LoRA adapter has `B = 0`, so the model computes at "
        "first what it did before, and `B` gets a gradient since `A` is random. The same happens to a network of "
        "which all layers are filled with zeros.",
        zh="按链式法则，`x @ A @ B` 中 `A` 的梯度含有 `B`，`B` 的梯度含有 `x @ A`。其中一个为零没有害处，常常正是"
        "所要的：LoRA 的 `B = 0`，模型起初的计算与原来一样，而 `A` 是随机数，所以 `B` 有梯度。把网络的所有层都填成"
        "零时，会发生同样的事。",
    ),
    bad="""import torch

torch.manual_seed(0)
base = torch.nn.Linear(3, 2).requires_grad_(False)
down = torch.nn.Parameter(torch.zeros(3, 1))  # PL624
up = torch.nn.Parameter(torch.zeros(1, 2))  # made
opt = torch.optim.SGD([down, up], lr=0.5)
x, y = torch.randn(8, 3), torch.randn(8, 2)
for _ in range(4):
    loss = (base(x) + x @ down @ up - y).square().mean()  # used
    opt.zero_grad()
    loss.backward()
    opt.step()  # step
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
base = torch.nn.Linear(3, 2).requires_grad_(False)
down = torch.nn.Parameter(torch.randn(3, 1) * 0.01)
up = torch.nn.Parameter(torch.zeros(1, 2))
opt = torch.optim.SGD([down, up], lr=0.5)
x, y = torch.randn(8, 3), torch.randn(8, 2)
for _ in range(4):
    loss = (base(x) + x @ down @ up - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.5",
            "lr=50.0",
            T(en="A higher rate times a gradient of zero is still zero.", zh="再大的学习率乘以零梯度还是零。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/nn.init.html",),
)
