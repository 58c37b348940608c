"""PL615: one line makes a new layer in every iteration, so what the earlier one has learned is lost."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import operand
from pitfall_lab.rules.kit.training import lives
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.optimizer_steps import copied_from
from pitfall_lab.trace import Event, Span, T

ROUNDS = 2


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each line that makes new parameters again and again, if each of them gets the gradient of
    one backward, is used by no update, and is held by no optimizer.

    Only for at least ``ROUNDS`` backwards with an optimizer step between the first and the last.
    """
    updates = story.trace.optimizer_steps
    held = {label for made in story.trace.optimizers for label in made.holds} | {
        label for update in updates for label in update.holds
    }
    # A parameter that takes the place of one that an optimizer holds is another mistake (PL606).
    replaced = {name for label in held for _, name in story.history("tensors", label, "name")}
    by_place: dict[tuple[Span, tuple[int, ...]], list[tuple[str, Event]]] = defaultdict(list)
    for label, moments in lives(story).items() if updates else ():
        record = story.tensor(label) or {}
        place = story.span(record.get("born"))
        names = {name for _, name in story.history("tensors", label, "name") if name}
        if place is None or record.get("kind") != "parameter" or label in held or names & replaced:
            continue
        if (source := copied_from(story, label)) is not None and source[0] in held:
            continue  # a copy of what is trained: the gradients may be handed over
        if [m.kind for m in moments] == ["added"]:
            by_place[place, tuple(record.get("shape") or ())].append((label, moments[0].event))
    reported = set()
    for (place, _), made in by_place.items():
        backwards = {event.step for _, event in made}
        between = [u for u in updates if min(backwards) < u.step < max(backwards)]
        if len(backwards) >= ROUNDS and between and len(made) == len(backwards) and place not in reported:
            reported.add(place)
            computed = _computed(story, made[0][0])
            yield _finding(story, made, between[0].step) if computed is None else _of_a_result(story, made, computed)


def _computed(story: Story, label: str) -> str | None:
    """The label of a tensor with a ``grad_fn`` that shares its storage with the parameter ``label``, as after
    ``nn.Parameter(w * mask)``; None if there is none.
    """
    record = story.tensor(label) or {}
    others = ((other, each) for other, each in story.tensors_on(record.get("storage")) if other != label)
    return next((other for other, each in others if each.get("grad_fn") is not None), None)


def _of_a_result(story: Story, made: list[tuple[str, Event]], computed: str) -> Finding:
    """The finding for a parameter that is made from a computed tensor in every iteration, so that the gradient stops
    there.

    With a fix that leaves out ``nn.Parameter``, if the program's source shows that call.
    """
    (label, backward), program = made[0], story.program
    born = (story.tensor(computed) or {}).get("born")
    node = program.at(story.span(born)) if program.tree is not None else None
    calls = (
        [a for a in program.ancestors(node) if isinstance(a, ast.Call) and call_name(a) == "Parameter"]
        if node is not None
        else []
    )
    span = program.place(calls[0]) if calls else story.span(born)
    here, back, name = (
        at_line(story, span),
        at_line(story, story.span(backward.step)),
        called(story, label, None, backward.step),
    )
    code = snippet(story, story.span(born))
    fixes = []
    if calls and calls[0].args:
        alone = isinstance(program.parents.get(calls[0]), ast.Assign | ast.Return | ast.Call | ast.keyword)
        text = program.segment(calls[0].args[0]) if alone else operand(program, calls[0].args[0])
        title = T(en=f"Use the result itself: `{text}`", zh=f"使用结果本身：`{text}`")
        fixes = [Fix(title, program.replace((calls[0], text)), meaning="root")]
    return RULE.finding(
        span,
        born,
        T(
            en=f"{capital(here.en)} makes a new parameter {name.en} of the result of `{code}` in every round: the "
            f"backward on {back.en} ends there, and what the result was computed from is not trained.",
            zh=f"{here.zh}在每一轮都由 `{code}` 的结果新建参数 {name.zh}：{back.zh}的反向传播到此为止，算出这个结"
            "果的东西没有被训练。",
        ),
        T(
            en="A parameter is a leaf: it has no `grad_fn`, whatever it was made of. Its gradient is computed "
            "once and thrown away with it, and the optimizer does not hold it. A result that is used as a weight "
            "needs no `nn.Parameter` around it.",
            zh="参数是叶子：不管由什么制成，它都没有 `grad_fn`。它的梯度只算一次，然后随它一起丢掉，而优化器并不持有"
            "它。用作权重的结果不需要包上 `nn.Parameter`。",
        ),
        related=[
            story.related("made", born, T(en="a new parameter in every round", zh="每一轮一个新的参数")),
            story.related("backward", backward.step, T(en="its gradient is computed once", zh="它的梯度只算一次")),
        ],
        fixes=unique(program.text, fixes),
        facts=[Fact("made", len(made), story.by(backward.step))],
    )


