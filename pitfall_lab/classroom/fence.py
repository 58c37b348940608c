"""What the kernel forbids a submission: every file but its own folder and the libraries, the network, other processes.

Linux only, and without any privilege: Landlock for files, seccomp for system calls
(:mod:`pitfall_lab.classroom.system_calls`), limits of resources. The process itself requests all of it, in
:meth:`Fence.close`, before the learner's code runs, and nothing that this code does can take it back. Where the kernel
has no Landlock or no seccomp, :func:`missing` says so, and nothing is graded unless the teacher trusts the submissions.

Source: ``linux/landlock.h``.
"""

# ruff: noqa: PLC0415 - `resource` is only on Unix

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import pkgutil
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from importlib.machinery import FileFinder
from pathlib import Path
from typing import Self

from pitfall_lab.classroom import system_calls
from pitfall_lab.resources import PACKAGE

ANSWERS = (Path("lessons", "exercises"), Path("docs", "teaching"))
"""Folders of the package that hold answers. What a submission needs of them was imported before the fence closed."""
LARGEST = 8 << 20
"""Bytes that one file may have."""

# --- Landlock --------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""All rights on files that each version of the interface knows; 2 adds moving between folders, 3
truncation, 5 device commands.

On a newer kernel, the rights of the newest version known here are requested, as its documentation recommends.
"""

_SCOPES = 3
"""From version 6 on: no signal to a process outside the fence, no socket by an abstract name."""

_SET_NO_NEW_PRIVS, _SET_SECCOMP = 38, 22


class FenceError(Exception):
    """The fence could not be made or closed; the message is one sentence. Nothing of the learner's code has run."""


def missing() -> list[str]:
    """The things, in words, that this machine lacks for a closed fence; an empty list if it lacks nothing."""
    if sys.platform != "linux":
        return ["Linux"]
    lacks = [] if _landlock_version() >= 1 else ["Landlock (Linux 5.13 or later, switched on)"]
    if platform.machine() not in system_calls.ARCHITECTURES or _prctl(_SET_SECCOMP, 2, 0) != errno.EFAULT:
        lacks.append("seccomp on x86-64 or ARM64")
    return lacks


