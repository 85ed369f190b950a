"""The priority that a namespace allows, and what a submission is told that asks for more."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.engines.kubernetes.stand_in import StandIn, refuses, says

import echelon
from echelon.cli import main
from echelon.engines.kubernetes.client.api import Api
from echelon.engines.kubernetes.client.place import Place
from echelon.engines.kubernetes.prerequisites.namespace import check_priority
from echelon.engines.kubernetes.prerequisites.priorities import most_priority
from echelon.errors import InvalidJob
from echelon.model.job import Job
from echelon.model.pods.pod import PodOptions


def namespace(**annotations: str) -> dict[str, Any]:
    about = {f"echelon.dev/{name.replace('_', '-')}": text for name, text in annotations.items()}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns", "annotations": about}}


def job(priority: int) -> Job:
    return Job(name="a", script="a.py", priority=priority)


def test_what_the_annotation_says() -> None:
    assert most_priority(namespace(max_priority="10")) == 10
    assert most_priority(namespace(max_priority="-1")) == -1
    assert most_priority(namespace(max_priority="high")) is None
    assert most_priority(namespace()) is most_priority({}) is most_priority(None) is None


def test_more_than_the_namespace_allows_is_refused(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(says(200, json.dumps(namespace(max_priority="3")).encode()))
    check_priority(api, job(3))
    with pytest.raises(InvalidJob, match="allows, which is 3") as refused:
        check_priority(api, job(4))
    assert "kubectl annotate namespace" in refused.value.hint


def test_a_priority_that_kueue_does_not_heed_is_refused(api: Api, stand_in: StandIn) -> None:
    for priority in (3, -3):
        wanted = Job(name="a", script="a.py", priority=priority, pod=PodOptions(queue="team"))
        with pytest.raises(InvalidJob, match="has no effect in Kueue's queue team") as refused:
            check_priority(api, wanted)
        assert "--priority-class" in refused.value.hint
        assert "--label kueue.x-k8s.io/priority-class=NAME" in refused.value.hint
    check_priority(api, Job(name="a", script="a.py", pod=PodOptions(queue="team")))
    assert stand_in.seen == []


def test_what_may_not_be_read_is_not_judged(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(
        refuses(
            403,
            "Forbidden",
            'namespaces "ns" is forbidden: User "ann" cannot get resource "namespaces" in API group ""',
        )
    )
    check_priority(api, job(1))


def test_a_run_that_asks_for_no_priority_costs_no_request(api: Api, stand_in: StandIn) -> None:
    check_priority(api, job(0))
    check_priority(api, job(-5))
    assert stand_in.seen == []


TOGETHER = {"priority": 5, "local_queue": "team", "image": "python", "on": "k8s"}


def by_flags() -> int:
    return main.call(
        ["run", "--on", "k8s", "--image", "python", "--local-queue", "team", "--priority", "5", "t.py"]
    )


def by_job_file() -> int:
    Path("job.yaml").write_text(json.dumps({"script": "t.py", **TOGETHER}))
    return main.call(["run", "-d", "-f", "job.yaml"])


def by_project() -> int:
    said = "\n".join(f"{key} = {json.dumps(value)}" for key, value in TOGETHER.items())
    Path("pyproject.toml").write_text(f"[tool.echelon]\n{said}\n")
    return main.call(["run", "--dry-run", "t.py"])


def by_python() -> int:
    try:
        echelon.run("t.py", **TOGETHER)
    except InvalidJob as error:
        print(f"{error}\n{error.hint}", file=sys.stderr)
        return error.exit_code
    return 0


@pytest.mark.parametrize("way", [by_flags, by_job_file, by_project, by_python])
def test_it_is_refused_however_it_is_said(
    way: Callable[[], int],
    home: Path,
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("t.py").touch()
    monkeypatch.setattr(Place, "connect", lambda _place: api)
    assert way() == 110
    told = capsys.readouterr().err
    assert "has no effect in Kueue's queue team" in told
    assert "--label kueue.x-k8s.io/priority-class=NAME" in told
