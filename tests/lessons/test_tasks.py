"""The text of every task: it has one source, and it says what is graded, so that it can
be solved without its chapter.
"""

from __future__ import annotations

import ast
import re
from itertools import chain
from pathlib import Path
from typing import Any

import nbformat
import pytest

from pitfall_lab.classroom import assignment as assignments
from pitfall_lab.classroom.init import student_book
from pitfall_lab.lessons import tasks
from pitfall_lab.lessons.chapters import CHAPTERS
from pitfall_lab.lessons.exercise import Attempt, Exercise, Property, _try, _Wishes, grade
from pitfall_lab.lessons.exercises import exercises

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CODE = re.compile(r"`([^`\n]+)`")
SAID = {  # what a check asks for, and what the text then has to say
    "unchanged(": r"unchanged|as it is|as before|stays? (flat|as)|must stay|keep|returns a new one|not be changed|whatever",  # noqa: E501
    "shares(": r"memory|`t\.reshape",
    "in_place(": r"itself|\*same\*",
    "not stepped": r"no optimizer|without anything from `torch\.optim`|by hand",
    "as_many_calls": r"loop",
    "storages": r"memory",
    "finds_nothing": r"no(thing that a)? rule of pitfall_lab",
    "fails": r"raise|refuse",
    "updated_once": r"once|each|round",
    "_version": r"once|one",
    "requires_grad": r"requires? grad|graph|train|frozen|flag",
    ".dtype": r"dtype|float|int64",
    "isinstance(": r"number|float|a tensor",
}


def _asked(exercise: Exercise, prop: Property) -> str:
    """Everything that a property's check asks of a run, as text."""
    wishes = _Wishes()
    _try(prop, Attempt(exercise, exercise.given, wishes, Attempt(exercise, exercise.right[0], _Wishes())), {}, 0)
    asked = chain.from_iterable((run.drive.replace(exercise.drive, ""), *words) for run, words in wishes.wanted.items())
    return "\n".join((prop.check.__qualname__.partition(".")[0], *asked))


def _names_rules(prop: Property) -> bool:
    """Whether a check asks about certain rules, so that the task need not speak of all."""
    cells = dict(zip(prop.check.__code__.co_freevars, prop.check.__closure__ or (), strict=True))
    return bool("rules" in cells and cells["rules"].cell_contents)


@pytest.mark.parametrize("key", exercises())
def test_a_task_says_everything_that_is_graded(key: str) -> None:
    exercise = exercises()[key]
    for prop in exercise.properties:
        asked = _asked(exercise, prop)
        for sign, said in SAID.items():
            if sign in asked and exercise.kind != "predict" and not _names_rules(prop):
                assert re.search(said, f"{exercise.task.en}\n{exercise.given}", re.IGNORECASE), (prop.sentence.en, sign)


def test_every_kind_of_check_is_met() -> None:
    asked = [_asked(exercise, prop) for exercise in exercises().values() for prop in exercise.properties]
    assert all(any(sign in each for each in asked) for sign in SAID)


def _answers(source: str) -> set[str]:
    """The texts that an answer gives, without those that the table has already."""
    (table,) = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict))
    parts = chain.from_iterable(ast.walk(value) for value in table.values)
    return {part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)}


@pytest.mark.parametrize("key", [key for key, exercise in exercises().items() if exercise.kind == "predict"])
def test_a_task_names_the_words_that_an_answer_may_have(key: str) -> None:
    exercise = exercises()[key]
    free = key == "6.1"  # names that torch gives: the text says which
    for answer in _answers(exercise.right[0]):
        assert free or answer.lower() in exercise.task.en.lower(), answer
        assert free or answer.lower() in exercise.task.zh.lower(), answer
    assert not free or "grad_fn.name()" in exercise.task.en


@pytest.mark.parametrize("key", exercises())
def test_both_languages_say_the_same_about_the_code(key: str) -> None:
    task = exercises()[key].task
    en, zh = (set(CODE.findall(text)) for text in (task.en, task.zh))
    assert en == zh
    assert re.findall(r"\*\*", task.en) == re.findall(r"\*\*", task.zh)
    assert len(task.zh) * 5 > len(task.en)


