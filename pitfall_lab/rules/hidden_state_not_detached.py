"""PL502: a value that each iteration of a loop passes to the next one keeps the graph of the earlier iterations."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from typing import Any

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Loop, Reuse, reuses
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import assigned, flat_targets, reads
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, T

ENTRY = re.compile(r"^([^\[\]]+)\[\d+\]$")


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loop in which a backward went through the graph of an earlier iteration that had been
    freed, because a tensor is passed on from one iteration to the next with its graph.
    """
    for reuse in reuses(story):
        loop = reuse.loop()
        if loop is not None and reuse.built_in(loop):
            yield _finding(reuse, loop)


def _finding(reuse: Reuse, loop: Loop) -> Finding:
    story, step = reuse.story, reuse.backward.step
    labels = reuse.carried()
    here = at_line(story, story.span(step))
    used = next((e.step for e in story.uses(labels[0]) if e.step > reuse.freed.step), None) if labels else None
    holder = _holder(reuse, loop, labels[0], used) if used is not None else None
    name = called(story, labels[0], None, step) if labels else T(en="a result of that round", zh="那一轮的一个结果")
    if holder is not None:
        name = T(en=f"`{holder}`", zh=f"`{holder}`")
    kept, again = _kept_as(story, name.en.strip("`")), _used_again(story, loop, used)
    born = (story.tensor(labels[0]) or {}).get("born") if labels else reuse.born
    related = [
        story.related(
            "made",
            born,
            T(en=f"{name.en} is computed here, in one round of the loop …", zh=f"{name.zh} 在某一轮里在这里算出……"),
        ),
        story.related(
            "freed",
            reuse.freed.step,
            T(
                en="the earlier round's backward frees what its graph saved",
                zh="前一轮的反向传播释放了计算图保存的张量",
            ),
        ),
        story.related(
            "backward",
            step,
            T(
                en="the next round's backward, which raised, goes into that graph again",
                zh="下一轮的反向传播又走进那张计算图，因此报错",
            ),
        ),
    ]
    if used is not None:
        text = T(en=f"… and {name.en} is used here by the next one", zh=f"……{name.zh} 又在这里被下一轮使用")
        related.insert(1, story.related("used", used, text))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(name.en)}{kept.en} still has the graph of an earlier round of the loop{again.en}: the "
            f"backward on {here.en} goes through that graph, too, whose saved tensors are already freed.",
            zh=f"{name.zh}{kept.zh}{again.zh}仍带着循环前一轮的计算图：{here.zh}的反向传播也要经过它，而图"
            "中保存的张量已被释放。",
        ),
        T(
            en=f"{capital(name.en)} was computed in an earlier round and belongs to that round's graph. Using it "
            "again makes that graph a part of this round's. But the `backward()` of the earlier round has freed the "
            "tensors that its graph had saved, and a second backward needs them. To go back through one round only, "
            "cut the graph where the next round begins: `detach()` gives the same numbers without the graph.",
            zh=f"{name.zh} 是在前一轮算出来的，属于那一轮的计算图。再次使用它，就把那张图也变成了这一轮的一部分，而前"
            "一轮的 `backward()` 已经释放了图中保存的张量，再次反向传播却需要它们。如果只想往回走一轮，就在下一轮开始"
            "时切断计算图：`detach()` 给出同样的数值，但不带计算图。",
        ),
        related=related,
        fixes=_fixes(reuse, loop, labels, holder),
        facts=[
            Fact("node", reuse.failure.node, story.by(step)),
            Fact("carried", tuple(labels), story.by(step)),
            *([Fact("holder", holder, story.by(step))] if holder is not None else []),
        ],
        predicted=story.predicted(reuse.failure, step),
    )


def _kept_as(story: Story, name: str) -> T:
    """Return words saying that an object keeps the state ``name`` as ``self.name``; empty if no object does."""
    known = {part for _, owners, _ in _kept_attributes(story.program, [name]) for part in owners.split("`, `")}
    same = next((owner for owner in sorted(known) if owner.rpartition(".")[2] == name != owner), None)
    return T("", "") if same is None else T(en=f", kept as `{same}`,", zh=f"（存为 `{same}`）")


def _used_again(story: Story, loop: Loop, used: int | None) -> T:
    """Return words for the line of the loop that uses the tensor of the earlier iteration again; empty if it is not
    known.
    """
    statement = _in_loop(story, loop, story.line_event(used)) if used is not None else None
    if statement is None:
        return T("", "")
    where = at_line(story, story.program.place(statement))
    return T(en=f" when {where.en} uses it again", zh=f"在{where.zh}再次使用时")


