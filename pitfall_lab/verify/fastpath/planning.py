"""Creates plans (:class:`Planning`): from a call that took the full path, and on which torch and the shadow agreed, for
later calls with the same key.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from pitfall_lab.observe import argument_values, tensor_facts
from pitfall_lab.observe.lost_numbers import concerns
from pitfall_lab.observe.recorder import Call
from pitfall_lab.shadow import Applied
from pitfall_lab.shadow.graph import NO_DERIVATIVE
from pitfall_lab.shadow.ops import ENTRIES
from pitfall_lab.shadow.recipes import PLAIN, Recipe, Underivable
from pitfall_lab.trace import Effect, Operand
from pitfall_lab.verify.fastpath.call_keys import GETITEM, CallKeys
from pitfall_lab.verify.fastpath.event_rows import Births, Labels, Saying, Unsayable
from pitfall_lab.verify.fastpath.plans import MOST_SHARED, Expected, Plan, SharedPlans, keeper
from pitfall_lab.verify.records import TensorRecord
from pitfall_lab.verify.shared_state import World

MOST_PLANS = 20_000
PATIENCE = 256
"""How many plans are created at the first call with their key.

Later, while few plans have been used, they are created only from the second call on.
"""

ATTEMPTS = 3


class Planning:
    """Observes the calls of the full path and creates plans from them (what is stored about the calls with one key, to
    repeat them faster).
    """

    def __init__(self, world: World, kinds: CallKeys, shared: SharedPlans) -> None:
        self._records, self._writer, self._kinds = world.records, world.writer, kinds
        self._follows_values = world.limit >= 0
        self._shared, self._forms = shared, shared.forms
        self.plans: dict[Any, Plan | None] = {}
        """The plans by key; None for a key that has been seen once."""
        self._refused: dict[Any, int] = {}
        """How often no plan could be created for a key; after ``ATTEMPTS`` none is tried again, since a try costs more
        than the call.
        """
        self.functions = shared.functions
        self._key: Any = None
        self._operands: list[TensorRecord] = []
        self._versions: list[int] = []
        self._births = Births(0, 0, 0, 0)
        self._candidate: Recipe | None = None
        self._open: list[float] = []
        self._is_other = False
        self._reason = ""

    def stop(self) -> None:
        """Create no plan from the current call."""
        self._key = None

    def study(self, call: Call) -> None:
        """Called before the engine runs a call that takes the full path: compute the call's key if a plan can be
        created from it.
        """
        self._key, self._candidate = None, None
        entry = ENTRIES.get(call.name)
        if entry is None or not self._kinds.are_usual() or concerns(call):
            return
        if self._follows_values and self._records.shared:
            return  # no call takes the fast path while NumPy shares memory
        func = call.func
        operands: list[TensorRecord] = []
        self.functions.add(func)
        whole = self._kinds.of(func, call.args, call.kwargs, operands, None)
        if whole is None or self._refused.get(whole, 0) >= ATTEMPTS:
            return
        if len(self.plans) >= MOST_PLANS:
            self.plans.clear()
        if whole not in self.plans:
            self.plans[whole] = None
            if len(self.plans) > PATIENCE and len(self._writer.row_steps) < len(self.plans):
                return
        self._key, self._operands, self._open, self._is_other = (
            whole,
            operands,
            self._kinds.plain,
            entry.kind == "other",
        )
        self._versions = [record.shadow.version for record in operands]  # type: ignore[union-attr]

    def modelled(self, applied: Applied | None, reason: str) -> None:
        """Called when the shadow has run the call (``applied``), or could not for a ``reason`` (``applied`` is None),
        before its results have labels: derive the recipe, that is, what the shadow does in such a call.
        """
        if self._key is None:
            return
        if applied is None:
            self._reason = reason
            if (
                not reason or self._follows_values
            ):  # with values, the shadow may be able to model the next call with this key
                self._key = None
            return
        if self._follows_values and any(saved.drawn for node in applied.nodes for saved in node.saved):
            self._key = None  # drawn random values have to be read from torch's node
            return
        if any(node.name == NO_DERIVATIVE for node in applied.nodes):
            self._key = None  # such a node has no sequence number
            return
        records = self._records
        self._births = Births(records.tensor_count, records.storage_count, records.counter_count, records.node_count)
        try:
            self._candidate = recipe = Recipe(applied, [record.shadow for record in self._operands], self._versions)  # type: ignore[misc]
            if self._is_other is not recipe.is_plain:
                self._key = (
                    None  # an entry of kind "other" may do more than its result shows, unless that is a plain number
                )
        except Underivable:
            self._refuse(self._key)
            self._key = None

    def _refuse(self, key: Any) -> None:
        if len(self._refused) >= MOST_PLANS:
            self._refused.clear()
        self._refused[key] = self._refused.get(key, 0) + 1

    def learn(
        self, call: Call, applied: Applied, result: Any, effects: list[Effect], operands: tuple[Operand, ...]
    ) -> None:
        """Called when torch and the shadow agreed on the call, which has these effects and operands in the trace:
        create its plan; none without a key or recipe, or if no row can express it.
        """
        key, recipe, records = self._key, self._candidate, self._records
        self._key = self._candidate = None
        if key is None or recipe is None:
            return
        reals = list(argument_values.tensors(result))
        births, after = (
            self._births,
            Births(records.tensor_count, records.storage_count, records.counter_count, records.node_count),
        )
        olds = self._olds()
        try:
            results = [record.label for real in reals if (record := records.find(real)) is not None]
            written = None
            if recipe.writes:
                target = self._operands[0]
                written = target.storage.label, f"C{target.shadow.counter.mark}"  # type: ignore[union-attr]
            uncounted = [self._operands[place].storage.label for place in recipe.uncounted]  # type: ignore[union-attr]
            opens = call.func is GETITEM and bool(self._open)
            offsets = [record.shadow.offset for record in self._operands]  # type: ignore[union-attr]
            labels = Labels(births, after, olds, offsets, is_open=opens)
            saying = Saying(call.name, effects, operands, results, labels, written, uncounted, self._open)
            plan = self._plan(recipe, saying, applied, reals, births, after, opens=opens)
            shared = self._shared
            if recipe.is_timeless and self._forms is shared.forms and len(shared.plans) <= MOST_SHARED:
                shared.add(key, plan)
            self.plans[key] = plan.among(self._writer.rows)
        except (Unsayable, Underivable):
            self._refuse(key)
        finally:
            self._operands = []

    def observe(self, call: Call, result: Any, effects: Sequence[object], operands: tuple[Operand, ...]) -> None:
        """Called after a call without a model: if it returned only a plain value or None, and had no ``effects``,
        create a plan by which later calls with its key are not run in the shadow, and torch's value is used.
        """
        key, self._key, records = self._key, None, self._records
        if key is None or effects or not (result is None or type(result) in PLAIN):
            return
        births = Births(records.tensor_count, records.storage_count, records.counter_count, records.node_count)
        with contextlib.suppress(Unsayable):
            saying = Saying(
                call.name,
                [],
                operands,
                [],
                Labels(births, births, self._olds()),
                numbers=self._open,
                reason=self._reason,
            )
            self.plans[key] = Plan.observing(saying).among(self._writer.rows)

    def _olds(self) -> dict[str, tuple[int, str]]:
        """For each label of an operand (of the tensor, its storage, its counter, its nodes, its base): the operand's
        index, and a letter for what the label belongs to.
        """
        olds: dict[str, tuple[int, str]] = {}
        for place, record in enumerate(self._operands):
            for letter, label in self._labels_of(record):
                olds.setdefault(label, (place, letter))
        return olds

    def _labels_of(self, record: TensorRecord) -> list[tuple[str, str]]:
        shadow, storage = record.shadow, record.storage
        assert shadow is not None
        assert storage is not None
        found = [("t", record.label), ("S", storage.label)]
        if shadow.counter is not None and shadow.counter.mark:
            found.append(("C", f"C{shadow.counter.mark}"))
        if shadow.node is not None and shadow.node.mark:
            found.append(("n", f"n{shadow.node.mark}"))
        accumulator = shadow.accumulator() if shadow.accumulator is not None else None
        if accumulator is not None and accumulator.mark:
            found.append(("a", f"n{accumulator.mark}"))
        if shadow.view is not None and shadow.view.base.mark:
            found.append(("b", f"t{shadow.view.base.mark}"))
        return found

    def _plan(  # noqa: PLR0917 - what both engines made of the call
        self,
        recipe: Recipe,
        saying: Saying,
        applied: Applied,
        reals: list[Any],
        births: Births,
        after: Births,
        *,
        opens: bool,
    ) -> Plan:
        shadows = (
            []
            if recipe.is_plain
            else list(applied.result)
            if isinstance(applied.result, (tuple, list))
            else [applied.result]
        )
        if len(reals) != len(recipe.results):
            raise Underivable
        expected: list[Expected | int] = []
        for real, shadow, window in zip(reals, shadows, recipe.results, strict=True):
            if type(window) is int:
                expected.append(window)
                continue
            new = window.on is None  # type: ignore[union-attr]
            if type(real) is not torch.Tensor or (new and tensor_facts.read(real).foreign):
                raise Underivable
            node = real.grad_fn
            expected.append(
                Expected(
                    window,  # type: ignore[arg-type]
                    self._forms.of(shadow),
                    real.shape,
                    real.stride(),
                    shadow.offset,
                    real.dtype,
                    real.requires_grad,
                    None if node is None else node.name(),
                    real.untyped_storage().nbytes(),
                    real.element_size(),
                    tensor_facts.dtype_name(real.dtype),
                    shadow.mark - births.t,
                    shadow.storage.mark - births.S if new else 0,
                    max(shadow.counter.mark - births.C, 0),
                    window.version,  # type: ignore[union-attr]
                )
            )
        own = [node for node in applied.nodes if node.leaf is None]
        leaves = []
        for each in applied.nodes:
            if each.leaf is not None:
                place = next(k for k, record in enumerate(self._operands) if record.shadow is each.leaf)
                leaves.append((place, each.mark - births.n))
        made = tuple(b - a for a, b in zip(births, after, strict=True))
        if not all(node.mark for node in applied.nodes) or made[3] != len(applied.nodes):
            raise Underivable
        plan = Plan(
            recipe,
            saying,
            tuple(expected),
            tuple(node.mark - births.n for node in own),
            tuple(leaves),
            made,
            opens=opens,
        )
        plan.insides = [max(x.counter.mark - births.C, 0) for x in recipe.insides]  # type: ignore[union-attr]
        if plan.follow is None:
            plan.inside_at = [keeper(x, own) for x in recipe.insides]
            storages = {x.storage for x in expected if type(x) is not int}  # type: ignore[union-attr]
            if not storages.issuperset(plan.looks):
                raise Underivable
        recipe.insides = []
        return plan
