"""The Explorer in a real browser: stepping, focus, the story, the other language, the text, and
what it does to the page around it.
"""

from __future__ import annotations

import base64
import json
import re
import zlib
from dataclasses import replace
from itertools import pairwise
from uuid import uuid4

import pytest
from playwright.sync_api import Locator

from pitfall_lab import rules
from pitfall_lab.trace import Gap, Span, T
from pitfall_lab.verify import trace_program
from pitfall_lab.widgets import Explorer
from tests.frontend.sample import TEXT, sample
from tests.frontend.stage import THEMES, Stage, state_of
from tests.views.test_pictures import TABLE, TWICE

TRACE = sample()
LAST = len(TRACE.events) - 1
STATE = state_of(TRACE, rules.find(TRACE))


def opened(stage: Stage, *, theme: str = "plain", **more: object) -> Locator:
    root = stage.show({**STATE, **more}, theme=theme)
    root.locator("input[type=range]").focus()
    return root


def lit(root: Locator, kind: str = "pl-now") -> str:
    return "".join(root.locator(f".pl-text .{kind}").all_inner_texts())


def test_arrows_home_and_end_step_through_every_event(stage: Stage):
    root = opened(stage)
    seen = []
    for _ in TRACE.events:
        stage.page.keyboard.press("ArrowRight")
        seen.append(stage.state("step"))
    assert seen == list(range(LAST + 1))
    stage.page.keyboard.press("ArrowRight")
    assert stage.state("step") == LAST
    stage.page.keyboard.press("Home")
    assert stage.state("step") == -1
    assert root.locator(".pl-sentence").inner_text() == "Before the first operation."
    stage.page.keyboard.press("End")
    stage.page.keyboard.press("ArrowLeft")
    assert stage.state("step") == LAST - 1
    assert root.locator(".pl-count").inner_text() == f"{LAST} / {LAST + 1}"


def test_each_key_is_a_button_of_at_least_24_pixels(stage: Stage):
    root = opened(stage)
    for key, step in (("End", LAST), ("ArrowLeft", LAST - 1), ("Home", -1), ("ArrowRight", 0)):
        root.locator(f'[data-key="{key}"]').click()
        assert stage.state("step") == step
    boxes = [button.bounding_box() for button in root.locator("button:visible:not(.pl-label)").all()]
    assert len(boxes) > 10
    assert all(box and box["width"] >= 24 and box["height"] >= 24 for box in boxes)
    # The name of a tensor within a sentence is as wide as its letters: 24 pixels for `w` would leave a gap in the text.
    assert all((box := name.bounding_box()) and box["height"] >= 24 for name in root.locator(".pl-label:visible").all())


@pytest.mark.parametrize("event", [e for e in TRACE.events if e.kind == "call"], ids=lambda e: f"{e.step}-{e.name}")
def test_exactly_the_expression_of_the_step_is_lit(stage: Stage, event):
    root = opened(stage, step=event.step)
    line = TEXT.split("\n")[event.span.line - 1]
    assert lit(root) == line[event.span.column : event.span.end_column]


def test_a_backward_node_shows_the_forward_operation_that_made_it(stage: Stage):
    root = opened(stage, step=LAST)
    assert lit(root) == "loss.backward()"
    assert lit(root, "pl-origin") == "torch.sigmoid(x)"


def test_e_cycles_saved_changed_raised_and_the_story_can_be_clicked(stage: Stage):
    root = opened(stage)
    steps = []
    for _ in range(4):
        stage.page.keyboard.press("e")
        steps.append(stage.state("step"))
    assert steps == [1, 3, 7, 1]
    assert stage.state("focus") == "S2"
    root.locator('.pl-story [data-role="changed"]').click()
    assert stage.state("step") == 3
    assert root.locator(".pl-story [aria-current]").get_attribute("data-role") == "changed"


def test_brackets_walk_the_events_of_the_focused_storage(stage: Stage):
    opened(stage, focus="S2")
    steps = []
    for _ in range(5):
        stage.page.keyboard.press("]")
        steps.append(stage.state("step"))
    assert steps == [1, 2, 3, 5, 5]
    stage.page.keyboard.press("[")
    assert stage.state("step") == 3


def test_pointing_at_code_focuses_its_tensor_and_leaving_lets_go(stage: Stage):
    root = opened(stage, step=5)
    root.locator('.pl-line[data-line="5"] .pl-name', has_text="h").hover()
    assert stage.state("focus") == "t2"
    same = root.locator(".pl-text .pl-same").all_inner_texts()
    assert same
    assert set(same) == {"h"}
    facts = root.locator(".pl-facts").inner_text()
    assert "version" in facts
    assert "v1" in facts
    assert "float32 [3]" in facts
    root.locator(".pl-head").hover()
    assert stage.state("focus") == ""


def test_a_click_on_an_expression_goes_to_its_step_and_keeps_the_focus(stage: Stage):
    root = opened(stage)
    root.locator('.pl-line[data-line="7"] .pl-name', has_text="sum").nth(1).click()
    root.locator(".pl-head").hover()
    assert (stage.state("step"), stage.state("focus")) == (5, "t5")


def test_the_number_of_a_line_where_something_happened_goes_to_it(stage: Stage):
    root = opened(stage)
    assert root.locator("button.pl-no").all_inner_texts() == ["3", "4", "5", "6", "7", "8"]
    root.locator('.pl-line[data-line="6"] .pl-no').press("Enter")
    assert stage.state("step") == 3


def test_a_fact_says_who_holds_it_and_the_torch_expression_behind_it(stage: Stage):
    root = opened(stage, step=3, focus="t2")
    titles = root.locator(".pl-facts > span[title]").evaluate_all("all => all.map(one => one.title)")
    assert "torch and the shadow engine agree: h._version" in titles
    assert "torch and the shadow engine agree: h.grad_fn" in titles


def test_the_gutter_marks_saved_written_and_raised_and_what_is_ahead_is_faint(stage: Stage):
    root = opened(stage, step=3)
    marks = {role: root.locator(f".pl-marks .pl-mark.pl-{role}") for role in ("saved", "changed", "raised")}
    lines = {
        role: mark.locator("xpath=ancestor::*[@data-line]").get_attribute("data-line") for role, mark in marks.items()
    }
    assert lines == {"saved": "4", "changed": "6", "raised": "8"}
    ahead = {role: "pl-ahead" in (mark.get_attribute("class") or "") for role, mark in marks.items()}
    assert ahead == {"saved": False, "changed": False, "raised": True}


def test_the_finding_tells_its_story_why_and_what_helps(stage: Stage):
    root = opened(stage)
    finding = root.locator(".pl-head").inner_text()
    assert finding.startswith("Line 6 overwrites h")
    assert "saved-tensor-overwritten" in finding
    assert "the model" not in finding, "what two engines say of each other is small print"
    foot = root.locator(".pl-foot").inner_text()
    assert "predicted before torch raised" in foot
    assert "torch and the model agree on" in foot
    assert root.locator(".pl-fix").count() == 4
    assert root.locator(".pl-why").inner_text()
    first = root.locator(".pl-fix").first
    assert first.locator(".pl-old").inner_text().endswith("h.mul_(10)")
    assert "not tried" in first.inner_text()


SCHEDULED = """import torch
net = torch.nn.Linear(2, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.4)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=4)
x, y = torch.randn(20, 2), torch.randn(20, 1)
for epoch in range(4):
    for i in range(0, 20, 4):
        loss = (net(x[i:i + 4]) - y[i:i + 4]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
"""


def test_a_schedule_is_drawn_as_the_curve_of_its_rates(stage: Stage):
    trace = trace_program(SCHEDULED)
    [finding] = [found for found in rules.find(trace) if found.rule == "PL621"]
    root = stage.show(state_of(trace, [finding]))
    curve = root.locator(".pl-curve polyline")
    corners = [tuple(map(float, each.split(","))) for each in curve.get_attribute("points").split()]
    assert len(corners) == 2 * 20
    assert corners[0][1] == 0, "the first rate is the highest"
    assert max(y for _, y in corners[:12]) == 120, "after four updates the rate is 0"
    assert min(y for _, y in corners[12:]) < 5, "and then it rises again"
    label = root.locator(".pl-curve figure > svg").get_attribute("aria-label")
    assert label.startswith("learning rate of 20 updates: first 0.4, lowest 0 from update 5 on, highest 0.4")
    assert root.locator(".pl-curve .pl-goto").count() == 2
    sent = state_of(trace, [finding])
    assert '"points": [[' in sent["_scene"]
    broken = stage.show({**sent, "_scene": sent["_scene"].replace('"points": [[', '"points": [null, [')})
    assert broken.locator(".pl-picture .pl-story li").count() == 2, "of a damaged curve its lines are left"


