"""That a job is made fit for pods, and that outputs which would be lost there are named."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echelon.bundle import pack_files
from echelon.errors import CannotShip, InvalidJob
from echelon.model.engine.traits import Traits
from echelon.model.job import Job, Role
from echelon.model.meaning import to_job, to_settings
from echelon.model.pods.pod import Keeper, Mount, Output, PodOptions, VolumePath
from echelon.model.resources import Resources
from echelon.model.settings import Settings
from echelon.preparation.shipping import (
    check_sending,
    check_waiting,
    code_limit,
    notes_on_paths,
    paths_that_stay,
    settle_remote,
)

GIVEN = Settings(script="train.py", on="k8s")


def job(*args: str, **pod: object) -> Job:
    return Job(name="fm", script="train.py", args=args, pod=PodOptions(**pod))  # type: ignore[arg-type]


def test_code_travels() -> None:
    assert settle_remote(job(), GIVEN).snapshot


def test_code_on_a_volume_stays_there() -> None:
    settled = settle_remote(job(code=VolumePath(claim="work", path="project")), GIVEN)
    assert not settled.snapshot
    assert settled.cwd == "{code}"


def test_larger_code_travels_through_a_volume() -> None:
    cluster = Traits(place="a cluster", remote=True, code_limit=10)
    shelf = VolumePath(claim="shelf")
    assert code_limit(job(), cluster) == 10
    assert code_limit(job(), replace(cluster, sent_limit=20)) == 20
    assert (code_limit(job(code_volume=shelf), cluster) or 0) > 10
    assert code_limit(job(code_volume=shelf), Traits(place="this machine")) is None
    with pytest.raises(InvalidJob, match="nothing to ship"):
        settle_remote(job(code_volume=shelf, code=VolumePath(claim="work")), GIVEN)


def test_larger_code_is_sent_to_a_run_that_needs_it_once() -> None:
    cluster = Traits(place="a cluster", remote=True, code_limit=10, sent_limit=2**20)
    small, large = pack_files({}), pack_files({"train.py": b"pass"})
    cluster = replace(cluster, code_limit=len(small.data))
    plain, again = job(), replace(job(), restarts=1)
    check_sending(plain, large, cluster)
    for fits in (None, small):
        check_sending(again, fits, cluster)
        check_waiting(again, fits, cluster, "no room")
    through = job(code_volume=VolumePath(claim="shelf"))
    check_sending(replace(through, restarts=1), large, cluster)
    check_sending(again, large, Traits(place="this machine"))
    for refuse, why in (
        (lambda: check_sending(again, large, cluster), "--restarts"),
        (lambda: check_waiting(plain, large, cluster, "held by a"), "would be queued: held by a"),
    ):
        with pytest.raises(CannotShip, match=why) as caught:
            refuse()
        assert "--code-volume pvc:NAME" in caught.value.hint


def test_who_leaves_says_where_results_go() -> None:
    """Unless a keeper takes them, as it does by default."""
    with pytest.raises(InvalidJob, match="no command to fetch") as caught:
        settle_remote(job(), Settings(script="train.py", on="k8s", detach=True, keep=0))
    for way in ("--keep 0", "--output pvc:", "new:", "--keep 1h:0"):
        assert way in caught.value.hint
    assert settle_remote(job(keeper=Keeper()), Settings(script="train.py")).snapshot


def test_a_keeper_that_a_time_of_0_leaves_out_lets_no_worker_keep_them() -> None:
    given = Settings(script="train.py", on="k8s", detach=True, keep="0:5Gi")
    with pytest.raises(InvalidJob, match="no command to fetch"):
        settle_remote(to_job(given, name="fm"), given)


def test_a_job_file_says_what_its_job_was_asked_for() -> None:
    """So that its reader may leave, too: the usual time of workers is written out."""
    given = Settings(script="train.py", on="k8s", detach=True, gpus=1, keep="5m:0")
    made = settle_remote(to_job(given, name="fm"), given)
    written = to_settings(made)
    assert written.keep == "300s:0"
    again = replace(written, detach=True)
    assert settle_remote(to_job(again, name="fm"), again) == made


@pytest.mark.parametrize("more", [{"output": "new:1Gi"}, {"output": "pvc:x"}, {"linger": "1h"}])
def test_who_leaves_and_has_said_it(more: dict[str, str]) -> None:
    given = Settings(script="train.py", on="k8s", detach=True, **more)  # type: ignore[arg-type]
    assert settle_remote(job(output=Output()), given).snapshot


def test_who_leaves_and_lets_the_workers_keep_the_results() -> None:
    given = Settings(script="train.py", on="k8s", detach=True, keep="1h:0")
    assert settle_remote(to_job(given, name="fm"), given).pod.keeper is None


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
        (("--dir", "/tmp/checkpoints"), ["/tmp/checkpoints"]),  # by its own name
        (("/tmp/checkpoints/a", "/opt/checkpoint.py"), ["/tmp/checkpoints/a"]),
        (("--config=/etc/output.yaml",), []),
    ],
)
def test_paths_that_nothing_brings_home(args: tuple[str, ...], stay: list[str]) -> None:
    mounts = (Mount(kind="pvc", source="data", path="/data"),)
    assert list(paths_that_stay(job(*args, mounts=mounts, collect=("/kept",)))) == stay


def test_paths_in_a_command_a_shells_line_and_a_roles_arguments() -> None:
    """As in a job of Kubeflow's, whose volumes may be in its template."""
    template = {
        "spec": {
            "volumes": [{"name": "nfs", "nfs": {}}, {"name": "scratch", "emptyDir": {}}],
            "containers": [
                {
                    "name": "worker",
                    "volumeMounts": [
                        {"name": "nfs", "mountPath": "/nfs"},
                        {"name": "scratch", "mountPath": "/scratch"},
                    ],
                }
            ],
        }
    }
    line = "mkdir -p /tmp/checkpoints; python train.py --save /scratch/a --out /nfs/b --logdir=/mnt/it's"
    chief = Role(name="chief", workers=1, resources=Resources(), args=("--model_dir", "/models/x"))
    mounts = (Mount(kind="emptydir", source="", path="/empty"),)
    made = Job(
        name="fm",
        command=("sh", "-c", line),
        args=("--export", "/empty/c"),
        roles=(chief,),
        pod=PodOptions(mounts=mounts, template=template),
    )
    assert list(paths_that_stay(made)) == [
        "/scratch/a",
        "/mnt/it's",
        "/empty/c",
        "/tmp/checkpoints",
        "/models/x",
    ]


def test_the_note_says_what_to_do() -> None:
    (note,) = notes_on_paths(job("--save_dir", "/tmp/model"))
    assert "/tmp/model stays in its pod" in note
    assert "--collect /tmp/model" in note


def test_code_in_the_image_starts_where_the_image_does() -> None:
    settings = Settings(command=("python", "train.py"), code="image")
    settled = settle_remote(to_job(settings, name="x"), settings)
    assert (settled.cwd, settled.snapshot, settled.pod.code) == (".", False, None)
