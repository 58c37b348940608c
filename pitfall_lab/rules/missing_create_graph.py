"""PL509: a gradient was to be differentiated again, but torch had not recorded how it was computed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.flow import FACTORS, SUMS, Cut, Flow, LostTerm
from pitfall_lab.rules.kit.rebinding import rebindings
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.wording import at_line, called, capital, expression
from pitfall_lab.rules.signals.constant_derivatives import Constant, constant_derivative, untrained_term
from pitfall_lab.rules.signals.operand_names import shown
from pitfall_lab.trace import Event, Failure, Span, T

PARTS = {"__getitem__", "view", "reshape", "unsqueeze", "select", "clone"}
"""Calls that a gradient is followed through besides factors."""
UNRECORDED = T(
    en="A gradient is a result like any other and depends on the parameters too, but torch records its computation "
    "only with `create_graph=True`, because that costs time and memory that ordinary training does not need. Without "
    "it the gradient is plain numbers.",
    zh="梯度和其他结果一样，也依赖参数；但只有用 `create_graph=True` 要求时，torch 才记录它的计算，因为这要花费时间和"
    "内存，而普通训练并不需要。没有要求时，梯度只是普通的数值。",
)


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each gradient without a graph of its own through which a backward should have gone.

    Torch refused that backward; or the gradient was one term of a loss, was combined with one that has a graph or with
    the output of the network in an equation that is trained, or was used for a step that a later backward went through
    (then a note).
    """
    flow = Flow(story)
    rebound = {found.trouble for found in rebindings(story)}  # a parameter that lost its name: another rule
    for step, failure in story.failures("no-gradient"):
        if step in rebound:
            continue
        start = story.tensor(failure.tensor, step)
        cuts = flow.cuts(failure.tensor, step) if start is not None and not start.get("requires_grad") else []
        if cuts and cuts[0].kind == "gradient" and (maker := _maker(story, cuts[0], step)) is not None:
            if any(o.name == "create_graph" and o.text == "True" for o in maker.operands):
                continue  # that gradient does not depend on anything that requires grad
            yield _finding(story, step, failure, maker)
    terms = set[Span | None]()
    for lost in flow.lost_terms():
        maker = _maker(story, lost.cuts[0], lost.at) if lost.cuts[0].kind == "gradient" else None
        if maker is not None:
            terms.add(story.span(maker.step))
            yield _silent(story, lost, maker)
    yield from _as_numbers(story, flow, terms)


def _as_numbers(story: Story, flow: Flow, terms: set[Span | None]) -> Iterator[Finding]:
    """Yield one finding for each line whose gradient without a graph is combined with what is trained; none for the
    lines of ``terms``.
    """
    held, told = {label for update in story.trace.optimizer_steps for label in update.holds}, set[Span | None]()
    for maker in story.calls("grad"):
        place, found = story.span(maker.step), None
        if maker.op != "torch.autograd.grad" or place in told:
            continue
        if (met := _beside_another(story, maker)) is not None:
            found = _half(story, maker, met)
        elif (inner := _step_inside(story, maker)) is not None:
            found = _first_order(story, maker, inner)
        elif held and place not in terms and (constant := constant_derivative(story, flow, maker, held)) is not None:
            found = _constant(story, maker, constant)
        elif held and place not in terms and (constant := untrained_term(story, flow, maker, held)) is not None:
            found = _untrained(story, maker, constant)
        if found is not None:
            told.add(place)
            yield found


