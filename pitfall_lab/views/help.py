"""The texts of the Explorer's help: every key and every sign. :func:`texts` returns them.

They are data of the picture, as the script comes with each widget.
"""

from __future__ import annotations

from typing import TypedDict

from pitfall_lab.trace import T
from pitfall_lab.trace.state_types import Text

_KEYS = {
    "← →": T("previous, next step", "上一步、下一步"),
    "Home End": T("to the start, to the end", "到开头、到结尾"),
    "[ ]": T("previous, next event of the focused storage", "所选存储的上一个、下一个事件"),
    "E": T("saved → changed → raised, and round again", "保存 → 改写 → 报错，循环"),
    "↑ ↓": T("previous, next control", "上一个、下一个控件"),
    "Tab": T("to the next part", "到下一部分"),
    "1 … 9": T("open a panel", "打开一个面板"),
    "L": T("labels beside the names", "在名称旁显示标签"),
    "T": T("everything as text", "文字视图"),
    "?": T("this help", "本帮助"),
    "Esc": T("end what is being tried; leave", "停止正在尝试的修改；离开"),
}
_SIGNS = {
    "v1": T("how often this memory was written, as its version counter says", "版本计数器所记的这块内存被写入的次数"),
    "t S C n": T(
        "labels of a tensor, a storage, a counter, a node; L shows them",
        "张量、存储、版本计数器、节点的标签；按 L 显示",
    ),
    "peak": T(
        "the most bytes at the end of a step, in Memory; not counted is what a call borrows until it ends, such as "
        "gradients on their way through a backward",
        "“内存”中各步结束时字节数的最大值；不计入一次调用在结束之前临时借用的内存，例如 backward 途中的梯度",
    ),
}
_AGREEMENT = T(
    "Every operation runs on real torch and, independently, on a model of torch. This is how often both "
    "gave the same answer.",
    "每个操作都在真实的 torch 上运行，同时在一个独立的模型上运行；这里是两者答案一致的次数。",
)


class Help(TypedDict):
    """Keys and signs with what they mean, and what "agree" means."""

    keys: list[tuple[str, Text]]
    signs: list[tuple[str, Text]]
    agreement: Text


def texts() -> Help:
    """The Explorer's keys and signs with what they mean, and what "agree" means, as plain data in both languages."""
    return {
        "keys": [(key, _both(text)) for key, text in _KEYS.items()],
        "signs": [(sign, _both(text)) for sign, text in _SIGNS.items()],
        "agreement": _both(_AGREEMENT),
    }


def _both(text: T) -> Text:
    return {"en": text.en, "zh": text.zh}
