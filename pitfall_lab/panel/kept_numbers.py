"""Reads from the source of a cell which values it computes from data that it then changes by means of them
(:func:`kept_numbers`).

``mu = x.mean(); x = x - mu`` and ``order = n.argsort(); n = n[order]`` are correct only once: when run again, the cell
starts from its own result.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from typing import NamedTuple

from pitfall_lab.panel.name_flow import binds, reads

_DRAWS = ("rand", "shuffle", "perm", "sample", "dropout", "bernoulli", "multinomial", "normal_", "choice")


class KeptNumber(NamedTuple):
    """A value that a cell computes from data and then uses to change the data: the cell computes ``name`` from
    ``source``, and then binds ``source`` to a value computed with ``name``.

    ``key`` is the statement that computes it (its dumped syntax tree), by which it is found again in another run;
    ``names`` are the other names that the statement reads.
    """

    name: str
    source: str
    key: str
    names: frozenset[str]


def kept_numbers(tree: ast.Module, carried: Collection[str]) -> list[KeptNumber]:
    r"""The values that a cell computes correctly only in its first run.

    ``carried`` are the names that the cell reads from an earlier one and binds again.

    >>> [each[:2] for each in kept_numbers(ast.parse("mu, sd = x.mean(), x.std()\nx = (x - mu) / sd"), {"x"})]
    [('mu', 'x'), ('sd', 'x')]
    """
    open_numbers: list[KeptNumber] = []
    found: list[KeptNumber] = []
    bound: set[str] = set()
    for statement in _in_order(tree.body) if carried else ():
        read = set(reads(statement))
        if isinstance(statement, ast.Assign):
            targets = set(binds(statement))
            found += [each for each in open_numbers if each.source in targets and {each.name, each.source} <= read]
            open_numbers += [
                KeptNumber(name, source, ast.dump(statement), frozenset(read - {source}))
                for source in sorted(read.intersection(carried) - bound - targets)
                for name in sorted(targets - read)
                if not _draws(statement.value)
            ]
        bound |= set(binds(statement))
    return found


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, (ast.With, ast.If, ast.Try)):
            yield from _in_order(statement.body)
        elif not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield statement


def _draws(expression: ast.expr) -> bool:
    """Whether an expression may give another value in each run, as it draws random numbers."""
    words = (each.attr if isinstance(each, ast.Attribute) else each.id
             for each in ast.walk(expression) if isinstance(each, (ast.Attribute, ast.Name)))  # fmt: skip
    return any(one in word for word in words for one in _DRAWS)
