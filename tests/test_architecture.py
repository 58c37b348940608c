"""The layers of the package, the layout of the repository, and what must not be committed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "pitfall_lab"

# A layer may import itself, the layers named here, and nothing else of pitfall_lab. shadow and
# observe never meet but in verify.
LAYERS: dict[str, set[str]] = {
    "trace": set(),
    "shadow": {"trace"},
    "observe": {"trace"},
    "rules": {"trace"},
    "views": {"trace"},
    "verify": {"shadow", "observe", "trace"},
    "lessons": {"shadow", "rules", "verify", "trace"},
    "widgets": {"views", "lessons", "rules", "verify", "trace"},
    "check": {"rules", "verify", "observe", "trace"},
    "panel": {"views", "rules", "observe", "trace"},
    "notebook": {"panel", "check", "widgets", "views", "lessons", "rules", "verify", "observe", "trace"},
    "classroom": {"notebook", "check", "lessons", "verify", "trace"},
    "reference": {"views", "check", "rules", "verify", "trace"},
    "commands": {"reference", "classroom", "check", "views", "lessons", "rules", "verify", "trace"},
}
LIBRARY = {"trace", "shadow", "observe", "rules", "views", "verify", "lessons", "widgets"}
"""Rooms that know nothing of commands: they import no module on top but those :data:`BELOW`, and
torch only where it is named.
"""
# What a layer may import besides the standard library and pitfall_lab; None: anything but torch.
OUTSIDE: dict[str, set[str] | None] = {
    "trace": set(),
    "shadow": {"numpy"},
    "observe": {"torch", "numpy"},
    "verify": {"torch", "numpy"},
    "rules": set(),
    "views": {"graphviz", "matplotlib"},
    "lessons": {"numpy"},
    "widgets": {"anywidget", "ipywidgets", "traitlets", "IPython"},
    "": None,
}
STARTER = "processes"
"""The one module that starts other programs."""
BELOW = {STARTER, "resources"}
"""The modules beside the rooms that any of them may import: they import nothing of ours."""
STARTS = {"subprocess", "multiprocessing", "concurrent.futures.process", "runpy", "pty", "asyncio.subprocess"}
"""Modules that start processes or run files."""
TOP_LEVEL = {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "pitfall_lab", "notebooks", "tests", "binder"}


def tracked() -> list[Path]:
    """Files that git knows or would add: what a commit of everything would hold."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file()]


def texts() -> list[tuple[str, str]]:
    """Tracked text files as (path from the root, text)."""
    out = []
    for path in tracked():
        try:
            out.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    return out


