"""The ledger: 333 claims from five articles on PyTorch, each with the program that decides it. :func:`claim` returns
one as a box for a notebook, :func:`ledger` all of them by id.

A claim is a paraphrased sentence, its place in the source, a verdict, a small program, what that program printed on
torch 2.13.0 (CPU, Linux), and the corrected statement. The ledger is data beside this file, one JSON file per
article, so that it is read without any further package.
"""

from __future__ import annotations

import difflib
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

from pitfall_lab.lessons import boxes
from pitfall_lab.lessons.run_here import execute
from pitfall_lab.trace import LANGUAGES, Language, T

RECORDED_WITH = "torch 2.13.0"


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A verdict on a claim, such as right or wrong: a stable ``key``, a ``glyph`` (never colour alone) and a ``word``
    in both languages.
    """

    key: str
    glyph: str
    word: T


VERDICTS: dict[str, ClaimVerdict] = {
    v.key: v
    for v in (
        ClaimVerdict("correct", "✓", T(en="correct", zh="正确")),
        ClaimVerdict("incomplete", "◐", T(en="incomplete", zh="不完整")),
        ClaimVerdict("misleading", "≈", T(en="misleading", zh="有误导")),
        ClaimVerdict("wrong", "≠", T(en="wrong", zh="错误")),
        ClaimVerdict("outdated", "↺", T(en="outdated", zh="已过时")),
        ClaimVerdict("typo", "✎", T(en="typing mistake", zh="笔误")),
        ClaimVerdict("depends", "⇵", T(en="it depends", zh="看情况")),
        ClaimVerdict("platform-dependent", "⇄", T(en="depends on the platform", zh="取决于平台")),
        ClaimVerdict("needs-gpu", "▣", T(en="needs a GPU; shown by a CPU analogue", zh="需要 GPU；此处用 CPU 类比")),
    )
}

ARTICLES: tuple[T, ...] = (
    T(en="tensor pitfalls", zh="张量的陷阱"),
    T(en="in-place operations, copying, clone and detach", zh="就地操作、拷贝、clone 与 detach"),
    T(en="autograd in depth", zh="深入自动求导"),
    T(en="tensors and autograd, a tutorial", zh="张量与自动求导教程"),
    T(en="mixed notes", zh="综合笔记"),
)


@dataclass(frozen=True, slots=True)
class Claim:
    """One row of the ledger: a sentence of an article, and the program that decides whether it is true.

    ``article`` counts from 0 (an index into :data:`ARTICLES`), ``chapter`` is the section's title and ``lines`` are
    line numbers of that article. ``claim`` is the sentence, ``verdict`` a key of :data:`VERDICTS`, ``truth`` the
    corrected statement; ``observed`` is what the program ``snippet`` printed on :data:`RECORDED_WITH`. ``pitfall`` are
    names of pitfalls and ``visual`` names of views that it is about, ``exercise_idea`` a sentence. With ``needs_gpu`` a
    part of the claim concerns CUDA and the snippet is a CPU analogue. Where the article's sentence leaves nothing to
    decide, ``asked`` is another one on its subject (else empty), which the same snippet decides, and which ``holds`` or
    not, or ``depends``: it holds for some programs only; ``answer`` says why.
    """

    id: str
    article: int
    chapter: str
    lines: str
    claim: str
    verdict: str
    truth: str
    snippet: str
    observed: str
    pitfall: tuple[str, ...]
    visual: tuple[str, ...]
    exercise_idea: str
    needs_gpu: bool
    asked: str = ""
    holds: bool = False
    depends: bool = False
    answer: str = ""

    @property
    def judged(self) -> str:
        """The verdict (a key of :data:`VERDICTS`) on the sentence that a learner decides about."""
        if not self.asked:
            return self.verdict
        return "depends" if self.depends else "correct" if self.holds else "wrong"

    @property
    def reason(self) -> str:
        """Why the sentence that a learner decides about is true or not: ``answer`` if ``asked`` is set, else
        ``truth``.
        """
        return self.answer if self.asked else self.truth

    @property
    def beside(self) -> T | None:
        """The article's own sentence with its place and the corrected statement, if the learner was given another
        sentence.

        None if the learner was given the article's own.
        """
        if not self.asked:
            return None
        own = f"“{self.claim}” {self.truth}"
        return T(en=f"On the same subject, {self.place.en}: {own}", zh=f"同一主题，{self.place.zh}：{own}")

    @property
    def place(self) -> T:
        """The place of the claim in its source: the article and its section.

        The lines are left out: the articles are not published with the course, so they could not be looked up.
        """
        title = ARTICLES[self.article]
        return T(
            en=f"Article {self.article} ({title.en}), “{self.chapter}”",
            zh=f"文章 {self.article}（{title.zh}），“{self.chapter}”",
        )

    @property
    def heading(self) -> T:
        """Where the sentence that a learner decides about comes from."""
        return T(en="Written for this course", zh="为本课程而写") if self.asked else self.place


@cache
def ledger() -> dict[str, Claim]:
    """Return all claims by id, in the order of the articles.

    >>> len(ledger())
    333
    """
    folder = files(__name__)
    rows = (
        row for n in range(len(ARTICLES)) for row in json.loads(folder.joinpath(f"article-{n}.json").read_text("utf-8"))
    )
    return {row["id"]: _claim(row) for row in rows}


def _claim(row: dict[str, Any]) -> Claim:
    """Return the claim that a row of JSON describes; programs and outputs are stored as lists of
    lines, to read well in a diff.
    """
    text = {key: "\n".join(row[key]) + "\n" for key in ("snippet", "observed")}
    return Claim(**{**row, **text, "pitfall": tuple(row["pitfall"]), "visual": tuple(row["visual"])})


@dataclass(frozen=True, slots=True)
class Check:
    """A claim's program, run here.

    ``printed`` is what it printed and ``error`` the exception that ended it (empty: none), ``recorded`` what it printed
    when the claim was written, ``torch`` the version of torch here. :attr:`same` is ``"exactly"``, ``"but for
    numbers"`` (times, sizes and rounding differ between machines) or ``"no"``.
    """

    printed: str
    recorded: str
    error: str
    torch: str

    @property
    def same(self) -> str:
        """How far the live output agrees with the recorded one."""
        if self.error:
            return "no"
        if self.printed.rstrip() == self.recorded.rstrip():
            return "exactly"
        return "but for numbers" if _without_numbers(self.printed) == _without_numbers(self.recorded) else "no"

    @property
    def sentence(self) -> T:
        """The comparison in one sentence."""
        if self.same == "exactly":
            return T(
                en=f"✓ run just now on torch {self.torch}: the same output as recorded with {RECORDED_WITH}",
                zh=f"✓ 刚刚在 torch {self.torch} 上运行：输出与 {RECORDED_WITH} 的记录相同",
            )
        if self.same == "but for numbers":
            return T(
                en=f"✓ run just now on torch {self.torch}: as recorded with {RECORDED_WITH}, except for numbers",
                zh=f"✓ 刚刚在 torch {self.torch} 上运行：除数字外与 {RECORDED_WITH} 的记录相同",
            )
        return T(
            en=f"≠ run just now on torch {self.torch}: not what was recorded with {RECORDED_WITH}",
            zh=f"≠ 刚刚在 torch {self.torch} 上运行：与 {RECORDED_WITH} 的记录不同",
        )

    @property
    def difference(self) -> str:
        """The lines in which the output and the error here differ from the recorded output, as a unified diff; "" if
        equal.
        """
        lines = difflib.unified_diff(
            self.recorded.splitlines(), (self.printed + self.error).splitlines(), "recorded", "here", lineterm="", n=0
        )
        return "\n".join(lines)


def _without_numbers(text: str) -> str:
    """Return ``text`` with every number replaced by one sign and runs of blanks by one blank."""
    return re.sub(r"\s+", " ", re.sub(r"-?\d+(\.\d+)?(e[+-]?\d+)?", "#", text)).strip()


def check(found: Claim) -> Check:
    """Run a claim's program on the installed torch, and return its output beside the recorded one.

    An error of the program is kept in the :class:`Check`, not raised.
    """
    ran = execute(found.snippet, f"<claim {found.id}>")
    error = f"{type(ran.error).__name__}: {ran.error}" if ran.error else ""
    return Check(ran.printed, found.observed, error, _torch_version(ran.namespace))


def _torch_version(namespace: dict[str, Any]) -> str:
    """Return the version of the torch that a program imported; of this process's torch when the program needs none."""
    return str(getattr(namespace.get("torch") or sys.modules.get("torch"), "__version__", "?"))


