"""A job as the job file that asks for it again: read back it is the same job, or a comment says what not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from echelon.jobfile import read_job_file
from echelon.jobfile.of_job import job_file_of
from echelon.model.job import Job
from echelon.model.meaning import to_job
from echelon.model.settings import Settings


@pytest.mark.parametrize(
    "given",
    [
        {"script": "train.py", "args": ["--lr", "0.1", "yes", "7"], "workers": 2, "framework": "torch"},
        {"module": "pkg.train", "gpus": 2, "gpu_type": "H100", "cpus": "0.5:2", "memory": "16Gi", "procs": 1},
        {"command": ["echo", "a b"], "env": {"A": "1", "B": "x: y"}, "secret": ["TOKEN", "KEY=@key.txt"]},
        {"script": "t.py", "timeout": "90m", "restarts": 3, "priority": -2, "queue_timeout": "12h"},
        {
            "script": "t.py",
            "image": "my/torch:2",
            "mount": ["pvc:data:/data:ro", "emptydir::/scratch", "nfs:host:/export:/mnt"],
            "toleration": ["gpu", "team=a:NoSchedule"],
            "node_selector": {"zone": "a"},
            "label": {"team": "a"},
            "pip": ["numpy"],
            "shm": "1Gi",
            "keep": "1h:5Gi",
            "checkpoints": "ckpt",
            "scale_up": True,
            "resource": {"rdma/ib": 1},
        },
        {
            "script": "t.py",
            "metric_pattern": [r"loss=(?P<loss>\S+)"],
            "include": ["data/*"],
            "snapshot": True,
        },
    ],
)
def test_it_reads_as_the_same_job(tmp_path: Path, given: dict[str, Any]) -> None:
    job = to_job(Settings(name="fm", **given), name="fm")
    text = job_file_of(job)
    assert "#" not in text
    path = tmp_path / "job.yaml"
    path.write_text(text)
    read = to_job(read_job_file(path), name="other")
    if job.script is not None:  # paths of a job file are seen from its folder
        assert (read.script or "").endswith(job.script)
        read = replace(read, script=job.script)
    secrets = [(each.name, Path(each.file or "").name) for each in read.secrets]
    assert secrets == [(each.name, Path(each.file or "").name) for each in job.secrets]
    assert replace(read, secrets=(), results=None) == replace(job, secrets=(), results=None)


def test_what_it_cannot_say_is_a_comment(tmp_path: Path) -> None:
    job = to_job(Settings(name="fm", script="t.py", total_gpus="4..8", roles={"ps": 1}), name="fm")
    text = job_file_of(replace(job, python="/usr/bin/python3", cwd="/home/ann"))
    assert "# shape:" in text
    assert "# roles:" in text
    assert "/home/ann" not in text  # found anew by every run
    path = tmp_path / "job.yaml"
    path.write_text(text)
    assert read_job_file(path).name == "fm"
    assert job_file_of(Job(name="fm", script="t.py")) == "name: fm\nscript: t.py\nframework: auto\n"
