"""A secret reaches the ranks and shows nowhere else."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import wait_for

Call = Callable[..., subprocess.CompletedProcess[str]]
VALUE = "hush-7391-hush"
OTHER = "hush-8264-hush"


def command_lines() -> Iterator[bytes]:
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            yield (entry / "cmdline").read_bytes()
        except OSError:
            continue


def files_below(*folders: Path) -> Iterator[tuple[Path, bytes]]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield path, path.read_bytes()


def test_a_secret_is_seen_by_the_ranks_alone(
    call: Call, write: Callable[..., Path], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", VALUE)
    key = write("../key", f"{OTHER}\n")
    write(
        "train.py",
        """
        import hashlib, os, pathlib, time
        words = os.environ["TOKEN"], os.environ["KEY"]
        out = pathlib.Path(os.environ["ECHELON_OUTPUT"])
        (out / "seen").write_text(" ".join(hashlib.sha256(word.encode()).hexdigest() for word in words))
        while not (out / "go").exists():
            time.sleep(0.02)
        """,
    )
    flags = ["-n", "2", "--name", "fm", "--secret", "TOKEN", "--secret", f"KEY=@{key}"]
    said = [
        call("run", "--dry-run", *flags, "train.py"),
        call("run", "--dry-run", "-o", "json", *flags, "train.py"),
    ]
    assert "TOKEN=***" in said[0].stdout
    said.append(call("run", "-d", *flags, "train.py"))
    wait_for("runs/fm/seen")
    for line in command_lines():
        assert VALUE.encode() not in line
        assert OTHER.encode() not in line
    said += [call(*words, "-o", "json") for words in (["ps"], ["status", "fm"], ["logs", "fm"], ["top"])]
    Path("runs/fm/go").touch()
    said.append(call("wait", "fm", "-o", "json"))
    for done in said:
        assert done.returncode == 0
        assert VALUE not in done.stdout + done.stderr
        assert OTHER not in done.stdout + done.stderr
    for path, content in files_below(home, Path("runs")):
        assert VALUE.encode() not in content, path
        assert OTHER.encode() not in content, path

    from hashlib import sha256

    assert Path("runs/fm/seen").read_text().split() == [
        sha256(word.encode()).hexdigest() for word in (VALUE, OTHER)
    ]


def test_a_value_on_the_command_line_is_refused_and_not_repeated(call: Call, hello: str) -> None:
    done = call("run", "--secret", f"TOKEN={VALUE}", hello)
    assert done.returncode == 110
    assert VALUE not in done.stdout + done.stderr
    assert "--secret TOKEN" in done.stderr


def test_the_gangs_own_secret_is_in_its_file_alone(call: Call, stay: str, home: Path) -> None:
    assert call("run", "-d", "-n", "2", "--name", "fm", stay).returncode == 0
    wait_for("runs/fm/pid-0", "runs/fm/pid-1")
    file = home / "runs" / "fm" / "secret"
    secret = file.read_bytes()
    assert len(secret) >= 32
    assert file.stat().st_mode & 0o077 == 0
    assert not any(secret in line for line in command_lines())
    Path("go").touch()
    assert json.loads(call("wait", "fm", "-o", "json").stdout)["state"] == "succeeded"
    assert [path for path, content in files_below(home, Path("runs")) if secret in content] == [file]
    assert (home / "runs" / "fm").stat().st_mode & 0o077 == 0
