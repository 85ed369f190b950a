"""As whom to talk to a registry: files of docker and podman, and real helper programs."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from echelon.errors import Denied
from echelon.image.reference import parse_reference
from echelon.image.registry.credentials import Credential, find_credential

SECRET = "open:sesame"


def encoded(user: str, password: str = SECRET) -> dict[str, str]:
    return {"auth": base64.b64encode(f"{user}:{password}".encode()).decode()}


@pytest.fixture
def logins(nobody: Path) -> Callable[..., Path]:
    """Write docker's file."""

    def write(**content: object) -> Path:
        path = nobody / "config.json"
        path.write_text(json.dumps(content))
        return path

    return write


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Install a credential helper: a shell script, which notes what it was asked."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def install(name: str, script: str) -> Path:
        path = folder / f"docker-credential-{name}"
        path.write_text(f'#!/bin/sh\nread key\necho "$* $key" >> {folder}/asked\n{script}\n')
        path.chmod(0o755)
        return folder / "asked"

    return install


def find(name: str) -> Credential | None:
    return find_credential(parse_reference("base", name))


def test_nobody_is_logged_in() -> None:
    assert find("a.io/x") is None


def test_what_docker_login_writes(logins: Callable[..., Path]) -> None:
    path = logins(auths={"a.io": encoded("ann"), "b.io": {}})
    assert find("a.io/x") == Credential(source=str(path), user="ann", password=SECRET)
    assert find("b.io/x") is None
    assert find("c.io/x") is None


@pytest.mark.parametrize("key", ["https://index.docker.io/v1/", "docker.io", "index.docker.io"])
def test_dockers_own_registry_has_many_names(logins: Callable[..., Path], key: str) -> None:
    logins(auths={key: encoded("ann")})
    found = find("python:3.12")
    assert found is not None
    assert found.user == "ann"


@pytest.mark.parametrize(
    "key", ["https://a.io:5000", "https://a.io:5000/v2/", "http://a.io:5000/v1/", "a.io:5000"]
)
def test_older_spellings(logins: Callable[..., Path], key: str) -> None:
    logins(auths={key: encoded("ann")})
    assert find("a.io:5000/x") is not None
    assert find("a.io/x") is None


