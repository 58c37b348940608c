"""PL905: the random numbers of every round are the same ones, because the generator is seeded in the loop."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, flat, numbers, snippet
from pitfall_lab.trace import Event, T

RANDOM = ("randn", "rand", "randn_like", "rand_like", "normal", "bernoulli", "multinomial", "randperm", "randint", "randint_like",
          "normal_", "uniform_", "poisson")  # fmt: skip
SEEDS = {"manual_seed", "seed", "seed_everything", "set_seed", "default_rng"}
ROUNDS = 3
FEWEST = 2


def find(story: Story) -> Iterator[Finding]:
    """One finding for each line that drew the same numbers in every round, while an optimizer stepped in between."""
    updates = sorted({update.step for update in story.trace.optimizer_steps})
    draws: dict[object, list[Event]] = defaultdict(list)
    for event in story.calls(*RANDOM) if updates else ():
        if event.error is None and event.results and event.parent is None:
            draws[story.span(event.step)].append(event)
    reported = set()
    for events in draws.values():
        same = _repeated(story, events, updates)
        seeding = _seeding(story, same[0]) if same is not None else None
        if same is not None and seeding is not None and seeding not in reported:
            reported.add(seeding)
            yield _finding(story, same, seeding)


def _repeated(story: Story, events: list[Event], updates: list[int]) -> list[Event] | None:
    """The draws of one line, at least ``ROUNDS``, if all gave the same known numbers, which are not all equal; else None.

    An optimizer must have stepped between at least two pairs, and something that requires grad be computed from a later draw.
    """
    if len(events) < ROUNDS or len(events) < len(updates):
        return None
    drawn = [_numbers(story, event) for event in events]
    if None in drawn or any(d != drawn[0] for d in drawn):
        return None
    enough = len(drawn[0] or ()) >= FEWEST and len(set(drawn[0] or ())) > 1
    between = sum(any(a.step < step < b.step for step in updates) for a, b in pairwise(events))
    learns = any(_trains(story, event) for event in events[1:])
    return events if enough and between >= FEWEST and learns else None


def _numbers(story: Story, event: Event) -> tuple[object, ...] | None:
    record = story.tensor(event.results[0], event.step) or {}
    held = (story.record("storages", record.get("storage"), event.step) or {}).get("cells")
    return tuple(value for _, value in flat(held)) if held is not None else None


def _trains(story: Story, event: Event) -> bool:
    """Whether something that requires grad is computed from the drawn numbers."""
    reached = set(event.results)
    for later in story.events[event.step + 1 : event.step + 60]:
        if later.kind == "call" and any(o.label in reached for o in later.operands):
            if any((story.tensor(r, later.step) or {}).get("requires_grad") for r in later.results):
                return True
            reached.update(later.results)
    return False


def _seeding(story: Story, draw: Event) -> ast.Call | None:
    """The call with a seed that runs before each draw: in the function of the draw, or of those that led to it, else inside a loop.

    None if there is none.
    """
    program = story.program
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in SEEDS and n.args]
    for statement in call_chain(story, draw):
        loops = [a for a in program.ancestors(statement) if isinstance(a, ast.For | ast.While)]
        for call in calls:
            if program.function(call) is not program.function(statement) or call.lineno > statement.lineno:
                continue
            around = [a for a in program.ancestors(call) if isinstance(a, ast.For | ast.While)]
            if around == loops and (loops or program.function(call) is not None):
                return call
    inner = [c for c in calls if any(isinstance(a, ast.For | ast.While) for a in program.ancestors(c))]
    return inner[0] if inner else None


def _finding(story: Story, events: list[Event], seeding: ast.Call) -> Finding:
    program, first = story.program, events[0]
    place, drawn = program.place(seeding), story.span(first.step)
    here, there = at_line(story, place), at_line(story, drawn)
    held = (story.record("storages", (story.tensor(first.results[0]) or {}).get("storage"), first.step) or {}).get("cells")
    shown = numbers(held)
    return RULE.finding(
        place, first.step,
        T(
            en=f"{capital(here.en)} seeds the generator again and again, so {there.en} draws the same numbers in every one of "
            f"{len(events)} rounds: {shown}.",
            zh=f"{here.zh}一次又一次地设置随机种子，所以 {len(events)} 轮里{there.zh}每次抽到的都是同样的数：{shown}。",
        ),
        T(
            en=f"`{snippet(story, place)}` puts the generator back to one state. What `{snippet(story, drawn)}` draws after it is then the "
            "same each time, and the training sees one noise, one batch or one mask only. Seed once, at the beginning.",
            zh=f"`{snippet(story, place)}` 把随机数发生器放回同一个状态。之后 `{snippet(story, drawn)}` 抽到的每次都一样，训练只见到同"
            f"一份噪声、同"
            "一批数据或同一个掩码。请只在开头设置一次种子。",
        ),
        related=[
            Related("made", place, None, T(en="the generator is set back here", zh="随机数发生器在这里被放回原状")),
            *[story.related("used", e.step, T(en="the same numbers in every round", zh="每一轮都是同样的数")) for e in events[:1]],
        ],
        fixes=_fixes(story, seeding),
        facts=[Fact("rounds", len(events), story.by(first.step)), Fact("numbers", held, story.by(first.step))],
    )  # fmt: skip


def _fixes(story: Story, seeding: ast.Call) -> tuple[Fix, ...]:
    program = story.program
    statement = program.statement(seeding)
    if statement is None or not isinstance(statement, ast.Expr):
        return ()
    title = T(en=f"Leave `{program.segment(seeding)}` out here", zh=f"在这里去掉 `{program.segment(seeding)}`")
    return unique(program.text, [Fix(title, program.delete(statement), meaning="later")])


RULE = Rule(
    code="PL905",
    name="same-random-numbers",
    severity="warning",
    title=T(en="The same random numbers were drawn in every round", zh="每一轮抽到的都是同样的随机数"),
    what=T(
        en="A program sets the seed of the random numbers inside its training loop, or in a function that the loop calls. Every round then "
        "draws the same noise, the same batch or the same mask. Set the seed once, at the beginning.",
        zh="程序在训练循环里，或者在循环调用的函数里设置随机种子。于是每一轮抽到的都是同样的噪声、同一批数据或同一个掩码。请只在开头设置一次种子。",
    ),
    why=T(
        en="`torch.manual_seed` sets the state of the one generator that all functions draw from. From one state follows one sequence of "
        "numbers: that makes a whole run repeatable. Set before each draw, it makes every draw the first one. Where single parts "
        "need numbers of their own that repeat, give them a `torch.Generator`, made once.",
        zh="`torch.manual_seed` 设置所有函数共用的那个发生器的状态。一个状态对应一个数列：这使整个运行可以重复。在每次抽取之前都设置，"
        "每次抽到的就"
        "都是第一个。如果某一部分需要自己可重复的数，请给它一个只创建一次的 `torch.Generator`。",
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
                en="Another seed gives another sequence, and the same one each time.",
                zh="换一个种子得到另一个数列，但每次仍然一样。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.manual_seed.html",
        "https://docs.pytorch.org/docs/stable/notes/randomness.html",
    ),
)
