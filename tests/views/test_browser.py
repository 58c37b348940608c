"""The pictures in a real Chromium: they follow step and focus, stay where they are, and
work at 360 px and without scripts.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest

import pitfall_lab
from pitfall_lab import rules, views
from pitfall_lab.rules.kit.expected_marks import plain
from pitfall_lab.verify import trace_program
from pitfall_lab.views.compare import compare
from pitfall_lab.views.label_history import gather
from pitfall_lab.widgets.explorer import opening_step
from tests.frontend.stage import state_of
from tests.views import build
from tests.views.test_pictures import CUT as GRAPH_CUT
from tests.views.twelve import recorded, shown

WHERE = """root => [...root.querySelectorAll('.v-card, .v-title, .v-cell, .v-tick, .v-pin, .v-band')].map((one) => {
  const box = one.getBoundingClientRect(), frame = one.closest('.plv'), edge = frame.getBoundingClientRect();
  return [box.x - edge.x + frame.scrollLeft, box.y - edge.y + frame.scrollTop].map(Math.round);
})"""


# Controls and pictures without a name, and boxes that scroll but cannot be reached by keyboard.
NAMELESS = """root => [...root.querySelectorAll('.plv, .plv button, .plv [role=button], .plv [role=grid], .plv svg')].filter((one) => {
  const named = one.getAttribute('aria-label') || one.getAttribute('aria-hidden') || one.textContent.trim();
  const scrolls = one.matches('.plv') && !(one.hasAttribute('tabindex') && one.getAttribute('aria-label'));
  return !named || scrolls;
}).map((one) => one.outerHTML.slice(0, 120))"""  # noqa: E501


def at(stage, trace, step, focus="", tab="", **more):
    root = stage.show(state_of(trace, step=step, focus=focus, **more))
    if tab:
        opened(root, tab)
    return root


def opened(root, tab):
    """The panel behind a tab."""
    root.locator(f'[data-tab="{tab}"]').click()
    return root.locator(f".pl-p-{tab}")


def step(stage, root, key="ArrowRight"):
    root.locator("input[type=range]").focus()
    stage.page.keyboard.press(key)


def test_the_graph_shows_saved_stale_and_raised_by_step(stage):
    root = at(stage, build.overwritten(), 1, tab="graph")
    ahead = root.locator(".v-card", has_text="SumBackward0")
    assert ahead.evaluate("one => getComputedStyle(one).opacity") == "0.45", (
        "in the finding's part, what is to come is faint"
    )
    root.locator("[data-key=all]").click()
    sigmoid = root.locator(".v-card", has_text="SigmoidBackward0")
    strike = sigmoid.locator(".v-notch line")
    assert sigmoid.is_visible()
    assert not strike.is_visible()
    assert not root.locator(".v-card", has_text="SumBackward0").is_visible(), "what does not exist yet is not drawn"
    step(stage, root)
    assert strike.is_visible(), "the notch is struck out as soon as the counter moved on"
    assert "v-bad" not in sigmoid.get_attribute("class")
    for _ in range(2):
        step(stage, root)
    assert "v-bad" in sigmoid.get_attribute("class")
    assert sigmoid.locator("text", has_text="✕").last.is_visible()


IN_SIGHT = """(root) => {
  const frame = root.querySelector('.plv').getBoundingClientRect();
  const inside = (one) => {
    const box = one.getBoundingClientRect();
    return box.width && box.left < frame.right && box.right > frame.left && box.top < frame.bottom && box.bottom > frame.top;
  };
  const cards = [...root.querySelectorAll('.v-card')].filter((one) => getComputedStyle(one).visibility === 'visible' && inside(one));
  return [cards.map((one) => one.textContent), root.querySelector('svg.v-whole, .plv > svg').getBoundingClientRect().width];
}"""  # noqa: E501


@pytest.mark.parametrize("name", ["vae", "lstm"])
@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1920, 1080)])
def test_the_graph_opens_on_what_is_guilty_and_can_be_read(stage, name, width, height):
    root = shown(stage, recorded(name, fixes=False), width, height, "light")
    guilty = {"vae": "AddBackward0", "lstm": "MkldnnRnnLayerBackward0"}[name]
    panel = opened(root, "graph")
    stage.page.wait_for_timeout(200)
    cards, drawn = panel.evaluate(IN_SIGHT)
    assert any(guilty in text for text in cards), cards
    assert drawn >= 0.59 * float(panel.locator(".plv > svg").first.get_attribute("viewBox").split()[2]), (
        "large enough to be read"
    )
    if root.locator("[data-key=all]").count():  # where the finding's part is not the whole graph
        root.locator("[data-key=all]").click()
    stage.page.wait_for_timeout(200)
    assert panel.evaluate(IN_SIGHT)[0], "never blank"


TEXTS = """(root) => {
  const box = (one) => one.getBoundingClientRect();
  const clipped = [...root.querySelectorAll('.v-bar svg:first-child text')].filter(
    (one) => box(one).right > box(one.closest('svg')).right + 1).map((one) => one.textContent);
  const over = [...root.querySelectorAll('.v-track')].flatMap((track) => {
    const labels = [...track.querySelectorAll('.v-halo')].map(box);
    return labels.filter((a, i) => labels.some((b, j) => j > i && a.left < b.right && b.left < a.right && a.top + 3 < b.bottom
      && b.top + 3 < a.bottom));
  });
  return [clipped, over.length];
}"""  # noqa: E501


def test_versions_begin_with_the_guilty_counter_and_no_label_is_cut_or_covered(stage):
    root = shown(stage, recorded("lstm", fixes=False), 1280, 800, "light")
    panel = opened(root, "versions")
    for _ in ("its own", "all"):
        assert "state" in panel.locator(".v-bar svg text.v-b").first.text_content()
        assert panel.evaluate(TEXTS) == [[], 0]
        root.locator("[data-key=all]").click()


@pytest.mark.parametrize("name", ["overwritten", "views", "array", "broadcasting"])
def test_stepping_never_moves_anything(stage, name):
    trace = build.PROGRAMS[name]()
    stage.page.set_viewport_size({"width": 1600, "height": 1000})  # two panels beside the code
    root = at(stage, trace, -1)
    tabs = root.locator("[data-tab]:visible").evaluate_all("all => all.map((one) => one.dataset.tab)")
    for tab in [one for one in tabs if one not in ("fix", "whatif")][::2]:
        step(stage, root, "Home")
        opened(root, tab)
        before = root.evaluate(WHERE)
        for _ in trace.events:
            step(stage, root)
            assert root.evaluate(WHERE) == before


def test_a_click_on_a_node_focuses_it_and_on_a_tick_goes_to_its_step(stage):
    root = at(stage, build.overwritten(), 6, tab="graph")
    root.locator(".v-card", has_text="SigmoidBackward0").click()
    assert stage.state("focus") == "n1"
    opened(root, "versions").get_by_role("button", name="v1", exact=True).click()
    assert stage.state("step") == 2
    root.get_by_role("button", name="result v0").click()
    assert stage.state("step") == 1


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_each_view_is_driven_by_mouse_and_by_keyboard(stage, theme):
    root = stage.show(state_of(build.overwritten(), step=6, focus=""), theme=theme)
    graph = opened(root, "graph").locator(".v-card")
    graph.filter(has_text="SigmoidBackward0").click()
    assert stage.state("focus") == "n1"
    graph.filter(has_text="SumBackward0").press("Enter")
    assert stage.state("focus") not in ("", "n1")
    versions = opened(root, "versions")
    versions.get_by_role("button", name="v1", exact=True).click()
    assert stage.state("step") == 2
    versions.get_by_role("button", name="result v0").press("Enter")
    assert stage.state("step") == 1
    band = opened(root, "memory").locator(".v-band")
    root.locator("[data-key=all]").click()
    band.nth(1).press("Enter")
    assert stage.state("focus") == "S2"
    band.first.click()
    assert stage.state("focus") == "S1"
    cells = opened(root, "storage").locator(".v-block", has_text="h ·").locator(".v-cell")
    cells.nth(2).click()
    assert stage.state("focus") == "S2"
    cells.first.focus()
    stage.page.keyboard.press("ArrowRight")
    assert cells.nth(1).evaluate("one => one === one.getRootNode().activeElement")
    root.locator(".pl-line button.pl-no").last.click()
    last = stage.state("step")
    step(stage, root, "Home")
    assert stage.state("step") < last
    stage.show(state_of(build.broadcasting(), step=0, focus=""), theme=theme)
    case = opened(root, "broadcast").locator(".v-case").last.get_by_role("button").first
    case.press("Enter")
    assert stage.state("step") > 0
    step(stage, root, "Home")
    case.click()
    assert stage.state("step") > 0


def test_before_the_first_step_all_of_the_graph_is_there_and_faint(stage):
    root = at(stage, build.overwritten(), -1, tab="graph")
    root.locator("[data-key=all]").click()
    cards = root.locator(".v-card")
    assert cards.count() > 1
    assert cards.evaluate_all(
        "all => all.every((one) => one.checkVisibility() && one.querySelector('rect').getBBox().width)"
    )
    faint = "all => all.map((one) => Number(getComputedStyle(one).opacity))"
    before = cards.evaluate_all(faint)
    stage.page.evaluate("window.widgets[0].set('step', 1000)")
    assert all(one < other for one, other in zip(before, cards.evaluate_all(faint), strict=True) if other == 1)
    assert max(before) < 1


def test_an_operator_is_drawn_as_itself(stage):
    text = "import torch\npred = torch.ones(4, 1)\ny = torch.arange(4.0)\nloss = ((pred - y) ** 2).mean()\n"
    root = at(stage, pitfall_lab.record(text, "minus.py"), 2, tab="broadcast")
    assert "−" in root.locator(".pl-p-broadcast .pl-body").inner_text()
    assert "∘" not in root.locator(".pl-p-broadcast .pl-body").inner_text()


def test_the_way_from_the_loss_is_drawn_to_where_it_is_cut(stage):
    trace = pitfall_lab.record(GRAPH_CUT, "cut.py")
    way = stage.show(state_of(trace, rules.find(trace), step=0)).locator(".pl-way")
    way.locator(".pl-cut").wait_for()
    assert way.locator(".pl-root-node").inner_text().startswith("loss")
    cut = way.locator(".pl-cut").inner_text()
    assert "the graph ends here" in cut
    assert cut.endswith("encoder(x).detach()")
    assert "never reached: encoder.weight, encoder.bias" in " ".join(way.locator(".pl-lost").inner_text().split())


def test_dragging_over_the_versions_scrubs(stage):
    root = at(stage, build.overwritten(), 0, tab="versions")
    root.locator("[data-key=all]").click()
    chart = root.locator(".v-bar svg").last
    chart.scroll_into_view_if_needed()
    chart.evaluate("one => { one.closest('.plv').scrollLeft = 0; }")
    box = chart.bounding_box()
    stage.page.mouse.move(box["x"] + 60, box["y"] + 5)
    stage.page.mouse.down()
    stage.page.mouse.move(box["x"] + 60 + 3 * 44, box["y"] + 5, steps=4)
    stage.page.mouse.up()
    assert stage.state("step") == 3


def test_memory_says_what_is_alive_what_keeps_it_and_where_the_peak_is(stage):
    trace = build.overwritten()
    root = at(stage, trace, 0, tab="memory")
    peak = views.scene(trace)["memory"]["peak"]["step"]
    root.locator("[data-key=all]").click()
    assert root.locator(".v-alive li").all_inner_texts() == ["12 B\nx"]
    root.get_by_role("button", name="peak").click()
    assert stage.state("step") == peak
    assert any("h" in text and "SigmoidBackward0" in text for text in root.locator(".v-alive li").all_inner_texts())
    root.locator(".v-band").nth(1).press("Enter")
    assert stage.state("focus") == "S2"
    box = root.locator(".v-memory").bounding_box()
    stage.page.mouse.click(box["x"] + 3, box["y"] + 3)
    assert stage.state("step") == 0


def test_a_change_is_asked_for_by_id_compared_and_opened(stage):
    before, after = build.overwritten(), build.views()
    state = state_of(before, step=0)
    scene = {**views.scene(before), "changes": [{"id": "fix-1", "title": {"en": "Try `<b>`", "zh": "试"}}]}
    answer = [{"compared": compare(before, after)}, after.to_json(), json.dumps(views.scene(after))]
    root = stage.show(
        {**state, "_scene": json.dumps(scene), "answers": {"fix-1": answer, "fix-2": [{"failed": "no time"}]}}
    )
    opened(root, "whatif")
    chip = root.get_by_role("button", name="Try <b>")
    chip.press("Enter")
    root.get_by_text("The runs differ from step").wait_for()
    assert chip.evaluate("one => one.getRootNode().activeElement === one")
    assert [head.inner_text() for head in root.locator(".pl-sides h3").all()] == ["Before", "After"]
    root.get_by_role("button", name="open the changed program").click()
    assert root.locator(".pl-count").inner_text().endswith(f"/ {len(after.events)}")
    assert stage.state("step") == 0
    root.get_by_role("button", name="back to the program").click()
    opened(root, "whatif").get_by_role("button", name="Try <b>").wait_for()
    assert root.locator(".pl-count").inner_text() == f"1 / {len(before.events)}"


def test_a_large_graph_is_zoomed_searched_and_taken_along(stage):
    stage.page.set_viewport_size({"width": 1280, "height": 900})
    root = at(stage, build.chain(20, wide=True), 5)
    panel = opened(root, "graph")
    svg = panel.locator(".plv > svg")
    width = float(svg.get_attribute("width"))
    panel.get_by_role("button", name="larger").click()
    assert float(svg.get_attribute("width")) == pytest.approx(1.25 * width)
    assert panel.locator(".v-map").is_visible()
    panel.get_by_role("button", name="the whole graph").click()
    assert svg.evaluate("one => one.clientHeight <= one.parentElement.clientHeight + 1")
    assert panel.locator(".v-map").is_hidden()
    search = panel.get_by_role("searchbox")
    search.press_sequentially("ate")
    assert search.evaluate("one => one.value") == "ate"  # no letter was a key of the Explorer's
    found = int(panel.get_by_role("status").inner_text())
    assert 0 < found == panel.locator(".v-found").count()
    search.press("Enter")
    assert panel.get_by_role("status").inner_text() == f"1 / {found}"
    assert stage.state("focus").startswith(("n", "t"))
    for kind, start in (("SVG", b"<svg"), ("PNG", b"\x89PNG")):
        with stage.page.expect_download() as download:
            panel.get_by_role("button", name=f"as {kind}").click()
        assert Path(download.value.path()).read_bytes().startswith(start)


SEEN_WHOLE = """(box) => {
  const [frame, cards] = [box.getBoundingClientRect(), [...box.querySelectorAll('.v-card')].map((one) => one.getBoundingClientRect())];
  const out = cards.filter((one) => one.left < frame.left || one.right > frame.right + 1 || one.top < frame.top
    || one.bottom > frame.bottom + 1);
  return [box.clientWidth, box.clientHeight, out.length];
}"""  # noqa: E501


@pytest.mark.parametrize("name", ["overwritten", "chain"])
def test_on_the_whole_screen_a_view_fills_the_window_and_is_fitted_again(stage, name):
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    trace = build.overwritten() if name == "overwritten" else build.chain(4)
    root = stage.show(state_of(trace, rules.find(trace), step=len(trace.events) - 1))
    panel = opened(root, "graph")
    drawn = panel.locator(".plv > svg")
    large = root.get_by_role("button", name="fill the screen")
    before = panel.locator(".plv").evaluate(SEEN_WHOLE)
    zoom = drawn.evaluate("one => one.clientHeight / one.viewBox.baseVal.height")
    assert before[0] < 700
    large.click()
    stage.page.wait_for_function("document.fullscreenElement")
    stage.page.wait_for_timeout(150)
    width, height, out = panel.locator(".plv").evaluate(SEEN_WHOLE)
    assert width >= 1000
    assert height >= 550
    assert out == 0, "all of it is in sight"
    now = drawn.evaluate("one => one.clientHeight / one.viewBox.baseVal.height")
    assert before[2] or now > 1.2 * zoom, "which it was not before, or it was smaller"
    assert root.evaluate("one => one.scrollHeight <= one.clientHeight"), "nothing of it is below the edge"
    assert large.get_attribute("aria-pressed") == "true"
    root.get_by_role("tab", name="Code").click()
    assert root.locator(".pl-line").first.is_visible(), "the code comes back beside it"
    assert panel.locator(".plv").is_visible()
    opened(root, "graph")
    large.click()
    stage.page.wait_for_function("!document.fullscreenElement")
    stage.page.wait_for_timeout(150)
    assert panel.locator(".plv").evaluate(SEEN_WHOLE) == before, "and all is as it was"


def test_the_saver_and_the_writer_are_in_the_frame_together(stage):
    root = shown(stage, recorded("seq2seq", fixes=False), 1280, 800, "light")
    panel = opened(root, "graph")
    stage.page.wait_for_timeout(200)
    assert panel.locator(".v-card", has_text="AddmmBackward0").count() == 1, "the one that saved, not its neighbours"
    assert panel.locator(".v-card", has_text="CopySlices").count() == 1, "what the write made"
    assert panel.locator(".plv").evaluate(SEEN_WHOLE)[2] == 0


def test_storage_is_a_grid_whose_cells_say_who_reads_and_who_wrote_them(stage):
    root = at(stage, build.views(), 5, tab="storage")
    grid = root.get_by_role("grid")
    assert grid.get_by_role("columnheader").all_inner_texts() == ["cell", "0", "1", "2", "3", "4", "5"]
    cell = grid.locator(".v-cell").nth(1)
    assert cell.inner_text() == "11."
    assert "v-written" in cell.get_attribute("class")
    cell.click()
    detail = root.locator(".v-detail").first
    assert "read by m[0,1], column[0], turned[1,0], wide[0,0], wide[0,1], raw[0,1]" in detail.inner_text()
    detail.get_by_role("button", name="line 6").click()
    assert stage.state("step") == 5
    grid.locator(".v-cell").nth(4).hover()
    assert "read by" in detail.inner_text()
    assert "m[1,1]" in detail.inner_text(), "to point at a cell is enough"
    root.locator(".pl-head").hover()


def test_arrow_keys_walk_the_grid_and_do_not_step(stage):
    root = at(stage, build.views(), 5, tab="storage")
    root.locator(".v-cell").first.focus()
    stage.page.keyboard.press("ArrowRight")
    stage.page.keyboard.press("ArrowDown")
    assert (
        stage.page.evaluate("() => document.querySelector('.explorer').shadowRoot.activeElement.textContent") == "0,1"
    )
    assert stage.state("step") == 5


def test_the_same_storage_under_another_counter_has_a_double_border(stage):
    root = at(stage, build.views(), 6, tab="storage")
    assert root.locator(".v-badge.v-double").all_inner_texts() == ["v1"]
    at_array = at(stage, build.array(), 4, tab="storage")
    assert at_array.locator(".v-badge.v-array").all_inner_texts() == ["NumPy"]


def test_broadcast_says_stride_zero_first_and_what_backward_summed_after(stage):
    p = build.Program()
    a = p.tensor("a", [3, 1], cells=[1.0, 2.0, 3.0], grad=True)
    b = p.tensor("b", [4], cells=[1.0] * 4, grad=True)
    p.tensor("c", [3, 4], cells=[2.0] * 12, code="a + b", op="torch.Tensor.add", operands=(a, b), node="AddBackward0")
    p.event("c.sum().backward()", "torch.Tensor.backward", operands=(build.Operand("t3"),))
    p.node("n1", "AddBackward0", [3, 4], 3)
    root = at(stage, p.trace(), 2, tab="broadcast")
    case = root.locator(".v-case")
    assert "stride 0 in dim 1" in case.inner_text()
    for _ in range(2):
        step(stage, root)
    assert "backward summed dim 1 to (3, 1)" in case.inner_text()
    case.locator(".v-mini").last.locator("span").nth(5).hover()
    assert case.locator(".v-mini").first.locator(".v-hit").count() == 2, (
        "the result cell lights its ghost and the real cell behind it"
    )


BATCH = """import torch
torch.manual_seed(0)
x, y = torch.randn(64, 3), torch.randn(64)
w = torch.randn(3, 1, requires_grad=True)
pred = x @ w
loss = ((pred - y) ** 2).mean()
loss.backward()
"""


@pytest.fixture(scope="module")
def batch():
    return trace_program(BATCH)


def test_of_a_large_table_the_ends_have_their_numbers_and_all_of_it_is_in_sight(stage, batch):
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    root = stage.show(state_of(batch, rules.find(batch), step=len(batch.events) - 1))
    panel = opened(root, "broadcast")
    [case] = views.scene(batch)["broadcast"]["cases"]
    a, b = (dict(side["ends"]) for side in case["operands"])
    made = dict(case["result"]["ends"])
    assert made[63 * 64 + 63] == pytest.approx(a[63] - b[63]), "the last of all is known"
    grids = [grid.locator("> *").all_inner_texts() for grid in panel.locator(".v-mini").all()]
    assert [len(grid) for grid in grids] == [9, 9, 9]
    for grid in grids[:2]:
        assert all(float(text) for text in grid), "no cell of an operand is blank"
    assert [text for text in grids[2] if text != "…"] == [f"{made[i]:.3g}" for i in (0, 1, 63 * 64 + 63)]
    bottom = "one => one.getBoundingClientRect().bottom"
    frame = panel.locator(".plv").evaluate(bottom)
    assert all(grid.evaluate(bottom) <= frame for grid in panel.locator(".v-mini").all()), "below no inner scroll"
    panel.locator(".v-mini").nth(2).locator("> *").nth(8).hover()
    lit = (
        panel.locator(".v-mini")
        .nth(0)
        .locator("> *")
        .evaluate_all("all => all.flatMap((one, at) => one.matches('.v-hit') ? [at] : [])")
    )
    assert lit == [6, 8], "the cell that stretches there, and the real one behind it"


@pytest.mark.parametrize("width", [760, 870, 1280])
def test_the_shapes_the_table_and_the_numbers_stand_side_by_side(stage, batch, width):
    stage.page.set_viewport_size({"width": width, "height": 680})
    root = stage.show(state_of(batch, rules.find(batch), step=5))
    boxes = [
        root.locator(f"[data-part=picture] {one}").bounding_box() for one in (".pl-shapes", ".pl-grid", ".pl-came")
    ]
    for left, right in pairwise(boxes):
        assert left["x"] + left["width"] <= right["x"]
        assert max(left["y"], right["y"]) < min(left["y"] + left["height"], right["y"] + right["height"])
    assert root.locator("[data-part=picture]").bounding_box()["height"] < 220
    assert root.evaluate("one => one.scrollWidth <= one.clientWidth")


def test_memory_opens_on_what_the_finding_is_about_in_its_colours(stage, batch):
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    root = stage.show(state_of(batch, rules.find(batch), step=5))
    panel = opened(root, "memory")
    fills = "all => all.map((one) => one.style.fill)"
    own = panel.locator(".v-band").evaluate_all(fills)
    grey = "rgb(138, 138, 138)"
    assert len(set(own)) == 3, "the two that met and the table they made"
    assert grey not in own
    assert panel.locator(".v-in-band").all_inner_texts() == ["pred - y"]
    assert panel.locator(".v-tools b").inner_text() == "16.5 KiB of the finding, 33.3 KiB live in all"
    root.locator("[data-key=all]").click()
    every = panel.locator(".v-band").evaluate_all(fills)
    assert len(every) == len(views.scene(batch)["memory"]["bands"]) > 3
    assert {*own} < {*every}
    assert every.count(grey) == len(every) - 3
    root.locator("[data-key=all]").click()
    assert panel.locator(".v-band").evaluate_all(fills) == own


def test_what_is_about_no_finding_s_memory_has_no_button_for_all(stage, batch):
    root = stage.show(state_of(batch, rules.find(batch), step=5))
    for tab, there in (("graph", 1), ("memory", 1), ("broadcast", 0)):
        opened(root, tab)
        assert root.locator("[data-key=all]").count() == there, tab
    state = state_of(batch, rules.find(batch), step=5)
    scene = json.loads(state["_scene"])
    scene["stories"][0]["graph"] = None
    whole = scene["stories"][0]["slice"]
    whole["storages"] = [store["id"] for store in scene["storage"]["storages"]]
    whole["counters"] = [track["counter"] for track in scene["versions"]["tracks"]]
    whole["steps"] = scene["versions"]["columns"]
    root = stage.show({**state, "_scene": json.dumps(scene)})
    for tab in ("graph", "storage", "memory", "versions"):
        opened(root, tab)
        assert root.locator("[data-key=all]").count() == 0, f"in {tab} it would do nothing"


def test_storage_opens_on_what_the_finding_is_about_and_all_shows_the_rest(stage, batch):
    root = stage.show(state_of(batch, rules.find(batch), step=5))
    panel = opened(root, "storage")
    assert "left out here" not in panel.inner_text(), "that is said of all memory"
    own = panel.locator(".v-title").all_inner_texts()
    assert own == [
        "pred · 64 × float32 (4 B each) · 256 B", "y · 64 × float32 (4 B each) · 256 B",
        "pred - y · 4096 × float32 (4 B each) · 16 KiB", "(pred - y) ** 2 · 4096 × float32 (4 B each) · 16 KiB",
    ]  # fmt: skip
    root.locator("[data-key=all]").click()
    more = panel.get_by_role("button", name="more storages")
    if more.count():
        more.click()
    assert {*panel.locator(".v-title").all_inner_texts()} > {*own}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_who_looks_at_what_and_which_rows_meet_are_drawn_with_what_was_meant(stage, language):
    said = {"en": ("looked at, but should not be", "meant"), "zh": ("看到了，但不该看", "本应")}[language]

    def drawn(code):
        trace = pitfall_lab.record(plain(next(rule.bad for rule in rules.RULES if rule.code == code)), "program.py")
        return stage.show(state_of(trace, rules.find(trace), step=0, language=language)).locator(".pl-picture")

    looks = drawn("PL430")
    looks.locator("td").first.wait_for()
    assert looks.locator("td.pl-used").all_inner_texts() == ["✕"] * 10
    assert looks.locator("td.pl-own").all_inner_texts() == ["●"] * 15
    assert said[0] in looks.locator("p.pl-bad").inner_text()
    assert looks.locator("tr").nth(2).locator("td.pl-used").first.get_attribute("title") == said[0]
    pairs = drawn("PL416")
    pairs.locator("td").first.wait_for()
    assert said[1] in pairs.locator("tr").first.inner_text()
    assert " ".join(pairs.locator("tr").nth(2).inner_text().split()) == "[0, 1] [0, 1] [1, 0]"
    assert pairs.locator("tr").nth(2).locator(".pl-bad, .pl-ok").count() == 2
    assert pairs.locator("tr").nth(1).locator(".pl-bad, .pl-ok").count() == 0, "the first pair is right"
    _fits(stage, pairs)
    _fits(stage, drawn("PL430"))


def _fits(stage, picture):
    """A lab's window leaves 850 px beside its open side bar: the lines of the program keep room there, too."""
    for width in (1280, 1000, 850, 730, 390):
        stage.page.set_viewport_size({"width": width, "height": 800})
        right = picture.evaluate(
            "one => Math.max(...[...one.querySelectorAll('*')].map((each) => each.getBoundingClientRect().right))"
        )
        assert right <= picture.evaluate("one => one.getBoundingClientRect().right") + 0.5
        cards = picture.locator(".pl-goto")
        for card in cards.all():
            assert card.bounding_box()["width"] >= 100, width
            assert card.evaluate("one => one.scrollWidth <= one.clientWidth + 1"), width


