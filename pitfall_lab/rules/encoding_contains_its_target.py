"""PL945: a feature is the mean target of each category, and includes the target of the row itself, which is to be
predicted.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.forms import key, same_numbers
from pitfall_lab.rules.signals.operand_names import shown, written_as
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

ADDS = spellings("index_add", "index_reduce", "scatter_add", "scatter_reduce", in_place=True)  # fmt: skip
PRODUCTS = ("matmul", "mm", "mv")
"""Products with a one-hot table, which select a row or add rows."""
LOOKS_UP = {"__getitem__", "index_select", "gather", "take", "embedding", *PRODUCTS}
"""Calls that give each row the mean of its category."""
LAYERS = ("linear", "matmul", "mm", "addmm", "mv", "conv1d")
"""Layers whose input has one row for each example."""
LOSSES = (
    spellings("sub") | operations_that("difference_loss")
    | {"binary_cross_entropy", "binary_cross_entropy_with_logits", "cross_entropy", "nll_loss", "poisson_nll_loss"}
)  # fmt: skip
"""The losses, and the difference, that compare a row's prediction with its target."""
SAME = SAME_NUMBERS | {"long", "int", "bool", "type", "half", "index_select"}
"""Calls that category numbers are followed through: the result has numbers of the same categories."""
UPWARD, DOWNWARD, CALLS = 600, 200, 6
MOST = 20.0
"""The mean number of rows of a category from which on one row is only a small part of the category's mean."""
FEWEST = 8
EMPTY = 0.25


