"""PL669: rows whose gradient is set to 0 and which the optimizer moves; and programs where they stay."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

TABLE = """
table = nn.Embedding(6, 3)
keep = torch.tensor([0.0, 0.0, 0.0, 0.0, 1.0, 1.0])[:, None]
def train(opt, changed=lambda: None, after=lambda: None):
    for _ in range(5):
        loss = (table(torch.arange(6)) - 1).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        changed()
        opt.step()
        after()
"""
STEP = "        opt.step()\n"
FOUND = TABLE.replace(STEP, "        opt.step()  # PL669\n")
WRONG = {
    "a hook that multiplies, and a decay that AdamW has by itself": FOUND
    + """
table.weight.register_hook(lambda grad: grad * keep)
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "rows set to 0 after the backward, and a decay of SGD": FOUND
    + """
def changed():
    table.weight.grad[:4] = 0
train(SGD(table.parameters(), lr=0.1, weight_decay=0.05), changed)
""",
    "a copy with rows filled in a hook": FOUND
    + """
def hook(grad):
    grad = grad.clone()
    grad[:4] = 0
    return grad
table.weight.register_hook(hook)
train(Adam(table.parameters(), lr=0.1, weight_decay=0.05))
""",
}
SEVERAL = {
    "batches with other rows each time": FOUND.replace("range(5)", "range(6)").replace(
        "arange(6)", "tensor([[0, 4], [1, 5], [2, 4], [3, 5], [0, 5], [1, 4]])[_]"
    )
    + """
table.weight.register_hook(lambda grad: grad * keep)
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "a mask that is turned round in each round": FOUND
    + """
table.weight.register_hook(lambda grad: grad.masked_fill(keep != 1, 0.0))
train(torch.optim.AdamW([table.weight, nn.Parameter(torch.zeros(1))], lr=0.1))
""",
    "momentum from before the mask": FOUND.replace("range(5)", "range(4)")
    + """
opt = SGD(table.parameters(), lr=0.1, momentum=0.9)
(table(torch.arange(6)) - 2).pow(2).mean().backward()
opt.step()
def changed():
    table.weight.grad.mul_(keep)
fresh = SGD(table.parameters(), lr=0.1, momentum=0.9)
fresh.load_state_dict(opt.state_dict())
train(fresh, changed)
""",
    "one of several parameters": FOUND
    + """
head = nn.Linear(3, 1)
def changed():
    table.weight.grad = table.weight.grad.where(keep > 0, torch.zeros(()))
train(torch.optim.AdamW([*head.parameters(), *table.parameters()], lr=0.1), changed)
""",
}
RIGHT = {
    "no decay": TABLE
    + """
table.weight.register_hook(lambda grad: grad * keep)
train(torch.optim.AdamW([table.weight], lr=0.1, weight_decay=0.0))
""",
    "values written back after the step": TABLE
    + """
table.weight.register_hook(lambda grad: grad * keep)
old = table.weight.detach()[:4].clone()
def after():
    with torch.no_grad():
        table.weight[:4] = old
train(torch.optim.AdamW([table.weight], lr=0.1), after=after)
""",
    "another part of the gradient is dropped in each round": TABLE
    + """
table.weight.register_hook(lambda grad: grad * (torch.rand(6, 1) > 0.5))
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "a mask that is drawn anew in its memory": TABLE.replace("range(5)", "range(3)")
    + """
mask = torch.empty(6, 1)
table.weight.register_hook(lambda grad: grad * mask.bernoulli_(0.5))
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "the small half of each gradient is dropped": TABLE
    + """
table.weight.register_hook(lambda grad: grad * (grad.abs() > grad.abs().median()))
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "rows that no batch has": TABLE.replace("arange(6)", "arange(4)")
    + """
table.weight.register_hook(lambda grad: grad * 0.5)
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
    "a weight that is masked in the forward, too": TABLE.replace("table(torch.arange(6))", "(table.weight * keep)")
    + """
with torch.no_grad():
    table.weight.mul_(keep)
table.weight.register_hook(lambda grad: grad * keep)
train(torch.optim.AdamW([table.weight], lr=0.1))
""",
}


def test_they_are_found_and_the_fix_keeps_them(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL669",))
    for text in WRONG.values():
        assert_found(shop, together({"one": text}), only=("PL669",), repaired=True)


def test_they_are_found_where_no_single_edit_keeps_them(shop: Workshop) -> None:
    assert_found(shop, together(SEVERAL), only=("PL669",))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
