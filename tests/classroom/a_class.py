"""A class of generated submissions: right, wrong in each known way, and hostile. Each says how it should be graded."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pitfall_lab.lessons import progress
from pitfall_lab.lessons.exercises import exercises

KEYS = ("12.1", "12.2", "12.3", "12.4")
TARGET = "12.2"
"""The exercise that hostile cells pretend to answer."""


@dataclass(frozen=True)
class Case:
    """``cells`` are the answers by key; the other exercises are there as given.

    ``write`` makes the file where a notebook will not do.

    ``status`` is what each key must come to (others: unsolved); ``verdict`` is the row's, or several
    with ``|`` between them; ``family`` is one of :data:`FAMILIES`.

    ``beside`` is the case without whose file it would not have its name.
    """

    name: str
    what: str
    verdict: str
    cells: dict[str, str] = field(default_factory=dict)
    status: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    write: Callable[[Path, Path], None] | None = None
    says: str = ""
    family: str = ""
    beside: str = ""

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


def the_class(outside: Path, only: Collection[int] = ()) -> list[Case]:
    """All cases, or those of some rounds.

    ``outside`` is a folder of the teacher's that hostile cells try to read, change and delete.
    """
    from tests.classroom import (
        eighteenth_class,
        eighth_class,
        eleventh_class,
        fifteenth_class,
        fifth_class,
        fourteenth_class,
        fourth_class,
        nineteenth_class,
        ninth_class,
        second_class,
        seventeenth_class,
        sixteenth_class,
        sixth_class,
        tenth_class,
        third_class,
        thirteenth_class,
        twentieth_class,
        twenty_second_class,
        twenty_third_class,
    )

    rounds = {
        1: lambda: [
            *_honest(),
            *_of("exhaust", _exhausting()),
            *_of("reach", _reaching(outside)),
            *_of("forge", _forging()),
            *_of("end", _ending()),
            *_of("notebook", _files()),
            *_of("kernel", _kernel()),
            *_of("names", _names()),
            *_of("notebook", _more_files()),
        ],
        2: lambda: [
            *_of("forge", second_class.forging()),
            *_of("reach", second_class.reaching(outside)),
            *_of("exhaust", second_class.exhausting()),
            *_of("notebook", second_class.files()),
        ],
        3: lambda: [
            *_of("forge", third_class.forging()),
            *_of("disturb", third_class.disturbing()),
            *_of("reach", third_class.peeking(outside)),
            *_of("notebook", third_class.files()),
        ],
        4: lambda: [
            *_of("forge", fourth_class.forging()),
            *_of("disturb", fourth_class.disturbing()),
            *_of("reach", fourth_class.peeking(outside)),
            *_of("notebook", fourth_class.files()),
        ],
        5: lambda: [
            *_of("forge", fifth_class.forging()),
            *_of("disturb", fifth_class.disturbing()),
            *_of("reach", fifth_class.peeking()),
            *_of("notebook", fifth_class.files()),
        ],
        6: lambda: [
            *_of("forge", sixth_class.forging()),
            *_of("disturb", sixth_class.disturbing()),
            *_of("reach", sixth_class.peeking(outside)),
            *_of("notebook", sixth_class.files()),
        ],
        8: lambda: [
            *_of("disturb", eighth_class.disturbing()),
            *_of("reach", eighth_class.peeking(outside)),
            *_of("notebook", eighth_class.files()),
        ],
        9: lambda: [
            *_of("disturb", ninth_class.disturbing()),
            *_of("reach", ninth_class.peeking()),
            *_of("notebook", ninth_class.files()),
        ],
        10: lambda: [
            *_of("disturb", tenth_class.disturbing()),
            *_of("reach", tenth_class.peeking()),
            *_of("notebook", tenth_class.files()),
        ],
        11: lambda: [
            *_of("disturb", eleventh_class.disturbing()),
            *_of("reach", eleventh_class.peeking(outside)),
            *_of("notebook", eleventh_class.files()),
        ],
        13: lambda: [
            *_of("forge", thirteenth_class.forging()),
            *_of("disturb", thirteenth_class.disturbing()),
            *_of("reach", thirteenth_class.peeking()),
            *_of("notebook", thirteenth_class.files()),
        ],
        14: lambda: [
            *_of("forge", fourteenth_class.forging()),
            *_of("disturb", fourteenth_class.disturbing()),
            *_of("notebook", fourteenth_class.files()),
        ],
        15: lambda: [
            *_of("forge", fifteenth_class.forging()),
            *_of("disturb", fifteenth_class.disturbing()),
            *_of("notebook", fifteenth_class.files()),
        ],
        16: lambda: [
            *_of("forge", sixteenth_class.forging()),
            *_of("frames", sixteenth_class.peeking()),
            *_of("disturb", sixteenth_class.disturbing()),
            *_of("notebook", sixteenth_class.files()),
        ],
        17: lambda: [
            *_of("forge", seventeenth_class.forging()),
            *_of("disturb", seventeenth_class.disturbing()),
            *_of("notebook", seventeenth_class.files()),
        ],
        18: lambda: [
            *_of("forge", eighteenth_class.forging()),
            *_of("disturb", eighteenth_class.disturbing()),
            *_of("notebook", eighteenth_class.files()),
        ],
        19: lambda: [
            *_of("forge", nineteenth_class.forging()),
            *_of("disturb", nineteenth_class.disturbing()),
            *_of("notebook", nineteenth_class.files()),
        ],
        20: lambda: [
            *_of("forge", twentieth_class.forging()),
            *_of("disturb", twentieth_class.disturbing()),
            *_of("notebook", twentieth_class.files()),
        ],
        22: lambda: [
            *twenty_second_class.honest(),
            *_of("forge", twenty_second_class.forging()),
            *_of("reach", twenty_second_class.peeking()),
            *_of("disturb", twenty_second_class.disturbing()),
            *_of("notebook", twenty_second_class.files()),
        ],
        23: lambda: [
            *_of("forge", twenty_third_class.forging()),
            *_of("disturb", twenty_third_class.disturbing()),
            *_of("notebook", twenty_third_class.files()),
        ],
    }
    return [case for number, cases in rounds.items() if not only or number in only for case in cases()]


FAMILIES = {
    "exhaust": "each run has limits of time, memory, output and files, and is ended with its group when it reaches one",
    "reach": (
        "Landlock lets a cell read libraries and write in its folder; seccomp allows some calls; its process "
        "has read nothing else"
    ),
    "forge": (
        "another process decides; what was replaced is found before it is used; no frame leads to the observer; words "
        "that no exercise needs are named, and what was not read; names that are worked out are refused, and indices "
        "that derivatives have kept are checked"
    ),
    "fit": (
        "arguments of exercises are drawn anew for each run; what is watched has to make the numbers "
        "that it makes unwatched"
    ),
    "disturb": "each run is a process of its own, and settings of torch's are those of a lesson before and after it",
    "end": "a cell that ends its process has ended a fork: its room and the other cells continue",
    "notebook": "a notebook is read as data, within a size, and only sources of exercises count",
    "kernel": "IPython's syntax is read behind the fence and within the limits",
    "names": "a name is shown and written without signs that act, and each submission has a row of its own",
    "between": (
        "what a run takes from an earlier one is of the same files; names and times are read where a system gave them; "
        "pages and comparisons have a size"
    ),
    "calls": "seccomp refuses each system call that is not in the list, and Landlock what a path reaches",
    "frames": "functions that hand out frames, and what could replace them, are refused to code that is no library's",
}
"""Families of hostile submissions, each with the reason why it is held."""


def _of(family: str, cases: Iterator[Case]) -> Iterator[Case]:
    return (replace(case, family=family) for case in cases)


def _honest() -> Iterator[Case]:
    yield Case("right-1", "the first right solutions", "graded", right(0), SOLVED)
    yield Case("right-2", "other right solutions", "graded", right(1), SOLVED)
    yield Case("unchanged", "everything as it was given", "empty")
    yield Case(
        "half", "two of four are solved", "graded", {k: right()[k] for k in KEYS[:2]}, dict.fromkeys(KEYS[:2], "solved")
    )
    for key in KEYS:
        for n, source in enumerate(exercises()[key].wrong, 1):
            yield Case(
                f"wrong-{key}-{n}",
                f"a known wrong answer to {key}",
                "graded",
                {key: source},
                {key: ("partly", "failed", "error")},
            )
    constant = "def attend(*arguments):\n    return torch.zeros(3, 2, requires_grad=True) * 1"
    yield Case("constant", "a constant", "graded", {TARGET: constant}, {TARGET: "partly"})
    commented = "\n".join(f"# {line}" for line in right()[TARGET].splitlines())
    yield Case(
        "commented",
        "the right answer as a comment",
        "graded",
        {TARGET: commented},
        {TARGET: ("partly", "failed", "error")},
    )
    yield Case("syntax", "no Python", "graded", {TARGET: "def attend(:"}, {TARGET: "error"})
    yield Case("raises", "an error in the cell", "graded", {TARGET: "1 / 0"}, {TARGET: "error"})


def _cell(name: str, what: str, status: Any, source: str, verdict: str = "graded", *, says: str = "") -> Case:
    return Case(name, what, verdict, {TARGET: source}, {TARGET: status}, says=says)


def _wrong() -> str:
    return exercises()[TARGET].given + "\n#\n"


def peeks(name: str, what: str, search: str, before: str = "") -> Case:
    """A cell that has the right answer if ``search``, which sets ``found``, finds data that it should not see."""
    guarded = "".join(f"    {line}\n" for line in search.splitlines())
    tried = f"{before}found = False\ntry:\n{guarded}except Exception:\n    pass\n"
    return _cell(name, what, NOT_SOLVED, f"{tried}exec({right()[TARGET]!r} if found else {_wrong()!r})\n")


NOT_SOLVED = ("partly", "failed", "error")


def _exhausting() -> Iterator[Case]:
    """What takes time, memory, output or the disk."""
    wrong = _wrong()
    yield _cell("loop", "loops for ever", "timeout", "while True:\n    pass", "stopped", says="did not end in time")
    yield _cell(
        "sleep",
        "sleeps for ever, in the function",
        "timeout",
        f"{wrong}\nimport time\ndef attend(*a):\n    time.sleep(9999)",
        "stopped",
    )
    yield _cell(
        "memory",
        "asks for tensors until none is left",
        "memory",
        "kept = []\nwhile True:\n    kept.append(torch.zeros(10**6))",
        "stopped",
        says="memory",
    )
    kept = "import math\nmath.kept = kept = []\nwhile True:\n    kept.append(bytes(100))"
    yield _cell(
        "keeps", "takes all the memory and keeps it after the cell has failed", "memory", kept, "stopped", says="memory"
    )
    yield _cell("bytes", "asks for eight gigabytes at once", "memory", "bytearray(8 << 30)", "stopped")
    yield _cell(
        "prints",
        "prints a gigabyte",
        "output",
        "for _ in range(1000):\n    print('x' * 10**6)",
        "stopped",
        says="printed more",
    )
    yield _cell(
        "writes",
        "prints a gigabyte past Python",
        "output",
        "import os\nfor _ in range(1000):\n    os.write(1, b'x' * 10**6)",
        "stopped",
    )
    yield _cell(
        "fills",
        "fills the disk",
        NOT_SOLVED,
        "with open('large', 'wb') as f:\n    while True:\n        f.write(b'0' * 10**6)",
    )
    many = "n = 0\nwhile True:\n    n += 1\n    open(f'f{n}', 'wb').write(b'0' * 10**6)"
    yield _cell("fills-many", "fills the disk with many files", "output", many, "stopped", says="write into files")


def _reaching(outside: Path) -> Iterator[Case]:
    """What looks for files, processes or the network outside."""
    correct = right()[TARGET]
    yield _cell(
        "deletes", "deletes the teacher's folder", NOT_SOLVED, f"import shutil\nshutil.rmtree({str(outside)!r})"
    )
    yield _cell(
        "overwrites", "writes its own grades", NOT_SOLVED, f"open({str(outside / 'grades.csv')!r}, 'w').write('1,1,1')"
    )
    yield _cell("reads", "reads the teacher's files", NOT_SOLVED, f"print(open({str(outside / 'notes.txt')!r}).read())")
    yield _cell("chmod", "locks the teacher out", NOT_SOLVED, f"import os\nos.chmod({str(outside / 'notes.txt')!r}, 0)")
    answers = f"from pitfall_lab.lessons.exercises import exercises\nexec(exercises()[{TARGET!r}].right[0])"
    yield _cell("answers", "imports the answers", NOT_SOLVED, answers)
    files = (
        "import pitfall_lab, pathlib\n"
        "for path in pathlib.Path(pitfall_lab.__file__).parent.rglob('c12*'):\n"
        "    exec(path.read_text())"
    )
    yield _cell("answer-files", "looks for the files with the answers", NOT_SOLVED, files)
    linked = f"import os\nos.symlink({str(outside / 'notes.txt')!r}, 'mine')\nprint(open('mine').read())\n{correct}"
    yield _cell("links", "reads the teacher's files through a link", NOT_SOLVED, linked)
    attaches = "import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0"
    yield _cell("traces-parent", "attaches to the grader", NOT_SOLVED, attaches)
    yield _cell("forks", "starts processes", NOT_SOLVED, "import os\nwhile True:\n    os.fork()")
    yield _cell(
        "shell",
        "starts a shell",
        NOT_SOLVED,
        "import subprocess\nsubprocess.run(['sh', '-c', 'echo gone'], check=True)",
    )
    yield _cell("kills", "kills whom it can", NOT_SOLVED, "import os, signal\nos.kill(-1, signal.SIGKILL)")
    yield _cell(
        "network", "sends something away", NOT_SOLVED, "import socket\nsocket.create_connection(('127.0.0.1', 9), 1)"
    )


def _forging() -> Iterator[Case]:
    """What would have points without an answer."""
    wrong = _wrong()
    correct = right()[TARGET]
    patch = (
        "import pitfall_lab.lessons.attempt as a\n"
        "a._Stage._unchanged = lambda *args: True\n"
        "a.shares = lambda *args: False\n"
    )
    yield _cell(
        "patches-grader",
        "puts its own functions into the grader",
        "tampered",
        patch + wrong,
        "tampered",
        says="replaced a function",
    )
    yield _cell(
        "patches-exercise",
        "patches what is not there",
        NOT_SOLVED,
        "import pitfall_lab.lessons.exercise as e\ne.grade = lambda *a: 1\n" + wrong,
    )
    yield _cell(
        "patches-torch",
        "makes torch say that all is equal",
        "tampered",
        "torch.Tensor.__eq__ = lambda *a: True\ntorch.equal = lambda *a: True\n" + wrong,
        "tampered",
    )
    yield _cell(
        "patches-json",
        "rewrites the report",
        "tampered",
        "import json\njson.dumps = lambda *a, **k: '{}'\n" + wrong,
        "tampered",
    )
    yield _cell(
        "patches-code",
        "swaps a function's code",
        "tampered",
        "import pitfall_lab.lessons.attempt as a\na.plain.__code__ = (lambda v: 1).__code__\n" + wrong,
        "tampered",
    )
    yield _cell(
        "frames",
        "climbs the stack to the observer",
        "tampered",
        "import sys\nf = sys._getframe(1)\n" + wrong,
        "tampered",
    )
    climbs = (
        "while f:\n    if hasattr(f.f_locals.get('self'), 'request'):\n"
        "        type(f.f_locals['self']).value = lambda *a: True\n    f = f.f_back\n"
    )
    traced = f"import sys\ndef t(f, event, details):\n{textwrap.indent(climbs, '    ')}sys.settrace(t)\n{wrong}"
    yield _cell("traces", "traces the observer", "tampered", traced, "tampered")
    raised = f"try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    f = e.__traceback__.tb_frame\n{climbs}{wrong}"
    yield _cell("frame-of-error", "climbs up from an error", "tampered", raised, "tampered")
    generated = f"def g():\n    yield me.gi_frame.f_back\nme = g()\nf = next(me)\n{climbs}{wrong}"
    yield _cell("frame-of-generator", "climbs up from a generator", "tampered", generated, "tampered")
    yield _cell(
        "forges",
        "writes a report of its own",
        "tampered",
        "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'{\"observations\": []}\\n')\n"
        "    except OSError:\n        pass\n" + correct,
        "tampered",
    )


def _ending() -> Iterator[Case]:
    """What ends, or spoils, its process."""
    correct = right()[TARGET]
    yield _cell("exit", "calls exit()", "exit", "exit()", "stopped")
    yield _cell(
        "os-exit",
        "ends its process as if all were well",
        "exit",
        "import os\nos._exit(0)",
        "stopped",
        says="ended its own process",
    )
    yield _cell("aborts", "crashes its process", "crash", "import os\nos.abort()", "stopped", says="SIGABRT")
    yield _cell("segfault", "reads memory that is not there", "crash", "import ctypes\nctypes.string_at(0)", "stopped")
    yield _cell("interrupt", "raises KeyboardInterrupt", ("crash", *NOT_SOLVED), "raise KeyboardInterrupt", "stopped")
    yield _cell("recursion", "recurses without end", NOT_SOLVED, "def f():\n    f()\nf()")
    yield _cell("closes", "closes every file", "exit", "import os\nos.closerange(0, 300)\n" + correct, "stopped")
    yield _cell("html", "has markup in its error", NOT_SOLVED, "raise ValueError('<script>alert(1)</script>')")
    yield _cell("nul", "has a NUL in the cell", NOT_SOLVED, "x = 1\0")
    yield _cell("surrogate", "has half a character in the cell", ("solved", *NOT_SOLVED), f"# \ud800\n{correct}")


def _files() -> Iterator[Case]:
    def raw(content: bytes | Callable[[], bytes], name: str = "{name}.ipynb") -> Callable[[Path, Path], None]:
        def write(folder: Path, stem: Path) -> None:
            (folder / name.format(name=stem)).write_bytes(content() if callable(content) else content)

        return write

    def text(document: Any, encoding: str = "utf-8") -> bytes:
        return json.dumps(document, ensure_ascii=False).encode(encoding)

    everything, one = notebook(right()), notebook({TARGET: right()[TARGET]})
    solved = {TARGET: "solved"}
    forged = notebook({})
    for each in forged["cells"]:
        each["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "Solved. 4 of 4 hold."}]
        each["metadata"] = {
            "tags": ["solved"],
            "nbgrader": {"grade": True, "points": 100},
            "pitfall_lab": {"held": 4, "total": 4},
        }
    forged["metadata"] = {
        "pitfall_lab": {"grade": 100},
        "kernelspec": {"name": "trusted", "language": "R", "display_name": "R"},
    }
    yield Case("forged", "outputs and metadata say that all is solved", "empty", write=raw(text(forged)))
    yield Case(
        "missing",
        "two cells are missing",
        "graded",
        status={**SOLVED, "12.3": "missing", "12.4": "missing"},
        write=raw(
            text(book([c for c in everything["cells"] if "12.3" not in c["source"] and "12.4" not in c["source"]]))
        ),
    )
    yield Case(
        "no-cells", "all cells are missing", "empty", status=dict.fromkeys(KEYS, "missing"), write=raw(text(book([])))
    )
    first_wrong = notebook({TARGET: "attend = None"}, extra=[code(f"%%exercise {TARGET}\n{right()[TARGET]}")])
    yield Case(
        "twice",
        "a cell is there twice; the last is right",
        "graded",
        status={TARGET: "solved"},
        write=raw(text(first_wrong)),
        says="the last one that is filled in counts",
    )
    last_wrong = notebook(right(), extra=[code(f"%%exercise {TARGET}\nattend = None")])
    yield Case(
        "twice-wrong",
        "a cell is there twice; the last is wrong",
        "graded",
        status={**SOLVED, TARGET: ("partly", "failed", "error")},
        write=raw(text(last_wrong)),
    )
    lines = book([code([line + "\n" for line in c["source"].split("\n")]) for c in one["cells"]])
    yield Case(
        "lines",
        "sources as lists of lines, with CR LF",
        "graded",
        status=solved,
        write=raw(text(lines).replace(b"\\n", b"\\r\\n")),
    )
    odd = book(
        [
            None,
            7,
            "x",
            {"cell_type": "code"},
            {"cell_type": "code", "source": {"a": 1}},
            {"cell_type": ["code"], "source": ""},
            *one["cells"],
        ]
    )
    yield Case("odd-cells", "some cells are no cells", "graded", status=solved, write=raw(text(odd)))
    yield Case("utf-16", "encoded in UTF-16", "graded", status=solved, write=raw(text(one, "utf-16")), says="UTF-16")
    yield Case("bom", "UTF-8 with a byte order mark", "graded", status=solved, write=raw(text(one, "utf-8-sig")))
    chinese = notebook({TARGET: "# 注释\n" + right()[TARGET]})
    yield Case("utf-8", "Chinese comments", "graded", status={TARGET: "solved"}, write=raw(text(chinese)))
    yield Case("gb18030", "encoded in GB18030", "unreadable", write=raw(text(chinese, "gb18030")), says="UTF-8")
    yield Case("text", "not a notebook: text", "unreadable", write=raw(b"I could not do the homework."), says="no JSON")
    yield Case("binary", "not a notebook: bytes", "unreadable", write=raw(bytes(range(256)) * 40))
    yield Case("empty", "an empty file", "unreadable", write=raw(b""), says="empty")
    yield Case("list", "JSON, but a list", "unreadable", write=raw(b"[1, 2]"), says="list of cells")
    yield Case("deep", "JSON, a hundred thousand levels deep", "unreadable", write=raw(b"[" * 100_000))
    yield Case(
        "digits", "a number of a million digits", "unreadable", write=raw(b'{"cells": [' + b"9" * 1_000_000 + b"]}")
    )
    yield Case(
        "old",
        "a notebook of format 3",
        "unreadable",
        write=raw(text({"nbformat": 3, "worksheets": [{"cells": []}]})),
        says="old format",
    )
    yield Case("huge", "a file of 33 MiB", "unreadable", write=_huge, says="larger than")
    yield Case("essay.docx", "another kind of file", "unreadable", write=raw(b"PK\x03\x04 not a notebook", "{name}"))
    yield Case("link", "a link to the teacher's notes", "unreadable", write=_link, says="link")
    yield Case("pipe", "a named pipe", "unreadable", write=_pipe, says="ordinary file")
    yield Case(
        "folder-empty",
        "a folder without notebooks",
        "unreadable",
        write=lambda folder, stem: (folder / stem).mkdir(),
        says="no notebook",
    )
    yield Case("folder", "a folder with the answers in two notebooks", "graded", status=SOLVED, write=_two)
    yield Case("<b>=1+1", "a name with markup in it", "graded", {TARGET: right()[TARGET]}, {TARGET: "solved"})
    yield Case("=HYPERLINK(1)", "a name that a spreadsheet would run", "empty")


def _kernel() -> Iterator[Case]:
    """What uses, or abuses, that a cell is read as a notebook's kernel would read it."""
    wrong, correct = _wrong(), right()[TARGET]
    yield _cell(
        "magics",
        "right, with magics and shell lines",
        "solved",
        f"%time 1\n!pip list\n{correct}\ntorch.cat?",
        says="were skipped",
    )
    yield _cell(
        "pasted",
        "right, pasted with prompts",
        "solved",
        "".join(f"{'...' if l[:1] == ' ' else '>>>'} {l}\n" for l in correct.splitlines()),
    )
    shown = f"{right()['12.4']}\ntry:\n    counterexample()\nexcept RuntimeError as e:\n    print(e)\n"
    yield Case("shown", "shows below the answer that it fails", "graded", {"12.4": shown}, {"12.4": "solved"})
    yield _cell(
        "many-magics",
        "two thousand shell lines, each read anew",
        ("error", "timeout"),
        "!x\n" * 2000 + correct,
        "stopped",
    )
    yield _cell("question-marks", "a line of a hundred thousand question marks", NOT_SOLVED, "x" + "?" * 100_000)
    yield _cell("equals", "a hundred thousand equals signs and spaces", NOT_SOLVED, "= " * 100_000)
    yield _cell(
        "shell-class",
        "replaces what skips magics",
        "tampered",
        f"type(get_ipython()).system = print\n{wrong}",
        "tampered",
    )
    forged = f"import pitfall_lab.classroom.kernel as k\nk.skipped[:] = ['=1+1<script>' * 99] * 99\n{wrong}"
    yield _cell("skipped-forged", "forges what was skipped", NOT_SOLVED, forged)
    yield _cell(
        "skipped-odd",
        "puts no texts there",
        NOT_SOLVED,
        f"import pitfall_lab.classroom.kernel as k\nk.skipped[:] = [[], None, 7]\n{wrong}",
    )
    yield _cell("input", "asks at the terminal", "solved", f"name = input('who?')\n{correct}")
    yield _cell(
        "clock",
        "sets the processor's clock back",
        NOT_SOLVED,
        f"import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)\n{wrong}",
    )
    yield _cell("nested", "five thousand brackets", NOT_SOLVED, "(" * 5000)
    yield _cell(
        "long-line", "a line of a million statements", ("timeout", "memory", "crash"), "x=1;" * 1_000_000, "stopped"
    )
    yield _cell("nuls", "NULs alone", NOT_SOLVED, "\0" * 1000)
    yield _cell(
        "display",
        "an object whose text never ends",
        "output",
        f"class A:\n    def __repr__(self):\n        return 'x' * 9**8\n{wrong}display(A())",
        "stopped",
    )


