"""A finding as plain data in both languages at once."""

from __future__ import annotations

from typing import Any


def in_two_languages(finding: Any) -> dict[str, Any]:
    """A finding as plain data in both languages; a dict is returned unchanged.

    It is what ``to_dict`` returns in English and Chinese, with message, explanation and titles as ``{"en": ..., "zh":
    ...}``, and with step, source number, explanation, advice and facts, which ``to_dict`` omits.
    """
    if isinstance(finding, dict):
        return finding
    merged: dict[str, Any] = _merge(finding.to_dict("en"), finding.to_dict("zh"))
    merged["step"] = getattr(finding, "step", None)
    place = getattr(finding, "span", None)
    merged["source"] = place.source if place is not None else None
    explanation = getattr(finding, "explanation", None)
    if explanation is not None:
        merged["explanation"] = {"en": explanation.en, "zh": explanation.zh}
    advice = getattr(finding, "advice", None)
    merged["advice"] = {"en": advice.en, "zh": advice.zh} if advice is not None else ""
    merged["facts"] = [{"name": fact.name, "value": fact.value} for fact in getattr(finding, "facts", ())]
    for entry, related in zip(merged.get("related", []), getattr(finding, "related", ()), strict=False):
        entry["step"] = getattr(related, "step", None)
        span = getattr(related, "span", None)
        entry["source"] = span.source if span is not None else None
    return merged


_TEXTS = {"message", "explanation", "title"}


def _merge(en: Any, zh: Any, key: str = "") -> Any:
    if isinstance(en, dict) and isinstance(zh, dict):
        return {k: _merge(v, zh.get(k, v), k) for k, v in en.items()}
    if isinstance(en, (list, tuple)) and isinstance(zh, (list, tuple)):
        return [_merge(a, b) for a, b in zip(en, zh, strict=False)]
    return {"en": en, "zh": zh} if key in _TEXTS and isinstance(en, str) else en
