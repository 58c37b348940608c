"""Errors made on another line than the one that raises: the finding is on that line, and its first
repair makes the program run.
"""

# ruff: noqa: ISC004 - programs of several lines, in rows

from __future__ import annotations

import textwrap

import pytest

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import Trial
from pitfall_lab.rules import FAMILIES, Family, Finding, find
from pitfall_lab.rules.kit.source import apply
from pitfall_lab.verify import trace_program

HEAD = (
    "import torch\n"
    "import torch.nn.functional as F\n"
    "from torch import nn\n"
    "from torch.utils.data import DataLoader, Dataset, TensorDataset\n"
    "torch.manual_seed(0)\n"
)
SAMPLES = (
    "class Texts(Dataset):\n"
    "    def __len__(self):\n"
    "        return 4\n"
    "    def __getitem__(self, i):\n"
    "        return %s\n"
)
PAD = (
    "def pad(samples):\n"
    "    words, labels = zip(*samples)\n"
    "    return nn.utils.rnn.pad_sequence(words), torch.tensor(labels)\n"
)
MIXED = (
    "a, b = torch.zeros(3, 2), torch.ones(2, 2).bfloat16()\n"
    "i, m = torch.tensor([0, 1]), torch.tensor([True, True, False])\n"
)

# What the program writes (line 1 is the first line below the head), the code, the line of the mistake,
# and words of the first repair.
MADE = {
    "a layer for another number of features, flattened": (
        "conv = nn.Conv2d(1, 4, 3)\n"
        "fc = nn.Linear(4 * 5 * 5, 2)\n"
        "x = F.max_pool2d(conv(torch.ones(2, 1, 8, 8)), 2).flatten(1)\n"
        "fc(x)",
        "PLE01", 2, "`4 * 3 * 3`",
    ),
    "a layer in a class, sized by its parameters": (
        "class Block(nn.Module):\n"
        "    def __init__(self, a, b):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(a, b)\n"
        "        self.norm = nn.LayerNorm(a)\n"
        "    def forward(self, x):\n"
        "        return self.norm(self.fc(x))\n"
        "Block(3, 4)(torch.ones(2, 3))",
        "PLE05", 5, "`b`",
    ),
    "channels between two layers of a Sequential": (
        "net = nn.Sequential(\n"
        "    nn.Conv1d(2, 8, 3),\n"
        "    nn.ReLU(),\n"
        "    nn.Conv1d(4, 6, 3),\n"
        ")\n"
        "net(torch.ones(1, 2, 9))", "PLE05", 4, "`8`",
    ),
    "the input size of a recurrent layer": ("rnn = nn.GRU(5, 4)\nrnn(torch.ones(3, 2, 6))", "PLE05", 1, "`6`"),
    "a loss for probabilities, made on another line": (
        "loss = nn.BCELoss()\nx = torch.tensor([2.0, -1.0])\nloss(x, torch.ones(2))", "PLE44", 1, "`BCEWithLogitsLoss`",
    ),
    "a loss for probabilities kept by an object": (
        "from torch.nn import BCELoss\n"
        "class Fit:\n"
        "    def __init__(self):\n"
        "        self.criterion = BCELoss()\n"
        "    def run(self, x):\n"
        "        return self.criterion(x, torch.ones(2))\n"
        "Fit().run(torch.tensor([2.0, -1.0]))",
        "PLE44", 4, "`BCEWithLogitsLoss`",
    ),
    "samples of different lengths in a tuple": (
        SAMPLES % "torch.ones(i + 1), i" + ("loader = DataLoader(Texts(), 2)\n"
        "for words, label in loader:\n"
        "    pass"), "PLE04", 6, "`words`",
    ),
    "samples of different lengths in a dictionary": (
        SAMPLES % '{"ids": torch.ones(i + 1), "label": i}' + ("def load():\n"
        "    return DataLoader(Texts(), batch_size=2)\n"
        "for n, batch in enumerate(load()):\n"
        "    batch['ids']"),
        "PLE04", 7, "ids",
    ),
    "samples that are one tensor": (
        SAMPLES % "torch.ones(i + 1, 2)" + ("def run(data):\n"
        "    for batch in data:\n"
        "        batch.sum()\n"
        "run(DataLoader(Texts(), batch_size=2))"),
        "PLE04", 9, "the samples",
    ),
    "a loader without the function of another loader": (
        SAMPLES % "torch.ones(i + 1), i" + PAD + ("train = DataLoader(Texts(), 2, collate_fn=pad)\n"
        "val = DataLoader(Texts(), 2)\n"
        "for words, labels in val:\n"
        "    pass"), "PLE04", 10, "`collate_fn=pad`",
    ),
    "a function for batches that no loader was given": (
        SAMPLES % "torch.ones(i + 1), i" + PAD + ("class Data:\n"
        "    def __init__(self):\n"
        "        self.rows = DataLoader(Texts(), batch_size=2)\n"
        "    def shapes(self):\n"
        "        return [words.shape for words, _ in self.rows]\n"
        "Data().shapes()"), "PLE04", 11, "`collate_fn=pad`",
    ),
    "a helper that was given the function once": (
        SAMPLES % "torch.ones(i + 1), i" + PAD + ("def make(data, collate=None):\n"
        "    return DataLoader(data, 2, collate_fn=collate)\n"
        "train = make(Texts(), collate=pad)\n"
        "test = make(Texts())\n"
        "for words, labels in test:\n"
        "    pass"), "PLE04", 10, "`collate=pad`",
    ),
    "a method of another dataset": (
        SAMPLES % "torch.ones(i + 1)" + ("    def collate(self, samples):\n"
        "        return nn.utils.rnn.pad_sequence(samples)\n"
        "a, b = Texts(), Texts()\n"
        "train = DataLoader(a, 2, collate_fn=a.collate)\n"
        "val = DataLoader(b, 2)\n"
        "for words in val:\n"
        "    pass"),
        "PLE04", 10, "`collate_fn=b.collate`",
    ),
    "a model mapped over rows that drops features": (
        "from torch.func import grad, vmap\n"
        "def loss(w, x):\n"
        "    return (w * F.dropout(x, 0.5)).sum()\n"
        "class Step:\n"
        "    def __init__(self):\n"
        "        self.each = vmap(grad(loss), in_dims=(None, 0))\n"
        "Step().each(torch.ones(2), torch.ones(3, 2))", "PLE45", 6, "different",
    ),
    "a decorator that maps over rows": (
        "@torch.vmap\ndef noisy(x):\n    return x + torch.rand(())\nnoisy(torch.ones(3))", "PLE45", 1, "different",
    ),
    "a partial that maps over rows": (
        "import functools\n"
        "@functools.partial(torch.vmap, in_dims=1)\n"
        "def noisy(x):\n"
        "    return torch.bernoulli(x)\n"
        "noisy(torch.ones(3, 2))",
        "PLE45", 2, "different",
    ),
    "a last batch of one row": (
        "data = TensorDataset(torch.randn(5, 3))\n"
        "loader = DataLoader(data, batch_size=2)\n"
        "norm = nn.BatchNorm1d(3)\n"
        "for (x,) in loader:\n"
        "    norm(x)",
        "PLE07", 2, "`drop_last=True`",
    ),
    "sizes of a state in another order, and of its twin": (
        "lstm = nn.LSTM(3, 5, num_layers=2, batch_first=True)\n"
        "x = torch.ones(4, 6, 3)\n"
        "h = torch.zeros(4, 2, 5)\n"
        "c = torch.zeros(4, 2, 5)\n"
        "lstm(x, (h, c))",
        "PLE05", 3, "`2, 4, 5`",
    ),
    "a state for a batch of another size": (
        "gru = nn.GRU(3, 5)\n"
        "def run(x):\n"
        "    h = torch.zeros(1, 8, 5)\n"
        "    return gru(x, h)\n"
        "run(torch.ones(7, 4, 3))", "PLE05", 3, "`x.size(1)`",
    ),
    "a number saved for backward": (
        "class Power(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x, n):\n"
        "        ctx.save_for_backward(x, n)\n"
        "        return x**n\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        x, n = ctx.saved_tensors\n"
        "        return g * n * x ** (n - 1), None\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "Power.apply(w, 3).sum().backward()",
        "PLE51", 4, "`ctx.n = n`",
    ),
    "a gradient that was not summed over the images": (
        "class Bias(torch.autograd.Function):\n"
        "    @staticmethod\n"
        "    def forward(ctx, x, b):\n"
        "        return x + b[:, None, None]\n"
        "    @staticmethod\n"
        "    def backward(ctx, g):\n"
        "        grad_b = g * 1\n"
        "        return g, grad_b\n"
        "b = torch.ones(3, requires_grad=True)\n"
        "Bias.apply(torch.ones(2, 3, 4, 5), b).sum().backward()",
        "PLE33", 7, ".sum(dim=(0, 2, 3))",
    ),
    "a schedule for the steps of one epoch": (
        "opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)\nloader, epochs = [1, 2, 3], 2\n"
        "plan = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=len(loader))\nfor epoch in range(epochs):\n"
        "    for batch in loader:\n        opt.step()\n        plan.step()",
        "PLE52", 3, "`total_steps=epochs * len(loader)`",
    ),
    "sparse gradients for AdamW": (
        "table = nn.Embedding(5, 2, sparse=True)\n"
        "opt = torch.optim.AdamW(table.parameters())\n"
        "table(torch.tensor([1])).sum().backward()\n"
        "opt.step()",
        "PLE50", 2, "`SparseAdam`",
    ),
    "a hook before an in-place activation": (
        "net = nn.Sequential(nn.Linear(2, 2), nn.ELU(inplace=True))\n"
        "net[0].register_full_backward_hook(lambda m, i, o: None)\n"
        "net(torch.ones(1, 2)).sum().backward()",
        "PLE53", 1, "drop `inplace=True`",
    ),
    "a checkpointed block that draws from NumPy": (
        "import numpy as np\n"
        "from torch.utils.checkpoint import checkpoint\n"
        "np.random.seed(1)\n"
        "x = torch.ones(2, requires_grad=True)\n"
        "def block(x):\n"
        "    return x.exp().sin() if np.random.rand() < 0.5 else x.sin()\n"
        "for _ in range(8):\n"
        "    checkpoint(block, x, use_reentrant=False).sum().backward()",
        "PLE54", 6, "`torch.rand(()).item()`",
    ),
    "a complex loss": (
        "x = torch.ones(4, requires_grad=True)\n"
        "difference = torch.fft.fft(x) - 1\n"
        "loss = (difference * difference).sum()\n"
        "loss.backward()",
        "PLE56", 3, "`difference.abs()`",
    ),
    "rows counted before all words are there": (
        "words = {'a': 0, 'b': 1}\nsize = len(words)\nwords['<pad>'] = len(words)\ntable = nn.Embedding(size, 3)\n"
        "table(torch.tensor([words['<pad>']]))",
        "PLE12", 2, "`words`",
    ),
    "one row too few": ("table = nn.Embedding(10, 3)\nids = torch.tensor([1, 10])\ntable(ids)", "PLE12", 1, "`11`"),
    "one row too few, in a size that was passed": (
        "words = {'a': 1}\n"
        "class Bag(nn.Module):\n"
        "    def __init__(self, rows, dim=2):\n"
        "        super().__init__()\n"
        "        self.table = nn.Embedding(rows, dim, padding_idx=0)\n"
        "    def forward(self, x):\n"
        "        return self.table(x)\n"
        "net = Bag(len(words) + 1)\n"
        "net(torch.tensor([len(words) + 1]))", "PLE12", 5, "`len(words) + 2`",
    ),
    "class numbers from one": ("scores = torch.ones(3, 3)\n"
    "labels = torch.tensor([1, 2, 3])\n"
    "F.cross_entropy(scores, labels)", "PLE12", 2, "- 1"),
    "class weights in doubles": (
        "import numpy as np\n"
        "w = torch.from_numpy(np.ones(2))\n"
        "loss = nn.CrossEntropyLoss(weight=w)\n"
        "loss(torch.ones(3, 2), torch.tensor([0, 1, 0]))",
        "PLE21", 2, ".float()",
    ),
    "an array turned round": (
        "import numpy as np\n"
        "def turned(a):\n"
        "    return a[:, ::-1]\n"
        "torch.from_numpy(turned(np.ones((2, 3))))", "PLE22", 3, ".copy()",
    ),
    "a model on meta whose state was copied": (
        "state = nn.Linear(2, 2).state_dict()\n"
        "with torch.device('meta'):\n"
        "    net = nn.Linear(2, 2)\n"
        "net.load_state_dict(state)\n"
        "net.bias.sum().item()",
        "PLE23", 4, "`assign=True`",
    ),
    "a result that a module keeps": (
        "import copy\n"
        "class Pool(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(2, 2)\n"
        "    def forward(self, x):\n"
        "        self.share = self.fc(x).softmax(1)\n"
        "        return self.share * x\n"
        "pool = Pool()\n"
        "pool(torch.ones(1, 2))\n"
        "copy.deepcopy(pool)",
        "PLE36", 7, "`self.share`",
    ),
    "a result that a module keeps under another name": (
        "import copy\n"
        "class Pool(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(2, 2)\n"
        "    def forward(self, x):\n"
        "        share = self.fc(x)\n"
        "        self.share = share\n"
        "        return share * self.share\n"
        "pool = Pool()\n"
        "pool(torch.ones(1, 2))\n"
        "copy.deepcopy(pool)",
        "PLE36", 8, "Keep `self.share`",
    ),
    "a state that is kept for the next call": (
        "import copy\n"
        "class Walk(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.cell = nn.GRUCell(2, 3)\n"
        "        self.kept = {}\n"
        "    def forward(self, x):\n"
        "        h = self.cell(x)\n"
        "        self.kept['h'] = h\n"
        "        return h\n"
        "walk = Walk()\n"
        "walk(torch.ones(1, 2))\n"
        "torch.optim.swa_utils.AveragedModel(walk)",
        "PLE36", 9, "Keep `self.kept`",
    ),
    "what a hook keeps in the layer": (
        "import copy\n"
        "net = nn.Sequential(nn.Linear(2, 3), nn.ReLU())\n"
        "def keep(module, given, result):\n"
        "    module.seen = result\n"
        "net[0].register_forward_hook(keep)\n"
        "net(torch.ones(1, 2))\n"
        "copy.deepcopy(net)",
        "PLE36", 4, "Keep `module.seen`",
    ),
    "what a hook made by a method keeps in a list": (
        "import copy\n"
        "class Watch:\n"
        "    def __init__(self, net):\n"
        "        self.net, self.seen = net, []\n"
        "        net.register_forward_hook(self.hook('fc'))\n"
        "    def hook(self, name):\n"
        "        def inner(module, given, result):\n"
        "            self.seen.append(result)\n"
        "        return inner\n"
        "watch = Watch(nn.Linear(2, 2))\n"
        "watch.net(torch.ones(1, 2))\n"
        "copy.deepcopy(watch)",
        "PLE36", 8, "Keep `self.seen`",
    ),
    "a weight that weight_norm computed": (
        "import copy\n"
        "from torch.nn.utils import weight_norm\n"
        "fc = weight_norm(nn.Linear(2, 2))\n"
        "fc(torch.ones(1, 2))\n"
        "copy.deepcopy(fc)",
        "PLE36", 3, "parametrizations",
    ),
    "losses collected with their history": (
        "import numpy as np\n"
        "w = torch.ones(2, requires_grad=True)\n"
        "losses = []\n"
        "for k in range(2):\n"
        "    losses.append((w * k).sum())\n"
        "np.array(losses)",
        "PLE31", 5, ".item()",
    ),
    "a forward without return": (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(2, 3)\n"
        "    def forward(self, x):\n"
        "        h = self.fc(x)\n"
        "net = Net()\n"
        "out = net(torch.ones(2, 2))\n"
        "F.cross_entropy(out, torch.tensor([0, 1]))",
        "PLE57", 6, "`return h`",
    ),
    "a function without return": (
        "def scaled(x):\n    y = x * 2\ntorch.relu(scaled(torch.ones(2)))", "PLE57", 2, "`return y`",
    ),
    "both results of a recurrent layer": (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.rnn = nn.GRU(2, 3)\n"
        "        self.fc = nn.Linear(3, 1)\n"
        "    def forward(self, x):\n"
        "        h = self.rnn(x)\n"
        "        return self.fc(h)\n"
        "Net()(torch.ones(4, 1, 2))",
        "PLE22", 7, "`h, _ = …`",
    ),
    "a number that was summed": (
        "w = torch.ones(2, requires_grad=True)\n"
        "total = 0.0\n"
        "for k in range(3):\n"
        "    loss = (w * k).sum()\n"
        "    total += loss.item()\n"
        "total.backward()",
        "PLE32", 5, "`loss`",
    ),
    "a length rounded by itself": (
        "from torch.utils.data import random_split\n"
        "data = TensorDataset(torch.ones(7, 1))\n"
        "a = int(0.5 * len(data))\n"
        "b = int(0.5 * len(data))\n"
        "random_split(data, [a, b])",
        "PLE43", 5, "`len(data) - a`",
    ),
    "a batch that pad_packed_sequence made shorter": (
        "from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence\n"
        "x = torch.ones(2, 6, 3)\n"
        "mask = x[..., 0] > 0\n"
        "packed = pack_padded_sequence(x, torch.tensor([4, 2]), batch_first=True)\n"
        "again, _ = pad_packed_sequence(packed, batch_first=True)\n"
        "again[..., 0].masked_fill(~mask, 0)",
        "PLE02", 5, "`total_length=x.size(1)`",
    ),
}  # fmt: skip

