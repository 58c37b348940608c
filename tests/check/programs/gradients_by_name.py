import torch
torch.manual_seed(0)
model = torch.nn.Linear(2, 1)
x = torch.randn(6, 2)
saved = {}
for name, part in zip("ab", x.split(3)):
    model(part).square().mean().backward()
    for key, p in model.named_parameters():
        saved[name + key] = p.grad  # PL605 kept
print((saved["aweight"] - saved["bweight"]).abs().sum())
