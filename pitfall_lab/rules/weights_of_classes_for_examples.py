"""PL916: a weighted sampler was given one weight for each class, so it draws only the first examples of the dataset."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import DataPass, Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each loop over a loader with a weighted sampler that has at most a quarter as many weights
    as the dataset has examples.
    """
    told = set()
    for each in story.trace.beside.passes:
        few = (
            each.weights is not None
            and each.examples is not None
            and each.weights > 0
            and 4 * each.weights <= each.examples
        )
        if few and each.span not in told:
            told.add(each.span)
            yield _finding(story, each)


def _finding(story: Story, each: DataPass) -> Finding:
    made = _made(story, each)
    span = story.program.place(made) if made is not None else each.span
    here, there = at_line(story, span), at_line(story, each.span)
    return RULE.finding(
        span,
        each.step,
        T(
            en=f"{capital(here.en)} has {each.weights} weights for a dataset of {each.examples} examples: only the "
            f"first {each.weights} examples are ever drawn.",
            zh=f"{here.zh}只有 {each.weights} 个权重，而数据集有 {each.examples} 个样本：只会抽到前 "
            f"{each.weights} 个样本。",
        ),
        T(
            en=f"A `WeightedRandomSampler` draws positions 0 to {(each.weights or 1) - 1}, one for each weight, and "
            f"the loop on {there.en} takes only the examples at these positions. Weights of classes must be looked up "
            "for each example: `class_weights[labels]`.",
            zh=f"`WeightedRandomSampler` 抽取的是位置 0 到 {(each.weights or 1) - 1}，每个权重对应一个，{there.zh}的循"
            "环只取这些位置上的样本。类别的权重必须先对应到每个样本：`class_weights[labels]`。",
        ),
        related=[Related("used", each.span, each.step, T(en="examples are drawn here", zh="在这里抽取样本"))]
        if span != each.span
        else [],
        fixes=_fixes(story, made, each),
        facts=[Fact("weights", each.weights), Fact("examples", each.examples)],
    )


def _drawn(story: Story, each: DataPass) -> Event | None:
    """Return the call of ``multinomial`` that draws the indices of this pass; None if it is not in the trace."""
    calls = story.calls("multinomial")
    return next((event for event in calls if event.step >= each.step and event.span == each.span), None)


def _made(story: Story, each: DataPass) -> ast.Call | None:
    """Return the call of ``WeightedRandomSampler`` that made the weights which this pass draws
    with; None if it is not found.
    """
    drawn = _drawn(story, each)
    born = (story.tensor(drawn.operands[0].label) or {}).get("born") if drawn is not None else None
    node = story.program.at(story.span(born))
    around = [node, *story.program.ancestors(node)] if node is not None else []
    return next((n for n in around if isinstance(n, ast.Call) and call_name(n) == "WeightedRandomSampler"), None)


def _fixes(story: Story, made: ast.Call | None, each: DataPass) -> tuple[Fix, ...]:
    """Fixes that index the weights by the labels: by an integer tensor with an entry for each example that has a name
    where the sampler is made or, if there is none, by a name that is given to the sampler or to a ``TensorDataset``.

    Empty if there is none.
    """
    program = story.program
    given = (
        next((k.value for k in made.keywords if k.arg == "weights"), made.args[0] if made.args else None)
        if made is not None
        else None
    )
    if made is None or given is None:
        return ()
    function = program.function(made)
    names = {a.arg for a in function.args.args} if function is not None else set()
    around = [
        n
        for n in program.nodes
        if isinstance(n, ast.Assign) and program.function(n) is function and n.lineno < made.lineno
    ]
    names |= {t.id for n in around for target in n.targets for t in ast.walk(target) if isinstance(t, ast.Name)}
    whole = [
        str(name)
        for label, record in story.tensors.items()
        if record.get("dtype") == "int64" and record.get("shape") == [each.examples]
        for name in (*(record.get("names") or ()), story.used_name(label))
        if name in names
    ]
    # Where the weights were counted from labels, these are the labels of the examples.
    counted = _counted(story, each)
    fixes = []
    own = {given.id} if isinstance(given, ast.Name) else set()
    for name in dict.fromkeys(counted & set(whole) or whole or _beside(story, made, names - own)):
        text = f"{program.segment(given)}[{name}]"
        title = T(en=f"One weight for each example: `{text}`", zh=f"每个样本一个权重：`{text}`")
        fixes.append(Fix(title, program.replace((given, text)), meaning="later"))
    return unique(program.text, fixes)


