"""Signals: facts that are read off a trace alone and that several rules judge by. Nothing here looks at the text of the program."""