def _step_inside(story: Story, maker: Event) -> Event | None:
    """The update ``p - lr * g`` by a gradient without a graph, if a later backward went through the updated tensor;
    else None.

    The gradient may be multiplied by factors before.
    """
    inputs = {o.label for o in maker.operands[1:] if o.label is not None}
    for result in maker.results if maker.error is None else ():
        pending = [] if (story.tensor(result, maker.step) or {}).get("requires_grad") else [result]
        while pending:
            label = pending.pop()
            for use in story.uses(label):
                given = [o.label for o in use.operands if o.label is not None]
                if (
                    use.step < maker.step
                    or use.error is not None
                    or not use.results
                    or use.results[0] in (label, *inputs)
                ):
                    continue
                if use.name in SUMS and len(given) == 2 and inputs & set(given):
                    graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                    ran = (story.record("nodes", graph) or {}).get("ran")
                    if ran is not None and ran > use.step and story.outer_call(ran) is not story.outer_call(maker.step):
                        return use
                elif use.name in FACTORS and len(given) == 1:
                    pending.append(use.results[0])
    return None


def _first_order(story: Story, maker: Event, step: Event) -> Finding:
    """The note for an update by a gradient without a graph: a later backward goes through the
    update, not through that gradient.
    """
    here, there = at_line(story, story.span(maker.step)), at_line(story, story.span(step.step))
    return RULE.finding(
        story.span(maker.step),
        maker.step,
        T(
            en=f"{capital(there.en)} makes a step with the gradient of {here.en}, which has no record: a later "
            "backward takes the gradient in this step for a constant.",
            zh=f"{there.zh}用{here.zh}的梯度走了一步，而它没有记录：之后的反向传播把这一步里的梯度当作常数。",
        ),
        T(
            en=UNRECORDED.en
            + (
                " What is learned through such a step lacks how its gradient depends on the parameters (second "
                "order). As first-order meta-learning this is meant; otherwise pass `create_graph=True`."
            ),
            zh=UNRECORDED.zh
            + (
                "通过这样一步学到的东西，缺少梯度随参数变化的那一部分（二阶项）。如果要的是一阶元学习，这没有错；否则"
                "请传入 `create_graph=True`。"
            ),
        ),
        related=[story.related("used", step.step, T(en="the step is made here", zh="在这里走了一步"))],
        fixes=[replace(fix, meaning="later") for fix in _fixes(story, maker)],
        facts=[Fact("maker", maker.op, story.by(maker.step))],
        severity="info",
    )


def _beside_another(story: Story, maker: Event) -> Event | None:
    """The sum, on the way to a loss, of a gradient without a graph and one with a graph: probably
    both were to be differentiated.

    None if there is none.
    """
    for result in maker.results if maker.error is None else ():
        pending = [] if (story.tensor(result, maker.step) or {}).get("requires_grad") else [result]
        while pending:
            label = pending.pop()
            for use in story.uses(label):
                given = [o.label for o in use.operands if o.label is not None]
                if use.step < maker.step or use.error is not None or not use.results or use.results[0] == label:
                    continue
                if use.name in SUMS and len(given) > 1:
                    other = given[0] if given[1] == label else given[1]
                    graph = (story.tensor(use.results[0], use.step) or {}).get("grad_fn")
                    if (
                        _is_gradient(story, other, use.step)
                        and (story.record("nodes", graph) or {}).get("ran") is not None
                    ):
                        return use
                elif use.name in FACTORS | PARTS and len(given) == 1:
                    pending.append(use.results[0])
    return None


def _is_gradient(story: Story, label: str, step: int) -> bool:
    """Whether a tensor is a result of ``autograd.grad`` with a graph, possibly a part of it or
    times a factor without a graph.
    """
    for _ in range(10):
        record = story.tensor(label, step) or {}
        event = story.event(record.get("born"))
        if event is None or not record.get("requires_grad"):
            return False
        if event.op == "torch.autograd.grad":
            return True
        given = [
            o.label
            for o in event.operands
            if o.label is not None and (story.tensor(o.label, event.step) or {}).get("requires_grad")
        ]
        if event.name not in FACTORS | PARTS or len(given) != 1:
            return False
        label, step = given[0], event.step
    return False


