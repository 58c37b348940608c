"""The picture of a finding: the tensors involved at the moments that matter, as plain data, small enough for one
screen. :func:`picture` returns it.

``kind`` says how it is drawn:

- ``"time"``: moments, each with a line of code, the storage involved as it is then, and the nodes that saved it;
- ``"sum"``: the same, where the memory is a ``.grad`` that grows;
- ``"table"``: two shapes, the table that they broadcast to, and the resulting number beside the intended one;
- ``"path"``: the path from the loss to the place where the graph ends, and the operations that it does not reach;
- ``"curve"``: the learning rate at each update, and the lines that the schedule is about;
- ``"looks"``: which positions an attention looks at, beside those that it should look at;
- ``"pairs"``: which rows meet, beside those that belong together;
- ``"axes"``: one tensor as a table, with the axis along which its elements add up to 1 and the
  axis along which they are used.

It contains only data of the trace. A finding for which no other kind can be made gets ``"time"``.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from math import isfinite, prod
from typing import Any, Literal, TypedDict

from pitfall_lab.trace import Event, Trace
from pitfall_lab.trace.state_types import Cells, Text
from pitfall_lab.trace.text import cell_text, cells_text, source_lines
from pitfall_lab.trace.used_names import operand_names
from pitfall_lab.views.calls_between import calls_between
from pitfall_lab.views.display_names import LONGEST, PLAIN, written
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.label_history import Facts

MOMENTS = 4
"""The number of columns that fit on a screen."""
MEMORIES = 3
LINKS = 2
"""The number of lines between two moments that are named."""
SUBJECTS = 2
ACCUMULATING = ("accumulation-without-scaling", "zero-grad-inside-accumulation")
ROUNDS = 3
PATH = 9
"""The number of operations drawn on a path; those omitted in its middle are counted."""
TABLE = 6
"""A table with at most this many rows and columns shows its values."""
MATRIX = 12
"""Up to this many rows and columns, the values of both operands are in the trace."""

Data = dict[str, Any]

BeatRole = Literal["saved", "changed", "raised", "wrong", "other"]


class BeatText(TypedDict):
    """One beat in the story of a finding: a line of the program, and what happened there.

    ``role`` is its kind (such as ``"saved"``, ``"changed"``, ``"raised"``), and ``title`` the same in words. ``step``
    is the event and ``line`` the line in the program's source number ``source``; each None if it is not known.
    ``place`` names the line for people, ``code`` is its source text, and ``text`` what the finding says about it (empty
    if nothing).
    """

    role: BeatRole
    title: Text
    step: int | None
    line: int | None
    source: int
    place: Text
    code: str
    text: str | Text


class Beat(BeatText):
    """A beat with ``was``, the role that the finding gave the line."""

    was: str


class StorageThen(TypedDict):
    """A storage as it was after a step; ``changed`` if its elements differ from the moment before.

    ``shape``, ``stride`` and ``offset`` are those of the tensor that is shown; ``stride`` is None if the tensor has
    another dtype than the storage. ``cells`` are known elements, by their index in the storage if not all are there
    (None: none is known). ``size`` is the number of elements; None if it cannot be given because tensors of several
    shapes read the storage.
    """

    storage: str
    names: list[str]
    more: int
    shape: list[int] | None
    stride: list[int] | None
    offset: int
    size: int | None
    dtype: str | None
    cells: Cells | None
    version: int | None
    changed: bool


class Between(TypedDict):
    """A call between two moments: its line, its source number, and the operation."""

    line: int
    source: int
    op: str


class PicturedBeat(BeatText):
    """A beat with the storages that it is about.

    ``between`` are the calls that lead to this moment from the tensors of an earlier one, on lines that are not shown
    otherwise: if there are more than ``LINKS``, the first and the last, and ``skipped`` is the number of the others.
    """

    memory: list[StorageThen]
    between: list[Between]
    skipped: int


Keeper = TypedDict(
    "Keeper",
    {
        "node": str,
        "name": str,
        "slot": str | None,
        "from": int,
        "to": int,
        "freed": int | None,
        "expected": int | None,
        "found": int | None,
    },
)
"""The node that keeps the storage from one moment (an index) to another."""


class TimePicture(TypedDict):
    """The picture of a finding as moments in time, one after another.

    ``keeper`` is the node that kept a storage from one of them to another; None if none is known. ``about`` are the
    storages that it shows.
    """

    kind: Literal["time"]
    moments: list[PicturedBeat]
    keeper: Keeper | None
    about: list[str]


class Round(TypedDict):
    """One backward that added to a ``.grad``: the values before, the gradient added, and the values after."""

    step: int
    line: int | None
    code: str
    before: Cells | None
    flowed: Cells | None
    after: Cells | None


class SumPicture(TypedDict):
    """A ``.grad`` to which one backward after another adds.

    ``cleared``: it should have been cleared in between. ``rounds`` begin with the backward before the finding's;
    ``first`` is the index of that one among all, and ``left`` the number of those left out.
    """

    kind: Literal["sum"]
    leaf: str
    name: str
    rounds: list[Round]
    first: int
    cleared: bool
    left: int
    moments: list[PicturedBeat]
    about: list[str]


class TableSide(TypedDict):
    """One operand of a broadcast."""

    name: str
    shape: list[int]
    storage: str | None
    cells: Cells | None


class TablePicture(TypedDict):
    """Two operands that broadcast to a table, with the number computed from it (``came``) and the intended one
    (``meant``).

    Both numbers are None if they are not known.
    """

    kind: Literal["table"]
    step: int
    line: int | None
    code: str
    column: TableSide
    row: TableSide
    count: int
    pairs: int | None
    cells: list[list[float]] | None
    came: float | None
    meant: float | None
    moments: list[PicturedBeat]
    about: list[str]


class Chip(TypedDict):
    """A node on a path."""

    node: str
    name: str
    step: int
    line: int | None


class CutPlace(TypedDict):
    """A call: its step, line and code, such as the one at which the graph ends."""

    step: int
    line: int | None
    code: str


class PathPicture(TypedDict):
    """The path from the loss to the call that cut the graph, and the leaves beyond it that get no gradient.

    ``ends`` is False if the graph continues at that call, and the gradients beyond it are zero instead.
    """

    kind: Literal["path"]
    root: str
    root_step: int
    root_line: int | None
    chips: list[Chip]
    skipped: int
    cut: CutPlace
    ends: bool
    behind: str
    lost: list[str]
    more: int
    moments: list[PicturedBeat]
    about: list[str]
    nodes: list[str]


class AxesPicture(TypedDict):
    """A tensor whose elements add up to 1 along one axis (``along``), and that a later call uses along another
    (``used``).

    The later call reduces, contracts or indexes that axis. The picture is a table of the two axes, the one with the
    lower number downwards, at index 0 of all other axes. ``cells`` is None if the table is large, or an element is
    unknown.
    """

    kind: Literal["axes"]
    name: str
    shape: list[int]
    storage: str | None
    along: int
    used: int
    made: CutPlace
    then: CutPlace
    cells: list[list[float]] | None
    moments: list[PicturedBeat]
    about: list[str]


class CurvePlace(TypedDict):
    """A line that is listed beside a picture, with its role in the story; ``step`` is None if no call was seen
    there.
    """

    role: BeatRole
    title: Text
    step: int | None
    line: int | None
    place: Text
    code: str


class CurvePicture(TypedDict):
    """The learning rate over the updates of an optimizer.

    Each of the ``points`` is an update (from 0) and the rate from that update on; of many, some are left out.
    ``updates`` is the number of all updates.
    """

    kind: Literal["curve"]
    points: list[list[float]]
    updates: int
    places: list[CurvePlace]
    moments: list[PicturedBeat]
    about: list[str]


class LooksPicture(TypedDict):
    """Which positions an attention attends to.

    ``cells`` has a string for each of the ``rows``, with a sign for each of the ``columns``: ``"+"`` rightly attended
    to, ``"x"`` wrongly, ``"o"`` not attended to although it should be, ``"."`` rightly not, ``"?"`` not known. ``rows``
    and ``columns`` are the indices that are shown, ``of`` the numbers of rows and columns in all. A row is a query
    position or, with ``examples``, an example.
    """

    kind: Literal["looks"]
    of: tuple[int, int]
    rows: list[int]
    columns: list[int]
    cells: list[str]
    examples: bool
    places: list[CurvePlace]
    moments: list[PicturedBeat]
    about: list[str]


class PairsPicture(TypedDict):
    """Which rows of two tensors a call compared: each of ``rows`` has what it is of, what it met, and what was
    intended.

    ``heads`` are the titles of the first two columns; ``more`` is the number of rows left out.
    """

    kind: Literal["pairs"]
    heads: list[Text]
    rows: list[list[str]]
    more: int
    places: list[CurvePlace]
    moments: list[PicturedBeat]
    about: list[str]


FindingPicture = (
    TimePicture | SumPicture | TablePicture | PathPicture | AxesPicture | CurvePicture | LooksPicture | PairsPicture
)


def picture(facts: Facts, names: dict[str, str], finding: Data, beats: list[Beat]) -> FindingPicture:
    """The picture that fits a finding: a table, a path, a sum, axes, a curve, looks or pairs, else moments in time.

    The first of these that can be made is returned. The finding is plain data
    (:func:`pitfall_lab.views.two_languages.in_two_languages`), ``beats`` are those of its story, and ``names`` has the
    display name of each label.
    """
    known = {fact["name"]: fact["value"] for fact in finding.get("facts", ())}
    board = _Board(facts, names)
    for draw in (board.table, board.path, board.sum, board.axes, board.curve, board.looks, board.pairs):
        drawn = draw(finding, known, beats)
        if drawn is not None:
            return drawn
    return board.time(finding, known, beats)


def moment(beat: Beat, memory: list[StorageThen]) -> PicturedBeat:
    """A beat with its storages."""
    return {
        "role": beat["role"],
        "title": beat["title"],
        "step": beat["step"],
        "line": beat["line"],
        "place": beat["place"],
        "source": beat["source"],
        "code": beat["code"],
        "text": beat["text"],
        "memory": memory,
        "between": [],
        "skipped": 0,
    }


class _Board:
    """One trace with its display names, and a method for each kind of picture."""

    def __init__(self, facts: Facts, names: dict[str, str]) -> None:
        self.facts, self.names = facts, names
        self.trace: Trace = facts.trace
        self.given: dict[str, str] = {}
        """Names given only on this finding's lines, such as ``best["weight"]``."""
        self.shown: dict[str, list[str]] = {}
        """The names under which a storage was shown at earlier moments."""
        self.counter: dict[str, str | None] = {}
        """The version counter that a storage is followed by: that of the tensor that it was shown as first."""
        self.said: dict[str, str] = {}
        """What the line of an earlier moment calls a storage without a variable of its own."""
        self.text = ""
        """The finding's own sentence: a name in it needs not be in the line."""
        self.lines = ""
        """The lines of all moments: of several names of a storage, those that a reader finds there are shown."""

    def time(self, finding: Data, known: Data, beats: list[Beat]) -> TimePicture:
        """The picture of moments, each with the storages that the finding is about, as they were then.

        If the finding is about no storage, each moment has those that its step touched. A moment is left out if the
        next one is on the same line and shows all of its storages.
        """
        moments = _few(beats)
        subjects = self._subjects(known)
        self.text = str((finding.get("message") or {}).get("en", ""))
        self.lines = "\n".join([self.text, *(beat["code"] for beat in moments)])
        for beat in (
            moments if not subjects else ()
        ):  # the line where they meet calls them so; the line that made one need not name it
            if beat["was"] == "used":
                self.said |= {
                    storage: name
                    for storage, (label, name) in self._on_line(beat["step"]).items()
                    if PLAIN.fullmatch(name)
                }
        columns = []
        for beat in moments:
            storages = self._written_besides(beat, subjects) or subjects or self._touched(beat)
            columns.append(self._moment(beat, storages, part=not subjects))
        for beat, column in zip(moments, columns, strict=True):
            if beat["step"] is None and beat["was"] == "used":
                found = self._found(beat, beats)
                if subjects and found is not None:
                    beat["step"] = column["step"] = found
                    memory = [self._memory(storage, found, None) for storage in subjects]
                    column["memory"] = [one for one in memory if one is not None]
        kept = [
            at
            for at in range(len(columns))
            if not _is_within(columns[at : at + 2], freed=moments[at]["was"] == "freed")
        ]
        moments, columns = [moments[at] for at in kept], [columns[at] for at in kept]
        self._tell_apart(columns)
        if known.get("earlier") is True and len(columns) < MOMENTS:
            columns.insert(0, self._saved_earlier(known, columns))
            keeper: Keeper | None = self._earlier_keeper(known, columns)
        else:
            keeper = self._keeper(known, moments, columns)
        _mark_changes(columns)
        self._link(columns)
        about = list(dict.fromkeys(m["storage"] for column in columns for m in column["memory"]))
        return {"kind": "time", "moments": columns, "keeper": keeper, "about": about}

    def _tell_apart(self, columns: list[PicturedBeat]) -> None:
        """If several moments have the same line (``x.add_(1); loss.backward()``), show the call of each instead of the
        line.
        """
        for column in columns:
            alike = [one for one in columns if one["code"] == column["code"] and one["step"] is not None]
            calls = {one["step"]: self.facts.code(one["step"]) for one in alike}
            if len({*calls.values()}) == len(alike) > 1:
                for one in alike:
                    one["code"] = calls[one["step"]]

    def _link(self, columns: list[PicturedBeat]) -> None:
        """Give each moment the calls that lead to it from the moment before, or else from an earlier one.

        Of several calls on one line the last is taken. Calls on the lines of the moments themselves are left out, since
        these are shown.
        """
        shown = {(each["source"], each["line"]) for each in columns}
        for at, column in enumerate(columns):
            ways = (
                calls_between(self.facts, before["step"], column["step"])
                for before in reversed(columns[:at])
                if before["step"] is not None
                and column["step"] is not None
                and self.facts.line(column["step"]) == column["line"]
            )
            lines = {
                (event.span.source, event.span.line): event.name
                for event in next((way for way in ways if way is not None), ())
                if event.span is not None
            }
            links: list[Between] = [
                {"line": line, "source": source, "op": op}
                for (source, line), op in lines.items()
                if (source, line) not in shown
            ]
            column["skipped"] = max(0, len(links) - LINKS)
            column["between"] = [links[0], links[-1]] if len(links) > LINKS else links

    def _saved_earlier(self, known: Data, columns: list[PicturedBeat]) -> PicturedBeat:
        """The moment at which a node made before the recording saved the tensor; it has no step and no line.

        Its values are those that the tensor had when the recording first met it, if its version was the saved one; else
        none.
        """
        storage, tensor, saved = known.get("storage"), known.get("tensor"), known.get("expected")
        counter = self.facts.tensor(tensor).get("counter") if isinstance(tensor, str) else None
        shown = next((m for column in columns for m in column["memory"] if m["storage"] == storage), None)
        memory: list[StorageThen] = []
        if shown is not None:
            met = self._met(f"storages.{storage}") if self._met(f"counters.{counter}") == saved else None
            cells = met.get("cells") if isinstance(met, dict) else None
            memory = [{**shown, "cells": cells, "version": saved, "changed": False}]
        name = shown["names"][0] if shown is not None else ""
        return {
            "role": "saved",
            "title": {"en": "saved", "zh": "保存"},
            "step": None,
            "line": None,
            "source": 0,
            "place": {"en": "before this cell", "zh": "在这个单元格之前"},
            "code": name,
            "text": {
                "en": "a node that was made before this cell saved it",
                "zh": "在这个单元格之前产生的节点保存了它",
            },
            "memory": memory,
            "between": [],
            "skipped": 0,
        }

    def _met(self, path: str) -> Any:
        """The first value that the trace gives for ``path``, even if the same step changes it; None if there is
        none.
        """
        return next(
            (effect.value for event in self.trace.events for effect in event.effects if effect.path == path), None
        )

    def _earlier_keeper(self, known: Data, columns: list[PicturedBeat]) -> Keeper:
        node = str(known.get("node"))
        roles = [column["role"] for column in columns]
        return {
            "node": node,
            "name": self.names.get(node, node),
            "slot": known.get("saved"),
            "from": 0,
            "to": next((at for at, role in enumerate(roles) if role in ("raised", "wrong")), len(roles) - 1),
            "freed": None,
            "expected": known.get("expected"),
            "found": known.get("found"),
        }

    def _subjects(self, known: Data) -> list[str]:
        """At most ``SUBJECTS`` storages that the finding's facts name; empty if they name none.

        That is ``storage`` alone, if the facts have it; else the storages of the tensors they name; without any tensor,
        that of their node's output.
        """
        if isinstance(known.get("storage"), str):
            return [str(known["storage"])]
        kept = known.get("kept")
        if isinstance(kept, str) and (name := self._kept_as(kept)):
            self.given[kept] = name
        if isinstance(known.get("holder"), str):  # the tensors of a tuple have no names of their own
            known = {**known, "carried": known["carried"][:1]}
            self.given[known["carried"][0]] = str(known["holder"])
        values = [
            known.get(key) for key in ("tensor", "kept", "gradient", "copy", "source", "carried", "leaf", "named")
        ]
        labels = [
            label
            for value in values
            for label in (value if isinstance(value, tuple) else (value,))
            if isinstance(label, str)
        ]
        if not labels and isinstance(known.get("node"), str):  # a node represents its output
            labels = [label for label in [self.facts.output(str(known["node"]))] if label]
        found = [self.facts.tensor(label).get("storage") for label in labels]
        return list(dict.fromkeys(str(s) for s in found if s))[:SUBJECTS]

    def _kept_as(self, label: str) -> str:
        """The expression under which a line kept a tensor: ``best["weight"]`` for ``best = model.state_dict()``; else
        "".
        """
        step = self.facts.tensors[label][0][0]
        event = self.trace.events[step]
        if event.span is None:
            return ""
        line = source_lines(self.trace.sources[event.span.source].text)[event.span.line - 1]
        found = re.fullmatch(r"\s*([\w.]+)\s*=\s*([\w.]+)\.state_dict\(\)\s*(?:#.*)?", line)
        if found is None:
            return ""
        storage = self.facts.tensor(label).get("storage")
        owner = next(
            (self.names[t] for t in self.facts.of_storage(storage) if self.names[t].startswith(f"{found[2]}.")), ""
        )
        return f'{found[1]}["{owner.removeprefix(found[2] + ".")}"]' if owner else found[1]

    def _touched(self, beat: Beat) -> list[str]:
        """The storages that a beat's step reads, makes and writes, if the program names them or the line shows the
        call.

        If the beat is about making a tensor, only storages made and written count. Of more than ``MEMORIES``, the first
        ones and the last. Empty if the beat has no step on its line.
        """
        event = self._event(beat["step"])
        if event is None or not self._is_on(event, beat["line"]):
            return []
        # Where a tensor was made, it is the one to look at, and not what it was made of.
        made = event.results if beat["was"] == "made" else ()
        labels = [*(o.label for o in event.operands if o.label and not made), *event.results]
        storages = [self.facts.tensor(label, event.step).get("storage") for label in labels]
        everything = dict.fromkeys(s for s in (*storages, *event.writes) if s)
        # What a library computes for itself in a line of the program (a data loader's seed) tells the reader nothing.
        is_shown = re.search(rf"(?<!\w){re.escape(event.op.rpartition('.')[2].strip('_'))}_*\(", self._line(event.step))
        assigned = event.writes if event.name == "__setitem__" else ()  # the line shows it as `x[…] =`
        found = [storage for storage in everything if is_shown or storage in assigned or self._is_named(storage)]
        return found if len(found) <= MEMORIES else [*found[: MEMORIES - 1], found[-1]]

    def _written_besides(self, beat: Beat, subjects: list[str]) -> list[str]:
        """The storages that a beat of role ``changed`` writes, if none of them is one of ``subjects``.

        Then the line changes another tensor, such as the gradient of the one that the finding is about. Empty for other
        beats, if the step is not on the beat's line, and if there are no ``subjects``.
        """
        event = self._event(beat["step"])
        if not subjects or beat["role"] != "changed" or event is None or not self._is_on(event, beat["line"]):
            return []
        return [] if {*event.writes} & {*subjects} else list(dict.fromkeys(event.writes))[:MEMORIES]

    def _is_on(self, event: Event, line: int | None) -> bool:
        return line is None or event.span is None or event.span.line <= line <= event.span.end_line

    def _is_named(self, storage: str) -> bool:
        """Whether the program had a name for a tensor on the storage at any time."""
        labels = self.facts.of_storage(storage)
        return any((record or {}).get("names") for label in labels for _, record in self.facts.tensors.get(label, ()))

    def _found(self, beat: Beat, beats: list[Beat]) -> int | None:
        """The last step before a line that called nothing itself, such as ``report(path)`` after a loop.

        None if it is not certain when the line ran: it must come after the lines of all other beats, in the same
        source.
        """
        seen = [(each["step"], each["line"]) for each in beats if each["step"] is not None]
        line = beat["line"]
        if line is None or not seen or any(each["source"] != beat["source"] for each in beats):
            return None
        if any(other is None or other >= line for _, other in seen):
            return None
        scope, last = self.trace.events[seen[0][0]].scope, max(step for step, _ in seen)
        for event in self.trace.events[last + 1 :]:
            place = event.span if event.kind != "node" and event.scope == scope else None
            if place is not None and place.source == beat["source"] and place.line > line:
                return event.step - 1
        return len(self.trace.events) - 1

    def _moment(self, beat: Beat, storages: Iterable[str], *, part: bool) -> PicturedBeat:
        """A beat with these storages; with ``part``, if the line took a view of a storage, that view is shown."""
        step = beat["step"]
        said = self._on_line(step)
        if part and beat["was"] == "other":
            said |= self._taken(step)
        memory = [
            m
            for storage in storages
            if step is not None and (m := self._memory(storage, step, said.get(storage))) is not None
        ]
        return moment(beat, memory)

    def _on_line(self, step: int | None) -> dict[str, tuple[str, str]]:
        """For each storage, a tensor on it and its name in the line of a step.

        Storages are included whose tensor the line names, or that a new result of the step is on. Empty without a call.
        """
        event = self._event(step)
        out: dict[str, tuple[str, str]] = {}
        if event is None or event.kind != "call" or event.span is None:
            return {}
        names = operand_names(self.trace, event)
        for place, operand in enumerate(event.operands):
            storage = self.facts.tensor(operand.label, event.step).get("storage")
            if operand.label and storage and (name := names.get(operand.name or place)):
                out.setdefault(str(storage), (operand.label, written(name)))
        for label in event.results:
            tensor = self.facts.tensor(label, event.step)
            new = tensor.get("storage") and self.facts.storages[tensor["storage"]][0][0] == event.step
            # The caller may give it a name later; a reader has to find it here, or in what the finding says.
            text = f"{self._line(event.step)}\n{self.text}"
            own = [written(each) for each in tensor.get("names") or ()]
            if new and label not in self.given and not any(_is_in(each, text) for each in own):
                known = (self.names.get(label, ""), self.said.get(str(tensor["storage"]), ""))
                found = [each for each in known if PLAIN.fullmatch(each) and _is_in(each, text)]
                name = found[0] if found else cut(self.facts.code(event.step), LONGEST)
                out.setdefault(str(tensor["storage"]), (label, name))
        return out

    def _taken(self, step: int | None) -> dict[str, tuple[str, str]]:
        """For each storage of an operand, the result of the step that is a smaller view of it with a plain name, and
        that name.
        """
        event = self._event(step)
        out: dict[str, tuple[str, str]] = {}
        if event is None or event.writes:
            return out
        sources = [self.facts.tensor(operand.label, event.step) for operand in event.operands if operand.label]
        for label in event.results:
            part, name = self.facts.tensor(label, event.step), self.names.get(label, "")
            count = prod(part.get("shape") or ())
            whole = [one for one in sources if one.get("storage") == part.get("storage") and count < prod(one["shape"])]
            if whole and PLAIN.fullmatch(name):
                out[str(part["storage"])] = (label, name)
        return out

    def _memory(self, storage: str, step: int, said: tuple[str, str] | None) -> StorageThen | None:
        """A storage after a step: tensors, shape, values and version; None if it did not exist then.

        ``said``: a tensor on it, and its name on the step's line.
        """
        history = self.facts.storages.get(storage, [])
        record = next((r for s, r in reversed(history) if s <= step and r), None)
        if record is None:
            return None
        labels = [
            t
            for t in self.facts.of_storage(storage)
            if (r := self.facts.tensor(t, step)) and r.get("storage") == storage
        ]
        alive = [t for t in labels if self.facts.tensor(t, step).get("alive")]
        called = self._names_of(alive or labels, step)
        here = alive or labels
        # Of a tensor and a view of it, the one that the line names has the shape that goes with the name, else a named.
        named = [t for t in here if self.facts.tensor(t, step).get("names")] or self._plain(here)
        shown = said[0] if said is not None and said[0] in here else next(iter(named), None)
        if said is not None and said[1] not in called and said[0] not in self.given:
            label, name = said
            held = [written(each) for each in self.facts.tensor(label, step).get("names") or ()]
            if {*held} & {*called} and PLAIN.fullmatch(name):  # two variables hold one tensor
                called = [*called, name]
            else:
                called, shown = [name], label
                self.said.setdefault(storage, name)
        elif (
            storage in self.said
            and (said is None or said[1] not in called)
            and not any(self.facts.tensor(t, step).get("names") for t in alive or labels)
        ):
            called = [self.said[storage]]
        called = self._as_written(called, storage, step)
        first = self.facts.tensor(shown, step)
        if not {*self.given} & {*self.facts.of_storage(storage)}:  # such a name stands beside that of the same memory
            called = self._in_sight(called, [written(each) for each in first.get("names") or ()], step)
        counter = self.counter.setdefault(storage, first.get("counter"))
        if (
            first.get("counter") != counter
        ):  # `x.data` and `x` have counters of their own: what is said of `x` is about that of `x`
            called = list(dict.fromkeys([*self.shown[storage][:1], *called]))
        count = prod(first.get("shape") or ())
        stride = _stride(first)
        part = bool(called) and stride is not None and count < (record.get("size") or 0)
        known = _seen(first, record) if part else record.get("cells")  # else its shape says how many there are
        return {
            "storage": storage,
            "names": called[:4] or [self.names.get(storage, "?")],
            "more": max(0, len(called) - 4),
            "shape": first.get("shape"),
            "stride": stride,
            "offset": int(first.get("offset") or 0),
            "size": (count if part else record.get("size")) if known is not None or not first.get("shape") else None,
            "dtype": record.get("dtype"),
            "cells": known,
            "version": self._version(counter, step) if counter else None,
            "changed": False,
        }

    def _names_of(self, labels: list[str], step: int) -> list[str]:
        """The program's names for tensors on a storage.

        If there are none, in a list the display name of the oldest tensor, with plain names before others.
        """
        named = [
            n
            for t in labels
            for n in (
                [self.given[t]] if t in self.given else map(written, self.facts.tensor(t, step).get("names") or ())
            )
        ]
        found = named or [self.names[t] for t in self._plain(labels) if t in self.names]
        return list(dict.fromkeys(found))

    def _as_written(self, names: list[str], storage: str, step: int) -> list[str]:
        """The names of a storage to be shown.

        If the step's line contains none of them, those earlier names that it contains.
        """
        known = self.shown.setdefault(storage, [])
        known += [name for name in names if name not in known]
        code = self._line(step)
        said = [name for name in known if _is_in(name, code)]
        return said if said and not {*said} & {*names} else names

    def _in_sight(self, names: list[str], own: list[str], step: int) -> list[str]:
        """The ``names`` that the moments' lines or the finding's sentence contain (all if none does).

        First come those in ``own``, the names of the tensor that is shown.
        """
        text = f"{self.lines}\n{self._line(step)}"
        seen = [name for name in names if _is_in(name, text) or not PLAIN.fullmatch(name)]
        return sorted(seen or names, key=lambda name: name not in own)

    def _line(self, step: int) -> str:
        span = self.trace.events[step].span if 0 <= step < len(self.trace.events) else None
        lines = source_lines(self.trace.sources[span.source].text) if span is not None else ()
        return "\n".join(lines[span.line - 1 : span.end_line]) if span is not None else ""

    def _plain(self, labels: list[str]) -> list[str]:
        """Return, in a list, the oldest of these tensors whose display name is a plain name; if
        there is none, the oldest of all.
        """
        return next(([t] for t in labels if PLAIN.fullmatch(self.names.get(t, ""))), labels[:1])

    def _version(self, counter: str, step: int) -> int | None:
        history = [v for s, v in self.facts.counters.get(counter, []) if s <= step and isinstance(v, int)]
        return history[-1] if history else None

    def _keeper(self, known: Data, moments: list[Beat], columns: list[PicturedBeat]) -> Keeper | None:
        """The node that saved a tensor, from the moment of saving (or making) to the backward that reads it, or the
        last moment.

        Its slot is named only if the tensor in it is drawn. None if the finding names no node, or if there is no such
        moment.
        """
        node = known.get("node")
        if not isinstance(node, str) or node not in self.facts.nodes:
            return None
        roles, parts = [beat["role"] for beat in moments], [beat["was"] for beat in moments]
        first = next((i for i, beat in enumerate(moments) if beat["role"] == "saved" or beat["was"] == "made"), None)
        last = next(
            (i for i, role in enumerate(roles) if role in ("raised", "wrong") and i > (first or 0)), len(roles) - 1
        )
        if first is None or last <= first:
            return None
        drawn = {each["storage"] for each in columns[first]["memory"]}
        saved = (self.facts.nodes[node][0][1] or {}).get("saved", ())
        slots = [slot for slot in saved if slot.get("storage") in drawn]
        chosen = next((s for s in slots if s.get("name") == known.get("saved")), None)
        if chosen is None:
            chosen = next((s for s in slots if s.get("storage") == known.get("storage")), slots[0] if slots else None)
        return {
            "node": node,
            "name": self.names.get(node, node),
            "slot": (chosen or {}).get("name"),
            "from": first,
            "to": last,
            "freed": parts.index("freed") if "freed" in parts else None,
            "expected": known.get("expected"),
            "found": known.get("found"),
        }

    def sum(self, finding: Data, known: Data, beats: list[Beat]) -> SumPicture | None:
        """The picture of a ``.grad`` to which one backward after another adds.

        None if the finding is not about one, or if fewer than two backwards changed it.
        """
        if not ({"left", "sum"} <= known.keys() or finding.get("name") in ACCUMULATING):
            return None
        leaf = str(known.get("tensor"))
        added = self._added(leaf)
        wrong = next((at for at, one in enumerate(added) if one["step"] == finding.get("step")), 1)
        first = max(0, wrong - 1)
        chosen = added[first : first + ROUNDS]
        if len(chosen) < 2:
            return None
        return {
            "kind": "sum",
            "leaf": leaf,
            "name": self.names.get(leaf, leaf),
            "rounds": chosen,
            "first": first,
            "cleared": "left" in known,
            "left": len(added) - len(chosen),
            "moments": [],
            "about": self._with_gradient(leaf),
        }

    def _with_gradient(self, leaf: str) -> list[str]:
        tensor = self.facts.tensor(leaf)
        grads = [record["grad"] for _, record in self.facts.tensors.get(leaf, ()) if record and record.get("grad")]
        return list(
            dict.fromkeys(
                s for s in (tensor.get("storage"), *(self.facts.tensor(g).get("storage") for g in grads)) if s
            )
        )

    def _added(self, leaf: str) -> list[Round]:
        """For each backward that changed the known ``.grad`` of a leaf: ``.grad`` before, the
        gradient added, and ``.grad`` after.
        """
        out: list[Round] = []
        for event in self.trace.events:
            if event.name != "backward" or event.kind != "call" or event.error is not None:
                continue
            end = (
                next(
                    (e.step for e in self.trace.events[event.step + 1 :] if e.parent != event.step),
                    len(self.trace.events),
                )
                - 1
            )
            before, after = self._gradient(leaf, event.step - 1), self._gradient(leaf, end)
            if after is None or before == after:
                continue
            out.append({
                "step": event.step, "line": self.facts.line(event.step), "code": self.facts.code(event.step),
                "before": before, "flowed": _difference(after, before), "after": after,
            })  # fmt: skip
        return out

    def _gradient(self, leaf: str, step: int) -> Any:
        grad = self.facts.tensor(leaf, step).get("grad") if step >= 0 else None
        return self._cells(self.facts.tensor(grad, step).get("storage"), step) if grad else None

    def path(self, finding: Data, known: Data, beats: list[Beat]) -> PathPicture | None:
        """The picture of the path from the loss back to the call that cuts the graph, and of parameters that are not
        reached.

        It shows at most ``PATH`` nodes of the path and four parameters. None if the finding names no such call or no
        backward.
        """
        cut = self._event(known.get("cut") if isinstance(known.get("cut"), int) else _step(beats, "cut"))
        back = self._event(_step(beats, "backward"))
        if cut is None or back is None or not back.operands:
            return None
        root = self.facts.tensor(back.operands[0].label, back.step).get("grad_fn")
        way = self._way(root, self._users(cut, back.step))
        behind = next(
            (o.label for o in cut.operands if o.label and self.facts.tensor(o.label, cut.step).get("grad_fn")), None
        )
        lost = self._leaves(self.facts.tensor(behind, cut.step).get("grad_fn") if behind else None)
        leaf = known.get("tensor")
        if isinstance(leaf, str) and self.facts.tensor(leaf).get("is_leaf") and leaf not in lost:
            lost = [leaf, *lost]
        lost = [*lost, *(label for label in known.get("unreached") or () if label not in lost)]
        reached = {*self._leaves(root)}  # by another way: several losses are added up
        ends = not any(self.facts.tensor(label, cut.step).get("grad_fn") for label in cut.results)
        lost = [label for label in lost if label not in reached]
        if not ends:  # it is reached, by a gradient of zeros
            lost = [*(known.get("parameters") or lost)]
        lost.sort(key=lambda label: int(label[1:]) if label[1:].isdigit() else 0)
        chips = [self._chip(node) for node in way]
        skipped = max(0, len(chips) - PATH)
        if skipped:
            chips = [*chips[: PATH - 3], *chips[-3:]]
        return {
            "kind": "path",
            "root": self.names.get(back.operands[0].label or "", "loss"),
            "root_step": back.step,
            "root_line": self.facts.line(back.step),
            "chips": chips,
            "skipped": skipped,
            "cut": self._place(cut.step),
            "ends": ends,
            "behind": self.names.get(behind or "", ""),
            "lost": [self.names.get(label, label) for label in lost[:4]],
            "more": max(0, len(lost) - 4),
            "moments": [],
            "about": [s for s in (self.facts.tensor(t).get("storage") for t in [behind, *cut.results, *lost[:4]]) if s],
            "nodes": [*way],
        }

    def _users(self, cut: Event, until: int) -> set[str]:
        """The nodes of the first operations before step ``until`` that used the result of the call that cut the graph.

        The result is followed through operations that have no node.
        """
        plain, found = set(cut.results), set()
        for event in self.trace.events[cut.step + 1 : until]:
            if event.kind != "call" or not plain & {o.label for o in event.operands}:
                continue
            for label in event.results:
                node = self.facts.tensor(label, event.step).get("grad_fn")
                if node:
                    found.add(node)
                else:
                    plain.add(label)
        return found

    def _way(self, root: str | None, goals: set[str]) -> list[str]:
        """The nodes on the path from ``root`` to the nearest of ``goals``; only ``root`` if it reaches none; empty
        without a root.
        """
        if root is None:
            return []
        came: dict[str, str | None] = {root: None}
        todo = deque([root])
        while todo:
            node = todo.popleft()
            if node in goals:
                out = [node]
                while (before := came[out[-1]]) is not None:
                    out.append(before)
                return out[::-1]
            for following in (self.facts.nodes[node][-1][1] or {}).get("next", ()) if node in self.facts.nodes else ():
                if following and following not in came:
                    came[following] = node
                    todo.append(following)
        return [root]

    def _leaves(self, node: str | None) -> list[str]:
        seen, todo, out = {node}, deque([node] if node else []), []
        while todo:
            record = (self.facts.nodes[here][-1][1] or {}) if (here := todo.popleft()) in self.facts.nodes else {}
            if record.get("name") == "AccumulateGrad" and record.get("output"):
                out.append(str(record["output"]))
            for following in record.get("next", ()):
                if following and following not in seen:
                    seen.add(following)
                    todo.append(following)
        return out

    def _chip(self, node: str) -> Chip:
        born = self.facts.nodes[node][0][0]
        return {"node": node, "name": self.names.get(node, node), "step": born, "line": self.facts.line(born)}

    def table(self, finding: Data, known: Data, beats: list[Beat]) -> TablePicture | None:
        """The picture of two operands that broadcast to a table; None if the finding is not about two such operands."""
        pair = known.get("column"), known.get("row")
        if not all(isinstance(label, str) for label in pair):
            return None
        step = finding.get("step")
        event = self._event(step)
        called = known.get("operands") or tuple(self.names.get(str(label), str(label)) for label in pair)
        one, other = (self._operand(str(label), step, str(name)) for label, name in zip(pair, called, strict=True))
        if event is None or not one["shape"] or not other["shape"]:
            return None
        count = other["shape"][-1]
        differences = self._products(event, one, other, str(pair[0])) if count <= MATRIX else None
        came, meant = self._numbers(event, differences)
        return {
            "kind": "table",
            "step": event.step,
            "line": self.facts.line(event.step),
            "code": self.facts.code(event.step),
            "column": one,
            "row": other,
            "count": count,
            "pairs": known.get("pairs"),
            "cells": differences if count <= TABLE else None,
            "came": known.get("loss", came),
            "meant": known.get("meant", meant),
            "moments": [],
            "about": [s for s in (one["storage"], other["storage"]) if s],
        }

    def axes(self, finding: Data, known: Data, beats: list[Beat]) -> AxesPicture | None:
        """The picture of a tensor whose elements sum to 1 along one axis and that a later call uses along another.

        None if the finding is not about two such axes.
        """
        along, used = known.get("axis"), known.get("used")
        made, then = self._event(_step(beats, "made")), self._event(_step(beats, "used"))
        if not (isinstance(along, int) and isinstance(used, int)) or made is None or then is None or not made.results:
            return None
        label = made.results[0]
        tensor = self.facts.tensor(label, made.step)
        shape = list(tensor.get("shape") or ())
        used %= max(len(shape), 1)
        if along == used or max(along, used) >= len(shape):
            return None
        return {
            "kind": "axes",
            "name": self.names.get(label, label),
            "shape": shape,
            "storage": tensor.get("storage"),
            "along": along,
            "used": used,
            "made": self._place(made.step),
            "then": self._place(then.step),
            "cells": self._slice(tensor, made.step, sorted((along, used))),
            "moments": [],
            "about": [tensor["storage"]] if tensor.get("storage") else [],
        }

    def curve(self, finding: Data, known: Data, beats: list[Beat]) -> CurvePicture | None:
        """The picture of the learning rates of all updates; None if the finding has no known rates."""
        points, updates = known.get("curve"), known.get("updates")
        if not isinstance(points, list | tuple) or not isinstance(updates, int) or updates < 1:
            return None
        pairs = [[float(x) for x in each] for each in points if isinstance(each, list | tuple) and len(each) == 2]
        if not pairs or len(pairs) != len(points) or not all(isfinite(x) for each in pairs for x in each):
            return None
        return {
            "kind": "curve",
            "points": pairs,
            "updates": updates,
            "places": _places(beats),
            "moments": [],
            "about": [],
        }

    def looks(self, finding: Data, known: Data, beats: list[Beat]) -> LooksPicture | None:
        """The picture of an attention: which rows look at which columns, rightly or wrongly; None if the finding does
        not say it.
        """
        said = known.get("looks")
        if not isinstance(said, dict):
            return None
        return {
            "kind": "looks",
            "of": said["of"],
            "rows": list(said["rows"]),
            "columns": list(said["columns"]),
            "cells": list(said["cells"]),
            "examples": said["examples"],
            "places": _places(beats),
            "moments": [],
            "about": self.time(finding, known, beats)["about"],
        }

    def pairs(self, finding: Data, known: Data, beats: list[Beat]) -> PairsPicture | None:
        """The picture of the pairs of rows that a call compared, beside those that were meant; None if the finding does
        not say which.
        """
        said = known.get("pairs")
        if not isinstance(said, dict):
            return None
        return {
            "kind": "pairs",
            "heads": list(said["heads"]),
            "rows": [list(row) for row in said["rows"]],
            "more": said["more"],
            "places": _places(beats),
            "moments": [],
            "about": self.time(finding, known, beats)["about"],
        }

    def _place(self, step: int) -> CutPlace:
        return {"step": step, "line": self.facts.line(step), "code": self.facts.code(step)}

    def _slice(self, tensor: Data, step: int, axes: list[int]) -> list[list[float]] | None:
        """The elements of a tensor along two axes, at index 0 of all others.

        None if one of the axes is longer than ``TABLE``, or an element is not known.
        """
        cells = self._cells(tensor.get("storage"), step)
        seen = dict(cells.get("shown", ()) if isinstance(cells, dict) else enumerate(cells or ()))
        steps, sizes = ([tensor[key][axis] for axis in axes] for key in ("stride", "shape"))
        if max(sizes) > TABLE:
            return None
        places = [
            [tensor.get("offset", 0) + r * steps[0] + c * steps[1] for c in range(sizes[1])] for r in range(sizes[0])
        ]
        table = [[cell for place in row if isinstance(cell := seen.get(place), (int, float))] for row in places]
        return table if all(len(row) == sizes[1] for row in table) else None

    def _operand(self, label: str, step: int | None, name: str) -> TableSide:
        tensor = self.facts.tensor(label, step)
        storage = tensor.get("storage")
        cells = self._cells(storage, step) if step is not None else None
        return {"name": name, "shape": list(tensor.get("shape") or ()), "storage": storage, "cells": cells}

    def _numbers(self, event: Event, differences: list[list[float]] | None) -> tuple[float | None, float | None]:
        """The scalar that calls on the call's line compute last, and the one that was intended; None for an unknown
        number.

        The scalar should be the mean or the sum of the squares or absolute values of all ``differences``; the intended
        one is the same of those on the diagonal. If it is none of these, the intended one is unknown.
        """
        came = None
        for later in self.trace.events[event.step :]:
            if later.kind != "call" or later.span is None or event.span is None or later.span.line != event.span.line:
                break
            for label in later.results:
                tensor = self.facts.tensor(label, later.step)
                cells = self._cells(tensor.get("storage"), later.step)
                if tensor.get("shape") == [] and isinstance(cells, list) and isinstance(cells[0], (int, float)):
                    came = float(cells[0])
        if came is None or differences is None:
            return came, None
        for power in (2, 1):
            for mean in (True, False):
                every = [abs(d) ** power for row in differences for d in row]
                own = [abs(row[i]) ** power for i, row in enumerate(differences)]
                total = sum(every) / (len(every) if mean else 1)
                if abs(total - came) <= 1e-4 * max(1.0, abs(came)):
                    return came, sum(own) / (len(own) if mean else 1)
        return came, None

    def _cells(self, storage: str | None, step: int) -> Any:
        record = next((r for s, r in reversed(self.facts.storages.get(storage or "", [])) if s <= step and r), None)
        return record.get("cells") if record else None

    def _products(self, event: Event, one: TableSide, other: TableSide, column: str) -> list[list[float]] | None:
        """All differences of the two operands: the elements of the table before it is squared and reduced.

        None if an element is unknown.
        """
        left, right = _numbers_of(one["cells"]), _numbers_of(other["cells"])
        if left is None or right is None or len(left) != one["shape"][0] or len(right) != other["shape"][-1]:
            return None
        operands = [operand.label for operand in event.operands if operand.label]
        sign = 1.0 if operands[:1] == [column] else -1.0  # as the program subtracts them
        return [[sign * (a - b) for b in right] for a in left]

    def _event(self, step: int | None) -> Event | None:
        return self.trace.events[step] if step is not None and 0 <= step < len(self.trace.events) else None


