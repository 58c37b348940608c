"""Values for which torch raises: an index or class out of range, a singular matrix, an integer division by zero.

When values are known, the entries raise these errors. Without values (large tensors, metadata mode) an entry predicts
what the call does *if* it returns, and an error with one of these messages is then no disagreement.
"""

from __future__ import annotations

from dataclasses import replace

from pitfall_lab.shadow.registry import ENTRIES, spell

REFUSALS = {
    "out of (DATA )?bounds|out of range": """
        .__getitem__ .__setitem__ index_select gather take .put_ .index_put_ index_put .index_fill_ index_fill .index_copy_ index_copy
        .index_add_ index_add .index_reduce_ index_reduce .scatter_ scatter .scatter_add_ scatter_add .scatter_reduce_ scatter_reduce
        F.embedding torch.embedding F.nll_loss F.cross_entropy F.multi_margin_loss F.multilabel_margin_loss
    """,  # noqa: E501
    "Found an invalid max index": "F.max_unpool1d F.max_unpool2d",
    "Number of elements of source < number of ones in mask": ".masked_scatter_ masked_scatter",
    "is singular|not positive-definite": "torch.linalg.inv torch.linalg.solve torch.linalg.cholesky",
    "should be between 0 and 1": "F.binary_cross_entropy",
    "ZeroDivisionError": "floor_divide fmod remainder",
    "returned nan values": ".backward torch.autograd.backward torch.autograd.grad",
}
"""Patterns of torch's messages, each with the operations that raise them."""


def apply() -> None:
    """Put the table of this module into ``Op.numbers`` of the entries; to be called once, after all operations are
    registered.
    """
    for words, names in REFUSALS.items():
        for name in names.split():
            entry = ENTRIES[spell(name)[-1]]
            entry = replace(entry, numbers=words)
            for spelled in entry.names:
                ENTRIES[spelled] = entry
