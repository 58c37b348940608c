"""PL970: a network is measured with rows that it was trained with, although other rows were set aside for that."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import moved_out, unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.batches import behind
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T

LAYERS = ("linear", "conv1d", "conv2d", "conv3d")
"""Layers whose input has one row for each example."""
UPWARD = 40
SIDES = 2


@dataclass(frozen=True, slots=True)
class TrainingRows:
    """``layer`` is the call (``Event``) of a first layer that was given the rows from ``first`` to before ``last`` of
    the tensor ``table``, which the call ``event`` took as the tensor ``label``. The three tensors named here are
    labels.

    With ``drawn``, ``table`` is a random order of rows (``randperm``), ``label`` a part of it, and ``data`` the tensor
    whose rows were taken by that part; else ``data`` is empty.
    """

    layer: Event
    label: str
    event: Event
    table: str
    first: int
    last: int
    drawn: bool = False
    data: str = ""
    """The table whose rows were taken by a part of an order."""


@dataclass(frozen=True, slots=True)
class MeasuredRows:
    """A network was evaluated on rows (``measured``) that it was trained on (``learned``); both are
    :class:`TrainingRows`.

    ``aside`` is the label of rows that were held out and that no call was given; None where the two only overlap.
    ``anew`` is True where they are parts of orders of different calls of ``randperm``.
    """

    learned: TrainingRows
    measured: TrainingRows
    aside: str | None
    anew: bool = False


@dataclass(frozen=True, slots=True)
class RandomSplitAgain:
    """The line of ``split`` (the call of a ``random_split``, an ``Event``) ran again and drew another order of the
    rows, so that its parts overlap with the earlier ones.

    ``measured`` is the call of a layer that was given a batch of ``rows`` rows to measure with; ``common`` of these had
    trained the network.
    """

    split: Event
    measured: Event
    common: int
    rows: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each network whose held-out rows are never used, or that was measured with rows that it was
    trained with; and at most one for a line that splits a data set at random again and again.

    Only for programs that finished, with an optimizer's step.
    """
    if not story.trace.optimizer_steps or story.trace.stopped is not None or story.trace.outcome.kind != "finished":
        return
    learned: dict[str, dict[str, TrainingRows]] = defaultdict(dict)
    measured: dict[str, dict[str, TrainingRows]] = defaultdict(dict)
    for event in story.calls(*LAYERS) if story.program.tree is not None else ():
        part = _part(story, event)
        if part is not None:
            graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
            trained = (story.record("nodes", graph) or {}).get("ran") is not None
            (learned if trained else measured)[str(event.operands[1].label)].setdefault(part.label, part)
    for weight, parts in learned.items():
        found = _overlapping(story, parts, measured[weight]) or _left(story, parts, measured[weight])
        if found is not None:
            yield _finding(story, found)
    again = _split_again(story)
    if again is not None:
        yield _split_finding(story, again)


def _part(story: Story, layer: Event) -> TrainingRows | None:
    """The slice of a table, or of an order drawn for it, whose rows a first layer was given; None if there is none.

    Of several slices on the way the one of a drawn order, else the one that was made first.
    """
    label = layer.operands[0].label if layer.operands and layer.error is None and layer.results else None
    if label is None or len(layer.operands) < SIDES or layer.operands[1].label not in story.leaves:
        return None
    step, found = layer.step, None
    for _ in range(UPWARD):
        record = story.tensor(label, step) or {}
        made = story.event(record.get("born"))
        if record.get("requires_grad") or made is None or made.kind != "call" or label not in made.results:
            return found
        given = [o.label for o in made.operands if o.label is not None]
        if not given:
            return found
        if made.name == "__getitem__" and len(given) == SIDES:
            part = _slice(story, layer, given[1], made.step, drawn=True)
            if part is not None:
                return replace(part, data=given[0])
        part = _slice(story, layer, label, step, drawn=False)
        found = part if part is not None else found
        if made.name not in SAME_NUMBERS | {"sub", "div"} or given[0] == label:
            return found
        label, step = given[0], made.step
    return found


