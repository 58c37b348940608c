"""Candidate repairs, built from the syntax tree, smallest first.

Nothing here decides whether a candidate is right: that is found out by running it (:mod:`pitfall_lab.check`), so a maker may
propose what only sometimes helps.

Repairs that silence torch without repairing the program (``.data``, ``retain_graph=True``, ``detach()``, switching every
``inplace`` off) have no maker, and so are never offered.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeGuard

from pitfall_lab.rules.finding import Edit, Fix
from pitfall_lab.rules.source import Function, Program, apply, merge
from pitfall_lab.rules.story import Story
from pitfall_lab.trace import Event, Span, T

OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.MatMult: "@",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
METHOD_OPERATORS = {"add_": "+", "sub_": "-", "mul_": "*", "div_": "/", "pow_": "**"}
# in-place methods whose name without the underscore is not the same operation on a new tensor
NO_TWIN = {
    "copy_",
    "set_",
    "resize_",
    "resize_as_",
    "uniform_",
    "normal_",
    "random_",
    "bernoulli_",
    "exponential_",
    "geometric_",
    "cauchy_",
    "log_normal_",
    "fill_diagonal_",
    "requires_grad_",
    "detach_",
    "zero_",
    "fill_",
    "apply_",
    "map_",
    "share_memory_",
}
# attributes and methods that look at the same memory
VIEW_ATTRIBUTES = {"data", "T", "mT", "H", "mH", "real", "imag"}
VIEW_METHODS = {
    "view",
    "view_as",
    "reshape",
    "flatten",
    "ravel",
    "t",
    "transpose",
    "permute",
    "movedim",
    "swapaxes",
    "squeeze",
    "unsqueeze",
    "expand",
    "expand_as",
    "narrow",
    "select",
    "diagonal",
    "unflatten",
    "detach",
    "as_strided",
    "unfold",
    "contiguous",
    "numpy",
    "cpu",
    "swapdims",
    "moveaxis",
    "diagonal_scatter",
}
BYPASSES = {"data", "detach", "numpy", "cpu"}


@dataclass(frozen=True, slots=True)
class Clash:
    """What has to be repaired: memory that was saved at one step, changed at others, and needed by a backward."""

    storage: str | None
    saved_at: int | None
    changed_at: tuple[int, ...]
    backward: int | None


def repairs(story: Story, clash: Clash) -> tuple[Fix, ...]:
    """Candidate fixes for ``clash``, smallest first, each text once."""
    sources = story.trace.sources
    if not sources:
        return ()
    program = story.program
    if program.tree is None:
        return ()
    candidates: list[Fix | None] = []
    for step in clash.changed_at[:3]:
        candidates += changing_repairs(program, story, step)
    candidates += alias_repairs(program, story, clash)
    candidates += saving_repairs(program, story, clash)
    candidates += order_repairs(program, story, clash)
    return unique(program.text, candidates)


def unique(text: str, candidates: Iterable[Fix | None]) -> tuple[Fix, ...]:
    """The candidates that change ``text`` into another program that parses, each result once."""
    seen = {text}
    kept = []
    for fix in candidates:
        if fix is None or not fix.edits:
            continue
        result = apply(text, fix.edits)
        if result not in seen and Program(result).tree is not None:
            seen.add(result)
            kept.append(fix)
    return tuple(kept)


# --- the line that changes ------------------------------------------------------------------------------------------


def changing_repairs(program: Program, story: Story, step: int) -> list[Fix | None]:
    """Repairs of the statement that wrote: make a new tensor instead, or write into a copy."""
    node = program.at(story.span(step))
    statement = program.statement(node)
    if node is None or statement is None:
        return []
    found: list[Fix | None] = [new_value(program, node, statement)]
    found += flags(program, node, story.event(step))
    found += copies_before(program, statement)
    return found


def new_value(program: Program, node: ast.AST, statement: ast.stmt) -> Fix | None:
    """``h += x`` → ``h = h + x``, ``h.mul_(10)`` → ``h = h * 10``, ``f(h.relu_())`` → ``f(h.relu())``."""
    if isinstance(statement, ast.AugAssign):
        return _augmented(program, statement)
    call = _written_call(node, statement)
    if call is None:
        return None
    if isinstance(statement, ast.Expr) and statement.value is call:
        return _statement_call(program, statement, call)
    changes = _plain_names(program, call)
    return _out_of_place(program.splice(*changes), program.segment(_receiver(call) or call)) if changes else None


def _augmented(program: Program, statement: ast.AugAssign) -> Fix | None:
    target, value = statement.target, statement.value
    name = root(target) if isinstance(target, ast.Attribute) and target.attr == "data" else target
    if not _is_name(name) or isinstance(target, ast.Subscript):
        return None
    written = program.segment(name)
    text = f"{written} = {written} {OPERATORS[type(statement.op)]} {operand(program, value)}"
    return _out_of_place(program.replace((statement, text)), written)


def _statement_call(program: Program, statement: ast.Expr, call: ast.Call) -> Fix | None:
    """A call whose result nobody keeps: it was made for its side effect, so the new tensor must take the name."""
    receiver = _receiver(call)
    if receiver is None:
        return None
    name = root(receiver)
    if not _is_name(name):
        return None
    written = program.segment(name)
    method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    whole = receiver is name or _chain_keeps_shape(receiver)
    if not whole:
        return None
    torch = torch_name(program)
    if method in METHOD_OPERATORS and len(call.args) == 1 and not call.keywords and (receiver is name or _is_bypass(receiver)):
        text = f"{written} = {written} {METHOD_OPERATORS[method]} {operand(program, call.args[0])}"
    elif method == "zero_" and torch:
        text = f"{written} = {torch}.zeros_like({written})"
    elif method == "fill_" and torch and len(call.args) == 1:
        text = f"{written} = {torch}.full_like({written}, {program.segment(call.args[0])})"
    else:
        changes = _plain_names(program, call)
        if not changes:
            return None
        start = program.place(statement)
        changes.append((Span(start.line, start.column, start.line, start.column), f"{written} = "))
        return _out_of_place(program.splice(*changes), written)
    return _out_of_place(program.replace((statement, text)), written)


def _out_of_place(edits: tuple[Edit, ...], name: str) -> Fix | None:
    if not edits:
        return None
    return Fix(T(en=f"Make a new tensor instead of overwriting `{name}`", zh=f"生成新张量，而不是覆盖 `{name}`"), edits)


def _plain_names(program: Program, call: ast.Call) -> list[tuple[Span, str]]:
    """Changes that make every in-place call in the chain of ``call`` an ordinary one (``add_`` → ``add``, no ``inplace``, no ``out``)."""
    changes: list[tuple[Span, str]] = []
    node: ast.AST | None = call
    while node is not None:
        if isinstance(node, ast.Call):
            name = _called(node)
            if name.endswith("_") and not name.endswith("__"):
                if name in NO_TWIN:
                    return []
                end = program.place(node.func)
                changes.append((Span(end.end_line, end.end_column - 1, end.end_line, end.end_column), ""))
            changes += [(span, "") for span in _flag_spans(program, node)]
            changes += [(_argument_span(program, node, keyword), "") for keyword in node.keywords if keyword.arg == "out"]
            node = node.func
        elif isinstance(node, (ast.Attribute, ast.Subscript)):
            node = node.value
        else:
            node = None
    return changes


def _written_call(node: ast.AST, statement: ast.stmt) -> ast.Call | None:
    """The in-place call at ``node``, or, when ``node`` is a larger expression, the only one inside it."""
    if isinstance(node, ast.Call) and _writes(node):
        return node
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and _writes(n)] if not hasattr(statement, "body") else []
    outer = [c for c in calls if not any(c is not o and c in ast.walk(o.func) for o in calls)]
    return outer[0] if len(outer) == 1 else None


def _writes(call: ast.Call) -> bool:
    name = _called(call)
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or any(k.arg == "out" or (k.arg == "inplace" and _is_true(k.value)) for k in call.keywords)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _receiver(call: ast.Call) -> ast.expr | None:
    """The tensor that ``call`` writes: what a method is called on, a function's first argument, or its ``out``."""
    for keyword in call.keywords:
        if keyword.arg == "out":
            return keyword.value
    function = call.func
    if (
        isinstance(function, ast.Attribute)
        and not (isinstance(function.value, ast.Name) and function.value.id in MODULES)
        and not _is_module_path(function.value)
    ):
        return function.value
    return call.args[0] if call.args else None


