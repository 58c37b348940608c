"""Repairs of a custom Function: backward computes from the saved inputs what forward had stored for it."""

from __future__ import annotations

import ast

from pitfall_lab.rules.kit.custom_functions import Custom
from pitfall_lab.rules.kit.finding import Edit
from pitfall_lab.rules.kit.source import Program, merge

DEEP = 5
"""How many assignments of forward may lead from an input to what is stored."""


class Recomputing:
    """Makes edits by which the backward of ``custom`` computes what its forward had stored for it.

    ``tensors`` are the names of forward's inputs that are tensors.
    """

    def __init__(self, program: Program, custom: Custom, tensors: set[str]) -> None:
        self._program, self._custom, self._tensors = program, custom, tensors
        self._own = custom.backward.args.args[0].arg
        self._saving = next((n for n in ast.walk(custom.forward) if isinstance(n, ast.Call) and _is_saving(n)), None)
        self._unpacking = next(
            (n for n in ast.walk(custom.backward) if isinstance(n, ast.Assign) and self._unpacks(n)), None
        )
        self._numbers: list[str] = []

    def edits(self, name: str) -> tuple[Edit, ...] | None:
        """Return the edits by which backward computes ``name``, an attribute of ``ctx`` (``"ctx.gate"``) or a tensor
        saved with ``save_for_backward``, or the source of an expression that was passed to it.

        None if, among other reasons, forward does not call ``save_for_backward``, backward does not unpack
        ``saved_tensors`` into as many names, or ``name`` cannot be computed from the inputs of forward.
        """
        saving, unpacking = self._saving, self._unpacking
        target = unpacking.targets[0] if unpacking is not None else None
        if (
            saving is None
            or unpacking is None
            or not isinstance(target, ast.Tuple)
            or len(target.elts) != len(saving.args)
        ):
            return None
        program = self._program
        attribute = name.removeprefix(f"{self._custom.ctx}.")
        attribute = "" if attribute == name else attribute
        saved = {program.segment(a): program.segment(t) for a, t in zip(saving.args, target.elts, strict=True)}
        local = attribute or saved.pop(name, "")
        needed = self._inputs(name)
        if not local or any(word in saved.values() for word in (local, *needed) if word not in saved):
            return None
        self._numbers = [each for each in needed if each not in self._tensors]
        saved |= {each: each for each in needed if each in self._tensors and each not in saved}
        lines = self._lines(name, local, saved) if saved else None
        return None if lines is None else self._changed(name, attribute, saved, lines)

    def _changed(self, name: str, attribute: str, saved: dict[str, str], lines: list[str]) -> tuple[Edit, ...] | None:
        program, saving, unpacking = self._program, self._saving, self._unpacking
        assert saving is not None
        assert unpacking is not None
        statement, glue = program.statement(saving), "\n" + program.indent(unpacking)
        reads = [n for n in ast.walk(self._custom.backward) if _is_attribute(n, self._own, attribute)]
        kept = [n for n in ast.walk(self._custom.forward) if _is_attribute(n, self._custom.ctx, attribute)]
        taken = {n.id for n in ast.walk(self._custom.forward) if isinstance(n, ast.Name)}
        if statement is None or (attribute and (not reads or attribute in taken)):
            return None
        parts = []
        named = program.statement(reads[0]) if len(reads) == 1 and len(lines) == 1 else None
        if (
            isinstance(named, ast.Assign) and named.value is reads[0]
        ):  # `s = ctx.gate`: what it stands for takes its place
            parts.append(program.replace((named.value, lines.pop().split(" = ", 1)[1])))
        elif attribute:
            parts.append(program.replace(*((n, attribute) for n in reads)))
        given, targets = list(saved), list(saved.values())
        if given != [program.segment(a) for a in saving.args] or lines:
            values = ", ".join(targets) + ("," if len(targets) == 1 else "")
            whole = program.segment(unpacking.value)
            parts.append(program.replace((unpacking, glue.join([f"{values} = {whole}", *lines]))))
        call = f"{program.segment(saving.func)}({', '.join(given)})"
        numbers = [f"{self._custom.ctx}.{each} = {each}" for each in self._numbers]
        if call != program.segment(saving) or numbers:
            parts.append(program.replace((statement, ("\n" + program.indent(statement)).join([*numbers, call]))))
        if kept:
            parts.append(program.replace(*((n, attribute) for n in kept)))
        return merge(*parts)

    def _definition(self, name: str) -> ast.expr | None:
        """The expression that forward assigns to a name, if it does so exactly once; else None. Also for the source of
        an expression that is passed to ``save_for_backward``.

        If that is itself a name (not an input), the expression assigned to that name.
        """
        own = [each for each in (self._saving.args if self._saving is not None else ()) if not _is_name(each)]
        written = next((each for each in own if self._program.segment(each) == name), None)
        if written is not None:
            return written
        found = [
            n
            for n in ast.walk(self._custom.forward)
            if isinstance(n, ast.Assign) and self._program.segment(n.targets[0]) == name
        ]
        value = found[0].value if len(found) == 1 and len(found[0].targets) == 1 else None
        return (
            self._definition(value.id) if isinstance(value, ast.Name) and value.id not in self._custom.inputs else value
        )

    def _inputs(self, name: str, deep: int = DEEP) -> list[str]:
        """The parameters of forward that the definition of a name uses, directly or through at most ``deep``
        definitions.
        """
        value, found = self._definition(name), list[str]()
        for node in ast.walk(value) if value is not None and deep else ():
            if isinstance(node, ast.Name):
                found += [node.id] if node.id in self._custom.inputs else self._inputs(node.id, deep - 1)
        return list(dict.fromkeys(found))

    def _lines(self, name: str, local: str, saved: dict[str, str], deep: int = DEEP) -> list[str] | None:
        """Assignments that compute the name ``name`` of forward from what is saved, as source lines; the last one
        assigns to ``local``.

        None if forward does not assign the name exactly once and on one line, uses ``ctx`` for it, or needs more than
        ``deep`` definitions in a row.
        """
        value, inputs = self._definition(name), self._custom.inputs
        if value is None or deep == 0 or value.lineno != value.end_lineno:
            return None
        own = {
            n.id for n in ast.walk(self._custom.forward) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        } | set(inputs)
        before: list[str] = []
        text, start = self._program.segment(value), self._program.place(value).column
        names = [n for n in ast.walk(value) if isinstance(n, ast.Name)]
        for node in sorted(names, key=lambda n: -self._program.place(n).column):
            if node.id == self._custom.ctx:
                return None
            new = saved.get(node.id, f"{self._own}.{node.id}" if node.id in self._numbers else node.id)
            if node.id in own and node.id not in saved and node.id not in self._numbers:
                deeper = self._lines(node.id, node.id, saved, deep - 1)
                if deeper is None:
                    return None
                before += [line for line in deeper if line not in before]
            at = self._program.place(node).column - start
            text = text[:at] + new + text[at + len(node.id) :]
        return [*before, f"{local} = {text}"]

    def _unpacks(self, node: ast.Assign) -> bool:
        return len(node.targets) == 1 and self._program.segment(node.value) == f"{self._own}.saved_tensors"


def _is_name(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Starred)


def _is_saving(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and call.func.attr == "save_for_backward"


def _is_attribute(node: ast.AST, owner: str, attribute: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == attribute
        and isinstance(node.value, ast.Name)
        and node.value.id == owner
    )
