"""The TypeScript types of everything that the browser reads, written from the types in Python.

``python -m pitfall_lab.reference.browser_types`` writes ``pitfall_lab/frontend/src/core/wire.ts`` from a clone, and the
list of the tabs, ``src/views/index.ts``; a test compares. The trace's types are its dataclasses, the state's and the
scenes' are ``TypedDict`` classes; a view's scene is what its ``project`` returns.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import re
import types
import typing
from collections.abc import Iterator
from typing import Any, Literal, NotRequired

from pitfall_lab import views
from pitfall_lab.resources import PACKAGE
from pitfall_lab.trace import Language, Trace, model, state_types
from pitfall_lab.views import compare, finding_pictures
from pitfall_lab.views.code import MarkKind
from pitfall_lab.views.stories import StoryScene
from pitfall_lab.views.tabs import tabs

FILE = PACKAGE / "frontend" / "src" / "core" / "wire.ts"
TABS = PACKAGE / "frontend" / "src" / "views" / "index.ts"
ALIASES: dict[str, Any] = {
    "Language": Language, "EventKind": model.EventKind, "By": model.By, "Cause": model.Cause, "Origin": model.Origin,
    "Cell": state_types.Cell, "Cells": state_types.Cells, "BeatRole": finding_pictures.BeatRole, "MarkKind": MarkKind,
    "FindingPicture": finding_pictures.FindingPicture,
}  # fmt: skip
"""The types that have a name of their own in TypeScript as well."""
ROOTS = (Trace, state_types.State, StoryScene, views.CommonScene, views.FailedScene, compare.ComparedRuns)
"""Everything else is found from these and from the views."""
WRITTEN: dict[Any, str] = {model.Effect: '[path: string, value: unknown, by: "o" | "m" | "a"]'}
"""What :mod:`pitfall_lab.trace.codec` writes in another form than as an object of its fields."""
_PLAIN = {int: "number", float: "number", str: "string", bool: "boolean", type(None): "null", Any: "unknown"}
_HEAD = """\
/**
 * What Python sends, typed: written by `python -m pitfall_lab.reference.browser_types`, not by hand.
 *
 * The JSON of a trace leaves out fields that have their default value; `readTrace` (load.ts) puts them back.
 */
"""


def text() -> str:
    """The content of the TypeScript file."""
    scenes = {name: scene_type(name) for name in views.names()}
    parts = [_HEAD]
    parts += [f"export type {name} = {_union(typing.get_args(alias), own=name)};\n" for name, alias in ALIASES.items()]
    parts += [f"export type {kind.__name__} = {written};\n" for kind, written in WRITTEN.items()]
    parts += [_interface(kind) for kind in _reached([*ROOTS, *scenes.values()])]
    listed = "".join(f"  {name}: {kind.__name__};\n" for name, kind in scenes.items())
    parts.append(f"/** The views' parts of a scene. */\nexport interface Views {{\n{listed}}}\n")
    parts.append("export type Scene = CommonScene & { [View in keyof Views]?: Views[View] | FailedScene };\n")
    return "\n".join(parts)


def listed() -> str:
    """The content of the TypeScript file with the list of the tabs."""
    names = list(tabs())
    lines = ["/** The Explorer's tabs: written by `python -m pitfall_lab.reference.browser_types`, not by hand. */\n"]
    lines += ['\nimport type { View } from "../core/contract";\n']
    lines += [f'import {{ {name} }} from "./{name}";\n' for name in sorted(names)]
    return "".join([*lines, f"\nexport const VIEWS: View[] = [{', '.join(names)}];\n"])


def scene_type(name: str) -> Any:
    """The type of a view's part of the scene.

    Raises ``TypeError`` unless the view's ``project`` returns a ``TypedDict``.
    """
    kind = typing.get_type_hints(importlib.import_module(f"pitfall_lab.views.{name}").project)["return"]
    if not typing.is_typeddict(kind):
        raise TypeError(
            f"pitfall_lab.views.{name}.project has to return a TypedDict: the browser's type is made from it"
        )
    return kind


def _reached(roots: list[Any]) -> list[Any]:
    """The classes that these types mention, each once, in the order of their first mention."""
    found: dict[Any, None] = {}
    todo = list(roots)
    while todo:
        kind = todo.pop(0)
        if kind in found or kind in WRITTEN:
            continue
        found[kind] = None
        for hint in _hints(kind).values():
            todo += [part for part in _mentioned(hint) if part not in found]
    for alias in ALIASES.values():
        found.update(dict.fromkeys(part for part in _mentioned(alias) if part not in WRITTEN))
    return list(found)


def _mentioned(hint: Any) -> Iterator[Any]:
    if dataclasses.is_dataclass(hint) or typing.is_typeddict(hint):
        yield hint
    for part in typing.get_args(hint):
        yield from _mentioned(part)


def _hints(kind: Any) -> dict[str, Any]:
    hints = typing.get_type_hints(kind, include_extras=True)
    if dataclasses.is_dataclass(kind):
        return {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    return hints


def _interface(kind: Any) -> str:
    optional: frozenset[str] = getattr(kind, "__optional_keys__", frozenset())
    lines = []
    for name, hint in _hints(kind).items():
        missing = name in optional or typing.get_origin(hint) is NotRequired
        bare = typing.get_args(hint)[0] if typing.get_origin(hint) is NotRequired else hint
        lines.append(f"  {name}{'?' if missing else ''}: {_type(bare)};\n")
    said = (inspect.cleandoc(kind.__doc__ or "").split("\n\n", maxsplit=1)[0] or kind.__name__).replace("\n", " ")
    said = re.sub(r":\w+:(?=`)|`(?=`)", "", said)
    comment = "" if said.startswith("dict(") else f"/** {said} */\n"
    return f"{comment}export interface {kind.__name__} {{\n{''.join(lines)}}}\n"


def _type(hint: Any) -> str:
    """A type of Python as TypeScript writes it."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if origin in {typing.Union, types.UnionType}:
        return _union(inside)
    if origin is Literal:
        named = next((name for name, alias in ALIASES.items() if alias == hint), None)
        return named or " | ".join(json.dumps(word, ensure_ascii=False) for word in inside)
    if origin is dict:
        return f"Record<{_type(inside[0])}, {_type(inside[1])}>"
    if origin is list or (origin is tuple and inside[-1] is Ellipsis):
        item = _type(inside[0])
        return f"({item})[]" if " | " in item else f"{item}[]"
    if origin is tuple:
        return f"[{', '.join(map(_type, inside))}]"
    return _PLAIN[hint] if hint in _PLAIN else str(hint.__name__)


def _union(members: tuple[Any, ...], own: str = "") -> str:
    """The members of a union; those that are an alias by themselves (other than ``own``) are written by its name."""
    left, written = list(members), []
    for name, alias in ALIASES.items():
        parts = typing.get_args(alias)
        if name != own and typing.get_origin(alias) in {typing.Union, types.UnionType} and set(parts) <= set(left):
            left = [member for member in left if member not in parts]
            written.append(name)
    literal = not written and all(isinstance(member, str) for member in left)
    written += [json.dumps(member, ensure_ascii=False) if literal else _type(member) for member in left]
    return " | ".join(dict.fromkeys(written))


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
    TABS.write_text(listed(), encoding="utf-8")
