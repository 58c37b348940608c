"""What a hostile cell tries beside its exercise: system calls that reach beyond the cell, and
ways to a frame of the observer.
"""

from __future__ import annotations

REACHES = {
    "a signal by the owner of a pipe": "fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
    "the signal's number": "fcntl.fcntl(os.pipe()[0], 10, 9)",
    "a signal by the owner's thread": "libc('fcntl', os.pipe()[0], 15, ctypes.byref((ctypes.c_int * 2)(1, os.getppid())))",  # noqa: E501
    "a signal by an owner that ioctl names": "libc('ioctl', os.pipe()[0], 0x8901, ctypes.byref(ctypes.c_int(os.getppid())))",  # noqa: E501
    "kill": "os.kill(os.getppid(), 0)",
    "kill the group": "os.kill(0, 0)",
    "kill everything": "os.kill(-1, 0)",
    "a thread of another process": "libc('tgkill', os.getppid(), os.getppid(), 0)",
    "a queued signal": "libc('sigqueue', os.getppid(), 0, 0)",
    "its priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 1)",
    "limits of another process": "resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)",
    "its own limits": "libc('setrlimit', resource.RLIMIT_CPU, (ctypes.c_ulong * 2)(1, 1))",
    "another process's processors": "os.sched_setaffinity(os.getppid(), {0})",
    "a handler, which gets the frame": "libc('signal', signal.SIGALRM, None)",
    "a timer": "signal.setitimer(signal.ITIMER_REAL, 9)",
    "shared memory with a key": "libc('shmget', 1, 4096, 0o1600)",
    "shared memory by number": "libc('shmat', 0, None, 0)",
    "removing shared memory": "libc('shmctl', 0, 0, None)",
    "semaphores": "libc('semop', 0, None, 0)",
    "removing semaphores": "libc('semctl', 0, 0, 0)",
    "messages": "libc('msgrcv', 0, ctypes.byref(ctypes.c_long()), 0, 0, 0)",
    "sending messages": "libc('msgsnd', 0, ctypes.byref(ctypes.c_long(1)), 0, 0)",
    "a queue with a name": "syscall(240 if x86 else 180, b'q', 0o102, 0o600, None)",
    "shared memory with a name": "os.open('/dev/shm/x', os.O_CREAT | os.O_RDWR)",
    "a file of memory": "os.memfd_create('x')",
    "sockets in pairs": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)",
    "a socket": "socket.socket()",
    "a datagram": "syscall(44 if x86 else 206, 1, b'x', 1, 0, b'\\1\\0/x', 4)",
    "notifications": "libc('inotify_init1', 0)",
    "notifications of everything": "libc('fanotify_init', 0, 0)",
    "notifications by a signal": "fcntl.fcntl(os.open('.', os.O_RDONLY), fcntl.F_NOTIFY, fcntl.DN_CREATE)",
    "a lease": "fcntl.fcntl(os.open(torch.__file__, os.O_RDONLY), fcntl.F_SETLEASE, fcntl.F_RDLCK)",
    "a lock on a library": "fcntl.flock(os.open(torch.__file__, os.O_RDONLY), fcntl.LOCK_EX)",
    "attributes": "os.getxattr('/', 'user.x')",
    "names of attributes": "os.listxattr('/')",
    "modes": "os.chmod('.', 0o700)",
    "times": "os.utime('/')",
    "shortening a file by opening it": "os.open(torch.__file__, os.O_RDONLY | os.O_TRUNC)",
    "shortening a file": "os.truncate(torch.__file__, 0)",
    "a process": "os.fork()",
    "another program": "os.execv('/bin/true', ['true'])",
    "a process that keeps this one's memory": "syscall(56 if x86 else 220, 17, 0, 0, 0, 0)",
    "a thread with open files of its own": "libc('clone', c.sleep, ctypes.byref(stack, 1 << 15), 0x10B00, 1)",
    "a thread without a stack, in another namespace": "syscall(56 if x86 else 220, 0x203D0F00, 0, 0, 0, 0)",
    "open files of its own, by closing some": "syscall(436, 60, 60, 2)",
    "tracing": "libc('ptrace', 16, os.getppid(), 0, 0)",
    "memory of another process": "libc('process_vm_readv', os.getppid(), None, 0, None, 0, 0)",
    "outliving the grader": "libc('prctl', 1, 0, 0, 0, 0)",
    "a call that no kernel has yet": "syscall(999)",
}
"""Expressions, each of which the kernel has to refuse, by what they would give."""

