"""The lessons' own programs on the facade, in a process that cannot import torch: what
they print is what torch prints.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from pitfall_lab.lessons.claims import RECORDED_WITH, ledger
from pitfall_lab.observe.release import numbers
from tests.turns import EVERYTHING, todays

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

#: Claims whose programs need more of torch than the shadow has when it is alone, and what.
NEEDS = {
    "torch.distributed": "s0-2.3.2-a s0-2.3.2-b s0-2.3.2-c s0-2.3.2-d s0-2.tbl-e s2-4.2.2-e s4-4-b s4-4-j",
    "profilers": "s1-1-e s1-1-f s1-2-t s2-4-a s2-4.1-a s2-4.1.1-a s2-4.1.1-b s2-4.1.1-c s2-4.1.1-d s2-4.1.1-e s2-4.1.1-f",  # noqa: E501
    "torch.func, torch.compile, torch.jit, torch.fx, torch.library, torch.amp": "s2-2.2.1-a s2-4.2.1-e s2-4.2.2-a s2-4.2.2-d s2-5.1.1-b s2-5.1.1-e",  # noqa: E501
    "the meta device, torch.cuda, torch.accelerator": "s0-2.1.1-b s0-2.3.1-a s0-2.3.1-b s3-1.5-a s4-4-a s4-4-h",
    "saved-tensor hooks, torch.utils.checkpoint, torch.utils.data": "s2-2.3.2-e s2-3.1.1-b s2-3.1.1-c s2-4.2.1-b s2-4.2.1-c s2-6.1.2-d",  # noqa: E501
    "gradcheck, legacy Functions": "s2-5.2.1-b s2-5.2.2-d s3-2.4-c s3-2.4-f s3-2.4-g",
    "process-wide settings": "s2-2.1.1-c s3-2.1-c",
    "operations and options without a model": (
        "s0-2.2.1-a s1-3.3-c s2-2.1.2-a s2-2.1.2-c s2-2.3.2-a s2-2.3.2-c s2-4.2.1-d s2-4.2.2-b s2-6.2.1-b s4-1-a "
        "s4-1-d s4-1-e s4-3-i"
    ),
    "the text of an AttributeError of the module torch": "s0-1.1-c",
    "the moment when memory is given back, or the address of a dead object": "s0-2.3.1-c s0-2.tbl-d s1-2-q",
    "torch's own random numbers": "s2-6.1.2-c",
    "the last bit of a float32": "s2-3.2.2-d",
    "the traceback of anomaly mode": "s4-6-b",
}
NOT_ALONE = {claim for claims in NEEDS.values() for claim in claims.split()}

ALONE = """
import contextlib, io, json, sys, warnings
sys.modules["torch"] = None
warnings.simplefilter("ignore")
from pitfall_lab.shadow import run
with contextlib.redirect_stderr(io.StringIO()):
    found = {name: run(source, release=RELEASE)[1:] for name, source in json.load(sys.stdin).items()}
json.dump({name: [repr(error) if error else None, printed] for name, (error, printed) in found.items()}, sys.stdout)
"""

#: A chapter's cells one after the other in one world; each ends with its output and its error.
CELLS = """
import contextlib, io, json
import numpy as np
import torch
from torch import nn
names = {"np": np, "torch": torch, "nn": nn, "F": nn.functional}
for cell in CELLS:
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            exec(cell, names)
        error = None
    except Exception as raised:
        error = [type(raised).__name__, str(raised).split(" Hint:")[0]]
    print(json.dumps([printed.getvalue(), error]))
"""


def alone(programs: dict[str, str], torchs: str) -> dict[str, list[Any]]:
    """The error and the output of each program as with a version of torch, from a process without torch."""
    done = subprocess.run(
        [sys.executable, "-c", f"RELEASE = {numbers(torchs)}{ALONE}"],
        input=json.dumps(programs),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def claims_alone() -> dict[str, list[Any]]:
    """How the claims' programs end on the facade."""
    return alone({claim.id: claim.snippet for claim in ledger().values() if claim.id not in NOT_ALONE}, RECORDED_WITH)


@pytest.mark.parametrize("claim", [claim for claim in ledger() if claim not in NOT_ALONE])
def test_the_program_of_a_claim_prints_without_torch_what_it_prints_on_torch(
    claim: str, claims_alone: dict[str, list[Any]]
) -> None:
    assert claims_alone[claim] == [None, ledger()[claim].observed]


