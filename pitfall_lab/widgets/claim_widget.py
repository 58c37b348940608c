"""The Claim widget: decide with one click whether a sentence is so, then see the program and the
verdict; several come one at a time.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from pitfall_lab.lessons import claims as ledger
from pitfall_lab.lessons import progress
from pitfall_lab.lessons.claims import VERDICTS, Claim, ClaimBox
from pitfall_lab.trace import Language, T

DECISIONS = ("right", "wrong", "depends")
FITTING: dict[str, tuple[str, ...]] = {
    "correct": ("right",),
    "wrong": ("wrong",),
    "outdated": ("wrong",),
    "typo": ("wrong", "depends"),
    "misleading": ("wrong", "depends"),
    "incomplete": ("wrong", "depends"),
    "depends": ("depends",),
    "platform-dependent": ("depends",),
    "needs-gpu": ("right", "depends"),
}
"""The decisions that a verdict bears out. A sentence on every case that one program contradicts is ``wrong``;
``misleading`` and ``incomplete`` are sentences with a part that holds.
"""
_WORDS: dict[str, T] = {
    "ask": T(en="Is that so?", zh="是这样吗？"),
    "right": T(en="right", zh="对"),
    "wrong": T(en="wrong", zh="错"),
    "depends": T(en="it depends", zh="看情况"),
    "or": T(en=", or ", zh="，或"),
    "noted": T(en=" ({word})", zh="（{word}）"),
    "fits": T(en="✓ The program bears you out.", zh="✓ 程序支持你的判断。"),
    "differs": T(en="≠ The program decides otherwise.", zh="≠ 程序给出的结论不同。"),
    "program": T(en="The program that decides it", zh="用来判定的程序"),
    "output": T(en="What it prints", zh="它的输出"),
    "verdict": T(en="Show the verdict", zh="显示结论"),
    "count": ledger.COUNT,
    "next": T(en="Next claim", zh="下一条"),
    "skip": T(en="Skip", zh="跳过"),
    "leave": T(en="Stop here", zh="到此为止"),
    "end": T(en="Summary", zh="小结"),
    "summary": T(
        en="{n} of {all} decided; in {held} of them the program agrees with you.",
        zh="已判断 {n}/{all} 条；程序支持其中 {held} 条。",
    ),
    "otherwise": T(en="Where the program decides otherwise:", zh="程序给出不同结论的："),
    "more": T(en="Go on with the others", zh="继续判断其余的"),
}


class ClaimWidget(anywidget.AnyWidget):
    """Claims to decide by keyboard or mouse, one at a time. They are judged in the browser.

    ``decisions`` are kept in the progress beside the notebook, by the claim's id. ``at`` is the number of the claim
    that is shown; behind the last one comes a summary.
    """

    _esm = Path(__file__).with_name("claim.js")
    _content = traitlets.Unicode("{}").tag(sync=True)
    decisions = traitlets.Dict(value_trait=traitlets.Unicode(), key_trait=traitlets.Unicode()).tag(sync=True)
    at = traitlets.Int(0).tag(sync=True)

    def __init__(self, *boxes: ClaimBox) -> None:
        """Show the claims of ``boxes``, with their live outputs where they have been run."""
        self.boxes = boxes
        super().__init__(_content=json.dumps(content(boxes), ensure_ascii=False))
        self.observe(self._decided, names="decisions")

    @property
    def claim(self) -> Claim:
        """Return the first claim that the widget shows."""
        return self.boxes[0].claim

    def run(self) -> ClaimWidget:
        """Run the programs that decide the claims, here and now, and return the widget that shows the outcome."""
        return ClaimWidget(*(box.run() for box in self.boxes))

    def entry(self, found: Claim) -> progress.Entry:
        """Return the decision about one of the claims as the progress has it."""
        decision = self.decisions[found.id]
        fits = decision in FITTING[found.judged]
        return progress.Entry(progress.chapter_here(), found.id, "claim", int(fits), 1, note="" if fits else decision)

    def _decided(self, change: Any) -> None:
        """Keep each new decision in the progress file; words that are no decision do not count.

        Errors are suppressed: the learner has done nothing wrong.
        """
        for found in (box.claim for box in self.boxes):
            decision = change.new.get(found.id)
            if decision in DECISIONS and decision != (change.old or {}).get(found.id):
                with contextlib.suppress(progress.ProgressError):
                    progress.keep(self.entry(found))

    def __str__(self) -> str:
        """Return the claims as plain text."""
        return "\n\n".join(map(str, self.boxes))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget, and for pages without a kernel HTML with the verdict folded away, and plain text."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        page = ledger.deck(self.boxes) if len(self.boxes) > 1 else self.boxes[0]._repr_mimebundle_()["text/html"]
        return {**data, "text/html": page, "text/plain": str(self)}, metadata


def claim(identifier: str, language: Language = "en") -> ClaimWidget:
    """Return a widget with one claim that the learner calls true or false, ``claim("s1-2-h")``.

    Raises ``KeyError`` with similar ids if there is no claim with this id.
    """
    return ClaimWidget(ledger.claim(identifier, language))


def claims(*identifiers: str, language: Language = "en") -> ClaimWidget:
    """Return a widget with several claims, one at a time, each of which the learner calls true or false:
    ``claims("s1-2-h", "s1-2-i")``.

    Raises ``ValueError`` if no id is given, and ``KeyError`` with similar ids if there is no claim with an id.
    """
    if not identifiers:
        raise ValueError('claims() needs at least one id, for example claims("s1-2-h", "s1-2-i")')
    return ClaimWidget(*(ledger.claim(one, language) for one in identifiers))


def content(boxes: Sequence[ClaimBox]) -> dict[str, Any]:
    """Return everything the browser needs, as plain data in one language.

    The ledger is English in every language of the box.
    """
    language = boxes[0].language
    words = {key: word.say(language) for key, word in _WORDS.items()}
    return {"language": language, "words": words, "claims": [_content(box) for box in boxes]}


def _content(box: ClaimBox) -> dict[str, Any]:
    """Return one claim as plain data."""
    found = box.claim
    return {
        "id": found.id,
        "place": found.heading.say(box.language),
        "claim": found.asked or found.claim,
        "program": found.snippet.rstrip(),
        "output": ledger.output(box).rstrip(),
        "ran": ledger.ran(box),
        "verdict": _verdict(found, box.language),
        "truth": found.reason,
        "beside": found.beside.say(box.language) if found.beside else "",
        "fitting": list(FITTING[found.judged]),
    }


def _verdict(found: Claim, language: Language) -> str:
    """Return the verdict on a claim in the words of the buttons, with the ledger's own word where that is another."""
    verdict, fitting = VERDICTS[found.judged], FITTING[found.judged]
    said = _WORDS["or"].say(language).join(_WORDS[one].say(language) for one in fitting)
    noted = "" if verdict.key in ("correct", *DECISIONS) else _WORDS["noted"].say(language)
    return f"{verdict.glyph} {said}{noted.format(word=verdict.word.say(language))}"
