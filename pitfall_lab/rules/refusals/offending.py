"""Finds the argument that an error of torch is about: by the selectors of the case, or by what torch's message and the
arguments have in common.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable

from pitfall_lab.rules.refusals.arguments import TENSORS, Refused
from pitfall_lab.rules.refusals.remedies.modules_called import given_nothing, loss_class
from pitfall_lab.rules.refusals.remedies.numbers_and_methods import misused
from pitfall_lab.trace import Given

SCALARS = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Long": "int64", "Int": "int32",
    "Short": "int16", "Char": "int8", "Byte": "uint8", "Bool": "bool", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128", "long int": "int64", "double": "float64", "float": "float32", "int": "int32",
    "c10::complex<double>": "complex128", "c10::complex<float>": "complex64", "c10::Half": "float16",
    "c10::BFloat16": "bfloat16", "bool": "bool", "unsigned char": "uint8",
}  # fmt: skip
"""The names of dtypes in torch's messages."""
POSITIONS = ("index", "indices", "mask", "condition", "offsets")
"""Arguments that have a dtype of their own, which need not be that of the other tensors."""
SHAPE = re.compile(r"\[([\d, ]*)\]")
NUMBER = re.compile(r"-?(?:inf|nan|\d+(?:\.\d+)?(?:e-?\d+)?)\b")


def offending(refused: Refused, selectors: str, match: re.Match[str] | None) -> Given | None:
    """Return the argument found by the first of the ``selectors`` (separated by ``|``, see
    :class:`~pitfall_lab.rules.refusals.family.Case`) that finds one.

    If none does: the argument that torch's message is about if there are no selectors or no ``match`` (of the case's
    pattern); else None.
    """
    for selector in filter(None, selectors.split("|")):
        found = _selected(refused, selector, match)
        if found is not None:
            return found
    return said(refused) if not selectors or match is None else None


def _selected(refused: Refused, selector: str, match: re.Match[str] | None) -> Given | None:
    def group(found: re.Match[str]) -> str:
        number = int(found[1])
        return (match[number] or "") if match is not None and match.re.groups >= number else ""

    text = re.sub(r"\{(\d+)\}", group, selector)
    if text.endswith("+1"):
        start = text[1:-2]
        text = f"{text[0]}{int(start) + 1}" if start.isdigit() else ""
    if text.startswith("=dim"):
        named = [g for g in refused.given if any(word in g.name for word in ("dim", "axis", "axes"))]
        return next((g for g in named if g.kind not in TENSORS and text[4:] in NUMBER.findall(g.value)), None)
    if text.startswith("="):
        return (
            next((g for g in refused.given if g.kind not in TENSORS and text[1:] in NUMBER.findall(g.value)), None)
            if text[1:]
            else None
        )
    if text.startswith("~type"):
        return next((g for g in reversed(refused.tensors) if g.dtype == SCALARS.get(text[5:], text[5:].lower())), None)
    if text in KINDS:
        return KINDS[text](refused)
    return refused.argument((text,)) if text else None


def _missing_grad(refused: Refused) -> Given | None:
    """The ``.grad`` that is None, if the failed expression reads an attribute of a ``.grad``; else None."""
    program = refused.story.program
    node = program.at(refused.span) if program.tree is not None else None
    for part in ast.walk(node) if node is not None else ():
        if (
            isinstance(part, ast.Attribute)
            and part.attr == "grad"
            and isinstance(program.parents.get(part), ast.Attribute)
        ):
            return Given("grad", program.segment(part), "NoneType")
    return None


def _object(refused: Refused) -> Given | None:
    """The object whose attribute the failed expression reads or calls; None if the expression is no attribute."""
    program = refused.story.program
    node = program.at(refused.span) if program.tree is not None else None
    node = node.func if isinstance(node, ast.Call) else node
    return Given("", program.segment(node.value), "object") if isinstance(node, ast.Attribute) else None


