"""Runs torch and the shadow (this package's own engine, in NumPy) in lockstep, compares them, and writes the trace:
:func:`trace_program` and :func:`trace_callable` return it, :class:`Session` records only the code in a ``with`` block.
"""

from pitfall_lab.verify.bug_report import disagreement_report
from pitfall_lab.verify.program import Session, for_drawing, trace_callable, trace_program

__all__ = ["Session", "disagreement_report", "for_drawing", "trace_callable", "trace_program"]
