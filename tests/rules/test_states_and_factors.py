"""What a state leaves out or replaces, draws that a checkpoint repeats otherwise, and factors of a matrix that are
multiplied over the wrong axis or without the conjugate; and programs that resemble them and are right.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

STATES = """
import io
x, y = torch.randn(24, 5, generator=torch.Generator().manual_seed(1)), torch.ones(24, 1)
def run(net, opt, steps):
    for _ in range(steps):
        loss = (net(x) - y).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()
"""
RESTORED = {
    "two options, in a function that makes the optimizer": STATES + """
def trainer(net, rate, decay):
    return torch.optim.AdamW(net.parameters(), lr=rate, weight_decay=decay)
net = nn.Linear(5, 1)
first = trainer(net, 0.05, 0.01)
print(run(net, first, 4))
fine = trainer(net, 0.001, 0.3)
fine.load_state_dict(first.state_dict())  # PL686
print(run(net, fine, 4))
""",
    "the same rate, come down to nothing": STATES + """
net = nn.Linear(5, 1)
first = torch.optim.SGD(net.parameters(), lr=0.1)
decay = torch.optim.lr_scheduler.ExponentialLR(first, 0.1)
for _ in range(5):
    run(net, first, 1)
    decay.step()
again = torch.optim.SGD(net.parameters(), lr=0.1)
again.load_state_dict(first.state_dict())  # PL686
print(run(net, again, 20))
""",
}  # fmt: skip
LEFT_OUT = {
    "a buffer that is assigned, and a mask that every module makes": STATES + """
class Codes(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(5, 4)
        self.register_buffer("centre", torch.zeros(4), False)  # PL746
        self.register_buffer("mask", torch.ones(4, 4).tril(), persistent=False)
    def forward(self, x):
        return ((self.enc(x) - self.centre) @ self.mask).square().sum(1, keepdim=True)
net = Codes()
with torch.no_grad():
    net.centre = net.enc(x).mean(0)
print(run(net, torch.optim.SGD(net.parameters(), lr=0.01), 3))
file = io.BytesIO()
torch.save({"net": net.state_dict()}, file)
file.seek(0)
served = Codes()
served.load_state_dict(torch.load(file)["net"])
print(served(x)[:3])
""",
}  # fmt: skip
STATES_RIGHT = {
    "a training that goes on, and a rate set after the loading": STATES + """
def make(net):
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    return opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, 12)
net = nn.Linear(5, 1)
opt, schedule = make(net)
for step in range(12):
    if step == 6:
        kept = net.state_dict(), opt.state_dict(), schedule.state_dict()
        net = nn.Linear(5, 1)
        opt, schedule = make(net)
        for each, state in zip((net, opt, schedule), kept):
            each.load_state_dict(state)
    run(net, opt, 1)
    schedule.step()
other = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.8)
other.load_state_dict(opt.state_dict())
for group in other.param_groups:
    group.update(lr=0.02, momentum=0.8)
print(run(net, other, 3))
""",
    "buffers that are carried along from call to call": STATES + """
class Stream(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Linear(5, 4)
        self.register_buffer("past", torch.zeros(4), persistent=False)
        self.register_buffer("cache", torch.zeros(8, 4), persistent=False)
        self.at = 0
    def forward(self, row):
        z = self.enc(row)
        self.cache[self.at % 8] = z.detach()
        self.at += 1
        out = z + 0.5 * self.past + self.cache.mean(0)
        self.past.copy_(out.detach())
        return out
net = Stream()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for row in x:
    opt.zero_grad()
    net(row).square().mean().backward()
    opt.step()
served = Stream()
served.load_state_dict(net.state_dict())
print([served(row)[0].item() for row in x[:4]])
""",
}  # fmt: skip

CHECKPOINT = """
from torch.utils.checkpoint import checkpoint
x = torch.randn(40, 30, generator=torch.Generator().manual_seed(1))
"""
DRAWN = {
    "dropout on data, which has no gradient": CHECKPOINT + """
body = nn.Sequential(nn.Dropout(0.5), nn.Linear(30, 1))
checkpoint(body, x, use_reentrant=False, preserve_rng_state=False).square().mean().backward()  # PL108
print(body[1].weight.grad.norm())
""",
    "numbers drawn in the program's own module": CHECKPOINT + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(30, 20)
    def forward(self, x):
        keep = torch.rand_like(x) > 0.3  # PL108
        return self.linear(x * keep)
block = Block()
checkpoint(block, x, use_reentrant=False, preserve_rng_state=False).square().mean().backward()
print(block.linear.weight.grad.norm())
""",
}  # fmt: skip
DRAWN_RIGHT = {
    "noise that no gradient depends on": CHECKPOINT + """
linear = nn.Linear(30, 20)
def block(x):
    return linear(x) + 0.1 * torch.randn(40, 20)
checkpoint(block, x, use_reentrant=False, preserve_rng_state=False).sum().backward()
print(linear.weight.grad.norm())
""",
    "nothing drawn, or the same numbers": CHECKPOINT + """
body = nn.Sequential(nn.Dropout(0.5), nn.Linear(30, 1))
checkpoint(body, x, use_reentrant=False).square().mean().backward()
body.eval()
checkpoint(body, x, use_reentrant=False, preserve_rng_state=False).square().mean().backward()
print(body[1].weight.grad.norm())
""",
}  # fmt: skip

