"""Sentences, slices, the text twin and the static page: exact, in two languages, and safe with hostile programs."""

import base64
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pitfall_lab import record, rules, views
from pitfall_lab.resources import PACKAGE
from pitfall_lab.trace import Trace
from pitfall_lab.trace.slice import Slices, failures, slice_of, story
from pitfall_lab.trace.text import sentences
from pitfall_lab.views import document, graph, spoken_names
from pitfall_lab.views.display_names import names
from pitfall_lab.views.graph import svg as graph_svg
from pitfall_lab.views.label_history import gather
from pitfall_lab.views.spoken_names import PHRASES
from tests.views import build


def said(trace, language="en"):
    return [text.say(language) for _, text in sentences(trace)]


def test_what_a_node_saved_twice_breaks_once_and_what_has_no_name_is_said_to_have_none():
    twice = said(
        record("import torch\nw = torch.ones(2, requires_grad=True)\nh = w * 1\nloss = (h * h).sum()\nh.add_(1)\n")
    )
    assert [text.count("will now fail") for text in twice if "h.add_" in text] == [1]
    loss = (
        "import torch\n"
        "import torch.nn.functional as F\n"
        "s = torch.ones(1, 3, requires_grad=True)\n"
        "F.cross_entropy(s, torch.tensor([0]))\n"
    )
    kept = said(record(loss))[-1]
    assert "saves result = a tensor without a name at v0" in kept
    assert "?" not in kept
    assert "没有名字的张量（版本 0）" in said(record(loss), "zh")[-1]


def named(program: str, language: str = "en") -> list[str]:
    """The sentences of a program, with its own names for things."""
    trace = record(program)
    facts = gather(trace)
    return [spoken_names.spoken(text.say(language), facts, event.step) for event, text in sentences(trace)]


def test_a_call_that_returns_its_operand_calls_it_by_the_name_that_it_had():
    program = "import torch\nx = torch.ones(2)\ny = x.to(torch.float32)\nz = torch.ones(2).to(torch.float32)\n"
    lines = named(program)
    assert lines[1] == "`x.to(torch.float32)` returns `x` itself; y is another name of it."
    assert lines[3].startswith("`torch.ones(2).to(torch.float32)` returns z itself.")
    assert named(program, "zh")[1] == "`x.to(torch.float32)` 返回 `x` 本身；y 是它的另一个名字。"
    again = named("import torch\nx = torch.ones(2)\nx = x.to(torch.float32)\n")
    assert again[1] == "`x.to(torch.float32)` returns x itself."


def test_the_memory_that_a_line_finds_is_not_called_after_what_the_line_makes():
    program = "import torch\nweek = torch.arange(6.0).view(2, 3)\nday = week[1]\n"
    _, made, part = named(program)
    assert "makes week, shape (2, 3), float32, over the memory of torch.arange(6.0) (stride" in made
    assert "makes day, shape (3,), float32, over the memory of week (stride" in part
    assert "week：形状 (2, 3)，float32，读的是torch.arange(6.0) 的内存（步长" in named(program, "zh")[1]


def test_a_gradient_that_is_read_is_not_said_to_be_itself():
    program = "import torch\nw = torch.ones(1, requires_grad=True)\n(w * 2).backward()\nw.grad * 3\n"
    for language, line in (("en", "`w.grad` reads the gradient of w."), ("zh", "`w.grad` 读取 w 的梯度。")):
        assert line in named(program, language)
    assert "slope is a name for `w.grad`." in named(program.replace("w.grad * 3", "slope = w.grad"))


def test_the_writing_step_says_what_moved_and_what_it_will_break():
    assert said(build.overwritten())[2] == (
        "`h.mul_(10)` writes into storage S2 in place: counter C2 goes from 0 to 1. "
        "Node n1 (SigmoidBackward0) saved this memory at version 0, so its backward will now fail."
    )
    assert said(build.overwritten(), "zh")[2] == (
        "`h.mul_(10)` 就地写入存储 S2：版本计数器 C2 从 0 变为 1。节点 n1 (SigmoidBackward0) 保存的是版本 0，它的"
        "反向传播现在必定出错。"
    )


