# weights[0] = ... writes a view of what softmax saved.
import torch

torch.manual_seed(0)
scores = torch.randn(4, requires_grad=True)
values = torch.tensor([1.0, 2.0, 3.0, 4.0])
weights = torch.softmax(scores, dim=0)  # saved
weights[0] = 0.0  # PL101 changed
out = (weights * values).sum()
out.backward()  # backward
