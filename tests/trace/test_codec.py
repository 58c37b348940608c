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
bys = st.sampled_from(["observed", "modelled", "agreed"])
cells = st.none() | st.lists(st.integers() | floats | st.booleans() | text, max_size=3)
storages = st.fixed_dictionaries(
    {"size": numbers, "dtype": text, "nbytes": numbers, "cells": cells, "alive": st.booleans()}
)
changes = st.one_of(
    st.builds(Effect, st.just("storages.S1"), storages, bys),
    st.builds(Effect, st.just("storages.S1.cells"), cells, bys),
    st.builds(Effect, st.just("counters.C1"), numbers, bys),
    st.builds(Effect, st.just("mode.grad"), st.booleans(), bys),
)
beginning = st.builds(Effect, st.just("storages.S1"), storages, bys)
forecasts = st.builds(Forecast, numbers, failures)
harms = st.builds(Harm, numbers, text, values, values, st.just((StaleRead("n1", "self", "S1", 1, (2,)),)))


@st.composite
def traces(draw):
    count = draw(st.integers(0, 4))
    events = tuple(
        Event(
            step, draw(st.sampled_from(["call", "node", "write"])), draw(text), draw(st.none() | spans), (), None,
            tuple(draw(st.lists(st.builds(Operand, st.none() | text, text, text), max_size=2))), ("t1",), (),
            (draw(beginning), *draw(st.lists(changes, max_size=3))),
            forecasts=tuple(draw(st.lists(forecasts, max_size=1))), harms=tuple(draw(st.lists(harms, max_size=1))),
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


TENSOR = {
    "kind": "tensor", "name": None, "names": [], "shape": [2], "stride": [1], "offset": 0, "dtype": "float32",
    "device": "cpu", "storage": "S1", "counter": None, "requires_grad": False, "is_leaf": True, "grad_fn": None,
    "base": None, "grad": None, "born": 0, "alive": True,
}  # fmt: skip


def event(*effects):
    """The text of a trace of one event with these effects."""
    return json.dumps({"schema": 1, "events": [{"step": 0, "kind": "call", "op": "x", "effects": effects}]})


@pytest.mark.parametrize(
    ("effects", "said"),
    [
        ([["tensors.t1", {**TENSOR, name: value}, "o"]], "value of the wrong type")
        for name, value in [
            ("shape", 3), ("shape", [2.0]), ("shape", [True]), ("shape", None), ("stride", [1, 1]), ("stride", "1"),
            ("kind", "list"), ("kind", []), ("names", [None]), ("name", 3), ("requires_grad", 1), ("grad", {}),
            ("born", None), ("surprise", 1),
        ]
    ] + [
        ([["tensors.t1", {}, "o"]], "value of the wrong type"),
        ([["tensors.t1", None, "o"]], "value of the wrong type"),
        ([["counters.C1", "2", "o"]], "value of the wrong type"),
        ([["mode.grad", None, "o"]], "value of the wrong type"),
        ([["tensors.t1", TENSOR, "o"], ["tensors.t1.shape", [[2]], "o"]], "value of the wrong type"),
        ([["nodes.n1.added", [{"node": "n2"}], "o"]], "value of the wrong type"),
        ([["storages.S1.cells", {"count": 20, "shown": [[0]]}, "o"]], "value of the wrong type"),
        *(
            ([[path, 1, "o"]], "writes to a place that a state does not have")
            for path in ["", "x", "tensors", "tensors.", "tensors.S1", "tensors.t1.name.x", "tensors.t1.x", "mode",
                         "mode.x", "counters.C1.x", "counters.C01", "tensors.t٣"]
        ),
    ],
)  # fmt: skip
def test_an_effect_that_no_state_can_have_gets_one_sentence(effects, said):
    assert Trace.from_json(event(["tensors.t1", TENSOR, "o"], ["tensors.t1.name", "x", "o"])).events[0].effects
    with pytest.raises(TraceError, match=rf"^This is not a trace: event 0 .*{said}\.$"):
        Trace.from_json(event(*effects))


def test_a_newer_schema_is_refused_by_number():
    with pytest.raises(TraceError, match="schema 99"):
        Trace.from_json('{"schema": 99}')


def test_json_is_strict():
    json.loads(Trace().to_json(), parse_constant=pytest.fail)


@given(traces())
def test_replaying_step_by_step_ends_where_replaying_at_once_does(trace):
    last = replay(trace)
    seen = None
    for _, state in states(trace):
        seen = state
    assert seen is None or seen == last
    assert replay(trace, -1)["tensors"] == {}
