"""Output is on disk as it comes: each line once, whoever follows after whom, and never in a file that is not
the stream's own.
"""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from tests.conftest import wait_until

from echelon.engines.kubernetes.follow.log_files import forget_complete, read_notes
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
from echelon.engines.results import holds_results, is_streamed
from echelon.model.output.log import Line, parse_line

LAST = b'9.0 %d [event] {"kind": "worker-ended", "worker": %d}'


def lines(*raw: bytes, worker: int = 0) -> list[Line]:
    return [parse_line(each, worker) for each in raw]


def numbered(numbers: Iterable[int], rank: int = 0, text: str = "line") -> list[Line]:
    return lines(*(b"1.0 %d [%d] %s %d" % (each, rank, text.encode(), each) for each in numbers))


def wrote(numbers: Iterable[int], text: str = "line") -> str:
    return "".join(f"{text} {each}\n" for each in numbers)


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    return tmp_path / "run" / "logs"


class AtOnce(StreamedLogs):
    """Waits for no further lines."""

    def take(self, uid: str, lines: Sequence[Line]) -> None:
        super().take(uid, lines)
        self.flush()


def follower(logs: Path, *pods: tuple[str, int]) -> StreamedLogs:
    found = AtOnce(logs, pytest.fail)
    for uid, worker in pods or [("a", 0)]:
        found.begin(uid, worker)
    return found


def test_lines_are_on_disk_as_they_come(logs: Path) -> None:
    mine = follower(logs, ("a", 0), ("b", 1))
    assert not logs.exists()  # a run that prints nothing leaves nothing
    mine.take("a", numbered(range(3)))
    assert (logs / "rank-0.log").read_text() == wrote(range(3))
    mine.take("b", lines(b"1.0 0e [1] other", worker=1))
    assert (logs / "rank-1.log").read_text() == "other\n"
    mine.close()


def test_lines_are_written_soon_by_themselves_and_all_of_them(logs: Path) -> None:
    mine = StreamedLogs(logs, pytest.fail)
    mine.begin("a", 0)
    mine.take("a", numbered(range(3)))
    wait_until((logs / "rank-0.log").exists, "the lines to be on disk")
    for at in range(3, 60_003, 100):
        mine.take("a", numbered(range(at, at + 100)))
    mine.close()
    assert (logs / "rank-0.log").read_text() == wrote(range(60_003))


def test_the_places_of_odd_lines(logs: Path) -> None:
    """Pieces are put together, a progress bar overwrites itself, a gap is named once for every rank that it
    may concern, and what is no rank's is in a file of its own."""
    mine = follower(logs)
    mine.take(
        "a",
        lines(
            b"1.0 0 [-] Collecting numpy",
            b"1.0 1+ [0] half a ",
            b"1.0 2 [0] line",
            b"1.0 3+ [0] begun",
            b"1.0 4e [0] other stream",
            b"1.0 5 [0]  and ended",
            b"1.0 6~ [1] 10%",
            b"1.0 7~ [1] 20%",
            b"1.0 8 [1] done",
            b"a message of the agent itself",
            b"1.0 12 [0] after the gap",
        ),
    )
    gap = "[3 lines are missing here: the cluster has thrown them away]\n"
    assert (logs / "agent-0.log").read_text() == "Collecting numpy\na message of the agent itself\n"
    zero = "half a line\nbegun\nother stream\n and ended\n" + gap + "after the gap\n"
    assert (logs / "rank-0.log").read_text() == zero
    assert (logs / "rank-1.log").read_bytes() == b"10%\r20%\rdone\n" + gap.encode()
    mine.close()


def test_the_next_follower_repeats_nothing(logs: Path) -> None:
    """The kubelet serves a log from its beginning to each."""
    first = follower(logs)
    first.take("a", numbered(range(5)) + lines(b"loose"))
    first.close()
    second = follower(logs)
    second.take("a", numbered(range(4)))
    second.take("a", numbered([4]) + lines(b"loose", b"looser") + numbered([5, 6]))
    assert (logs / "rank-0.log").read_text() == wrote(range(7))
    assert (logs / "agent-0.log").read_text() == "loose\nlooser\n"
    second.close()


