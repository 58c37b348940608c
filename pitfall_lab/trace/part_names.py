"""How a program writes the name of a part of a module: with brackets where torch's own name has a number
(:func:`written` returns it).
"""

from __future__ import annotations

import re

_PATH = re.compile(r"[^\W\d][\w.\[\]]*")
_NUMBER = re.compile(r"\.(\d+)(?=\.|$)")


def written(name: str) -> str:
    """Return the name of a part as an expression; what is no such name, as ``x < 1.0``, stays as it is.

    >>> written("net.0.weight"), written("x < 1.0")
    ('net[0].weight', 'x < 1.0')
    """
    return _NUMBER.sub(r"[\1]", name) if _PATH.fullmatch(name) else name
