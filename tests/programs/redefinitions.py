# Programs that play with names: builtins shadowed, torch aliased, stdout replaced, exec and lambda.
import contextlib
import io

import torch as th
from torch import nn, tensor

print_ = print
caught = io.StringIO()
with contextlib.redirect_stdout(caught):
    print(tensor([1.0]))
id = list = type = 5
exec("made = th.ones(2) * 3")
print_(caught.getvalue().strip(), made, id + list + type, (lambda t: t + 1)(made), nn.Identity()(made) is made)