# The same for errors that are made on the line that raises.
HERE = {
    "PLE01 the letters of einsum": (
        'a, b = torch.ones(2, 3, 4), torch.ones(2, 4, 5)\ntorch.einsum("bik,bjk->bij", a, b)', '"bik,bkj->bij"'),
    "PLE02 a mask for each head": (
        "att = nn.MultiheadAttention(8, 2, batch_first=True)\n"
        "x = torch.ones(3, 5, 8)\n"
        "m = torch.zeros(3, 5, 5).bool()\n"
        "att(x, x, x, attn_mask=m)",
        "repeat_interleave(att.num_heads, dim=0)"),
    "PLE02 a transformer without batch_first": (
        "t = nn.Transformer(8, 2, 1, 1, 8)\n"
        "print(t(torch.ones(2, 4, 8), torch.ones(2, 3, 8)).shape)", "`batch_first=True`"),
    "PLE03 a batch size written down": ("x = torch.ones(3, 2, 2)\nx.view(4, 4)", "`x.size(0)`"),
    "PLE04 the dimension to join along": ("torch.cat([torch.ones(2, 3), torch.ones(2, 5)])", "`dim=1`"),
    "PLE04 a map of another size": (
        "skip = torch.ones(1, 2, 5, 5)\n"
        "y = F.max_pool2d(skip, 2)\n"
        "y = F.interpolate(y, scale_factor=2.0)\n"
        "torch.cat([skip, y], dim=1)",
        "the size of `skip`"),
    "PLE06 one image for a batch": ("net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2))\n"
    "x = torch.ones(1, 5, 5)\n"
    "net(x)", "`x.unsqueeze(0)`"),
    "PLE06 positions as a column": ("q = torch.ones(4, 3)\n"
    "a = torch.tensor([0, 1, 2, 0])\n"
    "q.gather(1, a)", "`a.unsqueeze(1)`"),
    "PLE08 a column of class numbers": ("y = torch.tensor([[0], [1]])\n"
    "F.cross_entropy(torch.ones(2, 3), y)", ".squeeze(-1)`"),
    "PLE11 an order without the batch": ("x = torch.ones(2, 4, 5, 3)\nx.permute(2, 0, 1)", "`0, 3, 1, 2`"),
    "PLE12 a mark for what is left out": ("y = torch.tensor([0, -1])\n"
    "F.cross_entropy(torch.ones(2, 3), y)", "`ignore_index=-1`"),
    "PLE12 a mask of another dimension": ("x = torch.ones(2, 3)\n"
    "x[torch.tensor([True, False, True])]", "x[:, torch.tensor"),
    "PLE12 one_hot counted from one": ("F.one_hot(torch.tensor([1, 3]), 3)", "- 1`"),
    "PLE14 a list of tensors": ("parts = [torch.ones(2), torch.ones(2)]\ntorch.tensor(parts)", "`torch.stack(parts)`"),
    "PLE21 an expert's result under autocast": (
        "fc = nn.Linear(2, 2)\n"
        "def route(x, mask):\n"
        "    out = torch.zeros_like(x)\n"
        "    out[mask] = fc(x[mask])\n"
        "    return out\n"
        "with torch.autocast('cpu', dtype=torch.bfloat16):\n"
        "    route(torch.ones(3, 2), torch.tensor([True, False, True]))",
        "`fc(x[mask]).to(out.dtype)`"),
    "PLE21 an entry of a bank": ("import numpy as np\n"
    "bank = torch.zeros(4)\n"
    "bank[torch.tensor([1, 2])] = torch.from_numpy(np.ones(2)) / 3",
                                 "`(torch.from_numpy(np.ones(2)) / 3).to(bank.dtype)`"),
    "PLE21 index_put_": (MIXED + "a.index_put_((i,), b * 2, accumulate=True)", "`(b * 2).to(a.dtype)`"),
    "PLE21 masked_scatter_": (MIXED + "a.masked_scatter_(m[:, None], b)", "`b.to(a.dtype)`"),
    "PLE21 index_add_": (MIXED + "a.view(3, 2).index_add_(0, i, b)", "`b.to(a.dtype)`"),
    "PLE21 index_add": (MIXED + "torch.index_add(a, dim=0, index=i, source=b)", "`b.to(a.dtype)`"),
    "PLE21 index_copy_": (MIXED + "a.index_copy_(0, i, b.exp())", "`b.exp().to(a.dtype)`"),
    "PLE21 scatter_add_": (MIXED + "a.scatter_add_(0, i.expand(2, 2), src=b)", "`b.to(a.dtype)`"),
    "PLE21 a new tensor that takes it": (MIXED + "torch.zeros(3, 2).scatter_reduce(0, i.expand(2, 2), b, 'amax')",
    "`b.float()`"), "PLE21 fractions for whole numbers": (
        "ids = torch.tensor([3, 4, 5])\n"
        "out = torch.zeros_like(ids)\n"
        "out[ids > 3] = torch.rand(2)", "`dtype=torch.float32`"),
    "PLE21 complex numbers for real ones": (
        "x = torch.zeros(4)\n"
        "x.index_add_(0, torch.tensor([0, 1]), torch.fft.fft(torch.ones(2)))", "`dtype=torch.complex64`"),
    "PLE21 bfloat16 for NumPy": ("x = torch.ones(2).bfloat16()\nx.numpy()", "`x.float()`"),
    "PLE21 a quotient of bytes": ("x = torch.ones(2).byte()\nx /= 255", "instead of overwriting `x`"),
    "PLE22 arguments in a tuple": (
        "class Sum(nn.Module):\n"
        "    def forward(self, a, b):\n"
        "        return a + b\n"
        "pair = (torch.ones(1), torch.ones(1))\n"
        "Sum()(pair)", "`*pair`"),
    "PLE34 a gradient before the first backward": ("w = torch.ones(1, requires_grad=True)\n"
    "w.grad.zero_()\n"
    "print(w)", "is not None"),
    "PLE35 a result written with out": (
        "w = torch.ones(2, requires_grad=True)\n"
        "room = torch.empty(2)\n"
        "torch.add(w, 1, out=room)\n"
        "print(room.sum())", "the name `room`"),
    "PLE41 a prefix": ("s = {f'module.{k}': v for k, v in nn.Linear(1, 1).state_dict().items()}\n"
    "nn.Linear(1, 1).load_state_dict(s)", "`module.`"),
    "PLE41 a prefix, and a counter that torch does not miss": (
        "net = nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1))\ns = nn.DataParallel(net).state_dict()\n"
        "nn.Sequential(nn.Linear(1, 1), nn.BatchNorm1d(1)).load_state_dict(s)", "the prefix `module.`"),
    "PLE41 no prefix": ("s = nn.Linear(1, 1).state_dict()\n"
    "net = nn.DataParallel(nn.Linear(1, 1))\n"
    "net.load_state_dict(s)", "`net.module`"),
    "PLE41 the model of a trainer": (
        "whole = nn.ModuleDict({'model': nn.Linear(2, 1), 'loss': nn.CrossEntropyLoss(torch.ones(2))})\n"
        "c = {'state_dict': whole.state_dict()}\n"
        "nn.Linear(2, 1).load_state_dict(c['state_dict'])", "entries of `model`"),
    "PLE41 a compiled part": (  # as `net.a = torch.compile(net.a)` saves it
        "net = nn.ModuleDict({'a': nn.Linear(1, 1), 'b': nn.Linear(1, 1)})\n"
        "s = {k.replace('a.', 'a._orig_mod.'): v for k, v in net.state_dict().items()}\n"
        "net.load_state_dict(s)", "`_orig_mod.`"),
    "PLE41 a part": ("s = nn.Linear(1, 1).state_dict()\n"
    "net = nn.Sequential(nn.Linear(1, 1))\n"
    "net.load_state_dict(s)", "`net[0]`"),
    "PLE41 a head of another size": (
        "s = nn.ModuleDict({'a': nn.Linear(1, 2), 'fc': nn.Linear(2, 9)}).state_dict()\n"
        "net = nn.ModuleDict({'a': nn.Linear(1, 2), 'fc': nn.Linear(2, 4)})\n"
        "net.load_state_dict(s, strict=False)", "`fc`"),
    "PLE41 a checkpoint": ("c = {'model': nn.Linear(1, 1).state_dict(), 'epoch': 3}\n"
    "nn.Linear(1, 1).load_state_dict(c)", '`c["model"]`'),
    "PLE41 a module": ("nn.Linear(1, 1).load_state_dict(nn.Linear(1, 1))", ".state_dict()`"),
    "PLE42 no super": ("class Net(nn.Module):\n"
    "    def __init__(self):\n"
    "        self.fc = nn.Linear(1, 1)\n"
    "Net()", "super().__init__()"),
    "PLE42 a method": ("torch.optim.SGD(nn.Linear(1, 1).parameters, lr=0.1)", "parameters()`"),
    "PLE42 two groups": (
        "net = nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1))\n"
        "torch.optim.SGD([{'params': net[1].parameters()}, {'params': net.parameters()}], lr=0.1)",
        "`net[1].parameters()`"), "PLE42 a tensor for a parameter": ("fc = nn.Linear(1, 1)\n"
    "fc.bias = torch.ones(1)", "`nn.Parameter(torch.ones(1))`"),
    "PLE42 a negative deviation": ("from torch.distributions import Normal\n"
    "Normal(0.0, torch.tensor([-1.0]))", "softplus"),
    "PLE45 a branch for each row": ("def f(x):\n"
    "    if x > 0:\n"
    "        y = x\n"
    "    else:\n"
    "        y = -x\n"
    "    return y\n"
    "torch.vmap(f)(torch.ones(2))", "for each row"),
    "PLE45 a choice for each row": ("torch.vmap(lambda x: x if x > 0 else -x)(torch.ones(2))",
    "torch.where(x > 0, x, -x)"), "PLE45 rows of rows": (
        "def noisy(x):\n"
        "    return x * torch.rand(())\n"
        "def run(x):\n"
        "    return torch.vmap(torch.vmap(noisy))(x)\n"
        "run(torch.ones(3, 2))", "different"),
    "PLE45 a derivative with numbers of one draw": ("torch.func.jacfwd(lambda x: x * torch.rand(3))(torch.ones(3))",
    '`randomness="same"`'), "PLE43 samples that are lists": (
        SAMPLES % "[1] * (i + 1)" + ("def pad(samples):\n"
        "    return nn.utils.rnn.pad_sequence([torch.tensor(s) for s in samples])\n"
        "train = DataLoader(Texts(), 2, collate_fn=pad)\n"
        "for words in DataLoader(Texts(), 2):\n"
        "    pass"), "`collate_fn=pad`"),
    "PLE43 samples put together by a worker": (
        SAMPLES % "torch.ones(i + 1), i" + PAD + ("train = DataLoader(Texts(), 2, collate_fn=pad)\n"
        "val = DataLoader(Texts(), 2, num_workers=1)\n"
        "for words, labels in val:\n"
        "    pass"), "`collate_fn=pad`"),
    "PLE52 a plateau without its number": (
        "opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=0.1)\n"
        "plan = torch.optim.lr_scheduler.ReduceLROnPlateau(opt)\n"
        "loss = 1.0\n"
        "opt.step()\n"
        "plan.step()", "`loss`"),
    "PLE52 LBFGS without closure": (
        "w = torch.ones(1, requires_grad=True)\n"
        "opt = torch.optim.LBFGS([w])\n"
        "for _ in range(2):\n"
        "    opt.zero_grad()\n"
        "    loss = (w * w).sum()\n"
        "    loss.backward()\n"
        "    opt.step()", "closure"),
    "PLE55 unscaled in each round": (
        "w = torch.ones(2, requires_grad=True)\n"
        "opt = torch.optim.SGD([w], lr=0.1)\n"
        "s = torch.amp.GradScaler('cpu')\n"
        "for k in range(4):\n"
        "    s.scale(w.sum()).backward()\n"
        "    s.unscale_(opt)\n"
        "    if k % 2:\n"
        "        s.step(opt)\n"
        "        s.update()\n"
        "        opt.zero_grad()",
        "before the step"),
    "PLE58 a shape called": ("x = torch.ones(2, 3)\nx.shape(0)", "`x.shape[0]`"),
    "PLE41 a NumPy number": ("import io\nimport numpy as np\nfile, epoch, best = io.BytesIO(), 3, np.ones(2).sum()"
    "\ntorch.save({'epoch': epoch, 'best': best}, file)\nfile.seek(0)\ntorch.load(file)",
    "`best.item()`"),
    "PLE59 a loss class called": ("nn.MSELoss(torch.ones(2), torch.ones(2))", "`nn.MSELoss()(…)`"),
}  # fmt: skip


