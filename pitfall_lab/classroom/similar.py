"""Answers that are alike, side by side, for a teacher to compare; whether one was copied is not judged.
:func:`all_pairs` returns the pairs.

The algorithm is :class:`difflib.SequenceMatcher` (Python's own, by Ratcliff and Obershelp) over the tokens of an
answer, with names replaced by the order in which they appear: new names, space and comments change nothing. Exercises
are short and most right answers are alike by necessity, so an answer is left out if it is one of the course's own, or
adds little to the given cell. One answer of two or three students is a pair of its own; one that :data:`COMMON` or
more have is in no pair, and :func:`common` lists it with their names. In a *predict* exercise all fill in one table,
so only the same answer with a mistake is a pair there.
"""

from __future__ import annotations

import difflib
import itertools
import keyword
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pitfall_lab.classroom.register import Row
from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.lessons.exercises import exercises

_TOKEN = re.compile(
    r"#[^\n]*|\"\"\"(?:[^\\]|\\.)*?\"\"\"|'''(?:[^\\]|\\.)*?'''|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\W\d]\w*|[\d.]+|\S",
    re.DOTALL,
)
ALIKE, NEW, COMMON = 0.9, 12, 4
"""How alike two answers have to be; how many tokens one has to add; with so many of the same it is common."""
LONGEST, MOST, MOST_COMPARED, SHOWN = 1500, 400, 30_000, 40
"""Tokens of an answer, different answers and pairs of an exercise that are looked at; pairs that are shown."""
LONGEST_LINE = 200
"""Characters of a line that are shown."""
MOST_STEPS, MOST_STEPS_IN_ALL, RUN = 2_000_000, 60_000_000, 8
"""Steps of comparing a pair, and all pairs of an exercise; what would take more is compared by its runs of so many
tokens. A program of 1500 tokens and a copy of it with sixty changes take 0.4 million; two rows of signs that are made
for it a thousand times as many, which is minutes.
"""


@dataclass(frozen=True, slots=True)
class SimilarPair:
    """Two answers to an exercise that are alike.

    ``key`` is the exercise, ``ratio`` how alike they are (1.0: the same but for names, space and comments). ``one`` and
    ``other`` are the students who gave each answer (what their submissions are called), ``sources`` the two answers as
    the first student of each wrote them.
    """

    key: str
    ratio: float
    one: tuple[str, ...]
    other: tuple[str, ...]
    sources: tuple[str, str]


def all_pairs(rows: Sequence[Row], keys: Sequence[str]) -> list[SimilarPair]:
    """The pairs of answers to the exercises ``keys`` that are alike, most alike first. Of an exercise, at most the
    first ``MOST`` different answers and ``MOST_COMPARED`` pairs of them are compared.
    """
    found = [pair for key in keys for pair in _of_exercise(exercises()[key], rows)]
    return sorted(found, key=lambda pair: -pair.ratio)


def pairs(rows: Sequence[Row], keys: Sequence[str]) -> list[SimilarPair]:
    """The pairs of answers that a page shows: those that are most alike, at most ``SHOWN``, most alike first."""
    return all_pairs(rows, keys)[:SHOWN]


