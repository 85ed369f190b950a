"""What the diagnosis says: of real objects (`taken.py` keeps them, `sentences.txt` has what must be said
of each), and of what the testbed does not bring about, in words that other versions and clouds document."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from testbed.kubectl import Object
from tests.engines.kubernetes.small import job, pod
from tests.engines.kubernetes.taken import OBJECTS, SENTENCES, load
from tests.engines.kubernetes.typed import typed

from echelon.engines.kubernetes import shapes
from echelon.engines.kubernetes.diagnose import PATIENCE, Trouble, diagnose, gives_up
from echelon.engines.kubernetes.diagnose.trouble import Finding, name_workers, report
from echelon.engines.kubernetes.fields import clock, moment

NOW = moment("2026-01-01T00:10:00Z") or 0.0


def sentences() -> dict[str, tuple[str, str, str]]:
    found = {}
    blocks = SENTENCES.read_text().split("\n\n")[1:]
    for block in blocks:
        head, sentence, hint = block.strip().split("\n")
        name, _, kind = head.partition(": ")
        found[name] = (kind, sentence.strip(), hint.strip())
    return found


def said(trouble: Trouble) -> tuple[str, str, str]:
    return f"{trouble.kind}{'' if trouble.healable else '!'}", trouble.sentence, trouble.hint


@pytest.mark.parametrize(("name", "words"), sentences().items(), ids=sentences())
def test_what_is_said_of_a_situation(name: str, words: tuple[str, str, str]) -> None:
    seen = load(name)
    first = seen.troubles()[0]
    one = seen.read_pods()[0] if seen.pods else pod()
    ready = one.status.condition("Ready")
    chance = {
        "{node}": one.spec.node_name,
        "{since}": clock(ready.last_transition_time if ready else None),
    }
    for mark, found in chance.items():
        words = (words[0], words[1].replace(mark, found), words[2].replace(mark, found))
    assert said(first) == words
    assert first.since is not None
    assert 0 <= seen.at - first.since < 60
    assert "\n" not in first.sentence + first.hint


def test_every_situation_has_its_sentence() -> None:
    taken = {path.stem for path in OBJECTS.glob("*.json") if not path.stem.startswith("end-")}
    assert taken == sentences().keys()


@pytest.mark.parametrize("name", sorted(path.stem for path in OBJECTS.glob("end-*.json")))
def test_a_run_that_has_ended_has_no_trouble(name: str) -> None:
    assert load(name).troubles() == []


@pytest.mark.parametrize("name", sentences())
def test_something_is_said_without_the_right_to_look_around(name: str) -> None:
    """Who may see only the run's own Jobs and pods is told less, but never nothing wrong."""
    alone = replace(load(name), events=())
    found = alone.troubles(nodes=None, claims=None)
    needs_events = name.startswith(("refused", "mount", "sandbox"))
    if needs_events:
        assert all(each.healable for each in found)
    else:
        assert found[0].kind.split("-")[0] in (
            sentences()[name][0].rstrip("!").split("-")[0],
            "unschedulable",
        )


# What the testbed does not bring about


def event(reason: str, message: str, *, at: str = "2026-01-01T00:09:30Z", kind: str = "Pod") -> Object:
    return {
        "involvedObject": {"kind": kind, "name": "demo-0-abcde" if kind == "Pod" else "demo"},
        "reason": reason,
        "message": message,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "metadata": {"creationTimestamp": at},
    }


def starting(
    reason: str, message: str = "", *, events: Sequence[Object] | None = (), **spec: Any
) -> list[Trouble]:
    one = pod(
        0,
        state={"waiting": {"reason": reason, "message": message}},
        status={"phase": "Pending", "startTime": "2026-01-01T00:09:00Z"},
        container={"image": "team/torch:2"},
        spec=spec,
    )
    told = None if events is None else typed(shapes.Event, events)
    return diagnose(jobs=[job(workers=1)], pods=[one], now=NOW, events=told)


VOLUMES = [
    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    {"name": "nfs", "nfs": {"server": "files", "path": "/export"}},
]


def documented() -> dict[str, list[str]]:
    blocks = SENTENCES.with_name("documented.txt").read_text().split("\n\n")[1:]
    return {(lines := [line.strip() for line in block.strip().split("\n")])[0]: lines[1:] for block in blocks}


