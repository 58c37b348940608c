"""The system calls that a submission has: what Python, NumPy and torch need for an exercise. :func:`allow_only_these`
installs the filter.

Every other one is refused.

What may be done to a file is decided by Landlock (:mod:`pitfall_lab.classroom.fence`), so calls that take a path are
here if Landlock looks at them. A refused call answers EPERM, as for a process without the right to it: a library that
can do without it continues.

Left out, with what they would give: signals, priorities and limits of other processes; programs and processes;
sockets (so no loop of asyncio either); memory, semaphores and queues that have a key or a number instead of a file;
memory files; owners, modes, times, extended attributes and locks of files; being notified about folders; handlers
of signals and timers, because a handler gets the frame that it interrupts; namespaces, keys, tracing, io_uring, BPF
and everything of the system's own.

Sources: ``linux/seccomp.h``, ``linux/bpf_common.h`` and the tables of system calls of the two architectures.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}

_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_LOAD, _AND, _EQUAL, _RETURN = 0x20, 0x54, 0x15, 0x06  # BPF: load a word; mask it; jump if equal; return
_NUMBER, _ARCHITECTURE, _FIRST = (
    0,
    4,
    16,
)  # offsets in struct seccomp_data; arguments take eight bytes each, the lower half first

Numbers = dict[str, tuple[int | None, int | None]]
"""System calls by their numbers on (x86_64, aarch64); None where there is no such call."""

_FREE: tuple[tuple[str, Numbers], ...] = (
    ("reading and writing what is open", {"read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66)}),
    (
        "NumPy's and torch's files",
        {"pread64": (17, 67), "pwrite64": (18, 68), "lseek": (8, 62), "fadvise64": (221, 223)},
    ),
    ("ending with a file", {"close": (3, 57), "fsync": (74, 82), "fdatasync": (75, 83)}),
    (
        "a shorter file, of those open for writing; not one by its path, which Landlock guards from Linux 6.2 on",
        {"ftruncate": (77, 46)},
    ),
    ("copying between open files: shutil", {"sendfile": (40, 71)}),
    ("another number for an open file", {"dup": (32, 23), "dup2": (33, None), "dup3": (292, 24)}),
    (
        "pipes inside the process, and waiting for them",
        {"pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73)},
    ),
    ("the same", {"select": (23, None), "pselect6": (270, 72)}),
    (
        "what a file is: imports look at thousands",
        {"stat": (4, None), "fstat": (5, 80), "lstat": (6, None), "newfstatat": (262, 79)},
    ),
    ("the same", {"statx": (332, 291), "access": (21, None), "faccessat": (269, 48), "faccessat2": (439, 439)}),
    ("where a link leads", {"readlink": (89, None), "readlinkat": (267, 78)}),
    ("listing a folder", {"getdents64": (217, 61), "getdents": (78, None)}),
    ("the folder one is in", {"getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50), "umask": (95, 166)}),
    ("folders of its own", {"mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None)}),
    ("deleting its own files: tempfile", {"unlink": (87, None), "unlinkat": (263, 35)}),
    ("moving them", {"rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276)}),
    ("links to them", {"link": (86, None), "linkat": (265, 37), "symlink": (88, None), "symlinkat": (266, 36)}),
    (
        "memory, and files mapped into it",
        {"mmap": (9, 222), "munmap": (11, 215), "mremap": (25, 216), "brk": (12, 214)},
    ),
    ("the same; msync: numpy.memmap", {"mprotect": (10, 226), "madvise": (28, 233), "msync": (26, 227)}),
    (
        "threads: locks",
        {"futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "rseq": (334, 293)},
    ),
    ("threads: beginning", {"set_tid_address": (218, 96), "arch_prctl": (158, None), "rt_sigprocmask": (14, 135)}),
    ("threads: the processor", {"sched_yield": (24, 124), "sched_getaffinity": (204, 123), "getcpu": (309, 168)}),
    ("ending", {"exit": (60, 93), "exit_group": (231, 94)}),
    ("going on after a signal", {"rt_sigreturn": (15, 139), "restart_syscall": (219, 128), "sigaltstack": (131, 132)}),
    (
        "clocks",
        {"clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None)},
    ),
    ("waiting", {"nanosleep": (35, 101), "clock_nanosleep": (230, 115)}),
    (
        "what was used so far, and may be",
        {"getrusage": (98, 165), "times": (100, 153), "getrlimit": (97, 163), "sysinfo": (99, 179)},
    ),
    ("random numbers: hashes, seeds", {"getrandom": (318, 278)}),
    (
        "who one is: tempfile, getpass, the C library",
        {"getpid": (39, 172), "gettid": (186, 178), "getppid": (110, 173)},
    ),
    (
        "the same",
        {"getuid": (102, 174), "geteuid": (107, 175), "getgid": (104, 176), "getegid": (108, 177), "uname": (63, 160)},
    ),
)
"""Calls that are allowed whatever their arguments are, with the reason."""

_OPEN: Numbers = {"open": (2, None), "openat": (257, 56)}
"""Opening: Landlock looks at it, but for shortening a file that is opened for reading, before Linux 6.2."""
_READ_ONLY_TRUNCATION = 0o1003, 0o1000

_CHOICE: tuple[tuple[str, Numbers, int, tuple[int, ...]], ...] = (
    (
        "copies, flags; no owner and no signal, no notification, no lease, no lock",
        {"fcntl": (72, 25)},
        1,
        (0, 1, 2, 3, 4, 1030),  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
    ),
    (
        "whether it is a terminal, and how wide; closed on exec; bytes that wait; blocking",
        {"ioctl": (16, 29)},
        1,
        (0x5401, 0x5413, 0x5450, 0x5451, 0x541B, 0x5421),  # TCGETS, TIOCGWINSZ, FIONCLEX, FIOCLEX, FIONREAD, FIONBIO
    ),
    (
        "a thread's name; names of mappings; what rights there could be",
        {"prctl": (157, 167)},
        0,
        (15, 16, 0x53564D41, 23),  # PR_SET_NAME, PR_GET_NAME, PR_SET_VMA, PR_CAPBSET_READ
    ),
    ("the C library's own two signals, when a first thread begins", {"rt_sigaction": (13, 134)}, 0, (32, 33)),
    (
        "ending with many files; no table of files for one thread alone, whose files would not be counted",
        {"close_range": (436, 436)},
        2,
        (0, 4),  # CLOSE_RANGE_CLOEXEC
    ),
)
"""Calls that are allowed where an argument is one of a few, with the reason: (reason, calls,
number of the argument, values).
"""

_MYSELF: Numbers = {"kill": (62, 129), "tgkill": (234, 131)}
"""A signal to oneself: abort() and raise()."""
_CLONE, _CLONE3 = (56, 220), 435
_THREAD, _DETACHED = 0x3D0F00, 0x400000
"""A thread, as both C libraries begin one: memory, files, current folder, handlers of signals and undone semaphores are
those of the process (musl sets a second flag, which does nothing). So a process has one table of open files, which
:func:`pitfall_lab.classroom.folders.unlinked` reads.
"""
_PRLIMIT = (302, 261)

Instruction = tuple[int, int, int, int]


def program() -> bytes:
    """The seccomp filter for this process, as the bytes that the kernel takes."""
    code, column = ARCHITECTURES[platform.machine()]
    made: list[Instruction] = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        (_EQUAL, 1, 0, code),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
    ]
    for _, calls in _FREE:
        for number in _on(calls, column):
            made += [(_EQUAL, 0, 1, number), _ALLOWED]
    for number in _on(_OPEN, column):
        flags = 1 if number == _OPEN["open"][0] and column == 0 else 2
        mask, both = _READ_ONLY_TRUNCATION
        made += _where(number, [_argument(flags), (_AND, 0, 0, mask), (_EQUAL, 0, 1, both), _REFUSED, _ALLOWED])
    for _, calls, place, values in _CHOICE:
        for number in _on(calls, column):
            made += _where(number, _one_of(place, values))
    for number in _on(_MYSELF, column):
        made += _where(number, _one_of(0, (os.getpid(),)))
    thread = [_argument(0), (_AND, 0, 0, 0xFFFFFFFF ^ _DETACHED), (_EQUAL, 0, 1, _THREAD), _ALLOWED, _REFUSED]
    made += _where(_CLONE[column], thread)
    # The C library falls back from clone3, whose flags a filter cannot see, to clone.
    made += _where(_CLONE3, [(_RETURN, 0, 0, _ERRNO | errno.ENOSYS)])
    # Its own limits may be read: no process is named, and there is no new limit.
    nothing = [(_argument(0), 0), (_argument(2), 0), (_argument(2, upper=True), 0)]
    checks = [step for load, value in nothing for step in (load, (_EQUAL, 1, 0, value), _REFUSED)]
    made += _where(_PRLIMIT[column], [*checks, _ALLOWED])
    made.append(_REFUSED)
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in made)


_ALLOWED: Instruction = (_RETURN, 0, 0, _ALLOW)
_REFUSED: Instruction = (_RETURN, 0, 0, _ERRNO | errno.EPERM)


def _on(calls: Numbers, column: int) -> list[int]:
    return [number for numbers in calls.values() if (number := numbers[column]) is not None]


def _where(number: int, steps: list[Instruction]) -> list[Instruction]:
    """Instructions that apply ``steps`` to the system call with this number and jump over them for every other one.

    The last step must allow or refuse the call.
    """
    return [(_EQUAL, 0, len(steps), number), *steps]


def _argument(place: int, *, upper: bool = False) -> Instruction:
    """The instruction that loads the lower (or ``upper``) 32 bits of argument number ``place`` of a system call.

    Both architectures are little-endian. For an argument of type ``int`` the kernel itself reads only the lower 32
    bits, so comparing these is enough.
    """
    return (_LOAD, 0, 0, _FIRST + 8 * place + 4 * upper)


def _one_of(place: int, values: tuple[int, ...]) -> list[Instruction]:
    return [_argument(place), *(step for value in values for step in ((_EQUAL, 0, 1, value), _ALLOWED)), _REFUSED]


def allow_only_these() -> int:
    """Install the filter in this process, for good: every system call that the tables do not allow is refused.

    Returns 0, or the error number. The process must have set ``PR_SET_NO_NEW_PRIVS`` before.
    """
    packed = program()
    instructions = ctypes.create_string_buffer(packed, len(packed))
    header = ctypes.create_string_buffer(struct.pack("@HxxxxxxP", len(packed) // 8, ctypes.addressof(instructions)))
    libc = ctypes.CDLL(None, use_errno=True)
    done = libc.prctl(
        22, ctypes.c_ulong(2), ctypes.c_ulong(ctypes.addressof(header)), ctypes.c_ulong(0), ctypes.c_ulong(0)
    )
    return 0 if done == 0 else ctypes.get_errno()
