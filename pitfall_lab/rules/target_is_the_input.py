"""PL912: a net is taught to predict the very tokens that it is given, each at its own position."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.shared_memory import same_piece
from pitfall_lab.trace import Event, T

VIEWS = {"view", "reshape", "flatten", "contiguous", "long", "to", "ravel", "clone"}
"""Views, and copies with the same elements, that a tensor is followed through."""
JOINS = ("view", "reshape", "flatten")
"""Methods in the program's text that join axes."""
HOPS = 6
UPWARD = 400
TABLE = 2


@dataclass(frozen=True, slots=True)
class TargetIsTheInput:
    """``embedding`` is the call (``Event``) that looked up the tokens in the tensor ``tokens`` (a label); ``loss`` is
    the call that compared what was computed from them, position by position, with the same tokens.
    """

    embedding: Event
    tokens: str
    loss: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line of a cross entropy whose targets are the tokens that the network was given, each
    at its own position, so that each prediction may see its own target.

    Only if a backward ran.
    """
    reported = set()
    for loss in story.calls("cross_entropy", "nll_loss") if story.backwards() else ():
        place = story.span(loss.step)
        if place not in reported and loss.error is None and (found := _copied(story, loss)) is not None:
            reported.add(place)
            yield _finding(story, found)


def _copied(story: Story, loss: Event) -> TargetIsTheInput | None:
    labels = [o.label for o in loss.operands[:2] if o.label is not None]
    tables = list(_tokens(story, labels[1], loss.step)) if len(labels) == TABLE else []
    if not tables:
        return None
    sizes = story.shape(tables[0], loss.step) or (0, 0)
    pending, seen = deque([labels[0]]), {labels[0]}
    while pending and len(seen) < UPWARD:
        here = pending.popleft()
        event = story.event((story.tensor(here, loss.step) or {}).get("born"))
        if event is None or here not in event.results:
            continue
        if event.name == "embedding":
            given = story.tensor(event.operands[0].label, event.step)
            tokens = next((table for table in tables if same_piece(given, story.tensor(table, event.step))), None)
            if tokens is not None:
                return TargetIsTheInput(event, tokens, loss)
            continue
        for each in (o.label for o in event.operands if o.label is not None):
            if each not in seen and _has_places(story.shape(each, event.step), sizes):
                seen.add(each)
                pending.append(each)
    return None


def _tokens(story: Story, label: str, step: int) -> Iterator[str]:
    """Yield the tables of tokens of which the targets of a loss are a view or an unchanged copy, from the targets back.

    A table has two axes, both of at least 2. The search ends where the storage of a table was written in between.
    """
    since = step
    for _ in range(HOPS):
        record = story.tensor(label, step) or {}
        shape = tuple(record.get("shape") or ())
        if len(shape) == TABLE and min(shape) >= TABLE:
            yield label
        event = story.event(record.get("born"))
        if event is None or event.name not in VIEWS or not event.operands or event.operands[0].label in (None, label):
            return
        source = story.tensor(event.operands[0].label, event.step) or {}
        if any(story.writes(str(each.get("storage")), event.step, since) for each in (record, source)):
            return  # masked since
        label, step = str(event.operands[0].label), event.step


def _has_places(shape: tuple[int, ...] | None, sizes: tuple[int, ...]) -> bool:
    """Whether a tensor has an entry for each token, so that the prediction does not come from a
    summary of the whole sequence.
    """
    if shape is None or len(shape) < TABLE:
        return False
    return shape[0] == sizes[0] * sizes[1] or (len(shape) > TABLE and shape[:TABLE] in (sizes, sizes[::-1]))


def _finding(story: Story, found: TargetIsTheInput) -> Finding:
    span = story.span(found.loss.step)
    here, there = at_line(story, span), at_line(story, story.span(found.embedding.step))
    what = expression(story, found.tokens, found.loss.step)
    return RULE.finding(
        span,
        found.loss.step,
        T(
            en=f"{capital(here.en)} teaches the net to predict {what.en} from {what.en}: each target is the token at "
            f"its own place in the input of {there.en}.",
            zh=f"{here.zh}教网络由 {what.zh} 预测 {what.zh}：每个目标就是{there.zh}的输入中同一位置的词元。",
        ),
        T(
            en="On the way from the input to the loss every place keeps a vector of its own, so the net only has to "
            "copy each token. The loss falls to 0, and nothing is learned of what comes next. Predict the following "
            "token: all but the last as input, all but the first as target.",
            zh="从输入到损失的路上，每个位置都保留自己的向量，所以网络只需把每个词元原样传过去。损失会降到 0，却学不到"
            "接下来是什么。请预测下一个词元：输入去掉最后一个，目标去掉第一个。",
        ),
        related=[
            story.related(
                "operand", found.embedding.step, T(en="the same tokens go in here", zh="同样的词元从这里输入")
            )
        ],
        fixes=_fixes(story, found),
    )


def _fixes(story: Story, found: TargetIsTheInput) -> tuple[Fix, ...]:
    """Fixes that shift predictions and targets by one position in the call of the loss.

    Empty unless both are reshaped by a method in that call.
    """
    program = story.program
    sides = [written_as(story, found.loss, o.label) for o in found.loss.operands[:2]]
    joined = [
        side
        for side in sides
        if isinstance(side, ast.Call) and isinstance(side.func, ast.Attribute) and side.func.attr in JOINS
    ]
    if len(joined) != TABLE:
        return ()
    changes = list[tuple[ast.AST, str]]()
    for side, part in zip(joined, ("[:, :-1]", "[:, 1:]"), strict=True):
        function = side.func
        if isinstance(function, ast.Attribute):
            arguments = ", ".join(program.segment(each) for each in side.args)
            method = "flatten" if function.attr == "flatten" else "reshape"
            changes.append((side, f"{operand(program, function.value)}{part}.{method}({arguments})"))
    title = T(en="Compare each prediction with the next token", zh="把每个预测与下一个词元比较")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="shape")])


RULE = Rule(
    code="PL912",
    name="target-is-the-input",
    severity="warning",
    title=T(en="The labels are the tokens that the net is given, unshifted", zh="标签就是网络的输入词元，没有错开"),
    what=T(
        en="A program wants a net to predict the next word, but gives it a text and takes the same text for the "
        "target, each word at its own place. The net learns to copy. Shift one against the other by a place.",
        zh="程序想让网络预测下一个词，却给它一段文本并要求输出同样的文本，每个词都在原来的位置。网络学会的是复制。"
        "请把两者错开一个位置。",
    ),
    why=T(
        en="A causal net, recurrent or with a mask, may use the tokens up to its own place, that place included. When "
        "the target there is the same token, an embedding and a linear layer can copy it, and the loss goes to 0 "
        "quickly, which looks like success. The shift is not made by torch: `logits[:, :-1]` against `tokens[:, 1:]`.",
        zh="因果网络（循环的或带掩码的）可以使用到自己位置为止的词元，包括该位置本身。如果那里的目标就是同一个词元，一"
        "个嵌入加一个线性层就能把它传过去，损失很快趋于 0，看起来像是成功。torch 不会替你错开：应当用 `logits[:, "
        ":-1]` 对 `tokens[:, 1:]`。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
emb, head = torch.nn.Embedding(3, 4), torch.nn.Linear(4, 3)
rnn = torch.nn.RNN(4, 4, batch_first=True)
opt = torch.optim.SGD([*emb.parameters(), *rnn.parameters(), *head.parameters()], lr=0.5)
tokens = torch.randint(0, 3, (2, 4))
for _ in range(3):
    logits = head(rnn(emb(tokens))[0])  # operand
    loss = F.cross_entropy(logits.reshape(-1, 3), tokens.reshape(-1))  # PL912
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
emb, head = torch.nn.Embedding(3, 4), torch.nn.Linear(4, 3)
rnn = torch.nn.RNN(4, 4, batch_first=True)
opt = torch.optim.SGD([*emb.parameters(), *rnn.parameters(), *head.parameters()], lr=0.5)
tokens = torch.randint(0, 3, (2, 4))
for _ in range(3):
    logits = head(rnn(emb(tokens))[0])
    loss = F.cross_entropy(logits[:, :-1].reshape(-1, 3), tokens[:, 1:].reshape(-1))
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "tokens.reshape(-1))",
            "tokens.clone().reshape(-1))",
            T(
                en="A copy has the same tokens at the same places.",
                zh="拷贝在同样的位置有同样的词元。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",),
)
