"""PL972: a layer was put into a network under a name that its forward does not use, so the old
layer is still the one that runs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital
from pitfall_lab.trace import Event, T

USUAL = ("fc", "classifier", "head", "out")
"""Names of the last layer in well-known networks, tried after those that the program's own classes use."""
MOST = 6


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each statement that put a new layer into a network, under an attribute, that then learned
    without ever calling it.

    Found by the initialisation of the layer's weights, in a program that finished and whose optimizer stepped
    afterwards.
    """
    updates = [update.step for update in story.trace.optimizer_steps]
    if (
        not updates
        or story.program.tree is None
        or story.trace.stopped is not None
        or story.trace.outcome.kind != "finished"
    ):
        return
    made: dict[ast.Assign, list[Event]] = {}
    for event in story.calls():
        if event.op.startswith("torch.nn.init.") and event.operands and event.step < updates[-1]:
            statement = _put_in(story, event)
            if statement is not None:
                made.setdefault(statement, []).append(event)
    for statement, events in made.items():
        labels = {event.operands[0].label for event in events}
        if updates[-1] > events[-1].step and not any(_is_called(story, str(label)) for label in labels):
            yield _finding(story, statement, events[0])


def _put_in(story: Story, event: Event) -> ast.Assign | None:
    """The statement that gave a new layer to another object than ``self``, if the event prepared a
    weight of that layer; else None.
    """
    statement = story.program.statement_at(event.span)
    if (
        not isinstance(statement, ast.Assign)
        or len(statement.targets) != 1
        or not isinstance(statement.value, ast.Call)
    ):
        return None
    target = statement.targets[0]
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name) or target.value.id == "self":
        return None
    return statement if call_name(statement.value)[:1].isupper() else None


def _is_called(story: Story, label: str) -> bool:
    """Whether some call used the parameter: its result requires grad, or it is ``linear``, ``matmul``, ``clone``,
    ``copy_``, ``detach``, ``data`` or ``numpy``. Initialisations and reads of its gradient do not count.
    """
    for use in story.uses(label):
        if use.op.startswith("torch.nn.init.") or use.name in ("grad", "requires_grad_", "requires_grad", "zeros_like"):
            continue
        if any(
            result != label and (story.tensor(result, use.step) or {}).get("requires_grad") for result in use.results
        ):
            return True
        if use.name in ("copy_", "detach", "data", "numpy", "clone", "linear", "matmul"):
            return True
    return False


def _finding(story: Story, statement: ast.Assign, event: Event) -> Finding:
    program, target = story.program, statement.targets[0]
    span, name = program.place(statement), program.segment(target)
    here = at_line(story, span)
    return RULE.finding(
        span,
        event.step,
        T(
            en=f"{capital(here.en)} puts a new layer into the network as `{name}`, and no call ever used its weights: "
            "the forward knows no layer of that name.",
            zh=f"{here.zh}把一个新的层作为 `{name}` 放进网络，但从没有调用用到它的权重：前向计算不认识这个名字的层。",
        ),
        T(
            en="An attribute with a new name is registered with its parameters, and that is all. `forward` calls the "
            "layers that it names; to replace one of them, the new layer must get exactly that name.",
            zh="用新名字设置的属性会连同参数一起注册，但仅此而已。`forward` 只调用它写明名字的层；要替换其中一层，新层"
            "必须使用同一个名字。",
        ),
        fixes=_fixes(story, target),
        facts=[Fact("layer", name, story.by(event.step))],
    )


def _fixes(story: Story, target: ast.expr) -> tuple[Fix, ...]:
    """Fixes that give the layer another name: of an attribute that the program's own classes set, or as
    well-known networks call it.

    Empty if the target is no attribute.
    """
    program = story.program
    if not isinstance(target, ast.Attribute):
        return ()
    own = [
        n.attr
        for n in program.nodes
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and program.segment(n.value) == "self"
    ]
    names = [name for name in dict.fromkeys([*reversed(own), *USUAL]) if name != target.attr][:MOST]
    owner, fixes = program.segment(target.value), []
    for name in names:
        title = T(
            en=f"Give it the name that the forward calls: `{owner}.{name}`",
            zh=f"使用前向计算所调用的名字：`{owner}.{name}`",
        )
        fixes.append(Fix(title, program.replace((target, f"{owner}.{name}")), meaning="shape"))
    return unique(program.text, fixes)


RULE = Rule(
    code="PL972",
    name="new-layer-never-called",
    severity="warning",
    title=T(
        en="A new layer was put into a network under a name that nothing calls", zh="新的层以无人调用的名字放进了网络"
    ),
    what=T(
        en="A program replaces the last layer of a network, `net.classifier = Linear(...)`, but the network has its "
        "last layer under another name. The new layer is there and never runs; the old one answers. Use the name that "
        "the network uses: `print(net)`.",
        zh="程序替换网络的最后一层：`net.classifier = Linear(...)`，但网络里最后一层并不叫这个名字。新的层放在那里却从"
        "不运行，回答的仍是旧的层。请使用网络中的名字：`print(net)`。",
    ),
    why=T(
        en="A module is an ordinary object: setting an attribute that it does not have makes one. `parameters()` then "
        "returns the new layer's weights as well, and an optimizer takes them, but what runs is decided by `forward` "
        "alone. Weights that nothing uses get no gradient, and `step()` passes them over without a word.",
        zh="模块是普通的对象：设置一个它没有的属性，就会新建这个属性。`parameters()` 也会返回新层的权重，优化器也会接"
        "收，但运行什么只由 `forward` 决定。没有被用到的权重得不到梯度，`step()` 会默默略过它们。",
    ),
    advice=T(
        en="on {line}, give the new layer the name that the network's forward calls.",
        zh="在{line}，给新层起网络的前向计算所调用的名字。",
    ),
    bad="""import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 4)
        self.last = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.relu(self.body(x)))


torch.manual_seed(0)
net = Net()
net.head = torch.nn.Linear(4, 2)  # PL972
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 2), torch.randint(0, 2, (6,))
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(net(x).shape, loss.item())
""",
    good="""import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Linear(2, 4)
        self.last = torch.nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.relu(self.body(x)))


torch.manual_seed(0)
net = Net()
net.last = torch.nn.Linear(4, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 2), torch.randint(0, 2, (6,))
for _ in range(2):
    loss = torch.nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(net(x).shape, loss.item())
""",
    find=find,
    traps=(
        Trap(
            "net.parameters(), lr=0.1",
            "net.head.parameters(), lr=0.1",
            T(
                en="The new layer alone in the optimizer does not make anything call it.",
                zh="只把新层交给优化器，并不会有什么去调用它。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
