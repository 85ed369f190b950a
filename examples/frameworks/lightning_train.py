"""A Trainer of Lightning's, which is told how many ranks there are; each finds its own number by itself."""

import os

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

ranks, ranks_here = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])


class Line(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _index):
        loss = torch.nn.functional.mse_loss(self.layer(batch[0]), batch[1])
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


x = torch.randn(256, 4, generator=torch.Generator().manual_seed(0))
rows = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16)
place = {"num_nodes": ranks // ranks_here, "devices": ranks_here}
trainer = lightning.Trainer(**place, max_epochs=2, default_root_dir=os.environ["ECHELON_OUTPUT"])
trainer.fit(Line(), rows)
print(f"rank {trainer.global_rank} of {trainer.world_size} made {trainer.global_step} steps", flush=True)
