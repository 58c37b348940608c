"""The panel's warnings, one file for each kind: the sentence, the explanation, the fix and
the cells, in both languages.
"""
