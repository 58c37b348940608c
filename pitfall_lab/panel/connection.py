"""The live panel's connection in one kernel: :class:`LivePanel` examines the namespace after each cell and answers the
front end.

Messages may arrive on another thread than the one that runs the cells (a kernel's subshell). While a cell runs, live
objects are not read: the answer is then the state after the last cell.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
import types
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel import protocol
from pitfall_lab.panel.cells_run import Cell, Ran, is_whole
from pitfall_lab.panel.failures import Failures
from pitfall_lab.panel.kept_numbers import kept_numbers
from pitfall_lab.panel.protocol import (
    BadMessage,
    Past,
    PictureRequest,
    RowsRequest,
    Unfold,
    Watch,
    message,
    refused,
    text,
)
from pitfall_lab.panel.rewrites import repeated
from pitfall_lab.panel.stale_names import Order, OutOfOrder
from pitfall_lab.panel.statements import Statements
from pitfall_lab.trace import Language, T

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from pitfall_lab.observe.live.broken import Broken
    from pitfall_lab.observe.live.computed_buffers import ComputedBuffer
    from pitfall_lab.observe.live.global_states import Kind as Thing
    from pitfall_lab.observe.live.global_states import Setting, Switched
    from pitfall_lab.observe.live.kept_inference import KeptInference
    from pitfall_lab.observe.live.module_dtypes import ConvertedModule
    from pitfall_lab.observe.live.old_classes import OldObject
    from pitfall_lab.observe.live.rows_asked import RowsAsked
    from pitfall_lab.observe.live.session import Computed, Copied, Live, LookResult, Missing
    from pitfall_lab.observe.live.stale_caches import Asked
    from pitfall_lab.observe.live.stale_schedulers import Stepped
    from pitfall_lab.observe.live.used_graphs import Used
    from pitfall_lab.observe.live.written_again import WrittenAgain
    from pitfall_lab.panel.cache_fills import Fill
    from pitfall_lab.panel.cause import Cause
    from pitfall_lab.panel.cells_behind import Behind
    from pitfall_lab.panel.failures import Failed

PAGE = 500
EVERY = 20_000
"""How many rows are sent at most if all of them are requested, to be sorted or searched."""
CELLS, BYTES = 50, 2_000_000
"""After how many past cells the rows are kept, and how many bytes in total."""
SECONDS, PART, LONGEST = 0.02, 0.01, 0.2
"""Processor time after a cell: SECONDS, or the fraction PART of the cell's run time if that
is more, but at most LONGEST.
"""
ASKED_SECONDS, EVERY_SECONDS = 0.5, 1.5
_FIXED = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, int, float, str, bool, type(None))
_RUNNING = T("A cell is running: this can be looked at when it has ended.", "有单元格正在运行：结束之后才能查看。")
_GONE = T("This is no longer there.", "它已经不存在了。")
_NOT_KEPT = T("The rows after that cell have not been kept.", "那个单元格之后的状态没有保留。")
_CUT = T(
    "Not everything was checked, because the time limit was reached. The rest may have problems that are not shown.",
    "没有全部检查：为此预留的时间已用完。其余部分可能还有未显示的问题。",
)
_FAILED = T(
    "pitfall_lab could not look at this ({reason}). The notebook is not affected.",
    "pitfall_lab 无法查看（{reason}）。笔记本不受影响。",
)


class LivePanel:
    """The kernel's side of the live panel: all its open connections to front ends, and what it knows of the cells that
    have run.
    """

    def __init__(self, shell: InteractiveShell) -> None:
        self._shell = shell
        self._comms: dict[Any, Watch] = {}
        self._languages: dict[Any, Language] = {}
        self._ran, self._order = Ran(), Order()
        self._stale: list[OutOfOrder] = []
        #: What was found to go wrong in a backward, and what of it has.
        self._known: list[Broken | Used | WrittenAgain] = []
        self._failed: list[Broken | Used | WrittenAgain] = []
        #: What led the last cell's own backward into a used graph.
        self._led: Used | None = None
        self._live: Live | None = None
        #: What the running cell failed at, by the id of its error: found before anything else is
        #: done, and used several times.
        self._causes: dict[int, Cause | None] = {}
        self._statements = Statements(shell, self.statement)
        #: What the cells keep results in, with the code that fills it.
        self._caches: dict[Asked, Fill] = {}
        #: How cells have failed, and what was warned of last.
        self._failures, self._said = Failures(), list[dict[str, Any]]()
        self._lock = threading.RLock()
        #: The connection may be opened while a cell runs, on another thread.
        self._running = _is_running()
        self._had_torch, self._began = True, time.perf_counter()
        self._rows: dict[str, Any] | None = None
        self._past: dict[int, tuple[dict[str, Any], str]] = {}

    def install(self) -> None:
        """Register for the events before and after each cell."""
        self._shell.events.register("pre_run_cell", self.before)
        self._shell.events.register("post_run_cell", self.after)
        self._statements.install()

    def remove(self) -> None:
        """Close the connections and unregister from the events."""
        self._shell.events.unregister("pre_run_cell", self.before)
        self._shell.events.unregister("post_run_cell", self.after)
        self._statements.remove()
        for comm in list(self._comms):
            with contextlib.suppress(Exception):
                comm.close()
        self._comms.clear()
        self._languages.clear()

    # ------------------------------------------------------------------ the connection

    def opened(self, comm: Any, opening: Mapping[str, Any]) -> None:
        """Keep the connection ``comm`` that a front end has opened with the message ``opening``, listen to it, and send
        a first message.

        An invalid opening is answered by an error message, and the connection closed.
        """
        try:
            language = protocol.opening((opening.get("content") or {}).get("data"))
        except BadMessage as problem:
            comm.send(refused(problem.text))
            comm.close()
            return
        self._comms[comm], self._languages[comm] = Watch(visible=False, stale=True), language
        comm.on_msg(lambda received: self.received(comm, received))
        comm.on_close(lambda _: self._closed(comm))
        comm.send(
            message("warnings", cell=self._cells_now(), warnings=[])
        )  # the first message shows the page that the kernel answers

    def _closed(self, comm: Any) -> None:
        self._comms.pop(comm, None)
        self._languages.pop(comm, None)

    def received(self, comm: Any, data: Mapping[str, Any]) -> None:
        """Send the answer to a front end's message ``data`` over ``comm``; a ``Watch`` is stored and gets no answer. An
        error becomes an answer, never an exception.
        """
        try:
            answer = self._answer(comm, protocol.read((data.get("content") or {}).get("data")))
        except BadMessage as problem:
            answer = refused(problem.text)
        except Exception as error:
            answer = refused(
                T(_FAILED.en.format(reason=type(error).__name__), _FAILED.zh.format(reason=type(error).__name__))
            )
        if answer is not None:
            with contextlib.suppress(Exception):
                comm.send(answer)

    def _answer(self, comm: Any, ask: protocol.Ask) -> dict[str, Any] | None:
        if isinstance(ask, Watch):
            self._comms[comm] = ask
            return None
        if isinstance(ask, Past):
            kept = self._past.get(ask.cell)
            return (
                {**json.loads(kept[1]), "past": True, "cells": self._cells()}
                if kept is not None
                else refused(_NOT_KEPT)
            )
        if self._running:
            return (
                {**self._rows, "cells": self._cells()}
                if isinstance(ask, RowsRequest) and self._rows is not None
                else refused(_RUNNING)
            )
        with self._lock:
            if isinstance(ask, RowsRequest):
                seconds, most = (EVERY_SECONDS, EVERY) if ask.every else (ASKED_SECONDS, PAGE)
                return self._look(seconds, rows=(ask.first, most), stale=False)[0]
            return (
                self._unfolded(ask) if isinstance(ask, Unfold) else self._pictured(ask, self._languages.get(comm, "en"))
            )

    def _unfolded(self, ask: Unfold) -> dict[str, Any]:
        from pitfall_lab.observe.live.budget import Budget

        live = self._watching()
        made = live.unfold(self._shell.user_ns, _path(ask.id), Budget(ASKED_SECONDS)) if live is not None else None
        return message("children", id=ask.id, rows=made) if made is not None else refused(_GONE)

    def _pictured(self, ask: PictureRequest, language: Language) -> dict[str, Any]:
        from pitfall_lab.panel.row_pictures import picture

        found = (
            picture(self._shell.user_ns, _path(ask.id), ask.view, language) if self._watching() is not None else None
        )
        return (
            message("picture", id=ask.id, view=ask.view, svg=found[0], text=text(found[1]))
            if found is not None
            else refused(_GONE)
        )

    # ------------------------------------------------------------------ the cells

    def before(self, info: Any) -> None:
        """Called before a cell runs: note that a cell is running, whether torch was imported before it, and the
        sequence number that its first graph node will get.
        """
        with self._lock:
            self._running = True
            self._had_torch = "torch" in sys.modules
            self._causes.clear()
            with contextlib.suppress(Exception):
                live = self._watching() if self._comms else None
                if live is not None:
                    live.begin()
        self._began = time.perf_counter()

    def statement(self, line: int) -> None:
        """Called before the statement on this line of the running cell: pass the line on, so that new graph nodes can
        be assigned to it.
        """
        live = self._watching() if self._comms and self._running else None
        if live is not None:
            live.statement(line)

    def after(self, result: Any) -> None:
        """Called after a cell has run, with IPython's ``ExecutionResult``: send rows and warnings to the front ends
        that requested them.
        """
        took = time.perf_counter() - self._began
        with self._lock:
            self._running = False
            with contextlib.suppress(Exception):  # an error here must not reach the notebook
                self._after(result, took)

    def cause(self, error: BaseException | None, text: str) -> Cause | None:
        """The reason why the cell that ran last, with the source ``text``, failed with ``error``, if the panel had
        warned of it before or the live objects show it.

        None if not, if there was no error, or if live objects have never been examined (torch was not imported).
        """
        if error is None or self._live is None:
            return None
        if id(error) not in self._causes:
            from pitfall_lab.panel.cause import LiveLooks, cause
            from pitfall_lab.panel.rows_outside import sizes_of

            look = LiveLooks(
                self._second_time,
                self._has_parameters,
                self._computed,
                self._missing,
                self._switched,
                self._kinds_of,
                self._inferred,
                self._rows_asked,
                lambda name, rows: sizes_of(name, rows, self._ran, self._shell.user_ns),
                self._copied,
                self._old_object,
                self._freed_buffer,
                self._kept_inference,
                self._stepped,
                self._converted,
            )
            self._causes[id(error)] = cause(error, text, self._known, self._ran, look)
        return self._causes[id(error)]

    def _second_time(self, made: Iterable[str], read: Iterable[str]) -> Used | None:
        live = self._watching()
        return live.second_time(self._shell.user_ns, made, read, ASKED_SECONDS) if live is not None else None

    def _computed(self, names: Iterable[str]) -> list[Computed]:
        live = self._watching()
        return live.computed(self._shell.user_ns, names, ASKED_SECONDS) if live is not None else []

    def _switched(self, setting: Setting) -> Switched | None:
        live = self._watching()
        return live.switched(setting) if live is not None else None

    def _inferred(self, names: Iterable[str]) -> list[str]:
        live = self._watching()
        return live.of_inference(self._shell.user_ns, names) if live is not None else []

    def _kept_inference(self, error: BaseException) -> KeptInference | None:
        live = self._watching()
        return live.kept_inference(error, self._shell.user_ns, ASKED_SECONDS) if live is not None else None

    def _stepped(self, error: BaseException) -> Stepped | None:
        live, step, scheduler = self._watching(), error.__traceback__, None
        while step is not None:
            if "last_epoch" in step.tb_frame.f_code.co_names:
                scheduler = step.tb_frame.f_locals.get("self")
            step = step.tb_next
        return live.stepped(scheduler, self._shell.user_ns, ASKED_SECONDS) if live is not None else None

    def _converted(self, names: Iterable[str]) -> ConvertedModule | None:
        live = self._watching()
        return live.converted(self._shell.user_ns, names) if live is not None else None

    def _kinds_of(self, names: Iterable[str]) -> list[Thing]:
        live = self._watching()
        return live.kinds(self._shell.user_ns, names) if live is not None else []

    def _missing(self, error: BaseException) -> Missing | None:
        from pitfall_lab.panel.gradients_read import gradients_read

        live = self._watching()
        if live is None:
            return None
        for expression, tensor in gradients_read(error, self._shell.user_ns):
            found = live.missing(self._shell.user_ns, tensor, ASKED_SECONDS)
            if found is not None:
                return found._replace(name=found.name or expression)
        return None

    def _rows_asked(self, error: BaseException) -> RowsAsked | None:
        from pitfall_lab.panel.rows_outside import looked_up

        live, call = self._watching(), looked_up(error)
        return live.rows_asked(self._shell.user_ns, *call, ASKED_SECONDS) if live is not None and call else None

    def _copied(self, error: BaseException) -> Copied | None:
        live, step, tensor = self._watching(), error.__traceback__, None
        while step is not None:
            if step.tb_frame.f_code.co_name == "__deepcopy__":
                tensor = step.tb_frame.f_locals.get("self")
            step = step.tb_next
        return live.copied(self._shell.user_ns, tensor, ASKED_SECONDS) if live is not None else None

    def _freed_buffer(self, made: Iterable[str]) -> ComputedBuffer | None:
        live = self._watching()
        return live.freed_buffer(self._shell.user_ns, made, ASKED_SECONDS) if live is not None else None

    def _old_object(self, error: BaseException, read: Iterable[str]) -> OldObject | None:
        live = self._watching()
        return live.old_object(error, self._shell.user_ns, read, ASKED_SECONDS) if live is not None else None

    def _has_parameters(self, name: str) -> bool:
        from pitfall_lab.observe.live.object_kinds import has_parameters

        return has_parameters(self._shell.user_ns.get(name))

    def failed_before(self, error: BaseException | None, text: str) -> Failed | None:
        """How an earlier run of the cell with the source ``text`` failed, if it failed with another error and nothing
        was changed since; None otherwise.
        """
        return self._failures.before(text, error, self._ran)

    def warned(self, cell: str, text: str, counts: Sequence[int]) -> list[Mapping[str, Any]]:
        """The latest warnings that point to a cell: to the one with the id ``cell`` (without ids: with the source
        ``text``), or to one of the runs with the numbers ``counts``; an empty list if there are none.
        """
        runs = {
            run.count
            for run in self._ran.since(0)
            if run.count in counts or (run.id == cell if cell and run.id else run.text == text)
        }
        return [each for each in self._said if any(one["count"] in runs for one in each["cells"])]

    def behind(self, error: BaseException | None, text: str) -> Behind | None:
        """The earlier cells in which the failure of this cell, which ran last, began; None if there are none, too many,
        or running them again would not help. ``error`` is the exception of the cell (None if it raised none), ``text``
        its source.
        """
        if error is None or "torch" not in sys.modules:
            return None
        from pitfall_lab.panel.cause import runs_of
        from pitfall_lab.panel.cells_behind import behind

        earlier = self.failed_before(error, text)
        found = earlier.cause if earlier is not None and earlier.cause is not None else self.cause(error, text)
        if found is not None and not runs_of(found.what):
            return None  # run again, the earlier cells would only do it once more
        last = self._ran.last
        failed = Cell(last.count + 1 if last is not None else 1, "", text)
        return behind(failed, self._ran, self._kind, runs_of(found.what) if found is not None else ())

    def _after(self, result: Any, took: float) -> None:
        if not result.execution_count:
            return
        text = self._shell.transform_cell(getattr(result.info, "raw_cell", "") or "")
        found = self.cause(result.error_in_exec, text)
        succeeded, whole = bool(result.success), is_whole(getattr(result.info, "raw_cell", "") or "")
        cell = Cell(result.execution_count, getattr(result.info, "cell_id", None) or "", text, succeeded, whole)
        self._failures.ran(cell, result.error_in_exec, found, self._ran)
        self._ran.add(cell)
        self._stale = self._order.ran(cell, self._shell.user_ns, succeeded=succeeded and whole)
        visible = any(watch.visible for watch in self._comms.values())
        live = self._watching() if self._comms else None
        if live is None:
            return
        from pitfall_lab.observe.live.broken import Broken
        from pitfall_lab.observe.live.used_graphs import Used
        from pitfall_lab.observe.live.written_again import WrittenAgain
        from pitfall_lab.panel.warnings.stale_cache import asked

        self._caches = asked(self._ran)
        lost = [each[:3] for each in kept_numbers(cell.tree, cell.carried) if all(map(self._is_fixed, each.names))]
        live.ended(
            cell.count, cell.bound, torch_is_new=not self._had_torch, carried=cell.carried, written=cell.written,
            writes=repeated(cell.writes, self._is_data, self._is_of), assigned=cell.assigned, caches=list(self._caches),
            kept_numbers=lost,
        )  # fmt: skip
        stale = any(watch.stale for watch in self._comms.values())
        if not visible and not stale:
            return
        self._led = found.what if found is not None and isinstance(found.what, Used) else None
        if found is not None and isinstance(found.what, (Broken, Used, WrittenAgain)):
            self._failed.append(found.what)
        rows, warnings = self._look(
            min(max(SECONDS, took * PART), LONGEST), rows=(0, PAGE) if visible else None, stale=stale
        )
        self._keep(rows)
        for comm, watch in list(self._comms.items()):
            if watch.stale and warnings is not None:
                comm.send(warnings)
            if watch.visible and rows is not None:
                comm.send(rows)

    def _watching(self) -> Live | None:
        """The object that examines live objects; None until the notebook has imported torch."""
        if self._live is None and "torch" in sys.modules:
            from pitfall_lab.observe.live.session import Live

            self._live = Live()
        return self._live

    def _look(
        self, seconds: float, *, rows: tuple[int, int] | None, stale: bool
    ) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
        """Return the rows and the warnings for the present state of the namespace; each is None if it was not
        requested.
        """
        began = time.thread_time()
        live = self._watching()
        cell = self._cells_now()
        if live is None:
            return (self._message([], 0, 0, None, 0.0) if rows is not None else None), None
        look = live.look(self._shell.user_ns, seconds, rows)
        self._known = [*look.broken, *look.used, *look.rewritten]
        self._failed = [each for each in self._failed if each in self._known]
        self._said = self._warnings(look) if stale else []
        warnings = message("warnings", cell=cell, warnings=self._said) if stale else None
        if rows is None or look.rows is None:
            return None, warnings
        note = _CUT if look.cut else None
        return self._message(look.rows, look.more, rows[0], note, time.thread_time() - began), warnings

    def _warnings(self, look: LookResult) -> list[dict[str, Any]]:
        from pitfall_lab.panel.warnings.changed import changed, each_once
        from pitfall_lab.panel.warnings.equal import equal
        from pitfall_lab.panel.warnings.growing import growing
        from pitfall_lab.panel.warnings.idle import idle
        from pitfall_lab.panel.warnings.kept import kept
        from pitfall_lab.panel.warnings.left_out import left_out
        from pitfall_lab.panel.warnings.leftover import leftover
        from pitfall_lab.panel.warnings.out_of_order import out_of_order
        from pitfall_lab.panel.warnings.reordered import reordered
        from pitfall_lab.panel.warnings.reshaped import reshaped
        from pitfall_lab.panel.warnings.stacked import stacked
        from pitfall_lab.panel.warnings.summed import summed
        from pitfall_lab.panel.warnings.unread import unread
        from pitfall_lab.panel.warnings.used import again, used

        broken = each_once(look.broken, self._ran)
        said = [self._ahead(changed(each, self._ran, failed=each in self._failed), each.root, each) for each in broken]
        said += [left_out(each, self._ran) for each in look.left_out]
        led = {each.carrier_path[:-1] for each in (*look.used, *([self._led] if self._led is not None else []))}
        said += [growing(each, self._ran) for each in look.growing if not (each.kept and each.path in led)]
        said += [self._ahead(used(each, self._ran, failed=each in self._failed), each.name, each) for each in look.used]
        said += [kept(each, self._ran) for each in look.kept]
        said += [stacked(look.stacked, self._ran)] if look.stacked is not None else []
        adds_up = any(each is not None and each["kind"] == "gradients-add-up" for each in said)
        said += [leftover(look.leftover, self._ran)] if look.leftover is not None and not adds_up else []
        said += [None if adds_up else summed(each, self._ran) for each in look.summed]
        said += [reshaped(each, self._ran) for each in look.reshaped]
        said += [unread(each, self._ran) for each in look.unread]
        said += [equal(look.equal, self._ran)] if look.equal is not None else []
        said += [reordered(each, self._ran) for each in look.reordered]
        said += [idle(each, self._ran) for each in look.idle]
        said += self._more_warnings(look)
        if self._led is not None and self._led not in look.used:
            said.append(used(self._led, self._ran, failed=True))
        said += [again(each, self._ran) for each in look.again[:1] if self._led is None]
        named = {each["row"] for each in said if each is not None} | {each.optimizer for each in look.left_out}
        said += [out_of_order(each, self._ran) for each in self._stale if each.name not in named]
        return [each for each in said if each is not None]

    def _more_warnings(self, look: LookResult) -> list[dict[str, Any] | None]:
        """The warnings about data, models, seeds, settings, and hooks."""
        from pitfall_lab.panel.warnings.cut_off import leaf_loss
        from pitfall_lab.panel.warnings.cut_parameter import cut_parameter
        from pitfall_lab.panel.warnings.cutting_hook import cutting_hook
        from pitfall_lab.panel.warnings.evaluating import evaluating
        from pitfall_lab.panel.warnings.held_function import held_functions
        from pitfall_lab.panel.warnings.hooked_twice import hooked_twice
        from pitfall_lab.panel.warnings.left_switched import left_switched
        from pitfall_lab.panel.warnings.looked_at import looked_at
        from pitfall_lab.panel.warnings.misread import misread
        from pitfall_lab.panel.warnings.old_default import old_defaults
        from pitfall_lab.panel.warnings.one_memory_kept import one_memory_kept
        from pitfall_lab.panel.warnings.outdated_object import outdated_objects
        from pitfall_lab.panel.warnings.overwritten import overwritten
        from pitfall_lab.panel.warnings.parametrized_again import parametrized_again
        from pitfall_lab.panel.warnings.parted import parted
        from pitfall_lab.panel.warnings.put_back import begun_again
        from pitfall_lab.panel.warnings.reseeded import reseeded
        from pitfall_lab.panel.warnings.rewritten import rewritten
        from pitfall_lab.panel.warnings.shared_setting import shared_settings
        from pitfall_lab.panel.warnings.shared_write import shared_writes
        from pitfall_lab.panel.warnings.split_replaced import split_replaced
        from pitfall_lab.panel.warnings.split_twice import split_twice
        from pitfall_lab.panel.warnings.stale_scheduler import stale_scheduler

        said = [leaf_loss(each, self._ran, self._has_parameters) for each in look.leaves]
        said += [misread(each, self._ran) for each in look.misread]
        said += [one_memory_kept(each, self._ran) for each in look.one_memory]
        said += [evaluating(each, self._ran) for each in look.evaluating]
        said += [looked_at(each, self._ran) for each in look.looked]
        said += [parametrized_again(each, self._ran) for each in look.parametrized]
        said += [split_twice(each, self._ran, self._has_parameters) for each in look.split_again]
        gone = (split_replaced(each, self._ran) for each in look.split_gone)
        said += [next((each for each in gone if each is not None), None)]
        said += [rewritten(each, self._ran, failed=each in self._failed) for each in look.rewritten]
        said += overwritten(look.overwritten, self._ran)
        said += [stale_scheduler(each, self._ran) for each in look.schedulers]
        said += [begun_again(each, self._ran) for each in look.begun_again]
        said += [cut_parameter(each, self._ran) for each in look.cut_parameters]
        said += [parted(each, self._ran) for each in look.parted]
        said += shared_writes(look.shared, self._ran, {each.path for each in look.rewritten})
        said += shared_settings(look.settings, self._ran)
        said += [reseeded(self._ran, self._draws, self._is_seeded)]
        said += [left_switched(each, self._ran) for each in look.switched]
        twice = [(each.path, hooked_twice(each, self._ran)) for each in look.twice]
        said += [each for _, each in twice]
        said += [cutting_hook(each, self._ran) for each in look.cutting]
        said += self._kept_warnings(look)
        said += held_functions(look.held_functions, self._ran, [path for path, each in twice if each is not None])
        said += outdated_objects(look.outdated, self._ran)
        said += old_defaults(look.old_defaults, self._ran)
        return said

    def _kept_warnings(self, look: LookResult) -> list[dict[str, Any] | None]:
        """The warnings about results, weights and states that were kept."""
        from pitfall_lab.panel.warnings.changed import changed
        from pitfall_lab.panel.warnings.computed_once import computed_once
        from pitfall_lab.panel.warnings.growing import growing
        from pitfall_lab.panel.warnings.hook_left import hooks_left
        from pitfall_lab.panel.warnings.old_snapshot import old_snapshot
        from pitfall_lab.panel.warnings.stale_cache import stale_caches
        from pitfall_lab.panel.warnings.state_kept import states_kept
        from pitfall_lab.panel.warnings.steps_kept import steps_kept

        said = [old_snapshot(each, self._ran) for each in look.snapshots]
        said += stale_caches(look.stale_caches, self._caches, self._ran)
        said += [computed_once(each, self._ran) for each in look.buffers]
        spoken = {each.root_path for each in look.broken if changed(each, self._ran) is not None}
        spoken |= {each.path for each in look.growing if growing(each, self._ran) is not None}
        said += [steps_kept(each, self._ran) for each in look.spanning if each.path not in spoken]
        said += hooks_left(look.left_hooks, self._ran)
        said += states_kept(look.kept_states, self._ran)
        return said

    def _draws(self, name: str) -> str:
        from pitfall_lab.observe.live.repeated_seeds import draws

        return draws(self._shell.user_ns, name)

    def _is_seeded(self, library: str, seed: int | None) -> bool:
        from pitfall_lab.observe.live.repeated_seeds import is_seeded

        return is_seeded(self._shell.user_ns, library, seed)

    def _is_fixed(self, name: str) -> bool:
        """Whether a name is a module, a function not defined in the notebook, or a plain number, bool, string or
        None.
        """
        value = self._shell.user_ns.get(name)
        own = type(value) is types.FunctionType and value.__module__ == "__main__"
        return not own and any(type(value) is each for each in _FIXED)

    def _is_data(self, name: str) -> bool:
        return self._kind(name) in ("tensor", "array")

    def _is_of(self, name: str, source: str) -> bool:
        """Whether the last run, before the current one, that bound the name computed its value from ``source``."""
        runs = [run for run in self._ran.since(0) if name in run.assigned]
        return bool(runs) and runs[-1] is not self._ran.last and source in runs[-1].flow[1].get(name, ())

    def _ahead(self, said: dict[str, Any] | None, root: str, what: Broken | Used) -> dict[str, Any] | None:
        """Return the warning with an offer to record its cells together with the backward that has not been run yet.

        A warning about an error that has happened is returned unchanged; None for None.
        """
        if said is None or said["failed"]:
            return said
        from pitfall_lab.panel.ahead import ahead
        from pitfall_lab.panel.cause import runs_of

        return {**said, "again": ahead(root, runs_of(what), self._ran, self._kind)}

    def _kind(self, name: str) -> str:
        from pitfall_lab.observe.live.object_kinds import Kinds

        return Kinds().of(self._shell.user_ns.get(name))

    def _message(self, rows: list[Any], more: int, first: int, note: T | None, seconds: float) -> dict[str, Any]:
        made = message(
            "rows",
            cell=self._cells_now(),
            past=False,
            ms=round(seconds * 1000, 2),
            **{"from": first},
            rows=rows,
            more=more,
            cells=self._cells(),
            note=text(note) if note is not None else None,
        )
        if first == 0:
            self._rows = made
        return made

    def _cells_now(self) -> dict[str, Any]:
        last = self._ran.last
        return {"count": last.count, "id": last.id} if last is not None else {"count": 0, "id": ""}

    def _cells(self) -> list[dict[str, Any]]:
        return [cell for cell, _ in self._past.values()]

    def _keep(self, rows: dict[str, Any] | None) -> None:
        """Store the rows after this cell, so that they can be shown again later."""
        if rows is None:
            return
        self._past[rows["cell"]["count"]] = rows["cell"], json.dumps(rows)
        while len(self._past) > CELLS or sum(len(kept) for _, kept in self._past.values()) > BYTES:
            del self._past[next(iter(self._past))]
        rows["cells"] = self._cells()


def _is_running() -> bool:
    """Whether the main thread is running a cell now."""
    main = threading.main_thread()
    frame = sys._current_frames().get(main.ident or 0) if threading.current_thread() is not main else None  # noqa: SLF001 - Python's own way
    while frame is not None and frame.f_code.co_name != "run_code":
        frame = frame.f_back
    return frame is not None


def _path(row: str) -> tuple[str, ...]:
    return tuple(row.split("\x1f"))
