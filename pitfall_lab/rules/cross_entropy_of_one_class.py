"""PL422: a cross entropy of a single class: the probability of that class is always 1, the loss is 0, and nothing can
be learned.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.trace import Event, Span, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line all of whose cross entropies have a single class, if a backward goes through one
    of them.
    """
    lines: dict[Span, list[Event]] = defaultdict(list)
    for event in story.calls("cross_entropy") if story.backwards() else ():
        if event.error is None and event.span is not None and event.results and event.operands:
            lines[event.span].append(event)
    for span, events in lines.items():
        if (
            all(_is_one(story, event) for event in events)
            and (ran := next((e for e in events if _ran(story, e)), None)) is not None
        ):
            yield _finding(story, ran, span)


def _is_one(story: Story, event: Event) -> bool:
    shape = story.shape(event.operands[0].label, event.step) or ()
    return len(shape) > 1 and shape[1] == 1


def _ran(story: Story, event: Event) -> bool:
    node = story.record("nodes", (story.tensor(event.results[0], event.step) or {}).get("grad_fn")) or {}
    return node.get("ran") is not None


def _finding(story: Story, event: Event, span: Span) -> Finding:
    here, what = at_line(story, span), expression(story, event.operands[0].label, event.step)
    shape = "×".join(str(n) for n in story.shape(event.operands[0].label, event.step) or ())
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} computes the cross entropy of a single class: {what.en} ({shape}) has one score "
            "for each row, so the loss is always 0.",
            zh=f"{here.zh}计算只有一个类别的交叉熵：{what.zh}（{shape}）每行只有一个分数，所以损失总是 0。",
        ),
        T(
            en="A cross entropy compares the scores of the classes with each other. With one there is nothing to "
            "compare: whatever it is, its share is 1, the log of that 0, and so are loss and gradient. For a yes or "
            "no with one score use `binary_cross_entropy_with_logits`; a cross entropy needs one score for each "
            "class, two at least.",
            zh="交叉熵把各类别的分数相互比较。只有一个分数时没有可比的：无论它是多少，份额都是 1，对数是 0，损"
            "失与梯度也是 0。对于只有一个分数的是非判断，请用 `binary_cross_entropy_with_logits`；交叉熵需要每"
            "个类别一个分数，至少两个。",
        ),
        fixes=_fixes(story, event),
        facts=[Fact("entries", 1, story.by(event.step))],
    )


def _fixes(story: Story, event: Event) -> tuple[Fix, ...]:
    program = story.program
    node = program.at(story.span(event.step)) if program.tree is not None else None
    torch = torch_name(program)
    if not isinstance(node, ast.Call) or torch is None or call_name(node) != event.name or not node.args:
        return ()
    if len(node.args) != 2:
        return ()
    scores, target = operand(program, node.args[0]), operand(program, node.args[1])
    new = f"{torch}.nn.functional.binary_cross_entropy_with_logits({scores}, {target}.float().view_as({scores}))"
    title = T(
        en="Use the loss for one score: `binary_cross_entropy_with_logits`",
        zh="改用针对一个分数的损失：`binary_cross_entropy_with_logits`",
    )
    return unique(program.text, [Fix(title, program.replace((node, new)), meaning="shape")])


RULE = Rule(
    code="PL422",
    name="cross-entropy-of-one-class",
    severity="warning",
    title=T(en="A cross entropy of a single class is always 0", zh="只有一个类别的交叉熵总是 0"),
    what=T(
        en="A program has one score for each example, for yes or no, and gives it to the loss for several classes. "
        "That loss is always 0, and nothing is learned. Use `binary_cross_entropy_with_logits` for one score, or make "
        "one score for each class.",
        zh="程序对每个样本只有一个是非分数，却交给了针对多个类别的损失。这个损失总是 0，什么也学不到。一个分数请用 "
        "`binary_cross_entropy_with_logits`，或者每个类别给一个分数。",
    ),
    why=T(
        en="`cross_entropy` applies a `log_softmax` along the axis of classes, which divides `exp(score)` by the sum "
        "over the classes. Where that axis has length 1 both are the same number, and the log of 1 is 0. Targets of "
        "shape (n, 1) with 0 and 1 are accepted as probabilities of that one class, so nothing is raised.",
        zh="`cross_entropy` 沿类别轴做 `log_softmax`，即用 `exp(分数)` 除以各类别之和。该轴长度为 1 时两者是同一个数，"
        "而 1 的对数是 0。形状为 (n, 1)、取值 0 与 1 的目标会被当作那一个类别的概率接受，所以不会报错。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
x, y = torch.randn(4, 3), torch.tensor([[0.0], [1.0], [1.0], [0.0]])
for _ in range(3):
    score = net(x)
    loss = F.cross_entropy(score, y)  # PL422
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), score.sum().item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
net = torch.nn.Linear(3, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
x, y = torch.randn(4, 3), torch.tensor([[0.0], [1.0], [1.0], [0.0]])
for _ in range(3):
    score = net(x)
    loss = F.binary_cross_entropy_with_logits(score, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), score.sum().item())
""",
    find=find,
    traps=(
        Trap(
            "F.cross_entropy(score, y)",
            "F.cross_entropy(score, y.squeeze(1).long().clamp(max=0))",
            T(
                en="Class numbers are accepted only when all are 0, the one class there is; the loss is still 0.",
                zh="类别编号只有全为 0（仅有的一个类别）时才被接受；损失仍然是 0。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",
    ),
)
