"""PL978: graphs are joined to one, and the edges keep the numbers that their nodes had in the separate graphs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called, operand
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

JOINS = spellings("cat", "vstack") | {"hstack"}
ROWS_BY = {"__getitem__": 1, "index_select": 1, "index_add": 1, "index_add_": 1, "scatter_add": 1, "scatter_add_": 1,
           "scatter_reduce": 1, "scatter_reduce_": 1, "index_reduce": 1, "index_reduce_": 1, "gather": 1,
           "index_copy_": 1}  # fmt: skip
"""Calls whose second tensor contains indices of rows of the first tensor."""
VIEWS = {
    "unbind",
    "__getitem__",
    "select",
    "to",
    "long",
    "t",
    "contiguous",
    "unsqueeze",
    "view",
    "reshape",
    "expand",
    "expand_as",
    "clone",
}
"""Calls that edges are followed through: they do not change the numbers of the nodes."""
FEWEST, KNOWN, LABELS, UPWARD = 3, 4, 60, 60
PAIR = 2


@dataclass(frozen=True, slots=True)
class EdgesWithoutOffsets:
    """``edges`` is the call (``Event``) that joined several index tensors to one, ``nodes`` the call that joined as
    many tables, and ``use`` the call that addressed rows of the joined table with the joined index.

    ``part`` is the number (from 0) of an index tensor whose entries are too small: the rows of its own table begin at
    ``start`` in the joined table, and its largest known entry is ``largest``.
    """

    edges: Event
    nodes: Event
    use: Event
    part: int
    start: int
    largest: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that joins three or more tensors of row indices (edges of graphs, mostly), each
    into a table of its own, without adding offsets, where the joined indices address rows of the joined table.
    """
    reported = set()
    for step, uses in _used(story).items():
        nodes = story.events[step]
        found = [(edges, use, _numbered(story, edges, nodes)) for edges, use in uses]
        if any(number is None for _, _, number in found):
            continue
        for edges, use, number in found:
            place = story.span(edges.step)
            if number is not None and place not in reported:
                reported.add(place)
                yield _finding(story, EdgesWithoutOffsets(edges, nodes, use, *number))


def _used(story: Story) -> dict[int, list[tuple[Event, Event]]]:
    """Return a dict from the step of each join of tables to the joins of as many index tensors that address the joined
    rows, each in a pair with the call that addresses them.
    """
    joined = dict[int, list[tuple[Event, Event]]]()
    for edges in story.calls(*JOINS):
        parts = _parts(edges)
        if len(parts) < FEWEST or not _is_whole_numbered(story, edges):
            continue
        for use, index in _addressed(story, edges):
            nodes = _table(story, use, index, len(parts))
            if nodes is not None and nodes is not edges:
                joined.setdefault(nodes.step, []).append((edges, use))
    return joined


def _parts(event: Event) -> list[str]:
    return [o.label for o in event.operands if o.label is not None] if event.error is None and event.results else []


def _is_whole_numbered(story: Story, event: Event) -> bool:
    """Whether a call joined integer vectors, or integer matrices of two rows or two columns."""
    record = story.tensor(event.results[0], event.step) or {}
    shape = record.get("shape") or ()
    return str(record.get("dtype")).startswith("int") and (len(shape) == 1 or (len(shape) == PAIR and PAIR in shape))


def _addressed(story: Story, edges: Event) -> Iterator[tuple[Event, str]]:
    """Yield the calls that address rows with the joined index, or with a slice or view of it, each with that index."""
    pending, seen = [edges.results[0]], {edges.results[0]}
    while pending and len(seen) < LABELS:
        label = pending.pop()
        for use in story.uses(label):
            given = [o.label for o in use.operands if o.label is not None]
            if use.error is not None or not use.results:
                continue
            if use.name in ROWS_BY and len(given) > 1 and given[0] != label and given[1] == label:
                yield use, label
            elif use.name in VIEWS and given == [label] and use.step > edges.step:
                fresh = [each for each in use.results if each not in seen]
                seen.update(fresh)
                pending += fresh


