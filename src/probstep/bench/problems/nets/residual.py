"""Residual networks for images of 32x32: wide ones before, plain ones after activation."""

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from .layers import halving_conv, initialise

DEEPOBS_MOMENTUM = 0.9  # of BatchNorm: new = 0.1 old + 0.9 batch (docs/problems.md)


def _conv3x3(inputs: int, outputs: int, stride: int) -> nn.Module:
    """A 3x3 convolution with "same" padding and no bias."""
    if stride == 2:
        return halving_conv(inputs, outputs, bias=False)
    return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)


class WideBlock(nn.Module):
    """BatchNorm, ReLU and convolution, twice, beside a shortcut.

    A block that changes the width has a 1x1 convolution as its shortcut, taken after the first
    ReLU; in the others the input itself passes.
    """

    def __init__(self, inputs: int, outputs: int, stride: int, momentum: float) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs, momentum=momentum)
        self.conv1 = _conv3x3(inputs, outputs, stride)
        self.norm2 = nn.BatchNorm2d(outputs, momentum=momentum)
        self.conv2 = _conv3x3(outputs, outputs, 1)
        is_wider = inputs != outputs
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if is_wider else None

    def forward(self, x: Tensor) -> Tensor:
        """Features of the new width."""
        active = functional.relu(self.norm1(x))
        passed = x if self.shortcut is None else self.shortcut(active)
        inner = functional.relu(self.norm2(self.conv1(active)))
        return torch.add(self.conv2(inner), passed)


def make_wide_resnet(
    outputs: int, *, blocks: int = 2, widening: float = 4, momentum: float = DEEPOBS_MOMENTUM
) -> nn.Module:
    """DeepOBS's wide residual network of three groups of blocks; by default WRN-16-4.

    A widening below 1 makes a narrow one, for a machine without a GPU.

    Reference: Zagoruyko and Komodakis, 2016, arXiv:1605.07146.

    >>> sum(p.numel() for p in make_wide_resnet(10).parameters())
    2748890
    """
    widths = [16, *(int(width * widening) for width in (16, 32, 64))]
    groups: list[nn.Module] = []
    for (before, width), stride in zip(pairwise(widths), (1, 2, 2), strict=True):
        groups.append(WideBlock(before, width, stride, momentum))
        groups += [WideBlock(width, width, 1, momentum) for _ in range(blocks - 1)]
    net = nn.Sequential(
        *(_conv3x3(3, 16, 1), *groups),
        *(nn.BatchNorm2d(widths[-1], momentum=momentum), nn.ReLU()),
        *(nn.AvgPool2d(8), nn.Flatten(), nn.Linear(widths[-1], outputs)),
    )
    draw = nn.init.xavier_uniform_
    return initialise(net, {nn.Conv2d: draw, nn.Linear: draw})


class BasicBlock(nn.Module):
    """Convolution and BatchNorm, twice, beside a shortcut; a ReLU after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            *(nn.BatchNorm2d(outputs), nn.ReLU()),
            *(nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs)),
        )
        widen = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        is_wider = inputs != outputs
        self.shortcut = nn.Sequential(widen, nn.BatchNorm2d(outputs)) if is_wider else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Features of the new width."""
        return functional.relu(torch.add(self.inner(x), self.shortcut(x)))


def make_resnet18(outputs: int = 100, *, width: int = 64) -> nn.Module:
    """ResNet-18 with a stem for small images: a 3x3 convolution of stride 1 and no pooling.

    Widths, blocks and initialisation are those of the PyTorch model zoo's ResNet-18, whose stem
    (7x7, stride 2, pooling) would leave a single pixel of an image of 32x32. With a smaller
    `width` it is another, narrower network, for a machine without a GPU.

    Reference: He et al., 2016, arXiv:1512.03385.

    >>> sum(p.numel() for p in make_resnet18().parameters())
    11220132
    """
    widths = (width, width, 2 * width, 4 * width, 8 * width)
    groups = [
        nn.Sequential(BasicBlock(before, width, stride), BasicBlock(width, width, 1))
        for (before, width), stride in zip(pairwise(widths), (1, 2, 2, 2), strict=True)
    ]
    stem = (nn.Conv2d(3, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
    net = nn.Sequential(
        *(*stem, *groups), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], outputs)
    )
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return net
