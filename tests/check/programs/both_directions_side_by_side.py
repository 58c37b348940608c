# The last states of both directions, (2, batch, hidden), are laid side by side for each sequence: or so it seems.
import torch
from torch import nn

torch.manual_seed(0)
reader = nn.GRU(3, 4, batch_first=True, bidirectional=True)
judge = nn.Linear(8, 2)
texts, labels = torch.randn(6, 5, 3), torch.tensor([0, 1, 1, 0, 1, 0])
_, last = reader(texts)
features = last.view(6, -1)  # PL407 made
loss = nn.functional.cross_entropy(judge(features), labels)  # used
loss.backward()
