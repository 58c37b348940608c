"""Objects of an earlier definition of their class, used after a cell has defined the class with other methods."""

from __future__ import annotations

import pytest

START = """from torch.utils.data import DataLoader, Dataset
X, Y = torch.randn(32, 4), torch.randn(32, 1)
net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.01)
def train(data):
    for x, y in data:
        opt.zero_grad()
        (net(x) - y).square().mean().backward()
        opt.step()"""
DATA = """class Rows(Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y
    def __len__(self):
        return len(self.x)
    def __getitem__(self, at):
        return self.x[at], self.y[at]"""
CENTRED = DATA.replace("self.x[at], ", "self.x[at] - self.x[at].mean(), ")
MADE = "rows = Rows(X, Y)\nloader = DataLoader(rows, batch_size=8)"
MODEL = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 1)
    def forward(self, x):
        return self.fc(x)"""
OTHER = MODEL.replace("self.fc(x)", "self.fc(x).tanh()")
PLANTED = {
    "a data set in a loader": (
        [DATA, MADE, "train(loader)", CENTRED], "train(loader)",
        "`rows` is still a `Rows` of In [3]: In [6] defined `Rows` with another `__getitem__`",
    ),
    "only the loader has a name": (
        [DATA, "loader = DataLoader(Rows(X, Y), batch_size=8)", CENTRED], "train(loader)",
        "`loader.dataset` is still a `Rows` of In [3]",
    ),
    "a model": (
        [MODEL, "model = Net()", OTHER], "print(model(X).mean().item())",
        "`model` is still a `Net` of In [3]: In [5] defined `Net` with another `forward`",
    ),
    "in the cell that defines it": ([MODEL, "model = Net()"], f"{OTHER}\nprint(model(X).mean().item())", "In [5] used"),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANTED)
def test_an_object_of_the_old_class_is_named_where_it_is_used(notebook, name):
    cells, last, begins = PLANTED[name]
    for text in (START, *cells):
        assert notebook.run(text) == [], text
    [warning] = notebook.run(last)
    assert (warning["kind"], warning["level"]) == ("old-class", "silent")
    assert begins in warning["sentence"]["en"]
    assert all(warning[part]["zh"] for part in ("sentence", "explanation", "fix"))
    assert notebook.run("rows = loader = model = None") == []


RIGHT = {
    "the same text again": [DATA, MADE, "train(loader)", DATA, "train(loader)"],
    "only another description": [
        DATA, MADE, DATA.replace("    def __len__", '    """Rows."""\n    # all\n    def __len__'), "train(loader)",
    ],
    "made anew": [DATA, MADE, "train(loader)", CENTRED, MADE, "train(loader)"],
    "made anew in the cell": [DATA, MADE, f"{CENTRED}\n{MADE}", "train(loader)"],
    "a method more, and how it is shown": [
        MODEL.replace("    def f", "    def extra_repr(self):\n        return 'net'\n    def f"), "model = Net()",
        MODEL.replace("    def f", "    def extra_repr(self):\n        pass\n    def n(me):\n        pass\n    def f"),
        "print(model(X).mean().item())",
    ],
    "an old and a new model are compared": [
        MODEL, "first = Net()", OTHER, "second = Net()", "(first(X) - second(X)).abs().max().item()",
    ],
    "not used any more": [MODEL, "model = Net()", OTHER, "print(type(model), len(list(model.parameters())))"],
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_objects_that_are_meant_to_keep_their_class_are_right(notebook, name):
    for text in (START, *RIGHT[name]):
        assert notebook.run(text) == [], text
