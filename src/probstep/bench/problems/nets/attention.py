"""A small transformer for images of 8x8, whose rows are its tokens."""

import torch
from torch import Tensor, nn


class RowAttention(nn.Module):
    """Two encoder layers with dropout over the rows of an image; a class from their mean.

    >>> RowAttention()(torch.zeros(5, 1, 8, 8)).shape
    torch.Size([5, 10])
    """

    def __init__(self, width: int = 32, dropout: float = 0.1) -> None:
        super().__init__()
        self.embedding = nn.Linear(8, width)
        self.positions = nn.Parameter(0.02 * torch.randn(8, width))
        self.layers = nn.Sequential(*(self._make_layer(width, dropout) for _ in range(2)))
        self.dense = nn.Linear(width, 10)

    @staticmethod
    def _make_layer(width: int, dropout: float) -> nn.Module:
        return nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout, batch_first=True, norm_first=True
        )

    def forward(self, images: Tensor) -> Tensor:
        """Logits (batch, 10)."""
        tokens = self.embedding(images.flatten(1, 2)) + self.positions
        logits: Tensor = self.dense(self.layers(tokens).mean(dim=1))
        return logits
