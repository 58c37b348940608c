"""What rules are written with: the story of a trace, the program's syntax, repairs as edits, and the finding itself."""
