"""PL931: a loss for one class of several gets targets that mark several classes of one example."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, T

ONE, MANY = "cross_entropy", "binary_cross_entropy_with_logits"
MODULES = {"CrossEntropyLoss": "BCEWithLogitsLoss"}
"""The layer for one class, and the one that judges each class alone."""
KEPT = {"reduction"}
"""Keyword arguments that mean the same for both losses."""


@dataclass(frozen=True, slots=True)
class SeveralClasses:
    """``event`` is the call (``Event``) of ``cross_entropy``, whose ``of`` targets are rows of ones and zeros over
    ``classes`` classes. ``count`` of these rows have more than one 1; the most in a row are ``most``.
    """

    event: Event
    count: int
    of: int
    most: int
    classes: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that computes a cross entropy with rows of ones and zeros as probabilities of
    classes, if some of these rows have several ones.
    """
    for counted in story.trace.beside.counted:
        event = story.event(counted.step)
        if counted.kind == "several" and event is not None and event.name == ONE and event.error is None:
            most, classes = (int(each) for each in counted.numbers)
            yield _finding(story, SeveralClasses(event, counted.count, counted.of, most, classes))


def _finding(story: Story, found: SeveralClasses) -> Finding:
    event = found.event
    labels = [o.label for o in event.operands if o.label is not None]
    here = at_line(story, story.span(event.step))
    target = expression(story, labels[1] if len(labels) > 1 else None, event.step)
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} takes each row of {target.en} for probabilities that add up to 1, but "
            f"{found.count} of {found.of} rows mark several classes, up to {found.most} of {found.classes}.",
            zh=f"{here.zh}把 {target.zh} 的每一行当作合计为 1 的概率，但 {found.of} 行中有 {found.count} 行标出了多个类"
            f"别，最多 {found.classes} 类中的 {found.most} 类。",
        ),
        T(
            en="`cross_entropy` lets the classes compete: a softmax gives them shares of 1, so two classes of one "
            f"example can reach 1/2 each at best, and an example with {found.most} classes counts {found.most} times. "
            "If each class is a question of its own, with a yes or a no, use `binary_cross_entropy_with_logits`; if "
            "the classes are to share, divide each row by its sum.",
            zh="`cross_entropy` 让各类别相互竞争：softmax 把 1 分给它们，所以同一样本的两个类别最多各得 1/2，而标了 "
            f"{found.most} 个类别的样本会被计算 {found.most} 次。如果每个类别都是一个单独的是非问题，请用 "
            "`binary_cross_entropy_with_logits`；如果各类别应当分享，请把每一行除以它的和。",
        ),
        fixes=_fixes(story, found),
        facts=[Fact("rows", found.count, story.by(event.step)), Fact("classes", found.classes, story.by(event.step))],
    )


def _fixes(story: Story, found: SeveralClasses) -> tuple[Fix, ...]:
    """A fix that uses the loss which judges each class alone; empty if the program gives the loss further arguments,
    or makes several.
    """
    program = story.program
    node = program.at(story.span(found.event.step)) if program.tree is not None else None
    title = T(en=f"Judge each class alone: `{MANY}`", zh=f"逐个类别判断：`{MANY}`")
    calls = [each for name in MODULES for each in program.calls.get(f".{name}", ())]
    names = {**MODULES, ONE: MANY}
    if isinstance(node, ast.Call) and call_name(node) == ONE and len(node.args) == 2:
        calls = [node]
    elif any(each.args for each in calls):
        return ()
    if len(calls) != 1 or any(word.arg not in KEPT for word in calls[0].keywords):
        return ()
    function = calls[0].func
    text, name = program.segment(function), call_name(calls[0])
    if not text.endswith(name) or isinstance(function, ast.Name):
        return ()
    new = text.removesuffix(name) + names[name]
    return unique(program.text, [Fix(title, program.replace((function, new)), meaning="later")])


RULE = Rule(
    code="PL931",
    name="several-classes-at-once",
    severity="warning",
    title=T(en="A loss for one class was given several at once", zh="针对单个类别的损失得到了多个类别"),
    what=T(
        en="A program has examples to which several labels apply, marks them with ones, and trains with "
        "`cross_entropy`. That loss divides a share of 1 among the labels, so a second right label lowers "
        "the first. Use `binary_cross_entropy_with_logits`, which asks for each label alone.",
        zh="程序的样本可以同时有多个标签，用 1 标出，却用 `cross_entropy` 训练。这个损失让各标签争夺合计为 1 的份额，"
        "于是第二个正确的标签会压低第一个。请用 `binary_cross_entropy_with_logits`，它对每个标签单独发问。",
    ),
    why=T(
        en="Targets of a floating point type in the shape of the scores are taken for probabilities of the classes; "
        "torch does not check that they add up to 1. Training goes on and the loss falls, to a floor above 0: with "
        "two labels the best shares are 1/2 each, and a threshold at 1/2 then finds neither or one.",
        zh="与分数形状相同的浮点目标会被当作各类别的概率；torch 不检查它们的和是否为 1。训练照常进行，损失下降到某个"
        "大于 0 的下限：有两个标签时，最好的份额是各 1/2，于是以 1/2 为阈值一个也找不到，或者只找到一个。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(12, 4)
tags = (x[:, :3] > 0).float()
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(20):
    loss = F.cross_entropy(net(x), tags)  # PL931
    opt.zero_grad()
    loss.backward()
    opt.step()
print(((net(x).sigmoid() > 0.5).float() == tags).float().mean())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
x = torch.randn(12, 4)
tags = (x[:, :3] > 0).float()
net = torch.nn.Linear(4, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(20):
    loss = F.binary_cross_entropy_with_logits(net(x), tags)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(((net(x).sigmoid() > 0.5).float() == tags).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "lr=0.5",
            "lr=0.1",
            T(en="Smaller steps lead to the same shares, later.", zh="步长更小，只是更晚到达同样的份额。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",
    ),
)
