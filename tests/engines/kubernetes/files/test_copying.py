"""`echelon cp` and `echelon volume` against a real cluster, as a user types them."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from testbed.kubectl import Kubectl, Refused
from testbed.patience import FACTOR
from tests.agent.trees import tree
from tests.cli.terminal import Terminal
from tests.conftest import PATIENCE, wait_until
from tests.engines.kubernetes.copies import TRANSFER, fill, left
from tests.engines.kubernetes.ordinary import claim

from echelon.engines.kubernetes.files.copy_pod import MOUNT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def echelon(namespace: Kubectl, image: Callable[[str], str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The words before every call, in the test's namespace."""
    monkeypatch.setenv("KUBECONFIG", str(namespace.kubeconfig))
    Path("pyproject.toml").write_text(f'[tool.echelon]\nimage = "{image("python")}"\n')
    return ["--namespace", namespace.namespace]


Call = Callable[..., subprocess.CompletedProcess[str]]
# The command line with a shorter time, still long enough for a look: a pod that no copy uses ends after 60 s.
ENDS_SOONER = """
from echelon.engines.kubernetes.files import copy_pod
copy_pod.IDLE = 25
from echelon.cli.main import main
main()
"""


@pytest.mark.core
def test_from_the_command_line(cli: Call, echelon: list[str], namespace: Kubectl, tmp_path: Path) -> None:
    source = fill(tmp_path / "source", 1_000_000)
    assert cli("volume", "create", "data", "--size", "1Mi", *echelon).stdout == "data\n"
    done = cli("cp", str(source), "pvc:data/in", *echelon)
    assert (done.returncode, done.stdout) == (0, "pvc:data/in\n"), done.stderr
    assert "2 files, 977 KiB" in done.stderr
    done = cli("cp", "pvc:data/in/", "back", *echelon, "-o", "json")
    told = json.loads(done.stdout)
    assert (done.returncode, told["files"], told["bytes"], told["there"]) == (0, 2, 1_000_010, 0)
    assert tree(Path("back")) == tree(source)
    done = cli("cp", "pvc:data/in/sub/run.sh", ".", *echelon)
    assert (done.stdout, Path("run.sh").read_text()) == ("run.sh\n", "#!/bin/sh\n")
    done = cli("cp", "run.sh", "pvc:data/", *echelon)
    assert done.stdout == "pvc:data/run.sh\n"
    (source / "out").symlink_to("/etc")
    done = cli("cp", str(source), "pvc:data/in", *echelon)
    assert done.returncode == 1
    assert "not copied: out: a link to an absolute path" in done.stderr
    done = cli("cp", "pvc:data/nothing", "back", *echelon)
    assert done.returncode == 110
    assert "'nothing' is not there" in done.stderr
    done = cli("cp", "pvc:dato/in", "back", *echelon)
    assert done.returncode == 110
    assert "did you mean 'data'?" in done.stderr
    rows = [line.split() for line in cli("volume", "ls", *echelon).stdout.splitlines()]
    assert rows[0][:6] == ["NAME", "STATUS", "CAPACITY", "MODE", "CLASS", "RECLAIM"]
    assert rows[1][:7] == ["data", "Bound", "1", "MiB", "RWO", "local", "Delete"]
    refused = cli("volume", "rm", "data", *echelon, stdin=subprocess.DEVNULL)
    assert (refused.returncode, "--yes" in refused.stderr) == (2, True)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")
    assert cli("volume", "rm", "--yes", "data", *echelon).stdout == "data\n"
    assert json.loads(cli("volume", "ls", "-o", "json", *echelon).stdout) == []


def test_ctrl_c_leaves_nothing_and_the_same_command_goes_on(
    home: Path, echelon: list[str], namespace: Kubectl, tmp_path: Path
) -> None:
    namespace.create(claim("data"))
    source = fill(tmp_path / "source", 250_000_000)
    digest = hashlib.sha256((source / "large").read_bytes()).hexdigest()
    words = [sys.executable, "-m", "echelon.cli.main", "cp", str(source), "pvc:data/in", *echelon]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: _partial(namespace) > 1_000_000, "the first bytes")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (130, ""), err
    assert "the same command continues" in err
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")
    done = subprocess.run(words, capture_output=True, text=True, timeout=120 * FACTOR, check=False)
    assert done.returncode == 0, done.stderr
    back = [*words[:4], "pvc:data/in", "back", *echelon]
    assert subprocess.run(back, capture_output=True, timeout=120 * FACTOR, check=False).returncode == 0
    assert hashlib.sha256(Path("back/large").read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 12))])
