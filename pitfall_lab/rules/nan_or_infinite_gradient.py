"""PL804: a gradient became NaN or infinite: an operation has no finite slope where it was used, perhaps
in a part that was masked out.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pitfall_lab.rules.kit.finding import Fact, Finding, Fix, Rule, Trap
from pitfall_lab.rules.kit.repairs import unique
from pitfall_lab.rules.kit.story import Record, Story
from pitfall_lab.rules.kit.syntax import MODULES, operand, torch_name
from pitfall_lab.rules.kit.syntax import called as method
from pitfall_lab.rules.kit.wording import at_line, called, flat, gradient_of, numbers, snippet
from pitfall_lab.rules.signals.unfinite import CALLS, acts_on_tests, is_handled, is_skipped, of_gradients
from pitfall_lab.trace import Event, T, Unfinite
from pitfall_lab.trace.operation_facts import spellings

SINGULAR = ("Sqrt", "Rsqrt", "Log", "Log2", "Log10", "Div", "Reciprocal", "Pow", "Acos", "Asin", "Acosh", "Atanh",
            "Exp", "Std", "LinalgVectorNorm")  # fmt: skip
"""Operations that have an infinite slope, or none, at some inputs."""
LOGARITHMS = {"log", "log2", "log10", "rsqrt", "reciprocal"}
"""Functions that are infinite at zero."""
BOUNDED = spellings("acos", "asin", "atanh")
"""Functions with an infinite slope at 1 and -1."""
ROUNDS = 2
FOLLOWED = 4
"""The number of calls between an operation and the mask that drops its result."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a backward turned finite gradients into NaN or infinite ones: in ``backward`` (an ``Event``), the graph
    node with the record ``node`` received the gradient ``came``, which is finite, and returned ``left``, which is not.

    ``came`` and ``left`` are the gradients' values, nested in lists; of a closer recording (``trace.beside.unfinite``)
    one value only: 0 or None for ``came``, "nan" or an infinity for ``left``. ``consumer`` is None where it is not
    known. ``story`` has the look-ups of the trace.
    """

    story: Story
    backward: Event
    node: Record
    came: Any
    left: Any
    consumer: Record | None
    """The node whose operation used the result: the ``where`` or the product that hides it."""
    place: tuple[int, ...] = ()
    """The index of the first element of the operation's input whose gradient is not
    finite; empty if it is not known.
    """

    @property
    def steep(self) -> bool:
        """Whether the operation has an infinite or undefined derivative at some inputs."""
        return str(self.node.get("name")).startswith(tuple(f"{name}Backward" for name in SINGULAR))

    @property
    def hidden(self) -> bool:
        """Whether the result was unused where the outgoing gradient is not finite: the incoming gradient is 0 there."""
        came = dict(flat(self.came))
        bad = [i for i, value in flat(self.left) if not _finite(value)]
        return bool(bad) and all(came.get(i) == 0 for i in bad)


def find(story: Story) -> Iterator[Finding]:
    """Yield at most one finding: for the first operation that made the gradient of a leaf NaN or infinite.

    Nothing with a ``GradScaler``, nor if the program tests or replaces such gradients, or skips the update, unless it
    set the NaN to 0 in every round.
    """
    wiped = _wiped(story)
    if "GradScaler" in story.program.text or (not wiped and _cared_for(story)):
        return
    if story.trace.beside.unfinite:
        seen = next((found for found in of_gradients(story) if wiped or not is_handled(story, found)), None)
        if seen is not None and (shown := _shown(story, seen)) is not None:
            yield _with_wiped(story, _finding(shown, {"output": seen.tensor, "gradient": seen.numbers}), wiped)
        return
    for backward in story.backwards():
        if backward.error is None and (reached := _spoiled(story, backward)) and (origin := _origin(story, backward)):
            if not wiped and story.trace.outcome.kind == "finished" and is_skipped(story, backward.step):
                continue
            yield _with_wiped(story, _finding(origin, reached), wiped)
            return  # after an update with it every number is NaN: one finding tells all


def _wiped(story: Story) -> dict[str, int]:
    """The leaves whose gradient was NaN in every backward and 0 at every step of an optimizer after it,
    each with the number of steps.

    Only those with several such steps. Whatever the program does against NaN, they get no gradient at all.
    """
    found: dict[str, int] = {}
    steps = story.trace.optimizer_steps
    for label, node in story.nodes.items():
        leaf = node.get("output")
        came = (
            story.history("nodes", label, "gradient")
            if node.get("name") == "AccumulateGrad" and leaf in story.leaves
            else []
        )
        known = [(at, list(flat(cells))) for at, cells in came if cells is not None]
        if len(known) < ROUNDS or not all(
            numbers and all(value == "nan" for _, value in numbers) for _, numbers in known
        ):
            continue
        updates = [update for update in steps if leaf in update.holds and update.step > known[0][0]]
        grads = [story.held((story.tensor(leaf, update.step) or {}).get("grad"), update.step) for update in updates]
        if len(updates) >= ROUNDS and all(held and all(value == 0 for value in held.values()) for held in grads):
            found[str(leaf)] = len(updates)
    return found


def _with_wiped(story: Story, finding: Finding, wiped: dict[str, int]) -> Finding:
    """The finding, with a sentence on the leaves whose gradients were replaced by 0."""
    if not wiped:
        return finding
    leaf, count = next(iter(wiped.items()))
    name = called(story, leaf, None, finding.step)
    more = T(en="", zh="")
    if len(wiped) > 1:
        more = T(en=f" (and {len(wiped) - 1} more)", zh=f"（以及另外 {len(wiped) - 1} 个）")
    return replace(
        finding,
        explanation=T(
            en=f"{finding.explanation.en} The program puts 0 in the place of NaN, which hides it: at each of {count} "
            f"recorded steps the gradient of {name.en}{more.en} was NaN and then 0, so it is never trained.",
            zh=f"{finding.explanation.zh}程序用 0 代替 NaN，这只是掩盖了它：在记录到的 {count} 步里，"
            f"{name.zh}{more.zh} 的梯度每步都先是 NaN，然后是 0，所以它从未得到训练。",
        ),
    )


def _cared_for(story: Story) -> bool:
    """Whether the program itself inspects or repairs its gradients."""
    gradients = {label for leaf in story.leaves for _, label in story.history("tensors", leaf, "grad") if label}
    return any(
        event.operands and event.operands[0].label in gradients for event in story.calls(*CALLS)
    ) and acts_on_tests(story)


def _finite(value: Any) -> bool:
    return value not in ("nan", "inf", "-inf")


def _broken(cells: Any) -> bool:
    return any(not _finite(value) for _, value in flat(cells))


def _ran(story: Story, backward: Event) -> list[tuple[str, Record]]:
    """The nodes of one backward, each label with its record, in the order in which they ran."""
    labels = [
        effect.path.split(".")[1]
        for event in story.nodes_run(backward)
        for effect in event.effects
        if effect.path.endswith(".ran")
    ]
    return [(label, record) for label in labels if (record := story.record("nodes", label))]


def _spoiled(story: Story, backward: Event) -> Record | None:
    """The AccumulateGrad node that received a gradient with NaN or infinity, or None."""
    for _, record in _ran(story, backward):
        if record.get("name") == "AccumulateGrad" and _broken(record.get("gradient")):
            return record
    return None


def _origin(story: Story, backward: Event) -> Origin | None:
    """The first node of an operation with singularities (``SINGULAR``) that received a finite gradient
    and returned one that is not.

    Nodes whose operation was given NaN are left out; None if there is none.
    """
    ran = _ran(story, backward)
    records = dict(ran)
    for label, node in ran:
        came = node.get("gradient")
        if came is None or _broken(came) or not Origin(story, backward, node, None, None, None).steep:
            continue
        made = story.event(node.get("born"))
        operands = [o.label for o in made.operands if o.label] if made else []
        if any(_has_nan(story, operand, made.step if made else None) for operand in operands):
            continue
        for following in node.get("next") or ():
            left = (records.get(following) or {}).get("gradient")
            if _broken(left):
                consumer = next((other for _, other in ran if label in (other.get("next") or ())), None)
                return Origin(
                    story,
                    backward,
                    node,
                    came,
                    left,
                    consumer,
                    _index(left, (records[following]).get("gradient_shape")),
                )
    return None


def _index(left: Any, shape: Any) -> tuple[int, ...]:
    """The index of the first element that is not finite, in a tensor of this shape; empty if the shape is
    unknown or has no dimension.
    """
    flat_index = next(place for place, value in flat(left) if not _finite(value))
    index: list[int] = []
    for size in reversed(shape or ()):
        flat_index, rest = divmod(flat_index, size)
        index.insert(0, rest)
    return tuple(index)


def _shown(story: Story, found: Unfinite) -> Origin | None:
    """The place where the gradient stopped being finite, as a closer recording has seen it: any operation counts, also
    one whose derivative is always finite.

    None if there is none.
    """
    node, backward = story.record("nodes", found.node), story.event(found.step)
    if node is None or backward is None or story.span(node.get("born")) is None:
        return None
    consumer = next((other for _, other in _ran(story, backward) if found.node in (other.get("next") or ())), None)
    return Origin(story, backward, node, [0 if found.hidden else None], [found.kind], consumer, found.at)


def _has_nan(story: Story, label: str, step: int | None) -> bool:
    """Whether a tensor has a NaN in it, or a dtype with so small a range that infinity is common (float16)."""
    record = story.tensor(label, step) or {}
    memory = story.record("storages", record.get("storage"), step) or {}
    return record.get("dtype") == "float16" or any(value == "nan" for _, value in flat(memory.get("cells")))


def _finding(origin: Origin, reached: Record) -> Finding:
    story, leaf, step = origin.story, reached.get("output"), origin.node.get("born")
    span, back = story.span(step), story.span(origin.backward.step)
    name = called(story, leaf, None, origin.backward.step)
    gradient, code = gradient_of(name), snippet(story, span)
    shown = numbers(reached.get("gradient"))
    here, later = at_line(story, span), at_line(story, back)
    hidden = origin.hidden and origin.consumer is not None
    where = (
        T(en=f"element {list(origin.place)}", zh=f"元素 {list(origin.place)}")
        if origin.place
        else T(en="an element", zh="一个元素")
    )
    slope, factor = (
        T(en=f"`{code}` has no finite slope at {where.en}", zh=f"`{code}` 在{where.zh}处没有有限的斜率"),
        None,
    )
    if not origin.steep:
        factor = _infinite_factor(story, story.event(step))
        slope = T(
            en=f"the backward of `{code}` makes it of a finite gradient", zh=f"`{code}` 的反向传播从有限的梯度得到它"
        )
    if factor is not None:
        slope = T(en=f"infinite at {where.en}", zh=f"在{where.zh}处是无穷大")
    related = [story.related("made", factor.step if factor is not None else step, slope)]
    if hidden and origin.consumer:
        used = origin.consumer.get("born")
        related.append(
            story.related("used", used, T(en="the element's result is thrown away here", zh="该元素的结果在这里被丢弃"))
        )
    related.append(
        story.related(
            "backward",
            origin.backward.step,
            T(
                en=f"its gradient is still computed: {gradient.en} is {shown}",
                zh=f"它的梯度仍被计算：{gradient.zh} 是 {shown}",
            ),
        )
    )
    message, explanation = (
        _message(here, gradient, code, shown, where, hidden=hidden),
        _explanation(code, later, hidden=hidden),
    )
    if not origin.steep:
        message, explanation = _of_a_product(here, gradient, code, shown, later)
    if factor is not None:
        there, text = at_line(story, story.span(factor.step)), snippet(story, story.span(factor.step))
        message = T(
            en=f"{gradient.en} is not a number: {shown}. `{text}` on {there.en} is infinite at {where.en}, and the "
            f"backward of `{code}` on {here.en} multiplies by it.",
            zh=f"{gradient.zh} 不是有效的数：{shown}。{there.zh}的 `{text}` 在{where.zh}处是无穷大，而{here.zh}的 "
            f"`{code}` 的反向传播要乘以它。",
        )
    return RULE.finding(
        span, step, message, explanation,
        related=related, fixes=_fixes(origin),
        facts=[Fact("leaf", leaf, story.by(step)), Fact("node", origin.node.get("name"), story.by(step))],
    )  # fmt: skip


def _message(here: T, gradient: T, code: str, shown: str, where: T, *, hidden: bool) -> T:
    if hidden:
        return T(
            en=f"{gradient.en} is not a number: {shown}. `{code}` on {here.en} has no finite slope at {where.en}, "
            "whose result is not even used.",
            zh=f"{gradient.zh} 不是有效的数：{shown}。{here.zh}的 `{code}` 在{where.zh}处没有有限的斜率，而这个元"
            "素的结果根本没有用到。",
        )
    return T(
        en=f"{gradient.en} is {shown}: `{code}` on {here.en} has no finite slope at {where.en} of its input.",
        zh=f"{gradient.zh} 是 {shown}：{here.zh}的 `{code}` 在输入的{where.zh}处没有有限的斜率。",
    )


def _infinite_factor(story: Story, product: Event | None) -> Event | None:
    """The call that made an infinite operand of ``product`` or, if the values of an operand are not known, the
    logarithm or reciprocal that made it; None if there is none.
    """
    for label in [each.label for each in product.operands if each.label is not None] if product is not None else ():
        made = story.event((story.tensor(label) or {}).get("born"))
        held = story.held(label, product.step if product is not None else None).values()
        if (
            made is not None
            and label in made.results
            and ({"inf", "-inf"} & set(map(str, held)) or (not held and made.name in LOGARITHMS))
        ):
            return made
    return None


def _of_a_product(here: T, gradient: T, code: str, shown: str, later: T) -> tuple[T, T]:
    """The message and the explanation for an operation whose derivative is finite for all finite operands."""
    message = T(
        en=f"{gradient.en} is {shown}: the backward of `{code}` on {here.en} makes it of a finite gradient.",
        zh=f"{gradient.zh} 是 {shown}：{here.zh}的 `{code}` 的反向传播从有限的梯度得到它。",
    )
    explanation = T(
        en=f"On {later.en} this operation multiplies the gradient that reaches it by its slope. Either one of its "
        "operands is NaN or infinite at that element (0 times infinity is NaN, so masking the result afterwards "
        "does not help), or the product is larger than the dtype can hold. One step of an optimizer with such a "
        "gradient makes weights NaN.",
        zh=f"在{later.zh}，这个运算用自己的斜率去乘到达它的梯度。要么它的某个操作数在该元素处是 NaN 或无穷大（0 乘无穷"
        "大是 NaN，事后遮住结果没有用），要么乘积超出了 dtype 的范围。优化器用这样的梯度走一步，权重就会变成 NaN。",
    )
    return message, explanation


def _explanation(code: str, later: T, *, hidden: bool) -> T:
    if hidden:
        return T(
            en=f"A mask picks results after they were all computed. On {later.en} the unused element gets the "
            f"gradient 0, and `{code}` multiplies it by its slope. The slope there is infinite (or not "
            "defined), and 0 times infinity is NaN. Choose a harmless input for that element before the "
            "operation, not a result after it.",
            zh=f"掩码是在全部结果都算出之后才挑选的。在{later.zh}，没有用到的元素得到梯度 0，而 `{code}` 用自己的斜率"
            "去乘它。那里的斜率是无穷大（或没有定义），0 乘无穷大就是 NaN。应当在运算之前为该元素选一个无害的输入，而"
            "不是在运算之后挑选结果。",
        )
    return T(
        en=f"On {later.en} each operation multiplies the gradient by its slope. The slope of a square root or a "
        "logarithm grows without bound near 0, a quotient's near a zero below the line. One step of an optimizer "
        "with such a gradient makes weights NaN.",
        zh=f"在{later.zh}，每个运算用自己的斜率去乘梯度。平方根和对数的斜率在 0 附近无限增大，商的斜率在分母接近零时也"
        "是如此。优化器用这样的梯度走一步，权重就会变成 NaN。",
    )


def _fixes(origin: Origin) -> tuple[Fix, ...]:
    """Fixes that give the operation a harmless input where a mask drops the result, or clamp its input away from the
    singularity.

    Empty if the program's source shows no input; ``exp`` gets no clamp.
    """
    story, program = origin.story, origin.story.program
    if program.tree is None:
        return ()
    factor = None if origin.steep else _infinite_factor(story, story.event(origin.node.get("born")))
    node = program.at(story.span(factor.step if factor is not None else origin.node.get("born")))
    node = node.value if isinstance(node, ast.Assign) else node
    risky = _risky(node)
    if node is None or risky is None:
        return ()
    name = method(node) if isinstance(node, ast.Call) else ""
    candidates = [*_chosen_before(origin, risky, "0" if name in BOUNDED else "1")]
    low, high = ("-1 + 1e-6", "1 - 1e-6") if name in BOUNDED else ("1e-12", "")
    if name not in ("exp", "expm1"):
        text = (
            f"{operand(program, risky)}.clamp({low}, {high})" if high else f"{operand(program, risky)}.clamp(min={low})"
        )
        away = "±1" if high else "0"
        title = T(en=f"Keep the input away from {away}: `{text}`", zh=f"让输入远离 {away}：`{text}`")
        candidates.append(Fix(title, program.replace((risky, text)), meaning="finite"))
    return unique(program.text, candidates)


def _chosen_before(origin: Origin, risky: ast.expr, harmless: str) -> Iterator[Fix]:
    """Yield fixes that put a harmless number into the input where a ``where`` or ``masked_fill`` drops the result."""
    program = origin.story.program
    text, torch = program.segment(risky), torch_name(program)
    title = T(en=f"Choose a harmless input before: where the mask drops the result, use {harmless} instead of `{text}`",
              zh=f"事先选一个无害的输入：在掩码丢弃结果的地方，用 {harmless} 代替 `{text}`")  # fmt: skip
    for mask in _masks(origin):
        likes = f"{torch}.{'ones' if harmless == '1' else 'zeros'}_like({text})"
        news = []
        if method(mask) == "where" and len(mask.args) == 3 and torch is not None:
            condition = program.segment(mask.args[0])
            news = [f"{torch}.where({condition}, {text}, {likes})", f"{torch}.where({condition}, {likes}, {text})"]
        elif method(mask) == "masked_fill" and len(mask.args) >= 2:
            news = [f"{operand(program, risky)}.masked_fill({program.segment(mask.args[-2])}, {harmless})"]
        for new in news:
            yield Fix(title, program.replace((risky, new)), meaning="finite")


def _masks(origin: Origin) -> Iterator[ast.Call]:
    """Yield the calls of ``where`` and ``masked_fill`` that used the result of the operation, directly or after other
    calls.

    They may drop elements of it. At most ``FOLLOWED`` calls are followed, each the first use of the result before.
    """
    story, program = origin.story, origin.story.program
    label = origin.node.get("output")
    for _ in range(FOLLOWED):
        use = next((use for use in story.uses(label) if use.results and use.step < origin.backward.step), None)
        if use is None:
            return
        node = program.at(story.span(use.step))
        node = node.value if isinstance(node, ast.Assign) else node
        if isinstance(node, ast.Call) and use.name in ("where", "masked_fill"):
            yield node
        label = use.results[0]


def _risky(node: ast.AST | None) -> ast.expr | None:
    """The operand that must not get near the singularity: the divisor, the argument of the root or logarithm, or the
    base of a power; None if there is none.
    """
    if isinstance(node, ast.BinOp):
        return node.right if isinstance(node.op, ast.Div) else node.left if isinstance(node.op, ast.Pow) else None
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    is_method = isinstance(function, ast.Attribute) and not (
        isinstance(function.value, ast.Name) and function.value.id in MODULES
    )
    if method(node) in ("div", "true_divide"):
        return node.args[-1] if node.args else None
    if is_method and isinstance(function, ast.Attribute):
        return function.value
    return node.args[0] if node.args else None


RULE = Rule(
    code="PL804",
    name="nan-or-infinite-gradient",
    severity="warning",
    title=T(en="A gradient is NaN or infinite", zh="梯度是 NaN 或无穷大"),
    what=T(
        en="A gradient came out as `nan` or `inf` although the result of the program looked fine. Square roots, "
        "logarithms and divisions have no finite slope at some inputs, and masking their result afterwards does not "
        "help. Give them a harmless input instead.",
        zh="程序的结果看起来正常，梯度却是 `nan` 或 `inf`。平方根、对数和除法在某些输入处没有有限的斜率，事后用掩码挑"
        "选结果也没有用。请事先给它们一个无害的输入。",
    ),
    why=T(
        en="`backward()` multiplies derivatives (the *chain rule*). `torch.where(x > 0, torch.sqrt(x), 0)` computes "
        "`torch.sqrt(x)` everywhere; in backward the places not chosen get the gradient 0, and `sqrt` still "
        "multiplies it by `1 / (2 * sqrt(0))`, which is infinite: 0 · inf = NaN. Multiplying by a mask does the same. "
        "If the input is chosen before the operation, every slope is finite. "
        "`torch.autograd.set_detect_anomaly(True)` raises at the first NaN, slowly.",
        zh="`backward()` 沿途把斜率相乘（*链式法则*）。`torch.where(x > 0, torch.sqrt(x), 0)` 会在所有位置计算 "
        "`torch.sqrt(x)`；往回走时，未被选中的位置得到梯度 0，而 `sqrt` 仍用 `1 / (2 * sqrt(0))` 去乘它，即无穷大：0 "
        "· inf = NaN。乘以掩码也一样。如果在运算之前就选好输入，所有斜率都是有限的。"
        "`torch.autograd.set_detect_anomaly(True)` 会在第一个 NaN 处报错，但很慢。",
    ),
    advice=T(
        en="give {made} an input at which its derivative is finite: use `torch.where` or `clamp` "
        "before it, not after it.",
        zh="给{made}一个导数有限的输入：在它之前使用 `torch.where` 或 `clamp`，而不是之后。",
    ),
    bad="""import torch

x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
root = torch.sqrt(x)  # PL804 made
y = torch.where(x > 0, root, torch.zeros_like(x))  # used
loss = y.sum()
loss.backward()  # backward
print(loss.item(), x.grad)
""",
    good="""import torch

x = torch.tensor([0.0, 1.0, 4.0], requires_grad=True)
root = torch.sqrt(torch.where(x > 0, x, torch.ones_like(x)))
y = torch.where(x > 0, root, torch.zeros_like(x))
loss = y.sum()
loss.backward()
print(loss.item(), x.grad)
""",
    find=find,
    traps=(
        Trap(
            "torch.where(x > 0, root, torch.zeros_like(x))",
            "root * (x > 0)",
            T(
                en="Multiplying by a mask also comes after the square root: 0 times infinity is still NaN.",
                zh="相乘的掩码同样在平方根之后：0 乘无穷大仍是 NaN。",
            ),
        ),
    ),
    docs=(
        "https://docs.pytorch.org/docs/stable/notes/autograd.html#gradients-for-non-differentiable-functions",
        "https://docs.pytorch.org/docs/stable/autograd.html#anomaly-detection",
    ),
)
