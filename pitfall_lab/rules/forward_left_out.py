"""PL971: in evaluation mode torch computes a transformer layer from the weights of its submodules, and skips the
``forward`` that the program wrote for one of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, Skipped, T

PLAIN = {"layer_norm", "linear"}
"""Calls that torch's own submodules with a weight make."""
ACTIVATIONS = {"gelu", "relu"}
"""The activations of a layer that torch computes in one call."""
RUN = 200
"""The most calls of one run of a function that are looked at."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each call of a transformer layer that skipped functions of the program which change what
    the layer computes; only the first call for the same submodules and functions.
    """
    by_step: dict[int, list[Skipped]] = {}
    for skipped in story.trace.beside.skipped:
        if _changes(story, skipped):
            by_step.setdefault(skipped.step, []).append(skipped)
    reported = set()
    for step, several in by_step.items():
        names = frozenset((each.part, each.function) for each in several)
        if names not in reported:
            reported.add(names)
            yield _finding(story, step, several)


def _changes(story: Story, skipped: Skipped) -> bool:
    """Whether the skipped function computes something else than torch does from the submodule's weight.

    If the function ran elsewhere, the calls in it show this; else it must read attributes of its own, whatever else it
    does.
    """
    starts = _runs(story, skipped)
    if skipped.asks == "mode" or (skipped.weight is not None and _is_merged(story, skipped, starts)):
        return False
    if not starts:
        return bool(not skipped.asks and skipped.own and skipped.part not in ("", "self_attn"))
    return all(_is_other(story, skipped, start) for start in starts[:2])


def _runs(story: Story, skipped: Skipped) -> list[int]:
    """Return the first steps of the runs of the function, of those that use the submodule's weight if it has one; empty
    if there are none.
    """
    inside = [e.step for e in story.calls() if skipped.function in e.scope]
    if skipped.weight is None:
        return [step for step in inside if step - 1 not in inside]
    # several parts of one class: those runs that use the weight
    found = list[int]()
    for use in (use for use in story.uses(skipped.weight) if skipped.function in use.scope):
        start = use.step
        while start and skipped.function in story.events[start - 1].scope:
            start -= 1
        found.append(start)
    return list(dict.fromkeys(found))


def _is_merged(story: Story, skipped: Skipped, starts: list[int]) -> bool:
    """Whether anything but an optimizer or a load wrote the weight after the function had run."""
    storage = str((story.tensor(skipped.weight, skipped.step) or {}).get("storage"))
    loaded = {(each.span.source, each.span.line) for each in story.trace.beside.loadings if each.span is not None}
    writes = (story.events[step] for step in story.writes(storage, starts[-1], skipped.step)) if starts else ()
    places = ((story.said(each.step), each.span) for each in writes)
    return any(name != "step" and (at is None or (at.source, at.line) not in loaded) for name, at in places)


def _is_other(story: Story, skipped: Skipped, start: int) -> bool:
    """Whether a run of the function returned something else than the one call that torch makes for the submodule; False
    if it is not known what it returned.
    """
    run = list[Event]()
    for event in story.events[start : start + RUN]:
        if skipped.function not in event.scope:
            break
        run.append(event)
    after = story.event(run[-1].step + 1) if run else None
    made = {label: event for event in run for label in event.results}
    returned = next((o.label for o in after.operands if o.label in made), None) if after is not None else None
    if returned is None:
        return False
    last = made[returned]
    if any(_storage(story, returned, event.step) in event.writes for event in run if event.step > last.step):
        return True
    changed = bool(last.operands) and last.operands[0].label in made
    if _is_of_parent(story, last):
        return changed and last.name in PLAIN
    if skipped.weight is not None and last.name in PLAIN:
        return changed or skipped.weight not in {o.label for o in last.operands}
    return last.name not in ACTIVATIONS


def _storage(story: Story, label: str, step: int) -> str:
    return str((story.tensor(label, step) or {}).get("storage"))


def _is_of_parent(story: Story, event: Event) -> bool:
    """Whether the call is made by ``super().forward(x)``, and not by the function itself."""
    node = story.program.at(event.span) if event.span is not None and event.span.source == 0 else None
    owner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    return isinstance(owner, ast.Call) and call_name(owner) == "super"


