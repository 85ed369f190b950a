"""The example's training as its users meet it: as processes, bare or several ranks, killed and resumed.

PyTorch is imported where it is needed: every process that collects tests would take seconds longer.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
from tests.conftest import PATIENCE

if TYPE_CHECKING:
    import torch

    Tensors = dict[str, torch.Tensor]

SCRIPT = Path(__file__).parents[2] / "examples" / "fashion_mnist" / "train.py"
TRAIN_LINE = re.compile(r"Train Epoch: (\d+) \[(\d+)/(\d+) \((\d+)%\)\]\tloss=\d+\.\d{4}")
ACCURACY_LINE = re.compile(r"accuracy=([01]\.\d{4})")

Environment = dict[str, str]
Train = Callable[..., str]


@pytest.fixture(scope="module")
def data(make_idx_folder: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_idx_folder(tmp_path_factory.mktemp("data") / "idx")


@pytest.fixture(scope="module")
def warm_python(clean_environment: Environment) -> Iterator[subprocess.Popen[str]]:
    longest = str(int(2 * PATIENCE))  # seconds for one rank
    command = [sys.executable, str(Path(__file__).with_name("warm_python.py")), longest]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=clean_environment, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    ) as process:
        yield process
        os.killpg(process.pid, signal.SIGKILL)  # with any rank that it may still wait for


@pytest.fixture
def train(warm_python: subprocess.Popen[str], tmp_path: Path) -> Train:
    """Run the script to its end, bare or as so many ranks; what rank 0 printed. No rank may complain."""

    def run(*arguments: object, ranks: int = 0) -> str:
        assert warm_python.stdin
        assert warm_python.stdout
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        with socket.socket() as meeting_point:
            # Bound as long as the ranks run and, like their own, to be shared: nobody else is given the port.
            meeting_point.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            meeting_point.bind(("127.0.0.1", 0))
            port = str(meeting_point.getsockname()[1])
            world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(ranks)}
            request = {
                "script": str(SCRIPT),
                "arguments": [str(argument) for argument in arguments],
                "ranks": [
                    {
                        "environment": world | {"RANK": str(rank), "LOCAL_RANK": str(rank)} if ranks else {},
                        "output": str(folder / f"{rank}.out"),
                        "errors": str(folder / f"{rank}.err"),
                    }
                    for rank in range(max(ranks, 1))
                ],
            }
            print(json.dumps(request), file=warm_python.stdin, flush=True)
            codes = json.loads(warm_python.stdout.readline())
        assert "".join(path.read_text() for path in folder.glob("*.err")) == ""
        assert set(codes) == {0}
        return (folder / "0.out").read_text()

    return run


def weights(folder: Path) -> Tensors:
    import torch

    return dict(torch.load(folder / "model.pt", weights_only=True))


def same(left: Tensors, right: Tensors) -> bool:
    import torch

    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_network_has_the_published_size(example: dict[str, ModuleType]) -> None:
    import torch

    network = example["train"].Network()
    assert sum(parameter.numel() for parameter in network.parameters()) == 431_080
    assert network(torch.zeros(3, 28, 28, dtype=torch.uint8)).shape == (3, 10)
    assert network(torch.zeros(0, 28, 28, dtype=torch.uint8)).shape == (0, 10)


def test_missing_tensorboard_is_said_and_no_more(
    example: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))  # set by it, to be undone
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    assert example["train"].open_tensorboard(Path("logs"), 1) is None
    assert capsys.readouterr().out == "tensorboard is not installed: no logs in logs\n"


@pytest.mark.slow
def test_started_bare_it_prints_logs_and_saves(
    clean_environment: Environment, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    pytest.importorskip("tensorboard")
    flags = ("--data_path", data, "--checkpoint_path", tmp_path / "ckpt", "--log_path", tmp_path / "tb")
    command = [sys.executable, str(SCRIPT), *map(str, flags), "--batch_size=8", "--epochs=2", "--lr=0.05"]
    done = subprocess.run(command, env=clean_environment, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    epoch = [80, 160, 200]
    seen = [match.groups() for match in map(TRAIN_LINE.fullmatch, lines) if match]
    assert seen == [(str(e), str(n), "200", str(n // 2)) for e in (1, 2) for n in epoch]
    assert [bool(ACCURACY_LINE.fullmatch(line)) for line in lines].count(True) == 2
    assert len(lines) == 1 + 2 * (len(epoch) + 1)
    assert ACCURACY_LINE.fullmatch(lines[-1])
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == ["checkpoint.pt", "model.pt"]
    checkpoint = torch.load(tmp_path / "ckpt" / "checkpoint.pt", weights_only=True)
    assert checkpoint.keys() == {"model", "optimizer", "epoch"}
    assert checkpoint["epoch"] == 2
    assert same(checkpoint["model"], weights(tmp_path / "ckpt"))
    # With this module, tensorboard reads its files without TensorFlow, which must not be in this process.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    events = importlib.import_module("tensorboard.backend.event_processing.event_file_loader")
    (log,) = (tmp_path / "tb").iterdir()
    scalars = [
        (value.tag, event.step)
        for event in events.LegacyEventFileLoader(str(log)).Load()
        for value in event.summary.value
    ]
    assert scalars == [
        *(("loss", step) for step in (10, 20, 25)),
        ("accuracy", 25),
        *(("loss", step) for step in (35, 45, 50)),
        ("accuracy", 50),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [0, 3])
def test_resumed_run_ends_with_the_weights_of_an_undisturbed_one(
    train: Train, data: Path, tmp_path: Path, ranks: int
) -> None:
    flags = ("--data_path", data, "--batch_size", 16)
    straight, resumed = tmp_path / "straight", tmp_path / "resumed"
    train(*flags, "--epochs", 2, "--checkpoint_path", straight, ranks=ranks)
    train(*flags, "--epochs", 1, "--checkpoint_path", resumed, ranks=ranks)
    after_one = weights(resumed)
    output = train(*flags, "--epochs", 2, "--checkpoint_path", resumed, ranks=ranks)
    assert "epochs done: 1" in output
    assert "Train Epoch: 1" not in output
    assert not same(after_one, weights(resumed))
    assert same(weights(straight), weights(resumed))


# From outside, the signal might come when the next epoch, or all, is done already.
KILLED_IN_EPOCH_2 = """
import builtins, os, runpy, signal, sys
from pathlib import Path
show = print
def show_and_die(*words, **more):
    show(*words, **more)
    if str(words[0]).startswith("Train Epoch: 2"):
        os.kill(os.getpid(), signal.SIGKILL)