def _table(story: Story, use: Event, index: str, count: int) -> Event | None:
    """Return the call that joined ``count`` tables to the one whose rows ``use`` addresses; None if there is none."""
    label = next((o.label for o in use.operands if o.label is not None), None)
    rows = (story.shape(label, use.step) or (0,))[0]
    dim = argument(use, "dim", 1 if use.name != "__getitem__" else None)
    if use.name != "__getitem__" and whole(dim) != 0:
        return None
    return _joined(story, label, rows, count) if label is not None and index != label else None


def _joined(story: Story, label: str, rows: int, count: int) -> Event | None:
    """Return the call that joined ``count`` tables to one with ``rows`` rows, from which the tensor ``label`` was
    computed row by row; None if there is none.
    """
    pending, seen = [label], {label}
    while pending and len(seen) < UPWARD:
        here = pending.pop(0)
        event = story.event((story.tensor(here) or {}).get("born"))
        if event is None or event.kind != "call" or here not in event.results:
            continue
        parts = _parts(event)
        if (
            event.name in JOINS
            and len(parts) == count
            and sum((story.shape(each, event.step) or (0,))[0] for each in parts) == rows
        ):
            return event
        for each in parts:
            if each not in seen and (story.shape(each, event.step) or (0,))[0] == rows:
                seen.add(each)
                pending.append(each)
    return None


def _numbered(story: Story, edges: Event, nodes: Event) -> tuple[int, int, int] | None:
    """Return, for an index tensor whose entries are below the rows of its own table, its number, the first of these
    rows, and its largest known entry.

    None unless the known entries of all index tensors fit into their own tables, reach beyond half of most tables
    (labels of a few classes do not), and at least two index tensors are such.
    """
    sizes = [(story.shape(each, nodes.step) or (0,))[0] for each in _parts(nodes)]
    start, shows, far = 0, list[tuple[int, int, int]](), list[bool]()
    for number, (part, size) in enumerate(zip(_parts(edges), sizes, strict=True)):
        known = [int(value) for _, value in Elements(story, part, edges.step).known()]
        if known and (max(known) >= size or min(known) < 0):
            return None
        if known:
            far.append(PAIR * (max(known) + 1) >= size)
        if len(known) >= KNOWN and start >= size:
            shows.append((number, start, max(known)))
        start += size
    return shows[0] if len(shows) >= PAIR and PAIR * far.count(True) > len(far) else None


def _finding(story: Story, found: EdgesWithoutOffsets) -> Finding:
    edges, use = found.edges, found.use
    here, there, node = (at_line(story, story.span(each.step)) for each in (edges, use, found.nodes))
    table = shown(story, use, next(o.label for o in use.operands if o.label is not None))
    return RULE.finding(
        story.span(edges.step),
        edges.step,
        T(
            en=f"{capital(here.en)} joins the indices of several tables as they are, but {there.en} addresses the "
            f"joined rows of {table.en} with them: all of them name rows at the beginning.",
            zh=f"{here.zh}把几个表的索引原样拼在一起，而{there.zh}用它们访问拼接后的 {table.zh} 的行：它们"
            "都指向开头的那些行。",
        ),
        T(
            en=f"The rows of part {found.part} (counted from 0) begin at {found.start} after the join on {node.en}, "
            f"but the largest entry of its index that is known is {found.largest}, as if its rows still began at 0. "
            "So the edges of all graphs run between the nodes of the first ones, and the other nodes have none. Add "
            "to each part the number of rows before it.",
            zh=f"在{node.zh}拼接之后，第 {found.part} 部分（从 0 数起）的行从 {found.start} 开始，而它的索引中已知的最"
            f"大值是 {found.largest}，好像它的行仍从 0 开始。于是所有图的边都连在最前面几个图的节点之间，其余的节点没"
            "有边。请给每一部分加上它之前的行数。",
        ),
        related=[
            story.related("made", found.nodes.step, T(en="the rows are joined here", zh="在这里拼接行")),
            story.related("used", use.step, T(en="the joined rows are addressed here", zh="在这里访问拼接后的行")),
        ],
        fixes=_fixes(story, found),
        facts=[
            Fact("start", found.start, story.by(found.nodes.step)),
            Fact("largest", found.largest, story.by(edges.step)),
        ],
    )


