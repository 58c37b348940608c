"""A class of generated submissions: right, wrong in each known way, and hostile. Each says how it should be graded."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.exercises import exercises

KEYS = ("12.1", "12.2", "12.3", "12.4")
TARGET = "12.2"
"""The exercise that hostile cells pretend to answer."""


@dataclass(frozen=True)
class Case:
    """``cells`` are the answers by key; the other exercises are there as given. ``write`` makes the file where a notebook will not do.

    ``status`` is what each key must come to (others: unsolved); ``verdict`` is the row's.
    """

    name: str
    what: str
    verdict: str
    cells: dict[str, str] = field(default_factory=dict)
    status: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    write: Callable[[Path, Path], None] | None = None
    says: str = ""

    def expected(self, key: str) -> tuple[str, ...]:
        """The statuses that are right for an exercise."""
        wanted = self.status.get(key, "unsolved")
        return (wanted,) if isinstance(wanted, str) else wanted


def notebook(cells: dict[str, str], *, extra: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    """A notebook with a cell for each exercise: the answer, or what was given."""
    sources = [f"%%exercise {key}\n{cells.get(key, exercises()[key].given)}" for key in KEYS]
    return book([code("%load_ext pitfall_lab"), *map(code, sources), *(extra or [])])


def code(source: Any, **more: Any) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": f"c{abs(hash(str(source)))}",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": source,
        **more,
    }


def book(cells: list[Any], **metadata: Any) -> dict[str, Any]:
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}


def right(n: int = 0) -> dict[str, str]:
    return {key: exercises()[key].right[n] for key in KEYS}


SOLVED = dict.fromkeys(KEYS, "solved")


def the_class(outside: Path) -> list[Case]:
    """All cases. ``outside`` is a folder of the teacher's that hostile cells try to read, change and delete."""
    return [*_honest(), *_hostile(outside), *_files()]


def _honest() -> Iterator[Case]:
    yield Case("right-1", "the first right solutions", "graded", right(0), SOLVED)
    yield Case("right-2", "other right solutions", "graded", right(1), SOLVED)
    yield Case("unchanged", "everything as it was given", "empty")
    yield Case("half", "two of four are solved", "graded", {k: right()[k] for k in KEYS[:2]}, dict.fromkeys(KEYS[:2], "solved"))
    for key in KEYS:
        for n, source in enumerate(exercises()[key].wrong, 1):
            yield Case(f"wrong-{key}-{n}", f"a known wrong answer to {key}", "graded", {key: source}, {key: ("partly", "failed", "error")})
    constant = "def attend(*arguments):\n    return torch.zeros(3, 2, requires_grad=True) * 1"
    yield Case("constant", "a constant", "graded", {TARGET: constant}, {TARGET: "partly"})
    commented = "\n".join(f"# {line}" for line in right()[TARGET].splitlines())
    yield Case("commented", "the right answer as a comment", "graded", {TARGET: commented}, {TARGET: ("partly", "failed", "error")})
    yield Case("syntax", "no Python", "graded", {TARGET: "def attend(:"}, {TARGET: "error"})
    yield Case("raises", "an error in the cell", "graded", {TARGET: "1 / 0"}, {TARGET: "error"})


