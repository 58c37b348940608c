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
    """One false belief about torch.

    ``key`` is its name; ``belief`` says it in the first person, ``tempting`` why it is believed, ``fact`` what is true
    instead. ``check`` is a small program of assertions that hold on torch. Calling the misconception with a policy
    returns that policy with the belief's switch on (``change``).
    """

    key: str
    belief: T
    tempting: T
    fact: T
    check: str
    change: Callable[[Policy], Policy]

    def __call__(self, policy: Policy) -> Policy:
        """Return ``policy`` with this belief in place of torch's rule."""
        return self.change(policy)


MISCONCEPTIONS: dict[str, Misconception] = {}


def misconception(belief: T, tempting: T, fact: T, check: str) -> Callable[[Callable[[Policy], Policy]], Misconception]:
    """Return a decorator that registers a ``Policy -> Policy`` function as a misconception under its own name; the
    function becomes a :class:`Misconception`, which has these texts.
    """

    def register(change: Callable[[Policy], Policy]) -> Misconception:
        found = Misconception(change.__name__, belief, tempting, fact, check, change)
        MISCONCEPTIONS[found.key] = found
        return found

    return register


@misconception(
    belief=T(en="I think detach() gives me a copy.", zh="我以为 detach() 会给我一份副本。"),
    tempting=T(
        en="It is used to “save a value”, and its result does not require grad.",
        zh="它常被用来“保存一个值”，而且结果不再需要梯度。",
    ),
    fact=T(
        en="detach() shares the storage and even the version counter with its source.",
        zh="detach() 与原张量共享存储，连版本计数器也共享。",
    ),
    check="t = torch.ones(2, requires_grad=True) * 1\n"
    "d = t.detach()\n"
    "d.add_(1)\n"
    "assert t.tolist() == [2, 2] and t._version == 1",
)
def detach_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``detach_copies`` on: the engine then acts on this false belief.

    Its origin: articles 1 and 3 use detach() to keep old values.
    """
    return replace(policy, detach_copies=True)


@misconception(
    belief=T(
        en="I think from_numpy(), as_tensor() and numpy() copy the data.",
        zh="我以为 from_numpy()、as_tensor() 和 numpy() 会复制数据。",
    ),
    tempting=T(
        en="An array and a tensor are different types, so they look like different data.",
        zh="数组和张量是不同的类型，看上去就像不同的数据。",
    ),
    fact=T(
        en="All three give the same memory (as_tensor() unless it has to convert): a write on one "
        "side is seen on the other.",
        zh="三者给出的都是同一块内存（as_tensor() 在需要转换时例外）：一侧写入，另一侧就能看到。",
    ),
    check="import numpy as np\na = np.zeros(2)\nt = torch.from_numpy(a)\na[0] = 5\nassert t.tolist() == [5, 0]",
)
def from_numpy_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``from_numpy_copies`` on: the engine then acts on this false belief.

    Its origin: article 1, preface: the question the whole article starts from.
    """
    return replace(policy, from_numpy_copies=True)


