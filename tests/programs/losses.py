# mse_loss and cross_entropy, functional and as modules.
import torch
import torch.nn.functional as F

logits = torch.tensor([[2.0, 0.5, -1.0], [0.0, 1.0, 0.0]], requires_grad=True)
target = torch.tensor([0, 2])
loss = F.cross_entropy(logits, target) + torch.nn.CrossEntropyLoss(reduction="sum")(logits, target)
loss.backward()
print(round(loss.item(), 5), logits.grad)
p = torch.tensor([0.1, 0.9], requires_grad=True)
q = torch.tensor([0.0, 1.0])
(F.mse_loss(p, q) + torch.nn.MSELoss(reduction="sum")(p, q)).backward()
print(p.grad)
