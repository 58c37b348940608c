"""The page of operations: what each saves for backward, when, and so which later write breaks it.

``python -m pitfall_lab.reference.operations`` writes ``pitfall_lab/docs/operations.md``. Every row is an experiment
on the running torch (:mod:`pitfall_lab.verify.experiments.saved_tensors`); for the operations that the shadow
engine models, the same experiment runs on the shadow, and a row on which the two differ is refused. A test compares
the page with what would be written.
"""

# ruff: noqa: PLC0415 - the catalogue imports torch; the command line reads this module without it

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from pitfall_lab.resources import DOCS
from pitfall_lab.trace import Language, T

if TYPE_CHECKING:
    from pitfall_lab.verify.experiments.catalogue import Operation
    from pitfall_lab.verify.experiments.saved_tensors import Condition, Study

PAGE = DOCS / "operations.md"

_AND = T(en=" and ", zh=" 与 ")
_OR = T(en=" or ", zh=" 或 ")
_ONE = T(en=" if {names} requires a gradient", zh="(当 {names} 需要梯度时)")
_ALL = T(en=" if {names} require gradients", zh="(当 {names} 都需要梯度时)")
_SOMETIMES = T(en=" in some cases", zh="(某些情况下)")
_KINDS = {
    "new": T(en="new memory", zh="新内存"),
    "same": T(en="{name} itself", zh="{name} 本身"),
    "view": T(en="a view of {name}", zh="{name} 的视图"),
    "memory": T(en="memory of {name}", zh="{name} 的内存"),
    "counter": T(en="memory of {name}, another counter", zh="{name} 的内存,另一个计数器"),
}
_WRITES = T(en="{name}: version +{by}", zh="{name}:版本 +{by}")
_OTHERS = {
    "own": T(en="a tensor of its own", zh="它自己的张量"),
    "inside": T(en="a leaf made inside the call", zh="调用内部创建的叶子张量"),
    "lost": T(en="a tensor that the call itself overwrites", zh="被该调用自己覆盖的张量"),
}
_VIEW_OF = T(en="a view of {name}", zh="{name} 的视图")
_NOTHING = T(en="nothing", zh="无")


def code(name: str) -> str:
    """Return a name as Markdown code."""
    return f"`{name}`"


def plain(name: str) -> str:
    """Return a name unchanged, for the terminal."""
    return name


class Wording:
    """Says what a study found, in one language, with ``mark`` around names of the program."""

    def __init__(self, language: Language = "en", mark: Callable[[str], str] | None = None) -> None:
        self.language = language
        self.mark = code if mark is None else mark

    def when(self, condition: Condition) -> str:
        """Return in words which operands have to require grad for something to hold, or "in some cases" where no such
        operands describe it; empty if it always holds.
        """
        if condition.unclear:
            return _SOMETIMES.say(self.language)
        if not condition.names:
            return ""
        together = condition.together and len(condition.names) > 1
        names = (_AND if together else _OR).say(self.language).join(self.mark(n) for n in condition.names)
        return (_ALL if together else _ONE).say(self.language).format(names=names)

    def tensor(self, what: str) -> str:
        """Return in words which saved or overwritten tensor ``what`` is: an operand, a result, a view of one of them,
        the node's own, a leaf made inside the call, or one that the call itself overwrites.
        """
        if what in _OTHERS:
            return _OTHERS[what].say(self.language)
        if what.startswith("view of "):
            return _VIEW_OF.say(self.language).format(name=self.mark(what[8:]))
        return self.mark(what)

    def rows(self, rows: Iterable[tuple[str, Condition]]) -> str:
        """Several tensors with their conditions; the many parts of one result are one."""
        said = dict.fromkeys(f"{self.tensor(_parts(what))}{self.when(condition)}" for what, condition in rows)
        return ", ".join(said)

    def nodes(self, study: Study) -> list[tuple[str, str]]:
        """Return each node's name, with what it saves in words."""
        return [(name, self.rows(rows) or _NOTHING.say(self.language)) for name, rows in study.saved()]

    def result(self, study: Study) -> str:
        """Return in words what the result is (new, a view, ...), and what the call itself writes."""
        said = []
        for what in study.main.results.values():
            kind, _, name = what.partition(" ")
            kind, name = ("counter", name.split(",")[0]) if "," in name else (kind, name)
            said.append(_KINDS[kind].say(self.language).format(name=self.mark(name)))
        said += [
            _WRITES.say(self.language).format(name=self.mark(name), by=by) for name, by in study.main.bumps.items()
        ]
        return ", ".join(dict.fromkeys(said))


