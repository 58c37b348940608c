"""What a reader can change in a picture by hand, in a real Chromium: modules that open, cells of live
tensors, shapes to play with.
"""

from __future__ import annotations

import base64
from itertools import product
from uuid import uuid4

import numpy as np
import pytest
import torch

import pitfall_lab
from pitfall_lab import show_broadcast, show_storage
from pitfall_lab.notebook.live_pictures import _of_shape
from pitfall_lab.observe.edit import EditedTensors, NotWritten
from pitfall_lab.trace import Effect, Event, Trace
from pitfall_lab.views import moment
from pitfall_lab.widgets import Look
from tests.frontend.stage import state_of
from tests.views.test_modules import BLOCK, HEAD, RUN


@pytest.fixture(scope="module")
def net():
    trace = pitfall_lab.record(HEAD + BLOCK + RUN)
    return state_of(trace, step=len(trace.events) - 1)


def graph(root):
    """The panel with the graph."""
    root.locator("[data-tab=graph]").click()
    return root.locator(".pl-p-graph")


def titles(panel):
    return panel.locator(".v-card:visible").evaluate_all(
        "all => all.map((one) => one.querySelector('.v-b').textContent)"
    )


def trail(panel):
    return panel.get_by_role("group", name="open modules").get_by_role("button")


def test_modules_open_by_key_and_by_click_one_in_another_and_close_again(stage, net):
    panel = graph(stage.show(net))
    outside = [
        "blocks.0",
        "TanhBackward0",
        "blocks.1",
        "TanhBackward0",
        "blocks.2",
        "TanhBackward0",
        "head",
        "MulBackward0",
    ]
    assert sorted(titles(panel)) == sorted([*outside, "PowBackward0", "MeanBackward0"])
    panel.locator(".v-card", has_text="blocks.1").press("Enter")
    assert {"blocks.0", "blocks.1.ln", "blocks.1.mlp", "MulBackward0", "AddBackward0"} <= set(titles(panel))
    assert trail(panel).all_inner_texts() == ["model", "blocks.1"]
    assert trail(panel).last.evaluate("one => one.getRootNode().activeElement === one"), (
        "the focus is where the reader went"
    )
    panel.locator(".v-card", has_text="blocks.1.mlp").click()
    assert {"blocks.1.mlp.0", "ReluBackward0", "blocks.1.mlp.2"} <= set(titles(panel))
    panel.locator(".v-card", has_text="blocks.0").press(" ")
    assert trail(panel).all_inner_texts() == ["model", "blocks.0"]
    assert "blocks.1" in titles(panel)
    trail(panel).first.press("Enter")
    assert {"blocks.0", "blocks.1", "blocks.2"} <= set(titles(panel))


def test_a_closed_box_is_marked_while_something_inside_it_runs(stage, net):
    root = stage.show(net)
    panel = graph(root)
    root.locator("input[type=range]").focus()
    assert panel.locator(".v-card.v-now").count() == 1
    assert panel.locator(".v-card.v-now .v-b").text_content() == "blocks.0", (
        "the last node of backward is a leaf's, inside"
    )
    flows = panel.locator(".v-back").evaluate_all(
        "all => all.filter((one) => getComputedStyle(one).visibility === 'visible').length"
    )
    assert flows >= 9, "gradients flow between the boxes as well"


def live(stage, picture, **more):
    """A picture's widget in the browser with its Python side, as the kernel would be:
    messages and state go both ways.
    """
    look: Look = picture.live()
    names = ("_trace", "_scene")
    sent = []
    look.send = lambda content, *_: sent.append(content)

    def kernel(content):
        before = {name: getattr(look, name) for name in names}
        look._received(look, content, [])
        messages, sent[:] = list(sent), []
        changed = {
            name: base64.b64encode(getattr(look, name)).decode()
            for name in names
            if getattr(look, name) != before[name]
        }
        return messages, changed

    name = f"kernel{uuid4().hex}"
    stage.page.expose_function(name, kernel)
    state = {name: {"bytes": base64.b64encode(getattr(look, name)).decode()} for name in names}
    return stage.show(
        {
            **state,
            "_view": look._view,
            "step": look.step,
            "focus": "",
            "language": look.language,
            "kernel": name,
            **more,
        }
    )


