"""Experiments on real torch: what an operation saves for backward, the catalogue of operations, and a
program's gradients unobserved.
"""
