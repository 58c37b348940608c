"""Where the two engines meet: real torch and the shadow run in lockstep, and both write one trace."""

from pitfall_lab.verify.bug_report import disagreement_report
from pitfall_lab.verify.program import Session, trace_callable, trace_program

__all__ = ["Session", "disagreement_report", "trace_callable", "trace_program"]
