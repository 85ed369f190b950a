"""A model whose optimizer's state is sharded (DeepSpeed ZeRO). The `deepspeed` launcher is not needed."""

import deepspeed
import torch

deepspeed.init_distributed()
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
config = {
    "train_micro_batch_size_per_gpu": 16,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.02, "torch_adam": True}},
}
model, optimizer, _, _ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)
torch.manual_seed(torch.distributed.get_rank() + 1)
for number in range(1, 21):
    x = torch.randn(16, 8, device=model.device)
    loss = torch.nn.functional.mse_loss(model(x), x.sum(1, keepdim=True))
    model.backward(loss)
    model.step()
    if number % 10 == 0:
        print(f"step={number}/20 loss={loss.item():.4f}", flush=True)
print(f"rank {torch.distributed.get_rank()} of {torch.distributed.get_world_size()}", flush=True)
torch.distributed.destroy_process_group()
