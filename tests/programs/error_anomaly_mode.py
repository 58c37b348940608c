# An error in backward under anomaly mode: another hint in the message, and a warning with the forward traceback.
import torch

torch.autograd.set_detect_anomaly(True)
try:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y += 1
    y.sum().backward()
except RuntimeError as error:
    print(str(error)[:90])
finally:
    torch.autograd.set_detect_anomaly(False)
