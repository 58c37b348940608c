"""PL716: weights that were loaded were initialised again before anything had used them."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, Span, T

FILLS = {
    "normal_", "uniform_", "trunc_normal_", "zero_", "fill_", "ones_", "zeros_", "constant_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "eye_", "dirac_", "sparse_", "exponential_",
    "log_normal_",
}  # fmt: skip
"""Writes to a whole parameter that do not depend on its old values."""


@dataclass(frozen=True, slots=True)
class LoadedWeightsOverwritten:
    """``copies`` are the writes (``Event``) by which one line loaded parameters, in all its runs; ``fills`` are the
    writes that initialised the matrices among these parameters again, before anything had used them.
    """

    copies: tuple[Event, ...]
    fills: tuple[Event, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that copied values into parameters, as ``load_state_dict`` does, if all matrices
    among them were filled again on another line before they were read.
    """
    loads: dict[Span, list[Event]] = defaultdict(list)
    for event in story.calls("copy_"):
        if (
            event.error is None
            and event.span is not None
            and event.writes
            and _is_parameter(story, event.results[:1] or ())
        ):
            loads[event.span].append(event)
    for copies in loads.values():
        matrices = [copy for copy in copies if len(story.shape(copy.results[0], copy.step) or ()) > 1]
        fills = [fill for copy in matrices if (fill := _overwritten(story, copy)) is not None]
        if matrices and len(fills) == len(matrices):
            yield _finding(story, LoadedWeightsOverwritten(tuple(copies), tuple(fills)))


def _is_parameter(story: Story, results: tuple[str, ...]) -> bool:
    return bool(results) and (story.tensor(results[0]) or {}).get("kind") == "parameter"


def _overwritten(story: Story, copy: Event) -> Event | None:
    """The call that filled the parameter again, if it was the first to use it after the copy and is on another line;
    else None.
    """
    label = copy.results[0]
    uses = story.uses(label)
    following = uses[bisect_right([use.step for use in uses], copy.step) :]
    first = next((use for use in following if not _reads_nothing(use)), None)
    return (
        first if first is not None and first.name in FILLS and first.error is None and first.span != copy.span else None
    )


def _reads_nothing(use: Event) -> bool:
    """Whether a call reads only attributes of the parameter (dtype, shape, device), not its values."""
    return (
        use.op.endswith(("__get__", "__set__", "_like")) or use.name.startswith("new_") or use.name == "requires_grad_"
    )


def _finding(story: Story, found: LoadedWeightsOverwritten) -> Finding:
    load, fill = found.copies[0], found.fills[0]
    span = story.span(fill.step)
    here, there = at_line(story, span), at_line(story, story.span(load.step))
    what = called(story, fill.operands[0].label, None, fill.step)
    count = len(found.fills)
    return RULE.finding(
        span,
        fill.step,
        T(
            en=f"{capital(here.en)} initialises {what.en} again, which {there.en} had loaded: the loaded weights are "
            "gone before they were used.",
            zh=f"{here.zh}重新初始化了 {what.zh}，而它是{there.zh}刚加载的：加载的权重还没用就没有了。",
        ),
        T(
            en=f"Every weight matrix that was loaded ({count}) was filled with new numbers, and no call has read one "
            "in between. Loading writes into the parameters, and so does an initialisation; the last one counts. "
            "Initialise first, then load.",
            zh=f"加载的每个权重矩阵（共 {count} 个）都被填上了新的数，其间没有任何调用读过它们。加载会写入参数，初始化"
            "也会；以最后一次为准。请先初始化，再加载。",
        ),
        related=[story.related("made", load.step, T(en="loaded here", zh="在这里加载"))],
        fixes=_fixes(story, found),
        facts=[Fact("matrices", count, story.by(fill.step))],
    )


def _fixes(story: Story, found: LoadedWeightsOverwritten) -> tuple[Fix, ...]:
    """At most one fix: it moves the loading after the initialisation, or the initialisation
    before the block that loads.

    Empty unless one of them can be moved as a whole statement within a block.
    """
    program = story.program
    load = program.statement_at(story.span(found.copies[0].step)) if program.tree is not None else None
    if load is None or not program.stands_alone(load):
        return ()
    block = program.block(load)
    last = max(found.fills, key=lambda fill: fill.step)
    after = next((statement for statement in call_chain(story, last) if statement in block), None)
    if after is None:
        return _initialised_before(story, load, last)
    if block.index(after) <= block.index(load):
        return ()
    edits = merge(program.delete(load), program.insert_after(after, program.segment(load)))
    if edits is None:
        return ()
    title = T(en="Load after the initialisation", zh="在初始化之后加载")
    return unique(program.text, [Fix(title, edits, meaning="later")])


def _initialised_before(story: Story, load: ast.stmt, fill: Event) -> tuple[Fix, ...]:
    """At most one fix: it moves the initialisation before the branch or the block that loads.

    Empty unless the statement around the loading is in the same block as the initialisation, above it.
    """
    program = story.program
    around = [node for node in program.ancestors(load) if isinstance(node, ast.stmt)]
    for first in call_chain(story, fill):
        outer = next((node for node in around if node in program.block(first) and node is not first), None)
        if (
            outer is not None
            and program.stands_alone(first)
            and program.block(first).index(outer) < program.block(first).index(first)
        ):
            edits = merge(program.delete(first), program.insert_before(outer, program.segment(first)))
            title = T(en="Initialise before the loading", zh="在加载之前初始化")
            return unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else ()
    return ()


RULE = Rule(
    code="PL716",
    name="loaded-weights-overwritten",
    severity="warning",
    title=T(en="Loaded weights are initialised again before they are used", zh="加载的权重还没使用就被重新初始化"),
    what=T(
        en="A program loads the weights of a trained model and then initialises the model, so it starts from random "
        "numbers after all. Initialise first, and load afterwards.",
        zh="程序加载了训练好的模型的权重，随后又初始化模型，结果还是从随机数开始。请先初始化，再加载。",
    ),
    why=T(
        en="`load_state_dict()` copies numbers into the parameters that the model has; the functions in "
        "`torch.nn.init` write numbers into them as well. Neither takes the other into account. The shapes fit, all "
        "keys match, and the only sign is a loss that starts where an untrained model starts.",
        zh="`load_state_dict()` 把数值拷贝到模型已有的参数中；`torch.nn.init` 里的函数同样往参数里写数。两者互不知情。"
        "形状相符，键也全部匹配，唯一的迹象是损失从未训练模型的水平开始。",
    ),
    advice=T(
        en="initialise first: put {line} before {made}.",
        zh="先初始化：把{line}放到{made}之前。",
    ),
    bad="""import torch

torch.manual_seed(0)
trained = torch.nn.Linear(3, 2)
net = torch.nn.Linear(3, 2)
net.load_state_dict(trained.state_dict())  # made
torch.nn.init.xavier_uniform_(net.weight)  # PL716
x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
trained = torch.nn.Linear(3, 2)
net = torch.nn.Linear(3, 2)
torch.nn.init.xavier_uniform_(net.weight)
net.load_state_dict(trained.state_dict())
x, y = torch.randn(4, 3), torch.tensor([0, 1, 0, 1])
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "net.load_state_dict(trained.state_dict())",
            "net.load_state_dict(trained.state_dict(), strict=True)",
            T(
                en="`strict` compares names. All of them match, and all numbers are overwritten afterwards.",
                zh="`strict` 比较的是名称。它们全部匹配，之后所有的数又被覆盖。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",
        "https://docs.pytorch.org/docs/stable/nn.init.html",
    ),
)