TITLE = T(en="Add to each part the number of rows before it", zh="给每一部分加上它之前的行数")


def _fixes(story: Story, found: EdgesWithoutOffsets) -> tuple[Fix, ...]:
    """Fixes that add offsets where the index tensors are collected: in a loop, in a comprehension, or in a list that is
    written out.
    """
    program = story.program
    edges, nodes = (_collected(story, each) for each in (found.edges, found.nodes))
    fixes = list[Fix | None]()
    if isinstance(edges, ast.List) and isinstance(nodes, ast.List) and len(edges.elts) == len(nodes.elts):
        lengths = [f"len({program.segment(each)})" for each in nodes.elts]
        changes = [(each, " + ".join([operand(program, each), *lengths[:n]])) for n, each in enumerate(edges.elts) if n]
        fixes.append(Fix(TITLE, program.replace(*changes), meaning="later"))
    if isinstance(edges, ast.ListComp | ast.GeneratorExp) and isinstance(nodes, ast.ListComp | ast.GeneratorExp):
        fixes.append(_in_comprehension(story, edges, nodes))
    if isinstance(edges, ast.Name) and isinstance(nodes, ast.Name):
        fixes.append(_in_loop(story, edges, nodes))
    return unique(program.text, fixes)


def _collected(story: Story, event: Event) -> ast.expr | None:
    """Return the expression that a join of the program was given as its first argument; None if the program shows no
    such call.
    """
    node = story.program.at(story.span(event.step))
    return node.args[0] if isinstance(node, ast.Call) and called(node) in JOINS and node.args else None


Comprehension = ast.ListComp | ast.GeneratorExp


def _in_comprehension(story: Story, edges: Comprehension, nodes: Comprehension) -> Fix | None:
    """Return the fix for two comprehensions over the same graphs, ``[g.edges for g in graphs]`` and ``[g.nodes for g in
    graphs]``; None for other forms.
    """
    program, (one, other) = story.program, (edges.generators, nodes.generators)
    if (
        len(one) != 1
        or len(other) != 1
        or one[0].ifs
        or other[0].ifs
        or program.segment(one[0].iter) != program.segment(other[0].iter)
    ):
        return None
    number = _free(story, "number")
    target, counted = program.segment(one[0].target), program.segment(other[0].target)
    every = operand(program, one[0].iter)
    around = f"({target})" if isinstance(one[0].target, ast.Tuple) and not target.startswith("(") else target
    before = f"sum(len({program.segment(nodes.elt)}) for {counted} in {every}[:{number}])"
    changes = [
        (edges.elt, f"{operand(program, edges.elt)} + {before}"),
        (one[0].target, f"{number}, {around}"),
        (one[0].iter, f"enumerate({program.segment(one[0].iter)})"),
    ]
    return Fix(TITLE, program.replace(*changes), meaning="later")


def _in_loop(story: Story, edges: ast.Name, nodes: ast.Name) -> Fix | None:
    """Return the fix for two lists to which each iteration of one loop appends one item each; None for other forms."""
    program = story.program
    both = [_appended(story, each) for each in (edges, nodes)]
    if None in both:
        return None
    (index, statement), (rows, _) = both[0] or (None, None), both[1] or (None, None)
    loop = program.parents.get(statement) if statement is not None else None
    if index is None or rows is None or not isinstance(loop, ast.For) or statement not in loop.body:
        return None
    if not any(rows is each for each in ast.walk(loop)) or not program.stands_alone(loop.body[-1]):
        return None
    offset = _free(story, "offset")
    changed = program.replace((index, f"{operand(program, index)} + {offset}"))
    begin, last = program.insert_before(loop, f"{offset} = 0"), f"{offset} += len({program.segment(rows)})"
    if loop.body[-1] is statement:
        [edit] = changed
        ends = (type(edit)(edit.line, edit.end_line, f"{edit.text}{program.indent(statement)}{last}\n"),)
        merged = merge(begin, ends)
    else:
        merged = merge(begin, changed, program.insert_after(loop.body[-1], last))
    return Fix(TITLE, merged, meaning="later") if merged is not None else None