@pytest.mark.parametrize(
    ("before", "after", "shown", "says"),
    [
        ("epoch 9 loss 0.90 acc 0.41", "epoch 9 loss 0.30 acc 0.97", "epoch 9 loss 0.90 → 0.30 acc 0.41 → 0.97", False),
        ("mean (4.18, -0.35), gap 1", "mean (3.48, 0.03), gap 1", "mean (4.18 → 3.48, -0.35 → 0.03), gap 1", False),
        ("recall 1.00 of 60", "recall 0.40 of 60", "recall 1.00 → 0.40 of 60", True),
        ("a b 1 c", "a d e 2 c", "a b 1 → d e 2 c", False),
        ("1 1.8434330224990845", "1 1.836289644241333", "1 1.84343… → 1.83628…", False),
        (
            "2.4199999999999995 0.123456789",
            "2.4199999999999995 0.123456123",
            "2.41999… 0.123456789 → 0.123456123",
            False,
        ),
    ],
)
def test_what_a_fix_changes_is_shown_word_by_word(stage: Stage, before: str, after: str, shown: str, says: bool):
    finding = rules.find(TRACE)[0]
    fix = replace(finding.fixes[0].as_verified(), printed=rules.Printed("", before, after))
    root = stage.show(state_of(TRACE, [finding.with_fixes((fix,))]))
    assert root.locator(".pl-head .pl-consequence code").inner_text() == shown
    assert root.locator(".pl-printed").count() == 1, "what the headline says is not said again beside its fix"
    assert root.locator(".pl-worse").count() == says
    if says:
        assert "does not speak against the fix" in root.locator(".pl-worse").inner_text()


def test_the_headline_tells_what_only_a_verified_fix_has_shown(stage: Stage):
    finding = rules.find(TRACE)[0]
    shown = rules.Printed("", "loss 0.9", "loss 0.3")
    untried, other = replace(finding.fixes[0], printed=shown), replace(finding.fixes[0].as_verified(), printed=None)
    assert stage.show(state_of(TRACE, [finding.with_fixes((untried,))])).locator(".pl-consequence").count() == 0
    second = replace(finding.fixes[1].as_verified(), printed=shown)
    root = stage.show(state_of(TRACE, [finding.with_fixes((other, second))]))
    assert root.locator(".pl-consequence").count() == 0
    assert root.locator(".pl-fix .pl-printed").count() == 1


def test_a_loop_over_a_loader_puts_no_shape_beside_the_lines_of_its_body(stage: Stage):
    text = (
        "import torch\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "w = torch.ones(3, 2, requires_grad=True)\n"
        "for x, y in DataLoader(TensorDataset(torch.ones(4, 3), torch.ones(4, 1)), batch_size=4):\n"
        "    h = torch.tanh(x).sum(1)\n"
        "    print('a line that makes nothing')\n"
        "    (x @ w).sum().backward()\n"
    )
    trace = trace_program(text)

    def beside(step: int, line: int) -> str:
        root = stage.show(state_of(trace, [], step=step))
        return root.locator(f".pl-line[data-line='{line}'] .pl-hint-value").text_content() or ""

    tanh = next(event.step for event in trace.events if event.name == "tanh")
    last = len(trace.events) - 1
    assert beside(tanh, 5) == "", "a part's shape, (4, 3), is not that of h"
    assert beside(last, 5).startswith("(4,)")
    assert beside(last, 6) == beside(last, 1) == ""


def test_a_word_between_asterisks_is_emphasised(stage: Stage):
    finding = replace(rules.find(TRACE)[0], explanation=T(en="the *first* of 2 * 3, and a*b*c", zh="*首个*"))
    why = stage.show(state_of(TRACE, [finding])).locator(".pl-why")
    assert why.inner_text() == "the first of 2 * 3, and a*b*c"
    assert why.locator("em").all_inner_texts() == ["first"]


def test_once_fixes_were_tried_only_those_that_work_are_offered(stage: Stage):
    finding = rules.find(TRACE)[0]
    first, *others = finding.fixes
    root = stage.show(state_of(TRACE, [finding.with_fixes((*others, first.as_verified()))]))
    assert root.locator(".pl-fix").count() == 1
    assert "verified" in root.locator(".pl-fix .pl-ok").inner_text()
    assert root.locator(".pl-fix p").inner_text() == first.title.en.replace("`", "")


def test_where_no_edit_holds_the_rule_s_advice_is_shown_and_marked_as_not_tried(stage: Stage):
    finding = rules.find(TRACE)[0].with_fixes(())
    root = stage.show(state_of(TRACE, [finding]))
    advice = root.locator(".pl-advice")
    assert advice.locator("p").inner_text() == finding.advice.en.replace("`", "")
    assert "not tried" in advice.locator(".pl-untried").inner_text()
    root.locator("[data-key=language]").click()
    assert advice.locator("p").inner_text() == finding.advice.zh.replace("`", "")


DEEP = """import torch
encoder = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(9, 40)), torch.nn.Linear(40, 1))
opt = torch.optim.SGD(encoder.parameters(), lr=0.1)
for turn in range(3):
    encoder(torch.ones(4, 9)).pow(2).mean().backward()
    opt.step()
"""


@pytest.mark.parametrize("width", [1040, 400])
def test_numbers_of_a_gradient_that_grows_stay_in_their_card(stage: Stage, width: int):
    trace = trace_program(DEEP)
    found = [finding for finding in rules.find(trace) if finding.rule == "PL601"]
    stage.page.set_viewport_size({"width": width, "height": 800})
    root = stage.show(state_of(trace, found))
    assert root.locator(".pl-bar").count() >= 12
    assert "weight.grad" in root.locator(".pl-sum-row code").first.inner_text()
    outside = """all => all.filter(bar => {
        const [inner, card] = [bar, bar.closest("li")].map(one => one.getBoundingClientRect());
        return inner.left < card.left || inner.right > card.right + 1 || inner.bottom > card.bottom + 1;
    }).length"""
    assert root.locator(".pl-bar").evaluate_all(outside) == 0


MOVING = """import torch
import torch.nn.functional as F
torch.manual_seed(0)
class Agent:
    def __init__(self):
        self.online = torch.nn.Linear(4, 2)
        self.optimizer = torch.optim.SGD(self.online.parameters(), lr=1e-4)
    def goal(self, reward, after):
        chosen = self.online(after).argmax(1, keepdim=True)
        return reward + 0.95 * self.online(after).gather(1, chosen).squeeze(1)
    def learn(self, before, actions, rewards, after):
        values = self.online(before).gather(1, actions.unsqueeze(1)).squeeze(1)
        loss = F.smooth_l1_loss(values, self.goal(rewards, after))
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
agent = Agent()
for episode in range(3):
    agent.learn(torch.rand(6, 4), torch.randint(0, 2, (6,)), torch.rand(6), torch.rand(6, 4))
"""


@pytest.mark.parametrize(
    ("program", "rule"), [(MOVING, "PL514"), (DEEP.replace(".mean()", ".mean().mul(1e-4)"), "PL601")]
)
def test_long_names_and_small_numbers_leave_room_for_the_fix_on_the_first_screen(stage: Stage, program: str, rule: str):
    stage.page.set_viewport_size({"width": 1100, "height": 680})  # what JupyterLab leaves of 1280×800
    trace = trace_program(program)
    found = [finding for finding in rules.find(trace) if finding.rule == rule]
    root = stage.show(state_of(trace, [found[0].with_fixes(tuple(fix.as_verified() for fix in found[0].fixes[:1]))]))
    picture = root.locator("[data-part=picture]").bounding_box()
    assert picture["height"] < 250
    copy = root.locator("[data-do=copy]").first.bounding_box()
    top = root.bounding_box()["y"]
    assert copy["y"] + copy["height"] - top <= 680, copy


LONG_NAMES = """import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, tokens, positions):
        queries, keys, values = self.query(tokens), self.key(tokens), self.value(tokens)
        if tokens.size(1) > 1:
            attended = F.scaled_dot_product_attention(queries, keys, values, dropout_p=0.0, is_causal=True)
            attended = attended.relu()
            attended *= positions.unsqueeze(-1)
        return attended


model, classification_head = Attention(8), nn.Linear(8, 1)
outputs = classification_head(model(torch.randn(2, 5, 8), torch.ones(2, 5)))
loss = F.binary_cross_entropy_with_logits(outputs.squeeze(-1), torch.ones(2, 5), reduction="mean")
loss.backward()
"""

# The names, numbers and words of the code and of the edits that stand on two lines.
TORN = """(root) => {
  const torn = [];
  for (const line of root.querySelectorAll('.pl-text, .pl-diff div')) {
    const walker = document.createTreeWalker(line, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
        const range = document.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (range.getClientRects().length > 1) torn.push(word[0]);
      }
    }
  }
  return torn;
}"""


