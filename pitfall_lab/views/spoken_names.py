"""Sentences with the names that the program has for things in place of their labels: ``h`` for ``t2``, "the memory of
h" for ``storage S2``, "the version of h" for ``counter C2``. :func:`spoken` returns such a sentence.

The browser does the same with the same phrases (``frontend/src/core/prose.ts``), and a test compares them.
"""

from __future__ import annotations

import re
from functools import lru_cache

from pitfall_lab.trace import T
from pitfall_lab.views.label_history import Facts

PHRASES: tuple[tuple[str, str], ...] = (
    (r"[^\s（）。，、：；]+ \((t\d+)\)", r"\1"),
    (r"(n\d+) \(\w+\)", r"\1"),
    (r"(Its|Their) node (n\d+) enters the graph", r"\1 backward will be \2"),
    (r"The node of (t\d+(?:(?:, | and )t\d+)*), (n\d+), enters the graph", r"The backward of \1 will be \2"),
    (r"On the way there, nodes? ((?:n\d+|, | and )+) enters? the graph", r"On the way there, torch also records \1"),
    (r"Nodes ((?:n\d+|, | and )+) enter the graph", r"\1 enter the graph"),
    (r"enters the graph and saves ", r"enters the graph and keeps "),
    (r"(n\d+) and saves ", r"\1, which keeps "),
    (r"; (n\d+) saves ", r"; \1 keeps "),
    (r"的节点 (n\d+) 加入计算图", r"的反向传播是 \1"),
    (r"节点 (n\d+) 属于 (t\d+(?:(?:、 | 和 )t\d+)*)，加入计算图", r"\2 的反向传播是 \1"),
    (r"途中还有节点 ((?:n\d+|、)+) 加入计算图", r"途中 torch 还记录了 \1"),
    (r"(n\d+)( 加入计算图)?，保存 ", r"\1\2，为反向传播保留 "),
    (r"；(n\d+) 保存 ", r"；\1 为反向传播保留 "),
    (r"Node (n\d+)", r"\1"),
    (r"节点 (n\d+)", r"\1"),
    (r"\w+ = (a tensor without a name|\S+) at v(\d+)", r"\1 (v\2)"),
    (r"\w+ = ([^\s（]+)（版本 (\d+)）", r"\1（v\2）"),
    (r"It shares counter C\d+\.", r"A write through either is counted for both."),
    (
        r"It has its own counter C\d+: writes through one do not show on the other's counter\.",
        r"A write through one is not counted for the other.",
    ),
    (r"它与别的张量共用版本计数器 C\d+。", r"经任何一方的写入都会为双方计数。"),
    (r"它有自己的版本计数器 C\d+：经一方写入，另一方的计数器看不出来。", r"经一方的写入不会为另一方计数。"),
    (r", in new storage S\d+(?:, counter C\d+ at \d+)?", r", in memory of its own"),
    (r"storage S\d+ of (t\d+)", r"the memory of \1"),
    (r"存储 S\d+（(t\d+)）", r"\1 的内存"),
    (r"(?:the existing |memory of )?storage (S\d+)", r"the memory of \1"),
    (r"shares counter C\d+", r"shares its version counter"),
    (r"its own counter C\d+", r"its own version counter"),
    (r"counters? (C\d+)", r"the version of \1"),
    (r"，放在新的存储 S\d+ 中(?:，版本计数器 C\d+ 为 \d+)?", r"，有自己的内存"),
    (r"(?:新的|已有的)?存储 (S\d+)(?: 的内存)?", r"\1 的内存"),
    (r"(共用|自己的)版本计数器 C\d+", r"\1版本计数器"),
    (r"版本计数器 (C\d+)", r"\1 的版本"),
)
"""How sentences speak of labels, as patterns, and what they say instead."""
_LABEL = re.compile(r"(?<![\w.])([tSCn]\d+)(?![\w(]|\.\w)|(?<![\w.])(n\d+)(?=\.\w)", re.ASCII)
"""A label, or that of a node before the name of one of its slots: ``n2.result``."""
_PATTERNS = [(re.compile(pattern), instead) for pattern, instead in PHRASES]


def spoken(text: str, facts: Facts, step: int | None = None) -> str:
    """``text`` with the program's names in place of labels: the names at ``step``, or at the end for None.

    Text between backticks is unchanged, since it is the program's.
    """
    parts = re.split(r"`([^`\n]+)`", text)
    return "".join(f"`{part}`" if at % 2 else _named(part, facts, step) for at, part in enumerate(parts))


def both(text: T, facts: Facts, step: int | None = None) -> T:
    """``text`` with the program's names in place of labels (:func:`spoken`), in both languages."""
    return T(en=spoken(text.en, facts, step), zh=spoken(text.zh, facts, step))


def _named(part: str, facts: Facts, step: int | None) -> str:
    return _LABEL.sub(lambda found: facts.called(found[1] or found[2], step), _phrased(part))


@lru_cache(maxsize=8192)
def _phrased(part: str) -> str:
    """The text with all ``PHRASES`` replaced; cached, since a page and its text version have the same sentences."""
    if any(map(str.isdigit, part)):  # each phrase has a number
        for pattern, instead in _PATTERNS:
            part = pattern.sub(instead, part)
    return part
