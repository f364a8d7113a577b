"""Transformers: an existing Trainer, adapted in one line. Needs the extra `transformers`.

    python examples/21_transformers.py

The model is a tiny one with random weights, so that nothing is downloaded.
"""

import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

from probstep.integrations.transformers import adapt


def counting(sequences: int = 256, length: int = 16) -> list[dict[str, torch.Tensor]]:
    """Sequences that count upwards from anywhere, modulo 32."""
    starts = torch.randint(32, (sequences, 1), generator=torch.Generator().manual_seed(0))
    tokens = (starts + torch.arange(length)) % 32
    return [{"input_ids": row, "labels": row} for row in tokens]


def main() -> float:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            output_dir=folder,
            learning_rate=1e-5,
            lr_scheduler_type="cosine",
            warmup_steps=5,
            max_steps=80,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
            logging_steps=20,
            use_cpu=True,
            dataloader_pin_memory=False,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
        )
        trainer = Trainer(LlamaForCausalLM(config), args, train_dataset=counting())
        adapt(trainer).train()  # the one line
        return trainer.evaluate(counting())["eval_loss"]


if __name__ == "__main__":
    main()
