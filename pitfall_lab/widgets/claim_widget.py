"""The Claim widget: decide with one click whether a sentence is so, then see the program that decides it, then the verdict."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from pitfall_lab.lessons import claims, progress
from pitfall_lab.lessons.claims import VERDICTS, Claim, ClaimBox
from pitfall_lab.trace import Language, T

DECISIONS = ("right", "wrong", "depends")
FITTING: dict[str, tuple[str, ...]] = {
    "correct": ("right",),
    "wrong": ("wrong",),
    "outdated": ("wrong", "depends"),
    "typo": ("wrong", "depends"),
    "misleading": ("wrong", "depends"),
    "incomplete": ("wrong", "depends"),
    "platform-dependent": ("depends",),
    "needs-gpu": ("right", "depends"),
}
"""The decisions that a verdict bears out."""
_WORDS: dict[str, T] = {
    "ask": T(en="Is that so?", zh="是这样吗？"),
    "right": T(en="right", zh="对"),
    "wrong": T(en="wrong", zh="错"),
    "depends": T(en="it depends", zh="看情况"),
    "yours": T(en="your decision", zh="你的判断"),
    "fits": T(en="✓ The program bears you out.", zh="✓ 程序支持你的判断。"),
    "differs": T(en="≠ The program decides otherwise.", zh="≠ 程序给出的结论不同。"),
    "program": T(en="The program that decides it", zh="用来判定的程序"),
    "output": T(en="What it prints", zh="它的输出"),
    "verdict": T(en="Show the verdict", zh="显示结论"),
}


class ClaimWidget(anywidget.AnyWidget):
    """A claim to decide by keyboard or mouse. It is judged in the browser; the ``decision`` is kept in the progress beside the notebook."""

    _esm = Path(__file__).with_name("claim.js")
    _content = traitlets.Unicode("{}").tag(sync=True)
    decision = traitlets.Unicode("").tag(sync=True)

    def __init__(self, box: ClaimBox) -> None:
        """Show the claim of ``box``, with its live output where it has been run."""
        self.box = box
        super().__init__(_content=json.dumps(content(box), ensure_ascii=False))
        self.observe(self._decided, names="decision")

    @property
    def claim(self) -> Claim:
        """Return the claim that the widget shows."""
        return self.box.claim

    def run(self) -> ClaimWidget:
        """Run the program that decides the claim, here and now, and return the widget that shows the outcome."""
        return ClaimWidget(self.box.run())

    def entry(self) -> progress.Entry:
        """Return the decision as the progress has it."""
        fits = self.decision in FITTING[self.claim.verdict]
        return progress.Entry(progress.chapter_here(), self.claim.id, "claim", int(fits), 1, note="" if fits else self.decision)

    def _decided(self, change: Any) -> None:
        """Keep the decision; a learner who decides must not see an error of ours."""
        if change.new in DECISIONS:
            with contextlib.suppress(progress.ProgressError):
                progress.keep(self.entry())

    def __str__(self) -> str:
        """Return the claim as plain text."""
        return str(self.box)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget, and for pages without a kernel HTML with the verdict folded away, and plain text."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        return {**data, **self.box._repr_mimebundle_()}, metadata


def claim(identifier: str, language: Language = "en") -> ClaimWidget:
    """Return one claim to decide, for example ``claim("s1-2-h")``; raises ``KeyError`` with the nearest ids when there is none."""
    return ClaimWidget(claims.claim(identifier, language))


def content(box: ClaimBox) -> dict[str, Any]:
    """Return everything the browser needs, as plain data in one language. The ledger is English in every language of the box."""
    found, verdict = box.claim, VERDICTS[box.claim.verdict]
    return {
        "language": box.language,
        "words": {key: word.say(box.language) for key, word in _WORDS.items()},
        "place": f"{found.id} · {found.place.say(box.language)}",
        "claim": found.claim,
        "program": found.snippet.rstrip(),
        "output": claims.output(box).rstrip(),
        "ran": claims.ran(box),
        "verdict": f"{verdict.glyph} {verdict.word.say(box.language)}",
        "truth": found.truth,
        "fitting": list(FITTING[found.verdict]),
    }
