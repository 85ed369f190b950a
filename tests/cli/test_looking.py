"""The commands that look at runs, and those that end and forget them: piped, as text and as data."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import Background, wait_for
from tests.cli.terminal import Terminal
from tests.conftest import wait_until

from echelon.cli.printing.render import findings
from echelon.model.engine.finding import Finding
from echelon.model.engine.usage import MachineRun, MachineUsage
from echelon.model.event import Event, RootCause
from echelon.model.output.log import LogLine
from echelon.model.status import RunSummary, Status, WorkerStatus

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]
TIME = r"(?:\d+\.\d s|\d+ m \d+ s)"
TALK = """
    import os, sys, time
    rank = int(os.environ["ECHELON_RANK"])
    for number in range(3):
        print(f"line {number} of rank {rank}", flush=True)
        time.sleep(0.02)
    print("an error", file=sys.stderr, flush=True)
    sys.exit(3 if "--fail" in sys.argv and rank == 1 else 0)
"""


def names(kind: type[Any]) -> set[str]:
    return {each.name for each in fields(kind)}


def test_every_reading_command_gives_the_same_data_as_json_and_yaml(call: Call, write: Write) -> None:
    write("talk.py", TALK)
    assert call("run", "-n", "2", "--name", "fm", "talk.py", "--fail").returncode == 3
    for words in (["ps", "-a"], ["status", "fm"], ["wait", "fm"], ["stop", "fm"]):
        as_json, as_yaml = call(*words, "-o", "json"), call(*words, "-o", "yaml")
        assert json.loads(as_json.stdout) == yaml.safe_load(as_yaml.stdout)
        assert as_json.stderr == as_yaml.stderr == ""
    lines = [json.loads(line) for line in call("logs", "fm", "-o", "json").stdout.splitlines()]
    assert yaml.safe_load(call("logs", "fm", "-o", "yaml").stdout) == lines
    for words in (["top"], ["doctor"], ["get", "fm"]):
        for format_ in ("json", "yaml"):
            assert yaml.safe_load(call(*words, "-o", format_).stdout)


def test_the_fields_are_the_documented_ones(call: Call, write: Write) -> None:
    write("talk.py", TALK)
    assert call("run", "-n", "2", "--name", "fm", "talk.py", "--fail").returncode == 3
    status = json.loads(call("status", "fm", "-o", "json").stdout)
    assert set(status) == names(Status)
    assert (status["name"], status["uri"], status["state"], status["exit_code"]) == (
        "fm",
        "local://fm",
        "failed",
        3,
    )
    assert all(set(worker) == names(WorkerStatus) for worker in status["workers"])
    cause = status["root_cause"]
    assert set(cause) == names(RootCause) >= {"rank", "exit_code", "signal", "error", "tail"}
    assert (cause["rank"], cause["worker"], cause["exit_code"], cause["signal"]) == (1, 1, 3, None)
    assert cause["tail"][-1] == "an error"
    assert cause["error"] == "an error"
    (row,) = json.loads(call("ps", "-a", "-o", "json").stdout)
    assert set(row) == names(RunSummary)
    assert row["command"] == "talk.py --fail"
    line = json.loads(call("logs", "fm", "-o", "json").stdout.splitlines()[0])
    assert set(line) == names(LogLine)
    assert set(json.loads(call("top", "-o", "json").stdout)) == names(MachineUsage)
    findings = json.loads(call("doctor", "-o", "json").stdout)
    assert all(set(finding) == names(Finding) for finding in findings)
    assert set(json.loads(call("get", "fm", "-o", "json").stdout)) == {"path", "seconds"}
    assert json.loads(call("rm", "fm", "-o", "json").stdout) == {"removed": ["fm"]}


def test_a_failed_runs_workers_say_what_became_of_them(call: Call, write: Write) -> None:
    write("talk.py", TALK)
    assert (
        call(
            "run",
            "-n",
            "2",
            "--name",
            "fm",
            "--",
            "sh",
            "-c",
            "test $ECHELON_WORKER = 0 && sleep 600; exit 4",
        ).returncode
        == 4
    )
    workers = json.loads(call("status", "fm", "-o", "json").stdout)["workers"]
    assert [worker["state"] for worker in workers] == ["stopped", "failed"]


def test_ps_lists_what_goes_on_and_with_a_everything(call: Call, stay: str, hello: str) -> None:
    none = call("ps")
    assert (none.stdout, none.returncode) == ("", 0)
    assert "-a" in none.stderr
    assert call("run", "--name", "old", hello).returncode == 0
    assert call("run", "-d", "-n", "2", "--name", "new", stay, "a b\nc").returncode == 0
    wait_for("runs/new/pid-0", "runs/new/pid-1")
    wait_until(lambda: " running " in call("ps").stdout, "the run to be seen running")
    head, row = call("ps").stdout.splitlines()
    assert head.split() == ["NAME", "STATE", "WORKERS", "GPUS", "AGE", "TOOK", "COMMAND", "REASON"]
    assert re.fullmatch(rf"new +running +2 +- +{TIME} +{TIME} +stay.py a b c", row)
    assert [line.split()[0] for line in call("ps", "-a").stdout.splitlines()] == ["NAME", "new", "old"]
    Path("go").touch()
    assert call("wait", "new").returncode == 0
    assert call("ps").stdout == ""
    assert [row["name"] for row in json.loads(call("ps", "-a", "-o", "json").stdout)] == ["new", "old"]


def test_ps_lists_what_is_asked_for(call: Call, hello: str) -> None:
    assert call("run", "--name", "good", hello).returncode == 0
    for name in ("one", "two", "three"):
        assert call("run", "--name", name, "--", "sh", "-c", "exit 3").returncode == 3

    def listed(*words: str) -> list[str]:
        return [row["name"] for row in json.loads(call("ps", "-o", "json", *words).stdout)]

    assert listed("--state", "failed") == ["three", "two", "one"]
    assert listed("--state", "failed", "--limit", "2") == ["three", "two"]
    assert listed("--state", "failed", "--state", "succeeded") == ["three", "two", "one", "good"]
    assert listed("--state", "running") == []
    assert listed("one", "local://good") == ["one", "good"]
    assert listed("--state", "failed", "--limit", "3", "good", "two") == ["two"]
    assert listed("-a", "--limit", "1") == ["three"]
    assert call("ps", "-q", "--state", "succeeded").stdout == "good\n"
    unknown = call("ps", "goood", "two")
    assert (unknown.returncode, unknown.stdout) == (111, "")
    assert "no run named 'goood'\n  hint: did you mean 'good'?" in unknown.stderr
    assert "'broken' is not one of" in call("ps", "--state", "broken").stderr


def test_ps_watch_until_interrupted(background: Callable[..., Background]) -> None:
    watching = background("ps", "--watch", "-o", "json")
    wait_until(lambda: watching.out.count("[]") >= 2, "two looks")
    watching.process.send_signal(signal.SIGINT)
    assert watching.end() == 130
    assert watching.err.strip() == ""


def test_ps_watch_on_a_terminal_leaves_it_as_it_was(
    terminal: Callable[..., Terminal], call: Call, hello: str
) -> None:
    """It has a screen of its own, and fills no more than there is; Ctrl-Z gives the first one back, too."""
    for number in range(4):
        assert call("run", "-d", "--name", f"fm-{number}", hello).returncode == 0
    watching = terminal("ps", "--watch", "-a")
    watching.resize(4, 80)
    watching.expect(r"\x1b\[\?1049h[^$]*NAME[^$]*fm-3[^$]*\.\.\. 2 more lines")
    watching.expect_lines("NAME.*", "fm-3.*", "fm-2.*", r"\.\.\. 2 more lines")
    os.kill(watching.process.pid, signal.SIGTSTP)
    watching.expect(r"1049l")
    os.kill(watching.process.pid, signal.SIGCONT)
    watching.expect(r"1049l[^$]*1049h[^$]*NAME")
    watching.type("\x03")
    assert watching.end() == 130
    assert watching.shown.count("1049h") == watching.shown.count("1049l") == 2
    assert watching.shown.rstrip().endswith("\x1b[?1049l")
    assert watching.mode() == watching.first_mode


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_top_on_a_terminal_leaves_it_as_it_was(
    terminal: Callable[..., Terminal], ends: signal.Signals
) -> None:
    looking = terminal("top")
    looking.expect(r"\x1b\[\?1049h[^$]*CPU")
    looking.process.send_signal(ends)
    assert looking.end() == 128 + ends
    assert looking.shown.rstrip().endswith("\x1b[?1049l")


def test_top_of_a_run_that_ends_shows_how(terminal: Callable[..., Terminal], call: Call, stay: str) -> None:
    assert call("run", "-d", "--name", "fm", stay).returncode == 0
    looking = terminal("top", "fm")
    looking.expect(r"1049h[^$]*fm")
    Path("go").touch()
    assert looking.end() == 0
    assert "fm" in looking.shown.rpartition("1049l")[2]


def test_status_of_a_running_run(call: Call, stay: str) -> None:
    assert (
        call("run", "-d", "-n", "2", "--procs", "2", "--restarts", "3", "--name", "fm", stay).returncode == 0
    )
    wait_until(lambda: " running" in call("status", "fm").stdout.splitlines()[0], "the run to run")
    shown = call("status", "fm").stdout
    assert shown.startswith("fm  running\n")
    assert re.search(rf"^  elapsed +{TIME}$", shown, re.MULTILINE)
    assert re.search(r"^  restarts +0 of 3$", shown, re.MULTILINE)
    assert re.search(r"^  results +runs/fm$", shown, re.MULTILINE)
    assert re.search(
        r"^WORKER +ROLE +RANKS +STATE +NODE +RANK PIDS$", shown, re.MULTILINE
    )  # no GPUs, no reasons
    assert re.search(rf"^  phases +queued {TIME}, starting {TIME}, training {TIME}$", shown, re.MULTILINE)
    assert re.search(r"^1 +worker +2-3 +running +\S+ +\d+,\d+$", shown, re.MULTILINE)
    assert call("status", "local://fm").stdout.splitlines()[0] == "fm  running"


def test_waiting(call: Call, stay: str) -> None:
    assert call("run", "-d", "--name", "fm", stay).returncode == 0
    done = call("wait", "fm", "--timeout", "0.1s")
    assert done.returncode == 118
    assert "run 'fm' is still" in done.stderr
    assert "hint: wait longer" in done.stderr
    Path("go").touch()
    done = call("wait", "fm")
    assert (done.returncode, done.stdout) == (0, "fm succeeded\n")


def test_what_helps_is_said_to_those_who_come_later(call: Call, write: Write) -> None:
    """By `wait` and `status`, as at the end of a run in the foreground."""
    write("train.py", "open('data/a.csv')")
    write("torchless.py", "import no_such_package")
    write(".gitignore", "data/")
    write(".echelonignore", "")
    Path("data").mkdir()
    Path("data/a.csv").touch()
    assert call("run", "-d", "--snapshot", "--name", "fm", "train.py").returncode == 0
    waited = call("wait", "fm")
    assert waited.stdout.startswith("fm failed: ")
    assert "--include data/ ships it" in waited.stderr
    assert "`echelon status fm` shows its last lines" in waited.stderr
    assert "--include data/ ships it" in call("status", "fm").stdout
    assert call("run", "-d", "--name", "no", "torchless.py").returncode == 0
    assert "--python runs the ranks with another Python" in call("wait", "no").stderr


def test_stopping(call: Call, stay: str) -> None:
    assert call("run", "-d", "-n", "2", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0", "runs/fm/pid-1")
    refused = call("rm", "fm")
    assert refused.returncode == 115
    assert "run 'fm' has not ended" in refused.stderr
    assert "`echelon stop fm` first" in refused.stderr
    done = call("stop", "fm")
    assert done.returncode == 0
    assert done.stdout.startswith("fm stopped: stopped by ")
    assert Path("runs/fm/term-0").exists()
    assert Path("runs/fm/term-1").exists()
    again = call("stop", "fm")
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert call("stop", "--now", "fm").stdout == done.stdout
    assert call("wait", "fm").returncode == 143
    assert json.loads(call("status", "fm", "-o", "json").stdout)["state"] == "stopped"
    assert call("rm", "fm").stdout == "fm\n"
    assert call("ps", "-a").stdout == ""


def test_stopping_several_and_killing(call: Call, stay: str) -> None:
    for name in ("a", "b"):
        assert call("run", "-d", "--name", name, stay, "--stubborn").returncode == 0
    wait_for("runs/a/pid-0", "runs/b/pid-0")
    done = call("stop", "--now", "a", "b", "a")
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == ["a stopped", "b stopped"]
    assert not Path("runs/a/term-0").exists()
    assert call("rm", "a", "b").stdout == "a\nb\n"


def test_getting_results(call: Call, write: Write) -> None:
    write(
        "save.py",
        """
        import os, pathlib
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        (out / "ckpt").mkdir()
        (out / "ckpt" / "model.pt").write_bytes(bytes(range(256)))
        """,
    )
    assert call("run", "--name", "fm", "save.py").returncode == 0
    assert call("get", "fm").stdout == "runs/fm\n"
    assert call("get", "fm", "ckpt/model.pt").stdout == "runs/fm/ckpt/model.pt\n"
    assert call("get", "fm", "ckpt/model.pt", "--to", "there/new").stdout == "there/new/model.pt\n"
    assert Path("there/new/model.pt").read_bytes() == bytes(range(256))
    assert call("get", "fm", "ckpt", "--to", "there").stdout == "there/ckpt\n"
    assert call("get", "fm", "ckpt/*.pt").stdout == "runs/fm/ckpt/model.pt\n"
    assert call("get", "fm", "*/[lm]*", "--to", "some").stdout == "some/ckpt/model.pt\n"
    assert Path("some/ckpt/model.pt").read_bytes() == bytes(range(256))
    assert call("get", "fm", "--to", "all").stdout == "all\n"
    assert Path("all/ckpt/model.pt").read_bytes() == bytes(range(256))
    assert Path("all/logs/rank-0.log").exists()
    hidden = sorted(str(path) for path in Path().rglob(".*"))
    assert hidden == ["runs/.gitignore", "runs/fm/.echelon-run"]  # no half-copied file is left


def test_top_shows_who_uses_the_machine(call: Call, stay: str) -> None:
    assert call("run", "-d", "-n", "2", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0", "runs/fm/pid-1")
    wait_until(lambda: " running " in call("ps").stdout, "the run to be seen running")
    usage = json.loads(call("top", "-o", "json").stdout)
    assert usage["cpus"] >= 1
    assert 0 < usage["memory_used"] <= usage["memory"]
    (use,) = usage["runs"]
    assert set(use) == names(MachineRun)
    assert use["name"] == "fm"
    assert use["processes"] >= 5  # the supervisor, two agents, two ranks
    assert use["memory"] > 10 * 2**20
    text = call("top").stdout
    assert re.search(r"^\d+ CPUs, load", text)
    assert re.search(r"^RUN +STATE +PROCESSES +CPUS +MEMORY +GPUS\nfm +running", text, re.MULTILINE)


def test_the_columns_of_doctor(call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    """They begin where those of any other line do: each is printed as soon as it is known."""
    told = json.loads(call("doctor", "-o", "json").stdout)
    same = [Finding(level="degraded", what=each["what"], found="FOUND", fix="FOUND") for each in told]
    findings(same, "text")
    assert len({row.index("FOUND") for row in capfd.readouterr().out.splitlines()}) == 1


def test_doctor(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    done = call("doctor")
    assert done.returncode == 0
    assert re.search(r"^ok +Python for ranks +3\.\d+\.\d+ \(.+\)$", done.stdout, re.MULTILINE)
    assert re.search(r"^ok +state folder ", done.stdout, re.MULTILINE)
    monkeypatch.setenv("ECHELON_HOME", "/proc/no/such")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    done = call("doctor")
    assert done.returncode == 1
    assert re.search(r"^missing +state folder .*\n +set ECHELON_HOME", done.stdout, re.MULTILINE)
    assert re.search(
        r"^missing +Python for ranks .*\n +activate an environment, or use --python",
        done.stdout,
        re.MULTILINE,
    )


def test_a_name_that_is_wrong_does_not_keep_the_others_waiting(call: Call) -> None:
    for name in ("one", "two"):
        assert call("run", "-d", "--name", name, "--", "sleep", "600").returncode == 0
    stopped = call("stop", "--now", "one", "typo", "two")
    assert stopped.returncode == 111
    assert "one stopped" in stopped.stdout
    assert "two stopped" in stopped.stdout
    removed = call("rm", "one", "typo", "two")
    assert removed.returncode == 111
    assert removed.stdout.split() == ["one", "two"]


def test_status_says_what_of_the_results_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    from echelon.cli.printing.render_status import show_status
    from echelon.model.status import Status

    lost = tuple(f"worker {worker}: 3 files not fetched: its pod is gone" for worker in range(10))
    show_status(Status(name="fm", uri="k8s://fm", state="succeeded", missing=lost), "text")
    lines = [line.split(None, 1) for line in capsys.readouterr().out.splitlines() if "missing" in line]
    assert lines == [*(["missing", each] for each in lost[:8]), ["missing", "results of 2 more workers"]]


def test_status_shows_the_newest_checkpoint_that_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    from echelon.cli.printing.render_status import show_status
    from echelon.model.status import KeptCheckpoint, Status

    kept = KeptCheckpoint(path="ckpt/step-4000", size=1288490188, kept_at=time.time() - 130)
    status = Status(name="fm", uri="k8s://fm", state="running", checkpoint=kept)
    show_status(status, "text")
    assert re.search(
        r"^  checkpoint ckpt/step-4000, 1.2 GiB, kept 2 m 1\d s ago$", capsys.readouterr().out, re.M
    )
    show_status(status, "json")
    assert json.loads(capsys.readouterr().out)["checkpoint"] == {
        "path": "ckpt/step-4000",
        "size": 1288490188,
        "kept_at": kept.kept_at,
    }


def test_events_of_checkpoints_in_words() -> None:
    from echelon.cli.commands.events import _line

    lines = [
        _line(Event(kind="checkpoint", at=1.0, path="ckpt/step-4000", size=1288490188, files=4)),
        _line(Event(kind="restored", at=1.0, worker=1, path="ckpt/step-4000", generation=1)),
    ]
    assert [line.partition("  ")[2] for line in lines] == [
        "checkpoint      checkpoint ckpt/step-4000 (1.2 GiB) is with the keeper",
        "restored        worker 1 got ckpt/step-4000 back",
    ]


def test_status_tells_how_far_the_training_has_come(call: Call, write: Write) -> None:
    write("train.py", "print('Epoch 3/10 loss=0.5')\nprint('text')\nraise SystemExit(3)\n")
    assert call("run", "--name", "fm", "train.py").returncode == 3
    assert "\n  progress   epoch 3/10, 30%, loss 0.5\n" in call("status", "fm").stdout
    progress = json.loads(call("status", "fm", "-o", "json").stdout)["progress"]
    assert (progress["rank"], progress["epoch"], progress["epochs"], progress["left"]) == (0, 3.0, 10, None)
    assert (progress["done"], progress["of"], progress["metrics"]) == (0.3, "run", {"loss": 0.5})
