"""Why a cell failed, if the panel had warned of this before, or if the live objects show it (:func:`cause`).

An error is matched with a warning about a graph if torch's message is the one that was predicted for the live graph
(or, for a graph whose backward has run, the one about a second backward) and the cell has not recomputed that graph. It
is matched with a warning about data changed twice if it is about a value out of range and the failed cell reads the
data. If a cell computed its loss from a graph whose backward had run, the variable through which it did so is searched
for after the error.
"""

# ruff: noqa: PLC0415 - the catalogue of errors is large, and few cells fail

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from pickle import PickleError
from typing import Any, NamedTuple

from pitfall_lab.observe.live.broken import Broken
from pitfall_lab.observe.live.computed_buffers import ComputedBuffer
from pitfall_lab.observe.live.global_states import Kind, Setting, Switched
from pitfall_lab.observe.live.kept_inference import KeptInference
from pitfall_lab.observe.live.module_dtypes import ConvertedModule
from pitfall_lab.observe.live.old_classes import OldObject
from pitfall_lab.observe.live.rows_asked import RowsAsked
from pitfall_lab.observe.live.session import Computed, Copied, Missing
from pitfall_lab.observe.live.stale_schedulers import Stepped
from pitfall_lab.observe.live.used_graphs import Used
from pitfall_lab.observe.live.written_again import WrittenAgain
from pitfall_lab.panel.cells_run import Cell, Ran
from pitfall_lab.panel.class_anew import class_anew
from pitfall_lab.panel.cuts import CutStatement, cut, in_inference_mode, read_in_functions
from pitfall_lab.panel.moved_before import converted_before, kept_from, stepped_before
from pitfall_lab.panel.rows_outside import outside
from pitfall_lab.panel.warnings.changed import changed
from pitfall_lab.panel.warnings.computed_once import freed
from pitfall_lab.panel.warnings.cut_off import refused
from pitfall_lab.panel.warnings.left_switched import refused_by
from pitfall_lab.panel.warnings.message import called
from pitfall_lab.panel.warnings.rewritten import rewritten
from pitfall_lab.panel.warnings.used import used
from pitfall_lab.trace import T

NO_GRAPH = "does not require grad and does not have a grad_fn"
NO_COPY = "support the deepcopy protocol"
NO_LEAF = "can't optimize a non-leaf Tensor"
OF_INFERENCE, INFERENCE = "nference tensor", "inference_mode"
TOO_MANY_STEPS = "Tried to step"
SECOND_TIME = "Trying to backward through the graph a second time"


Found = (
    Broken | Used | CutStatement | Computed | Copied | Missing | Switched | WrittenAgain | RowsAsked | OldObject
    | ComputedBuffer | KeptInference | Stepped | ConvertedModule
)  # fmt: skip
OUTSIDE = ("PLE12", "PLE44")
"""Families of errors about values (such as indices) that are out of a function's range."""


class Cause(NamedTuple):
    """Why a cell failed: ``what`` is the finding in the live objects or in the sources of the cells; ``sentence``,
    ``explanation`` and ``fix`` are the texts of the warning about it. ``rule`` is the code of its rule, empty if there
    is none.
    """

    what: Found
    sentence: T
    explanation: T
    fix: T
    rule: str


