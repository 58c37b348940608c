"""``pitfall-lab lab``: JupyterLab on the start notebook, from a clone or from an installed package."""

# ruff: noqa: PLC0415 - the command line starts fast: Jupyter is imported by this command alone

from __future__ import annotations

import os
import shutil
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pitfall_lab.cli import Refusal
from pitfall_lab.resources import JUPYTER, START, shipped_notebooks

if TYPE_CHECKING:
    import argparse

DEFAULT_FOLDER = "pitfall-lab"
NOTIFICATION = "@jupyterlab/apputils-extension:notification"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``pitfall-lab lab``."""
    parser.add_argument(
        "--no-browser", action="store_true", help="start the server and print its address, open nothing"
    )
    parser.add_argument("--port", type=_port, help="the port to listen on (default: the first free one from 8888)")
    parser.add_argument(
        "--folder", type=Path, help=f"where the notebooks live (default: the clone you are in, or ./{DEFAULT_FOLDER})"
    )


def _port(text: str) -> int:
    """Read a port number; argparse turns the ValueError into its own sentence and exit code 2."""
    port = int(text)
    if not 1 <= port <= 65535:
        raise ValueError(text)
    return port


_port.__name__ = "port"  # argparse says "invalid port value: '…'"


def clone_around(folder: Path) -> Path | None:
    """The clone that contains ``folder``, or ``None``: its notebooks are opened in place, nothing is copied."""
    for candidate in (folder, *folder.parents):
        if (candidate / "notebooks" / START).is_file() and (candidate / "pitfall_lab" / "trace").is_dir():
            return candidate
    return None


def provide_notebooks(target: Path) -> list[Path]:
    """Copy the notebooks into ``target/notebooks`` and return those copied.

    A file that is there already is never touched: it may hold the learner's answers. Raises
    :class:`~pitfall_lab.cli.Refusal` if the installation has none, and OSError.
    """
    shipped = shipped_notebooks()
    if shipped is None:
        raise Refusal("this installation has no notebooks in it; install it again from a wheel or from a clone.")
    copied = []
    for source in sorted(p for p in shipped.rglob("*") if p.is_file()):
        inside = source.relative_to(shipped)
        goal = target / "notebooks" / inside
        # Names with a dot are checkpoints and other leftovers of running the notebooks in a clone.
        if goal.exists() or any(part.startswith(".") for part in inside.parts):
            continue
        goal.parent.mkdir(parents=True, exist_ok=True)
        # Written beside and moved into place: an interrupted copy must not look like a finished notebook.
        part = goal.with_name(goal.name + ".part")
        shutil.copyfile(source, part)
        part.replace(goal)
        copied.append(goal)
    return copied


def server_arguments(root: Path, *, port: int | None, browser: bool) -> list[str]:
    """The command-line arguments for JupyterLab: ``root`` as its folder, the start notebook as its first page."""
    arguments = [f"--ServerApp.root_dir={root}", f"--LabApp.default_url=/lab/tree/notebooks/{START}"]
    if port is not None:
        arguments += [f"--ServerApp.port={port}", "--ServerApp.port_retries=0"]
    if not browser:
        arguments.append("--no-browser")
    if hasattr(os, "geteuid") and os.geteuid() == 0:
        # Containers and Binder run as root, where Jupyter refuses to start. The server listens on this
        # machine only and requires a token.
        arguments.append("--allow-root")
    return arguments


def provide_defaults() -> None:
    """Let JupyterLab start without its "official news?" question, which would cover the first notebook.

    ``labconfig/default_setting_overrides.json`` in a folder on ``JUPYTER_CONFIG_PATH`` sets *defaults*: what the
    learner chooses in JupyterLab's settings wins. Where a configuration of theirs says something of notifications
    already, ours stays out. Nothing is written.
    """
    from jupyter_server.services.config import ConfigManager

    if NOTIFICATION in ConfigManager(config_dir_name="labconfig").get("default_setting_overrides"):
        return
    known = os.environ.get("JUPYTER_CONFIG_PATH")
    ours = str(JUPYTER)
    os.environ["JUPYTER_CONFIG_PATH"] = f"{known}{os.pathsep}{ours}" if known else ours


def run(arguments: argparse.Namespace) -> int:
    """Find or copy the notebooks, run JupyterLab until it is stopped, and return 0.

    Raises :class:`~pitfall_lab.cli.Refusal` if the port is in use, or the notebooks cannot be copied.
    """
    if arguments.port is not None and not _is_free(arguments.port):
        raise Refusal(f"port {arguments.port} is in use; choose another one with --port, or leave --port out.")
    root = _prepare(arguments.folder)
    if os.environ.get("HOME") == "":
        # Unset is fine (the account's home is used), empty is not: Jupyter would write into the file system's root.
        del os.environ["HOME"]
    provide_defaults()
    from jupyterlab.labapp import LabApp

    words = server_arguments(root, port=arguments.port, browser=not arguments.no_browser)
    # The name that Jupyter shows and that its child processes see; a leftover sub-command would be taken for a path.
    sys.argv = ["jupyter-lab", *words]
    LabApp.launch_instance(argv=words)
    return 0


def _prepare(folder: Path | None) -> Path:
    """The server's root folder with a ``notebooks`` folder in it: the clone around the current
    folder, unless ``folder`` is given.

    Else ``folder`` or a folder of the default name, into which missing notebooks are copied.
    """
    clone = clone_around(Path.cwd()) if folder is None else None
    if clone is not None:
        return clone
    root = (folder or Path(DEFAULT_FOLDER)).expanduser().resolve()
    try:
        copied = provide_notebooks(root)
    except OSError as error:
        raise Refusal(f"the notebooks cannot be copied to {root}: {error.strerror or error}.") from None
    if copied:
        print(f"Copied {len(copied)} file(s) to {root / 'notebooks'}; later starts leave them as you edit them.")
    return root


def _is_free(port: int) -> bool:
    """Whether nothing answers on this machine's ``port``."""
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) != 0
