"""The Question widget: predict what a program does and why, commit or skip, and see which belief the answer fits."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from pitfall_lab.lessons import boxes
from pitfall_lab.lessons.misconceptions import Misconception
from pitfall_lab.lessons.question import Choice, Question, pose
from pitfall_lab.trace import Language, T

_WORDS: dict[str, T] = {
    "title": T(en="Predict before you run it", zh="先预测，再运行"),
    "what": T(en="What happens?", zh="会发生什么？"),
    "because": T(en="Because …", zh="因为……"),
    "commit": T(en="Commit", zh="提交"),
    "skip": T(en="Skip", zh="跳过"),
    "torch": T(en="✓ torch", zh="✓ torch"),
    "decides": T(en="✓ decides it", zh="✓ 决定因素"),
    "yours": T(en="your prediction", zh="你的预测"),
    "right": T(en="✓ That is what torch does.", zh="✓ torch 正是这样做的。"),
    "right_reason": T(en="✓ That is what torch does, and that is why.", zh="✓ torch 正是这样做的，理由也对。"),
    "wrong_reason": T(
        en="◐ That is what torch does, but the fact you picked does not decide it.", zh="◐ 结果对了，但你选的事实并不是决定性的。"
    ),
    "wrong": T(en="≠ torch does something else.", zh="≠ torch 的做法不同。"),
    "skipped": T(en="Skipped. The answer is marked above.", zh="已跳过。答案已在上面标出。"),
    "tempting": T(en="Why it is tempting:", zh="为什么容易这样想："),
    "fact": T(en="What breaks it:", zh="反驳它的事实："),
    "check": T(en="Try it yourself (it runs without an error):", zh="自己试一试（运行不会报错）："),
    "open": T(en="Decide first, then open the answer.", zh="先自己判断，再打开答案。"),
}


class QuestionWidget(anywidget.AnyWidget):
    """A :class:`Question` to answer by keyboard or mouse; judged in the browser, so it works while the kernel is busy.

    ``choice`` and ``reason`` hold the indices of the answer (-1: none), ``committed`` and ``skipped`` say how it was left.
    """

    _esm = Path(__file__).with_name("question.js")
    _content = traitlets.Unicode("{}").tag(sync=True)
    choice = traitlets.Int(-1).tag(sync=True)
    reason = traitlets.Int(-1).tag(sync=True)
    committed = traitlets.Bool(False).tag(sync=True)
    skipped = traitlets.Bool(False).tag(sync=True)

    def __init__(self, question: Question, language: Language = "en") -> None:
        """Show ``question`` in ``language``."""
        self.question = question
        self.language = language
        super().__init__(_content=json.dumps(content(question, language), ensure_ascii=False))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget beside its twins without a kernel: HTML with the answer folded away, and plain text."""
        bundle = super()._repr_mimebundle_(**kwargs)
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle or {}, {})
        twins = {"text/html": page(self.question, self.language), "text/plain": text(self.question, self.language)}
        return {**data, **twins}, metadata


def question(
    program: str, ask: str, because: bool = True, beliefs: Iterable[str] | None = None, language: Language = "en"
) -> QuestionWidget:
    """Ask what ``ask`` is after ``program`` (or which line raises), and because of which fact.

    Right and wrong answers are computed: see :func:`pitfall_lab.lessons.question.pose`.
    """
    return QuestionWidget(pose(program, ask, because, beliefs), language)


def content(asked: Question, language: Language) -> dict[str, Any]:
    """Return everything the browser needs, as plain data in one language."""
    return {
        "language": language,
        "words": {key: word.say(language) for key, word in _WORDS.items()},
        "program": asked.program,
        "message": asked.message,
        "choices": [_choice(c, language) for c in asked.choices],
        "reasons": [{"text": r.text.say(language), "right": r.right} for r in asked.reasons],
    }


def _choice(choice: Choice, language: Language) -> dict[str, Any]:
    """Return one choice with the refutations of the beliefs that predict it."""
    return {"text": choice.text.say(language), "right": choice.right, "refutations": [_refutation(m, language) for m in choice.beliefs]}


def _refutation(m: Misconception, language: Language) -> dict[str, str]:
    """Return a belief's refutation as plain data."""
    said = {"belief": m.belief, "tempting": m.tempting, "fact": m.fact}
    return {**{key: value.say(language) for key, value in said.items()}, "check": m.check}


def page(asked: Question, language: Language) -> str:
    """Return the question as HTML without scripts; the answer is folded away."""
    word = {key: value.say(language) for key, value in _WORDS.items()}
    return boxes.box(
        "question-static",
        language,
        boxes.line(word["title"], strong=True),
        boxes.listing(_numbered(asked.program)),
        boxes.line(word["what"]) + boxes.items([c.text.say(language) for c in asked.choices]),
        boxes.line(word["because"]) + boxes.items([r.text.say(language) for r in asked.reasons]) if asked.reasons else "",
        boxes.fold(
            word["open"],
            boxes.items([asked.answer.text.say(language), *(r.text.say(language) for r in asked.reasons if r.right)]),
            boxes.listing(asked.message, wrapped=True) if asked.message else "",
        ),
    )


def _numbered(program: str) -> str:
    """Return a program with its line numbers: the answers speak of lines."""
    return "\n".join(f"{n:>2}  {line}" for n, line in enumerate(program.splitlines(), 1))


def text(asked: Question, language: Language) -> str:
    """Return the question as plain text, its answer on the last line."""
    lines = [_WORDS["title"].say(language), _numbered(asked.program), _WORDS["what"].say(language)]
    lines += [f"  ( ) {c.text.say(language)}" for c in asked.choices]
    if asked.reasons:
        lines += [_WORDS["because"].say(language), *(f"  ( ) {r.text.say(language)}" for r in asked.reasons)]
    return "\n".join([*lines, f"✓ {asked.answer.text.say(language)}"])