class LiveLooks(NamedTuple):
    """Functions that examine live objects after a cell has failed; each returns None, or an empty value, if it finds
    nothing.

    ``search``: the variable that connects the failed backward with a graph whose backward has run, from the names that
    the cell made and read. ``is_module``: whether a name is a module with parameters. ``computed``: those of some names
    whose tensors are results of operations. ``missing``: the tensor whose ``.grad``, which is None, the failed
    expression reads, and why it is None. ``switched``: the statement that changed a global setting. ``kinds``: the
    dtypes and devices of those of some names that are floating-point tensors or modules with parameters. ``inferred``:
    those of some names whose tensors were created in inference mode. ``rows``: the range of the indices of a failed
    look-up, and the number of rows of its table. ``sizes``, given the name of a table and its number of rows: the name
    ``x`` whose ``len(x)`` the cell that created the table used, and that length now, if it is not the number of rows.
    ``copied``: the tensor at which a deepcopy failed. ``old``: an object that explains the error, as its class was
    redefined after it was created. ``buffer``: a buffer or attribute of a module from which some of the names were
    computed, and whose graph was freed. ``kept``: an inference tensor that the failed cell used, held by a name, a
    module, a collection or an object of the notebook. ``stepped``: the scheduler that a failed cell stepped beyond its
    last step, with the cells that stepped it before. ``converted``: the first of some names that is a module whose
    dtype a cell has changed.
    """

    search: Callable[[Iterable[str], Iterable[str]], Used | None]
    is_module: Callable[[str], bool]
    computed: Callable[[Iterable[str]], Sequence[Computed]]
    missing: Callable[[BaseException], Missing | None]
    switched: Callable[[Setting], Switched | None] = lambda _: None
    kinds: Callable[[Iterable[str]], Sequence[Kind]] = lambda _: ()
    inferred: Callable[[Iterable[str]], Sequence[str]] = lambda _: ()
    rows: Callable[[BaseException], RowsAsked | None] = lambda _: None
    sizes: Callable[[str, int], tuple[str, int]] = lambda _, __: ("", 0)
    copied: Callable[[BaseException], Copied | None] = lambda _: None
    old: Callable[[BaseException, Iterable[str]], OldObject | None] = lambda _, __: None
    buffer: Callable[[Iterable[str]], ComputedBuffer | None] = lambda _: None
    kept: Callable[[BaseException], KeptInference | None] = lambda _: None
    stepped: Callable[[BaseException], Stepped | None] = lambda _: None
    converted: Callable[[Iterable[str]], ConvertedModule | None] = lambda _: None


def cause(
    error: BaseException | None, text: str, known: Sequence[Broken | Used | WrittenAgain], ran: Ran, look: LiveLooks
) -> Cause | None:
    """The reason why the cell with the source ``text`` failed with ``error``, if it is among the findings ``known`` or
    ``look`` finds it in the live objects; None otherwise, or if ``error`` is None. ``ran`` are the runs before it.
    """
    if error is None:
        return None
    cell = Cell(0, "", text)
    if said := _of_known(str(error), known, cell, ran) or _of_classes(error, cell, ran, look):
        return said
    if SECOND_TIME in str(error):
        return _of_used(cell, ran, look)
    if isinstance(error, (IndexError, RuntimeError)) and (asked := look.rows(error)) is not None:
        return Cause(asked, *outside(asked, ran, look.sizes(asked.table.partition(".")[0], asked.rows)), "PLE12")
    return _of_settings(str(error), cell, ran, look) or _of_objects(error, cell, ran, look)


def _of_objects(error: BaseException, cell: Cell, ran: Ran, look: LiveLooks) -> Cause | None:
    """The tensor, module or scheduler that torch's message is about, and how it came into its state; None if it is not
    found.
    """
    words = str(error)
    if NO_GRAPH in words:
        roots = [each for each in cell.backwards if each.isidentifier()]
        left = refused(roots[0], ran, cell, look.is_module) if roots else None
        return Cause(*left, "PLE32") if left is not None else None
    if OF_INFERENCE in words:
        return _of_inference(error, cell, ran, look)
    if TOO_MANY_STEPS in words:
        stepped = look.stepped(error)
        return Cause(stepped, *stepped_before(stepped, ran), "PLE52") if stepped is not None else None
    if isinstance(error, RuntimeError) and _setting(words) == "dtype":
        converted = look.converted(_from_before(cell, ran))
        return Cause(converted, *converted_before(converted), "PLE21") if converted is not None else None
    if NO_LEAF in words or NO_COPY in words:
        return _of_leaves(error, cell, look)
    if isinstance(error, (TypeError, AttributeError)) and "NoneType" in words:
        without = look.missing(error)
        return _no_gradient(without) if without is not None else None
    return None


def _of_used(cell: Cell, ran: Ran, look: LiveLooks) -> Cause | None:
    """The variable or buffer through which a backward reached a graph that had been freed; None if it is not found."""
    made = sorted(cell.bound, key=lambda name: name not in cell.backwards)
    buffer = look.buffer(made)
    said = freed(buffer, ran) if buffer is not None else None
    if buffer is not None and said is not None:
        return Cause(buffer, *said, "PL502")
    found = look.search(made, sorted(cell.flow[0] - set(cell.backwards)))
    return _said(found, ran, cell) if found is not None else None