@pytest.fixture(scope="module")
def long_names() -> dict[str, object]:
    trace = trace_program(LONG_NAMES)
    return state_of(trace, rules.find(trace), step=12)


@pytest.mark.parametrize("width", [390, 820, 900, 1040, 1280])
def test_code_wraps_by_its_syntax_and_never_inside_a_name(stage: Stage, long_names: dict[str, object], width: int):
    stage.page.set_viewport_size({"width": width, "height": 800})
    root = stage.show(long_names)
    if width < 720:
        assert root.evaluate(TORN) == [], "the edits"
        root.get_by_role("tab", name="Code").click()
    assert root.locator(".pl-text", has_text="scaled_dot_product_attention").is_visible()
    assert root.evaluate(TORN) == []
    clipped = "all => all.filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"
    assert root.locator(".pl-text, .pl-said").evaluate_all(clipped) == []


def test_a_short_dotted_name_stays_whole_and_a_long_one_is_broken_at_its_dots(stage: Stage):
    lines = [
        "import torch", "class Net:", "    pass", "self = Net()", "self.rate = torch.nn.Linear(2, 2)",
        "self.variance = torch.nn.functional.binary_cross_entropy_with_logits", "x = torch.rand(2, 2)",
        "y = torch.stack([self.rate(x), self.variance(x, x), x.sum().exp()[None]][:1]).mean().exp().log()",
    ]  # fmt: skip
    trace = trace_program("\n".join(lines) + "\n")
    root = stage.show(state_of(trace, step=len(trace.events) - 1))
    breaks = """one => [...one.querySelectorAll('wbr')].map((wbr) => {
      const [before, after] = [document.createRange(), document.createRange()];
      before.setStart(one, 0), before.setEndBefore(wbr);
      after.setStartAfter(wbr), after.setEnd(one, one.childNodes.length);
      return before.toString().slice(-4) + '|' + after.toString().slice(0, 4);
    })"""
    found = root.locator("[data-line='8'] .pl-text").evaluate(breaks)
    assert not [one for one in found if one.endswith(("|.rat", "|.var", "|.sta"))], found
    assert [one for one in found if one.endswith("|.exp")], "behind a call there is a place"
    assert "onal|.bin" in root.locator("[data-line='6'] .pl-text").evaluate(breaks)


def test_code_gets_the_width_that_a_narrow_edit_leaves(stage: Stage, long_names: dict[str, object]):
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    root = stage.show(long_names)
    width = "one => one.getBoundingClientRect().width"
    whole, code = root.evaluate(width), root.locator(".pl-p-code")
    assert code.evaluate(width) > 0.57 * whole
    assert root.locator(".pl-diff div").evaluate_all("all => all.every((one) => one.clientHeight < 30)"), "one row each"
    root.locator("[data-tab=graph]").click()
    assert code.evaluate(width) < 0.56 * whole, "a picture has its own width"
    root.locator("[data-tab=fix]").click()
    assert code.evaluate(width) > 0.57 * whole


@pytest.mark.parametrize("height", [760, 1000])
def test_the_panels_end_where_the_window_ends(stage: Stage, height: int):
    stage.page.set_viewport_size({"width": 1280, "height": height})
    root = opened(stage)
    box, side = root.bounding_box(), root.locator(".pl-main").bounding_box()
    buttons, along = root.locator(".pl-buttons").bounding_box(), root.locator(".pl-transport").bounding_box()
    assert buttons["y"] + buttons["height"] - box["y"] <= height, "the buttons are in sight below the panels"
    assert (
        height - 50 <= side["y"] + side["height"] - box["y"]
        or height - 40 <= along["y"] + along["height"] - box["y"] <= height
    )
    before = side["height"]
    stage.page.keyboard.press("End")
    assert root.locator(".pl-main").bounding_box()["height"] == before, "stepping moves nothing"


def test_a_fix_names_the_line_that_it_changes_and_leads_there(stage: Stage):
    root = opened(stage)
    edit = rules.find(TRACE)[0].fixes[0].edits[0]
    place = root.locator(".pl-fix").first.locator(".pl-places button").first
    assert place.inner_text() == f"line {edit.line}"
    place.click()
    assert TRACE.events[stage.state("step")].span.line == edit.line
    assert root.locator(".pl-now-row").get_attribute("data-line") == str(edit.line)


def test_a_write_that_the_counter_does_not_see_is_said_to_come_past_it(stage: Stage):
    text = (
        "import torch\n"
        "w = torch.ones(3, requires_grad=True)\n"
        "h = w * 1\n"
        "out = h * w\n"
        "h.detach().numpy()[:] = 5\n"
        "out.sum().backward()\n"
    )
    trace = trace_program(text)
    root = stage.show(state_of(trace, rules.find(trace)[:1]))
    written = root.locator(".pl-written").first
    assert written.inner_text() == "written, but its version counter still says 0"
    assert "NumPy" in written.get_attribute("title")
    assert root.locator(".pl-version").first.get_attribute("title").startswith("version 0 of the counter")


def test_the_worst_finding_comes_first(stage: Stage):
    error = rules.find(TRACE)[0]
    note = replace(error, severity="info", name="a-note")
    root = stage.show(state_of(TRACE, [note, error]))
    assert error.name in root.locator(".pl-about").inner_text()
    root.locator("[data-key=finding]").click()
    assert "a-note" in root.locator(".pl-about").inner_text()


def test_without_findings_the_trace_tells_its_own_story(stage: Stage):
    root = stage.show(state_of(TRACE))
    assert root.locator(".pl-story [data-step]").evaluate_all("all => all.map(one => one.dataset.step)") == [
        "1",
        "3",
        "7",
    ]
    assert TRACE.outcome.failure.message in root.locator(".pl-message").inner_text()


def test_text_view_has_every_sentence_and_follows_the_step(stage: Stage):
    root = opened(stage, step=2)
    stage.page.keyboard.press("t")
    rows = root.locator(".pl-textview button")
    assert rows.count() == LAST + 1
    told = rows.all_inner_texts()
    assert any("SigmoidBackward0" in row for row in told)
    assert not [row for row in told if re.search(r"\b[tSCn]\d+\b", row)], "things are called as the program calls them"
    assert rows.locator("xpath=self::*[@aria-current]").get_attribute("data-step") == "2"
    rows.nth(6).click()
    assert stage.state("step") == 6
    stage.page.keyboard.press("t")
    assert root.locator(".pl-panel").count() == 2, "the code, and one panel beside it"


@pytest.mark.parametrize(("width", "shown"), [(1280, 2), (1560, 3)])
def test_a_wide_screen_has_two_panels_beside_the_code(stage: Stage, width: int, shown: int):
    stage.page.set_viewport_size({"width": width, "height": 900})
    root = opened(stage)
    root.locator("[data-tab=graph]").click()
    panels = root.locator(".pl-panel:visible")
    assert panels.count() == shown
    boxes = panels.evaluate_all("all => all.map((one) => [one.offsetLeft, one.offsetLeft + one.offsetWidth])")
    assert all(end <= begin + 1 for (_, end), (begin, _) in pairwise(boxes)), "side by side"


def test_the_node_that_keeps_a_tensor_is_drawn_from_where_it_saves_to_where_it_needs(stage: Stage):
    root = opened(stage)
    kept = [" ".join(one.split()) for one in root.locator(".pl-keep.pl-holds").all_inner_texts()]
    assert kept == [
        "SigmoidBackward0 keeps it for backward, at version 0",
        "",
        "SigmoidBackward0 needs version 0, finds version 1",
    ]
    versions = root.locator(".pl-version")
    assert versions.all_inner_texts() == ["version 0", "version 1", "version 1"]
    assert [one.split()[-1] for one in versions.evaluate_all("all => all.map((one) => one.className)")][1] == "pl-off"


def test_a_forward_before_the_cell_is_drawn_with_what_it_saved_and_what_to_do(stage: Stage):
    names: dict[str, object] = {"__name__": "__main__"}
    exec(
        "import torch\nx = torch.ones(3)\nw = torch.ones(3, 3, requires_grad=True)\nloss = ((x @ w) ** 2).mean()", names
    )
    trace = trace_program("x.add_(1)\nloss.backward()", "In [5]", names)
    stage.page.set_viewport_size({"width": 1280, "height": 800})
    root = stage.show(state_of(trace, rules.find(trace)))
    cards = root.locator("[data-part=picture] li")
    assert cards.locator(".pl-role b").all_inner_texts() == ["saved", "changed", "raised"]
    assert cards.first.locator(".pl-place").inner_text() == "before this cell"
    bars = [" ".join(text.split()) for text in root.locator(".pl-keep").all_inner_texts()]
    assert bars[0] == "MmBackward0 keeps it for backward, at version 0"
    assert "needs version 0, finds version 1" in bars[2]
    helps = root.locator(".pl-fix, .pl-advice").first
    assert "x" in helps.inner_text()
    box = helps.bounding_box()
    assert box["y"] + box["height"] <= 800


