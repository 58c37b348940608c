"""The data model of a trace: one immutable document that describes what a program did to its tensors.

A trace is an event log. Every event carries explicit *effects*, ``Effect(path, value, by)``, and replaying a
trace means folding the effects of its events into a nested dictionary (see :mod:`pitfall_lab.trace.replay`).
Nothing is a snapshot, nothing is an address: identities are birth-ordered labels, so the same program gives
the same trace every time.

Labels
    ``t3`` a tensor or NumPy array, ``S2`` a storage, ``C1`` a version counter, ``n5`` a node of the graph.

The state that effects write (``None`` means *does not exist* or *not known*)::

    tensors.t3   = {"kind": "tensor" | "parameter" | "array", "name": "h" | None, "names": ["h", ...],
                    "shape": [2, 3], "stride": [3, 1], "offset": 0, "dtype": "float32", "device": "cpu",
                    "storage": "S1" | None, "counter": "C1" | None, "requires_grad": True, "is_leaf": False,
                    "grad_fn": "n5" | None, "base": "t1" | None, "grad": "t9" | None, "born": step,
                    "alive": True}
    storages.S1  = {"size": 6, "dtype": "float32", "nbytes": 24, "cells": Cells | None, "alive": True}
    counters.C1  = 0                                    # the version
    nodes.n5     = {"name": "SigmoidBackward0", "next": ["n3", None], "born": step, "output": "t4" | None,
                    "saved": [{"name": "result", "tensor": "t4" | None, "storage": "S2" | None,
                               "counter": "C2" | None, "version": 0}, ...],
                    "freed": False, "ran": None | step, "gradient": Cells | None, "gradient_shape": [...] | None,
                    "added": [{"node": "n7", "cells": Cells}, ...]}    # only where several gradients were added up to a short one
    mode         = {"grad": True, "inference": False}

Strides, offsets and sizes are in *elements*, ``nbytes`` in bytes. ``Cells`` is a list of plain values (``true``,
``3``, ``0.5``, or one of the strings ``"nan"``, ``"inf"``, ``"-inf"``, ``"1+2j"``) when there are at most
:data:`CELL_LIMIT`, and otherwise ``{"count": n, "shown": [[index, value], ...]}``, with ``"mean"``, ``"low"`` and
``"high"`` of all elements where these are finite numbers and not too many.
"""  # noqa: E501

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 3
CELL_LIMIT = 12

By = Literal["observed", "modelled", "agreed"]
"""Where a fact comes from: read from torch, computed by the shadow engine, or both with the same value."""

EventKind = Literal["call", "node", "write", "mode"]
"""A call of the program · a graph node that ran in backward · a write that torch did not see · a mode switch."""


Cause = Literal["failure", "limit", "removed", "never"]
"""Why observation stopped: an error in pitfall_lab · a limit · the program removed the
recorder · it could not begin.
"""


@dataclass(frozen=True, slots=True)
class Part:
    """The lines of a program that come from one cell: those from ``line`` on, which is line ``own``
    of the cell called ``name``.

    ``cell`` is the notebook's id for the cell, empty if there is none.
    """

    name: str
    line: int
    own: int = 1
    cell: str = ""


@dataclass(frozen=True, slots=True)
class Source:
    """One file or cell: its display ``name`` and complete ``text``; ``parts``, in order, if the
    text is made of several cells.
    """

    name: str
    text: str
    parts: tuple[Part, ...] = ()

    def part(self, line: int) -> Part | None:
        """The part that contains a line, or None."""
        return next((part for part in reversed(self.parts) if part.line <= line), None)


@dataclass(frozen=True, slots=True)
class Span:
    """A range in a source. Lines count from 1, columns from 0; the end column is exclusive, as in Python slices.

    ``column`` and ``end_column`` count code points; ``utf16`` has the same two columns in UTF-16 units, which browsers
    count. ``source`` is an index into ``Trace.sources``.
    """

    line: int
    column: int
    end_line: int
    end_column: int
    utf16: tuple[int, int] = (0, 0)
    source: int = 0