def _of_inference(error: BaseException, cell: Cell, ran: Ran, look: LiveLooks) -> Cause | None:
    """The inference tensor that a failed cell used: the value of a name, or one that a module or a collection keeps;
    None if it is not found.
    """
    kept = look.kept(error)
    named = [kept.name] if kept is not None and kept.name == kept.root else []
    inferred = look.inferred(_from_before(cell, ran)) or named
    origin = cut(inferred[0], ran, look.is_module) if inferred else None
    if origin is not None and INFERENCE in origin.words:
        return _inference(inferred[0], origin)
    made = next((run.count for run in reversed(list(ran.since(0))) if kept and kept.root in run.assigned), 0)
    after = [run for run in in_inference_mode(ran) if run.count >= made]
    return Cause(kept, *kept_from(kept, after[0]), "PL204") if kept is not None and after and not named else None


def _of_classes(error: BaseException, cell: Cell, ran: Ran, look: LiveLooks) -> Cause | None:
    """An object whose class has been redefined since it was created, if that explains the error; else None."""
    if not isinstance(error, (TypeError, AttributeError, PickleError)):
        return None
    read = cell.flow[0].union(*(read_in_functions(each, ran) for each in cell.tree.body))
    old = look.old(error, sorted(read))
    said = class_anew(old, cell, ran) if old is not None else None
    return Cause(old, *said, "") if old is not None and said is not None else None


def _of_leaves(error: BaseException, cell: Cell, look: LiveLooks) -> Cause | None:
    """The result of an operation that was passed where only a leaf is accepted; None if it is not found."""
    if NO_COPY in str(error):
        copied = look.copied(error)
        return _not_copied(copied) if copied is not None else None
    results = look.computed(sorted(cell.flow[0]))
    return _no_leaf(results[0]) if results else None


def _of_known(words: str, known: Sequence[Broken | Used | WrittenAgain], cell: Cell, ran: Ran) -> Cause | None:
    """The cause of the error among the findings that were warned of; None if none of them fits."""
    for each in known:
        if isinstance(each, WrittenAgain):
            if _is_outside(each, words, cell, ran):
                return _said(each, ran)
        elif _is_it(each, words, cell.text) and _root(each) not in cell.bound and (said := _said(each, ran, cell)):
            return said
    return None


def _of_settings(words: str, cell: Cell, ran: Ran, look: LiveLooks) -> Cause | None:
    """The global setting that explains the error, if a cell has changed it; else None."""
    setting = _setting(words)
    switched = look.switched(setting) if setting is not None else None
    why = refused_by(switched, look.kinds(_from_before(cell, ran)), ran) if switched is not None else None
    return Cause(switched, *why, _RULES.get(switched.setting, "")) if switched is not None and why is not None else None


_RULES: dict[Setting, str] = {"grad": "PLE32", "dtype": "PLE21", "device": "PLE23"}


def _from_before(cell: Cell, ran: Ran) -> list[str]:
    """The names that a cell reads and does not assign itself, in the order of its source."""
    taken = cell.flow[0].union(*(read_in_functions(each, ran) for each in cell.tree.body)) - cell.assigned
    return sorted(taken, key=lambda name: (cell.text.find(name), name))


def _setting(words: str) -> Setting | None:
    """The global setting that may explain an error with this message; None if there is none."""
    if NO_GRAPH in words:
        return "grad"
    if "deterministic implementation" in words:
        return "deterministic"
    return next((setting for setting, pattern in _OF_SETTINGS if pattern.search(words)), None)


_OF_SETTINGS: tuple[tuple[Setting, re.Pattern[str]], ...] = (
    ("device", re.compile(r"same device|different devices|is on \w+, but expected|[Tt]ensor on device")),
    ("dtype", re.compile(r"dtype|scalar type|[Ii]nput type \(|weight type \(")),
)


def _inference(name: str, made: CutStatement) -> Cause:
    where = called(made.cell)
    words = f"`{made.words}`"
    return Cause(
        made,
        T(
            f"`{name}` comes from {words} in {where}, and what inference mode has made can take no part in gradients: "
            "this is why the cell failed.",
            f"`{name}` 来自 {where} 中的 {words}，而推理模式产生的张量不能参与求梯度：所以此单元格失败了。",
        ),
        T(
            "In inference mode torch does not count how often memory is changed, and backward needs that count. "
            "`no_grad()` leaves out the graph as well, but makes ordinary tensors.",
            "在推理模式下，torch 不统计内存被修改的次数，而反向传播需要它。`no_grad()` 同样不记录计算"
            "图，但产生普通张量。",
        ),
        T(
            f"Write `torch.no_grad()` in place of `torch.inference_mode()` in {where} and run it again, with what "
            f"follows from it; or make an ordinary copy: `{name} = {name}.clone()`.",
            f"在 {where} 中用 `torch.no_grad()` 代替 `torch.inference_mode()` 并重新运行它和由它得出的单元格；"
            f"或产生普通的副本：`{name} = {name}.clone()`。",
        ),
        "PL204",
    )


