"""For teachers: assignments, and grading what comes back.

Who meets whom: :mod:`submissions` reads files as hostile input and hands on the sources of cells; :mod:`judge` decides what a cell is worth
from data; :mod:`room` is the process that runs cells, each behind the :mod:`fence`; :mod:`register` keeps what was decided and writes
the table; :mod:`report` draws it; :mod:`init`, :mod:`grade` and :mod:`nbgrader` are the ways in.
"""
