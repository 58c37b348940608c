"""The twentieth round, written without knowledge of the grader: memory outside of arrays by NumPy, torch's functions
without documentation, answers below what a page shows, signals of the processor, and cases of several runs together:
earlier runs, names, times, copies of another student's work, pages in the formats of other systems.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import tempfile
import tracemalloc
import zipfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom import grade, ledger, report, similar, submissions
from pitfall_lab.classroom.analysis import table
from pitfall_lab.classroom.judge import CellOutcome, known
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.whose import Directory
from pitfall_lab.cli import main as command
from pitfall_lab.lessons.exercises import exercises
from tests.classroom import twenty_first_class, twenty_second_class
from tests.classroom.a_class import (
    KEYS,
    NOT_SOLVED,
    TARGET,
    Case,
    _cell,
    as_file_of,
    book,
    code,
    notebook,
    right,
)
from tests.classroom.eighteenth_class import _INTERFACE
from tests.classroom.fourth_class import _ENDED
from tests.classroom.nineteenth_class import _OUT


def forging() -> Iterator[Case]:
    """What would not be told."""
    correct = right()[TARGET]
    for name, what, source in (
        ("object-from-number", "makes an object of a number, by the memory of an array", (
        "x = [1]\nassert np.ndarray((1,), dtype=object, buffer=np.array([id(x)]))[0] is x\n")),
        ("object-of-record", "makes one by a field of a record", (
        "x = [1]\nr = np.recarray((1,), formats=['O'], names=['a'], buf=np.array([id(x)]))\nassert r[0][0] is x\n")),
        ("object-of-own-class", "makes one by a class of its own of arrays", (
        "class Box(np.ndarray):\n    pass\nx = [1]\nassert Box((1,), object, np.array([id(x)]))[0] is x\n")),
        ("freed-array", "reads and writes what is freed, by a part of an array that has another size now", (
        "a = np.zeros(100_000)\nb = a[:]\na.resize(200_000, **{'ref' + 'check': False})\nb.shape\n")),
        ("numbers-beyond", "reads what lies beyond the state of random numbers", (
        "r = np.random.RandomState(0)\nk = list(r.get_state())\nk[2] = 630\nr.set_state(tuple(k))\nr.rand()\n")),
        ("numbers-before", "reads what lies before the state of others", (
        "p = np.random.Philox(1)\ns = p.state\ns['buffer_pos'] = -20\np.state = s\np.random_raw(5)\n")),
        ("numbers-inside", "reads it by the generator in a generator", (
        "r = np.random.default_rng().bit_generator\ns = r.state\nr.state = s\n")),
        ("statistics-beyond", "writes beyond a tensor, by a function of torch's that does not look how long it is", (
        "torch.batch_norm_update_stats(torch.ones(2, 3), torch.ones(1), torch.ones(1), 0.1)\n")),
        ("scale-beyond", "reads beyond a tensor so", (
        "torch.native_batch_norm(torch.ones(2, 3), torch.ones(1), torch.ones(1), None, None, True, 0.1, 1e-5)\n")),
        ("below-the-page", "has the answer below what a page shows of a cell", "# nothing to see\n" * 1200),
    ):  # fmt: skip
        yield Case(name, what, "look", {TARGET: source + correct}, {TARGET: "solved"})
    for name, what, source in (
        ("typed-class-dict", "has all memory by a layer that is a dict behind parameters of types", (
        f"{_INTERFACE}class Both[T](nn.Module, dict):\n    pass\n")),
        ("statistics-far", "writes far beyond a tensor", (
        "torch.batch_norm_update_stats(torch.ones(2, 10**7), torch.ones(1), torch.ones(1), 0.1)\n")),
        ("fields-of-arrays", "has NumPy take an array's numbers for objects, by another kind", (
        "a = np.array([id([])])\na.dtype = object\na[0]\n")),
        ("places-of-offsets", "has parts of a tensor of tensors begin where there is nothing", (
        "t = torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged)\n"
        "t.offsets()[1] = 10**6\nt.unbind()[1].sum()\n")),
    ):  # fmt: skip
        yield Case(
            name, what, "graded|look|stopped", {TARGET: source + correct}, {TARGET: ("solved", *NOT_SOLVED, *_ENDED)}
        )


def disturbing() -> Iterator[Case]:
    """Signals that the processor and the kernel send, what torch has had for a short time, and text of no kind."""
    correct, either = right()[TARGET], ("solved", *NOT_SOLVED, *_ENDED)
    for name, what, source in (
        ("least-by-minus-one", "divides the least number by minus one, which is a signal of the processor's", (
        "n = torch.tensor([-2**63])\nn // -1\nn % -1\n")),
        ("map-cut", "maps a file, makes it shorter, and reads what is there no more", (
        "m = np.memmap('f', 'u1', 'w+', shape=(1 << 20,))\nwith open('f', 'r+b') as f:\n    f.truncate(0)\nm.sum()\n")),
        ("alarm", "asks for a signal in a tenth of a second", (
        "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)\n")),
        ("waits-for-input", "waits for what nobody sends", "import sys\nsys.stdin.read()\n"),
    ):  # fmt: skip
        yield Case(name, what, "graded|look|stopped|tampered", {TARGET: source + correct}, {
            TARGET: ("solved", "tampered", *NOT_SOLVED, *_ENDED)
        })  # fmt: skip
    # IPython's transformer looks for the line that is not there; that is an error of the cell's, and ends no process.
    unended = f"{correct}\nx=%\\\n"
    yield _cell("magic-unended", "a magic that goes on in a line that is not there", "error", unended)
    for name, what, source in (
        ("other-grad-dtype", "has gradients be of another type than what they are of", (
        "    query.grad_dtype = torch.float64\n    return out\n")),
        ("swapped-under-its-names", "swaps what it was given for something else, under the names that the grader has", (
        "    torch.utils.swap_tensors(query, torch.ones(1, requires_grad=True))\n    return out\n")),
        ("buffer-answer", "answers with a buffer of a layer", "    return nn.Buffer(out)\n"),
        ("compiled", "has torch compile it, by a compiler of its own", (
        "    return torch.compile(lambda x: x + 0, backend=lambda g, x: g.forward)(out)\n")),
    ):  # fmt: skip
        yield _cell(name, what, ("tampered", *either), _OUT + source, "graded|look|stopped|tampered")


def files() -> Iterator[Case]:
    """What Git, nbgrader and other systems make of a notebook, and names that draw over others."""
    solved: dict[str, str | tuple[str, ...]] = {TARGET: "solved"}
    answer, whole = right()[TARGET], notebook({TARGET: right()[TARGET]})
    text = json.dumps(whole, indent=1)

    def of(name: str, what: str, content: str, verdict: str, *, says: str = "") -> Case:
        status = solved if verdict == "graded" else {}
        return Case(
            name, what, verdict, status=status, says=says, write=as_file_of(f"{name}.ipynb", content.encode("utf-8"))
        )

    line = ' "nbformat": 4,\n'
    yield of("git-conflict", "a notebook with both sides of a merge that Git could not do", text.replace(
        line, f"<<<<<<< HEAD\n{line}=======\n{line}>>>>>>> ada\n"
    ), "unreadable", says="no JSON")  # fmt: skip
    yield of("git-pointer", "what Git keeps in the place of a large file", (
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 12345\n"
    ), "unreadable", says="no JSON")  # fmt: skip
    locked = {"grade": True, "locked": True, "solution": False, "points": 100, "grade_id": "x", "checksum": "0"}
    graded = [{**each, "metadata": {"nbgrader": locked, "deletable": False}} for each in whole["cells"]]
    yield of("nbgrader-locked", "an answer in a cell that nbgrader has locked and given points",
        json.dumps({**whole, "cells": graded}), "graded")  # fmt: skip
    same = [{**each, "id": "same"} for each in [code(f"%%exercise {TARGET}\n1 / 0"), *whole["cells"]]]
    yield of("answers-of-one-id", "two answers in cells of one id", json.dumps({**whole, "cells": same}), "graded",
        says="there 2 times")  # fmt: skip
    kinds = text.replace('"cell_type": "code"', '"cell_type": "raw", "source": "", "cell_type": "\\u0063ode"')
    yield of("kinds-twice", "cells that say twice of which kind they are", kinds, "graded")
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("repo/.git/hooks/post-checkout.ipynb", json.dumps(book([])))
        archive.writestr("repo/a.ipynb", text)
    yield Case("git-in-zip", "a zip of a folder of Git's, with notebooks among what Git keeps", "graded",
        status=solved, write=as_file_of("git-in-zip.zip", held.getvalue()))  # fmt: skip
    marks = "e" + "\u0310" * 100
    yield Case(marks, "a name whose marks would be drawn over other lines", "graded", {TARGET: answer}, solved)


# --- what lies between runs ------------------------------------------------------------------------------------------


def between() -> dict[str, Callable[[Path], Iterator[str]]]:
    """What somebody does whom no cell shows: what it is, and a function that has it done in a folder and yields what is
    not as it should be.
    """
    return {
        "a file from so late that no date has it": _far_time,
        "a time like Blackboard's in the name of a file": _chosen_time,
        "a file that cannot be read, taken away before a resumed run": _taken_away,
        "a file that cannot be read, added before one": _added,
        "a copy below fifteen hundred comments": lambda folder: _copied(folder, "#\n" * 1500),
        "a copy in lines that look like comments behind a text": lambda folder: _copied(folder, _TEXT, in_lines=True),
        "a copy below a text of thousands of signs": lambda folder: _copied(folder, '"' + "'#" * 5000 + '"\n'),
        "three copies of lines without end": _long_copies,
        "half a character in an error, on pages for other systems": _half_characters,
        "a zip of a hundred thousand names beside a notebook": _many_names,
    }


def between_runs(only: Collection[int] = ()) -> list[tuple[str, str, str]]:
    """Each of them, and of the rounds after this one: its family, what it is, and what is not as it should be."""
    rounds = {20: between(), 21: twenty_first_class.between(), 22: twenty_second_class.between()}
    cases = [case for number, of in rounds.items() if not only or number in only for case in of.items()]
    return [("between", what, fault(do)) for what, do in cases]


def fault(do: Callable[[Path], Iterator[str]]) -> str:
    """What is not as it should be, "" where all is; an error of ours is said as one."""
    with tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()):
        try:
            return "; ".join(do(Path(name)))
        except Exception as problem:
            return f"{type(problem).__name__}: {problem}"


def _assignment(**more: Any) -> assignments.Assignment:
    return assignments.Assignment("a-test", "Week 3", (TARGET,), **more)


def _outcome(source: str) -> CellOutcome:
    return replace(known(exercises()[TARGET], right()[TARGET]), source=source)


def _far_time(folder: Path) -> Iterator[str]:
    assignment = _assignment(due=0.0, late_penalty=10.0)
    rows = [Row("eve", "", (_outcome(""),), received=float(1 << 40)), Row("bob", "", (_outcome(""),), received=-1.0)]
    entries = ledger.settled(assignment, rows)
    ledger.write_grades(folder / "grades.csv", assignment, entries)
    report.write_reports(folder / "report", assignment, entries)
    if {entry.row.student: entry.total for entry in entries} != {"eve": 0.0, "bob": 1.0}:
        yield "late, and nothing deducted"


def _chosen_time(folder: Path) -> Iterator[str]:
    for others, chosen in (("bob {}.ipynb", False), ("Week 3_bob{}_attempt_2026-11-20-12-00-00_x.ipynb", True)):
        place = folder / f"{chosen}"
        place.mkdir()
        for name in ("eve_attempt_2020-01-01-00-00-00_x.ipynb", others.format(1), others.format(2)):
            (place / name).write_text(json.dumps(notebook({})), encoding="utf-8")
            os.utime(place / name, (10**9, 10**9))
        found, _ = submissions.found(place)
        merged = submissions.merged(found, Directory((), (each.student for each in found)))
        times = {each.student: submissions.read(each, KEYS).received for each in merged}
        if (times["eve_attempt_2020-01-01-00-00-00_x"] != 10**9) != chosen:
            yield "came when its name says" if not chosen else "a time of Blackboard's is not read"


def _runs(folder: Path, change: Callable[[Path], object], *, large_at_first: bool = False) -> list[str]:
    """The verdicts on a submission in a first run, and in one that is resumed, between which something is changed."""
    place = folder / "submissions" / "eve"
    place.mkdir(parents=True)
    settings = f'format = 1\nid = "test-class"\nname = "A"\nexercises = ["{TARGET}"]\n'
    (folder / assignments.NAME).write_text(settings, encoding="utf-8")
    (place / "a.ipynb").write_text(json.dumps(notebook(right())), encoding="utf-8")
    if large_at_first:
        _large(place)

    def here(_jobs: object, _assignment: object, sheets: Sequence[submissions.Sheet], **_: object) -> Iterator[Any]:
        return ((sheet, [_outcome(sheet.cells[TARGET]).to_dict()]) for sheet in sheets)

    found = []
    with mock.patch.object(submissions, "LARGEST", 1 << 20), mock.patch.object(grade, "_here", here):
        for resumed in (False, True):
            if resumed:
                change(place)
            command(["grade", str(folder), *(["--resume"] if resumed else [])])
            found.append(table(folder / "grades.csv")[0]["verdict"])
    return found


def _large(place: Path) -> None:
    with (place / "b.ipynb").open("wb") as file:
        file.truncate(2 << 20)


def _taken_away(folder: Path) -> Iterator[str]:
    found = _runs(folder, lambda place: (place / "b.ipynb").unlink(), large_at_first=True)
    if found != ["unreadable", "graded"]:
        yield f"{found[0]}, and then {found[1]}"


def _added(folder: Path) -> Iterator[str]:
    found = _runs(folder, _large)
    if found != ["graded", "unreadable"]:
        yield f"{found[0]}, and then {found[1]}"


_UNUSUAL = """\
def attend(query, key, value, mask):
    answers = []
    for row in query:
        weights = torch.softmax(torch.stack([(row * other).sum() for other in key]), dim=0)
        answers.append(sum(w * m * v for w, m, v in zip(weights, mask, value)))
    return torch.stack(answers)
