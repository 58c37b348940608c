"""What rules are built from: look-ups in a trace (Story), the program's syntax tree, repairs as edits, and findings."""
