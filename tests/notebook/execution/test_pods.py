"""Steps as pods: what is asked for, which volume they share, and what a step's process does in a pod."""

from __future__ import annotations

import io
import json
import os
import secrets
import subprocess
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.notebook.books import Cells, new_folder, read_book

from echelon.engines.memory.engine import MemoryEngine
from echelon.errors import InvalidJob, Unavailable
from echelon.model.engine.cluster import Cluster, Gpu, Node
from echelon.model.meaning import to_job
from echelon.model.pods.pod import Output
from echelon.model.settings import Settings
from echelon.notebook.analysis.cells import About, InvalidNotebook
from echelon.notebook.beside import pod
from echelon.notebook.beside.pod import SECRET
from echelon.notebook.execution.asking import pod_settings
from echelon.notebook.execution.choosing import check_same_place
from echelon.notebook.execution.pods import InPods, own_image
from echelon.notebook.kept.folder import PipelineRecord, published
from echelon.notebook.kept.volume import (
    RunVolume,
    VolumeRequest,
    binds,
    bound_to_one_node,
    check_one_node,
    settle_mode,
    wanted_volume,
)

VOLUME = RunVolume(claim="book-1", path="book-1", made=True)
CELLS: Cells = [
    ("imports", "import os, pathlib"),
    ("step:load", "data = [1, 2]\npathlib.Path('table.csv').write_text('changed')\nprint('loading')"),
    (
        "step:train prev:load distribute:torch workers:2",
        "rank = os.environ['ECHELON_RANK']\npathlib.Path('model').write_text(rank)\ntotal = sum(data)",
    ),
    (
        "step:use prev:train",
        "print(total, pathlib.Path('model').read_text(), pathlib.Path('table.csv').read_text())",
    ),
]


def in_pods(tmp_path: Path, **more: Any) -> InPods:
    project = tmp_path / "project"
    project.mkdir(exist_ok=True)
    (project / "pyproject.toml").touch()
    (project / "table.csv").write_text("as it is beside the notebook")
    book = read_book(project, more.pop("cells", CELLS))
    folder = new_folder(tmp_path / "runs" / "book-1")
    folder.secret.write_bytes(secrets.token_hex(32).encode())
    given: dict[str, Any] = {"base": Settings(), "volume": VOLUME, "engine": MemoryEngine(), **more}
    return InPods(pipeline=book, folder=folder, **given)


