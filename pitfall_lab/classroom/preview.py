"""Before it is handed out: :func:`write_preview` writes the answer key, the tasks as students see them, and the page
that a student gets back.

The answers here are the course's own, so they are run in this process and without a fence.
"""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from pitfall_lab.classroom import report
from pitfall_lab.classroom.assignment import Assignment
from pitfall_lab.classroom.judge import known
from pitfall_lab.classroom.ledger import settled
from pitfall_lab.classroom.register import Row, versions
from pitfall_lab.cli import Refusal
from pitfall_lab.lessons.exercise import Exercise
from pitfall_lab.lessons.exercises import exercises
from pitfall_lab.lessons.tasks import coded, inline, paragraphs
from pitfall_lab.trace import Language, T

_WORDS = {
    "key": T(en="Answer key", zh="参考答案"),
    "student": T(en="What a student sees", zh="学生所见"),
    "returned": T(en="What a student gets back", zh="返还给学生的页面"),
    "right": T(en="Right", zh="正确"),
    "wrong": T(en="Wrong, and why", zh="错误及原因"),
    "given": T(en="The cell as it is given", zh="原题单元格"),
    "holds": T(en="What a solution must do", zh="解答须满足"),
    "points": T(en="points: {worth:g}", zh="分值：{worth:g}"),
    "got": T(en="Points: {got:.3g} of {worth:g}", zh="得分：{got:.3g}/{worth:g}"),
    "hints": T(en="Hints", zh="提示"),
    "had": T(en="as given", zh="原题已有"),
    "rule": T(
        en="Points: a solved exercise has all of its points. Otherwise each property that the given cell lacks is "
        "worth an equal share of the points: an answer gets a share for each of them that it has, and loses one for "
        "each property of the given cell that it no longer has. What the given cell has is marked [as given]; it "
        "earns nothing by itself. If everything that holds would also hold for a function that does nothing (it "
        "returns a constant, or its argument as it is), the exercise earns 0.",
        zh="评分：全部性质成立得满分。否则，原题单元格所缺的每项性质占相等的分值：答案每具备一项得一份，"
        "每失去一项原题具备的性质扣一份。原题单元格已具备的标有 [原题已有]，本身不得分。"
        "若成立的性质，什么都不做的函数（返回常数或原样返回参数）也都具备，则该题得 0 分。",
    ),
    "example": T(en="an example: one answer right, the others wrong", zh="示例：一题正确，其余错误"),
}


def write_preview(folder: Path, assignment: Assignment, language: Language) -> dict[str, Path]:
    """Write three pages into ``folder``: the answers, the tasks, and a student's page of results; return the path of
    each by its title.

    Raises :class:`~pitfall_lab.cli.Refusal` if they cannot be written.
    """
    chosen = [exercises()[key] for key in assignment.keys]
    texts = {
        "key": f"<p>{_say('rule', language)}</p>"
        + "".join(_answers(exercise, assignment, language) for exercise in chosen),
        "student": "".join(task_page(exercise, language) for exercise in chosen),
    }
    pages = {
        name: report.page(f"{_WORDS[name].say(language)} · {assignment.name}", text, language)
        for name, text in texts.items()
    }
    outcomes = [known(exercise, exercise.wrong[0] if n else exercise.right[0]) for n, exercise in enumerate(chosen)]
    (entry,) = settled(assignment, [Row(_WORDS["example"].say(language), "", tuple(outcomes), versions=versions())])
    pages["returned"] = report.student_page(assignment, entry, language)
    written = {}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in pages.items():
            written[_WORDS[name].say(language)] = path = folder / f"{name}.html"
            path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as problem:
        raise Refusal(f"The pages cannot be written into {folder}: {problem.strerror}.") from None
    return written


def task_page(exercise: Exercise, language: Language) -> str:
    """What a student gets of an exercise, as HTML: the task, the given cell, the graded properties, and the hints."""
    hints = "".join(f"<li>{inline(hint.say(language))}</li>" for hint in exercise.hints)
    return (
        f"<h2>{escape(exercise.key)} · "
        f"{inline(exercise.title.say(language))}</h2>{paragraphs(exercise.task.say(language))}<h3>"
        f"{_say('given', language)}</h3>{_code(f'%%exercise {exercise.key}' + chr(10) + exercise.given)}<h3>"
        f"{_say('holds', language)}</h3>{_list(prop.sentence.say(language) for prop in exercise.properties)}<h3>"
        f"{_say('hints', language)}</h3><ol>{hints}</ol>"
    )


def _answers(exercise: Exercise, assignment: Assignment, language: Language) -> str:
    at, worth = 0 if language == "en" else 1, assignment.worth(exercise.key)
    points = _WORDS["points"].say(language).format(worth=worth)
    parts = [
        f"<h2>{escape(exercise.key)} · {inline(exercise.title.say(language))} · {escape(points)}</h2>",
        f"{paragraphs(exercise.task.say(language))}<h3>{_say('holds', language)}</h3>",
        _list(
            mark.sentence[at] + (f" [{_WORDS['had'].say(language)}]" if mark.had else "")
            for mark in known(exercise, exercise.given).marks
        ),
        (
            f"<h3>{_say('right', language)}</h3>{''.join(_code(source) for source in exercise.right)}<h3>"
            f"{_say('wrong', language)}</h3>"
        ),
    ]
    for source in exercise.wrong:
        outcome = known(exercise, source)
        why = [f"{mark.sentence[at]}: {mark.reason[at]}".removesuffix(": ") for mark in outcome.marks if not mark.holds]
        got = escape(_WORDS["got"].say(language).format(got=outcome.credit * worth, worth=worth))
        parts.append(
            f"{_code(source)}<p>{got}</p><ul>{''.join(f'<li class=no>{coded(each)}</li>' for each in why)}</ul>"
        )
    return "".join(parts)


def _list(sentences: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{coded(sentence)}</li>' for sentence in sentences)}</ul>"


def _code(source: str) -> str:
    return f"<pre tabindex=0>{escape(source)}</pre>"


def _say(word: str, language: Language) -> str:
    return escape(_WORDS[word].say(language))