def _slice(story: Story, layer: Event, label: str, step: int, *, drawn: bool) -> TrainingRows | None:
    """The :class:`TrainingRows` that ``label`` is, if it is a slice of consecutive rows of another
    tensor (``x[100:]``); else None.

    With ``drawn``, that other tensor must be the result of ``randperm``, so that the slice is a
    part of a random order of rows.
    """
    record = story.tensor(label, step) or {}
    made = story.event(record.get("born"))
    if made is None or made.name != "__getitem__" or len([o for o in made.operands if o.label is not None]) != 1:
        return None
    table = str(made.operands[0].label)
    whole, shape = story.shape(table, made.step) or (), story.shape(label, step) or ()
    source = story.tensor(table, made.step) or {}
    if len(shape) != len(whole) or shape[1:] != whole[1:] or not shape or shape[0] >= whole[0] or shape[0] < SIDES:
        return None
    width = (source.get("stride") or [0])[0]
    maker = story.event(source.get("born"))
    if (
        source.get("storage") != record.get("storage")
        or not width
        or (drawn and (maker is None or maker.name != "randperm"))
    ):
        return None
    first = ((record.get("offset") or 0) - (source.get("offset") or 0)) // width
    return TrainingRows(layer, label, made, table, first, first + shape[0], drawn)


def _split_again(story: Story) -> RandomSplitAgain | None:
    """The data of the finding if one line splits a data set at random several times, and a network was trained with
    batches of one split and measured with those of a later one that have rows in common; else None.

    The second split may have run in rounds that were not recorded. Then the rows of a whole pass of the training must
    be known, and the batch must contain some of these rows and some others, as no part of a single split does.
    """
    splits = [e for e in story.calls("randperm") if e.error is None and story.said(e.step) == "random_split"]
    calls = {story.span(each.step) for each in splits}
    node = story.program.at(next(iter(calls))) if len(calls) == 1 else None
    if not isinstance(node, ast.Call) or story.program.function(node) is None or _is_seeded(node):
        return None
    learned: dict[tuple[str | None, str], dict[int, int]] = defaultdict(dict)
    examples: dict[tuple[str | None, str], int] = {}
    for layer in story.calls(*LAYERS):
        weight = layer.operands[1].label if len(layer.operands) >= SIDES and layer.results else None
        batch = next(behind(story, str(layer.operands[0].label), layer.step), None) if weight in story.leaves else None
        if batch is None or layer.error is not None or batch.event.name != "stack":
            continue
        graph, key = (story.tensor(layer.results[0], layer.step) or {}).get("grad_fn"), (weight, batch.storage)
        known = learned[key]
        if (story.record("nodes", graph) or {}).get("ran") is not None:
            known.update(dict.fromkeys(batch.rows, batch.event.step))
            begun = [each for each in story.trace.beside.passes if each.step <= batch.event.step]
            examples[key] = (begun[-1].examples or 0) if begun else 0
            continue
        anew = next((each for each in reversed(splits[1:]) if each.step < batch.event.step), None)
        limit = anew.step if anew is not None else batch.event.step
        common = [row for row in batch.rows if known.get(row, limit) < limit]
        whole = len(known) == examples.get(key) and len(common) < len(batch.rows)
        if common and (anew is not None or whole):
            return RandomSplitAgain(splits[0], layer, len(common), len(batch.rows))
    return None


def _is_seeded(call: ast.Call) -> bool:
    return len(call.args) > SIDES or any(k.arg in ("generator", None) for k in call.keywords)


