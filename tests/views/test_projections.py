"""What each picture says about the hand-made programs: facts, not whole dumps."""

import json

import pytest

from pitfall_lab import handout, record, rules, views
from pitfall_lab.trace import Trace
from pitfall_lab.views import broadcast, code, graph, memory, storage, versions
from pitfall_lab.views.folds import folds
from pitfall_lab.views.label_history import gather
from pitfall_lab.views.stories import stories
from tests.views import build


@pytest.mark.parametrize("name", build.PROGRAMS)
def test_every_projection_is_plain_json_and_the_same_twice(name):
    first, second = (json.dumps(views.scene(build.PROGRAMS[name]()), allow_nan=False) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("name", build.PROGRAMS)
def test_no_view_fails_on_any_program(name):
    scene = views.scene(build.PROGRAMS[name]())
    assert set(views.names()) >= {"broadcast", "code", "graph", "storage", "versions"}
    assert [view for view in views.names() if "failed" in scene[view]] == []


def test_absurd_sizes_cost_no_time_and_no_view():
    p = build.Program()
    kept = {"shown": [[0, 1.0], [10**30, 2.0]]}
    x = p.tensor("x", [10**9] * 3, cells=kept, stride=[10**18, 10**9, 1], grad=True)
    place = {"storage": "S1", "counter": "C1", "stride": [0, -(10**12)], "offset": 10**20}
    p.tensor("y", [1, 10**9], code="x[0]", op="torch.select", operands=(x,), node="SelectBackward0", **place)
    trace = p.trace()
    scene = views.scene(trace)
    assert [view for view in views.names() if "failed" in scene[view]] == []
    assert len(json.dumps(scene)) < 20_000
    assert "could not be drawn" not in views.page(trace)
    for draw in (handout.memory, handout.storage, handout.versions, handout.broadcast):
        draw(trace).draw_without_rendering()


def test_a_view_that_fails_leaves_the_others_alone(monkeypatch):
    monkeypatch.setattr(storage, "project", lambda *_: 1 / 0)
    scene = views.scene(build.overwritten())
    assert scene["storage"] == {"failed": "ZeroDivisionError"}
    assert scene["graph"]["nodes"]


def test_the_graph_has_torchs_nodes_leaves_and_saved_tensors():
    scene = graph.project(build.overwritten())
    by_id = {card["id"]: card for card in scene["nodes"]}
    assert by_id["t1"]["kind"] == "leaf"
    assert by_id["t1"]["title"] == "x"
    assert by_id["n1"]["title"] == "SigmoidBackward0"
    assert {(e["from"], e["to"]) for e in scene["edges"]} == {("t1", "n2"), ("n2", "n1"), ("n1", "n3")}
    [notch] = by_id["n1"]["saved"]
    assert (notch["name"], notch["version"], notch["stale"], notch["broken"]) == ("result", 0, 2, 4)
    assert by_id["n1"]["raised"] == 4


def test_a_silently_wrong_gradient_marks_its_notch_and_nothing_else():
    scene = graph.project(build.array())
    wrong = [
        (card["id"], notch["name"]) for card in scene["nodes"] for notch in card["saved"] if notch["wrong"] is not None
    ]
    assert wrong == [("n1", "other")]


def test_later_turns_of_a_loop_are_one_card_and_no_edge_is_lost():
    program = build.Program()
    h = program.tensor("x", [2], cells=[1.0, 2.0], grad=True)
    program.lines += ["for _ in range(20):", "    h = h * 2"]
    for _ in range(20):
        h = program.tensor(
            None, [2], cells=[1.0, 2.0], code="h * 2", op="torch.Tensor.mul", operands=(h,), node="MulBackward0", line=3
        )
    program.tensor(
        "y", [2], cells=[1.0, 2.0], code="h + 1", op="torch.Tensor.add", operands=(h,), node="AddBackward0", line=4
    )
    scene = graph.project(program.trace())
    folded = scene["folded"]
    (head,) = [card for card in folded["nodes"] if card["kind"] == "fold"]
    kept = {card["id"] for card in folded["nodes"]}
    assert head["title"] == "⟳ ×19"
    assert len(kept) - 1 + head["count"] == len(scene["nodes"])
    crossing = {(e["from"] in kept, e["to"] in kept) for e in scene["edges"]} - {(False, False), (True, True)}
    ends = {(e["from"] != head["id"], e["to"] != head["id"]) for e in folded["edges"]} - {(True, True)}
    assert ends == crossing


def test_a_loop_in_which_torch_refused_something_is_not_folded():
    assert "folded" not in graph.project(build.overwritten())


def test_using_an_input_twice_is_one_edge_that_says_so():
    p = build.Program()
    x = p.tensor("x", [2], cells=[1.0, 2.0], grad=True)
    p.tensor("y", [2], cells=[1.0, 4.0], code="x * x", op="torch.Tensor.mul", operands=(x, x), node="MulBackward0")
    assert [e["times"] for e in graph.project(p.trace())["edges"] if e["to"] == "n1"] == [2]


def test_brushes_show_offset_stride_gaps_and_which_index_reads_a_cell():
    [store] = storage.project(build.views())["storages"]
    cover = {brush["tensor"]: brush["history"][-1]["cover"] for brush in store["brushes"]}
    assert cover["t1"] == [["0,0"], ["0,1"], ["0,2"], ["1,0"], ["1,1"], ["1,2"]]
    assert cover["t2"] == [[], ["0"], [], [], ["1"], []]
    assert cover["t3"] == [["0,0"], ["1,0"], ["2,0"], ["0,1"], ["1,1"], ["2,1"]]
    assert cover["t4"] == [[], ["0,0", "0,1"], [], [], ["1,0", "1,1"], []], (
        "an expanded dimension reads one cell by several indices"
    )


def test_beside_an_array_a_tensor_begins_at_a_cell_and_not_at_an_offset():
    array = "a = np.zeros(3)\nw = torch.from_numpy(a)\nt = torch.from_numpy(a[1:])\n"
    trace = record(f"import numpy as np, torch\n{array}u = torch.zeros(3)[1:]\n")
    stores = storage.project(trace)["storages"]
    said = {
        storage.begins(store, brush["history"][-1]["offset"])
        for store in stores
        for brush in store["brushes"]
        if brush["history"][-1]["shape"] == [2]
    }
    assert said == {"from cell 1", "offset 1"}
    [mixed] = [store for store in stores if any(brush["kind"] == "array" for brush in store["brushes"])]
    assert storage.begins(mixed, 1, zh=True) == "从单元 1 起"


def test_written_cells_are_what_the_writer_covers_or_what_an_indexed_write_changed():
    [store] = storage.project(build.views())["storages"]
    assert [(w["step"], w["cells"]) for w in store["writes"]] == [(5, [1, 4]), (6, [0])]


def test_the_same_storage_under_another_counter_is_told():
    [store] = storage.project(build.views())["storages"]
    assert store["counters"] == ["C1", "C2"]
    tracks = {t["counter"]: t for t in versions.project(build.views())["tracks"]}
    assert tracks["C1"]["shared"] == ["C2"]
    assert tracks["C1"]["silent"] == [6], "a write through .data moves only its own counter"
    assert tracks["C2"]["silent"] == [5]


def test_abbreviated_cells_are_honoured():
    p = build.Program()
    p.tensor("big", [1000], cells={"count": 1000, "shown": [[0, 1.0], [1, 2.0], [998, 3.0], [999, 4.0]]})
    [store] = storage.project(p.trace())["storages"]
    assert store["columns"] == [0, 1, 998, 999]
    assert store["values"][0]["cells"] == [1.0, 2.0, 3.0, 4.0]
    assert store["brushes"][0]["history"][0]["cover"] == [["0"], ["1"], ["998"], ["999"]]


def test_a_huge_strided_tensor_is_solved_without_walking_it():
    p = build.Program()
    big = p.tensor("big", [10**6, 10**6], cells=None)
    p.tensor(
        "turned",
        [10**6, 10**6],
        storage="S1",
        counter="C1",
        stride=[1, 10**6],
        operands=(big,),
        op="torch.Tensor.T.__get__",
    )
    [store] = storage.project(p.trace())["storages"]
    assert store["columns"] == [0, 1, 2, 3, 4, 5, 10**12 - 2, 10**12 - 1]
    assert store["brushes"][1]["history"][0]["cover"][-1] == ["999999,999999"]
    assert store["brushes"][1]["history"][0]["cover"][1] == ["1,0"]


def test_broadcasting_aligns_from_the_right_with_stride_zero_where_it_stretches():
    add, loss, bad = broadcast.project(build.broadcasting())["cases"]
    assert add["result"]["shape"] == [3, 4]
    assert [[d["kind"] for d in o["dims"]] for o in add["operands"]] == [["real", "one"], ["missing", "real"]]
    assert [[d["stride"] for d in o["dims"]] for o in add["operands"]] == [[1, 0], [0, 1]]
    assert [o["summed"] for o in add["operands"]] == [[1], [0]]
    assert loss["result"]["shape"] == [3, 3]
    assert loss["crossed"]
    assert loss["wasteful"], "(N, 1) against (N,) in a loss is N × N"
    assert bad["clash"] == [0]


def test_a_broadcast_in_a_loop_is_one_case_with_all_its_steps():
    p = build.Program()
    a, b = p.tensor("a", [3, 1], cells=[1.0] * 3), p.tensor("b", [4], cells=[1.0] * 4)
    for _ in range(5):
        p.tensor("c", [3, 4], cells=[2.0] * 12, code="a + b", op="torch.Tensor.add", operands=(a, b), line=3)
    [case] = broadcast.project(p.trace())["cases"]
    assert case["steps"] == [2, 3, 4, 5, 6]


def test_a_matrix_product_and_equal_shapes_are_no_broadcast():
    p = build.Program()
    a, b = p.tensor("a", [2, 2], cells=[1.0] * 4), p.tensor("b", [2], cells=[1.0] * 2)
    p.tensor("c", [2], cells=[2.0] * 2, code="a @ b", op="torch.Tensor.__matmul__", operands=(a, b))
    p.tensor("d", [2], cells=[2.0] * 2, code="b + b", op="torch.Tensor.add", operands=(b, b))
    assert broadcast.project(p.trace())["cases"] == []


def test_an_in_place_write_cannot_make_its_tensor_larger():
    p = build.Program()
    a, b = p.tensor("a", [3], cells=[1.0] * 3), p.tensor("b", [2, 3], cells=[1.0] * 6)
    failure = build.Failure(
        "RuntimeError", "output with shape [3] doesn't match the broadcast shape [2, 3]", "shape", 2
    )
    p.event("a.add_(b)", "torch.Tensor.add_", operands=(build.Operand(a), build.Operand(b)), error=failure)
    [case] = broadcast.project(p.trace())["cases"]
    assert case["clash"] == [0]


def test_the_track_tells_pin_bump_and_what_broke():
    tracks = {t["counter"]: t for t in versions.project(build.overwritten())["tracks"]}
    assert tracks["C2"]["bumps"] == [{"step": 2, "from": 0, "to": 1}]
    [pin] = tracks["C2"]["pins"]
    assert (pin["node"], pin["slot"], pin["version"], pin["step"], pin["stale"], pin["broken"]) == (
        "n1",
        "result",
        0,
        1,
        2,
        4,
    )


def test_a_silent_break_runs_from_the_pin_to_the_write():
    tracks = {t["counter"]: t for t in versions.project(build.array())["tracks"]}
    [track] = [t for t in tracks.values() if t["storage"] == "S1"]
    [pin] = track["pins"]
    assert (pin["changed"], pin["wrong"], pin["stale"]) == (4, 8, None)
    assert track["silent"] == [4]


def test_neighbouring_pins_do_not_run_into_each_other():
    p = build.Program()
    x = p.tensor("x", [2], cells=[1.0, 2.0], grad=True)
    for i in range(4):
        p.tensor(
            f"y{i}",
            [2],
            cells=[1.0, 4.0],
            code="x.exp()",
            op="torch.exp",
            operands=(x,),
            node="ExpBackward0",
            saved=(("self", x),),
        )
    pins = next(t["pins"] for t in versions.project(p.trace())["tracks"] if t["counter"] == "C1")
    width = 0.62 * 12 * len("n2.self v0") / versions.COLUMN
    placed = [(pin["level"], pin["step"]) for pin in pins]
    assert all(a[0] != b[0] or abs(a[1] - b[1]) >= width for i, a in enumerate(placed) for b in placed[i + 1 :])


def test_marks_stand_at_saved_changed_and_raised():
    marks = {m["kind"]: (m["line"], m["step"]) for m in code.project(build.overwritten())["marks"]}
    assert marks == {"saved": (2, 1), "written": (3, 2), "raised": (5, 4)}
    assert {m["kind"] for m in code.project(build.array())["marks"]} == {"saved", "silent", "wrong"}


def test_a_loop_folds_to_its_first_turn():
    assert folds(build.loop(60)) == [{"first": 1, "length": 2, "times": 60}]
    assert folds(build.overwritten()) == []


def test_the_story_is_three_to_six_steps_with_saved_changed_and_raised():
    scene = views.scene(build.overwritten())
    assert {1, 2, 4} <= set(scene["story"])
    assert scene["jumps"] == {"saved": [1], "changed": [2], "raised": [4]}
    assert all(3 <= len(views.scene(build.PROGRAMS[n]())["story"]) <= 6 for n in build.PROGRAMS if n != "empty")


def test_hues_go_to_what_matters_and_never_to_more_than_six():
    scene = views.scene(build.chain(30))
    assert len(scene["palette"]) == 6
    assert "S2" in views.scene(build.overwritten())["palette"]


def test_findings_arrive_in_both_languages_with_their_steps():
    class Related:
        step = 2

    class Finding:
        step, related = 4, (Related(),)

        def to_dict(self, language):
            return {
                "rule": "PL1",
                "message": {"en": "bad", "zh": "不好"}[language],
                "related": [{"role": "changed", "line": 3, "message": language}],
                "fixes": [],
            }

    [told] = views.scene(build.overwritten(), [Finding()])["stories"]
    assert told["message"] == {"en": "bad", "zh": "不好"}
    [beat] = told["beats"]
    assert (beat["role"], beat["step"], beat["line"]) == ("changed", 2, 3)
    assert beat["text"] == {"en": "en", "zh": "zh"}


def test_a_story_finds_the_steps_of_its_lines_and_shows_an_edit_as_rows():
    trace = build.overwritten()
    lines = trace.sources[0].text.splitlines()
    finding = {
        "related": [
            {"role": role, "line": trace.events[step].span.line} for role, step in (("backward", 4), ("saved", 1))
        ],
        "fixes": [{"title": "try", "edits": [{"line": 2, "end_line": 3, "text": f"{lines[1]}\nnew\n"}]}],
    }
    [told] = stories(gather(trace), [finding])
    assert [(beat["role"], beat["step"], beat["code"]) for beat in told["beats"]] == [
        (role, step, lines[trace.events[step].span.line - 1].strip()) for role, step in (("saved", 1), ("raised", 4))
    ]
    assert told["fixes"][0]["rows"] == [(" ", lines[1]), ("−", lines[2]), ("+", "new")]
    [own] = stories(gather(trace), [])
    assert [beat["role"] for beat in own["beats"]] == ["saved", "changed", "raised"]


def test_what_is_not_sent_to_the_browser_is_counted():
    scene = views.scene(build.chain(900))
    assert len(scene["storage"]["storages"]) == storage.SENT
    assert scene["storage"]["left_out"] == 901 - storage.SENT
    assert scene["versions"]["left_out"] == 901 - versions.SENT
    assert sum(s["main"] for s in scene["storage"]["storages"]) == storage.MAIN


def test_an_empty_trace_has_empty_pictures():
    scene = views.scene(Trace())
    assert (
        scene["graph"]["nodes"] == scene["storage"]["storages"] == scene["versions"]["tracks"] == scene["events"] == []
    )


def test_what_a_checkpoint_computes_again_is_memory_in_every_block():
    """Torch's profiler sees 9224 and 14344 bytes, without the states of the random
    numbers that each checkpoint keeps.
    """
    program = """import torch
from torch.utils.checkpoint import checkpoint

def block(t):
    for _ in range({rounds}):
        t = torch.sigmoid(t)
    return t

out = x = torch.ones(256, requires_grad=True)
for _ in range({blocks}):
    out = checkpoint(block, out, use_reentrant=False)
out.sum().backward()
"""
    peaks = {}
    for blocks, rounds in ((2, 6), (1, 12)):
        scene = memory.project(record(program.format(blocks=blocks, rounds=rounds)))
        assert scene["peak"] is not None
        assert all(band["died"] is None or band["born"] <= band["died"] for band in scene["bands"])
        peaks[blocks] = scene["peak"]["bytes"]
    assert peaks[2] == pytest.approx(9224, rel=0.12)
    assert peaks[1] == pytest.approx(14344, rel=0.12)


def test_a_backward_that_rightly_leaves_a_frozen_weight_out_is_not_marked_as_wrong():
    trace = record(
        "import torch\nw, v = (torch.ones(1, requires_grad=True) for _ in range(2))\n"
        "optimizer = torch.optim.SGD([w, v], lr=0.5)\n(w * v).sum().backward()\noptimizer.step()\n"
        "w.requires_grad_(False)\n(w * v).sum().backward()\noptimizer.step()\n"
    )
    [finding] = [one for one in rules.find(trace) if one.rule == "PL607"]
    [told] = stories(gather(trace), [finding.to_dict()])[:1]
    assert [(beat["title"]["en"], beat["role"]) for beat in told["beats"] if beat["line"] == 7] == [
        ("left out", "other")
    ]


def test_the_writing_of_a_file_comes_at_its_moment_also_where_its_line_is_above():
    trace = record(
        "import io\nimport torch\ndef write():\n    torch.save(best, io.BytesIO())\n"
        "net = torch.nn.Linear(2, 1)\nopt = torch.optim.SGD(net.parameters(), lr=0.1)\nlowest = 1e9\n"
        "for _ in range(3):\n    loss = net(torch.ones(2)).square().sum()\n    if loss < lowest:\n"
        "        lowest, best = loss.item(), net.state_dict()\n    loss.backward()\n    opt.step()\nwrite()\n"
    )
    [finding] = [one for one in rules.find(trace) if one.rule == "PL703"]
    [told] = stories(gather(trace), [finding.to_dict()])[:1]
    assert [beat["line"] for beat in told["beats"]] == [11, 13, 4]
