"""Convolutional networks without skip connections."""

from torch import nn

from .layers import halving_conv, halving_pool, initialise, truncated_normal


def make_2c2d() -> nn.Module:
    """DeepOBS's two convolutional and two dense layers for (Fashion-)MNIST.

    >>> sum(p.numel() for p in make_2c2d().parameters())
    3274634
    """
    net = nn.Sequential(
        *(nn.Conv2d(1, 32, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(32, 64, 5, padding="same"), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(7 * 7 * 64, 1024), nn.ReLU(), nn.Linear(1024, 10)),
    )
    draw = truncated_normal(0.05)
    return initialise(net, {nn.Conv2d: draw, nn.Linear: draw}, bias=0.05)


def make_3c3d(outputs: int = 10) -> nn.Module:
    """DeepOBS's three convolutional and three dense layers for images of 32x32.

    >>> sum(p.numel() for p in make_3c3d().parameters())
    895210
    """
    net = nn.Sequential(
        *(nn.Conv2d(3, 64, 5), nn.ReLU(), halving_pool()),
        *(nn.Conv2d(64, 96, 3), nn.ReLU(), halving_pool()),
        *(nn.Conv2d(96, 128, 3, padding="same"), nn.ReLU(), halving_pool()),
        *(nn.Flatten(), nn.Linear(3 * 3 * 128, 512), nn.ReLU()),
        *(nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, outputs)),
    )
    return initialise(net, {nn.Conv2d: nn.init.xavier_normal_, nn.Linear: nn.init.xavier_uniform_})


def make_allcnnc(outputs: int = 100) -> nn.Module:
    """DeepOBS's All-CNN-C for images of 32x32.

    Reference: Springenberg et al., 2015, arXiv:1412.6806.

    >>> sum(p.numel() for p in make_allcnnc().parameters())
    1387108
    """
    net = nn.Sequential(
        nn.Dropout(0.2),
        *(nn.Conv2d(3, 96, 3, padding="same"), nn.ReLU()),
        *(nn.Conv2d(96, 96, 3, padding="same"), nn.ReLU()),
        *(halving_conv(96, 96), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Conv2d(96, 192, 3, padding="same"), nn.ReLU()),
        *(nn.Conv2d(192, 192, 3, padding="same"), nn.ReLU()),
        *(halving_conv(192, 192), nn.ReLU(), nn.Dropout(0.5)),
        *(nn.Conv2d(192, 192, 3), nn.ReLU()),
        *(nn.Conv2d(192, 192, 1), nn.ReLU()),
        *(nn.Conv2d(192, outputs, 1), nn.ReLU()),
        *(nn.AvgPool2d(6), nn.Flatten()),
    )
    return initialise(net, {nn.Conv2d: nn.init.xavier_normal_}, bias=0.1)


def make_digits_conv(*, batch_norm: bool = False) -> nn.Module:
    """A small network for images of 8x8, if wished with BatchNorm after each convolution.

    >>> sum(p.numel() for p in make_digits_conv().parameters())
    6090
    """
    norms = (nn.BatchNorm2d(16), nn.BatchNorm2d(32)) if batch_norm else (nn.Identity(),) * 2
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding="same"), norms[0], nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding="same"), norms[1], nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(2 * 2 * 32, 10)),
    )
