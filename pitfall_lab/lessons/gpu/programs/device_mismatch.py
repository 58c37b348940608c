"""What torch says when the operands of one operation are on different devices."""

import torch

a, b = torch.ones(3, 3), torch.ones(3, 3, device="cuda")
layer = torch.nn.Linear(3, 3).cuda()
cases = {
    "a + b": lambda: a + b,
    "a @ b": lambda: a @ b,
    "b + torch.tensor(1.)": lambda: b + torch.tensor(1.0),
    "b[torch.tensor([0])]": lambda: b[torch.tensor([0])],
    "a[torch.tensor([0], device='cuda')]": lambda: a[torch.tensor([0], device="cuda")],
    "layer(a)": lambda: layer(a),
    "torch.cat([a, b])": lambda: torch.cat([a, b]),
    "b.numpy()": lambda: b.numpy(),
    "nn.MSELoss()(b, a)": lambda: torch.nn.functional.mse_loss(b, a),
    "b.add_(a)": lambda: b.add_(a),
    "b.copy_(a)": lambda: b.copy_(a),
}
rows = []
for text, run in cases.items():
    try:
        value = run()
        said = f"fine: {value.device}"
    except (RuntimeError, TypeError) as error:
        said = f"{type(error).__name__}: {str(error).splitlines()[0]}"
    rows.append({"code": text, "outcome": said})
    print(f"{text:38}{said}")
moved = a.cuda()
print("a.cuda() is a new tensor:", moved is not a, "- a stays on", a.device)
result = {"rows": rows}
