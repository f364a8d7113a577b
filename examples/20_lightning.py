"""Lightning: an unchanged LightningModule and one callback. Needs the extra `lightning`.

python examples/20_lightning.py
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from toy import loss_of, network, report, samples

from probstep.integrations.lightning import LearningRateAdaptation


class Classifier(LightningModule):
    """A module as one writes it without probstep."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

    def training_step(self, batch, batch_idx):  # noqa: ARG002
        """Return the loss of a batch."""
        loss = loss_of(self.net, batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        """Return an optimizer at a rate that is too small."""
        return torch.optim.SGD(self.parameters(), lr=1e-3)


def main() -> float:
    module = Classifier()
    trainer = Trainer(
        max_epochs=8,
        accelerator="cpu",
        gradient_clip_val=1.0,
        callbacks=[LearningRateAdaptation()],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, DataLoader(TensorDataset(*samples()), batch_size=100))
    return report(module.net, trainer.optimizers[0].effective_lr[0])


if __name__ == "__main__":
    main()
