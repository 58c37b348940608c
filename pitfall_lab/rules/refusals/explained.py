"""A refusal as a finding: what was refused and why, the arguments with the lines that made them, and what torch would
have accepted.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from pitfall_lab.rules.kit.finding import Fact, Finding, Related, Severity
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.syntax import operand_text
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.rules.refusals.arguments import TENSORS, Refused, first_sentence, shape_text
from pitfall_lab.rules.refusals.family import Case, Family
from pitfall_lab.rules.refusals.offending import offending
from pitfall_lab.rules.refusals.remedy import Error, Remedy
from pitfall_lab.rules.refusals.rewriting import rewritings
from pitfall_lab.rules.refusals.size_origin import origin
from pitfall_lab.trace import LANGUAGES, Given, Language, T

MOST_SHOWN = 4
SEPARATORS: dict[Language, str] = {"en": "; ", "zh": "；"}
BRACKETS: dict[Language, str] = {"en": " ({})", "zh": "（{}）"}
COLONS: dict[Language, str] = {"en": ": ", "zh": "："}
MOST_FORMS = 4
MOST_LINES = 4


def explained(refused: Refused, family: Family, case: Case, match: re.Match[str]) -> Finding | None:
    """Return the finding that ``case``, of ``family``, makes of the refused call; None if a value that its sentences
    name is missing.

    ``match`` is the match of the case's pattern in torch's message. The sentences of the case's remedy replace those of
    the case. The fixes are the remedy's, then rewritings of the wrong argument, then the remedy's ``last``.
    """
    wrong = offending(refused, case.wrong, match)
    other = offending(refused, case.other, match) if case.other else _beside(refused, wrong)
    try:
        message, accepts = (
            T(
                *(
                    text.say(language).format_map(_words(refused, wrong, other, match, language))
                    for language in ("en", "zh")
                )
            )
            for text in (case.refused, case.accepts)
        )
    except (KeyError, IndexError, AttributeError, TypeError, ValueError):
        return None
    remedy = (case.remedy(Error(refused, wrong, other, match)) if case.remedy is not None else None) or Remedy()
    fixes = unique(
        refused.story.program.text, [*remedy.fixes, *rewritings(refused, wrong, other, case.fixes, match), *remedy.last]
    )
    return _finding(
        refused, family, (remedy.said or message, remedy.accepts or accepts), wrong, replace(remedy, fixes=fixes)
    )


def quoted(refused: Refused, family: Family) -> Finding:
    """Return the finding of ``family`` for a refusal that no case fits: it quotes torch's message and names the
    argument that the message is about, if that is found.
    """
    wrong = offending(refused, "", None)
    words = {language: _words(refused, wrong, None, None, language) for language in ("en", "zh")}
    en = (
        "{Line}: {call} refuses its arguments: “{said}”."
        if wrong is None
        else "{Line}: {call} refuses {wrong}{param_note}: “{said}”."
    )
    zh = (
        "{Line}：{call} 拒绝了它的参数：“{said}”。"
        if wrong is None
        else "{Line}：{call} 拒绝了 {wrong}{param_note}：“{said}”。"
    )
    message = T(en.format_map(words["en"]), zh.format_map(words["zh"]))
    return _finding(refused, family, (message, None), wrong, Remedy())


def _beside(refused: Refused, wrong: Given | None) -> Given | None:
    return next((g for g in refused.tensors if g is not wrong), None)


def _words(
    refused: Refused, wrong: Given | None, other: Given | None, match: re.Match[str] | None, language: Language
) -> dict[str, Any]:
    """The values for the placeholders in a case's sentences."""
    words = refused.words(language)
    said = first_sentence(refused.message).rstrip(".")
    words |= {
        "m": match,
        "said": said,
        "said_short": f"torch says “{said}”" if language == "en" else f"torch 的原话是“{said}”",
    }
    words["shapes"] = _list(refused, language, lambda g: shape_text(g.shape, language))
    words["types"] = _list(refused, language, lambda g: g.dtype)
    words["devices"] = _list(refused, language, lambda g: g.device)
    words["forms"] = "; ".join(f"`({form})`" for form in re.findall(r"\* \((.*)\)", refused.message)[:MOST_FORMS])
    words["lines"] = "; ".join(_brief(line) for line in refused.message.strip().splitlines()[1 : 1 + MOST_LINES])
    words["code"] = refused.code
    words["of_wrong"] = words["param_note"] = ""
    tensor = other if other is not None and other.kind in TENSORS else next(iter(refused.tensors), None)
    if wrong is not None:
        words["wrong"], words["wrong_text"] = (
            refused.word(wrong, language),
            operand_text(refused.name(wrong).en.strip("`")),
        )
        kind = wrong.dtype or (wrong.value if wrong.kind in ("dtype", "layout", "device") else wrong.kind)
        words["of_wrong"] = f": {words['wrong']} is {kind}" if language == "en" else f"：{words['wrong']} 是 {kind}"
        if wrong.name and f"`{wrong.name}`" != str(words["wrong"]):
            words["param_note"] = f" (`{wrong.name}`)" if language == "en" else f"（`{wrong.name}`）"
    if other is not None:
        words["other"], words["other_text"] = (
            refused.word(other, language),
            operand_text(refused.name(other).en.strip("`")),
        )
    if tensor is not None:
        words["tensor"] = refused.word(tensor, language)
    return words


def _brief(line: str) -> str:
    """One of the lines in which ``load_state_dict`` lists what does not fit, with a shorter text for two different
    sizes.
    """
    sizes = (
        r"copying a param with shape torch\.Size\((.*?)\) from checkpoint, the shape in current model is "
        r"torch\.Size\((.*?)\)"
    )
    return re.sub(sizes, r"\1 was saved, \2 is needed", line.strip().rstrip(". "))


