"""Fashion-MNIST with PyTorch's DistributedDataParallel, in one process or many.

    python train.py --data_path DATA                                 one process
    torchrun --nproc-per-node 2 train.py --data_path DATA            two, or any other launcher's

Started again with the same --checkpoint_path, it goes on after the last finished epoch and ends with the
weights that it would have reached undisturbed. The batches are the same for every number of processes.
"""
# mypy: allow-untyped-calls
# (torch leaves some of its own functions untyped)

import argparse
import os
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: see leave_group
import torch.nn.functional as F  # noqa: N812  the name that every reader of PyTorch knows
from data import Split, load
from idx import DataError
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

MEAN, DEVIATION = 0.2860, 0.3530  # of all pixels of the training images, 0 being black and 1 white
LOG_EVERY = 10  # steps
EVALUATION_BATCH = 1000


class Network(nn.Module):
    """Two 5x5 convolutions with 2x2 max pooling, a hidden layer, ten classes: 431,080 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, kernel_size=5)
        self.conv2 = nn.Conv2d(20, 50, kernel_size=5)
        self.hidden = nn.Linear(4 * 4 * 50, 500)
        self.output = nn.Linear(500, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = (images.unsqueeze(1).float() / 255 - MEAN) / DEVIATION
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.hidden(x.flatten(1)))
        scores: Tensor = self.output(x)
        return scores


def parse_arguments() -> argparse.Namespace:
    def positive(text: str) -> int:
        if int(text) < 1:
            raise ValueError
        return int(text)

    parser = argparse.ArgumentParser(description="Train a small convolutional network on Fashion-MNIST.")
    add = parser.add_argument
    add("--data_path", type=Path, required=True, help="folder of IDX files, or a Hugging Face dataset")
    add("--checkpoint_path", type=Path, help="folder for checkpoint.pt, to resume from, and for model.pt")
    add("--log_path", type=Path, help="folder for TensorBoard's logs")
    add("--epochs", type=positive, default=1)
    add("--batch_size", type=positive, default=64, help="of all processes together (default: 64)")
    add("--lr", type=float, default=0.01)
    add("--momentum", type=float, default=0.5)
    add("--seed", type=int, default=1, help="of the first weights and of the order of the images")
    add("--limit", type=positive, help="use only so many training and test images, for a quick try")
    return parser.parse_args()


def join_group() -> torch.device:
    """Meet the processes to train with, each on a GPU of its own or all on CPUs; started bare, be alone."""
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    if "WORLD_SIZE" not in os.environ:
        os.environ.update(alone)
    local_rank = int(os.environ.get("LOCAL_RANK", "0"))
    # All processes of a machine decide alike, or they would wait for each other in different groups.
    if torch.cuda.device_count() >= int(os.environ.get("LOCAL_WORLD_SIZE", local_rank + 1)):
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        dist.init_process_group("nccl", device_id=device)
    else:
        device = torch.device("cpu")
        dist.init_process_group("gloo")
    print(f"Rank {dist.get_rank()} of {dist.get_world_size()} on {device}, {dist.get_backend()}", flush=True)
    return device


def leave_group(last: torch.Tensor) -> None:
    """End the group, with its threads; `last` is what it has added up last.

    A thread of Gloo may be the last to hold a tensor of Python's, and needs Python to free it. A thread that
    does so while Python ends aborts the process: "terminate called without an active exception". The threads
    end with the group, and the group ends here if nothing else holds it. Two would: the model, which is
    gone because `fit` has returned; and `torch.distributed.nn`, whose functions take the group that exists
    when it is imported as their default. DistributedDataParallel imports it, unless it was imported before.

    A thread that is the last to hold `last` would need Python here, too, while Python waits for the thread to
    end, and both would wait for ever. So the caller holds it until the threads are gone.
    """
    dist.destroy_process_group()
    del last


def train_epoch(
    model: DistributedDataParallel,
    optimizer: torch.optim.Optimizer,
    train: Split,
    args: argparse.Namespace,
    epoch: int,
    writer: "SummaryWriter | None",
) -> None:
    rank, world_size, count = dist.get_rank(), dist.get_world_size(), len(train.labels)
    # Seed and epoch alone decide the order: an epoch that is begun again sees the same batches again.
    order = torch.randperm(count, generator=torch.Generator().manual_seed(args.seed + epoch))
    batches = order.to(train.images.device).split(args.batch_size)
    for step, batch in enumerate(batches, start=1):
        share = batch[rank::world_size]
        # Each process's part of the batch's mean loss; shares may differ by one image, or be empty.
        scores = model(train.images[share])
        loss = F.cross_entropy(scores, train.labels[share], reduction="sum") / len(batch)
        optimizer.zero_grad()
        (loss * world_size).backward()  # DistributedDataParallel averages the gradients; the sum is wanted
        optimizer.step()
        if step % LOG_EVERY == 0 or step == len(batches):
            mean_loss = loss.detach()
            dist.all_reduce(mean_loss)
            if rank == 0:
                seen = min(step * args.batch_size, count)
                progress = f"[{seen}/{count} ({100 * seen / count:.0f}%)]"
                print(f"Train Epoch: {epoch} {progress}\tloss={mean_loss.item():.4f}", flush=True)
                if writer:
                    writer.add_scalar("loss", mean_loss.item(), (epoch - 1) * len(batches) + step)


@torch.no_grad()
def evaluate(network: Network, test: Split) -> torch.Tensor:
    """How many images of the test split all processes together got right, every image seen by exactly one of
    them; rank 0 prints the accuracy.
    """
    rank, world_size = dist.get_rank(), dist.get_world_size()
    images, labels = test.images[rank::world_size], test.labels[rank::world_size]
    correct = torch.zeros((), dtype=torch.int64, device=labels.device)
    for batch, expected in zip(images.split(EVALUATION_BATCH), labels.split(EVALUATION_BATCH), strict=True):
        correct += (network(batch).argmax(1) == expected).sum()
    dist.all_reduce(correct)
    if rank == 0:
        print(f"accuracy={correct.item() / len(test.labels):.4f}", flush=True)
    return correct


def save(value: object, path: Path) -> None:
    """Write all of a file or nothing: its reader never meets half of one, even if this process is killed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    torch.save(value, unfinished)
    unfinished.replace(path)


