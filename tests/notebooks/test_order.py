"""A kernel that was restarted, and cells that are run out of order: the reader is told what to do, and then it works."""

from __future__ import annotations

from pathlib import Path

import nbformat

from tests.notebooks.books import read, run, said

CELLS = {cell.id: cell.source for cell in read("12-inplace-errors.ipynb").cells}
SETUP, EXPLORER, QUESTION, EXERCISE = (CELLS[f"errors-{name}"] for name in ("setup", "central-run", "central-predict", "exercise-2"))
STATE = "print(h._version)"


def test_cells_out_of_order_say_what_is_missing_and_work_after_the_setup(tmp_path: Path) -> None:
    """A fresh kernel is what a restart leaves: nothing is loaded, whatever the page still shows."""
    fresh = [EXPLORER, QUESTION, EXERCISE, STATE]
    order = [*fresh, SETUP, EXERCISE, STATE, "%%pitfall\nh.add_(1)", QUESTION, EXPLORER, STATE, SETUP, EXPLORER]
    cells = [nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]}) for source in order]
    kernel = {"name": "python3", "display_name": "Python 3 (ipykernel)", "language": "python"}
    run(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), tmp_path)
    told = [said(cell) for cell in cells]
    # Before the setup: IPython's and Python's own words name what is missing; the start notebook says what to do then.
    assert "`%%pitfall` not found" in told[0]
    assert "name 'pitfall_lab' is not defined" in told[1]
    assert "`%%exercise` not found" in told[2]
    # After it: an exercise needs no other cell; what needs one says so, watched or not.
    assert "Exercise 12.2" in told[5]
    assert "nothing is called `h` in this kernel yet" in told[6]
    assert "run the cells above first" in told[7]
    assert "NameError" in told[7]
    assert "Because" in told[8]
    assert "0 disagreed" in told[9]
    assert told[10].strip() == "1"
    # The setup may run twice, and a page may have loaded the extension before.
    assert told[11] == ""
    assert "0 disagreed" in told[12]


def test_the_start_says_what_to_do_after_a_restart() -> None:
    start = "\n".join(cell.source for cell in read("00-start-here.ipynb").cells)
    for words in ("`%%pitfall` not found", "name 'pitfall_lab' is not defined", "Run › Run All Above Selected Cell"):
        assert words in start
