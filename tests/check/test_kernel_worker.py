"""The process behind a notebook's kernel outlives an interrupt and a fork, ends with the kernel, and
takes no module from the folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from pitfall_lab.check.improvement import RunFacts
from pitfall_lab.check.workshop import Subject, Workshop
from pitfall_lab.rules.kit.story import Story

KERNEL = """
import os, signal, sys, time
from pitfall_lab.check import Subject
from pitfall_lab.notebook.fix_runs import Lab, Turn, bench

def value():
    return Turn(bench()).witness(Subject("import torch\\nx = torch.ones(2)\\n", "cell"))["names"]["x"]["numbers"][:1]

first = value()
worker = bench().shop()._worker.pid
try:
    os.killpg(0, signal.SIGINT)  # as Jupyter interrupts a kernel
    time.sleep(5)
except KeyboardInterrupt:
    pass
child = os.fork()
if child == 0:
    sys.exit(0)  # with everything that is done at exit
os.waitpid(child, 0)
second = value()
print(first == second, worker == bench().shop()._worker.pid, flush=True)
if os.fork() == 0:  # a process that goes on, with the pipe to the worker
    time.sleep(60)
print(worker, flush=True)
time.sleep(60)
"""


def is_running(process: int) -> bool:
    told = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True, check=False
    ).stdout.strip()
    return bool(told) and not told.startswith("Z")


def test_it_outlives_an_interrupt_and_a_fork_and_ends_with_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "open('ran', 'w')\nraise ImportError('a planted module ran')\n", encoding="utf-8"
    )
    (tmp_path / "kernel.py").write_text(KERNEL, encoding="utf-8")
    words = [sys.executable, "-P", str(tmp_path / "kernel.py")]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, text=True, start_new_session=True) as kernel:
        assert kernel.stdout is not None
        try:
            assert kernel.stdout.readline() == "True True\n"
            worker = int(kernel.stdout.readline())
            kernel.kill()
            end = time.monotonic() + 30
            while is_running(worker):
                assert time.monotonic() < end, "the worker is still there"
                time.sleep(0.2)
        finally:
            os.killpg(kernel.pid, signal.SIGKILL)
    assert not (tmp_path / "ran").exists()


def test_facts_of_a_program_are_those_of_its_trace(shop: Workshop) -> None:
    text = "import torch\nx = torch.ones(3, requires_grad=True)\nh = x.exp()\nh.mul_(2)\nh.sum().backward()\n"
    subject = Subject(text, "program.py")
    facts = shop.facts(subject)
    assert facts == RunFacts.of(Story(shop.trace(subject))) == RunFacts.from_json(facts.to_json())
    assert (facts.ended, [found.rule for found in facts.found]) == ("raised", ["PL101"])


def test_a_worker_whose_checker_has_ended_writes_no_traceback():
    script = (
        "import os, sys\n"
        "from pitfall_lab.check.worker import _sent\n"
        "end, begin = os.pipe()\n"
        "os.close(end)\n"
        "answers = os.fdopen(begin, 'w', encoding='utf-8')\n"
        "print(_sent(answers, {'status': 'exit'}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "False\n", "")
