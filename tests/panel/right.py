"""Notebooks that are right: cells in the order in which they are run. ``"a"`` alone runs cell a again."""

from __future__ import annotations

DATA = ("data", "torch.manual_seed(0)\nX, Y = torch.randn(32, 4), torch.randint(0, 3, (32,))\nlr = 0.1")
NET = ("net", "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))")
OPT = ("opt", "opt = torch.optim.SGD(net.parameters(), lr=lr, momentum=0.9)\nfit = nn.CrossEntropyLoss()")
TRAIN = (
    "train",
    (
        "losses = []\n"
        "for epoch in range(3):\n"
        "    opt.zero_grad()\n"
        "    loss = fit(net(X), Y)\n"
        "    loss.backward()\n"
        "    opt.step()\n"
        "    losses.append(loss.item())"
    ),
)
EVAL = (
    "eval",
    (
        "net.eval()\n"
        "with torch.no_grad():\n"
        "    logits = net(X)\n"
        "    accuracy = (logits.argmax(1) == Y).float().mean()\n"
        "net.train()\n"
        "accuracy"
    ),
)

RIGHT = {
    "a training loop, run twice": [DATA, NET, OPT, TRAIN, EVAL, "train", "eval"],
    "one step per cell": [
        DATA, NET, OPT, ("f", "loss = fit(net(X), Y)"), ("z", "opt.zero_grad()"), ("b", "loss.backward()"), ("s",
        "opt.step()"), "f", "z", "b", "s", EVAL,
    ],
    "the shape of an output looked at before training": [DATA, NET, ("look", "out = net(X)\nout.shape"), OPT, TRAIN,
    ("o", "out.shape"), EVAL], "a GAN": [
        DATA,
        ("nets",
        "G, D = nn.Linear(2, 4), nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, 1))"),
        ("opts",
        ("og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())\n"
        "bce = nn.BCEWithLogitsLoss()")), ("loop", """for _ in range(2):
    z = torch.randn(32, 2)
    fake = G(z)
    od.zero_grad()
    d_loss = bce(D(X), torch.ones(32, 1)) + bce(D(fake.detach()), torch.zeros(32, 1))
    d_loss.backward()
    od.step()
    og.zero_grad()
    g_loss = bce(D(fake), torch.ones(32, 1))
    g_loss.backward()
    og.step()"""),
        "loop", ("show", "with torch.no_grad():\n    sample = G(torch.randn(5, 2))\nd_loss.item(), g_loss.item()"),
    ],
    "a GAN, cell by cell": [
        DATA, ("nets", "G, D = nn.Linear(2, 4), nn.Linear(4, 1)"),
        ("opts", "og, od = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)"),
        ("fake", "fake = G(torch.randn(8, 2))"), ("d",
        "od.zero_grad(); d_loss = D(fake.detach()).mean() - D(X).mean(); d_loss.backward(); od.step()"), ("g",
        "og.zero_grad(); g_loss = -D(fake).mean(); g_loss.backward(); og.step()"), "fake", "d", "g",
    ],
    "a recurrent net with the state detached": [
        ("data", "seq = torch.randn(12, 1, 3)"), ("net", ("rnn, head = nn.GRU(3, 5), nn.Linear(5, 1)\n"
        "h = torch.zeros(1, 1, 5)")),
        ("opt", "opt = torch.optim.Adam([*rnn.parameters(), *head.parameters()])"),
        ("loop", """for part in seq.split(4):
    out, h = rnn(part, h)
    loss = head(out).square().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    h = h.detach()"""),
        "loop", "loop", "loop",
    ],
    "gradients accumulated over batches": [
        DATA, NET, OPT,
        ("loop", ("opt.zero_grad()\n"
        "for i, (x, y) in enumerate(zip(X.split(8), Y.split(8))):\n"
        "    loss = fit(net(x), y) / 2\n"
        "    loss.backward()\n"
        "    if i % 2:\n"
        "        opt.step()\n"
        "        opt.zero_grad()")),
        "loop", "loop",
    ],
    "an average of the weights": [
        DATA, NET, OPT, ("ema", "import copy\nema = copy.deepcopy(net)"),
        ("loop", """for _ in range(3):
    loss = fit(net(X), Y)
    opt.zero_grad(); loss.backward(); opt.step()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()):
            a.lerp_(b, 0.1)"""),
        ("eval", "with torch.no_grad():\n    out = ema(X)"), "loop", "eval",
    ],
    "a target network, copied by .data": [
        DATA, ("nets", ("import copy\n"
        "q = nn.Linear(4, 2)\n"
        "target = copy.deepcopy(q)\n"
        "opt = torch.optim.Adam(q.parameters())")),
        ("step", """with torch.no_grad():
    aim = target(X).amax(1)
loss = (q(X).amax(1) - aim).square().mean()
opt.zero_grad(); loss.backward(); opt.step()"""),
        ("copy", ("for a, b in zip(target.parameters(), q.parameters()):\n"
        "    a.data.copy_(0.9 * a.data + 0.1 * b.data)")), "step", "copy", "step",
    ],
    "tied weights": [
        ("net", """class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.inner.weight
    def forward(self, x):
        return self.out(self.inner(x))
model = Tied()"""), ("opt", "opt = torch.optim.AdamW(model.parameters())\nids = torch.arange(9)"),
        ("loop", ("for _ in range(3):\n"
        "    loss = nn.functional.cross_entropy(model(ids), ids + 1)\n"
        "    opt.zero_grad(set_to_none=False); loss.backward(); opt.step()")), "loop",
    ],
    "a frozen backbone": [
        DATA, ("net", ("backbone, head = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU()), nn.Linear(8, "
        "3)\n"
        "for p in backbone.parameters():\n"
        "    p.requires_grad_(False)")),
        ("opt", "opt = torch.optim.SGD(head.parameters(), 0.1)\nfit = nn.CrossEntropyLoss()"),
        ("loop", "loss = fit(head(backbone(X)), Y)\nopt.zero_grad(); loss.backward(); opt.step()"), "loop", "loop",
    ],
    "only the head is given to the optimizer": [
        DATA, ("net", "net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))"),
        ("opt", "opt = torch.optim.SGD(net[2].parameters(), 0.1)\nfit = nn.CrossEntropyLoss()"),
        ("f", "loss = fit(net(X), Y)"), ("b", "loss.backward()\nopt.step(); opt.zero_grad()"), "f", "b",
    ],
    "a gradient check": [
        ("a", ("a = torch.randn(3, 3, dtype=torch.double, requires_grad=True)\n"
        "torch.autograd.gradcheck(lambda a: (a @ a).sin(), a)")),
        ("b", ("y = (a @ a).sin().sum()\n"
        "(g,) = torch.autograd.grad(y, a, create_graph=True)")), ("c", ("g.square().sum().backward()\n"
        "a.grad.norm()")),
    ],
    "a penalty on gradients": [
        DATA, ("net", "net = nn.Linear(4, 1)\nopt = torch.optim.SGD(net.parameters(), 0.1)"),
        ("loop", """x = X.clone().requires_grad_()
out = net(x).tanh().sum()
(g,) = torch.autograd.grad(out, x, create_graph=True)
loss = out + g.square().sum()
opt.zero_grad(); loss.backward(); opt.step()"""), "loop", "loop",
    ],
    "by hand": [
        DATA, ("w", "w1, w2 = torch.randn(4, 6, requires_grad=True), torch.randn(6, 1, requires_grad=True)"),
        ("loop", """for _ in range(3):
    loss = ((X @ w1).relu() @ w2).square().mean()
    loss.backward()
    with torch.no_grad():
        w1 -= 0.1 * w1.grad
        w2 -= 0.1 * w2.grad
        w1.grad.zero_(); w2.grad.zero_()"""), "loop", "loop",
    ],
    "by hand, cell by cell, in the old way": [
        DATA, ("w", "w = torch.randn(4, 1, requires_grad=True)"), ("f", "loss = (X @ w).square().mean()"), ("b",
        "loss.backward()"), ("s", "w.data -= 0.1 * w.grad.data\nw.grad = None"), "f", "b", "s", "f", "b", "s",
    ],
    "NumPy in and out": [
        ("a", ("raw = np.arange(12.0).reshape(3, 4)\n"
        "x = torch.from_numpy(raw).float()")), ("b", ("w = torch.ones(4, requires_grad=True)\n"
        "loss = (x @ w).sum()\n"
        "loss.backward()")),
        ("c", "raw[0] = 7\nback = w.detach().numpy().copy()\nback += 1"), ("d", "n = x.numpy()\nn *= 2\nx.sum()"),
    ],
    "batch normalization and dropout": [
        DATA, ("net", ("net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), "
        "nn.ReLU(inplace=True), nn.Linear(8, 3))")), OPT,
        ("f", "loss = fit(net(X), Y)"), ("again", "with torch.no_grad():\n    net(X)"), ("b", ("loss.backward()\n"
        "opt.step()\n"
        "opt.zero_grad()")), "f", "again", "b", EVAL,
    ],
    "a learning-rate schedule, clipping, and weights saved and loaded": [
        DATA, NET, OPT, ("plan", "plan = torch.optim.lr_scheduler.StepLR(opt, 1)"),
        ("loop", ("for _ in range(2):\n"
        "    loss = fit(net(X), Y)\n"
        "    opt.zero_grad(); loss.backward()\n"
        "    nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n"
        "    opt.step(); plan.step()")),
        ("save", ("import copy\n"
        "best = copy.deepcopy(net.state_dict())")), "loop", ("load", "net.load_state_dict(best)"), EVAL, "loop",
    ],
    "attention with a class of one's own": [
        ("data", "x = torch.randn(2, 5, 8)"),
        ("net", """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.parts = nn.ModuleList([nn.Linear(8, 8) for _ in range(2)])
    def forward(self, x):
        y = self.norm(x + self.attend(x, x, x)[0])
        for part in self.parts:
            y = y + part(y).relu()
        return y
block = Block()"""), ("opt", "opt = torch.optim.AdamW(block.parameters())"),
        ("step", ("loss = (block(x) - x).square().mean()\n"
        "opt.zero_grad(); loss.backward(); opt.step()\n"
        "loss.item()")), "step", "step",
    ],
    "a model in a trainer object": [
        DATA, ("class", """class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 3)
        self.opt = torch.optim.SGD(self.net.parameters(), 0.1)
        self.total = 0.0
    def step(self):
        loss = nn.functional.cross_entropy(self.net(X), Y)
        self.opt.zero_grad(); loss.backward(); self.opt.step()
        self.total += loss.item()
        return loss
trainer = Trainer()"""), ("go", "last = trainer.step()"), "go", "go", "class", "go",
    ],
    "names used again for another model": [
        DATA, NET, OPT, TRAIN, ("net2", ("net = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))\n"
        "net(X).shape")),
        ("opt2", "opt = torch.optim.Adam(net.parameters())"), "train", EVAL,
    ],
    "everything run again from the top": [DATA, NET, OPT, TRAIN, EVAL, "data", "net", "opt", "train", "eval"],
    "tries with one cell run again and again": [
        ("x", "x = torch.linspace(0, 1, 5, requires_grad=True)"), ("y", ("y = (x ** 2).sum()\n"
        "y.backward()\n"
        "g = x.grad.clone()\n"
        "x.grad.zero_()")), "y", "y", ("see", "g"), "see",
    ],
    "losses kept as tensors for a plot": [
        DATA, NET, OPT, ("loop", ("kept = []\n"
        "for _ in range(5):\n"
        "    loss = fit(net(X), Y)\n"
        "    opt.zero_grad(); loss.backward(); opt.step()\n"
        "    kept.append(loss.detach())")),
        ("plot", "total = torch.stack(kept).mean()"), "loop", "plot",
    ],
    "several losses added up": [
        DATA, NET, OPT,
        ("loop", ("l1, l2, l3 = fit(net(X), Y), net[0].weight.square().sum(), net[2].weight.abs().sum()\n"
        "loss = l1 + 0.1 * l2 + 0.1 * l3 + net[0].bias.sum() + net[2].bias.sum()\n"
        "opt.zero_grad(); loss.backward(); opt.step()")), "loop", "loop",
    ],
    "weights that begin at zero on purpose": [
        DATA, ("class", """class Lora(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T
net = nn.Sequential(Lora(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 3))
nn.init.zeros_(net[2].weight)
nn.init.constant_(net[2].bias, 0.1)"""),
        ("opt", ("opt = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], lr=0.1)\n"
        "fit = nn.CrossEntropyLoss()")), TRAIN, "train", EVAL,
    ],
    "one layer of softmax regression from zero, by hand": [
        DATA, ("w", "W = torch.zeros(4, 3, requires_grad=True)\nb = torch.zeros(3, requires_grad=True)"),
        ("loop", """for _ in range(5):
    loss = nn.functional.cross_entropy(X @ W + b, Y)
    loss.backward()
    with torch.no_grad():
        for p in (W, b):
            p -= 0.1 * p.grad
            p.grad = None"""),
        "loop", ("see", "W.abs().max()"),
    ],
    "a convolution that begins as nothing, and a table of positions": [
        ("data", "X, Y = torch.rand(12, 1, 6, 6), torch.randint(0, 2, (12,))"),
        ("net", """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.none = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 4, 1)
        nn.init.zeros_(self.none.weight); nn.init.zeros_(self.none.bias)
        self.places = nn.Parameter(torch.zeros(6, 6))
        self.head = nn.Linear(4, 2)
    def forward(self, x):
        h = torch.relu(self.one(x + self.places))
        return self.head((h + self.none(h)).mean((2, 3)))
net = Net()"""),
        ("opt", "opt = torch.optim.Adam(net.parameters(), 1e-2)\nfit = nn.CrossEntropyLoss()"), TRAIN, "train",
    ],
    "a teacher without gradients, and an average of weights": [
        DATA, NET, ("copies", """import copy
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
average = copy.deepcopy(net)
def follow():
    with torch.no_grad():
        for a, p in zip(average.parameters(), net.parameters()):
            a.lerp_(p, 0.1)"""),
        OPT, ("loop", """for _ in range(4):
    with torch.no_grad():
        wanted = teacher(X) + average(X)
    loss = (net(X) - wanted).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    follow()"""),
        "loop", ("frozen", ("teacher.requires_grad_(False)\n"
        "loss = (net(X) - teacher(X)).square().mean()\n"
        "opt.zero_grad(); loss.backward(); opt.step()")), "frozen",
    ],
    "one net by an optimizer and one by hand": [
        DATA, ("nets", "a, b = nn.Linear(4, 6), nn.Linear(6, 3)\nopt = torch.optim.SGD(b.parameters(), 0.1)"),
        ("loop", """for _ in range(4):
    loss = nn.functional.cross_entropy(b(torch.relu(a(X))), Y)
    opt.zero_grad(); a.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for p in a.parameters():
            p -= 0.05 * p.grad"""),
        "loop", "loop",
    ],
    "frozen as torch has it, and attributes of one's own": [
        DATA, ("class", """class Part(nn.Module):
    def __init__(self, requires_grad=False):
        super().__init__()
        self.requires_grad = requires_grad
        self.layer = nn.Linear(4, 3)
        self.layer.weight.no_decay = True
    def forward(self, x):
        return self.layer(x) if self.requires_grad else self.layer(x.detach())
net = nn.Sequential(Part(), nn.ReLU(), nn.Linear(3, 3))"""),
        ("freeze", "for p in net[0].parameters():\n    p.requires_grad = False\nnet[2].name = 'head'"), OPT,
        ("rate", "for group in opt.param_groups:\n    group['lr'] = 0.01"), TRAIN, "train",
    ],
    "rows in another order, together; sorted; and sets that are not pairs": [
        ("data", ("X, Y = torch.randn(40, 3), torch.randint(0, 2, (40,))\n"
        "other = torch.randn(40, 3)\n"
        "x = torch.randn(40)")),
        ("one", "order = torch.randperm(40)\nXs, Ys = X[order], Y[order]"),
        ("sets", "first, second = X[torch.randperm(40)], other[torch.randperm(40)]"),
        ("sorted", "ranked, rising = X[X[:, 0].argsort()], x.sort().values"),
        ("place", "order = np.random.permutation(40)\nX, Y = X[order], Y[order]"), "place", "one",
        ("test", "drawn = Y[torch.randperm(40)]"), ("features", "importance = X[torch.randperm(40)]"),
    ],
}  # fmt: skip
