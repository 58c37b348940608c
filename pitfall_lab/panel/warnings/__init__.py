"""What the panel warns of, one file for each kind: the sentence, why, what to do, and the cells, in both languages."""
