"""Looks for a program's text in what is said to learners."""

from __future__ import annotations

import re

from pitfall_lab.lessons.exercise import Exercise, Result

TORCHS = {"grad", "shape", "dtype", "grad_fn", "data_ptr", "requires_grad", "is_leaf", "bias", "weight"}
"""Attributes that every chapter before an exercise has named."""
_ERROR = re.compile(r"(?s)(^|raises |抛出 )\w*(Error|Exception|Stop\w+|Warning)\b.*")
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.\w+|\[[^\]]*\]|\([ -'*-~]*\))+", re.ASCII)
_SUBJECT = re.compile(r"^(\S+)(?: is | 是 )")


def unspoken(exercise: Exercise, said: str) -> list[str]:
    """The pieces of code in a reason that neither the exercise's texts nor the given cell have.

    Not looked at: the message of an error, which is torch's, and what a sentence marks as code, which is the learner's.

    >>> from pitfall_lab.lessons.exercises import exercises
    >>> unspoken(exercises()["5.1"], "counts[1] is 2"), unspoken(exercises()["5.1"], "photo is [1, 2], not [1, 3]")
    (['counts[1]'], [])
    """
    read = "\n".join(
        (
            exercise.given,
            *(
                text.say(language)
                for language in ("en", "zh")
                for text in (exercise.title, exercise.task, *(each.sentence for each in exercise.properties))
            ),
        )
    ).replace('"', "'")
    own = re.sub(r"`[^`]*`", "", _ERROR.sub("", said))
    subject = _SUBJECT.findall(own)
    words = [*_CODE.findall(own), *(each for each in subject if each.isascii())]
    return [word for word in dict.fromkeys(words) if not _was_read(word, read)]


def _was_read(word: str, read: str) -> bool:
    """Whether the names in a piece of code, and what is in its brackets, are in the text."""
    if word in read:
        return True
    keys = re.findall(r"\[[^\]]*\]|\([^()]*\)", word)
    names = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[[^\]]*\]|\([^()]*\)", "", word))
    quoted = [key[1:-1] for key in keys if key != "()"]
    return all(re.search(rf"(?a)\b{name}\b", read) or name in TORCHS for name in names) and all(
        key in read if key[:1] == "'" else f"({key})" in read for key in quoted
    )


def reasons_of(exercise: Exercise, result: Result) -> list[str]:
    """What is wrong with the reasons of a result: code that nobody has read of, or no reason."""
    wrong = []
    for mark in result.marks:
        if not mark.holds and mark.reason is not None:
            texts = mark.reason.en, mark.reason.zh
            wrong += [f"{mark.sentence.en}: {text}" for text in texts if unspoken(exercise, text)]
            if texts[0] == "this is not true of your cell":
                wrong.append(f"{mark.sentence.en}: {texts[0]}")
    return wrong
