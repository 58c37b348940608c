"""The process in which submissions run: what it lets a cell do, that it outlives nobody, and that it
cannot be made to lie cheaply.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import InteractiveShell

from pitfall_lab.classroom import judge
from pitfall_lab.classroom.folders import is_overfull, removed, unlinked
from pitfall_lab.classroom.judge import CellOutcome, Limits, Room, judged
from pitfall_lab.classroom.register import Row
from pitfall_lab.classroom.room import _sweep
from pitfall_lab.classroom.submissions import exercise_of
from pitfall_lab.lessons.attempt import Observation, Request
from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.notebook import practice
from pitfall_lab.notebook.practice import Practice
from tests.classroom.reaches import REACHES, climbing, reaching
from tests.turns import todays

ROOT = Path(__file__).resolve().parents[2]
LIMITS = Limits(timeout=30, memory=512)


@pytest.fixture(scope="module")
def room() -> Iterator[Room]:
    with Room() as made:
        yield made


def seen(room: Room, cell: str, *expressions: str) -> Observation:
    answer = room.run([Request(cell, expressions=expressions)], LIMITS, 30)
    assert answer["status"] == "done", answer
    return Observation.from_json(json.loads(answer["report"])["observations"][0])


def test_a_cell_finds_an_empty_home_and_nothing_of_the_teachers_environment(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_TEACHER", "1")
    cell = (
        "import os\n"
        "home, names, here = os.environ['HOME'], sorted(os.environ), os.listdir('.')\n"
        "open('mine', 'w').write('x')\n"
    )
    found = seen(room, cell, "home == os.getcwd()", "names", "here", "open('mine').read()")
    assert found.error is None
    assert list(found.values.values()) == [True, ["HOME", "LANG", "MPLBACKEND", "TMPDIR"], [], "x"]
    again = seen(room, "import os", "os.listdir('.')", "os.listdir('..')")
    assert again.values["os.listdir('.')"] == [], "what the run before wrote is gone"
    assert again.values["os.listdir('..')"].type == "PermissionError"


def test_a_deep_folder_is_cleared_away_and_the_room_goes_on(room: Room) -> None:
    """`shutil.rmtree` and `os.walk` would call themselves once for each level."""
    seen(room, "x = 1", "x")
    before = room._process
    cell = "import os\nfor i in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    assert room.run([Request(cell)], LIMITS, 30)["status"] in {"done", "disk"}
    assert seen(room, "import os", "os.listdir('.')").values == {"os.listdir('.')": []}
    assert room._process is before, "the same process answers"


MAPPED = "ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 1, 1, {}.fileno(), ctypes.c_long(0))"
"""Maps an open file, and keeps no other number of it, as Python's own ``mmap`` does."""


@pytest.mark.parametrize("keep", ["kept.append(f)", f"{MAPPED.format('f')}\n    f.close()"])
def test_files_without_a_name_are_counted(room: Room, keep: str) -> None:
    cell = (
        "import ctypes, os, time\n"
        "kept = []\n"
        "for i in range(12):\n"
        "    f = open('x', 'w+b')\n"
        "    f.truncate(8 << 20)\n"
        "    os.unlink('x')\n"
        f"    {keep}\n"
        "time.sleep(9)\n"
    )
    assert room.run([Request(cell)], LIMITS, 30)["status"] == "disk"


