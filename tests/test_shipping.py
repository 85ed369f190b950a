"""That a job is made fit for pods, and that outputs which would be lost there are named."""

from __future__ import annotations

import pytest

from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.pod import Mount, Output, PodOptions, VolumePath
from echelon.model.settings import Settings
from echelon.shipping import notes_on_paths, paths_that_stay, settle_remote

GIVEN = Settings(script="train.py", on="k8s")


def job(*args: str, **pod: object) -> Job:
    return Job(name="fm", script="train.py", args=args, pod=PodOptions(**pod))  # type: ignore[arg-type]


def test_code_travels() -> None:
    assert settle_remote(job(), GIVEN).snapshot


def test_code_on_a_volume_stays_there() -> None:
    settled = settle_remote(job(code=VolumePath(claim="work", path="project")), GIVEN)
    assert not settled.snapshot
    assert settled.cwd == "{code}"


def test_who_leaves_says_where_results_go() -> None:
    with pytest.raises(InvalidJob, match="no command to fetch") as caught:
        settle_remote(job(), Settings(script="train.py", on="k8s", detach=True))
    for way in ("--output pvc:", "new:", "--linger"):
        assert way in caught.value.hint


@pytest.mark.parametrize("more", [{"output": "new:1Gi"}, {"output": "pvc:x"}, {"linger": "1h"}])
def test_who_leaves_and_has_said_it(more: dict[str, str]) -> None:
    given = Settings(script="train.py", on="k8s", detach=True, **more)  # type: ignore[arg-type]
    assert settle_remote(job(output=Output()), given).snapshot


@pytest.mark.parametrize(
    ("args", "stay"),
    [
        (("--save_dir", "/tmp/model"), ["/tmp/model"]),
        (("--checkpoint-path=ckpt/last.pt",), ["ckpt/last.pt"]),
        (("--log_dir", "{output}/logs"), []),
        (("--out", "/data/results/a"), []),  # on a mount
        (("--out", "/kept/a"), []),  # collected
        (("--out", "/kept-not/a"), ["/kept-not/a"]),
        (("--data", "/tmp/data"), []),  # read, by its name
        (("--log-interval", "10"), []),
        (("--log_level", "debug"), []),
        (("--model", "resnet50"), []),
        (("--model-url", "https://example.org/m"), []),
        (("--save", "--verbose"), []),
        (("--output", "-1"), []),
        (("train", "/tmp/out"), []),
        (("--out",), []),
    ],
)
def test_paths_that_nothing_brings_home(args: tuple[str, ...], stay: list[str]) -> None:
    mounts = (Mount(kind="pvc", source="data", path="/data"),)
    assert list(paths_that_stay(job(*args, mounts=mounts, collect=("/kept",)))) == stay


def test_the_note_says_what_to_do() -> None:
    (note,) = notes_on_paths(job("--save_dir", "/tmp/model"))
    assert "/tmp/model stays in its pod" in note
    assert "--collect /tmp/model" in note
