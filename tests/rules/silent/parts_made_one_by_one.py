import torch

x = torch.arange(8.0).reshape(4, 2).requires_grad_()
h = x * 2
for i in range(len(h)):
    h[i] *= i + 1
left, right = h[:, 0], h[:, 1]
left += 1
loss = (left * right).sum()
loss.backward()
print(x.grad)

images = torch.arange(8.0).reshape(2, 4)
for image in images:  # nothing is recorded for data: each part may be changed
    image -= image.mean()
first, second = images.chunk(2)
first *= 2
with torch.no_grad():
    top, bottom = (x * 3).chunk(2)
    top += bottom
print(images, top)
