"""What the parts of the lockstep share: one program, seen by two engines, and the trace that is being written of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from pitfall_lab.observe.line_watch import LineWatch
from pitfall_lab.observe.namespace import Namespace
from pitfall_lab.observe.other_threads import Elsewhere
from pitfall_lab.observe.spans import SourceMap
from pitfall_lab.shadow import Engine
from pitfall_lab.verify.records import Records
from pitfall_lab.verify.writer import Writer


@dataclass(slots=True)
class World:
    """One lockstep's common ground. ``limit`` is the number of elements above which a tensor is followed without its numbers."""

    sources: SourceMap
    lines: LineWatch
    limit: int
    engine: Engine
    elsewhere: Elsewhere
    records: Records = field(default_factory=Records)
    writer: Writer = field(default_factory=Writer)
    namespace: Namespace = field(default_factory=Namespace)
    bumps: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """For each counter's label, when it was raised and to what: (step, version)."""
    writes: dict[str, list[int]] = field(default_factory=dict)
    """For each storage's label, the steps that wrote it."""
    writes_unseen: bool = False
    """Whether the program may count writes where nothing tells of them: then a version that has moved is taken over."""

    def __post_init__(self) -> None:
        self.records.graph, self.records.rows = self.engine.graph, self.writer.rows