def test_files_without_a_name_are_counted_when_the_first_thread_has_ended(tmp_path: Path) -> None:
    """`/proc/PID/fd` and `/proc/PID/maps` are the first thread's, and empty when it is gone."""
    program = (
        "import ctypes, os, platform, threading, time\n"
        "def keep(size):\n"
        "    f = open('x', 'w+b')\n"
        "    f.truncate(size)\n"
        "    os.unlink('x')\n"
        "    return f\n"
        "def go():\n"
        "    f, g = keep(5000), keep(4096)\n"
        f"    {MAPPED.format('g')}\n"
        "    g.close()\n"
        "    first.join(1)\n"
        "    print('kept', flush=True)\n"
        "    time.sleep(60)\n"
        "first = threading.main_thread()\n"
        "threading.Thread(target=go).start()\n"
        "ctypes.CDLL(None).syscall(60 if platform.machine() == 'x86_64' else 93, 0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"kept\n"
            assert [*Path(f"/proc/{process.pid}/fd").iterdir()] == []
            assert unlinked(process.pid, tmp_path, largest=1000) == 5000 + 1000
        finally:
            process.kill()


def test_a_folder_of_any_depth_is_counted_and_removed(tmp_path: Path) -> None:
    full, kept = tmp_path / "full", tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    full.mkdir()
    (full / "link").symlink_to(kept)
    (full / "shut").mkdir(mode=0o300)
    os.mkfifo(full / "shut" / "pipe")
    here = os.open(full, os.O_RDONLY)
    for _ in range(1500):  # beyond Python's recursion limit, and beyond the longest path that the kernel takes
        os.mkdir("four", dir_fd=here)
        deeper = os.open("four", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)
    assert is_overfull(full, size=1 << 30, files=10_000), "its end cannot be reached, so it is not counted as nothing"
    assert removed(full)
    assert not full.exists()
    assert (kept / "file").exists()
    assert not is_overfull(kept, size=10, files=10)
    assert is_overfull(kept, size=10, files=0)


def test_a_folder_that_cannot_be_removed_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = tmp_path / "pitfall-lab-room-999999999-x"
    left.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rmdir", _refused)
        _sweep()
    assert str(left) in capfd.readouterr().err
    _sweep()
    assert not left.exists()


def _refused(path: Path) -> None:
    raise PermissionError(1, "refused", str(path))


def test_what_a_learner_may_need_still_works(room: Room) -> None:
    cell = (
        "import collections, threading, tempfile, traceback, inspect, copy, pickle, io, matplotlib\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "batches = len(list(DataLoader(TensorDataset(torch.arange(6)), batch_size=2)))\n"
        "torch.save(torch.ones(2), 'w.pt')\nback = torch.load('w.pt')\n"
        "t = threading.Thread(target=lambda: None)\nt.start()\nt.join()\n"
        "with tempfile.TemporaryFile() as f:\n    f.write(b'x')\n"
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    text = traceback.format_exc()\n"
    )
    found = seen(room, cell, "batches", "back.tolist()", "'ZeroDivisionError' in text")
    assert found.error is None, found.error
    assert list(found.values.values()) == [3, [1.0, 1.0], True]


def test_what_reaches_beyond_the_cell_is_refused(room: Room) -> None:
    found = seen(room, reaching(), "refused")
    assert found.error is None, found.error
    assert found.values["refused"] == dict.fromkeys(REACHES, True)


def test_a_cell_gets_no_frame(room: Room) -> None:
    answer = room.run([Request(climbing(), expressions=("got",))], LIMITS, 30)
    report = json.loads(answer["report"])
    found = Observation.from_json(report["observations"][0])
    assert found.error is None, found.error
    assert found.values == {"got": {}}
    assert {"sys.settrace", "sys.setprofile", "sys._getframe", "gc.get_objects"} <= set(report["tampered"])


def test_an_exercise_may_ask_what_is_alive(room: Room) -> None:
    exercise = exercises()["11.2"]
    assert judged(exercise, exercise.right[0], room, LIMITS).status == "solved"
    assert judged(exercise, f"import gc\ngc.get_objects()\n{exercise.right[0]}", room, LIMITS).status == "tampered"


@pytest.mark.parametrize(
    "cell",
    [
        "torch.special.expit = print",
        "torch.fft.fft = print",
        "torch.nn.init.uniform_ = print",
        "torch.no_grad.__enter__ = print",
        "torch.autograd.Function.apply = print",
        "nn.utils.rnn.PackedSequence.to = print",
        "import itertools\nitertools.chain = print",
        "import operator\noperator.is_ = print",
        "import math\nmath.exp = print",
        "import types\ntypes.ModuleType = print",
    ],
)
def test_what_a_program_or_the_observer_uses_is_found_once_it_is_replaced(room: Room, cell: str) -> None:
    answer = room.run([Request(cell)], LIMITS, 30)
    assert answer["status"] == "done", answer
    assert json.loads(answer["report"])["tampered"]


@pytest.mark.parametrize(
    ("drive", "expressions"),
    [
        ("put(nn.Linear)", ("layer.extra_repr()",)),
        ("put(nn.Module)", ("[*layer.parameters()]",)),
        ("x = 1", ("model(nn.Linear)", "layer.extra_repr()")),
    ],
)
def test_what_takes_itself_back_when_it_is_used_is_found_before(
    room: Room, drive: str, expressions: tuple[str, ...]
) -> None:
    """What is replaced by the drive, or by what an expression calls, must not decide what the next one is worth."""
    cell = (
        "layer = nn.Linear(1, 1)\n"
        "def put(kind):\n"
        "    name = 'parameters' if kind is nn.Module else 'extra_repr'\n"
        "    kept = getattr(kind, name)\n"
        "    def once(self):\n"
        "        setattr(kind, name, kept)\n"
        "        return ()\n"
        "    setattr(kind, name, once)\n"
        "model = put\n"
    )
    answer = room.run([Request(cell, drive=drive, expressions=expressions)], LIMITS, 30)
    assert answer["status"] == "done", answer
    assert json.loads(answer["report"])["tampered"]


def test_libraries_may_look_at_the_stack_and_do_not_accuse_the_cell(room: Room) -> None:
    cell = (
        "import collections, copy, logging, traceback, warnings, enum, typing, matplotlib.pyplot\n"
        "P = collections.namedtuple('P', 'a')\n"
        "E = enum.Enum('E', 'a b')\n"
        "T = typing.TypeVar('T')\n"
        "try:\n"
        "    1 / 0\n"
        "except ZeroDivisionError:\n"
        "    text = traceback.format_exc()\n"
        "    logging.exception('x')\n"
        "traceback.print_stack()\n"
        "c = copy.deepcopy(nn.Linear(1, 1))\n"
        "warnings.warn('x')\n"
        "def f(): pass\n"
        "n = f.__code__.co_name\n"
    )
    answer = room.run([Request(cell, expressions=("'ZeroDivisionError' in text", "n"))], LIMITS, 30)
    report = json.loads(answer["report"])
    assert report["tampered"] == []
    assert [*Observation.from_json(report["observations"][0]).values.values()] == [True, "f"]


def test_names_beside_the_package_cannot_be_listed(room: Room) -> None:
    folders = [
        ROOT,
        ROOT / "tests",
        ROOT / "pitfall_lab" / "lessons" / "exercises",
        ROOT / "pitfall_lab" / "docs" / "teaching",
    ]
    listed = f"[len(os.listdir(f)) for f in {[*map(str, folders)]} if not refused(os.listdir, f)]"
    cell = (
        "import os, matplotlib\n"
        "def refused(do, x):\n"
        "    try:\n"
        "        do(x)\n"
        "    except PermissionError:\n"
        "        return True\n"
    )
    found = seen(room, cell, listed, "len(os.listdir(os.path.dirname(torch.__file__))) > 9")
    assert found.error is None, found.error
    assert [*found.values.values()] == [[], True]


def _prompted(exercise: Exercise) -> str:
    lines = [f"%%exercise {exercise.key}", *exercise.right[0].split("\n")]
    return "".join(f"{'...' if line[:1].isspace() else '>>>'} {line}\n" for line in lines)


def _shown(exercise: Exercise) -> str:
    """The answer, and below it the calls that show what it does: where it is to fail, these calls fail."""
    return f"%%exercise {exercise.key}\n{exercise.right[0]}\n{exercise.inputs}\n{exercise.drive}\nprint('done')\n"


AS_WRITTEN: dict[str, Callable[[Exercise], str]] = {
    "magics": lambda e: (
        f"%%exercise {e.key}\n%time 1\n!ls -l\nfiles = !ls\nx = %time 2\n{e.right[0]}\ntorch.cat?\n?torch\n"
    ),
    "display": lambda e: (
        f"%%exercise {e.key} --hint\n"
        f"{e.right[0]}\n"
        "display(torch.ones(2), e=1)\n"
        "get_ipython().run_line_magic('who', '')\n"
    ),
    "prompts": _prompted,
    "indented": lambda e: textwrap.indent(f"%%exercise '{e.key}'\n{e.right[0]}", "    "),
    "timed": lambda e: f"\n\n%%time\n%%capture out\n%%exercise --language zh {e.key}\n{e.right[0]}",
    "shown": _shown,
}
UNSOLVED: dict[str, Callable[[Exercise], str]] = {
    "await": lambda e: f"%%exercise {e.key}\nimport asyncio\nawait asyncio.sleep(0)\n{e.right[0]}",
    "timed inside": lambda e: f"%%exercise {e.key}\n%%time\n{e.right[0]}",
    "below a comment": lambda e: f"# mine\n%%exercise {e.key}\n{e.right[0]}",
    "shown and wrong": lambda e: f"%%exercise {e.key}\n{e.wrong[0]}\n{e.drive}",
}
TABLE = [
    *((key, list(AS_WRITTEN)[n % (len(AS_WRITTEN) - 1)], True) for n, key in enumerate(exercises())),
    *((key, "shown", True) for key, exercise in exercises().items() if exercise.kind == "make-it-fail"),
    *(("12.4", name, False) for name in UNSOLVED),
]


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], bool]]:
    """Runs a cell in a shell, and says whether the notebook has called its exercise solved."""
    InteractiveShell.clear_instance()
    shell, results = InteractiveShell.instance(), []
    practising = Practice(shell)
    magic = lambda line, cell: results.append(practising.magic(line, cell))  # noqa: E731 - IPython takes it by this name
    shell.register_magic_function(magic, "cell", "exercise")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("notebook"))
        patch.setattr(practice, "keep", lambda _: None)

        def run(cell: str) -> bool:
            results.clear()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                shell.run_cell(cell, silent=True)
            return bool(results and results[-1] is not None and results[-1].solved)

        yield run
    InteractiveShell.clear_instance()


