"""Train a small network on Fashion-MNIST with Horovod, on as many processes as it is started in.

Rank 0 keeps every finished epoch in `checkpoint.pt` of the folder for results; started again, all continue
from it. Nothing here knows echelon but the name of that folder, ECHELON_OUTPUT.
"""

import argparse
import os
import sys
from pathlib import Path

import horovod.torch as hvd
import torch
import torch.nn.functional as F  # noqa: N812  the name that every reader of PyTorch knows

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "fashion_mnist"))
from data import Split, load  # of the other example


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data_path", type=Path, required=True, help="a folder with Fashion-MNIST")
    parser.add_argument("--output", type=Path, default=Path(os.environ.get("ECHELON_OUTPUT", ".")))
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=64, help="of each process (default: 64)")
    parser.add_argument("--lr", type=float, default=0.05, help="of one process; several learn faster")
    parser.add_argument("--limit", type=int, help="use only so many images, for a quick try")
    return parser.parse_args()


def scaled(images: torch.Tensor) -> torch.Tensor:
    return images.float().flatten(1) / 255


def train_epoch(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, train: Split, epoch: int, size: int
) -> float:
    """Every process sees another part of the images, and all take the same number of steps."""
    order = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(epoch))
    share = order[hvd.rank() :: hvd.size()][: len(order) // hvd.size()]
    loss = torch.zeros(())
    for batch in share.split(size):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(scaled(train.images[batch])), train.labels[batch])
        loss.backward()
        optimizer.step()
    return float(hvd.allreduce(loss.detach(), name="loss"))


@torch.no_grad()
def accuracy(model: torch.nn.Module, test: Split) -> float:
    """Over the whole test split, each image seen by one process."""
    images, labels = test.images[hvd.rank() :: hvd.size()], test.labels[hvd.rank() :: hvd.size()]
    correct = (model(scaled(images)).argmax(1) == labels).sum()
    return float(hvd.allreduce(correct, name="correct", op=hvd.Sum)) / len(test.labels)


def main() -> None:
    args = parse_arguments()
    hvd.init()
    chief = hvd.rank() == 0
    train, test = load(args.data_path)
    if args.limit:
        train, test = train.first(args.limit), test.first(args.limit)
    if torch.cuda.device_count() > hvd.local_rank():
        torch.cuda.set_device(hvd.local_rank())
        torch.set_default_device("cuda")
        train, test = train.to(torch.device("cuda")), test.to(torch.device("cuda"))
    print(f"rank {hvd.rank()} of {hvd.size()}, {hvd.local_rank()} of {hvd.local_size()} here", flush=True)

    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(784, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr * hvd.size(), momentum=0.5)
    checkpoint, done = args.output / "checkpoint.pt", 0
    if chief and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["epoch"]
        print(f"resuming after epoch {done}", flush=True)
    done = hvd.broadcast_object(done, root_rank=0)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())

    for epoch in range(done + 1, args.epochs + 1):
        loss = train_epoch(model, optimizer, train, epoch, args.batch_size)
        right = accuracy(model, test)
        if chief:
            print(f"epoch {epoch}: loss={loss:.4f} accuracy={right:.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, checkpoint.with_suffix(".tmp"))
            checkpoint.with_suffix(".tmp").replace(checkpoint)  # all of it, or nothing


if __name__ == "__main__":
    main()