@misconception(
    belief=T(
        en="I think a slice, view(), squeeze() or transpose() is a tensor with its own data.",
        zh="我以为切片、view()、squeeze() 或 transpose() 得到的张量有自己的数据。",
    ),
    tempting=T(en="In Python, slicing a list does copy.", zh="在 Python 中，对列表切片确实会复制。"),
    fact=T(
        en="Basic indexing, view(), squeeze() and transpose() return a view: another shape, stride and offset "
        "over the same storage.",
        zh="基本索引、view()、squeeze() 和 transpose() 返回视图：同一存储上的另一组形状、步长和偏移。",
    ),
    check="t = torch.zeros(4)\nt[1:3].fill_(9)\nassert t.tolist() == [0, 9, 9, 0]",
)
def views_copy(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``views_copy`` on: the engine then acts on this false belief.

    Its origin: carried over from Python lists.
    """
    return replace(policy, views_copy=True)


@misconception(
    belief=T(
        en="I think indexing with a list or a mask, index_select and gather share memory too.",
        zh="我以为用列表或掩码索引、index_select 和 gather 也共享内存。",
    ),
    tempting=T(
        en="A slice shares memory, and these look like slices with more freedom.",
        zh="切片共享内存，而它们看起来只是更自由的切片。",
    ),
    fact=T(
        en="Freely chosen elements have no common stride, so torch copies them into new storage.",
        zh="任意挑选的元素没有统一的步长，所以 torch 会把它们复制到新的存储。",
    ),
    check="t = torch.arange(4.)\np = t[[0, 1]]\np.fill_(-1)\nassert t.tolist() == [0, 1, 2, 3]",
)
def index_shares_memory(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``index_shares_memory`` on: the engine then acts on this false belief.

    Its origin: article 1, section 2, lists index_select, masked_select and gather as sharing.
    """
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
    """Return ``policy`` with its switch ``reshape_always_copies`` on: the engine then acts on this false belief.

    Its origin: half-remembered advice, that ``view`` shares memory and ``reshape`` copies.
    """
    return replace(policy, reshape_always_copies=True)


@misconception(
    belief=T(en="I think reshape() never copies.", zh="我以为 reshape() 从不复制。"),
    tempting=T(
        en="In most programs the tensor is contiguous, and then it is true.",
        zh="大多数程序里的张量是连续的，那时确实如此。",
    ),
    fact=T(
        en="A transposed tensor cannot be flattened by strides alone, so reshape() copies it, without saying so.",
        zh="转置后的张量无法仅凭步长展平，于是 reshape() 会悄悄地复制。",
    ),
    check="t = torch.zeros(2, 3)\nt.t().reshape(6)[0] = 1\nassert t.sum() == 0",
)
def reshape_never_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``reshape_never_copies`` on: the engine then acts on this false belief.

    Its origin: half-remembered advice, that ``view`` never copies.
    """
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
    """Return ``policy`` with its switch ``clone_cuts_graph`` on: the engine then acts on this false belief.

    Its origin: article 1, section 3, compares clone and detach.
    """
    return replace(policy, clone_cuts_graph=True)


@misconception(
    belief=T(en="I think id() shows whether two tensors share memory.", zh="我以为 id() 能说明两个张量是否共享内存。"),
    tempting=T(
        en="In CPython id() is an address, and so it sounds like the address of the numbers.",
        zh="在 CPython 中 id() 就是一个地址，听起来就像是那些数的地址。",
    ),
    fact=T(
        en="id() names the Python object. A view is another object on the same memory; untyped_storage().data_ptr() "
        "identifies the memory.",
        zh="id() 标识的是 Python 对象。视图是同一内存上的另一个对象；说明内存的是 untyped_storage().data_ptr()。",
    ),
    check=(
        "x = torch.arange(4.)\n"
        "y = x[1:]\n"
        "assert id(x) != id(y)\n"
        "assert x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()"
    ),
)
def id_tells_memory(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``id_tells_memory`` on: the engine then acts on this false belief.

    Its origin: article 1, section 2, compares instances by their id.
    """
    return replace(policy, id_tells_memory=True)


@misconception(
    belief=T(
        en="I think y += x makes a new tensor, like y = y + x.", zh="我以为 y += x 和 y = y + x 一样，会产生新的张量。"
    ),
    tempting=T(en="For Python numbers and strings the two are the same.", zh="对 Python 的数和字符串，两者是一样的。"),
    fact=T(
        en="y += x is y.add_(x): it writes into y's memory, and every other name and view of that memory sees it.",
        zh="y += x 就是 y.add_(x)：它写入 y 的内存，这块内存的其他名字和视图都会看到。",
    ),
    check="y = torch.zeros(2)\nold = y\ny += 1\nassert old is y and old.tolist() == [1, 1]",
)
def augmented_assignment_rebinds(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``augmented_assignment_rebinds`` on: the engine then acts on this false belief.

    Its origin: article 4, section 6: the += that breaks backward.
    """
    return replace(policy, augmented_assignment_rebinds=True)


@misconception(
    belief=T(
        en="I think a write through a view does not count for its base.", zh="我以为通过视图写入不算改动了原张量。"
    ),
    tempting=T(en="The view is another object, with another shape.", zh="视图是另一个对象，形状也不同。"),
    fact=T(
        en="A base and all its views share one version counter: a write through any of them counts for all.",
        zh="原张量与它的所有视图共用一个版本计数器：写入任何一个，对全部都算数。",
    ),
    check="h = torch.ones(3)\nh[0] = 2\nassert h._version == 1 and h[1:]._version == 1",
)
def views_have_own_version(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``views_have_own_version`` on: the engine then acts on this false belief.

    Its origin: chapter 12: the row assignment that breaks backward.
    """
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
    """Return ``policy`` with its switch ``inplace_never_breaks_backward`` on: the engine then acts on this false
    belief.

    Its origin: article 4, section 6: the message that the chapter explains.
    """
    return replace(policy, inplace_never_breaks_backward=True)


@misconception(
    belief=T(
        en="I think changes under no_grad() are invisible to autograd.",
        zh="我以为 no_grad() 中的修改对自动求导不可见。",
    ),
    tempting=T(
        en="no_grad() stops recording, and a parameter may be changed inside it.",
        zh="no_grad() 停止记录，而且在其中可以修改参数。",
    ),
    fact=T(
        en="no_grad() records no new nodes, but a write inside it is counted like one outside.",
        zh="no_grad() 不记录新节点，但其中的写入和外面的一样会被计入版本。",
    ),
    check="t = torch.ones(2, requires_grad=True)\nwith torch.no_grad():\n    t.add_(1)\nassert t._version == 1",
)
def no_grad_hides_versions(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``no_grad_hides_versions`` on: the engine then acts on this false belief.

    Its origin: article 4, section 6: the step between two backwards.
    """
    return replace(policy, no_grad_hides_versions=True)


@misconception(
    belief=T(en="I think backward() replaces .grad.", zh="我以为 backward() 会替换 .grad。"),
    tempting=T(
        en="In most examples it is called once, and then there is no difference.", zh="多数例子只调用一次，看不出区别。"
    ),
    fact=T(
        en="backward() adds to .grad; it is reset only by zero_grad() or by hand.",
        zh="backward() 会累加到 .grad；只有 zero_grad() 或手动才会清零。",
    ),
    check="w = torch.ones(1, requires_grad=True)\n(2 * w).backward()\n(2 * w).backward()\nassert w.grad.item() == 4",
)
def backward_overwrites_grad(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``backward_overwrites_grad`` on: the engine then acts on this false belief.

    Its origin: articles 2, 3 and 4 all warn of it.
    """
    return replace(policy, backward_overwrites_grad=True)


@misconception(
    belief=T(
        en="I think a write through detach() is not noticed by autograd.",
        zh="我以为通过 detach() 的写入不会被自动求导发现。",
    ),
    tempting=T(
        en="detach() is said to take the tensor out of the graph.", zh="人们说 detach() 把张量从计算图中取出来。"
    ),
    fact=T(
        en="The detached tensor is out of the graph, but its version counter is its source's: the write counts, "
        "and backward finds it.",
        zh="脱离的张量不在计算图中，但它的版本计数器就是原张量的：写入会被计数，backward 会发现。",
    ),
    check=(
        "x = torch.ones(2, requires_grad=True)\n"
        "y = x.exp()\n"
        "y.detach().zero_()\n"
        "try:\n"
        "    y.sum().backward()\n"
        "    raise AssertionError\n"
        "except RuntimeError as e:\n"
        "    assert 'inplace operation' in str(e)"
    ),
)
def detach_has_own_version(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``detach_has_own_version`` on: the engine then acts on this false belief.

    Its origin: article 3, section 2.3: a write to the detached tensor leaves the gradient alone.
    """
    return replace(policy, detach_has_own_version=True)


@misconception(
    belief=T(en="I think .data gives me a copy.", zh="我以为 .data 会给我一份副本。"),
    tempting=T(
        en="It is used to look at values without disturbing anything.", zh="人们用它查看数值，仿佛不会影响任何东西。"
    ),
    fact=T(
        en=".data is the same memory in a new tensor object: a write is seen on both sides.",
        zh=".data 是同一块内存的新张量对象：写入两边都能看到。",
    ),
    check="x = torch.ones(2)\nx.data.add_(1)\nassert x.tolist() == [2, 2]",
)
def data_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``data_copies`` on: the engine then acts on this false belief.

    Its origin: articles 1 and 2 write through .data.
    """
    return replace(policy, data_copies=True)


@misconception(
    belief=T(
        en="I think a write through .data is noticed by autograd, because the counter belongs to the memory.",
        zh="我以为通过 .data 的写入会被自动求导发现，因为计数器属于内存。",
    ),
    tempting=T(en="It is true of detach() and of every view.", zh="对 detach() 和各种视图都是如此。"),
    fact=T(
        en=".data has a version counter of its own: backward does not notice the write, and its "
        "gradient is silently wrong.",
        zh=".data 有自己的版本计数器：backward 不会发现写入，梯度悄悄地错了。",
    ),
    check="x = torch.ones(2)\nx.data.add_(1)\nassert x._version == 0",
)
def data_shares_version(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``data_shares_version`` on: the engine then acts on this false belief.

    Its origin: article 1, section 3.3: no error is taken for a right gradient.
    """
    return replace(policy, data_shares_version=True)


@misconception(
    belief=T(en="I think torch.tensor(a) wraps the array a.", zh="我以为 torch.tensor(a) 包装数组 a。"),
    tempting=T(
        en="from_numpy() and as_tensor() do, and the names are alike.",
        zh="from_numpy() 和 as_tensor() 确实如此，名字又很像。",
    ),
    fact=T(en="torch.tensor() always copies, whatever it is given.", zh="torch.tensor() 总会复制，不论给它什么。"),
    check="import numpy as np\na = np.ones(2)\nt = torch.tensor(a)\na += 1\nassert t.tolist() == [1, 1]",
)
def torch_tensor_shares_memory(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``torch_tensor_shares_memory`` on: the engine then acts on this false belief.

    Its origin: article 4, section 1: conversion is said to share storage in both directions.
    """
    return replace(policy, torch_tensor_shares_memory=True)


@misconception(
    belief=T(
        en="I think clone() is another name for the same memory.", zh="我以为 clone() 只是同一块内存的另一个名字。"
    ),
    tempting=T(
        en="Its result stays in the graph, as if it were the tensor itself.",
        zh="它的结果留在计算图里，仿佛就是原张量。",
    ),
    fact=T(
        en="clone() has memory of its own; only the gradient leads back to the source.",
        zh="clone() 有自己的内存；只有梯度会回到原张量。",
    ),
    check="x = torch.ones(2)\ny = x.clone()\ny += 1\nassert x.tolist() == [1, 1]",
)
def clone_shares_memory(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``clone_shares_memory`` on: the engine then acts on this false belief.

    Origin: article 1, section 3, compares clone and detach by both questions, memory and graph.
    """
    return replace(policy, clone_shares_memory=True)


@misconception(
    belief=T(en="I think expand() repeats the elements in memory.", zh="我以为 expand() 会在内存中重复元素。"),
    tempting=T(
        en="The result prints like a repeated tensor, and repeat() does copy.",
        zh="结果打印出来就像重复过的张量，而 repeat() 确实会复制。",
    ),
    fact=T(
        en="An expanded dimension has stride 0: many indices read one element, and nothing is copied.",
        zh="扩展的维度步长为 0：多个下标读同一个元素，什么都没有复制。",
    ),
    check="x = torch.ones(1, 2)\n"
    "y = x.expand(3, 2)\n"
    "x += 1\n"
    "assert y.stride() == (0, 1) and y.tolist() == [[2, 2]] * 3",
)
def expand_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``expand_copies`` on: the engine then acts on this false belief.

    Its origin: article 0, section 2.2.1: the smaller operand becomes an enlarged tensor.
    """
    return replace(policy, expand_copies=True)


@misconception(
    belief=T(en="I think contiguous() always gives me new memory.", zh="我以为 contiguous() 总会给我新的内存。"),
    tempting=T(
        en="After transpose() it does, and that is where it is met.",
        zh="在 transpose() 之后确实如此，而人们正是在那里遇到它。",
    ),
    fact=T(
        en="contiguous() returns the very same tensor when nothing has to be moved.",
        zh="不需要移动元素时，contiguous() 返回原来的那个张量。",
    ),
    check="x = torch.ones(2)\nassert x.contiguous() is x",
)
def contiguous_always_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``contiguous_always_copies`` on: the engine then acts on this false belief.

    Its origin: article 4, section 1, on views that are not contiguous.
    """
    return replace(policy, contiguous_always_copies=True)


@misconception(
    belief=T(en="I think x.to(dtype) always gives me new memory.", zh="我以为 x.to(dtype) 总会给我新的内存。"),
    tempting=T(
        en="A conversion makes new numbers, so it must make a new tensor.", zh="转换产生新的数，所以应当产生新张量。"
    ),
    fact=T(
        en="When dtype and device fit already, to() returns the very same tensor; copy=True always makes a copy.",
        zh="dtype 和设备已经符合时，to() 返回原来的那个张量；要副本须写 copy=True。",
    ),
    check="x = torch.ones(2)\nassert x.to(torch.float32) is x and x.to(torch.float32, copy=True) is not x",
)
def to_always_copies(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``to_always_copies`` on: the engine then acts on this false belief.

    Its origin: article 3, section 1.5: code that moves everything to the device that was found.
    """
    return replace(policy, to_always_copies=True)


@misconception(
    belief=T(
        en="I think y = y + x changes the tensor that y names, like y += x.",
        zh="我以为 y = y + x 和 y += x 一样，会改动 y 所指的张量。",
    ),
    tempting=T(en="Afterwards y has the same values either way.", zh="之后 y 的数值在两种写法下相同。"),
    fact=T(
        en="y = y + x makes a new tensor and moves the name y to it; every other name still has the old one.",
        zh="y = y + x 产生新张量，并把名字 y 移过去；其他名字仍指向旧的。",
    ),
    check="y = torch.zeros(2)\nold = y\ny = y + 1\nassert old is not y and old.tolist() == [0, 0]",
)
def assignment_writes_in_place(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``assignment_writes_in_place`` on: the engine then acts on this false belief.

    Its origin: article 1, section 2, tells the two apart by id().
    """
    return replace(policy, assignment_writes_in_place=True)


@misconception(
    belief=T(
        en="I think nothing that requires grad may be changed in place.", zh="我以为需要梯度的张量都不能就地修改。"
    ),
    tempting=T(
        en="The error about leaves is met first, and in-place operations are discouraged.",
        zh="人们最先遇到关于叶子张量的错误，就地操作又不被推荐。",
    ),
    fact=T(
        en="A computed tensor may be changed in place; backward raises only when a node had saved the old values.",
        zh="计算得到的张量可以就地修改；只有某个节点保存了旧值时，backward 才会报错。",
    ),
    check="x = torch.ones(2, requires_grad=True)\n"
    "h = x * 2\n"
    "h += 1\n"
    "h.sum().backward()\n"
    "assert x.grad.tolist() == [2, 2]",
)
def inplace_always_refused(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``inplace_always_refused`` on: the engine then acts on this false belief.

    Its origin: article 4, section 6, replaces every in-place operation.
    """
    return replace(policy, inplace_always_refused=True)


@misconception(
    belief=T(en="I think a parameter may be changed in place at any time.", zh="我以为参数随时可以就地修改。"),
    tempting=T(en="Optimizers do nothing else.", zh="优化器做的正是这件事。"),
    fact=T(
        en="A leaf that requires grad is refused outside of no_grad(): the change would have to be recorded "
        "before its beginning.",
        zh="需要梯度的叶子在 no_grad() 之外会被拒绝：改动将不得不记录在它的起点之前。",
    ),
    check=(
        "w = torch.ones(2, requires_grad=True)\n"
        "try:\n    w.mul_(2)\n    raise AssertionError\nexcept RuntimeError as e:\n    assert 'leaf Variable' in str(e)"
    ),
)
def inplace_on_leaf_allowed(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``inplace_on_leaf_allowed`` on: the engine then acts on this false belief.

    Its origin: article 0, section 2.2.2, multiplies a leaf in place.
    """
    return replace(policy, inplace_on_leaf_allowed=True)


@misconception(
    belief=T(en="I think zero_grad() fills the gradients with zeros.", zh="我以为 zero_grad() 会把梯度填成零。"),
    tempting=T(en="Its name says so, and it did before torch 2.0.", zh="名字这么说，torch 2.0 之前也确实如此。"),
    fact=T(
        en="zero_grad() sets .grad to None; set_to_none=False leaves zeros.",
        zh="zero_grad() 把 .grad 设为 None；要零须写 set_to_none=False。",
    ),
    check=(
        "w = torch.ones(2, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.1)\n"
        "w.sum().backward()\nopt.zero_grad()\nassert w.grad is None"
    ),
)
def zero_grad_leaves_zeros(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``zero_grad_leaves_zeros`` on: the engine then acts on this false belief.

    Its origin: article 3, section 2.3: after zero_grad the gradient is said to be a zero tensor.
    """
    return replace(policy, zero_grad_leaves_zeros=True)


@misconception(
    belief=T(en="I think an optimizer's step() uses the gradients up.", zh="我以为优化器的 step() 会把梯度用掉。"),
    tempting=T(en="A step closes the round, and the next begins afresh.", zh="step() 结束了一轮，下一轮重新开始。"),
    fact=T(
        en="step() only reads .grad; without zero_grad() the next backward() adds to what is there.",
        zh="step() 只读取 .grad；没有 zero_grad()，下一次 backward() 会累加上去。",
    ),
    check=(
        "w = torch.ones(1, requires_grad=True)\nopt = torch.optim.SGD([w], lr=0.0)\n"
        "for _ in range(2):\n    w.sum().backward()\n    opt.step()\nassert w.grad.item() == 2"
    ),
)
def step_clears_grads(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``step_clears_grads`` on: the engine then acts on this false belief.

    Its origin: article 4, section 3: the four steps of a training round leave zero_grad out.
    """
    return replace(policy, step_clears_grads=True)


@misconception(
    belief=T(
        en="I think backward() can be called again on the same result.", zh="我以为同一个结果可以再次调用 backward()。"
    ),
    tempting=T(en="The result is still there, and so is its grad_fn.", zh="结果还在，它的 grad_fn 也在。"),
    fact=T(
        en="The first backward() frees what the nodes had saved; retain_graph=True keeps it.",
        zh="第一次 backward() 会释放各节点保存的内容；retain_graph=True 才会保留。",
    ),
    check=(
        "x = torch.ones(2, requires_grad=True)\n"
        "s = x.exp().sum()\n"
        "s.backward()\n"
        "try:\n"
        "    s.backward()\n"
        "    raise AssertionError\n"
        "except RuntimeError as e:\n"
        "    assert 'second time' in str(e)"
    ),
)
def graph_survives_backward(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``graph_survives_backward`` on: the engine then acts on this false belief.

    Its origin: article 3, section 2.3: a second backward on one loss doubles the gradient.
    """
    return replace(policy, graph_survives_backward=True)


@misconception(
    belief=T(en="I think every tensor on the way gets its .grad.", zh="我以为途中的每个张量都会得到 .grad。"),
    tempting=T(en="A gradient was computed for each of them.", zh="它们每一个的梯度都计算过。"),
    fact=T(
        en="Only leaves keep their gradient; for a computed tensor it is passed on and dropped, unless "
        "retain_grad() was called.",
        zh="只有叶子保留梯度；计算得到的张量的梯度传下去后就丢弃，除非调用过 retain_grad()。",
    ),
    check=(
        "import warnings\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "h = x * 2\n"
        "h.sum().backward()\n"
        "with warnings.catch_warnings():\n"
        "    warnings.simplefilter('ignore')\n"
        "    assert h.grad is None and x.grad is not None"
    ),
)
def grad_of_non_leaf_kept(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``grad_of_non_leaf_kept`` on: the engine then acts on this false belief.

    Its origin: article 4, section 3: the gradients of all tensors are said to be updated.
    """
    return replace(policy, grad_of_non_leaf_kept=True)


@misconception(
    belief=T(
        en="I think h.requires_grad = False freezes a computed tensor.",
        zh="我以为 h.requires_grad = False 能冻结计算得到的张量。",
    ),
    tempting=T(
        en="It freezes parameters, and the attribute is there on every tensor.",
        zh="它能冻结参数，而每个张量都有这个属性。",
    ),
    fact=T(
        en="The flag of a computed tensor follows from its graph and cannot be switched off; detach() gives a "
        "tensor without the graph.",
        zh="计算得到的张量的标志由计算图决定，不能关掉；detach() 给出不在图中的张量。",
    ),
    check=(
        "h = torch.ones(2, requires_grad=True) * 2\n"
        "try:\n"
        "    h.requires_grad = False\n"
        "    raise AssertionError\n"
        "except RuntimeError as e:\n"
        "    assert 'leaf' in str(e)"
    ),
)
def non_leaf_flag_can_be_cleared(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``non_leaf_flag_can_be_cleared`` on: the engine then acts on this false belief.

    Its origin: article 3, section 2.3, switches tracking off by the flag.
    """
    return replace(policy, non_leaf_flag_can_be_cleared=True)


@misconception(
    belief=T(en="I think gradients flow through item().", zh="我以为梯度会流过 item()。"),
    tempting=T(en="item() gives the very number that was computed.", zh="item() 给出的正是算出来的那个数。"),
    fact=T(
        en="item() returns a Python number, and numbers have no graph.", zh="item() 返回 Python 的数，而数没有计算图。"
    ),
    check="x = torch.ones(1, requires_grad=True)\nassert not (torch.ones(2) * x.item()).requires_grad",
)
def item_keeps_graph(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``item_keeps_graph`` on: the engine then acts on this false belief.

    Its origin: article 3, section 2.4, computes with x.item().
    """
    return replace(policy, item_keeps_graph=True)


@misconception(
    belief=T(en="I think eval() stops the recording of gradients.", zh="我以为 eval() 会停止记录梯度。"),
    tempting=T(
        en="It is called before every validation, beside no_grad().", zh="每次验证前都会调用它，和 no_grad() 一起。"
    ),
    fact=T(
        en="eval() switches the behaviour of dropout and batch norm; recording is switched off by no_grad() only.",
        zh="eval() 切换 dropout 和 batch norm 的行为；停止记录只靠 no_grad()。",
    ),
    check="model = torch.nn.Linear(2, 1).eval()\nassert model(torch.ones(1, 2)).requires_grad",
)
def eval_stops_gradients(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``eval_stops_gradients`` on: the engine then acts on this false belief.

    Its origin: article 2, section 4.2.1: eval() is said to avoid needless computing.
    """
    return replace(policy, eval_stops_gradients=True)


@misconception(
    belief=T(
        en="I think a tensor that I assign to a module becomes a parameter.", zh="我以为赋给模块的张量会成为参数。"
    ),
    tempting=T(
        en="Layers that are assigned are found, and the tensor requires grad.",
        zh="赋给模块的层会被找到，而这个张量也需要梯度。",
    ),
    fact=T(
        en="Only nn.Parameter is registered; a plain tensor is neither trained by the optimizer nor saved.",
        zh="只有 nn.Parameter 会被登记；普通张量既不会被优化器训练，也不会被保存。",
    ),
    check="m = torch.nn.Module()\nm.scale = torch.ones(1, requires_grad=True)\nassert list(m.parameters()) == []",
)
def tensor_attributes_are_parameters(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``tensor_attributes_are_parameters`` on: the engine then acts on this false
    belief.

    Its origin: article 4, section 3, on what parameters() returns.
    """
    return replace(policy, tensor_attributes_are_parameters=True)


@misconception(
    belief=T(en="I think dividing integers gives integers.", zh="我以为整数相除得到整数。"),
    tempting=T(en="It does in C, and it did in early torch.", zh="在 C 语言和早期的 torch 中确实如此。"),
    fact=T(
        en="/ of two integer tensors gives floating numbers; // and div(rounding_mode=…) give integers.",
        zh="两个整数张量相除得到浮点数；// 和 div(rounding_mode=…) 才给出整数。",
    ),
    check="n = torch.tensor([3, 4])\nassert (n / 2).tolist() == [1.5, 2.0] and (n // 2).tolist() == [1, 2]",
)
def integer_division_stays_integer(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``integer_division_stays_integer`` on: the engine then acts on this false
    belief.

    Its origin: article 0, section 2.2.2, makes tensors of whole numbers.
    """
    return replace(policy, integer_division_stays_integer=True)


@misconception(
    belief=T(
        en="I think zero_grad() clears only gradients that step() has used.",
        zh="我以为 zero_grad() 只清除 step() 用过的梯度。",
    ),
    tempting=T(
        en="In the ordinary loop it is called before every backward(), and there it clears just that.",
        zh="在普通的训练循环里，它就在每次 backward() 之前，那时清除的恰好就是这些。",
    ),
    fact=T(
        en="zero_grad() drops every gradient at once, used or not: step() gets only what a backward() after it brings.",
        zh="zero_grad() 会立即丢弃所有梯度，不论用过没有：step() 只得到它之后的 backward() 带来的梯度。",
    ),
    check=(
        "w = torch.zeros(1, requires_grad=True)\nopt = torch.optim.SGD([w], lr=1.0)\n"
        "for slope in (1, 2):\n    opt.zero_grad()\n    (w * slope).sum().backward()\nopt.step()\nassert w.item() == -2"
    ),
)
def zero_grad_spares_unused(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``zero_grad_spares_unused`` on: the engine then acts on this false belief.

    Its origin: articles 2 and 3, which reset at the start of an iteration and accumulate.
    """
    return replace(policy, zero_grad_spares_unused=True)


@misconception(
    belief=T(en="I think entering no_grad() clears the gradients.", zh="我以为进入 no_grad() 会清空梯度。"),
    tempting=T(en="“No grad” sounds like it.", zh="“no grad”听上去就是没有梯度。"),
    fact=T(
        en="no_grad() stops recording while it lasts, and touches no .grad; only zero_grad() or an assignment does.",
        zh="no_grad() 只在其间停止记录，不会动任何 .grad；只有 zero_grad() 或赋值才会。",
    ),
    check="w = torch.ones(1, requires_grad=True)\n"
    "w.sum().backward()\n"
    "with torch.no_grad():\n"
    "    pass\n"
    "assert w.grad.item() == 1",
)
def no_grad_zeroes_grads(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``no_grad_zeroes_grads`` on: the engine then acts on this false belief.

    Origin: article 3, section 2.3, describes torch.no_grad() as a way to set gradients to zero.
    """
    return replace(policy, no_grad_zeroes_grads=True)


@misconception(
    belief=T(
        en="I think backward() can be called on any result, whatever its size.",
        zh="我以为任何大小的结果都能调用 backward()。",
    ),
    tempting=T(
        en="In most programs it is called on a loss, and a loss is one number.",
        zh="多数程序对损失调用它，而损失是一个数。",
    ),
    fact=T(
        en="Without an argument, backward() starts from exactly one number. More must be reduced first, or "
        "weighted by an argument.",
        zh="不带参数时，backward() 只能从一个数开始。更大的结果要先归约，或用参数给出权重。",
    ),
    check=(
        "w = torch.ones(2, requires_grad=True)\n"
        "try:\n    (w * 2).backward()\n    raise AssertionError\n"
        "except RuntimeError as e:\n    assert 'only for scalar outputs' in str(e)"
    ),
)
def backward_sums_elements(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``backward_sums_elements`` on: the engine then acts on this false belief.

    Its origin: article 0, section 1.2, calls backward on three elements.
    """
    return replace(policy, backward_sums_elements=True)


@misconception(
    belief=T(en="I think * is the matrix product.", zh="我以为 * 是矩阵乘积。"),
    tempting=T(
        en="In algebra, two matrices beside each other are multiplied as matrices.",
        zh="在代数里，两个矩阵写在一起就是矩阵相乘。",
    ),
    fact=T(
        en="* multiplies element by element, and so do + and /; the matrix product is @.",
        zh="* 逐元素相乘，+ 和 / 也是如此；矩阵乘积是 @。",
    ),
    check="m = torch.tensor([[1., 1.], [0., 1.]])\n"
    "assert (m * m).tolist() == [[1, 1], [0, 1]] and (m @ m).tolist() == [[1, 2], [0, 1]]",
)
def star_multiplies_matrices(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``star_multiplies_matrices`` on: the engine then acts on this false belief.

    Its origin: articles 0, 2, 3 and 4 list * and @ side by side.
    """
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
    """Return ``policy`` with its switch ``squeeze_keeps_batch`` on: the engine then acts on this false belief.

    Its origin: article 4, section 5.
    """
    return replace(policy, squeeze_keeps_batch=True)


@misconception(
    belief=T(
        en="I think a column and a row of the same length are combined one to one.",
        zh="我以为等长的一列和一行会一一对应地运算。",
    ),
    tempting=T(
        en="They hold the same number of elements, and no error is raised.", zh="两者的元素个数相同，而且没有报错。"
    ),
    fact=T(
        en="Shapes are lined up from the right and sizes of 1 are stretched: a column and a row give every pair.",
        zh="形状从右边对齐，长度为 1 的维度会被扩展：一列和一行得到的是每一对。",
    ),
    check="column, row = torch.zeros(3, 1), torch.zeros(3)\nassert (column - row).shape == (3, 3)",
)
def equal_counts_pair_up(policy: Policy) -> Policy:
    """Return ``policy`` with its switch ``equal_counts_pair_up`` on: the engine then acts on this false belief.

    Its origin: article 0, section 2.2.1, and every loss that compares (N, 1) with (N,).
    """
    return replace(policy, equal_counts_pair_up=True)
