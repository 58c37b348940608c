"""For teachers: assignments, and grading what comes back.

Its parts: :mod:`submissions` reads files as hostile input and returns the sources of cells; :mod:`judge` decides
what a cell is worth from data; :mod:`room` is the process that runs cells, each behind the :mod:`fence`;
:mod:`register` keeps what was decided and writes the table; :mod:`report` draws it; :mod:`init`, :mod:`grade` and
:mod:`nbgrader` are the ways in.
"""
