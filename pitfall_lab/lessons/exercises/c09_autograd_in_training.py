"""Chapter 9: backward computes gradients, the step changes weights, zero_grad drops gradients."""

from __future__ import annotations

from typing import Any

from pitfall_lab.lessons.exercise import (
    Check,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    finds_nothing,
    runs,
    true,
    updated_once,
)
from pitfall_lab.trace import T

_LOOP = """\
def train(model, points, targets, rounds):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(rounds):
        loss = nn.functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
    return model
"""

_FREEZE = """\
def freeze(module, optimizer):
    for p in module.parameters():
        p.requires_grad_(False)
"""

_DROP = _FREEZE + "        p.grad = None\n"

_BODY_AND_HEAD = """\
body, head = nn.Linear(3, 4), nn.Linear(4, 1)
optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1, momentum=0.9, weight_decay=0.2)
points = torch.randn(5, 3)


def one_round():
    loss = head(torch.tanh(body(points))).square().mean()
    loss.backward()
    optimizer.step()


one_round()
body_before = body.weight.detach().clone()
bias_before = body.bias.detach().clone()
"""
_IN_GROUPS = _BODY_AND_HEAD.replace(
    "[*body.parameters(), *head.parameters()]",
    '[{"params": [head.weight, body.bias]}, {"params": [body.weight], "lr": 0.05}, '
    '{"params": [head.bias], "lr": 0.02}]',
)
_STAYS = T(
    en="in the two rounds after `freeze` a step has moved its weight or its bias",
    zh="在 `freeze` 之后的两轮里，某一步移动了它的权重或偏置",
)


def _stays(**run: Any) -> Check:
    """Check that both rounds ran and left the frozen module as it was."""
    same = "torch.equal(body.weight, body_before) and torch.equal(body.bias, bias_before)"
    return every(runs(**run), true(same, _STAYS, **run))


_COUNTER = """\
def counterexample():
    p = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([p], lr=0.1)
    before = p.detach().clone()
    p.grad = torch.zeros(3)
    optimizer.step()
    return p, before
"""

_MOVED = _COUNTER.replace("lr=0.1", "lr=0.1, momentum=0.9").replace(
    "    before", "    p.grad = torch.ones(3)\n    optimizer.step()\n    before"
)


_LISTING = """\
w = torch.tensor(2.0, requires_grad=True)
optimizer = torch.optim.SGD([w], lr=0.5, weight_decay=1.0)
(w * w).backward()           # line 3
optimizer.step()             # line 4
(w * w).backward()           # line 5
optimizer.step()             # line 6
optimizer.zero_grad()        # line 7
optimizer.step()             # line 8
"""
_SEEN: dict[str, float | None] = {
    "w.grad after line 3": 4,
    "w after line 4": -1,
    "w.grad after line 5": 2,
    "w after line 6": -1.5,
    "w.grad after line 7": None,
    "w after line 8": -1.5,
}


def _run() -> str:
    """Return the program with lines that store, after each line, the values that the exercise is about."""
    now = {"w": "w.item()", "w.grad": "None if w.grad is None else w.grad.item()"}
    rows = ["seen = {}"]
    for number, line in enumerate(_LISTING.splitlines(), 1):
        kept = [f"seen[{what!r}] = {now[what.split()[0]]}" for what in _SEEN if what.endswith(f" {number}")]
        rows += [line, *kept]
    return "\n".join(rows)


def _filled(answers: dict[str, object]) -> str:
    """Return the cell with these answers, the program above it as a comment."""
    program = "".join(f"# {line}\n" for line in _LISTING.splitlines())
    return (
        program + "expected = {\n" + "".join(f'    "{what}": {answer},\n' for what, answer in answers.items()) + "}\n"
    )


