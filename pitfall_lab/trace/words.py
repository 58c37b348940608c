"""Sentences in two languages, written side by side (:class:`T`).

A text is not looked up by a key in a catalogue: both languages are next to each other where the text is used, so that
neither can be forgotten when the other changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Language = Literal["en", "zh"]
LANGUAGES: tuple[Language, ...] = ("en", "zh")


@dataclass(frozen=True, slots=True)
class T:
    """One text in English (``en``) and Chinese (``zh``); names of torch and labels such as ``t3`` are the same in both.

    >>> T(en="saved here", zh="在此保存").say("zh")
    '在此保存'
    """

    en: str
    zh: str

    def say(self, language: Language = "en") -> str:
        """Return the text in one language."""
        return self.zh if language == "zh" else self.en