def _is_in(name: str, text: str) -> bool:
    """Whether a name occurs in a text, and not as part of a longer name."""
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", text) is not None


def _numbers_of(cells: Cells | None) -> list[float] | None:
    """The elements as numbers if all are known; None if some are missing or not finite."""
    if not isinstance(cells, list):
        return None
    numbers = [v for v in cells if isinstance(v, (int, float))]
    return numbers if len(numbers) == len(cells) else None


def _few(beats: list[Beat]) -> list[Beat]:
    """The moments that are shown, at most ``MOMENTS``.

    Beats without a step and a line are left out, and those of the original role ``forward``; of the writes of one
    statement only the last stays. If there are still too many, beats of role ``other`` are left out, then those between
    the first ones and the last.
    """
    placed = [
        beat for beat in beats if (beat["step"] is not None or beat["line"] is not None) and beat["was"] != "forward"
    ]
    placed = [
        beat
        for beat, after in zip(placed, [*placed[1:], None], strict=True)
        if after is None or not _goes_on(beat, after)
    ]
    if len(placed) <= MOMENTS:
        return placed
    chosen = [beat for beat in placed if beat["role"] != "other"] or placed
    middle = chosen[1:-1]
    return [chosen[0], *middle[: MOMENTS - 2], chosen[-1]] if len(chosen) > MOMENTS else chosen


