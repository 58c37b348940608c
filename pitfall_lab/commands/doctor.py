"""``pitfall-lab doctor``: what is installed here, and what to do about what is missing."""

# ruff: noqa: PLC0415 - each part of Jupyter is looked for by itself: one that is missing is what the command reports

from __future__ import annotations

import json
import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pitfall_lab import processes
from pitfall_lab.cli import installed_version
from pitfall_lab.resources import PACKAGE

if TYPE_CHECKING:
    import argparse

Verdict = Literal["ok", "note", "missing"]
EXTENSION = "pitfall-lab"
WIDGETS = "@jupyter-widgets/jupyterlab-manager"
_MARK = {"ok": "ok  ", "note": "note", "missing": "MISS"}


@dataclass(frozen=True, slots=True)
class ReportLine:
    """One line of the report. ``advice`` says what to do; only ``missing`` ones make the exit code 1."""

    verdict: Verdict
    subject: str
    fact: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pitfall-lab doctor``."""
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Print the report; exit code 0 when everything that is needed is there, 1 when something is missing."""
    findings = list(examine())
    if arguments.json:
        print(json.dumps([asdict(f) for f in findings], ensure_ascii=False, indent=2))
    else:
        width = max(len(f.subject) for f in findings)
        for f in findings:
            print(f"{_MARK[f.verdict]}  {f.subject:<{width}}  {f.fact}")
            if f.advice:
                print(f"{'':{width + 6}}  → {f.advice}")
    return 1 if any(f.verdict == "missing" for f in findings) else 0


def examine() -> Iterator[ReportLine]:
    """All findings, in the order in which a person would look."""
    yield _python()
    yield ReportLine("ok", "pitfall_lab", f"{installed_version()}, in {PACKAGE}")
    yield from _torch()
    for name in ("numpy", "ipywidgets", "anywidget", "matplotlib", "graphviz", "jupyterlab"):
        yield _package(name)
    yield _dot()
    yield from _extensions()
    yield _kernel()
    yield _fence()


def _python() -> ReportLine:
    fact = f"{platform.python_version()}, {sys.executable}"
    if sys.version_info < (3, 11):  # noqa: UP036  (the package may be on the path of an older Python without having been installed by pip)
        return ReportLine("missing", "python", fact, "exact source positions need Python 3.11 or newer.")
    return ReportLine("ok", "python", fact)


def _package(name: str) -> ReportLine:
    try:
        return ReportLine("ok", name, version(name))
    except PackageNotFoundError:
        return ReportLine("missing", name, "not installed", f"{sys.executable} -m pip install {name}")


_ASK_TORCH = """
import json, torch
cuda = torch.cuda.is_available()
from pitfall_lab.observe import release
said = [text.en for text in release.limits()]
print(json.dumps([torch.__version__, torch.version.cuda, torch.cuda.get_device_name(0) if cuda else None, said]))
"""


def _torch() -> Iterator[ReportLine]:
    """Yield the findings about torch, imported in another process: a broken torch may end that
    process, which is a finding too.
    """
    done = processes.run(processes.code(_ASK_TORCH), capture_output=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"the process ended with code {done.returncode}"])[-1]
        advice = (
            f"{sys.executable} -m pip install torch (CUDA: pytorch.org/get-started/locally); saved "
            "traces open without it."
        )
        yield ReportLine("missing", "torch", f"cannot be imported: {last}", advice)
        return
    torch, cuda, device, limits = json.loads(done.stdout.strip().splitlines()[-1])
    yield ReportLine("ok", "torch", torch)
    yield from (ReportLine("note", "torch", limit) for limit in limits)
    if device:
        yield ReportLine("ok", "CUDA", f"{cuda}, {device}")
    elif cuda:
        advice = "the chapters run on the CPU; for the GPU examples look at the driver with nvidia-smi."
        yield ReportLine("note", "CUDA", f"this torch was built for CUDA {cuda}, but no device answers", advice)
    else:
        yield ReportLine("ok", "CUDA", "none (a CPU build of torch; nothing here needs more)")


