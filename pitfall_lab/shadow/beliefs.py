"""The false beliefs about torch that :class:`Policy` has a switch for: each as a sentence, with a program that prints
something else in the engine when the switch is on.

``python -m pitfall_lab.shadow.beliefs`` writes the pages ``pitfall_lab/docs/policies.md`` and
``policies.zh.md``, with both outputs of each program, which it runs for that. Tests compare the output without the
belief with torch's, and the pages with what would be written.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path

from pitfall_lab.resources import DOCS
from pitfall_lab.shadow.facade.running import run
from pitfall_lab.shadow.policy import TORCH, Policy
from pitfall_lab.trace import LANGUAGES, Language, T

LEAF = "x = torch.ones(2, requires_grad=True)\n"
TRY = "try:\n    {}\n    print('done')\nexcept RuntimeError:\n    print('refused')"


@dataclass(frozen=True, slots=True)
class Belief:
    """A false belief about torch, and a program for which it predicts another output than torch's.

    ``says`` is the belief as a sentence in the first person, in both languages; ``program`` is Python source without
    its imports of torch and NumPy (``source`` has them).
    """

    says: T
    program: str

    @property
    def source(self) -> str:
        """Return the program as text, imports included."""
        return f"import numpy as np\nimport torch\n{self.program}\n"


def outcome(belief: Belief, policy: Policy) -> str:
    """The text that the program of ``belief`` prints under ``policy``; an error that it raises is raised here."""
    _, error, printed = run(belief.source, policy)
    if error is not None:
        raise error
    return printed


BELIEFS: dict[str, Belief] = {
    "detach_copies": Belief(
        T(en="detach() gives me a copy.", zh="detach() 给我一份副本。"),
        "x = torch.ones(2)\nd = x.detach()\nd += 1\nprint(x.tolist())",
    ),
    "detach_has_own_version": Belief(
        T(en="A write through detach() is not noticed by autograd.", zh="通过 detach() 的写入不会被自动求导发现。"),
        LEAF + "y = x.exp()\ny.detach().zero_()\n" + TRY.format("y.sum().backward()"),
    ),
    "data_copies": Belief(
        T(en=".data gives me a copy.", zh=".data 给我一份副本。"),
        "x = torch.ones(2)\nx.data.add_(1)\nprint(x.tolist())",
    ),
    "data_shares_version": Belief(
        T(
            en="A write through .data is noticed by autograd: the counter belongs to the memory.",
            zh="通过 .data 的写入会被自动求导发现：计数器属于内存。",
        ),
        "x = torch.ones(2)\nx.data.add_(1)\nprint(x._version)",
    ),
    "from_numpy_copies": Belief(
        T(en="from_numpy() and numpy() copy the data.", zh="from_numpy() 和 numpy() 会复制数据。"),
        "a = np.ones(2)\nt = torch.from_numpy(a)\na += 1\nprint(t.tolist())",
    ),
    "torch_tensor_shares_memory": Belief(
        T(en="torch.tensor(a) wraps the array a.", zh="torch.tensor(a) 包装数组 a。"),
        "a = np.ones(2)\nt = torch.tensor(a)\na += 1\nprint(t.tolist())",
    ),
    "clone_cuts_graph": Belief(
        T(en="clone() also cuts the graph.", zh="clone() 也会切断计算图。"), LEAF + "print(x.clone().requires_grad)"
    ),
    "clone_shares_memory": Belief(
        T(en="clone() is another name for the same memory.", zh="clone() 只是同一块内存的另一个名字。"),
        "x = torch.ones(2)\ny = x.clone()\ny += 1\nprint(x.tolist())",
    ),
    "views_copy": Belief(
        T(en="A slice, view() or transpose() has its own data.", zh="切片、view() 或 transpose() 有自己的数据。"),
        "x = torch.ones(4)\nx.view(2, 2)[0] = 5\nprint(x.tolist())",
    ),
    "views_have_own_version": Belief(
        T(en="A write through a view does not count for its base.", zh="通过视图写入不算改动原张量。"),
        "x = torch.ones(2)\nx[:1].add_(1)\nprint(x._version)",
    ),
    "reshape_always_copies": Belief(
        T(en="reshape() always gives me new data.", zh="reshape() 总会给我新的数据。"),
        "x = torch.ones(4)\nr = x.reshape(2, 2)\nr += 1\nprint(x.tolist())",
    ),
    "reshape_never_copies": Belief(
        T(en="reshape() never copies.", zh="reshape() 从不复制。"),
        "x = torch.ones(2, 2)\nr = x.t().reshape(4)\nr[1] = 7\nprint(x.tolist())",
    ),
    "expand_copies": Belief(
        T(en="expand() repeats the elements in memory.", zh="expand() 在内存中重复元素。"),
        "x = torch.ones(1, 2)\ny = x.expand(3, 2)\nx += 1\nprint(y.tolist())",
    ),
    "contiguous_always_copies": Belief(
        T(en="contiguous() always gives me new memory.", zh="contiguous() 总会给我新的内存。"),
        "x = torch.ones(2)\ny = x.contiguous()\ny += 1\nprint(x.tolist())",
    ),
    "to_always_copies": Belief(
        T(en="x.to(dtype) always gives me new memory.", zh="x.to(dtype) 总会给我新的内存。"),
        "x = torch.ones(2)\ny = x.to(torch.float32)\ny += 1\nprint(x.tolist())",
    ),
    "index_shares_memory": Belief(
        T(en="Indexing with a list or a mask shares memory too.", zh="用列表或掩码索引也共享内存。"),
        "x = torch.ones(3)\ny = x[[0, 2]]\ny += 1\nprint(x.tolist())",
    ),
    "id_tells_memory": Belief(
        T(en="id() shows whether two tensors share memory.", zh="id() 能说明两个张量是否共享内存。"),
        "x = torch.ones(2)\ny = x.view(2)\nprint(id(x) == id(y), x is y)",
    ),
    "augmented_assignment_rebinds": Belief(
        T(en="y += x makes a new tensor, like y = y + x.", zh="y += x 和 y = y + x 一样，产生新的张量。"),
        "x = torch.ones(2)\ny = x\ny += 1\nprint(x.tolist())",
    ),
    "assignment_writes_in_place": Belief(
        T(en="y = y + x changes the tensor, like y += x.", zh="y = y + x 和 y += x 一样，改动原来的张量。"),
        "x = torch.ones(2)\ny = x\ny = y + 1\nprint(x.tolist())",
    ),
    "inplace_always_refused": Belief(
        T(en="Nothing that requires grad may be changed in place.", zh="需要梯度的张量都不能就地修改。"),
        LEAF + "h = x * 2\n" + TRY.format("h += 1"),
    ),
    "inplace_on_leaf_allowed": Belief(
        T(en="A parameter may be changed in place at any time.", zh="参数随时可以就地修改。"),
        LEAF + TRY.format("x += 1"),
    ),
    "inplace_never_breaks_backward": Belief(
        T(en="backward() remembers the values as they were.", zh="backward() 记得当时的数值。"),
        LEAF + ("y = x.exp()\ny += 1\n") + TRY.format("y.sum().backward()"),
    ),
    "backward_sums_elements": Belief(
        T(en="backward() can be called on a result of any size.", zh="任何大小的结果都能调用 backward()。"),
        LEAF + TRY.format("(x * 3).backward()"),
    ),
    "backward_overwrites_grad": Belief(
        T(en="backward() replaces .grad.", zh="backward() 会替换 .grad。"),
        LEAF + ("x.sum().backward()\nx.sum().backward()\nprint(x.grad.tolist())"),
    ),
    "zero_grad_leaves_zeros": Belief(
        T(en="zero_grad() fills the gradients with zeros.", zh="zero_grad() 把梯度填成零。"),
        LEAF + "x.sum().backward()\ntorch.optim.SGD([x], lr=0.1).zero_grad()\nprint(x.grad)",
    ),
    "zero_grad_spares_unused": Belief(
        T(en="zero_grad() clears only gradients that step() has used.", zh="zero_grad() 只清除 step() 用过的梯度。"),
        LEAF
        + (
            "opt = torch.optim.SGD([x], lr=1.0)\n"
            "for slope in (1.0, 2.0):\n"
            "    opt.zero_grad()\n"
            "    (x * slope).sum().backward()\n"
            "print(x.grad.tolist())"
        ),
    ),
    "step_clears_grads": Belief(
        T(en="An optimizer's step() starts the next gradients afresh.", zh="优化器的 step() 会让下一次梯度重新开始。"),
        LEAF
        + (
            "opt = torch.optim.SGD([x], lr=0.0)\n"
            "for _ in range(2):\n"
            "    x.sum().backward()\n"
            "    opt.step()\n"
            "    print(x.grad)"
        ),
    ),
    "graph_survives_backward": Belief(
        T(en="backward() can be called again.", zh="backward() 可以再次调用。"),
        LEAF + ("s = x.exp().sum()\ns.backward()\n") + TRY.format("s.backward()"),
    ),
    "grad_of_non_leaf_kept": Belief(
        T(en="Every tensor on the way gets its .grad.", zh="途中的每个张量都会得到 .grad。"),
        LEAF + ("h = x * 2\nh.sum().backward()\nprint(h.grad)"),
    ),
    "non_leaf_flag_can_be_cleared": Belief(
        T(en="h.requires_grad = False freezes a computed tensor.", zh="h.requires_grad = False 能冻结计算得到的张量。"),
        LEAF + "h = x * 2\n" + TRY.format("h.requires_grad = False"),
    ),
    "item_keeps_graph": Belief(
        T(en="Gradients flow through item().", zh="梯度会流过 item()。"),
        LEAF + ("n = x.sum().item()\nprint((n * torch.ones(2)).requires_grad)"),
    ),
    "eval_stops_gradients": Belief(
        T(en="eval() stops the recording of gradients.", zh="eval() 会停止记录梯度。"),
        "model = torch.nn.Linear(2, 1).eval()\nprint(model(torch.ones(1, 2)).requires_grad)",
    ),
    "tensor_attributes_are_parameters": Belief(
        T(en="A tensor assigned to a module becomes a parameter.", zh="赋给模块的张量会成为参数。"),
        "m = torch.nn.Module()\nm.scale = torch.ones(1, requires_grad=True)\nprint(len(list(m.parameters())))",
    ),
    "equal_counts_pair_up": Belief(
        T(
            en="A column of n numbers and a row of n numbers give n results: first with first, second with second.",
            zh="n 个数的一列和 n 个数的一行得到 n 个结果：第一个配第一个，第二个配第二个。",
        ),
        "column, row = torch.ones(3, 1), torch.arange(3.)\nprint((column - row).shape)",
    ),
    "star_multiplies_matrices": Belief(
        T(en="* of two matrices is their matrix product.", zh="两个矩阵的 * 就是矩阵乘积。"),
        "m = torch.tensor([[1, 1], [0, 1]])\nprint((m * m).tolist())",
    ),
    "squeeze_keeps_batch": Belief(
        T(en="squeeze() keeps the batch dimension.", zh="squeeze() 会保留批次维。"),
        "print(tuple(torch.ones(1, 3, 1).squeeze().shape))",
    ),
    "integer_division_stays_integer": Belief(
        T(en="Dividing integers gives integers.", zh="整数相除得到整数。"),
        "n = torch.tensor([3, 4])\nprint((n / 2).tolist())",
    ),
    "no_grad_zeroes_grads": Belief(
        T(en="Entering no_grad() clears the gradients.", zh="进入 no_grad() 会清空梯度。"),
        LEAF + ("x.sum().backward()\nwith torch.no_grad():\n    pass\nprint(x.grad.tolist())"),
    ),
    "no_grad_hides_versions": Belief(
        T(en="Changes under no_grad() are invisible to autograd.", zh="no_grad() 中的改动对自动求导不可见。"),
        "x = torch.ones(2)\nwith torch.no_grad():\n    x += 1\nprint(x._version)",
    ),
}

_TITLE = T(en="# Beliefs about torch", zh="# 关于 torch 的信念")
_LEAD = T(
    en="Each switch of `pitfall_lab.shadow.Policy` turns one rule of torch into something that people believe. Off is "
    "torch. The program shows the difference; both outputs are computed by the shadow engine, and the first is what "
    "the running torch prints.",
    zh="`pitfall_lab.shadow.Policy` 的每个开关都把 torch 的一条规则换成人们的一种信念。关闭时就是 torch。"
    "程序显示两者的差别；两个输出都由影子引擎算出，第一个与正在运行的 torch 的输出相同。",
)
_TORCH, _BELIEVED = T(en="torch prints", zh="torch 输出"), T(en="this belief predicts", zh="有此信念的人预期")
_MADE = T(
    en="<!-- Made by `python -m pitfall_lab.shadow.beliefs`. -->",
    zh="<!-- 由 `python -m pitfall_lab.shadow.beliefs` 生成。 -->",
)
_OTHER = T(en="[中文](policies.zh.md)", zh="[English](policies.md)")


def page(language: Language = "en") -> str:
    """The page of all switches as Markdown."""
    parts = [_MADE.say(language), _TITLE.say(language), _OTHER.say(language), _LEAD.say(language)]
    for field in fields(Policy):
        belief = BELIEFS[field.name]
        parts += [f"## `{field.name}`", f"“{belief.says.say(language)}”", f"```python\n{belief.program}\n```"]
        for title, policy in ((_TORCH, TORCH), (_BELIEVED, Policy(**{field.name: True}))):
            parts.append(f"{title.say(language)}\n\n```text\n{outcome(belief, policy)}```")
    return "\n\n".join(parts) + "\n"


def file(language: Language) -> Path:
    """Return the path of the page in ``language``."""
    return DOCS / ("policies.md" if language == "en" else f"policies.{language}.md")


def main() -> None:
    """Write the pages."""
    for language in LANGUAGES:
        file(language).write_text(page(language), "utf-8")


if __name__ == "__main__":
    main()
