import torch

torch.manual_seed(0)
logits = torch.randn(10, 4)
labels = torch.randint(0, 4, (10,))
top2 = logits.topk(2, dim=1).indices
hits = (top2 == labels.unsqueeze(1)).any(dim=1).float().mean()
confusion = torch.zeros(4, 4, dtype=torch.long)
confusion.index_put_((labels, logits.argmax(1)), torch.ones(10, dtype=torch.long), accumulate=True)
same_class = labels.unsqueeze(0) == labels.unsqueeze(1)
same_class.fill_diagonal_(False)
onehot = (labels[:, None] == torch.arange(4)).float()
columns = labels.view(-1, 1)
pairs = (columns == labels).sum(1)
print(hits.item(), confusion.diag().sum().item(), same_class.sum().item(), onehot.sum().item(), pairs)
