"""The table of operations: torch's name to :class:`Op`. Adding an operation is adding one entry."""

# ruff: noqa: PLR0917 - signatures and names are torch's; every vjp takes (g, s); what an entry does is its torch name

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

Kind = Literal["pure", "view", "inplace", "other"]
Trait = Literal[
    "fresh",
    "products",
    "deterministic",
    "unchecked",
    "takes_alpha",
    "alpha_is_number",
    "fills_for_0_and_1",
    "copies_0d",
    "out_without_derivative",
    "out_uncounted",
    "out_may_be_operand",
    "elementwise",
    "same_form",
    "exchanged",
    "matrix_product",
    "convolution",
    "recurrent",
    "dropout",
    "difference_loss",
]
"""What holds for some operations:

- ``fresh``: computed from inference tensors, outside inference_mode, the result has version 0 (1 for a clone and a
  dtype conversion). Other operations call in-place operations internally, which increase the version.
- ``products``: each element of the result is a sum of products of the operands' elements. Terms may cancel until only
  an operand's rounding error is left.
- ``deterministic``: ``torch.use_deterministic_algorithms(True)`` changes what torch does on the CPU. New memory is
  filled, which may count as a write; gradients of functions that return indices use another kernel; some calls raise.
- ``unchecked``: in place, and torch does not run check_inplace before anything else: composites, no_grad helpers
  (``init.*``) and operations with their own message. (For ``logical_*_`` autograd checks nothing.)
- ``takes_alpha``: checks the type and the size of ``alpha`` itself.
- ``alpha_is_number``: there is one overload, under the entry's first name, for any ``alpha``: another type than a
  number gives a plain TypeError.
- ``fills_for_0_and_1``: computed by a fill or a copy where a number among the operands is 0 or 1, or the first operand
  is a number (``pow``).
- ``copies_0d``: computed by a copy where the operand has no dimensions (``cumsum``).
- ``out_without_derivative``: with ``out=`` torch does not raise for operands that require grad; the result gets a node
  without a derivative.
- ``out_uncounted``: ``out=`` is written through ``_unsafe_view``, which does not increase the version.
- ``out_may_be_operand``: computed element by element although there is no in-place variant: ``out=`` may be an operand.
- ``elementwise``: each element of the result depends on one element of each operand.
- ``same_form``: the result has the same shape, dtype and node for every value of a number argument.
- ``exchanged``: computes what :attr:`Op.computes` names, with the operands exchanged (``rsub``).
- ``matrix_product``: the product of two matrices, of a matrix and a vector, or of batches of them, and nothing else.
- ``convolution``: ``F.conv1d`` to ``F.conv3d`` and their transposes.
- ``recurrent``: a whole recurrent network over a sequence (``torch.lstm``).
- ``dropout``: zeroes elements at random, in training only.
- ``difference_loss``: a loss that depends on the difference of input and target, element by element.
"""

ENTRIES: dict[str, Op] = {}


@dataclass(frozen=True, slots=True)
class Op:
    """One operation.

    ``names`` are all of torch's full names for it. ``run(engine, *args, **kwargs)`` takes torch's arguments, checks
    them, computes, and records history. ``kind`` is what it does to its operands (``"pure"``: makes new tensors;
    ``"view"``, ``"inplace"``, or ``"other"``). ``saves`` says what backward needs, as in torch's ``derivatives.yaml``.
    ``samples`` are expressions over the operands of :mod:`pitfall_lab.shadow.ops.operands`; they run on torch and on
    the shadow, and must agree in everything. ``source`` is where torch implements it, as text; ``traits`` are what else
    holds for it (:data:`Trait`). Each text is empty where there is nothing to say.
    """

    names: tuple[str, ...]
    run: Callable[..., Any]
    kind: Kind = "pure"
    saves: str = ""
    samples: tuple[str, ...] = ()
    source: str = ""
    refuses: Mapping[int, str] = field(default_factory=dict)
    """Categories of operand types that torch's kernel of this name lacks (see
    :mod:`pitfall_lab.shadow.dtype_refusals`).
    """
    numbers: str = ""
    """A regular expression for torch's errors that depend on values (see
    :mod:`pitfall_lab.shadow.ops.value_refusals`).
    """
    traits: tuple[Trait, ...] = ()
    computes: str = ""
    """The short name of the operation that this one computes as well, where that has an entry of its own: ``neg`` for
    ``negative``, ``sub`` for ``rsub``. Empty for all others; an in-place variant is known by its name.
    """


def add(
    names: str | tuple[str, ...],
    run: Callable[..., Any],
    kind: Kind = "pure",
    saves: str = "",
    samples: tuple[str, ...] = (),
    source: str = "",
    traits: tuple[Trait, ...] = (),
    computes: str = "",
) -> Op:
    """Register the operation that ``run`` computes under all its ``names``, and return its entry, which has the other
    arguments as its fields; raises ValueError if one of the names is taken.

    A short name means the function and the method: ``exp`` is ``torch.exp`` and ``torch.Tensor.exp``; ``.exp`` is only
    the method, ``F.relu`` is ``torch.nn.functional.relu``.
    """
    spelled = tuple(full for name in ((names,) if isinstance(names, str) else names) for full in spell(name))
    entry = Op(spelled, run, kind, saves, samples, source, traits=traits, computes=computes)
    for full in spelled:
        if full in ENTRIES:
            raise ValueError(f"two entries for {full}")
        ENTRIES[full] = entry
    return entry


def also(known: str, *names: str) -> None:
    """Give the registered operation with the full name ``known`` more full names; raises ValueError if one of them is
    taken.
    """
    entry = replace(ENTRIES[known], names=(*ENTRIES[known].names, *names))
    for full in names:
        if full in ENTRIES:
            raise ValueError(f"two entries for {full}")
    for full in entry.names:
        ENTRIES[full] = entry


def do(e: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Run another operation, a part of a composite, in the engine ``e``, and return its result: ``do(e, "cat", parts)``
    is ``torch.cat``.
    """
    return ENTRIES[f"torch.{name}"].run(e, *args, **kwargs)


def spell(name: str) -> tuple[str, ...]:
    """Torch's full names for a short one.

    >>> spell("exp"), spell(".view"), spell("F.relu"), spell("torch.ones")
    (('torch.exp', 'torch.Tensor.exp'), ('torch.Tensor.view',), ('torch.nn.functional.relu',), ('torch.ones',))
    """
    if name.startswith("."):
        return (f"torch.Tensor{name}",)
    if name.startswith("F."):
        return (f"torch.nn.functional.{name[2:]}",)
    if name.startswith("torch."):
        return (name,)
    return (f"torch.{name}", f"torch.Tensor.{name}")


Run = TypeVar("Run", bound=Callable[..., Any])


def op(
    *names: str,
    kind: Kind = "pure",
    saves: str = "",
    samples: tuple[str, ...] = (),
    source: str = "",
    traits: tuple[Trait, ...] = (),
    computes: str = "",
) -> Callable[[Run], Run]:
    """Register the decorated function; see :func:`add`."""

    def register(run: Run) -> Run:
        add(names, run, kind, saves, samples, source, traits, computes)
        return run

    return register
