"""PL466: a causal mask is aligned with the first keys although there are more keys than queries, so the newest keys are
never seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.pictured import looks
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import is_name, operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T

ATTENTION = "scaled_dot_product_attention"


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that calls ``scaled_dot_product_attention`` with ``is_causal=True`` and fewer
    queries than keys.
    """
    reported = set()
    for event in story.calls(ATTENTION):
        labels = [o.label for o in event.operands if o.label is not None]
        place = story.span(event.step)
        if place in reported or event.error is not None or len(labels) != 3 or not _is_causal(event):
            continue
        queries, keys = ((story.shape(label, event.step) or (0, 0))[-2] for label in labels[:2])
        if 0 < queries < keys:
            reported.add(place)
            yield _finding(story, event, queries, keys)


def _is_causal(event: Event) -> bool:
    """Whether the call has ``is_causal=True``, by keyword or as the only ``True`` among its positional arguments."""
    return any(o.text == "True" and o.name in ("", "is_causal") for o in event.operands if o.label is None)


def _finding(story: Story, event: Event, queries: int, keys: int) -> Finding:
    span = story.span(event.step)
    here = at_line(story, span)
    seen = T(en="the first key" if queries == 1 else f"the first {queries} keys", zh=f"前 {queries} 个键")
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} has {queries} {'query' if queries == 1 else 'queries'} and {keys} keys, and its "
            f"causal mask lets them see "
            f"{seen.en} only: the newest {keys - queries} {'is' if keys - queries == 1 else 'are'} never seen.",
            zh=f"{here.zh}有 {queries} 个查询和 {keys} 个键，而它的因果掩码只让查询看到{seen.zh}：最新的 "
            f"{keys - queries} 个键从未被看到。",
        ),
        T(
            en="`is_causal=True` lines the mask up at the upper left: query 0 sees key 0, query 1 sees keys 0 and 1. "
            "With a cache of earlier keys the queries are the last ones, and the mask has to be lined up at the lower "
            "right. One new query may see all.",
            zh="`is_causal=True` 的掩码从左上角对齐：查询 0 看到键 0，查询 1 看到键 0 和 "
            "1。有缓存的旧键时，查询是最后几个，掩码应当从右下角"
            "对齐。只有一个新查询时，它可以看到全部。",
        ),
        fixes=_fixes(story, event, queries),
        facts=[
            Fact("queries", queries, story.by(event.step)),
            Fact("keys", keys, story.by(event.step)),
            *looks((queries, keys), lambda row, key: key <= row, lambda row, key: key <= row + keys - queries),
        ],
    )


def _fixes(story: Story, event: Event, queries: int) -> tuple[Fix, ...]:
    """Fixes that give ``is_causal`` only where there are as many queries as keys (for a single query), or that give a
    mask for the last queries.

    Empty if the call does not show ``is_causal=True``, or if its query and key are not plain variables or attributes.
    """
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(event.step))
    said = next((k for k in node.keywords if k.arg == "is_causal"), None) if isinstance(node, ast.Call) else None
    if (
        said is None
        or not isinstance(node, ast.Call)
        or len(node.args) < 2
        or not all(is_name(each) for each in node.args[:2])
    ):
        return ()
    query, key = (f"{operand(program, each)}.size(-2)" for each in node.args[:2])
    fixes = []
    if queries == 1:
        title = T(en="Mask only where there are as many queries as keys", zh="只在查询与键一样多时使用掩码")
        fixes.append(Fix(title, program.replace((said.value, f"{query} == {key}")), meaning="later"))
    if torch is not None:
        place = f"{torch}.ones({query}, {key}, dtype={torch}.bool, device={operand(program, node.args[0])}.device)"
        title = T(en="Give a mask for the last queries", zh="为最后几个查询给出掩码")
        fixes.append(Fix(title, program.replace((said, f"attn_mask={place}.tril({key} - {query})")), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL466",
    name="causal-mask-at-the-front",
    severity="warning",
    title=T(en="The causal mask hides the newest keys", zh="因果掩码遮住了最新的键"),
    what=T(
        en="A program keeps the keys and values of earlier tokens and computes attention for the new ones with "
        "`is_causal=True`. The mask begins with the first key, so the new tokens see the beginning of the text only. "
        "Use the mask where all tokens are computed at once.",
        zh="程序保留先前词元的键和值，用 `is_causal=True` 为新词元计算注意力。掩码从第一个键开始，所以新词元只看到文本"
        "的开头。请只在一次计算全部词元时使用该掩码。",
    ),
    why=T(
        en="`scaled_dot_product_attention` makes `ones(L, S).tril()` of `L` queries and `S` keys. If `L` is smaller "
        "than `S`, row 0 has one entry, at key 0, wherever in the text that query is. Training, with all tokens "
        "at once, is right; generating with a cache is not, and raises nothing. "
        "`torch.nn.attention.bias.causal_lower_right` makes the other mask.",
        zh="`scaled_dot_product_attention` 对 `L` 个查询和 `S` 个键使用 `ones(L, S).tril()`。如果 `L` 小于 `S`，第 0 "
        "行只有键 0 这一项，无论那个查询在文本中的什么位置。训练时一次计算全部词元，是对的；用缓存生成时就错了，而且不"
        "报错。`torch.nn.attention.bias.causal_lower_right` 给出另一种掩码。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
k, v = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
q = torch.randn(1, 2, 1, 4)
print(F.scaled_dot_product_attention(q, k, v, is_causal=True)[0, 0])  # PL466
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
k, v = torch.randn(1, 2, 6, 4), torch.randn(1, 2, 6, 4)
q = torch.randn(1, 2, 1, 4)
print(F.scaled_dot_product_attention(q, k, v, is_causal=q.size(-2) == k.size(-2))[0, 0])
""",
    find=find,
    traps=(
        Trap(
            "torch.randn(1, 2, 1, 4)",
            "torch.randn(1, 2, 3, 4)",
            T(
                en="Three queries see the first three keys, not the last.",
                zh="三个查询看到的是前三个键，而不是最后三个。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",),
)
