"""A student who does not read: how often are the questions of the course answered right without
a look at program or prompt?

``python -m tests.lessons.unread`` prints, for outcomes and for reasons, what each strategy scores beside chance. A
strategy sees what one can see without understanding: the position of an answer, its length, its kind, its wording
with names and numbers taken out, what it has in common with the other answers, and which numbers the prompt
mentions. What that is worth it has learned from all the *other* questions: how often an answer that looked so was
the right one. ``everything`` weighs all of it together. Where several answers look equally good, the score is that
of a choice among them by lot. Then follows what a student gets who clicks the same for every claim, unread.
"""

from __future__ import annotations

import argparse
import ast
import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pitfall_lab.lessons import balance, chapters, claims, question, reasons
from pitfall_lab.lessons.question import Question, pose
from pitfall_lab.widgets.claim_widget import DECISIONS, FITTING

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"
POINTS = 5
"""So many points above chance a strategy may score over all questions."""
MARGIN = 0.5
"""Questions are drawn until so much of that is left, so that a change of a prompt does not
ask for another draw at once.
"""


@dataclass(frozen=True, slots=True)
class Sheet:
    """What the student sees of one part of a question: the answers, the prompt's words; and which answers are right."""

    name: str
    prompt: str
    answers: tuple[str, ...]
    right: tuple[bool, ...]
    others: tuple[str, ...] = ()
    """The answers of the question's other part: the reasons beside the outcomes, the outcomes beside the reasons."""

    @property
    def chance(self) -> float:
        """The score of a choice by lot."""
        return sum(self.right) / len(self.right)


@dataclass(frozen=True, slots=True)
class Asked:
    """A question of the course: its cell, the text before it, its arguments."""

    name: str
    prompt: str
    arguments: tuple[Any, ...]
    named: dict[str, Any]

    def pose(self, draw: tuple[int, int] | None = None) -> Question:
        """Return the question as a learner gets it, or as another lot would have it."""
        return pose(*self.arguments, **self.named, draw=draw)


def asked(notebooks: Path = NOTEBOOKS) -> Iterator[Asked]:
    """Yield the questions of the notebooks in their order."""
    for path in sorted(notebooks.glob("*.ipynb")):
        before = ""
        for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and source.startswith("pitfall_lab.question("):
                call: Any = ast.parse(source).body[0]
                named = {word.arg: ast.literal_eval(word.value) for word in call.value.keywords}
                yield Asked(
                    f"{path.name[:2]} {cell['id']}", before, tuple(map(ast.literal_eval, call.value.args)), named
                )
            before = source if cell["cell_type"] == "markdown" else ""


def sheets(asked: Asked, posed: Question) -> tuple[Sheet | None, Sheet | None]:
    """Return what is seen of a question's outcomes and of its reasons; ``None`` where
    there is no one answer to choose.
    """
    names = {node.id for node in ast.walk(ast.parse(posed.program)) if isinstance(node, ast.Name)} | {"grad"}
    outcomes, reasons = (
        tuple(_without(names, part.text.en) for part in parts) for parts in (posed.choices, posed.reasons)
    )
    one = posed.kind != "changes"
    what = Sheet(asked.name, asked.prompt, outcomes, tuple(c.right for c in posed.choices), reasons) if one else None
    why = Sheet(asked.name, asked.prompt, reasons, tuple(r.right for r in posed.reasons), outcomes) if reasons else None
    return what, why


def _without(names: set[str], text: str) -> str:
    """Return a text with the program's names in backticks, to be taken out: who does not read does not know them."""
    return re.sub(
        r"[A-Za-z_]\w*(\.\w+)*",
        lambda word: f"`{word[0]}`" if word[0].split(".")[0] in names - {"a"} else word[0],
        text,
    )


# ---------------------------------------------------------------- what can be seen

Look = Callable[[Sheet], list[str]]


def _words(text: str) -> set[str]:
    return set(re.findall(r"[A-Za-z_.]+|-?\d+(?:\.\d+)?|\S", text))


