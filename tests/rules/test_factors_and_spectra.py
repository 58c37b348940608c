"""Noise that is multiplied with a Cholesky factor the wrong way round, squares of complex spectra, and convolutions
that wrap round: in other forms, and right programs that resemble them.
"""

from __future__ import annotations

from pitfall_lab.check import Workshop
from tests.rules.build import assert_found, assert_quiet
from tests.rules.test_signals import together

COV = """
cov = torch.tensor([[1.0, 0.6, 0.1], [0.6, 4.0, 0.2], [0.1, 0.2, 2.0]])
root = torch.linalg.cholesky(cov)
"""
TONES = """
t = torch.arange(64) / 64
signal = torch.sin(2 * torch.pi * 5 * t) + 0.1 * torch.randn(64)
spec = torch.fft.rfft(signal)
"""
ECHO = """
from torch.fft import fft, ifft, irfft, rfft
torch.manual_seed(3)
signal, echo = torch.randn(40), torch.exp(-torch.arange(8.0) / 3)
"""
WRONG = {
    "rows of noise": COV + """
draws = torch.randn(50, 3) @ root  # PL839
print(draws.T.cov())
""",
    "columns of noise, with the factor transposed": COV + """
z = torch.randn(3, 50)
draws = root.T @ z + torch.ones(3, 1)  # PL839
print(draws.mean(1))
""",
    "an upper factor": COV + """
def draw(count, factor):
    return torch.matmul(torch.randn(count, 3), factor.transpose(-1, -2))  # PL839
upper = torch.linalg.cholesky(cov, upper=True)
print(draw(40, upper).cov())
""",
    "by einsum": COV + """
z = torch.randn(20, 3)
print(torch.einsum("nj,ji->ni", z, root).std(0))  # PL839
""",
    "paths of a process, in a method": """
class Process:
    def __init__(self, times):
        gap = (times[:, None] - times).square()
        self.root = torch.linalg.cholesky(torch.exp(-gap) + 1e-3 * torch.eye(len(times)))
    def paths(self, count):
        z = torch.empty(count, self.root.shape[0]).normal_()
        return z.mm(self.root)  # PL839
print(Process(torch.linspace(0, 3, 10)).paths(5)[:, -1])
""",
    "scaled, with numbers of a distribution": COV + """
z = Normal(0.0, 1.0).sample((30, 3))
shocks = z @ (0.1 * root)  # PL839
print(shocks.cumsum(0)[-1])
""",
    "a batch of factors": COV + """
roots = torch.linalg.cholesky(torch.stack([cov, 2 * cov]))
z = torch.randn(2, 7, 3)
print(torch.bmm(z, roots).std(1))  # PL839
""",
    "a power of two": TONES + """
power = (spec ** 2).real  # PL841
print(power.argmax())
""",
    "a product with itself": TONES + """
def power(z):
    square = z * z  # PL841
    return square.real / len(signal)
print(power(spec).max())
""",
    "by square, added up": TONES + """
print(torch.real(spec.square().sum()))  # PL841
""",
    "of a short-time transform, scaled": TONES + """
parts = torch.stft(signal, 16, window=torch.hann_window(16), return_complex=True) / 16
class Level:
    def __call__(self, z):
        return (2 * z.pow(2)).mean(-1).real  # PL841
print(Level()(parts))
""",
    "a filtered spectrum of a picture": """
picture = torch.randn(8, 8)
spec = torch.fft.fftshift(torch.fft.fft2(picture)) * torch.exp(-torch.arange(8) / 4.0)
print(torch.pow(spec, 2).real.sum(0))  # PL841
""",
    "in a loop over frames": """
levels = []
for frame in torch.randn(3, 32):
    z = torch.fft.fft(frame)[:16]
    levels.append((z * z).real.sum())  # PL841
print(torch.stack(levels))
""",
    "as long as the signal": ECHO + """
n = signal.numel()
wet = irfft(rfft(signal) * rfft(echo, n), n)  # PL843
print(wet.abs().max())
""",
    "by complex transforms": ECHO + """
def convolve(a, b, size):
    product = fft(a, n=size) * fft(b, n=size)
    return ifft(product, n=size).real  # PL843
print(convolve(echo, signal, len(signal)).mean())
""",
    "a little too short": ECHO + """
size = len(signal) + 4
spec = rfft(echo, n=size)
print(irfft(torch.mul(rfft(signal, n=size), spec), n=size)[:40])  # PL843
""",
    "rows of a batch": ECHO + """
rows = torch.randn(3, 16)
class Reverb(nn.Module):
    def __init__(self):
        super().__init__()
        self.ir = nn.Parameter(echo)
    def forward(self, x):
        n = x.shape[-1]
        return irfft(rfft(x, n) * rfft(self.ir, n), n)  # PL843
print(Reverb()(rows).square().mean())
""",
    "in the range of numbers": ECHO + """
counts, shifts = torch.arange(1.0, 21.0), torch.tensor([0.5, 0.5, 0.25])
total = torch.fft.irfft(torch.fft.rfft(counts, 20) * torch.fft.rfft(shifts, 20), 20)  # PL843
print(total.sum())
""",
    "several echoes": ECHO + """
echoes = torch.stack([echo, echo.flip(0)])
for each in echoes:
    size = 40
    print(irfft(rfft(signal, size) * rfft(each, size), size).abs().sum())  # PL843
""",
}  # fmt: skip
RIGHT = {
    "long enough": ECHO + """
n = len(signal) + len(echo) - 1
print(irfft(rfft(signal, n) * rfft(echo, n), n), irfft(rfft(signal, 64) * rfft(echo, 64), 64)[:n])
""",
    "a signal that ends in zeros": ECHO + """
padded = F.pad(signal, (0, 7))
n = len(padded)
print(irfft(rfft(padded, n) * rfft(echo, n), n))
""",
    "the part that is not touched": ECHO + """
n = len(signal)
wet = irfft(rfft(signal, n) * rfft(echo, n), n)[len(echo) - 1 :]
print(wet.mean())
""",
    "two periodic signals of one length": ECHO + """
one, other = torch.randn(16), torch.randn(16)
bound = irfft(rfft(one) * rfft(other), 16)
print(bound, irfft(rfft(bound) * rfft(other).conj(), 16))
""",
    "a correlation": ECHO + """
n = len(signal)
print(irfft(rfft(signal, n) * rfft(echo, n).conj(), n)[: n - 7].argmax())
""",
    "a filter in frequencies": ECHO + """
print(irfft(rfft(signal) * torch.exp(-torch.arange(21) / 5.0), 40))
""",
    "a kernel on a circle": ECHO + """
circle = torch.zeros(40)
circle[:8] = echo
print(irfft(rfft(signal) * rfft(circle.roll(-4)), 40))
""",
    "rows of noise and the transposed factor": COV + """
print((torch.randn(50, 3) @ root.T).T.cov(), (root @ torch.randn(3, 50)).cov())
""",
    "an upper factor, not transposed": COV + """
upper = torch.linalg.cholesky(cov, upper=True)
print((torch.randn(50, 3) @ upper).T.cov(), (upper.mT @ torch.randn(3, 50)).cov())
""",
    "by linear and by einsum": COV + """
z = torch.randn(20, 3)
print(F.linear(z, root).std(0), torch.einsum("ij,nj->ni", root, z).std(0))
""",
    "a distance under a matrix": COV + """
x = torch.randn(20, 3)
print((x @ root).square().sum(-1), (x @ root).norm(dim=1))
""",
    "data that is no noise": COV + """
x = torch.randn(20, 3).cumsum(0)
print((x @ root).mean())
""",
    "a diagonal factor": """
root = torch.linalg.cholesky(torch.diag(torch.tensor([1.0, 4.0, 9.0])))
print((torch.randn(20, 3) @ root).std(0))
""",
    "a distribution's own factor": COV + """
print(MultivariateNormal(torch.zeros(3), scale_tril=root).sample((20,)).T.cov())
""",
    "a batch of columns": COV + """
roots = torch.linalg.cholesky(torch.stack([cov, 2 * cov]))
print((roots @ torch.randn(2, 3, 1)).squeeze(-1), torch.bmm(torch.randn(2, 7, 3), roots.mT).std(1))
""",
    "magnitudes": TONES + """
print((spec.abs() ** 2).argmax(), (spec * spec.conj()).real.sum(), spec.real ** 2 + spec.imag ** 2)
""",
    "the magnitude of the square": TONES + """
print((spec ** 2).abs().sum(), (spec * spec).abs().max())
""",
    "a signal convolved with itself": TONES + """
twice = torch.fft.rfft(signal, 128)
print(torch.fft.irfft(twice * twice, 128)[:127], torch.fft.ifft(torch.fft.fft(signal, 128) ** 2).real.sum())
""",
    "the square of real numbers": TONES + """
print((torch.fft.irfft(spec) ** 2).real.mean(), signal.square().real.sum())
""",
    "twice the angle": """
angles = torch.rand(20) * 6.28
z = torch.polar(torch.ones(20), angles)
print((z ** 2).real.mean(), (z * z).mean().abs())
""",
    "both parts of the square": TONES + """
square = spec ** 2
print(square.real[:3], square.imag[:3], torch.angle(square)[:3])
""",
}  # fmt: skip


def test_they_are_found_however_they_are_written(shop: Workshop) -> None:
    assert_found(shop, together(WRONG))


def test_right_programs_that_resemble_them_draw_nothing(shop: Workshop) -> None:
    assert_quiet(shop, together(RIGHT))
