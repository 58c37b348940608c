"""What .github/CONTRIBUTING.md tells a contributor to do works, in a copy of the tree."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
FILE = re.compile(r"^`(pitfall_lab/[\w/]+\.py)`\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TRIED = re.compile(r"^Try it: ([^\n]*)\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SCRIPT = re.compile(r"^`(pitfall_lab/frontend/[\w/]+\.ts)`\n\n```ts\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TESTS = (
    "conftest.py", "turns.py", "slow.py", "workers.py", "rules/conftest.py", "rules/build.py", "rules/test_programs.py",
    "shadow/side_by_side.py", "shadow/test_entries.py",
)  # fmt: skip
LEFT_OUT = shutil.ignore_patterns("__pycache__", "frontend", "labextension", "docs", "*.png")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "pitfall_lab", folder / "pitfall_lab", ignore=LEFT_OUT)
    shutil.copytree(ROOT / "pitfall_lab" / "docs" / "rules", folder / "pitfall_lab" / "docs" / "rules")
    for name, text in FILE.findall(PAGE):
        assert not (folder / name).exists(), f"{name} exists: the recipe needs another example"
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_each_recipe_does_what_it_says(copy: Path) -> None:
    tried = TRIED.findall(PAGE)
    assert len(tried) == len(FILE.findall(PAGE)) == 3
    programs = "\n".join(
        f"exec(compile({text!r}, {title!r}, 'exec'), {{'__name__': '__main__'}})" for title, text in tried
    )
    where = f"import pitfall_lab\nassert pitfall_lab.__file__.startswith({str(copy)!r}), pitfall_lab.__file__\n"
    (copy / "try_it.py").write_text(where + programs, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(copy / "try_it.py")],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_files_of_the_recipes_keep_the_style(copy: Path) -> None:
    names = [name for name, _ in FILE.findall(PAGE)]
    shutil.copy(ROOT / "pyproject.toml", copy)
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *names], cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_operation_and_the_pitfall_pass_the_tests_that_the_page_names(copy: Path) -> None:
    for name in TESTS:
        (copy / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, copy / "tests" / name)
    shutil.copy(ROOT / "pyproject.toml", copy)
    named = re.findall(r"`python3 tests/run\.py (tests/\S+) -q -k (\w+)`", PAGE)
    assert len(named) == 2
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "0", "-v", "-p", "no:cacheprovider", *(test for test, _ in named),
         "-k", " or ".join(word for _, word in named)],
        cwd=copy, env={**os.environ, "PYTHONPATH": str(copy)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    for test, word in named:
        assert re.search(rf"^{re.escape(test)}::.*{word}.* PASSED", done.stdout, re.MULTILINE), (test, word)


def test_the_tab_uses_what_the_front_end_has() -> None:
    ((name, text),) = SCRIPT.findall(PAGE)
    folder = (ROOT / name).parent
    assert folder.is_dir()
    for names, module in re.findall(r"^import (?:type )?\{ (.*?) \} from \"(.*?)\";$", text, re.MULTILINE):
        there = (folder / f"{module}.ts").resolve().read_text(encoding="utf-8")
        missing = [
            each
            for each in names.split(", ")
            if not re.search(rf"^export (?:function|const|interface|type) {each}\b", there, re.MULTILINE)
        ]
        assert not missing, (module, missing)
    assert "VIEWS: View[]" in (folder / "index.ts").read_text(encoding="utf-8")
