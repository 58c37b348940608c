"""An exercise is graded by what the learner's code does, and an unsolved one is no error."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import grade


def test_each_property_is_marked_on_its_own() -> None:
    done = grade({"holds": lambda: True, "does not": list, "raises": lambda: {}["<key>"]})
    assert [m.holds for m in done.marks] == [True, False, False]
    assert done.marks[2].reason == "KeyError: '<key>'"
    assert not done.solved
    assert "1 of 3 hold" in str(done)


def test_a_grade_is_shown_escaped() -> None:
    shown = grade({"<b>": lambda: 1 / 0})._repr_mimebundle_()
    assert "&lt;b&gt;" in shown["text/html"]
    assert "<b>" not in shown["text/html"]
    assert shown["text/plain"].startswith("○ <b>")


def test_everything_holding_is_solved() -> None:
    assert grade({"a": lambda: 1}).solved


def test_the_same_reason_is_given_once_and_shortly() -> None:
    def broken() -> bool:
        raise RuntimeError("one long sentence " * 30)

    first, second = grade({"a": broken, "b": broken}).marks
    assert first.reason.startswith("RuntimeError: one long")
    assert len(first.reason) <= 160
    assert second.reason == "the same"
