"""Estimates pi on all ranks of an MPI job: each throws darts of its own, one all-reduce adds up the hits."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from mpi4py import MPI


def main() -> None:
    """Throw, add up, and let rank 0 write the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--throws", type=int, default=100_000, help="darts of each rank")
    parser.add_argument("--result", type=Path, help="a file for the estimate")
    options = parser.parse_args()

    world = MPI.COMM_WORLD
    dice = random.Random(world.rank)
    hits = sum(dice.random() ** 2 + dice.random() ** 2 < 1 for _ in range(options.throws))
    print(f"rank {world.rank} of {world.size}: {hits} of {options.throws} hit", flush=True)
    estimate = 4 * world.allreduce(hits) / (world.size * options.throws)
    if world.rank == 0:
        print(f"pi is about {estimate:.4f}", flush=True)
        if options.result is not None:
            options.result.write_text(f"{estimate}\n")


if __name__ == "__main__":
    main()
