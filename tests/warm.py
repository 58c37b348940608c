"""A stand-in for Python that has imported torch, and more, already: what it runs begins in a fork,
with seconds of work behind it.

:func:`warmed` gives the path of a command that takes Python's words, environment, folder and standard files, and ends
as the program ends. Behind it are two processes of this file: ``serve`` imports torch and what it is given, and forks;
``ask`` (the command) asks for a fork and waits for its end. In a fork ``sys.executable`` is the command: what a program
starts is warm as well. Words that begin otherwise than with ``-c``, ``-m`` and ``-P FILE`` go to Python itself.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

LARGEST = 1 << 20
# What a kernel, a notebook and the process that runs programs import. Not matplotlib and ipykernel.kernelapp: they read
# the environment as they are imported.
USUAL = (
    "ipykernel.ipkernel", "ipywidgets", "anywidget", "pitfall_lab.check.worker", "pitfall_lab.commands.show",
    "pitfall_lab.verify.experiments.witness", "pitfall_lab.rules", "pitfall_lab.views.document",
    "pitfall_lab.widgets.explorer", "pitfall_lab.lessons.exercises", "pitfall_lab.notebook.magic",
    "pitfall_lab.panel.connection",
)  # fmt: skip


@contextmanager
def warmed(folder: Path, there: Sequence[str] = ()) -> Iterator[str]:
    """The path of the command, which lies in ``folder``; it has the modules ``there``.

    Elsewhere than on Linux it is Python itself.
    """
    import shlex
    import subprocess

    if sys.platform != "linux":
        yield sys.executable
        return
    name, command = f"pitfall-lab-{os.getpid()}-{folder.name}", folder / "python"  # a process may have several
    command.write_text(
        f'#!/bin/sh\nexec {shlex.join([sys.executable, "-IS", __file__, "ask", name])} "$@"\n', encoding="utf-8"
    )
    command.chmod(0o755)
    words = [sys.executable, __file__, "serve", name, str(command), "torch._dynamo", *there]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        yield str(command)


def ask(name: str, words: list[str]) -> int:
    """Let the program of ``words`` run in a fork; return its status when it has ended."""
    if words[:1] not in (["-c"], ["-m"]) and (words[:1] != ["-P"] or words[1].startswith("-")):
        os.execv(sys.executable, [sys.executable, *words])
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(f"\0{name}")
        socket.send_fds(link, [json.dumps([words, str(Path.cwd()), dict(os.environ)]).encode()], [0, 1, 2])
        status = int(link.recv(LARGEST) or b"1")
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


def serve(name: str, command: str, *there: str) -> list[str]:
    """Fork for whoever asks, until standard input ends. Returns in the fork, ready for the program: its words."""
    import gc
    import importlib
    import select
    import signal

    del sys.path[0]  # this file's folder
    sys.executable = command  # some of the modules keep it
    for each in there:
        with suppress(ModuleNotFoundError):  # in a tree that is not installed, this package comes with PYTHONPATH
            importlib.import_module(each)
    gc.collect()
    gc.freeze()
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    server.bind(f"\0{name}")
    server.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        if 0 in select.select([0, server], [], [])[0]:
            sys.exit()
        link, _ = server.accept()
        if os.fork():
            link.close()
            continue
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        server.close()
        message, files, *_ = socket.recv_fds(link, LARGEST, 3)
        program = os.fork()
        if program == 0:
            link.close()
            return _taking_over(message, files)
        ended = os.pidfd_open(program)
        if ended in select.select([link, ended], [], [])[0]:
            link.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]))
        else:  # who asked has ended
            os.kill(program, signal.SIGKILL)
        os._exit(0)


def _taking_over(message: bytes, files: list[int]) -> list[str]:
    """Take over the folder, environment and standard files of who asked."""
    words, folder, environment = json.loads(message)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    own = {"-c": [""], "-m": [folder], "-P": []}[words[0]]
    sys.path[:0] = [*own, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    return words


def run(words: list[str]) -> None:
    """Do what Python does with ``-c``, ``-m`` or ``-P FILE``."""
    import importlib
    import runpy
    import types

    sys.argv, sys.orig_argv = [words[0], *words[2:]], [sys.executable, *words]
    sys.modules["__main__"] = types.ModuleType("__main__")
    if words[0] == "-m":
        runpy._run_module_as_main(words[1])
    elif words[0] == "-P" and words[1] == getattr(sys.modules.get("pitfall_lab.processes"), "__file__", None):
        # What `processes.ours` starts would load the package anew.
        sys.argv = [words[1], *words[3:]]
        importlib.import_module(words[2]).main()
    elif words[0] == "-P":
        sys.argv[0] = words[1]
        runpy.run_path(words[1], run_name="__main__")
    else:
        exec(words[1], sys.modules["__main__"].__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "ask":
        sys.exit(ask(sys.argv[2], sys.argv[3:]))
    run(serve(*sys.argv[2:]))
