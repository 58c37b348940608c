"""A line or two under the traceback of a cell that torch refused: what this class of error means, and how to see where
it came from. :func:`hint` returns it; None where there is nothing to say.

A name that no cell has made yet gets its line as well: after a restart of the kernel that is the most usual error.

The error is named from its type and from the fixed part of torch's text, never from guesses about the program. What a
rule is about has its line here; what is not in :data:`KNOWN` gets the short sentence of its family in the catalogue of
refusals; what does not come from torch gets no hint. Why it happened is what ``%%pitfall`` finds out.
"""

# ruff: noqa: PLC0415 - %load_ext takes some 40 ms: torch and the engines are imported when a cell needs them

from __future__ import annotations

import ast
import re
import symtable
import traceback
from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING

from pitfall_lab.panel.written_names import changed
from pitfall_lab.trace import LANGUAGES, Language, T

if TYPE_CHECKING:
    from pitfall_lab.panel.cause import Cause
    from pitfall_lab.panel.failures import Failed
    from pitfall_lab.rules.refusals import Family


@dataclass(frozen=True, slots=True)
class Known:
    """A class of torch's errors.

    ``words`` is the part of the message that torch always uses, ``type`` the name of the exception's class, ``means``
    what such an error means. ``rule`` is the code of the rule, or of the family of errors, whose page says more (empty:
    none).
    """

    words: str
    means: T
    rule: str = ""
    type: str = "RuntimeError"


