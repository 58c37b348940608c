"""The ledger's programs under observation: real teaching material that was not written with the recorder in mind."""

from __future__ import annotations

import contextlib
import io
import warnings

import pytest

from pitfall_lab.lessons.claims import ledger
from pitfall_lab.verify import trace_program

#: The chapters whose operations the engine models so far: copies and views, in-place operations, clone and detach, in-place errors.
CLAIMS = [claim for claim in ledger().values() if claim.id.startswith(("s1-", "s4-6-")) and not claim.needs_gpu]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda c: c.id)
def test_both_engines_agree_on_the_program_of_a_claim_and_watching_does_not_change_what_it_prints(claim):
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed):
        warnings.simplefilter("ignore")
        trace = trace_program(claim.snippet, claim.id)
    assert trace.disagreements == ()
    assert trace.notes == ()
    assert trace.outcome.kind == "finished"
    if claim.id != "s1-2-q":  # it prints whether CPython gave a dead object's address to the next one, which no program may rely on
        assert printed.getvalue() == claim.observed