builtins.print = show_and_die
sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).parent)
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.slow
def test_killed_run_goes_on_after_its_last_epoch_and_ends_the_same(
    clean_environment: Environment, train: Train, data: Path, tmp_path: Path
) -> None:
    flags = ("--data_path", data, "--batch_size", 2, "--epochs", 3)
    straight, killed = tmp_path / "straight", tmp_path / "killed"
    train(*flags, "--checkpoint_path", straight)
    command = [sys.executable, "-c", KILLED_IN_EPOCH_2, str(SCRIPT), *map(str, flags)]
    command += ["--checkpoint_path", str(killed)]
    done = subprocess.run(command, env=clean_environment, stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (killed / "model.pt").exists()
    assert "epochs done: 1" in train(*flags, "--checkpoint_path", killed)
    assert same(weights(straight), weights(killed))
    again = train(*flags, "--checkpoint_path", killed)
    assert "Train Epoch" not in again  # nothing was left to do
    assert ACCURACY_LINE.fullmatch(again.splitlines()[-1])
    assert same(weights(straight), weights(killed))


THREADS = """
import runpy, sys
from pathlib import Path
sys.argv = sys.argv[1:]
sys.path.insert(0, str(Path(sys.argv[0]).parent))
runpy.run_path(sys.argv[0], run_name="__main__")
print("left:", *(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_thread_of_the_group_is_left(data: Path, clean_environment: dict[str, str]) -> None:
    """One that frees a tensor while Python ends aborts the process. (torch 2.6 left three, before.)"""
    command = [sys.executable, "-c", THREADS, str(SCRIPT), "--data_path", str(data)]
    done = subprocess.run(command, env=clean_environment, capture_output=True, text=True, check=True)
    (left,) = (line for line in done.stdout.splitlines() if line.startswith("left:"))
    assert "gloo" not in left


@pytest.mark.slow
def test_ranks_share_each_batch(train: Train, data: Path, tmp_path: Path) -> None:
    """Their number changes the last digits only, also where it divides neither the batch nor the data."""
    import torch

    flags = ("--data_path", data, "--batch_size", 33, "--epochs", 2, "--checkpoint_path")
    alone = train(*flags, tmp_path / "1").splitlines()
    together = train(*flags, tmp_path / "2", ranks=2).splitlines()
    assert len(alone) == len(together)
    for line, other in zip(alone[1:], together[1:], strict=True):  # the first says how many they are
        (text, value), (other_text, other_value) = line.split("="), other.split("=")
        assert text == other_text
        assert float(value) == pytest.approx(float(other_value), abs=0.001)
    one, two = (torch.load(tmp_path / n / "checkpoint.pt", weights_only=True) for n in ("1", "2"))
    assert one["epoch"] == two["epoch"] == 2
    assert one["optimizer"]["param_groups"] == two["optimizer"]["param_groups"]
    assert one["optimizer"]["state"].keys() == two["optimizer"]["state"].keys()
    assert one["model"].keys() == two["model"].keys()
    for name in one["model"]:
        torch.testing.assert_close(one["model"][name], two["model"][name])


@pytest.mark.slow
def test_real_data_trains(train: Train, real_data: Path) -> None:
    """With larger steps than usual part of an epoch is enough; a whole one would take half a minute."""
    lines = train("--data_path", real_data, "--limit", 5000, "--lr", 0.05, ranks=2).splitlines()
    match = ACCURACY_LINE.fullmatch(lines[-1])
    assert match
    assert float(match[1]) > 0.6
