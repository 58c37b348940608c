"""Finds what keeps a tensor's storage alive: names, lists, modules and nodes of live graphs, as far as they can be
reached by name (:func:`keeping`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pitfall_lab.observe import tensor_facts
from pitfall_lab.observe.live.budget import Budget
from pitfall_lab.observe.live.found import Path, find
from pitfall_lab.observe.live.graphs import kept, walk
from pitfall_lab.observe.live.history import history
from pitfall_lab.observe.live.inside import resolve
from pitfall_lab.observe.live.object_kinds import is_own
from pitfall_lab.observe.live.tied import tied
from pitfall_lab.observe.looking import unseen
from pitfall_lab.trace import T

MOST = 12
_SECONDS = 0.3


def keeping(namespace: Mapping[str, Any], path: Path) -> T:
    """Return sentences, in English and Chinese, that list the names of tensors on the storage of the object at
    ``path``, and the nodes of live graphs that have saved it. ``namespace`` has the notebook's names and their objects.
    """
    names = [name for name, _ in tied(namespace, path)]
    with unseen():
        thing, budget = resolve(namespace, path), Budget(_SECONDS)
        nodes = (
            _nodes(namespace, thing.value, budget)
            if thing is not None and thing.kind == "tensor" and is_own(thing.value)
            else []
        )
        cut = budget.spent
    said = [T("Names on this memory: {names}.", "这块内存上的名字：{names}。")]
    if nodes:
        said.append(T("Graph nodes that have saved it: {nodes}.", "保存了它的计算图节点：{nodes}。"))
    if cut:
        said.append(T("Not everything was searched.", "没有全部查看。"))
    said.append(
        T("Holders without a name in this notebook were not searched for.", "没有查找笔记本中没有名字的持有者。")
    )
    words = {"names": ", ".join(names), "nodes": ", ".join(nodes[:MOST])}
    return T(" ".join(each.en.format_map(words) for each in said), "".join(each.zh.format_map(words) for each in said))


def _nodes(namespace: Mapping[str, Any], tensor: Any, budget: Budget) -> list[str]:
    """The nodes that have saved the tensor or another one on its storage, each with the name of a tensor whose graph
    contains the node.
    """
    found, seen, said = find(namespace, (), budget), set(), []
    for thing in found.tensors:
        if not is_own(thing.value) or not thing.value.requires_grad or thing.value.is_inference():
            continue
        for node in walk([history(thing.value, thing.value._version).root], budget):
            if node in seen:
                continue
            seen.add(node)
            if any(slot.tensor is tensor or _same(slot.tensor, tensor) for slot in kept(node)):
                said.append(f"{tensor_facts.node_name(node)} (behind {thing.text})")
    return said


def _same(one: Any, other: Any) -> bool:
    return (
        not tensor_facts.is_opaque(one)
        and not tensor_facts.is_opaque(other)
        and one.untyped_storage()._cdata == other.untyped_storage()._cdata
    )
