"""What recording may cost, with room for a busy machine; ``python -m tests.bench.overhead`` measures it properly."""

from __future__ import annotations

import contextlib
import gc
import io
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pitfall_lab.observe import regions
from pitfall_lab.verify import Session
from pitfall_lab.verify.fastpath.plans import forget_plans
from pitfall_lab.verify.finite_watch import Finite
from tests.bench import overhead

TEXT = Path(__file__).read_text(encoding="utf-8")
#: Measured: 3.4 without numbers, about 15 with them (thread time on a busy machine; a quiet one gives less, fifteen
#: processes at once up to twice as much).
MOST = {False: 5.5, True: 45.0}


def chain(length: int) -> None:
    h = torch.ones(64, requires_grad=True)
    for _ in range(length // 2):
        h = h * 1.0001
        h = h + 0.0001
    h.sum().backward()


def spent(program: Callable[[], None]) -> float:
    """Seconds of this thread (others may keep the machine busy)."""
    gc.collect()
    started = time.thread_time()
    program()
    return time.thread_time() - started


def recorded(length: int, *, values: bool) -> float:
    def program() -> None:
        session = Session(__file__, "chain.py", TEXT, values=values)
        with session:
            chain(length)
        session.finish()

    return spent(program)


@pytest.mark.parametrize("values", [False, True])
def test_recording_a_chain_costs_a_known_factor(values: bool) -> None:
    recorded(200, values=values)
    rounds = 3 if values else 7
    eager = min(spent(lambda: chain(1000)) for _ in range(rounds * 2))
    mine = min(recorded(1000, values=values) for _ in range(rounds))
    assert mine / eager < MOST[values], f"{mine / eager:.1f} times eager"


def test_an_operation_costs_the_same_in_a_long_trace() -> None:
    recorded(200, values=False)
    short = min(recorded(1_000, values=False) for _ in range(5)) / 1_000
    long = min(recorded(20_000, values=False) for _ in range(2)) / 20_000
    assert long < 2 * short, (
        f"{short * 1e6:.1f} us an operation in a trace of 1,000, {long * 1e6:.1f} us in one of 20,000"
    )


def test_nearly_every_call_of_a_training_script_takes_the_fast_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the budget of a check rests on: it records without numbers first, and each call of
    the full lane costs ten others.
    """
    script = Path(overhead.__file__).with_name("training.py")
    text = script.read_text(encoding="utf-8")
    session = Session(str(script), script.name, text, values=False, finite=Finite())
    forget_plans()
    monkeypatch.setattr(regions, "frames_compiled", lambda: 0)
    with contextlib.redirect_stdout(io.StringIO()), session:
        exec(compile(text, str(script), "exec"), {"__name__": "__main__"})
    trace = session.finish()
    calls = sum(event.kind == "call" for event in trace.events)
    assert calls > 10_000
    # The first ten calls at each place whose numbers a rule looks at are not among them: cross_entropy, argmax, ==.
    assert len(session._lockstep._writer.row_steps) > 0.945 * calls
    assert trace.disagreements == trace.notes == ()


def test_every_call_but_backward_takes_the_fast_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the budget of the convolutional network rests on, and what does not depend on how busy the machine is."""
    net, pictures, classes = overhead.RESNET, torch.randn(2, 3, 8, 8), torch.tensor([0, 1])

    def program() -> None:
        net.zero_grad()
        torch.nn.functional.cross_entropy(net(pictures), classes).backward()

    forget_plans()  # of the many programs that this process may have recorded: there is room for so many only
    monkeypatch.setattr(
        regions, "frames_compiled", lambda: 0
    )  # another test of this process may have compiled something
    sessions = [Session(__file__, "resnet.py", TEXT, values=False) for _ in range(2)]
    for session in sessions:
        with session:
            program()
        trace = session.finish()
    calls = [event.op for event in trace.events if event.kind == "call"]
    assert calls.count("torch.nn.functional.batch_norm") == 20
    # nor does the loss, whose first call is looked at: it may have weights
    assert len(sessions[1]._lockstep._writer.row_steps) == len(calls) - 2
    assert trace.disagreements == ()
