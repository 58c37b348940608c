"""``%%exercise 12.3``: grade the cell as an exercise, keep the result in the learner's progress, and give one hint more for each try."""

from __future__ import annotations

import argparse
import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from pitfall_lab.trace import Language, T

if TYPE_CHECKING:
    from pitfall_lab.lessons.exercise import Exercise, Result

_USAGE = T(
    en="This cell was not graded: {reason}. Usage: %%exercise 12.3 [--hint] [--language en|zh]",
    zh="此单元格未评分:{reason}。用法:%%exercise 12.3 [--hint] [--language en|zh]",
)
_UNKNOWN = T(en="there is no exercise {key}; there are {keys}", zh="没有练习 {key}；现有 {keys}")
_UNKEPT = T(en="The result could not be kept: {reason}", zh="结果未能保存：{reason}")


class Unreadable(Exception):
    """The words after ``%%exercise`` are not understood; the message is half a sentence."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Unreadable(message)


def options(line: str) -> argparse.Namespace:
    """Parse what stands after ``%%exercise``.

    >>> options("12.3 --hint").key
    '12.3'
    """
    parser = _Parser(prog="%%exercise", add_help=False)
    parser.add_argument("key")
    parser.add_argument("--hint", action="store_true")
    parser.add_argument("--language", "-l", choices=("en", "zh"), default="en")
    try:
        return parser.parse_args(shlex.split(line))
    except ValueError as error:
        raise Unreadable(str(error)) from error


class Practice:
    """The exercises that are tried in one kernel: each failed try earns a hint, and so does asking for one."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._earned: dict[str, int] = {}

    def magic(self, line: str, cell: str) -> Result | None:
        """Grade this cell as an exercise: it runs in a namespace of its own, traced, and on inputs that change."""
        language: Language = "zh" if "zh" in line.split() else "en"
        try:
            wanted = options(line)
            language = wanted.language
            exercise = known(wanted.key, language)
        except Unreadable as problem:
            print(_USAGE.say(language).format(reason=problem))
            return None
        result = self.grade(exercise, self._shell.transform_cell(cell), language, asked=wanted.hint)
        if result.printed:
            print(result.printed, end="" if result.printed.endswith("\n") else "\n")
        return result

    def grade(self, exercise: Exercise, source: str, language: Language = "en", *, asked: bool = False) -> Result:
        """Grade one try; the cell as it was given is no try."""
        from pitfall_lab.lessons.exercise import grade

        result = grade(exercise, source, language=language)
        tried = source.strip() != exercise.given.strip()
        earned = self._earned.get(exercise.key, 0) + (asked or (tried and not result.solved))
        self._earned[exercise.key] = earned = min(earned, len(exercise.hints))
        result = replace(result, hints=earned)
        if tried:
            keep(result)
        return result


def known(key: str, language: Language = "en") -> Exercise:
    """Return the exercise of a key; raises :class:`Unreadable` when there is none."""
    from pitfall_lab.lessons.exercises import exercises

    found = exercises()
    if key not in found:
        chapter = key.partition(".")[0]
        near = [other for other in found if other.partition(".")[0] == chapter] or list(found)
        raise Unreadable(_UNKNOWN.say(language).format(key=key[:20], keys=", ".join(near)))
    return found[key]


def keep(result: Result) -> None:
    """Write a result into the progress beside the notebook; when that is not possible, say so."""
    from pitfall_lab.lessons import progress

    entry = progress.Entry(result.exercise.chapter, result.exercise.key, "exercise", result.held, len(result.marks))
    try:
        progress.keep(entry)
    except progress.ProgressError as problem:
        print(_UNKEPT.say(result.language).format(reason=problem))
