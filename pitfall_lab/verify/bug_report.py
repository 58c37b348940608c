"""Writes a bug report about disagreements between torch and the shadow, ready to paste into an issue
(:func:`disagreement_report`).
"""

from __future__ import annotations

import platform
from typing import Any

from pitfall_lab.trace import Disagreement, Trace, replay

MOST = 20


def disagreement_report(trace: Trace) -> str:
    """Return Markdown text about the disagreements of ``trace``; "" if there are none.

    It contains the first disagreement and its step, up to 19 more, the facts about the tensors of that call, the
    versions and platform, and the text of each of the trace's sources.
    """
    if not trace.disagreements:
        return ""
    first = trace.disagreements[0]
    more = trace.disagreements[1:MOST]
    event = trace.events[first.step]
    lines = [
        "# The shadow engine and torch disagree",
        "",
        f"`{event.op}`{_place(trace, first)}: {_difference(first)}",
        "",
    ]
    if event.error is not None:
        lines += [f"The call raised {event.error.type}: {event.error.message.splitlines()[0]}", ""]
    if more:
        lines += [
            "Then also:",
            "",
            *(f"- step {d.step}, `{trace.events[d.step].op}`: {_difference(d)}" for d in more),
            "",
        ]
    left = len(trace.disagreements) - MOST
    lines += [f"… and {left} more.", ""] if left > 0 else []
    facts = _facts(trace, first)
    if facts:
        lines += ["The tensors of the call (as torch has them after it):", "", *facts, ""]
    environment = dict(trace.environment) | {"platform": platform.platform(), "machine": platform.machine()}
    lines += ["Versions: " + ", ".join(f"{name} {value}" for name, value in environment.items()), ""]
    for source in trace.sources:
        fence = "```" if "```" not in source.text else "~~~~"
        lines += [f"{source.name}:", "", f"{fence}python", source.text.rstrip("\n"), fence, ""]
    return "\n".join(lines)


def _place(trace: Trace, disagreement: Disagreement) -> str:
    span = trace.events[disagreement.step].span
    if span is None:
        return f" (step {disagreement.step})"
    text = trace.sources[span.source].text.splitlines()
    said = text[span.line - 1].strip() if 0 < span.line <= len(text) else ""
    return f" (step {disagreement.step}, line {span.line}: `{said}`)"


def _difference(disagreement: Disagreement) -> str:
    return (
        f"`{disagreement.path}` is {_short(disagreement.observed)} in torch, "
        f"{_short(disagreement.modelled)} in the shadow"
    )


def _facts(trace: Trace, disagreement: Disagreement) -> list[str]:
    """One line for each operand and result of the call that is a tensor in the trace, in the state after it."""
    event, state = trace.events[disagreement.step], replay(trace, disagreement.step)
    labels = dict.fromkeys([operand.label for operand in event.operands if operand.label] + list(event.results))
    lines = []
    for label in labels:
        tensor = state["tensors"].get(label)
        if tensor is None:
            continue
        version = state["counters"].get(tensor.get("counter"))
        node = state["nodes"].get(tensor.get("grad_fn") or "", {}).get("name")
        cells = state["storages"].get(tensor.get("storage") or "", {}).get("cells")
        name = f" ({tensor['name']})" if tensor.get("name") else ""
        stated = ", ".join(
            f"{fact} {tensor.get(fact)}" for fact in ("shape", "stride", "offset", "dtype", "requires_grad", "base")
        )
        lines.append(f"- {label}{name}: {stated}, version {version}, grad_fn {node}, memory {_short(cells)}")
    return lines


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= 400 else text[:400] + " …"