DATA = """
draw = torch.Generator().manual_seed(0)
data = torch.randn(60, 4, generator=draw) @ torch.randn(4, 4, generator=draw)
data = data - data.mean(0)
"""
CROSSED = {
    "one column of Vh": DATA + """
train = data[:40]
_, s, v = torch.linalg.svd(train)
first = v[:, 0]  # PL842
print((data @ first).var(), s[0])
""",
    "the turns of several clouds": DATA + """
turns = torch.linalg.qr(torch.randn(6, 4, 4, generator=draw))[0]
clouds = data @ turns
u, s, v = torch.linalg.svd(clouds.transpose(1, 2) @ data)
back = v @ u.transpose(1, 2)  # PL842
print((clouds @ back.mT - data).abs().max())
""",
    "the turn between two clouds": DATA + """
other = data @ torch.linalg.qr(torch.randn(4, 4, generator=draw))[0]
u, s, v = torch.linalg.svd(data.T @ other)
turn = u @ v.T  # PL842
print((data @ turn - other).abs().max())
""",
    "scores with the transpose of the eigenvectors": DATA + """
values, vectors = torch.linalg.eigh(data.T @ data / 59)
scores = data @ vectors.T  # PL842
print(scores.var(0), values)
""",
}  # fmt: skip
CROSSED_RIGHT = {
    "each factor on its own side": DATA + """
u, s, vh = torch.linalg.svd(data, full_matrices=False)
print((data @ vh[:2].T).var(0), (u * s) @ vh, u @ torch.diag(s) @ vh[:, :3], data @ vh.T @ vh)
cov = data.T @ data / 59
values, vectors = torch.linalg.eigh(cov)
print((data @ vectors[:, -2:]).var(0), vectors @ torch.diag(values) @ vectors.T)
print((data @ vectors) / values.sqrt() @ vectors.T)
left, _, right = torch.linalg.svd(cov)
print((data @ left[:, :2]).var(0), (right @ data.T).var(1), left @ right, right.T @ left.T)
print((data @ torch.svd(data)[2][:, :2]).var(0))
""",
    "several matrices": DATA + """
clouds = data @ torch.linalg.qr(torch.randn(6, 4, 4, generator=draw))[0]
u, s, vh = torch.linalg.svd(clouds.transpose(1, 2) @ data)
v = vh.transpose(-2, -1)
back = v @ u.mT
flip = torch.diag_embed(torch.stack([torch.det(back).sign()] * 4, 1))
print((clouds @ (v @ flip @ u.transpose(1, 2)).mT - data).abs().max(), u @ torch.diag_embed(s) @ vh)
print((clouds @ u[..., :2]).var(1), u.transpose(0, 1).shape)
""",
    "a matrix that has nothing to do with the data": DATA + """
left, _, right = torch.linalg.svd(torch.randn(4, 4, generator=draw))
print(data @ left, data @ right)
""",
}  # fmt: skip

SIGNALS = """
draw = torch.Generator().manual_seed(0)
snaps = torch.randn(300, 4, dtype=torch.complex64, generator=draw)
snaps = snaps @ torch.randn(4, 4, dtype=torch.complex64, generator=draw)
"""
UNCONJUGATED = {
    "an einsum, by the number of its products": SIGNALS + """
cov = torch.einsum("ti,tj->ij", snaps, snaps) / (len(snaps) - 1)  # PL844
print(cov[0, 0].abs())
""",
    "for eigenvalues of a Hermitian matrix": SIGNALS + """
gram = snaps.t() @ snaps  # PL844
print(torch.linalg.eigvalsh(gram))
""",
}  # fmt: skip
UNCONJUGATED_RIGHT = {
    "with the conjugate, and both": SIGNALS + """
cov, other = snaps.mH @ snaps / 300, snaps.T @ snaps.conj() / 300
beside = snaps.T @ snaps / 300
print(cov, other, beside, torch.einsum("ti,tj->ij", snaps, snaps.conj()) / 300)
""",
    "real numbers, and a product that is no average": SIGNALS + """
steps = torch.exp(1j * torch.rand(5, 5, generator=draw))
print(steps @ steps.T, snaps.real.T @ snaps.real / 300)
""",
}  # fmt: skip