@dataclass(frozen=True, slots=True)
class ClaimBox:
    """A claim as a box in a notebook. ``check`` is its program's run here, which is then shown; None: the recorded
    output is.

    The verdict is folded away, so that the reader can decide first.
    """

    claim: Claim
    check: Check | None = None
    language: Language = "en"

    def run(self) -> ClaimBox:
        """Run the program that decides the claim, here and now, and return the box that shows the outcome."""
        return ClaimBox(self.claim, check(self.claim), self.language)

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        """Return the box as HTML (every text escaped) and as plain text."""
        return {"text/html": _html(self), "text/plain": str(self)}

    def __str__(self) -> str:
        """Return the box as plain text."""
        verdict = VERDICTS[self.claim.judged]
        lines = [
            f"{self.claim.id} · {self.claim.heading.say(self.language)}",
            self.claim.asked or self.claim.claim,
            f"{verdict.glyph} {verdict.word.say(self.language)}: {self.claim.reason}",
            *(f"    {line}" for line in self.claim.snippet.splitlines()),
            *(f"  → {line}" for line in output(self).splitlines()),
            *([self.claim.beside.say(self.language)] if self.claim.beside else []),
        ]
        if self.check:
            lines += [self.check.sentence.say(self.language), *_difference(self.check)]
        return "\n".join(lines)