def _split_finding(story: Story, found: RandomSplitAgain) -> Finding:
    """The finding about a line that splits the data anew each time that it runs."""
    program, span = story.program, story.span(found.split.step)
    here, there = at_line(story, span), at_line(story, story.span(found.measured.step))
    call = program.at(span)
    torch, fixes = torch_name(program), list[Fix]()
    if (
        isinstance(call, ast.Call)
        and torch is not None
        and all(k.arg not in ("generator", None) for k in call.keywords)
    ):
        text = program.segment(call).rstrip()[:-1].rstrip().removesuffix(",")
        new = f"{text}, generator={torch}.Generator().manual_seed(0))"
        title = T(en="Split in the same way each time", zh="每次以同样方式划分")
        fixes = [Fix(title, program.replace((call, new)), meaning="later")]
    return RULE.finding(
        span,
        found.split.step,  # a fix changes what is drawn from here on
        T(
            en=f"{capital(here.en)} splits the rows at random each time that it runs, and {there.en} measures with the "
            f"second split a network that learned from the first: {found.common} of the {found.rows} rows of one batch "
            "are known to be rows that it was trained with.",
            zh=f"{here.zh}每次运行都重新随机划分各行，而{there.zh}用第二次划分来测量从第一次划分学习的网络：一批 "
            f"{found.rows} 行中，已知有 {found.common} 行是训练时用过的。",
        ),
        RULE.why,
        related=[
            story.related("made", found.split.step, T(en="the split to learn from", zh="用来学习的划分")),
            story.related("used", found.measured.step, T(en="the network is measured here", zh="在这里测量网络")),
        ],
        fixes=unique(program.text, fixes),
        facts=[Fact("common", found.common, story.by(found.split.step))],
    )


def _overlapping(
    story: Story, learned: dict[str, TrainingRows], measured: dict[str, TrainingRows]
) -> MeasuredRows | None:
    """The data of the finding if two parts of one random order of the rows, one for training and one for evaluation,
    overlap and neither contains the other, or if the parts are of two random orders (:func:`_is_drawn_anew`); else
    None.
    """
    for one in learned.values():
        for other in measured.values():
            common = min(one.last, other.last) - max(one.first, other.first)
            both = (one.last - one.first, other.last - other.first)
            if one.drawn and other.drawn and one.table == other.table and 0 < common < min(both):
                return MeasuredRows(one, other, None)
            if _is_drawn_anew(story, one, other):
                return MeasuredRows(one, other, None, anew=True)
    return None


def _is_drawn_anew(story: Story, one: TrainingRows, other: TrainingRows) -> bool:
    """Whether two parts of the same data, taken from two different random orders, would together cover all rows: one
    starts at 0, and the other where the first ends.
    """
    if (
        not one.data
        or one.data != other.data
        or one.table == other.table
        or max(one.first, other.first) != min(one.last, other.last)
    ):
        return False
    counts = {story.shape(part.table, part.event.step) for part in (one, other)}
    return counts == {(max(one.last, other.last),)} and min(one.first, other.first) == 0


def _left(story: Story, learned: dict[str, TrainingRows], measured: dict[str, TrainingRows]) -> MeasuredRows | None:
    """The data of the finding if no call uses some rows of a table, and the network is evaluated only with rows that it
    was trained with.

    None if not, or if it was trained with more than one part of the rows.
    """
    if len(learned) != 1 or set(measured) != set(learned):
        return None
    one, other = *learned.values(), *measured.values()
    for event in story.uses(one.table):
        for label in event.results if event.name == "__getitem__" else ():
            part = _slice(story, one.layer, label, event.step, drawn=False)
            apart = part is not None and (part.first >= one.last or part.last <= one.first)
            if apart and not one.drawn and not story.uses(label):
                return MeasuredRows(one, other, label)
    return None


def _place(story: Story, event: Event) -> ast.stmt | None:
    """The innermost statement outside of methods at the network's call; if its function has
    parameters, the call of that function.

    None if there is no such statement.
    """
    chain = []
    for statement in call_chain(story, event):
        function = story.program.function(statement)
        if function is None or not isinstance(story.program.parents.get(function), ast.ClassDef):
            chain.append(statement)
    function = story.program.function(chain[0]) if chain else None
    return chain[1] if function is not None and function.args.args and len(chain) > 1 else chain[0] if chain else None


