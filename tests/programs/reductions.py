# sum, mean, max, min, argmax, prod, std over everything and along a dimension.
import torch

x = torch.tensor([[1.0, 5.0, 2.0], [4.0, 3.0, 6.0]], requires_grad=True)
total = x.sum() + x.mean() + x.max() + x.sum(0).sum() + x.mean(1).sum() + x.sum(dim=1, keepdim=True).mean()
values, indices = x.max(1)
print(values.tolist(), indices.tolist(), x.argmax().item(), x.argmax(0).tolist(), x.min().item(), x.prod().item())
(total + values.sum()).backward()
print(x.grad, round(x.std().item(), 4), x.amax(0).tolist())
