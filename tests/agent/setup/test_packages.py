"""Packages that a run asks for: installed by the real pip into a folder of the worker's own."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tests.agent.pods import UP, Pods, parts
from tests.conftest import PATIENCE, find_python, wait_until

from echelon.agent.ranks.interpreter import find_python as python_of
from echelon.agent.setup import packages
from echelon.agent.task import INTERRUPTED, LEFT_FOR_GOOD, RUN_OVER
from echelon.bundle.zipapp import pip_wheel

VERSIONS = ("3.13", "3.12", "3.11", "3.8")


def is_plain(python: str | None) -> bool:
    """Whether there is one, and it is of no virtual environment: the PATH of `make test` begins with one."""
    return python is not None and not (Path(python).parents[1] / "pyvenv.cfg").exists()


PYTHONS: dict[str, Callable[[], str | None]] = {
    "a plain Python": lambda: next(filter(is_plain, map(find_python, VERSIONS)), None),
    # Which refuses to be installed into.
    "a distribution's own": lambda: shutil.which("python3", path="/usr/bin"),
    "a virtual environment": lambda: sys.executable,
}


def wheel(folder: Path, name: str, requires: Sequence[str] = (), script: bool = False) -> Path:
    """A package with one module, made by hand."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": f"WORD = '{name} is here'\ndef main():\n    print('{name} runs')\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        + "".join(f"Requires-Dist: {one}\n" for one in requires),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if script:
        files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},"
        f"{len(text.encode())}\n"
        for path, text in files.items()
    )
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name_in, text in {**files, f"{info}/RECORD": record + f"{info}/RECORD,,\n"}.items():
            archive.writestr(name_in, text)
    return path


def offline(folder: Path) -> dict[str, str]:
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder)}


@pytest.mark.parametrize("kind", PYTHONS)
def test_packages_are_there_when_the_ranks_start(pods: Pods, kind: str) -> None:
    """In a plain Python what it has already is not fetched again: there is no index to fetch it from."""
    python = PYTHONS[kind]()
    if python is None:
        pytest.skip(f"needs {kind}")
    if subprocess.run([python, "-m", "pip", "--version"], capture_output=True, check=False).returncode:
        pytest.skip(f"{python} has no pip")
    links = pods.folder / "links"
    wheel(links, "first", [] if python == sys.executable else ["pip"], script=True)
    wheel(links, "second")
    (pods.folder / "wanted.txt").write_text("second==1.0\n")
    pip = {"packages": ["first"], "requirements": str(pods.folder / "wanted.txt"), "wheel_parts": None}
    script = (
        "import first, os, second, subprocess\n"
        "program = subprocess.run(['first'], capture_output=True, text=True).stdout.strip()\n"
        "print(first.WORD, second.WORD, program, os.environ['PYTHONPATH'].split(':')[-1], sep=', ')\n"
    )
    pods.script(
        script + "if os.environ['ECHELON_RESTART'] == '0': raise SystemExit(1)",
        python=python,
        workers=2,
        restarts=1,
        pip=pip,
        env={"PYTHONPATH": "/the/users/own"},
    )
    pods.start_all(env=offline(links))
    assert [pods.code(worker) for worker in (0, 1)] == [0, 0]
    for worker in (0, 1):
        assert pods.said(worker)[-1] == "first is here, second is here, first runs, /the/users/own"
        notes = [event["reason"] for event in pods.events(worker) if event["kind"] == "note"]
        own = [note for note in notes if "packages" in note]
        assert own.count("installing packages: first, -r wanted.txt") == (2 if worker == 0 else 1)
        words = [line for line in pods.log(worker) if re.match(rb"[\d.]+ \d+ \[-\] ", line)]
        assert any(b"Successfully installed first-1.0 second-1.0" in line for line in words)
        kept = (pods.place(worker) / f"output/logs/pip-worker-{worker}.log").read_text()
        assert kept.count("Successfully installed") == 1  # once, however often the ranks are started
    notes = [event["reason"] for event in pods.events(0) if event["kind"] == "note" and event["worker"] == 1]
    assert re.fullmatch(r"packages installed in [\d.]+ s", notes[-1])


def test_packages_that_do_not_exist_end_the_run_with_pips_words(pods: Pods) -> None:
    pods.script(UP, workers=2, restarts=3, pip={"packages": ["nowhere-to-be-found"]}, hold=3600)
    (pods.folder / "links").mkdir()
    pods.start(1, env=offline(pods.folder / "links"))
    pods.start(0, pip=None)
    assert [pods.code(worker) for worker in (0, 1)] == [RUN_OVER, 0]
    cause = pods.last_words()["cause"]
    words = (
        "worker 1: the packages cannot be installed: No matching distribution found for nowhere-to-be-found"
    )
    assert (cause["summary"], cause["exit_code"]) == (words, 119)
    assert any("No matching distribution" in line for line in cause["tail"])


