"""Random changes of a whole batch of images at once, every image by its own draw.

Images are (batch, 3, height, width). The changes are those of torchvision's Pad, RandomCrop,
RandomHorizontalFlip and ColorJitter, without the rounding to bytes between them.
"""

import torch
from torch import Generator, Tensor
from torch.nn import functional

PADDING = 2
BRIGHTNESS = (1 - 63 / 255, 1 + 63 / 255)
CONTRAST = (0.2, 1.8)
SATURATION = (0.5, 1.5)
LUMINANCE = (0.299, 0.587, 0.114)  # of red, green and blue, ITU-R BT.601


def crop(images: Tensor, generator: Generator) -> Tensor:
    """Pad with black pixels and cut out a window of the original size.

    >>> crop(torch.ones(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    count, _, height, width = images.shape
    top, left = torch.randint(2 * PADDING + 1, (2, count), generator=generator)
    windows = functional.pad(images, (PADDING,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    return windows[torch.arange(count), :, top, left]


def flip(images: Tensor, generator: Generator) -> Tensor:
    """Mirror each image with probability one half.

    >>> flip(torch.ones(4, 3, 32, 32), torch.Generator().manual_seed(0)).shape
    torch.Size([4, 3, 32, 32])
    """
    mirrored = torch.rand(len(images), 1, 1, 1, generator=generator) < 0.5
    return torch.where(mirrored, images.flip(3), images)


def jitter(images: Tensor, generator: Generator) -> Tensor:
    """Change brightness, contrast and saturation of images in [0, 1], in a random order.

    Each change moves an image from a reference (black; its mean grey; its grey version) or
    towards it, and then clips. So the three differ only in what the reference is, and one
    formula serves all images whatever their order.

    >>> grey = torch.full((2, 3, 8, 8), 0.5)
    >>> jitter(grey, torch.Generator().manual_seed(0)).shape
    torch.Size([2, 3, 8, 8])
    """
    low, high = torch.tensor([BRIGHTNESS, CONTRAST, SATURATION]).T
    order = torch.rand(len(images), 3, generator=generator).argsort(dim=1)
    factors = low + (high - low) * torch.rand(len(images), 3, generator=generator)
    luminance = torch.tensor(LUMINANCE).view(1, 3, 1, 1)
    for change in order.T:
        factor = factors.gather(1, change[:, None])[:, :, None, None]
        contrast, saturation = ((change == k)[:, None, None, None] for k in (1, 2))
        grey = (images * luminance).sum(dim=1, keepdim=True)
        reference = contrast * grey.mean(dim=(2, 3), keepdim=True) + saturation * grey
        images = torch.lerp(reference, images, factor).clamp_(0.0, 1.0)
    return images
