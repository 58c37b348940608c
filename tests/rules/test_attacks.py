"""Adversarial training: an attack whose steps are added to the weights' gradients is a warning, whatever
was meant to be added is not.
"""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from tests.rules.build import assert_found
from tests.rules.test_signals import together

NET = """
import copy
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2))
opt = SGD(net.parameters(), lr=0.1)
x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
"""

WRONG = {
    "a shift that is written in place": """
def attack(x, y, eps=0.1):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        F.cross_entropy(net(x + delta), y).backward()  # PL658
        with torch.no_grad():
            delta += eps / 2 * delta.grad.sign()
            delta.clamp_(-eps, eps)
        delta.grad = None
    return delta.detach()
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(x + attack(x, y)), y).backward()
    opt.step()
""",
    "a new leaf for each step, in a class": """
class Attack:
    def __init__(self, model, eps):
        self.model, self.eps = model, eps
    def __call__(self, x, y):
        moved = x + torch.empty_like(x).uniform_(-self.eps, self.eps)
        for _ in range(2):
            moved.requires_grad_()
            loss = F.cross_entropy(self.model(moved), y)
            loss.backward()  # PL658
            moved = (moved + 0.05 * moved.grad.sign()).detach()
            moved = torch.min(torch.max(moved, x - self.eps), x + self.eps)
        return moved
attack = Attack(net, 0.2)
opt.zero_grad()
for _ in range(3):
    loss = F.cross_entropy(net(attack(x, y)), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
""",
    "a shift with an optimizer of its own": """
for _ in range(3):
    opt.zero_grad()
    shift = torch.zeros_like(x, requires_grad=True)
    mover = Adam([shift], lr=0.05)
    for _ in range(3):
        mover.zero_grad()
        worse = -F.cross_entropy(net(x + shift), y) + 0.1 * shift.square().mean()
        worse.backward()  # PL630
        mover.step()
    F.cross_entropy(net(x + shift.detach()), y).backward()
    opt.step()
""",
    "clean and attacked examples in one loss, all in the loop": """
model = nn.Sequential(nn.Conv1d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(9, 1))
step = Adam(model.parameters())
given, wanted = x.unsqueeze(1), torch.randn(8, 1)
for _ in range(3):
    step.zero_grad()
    seen = given.clone().requires_grad_()
    for _ in range(2):
        torch.autograd.backward(F.mse_loss(model(seen), wanted))  # PL658
        seen.data = seen.data + 0.1 * seen.grad / seen.grad.norm()
        seen.grad.zero_()
    loss = F.mse_loss(model(given), wanted) + F.mse_loss(model(seen.detach()), wanted)
    loss.backward()
    step.step()
""",
    "samples of an energy": """
energy = nn.Sequential(nn.Linear(4, 6), nn.SiLU(), nn.Linear(6, 1))
learns = Adam(energy.parameters(), lr=1e-3)
def sampled(n):
    at = torch.randn(n, 4, requires_grad=True)
    for _ in range(3):
        energy(at).sum().backward()  # PL658
        at = (at - 0.1 * at.grad + 0.01 * torch.randn_like(at)).detach().requires_grad_()
    return at.detach()
for _ in range(3):
    learns.zero_grad()
    low, high = energy(x), energy(sampled(8))
    (low.mean() - high.mean() + 0.1 * (low**2 + high**2).mean()).backward()
    learns.step()
""",
    "a code that fits best, for a decoder": """
decode = nn.Linear(2, 4)
learns = SGD(decode.parameters(), lr=0.1)
for _ in range(3):
    learns.zero_grad()
    code = torch.zeros(8, 2, requires_grad=True)
    for _ in range(2):
        F.mse_loss(decode(code), x).backward()  # PL658
        code = (code - 0.5 * code.grad).detach().requires_grad_()
    F.mse_loss(decode(code.detach()), x).backward()
    learns.step()
""",
    "a direction for a smooth output": """
def rough(seen):
    with torch.no_grad():
        usual = net(seen).softmax(1)
    way = F.normalize(torch.randn_like(seen), dim=1)
    for _ in range(2):
        way = way.detach().requires_grad_()
        F.kl_div(net(seen + way).log_softmax(1), usual, reduction="batchmean").backward()  # PL658
        way = F.normalize(way.grad, dim=1)
    return F.kl_div(net(seen + way).log_softmax(1), usual, reduction="batchmean")
for _ in range(3):
    opt.zero_grad()
    extra = rough(x)
    (F.cross_entropy(net(x), y) + extra).backward()
    nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    opt.step()
""",
    "words moved in the space of their vectors": """
table, head = nn.Embedding(9, 4), nn.Linear(4, 2)
learns = Adam([*table.parameters(), *head.parameters()])
words = torch.randint(0, 9, (8, 3))
for _ in range(3):
    learns.zero_grad()
    near = table(words).detach()
    for _ in range(2):
        near.requires_grad_(True)
        F.cross_entropy(head(near.mean(1)), y).backward()  # PL658
        near = (near + 0.1 * near.grad.sign()).detach()
    away = near - table(words).detach()
    F.cross_entropy(head((table(words) + away).mean(1)), y).backward()
    learns.step()
""",
    "a single step, by a function that measures, too": """
def attack(model, x, y):
    moved = x.clone().requires_grad_()
    F.cross_entropy(model(moved), y).backward()  # PL658
    return (moved + 0.1 * moved.grad.sign()).detach()
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(attack(net, x, y)), y).backward()
    opt.step()
print((net(attack(net, x, y)).argmax(1) == y).float().mean())
""",
    "a single step, and its gradient cleared in a validation before the next epoch": """
class Sharp:
    def __init__(self, model):
        self.model = model
    def moved(self, seen, kind):
        seen = seen.detach().clone()
        seen.requires_grad = True
        loss = F.cross_entropy(self.model(seen), kind)
        loss.backward()  # PL658
        return seen.detach() + 0.1 * F.normalize(seen.grad, dim=1)
sharp = Sharp(net)
for epoch in range(3):
    for part, kind in zip(x.split(4), y.split(4)):
        opt.zero_grad()
        seen = sharp.moved(part, kind)
        F.cross_entropy(net(seen), kind).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
    print(F.cross_entropy(net(sharp.moved(x, y)), y).item())
""",
}

