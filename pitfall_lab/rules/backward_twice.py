"""PL501: two backwards went through the same graph. The first one frees it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pitfall_lab.rules.kit.call_stack import call_chain
from pitfall_lab.rules.kit.finding import Edit, Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.second_backward import Reuse, builders, indented, reuses, root
from pitfall_lab.rules.kit.source import merge
from pitfall_lab.rules.kit.story import Story
from pitfall_lab.rules.kit.syntax import called as call_name
from pitfall_lab.rules.kit.syntax import is_name, operand
from pitfall_lab.rules.kit.wording import at_line, called, capital, snippet
from pitfall_lab.rules.signals.shared_memory import names_of
from pitfall_lab.trace import T


def find(story: Story) -> Iterator[Finding]:
    """Yield one finding for each backward that raised because an earlier backward had freed its graph.

    Nothing if the two ran in different iterations of a loop, from one line or from two: other rules are about that.
    """
    for reuse in reuses(story):
        if reuse.loop() is None:
            yield _finding(reuse)


def _finding(reuse: Reuse) -> Finding:
    story, step = reuse.story, reuse.backward.step
    span = story.span(step)
    shared = reuse.shared()
    born = (story.tensor(shared) or {}).get("born") if shared is not None else None
    born = reuse.born if born is None or born >= reuse.freed.step else born
    here, before, built = (at_line(story, story.span(at)) for at in (step, reuse.freed.step, born))
    what = (
        called(story, shared, None, step, born)
        if shared is not None
        else T(en="what was computed there", zh="那里算出的结果")
    )
    name = (story.record("nodes", reuse.failure.node) or {}).get("name") or "an operation"
    return RULE.finding(
        span,
        step,
        T(
            en=f"{capital(here.en)} goes back through the computation of {what.en} ({built.en}) a second time; "
            f"{before.en} did so before and used it up.",
            zh=f"{here.zh}第二次沿着 {what.zh}（{built.zh}）的计算往回走；{before.zh}已经走过一次，把它用完了。",
        ),
        T(
            en=f"To find gradients torch walks back through what it recorded up to {built.en}. `{name}` in it had "
            f"kept numbers for this. They were given back when {before.en} had used them, to save memory. On "
            f"{here.en} they are needed again, and they are gone.",
            zh=f"求梯度时，torch 沿着它到{built.zh}为止记录的计算往回走。其中的 `{name}` 为此留下了一些数值。"
            f"{before.zh}用过之后，为了节省内存，它们被释放了。{here.zh}又需要它们，但已经没有了。",
        ),
        related=[
            story.related(
                "made", born, T(en=f"{what.en} is computed, and recorded, here", zh=f"{what.zh} 在这里算出并被记录")
            ),
            story.related(
                "freed",
                reuse.freed.step,
                T(en="this backward uses the record and frees it", zh="这次反向传播用过记录之后把它释放"),
            ),
            story.related(
                "backward",
                step,
                T(en="the record is needed again here, and torch raises", zh="这里又需要这份记录，torch 报错"),
            ),
        ],
        fixes=_fixes(reuse),
        facts=[Fact("node", reuse.failure.node, story.by(step))],
        predicted=story.predicted(reuse.failure, step),
        advice=None
        if _has_another_leaf(reuse)
        else T(
            en=f"Compute the result of {built.en} again before {here.en}, or let the backward on {before.en} keep "
            "the record: `backward(retain_graph=True)`.",
            zh=f"在{here.zh}之前重新计算{built.zh}的结果，或让{before.zh}的反向传播保留记录："
            "`backward(retain_graph=True)`。",
        ),
    )


def _has_another_leaf(reuse: Reuse) -> bool:
    """Whether the first backward reaches a leaf by a path that does not lead through the shared tensor.

    Without such a leaf the first backward computes no gradient once the shared tensor is detached.
    """
    story = reuse.story
    ends, todo = {(story.tensor(reuse.shared()) or {}).get("grad_fn")}, []
    todo.append((story.tensor(root(reuse.freed), reuse.freed.step) or {}).get("grad_fn"))
    while todo:
        node = todo.pop()
        record = story.record("nodes", node) if node not in ends else None
        if record is not None:
            ends.add(node)
            if record.get("name") == "AccumulateGrad":
                return True
            todo += record.get("next") or ()
    return False


def _fixes(reuse: Reuse) -> tuple[Fix, ...]:
    story, program = reuse.story, reuse.story.program
    first = program.statement_at(story.span(reuse.freed.step))
    second = reuse.statement
    if first is None or second is None:
        return ()
    return unique(
        program.text, [*_detached(reuse, first), _together(reuse, first, second), _again(reuse, first, second)]
    )


def _detached(reuse: Reuse, first: ast.stmt) -> Iterator[Fix]:
    """Yield fixes that detach the shared tensor in one of the two backwards; a fix is right if no gradient is wanted
    there.

    It is right if the program ends with the same gradients when the graph is retained for the second backward instead.
    Nothing if the first backward is not a plain ``loss.backward()``, or if the shared tensor is the one that a backward
    starts from.
    """
    story, program, shared = reuse.story, reuse.story.program, reuse.shared()
    start = _plain_backward(first)
    if start is None or shared is None or shared in (root(reuse.freed), reuse.root):
        return
    kept = program.replace((first, f"{operand(program, start)}.backward(retain_graph=True)"))
    makers = list(call_chain(story, story.event((story.tensor(shared) or {}).get("born"))))
    names = {program.segment(m.targets[0]) for m in makers if isinstance(m, ast.Assign) and is_name(m.targets[0])}
    names |= names_of(story, (story.tensor(shared) or {}).get("storage"), reuse.backward.step)
    uses = (program.at(story.span(use.step)) for use in story.uses(shared) if use.step < reuse.backward.step)
    begun = max((m.lineno for m in makers if program.block(m) is program.block(first)), default=first.lineno)
    between = (
        (s for s in program.block(first) if begun < s.lineno <= reuse.statement.lineno)
        if reuse.statement is not None
        else ()
    )
    inside = (
        n for statement in (*uses, *between) if statement is not None for n in ast.walk(statement)
    )  # used there, or handed on
    places = dict.fromkeys(n for n in inside if isinstance(n, ast.expr) and is_name(n) and program.segment(n) in names)
    for place in places:
        if isinstance(getattr(place, "ctx", None), ast.Load):
            text = f"{program.segment(place)}.detach()"
            title = T(en=f"End that backward before: `{text}`", zh=f"让那次反向传播在此之前结束：`{text}`")
            yield Fix(title, program.replace((place, text)), reference=kept)


def _together(reuse: Reuse, first: ast.stmt, second: ast.stmt) -> Fix | None:
    """Return a fix that replaces ``first.backward(); second.backward()`` by one backward of the sum, with the same
    gradients.

    None unless both are plain calls in this order in one block, on two tensors, with neither ``grad`` nor ``step`` in
    the statements in between.
    """
    program = reuse.story.program
    roots = [_plain_backward(statement) for statement in (first, second)]
    block = program.block(first)
    if roots[0] is None or roots[1] is None or second not in block or block.index(first) >= block.index(second):
        return None
    texts = [operand(program, each) for each in roots if each is not None]
    between = " ".join(program.segment(s) for s in block[block.index(first) + 1 : block.index(second)])
    if texts[0] == texts[1] or "grad" in between or "step" in between:
        return None  # the gradients of the first are looked at, or used, before the second
    edits = merge(program.delete(first), program.replace((second, f"({texts[0]} + {texts[1]}).backward()")))
    kept = program.replace((first, f"{texts[0]}.backward(retain_graph=True)"))
    title = T(en="Go back once, from the sum of both", zh="从两者之和出发，只反向传播一次")
    return Fix(title, edits, reference=kept) if edits else None


def _again(reuse: Reuse, first: ast.stmt, second: ast.stmt) -> Fix | None:
    """Return a fix that repeats, before the second backward, the computation that it needs.

    None unless that computation consists of assignments above the first backward, in the block of the second one.
    """
    program = reuse.story.program
    built = [s for s in builders(reuse.story, reuse.backward) if s in program.block(second) and s.lineno < first.lineno]
    if (
        not built
        or not program.stands_alone(second)
        or any(not isinstance(s, ast.Assign | ast.AnnAssign) for s in built)
    ):
        return None
    indent, last = program.indent(second), program.place(first).end_line
    text = "".join(indented(program, statement, indent) for statement in built)
    edit = Edit(last, last, _whole(program.lines[last - 1]) + text)
    shown = snippet(reuse.story, program.place(built[-1]), 40)
    title = T(en=f"Compute it again before going back again (`{shown}`)", zh=f"再次反向传播之前重新计算（`{shown}`）")
    return Fix(title, (edit,), meaning="recompute")


def _whole(line: str) -> str:
    return line if line.endswith(("\n", "\r")) else line + "\n"


def _plain_backward(statement: ast.stmt) -> ast.expr | None:
    """Return the expression ``loss`` of a statement ``loss.backward()`` without arguments; None for any other
    statement.
    """
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or call_name(call) != "backward" or call.args or call.keywords:
        return None
    return call.func.value if isinstance(call.func, ast.Attribute) else None


RULE = Rule(
    code="PL501",
    name="backward-twice",
    severity="error",
    title=T(en="The same computation was gone back through twice", zh="沿着同一次计算反向传播了两次"),
    what=T(
        en="Gradients were computed twice from one computation, but its record had been thrown away after the first "
        "time. Compute both gradients at once, or compute the result again before the second time.",
        zh="对同一次计算求了两次梯度，但第一次之后它的记录已经被丢掉了。请一次求完，或者在再次求之前重新计算结果。",
    ),
    why=T(
        en="While your program computes, torch records how (this record is the *graph*), and some operations keep "
        "their inputs or results for the backward pass. `backward()` uses them and frees them at once: ordinary "
        "training does not need them any more, and they are the largest part of its memory. Two losses that share "
        "a part of their computation share its record as well. Gradients are *added* into `.grad`, so one "
        "backward from the sum of two losses gives what two backwards would. `retain_graph=True` keeps the "
        "record; it is right when the gradients of the two are wanted separately, and a leak of memory when it is "
        "only there to silence the error.",
        zh="程序计算时，torch 会记录是怎么算的（这份记录就是*计算图*），有些运算还会留下输入或结果，供往回走时使用。"
        "`backward()` 用过之后立即释放它们：普通训练中没人再需要，而它们占了内存的大部分。两个损失如果共用一段计算，也"
        "就共用它的记录。梯度是*累加*进 `.grad` 的，所以对两个损失之和反向传播一次，结果与两次相同。"
        "`retain_graph=True` 会保留记录：需要分别得到两个梯度时是对的；只为消除报错而加，就是浪费内存。",
    ),
    advice=T(
        en="if the backward on {freed} is not meant to go through {made}, give it the `.detach()` of that result; else "
        "compute the result again before {backward}, or let the backward on {freed} keep the record: "
        "`backward(retain_graph=True)`.",
        zh="如果{freed}的反向传播不该经过{made}，就给它那个结果的 `.detach()`；否则在{backward}之前重新计算那个结果，"
        "或让{freed}的反向传播保留记录：`backward(retain_graph=True)`。",
    ),
    bad="""import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
h = torch.exp(x)  # made
first = h.sum()
second = (h * h).sum()
first.backward()  # freed
second.backward()  # PL501 backward
print(x.grad)
""",
    good="""import torch

x = torch.tensor([1.0, 2.0], requires_grad=True)
h = torch.exp(x)
first = h.sum()
second = (h * h).sum()
(first + second).backward()
print(x.grad)
""",
    find=find,
    traps=(
        Trap(
            "second.backward()",
            "second.detach().requires_grad_().backward()",
            T(
                en="The error is gone because nothing is left to go back through: the second loss "
                "no longer reaches `x`.",
                zh="不再报错，是因为已经没有可以往回走的计算：第二个损失再也到不了 `x`。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.backward.html",
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#saved-tensors",
    ),
)