class Pods:
    """Stands in for the cluster: each worker has its own copy of the code and its own results, as a pod has;
    the volume is a folder."""

    def __init__(self, place: InPods, root: Path) -> None:
        self.place, self.root, self.volume = place, root, root / "volume"
        self.volume.mkdir()

    def run(self, step: str, rank: int = 0, entries: dict[str, Any] | None = None) -> str:
        chosen = next(each for each in self.place.pipeline.steps if each.name == step)
        prepared = self.place.prepare(chosen, f"book-1-{step}", entries or {})
        assert prepared.bundle is not None
        code, output = self.root / f"code-{step}-{rank}", self.root / f"output-{step}-{rank}"
        with tarfile.open(fileobj=io.BytesIO(prepared.bundle.data)) as tar:
            tar.extractall(code, filter="data")
        output.mkdir()
        script = str(prepared.job.script).replace("{code}", str(code))
        told = {**json.loads(prepared.job.args[1]), "folder": str(self.volume)}
        done = subprocess.run(
            [sys.executable, script, prepared.job.args[0], json.dumps(told)],
            cwd=code,
            env={
                **os.environ,
                "ECHELON_OUTPUT": str(output),
                "ECHELON_RANK": str(rank),
                SECRET: self.place.folder.secret.read_text(),
                "TMPDIR": str(self.root),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        if rank == 0:  # as the engine brings results home
            home = self.place.folder.results(step)
            home.parent.mkdir(exist_ok=True)
            output.rename(home)
            self.place.settle(chosen)
        return done.stdout


def test_steps_in_pods_hand_on_values_and_files_and_only_worker_0_does(tmp_path: Path) -> None:
    pods = Pods(in_pods(tmp_path), tmp_path)
    assert "loading" in pods.run("load")
    known = published(pods.place.folder, "load")["names"]["data"]
    came = {"data": {"step": "load", "entry": known["entry"]}}
    pods.run("train", rank=1, entries=came)
    assert not (pods.volume / "work" / "model").exists()
    assert not (pods.volume / "values" / "train").exists()
    pods.run("train", rank=0, entries=came)
    total = published(pods.place.folder, "train")["names"]["total"]
    told = pods.run("use", entries={"total": {"step": "train", "entry": total["entry"]}})
    assert told.strip() == "3 0 changed"
    assert json.loads((pods.volume / "state" / "at-use.json").read_text()) == {"cell": 4}
    assert pods.place.folder.secret.read_text() not in "".join(
        path.read_text(errors="replace") for path in pods.volume.rglob("*") if path.is_file()
    )


def test_what_travelled_follows_the_project_but_never_replaces_what_a_step_wrote(tmp_path: Path) -> None:
    shipped, work, known = tmp_path / "code", tmp_path / "work", tmp_path / "known.json"
    (shipped / "pkg").mkdir(parents=True)
    work.mkdir()
    for name in ("a.py", "b.csv", "pkg/c.py"):
        (shipped / name).write_text("first")
    (shipped / ".hidden").touch()
    pod.bring(shipped, work, known)
    assert sorted(str(each.relative_to(work)) for each in work.rglob("*")) == [
        "a.py",
        "b.csv",
        "pkg",
        "pkg/c.py",
    ]
    (work / "b.csv").write_text("by a step")
    (work / "pkg" / "c.py").unlink()
    for name in ("a.py", "b.csv", "pkg/c.py", "d.py"):
        (shipped / name).write_text("second")
    pod.bring(shipped, work, known)
    assert (work / "a.py").read_text() == "second"
    assert (work / "b.csv").read_text() == "by a step"
    assert not (work / "pkg" / "c.py").exists()
    assert (work / "d.py").read_text() == "second"


def test_tags_become_requests_limits_image_labels_and_variables_from_secrets(tmp_path: Path) -> None:
    tags = "step:a limit:cpu:2 limit:memory:4Gi limit:nvidia.com/gpu:1 limit:example.com/fpga:2 image:own:1"
    more = "label:team:vision annotation:example.com/at:http://x:80/y secret:creds:token:TOKEN"
    book = read_book(tmp_path, [(f"{tags} {more}", "x = 1"), ("step:b", "y = 2")])
    base = Settings(label={"by": "all"}, env={"A": "1"}, template={"spec": {"hostIPC": True}})
    job = to_job(
        replace(pod_settings(book.steps[0], base, "other:1"), command=("step",), name="run"), name="run"
    )
    assert job.resources.cpus is not None
    assert (job.resources.cpus.request, job.resources.cpus.limit) == (2, 2)
    assert job.resources.memory is not None
    assert (job.resources.memory.request, job.resources.memory.limit) == (4 * 2**30, 4 * 2**30)
    assert (job.resources.gpus, job.resources.other) == (1, {"example.com/fpga": 2})
    assert job.pod.image == "own:1"
    assert job.pod.labels == {"by": "all", "team": "vision"}
    assert job.pod.annotations == {"example.com/at": "http://x:80/y"}
    assert job.pod.template["spec"]["hostIPC"] is True
    assert job.pod.template["spec"]["containers"][0]["env"] == [
        {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "creds", "key": "token"}}}
    ]
    plain = pod_settings(book.steps[1], base, "other:1")
    assert (plain.image, plain.cpus, plain.gpus) == ("other:1", None, None)


def test_a_limit_that_is_no_number_is_refused_with_its_step(tmp_path: Path) -> None:
    book = read_book(tmp_path, [("step:a limit:example.com/fpga:many", "x = 1")])
    with pytest.raises(InvalidJob, match=r"step a: limit:example.com/fpga.*many"):
        pod_settings(book.steps[0], Settings(), None)


def test_every_step_mounts_the_volume_and_has_the_secret_out_of_sight(tmp_path: Path) -> None:
    place = in_pods(tmp_path, volume=replace(VOLUME, one_node=True), base=Settings(mount=["pvc:data:/data"]))
    job = place.prepare(place.pipeline.steps[0], "book-1-load", {}).job
    assert [(each.source, each.path) for each in job.pod.mounts] == [
        ("data", "/data"),
        ("book-1/book-1", "/pipeline"),
    ]
    assert [each.name for each in job.secrets] == [SECRET]
    assert job.pod.labels == {"notebook.echelon.dev/run": "book-1"}
    assert job.pod.template == bound_to_one_node("book-1")


@pytest.mark.parametrize(
    ("text", "mode", "about", "wanted"),
    [
        (None, None, About(), VolumeRequest(output=Output(), mode=None)),
        ("new:1Gi@fast", None, About(), VolumeRequest(output=Output(size=2**30, storage_class="fast"))),
        ("new:1Gi", "rwo", About(), VolumeRequest(output=Output(size=2**30), mode="ReadWriteOnce")),
        ("pvc:data/here", None, About(), VolumeRequest(output=Output(claim="data", path="here"), mode=None)),
        (
            None,
            None,
            About(access_mode="rwo", storage_class="nfs"),
            VolumeRequest(output=Output(storage_class="nfs"), mode="ReadWriteOnce"),
        ),
    ],
)
def test_the_volume_is_as_the_flags_or_else_the_notebook_say(
    text: str | None, mode: str | None, about: About, wanted: VolumeRequest
) -> None:
    assert wanted_volume(text, mode, about) == wanted


