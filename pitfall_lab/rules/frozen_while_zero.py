"""PL614: a weight of zeros was frozen, so the branch that it belongs to adds nothing, and never will."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Function, Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, flat
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

WEIGHTED = spellings("matmul", "mm") | {"addmm", "bmm", "conv1d", "conv2d", "conv3d", "linear"}
"""Calls that multiply their input with a weight."""
TURNED = {"t", "T", "mT", "transpose", "permute"}
"""Calls that transpose the weight before the product."""
ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Frozen:
    """``weight`` is the label of a weight whose ``requires_grad`` the call ``freezing`` (an ``Event``) switched off;
    ``uses`` are the later calls that multiply with it. At the first and at the last of these, all its known numbers are
    zero.
    """

    weight: str
    freezing: Event
    uses: list[Event]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that froze weights which an optimizer holds, and which are all zeros at the first
    and at the last call that multiplies with them afterwards, if there are at least ``ROUNDS`` such calls and an
    optimizer steps between the first and the last.

    Only for weights of at least two dimensions that do not require grad at the end.
    """
    reported = set()
    held = dict.fromkeys(label for update in story.trace.optimizer_steps for label in update.holds)
    for label in held:
        found = _frozen(story, label)
        if found is not None and story.span(found.freezing.step) not in reported:
            reported.add(story.span(found.freezing.step))
            yield _finding(story, found)


def _frozen(story: Story, label: str) -> Frozen | None:
    record = story.tensor(label) or {}
    if record.get("requires_grad") or len(record.get("shape") or ()) < 2:
        return None
    off = [
        e for e in story.uses(label) if e.name in ("requires_grad", "requires_grad_") and not e.op.endswith("__get__")
    ]
    uses = [
        use
        for each in (label, *_turned(story, label))
        for use in story.uses(each)
        if use.name in WEIGHTED and use.error is None
    ]
    uses = sorted((use for use in uses if off and use.step > off[-1].step), key=lambda use: use.step)
    updates = [
        update.step for update in story.trace.optimizer_steps if uses and uses[0].step < update.step < uses[-1].step
    ]
    storage = str(record.get("storage"))
    if len(uses) < ROUNDS or not updates or any(not _is_zero(story, storage, use.step) for use in (uses[0], uses[-1])):
        return None
    return Frozen(label, off[-1], uses)


def _turned(story: Story, label: str) -> list[str]:
    return [result for use in story.uses(label) if use.name in TURNED for result in use.results]


def _is_zero(story: Story, storage: str, step: int) -> bool:
    known = flat((story.record("storages", storage, step) or {}).get("cells"))
    return bool(known) and all(value == 0 for _, value in known)


