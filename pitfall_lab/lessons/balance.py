"""Chooses wrong answers, and an order of all answers, so that the right one can be found only from the program.
:meth:`Lots.pick` returns the indices of the chosen answers.

Of the answers that mistakes give, those are taken beside which the right one is not conspicuous, neither by its
length nor by
what it has in common with the others: its place in such a ranking is drawn at random for each question. A question
draws by its own number in ``draws.json`` (0 without one), one for its outcomes and one for its reasons. These numbers
are chosen for the course as a whole, by ``python -m tests.lessons.unread --draw``, so that a student who does not read
gets no further than by guessing. A lot is a hash: a question is the same every time.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pitfall_lab.trace import T

_MOST = 12
Trait = Callable[[list[str]], list[float]]


def lot(*of: str) -> int:
    """An integer from 0 to 2**32 - 1 that is a hash of the words ``of``: it looks random, and is the same in every
    session.
    """
    return int(hashlib.sha256("\0".join(of).encode()).hexdigest()[:8], 16)


@cache
def draws() -> dict[str, list[int]]:
    """Return the numbers by which the course's questions draw: for each question's key a list of two, for its outcomes
    and for its reasons.
    """
    found: dict[str, list[int]] = json.loads(files(__package__).joinpath("draws.json").read_text("utf-8"))
    return found


def _length(texts: list[str]) -> list[float]:
    return [float(len(text)) for text in texts]


def _company(texts: list[str]) -> list[float]:
    """Return for each text how similar it is to the others: the sum of the fractions of words that
    it shares with each of them.
    """
    words = [set(re.findall(r"[\w.]+", text)) for text in texts]
    return [sum(len(a & b) / (len(a | b) or 1) for b in words if b is not a) for a in words]


def _size(texts: list[str]) -> list[float]:
    """Return, for each text, the sum of the absolute values of the numbers in it."""
    return [sum(abs(float(n)) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?", text)) for text in texts]


TRAITS: tuple[Trait, ...] = (_length, _company, _size)


@dataclass(frozen=True, slots=True)
class Lots:
    """Draws by hash instead of at random: they depend on ``seed``, a text for one part of a question, and the order of
    the answers also on ``learner``, a text for a person (empty: one order for all).
    """

    seed: str
    learner: str = ""

    def number(self, *of: str) -> int:
        """An integer from 0 to 2**32 - 1 for these words and the seed, as :func:`lot` gives it."""
        return lot(self.seed, *of)

    def place(self, text: T) -> int:
        """Return the sort key of an answer: it gives each learner an order of their own."""
        return lot(self.seed, text.en, *filter(None, [self.learner]))

    def pick(
        self,
        right: str,
        wrong: Sequence[str],
        count: int,
        *,
        must: int = 0,
        labels: dict[str, str] | None = None,
        weak: Callable[[str], bool] = lambda _: False,
    ) -> list[int]:
        """The indices of ``count`` of the ``wrong`` answers, beside which the answer ``right`` is not conspicuous.

        Only the first twelve are considered, so there may be fewer; the first ``must`` of them are always chosen.
        ``labels`` gives each answer a label: how many chosen ones have the label of the right answer is drawn by hash,
        too. Of answers that are ``weak`` at most one is chosen, if that is possible.
        """
        few = range(min(len(wrong), _MOST))
        count = min(count, len(few))
        ways = [(*few[:must], *rest) for rest in itertools.combinations(few[must:], max(0, count - must))]
        fewest = max(1, min((sum(weak(wrong[n]) for n in way) for way in ways), default=0))
        ways = [way for way in ways if sum(weak(wrong[n]) for n in way) <= fewest]
        places = [self.number(right, trait.__name__) / 2**32 for trait in TRAITS]
        alike = 1 + self.number(right, "alike") % 3

        def strain(way: tuple[int, ...]) -> tuple[float, int]:
            texts = [right, *(wrong[n] for n in way)]
            off = sum(abs(_place(trait(texts)) - place) for trait, place in zip(TRAITS, places, strict=True))
            same = sum(labels[text] == labels[right] for text in texts[1:]) if labels else alike
            return off + 0.5 * abs(same - alike), self.number(*texts)

        return list(min(ways, key=strain)[:count])


def _place(values: list[float]) -> float:
    """Return the rank of the first value among all: 0 is the least, 1 the most; equal values share a rank."""
    below, same = sum(v < values[0] - 1e-9 for v in values), sum(abs(v - values[0]) <= 1e-9 for v in values)
    return (below + (same - 1) / 2) / max(1, len(values) - 1)
