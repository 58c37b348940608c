"""Remedies: where the mistake was made that torch raised an error for, and how to undo it there, one file for each
kind.
"""
