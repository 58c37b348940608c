"""PL974: noise was drawn once to disturb the data and once more as the target, so what is to be
predicted is not in the data.
"""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, capital, expression
from pitfall_lab.rules.signals.value_origins import SAME_NUMBERS
from pitfall_lab.trace import Event, Span, T
from pitfall_lab.trace.operation_facts import operations_that, spellings

DRAWS = ("randn", "randn_like", "normal")
LOSSES = spellings("sub") | operations_that("difference_loss")
MIXES = spellings("add", "mul", "sub") | {"addcmul", "lerp", "where"}
"""Calls that mix noise into data."""
ROUNDS, LIMIT = 2, 1500


@dataclass(frozen=True, slots=True)
class Fresh:
    """``loss`` is the call (``Event``) that compared a prediction with the tensor ``target`` (a label), which the call
    ``drawn`` drew for nothing but this.

    ``mixed`` is the call that drew the other noise, which was mixed into the data of the prediction.
    """

    loss: Event
    target: str
    drawn: Event
    mixed: Event


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that draws normal noise for nothing but the target of a loss, in at least
    ``ROUNDS`` iterations, while other noise of that shape was mixed into the data of the prediction.

    Only if an optimizer stepped.
    """
    places: dict[Span | None, list[Fresh]] = {}
    for loss in story.calls(*LOSSES) if story.trace.optimizer_steps else ():
        found = _fresh(story, loss) if loss.error is None and loss.results else None
        if found is not None:
            places.setdefault(story.span(found.drawn.step), []).append(found)
    for rounds in places.values():
        if len({found.drawn.step for found in rounds}) >= ROUNDS:
            yield _finding(story, rounds[0])


def _fresh(story: Story, loss: Event) -> Fresh | None:
    labels = [o.label for o in loss.operands[:2] if o.label is not None]
    graphs = [bool((story.tensor(label, loss.step) or {}).get("requires_grad")) for label in labels]
    if sorted(graphs) != [False, True] or not _is_learned(story, loss):
        return None
    target, predicted = labels[graphs.index(False)], labels[graphs.index(True)]
    drawn = _drawn(story, target, loss.step)
    if drawn is None or any(
        use.step != loss.step and use.name not in SAME_NUMBERS for use in story.uses(drawn.results[0])
    ):
        return None  # drawn for nothing but the loss
    shape = story.shape(drawn.results[0], drawn.step)
    pending, seen, mixed = deque([(predicted, loss.step)]), {predicted}, None
    while pending and len(seen) < LIMIT:
        label, step = pending.popleft()
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            continue
        if event.step == drawn.step:
            return None
        if event.name in DRAWS and story.shape(label, event.step) == shape and _is_mixed(story, label, seen):
            mixed = (
                event if mixed is None else max(mixed, event, key=lambda each: each.step)
            )  # data may be drawn with noise of its own
        for operand in event.operands:
            if operand.label is not None and operand.label not in seen:
                seen.add(operand.label)
                pending.append((operand.label, event.step))
    return (
        Fresh(loss, target, drawn, mixed)
        if mixed is not None and len(seen) < LIMIT and _same_round(story, mixed, drawn)
        else None
    )


def _is_learned(story: Story, loss: Event) -> bool:
    graph = (story.tensor(loss.results[0], loss.step) or {}).get("grad_fn")
    return (story.record("nodes", graph) or {}).get("ran") is not None


def _drawn(story: Story, label: str, step: int) -> Event | None:
    """The call that drew, from a normal distribution, the values that a tensor has, before reshapes and conversions;
    None if there is none.
    """
    for _ in range(10):
        event = story.event((story.tensor(label, step) or {}).get("born"))
        if event is None or event.kind != "call" or label not in event.results:
            return None
        if event.name in DRAWS:
            return event
        given = [o.label for o in event.operands if o.label is not None]
        if event.name not in SAME_NUMBERS - spellings("cat", "clamp") - {"stack"} or not given or given[0] == label:
            return None
        label, step = given[0], event.step
    return None


def _is_mixed(story: Story, label: str, seen: set[str]) -> bool:
    """Whether drawn numbers, perhaps multiplied, were added to another tensor on the way to the
    prediction (tensors ``seen``).
    """
    pending, done = [label], {label}
    while pending:
        for use in story.uses(pending.pop()):
            given = [o.label for o in use.operands if o.label is not None]
            if use.name not in MIXES or not use.results or use.results[0] not in seen or use.results[0] in done:
                continue
            if use.name != "mul" and len(given) > 1:
                return True
            done.add(use.results[0])
            pending.append(use.results[0])
    return False


def _same_round(story: Story, one: Event, other: Event) -> bool:
    """Whether no update was made between the two draws: both are made for one step."""
    first, last = sorted((one.step, other.step))
    return not any(first < update.step <= last for update in story.trace.optimizer_steps)


def _finding(story: Story, found: Fresh) -> Finding:
    span, step = story.span(found.drawn.step), found.drawn.step
    here, there, loss = (at_line(story, story.span(each.step)) for each in (found.drawn, found.mixed, found.loss))
    target = expression(story, found.target, found.loss.step)
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} draws {target.en} for nothing but the loss on {loss.en}; the data was disturbed "
            f"by other noise, drawn on {there.en}.",
            zh=f"{here.zh}抽取的 {target.zh} 只用于{loss.zh}的损失；而数据是被{there.zh}抽取的另一份噪声扰动的。",
        ),
        T(
            en="The two draws have nothing to do with each other, so nothing in the network's input says what the "
            "target is. The best it can do is to answer the mean, 0, for everything. Draw the noise once, mix it in, "
            "and compare with the same tensor.",
            zh="两次抽取彼此无关，所以网络的输入里没有任何关于目标的信息。它最多只能对一切都回答平均值 0。请只抽取一次"
            "噪声，把它混入数据，并与同一个张量比较。",
        ),
        related=[
            story.related("made", found.mixed.step, T(en="this noise went into the data", zh="进入数据的是这份噪声")),
            story.related(
                "used", found.loss.step, T(en="the other noise is to be predicted here", zh="这里要预测的却是另一份")
            ),
        ],
        fixes=_fixes(story, found),
        facts=[Fact("target", found.target, story.by(step))],
    )


def _fixes(story: Story, found: Fresh) -> tuple[Fix, ...]:
    """At most one fix: it uses the first of the two draws in both places.

    Empty unless that draw is assigned to a name, and both are in one function or the second is in a function that can
    be given the noise, by an optional parameter that it has or by a new one.
    """
    program = story.program
    drawn, mixed = (program.at(story.span(each.step)) for each in (found.drawn, found.mixed))
    if drawn is None or mixed is None:
        return ()
    if program.function(drawn) is not program.function(mixed):
        return unique(program.text, [_handed_on(story, found, drawn, mixed)])
    title = T(en="Use one draw for both", zh="两处使用同一次抽取")
    for first, second in ((drawn, mixed), (mixed, drawn)):
        statement = program.parents.get(first)
        if (
            isinstance(statement, ast.Assign)
            and isinstance(statement.targets[0], ast.Name)
            and statement.lineno < getattr(second, "lineno", 0)
        ):
            return unique(
                program.text, [Fix(title, program.replace((second, statement.targets[0].id)), meaning="shape")]
            )
    return ()


def _handed_on(story: Story, found: Fresh, drawn: ast.AST, mixed: ast.AST) -> Fix | None:
    """The fix that gives the drawn target to the function that mixes noise in, so that it draws none of its own; None
    if the program's source does not show how.
    """
    program, statement, own = story.program, story.program.statement(drawn), story.program.statement(mixed)
    inner, target = program.function(mixed), statement.targets[0] if isinstance(statement, ast.Assign) else None
    if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) or not isinstance(target, ast.Name) or own is None:
        return None
    places = inner.args.posonlyargs + inner.args.args
    optional = {arg.arg for arg in (*places[len(places) - len(inner.args.defaults) :], *inner.args.kwonlyargs)}
    first = own.targets[0] if isinstance(own, ast.Assign) else None
    name = first.id if isinstance(first, ast.Name) and first.id in optional else target.id
    given = () if name in optional else _parameter_for(story, inner, mixed, name)
    caller = next(
        (each for each in call_chain(story, found.mixed) if program.function(each) is program.function(drawn)), None
    )
    calls = (
        [n for n in ast.walk(caller) if isinstance(n, ast.Call) and call_name(n) == inner.name]
        if caller is not None
        else []
    )
    if given is None or caller is None or getattr(statement, "lineno", 0) >= caller.lineno or len(calls) != 1:
        return None
    if any(word.arg in (name, None) for word in calls[0].keywords) or not (calls[0].args or calls[0].keywords):
        return None
    place = program.place(calls[0])
    end = Span(place.end_line, place.end_column - 1, place.end_line, place.end_column - 1)
    title = T(en=f"Hand the noise on: `{name}={target.id}`", zh=f"把噪声传进去：`{name}={target.id}`")
    return Fix(title, program.splice((end, f", {name}={target.id}"), *given), meaning="shape")


def _parameter_for(
    story: Story, function: ast.FunctionDef | ast.AsyncFunctionDef, mixed: ast.AST, name: str
) -> tuple[tuple[Span, str], ...] | None:
    """The changes that give a function a parameter for the noise that it draws, and let it draw only if none is given:
    places in the source with their new texts.

    None if the function has no parameters or has keyword ones or ``*`` ones, or if it uses the name already.
    """
    program, args = story.program, function.args
    places = [*args.posonlyargs, *args.args]
    if not places or args.vararg or args.kwarg or args.kwonlyargs:
        return None
    names = {
        n.id if isinstance(n, ast.Name) else n.arg for n in ast.walk(function) if isinstance(n, ast.Name | ast.arg)
    }
    if name in names:
        return None
    last = max((program.place(node) for node in (*places, *args.defaults)), key=lambda at: (at.end_line, at.end_column))
    end, draw = Span(last.end_line, last.end_column, last.end_line, last.end_column), program.segment(mixed)
    return (end, f", {name}=None"), (program.place(mixed), f"({draw} if {name} is None else {name})")


RULE = Rule(
    code="PL974",
    name="noise-to-predict-is-fresh",
    severity="warning",
    title=T(en="The noise that is to be predicted was never mixed into the data", zh="要预测的噪声从未混入数据"),
    what=T(
        en="A network is to find the noise in disturbed data. The program draws noise twice: once for the data, once "
        "for the target. No network can predict the second one. Draw it once and use the same tensor in both places.",
        zh="网络要找出被扰动的数据中的噪声。程序抽取了两次噪声：一次用于数据，一次用作目标。第二份是谁也预测不了的。请"
        "只抽取一次，两处用同一个张量。",
    ),
    why=T(
        en="Each call of `torch.randn_like` draws new numbers, of the same shape, so a loss takes any of them. "
        "`mse_loss` falls to 1, the variance of the noise, when the network has learned to answer 0, and stays there. "
        "It looks like a training that has converged.",
        zh="每次调用 `torch.randn_like` 都抽取新的数，形状相同，所以损失对哪一份都能接受。当网络学会处处回答 0 时，"
        "`mse_loss` 降到噪声的方差 1，然后停在那里，看上去就像训练已经收敛。",
    ),
    advice=T(
        en="draw the noise once, mix it into the data as on {made}, and compare with the same tensor on {used}.",
        zh="只抽取一次噪声，像{made}那样混入数据，并在{used}与同一个张量比较。",
    ),
    bad="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    noise = torch.randn_like(x)  # PL974
    disturbed = 0.8 * x + 0.6 * torch.randn_like(x)  # made
    loss = torch.nn.functional.mse_loss(net(disturbed), noise)  # used
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    good="""import torch

torch.manual_seed(0)
x = torch.randn(8, 3)
net = torch.nn.Linear(3, 3)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(3):
    noise = torch.randn_like(x)
    disturbed = 0.8 * x + 0.6 * noise
    loss = torch.nn.functional.mse_loss(net(disturbed), noise)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "0.6 * torch.randn_like(x)",
            "0.6 * torch.randn_like(x).detach()",
            T(
                en="Drawn numbers have no gradient anyway; they are still other ones than the target.",
                zh="抽取的数本来就没有梯度；它们与目标仍是两份不同的数。",
            ),
        ),
    ),
    docs=("https://docs.pytorch.org/docs/stable/generated/torch.randn_like.html",),
)
