"""`echelon metrics` and `echelon events`: of runs on this machine, as text, data and curves."""

from __future__ import annotations

import csv
import io
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from tests.cli.conftest import Background
from tests.conftest import wait_until
from tests.metrics.event_files import event, record

import echelon

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]
TRAIN = """
    import os
    rank = int(os.environ["ECHELON_RANK"])
    for step in range(1, 4):
        print(f"step={step} loss={1 / step} http://host/?a={step}&b=2")
    if rank == 0:
        print("accuracy=nan")
"""


@pytest.fixture
def run(call: Call, write: Write) -> str:
    """A run of two ranks that has ended, and has a file for TensorBoard among its results."""
    write("train.py", TRAIN)
    assert call("run", "-n", "2", "--name", "fm", "train.py").returncode == 0
    (Path("runs/fm/tb")).mkdir()
    at = next(line.at for line in echelon.attach("fm").logs())
    data = b"".join(record(event("val/loss", step / 4, at=at + 100 + step, step=step)) for step in range(2))
    Path("runs/fm/tb/events.out.tfevents.1").write_bytes(data)
    return "fm"


def test_what_was_measured_as_table_data_and_columns(run: str, call: Call) -> None:
    table = [line.split() for line in call("metrics", run).stdout.splitlines()]
    assert table == [
        ["METRIC", "RANKS", "VALUES", "LAST", "LEAST", "GREATEST", "STEP"],
        ["loss", "0-1", "3", "0.333333", "0.333333", "1", "3"],
        ["accuracy", "0", "1", "nan", "nan", "nan", "3"],
        ["val/loss", "tb", "2", "0.25", "0", "0.25", "1"],
    ]
    rows = list(csv.DictReader(io.StringIO(call("metrics", run, "-o", "csv").stdout)))
    assert [(row["rank"], row["step"], row["value"]) for row in rows if row["name"] == "accuracy"] == [
        ("0", "3", "nan")
    ]
    as_json = [json.loads(line) for line in call("metrics", run, "-o", "json").stdout.splitlines()]
    assert as_json == yaml.safe_load(call("metrics", run, "-o", "yaml").stdout)
    assert {str(row["value"]) for row in as_json if row["name"] == "accuracy"} == {"nan"}
    assert len(rows) == len(as_json) == 9
    columns = echelon.attach(run).metrics("loss", rank=1)
    assert list(columns) == ["time", "rank", "step", "epoch", "name", "value", "source"]
    assert (columns["step"], columns["value"]) == ([1, 2, 3], [1.0, 0.5, 1 / 3])


def test_some_of_it(run: str, call: Call) -> None:
    assert call("metrics", run, "--rank", "1", "--metric", "loss", "-o", "csv").stdout.count("\n") == 4
    missing = call("metrics", run, "--metric", "los")
    assert (missing.returncode, "there are: accuracy, loss, val/loss" in missing.stderr) == (110, True)
    assert call("metrics", run, "--rank", "7").returncode == 110
    assert call("metrics", "nobody").returncode == 111
    assert call("metrics", run, "--plot", "-f").returncode == 2
    assert call("metrics", run, "--metric-pattern", "(").returncode == 110


def test_curves_of_several_runs_are_in_one_chart(run: str, call: Call) -> None:
    assert call("run", "--name", "other", "train.py").returncode == 0
    shown = call("metrics", run, "other", "--plot", "--metric", "loss").stdout
    assert [line.split() for line in shown.splitlines()[-3:-1]] == [["*", "fm"], ["o", "other"]]
    both = call("metrics", run, "other").stdout
    assert both.split()[0] == "RUN"
    every = call("metrics", run, "--plot").stdout.splitlines()
    assert [line for line in every if line.endswith(")")] == ["loss (fm)", "val/loss (fm tb)"]


def test_a_pattern_of_the_run_and_one_of_the_reader(call: Call, write: Write) -> None:
    write("train.py", "print('loss is 3 at 7, a=1')")
    pattern = r"loss is (?P<loss>\S+) at (?P<step>\d+)"
    assert call("run", "--name", "fm", "--metric-pattern", pattern, "train.py").returncode == 0
    assert call("metrics", "fm", "-f").stdout == "[0] step 7 loss=3\n"
    assert call("metrics", "fm", "-f", "--metric-pattern", r"a=(?P<mine>\S+)").stdout == "[0] mine=1\n"
    refused = call("run", "--metric-pattern", r"(?P<a>(\d+)*)", "train.py")
    assert (refused.returncode, "repeats what repeats" in refused.stderr) == (110, True)


def test_a_run_that_measures_nothing_says_so(call: Call, hello: str) -> None:
    assert call("run", "--name", "fm", hello).returncode == 0
    for words in (["metrics", "fm"], ["metrics", "fm", "--plot"]):
        shown = call(*words)
        assert (shown.returncode, shown.stdout) == (0, "")
        assert "has printed no metrics" in shown.stderr


