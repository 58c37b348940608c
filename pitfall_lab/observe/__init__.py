"""Observes torch without disturbing the program. Only this package and ``verify`` import torch."""

from pitfall_lab.observe.recorder import Call, Listener, Recorder, Verdict

__all__ = ["Call", "Listener", "Recorder", "Verdict"]
