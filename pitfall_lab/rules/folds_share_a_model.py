"""PL982: a network trained in one fold of a cross-validation is trained further in the next, and is measured with rows
that it has learned from.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.text_origins import parameters
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.batches import behind
from pitfall_lab.rules.signals.seeds import INITS
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LAYERS = ("linear", "conv1d", "conv2d", "conv3d", "embedding")
"""Layers that have a weight, by whose calls a network is recognised."""
SET = {*INITS, "copy_", "zero_", "fill_", "constant_"}
"""Writes that give a weight new numbers: its training then starts again."""
UPWARD, MOST = 12, 40

Piece = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class FoldsShareAModel:
    """One fold of a cross-validation for a network that several folds share.

    ``learned`` are the rows that it was trained with (tuples made by :func:`_pieces`), and ``trained`` the last such
    call (``Event``) of a layer; ``held_out`` are the rows that it was measured with after that, and ``measured`` the
    first such call.
    """

    trained: Event
    learned: frozenset[Piece]
    measured: Event
    held_out: frozenset[Piece]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each network that two folds train one after the other, each with the rows that the other
    one holds out, without setting the weights anew in between.

    Nothing if no backward ran.
    """
    reported = set()
    found = (_folds(story, from_first=each) for each in (False, True)) if story.backwards() else ()
    for weight, folds in (each for one in found for each in one.items()):
        pair = next(
            ((a, b) for a, b in pairwise(folds) if _are_folds(a, b) and not _begins_anew(story, weight, a, b)), None
        )
        if pair is not None and pair[1].measured.span not in reported:
            reported.add(pair[1].measured.span)
            yield _finding(story, weight, *pair, count=len(folds))


def _folds(story: Story, *, from_first: bool) -> dict[str, list[FoldsShareAModel]]:
    """Return, for each weight that is applied to the rows themselves, its folds in order: the rows that it was trained
    with, and those that it was measured with after that.

    ``from_first``: rows of a table that was itself selected from another count as those of the first table. Only
    weights with at least two folds, and at most ``MOST`` folds of each.
    """
    learned: dict[str, tuple[Event, frozenset[Piece]]] = {}
    found: dict[str, list[FoldsShareAModel]] = {}
    for event in story.calls(*LAYERS):
        place = 0 if event.name != "embedding" or event.operands[0].label not in story.leaves else 1
        weight = (
            event.operands[1 - place].label
            if len(event.operands) > 1 and event.error is None and event.results
            else None
        )
        pieces = (
            _pieces(story, event.operands[place].label, event.step, from_first=from_first)
            if weight in story.leaves and weight is not None
            else None
        )
        if weight is None or not pieces:
            continue
        graph = (story.tensor(event.results[0], event.step) or {}).get("grad_fn")
        if (story.record("nodes", graph) or {}).get("ran") is not None:
            before = learned.get(weight)
            known = found.get(weight, [])
            goes_on = before is not None and not (known and known[-1].trained is before[0])
            learned[weight] = event, pieces | (before[1] if before is not None and goes_on else frozenset())
        elif weight in learned:
            trained, rows = learned[weight]
            folds = found.setdefault(weight, [])
            same = bool(folds) and folds[-1].learned == rows
            if same:
                folds[-1] = FoldsShareAModel(trained, rows, folds[-1].measured, folds[-1].held_out | pieces)
            elif len(folds) < MOST:
                folds.append(FoldsShareAModel(trained, rows, event, pieces))
    return {weight: folds for weight, folds in found.items() if len(folds) > 1}


