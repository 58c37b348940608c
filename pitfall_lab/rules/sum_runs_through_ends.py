"""PL992: a discounted sum that runs backwards in time is continued through the end of an episode, although the value of
the next state is left out there.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import apart, at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.forms import SAME_NUMBERS, made_by
from pitfall_lab.rules.signals.linear_parts import SCALING
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import whole
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import spellings

SUMS = spellings("add", in_place=True)
TERMS = SUMS | spellings("sub", in_place=True, exchanged=True)
PRODUCTS = spellings("mul", in_place=True)
PICKS = {"__getitem__", "select"}
PLAIN = SAME_NUMBERS - spellings("clamp", "clamp_max", "clamp_min")
FURTHER, ROUNDS, MOST = 24, 3, 600
BOTH = 2


@dataclass(frozen=True, slots=True)
class SumRunsThroughEnds:
    """One step of a discounted sum that runs backwards in time: ``event`` is the call (``Event``) that added the tensor
    ``new`` and a constant multiple of the tensor ``carried``, the sum of the round before. Both are labels.
    """

    event: Event
    new: str
    carried: str


@dataclass(frozen=True, slots=True)
class Ended:
    """``product`` is the call (``Event``) that multiplied a term of the sum by the tensor ``flag`` (a label), which is
    0 at its index ``end``, where an episode ends.

    ``at`` is the index of the element of the sum that belongs to ``end``. ``index`` is the text of the index of the
    round's row in a table of flags; empty if the flags are no table.
    """

    product: Event
    flag: str
    end: Index
    at: Index
    index: str


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes a discounted sum backwards in time and continues it through the end
    of an episode, although another term of the sum is multiplied by a flag that is 0 there.
    """
    lines: dict[Span | None, list[Event]] = defaultdict(list)
    for event in story.calls(*SUMS):
        labels = {o.label for o in event.operands if o.label is not None}
        if event.error is None and event.results and len(labels) == BOTH and len(lines[event.span]) < MOST:
            lines[event.span].append(event)
    for several in lines.values():
        rounds = _rounds(story, several) if len(several) >= ROUNDS else []
        found = _ended(story, rounds) if len(rounds) >= BOTH else None
        if found is not None:
            yield from _finding(story, *found)


def _rounds(story: Story, events: list[Event]) -> list[SumRunsThroughEnds]:
    """The steps of a line that added something to a multiple of its own result in the round before."""
    found = []
    for one, other in pairwise(events):
        labels = [o.label for o in other.operands if o.label is not None]
        for label, new in (labels, labels[::-1]):
            if _is_carried(story, label, other.step, one):
                found.append(SumRunsThroughEnds(other, new, label))
                break
    return found


def _is_carried(story: Story, label: str, step: int, one: Event) -> bool:
    """Whether a tensor is the result of ``one``, perhaps copied or kept in a table in between, and multiplied by
    nothing but constants.
    """
    for _ in range(FURTHER):
        if label == one.results[0]:
            memory = str((story.tensor(label, step) or {}).get("storage"))
            between = [story.events[at] for at in story.writes(memory, one.step, step)]
            return all(sum(o.label is not None for o in each.operands) == 1 for each in between)
        made = made_by(story, label, step)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or not given or given[0] in (None, label) or made.step < one.step:
            return False
        if made.name in PICKS and _kept_at(story, made, one):
            return True
        if made.name in SCALING and len(given) == BOTH:
            given = [each for each in given if not _is_written_down(story, str(each), made.step)]
        if made.name not in PLAIN | SCALING.keys() or len(given) != 1:
            return False
        label, step = str(given[0]), made.step
    return False


def _is_written_down(story: Story, label: str, step: int) -> bool:
    """Whether a tensor is a single number that the program wrote down, as ``torch.tensor(0.99)``."""
    made = made_by(story, label, step)
    return made is not None and made.name in ("tensor", "as_tensor") and prod(story.shape(label, step) or ()) == 1


def _kept_at(story: Story, pick: Event, one: Event) -> bool:
    """Whether a call reads the index of a table that the result of ``one`` was last assigned to."""
    place = pick.operands[-1].text
    memory = (story.tensor(pick.operands[0].label, pick.step) or {}).get("storage")
    for at in reversed(story.writes(str(memory), one.step, pick.step)):
        event = story.events[at]
        if event.name == "__setitem__" and len(event.operands) > BOTH and event.operands[1].text == place:
            return event.operands[-1].label == one.results[0]
    return False


