"""The Question widget: predict what a program does and why, commit or skip, and see which belief the answer fits."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from pitfall_lab.lessons import boxes, progress, worlds
from pitfall_lab.lessons.misconceptions import Misconception
from pitfall_lab.lessons.mistakes import Mistake, Slip, Taken
from pitfall_lab.lessons.offered import Offered
from pitfall_lab.lessons.question import Kind, Prediction, Question, pose
from pitfall_lab.lessons.reasons import Reason
from pitfall_lab.lessons.worlds import TORCH
from pitfall_lab.trace import Language, T
from pitfall_lab.views.stored import with_page

ROWS, WIDTH = 4, 80
"""How much of two worlds is shown: rows of the table, characters of a cell."""

_WORDS: dict[str, T] = {
    "title": T(en="Predict before you run it", zh="先预测，再运行"),
    "what": T(en="What happens?", zh="会发生什么？"),
    "shape": T(en="Which shape?", zh="形状是什么？"),
    "gradient": T(en="Which shape has the gradient?", zh="梯度的形状是什么？"),
    "version": T(en="Which version?", zh="版本是多少？"),
    "line": T(en="Which line fails?", zh="哪一行失败？"),
    "changes": T(en="Which of these does the last statement change?", zh="最后一条语句改变了其中哪些？"),
    "because": T(en="Because …", zh="因为……"),
    "commit": T(en="Commit", zh="提交"),
    "skip": T(en="Skip", zh="跳过"),
    "torch": T(en="✓ torch", zh="✓ torch"),
    "decides": T(en="✓ decides it", zh="✓ 决定因素"),
    "yours": T(en="your prediction", zh="你的预测"),
    "right": T(en="✓ That is what torch does.", zh="✓ torch 正是这样做的。"),
    "right_reason": T(en="✓ That is what torch does, and that is why.", zh="✓ torch 正是这样做的，理由也对。"),
    "wrong_reason": T(
        en="◐ The result is right, but your reason isn't.",
        zh="◐ 结果对了，但你选的理由不成立。",
    ),
    "instead": T(en="Instead of the reason that you picked, this holds:", zh="你选的理由不成立，成立的是："),
    "follows": T(
        en="Your reason is right, but this result does not follow from it. Compare, line by line, what the program "
        "gives with what you computed.",
        zh="你的理由是对的，但得不出这个结果。请逐行比较程序给出的与你算出的。",
    ),
    "beside": T(
        en="Your reason is right, but this result does not follow from it. It follows from this:",
        zh="你的理由是对的，但得不出这个结果。得出它的是：",
    ),
    "another": T(
        en="Your reason is right, but this result does not follow from it.",
        zh="你的理由是对的，但得不出这个结果。",
    ),
    "wrong": T(en="≠ torch does something else.", zh="≠ torch 的做法不同。"),
    "skipped": T(en="Skipped. The answer is marked above.", zh="已跳过。答案已在上面标出。"),
    "tempting": T(en="Why it is tempting:", zh="为什么容易这样想："),
    "fact": T(en="What breaks it:", zh="反驳它的事实："),
    "check": T(en="Try it yourself (it runs without an error):", zh="自己试一试（运行不会报错）："),
    "unknown": T(
        en="No known mistake gives this answer. The fact marked above decides: run the program, see its line.",
        zh="已知的错误都不会得出这个答案。上面标出的事实起决定作用：运行程序，看看它所说的那一行。",
    ),
    "denied": T(
        en="No known mistake gives this result for this reason.",
        zh="已知的错误都不会由这个理由得出这个结果。",
    ),
    "hidden": T(en="what comes of this line; predict first", zh="这一行的结果；请先预测"),
    "legend": T(
        en="Each hatched box hides what its line gives, until you commit to an answer or skip.",
        zh="每个斜线框都遮住该行的结果，直到你提交答案或跳过。",
    ),
    "rest": T(en="Show the rest of the program", zh="显示程序的其余部分"),
    "slip_line": T(
        en="That would be right if line {line} were `{text}`.", zh="如果第 {line} 行是 `{text}`，就会是这样。"
    ),
    "slip": T(
        en="That would be right without line {line}. Did you overlook it?",
        zh="如果没有第 {line} 行，就会是这样。是不是漏看了它？",
    ),
    "slip_call": T(
        en="That would be right without {call} in line {line}. Did you overlook it?",
        zh="如果第 {line} 行没有 {call}，就会是这样。是不是漏看了它？",
    ),
    "both": T(en="Two mistakes together lead to this answer:", zh="两个错误加在一起才会得出这个答案："),
    "until": T(
        en="From line {line} on, your prediction and torch differ:", zh="从第 {line} 行起，你的预测与 torch 不同："
    ),
    "after": T(en="after line {line}", zh="第 {line} 行之后"),
    "your_world": T(en="your world", zh="你的世界"),
    "torch_world": T(en="torch's world", zh="torch 的世界"),
    "several": T(
        en="Your answer fits more than one belief. Which is yours?", zh="你的回答符合不止一种信念。哪一种是你的？"
    ),
    "apart": T(en="This program tells them apart. What does it print?", zh="这个程序能区分它们。它会输出什么？"),
    "who": T(en="if you believe", zh="持此信念者"),
    "open": T(en="Decide first, then open the answer.", zh="先自己判断，再打开答案。"),
}


class QuestionWidget(anywidget.AnyWidget):
    """A :class:`Question` to answer by keyboard or mouse; judged in the browser, so it works while the kernel is busy.

    ``marks`` holds the indices of the chosen answers, ``choice`` the only one (-1: none, or several), ``reason``
    that of the fact; ``committed`` and ``skipped`` say how the question was left. The answer is kept in the
    progress beside the notebook.
    """

    _esm = Path(__file__).with_name("question.js")
    _content = traitlets.Unicode("{}").tag(sync=True)
    marks = traitlets.List(traitlets.Int()).tag(sync=True)
    choice = traitlets.Int(-1).tag(sync=True)
    reason = traitlets.Int(-1).tag(sync=True)
    committed = traitlets.Bool(False).tag(sync=True)
    skipped = traitlets.Bool(False).tag(sync=True)

    def __init__(self, question: Question, language: Language = "en") -> None:
        """Show ``question`` in ``language``."""
        self.question = question
        self.language = language
        super().__init__(_content=json.dumps(content(question, language), ensure_ascii=False))
        self.observe(self._answered, names=["committed", "skipped"])

    def _answered(self, change: Any) -> None:
        """Keep the answer in the progress file. Errors are suppressed: the learner has done nothing wrong."""
        if change.new:
            with contextlib.suppress(progress.ProgressError):
                progress.keep(self.entry())

    def entry(self) -> progress.Entry:
        """Return the answer as the progress keeps it: its points, and the keys of the beliefs that it fits.

        One point for the right answer, one more for the right reason with it. A belief is left out if the wrong reason
        that was picked would be false in its world. The words of the answer are kept only if it is wrong and fits no
        belief, for the author of the question.
        """
        question, marks = self.question, frozenset(self.marks)
        right = marks == {n for n, choice in enumerate(question.choices) if choice.right}
        why = 0 <= self.reason < len(question.reasons) and question.reasons[self.reason].right
        beliefs = next((self._held(p) for p in question.predictions if p.marks == marks), ())
        note = "skipped" if self.skipped else ""
        if not right and not beliefs and not note:
            note = "; ".join(question.choices[n].text.en for n in sorted(marks) if 0 <= n < len(question.choices))
        held, total = right + (right and why), 1 + bool(question.reasons)
        keys = tuple(m.key for m in beliefs)
        return progress.Entry(progress.chapter_here(), f"q-{question.key}", "question", held, total, keys, note=note)

    def _held(self, found: Prediction) -> tuple[Misconception, ...]:
        """Return the beliefs that predict an answer, without those that the wrong reason beside it denies."""
        picked = self.question.reasons[self.reason] if 0 <= self.reason < len(self.question.reasons) else None
        if picked is None or picked.right or found.both:
            return found.beliefs
        return tuple(m for m in found.beliefs if picked.holds(Mistake(self.question.program, (m,))))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget, and for pages without a kernel HTML with the answer folded away, and plain text."""
        without_kernel = {
            "text/html": page(self.question, self.language),
            "text/plain": text(self.question, self.language),
        }
        return with_page(super()._repr_mimebundle_(**kwargs), without_kernel)


