"""The access rights that each version of Landlock restricts, and the message where there is no fence."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from pitfall_lab.classroom import fence
from pitfall_lab.classroom.fence import Fence, FenceError

ROOT = Path(__file__).resolve().parents[2]
FILES = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16, 6: 16, 7: 16, 8: 16}
"""How many rights on files each version knows (``linux/landlock.h``): up to MAKE_SYM, REFER, TRUNCATE, IOCTL_DEV."""


class _Asked(Exception):
    """Ends the making of a fence once the kernel has been asked for a set of rules."""


@pytest.mark.parametrize("version", FILES)
def test_the_newest_rights_are_asked_for_that_a_kernel_knows(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    def call(number: int, rules: object, size: int, flags: int) -> int:
        assert (number, size, flags) == (444, len(rules.raw), 0)  # type: ignore[attr-defined]
        asked.append(rules.raw)  # type: ignore[attr-defined]
        raise _Asked

    monkeypatch.setattr(fence, "_landlock_version", lambda: version)
    monkeypatch.setattr(fence, "_call", call)
    with pytest.raises(_Asked):
        Fence(Path("/"))
    files, *more = struct.unpack(f"={len(asked[0]) // 8}Q", asked[0])
    assert files == (1 << FILES[version]) - 1
    # binding and connecting by TCP from 4 on; no signal and no abstract socket beyond the fence from 6 on
    assert more == ([] if version < 4 else [3] if version < 6 else [3, 3])


def test_without_landlock_or_with_the_current_folder_on_the_path_there_is_no_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for entry in ("", ".", "submissions"):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [*sys.path, entry])
            with pytest.raises(FenceError, match="The current folder is on the path"):
                Fence(Path("/"))
    monkeypatch.setattr(fence, "_landlock_version", lambda: 0)
    with pytest.raises(FenceError, match="no Landlock"):
        Fence(Path("/"))


@pytest.mark.parametrize(
    ("pretend", "said"),
    [
        ("fence._landlock_version = lambda: 0", "This machine has no Landlock (Linux 5.13 or later, switched on), so"),
        ("platform.machine = lambda: 'riscv64'", "This machine has no seccomp on x86-64 or ARM64, so"),
        ("fence._prctl = lambda *a: 22", "This machine has no seccomp on x86-64 or ARM64, so"),
        ("sys.platform = 'darwin'", "This machine has no Linux, so nothing would keep a submission from your files."),
        ("sys.platform = 'win32'; del os.fork", "Grading needs Linux: a cell runs in a forked process."),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_graded(pretend: str, said: str, tmp_path: Path) -> None:
    """Each in a process of its own, which pretends to be on another machine before it begins to grade."""
    (tmp_path / "ada.ipynb").write_text("no notebook", encoding="utf-8")
    program = (
        "import os, platform, sys\n"
        "from pitfall_lab.classroom import fence, grade\n"
        "from pitfall_lab.cli import main\n"
        f"{pretend}\n"
        f"sys.exit(main(['grade', {str(tmp_path)!r}, '--chapters', '12']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"pitfall-lab grade: {said}")
    assert done.stderr.count("\n") == 1
    assert "container" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["ada.ipynb"]
