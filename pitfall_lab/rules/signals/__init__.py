"""Signals: facts derived from a trace that several rules use. Only :mod:`.operand_names` reads the program's text."""
