"""The pitfalls of version counters are the same on the device: counters belong to tensors, not to the CPU."""

import torch

rows = []


def outcome(what, run):
    try:
        value = run()
        said = f"no error, gradient {value}"
    except RuntimeError as error:
        said = f"RuntimeError: {str(error).splitlines()[0]}"
    rows.append({"what": what, "outcome": said})
    print(f"{what}\n    {said}")


def saved_output():
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x.exp()
    y.add_(1)
    y.sum().backward()
    return x.grad.tolist()


def through_data():
    x = torch.ones(3, device="cuda", requires_grad=True)
    y = x * x
    x.data.mul_(10)
    y.sum().backward()
    return x.grad.tolist()


def stepped_early(fused):
    w = torch.nn.Parameter(torch.ones(3, device="cuda"))
    optimizer = torch.optim.SGD([w], lr=1.0, fused=fused)
    first, second = (w * w).sum(), (w * w * w).sum()
    first.backward()
    optimizer.step()
    w.grad = None
    second.backward()
    return w.grad.tolist()


outcome("y = x.exp(); y.add_(1); backward", saved_output)
outcome("x.data.mul_(10) before backward (right: 2, 2, 2)", through_data)
outcome("SGD step before the second backward", lambda: stepped_early(False))
outcome("the same with fused=True (right: 3, 3, 3)", lambda: stepped_early(True))
result = {"rows": rows}