def _places(beats: list[Beat]) -> list[CurvePlace]:
    """The lines beside a picture that has no columns of its own; of several beats on one line, the last one."""
    few = _few(beats)
    return [
        {
            "role": b["role"],
            "title": b["title"],
            "step": b["step"],
            "line": b["line"],
            "place": b["place"],
            "code": b["code"],
        }
        for b, after in zip(few, [*few[1:], None], strict=True)
        if after is None or (b["source"], b["line"]) != (after["source"], after["line"])
    ]


def _is_within(pair: list[PicturedBeat], *, freed: bool) -> bool:
    """Whether the first of two moments can be left out: both are on one line, and the second shows all of its storages.

    Not if the finding is about what was ``freed``, and not if the first moment has a role of its own.
    """
    first, second = (pair[0], pair[-1])
    same = (
        len(pair) > 1
        and first["role"] == "other"
        and not freed
        and (first["source"], first["line"]) == (second["source"], second["line"])
    )
    return same and {m["storage"] for m in first["memory"]} <= {m["storage"] for m in second["memory"]}


def _goes_on(beat: Beat, after: Beat) -> bool:
    """Whether the next moment continues the same change: both are changes on one line, at most two steps
    apart, ``h.mul_(2).add_(1)``.
    """
    if beat["step"] is None or after["step"] is None or beat["role"] != "changed" or after["role"] != "changed":
        return False
    return (beat["source"], beat["line"]) == (after["source"], after["line"]) and after["step"] - beat["step"] <= 2


