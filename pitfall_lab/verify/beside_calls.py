"""Records events and values that are not operations in a trace (:class:`BesideCalls`): uses of schedulers, state dicts
and data loaders, and values that a trace does not show.
"""

from __future__ import annotations

import math
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from types import FrameType
from typing import Any

import torch

from pitfall_lab.observe import (
    compared_numbers,
    counted_numbers,
    data_loading,
    loaded_states,
    lost_numbers,
    paired_numbers,
    picked_rows,
    restored_options,
    scheduler_functions,
    skipped_parts,
    stored_examples,
    stray_attributes,
    tied_orders,
    tied_scores,
    worker_copies,
    written_files,
    zeroed_entries,
)
from pitfall_lab.observe.line_watch import LineWatch
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.lookups import Kind
from pitfall_lab.observe.recorder import Call
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.trace import (
    Beside,
    Compared,
    Counted,
    DataPass,
    Drift,
    FileWrite,
    Loading,
    Lost,
    Paired,
    Picked,
    Saving,
    Scheduler,
    SchedulerStep,
    Skipped,
    Span,
    Stray,
    Unfinite,
    WorkerCopy,
)
from pitfall_lab.verify.optimizer_records import Label, Optimizers, WeaklyHeld

MOST = 60
"""How many schedulers, loaded states, passes and stray attributes are recorded, of each at most."""
SOON = 400
"""For how many calls after a loading a tensor of the module is looked up at each call, to get its label as soon as it
is used.
"""
COPIES = "torch.Tensor.copy_"
SHOWN = 3
FIRST = 3
"""How many steps of each scheduler are recorded one by one, and how many findings at one position in the program, each
at most.
"""
LOOKS = 10
"""How many calls at one position have their values examined; later ones may take the fast path, which examines none."""
COMPARED = lost_numbers.CONVERSIONS | compared_numbers.COMPARING | counted_numbers.COUNTED
LOOKED_AT = COMPARED | tied_scores.STRICT | zeroed_entries.WRITING | zeroed_entries.RANKING | zeroed_entries.SHARING
SELDOM = lost_numbers.JOINING - lost_numbers.CONVERSIONS
"""Frequent calls that seldom convert anything: only the first at each position is examined, and none for which the fast
path would have to be left.
"""
SETTINGS = ("T_max", "T_0", "eta_min", "step_size", "gamma", "total_iters", "total_steps", "best")
MODES = ("min", "max")
"""The modes of a scheduler that uses a metric; its setting ``mode`` is the index in this list, and ``best`` the best
metric before its last step.
"""


@dataclass(slots=True)
class _Schedule:
    scheduler: weakref.ref[Any]
    kind: str
    step: int
    span: Span | None
    made: bool
    optimizer: int | None
    steps: int = 0
    first: list[SchedulerStep] = field(default_factory=list)
    settings: tuple[tuple[str, float], ...] = ()
    count: str = "int"
    shared: tuple[str, ...] = ()

    def finished(self) -> Scheduler:
        """Return the scheduler as the trace stores it."""
        return Scheduler(
            self.step,
            self.kind,
            self.span,
            self.made,
            self.optimizer,
            self.steps,
            tuple(self.first),
            self.settings,
            self.count,
            self.shared,
        )


@dataclass(slots=True)
class _Stored:
    """A data set, the values that it stored when the last pass over it began, and the position of that pass."""

    dataset: weakref.ref[Any]
    parts: list[stored_examples.StoredPart]
    span: Span | None
    reported: bool = False


class _Plain:
    """The tensors of a module that no state dict contains, with their names: those in plain attributes, and buffers
    with ``persistent=False``.
    """

    def __init__(self, module: Any) -> None:
        found = [(name, tensor, False) for name, tensor in stray_attributes.plain_tensors(module)][:MOST]
        found += [(name, tensor, True) for name, tensor in stray_attributes.unsaved_buffers(module)][:MOST]
        self._held = [(name, WeaklyHeld([tensor]), is_buffer) for name, tensor, is_buffer in found]

    def name(self, label: Label) -> None:
        """Look up the labels of the tensors that have none yet."""
        for _, held, _ in self._held:
            held.name(label)

    def named(self, *, buffers: bool = False) -> tuple[tuple[str, str], ...]:
        """Return the name and the label of each tensor in a plain attribute, or of each buffer, that has a label."""
        return tuple(
            (name, held.labels[0]) for name, held, is_buffer in self._held if held.labels and is_buffer is buffers
        )