@pytest.fixture
def uncounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a property counts is not looked at: that would take two more runs of each exercise."""
    for share in ("_had", "_idle"):
        monkeypatch.setattr(judge, share, lambda exercise, *_, **__: (False,) * len(exercise.properties))


@pytest.mark.usefixtures("uncounted")
@pytest.mark.parametrize(("key", "name", "solved"), todays(TABLE, of=15, kind=lambda row: row[1:], every=3))
def test_what_the_notebook_calls_solved_gets_its_points(
    room: Room, notebook: Callable[[str], bool], key: str, name: str, solved: bool
) -> None:
    """No exercise needs a file, a process or the network; and IPython's syntax costs nobody a mark."""
    exercise = exercises()[key]
    cell = {**AS_WRITTEN, **UNSOLVED}[name](exercise)
    said = notebook(cell)
    found = exercise_of(cell)
    outcome = judged(exercise, found[1] if found else None, room, LIMITS)
    assert (said, outcome.status == "solved") == (solved, solved), outcome
    if name == "magics":
        assert outcome.skipped == ("%time", "!ls -l", "!ls", "torch.cat?", "torch?")


def test_a_cell_that_only_waits_for_a_processor_loses_no_time(room: Room) -> None:
    """What counts is neither the wall's time nor the processor's alone: a cell that sleeps ends in
    time, a busy machine costs nothing.
    """
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end:\n    pass\n"
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        started = time.monotonic()
        answer = room.run([Request(burn)], LIMITS, 30)
        wall = time.monotonic() - started
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert answer["status"] == "done"
    assert 0.25 < answer["seconds"] < 0.3 + 0.7 * wall
    assert room.run([Request("import time\ntime.sleep(99)")], LIMITS, 0.5)["status"] == "timeout"


