# A hard decision where a soft one would learn.
import torch
import torch.nn.functional as F

torch.manual_seed(1)
layer = torch.nn.Linear(2, 1)
points = torch.randn(6, 2)
truth = (points[:, :1] > 0).float()
decision = (layer(points) > 0).float()  # PL504 cut
F.binary_cross_entropy(decision, truth).backward()  # backward
