"""Provision what the tests need and run them all: ``python3 tests/run.py``. Standard library only.

Makes a virtual environment in ``build/`` (used again as long as the pins stay the same), installs the package from this
tree the way a learner does, finds or installs Chromium, then runs the linter, the type checks (TypeScript's where there
is npm) and the tests. Words after the command go to pytest: ``python3 tests/run.py tests/shadow -k sigmoid`` runs a
part and leaves the linters out.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / "build" / "test-environment"
STAMP = ENVIRONMENT / "pins.sha256"
CONSTRAINTS = ROOT / "binder" / "constraints.txt"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def main(words: list[str]) -> int:
    """Run everything (or what ``words`` tell pytest); 0 when all of it passed."""
    if sys.version_info < (3, 11):  # noqa: UP036  (this file is what tells people so)
        print(f"Python 3.11 or newer is needed; this is {sys.version.split()[0]}.", file=sys.stderr)
        return 2
    _give_a_home()
    # Hundreds of processes import this package and torch: they are compiled once, by the first that does.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    # pip uses one core: this first command installs beside our own environment, which the tests need.
    first = (
        None if words else Beside("the README's first command, from nothing", [sys.executable, "tests/docs/fresh.py"])
    )
    python, is_new = provision()
    # The type checker runs none of what is installed: it uses the core that installing and compiling leave idle.
    types = None if words else Beside("types", [python, "-m", "mypy"])
    if is_new:
        compile_what_all_import(python)
    os.environ["PATH"] = os.pathsep.join([str(python.parent), os.environ.get("PATH", os.defpath)])
    os.environ["PITFALL_LAB_CHROMIUM"] = browser(python)
    # Every core has a worker: torch's own threads would only wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if first is None or types is None:
        return step("tests", [python, "-m", "pytest", *words])
    # Each step runs even when an earlier one failed: one red run should tell everything.
    codes = [
        step("style", [python, "-m", "ruff", "check", "."]),
        step("format", [python, "-m", "ruff", "format", "--check", "--quiet", "."]),
    ]
    os.environ["PITFALL_WHOLE"] = "1"  # slow tests take turns: tests/slow.py
    # The browser tests have one server and one Chromium, which wait for each other half of the time, as do many tests
    # for a process that they started: one worker more than cores uses that time, and lets the browser go first.
    front = Beside("front end", [python, "tests/frontend/checks.py"])
    beside = [first, Beside("browser tests", [python, "-m", "pytest", "tests/browser"]), types, front]
    workers = str((os.cpu_count() or 2) + 1)
    codes.append(
        step("tests", [python, "-m", "pytest", "-n", workers, "--dist", "loadfile", "--ignore=tests/browser"], nice=5)
    )
    codes += [each.code() for each in beside]
    print("\nall passed" if not any(codes) else "\nFAILED", flush=True)
    return int(any(codes))


def step(title: str, command: list[str | Path], *, nice: int = 0) -> int:
    """Run one command from the root with a heading and its time; ``nice`` lets others go first,
    where the system knows that.
    """
    print(f"\n== {title}: {' '.join(map(str, command[1:]))}", flush=True)
    started = time.monotonic()
    if nice and shutil.which("nice"):
        command = ["nice", "-n", str(nice), *command]
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(
        f"== {title}: {'passed' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - started:.0f} s", flush=True
    )
    return code


class Beside:
    """A step that runs while others do; what it prints is kept until :meth:`code` is asked for."""

    def __init__(self, title: str, command: list[str | Path]) -> None:
        self._title, self._started = f"{title}: {' '.join(map(str, command[1:]))}", time.monotonic()
        self._pool = ThreadPoolExecutor(1)
        self._ended = self._pool.submit(self._run, command)

    def _run(self, command: list[str | Path]) -> tuple[int, str, float]:
        done = subprocess.run(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8", check=False
        )
        return done.returncode, done.stdout, time.monotonic() - self._started

    def code(self) -> int:
        """Wait for the end, print it as :func:`step` does, and return the exit status."""
        code, printed, seconds = self._ended.result()
        self._pool.shutdown()
        print(f"\n== {self._title} (beside the others)\n{printed}", end="")
        print(
            f"== {self._title.partition(':')[0]}: {'passed' if code == 0 else f'FAILED ({code})'} in {seconds:.0f} s",
            flush=True,
        )
        return code


def provision() -> tuple[Path, bool]:
    """The Python of an environment that holds the pinned versions and this tree's package, and
    whether it was made just now.
    """
    scripts = ENVIRONMENT / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / ("python.exe" if os.name == "nt" else "python")
    pins = hashlib.sha256(
        CONSTRAINTS.read_bytes() + (ROOT / "pyproject.toml").read_bytes() + sys.version.encode()
    ).hexdigest()
    # pip would compile 180 MB of sources, of which the tests import a tenth: that took longer than to install them.
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-compile", "-c", CONSTRAINTS]
    started = time.monotonic()
    is_new = not (STAMP.is_file() and STAMP.read_text() == pins)
    if is_new:
        print(f"== environment: making {ENVIRONMENT.relative_to(ROOT)}", flush=True)
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
        venv.create(ENVIRONMENT, with_pip=True)
        subprocess.run([*pip, ".[test]"], cwd=ROOT, check=True)
        STAMP.write_text(pins)
    else:
        # The package itself is always installed anew: a copy from before the last edit would be tested otherwise.
        subprocess.run([*pip, "--force-reinstall", "--no-deps", "."], cwd=ROOT, check=True)
    print(f"== environment: ready in {time.monotonic() - started:.0f} s", flush=True)
    return python, is_new


def compile_what_all_import(python: Path) -> None:
    """Compile what nearly every process needs, before many of them would do it side by side."""
    started = time.monotonic()
    subprocess.run(
        [python, "-c", "import torch._dynamo, IPython, ipykernel.kernelapp, jupyterlab.labapp"], cwd=ROOT, check=True
    )
    print(f"== environment: compiled in {time.monotonic() - started:.0f} s", flush=True)


def browser(python: Path) -> str:
    """The Chromium to test with: the one named in PITFALL_LAB_CHROMIUM, an installed one, or one installed now."""
    found = os.environ.get("PITFALL_LAB_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if found:
        return found
    if shutil.which("apt-get") and hasattr(os, "geteuid") and os.geteuid() == 0:
        print("== browser: installing Chromium with apt-get", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        # The fonts are for the Chinese half of the pictures.
        for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium", "fonts-noto-cjk"]):
            subprocess.run(["apt-get", *words], check=True, stdout=subprocess.DEVNULL, env=environment)
        return shutil.which("chromium") or ""
    print("== browser: no Chromium here; downloading playwright's", flush=True)
    subprocess.run([python, "-m", "playwright", "install", "chromium"], check=True)
    return ""  # empty: playwright finds its own


def _give_a_home() -> None:
    """Jupyter, IPython and matplotlib write below HOME; without a usable one they get a folder of their own."""
    if os.name != "nt" and not Path(os.environ.get("HOME", "")).is_absolute():
        os.environ["HOME"] = home = tempfile.mkdtemp(prefix="pitfall-lab-home-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
