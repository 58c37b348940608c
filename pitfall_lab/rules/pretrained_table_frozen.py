"""PL672: an embedding was made from given vectors, which freezes them, and was given to an optimizer to be trained."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import Program
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.rules.signals.schedules import call_of
from pitfall_lab.trace import Event, OptimizerMade, T

TABLES = ("embedding", "embedding_bag")


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: for a table of given vectors (``from_pretrained``) that is frozen by default, without
    ``freeze``, and is held by an optimizer that steps.

    Nothing if the program makes several such tables.
    """
    calls = [node for node in story.program.nodes if isinstance(node, ast.Call) and _is_silent(node)]
    if len(calls) != 1:
        return
    for optimizer in story.trace.optimizers:
        for label in optimizer.holds if optimizer.steps else ():
            states = dict(
                story.history("tensors", label, "requires_grad")
            )  # the last one of each step: some tables are frozen after birth
            use = next((event for event in story.calls(*TABLES) if label in [o.label for o in event.operands]), None)
            if use is not None and set(states.values()) == {False}:
                yield _finding(story, calls[0], optimizer, label, use)
                return


def _is_silent(call: ast.Call) -> bool:
    """Whether the call makes a table of given vectors and does not say whether they are to be frozen."""
    owner = call.func.value if isinstance(call.func, ast.Attribute) else None
    table = getattr(owner, "attr", getattr(owner, "id", ""))
    given = any(word.arg in ("freeze", None) for word in call.keywords) or len(call.args) > 1
    return called(call) == "from_pretrained" and str(table).startswith("Embedding") and not given


def _finding(story: Story, call: ast.Call, optimizer: OptimizerMade, label: str, use: Event) -> Finding:
    program, span = story.program, story.program.place(call)
    here, there = at_line(story, span), at_line(story, optimizer.span)
    name = story.name(label) or "weight"
    return RULE.finding(
        span,
        optimizer.step,
        T(
            en=f"{capital(here.en)} makes a table of given vectors, which are frozen unless the call says "
            f"otherwise, and the `{optimizer.optimizer}` of {there.en} holds it: none of its {optimizer.steps} "
            f"steps changes `{name}`.",
            zh=f"{here.zh}用给定的向量建立一张表，除非调用时另有说明，它们就是冻结的；而{there.zh}的 "
            f"`{optimizer.optimizer}` 持有它：{optimizer.steps} 步中没有一步改变 `{name}`。",
        ),
        T(
            en="`from_pretrained` makes its parameter with `requires_grad=False`. No gradient reaches it, and an "
            "optimizer passes over what has none, without a warning. `freeze=False` lets it be trained; `freeze=True` "
            "says that it is meant.",
            zh="`from_pretrained` 建立的参数带有 `requires_grad=False`。梯度到不了它，而优化器会默默跳过没有梯度的参"
            "数。`freeze=False` 让它参与"
            "训练；`freeze=True` 表明这是有意的。",
        ),
        related=[
            Related(
                "made", optimizer.span, optimizer.step, T(en="the optimizer holds the table", zh="优化器持有这张表")
            ),
            story.related("used", use.step, T(en="it is looked up here", zh="在这里查表")),
        ],
        fixes=_fixes(program, call),
        facts=[Fact("steps", optimizer.steps)],
        severity="warning" if _is_given_by_itself(story, optimizer, name) else "info",
    )


def _is_given_by_itself(story: Story, optimizer: OptimizerMade, name: str) -> bool:
    """Whether the call that makes the optimizer names the table, and not only a network that contains it."""
    call, owner = call_of(story, optimizer.span), name.rpartition(".")[0]
    nodes = [n for n in ast.walk(call) if isinstance(n, ast.Attribute)] if call is not None else []
    return any(story.program.segment(node.value) == owner for node in nodes)


def _fixes(program: Program, call: ast.Call) -> tuple[Fix, ...]:
    given = [program.segment(each) for each in call.args] + [
        f"{k.arg}={program.segment(k.value)}" for k in call.keywords
    ]
    text = f"{program.segment(call.func)}({', '.join([*given, 'freeze=False'])})"
    title = T(en="Let the table be trained: `freeze=False`", zh="让这张表参与训练：`freeze=False`")
    return unique(program.text, [Fix(title, program.replace((call, text)), meaning="later")])


RULE = Rule(
    code="PL672",
    name="pretrained-table-frozen",
    severity="warning",
    title=T(en="A table of given vectors is frozen though it was to be trained", zh="给定向量的表本应训练，却被冻结"),
    what=T(
        en="A program loads word vectors into a table and hands the table to the training, but such a table does not "
        "change unless that is said. Write `freeze=False`, or leave the table out of the training.",
        zh="程序把词向量载入一张表，并把它交给训练，但这样的表除非特别说明就不会改变。请写上 `freeze=False`，"
        "或者不要把它交给训练。",
    ),
    why=T(
        en="`nn.Embedding(n, d)` is trained by default, `nn.Embedding.from_pretrained(vectors)` is not: its `freeze` "
        "is True. The parameter is among `net.parameters()` nevertheless, an optimizer accepts it, and skips it in "
        "every step since its `.grad` stays None. The table is on the memory of the vectors themselves: when it is "
        "trained, they change along.",
        zh="`nn.Embedding(n, d)` 默认参与训练，`nn.Embedding.from_pretrained(vectors)` 则不：它的 `freeze` 是 True。这"
        "个参数仍在 `net.parameters()` 里，优化器也接受它，但因为它的 `.grad` 一直是 None，每一步都跳过它。这张表就在"
        "那些向量自己的内存上：训练它时，向量也跟着变。",
    ),
    bad="""import torch

torch.manual_seed(0)
vectors = torch.randn(6, 3)
table = torch.nn.Embedding.from_pretrained(vectors)  # PL672
head = torch.nn.Linear(3, 2)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)  # made
words, kinds = torch.tensor([0, 3, 5, 1]), torch.tensor([0, 1, 1, 0])
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(head(table(words)), kinds)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), table.weight[0])
""",
    good="""import torch

torch.manual_seed(0)
vectors = torch.randn(6, 3)
table = torch.nn.Embedding.from_pretrained(vectors, freeze=False)
head = torch.nn.Linear(3, 2)
opt = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
words, kinds = torch.tensor([0, 3, 5, 1]), torch.tensor([0, 1, 1, 0])
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(head(table(words)), kinds)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item(), table.weight[0])
""",
    find=find,
    traps=(
        Trap(
            "lr=0.1",
            "lr=10.0",
            T(en="No gradient times ten is still none.", zh="没有梯度，乘以多少都还是没有。"),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
)
