"""An environment of its own for a cell of the matrix: one release of torch, NumPy and Python, without CUDA."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.matrix import stubs

ROOT = Path(__file__).resolve().parents[2]
NVIDIA = re.compile(r"Requires-Dist: (nvidia|triton|cuda)")
PINNED_ELSEWHERE = re.compile(r"(torch|numpy|triton|nvidia|cuda)\b")


@dataclass(frozen=True, slots=True)
class Cell:
    """One row of the table."""

    torch: str
    numpy: str
    """A version, or ``newest``: what pip takes."""
    python: str

    @property
    def name(self) -> str:
        return f"torch-{self.torch}-numpy-{self.numpy}-python-{self.python}"


class Unmade(Exception):
    """The environment could not be made; says why."""


def make(cell: Cell, folder: Path) -> tuple[Path, str]:
    """The Python of a new environment in ``folder`` with this tree's package, and how its torch was come by."""
    shutil.rmtree(folder, ignore_errors=True)
    run(interpreter(cell.python), "-m", "venv", folder)
    python = folder / "bin" / "python"
    how = install_torch(python, cell.torch)
    constraints = folder / "constraints.txt"
    pins = (ROOT / "binder" / "constraints.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    constraints.write_text("".join(pin for pin in pins if not PINNED_ELSEWHERE.match(pin)), encoding="utf-8")
    numpy = "numpy" if cell.numpy == "newest" else f"numpy=={cell.numpy}"
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-compile",
        "-c",
        constraints,
        numpy,
        "hypothesis",
        "pytest",
        "pytest-rerunfailures",
        "pytest-timeout",
        "pytest-xdist",
        ROOT,
    )
    return python, how


def interpreter(version: str) -> str:
    """An installed Python of that minor version: this one, one on the path, or one of pyenv's."""
    here = ".".join(map(str, sys.version_info[:2]))
    named = [
        shutil.which(f"python{version}"),
        *map(str, sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))),
    ]
    for candidate in [sys.executable] * (version == here) + [name for name in named if name]:
        # pyenv has a python3.13 on the path also where it is switched off.
        if subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode == 0:
            return candidate
    raise Unmade(f"no Python {version} here")


def install_torch(python: Path, version: str) -> str:
    """A CPU build where pip finds one, else the plain wheel with stand-ins for CUDA; says which."""
    pip = (python, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir")
    try:
        run(*pip, "install", "--quiet", f"torch=={version}+cpu")
    except Unmade:
        downloads = python.parent.parent / "wheel"
        run(*pip, "download", "--quiet", "--no-deps", "--only-binary=:all:", "--dest", downloads, f"torch=={version}")
        (wheel,) = downloads.iterdir()
        (site,) = python.parent.parent.glob("lib/python*/site-packages")
        made = unpack_without_cuda(wheel, site)
        shutil.rmtree(downloads)
        return f"{len(made)} CUDA libraries stubbed"
    return "CPU build"


def unpack_without_cuda(wheel: Path, site: Path) -> list[str]:
    """What pip does with a wheel, except that no package of CUDA is required; returns the
    libraries that were made up.
    """
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (metadata,) = site.glob("torch-*.dist-info/METADATA")
    lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
    metadata.write_text("".join(line for line in lines if not NVIDIA.match(line)), encoding="utf-8")
    return stubs.stand_in(site / "torch" / "lib")


def run(*command: object) -> None:
    """Run a command that must succeed; its last words are the reason where it does not."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip() and "notice" not in line]
        raise Unmade(said[-1] if said else f"{command[0]} ended with {done.returncode}")