KNOWN = (
    Known(
        "has been modified by an inplace operation",
        T(en="a line overwrote numbers that backward still needed.", zh="某一行覆盖了反向传播还需要的数。"),
        "PL101",
    ),
    Known(
        "leaf Variable that requires grad",
        T(
            en="a tensor whose gradient is wanted may be changed in place only inside `torch.no_grad()`.",
            zh="要求梯度的张量只能在 `torch.no_grad()` 里就地修改。",
        ),
        "PL201",
    ),
    Known(
        "Trying to backward through the graph a second time",
        T(
            en="the graph was already used by a backward, which frees what it saved; build it again "
            "with a new forward pass.",
            zh="这个计算图已经被一次反向传播用过，保存的内容已释放；请重新做一次前向计算来建立它。",
        ),
        "PL501",
    ),
    Known(
        "does not require grad and does not have a grad_fn",
        T(
            en="backward was started from a tensor with no graph behind it: it was cut off, or nothing in "
            "it required gradients.",
            zh="反向传播从一个背后没有计算图的张量开始：图被切断了，或者其中没有任何张量要求梯度。",
        ),
        "PLE32",
    ),
    Known(
        "grad can be implicitly created only for scalar outputs",
        T(
            en="backward starts from one number; reduce the tensor first, with `.sum()` or `.mean()`.",
            zh="反向传播从一个数开始；先用 `.sum()` 或 `.mean()` 把张量归约成一个数。",
        ),
        "PL507",
    ),
    Known(
        "is a view and is being modified inplace",
        T(
            en="a view that must not be written was written: of several made at once (`split`, `unbind`, a loop), or "
            "made under `no_grad`.",
            zh="写入了一个不可写的视图：它是一次产生的多个视图之一（`split`、`unbind`、循环），或在 `no_grad` 下产生。",
        ),
        "PL202",
    ),
    Known(
        "A view was created in",
        T(
            en="a view made under `no_grad` or `inference_mode` was changed where gradients are recorded.",
            zh="在 `no_grad` 或 `inference_mode` 下产生的视图，在记录梯度的地方被修改了。",
        ),
        "PL203",
    ),
    Known(
        "Inference tensors cannot be saved for backward",
        T(
            en="a tensor made under `inference_mode` cannot take part in gradients; `.clone()` it outside first.",
            zh="在 `inference_mode` 下产生的张量不能参与求梯度；先在外面 `.clone()`。",
        ),
        "PL204",
    ),
    Known(
        "appears to not have been used in the graph",
        T(
            en="the result was not computed from one of the tensors whose gradient is wanted.",
            zh="所问的张量中有一个与结果没有关系。",
        ),
        "PL508",
    ),
    Known(
        "must match the size of tensor",
        T(
            en="two shapes do not fit: lined up from the right, lengths must be equal or 1.",
            zh="两个形状对不上：从右边对齐后，长度必须相等或为 1。",
        ),
        "PLE02",
    ),
    Known(
        "view size is not compatible with input tensor's size and stride",
        T(
            en="this memory cannot be looked at in that shape without moving it; `.reshape()` copies where it has to.",
            zh="不移动内存就不能以那个形状来看它；`.reshape()` 会在必要时复制。",
        ),
        "PL406",
    ),
    Known(
        "doesn't match the broadcast shape",
        T(en="the result is larger than the tensor it should be written into.", zh="结果比要写入的张量大。"),
        "PL403",
    ),
    Known(
        "refers to a single memory location",
        T(
            en="several elements of the written tensor are one place in memory; `.clone()` it first.",
            zh="被写入的张量中有多个元素是同一处内存；先 `.clone()`。",
        ),
        "PL404",
    ),
    Known(
        "can't be cast to the desired output type",
        T(
            en="the result's dtype does not fit into the tensor that is changed in place.",
            zh="结果的 dtype 放不进被就地修改的张量。",
        ),
        "PL802",
    ),
    Known(
        "you can only change requires_grad flags of leaf variables",
        T(
            en="a result that was computed always follows what it was computed from; only a tensor you "
            "made can be switched.",
            zh="算出来的结果总是跟随它的来源；只有你自己创建的张量可以切换。",
        ),
        "PL207",
    ),
    Known(
        "Only Tensors of floating point and complex dtype can require gradients",
        T(en="integers have no gradients; make it a float tensor.", zh="整数没有梯度；请改成浮点张量。"),
        "PL801",
    ),
    Known(
        "can't optimize a non-leaf Tensor",
        T(
            en="an optimizer can only update tensors you made (leaves), not results that were computed.",
            zh="优化器只能更新你自己创建的张量（叶子），不能更新算出来的结果。",
        ),
        "PL206",
        type="ValueError",
    ),
)
_OF_TENSORS = re.compile(r"[Dd]imension|tensor|Target -?\d|in self")
"""Words of torch that no IndexError of Python's lists or NumPy's arrays has."""
_OTHER = T(en="this error comes from inside torch.", zh="这个错误来自 torch 内部。")
_MORE = T(en=" More: %pitfall explain {rule}", zh=" 详见：%pitfall explain {rule}")
_AGAIN = T(
    en="To see where it came from, put %%pitfall on the first line and run the cell again; {how}.",
    zh="想看它从哪里来，请在单元格第一行加上 %%pitfall 再运行一次；{how}。",
)
_BESIDE = T(
    en="pitfall_lab: {means} To see where it came from, run the cell again; {how}.",
    zh="pitfall_lab: {means}想看它从哪里来，请再运行一次；{how}。",
)
_MISSING = T(
    en="nothing is called `{name}` in this kernel yet. After a restart, or when cells are run out of order, run the "
    "cells above first (in JupyterLab: Run › Run All Above Selected Cell).",
    zh="此内核中还没有 `{name}`。重启之后，或没有按顺序运行单元格时，请先运行上面的单元格"
    "（JupyterLab：Run › Run All Above Selected Cell）。",
)
_AS_IT_IS = T(en="it can be run again as it is", zh="它可以直接再运行")
_AFTER = T(
    en="first rerun what makes {names}, changed by this cell",
    zh="先重新运行产生 {names} 的单元格，因为此单元格改变了其值",
)


@dataclass(frozen=True, slots=True)
class Hint:
    """What is said below the traceback of a failed cell: ``text``, and in ``rule`` the code of the rule, or of the
    family of errors, whose page explains it (empty: none).
    """

    text: T
    rule: str = ""
    beside: T | None = None
    """The same beside a button that runs the cell again, watched: nothing has to be typed then."""


