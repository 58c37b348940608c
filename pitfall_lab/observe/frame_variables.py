"""The variables of a frame, read so that the program does not notice."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

HIDES = sys.version_info[:2] == (3, 12)
"""Whether Python would take the variable of a comprehension for one of the module's own, and warn that it is unbound as soon as a trace
function is on: "assigning None to unbound local"."""


def variables(frame: FrameType) -> Any:
    """``frame.f_locals``; at the top level of a module these are its globals."""
    return frame.f_globals if HIDES and frame.f_code.co_name == "<module>" else frame.f_locals
