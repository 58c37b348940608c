"""Compares numbers that a program shows before and after a repair: :func:`worse` returns a sentence where the new one
looks worse, as a loss that has grown does.
"""

from __future__ import annotations

import re

from pitfall_lab.trace.words import T

_NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?"
_WORD = r"[A-Za-z_]\w*(?:-[A-Za-z_]\w*)*"
_NAMED = re.compile(rf"((?:{_WORD} )*{_WORD})\W{{1,3}}?({_NUMBER})")
_SMALL = re.compile(r"loss|err|mse|mae|nll|ppl|perplexity|regret", re.IGNORECASE)
_LARGE = re.compile(r"acc|f1|auc|precision|recall|reward|return|score|iou|dice|psnr|snr|r2", re.IGNORECASE)


def worse(name: str, before: str, after: str) -> T | None:
    """A sentence about the first loss or error that has grown, or score or accuracy that has fallen, judged by the last
    word of its name; None if there is none.

    ``before`` and ``after`` are numbers of the variable ``name``, or with an empty name lines with words before each
    number. None, too, where the two have different numbers of named numbers; a number with another name in ``after`` is
    passed over.

    >>> worse("", "epoch 9 train loss 0.1 acc 0.99", "epoch 9 train loss 0.3 acc 0.97").en
    'That “train loss” is higher now does not speak against the fix: the old number was computed with the mistake.'
    >>> worse("", "one-step rmse 0.04", "one-step rmse 0.55").en.partition("”")[0]
    'That “one-step rmse'
    >>> worse("recall", "0.25", "0.5")
    """
    was = [(name, before)] if name else _NAMED.findall(before)
    now = [(name, after)] if name else _NAMED.findall(after)
    if len(was) != len(now):
        return None
    for (called, old), (same, new) in zip(was, now, strict=True):
        if called == same and _is_worse(called.split(" ")[-1], old, new):
            higher = float(new) > float(old)
            return T(
                en=f"That “{called}” is {'higher' if higher else 'lower'} now does not speak against the fix: the old "
                "number was computed with the mistake.",
                zh=f"“{called}” 变{'大' if higher else '小'}了，这并不说明修改不对：原来的数是带着错误算出来的。",
            )
    return None


def _is_worse(word: str, before: str, after: str) -> bool:
    try:
        grown = float(after) - float(before)
    except ValueError:
        return False
    return grown > 0 if _SMALL.search(word) else grown < 0 if _LARGE.search(word) else False