def test_dragging_over_the_strip_of_time_steps(stage: Stage):
    root = opened(stage, step=0)
    strip = root.locator("input[type=range]")
    box = strip.bounding_box()
    middle = box["y"] + box["height"] / 2
    stage.page.mouse.move(box["x"] + 12, middle)
    stage.page.mouse.down()
    stage.page.mouse.move(box["x"] + box["width"] / 2, middle, steps=5)
    between = stage.state("step")
    assert 0 < between < LAST
    stage.page.mouse.move(box["x"] + box["width"] - 1, middle, steps=5)
    stage.page.mouse.up()
    assert stage.state("step") == LAST
    assert root.locator(".pl-count").inner_text() == f"{LAST + 1} / {LAST + 1}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_every_button_of_a_telephone_holds_its_words(stage: Stage, language: str):
    stage.page.set_viewport_size({"width": 390, "height": 844})
    root = opened(stage, language=language)
    words = """all => all.filter((one) => one.offsetWidth && one.scrollWidth > one.clientWidth + 1
        && getComputedStyle(one).textOverflow !== 'ellipsis').map((one) => one.textContent)"""
    buttons = root.locator("button")
    assert buttons.count() > 15
    assert buttons.evaluate_all(words) == []


def test_text_comes_into_sight_when_it_opens_below_the_edge(stage: Stage):
    stage.page.set_viewport_size({"width": 1040, "height": 420})
    root = opened(stage, step=2)
    stage.page.keyboard.press("t")
    box = root.locator(".pl-textview").bounding_box()
    assert box is not None
    assert box["y"] < 200


def test_the_story_stands_in_one_column_when_it_is_narrow(stage: Stage):
    stage.page.set_viewport_size({"width": 620, "height": 900})
    root = opened(stage)
    assert len(set(root.locator(".pl-story li").evaluate_all("all => all.map(one => one.offsetLeft)"))) == 1
    arrow = root.locator(".pl-story li").nth(1).evaluate("one => getComputedStyle(one, '::before').content")
    assert arrow == '"↓"'
    left = """all => Math.min(...all.map((one) => one.getBoundingClientRect())
        .filter(({width}) => width).map(({left}) => left))"""
    assert root.locator(".pl-story li, .pl-story li *").evaluate_all(left) >= root.bounding_box()["x"]


def test_help_lists_every_key_in_both_languages(stage: Stage):
    root = opened(stage)
    stage.page.keyboard.press("?")
    assert root.locator(".pl-help dt").count() >= 12
    root.locator('[data-key="language"]').click()
    assert "离开" in root.locator(".pl-help").inner_text()


def test_switching_the_language_keeps_step_and_focus_and_tells_the_widget(stage: Stage):
    root = opened(stage, step=3, focus="S2")
    root.locator('[data-key="language"]').click()
    assert stage.state("language") == "zh"
    assert "就地写入" in root.locator(".pl-sentence").inner_text()
    assert (stage.state("step"), stage.state("focus")) == (3, "S2")
    assert root.get_attribute("lang") == "zh-CN"


def test_each_part_is_one_tab_stop_forwards_and_the_arrows_reach_every_control(stage: Stage):
    root = opened(stage, step=3)
    root.locator("[data-tab=graph]").click()
    stops = "all => all.filter(one => one.tabIndex === 0).map(one => one.closest('[data-part]').dataset.part)"
    everything = "button, input, [tabindex]"
    parts = ["head", "picture", "code", "tabs", "slice", "graph", "transport"]
    assert root.locator(everything).evaluate_all(stops) == parts
    here = "document.querySelector('.explorer').shadowRoot.activeElement?.closest('[data-part]').dataset.part"
    root.locator('[data-key="t"]').focus()
    walked = [stage.page.evaluate(here)]
    for _ in parts[1:]:
        stage.page.keyboard.press("Tab")
        walked.append(stage.page.evaluate(here))
    assert walked == parts
    for _ in range(9):
        stage.page.keyboard.press("ArrowDown")
    assert root.locator(everything).evaluate_all(stops) == parts
    reached = set()
    for _ in range(root.locator(everything).count()):
        stage.page.keyboard.press("ArrowUp")
        reached.add(stage.page.evaluate("document.querySelector('.explorer').shadowRoot.activeElement.dataset.key"))
    assert {"Home", "ArrowLeft", "ArrowRight", "End", "[", "]", "e", "t", "?", "language", "all"} <= reached


def test_escape_goes_to_the_scrubber_and_then_out_to_the_notebook(stage: Stage):
    opened(stage)
    stage.page.keyboard.press("ArrowDown")
    stage.page.keyboard.press("Escape")
    assert stage.page.evaluate("document.querySelector('.explorer').shadowRoot.activeElement.type") == "range"
    stage.page.keyboard.press("Escape")
    assert stage.page.evaluate("document.activeElement.id") == "notebook"


def tried_for(stage: Stage, language: str = "en") -> tuple[Locator, list[object]]:
    """An Explorer whose fixes are being tried, one of three so far, by a Python side that hears and can be stopped."""
    heard: list[object] = []
    trials = {"done": 1, "total": 3, "said": None}
    scene = {**json.loads(STATE["_scene"]), "trying": True, "trials": {**trials, "state": "trying"}}

    def kernel(content: object) -> tuple[list[object], dict[str, str]]:
        heard.append(content)
        stopped = json.dumps({"trying": False, "trials": {**trials, "state": "stopped"}})
        return [], {"_tried": base64.b64encode(zlib.compress(stopped.encode())).decode()}

    name = f"kernel{uuid4().hex}"
    stage.page.expose_function(name, kernel)
    return opened(stage, _scene=json.dumps(scene), kernel=name, language=language), heard


def test_while_fixes_are_tried_a_bar_says_how_far_and_escape_ends_it(stage: Stage):
    root, heard = tried_for(stage)
    bar = root.get_by_role("progressbar", name="fixes tried")
    assert bar.evaluate("one => [one.value, one.max]") == [1, 3]
    assert bar.is_visible()
    assert root.locator(".pl-trying").inner_text() == "Trying fixes on both engines … Stop"
    assert set(root.locator(".pl-fix .pl-act").all_inner_texts()) == {"Copy\nbeing tried …"}
    stage.page.keyboard.press("ArrowRight")
    assert heard == [], "stepping stops nothing"
    stage.page.keyboard.press("Escape")
    root.get_by_text("Stopped: not all fixes were tried.").wait_for()
    assert heard == [{"stop": True}]
    assert bar.count() == 0
    assert set(root.locator(".pl-fix .pl-act").all_inner_texts()) == {"Copy\nnot tried here"}
    stage.page.keyboard.press("Escape")
    assert heard == [{"stop": True}], "what has ended is not stopped again"


@pytest.mark.parametrize(
    ("language", "stop", "said"), [("en", "Stop", "Stopped: not all fixes were tried."), ("zh", "停止", "已停止：")]
)
def test_the_stop_button_ends_what_is_being_tried(stage: Stage, language: str, stop: str, said: str):
    root, heard = tried_for(stage, language)
    button = root.get_by_role("button", name=stop, exact=True)
    box, window = button.bounding_box(), stage.page.viewport_size
    assert box["y"] + box["height"] <= window["height"], "in sight without scrolling"
    button.click()
    root.get_by_text(said).wait_for()
    assert heard == [{"stop": True}]
    assert button.count() == 0


def test_l_shows_the_labels_beside_the_names_and_takes_them_away(stage: Stage):
    root = opened(stage, step=3)
    sentence = root.locator(".pl-sentence")
    plain = sentence.inner_text()
    assert "S2" not in plain
    assert "the version of h" in plain
    stage.page.keyboard.press("l")
    assert "storage S2" in sentence.inner_text()
    assert "counter C2" in sentence.inner_text()
    stage.page.keyboard.press("?")
    assert root.get_by_role("button", name="show labels").get_attribute("aria-pressed") == "true"
    stage.page.keyboard.press("l")
    assert sentence.inner_text() == plain
    assert root.get_by_role("button", name="show labels").get_attribute("aria-pressed") == "false"


# What each arrow key comes to: its outline, and whether it is in sight of the box that it scrolls in.
FOCUSED = """root => {
  const one = root.getRootNode().activeElement, look = getComputedStyle(one);
  const name = (one.getAttribute('aria-label') || one.textContent || one.type).slice(0, 24);
  return [name, look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) >= 2 && look.outlineColor !== look.backgroundColor];
}"""  # noqa: E501


