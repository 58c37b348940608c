"""Numbers that a program shows, before and after a repair: whether the new one looks worse,
as a loss that has grown does.
"""

from __future__ import annotations

import re

from pitfall_lab.trace.words import T

WORSE = T(
    en="That it is worse does not speak against the fix: the old number was computed with the mistake.",
    zh="数值变差并不说明修改不对：原来的数是带着错误算出来的。",
)
_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_NAMED = re.compile(rf"([A-Za-z_]\w*)\W{{1,3}}?({_NUMBER})")
_SMALL = re.compile(r"loss|err|mse|mae|nll|ppl|perplexity|regret", re.IGNORECASE)
_LARGE = re.compile(r"acc|f1|auc|precision|recall|reward|return|score|iou|dice|psnr|snr|r2", re.IGNORECASE)


def looks_worse(name: str, before: str, after: str) -> bool:
    """Whether a loss or an error has grown, or a score or an accuracy has fallen, judged by what it is
    called; False for any other name.

    ``before`` and ``after`` are numbers of the variable ``name``, or with an empty name lines with a word before each
    number; one worse number in them is enough, and lines with different numbers of numbers give False.

    >>> looks_worse("", "epoch 9 loss 0.1 acc 0.99", "epoch 9 loss 0.3 acc 0.97")
    True
    >>> looks_worse("recall", "0.25", "0.5")
    False
    """
    if name:
        return _is_worse(name, before, after)
    was, now = _NAMED.findall(before), _NAMED.findall(after)
    pairs = zip(was, now, strict=True) if len(was) == len(now) else ()
    return any(old[0] == new[0] and _is_worse(old[0], old[1], new[1]) for old, new in pairs)


def _is_worse(name: str, before: str, after: str) -> bool:
    try:
        grown = float(after) - float(before)
    except ValueError:
        return False
    return grown > 0 if _SMALL.search(name) else grown < 0 if _LARGE.search(name) else False
