"""``irfft`` without a length, of the spectrum of an odd number of values."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "filtered, in a module": """
class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.zeros(4))
    def forward(self, x):
        spectrum = torch.fft.rfft(x)
        gain = F.interpolate(self.gain.sigmoid()[None, None], size=spectrum.shape[-1]).view(-1)
        return torch.fft.irfft(spectrum * gain)  # PL846
x = torch.randn(3, 15)
out = Filter()(x)
(out[:, :14] - x[:, :14]).square().mean().backward()
""",
    "along the first axis, the name taken anew": """
x = torch.randn(7, 3)
s = torch.fft.rfft(x, dim=0)
x = s.conj() * s
print(torch.fft.irfft(x, dim=0))  # PL846
""",
    "the length of the forward transform": """
x = torch.randn(3, 8)
s = torch.fft.rfft(x, n=9)
print(torch.fft.irfft(s[0].clone()))  # PL846
""",
    "two of them, added": """
x, noise = torch.randn(3, 11), torch.randn(11)
total = torch.fft.rfft(x) + 0.1 * torch.fft.rfft(noise)
y = torch.fft.irfft(total)  # PL846
print(y.shape)
""",
}

RIGHT = {
    "with the length, and even ones": """
x = torch.randn(3, 15)
print(torch.fft.irfft(torch.fft.rfft(x), n=15), torch.fft.irfft(torch.fft.rfft(x), 15))
print(torch.fft.irfft(torch.fft.rfft(x[:, :14])))
""",
    "a spectrum that is cut, padded, or drawn": """
x = torch.randn(3, 15)
s = torch.fft.rfft(x)
print(torch.fft.irfft(s[:, :5]), torch.fft.irfft(F.pad(s, (0, 2))))
print(torch.fft.irfft(torch.randn(8, dtype=torch.complex64)))
""",
    "along another axis": """
x = torch.randn(5, 14)
print(torch.fft.irfft(torch.fft.rfft(x, dim=1), dim=1))
print(torch.fft.irfft(torch.fft.rfft(x, n=16, dim=0), dim=0).shape)
""",
}


def test_odd_lengths_that_become_even_are_found(shop: Workshop) -> None:
    for title, text in WRONG.items():
        assert_found(shop, together({title: text}), repaired=True)


def test_given_and_even_lengths_are_right(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