def test_sizes_that_do_not_meet_are_red(stage):
    root = at(stage, build.broadcasting(), 5, tab="broadcast")
    assert root.locator(".v-case").last.locator(".v-clash").all_inner_texts() == ["3", "4", "✕"]


def test_a_long_program_has_few_rows_in_the_document_and_shows_the_current_one(stage):
    root = at(stage, build.chain(400), 390, tab="graph")
    rows = root.locator(".v-rung")
    assert rows.count() <= 60
    assert "f389(x)" in root.locator(".v-rung.v-here").text_content()
    last = opened(root, "storage").locator(".v-block").last
    assert "f389(x)" in last.inner_text(), "the step's own storage is drawn although it is not among the main ones"


def test_the_first_screen_of_a_program_of_thousands_of_steps_is_that_of_a_short_one(stage):
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    trace = build.chain(2500)
    assert len(trace.events) > 2500
    root = at(stage, trace, len(trace.events) - 1)
    for part in (".pl-message", "[data-part=step]", ".pl-code", "[data-tab=graph]", "input[type=range]"):
        box = root.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 800, part
    assert "f2499(x)" in root.locator(".pl-line.pl-now-row").inner_text()
    step(stage, root, "Home")
    step(stage, root)
    assert root.locator(".pl-count").inner_text() == f"1 / {len(trace.events)}"
    opened(root, "graph")
    assert root.locator(".v-rung").count() <= 60
    assert root.evaluate("one => one.querySelectorAll('*').length") < 30_000


