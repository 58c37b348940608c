"""JupyterLab starts by our command, shows the chapters and runs a cell."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Lab


def test_a_cell_runs_in_jupyterlab_started_by_our_command(lab: Lab) -> None:
    lab.open(lab.server.write("smoke.ipynb", "print(6 * 7)"))
    lab.run_cell(0)
    expect(lab.cell(0).locator(".jp-OutputArea-output")).to_have_text("42\n")


def test_the_start_notebook_is_the_first_page(lab: Lab) -> None:
    lab.page.goto(f"{lab.server.url}/?token={lab.server.token}")
    lab.page.wait_for_function("window.jupyterapp && window.jupyterapp.started")
    expect(lab.page.locator(".lm-DockPanel-tabBar .lm-mod-current .lm-TabBar-tabLabel")).to_have_text(
        "00-start-here.ipynb"
    )
