"""Switches that turn torch's rules into a learner's beliefs.

Every switch is False for torch. A misconception is a function ``Policy -> Policy`` that turns some on; running a program
under it gives the answer that a person with that belief would predict.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of the world the engine runs in; all defaults are torch's.

    >>> Policy() == TORCH, Policy(detach_copies=True).detach_copies
    (True, True)
    """

    detach_copies: bool = False
    """``detach()`` gives new memory."""
    data_copies: bool = False
    """``.data`` gives new memory."""
    data_shares_version: bool = False
    """Changes through ``.data`` are noticed by autograd."""
    from_numpy_copies: bool = False
    """``from_numpy`` and ``numpy()`` give new memory."""
    clone_cuts_graph: bool = False
    """``clone()`` also detaches."""
    clone_shares_memory: bool = False
    """``clone()`` is another name for the same memory."""
    views_copy: bool = False
    """Slices, ``view`` and ``transpose`` give new memory."""
    views_have_own_version: bool = False
    """A write through a view is not counted on its base."""
    reshape_always_copies: bool = False
    """``reshape`` gives new memory, whatever the strides."""
    reshape_never_copies: bool = False
    """``reshape`` always shares memory, whatever the strides."""
    index_shares_memory: bool = False
    """List, mask and LongTensor indexing give views."""
    augmented_assignment_rebinds: bool = False
    """``y += x`` makes a new tensor and binds ``y`` to it."""
    inplace_on_leaf_allowed: bool = False
    """A leaf may be changed in place at any time."""
    inplace_never_breaks_backward: bool = False
    """Backward uses the values as they were, no version is checked."""
    backward_overwrites_grad: bool = False
    """``.grad`` holds the last gradient, not the sum."""
    graph_survives_backward: bool = False
    """Backward can be called again without ``retain_graph``."""
    grad_of_non_leaf_kept: bool = False
    """``.grad`` is filled for every tensor on the way, not only for leaves."""
    no_grad_zeroes_grads: bool = False
    """Entering ``no_grad`` clears the gradients."""
    no_grad_hides_versions: bool = False
    """In-place changes under ``no_grad`` are not counted."""


TORCH = Policy()
"""The rules of torch itself."""