def _no_leaf(what: Computed) -> Cause:
    made = called(what.made)
    en, zh = (f" in {made}", f" {made} 中 ") if made else ("", "")
    name = f"`{what.name}`"
    return Cause(
        what,
        T(
            f"{name} is the result of {what.node}{en}, not a leaf: an optimizer can update only tensors that "
            "were made, not computed.",
            f"{name} 是{zh}{what.node} 的结果，不是叶子：优化器只能更新直接创建的张量，不能更新算出来的张量。",
        ),
        T(
            "The gradient flows from a result to the tensors that it was computed from; the result itself keeps none.",
            "梯度会从一个结果继续传到算出它的那些张量；结果本身不保留梯度。",
        ),
        T(
            f"Set `requires_grad` after the computation: `{what.name} = (…).detach().requires_grad_()`.",
            f"在计算之后再设置 `requires_grad`：`{what.name} = (…).detach().requires_grad_()`。",
        ),
        "PL206",
    )


def _not_copied(what: Copied) -> Cause:
    """The cause of a failed deepcopy: a tensor with a graph inside the copied object."""
    name, made, more = f"`{what.name}`", called(what.made), what.others
    held, attribute = f"`{what.module}`", what.attribute
    en, zh = (f" in {made}", f" {made} 中 ") if made else ("", "")
    also = T(f", and {more} more like it,", f"（以及另外 {more} 个同样的张量）") if more else T("", "")
    why = T(
        f"{name}{also.en} is the result of {what.node}{en} with its graph, and `copy.deepcopy` copies only leaves: "
        "this is why the cell failed.",
        f"{name}{also.zh}是{zh}{what.node} 的结果，带有计算图，而 `copy.deepcopy` 只能复制叶子：所以此单元格失败了。",
    )
    if not attribute:
        return Cause(
            what,
            why,
            T(
                "What holds the tensor is copied with all that is in it; a graph cannot be copied.",
                "复制一个对象时，其中的所有内容都会被复制；而计算图不能复制。",
            ),
            T(
                f"Keep it without its graph where it is stored (`{what.name} = {what.name}.detach()`).",
                f"在保存它的地方去掉计算图（`{what.name} = {what.name}.detach()`）。",
            ),
            "PLE31",
        )
    return Cause(
        what,
        why,
        T(
            f"It is an attribute of the module {held}, such as a forward hook or a `forward` stores. A copy of the "
            "module copies its attributes too; removing the hook leaves them. The parameters are leaves and not in "
            "the way.",
            f"它是模块 {held} 的一个属性，例如由前向钩子或 `forward` 保存。复制模块时也会复制它的属性；移除钩子并不会"
            "去掉它们。参数是叶子，不妨碍复制。",
        ),
        T(
            f"Delete it before the copy: `for m in {what.root}.modules(): m.__dict__.pop({attribute!r}, None)`. Where "
            f"it is stored, store it detached (`module.{attribute} = output.detach()`).",
            f"在复制之前删除它：`for m in {what.root}.modules(): m.__dict__.pop({attribute!r}, None)`。在保存它的地方，"
            f"请保存分离的结果（`module.{attribute} = output.detach()`）。",
        ),
        "PLE31",
    )


