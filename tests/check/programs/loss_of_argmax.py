import torch
torch.manual_seed(0)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
x, y = torch.randn(6, 3), torch.randint(2, (6,))
def error_rate(logits):
    wrong = (logits.argmax(1) != y).float().mean()
    return wrong.requires_grad_()  # PL505 leaf
for step in range(2):
    opt.zero_grad()
    loss = error_rate(net(x))
    loss.backward()
    opt.step()
