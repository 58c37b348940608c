"""Masked positions are to get a small number; the table is one of whole numbers."""

import torch


class Table:
    def __init__(self, size):
        self.cells = torch.full((size,), 7)  # made

    def soften(self, keep):
        self.cells.masked_fill_(~keep, 1e-3)  # PL802 changed


table = Table(4)
table.soften(torch.tensor([True, False, True, True]))
print(table.cells.sum())