SQUARE = """import torch
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, t):
        ctx.save_for_backward(t)
        return t * t

    @staticmethod
    def backward(ctx, gradient):
        (t,) = ctx.saved_tensors
        return 2 * t * gradient

x = torch.tensor([3.0, -1.0], requires_grad=True)
y = Square.apply(x)
y.sum().backward()
"""


def test_what_a_custom_backward_makes_and_drops_is_new_and_within_the_backward():
    """Its tensors are gone when the backward ends, and its event, with an earlier step, says so."""
    trace = record(SQUARE)
    lines = said(trace)
    assert lines[2].startswith("`Square.apply(x)` makes y (t2), shape (2,), float32.")
    assert [line.split(", shape")[0] for line in lines if line.startswith("Within")] == [
        "Within this backward: `2 * t` makes t4",
        "Within this backward: `2 * t * gradient` makes t6",
    ]
    assert [line for line in said(trace, "zh") if "本身" in line] == []
    assert {"2 * t", "2 * t * gradient"} <= set(names(gather(trace)).values())


def test_views_say_that_nothing_is_copied_and_which_counter_they_share():
    lines = said(build.views())
    assert "over the existing storage S1 (stride (3,), offset 1): nothing is copied. It shares counter C1." in lines[1]
    assert "It has its own counter C2" in lines[4]


def test_a_write_behind_torchs_back_names_who_will_not_notice():
    line = said(build.array())[4]
    assert line.startswith(
        "`a[0] = 100`: memory of storage S1 changed through a (t1) behind torch's back; no version counter moved."
    )
    assert line.endswith("n1 (MulBackward0) saved this memory and will not notice.")
    assert (
        "The gradient of w (t2) is [100., 2., 3.]; with the saved values it would be [1., 2., 3.]."
        in said(build.array())[8]
    )


@pytest.mark.parametrize("name", build.PROGRAMS)
def test_every_event_has_one_sentence_in_both_languages(name):
    trace = build.PROGRAMS[name]()
    texts = [text for _, text in sentences(trace)]
    assert len(texts) == len(trace.events)
    assert all(text.en.endswith((".", "…")) or trace.events[i].error for i, text in enumerate(texts))
    assert all(re.search("[\u4e00-\u9fff]", text.zh) for text in texts)


def test_the_slice_of_a_failure_leaves_out_what_did_not_matter():
    p = build.Program()
    p.tensor("noise", [1], cells=[0.0])
    x = p.tensor("x", [1], cells=[1.0])
    p.tensor("other", [1], cells=[0.0])
    y = p.tensor("y", [1], cells=[2.0], code="x * 2", op="torch.Tensor.mul", operands=(x,))
    p.write(y, "y.add_(1)", [3.0])
    trace = p.trace()
    assert slice_of(trace, ["S4"]) == (1, 3, 4)
    assert slice_of(trace, ["t2"], until=3) == (1,)


def test_the_story_of_a_failure_is_saved_changed_raised_and_what_led_there():
    trace = build.overwritten()
    [failure] = failures(trace)
    assert Slices(trace).of_failure(failure) == (0, 1, 2, 4)
    assert story(trace) == (0, 1, 2, 4)


NODES = """import torch
from torch import nn
layer = nn.Linear(3, 2)
x = torch.ones(4, 3)
by_module = layer(x)
h = by_module * 2
first = h[0]
first.mul_(10)
values, places = h.max(0)
one, two = h.unbind(1)
d = x.detach()
d.transpose_(0, 1)
g = torch.tanh(by_module)
y = torch.relu_(g)
"""


