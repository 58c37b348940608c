# A default device and a parameter dictionary, saved and loaded.
import io

import torch

with torch.device("meta"):
    m = torch.nn.Linear(2, 2)
print(m.weight.device)
net = torch.nn.Linear(2, 1)
file = io.BytesIO()
torch.save(net.state_dict(), file)
file.seek(0)
other = torch.nn.Linear(2, 1)
print(other.load_state_dict(torch.load(file)), torch.equal(net.weight, other.weight), other.weight._version > 0)
