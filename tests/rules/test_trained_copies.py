"""PL781: copies of parameters are trained, and the networks that they were copied from are used; and right programs
that train copies.
"""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.rules import find
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

NETS = """
import copy
from torch.func import functional_call, grad, stack_module_state, vmap
x = torch.randn(12, 3, generator=torch.Generator().manual_seed(2))
y = x.sum(1, keepdim=True)
def network():
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
"""
TRAINER = (
    NETS
    + """
class Trainer:
    def __init__(self, nets):
        self.nets = nets
        self.weights, self.rest = stack_module_state(nets)
        self.opt = SGD(self.weights.values(), lr=0.1)
    def fit(self):
        for _ in range(4):
            out = vmap(lambda p: functional_call(self.nets[0], p, (x,)))(self.weights)
            self.opt.zero_grad()
            F.mse_loss(out, y.expand_as(out)).backward()
            self.opt.step()
        return self.nets
nets = Trainer([network(), network()]).fit()
with torch.no_grad():
    print(sum(net(x).mean() for net in nets))  # PL781
"""
)
WRONG = {
    "new values by a gradient function, of one network": NETS
    + """
net = network()
weights = {key: value.detach().clone() for key, value in net.named_parameters()}
def error(weights):
    return F.mse_loss(functional_call(net, weights, (x,)), y)
for _ in range(4):
    slopes = grad(error)(weights)
    weights = {key: value - 0.1 * slopes[key] for key, value in weights.items()}
with torch.no_grad():
    guess = net(x)  # PL781
print(F.mse_loss(guess, y))
""",
    "a committee with an optimizer, in a class": NETS
    + """
class Committee:
    def __init__(self, size):
        self.nets = [network() for _ in range(size)]
        self.weights, self.rest = stack_module_state(self.nets)
        self.opt = Adam(self.weights.values(), lr=0.05)
    def fit(self, rounds):
        for _ in range(rounds):
            out = vmap(lambda p: functional_call(self.nets[0], p, (x,)))(self.weights)
            self.opt.zero_grad()
            (out - y).square().mean((1, 2)).sum().backward()
            self.opt.step()
    def predict(self, given):
        guesses = []
        for net in self.nets:
            guesses.append(net(given))  # PL781
        return torch.cat(guesses, 1).mean(1)
committee = Committee(3)
committee.fit(4)
with torch.no_grad():
    print(committee.predict(x))
""",
}  # fmt: skip
BY_HAND = {
    "stacked by hand, with products of matrices": NETS
    + """
nets = [nn.Linear(3, 1) for _ in range(4)]
stacked = torch.stack([net.weight for net in nets]).detach().requires_grad_()
for _ in range(4):
    slope, = torch.autograd.grad((torch.einsum("nd,kod->kno", x, stacked) - y).square().mean(), stacked)
    with torch.no_grad():
        stacked -= 0.1 * slope
for net in nets:
    print(F.mse_loss(F.linear(x, net.weight), y).item())  # PL781
""",
}  # fmt: skip
RIGHT = {
    "the trained copies are used, and the first networks, to compare": NETS
    + """
nets = [network() for _ in range(2)]
weights, rest = stack_module_state(nets)
opt = SGD(weights.values(), lr=0.1)
run = vmap(lambda p: functional_call(nets[0], p, (x,)))
for _ in range(3):
    opt.zero_grad()
    (run(weights) - y).square().mean().backward()
    opt.step()
with torch.no_grad():
    print((run(weights) - y).square().mean(), [F.mse_loss(net(x), y).item() for net in nets])
""",
    "copied back": NETS
    + """
nets = [network() for _ in range(2)]
weights, rest = stack_module_state(nets)
weights = {key: value.detach() for key, value in weights.items()}
def error(p):
    return F.mse_loss(functional_call(nets[0], p, (x,)), y)
for _ in range(3):
    for key, slope in vmap(grad(error))(weights).items():
        weights[key].sub_(slope, alpha=0.1)
for place, net in enumerate(nets):
    net.load_state_dict({key: value[place] for key, value in weights.items()})
print([net(x).mean().item() for net in nets])
""",
    "fast weights of each task, and the network learns by them": NETS
    + """
net = network()
opt = SGD(net.parameters(), lr=0.1)
for task in range(3):
    fast = {key: value.clone() for key, value in net.named_parameters()}
    for _ in range(2):
        loss = F.mse_loss(functional_call(net, fast, (x,)), y + task)
        slopes = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
        fast = {key: value - 0.1 * slope for (key, value), slope in zip(fast.items(), slopes)}
    opt.zero_grad()
    F.mse_loss(functional_call(net, fast, (x,)), y + task).backward()
    opt.step()
with torch.no_grad():
    print(net(x).mean())
""",
    "an average of the trained weights, and weights from before": NETS
    + """
net = network()
opt = SGD(net.parameters(), lr=0.1)
average = {key: value.detach().clone() for key, value in net.named_parameters()}
first = [value.detach().clone() for value in net.parameters()]
for _ in range(3):
    opt.zero_grad()
    F.mse_loss(net(x), y).backward()
    opt.step()
    with torch.no_grad():
        for key, value in net.named_parameters():
            average[key].mul_(0.9).add_(value, alpha=0.1)
with torch.no_grad():
    print(net(x).mean(), functional_call(net, average, (x,)).mean())
    print(sum((now - was).norm() for now, was in zip(net.parameters(), first)))
""",
    "a copied network is trained for its teacher": NETS
    + """
teacher = network()
student = copy.deepcopy(teacher)
opt = SGD(student.parameters(), lr=0.1)
for _ in range(3):
    with torch.no_grad():
        wanted = teacher(x)
    opt.zero_grad()
    F.mse_loss(student(x + 0.1), wanted).backward()
    opt.step()
print(teacher(x).mean())
""",
}  # fmt: skip


def test_networks_used_after_their_copies_were_trained(shop: Workshop) -> None:
    assert_found(shop, together(WRONG), only=("PL781",), repaired=True)


def test_copies_of_a_trainer_are_copied_back_in_its_method(shop: Workshop) -> None:
    assert_found(shop, together({"a trainer": TRAINER}), only=("PL781",), repaired=True)


def test_copies_that_were_stacked_by_hand(shop: Workshop) -> None:
    assert_found(shop, together(BY_HAND), only=("PL781",))


def test_right_programs_with_trained_copies_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_both_values_are_told(shop: Workshop) -> None:
    found = [f for f in find(shop.trace(Subject(together(BY_HAND), "program.py"))) if f.rule == "PL781"]
    assert all("One number of the copy went from" in f.message.en for f in found)
    assert len(found) == 1
