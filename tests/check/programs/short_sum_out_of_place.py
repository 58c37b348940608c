import torch
total = torch.tensor(1.0, dtype=torch.bfloat16)
for i in range(20):
    total = total + 0.001  # PL803 changed
print(total)
