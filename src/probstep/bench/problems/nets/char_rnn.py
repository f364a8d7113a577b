"""The tolstoi character model: a recurrent network that carries its state from batch to batch."""

import math
from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

HIDDEN = 128
VOCABULARY = 83
DROPOUT = 0.2

Batch = tuple[Tensor, Tensor]


class CharRNN(nn.Module):
    """DeepOBS's two-layer LSTM over characters, as its only complete (TensorFlow) version is.

    There each layer drops inputs and outputs with probability 0.2, so that between the layers
    two masks meet: together one mask of probability 1 - 0.8 * 0.8. TensorFlow's cell has one
    bias, torch's has two: the second stays at zero and is not trained.

    The state is in buffers: a forward pass starts from `state` and leaves where it ended in
    `ended`. Only `advance` makes one the other, so that the same batch can be evaluated again
    and again from the same state. Without `reset` every batch starts from zero.
    """

    state: Tensor
    ended: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.dropout = nn.Dropout(DROPOUT)
        between = 1 - (1 - DROPOUT) ** 2
        self.lstm = nn.LSTM(HIDDEN, HIDDEN, num_layers=2, dropout=between, batch_first=True)
        self.dense = nn.Linear(HIDDEN, VOCABULARY)
        self.register_buffer("state", torch.zeros(2, 2, 0, HIDDEN), persistent=False)
        self.register_buffer("ended", torch.zeros(2, 2, 0, HIDDEN), persistent=False)
        self._initialise()

    def _initialise(self) -> None:
        """Glorot's uniform draw everywhere but in the biases of the gates (forget 1, others 0)."""
        for weight in (self.embedding.weight, self.dense.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.uniform_(self.dense.bias, -math.sqrt(3 / VOCABULARY), math.sqrt(3 / VOCABULARY))
        limit = math.sqrt(6 / (2 * HIDDEN + 4 * HIDDEN))  # one kernel for inputs and state together
        for name, parameter in self.lstm.named_parameters():
            if "weight" in name:
                nn.init.uniform_(parameter, -limit, limit)
            else:
                nn.init.zeros_(parameter)
            if "bias_ih" in name:
                nn.init.ones_(parameter.data[HIDDEN : 2 * HIDDEN])
            parameter.requires_grad_("bias_hh" not in name)

    def forward(self, characters: Tensor) -> Tensor:
        """Logits (batch, time, vocabulary) of the next characters."""
        is_carried = self.state.shape[2] == len(characters)
        start = self.state if is_carried else self._zeros(len(characters))
        embedded = self.dropout(self.embedding(characters))
        hidden, end = self.lstm(embedded, (start[0], start[1]))
        if is_carried:
            self.ended.copy_(torch.stack(end).detach())
        logits: Tensor = self.dense(self.dropout(hidden))
        return logits

    def _zeros(self, batch_size: int) -> Tensor:
        return self.embedding.weight.new_zeros(2, 2, batch_size, HIDDEN)

    def reset(self, batch_size: int) -> None:
        """Start a new text."""
        self.state, self.ended = self._zeros(batch_size), self._zeros(batch_size)

    def advance(self) -> None:
        """Go on from where the last forward pass ended."""
        self.state.copy_(self.ended)


def carry_state(model: nn.Module, batches: Iterator[Batch], batch_size: int) -> Iterator[Batch]:
    """Let each batch start where the one before it ended, the first one from zero.

    Afterwards the model has again the state that it had before, so that an evaluation amid an
    epoch does not disturb it.
    """
    rnn = cast("CharRNN", model)
    before = rnn.state, rnn.ended
    rnn.reset(batch_size)
    try:
        for batch in batches:
            yield batch
            rnn.advance()
    finally:
        rnn.state, rnn.ended = before
