"""Beliefs about torch that sound right and are not, each as one function ``Policy -> Policy``.

Running a program under the returned policy gives the answer that a person with that belief would predict: the
distractors of a question are computed in this way, and a wrong answer that fits a belief gets that belief's refutation.
To add a belief, write one decorated function; its docstring says where it comes from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from pitfall_lab.shadow import Policy
from pitfall_lab.trace import T


@dataclass(frozen=True, slots=True)
class Misconception:
    """One belief: in the first person, why it is tempting, the fact that breaks it, and a torch program that shows the fact.

    ``check`` is a small program of assertions that hold on torch. Calling the misconception applies it to a policy.
    """

    key: str
    belief: T
    tempting: T
    fact: T
    check: str
    change: Callable[[Policy], Policy]

    def __call__(self, policy: Policy) -> Policy:
        """Return ``policy`` as someone with this belief would have it."""
        return self.change(policy)


MISCONCEPTIONS: dict[str, Misconception] = {}


def misconception(belief: T, tempting: T, fact: T, check: str) -> Callable[[Callable[[Policy], Policy]], Misconception]:
    """Register the decorated ``Policy -> Policy`` function as a misconception under its own name."""

    def register(change: Callable[[Policy], Policy]) -> Misconception:
        found = Misconception(change.__name__, belief, tempting, fact, check, change)
        MISCONCEPTIONS[found.key] = found
        return found

    return register


@misconception(
    belief=T(en="I think detach() gives me a copy.", zh="我以为 detach() 会给我一份副本。"),
    tempting=T(
        en="It is used to “save a value”, and its result does not require grad.", zh="它常被用来“保存一个值”，而且结果不再需要梯度。"
    ),
    fact=T(
        en="detach() shares the storage and even the version counter with its source.", zh="detach() 与原张量共享存储，连版本计数器也共享。"
    ),
    check="t = torch.ones(2, requires_grad=True) * 1\nd = t.detach()\nd.add_(1)\nassert t.tolist() == [2, 2] and t._version == 1",
)
def detach_copies(policy: Policy) -> Policy:
    """Articles 1 and 3 use detach() to keep old values."""
    return replace(policy, detach_copies=True)


@misconception(
    belief=T(en="I think from_numpy() and numpy() copy the data.", zh="我以为 from_numpy() 和 numpy() 会复制数据。"),
    tempting=T(
        en="An array and a tensor are different types, so they look like different data.",
        zh="数组和张量是不同的类型，看上去就像不同的数据。",
    ),
    fact=T(en="Both wrap the same memory: a write on one side is seen on the other.", zh="两者包装同一块内存：一侧写入，另一侧就能看到。"),
    check="import numpy as np\na = np.zeros(2)\nt = torch.from_numpy(a)\na[0] = 5\nassert t.tolist() == [5, 0]",
)
def from_numpy_copies(policy: Policy) -> Policy:
    """Article 1, preface: the question the whole article starts from."""
    return replace(policy, from_numpy_copies=True)


@misconception(
    belief=T(
        en="I think a slice, view() or transpose() is a tensor with its own data.",
        zh="我以为切片、view() 或 transpose() 得到的张量有自己的数据。",
    ),
    tempting=T(en="In Python, slicing a list does copy.", zh="在 Python 中，对列表切片确实会复制。"),
    fact=T(
        en="Basic indexing, view() and transpose() return a view: another shape, stride and offset over the same storage.",
        zh="基本索引、view() 和 transpose() 返回视图：同一存储上的另一组形状、步长和偏移。",
    ),
    check="t = torch.zeros(4)\nt[1:3].fill_(9)\nassert t.tolist() == [0, 9, 9, 0]",
)
def views_copy(policy: Policy) -> Policy:
    """Carried over from Python lists."""
    return replace(policy, views_copy=True)


@misconception(
    belief=T(
        en="I think indexing with a list or a mask, index_select and gather share memory too.",
        zh="我以为用列表或掩码索引、index_select 和 gather 也共享内存。",
    ),
    tempting=T(
        en="A slice shares memory, and these look like slices with more freedom.", zh="切片共享内存，而它们看起来只是更自由的切片。"
    ),
    fact=T(
        en="Freely chosen elements have no common stride, so torch copies them into new storage.",
        zh="任意挑选的元素没有统一的步长，所以 torch 会把它们复制到新的存储。",
    ),
    check="t = torch.arange(4.)\np = t[[0, 1]]\np.fill_(-1)\nassert t.tolist() == [0, 1, 2, 3]",
)
def index_shares_memory(policy: Policy) -> Policy:
    """Article 1, section 2, lists index_select, masked_select and gather as sharing."""
    return replace(policy, index_shares_memory=True)


@misconception(
    belief=T(en="I think reshape() always gives me new data.", zh="我以为 reshape() 总会给我新的数据。"),
    tempting=T(
        en="view() is known as the one that shares, so reshape() must be the one that copies.",
        zh="大家都说 view() 共享内存，那 reshape() 就应当是复制。",
    ),
    fact=T(
        en="reshape() returns a view whenever the strides allow it, and copies only when they do not.",
        zh="只要步长允许，reshape() 就返回视图；只有不允许时才复制。",
    ),
    check="t = torch.zeros(2, 3)\nt.reshape(6)[0] = 1\nassert t[0, 0] == 1",
)
def reshape_always_copies(policy: Policy) -> Policy:
    """The usual half-remembered advice on view against reshape."""
    return replace(policy, reshape_always_copies=True)


@misconception(
    belief=T(en="I think reshape() never copies.", zh="我以为 reshape() 从不复制。"),
    tempting=T(en="In most programs the tensor is contiguous, and then it is true.", zh="大多数程序里的张量是连续的，那时确实如此。"),
    fact=T(
        en="A transposed tensor cannot be flattened by strides alone, so reshape() copies it, without saying so.",
        zh="转置后的张量无法仅凭步长展平，于是 reshape() 会悄悄地复制。",
    ),
    check="t = torch.zeros(2, 3)\nt.t().reshape(6)[0] = 1\nassert t.sum() == 0",
)
def reshape_never_copies(policy: Policy) -> Policy:
    """The other half of the same advice."""
    return replace(policy, reshape_never_copies=True)


@misconception(
    belief=T(en="I think clone() also cuts the graph.", zh="我以为 clone() 也会切断计算图。"),
    tempting=T(en="A copy sounds independent in every respect.", zh="“副本”听起来在各方面都是独立的。"),
    fact=T(
        en="clone() copies the memory and stays in the graph: gradients flow through it to its source.",
        zh="clone() 复制内存，但仍留在计算图中：梯度会经过它流回原张量。",
    ),
    check="t = torch.ones(2, requires_grad=True)\nt.clone().sum().backward()\nassert t.grad.tolist() == [1, 1]",
)
def clone_cuts_graph(policy: Policy) -> Policy:
    """Article 1, section 3, compares clone and detach."""
    return replace(policy, clone_cuts_graph=True)


@misconception(
    belief=T(en="I think y += x makes a new tensor, like y = y + x.", zh="我以为 y += x 和 y = y + x 一样，会产生新的张量。"),
    tempting=T(en="For Python numbers and strings the two are the same.", zh="对 Python 的数和字符串，两者是一样的。"),
    fact=T(
        en="y += x is y.add_(x): it writes into y's memory, and every other name and view of that memory sees it.",
        zh="y += x 就是 y.add_(x)：它写入 y 的内存，这块内存的其他名字和视图都会看到。",
    ),
    check="y = torch.zeros(2)\nold = y\ny += 1\nassert old is y and old.tolist() == [1, 1]",
)
def augmented_assignment_rebinds(policy: Policy) -> Policy:
    """Article 4, section 6: the += that breaks backward."""
    return replace(policy, augmented_assignment_rebinds=True)


@misconception(
    belief=T(en="I think a write through a view does not count for its base.", zh="我以为通过视图写入不算改动了原张量。"),
    tempting=T(en="The view is another object, with another shape.", zh="视图是另一个对象，形状也不同。"),
    fact=T(
        en="A base and all its views share one version counter: a write through any of them counts for all.",
        zh="原张量与它的所有视图共用一个版本计数器：写入任何一个，对全部都算数。",
    ),
    check="h = torch.ones(3)\nh[0] = 2\nassert h._version == 1 and h[1:]._version == 1",
)
def views_have_own_version(policy: Policy) -> Policy:
    """Chapter 12: the row assignment that breaks backward."""
    return replace(policy, views_have_own_version=True)


@misconception(
    belief=T(en="I think backward remembers the values as they were.", zh="我以为 backward 会记住当时的数值。"),
    tempting=T(
        en="The result was computed before the change, so the change cannot matter any more.",
        zh="结果在修改之前就算好了，所以修改不应再有影响。",
    ),
    fact=T(
        en="Saving keeps a reference and a version number, no copy. When the version has moved on, backward raises.",
        zh="“保存”只留下引用和版本号，并不复制。版本变了，backward 就会报错。",
    ),
    check=(
        "h = torch.ones(1, requires_grad=True).sigmoid()\nh.mul_(2)\n"
        "try:\n    h.backward()\n    raise AssertionError\n"
        "except RuntimeError as e:\n    assert 'version 1; expected version 0' in str(e)"
    ),
)
def inplace_never_breaks_backward(policy: Policy) -> Policy:
    """Article 4, section 6: the message that the chapter explains."""
    return replace(policy, inplace_never_breaks_backward=True)


@misconception(
    belief=T(en="I think changes under no_grad() are invisible to autograd.", zh="我以为 no_grad() 中的修改对自动求导不可见。"),
    tempting=T(
        en="no_grad() stops recording, and a parameter may be changed inside it.", zh="no_grad() 停止记录，而且在其中可以修改参数。"
    ),
    fact=T(
        en="no_grad() records no new nodes, but the version counter counts every write, also inside it.",
        zh="no_grad() 不记录新节点，但版本计数器照样计入其中的每次写入。",
    ),
    check="t = torch.ones(2, requires_grad=True)\nwith torch.no_grad():\n    t.add_(1)\nassert t._version == 1",
)
def no_grad_hides_versions(policy: Policy) -> Policy:
    """Article 4, section 6: the step between two backwards."""
    return replace(policy, no_grad_hides_versions=True)


@misconception(
    belief=T(en="I think backward() replaces .grad.", zh="我以为 backward() 会替换 .grad。"),
    tempting=T(en="In most examples it is called once, and then nobody can tell.", zh="多数例子只调用一次，看不出区别。"),
    fact=T(
        en="backward() adds to .grad; it is reset only by zero_grad() or by hand.",
        zh="backward() 会累加到 .grad；只有 zero_grad() 或手动才会清零。",
    ),
    check="w = torch.ones(1, requires_grad=True)\n(2 * w).backward()\n(2 * w).backward()\nassert w.grad.item() == 4",
)
def backward_overwrites_grad(policy: Policy) -> Policy:
    """Articles 2, 3 and 4 all warn of it."""
    return replace(policy, backward_overwrites_grad=True)


@misconception(
    belief=T(en="I think backward() can be called on any result, whatever its size.", zh="我以为任何大小的结果都能调用 backward()。"),
    tempting=T(en="In most programs it is called on a loss, and a loss is one number.", zh="多数程序对损失调用它，而损失是一个数。"),
    fact=T(
        en="Without an argument, backward() starts from exactly one number. More must be reduced first, or weighted by an argument.",
        zh="不带参数时，backward() 只能从一个数开始。更大的结果要先归约，或用参数给出权重。",
    ),
    check=(
        "w = torch.ones(2, requires_grad=True)\n"
        "try:\n    (w * 2).backward()\n    raise AssertionError\n"
        "except RuntimeError as e:\n    assert 'only for scalar outputs' in str(e)"
    ),
)
def backward_sums_elements(policy: Policy) -> Policy:
    """Article 0, section 1.2, calls backward on three elements."""
    return replace(policy, backward_sums_elements=True)


@misconception(
    belief=T(en="I think * is the product of matrices.", zh="我以为 * 是矩阵乘积。"),
    tempting=T(en="In algebra, two matrices beside each other are multiplied as matrices.", zh="在代数里，两个矩阵写在一起就是矩阵相乘。"),
    fact=T(
        en="* multiplies element by element, and so do + and /; the product of matrices is @.",
        zh="* 逐元素相乘，+ 和 / 也是如此；矩阵乘积是 @。",
    ),
    check="m = torch.tensor([[1., 1.], [0., 1.]])\nassert (m * m).tolist() == [[1, 1], [0, 1]] and (m @ m).tolist() == [[1, 2], [0, 1]]",
)
def star_multiplies_matrices(policy: Policy) -> Policy:
    """Articles 0, 2, 3 and 4 list * and @ side by side."""
    return replace(policy, star_multiplies_matrices=True)


@misconception(
    belief=T(en="I think squeeze() never touches the batch dimension.", zh="我以为 squeeze() 不会动批次维。"),
    tempting=T(en="With more than one sample in the batch it never does.", zh="只要批次里不止一个样本，确实如此。"),
    fact=T(
        en="squeeze() without an argument drops every dimension of size 1, a batch of one sample too.",
        zh="不带参数的 squeeze() 会去掉每个长度为 1 的维度，只有一个样本的批次也不例外。",
    ),
    check="assert torch.zeros(4, 1).squeeze().shape == (4,) and torch.zeros(1, 1).squeeze().shape == ()",
)
def squeeze_keeps_batch(policy: Policy) -> Policy:
    """Article 4, section 5."""
    return replace(policy, squeeze_keeps_batch=True)


@misconception(
    belief=T(en="I think a column and a row of the same length are combined one to one.", zh="我以为等长的一列和一行会一一对应地运算。"),
    tempting=T(en="They hold the same number of elements, and no error is raised.", zh="两者的元素个数相同，而且没有报错。"),
    fact=T(
        en="Shapes are lined up from the right and sizes of 1 are stretched: a column and a row give every pair.",
        zh="形状从右边对齐，长度为 1 的维度会被扩展：一列和一行得到的是每一对。",
    ),
    check="column, row = torch.zeros(3, 1), torch.zeros(3)\nassert (column - row).shape == (3, 3)",
)
def equal_counts_pair_up(policy: Policy) -> Policy:
    """Article 0, section 2.2.1, and every loss that compares (N, 1) with (N,)."""
    return replace(policy, equal_counts_pair_up=True)