def test_a_number_written_into_a_cell_is_in_the_live_tensor_and_shows_in_everyone_who_reads_it(stage):
    t = torch.arange(6.0).reshape(2, 3)
    v, a = t[1], t.numpy()
    root = live(stage, show_storage(t, v, a))
    cell = root.locator(".v-cell").nth(4)
    cell.press("Enter")
    field = root.get_by_role("textbox")
    assert field.get_attribute("aria-label") == "t[1,1] ="
    field.fill("7.5")
    field.press("Enter")
    root.locator(".v-cell", has_text="7.5").wait_for()
    assert (t[1, 1].item(), v[1].item(), a[1, 1], t._version) == (7.5, 7.5, 7.5, 1)
    assert root.locator("td.v-written").all_inner_texts() == ["7.5", "1,1", "1", "1,1"]
    assert "read by t[1,1], v[1], a[1,1]" in root.locator(".v-detail").inner_text()
    assert "the version of t goes from 0 to 1" in root.locator(".pl-nothing").inner_text()
    row = root.locator("tbody", has_text="NumPy").locator("td[tabindex]").nth(0)
    row.dblclick()
    root.get_by_role("textbox").fill("-1e3")
    root.get_by_role("textbox").press("Enter")
    root.locator(".v-cell", has_text="-1000").wait_for()
    assert (t[0, 0].item(), t._version) == (-1000, 1), "NumPy writes to the same memory and no counter moves"
    assert root.locator(".v-cell").nth(0).evaluate("one => one.getRootNode().activeElement !== null")


@pytest.mark.parametrize(
    ("language", "said"), [("en", "is not a number that int32 can hold"), ("zh", "不是 int32 能存放的数")]
)
def test_what_is_no_number_is_refused_in_one_sentence_and_nothing_changes(stage, language, said):
    t = torch.arange(3, dtype=torch.int32)
    root = live(stage, show_storage(t, language=language), language=language)
    root.locator(".v-cell").nth(1).dblclick()
    root.get_by_role("textbox").fill("__import__('os').abort()")
    root.get_by_role("textbox").press("Enter")
    root.get_by_text(said).wait_for()
    assert (t.tolist(), t._version) == ([0, 1, 2], 0)
    root.locator(".v-cell").nth(1).dblclick()
    root.get_by_role("textbox").press("Escape")
    assert root.locator(".v-cell").nth(1).inner_text() == "1"


def test_without_a_kernel_a_cell_says_why_it_cannot_be_written_to(stage, net):
    t = torch.zeros(2)
    root = live(stage, show_storage(t), kernel="")
    root.locator(".v-cell").first.dblclick()
    root.get_by_role("textbox").press("Enter")
    root.get_by_text("the kernel does not answer").wait_for(timeout=6000)
    root = stage.show(net)
    root.locator("[data-tab=storage]").click()
    root.locator(".v-cell").first.press("Enter")
    assert "This is a recording" in root.locator(".v-detail").first.inner_text()


