"""PL817: entries of a sparse tensor are stored in several parts, and a function is applied to each part by itself."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number
from pitfall_lab.rules.signals.elements import Index
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

SAME = {"float", "double", "to", "clone", "detach", "contiguous", "view", "reshape"}
"""Calls that a tensor is followed through: its numbers stay the same ones."""
CURVED = spellings("abs", "clamp", "clamp_max", "clamp_min", "exp", "expm1", "floor", "log", "log10", "log1p", "log2",
    "pow", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sqrt", "square", "tanh")  # fmt: skip
OF_SEVERAL = {"max", "min", "amax", "amin", "norm", "vector_norm", "median", "quantile", "sort", "topk", "std", "var",
              "mean"}  # fmt: skip
"""Statistics that differ between an entry and its parts."""
FURTHER = 12


@dataclass(frozen=True, slots=True)
class PartsOfAnEntry:
    """``event`` is the call (``Event``) that computes with the stored values of the sparse tensor labelled ``sparse``;
    ``read`` is the call that returned these values.

    The entry at the index ``at`` is stored in ``count`` parts; ``most`` is how many entries have several parts.
    """

    event: Event
    read: Event
    sparse: str
    at: Index
    count: int
    most: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that applies a function whose result depends on how an entry is divided (such as
    ``relu``) to the stored values of a sparse tensor, if an entry is known to be stored in several parts.
    """
    told = set()
    for counted in story.trace.beside.counted:
        read = story.event(counted.step) if counted.kind == "parts" else None
        sparse = read.operands[0].label if read is not None and read.operands else None
        event = _curved(story, read) if read is not None else None
        if read is None or event is None or sparse is None or story.span(event.step) in told:
            continue
        told.add(story.span(event.step))
        *at, count = map(int, counted.numbers)
        yield _finding(story, PartsOfAnEntry(event, read, sparse, tuple(at), count, counted.count))


def _curved(story: Story, read: Event) -> Event | None:
    """The first call on the stored values whose result depends on how an entry is divided into parts; else None."""
    pending, seen = deque(read.results[:1]), 0
    while pending and seen < FURTHER:
        seen += 1
        for use in story.uses(pending.popleft()):
            if use.step <= read.step or use.error is not None:
                continue
            if use.name in CURVED | OF_SEVERAL and (use.name not in OF_SEVERAL or len(use.operands) == 1):
                return use
            if use.name in SAME:
                pending += use.results[:1]
    return None


def _finding(story: Story, found: PartsOfAnEntry) -> Finding:
    event, step = found.event, found.event.step
    here = at_line(story, story.span(step))
    name = expression(story, found.sparse, found.read.step)
    at = ", ".join(map(str, found.at))
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} applies `{event.name}` to the stored parts of {name.en}, not to its entries: entry "
            f"({at}) is stored in {number(found.count)} parts, which are added up only afterwards.",
            zh=f"{here.zh}把 `{event.name}` 用在 {name.zh} 的各个存储部分上，而不是它的元素上：元素 ({at}) 分成 "
            f"{number(found.count)} 个部分存储，之后才相加。",
        ),
        T(
            en=f"A sparse tensor keeps what it was made of: {found.most} of its entries are there more than once. "
            "`_values()` returns these parts as they are, and `to_dense()` or a product adds up what belongs to one "
            "entry. Only sums and multiples may be taken part by part. `coalesce()` adds the parts first.",
            zh=f"稀疏张量原样保存构造它的内容：其中有 {found.most} 个元素不止一次出现。`_values()` 直接返回这些部分，"
            "而 `to_dense()` 或乘法会把属于同一元素的部分相加。只有求和与乘以常数可以逐个部分地做。`coalesce()` 先把"
            "各部分相加。",
        ),
        related=[
            story.related("made", _made(story, found), T(en="the sparse tensor is made here", zh="稀疏张量在这里创建"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("parts", found.count, story.by(step)), Fact("entries", found.most, story.by(step))],
    )


def _made(story: Story, found: PartsOfAnEntry) -> int:
    made = made_by(story, found.sparse, found.read.step)
    return made.step if made is not None else found.read.step


def _fixes(story: Story, found: PartsOfAnEntry) -> tuple[Fix, ...]:
    """At most one fix: the parts of each entry are added first, for the values and for their indices."""
    program = story.program
    changes = {}
    for read in story.calls("_values", "_indices"):
        node = program.at(story.span(read.step))
        if read.operands[:1] and read.operands[0].label == found.sparse and isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Attribute) or node.func.attr != read.name:
                return ()
            text = f"{operand(program, node.func.value)}.coalesce().{read.name.removeprefix('_')}()"
            changes[program.place(node)] = node, text
    title = T(en="Add the parts of each entry first: `coalesce()`", zh="先把每个元素的各部分相加：`coalesce()`")
    return unique(program.text, [Fix(title, program.replace(*changes.values()), meaning="later")]) if changes else ()


RULE = Rule(
    code="PL817",
    name="parts-of-an-entry-transformed",
    severity="warning",
    title=T(
        en="A function is applied to the stored parts of a sparse tensor, not to its entries",
        zh="函数用在稀疏张量的存储部分上，而不是元素上",
    ),
    what=T(
        en="A sparse tensor was made with some of its places several times, as when words are counted one by one. A "
        "logarithm, a root or a maximum of the stored numbers then sees the single ones, and not the sums that the "
        "tensor stands for. Add them first: `counts.coalesce().values()`.",
        zh="稀疏张量构造时有些位置出现了多次，比如逐个数词。对存储的数取对数、开方或求最大值，看到的是一个个的 1，而"
        "不是张量所代表的总和。请先相加：`counts.coalesce().values()`。",
    ),
    why=T(
        en="A tensor in COO format is a list of places and a list of numbers; a place may be there many times, and "
        "stands for the sum. Torch adds them up when it must: in `coalesce()`, `to_dense()`, a product. `values()` "
        "refuses a tensor that was not coalesced; `_values()`, with an underscore, gives out the list as it is.",
        zh="COO 格式的张量是一列位置和一列数；同一位置可以出现多次，代表它们的和。torch 只在需要时才相加："
        "`coalesce()`、`to_dense()`、乘法。`values()` 会拒绝没有合并过的张量；带下划线的 `_values()` 则原样给出这一列"
        "数。",
    ),
    bad="""import torch

words = torch.tensor([[0, 0, 0, 1, 1], [2, 2, 2, 0, 2]])
counts = torch.sparse_coo_tensor(words, torch.ones(5), (2, 3))  # made
damped = torch.sparse_coo_tensor(counts._indices(), counts._values().log1p(), (2, 3))  # PL817
print(counts.to_dense(), damped.to_dense())
""",
    good="""import torch

words = torch.tensor([[0, 0, 0, 1, 1], [2, 2, 2, 0, 2]])
counts = torch.sparse_coo_tensor(words, torch.ones(5), (2, 3))
damped = torch.sparse_coo_tensor(counts.coalesce().indices(), counts.coalesce().values().log1p(), (2, 3))
print(counts.to_dense(), damped.to_dense())
""",
    find=find,
    traps=(
        Trap(
            "counts._values().log1p(), (2, 3))",
            "counts._values().log1p(), (2, 3)).coalesce()",
            T(en="Coalesced afterwards, the logarithms are added up.", zh="之后再合并，相加的是对数。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/sparse.html#uncoalesced-sparse-coo-tensors",),
)
