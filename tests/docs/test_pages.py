"""The catalogue's pages say what the rules' files say and what their programs do now;
``explain`` prints them without torch.
"""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from pitfall_lab.check import Workshop
from pitfall_lab.reference import pages
from pitfall_lab.rules import CATALOGUE, FAMILIES, RULES, Rule, find
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.trace import LANGUAGES, Language
from pitfall_lab.verify import trace_program
from tests.rules.build import examined
from tests.turns import in_whole_runs, todays
from tests.workers import Remembering

ROOT = Path(pages.__file__).parent.parent
REMEDY = "run `python -m pitfall_lab.reference.pages`"


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Remembering() as workshop:
        yield workshop


TODAYS = todays(RULES, of=8)


@cache
def demonstrated(rule: Rule, shop: Workshop) -> pages.Demonstration:
    """What the page is made of; what the programs print unrecorded is taken from the page where the
    rule does not have its turn.
    """
    if rule in TODAYS:
        return pages.demonstrate(rule, shop)
    written = (pages.FOLDER / pages.page_name(rule.code, "en")).read_text(encoding="utf-8")
    bad, _, good = re.findall(r"^```text\n(.*?)\n?```$", written, flags=re.MULTILINE | re.DOTALL)
    found = (
        each.with_fixes(tuple(replace(fix, printed=None) for fix in each.fixes))
        for each in examined(shop, plain(rule.bad))
    )
    return pages.Demonstration(bad, good, tuple(found))


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rule", in_whole_runs(RULES, of=8), ids=lambda r: r.code)
def test_a_page_is_what_its_rule_says_and_its_programs_do(rule: Rule, language: Language, shop: Workshop) -> None:
    path = pages.FOLDER / pages.page_name(rule.code, language)
    assert path.is_file(), REMEDY
    assert_same(path.read_text(encoding="utf-8"), pages.page(rule, demonstrated(rule, shop), language))


def assert_same(written: str, made: str) -> None:
    """The same text; a number with a point may differ behind five digits: in which order a kernel
    sums is the processor's choice.
    """
    point = re.compile(r"\d+\.\d+(?:e[-+]?\d+)?")
    assert point.sub("0.", written) == point.sub("0.", made), REMEDY
    for old, new in zip(point.findall(written), point.findall(made), strict=True):
        assert math.isclose(float(old), float(new), rel_tol=1e-5, abs_tol=1e-6), f"{old} and {new}: {REMEDY}"


def test_the_page_of_a_family_is_what_its_program_does_and_its_repaired_program_gives_nothing() -> None:
    for family in FAMILIES:
        trace = trace_program(family.bad, pages.NAME)
        found = find(trace)
        assert [finding.rule for finding in found] == [family.code]
        for language in LANGUAGES:
            path = pages.FOLDER / pages.page_name(family.code, language)
            assert path.read_text(encoding="utf-8") == pages.family_page(family, trace, language), REMEDY
        repaired = trace_program(family.good, pages.NAME)
        assert repaired.outcome.kind == "finished", family.code
        assert find(repaired) == [], family.code


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_index_lists_every_rule_and_no_page_is_left_over(language: Language) -> None:
    text = (pages.FOLDER / pages.page_name("README", language)).read_text(encoding="utf-8")
    assert text == pages.index(language), REMEDY
    made = {pages.page_name(code, each) for code in ["README", *(r.code for r in CATALOGUE)] for each in LANGUAGES}
    assert {path.name for path in pages.FOLDER.glob("*.md")} == made, REMEDY


def explain(*words: str) -> subprocess.CompletedProcess[str]:
    """The command, where importing torch fails."""
    start = "import sys; sys.modules['torch'] = None; from pitfall_lab.cli import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", start, "explain", *words],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )


@pytest.mark.parametrize("word", ["PL101", "pl101", "saved-tensor-overwritten"])
def test_a_page_is_printed_by_code_or_by_name(word: str) -> None:
    done = explain(word)
    assert done.returncode == 0
    assert done.stdout.startswith("# PL101 saved-tensor-overwritten\n")
    assert "h.mul_(10)" in done.stdout


def test_a_page_is_printed_in_chinese() -> None:
    assert "反向传播需要的张量被覆盖了" in explain("PL101", "--lang", "zh").stdout


def test_all_rules_are_listed() -> None:
    lines = explain("--list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["PL001", *(rule.code for rule in CATALOGUE)]


def test_the_finding_about_comments_is_explained_too() -> None:
    assert explain("pl001").stdout.startswith("# PL001 unused-ignore\n")


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("PL1O1", "Did you mean PL101?"),
        ("saved-tensor", "Did you mean"),
        ("nonsense", "--list"),
        ("QQ123", "'QQ123'. `pitfall-lab"),
    ],
)
def test_an_unknown_rule_is_one_sentence_with_the_nearest_one(word: str, hint: str) -> None:
    done = explain(word)
    assert (done.returncode, done.stdout) == (2, "")
    assert hint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_explain_without_a_rule_says_what_to_name() -> None:
    done = explain()
    assert done.returncode == 2
    assert "--list" in done.stderr
