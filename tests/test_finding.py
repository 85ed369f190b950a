"""From what a user says to a run: names, steps, places. To look for one in the place that was not asked for
costs nothing when that place is not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import echelon
from echelon.errors import InvalidJob, UnknownRun
from echelon.finding import earlier_pipelines, find
from echelon.model.program import Step
from echelon.model.step_names import cut_names, run_name
from echelon.preparation.sources import Target
from tests.parents import IN_CLUSTER, Cluster, end, parent, put_there, step_run


def test_no_kubeconfig_is_no_trouble(home: Path) -> None:
    with pytest.raises(UnknownRun, match="no run named 'fm'"):
        echelon.attach("fm")


def test_a_cluster_that_does_not_answer_is_not_waited_for(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from echelon import finding

    with socket.create_server(("127.0.0.1", 0)) as silent:  # it takes connections and says nothing
        config = tmp_path / "kubeconfig"
        config.write_text(
            f"""
            apiVersion: v1
            kind: Config
            current-context: c
            contexts: [{{name: c, context: {{cluster: c, user: u}}}}]
            clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{silent.getsockname()[1]}"}}}}]
            users: [{{name: u, user: {{}}}}]
            """
        )
        monkeypatch.setenv("KUBECONFIG", str(config))
        monkeypatch.setattr(finding, "_PATIENCE", 0.2)
        with pytest.raises(UnknownRun, match="no run named 'fm'") as unknown:
            echelon.attach("fm")
        assert (
            "the cluster could not be asked: it has not answered within 0.2 s; `echelon ps -a`"
            in unknown.value.hint
        )


def found(text: str, target: Target | None = None) -> str:
    return str(find(text, target or Target())[0])


@pytest.mark.core
def test_a_step_is_found_by_its_parent_and_its_name(home: Path) -> None:
    load = step_run("load_data", name="t-1-load-data")
    run = parent(Step(name="load_data", state="succeeded", run=str(load)))
    for text in ("t-1/load_data", "t-1/load-data", "local://t-1/load_data", "t-1-load-data"):
        assert found(text) == "local://t-1-load-data"
    end(run)
    run = echelon.attach("t-1")
    assert run.name == "t-1"
    assert found("t-1", Target(on="local")) == "local://t-1"


def test_names_that_were_cut_are_known_uncut(home: Path) -> None:
    step = "load_the_training_data"
    (cut,) = cut_names("a-rather-long-notebook-name-1")
    job_name = run_name(cut, step)
    run = step_run(step, of=cut, name=job_name)
    end(parent(Step(name=step, state="succeeded", run=str(run)), name=cut))
    for text in (
        f"a-rather-long-notebook-name-1/{step}",
        f"a-rather-long-notebook-name-1-{step}",
        f"{cut}/{step.replace('_', '-')}",
    ):
        assert found(text) == f"local://{job_name}"
    assert found("a-rather-long-notebook-name-1") == f"local://{cut}"
    with pytest.raises(UnknownRun):
        found(f"a-rather-long-notebook-name-2/{step}")


@pytest.mark.parametrize(
    ("step", "said", "hint"),
    [
        ("waits", "step waits of t-1 is waiting: it has no run yet", "`echelon status t-1` shows every step"),
        ("taken", "step taken of t-1 was taken from an earlier run: cached", "`echelon status t-1`"),
        ("after", "step after of t-1 was not reached: it has no run", "`echelon status t-1`"),
        ("big", "step big of t-1 has no run: failed: no node has 8 GPUs", "ask for fewer"),
        ("gone", "step gone of t-1 has no run any more: it was removed", "`echelon status t-1`"),
        ("other", "run 't-1' has no step 'other'", "its steps are waits, taken, after, big, gone"),
        ("", "run 't-1' has no step ''", "its steps are waits"),
    ],
)
def test_a_step_without_a_run_is_told_why(home: Path, step: str, said: str, hint: str) -> None:
    run = parent(
        Step(name="waits"),
        Step(name="taken", state="cached"),
        Step(name="after", state="not-reached"),
        Step(name="big", state="failed", reason="no node has 8 GPUs", hint="ask for fewer"),
        Step(name="gone", state="succeeded", run="local://t-1-gone"),
    )
    with pytest.raises(UnknownRun) as unknown:
        found(f"t-1/{step}")
    assert unknown.value.message == said
    assert hint in unknown.value.hint
    run.stop(now=True)


def test_what_is_made_of_runs_of_a_cluster_is_found_there(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    put_there(monkeypatch, cluster)
    step = step_run("load", engine=cluster)
    end(parent(Step(name="load", state="succeeded", run=str(step)), program=IN_CLUSTER))
    end(parent(name="here-1"))
    there = Target(on="k8s")
    assert found("t-1", there) == found("t-1") == "local://t-1"
    assert found("t-1/load", there) == found("t-1/load") == str(step)
    for target in (Target(on="k8s", namespace="other"), Target(on="k8s", context="other")):
        with pytest.raises(UnknownRun):
            found("t-1", target)
    with pytest.raises(UnknownRun):
        found("here-1", there)


def test_steps_of_another_machine_have_names_and_no_parent(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster()
    put_there(monkeypatch, cluster)
    step = step_run("load", engine=cluster)
    told: list[str] = []
    ref, _engine = find("t-1/load", Target(), told.append)
    assert str(ref) == str(step)
    assert told == [f"run t-1/load is {step}"]
    with pytest.raises(UnknownRun) as unknown:
        found("t-1", Target(on="k8s"))
    assert "one run for each step: t-1-load" in unknown.value.hint
    with pytest.raises(UnknownRun, match="no run 't-1/train'"):
        found("t-1/train")
    with pytest.raises(InvalidJob, match="'My run/x' is not a run's name"):
        found("My run/x")


def test_the_newest_run_of_a_folder_is_the_parent_of_its_steps(home: Path) -> None:
    run = parent(Step(name="load"))
    step_run("load")
    assert str(find(None, Target())[0]) == "local://t-1"
    end(run)
    run.remove()
    step_run("alone", of="t-2")
    assert str(find(None, Target())[0]) == "local://t-2-alone"


def test_a_pipeline_of_an_earlier_version_is_told_where_its_results_are(home: Path) -> None:
    folder = Path("runs/old-1").absolute()
    folder.mkdir(parents=True)
    (folder / "pipeline.json").write_text("{}")
    kept = home / "pipelines"
    kept.mkdir(parents=True)
    for name, place in (("old-1", str(folder)), ("gone-1", "/nowhere"), ("odd-1", 3)):
        (kept / f"{name}.json").write_text(json.dumps({"folder": place}))
    (kept / "noise.json").write_text("{")
    assert earlier_pipelines() == {"old-1": folder}
    for text in ("old-1", "old-1/train"):
        with pytest.raises(UnknownRun) as unknown:
            found(text)
        assert str(folder) in unknown.value.hint