def _half(story: Story, maker: Event, met: Event) -> Finding:
    """The finding for a gradient without a graph that is added to another gradient which has one."""
    here, there = at_line(story, story.span(maker.step)), at_line(story, story.span(met.step))
    what = expression(story, maker.results[0], met.step)
    return RULE.finding(
        story.span(maker.step),
        maker.step,
        T(
            en=f"{capital(here.en)} computes a gradient without keeping a record of how, and {there.en} combines it "
            f"with one that has a record: through {what.en} no parameter learns.",
            zh=f"{here.zh}求出了梯度，却没有记录是怎么求的；{there.zh}把它与有记录的梯度合在一起：没有参数能通过 "
            f"{what.zh} 学到东西。",
        ),
        UNRECORDED,
        related=[
            story.related(
                "used", met.step, T(en=f"{what.en} is taken here as plain numbers", zh=f"{what.zh} 在这里只是普通的数")
            )
        ],
        fixes=[replace(fix, meaning="term") for fix in _fixes(story, maker)],
        facts=[Fact("maker", maker.op, story.by(maker.step))],
        severity="warning",
    )


def _constant(story: Story, maker: Event, found: Constant) -> Finding:
    """The finding for a derivative without a graph in an equation of which the rest is trained."""
    here, there = at_line(story, story.span(maker.step)), at_line(story, story.span(found.joined.step))
    what, other = expression(story, maker.results[0], found.joined.step), shown(story, found.joined, found.other)
    taken = T(en=f"{what.en} is taken here as plain numbers", zh=f"{what.zh} 在这里只是普通的数")
    return RULE.finding(
        story.span(maker.step),
        maker.step,
        T(
            en=f"{capital(here.en)} computes a derivative without keeping a record of how: in the equation on "
            f"{there.en}, {what.en} is a constant, and only {other.en} is trained.",
            zh=f"{here.zh}求出了导数，却没有记录是怎么求的：在{there.zh}的方程里 {what.zh} 是常数，只有 "
            f"{other.zh} 得到训练。",
        ),
        T(
            en=UNRECORDED.en
            + (
                " The loss is right, and its gradient is not: the rest of the equation is made to follow the "
                "derivative. `retain_graph=True` only keeps a graph that exists."
            ),
            zh=UNRECORDED.zh
            + (
                "损失是对的，它的梯度却不对：训练只让方程的其余部分去迁就这个导数。"
                "`retain_graph=True` 只保留已有的计算图。"
            ),
        ),
        related=[story.related("used", found.joined.step, taken)],
        fixes=[replace(fix, meaning="later") for fix in _fixes(story, maker)],
        facts=[Fact("maker", maker.op, story.by(maker.step))],
        severity="warning",
    )


def _untrained(story: Story, maker: Event, found: Constant) -> Finding:
    """The finding for a derivative without a graph in a loss term that requires grad through its inputs only."""
    here, there = at_line(story, story.span(maker.step)), at_line(story, story.span(found.joined.step))
    label = next(o.label for o in found.joined.operands if o.label not in (None, found.other))
    term, other = shown(story, found.joined, str(label)), shown(story, found.joined, found.other)
    joined = T(en=f"{term.en} is added here, and trains nothing", zh=f"{term.zh} 在这里被加上，却什么也不训练")
    return RULE.finding(
        story.span(maker.step),
        maker.step,
        T(
            en=f"{capital(here.en)} computes a derivative without keeping a record of how: of the loss on {there.en}, "
            f"only {other.en} trains the model, and {term.en} reaches 0 parameters.",
            zh=f"{here.zh}求出了导数，却没有记录是怎么求的：{there.zh}的损失里只有 {other.zh} 在训练模型，"
            f"{term.zh} 到达 0 个参数。",
        ),
        T(
            en=UNRECORDED.en
            + (
                f" Here {term.en} does require grad, because the inputs in it do; that is why nothing is raised. Its "
                "gradient ends at these inputs. `retain_graph=True` only keeps a graph that exists."
            ),
            zh=UNRECORDED.zh
            + (
                f"这里 {term.zh} 确实需要梯度，因为其中的输入需要梯度；所以没有报错。但它的梯度只到这些输入为止。"
                "`retain_graph=True` 只保留已有的计算图。"
            ),
        ),
        related=[story.related("used", found.joined.step, joined)],
        fixes=[replace(fix, meaning="later") for fix in _fixes(story, maker)],
        facts=[Fact("maker", maker.op, story.by(maker.step)), Fact("parameters", 0)],
        severity="warning",
    )