def _pieces(story: Story, label: str | None, step: int, *, from_first: bool) -> frozenset[Piece]:
    """Return the rows that the tensor ``label`` consists of, as a set of tuples that can be compared; empty if they are
    not known.

    A tuple is a slice of a permutation or of a table, a mask, or a row that a loader stacked. With ``from_first``, for
    a batch of a table that was selected from another, as in ``x[rest][batch]``, the set describes the whole selection
    ``x[rest]``.
    """
    for _ in range(UPWARD):
        record = story.tensor(label, step) or {}
        made = story.event(record.get("born"))
        if label is None or record.get("requires_grad") or made is None or label not in made.results:
            return frozenset()
        given = [o.label for o in made.operands if o.label is not None]
        selects = ("__getitem__", "index_select", "narrow", "split", "chunk", "unbind", "tensor_split")
        if from_first and given and made.name in selects:
            earlier = _pieces(story, given[0], made.step, from_first=True)
            if earlier:
                return earlier
        if made.name == "stack":
            batches = tuple(behind(story, label, step))
            tables = {batch.storage for batch in batches} if from_first else set()
            earlier = frozenset().union(*(_of_table(story, table, made.step) for table in tables))
            return earlier or frozenset(("row", batch.storage, row) for batch in batches for row in batch.rows)
        if made.name in ("__getitem__", "index_select") and len(given) > 1:
            return _of_index(story, given[1], made.step)
        if made.name in ("__getitem__", "narrow", "split", "chunk", "unbind", "tensor_split") and given:
            return _by_array(story, given[0], made.step) or frozenset(_slice(story, given[0], label, made.step))
        if made.name == "cat" and given:
            parts = [_pieces(story, each, made.step, from_first=from_first) for each in given]
            return frozenset().union(*parts) if all(parts) else frozenset()
        if made.name not in SAME_NUMBERS | {"sub", "div"} or not given or given[0] == label:
            return frozenset()
        label, step = given[0], made.step
    return frozenset()


def _by_array(story: Story, table: str, step: int) -> frozenset[Piece]:
    """Return the rows that a call selected from a table by an array or a list, as tuples; for a long table only some of
    them, and empty if the trace does not have them.
    """
    storage = (story.tensor(table, step) or {}).get("storage")
    return frozenset(("row", storage, row) for row in story.picked.get(step, ()))


def _of_table(story: Story, storage: str, step: int) -> frozenset[Piece]:
    """Return the rows as which the first tensor on the storage ``storage`` was selected from another table; empty if it
    was not.
    """
    first = next((label for label, record in story.tensors_on(storage) if (record.get("born") or 0) < step), None)
    return _pieces(story, first, step, from_first=True) if first is not None else frozenset()


def _of_index(story: Story, index: str, step: int) -> frozenset[Piece]:
    """Return the tuples of an index: its slices of positions, or the mask that it is; for ``~mask`` the tuple of the
    mask after ``"not"``.
    """
    record = story.tensor(index, step) or {}
    made = story.event(record.get("born"))
    if record.get("dtype") == "bool":
        given = next((o.label for o in made.operands if o.label is not None), None) if made is not None else None
        if made is not None and made.name in spellings("bitwise_not", "logical_not") and given is not None:
            return frozenset((("not", *_mask(story, given, made.step)),))
        return frozenset((_mask(story, index, step),))
    if made is not None and made.name == "cat" and index in made.results:
        return frozenset(_piece(story, o.label, made.step) for o in made.operands if o.label is not None)
    return frozenset((_piece(story, index, step),))


def _mask(story: Story, label: str, step: int) -> Piece:
    """Return the tuple of a mask.

    A comparison with a number (``fold == 2``) is described by its operands, with ``"not"`` before it for ``!=``; any
    other mask by its label.
    """
    made = story.event((story.tensor(label, step) or {}).get("born"))
    name = made.name.strip("_") if made is not None and label in made.results else ""
    if made is not None and name in ("eq", "ne") and len(made.operands) > 1 and made.operands[1].label is None:
        said = ("mask", made.operands[0].label, made.operands[1].text)
        return said if name == "eq" else ("not", *said)
    return ("mask", label, "")


def _piece(story: Story, label: str, step: int) -> Piece:
    """Return the tuple of a vector of positions: the storage of the permutation, the vector's offset in it, and its
    length.
    """
    record = story.tensor(label, step) or {}
    return ("piece", record.get("storage"), int(record.get("offset") or 0), int((record.get("shape") or [0])[0]))


def _slice(story: Story, table: str, label: str, step: int) -> Iterator[Piece]:
    """Yield, at most once, the tuple of consecutive rows of a table: its storage, the first row, and the number of
    rows.
    """
    whole, part = story.tensor(table, step) or {}, story.tensor(label, step) or {}
    full, shape, stride = (
        list(whole.get("shape") or ()),
        list(part.get("shape") or ()),
        (whole.get("stride") or [0])[:1],
    )
    if (
        whole.get("storage") == part.get("storage")
        and len(full) == len(shape)
        and full[1:] == shape[1:]
        and stride
        and stride[0]
    ):
        first = (int(part.get("offset") or 0) - int(whole.get("offset") or 0)) // stride[0]
        yield ("piece", whole.get("storage"), first, shape[0])


