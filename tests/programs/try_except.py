# Errors of torch that the program catches, also in nested functions, with else and finally.
import torch


def attempt(f):
    try:
        f()
    except RuntimeError as error:
        return f"caught {type(error).__name__}: {str(error).splitlines()[0][:70]}"
    else:
        return "fine"
    finally:
        print("done")


x = torch.ones(2, requires_grad=True)
print(attempt(lambda: x.add_(1)))
print(attempt(lambda: torch.ones(2) + torch.ones(3)))
print(attempt(lambda: x.view(3)))
print(attempt(lambda: (x * 2).sum().backward()))
try:
    torch.ones(2).no_such_method()
except AttributeError as error:
    print(error)
