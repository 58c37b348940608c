# A UserWarning: mse_loss with (N, 1) against (N,).
import torch

prediction = torch.tensor([[1.0], [2.0], [3.0]], requires_grad=True)
target = torch.tensor([1.0, 2.0, 3.0])
loss = torch.nn.functional.mse_loss(prediction, target)
loss.backward()
print(round(loss.item(), 4), prediction.grad.flatten())
