"""One display name for each tensor, storage, counter and node, taken from the program, so that no labels (t3, S2) are
shown. :func:`names` returns them by label.

A tensor has the program's own name for it, such as ``w``. Others are named by origin: ``w.grad`` by its leaf,
``momentum of w`` by the optimizer's state, a result among several by the name that it is used under, and everything
else by the expression that made it.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from pitfall_lab.trace import part_names
from pitfall_lab.trace.text import excerpt
from pitfall_lab.trace.used_names import used_names
from pitfall_lab.views.encoding import cut
from pitfall_lab.views.unpacked_results import assigned, indexed

if TYPE_CHECKING:
    from pitfall_lab.views.label_history import Facts

LONGEST = 34
"""Letters of an expression that is used as a name."""
WHOLE = 200
PLAIN = re.compile(r"[^\W\d][\w.]*")
"""A name or a dotted name, and no other expression."""


def names(facts: Facts) -> dict[str, str]:
    """The display name of each label of a trace."""
    tensors = _tensors(facts)
    out = dict(tensors)
    for storage in facts.storages:
        out[storage] = _first(facts, facts.of_storage(storage), tensors)
    for counter in facts.counters:
        out[counter] = _first(facts, facts.of_counter(counter), tensors)
    for node, history in facts.nodes.items():
        out[node] = str((history[-1][1] or {}).get("name") or node)
    return out


def _tensors(facts: Facts) -> dict[str, str]:
    out: dict[str, str] = {}
    for label in facts.tensors:
        name = facts.tensor(label).get("name")
        if name:
            out[label] = written(str(name))
    for label, history in facts.tensors.items():
        for grad in {record["grad"] for _, record in history if record and isinstance(record.get("grad"), str)}:
            out.setdefault(grad, f"{out.get(label, label)}.grad")
    for label, name in {**_of_optimizers(facts, out), **_of_norms(facts, out), **_in_the_making(facts, out)}.items():
        out.setdefault(label, name)
    for label, name in _taken_apart(facts).items():
        out.setdefault(label, written(name))
    used = used_names(facts.trace, facts.tensors.keys() - out.keys())
    for label, history in facts.tensors.items():
        if label in used:
            out[label] = written(used[label])
        elif label not in out:
            # What a backward's hook makes and drops is first met at its end, in the event of the backward.
            made = next((step for step, record in history if record and "kind" in record), history[0][0])
            out[label] = _made_by(facts, label, made) or label
    return out


def written(name: str) -> str:
    """A name as the program would write it, without ``self.``: ``net[0].weight`` for the parameter that
    torch calls ``net.0.weight``.
    """
    return part_names.written(name.removeprefix("self."))


def _of_optimizers(facts: Facts, known: dict[str, str]) -> dict[str, str]:
    """Names for an optimizer's state, by label: ``momentum of w`` for what ``opt.step()`` made of ``w`` or ``w.grad``.

    The state is what ``zeros_like`` or ``clone`` returned for a tensor in ``known``; it is ``mean square of w`` if
    ``addcmul_`` writes it later. The result of ``detach`` has the name of its operand.
    """
    out: dict[str, str] = {}
    known = dict(known)
    for event in facts.trace.events:
        if event.kind != "call" or not event.operands or not facts.code(event.step).endswith(".step()"):
            continue
        of = known.get(event.operands[0].label or "", "")
        if event.name in ("zeros_like", "clone") and of and event.results:
            of = of.removeprefix("momentum of ").removesuffix(".grad")
            known[event.results[0]] = out[event.results[0]] = f"momentum of {of}"
        elif event.name == "detach" and of and event.results:
            known[event.results[0]] = out[event.results[0]] = of
        elif event.name == "addcmul_" and event.operands[0].label in out:
            of = out[event.operands[0].label].removeprefix("momentum of ").removeprefix("mean square of ")
            out[event.operands[0].label] = f"mean square of {of}"
    return out


def _of_norms(facts: Facts, known: dict[str, str]) -> dict[str, str]:
    """Names for the running statistics of batch norms, by label: ``running_mean of bn1`` if the weight is
    ``bn1.weight``.
    """
    out: dict[str, str] = {}
    for event in facts.trace.events:
        weight = next((known.get(o.label or "", "") for o in event.operands if o.name == "weight"), "")
        if event.name == "batch_norm" and weight.endswith(".weight"):
            for operand, kept in zip(event.operands[1:3], ("running_mean", "running_var"), strict=False):
                if operand.label:
                    out[operand.label] = f"{kept} of {weight.removesuffix('.weight')}"
    return out


def _in_the_making(facts: Facts, known: dict[str, str]) -> dict[str, str]:
    """Names, by label, for tensors that a call made and turned into a parameter that has a name.

    ``nn.Linear`` makes an empty tensor first; the parameter made of it, on the same memory, is ``layer.weight``.
    """
    out: dict[str, str] = {}
    for label, history in facts.tensors.items():
        first = next((record for _, record in history if record and "kind" in record), None)
        if label in known or first is None or not calls_another(*_ran(facts, history[0][0])):
            continue
        for other in facts.of_storage(first.get("storage")):
            later = facts.tensor(other)
            same = all(first.get(key) == later.get(key) for key in ("shape", "stride", "offset", "dtype"))
            if same and later.get("is_leaf") and later.get("requires_grad") and later.get("name") and other in known:
                out[label] = known[other]
    return out


def _ran(facts: Facts, step: int) -> tuple[str, str]:
    """The source text of a step, and torch's name of its call."""
    event = facts.trace.events[step]
    return excerpt(facts.trace, event.span, WHOLE), event.name


