"""PL946: log-probabilities were divided by their sum, as a distribution does with probabilities, which reverses their
order.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand, torch_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import origin, values
from pitfall_lab.trace import Event, T
from pitfall_lab.trace.operation_facts import spellings

LOGARITHMS = {"log_softmax", "logsigmoid", "log"}
"""Calls whose result is a logarithm of a probability."""
QUOTIENTS = spellings("div", in_place=True)
DISTRIBUTIONS = {"Categorical", "OneHotCategorical", "OneHotCategoricalStraightThrough", "RelaxedOneHotCategorical"}


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that divides logarithms by their own sum, where no known entry of them is
    positive; where none is known, only results of ``log_softmax`` and ``logsigmoid``.
    """
    told = set()
    for event in story.calls(*QUOTIENTS):
        given = [o.label for o in event.operands if o.label is not None]
        if len(given) != 2 or event.error is not None or not event.results or story.span(event.step) in told:
            continue
        made = origin(story, given[0], event.step)
        if (
            made is not None
            and made.name in LOGARITHMS
            and is_sum(story, given[0], given[1], event.step)
            and _is_negative(story, given[0], event.step)
        ):
            told.add(story.span(event.step))
            yield _finding(story, event, made)


def is_sum(story: Story, label: str, total: str, step: int) -> bool:
    """Whether the call that made the tensor ``total``, as it was at ``step``, is a ``sum`` of the tensor ``label``,
    over any axes.
    """
    summed = story.event((story.tensor(total, step) or {}).get("born"))
    return summed is not None and summed.name == "sum" and bool(summed.operands) and summed.operands[0].label == label


def _is_negative(story: Story, label: str, step: int) -> bool:
    """Whether no known value of the tensor is positive; if none is known, whether another call than ``log``
    made the values.

    Log-probabilities never are positive; a plain logarithm must be known.
    """
    known = values(story, label, step)
    made = origin(story, label, step)
    return all(value <= 0 for value in known) and (bool(known) or (made is not None and made.name != "log"))


def _finding(story: Story, event: Event, made: Event) -> Finding:
    step, span = event.step, story.span(event.step)
    here, there, what = (
        at_line(story, span),
        at_line(story, story.span(made.step)),
        expression(story, event.operands[0].label, step),
    )
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} takes {what.en} for probabilities and divides them by their sum, but they are "
            "logarithms of probabilities: the least likely entry becomes the most likely one.",
            zh=f"{here.zh}把 {what.zh} 当作概率，除以它们的和；但它们是概率的对数：最不可能的一项变成了最可能的一项。",
        ),
        T(
            en=f"Logarithms of probabilities ({there.en}) are not positive. Divided by their sum they are positive "
            "and add up to one, so no check complains, but a large negative logarithm, a small probability, gets a "
            "large share. Give a distribution `logits=`, or take `exp()` of them.",
            zh=f"概率的对数（{there.zh}）不是正数。除以它们的和之后，它们变成正数且和为一，所以任何检查都不会报错；但"
            "绝对值大的负对数，也就是小的概率，得到了大的份额。请把它们作为 `logits=` 交给分布，或者取 `exp()`。",
        ),
        related=[story.related("made", made.step, T(en="these are logarithms", zh="这些是对数"))],
        fixes=as_logits(story, event),
        facts=[Fact("made", made.name, story.by(made.step))],
    )


def as_logits(story: Story, event: Event) -> tuple[Fix, ...]:
    """Fixes that pass the logarithms as ``logits=`` if the line makes a distribution; else empty.

    They must be given as ``probs=``, or as the only argument without a name.
    """
    program, torch = story.program, torch_name(story.program)
    node = program.at(story.span(event.step))
    if not isinstance(node, ast.Call) or call_name(node) not in DISTRIBUTIONS or torch is None:
        return ()
    given = next((word for word in node.keywords if word.arg == "probs"), None)
    if given is not None:
        edit: tuple[ast.AST, str] = (given, f"logits={program.segment(given.value)}")
    elif node.args and not isinstance(node.args[0], ast.Starred) and len(node.args) == 1:
        edit = (node.args[0], f"logits={operand(program, node.args[0])}")
    else:
        return ()
    title = T(en=f"Hand them over as what they are: `{edit[1]}`", zh=f"按它们本来的含义传入：`{edit[1]}`")
    return unique(program.text, [Fix(title, program.replace(edit), meaning="later")])


RULE = Rule(
    code="PL946",
    name="logarithms-normalized",
    severity="warning",
    title=T(en="Log-probabilities were normalised as if they were probabilities", zh="对数概率被当作概率归一化"),
    what=T(
        en="A program gives log-probabilities, such as the result of `log_softmax`, to a distribution that takes its "
        "first argument for probabilities. `Categorical(x)` is `Categorical(probs=x)`. It divides them by their sum, "
        "which turns the order round.",
        zh="程序把对数概率（例如 `log_softmax` 的结果）交给一个把第一个参数当作概率的分布。`Categorical(x)` 就是 "
        "`Categorical(probs=x)`。它把这些数除以它们的和，于是顺序颠倒了。",
    ),
    why=T(
        en="Distributions over classes accept `probs` or `logits`, and `probs` comes first. `probs` need not "
        "add up to one: they are divided by their sum, and then checked. Negative numbers divided by a "
        "negative sum pass this check. `logits` may be any numbers, log-probabilities too: `exp` and the "
        "division give the probabilities back.",
        zh="类别分布接受 `probs` 或 `logits`，而 `probs` 在前。`probs` 的和不必为一：先除以它们的和，再做检查。负数除"
        "以负的和，能通过这个检查。`logits` 可以是任何数，对数概率也行：`exp` 再相除，就得到原来的概率。",
    ),
    bad="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
policy = torch.nn.Linear(3, 4)
seen = torch.randn(5, 3)
scores = torch.log_softmax(policy(seen), dim=-1)  # made
chosen = Categorical(scores)  # PL946
print(chosen.probs, chosen.sample())
""",
    good="""import torch
from torch.distributions import Categorical

torch.manual_seed(0)
policy = torch.nn.Linear(3, 4)
seen = torch.randn(5, 3)
scores = torch.log_softmax(policy(seen), dim=-1)
chosen = Categorical(logits=scores)
print(chosen.probs, chosen.sample())
""",
    find=find,
    traps=(
        Trap(
            "Categorical(scores)",
            "Categorical(scores, validate_args=True)",
            T(
                en="The check sees only the quotients, which are positive and add up to one.",
                zh="检查看到的只是商，它们是正数且和为一。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/distributions.html#categorical",),
)