MODULES = {"torch", "F", "nn", "th", "functional", "init", "np", "numpy"}


def _is_module_path(node: ast.expr) -> bool:
    """``torch.nn.functional`` and the like."""
    while isinstance(node, ast.Attribute):
        node = node.value
        if isinstance(node, ast.Name) and node.id in MODULES - {"F"}:
            return True
    return False


def _chain_keeps_shape(node: ast.expr) -> bool:
    """Does ``node`` name a whole tensor: only in-place calls, ``.data`` and ``.detach()`` between it and its name?"""
    while not _is_name(node):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            name = node.func.attr
            if name in VIEW_METHODS - BYPASSES or not (name.endswith("_") or name in BYPASSES):
                return False
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in BYPASSES:
            node = node.value
        else:
            return False
    return True


def _is_bypass(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        node = node.func
    return isinstance(node, ast.Attribute) and node.attr in BYPASSES and _is_name(node.value)


# --- inplace=True ---------------------------------------------------------------------------------------------------


def flags(program: Program, node: ast.AST, event: Event | None) -> list[Fix | None]:
    """Take one ``inplace=True`` away where it was given: in this call, or where the module was built."""
    own = [n for n in ast.walk(node) if isinstance(n, ast.Call) and _flag_spans(program, n)]
    if own:
        return [_without_flag(program, call) for call in own]
    if event is None:
        return []
    wanted = event.name.rstrip("_").replace("_", "").lower()
    built = [n for n in program.nodes if isinstance(n, ast.Call) and _flag_spans(program, n)]
    built.sort(key=lambda n: (_called(n).lower() != wanted, n.lineno))
    return [_without_flag(program, call) for call in built[:6]]


def _without_flag(program: Program, call: ast.Call) -> Fix:
    name = _called(call)
    edits = program.splice(*((span, "") for span in _flag_spans(program, call)))
    return Fix(
        T(en=f"Let this `{name}` return a new tensor: drop `inplace=True`", zh=f"让这个 `{name}` 返回新张量：去掉 `inplace=True`"), edits
    )


def _flag_spans(program: Program, call: ast.Call) -> list[Span]:
    spans = [_argument_span(program, call, k) for k in call.keywords if k.arg == "inplace" and _is_true(k.value)]
    # nn.ReLU(True), nn.Dropout(0.5, True): the flag by position
    position = {
        "ReLU": 0,
        "ReLU6": 0,
        "SiLU": 0,
        "Mish": 0,
        "Hardswish": 0,
        "Hardsigmoid": 0,
        "SELU": 0,
        "ELU": 1,
        "CELU": 1,
        "LeakyReLU": 1,
        "Dropout": 1,
    }.get(_called(call))
    if not spans and position is not None and len(call.args) > position and _is_true(call.args[position]):
        spans = [_argument_span(program, call, call.args[position])]
    return spans


def _argument_span(program: Program, call: ast.Call, argument: ast.AST) -> Span:
    """The place of an argument together with the comma that separates it."""
    own = program.place(argument)
    arguments = sorted([program.place(a) for a in [*call.args, *call.keywords]], key=lambda s: (s.line, s.column))
    number = arguments.index(own)
    if number > 0:
        before = arguments[number - 1]
        return Span(before.end_line, before.end_column, own.end_line, own.end_column)
    if len(arguments) > 1:
        after = arguments[1]
        return Span(own.line, own.column, after.line, after.column)
    return own


def _is_true(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


# --- write into a copy ----------------------------------------------------------------------------------------------


def copies_before(program: Program, statement: ast.stmt) -> list[Fix | None]:
    """``h = h.clone()`` before the write: once before the loop around it if that is enough, else right before."""
    name = _written_root(statement)
    if name is None:
        return []
    text = program.segment(name)
    bypassed = _without_data(program, statement, name)
    places = [
        statement,
        *(
            a
            for a in program.ancestors(statement)
            if isinstance(a, (ast.For, ast.While)) and program.function(a) is program.function(statement)
        ),
    ]
    fixes = []
    for place in reversed(places):
        assert isinstance(place, ast.stmt)
        edits = (
            merge(program.insert_before(place, f"{text} = {text}.clone()"), bypassed)
            if place is not statement
            else (_copy_and_unwrap(program, statement, text, name))
        )
        if edits:
            when = T(en="", zh="") if place is statement else T(en=", made once before the loop", zh="，在循环之前复制一次")
            fixes.append(Fix(T(en=f"Write into a copy of `{text}`{when.en}", zh=f"写入 `{text}` 的副本{when.zh}"), edits))
    return list(fixes)


def _copy_and_unwrap(program: Program, statement: ast.stmt, text: str, name: ast.expr) -> tuple[Edit, ...] | None:
    changes = _data_changes(program, statement, name)
    place = program.place(statement)
    here = Span(place.line, place.column, place.line, place.column)
    glue = "\n" + program.indent(statement) if not program.lines[place.line - 1][: place.column].strip() else "; "
    return program.splice((here, f"{text} = {text}.clone(){glue}"), *changes)


def _without_data(program: Program, statement: ast.stmt, name: ast.expr) -> tuple[Edit, ...]:
    return program.splice(*_data_changes(program, statement, name))


def _data_changes(program: Program, statement: ast.stmt, name: ast.expr) -> list[tuple[Span, str]]:
    """Take ``.data`` out of the written expression: a copy may be written openly."""
    changes = []
    if any(isinstance(node, ast.Attribute) and node.attr == "numpy" for node in ast.walk(statement)):
        return []  # NumPy only accepts what does not require grad
    for node in ast.walk(statement):
        if isinstance(node, ast.Attribute) and node.attr == "data" and node.value is name:
            own, inner = program.place(node), program.place(name)
            changes.append((Span(inner.end_line, inner.end_column, own.end_line, own.end_column), ""))
    return changes


def _written_root(statement: ast.stmt) -> ast.expr | None:
    """The name behind what ``statement`` writes: ``h`` in ``h[0] = 1``, ``h.view(-1).add_(1)``, ``F.relu_(h)``."""
    written: ast.AST | None = None
    if isinstance(statement, ast.AugAssign):
        written = statement.target
    elif isinstance(statement, ast.Assign):
        subscripts = [t for t in statement.targets if isinstance(t, ast.Subscript)]
        written = subscripts[0] if subscripts else None
    if written is None and not hasattr(statement, "body"):
        calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and _writes(n)]
        written = _receiver(calls[0]) if calls else None
    name = root(written) if written is not None else None
    return name if name is not None and _is_name(name) and not _is_constant_name(name) else None


def _is_constant_name(name: ast.expr) -> bool:
    return isinstance(name, ast.Name) and name.id in MODULES


def root(node: ast.AST) -> ast.expr:
    """The name or attribute that an expression of views and in-place calls starts from: ``h`` for ``h.view(-1)[0]``.

    >>> ast.unparse(root(ast.parse("self.h.view(-1)[0].add_(1)", mode="eval").body))
    'self.h'
    """
    while True:
        if isinstance(node, ast.Subscript):
            node = node.value
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and (node.func.attr in VIEW_METHODS or node.func.attr.endswith("_"))
        ):
            node = node.func.value
        elif isinstance(node, ast.Attribute) and node.attr in VIEW_ATTRIBUTES:
            node = node.value
        else:
            return node  # type: ignore[return-value]


