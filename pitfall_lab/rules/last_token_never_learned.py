"""PL939: the number of the padding is also the last token of each sequence, and the loss leaves both out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.elements import Elements
from pitfall_lab.rules.signals.operand_names import written_as
from pitfall_lab.rules.signals.sequences import CLASSIFIERS, written_forms
from pitfall_lab.rules.signals.value_origins import argument, whole
from pitfall_lab.trace import Event, T

MODULES = {"cross_entropy": "CrossEntropyLoss", "nll_loss": "NLLLoss"}
FEWEST = 2
"""The least number of sequences."""


@dataclass(frozen=True, slots=True)
class LastTokenIgnored:
    """``loss`` is the call (``Event``) of a loss that ignores the class ``number`` (``ignore_index``). ``pad`` is the
    call that padded sequences with this number, although it is the last token of each sequence already. ``axis`` is the
    axis of the sequences in the padded matrix, ``count`` their number.
    """

    loss: Event
    pad: Event
    number: int
    axis: int
    count: int


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line with a loss whose ignored class pads target sequences that all end in that class
    themselves, and have it nowhere else.

    Only for losses that require grad.
    """
    reported = set()
    for loss in story.calls(*CLASSIFIERS):
        place = story.span(loss.step)
        if place in reported or loss.error is not None or len(loss.operands) < 2:
            continue
        if not (story.tensor(loss.results[0], loss.step) or {}).get("requires_grad"):
            continue
        found = _ignored(story, loss)
        if found is not None:
            reported.add(place)
            yield _finding(story, found)


def _ignored(story: Story, loss: Event) -> LastTokenIgnored | None:
    """The data of the finding if the targets are padded sequences from the second token on, and each sequence ends in
    the ignored class, with which it was padded; else None.
    """
    number = whole(argument(loss, "ignore_index") or "-100")
    for label, step in written_forms(story, loss.operands[1].label, loss.step):
        for form, at in _through_slices(story, label, step):
            pad = story.event((story.tensor(form, at) or {}).get("born"))
            if pad is None or pad.name != "pad_sequence" or form not in pad.results:
                continue
            rows = [o.label for o in pad.operands if o.label is not None]
            said = [o.text for o in pad.operands if o.label is None]  # batch_first is there if it is True
            axis = 0 if "True" in said else 1
            filled = next((found for text in said if (found := _whole(text)) is not None), 0)
            if number is None or filled != number or len(rows) < FEWEST:
                return None
            if all(_ends_in(story, row, pad.step, number) for row in rows) and _begins_second(
                story, (label, loss.step), pad, 1 - axis
            ):
                return LastTokenIgnored(loss, pad, number, axis, len(rows))
    return None


def _whole(text: str) -> int | None:
    """The integer that the text of an argument denotes, as ``1`` and ``1.0`` do; None if it denotes none."""
    try:
        return int(float(text)) if float(text).is_integer() else None
    except ValueError:
        return None


def _through_slices(story: Story, label: str, step: int) -> Iterator[tuple[str, int]]:
    """Yield ``label`` and ``step``, and, if the tensor is a slice, the forms of the tensor that it was taken from: for
    ``tokens[:, 1:]``, those of ``tokens``.
    """
    yield label, step
    event = story.event((story.tensor(label, step) or {}).get("born"))
    if event is not None and event.name == "__getitem__" and event.operands and event.operands[0].label is not None:
        yield from written_forms(story, event.operands[0].label, event.step)


def _ends_in(story: Story, row: str, step: int, number: int) -> bool:
    """Whether all values of a sequence of at least two tokens are known, and the last one, and no other, is
    ``number``.
    """
    length = (story.shape(row, step) or (0,))[0]
    known = dict(Elements(story, row, step).known())
    return len(known) == length > 1 and [place for place, value in known.items() if value == number] == [(length - 1,)]


def _begins_second(story: Story, table: tuple[str, int], pad: Event, time: int) -> bool:
    """Whether a table, given as label and step, is the padded one without its first tokens, and nothing was written
    into it: targets that follow the tokens by one.
    """
    own, whole_table = story.tensor(*table) or {}, story.tensor(pad.results[0], pad.step) or {}
    if own.get("storage") != whole_table.get("storage") or own.get("stride") != whole_table.get("stride"):
        return False
    if any(own["storage"] in each.writes for each in story.events[pad.step + 1 : table[1]]):
        return False
    shape = list(whole_table["shape"])
    shape[time] -= 1
    return list(own["shape"]) == shape and own["offset"] == whole_table["offset"] + whole_table["stride"][time]


