import torch
states = [torch.zeros(2)] * 3  # PL704 made
for i in range(3):
    states[i] += i
print(states)
