"""Chapter 19: pieces of a batch, names under a wrapper, gradients of several copies."""

from __future__ import annotations

from pitfall_lab.lessons.exercise import (
    Check,
    Exercise,
    Property,
    as_solved,
    equal,
    every,
    fails,
    runs,
    true,
    unchanged,
)
from pitfall_lab.trace import T

_CASES = ((9, 4), (6, 4), (13, 8), (7, 5))


def _pieces(*values: object) -> str:
    rows = "".join(f"    {case}: {value},\n" for case, value in zip(_CASES, values, strict=True))
    return "pieces = {  # (samples, devices): sizes\n" + rows + "}\n"


_NET = (
    "def make():\n"
    "    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh())\n"
    "    net.add_module('submodule', nn.Linear(2, 1))\n"
    "    net.add_module('encoder', nn.Linear(1, 1))\n"
    "    return net\n"
    "\n"
    "\n"
    "def holder():\n"
    "    net = nn.Module()\n"
    "    net.add_module('module', nn.Linear(2, 1))\n"
    "    return net\n"
    "\n"
    "\n"
    "def same(a, b):\n"
    "    return all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters()))\n"
)
_BARE = "source = make()\ntarget = make()\nsaved = source.state_dict()"
_WRAPPED = "source = make()\ntarget = make()\nsaved = nn.DataParallel(source).state_dict()"
_OTHER = "source = nn.Linear(3, 2)\ntarget = make()\nsaved = nn.DataParallel(source).state_dict()"

_LARGER = (
    "source = make()\n"
    "source.add_module('head', nn.Linear(1, 1))\n"
    "target = make()\n"
    "saved = nn.DataParallel(source).state_dict()"
)
_RENAMED = _OTHER.replace(
    "nn.Linear(3, 2)", "nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1), nn.Linear(1, 1))"
)

_COPIES = (
    "import copy\n"
    "first = nn.Linear(3, 1)\n"
    "replicas = [first, *(copy.deepcopy(first) for _ in sizes[1:])]\n"
    "x = torch.randn(sum(sizes), 3)\n"
    "for net, piece in zip(replicas, x.split(sizes)):\n"
    "    net(piece).square().mean().backward()\n"
    "weight = first.weight.detach()"
)

_EACH = "[p.tolist() for p in parts] == [samples.tolist()] * world"

_SHARD = """\
def shard(samples, rank, world):
    return samples.chunk(world)[rank]
"""


def _loaded(inputs: str) -> Check:
    """Check that nothing is raised, and that the model has the weights of the checkpoint."""
    reason = T(
        en="nothing was raised, and the model has other weights than the checkpoint",
        zh="没有报错，而模型的权重与检查点的不同",
    )
    return every(runs(inputs=inputs), true("same(source, target)", reason, inputs=inputs))


