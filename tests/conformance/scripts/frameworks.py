"""Libraries around torch.distributed, where they are installed (see the extra `conformance`)."""

from typing import Any

import torch

from tests.conformance.script import launched, sample, script
from tests.conformance.scripts.data_parallel import TRAINED, net
from tests.conformance.scripts.launches import under_torchrun


@script(bound=TRAINED, slow=True, alone=True, needs=("accelerate",), limit_s=120)
def accelerate_loop(rank: int, size: int, backend: str) -> Any:
    """Train and evaluate with Accelerate, in the group that is there."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    data = torch.utils.data.TensorDataset(sample(0, 13, 6), sample(1, 13, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=2)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for x, y in loader:
        optimizer.zero_grad()
        accelerator.backward((model(x) - y).square().mean())
        optimizer.step()
    with torch.inference_mode():
        found = [accelerator.gather_for_metrics(model(x)).clone() for x, _ in loader]
    return [accelerator.num_processes, torch.cat(found)]


@launched(slow=True, needs=("lightning",), limit_s=180)
def lightning_fit(backend: str, ranks: int) -> Any:
    """Fit with Lightning's DDP strategy and `sync_dist=True`."""
    text = """
import lightning as L
class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.Linear(6, 4)
    def training_step(self, batch, index):
        loss = self.layer(batch[0]).square().mean()
        self.log("loss", loss, sync_dist=True, on_epoch=True)
        self.log("count", torch.tensor(len(batch[0])), sync_dist=True, on_epoch=True)
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
from lightning.pytorch.strategies import DDPStrategy
dist.destroy_process_group()
data = torch.utils.data.TensorDataset(torch.arange(60.0).view(10, 6) / 60)
trainer = L.Trainer(
    max_epochs=1, accelerator="cpu", devices=size, logger=False, enable_checkpointing=False,
    enable_progress_bar=False, strategy=DDPStrategy(process_group_backend=backend),
)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=2))
with open(os.environ["FOLDER"] + f"/note{rank}", "w") as file:
    file.write(f"{float(trainer.callback_metrics['loss_epoch']):.4f}")
"""
    return under_torchrun(backend, ranks, text)