def _finding(story: Story, found: MeasuredRows) -> Finding:
    one, other = found.learned, found.measured
    place = _place(story, other.layer)
    if found.anew:
        return _drawn_anew(story, one, other)
    if found.aside is None:
        span, step = story.span(other.event.step), other.event.step
        here, there, count = (
            at_line(story, span),
            at_line(story, story.span(one.event.step)),
            min(one.last, other.last) - max(one.first, other.first),
        )
        return RULE.finding(
            span, step,
            T(
                en=f"{capital(here.en)} takes {count} rows to measure with that {there.en} takes to learn from, too.",
                zh=f"{here.zh}用来测量的行中，有 {count} 行也被{there.zh}用来学习。",
            ),
            RULE.why,
            related=[story.related("made", one.event.step, T(en="the rows to learn from", zh="用来学习的行"))],
            fixes=_apart(story, found),
            facts=[Fact("common", count, story.by(step))],
        )  # fmt: skip
    span, step = story.program.place(place) if place is not None else story.span(other.layer.step), other.layer.step
    born = (story.tensor(found.aside) or {}).get("born")
    here, there, rows = (
        at_line(story, span),
        at_line(story, story.span(born)),
        expression(story, found.aside, born or step),
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} measures the network with rows that it was trained with; {rows.en} ({there.en}), "
            "set aside, is never used.",
            zh=f"{here.zh}用训练过的行来测量网络；而留出的 {rows.zh}（{there.zh}）从未用到。",
        ),
        RULE.why,
        related=[story.related("made", born, T(en="no call was given these rows", zh="没有任何调用得到这些行"))],
        fixes=_other_loader(story, place),
        facts=[Fact("aside", found.aside, story.by(step))],
    )


def _drawn_anew(story: Story, one: TrainingRows, other: TrainingRows) -> Finding:
    """The finding about rows to measure with that come from another random order than those that trained.

    With a fix that draws the order before, if one statement drew both.
    """
    program, span = story.program, story.span(other.event.step)
    orders = [(story.tensor(part.table) or {}).get("born") for part in (one, other)]
    here, count = at_line(story, span), other.last - other.first
    statement = program.statement_at(story.span(orders[1]))
    same = story.span(orders[0]) == story.span(orders[1])
    edits = moved_out(program, statement) if same and isinstance(statement, ast.Assign) else None
    title = T(en="Draw the order once, and take both parts of it", zh="只抽取一次次序，两部分都取自它")
    return RULE.finding(
        span,
        other.event.step,
        T(
            en=f"{capital(here.en)} takes {count} rows to measure with from another random order than those to learn "
            "from: they are not the rows that were left out.",
            zh=f"{here.zh}用来测量的 {count} 行取自另一个随机次序，而不是用来学习的那个：它们不是留出的那些行。",
        ),
        RULE.why,
        related=[
            story.related("made", orders[0], T(en="the order of the rows to learn from", zh="用来学习的行的次序")),
            story.related("made", orders[1], T(en="the order of the rows to measure with", zh="用来测量的行的次序")),
        ],
        fixes=unique(program.text, [Fix(title, edits, meaning="later")]) if edits is not None else (),
        facts=[Fact("rows", count, story.by(other.event.step))],
    )


def _apart(story: Story, found: MeasuredRows) -> tuple[Fix, ...]:
    """Fixes that let the evaluation's slice begin where the training's slice ends.

    Empty if it is no slice in the program's source, or if the training's slice begins after it.
    """
    program, one, other = story.program, found.learned, found.measured
    node = program.at(story.span(other.event.step))
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice) or one.first > other.first:
        return ()
    end = program.segment(node.slice.upper) if node.slice.upper is not None else ""
    title = T(en="Begin where the other part ends", zh="从另一部分的末尾开始")
    return unique(
        program.text,
        [Fix(title, program.replace((node, f"{program.segment(node.value)}[{one.last}:{end}]")), meaning="later")],
    )


