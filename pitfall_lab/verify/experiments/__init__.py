"""Experiments on real torch: what an operation saves for backward (:mod:`.saved_tensors`), the catalogue of operations
(:mod:`.catalogue`), and a program's gradients in a run that is not recorded (:mod:`.witness`).
"""