def _holder(reuse: Reuse, loop: Loop, label: str, used: int) -> str | None:
    """Return the variable that holds the tensor passed on, if the loop does not assign it to the tensor's own name;
    else None.

    It is ``state`` in ``out, state = lstm(x, state)``: assigned by the loop's statement that computed the tensor, and
    read by the statement that uses it in the next iteration; or by such statements of a method that the loop calls.
    """
    program, story = reuse.story.program, reuse.story
    name = story.name(label, reuse.freed.step)
    inside = [
        program.function(one) is program.function(loop) and name in assigned(program, one) for one in statements(loop)
    ]
    if name is not None and ("." in name or any(inside)):
        return None  # else it is the name that a function gave it, inside
    born = (story.tensor(label) or {}).get("born")
    places: tuple[Callable[[Any], Any], ...] = (
        lambda event: _in_loop(story, loop, event), lambda event: next(call_chain(story, event), None)
    )  # fmt: skip
    for place in places:
        made, reading = (place(story.line_event(step)) for step in (born, used))
        both = assigned(program, made) & reads(program, reading) if made is not None and reading is not None else set()
        if len(both) == 1:
            return both.pop()
    return None


def statements(loop: Loop) -> list[ast.stmt]:
    """Return the loop itself and all statements inside it, those of inner blocks and functions included."""
    return [one for one in ast.walk(loop) if isinstance(one, ast.stmt)]


def _in_loop(story: Story, loop: Loop, event: Event | None) -> ast.stmt | None:
    """Return the innermost statement in the loop's body that was being executed when the event happened, perhaps inside
    a function that it calls; None if there is none.
    """
    return next((one for one in call_chain(story, event) if loop in story.program.ancestors(one)), None)


def _fixes(reuse: Reuse, loop: Loop, labels: list[str], holder: str | None) -> tuple[Fix, ...]:
    """Fixes that detach the state at the beginning of each iteration, after the backward, where it is stored in an
    attribute, or where it is used.

    Empty if the state has no name, or if the program shows none of these lines.
    """
    program, story = reuse.story.program, reuse.story
    names = list(dict.fromkeys(n for label in labels if (n := story.name(label, reuse.freed.step))))
    given = set().union(
        *(assigned(program, statement) for statement in ast.walk(loop) if isinstance(statement, ast.stmt))
    )
    cuts: list[str] = []
    plain = [name for name in names if name in given]
    if plain:
        cuts.append(f"{', '.join(plain)} = {', '.join(f'{name}.detach()' for name in plain)}")
    owners = {match[1] for name in names if (match := ENTRY.match(name)) and match[1] in given}
    cuts += [f"{owner} = type({owner})(part.detach() for part in {owner})" for owner in sorted(owners)]
    if holder is not None:
        names = [*names, holder]
    if holder is not None and holder in given:
        owners = {*owners, holder}
        whole, parts = f"{holder} = {holder}.detach()", f"{holder} = tuple(part.detach() for part in {holder})"
        cuts = [whole] if len(labels) == 1 else [*cuts, parts]
    statement = reuse.statement
    kept = list(_kept_attributes(program, names))
    used = list(_cut_where_used(reuse, labels))
    if statement is None or not names or not (cuts or kept or used):
        return ()
    shown = ", ".join(f"`{name}`" for name in plain) or ", ".join(f"`{owner}`" for owner in sorted(owners))
    title = T(en=f"Cut {shown} off from the earlier rounds", zh=f"把 {shown} 与之前各轮切断")
    candidates: list[Fix | None] = [*used]
    if len(labels) > 1:  # a pair is kept: a tensor's own `detach` is tried last
        kept.sort(key=lambda one: "tuple(" not in one[2])
    for keeper, owner, cut in kept:
        text = T(en=f"Keep `{owner}` without its history", zh=f"保留 `{owner}`，但不带历史")
        candidates.append(Fix(text, program.insert_after(keeper, cut), meaning="recompute"))
    if cuts and loop.body[0].lineno != loop.lineno:
        candidates.append(Fix(title, program.insert_before(loop.body[0], *cuts), meaning="recompute"))
    if cuts and loop in program.ancestors(statement) and program.function(statement) is program.function(loop):
        candidates.append(Fix(title, program.insert_after(statement, *cuts), meaning="recompute"))
    return unique(program.text, candidates)


def _cut_where_used(reuse: Reuse, labels: list[str]) -> Iterator[Fix]:
    """Yield fixes that detach a state kept in an attribute where the next iteration uses it: ``self.cell(x,
    self.h.detach())``; nothing for states that are not in attributes.
    """
    program, story = reuse.story.program, reuse.story
    for label in labels:
        used = next((e for e in story.uses(label) if e.step > reuse.freed.step), None)
        node = program.at(story.span(used.step)) if used is not None else None
        name = story.name(label, reuse.freed.step)
        found = (
            [n for n in ast.walk(node) if isinstance(n, ast.Attribute) and program.segment(n) == name]
            if node is not None
            else []
        )
        if found and isinstance(found[0].ctx, ast.Load):
            text = f"{name}.detach()"
            title = T(en=f"Cut it off where it is used: `{text}`", zh=f"在使用处切断：`{text}`")
            yield Fix(title, program.replace((found[0], text)), meaning="recompute")


