"""Observing real torch without disturbing it: the only package that imports torch."""

from pitfall_lab.observe.recorder import Call, Listener, Recorder, Verdict

__all__ = ["Call", "Listener", "Recorder", "Verdict"]
