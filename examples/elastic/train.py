"""Training whose number of processes changes: every step has the same batch, however many share it.

    python train.py --checkpoint_path CKPT                                  one process
    echelon run -n 1..4 train.py --checkpoint_path {output}/ckpt            one to four, as they come and go

It saves every few steps, and when its processes are told to end (ECHELON_NOTICE); started again with more or
fewer of them it continues after the last saved step, and no step is trained twice after a notice.
"""
# mypy: allow-untyped-calls
# (torch leaves some of its own functions untyped)

import argparse
import os
import signal
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn  # before there is a group: else its end could wait for a thread of Gloo
import torch.nn.functional as F  # noqa: N812  the name that every reader of PyTorch knows
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

BATCH = 240  # of all processes together: 1, 2, 3, 4, 5, 6 or 8 of them have equal shares
FEATURES, CLASSES = 64, 10


def make_data(step: int) -> tuple[Tensor, Tensor]:
    """The batch of a step: the step's number alone decides what is in it."""
    centres = torch.randn(CLASSES, FEATURES, generator=torch.Generator().manual_seed(0))
    dice = torch.Generator().manual_seed(step + 1)
    labels = torch.randint(CLASSES, (BATCH,), generator=dice)
    return centres[labels] + 2.0 * torch.randn(BATCH, FEATURES, generator=dice), labels


def ask_all_for_notice() -> Tensor:
    """1 if any process has notice, else 0: all of them then end after the same step."""
    notice = os.environ.get("ECHELON_NOTICE")
    told = torch.tensor(int(notice is not None and Path(notice).exists()))
    dist.all_reduce(told, op=dist.ReduceOp.MAX)
    return told


def save(path: Path, value: object) -> None:
    """Write all of a file or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.tmp")
    torch.save(value, unfinished)
    unfinished.replace(path)


def train(args: argparse.Namespace) -> Tensor:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(FEATURES, 256), nn.ReLU(), nn.Linear(256, CLASSES))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    checkpoint, first = args.checkpoint_path / "latest.pt", 0
    if checkpoint.exists():  # all processes of this machine see the folder
        state: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    if rank == 0:
        print(f"{ranks} processes train from step {first}", flush=True)

    model = DistributedDataParallel(network)
    told = torch.zeros(())
    for step in range(first, args.steps):
        features, labels = make_data(step)
        loss = F.cross_entropy(model(features[rank::ranks]), labels[rank::ranks])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean_loss = loss.detach() / ranks
        dist.all_reduce(mean_loss)
        told = ask_all_for_notice()
        ends = bool(told)
        if rank == 0 and (ends or (step + 1) % args.save_every == 0 or step + 1 == args.steps):
            state = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            save(checkpoint, state)
        if rank == 0 and (ends or step % 10 == 0):
            print(f"step={step} loss={mean_loss.item():.4f}", flush=True)
        if ends:
            break
    return told  # the tensor of the last collective


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a small network with a changing number of processes.")
    parser.add_argument("--checkpoint_path", type=Path, required=True, help="folder for latest.pt")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--save_every", type=int, default=50, help="steps between two checkpoints")
    args = parser.parse_args()
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    for name, value in alone.items():
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the end comes after a step, when all have seen the notice
    dist.init_process_group("gloo")
    last = train(args)
    dist.destroy_process_group()  # while that is still held: else this call may wait for ever
    del last


if __name__ == "__main__":
    main()
