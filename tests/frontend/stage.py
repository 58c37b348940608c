"""A blank page in a real Chromium with the widget's module and a stand-in for anywidget's
model: no server, no kernel.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
MODULE = ROOT / "pitfall_lab" / "static" / "explorer.js"
SCREENSHOTS = ROOT / "tests" / "screenshots"
FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip

# JupyterLab's own values of the variables that the Explorer reads.
THEMES = {
    "plain": "",
    "light": (
        "--jp-layout-color1:#fff;--jp-ui-font-color1:rgba(0,0,0,.87);--jp-border-color2:#e0e0e0;--jp-brand-color1:"
        "#1976d2;background:#fff"
    ),
    "dark": (
        "--jp-layout-color1:#111;--jp-ui-font-color1:rgba(255,255,255,1);--jp-border-color2:#616161;--jp-brand-color1:"
        "#2196f3;background:#111;color:#fff"
    ),
    "contrast": "--jp-layout-color1:#000;--jp-ui-font-color1:#fff;--jp-border-color2:#fff;--jp-brand-color1:#4f9dff;"
    "background:#000;color:#fff",
}

# What a widget manager does for the module, in as few lines: state, change events, one view.
MOUNT = """async ({code, states}) => {
  window.broken = [];
  const module = await import(URL.createObjectURL(new Blob([code], {type: "text/javascript"})));
  window.module = module;
  window.widgets = [];
  for (const state of states) {
    for (const name of ["_trace", "_scene"]) {  // bytes, as the kernel sends them
      if (state[name]?.bytes) state[name] = new DataView(Uint8Array.from(atob(state[name].bytes), (one) => one.charCodeAt(0)).buffer);
    }
    const listeners = {};
    const widget = {
      saves: 0,
      get: (name) => state[name],
      set(name, value) {
        if (state[name] === value) return;
        state[name] = value;
        for (const fn of listeners[`change:${name}`] ?? []) fn();
      },
      save_changes() { widget.saves += 1; if (state.dead) throw new Error("the kernel is gone"); },
      on(event, fn) { (listeners[event] ??= []).push(fn); },
      off(event, fn) { listeners[event] = (listeners[event] ?? []).filter((one) => one !== fn); },
      listening: () => Object.values(listeners).flat().length,
    };
    if (state.answers) widget.send = ({what_if}) => {  // a kernel that knows these answers
      const [answer, ...buffers] = state.answers[what_if];
      for (const fn of listeners["msg:custom"] ?? []) fn({what_if, ...answer}, buffers);
    };
    if (state.kernel) widget.send = async (content) => {  // Python itself: what it sends, and the state that it sets
      const [messages, changed] = await window[state.kernel](content);
      for (const [name, text] of Object.entries(changed)) {
        state[name] = typeof text === "string" ? new DataView(Uint8Array.from(atob(text), (one) => one.charCodeAt(0)).buffer) : text;
      }
      for (const name of Object.keys(changed)) for (const fn of listeners[`change:${name}`] ?? []) fn();
      for (const message of messages) for (const fn of listeners["msg:custom"] ?? []) fn(message, []);
    };
    const el = document.createElement("div");
    el.className = "explorer";
    document.getElementById("notebook").append(el);
    widget.remove = await module.default.render({model: widget, el});
    window.widgets.push(widget);
  }
}"""  # noqa: E501


def chromium() -> str:
    """The browser that the tests run in."""
    named = os.environ.get("PITFALL_LAB_CHROMIUM")
    found = named or next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )
    assert found, "no Chromium found: tests/run.py installs one, or PITFALL_LAB_CHROMIUM names it"
    return found


@contextmanager
def browser() -> Iterator[Browser]:
    """A headless Chromium."""
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        yield running
        running.close()


@dataclass
class Stage:
    """One page. Everything it says on its console and everything it asks the network for is kept."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.route("**/*", self._route)

    def _heard(self, message: ConsoleMessage) -> None:
        self.said.append(message.text)

    def _route(self, route: Route, request: Request) -> None:
        self.asked.append(request.url)
        route.abort()

    @contextmanager
    def cleared(self, width: int) -> Iterator[Stage]:
        """The page as it was when it was new; that it speaks on its console or asks the network
        for something fails the test.

        A new page takes Chromium a second of processor time, an empty one of that age nearly none.
        """
        self.page.mouse.move(0, 0)
        self.page.goto("about:blank")
        self.page.set_viewport_size({"width": width, "height": 900})
        # Motion is reduced: where things are, not how they come there.
        self.page.emulate_media(
            color_scheme="light", reduced_motion="reduce", forced_colors="none", contrast="no-preference"
        )
        self.said.clear()
        self.asked.clear()
        yield self
        assert self.said == [], "the page spoke on its console"
        assert self.asked == [], "the page asked the network"

    def show(self, *states: dict[str, Any], theme: str = "plain") -> Locator:
        """Draw one Explorer per state; returns the first one's root inside its shadow."""
        self.page.set_content(
            f'<!doctype html><html lang="en"><title>stage</title><body style="margin:12px;{THEMES[theme]}">'
            '<main id="notebook" tabindex="0" aria-label="notebook"><h1 style="color:inherit">Notebook</h1></main>'
        )
        texts = {"code": MODULE.read_text(encoding="utf-8")}
        self.page.evaluate(MOUNT, {**texts, "states": list(states)})
        return self.page.locator(".explorer").first.locator(".pl-root")

    def state(self, name: str) -> Any:
        """What the widget's state holds: what Python would see."""
        return self.page.evaluate("name => window.widgets[0].get(name)", name)

    def screenshot(self, name: str) -> None:
        """Keep a picture to look at."""
        SCREENSHOTS.mkdir(exist_ok=True)
        self.page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=True)


def state_of(trace: Any, findings: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """The state that the widget class would send for ``trace``."""
    from pitfall_lab import views

    scene = json.dumps(views.scene(trace, findings))
    return {"_trace": trace.to_json(), "_scene": scene, "step": -1, "focus": "", "language": "en", **more}


@contextmanager
def staged(chromium: Browser, width: int) -> Iterator[Stage]:
    """A new page of that width."""
    page = chromium.new_page()
    with Stage(page).cleared(width) as here:
        yield here
    page.close()
