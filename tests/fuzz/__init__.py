"""Differential testing with whole programs: random programs run on torch and on the shadow engine,
compared after every statement.

``python -m tests.fuzz --programs 50000 --seed 1`` runs any number of them; see :mod:`tests.fuzz.__main__`.
"""

VOCABULARIES = ("core", "all")
MODES = ("lockstep", "standalone")
