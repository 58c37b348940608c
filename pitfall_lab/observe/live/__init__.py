"""Reads a notebook's live objects between its cells, without a recording, and finds backwards that would fail or be
wrong, and other findings about its models and data (:class:`.session.Live` is what others use).

Nothing here runs the program's code (no attribute of a foreign class is read), keeps a tensor alive, or regenerates a
view's grad_fn. Only plain numbers are kept from cell to cell.
"""