def test_names_that_would_do_something_to_a_terminal(call: Call, write: Write) -> None:
    write("train.py", 'print(\'{"\\\\u001b]0;title\\\\u0007": 1, "\\\\u009b2J": 2}\')')
    assert call("run", "--name", "fm", "train.py").returncode == 0
    formats = ([], ["-f"], ["-o", "csv"], ["-o", "json"], ["-o", "yaml"])
    for words in (*formats, ["--plot", "--metric", "\x1b]0;title\x07"]):
        shown = call("metrics", "fm", *words)
        assert shown.returncode == 0
        assert not {"\x1b", "\x9b"} & set(shown.stdout)
    for words in ([], ["-o", "json"], ["-o", "yaml"]):
        shown = call("events", "fm", *words)
        assert shown.returncode == 0
        assert not {"\x1b", "\x9b"} & set(shown.stdout)
    assert '"name":"\\u009b2J"' in call("events", "fm", "-o", "json").stdout


def test_events_of_a_run_that_has_ended(run: str, call: Call) -> None:
    text = call("events", run).stdout.splitlines()
    assert [line.split()[1] for line in text][-1] == "finished"
    assert "worker 1, rank 1, exit code 0" in "\n".join(text)
    for words in ([], ["-f"]):
        lines = [json.loads(line) for line in call("events", run, "-o", "json", *words).stdout.splitlines()]
        kinds = [line["kind"] for line in lines]
        # Followed, each source gives what it has as it comes; only the end has its place.
        assert words or kinds[0] == "recorded"
        assert (kinds.count("recorded"), kinds[-1], kinds.count("metric")) == (1, "finished", 9)
        assert lines[-1]["outcome"] == "succeeded"
        first = next(line for line in lines if line["kind"] == "metric")
        assert first.keys() == {"kind", "at", "rank", "step", "name", "value"}
    without = call("events", run, "-o", "json", "--no-metrics").stdout
    assert "metric" not in without
    assert len(yaml.safe_load(call("events", run, "-o", "yaml").stdout)) == len(without.splitlines()) + 9


def test_events_and_metrics_come_while_a_run_trains(call: Call, write: Write, tmp_path: Path) -> None:
    write(
        "train.py",
        """
        import pathlib, time
        print("step=1 loss=0.5", flush=True)
        while not pathlib.Path("go").exists():
            time.sleep(0.02)
        print("step=2 loss=0.25", flush=True)
        """,
    )
    assert call("run", "-d", "--name", "fm", "train.py").returncode == 0
    following = Background("events", "fm", "-f", "-o", "json", files=tmp_path / "following")
    metrics = Background("metrics", "fm", "-f", files=tmp_path / "metrics")
    wait_until(lambda: '"value":0.5' in following.out, "the first value")
    wait_until(lambda: metrics.out == "[0] step 1 loss=0.5\n", "the first value")
    assert "finished" not in following.out
    Path("go").touch()
    assert (following.end(), metrics.end()) == (0, 0)
    kinds = [json.loads(line)["kind"] for line in following.out.splitlines()]
    assert (kinds.count("metric"), kinds[-1]) == (2, "finished")
    assert metrics.out.endswith("loss=0.25\n")


def test_a_failure_and_a_restart_are_events(call: Call, write: Write) -> None:
    write(
        "train.py",
        "import os, sys\nprint('loss=1')\nsys.exit(3 if os.environ['ECHELON_RESTART'] == '0' else 0)",
    )
    assert call("run", "--name", "fm", "--restarts", "1", "train.py").returncode == 0
    lines = [json.loads(line) for line in call("events", "fm", "-o", "json").stdout.splitlines()]
    (restart,) = [line for line in lines if line["kind"] == "restarting"]
    assert (restart["restart"], restart["cause"]["exit_code"]) == (1, 3)
    assert sum(line["kind"] == "metric" for line in lines) == 2
    assert "restart 1" in call("events", "fm").stdout


def test_metrics_are_sent_to_a_tracker_once(run: str, call: Call) -> None:
    sent = call("metrics", run, "--track", "tensorboard")
    assert (sent.returncode, sent.stdout) == (0, "")
    assert "`tensorboard --logdir" in sent.stderr
    files = {path: path.read_bytes() for path in Path("runs/fm/tracking").rglob("*.echelon")}
    assert sorted(path.parent.name for path in files) == ["rank-0", "rank-1"]
    assert call("metrics", run, "--track", "tensorboard").returncode == 0
    assert {path: path.read_bytes() for path in files} == files
    assert len(call("metrics", run, "-o", "csv").stdout.splitlines()) == 10  # they are no metrics of the run
    assert call("metrics", run, "--track", "mlflow").returncode == 110
    assert call("metrics", run, "--track", "mlflow", "--plot").returncode == 2


def test_a_run_is_forwarded_while_it_is_followed(call: Call, write: Write) -> None:
    write("train.py", TRAIN)
    done = call("run", "--name", "fm", "--track", "tensorboard", "train.py")
    assert done.returncode == 0
    (file,) = Path("runs/fm/tracking").rglob("*.echelon")
    assert file.read_bytes().count(b"loss") == 3
    assert "metrics: " in done.stderr
    refused = call("run", "--track", "wandb", "train.py")
    assert refused.returncode == 110
    assert "wandb.init()" in refused.stderr
