"""PL901: a loss was given values of another kind than it works on: probabilities or a ReLU for logits, logits for
logarithms.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression, number, snippet
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.value_origins import origin, values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

Form = Literal["logits", "probabilities", "log-probabilities", "cut"]

EXPECTED: dict[str, Form] = {
    "cross_entropy": "logits",
    "binary_cross_entropy_with_logits": "logits",
    "logsumexp": "logits",
    "softmax": "logits",
    "log_softmax": "logits",
    "nll_loss": "log-probabilities",
    "kl_div": "log-probabilities",
    "ctc_loss": "log-probabilities",
}
"""The kind of number that each of these calls works on."""
MADE: dict[str, Form] = {
    "softmax": "probabilities",
    "sigmoid": "probabilities",
    "log_softmax": "log-probabilities",
    "logsigmoid": "log-probabilities",
    "relu": "cut",
    "relu_": "cut",
    "relu6": "cut",
}
"""The kind of number that each of these calls makes."""
LOGARITHMS = spellings("log", in_place=True) | {"log10", "log1p", "log2", "log_softmax", "logsigmoid"}
"""Calls that make a logarithm."""
NAMES: dict[Form, T] = {
    "logits": T(en="raw scores (logits)", zh="原始分数（logits）"),
    "probabilities": T(en="probabilities", zh="概率"),
    "log-probabilities": T(en="logarithms of probabilities", zh="概率的对数"),
    "cut": T(en="scores without anything below 0", zh="没有负数的分数"),
}
SCORES = {"linear", "conv1d", "conv2d"}
"""Layers whose results are plain scores."""
TINY = 1e-6


@dataclass(frozen=True, slots=True)
class LossGivenOtherNumbers:
    """``event`` is the call (``Event``) of a loss, or of a softmax, that works on numbers of the kind ``wanted``
    ("logits", for example); its first operand holds numbers of the kind ``got``.

    ``maker`` is the call that made these; None for plain scores of a layer, and where it is not known.
    """

    event: Event
    wanted: Form
    got: Form
    maker: Event | None


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line on which a loss, or a softmax, was given numbers of another kind than it works on
    (probabilities or a ReLU's results for logits, logits for logarithms).

    Only where these numbers require grad.
    """
    reported = set()
    for event in story.calls(*EXPECTED):
        line = (span.source, span.line) if (span := story.span(event.step)) else None
        if (
            line not in reported
            and event.error is None
            and event.results
            and (found := _mismatch(story, event)) is not None
        ):
            reported.add(line)
            yield _finding(story, found)


def _mismatch(story: Story, event: Event) -> LossGivenOtherNumbers | None:
    wanted, given = EXPECTED[event.name], event.operands[0].label if event.operands else None
    if given is None or not (story.tensor(given, event.step) or {}).get("requires_grad"):
        return None
    maker = origin(story, given, event.step - 1) or _in_place(story, given, event.step)
    got = MADE.get(maker.name) if maker is not None else None
    if got == "cut" and (wanted != "logits" or event.name in ("softmax", "log_softmax", "logsumexp")):
        return None  # an attention may do so
    if wanted == "logits":
        if got is None or (got == "log-probabilities" and event.name != "binary_cross_entropy_with_logits"):
            return None  # a softmax of log-probabilities gives the probabilities back
        if event.name in ("softmax", "log_softmax", "logsumexp") and (maker is None or maker.name != "softmax"):
            return None  # a sigmoid may be a gate
        return LossGivenOtherNumbers(event, wanted, got, maker)
    if maker is not None and maker.name in LOGARITHMS:
        return None
    if got == "probabilities":
        return LossGivenOtherNumbers(event, wanted, got, maker)
    if maker is not None and maker.name in SCORES and event.name != "kl_div":
        return LossGivenOtherNumbers(event, wanted, "logits", None)
    positive = any(value > TINY for value in values(story, given, event.step))
    return (
        LossGivenOtherNumbers(event, wanted, "logits", maker)
        if positive and event.name in ("nll_loss", "ctc_loss")
        else None
    )


def _in_place(story: Story, label: str, step: int) -> Event | None:
    """The last call that wrote into the storage of the scores, if it is a ReLU; else None."""
    writes = story.writes(str((story.tensor(label, step) or {}).get("storage")), -1, step)
    last = story.event(writes[-1]) if writes else None
    return last if last is not None and last.name in ("relu_", "relu") else None