REFUSED = {
    "gone": (lambda: torch.zeros(2), [0], "1", "no longer exists"),
    "no such element": (KEPT := torch.zeros(2), [2], "1", "has no element at [2]"),
    "too many indices": (KEPT, [0, 0], "1", "has no element at [0, 0]"),
    "negative": (KEPT, [-1], "1", "has no element at [-1]"),
    "empty": (KEPT, [0], "  ", "is not a number that float32 can hold"),
    "too long": (KEPT, [0], "1" * 61, "is not a number that float32 can hold"),
    "complex into float": (KEPT, [0], "1j", "is not a number that float32 can hold"),
    "a fraction into int": (torch.zeros(2, dtype=torch.int64), [0], "1.5", "is not a number that int64 can hold"),
    "too large": (torch.zeros(2, dtype=torch.uint8), [0], "256", "is not a number that uint8 can hold"),
    "too large for NumPy": (np.zeros(2, np.int8), [0], "128", "is not a number that int8 can hold"),
    "no truth": (torch.zeros(2, dtype=torch.bool), [0], "2", "is not a number that bool can hold"),
    "read-only": (
        np.broadcast_to(np.zeros(1), (2,)),
        [0],
        "1",
        "NumPy raised an error: assignment destination is read-only",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_write_that_cannot_be_is_refused_in_one_sentence(name):
    value, index, text, said = REFUSED[name]
    bench = EditedTensors([("w", value() if callable(value) else value)])
    with pytest.raises(NotWritten) as refused:
        bench.put("t1", index, text)
    assert said in refused.value.text.en
    assert len(bench.trace.events) == 1
    assert str(refused.value.text.zh).count("。") <= 1


def test_autograd_does_not_see_the_write_but_the_counter_does():
    x = torch.ones(3, requires_grad=True)
    y = x * x
    bench = EditedTensors([("x", x), ("z", torch.tensor(2 + 1j))])
    bench.put("t1", [0], "5")
    assert (x[0].item(), x._version, x.is_leaf, x.grad_fn) == (5, 1, True, None)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


WRITES = ({"tensor": "t1", "index": ["os"], "text": "1"}, {"tensor": 1}, {"tensor": "t1", "index": [0], "text": 1}, 7)


@pytest.mark.parametrize("content", [None, 7, {}, *({"edit": write} for write in WRITES)])
def test_a_message_that_is_no_write_changes_nothing(content):
    t = torch.zeros(2)
    look = show_storage(t).live()
    look.send = lambda *_: None
    look._received(look, content, [])
    assert (t.tolist(), t._version, look.step) == ([0, 0], 0, 0)


def test_the_picture_keeps_no_tensor_alive():
    import gc
    import weakref

    t = torch.zeros(2)
    ref, picture = weakref.ref(t), show_storage(t)
    widget = picture.live()
    del t
    gc.collect()
    assert ref() is None
    assert widget.step == 0


def test_shapes_can_be_played_with_by_slider_and_button_and_need_no_kernel(stage):
    root = live(stage, show_broadcast((3,), (3, 1)), kernel="")
    said = root.get_by_role("status").first
    assert said.inner_text() == "(3,) ∘ (3, 1) → (3, 3)"
    assert "Every element of one meets every element of the other: 3 × 3 values" in root.inner_text()
    assert "↑ a gradient would be summed to (3, 1)" in root.inner_text()
    assert root.locator(".v-mini").last.locator("span").nth(5).inner_text() == "2·1"
    slider = root.get_by_role("slider", name="a, size of dim 0")
    slider.press("ArrowRight")
    assert said.inner_text() == "(4,) ∘ (3, 1) → (3, 4)"
    root.get_by_role("slider", name="b, size of dim 1").press("End")
    assert "✕ torch raises" in said.inner_text()
    assert root.locator(".v-clash").all_inner_texts() == ["4", "6", "✕"]
    root.get_by_role("button", name="one operand more").click()
    root.get_by_role("button", name="c: one dim more").press("Enter")
    assert said.inner_text().startswith("(4,) ∘ (3, 6) ∘ (1, 1) ✕")
    root.get_by_role("button", name="the table that a loss makes by mistake").click()
    assert said.inner_text() == "(4,) ∘ (4, 1) → (4, 4)"


def met(shapes):
    """What Python says of the same shapes."""
    names = [f"o{i}" for i, _ in enumerate(shapes)]
    effects = tuple(
        Effect(f"tensors.s{i}", _of_shape(name, own)) for i, (name, own) in enumerate(zip(names, shapes, strict=True))
    )
    (case,) = moment.broadcast_scene(Trace((), (Event(0, "write", "now", effects=effects),)), names)["cases"]
    return [
        case["result"]["shape"],
        case["clash"],
        case["crossed"],
        [[one["dims"], one["summed"]] for one in case["operands"]],
    ]


def test_the_browser_python_and_torch_agree_on_every_small_shape(stage):
    small = [own for rank in range(3) for own in product((1, 2, 3), repeat=rank)]
    given = [
        *product(small, repeat=2),
        *product(small[::3], [(), (2, 1, 3), (4,)], small[1::4]),
        ((1, 1), (2,), (3, 1, 1), ()),
    ]
    stage.show(state_of(pitfall_lab.record("x = 1")))
    parts = "[one.result.shape, one.clash, one.crossed, one.operands.map((side) => [side.dims, side.summed])]"
    ask = f"all => all.map(module.meet).map((one) => {parts})"
    for shapes, found in zip(given, stage.page.evaluate(ask, given), strict=True):
        assert found == met(shapes), shapes
        try:
            assert found[:2] == [list(torch.broadcast_shapes(*shapes)), []]
        except RuntimeError:
            assert found[1]


VIEWS = "import torch\nx = torch.arange(12.0)\nm = x.view(3, 4)\nt = m.t()\nc = m[:, 1]\n"


@pytest.fixture(scope="module")
def looked_at():
    return state_of(pitfall_lab.record(VIEWS), step=0)


def test_strides_can_be_played_with_by_slider_and_by_number_and_say_what_torch_does(stage, looked_at):
    root = stage.show({**looked_at, "step": 2})
    root.locator("[data-tab=storage]").click()
    root.get_by_role("button", name="play with strides").click()
    panel = root.locator(".pl-p-storage")
    code, said = panel.locator(".v-play + code"), panel.locator("p[role=status]")
    numbers = lambda: [float(one) for one in panel.locator(".v-row > .v-mini > span").all_inner_texts()]  # noqa: E731
    assert code.inner_text() == "memory.as_strided((4, 3), (1, 4), 0)", "it begins with the last view that there is"
    for name, keys in (
        ("", ()),
        ("stride of dim 1", ["ArrowLeft"] * 3),
        ("stride of dim 0", ["Home"]),
        ("size of dim 0", ["Home"]),
        ("offset", ["ArrowRight"]),
    ):
        for key in keys:
            panel.get_by_role("slider", name=name).press(key)
        view = eval(code.inner_text(), {"memory": torch.arange(12.0)})
        assert numbers() == view.flatten().tolist()
        assert panel.locator(".v-memory-row > .v-hit").count() == len(set(numbers()))
        assert ("view(-1) is refused" in said.inner_text()) == refuses(view.view, -1)
        assert ("torch refuses add_" in said.inner_text()) == refuses(view.add_, 1)
    panel.get_by_role("slider", name="offset").press("End")
    assert "✕ torch raises: it would read cell 13, and the memory has 12." in said.inner_text()
    panel.get_by_role("slider", name="offset").press("Home")
    field = panel.get_by_role("textbox", name="number in cell 1", exact=True)
    field.fill("7.5")
    field.press("t")
    field.press("Backspace")
    assert numbers()[1] == 7.5, "every element that reads the cell shows what was typed"
    assert root.locator(".pl-textview").count() == 0, "a letter is a letter there"


def refuses(work, *given) -> bool:
    try:
        work(*given)
    except RuntimeError:
        return True
    return False


MOVING = "(root, name) => [...root.querySelectorAll(name)].filter((one) => one.getAnimations().length).length"


@pytest.mark.parametrize("less", [False, True])
def test_what_is_new_comes_out_of_what_it_belongs_to_once_and_not_for_those_who_want_less_motion(
    stage, looked_at, less
):
    stage.page.emulate_media(reduced_motion="reduce" if less else "no-preference")
    root = stage.show(looked_at)
    root.locator("[data-tab=storage]").click()
    root.locator("input[type=range]").focus()
    stage.page.keyboard.press("ArrowRight")
    assert root.evaluate(MOVING, ".v-grid tr") == (0 if less else 1), "a view glides out of the memory that it looks at"
    stage.page.wait_for_timeout(600)
    assert root.evaluate(MOVING, ".v-grid tr") == 0
    root = stage.show(
        state_of(
            pitfall_lab.record(
                "import torch\na = torch.ones(3, 1, requires_grad=True)\nb = a + torch.ones(3)\nb.sum().backward()"
            ),
            step=1,
        )
    )
    root.locator("[data-tab=broadcast]").click()
    root.locator("input[type=range]").focus()
    stage.page.keyboard.press("ArrowRight")
    assert root.evaluate(MOVING, ".v-mini > .v-stretch") == (0 if less else 12), (
        "the cells that are not there come out of the one behind them"
    )
    stage.page.wait_for_timeout(600)
    assert root.evaluate(MOVING, ".v-mini > .v-stretch") == 0
    root.locator("[data-tab=graph]").click()
    root.locator("input[type=range]").focus()
    flowing = 0
    for _ in range(5):
        stage.page.keyboard.press("ArrowRight")
        flowing = max(flowing, root.evaluate(MOVING, ".v-back"))
    assert (flowing > 0) != less, "the gradient flows back along its edge when its node runs"
    stage.page.wait_for_timeout(600)
    assert root.evaluate(MOVING, ".v-back") == 0, "once"