EXERCISES = (
    Exercise(
        key="19.1",
        kind="predict",
        title=T(en="Pieces", zh="分块"),
        task=T(
            en=(
                "`nn.DataParallel` divides a batch into pieces as `chunk` does. How large are the pieces for each "
                "number of samples and devices? Write lists of sizes, **before** you run anything; leave out "
                "devices that get nothing."
            ),
            zh=(
                "`nn.DataParallel` 像 `chunk` 那样把批次分成块。对每组样本数与设备数，各块有多大？在运行任何代码**之"
                "前**写出大小的列表；没有分到数据的设备不列出。"
            ),
        ),
        given=_pieces(*[None] * 4),
        inputs="""\
def answered(case):
    sizes = pieces[case]
    return sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes
""",
        properties=tuple(
            Property(
                T(en=f"{samples} samples for {devices} devices", zh=f"{samples} 个样本，{devices} 个设备"),
                equal(
                    f"answered({case})",
                    f"[len(p) for p in torch.arange({samples}).chunk({devices})]",
                    tell=False,
                    seeds=(0,),
                ),
            )
            for case in _CASES
            for samples, devices in (case,)
        ),
        hint_for=(2, 2, 3, 3),
        hints=(
            T(en="All pieces have the same size but the last.", zh="除最后一块外，各块大小相同。"),
            T(en="The size is samples divided by devices, rounded up.", zh="大小是样本数除以设备数，向上取整。"),
            T(
                en="11 for 6: the size is 2, so five pieces of 2 and one of 1. Count the pieces that you get.",
                zh="11 分 6：大小为 2，即五块 2 和一块 1。数一数得到几块。",
            ),
        ),
        right=(
            _pieces([3, 3, 3], [2, 2, 2], [2, 2, 2, 2, 2, 2, 1], [2, 2, 2, 1]),
            _pieces("[3] * 3", "[2] * 3", "[2] * 6 + [1]", "[2] * 3 + [1]"),
            _pieces("[3, 3, 3]", "'[2, 2, 2]'", "[2, 2, 2, 2, 2, 2, 1]", "torch.tensor([2, 2, 2, 1])"),
            "pieces = {(9, 4): (3, 3, 3), (6, 4): (2, 2, 2), (13, 8): (2, 2, 2, 2, 2, 2, 1), (7, 5): (2, 2, 2, 1)}\n",
            (
                "pieces = {}\n"
                "for samples, devices in ((9, 4), (6, 4), (13, 8), (7, 5)):\n"
                "    size = -(-samples // devices)\n"
                "    pieces[samples, devices] = [min(size, samples - at) for at in range(0, samples, size)]\n"
            ),
        ),
        wrong=(
            _pieces([3, 2, 2, 2], [2, 2, 1, 1], [2, 2, 2, 2, 2, 1, 1, 1], [2, 2, 1, 1, 1]),
            _pieces([2, 2, 2, 3], [1, 1, 1, 3], [1, 1, 1, 1, 1, 1, 1, 6], [1, 1, 1, 1, 3]),
            _pieces([3, 3, 3, 0], [2, 2, 2, 0], [2, 2, 2, 2, 2, 2, 1, 0], [2, 2, 2, 1, 0]),
            _pieces([3, 3, 3], [2, 2, 2], [2, 2, 2, 2, 2, 2, 1], [1, 2, 2, 2]),
            _pieces([3, 3, 3], [2, 2, 2], [2] * 7, [2, 2, 2, 1]),
        ),
    ),
    Exercise(
        key="19.2",
        kind="repair",
        title=T(en="A checkpoint for every model", zh="每种模型都能用的检查点"),
        task=T(
            en=(
                "`load(model, saved)` brings a checkpoint into a bare model. Repair it: it must work for checkpoints "
                "of bare models and of those wrapped by `nn.DataParallel`, whose names begin with `module.`, and "
                "refuse what belongs to another model with a `RuntimeError`, as `load_state_dict` does. A bare model "
                "may itself have a layer that is called `module`. The checkpoint itself stays as it is."
            ),
            zh=(
                "`load(model, saved)` 把检查点载入裸模型。请修好它：对裸模型和由 `nn.DataParallel` 包装的模型（其名字"
                "以 `module.` 开头）的检查点都有效，并像 `load_state_dict` 那样以 `RuntimeError` 拒绝属于其他模型的检"
                "查点。裸模型自己也可能有一层叫 `module`。检查点本身保持不变。"
            ),
        ),
        given="def load(model, saved):\n    model.load_state_dict(saved, strict=False)\n",
        setup=_NET,
        inputs=_WRAPPED,
        drive="load(target, saved)",
        properties=(
            Property(T(en="a wrapped model's checkpoint is loaded", zh="载入包装模型的检查点"), _loaded(_WRAPPED)),
            Property(T(en="a bare model's checkpoint is loaded", zh="载入裸模型的检查点"), _loaded(_BARE)),
            Property(
                T(en="another model's is refused", zh="拒绝其他模型的检查点"),
                every(*(fails("RuntimeError", inputs=each) for each in (_OTHER, _LARGER, _RENAMED))),
            ),
            Property(
                T(en="the checkpoint has kept its names", zh="检查点的名字没有改变"),
                true(
                    "list(saved) == ['module.' + name for name in source.state_dict()]",
                    T(en="its names, or their order, are others now", zh="它的名字或顺序现在不同了"),
                ),
            ),
            Property(
                T(en="a bare model with a layer called `module` is loaded", zh="载入有一层叫 `module` 的裸模型"),
                _loaded(_BARE.replace("make()", "holder()")),
            ),
            Property(
                T(en="a model with such a layer is loaded when it was wrapped, too", zh="包装后的这种模型也能载入"),
                _loaded(_WRAPPED.replace("make()", "holder()")),
            ),
        ),
        hint_for=(1, 0, 3, 0, 3, 3),
        hints=(
            T(
                en="Print what `load_state_dict` returns here, or read its error. Which names are missing, and which "
                "does it not expect?",
                zh="打印 `load_state_dict` 在这里返回的内容，或阅读它的错误信息。缺少哪些名字，又有哪些是多余的？",
            ),
            T(en="Every name of a wrapped model begins with `module.`.", zh="包装模型的每个名字都以 `module.` 开头。"),
            T(
                en="Remove the prefix only where the names are not those of `model.state_dict()`; stay strict.",
                zh="只有当名字与 `model.state_dict()` 的不同时才去掉前缀；保持 strict。",
            ),
        ),
        right=(
            "def load(model, saved):\n"
            "    if set(saved) != set(model.state_dict()):\n"
            "        saved = {name.removeprefix('module.'): value for name, value in saved.items()}\n"
            "    model.load_state_dict(saved)\n",
            "def load(model, saved):\n    try:\n        model.load_state_dict(saved)\n    except RuntimeError:\n"
            "        nn.DataParallel(model).load_state_dict(saved)\n",
            (
                "def load(model, saved):\n"
                "    own = list(model.state_dict())\n"
                "    wrapped = list(saved) == ['module.' + name for name in own]\n"
                "    model.load_state_dict({name[7 * wrapped :]: value for name, value in saved.items()})\n"
            ),
            "def load(model, saved):\n    wrapped = nn.DataParallel(model)\n"
            "    (wrapped if saved.keys() == wrapped.state_dict().keys() else model).load_state_dict(saved)\n",
        ),
        wrong=(
            "def load(model, saved):\n    model.load_state_dict(saved)\n",
            (
                "def load(model, saved):\n"
                "    model.load_state_dict({name.removeprefix('module.'): value for name, value in saved.items()})\n"
            ),
            "def load(model, saved):\n    wrapped = all(name.startswith('module.') for name in saved)\n"
            "    (nn.DataParallel(model) if wrapped else model).load_state_dict(saved)\n",
            (
                "def load(model, saved):\n"
                "    model.load_state_dict({name.replace('module.', ''): value for name, value in saved.items()})\n"
            ),
            "def load(model, saved):\n    nn.DataParallel(model).load_state_dict(saved)\n",
            (
                "def load(model, saved):\n"
                "    model.load_state_dict({name.lstrip('module.'): value for name, value in saved.items()})\n"
            ),
            "def load(model, saved):\n    model.load_state_dict({name[7:]: value for name, value in saved.items()})\n",
            (
                "def load(model, saved):\n"
                "    model.load_state_dict({name.removeprefix('module.'): value for name, value in "
                "saved.items()}, strict=False)\n"
            ),
        ),
    ),
    Exercise(
        key="19.3",
        kind="write",
        title=T(en="Average gradients", zh="平均梯度"),
        task=T(
            en=(
                "Write `average(replicas, sizes)`: `replicas` is a list of copies of one model, each with the "
                "gradients of the *mean* loss over its own piece; `sizes` is a list with the number of samples of "
                "each piece. Afterwards every copy has the gradient of the mean over all samples, in memory of its "
                "own; the weights stay as they are."
            ),
            zh=(
                "编写 `average(replicas, sizes)`：`replicas` 是同一模型的副本的列表，各自带有本块*平均*损失的梯度；"
                "`sizes` 是各块样本数的列表。之后每个副本都有全部样本平均损失的梯度，且各占自己的内存；权重保持不变。"
            ),
        ),
        given="def average(replicas, sizes):\n"
        "    for together in zip(*(net.parameters() for net in replicas)):\n"
        "        pass\n",
        inputs="sizes = [4, 4]\n" + _COPIES,
        drive="average(replicas, sizes)",
        properties=(
            Property(T(en="nothing is raised", zh="没有抛出错误"), runs()),
            Property(
                T(en="the gradients of two equal pieces are right", zh="两块相等时梯度正确"),
                as_solved("[net.weight.grad for net in replicas]", "first.bias.grad"),
            ),
            Property(
                T(en="the gradients of uneven pieces are right", zh="各块大小不等时梯度正确"),
                as_solved(
                    "[net.weight.grad for net in replicas]", "first.bias.grad", inputs="sizes = [5, 2, 4]\n" + _COPIES
                ),
            ),
            Property(
                T(en="each gradient has its own memory", zh="各梯度有自己的内存"),
                true(
                    "len({memory(p.grad) for net in replicas for p in net.parameters()}) == 2 * len(replicas)",
                    T(en="two of them share their memory", zh="其中有两个共享内存"),
                    inputs="sizes = [5, 2, 4]\n" + _COPIES,
                ),
            ),
            Property(
                T(en="the weights are unchanged", zh="权重没有改变"),
                every(unchanged("weight"), as_solved("[p.detach() for net in replicas for p in net.parameters()]")),
            ),
        ),
        hint_for=(0, 1, 2, 3, 0),
        hints=(
            T(
                en="The gradient of a mean over all is the sum of the pieces' gradients, each weighted by its share.",
                zh="总平均的梯度是各块梯度按份额加权之和。",
            ),
            T(en="A share is `size / sum(sizes)`.", zh="份额是 `size / sum(sizes)`。"),
            T(
                en="Compute the mean before any gradient is changed, then give each copy a `clone()`.",
                zh="先算出平均，再修改梯度；给每个副本一个 `clone()`。",
            ),
        ),
        right=(
            "def average(replicas, sizes):\n    for together in zip(*(net.parameters() for net in replicas)):\n"
            "        mean = sum(p.grad * (n / sum(sizes)) for p, n in zip(together, sizes))\n"
            "        for p in together:\n            p.grad = mean.clone()\n",
            "def average(replicas, sizes):\n    shares = torch.tensor(sizes) / sum(sizes)\n"
            "    for together in zip(*(net.parameters() for net in replicas)):\n"
            "        mean = torch.stack([share * p.grad for p, share in zip(together, shares)]).sum(dim=0)\n"
            "        for p in together:\n            p.grad.copy_(mean)\n",
        ),
        wrong=(
            "def average(replicas, sizes):\n"
            "    for together in zip(*(net.parameters() for net in replicas)):\n"
            "        mean = sum(p.grad for p in together) / len(together)\n"
            "        for p in together:\n"
            "            p.grad = mean.clone()\n",
            "def average(replicas, sizes):\n    for together in zip(*(net.parameters() for net in replicas)):\n"
            "        mean = sum(p.grad * (n / sum(sizes)) for p, n in zip(together, sizes))\n"
            "        for p in together:\n            p.grad = mean\n",
            (
                "def average(replicas, sizes):\n"
                "    for together in zip(*(net.parameters() for net in replicas)):\n"
                "        for p in together:\n"
                "            p.grad = sum(p.grad * (n / sum(sizes)) for p, n in zip(together, sizes))\n"
            ),
        ),
    ),
    Exercise(
        key="19.4",
        kind="find-and-fix",
        title=T(en="Equal shares", zh="相等的份额"),
        task=T(
            en=(
                "`shard(samples, rank, world)` returns the samples of one process; `samples` is a tensor (N,), N at "
                "least 1. With `chunk` some processes get fewer samples than others, or none, and then `shard` raises "
                "for the last rank. Repair it, as distributed samplers do: all shares are equally long and as short "
                "as possible, no sample is left out, and what is missing is filled with samples that are repeated."
            ),
            zh=(
                "`shard(samples, rank, world)` 返回一个进程的样本；`samples` 是张量 (N,)，N 至少为 1。用 `chunk` 时，"
                "有的进程样本较少甚至没有，此时 `shard` 对最后一个进程报错。请像分布式采样器那样修好它：所有份额等长且"
                "尽可能短，不遗漏任何样本，缺少的用重复的样本补足。"
            ),
        ),
        given=_SHARD,
        inputs="samples = torch.randperm(10) + 1.0\nworld = 4",
        drive="parts = [shard(samples, rank, world) for rank in range(world)]",
        properties=(
            Property(
                T(en="ten samples for four: three each", zh="十个样本分给四个：每个三个"),
                true(
                    "[len(p) for p in parts] == [3, 3, 3, 3]",
                    T(en="the shares have other lengths", zh="份额的长度不对"),
                ),
            ),
            Property(
                T(en="every sample is in a share, and no others are", zh="每个样本都在某一份中，且没有别的"),
                true(
                    "set(torch.cat(parts).tolist()) == set(samples.tolist())",
                    T(
                        en="some samples are in no share, or a share has numbers that are no samples",
                        zh="有样本不在任何一份中，或某一份里有别的",
                    ),
                ),
            ),
            Property(
                T(en="five samples for three: two each", zh="五个样本分给三个：每个两个"),
                true(
                    "[len(p) for p in parts] == [2, 2, 2] and set(torch.cat(parts).tolist()) == set(samples.tolist())",
                    T(en="the shares have other lengths, or not all of the samples", zh="份额的长度不对，或样本不全"),
                    inputs="samples = torch.randperm(5) + 1.0\nworld = 3",
                ),
            ),
            Property(
                T(en="eight for four: nothing is repeated", zh="八个分给四个：没有重复"),
                true(
                    "sorted(torch.cat(parts).tolist()) == sorted(samples.tolist())",
                    T(en="samples are repeated, or missing", zh="有样本重复或缺失"),
                    inputs="samples = torch.randperm(8) + 1.0\nworld = 4",
                ),
            ),
            Property(
                T(en="one sample for several: each gets it", zh="一个样本分给多个：每个都得到它"),
                every(
                    *(
                        true(
                            _EACH,
                            T(
                                en="one of them gets nothing, or something else",
                                zh="有一个什么也没得到，或得到的是别的",
                            ),
                            inputs=f"samples = torch.rand(1)\nworld = {world}",
                        )
                        for world in (3, "int(torch.randint(4, 12, ()))")
                    )
                ),
            ),
        ),
        hint_for=(1, 2, 1, 0, 2),
        hints=(
            T(en="How long is a share? N divided by world, rounded up.", zh="一份有多长？N 除以 world，向上取整。"),
            T(
                en="Lengthen the samples to share · world first, by repeating them from the beginning.",
                zh="先从头重复样本，把它补到 份长 · world。",
            ),
            T(
                en="Index with `torch.arange(share * world) % N`, and take every `world`-th from `rank` on.",
                zh="用 `torch.arange(share * world) % N` 索引，再从 `rank` 起每隔 `world` 个取一个。",
            ),
        ),
        right=(
            "def shard(samples, rank, world):\n    share = -(-len(samples) // world)\n"
            "    return samples[torch.arange(share * world) % len(samples)][rank::world]\n",
            "def shard(samples, rank, world):\n    share = -(-len(samples) // world)\n"
            "    return samples[torch.arange(rank * share, (rank + 1) * share) % len(samples)]\n",
            "def shard(samples, rank, world):\n    from torch.utils.data import DistributedSampler\n"
            "    return samples[list(DistributedSampler(samples, num_replicas=world, rank=rank, shuffle=False))]\n",
            (
                "def shard(samples, rank, world):\n"
                "    share = (len(samples) + world - 1) // world\n"
                "    found = samples\n"
                "    while len(found) < share * world:\n"
                "        found = torch.cat([found, samples])\n"
                "    return found[: share * world].chunk(world)[rank]\n"
            ),
        ),
        wrong=(
            "def shard(samples, rank, world):\n    return samples[rank::world]\n",
            "def shard(samples, rank, world):\n    return samples.tensor_split(world)[rank]\n",
            (
                "def shard(samples, rank, world):\n"
                "    share = len(samples) // world\n"
                "    return samples[rank * share : (rank + 1) * share]\n"
            ),
            "def shard(samples, rank, world):\n    return samples\n",
            "def shard(samples, rank, world):\n    share = -(-len(samples) // world)\n"
            "    return samples[torch.arange(share * world).clamp(max=len(samples) - 1) * 0][rank::world]\n",
            (
                "def shard(samples, rank, world):\n"
                "    share = -(-len(samples) // world)\n"
                "    padded = F.pad(samples, (0, share * world - len(samples)))\n"
                "    return padded[rank::world]\n"
            ),
        ),
    ),
)