def _ended(story: Story, rounds: list[SumRunsThroughEnds]) -> tuple[SumRunsThroughEnds, Ended] | None:
    """The first step that adds the later sum although an episode ends there, and the data of that end; None if there is
    none.

    Flags count only if they are zeros and ones over all rounds, and the rounds go backwards in time.
    """
    seen: dict[tuple[Span | None, int], set[float]] = defaultdict(set)
    found: dict[tuple[Span | None, int], list[tuple[SumRunsThroughEnds, Ended]]] = defaultdict(list)
    rows: dict[tuple[Span | None, int], list[int]] = defaultdict(list)
    for each in rounds:
        for product, place, index in _products(story, each.new, each.event.step):
            label = product.operands[place].label
            flags = Elements(story, label, product.step, answers=True)
            key = (story.span(product.step), place)
            known = dict(flags.known())
            seen[key].update(known.values())
            rows[key] += [row for row in [_row(story, label, product.step, index)] if row is not None]
            if label is not None and (ended := _end(story, each, (product, label, index), known)) is not None:
                found[key].append((each, ended))
    for key, ends in found.items():
        if seen[key] == {0, 1} and rows[key][:BOTH] == sorted(rows[key][:BOTH], reverse=True):
            return ends[0]
    return None


def _row(story: Story, label: str | None, step: int, index: str) -> int | None:
    """The index of the row of a table that the flags of a round were taken from; ``index`` itself if it is an integer.
    None if the index is not known.
    """
    for _ in range(FURTHER if whole(index) is None else 0):
        made = made_by(story, label, step) if label is not None else None
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is None or label is None or len(given) != 1 or given[0] == label:
            return None
        if len(made.results) > 1:
            return made.results.index(label)
        if made.name in PICKS:
            return whole(made.operands[-1].text)
        label, step = given[0], made.step
    return whole(index)


def _products(story: Story, label: str, step: int) -> Iterator[tuple[Event, int, str]]:
    """Yield the products of two tensors that are terms of a sum: each with the position of an operand that requires no
    grad, and the index of the row of a table that was picked on the way (empty if none was).

    Nothing if all terms of the sum are such products.
    """
    pending, found, others = [(label, step, "")], list[tuple[Event, int, str]](), 0
    for _ in range(FURTHER):
        if not pending:
            break
        here, at, index = pending.pop()
        made = made_by(story, here, at)
        given = [o.label for o in made.operands if o.label is not None] if made is not None else []
        if made is not None and made.name in TERMS and given:
            pending += [(each, made.step, index) for each in given]
        elif made is not None and made.name in PICKS and len(given) == 1 and not index and here != given[0]:
            number = made.operands[-1].text
            inner = made_by(story, given[0], made.step)
            if whole(number) is not None and inner is not None and inner.name in TERMS | PRODUCTS:
                pending.append((given[0], made.step, number))
            else:
                others += 1
        elif made is not None and made.name in PLAIN | SCALING.keys() and len(given) == 1 and given[0] != here:
            pending.append((given[0], made.step, index))
        elif made is not None and made.name in PRODUCTS and len(given) == BOTH:
            found += [
                (made, place, index)
                for place, o in enumerate(made.operands)
                if o.label is not None and not (story.tensor(o.label, made.step) or {}).get("requires_grad")
            ]
            pending += [(each, made.step, index) for each in given if _is_product(story, each, made.step)]
        else:
            others += 1
    if others:
        yield from found


def _is_product(story: Story, label: str, step: int) -> bool:
    made = made_by(story, label, step)
    return made is not None and made.name in PRODUCTS and sum(o.label is not None for o in made.operands) == BOTH


def _end(
    story: Story, here: SumRunsThroughEnds, given: tuple[Event, str, str], known: dict[Index, float]
) -> Ended | None:
    """The data of an end: an index at which a flag is 0 in a round, and the sum of the rounds before is not 0; None if
    there is none.
    """
    product, label, index = given
    shape = story.shape(here.carried, here.event.step) or ()
    carried = Elements(story, here.carried, here.event.step - (here.carried in here.event.results))
    own = story.shape(label, product.step) or ()
    row = (int(index) % own[0],) if index and own and own[1:] == shape else ()
    for end, value in known.items():
        at = end[1:] if row else end
        if value == 0 and (not row or end[:1] == row) and len(at) == len(shape) and carried.at(at):
            return Ended(product, label, end, at, index if row else "")
    return None