def test_a_killed_download_leaves_nothing(
    cli: Call, echelon: list[str], namespace: Kubectl, tmp_path: Path, seed: int
) -> None:
    """`kill -9` at a random moment: the pod that copied ends by itself, and the volume can be removed."""
    source = fill(tmp_path / "source", 100_000_000)
    assert cli("volume", "create", "data", "--size", "1Gi", *echelon).returncode == 0
    assert cli("cp", str(source), "pvc:data/in", *echelon).returncode == 0
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")
    words = [sys.executable, "-c", ENDS_SOONER, "cp", "pvc:data/in", "back", *echelon]
    share = random.Random(seed).random()
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: _arrived(Path("back")) > share * 40_000_000, "the first bytes")
        process.send_signal(signal.SIGSTOP)  # it reads no more, and stays long enough to be listed
        (row,) = json.loads(cli("ps", "-a", "-o", "json", "--on", "k8s", *echelon).stdout)
        assert (row["kind"], row["volume"], row["writes"]) == ("copy", "data", False)
        process.kill()
    # A look at pods takes less of the processor than a command.
    namespace.wait_for(lambda: not _living(namespace), "the end of the pod", patience=200)
    removed = lambda: cli("volume", "rm", "--yes", "data", *echelon).returncode == 0  # noqa: E731
    wait_until(removed, "the volume to be free", 200)
    namespace.wait_for(lambda: not left(namespace), "the end of what copied", patience=180)
    assert json.loads(cli("ps", "-a", "-o", "json", "--on", "k8s", *echelon).stdout) == []


def _living(namespace: Kubectl) -> list[str]:
    """The pods that still copy, or wait for it."""
    pods = namespace.items("pods", "-l", TRANSFER)
    return [pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") in ("Pending", "Running")]


def _arrived(folder: Path) -> int:
    try:
        return sum(each.stat().st_size for each in folder.rglob("*"))
    except FileNotFoundError:  # put in its place meanwhile
        return 0


def test_on_a_terminal(home: Path, echelon: list[str], namespace: Kubectl, tmp_path: Path) -> None:
    """A bar while it copies, which is gone afterwards; and a question before data is deleted."""
    namespace.create(claim("data"))
    source = fill(tmp_path / "source", 20_000_000)
    terminal = Terminal("cp", str(source), "pvc:data", *echelon, columns=100)
    assert terminal.end() == 0
    terminal.close()
    assert "19.1/19.1 MiB" in terminal.shown
    assert "2 files, 19.1 MiB in" in terminal.shown
    namespace.wait_for(lambda: not left(namespace), "the end of what copied")
    for answer, code, there in (("n", 130, True), ("y", 0, False)):
        terminal = Terminal("volume", "rm", "data", *echelon)
        terminal.expect(r"data: 1 MiB, its data is deleted\nRemove 1 volume\? \[y/N\]: ")
        terminal.type(f"{answer}\r")
        assert terminal.end() == code
        terminal.close()
        namespace.wait_for(lambda: bool(namespace.find("pvc", "data")) is there, "the claim")  # noqa: B023


def _partial(namespace: Kubectl) -> int:
    """How much has arrived of what is not whole yet."""
    code = "import os, sys; print(sum(e.stat().st_size for e in os.scandir(sys.argv[1])))"
    pods = namespace.items("pods", "-l", TRANSFER)
    folder = f"{MOUNT}/in/.echelon-partial"
    try:
        return int(namespace("exec", pods[0]["metadata"]["name"], "--", "python3", "-c", code, folder))
    except (Refused, IndexError):
        return 0


def test_a_missing_source_makes_nothing(cli: Call, echelon: list[str], namespace: Kubectl) -> None:
    done = cli("cp", "nothing", "pvc:data", *echelon)
    assert (done.returncode, left(namespace)) == (110, [])