def _mark_changes(columns: list[PicturedBeat]) -> None:
    """Set ``changed`` of each storage whose values differ from those at the moment before."""
    before: dict[str, Any] = {}
    for column in columns:
        for memory in column["memory"]:
            old, cells = before.get(memory["storage"]), memory["cells"]
            memory["changed"] = old is not None and _differ(old, cells)
            before[memory["storage"]] = cells


def _differ(one: Cells | None, other: Cells | None) -> bool:
    """Whether two states of a storage differ, as shown, in an element that both have; complete ones also in their
    length, shortened ones also in their mean, least and largest number.
    """
    if isinstance(one, list) and isinstance(other, list):
        return cells_text(one) != cells_text(other)
    if isinstance(one, dict) and isinstance(other, dict):
        summaries = [[each.get(key) for key in ("mean", "low", "high")] for each in (one, other)]
        if None not in (*summaries[0], *summaries[1]) and summaries[0] != summaries[1]:
            return True
    was, now = (dict(_listed(each)) for each in (one, other))
    return any(cell_text(was[place]) != cell_text(now[place]) for place in was.keys() & now.keys())


def _listed(cells: Cells | None) -> list[tuple[int, Any]]:
    if cells is None:
        return []
    return list(enumerate(cells)) if isinstance(cells, list) else [(place, value) for place, value in cells["shown"]]


