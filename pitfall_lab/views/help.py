"""What the Explorer's help says: every key and every sign. It travels with the picture, because the script is sent with each widget."""

from __future__ import annotations

from typing import Any

from pitfall_lab.trace import T

_KEYS = {
    "← →": T("previous, next step", "上一步、下一步"),
    "Home End": T("to the start, to the end", "到开头、到结尾"),
    "[ ]": T("previous, next event of the focused storage", "所选存储的上一个、下一个事件"),
    "E": T("saved → changed → raised, and round again", "保存 → 改写 → 报错，循环"),
    "↑ ↓": T("previous, next control", "上一个、下一个控件"),
    "1 … 9": T("a view, when there is room for one only", "窄屏时切换视图"),
    "T": T("everything as text", "文字视图"),
    "?": T("this help", "本帮助"),
    "Esc": T("leave", "离开"),
}
_SIGNS = {
    "t S C n": T("a tensor, a storage, a version counter, a graph node", "张量、存储、版本计数器、计算图节点"),
    "C2·v1": T("counter C2 stands at version 1", "计数器 C2 处于版本 1"),
}
_AGREEMENT = T(
    "Every operation runs on real torch and, independently, on a model of torch. This is how often both gave the same answer.",
    "每个操作都在真实的 torch 上运行，同时在一个独立的模型上运行；这里是两者答案一致的次数。",
)


def texts() -> dict[str, Any]:
    """Keys and signs with what they mean, and what "agree" means, as plain data in both languages."""
    return {
        "keys": [(key, _both(text)) for key, text in _KEYS.items()],
        "signs": [(sign, _both(text)) for sign, text in _SIGNS.items()],
        "agreement": _both(_AGREEMENT),
    }


def _both(text: T) -> dict[str, str]:
    return {"en": text.en, "zh": text.zh}
