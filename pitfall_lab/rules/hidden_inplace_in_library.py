"""PL107: a library call that does not look like a write (``nn.Embedding`` with ``max_norm``) wrote a tensor that
backward needs.

A special case of PL101. Running statistics are written in the same hidden way, but torch does not even count these
writes: PL305.
"""

from __future__ import annotations

from pitfall_lab.rules.kit.finding import Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import capital, line_of, statement_text
from pitfall_lab.trace import T

LOOKUPS = ("embedding", "embedding_bag")


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding of PL101, if the call that wrote was an embedding
    look-up (``max_norm`` shortens rows of ``weight`` in place); else None.
    """
    event = story.event(general.step)
    if event is None or event.name not in LOOKUPS:
        return None
    here, then, later = (line_of(story, general, role) for role in ("changed", "saved", "backward"))
    what, code = general.fact("called"), statement_text(story, general.span)
    return RULE.instead(
        general,
        T(
            en=f"{capital(here.en)} looks as if it only read {what.en}, but with `max_norm` it also shortens rows of "
            f"it, and the backward pass on {later.en} still needs the values from {then.en}.",
            zh=f"{here.zh}看起来只是读取 {what.zh}，但有了 `max_norm`，它还会缩短其中的行，而{later.zh}的反向传播"
            f"还需要{then.zh}时的值。",
        ),
        T(
            en=f"On {then.en} torch kept the memory of {what.en} for backward. `{code}` on {here.en} finds rows "
            "longer than `max_norm` allows and scales them down in place, before it copies them out. Torch counts "
            f"that as a write, and {later.en} stops, because the numbers that {then.en} used are gone.",
            zh=f"在{then.zh}，torch 为反向传播留下了 {what.zh} 的内存。{here.zh}的 `{code}` 发现有的行超过了 "
            f"`max_norm`，先就地把它们缩小，再复制出来。torch 把这算作一次写入，到{later.zh}便停下来，因"
            f"为{then.zh}用过的数已经没有了。",
        ),
        fixes=sorted(
            general.fixes, key=lambda fix: fix.meaning != "same"
        ),  # torch's documentation recommends a copy of the table
    )


RULE = Rule(
    code="PL107",
    name="hidden-inplace-in-library",
    severity="error",
    title=T(
        en="A look-up with max_norm changed the table that backward needs",
        zh="带 max_norm 的查表修改了反向传播需要的表",
    ),
    what=T(
        en="Looking up rows of an embedding table changed the table. With `max_norm` every look-up first shortens the "
        "rows that are too long, and writes them back. If the table was used in another computation before (a product "
        "with all words, a penalty on its size), gradients of that computation need the old rows, and `backward()` "
        "stops. No line of the program looks like a write.",
        zh="从嵌入表中查几行，却把表改了。有了 `max_norm`，每次查表都会先缩短太长的行，并写回去。如果这张表此前参"
        "与过别的计算（与所有词的乘积、对其大小的惩罚），那个计算的梯度需要旧的行，`backward()` 就会停下来。程序里"
        "没有一行看起来像写入。",
    ),
    why=T(
        en="`max_norm` is kept up by *renormalising in place*, under `no_grad`, in the forward pass of "
        "`nn.Embedding` and `nn.EmbeddingBag`: only the rows that are looked up, and only where they are too "
        "long. The table's *version* grows with each such write, and a product that saved the table for backward "
        "finds another version than it saved. Torch's documentation says so: clone the weight before using it in "
        "a differentiable way, when the module has a `max_norm`. Looking up first and multiplying afterwards "
        "works as well, until the next look-up.",
        zh="`max_norm` 是靠*就地重新缩放*来维持的：在 `nn.Embedding` 和 `nn.EmbeddingBag` 的前向计算中，在 `no_grad` "
        "之下，只对查到的、而且太长的行进行。每次这样的写入都使表的*版本*增大，而为反向传播保存了这张表的乘法，会发现"
        "版本与保存时不同。torch 的文档说得很清楚：模块有 `max_norm` 时，以可求导的方式使用它的权重之前，要先克隆。先"
        "查表再相乘也行，直到下一次查表。",
    ),
    advice=T(
        en="look the rows up on {changed} before {saved} uses the weight, or let {saved} use a "
        "copy of it (`.clone()`).",
        zh="在{saved}使用权重之前先做{changed}的查表，或者让{saved}使用它的副本（`.clone()`）。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(4, 3, max_norm=1.0)
project = torch.randn(3, 2, requires_grad=True)
every = words.weight @ project  # saved
some = words(torch.tensor([0, 2])) @ project  # PL107 changed
(every.sum() + some.sum()).backward()  # backward
print(project.grad)
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
words = nn.Embedding(4, 3, max_norm=1.0)
project = torch.randn(3, 2, requires_grad=True)
every = words.weight.clone() @ project
some = words(torch.tensor([0, 2])) @ project
(every.sum() + some.sum()).backward()
print(project.grad)
""",
    refines=("PL101",),
    refine=refine,
    traps=(
        Trap(
            "every = words.weight @ project",
            "every = words.weight.detach() @ project",
            T(
                en="Detached tensors share the memory and its version: the same error. Only a copy helps.",
                zh="`detach()` 得到的张量共享内存及其版本：还是同样的报错。只有复制才有用。",
            ),
        ),
        Trap(
            "every = words.weight @ project",
            "every = words.weight.data.clone() @ project",
            T(
                en="The error is gone, and so is a part of the gradient: the table no longer learns from `every`.",
                zh="不再报错，但一部分梯度也没有了：这张表不再从 `every` 中学习。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-correctness-checks",
    ),
)
