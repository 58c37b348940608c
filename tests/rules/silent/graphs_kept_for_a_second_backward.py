"""Two losses of one graph need retain_graph on the first; features are made leaves to go back in two parts; an optimizer gets leaves only."""

import torch

torch.manual_seed(0)
body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
offset = (torch.randn(4) * 0.1).requires_grad_()
opt = torch.optim.SGD([*body.parameters(), *head.parameters(), offset], lr=0.1)
x = torch.randn(5, 3)
for step in range(3):
    opt.zero_grad()
    hidden = torch.tanh(body(x)) + offset
    hidden.square().mean().backward(retain_graph=True)
    features = hidden.detach().requires_grad_()
    head(features).mean().backward()
    hidden.backward(features.grad)
    opt.step()
start = torch.tensor(2.0, requires_grad=True)
start.backward()
print(start.grad)
