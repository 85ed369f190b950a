"""Whole copies between two honest ends, the wire between them, and the command that a pod runs."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.agent.trees import HELLO, LISTED, copy, entry, scripted, tree
from tests.conftest import PATIENCE, need_python, wait_until

from echelon.agent.files import wire
from echelon.agent.files.landing import Landing
from echelon.agent.files.receiver import Receiver
from echelon.agent.files.tree import FILE, PARTIAL, BadTree, Entry
from echelon.agent.files.wire import CHUNK, Broken, Packing, Wire
from echelon.bundle.zipapp import agent_archive

# Whole copies

names = st.text(
    alphabet=st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20
).filter(lambda name: name not in (".", "..") and len(name.encode()) < 200 and not name.startswith(PARTIAL))
contents = st.one_of(st.binary(max_size=300), st.integers(0, 3 * CHUNK).map(lambda size: b"ab" * (size // 2)))


@given(st.dictionaries(st.lists(names, min_size=1, max_size=3).map(tuple), contents, max_size=8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=25)
def test_any_tree_arrives_as_it_is(tmp_path: Path, files: dict[tuple[str, ...], bytes]) -> None:
    top = tmp_path / os.urandom(8).hex()
    source = top / "source"
    source.mkdir(parents=True)
    for number, (parts, content) in enumerate(files.items()):
        path = source.joinpath(*parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        except OSError:
            continue  # a folder and a file of one name
        path.chmod(0o600 + number)
    outcome = copy(source, top / "target")
    assert outcome["left_out"] == []
    assert tree(top / "target") == tree(source)
    assert copy(source, top / "target")["there"] == outcome["files"]


def test_names_that_are_no_text_arrive(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in (b"\xff\xfe", b"new\nline", b'"quoted"', "größe".encode()):
        (source / os.fsdecode(name)).write_bytes(name)
    copy(source, tmp_path / "target")
    assert tree(tmp_path / "target") == tree(source)


def test_empty_and_closed_folders_arrive_and_can_be_copied_into_again(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "closed").mkdir()
    (source / "closed" / "file").write_text("x")
    (source / "closed").chmod(0o555)
    copy(source, tmp_path / "target")
    assert tree(tmp_path / "target") == tree(source)
    assert stat.S_IMODE((tmp_path / "target" / "closed").stat().st_mode) == 0o755
    copy(source, tmp_path / "target")


def test_only_the_time_differs_then_nothing_is_sent_again(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "a").write_bytes(b"same")
    (source / "b").write_bytes(b"mine")
    target.mkdir()
    (target / "a").write_bytes(b"same")
    (target / "b").write_bytes(b"your")
    os.utime(target / "a", ns=(1, 1))
    os.utime(target / "b", ns=(1, 1))
    assert copy(source, target)["there"] == 1
    assert tree(target) == tree(source)


def test_a_folder_in_the_way_of_a_file_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "a").write_text("x")
    (target / "a").mkdir(parents=True)
    listing = scripted(HELLO, entry("a", size=1), LISTED)
    with pytest.raises(BadTree, match="a folder is where 'a' should go"):
        Receiver(listing, str(target)).run()


def test_two_copies_of_the_same_file_at_once(tmp_path: Path) -> None:
    """One goes on with what was begun, the other makes its own; neither disturbs the other."""
    begun = Landing(str(tmp_path))
    about = Entry("a", FILE, 10, 0o644, 5)
    os.write(begun.partials.open(["a"], about, 0), b"half")
    other = Landing(str(tmp_path))
    threading.Timer(0.3, begun.close).start()
    assert other.partials.begun(["a"], about) == 4  # waited for, and taken over
    third = Landing(str(tmp_path))
    file = third.partials.open(["a"], about, 0)
    os.write(file, b"0123456789")
    third.put_in_place(["a"], about)
    third.close()
    assert (tmp_path / "a").read_bytes() == b"0123456789"
    assert os.fstat(other.partials.open(["a"], about, 4)).st_size == 4
    other.partials.discard(["a"], about)
    other.close()
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_what_nobody_goes_on_with_is_cleared_away(tmp_path: Path) -> None:
    landing = Landing(str(tmp_path))
    os.write(landing.partials.open(["a"], Entry("a", FILE, 10, 0, 5), 0), b"half")
    landing.close()
    (old,) = (tmp_path / PARTIAL).iterdir()
    os.utime(old, (1, 1))
    again = Landing(str(tmp_path))
    again.partials.open(["b"], Entry("b", FILE, 10, 0, 5), 0)
    again.partials.discard(["b"], Entry("b", FILE, 10, 0, 5))
    again.close()
    assert list(tmp_path.iterdir()) == []


# The wire


def test_packing_pays_only_on_a_slow_stream_and_only_where_it_helps() -> None:
    text, noise = b"some text " * 10_000, os.urandom(100_000)
    packing = Packing()
    assert packing.pack(text, rate=100e6) == (text, False)
    packed, is_packed = packing.pack(text, rate=1e6)
    assert is_packed
    assert zlib.decompress(packed) == text
    assert packing.pack(noise, rate=1e6) == (noise, False)
    tries = [packing.pack(text, rate=1e6)[1] for _ in range(Packing.PAUSE + 1)]
    assert tries == [False] * Packing.PAUSE + [True]


def test_a_slow_stream_carries_packed_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Packing, "SLOW", float("inf"))
    monkeypatch.setattr(wire.Wire, "rate", 1.0, raising=False)
    source = tmp_path / "source"
    source.mkdir()
    (source / "text").write_bytes(b"text" * CHUNK)
    (source / "noise").write_bytes(os.urandom(3 * CHUNK))
    copy(source, tmp_path / "target")
    assert tree(tmp_path / "target") == tree(source)


def test_silence_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []

    def receive(seconds: float) -> bytes:
        waited.append(seconds)
        return b""

    with pytest.raises(Broken, match="nothing came"):
        Wire(receive, lambda _data: None).read()
    assert waited == [wire.SILENCE]


def test_an_end_that_is_busy_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[bytes] = []
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    ticking = Wire(lambda _seconds: b"", said.append)
    ticking.tick()
    ticking.tick_chunk()
    assert said == []
    clock[0] = 6.0
    ticking.tick()
    clock[0] = 12.0
    ticking.tick_chunk()
    assert said == [b'{"tick":1}\n', b"t\n"]


# The command in the pod


@pytest.fixture(params=["3.8", "this"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`agent.pyz files ...` as the pod runs it, under the oldest Python and this one. What a test that fails
    has left is ended here: its open pipes would be blamed on a later test.
    """
    python = sys.executable if request.param == "this" else need_python(request.param)
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str, pod: str = "pod") -> subprocess.Popen[bytes]:
        archive = tmp_path / f"{pod}.pyz"
        if not archive.exists():
            archive.write_bytes(agent_archive())
        process = subprocess.Popen(
            [str(python), "-I", str(archive), "files", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with process:  # closes the pipes, and waits
            process.kill()


def test_list(files: Callable[..., subprocess.Popen[bytes]], tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "sub").mkdir(parents=True)
    (root / "sub" / "file").write_bytes(b"12345")
    (root / "sub" / "file").chmod(0o640)
    os.utime(root / "sub" / "file", ns=(7, 7))
    (root / "link").symlink_to("sub")
    out, err = files("list", str(root)).communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in out.splitlines()]
    for line in lines:
        if line.get("kind") != "file":
            line.pop("mtime", None)
            line.pop("mode", None)
    assert err == b""
    assert lines == [
        {"path": "link", "kind": "link", "link": "sub"},
        {"path": "sub", "kind": "folder"},
        {"path": "sub/file", "kind": "file", "size": 5, "mode": 0o640, "mtime": 7},
        {"listed": 3},
    ]
    out, _ = files("list", str(root), "nothing").communicate(timeout=PATIENCE)
    assert json.loads(out) == {"trouble": "nothing is there"}


@pytest.mark.parametrize("words", [(), ("send",), ("dance", "x")])
def test_wrong_words(files: Callable[..., subprocess.Popen[bytes]], words: tuple[str, ...]) -> None:
    process = files(*words)
    _, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err.startswith(b"files: list ROOT")) == (2, True)