def test_a_volume_of_which_nothing_is_said_is_shared_where_a_class_is_known_for_it() -> None:
    open_ = VolumeRequest(output=Output(), mode=None)
    assert settle_mode(open_, ["efs"]) == VolumeRequest(
        output=Output(storage_class="efs"), mode="ReadWriteMany"
    )
    assert settle_mode(open_, []) == VolumeRequest(output=Output(), mode="ReadWriteOnce")
    named = VolumeRequest(output=Output(storage_class="any"), mode="ReadWriteMany")
    assert settle_mode(named, ["efs"]) == named


def test_a_named_volume_has_its_own_mode() -> None:
    with pytest.raises(InvalidJob, match="is not for volume data, which exists"):
        wanted_volume("pvc:data", "rwx", About())
    with pytest.raises(InvalidJob, match="volume"):
        wanted_volume("data", None, About())
    assert not binds("data", ["ReadWriteMany", "ReadWriteOnce"])
    assert binds("data", ["ReadWriteOnce"])
    with pytest.raises(Unavailable, match="volume data is ReadOnlyMany"):
        binds("data", ["ReadOnlyMany"])


def test_a_step_on_several_nodes_is_refused_where_the_volume_is_for_one(tmp_path: Path) -> None:
    book = read_book(tmp_path, [("step:a distribute:torch workers:3 gpus:2", "x = 1"), ("step:b", "y = 1")])

    def node(name: str, gpus: int) -> Node:
        devices = tuple(Gpu(id=str(each)) for each in range(gpus))
        return Node(name=name, cpus=8, memory=2**34, free_cpus=8, free_memory=2**34, gpus=devices)

    small, large = Cluster(nodes=(node("a", 4), node("b", 4))), Cluster(nodes=(node("a", 8),))
    check_one_node(book.steps[0], 1, 2**30, "pvc:x", large)
    check_one_node(book.steps[1], 8, 2**30, "pvc:x", small)
    check_one_node(book.steps[0], 1, 2**30, "pvc:x", Cluster(nodes=(), known=False))
    with pytest.raises(InvalidNotebook, match="step a: its 3 workers do not fit on one node, and pvc:x"):
        check_one_node(book.steps[0], 1, 2**30, "pvc:x", small)
    with pytest.raises(InvalidNotebook, match="ReadWriteOnce"):
        check_one_node(book.steps[0], 3, 2**30, "pvc:x", large)


def test_a_run_is_continued_where_its_variables_are(tmp_path: Path) -> None:
    here = PipelineRecord(name="book-1", notebook="book.ipynb", created=0.0)
    check_same_place(here, MemoryEngine(), "train")
    with pytest.raises(InvalidJob, match=r"book-1, whose variables are on the cluster"):
        check_same_place(replace(here, on="the cluster", volume=VOLUME), MemoryEngine(), "train")


def test_outside_of_a_pod_there_is_no_image_of_ones_own() -> None:
    assert own_image(MemoryEngine(), {"HOSTNAME": "laptop"}) is None
    assert own_image(MemoryEngine(), {"HOSTNAME": "x", "KUBERNETES_SERVICE_HOST": "10.0.0.1"}) is None


def test_a_pipelines_name_stands_for_all_of_its_steps(
    cli: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    from tests.notebook.books import write_book

    write_book(Path("book.ipynb"), [("step:a", "x = 1"), ("step:b prev:a", "print(x)")])
    assert cli("notebook", "run", "book.ipynb").returncode == 0
    listed = cli("status", "book-1").stdout.splitlines()
    assert listed[0].split() == ["book-1", "succeeded"]
    assert {tuple(line.split()) for line in listed} >= {
        ("command", "notebook", "book.ipynb"),
        ("results", "runs/book-1"),
        ("exit", "code", "0"),
    }
    assert [line.split()[0] for line in listed[2:4]] == ["started", "elapsed"]
    assert [line.split()[:2] for line in listed[-2:]] == [["a", "succeeded"], ["b", "succeeded"]]
    assert cli("logs", "book-1").stdout == "[b] 1\n"
    assert cli("logs", "-f", "book-1").stdout == "[b] 1\n"
    removed = cli("rm", "book-1", "--on", "local")
    assert (removed.returncode, removed.stdout.split()) == (0, ["book-1"])
    assert Path("runs/book-1/steps/a").is_dir()  # results stay
    assert cli("rm", "book-1", "--on", "local").returncode != 0


def test_files_that_cannot_be_brought_home_are_told(tmp_path: Path) -> None:
    place = in_pods(tmp_path)  # an engine without volumes
    assert place.close().startswith("the files of the steps stay on pvc:book-1/book-1/work: ")
    assert place.last_cell(place.pipeline.steps[0]) is None
