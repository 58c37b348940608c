"""The express lane of metadata mode: the same trace, event for event, as the full lane gives; and nothing kept alive."""

from __future__ import annotations

import contextlib
import gc
import io
import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from pitfall_lab.trace import Trace
from pitfall_lab.verify import Session
from tests.corpus import PROGRAMS

#: They end the recording or the process in ways of their own, or take long.
APART = {"lazily_huge", "meta_huge", "threads", "system_exit", "state_left_behind", "default_device"}


def recorded(source: str, *, lane: bool) -> tuple[Trace, int]:
    """The metadata trace of a program, with or without the express lane, and how many calls took it."""
    session = Session("<program>", "program.py", source, values=False)
    if not lane:
        session._lockstep.lane = session._recorder._lane = None
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002 - the programs use the global generator
    torch.manual_seed(0)
    failed = None
    quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
    with quiet[0], quiet[1], warnings.catch_warnings(action="ignore"):
        try:
            with session:
                exec(compile(source, "<program>", "exec", dont_inherit=True), {"__name__": "__main__"})
        except Exception as error:
            failed = error
    trace = session.finish(failed)
    failed = None
    gc.collect()
    return trace, len(session._lockstep._writer.row_steps)


@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.stem not in APART], ids=lambda p: p.stem)
def test_the_express_lane_tells_the_same_as_the_full_lane(program: Path) -> None:
    source = program.read_text(encoding="utf-8")
    fast, _ = recorded(source, lane=True)
    slow, rows = recorded(source, lane=False)
    assert rows == 0
    for mine, theirs in zip(fast.events, slow.events, strict=True):
        assert mine == theirs
    assert fast == slow
    assert fast.disagreements == ()
    assert [note for note in fast.notes if note.kind == "stopped"] == []
    assert Trace.from_json(fast.to_json()) == fast
