"""Each rule's bad program gives exactly its finding, with the right lines and a verified fix; its good program gives none."""

from __future__ import annotations

import pytest

from pitfall_lab.check import Subject, Workshop, tried
from pitfall_lab.rules import RULES, Finding, Rule, find
from pitfall_lab.rules.source import apply

LINES = {
    "PL101": (6, {"saved": 4, "changed": 6, "backward": 8}),
    "PL201": (6, {"leaf": 3, "changed": 6}),
    "PL301": (7, {"saved": 5, "changed": 7, "alias": 6, "backward": 8}),
    "PL401": (8, {"operand": 5}),
}


def examined(shop: Workshop, source: str) -> list[Finding]:
    subject = Subject(source, "program.py")
    trace = shop.trace(subject)
    assert trace.disagreements == ()
    return tried(shop, subject, trace)


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_bad_program_gives_exactly_its_finding_with_a_verified_fix(rule: Rule, shop: Workshop) -> None:
    (finding,) = examined(shop, rule.bad)
    line, roles = LINES[rule.code]
    assert finding.rule == rule.code
    assert finding.span is not None
    assert finding.span.line == line
    assert {r.role: r.span and r.span.line for r in finding.related} == roles
    assert finding.fixes
    assert all(fix.verified for fix in finding.fixes)
    for fix in finding.fixes:
        assert find(shop.trace(Subject(apply(rule.bad, fix.edits), "program.py"))) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_good_program_gives_no_finding(rule: Rule, shop: Workshop) -> None:
    assert examined(shop, rule.good) == []


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.code)
def test_the_first_fix_of_the_bad_program_computes_what_the_good_one_does(rule: Rule, shop: Workshop) -> None:
    (finding,) = examined(shop, rule.bad)
    repaired = shop.witness(Subject(apply(rule.bad, finding.fixes[0].edits), "program.py"))
    good = shop.witness(Subject(rule.good, "program.py"))
    assert repaired["backwards"] == good["backwards"]