def _silent(story: Story, lost: LostTerm, maker: Event) -> Finding:
    """The finding for a loss with other terms, so that torch raises no error although nothing learns from the term
    without a graph.
    """
    here, back = at_line(story, story.span(maker.step)), at_line(story, story.span(lost.backward.step))
    term = expression(story, lost.term, lost.at)
    return RULE.finding(
        story.span(maker.step),
        maker.step,
        T(
            en=f"{capital(here.en)} computes a gradient without keeping a record of how, so {term.en} only shifts the "
            f"loss on {back.en}: no parameter learns from it.",
            zh=f"{here.zh}求出了梯度，却没有记录是怎么求的；于是 {term.zh} 只是让{back.zh}的损失平移：没有任何"
            "参数会从中学到东西。",
        ),
        UNRECORDED,
        related=[
            story.related(
                "made",
                maker.step,
                T(en="this gradient has no record of how it was computed", zh="这个梯度没有计算的记录"),
            ),
            story.related(
                "used",
                lost.at,
                T(en=f"{term.en} is added here as a plain number", zh=f"{term.zh} 在这里作为普通的数被加上"),
            ),
            story.related(
                "backward",
                lost.backward.step,
                T(en="backward starts here and does not reach it", zh="从这里往回走，却绕过了它"),
            ),
        ],
        fixes=[replace(fix, meaning="term") for fix in _fixes(story, maker)],
        facts=[Fact("maker", maker.op, story.by(maker.step))],
        severity="warning",
    )


def _maker(story: Story, cut: Cut, step: int) -> Event | None:
    """The backward that computed the gradient: the call itself, or the last ``backward()`` before ``.grad`` was read.

    None if there is none.
    """
    if cut.event.op == "torch.autograd.grad":
        return cut.event
    tensor = story.tensor(cut.tensor, cut.event.step) or {}
    born = [at for at, value in story.history("tensors", cut.tensor, "grad") if value is not None and at <= step]
    return story.outer_call(born[-1]) if born and tensor.get("requires_grad") else None


def _finding(story: Story, step: int, failure: Failure, maker: Event) -> Finding:
    span = story.span(maker.step)
    here, again = at_line(story, span), at_line(story, story.span(step))
    start = called(story, failure.tensor, None, step, (story.tensor(failure.tensor) or {}).get("born"))
    return RULE.finding(
        span,
        maker.step,
        T(
            en=f"{capital(here.en)} computes a gradient without keeping a record of how, but {again.en} computes the "
            f"gradient of {start.en}, which was computed from it.",
            zh=f"{here.zh}求出了梯度，却没有记录是怎么求的；而{again.zh}要对由它算出的 {start.zh} 再求梯度。",
        ),
        UNRECORDED,
        related=[
            story.related(
                "made",
                maker.step,
                T(en="this gradient has no record of how it was computed", zh="这个梯度没有计算的记录"),
            ),
            story.related(
                "backward",
                step,
                T(en="its own gradient is to be computed here, and torch raises", zh="这里要对它再求梯度，torch 报错"),
            ),
        ],
        fixes=_fixes(story, maker),
        facts=[Fact("maker", maker.op, story.by(maker.step))],
        predicted=story.predicted(failure, step),
    )


