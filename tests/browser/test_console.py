"""Which lines of the console are taken for ours: those of JupyterLab 4.2 and 4.6, of other
extensions, and of this one.
"""

from __future__ import annotations

import pytest

from tests.browser.conftest import is_ours

AT = "http://127.0.0.1:1/"
CORE, OWN, OTHER = (
    f"{AT}static/lab/812.js",
    f"{AT}lab/extensions/pitfall-lab/static/227.js",
    f"{AT}lab/extensions/@jupyter/nbgrader/static/1.js",
)
VERSION = (
    "Unsatisfied version 4.2.7 from @jupyterlab/application-top of shared singleton module "
    "@jupyterlab/notebook (required ^4.6.4)"
)


@pytest.mark.parametrize(
    ("text", "url", "ours"),
    [
        (VERSION, OTHER, False),
        (VERSION, OWN, True),
        (
            (
                "ReferenceError: Cannot access 'y' before initialization\n"
                f"    at Module.x ({OTHER}:1:200)\n"
                f"    at y ({CORE}:1:1)"
            ),
            CORE,
            False,
        ),
        (f"TypeError: x is undefined\n    at Module.x ({OTHER}:1:200)\n    at y ({OWN}:1:1)", CORE, True),
        (f"TypeError: x is undefined\n    at y ({CORE}:1:1)", CORE, True),
        ("Failed to create module: package: @jupyter/nbgrader; module: ./extension", CORE, False),
        ("Failed to create module: package: pitfall-lab; module: ./extension", CORE, True),
        ("Plugin pitfall-lab:plugin (with 0 dependants) took 812.42ms to activate.", CORE, False),
        ("Plugin 'pitfall-lab:plugin' failed to activate.", CORE, True),
        ("Language pack 'en_US' not installed!", CORE, False),
        ("Language pack 'zh_CN' not installed!", CORE, True),
        (
            "Failed to load resource: the server responded with a status of 404 (Not Found)",
            f"{AT}lab/api/workspaces/x",
            False,
        ),
        ("Failed to load resource: the server responded with a status of 404 (Not Found)", OWN, True),
    ],
)
def test_only_lines_of_others_are_passed_over(text: str, url: str, ours: bool) -> None:
    assert is_ours(text, url) is ours