def _numbers(text: str) -> list[float]:
    return [float(n) for n in re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?(?![\w.])", text.partition(" is ")[2] or text)]


def _rank(values: list[float]) -> list[str]:
    """Return where each value stands among all: the least, the most, between, or the same as all."""
    low, high = min(values), max(values)
    return ["same" if low == high else "most" if v == high else "least" if v == low else "between" for v in values]


def position(sheet: Sheet) -> list[str]:
    """The place in the list."""
    return [str(n) for n in range(len(sheet.answers))]


def length(sheet: Sheet) -> list[str]:
    """The longest, the shortest, or between."""
    return _rank([len(answer) for answer in sheet.answers])


def kind(sheet: Sheet) -> list[str]:
    """What an answer is: that it raises, nothing, or a value; and among how many that raise."""
    kinds = ["raises" if _raises(a) else "None" if a.endswith(" None") else "value" for a in sheet.answers]
    return [f"{one} of {kinds.count('raises')}" for one in kinds]


def _raises(answer: str) -> bool:
    return bool(re.search(r"\braises\b|without an error", answer))


def exception(sheet: Sheet) -> list[str]:
    """The class of the exception, and whether its line is the last of those named."""
    lines = [[int(n) for n in re.findall(r"line (\d+) raises", answer)] for answer in sheet.answers]
    last = max((n for found in lines for n in found), default=0)
    named = [re.findall(r"\b[A-Z]\w+Error\b", answer)[:1] for answer in sheet.answers]
    return [
        f"{name} {'last' if found == [last] else 'earlier' if found else ''}"
        for name, found in zip(named, lines, strict=True)
    ]


def wording(sheet: Sheet) -> list[str]:
    """The words, without names and numbers: a sentence of the lesson is known again, wherever it stands."""
    return [re.sub(r"`[^`]*`|-?\d+(\.\d+)?", "#", answer.partition(" is ")[2] or answer) for answer in sheet.answers]


def opening(sheet: Sheet) -> list[str]:
    """The first words."""
    return [" ".join(re.sub(r"`[^`]*`|\d+", "#", answer).split()[:4]) for answer in sheet.answers]


def company(sheet: Sheet) -> list[str]:
    """How much an answer has in common with the others: the one in the middle, or the odd one."""
    words = [_words(answer) for answer in sheet.answers]
    shared = [sum(len(a & b) / len(a | b) for m, b in enumerate(words) if m != n) for n, a in enumerate(words)]
    return _rank([round(s, 6) for s in shared])


def neighbours(sheet: Sheet) -> list[str]:
    """How close the closest other answer is: of a pair that differs in one word one is true, some think."""
    words = [_words(answer) for answer in sheet.answers]
    return _rank(
        [round(max(len(a & b) / len(a | b) for m, b in enumerate(words) if m != n), 6) for n, a in enumerate(words)]
    )


def shared_numbers(sheet: Sheet) -> list[str]:
    """How many of an answer's numbers other answers have as well."""
    numbers = [set(_numbers(answer)) for answer in sheet.answers]
    return _rank(
        [sum(len(a & b) for m, b in enumerate(numbers) if m != n) / (len(a) or 1) for n, a in enumerate(numbers)]
    )


def size(sheet: Sheet) -> list[str]:
    """The largest numbers, or the smallest."""
    return _rank([sum(map(abs, _numbers(answer))) for answer in sheet.answers])


def form(sheet: Sheet) -> list[str]:
    """What the numbers look like: zeros, ones, one number throughout, equal halves, fractions, none."""
    return [_form(_numbers(answer), answer) for answer in sheet.answers]


def _form(numbers: list[float], answer: str) -> str:
    if not numbers:
        return answer.rpartition(" ")[2]
    half = len(numbers) // 2
    if len(set(numbers)) == 1:
        return "zeros" if not numbers[0] else "ones" if numbers[0] == 1 else "one number"
    if len(numbers) % 2 == 0 and numbers[:half] == numbers[half:]:
        return "equal halves"
    return "fractions" if any(n % 1 for n in numbers) else "negative" if min(numbers) < 0 else "integers"


def prompted(sheet: Sheet) -> list[str]:
    """How many of an answer's numbers the prompt mentions."""
    mentioned = set(_numbers(sheet.prompt))
    return _rank([sum(n in mentioned for n in set(_numbers(answer))) for answer in sheet.answers])


def echo(sheet: Sheet) -> list[str]:
    """How many words of the answer stand in the prompt."""
    mentioned = _words(sheet.prompt.lower())
    return _rank([len(mentioned & _words(answer.lower())) for answer in sheet.answers])


def agreement(sheet: Sheet) -> list[str]:
    """How many words an answer shares with the question's other part: reasons that go with one outcome only."""
    theirs = Counter(word for other in sheet.others for word in _words(other))
    return _rank(
        [sum(theirs[word] for word in _words(answer)) / (len(_words(answer)) or 1) for answer in sheet.answers]
    )


def refusal(sheet: Sheet) -> list[str]:
    """Whether an answer raises, and how many of the other part speak of that."""
    spoken = min(2, sum(bool(re.search(r"rais|refus|overwritten|freed|needs", other)) for other in sheet.others))
    return [f"{_raises(answer)} {spoken}" for answer in sheet.answers]


STRATEGIES: tuple[Look, ...] = (
    position, length, kind, exception, wording, opening, company, neighbours,
    shared_numbers, size, form, prompted, echo, agreement, refusal,
)  # fmt: skip


# ---------------------------------------------------------------- what that is worth


@dataclass(frozen=True, slots=True)
class Seen:
    """A sheet as the student sees it: for each strategy the look of each answer; and which answers are right."""

    looks: dict[str, list[str]]
    right: tuple[bool, ...]


def seen(sheet: Sheet) -> Seen:
    """Look at a sheet with every strategy."""
    return Seen({look.__name__: look(sheet) for look in STRATEGIES}, sheet.right)


def _choose(worth: list[float], right: tuple[bool, ...]) -> float:
    """Return the expected score of the best answer, by lot among equals."""
    best = [n for n, w in enumerate(worth) if abs(w - max(worth)) < 1e-9]
    return sum(right[n] for n in best) / len(best)


def scores(all_seen: list[Seen]) -> dict[str, float]:
    """Return what each strategy scores, in points (of 100) above chance, when it has learned from all
    questions but the one it answers.
    """
    names = [look.__name__ for look in STRATEGIES]
    had: dict[str, tuple[Counter[str], Counter[str]]] = {name: (Counter(), Counter()) for name in names}
    for one in all_seen:
        for name in names:
            for label, ok in zip(one.looks[name], one.right, strict=True):
                had[name][not ok][label] += 1
    good, bad = (
        sum(sum(one.right) if ok else len(one.right) - sum(one.right) for one in all_seen) for ok in (True, False)
    )
    found = dict.fromkeys([*names, "everything"], 0.0)
    for one in all_seen:
        total = [0.0] * len(one.right)
        own = sum(one.right), len(one.right) - sum(one.right)
        for name in names:
            right, wrong = had[name]
            mine = Counter(zip(one.looks[name], one.right, strict=True))
            worth = []
            for label in one.looks[name]:
                yes, no = right[label] - mine[label, True], wrong[label] - mine[label, False]
                worth.append(math.log((yes + 1) / (no + bad / good) * (bad - own[1]) / (good - own[0])))
            total = [a + b for a, b in zip(total, worth, strict=True)]
            found[name] += _choose(worth, one.right)
        found["everything"] += _choose(total, one.right)
    chance = sum(sum(one.right) / len(one.right) for one in all_seen)
    return {name: 100 * (score - chance) / len(all_seen) for name, score in found.items()}


def report(posed: list[tuple[Asked, Question]]) -> float:
    """Print the scores and return the highest."""
    worst = 0.0
    pairs = [sheets(*one) for one in posed]
    for title, part in (("outcomes", 0), ("reasons", 1)):
        found = [sheet for pair in pairs if (sheet := pair[part]) is not None]
        chance = 100 * sum(sheet.chance for sheet in found) / len(found)
        above = scores([seen(sheet) for sheet in found])
        print(f"{title}: {len(found)} questions, chance {chance:.1f} of 100")
        print(
            "".join(f"  {name:15s} {chance + points:5.1f}  {points:+5.1f}\n" for name, points in above.items()),
            flush=True,
        )
        worst = max(worst, *above.values())
    print(f"at most {worst:+.1f} points above chance; {POINTS} are allowed")
    return worst


# ---------------------------------------------------------------- the claims


def clicked(notebooks: Path = NOTEBOOKS) -> dict[str, list[str]]:
    """Return for each chapter (its number) the verdicts of the claims that a learner decides there, in their order."""
    found: dict[str, list[str]] = {}
    for path in sorted(notebooks.glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        shown = [key for source in sources if "claim_list(" not in source for key in chapters.shown_in(source)]
        if shown:
            found[path.name[:2]] = [claims.ledger()[key].judged for key in shown]
    return found


def borne_out(verdicts: list[str]) -> dict[str, int]:
    """Return how many of these claims bear out a student who makes the same decision for all of them, by decision."""
    return {one: sum(one in FITTING[verdict] for verdict in verdicts) for one in DECISIONS}


def always_the_same(decided: dict[str, list[str]]) -> list[str]:
    """Return where one decision for all claims gets more than half: over all chapters, or in one (half rounded up)."""
    every = [verdict for verdicts in decided.values() for verdict in verdicts]
    limits = {"all": (every, len(every) / 2)}
    limits |= {chapter: (verdicts, (len(verdicts) + 1) // 2) for chapter, verdicts in decided.items()}
    return [
        f"{where}: always “{one}” is borne out by {count} of {len(verdicts)}"
        for where, (verdicts, most) in limits.items()
        for one, count in borne_out(verdicts).items()
        if count > most
    ]


# ---------------------------------------------------------------- how the questions draw


def draw(lots: int, sweeps: int) -> None:
    """Choose the numbers by which questions draw, one question after the other, until the student
    learns little; write them down.

    The numbers beside the lessons are where it begins, so that after a small change few questions are drawn anew.
    """
    for module, names in (
        (question, ("_shadow_outcome", "_story", "_fitting", "execute")),
        (reasons, ("facts", "watched")),
    ):
        for name in names:
            setattr(module, name, _once(getattr(module, name)))
    course = list(asked())
    posed = [one.pose() for one in course]
    table = {one.key: list(balance.draws().get(one.key, (0, 0))) for one in posed}
    taken: Taken = ({}, {})
    for n, (one, found) in enumerate(zip(course, posed, strict=True)):
        _take(n, _meet(one, [found], [0, 0]), taken)
    for n, (one, found) in itertools.islice(
        itertools.cycle(enumerate(zip(course, posed, strict=True))), sweeps * len(course)
    ):
        worst = max(max(scores(list(part.values())).values()) for part in taken)
        print(f"{one.name}: at most {worst:+.1f}", flush=True)
        if worst <= POINTS - MARGIN:
            break
        many = [one.pose((number, number)) for number in range(lots)]
        table[found.key] = [number % lots for number in table[found.key]]
        _settle(n, one, many, table[found.key], taken)
    rows = ",\n".join(f' "{key}": {json.dumps(pair)}' for key, pair in sorted(table.items()))
    Path(balance.__file__).with_name("draws.json").write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")


def _meet(one: Asked, many: list[Question], numbers: list[int]) -> tuple[Seen | None, Seen | None]:
    """Return what is seen of a question that draws by these numbers."""
    what, why = sheets(one, many[numbers[0]])[0], sheets(one, many[numbers[1]])[1]
    first = what and seen(replace(what, others=why.answers if why else ()))
    return first, why and seen(replace(why, others=what.answers if what else ()))


def _take(n: int, found: tuple[Seen | None, Seen | None], taken: Taken) -> None:
    for part, one in zip(taken, found, strict=True):
        if one is not None:
            part[n] = one


Taken = tuple[dict[int, Seen], dict[int, Seen]]


def _settle(n: int, one: Asked, many: list[Question], numbers: list[int], taken: Taken) -> None:
    """Let one question draw anew, its reasons and then its outcomes: by the numbers that teach the student least."""
    for part in (1, 0):
        costs = []
        for number in range(len(many)):
            _take(n, _meet(one, many, [*numbers[:part], number, *numbers[part + 1 :]]), taken)
            costs.append((sum(_cost(list(each.values())) for each in taken), number))
        numbers[part] = min(costs)[1]
    _take(n, _meet(one, many, numbers), taken)


def _cost(all_seen: list[Seen]) -> float:
    """How much the student learns: high scores count more than in proportion."""
    return sum(math.exp(points / 2) for points in scores(all_seen).values())


def _once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that works once for equal arguments: a question asks the same of
    its worlds whatever it draws.
    """
    known: dict[str, Any] = {}

    def call(*arguments: Any, **named: Any) -> Any:
        key = repr((arguments, named))
        if key not in known:
            known[key] = function(*arguments, **named)
        return known[key]

    return call


def main() -> int:
    """Print the scores; 1 when one is too high."""
    parser = argparse.ArgumentParser(prog="python -m tests.lessons.unread", description=__doc__)
    parser.add_argument(
        "--draw",
        type=int,
        metavar="LOTS",
        help="choose among so many lots until the bound is kept, and keep the choice",
    )
    arguments = parser.parse_args()
    if arguments.draw:
        draw(arguments.draw, 3)
        balance.draws.cache_clear()
    worst, decided = report([(one, one.pose()) for one in asked()]), clicked()
    every = [verdict for verdicts in decided.values() for verdict in verdicts]
    counts = ", ".join(f"“{one}” {count}" for one, count in borne_out(every).items())
    wrong = always_the_same(decided)
    print(f"claims: {len(every)}; always the same is borne out: {counts}", *wrong, sep="\n")
    return int(worst > POINTS or bool(wrong))


if __name__ == "__main__":
    raise SystemExit(main())
