"""The commands of the console script ``pitfall-lab``, one module each; ``check``, ``grade`` and
``classroom`` have rooms of their own.
"""