@cache
def imports(path: Path) -> frozenset[str]:
    """Absolute names of the modules that a file imports anywhere in it."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, [base, node.module]))
            # `from pitfall_lab import views` imports a layer; `from pitfall_lab.views import
            # page` does so by its module.
            found |= {f"{module}.{alias.name}" for alias in node.names} if module == "pitfall_lab" else {module}
    return frozenset(found)


def modules() -> list[Path]:
    # lessons/gpu/programs holds programs that are run in processes of their own: data, not modules.
    return sorted(p for p in PACKAGE.rglob("*.py") if "node_modules" not in p.parts and "programs" not in p.parts)


def room_of(path: Path) -> str:
    """The folder of the package in which a module is; empty for one on top."""
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


ROOMS = sorted({room_of(path) for path in modules()})


@pytest.mark.parametrize("layer", ROOMS)
def test_a_module_imports_only_from_the_layers_below_it(layer: str) -> None:
    allowed_outside = OUTSIDE.get(layer)
    for path, name in [(each, name) for each in modules() if room_of(each) == layer for name in sorted(imports(each))]:
        top, *rest = name.split(".")
        if top == "pitfall_lab":
            if layer in LAYERS and rest and (PACKAGE / rest[0]).is_dir():
                assert rest[0] == layer or rest[0] in LAYERS[layer], f"{path}: {layer} may not import {name}"
            elif layer in LIBRARY and rest and not (len(rest) == 1 and rest[0] in BELOW):
                pytest.fail(f"{path}: {layer} may not import {name}: the modules on top stand above the layers")
        elif top not in sys.stdlib_module_names:
            assert top != "torch" or layer in {"observe", "verify"}, f"{path}: only observe and verify import torch"
            if allowed_outside is not None:
                assert top in allowed_outside, f"{path}: {layer} may not import {name}"


def test_one_module_starts_processes_so_that_none_finds_modules_in_the_current_folder() -> None:
    starter = PACKAGE / f"{STARTER}.py"
    assert not [name for name in imports(starter) if name.startswith("pitfall_lab")]
    for path in set(modules()) - {starter}:
        watches = (
            {"multiprocessing"} if path == PACKAGE / "observe" / "forks.py" else set()
        )  # it notices processes, and starts none
        assert not imports(path) & STARTS - watches, path
        starts = r"ProcessPoolExecutor|os\.(?:system|popen|exec|spawn|posix_spawn)|\.pipe\(format"
        assert not re.search(starts, path.read_text(encoding="utf-8")), path


def test_every_package_folder_is_a_known_layer() -> None:
    known = {*LAYERS, "frontend", "labextension", "jupyter", "static", "notebooks"}
    folders = {
        p.relative_to(PACKAGE).parts[0]
        for p in tracked()
        if p.is_relative_to(PACKAGE) and len(p.relative_to(PACKAGE).parts) > 1
    }
    # Pictures for the README live in the package, beside what they show.
    assert folders - {"docs"} <= known


def test_a_name_belongs_to_one_module() -> None:
    # A view is named for what it draws, with the same modules in each view's folder; a command for what it is called,
    # a family of operations as its section of the page.
    free = ("views/", "shadow/ops", "commands", "lessons/exercises")
    named: dict[str, list[str]] = {}
    for path in modules():
        *folders, last = path.relative_to(PACKAGE).with_suffix("").parts
        name = folders[-1] if last == "__init__" and folders else last
        place = "/".join(folders)
        if not place.startswith(free) and (folders or last != "__init__"):
            named.setdefault(name, []).append(f"{place}/{last}")
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_the_top_level_holds_only_what_the_layout_names() -> None:
    top = {p.relative_to(ROOT).parts[0] for p in tracked()}
    assert {name for name in top if not name.startswith(".")} <= TOP_LEVEL


@pytest.mark.parametrize(
    "code",
    [
        "import pitfall_lab",
        "import pitfall_lab; dir(pitfall_lab)",
        "import pitfall_lab.trace",
        "import pitfall_lab.cli; pitfall_lab.cli.build_parser()",
        "import pitfall_lab.cli; pitfall_lab.cli.build_parser('check')",
        "import pitfall_lab.cli; pitfall_lab.cli.build_parser('show')",
        "import pitfall_lab.rules",
        "import pitfall_lab.shadow",
        "import pitfall_lab.views",
    ],
)
def test_importing_does_not_bring_torch(code: str) -> None:
    program = f"{code}\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    everywhere = r"(?!opt/tljh/)"  # where The Littlest JupyterHub is
    absolute = re.compile(
        rf"(?<![\w.~*)\]}}$-])/{everywhere}(?:home|root|opt|mnt|srv|Users|work|workspace|private)/[A-Za-z_.]"
    )
    here = {f"{ROOT.parent}/"} - {"//", "/"}
    faults = []
    for name, text in texts():
        faults += [
            f"{name}: {line.strip()[:120]}"
            for line in text.splitlines()
            if absolute.search(line) or any(h in line for h in here)
        ]
    assert faults == []


def test_packages_come_from_public_registries_only() -> None:
    faults = []
    for name, text in texts():
        if name.endswith("package-lock.json"):
            urls = re.findall(r'"resolved": "([^"]+)"', text)
            faults += [f"{name}: {url}" for url in urls if not url.startswith("https://registry.npmjs.org/")]
        if name.startswith("binder/") or name in {"pyproject.toml", ".ci/run"}:
            faults += [
                f"{name}: {url}"
                for url in re.findall(r"index-url[ =]+(\S+)", text)
                if url != "https://download.pytorch.org/whl/cpu"
            ]
    assert faults == []


def test_nothing_is_left_to_do_or_skipped() -> None:
    # Put together here, so that this file does not find itself.
    words = re.compile(
        "TO" + "DO|FIX" + "ME|raise NotImplemented" + r"Error|mark\.(?:skip|x" + r"fail)|pytest\.(?:skip|x" + r"fail)\("
    )
    faults = []
    for name, text in texts():
        if name.endswith((".py", ".ts", ".toml", ".md")) and "/static/" not in name and "/labextension/" not in name:
            faults += [
                f"{name}:{n}: {line.strip()[:100]}" for n, line in enumerate(text.splitlines(), 1) if words.search(line)
            ]
    assert faults == []


def notebooks() -> list[Path]:
    return sorted(p for p in tracked() if p.suffix == ".ipynb")


@pytest.mark.parametrize("path", notebooks(), ids=lambda p: p.name)
def test_notebooks_are_committed_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    for cell in notebook["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert "widgets" not in notebook["metadata"]


def test_no_committed_file_is_large() -> None:
    assert {p.relative_to(ROOT).as_posix(): p.stat().st_size for p in tracked() if p.stat().st_size > 1_500_000} == {}


def _imported(path: Path) -> set[Path]:
    """The files of ours that a file imports when it runs: at its top or in a function, not for types alone."""
    package, found = path.relative_to(ROOT).with_suffix("").parts[:-1], set()
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}:
            waiting += node.orelse
            continue
        waiting += ast.iter_child_nodes(node)
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *filter(None, [node.module])])
            names = [f"{module}.{alias.name}" for alias in node.names]
            names += [] if all(_file(name) for name in names) else [module]
        found |= {each for name in names if (each := _file(name)) is not None}
    return found - {path}


def _file(module: str) -> Path | None:
    """The file of a module of ours."""
    place = ROOT.joinpath(*module.split("."))
    return next((each for each in (place.with_suffix(".py"), place / "__init__.py") if each.is_file()), None)


def _circles(arrows: dict[Path, set[Path]]) -> list[list[str]]:
    """Files that import each other, directly or through others, one list for each knot."""
    left = dict(arrows)
    while done := {path for path in left if not arrows[path] & left.keys()}:
        left = {path: there for path, there in left.items() if path not in done}
    reached: dict[Path, set[Path]] = {}
    for start in left:
        seen, waiting = set(), [start]
        while waiting:
            new = left.get(waiting.pop(), set()) - seen
            seen |= new
            waiting += new
        reached[start] = seen
    knots = {frozenset(b for b in reached[a] & left.keys() if a in reached[b]) for a in left if a in reached[a]}
    return [sorted(each.relative_to(ROOT).as_posix() for each in knot) for knot in knots]


def test_no_file_imports_itself_through_others() -> None:
    # What only the types of annotations need (``if TYPE_CHECKING``) is no import when the program runs.
    arrows = {path: _imported(path) for path in modules()}
    assert sum(map(len, arrows.values())) > 2000
    assert _circles(arrows) == []


def test_a_circle_of_files_is_seen(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in "abc")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(globals(), "ROOT", tmp_path)
        assert _circles({a: {b}, b: {c}, c: {b}}) == [["b", "c"]]
        assert _circles({a: {b, c}, b: {c}, c: set()}) == []


def test_an_import_inside_a_function_gives_its_reason() -> None:
    # ruff's PLC0415 refuses the others.
    pattern = re.compile(r"noqa:[^\n]*PLC0415(?P<why> - \S+ \S+ \S+)?")
    found = [(path.name, each["why"]) for path in modules() for each in pattern.finditer(path.read_text("utf-8"))]
    assert len(found) > 30
    assert [name for name, why in found if not why] == []
    assert '"PLC0415"' not in (ROOT / "pyproject.toml").read_text("utf-8").split("per-file-ignores")[0]


def test_a_class_name_belongs_to_one_class() -> None:
    named: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                named.setdefault(node.name, []).append(path.relative_to(PACKAGE).as_posix())
    assert len(named) > 500
    assert {name: places for name, places in named.items() if len(places) > 1} == {}


def test_no_file_is_left_out_of_the_checks() -> None:
    # A whole file's exemption names what it allows (signatures that are torch's) and why; none is from types or length.
    for name, text in texts():
        if name.endswith(".py") and name != "tests/test_architecture.py":
            assert not re.search(r"^# (?:mypy: |type: ignore|ruff: noqa *$)", text, re.MULTILINE), name
            assert not re.search(r"^# ruff: noqa:(?![^\n]* - )|^# ruff: noqa:[^\n-]*E501", text, re.MULTILINE), name


def test_no_function_is_written_twice() -> None:
    written: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) is not None else node.body
                text = "\n".join(map(ast.unparse, body))
                if text.count("\n") >= 3:
                    written.setdefault(text, []).append(f"{path.relative_to(PACKAGE).as_posix()}: {node.name}")
    assert len(written) > 3000
    assert [places for places in written.values() if len(places) > 1] == []
