"""Convolutions that read what they have to predict are found in any form; causal ones, and
targets out of reach, are right.
"""

from __future__ import annotations

from pitfall_lab.check import Subject, Workshop
from pitfall_lab.check.trials import tried
from pitfall_lab.rules import find
from pitfall_lab.rules.kit.expected_marks import plain
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

SERIES = """
series = torch.randn(4, 1, 17)
x, y = series[:, :, :-1], series[:, :, 1:]
"""

WRONG = {
    "blocks that cut off the beginning, dilated": """
class Causal(nn.Module):
    def __init__(self, a, b, size, dilation):
        super().__init__()
        self.pad = (size - 1) * dilation
        self.conv = nn.Conv1d(a, b, size, padding=self.pad, dilation=dilation)
    def forward(self, x):
        return self.conv(x)[:, :, self.pad:]  # PL458
net = nn.Sequential(Causal(1, 4, 3, 1), nn.ReLU(), Causal(4, 4, 3, 2), nn.ReLU(), nn.Conv1d(4, 1, 1))
opt = Adam(net.parameters())
for _ in range(3):
    series = torch.randn(8, 1, 33)
    update(opt, F.mse_loss(net(series[:, :, :-1]), series[:, :, 1:]))
""",
    "padding on both sides, as for images": SERIES
    + """
conv, head = nn.Conv1d(1, 4, 3, padding=1), nn.Conv1d(4, 1, 1)
h = conv(x)  # PL458
F.l1_loss(head(torch.tanh(h)), y).backward()
""",
    "padding at the end": SERIES
    + """
conv = nn.Conv1d(1, 1, 4)
guess = conv(F.pad(x, (0, 3)))  # PL458
((guess - y) ** 2).mean().backward()
""",
    "the window of a forecast two steps ahead": """
series = torch.randn(4, 3, 18)
x, y = series[..., :-2], series[..., 2:]
conv, out = nn.Conv1d(3, 6, 5, padding="same"), nn.Conv1d(6, 3, 1)
h = F.relu(conv(x))  # PL458
F.smooth_l1_loss(out(h), y).backward()
""",
    "tokens, features last": """
text = torch.randint(0, 9, (4, 12))
emb, conv, head = nn.Embedding(9, 8), nn.Conv1d(8, 8, 3, padding=1), nn.Linear(8, 9)
h = conv(emb(text[:, :-1]).transpose(1, 2)).transpose(1, 2)  # PL458
F.cross_entropy(head(h).reshape(-1, 9), text[:, 1:].reshape(-1)).backward()
""",
    "a residual block": SERIES
    + """
wide, conv, head = nn.Conv1d(1, 4, 1), nn.Conv1d(4, 4, 3, padding=2), nn.Conv1d(4, 1, 1)
h = wide(x)
h = h + conv(F.relu(h))[..., 2:]  # PL458
F.mse_loss(head(h), y).backward()
""",
    "windows from a loader": """
series = torch.randn(60)
class Windows(Dataset):
    def __len__(self):
        return 12
    def __getitem__(self, i):
        return series[i:i + 10], series[i + 1:i + 11]
conv = nn.Conv1d(1, 1, 3, padding=1)
opt = SGD(conv.parameters(), lr=0.1)
for a, b in DataLoader(Windows(), batch_size=6):
    guess = conv(a.unsqueeze(1))  # PL458
    update(opt, F.mse_loss(guess, b.unsqueeze(1)))
""",
    "features last, in and out": """
series = torch.randn(4, 17, 3)
x, y = series[:, :-1], series[:, 1:]
conv, head = nn.Conv1d(3, 8, 3, padding=2), nn.Linear(8, 3)
h = conv(x.transpose(1, 2))
h = h[:, :, 2:].transpose(1, 2)  # PL458
F.mse_loss(head(F.gelu(h)), y).backward()
""",
}

RIGHT = {
    "cut off at the end, padded at the beginning": SERIES
    + """
a, b, c, head = nn.Conv1d(1, 4, 3, padding=2), nn.Conv1d(4, 4, 3, dilation=2), nn.Conv1d(4, 4, 2), nn.Conv1d(4, 1, 1)
h = F.relu(a(x)[:, :, :-2])
h = h + b(F.pad(h, (4, 0)))
h = c(torch.cat([torch.zeros(4, 4, 1), h], dim=2))
F.mse_loss(head(h), y).backward()
F.mse_loss(head(nn.ConstantPad1d((2, 0), 0.0)(a(x))[..., :-4]), y).backward()
""",
    "no padding, and the targets behind the windows": """
series = torch.randn(4, 1, 20)
conv = nn.Conv1d(1, 1, 4)
F.mse_loss(conv(series[:, :, :-1]), series[:, :, 4:]).backward()
F.mse_loss(conv(series)[:, :, :-1], series[:, :, 4:]).backward()
""",
    "a forecast further ahead than the window": """
series = torch.randn(4, 1, 20)
conv = nn.Conv1d(1, 1, 3, padding=1)
F.mse_loss(conv(series[:, :, :-2]), series[:, :, 2:]).backward()
""",
    "a window with a hole where the answer is": """
series = torch.randn(4, 1, 20)
conv = nn.Conv1d(1, 1, 2, padding=2, dilation=4)
F.mse_loss(conv(series[:, :, :-1]), series[:, :, 1:]).backward()
mask = torch.tensor([1.0, 1.0, 0.0])
weight = nn.Parameter(torch.randn(1, 1, 3))
F.mse_loss(F.conv1d(series[:, :, :-1], weight * mask, padding=1), series[:, :, 1:]).backward()
""",
    "another series, labels of each step, and the same numbers cleaned": SERIES
    + """
conv = nn.Conv1d(1, 1, 3, padding=1)
F.mse_loss(conv(x), torch.randn(4, 1, 16)).backward()
F.mse_loss(conv(x + 0.3 * torch.randn_like(x)), x).backward()
F.mse_loss(conv(y), x).backward()
tags = nn.Conv1d(1, 3, 5, padding=2)
F.cross_entropy(tags(x), torch.randint(0, 3, (4, 16))).backward()
""",
    "one number for the whole row": SERIES
    + """
conv, head = nn.Conv1d(1, 4, 3, padding=1), nn.Linear(4, 1)
F.mse_loss(head(conv(x).mean(2)), y[:, :, -1]).backward()
F.mse_loss(head(conv(x)[:, :, -1]), y[:, :, -1]).backward()
""",
    "tokens with a causal convolution": """
text = torch.randint(0, 9, (4, 12))
emb, conv, head = nn.Embedding(9, 8), nn.Conv1d(8, 8, 3, padding=2), nn.Linear(8, 9)
h = conv(emb(text[:, :-1]).transpose(1, 2))[..., :-2].transpose(1, 2)
F.cross_entropy(head(h).reshape(-1, 9), text[:, 1:].reshape(-1)).backward()
""",
    "the past of a series, predicted backwards": SERIES
    + """
conv = nn.Conv1d(1, 1, 3, padding=2)
F.mse_loss(conv(y)[:, :, 2:], x).backward()
""",
}


def test_a_convolution_that_reads_its_target_is_found(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_it_is_repaired_where_it_cuts_or_pads(shop: Workshop) -> None:
    for name in (
        "blocks that cut off the beginning, dilated",
        "padding on both sides, as for images",
        "a residual block",
    ):
        subject = Subject(plain(together({name: WRONG[name]})), "program.py")
        trace = shop.trace(subject)
        (finding,) = tried(shop, subject, trace, find(trace))
        assert any(fix.verified for fix in finding.fixes), name


def test_convolutions_of_the_past_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