def _dot() -> ReportLine:
    path = processes.installed("dot")
    if path is None:
        advice = "graphs are laid out by our own code; graphviz's layout comes with: apt|brew|winget install graphviz."
        return ReportLine("note", "dot", "the graphviz program is not on the PATH", advice)
    try:
        done = processes.run([path, "-V"], capture_output=True, timeout=10)
    except (OSError, processes.TimeoutExpired) as error:
        return ReportLine(
            "note", "dot", f"{path} does not run: {error}", "graphs are laid out by our own code meanwhile."
        )
    return ReportLine("ok", "dot", f"{(done.stderr or done.stdout).strip()}, {path}")


def _extensions() -> Iterator[ReportLine]:
    """Yield findings on whether JupyterLab will load our extension and the one that draws widgets."""
    try:
        from jupyter_core.paths import jupyter_path
        from jupyterlab_server.config import get_page_config
    except ImportError:
        yield ReportLine(
            "missing", "extension", "JupyterLab cannot be imported", f"{sys.executable} -m pip install jupyterlab"
        )
        return
    folders = jupyter_path("labextensions")
    disabled = _disabled(get_page_config(folders).get("disabledExtensions", {}))
    for subject, name in (("extension", EXTENSION), ("widgets extension", WIDGETS)):
        found = next(
            (Path(folder) / name for folder in folders if (Path(folder) / name / "package.json").is_file()), None
        )
        if found is None:
            package = "pitfall-lab" if name == EXTENSION else "jupyterlab_widgets"
            advice = (
                f"{sys.executable} -m pip install --force-reinstall --no-deps {package} (with the Python "
                "that runs JupyterLab)"
            )
            yield ReportLine("missing", subject, f"{name} is not in {', '.join(folders)}", advice)
        elif name in disabled:
            yield ReportLine(
                "missing", subject, f"{name} is installed but disabled", f"jupyter labextension enable {name}"
            )
        else:
            about = json.loads((found / "package.json").read_text(encoding="utf-8"))
            yield ReportLine("ok", subject, f"{name} {about.get('version', '')} enabled, in {found}")


def _disabled(setting: dict[str, bool] | list[str]) -> set[str]:
    """The names in a setting that may be a list or a dictionary; ``name:plugin`` disables a part,
    and our extension has one part.
    """
    names = [name for name, off in setting.items() if off] if isinstance(setting, dict) else setting
    return {name.split(":")[0] for name in names}


def _fence() -> ReportLine:
    """The finding on whether ``pitfall-lab grade`` can keep submissions from the teacher's files."""
    from pitfall_lab.classroom.fence import missing

    if lacks := missing():
        advice = "learners need none; `pitfall-lab grade` does: run it in a container on Linux, or with --trust."
        return ReportLine("note", "fence", f"no {' and no '.join(lacks)}", advice)
    return ReportLine("ok", "fence", "Landlock and seccomp: submissions can be graded")


def _kernel() -> ReportLine:
    """The finding on whether notebooks run in this Python: with another one the kernel cannot import pitfall_lab."""
    try:
        from jupyter_client.kernelspec import KernelSpecManager, NoSuchKernel
    except ImportError:
        return ReportLine(
            "missing", "kernel", "jupyter_client cannot be imported", f"{sys.executable} -m pip install ipykernel"
        )
    try:
        command = KernelSpecManager().get_kernel_spec("python3").argv[0]
    except NoSuchKernel:
        return ReportLine(
            "missing", "kernel", "there is no python3 kernel", f"{sys.executable} -m pip install ipykernel"
        )
    same = Path(shutil.which(command) or command).parent == Path(sys.executable).parent or command in {
        "python",
        "python3",
    }
    if not same:
        advice = f"{sys.executable} -m ipykernel install --sys-prefix makes notebooks run here."
        return ReportLine("note", "kernel", f"python3 runs {command}, not this Python", advice)
    return ReportLine("ok", "kernel", f"python3 runs {command}")
