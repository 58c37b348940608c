import torch
w = torch.ones(3, requires_grad=True)
frames = torch.arange(8.0).unfold(0, 4, 2)
for frame in frames:
    frame -= frame.mean()  # PL405 changed
loss = (frames[:, :3] @ w).sum()
loss.backward()
