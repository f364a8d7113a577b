"""DeepOBS's variational autoencoder for (Fashion-)MNIST."""

import torch
from torch import Tensor, nn

from .layers import initialise

LATENT = 8
SLOPE = 0.3


def _pad_same() -> nn.Module:
    """TensorFlow's "same" padding for a kernel of 4 and stride 1: the odd pixel comes last."""
    return nn.ZeroPad2d((1, 2, 1, 2))


def _make_encoder() -> nn.Module:
    """Three convolutions of 64 filters: from 28x28 to 7x7."""
    return nn.Sequential(
        *(nn.Conv2d(1, 64, 4, stride=2, padding=1), nn.LeakyReLU(SLOPE), nn.Dropout(0.2)),
        *(nn.Conv2d(64, 64, 4, stride=2, padding=1), nn.LeakyReLU(SLOPE), nn.Dropout(0.2)),
        *(_pad_same(), nn.Conv2d(64, 64, 4), nn.LeakyReLU(SLOPE), nn.Dropout(0.2)),
        nn.Flatten(),
    )


def _make_decoder() -> nn.Module:
    """Two dense layers, three transposed convolutions, one dense layer: from the code to 28x28.

    padding=3 removes what a transposed convolution adds by itself; the padding before it counts.
    """
    return nn.Sequential(
        *(nn.Linear(LATENT, 24), nn.LeakyReLU(SLOPE), nn.Linear(24, 49), nn.LeakyReLU(SLOPE)),
        nn.Unflatten(1, (1, 7, 7)),
        *(nn.ZeroPad2d(1), nn.ConvTranspose2d(1, 64, 4, stride=2, padding=3)),
        *(nn.ReLU(), nn.Dropout(0.2), _pad_same(), nn.ConvTranspose2d(64, 64, 4, padding=3)),
        *(nn.ReLU(), nn.Dropout(0.2), _pad_same(), nn.ConvTranspose2d(64, 64, 4, padding=3)),
        *(nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(14 * 14 * 64, 784), nn.Sigmoid()),
    )


class VariationalAutoencoder(nn.Module):
    """Encodes an image as a Gaussian, draws from it (when evaluated too), decodes the draw."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = _make_encoder()
        self.mean = nn.Linear(7 * 7 * 64, LATENT)
        self.log_variance = nn.Linear(7 * 7 * 64, LATENT)
        self.decoder = _make_decoder()
        draw = nn.init.xavier_uniform_
        initialise(self, {nn.Conv2d: draw, nn.ConvTranspose2d: draw, nn.Linear: draw})

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Flat images, and mean and logarithmic deviation of their codes."""
        features = self.encoder(images)
        mean, log_std = self.mean(features), 0.5 * self.log_variance(features)
        code = mean + torch.randn_like(log_std) * log_std.exp()
        return self.decoder(code), mean, log_std
