"""PL669: the gradient of some elements of a parameter is set to 0, and the optimizer moves them nevertheless."""

from __future__ import annotations

import ast
import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital, numbers_apart
from pitfall_lab.rules.signals.elements import Elements, Index
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Event, OptimizerStep, T
from pitfall_lab.trace.operation_facts import spellings

FEWEST = 3
"""The least number of recorded updates: a mask that is drawn anew is not often the same three times."""
CONSTANTS = {"zeros", "ones", "full", "tensor", "arange"}
"""Calls that give the same numbers each time that a line makes them."""
FORMS = spellings("gt", "ge", "lt", "le", "eq", "ne", "logical_not", "bitwise_not", "sub", exchanged=True) | {
    "__getitem__",
    "bool",
    "expand",
    "expand_as",
    "float",
    "reshape",
    "to",
    "type_as",
    "unsqueeze",
    "view",
}
"""What makes of a mask the form in which it is applied: the same from the same mask, without a random number."""
PRODUCTS = spellings("mul", in_place=True)
"""Calls that set to 0 what has a factor of 0, even where the gradient was 0 before."""
DEEPEST = 4
Values = dict[Index, float]


@dataclass(frozen=True, slots=True)
class GradientMask:
    """``event`` is the call (``Event``), a write into ``.grad`` or a call in a hook, that made a gradient 0 at the
    indices ``hidden``: it was not 0 there before, or the factor there is 0.

    ``given`` are the storages that its other operands, the mask among them, were made from; of a mask that is made anew
    each time, the name of the call that makes it, such as ``zeros``.
    """

    event: Event
    hidden: frozenset[Index]
    given: frozenset[str]


