"""Trees in and out through a real agent in another process, over connections that break wherever they can."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.agent.trees import tree
from tests.conftest import need_python
from tests.engines.kubernetes.clock import Clock
from tests.engines.kubernetes.local_pod import Pod
from tests.engines.kubernetes.typed import as_pod

from echelon.agent.files.tree import PARTIAL
from echelon.bundle.zipapp import agent_archive
from echelon.engines.kubernetes.client.api import NotThere
from echelon.engines.kubernetes.files import reconnect
from echelon.engines.kubernetes.files.reconnect import Channel, Opener
from echelon.engines.kubernetes.files.transfer import Copied, Progress, fetch_tree, pod_opener, send_tree
from echelon.errors import InvalidJob, Refused, StateTrouble, Unavailable, Unreachable


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    monkeypatch.setattr(reconnect, "FIRST_DELAY", 0.01)
    archive = tmp_path / "agent.pyz"
    archive.write_bytes(agent_archive())
    return Pod(archive)


def fill(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fetch(opener: Opener, source: Path, target: Path, **more: object) -> Copied:
    return fetch_tree(opener, str(source), target, **more)  # type: ignore[arg-type]


def send(opener: Opener, source: Path, target: Path, **more: object) -> Copied:
    return send_tree(opener, source, str(target), **more)  # type: ignore[arg-type]


Copy = Callable[..., Copied]
both_ways = pytest.mark.parametrize("copy", [fetch, send])
SOME = {"a": b"alpha", "sub/b": os.urandom(100_000), "sub/deep/c": b"", "text": b"line\n" * 200_000}


@both_ways
def test_a_tree_arrives_and_is_not_copied_twice(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    source, target = fill(tmp_path / "source", SOME), tmp_path / "target" / "deeper"
    (source / "sub" / "b").chmod(0o751)
    (source / "link").symlink_to("sub/b")
    (source / "empty").mkdir()
    seen: list[Progress] = []
    copied = copy(pod.open, source, target, progress=seen.append)
    size = sum(map(len, SOME.values()))
    assert replace(copied, manifest=None) == Copied(target=str(target), files=4, size=size, there=0)
    assert tree(target) == tree(source)
    assert seen[-1] == Progress(done=size, total=size, files_done=4, files=4)
    dones = [each.done for each in seen]
    assert dones == sorted(dones)
    assert copy(pod.open, source, target).there == 4
    (source / "a").write_bytes(b"gamma")
    assert copy(pod.open, source, target).there == 3
    assert tree(target) == tree(source)


@both_ways
def test_the_oldest_python_in_the_pod(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    python = need_python("3.8")
    pod.words[0] = python
    source = fill(tmp_path / "source", SOME)
    copy(pod.open, source, tmp_path / "target")
    assert tree(tmp_path / "target") == tree(source)


@both_ways
def test_a_single_file(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    source = fill(tmp_path / "source", {"model.pt": b"weights"}) / "model.pt"
    assert copy(pod.open, source, tmp_path / "new" / "name.pt").target == str(tmp_path / "new" / "name.pt")
    assert (tmp_path / "new" / "name.pt").read_bytes() == b"weights"
    copied = copy(pod.open, source, tmp_path / "new", into=True)
    assert (copied.target, copied.files) == (str(tmp_path / "new" / "model.pt"), 1)
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"name.pt", "model.pt"}
    with pytest.raises(StateTrouble, match="a folder is where 'new' should go"):
        copy(pod.open, source, tmp_path / "new")


def test_a_path_below_the_root(pod: Pod, tmp_path: Path) -> None:
    source = fill(tmp_path / "source", SOME)
    (source / "latest").symlink_to("sub/deep")
    (source / "out").symlink_to(tmp_path)
    fetch_tree(pod.open, str(source), tmp_path / "1", path="sub")
    assert set(tree(tmp_path / "1")) == {"b", "deep", "deep/c"}
    fetch_tree(pod.open, str(source), tmp_path / "2", path="latest")
    assert set(tree(tmp_path / "2")) == {"c"}
    for path in ("../agent.pyz", "/etc", "out", "out/agent.pyz"):
        with pytest.raises(StateTrouble, match="is outside"):
            fetch_tree(pod.open, str(source), tmp_path / "3", path=path)
    for path in ("nothing", "a/b"):
        with pytest.raises(InvalidJob, match="is not there"):
            fetch_tree(pod.open, str(source), tmp_path / "3", path=path)
    assert not (tmp_path / "3").exists()


def test_a_source_that_is_not_there_is_named_before_anything_is_opened(pod: Pod, tmp_path: Path) -> None:
    (tmp_path / "dangling").symlink_to("nothing")
    for name in ("nothing", "dangling"):
        with pytest.raises(InvalidJob, match="is not there"):
            send_tree(pod.open, tmp_path / name, str(tmp_path / "target"))
    assert pod.opened == 0


def test_a_source_that_goes_away_before_it_is_read(pod: Pod, tmp_path: Path) -> None:
    source = fill(tmp_path / "source", SOME)

    @contextlib.contextmanager
    def opener(words: Sequence[str]) -> Iterator[Channel]:
        with pod.open(words) as channel:
            shutil.rmtree(source)
            yield channel

    with pytest.raises(InvalidJob, match="is not there"):
        send_tree(opener, source, str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_paths_can_be_moved_on_the_way(pod: Pod, tmp_path: Path) -> None:
    source = fill(tmp_path / "source", {"logs/rank-3.log": b"3", "ckpt/model": b"m", "loss": b"1"})
    (source / "ckpt" / "latest").symlink_to("../loss")

    def move(path: str) -> str:
        return path if path.partition("/")[0] == "logs" else f"worker-3/{path}"

    fetch_tree(pod.open, str(source), tmp_path / "target", move=move)
    assert set(tree(tmp_path / "target")) == {
        "logs",
        "logs/rank-3.log",
        "worker-3",
        "worker-3/ckpt",
        "worker-3/ckpt/model",
        "worker-3/ckpt/latest",
        "worker-3/loss",
    }


# Connections that break


@both_ways
@given(breaks=st.lists(st.integers(0, 1_500_000), min_size=1, max_size=4))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=10)
def test_wherever_it_breaks_the_copy_is_whole(
    pod: Pod, tmp_path: Path, copy: Copy, breaks: list[int]
) -> None:
    folder = tmp_path / os.urandom(8).hex()
    source, target = fill(folder / "source", SOME), folder / "target"
    pod.breaks = list(breaks)
    copy(pod.open, source, target)
    assert tree(target) == tree(source)


@both_ways
def test_a_large_file_is_gone_on_with(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    """Three connections that break after a third of the file carry all of it: nothing is sent twice."""
    size = 12 << 20
    source = fill(tmp_path / "source", {"large": os.urandom(size)})
    target = tmp_path / "target"
    pod.breaks = [size // 3 + 10_000] * 3
    seen: list[Progress] = []
    copy(pod.open, source, target, progress=seen.append)
    assert tree(target) == tree(source)
    assert pod.opened <= 4
    troubles = {each.trouble for each in seen} - {""}
    assert troubles == {"the connection was cut"}


@both_ways
def test_another_process_goes_on(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    size = 4 << 20
    source = fill(tmp_path / "source", {"large": os.urandom(size), "small": b"x"})
    target = tmp_path / "target"
    pod.breaks = [size // 2]
    with pytest.raises(Unreachable) as caught:
        copy(pod.open, source, target, patience=0.0)
    assert "goes on from there" in caught.value.hint
    assert not (target / "large").exists()
    (partial,) = (target / PARTIAL).iterdir()
    assert partial.stat().st_size > size // 4
    pod.breaks = [size * 3 // 4]  # less than the whole file
    copy(pod.open, source, target, patience=0.0)
    assert tree(target) == tree(source)


@both_ways
def test_a_file_that_changed_meanwhile_comes_as_it_is_now(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    source = fill(tmp_path / "source", {"large": os.urandom(3 << 20)})
    target = tmp_path / "target"
    pod.breaks = [2 << 20]
    with pytest.raises(Unreachable):
        copy(pod.open, source, target, patience=0.0)
    fill(source, {"large": os.urandom(3 << 20)})
    copy(pod.open, source, target)
    assert tree(target) == tree(source)


def test_a_cluster_that_stays_away_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "time", Clock())
    tries = []

    def nobody(words: Sequence[str]) -> contextlib.AbstractContextManager[Channel]:
        tries.append(words)
        raise Unreachable("cannot reach the cluster", hint="is it there?")

    with pytest.raises(Unreachable, match="cannot reach the cluster"):
        fetch_tree(nobody, "/x", tmp_path, patience=10.0)
    assert len(tries) > 3


def test_a_pod_without_python_is_named(tmp_path: Path, pod: Pod) -> None:
    pod.words = ["/bin/sh", "-c", "echo 'python3: not found' >&2; exit 127"]
    with pytest.raises(Unavailable, match="ended with code 127: python3: not found"):
        fetch_tree(pod.open, "/x", tmp_path / "target")
    assert pod.opened == 1


def test_an_agent_that_is_killed_is_tried_again(tmp_path: Path, pod: Pod) -> None:
    source = fill(tmp_path / "source", SOME)
    real = pod.words
    pod.words = ["/bin/sh", "-c", "kill -9 $$"]

    @contextlib.contextmanager
    def opener(words: Sequence[str]) -> Iterator[Channel]:
        with pod.open(words) as channel:
            pod.words = real
            yield channel

    fetch_tree(opener, str(source), tmp_path / "target")
    assert tree(tmp_path / "target") == tree(source)


# Files that change, disks that are full, trees that are hostile


class Growing:
    """A channel beside which a file grows: by a line for every piece that passes, so that it changes in the
    middle of each try, however slow the machine is.
    """

    def __init__(self, channel: Channel, file: Path) -> None:
        self._channel, self._file = channel, file

    @property
    def exit_code(self) -> int | None:
        return self._channel.exit_code

    def read(self, timeout: float | None = None) -> tuple[int, bytes] | None:
        self._grow()
        return self._channel.read(timeout)

    def write(self, data: bytes) -> None:
        self._grow()
        self._channel.write(data)

    def _grow(self) -> None:
        with self._file.open("ab") as file:
            file.write(b"more\n")


@both_ways
def test_a_file_that_is_written_all_the_while_is_named(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    size = 2 << 20  # of noise: more than the pipes between the ends hold, also when it is packed
    source = fill(tmp_path / "source", {"log": os.urandom(size), "still": b"s"})

    @contextlib.contextmanager
    def opener(words: Sequence[str]) -> Iterator[Channel]:
        with pod.open(words) as channel:
            yield Growing(channel, source / "log")

    copied = copy(opener, source, tmp_path / "target")
    assert copied.changed == ("log",)
    came = (tmp_path / "target" / "log").read_bytes()
    assert (source / "log").read_bytes().startswith(came)
    assert len(came) >= size


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one MiB."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("only root can mount a small file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if (done := subprocess.run(command, capture_output=True, check=False)).returncode:
        pytest.skip(f"mounting is not allowed here: {done.stderr.decode()}")
    yield folder
    subprocess.run(["umount", "--lazy", folder], check=True)


@both_ways
@pytest.mark.parametrize("size", [2 << 20, 40 << 20])
def test_a_full_disk_is_named_and_the_rest_follows_once_there_is_room(
    pod: Pod, tmp_path: Path, small_disk: Path, copy: Copy, size: int
) -> None:
    source = fill(tmp_path / "source", {"a": b"fits", "large": os.urandom(size)})
    with pytest.raises(StateTrouble, match="is full") as caught:
        copy(pod.open, source, small_disk / "target")
    assert "large" in str(caught.value) or "target" in str(caught.value)
    assert (small_disk / "target" / "a").read_bytes() == b"fits"
    assert not (small_disk / "target" / "large").exists()
    subprocess.run(["mount", "-o", f"remount,size={size + (1 << 20)}", small_disk], check=True)
    assert copy(pod.open, source, small_disk / "target").there == 1
    assert tree(small_disk / "target") == tree(source)


@both_ways
def test_a_target_that_is_a_file_is_named(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    source = fill(tmp_path / "source", SOME)
    (tmp_path / "target").write_text("in the way")
    with pytest.raises(StateTrouble, match="target"):
        copy(pod.open, source, tmp_path / "target")
    assert (tmp_path / "target").read_text() == "in the way"


@both_ways
def test_a_target_that_holds_a_link_where_a_folder_should_be(pod: Pod, tmp_path: Path, copy: Copy) -> None:
    source = fill(tmp_path / "source", SOME)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StateTrouble, match="'sub' is not a folder"):
        copy(pod.open, source, tmp_path / "target")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize(("phase", "gone"), [("Running", False), ("Succeeded", True), (None, True)])
def test_a_pod_that_has_ended_is_not_tried_again(phase: str | None, gone: bool) -> None:
    """A worker leaves when the run's keeper has its results: a client goes on there, and at once."""

    class Server:
        def exec(self, *_: object, **__: object) -> None:
            raise Refused("cannot exec in a container that has ended")

        def find_shape(self, *_: object) -> object:
            ended = {"metadata": {"name": "demo-1"}, "status": {"phase": phase}}
            return None if phase is None else as_pod(ended)

    with pytest.raises(Refused) as caught:
        pod_opener(Server(), "demo-1")(["send", "/x"])  # type: ignore[arg-type]
    assert isinstance(caught.value, NotThere) == gone