def _parts(label: str) -> str:
    """The tensors with ``result[0]``, ``result[1]``, ... as one entry."""
    return re.sub(r"^result\[\d+\](\[\d+\])*$", "result[k]", label)


# -- the page

_HEAD = """<!-- Made by `python -m pitfall_lab.reference.operations` on torch {version}. -->

# What each operation saves for backward, and which later write breaks it

Torch's documentation does not have this table. A node keeps tensors for backward; when one of them is overwritten before backward has run,
torch raises *one of the variables needed for gradient computation has been modified by an inplace operation*. Which tensors those are differs
from operation to operation: `exp` keeps its **result**, `log` its **input**, `a * b` keeps `b` only if `a` requires a gradient, `a + b` nothing.

No row was written by hand. For each, the call was run on torch {version}, one of its tensors was overwritten (`with torch.no_grad(): x.zero_()`),
and backward was run: either it raised or it did not; and that for each tensor and for each choice of operands that require a gradient.
`pitfall-lab saves exp` does the same on your torch and prints a program to paste; `pitfall-lab saves "torch.cdist(a, b)"` takes any expression.

**How to read it.** *call* is over small operands: `a`, `b` (2, 3) and `c` (3,), `w` (3, 2), `s` (3, 3) require a gradient, `h` is a result (`a * 1`), `p` does not
require a gradient, `n` holds integers, `i` an index, `m` a mask; `img`, `seq`, `k1` … are larger. *result*: `new memory`; `a view of a` shares memory and version counter,
so that writing it writes `a`; `a itself` is the same object. *saves*: "a tensor of its own" is a copy, a mask, a statistic, a number: the program cannot overwrite it.
*a later write that breaks backward* lists what must not be written between this call and backward; what is not listed may be written. "refuses any write" means
that the next use raises another error: several views were returned at once. "backward raises by itself" means that it raises with nothing overwritten.

**中文图例。** 每一行都是在 torch {version} 上做的实验:先运行 *call* 列的调用,再覆盖其中一个张量,然后反向传播,看它是否报错。*operation*:操作名;*call*:实验所用的调用;
*result*:结果是新内存(new memory)、视图(a view of,与原张量共享内存和版本计数器)还是同一个对象(itself);*node: saves*:反向图的节点,以及它为反向传播保存了什么
(nothing:什么都不存;a tensor of its own:自己的副本、掩码或统计量,用户无法改写;if … requires a gradient:仅当该张量需要梯度时);
*a later write that breaks backward*:在反向传播之前写入它就会报错的张量,没有列出的可以放心写入;refuses any write:不允许任何写入;backward raises by itself:什么都不改,反向传播也会报错。
**Modelled** 由影子引擎独立建模并逐项核对;**Mirrored** 没有模型,直接采用 torch 的结果。

Contents: {contents}
"""  # noqa: E501
_MODELLED = """## Modelled

{count} operations under {names} names have an entry in the shadow engine: it computes values, strides, aliasing, versions, nodes, saved tensors and gradients on its own,
and each row below came out the same on both engines.
"""  # noqa: E501
_MIRRORED = """## Mirrored

These have no entry: the recorder takes torch's result and its nodes over and marks them *observed*. What they save is read from torch, so that
writes to it are still noticed. {count} functions and methods; for {rows} of them a call on small operands is known.
"""  # noqa: E501
_TABLE = "| operation | call | result | node: saves | a later write that breaks backward |\n|---|---|---|---|---|"


class ShadowDiffers(Exception):
    """The shadow does not do what torch does: the page is not written."""


def page(calls: dict[str, str] | None = None) -> str:
    """The text of the page.

    ``calls`` maps the name of an operation that the shadow engine has no entry for (a *mirrored* one) to a call of it
    on small operands. Without ``calls``, such calls are searched for, which takes about a minute.
    """
    from pitfall_lab.verify.experiments import catalogue

    modelled, mirrored = catalogue.modelled(), catalogue.mirrored()
    topics = dict.fromkeys([*(o.topic.capitalize() for o in modelled), "Mirrored"])
    contents = " · ".join(f"[{topic}](#{topic.lower()})" for topic in topics)
    parts = [
        _HEAD.format(version=catalogue.VERSION.split("+")[0], contents=contents),
        _MODELLED.format(count=len(modelled), names=sum(len(o.names) for o in modelled)),
    ]
    for topic in dict.fromkeys(o.topic for o in modelled):
        words = catalogue.topic_words(topic).replace("``", "`")
        group = [(o, o.studies()) for o in modelled if o.topic == topic]
        parts.append(f"### {topic.capitalize()}\n\n{words}\n\n{table(group)}")
    groups = [(o, o.studies() if calls is None else _known(o, calls)) for o in mirrored]
    parts.append(_MIRRORED.format(count=len(mirrored), rows=sum(1 for _, studies in groups if studies)))
    for topic in dict.fromkeys(o.topic for o in mirrored):
        rows = table([(o, studies) for o, studies in groups if o.topic == topic])
        parts.append(f"### {topic}\n\n{rows}")
    return "\n".join(parts)


