import torch
def masks(lengths, width):
    base = torch.ones(1, width)
    mask = base.expand(len(lengths), width)
    for i, n in enumerate(lengths):
        mask[i, n:].zero_()  # PL404 changed
    return mask
scores = torch.randn(3, 4, requires_grad=True)
m = masks([1, 2, 3], 4)
loss = (scores * m).sum()
loss.backward()
print(m)
