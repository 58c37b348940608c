"""What a repair changes in what its program shows: a line that it prints otherwise, or the last number that it leaves
otherwise (:func:`line` and :func:`number`).

Both programs run with the same random numbers. A line counts only if a second run of the repaired program prints it as
well, so that times and addresses are never taken for the work of a repair.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import isfinite, isnan

from pitfall_lab.rules import Printed

MOST = 100
"""The maximal length of a line that is shown."""
_DIGIT = re.compile(r"\d")
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|[-+]?\b(?:inf|nan)\b")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def line(before: str, after: str, again: str) -> Printed | None:
    r"""The printed line that shows best what a repair changes; None if no line qualifies.

    ``before`` and ``after`` are the outputs without and with the repair, ``again`` is the output of a second run of the
    repaired program. Lines are compared one by one, ignoring spaces, so None is returned if the outputs have different
    numbers of lines. A line is left out if its new text has no digit or is not in ``again``, if it is inside a bracket
    over several lines, or if its old or new text has more than ``MOST`` (100) characters. Lines that loops print
    repeatedly with other numbers are used only if no other line differs. Of the rest, the last line is returned whose
    relative change is at least a third of the largest one.

    >>> line("epoch 1\nloss 0.9", "epoch 1\nloss 0.2", "epoch 1\nloss 0.2")
    Printed(name='', before='loss 0.9', after='loss 0.2')
    >>> line("moved 0.5\nlength 3.3", "moved 0.0\nlength 3.4", "moved 0.0\nlength 3.4")
    Printed(name='', before='moved 0.5', after='moved 0.0')
    """
    was, now, repeated = before.splitlines(), after.splitlines(), set(again.splitlines())
    if len(was) != len(now):
        return None
    differing = [
        (" ".join(old.split()), " ".join(new.split()))
        for old, new, *whole in zip(was, now, _whole_lines(was), _whole_lines(now), strict=True)
        if old.split() != new.split() and new in repeated and _DIGIT.search(new) and all(whole)
        if max(len(old), len(new)) <= MOST
    ]
    forms = Counter(_form(text) for text in now)
    single = [pair for pair in differing if forms[_form(pair[1])] == 1] or differing[-1:]
    most = max((_change(*pair) for pair in single), default=0.0)
    return next((Printed("", *pair) for pair in reversed(single) if _change(*pair) >= most / 3), None)


def _form(text: str) -> str:
    """A line without its numbers and with single spaces: the same for what each round of a loop prints."""
    return _NUMBER.sub("#", " ".join(text.split()))


def _change(old: str, new: str) -> float:
    """The largest relative change of a number between two lines: the difference over the sum of both absolute values.

    It is from 0 to 1; a change between finite and infinite or NaN is 1. 0 if the lines have different counts of
    numbers.
    """
    was, now = ([float(number) for number in _NUMBER.findall(text)] for text in (old, new))
    if len(was) != len(now):
        return 0.0
    pairs = [(a, b) for a, b in zip(was, now, strict=True) if a != b and not (isnan(a) and isnan(b))]
    return max((abs(a - b) / (abs(a) + abs(b)) if isfinite(a + b) else 1.0 for a, b in pairs), default=0.0)


def _whole_lines(lines: list[str]) -> list[bool]:
    """For each line, whether no bracket is open at its beginning and at its end.

    True for all lines if a bracket is never closed, as in ``:(``.
    """
    found, depth = [], 0
    for text in lines:
        plain, before = _COLOUR.sub("", text), depth
        depth = max(0, depth + sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}")))
        found.append(before == depth == 0)
    return found if depth == 0 else [True] * len(lines)


def number(before: Mapping[str, float], after: Mapping[str, float], again: Mapping[str, float]) -> Printed | None:
    """The last global variable with one number that a repair changes in its first four digits; None if there is none.

    ``before`` and ``after`` are the values by name without and with the repair, in the order of their first assignment;
    ``again`` are those of another run without it. A variable that is not equal in ``again`` is left out.

    >>> number({"lr": 0.1, "loss": 0.9}, {"lr": 0.1, "loss": 0.25}, {"lr": 0.1, "loss": 0.9})
    Printed(name='loss', before='0.9', after='0.25')
    """
    for name in reversed(list(before)):
        old, new = before[name], after.get(name)
        if new is not None and again.get(name) == old and (texts := _apart(old, new)) is not None:
            return Printed(name, *texts)
    return None


def _apart(old: float, new: float) -> tuple[str, str] | None:
    """Both numbers with four significant digits, as text; None if the two texts are equal."""
    texts = f"{old:.4g}", f"{new:.4g}"
    return texts if texts[0] != texts[1] else None
