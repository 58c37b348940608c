"""Observes a program's torch calls without changing what the program does: a ``Recorder`` passes each call (a ``Call``)
to a ``Listener``, which answers with a ``Verdict``.
"""

from pitfall_lab.observe.recorder import Call, Listener, Recorder, Verdict

__all__ = ["Call", "Listener", "Recorder", "Verdict"]
