"""PL852: spectra over time that are turned back with another window; and those that come back as they were."""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

WAVE = """
wave = torch.sin(torch.arange(800) * 0.2) + 0.1 * torch.randn(800)
window = torch.hann_window(64)
"""

WRONG = {
    "a gate in a function, with the length of a frame in names": WAVE
    + """
size, hop = 64, 16
def gate(x):
    spec = torch.stft(x, size, hop_length=hop, window=window, return_complex=True)
    kept = spec * (spec.abs() > spec.abs().median())
    return torch.istft(kept, size, hop_length=hop, length=x.numel())  # PL852
print((gate(wave) - wave).square().mean())
""",
    "a mask of a network, by methods": WAVE
    + """
net = nn.Linear(33, 33)
spec = torch.stack([wave, wave.flip(0)]).stft(64, 16, window=torch.hamming_window(64), return_complex=True)
mask = torch.sigmoid(net(spec.abs().transpose(1, 2))).transpose(1, 2)
again = (spec * mask).istft(64, 16, window=window, length=800)  # PL852
F.l1_loss(again, torch.stack([wave, wave])).backward()
""",
    "size and phase apart": WAVE
    + """
spec = torch.stft(wave, 64, 16, 64, window, return_complex=True)
loud, phase = spec.abs().pow(0.5), spec.angle()
print(torch.istft(torch.polar(loud, phase), 64, 16, 64).abs().max())  # PL852
""",
    "a window on the way back alone": WAVE
    + """
spec = torch.stft(wave, 64, 16, return_complex=True)
print(torch.istft(spec * 0.5, 64, 16, window=torch.hamming_window(64)).abs().max())  # PL852
""",
    "a layer that keeps its window": WAVE
    + """
class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(64).sqrt())
    def there(self, x):
        return torch.view_as_real(torch.stft(x, 64, 32, window=self.window, return_complex=True))
    def back(self, s):
        return torch.istft(torch.view_as_complex(s.contiguous()), 64, 32)  # PL852
codec = Codec()
print(codec.back(codec.there(wave) * 0.9).std(), wave.std())
""",
}

RIGHT = {
    "one window, and a copy of it": WAVE
    + """
spec = torch.stft(wave, 64, 16, window=window, return_complex=True)
print(torch.istft(spec, 64, 16, window=window).std())
print(torch.istft(spec * 2, 64, 16, window=torch.hann_window(64)).std())
print(torch.istft(spec, 64, 16, window=window.clone().double().float()).std())
""",
    "none, or one of ones": WAVE
    + """
spec = torch.stft(wave, 64, 16, return_complex=True)
print(torch.istft(spec, 64, 16).std(), torch.istft(spec, 64, 16, window=torch.ones(64)).std())
""",
    "a phase that is looked for": WAVE
    + """
loud = torch.stft(wave, 64, 16, window=window, return_complex=True).abs()
phase = torch.rand_like(loud) * 6.28
for _ in range(3):
    guess = torch.istft(torch.polar(loud, phase), 64, 16, window=window, length=800)
    phase = torch.stft(guess, 64, 16, window=window, return_complex=True).angle()
print(guess.std())
""",
    "a loss over several resolutions, and a spectrum that a network makes": WAVE
    + """
head = nn.Linear(8, 34)
feature = torch.stft(wave, 64, 16, window=window, return_complex=True).abs().mean(0)[:8]
out = head(torch.stack([feature] * 12)).T.reshape(2, 17, 12)
made = torch.istft(torch.complex(out[0], out[1]), 32, 8, window=torch.hann_window(32))
sum(made.stft(n, n // 4, window=torch.hann_window(n), return_complex=True).abs().mean() for n in (16, 32)).backward()
""",
    "drawn spectra": """
made = torch.istft(torch.randn(17, 12, dtype=torch.complex64), 32, 8)
print(torch.stft(made, 32, 8, window=torch.hann_window(32), return_complex=True).abs().mean())
""",
}


def test_another_window_on_the_way_back_is_found_and_replaced(shop: Workshop) -> None:
    for text in WRONG.values():
        assert_found(shop, together({"alone": text}), only=("PL852",), repaired=True)


def test_waves_that_come_back_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
