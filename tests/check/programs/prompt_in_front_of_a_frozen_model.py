import torch

torch.manual_seed(0)
model, head = torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)
model.requires_grad_(False)
prompt = torch.nn.Parameter(torch.zeros(1, 2))
opt = torch.optim.SGD([prompt, *head.parameters()], lr=0.1)
x = torch.randn(3, 2)
for _ in range(2):
    with torch.no_grad():
        hidden = model(torch.cat([prompt.expand(3, 2), x]))  # PL504 cut
    loss = head(hidden).square().mean()
    opt.zero_grad()
    loss.backward()  # backward
    opt.step()  # step
print(loss.item())