@pytest.mark.parametrize("forced", ["none", "active"])
@pytest.mark.parametrize("tab", ["fix", "graph", "memory"])
def test_what_has_the_focus_has_an_outline(stage: Stage, tab: str, forced: str):
    root = opened(stage, step=4)
    root.locator(f"[data-tab={tab}]").click()
    stage.page.emulate_media(forced_colors=forced)
    root.locator("input[type=range]").focus()
    seen = []
    for _ in range(root.locator("[tabindex], button, input, summary").count()):
        stage.page.keyboard.press("ArrowDown")
        seen.append(root.evaluate(FOCUSED))
    assert len({name for name, _ in seen}) > 15
    assert {name for name, outlined in seen if not outlined} <= {"Step"}, "a slider's outline is around its thumb"
    strip = root.locator(".pl-scrub")
    root.locator("input[type=range]").focus()
    focused = strip.screenshot()
    root.locator("input[type=range]").blur()
    assert strip.screenshot() != focused


def test_in_forced_colours_what_is_chosen_and_what_is_wrong_can_still_be_told(stage: Stage):
    stage.page.emulate_media(forced_colors="active")
    root = opened(stage, step=3)
    chosen = root.locator("[aria-selected=true]:visible, [aria-current]:visible")
    assert chosen.count() > 1
    assert chosen.evaluate_all("all => all.every((one) => parseFloat(getComputedStyle(one).outlineWidth) >= 2)")
    colours = "one => [getComputedStyle(one).color, getComputedStyle(one.closest('.pl-root')).color]"
    red, ink = root.locator(".pl-keep.pl-needs").evaluate(colours)
    assert red != ink, "what backward needs and does not find keeps its red"
    swatch = root.locator(".pl-memory").first.evaluate("one => getComputedStyle(one).borderInlineStartStyle")
    assert swatch == "solid", "a memory keeps its bar where its hue is taken"


def test_with_more_contrast_small_print_has_the_colour_of_the_text(stage: Stage):
    root = opened(stage)
    colours = "root => ['.pl-count', '.pl-message'].map((one) => getComputedStyle(root.querySelector(one)).color)"
    usual = root.evaluate(colours)
    assert usual[0] != usual[1]
    stage.page.emulate_media(contrast="more")
    more = root.evaluate(colours)
    assert more[0] == more[1]


def test_keys_do_not_reach_the_notebook(stage: Stage):
    opened(stage)
    stage.page.evaluate(
        "window.heard = []; document.getElementById('notebook').addEventListener('keydown', e => "
        "window.heard.push(e.key))"
    )
    for key in ("ArrowRight", "e", "t", "?", "[", "Home", "Escape"):
        stage.page.keyboard.press(key)
    assert stage.page.evaluate("window.heard") == []
    assert stage.page.locator(".explorer").get_attribute("data-lm-suppress-shortcuts") == "true"


def test_the_current_event_is_spoken_once_and_politely(stage: Stage):
    root = opened(stage, step=3)
    live = root.locator('[aria-live="polite"]')
    assert live.count() == 1
    assert live.inner_text().startswith(
        "h.mul_(10) writes into the memory of h in place: the version of h goes from 0 to 1."
    )
    assert root.locator("input[type=range]").get_attribute("aria-valuetext") == f"4 / {LAST + 1}"


def test_stepping_goes_on_when_the_kernel_is_gone(stage: Stage):
    root = opened(stage, dead=True)
    stage.page.keyboard.press("End")
    stage.page.wait_for_function("window.widgets[0].saves > 0")
    stage.page.keyboard.press("ArrowLeft")
    assert root.locator(".pl-count").inner_text() == f"{LAST} / {LAST + 1}"


def test_fast_stepping_writes_to_the_kernel_once(stage: Stage):
    root = opened(stage)
    root.locator('[data-key="ArrowRight"]').evaluate("next => { for (let n = 0; n < 8; n += 1) next.click(); }")
    stage.page.wait_for_timeout(400)
    assert stage.page.evaluate("window.widgets[0].saves") <= 2


def test_a_late_echo_of_the_kernel_does_not_take_the_reader_back(stage: Stage):
    root = opened(stage, step=0)
    for step in (1, 2):
        stage.page.keyboard.press("ArrowRight")
        stage.page.wait_for_timeout(250)  # each is saved
        assert stage.state("step") == step
    stage.page.keyboard.press("ArrowRight")
    stage.page.evaluate("window.widgets[0].set('step', 1)")  # what a busy kernel answers now
    assert stage.state("step") == 3
    assert root.locator(".pl-count").inner_text() == f"4 / {LAST + 1}"


def test_what_python_deflated_is_drawn(stage: Stage):
    sent = Explorer(TRACE).get_state()
    packed = {name: {"bytes": base64.b64encode(sent[name]).decode()} for name in ("_trace", "_scene")}
    root = stage.show({**packed, "step": LAST, "focus": "", "language": "en"})
    root.locator("[data-tab=graph]").click()
    root.locator(".pl-p-graph svg").wait_for()
    assert root.locator(".pl-count").inner_text() == f"{LAST + 1} / {LAST + 1}"


def test_what_python_sets_is_shown(stage: Stage):
    root = opened(stage)
    stage.page.evaluate("window.widgets[0].set('step', 3); window.widgets[0].set('language', 'zh')")
    assert lit(root) == "h.mul_(10)"
    assert root.get_attribute("lang") == "zh-CN"


def test_two_explorers_on_a_page_do_not_disturb_each_other(stage: Stage):
    stage.show(dict(STATE), dict(STATE))
    roots = stage.page.locator(".explorer .pl-root")
    roots.nth(1).locator("input[type=range]").focus()
    stage.page.keyboard.press("End")
    assert [stage.page.evaluate(f"window.widgets[{i}].get('step')") for i in (0, 1)] == [-1, LAST]


def test_removing_the_widget_leaves_nothing_behind(stage: Stage):
    opened(stage)
    stage.page.evaluate("window.widgets[0].remove()")
    assert stage.page.evaluate("window.widgets[0].listening()") == 0
    assert stage.page.locator(".explorer .pl-root").inner_text() == ""


def test_a_view_that_fails_is_replaced_by_a_sentence_and_the_others_go_on(stage: Stage):
    scene = json.loads(STATE["_scene"])
    scene["graph"] = {"nodes": [], "count": 3, "modules": 7}
    scene["storage"] = {"storages": [None, {}]}
    root = stage.show({**STATE, "_scene": json.dumps(scene), "step": 3})
    root.locator("[data-tab=graph]").click()
    root.locator("[data-key=all]").click()  # of the finding's slice there is a picture of its own
    assert "Graph could not be drawn here" in root.locator(".pl-p-graph").inner_text()
    assert lit(root) == "h.mul_(10)"


def test_a_view_that_failed_in_python_says_so_and_its_text_is_one_key_away(stage: Stage):
    scene = {**json.loads(STATE["_scene"]), "broadcast": {"failed": "ZeroDivisionError"}}
    root = stage.show({**STATE, "_scene": json.dumps(scene), "step": 3})
    root.locator("[data-tab=broadcast]").click()
    assert "Broadcast could not be drawn here; press T for the text." in root.locator(".pl-p-broadcast").inner_text()
    root.locator("input[type=range]").focus()
    stage.page.keyboard.press("t")
    assert root.locator(".pl-textview").is_visible()


def test_at_360_pixels_one_view_shows_at_a_time_and_nothing_is_cut_off(stage: Stage):
    stage.page.set_viewport_size({"width": 360, "height": 800})
    root = opened(stage, step=3)
    assert root.locator(".pl-panel:visible").count() == 1
    tabs = root.locator(".pl-tabs button")
    for index in range(tabs.count()):
        tabs.nth(index).click()
        assert root.locator(".pl-panel:visible").count() == 1
        stage.screenshot(f"explorer-360-{tabs.nth(index).get_attribute('data-tab')}")
    assert stage.page.evaluate("document.documentElement.scrollWidth") <= 360


NESTED = """import torch
class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.tanh(x)
class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Inner()
    def forward(self, x):
        return self.inner(x) * 2
model = Outer()
x = torch.tensor([0.5, 1.0], requires_grad=True)
for turn in range(3):
    model(x).sum().backward()
"""