@pytest.mark.parametrize("key", exercises())
def test_a_task_does_not_lean_on_its_chapter(key: str) -> None:
    assert not re.search(
        r"chapter|section|notebook|listing|(?<!elements )(?<!element of `t` )above|本章|上文",
        exercises()[key].task.en + exercises()[key].task.zh,
    )


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.file)
def test_the_chapter_has_the_tasks_as_they_are(chapter: Any) -> None:
    """``python -m pitfall_lab.lessons.tasks notebooks`` writes them."""
    book = nbformat.read(NOTEBOOKS / chapter.file, as_version=4)  # type: ignore[no-untyped-call]
    said = [cell.source for cell in book.cells if cell.cell_type == "markdown"]
    assert [tasks.written(source) for source in said] == said
    wanted = [tasks.markdown(e) for e in exercises().values() if e.chapter == f"{chapter.number:02}"]
    assert [source for source in said if any(source.endswith(task) for task in wanted)]
    assert sum(source.endswith(task) for task in wanted for source in said) == len(wanted)


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.file)
def test_a_short_notebook_and_the_preview_have_the_whole_task(chapter: Any) -> None:
    from pitfall_lab.classroom.preview import task_page

    made = assignments.of_chapters([chapter.number], ident="a-test", name="Test")
    book = nbformat.read(NOTEBOOKS / chapter.file, as_version=4)  # type: ignore[no-untyped-call]
    short = student_book(book, made, exercises_only=True)
    for exercise in (exercises()[key] for key in made.keys):
        (cell,) = (cell for cell in short.cells if cell.source.startswith(f"## Exercise {exercise.key} "))
        assert exercise.task.en in cell.source
        assert exercise.task.zh in cell.source
        assert exercise.title.en in cell.source
        for language in ("en", "zh"):
            page = task_page(exercise, language)
            assert tasks.paragraphs(exercise.task.say(language)) in page
            assert "`" not in re.sub(r"<pre.*?</pre>", "", page, flags=re.DOTALL)


def test_a_task_as_html() -> None:
    text = "Do *this* to `a < b`:\n\n> one *said*\n\n```python\nx = a ** b\n\n# `not` *here*\n```\n\nAnd **that**."
    assert tasks.paragraphs(text) == (
        "<p>Do <em>this</em> to <code>a &lt; b</code>:</p><blockquote><p>one <em>said</em></p></blockquote>"
        "<pre tabindex=0>x = a ** b\n\n# `not` *here*</pre><p>And <strong>that</strong>.</p>"
    )
    assert tasks.coded("<b> is `w`, not a * b * c") == "&lt;b&gt; is <code>w</code>, not a * b * c"


def test_the_writer_changes_the_task_alone() -> None:
    new = tasks.written("## 9 · Exercises\n\nGo.\n\n### Exercise 12.2 · Old\n\nOld text.")
    assert new == "## 9 · Exercises\n\nGo.\n\n" + tasks.markdown(exercises()["12.2"])
    assert tasks.written("### Exercise 99.1 · None\n\nText") == "### Exercise 99.1 · None\n\nText"


def test_a_reason_is_about_the_answer_and_not_about_the_graders_notes() -> None:
    def reasons(key: str, source: str) -> str:
        return str(grade(exercises()[key], source))

    no_step = reasons("12.3", "def losses(*_):\n    pass\n")
    assert "d does not run between d_step and g_step" in no_step
    assert "is not in list" not in no_step
    assert "KeyError" not in reasons(
        "9.3", "def counterexample():\n    p = nn.Parameter(torch.ones(3))\n    return p, p.detach()\n"
    )
    never = reasons("15.1", "def train(*_):\n    pass\n")
    assert "your cell did not get that far" in never
    assert "steps[0]" not in never
    assert "IndexError" not in never
    broken = reasons("12.4", "def counterexample():\n    x = = 1\n")
    assert "line 2 raises SyntaxError" in broken
    assert "Unmodelled" not in broken
    beyond = (
        "def counterexample():\n"
        "    w = torch.ones(2, requires_grad=True)\n"
        "    torch.linalg.svd(torch.ones(2, 2))\n"
        "    raise RuntimeError\n"
    )
    assert "Unmodelled" not in reasons("12.4", beyond)


def test_a_reason_has_no_name_that_only_the_grader_knows() -> None:
    from tests.lessons.spoken import reasons_of, unspoken

    exercise = exercises()["6.2"]
    wrong = grade(exercise, "def leaves(result):\n    return 7\n")
    assert [mark.reason.en for mark in wrong.marks if mark.reason][:2] == ["the result is 7", "the result is 7"]
    assert reasons_of(exercise, wrong) == []
    for said in ("counts[1] is 2", "nobody is 2", "counts[1] 是 2", "there is no counts[0]", "f(x).y(1) is 2"):
        assert unspoken(exercise, said), said
    photo = grade(exercises()["5.1"], exercises()["5.1"].given)
    assert "photo (or the memory that it is on) was changed" in str(photo)
    key = exercises()["1.1"]
    assert "shape" in str(grade(key, key.given))


def test_raising_an_error_of_its_own_is_no_backward_that_raises() -> None:
    from pitfall_lab.classroom.judge import known

    exercise = exercises()["12.4"]
    own = known(exercise, "def counterexample():\n    raise RuntimeError('modified by an inplace operation')\n")
    assert (own.status, own.credit) == ("failed", 0.0)
    twice = known(exercise, exercise.wrong[1])
    assert [mark.holds for mark in twice.marks] == [True, True, False, True]
    assert (twice.status, twice.detail) == ("partly", "")
    assert known(exercise, "def counterexample():\n    w = = 1\n").status == "error"
