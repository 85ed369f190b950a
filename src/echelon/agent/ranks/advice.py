"""Errors that users of PyTorch meet, in one short line and with what helps: a table of their texts.

The texts are for people: nothing is decided by them. An error that is not in the table stays as it is."""

from __future__ import annotations

import re

TYPE_CHECKING = False  # as mypy reads it; importing `typing` would cost a rank its first milliseconds
if TYPE_CHECKING:
    from typing import Match

# What PyTorch says of a GPU without memory, in its newer and older words, before a page of advice.
_OUT_OF_MEMORY = re.compile(
    r"(?P<kind>[\w.]+): CUDA out of memory\. Tried to allocate (?P<size>[\d.]+ \w+)"
    r"(?:\. GPU (?P<gpu>\d+) has a total capaci?ty of (?P<total>[\d.]+ \w+)"
    r" of which (?P<free>[\d.]+ \w+) is free"
    r"| \(GPU (?P<gpu2>\d+); (?P<total2>[\d.]+ \w+) total capacity; .*?(?P<free2>[\d.]+ \w+) free;)?"
)
# Who has it, as torch says it since 2.1: its own tensors, what it keeps for later ones, and other processes.
_HOLDS = re.compile(
    r"Of the allocated memory (?P<tensors>[\d.]+ \w+) is allocated by PyTorch, and (?P<kept>[\d.]+ \w+)"
    r" is reserved by PyTorch but unallocated"
)
_OTHERS = re.compile(r"Process \d+ has (?P<size>[\d.]+ \w+) memory in use")
_OWN = "this process has"  # else torch cannot tell itself from others, as in a container
_UNITS = {"bytes": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
# What Gloo writes around its errors: the place in its source before, a guess at the cause behind.
_GLOO = re.compile(r"\[(?:enforce fail at )?\S*/gloo/\S*\.(?:cc|h):\d+\] ?|\s*This is typically caused by .*")
# Gloo, of a message that is longer than what its rank waits for.
_TOO_LONG = re.compile(
    r"(?P<kind>[\w.:]+): .*op\.preamble\.length <= op\.nbytes\. (?P<received>\d+) vs (?P<expected>\d+)"
)
_WATCHDOG = re.compile(
    r"(?P<kind>[\w.:]+): .*Watchdog caught collective operation timeout:"
    r" WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<name>\w+),.*Timeout\(ms\)=(?P<limit>\d+)"
)
_NCCL = re.compile(r"(?P<kind>[\w.]+): NCCL error in: .*NCCL version (?P<version>[\d.]+)")
_LONG = re.compile(  # errors of which the first sentence says all
    r"(?P<first>[\w.]+: (?:Expected to have finished reduction in the prior iteration"
    r"|DataLoader worker \(pid \d+\) is killed by signal: Bus error)[^.]*)\..*"
)

# The error, and what helps; in a pod it may be another thing.
_HINTS: tuple[tuple[re.Pattern[str], str, str | None], ...] = tuple(
    (re.compile(pattern), hint, in_pod)
    for pattern, hint, in_pod in (
        (
            r"CUDA out of memory.* in fragments",
            (
                "--env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True keeps its memory in one piece; a"
                " smaller batch needs less"
            ),
            None,
        ),
        (
            r"CUDA out of memory.* other processes",
            (
                "other processes use this GPU: nvidia-smi shows them, and each rank needs a GPU of its own"
                " (--gpus N)"
            ),
            None,
        ),
        (
            r"CUDA out of memory",
            (
                "a smaller batch, gradient accumulation or activation checkpointing need less;"
                " PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True helps against fragments"
            ),
            None,
        ),
        (
            r"killed by signal: Bus error|unable to allocate shared memory|insufficient shared memory",
            (
                "shared memory (/dev/shm) is full, by which DataLoader workers hand over batches:"
                " num_workers=0 needs none"
            ),
            (
                "shared memory (/dev/shm) is full, by which DataLoader workers hand over batches:"
                " --shm SIZE enlarges it"
            ),
        ),
        (
            r"Duplicate GPU detected",
            (
                "two ranks use the same GPU: torch.cuda.set_device(int(os.environ['LOCAL_RANK']))"
                " comes before the process group, and each rank needs a GPU (--gpus N)"
            ),
            None,
        ),
        (
            r"Mismatched NCCL version",
            "all ranks need the same version of NCCL: the same environment, or the same image",
            "all ranks need the same version of NCCL: the same image for all workers",
        ),
        (
            r"creating shared memory segment /dev/shm",
            "shared memory (/dev/shm) is full, by which NCCL connects ranks of one machine",
            "shared memory (/dev/shm) is full, by which NCCL connects ranks: --shm SIZE enlarges it",
        ),
        (
            r"ncclSystemError|ncclRemoteError(?!.*(?:reset by peer|closed by))|no socket interface",
            (
                "NCCL found no network to its peers: NCCL_DEBUG=INFO shows which interfaces it tried,"
                " NCCL_SOCKET_IFNAME names one"
            ),
            None,
        ),
        (
            r"invalid device ordinal",
            (
                "there is no such GPU here: torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) takes the"
                " rank's own, and each rank needs one (--gpus N)"
            ),
            None,
        ),
        (
            r"illegal memory access|device-side assert triggered",
            "a kernel's error is told later than it happens: --env CUDA_LAUNCH_BLOCKING=1 shows the line",
            None,
        ),
        (
            r"uncorrectable ECC error|Xid|unspecified launch failure",
            "the GPU or its memory failed: nvidia-smi -q shows which, and a reset or another node helps",
            None,
        ),
        (
            r"no kernel image is available for execution",
            "this build of PyTorch has no code for this GPU: another one is needed",
            None,
        ),
        (
            r"driver version is insufficient|driver on your system is too old",
            "the node's driver is older than the CUDA of this PyTorch: a build for an older CUDA runs",
            "the node's driver is older than the CUDA of the image: an image with an older CUDA runs",
        ),
        (
            r"EADDRINUSE|Address already in use",
            "the script takes a port that is in use: MASTER_PORT of its environment is free; others can be 0",
            None,
        ),
        (
            r"Expected to have finished reduction in the prior iteration",
            "a forward pass did not use all parameters: DistributedDataParallel(find_unused_parameters=True)",
            None,
        ),
        (
            r"same model across all ranks|appears not to match (?:sizes|strides) of the same param",
            (
                "ranks have built different models: what shapes them (arguments, vocabulary) must not depend"
                " on the rank"
            ),
            None,
        ),
        (
            r"Received data size doesn't match|op\.preamble\.length <= op|received \d+ bytes, where \d+ were",
            "ranks called the same collective with tensors of different sizes, or in another order",
            None,
        ),
        (
            r"Timed out waiting \d+ms for \w+ operation|Watchdog caught collective operation timeout",
            "a rank did not come to a collective in the time of its process group: --stall 10m names it",
            None,
        ),
        (
            (
                r"[Ee]xpected all tensors to be on the same device|is not on the expected device"
                r"|Input type .* and weight type .* should be the same"
            ),
            "the model and a tensor are on different devices: .to(device) moves both",
            None,
        ),
        (
            r"No backend type associated with device type",
            "the process group's backend has no such device: nccl takes tensors on GPUs, gloo those on CPUs",
            None,
        ),
        (
            r"version `GLIBC(?:XX)?_[\d.]+' not found",
            "a library was built for a newer system: install packages where the run runs, or upgrade it",
            "a package was built for a newer system than the image: --image chooses a newer one",
        ),
        (
            r"cannot execute binary file|Exec format error",
            "the program was built for another processor",
            "the program or the image was built for another processor than the node has",
        ),
    )
)


def shorten(error: str, after: list[str]) -> str:
    """An error that is a page of text, in one line; `after` are the lines that follow its first one."""
    nccl = _NCCL.match(error)
    if nccl:
        lasts = [number for number, line in enumerate(after) if line.strip() == "Last error:"]
        last = after[lasts[0] + 1].strip() if lasts and lasts[0] + 1 < len(after) else ""
        name = after[0].partition(":")[0].strip() if after and after[0].startswith("nccl") else ""
        said = ", ".join(part for part in (name, last) if part)
        return "%s: NCCL %s: %s" % (nccl["kind"], nccl["version"], said) if said else error
    memory = _OUT_OF_MEMORY.search(error)
    if memory:
        return _describe_memory(memory, error)
    sizes, watchdog = _TOO_LONG.match(error), _WATCHDOG.match(error)
    if sizes:
        return "%s: received %s bytes, where %s were expected" % sizes.group("kind", "received", "expected")
    if watchdog:
        kind, name, number = watchdog.group("kind", "name", "number")
        seconds = int(watchdog["limit"]) / 1000
        what = "Watchdog caught collective operation timeout"
        return "%s: %s: %s %s, after %g s" % (kind, what, name, number, seconds)
    long = _LONG.match(error)
    return long["first"] if long else _GLOO.sub("", error)


def _describe_memory(found: Match[str], error: str) -> str:
    """The sizes, and what holds the memory: PyTorch's own tensors, or what would have been enough."""
    gpu, total, free = (found[name] or found[name + "2"] for name in ("gpu", "total", "free"))
    room = "; GPU %s has %s, of which %s is free" % (gpu, total, free) if gpu else ""
    holds = _HOLDS.search(error)
    if holds and free:
        missing = _bytes(found["size"]) - _bytes(free)
        others = sum(_bytes(each) for each in _OTHERS.findall(error)) if _OWN in error else 0.0
        room += ", PyTorch's tensors have %s" % holds["tensors"]
        if _bytes(holds["kept"]) >= missing:
            room += ", and it keeps %s in fragments" % holds["kept"]
        elif others >= missing:
            room += ", and other processes have %.2f GiB" % (others / _UNITS["GiB"])
    return "%s: CUDA out of memory, tried to allocate %s%s" % (found["kind"], found["size"], room)


def _bytes(size: str) -> float:
    number, _, unit = size.partition(" ")
    return float(number) * _UNITS.get(unit, 1.0)


def find_advice(error: str, in_pod: bool) -> str | None:
    """What helps against an error; None for one that is not in the table."""
    for pattern, hint, hint_in_pod in _HINTS:
        if pattern.search(error):
            return hint_in_pod if in_pod and hint_in_pod else hint
    return None
