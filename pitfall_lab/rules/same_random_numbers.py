"""PL905: every iteration draws the same random numbers, because the generator is seeded in the loop."""

from __future__ import annotations

import ast
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, reads, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, numbers, snippet
from pitfall_lab.rules.signals.seeds import INITS, RANDOM, counted_on, drawn, made_once, seeding
from pitfall_lab.trace import Event, Span, T

ROUNDS = 3
FEWEST, FEWEST_WHOLE = 2, 5
"""How many numbers must be known: two fractions are never equal by chance, a few whole numbers may be."""
LIKE = {"randn_like": "randn", "rand_like": "rand"}
WHOLE = {"randperm", "randint", "randint_like", "multinomial", "bernoulli", "poisson"}
SET = {*INITS, "copy_", "zero_", "fill_", "constant_", "ones_", "zeros_"}
"""Writes into a weight that begin a new training."""


@dataclass(frozen=True, slots=True)
class SameRandomNumbers:
    """A write into a trained weight: ``step`` is its step in the trace, ``memory`` the storage of the weight
    (``"S3"``).

    ``sets`` is True where the call gave the weight new numbers, as an initialisation does, False where it updated the
    old ones.
    """

    step: int
    memory: str
    sets: bool


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source that seeds a generator again and again, so that a line drew the
    same random numbers ``ROUNDS`` times or more while weights were trained with them.

    Only draws of which enough numbers are known (``FEWEST``, or ``FEWEST_WHOLE`` integers), not all equal.
    """
    writes = _writes(story)
    draws: dict[tuple[object, object], list[Event]] = defaultdict(list)
    for event in story.calls(*RANDOM) if writes else ():
        if event.error is None and event.results and event.parent is None:
            held = drawn(story, event)
            if (
                held is not None
                and len(held) >= (FEWEST_WHOLE if event.name in WHOLE else FEWEST)
                and len(set(held)) > 1
            ):
                draws[story.span(event.step), held].append(event)
    reported = set()
    for same in draws.values():
        found = seeding(story, same[0], same[1]) if len(same) >= ROUNDS and _is_repeated(story, same, writes) else None
        if found is not None and found not in reported:
            reported.add(found)
            yield _finding(story, same, found)


def _writes(story: Story) -> list[SameRandomNumbers]:
    """The writes into leaves that require grad, by optimizers and by hand, in order."""
    memories = {record.get("storage") for record in story.leaves.values()}
    return [
        SameRandomNumbers(event.step, memory, event.name in SET)
        for event in story.events if event.kind == "call"
        for memory in event.writes if memory in memories
    ]  # fmt: skip


def _is_repeated(story: Story, events: list[Event], writes: list[SameRandomNumbers]) -> bool:
    """Whether weights are updated between all these equal draws, and the numbers train them.

    Weights that are set, or created, in between begin another run, which draws the same numbers on purpose: a weight
    counts for a draw if it is updated, and not set, before the next one.
    """
    steps = [event.step for event in events]
    moved, begun = [set[str]() for _ in events], [set[str]() for _ in events]
    for write in writes:
        place = bisect_right(steps, write.step) - 1
        if place >= 0:
            (begun if write.sets else moved)[place].add(write.memory)
    rounds = Counter(memory for those, anew in zip(moved, begun, strict=True) for memory in those - anew)
    passes = {(each.span.source, each.span.line) for each in story.trace.beside.passes if each.span is not None}
    return max(rounds.values(), default=0) >= ROUNDS and any(
        _place(event) in passes or _trains(story, event) for event in events[1:]
    )


def _place(event: Event) -> tuple[int, int] | None:
    return (event.span.source, event.span.line) if event.span is not None else None


def _trains(story: Story, event: Event) -> bool:
    """Whether a backward went through something that was computed from the drawn numbers within the next 60 steps."""
    reached = set(event.results)
    for later in story.events[event.step + 1 : event.step + 60]:
        if later.kind == "call" and any(o.label in reached for o in later.operands):
            graphs = ((story.tensor(each, later.step) or {}).get("grad_fn") for each in later.results)
            if any((story.record("nodes", graph) or {}).get("ran") is not None for graph in graphs):
                return True
            reached.update(later.results)
    return False


def _finding(story: Story, events: list[Event], seeding: ast.Call) -> Finding:
    program, first = story.program, events[0]
    place, span = program.place(seeding), story.span(first.step)
    here, there = at_line(story, place), at_line(story, span)
    held = (story.record("storages", (story.tensor(first.results[0]) or {}).get("storage"), first.step) or {}).get(
        "cells"
    )
    shown = numbers(held)
    return RULE.finding(
        place,
        first.step,
        T(
            en=f"{capital(here.en)} seeds the generator again and again, so {there.en} draws the same numbers "
            f"each time: {shown}.",
            zh=f"{here.zh}一次又一次地设置随机种子，所以{there.zh}每次都抽到同样的数：{shown}。",
        ),
        T(
            en=f"`{snippet(story, place)}` puts the generator back to one state. What `{snippet(story, span)}` draws "
            "after it is then the same each time: the training repeats its noise, its masks or the order of its "
            "examples. Seed once, at the beginning. What has to repeat, as in an evaluation, draws from a "
            "`torch.Generator` of its own.",
            zh=f"`{snippet(story, place)}` 把随机数发生器放回同一个状态。之后 `{snippet(story, span)}` 抽到的每次都一"
            "样，训练会重复同样的噪声、掩码或样本顺序。请只在开头设置一次种子；确实需要重复的部分（例如评估）用自己的 "
            "`torch.Generator`。",
        ),
        related=[
            Related("made", place, None, T(en="the generator is set back here", zh="随机数发生器在这里被放回原状")),
            *[
                story.related("used", e.step, T(en="the same numbers again and again", zh="一次又一次地是同样的数"))
                for e in events[:1]
            ],
        ],
        fixes=_fixes(story, seeding, first),
        facts=[Fact("rounds", len(events), story.by(first.step)), Fact("numbers", held, story.by(first.step))],
    )


def _fixes(story: Story, seeding: ast.Call, draw: Event) -> tuple[Fix, ...]:
    """Fixes that remove the seed. Where a function draws numbers of its own after seeding, as an evaluation does, fixes
    come first that keep these draws equal and the training's generator unchanged.

    If the seeding is no statement of its own, a fix that raises the seed in each round, or else the fixes of
    ``made_once``.
    """
    program = story.program
    statement, torch = program.statement(seeding), torch_name(program)
    if not isinstance(statement, ast.Expr):
        return counted_on(story, seeding, draw) or made_once(story, seeding)
    fixes = [
        Fix(
            T(en=f"Leave `{program.segment(seeding)}` out here", zh=f"在这里去掉 `{program.segment(seeding)}`"),
            program.delete(statement),
            meaning="later",
        )
    ]
    function = program.function(statement)
    inside = function is None or any(program.function(each) is function for each in call_chain(story, draw))
    if torch is not None and function is not None and not inside:
        own = [
            event
            for event in story.calls(*RANDOM)
            if event.error is None and function.name in {name.rsplit(".", 1)[-1] for name in event.scope}
        ]
        fixes = [*_own_generator(story, seeding, own, torch), *_forked(program, statement, torch, own), *fixes]
    return unique(program.text, fixes)


def _own_generator(story: Story, seeding: ast.Call, own: list[Event], torch: str) -> Iterator[Fix]:
    """Yield the fix that creates a generator and passes it to all draws; nothing if a draw is outside of the function
    that seeds.
    """
    program, changes = story.program, dict[Span | None, tuple[ast.AST, str]]()
    function = program.function(seeding)
    name = next(n for n in ("generator", "own_generator") if n not in reads(program, function or seeding))
    if seeding.keywords or len(seeding.args) != 1 or call_name(seeding) != "manual_seed" or not own:
        return
    for event in own:
        place = story.span(event.step)
        node = program.at(place)
        text = _with_generator(story, event, node, torch, name) if isinstance(node, ast.Call) else None
        if node is None or text is None or program.function(node) is not function:
            return
        changes[place] = node, text
    seed = f"{name} = {torch}.Generator().manual_seed({program.segment(seeding.args[0])})"
    title = T(en="Give it a generator of its own", zh="给它一个自己的发生器")
    yield Fix(title, program.replace((seeding, seed), *changes.values()), meaning="later")


def _with_generator(story: Story, event: Event, node: ast.Call, torch: str, name: str) -> str | None:
    """The source of a call that draws, with a generator as argument; None if it already has one, or accepts none."""
    program, text = story.program, story.program.segment(node).rstrip()
    if any(k.arg in ("generator", None) for k in node.keywords) or not text.endswith(")"):
        return None
    if event.name in LIKE:
        like = story.tensor(event.operands[0].label, event.step) or {}
        plain = (like.get("dtype"), like.get("device")) == ("float32", "cpu") and len(node.args) == 1
        known = plain and not node.keywords and not isinstance(node.args[0], ast.Starred)
        return (
            f"{torch}.{LIKE[event.name]}({operand(program, node.args[0])}.shape, generator={name})" if known else None
        )
    if event.name == "randint_like" or call_name(node) != event.name or not (node.args or node.keywords):
        return None
    return f"{text[:-1].rstrip().removesuffix(',')}, generator={name})"


def _forked(program: Program, statement: ast.stmt, torch: str, own: list[Event]) -> Iterator[Fix]:
    """Yield the fix that puts the seed and the rest of its block into ``with torch.random.fork_rng():``, so that the
    generator gets its state back.
    """
    block = program.block(statement)
    rest = block[block.index(statement) :]
    lines = program.lines[statement.lineno - 1 : rest[-1].end_lineno]
    has_text = any(isinstance(n, ast.Constant) and isinstance(n.value, str) and "\n" in n.value
                   for each in rest for n in ast.walk(each))  # fmt: skip
    if not own or has_text or not all(program.stands_alone(each) for each in rest):
        return
    indent = program.indent(statement)
    inner = "".join(f"    {line}" if line.strip() else line for line in lines)
    text = f"{indent}with {torch}.random.fork_rng():\n{inner if inner.endswith(chr(10)) else inner + chr(10)}"
    title = T(en="Give the generator its state back afterwards", zh="之后恢复随机数发生器的状态")
    yield Fix(title, (Edit(statement.lineno, rest[-1].end_lineno or statement.lineno, text),), meaning="later")


RULE = Rule(
    code="PL905",
    name="same-random-numbers",
    severity="warning",
    title=T(en="The same random numbers were drawn in every round", zh="每一轮抽到的都是同样的随机数"),
    what=T(
        en="A program sets the seed of the random numbers inside its training loop, or in a function that the "
        "loop calls. Every round then draws the same noise, the same batch or the same mask. Set the seed "
        "once, at the beginning.",
        zh="程序在训练循环里，或者在循环调用的函数里设置随机种子。于是每一轮抽到的都是同样的噪声、同一批数据或同一个掩"
        "码。请只在开头设置一次种子。",
    ),
    why=T(
        en="`torch.manual_seed` sets the state of the one generator that all functions draw from. From one state "
        "follows one sequence of numbers: that makes a whole run repeatable. Set before each draw, it makes every "
        "draw the first one. Where single parts need numbers of their own that repeat, give them a "
        "`torch.Generator`, made once.",
        zh="`torch.manual_seed` 设置所有函数共用的那个发生器的状态。一个状态对应一个数列：这使整个运行可以重"
        "复。在每次抽取之前都设置，每次抽到的就都是第一个。如果某一部分需要自己可重复的数，请给它一个只创建一"
        "次的 `torch.Generator`。",
    ),
    bad="""import torch

torch.manual_seed(1)


def noise():
    torch.manual_seed(0)  # PL905 made
    return torch.randn(3)  # used


w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    loss = (w * noise()).sum().square()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    good="""import torch

torch.manual_seed(1)


def noise():
    return torch.randn(3)


w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
opt = torch.optim.SGD([w], lr=0.1)
for _ in range(3):
    loss = (w * noise()).sum().square()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "torch.manual_seed(0)",
            "torch.random.manual_seed(2)",
            T(
                en="With another seed the numbers are others, but they are still the same in every round: the seed is "
                "still set before each draw.",
                zh="换一个种子，数会变，但每一轮仍然一样：每次抽取之前仍在设置种子。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.manual_seed.html",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
)