def _meet(one: frozenset[Piece], other: frozenset[Piece]) -> bool:
    """Whether two sets of rows are known to have rows in common."""
    return bool(one & other) or any(
        _overlap(a, b) or _overlap(b, a) for a in one for b in other if a[0] != "row" or b[0] != "row"
    )


def _overlap(a: Piece, b: Piece) -> bool:
    if a[0] == "not" and b[0] == "mask":
        return a[2] == b[1] and a[3] != b[2]
    if a[0] != "piece" or b[0] != "piece" or a[1] != b[1]:
        return False
    (first, count), (start, length) = ((int(str(x[2])), int(str(x[3]))) for x in (a, b))
    return first < start + length and start < first + count


def _are_folds(a: FoldsShareAModel, b: FoldsShareAModel) -> bool:
    """Whether each fold trains with rows that the other one holds out, and with none that it holds out itself."""
    crossed = _meet(a.learned, b.held_out) and _meet(b.learned, a.held_out)
    return crossed and not _meet(a.learned, a.held_out) and not _meet(b.learned, b.held_out)


def _begins_anew(story: Story, weight: str, a: FoldsShareAModel, b: FoldsShareAModel) -> bool:
    """Whether the weight is set to initial, random or loaded numbers between two folds."""
    memory = (story.tensor(weight) or {}).get("storage")
    between = story.writes(str(memory), a.trained.step, b.trained.step)
    return any(story.events[at].name in SET for at in between) or any(
        use.op.endswith("data.__set__") and a.trained.step < use.step < b.trained.step for use in story.uses(weight)
    )


def _finding(story: Story, weight: str, a: FoldsShareAModel, b: FoldsShareAModel, *, count: int) -> Finding:
    span = story.span(b.measured.step)
    here, there = at_line(story, span), at_line(story, story.span(a.trained.step))
    born = (story.tensor(weight) or {}).get("born")
    return RULE.finding(
        span,
        b.measured.step,
        T(
            en=f"{capital(here.en)} measures a network with rows that {there.en} trained it with, in the fold before: "
            "its weights are carried over from fold to fold.",
            zh=f"{here.zh}用来测量网络的行，在前一折中已被{there.zh}用来训练它：它的权重从一折带到了下一折。",
        ),
        T(
            en="In a cross-validation each part of the rows is held out once, and all others train. A network that is "
            "made once has been trained with every part after two folds, so from the second one on it is measured "
            "with rows that it knows. Make the network, and its optimizer, anew in each fold.",
            zh="在交叉验证中，每一部分行都被留出一次，其余的用来训练。只创建一次的网络在两折之后已用每一部分训练过，所"
            "以从第二折开始，测量用的都是它见过的行。请在每一折里重新创建网络和它的优化器。",
        ),
        related=[
            story.related(
                "step",
                a.trained.step,
                T(en="trained here with these rows, in the fold before", zh="前一折在这里用这些行训练"),
            ),
            story.related("made", born, T(en="the network is made once, here", zh="网络只在这里创建一次")),
        ],
        fixes=_fixes(story, weight, a, b),
        facts=[Fact("folds", count)],
    )