def test_the_call_stack_and_the_round_of_the_loop_stand_over_the_code(stage: Stage):
    trace = trace_program(NESTED)
    second = [event.step for event in trace.events if event.span and event.span.line == 4 and event.kind == "call"][1]
    root = stage.show(state_of(trace, step=second))
    crumbs = root.locator(".pl-crumbs")
    assert crumbs.locator("span:not(.pl-turn)").all_inner_texts()[-2:] == ["Outer.forward", "Inner.forward"]
    assert crumbs.locator(".pl-turn").inner_text() == "2nd of 3 times this line ran"
    assert "(2,) [0.462, 0.762]" in " ".join(root.locator("[data-line='4'] .pl-hint-value span").all_inner_texts())


COUNTED = """import torch
w, v = torch.ones(2, requires_grad=True), torch.ones(3, requires_grad=True)
opt = torch.optim.Adam([w, v], lr=0.1)
for turn in range(3):
    loss = w.sum() * v.sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if turn:
        w.data.mul_(2)
sums = [v.sum() * turn for turn in range(4)]
"""


@pytest.mark.parametrize(
    ("line", "operation", "at", "said"),
    [
        (5, "mul", 1, ["round 2 of 3", "第 2 轮，共 3 轮"]),
        (8, "addcdiv_", 3, ["round 2 of 3", "第 2 轮，共 3 轮"]),  # the second parameter of the second round
        (10, "mul_", 0, ["1st of 2 times this line ran", "这一行第 1 次执行，共 2 次"]),
        (11, "mul", 2, []),  # the line runs once, its expression four times
    ],
)
def test_a_count_is_one_of_rounds_or_of_times_that_the_line_ran(
    stage: Stage, line: int, operation: str, at: int, said: list[str]
):
    trace = trace_program(COUNTED)
    calls = [e for e in trace.events if e.span and e.span.line == line and e.kind == "call" and e.name == operation]
    shown = [
        text
        for language in ("en", "zh")
        for text in stage.show(state_of(trace, step=calls[at].step, language=language))
        .locator(".pl-turn")
        .all_inner_texts()
    ]
    assert shown == said


RESET = """import torch
w = torch.tensor(1.0, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.1)
for slope in (1.0, 2.0, 3.0, 4.0):
    optimizer.zero_grad()
    (w * slope).backward()
"""
STEPPED = """import torch
a, b = torch.ones(1, requires_grad=True), torch.ones(1, requires_grad=True)
first, second = torch.optim.SGD([a], lr=0.1), torch.optim.SGD([b], lr=0.1)
a.grad, b.grad = torch.ones(1), torch.ones(1)
for turn in range(3):
    first.step()
    second.step()
"""


@pytest.mark.parametrize(
    ("program", "line", "said"),
    [
        # The first `zero_grad` finds no gradient and leaves no step; in two rounds, only one of them does.
        (RESET, 5, [f"round {n} of 4" for n in (2, 3, 4)]),
        (RESET.replace(", 3.0, 4.0", ""), 5, ["round 2 of 2"]),
        (RESET, 6, [f"round {n} of 4" for n in (1, 1, 2, 2, 3, 3, 4, 4)]),
        # No line calls torch itself in every round, so that the rounds are not known.
        (STEPPED, 6, [f"{n} of 3 such steps on this line" for n in ("1st", "2nd", "3rd")]),
    ],
)
def test_a_line_that_leaves_no_step_in_a_round_is_counted_with_the_others(
    stage: Stage, program: str, line: int, said: list[str]
):
    trace = trace_program(program)
    steps = [e.step for e in trace.events if e.span and e.span.line == line and e.kind == "call" and e.parent is None]
    shown = [stage.show(state_of(trace, step=step)).locator(".pl-turn").all_inner_texts() for step in steps]
    assert shown == [[text] for text in said]


def test_of_a_program_that_was_seen_in_part_the_count_is_of_what_was_recorded(stage: Stage):
    trace = trace_program(COUNTED)
    part = replace(trace, reach=replace(trace.reach, gaps=(Gap(len(trace.events), 4),)))
    step = next(e.step for e in trace.events if e.span and e.span.line == 5)
    turn = stage.show(state_of(part, step=step)).locator(".pl-crumbs .pl-turn")
    assert turn.inner_text() == "1st of 3 recorded times this line ran"


@pytest.mark.parametrize(
    ("program", "said"),
    [
        (
            """import torch
w = torch.ones(2, requires_grad=True)
state = torch.ones(2)
for turn in range(2):
    state = (w * state).tanh()
    state.sum().backward()
""",
            ["line 5, round 1", "line 6, round 1", "line 5, round 2", "line 6, round 2"],
        ),
        (
            """import torch
w = torch.ones(2, requires_grad=True)
def cell(state):
    return (w * state).tanh()
state = torch.ones(2)
for turn in range(2):
    state = cell(state)
    state.sum().backward()
""",
            ["line 4, 1st time", "line 8, round 1", "line 4, 2nd time", "line 8, round 2"],
        ),
    ],
)
def test_cards_of_one_line_say_which_round_they_are(stage: Stage, program: str, said: list[str]):
    trace = trace_program(program)
    root = stage.show(state_of(trace, rules.find(trace)[:1]))
    assert root.locator(".pl-story .pl-place").all_inner_texts() == said


def test_a_card_says_of_a_large_memory_that_it_was_written_again_where_only_its_mean_shows_it(stage: Stage):
    trace = trace_program(
        "import numpy as np\nimport torch\nshared = np.zeros(512, dtype=np.float32)\nx = torch.from_numpy(shared)\n"
        "w = torch.ones(512, requires_grad=True)\nloss = (w * x).sum()\nfor at in (100, 200):\n"
        "    shared[at] = 5.0\n    torch.zeros(1)\nloss.backward()\n"
    )
    found = [finding for finding in rules.find(trace) if finding.rule == "PL301"]
    root = stage.show(state_of(trace, found))
    assert root.locator(".pl-story .pl-written").all_inner_texts() == [
        "overwritten",
        "overwritten again",
    ]


@pytest.mark.parametrize(("rows", "part"), [(4, False), (10, False), (32, True)])
def test_a_table_that_is_drawn_in_part_says_so(stage: Stage, rows: int, part: bool):
    program = TABLE.replace("torch.tensor([[0.0], [1.0], [2.0], [4.0]])", f"torch.linspace(0, 1, {rows})[:, None]")
    trace = trace_program(program.replace("torch.tensor([1.0, 3.0, 5.0, 2.0])", f"3 * torch.linspace(0, 1, {rows})"))
    board = stage.show(state_of(trace, rules.find(trace))).locator(".pl-board")
    drawn = 9 if part else rows
    assert board.locator(".pl-grid .pl-own").count() == drawn
    assert board.locator(".pl-grid .pl-more").count() == (2 * drawn + 1 if part else 0)
    said = "first 9 of 32 rows, 9 of 32 columns"
    assert board.locator(".pl-part").all_inner_texts() == ([said] if part else [])
    assert (said in board.locator(".pl-grid").get_attribute("aria-label")) == part


VIEWS = """import numpy as np
import torch
readings = np.array([1.5, 2.5, 3.5])
whole = torch.from_numpy(readings)
tail = torch.from_numpy(readings[1:])
tail[0] = -9.0
week = torch.arange(6.0).view(2, 3)
second = week[1]
second.mul_(10)
"""


@pytest.mark.parametrize(
    ("line", "operation", "head"),
    [(6, "[…] =", "readings, whole, tail 3 cells"), (9, "mul_", "week, second version 1 6 cells")],
)
def test_of_views_in_one_box_only_that_is_said_which_holds_of_all(stage: Stage, line: int, operation: str, head: str):
    trace = trace_program(VIEWS)
    step = next(event.step for event in trace.events if event.span and event.span.line == line)
    part = stage.show(state_of(trace, step=step)).locator("[data-part=step]")
    assert part.locator(".pl-op").inner_text() == operation
    assert " ".join(part.locator(".pl-named").last.inner_text().split()) == head


def test_a_step_that_clears_a_gradient_shows_the_gradient_and_not_the_tensor(stage: Stage):
    source = "import torch\nw = torch.tensor([3.0], requires_grad=True)\n(w * 9).sum().backward()\nw.grad = None\n"
    trace = trace_program(source)
    part = stage.show(state_of(trace, step=len(trace.events) - 1)).locator("[data-part=step]")
    assert part.locator(".pl-op").inner_text() == ".grad ="
    assert [" ".join(text.split()) for text in part.locator(".pl-memory").all_inner_texts()] == [
        "w.grad before 9",
        "w.grad after None",
    ]


HELD = "import torch\nw = torch.ones(1, requires_grad=True)\nw.sum().backward()\nfound = w.grad\n"


