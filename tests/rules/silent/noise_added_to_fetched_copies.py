"""Noise for one time: on a copy of an element, on the batch; chains that go on where they were; a data set that counts what was taken."""
import torch
from torch.utils.data import DataLoader, Dataset


class Noisy(Dataset):
    def __init__(self, rows):
        self.rows, self.taken = rows, torch.zeros(len(rows), 2)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        self.taken[place] += 1
        row = self.rows[place].clone()
        row += 0.1 * torch.randn(row.shape)
        return row, place % 2


torch.manual_seed(0)
data = Noisy(torch.randn(6, 3))
chains = torch.randn(4, 3)
net = torch.nn.Linear(3, 2)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(2):
    for rows, labels in DataLoader(data, batch_size=3):
        rows += 0.1 * torch.randn(rows.shape)
        chains += 0.1 * torch.randn(chains.shape)
        loss = torch.nn.functional.cross_entropy(net(rows), labels) + net(chains).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
print(data.taken.sum().item())
