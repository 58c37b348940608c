"""Checks the installed torch: whether this package was tested with its release, and what cannot be observed with it
(:func:`limits`).
"""

from __future__ import annotations

import re

import torch

from pitfall_lab.observe import private
from pitfall_lab.trace import Note, T

NEWEST = (2, 15)
"""The newest release of torch that this package was tested with."""


def numbers(version: str) -> tuple[int, ...]:
    """Return the first two numbers of a version, which identify a release.

    >>> numbers("2.13.0+cpu"), numbers("2.16.0a0+git1")
    ((2, 13), (2, 16))
    """
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


RUNNING = numbers(torch.__version__)
"""The installed release."""


def unknown() -> T | None:
    """Return a sentence that says that the installed torch is newer than the newest tested release; None if it is
    not.
    """
    if RUNNING <= NEWEST:
        return None
    known = ".".join(map(str, NEWEST))
    return T(
        f"torch {torch.__version__} is newer than {known}, the newest release that this version of pitfall_lab was "
        "tested with: what it says about torch may be out of date.",
        f"torch {torch.__version__} 比此版本 pitfall_lab 测试过的最新版 {known} 更新：它对 torch 的说法可能已过时。",
    )


def unobservable() -> list[T]:
    """Return one sentence for each thing that cannot be observed because the installed torch does not have a private
    name; an empty list if there are none.
    """
    lost = dict.fromkeys(name.lost for name in private.MISSING if name.lost not in {None, private.VITAL})
    here = torch.__version__
    return [
        T(f"Not observed with torch {here}: {text.en}.", f"torch {here} 下未观察：{text.zh}。")
        for text in lost
        if text is not None
    ]


def limits() -> list[T]:
    """Return all sentences about the installed torch that users of this package need to know; an empty list if there
    are none.
    """
    return [text for text in (unknown(), *unobservable()) if text is not None]


def notes() -> list[Note]:
    """Return the sentences of :func:`limits` as notes of a trace."""
    return [Note("limit", text.en, text.zh) for text in limits()]


def forbids() -> T | None:
    """Return the reason why nothing can be recorded with the installed torch; None if recording is possible."""
    vital = [name.path for name in private.MISSING if name.lost is private.VITAL]
    if not vital:
        return None
    here = torch.__version__
    return T(
        f"torch {here} has no {vital[0]}, without which {private.VITAL.en}",
        f"torch {here} 没有 {vital[0]}，缺少它则{private.VITAL.zh}",
    )
