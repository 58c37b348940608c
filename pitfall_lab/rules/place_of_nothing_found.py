"""PL413: in a row without any 1, the search for the first one returns 0, which is used as if it were found there."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand as in_parentheses
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.trace import Counted, Event, T
from pitfall_lab.trace.operation_facts import spellings

CONVERSIONS = {"int", "long", "float", "double", "byte", "short", "to", "type", "half", "char", "bool", "cpu", "clone",
               "detach", "contiguous", "view", "reshape", "type_as"}  # fmt: skip
"""Calls that a tensor is followed through: its numbers stay the same ones."""
ASKING = {"any", "all", "sum", "count_nonzero", "amax", "max", "nonzero", "cumsum", "cummax", "mean", "isin", "nansum"}
"""Calls that may ask whether a row of the mask has a 1."""
ON_THE_WAY = (
    CONVERSIONS | spellings("cat", "clamp", "expand") | spellings("add", in_place=True)
    | spellings("sub", in_place=True, exchanged=True)
    | {"clamp_max", "clamp_min", "expand_as", "flatten", "item", "minimum", "repeat", "squeeze", "stack", "unsqueeze"}
)  # fmt: skip
"""Calls between the search and the use of the position."""
PLACES = (
    spellings("index_fill", "scatter", in_place=True)
    | {"gather", "index_add_", "index_copy_", "index_select", "narrow", "select", "take", "take_along_dim"}
)  # fmt: skip
"""Calls that take positions."""
PACKED = "pack_padded_sequence"
COMPARING = {"lt", "le", "gt", "ge"}
"""Comparisons of a position with a row of numbers, which make a mask of it."""
EQUAL = {"eq", "ne", "lt", "le", "gt", "ge"}
"""Comparisons with a number, which find out that nothing was found (names without underscores)."""
FURTHER = 40


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that searches the first 1 in rows of which some have none, where its result is
    used as a position and nothing checks which rows have one.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind != "empty" or event is None or event.error is not None or not event.results:
            continue
        if not _is_mask(story, event) or _is_asked(story, event):
            continue
        used = _used(story, event)
        if used is not None:
            yield _finding(story, event, counted, used)


def _plain(name: str) -> str:
    return name.strip("_") if name.startswith("__") else name


def _family(story: Story, event: Event) -> tuple[set[str], Event | None]:
    """The labels of the mask before and after conversions, and where the program computes the same mask again; and the
    call that computed it, None if it is not known.
    """
    label, step = event.operands[0].label, event.step
    family: set[str] = set()
    made = None
    for _ in range(FURTHER):
        if label is None:
            break
        family.add(label)
        made = made_by(story, label, step)
        if made is None or made.name not in CONVERSIONS:
            break
        label, step = made.operands[0].label, made.step
    if made is not None and made.name not in CONVERSIONS:
        same = (other for other in story.uses(made.operands[0].label) if other.name == made.name)
        family.update(r for other in same if other.operands == made.operands for r in other.results[:1])
    pending = deque(family)
    while pending and len(family) < FURTHER:
        for use in story.uses(pending.popleft()):
            fresh = [r for r in use.results if r not in family] if use.name in CONVERSIONS else []
            family.update(fresh)
            pending += fresh
    return family, made


def _is_mask(story: Story, event: Event) -> bool:
    """Whether the zeros and ones are truth values: the mask is bool before or after a conversion."""
    family, _ = _family(story, event)
    return any((story.tensor(label) or {}).get("dtype") == "bool" for label in family)


def _is_asked(story: Story, event: Event) -> bool:
    """Whether the program asks which rows have a 1: it reduces the mask, reads it at the positions found, or uses the
    largest values themselves.
    """
    if len(event.results) > 1 and story.uses(event.results[0]):
        return True
    family, _ = _family(story, event)
    for label in family:
        for use in story.uses(label):
            if use.span == event.span and use.name == event.name:
                continue
            reads = _plain(use.name) in ("getitem", "gather", "take_along_dim", "index_select")
            is_read = reads and use.operands[0].label == label and any(o.label for o in use.operands[1:])
            chosen = _plain(use.name) == "getitem" and label in [o.label for o in use.operands[1:]]
            if use.name in ASKING or (is_read and not chosen):
                return True
    return False


def _used(story: Story, event: Event) -> Event | None:
    """The call that uses the result as a position; None if there is none, or if the result is compared with
    a number.
    """
    pending, seen = deque(event.results[-1:]), set(event.results[-1:])
    found: Event | None = None
    while pending and len(seen) < FURTHER:
        label = pending.popleft()
        for use in story.uses(label):
            name, rest = _plain(use.name), [o.label for o in use.operands[1:]]
            if use.step <= event.step or use.error is not None:
                continue
            others = [o.label for o in use.operands if o.label != label]
            if name in EQUAL and others == [None]:
                return None
            is_place = name in ("getitem", "setitem") and label in rest
            ramp = name in COMPARING and any(_is_ramp(story, other, use.step) for other in others)
            if is_place or use.name in PLACES or story.said(use.step) == PACKED or ramp:
                found = found or use
            elif use.results and (name in ON_THE_WAY or (name == "getitem" and use.operands[0].label == label)):
                fresh = [r for r in use.results if r not in seen]
                seen.update(fresh)
                pending += fresh
    return found


def _is_ramp(story: Story, label: str | None, step: int) -> bool:
    """Whether the tensor was made of an ``arange`` by indexing, reshaping, converting, clamping or adding."""
    for _ in range(FURTHER):
        event = made_by(story, label, step) if label is not None else None
        if event is None or event.name == "arange":
            return event is not None
        if _plain(event.name) not in ON_THE_WAY | {"getitem"}:
            return False
        label, step = event.operands[0].label, event.step
    return False


def _finding(story: Story, event: Event, counted: Counted, used: Event) -> Finding:
    here, there = at_line(story, story.span(event.step)), at_line(story, story.span(used.step))
    code = snippet(story, story.span(event.step))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} looks for the first 1 in each row of a mask, but {counted.count} of {counted.of} "
            f"rows have none: there it returns 0, and {there.en} takes that for the place.",
            zh=f"{here.zh}在掩码的每一行里寻找第一个 1，但 {counted.of} 行中有 {counted.count} 行一个也没有：这时返回 "
            f"0，而{there.zh}把它当作找到的位置。",
        ),
        T(
            en=f"`{code}` returns the place of the largest number, and of equal ones the first. In a row of zeros all "
            "are equal, so it returns 0, just as for a row whose first entry is 1. `mask.any(dim)` tells them apart.",
            zh=f"`{code}` 返回最大数的位置，有相等的就取第一个。全为 0 的一行里所有的数都相等，所以返回 0，与第一项"
            "就是 1 的行没有区别。`mask.any(dim)` 可以区分两者。",
        ),
        related=[story.related("used", used.step, T(en="used as a place here", zh="在这里当作位置使用"))],
        fixes=_fixes(story, event),
        facts=[Fact("without", counted.count, story.by(event.step)), Fact("rows", counted.of, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    """At most one fix: it takes the last position of a row in which nothing is found. Empty if the program's source
    does not show the search and its mask.
    """
    program, node = story.program, story.program.at(story.span(event.step))
    mask, torch = written_as(story, event, event.operands[0].label), torch_name(program)
    if not isinstance(node, ast.Call) or mask is None or torch is None or call_name(node) not in ("argmax", "max"):
        return ()
    whole: ast.expr = node
    parent = program.parents.get(node)
    if call_name(node) == "max":
        is_second = isinstance(parent, ast.Subscript) and program.segment(parent.slice) == "1"
        if not is_second and not (isinstance(parent, ast.Attribute) and parent.attr == "indices"):
            return ()
        whole = parent if isinstance(parent, ast.expr) else whole
    bare = mask
    while isinstance(bare, ast.Call) and isinstance(bare.func, ast.Attribute) and call_name(bare) in CONVERSIONS:
        bare = bare.func.value
    rest = [a for a in (*node.args, *(k.value for k in node.keywords)) if a is not mask]
    keep = any(k.arg == "keepdim" for k in node.keywords)
    dim = program.segment(rest[0]) if rest else ""
    text, given = in_parentheses(program, bare), f"{dim}, keepdim=True" if keep else dim
    new = f"{torch}.where({text}.any({given}), {program.segment(whole)}, {text}.shape[{dim or -1}] - 1)"
    title = T(en="Take the last place where nothing is found", zh="没有找到时取最后一个位置")
    return unique(program.text, [Fix(title, program.replace((whole, new)), meaning="later")])


RULE = Rule(
    code="PL413",
    name="place-of-nothing-found",
    severity="warning",
    title=T(
        en="A search for the first 1 of a row that has none returns 0", zh="在没有 1 的行里寻找第一个 1，返回的是 0"
    ),
    what=T(
        en="A program looks for the first place where something holds, such as the end mark of a text. In a row where "
        "it is never true, argmax returns 0, the index of the first element, and the program computes with it. Ask "
        "`mask.any(1)` which rows have such a place, and say what to take for the others.",
        zh="程序寻找某个条件第一次成立的位置，例如一段文字的结束标记。如果哪里都不成立，得到的答案是 0，也就是第一个位"
        "置，程序就照此继续。请用 `mask.any(1)` 问清哪些行有这样的位置，并规定其余的行取什么。",
    ),
    why=T(
        en="`argmax` has no answer that means “nowhere”: in a row of zeros each entry is the largest, and torch "
        "returns the first. A text that was cut off before its end mark then is read at its first word. Nothing is "
        "raised, as 0 is a valid index.",
        zh="`argmax` 没有表示“哪里都没有”的答案：在全为 0 的一行里每一项都是最大的，torch 返回第一个。于是，在结束标记"
        "之前被截断的文字，就在第一个词处读取。不会报错，因为 0 是合法的索引。",
    ),
    advice=T(
        en="ask `mask.any(dim)` on {line} which rows have a 1, and say which place to take for the others.",
        zh="在{line}用 `mask.any(dim)` 问清哪些行有 1，并规定其余的行取哪个位置。",
    ),
    bad="""import torch

END = 1
texts = torch.tensor([[5, 7, 1, 0], [8, 9, 6, 4], [3, 1, 0, 0]])
end = (texts == END).int().argmax(1)  # PL413
print(texts.gather(1, end[:, None]))  # used
""",
    good="""import torch

END = 1
texts = torch.tensor([[5, 7, 1, 0], [8, 9, 6, 4], [3, 1, 0, 0]])
ends = texts == END
end = torch.where(ends.any(1), ends.int().argmax(1), texts.shape[1] - 1)
print(texts.gather(1, end[:, None]))
""",
    find=find,
    traps=(
        Trap(
            "end[:, None]",
            "end.clamp(max=3)[:, None]",
            T(en="0 is inside the row already; a limit does not change it.", zh="0 本来就在行内，限制范围不会改变它。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.argmax.html",),
)