@dataclass(frozen=True, slots=True)
class Effect:
    """``state[path] = value``. The path is dotted (``"tensors.t3.name"``); ``by`` says where the fact comes from."""

    path: str
    value: Any
    by: By = "observed"


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument of a call: a tensor's ``label``, or the ``text`` of a plain value.
    ``name`` is the parameter, if known.
    """

    label: str | None = None
    text: str = ""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Given:
    """One argument of a call that raised, or one tensor in the frame of the program that raised an error itself.

    ``name`` is the parameter, ``text`` the expression for the argument in that line (empty if there is none), ``kind``
    the name of its type. A tensor or array has the facts of that moment, and its ``label`` if it is in the trace;
    ``low`` and ``high`` are its minimum and maximum if they were computed. Any other argument has its ``value`` as
    text. For a tensor in a list, ``name`` is ``tensors[2]``, say, and ``part_of`` the parameter's name.
    """

    name: str = ""
    text: str = ""
    kind: str = ""
    label: str | None = None
    value: str = ""
    dtype: str = ""
    shape: tuple[int, ...] | None = None
    device: str = ""
    requires_grad: bool = False
    low: Any = None
    high: Any = None
    part_of: str = ""


Origin = Literal["", "torch", "program", "library"]
"""Where an error was raised: unknown · in torch · in the program's own code · in other code that it calls."""


@dataclass(frozen=True, slots=True)
class Failure:
    """An error as typed facts. They are not parsed from the message, which is only quoted.

    ``kind`` is one of

    - ``saved-tensor-modified``: a node needs a tensor that was written since it was saved; ``node``, ``saved`` (the
      slot, e.g. ``"result"``), ``tensor``, ``storage``, ``counter``, ``expected`` and ``found`` versions,
      ``saved_at`` and ``changed_at`` (steps) are set; with ``earlier`` it was saved before the recording
      began, and these two are not;
    - ``leaf-modified``, ``view-of-leaf-modified``, ``multi-output-view-modified``, ``no-grad-view-modified``,
      ``inference-tensor``: raised at the write; ``tensor`` is set;
    - ``backward-twice``: an earlier backward freed the saved tensors of ``node``;
    - ``no-gradient``: backward of a tensor without a graph; ``nonscalar-backward``;
    - ``non-leaf-optimized``: an optimizer was given ``tensor``, which is not a leaf;
    - ``shape``, ``dtype``, ``overlap``: operands that do not fit;
    - ``other``: anything else, including the learner's own exceptions.

    ``op`` is torch's name of the function that raised, ``given`` its arguments (if ``origin`` is ``program``: the
    tensors in the program's frame).
    """

    type: str
    message: str
    kind: str = "other"
    step: int | None = None
    span: Span | None = None
    node: str | None = None
    saved: str | None = None
    tensor: str | None = None
    storage: str | None = None
    counter: str | None = None
    expected: int | None = None
    found: int | None = None
    saved_at: int | None = None
    changed_at: tuple[int, ...] = ()
    origin: Origin = ""
    op: str = ""
    given: tuple[Given, ...] = ()
    earlier: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """An error that the shadow engine has predicted, and the ``step`` at which it did so.

    ``came_true`` is the step at which torch raised the error; ``None`` if that backward has not run.
    """

    step: int
    failure: Failure
    came_true: int | None = None


@dataclass(frozen=True, slots=True)
class StaleRead:
    """A backward node used a saved tensor whose memory was written since, without a change of its version."""

    node: str
    saved: str
    storage: str
    saved_at: int | None
    changed_at: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Harm:
    """A wrong gradient without an error: what torch put into ``leaf``'s ``.grad``, and the intended gradient.

    ``torch`` and ``meant`` are :data:`Cells` of the leaf's shape; ``meant`` is computed with the saved
    values as they were when saved.
    """

    step: int
    leaf: str
    torch: Any
    meant: Any
    causes: tuple[StaleRead, ...] = ()