def _finding(story: Story, found: Frozen) -> Finding:
    freezing, used = found.freezing, found.uses[0]
    here, there = at_line(story, story.span(freezing.step)), at_line(story, story.span(used.step))
    own = next(
        (n for n in (story.tensor(found.weight) or {}).get("names") or () if "." in n), None
    )  # not the name that a loop gave it
    name = T(en=f"`{own}`", zh=f"`{own}`") if own is not None else called(story, found.weight, None, used.step)
    return RULE.finding(
        story.span(freezing.step),
        freezing.step,
        T(
            en=f"{capital(here.en)} freezes {name.en}, which is all zeros: its product on {there.en} adds "
            "nothing, and never will.",
            zh=f"{here.zh}冻结了 {name.zh}，而它全是零：它在{there.zh}的乘积什么也不增加，而且永远如此。",
        ),
        T(
            en=f"{capital(name.en)} was given to an optimizer, but it no longer requires a gradient, and an optimizer "
            "passes over it in silence. Zeros are a beginning for weights that learn, such as the second factor of "
            "an adapter. Frozen, they switch their branch off.",
            zh=f"{name.zh} 已交给优化器，但它不再需要梯度，优化器会一声不响地跳过它。零是将要学习的权重的起点，例如适"
            "配器的第二个因子。冻结之后，它们就关掉了自己的分支。",
        ),
        related=[
            story.related("used", used.step, T(en="multiplied with zeros here", zh="在这里与零相乘")),
            story.related("step", _update(story, found), T(en="this step passes over it", zh="这一步会跳过它")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("tensor", found.weight, story.by(used.step))],
    )


def _update(story: Story, found: Frozen) -> int | None:
    return next((update.step for update in story.trace.optimizer_steps if update.step > found.uses[0].step), None)


def _fixes(story: Story, found: Frozen) -> tuple[Fix, ...]:
    """Fixes that freeze before the weight is created; empty unless the two statements are in one block, with the
    freezing below.
    """
    program = story.program
    storage = (story.tensor(found.weight) or {}).get("storage")
    born = min((r["born"] for _, r in story.tensors_on(storage) if r.get("born") is not None), default=None)
    makers, freezers = list(call_chain(story, story.line_event(born))), list(call_chain(story, found.freezing))
    makers, freezers = ([each for one in chain for each in _around(program, one)] for chain in (makers, freezers))
    for freezer in freezers:
        maker = next(
            (m for m in makers if program.block(m) is program.block(freezer) and m.lineno < freezer.lineno), None
        )
        if maker is None:
            continue
        edits = merge(program.delete(freezer), program.insert_before(maker, program.segment(freezer)))
        edits = edits or program.replace(
            (maker, program.segment(freezer)), (freezer, program.segment(maker))
        )  # neighbours: exchanged
        if edits:
            title = T(
                en="Freeze the old weights first, and add the new ones afterwards", zh="先冻结旧的权重，再加上新的"
            )
            return unique(program.text, [Fix(title, edits, meaning="later")])
    return ()


def _around(program: Program, statement: ast.stmt) -> Iterator[ast.stmt]:
    """Yield the statement and the statements that contain it, from the inside out, up to the function or class."""
    for each in (statement, *program.ancestors(statement)):
        if isinstance(each, Function | ast.ClassDef):
            return
        if isinstance(each, ast.stmt):
            yield each


RULE = Rule(
    code="PL614",
    name="frozen-while-zero",
    severity="warning",
    title=T(en="A weight of zeros was frozen, and its branch switched off", zh="全零的权重被冻结，它的分支因此被关掉"),
    what=T(
        en="A program added small trainable weights, which begin as zeros, to a model and froze all weights "
        "afterwards, these too. Zero times anything is nothing, and frozen it stays so. Freeze the old weights first, "
        "then add the new ones.",
        zh="程序给模型加上了从零开始的小的可训练权重，随后冻结了所有权重，连这些也冻结了。零乘以任何数都是零，冻结之后"
        "永远如此。请先冻结旧的权重，再加上新的。",
    ),
    why=T(
        en="Adapters (LoRA, zero convolutions) begin as zeros so that the model computes at first what it did before; "
        "their gradient is not zero, so they learn. A loop over `model.parameters()` with `requires_grad = False` "
        "does not depend on when a parameter was added. An optimizer takes parameters that do not require gradients, "
        "and `step()` passes over them. The head still learns, so the loss goes down, and nothing shows that the "
        "adapters do nothing.",
        zh="适配器（LoRA、零卷积）从零开始，使模型起初的计算与原来一样；它们的梯度不是零，所以会学习。对 "
        "`model.parameters()` 循环设置 `requires_grad = False` 时，不会问参数是何时加进来的。优化器接受不需要梯度的参"
        "数，`step()` 会跳过它们。输出层仍在学习，损失照样下降，看不出适配器什么也没做。",
    ),
    bad="""import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.extra = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.extra.weight)

    def forward(self, x):
        return self.base(x) + self.extra(x)  # used


torch.manual_seed(0)
body, head = nn.Linear(2, 2), nn.Linear(2, 1)
body = Adapter(body)
body.requires_grad_(False)  # PL614
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(4, 2)
for _ in range(3):
    loss = head(body(x)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # step
print(loss.item())
""",
    good="""import torch
from torch import nn


class Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.extra = nn.Linear(2, 2, bias=False)
        nn.init.zeros_(self.extra.weight)

    def forward(self, x):
        return self.base(x) + self.extra(x)


torch.manual_seed(0)
body, head = nn.Linear(2, 2), nn.Linear(2, 1)
body.requires_grad_(False)
body = Adapter(body)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
x = torch.randn(4, 2)
for _ in range(3):
    loss = head(body(x)).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)",
            "body.train()\nopt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)",
            T(
                en="`train()` switches dropout and batch normalisation. It does not make weights "
                "require gradients again.",
                zh="`train()` 切换的是 dropout 和批归一化，并不会让权重重新需要梯度。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad_.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