def _taken_apart(facts: Facts) -> dict[str, str]:
    """Names for the results of calls with several results, from the assignment that takes them apart, by label.

    Results that the assignment gives no name are left out.
    """
    out: dict[str, str] = {}
    for event in facts.trace.events:
        if event.kind == "call" and len(event.results) > 1:
            text = excerpt(facts.trace, event.span, WHOLE)
            parts = assigned(facts.trace, event, text, own=not calls_another(text, event.name))
            out |= {label: name for label, name in zip(event.results, parts, strict=False) if name}
    return out


def _made_by(facts: Facts, label: str, step: int) -> str:
    """The expression that made a tensor at ``step``, shortened; "" if the source is unknown.

    For a call of a module, torch's name of the operation comes before it. For the head of a ``for`` loop it is the
    loop's variable; for one of several results it has an index.
    """
    event = facts.trace.events[step]
    text = excerpt(facts.trace, event.span, WHOLE)
    if turn := re.match(r"for ([\w, ]+) in ", text):
        return turn[1]
    if calls_another(text, event.name):
        return cut(f"{event.name} in {text}", LONGEST)
    parts = indexed(event, text) if text and len(event.results) > 1 and label in event.results else []
    return shortened(parts[event.results.index(label)] if parts else text)


def shortened(name: str) -> str:
    """A name cut to ``LONGEST`` characters, with "…" where something is missing.

    Indices at its end (``[0]``), which distinguish the results of one call, are kept.
    """
    place = re.search(r"(\[\d+\])+$", name)
    last = place[0] if place else ""
    return cut(name.removesuffix(last), LONGEST - len(last)) + last


def calls_another(text: str, operation: str) -> bool:
    """Whether ``text`` is a call of a function or method with another name than ``operation``, which then ran inside
    it.

    Underscores at the ends and case do not count. False if ``text`` is no call expression, or not valid Python.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except SyntaxError:
        return False
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called.strip("_").lower() != operation.strip("_").lower()


def _first(facts: Facts, labels: list[str], tensors: dict[str, str]) -> str:
    """The display name of one of ``labels``; "?" if there are none.

    It is the oldest one for which the program has a name, else the oldest one whose display name is a plain name, else
    the oldest.
    """
    named = (label for label in labels if facts.tensor(label).get("name"))
    plain = (label for label in labels if PLAIN.fullmatch(tensors.get(label, "")))
    label = next(named, None) or next(plain, labels[0] if labels else None)
    return tensors.get(label, "?") if label else "?"