def test_the_backward_of_a_result_is_the_node_that_it_has_and_the_others_are_on_the_way():
    twin = views.text(record(NODES))
    for expected in (
        "makes layer.weight, shape (2, 3), float32, in memory of its own.",
        "Its backward will be AddmmBackward0, which keeps x (v0). On the way there, torch also records TBackward0.\n",
        "The backward of first will be SelectBackward0.\n",
        "from 0 to 1. The backward of h will be CopySlices. The backward of first will be AsStridedBackward0.\n",
        "The backward of values will be MaxBackward0, which keeps places (v0).\n",
        "Their backward will be UnbindBackward0.\n",
        "changes in place how d reads its memory, now with shape (3, 4) and stride (1, 3): the version of x goes from",
        "AddmmBackward0 saved this memory at version 0, so its backward will now fail.\n",
        "`torch.tanh(by_module)` makes g, shape (4, 2)",
        "TanhBackward0, which keeps g (v0).\n",
        "The backward of y will be ReluBackward0, which keeps y (v1).",
    ):
        assert expected in twin
    chinese = views.text(record(NODES), "zh")
    assert "它的反向传播是 AddmmBackward0，为反向传播保留 x（v0）。途中 torch 还记录了 TBackward0。" in chinese
    assert "h 的反向传播是 CopySlices。first 的反向传播是 AsStridedBackward0。" in chinese
    assert re.findall(r"\b[tSCn]\d+\b", chinese, re.ASCII) == []


def test_the_text_twin_tells_source_steps_storages_counters_and_outcome():
    text = views.text(build.overwritten())
    for expected in (
        "   3 | h.mul_(10)",
        "the version of h goes from 0 to 1",
        "h  3 × float32  [7.31, 1.19, 9.52]",
        "h: v0 → v1 (step 2); saved at v0 by SigmoidBackward0.result, stale, torch raised",
        "Outcome: raised RuntimeError (line 5)",
    ):
        assert expected in text
    assert "×59 more, the same 2 steps" in views.text(build.loop(60))
    assert views.text(build.overwritten(), "zh").startswith("程序 program.py")


def test_with_labels_the_text_twin_has_those_of_the_trace_too():
    text = views.text(build.overwritten(), labels=True)
    assert "counter C2 goes from 0 to 1" in text
    assert "S2  3 × float32  [7.31, 1.19, 9.52]" in text
    assert "C2 (h (t2)): v0 → v1 (step 2); saved at v0 by n1.result, stale, torch raised" in text


LABEL = re.compile(r"(?<![\w.#])[tSCn]\d+\b(?!\()")
SPEAKING = (
    SQUARE,
    "import torch\nw = torch.ones(3, requires_grad=True)\nd = w.data\nd.mul_(2)\nv = w[:2]\n(v * w.sum()).sum().backward()\n",  # noqa: E501
    "import torch\na = torch.zeros(2, requires_grad=True)\nb = a.exp()\nb.add_(1)\n(b * b).sum().backward()\n",
    "import numpy as np\nimport torch\na = np.ones(3)\nb = torch.from_numpy(a)\na[0] = 2\nb += 1\n",
)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    "program", [*map(record, SPEAKING), *(build.PROGRAMS[name]() for name in ("overwritten", "array"))]
)
def test_the_stored_page_and_the_text_twin_call_things_as_the_program_does(program, language):
    assert LABEL.search("storage S1, counter C2 of t3 (n4)"), "what it looks for"
    assert LABEL.findall(views.text(program, language)) == []
    page = Page(views.page(program, rules.find(program), language, key="k"))
    assert LABEL.findall(" ".join(page.texts)) == []
    drawn = [base64.b64decode(source.partition(",")[2]).decode("utf-8") for source in page.images]
    assert len(drawn) > 1
    assert [LABEL.findall(" ".join(ET.fromstring(each).itertext())) for each in drawn] == [[]] * len(drawn)


def test_the_browser_speaks_with_the_same_phrases():
    source = (PACKAGE / "frontend" / "src" / "core" / "prose.ts").read_text(encoding="utf-8")
    block = source.partition("const PHRASES")[2].partition("\n];")[0]
    pairs = re.findall(r'\[\s*/(.+?)/g,\s*"(.*?)",?\s*\]', block, flags=re.DOTALL)
    assert [(pattern, re.sub(r"\$(\d)", r"\\\1", instead)) for pattern, instead in pairs] == list(PHRASES)