def _beside(story: Story, made: ast.Call, names: set[str]) -> Iterator[str]:
    """Those of ``names`` that a dataset of tensors or the sampler's other arguments are made of, the last one first:
    labels that a function returned have no other name in the trace than the function's.
    """
    program = story.program
    calls = (n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == "TensorDataset")
    sets = [n for n in calls if program.function(n) is program.function(made)]
    for call in (*sets, made):
        for given in reversed([*call.args, *(k.value for k in call.keywords)]):
            yield from (n.id for n in ast.walk(given) if isinstance(n, ast.Name) and n.id in names)


def _counted(story: Story, each: DataPass) -> set[str]:
    """The names of the integer tensors from which the weights of the classes were computed."""
    drawn = _drawn(story, each)
    behind, waiting = set[str](), [drawn.operands[0].label] if drawn is not None else []
    while waiting:
        label = waiting.pop()
        if label is None or label in behind:
            continue
        behind.add(label)
        made = story.event((story.tensor(label) or {}).get("born"))
        waiting += [operand.label for operand in made.operands] if made is not None else []
    return {
        str(name)
        for label in behind
        if (story.tensor(label) or {}).get("dtype") == "int64"
        for name in (*((story.tensor(label) or {}).get("names") or ()), story.used_name(label))
    }


RULE = Rule(
    code="PL916",
    name="weights-of-classes-for-examples",
    severity="warning",
    title=T(
        en="A sampler has weights of classes where it needs weights of examples",
        zh="采样器需要样本的权重，却得到了类别的权重",
    ),
    what=T(
        en="A program wants rare classes to be drawn more often and gives its sampler one weight for each class. The "
        "sampler takes them for weights of the first examples, and draws only these few. Give it one weight for each "
        "example: `class_weights[labels]`.",
        zh="程序想更多地抽取稀有类别，于是给采样器每个类别一个权重。采样器把它们当作最前面几个样本的权重，只抽取这几"
        "个。请给它每个样本一个权重：`class_weights[labels]`。",
    ),
    why=T(
        en="`WeightedRandomSampler` knows neither the dataset nor its labels. It draws `num_samples` positions "
        "with `torch.multinomial(weights, …)`, so a position without a weight is never drawn. With "
        "`replacement=True` nothing runs out, and the number of batches is what was expected: but all of them are made "
        "of the same few examples, at most as many as there are weights.",
        zh="`WeightedRandomSampler` 既不知道数据集，也不知道标签。它用 `torch.multinomial(weights, …)` 抽取 "
        "`num_samples` 个位置，没有权重的位置永远抽不到。`replacement=True` 时不会抽完，批次的数目也与预期相同：但所有"
        "批次都只由同样那几个样本组成，至多与权重一样多。",
    ),
    bad="""import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
labels = (torch.arange(16) % 8 == 7).long()
weights = 1.0 / torch.bincount(labels).float()
sampler = WeightedRandomSampler(weights, num_samples=16)  # PL916
data = TensorDataset(torch.arange(16), labels)
for numbers, _ in DataLoader(data, batch_size=8, sampler=sampler):  # used
    print(numbers.tolist())
""",
    good="""import torch
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

torch.manual_seed(0)
labels = (torch.arange(16) % 8 == 7).long()
weights = 1.0 / torch.bincount(labels).float()
sampler = WeightedRandomSampler(weights[labels], num_samples=16)
data = TensorDataset(torch.arange(16), labels)
for numbers, _ in DataLoader(data, batch_size=8, sampler=sampler):
    print(numbers.tolist())
""",
    find=find,
    traps=(
        Trap(
            "num_samples=16",
            "num_samples=64",
            T(en="More draws from the first two examples.", zh="只是从最前面两个样本里抽得更多。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/data.html#torch.utils.data.WeightedRandomSampler",),
)
