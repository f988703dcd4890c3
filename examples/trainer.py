"""Transformers' Trainer: make the group first, and name no backend in its arguments.

    pip install transformers accelerate
    torchrun --nproc-per-node 2 examples/trainer.py

prints

    2 processes, backend afflux
    step 1: loss 1.26
    step 40: loss 0.07
"""

import tempfile

import torch
import torch.distributed as dist
from transformers import Trainer, TrainingArguments

import afflux  # noqa: F401 - registers the backend

dist.init_process_group("afflux")


class Model(torch.nn.Module):
    """A model as Trainer takes it: its forward pass returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(10, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Compute the loss."""
        out = self.layer(x)
        return {"loss": (out - labels).square().mean(), "logits": out}


torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
data = [{"x": x, "labels": y} for x, y in zip(inputs, targets, strict=True)]

with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        use_cpu=True,
        max_steps=40,
        per_device_train_batch_size=32,
        learning_rate=0.1,
        logging_first_step=True,
        logging_steps=40,
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = Trainer(Model(), arguments, train_dataset=data)
    trainer.train()

if dist.get_rank() == 0:
    print(f"{arguments.world_size} processes, backend {dist.get_backend()}")
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print(f"step {entry['step']}: loss {float(entry['loss']):.2f}")
dist.destroy_process_group()
