"""Looking at a notebook's live objects between its cells, without a recording: what they are, and what would go wrong with them.

Nothing here runs code of the program's (no attribute of a foreign class is read), keeps a tensor alive, or gives a view its history anew.
What is remembered from cell to cell are plain numbers.
"""