def errors_of(program: str) -> list[Finding]:
    return [finding for finding in find(trace_program(HEAD + program)) if finding.severity == "error"]


def runs(text: str) -> bool:
    return trace_program(text).outcome.kind == "finished"


def repairs_that_run(program: str, finding: Finding) -> list[str]:
    """The titles of the repairs after which the program runs: `check` offers no others."""
    return [fix.title.en for fix in finding.fixes if runs(apply(HEAD + program, fix.edits))]


@pytest.mark.filterwarnings("ignore")  # torch warns of some of the mistakes
@pytest.mark.parametrize("name", MADE)
def test_the_line_of_the_mistake_is_named_and_its_first_repair_runs(name: str) -> None:
    program, code, line, words = MADE[name]
    (finding,) = errors_of(program)
    assert (finding.rule, finding.span and finding.span.line - HEAD.count("\n")) == (code, line), finding.message.en
    assert any(related.role == "used" for related in finding.related)
    (first, *_) = repairs_that_run(program, finding)
    assert words in first


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", HERE)
def test_the_first_repair_of_a_refused_line_runs(name: str) -> None:
    program, words = HERE[name]
    (finding,) = errors_of(program)
    assert finding.rule == name.split(maxsplit=1)[0], finding.message.en
    (first, *_) = repairs_that_run(program, finding)
    assert words in first


