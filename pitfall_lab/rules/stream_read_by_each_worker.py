"""PL988: each worker of a DataLoader reads the whole of a stream, so every example comes several times."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program, merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import torch_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import DataPass, T

WHOLE = "everything"
"""The method that continues what ``__iter__`` did."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each class of ``IterableDataset`` that several workers of a ``DataLoader`` read without
    dividing the examples among themselves.
    """
    reported = set()
    for each in story.trace.beside.passes:
        if each.undivided and each.kind not in reported:
            reported.add(each.kind)
            yield _finding(story, each)


def _finding(story: Story, each: DataPass) -> Finding:
    here = at_line(story, each.span)
    return RULE.finding(
        each.span,
        each.step,
        T(
            en=f"{capital(here.en)} reads `{each.kind}` with {each.workers} workers, and each of them goes through all "
            f"of it: every example comes {_times(each.workers)}.",
            zh=f"{here.zh}用 {each.workers} 个工作进程读取 `{each.kind}`，每个进程都会从头到尾读一遍："
            f"每个样本都出现 {each.workers} 次。",
        ),
        T(
            en="A worker is a process of its own with a copy of the dataset. For a dataset with indices, torch shares "
            "the indices out among the workers; of an `IterableDataset` it cannot: each worker calls `__iter__`, and "
            "nothing there asks which worker it is in (`torch.utils.data.get_worker_info()`). What the workers read "
            "was not recorded; it follows from the code of the dataset.",
            zh="工作进程是独立的进程，持有数据集的一份副本。对于按下标读取的数据集，torch 会把下标分给各个进程；"
            "对 `IterableDataset` 却做不到：每个进程都调用 `__iter__`，而其中没有任何代码询问自己在哪个进程里"
            "（`torch.utils.data.get_worker_info()`）。各进程读到的内容没有被记录；这是由数据集的代码得出的。",
        ),
        fixes=_fixes(story, each.kind),
        facts=[Fact("workers", each.workers)],
    )


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _fixes(story: Story, kind: str) -> tuple[Fix, ...]:
    """Fixes that give each worker every n-th example of the stream.

    Empty if the program has no such class with an ``__iter__``, or does not import torch under a name.
    """
    program, torch = story.program, torch_name(story.program)
    classes = [n for n in program.nodes if isinstance(n, ast.ClassDef) and n.name == kind]
    own = [n for c in classes for n in c.body if isinstance(n, ast.FunctionDef) and n.name == "__iter__"]
    if len(own) != 1 or torch is None or program.tree is None or WHOLE in program.text:
        return ()
    [method] = own
    text = program.segment(method).replace("__iter__", WHOLE, 1)
    indent = program.indent(method)
    share = [
        "def __iter__(self):",
        f"    info = {torch}.utils.data.get_worker_info()",
        "    first, step = (info.id, info.num_workers) if info else (0, 1)",
        f"    return itertools.islice(self.{WHOLE}(), first, None, step)",
    ]
    lines = [share[0], *(indent + line for line in share[1:]), "", indent + text]
    edits = merge(_import(program, program.tree), program.replace((method, "\n".join(lines))))
    title = T(en="Give each worker every n-th example", zh="让每个工作进程只取自己那一份样本")
    return unique(program.text, [Fix(title, edits, meaning="later")] if edits else [])


def _import(program: Program, tree: ast.Module) -> tuple[Edit, ...]:
    """The edit that imports itertools at the head of a program; empty if it does so already."""
    imports = [n for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    plain = [n for n in imports if isinstance(n, ast.Import)]
    if any(a.name == "itertools" and not a.asname for n in plain for a in n.names) or not imports:
        return ()
    future = [n for n in imports if isinstance(n, ast.ImportFrom) and n.module == "__future__"]
    line = "import itertools"
    return program.insert_after(future[-1], line) if future else program.insert_before(imports[0], line)


RULE = Rule(
    code="PL988",
    name="stream-read-by-each-worker",
    severity="warning",
    title=T(
        en="Each worker of a DataLoader reads the whole stream", zh="DataLoader 的每个工作进程都把整个数据流读了一遍"
    ),
    what=T(
        en="A dataset gives its examples one after the other, as a stream, and a DataLoader reads it with several "
        "workers. Each of them reads all of the stream: every example comes as often as there are workers.",
        zh="数据集以数据流的形式依次给出样本，而 DataLoader 用多个工作进程读取它。每个进程都读完整个数据流："
        "有几个进程，每个样本就出现几次。",
    ),
    why=T(
        en="With `num_workers` above 0 the dataset is copied into new processes. torch shares out the indices of a "
        "dataset that has them. An `IterableDataset` has none: each copy runs its own `__iter__` from the beginning "
        "to the end. Counts and sums come out too large, an epoch has several, and examples of a batch are next to "
        "their copies. `torch.utils.data.get_worker_info()` says, in a worker, which of how many it is.",
        zh="`num_workers` 大于 0 时，数据集会被复制到新的进程里。对于有下标的数据集，torch 会分配下标。"
        "`IterableDataset` 没有下标：每份副本都从头到尾运行自己的 `__iter__`。于是计数与总和偏大，一轮里其实有好几轮，"
        "样本的旁边就是它的副本。在工作进程里，`torch.utils.data.get_worker_info()` 会说明这是几个进程中的第几个。",
    ),
    advice=T(
        en="let `__iter__` of the dataset that {line} reads ask `get_worker_info()`, and read this worker's share.",
        zh="让{line}所读数据集的 `__iter__` 询问 `get_worker_info()`，只读取属于本进程的那一份。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        for number in range(self.count):
            yield torch.tensor(number)


loader = DataLoader(Numbers(6), batch_size=3, num_workers=2)
total = sum(len(batch) for batch in loader)  # PL988
print(total, "examples")
""",
    good="""import itertools

import torch
from torch.utils.data import DataLoader, IterableDataset


class Numbers(IterableDataset):
    def __init__(self, count):
        self.count = count

    def __iter__(self):
        info = torch.utils.data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        return itertools.islice(self.everything(), first, None, step)

    def everything(self):
        for number in range(self.count):
            yield torch.tensor(number)


loader = DataLoader(Numbers(6), batch_size=3, num_workers=2)
total = sum(len(batch) for batch in loader)
print(total, "examples")
""",
    find=find,
    traps=(
        Trap(
            "num_workers=2",
            "num_workers=3",
            T(en="More workers: every example comes once more.", zh="再加一个进程：每个样本又多出现一次。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.IterableDataset",),
)
