"""That many logs are read at once, and that leaving leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import wait_until
from tests.engines.kubernetes.follow.conftest import Threads
from tests.engines.kubernetes.small import RUNNING, pod_object
from tests.engines.kubernetes.stand_in import Answer, StandIn, refuses, says, streams, waits

from echelon.engines.kubernetes.client.api import Api, Object
from echelon.engines.kubernetes.client.login.access import Access
from echelon.engines.kubernetes.follow.mirror import Mirror
from echelon.engines.kubernetes.follow.pod_lines import PodLines
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.errors import Denied
from echelon.model.output.log import LogLine

WORKERS = 40


@pytest.fixture
def over() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def pods(count: int) -> list[Object]:
    return [
        pod_object(worker, state=RUNNING, uid=f"uid-{worker}", resourceVersion="1") for worker in range(count)
    ]


def serve(stand_in: StandIn, found: list[Object], log: Answer, over: threading.Event) -> None:
    """A server with these pods, whose logs are all alike."""
    everything = {"kind": "PodList", "metadata": {"resourceVersion": "1"}, "items": found}

    def answer(handler: object) -> None:
        path = handler.path  # type: ignore[attr-defined]
        chosen = log if "/log?" in path else waits(over) if "watch=" in path else says(200, everything)
        chosen(handler)  # type: ignore[arg-type]

    stand_in.answer_with(answer)


def taken(lines: PodLines, count: int) -> list[tuple[str, str]]:
    got: list[tuple[str, str]] = []

    def take() -> bool:
        for where, line in lines.take(0.1):
            if isinstance(line, LogLine):
                got.append((where.metadata.uid, line.text))
        return len(got) >= count

    wait_until(take, f"{count} lines")
    return got


def test_all_pods_at_once_and_nothing_stays(
    access: Access, stand_in: StandIn, over: threading.Event, threads: Threads
) -> None:
    serve(stand_in, pods(WORKERS), streams([b"1.0 0 [0] hello\n"], then=waits(over)), over)
    api = Api(access, "ours", patience=0.1)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror) as lines:
        assert mirror.is_ready(30)
        got = taken(lines, WORKERS)
        assert sorted(got) == sorted((f"uid-{worker}", "hello") for worker in range(WORKERS))
        # A reader that the server cut off begins again, and one of another test may be about to end.
        wait_until(lambda: len(lines.reading) == len(threads("log ")) == WORKERS, "a reader for each")
    wait_until(lambda: not threads("log "), "its threads to end")


def test_who_has_said_its_last_word_is_not_waited_for(
    access: Access, stand_in: StandIn, over: threading.Event, threads: Threads
) -> None:
    last = b'2.0 1 [event] {"kind": "worker-ended", "worker": 0}\n'
    serve(stand_in, pods(1), streams([b"1.0 0 [0] bye\n" + last], then=waits(over)), over)
    api = Api(access, "ours", patience=0.1)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror) as lines:
        assert mirror.is_ready(30)
        assert taken(lines, 1) == [("uid-0", "bye")]
        wait_until(lambda: not list(lines.take(0.1)) and not lines.reading, "it to be done with")
        wait_until(lambda: not threads("log "), "its thread to end")


def test_leaving_while_nobody_takes_the_lines(
    access: Access, stand_in: StandIn, over: threading.Event, threads: Threads
) -> None:
    """A flood is held up, not kept in memory; and whoever leaves is not held up by it."""
    sent = threading.Semaphore(0)

    def flood(handler: object) -> None:
        def forever() -> Iterator[bytes]:
            for number in range(10**9):
                if over.is_set():
                    return
                sent.release()
                yield b"".join(b"1.0 %d [0] %s\n" % (number * 100 + each, b"x" * 100) for each in range(100))

        streams(forever())(handler)  # type: ignore[arg-type]

    serve(stand_in, pods(1), flood, over)
    api = Api(access, "ours", patience=0.1)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror) as lines:
        assert mirror.is_ready(30)
        assert taken(lines, 1)
        wait_until(lines._lines.full, "so many lines that they wait")
    wait_until(lambda: not threads("log "), "its thread to end")


def test_a_reader_that_pauses_keeps_no_line_from_the_disk(
    access: Access, stand_in: StandIn, over: threading.Event, threads: Threads, tmp_path: Path
) -> None:
    """More than fits into the queue and every buffer on the way; what the reader takes later is all of it."""
    count = 50_000
    pieces = [
        b"".join(b"1.0 %d [0] %0100d\n" % (number, number) for number in range(at, at + 100))
        for at in range(0, count, 100)
    ]
    serve(stand_in, pods(1), streams(pieces, then=waits(over)), over)
    api = Api(access, "ours", patience=0.1)
    streamed = StreamedLogs(tmp_path / "logs", pytest.fail)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror, streamed=streamed) as lines:
        assert mirror.is_ready(30)
        assert next(lines.take(10))[1].sequence == 0
        saved = tmp_path / "logs" / "rank-0.log"
        wait_until(
            lambda: saved.exists() and saved.stat().st_size == count * 101, "every line to be on the disk"
        )
        assert [int(text) for _, text in taken(lines, count - 100)][-1] == count - 1
    streamed.close()
    wait_until(lambda: not threads("log "), "its thread to end")


def test_taking_ends_now_and_then_however_much_comes(
    access: Access, stand_in: StandIn, over: threading.Event
) -> None:
    many = b"".join(b"1.0 %d [0] %s\n" % (number, b"x" * 500) for number in range(20_000))
    serve(stand_in, pods(1), streams([many], then=waits(over)), over)
    api = Api(access, "ours", patience=0.1)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror) as lines:
        assert mirror.is_ready(30)
        counts: list[int] = []
        while sum(counts) < 20_000:
            counts.append(len(list(lines.take(5.0))))
        assert len(counts) > 1


def test_a_missing_right_is_said(access: Access, stand_in: StandIn, over: threading.Event) -> None:
    words = 'pods "p" is forbidden: User "ann" cannot get resource "pods/log" in API group ""'
    serve(stand_in, pods(1), refuses(403, "Forbidden", words), over)
    api = Api(access, "ours", patience=0.1)
    with Mirror(api, {"Pod": ""}) as mirror, PodLines(api, mirror) as lines:
        assert mirror.is_ready(30)
        with pytest.raises(Denied):
            taken(lines, 1)