@pytest.mark.parametrize(("title", "words"), documented().items(), ids=documented())
def test_words_that_the_testbed_does_not_say(title: str, words: list[str]) -> None:
    message, kind, sentence = words
    reason = title.partition(":")[0]
    if reason == "ImagePullBackOff":
        (trouble,) = starting(reason, message)
    else:
        (trouble,) = starting("ContainerCreating", events=[event(reason, message)], volumes=VOLUMES)
    assert said(trouble)[:2] == (kind, sentence)


def test_a_login_that_is_refused_names_its_secret() -> None:
    message = "failed to authorize: failed to fetch oauth token: unexpected status: 401 Unauthorized"
    (trouble,) = starting("ErrImagePull", message, imagePullSecrets=[{"name": "mine"}])
    words = "image team/torch:2 cannot be pulled: its registry refuses the login in pull secret mine"
    assert trouble.sentence == words


def test_a_back_off_that_does_not_say_why_is_explained_by_its_event() -> None:
    """As before Kubernetes 1.30."""
    failed = event(
        "Failed", 'Failed to pull image "team/torch:2": rpc error: code = NotFound desc = not found'
    )
    (trouble,) = starting("ImagePullBackOff", 'Back-off pulling image "team/torch:2"', events=[failed])
    assert trouble.sentence == "image team/torch:2 does not exist"
    assert trouble.since == moment("2026-01-01T00:09:30Z")


def test_an_image_on_its_way_is_no_failure() -> None:
    pulling = event("Pulling", 'Pulling image "team/torch:2"')
    (trouble,) = starting("ContainerCreating", events=[pulling])
    assert said(trouble)[:2] == ("pulling", "image team/torch:2 is being pulled for worker 0")


def test_a_volume_trouble_that_is_over_is_not_told() -> None:
    mount = event("FailedMount", 'MountVolume.SetUp failed for volume "data" : configmap "a" not found')
    later = event("Pulling", 'Pulling image "team/torch:2"', at="2026-01-01T00:09:50Z")
    assert [each.kind for each in starting("ContainerCreating", events=[mount])] == ["mount"]
    assert [each.kind for each in starting("ContainerCreating", events=[mount, later])] == ["pulling"]


def test_a_node_that_does_not_take_up_a_pod() -> None:
    bound = {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:09:00Z"}
    one = pod(0, status={"phase": "Pending", "conditions": [bound]})
    (trouble,) = diagnose(jobs=[job(workers=1)], pods=[one], now=NOW)
    words = "node node-a has not taken up the pod of worker 0 yet"
    assert (trouble.kind, trouble.sentence) == ("silent", words)
    assert diagnose(jobs=[job(workers=1)], pods=[one], now=NOW - 55) == []


def test_a_conflict_inside_the_scheduler_is_told_only_if_it_lasts() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "SchedulerError",
        "message": 'binding rejected: Operation cannot be fulfilled on pods/binding "demo-0-abcde"',
        "lastTransitionTime": "2026-01-01T00:09:50Z",
    }
    one = pod(0, status={"phase": "Pending", "conditions": [condition]}, spec={"nodeName": None})
    assert diagnose(jobs=[job(workers=1)], pods=[one], now=NOW) == []
    assert diagnose(jobs=[job(workers=1)], pods=[one], now=NOW + 60)


def test_without_the_right_to_list_events_that_is_said() -> None:
    made = {"status": {"startTime": "2026-01-01T00:09:50Z"}}
    (trouble,) = diagnose(jobs=[{**job(workers=1), **made}], pods=[], now=NOW, events=None)
    assert trouble.kind == "silent"
    assert "you may not list the events" in trouble.sentence
    (trouble,) = starting("ContainerCreating", events=None)
    assert trouble.kind == "pulling"
    assert "you may not list the events" in trouble.sentence
    assert [each.kind for each in starting("ImagePullBackOff", "not found", events=None)] == ["image"]
    assert starting("ContainerCreating", events=[]) == []


def test_a_default_image_is_given_up_soon_with_the_way_out() -> None:
    containers = [{"name": "worker", "image": "docker.io/library/python:3.12-slim"}]
    (trouble,) = starting("ErrImagePull", "dial tcp: lookup registry: no such host", containers=containers)
    assert (trouble.kind, trouble.healable) == ("default-image", False)
    assert "--image" in trouble.hint
    assert gives_up([trouble], NOW) == trouble
    (named,) = starting("ErrImagePull", "dial tcp: lookup registry: no such host")
    assert named.kind == "registry"


