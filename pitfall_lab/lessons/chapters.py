"""The plan of the course: nineteen chapters, each one notebook, and the sections of the five articles that each takes
up. :data:`CHAPTERS` is that plan.

Every section of the articles belongs to one chapter, and so does every claim: a claim's id begins with its section's
``claims``. ``python -m pitfall_lab.lessons.chapters NOTEBOOKS`` prints which cell of which notebook shows each.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pitfall_lab.lessons.claims import ledger
from pitfall_lab.trace import T

_CALLS = re.compile(r"pitfall_lab\.claim(?:s|_list)?\(([^()]+)\)\.run\(\)")


@dataclass(frozen=True, slots=True)
class Section:
    """A section of an article: ``place`` is the article and the section (``"A1 2"``: article 1, section 2), ``title``
    its title, and ``claims`` how its claims' ids begin ("": it has none).
    """

    place: str
    title: str
    claims: str


@dataclass(frozen=True, slots=True)
class Chapter:
    """One chapter of the course: its number (from 1), the file name of its notebook, its title, the names of the views
    that it uses, and the sections of the articles that it covers.
    """

    number: int
    file: str
    title: T
    views: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def claims(self) -> tuple[str, ...]:
        """The ids of the chapter's claims, in the order of the source.

        >>> CHAPTERS[11].claims
        ('s4-6-a', 's4-6-b', 's4-6-c', 's4-6-d', 's4-6-e', 's4-6-f', 's4-6-g')
        """
        begins = tuple(s.claims for s in self.sections if s.claims)
        return tuple(key for key in ledger() if key.startswith(begins))


CHAPTERS: tuple[Chapter, ...] = (
    Chapter(
        1,
        "01-tensor-basics.ipynb",
        T(en="Tensor basics", zh="张量基础"),
        ("graph", "storage"),
        (
            Section("A0 1", "Overview of PyTorch tensor operations", "s0-1-"),
            Section("A0 1.1", "Creating tensors and basic operations", "s0-1.1-"),
            Section("A0 1.2", "The role of tensors in deep learning", "s0-1.2-"),
        ),
    ),
    Chapter(
        2,
        "02-core-tensor-operations.ipynb",
        T(en="Core tensor operations", zh="张量的核心操作"),
        ("graph", "storage", "broadcast"),
        (
            Section("A3 I", "Core tensor operations", "s3-1-"),
            Section("A3 I.1", "Creating tensors and basic attributes", "s3-1.1-"),
            Section("A3 I.2", "Tensor arithmetic and broadcasting", "s3-1.2-"),
            Section("A3 I.3", "Shape operations and memory", "s3-1.3-"),
            Section("A3 I.4", "Working with NumPy", "s3-1.4-"),
            Section("A3 I.5", "Checking the device", "s3-1.5-"),
        ),
    ),
    Chapter(
        3,
        "03-tensor-toolbox.ipynb",
        T(en="The tensor toolbox", zh="张量工具箱"),
        ("storage",),
        (Section("A4 1", "Tensor", "s4-1-"),),
    ),
    Chapter(
        4,
        "04-squeeze-and-dimensions.ipynb",
        T(en="squeeze and dimensions", zh="squeeze 与维度"),
        ("storage",),
        (Section("A4 5", "torch.squeeze()", "s4-5-"),),
    ),
    Chapter(
        5,
        "05-copies-and-views.ipynb",
        T(en="Copies and views", zh="副本与视图"),
        ("graph", "storage", "memory"),
        (
            Section("A1 preface", "Preface", "s1-0-"),
            Section("A1 2", "Copy methods", "s1-2-"),
        ),
    ),
    Chapter(
        6,
        "06-autograd-overview.ipynb",
        T(en="Autograd overview", zh="自动求导概览"),
        ("graph",),
        (Section("A2 1", "Overview of the autograd mechanism", "s2-1-"),),
    ),
    Chapter(
        7,
        "07-tensors-and-gradients.ipynb",
        T(en="Tensors and gradients", zh="张量与梯度"),
        ("graph", "storage", "broadcast", "memory"),
        (
            Section("A2 2", "PyTorch tensors and gradient computation", ""),
            Section("A2 2.1", "Tensor fundamentals", ""),
            Section("A2 2.1.1", "Creating and using tensors", "s2-2.1.1-"),
            Section("A2 2.1.2", "Data types and device of tensors", "s2-2.1.2-"),
            Section("A2 2.2", "Basics of gradient computation", ""),
            Section("A2 2.2.1", "The idea and importance of automatic differentiation", "s2-2.2.1-"),
            Section("A2 2.2.2", "The requires_grad argument and building the graph", "s2-2.2.2-"),
            Section("A2 2.3", "Gradient computation in practice", ""),
            Section("A2 2.3.1", "A basic gradient example", "s2-2.3.1-"),
            Section("A2 2.3.2", "Advanced gradient techniques", "s2-2.3.2-"),
        ),
    ),
    Chapter(
        8,
        "08-graphs-and-gradient-control.ipynb",
        T(en="Dynamic graphs and gradient control", zh="动态图与梯度控制"),
        ("graph", "storage", "versions", "memory"),
        (
            Section("A3 II.1", "How the computation graph works", "s3-2.1-"),
            Section("A3 II.2", "Ways of computing gradients", "s3-2.2-"),
            Section("A3 II.3", "Controlling gradients", "s3-2.3-"),
            Section("A3 II.4", "Checking gradients", "s3-2.4-"),
        ),
    ),
    Chapter(
        9,
        "09-autograd-in-training.ipynb",
        T(en="Autograd in training", zh="训练中的自动求导"),
        ("graph", "memory"),
        (Section("A4 2", "Autograd", "s4-2-"),),
    ),
    Chapter(
        10,
        "10-inplace-operations.ipynb",
        T(en="In-place operations", zh="就地操作"),
        ("graph", "storage", "versions", "memory"),
        (
            Section("A1 1", "In-place operations", "s1-1-"),
            Section("A0 2.2.2", "In-place against out-of-place operations", "s0-2.2.2-"),
        ),
    ),
    Chapter(
        11,
        "11-clone-and-detach.ipynb",
        T(en="clone versus detach", zh="clone 与 detach"),
        ("graph", "storage", "versions"),
        (
            Section("A1 3", "clone() against detach()", "s1-3-"),
            Section("A1 3.1", "Printing the types", "s1-3.1-"),
            Section("A1 3.2", "How clone passes gradients back", "s1-3.2-"),
            Section("A1 3.3", "Summary", "s1-3.3-"),
        ),
    ),
    Chapter(
        12,
        "12-inplace-errors.ipynb",
        T(en="Diagnosing in-place errors", zh="诊断就地操作的错误"),
        ("graph", "versions"),
        (Section("A4 6", "Errors in networks", "s4-6-"),),
    ),
    Chapter(
        13,
        "13-tensor-pitfalls.ipynb",
        T(en="Tensor pitfalls: memory, broadcasting, GPU", zh="张量的陷阱：内存、广播与 GPU"),
        ("graph", "storage", "broadcast", "versions", "memory"),
        (
            Section("A0 2", "Analysis of tensor pitfalls", "s0-2-"),
            Section("A0 2.1", "Memory-management pitfalls", ""),
            Section("A0 2.1.1", "Creating and destroying tensors", "s0-2.1.1-"),
            Section("A0 2.1.2", "Memory leaks", "s0-2.1.2-"),
            Section("A0 2.2", "Implicit behaviour in computations", ""),
            Section("A0 2.2.1", "Broadcasting rules", "s0-2.2.1-"),
            Section("A0 2.3", "Tensor operations and the GPU", ""),
            Section("A0 2.3.1", "CUDA memory management", "s0-2.3.1-"),
            Section("A0 2 table", "Summary table of pitfalls and remedies", "s0-2.tbl-"),
        ),
    ),
    Chapter(
        14,
        "14-neural-networks.ipynb",
        T(en="Neural networks with torch.nn", zh="用 torch.nn 构建神经网络"),
        ("graph", "broadcast"),
        (Section("A4 3", "Neural network", "s4-3-"),),
    ),
    Chapter(
        15,
        "15-accumulation-and-optimizers.ipynb",
        T(en="Gradient accumulation and optimizers", zh="梯度累积与优化器"),
        ("graph", "memory"),
        (
            Section("A2 3", "Gradient accumulation and optimisation algorithms", ""),
            Section("A2 3.1", "The accumulation mechanism", ""),
            Section("A2 3.1.1", "Understanding gradient accumulation", "s2-3.1.1-"),
            Section("A2 3.1.2", "Implementing gradient accumulation", "s2-3.1.2-"),
            Section("A2 3.2", "Optimisation algorithms in detail", ""),
            Section("A2 3.2.1", "Comparing common optimizers", "s2-3.2.1-"),
            Section("A2 3.2.2", "How optimizers work inside", "s2-3.2.2-"),
        ),
    ),
    Chapter(
        16,
        "16-mlp-case-study.ipynb",
        T(en="Case study: training an MLP", zh="案例：训练一个 MLP"),
        ("graph", "versions"),
        (
            Section("A2 6", "Case studies", ""),
            Section("A2 6.1", "A model training example", ""),
            Section("A2 6.1.1", "Building a simple neural network", "s2-6.1.1-"),
            Section("A2 6.1.2", "Autograd and gradient descent in practice", "s2-6.1.2-"),
            Section("A2 6.2", "Solving practical problems", ""),
            Section("A2 6.2.1", "Handling complex data", "s2-6.2.1-"),
            Section("A2 6.2.2", "Meeting practical challenges", "s2-6.2.2-"),
        ),
    ),
    Chapter(
        17,
        "17-dynamic-graphs-and-custom-functions.ipynb",
        T(en="Dynamic graphs and custom Functions", zh="动态图与自定义 Function"),
        ("graph", "versions"),
        (
            Section("A2 5", "Advanced uses of autograd", ""),
            Section("A2 5.1", "Understanding and using dynamic graphs", ""),
            Section("A2 5.1.1", "Static and dynamic graphs", "s2-5.1.1-"),
            Section("A2 5.1.2", "Building dynamic graphs", "s2-5.1.2-"),
            Section("A2 5.2", "Custom differentiable operations", ""),
            Section("A2 5.2.1", "Custom Function", "s2-5.2.1-"),
            Section("A2 5.2.2", "A more complex custom gradient", "s2-5.2.2-"),
        ),
    ),
    Chapter(
        18,
        "18-performance-tuning.ipynb",
        T(en="Performance tuning", zh="性能调优"),
        ("graph", "versions", "memory"),
        (
            Section("A2 4", "Performance tuning of autograd", "s2-4-"),
            Section("A2 4.1", "Performance analysis tools", "s2-4.1-"),
            Section("A2 4.1.1", "Profiling with torch.autograd.profiler", "s2-4.1.1-"),
            Section("A2 4.1.2", "Watching the hardware with nvidia-smi", "s2-4.1.2-"),
            Section("A2 4.2", "Optimisation strategies", ""),
            Section("A2 4.2.1", "Memory management and using less memory", "s2-4.2.1-"),
            Section("A2 4.2.2", "Speed and parallel computing", "s2-4.2.2-"),
        ),
    ),
    Chapter(
        19,
        "19-multi-gpu.ipynb",
        T(en="Training on several GPUs", zh="多 GPU 训练"),
        (),
        (
            Section("A0 2.3.2", "Synchronising data between GPU and CPU", "s0-2.3.2-"),
            Section("A4 4", "Training on several GPUs", "s4-4-"),
        ),
    ),
)


def shown(notebook: Any) -> dict[str, str]:
    """For each claim that a notebook shows, by its id, the id of the last cell that shows it.

    ``notebook`` is the parsed JSON.

    >>> shown({"cells": [{"cell_type": "code", "id": "a-1", "source": 'pitfall_lab.claim("s4-6-a").run()'}]})
    {'s4-6-a': 'a-1'}
    """
    cells = [c for c in notebook["cells"] if c["cell_type"] == "code"]
    return {key: cell["id"] for cell in cells for key in shown_in("".join(cell["source"]))}


def shown_in(source: str) -> list[str]:
    """Return the ids of the claims that a cell shows and runs, in order.

    >>> shown_in('pitfall_lab.claim("s4-6-a").run()'), shown_in('pitfall_lab.claims("s4-6-b", "s4-6-c").run()')
    (['s4-6-a'], ['s4-6-b', 's4-6-c'])
    """
    return [key for ids in _CALLS.findall(source) for key in re.findall(r"""["']([^"']+)["']""", ids)]


def where(folder: Path) -> list[tuple[str, str, str, str]]:
    """Rows of (section, claim, notebook, cell) for every section and claim of the course.

    They are the section's place, the claim's id, the notebook's file name in ``folder``, and the id of the cell that
    shows the claim ("" if none does, or there is no such notebook). A section without claims is a heading: its claim is
    "" and its cell the first of the notebook.
    """
    rows = []
    for chapter in CHAPTERS:
        path = folder / chapter.file
        notebook = json.loads(path.read_text("utf-8")) if path.is_file() else {"cells": []}
        first = notebook["cells"][0]["id"] if notebook["cells"] else ""
        cells = shown(notebook)
        for section in chapter.sections:
            keys = [key for key in chapter.claims if section.claims and key.startswith(section.claims)]
            rows += [(section.place, key, chapter.file, cells.get(key, "")) for key in keys] or [
                (section.place, "", chapter.file, first)
            ]
    return rows


def main(words: list[str]) -> int:
    """Print the table; 1 when a section or claim is shown nowhere."""
    rows = where(Path(words[0] if words else "notebooks"))
    for section, key, file, cell in rows:
        print(f"{section:14s} {key or '-':14s} {file:48s} {cell or '(nowhere)'}")
    missing = sum(not cell for *_, cell in rows)
    claims = {key for _, key, _, _ in rows if key}
    print(
        f"{len(rows)} rows, {len({section for section, *_ in rows})} sections, {len(claims)} claims; "
        f"{missing} shown nowhere"
    )
    return int(bool(missing))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
