"""Pictures of every view to look at: ``python -m tests.views.screenshots [FOLDER]``.

Each view in the Explorer, each with a program that it is made for, at three widths in light and dark, and at the middle
one in high contrast; then the whole Explorer and the page without a kernel. Real Chromium, the built script, no kernel,
no network. A page that speaks on its console or asks the network for something stops the command.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

import pitfall_lab
from pitfall_lab import rules, views
from pitfall_lab.trace import Trace
from tests.frontend.stage import SCREENSHOTS, browser, staged, state_of

WIDTHS = (360, 760, 1300)
CONTRAST = 760

BLOCK = """\
import torch

x = torch.linspace(-1, 1, 8).reshape(2, 4).requires_grad_()
w = torch.full((4, 4), 0.5, requires_grad=True)
h = torch.sigmoid(x @ w)
gate = h * 2
h[0].mul_(10)
out = gate + h
loss = (out ** 2).mean()
loss.backward()
"""
WINDOWS = """\
import torch

x = torch.arange(12.0).reshape(3, 4)
t = x.t()
every_other = x[:, ::2]
wide = x[0].expand(3, 4)
a = x.numpy()[::-1]
x[1].zero_()
"""
TRAP = """\
import torch

prediction = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
target = torch.tensor([1.0, 2.0, 3.0])
loss = ((prediction - target) ** 2).mean()
loss.backward()
"""
STEPS = """\
import torch

w = torch.randn(64, 64, requires_grad=True)
x = torch.randn(32, 64)
for _ in range(3):
    h = torch.relu(x @ w)
    h = torch.tanh(h @ w)
    loss = h.square().mean()
    loss.backward()
    with torch.no_grad():
        w -= 0.1 * w.grad
    w.grad = None
"""
PROGRAMS = {"code": (BLOCK, 5), "graph": (BLOCK, None), "storage": (WINDOWS, None), "broadcast": (TRAP, None),
            "versions": (BLOCK, None), "memory": (STEPS, 20)}  # fmt: skip


def main(words: list[str]) -> None:
    """Take them all and print where they lie."""
    folder = Path(words[0]) if words else SCREENSHOTS / "views"
    folder.mkdir(parents=True, exist_ok=True)
    looks = [(width, theme) for width in WIDTHS for theme in ("light", "dark")] + [(CONTRAST, "contrast")]
    traces = {name: pitfall_lab.record(text, "program.py") for name, (text, _) in PROGRAMS.items()}
    with browser() as chromium:
        for width, theme in looks:
            for name in views.names():
                own = name if name in PROGRAMS else "graph"
                _view(chromium, name, traces[own], PROGRAMS[own][1], (width, theme, folder))
            _explorer(chromium, traces["graph"], (width, theme, folder))
            _page(chromium, traces["graph"], (width, theme, folder))
    print(f"{len(looks) * (len(views.names()) + 2)} pictures in {folder}")


Look = tuple[int, str, Path]


def _state(trace: Trace, step: int | None) -> dict[str, Any]:
    last = len(trace.events) - 1
    return state_of(trace, rules.find(trace), step=last if step is None else min(step, last))


def _view(chromium: Browser, name: str, trace: Trace, step: int | None, look: Look) -> None:
    width, theme, folder = look
    with staged(chromium, width) as stage:
        root = stage.show(_state(trace, step), theme=theme)
        if (tab := root.locator(f"[data-tab={name}]")).is_visible():
            tab.click()
        stage.page.mouse.move(0, 0)
        panel = root.locator(f".pl-p-{name}")
        panel.scroll_into_view_if_needed()
        panel.screenshot(path=folder / f"{name}-{width}-{theme}.png")


def _explorer(chromium: Browser, trace: Trace, look: Look) -> None:
    width, theme, folder = look
    with staged(chromium, width) as stage:
        stage.show(_state(trace, None), theme=theme)
        stage.page.screenshot(path=folder / f"explorer-{width}-{theme}.png", full_page=True)


def _page(chromium: Browser, trace: Trace, look: Look) -> None:
    width, theme, folder = look
    with staged(chromium, width) as stage:
        dark = theme != "light"
        stage.page.emulate_media(
            color_scheme="dark" if dark else "light", forced_colors="active" if theme == "contrast" else "none"
        )
        stage.page.set_content(views.page(trace, rules.find(trace)))
        stage.page.screenshot(path=folder / f"page-{width}-{theme}.png", full_page=True)


if __name__ == "__main__":
    main(sys.argv[1:])
