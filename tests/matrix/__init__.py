"""The engine on every release of torch, NumPy and Python that the package declares: ``python -m tests.matrix``."""