class Page(HTMLParser):
    """Everything in a page that could load, run or leave."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.addresses, self.handlers, self.images = set(), [], [], []
        self.texts = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("src", "href", "action", "data", "srcset", "background", "poster"):
                self.addresses.append(value or "")
            if name.startswith("on") or name == "srcdoc":
                self.handlers.append(name)
            if tag == "img" and name == "src":
                self.images.append(value)
            if name in ("alt", "aria-label", "title"):
                self.texts.append(value)

    def handle_data(self, data):
        if self.lasttag != "style":
            self.texts.append(data)


ALLOWED = {
    "html",
    "head",
    "meta",
    "title",
    "body",
    "div",
    "style",
    "p",
    "span",
    "br",
    "code",
    "h2",
    "h3",
    "pre",
    "mark",
    "ol",
    "ul",
    "li",
    "b",
    "figure",
    "img",
    "input",
    "label",
    "details",
    "summary",
    "small",
}


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", build.PROGRAMS)
def test_the_page_loads_nothing_and_runs_nothing(name, language):
    text = views.page(build.PROGRAMS[name](), language=language, key="k")
    page = Page(text)
    assert "could not be drawn" not in text
    assert "无法绘制" not in text
    assert page.tags <= ALLOWED
    assert page.handlers == []
    assert all(address.startswith("data:image/svg+xml;base64,") for address in page.addresses)
    assert "url(" not in text.replace("url(#tip)", "")
    assert "@import" not in text


def test_a_part_of_the_page_that_fails_says_so_and_the_others_stay(monkeypatch):
    monkeypatch.setattr(document.storage_svg, "draw", lambda *_, **__: 1 / 0)
    text = views.page(build.overwritten(), key="k")
    assert "could not be drawn (ZeroDivisionError)" in text
    assert "The same in words" in text
    assert "the version of h goes from 0 to 1" in text


@pytest.mark.parametrize("name", build.PROGRAMS)
def test_every_picture_is_wellformed_and_refers_to_nothing_outside(name):
    for source in Page(views.page(build.PROGRAMS[name](), key="k")).images:
        picture = base64.b64decode(source.partition(",")[2]).decode("utf-8")
        root = ET.fromstring(picture)
        assert root.find("{http://www.w3.org/2000/svg}title") is not None
        for element in root.iter():
            assert element.tag.rpartition("}")[2] in {
                "svg",
                "title",
                "style",
                "defs",
                "marker",
                "rect",
                "text",
                "path",
                "line",
                "circle",
            }
            assert not [a for a in element.attrib if a.startswith("on") or a.endswith("href")]
        assert "http" not in picture.replace("http://www.w3.org/2000/svg", "").replace(build.HOSTILE, "")


EDIT = {"line": 1, "column": 0, "end_line": 1, "end_column": 1, "text": build.HOSTILE, "source": 0}


def test_hostile_texts_never_become_markup():
    trace = build.hostile()
    page = views.page(
        trace,
        [
            {
                "rule": build.HOSTILE,
                "name": build.HOSTILE,
                "message": build.HOSTILE,
                "explanation": {"en": build.HOSTILE},
                "line": 1,
                "related": [{"role": build.HOSTILE, "message": build.HOSTILE}],
                "fixes": [{"title": build.HOSTILE, "edits": [EDIT]}],
            }
        ],
        key="k",
    )
    assert "<script" not in page
    assert "<img src=x" not in page
    assert "\x00" not in page
    assert "\x1b" not in page
    assert "\x1b" not in views.text(trace)


def test_the_key_of_a_page_cannot_break_out_of_its_attributes():
    assert "onload" not in document.fragment(build.overwritten(), [], "en", '"><x onload=1').replace("xonload1", "")


def test_two_pages_in_one_notebook_do_not_share_their_radio_buttons():
    one, two = views.page(build.overwritten()), views.page(build.overwritten())
    names = [set(re.findall(r'name="(pl\w+)"', page)) for page in (one, two)]
    assert names[0].isdisjoint(names[1])


def test_long_programs_say_how_much_is_left_out():
    page = views.page(build.chain(200), key="k")
    assert re.search(r"\d+ steps that do not matter for the outcome are left out here", page)
    assert "more storages are not drawn" in base64.b64decode(Page(page).images[-3].partition(",")[2]).decode()
    assert page.count('type="radio"') <= document.STEPS


JUNK = st.sampled_from(
    [
        None,
        0,
        -1,
        "x",
        "<b>",
        [],
        [1],
        {},
        {"shape": "ab"},
        {"size": "many"},
        {"next": 5, "saved": 7},
        {"storage": []},
        1e9,
        True,
    ]
)


@given(
    st.sampled_from(["overwritten", "views", "array", "broadcasting"]),
    st.lists(st.tuples(st.integers(0, 30), JUNK), min_size=1, max_size=6),
)
@settings(max_examples=120, deadline=None)
@example("overwritten", [(5, {"next": 5, "saved": 7})])
def test_a_damaged_trace_costs_a_picture_and_never_the_page(name, damage):
    trace = build.PROGRAMS[name]()
    places = [(i, j) for i, event in enumerate(trace.events) for j in range(len(event.effects))]
    events = list(trace.events)
    for where, junk in damage:
        i, j = places[where % len(places)]
        effects = list(events[i].effects)
        effects[j] = replace(effects[j], value=junk)
        events[i] = replace(events[i], effects=tuple(effects))
    damaged = replace(trace, events=tuple(events))
    json.dumps(views.scene(damaged))
    assert "</div>" in views.page(damaged, key="k")
    assert len(list(sentences(damaged))) == len(events)


def test_an_empty_trace_has_a_page_and_a_text():
    assert "The program finished." in views.page(Trace(), key="k")
    assert "Outcome: finished" in views.text(Trace())


ASKED = """import torch

