"""An image with its channels moved is made contiguous; the border painted there is lost."""

import torch


def paint_border(image):
    pixels = image.permute(1, 2, 0).contiguous()  # copied
    pixels[0] = 1.0  # PL706 changed
    pixels[-1] = 1.0
    return image


image = torch.zeros(3, 2, 2)
image = paint_border(image)
print(image.sum())
