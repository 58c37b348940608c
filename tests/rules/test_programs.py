"""A rule's bad program gives exactly its finding, on the right lines, with a verified fix; its good one
none; its traps do not help.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import RULES, Rule, Trap, find
from pitfall_lab.rules.kit.advice import last_sentence
from pitfall_lab.rules.kit.expected_marks import expected, met, plain
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import LANGUAGES
from tests.rules.build import examined
from tests.turns import in_whole_runs, todays

EACH = pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
RUN = pytest.mark.parametrize("rule", in_whole_runs(RULES, of=8), ids=lambda r: r.code)
SOME = todays(RULES, of=8)
TODAYS = pytest.mark.parametrize("rule", SOME, ids=lambda r: r.code)
TRAPS = pytest.mark.parametrize(
    ("rule", "trap"), [(r, t) for r in SOME for t in r.traps], ids=lambda x: getattr(x, "code", None) or x.new
)
# What the first sentence a beginner reads may not say before the page has explained it.
JARGON = (
    "leaf",
    "version counter",
    "grad_fn",
    "autograd",
    "storage",
    "stride",
    "saved tensor",
    "computation graph",
    "in-place",
)

# What only takes the error away: never offered as a repair (the rules' traps explain it).
HIDING = (
    r"\.data\b",
    "retain_graph=True",
    "allow_unused=True",
    "allow_mutation_on_saved_tensors",
    "_unsafe_preserve_version_counter",
)


@RUN
def test_the_bad_program_gives_exactly_its_finding_with_a_verified_fix(rule: Rule, shop: Workshop) -> None:
    text = plain(rule.bad)
    (finding,) = examined(shop, text)
    assert met([finding], rule.bad) == ""
    assert finding.rule == rule.code
    assert finding.fixes
    assert all(fix.verified for fix in finding.fixes)
    for fix in finding.fixes:
        assert [
            word
            for word in HIDING
            if any(re.search(word, edit.text) for edit in fix.edits) and not re.search(word, text)
        ] == []
        # What the trial of the fix has found in the repaired program, notes included: it is not run once more.
        assert shop.facts(Subject(apply(text, fix.edits), "program.py")).found == ()


@RUN
def test_the_good_program_gives_no_finding(rule: Rule, shop: Workshop) -> None:
    assert examined(shop, rule.good) == []


@TODAYS
def test_the_first_fix_of_the_bad_program_computes_what_the_good_one_does(rule: Rule, shop: Workshop) -> None:
    text = plain(rule.bad)
    (finding,) = examined(shop, text)
    repaired = shop.witness(Subject(apply(text, finding.fixes[0].edits), "program.py"))
    good = shop.witness(Subject(rule.good, "program.py"))
    assert repaired["error"] is good["error"] is None
    assert repaired["backwards"] == good["backwards"]


@TRAPS
def test_a_trap_does_not_help(rule: Rule, trap: Trap, shop: Workshop) -> None:
    text = plain(rule.bad)
    assert text.count(trap.old) == 1
    caught = Subject(text.replace(trap.old, trap.new), "program.py")
    good, after = shop.witness(Subject(rule.good, "program.py")), shop.witness(caught)
    same = (
        good["error"] == after["error"] and good["backwards"] == after["backwards"] and good["names"] == after["names"]
    )
    assert not same or find(shop.trace(caught)) != []


@RUN
def test_a_rule_says_what_to_do_where_no_edit_holds(rule: Rule, shop: Workshop) -> None:
    found = [finding for finding in examined(shop, plain(rule.bad)) if finding.rule == rule.code]
    assert found
    for advice in (finding.advice for finding in found):
        assert advice is not None
        assert re.search(r"\bline \d", advice.en, re.IGNORECASE), advice.en
        assert re.search(r"第 \d+ 行", advice.zh), advice.zh
        assert all("{" not in advice.say(language) for language in LANGUAGES)
    if rule.advice is not None and (advice := found[0].advice) is not None:
        assert not advice.en.endswith(last_sentence(rule.what).en), (
            "a line or name of the rule's own advice was not found"
        )


@EACH
def test_a_page_speaks_both_languages_and_starts_without_jargon(rule: Rule) -> None:
    texts = [rule.title, rule.what, rule.why, *(trap.why for trap in rule.traps)]
    assert all(text.en.strip() and any("\u4e00" <= c <= "\u9fff" for c in text.zh) for text in texts)
    first = rule.what.en.split(". ")[0].lower()
    assert [word for word in JARGON if word in first] == []
    assert not rule.title.en.endswith(".")
    assert all(link.startswith("https://docs.pytorch.org/docs/stable/") for link in rule.docs)
    assert rule.docs


@EACH
def test_a_file_is_called_as_its_rule_and_marks_the_line_of_its_finding(rule: Rule) -> None:
    assert (Path(__file__).parents[2] / "pitfall_lab" / "rules" / f"{rule.name.replace('-', '_')}.py").is_file()
    findings, _ = expected(rule.bad)
    assert [code for code, _ in findings] == [rule.code]
    assert expected(rule.good) == ([], set())