def _finding(story: Story, found: LossGivenOtherNumbers) -> Finding:
    event, wanted, got = found.event, NAMES[found.wanted], NAMES[found.got]
    span, made = story.span(event.step), story.span(found.maker.step) if found.maker else None
    here, there = at_line(story, span), at_line(story, made)
    given = expression(story, event.operands[0].label, event.step)
    evidence = _evidence(story, found)
    through = T(
        en=f" `{snippet(story, made)}` on {there.en} made them." if found.maker is not None else "",
        zh=f"它们由{there.zh}的 `{snippet(story, made)}` 得到。" if found.maker is not None else "",
    )
    by_name = f"`{event.name}`"
    related = [story.related("used", event.step, T(en=f"{wanted.en} are expected here", zh=f"这里需要的是{wanted.zh}"))]
    if found.maker is not None:
        related.insert(
            0, story.related("made", found.maker.step, T(en=f"{got.en} are made here", zh=f"这里得到的是{got.zh}"))
        )
    return RULE.finding(
        span, event.step,
        T(
            en=f"{capital(here.en)} gives {by_name} {got.en}, and it works on {wanted.en}.",
            zh=f"{here.zh}交给 {by_name} 的是{got.zh}，而它需要的是{wanted.zh}。",
        ),
        T(
            en=f"{capital(given.en)} holds {got.en}.{through.en} {evidence.en}",
            zh=f"{given.zh} 里是{got.zh}。{through.zh}{evidence.zh}",
        ),
        related=related,
        fixes=_fixes(story, found),
        facts=[Fact("wanted", found.wanted, story.by(event.step)), Fact("given", found.got, story.by(event.step))],
    )  # fmt: skip


def _evidence(story: Story, found: LossGivenOtherNumbers) -> T:
    """A sentence on how these numbers changed the result of this loss or softmax."""
    event = found.event
    shape = story.shape(event.operands[0].label, event.step) or ()
    if found.got == "cut":
        return T(
            en=(
                "A score below 0 says that a class is unlikely, and here each such score became 0, "
                "with a gradient of 0: "
            )
            + (
                "no probability below one half is left."
                if event.name == "binary_cross_entropy_with_logits"
                else "a class whose score became 0 no longer learns, and all unlikely classes have the same score."
            ),
            zh="小于 0 的分数表示某个类别不太可能，而这里每个这样的分数都变成了 0，梯度也是 0："
            + (
                "不可能再有小于一半的概率。"
                if event.name == "binary_cross_entropy_with_logits"
                else "分数落在那里的类别不再学习，不太可能的类别之间也无法区分。"
            ),
        )
    if event.name == "cross_entropy":
        count = shape[1] if len(shape) > 1 else shape[0] if shape else 2
        least = number(math.log(math.e + count - 1) - 1)
        return T(
            en=f"`{event.name}` applies `log_softmax` to them once more. Of numbers between 0 and 1 that is "
            f"nearly flat: a perfect prediction among {count} classes would still cost {least} instead of 0, and "
            "gradients are small.",
            zh=f"`{event.name}` 会对这些数再做一次 `log_softmax`。0 到 1 之间的数经过它几乎是平的：{count} 个类别中即"
            f"使预测完全正确，损失也还有 {least} 而不是 0，梯度也很小。",
        )
    if event.name == "binary_cross_entropy_with_logits":
        return T(
            en=f"`{event.name}` applies a sigmoid to them once more, which makes 0.5 to "
            f"{number(1 / (1 + math.exp(-1)))} of every probability: no prediction of 0 is possible, and a perfect "
            f"one still costs {number(math.log(2))}.",
            zh=f"`{event.name}` 会再做一次 sigmoid，把任何概率变成 0.5 到 {number(1 / (1 + math.exp(-1)))} 之间的数："
            f"不可能预测出 0，对标签 0 的完美预测也还要付出 {number(math.log(2))}。",
        )
    if event.name in ("nll_loss", "kl_div", "ctc_loss"):
        result = values(story, event.results[0], event.step)
        seen = len(result) == 1 and math.isfinite(result[0])
        negative = seen and result[0] < 0
        return T(
            en=f"`{event.name}` takes no logarithm itself."
            + (f" Here the result is {number(result[0])}" if seen else "")
            + (", below 0, where no such loss can be." if negative else "." if seen else "")
            + " It gets ever smaller when the numbers just grow.",
            zh=f"`{event.name}` 自己并不取对数。"
            + (f"这里的结果是 {number(result[0])}" if seen else "")
            + ("，小于 0，而这种损失不可能小于 0。" if negative else "。" if seen else "")
            + "只要这些数变大，它就会一直变小。",
        )
    return T(
        en="The result is a softmax of a softmax: numbers between 0 and 1 go in, so all classes come out nearly alike.",
        zh="结果是 softmax 的 softmax：输入都在 0 到 1 之间，于是各类别的输出几乎一样。",
    )


