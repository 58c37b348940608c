import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(5, 3)
with torch.no_grad():
    padding = embedding.weight[0]
    padding.zero_()
    print(padding.sum())
with torch.no_grad():
    rest = embedding.weight[1:]
print(rest.norm())  # read only
opt = torch.optim.SGD(embedding.parameters(), lr=0.1)
for _ in range(2):
    opt.zero_grad()
    vectors = embedding(torch.tensor([0, 1, 2]))
    with torch.no_grad():
        head = vectors.detach().clone()[:1]
    head += 1
    loss = (vectors * head).sum()
    loss.backward()
    opt.step()
    with torch.no_grad():
        embedding.weight[0] = 0