@dataclass(frozen=True, slots=True)
class MaskedRowsStillMove:
    """An optimizer's ``updates`` (its steps) changed elements of the parameter labelled ``label`` although ``mask`` had
    made their gradient 0 before each.

    ``moved`` are the indices of these elements, ``old`` and ``new`` their values before and after the first update, in
    the same order.
    """

    label: str
    mask: GradientMask
    updates: tuple[OptimizerStep, ...]
    moved: tuple[Index, ...]
    old: tuple[float, ...]
    new: tuple[float, ...]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer that changes elements of a parameter whose gradient the program sets to 0
    before every one of its recorded steps, of which there must be at least ``FEWEST``.

    Only for the first such parameter of an optimizer, and not where the elements get their old values back.
    """
    by_optimizer: dict[object, list[OptimizerStep]] = defaultdict(list)
    for update in story.trace.optimizer_steps:
        by_optimizer[update.span if update.made is None else update.made].append(update)
    for updates in by_optimizer.values():
        for label in updates[0].holds if len(updates) >= FEWEST else ():
            found = _moved(story, label, updates)
            if found is not None:
                yield _finding(story, found)
                break


def _moved(story: Story, label: str, updates: list[OptimizerStep]) -> MaskedRowsStillMove | None:
    """The finding's data if each update changed elements with a masked gradient, and nothing restored them; else
    None.
    """
    gradients = [_gradient(story, label, update) for update in updates]
    zero = [frozenset(place for place, value in each.items() if value == 0) for each in gradients]
    always = frozenset.intersection(*zero)
    if not always or any(len(each) == len(g) for each, g in zip(zero, gradients, strict=True)):
        return None
    before = [_values(story, label, update.step - 1) for update in updates]
    after = [_values(story, label, _end(story, update)) for update in updates]
    masks = [_mask(story, label, update, each) for update, each in zip(updates, zero, strict=True)]
    known = [mask for mask in masks if mask is not None]
    if len({(m.event.span, m.event.op, m.given) for m in known}) != 1:
        return None
    if any(each != zero[0] for each in zero):
        # Rows of an embedding that a batch does not have are 0 too: then the mask has to be the same in each update.
        first, last = updates[0].step, updates[-1].step
        is_same = len({m.hidden for m in known}) == 1 or not any(
            each in CONSTANTS or story.writes(each, first, last) for each in known[0].given
        )
        if len(known) < FEWEST or not is_same:
            return None
    elif len(known) < len(updates):
        return None
    hidden = always & frozenset[Index]().union(*(m.hidden for m in known))
    steady = [
        place
        for place in sorted(hidden)
        if all(place in values for values in (*before, *after))
        and all(one[place] != other[place] for one, other in zip(before, after, strict=True))
        and all(one[place] != other[place] for one, other in pairwise(before))
    ]
    if not steady:
        return None
    old, new = (tuple(values[place] for place in steady) for values in (before[0], after[0]))
    return MaskedRowsStillMove(label, known[0], tuple(updates), tuple(steady), old, new)


def _values(story: Story, label: str | None, step: int) -> Values:
    """The known finite values of a tensor, empty if the trace has none."""
    if not story.held(label, step):
        return {}
    return {place: value for place, value in Elements(story, label, step).known() if math.isfinite(value)}


def _gradient(story: Story, label: str, update: OptimizerStep) -> Values:
    """The known values of the gradient that an update uses."""
    return _values(story, (story.tensor(label, update.step - 1) or {}).get("grad"), update.step - 1)


def _end(story: Story, update: OptimizerStep) -> int:
    """The last of the consecutive steps that belong to one update: those with the same source span."""
    step = update.step
    while step + 1 < len(story.events) and story.span(step + 1) == update.span:
        step += 1
    return step


def _mask(story: Story, label: str, update: OptimizerStep, zero: frozenset[Index]) -> GradientMask | None:
    """The call that made the gradient of an update 0 at exactly the indices ``zero``, at some of which it was not 0
    before, in a hook during the backward or between the backward and the update; None if there is none.
    """
    gradient = (story.tensor(label, update.step - 1) or {}).get("grad")
    storage = (story.tensor(gradient, update.step - 1) or {}).get("storage")
    backward = max((each.step for each in story.backwards() if each.step < update.step), default=None)
    if backward is None:
        return None
    for event in story.events[backward + 1 : update.step]:
        if event.kind != "call" or event.error is not None:
            continue
        outer = story.outer_call(event.step)
        touched = storage in event.writes or gradient in event.results
        if not touched and (outer is None or outer.step != backward):
            continue
        for source, old, new in _changes(story, event, gradient, story.shape(label, update.step)):
            made = frozenset(place for place, value in new.items() if value == 0)
            others = [o.label for o in event.operands if o.label is not None and o.label != source]
            factors = [Elements(story, each, event.step) for each in others if event.name in PRODUCTS]
            hidden = frozenset(
                place
                for place in zero
                if new.get(place) == 0 and (old.get(place, 0) != 0 or any(each.at(place) == 0 for each in factors))
            )
            if hidden and made == zero:
                given = frozenset[str]().union(*(_made_from(story, each, event.step) for each in others))
                return GradientMask(event, hidden, given - {str(storage)})
    return None


def _made_from(story: Story, label: str, step: int, depth: int = DEEPEST) -> frozenset[str]:
    """What identifies a mask: the storages that it was made from or, if constants were made anew for it, the name of
    the call that made them, such as ``zeros``.
    """
    record = story.tensor(label, step) or {}
    born = story.event(record.get("born"))
    own = frozenset({str(record.get("storage"))})
    if born is None or depth == 0 or any(record.get("storage") in e.writes for e in story.events[born.step + 1 : step]):
        return own
    if born.name in CONSTANTS and all(operand.label is None for operand in born.operands):
        return frozenset({born.name})
    if born.name not in FORMS:
        return own
    parts = (o.label for o in born.operands if o.label is not None and o.label != label)
    return frozenset[str]().union(*(_made_from(story, each, born.step, depth - 1) for each in parts)) or own


def _changes(
    story: Story, event: Event, gradient: str | None, shape: Index | None
) -> Iterator[tuple[str | None, Values, Values]]:
    """Yield each tensor of the given shape that a call may have changed: its label, and its values before and after the
    call.

    If the call writes nothing, these are its operands, and the values after it those of its result.
    """
    labels = [o.label for o in event.operands if o.label is not None and story.shape(o.label, event.step) == shape]
    for label in dict.fromkeys([*labels, gradient]):
        if (story.tensor(label, event.step) or {}).get("storage") in event.writes:
            yield label, _values(story, label, event.step - 1), _values(story, label, event.step)
    for result in event.results:
        if story.shape(result, event.step) == shape and not event.writes:
            for label in labels:
                yield label, _values(story, label, event.step), _values(story, result, event.step)


def _finding(story: Story, found: MaskedRowsStillMove) -> Finding:
    update, mask = found.updates[0], found.mask
    made = story.trace.optimizers[update.made] if update.made is not None else None
    here, there = at_line(story, update.span), at_line(story, story.span(mask.event.step))
    name = called(story, found.label, None, update.step)
    old, new = numbers_apart(list(found.old), list(found.new))
    kind = update.optimizer
    return RULE.finding(
        update.span,
        update.step,
        T(
            en=f"{capital(there.en)} sets a part of the gradient of {name.en} to 0, and {here.en} still moves these "
            f"elements: {old} became {new}.",
            zh=f"{there.zh}把 {name.zh} 的一部分梯度设为 0，而{here.zh}仍然移动这些元素：{old} 变成了 {new}。",
        ),
        T(
            en=f"`{kind}` does not skip an element whose gradient is 0. Weight decay takes a share of each element in "
            "every step, and what momentum has kept of earlier gradients is applied too. Give this parameter no "
            "weight decay, and an optimizer of its own; or write the old values back after each step; or train the "
            "new part as a parameter of its own.",
            zh=f"`{kind}` 并不跳过梯度为 0 的元素。权重衰减在每一步都减去每个元素的一部分，动量中保留的早先梯度也会起"
            "作用。请不要对这个参数使用权重衰减，并给它单独的优化器；或者在每一步之后写回旧值；或者把新的部分作为单独"
            "的参数训练。",
        ),
        related=[
            story.related("changed", mask.event.step, T(en="set to 0 here", zh="在这里设为 0")),
            *([Related("made", made.span, made.step, T(en="the optimizer", zh="优化器"))] if made is not None else []),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("tensor", found.label, story.by(update.step)),
            Fact("before", list(found.old)),
            Fact("after", list(found.new)),
        ],
    )


def _fixes(story: Story, found: MaskedRowsStillMove) -> tuple[Fix, ...]:
    """The fix that turns weight decay off: for the optimizer or, if it has other parameters too, for a group with only
    this parameter.

    Empty if the program's source does not show how.
    """
    program, update = story.program, found.updates[0]
    made = story.trace.optimizers[update.made] if update.made is not None else None
    call = call_of(story, made.span) if made is not None else None
    if made is None or call is None or any(k.arg is None for k in call.keywords):
        return ()
    if len(made.holds) != 1:
        name = story.name(found.label, made.step)
        held = call.args[0] if call.args else next((k.value for k in call.keywords if k.arg == "params"), None)
        if name is None or held is None or isinstance(held, (ast.List, ast.Tuple)):
            return ()
        text = program.segment(held)
        if name.startswith("self.") and text.endswith(".parameters()"):  # the run that tries the fix decides
            name = f"{text.removesuffix('.parameters()')}.{name.removeprefix('self.')}"
        groups = f'[{{"params": [{name}], "weight_decay": 0.0}}, {{"params": [p for p in {text} if p is not {name}]}}]'
        title = T(en=f"No weight decay for `{name}`: a group of its own", zh=f"`{name}` 不用权重衰减：单独一组")
        return unique(program.text, [Fix(title, program.replace((held, groups)), meaning="later")])
    title = T(en="No weight decay: `weight_decay=0.0`", zh="不用权重衰减：`weight_decay=0.0`")
    given = [k.value for k in call.keywords if k.arg == "weight_decay"]
    if given:
        edits = program.replace((given[0], "0.0"))
    else:  # AdamW has one by default
        last = max([*call.args, *(k.value for k in call.keywords)], key=lambda n: (n.end_lineno, n.end_col_offset))
        edits = program.replace((last, f"{program.segment(last)}, weight_decay=0.0"))
    return unique(program.text, [Fix(title, edits, meaning="later")])


RULE = Rule(
    code="PL669",
    name="masked-rows-still-move",
    severity="warning",
    title=T(
        en="Elements whose gradient is set to 0 are still moved by the optimizer",
        zh="梯度被设为 0 的元素仍被优化器移动",
    ),
    what=T(
        en="A part of a table is to stay as it is, so the program sets its gradient to 0. The update changes it all "
        "the same: it makes every number a little smaller, or goes on in the direction of earlier updates.",
        zh="表的一部分应当保持不变，所以程序把它的梯度设为 0。但更新照样改变它：每个数都会变小一点，或者沿着早先更新的"
        "方向继续移动。",
    ),
    why=T(
        en="An optimizer works on whole parameters: it skips one whose `.grad` is `None`, but not single "
        "elements. Weight decay does not come through the gradient that a hook sees: AdamW multiplies the parameter by "
        "`1 - lr * weight_decay`, the others add `weight_decay * parameter` to the gradient inside of `step()`. "
        "AdamW has a weight decay of 0.01 by default. Momentum that was built up before the mask "
        "moves the elements for some time, too.",
        zh="优化器处理整个参数：`.grad` 为 `None` 的参数会被跳过，但不会跳过单个元素。权重衰减不经过钩子看到的梯度："
        "AdamW 把参数乘以 `1 - lr * weight_decay`，其他优化器在 `step()` 里把 `weight_decay * parameter` 加到梯度上。"
        "如果不另外指定，AdamW 的权重衰减是 0.01。掩码之前积累的动量也会在一段时间里移动这些元素。",
    ),
    bad="""import torch

