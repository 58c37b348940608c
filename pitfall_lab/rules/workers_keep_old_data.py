"""PL989: the dataset of a DataLoader was changed after its workers had been started, which stay and do not see it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line
from pitfall_lab.trace import T, WorkerCopy

STAY = "persistent_workers"
FEW = 3


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each ``DataLoader`` whose workers stay (``persistent_workers=True``), if a later pass over
    it began after an attribute that its dataset makes samples with had changed since the workers started; at most one
    for each line that begins a pass.
    """
    reported = set()
    for each in story.trace.beside.worker_copies:
        if each.span not in reported:
            reported.add(each.span)
            yield _finding(story, each)


def _finding(story: Story, each: WorkerCopy) -> Finding:
    here = at_line(story, each.span)
    name = T(en=f"`{each.name}` of `{each.kind}`", zh=f"`{each.kind}` 的 `{each.name}`")
    if not each.name:
        name = T(en=f"the {each.kind} that is its dataset", zh=f"作为数据集的 {each.kind}")
    who = T(
        en="its worker was" if each.workers == 1 else f"its {each.workers} workers were",
        zh=f"{each.workers} 个工作进程",
    )
    change = T(
        en=f"{name.en} was changed after {who.en} started: they still have the old one.",
        zh=f"{name.zh} 在{who.zh}启动之后才被修改：它们仍在用旧的。",
    )
    if each.before and each.after:
        change = T(
            en=f"{name.en} was {each.before} when {who.en} started and is {each.after} now. The workers still have "
            f"{each.before}.",
            zh=f"{who.zh}启动时{name.zh} 是 {each.before}，现在是 {each.after}。工作进程里仍是 {each.before}。",
        )
    return RULE.finding(
        each.span,
        each.step if each.step < len(story.events) else None,
        T(en=f"At a later pass of {here.en}, {change.en}", zh=f"{here.zh}再次开始读取时，{change.zh}"),
        T(
            en="A worker is a process of its own with a copy of the dataset. With `persistent_workers=True` those of "
            "the first pass stay for all others, and what the program changes in its own dataset does not reach "
            "them. What the workers read was not recorded; that the dataset makes its samples with this attribute "
            "follows from its code. Let the workers be started anew for each pass, or keep the value in memory that "
            "the processes share (`torch.zeros(1).share_memory_()`, written in place).",
            zh="工作进程是独立的进程，持有数据集的一份副本。用 `persistent_workers=True` 时，第一遍启动的工作进程会一直"
            "用下去，程序对自己那份数据集的修改传不到它们那里。工作进程读到的内容没有被记录；数据集生成样本时要用这个属性，"
            "是由它的代码得出的。请让每一遍都重新启动工作进程，或者把这个值放在各进程共享的内存里"
            "（`torch.zeros(1).share_memory_()`，就地写入）。",
        ),
        fixes=_fixes(story, each),
        facts=[Fact("workers", each.workers), Fact("attribute", each.name)],
    )


def _fixes(story: Story, each: WorkerCopy) -> tuple[Fix, ...]:
    """Fixes that make the ``DataLoader`` start its workers anew for each pass, one for each place in the source that
    makes them persistent; only for the loader of this pass, if the program's source shows it.
    """
    program = story.program
    places = list(_places(program.nodes))
    statement = program.statement_at(each.span)
    read = {n.id for n in ast.walk(statement) if isinstance(n, ast.Name)} if statement is not None else set()
    own = [value for value, call in places if _names(program.statement(call)) & read]
    title = T(en="Start the workers anew for each pass", zh="每一遍都重新启动工作进程")
    return unique(
        program.text,
        [
            Fix(title, program.replace((value, "False")), meaning="later")
            for value in (own if len(own) == 1 else [value for value, _ in places])[:FEW]
        ],
    )


def _places(nodes: list[ast.AST]) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield each value other than a literal ``False`` that is given for ``persistent_workers``, with the call or
    dictionary that contains it.
    """
    for node in nodes:
        if isinstance(node, ast.Call):
            given = [k.value for k in node.keywords if k.arg == STAY]
        elif isinstance(node, ast.Dict):
            given = [v for k, v in zip(node.keys, node.values, strict=True)
                     if isinstance(k, ast.Constant) and k.value == STAY]  # fmt: skip
        else:
            continue
        for value in given:
            if not (isinstance(value, ast.Constant) and value.value is False):
                yield value, node


def _names(statement: ast.stmt | None) -> set[str]:
    """The names that a statement assigns."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    return {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}


RULE = Rule(
    code="PL989",
    name="workers-keep-old-data",
    severity="warning",
    title=T(en="A dataset was changed after its workers had copied it", zh="数据集在工作进程复制它之后才被修改"),
    what=T(
        en="A program changes its dataset between two epochs, for instance how much noise it adds. But the processes "
        "that load the data were started before and stay, each with its own copy of the dataset: they go on with the "
        "old value, and the change has no effect.",
        zh="程序在两轮之间修改数据集，例如改变添加的噪声大小。但读取数据的进程早已启动并一直保留，各自持有数据集的副本："
        "它们继续使用旧的值，修改不起作用。",
    ),
    why=T(
        en="With `num_workers` above 0 the dataset is copied into new processes when a pass begins. Without "
        "`persistent_workers=True` they end with the pass, and the next one copies the dataset as it is then. With it "
        "they are started once. No error is raised, as the program's own dataset has the new value. Only memory that "
        "the processes share is seen by all, such as that of a tensor after `share_memory_()`, if it is written in "
        "place.",
        zh="`num_workers` 大于 0 时，一遍读取开始时数据集会被复制到新的进程里。不用 `persistent_workers=True`，这些进程"
        "会随这一遍结束，下一遍再复制当时的数据集；用了它，进程只启动一次。不会报错，因为程序自己的数据集里确实是新的值。"
        "只有各进程共享的内存才对所有进程可见，例如 `share_memory_()` 之后的张量，而且要就地写入。",
    ),
    advice=T(
        en="leave out `persistent_workers=True` for the loader that {line} reads, or keep what changes in shared "
        "memory.",
        zh="{line}所读的加载器不要用 `persistent_workers=True`，或把会变的值放在共享内存里。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, Dataset


class Shifted(Dataset):
    def __init__(self):
        self.shift = 0.0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index + self.shift


data = Shifted()
loader = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=True)
for epoch in range(3):
    data.shift = 0.1 * epoch
    for batch in loader:  # PL989
        print(epoch, batch)
""",
    good="""import torch
from torch.utils.data import DataLoader, Dataset


class Shifted(Dataset):
    def __init__(self):
        self.shift = 0.0

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index + self.shift


data = Shifted()
loader = DataLoader(data, batch_size=2, num_workers=1, persistent_workers=False)
for epoch in range(3):
    data.shift = 0.1 * epoch
    for batch in loader:
        print(epoch, batch)
""",
    find=find,
    traps=(
        Trap(
            "num_workers=1",
            "num_workers=2",
            T(
                en="Another worker: it has a copy of its own, and keeps it too.",
                zh="再加一个进程：它也有自己的副本，并且一直保留。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)