def test_the_overview_stands_beside_the_graph_and_covers_none_of_it(stage):
    stage.page.set_viewport_size({"width": 1280, "height": 900})
    panel = opened(at(stage, build.chain(20, wide=True), 5), "graph")
    panel.get_by_role("button", name="full size").click()
    box, overview = panel.locator(".plv").bounding_box(), panel.locator(".v-map").bounding_box()
    assert overview["x"] >= box["x"] + box["width"]
    panel.get_by_role("button", name="the whole graph").click()
    assert panel.locator(".v-map").is_hidden()
    room = panel.locator(".plv").bounding_box()["width"]
    assert room >= overview["x"] + overview["width"] - box["x"], "its room goes to the graph"


@pytest.mark.parametrize("name", build.PROGRAMS)
@pytest.mark.parametrize("width", [360, 1300])
def test_every_picture_fits_its_page_and_names_its_parts(stage, name, width):
    stage.page.set_viewport_size({"width": width, "height": 800})
    trace = build.PROGRAMS[name]()
    root = at(stage, trace, len(trace.events) - 1, "S1")
    for tab in ["code", "graph", "storage", "broadcast", "versions"]:
        if root.locator(f'[data-tab="{tab}"]:visible').count():
            opened(root, tab)
        assert stage.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert root.evaluate(NAMELESS) == []


