import torch

torch.manual_seed(0)
logits = torch.randn(8, 1)
labels = torch.randint(0, 2, (8,))  # operand
predicted = (torch.sigmoid(logits) > 0.5).long()  # operand
accuracy = (predicted == labels).float().mean()  # PL401
print(accuracy.item())
