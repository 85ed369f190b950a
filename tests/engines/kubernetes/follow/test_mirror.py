"""That the objects of a run are known as the API server has them, whatever happens to the connection."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.follow.conftest import Threads
from tests.engines.kubernetes.stand_in import StandIn, cuts, refuses, says, streams, waits

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.follow.mirror import Mirror, Mirrors
from echelon.errors import Denied, Unreachable


@pytest.fixture
def api(access: Access, stand_in: StandIn) -> Api:
    return Api(access, "ours", patience=0.1)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Set when the test is over, so that the server's threads end."""
    event = threading.Event()
    yield event
    event.set()


def pod(name: str, version: int) -> Object:
    made = f"2026-01-01T00:00:0{name[-1]}Z"
    about = {"name": name, "uid": f"uid-{name}", "creationTimestamp": made, "resourceVersion": str(version)}
    return {"kind": "Pod", "metadata": about}


def listing(version: int, *pods: Object) -> Object:
    return {"kind": "PodList", "metadata": {"resourceVersion": str(version)}, "items": list(pods)}


def words(*changes: tuple[str, Object]) -> list[bytes]:
    return [json.dumps({"type": word, "object": obj}).encode() + b"\n" for word, obj in changes]


def names(mirror: Mirror) -> list[str]:
    return [each.metadata.name for each in mirror.pods()]


def test_what_is_there_and_what_changes(api: Api, stand_in: StandIn, over: threading.Event) -> None:
    changes = words(("ADDED", pod("c-3", 11)), ("DELETED", pod("a-1", 12)))
    stand_in.answer_with(
        says(200, listing(10, pod("b-2", 9), pod("a-1", 8))), streams(changes, then=waits(over))
    )
    with Mirror(api, {"Pod": "run=x"}) as mirror:
        assert mirror.is_ready(30)
        wait_until(lambda: names(mirror) == ["b-2", "c-3"], "both changes")
        assert mirror.trouble is None
    assert "labelSelector=run%3Dx" in stand_in.paths()[1]
    assert "resourceVersion=10" in stand_in.paths()[1]


def test_a_watch_that_ends_is_taken_up_where_it_was(
    api: Api, stand_in: StandIn, over: threading.Event
) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "15"}}
    stand_in.answer_with(
        says(200, listing(10)),
        streams(words(("ADDED", pod("a-1", 12)), ("BOOKMARK", bookmark))),
        streams(words(("ADDED", pod("b-2", 16))), then=waits(over)),
    )
    with Mirror(api, {"Pod": ""}) as mirror:
        wait_until(lambda: mirror.is_ready(1) and names(mirror) == ["a-1", "b-2"], "both pods")
    assert "resourceVersion=15" in stand_in.paths()[2]


def test_a_version_that_is_too_old_begins_anew(api: Api, stand_in: StandIn, over: threading.Event) -> None:
    gone = {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}
    stand_in.answer_with(
        says(200, listing(10, pod("a-1", 9))),
        streams(words(("ERROR", gone))),
        says(200, listing(20, pod("b-2", 19))),
        waits(over),
    )
    with Mirror(api, {"Pod": ""}) as mirror:
        wait_until(lambda: mirror.is_ready(1) and names(mirror) == ["b-2"], "the new list")


def test_a_server_that_is_away_is_told_and_waited_for(
    api: Api, stand_in: StandIn, over: threading.Event
) -> None:
    stand_in.answer_with(says(200, listing(10, pod("a-1", 9))), cuts)
    with Mirror(api, {"Pod": ""}) as mirror:
        assert mirror.is_ready(30)
        wait_until(lambda: mirror.trouble is not None, "the silence to be noticed")
        assert isinstance(mirror.trouble, Unreachable)
        assert names(mirror) == ["a-1"]  # as it was last heard of
        stand_in.answer_with(says(200, listing(20, pod("b-2", 19))), waits(over))
        wait_until(lambda: mirror.trouble is None, "the cluster to be heard of again")
        assert names(mirror) == ["b-2"]


