"""PL657: steps of an attack that are limited each by itself; and attacks that stay where they should."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

NET = """
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).requires_grad_(False)
x, y = torch.rand(8, 4), torch.randint(0, 2, (8,))
eps, alpha = 0.1, 0.05
"""
WRONG = {
    "a random start, and a range of pixels": NET
    + """
def attack(image, label):
    adv = (image + torch.empty_like(image).uniform_(-eps, eps)).clamp(0, 1)
    for _ in range(8):
        adv = adv.detach().requires_grad_(True)
        slope, = torch.autograd.grad(F.cross_entropy(net(adv), label), adv)
        delta = (alpha * slope.sign()).clamp(-eps, eps)  # PL657
        adv = (adv + delta).clamp(0, 1)
    return adv.detach()
print((attack(x, y) - x).abs().max())
""",
    "a shift that is written through data": NET
    + """
delta = torch.zeros_like(x, requires_grad=True)
for _ in range(6):
    F.cross_entropy(net(x + delta), y).backward()
    delta.data += torch.clamp(alpha * delta.grad.sign(), min=-eps, max=eps)  # PL657
    delta.grad = None
print(delta.abs().max())
""",
    "around where it just was": NET
    + """
adv = x.clone()
for _ in range(6):
    adv.requires_grad_()
    g = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)[0]
    with torch.no_grad():
        moved = adv + alpha * torch.sign(g)
        moved = torch.max(torch.min(moved, adv + eps), adv - eps)  # PL657
    adv = moved
print((adv - x).abs().max())
""",
    "more numbers than a trace keeps": NET
    + """
net, x, y = nn.Linear(50, 2), torch.rand(90, 50), torch.randint(0, 2, (90,))
def attack(given, steps):
    adv = given + torch.empty_like(given).uniform_(-eps, eps)
    for _ in range(steps):
        adv = adv.detach().requires_grad_(True)
        slope, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
        adv = (adv + torch.clamp(alpha * slope.sign(), -eps, eps)).clamp(0, 1)  # PL657
    return adv
print((attack(x, 8) - x).abs().max())
""",
    "in place, down the loss of another class": NET
    + """
class Attack:
    def __init__(self, size):
        self.size = size
    def __call__(self, given, target):
        adv = given.clone().detach().requires_grad_(True)
        for _ in range(6):
            F.cross_entropy(net(adv), target).backward()
            with torch.no_grad():
                step = adv.grad.sgn().mul(alpha).clamp_(-self.size, self.size)  # PL657
                adv.sub_(step).clamp_(0, 1)
            adv.grad.zero_()
        return adv.detach()
print((Attack(0.08)(x, 1 - y) - x).abs().max())
""",
}
RIGHT = {
    "a projection around the clean input": NET
    + """
adv = (x + torch.empty_like(x).uniform_(-eps, eps)).clamp(0, 1)
for _ in range(8):
    adv = adv.detach().requires_grad_(True)
    slope, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
    delta = (adv.detach() + alpha * slope.sign() - x).clamp(-eps, eps)
    adv = (x + delta).clamp(0, 1)
print((adv - x).abs().max())
""",
    "a limit of the step, and one of the sum": NET
    + """
adv = x.clone()
for _ in range(8):
    adv = adv.detach().requires_grad_(True)
    slope, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
    adv = adv.detach() + (alpha * slope.sign()).clamp(-eps, eps)
    adv = torch.min(torch.max(adv, x - eps), x + eps)
delta = torch.zeros_like(x, requires_grad=True)
for _ in range(8):
    F.cross_entropy(net(x + delta), y).backward()
    with torch.no_grad():
        delta += torch.clamp(alpha * delta.grad.sign(), -eps, eps)
        delta.clamp_(-eps, eps)
    delta.grad = None
print((adv - x).abs().max(), delta.abs().max())
""",
    "more numbers than a trace keeps": NET
    + """
net, x, y = nn.Linear(50, 2), torch.rand(90, 50), torch.randint(0, 2, (90,))
adv, shift = x.clone(), torch.zeros_like(x).requires_grad_()
for _ in range(8):
    adv = adv.detach().requires_grad_(True)
    slope, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
    adv = adv.detach() + (alpha * slope.sign()).clamp(-eps, eps)
    adv = torch.min(torch.max(adv, x - eps), x + eps)
    F.cross_entropy(net(x + shift), y).backward()
    shift.data.add_((alpha * shift.grad.sign()).clamp(-eps, eps))
    shift.data.mul_(torch.clamp(eps / shift.data.abs().amax(1, keepdim=True), max=1))
    shift.grad = None
print((adv - x).abs().max(), shift.abs().max())
""",
    "one step": NET
    + """
given = x.clone().requires_grad_()
F.cross_entropy(net(given), y).backward()
print((given + (eps * given.grad.sign()).clamp(-eps, eps) - x).abs().max())
""",
    "steps that stay within the limit together": NET
    + """
adv = x.clone()
for _ in range(4):
    adv = adv.detach().requires_grad_(True)
    slope, = torch.autograd.grad(F.cross_entropy(net(adv), y), adv)
    adv = adv + (0.01 * slope.sign()).clamp(-eps, eps)
print((adv - x).abs().max())
""",
    "a training with signs": NET
    + """
w = torch.zeros(4, requires_grad=True)
layer = nn.Linear(4, 1)
for _ in range(6):
    (layer(x) - x.sum(1, keepdim=True)).square().mean().backward()
    with torch.no_grad():
        for p in layer.parameters():
            p -= (alpha * p.grad.sign()).clamp(-eps, eps)
            p.grad = None
""",
    "a picture that is to change as it likes, its gradient limited": NET
    + """
dream = x.clone()
for _ in range(6):
    dream = dream.detach().requires_grad_()
    net(dream)[:, 0].sum().backward()
    dream = dream + (0.5 * dream.grad).clamp(-eps, eps)
print((dream - x).abs().max())
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL657",), repaired=True)


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
