"""What the kernel forbids a submission: every file but its own folder and the libraries, the network, other processes.

Linux only, and without any privilege: Landlock for files, seccomp for system calls, resource limits. All of it is asked for by the
process itself, in :meth:`Fence.close`, before the learner's code runs, and nothing that this code does can take it back. Where the kernel
has no Landlock or no seccomp, :func:`missing` says so, and nothing is graded unless the teacher trusts the submissions.

Sources: ``linux/landlock.h``, ``linux/seccomp.h``, ``linux/bpf_common.h`` and the tables of system calls of the two architectures.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
ANSWERS = (Path("lessons", "exercises"), Path("docs", "teaching"))
"""Folders of the package that hold answers. What a submission needs of them was imported before the fence closed."""

# --- Landlock --------------------------------------------------------------------------------------------------------

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same numbers on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
"""All rights on files that each version of the interface knows; 2 adds moving between folders, 3 truncation, 5 device commands."""

# --- seccomp ---------------------------------------------------------------------------------------------------------

_SET_NO_NEW_PRIVS, _SET_SECCOMP, _SET_PDEATHSIG = 38, 22, 1
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _EQUAL, _ANY, _RETURN = 0x20, 0x15, 0x45, 0x06  # BPF: load a word; jump if equal, if a bit is set; return
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16  # offsets in struct seccomp_data; arguments take eight bytes each
_CLONE_THREAD = 0x10000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# Each system call by its number on (x86_64, aarch64); None where there is no such call.
_FORBIDDEN: dict[str, tuple[int | None, int | None]] = {
    # other programs and processes
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "process_madvise": (440, 440), "setsid": (112, 157), "setpgid": (109, 154),
    "setpriority": (141, 140), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122), "setrlimit": (160, 164),
    # the network, and memory shared with strangers
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "memfd_create": (319, 279), "io_uring_setup": (425, 425),
    # who owns a file and when it changed, which Landlock does not guard
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452), "chown": (92, None), "fchown": (93, 55),
    "lchown": (94, None), "fchownat": (260, 54), "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88),
    "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "removexattr": (197, 14),
    "lremovexattr": (198, 15), "fremovexattr": (199, 16), "mknod": (133, None), "mknodat": (259, 33), "open_by_handle_at": (304, 265),
    # the system
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97), "setns": (308, 268),
    "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225), "sethostname": (170, 161), "settimeofday": (164, 170),
    "clock_settime": (227, 112), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "bpf": (321, 280), "perf_event_open": (298, 241), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "userfaultfd": (323, 282), "quotactl": (179, 60), "acct": (163, 89),
}  # fmt: skip
_CLONE, _CLONE3 = (56, 220), (435, 435)
_KILL_CALLS = ((62, 129), (234, 131))  # kill, tgkill: only itself
_PRCTL, _PRLIMIT = (157, 167), (302, 261)


class FenceError(Exception):
    """The fence could not be closed; the message is one sentence. Nothing of the learner's has run."""


def missing() -> list[str]:
    """What this machine lacks for a closed fence; empty where it has everything."""
    if sys.platform != "linux":
        return ["Linux"]
    lacks = [] if _landlock_version() >= 1 else ["Landlock (Linux 5.13 or later, switched on)"]
    if platform.machine() not in _ARCHITECTURES or _prctl(_SET_SECCOMP, 2, 0) != errno.EFAULT:
        lacks.append("seccomp on x86-64 or ARM64")
    return lacks


class Fence:
    """A fence that is closed round one process after the other: they may write in ``folder`` and read the libraries, and nothing else.

    ``hidden`` are folders that stay unreadable wherever they lie. Raises :class:`FenceError`.
    """

    def __init__(self, folder: Path, hidden: Iterable[Path] = ()) -> None:
        version = _landlock_version()
        if version < 1:
            raise FenceError("This kernel has no Landlock.")
        if not all(Path(entry).is_absolute() for entry in sys.path):
            raise FenceError("The current folder is on the path on which modules are found, where a submission's files could be imported.")
        every = _RIGHTS.get(version, (1 << 16) - 1)
        handled = struct.pack("=Q", every) + (struct.pack("=Q", 3) if version >= 4 else b"")  # 4 adds TCP: binding and connecting
        self._rules = _call(_CREATE_RULESET, ctypes.create_string_buffer(handled, len(handled)), len(handled), 0)
        for path, rights in (*readable([*answers(), *hidden]), (folder, every)):
            with contextlib.suppress(OSError):  # a library folder that is gone needs no rule
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                try:
                    rule = struct.pack("=Qi", rights & every, place)
                    _call(_ADD_RULE, self._rules, 1, ctypes.create_string_buffer(rule, len(rule)), 0)
                finally:
                    os.close(place)

    def close(self) -> None:
        """Close it round this process, for good."""
        if reason := _prctl(_SET_NO_NEW_PRIVS, 1, 0):
            raise FenceError(f"The kernel did not promise to give no new rights ({os.strerror(reason)}).")
        _drop_capabilities()
        _call(_RESTRICT_SELF, self._rules, 0)
        os.close(self._rules)
        _forbid_calls()