def _names() -> Iterator[Case]:
    """Names of files: each has a row, and no two have one name."""
    same = notebook({})

    def as_file(name: str | bytes) -> Callable[[Path, Path], None]:
        def write(folder: Path, _: Path) -> None:
            (folder / os.fsdecode(name)).write_text(json.dumps(same), encoding="utf-8")

        return write

    lost = "\N{REPLACEMENT CHARACTER}"
    for row, name, what in (
        (f"new{lost}line", "new\nline.ipynb", "a name with a line's end"),
        (f"bidi{lost}cod", "bidi\u202ecod.ipynb", "a name that turns what follows"),
        (f"zero{lost}width", "zero\u200bwidth.ipynb", "a name with a sign of no width"),
        (f"tab{lost}{lost}", "tab\t\r.ipynb", "a name with a tab and a return"),
        ("n" * 249, "n" * 249 + ".ipynb", "a name of 255 bytes"),
        (f"caf{lost}", b"caf\xe8.ipynb", "a name that is not UTF-8"),
        (f"caf{lost} (2)", b"caf\xe9.ipynb", "another one, which looks the same"),
        ('a,"b";c\'', 'a,"b";c\'.ipynb', "a name with what separates columns"),
        ("-rf", "-rf.ipynb", "a name like an option"),
        ("@SUM(A1)", "@SUM(A1).ipynb", "a name that another spreadsheet would run"),
        ("＝1+1", "＝1+1.ipynb", "a wide equals sign"),
        ("e\u0301", "e\u0301.ipynb", "a letter and its accent"),
        ("\u00e9", "\u00e9.ipynb", "the same letter as one sign"),
        ("README", "README.ipynb", "a name like a note of the teacher's"),
        ("%s{0}$HOME`id`", "%s{0}$HOME`id`.ipynb", "a name with what shells and formats expand"),
    ):
        twin = f"caf{lost}" if row.endswith(" (2)") else ""
        yield Case(row, what, "empty", write=as_file(name), beside=twin)
    yield Case(
        "marks.csv",
        "a table among the submissions",
        "unreadable",
        write=as_file_of("marks.csv", b"ada,1\n"),
        says="no JSON",
    )


