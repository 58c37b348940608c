# An error in backward: sigmoid saved its result, relu_ wrote into it.
import torch

x = torch.tensor([-1.0, 0.5, 2.0], requires_grad=True)
h = torch.sigmoid(x)
h.relu_()
loss = h.sum()
loss.backward()