def test_a_worker_that_fails_again_and_again() -> None:
    seen = load("end-worn-out")
    going_on = [{**each, "status": {}} for each in seen.jobs]
    (trouble,) = replace(seen, jobs=going_on).troubles()
    words = "worker 0 was lost for the third time: its agent exited with code 7"
    assert (trouble.kind, trouble.sentence) == ("crash-loop", words)


def test_a_lost_worker_that_has_its_replacement_is_no_trouble() -> None:
    seen = load("lost-exit-code")
    again = copy.deepcopy(seen.pods[0])
    again["metadata"] |= {"name": "clumsy-0-again", "creationTimestamp": "2030-01-01T00:00:00Z"}
    again["status"]["phase"] = "Running"
    again["status"]["containerStatuses"][0]["state"] = {"running": {}}
    assert replace(seen, pods=[*seen.pods, again]).troubles() == []


def test_a_run_in_line_has_no_trouble() -> None:
    assert diagnose(jobs=[job(suspend=True)], pods=[], now=NOW) == []


def test_a_refusal_that_was_overcome_is_not_told() -> None:
    seen = load("refused-quota-full")
    refused = [each for each in seen.troubles() if each.kind == "quota"]
    assert refused
    assert refused[0].workers == (1,)
    later = copy.deepcopy(seen.pods[0])
    later["metadata"] |= {"name": "full-1-later", "creationTimestamp": "2030-01-01T00:00:00Z"}
    later["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"] = "1"
    found = replace(seen, pods=[*seen.pods, later]).troubles()
    assert [each.kind for each in found] == ["unschedulable"]


def test_a_combined_event_is_read_as_the_one_it_stands_for() -> None:
    seen = load("refused-service-account")
    combined = copy.deepcopy(list(seen.events))
    for each in combined:
        each["message"] = f"(combined from similar events): {each['message']}"
    assert replace(seen, events=combined).troubles()[0].sentence == seen.troubles()[0].sentence


def test_events_of_an_object_that_had_the_name_before_do_not_count() -> None:
    seen = load("refused-service-account")
    other = [{**each, "involvedObject": {**each["involvedObject"], "uid": "other"}} for each in seen.events]
    assert all(each.kind == "silent" for each in replace(seen, events=other).troubles())


# Order, and giving up


def test_the_same_of_several_workers_is_one_trouble() -> None:
    findings = [
        Finding(kind="unschedulable", text="no node for {who}", workers=(n,), since=10.0 + n)
        for n in (5, 1, 2, 3, 7)
    ]
    (trouble,) = report(findings)
    assert trouble.sentence == "no node for workers 1-3, 5, 7"
    assert (trouble.worker, trouble.workers, trouble.since) == (1, (1, 2, 3, 5, 7), 11.0)


def test_what_cannot_heal_comes_first() -> None:
    kinds: list[Any] = ["pulling", "unschedulable", "oom", "image", "refused"]
    findings = [Finding(kind=kind, text=kind, healable=kind not in ("image", "refused")) for kind in kinds]
    assert [each.kind for each in report(findings)] == ["refused", "image", "oom", "unschedulable", "pulling"]


@given(st.sets(st.integers(0, 200), min_size=1))
def test_workers_are_named_completely(workers: set[int]) -> None:
    named = name_workers(sorted(workers)).partition(" ")[2]
    found = set()
    for piece in named.split(", "):
        first, _, last = piece.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    assert found == workers


@pytest.mark.parametrize("name", sentences())
def test_a_trouble_that_cannot_heal_ends_the_run_in_bounded_time(name: str) -> None:
    seen = load(name)
    first = seen.troubles()[0]
    assert gives_up([first], first.since or 0.0) is None
    much_later = seen.at + 86400
    if first.healable:
        assert gives_up([first], much_later) is None
    else:
        assert first.since is not None
        limit = first.since + PATIENCE[first.kind]
        assert gives_up([first], limit - 0.1) is None
        assert gives_up([first], limit) == first
        assert PATIENCE[first.kind] <= 600


def test_what_has_no_beginning_is_not_given_up() -> None:
    unknown = Trouble(worker=0, kind="image", sentence="no", healable=False)
    assert gives_up([unknown], 1e12) is None


@pytest.mark.parametrize("situation", ["lost-preempted", "lost-drained"])
def test_a_run_that_has_restarts_is_not_advised_to_have_some(situation: str) -> None:
    seen = load(situation)
    assert "with --restarts the run goes on" in seen.troubles()[0].hint
    assert "--restarts" not in seen.troubles(restarts=True)[0].hint
