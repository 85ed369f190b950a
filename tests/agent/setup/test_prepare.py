"""What a worker in a pod gets before its ranks start: the code in parts, a home, its share of the CPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.agent.pods import Pods, parts

from echelon.agent.task import RUN_OVER
from echelon.bundle import pack_files

CODE = pack_files(
    {
        "main.py": b"import part\nprint(part.WORD)\n",
        "part.py": b"WORD = 'shipped'\n",
        "data": os.urandom(3000),
    }
)


def test_code_in_parts(pods: Pods) -> None:
    bundle = {"parts": parts(pods.folder, CODE.data), "digest": CODE.digest}
    assert len(bundle["parts"]) > 2
    pods.describe(sys.executable, "main.py", workers=2)
    for worker in (1, 0):
        target = str(pods.folder / f"code-{worker}")
        pods.start(worker, cwd=target, bundle={**bundle, "target": target})
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    assert pods.said(0) == pods.said(1) == ["shipped"]


@pytest.mark.parametrize("trouble", ["a part is missing", "a part is damaged", "something is in the way"])
def test_code_that_does_not_arrive_ends_the_run_whatever_restarts_are_left(pods: Pods, trouble: str) -> None:
    """It is worker 1 that has the trouble, and the leader who says so."""
    pieces = parts(pods.folder, CODE.data)
    pods.describe(sys.executable, "main.py", workers=2, restarts=5, hold=3600)
    target = pods.folder / "code-1"
    if trouble == "a part is missing":
        bad = [*pieces[:-1], str(pods.folder / "nothing")]
        expected = f"{pods.folder}/nothing: No such file or directory"
    elif trouble == "a part is damaged":
        bad = pieces[:-1]
        expected = f"the bundle is damaged: its content does not have the digest {CODE.digest}"
    else:
        bad = pieces
        target.write_text("in the way")
        expected = f"{target}: something else is there already"
    pods.start(0, cwd=str(pods.folder / "code-0"), bundle=_bundle(pieces, pods.folder / "code-0"))
    pods.start(1, cwd=str(target), bundle=_bundle(bad, target))
    assert [pods.code(worker) for worker in (0, 1)] == [RUN_OVER, 0]
    cause = pods.last_words()["cause"]
    assert cause["summary"] == f"worker 1: the code cannot be unpacked: {expected}"
    assert (cause["worker"], cause["exit_code"]) == (1, 116)
    assert pods.said(0) == pods.said(1) == []
    assert "note" in pods.kinds(1)


def _bundle(pieces: list[str], target: Path) -> dict[str, Any]:
    return {"parts": pieces, "digest": CODE.digest, "target": str(target)}


# A home

ASK = (
    "import getpass, json, os, tempfile\n"
    "print(json.dumps({'home': os.path.expanduser('~'), 'user': getpass.getuser(), "
    "'temporary': tempfile.gettempdir()}))"
)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without a name")
def test_a_user_without_a_name_or_a_home(pods: Pods) -> None:
    """As in a pod that runs as any user id."""
    for path in (pods.folder, *pods.folder.iterdir()):
        os.chown(path, 54321, 54321)
    pods.folder.chmod(0o755)
    pods.script(ASK)
    launcher = pods.folder / "as-nobody"
    python = shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable
    launcher.write_text(
        f"#!{python}\nimport os, sys\nos.setgroups([])\nos.setgid(54321)\nos.setuid(54321)\n"
        f"os.umask(0o077)\nos.execv({str(python)!r}, [{str(python)!r}, *sys.argv[1:]])\n"
    )
    launcher.chmod(0o755)
    if subprocess.run([launcher, "-c", ""], capture_output=True, check=False).returncode:
        pytest.skip("the Python of the tests is for root alone")
    state = pods.folder / "theirs"
    state.mkdir()
    os.chown(state, 54321, 54321)
    for name in ("script.py", "gang"):
        (pods.folder / name).chmod(0o644)
    env = {"HOME": "/root"}
    unset = {
        key: os.environ.pop(key) for key in ("USER", "LOGNAME", "LNAME", "USERNAME") if key in os.environ
    }
    try:
        pods.describe(python, str(pods.folder / "script.py"))
        pods.start(
            0,
            python=str(launcher),
            env=env,
            reports=str(state),
            cwd=str(state),
            output=str(state / "output"),
            logs=str(state / "output/logs"),
            control=str(state / "c"),
        )
    finally:
        os.environ.update(unset)
    assert pods.code(0) == 0, pods.log(0)
    told = json.loads(pods.said(0)[0])
    assert (told["home"], told["user"]) == (str(state / "home"), "echelon")


def test_a_home_that_can_be_used_is_left_alone(pods: Pods) -> None:
    pods.script(ASK)
    pods.start(0, env={"HOME": str(pods.folder), "USER": "me", "LOGNAME": "me"})
    assert pods.code(0) == 0
    told = json.loads(pods.said(0)[0])
    assert (told["home"], told["user"]) == (str(pods.folder), "me")


def test_the_agent_counts_the_cpus_where_the_client_does_not(pods: Pods) -> None:
    pods.script("import os; print(os.environ['OMP_NUM_THREADS'])", procs=2, launch={"threads": 0})
    pods.start(0)
    assert pods.code(0) == 0
    assert all(1 <= int(said) <= len(os.sched_getaffinity(0)) for said in pods.said(0))


@pytest.mark.parametrize(
    ("there", "failures", "code"),
    [("model", 0, 193), ("logs", 0, 0), ("lost+found", 0, 0), ("model", 1, 0)],  # of this run, the last time
)
def test_results_are_not_mixed_with_what_is_there(
    pods: Pods, tmp_path: Path, there: str, failures: int, code: int
) -> None:
    volume = tmp_path / "volume"
    (volume / there).mkdir(parents=True)
    pods.script("print('ran')", fresh=True, restarts=3)
    pods.start(0, failures=failures, output=str(volume), logs=str(volume / "logs"))
    assert pods.code(0) == code
    if code:
        cause = pods.verdict()["cause"]
        assert cause["exit_code"] == 115
        assert "is not empty: it has model (say --reuse-results" in cause["summary"]


@pytest.mark.parametrize(("same", "code"), [(True, 0), (False, 193)])
def test_a_run_that_begins_anew_goes_on_in_its_own_results(
    pods: Pods, tmp_path: Path, same: bool, code: int
) -> None:
    """Who suspends a Job and lets it go on gets pods that look like the first, and find what these wrote.
    Another run of the same name does not go on in them.
    """
    volume = tmp_path / "volume"
    for number in range(2):
        pods.script("import os; open(os.environ['ECHELON_OUTPUT'] + '/model', 'a').write('x')", fresh=True)
        if number and not same:
            (pods.folder / "gang").write_text("the secret of another run")
        pods.start(0, output=str(volume), logs=str(volume / "logs"))
        assert pods.code(0) == (code if number else 0)
        pods.place(0).rename(tmp_path / f"pod-{number}")  # the next has the place of a first one, too
    assert (volume / "model").read_text() == ("xx" if same else "x")
