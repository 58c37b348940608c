"""Generates the pages of the documentation that are read off the code: the rules and the operations."""
