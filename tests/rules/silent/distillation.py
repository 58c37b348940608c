"""A teacher without gradients, a student with them."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
teacher, student = nn.Linear(4, 3), nn.Linear(4, 3)
optimizer = torch.optim.Adam(student.parameters(), lr=0.01)
for _ in range(2):
    x = torch.randn(6, 4)
    with torch.no_grad():
        goal = torch.softmax(teacher(x) / 2, dim=1)
    loss = F.kl_div(torch.log_softmax(student(x) / 2, dim=1), goal, reduction="batchmean")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(teacher.weight.grad is None)
