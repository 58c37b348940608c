"""The state that all components of the lockstep share: the program's source, the shadow engine, the records and the
trace (:class:`World`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pitfall_lab.observe.line_watch import LineWatch
from pitfall_lab.observe.namespace import FrameNames
from pitfall_lab.observe.other_threads import OtherThreads
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.shadow import Engine
from pitfall_lab.verify.records import Records
from pitfall_lab.verify.writer import Writer


@dataclass(slots=True)
class World:
    """State shared by the components of one lockstep.

    ``sources`` finds the program's lines, ``lines`` watches them, ``engine`` is the shadow, ``records`` are the known
    objects, ``writer`` writes the trace, ``namespace`` looks up the program's names for tensors, ``other_threads``
    registers calls of torch in other threads. ``limit``: tensors with more elements than this are modelled without
    values (below 0: all).
    """

    sources: SourceMap
    lines: LineWatch
    limit: int
    engine: Engine
    other_threads: OtherThreads
    records: Records = field(default_factory=Records)
    writer: Writer = field(default_factory=Writer)
    namespace: FrameNames = field(default_factory=FrameNames)
    bumps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For each version counter's label, its increments as (step, new version)."""
    writes: dict[str, list[int]] = field(default_factory=dict)
    """For each storage's label, the steps that wrote it."""
    writes_unseen: bool = False
    """Whether the program may increment versions in calls that are not observed; then an unexpected version is no
    disagreement.
    """

    def __post_init__(self) -> None:
        self.records.graph, self.records.rows = self.engine.graph, self.writer.rows
