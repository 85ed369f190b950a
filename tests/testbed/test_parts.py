"""The parts of the testbed that need no cluster: a failed build leaves nothing, only what is ours ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from pathlib import Path

import pytest
from testbed.kubectl import Object
from testbed.locking import held
from testbed.paths import CHECKOUT, GO_SOURCES

from echelon.errors import StateTrouble, Unavailable
from testbed import __main__ as command
from testbed import cluster, debian, fixtures, images, processes, programs, storage, versions

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of the test's own."""
    monkeypatch.setattr(processes, "STATE", tmp_path)
    monkeypatch.setattr(processes, "PROCESSES", tmp_path / "processes")
    monkeypatch.setattr(processes, "LOGS", tmp_path / "logs")
    return tmp_path


def test_every_go_module_is_pinned_and_known() -> None:
    folders = {path.name for path in GO_SOURCES.iterdir()}
    assert folders == set(programs.SOURCES)
    for name in folders - {"sandbox"}:
        assert programs.version(name).startswith("v"), name


@pytest.mark.parametrize("only_core", [True, False])
def test_what_every_test_needs_is_built_first(monkeypatch: pytest.MonkeyPatch, only_core: bool) -> None:
    """The builds themselves, which take an hour, are stand-ins."""
    asked: list[str] = []

    def build(name: str) -> Path:
        asked.append(name)
        return Path(name)

    monkeypatch.setattr(programs, "folder", build)
    monkeypatch.setattr(images, "build", build)
    monkeypatch.setattr(debian, "install_packages", lambda: None)
    monkeypatch.setattr(sys, "argv", ["testbed", "build", *["--core"] * only_core])
    assert command.main() == 0
    core = [*programs.ALWAYS, "kubernetes", *cluster.BASIC_IMAGES]
    assert asked[: len(core)] == core
    assert {name in asked for name in ("kwok", "torch", "torch-pypi", "tensorflow")} == {not only_core}


def test_an_older_kubernetes_is_chosen_by_its_number_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "CHOSEN", tmp_path / "kubernetes")
    monkeypatch.delenv(versions.VARIABLE, raising=False)
    assert versions.current() == versions.find("") == "kubernetes"
    assert "kubernetes-1.31" not in versions.needed()
    monkeypatch.setenv(versions.VARIABLE, "1.31")
    assert versions.find("1.31.4") == versions.current() == "kubernetes-1.31"
    assert "kubernetes" not in versions.needed()
    versions.choose()
    monkeypatch.delenv(versions.VARIABLE)
    assert versions.current() == "kubernetes-1.31"  # as long as that cluster runs
    versions.check_running()
    monkeypatch.setenv(versions.VARIABLE, "1.36")
    with pytest.raises(StateTrouble, match=r"is Kubernetes v1\.31\.4, not 1\.36"):
        versions.check_running()
    for unknown in ("1.3", "1.30", "latest"):
        with pytest.raises(Unavailable, match="cannot build") as caught:
            versions.find(unknown)
        assert "1.31.4" in str(caught.value.hint)


def test_a_failed_build_leaves_nothing_that_looks_like_a_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "bin" / "go"
    broken.parent.mkdir()
    broken.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\n'
        'mkdir -p "$2"; echo half > "$2/sandbox"\necho no room >&2; exit 3\n'
    )
    broken.chmod(0o755)
    monkeypatch.setattr(programs, "CACHE", tmp_path / "cache")
    monkeypatch.setenv("PATH", f"{broken.parent}:{os.environ['PATH']}")
    with pytest.raises(Unavailable, match="no room"):
        programs.folder("sandbox")
    left = [path.name for path in (tmp_path / "cache" / "bin").iterdir()]
    assert left == [".sandbox.lock"]
    assert not programs.is_built("sandbox")


def test_no_go_is_said_plainly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unavailable, match="built with Go"):
        programs.folder("etcd")


@linux
def test_a_daemon_is_started_found_again_and_ended(state: Path) -> None:
    sleep = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
    record = processes.start("sleeper", sleep)
    assert processes.is_alive(record)
    assert processes.read("sleeper") == record
    processes.stop(["sleeper"], forget=False)
    assert not processes.is_alive(record)
    again = processes.restart("sleeper")
    assert again
    assert processes.is_alive(again)
    assert again.pid != record.pid
    processes.stop(["sleeper"])
    assert processes.recorded() == []


@linux
def test_a_pid_that_now_belongs_to_somebody_else_is_not_touched(state: Path) -> None:
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        processes.start("short", [sys.executable, "-c", ""])
        file = state / "processes" / "short.json"
        earlier = str(int(processes.start_time(stranger.pid)) - 1)
        note = json.loads(file.read_text()) | {"pid": stranger.pid, "start_time": earlier}
        file.write_text(json.dumps(note))
        processes.stop(["short"], now=True)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@linux
def test_what_a_daemon_started_is_swept_by_its_mark_without_a_record(state: Path) -> None:
    program = (
        "import subprocess, sys, time\n"
        "sleep = 'import time; time.sleep(600)'\n"
        "child = subprocess.Popen([sys.executable, '-c', sleep], start_new_session=True)\n"
        "open(sys.argv[1], 'w').write(str(child.pid))\n"
    )
    note = state / "child"
    record = processes.start("parent", [sys.executable, "-c", program, note], part="node-x")
    while processes.is_alive(record) or not note.read_text():
        pass
    child = int(note.read_text())
    assert processes.start_time(child)
    processes.sweep("node-y")
    assert processes.start_time(child)
    processes.sweep("node-x")
    assert not processes.start_time(child)


