"""A letter of an ``einsum`` equation that has two different sizes, and the letter that was probably intended."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fix
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.trace import T


def letters(error: Error) -> Remedy | None:
    """Return the remedy for a letter of ``einsum`` that has two different sizes, with fixes that give the operand a
    letter that fits its size.

    None if no equation fits, or if the equation is not written in the call as a literal with ``->`` and without
    ``...``.
    """
    refused = error.refused
    node = refused.call
    first = node.args[0] if node is not None and node.args else None
    if (
        not isinstance(first, ast.Constant)
        or not isinstance(first.value, str)
        or "->" not in first.value
        or "." in first.value
    ):
        return None
    shapes = [g.shape for g in refused.tensors if g.shape is not None]
    operands, _, result = first.value.replace(" ", "").partition("->")
    terms = operands.split(",")
    if len(terms) != len(shapes) or any(len(term) != len(shape) for term, shape in zip(terms, shapes, strict=True)):
        return None
    number, letter = int(error.match[3]), error.match[1]
    program, fixes = refused.story.program, []
    for equation in _equations(terms, result, shapes, (number, letter)):
        edits = program.replace((first, f'"{equation}"' if program.segment(first).startswith('"') else repr(equation)))
        fixes.append(Fix(T(en=f'Write the letters so: `"{equation}"`', zh=f'字母这样写：`"{equation}"`'), edits))
    return Remedy(unique(program.text, fixes)) if fixes else None


def _equations(terms: list[str], result: str, shapes: list[tuple[int, ...]], wrong: tuple[int, str]) -> Iterator[str]:
    """Equations in which the letter that clashes is swapped with another one, in its operand only, or also in the
    result.

    The other letter has the operand's size in an earlier operand, or occurs in this operand only. Every letter must
    occur at least twice: one that occurs once is only summed over, which is seldom intended.
    """
    number, letter = wrong
    size = shapes[number][terms[number].index(letter)]
    others = {
        each: length
        for term, shape in zip(terms[:number], shapes, strict=False)
        for each, length in zip(term, shape, strict=True)
    }
    free = [each for each in terms[number] if each not in others]
    for other in [*(each for each, length in others.items() if length == size and each != letter), *free]:
        swap = str.maketrans({letter: other, other: letter})
        term = terms[number].translate(swap)
        for after in dict.fromkeys((result, result.translate(swap))):
            changed = [*terms[:number], term, *terms[number + 1 :]]
            counts = Counter("".join([*changed, after]))
            if _fits(changed, shapes) and min(counts.values()) > 1 and set(after) <= set("".join(changed)):
                yield f"{','.join(changed)}->{after}"


def _fits(terms: list[str], shapes: list[tuple[int, ...]]) -> bool:
    sizes: dict[str, int] = {}
    pairs = [pair for term, shape in zip(terms, shapes, strict=True) for pair in zip(term, shape, strict=True)]
    return all(sizes.setdefault(letter, length) in (length, 1) or length == 1 for letter, length in pairs)
