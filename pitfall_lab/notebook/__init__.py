"""What a notebook's cells use: the magic commands, exercises, the line under a failed cell, what-if,
and pictures of live tensors.
"""
