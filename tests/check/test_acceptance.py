"""``check`` names the lines (for clashes: the save, the change and the backward) of each program under
``programs/``, with a verified fix.

The programs say themselves which lines these are: comments like ``# PL101 changed``
(:mod:`pitfall_lab.rules.kit.expected_marks`). Fixes are tried for every twelfth program, since that takes tens of runs
each: in turns (:mod:`tests.turns`).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pitfall_lab.check import Subject, Workshop, tried
from pitfall_lab.rules import Finding, find, rule
from pitfall_lab.rules.kit.expected_marks import expected, met
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.trace import Trace
from tests.turns import in_whole_runs, todays

PROGRAMS = sorted((Path(__file__).parent / "programs").glob("*.py"))
ROLES = ("saved", "changed", "backward")
TRIED = {*todays(PROGRAMS, of=32), *(path for path in PROGRAMS if "gan" in path.stem)}


EXAMINED: dict[Path, tuple[Subject, Trace, list[Finding]]] = {}


def examined(path: Path, shop: Workshop) -> tuple[Subject, Trace, list[Finding]]:
    """A program, its trace and its findings, with fixes where they are tried; once for all tests."""
    if path not in EXAMINED:
        subject = Subject(path.read_text(encoding="utf-8"), path.name, str(path))
        trace = shop.trace(subject)
        EXAMINED[path] = subject, trace, tried(shop, subject, trace) if path in TRIED else find(trace)
    return EXAMINED[path]


# What has to be decided by a person: which differentiable quantity stands for the one that is not, what a parameter was
# meant for, whether the past of a recurrent cell is to be learned from.
NO_FIX = {
    "changed_parameter_unrolled",
    "cut_argmax",
    "cut_numpy_helper",
    "exec_of_text",
    "hard_choice_of_a_gate",
    "loss_of_argmax",
    "too_large_for_bias",
    "unused_parameter",
}


@pytest.mark.parametrize("path", in_whole_runs(PROGRAMS, of=4), ids=lambda p: p.stem)
def test_check_names_the_lines_and_gives_a_fix_that_works_where_there_is_one(path: Path, shop: Workshop) -> None:
    subject, trace, findings = examined(path, shop)
    assert trace.disagreements == ()
    (finding,) = findings
    assert met(findings, subject.source) == ""
    roles = {role for role, _ in expected(subject.source)[1]}
    general = {finding.rule, *rule(finding.rule).refines} & {"PL101", "PL301"}
    if general and "made" not in roles:  # what is made twice, by checkpointing, was not saved
        assert roles >= set(ROLES)
        caught = path.stem == "caught_refusal"  # an error that the program catches on purpose
        assert finding.severity == ("info" if caught else "warning" if "PL301" in general else "error")
        assert finding.predicted is ("PL101" in general)
    else:
        assert roles
    if path not in TRIED:
        return
    assert all(fix.verified for fix in finding.fixes)
    assert bool(finding.fixes) is (path.stem not in NO_FIX)
    if not finding.fixes:
        return
    repaired = Subject(apply(subject.source, finding.fixes[0].edits), subject.name, subject.path)
    assert shop.witness(repaired)["error"] is None
    assert [f for f in find(shop.trace(repaired)) if f.severity != "info"] == []


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem.startswith("numpy")], ids=lambda p: p.stem)
def test_a_wrong_gradient_is_reported_with_the_meant_one_that_torch_computes_too(path: Path, shop: Workshop) -> None:
    """The oracle is torch itself, with saved tensors cloned when they are saved: not the shadow engine."""
    subject, _, (finding,) = examined(path, shop)
    wrong, meant = (shop.witness(subject, meant=m)["backwards"][-1]["gradients"] for m in (False, True))
    reported = [(fact.name, flat(fact.value)) for fact in finding.facts if fact.name in ("gradient", "meant")]
    for name, record in (("gradient", wrong), ("meant", meant)):
        known = [digest["numbers"][3:] for digest in record]
        for which, numbers in reported:
            if which == name:
                assert any(numbers[:8] == pytest.approx(numbers_of, rel=1e-4) for numbers_of in known)


def flat(cells: object) -> list[float]:
    if isinstance(cells, dict):
        return [value for _, value in cells["shown"]]
    return [x for cell in cells for x in flat(cell)] if isinstance(cells, list) else [float(cells)]  # type: ignore[arg-type]


@pytest.mark.parametrize("path", [p for p in PROGRAMS if "gan" in p.stem], ids=lambda p: p.stem)
def test_moving_a_step_that_would_take_other_gradients_with_it_is_not_offered(path: Path, shop: Workshop) -> None:
    """In a GAN the generator's backward adds to the discriminator's gradients: a later step would be another step."""
    _, _, (finding,) = examined(path, shop)
    assert all(fix.meaning == "recompute" for fix in finding.fixes)