@dataclass(frozen=True, slots=True)
class Encoded:
    """``added`` is the call (``Event``) that summed up or averaged the tensor ``targets`` by the tensor ``categories``
    (both are labels); ``looked_up`` is the call that gave each row the number of its category.

    ``loss`` is the call that compares these targets with the predictions of a network for the rows. ``rows`` is the
    mean number of rows of a category, as far as is known.
    """

    added: Event
    categories: str
    targets: str
    looked_up: Event
    loss: Event
    rows: float


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that gives rows the mean target of their category, which includes the row's own
    target, where a network is then trained to predict that target from this mean.

    Only if categories have fewer than ``MOST`` rows on average, and a backward ran.
    """
    told = set()
    losses = None
    for event in story.calls(*ADDS, "bincount", *PRODUCTS) if story.backwards() else ():
        given = _added(story, event)
        if given is None:
            continue
        losses = list(_losses(story)) if losses is None else losses
        for looked_up in _looked_up(story, event, given[0]):
            place = story.span(looked_up.step)
            found = _encoded(story, event, given, looked_up, losses) if place not in told else None
            if found is not None:
                told.add(place)
                yield _finding(story, found)


def _added(story: Story, event: Event) -> tuple[str, str] | None:
    """Return the categories and the targets that a call summed or counted by category; None if it is no such call, or
    the targets require grad or have fewer than ``FEWEST`` rows.
    """
    given = [o.label for o in event.operands if o.label is not None]
    if event.error is not None or not event.results:
        return None
    if event.name in ADDS and len(given) == 3:
        index, source = given[1:]
    elif event.name == "bincount" and len(given) == 2:
        index, source = given
    elif event.name in PRODUCTS and len(given) == 2 and (coded := _coded(story, given[0], event.step)) is not None:
        index, source = coded, given[1]
    else:
        return None
    rows, more = story.shape(index, event.step) or (0,), story.shape(source, event.step) or (0,)
    plain = not (story.tensor(source, event.step) or {}).get("requires_grad")
    return (index, source) if plain and rows[0] == more[0] >= FEWEST else None


def _coded(story: Story, label: str, step: int) -> str | None:
    """Return the categories whose one-hot code a tensor is, apart from views and conversions; None if there are
    none.
    """
    for _ in range(CALLS):
        made = story.event((story.tensor(label, step) or {}).get("born"))
        source = made.operands[0].label if made is not None and made.operands and label in made.results else None
        if made is None or source is None:
            return None
        if made.name == "one_hot":
            return source
        if made.name not in SAME:
            return None
        label, step = source, made.step
    return None


def _of(story: Story, label: str, step: int) -> Hashable:
    """Return a key that is equal for categories and for their views and conversions."""
    for _ in range(CALLS):
        label = same_numbers(story, label, step)
        made = story.event((story.tensor(label, step) or {}).get("born"))
        if made is None or made.name not in ("long", "int") or label not in made.results:
            break
        label, step = str(made.operands[0].label), made.step
    return key(story, label, step)


def _looked_up(story: Story, added: Event, categories: str) -> Iterator[Event]:
    """Yield the calls that select, for each row, the value of its category from the sums or from a tensor computed from
    them.
    """
    wanted = _of(story, categories, added.step)
    count = (story.shape(added.results[0], added.step) or (0,))[0]
    pending, seen = deque([added.results[0]]), {added.results[0]}
    while pending and len(seen) < DOWNWARD:
        label = pending.popleft()
        for use in story.uses(label):
            if use.step <= added.step or use.error is not None or not use.results:
                continue
            given = [o.label for o in use.operands if o.label is not None]
            if use.name in LOOKS_UP and len(given) == 2:
                index = next(each for each in (*given, label) if each != label or given[0] == given[1])
                coded = _coded(story, index, use.step) if use.name in PRODUCTS else index
                if coded is not None and _of(story, coded, use.step) == wanted:
                    yield use
                    continue
            result = use.results[0]
            if result not in seen and (story.shape(result, use.step) or (0,))[0] == count:
                seen.add(result)
                pending.append(result)


def _losses(story: Story) -> Iterator[tuple[Event, str, str, str]]:
    """Yield the losses of a training, each with the storage of its target's numbers, the target and the prediction;
    only the first of each line.
    """
    places = set()
    for loss in story.calls(*LOSSES):
        labels = [o.label for o in loss.operands[:2] if o.label is not None]
        place = story.span(loss.step)
        if len(labels) != 2 or loss.error is not None or not loss.results or place in places:
            continue
        taught = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
        graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn")
        if taught.count(True) == 1 and (story.record("nodes", graph) or {}).get("ran") is not None:
            target, guess = labels[taught.index(False)], labels[taught.index(True)]
            places.add(place)
            yield loss, _memory(story, target, loss.step), target, guess


def _memory(story: Story, label: str, step: int) -> str:
    """Return the storage of the tensor from which the numbers of ``label``, all or some of them, were copied or
    converted.
    """
    for _ in range(UPWARD):
        record = story.tensor(label, step) or {}
        made = story.event(record.get("born"))
        source = made.operands[0].label if made is not None and made.operands and label in made.results else None
        if made is None or made.name not in SAME or source in (None, label):
            break
        label, step = str(source), made.step
    return str((story.tensor(label, step) or {}).get("storage"))


def _encoded(
    story: Story, added: Event, given: tuple[str, str], looked_up: Event, losses: list[tuple[Event, str, str, str]]
) -> Encoded | None:
    """Return the data of the finding if a network learns the targets from the selected means, and its input contains
    them in no other way; else None.
    """
    memory = _memory(story, given[1], added.step)
    rows = _rows(story, added, given[0])
    if rows is None or rows >= MOST:
        return None
    for loss, other, _, guess in losses:
        if other == memory and loss.step > looked_up.step and _learns(story, guess, loss, looked_up, memory):
            return Encoded(added, *given, looked_up, loss, rows)
    return None


def _rows(story: Story, added: Event, categories: str) -> float | None:
    """Return the mean number of rows of a category; None if there are no categories.

    If fewer than the fraction ``EMPTY`` of the known sums are nonzero, the categories with sum 0 count as empty.
    """
    count = (story.shape(added.results[0], added.step) or (0,))[0]
    known = list(story.held(added.results[0], added.step).values())
    full = sum(1 for each in known if each) / len(known) if known else 1.0
    rows = (story.shape(categories, added.step) or (0,))[0]
    full = full if full < EMPTY else 1.0
    return rows / (count * full) if count and full else None


def _learns(story: Story, guess: str, loss: Event, looked_up: Event, memory: str) -> bool:
    """Whether the prediction was computed by a layer whose input contains the selected means and otherwise none of the
    targets, as a mean without the row's own target would.
    """
    pending, seen = deque([(guess, loss.step)]), {guess}
    while pending and len(seen) < UPWARD:
        label, step = pending.popleft()
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            continue
        labels = [o.label for o in event.operands if o.label is not None]
        free = [each for each in labels if not (story.tensor(each, event.step) or {}).get("requires_grad")]
        layer = event.name in LAYERS and len(free) < len(labels) and free
        if layer and _contains(story, free[0], event.step, looked_up, memory):
            return True
        for each in labels:
            if each not in free and each not in seen:
                seen.add(each)
                pending.append((each, event.step))
    return False


def _contains(story: Story, label: str, step: int, looked_up: Event, memory: str) -> bool:
    """Whether a layer's input was computed from the selected means, and from the targets in no other way except as
    single numbers.
    """
    pending, seen, found = deque([(label, step)]), {label}, False
    while pending and len(seen) < UPWARD:
        here, at = pending.popleft()
        record = story.tensor(here, at) or {}
        if record.get("storage") == memory:
            return False
        event = story.event(record.get("born"))
        if all(n == 1 for n in record.get("shape") or ()) or event is None or here not in event.results:
            continue
        if event.step == looked_up.step:
            found = True
            continue
        for each in (o.label for o in event.operands if o.label is not None):
            if each not in seen and event.kind == "call":
                seen.add(each)
                pending.append((each, event.step))
    return found


def _finding(story: Story, found: Encoded) -> Finding:
    step = found.looked_up.step
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.added.step))
    used = at_line(story, story.span(found.loss.step))
    targets, categories = (shown(story, found.added, each) for each in (found.targets, found.categories))
    rows, share = number(found.rows, 2), f"{min(1.0, 1 / found.rows):.0%}"
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} gives each row the mean of {targets.en} over the rows of its category, its own "
            f"target among them: with about {rows} rows in a category, about {share} of that number is the answer that "
            f"{used.en} teaches.",
            zh=f"{here.zh}给每一行它所在类别的 {targets.zh} 的均值，其中包含这一行自己的目标：每个类别约有 {rows} "
            f"行，这个数约有 {share} 就是{used.zh}要教的答案。",
        ),
        T(
            en=f"{capital(there.en)} adds up {targets.en} by {categories.en}, and the same rows look their sums up "
            "again. In the training the network reads its answer off this feature; a new row's target is not in it, "
            "and there the feature is worth far less than the network has learned to believe. Let each row's number "
            "come from other rows: from another fold, or without the row itself.",
            zh=f"{there.zh}按 {categories.zh} 累加 {targets.zh}，而同样的行又查到自己参与的和。训练时网络从这个特征里"
            "直接读出答案；新的行的目标不在其中，那时这个特征的价值远低于网络学到的程度。请让每一行的数来自别的行：来"
            "自另一折，或去掉这一行自己。",
        ),
        related=[
            story.related("made", found.added.step, T(en="the targets are added up here", zh="目标在这里累加")),
            story.related("used", found.loss.step, T(en="the same targets are taught here", zh="在这里教同样的目标")),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("rows", round(found.rows, 3), story.by(step))],
    )


def _fixes(story: Story, found: Encoded) -> tuple[Fix, ...]:
    """Fixes that compute each half of the rows from the other half, or that leave out the row's own target.

    Only if the table is a variable to which one expression is assigned in the same function.
    """
    program = story.program
    node = program.at(story.span(found.looked_up.step)) if program.tree is not None else None
    torch = torch_name(program)
    if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name) or torch is None:
        return ()
    made = [
        each
        for each in program.nodes
        if isinstance(each, ast.Assign)
        and program.function(each) is program.function(node)
        and any(isinstance(t, ast.Name) and t.id == node.value.id for t in each.targets)
    ]
    rows = operand(program, node.slice)
    if len(made) != 1:
        return ()
    whole = made[0].value
    names = [n for n in ast.walk(whole) if isinstance(n, ast.Name)]
    targets = _names(story, found.targets) | _names(story, found.categories)
    fixes = list[Fix]()
    if any(n.id == rows for n in names):
        half, parts = f"len({rows}) // 2", list[str]()
        for learned, taken in ((f"[{half}:]", f"[:{half}]"), (f"[:{half}]", f"[{half}:]")):
            changes: list[tuple[ast.AST, str]] = [
                (n, f"{n.id}{learned}") for n in names if n.id in targets or n.id == rows
            ]
            parts.append(f"{program.rewritten(whole, *changes)}[{rows}{taken}]")
        title = T(en="Compute each half of the rows from the other half", zh="用另一半的行来计算每一半的行")
        fixes.append(Fix(title, program.replace((node, f"{torch}.cat([{', '.join(parts)}])")), meaning="later"))
    given = written_as(story, found.added, found.targets)
    own = next(iter(sorted(_names(story, found.targets))), operand(program, given) if given is not None else None)
    storage = (story.tensor(found.added.results[0]) or {}).get("storage")
    left = list[tuple[ast.AST, str]]()
    for each in names:
        label = next((t for t, r in story.tensors.items() if each.id in (r.get("names") or ())), None)
        if label is None or (story.shape(label) or (0,))[0] != (story.shape(found.added.results[0]) or (1,))[0]:
            continue
        less = own if (story.tensor(label) or {}).get("storage") == storage else "1" if _counts(story, label) else None
        left.append((each, f"({each.id}[{rows}] - {less})" if less is not None else f"{each.id}[{rows}]"))
    if left and own is not None and f"- {own})" in str(left):
        title = T(en="Leave out the row's own target", zh="去掉这一行自己的目标")
        fixes.append(Fix(title, program.replace((node, f"({program.rewritten(whole, *left)})")), meaning="later"))
    return unique(program.text, fixes)


def _names(story: Story, label: str) -> set[str]:
    return {str(name) for _, each in story.history("tensors", label, "names") for name in each or ()}


def _counts(story: Story, label: str) -> bool:
    """Whether a tensor counts the rows of each category, apart from conversions and limits."""
    label = same_numbers(story, label, len(story.events))
    for event in story.calls("bincount", *ADDS):
        if label in event.results:
            given = [o.label for o in event.operands if o.label is not None]
            ones = story.held(given[-1], event.step).values() if len(given) == 3 else ()
            return (event.name == "bincount" and len(given) == 1) or (bool(ones) and set(ones) == {1})
    return False


RULE = Rule(
    code="PL945",
    name="encoding-contains-its-target",
    severity="warning",
    title=T(en="The mean target of a category contains the row's own target", zh="类别的目标均值包含这一行自己的目标"),
    what=T(
        en="A program replaces a category by the mean of what is to be predicted over all rows of that category, and "
        "lets a network learn from it with these very rows. With few rows in a category the number tells the answer. "
        "Compute the mean for each row from other rows, those of another fold for example.",
        zh="程序用一个类别中所有行的待预测量的均值来代替这个类别，并让网络就用这些行来学习。类别中的行很少时，这个数"
        "就说出了答案。请让每一行的均值来自别的行，例如另一折的行。",
    ),
    why=T(
        en="`index_add_(0, c, y)` adds the target of every row to the place of its category, and `table[c]` reads the "
        "places again, row by row. Nothing in the shapes says whose targets are in a number. In a category of one row "
        "the mean is the target itself, in one of two rows half of it. New rows are looked up in the same table, and "
        "their targets are not in it: the training loss falls, and the loss on them rises.",
        zh="`index_add_(0, c, y)` 把每一行的目标加到它的类别的位置上，`table[c]` 再逐行读出这些位置。形状并不说明一个数"
        "里有谁的目标。只有一行的类别，均值就是目标本身；有两行时占一半。新的行也在同一张表里查，但它们的目标不在其"
        "中：训练损失下降，而新行上的损失上升。",
    ),
    advice=T(
        en="compute what {line} looks up from other rows: from another fold, or without the row itself.",
        zh="{line}查到的数应由别的行计算：来自另一折，或去掉这一行自己。",
    ),
    bad="""import torch

torch.manual_seed(0)
city, paid = torch.randint(0, 8, (24,)), torch.randn(24)
total = torch.zeros(8).index_add_(0, city, paid)  # made
count = torch.bincount(city, minlength=8)
mean = total / count.clamp(min=1)
x = mean[city].unsqueeze(1)  # PL945
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    loss = torch.nn.functional.mse_loss(net(x).squeeze(1), paid)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
city, paid = torch.randint(0, 8, (24,)), torch.randn(24)
total = torch.zeros(8).index_add_(0, city, paid)
count = torch.bincount(city, minlength=8)
x = ((total[city] - paid) / (count[city] - 1).clamp(min=1)).unsqueeze(1)
net = torch.nn.Linear(1, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(20):
    loss = torch.nn.functional.mse_loss(net(x).squeeze(1), paid)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "x = mean[city].unsqueeze(1)",
            "x = (mean[city] - paid.mean()).unsqueeze(1)",
            T(
                en="To subtract the mean of all rows moves every number by the same amount: the own target stays in "
                "it.",
                zh="减去所有行的均值只是把每个数移动同样的量：自己的目标仍在其中。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.Tensor.index_add_.html",),
)