def _fixes(story: Story, found: LossGivenOtherNumbers) -> tuple[Fix, ...]:
    program = story.program
    if program.tree is None:
        return ()
    candidates = [*_other_loss(story, found), *_other_maker(story, found), *_normalised(story, found)]
    return unique(program.text, candidates)


OTHER_LOSS = {
    ("nll_loss", "logits"): {"nll_loss": "cross_entropy", "NLLLoss": "CrossEntropyLoss"},
    ("binary_cross_entropy_with_logits", "probabilities"): {
        "binary_cross_entropy_with_logits": "binary_cross_entropy",
        "BCEWithLogitsLoss": "BCELoss",
    },
}
OTHER_MAKER = {"softmax": "log_softmax", "Softmax": "LogSoftmax", "sigmoid": "logsigmoid"}


def _other_loss(story: Story, found: LossGivenOtherNumbers) -> Iterator[Fix]:
    """Fixes that replace the loss, by its name in the program's source, by the one that works on these numbers.

    Nothing if there is no such loss, or its call has keyword arguments.
    """
    program, names = story.program, OTHER_LOSS.get((found.event.name, found.got), {})
    for node in program.nodes:
        if isinstance(node, ast.Call) and (new := names.get(call_name(node))) is not None and not node.keywords:
            title = T(en=f"Use the loss for these numbers: `{new}`", zh=f"使用适合这些数的损失：`{new}`")
            yield Fix(title, program.replace((node.func, _renamed(program, node.func, new))), meaning="shape")


def _normalised(story: Story, found: LossGivenOtherNumbers) -> Iterator[Fix]:
    """The fix that adds ``log_softmax(-1)`` to the scores in a call of ``ctc_loss``; nothing for other losses."""
    given = (
        written_as(story, found.event, found.event.operands[0].label)
        if found.event.name == "ctc_loss" and found.got == "logits"
        else None
    )
    if given is not None:
        new = f"{operand(story.program, given)}.log_softmax(-1)"
        yield Fix(
            T(en=f"Take the logarithms: `{new}`", zh=f"取对数：`{new}`"),
            story.program.replace((given, new)),
            meaning="shape",
        )


def _renamed(program: Program, function: ast.expr, name: str) -> str:
    text = program.segment(function)
    return f"{text.rpartition('.')[0]}.{name}" if "." in text else name


def _other_maker(story: Story, found: LossGivenOtherNumbers) -> Iterator[Fix]:
    """Fixes that remove the call that made the numbers, or replace it by the one that makes what the loss takes.

    Nothing if the maker is unknown or the program's source does not show it.
    """
    program = story.program
    node = program.at(story.span(found.maker.step)) if found.maker is not None else None
    name = found.maker.name.rstrip("_") if found.maker is not None else ""
    if not name:
        return  # numbers that no call of the program made: which loss they were meant for is all there is to say
    places: list[ast.Call] = [node] if isinstance(node, ast.Call) and call_name(node) == name else []
    built = {"softmax": "Softmax", "sigmoid": "Sigmoid", "relu": "ReLU", "relu6": "ReLU6"}.get(name)
    layers = [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == built]
    places += layers[::-1][:2] if found.got == "cut" else layers  # the last one is in front of the loss
    for place in places:
        text, new = program.segment(place), OTHER_MAKER.get(call_name(place))
        if found.wanted == "log-probabilities":
            if new is None:
                continue
            title = T(en=f"Take the logarithms: `{new}`", zh=f"取对数：`{new}`")
            yield Fix(title, program.replace((place.func, _renamed(program, place.func, new))), meaning="shape")
            continue
        left = _left_out(program, place)
        if left is not None:
            title = T(en=f"Leave `{text}` out before the loss", zh=f"在损失之前去掉 `{text}`")
            yield Fix(title, program.replace((place, left)), meaning="shape")


