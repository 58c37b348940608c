"""Rows are taken out by a list, changed under a name, and never put back."""

import torch


def scale(table, rows):
    chosen = table[rows]  # copied
    chosen.mul_(10.0)  # PL707 changed
    chosen[0] = 0.0
    return table


table = torch.ones(4, 2)
print(scale(table, [1, 3]).sum())
