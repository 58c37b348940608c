import torch


@torch.no_grad()
def window(signal, start, length):
    return signal.narrow(0, start, length)  # made


def smooth(signal):
    out = signal.clone()
    for start in range(2):
        window(out, start, 2).mul_(0.5)  # PL203 changed
    return out


x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
loss = smooth(x).square().sum()
loss.backward()
print(x.grad)