def _finding(story: Story, step: int, several: list[Skipped]) -> Finding:
    here, first = at_line(story, story.span(step)), several[0]
    function = first.function.rpartition("<locals>.")[2]
    parts = ", ".join(f"`{each.part}`" for each in several if each.part)
    of = T(en=f" ({parts})" if parts else "", zh=f"（{parts}）" if parts else "")
    ran = next((start for each in several for start in _runs(story, each)), None)
    related = [story.related("used", ran, T(en="here it is called", zh="这里调用了它"))] if ran is not None else []
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} computes a transformer layer in one piece from the weights of its parts, and does "
            f"not call `{function}`{of.en}: the result is what the weights give without it.",
            zh=f"{here.zh}由各部分的权重一次算出整个 transformer 层，没有调用 `{function}`{of.zh}：结果是不经过它、"
            "只由权重算出的。",
        ),
        T(
            en="In evaluation mode, where no gradient is recorded, `nn.TransformerEncoderLayer` gives the weights of "
            "its attention, linear and norm layers to one fast operation. The modules themselves are not called then. "
            "In training mode they are, so the same model computes something else in evaluation. "
            "`torch.backends.mha.set_fastpath_enabled(False)` switches this off.",
            zh="在评估模式下且不记录梯度时，`nn.TransformerEncoderLayer` 把注意力层、线性层和归一化层的权重交给一个快速"
            "的操作，这时不会调用这些模块本身。训练模式下会调用，所以同一个模型在评估时计算的是别的东西。"
            "`torch.backends.mha.set_fastpath_enabled(False)` 可以关闭这一做法。",
        ),
        related=related,
        fixes=_fixes(story),
        facts=[Fact("function", first.function), Fact("parts", tuple(each.part for each in several))],
    )


def _fixes(story: Story) -> tuple[Fix, ...]:
    """At most one fix: it switches the fast path off, after the imports; empty if the program does not import torch."""
    program = story.program
    torch = torch_name(program)
    body = program.tree.body if program.tree is not None else []
    imports = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom)]
    own = next((place for place, each in enumerate(imports) if torch in _names(each)), None)
    if torch is None or own is None:
        return ()
    # the imports that follow that of torch without another statement between
    first = body.index(imports[own])
    last = next((place for place in range(first, len(body)) if body[place] not in imports), len(body)) - 1
    new = f"{torch}.backends.mha.set_fastpath_enabled(False)"
    title = T(en=f"Call each part: `{new}`", zh=f"逐一调用各部分：`{new}`")
    edits = program.insert_after(body[last], new)
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


def _names(statement: ast.Import | ast.ImportFrom) -> set[str]:
    """Return the names that an ``import`` statement binds (``torch`` for ``import torch.nn``); empty for ``from …
    import``.
    """
    names = {alias.asname or alias.name.partition(".")[0] for alias in statement.names}
    return names if isinstance(statement, ast.Import) else set()


RULE = Rule(
    code="PL971",
    name="forward-left-out",
    severity="warning",
    title=T(
        en="A transformer layer in evaluation leaves out a part's own forward",
        zh="评估时 transformer 层没有调用某个部分自己的 forward",
    ),
    what=T(
        en="A program replaces a part of a transformer layer by one of its own, which computes something else. In "
        "evaluation torch does not call it: it takes its weight and computes the whole layer at once. Switch this off: "
        "`torch.backends.mha.set_fastpath_enabled(False)`.",
        zh="程序用自己的类替换了 transformer 层的一个部分，它计算的是别的东西。评估时 torch 并不调用它，而是取出它的"
        "权重，一次算出整个层。请关闭这一做法：`torch.backends.mha.set_fastpath_enabled(False)`。",
    ),
    why=T(
        en="`nn.TransformerEncoderLayer` has a fast path for evaluation without gradients. It reads `linear1.weight`, "
        "`norm1.weight` and so on, and one operation does the rest; a subclass of `nn.Linear` has such a weight, too, "
        "so nothing is raised. A low-rank adapter, a fake quantization or a Dropout that is to stay on is then trained "
        "or measured, and not used. Forward hooks are noticed, another `forward` is not.",
        zh="`nn.TransformerEncoderLayer` 在不需要梯度的评估中有一条快速路径：它读取 `linear1.weight`、`norm1.weight` "
        "等，其余由一个操作完成；`nn.Linear` 的子类同样有这样的权重，所以不会报错。于是低秩适配器、伪量化，"
        "或者要保持开启的 Dropout，训练了或测量了，却没有使用。前向钩子会被发现，另写的 `forward` 则不会。",
    ),
    bad="""import torch
from torch import nn

class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x @ self.extra  # used

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
layer.linear1 = Adapted(4, 4)
layer.linear1.extra = nn.Parameter(torch.eye(4))
x = torch.randn(1, 3, 4)
print(layer(x)[0, 0])
layer.eval()
with torch.no_grad():
    print(layer(x)[0, 0])  # PL971
""",
    good="""import torch
from torch import nn

torch.backends.mha.set_fastpath_enabled(False)

class Adapted(nn.Linear):
    def forward(self, x):
        return super().forward(x) + x @ self.extra

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(4, 2, 4, dropout=0.0, batch_first=True)
layer.linear1 = Adapted(4, 4)
layer.linear1.extra = nn.Parameter(torch.eye(4))
x = torch.randn(1, 3, 4)
print(layer(x)[0, 0])
layer.eval()
with torch.no_grad():
    print(layer(x)[0, 0])
""",
    find=find,
    traps=(
        Trap(
            "with torch.no_grad():",
            "with torch.inference_mode():",
            T(
                en="In evaluation the fast operation is used wherever no gradient is recorded.",
                zh="在评估模式下，只要不记录梯度，就会使用这个快速操作。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html",
        "https://docs.pytorch.org/docs/stable/backends.html",
    ),
)