def test_podman_keeps_logins_for_parts_of_a_registry(
    tmp_path: Path, logins: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    logins(
        auths={"a.io/team": encoded("team"), "a.io": encoded("all"), "a.io/team/special": encoded("special")}
    )
    users = [
        getattr(find(name), "user", None)
        for name in ("a.io/team/x", "a.io/team/special", "a.io/teams", "b.io/x")
    ]
    assert users == ["team", "special", "all", None]

    runtime = tmp_path / "runtime" / "containers"
    runtime.mkdir(parents=True)
    (runtime / "auth.json").write_text(json.dumps({"auths": {"b.io": encoded("podman")}}))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    found = find("b.io/x")
    assert found is not None
    assert found.user == "podman"

    named = tmp_path / "named.json"
    named.write_text(json.dumps({"auths": {"a.io": encoded("named")}}))
    monkeypatch.setenv("REGISTRY_AUTH_FILE", str(named))
    found = find("a.io/team/x")
    assert found is not None
    assert found.user == "named"


def test_tokens(logins: Callable[..., Path]) -> None:
    path = logins(
        auths={"a.io": {**encoded("ann", ""), "identitytoken": "it"}, "b.io": {"registrytoken": "rt"}}
    )
    assert find("a.io/x") == Credential(source=str(path), user="ann", identity_token="it")
    assert find("b.io/x") == Credential(source=str(path), access_token="rt")


def test_a_helper_for_the_registry_comes_before_the_file(
    logins: Callable[..., Path], helper: Callable[[str, str], Path]
) -> None:
    asked = helper("one", """echo '{"ServerURL":"a.io","Username":"helped","Secret":"s"}'""")
    logins(credHelpers={"a.io": "one"}, auths={"a.io": encoded("ann"), "b.io": encoded("bob")})
    assert find("a.io/x") == Credential(source="docker-credential-one", user="helped", password="s")
    assert asked.read_text() == "get a.io\n"  # the name is on its standard input, not on its command line
    found = find("b.io/x")
    assert found is not None
    assert found.user == "bob"


def test_the_general_helper_is_asked_by_dockers_name(
    logins: Callable[..., Path], helper: Callable[[str, str], Path]
) -> None:
    asked = helper("all", """echo '{"Username":"<token>","Secret":"identity"}'""")
    logins(credsStore="all", auths={"https://index.docker.io/v1/": {}})
    assert find("python") == Credential(source="docker-credential-all", identity_token="identity")
    assert asked.read_text() == "get https://index.docker.io/v1/\n"


def test_a_helper_that_knows_nothing_lets_the_file_speak(
    logins: Callable[..., Path], helper: Callable[[str, str], Path]
) -> None:
    helper("all", "echo 'credentials not found in native keychain'; exit 1")
    logins(credsStore="all", auths={"a.io": encoded("ann")})
    found = find("a.io/x")
    assert found is not None
    assert found.user == "ann"
    assert find("b.io/x") is None


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("echo 'the keychain is locked' >&2; exit 1", "the keychain is locked"),
        ("echo 'not json'", "can be read"),
        ("echo '[]'", "can be read"),
        ("exit 3", "gives no login"),
    ],
)
def test_a_helper_in_trouble_is_named(
    logins: Callable[..., Path], helper: Callable[[str, str], Path], script: str, words: str
) -> None:
    helper("one", script)
    logins(credHelpers={"a.io": "one"})
    with pytest.raises(Denied, match=words) as caught:
        find("a.io/x")
    assert "docker-credential-one" in caught.value.message


def test_a_helper_that_is_missing(logins: Callable[..., Path], helper: Callable[[str, str], Path]) -> None:
    logins(credHelpers={"a.io": "gone"}, credsStore="desktop", auths={"b.io": {}})
    with pytest.raises(Denied, match="docker-credential-gone, which is not on the PATH"):
        find("a.io/x")
    with pytest.raises(Denied, match="docker-credential-desktop, which is not on the PATH"):
        find("b.io/x")
    # Left over from another machine: no reason not to read a public image.
    assert find("c.io/x") is None


def test_a_helper_is_no_path(logins: Callable[..., Path]) -> None:
    logins(credHelpers={"a.io": "x/../../../bin/sh"})
    with pytest.raises(Denied, match="not a credential helper"):
        find("a.io/x")


@pytest.mark.parametrize("content", ["", "no json", "[]", "{", "\xff"])
def test_a_damaged_file_is_named(nobody: Path, content: str) -> None:
    (nobody / "config.json").write_text(content)
    with pytest.raises(Denied, match=r"config\.json"):
        find("a.io/x")


@pytest.mark.parametrize(
    "content",
    [{}, {"auths": []}, {"auths": {"a.io": "x"}}, {"auths": {"a.io": {"auth": 3}}}, {"credsStore": 3}],
)
def test_a_strange_file_says_nothing(logins: Callable[..., Path], content: dict[str, object]) -> None:
    logins(**content)
    assert find("a.io/x") is None


def test_a_damaged_login_is_named_without_showing_it(logins: Callable[..., Path]) -> None:
    logins(auths={"a.io": {"auth": "c2VjcmV0*"}})
    with pytest.raises(Denied, match="damaged") as caught:
        find("a.io/x")
    assert "c2VjcmV0" not in str(caught.value)


def test_no_secret_is_shown_by_accident() -> None:
    credential = Credential(source="x", user="ann", password="s1", identity_token="s2", access_token="s3")
    for secret in ("s1", "s2", "s3"):
        assert secret not in repr(credential)
        assert secret not in f"{credential}"