def test_it_ends_when_the_other_end_is_gone(
    files: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    for words in (("send", str(tmp_path)), ("receive", str(tmp_path / "new"))):
        process = files(*words)
        _, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, err) == (3, b"")


@pytest.mark.slow
def test_it_holds_while_a_copy_runs_in_its_pod(
    files: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    copying, elsewhere = files("send", str(tmp_path)), files("send", str(tmp_path), pod="another pod")
    for process in (copying, elsewhere):
        assert process.stdout is not None
        process.stdout.read(1)  # it runs
    other = files("hold", "60")  # two that wait for each other would wait for ever
    hold = files("hold", "10")
    until = time.monotonic() + 12.0
    while time.monotonic() < until:
        for process in (copying, elsewhere):  # each would end after a minute of silence
            assert process.stdin is not None
            process.stdin.write(b'{"path": "nothing"}\n')  # a request, which is answered
            process.stdin.flush()
        time.sleep(0.05)
    assert hold.poll() is None
    copying.communicate(timeout=PATIENCE)
    wait_until(lambda: hold.poll() is not None, "the pod's end")
    assert hold.communicate() == (b"", b"")
    assert hold.returncode == 0
    assert elsewhere.poll() is None  # it was there all the while, and did not count
    elsewhere.communicate(timeout=PATIENCE)
    other.terminate()
    assert other.communicate(timeout=PATIENCE) == (b"", b"")
