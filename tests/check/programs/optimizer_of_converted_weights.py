import torch
torch.manual_seed(0)
def build(n):
    weights = torch.randn(n, 2, dtype=torch.float64, requires_grad=True).float()  # made
    bias = torch.zeros(2, requires_grad=True)
    return weights, bias
params = build(3)
opt = torch.optim.Adam(params, lr=0.1)  # PL206
x = torch.randn(4, 3)
for step in range(2):
    loss = (x @ params[0] + params[1]).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
