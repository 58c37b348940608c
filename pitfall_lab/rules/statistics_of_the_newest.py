"""PL652: the momentum of a batch norm was given as the share of the old statistics; in
torch it is that of the new ones.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, number
from pitfall_lab.rules.signals.value_origins import argument
from pitfall_lab.trace import Event, T

LARGE = 0.9
ROUNDS = 2
LAYERS = {
    "BatchNorm1d",
    "BatchNorm2d",
    "BatchNorm3d",
    "SyncBatchNorm",
    "LazyBatchNorm1d",
    "LazyBatchNorm2d",
    "batch_norm",
}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a batch norm, and momentum there, if the momentum, the share of the new batch,
    is at least ``LARGE``, below 1 and the same in all of at least ``ROUNDS`` passes of a training through one layer:
    its running statistics are almost the last batch's.
    """
    layers: dict[str, list[tuple[Event, float]]] = defaultdict(list)
    for event in story.calls("batch_norm") if story.backwards() else ():
        running = event.operands[1].label if len(event.operands) > 1 else None
        share = _share(event)
        trained = event.results and (story.tensor(event.results[0], event.step) or {}).get("requires_grad")
        if running is not None and event.error is None and trained and share is not None:
            layers[running].append((event, share))
    told = set()
    for calls in layers.values():
        event, share = calls[0]
        place = story.span(event.step)
        if (
            len(calls) >= ROUNDS
            and LARGE <= share < 1
            and all(other == share for _, other in calls)
            and (place, share) not in told
        ):
            told.add((place, share))
            yield _finding(story, event, share)


def _share(event: Event) -> float | None:
    """The momentum of a batch norm call in training mode: the weight of the new batch in the running statistics; None
    if there is none.
    """
    if (argument(event, "training", 5) or "False") != "True":
        return None
    try:
        return float(argument(event, "momentum", 6) or "")
    except ValueError:
        return None


def _finding(story: Story, event: Event, share: float) -> Finding:
    here, given, meant = at_line(story, story.span(event.step)), number(share), number(1 - share)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"The batch norm on {here.en} has a momentum of {given}: in torch that is the share of the newest "
            "batch, so its running statistics are almost those of the last batch.",
            zh=f"{here.zh}的 batch norm 的 momentum 是 {given}：在 torch 中这是最新批次的份额，所以它的运行统计量几乎"
            "就是最后一个批次的。",
        ),
        T(
            en=f"{capital(here.en)} moves the running mean to {meant} of the old one and {given} of that of the "
            "batch. In evaluation mode these numbers normalize everything, and they depend on which batch came last. "
            f"Other libraries call the share of the old statistics momentum; what they call {given} is {meant} here.",
            zh=f"{here.zh}把运行均值变成旧值的 {meant} 加上这个批次的 {given}。评估模式下，一切都用这些数来归一化，而"
            f"它们取决于最后来的是哪个批次。其他库把旧统计量的份额叫做 momentum；它们的 {given} 在这里是 {meant}。",
        ),
        related=[],
        fixes=_fixes(story, share),
        facts=[Fact("momentum", share, story.by(event.step))],
    )


def _fixes(story: Story, share: float) -> tuple[Fix, ...]:
    """Fixes that write 1 minus the momentum in all layers with this momentum, or with one that is no literal; empty if
    there are none.
    """
    program = story.program
    places: list[tuple[ast.expr, str]] = []
    for call in (
        [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) in LAYERS]
        if program.tree is not None
        else []
    ):
        given = next(
            (k.value for k in call.keywords if k.arg == "momentum"), call.args[2] if len(call.args) > 2 else None
        )
        if isinstance(given, ast.Constant) and given.value == share:
            places.append((given, number(round(1 - share, 6))))
        elif given is not None and not isinstance(given, ast.Constant):
            places.append((given, f"1 - {operand(program, given)}"))
    if not places:
        return ()
    title = T(en=f"Give the share of the new batch: `{places[0][1]}`", zh=f"给出新批次的份额：`{places[0][1]}`")
    return unique(program.text, [Fix(title, program.replace(*places), meaning="later")])


RULE = Rule(
    code="PL652",
    name="statistics-of-the-newest",
    severity="warning",
    title=T(
        en="A batch norm's running statistics are those of the last batch",
        zh="batch norm 的运行统计量就是最后一个批次的统计量",
    ),
    what=T(
        en="A batch norm remembers the mean and the spread of what it saw for later, and a momentum near 1 makes it "
        "forget all but the last batch. The evaluation jumps about. Torch's momentum is the share of the new batch: "
        "where another library has 0.99, write 0.01.",
        zh="batch norm 会记住见过的均值和离散程度以备后用，而接近 1 的 momentum 让它只记得最后一个批次。评估结果会跳来"
        "跳去。torch 的 momentum 是新批次的份额：别的库写 0.99 的地方，这里要写 0.01。",
    ),
    why=T(
        en="`running = (1 - momentum) * running + momentum * batch`, with 0.1 by default. Keras and many papers write "
        "`running = momentum * running + (1 - momentum) * batch`, with 0.99. In training mode the statistics of the "
        "batch itself are used, so the training loss shows nothing; only `eval()` uses the running ones. "
        "`momentum=None` takes the plain mean over all batches.",
        zh="`running = (1 - momentum) * running + momentum * batch`，默认 0.1。Keras 和许多论文写成 `running = "
        "momentum * running + (1 - momentum) * batch`，取 0.99。训练模式下用的是批次自己的统计量，所以训练损失看不出"
        "来；只有 `eval()` 才使用运行统计量。`momentum=None` 对所有批次取普通平均。",
    ),
    bad="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, momentum=0.99), torch.nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(8, 2), torch.randn(8, 1)
    loss = (net(x) - y).square().mean()  # PL652
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net.eval()(torch.zeros(1, 2)).item())
""",
    good="""import torch

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3, momentum=0.01), torch.nn.Linear(3, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    x, y = torch.randn(8, 2), torch.randn(8, 1)
    loss = (net(x) - y).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(net.eval()(torch.zeros(1, 2)).item())
""",
    find=find,
    traps=(
        Trap(
            "momentum=0.99",
            "momentum=0.99, eps=1e-3",
            T(
                en="A larger eps hides small variances; the statistics are still those of one batch.",
                zh="更大的 eps 掩盖了小的方差；统计量仍然只来自一个批次。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html",),
)
