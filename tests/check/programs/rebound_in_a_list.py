import torch
x = torch.tensor([1.0, 2.0, 3.0])
params = [torch.tensor(0.5, requires_grad=True), torch.tensor(0.1, requires_grad=True)]
def train(params, lr):
    for step in range(3):
        w, b = params
        loss = ((w * x + b - 2 * x) ** 2).mean()
        loss.backward()
        for i in range(len(params)):
            params[i] = params[i] - lr * params[i].grad  # PL205 made
            params[i].grad.zero_()
train(params, 0.1)