# Errors of the same kinds in which the other line is right, or not known: no repair there.
NEAR = {
    "the program stacks by itself": ("torch.stack([torch.ones(2), torch.ones(3)])", 1, "collate"),
    "the input only has to be flattened": ("fc = nn.Linear(12, 3)\nx = torch.ones(2, 3, 4)\nfc(x)", 3,
    "Build the layer"),
    "images with the channels last": ("conv = nn.Conv2d(3, 2, 2)\nx = torch.ones(2, 5, 5, 3)\nconv(x)", 3,
    "Build the layer"), "class numbers far outside": ("y = torch.tensor([1, 9])\nF.cross_entropy(torch.ones(2, 3), y)",
    2, "- 1"),
    "negative numbers of several kinds": ("y = torch.tensor([-1, -2, 5])\nF.cross_entropy(torch.ones(3, 3), y)", 2,
    "ignore_index"), "a number that is negative in a table": ("t = nn.Embedding(3, 2)\nt(torch.tensor([-1]))", 2,
    "rows"), "a state with other sizes": ("g = nn.GRU(3, 5)\nh = torch.zeros(1, 4, 7)\ng(torch.ones(2, 4, 3), h)", 2,
    "order"), "rows of a list with other lengths": ("torch.tensor([[1, 2], [3]])", 1, "stack"),
    "several parts of a state with other sizes": ( "s = nn.Sequential(nn.Linear(1, 2), nn.Linear(2, 3)).state_dict()\n"
    "nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 4)).load_state_dict(s)", 2, "Leave out",
    ),
    "a computed tensor for a parameter": (
        "fc = nn.Linear(1, 1)\nw = torch.ones(1, requires_grad=True)\nfc.bias = w * 2", 3, "Parameter",
    ),
    "a column of ones and zeros": ("y = torch.tensor([[0], [1]])\nF.cross_entropy(torch.ones(2, 3), y)", 2, "argmax"),
    "a write of fractions, which a conversion would lose": (
        "n = torch.tensor([1, 2]) + 1\nn[torch.tensor([0])] = torch.tensor([0.5])", 2, "Convert"),
    "two parts of a state that both fit": (
        "s = nn.ModuleDict({'actor': nn.Linear(1, 1), 'critic': nn.Linear(1, 1)}).state_dict()\n"
        "nn.Linear(1, 1).load_state_dict(s)", 2, "entries"),
    "a state with other names": (
        "s = nn.ModuleDict({'a': nn.Linear(1, 2)}).state_dict()\n"
        "nn.ModuleDict({'b': nn.Linear(1, 2)}).load_state_dict(s)", 2, "prefix"),
    "a function for batches of another kind": (
        SAMPLES % "torch.ones(i + 1), i" + ("def third(samples):\n"
        "    return samples[0][2]\n"
        "val = DataLoader(Texts(), 2)\n"
        "for batch in val:\n"
        "    pass"),
        8, "collate_fn=third"),
    "a function for batches that is used elsewhere": (
        SAMPLES % "torch.ones(i + 1)" + ("def count(samples):\n"
        "    return len(samples)\n"
        "print(count([1]))\n"
        "val = DataLoader(Texts(), 2)\n"
        "for batch in val:\n"
        "    pass"), 9, "collate_fn=count"),
    "a worker that fails before samples are put together": (
        SAMPLES % "{'a': i}['b']" + PAD + ("for batch in DataLoader(Texts(), 2, num_workers=1):\n"
        "    pass"), 9, "collate_fn"),
    "a second derivative of random numbers": (
        "torch.func.hessian(lambda x: (x * x * torch.rand(3)).sum())(torch.ones(3))", 1, "randomness"),
    "a tensor that is copied where it is made": (
        "import copy\nw = torch.ones(2, requires_grad=True)\ncopy.deepcopy(w * 2)", 3, "Keep"),
    "both dimensions differ": ("torch.cat([torch.ones(2, 3), torch.ones(4, 5)])", 1, "dim="),
    "a matrix that a vector cannot multiply": ("w = nn.Parameter(torch.ones(2, 3))\n"
    "F.linear(torch.ones(4), w)", 2, "Build the layer"),
}  # fmt: skip