def question(
    program: str,
    ask: str = "None",
    because: bool | Sequence[Offered] = True,
    beliefs: Iterable[str] | None = None,
    language: Language = "en",
    *,
    kind: Kind = "value",
    taken_for: Iterable[Taken] = (),
) -> QuestionWidget:
    """Ask what ``ask`` is after ``program`` (or which line raises), and because of which fact.

    ``kind`` selects another question: its shape, the shape of its gradient, its version, the line that fails, or what
    the last statement changes. Right and wrong answers are computed; ``taken_for`` are lines that many take for another
    one, ``because`` can be reasons to choose from: see :func:`pitfall_lab.lessons.question.pose`.
    """
    return QuestionWidget(
        pose(program, ask, because, beliefs, kind, taken_for=taken_for, learner=progress.learner()), language
    )


def content(question: Question, language: Language) -> dict[str, Any]:
    """Return everything the browser needs, as plain data in one language."""
    return {
        "language": language,
        "kind": question.kind,
        "columns": question.columns,
        "words": {key: word.say(language) for key, word in _words(question).items()},
        "program": question.program,
        "message": question.message,
        "choices": [{"text": c.text.say(language), "right": c.right, "line": c.line} for c in question.choices],
        "story": [{"line": step.line, "came": [text.say(language) for text in step.came]} for step in question.story],
        "predictions": [_prediction(p, language) for p in question.predictions],
        "reasons": [_reason(r, question, language) for r in question.reasons],
    }