@dataclass(frozen=True, slots=True)
class Event:
    """One step of the program.

    ``op`` is torch's qualified name (``"torch.Tensor.add_"``; for a node, ``"SigmoidBackward0"``). ``scope`` are the
    learner's functions around it, outermost first. ``parent`` is the step of the call that this event is part of (for a
    node, the backward call). ``by`` says where the facts come from; ``reason`` why a call was mirrored, that is, copied
    from torch because it has no model. ``error`` is set if the call raised.
    """

    step: int
    kind: EventKind
    op: str
    span: Span | None = None
    scope: tuple[str, ...] = ()
    parent: int | None = None
    operands: tuple[Operand, ...] = ()
    results: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    """Labels of the storages whose memory this event wrote."""
    effects: tuple[Effect, ...] = ()
    by: By = "observed"
    reason: str = ""
    forecasts: tuple[Forecast, ...] = ()
    harms: tuple[Harm, ...] = ()
    error: Failure | None = None

    @property
    def name(self) -> str:
        """The short name: ``add_`` for ``torch.Tensor.add_``, ``grad`` for ``torch.Tensor.grad.__get__``."""
        parts = self.op.split(".")
        if parts[-1] in ("__get__", "__set__", "__delete__") and len(parts) > 1:
            return parts[-2]
        return parts[-1]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The number of calls that were compared, of those that agreed, of calls without a model, and
    of steps with a disagreement.
    """

    checked: int = 0
    agreed: int = 0
    mirrored: int = 0
    disagreed: int = 0


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A difference between torch (``observed``) and the shadow engine (``modelled``). Always shown; an error in CI."""

    step: int
    path: str
    observed: Any
    modelled: Any


@dataclass(frozen=True, slots=True)
class OptimizerMade:
    """An ``optimizer`` (its class name) was created after ``step`` events; ``holds`` are the tensors
    that it received, then or later.

    A tensor that no call has used has no label and is left out. ``steps`` is the number of times that its ``step()``
    was called, ``rates`` the learning rates with which it stepped: the number of the step (from 0) from which on each
    was used, and the highest of its groups. ``given`` are the different rates that its groups had when they were
    added, ``apart`` the number of steps in which the rates of its groups differed.

    ``updates`` says of steps after the first one, in order, how many backwards were made since the step, or the
    clearing of the gradients, before it. ``left`` are numbers of backwards after which the gradients were cleared
    without a step, with the place of the clearing (None: the program ended), and ``cleared`` the places of clearings
    after a step. Nothing is counted across a step of another optimizer. ``begins`` says of each of ``rates`` after how
    many events the first step with it was made.
    """

    step: int
    optimizer: str
    span: Span | None = None
    holds: tuple[str, ...] = ()
    steps: int = 0
    rates: tuple[tuple[int, float], ...] = ()
    given: tuple[float, ...] = ()
    apart: int = 0
    updates: tuple[int, ...] = ()
    left: tuple[tuple[int, Span | None], ...] = ()
    cleared: tuple[Span, ...] = ()
    begins: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """The ``step()`` of an ``optimizer`` (its class name) was called after ``step`` events; ``holds`` are
    the tensors that it had then.

    The calls that change a parameter are events like any other. This also shows the parameters that it skips because
    they have no gradient. Only the first few steps of each optimizer are recorded. ``made`` is the optimizer's index in
    ``Trace.optimizers``, if its creation was observed.
    """

    step: int
    optimizer: str
    span: Span | None = None
    holds: tuple[str, ...] = ()
    made: int | None = None


@dataclass(frozen=True, slots=True)
class SchedulerStep:
    """The ``step()`` of a learning-rate scheduler was called after ``step`` events and
    ``after`` steps of its optimizer.
    """

    step: int
    span: Span | None = None
    after: int = 0