@pytest.mark.parametrize("name", NEAR)
def test_where_the_other_line_is_right_nothing_is_repaired_there(name: str) -> None:
    program, line, words = NEAR[name]
    (finding,) = errors_of(program)
    assert finding.span is not None
    assert finding.span.line - HEAD.count("\n") == line, finding.message.en
    assert not any(words in title for title in repairs_that_run(program, finding))


LOSS = (
    "import copy\n"
    "class Pool(nn.Module):\n"
    "    def __init__(self):\n"
    "        super().__init__()\n"
    "        self.fc = nn.Linear(2, 2)\n"
    "        self.kept = []\n"
    "    def forward(self, x):\n"
    "        share = self.fc(x).softmax(1)\n"
    "        %s\n"
    "        return share * x\n"
    "%s\n"
    "loss = net(torch.ones(1, 2)).sum() + (pool.%s * torch.ones(2)).sum()\n"
    "loss.backward()\n"
    "print(pool.fc.weight.grad)\n"
    "copy.deepcopy(net)\n"
)


@pytest.mark.parametrize(
    ("keep", "made", "read", "line"),
    [
        ("self.share = share", "net = pool = Pool()", "share", "net.share = None"),
        (
            "self.kept.append(share)",
            "net = nn.Sequential(Pool())\npool = net[0]",
            "kept[0]",
            "        module.kept.clear()",
        ),
    ],
)
def test_a_result_that_a_loss_needs_is_let_go_before_the_copy_and_not_cut_off(
    shop: Workshop, keep: str, made: str, read: str, line: str
) -> None:
    text = HEAD + LOSS % (keep, made, read)
    checked = verified(shop, text)
    assert [line in apply(text, fix.edits).splitlines() for fix in checked.fixes] == [True]


