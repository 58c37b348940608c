"""Slow tests take turns, and none is left out for good."""

from __future__ import annotations

import pytest

from tests import slow, turns

LOG = """
============================= slowest durations =============================
3.10s call     tests/rules/test_programs.py::test_a[PL101]
1.50s setup    tests/views/test_page.py::test_b
1.25s call     tests/views/test_page.py::test_b
2.00s teardown tests/views/test_page.py::test_c
"""


def test_setup_and_call_of_a_test_are_added() -> None:
    assert slow.read(LOG) == [
        (3.1, "tests/rules/test_programs.py::test_a[PL101]"),
        (2.75, "tests/views/test_page.py::test_b"),
    ]


def test_each_slow_test_runs_on_one_of_the_days_and_every_other_test_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "slow", lambda: {"a": 0, "b": 1, "c": 2, "d": slow.DAYS})
    monkeypatch.setattr(slow, "EVERYTHING", False)
    taken = []
    for turn in range(2 * slow.DAYS, 3 * slow.DAYS):
        monkeypatch.setattr(slow, "TURN", turn)
        taken.append({name for name in "abcde" if not slow.is_left_out(name)})
    ordinary: list[set[str]] = [{"e"}] * (slow.DAYS - 3)
    assert taken == [{"a", "d", "e"}, *ordinary, {"c", "e"}, {"b", "e"}]
    monkeypatch.setattr(slow, "EVERYTHING", True)
    assert not any(slow.is_left_out(name) for name in "abcde")


def test_a_file_with_a_long_beginning_has_its_days_and_its_slow_tests_have_turns_on_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = [f"{file}::test_a[{n}]" for files in slow.DAYS_OF_FILES for file in files for n in range(3)]
    monkeypatch.setattr(slow, "slow", lambda: {name: place for place, name in enumerate(names) if "[0]" not in name})
    monkeypatch.setattr(slow, "EVERYTHING", False)
    ran: list[str] = []
    for turn in range(len(slow.DAYS_OF_FILES) * slow.DAYS):
        monkeypatch.setattr(slow, "TURN", turn)
        ran += [name for name in names if not slow.is_left_out(name)]
    assert {name: ran.count(name) for name in names} == {name: slow.DAYS if "[0]" in name else 1 for name in names}
    assert all((slow.LIST.parent.parent / file).is_file() for files in slow.DAYS_OF_FILES for file in files)


def test_each_of_very_many_cases_runs_on_one_of_the_days(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow, "slow", lambda: {"tests/shadow/test_a.py::test_many[3]": 0})
    monkeypatch.setattr(turns, "EVERYTHING", False)
    many = [f"tests/shadow/test_a.py::test_many[{n}]" for n in range(slow.MANY)]
    few = [
        "tests/shadow/test_a.py::test_few[0]",
        "tests/shadow/test_a.py::test_plain",
        "tests/rules/test_b.py::test_c[0]",
    ]
    once = [*many[:3], *many[4:]]
    ran: list[str] = []
    for turn in range(slow.ROUNDS):
        monkeypatch.setattr(turns, "TURN", turn)
        waits = slow.waiting([*many, many[3] + "x", *few])
        assert waits < {*once, many[3] + "x"}
        ran += [name for name in once if name not in waits]
    assert sorted(ran) == sorted(once)
    monkeypatch.setattr(turns, "EVERYTHING", True)
    assert slow.waiting(many) == set()


def test_what_takes_turns_by_itself_is_not_in_the_list() -> None:
    for file in {name.partition("::")[0] for name in slow.slow()} - {"tests/test_slow.py"}:
        assert "todays" not in (slow.LIST.parent.parent / file).read_text(encoding="utf-8"), file