def hint(error: BaseException, cell: str, cause: Cause | None = None) -> Hint | None:
    """Return the text below the traceback of ``cell``'s error; None if it is not one of these: ``cause`` is given,
    ``cell`` reads a name that nothing defines, the error was raised in torch's own files or has a type of torch's, or
    its words are those of a known error of torch.

    ``cause``: the panel's explanation, if it had warned of this error before; it is then the text.
    """
    if cause is not None:
        why = T(*(f"pitfall_lab: {cause.sentence.say(each)}" for each in LANGUAGES))
        more = T(*(_MORE.say(each).format(rule=cause.rule) if cause.rule else "" for each in LANGUAGES))
        beside = T(f"{why.en} {cause.fix.en}", why.zh + cause.fix.zh)
        return Hint(
            T(*(f"{why.say(each)}{more.say(each)}\n{cause.fix.say(each)}" for each in LANGUAGES)), cause.rule, beside
        )
    if name := _from_an_earlier_cell(error, cell):
        return Hint(T(*(f"pitfall_lab: {_MISSING.say(language).format(name=name)}" for language in LANGUAGES)))
    means, rule = _named(error)
    if means is None:
        return None
    more = T(*(_MORE.say(language).format(rule=rule) if rule else "" for language in LANGUAGES))
    how = T(*(_AGAIN.say(language).format(how=_how(cell, language)) for language in LANGUAGES))
    beside = T(*(_BESIDE.say(each).format(means=means.say(each), how=_how(cell, each)) for each in LANGUAGES))
    return Hint(
        T(*(f"pitfall_lab: {means.say(each)}{more.say(each)}\n{how.say(each)}" for each in LANGUAGES)), rule, beside
    )


def not_as_before(before: Failed, cell: str, *, failed: bool) -> Hint:
    """What is said below a recorded cell that does not end as its last run (``before``) did: that run failed and had
    changed what the cell starts from, and now the cell does not fail, or fails with another error (``failed``).
    ``cell`` is the text of the cell.
    """
    said = before.message.splitlines()[0][:100] if before.message else "?"
    how = T("fails with another error", "以另一个错误失败") if failed else T("does not fail any more", "不再失败")
    names = ", ".join(f"`{name}`" for name in changed(cell))
    again = T(f"Run again what makes {names}, then explain it.", f"请重新运行产生 {names} 的单元格，然后再解释。")
    if not names:
        again = T("Run the cells before it again, then explain it.", "请重新运行它前面的单元格，然后再解释。")
    return Hint(
        T(
            f"pitfall_lab: this run {how.en}: In [{before.run}] failed with “{said}” and had changed what the cell "
            f"starts from. {again.en}",
            f"pitfall_lab：这次运行{how.zh}：In [{before.run}] 以“{said}”失败，并改变了此单元格的起点。{again.zh}",
        )
    )


def _from_an_earlier_cell(error: BaseException, cell: str) -> str:
    """The name that was not found, when ``cell`` reads it and does not make it itself (in a function a name
    is another one); else empty.
    """
    name = error.name if isinstance(error, NameError) and not isinstance(error, UnboundLocalError) else None
    try:
        reads = any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(ast.parse(cell)))
        table = symtable.symtable(cell, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError):
        return ""
    makes = name in table.get_identifiers() and (table.lookup(name).is_assigned() or table.lookup(name).is_imported())
    return name if name and reads and not makes else ""


def _named(error: BaseException) -> tuple[T | None, str]:
    """Return what the error means (None: not known), and the rule or family of errors
    where it is explained ("": none).
    """
    text = str(error)
    for known in KNOWN:
        if known.type in (each.__name__ for each in type(error).__mro__) and known.words in text:
            return known.means, known.rule
    frames = traceback.extract_tb(error.__traceback__)
    inside = bool(frames) and "torch" in PurePath(frames[-1].filename).parts
    by_torch = inside or type(error).__module__.partition(".")[0] == "torch"
    plain = type(error) in (RuntimeError, NotImplementedError) or (
        type(error) is IndexError and _OF_TENSORS.search(text) is not None
    )
    found = _family(text) if by_torch or plain else None
    if found is not None:
        family, means = found
        return means, family.code
    return (_OTHER, "") if by_torch else (None, "")


def _family(text: str) -> tuple[Family, T] | None:
    """The family of the catalogue that an error's words belong to, and what it says in short; None if there is none."""
    from pitfall_lab.rules.refusals import family_of, short

    found = family_of(text)
    said = short(found[0], text) if found is not None else None
    return (found[0], said) if found is not None and said is not None else None


def _how(cell: str, language: Language) -> str:
    names = changed(cell)
    if not names:
        return _AS_IT_IS.say(language)
    return _AFTER.say(language).format(names=", ".join(f"`{name}`" for name in names))
