"""The panel's warnings, one file for each kind.

Each has a function that takes a finding in the live objects and the runs of cells, and returns the warning as the panel
sends it: the sentence, the explanation, the fix (in both languages) and the cells.
"""
