"""A loop of one's own with Accelerate. `accelerate launch` is not needed: echelon starts the ranks."""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=not torch.cuda.is_available())  # else each rank trains alone on a CPU
torch.manual_seed(0)
x = torch.randn(512, 4)
rows = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=16, shuffle=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer, rows = accelerator.prepare(model, optimizer, rows)
for epoch in range(1, 4):
    for inputs, targets in rows:
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    mean = accelerator.reduce(loss.detach(), "mean").item()
    accelerator.print(f"epoch={epoch} loss={mean:.5f}", flush=True)
where = f"process {accelerator.process_index} of {accelerator.num_processes}"
print(f"{where}: {len(rows)} batches an epoch", flush=True)
accelerator.end_training()