@dataclass(frozen=True, slots=True)
class Scheduler:
    """A learning-rate ``scheduler`` (its class name) was created after ``step`` events, for the
    optimizer with index ``optimizer``.

    With ``made`` False its creation was not observed, and the place is that of its first step. ``steps`` is how often
    its ``step()`` was called, ``first`` are the first of these; ``settings`` its numbers (``T_max``, ``gamma``,
    ``base_lr``, the highest rate of the optimizer's groups when it was made; ``best`` and ``mode``, 0 for min, of one
    that looks at a metric). ``count`` is the type of the value that it counts its steps with: anything else than
    ``int`` was given to ``step()`` by the program. ``shared`` are the variables that several of its functions, made
    from one text, read when they are called.
    """

    step: int
    scheduler: str
    span: Span | None = None
    made: bool = True
    optimizer: int | None = None
    steps: int = 0
    first: tuple[SchedulerStep, ...] = ()
    settings: tuple[tuple[str, float], ...] = ()
    count: str = "int"
    shared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Restored:
    """``load_state_dict`` of the optimizer with index ``optimizer``, which had made no step yet, replaced its option
    ``name`` (``lr``) after ``step`` events.

    ``given`` is what it was made with, ``loaded`` what it has now, ``usual`` what its class takes where nothing is
    given. ``began`` is the rate from which a scheduler had started in the loaded state, ``earlier`` what the
    optimizers of this class had that were made before; None for what is no number.
    """

    step: int
    optimizer: int
    name: str
    given: float
    loaded: float
    span: Span | None = None
    usual: float | None = None
    began: float | None = None
    earlier: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class MisplacedAverages:
    """``load_state_dict`` gave the optimizer with index ``optimizer`` averages of other parameters than it holds at
    their places, after ``step`` events.

    ``entry`` is the name of the first such tensor, ``number`` that of its parameter (from 0, through all groups),
    ``parameter`` the label of that if it has one, ``loaded`` and ``shape`` are the shapes of tensor and parameter.
    ``count`` is the number of such parameters, of the ``of`` whose averages were loaded. Where the shapes agree,
    ``names`` are those that the state and the optimizer have for the parameter (or its group). ``groups`` is, for each
    group of the state, the number of the group that it belongs to, if that is known.
    """

    step: int
    optimizer: int
    number: int
    entry: str
    loaded: tuple[int, ...]
    shape: tuple[int, ...]
    count: int
    of: int
    groups: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    span: Span | None = None
    parameter: str | None = None