PADDED_RIGHT = {
    "a number of padding that is also a word": """
from torch.nn.utils.rnn import pad_sequence
rule = torch.randint(0, 4, (5,), generator=torch.Generator().manual_seed(0))
table, out = nn.Embedding(5, 8), nn.Linear(8, 4)
rows = [torch.tensor([1, 2, 3, 4, 0]), torch.tensor([2, 3, 0]), torch.tensor([1, 0])]
words = pad_sequence(rows, batch_first=True)
tags = pad_sequence([rule[row] for row in rows], batch_first=True, padding_value=-100)
F.cross_entropy(out(table(words)).transpose(1, 2), tags).backward()
print(out.weight.grad.norm())
""",
}  # fmt: skip

FIXED = {
    "an average of a copy that is frozen, and of one that only evaluates, in a class": """
import copy
class Follower:
    def __init__(self, model, share):
        self.share = share
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
    @torch.no_grad()
    def follow(self, model):
        for kept, new in zip(self.model.parameters(), model.parameters()):
            kept.lerp_(new.to(kept.dtype), self.share)  # PL834
net = nn.Linear(6, 3).to(torch.bfloat16)
for p in net.parameters():
    nn.init.constant_(p, 2.0)
follower = Follower(net, 0.002)
with torch.no_grad():
    for step in range(8):
        for p in net.parameters():
            p.add_(0.125)
        follower.follow(net)
print(follower.model.weight.float().mean())
""",
    "an average of a copy in 16 bits": """
import copy
net = nn.Linear(6, 3).to(torch.bfloat16)
for p in net.parameters():
    nn.init.constant_(p, 2.0)
average = copy.deepcopy(net)
for p in average.parameters():
    p.requires_grad_(False)
with torch.no_grad():
    for step in range(8):
        for a, p in zip(average.parameters(), net.parameters()):
            p.add_(0.125)
            a.mul_(0.999).add_(p.to(a.dtype), alpha=0.001)  # PL834
print(average.weight.float().mean())
""",
    "an optimizer made before the weights are split": """
from torch.nn.utils.parametrizations import weight_norm
x = torch.randn(20, 3, generator=torch.Generator().manual_seed(1))
net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for layer in (net[0], net[2]):
    weight_norm(layer)  # PL606
for _ in range(3):
    opt.zero_grad()
    (net(x) - 1).square().mean().backward()
    opt.step()
print(net(x).mean())
""",
    "a generator made with a default in each call": """
def others(count, seed=7):
    own = torch.Generator().manual_seed(seed)  # PL905
    return torch.randint(0, 90, (count,), generator=own)
table = nn.Embedding(90, 3)
opt = torch.optim.SGD(table.parameters(), lr=0.1)
for _ in range(5):
    loss = table(others(8)).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss)
""",
    "whole numbers from the dataset's own generator": """
import numpy as np
from torch.utils.data import DataLoader, Dataset
class Crops(Dataset):
    def __init__(self):
        self.level = np.random.default_rng(3).uniform(1, 2, size=4)
        self.rng = np.random.default_rng(0)
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return self.level[index] + int(self.rng.integers(0, 9))
for batch in DataLoader(Crops(), batch_size=2, num_workers=2):  # PL909
    print(batch)
""",
}  # fmt: skip


def test_options_that_a_loaded_state_replaced(shop: Workshop) -> None:
    assert_found(shop, together(RESTORED), only=("PL686",), repaired=True)


def test_fitted_buffers_that_no_state_has(shop: Workshop) -> None:
    assert_found(shop, together(LEFT_OUT), only=("PL746",), repaired=True)


def test_what_is_restored_or_left_out_rightly_draws_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(STATES_RIGHT))


def test_draws_that_a_checkpoint_makes_anew(shop: Workshop) -> None:
    assert_found(shop, together(DRAWN), only=("PL108",), repaired=True)


def test_draws_that_no_gradient_depends_on_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(DRAWN_RIGHT))


def test_products_over_the_wrong_axis_of_vectors(shop: Workshop) -> None:
    assert_found(shop, together(CROSSED), only=("PL842",), repaired=True)


def test_products_over_the_right_axis_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(CROSSED_RIGHT))


def test_complex_covariances_without_the_conjugate(shop: Workshop) -> None:
    assert_found(shop, together(UNCONJUGATED), only=("PL844",), repaired=True)


def test_complex_products_that_are_meant_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(UNCONJUGATED_RIGHT))


def test_fixes_of_older_rules_hold_in_these_forms(shop: Workshop) -> None:
    assert_found(shop, together(FIXED), only=("PL834", "PL606", "PL905", "PL909"), repaired=True)


def test_a_word_with_the_number_of_padding_is_no_padding(shop: Workshop) -> None:
    assert_quiet(shop, together(PADDED_RIGHT))
