"""Remedies: where the mistake behind a refusal was made, and how to undo it there, one file for each kind."""