def _finding(story: Story, found: LastTokenIgnored) -> Finding:
    loss, pad, number = found.loss, found.pad, found.number
    here, there = (at_line(story, story.span(each.step)) for each in (loss, pad))
    target = expression(story, loss.operands[1].label, loss.step)
    return RULE.finding(
        story.span(loss.step),
        loss.step,
        T(
            en=f"{capital(here.en)} leaves out every target that is {number}, and each of the {found.count} sequences "
            f"ends in {number}: the model is never trained to write it.",
            zh=f"{here.zh}忽略所有等于 {number} 的目标，而 {found.count} 个序列都以 {number} 结尾：模型从未学过"
            "输出它。",
        ),
        T(
            en=f"{capital(there.en)} fills up with {number}, the number of a real token, the last of each sequence. In "
            f"{target.en} nothing tells the two apart, and `ignore_index={number}` gives both no loss. A program "
            f"that writes until the model gives {number} then runs to its limit. Give the padding a number of its own, "
            "or leave out only what comes after the first one.",
            zh=f"{there.zh}用 {number} 补齐，而它也是一个真正的词的编号，即每个序列的最后一个词。在 {target.zh} 中"
            f"两者无法区分，`ignore_index={number}` 使两者都没有损失。一直写到模型给出 {number} 为止的程序就会运行到"
            "上限。请给填充一个自己的编号，或者只忽略第一个之后的那些。",
        ),
        related=[
            story.related("made", pad.step, T(en="filled up with the same number here", zh="在这里用同一个编号补齐"))
        ],
        fixes=_fixes(story, found),
        facts=[Fact("ignored", number, story.by(loss.step)), Fact("sequences", found.count, story.by(pad.step))],
    )


def _fixes(story: Story, found: LastTokenIgnored) -> tuple[Fix, ...]:
    """At most one fix: only what comes after the first token ``number`` of a row is ignored (as -100). Empty if the
    target is no matrix or has no name, or if ``ignore_index=`` is not written exactly once.
    """
    program, loss = story.program, found.loss
    node, target = program.at(story.span(loss.step)), written_as(story, loss, loss.operands[1].label)
    if program.tree is None or target is None or len(story.shape(loss.operands[1].label, loss.step) or ()) != 2:
        return ()
    calls = [node] if isinstance(node, ast.Call) and call_name(node) == loss.name else []
    calls = calls or [n for n in program.nodes if isinstance(n, ast.Call) and call_name(n) == MODULES[loss.name]]
    given = [k.value for each in calls for k in each.keywords if k.arg == "ignore_index"]
    if len(given) != 1:
        return ()
    owner, number = operand(program, target), program.segment(given[0])
    kept = f"{owner}.masked_fill(({owner} == {number}).cumsum({1 - found.axis}) > 1, -100)"
    title = T(en=f"Leave out what comes after the first `{number}`", zh=f"只忽略第一个 `{number}` 之后的目标")
    return unique(program.text, [Fix(title, program.replace((target, kept), (given[0], "-100")), meaning="later")])


RULE = Rule(
    code="PL939",
    name="last-token-never-learned",
    severity="warning",
    title=T(en="The loss ignores the last token of each sequence", zh="损失忽略了每个序列的最后一个词"),
    what=T(
        en="Sequences end in a token that says so, and are filled up with the same number. The loss leaves out the "
        "padding, and with it the last token: the model never learns to end, and writes on until it is stopped.",
        zh="序列以表示结束的词结尾，又用同一个编号补齐。损失忽略了填充，也就忽略了最后一个词：模型从未学会结束，会一直写"
        "到被截断为止。",
    ),
    why=T(
        en="`ignore_index` compares numbers: it cannot know which of the equal targets is a token and which is filling."
        " Vocabularies without a symbol for padding are often used with that of the end, which is right for the input, "
        "where a mask hides it. In the targets, the first one of each row has to count.",
        zh="`ignore_index` 只比较编号，无法知道相同的目标中哪个是词、哪个是填充。没有填充符号的词表常常借用结束符号，"
        "这对输入没有问题，因为有掩码遮住它。而在目标中，每一行的第一个必须计入。",
    ),
    bad="""import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
END = 1
texts = [torch.tensor([0, 2, 3, END]), torch.tensor([0, 3, END]), torch.tensor([0, 2, END])]
tokens = pad_sequence(texts, batch_first=True, padding_value=END)  # made
given, targets = tokens[:, :-1], tokens[:, 1:]
table, head = torch.nn.Embedding(4, 8), torch.nn.Linear(8, 4)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.5)
for _ in range(30):
    scores = head(table(given))
    loss = F.cross_entropy(scores.transpose(1, 2), targets, ignore_index=END)  # PL939
    opt.zero_grad()
    loss.backward()
    opt.step()
print(head(table(torch.tensor([3]))).softmax(1)[0, END].item())
""",
    good="""import torch
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
END = 1
texts = [torch.tensor([0, 2, 3, END]), torch.tensor([0, 3, END]), torch.tensor([0, 2, END])]
tokens = pad_sequence(texts, batch_first=True, padding_value=END)
given, targets = tokens[:, :-1], tokens[:, 1:]
later = targets.masked_fill((targets == END).cumsum(1) > 1, -100)  # the first END counts
table, head = torch.nn.Embedding(4, 8), torch.nn.Linear(8, 4)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.5)
for _ in range(30):
    scores = head(table(given))
    loss = F.cross_entropy(scores.transpose(1, 2), later, ignore_index=-100)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(head(table(torch.tensor([3]))).softmax(1)[0, END].item())
""",
    find=find,
    traps=(
        Trap(
            "targets, ignore_index=END)",
            "targets, ignore_index=END, label_smoothing=0.1)",
            T(en="What is ignored has no loss, smoothed or not.", zh="被忽略的目标没有损失，平滑与否都一样。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.rnn.pad_sequence.html",
    ),
)