def _kept_attributes(program: Program, names: list[str]) -> Iterator[tuple[ast.stmt, str, str]]:
    """Yield the statements that store the state in an attribute, each with the attribute and with a statement that
    detaches it.

    For example ``out, self.h = rnn(x, self.h)`` or ``self.state = (h, c)``. Statements that update the state come
    before those that initialize it.
    """
    statements = [n for n in program.nodes if isinstance(n, ast.Assign)]
    for statement in sorted(statements, key=lambda n: not assigned(program, n) & reads(program, n)):
        for target in flat_targets(statement.targets[0]):
            owner = program.segment(target)
            reported = owner in names or bool(reads(program, statement.value) & set(names))
            if isinstance(target, ast.Attribute) and reported and program.stands_alone(statement):
                yield statement, owner, f"{owner} = {owner}.detach()"
                yield statement, owner, f"{owner} = tuple(part.detach() for part in {owner})"
    for statement in statements:  # the tensor is known by another name where it was made
        both = sorted(name for name in assigned(program, statement) & reads(program, statement) if "." in name)
        if both and program.stands_alone(statement):
            yield statement, "`, `".join(both), f"{', '.join(both)} = {', '.join(f'{name}.detach()' for name in both)}"


RULE = Rule(
    code="PL502",
    name="hidden-state-not-detached",
    severity="error",
    title=T(
        en="A value carried through a loop drags earlier rounds into backward",
        zh="循环中传递的值把之前各轮拖进了反向传播",
    ),
    what=T(
        en="A loop passes a result on to its next round, and with it the whole computation that led there. The next "
        "round's gradients then want to go back through the rounds before it, whose records are gone. Cut the value "
        "off with `detach()` where a round begins.",
        zh="循环把一个结果传给下一轮，也把得到它的整个计算一起传了过去。于是下一轮求梯度时要沿着之前各轮往回走，而它们"
        "的记录已经没有了。请在一轮开始时用 `detach()` 切断它。",
    ),
    why=T(
        en="A tensor remembers the operations that made it (its *graph*), not only its numbers. The hidden state of a "
        "recurrent network, a running average of losses, or a target that is updated with results of the model carry "
        "this graph from one round into the next; it grows with every round. Going back through a fixed number of "
        "steps only is called truncated backpropagation through time: the numbers of the state are carried on, its "
        "history is not. `retain_graph=True` lets the graph grow and grow: each round goes back through all rounds "
        "before it, slower and slower, and the weights that were updated in between make it fail anyway.",
        zh="张量记得的不只是数值，还有得到它的运算（它的*计算图*）。循环网络的隐藏状态、损失的滑动平均、用模型结果更新"
        "的目标，都会把这张图从一轮带到下一轮；每一轮它都会变大。只往回走固定的步数，叫作截断的时间反向传播：状态的数"
        "值继续传下去，历史则不传。`retain_graph=True` 让图无限增长：每一轮都要往回走过之前的所有轮，越来越慢，而且期"
        "间更新过的权重仍会让它失败。",
    ),
    advice=T(
        en="cut the value that goes from round to round off with `.detach()` before {used} uses it again.",
        zh="在{used}再次使用之前，用 `.detach()` 切断从一轮传到下一轮的值。",
    ),
    bad="""import torch

torch.manual_seed(0)
cell = torch.nn.RNNCell(2, 3)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
h = torch.zeros(1, 3)
for x in torch.randn(4, 1, 2):
    h = cell(x, h)
    loss = (h ** 2).sum()
    opt.zero_grad()
    loss.backward()  # PL502 backward freed
    opt.step()
print(h.detach())
""",
    good="""import torch

torch.manual_seed(0)
cell = torch.nn.RNNCell(2, 3)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
h = torch.zeros(1, 3)
for x in torch.randn(4, 1, 2):
    h = h.detach()
    h = cell(x, h)
    loss = (h ** 2).sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(h.detach())
""",
    find=find,
    traps=(
        Trap(
            "loss.backward()",
            "loss.backward(retain_graph=True)",
            T(
                en="Now the old rounds are kept, but their weights have been updated since: torch refuses for "
                "that reason instead.",
                zh="之前各轮保留下来了，但它们的权重已经更新过：torch 会因此报另一个错。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#how-autograd-encodes-the-history",
    ),
)
