"""Misconceptions are told apart by programs: every one is exposed, every two are separated, and
the search finds the shortest.
"""

from __future__ import annotations

import itertools

import pytest

from pitfall_lab import shadow
from pitfall_lab.lessons import separation, worlds
from pitfall_lab.lessons.generator import LONGEST, candidates, smallest, source
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.lessons.separation import Matrix, matrix, page, programs, smallest_quiz


@pytest.fixture(scope="module")
def table() -> Matrix:
    return matrix()


def test_there_are_at_least_25_and_each_is_exposed(table: Matrix) -> None:
    assert len(table.beliefs) >= 25
    exposed = {belief for program in table.endings for belief in table.exposes(program)}
    assert exposed == set(MISCONCEPTIONS)


def test_every_two_are_told_apart(table: Matrix) -> None:
    told = frozenset().union(*(table.separates(program) for program in table.endings))
    assert table.all_pairs() - told == frozenset()


def test_the_quiz_separates_all_and_no_program_of_it_can_be_left_out(table: Matrix) -> None:
    quiz = smallest_quiz(table)
    assert len(quiz) < len(table.beliefs) / 3
    for chosen in (quiz, *itertools.combinations(quiz, len(quiz) - 1)):
        told = frozenset().union(*(table.separates(program) for program in chosen))
        assert (told == table.all_pairs()) == (chosen == quiz)


def test_the_search_for_the_quiz_is_exact() -> None:
    # Greedy takes the large program first and then needs two more; two programs suffice.
    held = ("detach_copies", "views_copy", "clone_shares_memory", "data_copies")
    torch, other = worlds.Ending("t"), [worlds.Ending(str(n)) for n in range(5)]
    rows = {
        "large": dict(zip(held, (other[0], other[1], other[2], torch), strict=True)),
        "left": dict(zip(held, (other[0], other[1], torch, torch), strict=True)),
        "right": dict(zip(held, (torch, torch, other[2], other[3]), strict=True)),
    }
    table = Matrix(held, dict.fromkeys(rows, torch), rows)
    assert sorted(smallest_quiz(table)) in (["left", "right"], ["large", "right"], ["large", "left"])
    with pytest.raises(ValueError, match="no program tells these apart"):
        smallest_quiz(Matrix(held, {"left": torch}, {"left": rows["left"]}))


@pytest.mark.parametrize("name", separation.QUIZ)
def test_what_the_matrix_says_of_torch_is_what_torch_does(name: str) -> None:
    program = programs()[name]
    assert worlds.ending(program, shadow.TORCH) == worlds.real(program)


def test_the_matrix_is_printed(table: Matrix) -> None:
    text = page(table)
    assert all(belief in text for belief in MISCONCEPTIONS)
    assert all(f"\n{program} " in text for program in programs())
    assert f"{len(MISCONCEPTIONS)} misconceptions, {len(MISCONCEPTIONS)} exposed" in text


# ---------------------------------------------------------------- the smallest program


@pytest.mark.parametrize(
    ("key", "statements"),
    [
        ("data_copies", 2),
        ("assignment_writes_in_place", 2),
        ("views_copy", 3),
        ("clone_shares_memory", 3),
        ("no_grad_zeroes_grads", 3),
    ],
)
def test_the_smallest_program_is_found_and_no_smaller_one_is_there(key: str, statements: int) -> None:
    belief = MISCONCEPTIONS[key]
    found = smallest(belief)
    assert found is not None
    assert worlds.seen(found, belief(shadow.TORCH)) != worlds.real_seen(found)
    assert smallest(belief, statements - 1) is None
    assert found in {source(program) for program in candidates(statements)}


def test_candidates_come_short_ones_first_and_use_what_they_make() -> None:
    assert LONGEST >= 4
    found = list(candidates(3))
    assert [len(program) for program in found] == sorted(len(program) for program in found)
    assert len({source(program) for program in found}) == len(found) > 500


# ---------------------------------------------------------------- two worlds


def test_two_worlds_part_at_the_first_line_that_differs() -> None:
    program = (
        "import torch\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "best = w.detach()\n"
        "with torch.no_grad():\n"
        "    w -= 0.5\n"
        "w.sum().backward()\n"
    )
    found = worlds.parting(program, MISCONCEPTIONS["detach_copies"])
    assert found == worlds.Parting(5, (("best", "[1, 1]", "[0.5, 0.5]"), ("best._version", "0", "1")))
    assert worlds.parting(program, MISCONCEPTIONS["reshape_never_copies"]) is None


def test_worlds_part_in_a_value_where_counters_are_not_what_was_predicted() -> None:
    program = "import torch\nt = torch.zeros(2, 1)\na, b = t[0], t.clone()[1]\na += 7\nb += 7\n"
    belief = MISCONCEPTIONS["clone_shares_memory"]
    counted, valued = worlds.parting(program, belief), worlds.parting(program, belief, values=True)
    assert counted == worlds.Parting(4, (("b._version", "1", "0"),))
    assert valued is not None
    assert (valued.line, valued.rows[0]) == (5, ("t", "[[7], [7]]", "[[7], [0]]"))
    assert worlds.parting(program.removesuffix("b += 7\n"), belief, values=True) == counted


def test_worlds_part_where_one_of_them_raises() -> None:
    program = "import torch\nw = torch.ones(2, requires_grad=True)\nw.mul_(2)\nprint(w)\n"
    found = worlds.parting(program, MISCONCEPTIONS["inplace_on_leaf_allowed"])
    assert found is not None
    assert found.line == 3
    assert ("raise", "—", "RuntimeError") in found.rows
    assert worlds.parting(program.replace("2)\n", "two)\n"), MISCONCEPTIONS["inplace_on_leaf_allowed"]) is None


def test_what_the_engine_has_no_model_of_is_not_guessed() -> None:
    program = "import torch\nt = torch.linalg.eigvalsh(torch.eye(2))\n"
    assert worlds.ending(program, shadow.TORCH) is None
    assert worlds.parting(program, MISCONCEPTIONS["views_copy"]) is None


def test_the_program_that_separates_beliefs_is_the_shortest_that_tells_most_apart() -> None:
    held = [MISCONCEPTIONS[key] for key in ("detach_copies", "views_copy", "clone_shares_memory")]
    found = worlds.separating(programs().values(), held)
    assert found == programs()["six ways to look at x"]
    assert worlds.separating([programs()["squeeze_keeps_batch"]], held) is None
