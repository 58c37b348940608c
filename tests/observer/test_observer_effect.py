"""A program does the same with and without recording: this is the promise that makes
everything else worth looking at.
"""

from __future__ import annotations

import pytest

from pitfall_lab.trace import Trace
from tests.corpus import PROGRAMS

NAMES = [p.stem for p in PROGRAMS]
LOOKS = ("printed", "complained", "warned", "random", "values", "names", "state", "left alive")


@pytest.mark.parametrize("program", NAMES)
def test_recording_changes_nothing(runs: dict, program: str) -> None:
    recorded, plain = ({look: runs[way][program][look] for look in LOOKS} for way in ("recorded", "plain"))
    assert recorded == plain


@pytest.mark.parametrize("program", NAMES)
def test_recording_keeps_the_error_and_its_line(runs: dict, program: str) -> None:
    recorded, plain = runs["recorded"][program]["error"], runs["plain"][program]["error"]
    assert (recorded is None) == (plain is None)
    if plain:
        assert recorded[:2] == plain[:2]
        # The trace names one line; the traceback goes through several when the program calls its own functions.
        assert recorded[2]
        assert set(recorded[2]) <= set(plain[2])


@pytest.mark.parametrize("program", NAMES)
def test_the_two_engines_agree_on_every_fact(runs: dict, program: str) -> None:
    trace = Trace.from_json(runs["recorded"][program]["trace"])
    assert [(d.step, d.path, d.observed, d.modelled) for d in trace.disagreements] == []
    assert trace.agreement.disagreed == 0
    assert trace.agreement.agreed == trace.agreement.checked


@pytest.mark.parametrize("program", NAMES)
def test_observation_never_stopped_in_the_middle(runs: dict, program: str) -> None:
    trace = Trace.from_json(runs["recorded"][program]["trace"])
    assert [note.en for note in trace.notes if note.kind == "stopped"] == []


@pytest.mark.parametrize("program", NAMES)
def test_a_trace_survives_json(runs: dict, program: str) -> None:
    text = runs["recorded"][program]["trace"]
    trace = Trace.from_json(text)
    assert trace.to_json() == text
    assert Trace.from_json(trace.to_json()) == trace


def test_the_plain_runs_do_what_the_corpus_is_for(runs: dict) -> None:
    plain = runs["plain"]
    failing = {name for name, found in plain.items() if found["error"]}
    assert len(plain) >= 40
    caught = {"error_partial_gradients", "error_anomaly_mode"}
    assert {name for name in plain if name.startswith("error_")} - caught <= failing
    assert not {name for name in plain if name.startswith(("silent_", "legal_", "train_"))} & failing
    assert plain["finalizers"]["printed"].index("before") < plain["finalizers"]["printed"].index("x is gone")
    assert any(category == "UserWarning" for category, *_ in plain["warnings_loss_broadcast"]["warned"])