def _fixes(story: Story, weight: str, a: FoldsShareAModel, b: FoldsShareAModel) -> tuple[Fix, ...]:
    """At most one fix: it moves the statements that create the network and its optimizer into the loop over the folds.

    Empty unless both are in the block of that loop, before it, the loop trains and measures, and nothing between them
    reads the variables. An optimizer that each fold creates is not moved.
    """
    program = story.program
    born = story.event((story.tensor(weight) or {}).get("born"))
    holders = [each for each in story.trace.optimizers if weight in each.holds]
    chains = [list(call_chain(story, event)) for event in (born, a.trained, b.measured) if event is not None]
    if not holders or len(chains) < len(("made", "trained", "measured")):
        return ()
    is_new = any(a.trained.step < each.step < b.trained.step for each in holders)
    step = None if is_new else program.statement_at(holders[-1].span)
    inner = [node for each in chains[1] for node in (each, *program.ancestors(each))]
    loop = next(
        (
            node
            for node in inner
            if isinstance(node, ast.For | ast.While) and any(each in program.block(node) for each in chains[0])
        ),
        None,
    )
    if loop is None or (step is None and not is_new):
        return ()
    block = program.block(loop)
    makes = next(each for each in chains[0] if each in block)
    moved = [makes] if step is None else [makes, step]
    before = block[: block.index(loop)]
    if not all(each in before and program.stands_alone(each) for each in moved):
        return ()
    if not any(each in ast.walk(loop) for each in chains[2]):
        return ()
    names = {
        n.id
        for each in moved
        if isinstance(each, ast.Assign)
        for t in each.targets
        for n in ast.walk(t)
        if isinstance(n, ast.Name)
    }
    reads = [
        each
        for each in before
        if each not in moved and any(isinstance(n, ast.Name) and n.id in names - _own(each) for n in ast.walk(each))
    ]
    if reads:
        return ()
    begin = program.insert_before(loop.body[0], *map(program.segment, moved))
    edits = merge(*map(program.delete, moved), begin)
    title = (
        T(en="Make the network anew in each fold", zh="每一折都重新创建网络")
        if step is None
        else T(en="Make the network and its optimizer anew in each fold", zh="每一折都重新创建网络和优化器")
    )
    return unique(program.text, [Fix(title, edits, meaning="shape")]) if edits is not None else ()


def _own(statement: ast.stmt) -> set[str]:
    """Return the parameters of the function that the statement defines, which are other variables inside of it; empty
    for other statements.
    """
    return set(parameters(statement)) if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) else set()


RULE = Rule(
    code="PL982",
    name="folds-share-a-model",
    severity="warning",
    title=T(en="Folds of a cross-validation go on with one network", zh="交叉验证的各折沿用同一个网络"),
    what=T(
        en="A program holds out one part of its rows after the other, trains with the rest and measures with the "
        "part. The network is made once, before the loop, so from the second part on it has learned the rows that it "
        "is measured with. Make the network and its optimizer inside the loop.",
        zh="程序依次留出一部分行，用其余的行训练，再用留出的部分测量。网络只在循环之前创建一次，所以从第二部分开始，它"
        "已经学过用来测量的行。请在循环里创建网络和优化器。",
    ),
    why=T(
        en="Each fold is to answer how well a network does with rows it has never seen. A module keeps its weights, "
        "and an optimizer its averages of gradients, until new ones are made: the second fold does not begin but goes "
        "on. The first fold's number is right, the others rise, and their mean is mostly of the wrong ones.",
        zh="每一折要回答的是：网络对没见过的行表现如何。模块会保留权重，优化器会保留梯度的平均，直到创建新的为止：第二"
        "折不是重新开始，而是接着训练。第一折的数是对的，后面的都偏高，平均下来多半是错的那些。",
    ),
    bad="""import torch

torch.manual_seed(0)
x, y = torch.randn(12, 5), torch.randn(12, 1)
folds = torch.arange(12).chunk(3)
net = torch.nn.Linear(5, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for held_out in range(3):
    rest = torch.cat([fold for place, fold in enumerate(folds) if place != held_out])
    for _ in range(20):
        loss = (net(x[rest]) - y[rest]).square().mean()  # step
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print((net(x[folds[held_out]]) - y[folds[held_out]]).square().mean())  # PL982
""",
    good="""import torch

torch.manual_seed(0)
x, y = torch.randn(12, 5), torch.randn(12, 1)
folds = torch.arange(12).chunk(3)
for held_out in range(3):
    net = torch.nn.Linear(5, 1)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)
    rest = torch.cat([fold for place, fold in enumerate(folds) if place != held_out])
    for _ in range(20):
        loss = (net(x[rest]) - y[rest]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    with torch.no_grad():
        print((net(x[folds[held_out]]) - y[folds[held_out]]).square().mean())
""",
    find=find,
    traps=(
        Trap(
            "    rest = torch.cat(",
            "    opt = torch.optim.SGD(net.parameters(), lr=0.1)\n    rest = torch.cat(",
            T(en="A new optimizer still updates the trained weights.", zh="新的优化器接着使用训练过的权重。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
