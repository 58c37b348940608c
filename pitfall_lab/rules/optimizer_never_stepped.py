"""PL612: an optimizer was made for parameters that get gradients, and another one is stepped instead."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Related, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital
from pitfall_lab.rules.signals.optimizer_steps import NeverStepped, never_stepped
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each optimizer that never steps, although what it holds gets gradients in several
    iterations while another optimizer steps.
    """
    for found in never_stepped(story):
        yield _finding(story, found)


def refine(story: Story, general: Finding) -> Finding | None:
    """Return this rule's finding in place of ``general``, a finding that gradients are added up, if they are because
    another optimizer was stepped instead of the one that holds their parameters; else None.
    """
    steps = {related.span for related in general.related if related.role == "step"}
    return next((_finding(story, found) for found in never_stepped(story) if found.instead.span in steps), None)


def _finding(story: Story, found: NeverStepped) -> Finding:
    made, instead, backward = found.made, found.instead, found.backward
    first, more = called(story, found.parameters[0], None, backward.step), len(found.parameters) - 1
    others = T(en=f" and {more} more", zh=f" 等 {more + 1} 个参数") if more else T(en="", zh="")
    there, here, back = (at_line(story, span) for span in (made.span, instead.span, story.span(backward.step)))
    return RULE.finding(
        instead.span,
        backward.step,
        T(
            en=f"{capital(here.en)} steps another optimizer than the one of {there.en}, which never steps: "
            f"{first.en}{others.en} get gradients on {back.en} and are never changed.",
            zh=f"{here.zh}让另一个优化器前进了一步，而{there.zh}的优化器从未前进过：{first.zh}{others.zh}在{back.zh}得"
            "到梯度，却从未被更新。",
        ),
        T(
            en=f"The `{made.optimizer}` of {there.en} was given {len(made.holds)} tensors, and the program ends "
            "without one call of its `step()`. An optimizer changes what it was given and nothing else; whose "
            "gradients were just computed makes no difference.",
            zh=f"{there.zh}的 `{made.optimizer}` 拿到了 {len(made.holds)} 个张量，直到程序结束都没有调用过它的 "
            "`step()`。优化器只改变交给它的张量，刚刚算出的是谁的梯度对它没有影响。",
        ),
        related=[
            Related("made", made.span, None, T(en="this optimizer never steps", zh="这个优化器从未前进")),
            story.related(
                "backward", backward.step, T(en="its parameters get gradients here", zh="它的参数在这里得到梯度")
            ),
            Related(
                "step", instead.span, None, T(en="this step changes other parameters", zh="这一步改变的是别的参数")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("parameters", list(found.parameters), story.by(backward.step)), Fact("held", len(made.holds))],
    )


def _fixes(story: Story, found: NeverStepped) -> tuple[Fix, ...]:
    """The fix that steps the optimizer made for these parameters where another one is stepped;
    empty if it is assigned to no name.
    """
    program = story.program
    step, made = program.at(found.instead.span), program.at(found.made.span)
    if (
        not isinstance(step, ast.Call)
        or call_name(step) != "step"
        or not isinstance(step.func, ast.Attribute)
        or made is None
    ):
        return ()
    name = _name(program.parents.get(made), made)
    if name is None:
        return ()
    text = f"{program.segment(name)}.step()"
    own = Fix(T(en=f"Step the optimizer of these parameters: `{text}`", zh=f"让这些参数的优化器前进：`{text}`"),
              program.replace((step, text)), meaning="later")  # fmt: skip
    return unique(program.text, [own])


def _name(parent: ast.AST | None, made: ast.AST) -> ast.expr | None:
    """The first target of the assignment whose value is ``made``; None if ``parent`` is no such assignment."""
    if isinstance(parent, ast.Assign) and parent.value is made:
        return parent.targets[0]
    return None


RULE = Rule(
    code="PL612",
    name="optimizer-never-stepped",
    severity="warning",
    title=T(en="One optimizer never steps, another is stepped in its place", zh="一个优化器从未前进，前进的是另一个"),
    what=T(
        en="A program has two optimizers, one for each part, and calls `step()` of the same one twice. The "
        "part of the other optimizer never changes. After each backward, step the optimizer of the part that "
        "is to learn from it.",
        zh="程序有两个优化器，各管一部分，却两次都调用了同一个的 `step()`。另一个所管的部分从未改变。每次反向传播之"
        "后，请让该学习的那一部分的优化器前进。",
    ),
    why=T(
        en="`backward()` fills `.grad` of every parameter behind the loss, of both parts where the loss goes through "
        "both. `step()` reads `.grad` of the tensors that its optimizer was given. So stepping the wrong one raises "
        "nothing: it moves its own part along the gradient of the other part's loss (for a GAN: the discriminator "
        "learns to be fooled), and the gradients that were wanted are cleared in the next round, unused.",
        zh="`backward()` 会填好损失背后每个参数的 `.grad`；损失经过两部分时，两部分都会得到。`step()` 读取的是交给该优"
        "化器的张量的 `.grad`。所以调用错了也不会报错：它让自己的那一部分沿着另一部分损失的梯度移动（对 GAN 来说，判别"
        "器在学着受骗），而真正需要的梯度在下一轮被清掉，从未使用。",
    ),
    advice=T(
        en="step the optimizer made on {made} too, after the backward on {backward}.",
        zh="在{backward}的反向传播之后，也让{made}创建的优化器更新一步。",
    ),
    bad="""import torch

torch.manual_seed(0)
maker, judge = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
maker_opt = torch.optim.SGD(maker.parameters(), lr=0.1)  # made
judge_opt = torch.optim.SGD(judge.parameters(), lr=0.1)
x = torch.randn(4, 2)
for _ in range(2):
    judge_opt.zero_grad()
    (judge(maker(x).detach()).mean() - judge(x).mean()).backward()
    judge_opt.step()
    judge_opt.zero_grad()
    maker_opt.zero_grad()
    loss = -judge(maker(x)).mean()
    loss.backward()  # backward
    judge_opt.step()  # PL612 step
    print(maker.weight.sum().item())
""",
    good="""import torch

torch.manual_seed(0)
maker, judge = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
maker_opt = torch.optim.SGD(maker.parameters(), lr=0.1)
judge_opt = torch.optim.SGD(judge.parameters(), lr=0.1)
x = torch.randn(4, 2)
for _ in range(2):
    judge_opt.zero_grad()
    (judge(maker(x).detach()).mean() - judge(x).mean()).backward()
    judge_opt.step()
    judge_opt.zero_grad()
    maker_opt.zero_grad()
    loss = -judge(maker(x)).mean()
    loss.backward()
    maker_opt.step()
    print(maker.weight.sum().item())
""",
    find=find,
    refines=("PL601",),
    refine=refine,
    traps=(
        Trap(
            "    maker_opt.zero_grad()\n",
            "    maker.zero_grad()\n",
            T(
                en="Both clear the gradients. What is missing is the step that uses them.",
                zh="两者都清空梯度。缺少的是使用梯度的那一步。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/optim.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.step.html",
    ),
)
