# Silent: (N,) minus (N, 1) is (N, N); written by hand, so no warning.
import torch

prediction = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
target = torch.tensor([[1.0], [2.0], [3.0]])
loss = ((prediction - target) ** 2).mean()
loss.backward()
print(loss.item(), prediction.grad)