def _hostile(outside: Path) -> Iterator[Case]:
    def cell(name: str, what: str, status: Any, source: str, verdict: str = "graded", *, says: str = "") -> Case:
        return Case(name, what, verdict, {TARGET: source}, {TARGET: status}, says=says)

    wrong, correct = exercises()[TARGET].given + "\n#\n", right()[TARGET]
    not_solved = ("partly", "failed", "error")
    yield cell("loop", "loops for ever", "timeout", "while True:\n    pass", "stopped", says="did not end in time")
    yield cell(
        "sleep", "sleeps for ever, in the function", "timeout", f"{wrong}\nimport time\ndef attend(*a):\n    time.sleep(9999)", "stopped"
    )
    yield cell(
        "memory",
        "asks for tensors until none is left",
        "memory",
        "kept = []\nwhile True:\n    kept.append(torch.zeros(10**6))",
        "stopped",
        says="memory",
    )
    kept = "import math\nmath.kept = kept = []\nwhile True:\n    kept.append(bytes(100))"
    yield cell("keeps", "takes all the memory and keeps it after the cell has failed", "memory", kept, "stopped", says="memory")
    yield cell("bytes", "asks for eight gigabytes at once", "memory", "bytearray(8 << 30)", "stopped")
    yield cell("prints", "prints a gigabyte", "output", "for _ in range(1000):\n    print('x' * 10**6)", "stopped", says="printed more")
    yield cell(
        "writes", "prints a gigabyte past Python", "output", "import os\nfor _ in range(1000):\n    os.write(1, b'x' * 10**6)", "stopped"
    )
    yield cell("fills", "fills the disk", not_solved, "with open('large', 'wb') as f:\n    while True:\n        f.write(b'0' * 10**6)")
    many = "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').write(b'0' * 10**6)"
    yield cell("fills-many", "fills the disk with many files", "output", many, "stopped", says="write into files")
    yield cell("deletes", "deletes the teacher's folder", not_solved, f"import shutil\nshutil.rmtree({str(outside)!r})")
    yield cell("overwrites", "writes its own grades", not_solved, f"open({str(outside / 'grades.csv')!r}, 'w').write('1,1,1')")
    yield cell("reads", "reads the teacher's files", not_solved, f"print(open({str(outside / 'notes.txt')!r}).read())")
    yield cell("chmod", "locks the teacher out", not_solved, f"import os\nos.chmod({str(outside / 'notes.txt')!r}, 0)")
    answers = f"from pitfall_lab.lessons.exercises import exercises\nexec(exercises()[{TARGET!r}].right[0])"
    yield cell("answers", "imports the answers", not_solved, answers)
    files = "import pitfall_lab, pathlib\nfor path in pathlib.Path(pitfall_lab.__file__).parent.rglob('c12*'):\n    exec(path.read_text())"
    yield cell("answer-files", "looks for the files with the answers", not_solved, files)
    patch = "import pitfall_lab.lessons.attempt as a\na._Stage._unchanged = lambda *args: True\na.shares = lambda *args: False\n"
    yield cell(
        "patches-grader", "puts its own functions into the grader", "tampered", patch + wrong, "tampered", says="replaced a function"
    )
    yield cell(
        "patches-exercise",
        "patches what is not there",
        not_solved,
        "import pitfall_lab.lessons.exercise as e\ne.grade = lambda *a: 1\n" + wrong,
    )
    yield cell(
        "patches-torch",
        "makes torch say that all is equal",
        "tampered",
        "torch.Tensor.__eq__ = lambda *a: True\ntorch.equal = lambda *a: True\n" + wrong,
        "tampered",
    )
    yield cell("patches-json", "rewrites the report", "tampered", "import json\njson.dumps = lambda *a, **k: '{}'\n" + wrong, "tampered")
    yield cell(
        "patches-code",
        "swaps a function's code",
        "tampered",
        "import pitfall_lab.lessons.attempt as a\na.plain.__code__ = (lambda v: 1).__code__\n" + wrong,
        "tampered",
    )
    yield cell("frames", "climbs the stack to the observer", "tampered", "import sys\nf = sys._getframe(1)\n" + wrong, "tampered")
    climbs = (
        "while f:\n    if hasattr(f.f_locals.get('self'), 'request'):\n"
        "        type(f.f_locals['self']).value = lambda *a: True\n    f = f.f_back\n"
    )
    traced = f"import sys\ndef t(f, event, details):\n{textwrap.indent(climbs, '    ')}sys.settrace(t)\n{wrong}"
    yield cell("traces", "traces the observer", "tampered", traced, "tampered")
    raised = f"try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    f = e.__traceback__.tb_frame\n{climbs}{wrong}"
    yield cell("frame-of-error", "climbs up from an error", "tampered", raised, "tampered")
    generated = f"def g():\n    yield me.gi_frame.f_back\nme = g()\nf = next(me)\n{climbs}{wrong}"
    yield cell("frame-of-generator", "climbs up from a generator", "tampered", generated, "tampered")
    linked = f"import os\nos.symlink({str(outside / 'notes.txt')!r}, 'mine')\nprint(open('mine').read())\n{correct}"
    yield cell("links", "reads the teacher's files through a link", not_solved, linked)
    attaches = "import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0"
    yield cell("traces-parent", "attaches to the grader", not_solved, attaches)
    yield cell(
        "forges",
        "writes a report of its own",
        "tampered",
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{\"observations\": []}\\n')\n"
        "    except OSError:\n        pass\n" + correct,
        "tampered",
    )
    yield cell("exit", "calls exit()", "exit", "exit()", "stopped")
    yield cell("os-exit", "ends its process as if all were well", "exit", "import os\nos._exit(0)", "stopped", says="ended its own process")
    yield cell("aborts", "crashes its process", "crash", "import os\nos.abort()", "stopped", says="SIGABRT")
    yield cell("segfault", "reads memory that is not there", "crash", "import ctypes\nctypes.string_at(0)", "stopped")
    yield cell("interrupt", "raises KeyboardInterrupt", ("crash", *not_solved), "raise KeyboardInterrupt", "stopped")
    yield cell("recursion", "recurses without end", not_solved, "def f():\n    f()\nf()")
    yield cell("forks", "starts processes", not_solved, "import os\nwhile True:\n    os.fork()")
    yield cell("shell", "starts a shell", not_solved, "import subprocess\nsubprocess.run(['sh', '-c', 'echo gone'], check=True)")
    yield cell("kills", "kills whom it can", not_solved, "import os, signal\nos.kill(-1, signal.SIGKILL)")
    yield cell("network", "sends something away", not_solved, "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)")
    yield cell("closes", "closes every file", "exit", "import os\nos.closerange(0, 300)\n" + correct, "stopped")
    yield cell("html", "has markup in its error", not_solved, "raise ValueError('<script>alert(1)</script>')")
    yield cell("nul", "has a NUL in the cell", not_solved, "x = 1\0")
    yield cell("surrogate", "has half a character in the cell", ("solved", *not_solved), f"# \ud800\n{correct}")


def _files() -> Iterator[Case]:
    def raw(content: bytes | Callable[[], bytes], name: str = "{name}.ipynb") -> Callable[[Path, Path], None]:
        def write(folder: Path, stem: Path) -> None:
            (folder / name.format(name=stem)).write_bytes(content() if callable(content) else content)

        return write

    def text(document: Any, encoding: str = "utf-8") -> bytes:
        return json.dumps(document, ensure_ascii=False).encode(encoding)

    everything = notebook(right())
    forged = notebook({})
    for each in forged["cells"]:
        each["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "Solved. 4 of 4 hold."}]
        each["metadata"] = {"tags": ["solved"], "nbgrader": {"grade": True, "points": 100}, "pitfall_lab": {"held": 4, "total": 4}}
    forged["metadata"] = {"pitfall_lab": {"grade": 100}, "kernelspec": {"name": "trusted", "language": "R", "display_name": "R"}}
    yield Case("forged", "outputs and metadata say that all is solved", "empty", write=raw(text(forged)))
    yield Case(
        "missing",
        "two cells are missing",
        "graded",
        status={**SOLVED, "12.3": "missing", "12.4": "missing"},
        write=raw(text(book([c for c in everything["cells"] if "12.3" not in c["source"] and "12.4" not in c["source"]]))),
    )
    yield Case("no-cells", "all cells are missing", "empty", status=dict.fromkeys(KEYS, "missing"), write=raw(text(book([]))))
    first_wrong = notebook({TARGET: "attend = None"}, extra=[code(f"%%exercise {TARGET}\n{right()[TARGET]}")])
    yield Case(
        "twice",
        "a cell is there twice; the last is right",
        "graded",
        status={TARGET: "solved"},
        write=raw(text(first_wrong)),
        says="the last one counts",
    )
    last_wrong = notebook(right(), extra=[code(f"%%exercise {TARGET}\nattend = None")])
    yield Case(
        "twice-wrong",
        "a cell is there twice; the last is wrong",
        "graded",
        status={**SOLVED, TARGET: ("partly", "failed", "error")},
        write=raw(text(last_wrong)),
    )
    lines = book([code([line + "\n" for line in c["source"].split("\n")]) for c in everything["cells"]])
    yield Case("lines", "sources as lists of lines, with CR LF", "graded", status=SOLVED, write=raw(text(lines).replace(b"\\n", b"\\r\\n")))
    odd = book(
        [
            None,
            7,
            "x",
            {"cell_type": "code"},
            {"cell_type": "code", "source": {"a": 1}},
            {"cell_type": ["code"], "source": ""},
            *everything["cells"],
        ]
    )
    yield Case("odd-cells", "some cells are no cells", "graded", status=SOLVED, write=raw(text(odd)))
    yield Case("utf-16", "encoded in UTF-16", "graded", status=SOLVED, write=raw(text(everything, "utf-16")), says="UTF-16")
    yield Case("bom", "UTF-8 with a byte order mark", "graded", status=SOLVED, write=raw(text(everything, "utf-8-sig")))
    chinese = notebook({TARGET: "# 注释\n" + right()[TARGET]})
    yield Case("utf-8", "Chinese comments", "graded", status={TARGET: "solved"}, write=raw(text(chinese)))
    yield Case("gb18030", "encoded in GB18030", "unreadable", write=raw(text(chinese, "gb18030")), says="UTF-8")
    yield Case("text", "not a notebook: text", "unreadable", write=raw(b"I could not do the homework."), says="no JSON")
    yield Case("binary", "not a notebook: bytes", "unreadable", write=raw(bytes(range(256)) * 40))
    yield Case("empty", "an empty file", "unreadable", write=raw(b""), says="empty")
    yield Case("list", "JSON, but a list", "unreadable", write=raw(b"[1, 2]"), says="list of cells")
    yield Case("deep", "JSON, a hundred thousand levels deep", "unreadable", write=raw(b"[" * 100_000))
    yield Case("digits", "a number of a million digits", "unreadable", write=raw(b'{"cells": [' + b"9" * 1_000_000 + b"]}"))
    yield Case(
        "old", "a notebook of format 3", "unreadable", write=raw(text({"nbformat": 3, "worksheets": [{"cells": []}]})), says="old format"
    )
    yield Case("huge", "a file of 33 MiB", "unreadable", write=_huge, says="larger than")
    yield Case("essay.docx", "another kind of file", "unreadable", write=raw(b"PK\x03\x04 not a notebook", "{name}"))
    yield Case("link", "a link to the teacher's notes", "unreadable", write=_link, says="link")
    yield Case("pipe", "a named pipe", "unreadable", write=_pipe, says="ordinary file")
    yield Case(
        "folder-empty", "a folder without notebooks", "unreadable", write=lambda folder, stem: (folder / stem).mkdir(), says="no notebook"
    )
    yield Case("folder", "a folder with the answers in two notebooks", "graded", status=SOLVED, write=_two)
    yield Case("<b>=1+1", "a name with markup in it", "graded", {TARGET: right()[TARGET]}, {TARGET: "solved"})
    yield Case("=HYPERLINK(1)", "a name that a spreadsheet would run", "empty")


def _huge(folder: Path, stem: Path) -> None:
    with (folder / f"{stem}.ipynb").open("wb") as file:
        file.truncate(33 << 20)


def _link(folder: Path, stem: Path) -> None:
    (folder / f"{stem}.ipynb").symlink_to(folder.parent / "notes.txt")


def _pipe(folder: Path, stem: Path) -> None:
    os.mkfifo(folder / f"{stem}.ipynb")


def _two(folder: Path, stem: Path) -> None:
    parts = folder / stem / "deeper"
    parts.mkdir(parents=True)
    solved = notebook(right())["cells"]
    (folder / stem / "one.ipynb").write_text(json.dumps(book(solved[:3])), encoding="utf-8")
    (parts / "two.ipynb").write_text(json.dumps(book(solved[3:])), encoding="utf-8")
    progress.keep(progress.Entry("12", "q-1", "question", 0, 1, ("detach_copies", "<no such belief>")), folder / stem)


def write_class(folder: Path) -> list[Case]:
    """Write an assignment of chapter 12 with all submissions into ``folder`` and return the cases."""
    (folder / "submissions").mkdir(parents=True)
    (folder / "notes.txt").write_text("the teacher's notes", encoding="utf-8")
    points = "\n".join(f'"{key}" = 1' for key in KEYS)
    (folder / "assignment.toml").write_text(
        f'format = 1\nid = "test-class"\nname = "A <class>"\nexercises = {json.dumps(KEYS)}\n'
        f"timeout = 6\nmemory = 512\n[points]\n{points}\n",
        encoding="utf-8",
    )
    cases = the_class(folder)
    for case in cases:
        if case.write is not None:
            case.write(folder / "submissions", Path(case.name))
        else:
            text = json.dumps(notebook(case.cells))
            (folder / "submissions" / f"{case.name}.ipynb").write_text(text, encoding="utf-8")
    return cases
