# A taper for each frame of a signal; the frames overlap, and so each sample is multiplied several times.
import torch

signal = torch.sin(torch.arange(12.0))
taper = torch.hann_window(6)
frames = signal.unfold(0, 6, 3)  # made
frames.mul_(taper)  # PL405 changed
spectrum = torch.fft.rfft(frames)
print(spectrum.abs().sum(), signal)