def _is_name(node: ast.AST) -> bool:
    """A plain name or a dotted one (``self.h``)."""
    while isinstance(node, ast.Attribute):
        if node.attr in VIEW_ATTRIBUTES:
            return False
        node = node.value
    return isinstance(node, ast.Name)


# --- the alias it was written through -------------------------------------------------------------------------------


def alias_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Copy where the second name for the memory is made: ``h.detach()`` → ``h.detach().clone()``, ``h.numpy()`` → ``h.numpy().copy()``."""
    found: list[Fix | None] = []
    for step in clash.changed_at[:3]:
        event = story.event(step)
        label = event.operands[0].label if event and event.operands else None
        tensor = story.tensor(label, step)
        if tensor and tensor.get("born") not in (None, step):
            birth = program.at(story.span(tensor["born"]))
            inside = program.statement(birth) is program.statement_at(story.span(step))
            if isinstance(birth, ast.expr) and tensor["born"] != clash.saved_at and not inside:
                found.append(_appended(program, birth, ".copy()" if tensor.get("kind") == "array" else ".clone()"))
            found += _clone_base(program, birth)
        if event is not None and (event.kind == "write" or (tensor or {}).get("kind") == "array"):
            found += _numpy_bridges(program, story.span(step))
            found += _array_copy(program, story.span(step))
    return found


def _clone_base(program: Program, birth: ast.AST | None) -> list[Fix | None]:
    """``row = weights[0]`` → a line before it: ``weights = weights.clone()``; the view then looks at the copy."""
    statement = program.statement(birth)
    if not isinstance(birth, ast.expr) or statement is None or hasattr(statement, "body"):
        return []
    name = root(birth)
    if name is birth or not _is_name(name):
        return []
    text = program.segment(name)
    return [
        Fix(
            T(en=f"Go on with a copy of `{text}` from here", zh=f"从这里起改用 `{text}` 的副本"),
            program.insert_before(statement, f"{text} = {text}.clone()"),
        )
    ]


def _numpy_bridges(program: Program, span: Span | None) -> list[Fix | None]:
    """Copies at the places where tensors and arrays come to share memory, the ones near names of the changed line first."""
    bridges = []
    for node in program.nodes:
        if isinstance(node, ast.Call) and (_called(node) in {"numpy", "from_numpy", "as_tensor", "asarray", "frombuffer", "from_dlpack"}):
            to_tensor = _called(node) in {"from_numpy", "as_tensor", "frombuffer", "from_dlpack"}
            bridges.append((node, ".clone()" if to_tensor else ".copy()"))
    here = program.statement_at(span)
    bridges = [
        bridge for bridge in bridges if program.statement(bridge[0]) is not here
    ]  # a copy of what is written at once is written in vain
    near = _names_at(program, span)

    def distance(item: tuple[ast.Call, str]) -> tuple[bool, int]:
        statement = program.statement(item[0])
        names = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if statement else set()
        return (not names & near, item[0].lineno)

    return [_appended(program, node, text) for node, text in sorted(bridges, key=distance)[:3]]


def _array_copy(program: Program, span: Span | None) -> list[Fix | None]:
    """``a[0] = 1`` on an array: ``a = a.copy()`` before it."""
    statement = program.statement_at(span)
    name = _written_root(statement) if statement is not None else None
    if statement is None or name is None:
        return []
    text = program.segment(name)
    return [
        Fix(
            T(en=f"Write into a copy of the array `{text}`", zh=f"写入数组 `{text}` 的副本"),
            program.insert_before(statement, f"{text} = {text}.copy()"),
        )
    ]


def _names_at(program: Program, span: Span | None) -> set[str]:
    statement = program.statement_at(span)
    return {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if statement is not None else set()


def _appended(program: Program, node: ast.expr, text: str) -> Fix:
    shown = " ".join(program.segment(node).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    return Fix(
        T(en=f"Copy here, so that `{shown}` has memory of its own", zh=f"在这里复制，让 `{shown}` 拥有自己的内存"),
        program.replace((node, operand(program, node) + text)),
    )


# --- the line that saves --------------------------------------------------------------------------------------------


def saving_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Keep what backward needs apart: ``sigmoid(x)`` → ``sigmoid(x).clone()``, ``h ** 2`` → ``h.clone() ** 2``."""
    node = program.at(story.span(clash.saved_at))
    event = story.line_event(clash.saved_at)
    if event is None or not isinstance(node, (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute)):
        return []
    shared = {label for label, _ in story.tensors_on(clash.storage)}
    if any(label in shared for label in event.results):
        return [_appended(program, node, ".clone()")]
    names = {name for label in shared for name in (story.tensor(label) or {}).get("names", ()) if name}
    names |= {name for label in shared if (name := story.name(label, clash.saved_at))}
    inputs = [n for n in ast.walk(node) if isinstance(n, ast.expr) and _is_name(n) and program.segment(n) in names]
    if not inputs or (isinstance(node, ast.Call) and node.func in inputs):
        return []
    first = program.segment(inputs[0])
    title = T(en=f"Let backward keep its own copy of `{first}`", zh=f"让反向传播保留自己的 `{first}` 副本")
    return [Fix(title, program.replace(*((n, program.segment(n) + ".clone()") for n in inputs)))]


