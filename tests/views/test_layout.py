"""Boxes never overlap, edges point down, and the same graph is drawn the same way, with graphviz and without."""

import os
import shutil
import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pitfall_lab.views import graph
from pitfall_lab.views.graph import layout as layout_module
from pitfall_lab.views.graph.layout import lay_out
from pitfall_lab.views.graph.ways import ROOM, STEP, label_place, label_places, spread
from tests.views import build


def processor() -> float:
    """Seconds of processor time that this process and its children have had: others may keep the machine busy."""
    return sum(os.times()[:4])


@st.composite
def graphs(draw):
    count = draw(st.integers(1, 24))
    sizes = [(draw(st.floats(40, 260)), draw(st.floats(30, 110))) for _ in range(count)]
    pairs = draw(st.sets(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=40))
    return sizes, sorted((a, b) for a, b in pairs if a < b)


def overlaps(layout, sizes):
    boxes = [(x - w / 2, y - h / 2, x + w / 2, y + h / 2) for (x, y), (w, h) in zip(layout.centres, sizes, strict=True)]
    return [
        (i, j)
        for i, a in enumerate(boxes)
        for j, b in enumerate(boxes[:i])
        if a[0] < b[2] - 0.6 and b[0] < a[2] - 0.6 and a[1] < b[3] - 0.6 and b[1] < a[3] - 0.6
    ]


def check(layout, sizes, edges):
    assert overlaps(layout, sizes) == []
    for a, b in edges:
        assert layout.centres[a][1] + sizes[a][1] / 2 < layout.centres[b][1] - sizes[b][1] / 2
    for (x, y), (w, h) in zip(layout.centres, sizes, strict=True):
        assert x - w / 2 >= 0
        assert x + w / 2 <= layout.width + 0.6
        assert y - h / 2 >= 0
        assert y + h / 2 <= layout.height + 0.6


@given(graphs())
@settings(max_examples=120, deadline=None)
def test_own_layers_keep_boxes_apart_and_edges_down(case):
    sizes, edges = case
    check(lay_out(sizes, edges, dot=False), sizes, edges)


@pytest.mark.parametrize("name", ["overwritten", "array", "broadcasting", "chain"])
@pytest.mark.parametrize("dot", [True, False])
def test_both_layouts_keep_boxes_apart_and_edges_down(name, dot):
    scene = graph.project(build.PROGRAMS[name](), dot=dot)
    place = {card["id"]: i for i, card in enumerate(scene["nodes"])}
    sizes = [(c["w"], c["h"]) for c in scene["nodes"]]
    centres = [(c["x"] + c["w"] / 2, c["y"] + c["h"] / 2) for c in scene["nodes"]]
    edges = [(place[e["from"]], place[e["to"]]) for e in scene["edges"]]
    check(layout_module.Layout("", centres, [], scene["width"] + 1, scene["height"] + 1), sizes, edges)
    assert scene["by"] == ("dot" if dot and shutil.which("dot") else "own")


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_the_same_graph_gets_the_same_places(case):
    assert lay_out(*case, dot=False) == lay_out(*case, dot=False)


@given(graphs())
@settings(max_examples=60, deadline=None)
def test_edges_start_and_end_on_their_boxes(case):
    sizes, edges = case
    placed = lay_out(sizes, edges, dot=False)
    for (a, b), route in zip(edges, spread(placed, sizes, edges), strict=True):
        for box, (x, y), side in ((a, route[0], 1), (b, route[-1], -1)):
            (cx, cy), (w, h) = placed.centres[box], sizes[box]
            assert abs(x - cx) <= w / 2
            assert abs(y - (cy + side * h / 2)) < 1
        assert label_place(route)[1] > route[0][1]


def test_labels_that_would_lie_over_each_other_stand_on_different_heights():
    routes = [[(x, 0.0), (x, 20.0), (x, 40.0), (x, 60.0)] for x in (0.0, 20.0, 40.0, 120.0)]
    places = label_places(routes)
    for i, (x, y) in enumerate(places):
        for other, height in places[i + 1 :]:
            assert abs(x - other) >= ROOM or abs(y - height) >= STEP - 3
    assert places[3] == label_place(routes[3]), "it stands alone"


def test_without_the_dot_program_the_own_layout_answers(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    assert graph.project(build.overwritten())["by"] == "own"


def test_a_dot_that_hangs_or_breaks_is_not_waited_for(monkeypatch, tmp_path):
    slow = tmp_path / "dot"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _: str(slow))
    monkeypatch.setattr(layout_module, "DOT_SECONDS", 0.3)
    started = time.monotonic()
    assert graph.project(build.overwritten())["by"] == "own"
    assert time.monotonic() - started < 15
    slow.write_text("#!/bin/sh\necho nonsense; exit 0\n")
    assert graph.project(build.overwritten())["by"] == "own"


def test_a_circle_from_a_damaged_file_is_drawn_all_the_same():
    p = build.Program()
    x = p.tensor("x", [1], cells=[1.0], grad=True)
    p.tensor("y", [1], cells=[1.0], operands=(x,), node="A")
    trace = p.trace()
    event = trace.events[1]
    looped = [build.Effect("nodes.n1.next", ["n2", "n1"]), build.Effect("nodes.n2.next", ["n1", "n77"])]
    broken = build.Event(
        event.step,
        event.kind,
        event.op,
        event.span,
        operands=event.operands,
        results=event.results,
        effects=(*event.effects, *looped),
    )
    scene = graph.project(build.Trace(trace.sources, (trace.events[0], broken)))
    assert len(scene["nodes"]) == 3


def test_long_programs_get_the_ladder_with_few_lanes_and_folded_loops():
    ladder = graph.project(build.chain(400))["ladder"]
    assert len(ladder["rows"]) == 401
    assert ladder["lanes"] <= 3, "a lane is free again after the storage's last use"
    assert len(ladder["row_of"]) == 401
    folded = graph.project(build.loop(60))["ladder"]
    assert [row.get("times") for row in folded["rows"]] == [None, 60, None]


@pytest.mark.parametrize(("count", "seconds"), [(12, 1.0), (500, 6.0), (5000, 6.0)])
def test_the_scene_is_ready_in_time(count, seconds):
    from pitfall_lab import views

    trace = build.chain(count, wide=True)
    started = processor()
    scene = views.scene(trace)
    assert processor() - started < seconds
    assert bool(scene["graph"].get("ladder")) == (count > 80)


def test_own_layers_of_five_hundred_boxes_take_less_than_two_seconds():
    scene = None
    started = processor()
    scene = graph.project(build.chain(480, wide=True), dot=False)
    assert processor() - started < 2
    tops = [card["y"] for card in sorted(scene["nodes"], key=lambda c: c["y"])]
    assert all(a <= b for a, b in pairwise(tops))