def test_most_claims_run_alone() -> None:
    assert set(ledger()) >= NOT_ALONE
    assert len(ledger()) - len(NOT_ALONE) >= 269


def cells(chapter: Path) -> list[str]:
    """The cells of a notebook that are plain torch: traced ones without their first line, and
    those that need nothing of ours.
    """
    found = []
    for cell in json.loads(chapter.read_text("utf-8"))["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and text.startswith("%%pitfall"):
            found.append(text.split("\n", maxsplit=1)[1])
        elif cell["cell_type"] == "code" and not text.startswith("%") and not any(word in text for word in OURS):
            found.append(text)
    return found


#: How the facade says that it has no model of something; an import of a package that needs torch fails by itself.
DECLINED = ("Absent", "NotImplementedError", "ModuleNotFoundError", "ImportError")
#: Chapters of which much is beyond the engine alone (devices, data loaders, profilers, memory formats, compiled
#: functions, trainings on random data), and how large a share of their plain cells still runs.
ALONE_AT_LEAST = {
    "05-copies-and-views": 0.75,
    "07-tensors-and-gradients": 0.65,
    "12-inplace-errors": 0.75,
    "16-mlp-case-study": 0.6,
    "17-dynamic-graphs-and-custom-functions": 0.7,
    "18-performance-tuning": 0.5,  # amp, bfloat16, torch.library and hooks on saved tensors, which the shadow declines
}
ADDRESS = re.compile(r"0x[0-9a-f]+")
NUMBER = re.compile(r" *-?\d+(\.\d+)?(e[+-]?\d+)?")
OURS = ("pitfall_lab", "display(", "grade(", "belief", "_repr", "program")


#: Those that tests/notebooks does not execute today.
CHAPTERS = [path for path in NOTEBOOKS if EVERYTHING or path not in todays(NOTEBOOKS, of=len(NOTEBOOKS))]


def in_one_world(chapter: Path) -> str:
    """A program that runs a chapter's cells."""
    return f"CELLS = {cells(chapter)!r}\n{CELLS}"


@pytest.fixture(scope="module")
def chapters_alone() -> dict[str, list[Any]]:
    """How the chapters end on the facade: all in one process, as each begins in a world of its own there."""
    return alone({chapter.name: in_one_world(chapter) for chapter in CHAPTERS}, version("torch"))


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda p: p.stem)
def test_the_cells_of_a_chapter_do_without_torch_what_they_do_on_torch(
    chapter: Path, chapters_alone: dict[str, list[Any]]
) -> None:
    source = in_one_world(chapter)
    printed = io.StringIO()
    with warnings.catch_warnings(), contextlib.redirect_stdout(printed), every_warning():
        warnings.simplefilter("ignore")
        exec(compile(source, chapter.name, "exec"), {})
    error, output = chapters_alone[chapter.name]
    assert error is None
    random, lost, compared, total = False, set(), 0, 0
    for cell, torchs, shadows in zip(cells(chapter), printed.getvalue().splitlines(), output.splitlines(), strict=True):
        total += 1
        random = random or "manual_seed" in cell  # the shadow draws other numbers
        (expected, failure), (found, error) = (
            json.loads(ADDRESS.sub("0x", torchs)),
            json.loads(ADDRESS.sub("0x", shadows)),
        )
        if "psutil" in cell:  # what a process takes is another number in another process
            lost |= names(cell, ast.Store)
            continue
        without_ours = (
            failure is not None and failure[0] == "NameError"
        )  # on torch too: a cell that is left out defines the name
        if error != failure and (without_ours or error[0] in DECLINED or lost & names(cell)):
            lost |= names(cell, ast.Store)  # what the cell was to define is not there for the cells below
            continue
        if random and error != failure and error is not None and error[0] == "AssertionError":
            continue  # what a training reaches depends on the numbers that are drawn
        compared += 1
        assert error == failure, cell
        assert (NUMBER.sub("#", found) == NUMBER.sub("#", expected)) if random else (found == expected), cell
    assert compared >= ALONE_AT_LEAST.get(chapter.stem, 0.8) * total, (compared, total)


@contextlib.contextmanager
def every_warning() -> Iterator[None]:
    """Torch gives some warnings once in a process, which may have been in another test."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(before)


def names(cell: str, context: type[ast.expr_context] = ast.Load) -> set[str]:
    """The names that a cell reads, or with ``ast.Store`` those that it makes."""
    tree = ast.parse(cell)
    made = (
        {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        if context is ast.Store
        else set()
    )
    return made | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}
