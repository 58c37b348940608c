"""Signals: facts of a trace that several rules judge by. Only :mod:`.words` looks at the program's text, for the name of an operand."""