def test_the_next_follower_finds_a_log_that_was_turned_over(logs: Path) -> None:
    """What the first follower has, it keeps; what neither has is counted exactly."""
    first = follower(logs)
    first.take("a", numbered(range(5)))
    first.close()
    second = follower(logs)
    second.take("a", numbered([3, 4, 5]))
    second.take("a", numbered([8]))
    gap = "[2 lines are missing here: the cluster has thrown them away]\n"
    assert (logs / "rank-0.log").read_text() == wrote(range(6)) + gap + wrote([8])
    second.close()


@pytest.mark.parametrize("again", [True, False])
def test_a_follower_that_was_killed(logs: Path, again: bool) -> None:
    """It was ahead of its note. What comes again replaces what it wrote since; what does not, stays."""
    first = follower(logs)
    first.take("a", numbered(range(5)))
    note = logs / ".streamed" / "a"
    before = note.read_bytes()
    first.take("a", numbered(range(5, 8)))
    first.close()
    note.write_bytes(before)
    assert json.loads(before)["last"] == 4
    second = follower(logs)
    second.take("a", numbered(range(10) if again else [12]))
    text = (logs / "rank-0.log").read_text()
    if again:
        assert text == wrote(range(10))
    else:
        assert text.startswith(wrote(range(8)))
        assert text.endswith("[7 lines are missing here: the cluster has thrown them away]\n" + wrote([12]))
    second.close()


def test_two_followers_at_once(logs: Path) -> None:
    first, second = follower(logs), follower(logs)
    for at in range(0, 30, 3):
        first.take("a", numbered(range(at, at + 3)))
        second.take("a", numbered(range(at, at + 3)))
    first.close()
    second.close()
    assert (logs / "rank-0.log").read_text() == wrote(range(30))


def test_what_a_lost_pod_wrote_stays(logs: Path) -> None:
    mine = follower(logs, ("a", 0))
    mine.take("a", numbered(range(3)))
    mine.begin("b", 0)
    mine.take("b", numbered(range(2), text="new"))
    mine.take("a", numbered([3]))  # a last line that was on its way
    assert (logs / "rank-0.lost-1.log").read_text() == wrote(range(4))
    assert (logs / "rank-0.log").read_text() == wrote(range(2), "new")
    mine.close()
    later = follower(logs, ("a", 0), ("b", 0), ("c", 0))
    later.take("c", numbered(range(1), text="newest"))
    later.take("b", numbered(range(3), text="new"))
    later.take("a", numbered(range(4)))
    later.close()
    assert (logs / "rank-0.lost-1.log").read_text() == wrote(range(4))
    assert (logs / "rank-0.lost-2.log").read_text() == wrote(range(3), "new")
    assert (logs / "rank-0.log").read_text() == wrote(range(1), "newest")


def test_a_later_follower_that_sees_all_pods_at_once(logs: Path) -> None:
    mine = follower(logs, ("a", 0), ("b", 0))
    mine.take("b", numbered(range(2), text="new"))
    mine.take("a", numbered(range(3)))
    assert (logs / "rank-0.lost-1.log").read_text() == wrote(range(3))
    assert (logs / "rank-0.log").read_text() == wrote(range(2), "new")
    mine.close()


def fetch(logs: Path, name: str, text: str) -> None:
    """As the transfer does it."""
    (logs / "partial").write_text(text)
    (logs / "partial").replace(logs / name)


def test_a_fetched_file_is_not_touched(logs: Path) -> None:
    """Neither by the follower that is at work, nor by the next, whose note says more than the file has."""
    first = follower(logs)
    first.take("a", numbered(range(5)))
    fetch(logs, "rank-0.log", "fetched\n")
    first.take("a", numbered(range(5, 9)))
    first.close()
    second = follower(logs)
    second.take("a", numbered(range(12)))
    fetch(logs, "rank-1.log", "fetched too\n")
    second.take("a", numbered([12], rank=1))
    second.close()
    assert (logs / "rank-0.log").read_text() == "fetched\n"
    assert (logs / "rank-1.log").read_text() == "fetched too\n"