def _stride(tensor: Data) -> list[int] | None:
    """The strides of a tensor; None if its elements are not the cells of its storage: they have another dtype."""
    stride = tensor.get("stride")
    return list(stride) if stride is not None and len(stride) == len(tensor.get("shape") or ()) else None


def _seen(tensor: Data, record: Data) -> Cells | None:
    """The known elements of a storage that a view reads, by their index in the storage; None if none of them is
    known.
    """
    stride = _stride(tensor)
    if stride is None:
        return None
    axes = sorted(zip(tensor["shape"], stride, strict=True), key=lambda axis: -abs(axis[1]))
    # An array may be read backwards: its lowest place is that of the last element of such an axis.
    lowest: int = int(tensor.get("offset") or 0) + sum((length - 1) * step for length, step in axes if step < 0)

    def is_seen(place: int) -> bool:
        rest: int = place - lowest
        for length, step in axes:
            if length > 1 and step:
                index, rest = divmod(rest, abs(step))
                if not 0 <= index < length:
                    return False
        return rest == 0

    shown = [(place, value) for place, value in _listed(record.get("cells")) if is_seen(place)]
    return {"count": int(record.get("size") or 0), "shown": shown} if shown else None


def _step(beats: list[Beat], role: str) -> int | None:
    return next((beat["step"] for beat in beats if beat["was"] == role and beat["step"] is not None), None)


def _difference(after: Any, before: Any) -> Any:
    """The gradient that a backward added: the values after minus those before, rounded to six digits.

    If there was no gradient before, the values after. None if values are unknown or not finite.
    """
    if isinstance(after, dict):
        return _shortened_difference(after, before)
    if not isinstance(after, list):
        return None
    if before is None:
        return after
    numbers = isinstance(before, list) and all(isinstance(v, (int, float)) for v in (*before, *after))
    return (
        [float(f"{a - b:.6g}") for a, b in zip(after, before, strict=True)]
        if numbers and len(before) == len(after)
        else None
    )


def _shortened_difference(after: dict[str, Any], before: Any) -> Any:
    """The same difference for a large tensor, at the indices whose values are known before and after; None if there are
    none.
    """
    if before is None:
        return after
    former = dict(before.get("shown", ())) if isinstance(before, dict) else {}
    shown = [(index, value) for index, value in after.get("shown", ()) if index in former]
    values = _difference([value for _, value in shown], [former[index] for index, _ in shown])
    return (
        {"count": after["count"], "shown": [[index, value] for (index, _), value in zip(shown, values, strict=True)]}
        if values
        else None
    )