def output(box: ClaimBox) -> str:
    """The output that a box shows: what the claim's program printed here, with its error, if it was run; else the
    recorded one.
    """
    return box.check.printed + box.check.error if box.check else box.claim.observed


def ran(box: ClaimBox) -> str:
    """Sentences on the output that is shown, one on each line.

    They say whether it is only an analogue on the CPU, whether it was run here or recorded, and in which lines it
    differs from the recorded output.
    """
    said = [_WORDS["analogue"].say(box.language)] if box.claim.needs_gpu else []
    said.append(box.check.sentence.say(box.language) if box.check else _WORDS["recorded"].say(box.language))
    return "\n".join([*said, *(_difference(box.check) if box.check else ())])


def _difference(done: Check) -> list[str]:
    """The lines in which the outputs differ; empty if they agree, also if only in numbers."""
    return done.difference.splitlines() if done.same == "no" else []


COUNT = T(en="Claim {n} of {all}", zh="第 {n} 条，共 {all} 条")
_WORDS = {
    "decide": T(en="Is that so? Decide first, then open the verdict.", zh="是这样吗？先自己判断，再打开结论。"),
    "program": T(en="The program that decides it", zh="用来判定的程序"),
    "listed": T(en="{n} more claims of the articles, each with its verdict", zh="文章中的另外 {n} 条论断及结论"),
    "misprints": T(en="Printing errors in the articles: {n}", zh="文章中的排印错误：{n} 处"),
    "output": T(en="What it prints", zh="它的输出"),
    "recorded": T(
        en=f"recorded with {RECORDED_WITH}; .run() runs it here", zh=f"{RECORDED_WITH} 的记录；.run() 会在此运行"
    ),
    "analogue": T(
        en="A part of this claim needs a GPU; the program is a CPU analogue.",
        zh="此论断部分需要 GPU；程序是 CPU 上的类比。",
    ),
}


def _html(box: ClaimBox) -> str:
    """Return the box as one self-contained piece of HTML without scripts.

    The ledger is English in every language of the box.
    """
    return boxes.box("claim", box.language, *_parts(box))


def _parts(box: ClaimBox, *following: str) -> tuple[str, ...]:
    """Return the parts of a claim's box; ``following`` goes last into the fold (``<details>``) with its verdict."""
    word = {key: said.say(box.language) for key, said in _WORDS.items()}
    verdict = VERDICTS[box.claim.judged]
    return (
        boxes.quiet(box.claim.heading.say(box.language)),
        boxes.line(f"“{box.claim.asked or box.claim.claim}”", "en"),
        boxes.fold(
            word["decide"],
            boxes.line(f"{verdict.glyph} {verdict.word.say(box.language)}", strong=True),
            boxes.line(box.claim.reason, "en"),
            boxes.quiet(word["analogue"]) if box.claim.needs_gpu else "",
            boxes.line(word["program"]),
            *_evidence(box),
            boxes.quiet(box.claim.beside.say(box.language)) if box.claim.beside else "",
            *following,
        ),
    )