def _of_other_type(refused: Refused) -> Given | None:
    """The last tensor whose dtype differs from that of the first parameter or, without a parameter, from the most
    frequent dtype.

    Tensors that are not floating point are preferred; indices and masks are left out. None if there is none.
    """
    tensors = [g for g in refused.tensors if g.name not in POSITIONS]
    kept = next((g for g in tensors if g.kind == "Parameter"), None)
    usual = kept.dtype if kept else Counter(g.dtype for g in tensors).most_common(1)[0][0] if tensors else ""
    others = [g for g in tensors if g.dtype != usual]
    floating = [g for g in others if "float" not in g.dtype] or others
    return floating[-1] if floating else None


def _on_other_device(refused: Refused) -> Given | None:
    kept = next((g for g in refused.tensors if g.kind == "Parameter"), refused.tensors[0] if refused.tensors else None)
    return next((g for g in refused.tensors if kept is not None and g.device != kept.device), None) or refused.argument(
        ("device", "@1")
    )


def _of_other_rank(refused: Refused) -> Given | None:
    """The last tensor whose number of dimensions differs from the most frequent number; None if there is none."""
    usual = Counter(len(g.shape or ()) for g in refused.tensors).most_common(1)
    return next((g for g in reversed(refused.tensors) if usual and len(g.shape or ()) != usual[0][0]), None)


def _clash(refused: Refused) -> tuple[Given, Given] | None:
    """The first two tensors whose shapes do not broadcast; None if all of them do."""
    for at, one in enumerate(refused.tensors):
        for other in refused.tensors[at + 1 :]:
            sizes = zip(reversed(one.shape or ()), reversed(other.shape or ()), strict=False)
            if any(a != b and 1 not in (a, b) for a, b in sizes):
                return one, other
    return None


def _overload(refused: Refused) -> Given | None:
    """The first argument that does not fit, in the overload of torch's message that has the fewest such arguments; None
    if all fit, or no overload is listed.
    """
    forms = [
        [part.strip().split(" ") for part in form.split(",")] for form in re.findall(r"\* \((.*)\)", refused.message)
    ]
    misfits = [_misfits(refused, [part for part in form if len(part) > 1]) for form in forms]
    best = min(misfits, key=len, default=[])
    return best[0] if best else None


def _misfits(refused: Refused, form: list[list[str]]) -> list[Given]:
    """The arguments that do not fit the overload ``form``, which has a type and a name for each parameter."""
    found = []
    for place, given in enumerate(refused.given):
        named = next((kind for kind, name, *_ in form if name == given.name), None)
        wanted = named or (form[place][0] if place < len(form) else "")
        if not _takes(wanted, given):
            found.append(given)
    return found


def _takes(kind: str, given: Given) -> bool:
    if given.kind in TENSORS:
        return kind == "Tensor" and given.kind != "ndarray"
    if given.kind in ("int", "float", "bool"):
        return kind in ("Number", "float") or kind == given.kind or (kind == "int" and given.kind == "bool")
    if given.kind in ("tuple", "list", "Size"):
        return kind.startswith("tuple")
    return not given.kind or given.kind in kind or given.kind == "NoneType"


def _said_tensor(refused: Refused) -> Given | None:
    """The argument that torch's message is about, if that is a tensor; else the first tensor, or None if the call has
    none.
    """
    found = said(refused)
    return found if found is not None and found.kind in TENSORS else next(iter(refused.tensors), None)


def said(refused: Refused) -> Given | None:
    """Return the argument that the first line of torch's message is about, found by its name, else by its shape, dtype
    or value.

    If none is found, the only tensor, or the only argument that is not None; None if there are several or none.
    """
    message = refused.message.split("\n")[0]
    return _named(refused, message) or _alike(refused, message) or _only(refused)


def _named(refused: Refused, message: str) -> Given | None:
    """The argument whose name (or its singular) comes first in the message; a name in quotes comes before all others,
    and ``self`` stands for ``input``.

    Names of one letter count only in quotes or before ``=``. If there is none, the argument of :func:`_half_named`.
    """
    text = message.lower().replace("_", " ")
    found: list[tuple[bool, int, int, Given]] = []
    for place, given in enumerate(refused.given):
        name = (given.part_of or given.name).lower().replace("_", " ")
        if len(name) < 1 or given.kind == "NoneType":
            continue
        for word in {name, name.rstrip("s"), *(("self",) if name == "input" else ())} - {""}:
            for match in re.finditer(rf"(?<![\w.]){re.escape(word)}[a-z]?(?![\w(])", text):
                quoted = text[match.start() - 1 : match.start()] in ("'", "`", '"')
                if len(word) > 2 or (match[0] == word and len(word) > 1) or quoted or re.search(rf"\b{word}\s?=", text):
                    found.append((not quoted, match.start(), place, given))
    return min(found, key=lambda item: item[:3])[3] if found else _half_named(refused, text)