@pytest.mark.parametrize(
    ("source", "head"),
    [
        (f"{HELD}slope = found.detach()\nslope.fill_(2.0)\n", "found, w.grad, slope"),
        ("import torch\nb = torch.ones(4)\np = b.chunk(2)\np[0].add_(1)\n", "b, p[0]"),
    ],
)
def test_a_step_names_the_gradient_and_the_part_that_is_written(stage: Stage, source: str, head: str):
    trace = trace_program(source)
    part = stage.show(state_of(trace, step=len(trace.events) - 1)).locator("[data-part=step]")
    assert " ".join(part.locator(".pl-named").last.inner_text().split()).startswith(head)


def test_what_a_line_made_is_called_now_where_another_line_has_written_into_it(stage: Stage):
    source = "import torch\nx = torch.tensor([0.5, -1.0])\nh = torch.sigmoid(x)\nh.mul_(10)\n"
    trace = trace_program(source)
    for step, said in ((1, "(2,) [0.622, 0.269]"), (2, "(2,) now [6.22, 2.69]")):
        root = stage.show(state_of(trace, step=step))
        assert " ".join(root.locator("[data-line='3'] .pl-hint-value span").all_inner_texts()) == said
    assert " ".join(root.locator("[data-line='4'] .pl-hint-value span").all_inner_texts()) == "(2,) [6.22, 2.69]"


MANY = """import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(3, 3) for _ in range(4)])
    def forward(self, x):
        for layer in self.layers:
            x = torch.tanh(layer(x)) * 2
        return x
net = Net()
y = net(torch.ones(2, 3))
"""


def test_what_a_step_takes_and_makes_is_never_all_grey_and_never_alike(stage: Stage):
    trace = trace_program(MANY)
    calls = [event for event in trace.events if event.operands and event.results and event.kind == "call"]
    last = [event for event in calls if event.span and event.span.line == 8][-3:]
    assert len({storage for event in trace.events for storage in event.writes}) > 6, "more memories than hues"
    for event in last:
        root = stage.show(state_of(trace, step=event.step))
        hues = root.locator("[data-part=step] .pl-memory").evaluate_all(
            "all => all.map((one) => one.getAttribute('style').split(':')[1])"
        )
        assert len(hues) >= 2
        assert "#8A8A8A" not in hues, event.op
        assert len({*hues}) == len(hues), "two memories, two hues"
        said = root.locator(".pl-sentence .pl-label").evaluate_all(
            "all => all.map((one) => (one.getAttribute('style') ?? ':').split(':')[1])"
        )
        assert hues[-1] in said, "the sentence has the colours of the picture"


def test_numbers_of_a_sum_have_bars_of_one_scale(stage: Stage):
    trace = trace_program(TWICE)
    root = stage.show(state_of(trace, rules.find(trace)))
    bars = root.locator(".pl-sum .pl-bar").evaluate_all(
        "all => all.map((one) => [Number(one.textContent), parseFloat(one.firstElementChild.style.inlineSize)])"
    )
    most = max(abs(number) for number, _ in bars)
    assert len({number for number, _ in bars}) > 2
    assert all(width == pytest.approx(100 * abs(number) / most, abs=0.5) for number, width in bars)


@pytest.mark.parametrize(("language", "open_"), [("en", "("), ("zh", "（")])
def test_each_shortcut_stands_in_the_title_of_its_button(stage: Stage, language: str, open_: str):
    root = opened(stage, language=language)
    keys = {"Home": "Home", "ArrowLeft": "←", "ArrowRight": "→", "End": "End", "[": "[", "]": "]", "e": "E", "t": "T"}
    for key, shown in keys.items():
        title = root.locator(f"[data-key='{key}']").get_attribute("title")
        assert f"{open_}{shown}" in title, title


def test_a_line_that_makes_a_module_has_no_tensor_beside_it(stage: Stage):
    lines = [
        "import torch", "from torch import nn", "layer = nn.Linear(3, 2)",
        "body = nn.Sequential(nn.BatchNorm1d(2), nn.LSTM(2, 4))",
        "kept = layer.state_dict()", "out = nn.Linear(3, 5)(torch.ones(4, 3))", "w = nn.init.ones_(torch.empty(2))",
        "y = layer(torch.ones(3))",
    ]  # fmt: skip
    root = stage.show(state_of(trace_program("\n".join(lines) + "\n"), step=10**6))
    said = [root.locator(f"[data-line='{n}'] .pl-hint-value").inner_text() for n in (3, 4, 5, 6, 7, 8)]
    assert [text.split(")")[0] for text in said] == ["", "", "", "(4, 5", "(2,", "(2,"]


def test_an_edge_of_a_later_backward_carries_what_that_one_sent(stage: Stage):
    lines = ["import torch", "x = torch.tensor(3.0, requires_grad=True)", "(x * x).backward()", "(x ** 3).backward()"]
    trace = trace_program("\n".join(lines))
    root = stage.show(state_of(trace, step=len(trace.events) - 1))
    root.locator("[data-tab=graph]").click()
    seen = "all => all.filter(one => getComputedStyle(one).visibility === 'visible').map(one => one.textContent)"
    flowing = root.locator(".v-halo").evaluate_all(seen)
    assert "27" in [one.rstrip(".") for one in flowing]
    assert "()" not in flowing


def test_in_backward_the_edges_carry_the_numbers_that_flow_and_the_leaf_what_became_of_them(stage: Stage):
    trace = trace_program(
        "import torch\nx = torch.tensor([2.0, 3.0], requires_grad=True)\ny = x * x\n(y * 5).sum().backward()\n"
    )
    root = stage.show(state_of(trace, step=len(trace.events) - 1))
    root.locator("[data-tab=graph]").click()
    seen = "all => all.filter(one => getComputedStyle(one).visibility === 'visible').map(one => one.textContent)"
    flowing = root.locator(".v-halo").evaluate_all(seen)
    assert "5., 5." in flowing, "into x * x"
    assert "1., 1." in flowing, "into the product"
    leaf = " ".join(root.locator(".v-card", has_text="x").locator("text").all_text_contents())
    assert ".grad [20., 30.]" in leaf


@pytest.mark.parametrize("width", [640, 390], ids=["200 % zoom of 1280 px", "a telephone"])
def test_with_little_room_every_word_of_the_first_screen_can_be_read(stage: Stage, width: int):
    stage.page.set_viewport_size({"width": width, "height": 800})
    for program in (DEEP, TEXT):
        trace = trace_program(program)
        root = stage.show(state_of(trace, [finding.with_fixes(()) for finding in rules.find(trace)[:1]]))
        assert root.locator(".pl-advice").count() == 1
        assert stage.page.evaluate("document.documentElement.scrollWidth") <= width
        cut = """(all, width) => all.filter(one => {
            const box = one.getBoundingClientRect();
            return box.width && (box.right > width || box.left < 0 || one.scrollWidth > one.clientWidth + 1 && one.clientWidth);
        }).map(one => one.outerHTML.slice(0, 120))"""  # noqa: E501
        texts = root.locator(
            ".pl-message, .pl-about > *, .pl-picture p, .pl-picture button, .pl-advice p, .pl-tabs button"
        )
        assert texts.evaluate_all(cut, width) == []


# For every element with text of its own: the contrast of its colour against the nearest background behind it.
CONTRAST = """() => {
  const paint = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
  const rgb = (colour) => {
    paint.clearRect(0, 0, 1, 1);
    paint.fillStyle = colour;
    paint.fillRect(0, 0, 1, 1);
    return [...paint.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (one) => {
    for (; one; one = one.parentElement) {
      const colour = rgb(getComputedStyle(one).backgroundColor);
      if (colour[3] > 200) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const one of document.querySelector(".explorer").shadowRoot.querySelectorAll(".pl-root *")) {
    const own = [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!own || one.closest("svg,style") || !one.checkVisibility()) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(behind(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) found.push(`${one.className} ${one.textContent.slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return found;
}"""  # noqa: E501


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("keys", ["", "?", "t"])
def test_every_text_can_be_read(stage: Stage, theme: str, keys: str):
    opened(stage, theme=theme, step=3, focus="S2")
    for key in keys:
        stage.page.keyboard.press(key)
    stage.page.wait_for_timeout(500)
    assert stage.page.evaluate(CONTRAST) == []


def test_every_control_has_a_name(stage: Stage):
    root = opened(stage, step=3)
    names = root.locator("button, input, [role=button], [role=region], [role=group]").evaluate_all(
        "all => all.filter(one => !(one.getAttribute('aria-label') || "
        "one.textContent.trim())).map(one => one.outerHTML)"
    )
    assert names == []


