"""PL746: buffers with persistent=False were fitted, and the state that was saved and loaded does not have them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called
from pitfall_lab.rules.kit.wording import at_line, capital, numbers
from pitfall_lab.rules.signals.unsaved_tensors import UnsavedTensor, unsaved
from pitfall_lab.trace import T

PERSISTENT = 2
"""The position of the argument ``persistent``."""


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that loads a state which leaves out buffers (``persistent=False``), where the
    module that loads it then computes with other numbers in these buffers than the saved module had.

    Only buffers that the saved module had computed with several times.
    """
    for lost in unsaved(story, buffers=True):
        yield _finding(story, lost)


def _finding(story: Story, lost: list[UnsavedTensor]) -> Finding:
    found = lost[0]
    loading, used, path = found.loading, found.used, found.path
    made = _made(story, path)
    span = story.program.place(made) if made is not None else loading.span
    here, there, then = (at_line(story, each) for each in (span, loading.span, story.span(used.step)))
    old, new = ((story.record("storages", (story.tensor(label) or {}).get("storage"), at) or {}).get("cells")
                for label, at in ((found.old, found.saving.step), (found.new, used.step)))  # fmt: skip
    written = next(
        (step for step in reversed(story.writes(str((story.tensor(found.old) or {}).get("storage")), -1,
                                                found.saving.step))), None
    )  # fmt: skip
    others = [each.path for each in lost[1:]]
    also = T(
        en=f" The same holds for {', '.join(f'`{each}`' for each in others)}." if others else "",
        zh=f"{'、'.join(f'`{each}`' for each in others)} 也是这样。" if others else "",
    )
    return RULE.finding(
        span,
        loading.step,
        T(
            en=f"{capital(here.en)} registers `{path}` with `persistent=False`, so no state has it: after the loading "
            f"on {there.en} it is {numbers(new)}, and it was {numbers(old)} where the state was saved.",
            zh=f"{here.zh}用 `persistent=False` 注册 `{path}`，所以状态中没有它：{there.zh}加载之后它是 {numbers(new)}"
            f"，而保存状态时它是 {numbers(old)}。",
        ),
        T(
            en=f"{capital(then.en)} computes with the value that a new module is made with, and no key is missing, as "
            f"neither side has one for it.{also.en} `persistent=False` is for what each new module computes by itself, "
            "such as a mask. What was fitted belongs into the state.",
            zh=f"{then.zh}用来计算的是新建模块时的值；两边都没有它的键，也就不缺什么。{also.zh}`persistent=False` 适用"
            "于每个新模块自己就能算出的量，例如掩码。拟合得到的量应当放进状态。",
        ),
        related=[
            *(
                [story.related("changed", written, T(en="it gets its numbers here", zh="它在这里得到数值"))]
                if written is not None
                else []
            ),
            Related("copied", loading.span, loading.step, T(en="loaded without it", zh="加载时没有它")),
            story.related("used", used.step, T(en="the first value is used here", zh="这里用的是最初的值")),
        ],
        fixes=_fixes(story, lost),
        facts=[Fact("buffers", [each.path for each in lost]), Fact("saved", old), Fact("loaded", new)],
    )


def _made(story: Story, path: str) -> ast.Call | None:
    """Return the ``register_buffer`` call that gives ``persistent`` and registers the last component of ``path``; None
    if there is none.
    """
    name = path.rpartition(".")[2]
    for node in story.program.nodes:
        if isinstance(node, ast.Call) and called(node) == "register_buffer" and _persistent(node) is not None:
            first = next((k.value for k in node.keywords if k.arg == "name"), node.args[0] if node.args else None)
            if isinstance(first, ast.Constant) and first.value == name:
                return node
    return None


def _persistent(call: ast.Call) -> ast.expr | None:
    """Return the expression that a call of ``register_buffer`` gives for ``persistent``; None if it gives none."""
    named = next((k.value for k in call.keywords if k.arg == "persistent"), None)
    return named if named is not None or len(call.args) <= PERSISTENT else call.args[PERSISTENT]


def _fixes(story: Story, lost: list[UnsavedTensor]) -> tuple[Fix, ...]:
    """At most one fix: it makes the buffers part of the state; empty unless the program shows how each is
    registered.
    """
    made = {id(call): call for each in lost if (call := _made(story, each.path)) is not None}
    given = [value for call in made.values() if (value := _persistent(call)) is not None]
    if len(given) < len({each.path.rpartition(".")[2] for each in lost}):
        return ()
    changes = [(value, "True") for value in given]
    title = T(en="Make them part of the state: `persistent=True`", zh="让它们进入状态：`persistent=True`")
    return unique(story.program.text, [Fix(title, story.program.replace(*changes), meaning="later")])


RULE = Rule(
    code="PL746",
    name="buffer-left-out-of-state",
    severity="warning",
    title=T(
        en="Fitted buffers with persistent=False are lost when a model is saved",
        zh="用 persistent=False 注册的已拟合缓冲区在保存模型时丢失",
    ),
    what=T(
        en="A model keeps numbers that it found in its data, such as their mean, in a place that is left out when the "
        "model is saved. The model that is loaded works with the numbers that a new one has, and nothing is reported "
        "as missing. Register them without `persistent=False`.",
        zh="模型把从数据中得到的数（例如均值）放在保存时会略去的地方。加载得到的模型用的是新模型的数，也不会报告缺少什"
        "么。注册时请不要用 `persistent=False`。",
    ),
    why=T(
        en="A *buffer* is a tensor that belongs to a module and is not trained. `register_buffer(name, tensor)` makes "
        "it part of `state_dict()`; with `persistent=False` it only moves with the module to another device. "
        "`load_state_dict` compares the names of both sides, and such a buffer is on neither, so that even a strict "
        "loading does not complain.",
        zh="*缓冲区*（buffer）是属于模块而不参与训练的张量。`register_buffer(name, tensor)` 使它成为 `state_dict()` 的"
        "一部分；加上 `persistent=False`，它就只会随模块移到别的设备。`load_state_dict` 比较两边的名字，而这样的缓冲区"
        "两边都没有，所以严格加载也不会报错。",
    ),
    bad="""import torch


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(2), persistent=False)  # PL746
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x - self.mean)  # used


torch.manual_seed(0)
x = torch.randn(6, 2) + 5
net = Scaled()
net.mean.copy_(x.mean(dim=0))  # changed
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
        self.register_buffer("mean", torch.zeros(2), persistent=True)
        self.layer = torch.nn.Linear(2, 1)

    def forward(self, x):
        return self.layer(x - self.mean)


torch.manual_seed(0)
x = torch.randn(6, 2) + 5
net = Scaled()
net.mean.copy_(x.mean(dim=0))
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
            "load_state_dict(net.state_dict(), strict=True)",
            T(
                en="`strict` compares names, and neither side has a name for the buffer.",
                zh="`strict` 比较的是名字，而两边都没有这个缓冲区的名字。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html",),
)