# --- the order of lines ---------------------------------------------------------------------------------------------


def order_repairs(program: Program, story: Story, clash: Clash) -> list[Fix | None]:
    """Write after backward, or run the forward pass again after the write (an optimizer step between two backwards)."""
    if not clash.changed_at or clash.backward is None:
        return []
    changed = list(call_chain(story, story.line_event(clash.changed_at[0])))
    backward = list(call_chain(story, story.line_event(clash.backward)))
    saved = list(call_chain(story, story.line_event(clash.saved_at)))
    pair = meeting(program, changed, backward)
    if pair is None:
        return []
    again = second_forwards(program, *pair, saved) if _is_leaf_memory(story, clash) else []
    return [*moves(program, *pair), *again]


def _is_leaf_memory(story: Story, clash: Clash) -> bool:
    """Is it a parameter's memory? Only an update of one is kept when the forward pass is run again."""
    return any(tensor.get("is_leaf") and tensor.get("requires_grad") for _, tensor in story.tensors_on(clash.storage))


def call_chain(story: Story, event: Event | None) -> Iterator[ast.stmt]:
    """The statements that were being executed at ``event``, innermost first: its own, then the calls that led there, as far as the text tells."""
    if event is None:
        return
    program, scope = story.program, list(event.scope)
    statement = program.statement_at(event.span)
    while statement is not None:
        yield statement
        function = program.function(statement)
        if function is None:
            return
        if scope and scope[-1].rsplit(".", 1)[-1] == function.name:
            scope.pop()
        statement = _call_site(story, function, tuple(scope), event)


