"""Examines the live objects of one notebook after each of its cells: :class:`Live` is notified of each cell, and its
:meth:`Live.look` returns a :class:`LookResult`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pitfall_lab.observe import private
from pitfall_lab.observe.live.begun_again import Beginnings, BegunAgain
from pitfall_lab.observe.live.broken import Broken, Root, broken, sampled
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.carriers import Carriers
from pitfall_lab.observe.live.computed_buffers import ComputedBuffer, ComputedBuffers, freed_buffer
from pitfall_lab.observe.live.cut_parameters import CutParameter, CutParameters
from pitfall_lab.observe.live.cutting_hooks import CuttingHook, CuttingHooks
from pitfall_lab.observe.live.equal_weights import Equal, SeenWeights
from pitfall_lab.observe.live.found import Found, Path, Thing, find
from pitfall_lab.observe.live.global_states import Kind, Setting, States, Switched, kinds
from pitfall_lab.observe.live.graphs import walk
from pitfall_lab.observe.live.growing_graphs import GraphGrowth, Growing, growing
from pitfall_lab.observe.live.held_functions import Functions, HeldFunction
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.idle_gradients import Idle, Idles
from pitfall_lab.observe.live.inside import Updates, children, resolve
from pitfall_lab.observe.live.kept_inference import KeptInference, kept_inference
from pitfall_lab.observe.live.kept_references import KeptReference, References
from pitfall_lab.observe.live.kept_states import KeptState, KeptStates
from pitfall_lab.observe.live.leaf_losses import LeafLoss, leaf_losses
from pitfall_lab.observe.live.left_hooks import LeftHook, LeftHooks
from pitfall_lab.observe.live.leftover_gradients import Leftover, Leftovers
from pitfall_lab.observe.live.lost_axes import Reshaped, Shapes
from pitfall_lab.observe.live.misread_numbers import Misread, misread
from pitfall_lab.observe.live.module_dtypes import ConvertedModule, ModuleTypes
from pitfall_lab.observe.live.module_modes import Evaluating, ModuleModes
from pitfall_lab.observe.live.namespace_rows import Row, Table, row_id, rows
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.live.old_classes import OldObject, old_object
from pitfall_lab.observe.live.old_defaults import Defaults, OldDefault
from pitfall_lab.observe.live.old_snapshots import OldSnapshot, Snapshots
from pitfall_lab.observe.live.one_memory import OneMemory, one_memory
from pitfall_lab.observe.live.outdated_objects import Classes, OutdatedObject
from pitfall_lab.observe.live.overwritten_numbers import Overwritten, OverwrittenNumbers
from pitfall_lab.observe.live.parted_weights import PartedWeight, PartedWeights
from pitfall_lab.observe.live.repeated_hooks import Hooks, Twice
from pitfall_lab.observe.live.repeated_parametrizations import Parametrizations, ParametrizedAgain
from pitfall_lab.observe.live.row_orders import Orders, Reordered
from pitfall_lab.observe.live.rows_asked import RowsAsked, rows_asked
from pitfall_lab.observe.live.saved import Cells, Memory, SavedRow
from pitfall_lab.observe.live.saved_names import Names
from pitfall_lab.observe.live.shared_settings import SharedSetting, SharedSettings
from pitfall_lab.observe.live.shared_writes import Shared, SharedWrites
from pitfall_lab.observe.live.spanning_graphs import Spanning, spanning
from pitfall_lab.observe.live.split_again import SplitAgain, Splits, subsets
from pitfall_lab.observe.live.splits_gone import GoneSplits, SplitGone
from pitfall_lab.observe.live.stacked_gradients import Gradients, Stacked
from pitfall_lab.observe.live.stale_caches import Asked, Caches, StaleCache
from pitfall_lab.observe.live.stale_schedulers import Schedulers, Stale, Stepped
from pitfall_lab.observe.live.statistics import Looked, Statistics
from pitfall_lab.observe.live.summed_gradients import GradientSums, Summed
from pitfall_lab.observe.live.unheld_parameters import LeftOut, Owners
from pitfall_lab.observe.live.unread_attributes import Attributes, Unread
from pitfall_lab.observe.live.used_graphs import Used, begun_from, carried, used, with_leaves
from pitfall_lab.observe.live.written_again import Rewrites, WrittenAgain
from pitfall_lab.observe.looking import unseen
from pitfall_lab.observe.tensor_facts import node_name, sequence_of

FINDING, GRAPHS, ROWS, ORDERS, OTHERS = 0.22, 0.4, 0.2, 0.08, 0.1


@dataclass(slots=True)
class LookResult:
    """The result of one examination: for each search the records that it has found (see their classes).

    Where a search found nothing the field is an empty list or tuple, or None if it holds at most one record. ``rows``
    are the requested rows of the panel (None: none were requested), ``more`` is how many names are left after them.
    """

    broken: list[Broken] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    growing: list[Growing] = field(default_factory=list)
    used: list[Used] = field(default_factory=list)
    again: list[Used] = field(default_factory=list)
    """Tensors whose names the last cell both reads and binds, and whose graph has been freed: a second run of the cell
    would begin with them.
    """
    kept: list[KeptReference] = field(default_factory=list)
    leaves: list[LeafLoss] = field(default_factory=list)
    one_memory: list[OneMemory] = field(default_factory=list)
    misread: list[Misread] = field(default_factory=list)
    evaluating: list[Evaluating] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    idle: list[Idle] = field(default_factory=list)
    reordered: list[Reordered] = field(default_factory=list)
    twice: list[Twice] = field(default_factory=list)
    parametrized: list[ParametrizedAgain] = field(default_factory=list)
    looked: list[Looked] = field(default_factory=list)
    split_again: list[SplitAgain] = field(default_factory=list)
    split_gone: list[SplitGone] = field(default_factory=list)
    rewritten: list[WrittenAgain] = field(default_factory=list)
    switched: list[Switched] = field(default_factory=list)
    stacked: Stacked | None = None
    leftover: Leftover | None = None
    summed: Sequence[Summed] = ()
    reshaped: Sequence[Reshaped] = ()
    shared: list[Shared] = field(default_factory=list)
    settings: list[SharedSetting] = field(default_factory=list)
    schedulers: list[Stale] = field(default_factory=list)
    cut_parameters: list[CutParameter] = field(default_factory=list)
    parted: list[PartedWeight] = field(default_factory=list)
    cutting: list[CuttingHook] = field(default_factory=list)
    overwritten: list[Overwritten] = field(default_factory=list)
    stale_caches: list[StaleCache] = field(default_factory=list)
    held_functions: list[HeldFunction] = field(default_factory=list)
    outdated: list[OutdatedObject] = field(default_factory=list)
    old_defaults: list[OldDefault] = field(default_factory=list)
    begun_again: list[BegunAgain] = field(default_factory=list)
    snapshots: list[OldSnapshot] = field(default_factory=list)
    kept_states: list[KeptState] = field(default_factory=list)
    buffers: list[ComputedBuffer] = field(default_factory=list)
    left_hooks: list[LeftHook] = field(default_factory=list)
    spanning: list[Spanning] = field(default_factory=list)
    equal: Equal | None = None
    rows: list[Row] | None = None
    more: int = 0
    cut: bool = False
    """Whether the time limit was reached before everything was examined."""


class Computed(NamedTuple):
    """A tensor computed by an operation: ``name`` is its name in the notebook, ``node`` the name of its grad_fn,
    ``made`` the number of the cell that computed it (None: unknown).
    """

    name: str
    node: str
    made: int | None


class Copied(NamedTuple):
    """A tensor with a graph that a deepcopy has refused to copy.

    ``name`` is the expression for it, ``node`` the name of its grad_fn, ``made`` the number of the cell that computed
    it (None: unknown), ``root`` the name that leads to it. ``module`` and ``attribute``: the expression for the module
    that has it as an attribute, and the attribute; empty if it is held in another way. ``others`` counts further
    tensors with this attribute name in the modules of ``root``.
    """

    name: str
    node: str
    made: int | None
    root: str
    module: str = ""
    attribute: str = ""
    others: int = 0


class Missing(NamedTuple):
    """A tensor that has no gradient: ``why`` is ``computed`` (it is no leaf and does not retain its gradient),
    ``plain`` (it does not require grad) or ``not-reached`` (a leaf that no backward has reached).

    ``name`` is the expression for it, empty if no name leads to it; for ``computed``, ``node`` is the name of its
    grad_fn, and ``made`` the number of the cell that computed it (None: unknown).
    """

    name: str
    why: str
    node: str = ""
    made: int | None = None


class Live:
    """Examines a namespace after each cell, and remembers what must be compared after the next one."""

    def __init__(self) -> None:
        self._cells, self._memory, self._updates = Cells(), Memory(), Updates()
        self._owners, self._carriers, self._references, self._gradients = (
            Owners(),
            Carriers(),
            References(),
            Gradients(),
        )
        self._modes, self._attributes, self._idles, self._weights = ModuleModes(), Attributes(), Idles(), SeenWeights()
        self._orders, self._rounds, self._hooks, self._statistics = Orders(), GraphGrowth(), Hooks(), Statistics()
        self._splits, self._rewrites, self._states = Splits(), Rewrites(), States()
        self._gone, self._caches, self._functions = GoneSplits(), Caches(), Functions()
        self._classes = Classes()
        self._defaults, self._settings, self._snapshots = Defaults(), SharedSettings(), Snapshots()
        self._asked: Sequence[Asked] = ()
        self._kept_states, self._buffers, self._left_hooks = KeptStates(), ComputedBuffers(), LeftHooks()
        self._parametrizations, self._types = Parametrizations(), ModuleTypes()
        self._leftovers, self._schedulers = Leftovers(), Schedulers()
        self._sums, self._shapes = GradientSums(), Shapes()
        self._shared, self._cuts, self._beginnings = SharedWrites(), CutParameters(), Beginnings()
        self._parted, self._cutting, self._overwritten = PartedWeights(), CuttingHooks(), OverwrittenNumbers()
        self._kept_numbers: Sequence[tuple[str, str, str]] = ()
        self._writes: Sequence[Any] = ()
        self._assigned: frozenset[str] = frozenset()
        self._before: dict[str, tuple[Any, ...]] = {}
        self._after: dict[str, tuple[Any, ...]] = {}
        self._bound: frozenset[str] = frozenset()
        self._carried: frozenset[str] = frozenset()
        self._touched: frozenset[str] = frozenset()
        self._numbers: dict[Any, int] = {}
        self._held: list[SavedRow] = []
        self._first: int | None = None
        self._statements: list[tuple[int, int]] = []
        self._rooted: list[str] = []

    def begin(self) -> None:
        """Called before a cell runs: nodes created from now on belong to it."""
        self._first = _next_node()
        self._statements.clear()

    def statement(self, line: int) -> None:
        """Called before each statement of the cell: store its line, and the sequence number that its first node will
        get.
        """
        self._statements.append((_next_node(), line))

    def ended(
        self,
        cell: int,
        bound: Iterable[str],
        *,
        torch_is_new: bool,
        carried: Iterable[str] = (),
        written: Iterable[str] = (),
        writes: Sequence[Any] = (),
        assigned: Iterable[str] | None = None,
        caches: Sequence[Asked] = (),
        kept_numbers: Sequence[tuple[str, str, str]] = (),
    ) -> None:
        """Record that the notebook's cell with the number ``cell`` has run; ``torch_is_new``: this cell has imported
        torch.

        From the cell's source: ``bound`` are the names that it binds, ``carried`` those of them that it reads before it
        binds them, ``written`` those whose objects it changes in place, ``writes`` the statements that change data once
        more when they run again. ``assigned`` are the names that have another object since (None: those in ``bound``),
        ``caches`` the variables in which the cells so far keep results, ``kept_numbers`` the numbers computed from data
        that the cell changes (name, source, statement).
        """
        end = _next_node()
        self._states.ended(cell, torch_is_new=torch_is_new)
        first = 0 if torch_is_new else self._first
        self._cells.ran(cell, end if first is None else first, end, self._statements)
        self._first = None
        self._statements.clear()
        self._updates.begin(cell)
        self._before, self._bound = {**self._before, **self._after}, frozenset(bound)
        self._after, self._carried = {}, frozenset(carried)
        self._touched, self._asked = self._bound.union(written), caches
        self._kept_numbers = kept_numbers
        self._writes, self._assigned = writes, self._bound if assigned is None else frozenset(assigned)

    def look(self, namespace: Mapping[str, Any], seconds: float, page: tuple[int, int] | None = None) -> LookResult:
        """Examine the namespace in about ``seconds`` of processor time, and return what was found.

        ``page``: index of the first row and number of rows, if rows are wanted. The search for objects, the graphs and
        the rows each have a share of the time, so that none of them is skipped in a large namespace. What the search
        and the graphs leave over is for the other examinations.
        """
        began = time.thread_time()
        with unseen():
            finding = Budget(seconds * FINDING)
            found = find(namespace, [*self._bound, *self._rooted], finding)
            graphs = Budget(seconds * GRAPHS)
            roots = _roots(found, graphs)
            self._rooted = [root.thing.path[0] for root in roots]
            nodes = walk([root.node for root in sampled(roots)], graphs)
            held, moved = self._memory.compare(nodes, self._cells, graphs)
            look = LookResult(broken(sampled(roots), moved, Names(found), self._cells, graphs))
            look.one_memory = one_memory(found, finding)
            look.evaluating = self._modes.compare(found, self._cells.now, finding)
            look.left_out = self._owners.compare(found, roots, self._cells.now, graphs) if not finding.spent else []
            look.misread = misread([root for root in roots if len(root.thing.path) == 1], graphs)
            look.growing = growing(roots, self._touched, self._cells, self._carriers, graphs)
            look.used = used(roots, {each.kept.node for each in held}, self._cells, self._carriers, graphs)
            look.used = [with_leaves(each, found, graphs) for each in look.used]
            look.again = begun_from([root for root in roots if self._begins(root, graphs)], self._cells, graphs)
            self._carriers.remember(roots, self._cells.now)
            look.kept = self._references.compare(found, self._touched, self._cells.now, graphs)
            look.leaves = leaf_losses(found, graphs)
            look.stacked = self._gradients.compare(found, self._cells.now, graphs)
            look.summed = self._sums.compare(found, self._cells.now, graphs)
            look.reshaped = self._shapes.compare(found, self._cells.now, graphs)
            look.unread = self._attributes.compare(found, self._cells.now, graphs)
            look.equal = self._weights.compare(found, self._cells.now, graphs)
            look.idle = self._idles.compare(found, roots, graphs) if not look.left_out else []
            left = seconds * (FINDING + GRAPHS + OTHERS) - (time.thread_time() - began)
            others = Budget(max(left, seconds * OTHERS))
            self._optimizers(look, found, namespace, others)
            look.growing += self._rounds.compare(roots, self._cells, others)
            look.spanning, look.parted = (
                spanning(found, roots if moved else (), others),
                self._parted.compare(found, self._cells.now, others),
            )
            look.looked = self._statistics.compare(found, roots, self._cells, others)
            look.twice = self._hooks.compare(found, namespace, self._cells.now, others)
            look.cutting = self._cutting.compare(found, self._cells.now, others)
            look.stale_caches = self._caches.compare(namespace, self._asked, self._cells.now, others)
            look.held_functions, look.outdated = (
                self._functions.compare(found, namespace, self._cells.now, others),
                self._classes.compare(found, namespace, self._cells.now, others),
            )
            look.old_defaults = self._defaults.compare(namespace, self._cells.now, others)
            look.switched = self._states.compare(found)
            self._data(look, found, namespace, others, Budget(seconds * ORDERS))
            drawing = Budget(seconds * ROWS)
            if page is not None:
                stale = {row_id(path) for each in look.broken for path in (each.root_path, each.among_path) if path}
                table = Table(self._before, self._bound, stale)
                look.rows, look.more = rows(found, table, drawing, *page)
                table.saved(held)
                table.share(self._numbers)
                self._after.update(table.after)
            look.cut = found.hidden or any(each.spent for each in (finding, graphs, others, drawing))
            return look

    def _optimizers(self, look: LookResult, found: Found, namespace: Mapping[str, Any], budget: Budget) -> None:
        """Compare optimizers and parametrizations with the cells before, and store the findings in ``look``.

        The fields are ``parametrized``, ``leftover``, ``cut_parameters``, ``schedulers``, ``begun_again``,
        ``kept_states`` and ``buffers``.
        """
        look.parametrized = self._parametrizations.compare(found, self._cells.now, budget)
        self._types.compare(found, self._cells.now, budget)
        look.leftover = self._leftovers.compare(found, self._cells.now, budget)
        look.cut_parameters = self._cuts.compare(found, self._cells.now, budget)
        look.schedulers = self._schedulers.compare(found, namespace, self._cells.now, budget)
        look.begun_again = self._beginnings.compare(found, self._cells.now, budget)
        look.kept_states = self._kept_states.compare(found, self._cells.now, budget)
        look.buffers = self._buffers.compare(found, self._cells, budget)

    def _data(
        self, look: LookResult, found: Found, namespace: Mapping[str, Any], budget: Budget, orders: Budget
    ) -> None:
        """Compare data and its splits with the cells before, and store the findings in ``look``.

        The fields are ``split_again``, ``settings``, ``rewritten``, ``overwritten``, ``shared``, ``reordered``,
        ``split_gone``, ``left_hooks`` and, last because it reads the most, ``snapshots``.
        """
        now, parts = self._cells.now, subsets(namespace, budget)
        look.split_again = self._splits.compare(parts, now) if parts is not None else []
        look.settings = self._settings.compare(parts, now)
        look.rewritten = self._rewrites.compare(found, self._writes, self._assigned, now, budget)
        look.overwritten = self._overwritten.compare(namespace, self._kept_numbers, now)
        look.shared = self._shared.compare(found, self._rewrites.began, now, budget)
        look.reordered = self._orders.compare(found, now, orders)
        look.split_gone = self._gone.compare(parts, self._orders, found, now)
        look.left_hooks = self._left_hooks.compare(found, namespace, now, budget)
        look.snapshots = self._snapshots.compare(found, now, budget)

    def _begins(self, root: Root, budget: Budget) -> bool:
        """Whether the last cell read this name and bound it again, and its graph does not contain the graph of a tensor
        from an earlier cell.
        """
        return root.thing.path[0] in self._carried and not self._carriers.of(root.node, self._cells.now, budget)

    def second_time(
        self, namespace: Mapping[str, Any], made: Iterable[str], read: Iterable[str], seconds: float
    ) -> Used | None:
        """Return the tensor whose graph had been freed before a backward that has just failed reached it; None if none
        is found.

        Called before :meth:`ended`. ``made`` are the names that the failed cell assigned, ``read`` those that it read.
        ``namespace`` has the notebook's names and their objects, ``seconds`` is the time limit.
        """
        with unseen():
            budget = Budget(seconds)
            used = self._second_time(namespace, list(made), read, budget)
            return with_leaves(used, find(namespace, (), budget), budget) if used is not None else None

    def _second_time(
        self, namespace: Mapping[str, Any], made: Sequence[str], read: Iterable[str], budget: Budget
    ) -> Used | None:
        before = self._cells.now + 1
        for root in _roots_of(_named(namespace, made), budget):
            if found := carried(root, self._carriers, self._cells, before, budget):
                return found
        begun = begun_from(_roots_of(_named(namespace, read, budget), budget), self._cells, budget)
        return next(iter(begun), None) or self._inside(namespace, made, budget)

    def _inside(self, namespace: Mapping[str, Any], made: Sequence[str], budget: Budget) -> Used | None:
        """The first entry of a list or dict among these names whose graph was freed and is part of the graph of one of
        these names; None if there is none.
        """
        roots = _roots_of(_named(namespace, made), budget)
        behind = set(walk([root.node for root in roots], budget))
        entries = _roots_of((each for each in _named(namespace, made, budget) if len(each.path) > 1), budget)
        used = begun_from([root for root in entries if root.node in behind], self._cells, budget)
        return used[0]._replace(name=roots[0].thing.text, path=roots[0].thing.path) if used and roots else None

    def freed_buffer(self, namespace: Mapping[str, Any], made: Iterable[str], seconds: float) -> ComputedBuffer | None:
        """Return the buffer or attribute of a module, computed in an earlier cell, through whose freed graph the
        backward went that has just failed; None if none is found within ``seconds``.

        ``made`` are the names that the failed cell has assigned. ``namespace`` has the notebook's names and their
        objects.
        """
        with unseen():
            budget = Budget(seconds)
            roots = _roots_of(_named(namespace, made), budget)
            behind = set(walk([root.node for root in roots], budget))
            return freed_buffer(find(namespace, (), budget), self._cells, behind, budget)

    def computed(self, namespace: Mapping[str, Any], names: Iterable[str], seconds: float) -> list[Computed]:
        """Return those of the names whose tensors were computed by an operation (they have a graph), as many as are
        read within ``seconds``; an empty list if there are none.

        ``namespace`` has the notebook's names and their objects.
        """
        with unseen():
            roots = _roots_of(_named(namespace, names), Budget(seconds))
            return [
                Computed(root.thing.text, node_name(root.node), self._cells.of(sequence_of(root.node)))
                for root in roots
            ]

    def missing(self, namespace: Mapping[str, Any], tensor: Any, seconds: float) -> Missing | None:
        """Return why ``tensor`` has no gradient; None if it is a leaf that has one, if it retains its gradient, or if
        this cannot be read (it was created in inference mode, is of another class, or is a view with a graph that was
        written).

        ``namespace`` has the notebook's names and their objects, ``seconds`` limits the search for its name.
        """
        with unseen():
            if not is_own(tensor) or tensor.is_inference():
                return None
            found = find(namespace, (), Budget(seconds))
            name = next((each.text for each in (*found.tensors, *found.parameters) if each.value is tensor), "")
            past = history(tensor, tensor._version)
            if past.state == "graph":
                if past.node is None or tensor.retains_grad:
                    return None
                return Missing(name, "computed", node_name(past.node), self._cells.of(sequence_of(past.node)))
            if tensor.grad is not None:
                return None
            return Missing(name, "not-reached" if past.state == "leaf" else "plain")

    def copied(self, namespace: Mapping[str, Any], tensor: Any, seconds: float) -> Copied | None:
        """Return where ``tensor``, which has a graph and which a ``copy.deepcopy`` has refused to copy, is held; None
        if no name leads to it, if it is a parameter or buffer, or if this cannot be read.

        ``namespace`` has the notebook's names and their objects, ``seconds`` is the time limit.
        """
        with unseen():
            if not is_own(tensor) or tensor.is_inference():
                return None
            budget = Budget(seconds)
            found = find(namespace, (), budget)
            thing = next((each for each in found.tensors if each.value is tensor), None)
            node = history(tensor, tensor._version).root
            if thing is None or node is None:
                return None
            path, made = thing.path, self._cells.of(sequence_of(node))
            layers = {layer.path: layer.text for layer in found.layers}
            copied = Copied(thing.text, node_name(node), made, path[0])
            if path[:-1] not in layers:
                return copied
            like = [
                each
                for each in _roots(found, budget)
                if each.thing.path[0] == path[0] and each.thing.path[-1] == path[-1] and each.thing.path[:-1] in layers
            ]
            return copied._replace(module=layers[path[:-1]], attribute=path[-1], others=len(like) - 1)

    def rows_asked(self, namespace: Mapping[str, Any], numbers: Any, table: Any, seconds: float) -> RowsAsked | None:
        """Return the smallest and largest of the indices ``numbers`` that a failed embedding or index lookup was given,
        and the number of rows of its table ``table``; None if no index is out of range, or the indices cannot be read.

        ``seconds`` limits the search for the names of the two. ``namespace`` has the notebook's names and their
        objects.
        """
        with unseen():
            return rows_asked(namespace, numbers, table, Budget(seconds))

    def old_object(
        self, error: BaseException, namespace: Mapping[str, Any], read: Iterable[str], seconds: float
    ) -> OldObject | None:
        """Return the object whose class was defined again after it was created, and because of which a cell failed with
        ``error``; None if there is none.

        ``read`` are the names that the cell reads. ``namespace`` has the notebook's names and their objects,
        ``seconds`` is the time limit.
        """
        with unseen():
            return old_object(error, namespace, read, Budget(seconds))

    def switched(self, setting: Setting) -> Switched | None:
        """Return from which value to which, and by which cell, the global setting ``setting`` of torch was switched;
        None if it has its value from the import of torch.
        """
        return self._states.of(setting)

    def of_inference(self, namespace: Mapping[str, Any], names: Iterable[str]) -> list[str]:
        """Return those of ``names`` whose tensors were created in inference mode. ``namespace`` has the notebook's
        names and their objects.
        """
        with unseen():
            return [each.text for each in _named(namespace, names) if is_own(each.value) and each.value.is_inference()]

    def kept_inference(
        self, error: BaseException, namespace: Mapping[str, Any], seconds: float
    ) -> KeptInference | None:
        """Return the inference tensor that a failed cell used and that a name, a module, a collection or an object of
        the notebook holds; ``None`` if there is none.

        ``error`` is what the cell raised; ``namespace`` has the notebook's names and their objects, ``seconds`` is the
        time limit.
        """
        with unseen():
            return kept_inference(error, namespace, Budget(seconds))

    def converted(self, namespace: Mapping[str, Any], names: Iterable[str]) -> ConvertedModule | None:
        """Return the first of the modules with these names whose parameters a cell has converted to another dtype;
        ``None`` if there is none. ``namespace`` has the notebook's names and their objects.
        """
        with unseen():
            return self._types.converted(namespace, names)

    def stepped(self, scheduler: Any, namespace: Mapping[str, Any], seconds: float) -> Stepped | None:
        """Return which cells have stepped ``scheduler``, of a class with a fixed number of steps; ``None`` if it has no
        attribute ``total_steps``, no name leads to it, or no cell has stepped it.

        ``namespace`` has the notebook's names and their objects, ``seconds`` is the time limit.
        """
        with unseen():
            return self._schedulers.stepped(scheduler, namespace, Budget(seconds))

    def kinds(self, namespace: Mapping[str, Any], names: Iterable[str]) -> list[Kind]:
        """Return, for each of ``names`` that is a floating-point tensor, or a module with parameters, the name with the
        dtype and the device. ``namespace`` has the notebook's names and their objects.
        """
        with unseen():
            return kinds(thing for name in names if (thing := resolve(namespace, (name,))) is not None)

    def unfold(self, namespace: Mapping[str, Any], path: Path, budget: Budget) -> list[Row] | None:
        """Return the rows of the objects inside the object at ``path``; None if no object is found there.

        ``namespace`` has the notebook's names and their objects. ``budget`` is the time limit.
        """
        with unseen():
            thing = resolve(namespace, path)
            if thing is None:
                return None
            found = find(namespace, (), budget)
            table = Table(self._before, self._bound)
            made = children(thing, found, table, self._updates)
            held, _ = self._memory.compare(
                walk([root.node for root in _roots(found, budget)], budget), self._cells, budget
            )
            table.saved(held)
            table.share(self._numbers, unfolded=True)
            self._after.update(table.after)
            return made


def _next_node() -> int:
    return private.next_sequence() if private.next_sequence is not None else 0


def _named(namespace: Mapping[str, Any], names: Iterable[str], budget: Budget | None = None) -> list[Thing]:
    """The tensors with these names; with a ``budget`` also those inside modules, lists and objects with these names."""
    found = [thing for name in names if (thing := resolve(namespace, (name,))) is not None]
    tensors = [each for each in found if each.kind == "tensor"]
    if budget is not None:
        inner = {each.path[0]: each.value for each in found if each.kind != "tensor"}
        tensors += find(inner, (), budget).tensors
    return tensors


def _roots(found: Found, budget: Budget) -> list[Root]:
    """Return the named tensors with a graph."""
    return _roots_of(found.tensors, budget)


def _roots_of(tensors: Iterable[Thing], budget: Budget) -> list[Root]:
    roots = []
    for thing in tensors:
        if not budget.goes_on():
            break
        tensor = thing.value
        if is_own(tensor) and tensor.requires_grad and not tensor.is_inference():
            node = history(tensor, tensor._version).root
            if node is not None:
                roots.append(Root(thing, node))
    return roots