"""


_TEXT = '"""a" # """; '
"""To who takes this for two texts, what is behind it is a comment."""


def _copied(_: Path, before: str, *, in_lines: bool = False) -> Iterator[str]:
    copy = "".join(f"{before}{line}\n" for line in _UNUSUAL.splitlines()) if in_lines else before + _UNUSUAL
    rows = [Row("ada", "1", (_outcome(_UNUSUAL),)), Row("eve", "2", (_outcome(copy),))]
    if not similar.pairs(rows, (TARGET,)):
        yield "not among the answers that are alike"


def _long_copies(folder: Path) -> Iterator[str]:
    rows = []
    for n, name in enumerate(("ada", "bob", "eve")):
        line = f"{_UNUSUAL}x = [{n}]" + "''" * 9000 + "\n"
        outcomes = [replace(_outcome(line), key=key) for key in KEYS]
        rows.append(Row(name, name, tuple(outcomes)))
    assignment = assignments.Assignment("a-test", "Week 3", KEYS)
    report.write_reports(folder, assignment, ledger.settled(assignment, rows))
    if large := [path.name for path in folder.rglob("*.html") if path.stat().st_size > _LARGEST_PAGE]:
        yield f"large pages: {', '.join(large)}"


_LARGEST_PAGE = 1_000_000


