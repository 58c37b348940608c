"""PL961: the tokens that are kept by nucleus sampling have less than its share of the probability: the token that
reaches the share is removed too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import argument, decimal
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

ABOVE, BELOW = spellings("gt", "ge"), spellings("le", "lt")
"""Comparisons that are True for the removed tokens, and those that are True for the kept tokens."""
SHARES = {"softmax", "exp"}
"""Calls that compute probabilities from scores."""
KEPT_PLACE = spellings("div", "mul") | {"__getitem__", "clone", "double", "exp", "float", "softmax", "to"}
"""Calls between the sort and the running sum that do not change the order of the tokens."""
FILLING = spellings("masked_fill", in_place=True) | {"__setitem__"}
"""Calls whose first operand is filled where a mask, given after it, is True."""
MASKING = FILLING | spellings("mul", in_place=True) | {"where"}
"""Calls that leave tokens out by a mask."""
INVERTING = spellings("bitwise_not") | {"logical_not"}
"""Calls that negate a mask."""
MOVED = spellings("scatter", in_place=True) | {"gather"}
"""Calls that put a mask back into the original order of the tokens."""
FURTHER = 10


@dataclass(frozen=True, slots=True)
class CrossingRemoved:
    """``compare`` is the call (``Event``) that compares ``total``, the label of running sums of sorted probabilities,
    with the share ``limit``.

    ``shares`` is the label of the tensor that was summed, and ``used`` the call that removes tokens by the result of
    ``compare``. ``kept`` is the running sum of the first row before it crosses the limit (0 if its first token crosses
    it); None if it does not cross it, or the numbers there are not known.
    """

    compare: Event
    used: Event
    total: str
    shares: str
    limit: float
    kept: float | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that removes every token, in the order of falling probability, whose running sum
    is above a share, so that the token which reaches the share is removed as well.
    """
    reported = set()
    for compare in story.calls(*ABOVE, *BELOW):
        place = story.span(compare.step)
        found = _crossing(story, compare) if place not in reported and compare.error is None else None
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _crossing(story: Story, compare: Event) -> CrossingRemoved | None:
    if len(compare.operands) < 2 or not compare.results:
        return None
    total, limit = compare.operands[0].label, decimal(compare.operands[1].text)
    summed = made_by(story, total, compare.step)
    if total is None or summed is None or summed.name != "cumsum" or limit is None or not 0 < limit < 1:
        return None
    shares = summed.operands[0].label
    if shares is None or not _is_falling(story, shares, summed.step):
        return None
    used = _used(story, compare.results[0], compare.step)
    return None if used is None else CrossingRemoved(compare, used, total, shares, limit, _kept(story, compare, limit))


def _is_falling(story: Story, label: str | None, step: int) -> bool:
    """Whether a tensor contains probabilities sorted from the largest to the smallest."""
    is_share = False
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands:
            return False
        is_share |= made.name in SHARES
        if made.name in ("sort", "topk"):
            falls = made.name == "topk" or "True" in (argument(made, "descending"), argument(made, "descending", 2))
            falls |= any(o.label is None and o.text == "True" for o in made.operands[1:2])
            return falls and (is_share or _comes_from_shares(story, made.operands[0].label, made.step))
        if made.name not in KEPT_PLACE:
            return False
        label, step = made.operands[0].label, made.step
    return False


def _comes_from_shares(story: Story, label: str | None, step: int) -> bool:
    for _ in range(FURTHER):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.name in SHARES:
            return made is not None and made.name in SHARES
        label, step = made.operands[0].label, made.step
    return False


def _used(story: Story, mask: str, step: int, depth: int = 0) -> Event | None:
    """Return the first call that removes tokens by a mask, by its negation, or by the mask in another order; None if
    the mask is written before, or is used in no such way.
    """
    storage = str((story.tensor(mask, step) or {}).get("storage"))
    for use in story.uses(mask):
        if use.step <= step or use.error is not None:
            continue
        if story.writes(storage, step, use.step):
            return None
        at = [place for place, each in enumerate(use.operands) if each.label == mask]
        is_mask = use.name in MASKING and (at[0] > 0 or use.name not in FILLING)
        if is_mask or (use.name == "__getitem__" and at[0] > 0):
            return use
        further = use.name in INVERTING or (use.name in MOVED and at[-1] == len(use.operands) - 1 > 0)
        if further and use.results and depth < 2:
            return _used(story, use.results[0], use.step, depth + 1)
    return None


def _kept(story: Story, compare: Event, limit: float) -> float | None:
    """Return the running sum of the first row before it crosses the limit; None if it does not cross it, or the numbers
    there are not known.
    """
    known = Elements(story, compare.operands[0].label, compare.step)
    row = [known.at((*(0 for _ in known.shape[1:]), place)) for place in range(known.shape[-1] if known.shape else 0)]
    pairs = pairwise([0.0, *row])
    return next((one for one, other in pairs if one is not None and other is not None and one <= limit < other), None)


