# Strings that look like markup: nothing of it may reach a page as markup.
import torch

note = "<script>alert('x')</script> `backtick` & \"quotes\" </textarea><img src=x onerror=alert(1)>"
x = torch.ones(1, requires_grad=True)
table = {"<b>bold</b>": x * 2, "${x}": x + 1}
table["<b>bold</b>"].add_(1)
print(note, sorted(table), table["${x}"].item())
raise ValueError("<svg onload=alert(2)> `code` & <b>bold</b>")
