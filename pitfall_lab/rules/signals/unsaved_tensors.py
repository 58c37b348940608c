"""Tensors of a module that its state dict leaves out: their values when it was saved, and after it was loaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.signals.value_origins import values
from pitfall_lab.trace import Event, Loading, Saving

OFTEN = 2


@dataclass(frozen=True, slots=True)
class UnsavedTensor:
    """A tensor that a module's state left out: the tensor at the attribute ``path`` was ``old`` when the state was
    saved (``saving``); in the module that loaded that state (``loading``) it is ``new``, with other values, and the
    call ``used`` computes with it.

    ``old`` and ``new`` are labels.
    """

    path: str
    saving: Saving
    loading: Loading
    old: str
    new: str
    used: Event


def unsaved(story: Story, *, buffers: bool) -> Iterator[list[UnsavedTensor]]:
    """Yield, for each line that loads a state, the tensors that the state leaves out, sorted by path: with ``buffers``
    the non-persistent buffers, else plain attributes. Lines without such tensors are left out.

    Only tensors that the saved module used at least ``OFTEN`` times since their last write before the saving, and that
    have other values in the loaded module, where they are read before they are written; none that requires grad.
    """
    told = set()
    for loading in story.trace.beside.loadings:
        for saving in story.trace.beside.savings:
            if saving.module == loading.module and saving.step <= loading.step and loading.span not in told:
                pairs = (saving.unsaved, loading.unsaved) if buffers else (saving.plain, loading.plain)
                lost = list(_lost(story, saving, loading, *map(dict, pairs)))
                if lost:
                    told.add(loading.span)
                    yield sorted(lost, key=lambda each: each.path)


def _lost(
    story: Story, saving: Saving, loading: Loading, old: dict[str, str], new: dict[str, str]
) -> Iterator[UnsavedTensor]:
    for path in old.keys() & new.keys():
        one, other = old[path], new[path]
        uses = [use for use in story.uses(other) if use.step >= loading.step and use.error is None]
        used = next((use for use in uses if use.results or use.writes), None)
        if one == other or used is None or _writes(story, used, other) or _learns(story, one):
            continue
        before = [use for use in story.uses(one) if use.step < saving.step and (use.results or use.writes)]
        written = max((use.step for use in before if _writes(story, use, one)), default=-1)
        if sum(use.step > written for use in before) < OFTEN:
            continue  # what changes with every use is carried along, and begins anew
        then, now = values(story, one, saving.step), values(story, other, used.step)
        if then and now and then != now:
            yield UnsavedTensor(path, saving, loading, one, other, used)


def _writes(story: Story, use: Event, label: str) -> bool:
    return (story.tensor(label, use.step) or {}).get("storage") in use.writes


def _learns(story: Story, label: str) -> bool:
    return bool((story.tensor(label) or {}).get("requires_grad"))