torch.manual_seed(0)
table = torch.nn.Embedding(4, 2)
keep = torch.tensor([[0.0], [0.0], [1.0], [1.0]])  # the first two rows are known already
table.weight.register_hook(lambda grad: grad * keep)  # changed
before = table.weight.detach().clone()
opt = torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.1)  # made
for _ in range(5):
    loss = (table(torch.arange(4)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()  # PL669
print((table.weight - before)[:2])
""",
    good="""import torch

torch.manual_seed(0)
table = torch.nn.Embedding(4, 2)
keep = torch.tensor([[0.0], [0.0], [1.0], [1.0]])  # the first two rows are known already
table.weight.register_hook(lambda grad: grad * keep)
before = table.weight.detach().clone()
opt = torch.optim.AdamW(table.parameters(), lr=0.1, weight_decay=0.0)
for _ in range(5):
    loss = (table(torch.arange(4)) - 1).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print((table.weight - before)[:2])
""",
    find=find,
    traps=(
        Trap(
            "grad * keep)",
            "grad * keep * keep)",
            T(
                en="Masking the gradient twice gives the same gradient: weight decay is not part of it.",
                zh="把梯度遮住两次，得到的还是同样的梯度：权重衰减不在其中。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.AdamW.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.register_hook.html",
    ),
)
