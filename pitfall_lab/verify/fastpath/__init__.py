"""Repeated calls at little cost: a compiled function for each kind of call, and an inline cache for each line that calls."""