def _known(operation: Operation, calls: dict[str, str]) -> list[Study]:
    from pitfall_lab.verify.experiments.saved_tensors import study

    return [study(calls[operation.names[0]])] if operation.names[0] in calls else []


def table(group: Iterable[tuple[Operation, list[Study]]]) -> str:
    """The rows of one topic, as Markdown. Below them, one line lists the modelled operations that only give new memory
    and make no node, and one line those for which no call is known; a line that would list none is left out.

    Raises :class:`ShadowDiffers` if the shadow differs from torch in one of them.
    """
    rows: list[str] = []
    flat: list[str] = []
    unknown: list[str] = []
    for operation, studies in group:
        faults = [f"{study.code}: {difference}" for study in studies for difference in study.differences]
        if faults:
            raise ShadowDiffers("\n".join(faults))
        title = titled(operation)
        if not studies:
            unknown.append(title)
        elif (
            not any(study.main.nodes for study in studies)
            and set(studies[0].main.results.values()) == {"new"}
            and operation.entry
        ):
            flat.append(title)
        else:
            note = " (mirrored)" if operation.entry else ""
            rows += [row(title, study, note if study.missing else "") for study in studies]
    parts = ["\n".join([_TABLE, *rows])] if rows else []
    if flat:
        parts.append(f"New memory, no node, nothing saved: {', '.join(flat)}.")
    if unknown:
        parts.append(f"No simple call that gives a tensor: {', '.join(unknown)}.")
    return "\n\n".join(parts) + "\n"


def titled(operation: Operation) -> str:
    """An operation's short names, as Markdown."""
    return " ".join(code(name) for name in dict.fromkeys(map(brief, operation.names)))


def row(title: str, study: Study, note: str = "") -> str:
    """One row of a table; ``note`` is put after the call. Nodes that save nothing are only counted; but if none
    saves anything, the first one is named.
    """
    say = Wording()
    nodes = say.nodes(study)
    keeping = [f"{name}: {saves}" for name, saves in nodes if saves != _NOTHING.en] or [
        f"{name}: {saves}" for name, saves in nodes[:1]
    ]
    others = len(nodes) - len(keeping)
    keeping += [f"({others} more: nothing)"] if others else []
    breaks = say.rows(study.breaking()) or "–"
    if study.refused():
        breaks = "refuses any write"
    if alone := study.alone():
        itself = f"backward raises by itself{say.when(alone[1])}"
        breaks = f"{breaks}; {itself}" if study.breaking() else itself
    cells = [title, code(study.code) + note, say.result(study), "<br>".join(keeping) or "no node", breaks]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def brief(name: str) -> str:
    """A name as short as it stays clear; unchanged if it is not torch's.

    >>> brief("torch.exp"), brief("torch.Tensor.exp"), brief("torch.nn.functional.relu"), brief("torch.Tensor.T.__get__")
    ('exp', 'exp', 'F.relu', 'T')
    """  # noqa: E501
    for prefix, instead in (
        ("torch.Tensor.", ""),
        ("torch.nn.functional.", "F."),
        ("torch.functional.", ""),
        ("torch.", ""),
    ):
        if name.startswith(prefix):
            return instead + name.removeprefix(prefix).removesuffix(".__get__")
    return name


def written_calls(text: str) -> dict[str, str]:
    """The calls of the mirrored operations on a page, by the full name of the operation."""
    from pitfall_lab.verify.experiments import catalogue

    rows = dict(_rows(text.partition("\n## Mirrored\n")[2]))
    keys = {o.names[0]: (o.topic, titled(o)) for o in catalogue.mirrored()}
    return {name: rows[key] for name, key in keys.items() if key in rows}


def _rows(text: str) -> Iterator[tuple[tuple[str, str], str]]:
    topic = ""
    for line in text.splitlines():
        if line.startswith("### "):
            topic = line[4:]
        elif line.startswith("| `"):
            title, call = line.replace("\\|", "\0").split(" | ")[:2]
            yield (topic, title[2:]), call.strip("`").replace("\0", "|")


def main() -> int:
    """Write the page: 0, or 1 if the shadow differs from torch, and then nothing is written."""
    try:
        PAGE.write_text(page(), encoding="utf-8")
    except ShadowDiffers as fault:
        print(f"The shadow differs from torch; nothing was written.\n{fault}", file=sys.stderr)
        return 1
    print(PAGE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
