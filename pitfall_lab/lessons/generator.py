"""The smallest program on which a misconception and torch part: found by search, not written. ``smallest`` returns
it as text.

``python -m pitfall_lab.lessons.generator`` prints one for each misconception. Programs are sequences of short
statements from :data:`MOVES`, tried in order of their number; a statement is tried only where what it uses exists.
After each program everything that it made is looked at (values, gradients, flags, versions), in both worlds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab import shadow
from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS, Misconception

LONGEST = 4
"""Statements of the longest programs that are tried."""


@dataclass(frozen=True, slots=True)
class Move:
    """A statement of a program: ``uses`` are the names that must exist before it, ``makes`` is the name that it assigns
    (``""``: none), ``text`` the statement.
    """

    uses: tuple[str, ...]
    makes: str
    text: str


def _moves() -> tuple[Move, ...]:
    made = [
        ("", "x", "torch.ones(2)"), ("", "w", "torch.ones(2, requires_grad=True)"), ("", "x", "torch.ones(1, 2)"),
        ("", "x", "torch.tensor([[1, 2], [3, 4]])"), ("", "a", "np.ones(2)"), ("", "layer",
        "torch.nn.Linear(1, 1, bias=False).eval()"), ("x", "y", "x"), ("x", "y", "x.detach()"), ("x", "y", "x.data"),
        ("x", "y", "x.clone()"), ("x", "y", "x.view(-1)"), ("x", "y", "x[:1]"), ("x", "y", "x[[0]]"), ("x", "y",
        "x.reshape(-1)"), ("x", "y", "x.t().reshape(-1)"), ("x", "y", "x.expand(2, 2)"), ("x", "y", "x.contiguous()"),
        ("x", "y", "x.to(torch.float32)"), ("x", "y", "x / 2"), ("x", "y", "x * x"), ("x", "y", "x - x.t()"), ("x", "y",
        "x[:, :1] - x[0]"), ("x", "y", "x[:1, :1].squeeze()"), ("a", "y", "torch.from_numpy(a)"), ("a", "y",
        "torch.tensor(a)"), ("w", "h", "w * 2"), ("w", "h", "w.exp()"), ("w", "h", "w.clone()"), ("w", "h",
        "torch.ones(2) * w.sum().item()"), ("w", "h", "w.detach()"), ("layer", "h", "layer(torch.zeros(1, 1))"), ("w",
        "opt", "torch.optim.SGD([w], lr=0.5)"),
    ]  # fmt: skip
    done = [
        ("x", "x += 1"), ("x", "x = x + 1"), ("y", "y += 1"), ("y", "y.add_(1)"), ("a", "a += 1"), ("w", "w += 1"),
        ("h", "h += 1"), ("x", "x.data.add_(1)"), ("x", "with torch.no_grad():\n    x += 1"), ("w",
        "with torch.no_grad():\n    pass"), ("w", "w.sum().backward()"), ("h", "h.sum().backward()"), ("h",
        "h.backward()"), ("h", "h.detach().add_(1)"), ("h", "h.requires_grad = False"), ("opt", "opt.step()"), ("opt",
        "opt.zero_grad()"), ("layer",
        "layer.scale = torch.ones(1, requires_grad=True)\nn = len(list(layer.parameters()))"), ("h", "g = h.grad"),
        ("x", "same = id(x) == id(x.detach())"),
    ]  # fmt: skip
    moves = [Move((uses,) if uses else (), makes, f"{makes} = {text}") for uses, makes, text in made]
    return (*moves, *(Move((uses,), "", text) for uses, text in done))


MOVES = _moves()


def candidates(longest: int = LONGEST) -> Iterator[tuple[Move, ...]]:
    """Yield sequences of at most ``longest`` moves, the short ones first.

    Only the first move starts from nothing; every name is made once, before its use, and all but the last one are used.
    """
    level: list[tuple[Move, ...]] = [()]
    for _ in range(longest):
        level = [(*program, move) for program in level for move in MOVES if _fits(program, move)]
        yield from (program for program in level if _is_used(program))


def _fits(program: tuple[Move, ...], move: Move) -> bool:
    names = {made.makes for made in program}
    if not all(name in names for name in move.uses):
        return False
    # One story at a time: a second beginning, or a second thing of the same name, makes a
    # program longer and no clearer.
    return (not program) if not move.uses else move.makes not in names or not move.makes


def _is_used(program: tuple[Move, ...]) -> bool:
    """Whether every name that a program makes, except the last, is used in it."""
    used = {name for move in program for name in move.uses}
    made = [move.makes for move in program if move.makes]
    return all(name in used for name in made[:-1])


def source(program: tuple[Move, ...]) -> str:
    """Return a program's text."""
    body = "\n".join(move.text for move in program)
    return ("import numpy as np\n" if "np." in body else "") + f"import torch\n{body}\n"


def smallest(belief: Misconception, longest: int = LONGEST) -> str | None:
    """The text of a shortest program whose outcome differs under ``belief`` and on torch; the first one that is found.

    None if there is none of at most ``longest`` statements. A program for which the shadow engine predicts something
    else than torch does is skipped.
    """
    policy = belief(shadow.TORCH)
    for program in candidates(longest):
        text = source(program)
        yours = worlds.seen(text, policy)
        if yours is not None and yours != _torchs(text) and worlds.real_seen(text) == _torchs(text):
            return text
    return None


_KNOWN: dict[str, dict[str, str] | None] = {}


def _torchs(text: str) -> dict[str, str] | None:
    """Return what a program shows under torch's own rules (see :func:`~pitfall_lab.lessons.worlds.seen`),
    computed once for all beliefs.

    None if the engine has no model of something in it.
    """
    if text not in _KNOWN:
        _KNOWN[text] = worlds.seen(text, shadow.TORCH)
    return _KNOWN[text]


def main() -> None:
    """Print the smallest program for each misconception."""
    argparse.ArgumentParser(prog="python -m pitfall_lab.lessons.generator", description=__doc__).parse_args()
    for belief in MISCONCEPTIONS.values():
        print(f"# {belief.belief.en}\n{smallest(belief) or '(none of up to ' + str(LONGEST) + ' statements)'}")


if __name__ == "__main__":
    main()
