"""What is installed, what is pinned, what a wheel holds, and that one works without Node, without
`dot` and with an empty HOME.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
RUNTIME = [Requirement(text) for text in PROJECT["dependencies"]]
TESTS = [Requirement(text) for text in PROJECT["optional-dependencies"]["test"]]


def requirements(name: str) -> dict[str, Requirement]:
    lines = [line.split("#")[0].strip() for line in (ROOT / "binder" / name).read_text(encoding="utf-8").splitlines()]
    found = [Requirement(line) for line in lines if line and not line.startswith("-")]
    return {canonicalize_name(r.name): r for r in found}


def pin(requirement: Requirement) -> Version:
    (only,) = requirement.specifier
    assert only.operator == "=="
    return Version(only.version)


# ------------------------------------------------------------------------------------------------ pins


def test_every_pin_is_exact_and_without_an_index() -> None:
    text = (ROOT / "binder" / "constraints.txt").read_text(encoding="utf-8")
    assert not re.search(r"^-", text, flags=re.MULTILINE)
    assert all(pin(requirement).local is None for requirement in requirements("constraints.txt").values())


@pytest.mark.parametrize("requirement", RUNTIME + TESTS, ids=lambda r: r.name)
def test_every_dependency_is_pinned_inside_its_own_range(requirement: Requirement) -> None:
    pinned = requirements("constraints.txt")[canonicalize_name(requirement.name)]
    assert requirement.specifier.contains(pin(pinned))


def test_what_is_installed_here_is_what_is_pinned() -> None:
    differing = {}
    for name, requirement in requirements("constraints.txt").items():
        try:
            installed = Version(importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            # jupyter-repo2docker and its like are only needed where the tests were provisioned.
            assert name not in {canonicalize_name(r.name) for r in RUNTIME}, name
            continue
        # The same release with another build of it (2.13.0+cpu) is what Binder and CI want.
        if Version(installed.public) != pin(requirement):
            differing[name] = (str(installed), str(pin(requirement)))
    assert differing == {}


def test_every_pin_installs_on_the_first_python_that_is_supported() -> None:
    """Debian 12 has Python 3.11.2: a pin that wants a later one is no version there, and pip ends with a conflict."""
    oldest = PROJECT["requires-python"].removeprefix(">=")
    installed = filter(_is_installed, requirements("constraints.txt"))
    wants = {name: importlib.metadata.metadata(name).get("Requires-Python") for name in installed}
    assert len(wants) > 80
    assert {
        name: python for name, python in wants.items() if python and not SpecifierSet(python).contains(f"{oldest}.0")
    } == {}


def _is_installed(name: str) -> bool:
    return next(iter(importlib.metadata.distributions(name=name)), None) is not None


def test_binder_installs_the_runtime_dependencies_and_the_same_torch() -> None:
    binder = requirements("requirements.txt")
    assert set(binder) == {canonicalize_name(r.name) for r in RUNTIME}
    assert pin(binder["torch"]) == Version("2.13.0+cpu")
    assert pin(requirements("constraints.txt")["torch"]) == Version("2.13.0")


def test_one_version_number_everywhere() -> None:
    import pitfall_lab

    assert pitfall_lab.__version__ == PROJECT["version"]
    extension = json.loads((ROOT / "pitfall_lab" / "labextension" / "package.json").read_text(encoding="utf-8"))
    assert extension["version"] == PROJECT["version"]
    assert f"## {PROJECT['version']}" in (ROOT / "pitfall_lab" / "CHANGELOG.md").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------ binder


def test_binder_has_no_file_that_would_switch_the_others_off() -> None:
    # With an environment.yml, repo2docker ignores requirements.txt; a Dockerfile switches everything off.
    assert {p.name for p in (ROOT / "binder").iterdir()} == {
        "apt.txt",
        "constraints.txt",
        "postBuild",
        "requirements.txt",
        "runtime.txt",
    }
    assert os.access(ROOT / "binder" / "postBuild", os.X_OK)


def test_repo2docker_makes_the_dockerfile_that_is_meant() -> None:
    """Without a container engine it prints the Dockerfile; it would not notice a wrong name in
    apt.txt, the next test does.
    """
    program = Path(sys.executable).with_name("jupyter-repo2docker")
    done = subprocess.run(
        [program, "--no-build", "--debug", ROOT], capture_output=True, text=True, timeout=120, check=False
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-2000:]
    assert "apt-get install --yes --no-install-recommends graphviz" in text
    copied, installed = (
        text.index("COPY --chown=0:0 src/ ${REPO_DIR}/"),
        text.index('install --no-cache-dir -r "binder/requirements.txt"'),
    )
    # Before the copy there would be no constraints.txt to read.
    assert copied < installed < text.index("RUN ./binder/postBuild")
    assert "environment-2epy-2d3-2e11" in text


def test_apt_packages_are_those_that_bring_what_the_doctor_looks_for() -> None:
    assert (ROOT / "binder" / "apt.txt").read_text(encoding="utf-8").split() == ["graphviz"]
    if shutil.which("apt-cache"):
        known = subprocess.run(
            ["apt-cache", "search", "--names-only", "^graphviz$"], capture_output=True, text=True, check=False
        ).stdout
        # Debian's lists are deleted in slim images; where there are lists, the name must be in them.
        assert known.startswith("graphviz - ") or not any(Path("/var/lib/apt/lists").glob("*Packages*"))


# ------------------------------------------------------------------------------------------------ the wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from this tree, with nothing on the PATH: no Node, no npm, no git."""
    out = tmp_path_factory.mktemp("wheel")
    environment = {**os.environ, "PATH": str(out)}
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_what_is_needed_once(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    data = f"pitfall_lab-{PROJECT['version']}.data/data/share/jupyter/labextensions/pitfall-lab"
    assert f"{data}/package.json" in names
    assert f"{data}/install.json" in names
    assert any(re.fullmatch(rf"{re.escape(data)}/static/remoteEntry\.\w+\.js", name) for name in names)
    assert "pitfall_lab/static/explorer.js" in names
    assert "pitfall_lab/notebooks/00-start-here.ipynb" in names
    assert f"pitfall_lab-{PROJECT['version']}.dist-info/licenses/LICENSE" in names
    assert "pitfall_lab/docs/rules/PL101.md" in names
    unwanted = ("pitfall_lab/frontend", "pitfall_lab/labextension", "pitfall_lab/docs/explorer")
    assert [n for n in names if n.startswith(unwanted) or "node_modules" in n] == []
    assert [n for n in names if ".ipynb_checkpoints" in n or "__pycache__" in n or n.startswith("tests")] == []
    shipped = {n.removeprefix("pitfall_lab/") for n in names if n.startswith("pitfall_lab/notebooks/")}
    assert shipped == {
        p.relative_to(ROOT).as_posix()
        for p in (ROOT / "notebooks").rglob("*")
        if p.is_file() and "/." not in p.as_posix()
    }


class Installed:
    """The wheel in an environment of its own, run with an empty HOME and a PATH that has neither Node nor `dot`."""

    def __init__(self, wheel: Path, place: Path) -> None:
        self.environment, self.home, self.folder = place / "env", place / "home", place / "learner"
        self.home.mkdir()
        self.folder.mkdir()
        venv.create(self.environment)
        self.scripts = self.environment / ("Scripts" if os.name == "nt" else "bin")
        (site,) = self.environment.glob("**/site-packages")
        # Torch and JupyterLab are the ones that the tests run with, by a .pth file: copying
        # two gigabytes would test pip.
        (site / "outer.pth").write_text("\n".join(p for p in sys.path if p.endswith("site-packages")))
        pip = [sys.executable, "-m", "pip", "--python", str(self.scripts / "python"), "install", "--quiet"]
        subprocess.run([*pip, "--no-deps", "--no-index", "--ignore-installed", wheel], check=True, capture_output=True)
        self.variables = {"HOME": str(self.home), "PATH": str(self.scripts), "LANG": "C.UTF-8"}
        # The widgets extension is the outer environment's; ours must be found in the new one.
        extensions = place / "share" / "labextensions"
        extensions.mkdir(parents=True)
        (extensions / "@jupyter-widgets").symlink_to(
            Path(sys.prefix) / "share" / "jupyter" / "labextensions" / "@jupyter-widgets"
        )
        self.variables["JUPYTER_PATH"] = str(extensions.parent)

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.scripts / "pitfall-lab"), *words]
        return subprocess.run(
            command, cwd=self.folder, env=self.variables, capture_output=True, text=True, timeout=180, check=False
        )


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(wheel, tmp_path_factory.mktemp("installed"))