def _list(refused: Refused, language: Language, say: Any) -> str:
    parts = [f"{refused.word(given, language)} {say(given)}" for given in refused.tensors[:MOST_SHOWN]]
    return {"en": ", ", "zh": "，"}[language].join(parts)


def _finding(
    refused: Refused, family: Family, said: tuple[T, T | None], wrong: Given | None, remedy: Remedy
) -> Finding:
    story, step = refused.story, refused.step if refused.failure.step is not None else None
    message, accepts = said
    explanation = _explanation(refused, accepts, wrong, message)
    severity: Severity = family.severity
    facts = [Fact("op", refused.failure.op), Fact("argument", wrong.name if wrong is not None else None)]
    return Finding(
        family.code,
        family.name,
        severity,
        remedy.place or refused.span,
        remedy.step if remedy.step is not None else step,
        story.predicted(refused.failure, refused.step),
        message,
        explanation,
        _related(refused, wrong, remedy),
        remedy.fixes,
        tuple(facts),
        _advice(refused, accepts),
    )


def _advice(refused: Refused, accepts: T | None) -> T | None:
    if accepts is None:
        return None
    where, apart = at_line(refused.story, refused.span), origin(refused)
    en, zh = (f" {apart.en}", apart.zh) if apart is not None else ("", "")
    return T(
        en=f"What torch would accept on {where.en}: {accepts.en}.{en}",
        zh=f"torch 在{where.zh}会接受：{accepts.zh}。{zh}",
    )


def _explanation(refused: Refused, accepts: T | None, wrong: Given | None, message: T) -> T:
    """Sentences that say what the call accepts and what it was given, and quote torch's message if ``message`` does
    not.
    """
    en = [f"Torch would accept: {accepts.en}."] if accepts is not None else []
    zh = [f"torch 接受的是：{accepts.zh}。"] if accepts is not None else []
    shown = _shown(refused, wrong)
    if shown:
        device = any(given.device not in ("", "cpu") for given in shown)
        listed = T(
            *(
                SEPARATORS[language].join(_described(refused, g, language, device=device) for g in shown)
                for language in LANGUAGES
            )
        )
        en.append(f"It was given {listed.en}.")
        zh.append(f"得到的参数：{listed.zh}。")
    said = first_sentence(refused.message)
    if said.rstrip(".") not in message.en:
        en.append(f"Torch's own words: “{said}”")
        zh.append(f"torch 的原话：“{said}”")
    return T(" ".join(en), "".join(zh))


def _shown(refused: Refused, wrong: Given | None) -> list[Given]:
    """The first ``MOST_SHOWN`` arguments to name: the wrong one, then the tensors, each once, then values written on
    the line.

    Objects whose value is shown as ``<…>`` are left out unless they have a source.
    """
    found: dict[object, Given] = {}
    for given in sorted(refused.given, key=lambda g: (g is not wrong, g.kind not in TENSORS)):
        reported = given.kind in TENSORS or given is wrong or _is_written(given, refused)
        if reported and not (given.value.startswith("<") and not given.text):
            found.setdefault(given.label or (given.name, given.text), given)
    return list(found.values())[:MOST_SHOWN]


def _is_written(given: Given, refused: Refused) -> bool:
    """Whether the line contains the argument's value; a default of torch's was not written by the reader."""
    return (
        bool(given.value) and re.search(rf"(?<![\w.-]){re.escape(given.value)}(?![\w.])", refused.written) is not None
    )


def _described(refused: Refused, given: Given, language: Language, *, device: bool) -> str:
    """An argument in words: ``x (`input`): float32, 2×3, requires grad``; ``p = 0.5`` for one that is no tensor.

    With ``device``, also the tensor's device.
    """
    name, brackets = refused.name(given).say(language), BRACKETS[language]
    named = (
        brackets.format(f"`{given.name}`") if given.name not in ("", "self") and f"`{given.name}`" not in name else ""
    )
    if given.kind not in TENSORS:
        return f"{name}{named} = {given.value}" if given.value and name != f"`{given.value}`" else f"{name}{named}"
    kind = {"en": "a NumPy array of ", "zh": "NumPy 数组，"}[language] if given.kind == "ndarray" else ""
    facts = [f"{kind}{given.dtype}, {shape_text(given.shape, language)}"]
    facts += [given.device] if device and given.device else []
    facts += [{"en": "requires grad", "zh": "需要梯度"}[language]] if given.requires_grad else []
    return f"{name}{named}{COLONS[language]}{', '.join(facts)}"


def _related(refused: Refused, wrong: Given | None, remedy: Remedy) -> tuple[Related, ...]:
    """The lines of the remedy, those that made the tensors of the call (the wrong one first), and the line where torch
    raises.

    Each line once, and at most ``MOST_SHOWN`` tensors.
    """
    story, step = refused.story, refused.step
    found, places = list(remedy.related), {refused.span, *(related.span for related in remedy.related)}
    for given in sorted(refused.tensors, key=lambda g: g is not wrong)[:MOST_SHOWN]:
        born = (story.tensor(given.label, step) or {}).get("born") if given.label is not None else None
        span = story.span(born)
        if born is None or span is None or span in places:
            continue
        places.add(span)
        text = {
            language: f"{refused.name(given).say(language)}: {given.dtype}, {shape_text(given.shape, language)}"
            for language in ("en", "zh")
        }
        found.append(Related("made", span, born, T(text["en"], text["zh"])))
    return (*found, Related("used", refused.span, step, T(en="torch raises here", zh="torch 在这里报错")))
