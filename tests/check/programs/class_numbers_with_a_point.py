import torch
logits = torch.zeros(2, 3, requires_grad=True)
t = torch.tensor([0.0, 1.0])
loss = torch.nn.functional.cross_entropy(logits, t)  # PL805 used
loss.backward()
