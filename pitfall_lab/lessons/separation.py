"""Which program exposes which misconception, which two it distinguishes, and the smallest quiz that distinguishes them
all. ``matrix`` returns how each program ends under each belief, ``smallest_quiz`` the programs of the quiz.

``python -m pitfall_lab.lessons.separation`` prints the matrix. Every cell is computed: the program is run
in the world of each belief.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pitfall_lab import shadow
from pitfall_lab.lessons import worlds
from pitfall_lab.lessons.misconceptions import MISCONCEPTIONS
from pitfall_lab.shadow.beliefs import BELIEFS

_LEAF = "x = torch.ones(2, requires_grad=True)\n"
QUIZ: dict[str, str] = {
    "six ways to look at x": (
        "x = torch.ones(2)\n"
        "others = [x.detach(), x.data, x.clone(), x.view(2), x.contiguous(), x.to(torch.float32)]\n"
        "x.add_(1)\n"
        "print([int(other[0]) for other in others])"
    ),
    "an array and its tensors": (
        "a = np.ones(2)\n"
        "t = torch.from_numpy(a)\n"
        "u = torch.tensor(a)\n"
        "chosen, flat, wide = t[[0, 1]], t.reshape(2, 1), t.expand(2, 2)\n"
        "a *= 2\n"
        "t.add_(1)\n"
        "print(t.tolist(), u.tolist(), chosen.tolist(), flat.tolist(), wide.tolist())"
    ),
    "two ways to add": (
        "x = torch.ones(2, 2)\ny = z = x\ny += 1\nz = z + 1\nrow = x.t().reshape(4)\nrow[1] = 7\n"
        "print(x.tolist(), x._version, id(x) == id(x.t()))"
    ),
    "what is counted": (
        "x = torch.ones(2)\nfor other in (x[:1], x.detach(), x.data):\n    other.add_(1)\n    print(x._version)\n"
        "with torch.no_grad():\n    x.add_(1)\nprint(x._version, x.tolist())"
    ),
    "three backwards": (
        _LEAF
        + (
            "opt = torch.optim.SGD([x], lr=0.0)\n"
            "h = x.clone() * 2\n"
            "h.sum().backward()\n"
            "x.sum().backward()\n"
            "print(x.grad, h.grad)\n"
            "opt.step()\n"
            "x.sum().backward()\n"
            "print(x.grad)\n"
            "with torch.no_grad():\n"
            "    pass\n"
            "print(x.grad)\n"
            "opt.zero_grad()\n"
            "print(x.grad)\n"
            "x.sum().backward()\n"
            "opt.zero_grad()\n"
            "print(x.grad)"
        )
    ),
    "what is refused": (
        _LEAF
        + (
            "def attempt(action):\n"
            "    try:\n"
            "        action()\n"
            "        return True\n"
            "    except RuntimeError:\n"
            "        return False\n"
            "h, y, z = x * 2, x.exp(), x.exp()\n"
            "s = (x * x).sum()\n"
            "s.backward()\n"
            "y.add_(1)\n"
            "z.detach().add_(1)\n"
            "print([attempt(action) for action in (lambda: x.add_(1), lambda: h.add_(1), s.backward, lambda: "
            "y.sum().backward(),\n"
            "       lambda: z.sum().backward(), lambda: (x * 2).backward(), lambda: setattr(h, "
            "'requires_grad', False))])"
        )
    ),
    "who requires grad": (
        "layer = torch.nn.Linear(2, 1).eval()\n"
        "layer.scale = torch.ones(1, requires_grad=True)\n"
        "out = layer(torch.ones(1, 2))\n"
        "print(out.requires_grad, len(list(layer.parameters())), (out.sum().item() * torch.ones(1)).requires_grad)"
    ),
    "shapes and numbers": (
        "m = torch.tensor([[1, 1], [0, 1]])\nrow = torch.arange(2)\n"
        "print((m[:, :1] - row).shape, torch.zeros(1, 1).squeeze().shape, (m * m).tolist(), (m / 2).tolist())"
    ),
}
"""Programs that each expose several beliefs, every one by another ending."""


def programs() -> dict[str, str]:
    """Return the programs of the matrix by name: one for each switch of the engine, and those of :data:`QUIZ`."""
    quiz = {name: f"import numpy as np\nimport torch\n{program}\n" for name, program in QUIZ.items()}
    return {**{key: belief.source for key, belief in BELIEFS.items()}, **quiz}


@dataclass(frozen=True, slots=True)
class Matrix:
    """How each program ends on torch and under each belief.

    ``beliefs`` are the keys of the misconceptions; ``torch`` has the ending by program, ``endings[program][belief]``
    that under a belief. An ending is None where the engine has no model of the program.
    """

    beliefs: tuple[str, ...]
    torch: dict[str, worlds.Ending | None]
    endings: dict[str, dict[str, worlds.Ending | None]]

    def exposes(self, program: str) -> tuple[str, ...]:
        """The beliefs under which a program ends in another way than on torch."""
        return tuple(b for b in self.beliefs if self.endings[program][b] not in (None, self.torch[program]))

    def separates(self, program: str) -> frozenset[tuple[str, str]]:
        """The pairs of beliefs under which a program ends differently; "" stands for torch in a pair.

        An ending that is not known differs from none.
        """
        row = {"": self.torch[program], **self.endings[program]}
        known = [key for key in ("", *self.beliefs) if row[key] is not None]
        return frozenset(pair for pair in itertools.combinations(known, 2) if row[pair[0]] != row[pair[1]])

    def all_pairs(self) -> frozenset[tuple[str, str]]:
        """Return every pair that programs should separate."""
        return frozenset(itertools.combinations(("", *self.beliefs), 2))


def matrix(sources: Mapping[str, str] | None = None, beliefs: Iterable[str] = MISCONCEPTIONS) -> Matrix:
    """Run every program on the engine, under torch's rules and under each belief, and return the endings.

    ``sources`` are programs by name (None: those of :func:`programs`).
    """
    sources, held = programs() if sources is None else sources, tuple(beliefs)
    return Matrix(
        held,
        {name: worlds.ending(source, shadow.TORCH) for name, source in sources.items()},
        {
            name: {b: worlds.ending(source, MISCONCEPTIONS[b](shadow.TORCH)) for b in held}
            for name, source in sources.items()
        },
    )


def smallest_quiz(table: Matrix) -> tuple[str, ...]:
    """The names of the fewest programs in ``table`` that expose every belief and distinguish every two; an exact
    search.

    Raises ``ValueError`` if even all programs together do not.
    """
    names = list(table.endings)
    covers = {name: table.separates(name) for name in names}
    wanted = table.all_pairs()
    missing = wanted - frozenset().union(*covers.values())
    if missing:
        raise ValueError(f"no program tells these apart: {sorted(missing)[:5]}")
    return _search(wanted, covers, _greedy(wanted, covers))


def _greedy(wanted: frozenset[tuple[str, str]], covers: Mapping[str, frozenset[tuple[str, str]]]) -> tuple[str, ...]:
    chosen: list[str] = []
    while wanted:
        best = max(covers, key=lambda name: len(covers[name] & wanted))
        chosen.append(best)
        wanted -= covers[best]
    return tuple(chosen)


def _search(
    wanted: frozenset[tuple[str, str]], covers: Mapping[str, frozenset[tuple[str, str]]], best: tuple[str, ...]
) -> tuple[str, ...]:
    """Return a smallest set of programs that covers all ``wanted`` pairs; ``best`` is a set known to cover them.

    Branches on the pair that the fewest programs distinguish. Lower bound: what remains divided by the
    most that one program covers.
    """
    found = best

    def go(rest: frozenset[tuple[str, str]], chosen: tuple[str, ...]) -> None:
        nonlocal found
        if not rest:
            found = chosen if len(chosen) < len(found) else found
            return
        gains = {name: len(cover & rest) for name, cover in covers.items()}
        if len(chosen) + -(-len(rest) // max(gains.values())) >= len(found):
            return
        scarce = min(rest, key=lambda pair: (sum(pair in cover for cover in covers.values()), pair))
        for name in sorted((n for n, cover in covers.items() if scarce in cover), key=lambda n: -gains[n]):
            go(rest - covers[name], (*chosen, name))

    go(wanted, ())
    return found


def page(table: Matrix) -> str:
    """The matrix ``table`` as text: a row for each program, a column for each belief, then the smallest quiz.

    Each ending other than torch's has a letter, an unknown one "?". Raises ``ValueError`` as :func:`smallest_quiz`
    does.
    """
    width = max(map(len, table.endings))
    lines = [
        "programs (rows) and misconceptions (columns); · is torch's ending, equal letters in a row are equal endings",
        "",
    ]
    lines += [f"{n:>{width + 4}}  {belief}" for n, belief in enumerate(table.beliefs, 1)]
    lines += ["", " " * width + "  " + "".join(f"{n % 100:>3}" for n in range(1, len(table.beliefs) + 1))]
    for name, row in table.endings.items():
        letters: dict[worlds.Ending | None, str] = {table.torch[name]: "·", None: "?"}
        cells = [letters.setdefault(row[b], chr(ord("a") + len(letters) - 2)) for b in table.beliefs]
        lines.append(f"{name:<{width}}  " + "".join(f"{cell:>3}" for cell in cells))
    quiz = smallest_quiz(table)
    exposed = {b for name in table.endings for b in table.exposes(name)}
    pairs = len(table.all_pairs()) - len(table.beliefs)
    lines += ["", f"{len(table.beliefs)} misconceptions, {len(exposed)} exposed; {pairs} pairs, all distinguished"]
    lines += [f"the smallest quiz that separates them all has {len(quiz)} programs:"]
    lines += [f"  {name}: {', '.join(table.exposes(name))}" for name in quiz]
    return "\n".join(lines)


def main() -> None:
    """Print how each program ends in the world of each belief (:func:`page`)."""
    argparse.ArgumentParser(prog="python -m pitfall_lab.lessons.separation", description=__doc__).parse_args()
    print(page(matrix()))


if __name__ == "__main__":
    main()
