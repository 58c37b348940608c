"""What .github/CONTRIBUTING.md tells a contributor to do works, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frontend import checks

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(r"^`(pitfall_lab/[\w/]+\.py)`\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CHANGED = re.compile(r"^`(pitfall_lab/[\w/]+\.py)`\n\n((?:```diff\n.*?^```\n\n)+)", re.MULTILINE | re.DOTALL)
TRIED = re.compile(r"^Try it: ([^\n]*)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
WORDS = "pitfall_lab/trace/words.py"
SCRIPT = re.compile(r"^`(pitfall_lab/frontend/[\w/]+\.ts)`\n\n```ts\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TESTS = (
    "conftest.py", "turns.py", "slow.py", "workers.py", "rules/conftest.py", "rules/build.py", "rules/test_programs.py",
    "shadow/side_by_side.py", "shadow/test_entries.py", "lessons/test_exercises.py", "lessons/cheats.py",
    "lessons/spoken.py", "lessons/tried.txt",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("__pycache__", "frontend", "labextension", "docs", "*.png")


def changed(text: str, diffs: str) -> str:
    """``text`` after the changes: what they show, without the lines that they add, has to be in it once."""
    for diff in re.findall(r"```diff\n(.*?)^```$", diffs, re.MULTILINE | re.DOTALL):
        lines = diff.splitlines(keepends=True)
        old, new = ("".join(line[1:] for line in lines if line[0] != sign) for sign in "+-")
        assert text.count(old) == 1, diff
        text = text.replace(old, new)
    return text


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "pitfall_lab", folder / "pitfall_lab", ignore=LEFT_OUT)
    shutil.copytree(ROOT / "pitfall_lab" / "docs" / "rules", folder / "pitfall_lab" / "docs" / "rules")
    for name, text in FILE.findall(PAGE):
        assert not (folder / name).exists(), f"{name} exists: the recipe needs another example"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name, diffs in CHANGED.findall(PAGE):
        if name != WORDS:  # with a language that no text has, nothing can be imported
            (folder / name).write_text(changed((folder / name).read_text("utf-8"), diffs), encoding="utf-8")
    return folder


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with the copy's package."""
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_each_recipe_does_what_it_says(copy: Path) -> None:
    tried = TRIED.findall(PAGE)
    assert len(FILE.findall(PAGE)) == 4
    assert len(tried) == 5
    programs = "\n".join(
        f"exec(compile({text!r}, {title!r}, 'exec'), {{'__name__': '__main__'}})" for title, text in tried
    )
    where = f"import pitfall_lab\nassert pitfall_lab.__file__.startswith({str(copy)!r}), pitfall_lab.__file__\n"
    (copy / "try_it.py").write_text(where + programs, encoding="utf-8")
    done = run(copy, "try_it.py")
    assert done.returncode == 0, done.stderr[-3000:]
    # The chapter: its task is written, and it is executed.
    for words in (
        ("-m", "pitfall_lab.lessons.tasks", "notebooks"),
        ("-m", "pitfall_lab", "book", "notebooks/20-rounding.ipynb"),
    ):
        assert f"`python {' '.join(words)}`" in PAGE
        done = run(copy, *words)
        assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "halves up: 0.5 to 1, -1.5 to -1" in (copy / "notebooks" / "20-rounding.ipynb").read_text("utf-8")
    assert "20 · Rounding" in (copy / "book" / "20-rounding.html").read_text("utf-8")


def test_a_third_language_is_listed_where_it_lacks(tmp_path: Path) -> None:
    ((name, diffs),) = [pair for pair in CHANGED.findall(PAGE) if pair[0] == WORDS]
    shutil.copytree(ROOT / "pitfall_lab" / "trace", tmp_path / "pitfall_lab" / "trace")
    (tmp_path / "pitfall_lab" / "__init__.py").touch()
    (tmp_path / name).write_text(changed((ROOT / name).read_text("utf-8"), diffs), encoding="utf-8")
    words = ("-m", "mypy", "pitfall_lab/trace")
    assert f"`python {' '.join(words)}`" in PAGE
    done = run(tmp_path, *words)
    lacking = re.findall(r"^(\S+?):\d+: error: Missing (?:named|positional) argument \"de\"", done.stdout, re.MULTILINE)
    assert len(set(lacking)) >= 3, done.stdout + done.stderr
    assert not re.findall(r"^pitfall_lab/trace/words\.py:.*error", done.stdout, re.MULTILINE), done.stdout


def test_the_files_of_the_recipes_keep_the_style(copy: Path) -> None:
    names = [name for name, _ in FILE.findall(PAGE)]
    shutil.copy(ROOT / "pyproject.toml", copy)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *names], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_operation_the_pitfall_and_the_exercise_pass_the_tests_that_the_page_names(copy: Path) -> None:
    for name in TESTS:
        (copy / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, copy / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    named = re.findall(r"`python3 tests/run\.py (tests/\S+) -q -k ([\w.]+)`", PAGE)
    assert len(named) == 3
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-v", "-p", "no:cacheprovider", *(test for test, _ in named),
         "-k", " or ".join(word for _, word in named)],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for test, word in named:
        assert re.search(rf"^{re.escape(test)}::.*{re.escape(word)}.* PASSED", done.stdout, re.MULTILINE), (test, word)


def test_the_tab_is_registered_by_its_folder_and_fits_the_types(copy: Path) -> None:
    ((name, text),) = SCRIPT.findall(PAGE)
    front = copy / "pitfall_lab" / "frontend"
    shutil.copytree(ROOT / "pitfall_lab" / "frontend" / "src", front / "src")
    (copy / name).write_text(text, encoding="utf-8")
    done = run(copy, "-m", "pitfall_lab.reference.browser_types")
    assert done.returncode == 0, done.stderr
    assert "  dtypes: DtypesScene;" in (front / "src" / "core" / "wire.ts").read_text("utf-8")
    listed = (front / "src" / "views" / "index.ts").read_text("utf-8")
    assert 'import { dtypes } from "./dtypes";' in listed
    assert re.search(r"[\[ ]dtypes[,\]]", listed.splitlines()[-1]), "its tab is in the list of views"
    for names, module in re.findall(r"^import (?:type )?\{ (.*?) \} from \"(.*?)\";$", text, re.MULTILINE):
        there = (copy / name).parent.joinpath(f"{module}.ts").resolve().read_text(encoding="utf-8")
        missing = [
            each
            for each in names.split(", ")
            if not re.search(rf"^export (?:function|const|interface|type) {each}\b", there, re.MULTILINE)
        ]
        assert not missing, (module, missing)
    # Where the front end's packages are installed, TypeScript and Biome judge the file as the build does.
    installed = ROOT / "pitfall_lab" / "frontend"
    if (installed / checks.INSTALLED).is_file():
        for settings in ("package.json", "tsconfig.json", "biome.jsonc"):
            shutil.copy(installed / settings, front)
        (front / "node_modules").symlink_to(installed / "node_modules")
        for tool in (["tsc", "--noEmit"], ["biome", "check", "src/views/dtypes.ts", "src/views/index.ts"]):
            program = installed / "node_modules" / ".bin" / tool[0]
            done = subprocess.run([program, *tool[1:]], cwd=front, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
