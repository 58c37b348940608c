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
    programs = "\n".join(f"exec(compile({text!r}, {title!r}, 'exec'), {{'__name__': '__main__'}})" for title, text in tried)
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
    done = subprocess.run([sys.executable, "-m", "ruff", "check", *names], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
