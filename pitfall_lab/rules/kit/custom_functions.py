"""The program's own ``torch.autograd.Function`` classes: their source, and the calls and nodes of them in a trace."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import root
from pitfall_lab.trace import Event


class AssignedValue(NamedTuple):
    """One assignment of a value to one target; ``a, b = c, d`` gives two of them.

    ``statement`` is the whole statement, ``target`` and ``value`` are the two expressions.
    """

    statement: ast.Assign
    target: ast.expr
    value: ast.expr


@dataclass(frozen=True, slots=True)
class Custom:
    """One of the program's ``torch.autograd.Function`` classes: its ``name`` and the definitions of its methods
    ``forward`` and ``backward`` in the source.

    ``keeper`` is the method that stores values for backward: ``setup_context`` if there is one, else ``forward``.
    """

    name: str
    forward: ast.FunctionDef
    backward: ast.FunctionDef
    keeper: ast.FunctionDef

    @property
    def ctx(self) -> str:
        """Return the name of the first parameter of the method that saves values for backward, usually ``ctx``."""
        return self.keeper.args.args[0].arg

    @property
    def inputs(self) -> list[str]:
        """The names of forward's parameters other than ``ctx`` (which it does not have where the class has a
        ``setup_context``).
        """
        return [argument.arg for argument in self.forward.args.args[int(self.keeper is self.forward) :]]

    def kept(self) -> dict[str, AssignedValue]:
        """Return the assignments ``ctx.x = x`` in the method that stores values, by the attribute's name.

        Only those whose value is a name, or an expression on one (``x.data``).
        """
        found = {}
        for statement, target, value in _assigned(self.keeper):
            if isinstance(root(value), ast.Name) and (name := _attribute(target, self.ctx)):
                found[name] = AssignedValue(statement, target, value)
        return found

    def names(self) -> dict[str, str]:
        """Return the names of backward's local variables that are assigned an attribute of ctx, with the attribute:
        ``{"x": "gate"}`` for ``x = ctx.gate``.
        """
        ctx = self.backward.args.args[0].arg
        pairs = ((target, _attribute(value, ctx)) for _, target, value in _assigned(self.backward))
        return {target.id: name for target, name in pairs if isinstance(target, ast.Name) and name}

    def read(self, attribute: str) -> list[ast.Attribute]:
        """Return the expressions in backward that read the attribute of ctx named ``attribute``."""
        ctx = self.backward.args.args[0].arg
        attributes = [
            node for node in ast.walk(self.backward) if isinstance(node, ast.Attribute) and node.attr == attribute
        ]
        return [node for node in attributes if isinstance(node.value, ast.Name) and node.value.id == ctx]


def _assigned(function: ast.FunctionDef) -> Iterator[tuple[ast.Assign, ast.expr, ast.expr]]:
    """Each assignment with its target and its value; ``a, b = c, d`` gives two, ``a = b = c`` none."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, value = node.targets[0], node.value
            if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
                pairs = zip(target.elts, value.elts, strict=False) if len(target.elts) == len(value.elts) else ()
                yield from ((node, one, other) for one, other in pairs)
            else:
                yield node, target, value


def _attribute(node: ast.expr, name: str) -> str:
    """Return ``x`` for ``ctx.x``; an empty string for every other expression."""
    return (
        node.attr
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == name
        else ""
    )


def customs(program: Program) -> Iterator[Custom]:
    """Yield the program's classes that derive directly from ``Function`` and define a ``forward`` and a ``backward``
    with at least one parameter each.
    """
    for node in program.nodes:
        if isinstance(node, ast.ClassDef) and any(_last(base) == "Function" for base in node.bases):
            methods = {each.name: each for each in node.body if isinstance(each, ast.FunctionDef) and each.args.args}
            if "forward" in methods and "backward" in methods:
                yield Custom(
                    node.name, methods["forward"], methods["backward"], methods.get("setup_context", methods["forward"])
                )


def inside(custom: Custom, event: Event, method: str) -> bool:
    """Whether ``event`` was called by the method named ``method`` of ``custom`` itself, not by a function that the
    method calls.
    """
    return bool(event.scope) and _is_method(custom, event.scope[-1], method)


def below(custom: Custom, event: Event, method: str, others: Sequence[Custom] = ()) -> bool:
    """Whether ``event`` was called by the method named ``method`` of ``custom``, or by a function that the method
    called, but not by the forward of one of ``others`` that the method applied.
    """
    for depth, part in enumerate(event.scope):
        if _is_method(custom, part, method):
            inner = event.scope[depth + 1 :]
            return not any(_is_method(other, each, "forward") for other in others for each in inner)
    return False


def _is_method(custom: Custom, part: str, method: str) -> bool:
    return f".{part}".endswith(f".{custom.name}.{method}")


def identified(
    story: Story, run: Sequence[Event], calls: Sequence[Event], known: set[str]
) -> tuple[dict[str, str], str | None]:
    """Return a dict from the labels of tensors in a run of backward to the labels of the same tensors in forward, and
    the label of the incoming gradient.

    ``run`` and ``calls`` are the calls of forward and of backward, ``known`` the labels of the inputs. The incoming
    gradient is the only other tensor that backward was given; None if there is none or several.
    """
    before = known | {result for event in run for result in event.results}
    where = {(story.tensor(label) or {}).get("storage"): label for label in before if story.shape(label) is not None}
    made, same, others = {result for event in calls for result in event.results}, dict[str, str](), set[str]()
    for label in (o.label for event in calls for o in event.operands if o.label is not None):
        if label in before or label in made:
            continue
        storage = (story.tensor(label) or {}).get("storage")
        if storage in where and story.shape(label) == story.shape(where[storage]):
            same[label] = where[storage]
        else:
            others.add(label)
    return same, others.pop() if len(others) == 1 else None


def applied(story: Story, custom: Custom) -> Iterator[tuple[Event, str]]:
    """Yield, for each result of a call in the forward of ``custom`` whose grad_fn is (or became) the Function's own
    graph node, the call with the label of this node.
    """
    for event in story.calls():
        for result in event.results if inside(custom, event, "forward") else ():
            for _, node in story.history("tensors", result, "grad_fn"):
                if (story.record("nodes", node) or {}).get("name") == f"{custom.name}Backward":
                    yield event, node


def returned(custom: Custom) -> list[ast.expr]:
    """Return the expressions that backward returns, one for each input; empty unless it has exactly one ``return`` with
    a value.
    """
    returns = [node for node in ast.walk(custom.backward) if isinstance(node, ast.Return) and node.value is not None]
    if len(returns) != 1 or returns[0].value is None:
        return []
    value = returns[0].value
    return list(value.elts) if isinstance(value, ast.Tuple) else [value]


def returned_label(story: Story, custom: Custom, calls: Sequence[Event], value: ast.expr) -> str | None:
    """Return the label of the tensor that the expression ``value`` of the ``return`` gives: the result of the call that
    is written there, or, for a variable, of the call in its only assignment.

    None if there is no such call, if the variable is assigned more than once, or if the call did not run exactly once.
    """
    program = story.program
    if isinstance(value, ast.Name):
        assigned = [
            node.value
            for node in ast.walk(custom.backward)
            if isinstance(node, ast.Assign) and any(isinstance(t, ast.Name) and t.id == value.id for t in node.targets)
        ]
        if len(assigned) != 1:
            return None
        value = assigned[0]
    place = program.place(value)
    found = [event.results[0] for event in calls if event.span == place and event.results]
    return found[-1] if len(found) == 1 else None


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
