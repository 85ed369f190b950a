"""What the workers of a run use: samples beside how each worker stands."""

from __future__ import annotations

from echelon.model.engine.sample import GpuSample, RankSample, Samples, WorkerSample, gpus_of
from echelon.model.engine.usage import usage_of
from echelon.model.status import Status, WorkerStatus


def sample(worker: int, ranks: int = 1, gpus: int = 0) -> WorkerSample:
    return WorkerSample(
        worker=worker,
        at=1.0,
        ranks=tuple(RankSample(rank=number, cpus=0.5, memory=10) for number in range(ranks)),
        cpus=0.5 * ranks,
        memory=10 * ranks,
        gpus=tuple(GpuSample(gpu=str(number)) for number in range(gpus)),
    )


def test_only_workers_that_run_use_anything() -> None:
    workers = (
        WorkerStatus(worker=0, state="running", node="a"),
        WorkerStatus(worker=1, state="done", node="b"),
        WorkerStatus(worker=2, state="running", node="c"),
    )
    status = Status(name="fm", uri="local://fm", state="running", workers=workers)
    found = usage_of(status, Samples(workers=(sample(0), sample(1))))
    assert [(each.node, each.cpus, each.memory) for each in found.workers] == [
        ("a", 0.5, 10),
        ("b", None, None),
        ("c", None, None),
    ]


def test_whose_gpu_is_whose() -> None:
    assert [each.gpu for each in gpus_of(sample(0, ranks=1, gpus=3), 0)] == ["0", "1", "2"]
    assert [each.gpu for each in gpus_of(sample(0, ranks=2, gpus=2), 1)] == ["1"]
    assert gpus_of(sample(0, ranks=2, gpus=3), 1) == (), "they cannot be told apart"
    assert gpus_of(sample(0, ranks=2, gpus=2), 7) == ()
