"""A kubeconfig that somebody else has written: a clear error, no hang, no traceback, whatever is in it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.engines.kubernetes.hostile import GARBAGE, places, replaced
from tests.properties import examples

from echelon.engines.kubernetes.client.login import credentials
from echelon.engines.kubernetes.client.login.kubeconfig import load_access
from echelon.engines.kubernetes.client.login.trust import make_context
from echelon.errors import Denied, EchelonError, Unavailable

PLUGIN = {
    "apiVersion": "client.authentication.k8s.io/v1",
    "command": "./plugin",
    "args": ["token"],
    "env": [{"name": "A", "value": "b"}],
    "interactiveMode": "Never",
    "provideClusterInfo": True,
    "installHint": "install it",
}
NO_FILE = r"not a file|larger than|No such file"
CONFIG: dict[str, Any] = {
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team"}}],
    "clusters": [
        {
            "name": "c",
            "cluster": {
                "server": "https://127.0.0.1:1",
                "certificate-authority": "ca.crt",
                "tls-server-name": "x",
                "proxy-url": "http://127.0.0.1:2",
                "extensions": [{"name": "client.authentication.k8s.io/exec", "extension": {"a": 1}}],
            },
        }
    ],
    "users": [
        {
            "name": "u",
            "user": {
                "tokenFile": "token",
                "exec": PLUGIN,
                "as": "ann",
                "as-groups": ["g"],
                "as-user-extra": {"k": ["v"]},
            },
        }
    ],
    "current-context": "c",
}


def use(path: Path, config: object) -> dict[str, str]:
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return {"KUBECONFIG": str(path), "HOME": str(path.parent)}


@settings(max_examples=examples(200), deadline=None, suppress_health_check=list(HealthCheck))
@given(place=st.sampled_from(list(places(CONFIG))), garbage=GARBAGE)
def test_anything_in_any_field(tmp_path: Path, place: tuple[Any, ...], garbage: Any) -> None:
    with contextlib.suppress(EchelonError):
        access = load_access(environment=use(tmp_path / "config", replaced(CONFIG, place, lambda _: garbage)))
        with contextlib.suppress(EchelonError):
            make_context(access)
        credentials.Credentials(access).current()


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    lines += [f"current-context: *a{levels - 1}", f"contexts: [{{name: *a{levels - 1}}}]"]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (bomb(30), "aliases"),
        ("a: &a [*a]\ncontexts: *a", "aliases"),
        ("[" * 5000, "not YAML|nested"),
        ("{a: " * 5000, "not YAML|nested"),
        ("a: 2026-99-99 00:00:00", "a value that is none"),
        ("x" * (17 << 20), "larger than 16 MiB"),
        ("contexts: 7", "not a mapping"),
        ("- a", "not a mapping"),
    ],
)
def test_bombs(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(Unavailable, match=problem):
        load_access(environment=use(tmp_path / "config", text))


def test_a_kubeconfig_that_never_ends() -> None:
    with pytest.raises(Unavailable, match="larger than 16 MiB"):
        load_access(environment={"KUBECONFIG": "/dev/zero"})


def access_with(tmp_path: Path, **user: Any) -> Any:
    cluster = {key: CONFIG["clusters"][0]["cluster"][key] for key in ("server",)}
    config = {
        **CONFIG,
        "clusters": [{"name": "c", "cluster": {**cluster, **user.pop("cluster", {})}}],
        "users": [{"name": "u", "user": user}],
    }
    return load_access(environment=use(tmp_path / "config", config))


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "huge", "missing"])
def test_files_that_are_none(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "named"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "huge":
        with path.open("wb") as file:
            file.truncate(5 << 20)
    elif kind == "device":
        path = Path("/dev/zero")
    with pytest.raises(Unavailable, match=NO_FILE):
        make_context(access_with(tmp_path, cluster={"certificate-authority": str(path)}))
    with pytest.raises(Unavailable, match=NO_FILE):
        credentials.Credentials(access_with(tmp_path, tokenFile=str(path))).current()
    pair = {"client-certificate": str(path), "client-key": str(path)}
    with pytest.raises(Unavailable, match=NO_FILE):
        make_context(access_with(tmp_path, cluster={"insecure-skip-tls-verify": True}, **pair))


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], credentials.Credentials]:
    def make(program: str) -> credentials.Credentials:
        path = tmp_path / "plugin"
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(0o755)
        return credentials.Credentials(access_with(tmp_path, exec={**PLUGIN, "provideClusterInfo": False}))

    return make


def test_a_plugin_that_prints_without_end(plugin: Callable[[str], credentials.Credentials]) -> None:
    with pytest.raises(Denied, match=r"more than 1 MiB|failed with code"):
        plugin("import sys\nwhile True: sys.stdout.write('x' * 65536)").current()


def test_a_plugin_that_hangs(
    plugin: Callable[[str], credentials.Credentials], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(credentials, "PLUGIN_PATIENCE", 0.5)
    with pytest.raises(Denied, match="did not end within"):
        plugin("import time\ntime.sleep(600)").current()


def test_a_plugin_whose_child_keeps_the_pipe_open(
    plugin: Callable[[str], credentials.Credentials], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(credentials, "_LAST_OUTPUT", 0.5)
    pid = tmp_path / "pid"
    note = f"open({str(pid)!r}, 'w').write(str(os.getpid()))"
    child = f"import os, time\nif os.fork() == 0:\n {note}\n time.sleep(60)"
    try:
        with pytest.raises(Denied, match="no ExecCredential"):
            plugin(child).current()
    finally:
        if pid.exists() and pid.read_text():
            os.kill(int(pid.read_text()), 9)


@pytest.mark.parametrize(
    "status", [[], "x", {"token": ["a"]}, {"expirationTimestamp": "0001-01-01T00:00:00"}]
)
def test_what_a_plugin_prints_may_be_anything(
    plugin: Callable[[str], credentials.Credentials], status: object
) -> None:
    answer = {"kind": "ExecCredential", "apiVersion": PLUGIN["apiVersion"], "status": status}
    program = f"print({json.dumps(answer)!r})"
    if isinstance(status, dict) and "token" in status:
        assert plugin(program).current().authorization
    else:
        with pytest.raises(Denied):
            plugin(program).current()


def test_a_plugin_in_the_working_folder_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PATH with an empty entry finds it there, and the folder may be anybody's."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "aws").write_text("#!/bin/sh\ntouch ran\n")
    (work / "aws").chmod(0o755)
    monkeypatch.chdir(work)
    monkeypatch.setenv("PATH", f":{os.environ['PATH']}")
    wanted = access_with(tmp_path, exec={**PLUGIN, "command": "aws", "provideClusterInfo": False})
    with pytest.raises(Unavailable, match="working folder only"):
        credentials.Credentials(wanted).current()
    assert not (work / "ran").exists()