def limit(*, memory: int, seconds: float) -> None:
    """Limit this process: ``memory`` in MiB beyond what it has, ``seconds`` of processor time, 8 MiB a file, 64 open files."""
    import resource

    page = resource.getpagesize()
    fields = [int(word) * page for word in Path("/proc/self/statm").read_text(encoding="ascii").split()]
    beyond, processor = memory << 20, int(seconds) + 2
    # DATA counts private memory as it is asked for; AS also what is shared or mapped.
    for kind, most in (
        (resource.RLIMIT_DATA, fields[5] + beyond),
        (resource.RLIMIT_AS, fields[0] + beyond + (64 << 20)),
        (resource.RLIMIT_CPU, processor),
        (resource.RLIMIT_FSIZE, 8 << 20),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


# --- files -----------------------------------------------------------------------------------------------------------


def answers() -> list[Path]:
    """The folders with answers, of this package and of any other copy of it that is on the path."""
    copies = {PACKAGE, *(Path(entry, PACKAGE.name) for entry in sys.path)}
    return [copy / folder for copy in sorted(copies) for folder in ANSWERS]


def readable(hidden: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """What a submission may read, with the rights: the standard library, installed packages, shared libraries, this package.

    Of a folder with something hidden in it, each other entry by itself: rights that were given are never taken back below.
    """
    shut = {Path(os.path.realpath(path)) for path in hidden}
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    libraries = {Path(os.path.realpath(sysconfig.get_path(name))) for name in names}
    libraries |= {
        Path(os.path.realpath(entry)) for entry in sys.path if Path(entry).name in {"site-packages", "dist-packages", "lib-dynload"}
    }
    shared = [
        Path(root) for root in ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/zoneinfo", "/etc/ld.so.cache", "/etc/localtime")
    ]
    for entry in {Path(os.path.realpath(entry)) for entry in sys.path if Path(entry).is_dir()}:
        yield entry, _READ_DIR  # imports list the folders on the path; names are no secret
    for path in (*libraries, *shared, PACKAGE):
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


# --- system calls ----------------------------------------------------------------------------------------------------


def _forbid_calls() -> None:
    """Forbid the calls of the table; let ``clone`` make threads only, and signals reach this process only."""
    code, column = _ARCHITECTURES[platform.machine()]
    me = os.getpid()
    refuse, unknown = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    program = [(_LOAD, 0, 0, _ARCHITECTURE), (_EQUAL, 1, 0, code), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if column == 0:
        program += [(0x35, 0, 1, 0x40000000), (_RETURN, 0, 0, refuse)]  # the x32 numbers of the same calls
    for numbers in _FORBIDDEN.values():
        if (number := numbers[column]) is not None:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, refuse)]
    # The C library falls back from clone3, whose flags a filter cannot see, to clone.
    program += [(_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, unknown)]
    first = _FIRST  # the lower half of the first argument: both architectures are little-endian
    program += [
        (_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, first),
        (_ANY, 1, 0, _CLONE_THREAD),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    for numbers in _KILL_CALLS:
        program += [
            (_EQUAL, 0, 4, numbers[column]),
            (_LOAD, 0, 0, first),
            (_EQUAL, 1, 0, me),
            (_RETURN, 0, 0, refuse),
            (_RETURN, 0, 0, _ALLOW),
        ]
    # It may not undo that it ends with its parent; limits may be read, not set.
    program += [
        (_EQUAL, 0, 4, _PRCTL[column]),
        (_LOAD, 0, 0, first),
        (_EQUAL, 0, 1, _SET_PDEATHSIG),
        (_RETURN, 0, 0, refuse),
        (_RETURN, 0, 0, _ALLOW),
    ]
    new_limit = _FIRST + 16
    program += [
        (_EQUAL, 0, 6, _PRLIMIT[column]),
        (_LOAD, 0, 0, new_limit),
        (_EQUAL, 0, 3, 0),
        (_LOAD, 0, 0, new_limit + 4),
        (_EQUAL, 0, 1, 0),
    ]
    program += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, refuse), (_RETURN, 0, 0, _ALLOW)]
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in program)
    instructions = ctypes.create_string_buffer(packed, len(packed))
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(program), ctypes.addressof(instructions)))
    if reason := _prctl(_SET_SECCOMP, 2, ctypes.addressof(header)):
        raise FenceError(f"The kernel did not take the filter of system calls ({os.strerror(reason)}).")


def _drop_capabilities() -> None:
    """Root's special powers go: what root owns it may still read and write, as far as the fence lets it."""
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
    """0, or the number of the error."""
    done = _libc().prctl(option, ctypes.c_ulong(first), ctypes.c_ulong(second), ctypes.c_ulong(0), ctypes.c_ulong(0))
    return 0 if done == 0 else ctypes.get_errno()
