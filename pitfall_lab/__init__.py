"""pitfall_lab: see where PyTorch bites.

Run ordinary torch code and see what it does to storages, version counters and the autograd graph, and why a backward
fails or silently gives a wrong gradient. Names are loaded when they are first used: importing pitfall_lab imports
neither torch nor ipywidgets.
"""

import sys

# ``python -m pitfall_lab`` has put the current folder first on the path. What is in it must not be imported in place of
# what follows, so this comes before any other import, also of __future__. (A ``pitfall_lab.py`` there would run instead
# of this line: that is Python's choice, which ``python -P -m pitfall_lab`` and the command ``pitfall-lab`` avoid.)
if (
    sys.argv[:1] == ["-m"]
    and not sys.flags.safe_path
    and sys.orig_argv[-len(sys.argv)].removeprefix("-m").partition(".")[0] == __name__
):
    del sys.path[0]

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_NAMES = {
    "Trace": "pitfall_lab.trace",
    "TraceError": "pitfall_lab.trace",
    "check": "pitfall_lab.check",
    "watching": "pitfall_lab.check.watching",
    "explore": "pitfall_lab.api",
    "record": "pitfall_lab.api",
    "claim": "pitfall_lab.widgets.claim_widget",
    "claims": "pitfall_lab.widgets.claim_widget",
    "claim_list": "pitfall_lab.lessons.claims",
    "progress": "pitfall_lab.lessons.overview",
    "question": "pitfall_lab.widgets.question_widget",
    "Explorer": "pitfall_lab.widgets.explorer",
    "what_if": "pitfall_lab.notebook.what_if",
    "show_storage": "pitfall_lab.notebook.live_pictures",
    "show_graph": "pitfall_lab.notebook.live_pictures",
    "show_broadcast": "pitfall_lab.notebook.live_pictures",
    "show_versions": "pitfall_lab.notebook.live_pictures",
    "show_memory": "pitfall_lab.notebook.live_pictures",
    "show_allocator": "pitfall_lab.notebook.live_pictures",
    "show_figure": "pitfall_lab.notebook.figure",
    "play": "pitfall_lab.notebook.figure",
    "load_ipython_extension": "pitfall_lab.notebook.magic",
    "unload_ipython_extension": "pitfall_lab.notebook.magic",
}
__all__ = [
    "Explorer",
    "Trace",
    "TraceError",
    "check",
    "claim",
    "claims",
    "explore",
    "handout",
    "play",
    "progress",
    "question",
    "record",
]
__all__ += [
    "claim_list",
    "show_allocator",
    "show_broadcast",
    "show_figure",
    "show_graph",
    "show_memory",
    "show_storage",
    "show_versions",
    "watching",
    "what_if",
]

if TYPE_CHECKING:
    from pitfall_lab.api import explore, record
    from pitfall_lab.check import check
    from pitfall_lab.check.watching import watching
    from pitfall_lab.lessons.claims import claim_list
    from pitfall_lab.lessons.overview import progress
    from pitfall_lab.notebook.figure import play, show_figure
    from pitfall_lab.notebook.live_pictures import (
        show_allocator,
        show_broadcast,
        show_graph,
        show_memory,
        show_storage,
        show_versions,
    )
    from pitfall_lab.notebook.what_if import what_if
    from pitfall_lab.trace import Trace, TraceError
    from pitfall_lab.widgets.claim_widget import claim, claims
    from pitfall_lab.widgets.explorer import Explorer
    from pitfall_lab.widgets.question_widget import question


def __getattr__(name: str) -> Any:
    if name == "handout":
        return import_module("pitfall_lab.notebook.handout")
    if name not in _NAMES:
        raise AttributeError(f"module 'pitfall_lab' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
