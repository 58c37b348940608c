"""PL506: the gradient of a computed tensor was read. Torch keeps gradients of leaves only, so it is ``None``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.rebinding import rebindings
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.trace import Event, T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each computed tensor whose ``.grad`` was read, and was None, after a backward had passed
    it.

    Tensors that were leaves before their name was bound again are left to another rule.
    """
    passed: dict[str, int] = {}
    reported: set[str | None] = {found.result for found in rebindings(story)}  # a lost parameter: another rule
    for event in story.events:
        if event.kind == "node":
            continue
        if event.op == "torch.Tensor.grad.__get__" and event.operands:
            label = event.operands[0].label
            tensor = story.tensor(label, event.step) or {}
            node = tensor.get("grad_fn")
            if (
                node
                and not tensor.get("is_leaf")
                and not tensor.get("grad")
                and node in passed
                and label not in reported
            ):
                reported.add(label)
                yield _finding(story, event, label, passed[node])
        elif event.name == "backward" and event.error is None:
            for node in _ran(story, event):
                passed[node] = event.step


def _ran(story: Story, backward: Event) -> Iterator[str]:
    """The nodes that a backward went through."""
    start = story.tensor(backward.operands[0].label, backward.step) if backward.operands else None
    yield from story.behind((start or {}).get("grad_fn"))


def _finding(story: Story, event: Event, label: str | None, backward: int) -> Finding:
    name = called(story, label, None, event.step)
    record = story.tensor(label, event.step) or {}
    here, made = at_line(story, story.span(event.step)), at_line(story, story.span(record.get("born")))
    return RULE.finding(
        story.span(event.step),
        event.step,
        T(
            en=f"{capital(here.en)} reads the gradient of {name.en}, but {name.en} was computed (on {made.en}), and "
            "torch keeps gradients only of what was not: it is `None`.",
            zh=f"{here.zh}读取 {name.zh} 的梯度，但 {name.zh} 是算出来的（{made.zh}），"
            "torch 只为不是算出来的张量保留梯度：这里得到 `None`。",
        ),
        T(
            en=f"The backward pass did compute the gradient of {name.en} and passed it on to what {name.en} was "
            "computed from. Keeping it for every result would cost as much memory as the whole forward pass, so it "
            "is thrown away unless `retain_grad()` was called before.",
            zh=f"反向传播途中确实算出了 {name.zh} 的梯度，并把它传给了 {name.zh} 的来源。为每个中间结果都保留梯度，"
            "会占用与整个前向计算一样多的内存，所以除非事先用 `retain_grad()` 要求，否则会被丢掉。",
        ),
        related=[
            story.related("made", record.get("born"), T(en=f"{name.en} is computed here", zh=f"{name.zh} 在这里算出")),
            story.related(
                "backward",
                backward,
                T(en="its gradient is computed here, and thrown away", zh="它的梯度在这里算出，又被丢掉"),
            ),
            story.related("read", event.step, T(en="it is read here: `None`", zh="在这里读取：`None`")),
        ],
        fixes=_fixes(story, event, record.get("born"), backward),
        facts=[Fact("tensor", label, story.by(event.step))],
    )


def _fixes(story: Story, event: Event, born: int | None, backward: int) -> tuple[Fix, ...]:
    program = story.program
    read = program.at(story.span(event.step)) if program.tree else None
    made, back = (program.statement_at(story.span(step)) for step in (born, backward))
    if not isinstance(read, ast.Attribute) or made is None or back is None:
        return ()
    text = program.segment(read.value)
    candidates: list[Fix | None] = []
    title = T(en=f"Make torch keep it: `{text}.retain_grad()`", zh=f"请 torch 保留它：`{text}.retain_grad()`")
    if isinstance(made, ast.Assign) and program.function(made) is program.function(program.statement(read) or made):
        candidates.append(Fix(title, program.insert_after(made, f"{text}.retain_grad()")))
    if program.function(back) is program.function(program.statement(read) or back):
        candidates.append(Fix(title, program.insert_before(back, f"{text}.retain_grad()")))
    return unique(program.text, candidates)


RULE = Rule(
    code="PL506",
    name="non-leaf-grad-read",
    severity="warning",
    title=T(en="The gradient of a computed tensor was read, and is None", zh="读取了算出来的张量的梯度，得到 None"),
    what=T(
        en="A program looked at the gradient of a tensor that it had computed, and found nothing there. Gradients are "
        "kept only in leaf tensors (`is_leaf`), which have no `grad_fn`. Call `retain_grad()` before the backward "
        "pass, or make the tensor a leaf.",
        zh="程序查看了一个算出来的张量的梯度，却什么也没有。只有没有 `grad_fn` 的叶子张量（`is_leaf`）才会保留"
        "梯度。请在反向传播之前用 `retain_grad()` 要求保留，或者让它成为叶子。",
    ),
    why=T(
        en="A tensor that requires gradients and was not computed is a *leaf*: made with `requires_grad=True`, or an "
        "`nn.Parameter`. What is computed from one is not a leaf, even if only a factor was put behind it: "
        "`torch.randn(3, requires_grad=True) * 0.1` is a product, and the leaf is the unnamed tensor inside. The same "
        "happens with `.to(device)` or `.double()` behind it. `backward()` puts gradients into leaves only; those of "
        "results are used and dropped.",
        zh="要求梯度的起点叫作*叶子*：用 `requires_grad=True` 创建的张量，或 `nn.Parameter`。由它算出来的就不是叶子，"
        "哪怕只乘了一个数：`torch.randn(3, requires_grad=True) * 0.1` 是一个乘积，叶子是里面那个没有名字的张量。后面加"
        "上 `.to(device)` 或 `.double()` 也一样。`backward()` 只把梯度放进叶子，中间结果的梯度用完就丢。",
    ),
    advice=T(
        en="call `retain_grad()` on {tensor} before the backward on {backward}.",
        zh="在{backward}的反向传播之前对 {tensor} 调用 `retain_grad()`。",
    ),
    bad="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = w * 2  # made
loss = (h * h).sum()
loss.backward()  # backward
print(h.grad)  # PL506 read
""",
    good="""import torch

w = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
h = w * 2
h.retain_grad()
loss = (h * h).sum()
loss.backward()
print(h.grad)
""",
    find=find,
    traps=(
        Trap(
            "h = w * 2",
            "h = (w * 2).detach().requires_grad_()",
            T(
                en="Now `h` is a leaf and has a gradient, but the graph to `w` is cut: `w.grad` stays empty.",
                zh="现在 `h` 成了叶子，也有了梯度，但回到 `w` 的路被切断：`w.grad` 一直是空的。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.retain_grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.is_leaf.html",
    ),
)
