"""Which rows a program picked by a NumPy array or a list is in the trace; of long tables, an even part."""

from __future__ import annotations

import pytest

from pitfall_lab.trace import Trace
from pitfall_lab.verify import trace_program

HEAD = "import numpy as np, torch\nx = torch.zeros(6, 2)\nrows = np.array([4, -1, 4])\n"


def picked(text: str) -> list[tuple[int, tuple[int, ...]]]:
    return [(each.every, each.rows) for each in trace_program(HEAD + text).beside.picked]


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("x[rows]", (4, 5)),
        ("x[[0, 2]]", (0, 2)),
        ("x[np.arange(6) > 3]", (4, 5)),
        ("x[[True, False, False, False, False, True]]", (0, 5)),
        ("x[np.array([1, 2], dtype=np.int16)]", (1, 2)),
    ],
)
def test_the_rows_are_kept_counted_from_the_front(text: str, rows: tuple[int, ...]) -> None:
    assert picked(text) == [(1, rows)]


@pytest.mark.parametrize(
    "text",
    ["x[1]", "x[1:3]", "x[torch.tensor([1])]", "x[np.array([[1, 2]])]", "x[np.ones(6, np.uint8)]", "x[:, rows % 2]"],
)
def test_other_indices_are_left_out(text: str) -> None:
    assert picked(text) == []


def test_of_a_long_table_every_so_many_th_row_is_kept_and_equal_picks_once() -> None:
    trace = trace_program(
        "import numpy as np, torch\nx = torch.zeros(1000)\nfor _ in range(3):\n    x[np.arange(1000)]\n"
    )
    (each,) = trace.beside.picked
    assert (each.every, each.rows) == (8, tuple(range(0, 1000, 8)))
    assert [trace.events[step].name for step in each.steps] == ["__getitem__"] * 3
    assert Trace.from_json(trace.to_json()).beside.picked == (each,)
