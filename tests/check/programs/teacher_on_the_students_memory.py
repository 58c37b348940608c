import torch

torch.manual_seed(0)
student, teacher = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
for s, t in zip(student.parameters(), teacher.parameters(), strict=True):
    t.data = s.data  # PL710 alias
opt = torch.optim.SGD(student.parameters(), lr=0.1)
for _ in range(3):
    loss = (student(torch.ones(2)) - 1).square().sum()
    opt.zero_grad()
    loss.backward()
    opt.step()  # changed
    with torch.no_grad():
        for s, t in zip(student.parameters(), teacher.parameters(), strict=True):
            t.mul_(0.9).add_(s, alpha=0.1)  # copied
print(teacher(torch.ones(2)).item())