class Fence:
    """Rules of the kernel for what a process may do with files: write in ``folder``, and read what :func:`readable`
    yields: libraries, this package without the answers, a few files of the system. They can be applied to one process
    after the other, each of which calls :meth:`close`.

    ``hidden`` are folders that stay unreadable wherever they are. Raises :class:`FenceError` if the kernel does not
    accept these rules, or if ``sys.path`` has a folder that is not absolute.
    """

    def __init__(self, folder: Path, hidden: Iterable[Path] = ()) -> None:
        version = _landlock_version()
        if version < 1:
            raise FenceError("This kernel has no Landlock.")
        if not all(Path(entry).is_absolute() for entry in sys.path):
            raise FenceError(
                "The current folder is on the path on which modules are found, where a submission's "
                "files could be imported."
            )
        every = _RIGHTS.get(version, (1 << 16) - 1)
        handled = struct.pack("=Q", every)
        handled += struct.pack("=Q", 3) if version >= 4 else b""  # TCP: binding and connecting
        handled += struct.pack("=Q", _SCOPES) if version >= 6 else b""
        self.rules = _call(_CREATE_RULESET, ctypes.create_string_buffer(handled, len(handled)), len(handled), 0)
        for path, rights in (*readable([*answers(), *hidden]), (folder, every)):
            with contextlib.suppress(OSError):  # a library folder that is gone needs no rule
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    rule = struct.pack("=Qi", rights & every, place)
                    _call(_ADD_RULE, self.rules, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
                finally:
                    os.close(place)

    @classmethod
    def of(cls, rules: int) -> Self:
        """The fence whose Landlock rules another process has made; ``rules`` is the descriptor of the open ruleset."""
        made = cls.__new__(cls)
        made.rules = rules
        return made

    def close(self) -> None:
        """Apply the restrictions to this process; they cannot be removed again.

        Raises :class:`FenceError` if the kernel refuses one of them.
        """
        if reason := _prctl(_SET_NO_NEW_PRIVS, 1, 0):
            raise FenceError(f"The kernel did not promise to give no new rights ({os.strerror(reason)}).")
        _drop_capabilities()
        _call(_RESTRICT_SELF, self.rules, 0)
        os.close(self.rules)
        if reason := system_calls.allow_only_these():
            raise FenceError(f"The kernel did not take the filter of system calls ({os.strerror(reason)}).")


def processor(seconds: float) -> int:
    """The limit of processor time, in seconds over all threads, of a run that may take ``seconds``: two seconds
    more.
    """
    return int(seconds) + 2


def limit(*, memory: int, seconds: float) -> None:
    """Limit this process for good: to ``memory`` MiB beyond what it has now, :func:`processor` time for ``seconds``,
    ``LARGEST`` bytes a file, 64 open files and no core dump.

    At the limit of processor time the kernel sends SIGXCPU, and SIGKILL a second later.
    """
    import resource

    page = resource.getpagesize()
    fields = [int(word) * page for word in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    beyond, most_time = memory << 20, processor(seconds)
    # DATA counts private memory when it is allocated; AS also what is shared or mapped.
    for kind, most in (
        (resource.RLIMIT_DATA, fields[5] + beyond),
        (resource.RLIMIT_AS, fields[0] + beyond + (64 << 20)),
        (resource.RLIMIT_FSIZE, LARGEST),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (most_time, most_time + 1))


# --- files -----------------------------------------------------------------------------------------------------------


def list_path() -> None:
    """Let Python list the folders on ``sys.path`` now, and keep the lists for later imports.

    Behind the fence it may list folders of libraries only: a right to list a folder would hold for everything below it,
    such as the answers and the files beside a clone.
    """
    for entry in sys.path:
        finder = pkgutil.get_importer(entry)
        if isinstance(finder, FileFinder):
            finder.find_spec("no_such_module")


def answers() -> list[Path]:
    """The folders in which the exercises' answers are, in this package and in any other copy of it that is on
    the path.
    """
    copies = {PACKAGE, *(Path(entry, PACKAGE.name) for entry in sys.path)}
    return [copy / folder for copy in sorted(copies) for folder in ANSWERS]


def libraries() -> set[Path]:
    """The folders of the standard library and of installed packages."""
    found = {Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    found |= {
        Path(entry) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages", "lib-dynload"}
    }
    # an environment may borrow installed packages from a folder of any name; torch imports parts of
    # itself when it prints a tensor
    return found | {Path(str(metadata.distribution(name).locate_file(""))) for name in ("torch", "numpy")}


def readable(hidden: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Yield each path that a submission may read, with the rights to it as Landlock's bits.

    These are the standard library, installed packages, shared libraries, this package, and a few devices and files of
    the system (``/dev/urandom``, ``/proc/meminfo``). Of a folder that contains one of ``hidden``, each other entry by
    itself: rights that were given to a folder are never taken back below it.
    """
    shut = {Path(os.path.realpath(path)) for path in hidden}
    shared = [
        Path(root)
        for root in (
            "/lib",
            "/lib64",
            "/usr/lib",
            "/usr/lib64",
            "/usr/share/zoneinfo",
            "/etc/ld.so.cache",
            "/etc/localtime",
        )
    ]
    for path in (*libraries(), *shared, PACKAGE):
        yield from _around(Path(os.path.realpath(path)), shut)
    for device in ("/dev/zero", "/dev/urandom", "/dev/random", "/proc/cpuinfo", "/proc/meminfo"):
        yield Path(device), _READ_FILE
    yield Path(os.devnull), _READ_FILE | _WRITE_FILE


def _around(path: Path, shut: set[Path]) -> Iterator[tuple[Path, int]]:
    if path in shut or not path.exists():
        return
    if any(other.is_relative_to(path) for other in shut):
        for child in path.iterdir():
            if not child.is_symlink():
                yield from _around(child, shut)
    else:
        yield path, (_READ_FILE | _READ_DIR | _EXECUTE if path.is_dir() else _READ_FILE | _EXECUTE)


def _landlock_version() -> int:
    try:
        return int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1))
    except (OSError, AttributeError):
        return 0


# --- rights and calls -------------------------------------------------------------------------------------------------


def _drop_capabilities() -> None:
    """Give up root's capabilities; raises :class:`FenceError` if the kernel refuses.

    Files that root owns can still be read and written as far as the fence allows.
    """
    header = ctypes.create_string_buffer(struct.pack("=Ii", 0x20080522, 0))
    none = ctypes.create_string_buffer(bytes(24))
    if _libc().capset(header, none) != 0:
        raise FenceError(f"The process could not give up its special rights ({os.strerror(ctypes.get_errno())}).")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    done = int(_libc().syscall(number, *arguments))
    if done < 0:
        reason = ctypes.get_errno()
        raise FenceError(f"The kernel refused a part of the fence ({os.strerror(reason)}).")
    return done


def _prctl(option: int, first: int, second: int) -> int:
    """Call ``prctl``; return 0, or the number of the error."""
    done = _libc().prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return 0 if done == 0 else ctypes.get_errno()