def _finding(story: Story, found: CrossingRemoved) -> Finding:
    step = found.compare.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.used.step))
    total, limit = expression(story, found.total, step), number(found.limit)
    kept = T(en="", zh="")
    if found.kept is not None:
        none = T(en=" In the first row that is none at all.", zh="在第一行里，一个也没有留下。")
        some = T(
            en=f" In the first row, what is kept has {number(found.kept)} of the probability.",
            zh=f"在第一行里，留下的只占概率的 {number(found.kept)}。",
        )
        kept = some if found.kept else none
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} marks all tokens whose running sum {total.en} is above {limit}, among them the one "
            f"that reaches {limit}, and {there.en} leaves it out: what is kept has less than {limit}.{kept.en}",
            zh=f"{here.zh}标出累积和 {total.zh} 超过 {limit} 的所有词元，其中也包括刚好达到 {limit} 的那一个，"
            f"{there.zh}把它也去掉了：留下的不足 {limit}。{kept.zh}",
        ),
        T(
            en=f"The nucleus is the smallest set of the likeliest tokens that has at least {limit} of the probability, "
            "so the token with which the sum crosses the limit belongs to it. If the first token alone is above the "
            "limit, nothing is left, and a softmax of what was left out gives NaN. Compare the sum without the token's "
            "own share.",
            zh=f"核（nucleus）是概率合计至少为 {limit} 的最小一组最可能的词元，所以使累积和越过界限的那个词元属于它。"
            "如果第一个词元就超过界限，就什么也不剩，对其做 softmax 会得到 NaN。请用不含该词元自身份额的累积和来比较。",
        ),
        related=[story.related("used", found.used.step, T(en="they are left out here", zh="在这里去掉它们"))],
        fixes=_fixes(story, found),
        facts=[Fact("limit", found.limit, story.by(step)), Fact("kept", found.kept, story.by(step))],
    )


def _fixes(story: Story, found: CrossingRemoved) -> tuple[Fix, ...]:
    """A fix that subtracts each token's own probability from the running sum; empty unless the probabilities are a
    variable or attribute of the same function.
    """
    program = story.program
    node = written_as(story, found.compare, found.total)
    summed = made_by(story, found.total, found.compare.step)
    shares = written_as(story, summed, found.shares) if summed is not None else None
    if node is None or shares is None or not isinstance(shares, ast.Name | ast.Attribute):
        return ()
    if program.function(shares) is not program.function(node):
        return ()
    new = f"{operand(program, node)} - {program.segment(shares)}"
    title = T(en=f"Without the token's own share: `{new}`", zh=f"不含词元自身的份额：`{new}`")
    parent = program.parents.get(node)
    text = new if isinstance(parent, ast.Compare) else f"({new})"
    return unique(program.text, [Fix(title, program.replace((node, text)), meaning="later")])


RULE = Rule(
    code="PL961",
    name="crossing-token-removed",
    severity="warning",
    title=T(en="Nucleus sampling leaves out the token that reaches p", zh="核采样把刚好达到 p 的词元也去掉了"),
    what=T(
        en="A program samples from the likeliest tokens that together have a share p of the probability. It leaves out "
        "every token whose running sum is above p, and with them the one that brings the sum to p: less than p is "
        "kept, or nothing. Compare `cumulative - probs` with p.",
        zh="程序从合计占概率 p 的最可能的词元中采样。它去掉累积和超过 p 的所有词元，连使累积和达到 p 的那一个也去掉了："
        "留下的不足 p，甚至一个也没有。请用 `cumulative - probs` 与 p 比较。",
    ),
    why=T(
        en="A running sum contains the element at which it stands. `cumulative > p` is true for the first time at the "
        "token that the nucleus still needs. Implementations move the mask by one place to the right for that reason "
        "(`remove[..., 1:] = remove[..., :-1].clone(); remove[..., 0] = False`), or subtract the element.",
        zh="累积和包含它所在的那个元素。`cumulative > p` 第一次为真，正是在核还需要的那个词元上。所以各种实现都把掩码"
        "向右移一位（`remove[..., 1:] = remove[..., :-1].clone(); remove[..., 0] = False`），或者减去该元素。",
    ),
    bad="""import torch

torch.manual_seed(0)
logits = torch.tensor([[2.0, 1.0, 0.5, -1.0]])
values, order = logits.sort(descending=True)
probs = values.softmax(-1)
cumulative = probs.cumsum(-1)
remove = cumulative > 0.8  # PL961
values = values.masked_fill(remove, float("-inf"))  # used
print(values.softmax(-1))
""",
    good="""import torch

torch.manual_seed(0)
logits = torch.tensor([[2.0, 1.0, 0.5, -1.0]])
values, order = logits.sort(descending=True)
probs = values.softmax(-1)
cumulative = probs.cumsum(-1)
remove = cumulative - probs > 0.8
values = values.masked_fill(remove, float("-inf"))
print(values.softmax(-1))
""",
    find=find,
    traps=(
        Trap(
            "cumulative > 0.8",
            "cumulative >= 0.8",
            T(
                en="The two differ only where a sum is exactly 0.8.",
                zh="两者只在累积和恰好等于 0.8 时不同。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.cumsum.html",),
)
