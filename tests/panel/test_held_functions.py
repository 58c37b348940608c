"""Objects that hold a function after a cell has defined another one under its name."""

from __future__ import annotations

import pytest

START = """import functools
from torch.utils.data import DataLoader, Dataset
S = torch.optim.lr_scheduler
X, Y = torch.randn(32, 4), torch.randn(32, 1)
rows = list(zip(X, Y))
class Own(Dataset):
    def __init__(self, rows, transform=None):
        self.rows, self.transform = rows, transform
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, at):
        x, y = self.rows[at]
        return (x if self.transform is None else self.transform(x)), y
class Each:
    def __init__(self, parts):
        self.parts = parts
    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def train(data, sched=None):
    for x, y in data:
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
        opt.step()
        if sched is not None:
            sched.step()"""
COLLATE = "def collate(rows):\n    return torch.stack([x for x, _ in rows]), torch.stack([y for _, y in rows])"
COLLATE_2 = "def collate(rows):\n    return torch.stack([x * 2 for x, _ in rows]), torch.stack([y for _, y in rows])"
LOADER = "loader = DataLoader(rows, batch_size=8, collate_fn=collate)"
SCALE, SCALE_2 = "def scale(x):\n    return x / 2", "def scale(x):\n    return (x - x.mean()) / 2"
MODEL = """class Net(nn.Module):
    def __init__(self, act):
        super().__init__()
        self.fc, self.act = nn.Linear(4, 1), act
    def forward(self, x):
        return self.act(self.fc(x))
model = Net(act)"""
PLANTED = {
    "a loader": ([COLLATE, LOADER, "train(loader)", COLLATE_2, "collate(rows[:2])"], "train(loader)",
        "`loader.collate_fn` still has the `collate` of In [3]"),
    "many rows": (
        ["rows = [(x.clone(), y.clone()) for x, y in rows * 60]\nhalf = rows[:900]", COLLATE, LOADER, COLLATE_2],
        "train(loader)", "`loader.collate_fn` still has",
    ),
    "two loaders, read by a function": (
        [COLLATE, f"{LOADER}\ntest = DataLoader(rows, batch_size=4, collate_fn=collate)",
        "def both():\n    train(loader)\n    return [net(x).sum().item() for x, _ in test]", "both()", COLLATE_2],
        "both()", "`loader.collate_fn` (like `test.collate_fn`) still has",
    ),
    "one of two loaders was made anew": (
        [COLLATE, f"{LOADER}\ntest = DataLoader(rows, batch_size=4, collate_fn=collate)", f"{COLLATE_2}\n{LOADER}",
        "train(loader)"], "for x, _ in test:\n    net(x)", "`test.collate_fn` still has",
    ),
    "in the cell that defines it": ([COLLATE, LOADER], f"{COLLATE_2}\ntrain(loader)", "In [5] used the old one."),
    "a data set": (
        [SCALE, "data = Own(rows, scale)\nloader = DataLoader(data, batch_size=8)", "train(loader)", SCALE_2],
        "train(loader)", "`data.transform` still has the `scale` of In [3]: In [6] defined another",
    ),
    "a list in a transform": (
        [SCALE, "data = Own(rows, Each([torch.sin, scale]))", SCALE_2], "data[0]",
        "`data.transform.parts[1]` still has the `scale`",
    ),
    "in a dict of loaders": (
        [COLLATE, "loaders = {'train': DataLoader(rows, batch_size=8, collate_fn=collate)}", COLLATE_2],
        "train(loaders['train'])", "`loaders['train'].collate_fn` still has",
    ),
    "a scheduler": (
        ["def warm(n):\n    return n / 10", "sched = S.LambdaLR(opt, warm)", "def warm(n):\n    return 0.9 ** n"],
        "train(DataLoader(rows, batch_size=8), sched)", "`sched.lr_lambdas[0]` still has the `warm`",
    ),
    "a lambda": (
        ["warm = lambda n: 0.9 ** n\nsched = S.LambdaLR(opt, lr_lambda=warm)", "warm = lambda n: 0.5 ** n"],
        "train(DataLoader(rows, batch_size=8), sched)", "`sched.lr_lambdas[0]` still has the `warm` of In [3]",
    ),
    "a hook": (
        ["def clip(module, given, out):\n    return out.clamp(-1, 1)", "handle = net[0].register_forward_hook(clip)",
        "def clip(module, given, out):\n    return out.clamp(-2, 2)"], "net(X)",
        "The forward hook of `net[0]` still has the `clip`",
    ),
    "a gradient hook": (
        ["def clip(g):\n    return g.clamp(-1, 1)", "handle = net[0].weight.register_hook(clip)",
        "def clip(g):\n    return g / (1 + g.norm())"], "train([(X, Y)])",
        "The backward hook of `net[0].weight` still has the `clip`",
    ),
    "a partial": (
        ["def loss(a, b, p):\n    return (a - b).abs().pow(p).mean()", "cube = functools.partial(loss, p=3)",
        "def loss(a, b, p):\n    return (a - b).abs().pow(p).sum()"], "cube(net(X), Y).item()",
        "`cube` (a partial) still has the `loss`",
    ),
    "a module's attribute": (
        ["def act(x):\n    return x.relu()", MODEL, "def act(x):\n    return x.tanh()"],
        "model(X).sum().item()", "`model.act` still has the `act` of In [3]",
    ),
    "with a decorator": (
        [f"@torch.no_grad()\n{COLLATE}", LOADER, f"@torch.no_grad()\n{COLLATE_2}"], "train(loader)",
        "`loader.collate_fn` still has",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_the_old_function_is_named_where_it_is_used(notebook, name):
    cells, last, begins = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"]) == ("old-function", "silent")
    assert begins in warning["sentence"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert [each["kind"] for each in notebook.run("print('later')")] == ["old-function"]
    assert notebook.run("loader = test = data = loaders = sched = cube = model = net = None") == []


RIGHT = {
    "the same text again": [COLLATE, LOADER, "train(loader)", COLLATE, "train(loader)"],
    "only a comment and the description changed": [
        'def scale(x):\n    """By two."""\n    return x / 2', "data = Own(rows, scale)",
        'def scale(x):\n    """Half."""\n    # halves\n    return x / 2', "data[0]",
    ],
    "made anew": [COLLATE, LOADER, "train(loader)", COLLATE_2, LOADER, "train(loader)"],
    "made anew in the cell": [COLLATE, LOADER, "train(loader)", f"{COLLATE_2}\n{LOADER}", "train(loader)"],
    "a second loader for the new one": [
        COLLATE, LOADER, "train(loader)", COLLATE_2, "doubled = DataLoader(rows, batch_size=8, collate_fn=collate)",
        "train(doubled)", "train(loader)",
    ],
    "two entries of a dict": [
        COLLATE, "loaders = {'once': DataLoader(rows, batch_size=8, collate_fn=collate)}", COLLATE_2,
        "loaders['twice'] = DataLoader(rows, batch_size=8, collate_fn=collate)",
        "for each in loaders.values():\n    train(each)",
    ],
    "the old one has a name of its own": [COLLATE, f"{LOADER}\nfirst = collate", COLLATE_2, "train(loader)"],
    "not used any more": [
        COLLATE, LOADER, "train(loader)", COLLATE_2, "print(len(loader), loader.batch_size)\nbefore = loader",
    ],
    "the attribute was set": [
        SCALE, "data = Own(rows, scale)", SCALE_2, "data.transform = scale", "data[0]",
    ],
    "another function of this name": [
        SCALE, "data = Own(rows, scale)", "def scale(low, high):\n    return high - low", "data[0]\nscale(1, 2)",
    ],
    "a lambda for a look": [
        "f = lambda x: x / 2\ndata = Own(rows, f)", "f = lambda x: x ** 2\nf(3)", "data[0]",
    ],
    "a model with the old activation, and one with the new": [
        "def act(x):\n    return x.relu()",
        MODEL, "base = model", "def act(x):\n    return x.tanh()",
        "model = Net(act)", "(base(X) - model(X)).abs().max().item()",
    ],
    "called by its name": [
        "def loss(a, b):\n    return (a - b).abs().mean()", "def run():\n    return loss(net(X), Y).item()", "run()",
        "def loss(a, b):\n    return (a - b).square().mean()", "run()",
    ],
    "wrapped": [
        "def loss(w, x):\n    return (x @ w).square().mean()", "slope = torch.func.grad(loss)",
        "slope(torch.ones(4), X)",
    ],
    "each function in a loop": [
        "for k in (1, 2):\n    def power(x, k=k):\n        return x ** k\n    data = Own(rows, power)\n    data[0]",
    ] * 2,
    "a hook that was removed": [
        "def look(module, given, out):\n    return None", "handle = net[0].register_forward_hook(look)", "net(X).sum()",
        "handle.remove()", "def look(module, given, out):\n    return out * 1.0",
        "handle = net[0].register_forward_hook(look)\nnet(X).sum().item()",
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_a_holder_that_is_meant_to_keep_its_function_is_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == [], text
