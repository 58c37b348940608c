"""The messages between the live panel and the kernel; ``protocol.json`` is their schema.

Messages from a front end are parsed only here (:func:`read`): the result is one of five requests, or
:class:`BadMessage` is raised with one sentence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from pitfall_lab.trace import Language, T

VERSION = 1
LONGEST = 2000
GREATEST = 1_000_000
View = Literal["storage", "graph", "alive"]
VIEWS: tuple[View, ...] = ("storage", "graph", "alive")


@dataclass(frozen=True, slots=True)
class Watch:
    """A front end's request: after each cell, send the panel's rows if ``visible``, and warnings if ``stale``."""

    visible: bool
    stale: bool


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """A front end's request for rows of the panel's table, from the index ``first`` on: one page or, with ``every``,
    all rows, to be sorted in the front end.
    """

    first: int = 0
    every: bool = False


@dataclass(frozen=True, slots=True)
class Unfold:
    """A front end's request for the rows of the objects inside the object of the row ``id``."""

    id: str


@dataclass(frozen=True, slots=True)
class PictureRequest:
    """A front end's request for a picture of the object of the row ``id``: of its ``storage``, its autograd ``graph``,
    or what keeps it ``alive`` (``view``).
    """

    id: str
    view: View


@dataclass(frozen=True, slots=True)
class Past:
    """A front end's request for the rows of the panel's table after the cell with the number ``cell``."""

    cell: int


Ask = Watch | RowsRequest | Unfold | PictureRequest | Past


class BadMessage(Exception):
    """A message that does not follow the protocol; ``text`` is the answer to it, in English and Chinese."""

    def __init__(self, text: T) -> None:
        super().__init__(text.en)
        self.text = text


def opening(data: Any) -> Language:
    """The language of a front end: ``zh`` if ``data``, the content of the message that opens the connection, says so,
    else ``en``. Raises :class:`BadMessage` if the front end has another version of the protocol.
    """
    version = data.get("version") if type(data) is dict else None
    if type(version) is not int or version != VERSION:
        raise BadMessage(
            T(
                f"This kernel's pitfall_lab has version {VERSION} of the live panel's protocol, and the extension has "
                "another one: install the same version of pitfall-lab for both.",
                f"此内核的 pitfall_lab 使用实时面板协议的版本 {VERSION}，扩展使用另一个版本：请为两者安装同一"
                "版本的 pitfall-lab。",
            )
        )
    return "zh" if data.get("language") == "zh" else "en"


def read(data: Any) -> Ask:
    """The request in a message with the content ``data``; raises :class:`BadMessage` if the message does not follow the
    protocol.
    """
    if type(data) is not dict or type(data.get("version")) is not int or data["version"] != VERSION:
        raise BadMessage(T("This message does not follow the live panel's protocol.", "这条消息不属于实时面板协议。"))
    ask = data.get("ask")
    fields = {key: value for key, value in data.items() if key not in ("version", "ask")}
    wanted = _FIELDS.get(ask) if type(ask) is str else None
    if wanted is None:
        raise BadMessage(T("The live panel does not have this request.", "实时面板没有这种请求。"))
    made, needed, optional = wanted
    fits = needed.keys() <= fields.keys() <= needed.keys() | optional.keys()
    if not fits or not all((needed | optional)[key](value) for key, value in fields.items()):
        en = f"The request “{ask}” lacks a field, or has one that does not belong to it."
        raise BadMessage(T(en, f"请求“{ask}”缺少字段，或含有不该有的字段。"))
    request: Ask = made(**{_ATTRIBUTES.get(key, key): value for key, value in fields.items()})
    return request


def _is_truth(value: Any) -> bool:
    return type(value) is bool


def _is_number(value: Any) -> bool:
    return type(value) is int and 0 <= value <= GREATEST


def _is_id(value: Any) -> bool:
    return type(value) is str and len(value) <= LONGEST


def _is_view(value: Any) -> bool:
    return type(value) is str and value in VIEWS


_FIELDS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "watch": (Watch, {"visible": _is_truth, "stale": _is_truth}, {}),
    "rows": (RowsRequest, {}, {"from": _is_number, "all": _is_truth}),
    "unfold": (Unfold, {"id": _is_id}, {}),
    "picture": (PictureRequest, {"id": _is_id, "view": _is_view}, {}),
    "past": (Past, {"cell": _is_number}, {}),
}
_ATTRIBUTES = {"from": "first", "all": "every"}


def text(said: T) -> dict[str, str]:
    """A sentence in both languages, as a dict for a message."""
    return {"en": said.en, "zh": said.zh}


def message(kind: str, **fields: Any) -> dict[str, Any]:
    """A message to the front end."""
    return {"version": VERSION, "kind": kind, **fields}


def refused(said: T) -> dict[str, Any]:
    """The answer to a request that cannot be fulfilled."""
    return message("refused", text=text(said))