RIGHT = {
    "cleared after the attack": """
for _ in range(3):
    moved = x.clone()
    for _ in range(2):
        moved.requires_grad_()
        F.cross_entropy(net(moved), y).backward()
        moved = (moved + 0.1 * moved.grad.sign()).detach()
    opt.zero_grad()
    F.cross_entropy(net(moved), y).backward()
    opt.step()
""",
    "only the input's gradient": """
for _ in range(3):
    opt.zero_grad()
    moved, other = x.clone(), x.clone()
    for _ in range(2):
        moved.requires_grad_()
        slope, = torch.autograd.grad(F.cross_entropy(net(moved), y), moved)
        moved = (moved + 0.1 * slope.sign()).detach()
        other.requires_grad_()
        F.cross_entropy(net(other), y).backward(inputs=[other])
        other = (other + 0.1 * other.grad.sign()).detach()
    (F.cross_entropy(net(moved), y) + F.cross_entropy(net(other), y)).backward()
    opt.step()
""",
    "weights frozen for the attack": """
for _ in range(3):
    opt.zero_grad()
    net.requires_grad_(False)
    moved = x.clone()
    for _ in range(2):
        moved.requires_grad_()
        F.cross_entropy(net(moved), y).backward()
        moved = (moved + 0.1 * moved.grad.sign()).detach()
    net.requires_grad_(True)
    F.cross_entropy(net(moved), y).backward()
    opt.step()
""",
    "both the clean and the moved example": """
for _ in range(3):
    opt.zero_grad()
    seen = x.clone().requires_grad_()
    F.cross_entropy(net(seen), y).backward()
    moved = (seen + 0.1 * seen.grad.sign()).detach()
    F.cross_entropy(net(moved), y).backward()
    opt.step()
""",
    "the clean and the moved example of several parts of a batch": """
for _ in range(3):
    opt.zero_grad()
    for part, kind in zip(x.split(4), y.split(4)):
        seen = part.clone().requires_grad_()
        F.cross_entropy(net(seen), kind).backward()
        moved = (seen + 0.1 * seen.grad.sign()).detach()
        F.cross_entropy(net(moved), kind).backward()
    opt.step()
""",
    "both, by one function, of parts whose last is left over": """
def both(part, kind):
    seen = part.clone().requires_grad_()
    F.cross_entropy(net(seen), kind).backward()
    moved = (seen + 0.1 * seen.grad.sign()).detach()
    F.cross_entropy(net(moved), kind).backward()
opt.zero_grad()
for number in range(5):
    both(x, y)
    if number % 2:
        opt.step()
        opt.zero_grad()
""",
    "all steps of the attack are trained on": """
for _ in range(3):
    opt.zero_grad()
    shift = torch.zeros_like(x)
    for _ in range(3):
        shift.requires_grad_()
        F.cross_entropy(net(x + shift), y).backward()
        shift = (shift + 0.1 * shift.grad.sign()).detach()
    opt.step()
""",
    "the average of all steps of the attack, and of the last": """
for _ in range(3):
    opt.zero_grad()
    shift = torch.zeros_like(x)
    for _ in range(3):
        shift.requires_grad_()
        loss = F.cross_entropy(net(x + shift), y) / 4
        loss.backward()
        shift = (shift + 0.1 * shift.grad.sign()).detach()
    (F.cross_entropy(net(x + shift), y) / 4).backward()
    opt.step()
""",
    "a copy is attacked": """
for _ in range(3):
    opt.zero_grad()
    twin, moved = copy.deepcopy(net), x.clone()
    for _ in range(2):
        moved.requires_grad_()
        F.cross_entropy(twin(moved), y).backward()
        moved = (moved + 0.1 * moved.grad.sign()).detach()
    F.cross_entropy(net(moved), y).backward()
    opt.step()
""",
    "each replay is a step of both": """
shift = torch.zeros_like(x, requires_grad=True)
for _ in range(6):
    opt.zero_grad()
    F.cross_entropy(net(x + shift), y).backward()
    opt.step()
    with torch.no_grad():
        shift += 0.1 * shift.grad.sign()
    shift.grad = None
""",
    "an attack after the training": """
for _ in range(3):
    opt.zero_grad()
    F.cross_entropy(net(x), y).backward()
    opt.step()
moved = x.clone()
for _ in range(3):
    moved.requires_grad_()
    F.cross_entropy(net(moved), y).backward()
    moved = (moved + 0.1 * moved.grad.sign()).detach()
print(F.cross_entropy(net(moved), y).item())
""",
    "codes that are trained with the decoder": """
code = torch.zeros(8, 2, requires_grad=True)
decode = nn.Linear(2, 4)
first, second = SGD([code], lr=0.1), SGD(decode.parameters(), lr=0.1)
for _ in range(3):
    second.zero_grad()
    for _ in range(2):
        first.zero_grad()
        F.mse_loss(decode(code), x).backward()
        first.step()
    second.step()
""",
}


def test_an_attack_that_is_added_to_the_gradients_is_a_warning(shop: Workshop) -> None:
    assert_found(shop, together({name: NET + text for name, text in WRONG.items()}))


def test_what_may_be_meant_is_no_warning(shop: Workshop) -> None:
    trace = shop.trace(Subject(together({name: NET + text for name, text in RIGHT.items()}), "program.py"))
    assert trace.outcome.kind == "finished", trace.outcome.failure
    found = find(trace)
    assert [(f.rule, f.message.en) for f in found if f.severity != "info"] == []
    assert "PL658" in {f.rule for f in found}  # a note where both losses may be meant
