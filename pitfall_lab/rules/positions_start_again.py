"""PL474: new tokens get positions from 0 on, although their keys are joined with the cached keys of earlier tokens."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.sequences import KEEPING, Attention, attentions
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

JOINS = spellings("cat")
WAYS = (
    spellings("expand", "transpose")
    | {"T", "__getitem__", "chunk", "clone", "contiguous", "detach", "flatten", "mT", "narrow", "permute",
       "repeat_interleave", "reshape", "select", "split", "squeeze", "to", "unbind", "unflatten", "unsqueeze", "view"}
)  # fmt: skip
"""Calls that leave the keys, perhaps in another shape."""
PRODUCTS = spellings("matmul") | {"addmm", "linear"}
COUNTS = {"arange", "zeros"}
MIXING = spellings("matmul") | {"bmm", "einsum", "scaled_dot_product_attention"}
"""Calls in which queries meet keys."""
FURTHER, LONGEST = 120, 40


@dataclass(frozen=True, slots=True)
class Restarted:
    """``positions`` is the call (``Event``) that counted from 0, or took the first rows of a table, for ``new`` new
    tokens; ``joined`` is the call that appends the keys of these tokens to those of ``past`` cached ones.
    """

    positions: Event
    joined: Event
    past: int
    new: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that counts the positions of new tokens from 0 although their keys are then
    joined to the cached keys of earlier tokens.
    """
    if not any(True for _ in story.calls(*JOINS)):
        return
    told = set()
    for attention in attentions(story):
        for found in _restarted(story, attention):
            place = story.span(found.positions.step)
            if place not in told:
                told.add(place)
                yield _finding(story, found)


def _restarted(story: Story, attention: Attention) -> Iterator[Restarted]:
    """Yield the data of a finding for each call that gives the positions of an attention's queries from 0 on, although
    cached keys come before theirs.
    """
    joined = _joined(story, attention.keys, attention.product.step)
    if joined is None:
        return
    parts = [o.label for o in joined.operands if o.label is not None]
    axis = whole(argument(joined, "dim", len(joined.operands) - 1)) or 0
    sizes = [(story.shape(each, joined.step) or (0,)) for each in parts]
    if len(parts) != 2 or any(not -len(size) <= axis < len(size) for size in sizes):
        return
    past, new = (size[axis] for size in sizes)
    keys = story.shape(attention.keys, attention.product.step) or ()
    if past < 1 or new < 1 or past + new not in keys[:-1]:
        return
    old, fresh = (_projected(story, each, joined.step) for each in parts)
    if (
        old is None
        or fresh is None
        or old.step >= fresh.step
        or _weights(story, old).isdisjoint(_weights(story, fresh))
    ):
        return
    query = attention.event.operands[0].label
    yield from (
        Restarted(each, joined, past, new) for each in _positions(story, query, attention.event.step, old.step, new)
    )


def _joined(story: Story, label: str | None, step: int) -> Event | None:
    """The call that joined the keys, perhaps before calls that only reshape, select or copy them; None if there is
    none.
    """
    for _ in range(LONGEST):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.operands[0].label == label:
            return None
        if made.name in JOINS:
            return made
        if made.name not in WAYS:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _projected(story: Story, label: str, step: int) -> Event | None:
    """The layer that made the keys; where several parts were joined, the one that made the last part. None if there is
    none.
    """
    here: str | None = label
    for _ in range(LONGEST):
        made = made_by(story, here, step)
        if made is None:
            return None
        if made.name in PRODUCTS and _weights(story, made):
            return made
        if made.name in JOINS:
            here = [o.label for o in made.operands if o.label is not None][-1]
        elif made.name in WAYS:
            here = made.operands[0].label
        else:
            return None
        step = made.step
    return None


def _weights(story: Story, event: Event) -> set[str]:
    """The storages of the parameters that a layer works with."""
    records = [story.tensor(o.label, event.step) or {} for o in event.operands if o.label is not None]
    return {str(each.get("storage")) for each in records if each.get("requires_grad") and each.get("is_leaf")}


