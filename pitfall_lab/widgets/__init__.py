"""The widgets that notebooks show. They run in the browser; the kernel only sends them a finished document."""

from pitfall_lab.widgets.explorer import Explorer
from pitfall_lab.widgets.look import Look

__all__ = ["Explorer", "Look"]