def test_the_doctor_finds_the_installed_extension_and_misses_only_dot(installed: Installed) -> None:
    done = installed.run("doctor", "--json")
    findings = {f["subject"]: f for f in json.loads(done.stdout)}
    assert done.returncode == 0, done.stdout
    assert [s for s, f in findings.items() if f["verdict"] == "missing"] == []
    assert str(installed.environment) in findings["extension"]["fact"]
    assert "enabled" in findings["extension"]["fact"]
    assert findings["dot"]["verdict"] == "note"
    assert "graphviz" in findings["dot"]["advice"]
    assert str(installed.environment) in findings["pitfall_lab"]["fact"]
    assert PROJECT["version"] in findings["pitfall_lab"]["fact"]


def test_the_doctor_says_what_to_do_about_a_disabled_extension(installed: Installed) -> None:
    config = installed.environment / "etc" / "jupyter" / "labconfig" / "page_config.json"
    config.parent.mkdir(parents=True)
    config.write_text('{"disabledExtensions": {"pitfall-lab": true}}')
    try:
        done = installed.run("doctor")
    finally:
        config.unlink()
    assert done.returncode == 1
    assert "jupyter labextension enable pitfall-lab" in done.stdout


def test_an_installed_package_checks_and_shows_a_program(installed: Installed) -> None:
    (installed.folder / "mine.py").write_bytes((ROOT / "tests" / "programs" / "error_saved_output.py").read_bytes())
    checked = installed.run("check", "mine.py", "--json")
    assert checked.returncode == 1, checked.stderr
    assert json.loads(checked.stdout)["findings"][0]["name"] == "inplace-activation-or-residual"
    shown = installed.run("show", "mine.py", "-o", "page.html")
    assert shown.returncode == 0, shown.stderr
    assert "sigmoid" in (installed.folder / "page.html").read_text(encoding="utf-8")


