"""``pitfall-lab book``: pages of executed notebooks that ask nobody for anything."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

from pitfall_lab.cli import main
from pitfall_lab.commands import book

v4 = nbformat.v4


def executed() -> nbformat.NotebookNode:
    """A notebook as it is after execution, with an output that has a widget and its twin."""
    shown = v4.new_output(
        "display_data",
        data={book.WIDGET: {"model_id": "x"}, "text/html": "<b id='twin'>twin</b>", "text/plain": "twin"},
    )
    script = v4.new_output("display_data", data={"text/html": "<script>alert(1)</script><i>kept</i>"})
    cells = [
        v4.new_markdown_cell("# The `title`\n\n[on](05-copies.ipynb#two) and [out](https://example.org/x.ipynb)"),
        v4.new_code_cell("secret_question()", outputs=[shown], metadata={"jupyter": {"source_hidden": True}}),
        v4.new_code_cell("visible = 1", outputs=[script]),
    ]
    return v4.new_notebook(cells=cells, metadata={"widgets": {"state": {}}})


def test_a_page_shows_the_twins_and_loads_nothing() -> None:
    page = book.page(executed(), "x")
    assert "<b id='twin'>" in page.replace('"', "'")
    assert "widget-view" not in page
    assert "<script" not in page
    assert "kept" in page
    assert not re.findall(r"""(?:src|href)=["']https?://(?!example)""", page)
    assert not re.findall(r"""@import|url\(["']?https?:""", page)
    assert 'href="05-copies.html#two"' in page
    assert 'href="https://example.org/x.ipynb"' in page
    assert "secret_question" not in page
    assert "visible" in page
    assert "<title>The title</title>" in page
    assert "prefers-color-scheme: dark" in page


def test_a_page_has_no_paths_of_the_machine_and_no_torn_progress_bars() -> None:
    own, library = (
        "Cell \x1b[0;32mIn[1], line 1\x1b[0m\n----> 1 f()",
        "File \x1b[0;32m/opt/env/site-packages/torch/x.py:7\x1b[0m, in g()",
    )
    error = v4.new_output("error", ename="E", evalue="no", traceback=[own, library, "E: no"])
    bar = v4.new_output("stream", name="stdout", text="start\rhalfway\rdone\nend\r\n")
    page = book.page(
        v4.new_notebook(cells=[v4.new_markdown_cell("# T"), v4.new_code_cell("f()", outputs=[bar, error])]), "x"
    )
    assert "site-packages" not in page
    assert "E: no" in page
    assert "halfway" not in page
    assert "done" in page
    assert "end" in page
    assert 'href="index.html"' in page


def test_notebooks_are_executed_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = v4.new_notebook(cells=[v4.new_markdown_cell("# One & two"), v4.new_code_cell("print(6 * 7)")])
    bad = v4.new_notebook(
        cells=[v4.new_markdown_cell("# Three"), v4.new_code_cell("1 / 0"), v4.new_code_cell("print('never')")]
    )
    nbformat.write(good, tmp_path / "01-good.ipynb")
    nbformat.write(bad, tmp_path / "02-bad.ipynb")
    assert main(["book", str(tmp_path), "-o", str(tmp_path / "out")]) == 1
    assert "(stopped: ZeroDivisionError: division by zero)" in capsys.readouterr().out
    assert "42" in (tmp_path / "out/01-good.html").read_text()
    assert (tmp_path / "out/02-bad.html").is_file()
    index = (tmp_path / "out/index.html").read_text()
    assert '<a href="01-good.html">One &amp; two</a>' in index
    assert nbformat.read(tmp_path / "01-good.ipynb", 4).cells[1].outputs == [], "the notebook itself is left alone"


REFUSED = [
    ("none.ipynb", "cannot be read"),
    ("text.ipynb", "is not a notebook"),
    (".", "nor a folder that holds one"),
    ("a.py", "is neither"),
]


@pytest.mark.parametrize(("name", "said"), REFUSED)
def test_what_is_no_notebook_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    if name == "text.ipynb":
        (folder / name).write_text("hello")
    assert main(["book", str(folder / name), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error
