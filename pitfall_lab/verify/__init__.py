"""Runs torch and the shadow in lockstep, compares them, and writes the trace."""

from pitfall_lab.verify.bug_report import disagreement_report
from pitfall_lab.verify.program import Session, for_drawing, trace_callable, trace_program

__all__ = ["Session", "disagreement_report", "for_drawing", "trace_callable", "trace_program"]
