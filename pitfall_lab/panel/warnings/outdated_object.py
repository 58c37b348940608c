"""Warns that an object has the methods of an earlier definition of its class (:func:`outdated_objects`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.held_function import dated, is_meant, used_since
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.outdated_objects import OutdatedObject


def outdated_objects(found: Sequence[OutdatedObject], ran: Ran) -> Iterator[dict[str, Any]]:
    """Yield the warnings about objects that were used after their class was redefined, one for each class.

    ``ran`` are the runs of cells; each warning is a dict of :func:`.message.warning`.
    """
    for each in (dated(one, ran) for one in found):
        used = used_since(each, ran) if not is_meant(each, ran) else None
        if used is not None:
            yield _said(each, used, ran)


def _said(found: OutdatedObject, used: Cell, ran: Ran) -> dict[str, Any]:
    made = ran.get(found.made)
    again, here, name = called(found.again), called(used.count), found.name
    methods = ", ".join(f"`{each}`" for each in found.methods[:2])
    of = T(f"of {called(made.count)}" if made is not None else "of before",
           f"{called(made.count)} 中的" if made is not None else "之前的")  # fmt: skip
    more = T("", "")
    if found.others:
        more = T(f" (and {len(found.others)} more)", f"（还有 {len(found.others)} 个）")
    rest = sorted(found.roots - {found.path[0]})
    through = T(f", then what holds it (`{rest[0]}`)", f"，再重新创建持有它的 `{rest[0]}`") if rest else T("", "")
    kept = T("", "")
    if found.is_module:
        kept = T(
            f" To keep what it has learned: `state = {found.text}.state_dict()` before, `load_state_dict(state)` "
            "after.",
            f"要保留已学到的内容：先 `state = {found.text}.state_dict()`，之后 `load_state_dict(state)`。",
        )
    said = Said(
        T(
            f"`{found.text}`{more.en} is still a `{name}` {of.en}: {again} defined `{name}` with another {methods}, "
            f"which objects made before do not get. {here} used the old one.",
            f"`{found.text}`{more.zh} 仍是{of.zh} `{name}`：{again} 重新定义了 `{name}`，其中的 {methods} 不同，而之"
            f"前创建的对象不会换成新的。{here} 用的是旧的。",
        ),
        T(
            "An object keeps the class that it was made from. A cell that defines the class again binds the name to "
            "another class; only objects made after that have its methods.",
            "对象保留创建它时的那个类。再次运行定义类的单元格，只是让这个名字指向另一个类；只有之后创建的对象才有新"
            "的方法。",
        ),
        T(
            f"Make `{found.path[0]}` anew after {again}{through.en}, and run {here} again.{kept.en}",
            f"在 {again} 之后重新创建 `{found.path[0]}`{through.zh}，再运行 {here}。{kept.zh}",
        ),
        found.path if found.is_module else (),
        (found.text,),
    )
    cells = cell(ran, found.again, "changed", name)
    cells += cell(ran, made.count, "made", name) if made is not None else []
    cells += cell(ran, used.count, "stale") if used.count != found.again else []
    return warning("old-class", "silent", said, cells)
