# Values leave the graph on purpose: a rounded code with a straight-through gradient, a bootstrapped target, a scale read as a number.
import torch
from torch import nn

torch.manual_seed(0)
encoder, decoder, target_net = nn.Linear(3, 2), nn.Linear(2, 3), nn.Linear(3, 3)
optimizer = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
for _ in range(3):
    x = torch.randn(4, 3)
    z = encoder(x)
    code = z + (z.round() - z).detach()
    with torch.no_grad():
        target = target_net(x)
        best = target.argmax(dim=1)
    scale = z.norm().item()
    loss = (decoder(code) - target).pow(2).mean() / scale
    loss = loss + nn.functional.cross_entropy(decoder(code), torch.tensor(best.tolist()))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print((decoder(code).argmax(dim=1) == best).float().mean().item())