def _appended(story: Story, name: ast.Name) -> tuple[ast.expr, ast.stmt] | None:
    """Return the expression that the only ``append`` call of a list in its function appends, and the call's statement;
    None if there are none or several, or the statement shares its lines.
    """
    program = story.program
    function = program.function(name)
    found = [
        call for call in program.calls.get(f"{name.id}.append", ())
        if program.function(call) is function and len(call.args) == 1 and not call.keywords
    ]  # fmt: skip
    statement = program.statement(found[0]) if len(found) == 1 else None
    return (found[0].args[0], statement) if statement is not None and program.stands_alone(statement) else None


def _free(story: Story, name: str) -> str:
    """Return ``name``, or ``name`` with a number appended if the program uses it already."""
    used = {node.id for node in story.program.nodes if isinstance(node, ast.Name)}
    return (
        name if name not in used else next(new for n in range(2, len(used) + 3) if (new := f"{name}_{n}") not in used)
    )


RULE = Rule(
    code="PL978",
    name="edges-without-offsets",
    severity="warning",
    title=T(
        en="Graphs are joined, and the edges keep the numbers of the single graphs",
        zh="几个图被拼在一起，边却保留各图自己的节点编号",
    ),
    what=T(
        en="A program puts several graphs into one batch: it joins the tables of their nodes, and joins their edges "
        "as they are. Each graph counts its nodes from 0, so all edges run between the first nodes of the batch. Add "
        "the number of nodes before each graph.",
        zh="程序把几个图放进一个批次：拼接它们的节点表，又把它们的边原样拼接。每个图的节点都从 0 编号，于是"
        "所有的边都连在批次最前面的节点之间。请给每个图的边加上它之前的节点数。",
    ),
    why=T(
        en="An edge names two rows of the table of nodes by their numbers. `cat` puts the rows of the second "
        "graph behind those of the first: what was row 0 there is row n now, and `cat` does not change the "
        "numbers in another tensor. Every number still exists, so nothing is raised. The first graphs get the "
        "edges of all, the others get none, and a network learns from the nodes alone. Graph libraries add these "
        "offsets in their own loaders.",
        zh="一条边用编号指出节点表中的两行。`cat` 把第二个图的行接在第一个图的后面：原来的第 0 行现在是第 n 行，而 "
        "`cat` 不会改动另一个张量里的编号。每个编号仍然存在，所以不会报错。最前面的图得到所有的边，其余的图一条也没"
        "有，网络只能从节点本身学习。图学习库会在自己的加载器里加上这些偏移。",
    ),
    bad="""import torch

torch.manual_seed(0)
ring, pair = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 1], [1, 0]])
graphs = [(torch.randn(3, 2), ring), (torch.randn(3, 2), ring), (torch.randn(2, 2), pair)]
x = torch.cat([nodes for nodes, _ in graphs])  # made
source, target = torch.cat([edges for _, edges in graphs], dim=1)  # PL978
print(torch.zeros(8, 2).index_add(0, target, x[source]))  # used
""",
    good="""import torch

torch.manual_seed(0)
ring, pair = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([[0, 1], [1, 0]])
graphs = [(torch.randn(3, 2), ring), (torch.randn(3, 2), ring), (torch.randn(2, 2), pair)]
x = torch.cat([nodes for nodes, _ in graphs])
before = [sum(len(nodes) for nodes, _ in graphs[:number]) for number in range(len(graphs))]
source, target = torch.cat([edges + offset for (_, edges), offset in zip(graphs, before)], dim=1)
print(torch.zeros(8, 2).index_add(0, target, x[source]))
""",
    find=find,
    traps=(
        Trap(
            "edges for _, edges",
            "edges.clone() for _, edges",
            T(en="A copy of the edges has the same numbers.", zh="边的拷贝里是同样的编号。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.cat.html",),
)
