"""PL724: a module keeps tensors that its output depends on in plain attributes, and its state was
saved and loaded without them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, capital, numbers
from pitfall_lab.rules.signals.unsaved_tensors import UnsavedTensor, unsaved
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that loads a state (``load_state_dict``) which leaves out plain tensors that
    modules keep as attributes.

    Only tensors with which the saved module computed several times, and for which the module that loaded the state has
    other numbers, with which it then computes.
    """
    for lost in unsaved(story, buffers=False):
        yield _finding(story, lost)


def _finding(story: Story, lost: list[UnsavedTensor]) -> Finding:
    found = lost[0]
    loading, used = found.loading, found.used
    made = _made(story, found.path)
    span = story.program.place(made) if made is not None else loading.span
    there, then = at_line(story, loading.span), at_line(story, story.span(used.step))
    here = at_line(story, span)
    old, new = ((story.record("storages", (story.tensor(label) or {}).get("storage"), at) or {}).get("cells")
                for label, at in ((found.old, found.saving.step), (found.new, used.step)))  # fmt: skip
    path = found.path
    return RULE.finding(
        span,
        loading.step,
        T(
            en=f"{capital(here.en)} keeps `{path}` in a plain attribute, which no state has: after the loading on "
            f"{there.en} it is {numbers(new)}, and it was {numbers(old)} where the state was saved.",
            zh=f"{here.zh}把 `{path}` 放在普通属性里，状态中没有它：{there.zh}加载之后它是 {numbers(new)}，而保存状态"
            f"时它是 {numbers(old)}。",
        ),
        T(
            en=f"`state_dict()` has parameters and registered buffers only. {capital(then.en)} computes with the "
            'value that a new module is made with. Register such tensors: `self.register_buffer("name", tensor)`.',
            zh=f"`state_dict()` 只有参数和注册过的缓冲区。{then.zh}用来计算的是新建模块时的值。请注册这样的张量："
            '`self.register_buffer("name", tensor)`。',
        ),
        related=[
            Related("copied", loading.span, loading.step, T(en="loaded without it", zh="加载时没有它")),
            story.related("used", used.step, T(en="the first value is used here", zh="这里用的是最初的值")),
        ],
        fixes=_fixes(story, lost),
        facts=[Fact("attributes", sorted(each.path for each in lost)), Fact("saved", old), Fact("loaded", new)],
    )


def _made(story: Story, path: str) -> ast.Assign | None:
    """Return the first assignment in an ``__init__`` to ``self.name``, where ``name`` is the last component of
    ``path``; None if there is none.
    """
    name = f"self.{path.rpartition('.')[2]}"
    for node in story.program.nodes:
        function = story.program.function(node) if isinstance(node, ast.Assign) else None
        first = isinstance(node, ast.Assign) and function is not None and function.name == "__init__"
        if (
            first
            and isinstance(node, ast.Assign)
            and any(story.program.segment(target) == name for target in node.targets)
        ):
            return node
    return None


def _fixes(story: Story, lost: list[UnsavedTensor]) -> tuple[Fix, ...]:
    program = story.program
    changes: list[tuple[ast.AST, str]] = []
    for name in dict.fromkeys(each.path.rpartition(".")[2] for each in lost):
        made = _made(story, name)
        if made is None:
            return ()
        changes.append((made, f'self.register_buffer("{name}", {program.segment(made.value)})'))
    title = T(en="Register them as buffers", zh="注册为缓冲区")
    return unique(program.text, [Fix(title, program.replace(*changes), meaning="later")])


RULE = Rule(
    code="PL724",
    name="attribute-left-out-of-state",
    severity="warning",
    title=T(en="Tensors in plain attributes are lost when a model is saved", zh="放在普通属性里的张量在保存模型时丢失"),
    what=T(
        en="A model keeps numbers that it computes with, such as the mean of its inputs, in plain attributes. "
        "Saving and loading its state leaves them out, so the loaded model works with the numbers that a new one "
        "has. Use `register_buffer`.",
        zh="模型把参与计算的数（例如输入的均值）放在普通属性里。保存和加载状态时不会带上它们，所以加载后的模型用的是新"
        "模型的数。请用 `register_buffer`。",
    ),
    why=T(
        en="`state_dict()` collects what was registered: parameters, by assigning an `nn.Parameter`, and "
        "buffers, by `register_buffer`. A tensor that is simply assigned is an attribute like any other. "
        "`load_state_dict` compares names, and where neither side has the name nothing is missing. "
        "`.to(device)` passes over plain tensors as well.",
        zh="`state_dict()` 收集的是注册过的东西：赋值 `nn.Parameter` 得到的参数，以及 `register_buffer` 得到的缓冲区。"
        "直接赋值的张量只是普通属性。`load_state_dict` 比较的是名字，两边都没有这个名字，也就不缺什么。`.to(device)` "
        "同样会跳过普通张量。",
    ),
    bad="""import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = torch.zeros(2)  # PL724
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x - self.mean)  # used


torch.manual_seed(0)
x = torch.randn(6, 2) + 5
net = Scaled()
net.mean = x.mean(dim=0)
for _ in range(2):
    net(x).square().mean().backward()
served = Scaled()
served.load_state_dict(net.state_dict())  # copied
print(net(x)[0], served(x)[0])
""",
    good="""import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2))
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x - self.mean)


torch.manual_seed(0)
x = torch.randn(6, 2) + 5
net = Scaled()
net.mean = x.mean(dim=0)
for _ in range(2):
    net(x).square().mean().backward()
served = Scaled()
served.load_state_dict(net.state_dict())
print(net(x)[0], served(x)[0])
""",
    find=find,
    traps=(
        Trap(
            "load_state_dict(net.state_dict())",
            "load_state_dict(net.state_dict(), strict=False)",
            T(
                en="There is no key too many or too few: the attribute is in no state at all.",
                zh="没有多余或缺少的键：这个属性根本不在任何状态里。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