class BesideCalls:
    """Collects the entries of :class:`pitfall_lab.trace.Beside` while the program runs; :meth:`finished` returns them.
    ``label`` returns a tensor's label in the trace, ``memory`` that of its storage, or None; a ``step`` is the number
    of events so far.
    """

    def __init__(
        self, sources: SourceMap, optimizers: Optimizers, label: Label, memory: Label, lines: LineWatch
    ) -> None:
        self._sources, self._optimizers, self._label, self._memory = sources, optimizers, label, memory
        self._lines = lines
        self._schedules: list[_Schedule] = []
        self._loaded: list[tuple[Loading, WeaklyHeld, _Plain, weakref.ref[Any] | None]] = []
        self._saved: list[tuple[Saving, _Plain]] = []
        self._fresh = 0
        self._awaits_labels = False
        """For how many more calls the tensors of the last loaded module are looked up at each call."""
        self._strays: dict[tuple[int, str], tuple[Stray, WeaklyHeld]] = {}
        self._datasets: list[tuple[weakref.ref[Any], dict[str, str]]] = []
        """The data sets with a generator of their own, and its state at the last pass."""
        self._passes: list[DataPass] = []
        self._losses: list[Lost] = []
        self._compared: list[Compared] = []
        self._stored: list[_Stored] = []
        self._suspect: _Stored | None = None
        """The data set whose values had changed when a pass over it began: now each line is watched."""
        self._drifts: list[Drift] = []
        self._counts = counted_numbers.Counts()
        self._picks = picked_rows.Picks()
        self._zeros = zeroed_entries.ZeroedEntries()
        self._skipped: dict[tuple[Span | None, str, str], Skipped] = {}
        self._ties = tied_scores.TiedScores()
        self._orders = tied_orders.TiedOrders()
        self._workers = worker_copies.WorkerCopies()
        self._copies: list[WorkerCopy] = []
        self._written: list[FileWrite] = []
        self._seen: Counter[tuple[Span | None, str]] = Counter()
        self._looks: Counter[tuple[Span | None, str]] = Counter()

    @property
    def is_following(self) -> bool:
        """Whether the next call must be passed to :meth:`before` and :meth:`after` too, as ranks of equal scores are
        followed or a module that was just loaded has parameters without a label.
        """
        return self._orders.is_following or self._awaits_labels

    def looked_up(self, kind: Kind, owner: Any, frame: FrameType, step: int) -> None:
        """Called before a method of ``owner`` is called in ``frame``: record the event (``kind``).

        That is a scheduler's creation or step, the loading or saving of a module's state, the loading of an optimizer's
        state, the beginning of a pass over a loader, or of writing a file. Nothing is recorded if no code of the
        program is around the call, if ``torch.jit`` makes it, if torch's own code saves a module's state, nor after the
        first ``MOST`` (60) of most kinds (of schedulers: for those seen later).
        """
        user = self._sources.user_frame(frame)
        if user is None:
            return
        span, around = self._sources.span(user), str(frame.f_globals.get("__name__"))
        if around.startswith(("torch.jit", "torch._jit")):
            return  # it copies the methods of a module, and calls none
        if kind == "scheduler":
            by_torch = around.startswith("torch.optim")
            initial = by_torch and frame.f_code.co_name == "_initial_step"  # SequentialLR makes one, too
            self._scheduler(owner, step, span, by_torch=by_torch, initial=initial)
        elif kind == "loading" and len(self._loaded) < MOST:
            held = WeaklyHeld(stray_attributes.parameters(owner))
            self._loaded.append(
                (Loading(step, type(owner).__name__, span, held.count), held, _Plain(owner), weakref.ref(owner))
            )
            self._fresh, self._awaits_labels = SOON, True
        elif kind == "saving" and len(self._saved) < MOST and not around.startswith("torch."):
            plain = _Plain(owner)
            plain.name(self._label)  # now, as the module may be gone at the end
            self._saved.append((Saving(step, type(owner).__name__, span), plain))
        elif kind == "writing" and len(self._written) < MOST:
            with unseen():
                self._write_file(frame, step, span)
        elif kind == "restoring" and (state := restored_options.loaded_state(owner, frame)) is not None:
            self._optimizers.restoring(owner, state, step, span)
        elif kind == "pass":
            with unseen():
                self._look_at_workers(owner, step, span)
            if len(self._passes) < MOST:
                self._passes.append(self._pass(owner, step, span))
                with unseen():
                    self._look_at_examples(owner, user, span)

    def _write_file(self, frame: FrameType, step: int, span: Span | None) -> None:
        """When ``torch.save`` opens its file: record which tensors it writes."""
        pairs = ((self._label(tensor), self._memory(tensor)) for tensor in written_files.written(frame))
        tensors = tuple((label, storage) for label, storage in pairs if storage is not None)
        if tensors:
            self._written.append(FileWrite(step, span, tensors))

    def _scheduler(self, owner: Any, step: int, span: Span | None, *, by_torch: bool, initial: bool) -> None:
        known = next((each for each in self._schedules if each.scheduler() is owner), None)
        is_new = known is None
        if known is None:
            if len(self._schedules) >= MOST:
                return
            number = self._optimizers.number(vars(owner).get("optimizer"))
            shared = scheduler_functions.shared_variables(owner)
            known = _Schedule(weakref.ref(owner), type(owner).__name__, step, span, by_torch, number, shared=shared)
            self._schedules.append(known)
        known.settings = _settings(owner)
        if initial or (is_new and by_torch):
            return  # the first step, which the constructor makes
        known.count = type(vars(owner).get("last_epoch", 0)).__name__
        known.steps += 1
        if len(known.first) < FIRST:
            known.first.append(SchedulerStep(step, span, self._optimizers.steps_of(known.optimizer)))

    def _pass(self, loader: Any, step: int, span: Span | None) -> DataPass:
        dataset = data_loading.source_of(loader)
        now = data_loading.generators(loader, dataset)
        number = next((number for number, (known, _) in enumerate(self._datasets) if known() is dataset), None)
        before = {} if number is None else self._datasets[number][1]
        if number is not None:
            self._datasets[number] = self._datasets[number][0], now
        elif now:
            number = len(self._datasets)
            self._datasets.append((weakref.ref(dataset), now))
        still = tuple(name for name in now if before.get(name) == now[name])
        workers = vars(loader).get("num_workers")
        several, sizes = (
            workers if isinstance(workers, int) else 0,
            (data_loading.examples(loader), data_loading.weights(loader)),
        )
        undivided = data_loading.undivided(loader)
        return DataPass(step, span, several, number or 0, type(dataset).__name__, tuple(now), still, *sizes, undivided)

    def _look_at_workers(self, loader: Any, step: int, span: Span | None) -> None:
        """At the beginning of a pass: record an attribute whose value in the loader's workers differs from the
        program's.
        """
        try:
            found = self._workers.begins(loader, span)
        except Exception:  # objects of the program may refuse to be read
            return
        if found is not None and len(self._copies) < MOST:
            kind, name, before, after, workers, started = found
            self._copies.append(WorkerCopy(step, kind, name, workers, span, started, before, after))

    def _look_at_examples(self, loader: Any, frame: FrameType, span: Span | None) -> None:
        """At the beginning of a pass: watch the lines of a data set whose values differ from those at the previous
        pass.

        At the first pass the values are only stored. A loader with worker processes is left out.
        """
        dataset = data_loading.source_of(loader)
        if vars(loader).get("num_workers"):
            return  # each worker changes a copy of its own
        known = next((each for each in self._stored if each.dataset() is dataset), None)
        parts = stored_examples.parts(dataset)
        if known is None:
            if parts and len(self._stored) < MOST:
                self._stored.append(_Stored(weakref.ref(dataset), parts, span))
            return
        if known.reported or not any(part.change() for part in known.parts):
            known.parts = parts
            return
        known.parts, known.span = parts, span
        self._suspect = known
        self._lines.start(frame)

    def line_done(self, frame: FrameType, span: Span | None, step: int) -> None:
        """Called after a line of the program, ``span``, has run in ``frame``: check whether it changed values of a data
        set that is watched.

        If the data set was creating an example in ``frame``, this is recorded, once for each data set; else the new
        values are stored.
        """
        known = self._suspect
        dataset = known.dataset() if known is not None else None
        if known is None or dataset is None or span is None or known.reported:
            return
        changes = ((part, change) for part in known.parts if (change := part.change()) is not None)
        part, change = next(changes, (None, None))
        if part is None or change is None:
            return
        if stored_examples.is_making(frame, dataset) and part.tells(frame):
            known.reported = True
            before, after = (tuple(float(value) for value in side[:SHOWN]) for side in change)
            self._drifts.append(Drift(step, span, type(dataset).__name__, part.name, before, after, known.span))
        else:
            known.parts = stored_examples.parts(dataset)

    def before(self, call: Call, step: int) -> None:
        """Called before a call: record values that the call will lose (integer overflow), for the first calls that do
        so at each position of the program itself.

        At the first copy of a loading (``copy_`` in ``load_state_dict``), compare the names of the state with those of
        the module. ``step`` is the call's step in the trace.
        """
        if self._fresh:  # the module may be gone with the function that made it, before anything else looks
            self._fresh -= 1
            _, held, plain, _ = self._loaded[-1]
            if self._awaits_labels:
                held.name(self._label)
                self._awaits_labels = self._fresh > 0 and not held.is_named
            plain.name(self._label)
        if call.name == COPIES and self._loaded:
            with unseen():
                self._compare_names()
        if lost_numbers.concerns(call) and self._wants(call.name, call.span):
            with unseen():
                self._lost(call, step, lost_numbers.out_of_range(call))

    def _compare_names(self) -> None:
        """At the first write of a loading: compare the names of the state with those of the module."""
        loading, held, plain, owner = self._loaded[-1]
        module = owner() if owner is not None else None
        if module is None or loading.fit or loading.apart:
            return
        state = loaded_states.loading(module)
        if state is not None:
            fit, apart = loaded_states.compared(module, state)
            self._loaded[-1] = replace(loading, fit=fit, apart=apart[:MOST]), held, plain, None

    def after(self, call: Call, result: Any, step: int) -> None:
        """Called after a call with its ``result``: record values that a conversion has lost, targets of a loss that are
        outside 0 to 1, rows that an index selected, and layers that were computed in one operation; count classes,
        empty rows and the like.

        Apart from rows and layers, only the first calls at each position are examined (:meth:`looks`).
        """
        if call.name == skipped_parts.WHOLE and len(self._skipped) < MOST:
            with unseen(), torch.no_grad():
                self._skip(call, step)
        if self._orders.is_following or self._orders.looks(call.name, call.span):
            with unseen(), torch.no_grad():
                self._orders.after(call, result, step)
        if call.name == picked_rows.PICKING:
            with unseen():
                self._picks.after(call, step)
        is_first = call.name in SELDOM and not self._looks[call.span, call.name]
        if is_first and self._wants(call.name, call.span):
            self._looks[call.span, call.name] += 1
            with unseen():
                self._lost(call, step, lost_numbers.joined_whole_numbers(call, result))
        if not self.looks(call.name, call.span):
            return
        self._count(call, result, step)
        if not self._compares(call.name, call.span):
            return
        self._looks[call.span, call.name] += 1
        with unseen():
            if call.name in lost_numbers.CONVERSIONS:
                self._lost(call, step, lost_numbers.joined_whole_numbers(call, result))
            if call.name in lost_numbers.CONVERSIONS:
                self._lost(call, step, lost_numbers.lost_by_conversion(call, result))
                return
            found = compared_numbers.compared(call)
        if found is not None:
            self._seen[call.span, call.name] += 1
            self._compared.append(Compared(step, *found))

    def _count(self, call: Call, result: Any, step: int) -> None:
        """Count in what a call compares, searches or writes."""
        if call.name in counted_numbers.COUNTED and self._counts.looks(call.name, call.span):
            with unseen():
                self._counts.after(call, result, step)
        if self._zeros.looks(call.name, call.span):
            with unseen(), torch.no_grad():
                self._zeros.after(call, result, step)
        if self._ties.looks(call.name, call.span):
            with unseen(), torch.no_grad():
                self._ties.after(call, step)

    def _skip(self, call: Call, step: int) -> None:
        """Record, once for each position, the functions of the program that a call did not run."""
        for each in skipped_parts.skipped_parts(call, self._sources.is_user):
            label = self._label(each.weight) if each.weight is not None else None
            said = Skipped(step, each.part, each.kind, each.function, each.asks, each.own, label)
            self._skipped.setdefault((call.span, each.part, each.function), said)

    def looks(self, name: str, span: Span | None) -> bool:
        """Whether the values of the next call of the function ``name`` at the position ``span`` will be read after the
        call.

        They are read for functions that convert or compare values, in the program itself: for the first ``LOOKS`` (10)
        calls at a position, until ``FIRST`` (3) findings there or ``MOST`` (60) in all were recorded. More calls are
        read while values are counted at the position.
        """
        is_own = span is not None and span.source == 0
        if is_own and any(each.looks(name, span) for each in (self._counts, self._zeros, self._ties, self._orders)):
            return True
        return self._compares(name, span)

    def _compares(self, name: str, span: Span | None) -> bool:
        """Whether the values that the next call of this function at this position loses or compares are recorded."""
        return (
            name in COMPARED
            and self._looks[span, name] < LOOKS
            and len(self._compared) < MOST
            and self._wants(name, span)
        )

    def _wants(self, name: str, span: Span | None) -> bool:
        return span is not None and span.source == 0 and self._seen[span, name] < FIRST and len(self._losses) < MOST

    def _lost(self, call: Call, step: int, found: lost_numbers.LostNumbers | None) -> None:
        if found is not None:
            self._seen[call.span, call.name] += 1
            self._losses.append(Lost(step, *found))

    def stepping(self, optimizer: Any, tensors: Iterable[Any], frame: FrameType | None, step: int) -> None:
        """Called before one of an optimizer's first steps, which ``frame`` makes: search for attributes that torch does
        not read, on the optimizer, on the modules in the variables there, and on ``tensors``.
        """
        self._name()
        of_modules, of_tensors = stray_attributes.of_modules(frame), stray_attributes.of_tensors(tensors)
        self._look([stray_attributes.of_optimizer(optimizer), of_modules, of_tensors], step)

    def _look(self, found: list[Iterator[stray_attributes.FoundStray]], step: int) -> None:
        for each in (stray for strays in found for stray in strays):
            key = (id(each.owner), each.attribute)
            if key not in self._strays and len(self._strays) < MOST:
                held = WeaklyHeld(each.tensors)
                held.name(self._label)
                stray = Stray(
                    step, each.kind, type(each.owner).__name__, each.attribute, each.meant, each.value, each.actual
                )
                self._strays[key] = stray, held

    def _name(self) -> None:
        for _, held, *_ in self._loaded:
            held.name(self._label)
        for _, held in self._strays.values():
            held.name(self._label)
        for plain in (*(each for _, _, each, _ in self._loaded), *(each for _, each in self._saved)):
            plain.name(self._label)

    def finished(
        self,
        tensors: Iterable[Any],
        step: int,
        unfinite: tuple[Unfinite, ...] = (),
        paired: Iterable[paired_numbers.PairedNumbers] = (),
    ) -> Beside:
        """Return all that was collected, at the end of the program. ``tensors`` are the tensors still alive;
        ``unfinite`` and ``paired`` are records made elsewhere that are included.
        """
        self._look([stray_attributes.of_tensors(tensors)], step)
        self._name()
        schedulers = tuple(each.finished() for each in self._schedules)
        loaded = tuple(
            replace(loading, holds=held.labels, plain=plain.named(), unsaved=plain.named(buffers=True))
            for loading, held, plain, _ in self._loaded
        )
        saved = tuple(
            replace(saving, plain=plain.named(), unsaved=plain.named(buffers=True)) for saving, plain in self._saved
        )
        strays = tuple(replace(stray, holds=held.labels) for stray, held in self._strays.values())
        counted = [*self._counts.finished(), *self._zeros.found.values(), *self._ties.finished()]
        counted += self._orders.found.values()
        return Beside(
            schedulers,
            loaded,
            strays,
            tuple(self._passes),
            saved,
            unfinite,
            tuple(self._losses),
            tuple(self._compared),
            tuple(self._drifts),
            tuple(Paired(*each) for each in paired),
            tuple(Counted(at, *each) for at, each in sorted(counted)),
            tuple(Picked(*each) for each in self._picks.finished()),
            tuple(self._optimizers.restored),
            self._optimizers.misplaced(),
            tuple(self._skipped.values()),
            tuple(self._optimizers.loaded_again),
            worker_copies=tuple(self._copies),
            written=tuple(self._written),
        )


def _settings(scheduler: Any) -> tuple[tuple[str, float], ...]:
    held = ((name, vars(scheduler).get(name)) for name in SETTINGS)
    numbers = [(name, float(value)) for name, value in held if type(value) in (int, float) and math.isfinite(value)]
    base = vars(scheduler).get("base_lrs")
    if type(base) is list and base and all(type(rate) is float and math.isfinite(rate) for rate in base):
        numbers.append(("base_lr", max(base)))
    if vars(scheduler).get("mode") in MODES:
        numbers.append(("mode", float(MODES.index(vars(scheduler)["mode"]))))
    return tuple(numbers)