def _half_characters(folder: Path) -> Iterator[str]:
    names = ("eve_1_assignsubmission_file_x", "stoneeve_78_913_x.ipynb", "stonebob_79_914_x.zip")
    outcome = replace(_outcome(""), status="error", detail="ValueError: \ud800")
    rows = [Row(name, "", (outcome,)) for name in names]
    entries = ledger.settled(_assignment(), rows)
    report.write_reports(folder, _assignment(), entries, files={name: (name,) for name in names})
    for path in folder.glob("*.zip"):
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None or not archive.namelist():
                yield f"{path.name} cannot be read"


def _many_names(folder: Path) -> Iterator[str]:
    count, begin = 100_000, b"PK\x03\x04" + bytes(26)
    each = struct.pack("<4s4B4HL2L5H2L", b"PK\x01\x02", 20, 3, 20, *(0,) * 4, 33, *(0,) * 3, 1, *(0,) * 6) + b"x"
    names = each * count
    end = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, len(names), len(begin))
    end += struct.pack("<4sLQL", b"PK\x06\x07", 0, len(begin) + len(names), 1)
    end += struct.pack("<4s4H2LH", b"PK\x05\x06", *(0xFFFF,) * 4, *(0xFFFFFFFF,) * 2, 0)
    (folder / "a.ipynb").write_text(json.dumps(notebook({})), encoding="utf-8")
    (folder / "b.zip").write_bytes(begin + names + end)
    tracemalloc.start()
    try:
        sheet = submissions.read(submissions.Submission("eve", (folder / "a.ipynb", folder / "b.zip")), KEYS)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if sheet.problem is None:
        yield "what cannot be read does not count"
    if most > 8 * len(names):
        yield f"it takes {most >> 20} MiB to read it"