def test_an_image_is_one_layer_under_its_name(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(__file__, arcname="file")
    images.write_archive(tmp_path / "image.tar", "python", layer, {"Cmd": ["/bin/sh"]})
    with tarfile.open(tmp_path / "image.tar") as tar:
        index = tar.extractfile("index.json")
        assert index
        (entry,) = json.load(index)["manifests"]
        assert entry["annotations"]["io.containerd.image.name"] == images.reference("python")
        blob = tar.extractfile("blobs/sha256/" + entry["digest"].removeprefix("sha256:"))
        assert blob
        (described,) = json.load(blob)["layers"]
        assert (
            tar.getmember("blobs/sha256/" + described["digest"].removeprefix("sha256:")).size
            == described["size"]
        )


def test_an_image_upon_another_has_one_layer_more(tmp_path: Path) -> None:
    made = []
    for name in ("below", "above"):
        layer, image = tmp_path / f"{name}.layer", tmp_path / f"{name}.tar"
        with tarfile.open(layer, "w") as tar:
            tar.add(__file__, arcname=name)
        settings = {} if made else {"Cmd": ["/bin/sh"]}
        images.write_archive(image, name, layer, settings, upon=made[0] if made else None)
        made.append(image)
    below, layers_below = images._read_archive(made[0])
    above, layers = images._read_archive(made[1])
    assert layers[:1] == layers_below
    assert len(layers) == 2
    assert above["config"] == below["config"]
    assert above["rootfs"]["diff_ids"] == [layer["digest"] for layer in layers]
    with tarfile.open(made[1]) as tar:
        blobs = {name.rpartition("/")[2] for name in tar.getnames()}
    written = [str(layer["digest"]).removeprefix("sha256:") in blobs for layer in layers]
    assert written == [False, True]


def test_an_unknown_image_or_program_names_those_that_exist() -> None:
    with pytest.raises(Unavailable, match="python"):
        images.build("nonsense")
    with pytest.raises(Unavailable, match="etcd"):
        programs.folder("nonsense")


def test_in_ci_a_missing_cluster_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="needs root"):
        fixtures.give_up("needs root")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="needs root"):
        fixtures.give_up("needs root")


def test_the_predicate_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert debian.missing() == "the Kubernetes testbed needs Linux, not darwin"


def test_a_second_checkout_is_told_whose_cluster_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CLUSTER_FILE", tmp_path / "cluster.json")
    monkeypatch.setattr(cluster, "LOCK", tmp_path / "lock")
    monkeypatch.setattr(cluster, "_daemons_alive", lambda: True)
    monkeypatch.setattr(debian, "install_packages", lambda: None)
    monkeypatch.setattr(programs, "folder", lambda _: tmp_path)
    monkeypatch.setattr(images, "build", lambda _: tmp_path)
    claim = {"checkout": "/somewhere/else", "since": "2026-01-01T00:00:00+00:00", "complete": True}
    (tmp_path / "cluster.json").write_text(json.dumps(claim))
    with pytest.raises(Exception, match="started from /somewhere/else at 2026"):
        cluster.up()


def test_a_claim_on_a_local_volume_is_tied_to_its_node() -> None:
    claim: Object = {
        "metadata": {"name": "c", "namespace": "n", "uid": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "local",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    volume = storage.volume_for(claim, "node-b")
    assert not isinstance(volume, str)
    assert "node-b" in json.dumps(volume["spec"]["nodeAffinity"])
    claim["spec"]["accessModes"] = ["ReadWriteMany"]
    assert "ReadWriteOnce only" in str(storage.volume_for(claim, "node-b"))


@pytest.mark.parametrize(
    ("checkout", "for_tests", "used", "becomes"),
    [
        ("/some/other", True, False, "ended"),  # a test run was killed there
        ("/some/other", False, False, "ended"),  # a person left it, and the tests here need the machine's one
        (str(CHECKOUT), True, False, "ended"),
        (str(CHECKOUT), False, False, "swept"),  # started here by a person: it is used, and left running
        (str(CHECKOUT), True, True, "shared"),  # another test run is at work in it
    ],
)
def test_what_an_earlier_test_run_left_is_taken_over(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    checkout: str,
    for_tests: bool,
    used: bool,
    becomes: str,
) -> None:
    """The cluster is a stand-in here: only who may end it is in question."""
    made = cluster.Claim(checkout=checkout, since="yesterday", complete=True, for_tests=for_tests)
    present: list[cluster.Claim] = [made]
    started: list[bool] = []
    swept: list[bool] = []

    def up(*, for_tests: bool) -> None:
        started.append(for_tests)
        if not present:
            present.append(
                cluster.Claim(checkout=str(CHECKOUT), since="", complete=True, for_tests=for_tests)
            )

    monkeypatch.setattr(fixtures, "USERS", tmp_path / "users")
    monkeypatch.setattr(fixtures, "TURN", tmp_path / "turn")
    monkeypatch.setattr(cluster, "claim", lambda: present[-1] if present else None)
    monkeypatch.setattr(cluster, "down", present.clear)
    monkeypatch.setattr(cluster, "up", up)
    monkeypatch.setattr(cluster, "sweep", lambda: swept.append(True))
    with ExitStack() as kept:
        if used:
            kept.enter_context(held(tmp_path / "users", shared=True))
        with fixtures.running():
            assert started == [True]
            assert (made not in present) is (becomes == "ended")
            assert bool(swept) is (becomes == "swept")
        assert bool(present) is (becomes != "ended")


def test_whom_a_cluster_is_for_is_claimed_before_anything_of_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "STATE", tmp_path)
    monkeypatch.setattr(cluster, "CLUSTER_FILE", tmp_path / "cluster.json")
    monkeypatch.setattr(versions, "choose", cut_short)
    with pytest.raises(KeyboardInterrupt):
        cluster._begin(for_tests=True)
    claim = cluster.claim()
    assert claim
    assert claim.for_tests
    assert not claim.complete
