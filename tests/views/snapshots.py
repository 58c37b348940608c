"""What the views are given to draw, program by program, as files to read and to compare.

``python -m tests.views.snapshots`` writes them all anew (names after it: only these); ``test_snapshots.py`` compares. A
file holds the projections of all six views and the folds: one line per thing that is drawn, so that a change shows
which node, brush, track or band it touches. Left out is what is empty or ``null``, and the curves of edges, which
follow from where their boxes stand. Boxes are placed by our own layout here, for ``dot`` is not installed everywhere;
numbers have four digits, for a processor may round the last one otherwise.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import pitfall_lab
from pitfall_lab import views
from pitfall_lab.trace import Trace
from pitfall_lab.views import graph
from pitfall_lab.views.label_history import gather
from tests import corpus
from tests.frontend.sample import sample
from tests.frontend.test_hostile import INJECTIONS, poisoned
from tests.views import build

FOLDER = Path(__file__).with_name("snapshots")
CURVES = {"d", "back", "label"}

# The recorder's own subjects (threads, hooks, state left behind) and programs whose pictures are too long to be read.
# torch makes a few tensors for the first ragged one of a process, so the labels in jagged depend on what ran before.
LEFT_OUT = {
    "arithmetic", "checkpoint_reentrant", "classes_and_main", "creation", "finalizers", "func_transforms", "gan",
    "generators", "jagged", "long_chain", "matmul", "modules", "reductions", "rng", "state_left_behind", "system_exit",
    "threads", "train_adam", "train_sgd", "unary", "unary_inplace", "warnings_nonleaf_grad",
}  # fmt: skip


def _run(path: Path) -> Callable[[], Trace]:
    return lambda: pitfall_lab.record(path.read_text(encoding="utf-8"), path.name)


PROGRAMS: dict[str, Callable[[], Trace]] = {
    **{path.stem: _run(path) for path in corpus.PROGRAMS if path.stem not in LEFT_OUT},
    **{f"by_hand_{name}": make for name, make in build.PROGRAMS.items() if name not in ("chain", "long")},
    "by_hand_sample": sample,
    **{f"hostile_{number}": (lambda text=text: poisoned(text)) for number, text in enumerate(INJECTIONS, 1)},
    "hostile_nothing": Trace,
}


def told(name: str) -> str:
    """The snapshot of one program."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        trace = PROGRAMS[name]()
    scene = views.scene(trace)
    _forget_what_nobody_wrote(trace, scene["storage"]["storages"])
    scene["graph"] = graph.project(trace, gather(trace), dot=False)
    lines = [line for view in (*views.names(), "folds") for line in _lines(view, scene[view])]
    return "\n".join(lines) + "\n"


def _forget_what_nobody_wrote(trace: Trace, storages: list[dict[str, Any]]) -> None:
    """The contents of the memory that ``torch.empty`` returns differ from run to run, and may
    be what is then written there.
    """
    fresh = {event.step for event in trace.events if event.name.startswith("empty")}
    for storage in storages:
        values = storage["values"]
        if values and values[0]["step"] in fresh and values[0]["step"] == storage["born"]:
            first = min((write["step"] for write in storage["writes"]), default=None)
            early = [entry for entry in values if first is not None and entry["step"] <= first]
            written = [{"step": first, "cells": early[-1]["cells"]}] if early else []
            storage["values"] = [
                {"step": storage["born"], "cells": "never written"},
                *written,
                *values[max(len(early), 1) :],
            ]
            if (
                len(storage["columns"]) < storage["size"]
            ):  # which columns are drawn depends on all contents of a large memory
                for part in (storage, *storage["values"][1:], *storage["writes"], *_histories(storage)):
                    for key in {"columns", "cells", "cover"} & part.keys():
                        part[key] = "some"


def _histories(storage: dict[str, Any]) -> list[dict[str, Any]]:
    return [entry for brush in storage["brushes"] for entry in brush["history"]]


def _lines(title: str, value: Any) -> Iterator[str]:
    """``title``, then one line per member; lists of things are a heading and a line per thing."""
    small = _small(value)
    if small in (None, {}, []):
        return
    yield f"# {title}"
    members = small.items() if isinstance(small, dict) else enumerate(small)
    for key, member in members:
        if isinstance(member, list) and member and isinstance(member[0], dict):
            yield f"{key}:"
            yield from (f"  {_line(one)}" for one in member)
        elif isinstance(member, dict):
            yield f"{key}:"
            yield from (f"  {inner}: {_line(one)}" for inner, one in member.items())
        else:
            yield f"{key}: {_line(member)}"


def _line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


def _small(value: Any) -> Any:
    """``value`` without what says nothing: empty members, curves, digits beyond the fourth."""
    if isinstance(value, dict):
        small = {key: _small(one) for key, one in value.items() if key not in CURVES or isinstance(one, (int, float))}
        return {key: one for key, one in small.items() if one is not None and one not in ([], {}, "")}
    if isinstance(value, (list, tuple)):
        return [_small(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def main(names: list[str]) -> None:
    """Write the snapshots."""
    FOLDER.mkdir(exist_ok=True)
    for name in names or PROGRAMS:
        (FOLDER / f"{name}.txt").write_text(told(name), encoding="utf-8")
    if not names:
        for path in FOLDER.glob("*.txt"):
            if path.stem not in PROGRAMS:
                path.unlink()


if __name__ == "__main__":
    main(sys.argv[1:])