def _finding(story: Story, made: list[tuple[str, Event]], update: int) -> Finding:
    label, backward = made[0]
    born = (story.tensor(label) or {}).get("born")
    span, name = story.span(born), called(story, label, None, backward.step)
    here, there = at_line(story, span), at_line(story, story.span(update))
    return RULE.finding(
        span,
        born,
        T(
            en=f"{capital(here.en)} makes a new {name.en} in every round; each of the {len(made)} that were recorded "
            f"gets a gradient once, and {there.en} updates none.",
            zh=f"{here.zh}在每一轮都新建一个 {name.zh}；记录到的 {len(made)} 个，每个只得到一次梯度，"
            f"而{there.zh}一个也不更新。",
        ),
        T(
            en=f"`{snippet(story, span)}` draws new weights each time. The optimizer was given the parameters "
            "that there were when it was made, and these are not among them. Make the layer once, before the "
            "optimizer, and keep it.",
            zh=f"`{snippet(story, span)}` 每次都抽取新的权重。优化器拿到的是它创建时已有的参数，这些不在其中。请只创建"
            "一次这一层（在优化器之前），并把它留下。",
        ),
        related=[
            story.related("made", born, T(en="a new layer in every round", zh="每一轮一个新的层")),
            story.related("backward", backward.step, T(en="its gradient is computed once", zh="它的梯度只算一次")),
            story.related("step", update, T(en="this update does not know it", zh="这次更新不知道它")),
        ],
        fixes=_fixes(story, born),
        facts=[Fact("made", len(made), story.by(backward.step))],
    )


def _fixes(story: Story, born: int | None) -> tuple[Fix, ...]:
    """Fixes that move the line of the layer in front of the line of the first optimizer, and give that
    optimizer its parameters too.

    Empty unless both lines are single assignments, that of the layer assigns what a call returns, and that of the
    optimizer is a call with the parameters as its first argument.
    """
    program = story.program
    maker = next(iter(call_chain(story, story.line_event(born))), None) if program.tree is not None else None
    optimizer = program.statement_at(story.trace.optimizers[0].span) if story.trace.optimizers else None
    if (
        not isinstance(maker, ast.Assign)
        or not isinstance(maker.value, ast.Call)
        or not isinstance(optimizer, ast.Assign)
    ):
        return ()
    given = optimizer.value.args[:1] if isinstance(optimizer.value, ast.Call) else []
    if not given or not program.stands_alone(maker) or not program.stands_alone(optimizer):
        return ()
    name, first = program.segment(maker.targets[0]), given[0]
    both = f"[*{program.segment(first)}, *{name}.parameters()]"
    new = program.segment(maker) + "\n" + program.indent(optimizer) + program.rewritten(optimizer, (first, both))
    edits = merge(program.delete(maker), program.replace((optimizer, new)))
    title = T(en=f"Make `{name}` once, and give it to the optimizer", zh=f"只创建一次 `{name}`，并交给优化器")
    return unique(program.text, [Fix(title, edits, meaning="later")]) if edits else ()


RULE = Rule(
    code="PL615",
    name="layer-made-in-every-round",
    severity="warning",
    title=T(en="A layer is made anew in every round, and never learns", zh="每一轮都新建一个层，它从未学到东西"),
    what=T(
        en="A program makes a layer where it uses it, in the function that computes the results. Every call "
        "begins with other random weights, and what a round has learned about them is thrown away. Make layers "
        "once, where the model is made.",
        zh="程序在使用某个层的地方（计算结果的函数里）创建它。于是每次调用都从另一组随机权重开始，一轮里学到的东西随即"
        "丢掉。请在创建模型的地方，只创建一次各层。",
    ),
    why=T(
        en="`nn.Linear(…)` is no operation: it makes an object with parameters of its own, filled with random "
        "numbers. An optimizer updates the parameters that it was given, and a model's `parameters()` are those of "
        "the layers that are its attributes. A layer that a function makes is neither; it ends with the function. "
        "Where a size is known only from the data, `nn.LazyLinear` waits for it.",
        zh="`nn.Linear(…)` 不是一种运算：它创建一个带有自己参数的对象，并填入随机数。优化器只更新交给它的参数，而模型"
        "的 `parameters()` 是作为属性的各层的参数。函数里创建的层两者都不是，函数结束它也就没了。如果大小要由数据决"
        "定，可以用 `nn.LazyLinear`。",
    ),
    advice=T(
        en="make the layer of {made} once, before the loop, and give its parameters to the optimizer.",
        zh="只在循环之前创建一次{made}的层，并把它的参数交给优化器。",
    ),
    bad="""import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(2, 3)
x, y = torch.randn(4, 2), torch.randn(4, 1)
opt = torch.optim.SGD(body.parameters(), lr=0.1)
for _ in range(3):
    head = nn.Linear(3, 1)  # PL615 made
    loss = nn.functional.mse_loss(head(torch.relu(body(x))), y)
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()  # step
    print(loss.item())
""",
    good="""import torch
from torch import nn

torch.manual_seed(0)
body = nn.Linear(2, 3)
x, y = torch.randn(4, 2), torch.randn(4, 1)
head = nn.Linear(3, 1)
opt = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)
for _ in range(3):
    loss = nn.functional.mse_loss(head(torch.relu(body(x))), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print(loss.item())
""",
    find=find,
    traps=(
        Trap(
            "    opt.zero_grad()\n",
            "    opt.zero_grad()\n    head.zero_grad()\n",
            T(en="Its gradient was never the trouble: no update uses it.", zh="问题不在它的梯度：没有更新使用它。"),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.nn.LazyLinear.html",
        "https://docs.pytorch.org/docs/stable/optim.html",
    ),
)