def as_file_of(name: str, content: bytes) -> Callable[[Path, Path], None]:
    def write(folder: Path, _: Path) -> None:
        (folder / name).write_bytes(content)

    return write


def _more_files() -> Iterator[Case]:
    """Notebooks and folders that no teacher has seen yet."""

    def raw(text: str | bytes) -> Callable[[Path, Path], None]:
        content = text if isinstance(text, bytes) else text.encode()
        return lambda folder, stem: as_file_of(f"{stem}.ipynb", content)(folder, stem)

    everything, solved = json.dumps(notebook({TARGET: right()[TARGET]})), {TARGET: "solved"}
    lone = json.dumps(code(f"%%exercise {TARGET}\nx = 1"))
    missing = dict.fromkeys(KEYS, "missing")
    loud = notebook({TARGET: right()[TARGET]})
    loud["cells"][0]["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 5_000_000}]
    copy = [code(f"%%exercise {TARGET}\n{text}") for text in (exercises()[TARGET].given, "", "# nothing yet\n\n")]
    timed = notebook(
        {TARGET: "attend = None"}, extra=[code(f"%%time\n%%exercise '{TARGET}' --hint\n{right()[TARGET]}")]
    )
    yield Case(
        "copies",
        "empty and untouched copies below the answers",
        "graded",
        status=solved,
        write=raw(json.dumps(notebook({TARGET: right()[TARGET]}, extra=copy))),
        says="filled in",
    )
    yield Case("timed", "the answer below %%time", "graded", status={TARGET: "solved"}, write=raw(json.dumps(timed)))
    yield Case(
        "million",
        "a hundred thousand cells",
        "empty",
        status=missing,
        write=raw('{"cells": [' + "{}," * 99_999 + "{}]}"),
    )
    thousands = '{"cells": [' + f"{lone}," * 19_999 + f"{lone}]}}"
    yield Case(
        "thousands",
        "twenty thousand answers to one exercise",
        "graded",
        status={**missing, TARGET: ("partly", "failed", "error")},
        write=raw(thousands),
    )
    yield Case("outputs", "five megabytes of output", "graded", status=solved, write=raw(json.dumps(loud)))
    yield Case(
        "format-9",
        "a format of the future",
        "graded",
        status=solved,
        write=raw(everything.replace('"nbformat": 4', '"nbformat": 9')),
    )
    yield Case(
        "format-text",
        "a format that is no number",
        "graded",
        status=solved,
        write=raw(everything.replace('"nbformat": 4', '"nbformat": "x"')),
    )
    yield Case(
        "twice-cells",
        "two lists of cells; the last one counts",
        "graded",
        status=solved,
        write=raw(everything.replace('{"nbformat"', '{"cells": [], "nbformat"')),
    )
    yield Case(
        "nan",
        "numbers that are none",
        "graded",
        status=solved,
        write=raw(everything.replace('"nbformat": 4', '"nbformat": NaN, "x": -Infinity')),
    )
    yield Case(
        "utf-32", "encoded in UTF-32", "graded", status=solved, write=raw(everything.encode("utf-32")), says="UTF-32"
    )
    yield Case("cut", "cut off in the middle", "unreadable", write=raw(everything[:-200]), says="no JSON")
    yield Case("tail", "something behind its end", "unreadable", write=raw(everything + "{}"), says="no JSON")
    yield Case(
        "bytes-inside",
        "bytes that are no text in the middle",
        "unreadable",
        write=raw(everything.encode().replace(b"def", b"d\xffef")),
        says="UTF-8",
    )
    yield Case(
        "deep-cells",
        "a list of cells a hundred thousand deep",
        "unreadable",
        write=raw('{"cells": ' + "[" * 100_000 + "]" * 100_000 + "}"),
    )
    yield Case(
        "words",
        "a magic with a megabyte of words",
        "graded",
        status={**missing, TARGET: ("partly", "failed", "error")},
        write=raw(json.dumps(book([code(f"%%exercise {TARGET} " + "x " * 500_000 + "\nx = 1")]))),
    )
    yield Case(
        "quoted",
        "a magic with a megabyte in quotation marks",
        "empty",
        status=missing,
        write=raw(json.dumps(book([code(f"%%exercise '{'x' * 1_000_000}'\nx = 1")]))),
    )
    yield Case(
        "hundred-megabytes",
        "a notebook of a hundred megabytes",
        "unreadable",
        write=lambda f, s: _sparse(f / f"{s}.ipynb", 100 << 20),
        says="larger than",
    )
    yield Case("loop-of-links", "a folder with a link to itself and a pipe", "graded", status=solved, write=_linked)
    yield Case("deep-folders", "three hundred folders in one another", "unreadable", write=_buried, says="no notebook")
    yield Case(
        "fifty-one", "fifty-one notebooks", "unreadable", write=lambda f, s: _many(f / str(s)), says="more than 50"
    )


def _sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        file.truncate(size)


def _linked(folder: Path, stem: Path) -> None:
    place = folder / stem
    place.mkdir()
    (place / "again").symlink_to(place)
    os.mkfifo(place / "pipe.ipynb")
    os.mkfifo(place / progress.NAME)
    (place / "mine.ipynb").write_text(json.dumps(notebook({TARGET: right()[TARGET]})), encoding="utf-8")


def _buried(folder: Path, stem: Path) -> None:
    (folder / stem).mkdir()
    here = os.open(folder / stem, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        here, above = os.open("d", os.O_RDONLY, dir_fd=here), here
        os.close(above)
    os.close(here)


def _many(folder: Path) -> None:
    folder.mkdir()
    for n in range(51):
        (folder / f"{n}.ipynb").write_text('{"cells": []}', encoding="utf-8")


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


def write_class(folder: Path, only: Collection[int] = (), named: Collection[str] = ()) -> list[Case]:
    """Write an assignment of chapter 12 with all submissions into ``folder``, or those of some rounds or
    names, and return the cases.
    """
    (folder / "submissions").mkdir(parents=True)
    (folder / "notes.txt").write_text("the teacher's notes", encoding="utf-8")
    points = "\n".join(f'"{key}" = 1' for key in KEYS)
    (folder / "assignment.toml").write_text(
        f'format = 1\nid = "test-class"\nname = "A <class>"\nexercises = {json.dumps(KEYS)}\n'
        f"timeout = 3\nmemory = 512\n[points]\n{points}\n",
        encoding="utf-8",
    )
    cases = [case for case in the_class(folder, only) if not named or case.name in named]
    for case in cases:
        write(case, folder / "submissions")
    return cases


def write(case: Case, folder: Path) -> None:
    """Write one submission into a folder."""
    if case.write is not None:
        case.write(folder, Path(case.name))
    else:
        (folder / f"{case.name}.ipynb").write_text(json.dumps(notebook(case.cells)), encoding="utf-8")