def test_the_lab_outside_a_clone_copies_the_notebooks_and_never_overwrites_them(installed: Installed) -> None:
    (notebook,) = [installed.folder / "pitfall-lab" / "notebooks" / "00-start-here.ipynb"]
    _start_and_stop_the_lab(installed)
    assert json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    notebook.write_text("the learner's own work")
    notebook.with_name("12-inplace-errors.ipynb").unlink()
    _start_and_stop_the_lab(installed)
    assert notebook.read_text() == "the learner's own work"
    assert notebook.with_name("12-inplace-errors.ipynb").is_file()
    assert not list(installed.home.glob("*.ipynb"))


def _start_and_stop_the_lab(installed: Installed) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(installed.scripts / "pitfall-lab"), "lab", "--no-browser", "--port", str(port)]
    variables = {**installed.variables, "JUPYTER_TOKEN": "t"}
    process = subprocess.Popen(
        command, cwd=installed.folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        page = _first_answer(f"http://127.0.0.1:{port}/lab/tree/notebooks/00-start-here.ipynb?token=t", process)
    finally:
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=20)
    # The page names the extensions that it will load.
    assert '"name": "pitfall-lab"' in page or '"name":"pitfall-lab"' in page, output


def _first_answer(url: str, process: subprocess.Popen[str]) -> str:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.read().decode()
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)
    raise AssertionError(f"no answer from {url}")


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["show", "missing.py"], "cannot be read"),
        (["show", "README.md"], "neither a Python program"),
        (["show", "pyproject.json"], "cannot be read"),
        (["lab", "--port", "0"], "invalid port value"),
        (["lab", "--port", "many"], "invalid port value"),
        (["check", "missing.py"], "missing.py"),
        (["frobnicate"], "invalid choice"),
        ([], "required"),
    ],
)
def test_bad_input_gets_one_sentence_and_exit_code_2(words: list[str], sentence: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pitfall_lab", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2, done.stderr
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "{", '{"schema": 1, "events": 5}', '{"schema": 99}', "[1]", '"<script>"', "\x00"])
def test_a_file_that_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.json"
    path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pitfall_lab", "show", path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert "not a saved trace" in done.stderr


def test_a_port_in_use_is_said_before_anything_starts(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = ["lab", "--no-browser", "--folder", tmp_path, "--port", str(taken.getsockname()[1])]
        done = subprocess.run(
            [sys.executable, "-m", "pitfall_lab", *words], cwd=ROOT, capture_output=True, text=True, check=False
        )
    assert done.returncode == 2
    assert "is in use" in done.stderr
    assert list(tmp_path.iterdir()) == []
