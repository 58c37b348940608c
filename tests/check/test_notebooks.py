"""A notebook is checked cell after cell in one namespace; findings name the cell and the
line in it; magics do no harm.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

from pitfall_lab.check import Checked, Unchecked, Workshop, document, examine
from pitfall_lab.check.examine import repaired
from pitfall_lab.check.scripts import read
from pitfall_lab.check.settings import Settings
from pitfall_lab.check.terminal import Style, report

IMPORTS = "%matplotlib inline\nimport torch\n!pip list"
SAVED = "\n\nx = torch.ones(3, requires_grad=True)\nh = torch.sigmoid(x)"
CHANGED = "# times ten\nh.mul_(10)\nh"
BACKWARD = "h.sum().backward()"


@pytest.fixture(scope="module")
def shop() -> Iterator[Workshop]:
    with Workshop() as workshop:
        yield workshop


def notebook(folder: Path, *cells: str, tags: dict[int, list[str]] | None = None, language: str = "python") -> Path:
    made = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": language}}
    )
    made.cells = [nbformat.v4.new_markdown_cell("# A title")]
    made.cells += [
        nbformat.v4.new_code_cell(text, metadata={"tags": (tags or {}).get(n, [])})
        for n, text in enumerate(cells, start=1)
    ]
    path = folder / "book.ipynb"
    nbformat.write(made, path)
    return path


def looked_at(path: Path, shop: Workshop) -> Checked:
    return examine(path, shop, Settings(), name="book.ipynb")


def test_a_story_over_several_cells_names_each_cell_and_its_line(tmp_path: Path, shop: Workshop) -> None:
    checked = looked_at(notebook(tmp_path, IMPORTS, SAVED, CHANGED, BACKWARD), shop)
    (finding,) = document(checked)["findings"]
    assert (finding["rule"], finding["cell"], finding["line"], finding["end_line"]) == ("PL101", 3, 2, 2)
    assert [(r["role"], r["cell"], r["line"]) for r in finding["related"]] == [
        ("saved", 2, 4),
        ("changed", 3, 2),
        ("backward", 4, 1),
    ]
    assert finding["message"].startswith("Line 2 of cell 3 overwrites `h`, but the backward pass on line 1 of cell 4")
    edit = finding["fixes"][0]["edits"][0]
    assert (edit["cell"], edit["line"], edit["text"]) == (3, 2, "h = h * 10\n")
    assert document(checked)["error"]["cell"] == 4


def test_the_report_of_a_notebook_shows_cells(tmp_path: Path, shop: Workshop) -> None:
    checked = looked_at(notebook(tmp_path, IMPORTS, SAVED, CHANGED, BACKWARD), shop)
    assert checked.trace is not None
    text = report(checked.name, checked.trace, checked.findings, Style(script=checked.script))
    assert "book.ipynb:cell 3:2:1: error PL101" in text
    assert " cell 3:2 │ h.mul_(10)" in text
    assert "@@ cell 3 @@" in text


def test_a_fix_changes_its_line_of_its_cell_and_nothing_else_of_the_file(tmp_path: Path, shop: Workshop) -> None:
    path = notebook(tmp_path, IMPORTS, SAVED, CHANGED, BACKWARD)
    checked = repaired(path, shop, Settings())
    assert checked.script is not None
    assert checked.findings == ()
    before, after = json.loads(path.read_text()), json.loads(checked.script.raw)
    assert "".join(after["cells"][3]["source"]) == "# times ten\nh = h * 10\nh"
    before["cells"][3]["source"] = after["cells"][3]["source"] = ""
    assert before == after


def test_a_cell_that_may_raise_ends_and_the_next_ones_run(tmp_path: Path, shop: Workshop) -> None:
    last = "w = torch.ones(2, requires_grad=True)\nw += 1"
    path = notebook(tmp_path, IMPORTS, SAVED, CHANGED, BACKWARD, last, tags={4: ["raises-exception"]})
    found = [(f["rule"], f["severity"]) for f in document(looked_at(path, shop))["findings"]]
    assert found == [("PL201", "error"), ("PL101", "info")]


@pytest.mark.parametrize(
    ("cell", "note"),
    [
        ("%%bash\nrm -rf build", "begins with `%%bash`"),
        ("%%timeit\nh = 1", "begins with `%%timeit`"),
        ("async with something() as h:\n    pass", "uses `async`"),
    ],
)
def test_a_cell_that_is_no_python_of_the_notebook_is_left_out_with_a_note(
    cell: str, note: str, tmp_path: Path, shop: Workshop
) -> None:
    checked = looked_at(notebook(tmp_path, IMPORTS, cell, "y = 1"), shop)
    assert checked.exit_code == 0
    assert checked.script is not None
    assert [note in each.en and "cell 2" in each.en for each in checked.script.notes] == [True]


def test_await_outside_a_function_runs_as_in_a_notebook(tmp_path: Path, shop: Workshop) -> None:
    work = "import asyncio\n\nasync def work(t):\n    await asyncio.sleep(0)\n    return t.sigmoid()"
    path = notebook(
        tmp_path,
        IMPORTS,
        work,
        "x = torch.ones(2, requires_grad=True)\nh = await work(x)",
        "h += 1",
        "h.sum().backward()",
    )
    (finding,) = document(looked_at(path, shop))["findings"]
    assert (finding["rule"], finding["cell"], finding["line"]) == ("PL101", 4, 1)
    assert ("saved", 2, 5) in [(r["role"], r["cell"], r["line"]) for r in finding["related"]]
    assert finding["fixes"]


def test_a_shell_line_answers_with_an_empty_list(tmp_path: Path, shop: Workshop) -> None:
    assert looked_at(notebook(tmp_path, IMPORTS, "files = !ls\nprint(len(files))"), shop).exit_code == 0


@pytest.mark.parametrize(
    "cell",
    [
        "%%time\nvalue = 3",
        "%%pitfall\nvalue = 3",
        "%time value = 3",
        "%load_ext pitfall_lab\nvalue = 3",
        "files = !ls\n%cd ..\nlen?\nvalue = 3",
        "from __future__ import annotations\nvalue = 3",
        "display(3)\nvalue = 3",
        "!echo a \\\n  b\nvalue = 3",
    ],
)
def test_what_magics_stand_around_runs(cell: str, tmp_path: Path, shop: Workshop) -> None:
    checked = looked_at(notebook(tmp_path, cell, "assert value == 3"), shop)
    assert (checked.exit_code, checked.problem) == (0, None)
    assert checked.script is not None
    assert checked.script.text.count("\n") == checked.script.shown.count("\n")


REFUSED: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "is not a notebook that can be read"),
    "no notebook": ("[]", "is not a notebook that can be read"),
    "bytes": (b"\xff\xfe\x00", "is not a notebook that can be read"),
}


@pytest.mark.parametrize("title", REFUSED)
def test_what_is_no_notebook_is_one_sentence(title: str, tmp_path: Path) -> None:
    content, sentence = REFUSED[title]
    path = tmp_path / "book.ipynb"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(Unchecked, match=sentence):
        read(path)


def test_a_notebook_without_code_of_another_language_or_with_a_slip_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unchecked, match="has no code cells"):
        read(notebook(tmp_path))
    with pytest.raises(Unchecked, match="is a notebook for R, not for Python"):
        read(notebook(tmp_path, "x <- 1", language="R"))
    with pytest.raises(Unchecked, match=r"not valid Python \(cell 2, line 1"):
        read(notebook(tmp_path, "x = 1", "y = (", "z = 1"))


def test_cells_that_only_show_a_question_or_a_claim_are_not_run(tmp_path: Path) -> None:
    asking = 'import torch\nshown = pitfall_lab.question("x = 1")'
    cells = (
        "import pitfall_lab",
        "pitfall_lab.claim('no-such-claim').run()\npitfall_lab.question('x =')",
        asking,
        "pitfall_lab.claim",
    )
    script = read(notebook(tmp_path, *cells))
    assert [line for line in script.text.split("\n") if line] == [
        "import pitfall_lab",
        *asking.split("\n"),
        "pitfall_lab.claim",
    ]
    assert [note.en for note in script.notes] == [
        "cell 2 was left out: it shows only questions, claims or pictures of pitfall_lab"
    ]
    assert script.shown.count("\n") == script.text.count("\n")
