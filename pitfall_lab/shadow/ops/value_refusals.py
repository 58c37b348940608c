"""Numbers that torch refuses: an index or a class that there is not, a singular matrix, a division of whole numbers by zero.

With the numbers the entries themselves say what torch says. Without them (large tensors, metadata mode) an entry says what the call
does *if* it returns; whether it does is not claimed, and an error in these words is then no disagreement.
"""

from __future__ import annotations

from dataclasses import replace

from pitfall_lab.shadow.ops.registry import ENTRIES, spell

REFUSALS = {
    "out of (DATA )?bounds|out of range": """
        .__getitem__ .__setitem__ index_select gather take .put_ .index_put_ index_put .index_fill_ index_fill .index_copy_ index_copy
        .index_add_ index_add .index_reduce_ index_reduce .scatter_ scatter .scatter_add_ scatter_add .scatter_reduce_ scatter_reduce
        F.embedding torch.embedding F.nll_loss F.cross_entropy F.multi_margin_loss F.multilabel_margin_loss
    """,
    "Found an invalid max index": "F.max_unpool1d F.max_unpool2d",
    "Number of elements of source < number of ones in mask": ".masked_scatter_ masked_scatter",
    "is singular|not positive-definite": "torch.linalg.inv torch.linalg.solve torch.linalg.cholesky",
    "should be between 0 and 1": "F.binary_cross_entropy",
    "ZeroDivisionError": "floor_divide fmod remainder",
    "returned nan values": ".backward torch.autograd.backward torch.autograd.grad",
}
"""By torch's words: the operations that say them, of those that are modelled without numbers."""


def apply() -> None:
    """Write the table into the entries; called once all families are registered."""
    for words, names in REFUSALS.items():
        for name in names.split():
            entry = ENTRIES[spell(name)[-1]]
            entry = replace(entry, numbers=words)
            for spelled in entry.names:
                ENTRIES[spelled] = entry
