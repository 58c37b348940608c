"""Layers that work in place on what a name or a hook has kept: other forms of the mistake, and right
programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

NET = """
net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1), nn.LeakyReLU(0.1, inplace=True))
image = torch.randn(1, 1, 5, 5)
"""  # noqa: E501
WRONG = {
    "a shortcut": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.layer = nn.ReLU(inplace=True), nn.Linear(4, 4)
    def forward(self, x):
        y = x
        return self.layer(self.act(x)) + y  # PL711
first, block = nn.Linear(3, 4), Block()
block(first(torch.randn(5, 3))).mean().backward()
""",
    "a shortcut around a part": """
first = nn.Linear(3, 4)
part = nn.Sequential(nn.ELU(inplace=True), nn.Linear(4, 4))
h = kept = first(torch.randn(5, 3))
out = part(h)  # PL711
(torch.cat([kept, out], 1) ** 2).mean().backward()
""",
    "a function of the program": """
def activated(x):
    return F.hardtanh(x, -0.1, 0.1, inplace=True)  # PL711
first, second = nn.Linear(3, 4), nn.Linear(4, 4)
before = first(torch.randn(5, 3))
after = activated(before)
(second(after).mean() + before.mean()).backward()
""",
    "logits that are kept": """
first = nn.Linear(3, 4)
logits = first(torch.randn(5, 3))
raw = logits
scores = F.leaky_relu(logits, 0.2, inplace=True)  # PL711
(scores.softmax(1)[:, 0].log().mean() + raw.mean()).backward()
""",
    "hooks of convolutions by number": NET
    + """
kept = []
def keep(module, inputs, output):
    kept.append(output)
handles = [net[0].register_forward_hook(keep), net[2].register_forward_hook(keep)]
net(image)  # PL345
print(sum(each.mean() for each in kept))
""",
    "hooks of all convolutions": NET
    + """
features = {}
def keeper(name):
    def keep(module, inputs, output):
        features[name] = output
    return keep
for name, layer in net.named_children():
    if isinstance(layer, nn.Conv2d):
        layer.register_forward_hook(keeper(name))
out = net(image)  # PL345
print([value.abs().sum() for value in features.values()])
""",
    "hooks of names in a loop": NET
    + """
features = {}
def keeper(name):
    def keep(module, inputs, output):
        features[name] = output
    return keep
for name in ("0", "2"):
    net.get_submodule(name).register_forward_hook(keeper(name))
net(image)  # PL345
print([features[name].mean() for name in ("0", "2")])
""",
    "a hook that keeps on the object": """
class Watched(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, 4)
        self.act = nn.SiLU(inplace=True)
        self.body.register_forward_hook(self.keep)
    def keep(self, module, inputs, output):
        self.raw = output
    def forward(self, x):
        return self.act(self.body(x))  # PL345
watched = Watched()
out = watched(torch.randn(5, 3))
(out.mean() + watched.raw.square().mean()).backward()
""",
}
NAMED = """import torch
from torch import nn
torch.manual_seed(0)
class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True))
    def forward(self, x):
        return self.layer1(x)  # PL345
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features, self.head = Features(), nn.Linear(4, 1)
    def forward(self, x):
        return self.head(self.features(x))
TAPS = ["features.layer1.0"]
def tap(model, names):
    kept, modules = {}, dict(model.named_modules())
    def keeper(name):
        def keep(module, inputs, output):
            kept[name] = output
        return keep
    for name in names:
        modules[name].register_forward_hook(keeper(name))
    return kept
net = Net()
kept = tap(net, TAPS)
net(torch.randn(5, 3))
print(kept["features.layer1.0"].mean())
"""
RIGHT = {
    "a shortcut taken before a convolution": """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.act, self.one, self.two = nn.ReLU(inplace=True), nn.Linear(4, 4), nn.Linear(4, 4)
    def forward(self, x):
        shortcut = x
        out = self.act(self.one(x))
        out = self.two(out)
        out += shortcut
        return self.act(out)
net = nn.Sequential(nn.Linear(3, 4), Block(), Block(), nn.Linear(4, 1))
net(torch.randn(5, 3)).mean().backward()
""",
    "the name is given to the result": """
first = nn.Linear(3, 4)
h = first(torch.randn(5, 3))
h = F.relu(h, inplace=True)
shortcut = h
out = F.relu(first.weight.sum() * h, inplace=True)
(out + shortcut + h).mean().backward()
""",
    "only written": """
first, act = nn.Linear(3, 4), nn.ReLU(inplace=True)
h = first(torch.randn(5, 3))
act(h)
(h * 2).mean().backward()
""",
    "nothing that is negative": """
first, act = nn.Linear(3, 4), nn.ReLU(inplace=True)
h = first(torch.randn(5, 3)).abs()
out = act(h)
(out + h).mean().backward()
shares = torch.rand(5, 3)
out = act(shares)
print(out - shares)
""",
    "a copy is kept": """
first = nn.Linear(3, 4)
h = first(torch.randn(5, 3))
raw = h.clone()
out = F.relu(h, inplace=True)
(out + raw).mean().backward()
""",
    "only the shape is read": """
first = nn.Linear(3, 4)
h = first(torch.randn(5, 3))
out = F.relu(h, inplace=True)
print(h.shape, h.size(0), len(h))
out.mean().backward()
""",
    "a name of an activation": NET
    + """
features = {}
def keeper(name):
    def keep(module, inputs, output):
        features[name] = output
    return keep
layer = net.get_submodule("1")
layer.register_forward_hook(keeper("1"))
dict(net.named_modules())["3"].register_forward_hook(keeper("3"))
net(image)
print(features["1"].mean(), features["3"].mean())
""",
    "hooks of the activations": NET
    + """
features = {}
def keeper(name):
    def keep(module, inputs, output):
        features[name] = output
    return keep
net[1].register_forward_hook(keeper("first"))
net[3].register_forward_hook(keeper("second"))
net(image)
print([value.abs().sum() for value in features.values()])
""",
    "hooks that copy or measure": NET
    + """
features, sizes = {}, []
def keep(module, inputs, output):
    features[module] = output.detach().clone()
    sizes.append(output.norm().item())
net[0].register_forward_hook(keep)
net(image)
print([value.abs().sum() for value in features.values()], sizes)
""",
    "not in place": """
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
kept = []
net[0].register_forward_hook(lambda module, inputs, output: kept.append(output))
out = net(torch.randn(5, 3))
(out.mean() + kept[0].mean()).backward()
""",
    "a loop in which each result gets the name": """
layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
act = nn.ReLU(inplace=True)
h, all_of_them = torch.randn(5, 4), []
for layer in layers:
    h = act(layer(h))
    all_of_them.append(h)
sum(each.mean() for each in all_of_them).backward()
""",
}


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))


def test_a_hook_of_a_name_with_points_is_found(shop: Workshop) -> None:
    assert_found(shop, NAMED, repaired=True)


def test_a_hook_of_an_activation_by_its_name_draws_nothing(shop: Workshop) -> None:
    assert_quiet(shop, NAMED.replace("layer1.0", "layer1.1"))
    assert_quiet(shop, NAMED.replace('= ["features.layer1.0"]', '= ["features." + "layer1.0"]'))