def _finding(story: Story, here: SumRunsThroughEnds, ended: Ended) -> Iterator[Finding]:
    event = here.event
    came = Elements(story, event.results[0], event.step).at(ended.at)
    carried = Elements(story, here.carried, event.step - 1).at(ended.at)
    meant = Elements(story, here.new, event.step - 1).at(ended.at)
    texts = apart(came, meant) if came is not None and meant is not None else None
    if texts is None or carried is None:
        return
    line, there = at_line(story, story.span(event.step)), at_line(story, story.span(ended.product.step))
    flag = expression(story, ended.flag, ended.product.step)
    yield RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(line.en)} adds what comes later to every step, also across the end of an episode: there "
            f"{texts[0]} comes, where {texts[1]} was meant.",
            zh=f"{line.zh}给每一步都加上后面的和，越过回合的结束也照加：那里得到 {texts[0]}，而应为 {texts[1]}。",
        ),
        T(
            en=f"The sum runs from the last step to the first. {capital(there.en)} multiplies by {flag.en}, which is 0 "
            f"where an episode ends, so that the next value is left out there; the sum of what comes later is not "
            f"multiplied by it, and it belongs to the next episode. Multiply it by {flag.en} too.",
            zh=f"这个和从最后一步算到第一步。{there.zh}乘以 {flag.zh}，它在回合结束处为 0，所以那里不算下一个价值；而"
            f"后面的和没有乘以它，那个和属于下一个回合。请把它也乘以 {flag.zh}。",
        ),
        related=[story.related("masked", ended.product.step, T(en="left out here", zh="在这里排除"))],
        fixes=_fixes(story, here, ended),
        facts=[Fact("came", came, story.by(event.step)), Fact("meant", meant, story.by(event.step))],
    )


def _fixes(story: Story, here: SumRunsThroughEnds, ended: Ended) -> tuple[Fix, ...]:
    """At most one fix: it multiplies the later sum by the flags too.

    Empty where the line does not show that sum, or its function does not have the flags.
    """
    program = story.program
    flag = written_as(story, ended.product, ended.flag)
    carried = written_as(story, here.event, here.carried)
    new = written_as(story, here.event, here.new)
    if flag is None or carried is None or isinstance(program.at(story.span(here.event.step)), ast.AugAssign):
        return ()
    if program.function(flag) is not program.function(carried):
        return ()
    text = operand(program, flag)
    if ended.index:
        if not isinstance(new, ast.Subscript):
            return ()
        text += f"[{program.segment(new.slice)}]"
    is_product = isinstance(carried, ast.BinOp) and isinstance(carried.op, ast.Mult)
    product = f"{program.segment(carried) if is_product else operand(program, carried)} * {text}"
    title = T(en=f"End the sum there too: `* {text}`", zh=f"和也在那里结束：`* {text}`")
    return unique(program.text, [Fix(title, program.replace((carried, product)), meaning="later")])


RULE = Rule(
    code="PL992",
    name="sum-runs-through-ends",
    severity="warning",
    title=T(en="A sum over time runs on through the end of an episode", zh="沿时间的求和越过了回合的结束"),
    what=T(
        en="A program goes back through the steps of several games, and adds to each step a part of what comes later. "
        "Where a game ends nothing comes later, but the sum still holds the steps of the next game. Multiply it by a "
        "flag that is 0 there: `gae = delta + gamma * lam * goes_on * gae`.",
        zh="程序倒着走过几局游戏的各步，给每一步加上后面各步的一部分。一局结束之后没有后续，但这个和里还有下一局的各步。请把"
        "它乘以一个在那里为 0 的标志：`gae = delta + gamma * lam * goes_on * gae`。",
    ),
    why=T(
        en="Steps of many games are in one tensor, one game after the other, with a flag for each end. An estimate "
        "of the advantage uses the flag twice: the value of the next state is left out, and so is the sum so far. With "
        "the first alone, the last step of a game is credited with the first steps of the next one, and the steps "
        "before it inherit that. No shape is wrong, so torch cannot notice.",
        zh="许多局游戏的各步存在一个张量里，一局接一局，每个结束处有一个标志。优势的估计要用到这个标志两次：排除下一个状态的"
        "价值，也排除到那时为止的和。只做前一件，一局的最后一步就会算上下一局最初几步的功劳，它之前的各步也跟着继承。没有哪个"
        "形状是错的，所以 torch 无法察觉。",
    ),
    bad="""import torch

torch.manual_seed(0)
reward, value = torch.rand(6), torch.rand(7)
ended = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
total, advantage = torch.zeros(()), torch.zeros(6)
for t in reversed(range(6)):
    goes_on = 1 - ended[t]
    error = reward[t] + 0.9 * value[t + 1] * goes_on - value[t]
    total = error + 0.8 * total  # PL992
    advantage[t] = total
print(advantage)
""",
    good="""import torch

torch.manual_seed(0)
reward, value = torch.rand(6), torch.rand(7)
ended = torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0, 1.0])
total, advantage = torch.zeros(()), torch.zeros(6)
for t in reversed(range(6)):
    goes_on = 1 - ended[t]
    error = reward[t] + 0.9 * value[t + 1] * goes_on - value[t]
    total = error + 0.8 * total * goes_on
    advantage[t] = total
print(advantage)
""",
    find=find,
    traps=(
        Trap(
            "    advantage[t] = total",
            "    advantage[t] = total * goes_on",
            T(
                en="This sets the last step's advantage to 0, and the sum still runs on.",
                zh="这会把最后一步的优势变成 0，而和仍然继续。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.mul.html",),
)
