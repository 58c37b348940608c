"""Why a cell failed with an object whose class another cell has redefined since the object was created
(:func:`class_anew`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.warnings.message import called
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.old_classes import OldObject


def class_anew(found: OldObject, cell: Cell, ran: Ran) -> tuple[T, T, T] | None:
    """Sentence, explanation and fix for the object ``found``; None if no cell's source defines the class.

    ``cell`` is the failed cell, which is not yet among the runs ``ran``.
    """
    runs = list(ran.since(0))
    now = runs[-1].count + 1 if runs else 1
    again = now if found.cls in cell.assigned else _last(runs, found.cls, now)
    if again is None:
        return None
    made = _last(runs, found.root, again) if found.root else None
    what = T(f"`{found.name}`", f"`{found.name}`") if found.name else T("An object", "一个对象")
    of = T(f" of {called(made)}", f" {called(made)} 的 ") if made is not None else T("", "")
    sentence = T(
        f"{what.en}{of.en} is a `{found.cls}` of the earlier definition: {called(again)} defined the class anew, and "
        "this is why the cell failed.",
        f"{of.zh.lstrip()}{what.zh} 属于先前定义的 `{found.cls}`：{called(again)} 重新定义了这个类，"
        "所以此单元格失败了。",
    )
    return sentence, _why(found, what), _fix(found, made, runs)


def _last(runs: list[Cell], name: str, before: int) -> int | None:
    """The number of the last run before ``before`` that has bound the name; None if there is none."""
    return max((run.count for run in runs if name in run.assigned and run.count < before), default=None)


def _why(found: OldObject, what: T) -> T:
    if found.why == "super":
        return T(
            f"`super({found.cls}, self)` looks up `{found.cls}` when it runs and finds the new class; {what.en} is no "
            "instance of that one, although the text is the same. `super()` without arguments needs no name.",
            f"`super({found.cls}, self)` 在运行时查找 `{found.cls}`，找到的是新的类；即使定义的文字相同，{what.zh} "
            "也不是新类的实例。不带参数的 `super()` 不需要这个名字。",
        )
    if found.why == "pickle":
        return T(
            f"Pickling (`torch.save`, a worker process) stores a class by its name, and the name `{found.cls}` has "
            f"another class now than {what.en}. A `state_dict()` contains no class and can be saved.",
            f"序列化（`torch.save`、工作进程）按名字保存类，而 `{found.cls}` 这个名字现在指向另一个类。"
            "`state_dict()` 不含类，可以保存。",
        )
    return T(
        f"An object keeps the class that it was made of, with its methods; defining `{found.cls}` again changes no "
        f"object. In the new definition `{found.member}` is there as the cell uses it, in the earlier one it is not.",
        f"对象保留创建它时的类及其方法；重新定义 `{found.cls}` 不会改变已有的对象。"
        f"单元格所用的 `{found.member}` 在新的定义中有，在先前的定义中没有。",
    )


def _fix(found: OldObject, made: int | None, runs: list[Cell]) -> T:
    root = f"`{found.root}`"
    where = T(f"Run {called(made)} again, which makes {root}", f"重新运行创建 {root} 的 {called(made)}")
    if made is None:
        where = T(f"Make {root if found.root else 'the object'} anew", f"重新创建{root if found.root else '这个对象'}")
    if found.through:
        names = ", ".join(f"`{each}`" for each in found.through)
        where = T(
            f"Run again the cell that defines {names}, which derives from the earlier `{found.cls}`. Then "
            f"{where.en[0].lower()}{where.en[1:]}",
            f"先重新运行定义 {names} 的单元格（它派生自先前的 `{found.cls}`），再{where.zh}",
        )
    cells = {each: _last(runs, each, runs[-1].count + 1) for each in found.optimizers}
    later = [(name, count) for name, count in cells.items() if count is not None and count != made]
    if later:
        names = ", ".join(f"`{name}`" for name, _ in later)
        counts = ", ".join(dict.fromkeys(called(count) for _, count in later))
        where = T(
            f"{where.en}, and then {counts}: {names} has its parameters",
            f"{where.zh}，然后重新运行 {counts}：{names} 持有它的参数",
        )
    if not found.is_module:
        return T(f"{where.en}.", f"{where.zh}。")
    name = found.name or "model"
    return T(
        f"{where.en}. To keep what it has learned, store `state = {name}.state_dict()` before and call "
        f"`{name}.load_state_dict(state)` after.",
        f"{where.zh}。如果要保留训练的结果，请先保存 `state = {name}.state_dict()`，之后调用 "
        f"`{name}.load_state_dict(state)`。",
    )