@pytest.mark.parametrize("theme", [name for name in THEMES if name != "plain"])
@pytest.mark.parametrize("width", [1040, 1500])
def test_screenshots_in_each_theme(stage: Stage, theme: str, width: int):
    stage.page.set_viewport_size({"width": width, "height": 1000})
    root = opened(stage, theme=theme, step=3, focus="S2", language="zh" if theme == "dark" else "en")
    dark = theme != "light"
    stage.page.wait_for_function(
        "dark => (document.querySelector('.explorer').shadowRoot.querySelector('.pl-dark') !== null) === dark", arg=dark
    )
    assert root.is_visible()
    stage.screenshot(f"explorer-{theme}-{width}")
    stage.page.keyboard.press("End")
    stage.page.keyboard.press("?")
    stage.screenshot(f"explorer-{theme}-{width}-end")


def test_the_headline_says_that_observation_stopped(stage: Stage):
    trace = trace_program(
        "import torch\nx = torch.ones(2)\nfor _ in range(9):\n    x = x * 2\nprint(x.sum())\n", limit=5
    )
    root = stage.show(state_of(trace))
    assert root.locator(".pl-outcome").inner_text() == "■ the recording reached its limit at line 4"
    assert "pl-bad" not in root.locator(".pl-outcome").get_attribute("class"), "red is for what went wrong"
    why = root.locator(".pl-stopped").inner_text()
    assert why.startswith("Observation stopped here, because the trace has reached its limit of 5 steps")
    assert why.endswith("all from lines that were seen before.")
    root.locator("[data-key=language]").click()
    assert root.locator(".pl-outcome").inner_text() == "■ 记录在第 4 行达到上限"
    assert root.locator(".pl-stopped").inner_text().startswith("从这里起停止观察")


def test_a_program_that_was_seen_to_its_end_has_its_outcome_as_headline(stage: Stage):
    root = stage.show(state_of(trace_program("import torch\nx = torch.ones(2)\n")))
    assert root.locator(".pl-message").inner_text() == "✓ finished without an error"
    assert root.locator(".pl-outcome").inner_text() == "no rule found a mistake here"
    assert root.locator(".pl-stopped").count() == 0
    root = stage.show(state_of(trace_program("x = 1\n")))
    assert root.locator(".pl-outcome").inner_text() == "no call to torch was seen"


def test_what_grad_returns_is_drawn_as_returned_and_not_as_added_to_a_leaf(stage: Stage):
    """torch does not run AccumulateGrad for it; for `backward()` it does (the second pass)."""
    trace = trace_program(
        "import torch\n"
        "x = torch.tensor(4.0, requires_grad=True)\n"
        "y = x ** 3\n"
        "(slope,) = torch.autograd.grad(y, x, retain_graph=True)\n"
        "y.backward()\n"
    )
    first, second = [event.step for event in trace.events if event.op == "PowBackward0"]
    root = stage.show(state_of(trace, []))
    steps, arrows = [], []
    for step in (first, second):
        stage.page.evaluate("step => window.widgets[0].set('step', step)", step)
        steps.append(root.locator(".pl-step .pl-flowing").text_content())
        arrows.append(root.locator("g:not(.v-away) > path.v-back").count())
    assert "slope" in steps[0]
    assert "returned: the gradient of x" in steps[0]
    assert "AccumulateGrad" not in steps[0]
    assert "AccumulateGrad" in steps[1]
    assert "x.grad" in steps[1]
    assert arrows == [0, 1]


LAID = """import torch
x = torch.arange(6.0).reshape(2, 3)
turned = x.t()
flat = turned.view(-1)
"""
REPEATED = """import torch

row = torch.tensor([1.0, 2.0, 3.0])
w = torch.ones(2, 3, requires_grad=True)
table = row.expand(2, 3)
table[0] = 0.0
loss = (w * table).sum()
loss.backward()
print(table)
"""
COLUMNS = """import torch
torch.manual_seed(0)
cov = torch.eye(6) * 4 + 1
root = torch.linalg.cholesky(cov)
draws = torch.randn(20000, 6) @ root
print(draws.T.cov())
"""


def _cards(stage: Stage, program: str, rule: str, width: int = 1040) -> Locator:
    stage.page.set_viewport_size({"width": width, "height": 800})
    trace = trace_program(program)
    return stage.show(state_of(trace, [one for one in rules.find(trace) if one.rule == rule])).locator(
        ".pl-story .pl-memory"
    )


def test_a_tensor_whose_elements_lie_in_another_order_is_drawn_as_it_is_and_not_as_they_lie(stage: Stage):
    before, after = _cards(stage, LAID, "PL406").all()
    assert before.locator(".pl-cell").all_inner_texts() == ["0", "1", "2", "3", "4", "5"]
    assert after.locator(".pl-cell").all_inner_texts() == ["0", "3", "1", "4", "2", "5"]
    assert after.locator("small").all_inner_texts() == ["(3, 2)", "stride (1, 3)"]
    tops = {round(one.bounding_box()["y"]) for one in after.locator(".pl-cell").all()}
    assert len(tops) == 3


def test_a_cell_that_is_read_again_is_dashed(stage: Stage):
    card = _cards(stage, REPEATED, "PL404").last
    assert card.locator(".pl-cell").count() == 6
    assert card.locator(".pl-cell.pl-again").count() == 3
    assert card.locator(".pl-fresh").count() == 6


@pytest.mark.parametrize("width", [1040, 360])
def test_of_a_large_tensor_kept_by_columns_the_first_column_is_drawn(stage: Stage, width: int):
    cards = _cards(stage, COLUMNS, "PL839", width)
    assert cards.first.locator(".pl-cells > *").all_inner_texts()[:6] == ["2.24", "…", "0.447", "…", "0.447", "…"]
    assert cards.first.locator(".pl-cells > *").all_inner_texts()[6] == "⋮"
    unknown = cards.filter(has_text="draws").last
    assert unknown.locator("small").first.get_attribute("title") == "its numbers were not recorded"
    assert unknown.locator(".pl-cells").count() == 0


LEADING = """import torch
h = torch.sigmoid(torch.zeros(2, 4, requires_grad=True))
turned = h.t()
first = turned[:, 0]
more = first * 2
total = more.sum()
h.mul_(10)
total.backward()
"""


@pytest.mark.parametrize("width", [1040, 360])
def test_over_a_card_are_the_lines_that_lead_to_it(stage: Stage, width: int):
    cards = _cards(stage, LEADING, "PL101", width)
    label = cards.locator("xpath=ancestor::ol[1]").first.locator(".pl-between")
    assert label.inner_text() == "via line 3: t, 2 more, line 6: sum"
    inside = label.evaluate("one => one.scrollWidth <= one.clientWidth && one.nextSibling.offsetTop >= one.offsetTop")
    assert inside


def test_cards_and_notes_in_the_code_have_the_same_numbers_where_their_order_is_known(stage: Stage):
    trace = trace_program(
        "import torch\ndef f(h):\n    h.mul_(2)\n"
        "x = torch.ones(2, requires_grad=True)\nh = x.exp()\nf(h)\nh.sum().backward()\n"
    )
    finding = rules.find(trace)[0]
    root = stage.show(state_of(trace, [finding]))
    cards = {row.split()[-1]: row.split()[0] for row in root.locator(".pl-role").all_inner_texts()}
    notes = {
        row.get_attribute("data-line"): row.locator(".pl-note").first.inner_text().split()[0]
        for row in root.locator(".pl-line:has(.pl-note:not(.pl-n-leads))").all()
    }
    assert cards == {"5": "1", "3": "2", "7": "3"}
    assert len(notes) > 1
    assert notes.items() <= cards.items()
    # A line without a call of torch: when it ran is not known.
    related = [replace(finding.related[0], step=None, span=Span(1, 0, 1, 12)), *finding.related[1:]]
    root = stage.show(state_of(trace, [replace(finding, related=related)]))
    assert not any(text[0].isdigit() for text in root.locator(".pl-role").all_inner_texts())


def test_what_helps_comes_before_its_picture_in_a_narrow_column_only(stage: Stage):
    trace = trace_program("import torch\nh = torch.ones(2, requires_grad=True).exp()\nh.mul_(2)\nh.sum().backward()\n")
    tops = "(root) => ['.pl-main', '.pl-picture'].map((one) => root.querySelector(one).getBoundingClientRect().top)"
    for width, first in ((1280, False), (390, True), (1280, False)):
        stage.page.set_viewport_size({"width": width, "height": 800})
        root = stage.show(state_of(trace, rules.find(trace)))
        main, picture = root.evaluate(tops)
        assert (main < picture) is first, width


def test_the_parts_of_a_complex_number_are_as_short_as_other_numbers(stage: Stage):
    trace = trace_program("import torch\nz = torch.tensor([0.340456655 + 0.940260212j, complex('nan'), 1 - 2e-9j])\n")
    text = stage.show(state_of(trace, [], step=0)).locator(".pl-step").inner_text()
    assert "0.34+0.94j" in text
    assert "0.340456655" not in text
    assert "nan" in text
