"""PL544: a value on its way from one trained layer to the next loses its graph, and the earlier layer
is trained by a penalty alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from pitfall_lab.rules.graph_cut import manner, reconnections
from pitfall_lab.rules.kit.finding import Fact, Finding, Rule, Trap
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.cut_paths import Apart, cut_paths
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each place in the source at which the graph between two layers of one optimizer ends,
    though other paths (a penalty, for example) reach the first layer.
    """
    yield from (_finding(story, found) for found in cut_paths(story))


def _finding(story: Story, found: Apart) -> Finding:
    cut, layer = found.cut, found.layer
    here, there, back = (at_line(story, story.span(step)) for step in (cut.event.step, layer.step, found.backward.step))
    does, first = manner(story, cut), called(story, found.behind[0], None, found.backward.step)
    others = len(found.behind) - 1
    more = T(en=f" and {others} more", zh=f" 等 {others + 1} 个参数") if others else T(en="", zh="")
    value = called(story, cut.tensor, None, cut.event.step, (story.tensor(cut.tensor) or {}).get("born"))
    return RULE.finding(
        story.span(cut.event.step),
        cut.event.step,
        T(
            en=f"{capital(here.en)} {does.en} on the way to the layer on {there.en}: the gradient that comes back "
            f"through it does not reach {first.en}{more.en}; only other paths train {'them' if others else 'it'}.",
            zh=f"{here.zh}{does.zh}，而它正通往{there.zh}的层：经过那里的梯度传不到 {first.zh}{more.zh}，只有"
            "其他路径在训练它们。",
        ),
        T(
            en=f"{capital(value.en)} still has a graph that leads to {first.en}{more.en}; what {here.en} makes of "
            f"it has none. The backward on {back.en} fills the gradients of all parameters, since other terms of the "
            "loss reach them, so nothing looks wrong: one part of each gradient is missing.",
            zh=f"{value.zh} 的计算图通往 {first.zh}{more.zh}，而{here.zh}由它得到的结果没有计算图。{back.zh}的反向传播"
            "填写了所有参数的梯度，因为损失中的其他项能到达它们，所以看不出有什么不对：每个梯度都少了一部分。",
        ),
        related=[
            story.related(
                "cut", cut.event.step, T(en="the record of the computation ends here", zh="计算的记录在这里中断")
            ),
            story.related(
                "used",
                layer.step,
                T(en="a layer of the same optimizer is given the result", zh="同一个优化器的层得到这个结果"),
            ),
            story.related(
                "backward",
                found.backward.step,
                T(en="goes back from here, and not past the cut", zh="从这里往回走，过不了断点"),
            ),
        ],
        fixes=[replace(fix, meaning="term") for fix in reconnections(story, [cut])],
        facts=[
            Fact("cut", cut.kind, story.by(cut.event.step)),
            Fact("parameters", list(found.behind), story.by(found.backward.step)),
        ],
    )


RULE = Rule(
    code="PL544",
    name="path-cut-between-layers",
    severity="warning",
    title=T(en="The path between two layers that are trained together is cut", zh="一起训练的两层之间的路被切断"),
    what=T(
        en="A network has two parts that are trained together, and what the first gives to the second was turned into "
        "plain numbers on the way. The first part still gets gradients, from a penalty on its result, so it seems to "
        "learn; it never learns what the second part needs. Let the second part be given the result itself.",
        zh="网络的两个部分一起训练，而前一部分交给后一部分的结果在途中变成了普通的数。前一部分仍然得到梯度，来自对其结"
        "果的惩罚项，所以它看起来在学习；但它从未学到后一部分需要什么。请把结果本身交给后一部分。",
    ),
    why=T(
        en="Gradients go back along the *graph*, the record of how each result was computed. Inside `torch.no_grad()` "
        "nothing is recorded, and `detach()`, `.data`, `numpy()` and `torch.tensor(...)` return numbers without a "
        "history. If nothing else led to the earlier parameters, their `.grad` would stay None. Here a second term of "
        "the loss reaches them, the Kullback-Leibler term of a variational autoencoder for instance, and an optimizer "
        "cannot see that one of two paths is missing.",
        zh="梯度沿着*计算图*往回走，它记录每个结果是怎样算出来的。在 `torch.no_grad()` 里什么也不记录，"
        "`detach()`、`.data`、`numpy()` 和 `torch.tensor(...)` 返回的是没有历史的数。如果没有别的路通往前面的参"
        "数，它们的 `.grad` 会一直是 None。这里损失的另一项能到达它们，例如变分自编码器的 Kullback-Leibler 项，而"
        "优化器看不出两条路中少了一条。",
    ),
    bad="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(8, 3)
for _ in range(3):
    mean = enc(x)
    with torch.no_grad():
        z = mean + torch.randn_like(mean)  # PL544 cut
    loss = (dec(z) - x).square().mean() + 0.1 * mean.square().mean()  # used
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()
print(enc.weight.grad)
""",
    good="""import torch

torch.manual_seed(0)
enc, dec = torch.nn.Linear(3, 2), torch.nn.Linear(2, 3)
opt = torch.optim.SGD([*enc.parameters(), *dec.parameters()], lr=0.1)
x = torch.randn(8, 3)
for _ in range(3):
    mean = enc(x)
    z = mean + torch.randn_like(mean)
    loss = (dec(z) - x).square().mean() + 0.1 * mean.square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(enc.weight.grad)
""",
    find=find,
    traps=(
        Trap(
            "    with torch.no_grad():\n        z = mean",
            "    if True:\n        z = mean.detach()",
            T(en="`detach()` leaves no graph, either.", zh="`detach()` 同样不留下计算图。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#locally-disable-grad-doc",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.detach.html",
    ),
)