def test_a_long_program_can_be_changed_over_to_cards_and_back(stage):
    root = at(stage, build.chain(120), 100, tab="graph")
    button = root.get_by_role("button", name="all nodes")
    button.click()
    assert root.locator(".v-card").count() == 122
    assert root.locator(".v-card.v-now").count() == 1
    root.get_by_role("button", name="ladder").click()
    assert root.locator(".v-rung.v-here").count() == 1


def test_of_a_large_graph_the_outline_is_drawn_first_and_the_rest_comes(stage):
    trace = build.chain(120)
    facts = gather(trace)
    outline = views.scene(trace, facts=facts, first=True)
    assert outline["graph"]["nodes"] == []
    rest = views.rest(facts)
    whole = views.scene(trace)
    assert {**outline, **rest} == whole
    assert list(rest) == ["graph"]
    root = at(stage, trace, 100, tab="graph", _scene=json.dumps(outline))
    assert root.locator(".v-rung.v-here").count() == 1
    assert root.get_by_role("button", name="all nodes").count() == 0
    stage.page.evaluate("rest => window.widgets[0].set('_rest', rest)", json.dumps(rest))
    root.get_by_role("button", name="all nodes").click()
    assert root.locator(".v-card").count() == 122


def test_a_small_graph_is_whole_from_the_beginning():
    facts = gather(build.overwritten())
    assert views.scene(facts.trace, facts=facts, first=True)["graph"]["nodes"]
    assert views.rest(facts) == {}


