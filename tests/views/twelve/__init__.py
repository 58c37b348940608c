"""Twelve programs of 50 to 100 lines with one mistake each, and what the first screen of
the Explorer has to show of it.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from playwright.sync_api import Locator

import pitfall_lab
from pitfall_lab import rules
from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.widgets.explorer import opening_step
from tests.frontend.stage import Stage, state_of

FOLDER = Path(__file__).parent / "programs"
LOOKS = tuple((*size, theme) for size in ((1280, 800), (1920, 1080), (390, 844)) for theme in ("light", "dark"))

#: For each program the rule that explains it, and the texts that have to be seen without scrolling: the guilty tensor,
#: the line that saved or made it, the line that wrote or cut it, and the line that needs it.
SEEN: dict[str, tuple[str, tuple[str, ...]]] = {
    "gpt": ("PL101", ("weights", "weights = F.softmax(scores, dim=-1)", "weights *= self.mask[:time, :time]",
    "loss.backward()")), "resnet": ("PL105", ("out", "out = F.relu(self.bn2(self.conv2(out)))", "out += identity",
    "loss.backward()")), "lstm": ("PL502", ("state", "output, state = self.lstm(embedded, state)", "loss.backward()")),
    "gan": ("PL104", ("discriminator.layers[4].weight", "return self.layers(pictures).view(-1)", "d_optimizer.step()",
    "g_loss")), "vae": ("PL504", ("model.encoder[1].weight", "self.log_variance(hidden)", "loss", "line 61")),
    "long_loop": ("PL701", ("weights", "path.append((step, weights.detach().numpy()))",
    "weights -= schedule.at(step) * weights.grad")), "ppo": ("PL401", ("predicted", "returns", "predicted - returns",
    "(32, 1)", "(32,)", "(32, 32)")), "unet": ("PL301", ("mask",
    "(chance * mask).sum()", "mask[0] = (row - y) ** 2 + (column - x) ** 2 < radius**2", "loss.backward()")),
    "vit": ("PL707", ("tokens",
    "tokens[dropped].zero_()")), "seq2seq": ("PL101", ("states", "states[t + 1] = self.cell(inputs, states[t])",
    "loss.backward()")), "contrastive": ("PL106", ("queue", "negative = q @ self.queue",
    "self.queue[:, self.place : self.place + len(keys)]", "loss")), "diffusion": ("PL703", ('best["enter.weight"]',
    "best = model.state_dict()", "optimizer.step()", "model.load_state_dict(best)")),
}  # fmt: skip
#: Chromium's window at 390 × 844 is for reading on: there, a finding of four moments or of a long
#: sentence ends below its edge.
NARROW = 390


def recorded(name: str, *, fixes: bool = True) -> dict[str, Any]:
    """The state of the Explorer of a program, with the fixes that work."""
    text = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    with redirect_stdout(StringIO()):
        trace = pitfall_lab.record(text, f"{name}.py")
    found = rules.find(trace)
    if fixes:
        with Workshop() as shop:
            found = tried(shop, Subject(text, f"{name}.py"), trace, found)
    step = opening_step(trace, found)
    written = trace.events[step].writes
    return state_of(trace, found, step=step, focus=written[0] if written else "")


def shown(stage: Stage, state: dict[str, Any], width: int, height: int, theme: str) -> Locator:
    """Draw it in a window of that size, at the top."""
    stage.page.set_viewport_size({"width": width, "height": height})
    root = stage.show(dict(state), theme=theme)
    stage.page.evaluate("document.querySelector('#notebook h1').remove()")
    root.locator(".pl-message").wait_for()
    return root


ON_SCREEN = """(root, height) => {
  const seen = (one) => { const box = one.getBoundingClientRect(); return box.width && box.bottom <= height + 1; };
  const parts = [...root.querySelectorAll(".pl-message, .pl-picture *, .pl-fix *")].filter(seen);
  return parts.map((one) => one.textContent.replace(/\\s+/g, " ").trim());
}"""


def missing(root: Locator, name: str, height: int) -> list[str]:
    """What is not on the first screen, of what has to be: the finding's rule, and the texts, in
    elements that are not cut off.
    """
    rule, texts = SEEN[name]
    seen = set(root.evaluate(ON_SCREEN, height))
    about = root.locator(".pl-about").inner_text()
    return [*([] if rule in about else [rule]), *(text for text in texts if not any(text in one for one in seen))]