def _left_out(program: Program, place: ast.Call) -> str | None:
    """The code that remains when the call is removed: its first argument, the tensor before the dot of a method, or
    ``Identity()`` in place of a module. None if the call has neither.
    """
    if call_name(place) in ("Softmax", "Sigmoid", "ReLU", "ReLU6"):
        return _renamed(program, place.func, "Identity") + "()"
    if place.args and program.segment(place.func).rpartition(".")[0] in (
        "torch",
        "F",
        "nn.functional",
        "torch.nn.functional",
        "",
    ):
        return program.segment(place.args[0])
    return program.segment(place.func.value) if isinstance(place.func, ast.Attribute) else None


RULE = Rule(
    code="PL901",
    name="loss-given-other-numbers",
    severity="warning",
    title=T(en="A loss was given another kind of numbers than it works on", zh="交给损失函数的不是它所需要的那种数"),
    what=T(
        en="A program turned its scores into probabilities and gave them to a loss that does this itself, or gave "
        "plain scores to a loss that needs logarithms. It trains, slowly and towards the wrong aim. Give each loss "
        "what it works on: `cross_entropy` and `binary_cross_entropy_with_logits` raw scores, `nll_loss`, `kl_div` "
        "and `ctc_loss` the result of `log_softmax`.",
        zh="程序先把分数变成概率，再交给自己也会做这一步的损失；或者把原始分数交给需要对数的损失。训练照样进行，但很"
        "慢，目标也不对。请给每个损失它所需要的：`cross_entropy` 和 `binary_cross_entropy_with_logits` 要原始分数，"
        "`nll_loss`、`kl_div` 和 `ctc_loss` 要 `log_softmax` 的结果。",
    ),
    why=T(
        en="All of these take tensors of any numbers, and torch cannot know what they mean. `cross_entropy` is "
        "`log_softmax` followed by `nll_loss`, and `binary_cross_entropy_with_logits` is a sigmoid followed by "
        "`binary_cross_entropy`, each in one call because that is more exact for large scores. Probabilities are "
        "between 0 and 1; as raw scores that is almost the same score for everything, so the loss can never come near "
        "0. `nll_loss` only picks the number of the right class and changes its sign.",
        zh="这些函数接受任何数值的张量，torch 无法知道它们的含义。`cross_entropy` 就是 `log_softmax` 之后接 "
        "`nll_loss`，`binary_cross_entropy_with_logits` 就是 sigmoid 之后接 `binary_cross_entropy`，合成一次调用是因为"
        "分数很大时这样更精确。概率都在 0 到 1 之间；当作原始分数，就等于所有类别的分数几乎一样，损失永远接近不了 0。"
        "`nll_loss` 只是取出正确类别的那个数并改变符号。",
    ),
    bad="""import torch
import torch.nn.functional as F

x = torch.tensor([[3.0, 0.0], [0.0, 2.0]], requires_grad=True)
target = torch.tensor([0, 1])
p = torch.softmax(x, dim=1)  # made
loss = F.cross_entropy(p, target)  # PL901 used
loss.backward()
print(loss.item(), x.grad)
""",
    good="""import torch
import torch.nn.functional as F

x = torch.tensor([[3.0, 0.0], [0.0, 2.0]], requires_grad=True)
target = torch.tensor([0, 1])
p = x
loss = F.cross_entropy(p, target)
loss.backward()
print(loss.item(), x.grad)
""",
    find=find,
    traps=(
        Trap(
            "loss = F.cross_entropy(p, target)",
            "loss = F.nll_loss(p, target)",
            T(
                en="`nll_loss` needs logarithms of the probabilities.",
                zh="`nll_loss` 需要的是概率的对数。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.cross_entropy.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.BCEWithLogitsLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.nll_loss.html",
    ),
)