EXERCISES = (
    Exercise(
        key="9.1",
        kind="repair",
        title=T(en="Right in the first round", zh="只有第一轮是对的"),
        task=T(
            en=(
                "`train(model, points, targets, rounds)` trains a module for `rounds` rounds on all `points` "
                "at once and returns it. The weights are wrong from the second round on. Repair it; the "
                "optimizer and its rate stay."
            ),
            zh=(
                "`train(model, points, targets, rounds)` 用全部 `points` 把模块训练 `rounds` 轮并返回它。从第二轮起权重"
                "就错了。请修好它；优化器和学习率保持不变。"
            ),
        ),
        given=_LOOP,
        inputs="model = nn.Linear(3, 1)\n"
        "rows = int(torch.randint(3, 12, ()))\n"
        "points, targets = torch.randn(rows, 3), torch.randn(rows, 1)",
        drive="train(model, points, targets, 3)",
        properties=(
            Property(
                T(
                    en="after three rounds the weights are those of plain gradient descent",
                    zh="三轮之后，权重与普通梯度下降一致",
                ),
                as_solved("model.weight.detach()", "model.bias.detach()"),
            ),
            Property(
                T(en="each parameter is written once per round", zh="每一轮每个参数只写入一次"),
                updated_once(None, 5, drive="train(model, points, targets, 5)"),
            ),
            Property(
                T(
                    en="the check finds no `zero_grad` that is missing or in the wrong place",
                    zh="检查没有发现缺少或位置错误的 `zero_grad`",
                ),
                finds_nothing("missing-zero-grad", "zero-grad-inside-accumulation"),
            ),
        ),
        hints=(
            T(
                en="What does `step` find in `.grad`, in the first round and in the second?",
                zh="第一轮和第二轮的 `step` 在 `.grad` 里各找到什么？",
            ),
            T(
                en="backward() adds. A line has to take the old gradient away, once per round.",
                zh="backward() 是累加。每一轮都要有一行代码清掉旧梯度。",
            ),
            T(
                en="`optimizer.zero_grad()` before backward, or after the step; not between the two.",
                zh="在 backward 之前或 step 之后调用 `optimizer.zero_grad()`；不要放在两者之间。",
            ),
        ),
        right=(
            _LOOP.replace("        loss.backward()", "        optimizer.zero_grad()\n        loss.backward()"),
            _LOOP.replace("        optimizer.step()\n", "        optimizer.step()\n        model.zero_grad()\n"),
        ),
        wrong=(
            _LOOP.replace("        optimizer.step()\n", "        optimizer.zero_grad()\n        optimizer.step()\n"),
            _LOOP.replace("    for _ in", "    optimizer.zero_grad()\n    for _ in"),
            _LOOP.replace("range(rounds)", "range(1)"),
            "def train(model, points, targets, rounds):\n    return model\n",
        ),
    ),
    Exercise(
        key="9.2",
        kind="write",
        title=T(en="Frozen for good", zh="彻底冻结"),
        task=T(
            en=(
                "`optimizer` holds the parameters of `module` and others. Complete `freeze(module, optimizer)` so "
                "that those of `module` never change again and do not require grad, whatever gradients they hold and "
                "whatever the optimizer remembers, in however many parameter groups they are. The others train on "
                "with the same optimizer exactly as if nothing had been frozen, with the gradients that they hold. It "
                "may be that no later round ever calls `zero_grad`."
            ),
            zh=(
                "`optimizer` 持有 `module` 的参数以及其他参数。补全 `freeze(module, optimizer)`，使 `module` 的参数不"
                "再改变、也不需要梯度，无论它们带着什么梯度、优化器记着什么、分在几个参数组里。其他参数用同一个优化器继续训"
                "练，与没有冻结时完全一样，它们持有的梯度也保留。之后的各轮可能从不调用 `zero_grad`。"
            ),
        ),
        given=_FREEZE,
        inputs=_BODY_AND_HEAD,
        drive="freeze(body, optimizer)\none_round()\none_round()",
        properties=(
            Property(
                T(en="the parameters of the frozen module stay as they were", zh="被冻结模块的参数保持不变"),
                _stays(),
            ),
            Property(
                T(
                    en="so they do where the optimizer has them in several groups",
                    zh="优化器把它们放在几个参数组里时也一样",
                ),
                _stays(inputs=_IN_GROUPS),
            ),
            Property(
                T(
                    en="the other weights train on as if nothing had been frozen",
                    zh="其他权重继续训练，与没有冻结时一样",
                ),
                every(
                    as_solved("head.weight.detach()", "head.bias.detach()"),
                    as_solved("head.weight.detach()", "head.bias.detach()", inputs=_IN_GROUPS),
                ),
            ),
            Property(
                T(en="the parameters of the module do not require grad", zh="模块的参数不需要梯度"),
                true(
                    "not any(p.requires_grad for p in body.parameters())",
                    T(en="one of them still requires grad", zh="其中一个仍需要梯度"),
                ),
            ),
        ),
        hint_for=(1, 1, 3, 0),
        hints=(
            T(
                en="The optimizer does not ask whether a parameter requires a gradient. What does it look at?",
                zh="优化器不会查看参数是否需要梯度。它看的是什么？",
            ),
            T(
                en="The parameters have been through one backward: `.grad` is still there.",
                zh="这些参数已经历过一次 backward：`.grad` 还在。",
            ),
            T(
                en="A parameter whose `.grad` is None is skipped, momentum or not. Clear those of `module` alone: "
                "`optimizer.zero_grad()` and the rate of a group concern the other weights, too.",
                zh="`.grad` 为 None 的参数会被跳过，有没有动量都一样。只清除 `module` 的那些："
                "`optimizer.zero_grad()` 和参数组的学习率也会涉及其他权重。",
            ),
        ),
        right=(
            _DROP,
            "def freeze(module, optimizer):\n    module.requires_grad_(False)\n    module.zero_grad()\n",
            _FREEZE + "    kept = {id(p) for p in module.parameters()}\n    for group in optimizer.param_groups:\n"
            "        group['params'] = [p for p in group['params'] if id(p) not in kept]\n",
        ),
        wrong=(
            "def freeze(module, optimizer):\n    for p in module.parameters():\n        p.grad = None\n",
            (
                "def freeze(module, optimizer):\n"
                "    for p in module.parameters():\n"
                "        p.requires_grad_(False)\n"
                "        p.grad = torch.zeros_like(p)\n"
            ),
            (
                "def freeze(module, optimizer):\n"
                "    for group in optimizer.param_groups:\n"
                "        group['lr'] = 0.0\n"
                "    module.requires_grad_(False)\n"
            ),
            _FREEZE.replace("    for p", "    optimizer.zero_grad()\n    for p"),
            _FREEZE + "    kept = {id(p) for p in module.parameters()}\n    group = optimizer.param_groups[0]\n"
            "    group['params'] = [p for p in group['params'] if id(p) not in kept]\n",
            # one group for all: the others lose the options of their own groups
            (
                "def freeze(module, optimizer):\n"
                "    module.requires_grad_(False)\n"
                "    rest = [p for g in optimizer.param_groups for p in g['params'] if p.requires_grad]\n"
                "    optimizer.param_groups[0]['params'] = rest\n"
                "    del optimizer.param_groups[1:]\n"
            ),
        ),
    ),
    Exercise(
        key="9.3",
        kind="make-it-fail",
        title=T(en="A zero gradient that moves a weight", zh="梯度为零却移动的权重"),
        task=T(
            en=(
                'Here is a claim: "A parameter whose gradient is zero cannot move." Write `counterexample()`, '
                "without arguments: it makes a parameter and an optimizer of `torch.optim` whose weight decay is 0. "
                "The optimizer takes a step while the gradient is all zeros, and the step changes the parameter. "
                "Return the parameter and a copy of its value before that last step."
            ),
            zh=(
                "有人说：“梯度为零的参数不会移动。”编写无参数的 `counterexample()`：它创建一个参数和一个权重衰减"
                "为 0 的 `torch.optim` 优化器；优化器在梯度全为零时走一步，并由此改变参数。返回该参数，以及它在最"
                "后那一步之前的值的副本。"
            ),
        ),
        given=_COUNTER,
        inputs="""\
import copy

seen = {}


def replayed(optimizer):
    # the first parameter after the same step of torch's own class of this name, without hooks and closures
    twin = copy.deepcopy(optimizer)
    for mine, its in zip(optimizer.param_groups, twin.param_groups):
        for p, q in zip(mine["params"], its["params"]):
            q.grad = None if p.grad is None else p.grad.clone()
    try:
        getattr(torch.optim, type(optimizer).__name__).step(twin)
    except Exception:
        return None
    return twin.param_groups[0]["params"][0].detach()


def before_step(optimizer, args, kwargs):
    if seen.get("replays"):
        return
    seen["replays"] = True
    seen["again"] = replayed(optimizer)
    seen["replays"] = False
    p = optimizer.param_groups[0]["params"][0]
    seen["decay"] = optimizer.param_groups[0].get("weight_decay", 0)
    seen["gradient"], seen["start"] = None if p.grad is None else p.grad.clone(), p.detach().clone()


def after_step(optimizer, args, kwargs):
    if seen.get("replays"):
        return
    seen["end"] = optimizer.param_groups[0]["params"][0].detach().clone()
""",
        drive="""\
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

noting = []
try:
    noting += [register_optimizer_step_pre_hook(before_step), register_optimizer_step_post_hook(after_step)]
    p, start = counterexample()
finally:
    for hook in noting:
        hook.remove()
""",
        properties=(
            Property(
                T(en="the gradient is all zeros at the last step", zh="最后一步时梯度全为零"),
                true(
                    "seen['gradient'] is not None and not seen['gradient'].any().item()",
                    T(en="at the last step the gradient is None, or not zero", zh="最后一步时它是 None，或不为零"),
                ),
            ),
            Property(
                T(en="the weight decay is 0", zh="权重衰减为 0"),
                true(
                    "seen['decay'] == 0",
                    T(
                        en="the optimizer has a weight decay; AdamW has 0.01 unless you write `weight_decay=0`",
                        zh="优化器有权重衰减；AdamW 默认是 0.01，除非写 `weight_decay=0`",
                    ),
                ),
            ),
            Property(
                T(en="nothing but that step of an optimizer moves the parameter", zh="只有优化器的那一步移动参数"),
                every(
                    true(
                        "seen.get('again', 0) is not None",
                        T(
                            en="the step of this optimizer cannot be repeated without a function (a closure): take "
                            "another optimizer",
                            zh="没有函数（closure）就无法重复这个优化器的一步：请换一个优化器",
                        ),
                    ),
                    true(
                        "torch.equal(seen['start'], start) and torch.equal(seen['end'], p.detach()) and "
                        "torch.equal(seen['again'], seen['end'])",
                        T(
                            en="the second tensor is not the value just before the last step, or the first not "
                            "the value just after it",
                            zh="第二个张量不是最后一步之前的值，或第一个不是之后的值",
                        ),
                    ),
                ),
            ),
            Property(
                T(en="the parameter has moved", zh="参数移动了"),
                true(
                    "not torch.equal(p.detach(), start)",
                    T(en="both returned tensors hold the same values", zh="返回的两个张量的值相同"),
                ),
            ),
        ),
        hint_for=(2, 0, 3, 1),
        hints=(
            T(
                en="What besides the gradient can enter an update? Some optimizers remember the gradients of earlier "
                "steps.",
                zh="除了梯度，更新里还可能有什么？有些优化器会记住之前各步的梯度。",
            ),
            T(
                en="Try `momentum=0.9`, and a first step with a gradient of ones before the one with zeros.",
                zh="试试 `momentum=0.9`，并在梯度为零的那一步之前，先用全 1 的梯度走一步。",
            ),
            T(
                en="Keep the value just before the last step. `p.detach()` shares the memory of `p`, and changes with "
                "it; `.clone()` copies.",
                zh="保存最后一步之前的值。`p.detach()` 与 `p` 共享内存，会随之改变；`.clone()` 会复制。",
            ),
        ),
        right=(
            _MOVED,
            _MOVED.replace("SGD([p], lr=0.1, momentum=0.9)", "Adam([p], lr=0.1)"),
        ),
        wrong=(
            _COUNTER.replace("torch.zeros(3)", "torch.ones(3)"),
            _COUNTER.replace("return p, before", "return p, before + 1"),
            _COUNTER.replace("optimizer.step()", "p.data.add_(1)\n    optimizer.step()"),
            _COUNTER.replace("lr=0.1", "lr=0.1, momentum=0.9"),
            _COUNTER.replace("lr=0.1", "lr=0.1, weight_decay=0.5"),
        ),
    ),
    Exercise(
        key="9.4",
        kind="predict",
        title=T(en="Line by line", zh="逐行"),
        task=T(
            en=(
                "The program is in the comment. What is in `w.grad` and in `w` after each of these lines? Fill in "
                "numbers or `None`, **before** you run the cell."
            ),
            zh="程序在注释中。执行到这些行之后，`w.grad` 和 `w` 里是什么？在运行单元格**之前**，填写数或 `None`。",
        ),
        given=_filled(dict.fromkeys(_SEEN, '"?"')),
        inputs=_run(),
        properties=tuple(
            Property(T(en=what, zh=what), equal(f"expected[{what!r}]", f"seen[{what!r}]", tell=False)) for what in _SEEN
        ),
        hint_for=(1, 1, 2, 1, 3, 3),
        hints=(
            T(
                en="The slope of w² is 2w. A step goes 0.5 times the sum of what is in `w.grad` and, by the "
                "weight decay, `w` itself.",
                zh="w² 的斜率是 2w。一步走的是 `w.grad` 与 `w` 本身（权重衰减）之和的 0.5 倍。",
            ),
            T(en="Nothing is reset between lines 3 and 5.", zh="第 3 行与第 5 行之间没有重置。"),
            T(
                en="After line 7 there is no gradient, and an optimizer skips what has none.",
                zh="第 7 行之后没有梯度，优化器会跳过没有梯度的参数。",
            ),
        ),
        right=(
            _filled({**_SEEN}),
            _filled({**_SEEN, "w after line 4": "2 - 0.5 * (4 + 2)"}),
            _filled({what: answer if answer is None else float(answer) for what, answer in _SEEN.items()}),
            _filled(
                {what: answer if answer is None else f"torch.tensor({float(answer)})" for what, answer in _SEEN.items()}
            ),
            f"expected = dict({list(_SEEN.items())!r})\n",
        ),
        wrong=(
            _filled({**_SEEN, "w after line 4": 0}),
            _filled({**_SEEN, "w.grad after line 5": -2}),
            _filled({**_SEEN, "w after line 6": -2}),
            _filled({**_SEEN, "w.grad after line 7": 0}),
            _filled({**_SEEN, "w after line 8": -0.75}),
        ),
    ),
)
