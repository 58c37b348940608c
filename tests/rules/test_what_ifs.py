"""Each change that a learner can try makes a difference: measured on the rules' programs, some of them each day."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import pytest

from pitfall_lab.rules import RULES, Rule, find
from pitfall_lab.rules.kit.changes import changes
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program
from tests.turns import todays

CHANCE = {("PL964", "swap-11")}
"""The order matters there, but not for these few numbers."""
NAMES = {"NameError", "UnboundLocalError", "AttributeError", "SyntaxError", "IndentationError"}


def ran(text: str) -> tuple[Trace, str]:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        trace = trace_program(text)
    return trace, printed.getvalue()


def computed(trace: Trace, printed: str) -> Any:
    """All that a reader could see of a run: what it printed, how it ended, its variables and their gradients."""
    story, failure = Story(trace), trace.outcome.failure
    values = {}
    for record in story.tensors.values():
        gradient = story.tensor(record.get("grad")) or {}
        cells = [(story.record("storages", one.get("storage")) or {}).get("cells") for one in (record, gradient)]
        for name in record.get("names") or ():
            values[name] = (repr(cells), record.get("requires_grad"), bool(record.get("grad_fn")))
    gradients = sorted(repr(n.get("gradient")) for n in story.nodes.values() if n.get("name") == "AccumulateGrad")
    rules = sorted({one.rule for one in find(trace)})
    return printed, failure and (failure.type, failure.message), values, gradients, rules


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rule", todays(RULES, of=10), ids=lambda rule: rule.code)
def test_no_change_leaves_everything_as_it_was_or_only_fails_for_a_name(rule: Rule) -> None:
    text = plain(rule.bad)
    trace, printed = ran(text)
    before = computed(trace, printed)
    for change in changes(trace, find(trace)):
        if change.id.startswith("fix-") or (rule.code, change.id) in CHANCE:
            continue
        after, said = ran(apply(text, change.edits))
        assert computed(after, said) != before, f"{change} changes nothing"
        failure = after.outcome.failure
        assert failure is None or failure.type not in NAMES, f"{change} only ends in {failure}"
        assert failure is None or "does not require grad" not in failure.message, f"{change} only ends in {failure}"
