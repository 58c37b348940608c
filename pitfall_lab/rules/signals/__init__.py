"""Signals: facts derived from a trace that several rules use."""