EVALUATED = (
    "def evaluate(net, x):\n"
    "    torch.set_grad_enabled(False)\n"
    "    score = net(x).mean().item()\n"
    "%s    return score\n"
    "net, x = nn.Linear(2, 1), torch.ones(3, 2)\n"
    "opt = torch.optim.SGD(net.parameters(), lr=0.1)\n"
    "for epoch in range(2):\n"
    "    loss = net(x).sum()\n"
    "    opt.zero_grad()\n"
    "    loss.backward()\n"
    "    opt.step()\n"
    "    evaluate(net, x)\n"
)


def test_recording_that_a_function_leaves_switched_off_is_switched_off_for_it_alone(shop: Workshop) -> None:
    checked = verified(shop, HEAD + EVALUATED % "")
    (fix,) = checked.fixes
    text = apply(HEAD + EVALUATED % "", fix.edits)
    assert checked.rule == "PL504"
    assert "@torch.no_grad()\ndef evaluate" in text
    assert "set_grad_enabled" not in text
    assert not errors_of(EVALUATED % "    torch.set_grad_enabled(True)\n")


def verified(shop: Workshop, text: str) -> Finding:
    """The only error of a program, with the repairs that `check` offers."""
    subject = Subject(text, "program.py")
    trace = shop.trace(subject)
    (finding,) = (each for each in find(trace) if each.severity == "error")
    return finding.with_fixes(Trial(shop, subject, trace, find(trace)).kept(finding))


