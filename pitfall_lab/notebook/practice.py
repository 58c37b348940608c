"""``%%exercise 12.3``: grade the cell as an exercise, keep the result in the learner's progress, and
give one hint more for each try.

The cell runs in a namespace of its own, many times, on inputs that change: it finds ``torch``, ``nn``, ``F`` and
``np`` and nothing of the notebook's, and leaves nothing in the notebook, neither names nor changed tensors. Another
cell that uses its names gets a note.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import argparse
import dis
import re
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pitfall_lab.trace import LANGUAGES, Language, T

if TYPE_CHECKING:
    from pitfall_lab.lessons.exercise import Exercise, Result

_USAGE = T(
    en="This cell was not graded: {reason}. Usage: %%exercise 12.3 [--hint] [--language en|zh]",
    zh="此单元格未评分:{reason}。用法:%%exercise 12.3 [--hint] [--language en|zh]",
)
_MEANT = T(en="there is no exercise {key}; write {meant}", zh="没有练习 {key}；请写 {meant}")
_UNKNOWN = T(en="there is no exercise {key}; there are {keys}", zh="没有练习 {key}；现有 {keys}")
_ELSEWHERE = T(
    en="pitfall_lab: `{name}` was defined in the cell of exercise {key}, which runs in a namespace of its own. "
    "Copy the definition into a cell without %%exercise to use it here.",
    zh="pitfall_lab：`{name}` 是在练习 {key} 的单元格里定义的，该单元格在自己的命名空间中运行。"
    "要在这里使用，请把定义复制到没有 %%exercise 的单元格。",
)
_UNKEPT = T(en="The result could not be kept: {reason}", zh="结果未能保存：{reason}")


class Unreadable(Exception):
    """The words after ``%%exercise`` are not understood; the message is half a sentence."""


class _ExerciseParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Unreadable(message)


def options(line: str) -> argparse.Namespace:
    """Parse the rest of the line after ``%%exercise``: ``key`` (not checked), ``hint`` (True: a hint is wanted) and
    ``language``. Raises :class:`Unreadable` if the line is not understood.

    >>> options("12.3 --hint").key
    '12.3'
    """
    parser = _ExerciseParser(prog="%%exercise", add_help=False)
    parser.add_argument("key")
    parser.add_argument("--hint", action="store_true")
    parser.add_argument("--language", "-l", choices=("en", "zh"), default="en")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise Unreadable(str(error)) from error


class Practice:
    """The exercises that are tried in one kernel: how many hints each has earned by failed tries and requests, and
    which names their cells defined.
    """

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._earned: dict[str, int] = {}
        self._defined: dict[str, str] = {}
        """The names that exercises' cells have defined, and the exercise."""

    def magic(self, line: str, cell: str) -> Result | None:
        """Grade this cell as an exercise: it runs in a namespace of its own, traced, and on inputs that change.

        Returns the result; None, and prints how the magic is used, if the line names no exercise.
        """
        language: Language = "zh" if "zh" in line.split() else "en"
        try:
            wanted = options(line)
            language = wanted.language
            exercise = known(wanted.key, language)
        except Unreadable as problem:
            print(_USAGE.say(language).format(reason=problem))
            return None
        source = self._shell.transform_cell(cell)
        self._defined |= dict.fromkeys(defined(source), exercise.key)
        result = self.grade(exercise, source, language, hint_wanted=wanted.hint)
        if result.printed:
            print(result.printed, end="" if result.printed.endswith("\n") else "\n")
        return result

    def elsewhere(self, error: BaseException) -> T | None:
        """Return a note if ``error`` is a NameError about a name that only an exercise's cell defines; None for other
        errors.
        """
        name = error.name if isinstance(error, NameError) else None
        if name not in self._defined:
            return None
        return T(*(_ELSEWHERE.say(language).format(name=name, key=self._defined[name]) for language in LANGUAGES))

    def grade(self, exercise: Exercise, source: str, language: Language = "en", *, hint_wanted: bool = False) -> Result:
        """Grade one try (``source``) and return the result, with the share of the points that it earns beyond the given
        cell. The unchanged cell does not count as a try, and is not kept in the learner's progress.

        A try that does not solve the exercise, and ``hint_wanted``, earn one hint more.
        """
        from pitfall_lab.lessons.credit import earned as earned_by
        from pitfall_lab.lessons.credit import had_beside, why_nothing
        from pitfall_lab.lessons.exercise import grade

        result = grade(exercise, source, language=language)
        tried = source.strip() != exercise.given.strip()
        if not tried:
            result = replace(result, had=tuple(mark.holds for mark in result.marks), earned=0.0)
        elif not result.solved:
            holds = [mark.holds for mark in result.marks]
            share = earned_by(exercise, source, holds)
            had = had_beside(exercise, holds)
            why = why_nothing(zip(holds, had, strict=True), share)
            result = replace(result, had=had, earned=share, why_nothing=why)
        earned = self._earned.get(exercise.key, 0) + (hint_wanted or (tried and not result.solved))
        self._earned[exercise.key] = earned = min(earned, len(exercise.hints))
        result = replace(result, hints=earned)
        if tried:
            keep(result)
        return result


def defined(source: str) -> set[str]:
    r"""Return the names that a cell binds at its top level; the empty set for a text that Python cannot compile.

    >>> sorted(defined("def f(a):\n    b = a\n    return b\nc, d = 1, 2"))
    ['c', 'd', 'f']
    """
    try:
        code = compile(source, "<exercise>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        return set()
    return {step.argval for step in dis.get_instructions(code) if step.opname == "STORE_NAME"}


def known(key: str, language: Language = "en") -> Exercise:
    """Return the exercise with this key; raises :class:`Unreadable` when there is none, with the key that was meant, or
    those of the chapter.
    """
    from pitfall_lab.lessons.exercises import exercises

    found = exercises()
    if key not in found and (meant := ".".join(re.findall("[0-9]+", key[:20]))) in found:
        raise Unreadable(_MEANT.say(language).format(key=key[:20], meant=meant))
    if key not in found:
        chapter = key.partition(".")[0]
        near = [other for other in found if other.partition(".")[0] == chapter] or list(found)
        raise Unreadable(_UNKNOWN.say(language).format(key=key[:20], keys=", ".join(near)))
    return found[key]


def keep(result: Result) -> None:
    """Write a result into the learner's progress beside the notebook; when that is not possible, print why."""
    from pitfall_lab.lessons import progress

    entry = progress.Entry(result.exercise.chapter, result.exercise.key, "exercise", result.held, len(result.marks))
    try:
        progress.keep(entry)
    except progress.ProgressError as problem:
        print(_UNKEPT.say(result.language).format(reason=problem))