def _call_site(story: Story, function: Function, caller: tuple[str, ...], event: Event) -> ast.stmt | None:
    """The statement in ``caller`` (at the top level when empty) that called ``function`` on the way to ``event``."""
    program = story.program
    inside = caller[-1].rsplit(".", 1)[-1] if caller else None
    names = {function.name}
    if function.name in ("forward", "__call__"):  # called through an object: by the names that objects of its class were given
        owner = program.parents.get(function)
        names = _objects(program, owner.name) if isinstance(owner, ast.ClassDef) else set()
    calls = [n for n in program.nodes if isinstance(n, ast.Call) and (_called(n) == function.name or program.segment(n.func) in names)]
    sites = []
    for call in sorted(calls, key=lambda n: (n.lineno, n.col_offset)):
        around = program.function(call)
        if (around.name if around else None) == inside and around is not function:
            sites.append(call)
    return program.statement(_which(story, sites, caller, event)) if sites else None


def _objects(program: Program, owner: str) -> set[str]:
    """The names of objects of class ``owner``, or of containers built around one: ``net`` in ``net = nn.Sequential(Block(), …)``."""
    found = set()
    for node in program.nodes:
        if isinstance(node, ast.Assign) and any(isinstance(n, ast.Call) and _called(n) == owner for n in ast.walk(node.value)):
            found |= {program.segment(target) for target in node.targets}
    return found


