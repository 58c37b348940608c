"""PL909: the workers of a DataLoader draw the same random numbers, because each has a copy of one generator."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import DataPass, T

MAKERS = {"default_rng", "RandomState", "Random", "Generator"}
DRAWS = {"integers": "randint"} | {
    each: each
    for each in (
        "normal", "uniform", "random", "choice", "permutation", "shuffle", "standard_normal", "exponential", "poisson",
        "binomial", "beta", "gamma", "lognormal", "randint", "rand", "randn", "gauss", "sample", "randrange",
    )
}  # fmt: skip
"""The methods of a generator, with the functions of its library that draw the same kind of numbers."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each class of dataset that has a generator of its own and was given to several workers of a
    ``DataLoader``, or to the worker of several passes.
    """
    reported = set()
    for each in story.trace.beside.passes:
        several = each.workers > 1 or (each.workers == 1 and bool(each.still))
        if several and each.generators and each.kind not in reported:
            reported.add(each.kind)
            yield _finding(story, each)


def _finding(story: Story, each: DataPass) -> Finding:
    here, name = at_line(story, each.span), each.generators[0]
    who = T(
        en=f"its {each.workers} workers" if each.workers > 1 else "its worker in every pass",
        zh=f"{each.workers} 个工作进程" if each.workers > 1 else "每一遍的工作进程",
    )
    return RULE.finding(
        each.span,
        each.step,
        T(
            en=f"{capital(here.en)} reads `{each.kind}` with {who.en}, and each begins with a copy of the generator "
            f"`self.{name}` in one state: they draw the same random numbers.",
            zh=f"{here.zh}用{who.zh}读取 `{each.kind}`，每个进程开始时都得到生成器 `self.{name}` 在同一状态下的副本："
            "它们抽到的随机数相同。",
        ),
        T(
            en="A worker is a process of its own, which gets a copy of the dataset when a pass begins. torch gives "
            "each worker another seed for its global generators (torch, NumPy, random), not for one that the dataset "
            "holds. What the workers draw was not recorded; that their copies begin alike follows from the dataset, "
            "and after a pass the original is where it was.",
            zh="工作进程是独立的进程，在一遍读取开始时得到数据集的副本。torch 会为每个工作进程的全局生成器（torch、"
            "NumPy、random）设置不同的种子，但不管数据集自己持有的生成器。工作进程抽到的数没有被记录；副本的起点相同，"
            "是由数据集得出的，而一遍之后原来的生成器没有变化。",
        ),
        fixes=_fixes(story, name),
        facts=[Fact("workers", each.workers), Fact("generators", list(each.generators))],
    )


def _fixes(story: Story, name: str) -> tuple[Fix, ...]:
    """Fixes that draw from a global generator, which torch seeds in each worker, and not from the dataset's own.

    Empty unless the program shows which library made that, and each use of it is a draw that both have.
    """
    program, own = story.program, f"self.{name}"
    made = [
        each.value
        for each in program.nodes
        if isinstance(each, ast.Assign) and any(program.segment(target) == own for target in each.targets)
    ]
    reads = [
        n for n in program.nodes
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Load) and program.segment(n) == own
    ]  # fmt: skip
    maker = next((n for n in ast.walk(made[0]) if isinstance(n, ast.Call) and called(n) in MAKERS), None) if (
        len(made) == 1
    ) else None  # fmt: skip
    if maker is None or not isinstance(maker.func, ast.Attribute) or not reads:
        return ()
    library = program.segment(maker.func.value)
    changes = _without(story, reads) if called(maker) == "Generator" else _instead(story, reads, library)
    if changes is None:
        return ()
    title = T(
        en=f"Draw from `{library}`, which torch seeds in each worker",
        zh=f"从 `{library}` 抽取，torch 会在每个工作进程里为它设置种子",
    )
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])


def _instead(story: Story, reads: list[ast.Attribute], library: str) -> list[tuple[ast.AST, str]] | None:
    """Edits that replace each draw from the generator by the same draw from the library; None if a use is no draw that
    the library has, or if its arguments do not fit.
    """
    program, changes = story.program, list[tuple[ast.AST, str]]()
    for each in reads:
        method = program.parents.get(each)
        call = program.parents.get(method) if isinstance(method, ast.Attribute) else None
        if not isinstance(method, ast.Attribute) or not isinstance(call, ast.Call) or method.attr not in DRAWS:
            return None
        if any(k.arg in ("endpoint", "dtype", "out", "axis") for k in call.keywords):
            return None
        changes.append((method, f"{library}.{DRAWS[method.attr]}"))
    return changes


def _without(story: Story, reads: list[ast.Attribute]) -> list[tuple[ast.AST, str]] | None:
    """Edits that remove the keyword ``generator`` from each call that is given it; None if the generator is used in any
    other way.
    """
    program, changes = story.program, list[tuple[ast.AST, str]]()
    for each in reads:
        word = program.parents.get(each)
        call = program.parents.get(word) if isinstance(word, ast.keyword) and word.arg == "generator" else None
        if not isinstance(call, ast.Call):
            return None
        given = ", ".join(program.segment(a) for a in (*call.args, *call.keywords) if a is not word)
        changes.append((call, f"{program.segment(call.func)}({given})"))
    return changes


RULE = Rule(
    code="PL909",
    name="workers-draw-the-same",
    severity="warning",
    title=T(
        en="The workers of a DataLoader draw the same random numbers", zh="DataLoader 的各个工作进程抽到相同的随机数"
    ),
    what=T(
        en="A dataset makes its noise with a random number generator of its own, and a DataLoader reads it with "
        "several workers. Each worker has a copy of that generator, so the same noise comes again and again: in each "
        "worker, and in each epoch.",
        zh="数据集用自己的随机数生成器产生噪声，而 DataLoader 用多个工作进程读取它。每个工作进程都有这个生成器的副本，"
        "所以同样的噪声一再出现：每个进程里都一样，每一轮也一样。",
    ),
    why=T(
        en="With `num_workers` above 0 the dataset is copied into new processes at the beginning of each pass. Copies "
        "of a generator draw the same numbers. torch seeds its own generator, Python's `random` and NumPy's global "
        "one differently in each worker, but not a generator in the dataset. Draw from the global one, or make the "
        "generator in the worker from `torch.initial_seed()`.",
        zh="`num_workers` 大于 0 时，每一遍开始时数据集都会被复制到新的进程里。生成器的副本抽到同样的数。torch 在每个"
        "工作进程里为自己的生成器、Python 的 `random` 和 NumPy 的全局生成器设置不同的种子，却不知道数据集里的生成器。"
        "请从全局生成器抽取，或在工作进程里用 `torch.initial_seed()` 创建生成器。",
    ),
    advice=T(
        en="draw with torch's own generator on {line}, or seed the generator of the dataset in each "
        "worker (`worker_init_fn`).",
        zh="{line}的数据请用 torch 自己的生成器抽取，或在每个工作进程里为另一个生成器设置种子（`worker_init_fn`）。",
    ),
    bad="""import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index + self.rng.normal()


torch.manual_seed(0)
loader = DataLoader(Noisy(), batch_size=2, num_workers=2)
for batch in loader:  # PL909
    print(batch)
""",
    good="""import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index + np.random.normal()


torch.manual_seed(0)
loader = DataLoader(Noisy(), batch_size=2, num_workers=2)
for batch in loader:
    print(batch)
""",
    find=find,
    traps=(
        Trap(
            "default_rng(0)",
            "default_rng(1)",
            T(
                en="Another seed for the one generator: its copies still begin alike.",
                zh="给这个生成器换一个种子：它的副本起点仍然相同。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#multi-process-data-loading",),
)
