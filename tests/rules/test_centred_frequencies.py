"""PL858: shifts that move examples or channels; and shifts along the axes of a transform, or without effect."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WRONG = {
    "channels of a recording, in bands": """
x = torch.randn(6, 512)
spec = torch.fft.fft(x)
freqs = torch.fft.fftshift(torch.fft.fftfreq(512))
mag = torch.fft.fftshift(spec).abs() / 512  # PL858
print(mag[:, (freqs > 0.1) & (freqs < 0.2)].pow(2).sum(dim=1).tolist())
""",
    "a batch of pictures, compared with their labels": """
pictures, y = torch.randn(8, 16, 16), torch.randint(0, 2, (8,))
power = torch.fft.fftshift(torch.fft.fft2(pictures)).abs().log1p()  # PL858
net = nn.Linear(256, 2)
F.cross_entropy(net(power.flatten(1)), y).backward()
""",
    "before the way back, with a filter for each": """
spectra = torch.complex(torch.randn(5, 8, 8), torch.randn(5, 8, 8))
pictures = torch.fft.ifftn(torch.fft.ifftshift(spectra), dim=(-2, -1)).abs()  # PL858
print([float(each.mean()) for each in pictures])
""",
    "spectra that were stacked": """
rows = [torch.fft.fft(torch.randn(32)) for _ in range(4)]
mag = torch.fft.fftshift(torch.stack(rows)).abs()  # PL858
print(mag.argmax(dim=1))
""",
    "on the way back alone": """
pictures = torch.randn(6, 8, 8)
there = torch.fft.ifftshift(pictures, dim=(-2, -1))
spectra = torch.fft.fftshift(torch.fft.fft2(there))  # PL858
print(spectra.abs()[0, 0])
""",
    "along the wrong axis by name": """
x = torch.randn(4, 64)
spec = torch.fft.fft(x, dim=1)
print(torch.fft.fftshift(spec, dim=0).abs()[0, :4])  # PL858
""",
}

RIGHT = {
    "along the axes of the transform": """
x = torch.randn(6, 32)
print(torch.fft.fftshift(torch.fft.fft(x), dim=-1).abs()[0])
print(torch.fft.fftshift(torch.fft.fft(x, dim=0), dim=(0,)).abs()[0])
pictures = torch.randn(3, 8, 8)
print(torch.fft.fftshift(torch.fft.fft2(pictures), dim=(-2, -1)).abs()[0])
print(torch.fft.fftshift(torch.fft.fftn(pictures)).abs()[0])
print(torch.fft.fftshift(torch.fft.fft2(pictures[0])).abs()[0])
print(torch.fft.fftshift(torch.fft.fft2(pictures[:1])).abs()[0, 0])
""",
    "there and back": """
pictures, keep = torch.randn(3, 8, 8), torch.zeros(8, 8)
keep[2:6, 2:6] = 1
f = torch.fft.fftshift(torch.fft.fft2(pictures)) * keep
print(torch.fft.ifft2(torch.fft.ifftshift(f)).real[0])
print(torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(pictures))).abs()[0])
""",
    "averaged over all rows": """
x = torch.randn(6, 32)
mag = torch.fft.fftshift(torch.fft.fft(x)).abs()
print(mag.pow(2).mean(dim=0), mag[:, 4:8].sum(), mag.sum(dim=1).mean())
""",
    "one axis after the other, and turned in between": """
x = torch.randn(16, 32)
first = torch.fft.fft(x, dim=1)
both = torch.fft.fft(first, dim=0)
print(torch.fft.fftshift(both).abs()[0])
turned = torch.fft.fft(torch.fft.fft(x).transpose(0, 1))
print(torch.fft.fftshift(turned).abs()[0])
print(torch.fft.fftshift(torch.fft.fft(torch.fft.fft(x).permute(1, 0))).abs()[0])
half = torch.fft.fftshift(torch.fft.fft(x))
print(torch.fft.fft(half, dim=0).abs()[0])
""",
    "a kernel that is put at the corner, and numbers without a transform": """
kernel = torch.randn(9, 9)
print(torch.fft.fft2(torch.fft.ifftshift(kernel)).real[0], torch.fft.fftshift(torch.randn(4, 6)))
""",
}


def test_a_shift_of_other_axes_is_found_and_named(shop: Workshop) -> None:
    for text in WRONG.values():
        assert_found(shop, together({"alone": text}), only=("PL858",), repaired=True)


def test_shifts_of_frequencies_alone_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
