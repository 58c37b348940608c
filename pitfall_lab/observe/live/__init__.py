"""Reads a notebook's live objects between its cells, without a recording, and finds backwards that would fail or be
wrong, and mistakes with its models and data (:class:`.session.Live` is the entry point).

Nothing here runs the program's code (no attribute of a foreign class is read), keeps a tensor alive, or regenerates a
view's grad_fn. From cell to cell only numbers are kept.
"""
