"""Sentences (:class:`T`) about how much of a program was observed: the numbers of calls and lines (:func:`seen`), where
observation stopped (:func:`stop`), and the verdict if nothing was found (:func:`nothing_found`).

Everything that prints a verdict uses these sentences, so that no verdict covers what was not observed.
"""

from __future__ import annotations

from collections.abc import Callable

from pitfall_lab.trace.event_log import Trace
from pitfall_lab.trace.text import place
from pitfall_lab.trace.words import T

Place = Callable[[int], str]
"""Formats a line for users: its number, or the cell and the line in it."""
MOST_LINES = 8


def seen(trace: Trace) -> T:
    """Return in words how many calls were observed, on how many lines; that there were none, if so.

    >>> from pitfall_lab.trace import Agreement, Reach
    >>> seen(Trace(agreement=Agreement(checked=3, agreed=3), reach=Reach(lines=2))).en
    '3 calls to torch, on 2 lines'
    """
    calls, lines = trace.calls, trace.reach.lines
    if not calls:
        return T(en="no call to torch", zh="没有对 torch 的调用")
    on_en, on_zh = (f", on {_counted(lines, 'line')}", f"，分布在 {lines} 行") if lines else ("", "")
    return T(en=f"{_counted(calls, 'call')} to torch{on_en}", zh=f"{calls} 次 torch 调用{on_zh}")


def nothing_found(trace: Trace) -> T:
    """The verdict if no rule has found anything; it covers only what was observed.

    >>> from pitfall_lab.trace import Agreement, Note, Reach
    >>> nothing_found(Trace(agreement=Agreement(checked=3, agreed=3), reach=Reach(lines=2))).en
    'nothing found: 3 calls to torch, on 2 lines, were seen'
    >>> nothing_found(Trace(notes=(Note("stopped", "", ""),))).en
    'no call to torch was seen'
    """
    said = seen(trace)
    if not trace.calls:
        return T(en="no call to torch was seen", zh="没有看到对 torch 的调用")
    if trace.stopped is not None and not _went_on(trace):
        return T(
            en=f"nothing found in what was seen before that: {said.en}", zh=f"在此之前看到的部分没有发现问题：{said.zh}"
        )
    if trace.unseen or trace.stopped is not None:
        return T(en=f"nothing found in what was seen: {said.en}", zh=f"在看到的部分没有发现问题：{said.zh}")
    comma, verb = ("," if trace.reach.lines else ""), "was" if trace.calls == 1 else "were"
    return T(en=f"nothing found: {said.en}{comma} {verb} seen", zh=f"没有发现问题：看到了 {said.zh}")


def whole(trace: Trace) -> T:
    """One sentence about how much was observed, for views without a verdict."""
    said = seen(trace)
    en, zh = f"Seen: {said.en}.", f"看到：{said.zh}。"
    if trace.unseen and trace.stopped is None:
        return T(en=f"{en} Not everything was seen: see the notes.", zh=f"{zh}并非全部都被看到：见说明。")
    return T(en=en, zh=zh)


def stop(trace: Trace, place: Place = str) -> T | None:
    """Why observation stopped, what was observed before and what came after that; ``None`` if it did not stop."""
    note = trace.stopped
    if note is None:
        return None
    said, reach = seen(trace), trace.reach
    before = T(en="Seen in all", zh="一共看到") if _went_on(trace) else T(en="Seen before that", zh="此前看到")
    en, zh = f"{note.en} {before.en}: {said.en}.", f"{note.zh}{before.zh}：{said.zh}。"
    if reach.missed:
        en += f" At least {_counted(reach.missed, 'more call')} came after it"
        zh += f"此后至少还有 {reach.missed} 次调用"
        if reach.later:
            more_en, more_zh = (
                (f" and {len(reach.later) - MOST_LINES} more", " 等") if len(reach.later) > MOST_LINES else ("", "")
            )
            listed = [place(line) for line in reach.later[:MOST_LINES]]
            en += f", also from lines that had made none before: {', '.join(listed)}{more_en}."
            zh += f"，其中一些来自此前没有调用过的行：{'、'.join(listed)}{more_zh}。"
        else:
            en, zh = f"{en}, all from lines that were seen before.", f"{zh}，都来自已经看到过的行。"
    return T(en, zh)


def _went_on(trace: Trace) -> bool:
    """Whether the recording continued at new lines after it had reached its limit."""
    note = trace.stopped
    return note is not None and note.cause == "limit" and note.step is not None and len(trace.events) > note.step + 1


def stopped_at(trace: Trace, place: Place = str) -> T | None:
    """The headline of a program that was not observed to its end; ``None`` if it was.

    ``place`` formats the line where it stopped.
    """
    note = trace.stopped
    if note is None:
        return None
    if note.cause == "never":
        return T(en="was not observed", zh="没有被观察")
    if note.span is None:
        return T(en="observation stopped", zh="观察中止")
    where = place(note.span.line)
    in_cell = not where.isdecimal()
    if note.cause == "limit":
        return T(
            en=f"the recording reached its limit at {where if in_cell else f'line {where}'}",
            zh=f"记录在 {where} 达到上限" if in_cell else f"记录在第 {where} 行达到上限",
        )
    word = "after" if note.cause == "removed" else "at"
    en = f"observation stopped {word} {where if in_cell else f'line {where}'}"
    return T(
        en=en,
        zh=f"观察在 {where} 中止" if in_cell else f"观察在第 {where} 行{'之后' if note.cause == 'removed' else ''}中止",
    )


def headline(trace: Trace) -> T:
    """A headline: where observation stopped; else the error that ended the program; else
    whether everything was observed.

    >>> headline(Trace()).en
    'no call to torch was seen'
    """
    stopped, failure = stopped_at(trace), trace.outcome.failure
    if stopped is not None:
        return T(en=f"■ {stopped.en}", zh=f"■ {stopped.zh}")
    if failure is not None:
        line = failure.span.line if failure.span is not None else None
        where = place(trace, line, failure.span.source) if line is not None and failure.span is not None else None
        in_en, in_zh = (
            ("", "")
            if where is None
            else (f" {'at' if where.en.startswith('In [') else 'in'} {where.en}", f"（{where.zh}）")
        )
        return T(en=f"✕ {failure.type}{in_en}", zh=f"✕ {failure.type}{in_zh}")
    if not trace.calls:
        return T(en="no call to torch was seen", zh="没有看到对 torch 的调用")
    if trace.reach.gaps and len(trace.unseen) == 1:
        return T(en="✓ finished; rounds that repeat are left out", zh="✓ 正常结束；省略了重复的轮次")
    if trace.unseen:
        return T(en="✓ finished; not everything was seen", zh="✓ 正常结束；并非全部都被看到")
    return T(en="✓ finished without an error", zh="✓ 正常结束，没有报错")


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