def test_logs_of_an_earlier_run_in_the_same_folder_stay(logs: Path) -> None:
    logs.mkdir(parents=True)
    (logs / "rank-0.log").write_text("earlier\n")
    for end in (3, 6):
        mine = follower(logs)
        mine.take("a", numbered(range(end)))
        mine.close()
    assert (logs / "rank-0.log").read_text() == "earlier\n"
    assert (logs / "rank-0.streamed.log").read_text() == wrote(range(6))


def test_streamed_logs_are_no_results(logs: Path) -> None:
    folder = logs.parent
    assert not holds_results(folder)
    mine = follower(logs, ("a", 0), ("b", 1))
    mine.take("a", [*numbered(range(5)), *lines(LAST % (5, 0))])
    mine.take("b", lines(b"1.0 0 [1] lost", worker=1))
    mine.close()
    assert is_streamed(folder)
    assert not holds_results(folder)
    (folder / "model.pt").touch()
    assert holds_results(folder)
    forget_complete(logs)  # of worker 1, the end is missing
    assert list(read_notes(logs)) == ["b"]
    assert is_streamed(folder)
    fetch(logs, "rank-1.log", "lost\nand more\n")
    forget_complete(logs)
    assert not is_streamed(folder)


def test_a_link_is_not_followed(logs: Path, tmp_path: Path) -> None:
    told: list[str] = []
    (tmp_path / "elsewhere").mkdir()
    logs.parent.mkdir()
    logs.symlink_to(tmp_path / "elsewhere")
    mine = AtOnce(logs, told.append)
    mine.begin("a", 0)
    mine.take("a", numbered(range(2)))
    mine.take("a", numbered(range(2, 4)))
    assert len(told) == 1
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_uid_that_is_a_path_is_not_used(logs: Path) -> None:
    mine = follower(logs, ("../../x", 0))
    mine.take("../../x", numbered(range(2)))
    mine.close()
    assert not logs.exists()


def test_a_pod_that_claims_to_have_a_million_ranks(logs: Path) -> None:
    mine = follower(logs)
    for at in range(0, 2000, 100):
        mine.take("a", lines(*(b"1.0 %d [%d] x" % (each, each) for each in range(at, at + 100))))
    mine.close()
    assert len(list(logs.glob("rank-*.log"))) == 256
    assert (logs / "agent-0.log").read_text().count("x\n") == 2000 - 256


def test_many_pods_need_few_open_files(logs: Path) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    pods = [(f"pod-{worker}", worker) for worker in range(300)]
    mine = follower(logs, *pods)
    for at in range(3):
        for uid, worker in pods:
            mine.take(uid, lines(b"1.0 %d [%d] line %d" % (at, worker, at), worker=worker))
            assert open_files() - before < 220
    mine.close()
    assert {path.read_text() for path in logs.glob("rank-*.log")} == {wrote(range(3))}


FULL = """
import sys
from pathlib import Path
from tests.engines.kubernetes.follow.test_streamed_logs import numbered
from echelon.engines.kubernetes.follow.streamed_logs import StreamedLogs
told = []
mine = StreamedLogs(Path(sys.argv[1]), told.append)
mine.begin("a", 0)
for at in range(0, 3000, 100):
    mine.take("a", numbered(range(at, at + 100)))
mine.close()
print(len(told), told[0])
"""


def test_a_full_disk_is_told_once_and_gone_on_with_later(logs: Path) -> None:
    """A limit on the size of files stands in for a full disk: the write fails in the middle of a line."""

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

    done = subprocess.run(
        [sys.executable, "-B", "-c", FULL, str(logs)],  # compiled modules would be cut off too, for everybody
        preexec_fn=limit,
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[4],
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith(f"1 the output is not written to {logs} any more: ")
    assert (logs / "rank-0.log").stat().st_size == 9000
    later = follower(logs)
    later.take("a", numbered(range(4000)))
    later.close()
    assert (logs / "rank-0.log").read_text() == wrote(range(4000))
