"""What the rules find and what they should find, over all programs of the tests: ``python3 -m tests.check.recall``.

- *bad*: each rule's bad program and the programs under ``tests/check/programs``; their comments say
  what must be found, and where.
- *silent*: each rule's good program and the programs under ``tests/rules/silent``: an error or a
  warning there is a false alarm.

One row for each rule: how many of the findings that programs expect were found on their lines, how many were missed, in
how many programs a finding of the rule was a false alarm. The exit code is 1 when something was missed or an alarm was
false. With codes (``PL1``), only the programs of these rules are run.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pitfall_lab.check import Subject, Unchecked, Workshop, recorded
from pitfall_lab.rules import RULES, Finding, Rule, find
from pitfall_lab.rules.kit.expected_marks import expected, plain

TESTS = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Program:
    """A program and what it expects to be found: (code, line)."""

    name: str
    text: str
    expects: tuple[tuple[str, int], ...] = ()
    path: str | None = None


@dataclass
class Tally:
    """Findings that were expected and found, expected and missed, and found without being
    expected (with the programs).
    """

    hits: Counter[str] = field(default_factory=Counter)
    missed: dict[str, list[str]] = field(default_factory=dict)
    false: dict[str, list[str]] = field(default_factory=dict)
    unrun: list[str] = field(default_factory=list)

    def count(self, program: Program, findings: list[Finding]) -> None:
        """Compare what was found in one program with what it expects. Notes count only where they are expected."""
        asked = {code for code, _ in program.expects}
        here = Counter(
            (f.rule, f.span.line if f.span else 0) for f in findings if f.severity != "info" or f.rule in asked
        )
        wanted = Counter(program.expects)
        self.hits.update(code for code, _ in (wanted & here).elements())
        for code, line in (wanted - here).elements():
            self.missed.setdefault(code, []).append(f"{program.name}:{line}")
        for code, line in (here - wanted).elements():
            self.false.setdefault(code, []).append(f"{program.name}:{line}")


def bad(codes: tuple[str, ...]) -> Iterator[Program]:
    """The programs that do something wrong."""
    for rule in chosen(codes):
        yield Program(f"{rule.code} bad", plain(rule.bad), tuple(expected(rule.bad)[0]))
    for path in sorted((TESTS / "check" / "programs").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        expects = tuple(expected(text)[0])
        if any(code.startswith(codes) for code, _ in expects):
            yield Program(path.name, text, expects, str(path))


def silent(codes: tuple[str, ...]) -> Iterator[Program]:
    """The programs that are right."""
    for rule in chosen(codes):
        yield Program(f"{rule.code} good", rule.good)
    if codes != ("PL",):
        return
    for path in sorted((TESTS / "rules" / "silent").glob("*.py")):
        yield Program(path.name, path.read_text(encoding="utf-8"), (), str(path))


def chosen(codes: tuple[str, ...]) -> list[Rule]:
    """The rules whose codes begin so."""
    return [rule for rule in RULES if rule.code.startswith(codes)]


def tally(shop: Workshop, programs: Iterator[Program]) -> tuple[int, Tally]:
    """Run the programs and count."""
    counted, every = Tally(), list(programs)
    for program in every:
        try:
            counted.count(program, find(recorded(shop, Subject(program.text, program.name, program.path))))
        except Unchecked as problem:
            counted.unrun.append(str(problem))
    return len(every), counted


def main() -> int:
    codes = tuple(sys.argv[1:]) or ("PL",)
    with Workshop() as shop:
        (wrong, of_bad), (right, of_silent) = tally(shop, bad(codes)), tally(shop, silent(codes))
    print(f"{wrong} programs that do something wrong, {right} that are right\n")
    print(f"{'rule':<7}{'name':<36}{'expected':>9}{'found':>7}{'recall':>8}{'false alarms':>14}")
    for rule in chosen(codes):
        missed, found = len(of_bad.missed.get(rule.code, ())), of_bad.hits[rule.code]
        false = len(of_bad.false.get(rule.code, ())) + len(of_silent.false.get(rule.code, ()))
        recall = f"{found / (found + missed):.0%}" if found + missed else "-"
        print(f"{rule.code:<7}{rule.name:<36}{found + missed:>9}{found:>7}{recall:>8}{false:>14}")
    found, missed = sum(of_bad.hits.values()), sum(map(len, of_bad.missed.values()))
    false = [place for part in (of_bad, of_silent) for places in part.false.values() for place in places]
    alarmed = {place.rsplit(":", 1)[0] for places in of_silent.false.values() for place in places}
    print(f"{'all':<43}{found + missed:>9}{found:>7}{found / max(found + missed, 1):>8.0%}{len(false):>14}")
    print(f"\nright programs with a false alarm: {len(alarmed)} of {right}")
    lost = [place for places in of_bad.missed.values() for place in places]
    for title, places in (("missed", lost), ("false", false), ("not run", of_bad.unrun + of_silent.unrun)):
        if places:
            print(f"{title}: {', '.join(places)}")
    return int(bool(missed or false or of_bad.unrun or of_silent.unrun))


if __name__ == "__main__":
    sys.exit(main())
