"""PL703: weights were kept without copying them, trained on, and loaded back or saved: the newest ones are
copied onto themselves, or get into the file.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.keeping_repairs import copies_of, copies_of_state
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as method
from pitfall_lab.rules.kit.wording import at_line, called, capital, statement_text
from pitfall_lab.rules.signals.kept_weights import RestoredWeights, restored
from pitfall_lab.rules.signals.saved_weights import SavedWeights, saved
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each pair of a place in the source that kept weights without a copy and a line that copied
    them onto themselves, or saved them to a file, after they had been trained.
    """
    reported = set()
    for found in restored(story):
        place = (found.place, story.span(found.load.step))
        if place not in reported:
            reported.add(place)
            yield _finding(story, found)
    for kept in saved(story):
        if (kept.place, kept.read) not in reported:
            reported.add((kept.place, kept.read))
            yield _finding_of_read(story, kept)


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, one about a tensor kept without a copy, if this rule has one
    for the same line; else None.
    """
    return next((finding for finding in find(story) if finding.span == general.span), None)


def _finding(story: Story, found: RestoredWeights) -> Finding:
    load, changed = found.load, found.changed
    what = called(story, load.operands[0].label, None, load.step)
    kept, here = at_line(story, found.place), at_line(story, story.span(load.step))
    then = at_line(story, story.span(changed))
    code, loading = (statement_text(story, place) for place in (found.place, story.span(load.step)))
    lost = T(
        en=f"the model keeps its last weights, and not those of the moment of {kept.en}.",
        zh=f"模型保留的是最后的权重，而不是{kept.zh}那一刻的权重。",
    )
    if found.is_newest:
        lost = T(
            en=f"in this run they were not written again after {kept.en}, so nothing was lost; after one "
            "more update it would be.",
            zh=f"在这次运行中，{kept.zh}之后它们没有再被写入，所以什么也没有丢失；但只要再更新一次就会丢失。",
        )
    return RULE.finding(
        found.place,
        changed if found.kept is None else found.kept,
        T(
            en=f"{capital(kept.en)} keeps the weights themselves, not a copy: {then.en} continues to change them, and "
            f"{here.en} restores nothing.",
            zh=f"{kept.zh}留下的是权重本身，而不是副本：{then.zh}继续修改它们，{here.zh}什么也没有恢复。",
        ),
        T(
            en=f"`{code}` gives tensors on the model's own memory. {capital(then.en)} writes that memory, so what was "
            f"kept changes with it. `{loading}` then copies {what.en} onto itself: {lost.en}",
            zh=f"`{code}` 给出的张量看着模型自己的内存。{then.zh}写入这块内存，留下的东西也随之改变。于是 `{loading}` "
            f"把 {what.zh} 复制到它自己身上：{lost.zh}",
        ),
        related=[
            Related(
                "kept",
                found.place,
                found.kept,
                T(en="the weights are kept here, without a copy", zh="权重在这里被留下，没有复制"),
            ),
            story.related("changed", changed, T(en="the same memory is updated here", zh="同一块内存在这里被更新")),
            story.related(
                "used", load.step, T(en="they are loaded here, onto themselves", zh="它们在这里被载入，写到自己身上")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("tensor", load.operands[0].label, story.by(load.step)),
            Fact("kept", load.operands[1].label, story.by(load.step)),
        ],
    )


def _finding_of_read(story: Story, found: SavedWeights) -> Finding:
    what = called(story, found.parameter, None, found.step)
    kept, here = at_line(story, found.place), at_line(story, found.read)
    then = at_line(story, story.span(found.changed))
    read = T(en="they are loaded into another module here", zh="它们在这里被载入另一个模块")
    if found.is_file:
        read = T(en="they are written to a file here", zh="它们在这里被写进文件")
    return RULE.finding(
        found.place,
        found.kept.step,
        T(
            en=f"{capital(kept.en)} keeps the weights themselves, not a copy: {then.en} continues to change them, and "
            f"{here.en} {'saves' if found.is_file else 'loads'} the newest ones.",
            zh=f"{kept.zh}留下的是权重本身，而不是副本：{then.zh}继续修改它们，"
            f"{here.zh}{'保存' if found.is_file else '载入'}的是最新的权重。",
        ),
        T(
            en=f"`{statement_text(story, found.place)}` gives tensors on the model's own memory, and {then.en} writes "
            f"that memory: what was kept is always equal to {what.en} as it is now. So {here.en} reads the newest "
            "weights, whatever round was the best.",
            zh=f"`{statement_text(story, found.place)}` 给出的张量看着模型自己的内存，{then.zh}写入这块内存：留下的东西"
            f"总是等于此刻的 {what.zh}。因此{here.zh}读到的总是最新的权重，无论哪一轮最好。",
        ),
        related=[
            Related(
                "kept",
                found.place,
                found.kept.step,
                T(en="the weights are kept here, without a copy", zh="权重在这里被留下，没有复制"),
            ),
            story.related(
                "changed", found.changed, T(en="the same memory is updated here", zh="同一块内存在这里被更新")
            ),
            Related("used", found.read, None if found.is_file else found.step, read),
        ],
        fixes=_copies(story.program, story.program.at(found.place)),
        facts=[Fact("tensor", found.parameter, story.by(found.kept.step))],
    )


def _fixes(story: Story, found: RestoredWeights) -> tuple[Fix, ...]:
    if found.value is not None:
        return copies_of(story.program, found.value)
    return _copies(story.program, story.program.at(found.place) if story.program.tree else None)


def _copies(program: Program, node: ast.AST | None) -> tuple[Fix, ...]:
    """The fix that copies what ``node`` keeps: an expression, or the value of an assignment."""
    node = node.value if isinstance(node, ast.Assign) else node
    if not isinstance(node, ast.expr):
        return ()
    text = program.segment(node)
    if isinstance(node, ast.Call) and method(node) == "state_dict":
        return copies_of_state(program, node)
    title = T(en=f"Keep a copy: `{text}.clone()`", zh=f"保留副本：`{text}.clone()`")
    return unique(program.text, [Fix(title, program.replace((node, f"{text}.clone()")), meaning="later")])


RULE = Rule(
    code="PL703",
    name="state-dict-by-reference",
    severity="warning",
    title=T(en="The best weights were kept without a copy, and lost", zh="最好的权重没有复制就留下，因而丢失"),
    what=T(
        en="A program kept the weights of a model at a good moment, trained on, and loaded them back at the end. But "
        "it had kept the weights themselves, which training continues to change, and so the last weights stay. Keep a "
        "copy: `copy.deepcopy(model.state_dict())`.",
        zh="程序在某个好的时刻留下了模型的权重，继续训练，最后再载入。但它留下的是权重本身，训练会继续修改它们，所以得"
        "到的仍是最后的权重。请保留副本：`copy.deepcopy(model.state_dict())`。",
    ),
    why=T(
        en="`state_dict()` makes a new dictionary of tensors, but its tensors are made by `detach()`: new objects on "
        "the *same memory*. That makes saving to a file cheap. Optimizers update parameters in place, in this very "
        "memory. `dict(...)` and `.copy()` copy the dictionary and not the tensors in it; `copy.deepcopy`, or "
        "`.clone()` of each, copies the numbers. `torch.save` writes them to a file, which is a copy too.",
        zh="`state_dict()` 会新建一个字典，但其中的张量由 `detach()` 得到：新的对象，*同一块内存*。这样保存到文件很"
        "省。优化器正是在这块内存中就地更新参数。`dict(...)` 和 `.copy()` 复制的是字典，而不是其中的张量；"
        "`copy.deepcopy` 或对每个张量 `.clone()` 才会复制数值。`torch.save` 把它们写进文件，也是一份副本。",
    ),
    advice=T(
        en="keep a copy on {kept}: `copy.deepcopy(…)` of the state.",
        zh="在{kept}留下副本：对状态用 `copy.deepcopy(…)`。",
    ),
    bad="""import copy