def test_hostile_labels_and_texts_stay_text(stage):
    root = at(stage, build.hostile(), 3, tab="graph")
    assert root.locator("script, img, iframe").count() == 0
    assert root.locator(".v-card").count() >= 2


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ["overwritten", "views", "array", "broadcasting", "long"])
def test_pictures_to_look_at(stage, name, theme):
    trace = build.PROGRAMS[name]()
    stage.show(state_of(trace, step=len(trace.events) - 1, focus="S1"), theme=theme)
    stage.screenshot(f"views-{name}-{theme}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_steps_without_scripts(chromium, tmp_path, scheme):
    place = tmp_path / "page.html"
    place.write_text(views.page(build.overwritten()), encoding="utf-8")
    context = chromium.new_context(
        java_script_enabled=False, color_scheme=scheme, viewport={"width": 360, "height": 800}
    )
    page = context.new_page()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(place.as_uri())
    shown = page.locator(".pl-step:visible")
    assert shown.count() == 1
    assert "step 1" in shown.inner_text()
    shown.locator("label").last.click()
    assert "step 2" in page.locator(".pl-step:visible").inner_text()
    page.keyboard.press("Tab")
    page.locator("input:checked").press("ArrowRight")
    assert "step 3" in page.locator(".pl-step:visible").inner_text()
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert page.locator("img").count() >= 5
    context.close()


def test_the_pages_pictures_are_drawn(stage):
    stage.page.set_content(views.page(build.overwritten()))
    sizes = stage.page.locator("img").evaluate_all("all => all.map((one) => [one.naturalWidth, one.alt.length > 0])")
    assert sizes
    assert all(width > 100 and named for width, named in sizes)


CUT = """(root) => [...root.querySelectorAll('.pl-hint-value')].filter((hint) => {
  const [first] = hint.children;
  const box = hint.getBoundingClientRect();
  return first && (first.getBoundingClientRect().left < box.left - 1 || first.getBoundingClientRect().right > box.right + 1);
}).map((hint) => hint.textContent)"""  # noqa: E501
PLACED = """(root) => [...root.querySelectorAll('.pl-line, [data-part]')].map((one) => {
  const lines = one.closest('.pl-lines');
  if (one.classList.contains('pl-folded')) return 'folded';
  return Math.round(one.getBoundingClientRect().top - (lines ?? root).getBoundingClientRect().top);
})"""


@pytest.mark.parametrize("name", ["lstm", "gan"])
def test_values_beside_the_code_are_never_cut_and_stepping_moves_no_line(stage, name):
    root = shown(stage, recorded(name, fixes=False), 1280, 800, "light")
    # The panels get their height, and the code its folds, in the first frame that is painted.
    stage.page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    before = root.evaluate(PLACED)
    last = int(root.locator("input[type=range]").get_attribute("max"))
    for at in range(0, last, max(1, last // 25)):
        stage.page.evaluate("step => window.widgets[0].set('step', step)", at)
        assert root.evaluate(CUT) == []
        assert root.evaluate(PLACED) == before


def test_where_gradients_meet_each_edge_has_its_part_and_the_node_the_sum(stage):
    trace = pitfall_lab.record(
        "import torch\nx = torch.tensor(2.0, requires_grad=True)\nloss = x * 3 + x\nloss.backward()\n", "sum.py"
    )
    root = at(stage, trace, len(trace.events) - 1, tab="graph")
    said = root.locator(".v-halo").evaluate_all(
        "all => all.filter((one) => one.checkVisibility()).map((one) => one.textContent)"
    )
    assert {"3.", "1.", "4."} <= set(said)
    assert "∇ 1 + 3 = 4" in root.locator(".v-card", has_text="AccumulateGrad").text_content()


def test_the_graph_has_a_gradient_only_from_the_step_on_at_which_it_has_arrived(stage):
    trace = pitfall_lab.record(
        "import torch\nx = torch.tensor(3.0, requires_grad=True)\n(x * x).backward()\n(x ** 2).backward()\n", "twice.py"
    )
    arrives = [e.step for e in trace.events if e.kind == "node" and e.op == "AccumulateGrad"]
    root = at(stage, trace, len(trace.events) - 1, tab="graph")

    def says(step):
        stage.page.evaluate("step => window.widgets[0].set('step', step)", step)
        return [
            root.locator(".v-card", has_text=name).first.evaluate(
                "one => [...one.querySelectorAll('text')].filter((text) => text.checkVisibility())"
                ".map((text) => text.textContent)"
            )
            for name in ("x", "AccumulateGrad")
        ]

    first, second = arrives
    # also backwards, from the end: what was shown there must go
    for step in [*range(len(trace.events))][::-1]:
        leaf, node = says(step)
        grad = [text for text in leaf if text.startswith(".grad")]
        assert grad == ([] if step < first else [".grad 6."] if step < second else [".grad 12."]), step
        came = [text for text in node if text.startswith("∇")]
        assert came == ([] if step < first else ["∇ 3 + 3 = 6"] if step < second else ["∇ 6."]), step


OVER = """all => all.filter((one) => {
    const parts = [one.querySelector("rect"), ...one.querySelectorAll("text:not(.v-red)")];
    const [face, ...said] = parts.map((part) => part.getBBox());
    return said.some((text) => text.x + text.width > face.x + face.width);
}).map((one) => one.textContent)"""


@pytest.mark.parametrize(
    "values", ["[-0.0114437, 0.45777]", "[-1.2345e-4, -1.2345e-7, 12345.678, -2.5e9]", "[-1.234e-4] * 9"]
)
def test_what_a_card_of_a_leaf_says_stays_inside_of_it(stage, values):
    text = f"import torch\nw = torch.tensor({values}, requires_grad=True)\n(w * w / 3).sum().backward()\n"
    trace = pitfall_lab.record(text, "leaf.py")
    root = at(stage, trace, len(trace.events) - 1, tab="graph")
    cards = root.locator(".v-card")
    assert any(text.startswith(".grad [") for text in cards.first.locator("text").all_text_contents())
    assert cards.evaluate_all(OVER) == []


def test_of_a_large_weight_the_mean_and_the_extremes_are_said_of_it_and_of_what_flows(stage):
    text = (
        "import torch\nw = torch.full((32, 64), 0.5, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
        "scale = torch.arange(2048.0).reshape(32, 64) / 1024\n(w * scale).sum().backward()\nopt.step()\n"
    )
    trace = pitfall_lab.record(text, "weight.py")
    root = at(stage, trace, len(trace.events) - 1, tab="graph")
    seen = "all => all.filter(one => getComputedStyle(one).visibility === 'visible').map(one => one.textContent)"
    leaf = root.locator(".v-card", has_text="w").first.locator("text").evaluate_all(seen)
    assert ".grad [mean 1., 0. … 2.]" in leaf
    assert "[mean 0.4, 0.3 … 0.5]" in leaf, "as the optimizer's step has left it"
    assert "(32, 64) mean 1., 0. … 2." in root.locator(".v-halo").evaluate_all(seen)
    assert root.locator(".v-card").evaluate_all(OVER) == []


def test_a_card_of_many_saved_tensors_is_no_wider_than_a_few(stage):
    text = "import torch\nlstm = torch.nn.LSTM(3, 4)\nout, state = lstm(torch.ones(2, 1, 3))\nout.sum().backward()\n"
    trace = pitfall_lab.record(text, "lstm.py")
    cards = views.scene(trace, ())["graph"]["nodes"]
    widest = max(cards, key=lambda card: len(card["saved"]))
    assert len(widest["saved"]) > 4
    assert widest["w"] <= 340
    assert all(notch["x"] + notch["w"] <= widest["w"] and notch["y"] + 26 <= widest["h"] for notch in widest["saved"])


def test_what_is_worth_a_look_leads_to_its_line_by_mouse_and_keyboard(stage):
    text = "import torch\na = torch.arange(4.0)\nb = torch.arange(4.0).reshape(4, 1)\nc = a * b\nprint(c.max())\n"
    trace = pitfall_lab.record(text, "table.py")
    root = at(stage, trace, len(trace.events) - 1)
    row = root.locator(".pl-worth button")
    assert row.count() == 1
    assert "line 4" in row.inner_text()
    row.click()
    assert trace.events[stage.state("step")].span.line == 4
    assert row.get_attribute("aria-current") == "step"
    assert root.locator(".pl-step .pl-op").inner_text() == "mul"


@pytest.mark.parametrize("width", [390, 1280])
def test_the_table_of_a_softmax_shows_both_sums_and_is_cut_nowhere(stage, width):
    text = (
        "import torch\n"
        "scores = torch.arange(12.0).reshape(3, 4).requires_grad_()\n"
        "weights = torch.softmax(scores, dim=0)\n"
        "(weights @ torch.ones(4, 2)).sum().backward()\n"
    )
    trace = pitfall_lab.record(text, "softmax.py")
    stage.page.set_viewport_size({"width": width, "height": 900})
    root = stage.show(state_of(trace, rules.find(trace)))
    sums = root.locator(".pl-grid .pl-end").all_inner_texts()
    assert [one for one in sums if one == "Σ = 1"] == ["Σ = 1"] * 4, "each column"
    assert len([one for one in sums if one not in ("Σ = 1", "")]) == 3, "no row"
    edge = root.locator(".pl-picture").bounding_box()
    grid = root.locator(".pl-grid").bounding_box()
    assert grid["x"] >= edge["x"]
    assert grid["x"] + grid["width"] <= edge["x"] + edge["width"]


FAR_APART = "import torch\nx = torch.ones(3, requires_grad=True)\ny = x.exp()\n" + "".join(
    f"other{k} = torch.ones({k + 1}) * 2\n" for k in range(60)
) + "y.mul_(2)\ny.sum().backward()\n"  # fmt: skip


def test_lines_of_a_diagnosis_that_are_far_apart_are_seen_together(stage):
    trace = pitfall_lab.record(FAR_APART, "far.py")
    found = rules.find(trace)
    root = shown(stage, state_of(trace, found, step=opening_step(trace, found), focus=""), 1280, 800, "light")
    fold = root.locator(".pl-fold")
    fold.wait_for()
    assert "lines" in fold.inner_text()
    box = root.locator(".pl-code").bounding_box()
    notes = [root.locator(".pl-note").nth(k).bounding_box() for k in range(root.locator(".pl-note").count())]
    assert len(notes) >= 3
    assert all(box["y"] <= one["y"] and one["y"] + one["height"] <= box["y"] + box["height"] + 1 for one in notes)
    stage.page.evaluate("step => window.widgets[0].set('step', step)", 41)
    assert "torch.ones(" in fold.locator(".pl-fold-now").inner_text(), "the fold shows the line that runs"
    hidden = root.locator('.pl-line[data-line="30"]')
    assert not hidden.is_visible()
    fold.click()
    assert hidden.is_visible()
    assert root.locator(".pl-fold").count() == 0


@pytest.mark.parametrize(
    ("name", "width", "height"), [("vae", 1920, 1080), ("gan", 1920, 1080), ("unet", 1920, 1080), ("vae", 1280, 800)]
)
def test_the_code_begins_with_a_whole_line(stage, name, width, height):
    root = shown(stage, recorded(name, fixes=False), width, height, "light")
    stage.page.wait_for_timeout(200)
    cut = root.locator(".pl-code").evaluate("""(code) => {
      const top = code.getBoundingClientRect().top;
      const rows = [...code.querySelectorAll('.pl-line, .pl-fold')].map((one) => one.getBoundingClientRect());
      return rows.filter((one) => one.height && one.top < top - 2 && one.bottom > top + 2).length;
    }""")
    assert cut == 0


def test_the_line_that_a_repair_changes_is_in_sight_where_there_is_room(stage):
    for name, line in (("vae", 19), ("lstm", 49)):
        root = shown(stage, recorded(name, fixes=False), 1280, 800, "light")
        assert root.locator(".pl-fix .pl-places > *").first.inner_text() == f"line {line}"
        stage.page.wait_for_timeout(150)
        box = root.locator(".pl-code").bounding_box()
        row = root.locator(f'.pl-line[data-line="{line}"]').bounding_box()
        assert row, name
        assert box["y"] <= row["y"] <= row["y"] + row["height"] <= box["y"] + box["height"] + 1, name


def test_callers_are_folded_before_a_line_of_the_diagnosis_leaves_the_view(stage):
    root = shown(stage, recorded("gpt", fixes=False), 1280, 620, "light")
    root.locator(".pl-fold").first.wait_for()
    box = root.locator(".pl-code").bounding_box()
    for kind in ("saved", "changed", "raised"):
        note = root.locator(f".pl-note.pl-n-{kind}").bounding_box()
        assert box["y"] <= note["y"] <= note["y"] + note["height"] <= box["y"] + box["height"] + 1, kind
    assert not root.locator(".pl-note", has_text="leads to").first.is_visible()