CLIMBS = {
    "walk_stack": "next(traceback.walk_stack(None))",
    "walk_tb": "next(traceback.walk_tb(tb()))",
    "code of another name": "eval(compile('sys._getframe(1)', traceback.__file__, 'eval'))",
    "code of another name, called": "names(compile('def f(): return sys._getframe(1)', torch.__file__, 'exec'))['f']()",
    "settrace": "sys.settrace(lambda *a: None)",
    "setprofile": "sys.setprofile(lambda *a: None)",
    "currentframe": "inspect.currentframe()",
    "stack": "inspect.stack()",
    "trace": "inspect.getinnerframes(tb())",
    "members": "inspect.getmembers(tb())",
    "logging": "logging.currentframe()",
    "a library that calls what it is given": "np.vectorize(lambda x: 0, otypes=[object]) and tree.tree_map(sys._getframe, [1])",  # noqa: E501
    "a library that calls a function that hands on": "tree.tree_map(traceback.walk_stack, [None])[0].__next__()",
    "a library that gets attributes": "string.Formatter().get_field('0.tb_frame', [tb()], {})",
    "a debugger": "bdb.Bdb().set_trace()",
    "a hook": "sys.addaudithook(lambda *a: got.update(hooked=True)) or names(compile('raise PermissionError', 'x', 'exec'))",  # noqa: E501
    "Python's own library": "ctypes.pythonapi.PyEval_GetFrame",
    "objects": "gc.get_objects()",
    "a generator": "(lambda g: g.gi_frame)(x for x in ())",
}
"""Expressions, each of which has to be refused before it gives a frame of the observer."""


def reaching() -> str:
    """A cell that tries all of :data:`REACHES`; ``refused`` then says True for each, a
    number of an error, or "done".
    """
    return (
        "import ctypes, fcntl, os, platform, resource, signal, socket\n"
        "c, x86, refused = ctypes.CDLL(None, use_errno=True), platform.machine() == 'x86_64', {}\n"
        "stack = ctypes.create_string_buffer(1 << 16)\n"
        "def libc(name, *a):\n    ctypes.set_errno(0)\n    if getattr(c, name)(*a) == -1:\n"
        "        raise OSError(ctypes.get_errno(), name)\n"
        "def syscall(*a):\n    libc('syscall', *a)\n"
        f"for what, text in {REACHES!r}.items():\n    try:\n        eval(text)\n        refused[what] = 'done'\n"
        "    except OSError as e:\n        refused[what] = e.errno in (1, 13) or e.errno\n"
    )


def climbing() -> str:
    """A cell that tries all of :data:`CLIMBS`; ``got`` then names those that were not refused."""
    return (
        "import bdb, ctypes, gc, importlib, inspect, logging, string, sys, traceback\n"
        "import torch.utils._pytree as tree\n"
        "def tb():\n"
        "    try:\n"
        "        1 / 0\n"
        "    except ZeroDivisionError as e:\n"
        "        return e.__traceback__\n"
        "def names(code):\n"
        "    space = {'sys': sys}\n"
        "    exec(code, space)\n"
        "    return space\n"
        "got = {}\n"
        f"for what, text in {CLIMBS!r}.items():\n"
        "    try:\n"
        "        eval(text)\n"
        "        got[what] = True\n"
        "    except PermissionError:\n"
        "        pass\n"
    )