import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=2.0)
best, lowest = None, float("inf")
for _ in range(3):
    loss = (model(torch.ones(2)) - 1).square().sum()
    if loss.item() < lowest:
        best, lowest = model.state_dict(), loss.item()  # PL703 kept
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
model.load_state_dict(best)  # used
again = (model(torch.ones(2)) - 1).square().sum()
again.backward()
print(again.item() == lowest)
""",
    good="""import copy

import torch

torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(model.parameters(), lr=2.0)
best, lowest = None, float("inf")
for _ in range(3):
    loss = (model(torch.ones(2)) - 1).square().sum()
    if loss.item() < lowest:
        best, lowest = copy.deepcopy(model.state_dict()), loss.item()
    opt.zero_grad()
    loss.backward()
    opt.step()
model.load_state_dict(best)
again = (model(torch.ones(2)) - 1).square().sum()
again.backward()
print(again.item() == lowest)
""",
    find=find,
    refines=("PL702",),
    refine=refine,
    traps=(
        Trap(
            "best, lowest = model.state_dict(), loss.item()",
            "best, lowest = dict(model.state_dict()), loss.item()",
            T(
                en="A new dictionary of the same tensors: their memory is still that of the model.",
                zh="只是同样张量的新字典：它们的内存仍是模型的内存。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.state_dict",
        "https://docs.pytorch.org/docs/stable/notes/serialization.html",
    ),
)