x = torch.tensor(4.0, requires_grad=True)
w = torch.tensor(2.0, requires_grad=True)
h = x * w
y = h**3 + x
z = x * 2
"""


@pytest.mark.parametrize(
    ("line", "returned"),
    [
        ("(slope,) = torch.autograd.grad(y, x)", {"x": "slope"}),
        ("slope = torch.autograd.grad(y, x)[0]", {"x": "slope"}),
        ("slopes = torch.autograd.grad(y, [w])", {"w": "slopes[0]"}),
        ("at_x, at_h = torch.autograd.grad(y, (x, h))", {"x": "at_x", "h": "at_h"}),
        ("at_h, at_w = torch.autograd.grad([y, h], [h, w])", {"h": "at_h", "w": "at_w"}),
        ("(slope,) = torch.autograd.grad(y, h, torch.ones(()))", {"h": "slope"}),
        ("slope = torch.autograd.grad(inputs=w, outputs=y)[0]", {"w": "slope"}),
        ("slope, none = torch.autograd.grad(z, (x, w), allow_unused=True)", {"x": ""}),
    ],
)
def test_what_grad_computes_is_returned_by_its_name_and_goes_into_no_node_that_torch_does_not_run(line, returned):
    trace = record(ASKED + line + "\n")
    ran = _ran(ASKED + line)
    passes = [text for event, text in sentences(trace) if event.kind == "node"]
    assert ran["AccumulateGrad"] == 0
    reached = {name for text in passes for name in re.findall(r"n\d+ \((\w+)\)", text.en)}
    assert {name for name, count in ran.items() if count} == reached
    given = [text for text in passes if "hands its result" in text.en]
    assert all(text.en.endswith("and adds nothing to `.grad`.") for text in given)
    assert all(text.zh.endswith("不加到任何 `.grad` 上。") for text in given)
    found = dict(
        one for text in given for one in re.findall(r"the gradient of (\w+) \(t\d+\)(?: as (\S+) \()?", text.en)
    )
    assert found == returned
    assert {own for own in returned.values() if own} <= set(names(gather(trace)).values())


FROZEN_LATER = """\
import torch
x = torch.ones(2, requires_grad=True)
w = torch.ones(2, requires_grad=True)
y = (x * w).sum()
{line}
y.backward()
"""


@pytest.mark.parametrize("line", ["x.requires_grad_(False)", "x.requires_grad = False"])
def test_a_leaf_that_requires_grad_no_more_gets_nothing_in_words_and_in_the_picture(line):
    trace = record(FROZEN_LATER.format(line=line))
    lines = said(trace)
    assert f"`{line}` switches requires_grad of x (t1) off; `.grad` stays as it is." in lines
    got = [each for each in lines if "(AccumulateGrad) gets" in each]
    assert len(got) == 2
    for each in got:
        # no sentence may name a leaf whose `.grad` is as it was
        grad = gather(trace).tensor("t1" if " x (t1)" in each else "t2")["grad"]
        assert ("adds it to" in each) == (grad is not None)
        assert ("drops it: x (t1) does not require grad any more" in each) == (grad is None)
    ways = [svg_of(record(FROZEN_LATER.format(line=each))).count('class="back"') for each in ("x", line)]
    assert ways[0] - ways[1] == 1


def svg_of(trace):
    facts = gather(trace)
    return graph_svg.draw(graph.project(trace, facts), facts)


def test_a_leaf_for_which_a_function_returned_none_is_not_said_to_get_a_gradient():
    lines = said(
        record(
            "import torch\nclass First(torch.autograd.Function):\n"
            "    @staticmethod\n    def forward(ctx, a, b):\n        return a * b\n"
            "    @staticmethod\n    def backward(ctx, g):\n        return g, None\n"
            "x = torch.ones(2, requires_grad=True)\nw = torch.ones(2, requires_grad=True)\n"
            "First.apply(x, w).sum().backward()\nassert w.grad is None\n"
        )
    )
    assert sum("adds it to the `.grad` of x (t1)" in line for line in lines) == 1
    assert not any("adds it to the `.grad` of w" in line for line in lines)
    assert any(line.endswith("runs; the `.grad` of w (t2) is None after this backward.") for line in lines)


def test_a_call_that_changes_what_backward_leaves_is_not_said_to_read():
    lines = said(
        record("import torch\nx = torch.ones(2, requires_grad=True)\ny = x * 2\ny.retain_grad()\nx.retain_grad()\n")
    )
    assert "`y.retain_grad()` asks backward to leave the gradient of y (t2) in its `.grad`." in lines
    assert "`x.retain_grad()` reads; no tensor changes." in lines  # a leaf keeps its gradient anyway
    lines = said(record("import torch\nx = torch.ones(2)\nw = x.requires_grad_()\n"))
    assert lines[-1].startswith("`x.requires_grad_()` switches requires_grad of w (t1) on. ")
    assert lines[-1].endswith("w (t1) is another name of it.")


def _ran(program: str) -> dict[str, int]:
    """How often each kind of node ran in torch, by its name, while the last line of a program ran."""
    before, line = program.strip().rsplit("\n", 1)
    scope: dict[str, object] = {}
    exec(before, scope)
    counts: dict[str, int] = {}
    todo, seen = [scope["y"].grad_fn, scope["z"].grad_fn], set()
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = node.name().rpartition("::")[2]
        counts.setdefault(name, 0)
        node.register_hook(lambda *_, name=name: counts.__setitem__(name, counts[name] + 1))
        todo += [following for following, _ in node.next_functions]
    exec(line, scope)
    assert (scope["x"].grad, scope["w"].grad) == (None, None)
    return counts


def test_a_backward_that_is_asked_about_one_leaf_passes_nothing_on_to_another():
    lines = said(record(ASKED + "y.backward(inputs=[x])\n"))
    passing = [line for line in lines if "passes it on" in line]
    assert [line.count("(AccumulateGrad)") for line in passing] == [1, 0, 1]
    assert sum("adds it to the `.grad` of x" in line for line in lines) == 1


def test_a_sentence_is_put_into_the_programs_words_once_for_the_page_and_its_text_twin(monkeypatch):
    counted = []
    real = spoken_names._PATTERNS[0][0]

    class Counting:
        def sub(self, instead, part):
            counted.append(part)
            return real.sub(instead, part)

    monkeypatch.setattr(spoken_names, "_PATTERNS", [(Counting(), spoken_names._PATTERNS[0][1])])
    spoken_names._phrased.cache_clear()
    trace = build.chain(300)
    facts = gather(trace)
    views.page(trace, facts=facts)
    views.text(trace, facts=facts)
    spoken_names._phrased.cache_clear()
    assert counted
    assert len(counted) == len({*counted}), "each part once"
    assert len(counted) < 2 * len(trace.events), "and of those that are listed only, in one language"
