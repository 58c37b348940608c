"""Reads the variables of a frame without side effects that the program could notice (:func:`variables`)."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

HIDES = sys.version_info[:2] == (3, 12)
"""Whether reading ``f_locals`` of a module's frame can go wrong: Python 3.12 then takes the variable of a comprehension
for a global, and, while a trace function is set, warns that it is unbound ("assigning None to unbound local").
"""


def variables(frame: FrameType) -> Any:
    """The variables of a frame: its locals; at module level, its globals."""
    return frame.f_globals if HIDES and frame.f_code.co_name == "<module>" else frame.f_locals