def _which(story: Story, sites: list[ast.Call], caller: tuple[str, ...], event: Event) -> ast.Call:
    """Of several calls of one function, the one that led to ``event``: between the caller's own events around it, counted by repetition."""
    before = next((e for e in reversed(story.events[: event.step]) if e.scope == caller and e.span), None)
    after = next((e for e in story.events[event.step + 1 :] if e.scope == caller and e.span and e.kind == "call"), None)
    low = before.span.line if before and before.span else 0
    high = after.span.line if after and after.span else 1 << 30
    near = [site for site in sites if low <= site.lineno <= high] or sites
    start = before.step if before else -1
    passes = sum(e.span == event.span and e.op == event.op for e in story.events[start + 1 : event.step + 1])
    return near[min(max(passes, 1), len(near)) - 1]


def meeting(program: Program, first: list[ast.stmt], second: list[ast.stmt]) -> tuple[ast.stmt, ast.stmt] | None:
    """The statements of one block in which both chains run: ``opt.step()`` and ``loss.backward()``, or the calls to them."""
    for one in first:
        for other in second:
            if program.function(one) is program.function(other):
                return _siblings(program, one, other)
    return None


def _siblings(program: Program, one: ast.stmt, other: ast.stmt) -> tuple[ast.stmt, ast.stmt] | None:
    around_one = [one, *(a for a in program.ancestors(one) if isinstance(a, ast.stmt))]
    around_other = [other, *(a for a in program.ancestors(other) if isinstance(a, ast.stmt))]
    for a in around_one:
        for b in around_other:
            if a is not b and program.block(a) is program.block(b):
                return a, b
    return None