@pytest.mark.parametrize("kind", ["a virtual environment", "a distribution's own"])
def test_a_python_without_pip_is_lent_one(pods: Pods, kind: str) -> None:
    """Also one whose packages are its distribution's business: it is not touched."""
    data = pip_wheel()
    if data is None:
        pytest.skip("this Python came without pip's wheel")
    if kind == "a virtual environment":
        python = bare(pods.folder)
    else:
        python = shutil.which("python3", path="/usr/bin") or ""
        if (
            not python
            or not subprocess.run([python, "-c", "import pip"], capture_output=True, check=False).returncode
        ):
            pytest.skip("no Python of the system's without pip")
    links = pods.folder / "links"
    wheel(links, "first")
    pip = {"packages": ["first"], "requirements": None, "wheel_parts": parts(pods.folder, data, 700_000)}
    pods.script("import first\nprint(first.WORD)", python=python, pip=pip)
    pods.start(0, env=offline(links))
    assert pods.code(0) == 0
    assert pods.said(0) == ["first is here"]


def bare(folder: Path) -> str:
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder / "bare")]
    subprocess.run(command, check=True, timeout=PATIENCE)
    return str(folder / "bare" / "bin" / "python")


def test_a_python_without_pip_and_nobody_to_lend_one(pods: Pods) -> None:
    pods.script(UP, python=bare(pods.folder), pip={"packages": ["first"]})
    pods.start(0)
    assert pods.code(0) == RUN_OVER
    words = "worker 0: the packages cannot be installed: this Python has no pip"
    assert pods.last_words()["cause"]["summary"] == words


@pytest.mark.parametrize("end", ["sigterm", "stop"])
def test_an_installation_can_be_interrupted(pods: Pods, end: str) -> None:
    """An index that takes a connection and says nothing."""
    script = pods.folder / "slow.py"
    script.write_text(
        "import socket, time\ns = socket.create_server(('127.0.0.1', 0))\n"
        "print(s.getsockname()[1], flush=True)\nkeep = []\nwhile True: keep.append(s.accept())\n"
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as slow:
        assert slow.stdout is not None
        port = slow.stdout.readline().strip()
        pods.script(UP, pip={"packages": ["first"]}, hold=3600)
        pods.start(0, env={"PIP_INDEX_URL": f"http://user:sesame@127.0.0.1:{port}/simple"})
        pods.wait_for("note")
        time.sleep(0.5)
        if end == "sigterm":
            pods.processes[0].terminate()
            assert pods.code(0) in (INTERRUPTED, LEFT_FOR_GOOD)
        else:
            assert pods.order(0, "stop").returncode == 0
            assert pods.code(0) == RUN_OVER
            assert pods.last_words()["outcome"] == "stopped"
        slow.kill()
    assert b"sesame" not in b"".join(pods.log(0))
    wait_until(lambda: not _uses(str(pods.place(0))), "pip to be gone")


def _uses(folder: str) -> bool:
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in entry.read_bytes():
                return True
        except OSError:
            continue
    return False


def test_no_password_of_an_index_is_told() -> None:
    text = "git+https://user:sesame@host/x, pkg @ https://token@host/y.whl, mail@example.org"
    assert packages.hide_credentials(text) == (
        "git+https://***@host/x, pkg @ https://***@host/y.whl, mail@example.org"
    )
    assert (
        packages.last_error(b"ERROR: no\nERROR: https://a:b@c/ is gone\n\nbye\n") == "https://***@c/ is gone"
    )
    assert packages.last_error(b"last words\n") == "last words"
    tried = b"WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError()': /x/\n"
    missing = b"ERROR: No matching distribution found for x\n"
    assert "cannot be reached" in str(packages.last_error(tried + missing))
    assert packages.last_error(missing) == "No matching distribution found for x"
    assert packages.last_error(b"\n") is None


def test_which_python_runs_a_command(tmp_path: Path) -> None:
    for name, first in (
        ("env", "#!/usr/bin/env python3.9"),
        ("own", "#!/opt/x/bin/python"),
        ("sh", "#!/bin/sh"),
    ):
        (tmp_path / name).write_text(first + "\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "python3").write_text("")
    (tmp_path / "python3").chmod(0o755)
    path = f"/nowhere:{tmp_path}"
    assert python_of("/usr/bin/python3.12", path) == "/usr/bin/python3.12"
    assert python_of("env", path) == "python3.9"
    assert python_of("own", path) == "/opt/x/bin/python"
    assert [python_of(name, path) for name in ("sh", "missing", str(tmp_path / "sh"))] == ["python3"] * 3
    assert python_of("missing", "/nowhere") == sys.executable