def test_points_are_for_what_the_given_cell_lacks(room: Room) -> None:
    exercise = exercises()["5.1"]
    solved = judged(exercise, exercise.right[0], room, LIMITS)
    assert (solved.status, solved.credit) == ("solved", 1.0)
    padded = judged(exercise, exercise.given + "\nx = 1\n", room, LIMITS)
    assert padded.held > 0
    assert padded.credit == 0.0
    assert CellOutcome.from_dict(padded.to_dict()) == padded
    assert judged(exercise, f"\n{exercise.given}  \n", room, LIMITS).status == "unsolved"
    assert judged(exercise, None, room, LIMITS).status == "missing"


@pytest.mark.parametrize(
    "answer",
    [
        {"status": "done", "report": text}
        for text in ("", "{}", "[]", '{"tampered": [], "observations": []}', "[" * 9999)
    ],
)
def test_a_report_that_is_none_gives_no_points(answer: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Room, "run", lambda *args: {"seconds": 0.1, **answer})
    exercise = exercises()["5.1"]
    outcome = judged(exercise, "x = 1", Room(), LIMITS)
    assert (outcome.status, outcome.credit) == ("tampered", 0.0)


def test_a_report_with_a_wrong_answer_to_a_question_gives_no_points(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forger who says what the judge wants to hear says it of the questions with known answers as well."""

    def forged(self: Room, requests: list[Request], *_: object) -> dict[str, object]:
        told = [Observation(values=dict.fromkeys(request.expressions, True)) for request in requests]
        return {
            "status": "done",
            "seconds": 0.1,
            "report": json.dumps({"tampered": [], "observations": [o.to_json() for o in told]}),
        }

    monkeypatch.setattr(Room, "run", forged)
    outcome = judged(exercises()["5.1"], "x = 1", room, LIMITS)
    assert outcome.status == "tampered"
    assert "the answer to" in outcome.detail


def test_a_room_that_was_lost_is_replaced(room: Room) -> None:
    assert seen(room, "x = 1", "x").values == {"x": 1}
    assert room._process is not None
    room._process.kill()
    room._process.wait()
    assert seen(room, "x = 2", "x").values == {"x": 2}


def test_when_the_grader_is_killed_the_cell_ends_too(tmp_path: Path) -> None:
    sign = f"s{time.monotonic_ns() % 10**12}"
    cell = f"import ctypes\nctypes.CDLL(None).prctl(15, b'{sign}', 0, 0, 0)\nwhile True: pass"  # PR_SET_NAME
    program = (
        "from pitfall_lab.classroom.judge import Room, Limits\nfrom pitfall_lab.lessons.attempt import Request\n"
        f"Room().run([Request({cell!r})], Limits(), 300)\n"
    )
    grader = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    try:
        assert _wait(lambda: sign in _names(), 120), "the cell never ran"
    finally:
        grader.send_signal(signal.SIGKILL)
        grader.wait()
    assert _wait(lambda: sign not in _names(), 20), "the cell outlived its grader"


def _names() -> set[str]:
    names = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended
            names |= {path.read_text(encoding="utf-8").strip() for path in process.glob("task/*/comm")}
    return names


def _wait(done: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if done():
            return True
        time.sleep(0.1)
    return False


def test_names_that_a_cell_puts_in_the_way_are_not_asked(room: Room) -> None:
    cell = (
        "class torch:\n"
        "    equal = staticmethod(lambda *tensors: True)\n"
        "def list(numbers):\n"
        "    return [1]\n"
        "own = list\n"
    )
    found = seen(room, cell, "torch.equal(torch.ones(1), torch.zeros(1))", "list((2,))", "own((2,))")
    assert [*found.values.values()] == [False, [2], [1]]


def test_a_slip_of_the_grader_is_said_and_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def slip(*_: object) -> None:
        raise ZeroDivisionError("in a check of ours")

    monkeypatch.setattr(judge, "judged", slip)
    outcomes = [
        CellOutcome.from_dict(each) for each in judge.sit({"5.1": "x = 1"}, ["5.1", "5.2"], LIMITS, fenced=True)
    ]
    row = Row("ada", "", tuple(outcomes))
    assert [outcome.status for outcome in outcomes] == ["ungraded", "ungraded"]
    assert row.verdict == "unfinished"
    assert "look at the cell yourself (“ZeroDivisionError: in a check of ours”)" in row.remarks()[0]
