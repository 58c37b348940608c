"""Tied weights that a cell has parted are named; those that were parted knowingly, or tied again, are not."""

from __future__ import annotations

import pytest

MODEL = """class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Embedding(10, 4)
        self.out = nn.Linear(4, 10, bias=False)
        self.out.weight = self.inner.weight
    def forward(self, x):
        return self.out(self.inner(x))
class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"body": Tied(), "other": nn.Linear(2, 2)})
model, vectors = Tied(), torch.randn(10, 4)"""
KNOWINGLY = [
    "model.out.weight = nn.Parameter(model.inner.weight.detach().clone())",
    "old = model.inner.weight\nmodel.inner = nn.Embedding.from_pretrained(old.detach().clone(), freeze=False)",
    "model.inner = nn.Embedding.from_pretrained(vectors)\nmodel.out.weight = model.inner.weight",
    "model.inner = nn.Embedding.from_pretrained(vectors)\nmodel.out.requires_grad_(False)",
    "model.out = nn.Linear(4, 3)",
    "model.inner, model.out = nn.Embedding(12, 4), nn.Linear(4, 12)",
    "model.load_state_dict({'inner.weight': vectors, 'out.weight': vectors})",
    "model.inner.weight.data = vectors",
    "model = Tied()",
    "del model.inner",
    "torch.nn.utils.parametrizations.weight_norm(model.out)",
    "import copy\ncopied = copy.deepcopy(model)",
]


@pytest.mark.parametrize(
    ("text", "replaced", "kept", "back"),
    [
        (
            "model.inner = nn.Embedding.from_pretrained(vectors, freeze=False)",
            "model.inner.weight",
            "model.out.weight",
            "model.out.weight = model.inner.weight",
        ),
        (
            "model.inner.weight = nn.Parameter(vectors)",
            "model.inner.weight",
            "model.out.weight",
            "model.out.weight = model.inner.weight",
        ),
        (
            "setattr(model, 'out', nn.Linear(4, 10, bias=False))",
            "model.out.weight",
            "model.inner.weight",
            "model.inner.weight = model.out.weight",
        ),
    ],
)
def test_the_replaced_place_is_named_until_it_is_tied_again(notebook, text, replaced, kept, back):
    assert notebook.run(MODEL) == []
    assert notebook.run("optimizer = None") == []
    [warning] = notebook.run(text)
    assert warning["kind"] == "weights-parted"
    assert f"`{replaced}` and `{kept}` were one parameter (so since In [2])" in warning["sentence"]["en"]
    assert "40 numbers more" in warning["explanation"]["en"]
    assert [(each["count"], each["role"]) for each in warning["cells"]] == [(4, "changed"), (2, "made")]
    assert [each["kind"] for each in notebook.run("print('later')")] == ["weights-parted"]
    assert notebook.run(back) == []


def test_inside_other_modules(notebook):
    assert notebook.run(f"{MODEL}\ndeep = [Deep()]") == []
    [warning] = notebook.run("deep[0].parts['body'].inner.weight = nn.Parameter(vectors)")
    assert warning["kind"] == "weights-parted"
    assert "`deep[0].parts.body.out.weight` still has the old one" in warning["sentence"]["en"]
    assert notebook.run("deep = None") == []


@pytest.mark.parametrize("text", KNOWINGLY)
def test_what_is_parted_knowingly_is_right(notebook, text):
    assert notebook.run(MODEL) == []
    assert notebook.run(text) == []
    assert notebook.run("print('later')") == []