def _positions(story: Story, query: str | None, step: int, before: int, new: int) -> Iterator[Event]:
    """Yield the calls that counted positions from 0, or took the first rows of a table, to be added to the rows of the
    queries.

    Only calls at or after the step ``before``, at which the cached keys were made; a table must be older than that.
    """
    pending, seen = [(query, step)], {query}
    while pending and len(seen) < FURTHER:
        here, at = pending.pop(0)
        made = made_by(story, here, at)
        if made is None or not made.operands or made.step < before:
            continue
        follow = [o.label for o in made.operands if o.label is not None]
        if made.name == "embedding":
            counted = _counted(story, follow[0], made.step, new)
            if counted is not None:
                yield counted
            continue
        if made.name == "__getitem__" and len(follow) == 1 and _takes_first(story, made, before, new):
            yield made
            continue
        if made.name in MIXING:  # the queries
            follow = follow[:1]
        elif made.name not in KEEPING:
            continue
        fresh = [each for each in follow if each not in seen]
        seen.update(fresh)
        pending += [(each, made.step) for each in fresh]


def _counted(story: Story, label: str, step: int, new: int) -> Event | None:
    """The call that counted the ``new`` numbers by which a table is looked up, if they begin with 0; else None."""
    known = dict(Elements(story, label, step).known())
    shape = story.shape(label, step) or ()
    if not known or not shape or shape[-1] != new or any(value != index[-1] for index, value in known.items()):
        return None
    here: str | None = label
    for _ in range(LONGEST):
        made = made_by(story, here, step)
        if made is None or made.name in COUNTS:
            return made
        if made.name not in WAYS | {"repeat", "long", "expand_as"}:
            return None
        here, step = made.operands[0].label, made.step
    return None


def _takes_first(story: Story, made: Event, before: int, new: int) -> bool:
    """Whether a call took the first rows of a larger table that was there before the cached keys were made."""
    table, part = story.tensor(made.operands[0].label, made.step) or {}, story.tensor(made.results[0], made.step) or {}
    rows, own = table.get("shape") or [], part.get("shape") or []
    born = story.event(table.get("born"))
    return (
        len(rows) > 1
        and len(own) > 1
        and rows[-1] == own[-1]
        and own[-2] == new < rows[-2]
        and table.get("storage") == part.get("storage")
        and table.get("offset") == part.get("offset")
        and (born is None or born.step < before)
        and str(table.get("dtype")).startswith("float")
    )


def _finding(story: Story, found: Restarted) -> Finding:
    event = found.positions
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(found.joined.step))
    several = T(en="one new token" if found.new == 1 else f"{found.new} new tokens", zh=f"{found.new} 个新词元")
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} gives positions from 0 on to {several.en}, and {there.en} puts the keys of "
            f"{found.past} earlier ones before them: the first new position is {found.past}.",
            zh=f"{here.zh}从 0 开始给{several.zh}编位置，而{there.zh}在它们前面接上了 {found.past} 个更早词元的键："
            f"第一个新位置应是 {found.past}。",
        ),
        T(
            en="With a cache only the new tokens are given to the network, so their number says nothing about where in "
            "the text they are. To the attention every new token then looks like the first of the text. Add the "
            "number of kept keys to the positions.",
            zh="有缓存时，只把新词元交给网络，所以它们的个数并不说明它们在文本中的位置。于是对注意力来说，每个新词元都像是"
            "文本的第一个。请在位置上加上已保留的键的个数。",
        ),
        related=[story.related("made", found.joined.step, T(en="joined with kept keys", zh="与保留的键相接"))],
        fixes=_fixes(story, found),
        facts=[Fact("kept", found.past, story.by(found.joined.step))],
    )


