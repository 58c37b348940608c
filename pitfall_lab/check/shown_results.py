"""What a repair changes in what its program shows: the last line that it prints otherwise, or the last number that it
leaves otherwise (:func:`line` and :func:`number`).

Both programs run with the same random numbers. A line counts only if a second run of the repaired program prints it as
well, so that times and addresses are never taken for the work of a repair.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from pitfall_lab.rules import Printed

MOST = 100
"""The maximal length of a line that is shown."""
_NUMBER = re.compile(r"\d")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def line(before: str, after: str, again: str) -> Printed | None:
    r"""The last printed line that differs between the outputs ``before`` and ``after`` a repair; ``again``: what
    another run of the repaired program printed.

    None if none differs, or if the two print another number of lines. Spaces do not count; a line is left out if its
    new text has no digit or is not in ``again``, if it is part of a bracket over several lines, or if one of the two
    has more than ``MOST`` (100) characters.

    >>> line("epoch 1\nloss 0.9", "epoch 1\nloss 0.2", "epoch 1\nloss 0.2")
    Printed(name='', before='loss 0.9', after='loss 0.2')
    """
    was, now, repeated = before.splitlines(), after.splitlines(), set(again.splitlines())
    if len(was) != len(now):
        return None
    lines = zip(was, now, _whole_lines(was), _whole_lines(now), strict=True)
    for old, new, *whole in reversed(list(lines)):
        differs = (
            old.split() != new.split() and new in repeated and _NUMBER.search(new) and max(len(old), len(new)) <= MOST
        )
        if differs and all(whole):
            return Printed("", " ".join(old.split()), " ".join(new.split()))
    return None


def _whole_lines(lines: list[str]) -> list[bool]:
    """For each line whether no bracket is open at its beginning or at its end; True for all if one
    is never closed, as in ``:(``.
    """
    found, depth = [], 0
    for text in lines:
        plain, before = _COLOUR.sub("", text), depth
        depth = max(0, depth + sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}")))
        found.append(before == depth == 0)
    return found if depth == 0 else [True] * len(lines)


def number(before: Mapping[str, float], after: Mapping[str, float], again: Mapping[str, float]) -> Printed | None:
    """The last global variable with one number that differs, in its first four digits, between ``before`` and ``after``
    a repair (values by name); ``again``: those of another run before the repair.

    None if none differs. Variables are in the order of their first assignment; one that is not the same in ``again`` is
    left out.

    >>> number({"lr": 0.1, "loss": 0.9}, {"lr": 0.1, "loss": 0.25}, {"lr": 0.1, "loss": 0.9})
    Printed(name='loss', before='0.9', after='0.25')
    """
    for name in reversed(list(before)):
        old, new = before[name], after.get(name)
        if new is not None and again.get(name) == old and (texts := _apart(old, new)) is not None:
            return Printed(name, *texts)
    return None


def _apart(old: float, new: float) -> tuple[str, str] | None:
    """Both numbers with four digits; None if these do not tell them apart."""
    texts = f"{old:.4g}", f"{new:.4g}"
    return texts if texts[0] != texts[1] else None