def moves(program: Program, changed: ast.stmt, backward: ast.stmt) -> list[Fix | None]:
    """Put the statement that changes after the one that runs backward."""
    if changed.lineno > backward.lineno or not program.stands_alone(changed) or not program.stands_alone(backward):
        return []
    first, last = program.place(changed), program.place(backward)
    moved = "".join(program.lines[first.line - 1 : first.end_line])
    after = "".join(program.lines[last.line - 1 : last.end_line])
    edits = merge((Edit(last.line, last.end_line, _ended(after) + _ended(moved)),), program.delete(changed))
    shown = " ".join(program.segment(changed).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    return (
        [
            Fix(
                T(en=f"Move `{shown}` after the backward pass that needs the old values", zh=f"把 `{shown}` 移到需要旧值的反向传播之后"),
                edits,
            )
        ]
        if edits
        else []
    )


def _ended(text: str) -> str:
    return text if text.endswith(("\n", "\r")) else text + "\n"


def second_forwards(program: Program, changed: ast.stmt, backward: ast.stmt, saved: list[ast.stmt]) -> list[Fix | None]:
    """Compute again, after the change, what the backward needs: the shortest run of assignments that covers the saving line."""
    ordered = changed.lineno < backward.lineno
    needed = _reads(program, backward)
    copied: list[ast.stmt] = []
    covers = {id(a) for s in saved for a in [s, *program.ancestors(s)]}
    # a forward method is called through its module, so where from is not in the text: then any run of assignments may do
    known = any(program.function(s) is program.function(backward) for s in saved)
    fixes: list[Fix | None] = []
    for statement in _preceding(program, backward):
        assigned = _assigned(program, statement)
        if statement is changed or not assigned & needed:
            continue
        needed |= _reads(program, statement)
        if ordered and statement.lineno > changed.lineno and program.block(statement) is program.block(changed):
            continue  # it runs after the change anyway
        copied.insert(0, statement)
        if len(copied) > 6 or sum(s.end_lineno - s.lineno + 1 for s in copied if s.end_lineno) > 20:
            break
        if not known or any(id(s) in covers for s in copied):
            if not ordered:  # in a loop: the change of one round meets the backward of the next
                fixes.append(_second_forward(program, backward, copied, after=False))
            fixes.append(_second_forward(program, changed, copied, after=True))
    return fixes[:6]


def _second_forward(program: Program, place: ast.stmt, copied: list[ast.stmt], *, after: bool) -> Fix:
    lines = [line for statement in copied for line in _dedented(program, statement)]
    edits = program.insert_after(place, *lines) if after else program.insert_before(place, *lines)
    shown = " ".join(program.segment(copied[0]).split())
    shown = shown if len(shown) <= 40 else shown[:39] + "…"
    title = T(en=f"Run the forward pass again after the change (`{shown}`)", zh=f"在修改之后重新做一次前向计算（`{shown}`）")
    return Fix(title, edits, meaning="recompute")


def _dedented(program: Program, statement: ast.stmt) -> list[str]:
    indent = program.indent(statement)
    lines = program.segment(statement).splitlines()
    return [lines[0], *(line.removeprefix(indent) for line in lines[1:])]


def _preceding(program: Program, statement: ast.stmt) -> Iterator[ast.stmt]:
    """The statements that come before ``statement`` in its function, nearest first, without those in other branches."""
    here: ast.AST | None = statement
    while isinstance(here, ast.stmt) and not isinstance(here, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        block = program.block(here)
        yield from reversed(block[: block.index(here)])
        here = next((a for a in program.ancestors(here) if isinstance(a, (ast.stmt, ast.Module))), None)


def _reads(program: Program, node: ast.AST) -> set[str]:
    """Names that ``node`` reads: dotted ones whole and with each of their beginnings (``self.h`` reads ``self`` too), entries such as ``losses["g"]`` alone."""
    found: set[str] = set()
    pending = [node]
    while pending:
        item = pending.pop()
        if _is_entry(item):
            found |= {program.segment(item)} if isinstance(item.ctx, ast.Load) else set()
            continue
        if isinstance(item, (ast.Name, ast.Attribute)) and _is_name(item) and isinstance(item.ctx, ast.Load):
            found.add(program.segment(item))
        pending.extend(ast.iter_child_nodes(item))
    return found


def _assigned(program: Program, statement: ast.stmt) -> set[str]:
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return set()
    targets = (n for n in ast.walk(statement) if isinstance(n, (ast.Name, ast.Attribute)) or _is_entry(n))
    return {program.segment(n) for n in targets if isinstance(n.ctx, ast.Store)}


def _is_entry(node: ast.AST) -> TypeGuard[ast.Subscript]:
    """One entry of a dictionary or list, named by a constant: ``losses["g"]``."""
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and _is_name(node.value)


# --- small things ---------------------------------------------------------------------------------------------------


def operand(program: Program, node: ast.expr) -> str:
    """The text of ``node``, in parentheses unless it binds as tightly as a name."""
    text = program.segment(node)
    atom = isinstance(node, (ast.Name, ast.Attribute, ast.Call, ast.Subscript, ast.List, ast.Tuple, ast.ListComp))
    number = isinstance(node, ast.Constant) and not text.startswith("-")
    return text if atom or number or _in_own_parentheses(text) else f"({text})"


def _in_own_parentheses(text: str) -> bool:
    return text.startswith("(") and text.endswith(")") and text.count("(") == 1


def torch_name(program: Program) -> str | None:
    """What the program calls ``torch``; ``None`` when it does not import it by a name."""
    for node in program.nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name == "torch" or (alias.name.startswith("torch.") and alias.asname is None):
                    return alias.asname or "torch"
    return None