def _no_gradient(what: Missing) -> Cause:
    """The cause of a ``.grad`` that is None although a cell reads it."""
    name, made = what.name, called(what.made)
    en, zh = (f" in {made}", f" {made} 中 ") if made else ("", "")
    if what.why == "computed":
        return Cause(
            what,
            T(
                f"`{name}` is the result of {what.node}{en}, not a leaf, and backward stores gradients only in "
                f"leaves: `{name}.grad` is None.",
                f"`{name}` 是{zh}{what.node} 的结果，不是叶子，而反向传播只把梯度存到叶子里：`{name}.grad` 是 None。",
            ),
            T(
                "The gradient flows from a result to the tensors that it was computed from; the "
                "result itself keeps none.",
                "梯度会从一个结果继续传到算出它的那些张量；结果本身不保留梯度。",
            ),
            T(
                f"If it is to be trained, set `requires_grad` after the computation: `{name} = "
                "(…).detach().requires_grad_()`. To look at the gradient of a result, call "
                f"`{name}.retain_grad()` before backward.",
                f"如果要训练它，请在计算之后再设置 `requires_grad`：`{name} = (…).detach().requires_grad_()`。"
                f"如果只想查看结果的梯度，请在反向传播之前调用 `{name}.retain_grad()`。",
            ),
            "PL506",
        )
    if what.why == "plain":
        return Cause(
            what,
            T(
                f"`{name}` does not require gradients, so no backward gives it one: `{name}.grad` is None.",
                f"`{name}` 不需要梯度，所以没有反向传播会给它梯度：`{name}.grad` 是 None。",
            ),
            T(
                f"What is computed under `torch.no_grad()` does not require gradients. `{name} = {name} - …` there "
                "makes a new tensor of that kind, and the parameter has lost its name.",
                "在 `torch.no_grad()` 之下算出的张量不需要梯度。"
                f"在那里写 `{name} = {name} - …` 会产生一个这样的新张量，参数从此失去了名字。",
            ),
            T(
                f"Make it with `requires_grad=True`, and change it in place: `{name} -= …` under `torch.no_grad()`.",
                f"创建时写 `requires_grad=True`，并就地修改它：在 `torch.no_grad()` 之下写 `{name} -= …`。",
            ),
            "PL205",
        )
    return Cause(
        what,
        T(
            f"`{name}` requires gradients, but no backward has reached it since it was made or its gradient was "
            f"cleared: `{name}.grad` is None.",
            f"`{name}` 需要梯度，但自它创建或梯度被清除以来，没有反向传播到达过它：`{name}.grad` 是 None。",
        ),
        T(
            "A backward stores a gradient in each leaf that its loss was computed from. `zero_grad()` "
            "sets gradients to None.",
            "反向传播会给损失所依赖的每个叶子存一个梯度。`zero_grad()` 会把梯度设为 None。",
        ),
        T(
            f"Check that the loss is computed from `{name}`, and read the gradient after backward and "
            "before `zero_grad()`.",
            f"请检查损失是否由 `{name}` 算出，并在反向传播之后、`zero_grad()` 之前读取梯度。",
        ),
        "",
    )


def runs_of(what: Found) -> tuple[int | None, ...]:
    """The numbers of the runs that created the graph in ``what`` and, if a saved tensor was changed, of the run that
    changed it; for other findings, of the runs that created what failed.

    None for an unknown run; empty if running earlier cells again would not help.
    """
    if isinstance(what, (Switched, WrittenAgain, OldObject)):
        return ()
    if isinstance(what, CutStatement):
        return (what.cell or None,)
    if isinstance(what, (RowsAsked, KeptInference)):
        return (None,)
    if isinstance(what, Stepped):
        return tuple(cell for cell, _ in what.cells)
    if isinstance(what, ConvertedModule):
        return (what.cell,)
    return (what.made, what.changed) if isinstance(what, Broken) else (what.made,)


def _root(what: Broken | Used) -> str:
    return (what.root_path if isinstance(what, Broken) else what.path)[0]


def _is_it(what: Broken | Used, words: str, text: str) -> bool:
    return words in what.refusals if isinstance(what, Broken) else SECOND_TIME in words and _root(what) in text


def _is_outside(what: WrittenAgain, words: str, cell: Cell, ran: Ran) -> bool:
    """Whether torch raised an error about a value out of range, and the cell reads the data that was changed twice."""
    from pitfall_lab.rules.refusals import family_of

    found = family_of(words)
    if found is None or found[0].code not in OUTSIDE:
        return False
    names = {each.partition(".")[0].partition("[")[0] for each in (what.name, what.target)}
    return not _taken(cell, ran).isdisjoint(names)


def _taken(cell: Cell, ran: Ran) -> set[str]:
    """The names that a cell reads, itself or in the notebook's functions that it calls."""
    read = {node.id for node in ast.walk(cell.tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
    return read.union(*(read_in_functions(each, ran) for each in cell.tree.body))


def _said(what: Broken | Used | WrittenAgain, ran: Ran, last: Cell | None = None) -> Cause | None:
    """Return the warning about ``what`` in the past tense; None if there is none.

    ``last`` is the failed cell, if it is not yet among the runs.
    """
    message: dict[str, Any] | None
    if isinstance(what, Broken):
        message = changed(what, ran, failed=True)
    elif isinstance(what, WrittenAgain):
        message = rewritten(what, ran, failed=True)
    else:
        message = used(what, ran, failed=True, last=last)
    if message is None:
        return None
    sentence, explanation, fix = (T(**message[name]) for name in ("sentence", "explanation", "fix"))
    return Cause(what, sentence, explanation, fix, message["rule"])