def resume(path: Path, network: Network, optimizer: torch.optim.Optimizer, device: torch.device) -> int:
    """Bring every process to the state in rank 0's checkpoint, if there is one; how many epochs are done."""
    box: list[Any] = [None]
    if dist.get_rank() == 0 and path.exists():
        box = [torch.load(path, map_location="cpu", weights_only=True)]
        print(f"Resuming from {path}, epochs done: {box[0]['epoch']}", flush=True)
    dist.broadcast_object_list(box, src=0, device=device)
    state = box[0]
    if state is None:
        return 0
    network.load_state_dict(state["model"])
    # The momentum is the checkpoint's; the learning rate and so on stay what today's flags say.
    groups = optimizer.state_dict()["param_groups"]
    optimizer.load_state_dict({"state": state["optimizer"]["state"], "param_groups": groups})
    return int(state["epoch"])


def open_tensorboard(path: Path, first_step: int) -> "SummaryWriter | None":
    # TensorBoard would load TensorFlow where it is installed, which takes seconds and says much, only to
    # write files. It looks for this module first, and where it finds it, does not.
    sys.modules.setdefault("tensorboard.compat.notf", types.ModuleType("notf"))
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print(f"tensorboard is not installed: no logs in {path}", flush=True)
        return None
    return SummaryWriter(str(path), purge_step=first_step)  # hides what an interrupted epoch had logged


def main() -> None:
    args = parse_arguments()
    try:
        train, test = load(args.data_path)
    except (DataError, OSError) as error:
        sys.exit(f"train.py: {error}")
    if args.limit:
        train, test = train.first(args.limit), test.first(args.limit)

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS is not deterministic without
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(args.seed)
    device = join_group()
    leave_group(fit(args, train, test, device))


def fit(args: argparse.Namespace, train: Split, test: Split, device: torch.device) -> torch.Tensor:
    """Train from the last checkpoint to the last epoch, and save; returns what `evaluate` returned last."""
    train, test = train.to(device), test.to(device)
    network = Network().to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=args.lr, momentum=args.momentum)
    checkpoint = args.checkpoint_path / "checkpoint.pt" if args.checkpoint_path else None
    done = resume(checkpoint, network, optimizer, device) if checkpoint else 0
    model = DistributedDataParallel(network, device_ids=[device] if device.type == "cuda" else None)
    # DistributedDataParallel lays out its buffers anew after the first backward pass, and that changes the
    # order in which three or more processes add up. A pass over nothing gets it done before the first step,
    # which would otherwise differ, in the last digits, between a run that was resumed and one that was not.
    model(train.images[:0]).sum().backward()

    chief = dist.get_rank() == 0
    steps = -(-len(train.labels) // args.batch_size)
    writer = open_tensorboard(args.log_path, done * steps + 1) if args.log_path and chief else None
    for epoch in range(done + 1, args.epochs + 1):
        train_epoch(model, optimizer, train, args, epoch, writer)
        correct = evaluate(network, test)
        if writer:
            writer.add_scalar("accuracy", correct.item() / len(test.labels), epoch * steps)
            writer.flush()
        if chief and checkpoint:
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            save(state, checkpoint)
    if done >= args.epochs:  # nothing was left to train; the result is still to be told
        correct = evaluate(network, test)
    if chief and checkpoint:
        save(network.state_dict(), checkpoint.with_name("model.pt"))
    if writer:
        writer.close()
    return correct


if __name__ == "__main__":
    main()
