"""Every mistake gets one clear line and a hint, an exit code of its own, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.terminal import ECHELON
from tests.conftest import PATIENCE

from echelon import errors

Call = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]


def check_refused(done: subprocess.CompletedProcess[str], code: int, *said: str) -> None:
    """One line that begins with `echelon:` and one with a hint, nothing else."""
    assert done.returncode == code, done.stderr
    problem, hint = done.stderr.splitlines()
    assert problem.startswith("echelon: ")
    assert hint.startswith("  hint: ")
    for text in said:
        assert text in done.stderr
    assert done.stdout == ""


def check_nothing_left(home: Path) -> None:
    assert not (home / "runs").exists() or not list((home / "runs").iterdir())
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["helo.py"], 110, ["script: 'helo.py' does not exist", "did you mean hello.py?"]),
        (["-"], 110, ["script: '-' does not exist", "echelon run -- python -"]),
        (["nowhere/train.py"], 110, ["does not exist", "-- COMMAND"]),
        (["folder"], 110, ["'folder' is a folder", "-m MODULE"]),
        (["-n", "0", "hello.py"], 110, ["workers: 0 is less than 1", "at least one worker"]),
        (["-n", "-3", "hello.py"], 110, ["workers: -3"]),
        (["--procs", "0", "hello.py"], 110, ["procs: 0"]),
        (["--restarts", "-1", "hello.py"], 110, ["restarts: -1"]),
        (["--gpus", "-1", "hello.py"], 110, ["gpus: -1"]),
        (["--gpu-type", "A100", "hello.py"], 110, ["gpu_type: 'A100' is given without GPUs", "--gpus N"]),
        (["--cpus", "many", "hello.py"], 110, ["cpus: 'many'", "2:4"]),
        (["--memory", "4Gi:2Gi", "hello.py"], 110, ["memory: '4Gi:2Gi' has a limit below its request"]),
        (["--timeout", "soon", "hello.py"], 110, ["timeout: 'soon' is not a time", "1h30m"]),
        (["--timeout", "0", "hello.py"], 110, ["timeout: '0'"]),
        (["--resource", "rdma", "hello.py"], 110, ["resource: 'rdma' is not KEY=VALUE", "--resource NAME=N"]),
        (["--resource", "rdma=x", "hello.py"], 110, ["resource rdma: 'x' is not a whole number"]),
        (
            ["--role", "boss=1", "hello.py"],
            110,
            ["role: 'boss' is not known", "chief, ps, evaluator"],
        ),
        (["--role", "chief=2", "hello.py"], 110, ["role chief: 2 is more than one"]),
        (["--env", "KEY", "hello.py"], 110, ["env: 'KEY' is not KEY=VALUE"]),
        (["--env", "1K=2", "hello.py"], 110, ["env: '1K' is not a variable's name"]),
        (
            ["--secret", "NO_SUCH", "hello.py"],
            110,
            ["secret: 'NO_SUCH' is not in your environment", "export"],
        ),
        (["--secret", "A=@/no/such/file", "hello.py"], 110, ["cannot be read", "name a file"]),
        (["--python", "no/python", "hello.py"], 110, ["no/python' is not a program", "active environment"]),
        (["--python", "~nosuchuser/python", "hello.py"], 110, ["~nosuchuser/python' is not a program"]),
        (["--name", "My_Run", "hello.py"], 110, ["name: 'My_Run' is not a run's name", "'my-run'"]),
        (["--name", "a" * 41, "hello.py"], 110, ["at most 40 characters"]),
        (["--name", "../../etc", "hello.py"], 110, ["is not a run's name"]),
        (["--name", "", "hello.py"], 110, ["name: ''"]),
        (["-f", "no.yaml"], 110, ["job file: 'no.yaml' does not exist"]),
        (["-f", "folder"], 110, ["'folder' is a folder"]),
        (["-f", "typo.yaml"], 110, ["typo.yaml", "wrokers", "workers"]),
        (["-f", "broken.yaml"], 110, ["broken.yaml", "is not YAML"]),
        (["-f", "good.yaml", "--set", "wrokers=2"], 110, ["--set", "wrokers", "workers"]),
        (["-f", "good.yaml", "--set", "workers"], 110, ["--set", "is not KEY=VALUE"]),
        (["-f", "good.yaml", "--set", "workers=two"], 110, ["workers", "two"]),
        (["--on", "k8s", "hello.py"], 119, ["no kubeconfig", "set KUBECONFIG"]),
        (["--cpus", "99999", "hello.py"], 113, ["99999 CPUs asked for, this machine has", "lower --cpus"]),
        (["--memory", "9999Ti", "hello.py"], 113, ["memory asked for", "lower --memory"]),
        (["--resource", "rdma/hca=1", "hello.py"], 113, ["resource 'rdma/hca'"]),
        (["--results", "hello.py", "hello.py"], 115, ["hello.py is not a folder", "--results"]),
        (["--results", "folder", "hello.py"], 115, ["folder is not empty", "--reuse-results"]),
    ],
)
def test_a_mistake_is_one_line_and_a_hint(
    call: Call, hello: str, write: Write, home: Path, words: list[str], code: int, said: list[str]
) -> None:
    write("folder/notes.txt", "mine")
    write("typo.yaml", "script: hello.py\nwrokers: 2\n")
    write("broken.yaml", "script: [hello.py\n")
    write("good.yaml", "script: hello.py\n")
    check_refused(call("run", *words), code, *said)
    check_nothing_left(home)


def test_a_state_folder_that_is_a_file(call: Call, hello: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ECHELON_HOME", str(Path(hello).absolute()))
    for words in (["run", hello], ["ps"]):
        check_refused(call(*words), 115, "cannot use", "hello.py", "ECHELON_HOME for the state")


def test_more_gpus_than_there_are(cli: Call, hello: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    check_refused(
        cli("run", "-n", "2", "--gpus", "4", hello), 113, "8 GPUs asked for, this machine has none", "--gpus"
    )
    check_nothing_left(home)


@pytest.mark.parametrize("command", ["status", "logs", "wait", "stop", "rm", "get"])
def test_a_run_where_there_is_none(call: Call, home: Path, command: str) -> None:
    check_refused(call(command, "fashion"), 111, "no run named 'fashion'", "echelon ps -a")
    check_nothing_left(home)


def test_an_unknown_run_suggests_the_nearest(cli: Call, call: Call, hello: str) -> None:
    assert cli("run", "-d", "--name", "fashion-mnist", hello).returncode == 0
    said = ("no run named 'fashon-mnist'", "did you mean 'fashion-mnist'?")
    check_refused(cli("logs", "fashon-mnist"), 111, *said)
    for command in ("status", "wait", "stop", "rm", "get"):
        check_refused(call(command, "fashon-mnist"), 111, *said)


def test_mistakes_about_a_run(cli: Call, call: Call, hello: str) -> None:
    assert cli("run", "-n", "2", "--name", "fm", hello).returncode == 0
    before = call("status", "fm", "-o", "json").stdout
    for words, code, said in (
        (["logs", "../../etc"], 110, "is not a run's name"),
        (["logs", "fm", "--since", "yesterday"], 110, "since: 'yesterday' is not a time"),
        (["logs", "fm", "--rank", "2"], 110, "rank: 2 is not a rank of run 'fm'"),
        (["logs", "fm", "--worker", "9"], 110, "worker: 9 is not a worker of run 'fm'"),
        (["wait", "fm", "--timeout", "soon"], 110, "timeout: 'soon' is not a time"),
        (["get", "fm", "no/such.pt"], 110, "path: 'no/such.pt' is not among the results"),
        (["get", "fm", "../../hello.py"], 110, "path: '../../hello.py' is outside the results"),
        (["get", "fm", "/etc/passwd"], 110, "path: '/etc/passwd' is outside the results"),
        (["get", "fm", "no/*.pt"], 110, "path: 'no/*.pt' matches nothing among the results"),
        (["get", "fm", "../*.py"], 110, "path: '../*.py' is outside the results"),
        (["get", "fm", "/etc/pass*"], 110, "path: '/etc/pass*' is outside the results"),
        (["get", "fm", "--to", "hello.py"], 115, "hello.py"),
        (["status", "mars://fm"], 110, "names no engine"),
        (["status", "k8s://fm"], 119, "no kubeconfig"),
        (["status", "fm", "--on", "k8s"], 119, "no kubeconfig"),
        (["rm", "fmm"], 111, "no run named 'fmm'"),
    ):
        check_refused(call(*words), code, said)
    assert call("status", "fm", "-o", "json").stdout == before  # nothing of it was touched


def test_a_name_that_exists(cli: Call, hello: str) -> None:
    assert cli("run", "--name", "fm", hello).returncode == 0
    before = cli("status", "fm", "-o", "json").stdout
    check_refused(
        cli("run", "--name", "fm", "--results", "elsewhere", hello),
        112,
        "a run named 'fm' exists",
        "echelon rm fm",
    )
    check_refused(cli("run", "--name", "fm", hello), 112, "a run named 'fm' exists", "echelon rm fm")
    check_refused(
        cli("run", "--name", "fm", "--reuse-results", hello),
        112,
        "`echelon resume fm` starts it again as it was; --reuse-results --replace goes on in its results",
    )
    assert cli("status", "fm", "-o", "json").stdout == before
    assert not Path("elsewhere").exists()


def test_a_name_is_free_again_after_rm_and_results_stay(cli: Call, hello: str) -> None:
    assert cli("run", "--name", "fm", hello).returncode == 0
    assert cli("rm", "fm").stdout == "fm\n"
    assert Path("runs/fm/logs/rank-0.log").read_text() == "hello from 0\n"
    check_refused(cli("run", "--name", "fm", hello), 115, "results folder", "is not empty", "--reuse-results")
    check_refused(cli("status", "fm"), 111)
    assert cli("run", "--name", "fm", "--reuse-results", hello, "again").returncode == 0
    assert "hello from 0 again\n" in Path("runs/fm/logs/rank-0.log").read_text()


@pytest.fixture
def as_nobody(home: Path) -> Iterator[Call]:
    """`echelon` without the right to ignore permissions, which root has."""
    prefix: tuple[str, ...] = ()
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("root ignores permissions, and there is no setpriv to drop that right")
        prefix = ("setpriv", "--inh-caps=-all", "--bounding-set=-dac_override,-dac_read_search")

    def call(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*prefix, *ECHELON, *words], capture_output=True, text=True, check=False, timeout=PATIENCE
        )

    yield call
    for path in Path.cwd().rglob("*"):
        path.chmod(0o755)


def test_a_script_that_may_not_be_read(as_nobody: Call, hello: str, home: Path) -> None:
    Path(hello).chmod(0)
    check_refused(as_nobody("run", hello), 110, "script: 'hello.py' cannot be read", "chmod +r")
    check_nothing_left(home)


def test_a_job_file_that_may_not_be_read(as_nobody: Call, write: Write, home: Path) -> None:
    write("job.yaml", "script: hello.py").chmod(0)
    check_refused(as_nobody("run", "-f", "job.yaml"), 110, "job.yaml", "cannot be read", "permissions")
    check_nothing_left(home)


@pytest.mark.parametrize("state", ["locked", "locked/below", "hello.py"])
def test_a_state_folder_that_may_not_be_written(
    as_nobody: Call, hello: str, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    Path("locked").mkdir(mode=0o555)
    monkeypatch.setenv("ECHELON_HOME", state)
    check_refused(as_nobody("run", hello), 115, state)
    assert not Path("runs").exists()
    assert list(Path("locked").iterdir()) == []


def test_a_state_folder_that_may_not_be_read(
    as_nobody: Call, hello: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("locked").mkdir(mode=0)
    monkeypatch.setenv("ECHELON_HOME", "locked")
    for words in (["run", hello], ["ps"], ["status", "fm"], ["logs", "fm"]):
        check_refused(as_nobody(*words), 115, "locked", "ermission denied")


@pytest.mark.parametrize("words", [["--results", "locked/results"], []])
def test_a_results_folder_that_may_not_be_written(
    as_nobody: Call, hello: str, home: Path, words: list[str]
) -> None:
    Path("locked").mkdir(mode=0o555)
    Path("runs").mkdir(mode=0o555)
    check_refused(as_nobody("run", *words, hello), 115, "locked" if words else "runs", "--results")
    assert not list((home / "runs").iterdir()) if (home / "runs").exists() else True


def test_a_working_folder_that_is_gone(cli: Call, hello: str, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    code = (
        "import os, sys; os.rmdir('../gone'); from echelon.cli import main; sys.exit(main.call(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", code, "run", str(Path(hello).absolute())]
    done = subprocess.run(command, cwd=gone, capture_output=True, text=True, check=False)
    check_refused(done, 115, "the working folder: No such file or directory")


def test_every_error_has_a_code_of_its_own_and_is_documented() -> None:
    ours = [kind for kind in errors.EchelonError.__subclasses__() if kind.__module__ == errors.__name__]
    kinds: list[type[errors.EchelonError]] = [errors.EchelonError, *ours]
    codes = [kind.exit_code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert errors.__doc__ is not None
    for kind in kinds:
        assert re.search(rf"\b{kind.__name__} +{kind.exit_code}\b", errors.__doc__)
        assert not 3 <= kind.exit_code < 100  # where programs have theirs
        assert kind.exit_code < 126  # where shells and signals have theirs


def test_errors_of_no_kind_of_ours_are_not_hidden() -> None:
    """A bug of echelon's own must look like one."""
    code = (
        "from echelon.cli import main; from echelon.cli.commands import runs; import sys\n"
        "def broken(*_, **__): raise ZeroDivisionError('a bug')\n"
        "runs.status.callback = broken\n"
        "main.call(['status', 'fm'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.endswith("ZeroDivisionError: a bug\n")