def _half_named(refused: Refused, text: str) -> Given | None:
    """The first argument of whose name the message contains a part: ``divisor`` for ``divisor_override``; None if there
    is none.

    Only names of several parts, and parts of more than three letters, count.
    """
    for given in refused.given:
        parts = [
            part for part in given.name.lower().split("_") if len(part) > 3 and part not in ("size", "input", "weight")
        ]
        if (
            len(parts) > 1
            and any(re.search(rf"\b{re.escape(part)}\b", text) for part in parts)
            and given.kind != "NoneType"
        ):
            return given
    return None


def _alike(refused: Refused, message: str) -> Given | None:
    """The only argument whose shape, dtype, value or number of dimensions occurs in the message; None if there is none.

    Tried in this order, from the end of the message (dtypes from its beginning). If several arguments fit, the next
    occurrence is tried.
    """
    for shape in reversed(SHAPE.findall(message)):
        sizes = tuple(int(n) for n in shape.replace(" ", "").split(",") if n)
        same = [g for g in refused.tensors if g.shape == sizes]
        if len(same) == 1:
            return same[0]
    spoken = [g for g in refused.given if g.value.startswith("torch.") and g.value in message]
    if len(spoken) == 1:
        return spoken[0]
    for word in re.findall(r"[A-Z]\w+|long int|double", message):
        same = [g for g in refused.tensors if g.dtype == SCALARS.get(word)]
        if len(same) == 1:
            return same[0]
    spoken_of = NUMBER.findall(message)
    for value in [*(word for word in spoken_of if word.lstrip("-") in ("inf", "nan")), *reversed(spoken_of)]:
        same = [
            g
            for g in refused.given
            if g.kind not in (*TENSORS, "NoneType", "bool") and value in NUMBER.findall(g.value)
        ]
        if len(same) == 1:
            return same[0]
    ranks = re.findall(r"\b(\d)\s?-?[dD]\b|(\d) dim", message)
    for rank in reversed([int(a or b) for a, b in ranks]):
        same = [g for g in refused.tensors if g.shape is not None and len(g.shape) == rank]
        if len(same) == 1:
            return same[0]
    return None


def _only(refused: Refused) -> Given | None:
    """The only tensor among the arguments, else the only argument that is not None;
    None if there are several or none.
    """
    meant = [g for g in refused.given if g.kind != "NoneType"]
    if len(refused.tensors) == 1:
        return refused.tensors[0]
    return meant[0] if len(meant) == 1 else None


KINDS: dict[str, Callable[[Refused], Given | None]] = {
    "!grad": _missing_grad,
    "!object": _object,
    "!nothing": given_nothing,
    "!loss": loss_class,
    "!misused": misused,
    "~dtype": _of_other_type,
    "~device": _on_other_device,
    "~overload": _overload,
    "~said": said,
    "~tensor": _said_tensor,
    "~rank": _of_other_rank,
    "~clash": lambda refused: pair[1] if (pair := _clash(refused)) else None,
    "~clashes": lambda refused: pair[0] if (pair := _clash(refused)) else None,
    "~meta": lambda refused: next((g for g in refused.tensors if g.device == "meta"), None),
    "~number": lambda refused: next((g for g in refused.given if g.kind in ("int", "float", "bool")), None),
    "~notensor": lambda refused: next((g for g in refused.given if g.kind not in TENSORS), None),
    "~grad": lambda refused: next((g for g in refused.tensors if g.requires_grad), None),
    "~floating": lambda refused: next(
        (g for g in reversed(refused.tensors) if "float" in g.dtype and g.kind != "Parameter"), None
    ),
}
"""How the argument that a selector names is found; for Python's types, by the argument's type."""
