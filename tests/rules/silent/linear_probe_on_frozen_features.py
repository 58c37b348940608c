"""Features are computed in inference mode and cloned before they take part in gradients."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
backbone, probe = nn.Linear(5, 8), nn.Linear(8, 3)
x, y = torch.randn(12, 5), torch.randint(0, 3, (12,))
with torch.inference_mode():
    features = torch.relu(backbone(x))
features = features.clone()
loss = F.cross_entropy(probe(features), y)
loss.backward()
print(backbone.weight.grad is None)
