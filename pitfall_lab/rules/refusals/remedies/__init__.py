"""Remedies: where the mistake was made for which torch raised an error, and how to repair it there; one file for each
kind of mistake.
"""