def _evidence(box: ClaimBox) -> tuple[str, ...]:
    """Return the claim's program, what it printed, and whether that is what was recorded."""
    differs = _difference(box.check) if box.check else []
    return (
        boxes.listing(box.claim.snippet),
        boxes.line(_WORDS["output"].say(box.language)),
        boxes.listing(output(box)),
        boxes.quiet(box.check.sentence.say(box.language) if box.check else _WORDS["recorded"].say(box.language)),
        boxes.listing("\n".join(differs)) if differs else "",
    )


@dataclass(frozen=True, slots=True)
class ClaimList:
    """Claims of the articles to look up rather than to decide: as a collapsed list, each with its verdict and the
    program that decides it. ``boxes`` are the claims.

    Claims about a misprint in an article have a list of their own, below.
    """

    boxes: tuple[ClaimBox, ...]

    def run(self) -> ClaimList:
        """Run the programs here and now, and return the list that shows their outcomes."""
        return ClaimList(tuple(box.run() for box in self.boxes))

    def _repr_mimebundle_(self, **_options: object) -> dict[str, str]:
        """Return the list as HTML without scripts (every text escaped) and as plain text."""
        language = self.boxes[0].language
        misprints = [box for box in self.boxes if box.claim.verdict == "typo"]
        lists = {"listed": [box for box in self.boxes if box not in misprints], "misprints": misprints}
        folds = (
            boxes.fold(_WORDS[word].say(language).format(n=len(found)), *(part for box in found for part in _row(box)))
            for word, found in lists.items()
            if found
        )
        return {"text/html": boxes.box("claims", language, *folds), "text/plain": str(self)}

    def __str__(self) -> str:
        """Return the claims as plain text."""
        return "\n\n".join(str(_as_written(box)) for box in self.boxes)


def _as_written(box: ClaimBox) -> ClaimBox:
    """Return the box of the article's own sentence, also for a claim whose learners are given another sentence."""
    return replace(box, claim=replace(box.claim, asked=""))


def _row(box: ClaimBox) -> tuple[str, ...]:
    """Return one claim of a list."""
    verdict = VERDICTS[box.claim.verdict]
    return (
        boxes.rule(),
        boxes.quiet(box.claim.place.say(box.language)),
        boxes.line(f"“{box.claim.claim}”", "en"),
        boxes.line(f"{verdict.glyph} {verdict.word.say(box.language)}", strong=True),
        boxes.line(box.claim.truth, "en"),
        boxes.quiet(_WORDS["analogue"].say(box.language)) if box.claim.needs_gpu else "",
        boxes.fold(_WORDS["program"].say(box.language), *_evidence(box)),
    )


def claim_list(*identifiers: str, language: Language = "en") -> ClaimList:
    """Return claims as a collapsed list, ``claim_list("s1-2-h", "s1-2-i")``; raises ``KeyError`` for an id that no
    claim has, and ``ValueError`` without any id or for an unknown language.

    >>> len(claim_list("s1-2-h", "s1-2-i").boxes)
    2
    """
    if not identifiers:
        raise ValueError('claim_list() needs at least one id, for example claim_list("s1-2-h", "s1-2-i")')
    return ClaimList(tuple(claim(one, language) for one in identifiers))


def deck(shown: Sequence[ClaimBox]) -> str:
    """Several claims (at least one) as HTML without scripts, which the reader opens one after the other.

    Each next claim is in the fold (``<details>``) with the verdict of the one before, below that verdict.
    """
    inside: tuple[str, ...] = ()
    for number, box in reversed(list(enumerate(shown, 1))):
        count = boxes.quiet(COUNT.say(box.language).format(n=number, all=len(shown)))
        inside = (boxes.rule() if number > 1 else "", count, *_parts(box, *inside))
    return boxes.box("claim", shown[0].language, *inside)


def claim(identifier: str, language: Language = "en") -> ClaimBox:
    """Return the box of one claim, for example ``claim("s1-2-h")``; raises ``KeyError`` with the
    nearest ids when there is none, and ``ValueError`` for an unknown language.

    >>> claim("s1-2-h").claim.verdict
    'wrong'
    """
    if language not in LANGUAGES:
        raise ValueError(f"language is {language!r}; it must be one of {', '.join(LANGUAGES)}")
    found = ledger().get(identifier)
    if found is None:
        near = ", ".join(difflib.get_close_matches(str(identifier), ledger(), n=3)) or "s1-2-h"
        raise KeyError(f"there is no claim {identifier!r}; near it: {near}")
    return ClaimBox(found, language=language)
