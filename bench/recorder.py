"""What torch's flight recorder costs a training, with the thread that answers the agent: steps of DDP on
CPUs, with Gloo, beside the same ranks without it.

All gangs are there at the same time, and train in turns of about half a second, so that other load on the
machine meets them alike. `--gpu` does it with one rank and NCCL, whose calls are recorded as those of many.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from echelon.agent.ranks.launching import launch
from measure.figures import Figure, Line, Target, show
from measure.rounds import Workspace, program, take_turns, workspace

ROUNDS = 40
RANKS = 2
TURN = 0.5  # seconds
_RANK = """\
import os, sys, time
import torch
import torch.distributed as dist

torch.set_num_threads(1)
gpu = sys.argv[1] == "gpu"
device = "cuda" if gpu else "cpu"
if gpu:
    torch.cuda.set_device(0)
dist.init_process_group("nccl" if gpu else "gloo")
layers = [torch.nn.Linear(256, 256) for _ in range(16)]
model = torch.nn.Sequential(*layers).to(device)
model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.5)  # eight buckets and more
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.rand(64, 256, device=device)
print("up", flush=True)
for steps in map(int, sys.stdin):
    began, worked = time.perf_counter(), time.process_time()
    for _ in range(steps):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    if gpu:
        torch.cuda.synchronize()
    print((time.perf_counter() - began) / steps, (time.process_time() - worked) / steps, flush=True)
os._exit(0)
"""


def main() -> None:
    gpu = "--gpu" in sys.argv[1:]
    with workspace() as place, ExitStack() as stack:
        script = place.path / "train.py"
        script.write_text(_RANK)
        ours = "as echelon starts ranks"
        ways = {
            ours: None,
            "without a recorder": {"TORCH_FR_BUFFER_SIZE": "0"},
            "as torch is by itself": {},
            "without, once more": {"TORCH_FR_BUFFER_SIZE": "0"},
        }
        gangs = {name: stack.enter_context(_gang(place, script, more, gpu)) for name, more in ways.items()}
        first = _train(gangs[ours], 5)[0]  # the first steps are slower
        steps = max(5, round(TURN / min(first, _train(gangs[ours], 5)[0])))
        samples = take_turns(ROUNDS, {name: partial(_train, gang, steps) for name, gang in gangs.items()})
        _show(samples, ours, gpu)


def _show(samples: Mapping[str, list[tuple[float, float]]], ours: str, gpu: bool) -> None:
    def figure(name: str, part: int) -> Figure:
        what = ("a step", "processor time of a step")[part]
        return Figure(
            name=f"{what}, {name}", samples=[each[part] * 1000 for each in samples[name]], unit="ms"
        )

    target = Target(limit=1.01, sense="at most", of="ratio")
    lines = [
        Line(
            figure=figure(name, part),
            peer=figure("without a recorder", part),
            target=target if part == 0 and name == ours else None,
        )
        for part in (0, 1)
        for name in samples
        if name != "without a recorder"
    ]
    where = "one rank with NCCL" if gpu else f"{RANKS} ranks with Gloo"
    show(f"Training, {where} ({ROUNDS} turns of each)", lines)


@contextmanager
def _gang(
    place: Workspace, script: Path, more: Mapping[str, str] | None, gpu: bool
) -> Iterator[list[subprocess.Popen[str]]]:
    """Ranks that wait for their turn, with these variables, or as echelon starts them."""
    ranks = 1 if gpu else RANKS
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = place.path / f"gang-{port}"
    folder.mkdir()
    started: list[subprocess.Popen[str]] = []
    try:
        for rank in range(ranks):
            env = {**place.environment, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            env.update(RANK=str(rank), WORLD_SIZE=str(ranks), OMP_NUM_THREADS="1")
            if more is None:
                env.update({"PYTHONPATH": launch.STARTUP, launch.LOOKS: str(folder / f"look-{rank}")})
                env["ECHELON_RANKS"] = "2"
            words = [program("python"), str(script), "gpu" if gpu else "cpu"]
            started.append(
                subprocess.Popen(
                    words,
                    env={**env, **(more or {})},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n", "a rank did not start"
        yield started
    finally:
        for process in started:
            process.kill()
            process.communicate()


def _train(gang: list[subprocess.Popen[str]], steps: int) -> tuple[float, float]:
    """Seconds of a step, and of the processor for one of all ranks."""
    for process in gang:
        assert process.stdin is not None
        process.stdin.write(f"{steps}\n")
        process.stdin.flush()
    told = []
    for process in gang:
        assert process.stdout is not None
        told.append(tuple(map(float, process.stdout.readline().split())))
    return max(each[0] for each in told), sum(each[1] for each in told)


if __name__ == "__main__":
    main()
