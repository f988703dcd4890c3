"""Lightning: the DDP strategy takes the backend's name.

    pip install lightning
    torchrun --nproc-per-node 2 examples/lightning_fit.py

prints

    2 processes, backend afflux
    loss 0.00
"""

import lightning as L
import torch
import torch.distributed as dist
from lightning.pytorch.strategies import DDPStrategy

import afflux  # noqa: F401 - registers the backend


class Model(L.LightningModule):
    """A linear model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(10, 1)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        """Compute the loss of a batch, and log its mean over the ranks."""
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.log("loss", loss, sync_dist=True, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make the optimiser."""
        return torch.optim.SGD(self.parameters(), lr=0.1)


torch.manual_seed(0)
inputs = torch.randn(64, 10)
targets = inputs.sum(1, keepdim=True) / 3
data = torch.utils.data.TensorDataset(inputs, targets)
trainer = L.Trainer(
    max_epochs=20,
    accelerator="cpu",
    devices=2,
    strategy=DDPStrategy(process_group_backend="afflux"),
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=16))

if trainer.is_global_zero:
    print(f"{trainer.world_size} processes, backend {dist.get_backend()}")
    print(f"loss {float(trainer.callback_metrics['loss']):.2f}")
