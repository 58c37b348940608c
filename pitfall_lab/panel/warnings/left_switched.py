"""Notes that a cell has changed a global setting of torch and not set it back (:func:`left_switched`), and explains
errors that follow from it (:func:`refused_by`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pitfall_lab.panel.cells_run import Ran
from pitfall_lab.panel.warnings.message import Said, called, cell, warning
from pitfall_lab.trace import T

if TYPE_CHECKING:
    from pitfall_lab.observe.live.global_states import Kind, Switched

_SEEDS = re.compile(r"seed")
_WHY = T(
    "This setting belongs to torch as a whole: it stays for every cell that runs later, until it is set back or the "
    "kernel is restarted.",
    "这个设置属于整个 torch：对之后运行的每个单元格都有效，直到改回去或重启内核。",
)
_SETS = {
    "dtype": T("`torch.set_default_dtype(torch.{})`", "`torch.set_default_dtype(torch.{})`"),
    "device": T("`torch.set_default_device('{}')`", "`torch.set_default_device('{}')`"),
    "grad": T("`torch.set_grad_enabled({})`", "`torch.set_grad_enabled({})`"),
    "anomaly": T("`torch.autograd.set_detect_anomaly({})`", "`torch.autograd.set_detect_anomaly({})`"),
    "deterministic": T("`torch.use_deterministic_algorithms({})`", "`torch.use_deterministic_algorithms({})`"),
}
_AS = {"on": "True", "off": "False"}


def left_switched(found: Switched, ran: Ran) -> dict[str, Any] | None:
    """The note that a cell has changed a global setting of torch; None for deterministic algorithms that a cell
    switches on together with setting seeds: these are intended to stay.

    ``found`` is the finding in the live objects, ``ran`` are the runs of cells; the warning is the dict of
    :func:`.message.warning`.
    """
    run = ran.get(found.cell)
    if found.setting == "deterministic" and any(
        _SEEDS.search(each.text) and "deterministic" in each.text for each in ran.since(0)
    ):
        return None
    sentence, fix = _sentence(found), _fix(found)
    cells = cell(ran, found.cell, "changed") if run is not None else []
    note = warning("left-switched", "note", Said(sentence, _WHY, fix, ()), cells)
    return {**note, "id": f"left-switched:{found.setting}:"}


def _by(found: Switched) -> T:
    where = called(found.cell)
    return T(where or "An earlier cell", where or "之前的某个单元格")


def _sentence(found: Switched) -> T:
    by = _by(found)
    others = ", ".join(f"`{name}`" for name in found.others)
    if found.setting == "dtype":
        return T(
            f"{by.en} set the default dtype to {found.now} and left it so: layers and tensors that are made from now "
            f"on are {found.now}, and {others} {'are' if len(found.others) > 1 else 'is'} {found.before}.",
            f"{by.zh} 把默认 dtype 设为 {found.now}，之后没有改回：从此创建的层和张量都是 {found.now}，而 "
            f"{others} 是 {found.before}。",
        )
    if found.setting == "device":
        return T(
            f"{by.en} set the default device to {found.now} and left it so: what is made from now on is there, and "
            f"{others} {'are' if len(found.others) > 1 else 'is'} on {found.before}.",
            f"{by.zh} 把默认设备设为 {found.now}，之后没有改回：从此创建的内容都在那里，而 {others} "
            f"在 {found.before} 上。",
        )
    if found.setting == "grad":
        return T(
            f"{by.en} switched gradients off and left it so: what is computed from now on has no graph, and no "
            "backward can begin from it.",
            f"{by.zh} 关闭了梯度，之后没有打开：从此算出的结果没有计算图，不能对它们做反向传播。",
        )
    if found.setting == "anomaly":
        return T(
            f"{by.en} switched anomaly detection on and left it so: each forward and backward is several "
            "times slower from now on.",
            f"{by.zh} 打开了异常检测，之后没有关闭：从此每次前向计算和反向传播都会慢几倍。",
        )
    return T(
        f"{by.en} switched deterministic algorithms on and left it so: operations that have none will raise "
        "an error from now on.",
        f"{by.zh} 打开了确定性算法，之后没有关闭：没有确定性实现的运算从此会报错。",
    )


def _fix(found: Switched) -> T:
    back = T(*(_SETS[found.setting].say(each).format(_AS.get(found.before, found.before)) for each in ("en", "zh")))
    if found.setting == "dtype":
        return T(
            f"Set it back with {back.en}, and run again what was made in between. To compute one thing in "
            f"{found.now}, give it the type: `dtype=torch.{found.now}`.",
            f"用 {back.zh} 改回去，并重新运行其间创建的内容。如果只有一处需要 {found.now}，请在那里写 "
            f"`dtype=torch.{found.now}`。",
        )
    if found.setting == "device":
        return T(f"Set it back with {back.en}, or send the rest there: `.to('{found.now}')`.",
                 f"用 {back.zh} 改回去，或把其余内容也送过去：`.to('{found.now}')`。")  # fmt: skip
    if found.setting == "grad":
        return T(
            f"Switch them on with {back.en}. `with torch.no_grad():` ends by itself.",
            f"用 {back.zh} 打开。`with torch.no_grad():` 会自己结束。",
        )
    return T(f"Set it back with {back.en} when it is no longer needed.", f"不再需要时用 {back.zh} 改回去。")


def refused_by(found: Switched, things: Sequence[Kind], ran: Ran) -> tuple[T, T, T] | None:
    """Why a cell has failed with an error that can follow from the changed setting ``found``: a sentence, an
    explanation and a fix.

    ``things`` are the objects that the cell reads, with dtypes and devices, ``ran`` the runs of cells. For a default
    dtype or device, None unless one of them was created after the change and another before it; never None for grad
    mode and deterministic algorithms.
    """
    by = _by(found)
    if found.setting in ("grad", "deterministic"):
        so = T("this is why the cell failed", "所以此单元格失败了")
        sentence = _sentence(found)
        return T(f"{sentence.en[:-1]}: {so.en}.", f"{sentence.zh[:-1]}：{so.zh}。"), _WHY, _fix(found)
    new = [each for each in things if _value(each, found) == found.now]
    old = [each for each in things if _value(each, found) == found.before]
    if not new or not old:
        return None
    first, other = new[0], old[0]
    made = max((run.count for run in ran.since(0) if first.name in run.assigned), default=None)
    old_by = max((run.count for run in ran.since(0) if other.name in run.assigned), default=None)
    switched = found.cell if found.cell is not None else made
    if made is None or switched is None or made < switched or (old_by is not None and old_by >= switched):
        return None  # one of them was converted since
    what = T("dtype", "dtype") if found.setting == "dtype" else T("device", "设备")
    of = f" of {called(old_by)}" if old_by is not None else ""
    of_zh = f"{called(old_by)} 的 " if old_by is not None else ""
    fix = _fix(found)
    again = T(f" `{first.name}` is made in {called(made)}.", f"`{first.name}` 在 {called(made)} 中创建。")
    return (
        T(
            f"{by.en} set the default {what.en} to {found.now} and left it so: `{first.name}` of {called(made)} is "
            f"{found.now}, `{other.name}`{of} is {found.before}. This is why the cell failed.",
            f"{by.zh} 把默认{what.zh}设为 {found.now}，之后没有改回：{called(made)} 的 `{first.name}` 是 {found.now}，"
            f"{of_zh}`{other.name}` 是 {found.before}。所以此单元格失败了。",
        ),
        _WHY,
        T(f"{fix.en}{again.en}", f"{fix.zh}{again.zh}"),
    )


def _value(thing: Kind, found: Switched) -> str:
    return thing.dtype if found.setting == "dtype" else thing.device