@dataclass(frozen=True, slots=True)
class Loading:
    """``load_state_dict`` of a ``module`` (its class name) was called after ``step`` events.

    ``holds`` are the parameters of the module that have a label, ``parameters`` is the number of all. What was loaded
    are the ``copy_`` calls on the same line. ``plain`` are its tensors that no state has, by the names of the
    attributes they were simply assigned to, ``unsaved`` those that were registered as buffers with
    ``persistent=False``. Where something was loaded, ``apart`` are pairs of names: of a tensor of
    the module that the state does not have, and of one of the state, of the same shape, that the module does not have;
    ``fit`` is the number of names that both have.
    """

    step: int
    module: str
    span: Span | None = None
    parameters: int = 0
    holds: tuple[str, ...] = ()
    plain: tuple[tuple[str, str], ...] = ()
    fit: int = 0
    apart: tuple[tuple[str, str], ...] = ()
    unsaved: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Saving:
    """``state_dict`` of a ``module`` (its class name) was called after ``step`` events;
    ``plain`` and ``unsaved`` as for :class:`Loading`.
    """

    step: int
    module: str
    span: Span | None = None
    plain: tuple[tuple[str, str], ...] = ()
    unsaved: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class FileWrite:
    """``torch.save`` was called after ``step`` events. ``tensors`` are pairs of labels: of a tensor that it wrote (None
    if that has no label), and of its storage; tensors on other storages than those of the trace are left out.
    """

    step: int
    span: Span | None = None
    tensors: tuple[tuple[str | None, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Stray:
    """An attribute that the program set on an object of torch's, and that torch never reads;
    noticed after ``step`` events.

    ``owner`` is the class of the object, ``attribute`` the name, ``meant`` the name that torch reads instead. ``value``
    is what was set, ``actual`` what torch uses. ``holds`` are the tensors concerned: the tensor itself, or the
    parameters of the module or optimizer.
    """

    step: int
    kind: Literal["tensor", "module", "optimizer"]
    owner: str
    attribute: str
    meant: str
    value: Any
    actual: Any
    holds: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DataPass:
    """The program began to iterate over a ``DataLoader`` after ``step`` events.

    ``workers`` is its number of worker processes, ``dataset`` the number of its dataset among those with
    ``generators`` (0, too, for one without) and ``kind`` the dataset's class; of a ``Subset`` both are those of the
    dataset that it is a part of. ``generators`` are the dataset's attributes that hold a random number
    generator and that it reads to make a sample; ``still`` are those of them that are, in this process, in the same
    state as at the pass before. ``examples`` is the length of the loader's dataset and ``weights`` the number of
    weights of a weighted sampler, each if known. ``undivided``: each of several workers reads all of a stream.
    """

    step: int
    span: Span | None = None
    workers: int = 0
    dataset: int = 0
    kind: str = ""
    generators: tuple[str, ...] = ()
    still: tuple[str, ...] = ()
    examples: int | None = None
    weights: int | None = None
    undivided: bool = False


@dataclass(frozen=True, slots=True)
class WorkerCopy:
    """The program began, after ``step`` events, another pass over a ``DataLoader`` whose ``workers`` worker processes
    stay, and its dataset was not as it was when they were started, at ``started``.

    ``kind`` is the dataset's class, ``name`` the attribute that differs (``transform.p`` for one of an object in it;
    empty if the dataset is a list), one that it reads to make a sample. ``before`` and ``after`` are its values as
    text, empty where they are not short.
    """

    step: int
    kind: str
    name: str
    workers: int
    span: Span | None = None
    started: Span | None = None
    before: str = ""
    after: str = ""


@dataclass(frozen=True, slots=True)
class Unfinite:
    """The call at ``step`` made NaN or infinity (``kind``) of finite numbers; read from torch by a
    recording that looks for it.

    In forward, ``tensor`` is the result, ``at`` the index of its first such element, ``given`` are the elements of
    the operands that it was made of, as (label, value), if it is made of one of each. ``why``: ``made`` without an
    operand, ``put`` in as a number, ``no-score`` (a softmax of nothing but ``-inf``), ``nothing`` or a ``single``
    number to average, ``no-target``; else empty. ``source`` is the step of the call that had made the infinity
    which it is made of. ``spread`` counts the later results that are NaN because of it; ``backward`` is the first
    backward whose root it reached.

    In backward (``step`` is that of the backward call), ``node`` made it, ``came`` is the element ``at`` of the
    gradient that the node received, if it has that shape, and ``hidden`` says that this was 0 at all such elements.
    ``tensor`` is a leaf that it reached, and ``numbers`` are some of this leaf's gradient. ``noticed``: the program
    itself tested the number (``isnan`` and the like).
    """

    step: int
    kind: Literal["nan", "inf"]
    tensor: str | None = None
    node: str | None = None
    why: str = ""
    at: tuple[int, ...] = ()
    given: tuple[tuple[str | None, Any], ...] = ()
    source: int | None = None
    spread: int = 0
    noticed: bool = False
    backward: int | None = None
    came: Any = None
    hidden: bool = False
    numbers: Any = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The call at ``step`` lost numbers without an error, ``lost`` of the ``of`` that were looked at; an example.

    ``sign`` is ``+``, ``-`` or ``*``: ``one`` and ``other`` would have given ``meant``, which is outside the range of
    the result's type, and gave ``got``; ``@``: an element of a product of matrices, a sum of ``other`` products of at
    most ``one``; ``to``: the number ``one`` became ``got`` in a type of whole numbers; ``=``:
    the neighbours ``one`` and ``other`` became the same number ``got``; ``cut``: all numbers from ``one`` (negative) to
    ``other`` became 0, as fractions are cut off towards 0; ``#``: the whole numbers ``one`` and ``other``, wherever
    they were, became the same number ``got``, and of ``of`` different ones there are ``lost`` fewer.
    """

    step: int
    sign: Literal["+", "-", "*", "@", "to", "=", "cut", "#"]
    one: float
    other: float
    meant: float
    got: float
    lost: int = 1
    of: int = 1


@dataclass(frozen=True, slots=True)
class Compared:
    """The call at ``step`` compared a prediction with ``of`` numbers from ``least`` to ``most``,
    some of them outside of 0 to 1.

    ``whole``: all of them are whole. ``beyond``: the ends of common ranges, each with the number of those
    below (-1, 0) or above (1, 6) it.
    """

    step: int
    of: int
    least: float
    most: float
    whole: bool
    beyond: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Paired:
    """The call at ``step`` stretched a column ``(N, 1)`` and a list ``(N,)`` to a table, which became one number.

    ``number`` is the step of the call whose result is this number, ``came``; ``meant`` is what the same calls give for
    the pairs that belong together, ``count`` the N.
    """

    step: int
    number: int
    came: float
    meant: float
    count: int


@dataclass(frozen=True, slots=True)
class Drift:
    """A line changed numbers that a data set keeps, while it made an example of them, and not for the first time.

    ``kind`` is the data set's class, ``name`` the attribute, ``before`` and ``after`` some of its numbers, ``reader``
    where the program began to iterate over its loader.
    """

    step: int
    span: Span
    kind: str
    name: str
    before: tuple[float, ...]
    after: tuple[float, ...]
    reader: Span | None = None


@dataclass(frozen=True, slots=True)
class Counted:
    """What the numbers show that the call at ``step`` was given.

    ``empty``: it searches the largest number in each of ``of`` rows of zeros and ones, and ``count`` of them have no
    one. ``weights``: losses with equal weights of ``count`` classes met ``of`` examples; ``numbers`` are the weights,
    followed by the numbers of examples of each class. ``kept``: it is a loss that leaves out all but ``count`` of its
    ``of`` targets; there for the losses of a place where some leave any out. ``parts``: it returned the stored numbers
    of a sparse tensor, of whose ``of`` entries ``count`` are stored several times; ``numbers`` are the place of one,
    and how often. ``blank``: in the table that it returned or wrote, ``count`` of ``of`` columns have one number, since
    the statistics in the variables ``names`` are NaN for them; ``numbers`` are the missing entries of such a column in
    a table of the program's, and the rows of that. ``renumbered``: it compares ``of`` class numbers with others, and
    ``count`` are equal, although each number given second nearly always meets one and the same of the first;
    ``numbers`` are these pairs one after the other. ``middle``: it takes medians of an even count of numbers, of which
    the two in the middle differ in ``count`` of ``of`` rows; ``numbers`` are the two of the first such row, and by how
    much the lower ones are below the mean of the two, over all rows. ``zeroed``: it takes the smallest or the largest
    numbers, and ``count`` of its ``of`` places went to zeros that were written by an index or a mask; ``numbers`` are
    the best number that was left over instead, and the steps of the writes. Of a softmax, ``count`` of its ``of``
    numbers are such zeros, and the first of ``numbers`` is their share of a row on average. ``tied``: it compares
    all numbers of each of ``of`` rows (of all calls at its place) with one of them, and in ``count`` rows others are
    equal to that; ``numbers`` are the mean of its ranks, where equal numbers come after it, and where half of them do.
    ``unread``: it reads one triangle of a matrix, and ``count`` of the ``of`` numbers of the other one are neither 0
    nor its mirror image; ``numbers`` are the largest difference, the largest number of the triangle that is read, and 1
    if that is the lower one. ``several``: it is a loss of one class, and ``count`` of its ``of`` targets, rows of ones
    and zeros, have more than a one; ``numbers`` are the most ones in a row, and the classes. ``unsorted``: it searches
    rows of ``of`` numbers that are to be sorted, and ``count`` of these are smaller than the one before; ``numbers``
    are the two numbers of the first such pair. ``uncentred``: it decomposes a table of ``of`` columns, or multiplies
    its transpose with it, and ``count`` columns have a mean larger than their standard deviation; ``numbers`` are the
    share of the means in the sum of all squares, and the rows. ``cancelled``: it computes distances, and in ``count``
    of ``of`` rows that were looked at the smallest one is not at the nearest place; ``numbers`` are a row, the place of
    its smallest distance, what came there, the exact distance there, the nearest place and the exact distance there,
    and the largest square of a length. ``ranked``: it picks or
    weighs the ranks of ``of`` scores, of which ``count`` are equal to another one and still have ranks of their own;
    ``numbers`` are the share of pairs of a picked and another element in which the picked one has the higher rank, what
    it is if equal scores share their ranks, the least and the most that the order of equal scores can make of it, and
    the step of the sort. ``correlated``: the same for the correlation of ranks with other numbers. ``cumulated``: the
    same for labels that it adds up in the order of scores, where the picked ones are to come first. ``hermitian``: it
    multiplies a Hermitian matrix with a complex vector, and ``count`` of the ``of`` numbers of the matrix are not equal
    to their mirror image; ``numbers`` are the largest such difference, and the largest number.
    """

    step: int
    kind: Literal[
        "empty",
        "weights",
        "kept",
        "blank",
        "parts",
        "renumbered",
        "middle",
        "tied",
        "zeroed",
        "unread",
        "several",
        "unsorted",
        "uncentred",
        "cancelled",
        "ranked",
        "correlated",
        "cumulated",
        "hermitian",
    ]
    count: int
    of: int
    numbers: tuple[float, ...] = ()
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadedAgain:
    """``load_state_dict`` gave the optimizer with index ``optimizer``, after ``step`` events, a state that had been
    loaded before, at ``first``, and whose tensors an optimizer has written since: it keeps those that it is given.

    ``count`` is the number of these tensors, ``entry`` the name of one (``exp_avg``).
    """

    step: int
    optimizer: int
    entry: str
    count: int
    span: Span | None = None
    first: Span | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """The call at ``step`` computed a layer in one piece, and did not call a function that the program wrote for it.

    This is ``function`` (its qualified name), the ``forward`` of the class ``kind`` of the layer's ``part``
    (``linear1``), or a method of the layer itself, where ``part`` is empty. ``weight`` is the label of the part's
    weight, if it has one. ``asks``: the function has a branch, or asks for the mode. ``own`` are the attributes of the
    part that it reads and that torch's class does not have.
    """

    step: int
    part: str
    kind: str
    function: str
    asks: Literal["", "branch", "mode"] = ""
    own: tuple[str, ...] = ()
    weight: str | None = None


@dataclass(frozen=True, slots=True)
class Hashed:
    """At ``span`` the program used tensors as keys of a dictionary or as elements of a set, first after ``step``
    events.

    These were ``objects`` tensors (counting ends at 200) with ``values`` different values; ``repeated`` of them were
    another object than the one before with the same value, and so another key. ``shown`` are the numbers of one of
    them, ``names`` the variables that held them, ``label`` is the label of the first one, if it has any. ``last``: no
    tensor was used so at another place later.
    """

    step: int
    span: Span
    objects: int
    values: int
    repeated: int
    shown: tuple[int | float | bool, ...] = ()
    names: tuple[str, ...] = ()
    label: str | None = None
    last: bool = False


@dataclass(frozen=True, slots=True)
class Picked:
    """The calls at ``steps`` picked ``rows`` of a table by an array or a list; only rows that are multiples of
    ``every`` are noted.
    """

    steps: tuple[int, ...]
    every: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """What the program did with objects of torch's beside the calls that the events describe; only
    the first ones of each kind.
    """

    schedulers: tuple[Scheduler, ...] = ()
    loadings: tuple[Loading, ...] = ()
    strays: tuple[Stray, ...] = ()
    passes: tuple[DataPass, ...] = ()
    savings: tuple[Saving, ...] = ()
    unfinite: tuple[Unfinite, ...] = ()
    losses: tuple[Lost, ...] = ()
    compared: tuple[Compared, ...] = ()
    drifts: tuple[Drift, ...] = ()
    paired: tuple[Paired, ...] = ()
    counted: tuple[Counted, ...] = ()
    picked: tuple[Picked, ...] = ()
    restored: tuple[Restored, ...] = ()
    misplaced: tuple[MisplacedAverages, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    loaded_again: tuple[LoadedAgain, ...] = ()
    hashed: tuple[Hashed, ...] = ()
    worker_copies: tuple[WorkerCopy, ...] = ()
    written: tuple[FileWrite, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A message for readers of the trace.

    ``stopped``: observation ended before the program (at most one such note in a trace); ``step`` and ``span`` say
    where, or after what, and ``cause`` why. ``unseen``: the program did something that was not observed; observation
    continued. ``limit``: anything else, such as what a drawing leaves out.
    """

    kind: Literal["limit", "stopped", "unseen"]
    en: str
    zh: str
    step: int | None = None
    span: Span | None = None
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Gap:
    """At least so many ``calls``, in rounds of a loop that repeat recorded ones, were made before ``step``
    and after the step before it.

    ``step`` is the number of events if the program ended in such rounds.
    """

    step: int
    calls: int


@dataclass(frozen=True, slots=True)
class Reach:
    """How far observation went.

    ``lines`` is the number of lines that made the observed calls. After observation had stopped, at least ``missed``
    more torch calls were made, which were only counted; ``later`` are the program's lines among them that had not made
    a call before. ``gaps`` are the places between recorded steps where rounds that repeat were not recorded.
    """

    lines: int = 0
    missed: int = 0
    later: tuple[int, ...] = ()
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the program ended: ``finished``, or ``raised`` with the error."""

    kind: Literal["finished", "raised"] = "finished"
    failure: Failure | None = None
