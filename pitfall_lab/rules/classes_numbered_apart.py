"""PL941: predictions are compared with labels that number the classes differently from the labels of the training."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.text_origins import parameters
from pitfall_lab.rules.kit.wording import at_line, capital, snippet
from pitfall_lab.rules.signals.forms import made_by
from pitfall_lab.rules.signals.sequences import CLASSIFIERS
from pitfall_lab.trace import Counted, Event, T

SAME = {"view", "reshape", "flatten", "squeeze", "cpu", "detach", "clone", "contiguous", "cat", "stack", "to", "long"}
"""Calls that do not change class numbers."""
SEARCHES = {"argmax", "max"}
EQUALS = {"eq", "__eq__"}
UPWARD, SHOWN, PAIR = 300, 3, 2


@dataclass(frozen=True, slots=True)
class Renumbered:
    """``compare`` is the call (``Event``) that compares predicted classes with labels which number the classes
    differently from the labels of the training.

    ``search`` is the call that found the predicted classes (``argmax``), ``loss`` a call of the loss that the network
    was trained with. ``counted`` is the record of the values of both compared tensors (:class:`Counted`).
    ``predicted_first`` is True if the predicted classes are the first operand.
    """

    compare: Event
    search: Event
    loss: Event
    counted: Counted
    predicted_first: bool

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The classes that the two compared tensors number differently: pairs of a label and the predicted number that
        nearly always has the same index.
        """
        numbers = [int(each) for each in self.counted.numbers]  # a number of the second tensor, then one of the first
        labels, classes = (numbers[::2], numbers[1::2]) if self.predicted_first else (numbers[1::2], numbers[::2])
        return [(a, b) for a, b in zip(labels, classes, strict=True) if a != b]


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that compares predictions of a trained classifier with labels, where they are
    rarely equal, but each label is nearly always predicted as the same class, a different one for each label.

    Nothing if the program computes the gradient of a tensor that no optimizer holds (as an attack does), or compares
    the predictions more than once.
    """
    for counted in story.trace.beside.counted:
        compare = story.event(counted.step)
        found = _renumbered(story, compare, counted) if counted.kind == "renumbered" and compare is not None else None
        if found is not None:
            yield _finding(story, found)


def _renumbered(story: Story, compare: Event, counted: Counted) -> Renumbered | None:
    labels = [o.label for o in compare.operands if o.label is not None]
    if len(labels) != PAIR or _is_attacked(story):
        return None
    searches = [_search(story, label, compare.step) for label in labels]
    found = [each for each in searches if each is not None]
    loss = _loss(story, found[0]) if len(found) == 1 else None
    if loss is None:
        return None
    place = searches.index(found[0])
    predicted = labels[place]
    others = [use for use in story.uses(predicted) if use.name in EQUALS and use.step != compare.step]
    return None if others else Renumbered(compare, found[0], loss, counted, place == 0)


def _search(story: Story, label: str | None, step: int) -> Event | None:
    """Return the ``argmax`` or ``max`` that found the classes ``label``; None if they do not come from one."""
    for _ in range(UPWARD):
        made = made_by(story, label, step)
        if made is None or not made.operands or made.name in SEARCHES:
            return made if made is not None and made.name in SEARCHES and label == made.results[-1] else None
        if made.name not in SAME:
            return None
        label, step = made.operands[0].label, made.step
    return None


def _leaves(story: Story, label: str | None, step: int) -> set[str]:
    pending, seen, found = [(label, step)], {label}, set[str]()
    for here, at in pending:
        if here is not None and (story.tensor(here) or {}).get("kind") == "parameter":
            found.add(here)
        made = made_by(story, here, at) if len(seen) < UPWARD else None
        for operand in made.operands if made is not None else ():
            if operand.label not in seen and made is not None:
                seen.add(operand.label)
                pending.append((operand.label, made.step))
    return found


def _loss(story: Story, search: Event) -> Event | None:
    """Return a classification loss by which all parameters that the predictions depend on were trained before; None if
    there is none.
    """
    used = _leaves(story, search.operands[0].label, search.step)
    shape = story.shape(search.operands[0].label, search.step) or (0,)
    trained = {each for update in story.trace.optimizer_steps if update.step < search.step for each in update.holds}
    for loss in story.calls(*CLASSIFIERS):
        scores = loss.operands[0].label if loss.operands else None
        same = (story.shape(scores, loss.step) or (0,))[-1] == shape[-1]
        if loss.step < search.step and same and used and used <= trained & _leaves(story, scores, loss.step):
            return loss
    return None


def _is_attacked(story: Story) -> bool:
    """Whether the program computes the gradient of a tensor that no optimizer holds, or calls ``autograd.grad``: it may
    change its inputs so that other classes are predicted.
    """
    held = {each for update in story.trace.optimizer_steps for each in update.holds}
    return any(
        label not in held and record.get("kind") != "parameter" and record.get("grad") is not None
        for label, record in story.leaves.items()
    ) or any(event.op == "torch.autograd.grad" for event in story.calls("grad"))


def _finding(story: Story, found: Renumbered) -> Finding:
    step, counted = found.compare.step, found.counted
    here, there = at_line(story, story.span(step)), at_line(story, story.span(found.loss.step))
    few = found.pairs[:SHOWN]
    shown_en = ", ".join(f"label {a} where {b} is predicted" for a, b in few)
    shown_zh = "、".join(f"标签为 {a} 处预测为 {b}" for a, b in few)
    return RULE.finding(
        story.span(step),
        step,
        T(
            en=f"{capital(here.en)} finds {counted.count} of {counted.of} predictions right, and yet each label goes "
            f"with one class of its own: {shown_en}. These labels number the classes otherwise than those of "
            f"{there.en}.",
            zh=f"{here.zh}的 {counted.of} 个预测中只有 {counted.count} 个正确，而每个标签都对应它自己的一个类别："
            f"{shown_zh}。这些标签的编号与{there.zh}的不同。",
        ),
        T(
            en=f"The network tells the classes apart: with the numbers exchanged, nearly all would be equal in "
            f"`{snippet(story, story.span(step))}`. Numbers that are given by counting through the names that occur in "
            "one set of examples shift as soon as another set lacks a name, or has them in another order. Make the "
            "numbers once, from the examples of the training, and use them for all.",
            zh=f"网络能够区分这些类别：把编号换过来，`{snippet(story, story.span(step))}` 中几乎全部相等。如果编号是按"
            "某一组样本中出现的名称依次数出来的，那么另一组样本一旦缺少某个名称，或次序不同，编号就会移动。请只从训练"
            "样本生成一次编号，并用于所有样本。",
        ),
        related=[
            story.related("made", found.search.step, T(en="the class is predicted here", zh="在这里预测类别")),
            story.related("used", found.loss.step, T(en="trained with its numbers here", zh="在这里用它的编号训练")),
        ],
        fixes=_fixes(story),
        facts=[Fact("equal", counted.count, story.by(step)), Fact("of", counted.of, story.by(step))],
    )


def _fixes(story: Story) -> tuple[Fix, ...]:
    """Fixes for a function that collects the class names from its own argument (``set`` or ``unique``): they are
    collected from the argument of its first call.
    """
    program, fixes = story.program, []
    for node in program.nodes:
        if not isinstance(node, ast.Call) or call_name(node) not in ("set", "unique") or len(node.args) != 1:
            continue
        function, given = program.function(node), node.args[0]
        if not isinstance(function, ast.FunctionDef) or not isinstance(given, ast.Name):
            continue
        names = [each for each in parameters(function) if each != "self"]
        owner = program.parents.get(function)
        name = owner.name if isinstance(owner, ast.ClassDef) else function.name
        calls = [
            call
            for call in program.nodes
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == name
        ]
        place = names.index(given.id) if given.id in names else None
        handed = [call.args[place] for call in calls if place is not None and len(call.args) > place]
        if len(handed) < PAIR or not isinstance(handed[0], ast.Name) or program.function(handed[0]) is not None:
            continue
        title = T(en=f"Number the classes that `{handed[0].id}` has", zh=f"对 `{handed[0].id}` 中的类别编号")
        fixes.append(Fix(title, program.replace((given, handed[0].id)), meaning="later"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL941",
    name="classes-numbered-apart",
    severity="warning",
    title=T(
        en="Predictions are compared with labels that number the classes otherwise",
        zh="与预测相比较的标签用了另一种类别编号",
    ),
    what=T(
        en="A program gives each kind of thing a number, once for the examples that it learns from and once more for "
        "those of the test. The second time a kind is missing, and all that follow get other numbers. The network is "
        "right, and nearly every answer counts as wrong. Make the table of numbers once and use it for both.",
        zh="程序给每一类事物一个编号，先为训练样本编一次，又为测试样本编一次。第二次缺少一类，排在后面的编号全都变了。"
        "网络是对的，而几乎每个回答都被算作错误。请只生成一次编号表，两处都用它。",
    ),
    why=T(
        en="A classifier learns nothing but numbers: output 2 is what had label 2 in the training. "
        "`sorted(set(names))`, `unique(return_inverse=True)` or a folder's list of subfolders number what is there, so "
        "the same name may get 2 in one set and 1 in another. Neither the loss nor a comparison of integers can see "
        "that; a wrong order of the classes, or numbers from 1 on, have the same effect.",
        zh="分类器只学到编号：输出 2 就是训练中标签为 2 的东西。`sorted(set(names))`、`unique(return_inverse=True)` 或"
        "文件夹的子文件夹列表，都只对当前存在的东西编号，所以同一个名称在一组里可能是 2，在另一组里是 1。损失和整数的"
        "比较都看不出来；类别次序不同，或编号从 1 开始，也有同样的后果。",
    ),
    advice=T(
        en="make the table from names to numbers once, from the examples that {used} is trained with, and use it for "
        "the labels of {line}.",
        zh="只用{used}训练的样本生成一次从名称到编号的表，并用于{line}的标签。",
    ),
    bad="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
kinds = {"ash": 0, "elm": 1, "fir": 2, "oak": 3}
trained, tested = list(kinds) * 10, ["elm", "fir", "oak"] * 10


def examples(names):
    numbers = {name: i for i, name in enumerate(sorted(set(names)))}
    x = 4 * torch.eye(4)[[kinds[name] for name in names]] + 0.1 * torch.randn(len(names), 4)
    return x, torch.tensor([numbers[name] for name in names])


x, y = examples(trained)
x_test, y_test = examples(tested)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(20):
    loss = F.cross_entropy(net(x), y)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
predicted = net(x_test).argmax(1)  # made
print((predicted == y_test).float().mean())  # PL941
""",
    good="""import torch
import torch.nn.functional as F

torch.manual_seed(0)
kinds = {"ash": 0, "elm": 1, "fir": 2, "oak": 3}
trained, tested = list(kinds) * 10, ["elm", "fir", "oak"] * 10


def examples(names):
    numbers = {name: i for i, name in enumerate(sorted(set(trained)))}
    x = 4 * torch.eye(4)[[kinds[name] for name in names]] + 0.1 * torch.randn(len(names), 4)
    return x, torch.tensor([numbers[name] for name in names])


x, y = examples(trained)
x_test, y_test = examples(tested)
net = torch.nn.Linear(4, 4)
opt = torch.optim.SGD(net.parameters(), lr=0.5)
for _ in range(20):
    loss = F.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
predicted = net(x_test).argmax(1)
print((predicted == y_test).float().mean())
""",
    find=find,
    traps=(
        Trap(
            "range(20)",
            "range(60)",
            T(
                en="The network is right already, and the labels stay as they are.",
                zh="网络本来就是对的，而标签没有变。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.eq.html",
    ),
)