def test_a_server_that_never_answers_keeps_nobody_waiting(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(cuts)
    with Mirror(api, {"Pod": ""}) as mirror:
        assert not mirror.is_ready(0.1)


def test_a_kind_that_is_served_no_longer_has_no_objects(api: Api, stand_in: StandIn) -> None:
    """As when an administrator removes a CustomResourceDefinition; its objects are deleted with it."""
    removed = refuses(404, "NotFound", "the server could not find the requested resource")
    stand_in.answer_with(says(200, listing(10, pod("a-1", 9))), streams([]), removed)
    with Mirror(api, {"Pod": ""}) as mirror:
        assert mirror.is_ready(30)
        assert names(mirror) == ["a-1"]
        wait_until(lambda: not names(mirror), "the objects to be gone")
        assert mirror.trouble is None


def test_a_kind_that_was_never_served_keeps_nobody_waiting(api: Api, stand_in: StandIn) -> None:
    stand_in.answer_with(refuses(404, "NotFound", "the server could not find the requested resource"))
    with Mirror(api, {"Pod": ""}) as mirror:
        wait_until(lambda: mirror.is_ready(1), "the kind to count as read")
        assert names(mirror) == []


def test_a_missing_right_is_said(api: Api, stand_in: StandIn) -> None:
    words = (
        'pods is forbidden: User "ann" cannot list resource "pods" in API group "" in the namespace "ours"'
    )
    stand_in.answer_with(refuses(403, "Forbidden", words))
    with Mirror(api, {"Pod": ""}) as mirror, pytest.raises(Denied):
        mirror.is_ready(30)


def test_an_odd_answer_is_said_and_hangs_nobody(api: Api, stand_in: StandIn, threads: Threads) -> None:
    stand_in.answer_with(says(200, listing(10)), streams([b"[]\n"]))
    with Mirror(api, {"Pod": ""}) as mirror:
        wait_until(lambda: mirror.trouble, "the trouble")
        assert "does not answer as an API server does" in str(mirror.trouble)
    wait_until(lambda: not threads("watch Pod"), "its thread to end")


def test_an_object_without_a_name_is_left_out(api: Api, stand_in: StandIn, over: threading.Event) -> None:
    odd = words(("ADDED", {"kind": "Pod"}), ("ADDED", pod("p2", 11)))
    stand_in.answer_with(says(200, listing(10)), streams(odd, then=waits(over)))
    with Mirror(api, {"Pod": ""}) as mirror:
        wait_until(lambda: mirror.is_ready(1) and names(mirror), "the object that has one")
        assert names(mirror) == ["p2"]


def test_leaving_ends_its_threads(
    api: Api, stand_in: StandIn, over: threading.Event, threads: Threads
) -> None:
    stand_in.answer_with(says(200, listing(10)), streams([], then=waits(over)))
    with Mirror(api, {"Pod": ""}) as mirror:
        assert mirror.is_ready(30)
        wait_until(lambda: len(stand_in.seen) == 2, "the watch")
        assert threads("watch Pod")
    wait_until(lambda: not threads("watch Pod"), "its thread to end")


def test_leaving_while_the_server_is_away_ends_its_threads(
    api: Api, stand_in: StandIn, threads: Threads
) -> None:
    stand_in.answer_with(cuts)
    with Mirror(api, {"Pod": ""}):
        wait_until(lambda: stand_in.seen, "a try")
    wait_until(lambda: not threads("watch Pod"), "its thread to end")


def test_two_readers_have_one_mirror_until_both_have_left(
    api: Api, stand_in: StandIn, over: threading.Event, threads: Threads
) -> None:
    watched = (says(200, listing(10, pod("a-1", 8))), streams([], then=waits(over)))
    stand_in.answer_with(*watched, *watched)
    mirrors = Mirrors()
    with mirrors.reading("run", lambda: Mirror(api, {"Pod": ""})) as first:
        with mirrors.reading("run", lambda: Mirror(api, {"Pod": ""})) as second:
            assert second is first
            assert second.is_ready(30)
        wait_until(lambda: len(stand_in.seen) == 2, "the watch")
        assert names(first) == ["a-1"]
        assert threads("watch Pod"), "who has left ends nothing for the other"
    wait_until(lambda: not threads("watch Pod"), "its thread to end")
    assert len(stand_in.seen) == 2
    with mirrors.reading("run", lambda: Mirror(api, {"Pod": ""})) as later:
        assert later is not first
        assert later.is_ready(30)