def _fixes(story: Story, maker: Event) -> tuple[Fix, ...]:
    program = story.program
    call = program.at(story.span(maker.step)) if program.tree else None
    if not isinstance(call, ast.Call) or call_name(call) not in ("grad", "backward"):
        return ()
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    title = T(en="Record the first gradient: `create_graph=True`", zh="记录第一次求梯度的过程：`create_graph=True`")
    if "create_graph" in given:
        edits = program.replace((given["create_graph"], "True"))
    elif "retain_graph" in given:  # the default of retain_graph is the value of create_graph
        keyword = next(k for k in call.keywords if k.arg == "retain_graph")
        edits = program.replace((keyword, "create_graph=True"))
    else:
        last = max(
            [*call.args, *(k.value for k in call.keywords)],
            key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0),
            default=None,
        )
        if last is None:
            edits = program.replace((call, f"{program.segment(call.func)}(create_graph=True)"))
        else:
            edits = program.replace((last, f"{program.segment(last)}, create_graph=True"))
    return unique(program.text, [Fix(title, merge(edits) or (), meaning="connect")])


RULE = Rule(
    code="PL509",
    name="missing-create-graph",
    severity="error",
    title=T(en="A gradient was differentiated that torch had not recorded", zh="对没有记录的梯度再求梯度"),
    what=T(
        en="A loss contains a gradient (a penalty on its size, or a second derivative), but torch had thrown away how "
        "that gradient was computed. Pass `create_graph=True` where the first gradient is computed.",
        zh="损失里含有梯度（例如对梯度大小的惩罚，或二阶导数），但 torch 没有保留这个梯度的计算过程。请在第一次求梯度"
        "的地方加上 `create_graph=True`。",
    ),
    why=T(
        en="The record of a computation is its *graph*. Backward walks the graph of the forward pass; the "
        "multiplications it does on the way are computations too, but no graph is built for them without "
        "`create_graph=True`. With it the gradient has a `grad_fn` of its own and can be part of a loss. It also "
        "keeps the first graph, so `retain_graph` is not needed besides it. Prefer `torch.autograd.grad` to "
        "`backward(create_graph=True)`: the latter ties every parameter and its `.grad` to each other in memory.",
        zh="计算的记录就是它的*计算图*。反向传播沿着前向计算的图走；途中做的乘法也是计算，但除非用 "
        "`create_graph=True` 要求，否则不会为它们建图。有了它，梯度就有自己的 `grad_fn`，可以成为损失的一部分。它也会"
        "保留第一张图，所以不必再写 `retain_graph`。请优先使用 `torch.autograd.grad`，而不是 "
        "`backward(create_graph=True)`：后者会让每个参数和它的 `.grad` 在内存中互相牵住。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -1.0], requires_grad=True)
score = (w * x**2).sum()
(slope,) = torch.autograd.grad(score, x)  # PL509 made
penalty = (slope.norm() - 1) ** 2
penalty.backward()  # backward
print(w.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
w = torch.tensor([0.5, -1.0], requires_grad=True)
score = (w * x**2).sum()
(slope,) = torch.autograd.grad(score, x, create_graph=True)
penalty = (slope.norm() - 1) ** 2
penalty.backward()
print(w.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.autograd.grad(score, x)",
            "torch.autograd.grad(score, x, retain_graph=True)",
            T(
                en="`retain_graph=True` keeps the graph of the forward pass. The gradient itself still has no graph.",
                zh="`retain_graph=True` 保留的是前向计算的图，梯度本身仍然没有图。",
            ),
        ),
        Trap(
            "penalty.backward()",
            "penalty.requires_grad_().backward()",
            T(
                en="The error is gone, and so is the penalty: `penalty` is a leaf now, so its backward does not "
                "reach `w`, and `w.grad` stays `None`.",
                zh="不再报错，惩罚也随之失效：`penalty` 现在是叶子，它的反向传播到不了 `w`，`w.grad` 一直是 `None`。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad.html",
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
    ),
)