def _other_loader(story: Story, place: ast.stmt | None) -> tuple[Fix, ...]:
    """At most one fix: it evaluates with the only ``DataLoader`` that the program assigns to a name and never reads.

    Empty if there is not exactly one, or if ``place`` does not name exactly one loader.
    """
    program = story.program
    made = [
        n
        for n in program.nodes
        if isinstance(n, ast.Assign) and isinstance(n.value, ast.Call) and call_name(n.value) == "DataLoader"
    ]
    names = {program.segment(n.targets[0]) for n in made}
    read = [n for n in program.nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
    unread = sorted(names - {n.id for n in read})
    given = (
        [n for n in ast.walk(place) if n in read and isinstance(n, ast.Name) and n.id in names]
        if place is not None
        else []
    )
    if len(unread) != 1 or len(given) != 1:
        return ()
    title = T(en=f"Measure with `{unread[0]}`", zh=f"用 `{unread[0]}` 来测量")
    return unique(program.text, [Fix(title, program.replace((given[0], unread[0])), meaning="later")])


RULE = Rule(
    code="PL970",
    name="measured-on-training-rows",
    severity="warning",
    title=T(en="A network is measured with the rows that it learned from", zh="用学习过的行来测量网络"),
    what=T(
        en="A program sets rows of its data aside, to see how well a network does with what it has never seen, and "
        "then measures with rows that it was trained with. The number says how much was learned by heart. Measure "
        "with the rows that were set aside.",
        zh="程序从数据中留出一些行，想看看网络对没见过的数据表现如何，测量时却用了训练过的行。得到的数只说明背下了多"
        "少。请用留出的行来测量。",
    ),
    why=T(
        en="Both parts have the same shape and type, so nothing tells them apart but their rows. A network with "
        "enough parameters can store the answers of its training rows; on them its error falls even where it has "
        "learned nothing of use, and early stopping or a choice between models that looks at this number never "
        "sees the difference.",
        zh="两部分的形状与类型相同，只有行号能区分它们。参数足够多的网络可以记住训练行的答案；即使没有学到有用的东西，"
        "它在这些行上的误差也会下降，依据这个数来提前停止或挑选模型就看不出差别。",
    ),
    advice=T(
        en="measure on {line} with rows that the network was not trained with.",
        zh="{line}请用没有参与训练的行来测量。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 3)
y = x.sum(1, keepdim=True) + torch.randn(12, 1)
learn = DataLoader(TensorDataset(x[:8], y[:8]), batch_size=4, shuffle=True)
test = DataLoader(TensorDataset(x[8:], y[8:]), batch_size=4)  # made
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for inputs, wanted in learn:
        loss = torch.nn.functional.mse_loss(net(inputs), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()


def error(loader):
    with torch.no_grad():
        return sum((net(inputs) - wanted).abs().sum().item() for inputs, wanted in loader)


print(error(learn))  # PL970
""",
    good="""import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
x = torch.randn(12, 3)
y = x.sum(1, keepdim=True) + torch.randn(12, 1)
learn = DataLoader(TensorDataset(x[:8], y[:8]), batch_size=4, shuffle=True)
test = DataLoader(TensorDataset(x[8:], y[8:]), batch_size=4)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for inputs, wanted in learn:
        loss = torch.nn.functional.mse_loss(net(inputs), wanted)
        opt.zero_grad()
        loss.backward()
        opt.step()


def error(loader):
    with torch.no_grad():
        return sum((net(inputs) - wanted).abs().sum().item() for inputs, wanted in loader)


print(error(test))
""",
    find=find,
    traps=(
        Trap(
            "batch_size=4, shuffle=True",
            "batch_size=8, shuffle=True",
            T(
                en="Other batches are made of the same rows.",
                zh="换一种批大小，用的仍是同样的行。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html",),
)
