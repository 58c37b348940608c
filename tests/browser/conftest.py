"""A real JupyterLab server in private folders, a real Chromium, and a guard that lets nothing out of this machine."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import json
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

# Notebook 7 comes with nbgrader, one of the test dependencies.
collect_ignore = [] if importlib.util.find_spec("notebook") else ["test_notebook7.py"]

ROOT = Path(__file__).resolve().parent.parent.parent
SCREENSHOTS = ROOT / "tests" / "screenshots"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--force-color-profile=srgb",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]  # fmt: skip
# Other tests run beside these: what is waited for comes, later.
PATIENCE = 90_000
expect.set_options(timeout=30_000)
OURS = "/lab/extensions/pitfall-lab/"
OTHERS = re.compile(r"/lab/extensions/(?!pitfall-lab/)")
# What JupyterLab itself writes into the console, with no extension installed; the whole of a line, and
# its address where one is meant.
NOT_OURS = (
    # Workspaces and sessions that do not exist yet.
    re.compile(r"Failed to load resource: the server responded with a status of 404 \(Not Found\)"),
    # On a busy machine JupyterLab says of each part, its own and others', how long its start took.
    re.compile(r"Plugin \S+ (is taking too long to activate|\(with \d+ dependants\) took [\d.]+ms to activate)\."),
    # Another extension that was built for a newer JupyterLab (4.2).
    re.compile(r"Failed to create module: package: (?!pitfall-lab;)\S+; module: .*"),
    re.compile(r"Language pack 'en_US' not installed!"),
)


def is_ours(text: str, url: str) -> bool:
    """Whether a line of the console may be about this extension: JupyterLab and other
    extensions write some on every start.

    A line belongs to another extension if its file wrote it, or if it is an error whose trace has files
    of others, and none of ours.
    """
    if OURS in url or OURS in text:
        return True
    trace = text.partition("\n    at ")[2]
    return not (OTHERS.search(url) or OTHERS.search(trace) or any(each.fullmatch(text) for each in NOT_OURS))


@dataclass
class Server:
    """A running JupyterLab. ``folder`` is its root; notebooks are copies in ``folder/notebooks``."""

    url: str
    token: str
    folder: Path
    home: Path

    def address(self, notebook: str = "") -> str:
        tail = f"/tree/{notebook}" if notebook else ""
        # "reset" starts from an empty workspace: no tab of an earlier test is opened again.
        return f"{self.url}/lab{tail}?reset&token={self.token}"

    def write(self, name: str, *cells: str) -> str:
        """Write a notebook of code cells into the folder and return its path below the server's root."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}},
        )
        nbformat.write(notebook, self.folder / name)
        return name

    def ask(self, path: str, method: str = "GET") -> Any:
        """Call the server's own interface."""
        request = urllib.request.Request(
            f"{self.url}/api/{path}", method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def shut_down_kernels(self) -> None:
        """A kernel with torch takes a quarter of a gigabyte: none outlives its test."""
        for session in self.ask("sessions"):
            self.ask(f"sessions/{session['id']}", "DELETE")


@dataclass
class Lab:
    """A page with JupyterLab in it, and what was seen in its console and on its network.

    ``expected`` are words of lines in the console that a test knows of: they may come once or several times, and late.
    """

    page: Page
    server: Server
    console: list[str] = field(default_factory=list)
    expected: list[str] = field(default_factory=list)
    blocked: list[str] = field(default_factory=list)

    def said(self) -> list[str]:
        """The lines in the console that nobody expected."""
        return [line for line in self.console if not any(words in line for words in self.expected)]

    def open(self, notebook: str, address: str = "") -> None:
        """Open a notebook by its address and wait until its kernel is ready."""
        self.page.goto(address or self.server.address(notebook))
        self.page.wait_for_function("window.jupyterapp && window.jupyterapp.started")
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.page.wait_for_function(
            """async () => {
                const panel = window.jupyterapp.shell.currentWidget;
                if (!panel || !panel.sessionContext) return false;
                await panel.sessionContext.ready;
                return panel.sessionContext.session?.kernel?.status === "idle";
            }"""
        )

    def command(self, name: str, **arguments: Any) -> None:
        """Run a JupyterLab command and wait for it."""
        self.page.evaluate(
            "([name, args]) => window.jupyterapp.commands.execute(name, args).then(() => null)", [name, arguments]
        )

    def theme(self, name: str) -> None:
        """Switch to "JupyterLab Light", "JupyterLab Dark" or the high contrast theme and wait for its style sheet."""
        self.command("apputils:change-theme", theme=name)
        self.page.wait_for_function("name => document.body.dataset.jpThemeName === name", arg=name)

    def cell(self, number: int):
        """The cell at an index."""
        return self.page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{number}"]')

    def run_cell(self, number: int, timeout: float = 60) -> None:
        """Select the cell and run it in place; returns when the kernel has answered."""
        self.page.evaluate(
            "number => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = number; }", number
        )
        before = self.page.evaluate(
            "number => window.jupyterapp.shell.currentWidget.content.widgets[number].model.executionCount", number
        )
        self.command("notebook:run-cell")
        self.page.wait_for_function(
            """([number, before]) => {
                const panel = window.jupyterapp.shell.currentWidget;
                const count = panel.content.widgets[number].model.executionCount;
                return count !== null && count !== before && panel.sessionContext.session.kernel.status === "idle";
            }""",
            arg=[number, before],
            timeout=timeout * 1000,
        )

    def picture(self, name: str) -> Path:
        """Write a screenshot for people to look at."""
        SCREENSHOTS.mkdir(exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _environment(home: Path) -> dict[str, str]:
    """Private folders for everything that Jupyter and IPython would read from or write into the user's home."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "IPYTHON"))}
    places = {
        "HOME": home, "JUPYTER_CONFIG_DIR": home / "config", "JUPYTER_DATA_DIR": home / "data",
        "JUPYTER_RUNTIME_DIR": home / "runtime", "JUPYTERLAB_SETTINGS_DIR": home / "settings",
        "JUPYTERLAB_WORKSPACES_DIR": home / "workspaces", "IPYTHONDIR": home / "ipython",
        "MPLCONFIGDIR": home / "matplotlib",
    }  # fmt: skip
    environment |= {name: str(path) for name, path in places.items()}
    environment |= {"LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    if _is_tree_used():  # show the server the tree's extension and the kernel its package
        (home / "share" / "labextensions").mkdir(parents=True)
        (home / "share" / "labextensions" / "pitfall-lab").symlink_to(ROOT / "pitfall_lab" / "labextension")
        environment |= {"JUPYTER_PATH": str(home / "share"), "PYTHONPATH": str(ROOT)}
    return environment


def _is_tree_used() -> bool:
    """Whether this source tree is what is tested, and not a package that was installed."""
    if str(ROOT) in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        return True
    try:
        importlib.metadata.version("pitfall-lab")
    except importlib.metadata.PackageNotFoundError:
        return True
    return False


def _configure(home: Path, token: str) -> None:
    config = {
        "LabApp": {"expose_app_in_browser": True, "news_url": None},
        "JupyterNotebookApp": {"expose_app_in_browser": True},
        "IdentityProvider": {"token": token},
        "ServerApp": {"shutdown_no_activity_timeout": 1200},
    }
    (home / "config" / "labconfig").mkdir(parents=True)
    (home / "config" / "jupyter_server_config.json").write_text(json.dumps(config))
    quiet = {"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False}}
    (home / "config" / "labconfig" / "default_setting_overrides.json").write_text(json.dumps(quiet))


def _warm_kernels(home: Path, python: str) -> None:
    """Let kernels begin in forks of a process that has imported torch.

    Those cannot be interrupted by a signal to what was started.
    """
    place = home / "data" / "kernels" / "python3"
    place.mkdir(parents=True)
    words = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": words, "display_name": "Python 3 (ipykernel)", "language": "python", "interrupt_mode": "message"}
    (place / "kernel.json").write_text(json.dumps(spec))


@contextlib.contextmanager
def serve(home: Path, folder: Path, command: Sequence[str | Path] = ()) -> Iterator[Server]:
    """JupyterLab as `pitfall-lab lab` starts it, with notebooks copied into a folder of its
    own; or what ``command`` starts.
    """
    token, port = secrets.token_hex(16), _free_port()
    _configure(home, token)
    log = home / "server.log"
    command = command or [sys.executable, "-m", "pitfall_lab", "lab", "--no-browser", "--folder", folder]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*command, f"--port={port}"], cwd=folder, env=_environment(home), stdout=out, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_it_answers(f"http://127.0.0.1:{port}/api/status?token={token}", process, log)
        yield Server(f"http://127.0.0.1:{port}", token, folder, home)
    finally:
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, warm_python: str) -> Iterator[Server]:
    """One server for all tests; that of Notebook 7 starts its kernels as a learner's does."""
    home = tmp_path_factory.mktemp("home")
    _warm_kernels(home, warm_python)
    with serve(home, tmp_path_factory.mktemp("learner")) as running:
        yield running


def _wait_until_it_answers(url: str, process: subprocess.Popen, log: Path) -> None:
    end = time.monotonic() + 180
    while time.monotonic() < end:
        with contextlib.suppress(urllib.error.URLError, ConnectionError), urllib.request.urlopen(url, timeout=2):
            return
        assert process.poll() is None, f"the server stopped:\n{log.read_text()[-3000:]}"
        time.sleep(0.2)
    raise AssertionError(f"the server did not answer within three minutes:\n{log.read_text()[-3000:]}")


@contextlib.contextmanager
def launch() -> Iterator[Browser]:
    """Chromium: an installed one, or the one that playwright brought."""
    path = os.environ.get("PITFALL_LAB_CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """One Chromium for all tests, with one profile, which is emptied for each."""
    with launch() as chromium:
        yield chromium


@contextlib.contextmanager
def visit(browser: Browser, server: Server) -> Iterator[Lab]:
    """An emptied profile whose console is listened to; requests to other machines are noted
    (Chromium finds none, see ``FLAGS``).

    Only the browser's cache stays: to load and compile JupyterLab anew costs seconds. For the same reason requests are
    not intercepted, with which Chromium caches nothing.
    """
    # JupyterLab keeps the theme and the open tabs on the server's side.
    for kept in ("settings", "workspaces"):
        shutil.rmtree(server.home / kept, ignore_errors=True)
    context = (
        browser.contexts[0]
        if browser.contexts
        else browser.new_context(viewport={"width": 1440, "height": 1000}, locale="en-US")
    )
    context.set_default_timeout(PATIENCE)
    page = context.new_page()
    kept_here = "cookies,local_storage,indexeddb,cache_storage,service_workers"
    context.new_cdp_session(page).send("Storage.clearDataForOrigin", {"origin": server.url, "storageTypes": kept_here})
    lab = Lab(page, server)

    def guard(request: Request) -> None:
        if not request.url.startswith((f"{server.url}/", "data:", "blob:")):
            lab.blocked.append(request.url)

    def listen(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"} and is_ours(message.text, url := message.location.get("url", "")):
            lab.console.append(f"{message.type}: {message.text} ({url})")

    page.on("request", guard)
    page.on("console", listen)
    page.on("pageerror", lambda error: lab.console.append(f"uncaught: {error}"))
    try:
        yield lab
    finally:
        page.close()
        server.shut_down_kernels()


@pytest.fixture
def lab(browser: Browser, server: Server, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """JupyterLab in a fresh profile.

    After the test its console must be silent and nothing may have asked for another machine.
    """
    with visit(browser, server) as lab:
        yield lab
        failed = getattr(request.node, "failed", False)
        if failed:
            lab.picture(f"failed-{request.node.name}")
    if not failed:
        assert lab.blocked == [], "requests that left this machine"
        assert lab.said() == []


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    report = (yield).get_result()
    if report.when == "call":
        item.failed = report.failed
