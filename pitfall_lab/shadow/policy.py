"""Switches that replace a rule of torch by a learner's false belief about it: the fields of :class:`Policy`.

Every switch is False for torch; :mod:`pitfall_lab.shadow.beliefs` has, for each, a program whose outcome it changes. A
misconception is a function ``Policy -> Policy`` that turns some on; running a program under it gives the answer that a
person with that belief would predict.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules that the engine follows; all defaults are torch's.

    >>> Policy() == TORCH, Policy(detach_copies=True).detach_copies
    (True, True)
    """

    detach_copies: bool = False
    """``detach()`` gives new memory."""
    detach_has_own_version: bool = False
    """A write through ``detach()`` is not counted on its source."""
    data_copies: bool = False
    """``.data`` gives new memory."""
    data_shares_version: bool = False
    """Changes through ``.data`` are noticed by autograd."""
    from_numpy_copies: bool = False
    """``from_numpy`` and ``numpy()`` give new memory."""
    torch_tensor_shares_memory: bool = False
    """``torch.tensor(x)`` wraps the memory of ``x``."""
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
    expand_copies: bool = False
    """``expand`` and ``broadcast_to`` repeat the elements in new memory."""
    contiguous_always_copies: bool = False
    """``contiguous()`` gives new memory, also when nothing has to be moved."""
    to_always_copies: bool = False
    """``to``, ``float``, ``type_as`` and the like give new memory, also when nothing has to be converted."""
    index_shares_memory: bool = False
    """List, mask and LongTensor indexing give views."""
    id_tells_memory: bool = False
    """``id()`` is the same for tensors on the same memory, and so ``is`` holds for them."""
    augmented_assignment_rebinds: bool = False
    """``y += x`` makes a new tensor and binds ``y`` to it."""
    assignment_writes_in_place: bool = False
    """``x = x + 1`` changes the tensor that ``x`` names."""
    inplace_always_refused: bool = False
    """Nothing that requires grad may be changed in place."""
    inplace_on_leaf_allowed: bool = False
    """A leaf may be changed in place at any time."""
    inplace_never_breaks_backward: bool = False
    """Backward uses the values as they were, no version is checked."""
    backward_sums_elements: bool = False
    """``backward()`` without an argument works for a result of any size, as for its sum."""
    backward_overwrites_grad: bool = False
    """``.grad`` holds the last gradient, not the sum."""
    zero_grad_leaves_zeros: bool = False
    """``zero_grad()`` fills ``.grad`` with zeros."""
    zero_grad_spares_unused: bool = False
    """``zero_grad()`` clears only what an optimizer's ``step()`` has used."""
    step_clears_grads: bool = False
    """An optimizer's ``step()`` starts the next gradients afresh."""
    graph_survives_backward: bool = False
    """Backward can be called again without ``retain_graph``."""
    grad_of_non_leaf_kept: bool = False
    """``.grad`` is filled for every tensor on the way, not only for leaves."""
    non_leaf_flag_can_be_cleared: bool = False
    """``h.requires_grad = False`` freezes a computed tensor."""
    item_keeps_graph: bool = False
    """``item()`` gives a value that gradients flow through."""
    eval_stops_gradients: bool = False
    """A module in ``eval()`` mode records nothing."""
    tensor_attributes_are_parameters: bool = False
    """A tensor that requires grad becomes a parameter by being assigned to a module."""
    equal_counts_pair_up: bool = False
    """Operands with the same number of elements are combined one to one, whatever their shapes."""
    star_multiplies_matrices: bool = False
    """``*`` of two matrices is their matrix product."""
    squeeze_keeps_batch: bool = False
    """``squeeze()`` leaves the first dimension alone, the batch."""
    integer_division_stays_integer: bool = False
    """``/`` of two integer tensors gives integers."""
    no_grad_zeroes_grads: bool = False
    """Entering ``no_grad`` clears the gradients."""
    no_grad_hides_versions: bool = False
    """In-place changes under ``no_grad`` are not counted."""


TORCH = Policy()
"""The rules of torch itself."""
