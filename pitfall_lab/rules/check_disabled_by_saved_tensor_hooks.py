"""PL306: inside ``saved_tensors_hooks`` (or ``save_on_cpu``) torch does not check versions: an overwritten tensor gives
a wrong gradient.

A special case of PL301. The difference is that the write was counted by a version counter, and backward still raised no
error.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.checkpointing import is_recomputed
from pitfall_lab.rules.kit.finding import Finding, Related, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import capital, line_of, statement_text
from pitfall_lab.trace import T


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding of PL301, if torch counted the write but did not
    compare versions because of hooks on saved tensors; else None.
    """
    saved, changed, backward = (general.line(role) for role in ("saved", "changed", "backward"))
    steps = [related.step for related in (saved, changed, backward) if related is not None and related.step is not None]
    if len(steps) < 3 or is_recomputed(story, *steps[::2]) or not _was_counted(story, general, *steps):
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    wrong, what, code = general.fact("wrong"), general.fact("called"), statement_text(story, general.span)
    written = T(
        en=f"its memory is written here, and no version will be compared: `{code}`",
        zh=f"它的内存在这里被写入，之后却没有人比较：`{code}`",
    )
    return RULE.instead(
        general,
        T(
            en=f"{wrong.en}, because {here.en} overwrote {what.en}, and hooks on saved tensors had "
            "switched torch's check off.",
            zh=f"{wrong.zh}，因为{here.zh}覆盖了 {what.zh}，而保存张量的钩子关掉了 torch 的检查。",
        ),
        T(
            en=f"On {then.en} torch kept {what.en} for backward, by way of hooks that were to pack it. What hooks "
            f"return is used as it is: torch no longer compares versions. `{code}` on {here.en} overwrites the "
            f"numbers, and the hooks had kept the same memory, not a copy. {capital(later.en)} gets the new numbers "
            "and computes with them. Without the hooks it would have stopped.",
            zh=f"在{then.zh}，torch 通过负责打包的钩子为反向传播留下了 {what.zh}。钩子交回什么，torch 就用什么：不再比"
            f"较版本。{here.zh}的 `{code}` 覆盖了这些数，而钩子留下的是同一块内存，不是副本。{later.zh}得到新的数并用"
            "它们计算。没有这些钩子，它会停下来。",
        ),
        related=[
            Related(r.role, r.span, r.step, written) if r.role == "changed" else r
            for r in general.related
            if r.role != "alias"
        ],
    )


def _was_counted(story: Story, general: Finding, saved: int, changed: int, backward: int) -> bool:
    node = story.record("nodes", general.fact("node")) or {}
    counters = {each.get("counter") for each in node.get("saved", ()) if each.get("storage") == general.fact("storage")}
    return any(changed in story.bumps(counter, saved, backward) for counter in counters if counter is not None)


RULE = Rule(
    code="PL306",
    name="check-disabled-by-saved-tensor-hooks",
    severity="warning",
    title=T(en="Hooks on saved tensors hid that one was overwritten", zh="保存张量的钩子掩盖了张量被覆盖"),
    what=T(
        en="Numbers that gradients are computed from were overwritten before `backward()`, and the usual error did "
        "not come. The program computed inside `saved_tensors_hooks` or `save_on_cpu`, which decide themselves how "
        "such numbers are kept, and there torch checks nothing. The gradient is wrong, without a word. Do not write "
        "in place what was computed inside such a block.",
        zh="用来计算梯度的数在 `backward()` 之前被覆盖了，通常的报错却没有出现。程序在 `saved_tensors_hooks` 或 "
        "`save_on_cpu` 里计算，它们自己决定怎样留下这些数，torch 在那里什么都不检查。梯度是错的，却没有任何提示。不要"
        "就地写入在这种代码块里算出的东西。",
    ),
    why=T(
        en="What an operation keeps for backward is *saved* together with its *version*, a number that grows with "
        "each write in place; backward compares. Hooks on saved tensors replace that: `pack` is given the tensor and "
        "may return anything, `unpack` makes a tensor of it again, and torch cannot know what its version should be. "
        "A `pack` that returns the tensor itself, or `save_on_cpu` with a tensor that is on the CPU already (its "
        "`.cpu()` is no copy), leaves the memory shared and the check off. So hooks that log or count saved tensors "
        "change what a wrong program does: its error goes away, and its gradient is wrong.",
        zh="运算为反向传播留下的东西会连同*版本*一起*保存*，版本是每次就地写入就增大的数；反向传播会比较。保存张量的钩"
        "子取代了这一步：`pack` 得到张量，可以返回任何东西，`unpack` 再把它变回张量，torch 无从知道版本应该是多少。如"
        "果 `pack` 返回张量本身，或者对已经在 CPU 上的张量使用 `save_on_cpu`（这时 `.cpu()` 不复制），内存仍然共享，检"
        "查却关掉了。所以用来记录或统计的钩子，会改变一个错误程序的行为：报错消失，梯度出错。",
    ),
    bad="""import torch
from torch.autograd.graph import saved_tensors_hooks

sizes = []


def pack(tensor):
    sizes.append(tensor.numel())
    return tensor


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
with saved_tensors_hooks(pack, lambda tensor: tensor):
    h = torch.sigmoid(x)  # saved
y = h * 2
h.mul_(10)  # PL306 changed
(y + h).sum().backward()  # backward
print(x.grad)
""",
    good="""import torch
from torch.autograd.graph import saved_tensors_hooks

sizes = []


def pack(tensor):
    sizes.append(tensor.numel())
    return tensor


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
with saved_tensors_hooks(pack, lambda tensor: tensor):
    h = torch.sigmoid(x)
y = h * 2
h = h * 10
(y + h).sum().backward()
print(x.grad)
""",
    refines=("PL301",),
    refine=refine,
    traps=(
        Trap(
            "return tensor",
            "return tensor.cpu()",
            T(
                en="`.cpu()` of a tensor on the CPU returns the tensor itself. `return tensor.clone()` would keep the "
                "right numbers, at the cost of a copy of everything that is saved.",
                zh="对已经在 CPU 上的张量，`.cpu()` 返回张量本身。`return tensor.clone()` 能留下正确的数，代价是把"
                "保存的一切都复制一份。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/autograd.html#torch.autograd.graph.saved_tensors_hooks",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#hooks-for-saved-tensors",
    ),
)
