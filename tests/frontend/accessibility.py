"""axe-core on a page: what it finds wrong, one line each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec

from playwright.sync_api import Page

from tests.frontend.stage import ROOT

# Two things that axe-core knows from 4.14 on and the version on the package index does not yet: a section with the role
# of a group is no landmark, and what scrolls can be reached where arrow keys move the one tab stop.
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules on which a theme's colours bear: all others find the same in each."""
RUN = """async ([scope, rules]) => {
  const known = (rule, one) => rule === "landmark-unique" ? one.getAttribute("role") === "group"
    : rule === "scrollable-region-focusable" && one.getAttribute("tabindex") === "-1" && one.closest(".pl-root") !== null;
  const only = rules.length ? {runOnly: rules} : {};
  const found = await axe.run(scope || document, {resultTypes: ["violations"], elementRef: true, ...only});
  return found.violations.flatMap(({id, nodes}) =>
    nodes.filter((node) => !known(id, node.element)).map((node) => `${id}: ${node.html.slice(0, 160)}`));
}"""  # noqa: E501


@cache
def script() -> str:
    """axe-core, as the package axe-playwright-python brings it; in a checkout with `npm ci`
    the front end's own will do.
    """
    if find_spec("axe_playwright_python"):
        return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    own = ROOT / "pitfall_lab" / "frontend" / "node_modules" / "axe-core" / "axe.min.js"
    assert own.is_file(), "axe-core is missing: pip install axe-playwright-python, as the extra `test` does"
    return own.read_text(encoding="utf-8")


def violations(page: Page, scope: str = "", rules: Sequence[str] = ()) -> list[str]:
    """What axe-core finds in the page, or in the elements that the selector ``scope``
    names; by all rules, or by some.
    """
    if not page.evaluate("typeof axe !== 'undefined'"):
        page.evaluate(script())
    return page.evaluate(RUN, [scope, list(rules)])
