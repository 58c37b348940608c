"""The slow tests, of which the whole run takes a part each day: ``python -m tests.slow LOG`` reads what pytest printed
with ``--durations=0 --durations-min=0.3`` and writes the list again; tests that did not run that day stay in it.

The list is ``slow.txt``: seconds and name of each test that takes a third of a second or more on a busy machine.
What is not in it runs every day, a new test too. Files that take turns by themselves (:func:`tests.turns.todays`) are
not in it: two turns could leave a test out for good. ``PITFALL_EVERYTHING=1`` runs
all, and a run of named files or tests runs all of them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.turns import EVERYTHING, TURN, todays

LIST = Path(__file__).with_name("slow.txt")
DAYS = 36
"""So many days, and each slow test has run."""
MANY_CASES = tuple(f"tests/{name}/" for name in ("fuzz", "observer", "panel", "shadow", "verify"))
OTHER_EACH_DAY = ("tests/verify/test_layers.py", "tests/verify/test_private.py")
MANY = 60
"""So many cases has a function that takes turns by them."""
ROUNDS = 6
DAYS_OF_FILES = (
    ("tests/classroom/test_class.py", "tests/lessons/test_unread.py"),
    ("tests/classroom/test_room.py", "tests/classroom/test_answers.py"),
    ("tests/shadow/test_alone.py", "tests/views/test_twelve.py"),
)
"""Files that begin with something long (a class of students is graded, all chapters are run), by the day of three on
which they run where all tests are run.
"""
_TIMED = re.compile(r"^(\d+\.\d\d)s (?:call|setup) +(\S.*)$", re.MULTILINE)


@cache
def slow() -> dict[str, int]:
    """The place in the list of each slow test, by its name."""
    lines = LIST.read_text(encoding="utf-8").splitlines() if LIST.exists() else []
    return {line.partition(" ")[2]: place for place, line in enumerate(lines)}


def is_left_out(name: str) -> bool:
    """Whether the test is a slow one whose turn is another day.

    The list is sorted by seconds, so each day takes as long. In a file that has turns of its own, the next ones run
    on the next day of the file.
    """
    file, turn = name.partition("::")[0], TURN
    if any(file in files for files in DAYS_OF_FILES):
        turn, day = divmod(TURN, len(DAYS_OF_FILES))
        if not EVERYTHING and file not in DAYS_OF_FILES[day]:
            return True
    place = slow().get(name)
    return not EVERYTHING and place is not None and (place + turn) % DAYS != 0


def waiting(names: Iterable[str]) -> set[str]:
    """Of the names of all tests, those of functions with very many cases whose turn is another day: each case of
    :data:`MANY_CASES` runs every ``ROUNDS`` days where all tests are run.

    A case takes a tenth of a second there; five thousand of them took a third of a whole run. What is in the list of
    slow tests, or has other cases each day, is left as it is: two turns could leave a case out for good.
    """
    cases: dict[str, list[str]] = {}
    for name in names:
        function, _, case = name.partition("[")
        if case and function.startswith(MANY_CASES) and not function.startswith(OTHER_EACH_DAY) and name not in slow():
            cases.setdefault(function, []).append(name)
    return {
        name
        for function, each in cases.items()
        if len(each) >= MANY
        for name in {*each} - {*todays(each, of=ROUNDS, begin=len(function))}
    }


def read(log: str) -> list[tuple[float, str]]:
    """Seconds and names of the tests that pytest timed, slowest first; setup and call together.

    >>> read("1.50s call     tests/a.py::test_b\\n0.75s setup    tests/a.py::test_b\\n")
    [(2.25, 'tests/a.py::test_b')]
    """
    found: dict[str, float] = {}
    for seconds, name in _TIMED.findall(log):
        found[name] = found.get(name, 0) + float(seconds)
    return sorted(((seconds, name) for name, seconds in found.items()), reverse=True)


def main(words: list[str]) -> int:
    """Write the list from a log."""
    rows = read(Path(words[0]).read_text(encoding="utf-8", errors="replace"))
    root = LIST.parent.parent
    turning = {
        path.relative_to(root).as_posix()
        for path in LIST.parent.rglob("*.py")
        if re.search(r"todays\(|in_whole_runs\(", path.read_text("utf-8"))
    }
    ran = {name for _, name in rows}
    before = [line.partition(" ")[::2] for line in LIST.read_text(encoding="utf-8").splitlines()]
    rows += [(float(seconds), name) for seconds, name in before if name not in ran]
    kept = sorted(
        {
            (seconds, name)
            for seconds, name in rows
            if name.partition("::")[0] not in turning
            and not name.startswith("tests/browser/")  # a run of its own
            and (root / name.partition("::")[0]).is_file()
        },
        reverse=True,
    )
    LIST.write_text("".join(f"{seconds:.1f} {name}\n" for seconds, name in kept), encoding="utf-8")
    print(f"{len(kept)} tests, {sum(seconds for seconds, _ in kept):.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
