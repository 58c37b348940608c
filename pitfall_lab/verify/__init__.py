"""Where the two engines meet: real torch and the shadow run in lockstep, and both write one trace."""

from pitfall_lab.verify.program import Session, trace_callable, trace_program
from pitfall_lab.verify.report import disagreement_report

__all__ = ["Session", "disagreement_report", "trace_callable", "trace_program"]