def together(found: Sequence[SimilarPair], keys: Sequence[str]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Pairs of students with the exercises in which their answers are alike, in the order of ``keys``; most exercises
    first, at most ``SHOWN``. ``found`` are the pairs of answers (:func:`all_pairs`).
    """
    alike: dict[tuple[str, str], set[str]] = {}
    for pair in found:
        same = pair.ratio == 1.0  # then the others have this answer, too
        for one, other in (
            itertools.combinations((*pair.one, *pair.other), 2) if same else itertools.product(pair.one, pair.other)
        ):
            alike.setdefault((min(one, other), max(one, other)), set()).add(pair.key)
    return sorted(
        ((*students, tuple(key for key in keys if key in of)) for students, of in alike.items()),
        key=lambda each: (-len(each[2]), each),
    )[:SHOWN]


def _unknown(exercise: Exercise, rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[tuple[str, str]]]]:
    """The different answers to an exercise that are none of the course's own, each as tokens with its students and
    sources.

    Fully right answers to a *predict* exercise are left out.
    """
    answers: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for row in rows:
        for outcome in row.outcomes:
            if (
                outcome.key == exercise.key
                and outcome.source
                and not (exercise.kind == "predict" and outcome.credit >= 1)
            ):
                answers.setdefault(tokens(outcome.source), []).append((row.student, outcome.source))
    known = {tokens(source) for source in (exercise.given, *exercise.right, *exercise.wrong)}
    return [(words, of) for words, of in answers.items() if words not in known]


def _answers(exercise: Exercise, rows: Sequence[Row]) -> list[tuple[tuple[str, ...], list[tuple[str, str]]]]:
    """The answers of :func:`_unknown` that add at least ``NEW`` tokens to the given cell."""
    given = tokens(exercise.given)
    return [(words, of) for words, of in _unknown(exercise, rows) if _adds(words, given) >= NEW]


def too_short(rows: Sequence[Row], keys: Sequence[str]) -> int:
    """How many students' answers are left out of the comparison because they add too little to the given cell (fewer
    than ``NEW`` tokens). The course's own answers are not counted.
    """
    given = {key: tokens(exercises()[key].given) for key in keys}
    return sum(
        len(of) for key in keys for words, of in _unknown(exercises()[key], rows) if _adds(words, given[key]) < NEW
    )


def _of_exercise(exercise: Exercise, rows: Sequence[Row]) -> Iterator[SimilarPair]:
    rare = [(words, of) for words, of in _answers(exercise, rows) if len(of) < COMMON]
    for _, of in rare:
        if len(of) > 1:
            yield SimilarPair(
                exercise.key, 1.0, (of[0][0],), tuple(student for student, _ in of[1:]), (of[0][1], of[1][1])
            )
    if exercise.kind == "predict":
        return
    left = MOST_STEPS_IN_ALL
    for (one, first), (other, second) in itertools.islice(itertools.combinations(rare[:MOST], 2), MOST_COMPARED):
        matcher = _Matcher(one, other, min(left, MOST_STEPS))
        if matcher.real_quick_ratio() < ALIKE or matcher.quick_ratio() < ALIKE:
            continue
        try:
            ratio = matcher.ratio()
        except _TooLongError:
            ratio = by_runs(one, other)
        left = max(0, left - matcher.steps)
        if ratio >= ALIKE:
            names = tuple(tuple(student for student, _ in of) for of in (first, second))
            yield SimilarPair(exercise.key, ratio, names[0], names[1], (first[0][1], second[0][1]))


class _TooLongError(Exception):
    """Comparing two answers would take more steps than it may."""


class _Matcher(difflib.SequenceMatcher[str]):
    """Compares two answers, and raises :class:`_TooLongError` after ``most`` steps.

    A search for the longest common run takes as many steps as there are pairs of equal tokens, and there is a search
    for each common run: answers made of few different tokens take very long.
    """

    def __init__(self, one: Sequence[str], other: Sequence[str], most: int) -> None:
        super().__init__(None, one, other, autojunk=False)
        self.steps, self._most = 0, most
        places: dict[str, list[int]] = vars(self)["b2j"]
        self._until = [0, *itertools.accumulate(len(places.get(word, ())) for word in one)]

    def find_longest_match(
        self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None
    ) -> difflib.Match:
        """The longest common run of tokens in a slice of each answer, as the base class finds it.

        Raises ``_TooLongError`` once the whole comparison has taken too many steps.
        """
        self.steps += self._until[len(self._until) - 1 if ahi is None else ahi] - self._until[alo]
        if self.steps > self._most:
            raise _TooLongError
        return super().find_longest_match(alo, ahi, blo, bhi)


def by_runs(one: Sequence[str], other: Sequence[str]) -> float:
    """How alike two answers (sequences of tokens) are, from 0 to 1, by how many of their runs of ``RUN`` tokens they
    share, in any order.

    >>> by_runs("abcdefghij", "abcdefghij"), by_runs("abcdefghij", "jihgfedcba")
    (1.0, 0.0)
    """
    mine, theirs = (Counter(tuple(words[n : n + RUN]) for n in range(len(words) - RUN + 1)) for words in (one, other))
    return 2 * (mine & theirs).total() / max(1, mine.total() + theirs.total())


def common(rows: Sequence[Row], keys: Sequence[str]) -> list[tuple[str, tuple[str, ...], str]]:
    """The answers that :data:`COMMON` or more students have, each as the exercise, the students, and what the first of
    them wrote; those of the fewest students first, at most ``SHOWN``.
    """
    found = [
        (key, tuple(student for student, _ in of), of[0][1])
        for key in keys
        for _, of in _answers(exercises()[key], rows)
        if len(of) >= COMMON
    ]
    return sorted(found, key=lambda each: len(each[1]))[:SHOWN]


def same_files(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """The groups of students whose files are the same, byte for byte.

    Submissions that could not be read, or in which nothing was done, do not count.
    """
    by_digest: dict[str, list[str]] = {}
    for row in rows:
        if row.digest and row.problem is None and row.verdict != "empty":
            by_digest.setdefault(row.digest, []).append(row.student)
    return [tuple(students) for students in by_digest.values() if len(students) > 1]


def tokens(source: str) -> tuple[str, ...]:
    r"""The tokens of an answer without comments and space; each name becomes ``n0``, ``n1``, … by the order of their
    first appearance, unless it follows a dot. At most ``LONGEST``.

    >>> tokens("def f(a):  # mine\n    return a.exp()") == tokens("def g(b):\n  return b.exp()")
    True
    """
    found: list[str] = []
    names: dict[str, str] = {}
    words = (match[0] for match in _TOKEN.finditer(source[: LONGEST * 20]))
    for word in itertools.islice((word for word in words if not word.startswith("#")), LONGEST):
        named = word.isidentifier() and not keyword.iskeyword(word) and found[-1:] != ["."]
        found.append(names.setdefault(word, f"n{len(names)}") if named else word)
    return tuple(found)


def _adds(words: tuple[str, ...], given: tuple[str, ...]) -> int:
    """Return how many tokens the answer has that the given cell does not have, in order."""
    matcher = difflib.SequenceMatcher(None, given, words, autojunk=False)
    return len(words) - sum(block.size for block in matcher.get_matching_blocks())


def lines(one: str, other: str) -> list[tuple[str, str, bool]]:
    """Two answers side by side, as (line of ``one``, line of ``other``, whether they are equal); "" where an answer has
    no line.

    At most the first 80 lines of each answer, each cut to ``LONGEST_LINE`` characters.
    """
    left, right = one.splitlines()[:80], other.splitlines()[:80]
    found = []
    for word, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        for mine, theirs in itertools.zip_longest(left[a:b], right[c:d], fillvalue=""):
            found.append((mine[:LONGEST_LINE], theirs[:LONGEST_LINE], word == "equal"))
    return found
