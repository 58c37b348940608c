import torch
a = torch.zeros(2, 3, requires_grad=True)
i = torch.tensor([0.0, 1.0])
loss = a[i].sum()  # PL805 used
loss.backward()
