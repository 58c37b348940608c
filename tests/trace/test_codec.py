"""A trace as JSON: it comes back as it was, and what is no trace gets one sentence."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pitfall_lab.trace import (
    Effect,
    Event,
    Failure,
    Forecast,
    Harm,
    Note,
    Operand,
    Outcome,
    Source,
    Span,
    StaleRead,
    Trace,
    TraceError,
    replay,
    states,
)

text = st.text(max_size=20)
numbers = st.integers(0, 1000)
spans = st.builds(Span, numbers, numbers, numbers, numbers, st.tuples(numbers, numbers), st.just(0))
floats = st.floats(allow_nan=False, allow_infinity=False)
values = st.none() | st.booleans() | st.integers() | floats | text | st.lists(st.integers(), max_size=3)
steps = st.lists(numbers, max_size=2).map(tuple)
failures = st.builds(
    Failure, text, text, text, st.none() | numbers, st.none() | spans, st.none() | text, changed_at=steps
)
paths = st.sampled_from(["tensors.t1", "counters.C1", "storages.S1.cells", "nodes.n1.freed"])
effects = st.builds(Effect, paths, values, st.sampled_from(["observed", "modelled", "agreed"]))
forecasts = st.builds(Forecast, numbers, failures)
harms = st.builds(Harm, numbers, text, values, values, st.just((StaleRead("n1", "self", "S1", 1, (2,)),)))


@st.composite
def traces(draw):
    count = draw(st.integers(0, 4))
    events = tuple(
        Event(
            step, draw(st.sampled_from(["call", "node", "write"])), draw(text), draw(st.none() | spans), (), None,
            tuple(draw(st.lists(st.builds(Operand, st.none() | text, text, text), max_size=2))), ("t1",), (),
            tuple(draw(st.lists(effects, max_size=3))), forecasts=tuple(draw(st.lists(forecasts, max_size=1))),
            harms=tuple(draw(st.lists(harms, max_size=1))),
        )
        for step in range(count)
    )  # fmt: skip
    return Trace(
        (Source("p.py", draw(text)),),
        events,
        Outcome("raised", draw(failures)),
        notes=(Note("limit", draw(text), draw(text)),),
    )


@given(traces())
def test_a_trace_comes_back_from_json_as_it_was(trace):
    assert Trace.from_json(trace.to_json()) == trace


@given(traces(), st.data())
def test_a_cut_trace_is_refused_with_one_sentence(trace, data):
    whole = trace.to_json()
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(TraceError) as refused:
        Trace.from_json(whole[:cut])
    assert str(refused.value).count("\n") == 0
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize(
    "raw",
    [
        "", "null", "[]", "3", '"x"', "{}", '{"schema": "1"}', '{"schema": true}',
        '{"schema": 1, "events": 5}', '{"schema": 1, "surprise": 1}',
        '{"schema": 1, "events": [{"step": 0}]}', '{"schema": 1, "events": [{"step": 3, "kind": "call", "op": "x"}]}',
        '{"schema": 1, "events": [{"step": 0, "kind": "explode", "op": "x"}]}',
        '{"schema": 1, "events": [{"step": 0, "kind": "call", "op": ["x"]}]}',
        '{"schema": 1, "events": [{"step": 0, "kind": "call", "op": "x", "effects": [[1, 2, "o"]]}]}',
        '{"schema": 1, "events": [{"step": 0, "kind": "call", "op": "x", "effects": [["p", 2, []]]}]}',
        '{"schema": 1, "outcome": {"kind": "raised", "failure": 3}}',
        '{"schema": 1, "environment": [["torch"]]}', "NaN", '{"schema": NaN}', "[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_no_trace_gets_one_sentence(raw):
    with pytest.raises(TraceError, match=r"^This is not a trace: .*\.$"):
        Trace.from_json(raw)


def test_a_newer_schema_is_refused_by_number():
    with pytest.raises(TraceError, match="schema 99"):
        Trace.from_json('{"schema": 99}')


def test_json_is_strict():
    json.loads(Trace().to_json(), parse_constant=pytest.fail)


@given(traces())
def test_replaying_step_by_step_ends_where_replaying_at_once_does(trace):
    try:
        last = replay(trace)
    except (TypeError, AttributeError):
        return  # effects that contradict each other (a field of a number): no recorder writes them
    seen = None
    for _, state in states(trace):
        seen = state
    assert seen is None or seen == last
    assert replay(trace, -1)["tensors"] == {}
