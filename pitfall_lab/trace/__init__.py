"""The document in the middle: what a program did, as an immutable event log. Standard library only."""

from pitfall_lab.trace.codec import TraceError
from pitfall_lab.trace.model import (
    CELL_LIMIT,
    SCHEMA,
    Agreement,
    By,
    Disagreement,
    Effect,
    Event,
    Failure,
    Forecast,
    Harm,
    Note,
    Operand,
    Outcome,
    Source,
    Span,
    StaleRead,
    Trace,
)
from pitfall_lab.trace.replay import State, apply, empty_state, replay, states
from pitfall_lab.trace.words import LANGUAGES, Language, T

__all__ = [
    "CELL_LIMIT",
    "LANGUAGES",
    "SCHEMA",
    "Agreement",
    "By",
    "Disagreement",
    "Effect",
    "Event",
    "Failure",
    "Forecast",
    "Harm",
    "Language",
    "Note",
    "Operand",
    "Outcome",
    "Source",
    "Span",
    "StaleRead",
    "State",
    "T",
    "Trace",
    "TraceError",
    "apply",
    "empty_state",
    "replay",
    "states",
]