def _fixes(story: Story, found: Restarted) -> tuple[Fix, ...]:
    """At most one fix, which adds the number of cached keys to the positions.

    Empty unless the keys are joined in the function that gives the positions, and the program's source shows both.
    """
    program = story.program
    node, join = (program.at(story.span(each.step)) for each in (found.positions, found.joined))
    if node is None or not isinstance(join, ast.Call) or not join.args:
        return ()
    if program.function(node) is not program.function(join):
        return ()
    parts = join.args[0]
    axis = argument(found.joined, "dim", len(found.joined.operands) - 1)
    if not isinstance(parts, ast.Tuple | ast.List) or len(parts.elts) != 2 or axis is None:
        return ()
    past = _guarded(program, join, f"{operand(program, parts.elts[0])}.size({axis})")
    title = T(en="Count on from the kept keys", zh="从保留的键之后继续编号")
    if isinstance(node, ast.Call):
        around = program.parents.get(node)
        new = f"{program.segment(node)} + {past}"
        new = new if isinstance(around, ast.Call) and node in around.args else f"({new})"
        return unique(program.text, [Fix(title, program.replace((node, new)), meaning="later")])
    if isinstance(node, ast.Subscript):
        index = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        cut = next((n for n in index if isinstance(n, ast.Slice) and n.lower is None and n.upper is not None), None)
        if cut is not None and cut.upper is not None:
            new = f"{past}:{past} + {operand(program, cut.upper)}"
            return unique(program.text, [Fix(title, program.replace((cut, new)), meaning="later")])
    return ()


def _guarded(program: Program, join: ast.Call, length: str) -> str:
    """The number of cached keys as an expression that is 0 where the program does not join any."""
    child: ast.AST = join
    for around in program.ancestors(join):
        if isinstance(around, ast.FunctionDef | ast.Lambda):
            break
        if isinstance(around, ast.If | ast.IfExp):
            test = program.segment(around.test)
            body = around.body if isinstance(around.body, list) else [around.body]
            return f"({length} if {test} else 0)" if child in body else f"(0 if {test} else {length})"
        child = around
    return length


RULE = Rule(
    code="PL474",
    name="positions-start-again",
    severity="warning",
    title=T(
        en="Positions start from 0 again although keys of earlier tokens are kept",
        zh="保留了更早词元的键，位置却又从 0 开始",
    ),
    what=T(
        en="A program writes a text word by word, keeps what it computed for earlier words, and computes only the new "
        "word. It numbers the words that it is given, so each new word is number 0, the first of the text. Begin the "
        "numbers with how many are kept: `torch.arange(past, past + new)`.",
        zh="程序逐词写出文本，保留先前的词的计算结果，只计算新词。它给拿到的词编号，于是每个新词都是 0 号，即文本的"
        "第一个词。编号请从已保留的个数开始：`torch.arange(past, past + new)`。",
    ),
    why=T(
        en="An attention compares a query with keys and knows nothing of their order; the order is in the vectors of "
        "the positions that were added to the tokens. In training all tokens are there at once, and the position in "
        "the tensor is the position in the text. With kept keys it is not, and the network reads a text whose last "
        "words are all at its beginning. Nothing is raised, as row 0 of the table is a row like any other.",
        zh="注意力把查询与键相比，并不知道它们的次序；次序在加到词元上的位置向量里。训练时所有词元同时都在，张量中的位置就"
        "是文本中的位置。有保留的键时就不是了，网络读到的文本，最后的词全都站在开头。不会报错：表的第 0 行也只是一行。",
    ),
    bad="""import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
token, place, key = nn.Embedding(5, 8), nn.Embedding(9, 8), nn.Linear(8, 8)


def attend(words, kept=None):
    x = token(words) + place(torch.arange(words.size(1)))  # PL474
    k = key(x)
    if kept is not None:
        k = torch.cat((kept, k), 1)  # made
    return F.scaled_dot_product_attention(x, k, k), k


text = torch.tensor([[1, 3, 2, 4]])
out, kept = attend(text[:, :3])
print(attend(text[:, 3:], kept)[0][0, -1])
""",
    good="""import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
token, place, key = nn.Embedding(5, 8), nn.Embedding(9, 8), nn.Linear(8, 8)


def attend(words, kept=None):
    past = 0 if kept is None else kept.size(1)
    x = token(words) + place(torch.arange(past, past + words.size(1)))
    k = key(x)
    if kept is not None:
        k = torch.cat((kept, k), 1)
    return F.scaled_dot_product_attention(x, k, k), k


text = torch.tensor([[1, 3, 2, 4]])
out, kept = attend(text[:, :3])
print(attend(text[:, 3:], kept)[0][0, -1])
""",
    find=find,
    traps=(
        Trap(
            "torch.arange(words.size(1))",
            "torch.zeros_like(words)",
            T(en="The first position for all words.", zh="所有的词都用第一个位置。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.arange.html",
    ),
)