def test_none_from_elsewhere_is_no_missing_return() -> None:
    found = find(trace_program("import torch\nx = None\nprint(x.shape)\n"))
    assert {finding.rule for finding in found} == {"PLE00"}


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.bad], ids=lambda family: family.code)
def test_a_refusal_that_the_program_catches_is_a_note_in_every_family(family: Family) -> None:
    body = textwrap.indent(family.bad.replace("raise ValueError", "raise RuntimeError"), "    ")
    found = find(trace_program(f"try:\n{body}except Exception as error:\n    print(type(error))\nprint('on')\n"))
    assert {finding.severity for finding in found} <= {"info"}, [
        (finding.rule, finding.message.en) for finding in found
    ]


def test_names_in_a_message_are_those_of_the_line_that_calls_the_model(shop: Workshop) -> None:
    program = (
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.fc = nn.Linear(2, 1)\n"
        "    def forward(self, x):\n"
        "        return self.fc(torch.relu(x)).squeeze(1)\n"
        "net = Net()\n"
        "x = torch.ones(3, 2)\n"
        "F.binary_cross_entropy(net(x * 9), torch.ones(3))\n"
    )
    (finding,) = find(shop.trace(Subject(HEAD + program, "program.py")))
    assert "`net(x * 9)`" in finding.message.en


def test_class_numbers_from_minus_one_to_the_last_but_one_may_be_shifted_twice():
    (finding,) = errors_of("y = torch.tensor([-1, 0, 1])\nF.cross_entropy(torch.ones(3, 3), y)\n")
    assert finding.rule == "PLE12"
    assert "go from -1 to 1, and the 3 classes from 0 to 2" in finding.message.en
    assert "once too often" in finding.message.en
    assert not [fix for fix in finding.fixes if "Leave out" in fix.title.en]


def test_a_tensor_of_inference_mode_from_before_the_program_has_no_line_in_it():
    import torch

    with torch.inference_mode():
        x = torch.ones(3)
    (finding,) = find(
        trace_program("w = torch.ones(3, requires_grad=True)\nw * x\n", namespace={"torch": torch, "x": x})
    )
    assert "made inside `inference_mode()` (before this program began)" in finding.message.en
    assert [each.role for each in finding.related] == ["used"]