def _reason(reason: Reason, question: Question, language: Language) -> dict[str, Any]:
    """Return a reason to pick as plain data; a wrong one with what holds in its place, and why it is believed.

    ``fits``: of the beliefs that predict an answer on their own, those in whose worlds it holds.
    """
    held = {m for one in question.predictions if not one.both for m in one.beliefs}
    fits = [] if reason.right else [m for m in held if reason.holds(Mistake(question.program, (m,)))]
    return {
        "fits": sorted(m.belief.say(language) for m in fits),
        "text": reason.text.say(language),
        "right": reason.right,
        "instead": reason.instead and T(en=f"{reason.instead.en}.", zh=f"{reason.instead.zh}。").say(language),
        "said": reason.said and reason.said.say(language),
        "own": reason.own,
        "refutations": [_refutation(m, language) for m in reason.beliefs],
    }


def _words(question: Question) -> dict[str, T]:
    """Return the widget's words, with the sentence that requests this kind of answer."""
    return _WORDS if question.kind == "value" else {**_WORDS, "what": _WORDS[question.kind]}


def _prediction(prediction: Prediction, language: Language) -> dict[str, Any]:
    """Return a wrong answer with the refutations of the beliefs that predict it, and the line where their runs first
    differ from torch's.

    That (at most ``ROWS`` rows of it) and a program that separates the worlds are there only if they are known.
    """
    said: dict[str, Any] = {
        "marks": sorted(prediction.marks),
        "until": prediction.until,
        "both": prediction.both,
        "against": prediction.against,
        "places": prediction.places and prediction.places.say(language),
        "without": prediction.without and _slip(prediction.without, language),
        "refutations": [_refutation(m, language) for m in prediction.beliefs],
    }
    if prediction.parting is not None:
        rows = [[_short(text) for text in row] for row in prediction.parting.rows[:ROWS]]
        said |= {"line": prediction.parting.line, "rows": rows}
    if prediction.separating is not None:
        source = prediction.separating
        endings = [[m.belief.say(language), _short(str(worlds.ending(source, m(TORCH))))] for m in prediction.beliefs]
        said["separating"] = {
            "program": source.rstrip(),
            "torch": _short(str(worlds.ending(source, TORCH))),
            "endings": endings,
        }
    return said


def _slip(slip: Slip, language: Language) -> dict[str, Any]:
    """Return what was overlooked or misread as plain data."""
    return {**dataclasses.asdict(slip), "said": slip.said and slip.said.say(language)}


def _short(text: str) -> str:
    """Return the text cut to ``WIDTH`` characters (with “…” at its end), so that it fits a cell of a table."""
    return text if len(text) <= WIDTH else text[: WIDTH - 2] + " …"


def _refutation(m: Misconception, language: Language) -> dict[str, str]:
    """Return a belief's refutation as plain data."""
    said = {"belief": m.belief, "tempting": m.tempting, "fact": m.fact}
    return {**{key: value.say(language) for key, value in said.items()}, "check": m.check}


def page(question: Question, language: Language) -> str:
    """Return the question as HTML without scripts; the answer is folded away."""
    word = {key: value.say(language) for key, value in _words(question).items()}
    right = [c.text.say(language) for c in question.choices if c.right]
    return boxes.box(
        "question-static",
        language,
        boxes.line(word["title"], strong=True),
        boxes.listing(_numbered(question.program)),
        boxes.line(word["what"]) + boxes.items([c.text.say(language) for c in question.choices]),
        boxes.line(word["because"]) + boxes.items([r.text.say(language) for r in question.reasons])
        if question.reasons
        else "",
        boxes.fold(
            word["open"],
            boxes.items([*right, *(r.text.say(language) for r in question.reasons if r.right)]),
            boxes.listing(_answered(question, language)) if question.story else "",
            boxes.listing(question.message, wrapped=True) if question.message else "",
        ),
    )


def _numbered(program: str) -> str:
    """Return a program with its line numbers: the answers name lines."""
    return "\n".join(f"{n:>2}  {line}" for n, line in enumerate(program.splitlines(), 1))


def _answered(question: Question, language: Language) -> str:
    """Return a program with what comes of each statement below it."""
    came = {step.line: [f"      # {text.say(language)}" for text in step.came] for step in question.story}
    lines = enumerate(_numbered(question.program).splitlines(), 1)
    return "\n".join("\n".join([line, *came.get(n, ())]) for n, line in lines)


def text(question: Question, language: Language) -> str:
    """Return the question as plain text, its answer on the last line."""
    word = {key: value.say(language) for key, value in _words(question).items()}
    box = "[ ]" if question.kind == "changes" else "( )"
    lines = [word["title"], _numbered(question.program), word["what"]]
    lines += [f"  {box} {c.text.say(language)}" for c in question.choices]
    if question.reasons:
        lines += [word["because"], *(f"  ( ) {r.text.say(language)}" for r in question.reasons)]
    return "\n".join([*lines, "✓ " + ", ".join(c.text.say(language) for c in question.choices if c.right)])
